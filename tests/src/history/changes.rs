//! Changes of schema, placements and code beside a history, and a ledger that must survive them.
//!
//! Owns: the clients that change things, those that write the ledger, and what must be true of it at the
//! end: every acknowledged row is there exactly once, by key and by scan, with what triggers and functions
//! made of it; none that was refused is there.
//! Never: judges the history itself (`checker`), or what nodes have in common (the auditor).
//! Start reading at [`beside`].
//!
//! Nothing here changes what a history's statements mean, so its judge need not know of it. The seed chooses
//! every change and every row; how they meet is up to the machine.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::client::{Client, Endpoint};

const WRITERS: u64 = 2;
const CHANGERS: u64 = 2;
/// How long the cluster may be away.
const ABSENCE_LIMIT: Duration = Duration::from_secs(90);
/// What a statement of the ledger must expect: conflicts, and a server or a connection that is away.
const EXPECTED: &[&str] = &["40001", "40P01", "55P03", "57014", "08", "57P", "25P02"];
/// And one that changes things that others change at the same time.
const EXPECTED_OF_CHANGES: &[&str] =
    &["3F000", "42P01", "42P06", "42P07", "42701", "42703", "42704", "42710", "XX000", "23505"];

/// `ledger` moves about, with a trigger that runs wherever its rows are; `journal` is written on node 1 by
/// `entries`' trigger and by a function.
const SCHEMA: &[&str] = &[
    "CREATE FUNCTION thrice(bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 3'",
    "CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN NEW.stamped := NEW.token * 3; RETURN NEW; END'",
    "CREATE TABLE ledger (token bigint, client int, stamped bigint) DISTRIBUTE BY HASH (token)",
    "CREATE TRIGGER stamp BEFORE INSERT ON ledger FOR EACH ROW EXECUTE FUNCTION stamp()",
    "CREATE TABLE entries (token bigint PRIMARY KEY, stamped bigint) DISTRIBUTE BY HOME",
    "CREATE TABLE journal (token bigint) DISTRIBUTE BY HOME",
    "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO journal VALUES (NEW.token); RETURN NULL; END'",
    "CREATE TRIGGER note AFTER INSERT ON entries FOR EACH ROW EXECUTE FUNCTION note()",
    "CREATE FUNCTION enter(bigint) RETURNS void LANGUAGE plpgsql AS
        'BEGIN INSERT INTO entries VALUES ($1, $1 * 3); END'",
];

/// Each is one transaction or several statements that may be torn: none changes what statements mean. Nothing
/// that rewrites a table is among them: to snapshots from before, PostgreSQL shows such a table empty.
const CHANGES: &[&[&str]] = &[
    &["SELECT tutti_distribute('registers', 'id', 'lists', 'id')"],
    &["SELECT tutti_replicate('registers')"],
    &["SELECT tutti_replicate('lists')"],
    &["SELECT tutti_distribute('registers', 'id')"],
    &["SELECT tutti_home('registers', 'lists')"],
    &["SELECT tutti_distribute('ledger', 'token')"],
    &["SELECT tutti_distribute('ledger', 'client')"],
    &["SELECT tutti_round_robin('ledger')"],
    &["SELECT tutti_replicate('ledger')"],
    &["SELECT tutti_home('ledger')"],
    &["BEGIN", "SELECT tutti_replicate('ledger')", "ROLLBACK"],
    &[
        "BEGIN",
        "SELECT tutti_distribute('ledger', 'token')",
        "CREATE INDEX ON ledger (token)",
        "COMMIT",
    ],
    &[
        "ALTER TABLE registers ADD COLUMN extra int DEFAULT 7",
        "ALTER TABLE registers DROP COLUMN extra",
    ],
    &["ALTER TABLE ledger ADD COLUMN extra text", "ALTER TABLE ledger DROP COLUMN extra"],
    &["CREATE INDEX lists_elements ON lists (elements)", "DROP INDEX lists_elements"],
    &[
        "CREATE OR REPLACE FUNCTION thrice(bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT $1 + $1 * 2'",
    ],
    &[
        "CREATE OR REPLACE FUNCTION thrice(bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1 * 3; END'",
    ],
    &[
        "CREATE OR REPLACE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.stamped := NEW.token + NEW.token + NEW.token; RETURN NEW; END'",
    ],
    &[
        "BEGIN",
        "DROP TRIGGER stamp ON ledger",
        "CREATE TRIGGER stamp BEFORE INSERT ON ledger FOR EACH ROW EXECUTE FUNCTION stamp()",
        "COMMIT",
    ],
    &[
        "BEGIN",
        "DROP TRIGGER note ON entries",
        "CREATE TRIGGER note AFTER INSERT ON entries FOR EACH ROW EXECUTE FUNCTION note()",
        "COMMIT",
    ],
    &[
        "CREATE OR REPLACE FUNCTION enter(bigint) RETURNS void LANGUAGE sql AS 'INSERT INTO entries VALUES ($1, $1 + $1 + $1)'",
    ],
    &["CREATE TABLE passing (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)", "DROP TABLE passing"],
    &[
        "CREATE TABLE passing (id serial) DISTRIBUTE BY REPLICATED",
        "INSERT INTO passing SELECT FROM generate_series(1, 3)",
        "DROP TABLE passing",
    ],
    &["CREATE VIEW seen AS SELECT token FROM ledger", "DROP VIEW seen"],
    &["CREATE SCHEMA aside", "CREATE TABLE aside.t (a int)", "DROP SCHEMA aside CASCADE"],
];

/// What became of the rows.
#[derive(Debug, Default)]
pub struct Ledger {
    acknowledged: BTreeSet<i64>,
    unknown: BTreeSet<i64>,
    /// The same of `entries`.
    entered: BTreeSet<i64>,
    maybe_entered: BTreeSet<i64>,
    changes: u32,
}

/// What the clients share.
struct Shared<'a> {
    seed: u64,
    endpoint: &'a Mutex<Endpoint>,
    ended: AtomicBool,
    changes: AtomicU32,
}

/// Makes what the changes are about. The tables of the history must be there.
pub fn create(endpoint: &Endpoint) -> Result<()> {
    let mut client = Client::connect(endpoint)?;
    for sql in SCHEMA {
        client.query(sql).with_context(|| (*sql).to_owned())?;
    }
    Ok(())
}

/// Runs `history` with changes and the ledger's writers beside it, then checks the ledger.
pub fn beside<T>(
    seed: u64,
    endpoint: &Mutex<Endpoint>,
    history: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let shared =
        Shared { seed, endpoint, ended: AtomicBool::new(false), changes: AtomicU32::new(0) };
    let (made, ledger) = thread::scope(|scope| {
        let shared = &shared;
        let writers: Vec<_> = (0..WRITERS).map(|n| scope.spawn(move || write(shared, n))).collect();
        let changers: Vec<_> =
            (0..CHANGERS).map(|n| scope.spawn(move || change(shared, n))).collect();
        let made = history();
        shared.ended.store(true, Ordering::Relaxed);
        let mut ledger = Ledger::default();
        for writer in writers {
            let of = writer.join().expect("a writer panicked")?;
            ledger.acknowledged.extend(of.acknowledged);
            ledger.unknown.extend(of.unknown);
            ledger.entered.extend(of.entered);
            ledger.maybe_entered.extend(of.maybe_entered);
        }
        for changer in changers {
            changer.join().expect("a changer panicked")?;
        }
        anyhow::Ok((made, ledger))
    })?;
    let made = made?;
    let ledger = Ledger { changes: shared.changes.load(Ordering::Relaxed), ..ledger };
    println!(
        "seed {seed}: {} changes, {} rows acknowledged, {} unknown",
        ledger.changes,
        ledger.acknowledged.len() + ledger.entered.len(),
        ledger.unknown.len() + ledger.maybe_entered.len()
    );
    ledger.judge(endpoint).with_context(|| format!("seed {seed}"))?;
    Ok(made)
}

/// A connection, once there is a server; `None` at the end.
fn connect(shared: &Shared<'_>) -> Result<Option<Client>> {
    let deadline = Instant::now() + ABSENCE_LIMIT;
    while !shared.ended.load(Ordering::Relaxed) {
        let endpoint = shared.endpoint.lock().expect("nobody panicked").clone();
        let connected = Client::connect(&endpoint)
            .and_then(|mut client| client.query("SET lock_timeout = '5s'").map(|_| client));
        match connected {
            Ok(client) => return Ok(Some(client)),
            Err(error) if deadline < Instant::now() => return Err(error),
            Err(_) => sleep(Duration::from_millis(20)),
        }
    }
    Ok(None)
}

/// How some statements ended.
enum Ended {
    Done,
    Refused,
    /// Unknown, and the connection may be gone.
    Unknown,
    Lost,
}

fn run(client: &mut Client, statements: &[String], more: &[&str]) -> Result<Ended> {
    for (position, sql) in statements.iter().enumerate() {
        let Ok(answer) = client.simple(sql, b"") else {
            // What commits is the last.
            let commits = position + 1 == statements.len();
            return Ok(if commits { Ended::Unknown } else { Ended::Lost });
        };
        let Some(error) = answer.error() else { continue };
        let state = error.sqlstate().to_owned();
        if !EXPECTED.iter().chain(more).any(|expected| state.starts_with(expected)) {
            bail!("{sql}: {state} {}", error.message());
        }
        let is_lost = client.simple("ROLLBACK", b"").is_err();
        return Ok(match (state.as_str(), is_lost) {
            ("08007", _) => Ended::Unknown,
            (_, true) if position + 1 == statements.len() => Ended::Unknown,
            (_, true) => Ended::Lost,
            _ => Ended::Refused,
        });
    }
    Ok(Ended::Done)
}

/// Writes rows, and remembers what became of each.
fn write(shared: &Shared<'_>, number: u64) -> Result<Ledger> {
    let mut random = StdRng::seed_from_u64(shared.seed.wrapping_mul(31).wrapping_add(number));
    let mut ledger = Ledger::default();
    let mut next = i64::try_from(number)? * 100_000_000;
    let mut kept = None;
    while !shared.ended.load(Ordering::Relaxed) {
        let Some(mut client) = (match kept.take() {
            Some(client) => Some(client),
            None => connect(shared)?,
        }) else {
            break;
        };
        let tokens: Vec<i64> = (1..=random.random_range(1..=3)).map(|step| next + step).collect();
        next += 3;
        let (statements, enters) = statements(&mut random, number, &tokens);
        let ended = run(&mut client, &statements, &["42P01"])?;
        let (sure, unsure) = match enters {
            true => (&mut ledger.entered, &mut ledger.maybe_entered),
            false => (&mut ledger.acknowledged, &mut ledger.unknown),
        };
        match ended {
            Ended::Done => sure.extend(tokens),
            Ended::Unknown => unsure.extend(tokens),
            Ended::Refused | Ended::Lost => (),
        }
        // Even after an error that should not end the connection, it may be gone.
        if matches!(ended, Ended::Done | Ended::Refused) {
            kept = Some(client);
        }
        sleep(Duration::from_millis(random.random_range(0..8)));
    }
    Ok(ledger)
}

/// Whether they are about `entries`.
fn statements(random: &mut StdRng, client: u64, tokens: &[i64]) -> (Vec<String>, bool) {
    let values: Vec<_> = tokens.iter().map(|token| format!("({token}, {client})")).collect();
    let insert = format!("INSERT INTO ledger (token, client) VALUES {}", values.join(", "));
    let one =
        |token: &i64| format!("INSERT INTO ledger (token, client) VALUES ({token}, {client})");
    let level = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
    let level = level.choose(random).copied().unwrap_or_default();
    let mut within = |inner: Vec<String>| {
        let begin = match random.random_range(0..3) {
            0 => "BEGIN".to_owned(),
            _ => format!("BEGIN ISOLATION LEVEL {level}"),
        };
        [vec![begin], inner, vec!["COMMIT".to_owned()]].concat()
    };
    let list = tokens.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    match tokens[0] / 3 % 7 {
        0 | 1 => (vec![insert], false),
        2 => (within(tokens.iter().map(one).collect()), false),
        3 => {
            let look = "SELECT count(*) FROM ledger WHERE token < 0".to_owned();
            (within([vec![look], tokens.iter().map(one).collect()].concat()), false)
        }
        4 => {
            let select = format!(
                "INSERT INTO ledger (token, client) SELECT thrice(t) / 3, {client}
                 FROM unnest(ARRAY[{list}]::bigint[]) AS t"
            );
            (vec![select], false)
        }
        5 => {
            let values: Vec<_> = tokens.iter().map(|t| format!("({t}, {t} * 3)")).collect();
            (vec![format!("INSERT INTO entries VALUES {}", values.join(", "))], true)
        }
        _ => (within(tokens.iter().map(|t| format!("SELECT enter({t})")).collect()), true),
    }
}

/// Changes things, one after the other.
fn change(shared: &Shared<'_>, number: u64) -> Result<()> {
    let mut random = StdRng::seed_from_u64(shared.seed.wrapping_mul(37).wrapping_add(number));
    let mut kept = None;
    while !shared.ended.load(Ordering::Relaxed) {
        let Some(mut client) = (match kept.take() {
            Some(client) => Some(client),
            None => connect(shared)?,
        }) else {
            break;
        };
        let change = CHANGES.choose(&mut random).expect("there are some");
        let statements: Vec<_> = change.iter().map(|sql| (*sql).to_owned()).collect();
        let ended = run(&mut client, &statements, EXPECTED_OF_CHANGES)?;
        if matches!(ended, Ended::Done) {
            shared.changes.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(ended, Ended::Done | Ended::Refused) {
            kept = Some(client);
        }
        sleep(Duration::from_millis(random.random_range(20..200)));
    }
    Ok(())
}

impl Ledger {
    fn judge(&self, endpoint: &Mutex<Endpoint>) -> Result<()> {
        ensure!(self.changes > 0, "nothing has changed");
        ensure!(!self.acknowledged.is_empty(), "nothing was written");
        let endpoint = endpoint.lock().expect("nobody panicked").clone();
        let mut client = patiently(|| Client::connect(&endpoint))?;
        let mut rows = |sql: &str| patiently(|| client.query(sql));
        for (table, sure, unsure) in [
            ("ledger", &self.acknowledged, &self.unknown),
            ("entries", &self.entered, &self.maybe_entered),
        ] {
            let found = rows(&format!("SELECT token, stamped FROM {table} ORDER BY token"))?;
            let mut tokens = Vec::new();
            for row in &found {
                let number = |at: usize| {
                    row[at].as_deref().context("NULL")?.parse::<i64>().context("number")
                };
                let (token, stamped) = (number(0)?, number(1));
                let stamped = stamped.with_context(|| format!("{table}: {token} has no stamp"))?;
                ensure!(stamped == token * 3, "{table}: {token} has the stamp {stamped}");
                tokens.push(token);
            }
            judge_tokens(table, &tokens, sure, unsure)?;
            for token in sure.iter().step_by(sure.len() / 100 + 1) {
                let count = rows(&format!("SELECT count(*) FROM {table} WHERE token = {token}"))?;
                ensure!(count[0][0].as_deref() == Some("1"), "{table}: {token} by key: {count:?}");
            }
        }
        let journal = rows("SELECT token FROM journal ORDER BY token")?;
        let journal: Result<Vec<i64>> =
            journal.iter().map(|row| Ok(row[0].as_deref().context("NULL")?.parse()?)).collect();
        judge_tokens("journal", &journal?, &self.entered, &self.maybe_entered)
    }
}

fn judge_tokens(
    table: &str,
    found: &[i64],
    sure: &BTreeSet<i64>,
    unsure: &BTreeSet<i64>,
) -> Result<()> {
    let once: BTreeSet<i64> = found.iter().copied().collect();
    let twice: Vec<_> = found.windows(2).filter(|pair| pair[0] == pair[1]).take(5).collect();
    ensure!(once.len() == found.len(), "{table}: rows are there twice: {twice:?}");
    let lost: Vec<_> = sure.difference(&once).take(5).collect();
    ensure!(lost.is_empty(), "{table}: acknowledged and not there: {lost:?}");
    let undead: Vec<_> = once
        .iter()
        .filter(|token| !sure.contains(token) && !unsure.contains(token))
        .take(5)
        .collect();
    ensure!(undead.is_empty(), "{table}: refused and there: {undead:?}");
    Ok(())
}

/// Recovery may need a moment.
fn patiently<T>(mut what: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + ABSENCE_LIMIT;
    loop {
        match what() {
            Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(100)),
            done => return done,
        }
    }
}
