//! Histories of real servers, judged: random transactions over registers and lists at each isolation
//! level, with gateways and nodes killed by SIGKILL.
//!
//! Owns: what runs against what, with which faults. Never: judges (`tutti_tests::history::checker`).
//! The same runs against one plain PostgreSQL say that the judge is not too strict, and those with a
//! part of the gateway switched off say that it is strict enough.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use tutti_embed::Cluster;
use tutti_gateway::Switches;
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::TestCluster;
use tutti_tests::history::anomaly::Kind;
use tutti_tests::history::changes;
use tutti_tests::history::checker::check;
use tutti_tests::history::intent::Levels;
use tutti_tests::history::model::History;
use tutti_tests::history::model::Level::{self, ReadCommitted, RepeatableRead, Serializable};
use tutti_tests::history::run::{self, Load};
use tutti_tests::process::{self, GatewayProcess};
use tutti_tests::servers;

/// In tests that need no other; see `TUTTI_HISTORY_SEED`.
const SEED: u64 = 7;
/// Enough to find what switches prevent, and a few seconds; see `TUTTI_HISTORY_TRANSACTIONS`.
const TRANSACTIONS: u32 = 600;
const NODES: u16 = 3;
/// How often a run with something switched off is made again, longer each time, until it shows it.
const ATTEMPTS: u32 = 5;
const DISTRIBUTION: &str = "DISTRIBUTE BY HASH (id)";

const READ_COMMITTED: Levels = Levels { writers: &[ReadCommitted], readers: &[ReadCommitted] };
const REPEATABLE_READ: Levels = Levels { writers: &[RepeatableRead], readers: &[RepeatableRead] };
const SERIALIZABLE: Levels = Levels { writers: &[Serializable], readers: &[Serializable] };
pub(crate) const ANY: Levels = Levels { writers: &Level::ALL, readers: &Level::ALL };
/// Snapshots must be whole whatever the writers' levels.
const WRITERS_READ_COMMITTED: Levels =
    Levels { writers: &[ReadCommitted], readers: &[RepeatableRead, Serializable, ReadCommitted] };

fn load(levels: Levels) -> Load {
    Load::from_environment(SEED, TRANSACTIONS, levels)
}

fn judge(history: &History, load: &Load, test: &str) -> Result<()> {
    let report = run::judge(history, load, test, Path::new(env!("CARGO_TARGET_TMPDIR")))?;
    let figures = report.figures;
    ensure!(figures.row_reads > 0 && figures.row_writes > 0, "nothing was read or written");
    Ok(())
}

fn no_fault(_: u32) -> Result<()> {
    Ok(())
}

/// Runs against one server without a gateway.
fn on_plain_postgresql(levels: Levels, test: &str) -> Result<()> {
    let load = load(levels);
    let servers = servers::durable(1)?;
    let endpoint = servers::endpoint(&servers, 0);
    load.create_tables(&endpoint, "")?;
    judge(&run::run(&load, &Mutex::new(endpoint), no_fault)?, &load, test)
}

#[test]
fn plain_postgresql_keeps_each_level() -> Result<()> {
    let test = "plain_postgresql_keeps_each_level";
    on_plain_postgresql(READ_COMMITTED, test)?;
    on_plain_postgresql(REPEATABLE_READ, test)?;
    on_plain_postgresql(SERIALIZABLE, test)
}

#[test]
fn plain_postgresql_keeps_levels_that_mix() -> Result<()> {
    let test = "plain_postgresql_keeps_levels_that_mix";
    on_plain_postgresql(WRITERS_READ_COMMITTED, test)?;
    on_plain_postgresql(ANY, test)
}

#[test]
fn plain_postgresql_keeps_its_word_when_killed() -> Result<()> {
    let load = Load { faults: 3, ..load(ANY) };
    let mut servers = servers::durable(1)?;
    let endpoint = servers::endpoint(&servers, 0);
    load.create_tables(&endpoint, "")?;
    let history = run::run(&load, &Mutex::new(endpoint), |_| {
        servers.server_mut(0).kill9()?;
        Ok(servers.server_mut(0).start()?)
    })?;
    judge(&history, &load, "plain_postgresql_keeps_its_word_when_killed")
}

/// Each node must have rows in use, or a run would show less than it seems to.
fn ensure_rows_are_spread(servers: &Cluster) -> Result<()> {
    for index in 0..servers.servers().len() {
        for table in ["registers", "lists"] {
            let mut node = Client::connect(&servers::endpoint(servers, index))?;
            let count = node.value(&format!("SELECT count(*) FROM {table} WHERE id <= 8"))?;
            ensure!(count != "0", "node {} has none of the first {table}", index + 1);
        }
    }
    Ok(())
}

/// Runs against a cluster whose gateway is in this process.
fn recorded_on_cluster(load: &Load, switches: Switches) -> Result<History> {
    let cluster = TestCluster::start_with(servers::durable(NODES)?, switches)?;
    load.create_tables(&cluster.endpoint(), DISTRIBUTION)?;
    ensure_rows_are_spread(cluster.servers())?;
    run::run(load, &Mutex::new(cluster.endpoint()), no_fault)
}

fn on_cluster(levels: Levels, test: &str) -> Result<()> {
    let load = load(levels);
    judge(&recorded_on_cluster(&load, Switches::default())?, &load, test)
}

#[test]
fn read_committed_sees_whole_transactions_in_each_statement() -> Result<()> {
    on_cluster(READ_COMMITTED, "read_committed_sees_whole_transactions_in_each_statement")
}

#[test]
fn repeatable_read_is_a_snapshot_of_the_cluster() -> Result<()> {
    on_cluster(REPEATABLE_READ, "repeatable_read_is_a_snapshot_of_the_cluster")
}

#[test]
fn serializable_is_serializable_over_the_cluster() -> Result<()> {
    on_cluster(SERIALIZABLE, "serializable_is_serializable_over_the_cluster")
}

#[test]
fn snapshots_are_whole_whatever_level_wrote() -> Result<()> {
    let test = "snapshots_are_whole_whatever_level_wrote";
    on_cluster(WRITERS_READ_COMMITTED, test)?;
    on_cluster(ANY, test)
}

/// Cancels whatever server processes are at, one after the other, until told to stop.
fn cancel_anything(node: &Endpoint, stop: &AtomicBool) -> Result<()> {
    let mut client = Client::connect(node)?;
    while !stop.load(Ordering::Relaxed) {
        client.query(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() \
             ORDER BY random() LIMIT 1",
        )?;
    }
    Ok(())
}

/// A cancellation comes when it comes: also between a transaction's BEGIN and its first statement, if
/// the two are on their way together.
#[test]
fn every_level_holds_when_anything_is_cancelled() -> Result<()> {
    // The last of them is the end of all cancellations: what is read at rest is not cancelled.
    const FAULTS: u32 = 20;
    let load = Load { faults: FAULTS, ..load(ANY) };
    let cluster = TestCluster::start_with(servers::durable(NODES)?, Switches::default())?;
    load.create_tables(&cluster.endpoint(), DISTRIBUTION)?;
    let stop = AtomicBool::new(false);
    let nodes = cluster.nodes();
    let history = thread::scope(|scope| {
        let cancelling: Vec<_> =
            nodes.iter().map(|node| scope.spawn(|| cancel_anything(node, &stop))).collect();
        let history = run::run(&load, &Mutex::new(cluster.endpoint()), |fault| {
            stop.fetch_or(fault + 1 == FAULTS, Ordering::Relaxed);
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        for cancelling in cancelling {
            cancelling.join().expect("no panic")?;
        }
        history
    })?;
    judge(&history, &load, "every_level_holds_when_anything_is_cancelled")
}

/// What is killed, in turn.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Gateway,
    Node(usize),
}

/// Kills it, and has it again.
fn kill(
    victim: Victim,
    servers: &mut Cluster,
    gateway: &mut Option<GatewayProcess>,
    endpoint: &Mutex<Endpoint>,
) -> Result<()> {
    match victim {
        Victim::Gateway => {
            gateway.take().map(GatewayProcess::kill9).transpose()?;
            let started = GatewayProcess::start(servers)?;
            *endpoint.lock().expect("nobody panicked") = started.endpoint();
            *gateway = Some(started);
        }
        Victim::Node(index) => {
            servers.server_mut(index).kill9()?;
            servers.server_mut(index).start()?;
        }
    }
    Ok(())
}

/// Runs against a cluster whose gateway is a process, and kills it or nodes on the way.
fn with_kills(levels: Levels, victims: &[Victim], test: &str) -> Result<()> {
    let load = Load { faults: u32::try_from(victims.len())?, ..load(levels) };
    let mut servers = servers::durable(NODES)?;
    process::init(&servers)?;
    let mut gateway = Some(GatewayProcess::start(&servers)?);
    let endpoint = gateway.as_ref().map(GatewayProcess::endpoint).context("just started")?;
    load.create_tables(&endpoint, DISTRIBUTION)?;
    let endpoint = Mutex::new(endpoint);
    let history = run::run(&load, &endpoint, |number| {
        kill(victims[usize::try_from(number)?], &mut servers, &mut gateway, &endpoint)
    });
    let log = || gateway.as_ref().map(GatewayProcess::log).unwrap_or_default();
    let history = history.with_context(log)?;
    ensure_nothing_is_prepared(&servers).with_context(log)?;
    judge(&history, &load, test)
}

fn ensure_nothing_is_prepared(servers: &Cluster) -> Result<()> {
    for index in 0..servers.servers().len() {
        let mut node = Client::connect(&servers::endpoint(servers, index))?;
        let count = node.value("SELECT count(*) FROM pg_prepared_xacts")?;
        ensure!(count == "0", "{count} prepared transactions are left on node {}", index + 1);
    }
    Ok(())
}

#[test]
fn every_level_holds_when_gateways_are_killed() -> Result<()> {
    let victims = [Victim::Gateway; 4];
    with_kills(ANY, &victims, "every_level_holds_when_gateways_are_killed")
}

#[test]
fn every_level_holds_when_nodes_are_killed() -> Result<()> {
    let victims = [Victim::Node(0), Victim::Node(1), Victim::Node(2), Victim::Node(1)];
    with_kills(ANY, &victims, "every_level_holds_when_nodes_are_killed")
}

#[test]
fn every_level_holds_when_all_kinds_are_killed() -> Result<()> {
    let victims = [Victim::Node(1), Victim::Gateway, Victim::Node(0), Victim::Gateway];
    with_kills(ANY, &victims, "every_level_holds_when_all_kinds_are_killed")
}

/// Runs against a cluster in which everything is moved and changed meanwhile, and things are killed.
fn with_changes(levels: Levels, victims: &[Victim], test: &str) -> Result<()> {
    let load = Load { faults: u32::try_from(victims.len())?, ..load(levels) };
    let mut servers = servers::durable(NODES)?;
    process::init(&servers)?;
    let mut gateway = Some(GatewayProcess::start(&servers)?);
    let endpoint = gateway.as_ref().map(GatewayProcess::endpoint).context("just started")?;
    load.create_tables(&endpoint, DISTRIBUTION)?;
    changes::create(&endpoint)?;
    let endpoint = Mutex::new(endpoint);
    let history = changes::beside(load.seed, &endpoint, || {
        run::run(&load, &endpoint, |number| {
            kill(victims[usize::try_from(number)?], &mut servers, &mut gateway, &endpoint)
        })
    });
    let log = || gateway.as_ref().map(GatewayProcess::log).unwrap_or_default();
    let repeat = || {
        let (seed, transactions) = (load.seed, load.transactions);
        format!("{test}: {}={seed} {}={transactions}", run::SEED, run::TRANSACTIONS)
    };
    let history = history.with_context(log).with_context(repeat)?;
    ensure_nothing_is_prepared(&servers).with_context(log)?;
    judge(&history, &load, test)?;
    // The auditor ends the gateway's test; here its findings come with the seed.
    let report = gateway.as_ref().context("it runs")?.audit()?;
    ensure!(report.findings.is_empty(), "{}: {report}", repeat());
    Ok(())
}

#[test]
fn every_level_holds_beside_changes() -> Result<()> {
    with_changes(ANY, &[], "every_level_holds_beside_changes")
}

#[test]
fn every_level_holds_beside_changes_when_gateways_are_killed() -> Result<()> {
    let test = "every_level_holds_beside_changes_when_gateways_are_killed";
    with_changes(ANY, &[Victim::Gateway; 3], test)
}

#[test]
fn every_level_holds_beside_changes_when_nodes_are_killed() -> Result<()> {
    let victims = [Victim::Node(1), Victim::Node(0), Victim::Gateway, Victim::Node(2)];
    with_changes(ANY, &victims, "every_level_holds_beside_changes_when_nodes_are_killed")
}

/// Runs with something switched off until one of these kinds is found.
fn must_find(kinds: &[Kind], levels: Levels, switches: Switches) -> Result<()> {
    let mut report = String::new();
    for attempt in 0..ATTEMPTS {
        let first = load(levels);
        let load = Load {
            seed: first.seed + u64::from(attempt),
            transactions: first.transactions * (attempt + 1),
            ..first
        };
        let found = check(&recorded_on_cluster(&load, switches)?);
        println!("attempt {attempt}, {}={}: {found}", run::SEED, load.seed);
        if found.kinds().iter().any(|kind| kinds.contains(kind)) {
            return Ok(());
        }
        report = found.to_string();
    }
    bail!("none of {kinds:?} was found with {switches:?}: {report}")
}

const TORN: &[Kind] = &[Kind::FracturedRead, Kind::ReadSkew];

#[test]
fn without_rooms_read_committed_is_torn() -> Result<()> {
    must_find(TORN, READ_COMMITTED, Switches { rooms: false, ..Switches::default() })
}

#[test]
fn without_rooms_repeatable_read_is_torn() -> Result<()> {
    must_find(TORN, REPEATABLE_READ, Switches { rooms: false, ..Switches::default() })
}

#[test]
fn without_sentinels_serializable_is_not() -> Result<()> {
    let kinds = &[Kind::WriteSkew, Kind::PredicateWriteSkew];
    must_find(kinds, SERIALIZABLE, Switches { sentinels: false, ..Switches::default() })
}

/// Looks again at a history that a failed run has kept.
#[test]
#[ignore = "needs TUTTI_HISTORY_FILE"]
fn a_kept_history_is_judged_again() -> Result<()> {
    let path = std::env::var("TUTTI_HISTORY_FILE").context("TUTTI_HISTORY_FILE is not set")?;
    let history: History = std::fs::read_to_string(&path)?.parse()?;
    let report = check(&history);
    ensure!(report.is_clean(), "{report}");
    println!("{report}");
    Ok(())
}
