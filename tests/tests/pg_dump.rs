//! pg_dump through the gateway: one moment of the whole cluster, although money moves meanwhile.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use tutti_gateway::{Config, DefaultDistribution};
use tutti_tests::client::Client;
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::{programs, servers};

const ACCOUNTS: i64 = 200;
const TOTAL: i64 = ACCOUNTS * 100;
const TABLES: &str = "
    CREATE TABLE accounts (id int PRIMARY KEY, balance int NOT NULL) DISTRIBUTE BY HASH (id);
    CREATE TABLE branches (id int PRIMARY KEY, city text);
    INSERT INTO accounts SELECT n, 100 FROM generate_series(1, 200) n;
    INSERT INTO branches VALUES (1, 'Basel'), (2, 'Bern')";

/// Goal: a dump is a snapshot of all nodes, and can be restored. Method: dump while transfers over
/// nodes run, restore into one plain PostgreSQL, add up.
#[test]
fn a_dump_under_load_holds_all_money_and_can_be_restored() -> Result<()> {
    let Some(pg_dump) = programs::postgresql_program("pg_dump") else { return Ok(()) };
    let Some(psql) = programs::postgresql_program("psql") else { return Ok(()) };
    let cluster = TestCluster::start(3)?;
    Client::connect(&cluster.endpoint())?.query(TABLES)?;

    let done = AtomicBool::new(false);
    let dumps = thread::scope(|scope| -> Result<Vec<String>> {
        let (cluster, done) = (&cluster, &done);
        let movers: Vec<_> =
            (0..2).map(|mover| scope.spawn(move || move_money(cluster, mover, done))).collect();
        let dumps = (0..3)
            .map(|_| {
                let mut command = Command::new(&pg_dump);
                command.args(["--table=accounts", "--table=branches"]);
                programs::run(command.arg(cluster.endpoint().url()))
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        for mover in movers {
            let moved = mover.join().expect("a mover does not panic")?;
            ensure!(0 < moved, "no money moved");
        }
        dumps
    })?;

    for dump in dumps {
        let plain = servers::start(1)?;
        let endpoint = servers::endpoint(&plain, 0);
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), &dump)?;
        let mut restore = Command::new(&psql);
        restore.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(file.path());
        programs::run(restore.arg(endpoint.url()))?;
        let mut restored = Client::connect(&endpoint)?;
        let sum: i64 = restored.value("SELECT sum(balance) FROM accounts")?.parse()?;
        ensure!(sum == TOTAL, "the dump holds {sum}, not {TOTAL}");
        ensure!(restored.value("SELECT count(*) FROM accounts")? == ACCOUNTS.to_string());
        ensure!(restored.value("SELECT count(*) FROM branches")? == "2");
    }
    Ok(())
}

/// The whole database, where tables are home by default and some have been spread.
#[test]
fn a_database_with_tables_at_home_and_spread_ones_can_be_dumped() -> Result<()> {
    let Some(pg_dump) = programs::postgresql_program("pg_dump") else { return Ok(()) };
    let servers = servers::start(2)?;
    let default_distribution = DefaultDistribution::Home;
    let config = Config { default_distribution, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(TABLES)?;
    client.query(
        "CREATE TABLE cities (name text PRIMARY KEY) DISTRIBUTE BY REPLICATED;
        INSERT INTO cities VALUES ('Basel'); CREATE VIEW of_both AS SELECT * FROM branches, cities",
    )?;
    let dump = programs::run(Command::new(&pg_dump).arg(cluster.endpoint().url()))?;
    for (table, rows) in [("accounts", 200), ("branches", 2), ("cities", 1)] {
        let copy = format!("COPY public.{table} (");
        let data = dump.split_once(&copy).with_context(|| format!("no rows of {table}"))?.1;
        let found = data.lines().skip(1).take_while(|line| *line != "\\.").count();
        ensure!(found == rows, "{table} has {found} rows in the dump");
    }
    Ok(())
}

/// Transfers from account to account until `done`. Returns how many there were.
fn move_money(cluster: &TestCluster, mover: i64, done: &AtomicBool) -> Result<u64> {
    let mut client = Client::connect(&cluster.endpoint())?;
    let mut moved = 0;
    let mut step = mover;
    while !done.load(Ordering::Relaxed) {
        step += 7;
        // In the order of the numbers, so that nobody waits in a circle.
        let (from, to) = (step % ACCOUNTS + 1, (step * 13 + 5) % ACCOUNTS + 1);
        if from == to {
            continue;
        }
        let (low, high) = (from.min(to), from.max(to));
        client.query("BEGIN")?;
        client.query(&format!("UPDATE accounts SET balance = balance - 1 WHERE id = {low}"))?;
        client.query(&format!("UPDATE accounts SET balance = balance + 1 WHERE id = {high}"))?;
        client.query("COMMIT").context("a transfer")?;
        moved += 1;
    }
    Ok(moved)
}
