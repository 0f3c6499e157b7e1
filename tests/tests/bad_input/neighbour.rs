//! The others: what must go on as if nothing had happened.
//!
//! Owns: the tables, a client that checks that its answers are its own, panics anywhere in the
//! process, and whether nodes are left with anything to do.

use std::panic;
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tutti_gateway::{Config, PoolConfig};
use tutti_tests::client::{Client, SILENCE_LIMIT};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

/// What the tests' sessions find; `t` and `copied` are theirs, `witness` is only read.
pub const TABLES: [&str; 5] = [
    "CREATE TABLE copied (id int, v text)",
    "CREATE TABLE t (id int PRIMARY KEY, v text) DISTRIBUTE BY HASH (id)",
    "CREATE TABLE witness (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)",
    "INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, 20) n",
    "INSERT INTO witness SELECT generate_series(1, 20)",
];

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on the gateway's panics are noted: its threads survive theirs. A test's own panic is
/// that test's failure, and none of the tests' beside it.
pub fn watch_for_panics() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !info.location().is_some_and(|place| place.file().starts_with("tests/")) {
                PANICS.lock().unwrap_or_else(|broken| broken.into_inner()).push(info.to_string());
            }
            usual(info);
        }));
    });
}

fn panics() -> Vec<String> {
    PANICS.lock().unwrap_or_else(|broken| broken.into_inner()).clone()
}

/// Two nodes and a gateway with so many connections to each.
pub fn start(size: usize) -> Result<TestCluster> {
    watch_for_panics();
    let servers = servers::start(2)?;
    let pool = PoolConfig { size, ..PoolConfig::default() };
    let config = Config { pool, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    let mut maker = Client::connect(&cluster.endpoint())?;
    for statement in TABLES {
        maker.query(statement)?;
    }
    Ok(cluster)
}

/// Another client's session on the same gateway.
pub struct Neighbour {
    client: Client,
    asked: u64,
}

impl Neighbour {
    /// Begins its session.
    pub fn of(cluster: &TestCluster) -> Result<Self> {
        Ok(Self { client: Client::connect(&cluster.endpoint())?, asked: 0 })
    }

    /// Asks all nodes for what no other client asks for, and checks the answer.
    pub fn check(&mut self) -> Result<()> {
        self.asked += 1;
        let asked = self.asked;
        let rows = self
            .client
            .query(&format!("SELECT id + 1000 * {asked} FROM witness ORDER BY id"))
            .context("a neighbour is disturbed")?;
        let expected: Vec<_> =
            (1..=20).map(|id| vec![Some((id + 1000 * asked).to_string())]).collect();
        ensure!(rows == expected, "a neighbour has the wrong answer: {rows:?}");
        let panics = panics();
        ensure!(panics.is_empty(), "panics: {panics:?}");
        Ok(())
    }

    /// Waits until all connections are back in the pool, and no backend has anything to do.
    pub fn see_all_quiet(&mut self, cluster: &TestCluster) -> Result<()> {
        const BUSY: &str = "SELECT count(*) FROM pg_stat_activity WHERE state <> 'idle' \
                            AND application_name = 'tutti-tests' AND pid <> pg_backend_pid()";
        let deadline = Instant::now() + SILENCE_LIMIT;
        loop {
            let mut busy = String::new();
            for node in cluster.nodes() {
                busy += &Client::connect(&node)?.value(BUSY)?;
            }
            let pool = self.client.value("SHOW tutti.pool")?;
            if busy == "00" && pool.matches("0 lent").count() == 2 {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "still at work: {busy}, {pool}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
