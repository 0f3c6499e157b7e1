//! Plans in a cluster of which node 1 has all: every statement is node 1's, as the client wrote it.
//!
//! Owns: telling statements that the gateway itself must know of, whatever the tables (transactions,
//! settings, prepared statements, cursors, channels, Tutti's own functions, a table that is spread)
//! from all others.
//! Never: refuses or changes a statement: what PostgreSQL takes for one server is taken here.
//! Start reading at [`plan_solo`]; why is docs/decisions/2026-11-22-home-tables.md.

use pg_query::NodeEnum;
use pg_query::protobuf::{ExplainStmt, Node, SelectStmt};

use super::context::Context;
use super::syntax::{is_on, name_of, option};
use super::utility::prepared;
use super::{functions, utility};
use crate::catalog::Volatility;
use crate::plan::{Access, NodeChoice, Plan, Planned};
use crate::refusal::Refusal;
use crate::statement::Statement;
use crate::walk;

/// The plan of `statement` if node 1 runs it as it is; `None` if the session has a part in it.
pub(super) fn plan_solo(
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Option<Planned>, Refusal> {
    if statement.spreads() || statement.is_of_session() {
        return Ok(None);
    }
    let access = match &statement.tree {
        NodeEnum::SelectStmt(select) => {
            if let Some(planned) = utility::special_select(select, context)? {
                return Ok(Some(planned));
            }
            access(select, &statement.tree, context)
        }
        NodeEnum::ExplainStmt(explain) => {
            if let Some(planned) = prepared::plan_within(explained(explain), statement)? {
                return Ok(Some(planned));
            }
            match option(&explain.options, "analyze").is_some_and(is_on) {
                true => Access::Write,
                false => Access::Read,
            }
        }
        NodeEnum::CreateTableAsStmt(create) => {
            let query = create.query.as_ref().and_then(|query| query.node.as_ref());
            if let Some(planned) = prepared::plan_within(query, statement)? {
                return Ok(Some(planned));
            }
            Access::Write
        }
        NodeEnum::CopyStmt(copy) if !copy.is_from && !copy.is_program => {
            match copy.query.as_ref().and_then(|query| query.node.as_ref()) {
                Some(tree @ NodeEnum::SelectStmt(select)) => access(select, tree, context),
                Some(_) => Access::Write,
                None => Access::Read,
            }
        }
        _ => Access::Write,
    };
    let plan = Plan::One { node: NodeChoice::Home, access, otherwise: None };
    Ok(Some(Planned::new(plan, "no table is on other nodes")))
}

/// What is explained; of a table that is made of a query, the query.
fn explained(explain: &ExplainStmt) -> Option<&NodeEnum> {
    match explain.query.as_ref().and_then(|query| query.node.as_ref()) {
        Some(NodeEnum::CreateTableAsStmt(create)) => {
            create.query.as_ref().and_then(|query| query.node.as_ref())
        }
        explained => explained,
    }
}

/// Whether a query may write: it locks rows, has a part that changes data, or calls what may do
/// anything. What its tables' code may do cannot make a difference on one node.
fn access(select: &SelectStmt, tree: &NodeEnum, context: &Context<'_>) -> Access {
    if select.into_clause.is_some() || may_write(tree, context) {
        Access::Write
    } else {
        Access::Read
    }
}

fn may_write(node: &NodeEnum, context: &Context<'_>) -> bool {
    let writes = match node {
        NodeEnum::InsertStmt(_)
        | NodeEnum::UpdateStmt(_)
        | NodeEnum::DeleteStmt(_)
        | NodeEnum::MergeStmt(_)
        | NodeEnum::LockingClause(_)
        | NodeEnum::IntoClause(_) => true,
        NodeEnum::SelectStmt(select) => !select.locking_clause.is_empty(),
        NodeEnum::FuncCall(call) => {
            let (schema, name) = name_of(call);
            !functions::is_built_in(schema, name, context)
                || context
                    .catalog
                    .function(context.scope, schema, name)
                    .is_none_or(|function| function.volatility == Volatility::Volatile)
        }
        _ => false,
    };
    let mut found = writes;
    if !found {
        walk::read::children(node, &mut |child: &Node| {
            found = found || child.node.as_ref().is_some_and(|child| may_write(child, context));
        });
    }
    found
}
