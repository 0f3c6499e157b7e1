//! Entries of unique indexes and foreign keys that hold over all nodes: as many as rows have, of the same values, each on
//! its node.
//!
//! Owns: what is counted of rows and of entries, and what the answers mean.
//! Never: runs code of users': rows of a table for which planning a query might are not compared with their entries.
//! Start reading at [`check`]. Where rows and entries are: docs/decisions/2026-11-27-global-unique.md.
//!
//! What others rewrite (TRUNCATE) shows nothing to older snapshots: what differs counts if it does at several moments.

use std::collections::BTreeMap;

use tutti_configuration::Config;
use tutti_link::connection::Rows;
use tutti_sql::catalog::NodeId;
use tutti_sql::hash::KeyType;

use super::moment::Moment;
use super::report::{Finding, Kind, Report};
use crate::catalog::Answer;
use crate::error::{GatewayError, in_full};

/// At how many moments must differ what is reported.
const MOMENTS: u32 = 3;

/// Of what there are entries: the table of these, what it is, its table, columns of an entry, columns that no entry has NULL
/// in, which of them says where it is, and the type of that; whether planning a query of the table may run code of users';
/// and the bucket map.
const KEPT: &str = "SELECT pg_catalog.concat(u.kind, '_', u.number), CASE u.kind
        WHEN 'unique' THEN pg_catalog.concat('index ', (SELECT x.relname FROM pg_catalog.pg_class x WHERE x.oid = u.object))
        ELSE pg_catalog.concat('foreign key ', (SELECT x.conname FROM pg_catalog.pg_constraint x WHERE x.oid = u.object)) END,
    t.oid::pg_catalog.regclass,
    (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(c), ', ' ORDER BY p)
        FROM pg_catalog.unnest(u.entry_columns) WITH ORDINALITY AS k (c, p)),
    (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(c), ', ' ORDER BY p)
        FROM pg_catalog.unnest(u.columns) WITH ORDINALITY AS k (c, p)),
    pg_catalog.quote_ident(u.columns[u.placed_by]), a.atttypid,
    NOT (SELECT pg_catalog.bool_and(r.rolsuper) FROM pg_catalog.pg_roles r
        WHERE r.oid IN (t.relowner, CASE WHEN n.nspowner = 'pg_database_owner'::pg_catalog.regrole
            THEN (SELECT d.datdba FROM pg_catalog.pg_database d
                WHERE d.datname = pg_catalog.current_database()) ELSE n.nspowner END))
    OR EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = t.oid
        AND (i.indexprs IS NOT NULL OR i.indpred IS NOT NULL))
    OR EXISTS (SELECT FROM pg_catalog.pg_statistic_ext s WHERE s.stxrelid = t.oid AND s.stxexprs IS NOT NULL),
    coalesce((SELECT r.map FROM tutti.reference r WHERE u.kind = 'reference' AND r.number = u.number), p.map)
FROM tutti.kept u JOIN pg_catalog.pg_class t ON t.oid = u.relation
JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace JOIN tutti.placement p ON p.relation = t.oid
JOIN pg_catalog.pg_attribute a ON a.attrelid = t.oid AND a.attname = u.columns[u.placed_by]
ORDER BY u.kind, u.number;";

/// What entries are kept of, as node 1 describes it.
struct Kept {
    entries: String,
    name: String,
    table: String,
    columns: String,
    not_null: String,
    first: String,
    key_type: Option<KeyType>,
    runs_code: bool,
    map: u32,
}

/// What there is of it on all nodes.
#[derive(Default)]
struct Counted {
    rows: Sums,
    entries: Sums,
    /// By node, the entries that belong to another.
    strays: BTreeMap<NodeId, u64>,
    /// Why something was not counted.
    failed: Option<String>,
}

/// How many, and the sum of the hashes of their texts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Sums(i128, i128);

/// Compares entries with rows.
pub(super) async fn check(
    config: &Config,
    moment: &mut Moment,
    report: &mut Report,
) -> Result<(), GatewayError> {
    for turn in 1..=MOMENTS {
        if 1 < turn {
            moment.retake(config).await?;
        }
        let Some(all) = all(moment).await? else { return Ok(()) };
        let mut findings = Vec::new();
        let mut failed = Vec::new();
        for kept in &all {
            let counted = count(moment, kept).await;
            findings.extend(judge(kept, &counted));
            failed.extend(counted.failed.map(|why| (kept.object(), why)));
        }
        let is_last = turn == MOMENTS;
        if findings.is_empty() && failed.is_empty() || is_last {
            findings.into_iter().for_each(|finding| report.find(finding));
            failed.into_iter().for_each(|(what, why)| report.unchecked(what, why));
            for kept in all.iter().filter(|kept| kept.runs_code) {
                report.notes.push(format!(
                    "the entries of {} were not compared with its rows: a query of the table may run code of its owner's",
                    kept.object()
                ));
            }
            return Ok(());
        }
    }
    Ok(())
}

/// `None`: there are none, or no node says.
async fn all(moment: &mut Moment) -> Result<Option<Vec<Kept>>, GatewayError> {
    let Some(node) = moment.workers.nodes().first().copied() else { return Ok(None) };
    let Some(begin) = moment.begin(node) else { return Ok(None) };
    let sql = format!("{begin} {KEPT} COMMIT");
    let mut answers = moment.workers.ask(None, |it| (it == node).then(|| sql.clone())).await;
    let results = match answers.remove(&node) {
        Some(Ok(results)) => results,
        Some(Err(error)) => {
            moment.lose(node, in_full(&error));
            return Ok(None);
        }
        None => return Ok(None),
    };
    let Some(rows) = results.get(2) else { return Ok(None) };
    let answer = Answer { node, what: "what entries are kept of", rows };
    let read = |row| -> Result<Kept, GatewayError> {
        let text = |column| answer.text(row, column).map(str::to_owned);
        Ok(Kept {
            entries: text(0)?,
            name: text(1)?,
            table: text(2)?,
            columns: text(3)?,
            not_null: text(4)?,
            first: text(5)?,
            key_type: KeyType::from_oid(answer.number(row, 6)?),
            runs_code: answer.boolean(row, 7)?,
            map: answer.number(row, 8)?,
        })
    };
    let all: Vec<_> = (0..answer.len()).map(read).collect::<Result<_, _>>()?;
    Ok((!all.is_empty()).then_some(all))
}

async fn count(moment: &mut Moment, kept: &Kept) -> Counted {
    let mut questions = BTreeMap::new();
    for node in moment.workers.nodes() {
        if let Some(begin) = moment.begin(node) {
            questions.insert(node, format!("{begin} {} COMMIT", kept.count_sql(node)));
        }
    }
    let answers = moment.workers.ask(None, |node| questions.get(&node).cloned()).await;
    let mut counted = Counted::default();
    for (node, answer) in answers {
        match answer {
            Ok(results) => {
                let (Some(rows), Some(entries), Some(strays)) =
                    (results.get(2), results.get(3), results.get(4))
                else {
                    counted.failed = Some(format!("{node} has answered something else"));
                    continue;
                };
                counted.rows.add(rows);
                counted.entries.add(entries);
                let count = strays.text(0, 0).and_then(|count| count.parse().ok()).unwrap_or(0);
                counted.strays.insert(node, count);
            }
            Err(error) => {
                counted.failed = Some(format!("{node}: {}", in_full(&error)));
                moment.workers.ask(None, |it| (it == node).then(|| "ROLLBACK".into())).await;
            }
        }
    }
    if !moment.away.is_empty() {
        counted.failed.get_or_insert_with(|| "not all nodes are there".to_owned());
    }
    counted
}

fn judge(kept: &Kept, counted: &Counted) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (node, count) in counted.strays.iter().filter(|(_, count)| 0 < **count) {
        let message = format!("{count} entries here belong to other nodes by their values");
        findings.push(Finding::new(Kind::Entries, Some(*node), kept.object(), message));
    }
    if counted.failed.is_none() && !kept.runs_code && counted.rows != counted.entries {
        let message = match (counted.rows.0, counted.entries.0) {
            (rows, entries) if rows == entries => {
                format!("its {entries} entries are not those of the rows that there are")
            }
            (rows, entries) => format!("it has {entries} entries, and {rows} rows should have one"),
        };
        findings.push(Finding::new(Kind::Entries, None, kept.object(), message));
    }
    findings
}

impl Kept {
    fn object(&self) -> String {
        format!("{} of {}", self.name, self.table)
    }

    /// Three rows: the sums of rows, of entries, and how many entries belong elsewhere.
    fn count_sql(&self, node: NodeId) -> String {
        let Self { entries, table, columns, not_null, first, map, .. } = self;
        let sums = |from: &str| {
            format!(
                "SELECT count(*), pg_catalog.sum(pg_catalog.hashtextextended(r, 0)) FROM (SELECT \
                 ROW({columns})::pg_catalog.text COLLATE pg_catalog.\"C\" AS r FROM {from} OFFSET 0) AS rows;"
            )
        };
        let entries = format!("tutti.{entries}");
        let of_rows = match self.runs_code {
            true => "SELECT 0, 0;".to_owned(),
            false => sums(&format!(
                "ONLY {table} WHERE pg_catalog.num_nulls({not_null}) OPERATOR(pg_catalog.=) 0"
            )),
        };
        let bucket =
            self.key_type.map_or("0".to_owned(), |key_type| key_type.sql_hash_bucket(first));
        format!(
            "{of_rows} {} SELECT count(*) FROM {entries} AS e JOIN tutti.bucket AS b \
             ON b.map OPERATOR(pg_catalog.=) {map} AND b.bucket OPERATOR(pg_catalog.=) {bucket} \
             WHERE b.node OPERATOR(pg_catalog.<>) {};",
            sums(&entries),
            node.0
        )
    }
}

impl Sums {
    fn add(&mut self, rows: &Rows) {
        let number = |column| rows.text(0, column).and_then(|text| text.parse().ok()).unwrap_or(0);
        self.0 += number(0);
        self.1 = self.1.wrapping_add(number(1));
    }
}
