//! That the rows which a statement changes are of the moment at which it has collected others.
//!
//! Owns: the condition that says so, and what has no rows that could be asked.
//! Never: is needed where a transaction has one snapshot.
//!
//! At READ COMMITTED the rows of other nodes are collected at one moment, and those that are changed are found at a later
//! one. Where a transaction of others has changed both in between, the statement would see it in part. So each row that it
//! would change is asked whether it was there at the first moment already: the snapshot of its node travels with the rows,
//! and `tutti.of_moment` compares. Rows that are gone, or match no longer, one PostgreSQL would leave alone as well, for
//! after it has waited for them it looks again (`docs/protocol/rooms.md`).

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{BoolExpr, BoolExprType, Node, RangeVar, SelectStmt};

use crate::catalog::{Relation, RelationKind, quote_identifier};
use crate::plan::{Collect, CollectFrom, Template};
use crate::planner::context::Context;
use crate::planner::gaps::{expression, gap, parse_select};
use crate::planner::sql_text::deparse;
use crate::planner::syntax::written;
use crate::refusal::Refusal;

/// A row of nothing that is joined with the others: what is asked of it, too, is asked when the other conditions have
/// been met, as PostgreSQL's planner reckons. `RETURNING *` has no column of it.
///
/// Its name, with a number that makes it no other's here: neither a table nor a column is called so.
fn beside(tree: &NodeEnum, context: &Context<'_>) -> Result<String, Refusal> {
    let text = deparse(tree)?;
    let is_column = |name: &str| {
        let relations = context.catalog.relations.values().flat_map(|all| all.values());
        relations.flat_map(|relation| &relation.columns).any(|column| &*column.name == name)
    };
    let names = (0..).map(|number| format!("tutti_beside_{number}"));
    let mut free = names.filter(|name| !text.contains(name.as_str()) && !is_column(name));
    free.next().ok_or_else(|| Refusal::postgres("XX000", "no name is free"))
}

/// The statement with the condition; `index`: of [`collect`] among its collects.
///
/// Errors: 0A000 if the target has no rows of its own.
pub(super) fn checked(
    mut tree: NodeEnum,
    target: &Relation,
    index: usize,
    context: &Context<'_>,
) -> Result<NodeEnum, Refusal> {
    let is_table = |relation: &Arc<Relation>| matches!(relation.kind, RelationKind::Table);
    let has_versions = |range: &&RangeVar| context.relation(range).is_some_and(is_table);
    let Some(range) = written(&tree).filter(has_versions) else {
        return Err(Refusal::unsupported(
            format!("this change of \"{}\" would see several moments of the cluster", target.name),
            "Rows are brought from other nodes, and at READ COMMITTED those that are changed would be read later than they \
             were.",
            "Run it outside of a transaction block, or at REPEATABLE READ; or change the table itself.",
        ));
    };
    let alias = match &range.alias {
        Some(alias) => quote_identifier(&alias.aliasname),
        None => quote_identifier(&range.relname),
    };
    let is_merge = matches!(tree, NodeEnum::MergeStmt(_));
    let name = beside(&tree, context)?;
    let beside = if is_merge { "NULL::pg_catalog.record" } else { &name };
    let condition = expression(&format!(
        "tutti.of_moment({alias}.xmin, ({}::pg_catalog.text[])[1], {beside})",
        gap(index)
    ))?;
    let place = match &mut tree {
        NodeEnum::UpdateStmt(update) => {
            update.from_clause.push(row_of_nothing(&name)?);
            &mut update.where_clause
        }
        NodeEnum::DeleteStmt(delete) => {
            delete.using_clause.push(row_of_nothing(&name)?);
            &mut delete.where_clause
        }
        NodeEnum::MergeStmt(merge) => &mut merge.join_condition,
        _ => return Ok(tree),
    };
    let conditions = place.take().map(|condition| *condition).into_iter().chain([condition]);
    let all = BoolExpr {
        boolop: BoolExprType::AndExpr.into(),
        args: conditions.collect(),
        ..BoolExpr::default()
    };
    *place = Some(Box::new(Node { node: Some(NodeEnum::BoolExpr(Box::new(all))) }));
    Ok(tree)
}

/// OFFSET keeps PostgreSQL from making a constant of it.
fn row_of_nothing(name: &str) -> Result<Node, Refusal> {
    let SelectStmt { from_clause, .. } =
        *parse_select(&format!("SELECT FROM (SELECT OFFSET 0) AS {name}"))?;
    let item = from_clause.into_iter().next();
    item.ok_or_else(|| Refusal::postgres("XX000", "a row of nothing cannot be said"))
}

/// What the condition compares with.
pub(super) fn collect(target: &Arc<Relation>) -> Collect {
    Collect {
        relation: target.clone(),
        select: Template(Vec::new()),
        from: CollectFrom::Moments,
        locks: None,
        route: None,
        reduced: Vec::new(),
    }
}
