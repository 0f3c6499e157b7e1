//! Plans in a cluster of which node 1 has all: every statement is node 1's, as the client wrote it.
//!
//! Owns: what such a statement does to node 1. Statements that the gateway itself must know about, whatever
//! the tables (transactions, settings, prepared statements, cursors, channels, Tutti's own functions, a table
//! that is spread), are recognised by the dispatch.
//! Never: refuses or changes a statement: what PostgreSQL takes for one server is taken here.
//! Start reading at [`plan_solo`]; why is docs/decisions/2026-11-22-home-tables.md.

use pg_query::NodeEnum;
use pg_query::protobuf::{ExplainStmt, Node, SelectStmt};

use super::context::Context;
use super::functions;
use super::syntax::{is_on, name_of, option};
use crate::catalog::Volatility;
use crate::plan::{Access, DataPlan, NodeChoice, Plan, Planned};
use crate::statement::Statement;
use crate::walk;

/// The plan of a statement that node 1 runs as it is.
pub(super) fn plan_solo(statement: &Statement, context: &Context<'_>) -> Planned {
    let access = match &statement.tree {
        NodeEnum::SelectStmt(select) => access(select, &statement.tree, context),
        NodeEnum::ExplainStmt(explain) => {
            match option(&explain.options, "analyze").is_some_and(is_on) {
                true => Access::Write,
                false => Access::Read,
            }
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
    let plan = Plan::Data(DataPlan::One { node: NodeChoice::Home, access, otherwise: None });
    Planned::new(plan, "no table is on other nodes")
}

/// What an EXPLAIN or a CREATE TABLE … AS runs, which may be an EXECUTE that only the session knows.
pub(super) fn run_within(tree: &NodeEnum) -> Option<&NodeEnum> {
    match tree {
        NodeEnum::ExplainStmt(explain) => explained(explain),
        NodeEnum::CreateTableAsStmt(create) => {
            create.query.as_ref().and_then(|query| query.node.as_ref())
        }
        _ => None,
    }
}

/// What is explained; for a table that is made from a query, the query.
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
