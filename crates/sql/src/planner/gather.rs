//! Rewriting a statement so that one node can run it over rows collected from all.
//!
//! Owns: the SELECTs that collect, which columns and rows they leave out, and the final statement's
//! template. Never: decides that a statement is gathered (`query.rs`, `dml.rs`).
//! Start reading at [`build`].
//!
//! Each table that is collected becomes `unnest('…'::schema.table[]) AS alias` in the final
//! statement: columns, their types and whole rows are the table's own, so PostgreSQL computes the
//! answer as if the table were there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    Alias, ColumnRef, GroupingSetKind, Node, RangeVar, ResTarget, SelectStmt, String as PgString,
};

use super::analysis::{Analysis, BroughtItem, ColumnUse, ItemId, NOWHERE, Whereabouts};
use super::context::Context;
use super::gaps::{cut, expression, gap, gap_count, output_name, parse_select, refuse_marked};
use super::namesakes::{References, from_locations, renamed};
use super::pins::Facts;
use super::row_conditions::{self, Said};
use super::row_locks::{self, Lock};
use super::samples;
use super::semi_joins::{self, SemiJoin};
use super::sql_text::deparse;
use super::syntax::{is_star, named_output, string};
use super::system_columns::{self, Beside};
use super::time_gaps::TimeGaps;
use super::top_rows;
use crate::built_in_types::FIRST_OF_USERS;
use crate::catalog::{Column, MapId, Relation, RelationKind, quote_identifier};
use crate::hash::KeyType;
use crate::plan::{
    ByKey, Collect, CollectFrom, FirstRows, NodeChoice, Piece, Reduced, RowLocks, Template,
};
use crate::refusal::Refusal;
use crate::walk;

/// What is to be taken out of a statement.
#[derive(Debug)]
pub(super) struct Order<'o> {
    /// The tables whose rows are collected.
    pub(super) collect: &'o [ItemId],
    /// `now()` and the like become literals, the same on all nodes.
    pub(super) literal_time: bool,
    /// The same, if they are brought to the nodes that have the rest: where each row is needed.
    pub(super) brought: &'o [BroughtItem],
    /// Of those whose rows are locked: each node decides the conditions of their queries, whatever these read.
    pub(super) local: &'o [ItemId],
    /// The final statement runs where node 1's own tables, and their types, are not known.
    pub(super) away: bool,
}

/// A table and the places that mention it.
struct Table<'a> {
    relation: &'a Arc<Relation>,
    items: Vec<ItemId>,
    /// ` TABLESAMPLE …` of its only mention, or empty.
    sample: String,
    /// System columns of its only mention.
    beside: Option<Beside<'a>>,
    /// ONLY stands before it, in its only mention.
    only: bool,
    /// Its rows are not those of another mention.
    is_apart: bool,
    /// Its rows are read where no type is known of them, see [`rows_of_arrays`].
    untyped: bool,
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
    let tables = tables(&tree, analysis, order)?;
    let locks = row_locks::take(&mut tree, analysis, order.collect, order.local, context)?;
    let facts = Facts::from_values(analysis);
    let top = match locks.is_empty() {
        true => top_rows::of(&tree, analysis, context)?.unwrap_or_default(),
        false => String::new(),
    };
    let ends = Ends { locks, top };
    let collects = collects(&tables, &Collecting { analysis, facts, ends, order, context })?;
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
    let (tables, facts) = (tables(tree, analysis, order)?, Facts::from_values(analysis));
    let ends = Ends { locks: Vec::new(), top: String::new() };
    let collects = collects(&tables, &Collecting { analysis, facts, ends, order, context })?;
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
pub(super) fn collected<'a>(
    tree: &NodeEnum,
    analysis: &Analysis<'a>,
    order: &Order<'_>,
) -> Result<Vec<Collected<'a>>, Refusal> {
    let with_columns = |table: Table<'a>| Collected {
        needed: needed_columns(&table, analysis),
        relation: table.relation,
        items: table.items,
    };
    Ok(tables(tree, analysis, order)?.into_iter().map(with_columns).collect())
}

/// The final statement's tree, with the rows in this form. `tree` has the locations of `analysis`.
pub(super) fn with_tables(
    tree: &mut NodeEnum,
    analysis: &Analysis<'_>,
    order: &Order<'_>,
) -> Result<(), Refusal> {
    let tables = tables(tree, analysis, order)?;
    put_rows(tree, analysis, order, &tables, Form::Tables)
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

/// What each node says of a table beside its rows' columns: the clause of its sample, and system columns.
///
/// Errors: 0A000 for what it could not say of its rows alone.
fn kept<'a>(
    item: ItemId,
    tree: &NodeEnum,
    analysis: &Analysis<'a>,
) -> Result<(String, Option<Beside<'a>>), Refusal> {
    let Some((relation, _)) = analysis.items[item].distributed() else {
        return Ok((String::new(), None));
    };
    let beside = match analysis.mentions_system_column(item) {
        true => system_columns::beside(item, tree, analysis),
        false => None,
    };
    if beside.is_none() && analysis.mentions_system_column(item) {
        return Err(Refusal::unsupported(
            format!("system columns of \"{}\" cannot be read here", relation.name),
            "Its rows are brought together from several nodes, where these columns have meanings \
             of their own: they can be shown, and nothing can be computed by them.",
            "Leave ctid, xmin and their kin out, or pin the table's distribution key.",
        ));
    }
    let Some(sample) = analysis.items[item].sample else { return Ok((String::new(), beside)) };
    match samples::clause(sample)? {
        Some(sample) if !analysis.locked.contains(&item) => Ok((sample, beside)),
        _ => Err(Refusal::unsupported(
            format!("this TABLESAMPLE of \"{}\" is not supported here", relation.name),
            "Each node would have to take a sample of its own rows before they are brought together.",
            "Use BERNOULLI or SYSTEM with literals or parameters, and no row locks.",
        )),
    }
}

/// What node 1 has whole of what a statement reads, and may be collected too, so that all is of one
/// moment: nothing of its rows is asked for that only the relation itself has.
pub(super) fn collectable_on_node_1(analysis: &Analysis<'_>) -> impl Iterator<Item = ItemId> {
    (0..analysis.items.len()).filter(|item| is_collectable_on_node_1(*item, analysis))
}

/// Whether that is so of one.
pub(super) fn is_collectable_on_node_1(item: ItemId, analysis: &Analysis<'_>) -> bool {
    let of = &analysis.items[item];
    let has_rows = |relation: &&Arc<Relation>| relation.kind != RelationKind::Sequence;
    of.whole_on_node_1().filter(has_rows).is_some()
        && analysis.target != Some(item)
        && of.sample.is_none()
        && !analysis.mentions_system_column(item)
        && !analysis.locked.contains(&item)
}

fn tables<'a>(
    tree: &NodeEnum,
    analysis: &Analysis<'a>,
    order: &Order<'_>,
) -> Result<Vec<Table<'a>>, Refusal> {
    let mut tables: Vec<Table<'a>> = Vec::new();
    for &item in order.collect {
        let of = &analysis.items[item];
        let distributed = of.distributed().map(|(relation, _)| relation);
        let Some(relation) = distributed.or_else(|| of.whole_on_node_1()) else { continue };
        let (sample, beside) = kept(item, tree, analysis)?;
        let is_apart = !sample.is_empty() || beside.is_some() || of.only || of.varies;
        let same = tables.iter_mut().find(|table| !is_apart && table.takes(relation));
        match same {
            Some(table) => table.items.push(item),
            None => {
                let untyped = order.away && of.is_at_home();
                let (items, only) = (vec![item], of.only);
                tables.push(Table { relation, items, sample, beside, only, is_apart, untyped });
            }
        }
    }
    Ok(tables)
}

impl Table<'_> {
    /// Whether another mention of `relation` can have these rows too.
    fn takes(&self, relation: &Relation) -> bool {
        !self.is_apart && is_same(self.relation, relation)
    }

    /// Its rows out of an SQL literal that holds them.
    fn rows_of(&self, literal: &str) -> String {
        match self.untyped {
            true => rows_of_arrays(self.relation, literal),
            false => rows_of_literal(self.relation, literal),
        }
    }
}

fn is_same(one: &Relation, other: &Relation) -> bool {
    (&one.schema, &one.name, one.returned_by) == (&other.schema, &other.name, other.returned_by)
}

/// What the SELECTs that collect are made for.
struct Collecting<'c, 'a> {
    analysis: &'c Analysis<'a>,
    facts: Facts<'c, 'a>,
    ends: Ends,
    order: &'c Order<'c>,
    context: &'c Context<'c>,
}

/// A table's entry in the FROM of a SELECT that collects.
struct Entry<'t, 'a> {
    table: &'t Table<'a>,
    /// Quoted.
    alias: String,
    /// The names of its columns there, quoted.
    columns: Vec<String>,
    /// What the statement demands of its rows, for each mention of it; empty: nothing.
    own: Vec<String>,
}

impl Entry<'_, '_> {
    fn column(&self, column: usize) -> String {
        format!("{}.{}", self.alias, self.columns[column])
    }

    /// ` WHERE …`, where a row is collected if some mention of its table asks for it.
    fn condition(&self, more: Option<&[String]>) -> String {
        let of_mention = |(index, own): (usize, &String)| {
            let more = more.and_then(|more| more.get(index)).map(String::as_str);
            [own.as_str(), more.unwrap_or_default()]
                .into_iter()
                .filter(|condition| !condition.is_empty())
                .collect::<Vec<_>>()
                .join(" AND ")
        };
        let conditions: Vec<_> = self.own.iter().enumerate().map(of_mention).collect();
        match &conditions[..] {
            conditions if conditions.iter().any(String::is_empty) => String::new(),
            [condition] => format!(" WHERE {condition}"),
            conditions => format!(" WHERE ({})", conditions.join(") OR (")),
        }
    }
}

fn collects(tables: &[Table<'_>], of: &Collecting<'_, '_>) -> Result<Vec<Collect>, Refusal> {
    let entries = tables.iter().map(|table| entry(table, of)).collect::<Result<Vec<_>, _>>()?;
    let context = of.context;
    let has_one_moment = !context.collects_replicated && context.opaque.is_none();
    let mentions: Vec<_> = tables.iter().map(|table| &table.items[..]).collect();
    let joins = match of.ends.locks.is_empty() && of.ends.top.is_empty() && has_one_moment {
        true => semi_joins::of(&mentions, of.analysis),
        false => Vec::new(),
    };
    entries.iter().enumerate().map(|(index, _)| collect(index, &entries, &joins, of)).collect()
}

fn entry<'t, 'a>(table: &'t Table<'a>, of: &Collecting<'_, 'a>) -> Result<Entry<'t, 'a>, Refusal> {
    let (relation, analysis, context) = (table.relation, of.analysis, of.context);
    let literal_time = of.order.literal_time;
    let names = relation.columns.iter().map(|column| quote_identifier(&column.name));
    if let [item] = table.items[..] {
        let lock = of.ends.locks.iter().find(|lock| lock.item == item);
        let said = Said { literal_time, alias: None };
        let own = match lock {
            Some(lock) if lock.is_local => row_conditions::whole(item, analysis, said, context)?,
            _ => row_conditions::of_own_rows(item, analysis, lock.is_some(), said, context)?
                .join(" AND "),
        };
        let name =
            |column| quote_identifier(analysis.column_name(item, column).unwrap_or_default());
        return Ok(Entry {
            table,
            alias: quote_identifier(analysis.items[item].name),
            columns: (0..relation.columns.len()).map(name).collect(),
            own: vec![own],
        });
    }
    let (alias, said) = ("t", Said { literal_time, alias: Some("t") });
    let own = |item: &ItemId| {
        let conditions = row_conditions::of_own_rows(*item, analysis, false, said, context)?;
        Ok(conditions.join(" AND "))
    };
    Ok(Entry {
        table,
        alias: alias.to_owned(),
        columns: names.collect(),
        own: table.items.iter().map(own).collect::<Result<_, Refusal>>()?,
    })
}

fn collect(
    index: usize,
    entries: &[Entry<'_, '_>],
    joins: &[SemiJoin],
    of: &Collecting<'_, '_>,
) -> Result<Collect, Refusal> {
    let entry @ Entry { table, alias, columns, .. } = &entries[index];
    let (relation, analysis, ends) = (table.relation, of.analysis, &of.ends);
    if let Some(step) = relation.returned_by {
        return Ok(Collect {
            relation: relation.clone(),
            select: Template(Vec::new()),
            from: CollectFrom::Returned(step),
            locks: None,
            route: None,
            reduced: Vec::new(),
        });
    }
    let mut needed = needed_columns(table, analysis);
    let lock = ends.locks.iter().find(|lock| table.items[..] == [lock.item]);
    if lock.is_some_and(|lock| lock.first.is_some()) {
        let key = relation.primary_key.iter();
        key.for_each(|column| needed.iter_mut().skip(*column).take(1).for_each(|it| *it = true));
    }
    let is_whole = table.items.iter().any(|item| analysis.items[*item].whole_on_node_1().is_some());
    let from = match table.items[..] {
        _ if is_whole => CollectFrom::One(NodeChoice::Home),
        [item] => match of.facts.pins_of(item) {
            Some(pins) => CollectFrom::One(NodeChoice::Pinned(pins)),
            None => CollectFrom::AllNodes,
        },
        _ => CollectFrom::AllNodes,
    };
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
    let sample = &table.sample;
    let name = if table.only { "ONLY " } else { "" }.to_owned() + &relation.sql_name();
    let (name, sample) = match is_named {
        true => {
            let sampled = name + sample;
            (format!("(SELECT * FROM {sampled})"), "")
        }
        false => (name, sample.as_str()),
    };
    let condition = entry.condition(None);
    let columns = columns.join(", ");
    // A table may have none.
    let called = if columns.is_empty() { String::new() } else { format!(" ({columns})") };
    let row = match table.untyped {
        true => array_text(relation, &values, &needed)?,
        false => row_text(&values.join(", "), are_written_alike),
    };
    let row = match &table.beside {
        Some(beside) => beside.said(&row, alias),
        None => row,
    };
    let from_table = format!("FROM {name} AS {alias}{called}{sample}");
    let of_table = format!("{from_table}{condition}");
    let (relation, route, reduced) = (relation.clone(), None, Vec::new());
    let Some(lock) = lock else {
        let (row, route) = match route_of(entry, of) {
            Some((bucket, map)) => (format!("{row}, {bucket}"), Some(map)),
            None => (row, None),
        };
        let select = match ends.top.is_empty() || table.beside.is_some() || route.is_some() {
            true => format!("SELECT {row} {of_table}{}", ends.top),
            // PostgreSQL computes outputs before it sorts, which texts of all rows are too many for.
            false => {
                let first = values.iter().zip(&needed).filter(|(_, needed)| **needed);
                let first: Vec<_> = first.map(|(value, _)| value.as_str()).collect();
                let first = format!("SELECT {} {of_table}{}", first.join(", "), ends.top);
                format!("SELECT {row} FROM ({first}) AS {alias}")
            }
        };
        let select = cut(&select)?;
        let reduced = joins.iter().filter(|join| join.table == index).map(|join| {
            let by = &entries[join.by];
            let rows = by.table.rows_of(&gap(join.by));
            let collected = entry.condition(Some(&reduction(entry, by, join, &rows)));
            let expected = entry.condition(Some(&expected(join, entries, joins)));
            Ok(Reduced {
                by: join.by,
                select: cut(&format!("SELECT {row} {from_table}{collected}"))?,
                expected: cut(&format!("SELECT {row} {from_table}{expected}"))?,
            })
        });
        let reduced = reduced.collect::<Result<Vec<_>, Refusal>>()?;
        return Ok(Collect { relation, select, from, locks: None, route, reduced });
    };
    let Some(first) = &lock.first else {
        let select = cut(&format!("SELECT {row} {of_table}{}", lock.clause))?;
        let locks = Some(Box::new(RowLocks { first: None }));
        return Ok(Collect { relation, select, from, locks, route, reduced });
    };
    // Named, for a bare name in ORDER BY means an output first.
    let select = format!("SELECT {row} AS tutti_row {of_table}");
    let rows = rows_of_literal(&relation, &gap(0));
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
    let by_key_is_none = by_key.is_none();
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
    let (select, clause) = match is_ordered && by_key_is_none {
        // What others have changed of a row while it was waited for does not change its place. A node that looks at a
        // locked row once more has what is beside it as it was (`EvalPlanQualFetchRowMark`, ROW_MARK_COPY).
        true => {
            let was = |(index, value): (usize, &String)| match needed[index] {
                true => (value.clone(), format!("tutti_was.tutti_{index}")),
                false => ("NULL::pg_catalog.int4".to_owned(), "NULL".to_owned()),
            };
            let (are, were): (Vec<_>, Vec<_>) = values.iter().enumerate().map(was).unzip();
            let names: Vec<_> = (0..values.len()).map(|index| format!("tutti_{index}")).collect();
            let beside = format!(
                "LATERAL (SELECT {} OFFSET 0) AS tutti_was ({})",
                are.join(", "),
                names.join(", ")
            );
            let was = row_text(&were.join(", "), are_written_alike);
            let columns = format!("{row} AS tutti_row, {was} AS tutti_old");
            let select = format!("SELECT {columns} {from_table}, {beside}{condition}");
            (select, lock.clause_of(alias))
        }
        false => (select, lock.clause.clone()),
    };
    let select = cut(&format!("{select}{}{clause}", first.of_node))?;
    Ok(Collect { relation, select, from, locks: Some(Box::new(locks)), route, reduced })
}

/// The expression of a row's bucket, and the map by which it has a node, if only that node needs the row.
fn route_of(entry: &Entry<'_, '_>, of: &Collecting<'_, '_>) -> Option<(String, MapId)> {
    let brought =
        of.order.brought.iter().find(|brought| entry.table.items.contains(&brought.item))?;
    let Whereabouts::Hash { key, map } = brought.at else { return None };
    let column = entry.table.relation.columns.get(key)?;
    let key_type = KeyType::from_oid(column.type_oid)?;
    let bucketing = &of.context.catalog.maps.get(&map)?.bucketing;
    Some((bucketing.sql_bucket(key_type, &entry.column(key)), map))
}

/// For each mention of a table, that its columns have values that are among another's `rows`, an entry of FROM.
fn reduction(
    entry: &Entry<'_, '_>,
    by: &Entry<'_, '_>,
    join: &SemiJoin,
    rows: &str,
) -> Vec<String> {
    let of_mention = |pairs: &Vec<(usize, usize)>| {
        let of_pair = |(column, of_by): &(usize, usize)| {
            let name = quote_identifier(&by.table.relation.columns[*of_by].name);
            format!(
                "{} OPERATOR(pg_catalog.=) ANY (SELECT tutti_k.{name} FROM {rows} AS tutti_k)",
                entry.column(*column)
            )
        };
        pairs.iter().map(of_pair).collect::<Vec<_>>().join(" AND ")
    };
    join.columns.iter().map(of_mention).collect()
}

/// The same of what is in the tables: for PostgreSQL to say how many rows it expects. What is said of the other table
/// is what the statement demands of it, and, where that is nothing, how it is reduced itself.
fn expected(join: &SemiJoin, entries: &[Entry<'_, '_>], joins: &[SemiJoin]) -> Vec<String> {
    let (entry, by) = (&entries[join.table], &entries[join.by]);
    let is_restricted = |table: usize| !entries[table].condition(None).is_empty();
    let further = joins.iter().find(|further| {
        further.table == join.by
            && further.by != join.table
            && !is_restricted(join.by)
            && is_restricted(further.by)
    });
    let of_table = |entry: &Entry<'_, '_>, join: &SemiJoin, condition: &str| {
        let (name, columns) = (entry.table.relation.sql_name(), entry.columns.join(", "));
        let named: BTreeSet<_> = join.columns.iter().flatten().map(|(_, column)| *column).collect();
        let named = named.into_iter().map(|column| {
            let name = quote_identifier(&entry.table.relation.columns[column].name);
            format!("{} AS {name}", entry.column(column))
        });
        let named = named.collect::<Vec<_>>().join(", ");
        format!("(SELECT {named} FROM {name} AS {} ({columns}){condition})", entry.alias)
    };
    let condition = match further {
        Some(further) => {
            let of_further = &entries[further.by];
            let rows = of_table(of_further, further, &of_further.condition(None));
            by.condition(Some(&reduction(by, of_further, further, &rows)))
        }
        None => by.condition(None),
    };
    reduction(entry, by, join, &of_table(by, join, &condition))
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

/// The type char(n).
const BPCHAR: u32 = 1042;

/// A row of these values as text that [`rows_of_arrays`] reads: an array in JSON of the values' texts.
///
/// Errors: 0A000 for a column of a type that is not read alike wherever it is known.
fn array_text(relation: &Relation, values: &[String], needed: &[bool]) -> Result<String, Refusal> {
    let of_column = |((column, value), needed): ((&Column, &String), &bool)| {
        if !needed {
            return Ok("NULL::pg_catalog.text".to_owned());
        }
        if !travels_untyped(column) {
            return Err(Refusal::unsupported(
                format!("\"{}\" cannot be used in a write to several nodes", relation.name),
                format!(
                    "It is on node 1 only, and the type of its column \"{}\", {}, may not be known on the others.",
                    column.name, column.declared_type
                ),
                "Distribute the table or make it REPLICATED, or write the rows one by one.",
            ));
        }
        // As text it would lose blanks at its end.
        let text = match column.type_oid {
            BPCHAR => format!("tutti.value_output({value})"),
            of => value_text(value, of),
        };
        Ok(format!("({text})::pg_catalog.text"))
    };
    let texts = relation.columns.iter().zip(values).zip(needed).map(of_column);
    let texts = texts.collect::<Result<Vec<_>, Refusal>>()?.join(", ");
    Ok(format!("pg_catalog.json_build_array({texts})::pg_catalog.text"))
}

/// Rows of a relation out of an SQL literal that holds them as [`array_text`] has written them, as an entry of a FROM
/// clause, where the relation is not known.
fn rows_of_arrays(relation: &Relation, literal: &str) -> String {
    let of_column = |(place, column): (usize, &Column)| {
        let name = quote_identifier(&column.name);
        if !travels_untyped(column) {
            return format!("NULL::pg_catalog.text AS {name}");
        }
        let collation = column.collation.as_ref();
        let collation = collation.map_or_else(String::new, |of| format!(" COLLATE {of}"));
        format!(
            "(tutti_row OPERATOR(pg_catalog.->>) {place})::{}{collation} AS {name}",
            column.declared_type
        )
    };
    let columns: Vec<_> = relation.columns.iter().enumerate().map(of_column).collect();
    format!(
        "(SELECT {} FROM pg_catalog.unnest({literal}::pg_catalog.json[]) AS tutti_row)",
        columns.join(", ")
    )
}

/// Whether a value of a column can be read from its text alone, wherever.
fn travels_untyped(column: &Column) -> bool {
    column.type_oid < FIRST_OF_USERS && !column.domain && is_read_alike(column.type_oid)
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
        let system =
            self.analysis.system_columns.iter().find(|of| {
                of.location == reference.location && self.order.collect.contains(&of.item)
            });
        let (item, column) = match (self.analysis.uses.iter().find(at), system) {
            (Some(of), _) => (of.item, of.column),
            (None, Some(of)) => (of.item, Some(usize::MAX)),
            (None, None) => return None,
        };
        let name =
            Node { node: Some(NodeEnum::String(PgString { sval: self.name_of(item).to_owned() })) };
        let fields = match reference.fields.as_slice() {
            // A column by its name alone, or all of them.
            [_] if column.is_some() || is_star(reference) => return None,
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
            self.write_stars_out(select);
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

    /// A star does not stand for the system columns that a table has beside its own here.
    fn write_stars_out(&self, select: &mut SelectStmt) {
        let beside = |item: ItemId| {
            self.tables.iter().any(|table| table.beside.is_some() && table.items.contains(&item))
        };
        let targets = std::mem::take(&mut select.target_list);
        for target in targets {
            let columns = system_columns::stars(&target, self.analysis);
            let Some(columns) = columns.filter(|of| of.iter().any(|(item, _)| beside(*item)))
            else {
                select.target_list.push(target);
                continue;
            };
            let part = |name: &str| Node {
                node: Some(NodeEnum::String(PgString { sval: name.to_owned() })),
            };
            select.target_list.extend(columns.into_iter().map(|(item, column)| {
                let name = self.analysis.column_name(item, column).unwrap_or_default();
                let fields = vec![part(self.name_of(item)), part(name)];
                let reference = NodeEnum::ColumnRef(ColumnRef { fields, location: NOWHERE });
                let val = Some(Box::new(Node { node: Some(reference) }));
                let target = ResTarget { val, ..ResTarget::default() };
                Node { node: Some(NodeEnum::ResTarget(Box::new(target))) }
            }));
        }
    }

    fn child(&self, child: &mut Node) -> Result<(), Refusal> {
        let replacement = match &child.node {
            Some(NodeEnum::RangeVar(range)) => self.collected(range)?,
            Some(NodeEnum::RangeTableSample(of)) => {
                match of.relation.as_ref().and_then(|of| of.node.as_ref()) {
                    Some(NodeEnum::RangeVar(range)) => self.collected(range)?,
                    _ => None,
                }
            }
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
            Form::Rows => match &table.beside {
                Some(beside) => beside.from(&gap(index), |literal| table.rows_of(literal)),
                None => table.rows_of(&gap(index)),
            },
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
        let in_all: BTreeSet<_> = select
            .group_clause
            .iter()
            .flat_map(|entry| self.columns_in_all(entry, &select.target_list))
            .collect();
        // A column that is in a set is NULL where another set leaves it out, whatever it depends on.
        let mut in_sets = Vec::new();
        for entry in &select.group_clause {
            if let Some(NodeEnum::GroupingSet(_)) = &entry.node {
                self.put_columns_of_set(entry, &select.target_list, &mut in_sets);
            }
        }
        for table in self.tables {
            for &item in &table.items {
                if !locations.contains(&self.analysis.items[item].location) {
                    continue;
                }
                let level = self.analysis.queries.iter().find(|query| query.items.contains(&item));
                let Some(level) = level else { continue };
                let grouped = |column: usize| match level.has_grouping_sets {
                    true => in_all.contains(&(item, column)),
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
                let is_in_set = |column: usize| {
                    self.analysis.uses.iter().any(|of| {
                        (of.item, of.column) == (item, Some(column))
                            && in_sets.contains(&of.location)
                    })
                };
                for column in 0..table.relation.columns.len() {
                    if !grouped(column)
                        && !is_in_set(column)
                        && self.may_stand_ungrouped(table, item, column)
                    {
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
    /// Columns by which every set groups: what is outside of the sets is in all of them.
    fn columns_in_all(&self, entry: &Node, outputs: &[Node]) -> BTreeSet<(ItemId, usize)> {
        let of_all = |parts: &[Node]| -> Vec<_> {
            parts.iter().map(|part| self.columns_in_all(part, outputs)).collect()
        };
        match &entry.node {
            Some(NodeEnum::GroupingSet(set)) if set.kind() == GroupingSetKind::GroupingSetSets => {
                let sets = of_all(&set.content).into_iter();
                sets.reduce(|one, other| &one & &other).unwrap_or_default()
            }
            // ROLLUP and CUBE have the empty set, too.
            Some(NodeEnum::GroupingSet(_)) => BTreeSet::new(),
            Some(NodeEnum::RowExpr(row)) => of_all(&row.args).into_iter().flatten().collect(),
            _ => {
                let mut locations = Vec::new();
                self.put_columns_of_set(entry, outputs, &mut locations);
                let uses = self.analysis.uses.iter();
                let here = uses.filter(|of| locations.contains(&of.location));
                here.filter_map(|of| Some((of.item, of.column?))).collect()
            }
        }
    }

    /// Where columns are mentioned that are entries of these sets by themselves.
    fn put_columns_of_set(&self, entry: &Node, outputs: &[Node], locations: &mut Vec<i32>) {
        match &entry.node {
            Some(NodeEnum::GroupingSet(set)) => {
                set.content
                    .iter()
                    .for_each(|part| self.put_columns_of_set(part, outputs, locations));
            }
            Some(NodeEnum::RowExpr(row)) => {
                row.args.iter().for_each(|part| self.put_columns_of_set(part, outputs, locations));
            }
            Some(NodeEnum::ColumnRef(reference))
                if self.analysis.uses.iter().any(|of| of.location == reference.location) =>
            {
                locations.push(reference.location);
            }
            _ => locations.extend(named_output(entry, outputs).map(|reference| reference.location)),
        }
        locations.retain(|location| *location != NOWHERE);
    }

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
