//! Deadlocks over several nodes: found, one victim, 40P01, and no one else is ended.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tutti_tests::answer::Answer;
use tutti_tests::client::{Client, Flight, Request};
use tutti_tests::conversation;
use tutti_tests::gateway::TestCluster;
use tutti_wire::error_fields::ErrorFields;

/// A deadlock is found within about a second; given up long after.
const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster, and rows of which we know where they are.
struct World {
    cluster: TestCluster,
    /// Two rows on each node, node 1 first.
    rows: Vec<[i32; 2]>,
}

impl World {
    fn start(nodes: u16) -> Result<Self> {
        let cluster = TestCluster::start(nodes)?;
        Client::connect(&cluster.endpoint())?.query(
            "CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
             INSERT INTO t SELECT n, 0 FROM generate_series(1, 60) n",
        )?;
        let mut rows = Vec::new();
        for node in cluster.nodes() {
            let mut node = Client::connect(&node)?;
            let row = |text: String| text.parse::<i32>().context("a row's number");
            rows.push([
                row(node.value("SELECT min(id) FROM t")?)?,
                row(node.value("SELECT max(id) FROM t")?)?,
            ]);
        }
        Ok(Self { cluster, rows })
    }

    fn session(&self) -> Result<Client> {
        Client::connect(&self.cluster.endpoint())
    }

    /// A session whose transaction has updated a row.
    fn holding(&self, row: i32) -> Result<Client> {
        let mut session = self.session()?;
        session.query("BEGIN")?;
        session.query(&update(row))?;
        Ok(session)
    }

    fn node(&self, index: usize) -> Result<Client> {
        Client::connect(&self.cluster.nodes()[index])
    }

    /// Waits until so many backends wait for locks on a node.
    fn await_waiters(&self, index: usize, count: usize) -> Result<()> {
        let mut node = self.node(index)?;
        let waiting = "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted";
        until("the wait", || Ok(node.value(waiting)? == count.to_string()))
    }
}

fn update(row: i32) -> String {
    format!("UPDATE t SET v = v + 1 WHERE id = {row}")
}

fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !holds()? {
        ensure!(started.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

type Waiting = JoinHandle<Result<(Client, Answer)>>;

/// Runs a statement that will wait, by the simple protocol.
fn waiting(mut session: Client, sql: String) -> Waiting {
    std::thread::spawn(move || {
        let answer = session.simple(&sql, &[])?;
        Ok((session, answer))
    })
}

/// The same by the extended protocol.
fn waiting_extended(mut session: Client, sql: String) -> Waiting {
    std::thread::spawn(move || {
        let request = Request { sql: &sql, ..Request::default() };
        let answer = session.extended(&request, Flight::OneFlight, &[])?;
        Ok((session, answer))
    })
}

fn ended(waiting: Waiting) -> Result<(Client, Answer)> {
    waiting.join().expect("it does not panic")
}

/// The statement has succeeded.
fn succeeded(waiting: Waiting) -> Result<Client> {
    let (session, answer) = ended(waiting)?;
    ensure!(answer.error().is_none(), "{answer}");
    Ok(session)
}

/// The statement was ended by us, and says why.
fn is_victim(answer: &Answer) -> Result<ErrorFields> {
    let error = answer.error().context("not the victim")?.clone();
    ensure!(error.sqlstate() == "40P01" && error.message() == "deadlock detected", "{error:?}");
    let hint = error.get(b'H').unwrap_or_default();
    ensure!(hint.contains("over several nodes"), "not ended by the gateway: {error:?}");
    Ok(error)
}

fn waits(waiter: &str, node: usize, blocker: &str) -> String {
    // The number of the transaction that is waited for varies.
    format!("{waiter} waits for ShareLock on transaction N on node n{node}; blocked by {blocker}.")
}

fn detail(error: &ErrorFields) -> Vec<String> {
    let masked = |line: &str| {
        let words = line.split(' ').scan(false, |mask, word| {
            let masked = if *mask { "N" } else { word };
            *mask = word == "transaction";
            Some(masked)
        });
        words.collect::<Vec<_>>().join(" ")
    };
    error.get(b'D').unwrap_or_default().lines().map(masked).collect()
}

#[test]
fn two_sessions_on_two_nodes() -> Result<()> {
    let world = World::start(2)?;
    let [[here, _], [there, _]] = world.rows[..] else { unreachable!("two nodes") };
    let old = world.holding(here)?;
    let young = world.holding(there)?;
    let (old_id, young_id) = (old.process_id, young.process_id);
    let old = waiting(old, update(there));
    world.await_waiters(1, 1)?;
    let started = Instant::now();
    let (mut young, answer) = ended(waiting(young, update(here)))?;
    eprintln!("found after {:?}", started.elapsed());

    let error = is_victim(&answer)?;
    let (one, other) = (format!("rocess {young_id}"), format!("rocess {old_id}"));
    let expected = [
        waits(&format!("P{one}"), 1, &format!("p{other}")),
        waits(&format!("P{other}"), 2, &format!("p{one}")),
    ];
    ensure!(detail(&error) == expected, "{error:?}");
    ensure!(error.get(b'W').is_some_and(|context| context.contains("updating tuple")), "{error:?}");
    ensure!(answer.status == b'E', "the transaction has failed");

    young.query("ROLLBACK")?;
    let mut old = succeeded(old)?;
    old.query("COMMIT")?;
    // The victim can go on, and a later cancellation is one.
    young.query("BEGIN")?;
    let timed_out = young.simple("SET LOCAL statement_timeout = 50; SELECT pg_sleep(60)", &[])?;
    let error = timed_out.error().context("it was to time out")?;
    ensure!(error.sqlstate() == "57014", "{error:?}");
    young.query("ROLLBACK")?;
    let sum = young.value("SELECT sum(v) FROM t")?;
    ensure!(sum == "2", "both updates of the survivor and none of the victim: {sum}");
    Ok(())
}

/// What is prepared on one node holds its locks without a process, while another node still checks a deferred
/// constraint.
#[test]
fn a_commit_that_has_prepared_on_one_node_and_waits_on_another() -> Result<()> {
    let world = World::start(2)?;
    let [[here, _], [there, _]] = world.rows[..] else { unreachable!("two nodes") };
    let mut old = world.session()?;
    old.query(
        "CREATE TABLE child (id int REFERENCES t DEFERRABLE INITIALLY DEFERRED) DISTRIBUTE BY HASH (id)",
    )?;
    old.query(&format!("BEGIN; INSERT INTO child VALUES ({here}), ({there})"))?;
    let mut young = world.session()?;
    young.query(&format!("BEGIN; DELETE FROM t WHERE id = {here}"))?;
    let old = waiting(old, "COMMIT".to_owned());
    world.await_waiters(0, 1)?;
    let mut prepared = world.node(1)?;
    until("the vote", || Ok(prepared.value("SELECT count(*) FROM pg_prepared_xacts")? == "1"))?;
    let (mut young, answer) = ended(waiting(young, format!("DELETE FROM t WHERE id = {there}")))?;
    let error = is_victim(&answer)?;
    ensure!(detail(&error).len() == 2, "{error:?}");
    young.query("ROLLBACK")?;
    let mut old = succeeded(old)?;
    ensure!(old.value("SELECT count(*) FROM child")? == "2");
    Ok(())
}

/// The analysis of a write to a replicated table whose trigger has it locked leaves no lock in the transaction, by
/// Parse, Describe or PREPARE: two that are as far would each wait for the other.
#[test]
fn who_has_prepared_a_write_stands_in_nobodys_way() -> Result<()> {
    let world = World::start(2)?;
    let mut first = world.session()?;
    first.query(
        "CREATE TABLE r (id int PRIMARY KEY, at timestamptz) DISTRIBUTE BY REPLICATED;
         CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
         CREATE TRIGGER noted AFTER INSERT ON r FOR EACH ROW EXECUTE FUNCTION noted()",
    )?;
    let mut second = world.session()?;
    let insert = "INSERT INTO r VALUES ($1, $2)";
    for prepare in [
        format!("P s|{insert}\nD S s\nS"),
        format!("P s|{insert}\nS"),
        format!("Q PREPARE s (int, timestamptz) AS {insert}"),
    ] {
        for session in [&mut first, &mut second] {
            session.query("SET lock_timeout = '20s'; BEGIN; SELECT count(*) FROM r")?;
            let said = conversation::hold(session, &prepare)?;
            ensure!(!said.iter().any(|line| line.starts_with("Error")), "{prepare}: {said:#?}");
        }
        let run = match prepare.starts_with('Q') {
            true => "Q EXECUTE s (1, '2026-01-01')".to_owned(),
            false => "B |s|1|2026-01-01\nE |0\nS".to_owned(),
        };
        let said = conversation::hold(&mut first, &run)?;
        ensure!(!said.iter().any(|line| line.starts_with("Error")), "{prepare}: {said:#?}");
        first.query("ROLLBACK; DEALLOCATE ALL")?;
        let said = conversation::hold(&mut second, &run)?;
        ensure!(!said.iter().any(|line| line.starts_with("Error")), "{prepare}: {said:#?}");
        second.query("ROLLBACK; DEALLOCATE ALL")?;
    }
    Ok(())
}

#[test]
fn three_sessions_on_three_nodes_by_the_extended_protocol() -> Result<()> {
    let world = World::start(3)?;
    let row = |node: usize| world.rows[node][0];
    let first = world.holding(row(0))?;
    let second = world.holding(row(1))?;
    let third = world.holding(row(2))?;
    let first = waiting_extended(first, update(row(1)));
    world.await_waiters(1, 1)?;
    let second = waiting_extended(second, update(row(2)));
    world.await_waiters(2, 1)?;
    let (mut third, answer) = ended(waiting_extended(third, update(row(0))))?;

    let error = is_victim(&answer)?;
    ensure!(detail(&error).len() == 3, "{error:?}");
    third.query("ROLLBACK")?;
    succeeded(second)?.query("COMMIT")?;
    succeeded(first)?.query("COMMIT")?;
    ensure!(third.value("SELECT sum(v) FROM t")? == "4");
    Ok(())
}

/// On one server it would have waited for its locks; here it is ended, and run again after the other.
#[test]
fn an_autocommitted_statement_over_all_nodes_is_run_again() -> Result<()> {
    let world = World::start(2)?;
    let [[here, _], [there, _]] = world.rows[..] else { unreachable!("two nodes") };
    let old = world.holding(here)?;
    let everywhere = waiting(world.session()?, "UPDATE t SET v = v + 10".to_owned());
    world.await_waiters(0, 1)?;
    // The other could not go on if none were ended.
    succeeded(waiting(old, update(there)))?.query("COMMIT")?;
    let mut everywhere = succeeded(everywhere)?;
    ensure!(everywhere.value("SELECT sum(v) - 10 * count(*) FROM t")? == "2");
    Ok(())
}

/// A client of a node that knows nothing of us may be part of a round, but is never its victim.
#[test]
fn a_round_through_a_client_of_a_node() -> Result<()> {
    let world = World::start(2)?;
    let [[here, _], [there, there_too]] = world.rows[..] else { unreachable!("two nodes") };
    let old = world.holding(here)?;
    let young = world.holding(there)?;
    let mut outsider = world.node(1)?;
    outsider.query("BEGIN")?;
    outsider.query(&update(there_too))?;
    let pid = outsider.process_id;
    let outsider = waiting(outsider, update(there));
    world.await_waiters(1, 1)?;
    let old = waiting(old, update(there_too));
    world.await_waiters(1, 2)?;

    let (mut young, answer) = ended(waiting(young, update(here)))?;
    let error = is_victim(&answer)?;
    ensure!(
        error.get(b'D').is_some_and(|detail| detail.contains(&format!("process {pid} of node n2"))),
        "{error:?}"
    );
    young.query("ROLLBACK")?;
    succeeded(outsider)?.query("COMMIT")?;
    succeeded(old)?.query("COMMIT")?;
    Ok(())
}

#[test]
fn a_deadlock_on_one_node_is_left_to_it() -> Result<()> {
    let world = World::start(2)?;
    let [[here, here_too], [there, there_too]] = world.rows[..] else { unreachable!("two nodes") };
    // Both transactions are on two nodes, so that we look as well.
    let mut one = world.holding(here)?;
    one.query(&update(there))?;
    let mut other = world.holding(here_too)?;
    other.query(&update(there_too))?;
    let one = waiting(one, update(here_too));
    world.await_waiters(0, 1)?;
    let other = waiting(other, update(here));

    let mut errors = Vec::new();
    for session in [one, other] {
        // The one that is ended first lets the other go on.
        let (mut session, answer) = ended(session)?;
        errors.extend(answer.error().cloned());
        session.query("ROLLBACK")?;
    }
    let [error] = &errors[..] else { anyhow::bail!("not one victim: {errors:?}") };
    ensure!(error.sqlstate() == "40P01", "{error:?}");
    ensure!(error.get(b'H') == Some("See server log for query details."), "not the node's");
    Ok(())
}

#[test]
fn a_long_wait_without_a_round_is_not_ended() -> Result<()> {
    let world = World::start(2)?;
    let [[here, _], [there, there_too]] = world.rows[..] else { unreachable!("two nodes") };
    let mut holder = world.holding(here)?;
    let one = waiting(world.holding(there)?, update(here));
    let other = waiting(world.holding(there_too)?, update(here));
    world.await_waiters(0, 2)?;

    // The deadlock detector looks many times, and finds none.
    let mut node = world.node(0)?;
    let mut looks = std::collections::BTreeSet::new();
    until("five looks", || {
        let last = "SELECT max(query_start) FROM pg_stat_activity
            WHERE application_name = 'tutti deadlock'";
        looks.extend(Some(node.value(last)?).filter(|at| !at.is_empty()));
        Ok(4 < looks.len())
    })?;
    world.await_waiters(0, 2)?;
    holder.query("COMMIT")?;
    // They wait for each other now, one after the other.
    let (first, second) = if is_done_first(&one, &other)? { (one, other) } else { (other, one) };
    succeeded(first)?.query("COMMIT")?;
    succeeded(second)?.query("COMMIT")?;
    Ok(())
}

/// Whether `one` ends before `other` does.
fn is_done_first(one: &Waiting, other: &Waiting) -> Result<bool> {
    until("the end of a wait", || Ok(one.is_finished() || other.is_finished()))?;
    Ok(one.is_finished())
}
