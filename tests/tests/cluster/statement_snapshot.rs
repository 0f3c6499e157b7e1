//! The snapshot of a statement that reads several nodes outside of a transaction.
//!
//! Owns: that its parts are of one moment however the statement is sent and whatever binds its session, and that a node
//! which does not answer ends it, while nobody waits for it in a room.
//! Never: looks at blocks (`default_isolation.rs`, `changes_of_one_moment.rs`).

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tutti_tests::answer::Outcome;
use tutti_tests::client::{Client, Endpoint, Flight, Request};
use tutti_tests::gateway::TestCluster;
use tutti_tests::programs;

const ROWS: usize = 60;
const SUM: i64 = 100 * ROWS as i64;

/// Each gives one sum of all balances, or rows whose first columns are added up.
const READS: [&str; 6] = [
    "SELECT sum(balance) FROM account",
    "SELECT balance FROM account",
    "SELECT sum(balance) FROM account GROUP BY id % 3",
    "SELECT a.balance FROM account a JOIN account b ON b.id = a.id WHERE EXISTS (SELECT FROM copies c WHERE c.id <> a.id)",
    "SELECT a.balance FROM account a JOIN other o ON o.of = a.id",
    "COPY (SELECT sum(balance) FROM account) TO STDOUT",
];

/// What a session may keep a connection for.
const BOUND_BY: [&str; 3] =
    ["SELECT 1", "CREATE TEMPORARY TABLE mine (a int)", "SELECT pg_advisory_lock(1)"];

fn make_tables(endpoint: &Endpoint) -> Result<Client> {
    let mut owner = Client::connect(endpoint)?;
    for sql in [
        "CREATE TABLE account (id int PRIMARY KEY, balance int) DISTRIBUTE BY HASH (id)",
        "CREATE TABLE other (id int PRIMARY KEY, of int) DISTRIBUTE BY HASH (id)",
        "CREATE TABLE copies (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED",
        "INSERT INTO copies VALUES (1), (2)",
    ] {
        owner.query(sql)?;
    }
    owner.query(&format!(
        "INSERT INTO account SELECT g, 100 FROM generate_series(1, {ROWS}) AS g"
    ))?;
    owner.query(&format!(
        "INSERT INTO other SELECT g, {ROWS} + 1 - g FROM generate_series(1, {ROWS}) AS g"
    ))?;
    Ok(owner)
}

fn transfer(endpoint: &Endpoint, seed: usize, stop: Instant) -> Result<usize> {
    let mut client = Client::connect(endpoint)?;
    let mut done = 0;
    let mut number = seed;
    while Instant::now() < stop {
        number = number.wrapping_mul(25_214_903_917).wrapping_add(11);
        let (from, to) = ((number >> 20) % ROWS + 1, (number >> 33) % ROWS + 1);
        client.query("BEGIN")?;
        for (id, sign) in [(from.min(to), '-'), (from.max(to), '+')] {
            client
                .query(&format!("UPDATE account SET balance = balance {sign} 7 WHERE id = {id}"))?;
        }
        client.query("COMMIT")?;
        done += 1;
    }
    Ok(done)
}

#[test]
fn sums_are_of_one_moment_however_they_are_asked_for() -> Result<()> {
    const RUN: Duration = Duration::from_secs(6);
    let cluster = TestCluster::start(3)?;
    let endpoint = cluster.endpoint();
    let mut owner = make_tables(&endpoint)?;
    let stop = Instant::now() + RUN;
    let transfers: Vec<_> = (1..=3)
        .map(|seed| {
            let endpoint = endpoint.clone();
            std::thread::spawn(move || transfer(&endpoint, seed, stop))
        })
        .collect();
    let mut reader = Client::connect(&endpoint)?;
    let mut rounds = 0;
    while Instant::now() < stop {
        let is_bound = BOUND_BY[rounds % BOUND_BY.len()];
        reader.query(is_bound)?;
        for sql in READS {
            let request = Request { sql, types: &[], arguments: &[], row_limit: 0 };
            for answer in
                [reader.simple(sql, b"")?, reader.extended(&request, Flight::OneFlight, b"")?]
            {
                ensure!(answer.error().is_none(), "{sql}: {:?}", answer.error());
                let mut values: Vec<_> =
                    answer.texts().into_iter().filter_map(|mut row| row.swap_remove(0)).collect();
                for outcome in &answer.outcomes {
                    if let Outcome::CopyOut { data, .. } = outcome {
                        values.extend(String::from_utf8(data.clone())?.lines().map(str::to_owned));
                    }
                }
                let numbers = values.iter().map(|value| value.parse::<i64>());
                let sum: i64 =
                    numbers.sum::<Result<_, _>>().with_context(|| format!("{sql}: {values:?}"))?;
                ensure!(sum == SUM, "{sql} after {is_bound}: {sum}, not {SUM}");
            }
        }
        reader.query("DROP TABLE IF EXISTS mine; SELECT pg_advisory_unlock_all()")?;
        rounds += 1;
    }
    ensure!(3 < rounds, "only {rounds} rounds");
    for done in transfers {
        ensure!(0 < done.join().expect("it does not panic")?, "nothing was transferred");
    }
    ensure!(owner.value("SELECT sum(balance) FROM account")? == SUM.to_string());
    Ok(())
}

/// SIGSTOP, and SIGCONT when it is dropped, of what serves clients on a node.
struct Paused(Vec<String>);

impl Paused {
    fn backends_of(node: &Endpoint) -> Result<Self> {
        let mut observer = Client::connect(node)?;
        let rows = observer.query(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
        )?;
        let paused = Self(rows.into_iter().filter_map(|row| row[0].clone()).collect());
        paused.signal("-STOP")?;
        Ok(paused)
    }

    fn signal(&self, signal: &str) -> Result<()> {
        programs::run(Command::new("kill").arg(signal).args(&self.0))?;
        Ok(())
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.signal("-CONT").expect("backends that were paused are there");
    }
}

#[test]
fn a_node_that_hangs_ends_the_statement_and_no_commit_waits_for_it() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let endpoint = cluster.endpoint();
    let mut owner = make_tables(&endpoint)?;
    let mut reader = Client::connect(&endpoint)?;
    ensure!(reader.value("SELECT sum(balance) FROM account")? == SUM.to_string());
    owner.query("CREATE TABLE local (n int) DISTRIBUTE BY HOME")?;
    let paused = Paused::backends_of(&cluster.nodes()[2])?;
    let reading = std::thread::spawn(move || -> Result<_> {
        let answer = reader.simple("SELECT sum(balance) FROM account", b"")?;
        Ok((answer.error().map(|error| error.sqlstate().to_owned()), reader))
    });
    // Of node 1 alone: it may not begin while the snapshot room is open.
    let patience = Instant::now() + Duration::from_secs(20);
    let mut written = 0;
    while !reading.is_finished() && Instant::now() < patience {
        owner.query("INSERT INTO local VALUES (1)")?;
        written += 1;
    }
    ensure!(0 < written, "nothing could be written while a node hung");
    ensure!(reading.is_finished(), "the statement waits for a node that hangs");
    let (error, mut reader) = reading.join().expect("it does not panic")?;
    ensure!(error.as_deref().is_some_and(|of| ["40001", "08006"].contains(&of)), "{error:?}");
    drop(paused);
    let sum = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(100));
        reader.value("SELECT sum(balance) FROM account").ok()
    });
    ensure!(sum == Some(SUM.to_string()), "{sum:?}");
    Ok(())
}

/// Also where the node is the first, which is asked for the timeouts of whoever waits, and however often others ask for
/// what it has.
#[test]
fn who_needs_no_node_that_hangs_goes_on_beside_those_who_do() -> Result<()> {
    const HANGS: Duration = Duration::from_secs(8);
    const SETTLED: Duration = Duration::from_secs(4);
    let cluster = TestCluster::start(3)?;
    let endpoint = cluster.endpoint();
    make_tables(&endpoint)?;
    for (hung, alive) in [(0, 1), (2, 1)] {
        let id = Client::connect(&cluster.nodes()[alive])?.value("SELECT min(id) FROM account")?;
        let write = format!("UPDATE account SET balance = balance WHERE id = {id}");
        let mut writer = Client::connect(&endpoint)?;
        let mut readers = Vec::new();
        for _ in 0..3 {
            let mut client = Client::connect(&endpoint)?;
            ensure!(client.value("SELECT sum(balance) FROM account")? == SUM.to_string());
            readers.push(client);
        }
        writer.query(&write)?;
        let paused = Paused::backends_of(&cluster.nodes()[hung])?;
        let begun = Instant::now();
        let readers: Vec<_> = readers
            .into_iter()
            .map(|mut client| {
                std::thread::spawn(move || {
                    // It is told that there is no snapshot, asks again, and may lose its session.
                    while begun.elapsed() < HANGS
                        && client.simple("SELECT sum(balance) FROM account", b"").is_ok()
                    {
                    }
                })
            })
            .collect();
        let (mut settled, mut longest) = (0, Duration::ZERO);
        while begun.elapsed() < HANGS {
            let since = begun.elapsed();
            writer.query(&write)?;
            longest = longest.max(begun.elapsed() - since);
            settled += usize::from(SETTLED < since && begun.elapsed() < HANGS);
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(paused);
        println!("node {} hung: the longest write took {longest:?}", hung + 1);
        ensure!(0 < settled, "while node {} hung, no write went through", hung + 1);
        readers.into_iter().for_each(|reader| reader.join().expect("it does not panic"));
        let sum = (0..100).find_map(|_| {
            std::thread::sleep(Duration::from_millis(100));
            Client::connect(&endpoint).ok()?.value("SELECT sum(balance) FROM account").ok()
        });
        ensure!(sum == Some(SUM.to_string()), "{sum:?}");
    }
    Ok(())
}

/// A reader that waits for a table's lock, and is run again after a deadlock, waits outside of the room: the lock's holder
/// has to commit.
#[test]
fn readers_that_wait_for_locks_keep_nobody_from_committing() -> Result<()> {
    const RUN: Duration = Duration::from_secs(5);
    let cluster = TestCluster::start(3)?;
    let endpoint = cluster.endpoint();
    let mut owner = make_tables(&endpoint)?;
    let stop = Instant::now() + RUN;
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let endpoint = endpoint.clone();
            std::thread::spawn(move || -> Result<usize> {
                let mut client = Client::connect(&endpoint)?;
                let mut sums = 0;
                while Instant::now() < stop {
                    let sum = client.value("SELECT sum(balance) FROM account")?;
                    ensure!(sum == SUM.to_string(), "{sum}");
                    sums += 1;
                }
                Ok(sums)
            })
        })
        .collect();
    let mut commits = 0;
    while Instant::now() < stop {
        owner.query("BEGIN")?;
        owner.query("LOCK TABLE account IN ACCESS EXCLUSIVE MODE")?;
        owner.query("UPDATE account SET balance = balance WHERE id < 10")?;
        owner.query("COMMIT")?;
        commits += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    for sums in readers {
        ensure!(0 < sums.join().expect("it does not panic")?, "a reader has read nothing");
    }
    // How many there are is a matter of how busy the machine is.
    ensure!(1 < commits, "only {commits} commits in {RUN:?}");
    Ok(())
}
