//! Queries that lock rows of one table by conditions with subqueries, which each node can decide for its own rows.
//!
//! Owns: that rule. Never: moves a condition (`gather.rs` does).
//! Start reading at [`of`].

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, SelectStmt};

use super::analysis::{Analysis, ItemId, NOWHERE, Source};
use super::context::Context;
use super::locality::home_reason;
use super::scatter;
use super::syntax::{contains, has_subquery};
use super::views::analyse_select;
use crate::refusal::Refusal;
use crate::walk;

/// Such a query.
pub(super) struct LocalLock {
    /// The table whose rows are locked.
    pub(super) item: ItemId,
    /// What its conditions read.
    pub(super) read: Vec<ItemId>,
}

/// The queries in `tree`, which has the locations of `analysis`, that are such.
pub(super) fn of(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Vec<LocalLock>, Refusal> {
    let mut found = Vec::new();
    if !analysis.locked.is_empty() {
        visit(tree, analysis, context, &mut found)?;
    }
    Ok(found)
}

fn visit(
    node: &NodeEnum,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
    found: &mut Vec<LocalLock>,
) -> Result<(), Refusal> {
    if let NodeEnum::SelectStmt(select) = node {
        found.extend(local(select, analysis, context)?);
    }
    let mut result = Ok(());
    walk::read::children(node, &mut |child| {
        if let (Ok(()), Some(node)) = (&result, &child.node) {
            result = visit(node, analysis, context, found);
        }
    });
    result
}

fn local(
    select: &SelectStmt,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Option<LocalLock>, Refusal> {
    let [Node { node: Some(NodeEnum::RangeVar(range)) }] = &select.from_clause[..] else {
        return Ok(None);
    };
    let Some(condition) = select.where_clause.as_deref() else { return Ok(None) };
    if select.locking_clause.is_empty()
        || select.with_clause.is_some()
        || !has_subquery(condition)
        || has_long_names(condition)
    {
        return Ok(None);
    }
    let at = |location: i32| {
        let is_it = |item: &ItemId| analysis.items[*item].location == location;
        (0..analysis.items.len()).find(|item| location != NOWHERE && is_it(item))
    };
    let Some(item) = at(range.location) else { return Ok(None) };
    // By itself: what it reads of queries around it has no meaning here.
    let bare = SelectStmt {
        from_clause: select.from_clause.clone(),
        where_clause: select.where_clause.clone(),
        limit_option: select.limit_option,
        op: select.op,
        ..SelectStmt::default()
    };
    let own = analyse_select(&bare, context)?;
    let is_local = scatter::obstacle(&own).is_none()
        && home_reason(&own).is_none()
        && own.time_in_view.is_none()
        && own.loose_names.is_empty()
        && !own.loose_star
        && own.system_columns.is_empty()
        && own.functions.may_write.is_none()
        && own.modifications.is_empty()
        && own.locked.is_empty();
    if !is_local {
        return Ok(None);
    }
    let mut read = Vec::new();
    for table in &own.items {
        let Source::Table { relation, .. } = table.source else { continue };
        // Where a name means a query of a WITH around it, it is no table.
        let Some(known) = at(table.location) else { return Ok(None) };
        match analysis.items[known].source {
            Source::Table { relation: of, .. } if of.sql_name() == relation.sql_name() => (),
            _ => return Ok(None),
        }
        if known != item {
            read.push(known);
        }
    }
    Ok(Some(LocalLock { item, read }))
}

/// `schema.table.column`: the table has an alias where the condition goes.
fn has_long_names(node: &Node) -> bool {
    let is_long = |of: &NodeEnum| matches!(of, NodeEnum::ColumnRef(of) if 2 < of.fields.len());
    node.node.as_ref().is_some_and(|tree| contains(tree, &is_long))
}
