//! Collected rows in temporary tables.
//!
//! Owns: for which queries that changes nothing, for which it may be worth while although there are few rows, and the
//! tables' definitions.
//! Never: decides that they are made; that depends on how many rows there are, and on the transaction.
//! Start reading at [`of`].
//!
//! Of many rows the gateway keeps none: a temporary table takes them as they come. And a subquery that depends on the row
//! around it is computed for each of these. PostgreSQL looks its rows up in an index; over rows that came as a parameter
//! it would read all of them each time.

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::Node;

use super::analysis::{Analysis, Constraint, ItemId, NOWHERE};
use super::context::Context;
use super::current_time::current_times;
use super::gaps::{cut, gap, gap_count};
use super::gather::{Collected, Order, collected, rows_of_literal, temporary_name, with_tables};
use super::sql_text::deparse;
use super::syntax::is_star_output;
use super::texts_as_times;
use super::time_gaps;
use super::time_gaps::TimeGaps;
use crate::catalog::quote_identifier;
use crate::plan::{InTables, Piece, RowsTable};
use crate::refusal::Refusal;
use crate::walk;

/// The final statement over temporary tables of what is collected; `None` where it might mean something else.
///
/// `tree` has the locations of `analysis`; `collect` are the tables of [`super::gather::build`]'s collects.
pub(super) fn of(
    mut tree: NodeEnum,
    analysis: &Analysis<'_>,
    collect: &[ItemId],
    context: &Context<'_>,
) -> Result<Option<InTables>, Refusal> {
    let order = Order { collect, brought: &[], literal_time: true, local: &[], away: false };
    let tables = collected(&tree, analysis, &order)?;
    let stars = stars(&tree);
    let means_the_same = context.opaque.is_none()
        // What a node is asked to do is not part of a transaction that is thrown away.
        && analysis.functions.home.is_none()
        && analysis.functions.volatile.is_none()
        && analysis.time_in_view.is_none()
        && !analysis.loose_star
        && analysis.loose_names.is_empty()
        && analysis.system_columns.is_empty()
        && tables.iter().all(|table| is_by_its_columns(table, &stars, analysis));
    if !means_the_same {
        return Ok(None);
    }
    let has_literals = time_gaps::has_literals(&tree, analysis, context)?;
    if analysis.functions.reads_time || has_literals {
        let mut node = Node { node: Some(tree) };
        TimeGaps { analysis: Some(analysis), context }.put(&mut node)?;
        tree = node.node.expect("it was put there");
    }
    // What still says now may be read as the time at which the transaction began, which is another one.
    if current_times(&tree) != 0 || texts_as_times::may_be_read(&tree, analysis, context) {
        return Ok(None);
    }
    with_tables(&mut tree, analysis, &order)?;
    let text = deparse(&tree)?;
    let statement = cut(&text)?;
    if statement.0.iter().filter(|piece| !matches!(piece, Piece::Sql(_))).count()
        != gap_count(&text)
    {
        return Ok(None);
    }
    let columns: Vec<_> = tables.iter().map(|table| compared_columns(table, analysis)).collect();
    let looks_up = analysis.computes_by_row
        && !context.collects_replicated
        && columns.iter().any(|compared| !compared.is_empty());
    let mut of_collects = Vec::new();
    let mut prepare = Vec::new();
    for (index, (table, compared)) in tables.iter().zip(columns).enumerate() {
        let name = |column: usize| quote_identifier(&table.relation.columns[column].name);
        let needed: Vec<_> =
            (0..table.needed.len()).filter(|at| table.needed[*at]).map(name).collect();
        let temporary = temporary_name(index);
        let create = cut(&format!(
            "CREATE TEMPORARY TABLE {temporary} ON COMMIT DROP AS SELECT {} FROM {} AS tutti_f",
            needed.join(", "),
            rows_of_literal(table.relation, &gap(0)),
        ))?;
        let copy = format!("COPY {temporary} ({}) FROM STDIN", needed.join(", "));
        of_collects.push(RowsTable { create, copy, fields: table.needed.clone() });
        if analysis.computes_by_row {
            prepare.extend(compared.into_iter().map(|column| {
                let type_oid = table.relation.columns[column].type_oid;
                let method = index_method(type_oid).unwrap_or_default();
                format!("CREATE INDEX ON {temporary} USING {method} ({})", name(column))
            }));
        }
        prepare.push(format!("ANALYZE {temporary}"));
    }
    let reads_in_place = analysis.home_relation.is_some()
        || analysis
            .items
            .iter()
            .enumerate()
            .any(|(item, of)| of.relation().is_some() && !collect.contains(&item));
    Ok(Some(InTables { tables: of_collects, prepare, statement, looks_up, reads_in_place }))
}

/// Where `*` or `t.*` stands for columns of the output.
fn stars(tree: &NodeEnum) -> BTreeSet<i32> {
    let mut stars = BTreeSet::new();
    if let NodeEnum::SelectStmt(select) = tree {
        for target in select.target_list.iter().filter(|target| is_star_output(target)) {
            let Some(NodeEnum::ResTarget(target)) = &target.node else { continue };
            let value = target.val.as_ref().and_then(|value| value.node.as_ref());
            if let Some(NodeEnum::ColumnRef(star)) = value {
                stars.insert(star.location);
            }
        }
    }
    walk::read::children(tree, &mut |child| {
        if let Some(node) = &child.node {
            stars.extend(self::stars(node));
        }
    });
    stars
}

/// Whether all that is asked of a table are columns of it by their names: a table of these alone is as good.
fn is_by_its_columns(
    table: &Collected<'_>,
    stars: &BTreeSet<i32>,
    analysis: &Analysis<'_>,
) -> bool {
    let is_whole = |item: &ItemId| {
        let of = &analysis.items[*item];
        of.alias.is_some_and(|alias| !alias.colnames.is_empty())
            || analysis.uses.iter().any(|of| {
                let is_star = of.location != NOWHERE && stars.contains(&of.location);
                of.item == *item && of.column.is_none() && !is_star
            })
    };
    table.needed.iter().any(|needed| *needed) && !table.items.iter().any(is_whole)
}

/// The columns that are compared with those of other tables.
fn compared_columns(table: &Collected<'_>, analysis: &Analysis<'_>) -> Vec<usize> {
    let mut columns = Vec::new();
    for constraint in &analysis.constraints {
        let Constraint::Equal { left, right, .. } = constraint else { continue };
        for side in [left, right] {
            if table.items.contains(&side.item)
                && !columns.contains(&side.column)
                && let Some(of) = table.relation.columns.get(side.column)
                && !of.domain
                && index_method(of.type_oid).is_some()
            {
                columns.push(side.column);
            }
        }
    }
    columns
}

/// The kind of index for a type that has one for any value.
fn index_method(type_oid: u32) -> Option<&'static str> {
    /// "char", int8, int2, int4, oid, macaddr, inet, date, time, timestamp, timestamptz, interval, timetz, uuid.
    const SHORT: [u32; 14] =
        [18, 20, 21, 23, 26, 829, 869, 1082, 1083, 1114, 1184, 1186, 1266, 2950];
    /// bytea, text, bpchar, varchar, numeric: a tree has no room for a long one.
    const OF_ANY_LENGTH: [u32; 5] = [17, 25, 1042, 1043, 1700];
    match type_oid {
        _ if SHORT.contains(&type_oid) => Some("btree"),
        _ if OF_ANY_LENGTH.contains(&type_oid) => Some("hash"),
        _ => None,
    }
}
