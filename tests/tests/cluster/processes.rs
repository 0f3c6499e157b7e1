//! Numbers of processes mean the same everywhere that a client meets them: in `pg_backend_pid()`, in
//! views, in functions that take one; also where waiter and holder work on a node other than 1.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::BytesMut;
use tutti_gateway::{Config, DefaultDistribution};
use tutti_tests::client::{Client, Flight, Request, text_arguments};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;
use tutti_wire::frontend::put_query;

/// Long after anything that is to happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// All on node 1; each table on one of them; a table of whose rows some are on node 2.
fn worlds() -> Result<[(&'static str, TestCluster); 2]> {
    let start = |default_distribution| {
        let servers = servers::start(2)?;
        let config = Config { default_distribution, ..config(&servers, String::new()) };
        TestCluster::start_configured(servers, config)
    };
    let (home, spread) = (start(DefaultDistribution::Home)?, start(DefaultDistribution::Home)?);
    Client::connect(&home.endpoint())?.query("CREATE TABLE t (id int PRIMARY KEY, v int)")?;
    Client::connect(&spread.endpoint())?
        .query("CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)")?;
    for cluster in [&home, &spread] {
        Client::connect(&cluster.endpoint())?
            .query("INSERT INTO t SELECT n, 0 FROM generate_series(1, 20) n")?;
    }
    Ok([("home", home), ("spread", spread)])
}

fn send(client: &mut Client, sql: &str) -> Result<()> {
    let mut bytes = BytesMut::new();
    put_query(&mut bytes, sql);
    client.send_bytes(&bytes)
}

/// Reads to the end of an answer.
fn ready(client: &mut Client) -> Result<()> {
    while client.receive()?.tag() != b'Z' {}
    Ok(())
}

fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !holds()? {
        ensure!(started.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The one value that a statement with these parameters answers.
fn bound(client: &mut Client, sql: &str, values: &[String]) -> Result<Option<String>> {
    let values: Vec<_> = values.iter().cloned().map(Some).collect();
    let arguments = [text_arguments(&values)];
    let request = Request { sql, arguments: &arguments, ..Request::default() };
    let answer = client.extended(&request, Flight::OneFlight, b"")?;
    ensure!(answer.error().is_none(), "{sql}: {:?}", answer.error());
    Ok(answer.texts().into_iter().flatten().flatten().next())
}

#[test]
fn who_waits_for_whom_is_told_in_numbers_of_sessions() -> Result<()> {
    for (world, cluster) in worlds()? {
        let connect = || Client::connect(&cluster.endpoint());
        let (mut holder, mut waiter, mut third) = (connect()?, connect()?, connect()?);
        let (holding, waiting) = (holder.process_id, waiter.process_id);
        // Of rows on both nodes, one after another.
        for id in 1..=6 {
            holder.query("BEGIN")?;
            holder.query(&format!("UPDATE t SET v = 1 WHERE id = {id}"))?;
            send(&mut waiter, &format!("UPDATE t SET v = 2 WHERE id = {id}"))?;
            let blocking = format!("SELECT pg_blocking_pids({waiting})");
            until(world, || Ok(third.value(&blocking)? == format!("{{{holding}}}")))?;
            let blocked = |waiting, holding| {
                format!("SELECT pg_isolation_test_session_is_blocked({waiting}, '{{{holding}}}')")
            };
            ensure!(third.value(&blocked(waiting, holding))? == "t", "{world}");
            ensure!(third.value(&blocked(holding, waiting))? == "f", "{world}");
            let prepared = "SELECT pg_catalog.pg_isolation_test_session_is_blocked($1, $2)";
            let values = [waiting.to_string(), format!("{{1,{holding}}}")];
            ensure!(bound(&mut third, prepared, &values)?.as_deref() == Some("t"), "{world}");
            let seen = third.query(
                "SELECT a.pid, l.mode, b.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid),
                     unnest(pg_blocking_pids(a.pid)) b (pid)
                 WHERE NOT l.granted AND a.wait_event_type = 'Lock' AND a.query LIKE 'UPDATE t%'",
            )?;
            let of = |number: i32| Some(number.to_string());
            ensure!(
                seen == [[of(waiting), Some("ShareLock".into()), of(holding)]],
                "{world}: {seen:?}"
            );
            holder.query("COMMIT")?;
            ready(&mut waiter)?;
        }
        ensure!(third.value(&format!("SELECT pg_safe_snapshot_blocking_pids({waiting})"))? == "{}");
    }
    Ok(())
}

#[test]
fn sessions_are_cancelled_and_ended_however_their_number_is_given() -> Result<()> {
    for (world, cluster) in worlds()? {
        let mut client = Client::connect(&cluster.endpoint())?;
        let literal = |call: &str, number: i32| call.replace("$1", &number.to_string());
        for call in [
            "pg_cancel_backend($1)",
            "pg_cancel_backend($1::int)",
            "pg_cancel_backend(CAST($1 AS integer))",
            "pg_cancel_backend((SELECT $1::int + 0))",
            "pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid = $1",
        ] {
            for binds in [false, true] {
                let mut other = Client::connect(&cluster.endpoint())?;
                send(&mut other, "SELECT pg_sleep(60)")?;
                let number = other.process_id;
                let active = format!(
                    "SELECT count(*) FROM pg_stat_activity WHERE pid = {number} AND state = 'active'"
                );
                until(world, || Ok(client.value(&active)? == "1"))?;
                let sql = format!("SELECT {call}");
                let sent = match binds {
                    true => bound(&mut client, &sql, &[number.to_string()])?,
                    false => Some(client.value(&literal(&sql, number))?),
                };
                ensure!(sent.as_deref() == Some("t"), "{world}: {sql}");
                ready(&mut other)?;
                let alive = other.value("SELECT 1")?;
                ensure!(alive == "1");
                let end = sql.replace("pg_cancel", "pg_terminate");
                ensure!(client.value(&literal(&end, number))? == "t", "{world}: {end}");
                let gone = format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {number}");
                until(&end, || Ok(client.value(&gone)? == "0"))?;
                ensure!(other.value("SELECT 1").is_err(), "{world}: {end}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_job_that_ends_idle_sessions_ends_those_and_nothing_of_the_gateways() -> Result<()> {
    for (world, cluster) in worlds()? {
        let connect = || Client::connect(&cluster.endpoint());
        let (mut job, mut idle, mut busy) = (connect()?, connect()?, connect()?);
        idle.query("SELECT 1")?;
        busy.query("BEGIN; UPDATE t SET v = 3")?;
        let all =
            job.query("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'")?;
        let mut all: Vec<_> = all.into_iter().flatten().flatten().collect();
        let mut sessions = [&job, &idle, &busy].map(|client| client.process_id.to_string());
        all.sort();
        sessions.sort();
        ensure!(all == sessions, "{world}: {all:?} {sessions:?}");
        let ended = job.query(
            "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle'",
        )?;
        let expected = [[Some(idle.process_id.to_string()), Some("t".to_owned())]];
        ensure!(ended == expected, "{world}: {ended:?}");
        ensure!(idle.value("SELECT 1").is_err(), "{world}");
        busy.query("COMMIT")?;
        ensure!(job.value("SELECT count(*) FROM t WHERE v = 3")? == "20", "{world}");
    }
    Ok(())
}

#[test]
fn a_role_without_the_right_ends_nobody() -> Result<()> {
    let [(_, cluster), _] = worlds()?;
    let (mut one, mut other) =
        (Client::connect(&cluster.endpoint())?, Client::connect(&cluster.endpoint())?);
    one.query("CREATE ROLE nobody; SET ROLE nobody")?;
    let number = other.process_id;
    for sql in [
        format!("SELECT pg_terminate_backend({number} + 0)"),
        // What the gateway reads, written by hand.
        format!(
            "SELECT set_config('tutti.asked_signals', 't{number}', true), pg_cancel_backend(1 - 1)"
        ),
    ] {
        let answer = one.simple(&sql, b"")?;
        let error = answer.error().map(|error| error.sqlstate().to_owned());
        ensure!(error.as_deref() == Some("42501"), "{sql}: {error:?}");
    }
    ensure!(other.value("SELECT 1")? == "1");
    Ok(())
}

#[test]
fn what_defines_an_object_is_left_as_it_is() -> Result<()> {
    let [(_, cluster), _] = worlds()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE VIEW mine AS SELECT pid FROM pg_locks WHERE pid = pg_backend_pid()")?;
    let text = client.value("SELECT pg_get_viewdef('mine'::regclass)")?;
    ensure!(text.contains("pg_backend_pid()"), "{text}");
    ensure!(0 < client.value("SELECT count(*) FROM mine")?.parse::<i32>()?);
    Ok(())
}
