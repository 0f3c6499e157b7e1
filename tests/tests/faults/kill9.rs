//! SIGKILL of the gateway in the middle of global commits, many times: nothing is half done.
//!
//! Owns: the load, the kill and what must hold afterwards. Clients move money between accounts on
//! different nodes (each move also writes two entries and one row of a replicated table) and insert
//! batches of rows that land on every node. After each kill the gateway starts again on the same nodes; then
//! a move is there whole or not at all, an acknowledged one is there, the total is what it was, and
//! no node holds a prepared transaction.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tutti_embed::Cluster;
use tutti_lab::workload::batches::Batches;
use tutti_lab::workload::transfers::{Books, Transfers};
use tutti_lab::workload::{Asked, Believed, Found, Workload};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::environment;
use tutti_tests::process::{self, GatewayProcess};
use tutti_tests::servers;
use tutti_tests::workload::{at_once, sessions};

/// How many times to kill; more finds more.
const ROUNDS: &str = "TUTTI_KILL9_ROUNDS";
const ROUNDS_DEFAULT: u64 = 15;
/// Where the randomness starts; printed, so that a run can be repeated as far as timing allows.
const SEED: &str = "TUTTI_KILL9_SEED";
const NODES: u16 = 3;
const MOVERS: u64 = 4;
const BATCHERS: u64 = 2;
const ACCOUNTS: i64 = 60;
const OPENING_BALANCE: i64 = 1_000;
/// Rows per batch: enough that every node gets some.
const BATCHES: Batches = Batches { rows: 12 };

/// Everything that was asked for.
#[derive(Debug, Default)]
struct AllAsked {
    moves: Asked,
    batches: Asked,
}

/// Moves of money; each also writes two entries and one row of a replicated table.
fn moves() -> Transfers {
    Transfers::new(ACCOUNTS, OPENING_BALANCE, Books::EntriesAndJournal)
}

#[test]
fn a_killed_gateway_leaves_nothing_half_done() -> Result<()> {
    let rounds = environment::number(ROUNDS, ROUNDS_DEFAULT);
    let seed = environment::number(SEED, rand::random());
    println!("{SEED}={seed} {ROUNDS}={rounds}");
    let mut rng = StdRng::seed_from_u64(seed);

    let servers = servers::durable(NODES)?;
    process::init(&servers)?;
    make_tables(&GatewayProcess::start(&servers)?.endpoint())?;
    let mut asked = AllAsked::default();
    let mut left_prepared = 0;
    let mut found = Found::default();
    let next = AtomicI64::new(1);
    for round in 1..=rounds {
        let gateway = GatewayProcess::start(&servers)?;
        let load_ms = rng.random_range(80..500);
        let clients_seed = rng.random();
        let more = run_and_kill(gateway, Duration::from_millis(load_ms), &next, clients_seed)?;
        asked.moves.extend(more.moves);
        asked.batches.extend(more.batches);
        left_prepared += count_prepared(&servers)?;

        // A gateway that answers has settled what its predecessor left.
        let gateway = GatewayProcess::start(&servers)?;
        found = check(&servers, &gateway.endpoint(), &asked)
            .with_context(|| format!("round {round}, {SEED}={seed}\n{}", gateway.log()))?;
    }
    println!("asked for moves: {:?}", moves().figures(&asked.moves));
    println!("{left_prepared} prepared transactions were left by kills; {found:?}");
    // A test whose kills never hit a commit proves nothing about commits.
    ensure!(found.acknowledged > 0, "nothing was ever acknowledged");
    ensure!(left_prepared > 0, "no kill ever left a prepared transaction behind");
    Ok(())
}

fn make_tables(gateway: &Endpoint) -> Result<()> {
    let mut client = Client::connect(gateway)?;
    at_once(moves().setup(&mut client))?;
    at_once(BATCHES.setup(&mut client))
}

/// Runs clients for a while, kills the gateway under them, and gives what they asked for.
fn run_and_kill(
    gateway: GatewayProcess,
    load: Duration,
    next: &AtomicI64,
    seed: u64,
) -> Result<AllAsked> {
    let endpoint = gateway.endpoint();
    let stop = AtomicBool::new(false);
    let moves = moves();
    thread::scope(|scope| {
        let (endpoint, stop, moves) = (&endpoint, &stop, &moves);
        let movers: Vec<_> = (0..MOVERS)
            .map(|n| {
                scope.spawn(move || run_client(moves, endpoint, next, stop, seed.wrapping_add(n)))
            })
            .collect();
        let batchers: Vec<_> = (0..BATCHERS)
            .map(|_| scope.spawn(move || run_client(&BATCHES, endpoint, next, stop, seed)))
            .collect();
        thread::sleep(load);
        let killed = gateway.kill9();
        stop.store(true, Ordering::Relaxed);
        let mut asked = AllAsked::default();
        for mover in movers {
            asked.moves.extend(mover.join().expect("a mover panicked")?);
        }
        for batcher in batchers {
            asked.batches.extend(batcher.join().expect("a batcher panicked")?);
        }
        killed?;
        Ok(asked)
    })
}

/// One client: transactions until it is told to stop, or does not know the outcome of the last.
fn run_client(
    workload: &impl Workload,
    endpoint: &Endpoint,
    next: &AtomicI64,
    stop: &AtomicBool,
    seed: u64,
) -> Result<Asked> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut asked = Asked::new();
    let Ok(mut client) = Client::connect(endpoint) else { return Ok(asked) };
    while !stop.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let outcome = at_once(workload.transaction(&mut client, number, &mut rng))?;
        asked.insert(number, outcome.believed.clone());
        match outcome.believed {
            Believed::Acknowledged => (),
            // Outside of a transaction this only gives a warning.
            Believed::Refused => {
                if client.query("ROLLBACK").is_err() {
                    break;
                }
            }
            Believed::Unknown(_) => break,
        }
    }
    Ok(asked)
}

pub(crate) fn count_prepared(servers: &Cluster) -> Result<u64> {
    let mut count = 0;
    for index in 0..servers.servers().len() {
        let mut node = Client::connect(&servers::endpoint(servers, index))?;
        count += node.value("SELECT count(*) FROM pg_prepared_xacts")?.parse::<u64>()?;
    }
    Ok(count)
}

/// Checks the nodes themselves, and at the whole through the gateway.
fn check(servers: &Cluster, gateway: &Endpoint, asked: &AllAsked) -> Result<Found> {
    let left = count_prepared(servers)?;
    ensure!(left == 0, "{left} prepared transactions are left");
    let nodes: Vec<Endpoint> =
        (0..servers.servers().len()).map(|index| servers::endpoint(servers, index)).collect();
    let (mut nodes, mut gateway) = (sessions(&nodes)?, Client::connect(gateway)?);
    let of_moves = at_once(moves().check(&mut nodes, Some(&mut gateway), &asked.moves))?;
    let of_batches = at_once(BATCHES.check(&mut nodes, Some(&mut gateway), &asked.batches))?;
    Ok(of_moves + of_batches)
}
