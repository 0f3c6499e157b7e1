//! The page about runs of any workloads.
//!
//! Owns: which runs belong together, and their tables and plots. Never: measures.
//! Start reading at [`page`].

use std::collections::BTreeMap;

use anyhow::ensure;

use crate::load::Figures;
use crate::record::Record;
use crate::report::plot::{Axis, Chart, Marks, Series};
use crate::report::{Block, Page, Table, figure, median};

/// What all clients of a run do together.
pub(super) const ALL: &str = "all";
/// The kind of transaction that TPC-C's figure counts.
const NEW_ORDER: &str = "new-order";

/// Runs that differ in clients and repetition alone.
struct Group<'a> {
    name: String,
    records: Vec<&'a Record>,
}

impl Group<'_> {
    /// The numbers of clients, few first.
    fn clients(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.records.iter().map(|record| clients(record)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The repetitions with so many clients.
    fn with(&self, count: u64) -> impl Iterator<Item = &Record> {
        self.records.iter().copied().filter(move |record| clients(record) == count)
    }

    /// The kinds of transactions, all together first.
    fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<String> =
            self.records.iter().flat_map(|record| record.clients.keys().cloned()).collect();
        kinds.sort();
        kinds.dedup();
        kinds.sort_by_key(|kind| kind != ALL);
        // One kind alone is all of them.
        kinds.truncate(if kinds.len() == 2 { 1 } else { kinds.len() });
        kinds
    }

    fn median_of(&self, count: u64, kind: &str, what: impl Fn(&Figures) -> f64) -> f64 {
        median(self.with(count).map(|record| what(&record.of(kind))).collect())
    }

    /// A point for each number of clients.
    fn line(&self, name: &str, kind: &str, what: impl Fn(&Figures) -> f64) -> Series {
        let point = |count: u64| (count as f64, self.median_of(count, kind, &what));
        let points = self.clients().into_iter().map(point).collect();
        Series { name: name.to_owned(), points, is_dashed: false }
    }
}

fn clients(record: &Record) -> u64 {
    record.number("clients") as u64
}

fn groups(records: &[Record]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for record in records {
        let words = ["system", "distances", "workload", "isolation", "requests", "pace", "faults"];
        let words = words.map(|parameter| record.text(parameter));
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let name = words.join(", ");
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.records.push(record),
            None => groups.push(Group { name, records: vec![record] }),
        }
    }
    groups
}

/// What the runs have shown.
pub(crate) fn page(records: &[Record]) -> anyhow::Result<Page> {
    let groups = groups(records);
    ensure!(!groups.is_empty(), "no run says what it measured");
    let title = records.first().map(|record| record.text("title")).unwrap_or_default();
    let mut blocks = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        // Figures are referred to by a letter where there are several: names are long.
        blocks.push(Block::Heading(match groups.len() {
            1 => group.name.clone(),
            _ => format!("{}: {}", letter(number), group.name),
        }));
        blocks.push(throughput(group));
        blocks.extend(tpm_c(group));
        blocks.extend(refusals(group));
        blocks.push(checks(group));
    }
    blocks.extend(plots(&groups));
    Ok(Page {
        title: title.to_owned(),
        lead: "Each client sends its next transaction when it has the answer to the last one, unless a rate is \
               given; then latencies count from when a transaction was due, so that waiting behind a slow one \
               is part of them. What was refused is not repeated. After each run what is there was compared \
               with what clients were told."
            .to_owned(),
        blocks,
        files: Vec::new(),
    })
}

fn letter(number: usize) -> String {
    char::from_u32(u32::from(b'A') + number as u32).map_or_else(|| number.to_string(), String::from)
}

fn throughput(group: &Group<'_>) -> Block {
    let mut lines = Vec::new();
    for count in group.clients() {
        for kind in group.kinds() {
            let of = |what: fn(&Figures) -> f64| figure(group.median_of(count, &kind, what));
            let here = || group.with(count).map(|record| record.of(&kind));
            let refused: u64 = here().flat_map(|figures| figures.failed.into_values()).sum();
            let done: u64 = here().map(|figures| figures.count).sum();
            lines.push(vec![
                count.to_string(),
                kind.clone(),
                of(|it| it.per_s),
                of(|it| it.mean_ms),
                of(|it| it.p50_ms),
                of(|it| it.p95_ms),
                of(|it| it.p99_ms),
                of(|it| it.max_ms),
                refused.to_string(),
                share(refused, done + refused),
            ]);
        }
    }
    Table::block(
        "Done per second, and milliseconds until the answer: medians of the repetitions. Refused: of all \
         repetitions together, and their share of what was asked.",
        &["clients", "kind", "per s", "mean", "p50", "p95", "p99", "max", "refused", "share"],
        lines,
    )
}

fn share(part: u64, of: u64) -> String {
    format!("{:.2} %", 100.0 * part as f64 / of.max(1) as f64)
}

fn tpm_c(group: &Group<'_>) -> Option<Block> {
    let has_new_orders = group.records.iter().any(|it| it.clients.contains_key(NEW_ORDER));
    if !has_new_orders {
        return None;
    }
    let minute = |it: &Figures| it.per_s * 60.0;
    let line =
        |count: u64| vec![count.to_string(), figure(group.median_of(count, NEW_ORDER, minute))];
    Some(Table::block(
        "New-Order transactions per minute, as TPC-C counts its throughput (tpmC). Not a TPC result, and not to be \
         compared with one.",
        &["clients", "New-Orders per minute"],
        group.clients().into_iter().map(line).collect(),
    ))
}

/// Refusals by SQLSTATE, if there are any.
fn refusals(group: &Group<'_>) -> Option<Block> {
    let mut counts: BTreeMap<(u64, String, String), u64> = BTreeMap::new();
    for record in &group.records {
        for kind in group.kinds() {
            // All together only where they are not told apart.
            if kind == ALL && 1 < group.kinds().len() {
                continue;
            }
            for (sqlstate, count) in record.of(&kind).failed {
                *counts.entry((clients(record), kind.clone(), sqlstate)).or_default() += count;
            }
        }
    }
    if counts.is_empty() {
        return None;
    }
    let line = |((clients, kind, sqlstate), count): ((u64, String, String), u64)| {
        vec![clients.to_string(), kind, sqlstate, count.to_string()]
    };
    Some(Table::block(
        "Refusals by SQLSTATE, of all repetitions; “lost” is a session that ended",
        &["clients", "kind", "SQLSTATE", "count"],
        counts.into_iter().map(line).collect(),
    ))
}

fn checks(group: &Group<'_>) -> Block {
    let line = |record: &&Record| {
        let of = |name: &str| figure_of(record.figures.get(name));
        vec![
            record.number("clients").to_string(),
            record.number("repetition").to_string(),
            of("told_acknowledged"),
            of("told_refused"),
            of("told_nothing"),
            of("found_acknowledged"),
            of("found_unknown_done"),
            of("found_unknown_absent"),
        ]
    };
    Table::block(
        "Checks, each over all transactions since the tables were made, those of warming up too. Found: changes \
         that were acknowledged and are there, once each; of those whose fate clients were not told, how many \
         are there and how many are not. Reads leave nothing to be found. A check that does not hold ends the \
         series.",
        &[
            "clients",
            "repetition",
            "acknowledged",
            "refused",
            "not told",
            "found",
            "unknown, there",
            "unknown, absent",
        ],
        group.records.iter().map(line).collect(),
    )
}

/// Counts are shown whole.
fn figure_of(count: Option<&f64>) -> String {
    count.map_or_else(|| "-".to_owned(), |count| format!("{count:.0}"))
}

fn plots(groups: &[Group<'_>]) -> Vec<Block> {
    let named = |number: usize, what: &str| match (groups.len(), what) {
        (1, "") => "done".to_owned(),
        (1, what) => what.to_owned(),
        (_, "") => letter(number),
        (_, what) => format!("{}, {what}", letter(number)),
    };
    let (mut rates, mut latencies, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
    for (number, group) in groups.iter().enumerate() {
        rates.push(group.line(&named(number, ""), ALL, |it| it.per_s));
        latencies.push(group.line(&named(number, "p50"), ALL, |it| it.p50_ms));
        let p99 = group.line(&named(number, "p99"), ALL, |it| it.p99_ms);
        latencies.push(Series { is_dashed: true, ..p99 });
        for count in group.clients() {
            let Some(first) = group.with(count).next() else { continue };
            let points = first.of(ALL).per_second.into_iter().enumerate();
            seconds.push(Series {
                name: named(number, &format!("{count} clients")),
                points: points.map(|(second, done)| (second as f64, done as f64)).collect(),
                is_dashed: false,
            });
        }
    }
    let chart = |name: &str, caption: &str, x: &str, y: Axis, series| {
        Block::Plot(Chart {
            name: name.to_owned(),
            caption: caption.to_owned(),
            x: Axis::of(x),
            y,
            series,
            marks: Marks::Lines,
        })
    };
    vec![
        chart(
            "throughput-by-clients",
            "Transactions per second by clients; medians of the repetitions",
            "clients",
            Axis::of("done per second"),
            rates,
        ),
        chart(
            "latency-by-clients",
            "Time until the answer by clients; medians of the repetitions",
            "clients",
            Axis::of("ms").logarithmic(),
            latencies,
        ),
        chart(
            "throughput-by-second",
            "Transactions done in each second of the first repetition",
            "second",
            Axis::of("done"),
            seconds,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::record::Machine;

    fn record(clients: u64, repetition: u64, per_s: f64) -> Record {
        let figures = Figures { per_s, count: 10, per_second: vec![3, 7], ..Figures::default() };
        let refused = BTreeMap::from([("40001".to_owned(), 2)]);
        let update = Figures { failed: refused, ..figures.clone() };
        let kinds = [(ALL, update.clone()), ("read", figures), ("update", update)];
        Record {
            study: "run".to_owned(),
            run: format!("{clients} #{repetition}"),
            parameters: BTreeMap::from([
                ("title".to_owned(), Value::from("A title")),
                ("system".to_owned(), Value::from("PostgreSQL")),
                ("clients".to_owned(), Value::from(clients)),
                ("repetition".to_owned(), Value::from(repetition)),
            ]),
            lasted_s: 2.0,
            clients: kinds.map(|(kind, figures)| (kind.to_owned(), figures)).into(),
            figures: BTreeMap::from([("found_acknowledged".to_owned(), 5.0)]),
            checked: "all".to_owned(),
            made_on: Machine::this("PostgreSQL 15", "tutti-lab run"),
        }
    }

    #[test]
    fn repetitions_are_a_line_and_kinds_are_told_apart() {
        let records = [record(8, 1, 10.0), record(8, 2, 30.0), record(32, 1, 50.0)];
        let page = page(&records).unwrap();
        assert_eq!(page.title, "A title");
        let tables: Vec<_> = page
            .blocks
            .iter()
            .filter_map(|block| match block {
                Block::Table(table) => Some(table),
                _ => None,
            })
            .collect();
        assert_eq!(tables[0].lines.len(), 6);
        assert_eq!(tables[0].lines[0][..3], ["8", "all", "20.0"]);
        // Of updates alone: not a second time of all.
        assert_eq!(tables[1].lines[0], ["8", "update", "40001", "4"]);
        assert_eq!(tables[2].lines.len(), 3);
        assert_eq!(tables[2].lines[0][5], "5");
    }
}
