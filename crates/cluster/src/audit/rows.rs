//! Where rows are: copies of replicated tables, rows of distributed tables on their nodes, and none of
//! home tables elsewhere.
//!
//! Owns: what is asked of each table on each node, in which portions, and what the answers mean.
//! Never: holds rows in memory, except a few that `differences` names; runs code of users'.
//! Start reading at [`check`].
//!
//! Copies are compared by sums of two 64-bit hashes of every row's text, so their order does not matter,
//! and each node computes its own. The text is that of an anonymous record, which calls the output functions
//! of the columns' types and no cast; with the connection's settings it is exact, and it has no OIDs. Such
//! functions are PostgreSQL's or a superuser's (only a superuser makes a type with code).
//!
//! PostgreSQL evaluates an index's or a statistics object's expressions as far as they are constant when
//! it plans a scan: that would be a user's function run by a superuser. A table's owner can give it such at
//! any moment, and its schema's owner can put another table in its place. So only tables that belong to
//! superusers, in schemas of theirs, are asked by queries, and only if their expressions call nothing but
//! immutable functions that only superusers make (`tutti.has_code`). All others are read by COPY, which plans
//! nothing, and hashed here; where a session waits for a lock on one, its reading is abandoned and begun
//! again.
//!
//! Each portion of a table that is asked by queries is a transaction of its own at the moment's snapshot, so
//! that a schema change waits for a portion at most. Whether the table was rewritten since (TRUNCATE and
//! rewriting forms of ALTER TABLE show to older snapshots what was not) is asked after each portion; then it
//! is looked at again at another moment.

mod carried;
mod differences;
mod strays;

use std::collections::{BTreeMap, BTreeSet};

use tutti_configuration::Config;
use tutti_link::connection::{NodeError, Rows};
use tutti_sql::catalog::{NodeId, quote_identifier};
use tutti_sql::hash::{Bucketing, KeyType, sql_bucket_of_several};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use super::moment::{Moment, Name};
use super::report::{Finding, Kind, Progress, Report};
use crate::catalog::Answer;
use crate::catalog::maps::{SPLITS_SQL, read_bucketing, text_of_hex};
use crate::error::{GatewayError, in_full};

/// Blocks of a table that are read in one transaction: 128 MiB.
const PORTION_BLOCKS: u64 = 16_384;
/// Tables that are read in one transaction where all are small.
const TABLES_TOGETHER: usize = 40;
/// How many rows a finding names.
const NAMED: usize = 5;
/// How many moments a table gets that others rewrite.
const MOMENTS: u32 = 3;

/// Every table that clients can have made, as the node sees it at the moment.
const TABLES: &str =
    "SELECT c.oid, n.nspname, c.relname, coalesce(p.kind, 'home'), c.relkind = 'r',
    c.relfilenode, (SELECT pg_catalog.string_agg(pg_catalog.concat(coalesce(nullif(t.typbasetype, 0), t.oid), ' ',
            a.atttypmod, ' ', pg_catalog.encode(pg_catalog.convert_to(a.attname, 'UTF8'), 'hex')), ',' ORDER BY u.place)
        FROM pg_catalog.unnest(coalesce(p.key_attnums, ARRAY[p.key_attnum])) WITH ORDINALITY AS u (attnum, place)
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = u.attnum AND NOT a.attisdropped
        JOIN pg_catalog.pg_type t ON t.oid = a.atttypid),
    pg_catalog.cardinality(coalesce(p.key_attnums, ARRAY[p.key_attnum])), p.map,
    (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(k.attname), ', ' ORDER BY k.attnum)
     FROM pg_catalog.pg_attribute k WHERE k.attrelid = c.oid AND k.attnum > 0 AND NOT k.attisdropped
         AND k.attgenerated <> 'v'),
    (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(k.attname), ', ' ORDER BY k.attnum)
     FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute k ON k.attrelid = c.oid
         AND k.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
     WHERE i.indrelid = c.oid AND i.indisprimary),
    NOT (SELECT pg_catalog.bool_and(r.rolsuper) FROM pg_catalog.pg_roles r
        WHERE r.oid IN (c.relowner, CASE WHEN n.nspowner = 'pg_database_owner'::pg_catalog.regrole
            THEN (SELECT d.datdba FROM pg_catalog.pg_database d
                WHERE d.datname = pg_catalog.current_database()) ELSE n.nspowner END))
    OR EXISTS (SELECT FROM (
            SELECT i.indexprs FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid
            UNION ALL SELECT i.indpred FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid
            UNION ALL SELECT s.stxexprs FROM pg_catalog.pg_statistic_ext s WHERE s.stxrelid = c.oid
        ) AS x (tree) WHERE tutti.has_code(x.tree))
    OR EXISTS (SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_depend d
            ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = i.indexrelid
        WHERE i.indrelid = c.oid AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL)
            AND d.refobjid >= 16384 AND tutti.is_code(d.refclassid, d.refobjid)),
    (SELECT pg_catalog.string_agg(u.columns, ';') FROM (
        SELECT (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(k.attname), ', ')
                FROM pg_catalog.pg_attribute k WHERE k.attrelid = c.oid
                    AND k.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])) AS columns
        FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate
            AND i.indexprs IS NULL AND i.indpred IS NULL) u),
    greatest(c.relpages, 0)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN tutti.placement p ON p.relation = c.oid
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND c.oid >= 16384
    AND n.nspname <> ALL ('{pg_catalog,information_schema,pg_toast,tutti}')
ORDER BY n.nspname, c.relname;";

fn maps_sql() -> String {
    format!(
        "SELECT b.map, pg_catalog.string_agg(b.node::pg_catalog.text, ',' ORDER BY b.bucket), m.key_family, {SPLITS_SQL}
FROM tutti.bucket b JOIN tutti.map m ON m.id OPERATOR(pg_catalog.=) b.map GROUP BY b.map, m.key_family, m.splits"
    )
}

/// A column of a distribution key.
#[derive(Clone, Debug, Eq, PartialEq)]
struct KeyColumn {
    name: String,
    key_type: Option<KeyType>,
    modifier: i32,
}

impl Table {
    /// The columns of its key, quoted, as a list.
    fn key_list(&self) -> String {
        let names: Vec<_> = self.key.iter().map(|key| quote_identifier(&key.name)).collect();
        names.join(", ")
    }

    /// Their names.
    fn key_names(&self) -> Vec<&str> {
        self.key.iter().map(|key| key.name.as_str()).collect()
    }

    fn has_key(&self) -> bool {
        !self.key.is_empty()
            && self.key.len() == self.key_len
            && self.key.iter().all(|key| key.key_type.is_some())
    }
}

/// A table on one node.
#[derive(Clone, Debug)]
struct Table {
    oid: u32,
    placement: String,
    /// Not partitioned.
    has_rows: bool,
    file: u32,
    /// Its columns, in order; fewer if some are not there.
    key: Vec<KeyColumn>,
    /// How many columns its placement names.
    key_len: usize,
    map: Option<u32>,
    columns: Option<String>,
    primary_key: Option<String>,
    /// Planning a scan may run code of users'.
    runs_code: bool,
    unique: Vec<String>,
    pages: u64,
}

type Tables = BTreeMap<Name, Table>;

/// A bucket map as the reference has it.
#[derive(Clone, Debug, Default)]
struct Owners {
    /// By bucket.
    nodes: Vec<u16>,
    bucketing: Bucketing,
}

/// What is counted of a table on a node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Sums {
    rows: i128,
    first: i128,
    second: i128,
}

/// What to count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Question {
    /// All rows, with the sums of their hashes.
    Copy,
    /// Rows that belong elsewhere, in `first`.
    Strays,
    /// Rows at all.
    Any,
}

/// Why such a table is looked at again.
const IS_WRITTEN: &str = "its copies differ, and rows are on their way at every moment";
/// How copies of asynchronously replicated tables differed at the moment before: here, and on the reference.
type Seen = BTreeMap<(Name, NodeId), (Sums, Sums)>;

/// Why a table's rows were not counted.
enum Uncounted {
    /// It is not what it was at the moment.
    Changed(String),
    /// Nor can it be.
    Failed(String),
}

/// Compares and looks for rows, by several moments if need be.
pub(super) async fn check(
    config: &Config,
    moment: &mut Moment,
    report: &mut Report,
    progress: &Progress<'_>,
) -> Result<(), GatewayError> {
    let mut wanted: Option<BTreeSet<Name>> = None;
    let mut seen = Seen::new();
    for turn in 1..=MOMENTS {
        if turn > 1 {
            if !seen.is_empty()
                && let Some(why) = Comparison::wait_for_arrival(config, moment).await?
            {
                Comparison::give_up(&mut seen, &mut wanted, &why, report);
            }
            if wanted.as_ref().is_some_and(BTreeSet::is_empty) {
                return Ok(());
            }
            moment.retake(config).await?;
        }
        let mut comparison = Comparison::at(moment).await?;
        comparison.seen = std::mem::take(&mut seen);
        if turn == 1 {
            comparison.compare_placements(report);
            report.tables = comparison
                .tables
                .get(&comparison.reference)
                .map_or(0, |tables| tables.len() as u64);
        }
        let again = comparison.run(wanted.as_ref(), report, progress).await?;
        seen = std::mem::take(&mut comparison.seen);
        if again.is_empty() {
            return Ok(());
        }
        if turn == MOMENTS {
            for (name, why) in again {
                report.unchecked(format!("table {}", shown(&name)), why);
            }
            return Ok(());
        }
        wanted = Some(again.into_keys().collect());
    }
    Ok(())
}

pub(super) fn shown((schema, table): &Name) -> String {
    format!("{schema}.{table}")
}

fn sql_name((schema, table): &Name) -> String {
    format!("{}.{}", quote_identifier(schema), quote_identifier(table))
}

/// One moment's tables.
struct Comparison<'a> {
    moment: &'a mut Moment,
    /// Whose catalog counts: node 1, if it answers.
    reference: NodeId,
    tables: BTreeMap<NodeId, Tables>,
    maps: BTreeMap<u32, Owners>,
    seen: Seen,
}

impl<'a> Comparison<'a> {
    async fn at(moment: &'a mut Moment) -> Result<Self, GatewayError> {
        let begins: BTreeMap<NodeId, String> = moment
            .workers
            .nodes()
            .into_iter()
            .filter_map(|node| Some((node, moment.begin(node)?)))
            .collect();
        let answers = moment
            .workers
            .ask(None, |node| {
                Some(format!("{} {TABLES} {}; COMMIT", begins.get(&node)?, maps_sql()))
            })
            .await;
        let mut tables = BTreeMap::new();
        let mut maps = BTreeMap::new();
        for (node, answer) in answers {
            let results = match answer {
                Ok(results) => results,
                Err(error) => {
                    moment.lose(node, in_full(&error));
                    continue;
                }
            };
            let [.., listed, mapped, _] = results.as_slice() else {
                return Err(GatewayError::Unreadable { node, what: "its tables" });
            };
            tables.insert(node, read_tables(&Answer { node, what: "its tables", rows: listed })?);
            if maps.is_empty() {
                maps = read_maps(&Answer { node, what: "its bucket maps", rows: mapped })?;
            }
        }
        let reference = tables.keys().next().copied().ok_or(GatewayError::NoMoment)?;
        Ok(Self { moment, reference, tables, maps, seen: Seen::new() })
    }

    /// Placements are the same on all nodes, and so is what they say of.
    fn compare_placements(&self, report: &mut Report) {
        let Some(expected) = self.tables.get(&self.reference) else { return };
        let of = |table: &Table| {
            let map = table.map.map_or(String::new(), |map| format!(" (map {map})"));
            let names: Vec<_> = table.key_names().iter().map(|key| format!("\"{key}\"")).collect();
            let key = match names.is_empty() {
                true => String::new(),
                false => format!(" by {}", names.join(", ")),
            };
            format!("{}{key}{map}", table.placement)
        };
        for (node, tables) in self.tables.iter().filter(|(node, _)| **node != self.reference) {
            for (name, table) in expected.iter().filter(|(_, table)| table.placement != "home") {
                let there = tables.get(name).map_or("missing".to_owned(), of);
                if there != of(table) {
                    let message = format!(
                        "its placement is {} on {}, and {there} here",
                        of(table),
                        self.reference
                    );
                    report.find(Finding::new(Kind::Placement, Some(*node), shown(name), message));
                }
            }
            for (name, table) in tables.iter().filter(|(_, table)| table.placement != "home") {
                if expected.get(name).is_none_or(|it| it.placement == "home") {
                    let message = format!(
                        "its placement is {} here, and {} knows of none",
                        of(table),
                        self.reference
                    );
                    report.find(Finding::new(Kind::Placement, Some(*node), shown(name), message));
                }
            }
        }
        // On one node clients may do with a key as they like.
        let is_spread = |table: &Table| 1 < self.tables.len() && table.placement == "hash";
        for (name, table) in expected.iter().filter(|(_, table)| is_spread(table)) {
            let map_is_there = table.map.is_some_and(|map| self.maps.contains_key(&map));
            if !table.has_key() || !map_is_there {
                let message = "its placement names a key, a type or a map that is not there";
                let node = Some(self.reference);
                report.find(Finding::new(Kind::Placement, node, shown(name), message.to_owned()));
            }
        }
    }

    fn question(&self, name: &Name, node: NodeId) -> Option<Question> {
        let table = self.tables.get(&self.reference)?.get(name)?;
        let here = self.tables.get(&node)?.get(name)?;
        if !here.has_rows {
            return None;
        }
        match table.placement.as_str() {
            "replicated" | "async" => Some(Question::Copy),
            "hash" => {
                let is_alike = here.has_key() && here.key_names() == table.key_names();
                is_alike.then_some(Question::Strays)
            }
            "home" => (node != NodeId::HOME).then_some(Question::Any),
            _ => None,
        }
    }

    /// Returns the tables that must be looked at again, and why.
    async fn run(
        &mut self,
        wanted: Option<&BTreeSet<Name>>,
        report: &mut Report,
        progress: &Progress<'_>,
    ) -> Result<BTreeMap<Name, String>, GatewayError> {
        let mut again = BTreeMap::new();
        let mut small = Vec::new();
        let mut large = Vec::new();
        let names: BTreeSet<Name> =
            self.tables.values().flat_map(|it| it.keys().cloned()).collect();
        for name in names {
            if wanted.is_some_and(|wanted| !wanted.contains(&name)) {
                continue;
            }
            if let Some(why) = self.is_held(&name) {
                report.unchecked(format!("table {}", shown(&name)), why);
                continue;
            }
            let of = self.tables.get(&self.reference).and_then(|tables| tables.get(&name));
            if of.is_some_and(|it| it.placement.starts_with("async_")) {
                let why = "its asynchronous replication begins or ends, and that is not finished";
                report.unchecked(format!("table {}", shown(&name)), why.to_owned());
                continue;
            }
            let here: Vec<_> =
                self.tables.values().filter_map(|tables| tables.get(&name)).collect();
            if !self.tables.keys().any(|node| self.question(&name, *node).is_some()) {
                continue;
            }
            let is_large = here
                .iter()
                .any(|table| table.runs_code || table.pages > PORTION_BLOCKS || table.pages == 0);
            if is_large { large.push(name) } else { small.push(name) }
        }
        // What was never analysed says nothing of its size.
        let unknown = self.sizes(&large).await;
        large.retain(|name| match unknown.get(name) {
            Some(pages) if *pages <= PORTION_BLOCKS && !self.runs_code(name) => {
                small.push(name.clone());
                false
            }
            _ => true,
        });
        let total = small.len() + large.len();
        let mut done = 0;
        for names in small.chunks(TABLES_TOGETHER) {
            for (name, counted) in self.count_together(names).await {
                self.judge(&name, counted, report, &mut again).await?;
            }
            done += names.len();
            progress.tell(|| format!("{done} of {total} tables"));
        }
        for name in large {
            let pages = unknown.get(&name).copied();
            let counted = self.count_alone(&name, pages, progress).await;
            self.judge(&name, counted, report, &mut again).await?;
            done += 1;
            progress.tell(|| format!("{done} of {total} tables"));
        }
        Ok(again)
    }

    fn runs_code(&self, name: &Name) -> bool {
        self.tables.values().any(|tables| tables.get(name).is_some_and(|table| table.runs_code))
    }

    /// A transaction that is decided and not applied everywhere has written it.
    fn is_held(&self, name: &Name) -> Option<String> {
        let held = self.moment.unapplied.iter().find(|(_, written)| written.contains(name))?;
        Some(format!(
            "transaction {} has written it, is decided, and not applied everywhere",
            held.0
        ))
    }

    /// The most blocks that any node has of each table; nothing of those that are locked now.
    async fn sizes(&mut self, names: &[Name]) -> BTreeMap<Name, u64> {
        let mut sizes: BTreeMap<Name, u64> = BTreeMap::new();
        for names in names.chunks(TABLES_TOGETHER * 10) {
            let tables = &self.tables;
            let answers = self
                .moment
                .workers
                .ask(None, |node| {
                    let of =
                        |name: &Name| tables.get(&node)?.get(name).map(|it| it.oid.to_string());
                    let oids: Vec<_> = names.iter().filter_map(of).collect();
                    (!oids.is_empty()).then(|| {
                        format!(
                            "SELECT o, pg_catalog.pg_relation_size(o) / 8192 + 1
FROM pg_catalog.unnest('{{{}}}'::pg_catalog.oid[]) AS o",
                            oids.join(",")
                        )
                    })
                })
                .await;
            for (node, answer) in answers {
                let rows = answer.ok().and_then(|mut results| results.pop()).unwrap_or_default();
                for name in names {
                    let Some(table) = tables.get(&node).and_then(|it| it.get(name)) else {
                        continue;
                    };
                    let oid = table.oid.to_string();
                    let row = (0..rows.rows.len()).find(|row| rows.text(*row, 0) == Some(&oid));
                    let pages = row.and_then(|row| rows.text(row, 1)?.parse::<u64>().ok());
                    if let Some(pages) = pages {
                        let size = sizes.entry(name.clone()).or_default();
                        *size = pages.max(*size);
                    }
                }
            }
        }
        sizes
    }

    /// Small tables in one transaction on each node; if anything fails, each alone.
    async fn count_together(
        &mut self,
        names: &[Name],
    ) -> Vec<(Name, Result<BTreeMap<NodeId, Sums>, Uncounted>)> {
        let mut counted: BTreeMap<Name, BTreeMap<NodeId, Sums>> = BTreeMap::new();
        let this = &*self;
        let mut questions: BTreeMap<NodeId, (String, Vec<Name>)> = BTreeMap::new();
        for node in this.moment.workers.nodes() {
            let Some(mut sql) = this.moment.begin(node) else { continue };
            let mut asked = Vec::new();
            for name in names {
                let Some(question) = this.question(name, node) else { continue };
                sql.push_str(&this.count_sql(name, node, question, ""));
                sql.push_str(&this.file_sql(name, node));
                asked.push(name.clone());
            }
            sql.push_str("COMMIT");
            if !asked.is_empty() {
                questions.insert(node, (sql, asked));
            }
        }
        let answers =
            self.moment.workers.ask(None, |node| Some(questions.get(&node)?.0.clone())).await;
        let mut failed = BTreeSet::new();
        for (node, answer) in answers {
            let asked = &questions[&node].1;
            let Ok(results) = answer else {
                failed.extend(asked.iter().cloned());
                // Out of the failed transaction.
                self.moment.workers.ask(None, |it| (it == node).then(|| "ROLLBACK".into())).await;
                continue;
            };
            for (position, name) in asked.iter().enumerate() {
                let (sums, file) = (results.get(2 + 2 * position), results.get(3 + 2 * position));
                match (sums.and_then(read_sums), file.and_then(|rows| rows.text(0, 0))) {
                    (Some(sums), Some("t")) => {
                        counted.entry(name.clone()).or_default().insert(node, sums);
                    }
                    _ => drop(failed.insert(name.clone())),
                }
            }
        }
        let mut all = Vec::new();
        for name in names {
            let result = match failed.contains(name) {
                true => self.count_alone(name, None, &Progress::silent()).await,
                false => Ok(counted.remove(name).unwrap_or_default()),
            };
            all.push((name.clone(), result));
        }
        all
    }

    /// One table on all nodes together, in portions.
    async fn count_alone(
        &mut self,
        name: &Name,
        pages: Option<u64>,
        progress: &Progress<'_>,
    ) -> Result<BTreeMap<NodeId, Sums>, Uncounted> {
        if self.runs_code(name) {
            return self.count_by_copy(name).await;
        }
        let mut counted: BTreeMap<NodeId, Sums> = BTreeMap::new();
        let known = self.tables.values().filter_map(|tables| tables.get(name)).map(|it| it.pages);
        let pages = pages.or_else(|| known.max()).unwrap_or_default();
        let mut begin = 0;
        loop {
            let end = begin + PORTION_BLOCKS;
            let is_last = pages <= end;
            let portion = match (begin, is_last) {
                (0, true) => String::new(),
                (_, true) => format!("WHERE ctid OPERATOR(pg_catalog.>=) '({begin},0)'"),
                _ => format!(
                    "WHERE ctid OPERATOR(pg_catalog.>=) '({begin},0)' \
                     AND ctid OPERATOR(pg_catalog.<) '({end},0)'"
                ),
            };
            let this = &*self;
            let question = |node| {
                let question = this.question(name, node)?;
                let count = this.count_sql(name, node, question, &portion);
                Some(format!(
                    "{} {count} {} COMMIT",
                    this.moment.begin(node)?,
                    this.file_sql(name, node)
                ))
            };
            let questions: BTreeMap<NodeId, String> = this
                .moment
                .workers
                .nodes()
                .into_iter()
                .filter_map(|node| Some((node, question(node)?)))
                .collect();
            let answers = self.moment.workers.ask(None, |node| questions.get(&node).cloned()).await;
            for (node, answer) in answers {
                let results = match answer {
                    Ok(results) => results,
                    Err(error) => return Err(self.failed(node, error).await),
                };
                let (sums, file) = (results.get(2).and_then(read_sums), results.get(3));
                let (Some(sums), Some("t")) = (sums, file.and_then(|rows| rows.text(0, 0))) else {
                    return Err(Uncounted::Changed("it was rewritten meanwhile".to_owned()));
                };
                let all = counted.entry(node).or_default();
                all.rows += sums.rows;
                all.first = all.first.wrapping_add(sums.first);
                all.second = all.second.wrapping_add(sums.second);
            }
            if is_last {
                return Ok(counted);
            }
            begin = end;
            progress.tell(|| format!("{}: {begin} of {pages} blocks", shown(name)));
        }
    }

    async fn failed(&mut self, node: NodeId, error: NodeError) -> Uncounted {
        let message = format!("{node}: {}", in_full(&error));
        match &error {
            NodeError::Refused(fields) => {
                self.moment.workers.ask(None, |it| (it == node).then(|| "ROLLBACK".into())).await;
                match is_changed(fields) {
                    true => Uncounted::Changed(message),
                    false => Uncounted::Failed(message),
                }
            }
            _ => {
                self.moment.lose(node, in_full(&error));
                Uncounted::Changed(message)
            }
        }
    }

    /// One row: rows, and two sums.
    fn count_sql(&self, name: &Name, node: NodeId, question: Question, portion: &str) -> String {
        let table = &self.tables[&node][name];
        let from = format!("ONLY {} {portion}", sql_name(name));
        match question {
            Question::Copy => {
                let columns = self.common_columns(name);
                format!(
                    "SELECT count(*), pg_catalog.sum(pg_catalog.hashtextextended(r, 0)), \
                     pg_catalog.sum(pg_catalog.hashtextextended(r, 1)) FROM (SELECT \
                     ROW({columns})::pg_catalog.text COLLATE pg_catalog.\"C\" AS r FROM {from} \
                     OFFSET 0) AS rows;"
                )
            }
            Question::Strays => {
                format!(
                    "SELECT count(*), count(*) FILTER (WHERE {}), 0 FROM (SELECT {} AS tutti_bucket \
                     FROM {from} OFFSET 0) AS rows;",
                    self.is_stray(table, node),
                    bucket_sql(table, &self.owners(table).bucketing)
                )
            }
            Question::Any => {
                format!("SELECT count(*), 0, 0 FROM (SELECT FROM {from} LIMIT 1000) AS r;")
            }
        }
    }

    fn owners(&self, table: &Table) -> Owners {
        table.map.and_then(|map| self.maps.get(&map)).cloned().unwrap_or_default()
    }

    fn is_stray(&self, table: &Table, node: NodeId) -> String {
        let owners = self.owners(table);
        let owners: Vec<_> = owners.nodes.iter().map(u16::to_string).collect();
        format!(
            "('{{{}}}'::pg_catalog.int4[])[tutti_bucket::pg_catalog.int4 OPERATOR(pg_catalog.+) 1] \
             IS DISTINCT FROM {}",
            owners.join(","),
            node.0
        )
    }

    /// That the table's file is the one that the snapshot sees, asked after the scan.
    fn file_sql(&self, name: &Name, node: NodeId) -> String {
        let Table { oid, file, .. } = self.tables[&node][name];
        format!(
            "SELECT pg_catalog.pg_relation_filenode({oid}) OPERATOR(pg_catalog.=) {file}::pg_catalog.oid;"
        )
    }

    /// Those of the reference; what other nodes lack of them is said elsewhere, and an error here.
    fn common_columns(&self, name: &Name) -> String {
        let table = self.tables.get(&self.reference).and_then(|tables| tables.get(name));
        table.and_then(|table| table.columns.clone()).unwrap_or_default()
    }

    async fn judge(
        &mut self,
        name: &Name,
        counted: Result<BTreeMap<NodeId, Sums>, Uncounted>,
        report: &mut Report,
        again: &mut BTreeMap<Name, String>,
    ) -> Result<(), GatewayError> {
        let counted = match counted {
            Ok(counted) => counted,
            Err(Uncounted::Changed(why)) => {
                again.insert(name.clone(), why);
                return Ok(());
            }
            Err(Uncounted::Failed(why)) => {
                report.unchecked(format!("table {}", shown(name)), why);
                return Ok(());
            }
        };
        report.rows += counted.values().map(|sums| sums.rows.unsigned_abs() as u64).sum::<u64>();
        let expected = counted.get(&self.reference).copied();
        for (node, sums) in counted {
            match (self.question(name, node), expected) {
                (Some(Question::Copy), Some(expected))
                    if sums != expected && self.may_be_late(name, node, sums, expected) =>
                {
                    again.insert(name.clone(), IS_WRITTEN.to_owned());
                }
                (Some(Question::Copy), Some(expected)) if sums != expected => {
                    self.tell_difference(name, node, sums, expected, report, again).await;
                }
                (Some(Question::Strays), _) if sums.first != 0 => {
                    self.tell_strays(name, node, sums.first, report, again).await?;
                }
                (Some(Question::Any), _) if sums.rows != 0 => {
                    let many = if sums.rows >= 1000 { " or more" } else { "" };
                    let message =
                        format!("{}{many} rows here of a table that is on node 1 alone", sums.rows);
                    report.find(Finding::new(Kind::HomeRows, Some(node), shown(name), message));
                }
                _ => (),
            }
        }
        Ok(())
    }

    async fn ask_at_moment(&mut self, node: NodeId, sql: &str) -> Result<Rows, NodeError> {
        let lost = || NodeError::not_connected(node);
        let sql = format!("{} {sql} COMMIT", self.moment.begin(node).ok_or_else(lost)?);
        let mut answers =
            self.moment.workers.ask(None, |it| (it == node).then(|| sql.clone())).await;
        let mut results = answers.remove(&node).ok_or_else(lost)??;
        results.pop();
        Ok(results.pop().unwrap_or_default())
    }
}

/// What others do to a table may make a question about it fail.
fn is_changed(fields: &ErrorFields) -> bool {
    // Dropped, a column dropped or of another type, locked, wanted by others, a cache look-up that found
    // nothing.
    [
        "42P01",
        "42703",
        "42883",
        "42804",
        sqlstate::LOCK_NOT_AVAILABLE,
        sqlstate::QUERY_CANCELED,
        "XX000",
        "3F000",
        "0A000",
    ]
    .contains(&fields.sqlstate())
}

fn bucket_sql(table: &Table, bucketing: &Bucketing) -> String {
    let names: Vec<_> = table.key.iter().map(|key| quote_identifier(&key.name)).collect();
    let types = table.key.iter().map(|key| key.key_type).collect::<Option<Vec<_>>>();
    match (types.as_deref(), &names[..]) {
        (Some([key_type]), [name]) => bucketing.sql_bucket(*key_type, name),
        (Some(types @ [_, _, ..]), names) => {
            sql_bucket_of_several(types.iter().copied().zip(names.iter().map(String::as_str)))
        }
        _ => "NULL".to_owned(),
    }
}

/// Of types, type modifiers and names in hexadecimal digits; `None`: it is not readable.
fn read_key(text: &str) -> Option<Vec<KeyColumn>> {
    let column = |text: &str| {
        let mut words = text.split(' ');
        let (type_oid, modifier, name) = (words.next()?, words.next()?, words.next()?);
        Some(KeyColumn {
            name: text_of_hex(name)?,
            key_type: KeyType::from_oid(type_oid.parse().ok()?),
            modifier: modifier.parse().ok()?,
        })
    };
    text.split(',').map(column).collect()
}

fn read_sums(rows: &Rows) -> Option<Sums> {
    let number = |column| rows.text(0, column).map_or(Ok(0), str::parse);
    Some(Sums { rows: number(0).ok()?, first: number(1).ok()?, second: number(2).ok()? })
}

fn read_tables(answer: &Answer<'_>) -> Result<Tables, GatewayError> {
    let mut tables = Tables::new();
    for row in 0..answer.len() {
        let number = |column| answer.optional(row, column).map(str::parse::<u32>);
        let optional = |column| number(column).transpose().map_err(|_| answer.unreadable());
        let text = |column| answer.optional(row, column).map(str::to_owned);
        let unique = text(12).unwrap_or_default();
        let table = Table {
            oid: answer.number(row, 0)?,
            placement: answer.text(row, 3)?.to_owned(),
            has_rows: answer.boolean(row, 4)?,
            file: answer.number(row, 5)?,
            key: match answer.optional(row, 6) {
                Some(key) => read_key(key).ok_or_else(|| answer.unreadable())?,
                None => Vec::new(),
            },
            key_len: answer.number(row, 7)?,
            map: optional(8)?,
            columns: text(9),
            primary_key: text(10),
            runs_code: answer.boolean(row, 11)?,
            unique: unique.split(';').filter(|it| !it.is_empty()).map(str::to_owned).collect(),
            pages: answer.number(row, 13)?,
        };
        tables.insert((answer.text(row, 1)?.to_owned(), answer.text(row, 2)?.to_owned()), table);
    }
    Ok(tables)
}

fn read_maps(answer: &Answer<'_>) -> Result<BTreeMap<u32, Owners>, GatewayError> {
    let mut maps = BTreeMap::new();
    for row in 0..answer.len() {
        let nodes: Result<Vec<u16>, _> = answer.text(row, 1)?.split(',').map(str::parse).collect();
        let bucketing = read_bucketing(answer.text(row, 2)?, answer.optional(row, 3));
        let bucketing = bucketing.ok_or_else(|| answer.unreadable())?;
        let nodes = nodes.map_err(|_| answer.unreadable())?;
        maps.insert(answer.number(row, 0)?, Owners { nodes, bucketing });
    }
    Ok(maps)
}
