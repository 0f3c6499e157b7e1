//! Rewriting a statement so that one node can run it over rows collected from all.
//!
//! Owns: the SELECTs that collect, which columns and rows they leave out, and the final statement's
//! template. Never: decides that a statement is gathered (`query.rs`, `dml.rs`).
//! Start reading at [`build`].
//!
//! Each table that is collected becomes `unnest('…'::schema.table[]) AS alias` in the final
//! statement: columns, their types and whole rows are the table's own, so PostgreSQL computes the
//! answer as if the table were there.

use std::collections::BTreeMap;
use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Alias, ColumnRef, Node, RangeVar, SelectStmt, String as PgString};

use super::analysis::{Analysis, ColumnUse, ItemId, NOWHERE};
use super::context::Context;
use super::gaps::{cut, expression, gap, gap_count, output_name, parse_select, refuse_marked};
use super::namesakes::{References, from_locations, renamed};
use super::own_rows::{concerns_only, split, unqualify};
use super::pins::Facts;
use super::row_locks::{self, Lock};
use super::sql_text::{deparse, deparse_expression};
use super::syntax::{is_star, string};
use super::time_gaps::TimeGaps;
use super::top_rows;
use crate::catalog::{Column, Relation, RelationKind, quote_identifier};
use crate::plan::{ByKey, Collect, CollectFrom, FirstRows, NodeChoice, Piece, RowLocks, Template};
use crate::refusal::Refusal;
use crate::walk;

/// What is to be taken out of a statement.
#[derive(Debug)]
pub(super) struct Order<'o> {
    /// The tables whose rows are collected.
    pub(super) collect: &'o [ItemId],
    /// `now()` and the like become literals, the same on all nodes.
    pub(super) literal_time: bool,
    /// Of those whose rows are locked: each node decides the conditions of their queries, whatever these read.
    pub(super) local: &'o [ItemId],
}

/// A table and the places that mention it.
struct Table<'a> {
    relation: &'a Arc<Relation>,
    items: Vec<ItemId>,
}

/// What the SELECTs that collect end with.
struct Ends {
    /// How rows are locked.
    locks: Vec<Lock>,
    /// Which of them are enough, if not all.
    top: String,
}

/// Builds the collecting SELECTs and the final statement. `tree` has the locations of `analysis`.
///
/// Errors: 0A000 for system columns, samples and row locks that cannot be kept.
pub(super) fn build(
    tree: NodeEnum,
    analysis: &Analysis<'_>,
    order: &Order<'_>,
    context: &Context<'_>,
) -> Result<(Vec<Collect>, Template), Refusal> {
    refuse_marked(&tree)?;
    build_around(tree, analysis, order, context)
}

/// The same of a statement in which gaps are marked already.
///
/// Requires: [`refuse_marked`] has let it pass before.
pub(super) fn build_around(
    mut tree: NodeEnum,
    analysis: &Analysis<'_>,
    order: &Order<'_>,
    context: &Context<'_>,
) -> Result<(Vec<Collect>, Template), Refusal> {
    refuse_unkeepable(analysis, order)?;
    let locks = row_locks::take(&mut tree, analysis, order.collect, order.local, context)?;
    let tables = tables(analysis, order);
    let facts = Facts::from_values(analysis);
    let top = match locks.is_empty() {
        true => top_rows::of(&tree, analysis, context)?.unwrap_or_default(),
        false => String::new(),
    };
    let ends = Ends { locks, top };
    let collects = tables
        .iter()
        .map(|table| collect(table, analysis, &facts, &ends, order.literal_time, context))
        .collect::<Result<Vec<_>, _>>()?;
    if order.literal_time {
        let mut node = Node { node: Some(tree) };
        TimeGaps { analysis: Some(analysis), context }.put(&mut node)?;
        tree = node.node.expect("it was put there");
    }
    put_rows(&mut tree, analysis, order, &tables, Form::Rows)?;
    let text = deparse(&tree)?;
    let template = cut(&text)?;
    let gaps = template.0.iter().filter(|piece| !matches!(piece, Piece::Sql(_))).count();
    if gaps != gap_count(&text) {
        return Err(Refusal::postgres("XX000", "a gathered statement lost a gap"));
    }
    Ok((collects, template))
}

/// Puts the rows of tables that are brought, one gap for each, where these stand. `tree` has the locations of
/// `analysis`, which knows them where they are.
///
/// Errors: as [`build`].
pub(super) fn bring(
    tree: &mut NodeEnum,
    analysis: &Analysis<'_>,
    order: &Order<'_>,
    context: &Context<'_>,
) -> Result<Vec<Collect>, Refusal> {
    refuse_unkeepable(analysis, order)?;
    let (tables, facts) = (tables(analysis, order), Facts::from_values(analysis));
    let all = Ends { locks: Vec::new(), top: String::new() };
    let collects = tables
        .iter()
        .map(|table| collect(table, analysis, &facts, &all, order.literal_time, context))
        .collect::<Result<Vec<_>, _>>()?;
    put_rows(tree, analysis, order, &tables, Form::Rows)?;
    Ok(collects)
}

/// How a final statement has collected rows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    /// In a gap, see [`rows_of_literal`].
    Rows,
    /// In a temporary table, see [`temporary_name`].
    Tables,
}

/// What the temporary table is called that has the rows of the collect with this index.
pub(super) fn temporary_name(index: usize) -> String {
    format!("pg_temp.tutti_rows_{index}")
}

/// A table of which rows are collected, and where it is mentioned.
pub(super) struct Collected<'a> {
    pub(super) relation: &'a Arc<Relation>,
    pub(super) items: Vec<ItemId>,
    /// Of its columns, which the statement can possibly look at.
    pub(super) needed: Vec<bool>,
}

/// The tables of [`build`]'s collects, in their order.
pub(super) fn collected<'a>(analysis: &Analysis<'a>, order: &Order<'_>) -> Vec<Collected<'a>> {
    let with_columns = |table: Table<'a>| Collected {
        needed: needed_columns(&table, analysis),
        relation: table.relation,
        items: table.items,
    };
    tables(analysis, order).into_iter().map(with_columns).collect()
}

/// The final statement's tree, with the rows in this form. `tree` has the locations of `analysis`.
pub(super) fn with_tables(
    tree: &mut NodeEnum,
    analysis: &Analysis<'_>,
    order: &Order<'_>,
) -> Result<(), Refusal> {
    put_rows(tree, analysis, order, &tables(analysis, order), Form::Tables)
}

fn put_rows(
    tree: &mut NodeEnum,
    analysis: &Analysis<'_>,
    order: &Order<'_>,
    tables: &[Table<'_>],
    form: Form,
) -> Result<(), Refusal> {
    let references = References::of(tree);
    let renamed = renamed(order.collect, &references, analysis)?;
    let outputs_meant = references.into_outputs_meant();
    Rewriter { analysis, tables, renamed, outputs_meant, order, form }.rewrite(tree)
}

fn refuse_unkeepable(analysis: &Analysis<'_>, order: &Order<'_>) -> Result<(), Refusal> {
    for item in order.collect {
        let Some((relation, _)) = analysis.items[*item].distributed() else { continue };
        if analysis.system_columns.contains(item) {
            return Err(Refusal::unsupported(
                format!("system columns of \"{}\" cannot be read here", relation.name),
                "Its rows are brought together from several nodes, where these columns have \
                 meanings of their own.",
                "Leave ctid, xmin, tableoid and their kin out, or pin the table's distribution key.",
            ));
        }
        if analysis.items[*item].sampled {
            return Err(Refusal::unsupported(
                format!("TABLESAMPLE of \"{}\" is not supported here", relation.name),
                "Its rows are brought together from several nodes before they are read.",
                "Use a condition on random() instead.",
            ));
        }
    }
    Ok(())
}

/// What node 1 has whole of what a statement reads, and may be collected too, so that all is of one
/// moment: nothing of its rows is asked for that only the relation itself has.
pub(super) fn collectable_on_node_1(analysis: &Analysis<'_>) -> impl Iterator<Item = ItemId> {
    (0..analysis.items.len()).filter(|item| is_collectable_on_node_1(*item, analysis))
}

fn is_collectable_on_node_1(item: ItemId, analysis: &Analysis<'_>) -> bool {
    let of = &analysis.items[item];
    let has_rows = |relation: &&Arc<Relation>| relation.kind != RelationKind::Sequence;
    of.whole_on_node_1().filter(has_rows).is_some()
        && analysis.target != Some(item)
        && !of.sampled
        && !analysis.system_columns.contains(&item)
        && !analysis.locked.contains(&item)
}

fn tables<'a>(analysis: &Analysis<'a>, order: &Order<'_>) -> Vec<Table<'a>> {
    let mut tables: Vec<Table<'a>> = Vec::new();
    for &item in order.collect {
        let of = &analysis.items[item];
        let distributed = of.distributed().map(|(relation, _)| relation);
        let Some(relation) = distributed.or_else(|| of.whole_on_node_1()) else { continue };
        match tables.iter_mut().find(|table| is_same(table.relation, relation)) {
            Some(table) => table.items.push(item),
            None => tables.push(Table { relation, items: vec![item] }),
        }
    }
    tables
}

fn is_same(one: &Relation, other: &Relation) -> bool {
    (&one.schema, &one.name, one.returned_by) == (&other.schema, &other.name, other.returned_by)
}

fn collect(
    table: &Table<'_>,
    analysis: &Analysis<'_>,
    facts: &Facts<'_, '_>,
    ends: &Ends,
    literal_time: bool,
    context: &Context<'_>,
) -> Result<Collect, Refusal> {
    let relation = table.relation;
    if let Some(step) = relation.returned_by {
        let (select, from) = (Template(Vec::new()), CollectFrom::Returned(step));
        return Ok(Collect { relation: relation.clone(), select, from, locks: None });
    }
    let mut needed = needed_columns(table, analysis);
    let (mut alias, mut filter) = ("t".to_owned(), String::new());
    let lock = ends.locks.iter().find(|lock| table.items[..] == [lock.item]);
    if lock.is_some_and(|lock| lock.first.is_some()) {
        let key = relation.primary_key.iter();
        key.for_each(|column| needed.iter_mut().skip(*column).take(1).for_each(|it| *it = true));
    }
    let is_whole = table.items.iter().any(|item| analysis.items[*item].whole_on_node_1().is_some());
    let mut from = match is_whole {
        true => CollectFrom::One(NodeChoice::Home),
        false => CollectFrom::AllNodes,
    };
    let mut columns: Vec<String> =
        relation.columns.iter().map(|column| quote_identifier(&column.name)).collect();
    if let [item] = table.items[..] {
        let of = &analysis.items[item];
        of.name.clone_into(&mut alias);
        columns = (0..columns.len())
            .map(|column| quote_identifier(analysis.column_name(item, column).unwrap_or_default()))
            .collect();
        filter = match lock {
            Some(lock) if lock.is_local => condition_of(item, analysis, literal_time, context)?,
            _ => filters(item, analysis, lock.is_some(), literal_time, context)?.join(" AND "),
        };
        if let Some(pins) = facts.pins_of(item).filter(|_| !is_whole) {
            from = CollectFrom::One(NodeChoice::Pinned(pins));
        }
    }
    let alias = quote_identifier(&alias);
    let mut types = relation.columns.iter().map(|column| column.type_oid).zip(&needed);
    let are_written_alike = types.all(|(oid, needed)| !needed || is_written_alike(oid));
    let values: Vec<String> = columns
        .iter()
        .zip(&needed)
        .map(|(column, needed)| match needed {
            true => format!("{alias}.{column}"),
            false => "NULL".to_owned(),
        })
        .collect();
    // As who may read some columns only is refused `*`.
    let is_named = table.items.iter().any(|item| analysis.only_named.contains(item));
    let name = match is_named {
        true => format!("(SELECT * FROM {})", relation.sql_name()),
        false => relation.sql_name(),
    };
    let condition = if filter.is_empty() { filter } else { format!(" WHERE {filter}") };
    let columns = columns.join(", ");
    let row = row_text(&values.join(", "), are_written_alike);
    let of_table = format!("FROM {name} AS {alias} ({columns}){condition}");
    let Some(lock) = lock else {
        let select = cut(&format!("SELECT {row} {of_table}{}", ends.top))?;
        return Ok(Collect { relation: relation.clone(), select, from, locks: None });
    };
    let Some(first) = &lock.first else {
        let select = cut(&format!("SELECT {row} {of_table}{}", lock.clause))?;
        let locks = Some(Box::new(RowLocks { first: None }));
        return Ok(Collect { relation: relation.clone(), select, from, locks });
    };
    // Named, for a bare name in ORDER BY means an output first.
    let select = format!("SELECT {row} AS tutti_row {of_table}");
    let rows = rows_of_literal(relation, &gap(0));
    let ranks = format!(
        "SELECT pg_catalog.rank() OVER ({}) FROM {rows} WITH ORDINALITY AS {alias} ({columns}, tutti_place) \
         ORDER BY tutti_place",
        first.order.trim_start(),
    );
    let is_ordered = !first.order.is_empty();
    // What else a condition reads would be of another moment when the rows are locked.
    let is_by_key = is_ordered && lock.heeds_others && !lock.is_local;
    let key = key_of(table, analysis).filter(|_| is_by_key);
    let by_key = key.map(|key| {
        let (of_row, of_rows) = (format!("{alias}.{}", key.join(&format!(", {alias}."))), key.join(", "));
        let and = if condition.is_empty() { " WHERE" } else { " AND" };
        let lock = format!(
            "{select}{and} ({of_row}) OPERATOR(pg_catalog.=) ANY (SELECT {of_rows} FROM {rows} AS tutti_rows ({columns})){}{}",
            first.order, lock.clause,
        );
        // A node that gets keys reads nothing else of the rows, whose types may be users'.
        let of_key = |(column, value): (usize, &String)| match relation.primary_key.contains(&column) {
            true => value.clone(),
            false => "NULL".to_owned(),
        };
        let values: Vec<_> = values.iter().enumerate().map(of_key).collect();
        let key = row_text(&values.join(", "), are_written_alike);
        let unlocked =
            format!("SELECT {row} AS tutti_row, {key} AS tutti_key {of_table}{}", first.order);
        Ok(ByKey { unlocked: cut(&unlocked)?, lock: cut(&lock)? })
    });
    let locks = RowLocks {
        first: Some(FirstRows {
            limit: first.limit.clone(),
            offset: first.offset.clone(),
            ranks: is_ordered.then(|| cut(&ranks)).transpose()?,
            by_key: by_key.transpose()?,
            waits: lock.heeds_others && !lock.refuses,
            is_all: first.is_all,
        }),
    };
    let select = cut(&format!("{select}{}{}", first.of_node, lock.clause))?;
    Ok(Collect { relation: relation.clone(), select, from, locks: Some(Box::new(locks)) })
}

/// The columns of a table's primary key, if each node compares their values as they are brought to it.
fn key_of(table: &Table<'_>, analysis: &Analysis<'_>) -> Option<Vec<String>> {
    let ([item], key) = (&table.items[..], &table.relation.primary_key) else { return None };
    let columns = key.iter().map(|column| {
        let is_built_in = table.relation.columns.get(*column)?.type_oid < FIRST_OF_USERS;
        is_built_in.then_some(quote_identifier(analysis.column_name(*item, *column)?))
    });
    // A domain's checks may be run for NULL, too.
    let has_domain = table.relation.columns.iter().any(|column| column.domain);
    let columns = columns.collect::<Option<Vec<_>>>();
    columns.filter(|columns| !columns.is_empty() && !has_domain)
}

/// A row of these values, in the order of the table's columns, as text that any session reads alike.
///
/// The row has no type's name, so that no cast can be a user's. Where the session's settings decide
/// how a value is written, a function writes it under settings of its own.
pub(super) fn row_text(values: &str, are_written_alike: bool) -> String {
    match are_written_alike {
        true => format!("ROW({values})::pg_catalog.text"),
        false => format!("tutti.row_output(ROW({values}))"),
    }
}

/// `CAST(expression AS type of the column)`, as text that travels.
pub(super) fn travelling(value: &str, of: &Column) -> String {
    value_text(&format!("CAST({value} AS {})", of.type_name), of.type_oid)
}

/// The same for one value.
pub(super) fn value_text(value: &str, type_oid: u32) -> String {
    match is_written_alike(type_oid) {
        true => value.to_owned(),
        false => format!("tutti.value_output({value})"),
    }
}

/// Whether values of the type are written so that they are read as the same, regardless of the settings:
/// boolean, bytea, characters, integers, numeric, json, uuid and arrays of such.
pub(super) fn is_written_alike(type_oid: u32) -> bool {
    const SCALARS: [u32; 14] = [16, 17, 18, 19, 20, 21, 23, 25, 114, 1042, 1043, 1700, 2950, 3802];
    const ARRAYS: [u32; 9] = [1000, 1005, 1007, 1009, 1014, 1015, 1016, 1231, 2951];
    SCALARS.contains(&type_oid) || ARRAYS.contains(&type_oid)
}

/// Rows of a relation out of an SQL literal that holds them, as an entry of a FROM clause.
///
/// Where the session's settings decide how a value is read, a function reads it under settings of its
/// own.
pub(super) fn rows_of_literal(relation: &Relation, literal: &str) -> String {
    let name = relation.sql_name();
    match relation.columns.iter().all(|column| is_read_alike(column.type_oid)) {
        true => format!("pg_catalog.unnest({literal}::{name}[])"),
        false => format!("pg_catalog.unnest(tutti.rows_input({literal}, NULL::{name}[]))"),
    }
}

/// Whether a text of a value means the same regardless of the settings, if it was written by
/// `tutti.row_output`: all but arrays (`array_nulls`), XML, money, and what may be made of these.
pub fn is_read_alike(type_oid: u32) -> bool {
    const OTHERS: [u32; 15] =
        [26, 650, 700, 701, 774, 829, 869, 1082, 1083, 1114, 1184, 1186, 1266, 1560, 1562];
    const FIRST_ARRAY: u32 = 1000;
    const LAST_ARRAY: u32 = 1041;
    let is_array =
        (FIRST_ARRAY..=LAST_ARRAY).contains(&type_oid) || [1231, 2951].contains(&type_oid);
    OTHERS.contains(&type_oid) || (is_written_alike(type_oid) && !is_array)
}

/// Which columns of the table the statement can possibly look at.
fn needed_columns(table: &Table<'_>, analysis: &Analysis<'_>) -> Vec<bool> {
    let uses = || analysis.uses.iter().filter(|of| table.items.contains(&of.item));
    let whole = analysis.loose_star
        || uses().any(|of| of.column.is_none())
        || table
            .items
            .iter()
            .any(|item| analysis.loose_names.contains(&analysis.items[*item].name));
    let is_needed = |(index, column): (usize, &crate::catalog::Column)| {
        let by_name = |item: &ItemId| {
            analysis
                .column_name(*item, index)
                .is_some_and(|name| analysis.loose_names.contains(&name))
        };
        whole
            || column.domain
            || uses().any(|of| of.column == Some(index))
            || table.items.iter().any(by_name)
    };
    table.relation.columns.iter().enumerate().map(is_needed).collect()
}

/// The conditions of the table's own query level that concern nothing but its rows. With `all` a
/// condition that cannot be moved is an error.
fn filters(
    item: ItemId,
    analysis: &Analysis<'_>,
    all: bool,
    literal_time: bool,
    context: &Context<'_>,
) -> Result<Vec<String>, Refusal> {
    let Some(level) = analysis.queries.iter().find(|query| query.items.contains(&item)) else {
        return Ok(Vec::new());
    };
    let (mut conjuncts, mut of_where) = (Vec::new(), Vec::new());
    if let Some(condition) = level.condition {
        split(condition, &mut of_where);
    }
    // Of others, an outer join has made rows of NULLs, which may meet it.
    let may_drop = analysis.items[item].linear;
    conjuncts.extend(of_where.into_iter().filter(|_| may_drop || all));
    for (condition, items) in &level.join_conditions {
        if items.contains(&item) {
            split(condition, &mut conjuncts);
        }
    }
    let mut filters = Vec::new();
    for conjunct in conjuncts {
        let mut moved = conjunct.clone();
        if literal_time {
            // It is the final statement's, to the microsecond.
            TimeGaps { analysis: Some(analysis), context }.put(&mut moved)?;
        }
        if concerns_only(&moved, item, analysis, context) {
            if let Some(node) = &mut moved.node {
                unqualify(node);
            }
            filters.push(format!("({})", deparse_expression(&moved)?));
        } else if all {
            return Err(Refusal::unsupported(
                "FOR UPDATE of rows on several nodes is not supported with this condition",
                "It must be checked where the rows are, before they are locked.",
                "Use conditions on the table's own columns without subqueries or volatile functions.",
            ));
        }
    }
    Ok(filters)
}

/// The whole WHERE of a table's query level.
fn condition_of(
    item: ItemId,
    analysis: &Analysis<'_>,
    literal_time: bool,
    context: &Context<'_>,
) -> Result<String, Refusal> {
    let level = analysis.queries.iter().find(|query| query.items.contains(&item));
    let Some(condition) = level.and_then(|level| level.condition) else { return Ok(String::new()) };
    let mut condition = condition.clone();
    if literal_time {
        TimeGaps { analysis: Some(analysis), context }.put(&mut condition)?;
    }
    Ok(format!("({})", deparse_expression(&condition)?))
}

struct Rewriter<'r, 'a> {
    analysis: &'r Analysis<'a>,
    tables: &'r [Table<'a>],
    renamed: BTreeMap<ItemId, String>,
    outputs_meant: Vec<i32>,
    order: &'r Order<'r>,
    form: Form,
}

impl Rewriter<'_, '_> {
    /// The name of a collected table in the final statement.
    fn name_of(&self, item: ItemId) -> &str {
        self.renamed.get(&item).map_or(self.analysis.items[item].name, String::as_str)
    }

    /// A reference to a collected table, which stands without its schema there.
    fn reference(&self, reference: &ColumnRef) -> Option<Node> {
        let at = |of: &&ColumnUse| {
            of.location != NOWHERE
                && of.location == reference.location
                && self.order.collect.contains(&of.item)
        };
        if self.outputs_meant.contains(&reference.location) {
            return None;
        }
        let of = self.analysis.uses.iter().find(at)?;
        let name = Node {
            node: Some(NodeEnum::String(PgString { sval: self.name_of(of.item).to_owned() })),
        };
        let fields = match reference.fields.as_slice() {
            // A column by its name alone, or all of them.
            [_] if of.column.is_some() || is_star(reference) => return None,
            [_] => vec![name],
            [.., column] => vec![name, column.clone()],
            [] => return None,
        };
        Some(Node {
            node: Some(NodeEnum::ColumnRef(ColumnRef { fields, location: reference.location })),
        })
    }

    fn rewrite(&self, node: &mut NodeEnum) -> Result<(), Refusal> {
        if let NodeEnum::SelectStmt(select) = node {
            self.extend_group_by(select)?;
        }
        let mut result = Ok(());
        walk::write::children(node, &mut |child| {
            if result.is_ok() {
                result = self.child(child);
            }
        });
        result
    }

    fn child(&self, child: &mut Node) -> Result<(), Refusal> {
        let replacement = match &child.node {
            Some(NodeEnum::RangeVar(range)) => self.collected(range)?,
            Some(NodeEnum::ColumnRef(reference)) => self.reference(reference),
            _ => None,
        };
        let name = match &child.node {
            Some(NodeEnum::ResTarget(target)) => output_name(target),
            _ => None,
        };
        match (replacement, &mut child.node) {
            (Some(replacement), _) => {
                *child = replacement;
                Ok(())
            }
            (None, Some(node)) => {
                self.rewrite(node)?;
                if let NodeEnum::ResTarget(target) = node
                    && let Some(name) = name
                    && output_name(target).as_ref() != Some(&name)
                {
                    target.name = name;
                }
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }

    /// What stands in the final statement where a collected table stood.
    fn collected(&self, range: &RangeVar) -> Result<Option<Node>, Refusal> {
        let is_here = |item: &ItemId| self.analysis.items[*item].location == range.location;
        let found = self.tables.iter().enumerate().find_map(|(index, table)| {
            let item = table.items.iter().find(|item| 0 <= range.location && is_here(item))?;
            Some((index, table, *item))
        });
        let Some((index, table, item)) = found else { return Ok(None) };
        let alias = quote_identifier(self.name_of(item));
        let columns = range.alias.as_ref().map_or_else(String::new, column_aliases);
        let rows = match self.form {
            Form::Rows => rows_of_literal(table.relation, &gap(index)),
            Form::Tables => temporary_name(index),
        };
        let select = parse_select(&format!("SELECT FROM {rows} AS {alias}{columns}"))?;
        Ok(select.from_clause.into_iter().next())
    }

    /// PostgreSQL lets columns stand ungrouped next to a grouped primary key; over collected rows
    /// there is no primary key, so they are grouped too, which changes no group.
    fn extend_group_by(&self, select: &mut SelectStmt) -> Result<(), Refusal> {
        if select.group_clause.is_empty() {
            return Ok(());
        }
        let mut locations = Vec::new();
        select.from_clause.iter().for_each(|node| from_locations(node, &mut locations));
        let entries: Vec<_> = select
            .group_clause
            .iter()
            .filter_map(|entry| match &entry.node {
                Some(NodeEnum::ColumnRef(reference)) => Some(reference.location),
                _ => None,
            })
            .filter(|location| *location != NOWHERE)
            .collect();
        for table in self.tables {
            for &item in &table.items {
                if !locations.contains(&self.analysis.items[item].location) {
                    continue;
                }
                let level = self.analysis.queries.iter().find(|query| query.items.contains(&item));
                let Some(level) = level else { continue };
                let grouped = |column: usize| match level.has_grouping_sets {
                    // What is outside of the sets is in all of them.
                    true => entries.iter().any(|location| {
                        let is_it = |of: &ColumnUse| {
                            (of.location, of.item, of.column) == (*location, item, Some(column))
                        };
                        self.analysis.uses.iter().any(is_it)
                    }),
                    false => {
                        let by =
                            |of: &super::analysis::ColumnId| of.item == item && of.column == column;
                        level.group_columns.iter().any(by)
                    }
                };
                let key = &table.relation.primary_key;
                if key.is_empty() || !key.iter().all(|c| grouped(*c)) {
                    continue;
                }
                if may_stand_whole(table, item, self.analysis) {
                    // To PostgreSQL it is an expression of its own. The bare name could mean a column or an output.
                    let row = format!("{}.*", quote_identifier(self.name_of(item)));
                    select.group_clause.push(expression(&row)?);
                }
                for column in 0..table.relation.columns.len() {
                    if !grouped(column) && self.may_stand_ungrouped(table, item, column) {
                        let alias = quote_identifier(self.name_of(item));
                        let name = self.analysis.column_name(item, column).unwrap_or_default();
                        let reference = format!("{alias}.{}", quote_identifier(name));
                        select.group_clause.push(expression(&reference)?);
                    }
                }
            }
        }
        Ok(())
    }
}

/// OIDs from here on are of types that users have made.
const FIRST_OF_USERS: u32 = 16_384;

/// json, xml, and geometric types but box and circle, whose values cannot be compared.
pub(super) const NOT_GROUPABLE: [u32; 7] = [114, 142, 600, 601, 602, 604, 628];

/// Whether the whole row is mentioned where only grouped ones may be, and can be grouped by.
fn may_stand_whole(table: &Table<'_>, item: ItemId, of: &Analysis<'_>) -> bool {
    let is_mentioned =
        of.uses.iter().any(|of| of.item == item && !of.before_grouping && of.column.is_none());
    let can_be = |column: &Column| {
        column.type_oid < FIRST_OF_USERS && !NOT_GROUPABLE.contains(&column.type_oid)
    };
    is_mentioned && table.relation.columns.iter().all(can_be)
}

impl Rewriter<'_, '_> {
    /// Whether the column may be mentioned where only grouped ones may, by name, in a whole row or
    /// by `*`.
    fn may_stand_ungrouped(&self, table: &Table<'_>, item: ItemId, column: usize) -> bool {
        let of = self.analysis;
        let by_use = of.uses.iter().any(|of| {
            of.item == item && !of.before_grouping && of.column.is_none_or(|used| used == column)
        });
        let by_loose_name = of.loose_star
            || of.loose_names.contains(&of.items[item].name)
            || of.column_name(item, column).is_some_and(|name| of.loose_names.contains(&name));
        (by_use || by_loose_name)
            && !NOT_GROUPABLE.contains(&table.relation.columns[column].type_oid)
    }
}

fn column_aliases(alias: &Alias) -> String {
    if alias.colnames.is_empty() {
        return String::new();
    }
    let names: Vec<_> = alias.colnames.iter().filter_map(string).map(quote_identifier).collect();
    format!(" ({})", names.join(", "))
}
