//! Whether PostgreSQL checks other conditions of a table's rows before one of them.
//!
//! Owns: which conditions may keep rows from another one that would fail for them (`kind = 'number'` before
//! `value::numeric > 10`): those of the same level that nodes do not check, and those of the levels around it.
//! Never: says what a condition demands (`row_conditions.rs` does), or whether it may fail (`cannot_fail.rs`).
//! Start reading at [`of`].
//!
//! PostgreSQL puts a subquery's conditions and those around it into one list where it can, and checks cheap ones first
//! (`order_qual_clauses` of its planner). Joins are no guards: which rows they spare a condition is its planner's chance.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, SubLinkType};

use super::analysis::{Analysis, ColumnId, ItemId, Query, QueryId, Source};
use super::own_rows::split;
use super::syntax::exists;
use crate::walk;

/// Whether some rows of an item may be kept from a condition of its level. `is_checked` says of which conditions of
/// the level the nodes check them as well.
pub(super) fn of(
    item: ItemId,
    level: QueryId,
    analysis: &Analysis<'_>,
    is_checked: &dyn Fn(&Node) -> bool,
) -> bool {
    let of = &analysis.queries[level];
    of.in_expression
        || conditions(of).into_iter().any(|it| is_guard(it, item, of, analysis) && !is_checked(it))
        || from_around(level, analysis)
}

/// Whether conditions of the levels around a query may be checked before its own.
fn from_around(query: QueryId, analysis: &Analysis<'_>) -> bool {
    let of = &analysis.queries[query];
    // It is computed whole, whoever reads it.
    if of.has_limit || of.recursive || 1 < of.references {
        return false;
    }
    let operation =
        |it: &Query<'_>| it.set.is_some_and(|set| [set.left, set.right].contains(&query));
    if let Some(operation) = analysis.queries.iter().position(operation) {
        return from_around(operation, analysis);
    }
    let reads =
        |item: &ItemId| matches!(analysis.items[*item].source, Source::Query(of) if of == query);
    analysis.queries.iter().enumerate().any(|(id, around)| {
        around.items.iter().filter(|item| reads(item)).any(|item| {
            let passes = |condition: &&Node| is_passed_on(condition, *item, around, of, analysis);
            around.in_expression
                || conditions(around)
                    .into_iter()
                    .filter(passes)
                    .any(|condition| is_guard(condition, *item, around, analysis))
                || from_around(id, analysis)
        })
    })
}

/// The parts of a level's WHERE, ON and HAVING that AND joins.
fn conditions<'a>(level: &Query<'a>) -> Vec<&'a Node> {
    let mut conditions = Vec::new();
    let on = level.join_conditions.iter().map(|(condition, _)| *condition);
    for condition in on.chain(level.condition).chain(level.having) {
        split(condition, &mut conditions);
    }
    conditions
}

/// Whether a condition is of the rows of this item of its level, and of no other; or of none, so that PostgreSQL
/// asks it once before all others.
fn is_guard(condition: &Node, item: ItemId, level: &Query<'_>, analysis: &Analysis<'_>) -> bool {
    let columns = columns(condition, level, analysis);
    columns.iter().all(|of| of.is_none_or(|of| of.item == item))
        && (columns.is_empty() || !is_join(condition))
}

/// Whether a condition of the level around a query, on the query's outputs, may be checked before the query's groups are made.
fn is_passed_on(
    condition: &Node,
    item: ItemId,
    around: &Query<'_>,
    query: &Query<'_>,
    analysis: &Analysis<'_>,
) -> bool {
    let is_of_groups = |column: usize| {
        let output = query.outputs.as_ref().and_then(|outputs| outputs.get(column));
        output.is_none_or(|output| match output.column {
            Some(column) => query.group_columns.contains(&column),
            None => false,
        })
    };
    !(query.has_grouping || query.has_aggregates)
        || columns(condition, around, analysis)
            .into_iter()
            .all(|of| of.is_none_or(|of| of.item != item || is_of_groups(of.column)))
}

/// The columns of a level's items that a condition mentions. `None`: one that is not known, or a whole row.
fn columns(condition: &Node, level: &Query<'_>, analysis: &Analysis<'_>) -> Vec<Option<ColumnId>> {
    let mut columns = Vec::new();
    let mut look = |node: &Node| {
        let Some(NodeEnum::ColumnRef(reference)) = &node.node else { return };
        let mut uses = analysis.uses.iter().filter(|of| of.location == reference.location);
        match uses.next() {
            // Of a subquery within, or of a level around this one.
            Some(of) if !level.items.contains(&of.item) => (),
            Some(of) => columns.push(of.column.map(|column| ColumnId { item: of.item, column })),
            None => columns.push(None),
        }
    };
    each(condition, &mut look);
    columns
}

fn each(node: &Node, look: &mut dyn FnMut(&Node)) {
    look(node);
    if let Some(of) = &node.node {
        walk::read::children(of, &mut |child| each(child, look));
    }
}

/// Whether PostgreSQL makes a join of it: `x IN (SELECT …)`, or EXISTS.
fn is_join(condition: &Node) -> bool {
    condition.node.as_ref().is_some_and(|of| match of {
        NodeEnum::SubLink(link) if link.sub_link_type() == SubLinkType::AnySublink => true,
        of => exists(of).is_some(),
    })
}
