//! SERIALIZABLE over two nodes through the gateway, where something goes wrong on the way: a ticket, a
//! savepoint, a sentinel, what cannot be prepared.
//!
//! The classic anomalies are in `anomalies`, random histories in `history`, every order of small worlds in
//! `crates/sim` (`serial`).

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tutti_tests::answer::Answer;
use tutti_tests::client::Client;
use tutti_tests::gateway::TestCluster;

const PATIENCE: Duration = Duration::from_secs(30);
/// Until all sentinels have been relieved twice.
const RELIEFS: Duration = Duration::from_millis(2_600);
const BEGIN: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE";

/// A cluster of two, with a row of which we know where it is on each.
struct World {
    cluster: TestCluster,
    rows: [String; 2],
}

impl World {
    fn start() -> Result<Self> {
        let cluster = TestCluster::start(2)?;
        Client::connect(&cluster.endpoint())?.query(
            "CREATE TABLE s (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
             INSERT INTO s SELECT n, 0 FROM generate_series(1, 50) n",
        )?;
        let row =
            |index: usize| Client::connect(&cluster.nodes()[index])?.value("SELECT min(id) FROM s");
        let rows = [row(0)?, row(1)?];
        Ok(Self { cluster, rows })
    }

    fn session(&self) -> Result<Client> {
        Client::connect(&self.cluster.endpoint())
    }

    fn node(&self, index: usize) -> Result<Client> {
        Client::connect(&self.cluster.nodes()[index])
    }

    fn read(&self, node: usize) -> String {
        format!("SELECT v FROM s WHERE id = {}", self.rows[node])
    }

    fn write(&self, node: usize) -> String {
        format!("UPDATE s SET v = v + 1 WHERE id = {}", self.rows[node])
    }

    /// The other half of a write skew with a transaction that reads on node 1 and writes on node 2.
    fn commit_opposite(&self) -> Result<()> {
        let mut other = self.session()?;
        for sql in [BEGIN, &self.read(1), &self.write(0), "COMMIT"] {
            other.query(sql)?;
        }
        Ok(())
    }
}

fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !holds()? {
        ensure!(started.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// What is flushed on the node waits for this standby.
fn set_standby(node: &mut Client, name: &str) -> Result<()> {
    node.query(&format!("ALTER SYSTEM SET synchronous_standby_names = '{name}'"))?;
    node.query("SELECT pg_reload_conf()")?;
    std::thread::sleep(Duration::from_millis(500));
    Ok(())
}

fn state(answer: &Answer) -> String {
    answer.error().map_or("done".to_owned(), |error| error.sqlstate().to_owned())
}

fn told(session: &mut Client, sql: &str) -> Result<String> {
    Ok(state(&session.simple(sql, &[])?))
}

/// How a ticket fails.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Timeout,
    Cancel,
}

/// T reads on node 1; its ticket on `node` fails, it goes back to its savepoint, and writes on node 2. U does
/// the opposite. They must not both commit.
fn skew_behind_a_failed_ticket(world: &World, node: usize, trouble: Trouble) -> Result<()> {
    let mut t = world.session()?;
    let mut blocker = world.node(node)?;
    let sentinel = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name = 'tutti sentinel' AND xact_start IS NOT NULL";
    // So that one stands; it is none of what fails here.
    for sql in [BEGIN, &world.read(0), &world.read(1), "ROLLBACK"] {
        t.query(sql)?;
    }
    until("a sentinel", || Ok(blocker.value(sentinel)? != "0"))?;
    for sql in [BEGIN, &world.read(0), "SAVEPOINT a"] {
        t.query(sql)?;
    }
    if matches!(trouble, Trouble::Timeout) {
        t.query("SET LOCAL statement_timeout = '300ms'")?;
    }
    blocker.query("BEGIN; LOCK TABLE tutti.ticket IN SHARE MODE")?;
    let failed = std::thread::scope(|scope| -> Result<String> {
        let waiting = scope.spawn(|| told(&mut t, &world.read(1)));
        if matches!(trouble, Trouble::Cancel) {
            let cancel = "SELECT count(pg_cancel_backend(pid))
                FROM pg_locks JOIN pg_stat_activity USING (pid)
                WHERE NOT granted AND relation = 'tutti.ticket'::regclass
                    AND query LIKE '%insert_ticket%'";
            // Within a transaction, what is shown of activity stays what it was at the first look.
            let mut watcher = world.node(node)?;
            until("the ticket", || Ok(watcher.value(cancel)? != "0"))?;
        }
        waiting.join().expect("a session does not panic")
    })?;
    blocker.query("ROLLBACK")?;
    ensure!(failed != "done", "{node}, {trouble:?}: the ticket did not fail");
    let back = told(&mut t, "ROLLBACK TO SAVEPOINT a")?;
    let wrote = match back.as_str() {
        "done" => told(&mut t, &world.write(1))?,
        _ => back.clone(),
    };
    world.commit_opposite()?;
    // A transaction that has failed answers COMMIT with ROLLBACK, and no error.
    let answer = t.simple("COMMIT", &[])?;
    let is_committed = answer.error().is_none() && format!("{answer:?}").contains("\"COMMIT\"");
    println!("node {}, {trouble:?}: {failed}, {back}, {wrote}, {}", node + 1, state(&answer));
    ensure!(!is_committed, "both have committed: node {}, {trouble:?}", node + 1);
    ensure!(wrote == "done", "it could not go on behind its savepoint: {back}, {wrote}");
    Ok(())
}

#[test]
fn a_ticket_that_failed_does_not_make_its_node_a_bystander() -> Result<()> {
    let world = World::start()?;
    skew_behind_a_failed_ticket(&world, 0, Trouble::Timeout)?;
    skew_behind_a_failed_ticket(&world, 0, Trouble::Cancel)?;
    skew_behind_a_failed_ticket(&world, 1, Trouble::Timeout)?;
    skew_behind_a_failed_ticket(&world, 1, Trouble::Cancel)
}

/// What ends a wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ending {
    Cancel,
    StatementTimeout,
    /// Set in the transaction.
    Local,
    /// Set after a savepoint.
    Nested,
    LockTimeout,
}

impl Ending {
    const ALL: [Self; 5] =
        [Self::Cancel, Self::StatementTimeout, Self::Local, Self::Nested, Self::LockTimeout];

    /// A transaction, in which it is set.
    fn begin(self, session: &mut Client) -> Result<()> {
        match self {
            Self::Cancel | Self::Local | Self::Nested => (),
            Self::StatementTimeout => drop(session.query("SET statement_timeout = '400ms'")?),
            Self::LockTimeout => drop(session.query("SET lock_timeout = '400ms'")?),
        }
        session.query(BEGIN)?;
        match self {
            Self::Local => drop(session.query("SET LOCAL statement_timeout = '400ms'")?),
            Self::Nested => {
                session.query("SAVEPOINT a")?;
                session.query("SET LOCAL statement_timeout = '400ms'")?;
            }
            Self::Cancel | Self::StatementTimeout | Self::LockTimeout => (),
        }
        Ok(())
    }

    /// Runs `sql`, which waits; this must end it soon.
    fn ends(self, world: &World, session: &mut Client, sql: &str) -> Result<()> {
        let process_id = session.value("SELECT pg_backend_pid()")?;
        let begun = Instant::now();
        let answered = std::thread::scope(|scope| -> Result<String> {
            let waiting = scope.spawn(|| told(session, sql));
            if self == Self::Cancel {
                let mut other = world.session()?;
                std::thread::sleep(Duration::from_millis(400));
                other.query(&format!("SELECT pg_cancel_backend({process_id})"))?;
            }
            waiting.join().expect("a session does not panic")
        })?;
        let expected = if self == Self::LockTimeout { "55P03" } else { "57014" };
        let took = begun.elapsed();
        println!("{self:?}, {sql}: {answered} after {took:?}");
        ensure!(answered == expected, "{self:?}, {sql}: {answered}");
        ensure!(took < Duration::from_secs(3), "{self:?}, {sql}: after {took:?}");
        session.query("ROLLBACK")?;
        Ok(())
    }
}

/// Whatever a transaction waits for at SERIALIZABLE, its client can end it.
#[test]
fn every_wait_ends_when_its_client_says_so() -> Result<()> {
    let world = World::start()?;
    let (read_1, read_2, write_2) = (world.read(0), world.read(1), world.write(1));
    let (mut node_1, mut node_2) = (world.node(0)?, world.node(1)?);
    for sql in [BEGIN, &read_1, &read_2, "ROLLBACK"] {
        world.session()?.query(sql)?;
    }
    // For its ticket on a node: on the first, and on one that joins.
    for ending in Ending::ALL {
        for node in [&mut node_1, &mut node_2] {
            let mut t = world.session()?;
            ending.begin(&mut t)?;
            t.query(&read_1)?;
            node.query("BEGIN; LOCK TABLE tutti.ticket IN SHARE MODE")?;
            ending.ends(&world, &mut t, &read_2)?;
            node.query("ROLLBACK")?;
        }
    }
    // For a sentinel. None waits for a lock.
    let endings = Ending::ALL.into_iter().filter(|ending| *ending != Ending::LockTimeout);
    for ending in endings.clone() {
        let mut t = world.session()?;
        ending.begin(&mut t)?;
        t.query(&read_1)?;
        node_2.query("BEGIN")?;
        let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = 'tutti sentinel'";
        until("the lock", || {
            let lock = "LOCK TABLE tutti.ticket IN ACCESS EXCLUSIVE MODE NOWAIT";
            node_2.query("ROLLBACK")?;
            node_2.query("BEGIN")?;
            node_2.query(kill)?;
            Ok(told(&mut node_2, lock)? == "done")
        })?;
        ending.ends(&world, &mut t, &read_2)?;
        node_2.query("ROLLBACK")?;
    }
    // For its permit to vote.
    for ending in endings {
        let (mut t, mut u) = (world.session()?, world.session()?);
        until("two in a transaction", || {
            let begun =
                u.query(BEGIN).and_then(|_| u.query(&read_1)).and_then(|_| u.query(&read_2));
            if begun.is_err() {
                u.query("ROLLBACK")?;
            }
            Ok(begun.is_ok())
        })?;
        ending.begin(&mut t)?;
        t.query(&read_1)?;
        t.query(&write_2)?;
        set_standby(&mut node_2, "nobody")?;
        std::thread::scope(|scope| -> Result<()> {
            let first = scope.spawn(|| told(&mut u, "COMMIT"));
            let waits = "SELECT count(*) FROM pg_stat_activity
                WHERE wait_event = 'SyncRep' AND query LIKE 'PREPARE%'";
            until("the first vote", || Ok(node_2.value(waits)? == "1"))?;
            let ended = ending.ends(&world, &mut t, "COMMIT");
            set_standby(&mut node_2, "")?;
            let first = first.join().expect("a session does not panic")?;
            ended?;
            ensure!(first == "done", "{first}");
            Ok(())
        })?;
    }
    Ok(())
}

/// What is said of a transaction while it goes on does not take its tickets away, nor ask for new ones.
#[test]
fn tickets_outlive_savepoints_and_read_only() -> Result<()> {
    let world = World::start()?;
    let (read_1, read_2, write_2) = (world.read(0), world.read(1), world.write(1));
    let read_only = "SET TRANSACTION READ ONLY";
    let harmless: [&[&str]; 3] = [
        &[&read_1, read_only, &read_2],
        &[&read_1, "SAVEPOINT a", read_only, &read_2, "SAVEPOINT b", "ROLLBACK TO b", &read_1],
        &[&read_1, &read_2, read_only, "SAVEPOINT a", "ROLLBACK TO a", &read_1],
    ];
    for script in harmless {
        let mut session = world.session()?;
        session.query(BEGIN)?;
        for sql in script {
            let answered = told(&mut session, sql)?;
            ensure!(answered == "done", "{script:?}: {sql}: {answered}");
        }
        let answered = told(&mut session, "COMMIT")?;
        ensure!(answered == "done", "{script:?}: {answered}");
    }
    let skewed: [&[&str]; 3] = [
        &[&read_1, "SAVEPOINT a", &read_2, read_only, "ROLLBACK TO a", &write_2],
        &[&read_1, "SAVEPOINT a", read_only, &read_2, "ROLLBACK TO a", &write_2],
        &[
            &read_1,
            "SAVEPOINT a",
            &read_2,
            "ROLLBACK TO a",
            "SAVEPOINT a",
            "ROLLBACK TO a",
            &write_2,
        ],
    ];
    for script in skewed {
        let mut session = world.session()?;
        session.query(BEGIN)?;
        for sql in script {
            session.query(sql).with_context(|| format!("{script:?}"))?;
        }
        // The sentinels that saw the tickets of before have gone.
        std::thread::sleep(RELIEFS);
        world.commit_opposite()?;
        let answered = told(&mut session, "COMMIT")?;
        ensure!(answered == "40001", "{script:?}: {answered}");
    }
    Ok(())
}

/// A vote was counted on node 1, and then its sentinel is ended by force, before node 2 has voted.
#[test]
fn a_sentinel_that_is_ended_between_votes_and_decision_is_missed() -> Result<()> {
    let world = World::start()?;
    let (mut node_1, mut node_2) = (world.node(0)?, world.node(1)?);
    let mut t = world.session()?;
    for sql in [BEGIN, &world.read(0), &world.write(1)] {
        t.query(sql)?;
    }
    // Its vote on node 2 waits for a standby that is not there.
    set_standby(&mut node_2, "nobody")?;
    let answered = std::thread::scope(|scope| -> Result<String> {
        let committing = scope.spawn(|| told(&mut t, "COMMIT"));
        let is_prepared = "SELECT count(*) FROM pg_prepared_xacts";
        until("the vote of node 1", || Ok(node_1.value(is_prepared)? == "1"))?;
        let waits = "SELECT count(*) FROM pg_stat_activity
            WHERE wait_event = 'SyncRep' AND query LIKE 'PREPARE%'";
        until("the vote of node 2", || Ok(node_2.value(waits)? == "1"))?;
        node_1.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE application_name = 'tutti sentinel'",
        )?;
        set_standby(&mut node_2, "")?;
        committing.join().expect("a session does not panic")
    })?;
    ensure!(answered == "40001", "{answered}");
    ensure!(
        node_1.value("SELECT sum(v) FROM s")? == "0"
            && node_2.value("SELECT sum(v) FROM s")? == "0"
    );
    // The next one finds a sentinel again.
    for sql in [BEGIN, &world.read(0), &world.write(1), "COMMIT"] {
        t.query(sql)?;
    }
    Ok(())
}

/// Node 1 is where the decision is made if it cannot prepare; all else is as with any other.
#[test]
fn what_cannot_be_prepared_is_no_obstacle() -> Result<()> {
    let world = World::start()?;
    let mut t = world.session()?;
    t.query("CREATE TEMPORARY TABLE mine (v int)")?;
    for did in ["INSERT INTO mine VALUES (1)", "NOTIFY news", "SELECT count(*) FROM mine"] {
        for sql in [BEGIN, &world.read(0), &world.write(1), did, "COMMIT"] {
            t.query(sql).with_context(|| did.to_owned())?;
        }
        // A write skew in which it is first, and one in which it is second.
        for is_first in [true, false] {
            for sql in [BEGIN, &world.read(0), &world.write(1), did] {
                t.query(sql)?;
            }
            let mut u = world.session()?;
            for sql in [BEGIN, &world.read(1), &world.write(0)] {
                u.query(sql)?;
            }
            let (first, second) = if is_first { (&mut t, &mut u) } else { (&mut u, &mut t) };
            let answers = (told(first, "COMMIT")?, told(second, "COMMIT")?);
            let expected = ("done".to_owned(), "40001".to_owned());
            ensure!(answers == expected, "{did}, first: {is_first}: {answers:?}");
        }
    }
    ensure!(t.value("SELECT count(*) FROM mine")? == "2", "one commit and one first of a skew");
    Ok(())
}
