//! Runs random transactions from many clients against a server or a cluster, and records them.
//!
//! Owns: the tables, the clients' threads, when faults happen, and what a failed run leaves for
//! people: the report, the history in a file, and the command that repeats it.
//! Never: knows what it runs against, nor how faults are made: its caller does.
//! Start reading at [`run`].

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::checker;
use super::intent::{Intent, Levels, rows_needed};
use super::model::{History, Transaction};
use super::report::Report;
use super::session::{EventOrder, Session};
use crate::client::{Client, Endpoint};
use crate::environment;

/// Where the randomness starts. The same seed asks for the same transactions; how they meet is up to
/// the machine.
pub const SEED: &str = "TUTTI_HISTORY_SEED";
/// How many transactions a run has; more finds more.
pub const TRANSACTIONS: &str = "TUTTI_HISTORY_TRANSACTIONS";
/// How long a server may be away before a run is given up.
const ABSENCE_LIMIT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// What a run asks for.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Chooses every transaction.
    pub seed: u64,
    /// How many there are.
    pub transactions: u32,
    /// How many clients share them.
    pub clients: u32,
    /// Their isolation levels.
    pub levels: Levels,
    /// How many faults happen, evenly spread over the transactions.
    pub faults: u32,
}

impl Load {
    /// A load with seed and length from the environment, if they are there.
    pub fn from_environment(seed: u64, transactions: u32, levels: Levels) -> Self {
        let seed = environment::number(SEED, seed);
        let transactions = environment::number(TRANSACTIONS, transactions.into()) as u32;
        Self { seed, transactions, clients: 8, levels, faults: 0 }
    }

    /// How many rows each table has.
    pub fn rows(&self) -> u32 {
        rows_needed(self.transactions)
    }

    /// Creates the tables and fills them. `distribution` is what follows CREATE TABLE.
    pub fn create_tables(&self, endpoint: &Endpoint, distribution: &str) -> Result<()> {
        let mut client = Client::connect(endpoint)?;
        let rows = self.rows();
        for statement in [
            "DROP TABLE IF EXISTS registers".to_owned(),
            "DROP TABLE IF EXISTS lists".to_owned(),
            format!(
                "CREATE TABLE registers (id int PRIMARY KEY, value bigint NOT NULL, \
                 previous bigint NOT NULL) {distribution}"
            ),
            format!(
                "CREATE TABLE lists (id int PRIMARY KEY, elements bigint[] NOT NULL) {distribution}"
            ),
            format!("INSERT INTO registers SELECT n, 0, 0 FROM generate_series(1, {rows}) n"),
            format!("INSERT INTO lists SELECT n, '{{}}' FROM generate_series(1, {rows}) n"),
        ] {
            client.query(&statement)?;
        }
        Ok(())
    }
}

/// What the threads of a run share.
struct Shared<'a> {
    load: &'a Load,
    endpoint: &'a Mutex<Endpoint>,
    events: EventOrder,
    next: AtomicU32,
    done: AtomicU32,
    stop: AtomicBool,
}

/// Runs the load. `fault` is called with 0, 1, 2… when it is time for the next fault, and returns when it
/// has been repaired or will repair itself; it may change the endpoint.
///
/// Errors: an answer that may not be; a server that stays away; the fault's own.
pub fn run(
    load: &Load,
    endpoint: &Mutex<Endpoint>,
    mut fault: impl FnMut(u32) -> Result<()>,
) -> Result<History> {
    let shared = Shared {
        load,
        endpoint,
        events: EventOrder::default(),
        next: AtomicU32::new(1),
        done: AtomicU32::new(0),
        stop: AtomicBool::new(false),
    };
    let mut transactions = thread::scope(|scope| -> Result<Vec<Transaction>> {
        let clients: Vec<_> = (1..=load.clients)
            .map(|number| {
                let shared = &shared;
                scope.spawn(move || {
                    let outcome = run_client(shared, number);
                    // The others need not go on when one has found an error.
                    shared.stop.fetch_or(outcome.is_err(), Ordering::Relaxed);
                    outcome
                })
            })
            .collect();
        let mut faulted = Ok(());
        for number in 0..load.faults {
            let due = load.transactions / (load.faults + 1) * (number + 1);
            while shared.done.load(Ordering::Relaxed) < due && !shared.stop.load(Ordering::Relaxed)
            {
                thread::sleep(POLL_INTERVAL);
            }
            faulted = faulted.and_then(|()| fault(number));
        }
        shared.stop.fetch_or(faulted.is_err(), Ordering::Relaxed);
        let mut transactions = Vec::new();
        for client in clients {
            transactions.extend(client.join().expect("a client panicked")?);
        }
        faulted.map(|()| transactions)
    })?;
    let mut session = connect(&shared, 0)?.context("the run was stopped")?;
    transactions.push(session.read_at_rest(load.transactions + 1, load.rows())?);
    transactions.sort_by_key(|transaction| transaction.begin);
    Ok(History { transactions })
}

fn run_client(shared: &Shared<'_>, number: u32) -> Result<Vec<Transaction>> {
    let load = shared.load;
    let mut transactions = Vec::new();
    let mut kept: Option<Session<'_>> = None;
    while !shared.stop.load(Ordering::Relaxed) {
        let turn = shared.next.fetch_add(1, Ordering::Relaxed);
        if turn > load.transactions {
            break;
        }
        let opened = match kept.take() {
            Some(session) => Some(session),
            None => connect(shared, number)?,
        };
        let Some(mut session) = opened else { break };
        let performed = session.perform(&Intent::random(load.seed, turn, load.levels))?;
        transactions.extend(performed.transaction);
        shared.done.fetch_add(1, Ordering::Relaxed);
        kept = (!performed.is_lost).then_some(session);
    }
    Ok(transactions)
}

/// Opens a session, waiting while the server is away; `None` if the run has been stopped.
fn connect<'a>(shared: &'a Shared<'_>, number: u32) -> Result<Option<Session<'a>>> {
    let deadline = Instant::now() + ABSENCE_LIMIT;
    while !shared.stop.load(Ordering::Relaxed) {
        let endpoint = shared.endpoint.lock().expect("nobody panicked").clone();
        match Session::open(&endpoint, number, &shared.events) {
            Ok(session) => return Ok(Some(session)),
            Err(error) if deadline < Instant::now() => return Err(error),
            Err(_) => thread::sleep(POLL_INTERVAL),
        }
    }
    Ok(None)
}

/// Judges a history. What is wrong is an error that says how to look at it again.
///
/// `test` is the test's name; the history is kept in `directory`.
pub fn judge(history: &History, load: &Load, test: &str, directory: &Path) -> Result<Report> {
    let report = checker::check(history);
    let Load { seed, transactions, .. } = load;
    println!("{test}: {SEED}={seed} {TRANSACTIONS}={transactions}: {}", report.figures);
    if !report.is_clean() {
        let kept = directory.join(format!("history-{test}-{seed}.txt"));
        fs::write(&kept, history.to_string()).with_context(|| kept.display().to_string())?;
        anyhow::bail!(
            "{report}the history is in {}; run again with\n  \
             {SEED}={seed} {TRANSACTIONS}={transactions} ./dev test --test faults history::{test}",
            kept.display()
        );
    }
    // A run that commits nothing has shown nothing.
    ensure!(
        report.figures.committed * 4 > history.transactions.len(),
        "most transactions failed: {}",
        report.figures
    );
    Ok(report)
}
