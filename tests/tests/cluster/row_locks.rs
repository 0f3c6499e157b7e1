//! FOR UPDATE with LIMIT over several nodes: a queue whose jobs are on all of them.

use std::collections::BTreeMap;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::TestCluster;

const JOBS: i32 = 120;
const WORKERS: usize = 5;

/// Two nodes and jobs 1 to [`JOBS`], all of them new.
fn queue() -> Result<TestCluster> {
    let cluster = TestCluster::start(2)?;
    Client::connect(&cluster.endpoint())?.query(&format!(
        "CREATE TABLE jobs (id int PRIMARY KEY, state text NOT NULL, prio int) DISTRIBUTE BY HASH (id);
         INSERT INTO jobs SELECT n, 'new', n % 3 FROM generate_series(1, {JOBS}) n"
    ))?;
    Ok(cluster)
}

fn begun(cluster: &TestCluster) -> Result<Client> {
    let mut session = Client::connect(&cluster.endpoint())?;
    session.query("BEGIN")?;
    Ok(session)
}

fn ids(session: &mut Client, sql: &str) -> Result<Vec<i32>> {
    let rows = session.query(sql)?;
    let id = |row: &Vec<Option<String>>| row.first()?.as_deref()?.parse().ok();
    rows.iter().map(id).collect::<Option<_>>().context("a job's number")
}

/// Which of the first jobs nobody has locked.
fn free(cluster: &TestCluster, below: i32) -> Result<Vec<i32>> {
    let mut session = begun(cluster)?;
    let sql = format!("SELECT id FROM jobs WHERE id < {below} ORDER BY id FOR UPDATE SKIP LOCKED");
    ids(&mut session, &sql)
}

fn sqlstate(session: &mut Client, sql: &str) -> Result<String> {
    let answer = session.simple(sql, &[])?;
    Ok(answer.error().map_or_else(String::new, |error| error.sqlstate().to_owned()))
}

/// Takes jobs until there are none, and returns them in the order in which it got them.
fn work(endpoint: &Endpoint, take: &str, then: Option<&str>) -> Result<Vec<i32>> {
    let mut session = Client::connect(endpoint)?;
    let mut all = Vec::new();
    loop {
        if then.is_some() {
            session.query("BEGIN")?;
        }
        let taken = ids(&mut session, take)?;
        if let Some(then) = then {
            for id in &taken {
                session.query(&then.replace('?', &id.to_string()))?;
            }
            session.query("COMMIT")?;
        }
        if taken.is_empty() {
            return Ok(all);
        }
        all.extend(taken);
    }
}

/// Several workers take all jobs.
fn take_all(cluster: &TestCluster, workers: usize, take: &str, then: Option<&str>) -> Result<()> {
    Client::connect(&cluster.endpoint())?.query("UPDATE jobs SET state = 'new'")?;
    let endpoint = cluster.endpoint();
    let taken = thread::scope(|scope| -> Result<Vec<Vec<i32>>> {
        let begin = |_| scope.spawn(|| work(&endpoint, take, then));
        let workers: Vec<ScopedJoinHandle<'_, _>> = (0..workers).map(begin).collect();
        workers.into_iter().map(|worker| worker.join().expect("it does not panic")).collect()
    })?;
    let mut times: BTreeMap<i32, u32> = BTreeMap::new();
    for id in taken.iter().flatten() {
        *times.entry(*id).or_default() += 1;
    }
    let twice: Vec<_> = times.iter().filter(|(_, times)| 1 < **times).collect();
    ensure!(twice.is_empty(), "taken more than once: {twice:?}");
    let left =
        Client::connect(&endpoint)?.value("SELECT count(*) FROM jobs WHERE state = 'new'")?;
    ensure!(left == "0" && i32::try_from(times.len())? == JOBS, "left: {left}");
    if let [alone] = &taken[..] {
        ensure!(alone.is_sorted(), "not in order: {alone:?}");
    }
    Ok(())
}

#[test]
fn every_job_is_taken_once() -> Result<()> {
    const DONE: &str = "UPDATE jobs SET state = 'done' WHERE id = ?";
    let cluster = queue()?;
    for end in ["FOR UPDATE SKIP LOCKED", "FOR UPDATE"] {
        let first = format!("SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 1 {end}");
        let one = format!("UPDATE jobs SET state = 'done' WHERE id = ({first}) RETURNING id");
        take_all(&cluster, 1, &one, None).with_context(|| format!("alone, {end}"))?;
    }
    // Where a job is waited for, the subquery may find none although there are some, as on one server.
    for end in ["LIMIT 1 FOR UPDATE SKIP LOCKED", "LIMIT 3 FOR NO KEY UPDATE SKIP LOCKED"] {
        let first = format!("SELECT id FROM jobs WHERE state = 'new' ORDER BY prio, id {end}");
        let several = format!("UPDATE jobs SET state = 'done' WHERE id IN ({first}) RETURNING id");
        take_all(&cluster, WORKERS, &several, None).with_context(|| end.to_owned())?;
    }
    for take in [
        "SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 3 FOR UPDATE SKIP LOCKED",
        "SELECT id FROM jobs WHERE state = 'new' LIMIT 2 FOR UPDATE SKIP LOCKED",
        // No deadlock: all lock in one order.
        "SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 3 FOR UPDATE",
    ] {
        take_all(&cluster, WORKERS, take, Some(DONE)).with_context(|| take.to_owned())?;
    }
    Ok(())
}

#[test]
fn rows_that_are_not_returned_are_not_locked() -> Result<()> {
    let cluster = queue()?;
    for (rest, locked) in [
        ("LIMIT 1 FOR UPDATE SKIP LOCKED", 1..2),
        ("LIMIT 3 FOR UPDATE SKIP LOCKED", 1..4),
        ("LIMIT 3 FOR UPDATE", 1..4),
        ("LIMIT 3 FOR UPDATE NOWAIT", 1..4),
        ("FETCH FIRST 4 ROWS ONLY FOR SHARE", 1..5),
        // What is passed over is locked, as on one server.
        ("LIMIT 2 OFFSET 2 FOR UPDATE SKIP LOCKED", 1..5),
        ("LIMIT 2 OFFSET 2 FOR UPDATE", 1..5),
        ("LIMIT 0 FOR UPDATE", 1..1),
    ] {
        let mut session = begun(&cluster)?;
        let sql = format!("SELECT id FROM jobs ORDER BY id {rest}");
        let got = ids(&mut session, &sql)?;
        let offset = if rest.contains("OFFSET") { 2 } else { 0 };
        ensure!(got == locked.clone().skip(offset).collect::<Vec<_>>(), "{sql}: {got:?}");
        let free = free(&cluster, 20)?;
        ensure!(free == (locked.end..20).collect::<Vec<_>>(), "{sql}: free are {free:?}");
    }
    // Any two.
    for end in ["FOR UPDATE SKIP LOCKED", "FOR UPDATE"] {
        let mut session = begun(&cluster)?;
        let got = ids(&mut session, &format!("SELECT id FROM jobs LIMIT 2 {end}"))?;
        let free = free(&cluster, JOBS + 1)?;
        ensure!(free.len() + 2 == usize::try_from(JOBS)?, "free are {free:?}");
        ensure!(got.len() == 2 && got.iter().all(|id| !free.contains(id)), "{got:?}");
    }
    Ok(())
}

#[test]
fn rows_that_others_have_locked() -> Result<()> {
    let cluster = queue()?;
    let mut holder = begun(&cluster)?;
    ensure!(ids(&mut holder, "SELECT id FROM jobs ORDER BY id LIMIT 2 FOR UPDATE")? == [1, 2]);

    let mut session = begun(&cluster)?;
    let skip = "SELECT id FROM jobs ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED";
    ensure!(ids(&mut session, skip)? == [3, 4]);
    let refuse = "SELECT id FROM jobs ORDER BY id LIMIT 1 FOR UPDATE NOWAIT";
    ensure!(sqlstate(&mut session, refuse)? == "55P03");
    ensure!(sqlstate(&mut session, "SELECT 1")? == "25P02");
    session.query("ROLLBACK")?;

    // One that comes later is no one's business.
    session.query("BEGIN; SET LOCAL lock_timeout = '5s'")?;
    for end in ["FOR UPDATE NOWAIT", "FOR UPDATE"] {
        let sql = format!("SELECT id FROM jobs ORDER BY id DESC LIMIT {} {end}", JOBS - 2);
        ensure!(ids(&mut session, &sql)?.len() == usize::try_from(JOBS - 2)?);
    }
    session.query("ROLLBACK")?;

    // What a session waits for is asked again what it is.
    let endpoint = cluster.endpoint();
    let waiting = thread::spawn(move || -> Result<Vec<i32>> {
        let mut session = Client::connect(&endpoint)?;
        ids(&mut session, "SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 3 FOR UPDATE")
    });
    ensure!(cluster.comes_to_wait_for_a_lock(Duration::from_secs(10))?);
    holder.query("UPDATE jobs SET state = 'done' WHERE id = 1; COMMIT")?;
    ensure!(waiting.join().expect("it does not panic")? == [2, 3, 4]);

    let mut session = begun(&cluster)?;
    session.query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobs")?;
    Client::connect(&cluster.endpoint())?.query("UPDATE jobs SET prio = 7 WHERE id = 2")?;
    for end in ["FOR UPDATE SKIP LOCKED", "FOR UPDATE", "FOR UPDATE NOWAIT"] {
        session.query("SAVEPOINT s")?;
        let sql = format!("SELECT id FROM jobs ORDER BY id LIMIT 2 {end}");
        ensure!(sqlstate(&mut session, &sql)? == "40001", "{sql}");
        session.query("ROLLBACK TO s")?;
    }
    Ok(())
}

#[test]
fn nothing_else_is_given_back() -> Result<()> {
    let cluster = queue()?;
    let mut session = begun(&cluster)?;
    session.query(
        "SELECT id FROM jobs WHERE id IN (3, 4, 5, 6) FOR KEY SHARE; SET LOCAL work_mem = '3MB'; \
         UPDATE jobs SET state = 'mine' WHERE id IN (1, 2); SAVEPOINT s",
    )?;
    let skip = "SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED";
    ensure!(ids(&mut session, skip)? == [3]);
    ensure!(free(&cluster, 10)? == [7, 8, 9]);
    ensure!(session.value("SHOW work_mem")? == "3MB");
    session.query("ROLLBACK TO s")?;
    // 3 is as it was before.
    let mut other = begun(&cluster)?;
    let weaker = "SELECT id FROM jobs WHERE id < 10 ORDER BY id FOR NO KEY UPDATE SKIP LOCKED";
    ensure!(ids(&mut other, weaker)? == [3, 4, 5, 6, 7, 8, 9]);
    other.query("ROLLBACK")?;
    // A failed one takes what its savepoint says, and no more.
    let mut holder = begun(&cluster)?;
    holder.query("SELECT id FROM jobs WHERE id = 8 FOR UPDATE")?;
    let refuse = "SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 6 FOR UPDATE NOWAIT";
    ensure!(sqlstate(&mut session, refuse)? == "55P03");
    session.query("ROLLBACK TO s")?;
    ensure!(ids(&mut session, skip)? == [3]);
    session.query("RELEASE s; COMMIT; COMMIT")?;
    ensure!(session.value("SELECT count(*) FROM jobs WHERE state = 'mine'")? == "2");
    Ok(())
}

/// Sessions that lock the same rows in one order do not meet in a circle, for which people write ORDER BY.
#[test]
fn who_locks_in_order_meets_no_deadlock() -> Result<()> {
    const TIMES: i32 = 25;
    let cluster = queue()?;
    let endpoint = cluster.endpoint();
    let lock = &|worker: i32| -> Result<()> {
        let mut session = Client::connect(&endpoint)?;
        for time in 0..TIMES {
            session.query("BEGIN")?;
            let some = format!("(id * 7 + {worker} + {time}) % 3 = 0");
            let found = ids(
                &mut session,
                &format!("SELECT id FROM jobs WHERE {some} ORDER BY id FOR UPDATE"),
            )?;
            ensure!(found.len() == 40 && found.is_sorted(), "{found:?}");
            session.query(&format!("UPDATE jobs SET prio = prio + 1 WHERE {some}"))?;
            session.query("COMMIT")?;
        }
        Ok(())
    };
    thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..4).map(|worker| scope.spawn(move || lock(worker))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("it does not panic"))
    })?;
    let sum = Client::connect(&endpoint)?.value("SELECT sum(prio) FROM jobs")?;
    ensure!(sum == (JOBS + 4 * TIMES * 40).to_string(), "{sum}");
    Ok(())
}

/// How many backends wait for a lock, on all nodes.
fn waiting(cluster: &TestCluster) -> Result<u32> {
    const WAITING: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    let counts = cluster
        .nodes()
        .into_iter()
        .map(|node| Ok(Client::connect(&node)?.value(WAITING)?.parse::<u32>()?));
    counts.sum()
}

/// Without a primary key, too: what a row was when its place was found counts, as on one server.
#[test]
fn a_row_that_changes_while_it_is_waited_for_keeps_its_place() -> Result<()> {
    let cluster = TestCluster::start(2)?;
    let mut other = Client::connect(&cluster.endpoint())?;
    for (table, placement) in [("spread", "HASH (k)"), ("dealt", "ROUND ROBIN")] {
        other.query(&format!(
            "CREATE TABLE {table} (k int, v int, word text) DISTRIBUTE BY {placement};
             INSERT INTO {table} SELECT k, k, 'w' FROM generate_series(1, 12) k"
        ))?;
        other.query("BEGIN")?;
        other.query(&format!("UPDATE {table} SET v = v + 100 WHERE k <= 4"))?;
        let found = thread::scope(|scope| -> Result<Vec<i32>> {
            let endpoint = cluster.endpoint();
            let waiter = scope.spawn(move || {
                let mut session = Client::connect(&endpoint)?;
                session.query("BEGIN")?;
                let sql =
                    format!("SELECT k FROM {table} t WHERE v > 0 ORDER BY v, k LIMIT 3 FOR UPDATE");
                let found = ids(&mut session, &sql)?;
                session.query("COMMIT")?;
                Ok::<_, anyhow::Error>(found)
            });
            while waiting(&cluster)? == 0 {
                ensure!(!waiter.is_finished(), "nobody was waited for");
                thread::sleep(Duration::from_millis(20));
            }
            other.query("COMMIT")?;
            waiter.join().expect("it does not panic")
        })?;
        ensure!(found == [1, 2, 3], "{table}: {found:?}");
    }
    Ok(())
}
