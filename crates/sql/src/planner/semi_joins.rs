//! Which rows of a table matter only beside rows of another that have been collected.
//!
//! Owns: the pairs of such tables, and the columns by which they belong together.
//! Never: decides that one is collected before another; how many rows each has is asked when it is run.
//! Start reading at [`of`].
//!
//! Once the rows of `part` that may matter are known, `lineitem`'s whose `l_partkey` is none of their `p_partkey` do not
//! matter in `… WHERE l_partkey = p_partkey`, nor in a subquery with that condition that is computed for rows of `part`.
//! That is what `pins.rs` concludes of any values that a column has. (A semi-join; Bernstein and Chiu, Using Semi-Joins
//! to Solve Relational Queries, JACM 28(1), 1981.)

use super::analysis::{Analysis, ColumnId, ItemId};
use super::pins::Facts;
use crate::built_in_types::FIRST_OF_USERS;
use crate::catalog::Column;
use crate::hash::KeyType;

/// Of more tables nothing is looked for.
const TABLES_MAX: usize = 12;

/// Rows of one table that matter beside another's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct SemiJoin {
    /// The table that is reduced, by its index.
    pub(super) table: usize,
    /// The one by whose rows it is.
    pub(super) by: usize,
    /// For each mention of the table: its columns, and the other's of which they must have a value.
    pub(super) columns: Vec<Vec<(usize, usize)>>,
}

/// Whether a table's rows are made of values that every node reads without running users' code.
pub(super) fn is_plain(item: ItemId, analysis: &Analysis<'_>) -> bool {
    let plain = |column: &Column| column.type_oid < FIRST_OF_USERS && !column.domain;
    let of = &analysis.items[item];
    of.sample.is_none()
        && !analysis.mentions_system_column(item)
        && of.distributed().is_some_and(|(relation, _)| relation.columns.iter().all(plain))
}

/// All pairs among these tables, each given by the items that mention it.
pub(super) fn of(tables: &[&[ItemId]], analysis: &Analysis<'_>) -> Vec<SemiJoin> {
    let mut joins = Vec::new();
    if !(2..=TABLES_MAX).contains(&tables.len()) {
        return joins;
    }
    // What a part of the statement has returned is not in the table, of which PostgreSQL is asked how large it is.
    let is_in_place = |item: ItemId| {
        analysis.items[item].relation().is_some_and(|relation| relation.returned_by.is_none())
    };
    for (by, mentions) in tables.iter().enumerate() {
        if !mentions.iter().all(|item| is_plain(*item, analysis) && is_in_place(*item)) {
            continue;
        }
        let known: Vec<_> = columns_of(mentions, analysis)
            .map(|column| {
                let columns = mentions.iter().map(|&item| ColumnId { item, column });
                (column, Facts::from_columns(analysis, columns))
            })
            .collect();
        for (table, items) in tables.iter().enumerate().filter(|(table, _)| *table != by) {
            let pairs = |item: &ItemId| {
                let of_item = known.iter().flat_map(|(of_by, facts)| {
                    let is_among =
                        |column: &usize| facts.are_among(ColumnId { item: *item, column: *column });
                    let width = analysis.width(*item).unwrap_or_default();
                    (0..width).filter(is_among).map(|column| (column, *of_by))
                });
                let of_item: Vec<_> = of_item.collect();
                (!of_item.is_empty()).then_some(of_item)
            };
            if let Some(columns) = items.iter().map(pairs).collect() {
                joins.push(SemiJoin { table, by, columns });
            }
        }
    }
    joins
}

/// The columns that are mentioned of a table, and may be compared.
fn columns_of(mentions: &[ItemId], analysis: &Analysis<'_>) -> impl Iterator<Item = usize> {
    let relation = mentions.first().and_then(|item| analysis.items[*item].distributed());
    let columns = relation.map(|(relation, _)| &relation.columns[..]).unwrap_or_default();
    let is_candidate = move |(index, column): &(usize, &Column)| {
        KeyType::from_oid(column.type_oid).is_some()
            && analysis
                .uses
                .iter()
                .any(|of| mentions.contains(&of.item) && of.column == Some(*index))
    };
    columns.iter().enumerate().filter(is_candidate).map(|(index, _)| index)
}
