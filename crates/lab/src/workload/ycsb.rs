//! The six core workloads of the Yahoo! Cloud Serving Benchmark, A to F.
//!
//! Owns: the table of records, the mixes, which keys are asked for, and what must hold of the records. Never:
//! chooses clients or their number.
//! What a transaction does follows from its number alone, so that a check knows what each was meant to do.
//! Source: Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010, table 2; what differs is in
//! docs/lab/workloads.md.
//! Start reading at [`Ycsb`], then [`Operation`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::dialect::Dialect;
use super::session::{Failure, Session};
use super::transfers::integers;
use super::zipf::{Zipf, scattered};
use super::{Asked, Believed, Found, Outcome, Workload};

const FIELDS: u32 = 10;
const FIELD_CHARS: u32 = 100;
/// YCSB's own constant of Zipf's distribution.
const SKEW: f64 = 0.99;
const SCAN_ROWS_MAX: i64 = 100;
/// Records that one statement of the setup inserts.
const LOADED_AT_ONCE: i64 = 20_000;

/// Which of the six.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mix {
    /// Update heavy: 50 % reads, 50 % updates.
    A,
    /// Read mostly: 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// Read latest: 95 % reads, most of them of what was inserted last, 5 % inserts.
    D,
    /// Short ranges: 95 % scans, 5 % inserts.
    E,
    /// 50 % reads, 50 % of a record read, changed and written.
    F,
}

/// Records that are read and written by key.
#[derive(Clone, Debug)]
pub struct Ycsb {
    mix: Mix,
    records: i64,
    dialect: Dialect,
    zipf: Zipf,
    /// Keys whose insert was acknowledged, in that order: those that may be read as the latest.
    inserted: Arc<Mutex<Vec<i64>>>,
    read: String,
    scan: String,
    insert: String,
}

/// What a transaction is meant to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Operation {
    Read {
        key: i64,
    },
    /// So many inserts before the last.
    ReadLatest {
        back: usize,
    },
    Update {
        key: i64,
        field: u32,
    },
    Insert {
        key: i64,
    },
    Scan {
        from: i64,
        rows: i64,
    },
    ReadModifyWrite {
        key: i64,
        field: u32,
    },
}

impl Operation {
    fn kind(self) -> &'static str {
        match self {
            Self::Read { .. } | Self::ReadLatest { .. } => "read",
            Self::Update { .. } => "update",
            Self::Insert { .. } => "insert",
            Self::Scan { .. } => "scan",
            Self::ReadModifyWrite { .. } => "read-modify-write",
        }
    }

    /// The record that it changes once, if it changes one that was there.
    fn changes(self) -> Option<i64> {
        match self {
            Self::Update { key, .. } | Self::ReadModifyWrite { key, .. } => Some(key),
            _ => None,
        }
    }
}

impl Ycsb {
    /// Over so many records, two at least.
    pub fn new(mix: Mix, records: i64, dialect: Dialect) -> Self {
        let fields = (0..FIELDS).map(|_| payload("$2")).collect::<Vec<_>>().join(", ");
        Self {
            mix,
            records,
            dialect,
            zipf: Zipf::new(records.unsigned_abs(), SKEW),
            inserted: Arc::default(),
            read: "SELECT * FROM usertable WHERE ycsb_key = $1".to_owned(),
            scan: "SELECT * FROM usertable WHERE ycsb_key >= $1 ORDER BY ycsb_key LIMIT $2"
                .to_owned(),
            insert: format!("INSERT INTO usertable VALUES ($1, 0, 0, {fields})"),
        }
    }

    /// What the transaction of this number does.
    fn operation(&self, number: i64) -> Operation {
        let mut random = StdRng::seed_from_u64(number.unsigned_abs());
        let percent = random.random_range(0..100);
        let rank = self.zipf.rank(random.random());
        let records = self.records.unsigned_abs();
        let key = i64::try_from(scattered(rank, records)).expect("less than the records");
        let field = random.random_range(0..FIELDS);
        let inserts = Operation::Insert { key: self.records + number };
        match (self.mix, percent) {
            (Mix::A, 50..) => Operation::Update { key, field },
            (Mix::B, 95..) => Operation::Update { key, field },
            (Mix::F, 50..) => Operation::ReadModifyWrite { key, field },
            (Mix::D | Mix::E, 95..) => inserts,
            (Mix::D, _) => Operation::ReadLatest { back: usize::try_from(rank).unwrap_or(0) },
            (Mix::E, _) => {
                Operation::Scan { from: key, rows: random.random_range(1..=SCAN_ROWS_MAX) }
            }
            (Mix::A | Mix::B | Mix::C | Mix::F, _) => Operation::Read { key },
        }
    }

    /// The key of a record that was there before so many others.
    fn latest(&self, back: usize) -> i64 {
        let inserted = self.inserted.lock().unwrap_or_else(PoisonError::into_inner);
        match inserted.len().checked_sub(back + 1) {
            Some(place) => inserted[place],
            None => {
                let before = i64::try_from(back - inserted.len()).unwrap_or(self.records);
                (self.records - 1 - before).max(0)
            }
        }
    }

    /// Runs it. Errors: a record is not one row.
    async fn run<S: Session>(
        &self,
        session: &mut S,
        number: i64,
        operation: Operation,
    ) -> anyhow::Result<Outcome> {
        let begun = Instant::now();
        let (answer, rows_meant) = match operation {
            Operation::Read { key } => (session.execute(&self.read, &[key]).await, 1..=1),
            Operation::ReadLatest { back } => {
                (session.execute(&self.read, &[self.latest(back)]).await, 1..=1)
            }
            Operation::Update { key, field } => {
                (session.execute(&update(field), &[number, key]).await, 1..=1)
            }
            Operation::Insert { key } => {
                let answer = session.execute(&self.insert, &[key, number]).await;
                if answer.is_ok() {
                    self.inserted.lock().unwrap_or_else(PoisonError::into_inner).push(key);
                }
                (answer, 1..=1)
            }
            Operation::Scan { from, rows } => {
                (session.execute(&self.scan, &[from, rows]).await, 1..=rows.unsigned_abs())
            }
            Operation::ReadModifyWrite { key, field } => {
                if let Err(failure) = read_modify(session, number, key, field).await? {
                    return Ok(Outcome::not_asked(failure));
                }
                let begun = Instant::now();
                let answer = session.query("COMMIT").await.map(|_| ());
                return Ok(Outcome::decided(answer, begun.elapsed()));
            }
        };
        if let Ok(rows) = answer {
            ensure!(rows_meant.contains(&rows), "{operation:?}, number {number}: {rows} rows");
        }
        Ok(Outcome::decided(answer.map(|_| ()), begun.elapsed()))
    }

    /// The records as they are: version and last writer, by key.
    async fn read_records<S: Session>(
        &self,
        parts: &mut [S],
    ) -> anyhow::Result<BTreeMap<i64, (i64, i64)>> {
        let mut records = BTreeMap::new();
        for part in parts {
            for row in integers(part, "SELECT ycsb_key, version, writer FROM usertable").await? {
                let is_new = records.insert(row[0], (row[1], row[2])).is_none();
                ensure!(is_new, "record {} is there twice", row[0]);
            }
        }
        Ok(records)
    }

    /// Whether each record was changed as often as clients believe, and last by one who was to change it.
    fn check_versions(
        &self,
        records: &BTreeMap<i64, (i64, i64)>,
        asked: &Asked,
    ) -> anyhow::Result<Found> {
        let mut changes: BTreeMap<i64, (usize, usize)> = BTreeMap::new();
        for (number, believed) in asked {
            let Some(key) = self.operation(*number).changes() else { continue };
            let (acknowledged, unknown) = changes.entry(key).or_default();
            match believed {
                Believed::Acknowledged => *acknowledged += 1,
                Believed::Unknown(_) => *unknown += 1,
                Believed::Refused => (),
            }
        }
        let mut found = Found::default();
        for (key, (version, writer)) in records {
            let (acknowledged, unknown) = changes.get(key).copied().unwrap_or_default();
            let version = usize::try_from(*version).context("a negative version")?;
            ensure!(
                acknowledged <= version,
                "record {key}: {acknowledged} changes were acknowledged, {version} are there"
            );
            ensure!(
                version <= acknowledged + unknown,
                "record {key}: {version} changes are there, {acknowledged} were acknowledged and of \
                 {unknown} it is not known"
            );
            if 0 < version {
                let is_its = self.operation(*writer).changes() == Some(*key);
                let is_done = asked.get(writer).is_some_and(|it| *it != Believed::Refused);
                ensure!(
                    is_its && is_done,
                    "record {key} was changed last by {writer}, which did not"
                );
            }
            found.acknowledged += acknowledged;
            found.unknown_done += version - acknowledged;
            found.unknown_absent += acknowledged + unknown - version;
        }
        Ok(found)
    }
}

impl Workload for Ycsb {
    async fn setup<S: Session>(&self, session: &mut S) -> anyhow::Result<()> {
        let fields = (0..FIELDS).map(|field| format!("field{field} text NOT NULL"));
        let columns = format!(
            "ycsb_key bigint PRIMARY KEY, version bigint NOT NULL, writer bigint NOT NULL, {}",
            fields.collect::<Vec<_>>().join(", ")
        );
        for statement in self.dialect.by_hash("usertable", &columns, "ycsb_key") {
            session.query(&statement).await.context(statement)?;
        }
        let fields = (0..FIELDS).map(|_| payload("n")).collect::<Vec<_>>().join(", ");
        let mut from = 0;
        while from < self.records {
            let to = (from + LOADED_AT_ONCE).min(self.records) - 1;
            let statement = format!(
                "INSERT INTO usertable SELECT n, 0, 0, {fields} FROM generate_series({from}, {to}) n"
            );
            session.query(&statement).await.context(statement)?;
            from = to + 1;
        }
        Ok(())
    }

    async fn transaction<S: Session>(
        &self,
        session: &mut S,
        number: i64,
        _: &mut StdRng,
    ) -> anyhow::Result<Outcome> {
        let operation = self.operation(number);
        Ok(self.run(session, number, operation).await?.of_kind(operation.kind()))
    }

    async fn check<S: Session>(
        &self,
        parts: &mut [S],
        whole: Option<&mut S>,
        asked: &Asked,
    ) -> anyhow::Result<Found> {
        let records = self.read_records(parts).await?;
        let loaded = records.range(..self.records).count() as i64;
        ensure!(loaded == self.records, "{loaded} of {} loaded records are there", self.records);
        if let Some(gateway) = whole {
            let sql = "SELECT count(*), sum(version)::bigint FROM usertable";
            let seen = integers(gateway, sql).await?;
            let versions: i64 = records.values().map(|(version, _)| version).sum();
            let there = [records.len() as i64, versions];
            ensure!(seen[0] == there, "the gateway sees {:?}, there is {there:?}", seen[0]);
        }
        let is_insert = |number: i64| matches!(self.operation(number), Operation::Insert { .. });
        let inserts: Asked = asked
            .iter()
            .filter(|(number, _)| is_insert(**number))
            .map(|(number, believed)| (*number, believed.clone()))
            .collect();
        let done: BTreeSet<i64> =
            records.range(self.records..).map(|(key, _)| key - self.records).collect();
        Ok(Found::compare("insert", &inserts, &done)? + self.check_versions(&records, asked)?)
    }
}

/// A field's value: a number and what fills it up, made by the server.
fn payload(number: &str) -> String {
    format!("lpad(({number}::bigint)::text, {FIELD_CHARS}, '0')")
}

/// Gives one field of a record (`$2`) the value of a number (`$1`).
fn update(field: u32) -> String {
    let value = payload("$1");
    format!(
        "UPDATE usertable SET version = version + 1, writer = $1, field{field} = {value} \
         WHERE ycsb_key = $2"
    )
}

/// All before the COMMIT: what is written is what was read, and one more; so that a change between the two is
/// lost where the server lets it happen, and found.
async fn read_modify<S: Session>(
    session: &mut S,
    number: i64,
    key: i64,
    field: u32,
) -> anyhow::Result<Result<(), Failure>> {
    let select = format!("SELECT version FROM usertable WHERE ycsb_key = {key} FOR UPDATE");
    let read = match session.query("BEGIN").await {
        Ok(_) => session.query(&select).await,
        failed => failed,
    };
    let rows = match read {
        Ok(rows) => rows,
        Err(failure) => return Ok(Err(failure)),
    };
    let version = match &*rows {
        [row] => row[0].as_deref().unwrap_or_default().parse::<i64>().context("a version")?,
        rows => bail!("record {key} is {} rows", rows.len()),
    };
    let value = payload("$1");
    let update = format!(
        "UPDATE usertable SET version = $3, writer = $1, field{field} = {value} WHERE ycsb_key = $2"
    );
    match session.execute(&update, &[number, key, version + 1]).await {
        Ok(rows) => ensure!(rows == 1, "record {key} is {rows} rows"),
        Err(failure) => return Ok(Err(failure)),
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(mix: Mix, kind: &str) -> f64 {
        let ycsb = Ycsb::new(mix, 1_000, Dialect::Plain);
        let of_kind = (1..=10_000).filter(|number| ycsb.operation(*number).kind() == kind);
        of_kind.count() as f64 / 10_000.0
    }

    #[test]
    fn mixes_are_those_of_the_paper() {
        for (mix, kind, meant) in [
            (Mix::A, "update", 0.5),
            (Mix::B, "update", 0.05),
            (Mix::C, "read", 1.0),
            (Mix::D, "insert", 0.05),
            (Mix::E, "scan", 0.95),
            (Mix::F, "read-modify-write", 0.5),
        ] {
            let is = share(mix, kind);
            assert!((is - meant).abs() < 0.02, "{mix:?}: {is} {kind}");
        }
    }

    #[test]
    fn the_latest_are_those_acknowledged_last_then_the_last_loaded() {
        let ycsb = Ycsb::new(Mix::D, 10, Dialect::Plain);
        assert_eq!([0, 1, 9].map(|back| ycsb.latest(back)), [9, 8, 0]);
        ycsb.inserted.lock().unwrap().extend([14, 12]);
        assert_eq!([0, 1, 2, 11].map(|back| ycsb.latest(back)), [12, 14, 9, 0]);
    }

    /// Two updates of one record by their numbers, and one of another.
    fn updates(ycsb: &Ycsb) -> (i64, [i64; 2], i64) {
        let of = |number: i64| ycsb.operation(number).changes();
        let first = (1..).find(|number| of(*number).is_some()).unwrap();
        let second = (first + 1..).find(|number| of(*number) == of(first)).unwrap();
        let other = (1..).find(|it| of(*it).is_some() && of(*it) != of(first)).unwrap();
        (of(first).unwrap(), [first, second], other)
    }

    #[test]
    fn lost_and_doubled_changes_are_found() {
        let ycsb = Ycsb::new(Mix::A, 1_000, Dialect::Plain);
        let (key, [first, second], other) = updates(&ycsb);
        let asked =
            |believed: Believed| Asked::from([(first, Believed::Acknowledged), (second, believed)]);
        let check = |version, writer, believed| {
            let records = BTreeMap::from([(key, (version, writer))]);
            ycsb.check_versions(&records, &asked(believed)).map_err(|error| error.to_string())
        };
        let found = check(2, second, Believed::Acknowledged).unwrap();
        assert_eq!(found.acknowledged, 2);
        assert_eq!(check(1, first, Believed::Unknown(None)).unwrap().unknown_absent, 1);
        assert_eq!(check(2, second, Believed::Unknown(None)).unwrap().unknown_done, 1);
        let said = check(1, second, Believed::Acknowledged).unwrap_err();
        assert!(said.contains("2 changes were acknowledged, 1 are there"), "{said}");
        let said = check(2, first, Believed::Refused).unwrap_err();
        assert!(said.contains("2 changes are there"), "{said}");
        assert!(check(1, second, Believed::Refused).is_err(), "by one that was refused");
        assert!(check(1, other, Believed::Refused).is_err(), "by one of another record");
    }
}
