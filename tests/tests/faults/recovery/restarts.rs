//! Nodes are killed and started again under load.
//!
//! Owns: the load: clients that transfer between accounts on any nodes, and one that reads the total.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::TestCluster;
use tutti_tests::{environment, servers};

use super::support::*;

const MOVERS: u64 = 6;
/// How many times to kill; more finds more.
const ROUNDS: &str = "TUTTI_RESTART_ROUNDS";
const ROUNDS_DEFAULT: u64 = 6;

/// What clients did while something was done to the nodes.
#[derive(Debug, Default)]
pub struct Load {
    pub asked: BTreeMap<i64, Believed>,
    pub totals_read: usize,
}

/// Runs clients while `disturb` runs, and a while longer.
pub fn under_load(gateway: &Endpoint, seed: u64, disturb: impl FnOnce() -> Result) -> Result<Load> {
    let stop = AtomicBool::new(false);
    let next = AtomicI64::new(1);
    let totals_read = AtomicUsize::new(0);
    thread::scope(|scope| {
        let movers: Vec<_> = (0..MOVERS)
            .map(|mover| {
                let (stop, next) = (&stop, &next);
                scope.spawn(move || run_mover(gateway, next, stop, seed.wrapping_add(mover)))
            })
            .collect();
        let reader = scope.spawn(|| run_reader(gateway, &stop, &totals_read));
        let disturbed = disturb();
        thread::sleep(Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        let mut load = Load::default();
        for mover in movers {
            load.asked.extend(mover.join().expect("a mover panicked"));
        }
        reader.join().expect("the reader panicked")?;
        load.totals_read = totals_read.load(Ordering::Relaxed);
        disturbed?;
        Ok(load)
    })
}

fn run_mover(
    gateway: &Endpoint,
    next: &AtomicI64,
    stop: &AtomicBool,
    seed: u64,
) -> BTreeMap<i64, Believed> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut asked = BTreeMap::new();
    let mut session = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(client) = session.as_mut() else {
            session = Client::connect(gateway).ok();
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let number = next.fetch_add(1, Ordering::Relaxed);
        // In order of the accounts, so that movers do not deadlock.
        let from = rng.random_range(1..ACCOUNTS);
        let to = rng.random_range(from + 1..=ACCOUNTS);
        let believed = transfer(client, number, from, to);
        if believed != Believed::Acknowledged && client.query("ROLLBACK").is_err() {
            session = None;
        }
        asked.insert(number, believed);
    }
    asked
}

/// Whatever it can read must be right.
fn run_reader(gateway: &Endpoint, stop: &AtomicBool, read: &AtomicUsize) -> Result {
    let mut session = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(client) = session.as_mut() else {
            session = Client::connect(gateway).ok();
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        match client.value("SELECT sum(balance) FROM account") {
            Ok(total) => {
                ensure!(
                    total == (ACCOUNTS * OPENING_BALANCE).to_string(),
                    "a reader saw a total of {total}"
                );
                read.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => session = None,
        }
    }
    Ok(())
}

#[test]
fn a_node_killed_under_load_comes_back_with_every_transaction_whole() -> Result {
    let rounds = environment::number(ROUNDS, ROUNDS_DEFAULT);
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut cluster = TestCluster::start_on(servers::durable(3)?)?;
    let (gateway, nodes) = (cluster.endpoint(), cluster.nodes());
    make_accounts(&gateway)?;
    let mut left_prepared = 0;
    let load = under_load(&gateway, seed, || {
        for _ in 0..rounds {
            thread::sleep(Duration::from_millis(rng.random_range(200..600)));
            let victim = rng.random_range(0..nodes.len());
            cluster.servers_mut().server_mut(victim).kill9()?;
            cluster.servers_mut().server_mut(victim).start()?;
            ensure!(cluster.nodes() == nodes, "a port was taken while the node was away");
            // As soon as it is back: recovery may have been quicker.
            let count =
                Client::connect(&nodes[victim])?.value("SELECT count(*) FROM pg_prepared_xacts")?;
            left_prepared += count.parse::<u32>()?;
            eventually("the node is used again", || {
                Client::connect(&gateway)?.value("SELECT sum(balance) FROM account").map(drop)
            })?;
        }
        Ok(())
    })
    .with_context(|| format!("seed {seed}"))?;
    let count = |kind: fn(&Believed) -> bool| load.asked.values().filter(|b| kind(b)).count();
    println!(
        "{} acknowledged, {} refused, {} unknown; {} totals read; {left_prepared} prepared when back",
        count(|b| *b == Believed::Acknowledged),
        count(|b| *b == Believed::Refused),
        count(|b| matches!(b, Believed::Unknown(_))),
        load.totals_read
    );
    come_to_rest(&nodes)?;
    check(&nodes, &gateway, &load.asked).with_context(|| format!("seed {seed}"))
}
