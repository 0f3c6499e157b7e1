//! From a statement, the catalog and a name scope to a plan that says why.
//!
//! Owns: the choice between one node, scatter and gather for everything that reads or changes rows,
//! and the dispatch of all other statements.
//! Never: looks at parameter values (they come at Bind), runs anything.
//! Start reading at [`plan`], then `query.rs`.

mod query;

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, RangeVar};

use crate::catalog::{Catalog, NameScope, Relation};
use crate::plan::Planned;
use crate::refusal::Refusal;
use crate::statement::Statement;

/// What a statement is planned against.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The cluster's relations, functions and bucket maps.
    pub catalog: &'a Catalog,
    /// How the session sees names.
    pub scope: &'a NameScope,
    /// The session is inside a transaction block.
    pub in_transaction: bool,
}

impl<'a> Context<'a> {
    /// The relation that `range` means; `None` for what only node 1 knows.
    pub(crate) fn relation(&self, range: &RangeVar) -> Option<&'a Arc<Relation>> {
        let schema = Some(range.schemaname.as_str()).filter(|schema| !schema.is_empty());
        self.catalog.resolve(self.scope, schema, &range.relname)
    }
}

/// Chooses how to run `statement`.
///
/// Errors: a [`Refusal`] when no plan would give PostgreSQL's answer; the client is told.
pub fn plan(statement: &Statement, context: &Context<'_>) -> Result<Planned, Refusal> {
    match &statement.tree {
        NodeEnum::SelectStmt(select) => query::plan_select(select, context),
        _ => Err(Refusal::postgres("0A000", "this statement is not planned yet")),
    }
}

/// The SQL text of a whole statement's tree.
pub(crate) fn deparse(statement: &NodeEnum) -> Result<String, Refusal> {
    statement.deparse(pg_query::DeparseOptions::default()).map_err(|error| {
        Refusal::postgres("XX000", format!("a statement could not be written out again: {error}"))
    })
}

/// The SQL text of an expression's tree.
pub(crate) fn deparse_expression(expression: &Node) -> Result<String, Refusal> {
    use pg_query::protobuf::{ResTarget, SelectStmt};
    let target = ResTarget { val: Some(Box::new(expression.clone())), ..ResTarget::default() };
    let select = SelectStmt {
        target_list: vec![Node { node: Some(NodeEnum::ResTarget(Box::new(target))) }],
        ..SelectStmt::default()
    };
    let text = deparse(&NodeEnum::SelectStmt(Box::new(select)))?;
    Ok(text.trim_start_matches("SELECT ").to_owned())
}
