//! The catalog as an object that transactions change: what statements do that meet a change of the
//! schema or of a placement, at every point of it.
//!
//! Owns: the cases that were found wrong once, each beside what one PostgreSQL would do, and a generator
//! of changes beside clients that write and read. That a table's rows travel rightly is `catalog`'s
//! business; faults of nodes in between are `recovery`'s.
//! Start reading at [`every_row_is_there_once_whatever_changes_meanwhile`].

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tutti_gateway::{Config, DefaultDistribution, Switches};
use tutti_tests::agreement::disagreements;
use tutti_tests::answer::{Answer, Outcome};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::conversation;
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::{environment, programs, servers};

use crate::flights;

/// Without the check of kept plans, which would keep statements from the fast path.
fn start(nodes: u16) -> Result<TestCluster> {
    TestCluster::start_with(servers::start(nodes)?, Switches::default())
}

fn run(client: &mut Client, statements: &[&str]) -> Result<()> {
    for sql in statements {
        client.query(sql)?;
    }
    Ok(())
}

/// Runs a statement in a session of its own; what it is answered is known when the thread ends.
fn meanwhile(endpoint: &Endpoint, sql: &str) -> thread::JoinHandle<Result<String>> {
    let (endpoint, sql) = (endpoint.clone(), sql.to_owned());
    thread::spawn(move || Ok(said(&Client::connect(&endpoint)?.simple(&sql, b"")?)))
}

/// The SQLSTATE of an error, else the values of the last rows, else the last command tag.
fn said(answer: &Answer) -> String {
    if let Some(error) = answer.error() {
        return error.sqlstate().to_owned();
    }
    let values: Vec<_> = answer.texts().concat().into_iter().flatten().collect();
    match (values.is_empty(), answer.outcomes.last()) {
        (true, Some(Outcome::Done { tag })) => tag.clone(),
        _ => values.join(" "),
    }
}

fn joined(thread: thread::JoinHandle<Result<String>>) -> Result<String> {
    thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?
}

/// The default: a table that says nothing is on node 1. One table is spread.
fn start_with_home_tables(nodes: u16) -> Result<TestCluster> {
    let servers = servers::start(nodes)?;
    let switches = Switches::default();
    let default_distribution = DefaultDistribution::Home;
    let config = Config { default_distribution, switches, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    run(
        &mut Client::connect(&cluster.endpoint())?,
        &[
            "CREATE TABLE spread (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)",
            "INSERT INTO spread SELECT g, 0 FROM generate_series(1, 90) g",
            // It cannot run on one node: it would find a part.
            "CREATE FUNCTION counts() RETURNS int LANGUAGE plpgsql AS
                 'BEGIN RETURN (SELECT count(*) FROM spread); END'",
            "CREATE FUNCTION counting() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN NEW.v := counts(); RETURN NEW; END'",
        ],
    )?;
    Ok(cluster)
}

/// A process that does nothing until this is dropped.
struct Stopped(String);

impl Stopped {
    /// The one on this node that is in a transaction of a client's.
    fn in_transaction(node: &Endpoint) -> Result<Self> {
        let pid = Client::connect(node)?
            .value("SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'")?;
        Self::process(pid)
    }

    fn process(pid: String) -> Result<Self> {
        programs::run(Command::new("kill").args(["-STOP", &pid]))?;
        Ok(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // The process is ended with its server if this fails.
        let _ = programs::run(Command::new("kill").args(["-CONT", &self.0]));
    }
}

/// Waits until a statement that says this waits on its node for a lock.
fn wait_until_waiting(node: &Endpoint, said: &str) -> Result<()> {
    let mut client = Client::connect(node)?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        let waiting = client.value(&format!(
            "SELECT count(*) FROM pg_stat_activity WHERE strpos(query, '{said}') > 0
                AND wait_event_type = 'Lock'"
        ))?;
        if waiting != "0" {
            return Ok(());
        }
        sleep(Duration::from_millis(10));
    }
    bail!("no statement that says {said} waits for a lock")
}

/// Long enough for a statement to wait on its node for a lock.
const A_WHILE: Duration = Duration::from_millis(400);

fn fill(client: &mut Client, by: &str) -> Result<()> {
    run(
        client,
        &[
            "DROP TABLE IF EXISTS t",
            &format!("CREATE TABLE t (id int PRIMARY KEY, v int) {by}"),
            "INSERT INTO t SELECT g, 0 FROM generate_series(1, 90) g",
        ],
    )
}

#[test]
fn what_waits_for_a_placement_change_runs_by_the_new_placement() -> Result<()> {
    let cluster = start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for by in ["DISTRIBUTE BY HOME", "DISTRIBUTE BY REPLICATED"] {
        fill(&mut client, by)?;
        run(&mut client, &["BEGIN", "SELECT tutti_distribute('t', 'id')"])?;
        let reader = meanwhile(&cluster.endpoint(), "SELECT count(*) FROM t WHERE id <= 90");
        let by_key = meanwhile(&cluster.endpoint(), "SELECT id FROM t WHERE id = 7");
        let writer = meanwhile(&cluster.endpoint(), "INSERT INTO t VALUES (1000, 5)");
        let held = meanwhile(
            &cluster.endpoint(),
            "BEGIN; INSERT INTO t VALUES (2000, 5); SELECT count(*) FROM t WHERE id = 2000; COMMIT",
        );
        sleep(A_WHILE);
        client.query("COMMIT")?;
        ensure!(joined(reader)? == "90");
        ensure!(joined(by_key)? == "7");
        let written = joined(writer)?;
        ensure!(written == "INSERT 0 1", "{written}");
        // Inside a transaction something was told before: it may have to be tried again.
        let held = joined(held)?;
        ensure!(["40001", "1"].contains(&held.as_str()), "{held}");
        let rows = if held == "1" { "92" } else { "91" };
        ensure!(client.value("SELECT count(*) FROM t")? == rows);
        ensure!(client.value("SELECT count(*) FROM t WHERE id = 1000")? == "1");
        let found = disagreements(&cluster.nodes())?;
        ensure!(found.is_empty(), "{found:#?}");
    }
    Ok(())
}

/// A statement that does not name the table whose rows it writes.
#[test]
fn what_writes_a_table_unnamed_meets_its_placement_change_all_the_same() -> Result<()> {
    let cluster = start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for statement in [
        "INSERT INTO view_of_t VALUES (1000, 1)",
        "INSERT INTO view_of_t VALUES (1000, 1) RETURNING id",
        "INSERT INTO view_of_view SELECT g, g FROM generate_series(1000, 1002) g",
        "UPDATE view_of_t SET v = v + random() WHERE id < 20",
        "UPDATE view_of_view SET v = 7 WHERE id = 20",
        "DELETE FROM view_of_t WHERE id = 30",
        "WITH a AS (INSERT INTO view_of_t VALUES (1000, 1) RETURNING id) SELECT count(*) FROM a",
        "MERGE INTO t USING (VALUES (1000, 1)) AS v (id, w) ON t.id = v.id WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.w)",
        "WITH a AS (DELETE FROM view_of_t WHERE v = 0 AND id < 9 RETURNING id) INSERT INTO view_of_view SELECT id, 1 FROM a",
    ] {
        for by in ["DISTRIBUTE BY HOME", "DISTRIBUTE BY REPLICATED", "DISTRIBUTE BY HASH (id)"] {
            for placed in [
                "tutti_distribute('t', 'id')",
                "tutti_replicate('t')",
                "tutti_distribute('t', 'v')",
            ] {
                if placed.contains("'v'") != by.contains("HASH") && placed.contains("'v'") {
                    continue;
                }
                run(
                    &mut client,
                    &[
                        "DROP TABLE IF EXISTS t CASCADE",
                        &format!("CREATE TABLE t (id int, v int) {by}"),
                        "INSERT INTO t SELECT g, 0 FROM generate_series(1, 90) g",
                        "CREATE VIEW view_of_t AS SELECT * FROM t WHERE id > 0",
                        "CREATE VIEW view_of_view AS SELECT * FROM view_of_t",
                        "BEGIN",
                        &format!("SELECT {placed}"),
                    ],
                )?;
                let writer = meanwhile(&cluster.endpoint(), statement);
                sleep(A_WHILE / 2);
                client.query("COMMIT")?;
                let written = joined(writer)?;
                let rows = client.value("SELECT count(*) FROM t")?;
                let is_right = match (written.as_str(), statement.split(' ').next()) {
                    ("0A000" | "40001", _) => rows == "90",
                    (_, Some("UPDATE")) => rows == "90",
                    (_, Some("DELETE")) => rows == "89",
                    _ if statement.contains("DELETE") => rows == "90",
                    _ if statement.contains("generate") => rows == "93",
                    _ => rows == "91",
                };
                ensure!(is_right, "{statement}, {by}, {placed}: {written}, {rows} rows");
                let found = disagreements(&cluster.nodes())?;
                ensure!(found.is_empty(), "{statement}, {by}, {placed}: {found:#?}");
            }
        }
    }
    Ok(())
}

#[test]
fn rows_that_wait_for_another_key_are_found_by_it() -> Result<()> {
    let cluster = start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(
        &mut client,
        &[
            "CREATE TABLE t (id int, v int) DISTRIBUTE BY HASH (id)",
            "INSERT INTO t SELECT g, g * 7 FROM generate_series(1, 90) g",
            "BEGIN",
            "SELECT tutti_distribute('t', 'v')",
        ],
    )?;
    let insert = |i| meanwhile(&cluster.endpoint(), &format!("INSERT INTO t VALUES ({i}, {i})"));
    let writers: Vec<_> = (1001..1009).map(insert).collect();
    sleep(A_WHILE);
    client.query("COMMIT")?;
    for writer in writers {
        ensure!(joined(writer)? == "INSERT 0 1");
    }
    for i in 1001..1009 {
        ensure!(client.value(&format!("SELECT count(*) FROM t WHERE v = {i}"))? == "1", "{i}");
    }
    ensure!(client.value("SELECT count(*) FROM t")? == "98");
    Ok(())
}

#[test]
fn a_snapshot_from_before_a_placement_does_not_read_the_table() -> Result<()> {
    let cluster = start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    let mut reader = Client::connect(&cluster.endpoint())?;
    fill(&mut client, "")?;
    run(&mut client, &["CREATE TABLE other (id int)", "CREATE VIEW seen AS SELECT * FROM t"])?;
    for sql in ["SELECT count(*) FROM t", "SELECT * FROM seen", "SELECT v FROM t WHERE id = 1"] {
        client.query("SELECT tutti_replicate('t')")?;
        run(&mut reader, &["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM other"])?;
        client.query("SELECT tutti_distribute('t', 'id')")?;
        reader.query("SELECT count(*) FROM other").context("it has not moved")?;
        let answer = reader.simple(sql, b"")?;
        let error = answer.error().with_context(|| format!("{sql} was answered"))?;
        ensure!(error.sqlstate() == "40001", "{sql}: {}", error.message());
        reader.query("ROLLBACK")?;
    }
    Ok(())
}

/// What names no table, or names it as a target only, meets the snapshot all the same.
#[test]
fn a_snapshot_from_before_a_placement_neither_writes_the_table_nor_reads_it_in_functions()
-> Result<()> {
    let cluster = start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    let mut reader = Client::connect(&cluster.endpoint())?;
    fill(&mut client, "DISTRIBUTE BY HASH (id)")?;
    run(
        &mut client,
        &[
            "CREATE TABLE other (id int)",
            "CREATE FUNCTION counted() RETURNS bigint LANGUAGE plpgsql STABLE AS
                'BEGIN RETURN (SELECT count(*) FROM t); END'",
        ],
    )?;
    for change in ["SELECT tutti_replicate('t')", "SELECT tutti_home('t')"] {
        for sql in [
            "SELECT counted()",
            "UPDATE t SET v = v + 1",
            "DELETE FROM t",
            "DECLARE c CURSOR FOR SELECT * FROM t",
            "INSERT INTO t VALUES (7, 7) ON CONFLICT (id) DO UPDATE SET v = 7",
        ] {
            client.query("SELECT tutti_distribute('t', 'id')")?;
            run(
                &mut reader,
                &["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM other"],
            )?;
            client.query(change)?;
            let said = said(&reader.simple(sql, b"")?);
            // Opaque code is refused by what it has touched.
            ensure!(
                said == "40001" || (sql.contains("counted") && said == "0A000"),
                "{sql}: {said}"
            );
            reader.query("ROLLBACK")?;
        }
    }
    Ok(())
}

/// Transactions with snapshots, and changes of the schema on several nodes, while other tables are
/// made and moved: one PostgreSQL knows no reason for an error.
#[test]
fn whoever_uses_other_tables_does_not_notice_a_placement_change() -> Result<()> {
    let cluster = start(3)?;
    let endpoint = cluster.endpoint();
    let mut client = Client::connect(&endpoint)?;
    run(
        &mut client,
        &[
            "CREATE TABLE a (id int, v int)",
            "CREATE TABLE b (id int, v int)",
            "INSERT INTO a SELECT g, g FROM generate_series(1, 90) g",
            "CREATE TABLE d (id int, v int) DISTRIBUTE BY HASH (id)",
            "INSERT INTO d SELECT g, g FROM generate_series(1, 90) g",
        ],
    )?;
    let ended = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let (endpoint, ended) = (&endpoint, &ended);
        let reader = |level: &'static str| {
            scope.spawn(move || -> Result<()> {
                let mut client = Client::connect(endpoint)?;
                while !ended.load(Ordering::Relaxed) {
                    client.query(&format!("BEGIN ISOLATION LEVEL {level}"))?;
                    for table in ["a", "d", "a"] {
                        let count = client.value(&format!("SELECT count(*) FROM {table}"))?;
                        ensure!(count == "90", "{table}: {count}");
                        let joined = client.value(&format!(
                            "SELECT count(*) FROM d JOIN {table} x ON x.v = d.v"
                        ))?;
                        ensure!(joined == "90", "{table}: {joined}");
                    }
                    client.query("COMMIT")?;
                }
                Ok(())
            })
        };
        let changer = scope.spawn(move || -> Result<()> {
            let mut client = Client::connect(endpoint)?;
            while !ended.load(Ordering::Relaxed) {
                run(
                    &mut client,
                    &[
                        "BEGIN",
                        "CREATE TABLE e (id int, m int) DISTRIBUTE BY HASH (id)",
                        "ALTER TABLE e RENAME COLUMN m TO n",
                        "CREATE INDEX ON e (n)",
                        "COMMIT",
                        "DROP TABLE e",
                    ],
                )?;
            }
            Ok(())
        });
        let mover = scope.spawn(move || -> Result<()> {
            let mut client = Client::connect(endpoint)?;
            while !ended.load(Ordering::Relaxed) {
                run(
                    &mut client,
                    &[
                        "SELECT tutti_distribute('b', 'id')",
                        "CREATE TABLE c (id int) DISTRIBUTE BY HASH (id)",
                        "SELECT tutti_home('b')",
                        "DROP TABLE c",
                    ],
                )?;
            }
            Ok(())
        });
        let threads = [reader("REPEATABLE READ"), reader("SERIALIZABLE"), changer, mover];
        sleep(Duration::from_secs(6));
        ended.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?
        })
    })
}

/// A session that waits until a change is published waits like one that waits on a node.
#[test]
fn a_wait_for_a_change_hears_timeouts_and_cancel_requests() -> Result<()> {
    let cluster = start(2)?;
    let endpoint = cluster.endpoint();
    let mut client = Client::connect(&endpoint)?;
    run(
        &mut client,
        &[
            "CREATE TABLE t (id int) DISTRIBUTE BY HASH (id)",
            "BEGIN",
            "CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        ],
    )?;
    let mut waiting = Vec::new();
    for setting in ["lock_timeout = '500ms'", "statement_timeout = '500ms'", "lock_timeout = 0"] {
        let mut client = Client::connect(&endpoint)?;
        client.query(&format!("SET {setting}"))?;
        waiting.push(client);
    }
    let (process, secret) = (waiting[2].process_id, waiting[2].secret);
    // The gateway reads it, and cannot publish what is committed as long as it is locked.
    let mut node = Client::connect(&cluster.nodes()[0])?;
    run(&mut node, &["BEGIN", "LOCK TABLE tutti.declaration IN ACCESS EXCLUSIVE MODE"])?;
    let commit = thread::spawn(move || said(&client.simple("COMMIT", b"").expect("it ends")));
    sleep(A_WHILE);
    let begun = Instant::now();
    let waiting: Vec<_> = waiting
        .into_iter()
        .map(|mut client| {
            thread::spawn(move || Ok(said(&client.simple("SELECT count(*) FROM t", b"")?)))
        })
        .collect();
    sleep(A_WHILE);
    let mut request = TcpStream::connect(("127.0.0.1", endpoint.port))?;
    for word in [16, 80_877_102, process, secret] {
        request.write_all(&word.to_be_bytes())?;
    }
    for (thread, expected) in waiting.into_iter().zip(["55P03", "57014", "57014"]) {
        let said = joined(thread)?;
        ensure!(said == expected, "{said}, not {expected}");
    }
    ensure!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    node.query("COMMIT")?;
    let committed = commit.join().map_err(|_| anyhow::anyhow!("a client panicked"))?;
    ensure!(committed == "COMMIT", "{committed}");
    Ok(())
}

#[test]
fn what_sessions_create_at_the_same_time_all_know() -> Result<()> {
    const SESSIONS: usize = 4;
    const ROUNDS: usize = 6;
    let cluster = start(3)?;
    let endpoint = cluster.endpoint();
    let mut client = Client::connect(&endpoint)?;
    for round in 0..ROUNDS {
        thread::scope(|scope| {
            let create = |session| {
                let endpoint = &endpoint;
                scope.spawn(move || {
                    Client::connect(endpoint)?.query(&format!(
                        "CREATE TABLE made_{round}_{session} (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)"
                    ))
                })
            };
            let threads: Vec<_> = (0..SESSIONS).map(create).collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?.map(drop)
            })
        })?;
        let known = client.query("SELECT * FROM tutti_tables()")?.concat();
        for session in 0..SESSIONS {
            let name = format!("made_{round}_{session}");
            ensure!(known.contains(&Some(format!("public.{name}"))), "{name} in {known:?}");
            client.query(&format!("INSERT INTO {name} SELECT generate_series(1, 9)"))?;
            for id in 1..=9 {
                let found =
                    client.value(&format!("SELECT count(*) FROM {name} WHERE id = {id}"))?;
                ensure!(found == "1", "{name}, {id}");
            }
        }
    }
    Ok(())
}

/// Statements that were sent with one that runs for long are at its node when that ends: they must not run
/// by the placement before a change that is committed meanwhile. (The audit at the end looks where rows are.)
#[test]
fn what_was_sent_behind_a_long_statement_runs_by_no_old_placement() -> Result<()> {
    const KEYS: i32 = 6;
    let cluster = start(2)?;
    let endpoint = cluster.endpoint();
    let mut changer = Client::connect(&endpoint)?;
    run(
        &mut changer,
        &[
            "CREATE TABLE a (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)",
            "INSERT INTO a SELECT generate_series(1, 20)",
            "CREATE TABLE b (k int, j int) DISTRIBUTE BY HASH (k)",
        ],
    )?;
    for (key, begin) in (1..=KEYS).flat_map(|key| [(key, ""), (key, "P |BEGIN\nB |\nE |0\n")]) {
        changer.query("SELECT tutti_distribute('b', 'k')")?;
        let before: i32 =
            changer.value(&format!("SELECT count(*) FROM b WHERE k = {key}"))?.parse()?;
        let one = |sql: String| format!("P |{sql}\nB |\nE |0\n");
        let long = one(format!("SELECT id, pg_sleep(0.4) FROM a WHERE id = {key}"));
        let insert = one(format!("INSERT INTO b VALUES ({key}, {})", 7919 * key));
        let read = one(format!("SELECT 'seen', count(*) FROM b WHERE k = {key}"));
        let flight = format!("{begin}{long}{insert}{read}S");
        let to = endpoint.clone();
        let asked = thread::spawn(move || {
            let mut client = Client::connect(&to)?;
            let said = conversation::hold(&mut client, &flight)?;
            client.query("COMMIT")?;
            anyhow::Ok(said)
        });
        sleep(Duration::from_millis(150));
        changer.query("SELECT tutti_distribute('b', 'j')")?;
        let said = asked.join().map_err(|_| anyhow::anyhow!("the client panicked"))??;
        let refused = said.iter().any(|line| line == "Error 40001");
        let seen = said.iter().any(|line| *line == format!("DataRow seen | {}", before + 1));
        ensure!(refused || seen, "{key}, {begin:?}: {said:#?}");
        let after: i32 =
            changer.value(&format!("SELECT count(*) FROM b WHERE k = {key}"))?.parse()?;
        let added = i32::from(!refused);
        ensure!(after == before + added, "{key}: {before} rows, then {after}: {said:#?}");
    }
    Ok(())
}

/// What a client has sent without a Sync stays with the gateway until it comes; a change may be committed
/// before that.
#[test]
fn a_late_sync_sends_nothing_by_an_old_placement() -> Result<()> {
    const KEYS: i32 = 6;
    let cluster = start(2)?;
    let endpoint = cluster.endpoint();
    let mut changer = Client::connect(&endpoint)?;
    changer.query("CREATE TABLE b (k int, j int) DISTRIBUTE BY HASH (k)")?;
    for key in 1..=KEYS {
        let to_key = "SELECT tutti_distribute('b', 'k')";
        changer.query(to_key)?;
        let mut client = Client::connect(&endpoint)?;
        let begin = if key % 2 == 0 { "" } else { "P |BEGIN\nB |\nE |0\n" };
        let insert = format!("P |INSERT INTO b VALUES ({key}, {})\nB |\nE |0", 7919 * key);
        conversation::hold(&mut client, &format!("{begin}{insert}"))?;
        changer.query("SELECT tutti_distribute('b', 'j')")?;
        let said = conversation::hold(&mut client, "S")?;
        client.query("COMMIT")?;
        let refused = said.iter().any(|line| line == "Error 40001");
        let count = changer.value(&format!("SELECT count(*) FROM b WHERE k = {key}"))?;
        ensure!(count == if refused { "0" } else { "1" }, "{key}: {count} rows; {said:#?}");
    }
    Ok(())
}

/// Code that node 1 runs is asked what it has touched; with an older snapshot node 1 would answer by the
/// placements of then.
#[test]
fn code_does_not_write_by_a_snapshot_from_before_a_placement() -> Result<()> {
    let cluster = start(2)?;
    let mut changer = Client::connect(&cluster.endpoint())?;
    run(
        &mut changer,
        &[
            "CREATE TABLE a (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)",
            "CREATE TABLE b (k int, j int) DISTRIBUTE BY HOME",
            "CREATE FUNCTION fill(named text) RETURNS void LANGUAGE plpgsql AS
             $$BEGIN EXECUTE format('INSERT INTO %I SELECT n, n FROM generate_series(1, 6) n', named); END$$",
        ],
    )?;
    for (level, code) in [
        (
            "REPEATABLE READ",
            "DO $$BEGIN INSERT INTO b SELECT n, n FROM generate_series(1, 6) n; END$$",
        ),
        ("SERIALIZABLE", "SELECT fill('b')"),
        ("REPEATABLE READ", "SELECT fill('new')"),
    ] {
        let mut reader = Client::connect(&cluster.endpoint())?;
        run(&mut reader, &[&format!("BEGIN ISOLATION LEVEL {level}"), "SELECT count(*) FROM a"])?;
        run(
            &mut changer,
            &[
                "SELECT tutti_distribute('b', 'k')",
                "CREATE TABLE new (k int, j int) DISTRIBUTE BY HASH (k)",
            ],
        )?;
        let answer = reader.simple(code, &[])?;
        let error = answer.error().context("it ran")?;
        ensure!(error.sqlstate() == "40001", "{level}, {code}: {error:?}");
        reader.query("ROLLBACK")?;
        ensure!(changer.value("SELECT count(*) FROM b")? == "0");
        run(&mut changer, &["SELECT tutti_home('b')", "DROP TABLE new"])?;
    }
    Ok(())
}

/// What was bound, or declared, before a table was moved goes on with the plan of then.
#[test]
fn what_was_bound_before_a_move_does_not_go_on_after_it() -> Result<()> {
    let cluster = start_with_home_tables(2)?;
    let endpoint = cluster.endpoint();
    let mut changer = Client::connect(&endpoint)?;
    run(
        &mut changer,
        &[
            "CREATE TABLE b (k int, j int)",
            "INSERT INTO b SELECT n, n FROM generate_series(1, 40) n",
            "CREATE FUNCTION counted(n int) RETURNS bigint STABLE LANGUAGE plpgsql AS
             $$BEGIN IF n = 1 THEN RETURN 0; END IF; RETURN (SELECT count(*) FROM b); END$$",
        ],
    )?;
    // A utility statement locks its tables when it is executed.
    let mut client = Client::connect(&endpoint)?;
    client.query("BEGIN")?;
    conversation::hold(&mut client, "P |TRUNCATE b\nB p|\nS")?;
    changer.query("SELECT tutti_distribute('b', 'k')")?;
    let said = conversation::hold(&mut client, "E p|0\nS")?;
    ensure!(said.iter().any(|line| line == "Error 40001"), "{said:#?}");
    client.query("ROLLBACK")?;
    ensure!(changer.value("SELECT count(*) FROM b")? == "40");
    // The snapshot of a cursor is that of its DECLARE.
    changer.query("SELECT tutti_home('b')")?;
    run(
        &mut client,
        &[
            "BEGIN",
            "DECLARE c CURSOR FOR SELECT counted(n) FROM generate_series(1, 3) n",
            "FETCH c",
        ],
    )?;
    changer.query("SELECT tutti_distribute('b', 'k')")?;
    let answer = client.simple("FETCH c", &[])?;
    let state = answer.error().map(|error| error.sqlstate().to_owned());
    ensure!(state.as_deref() == Some("40001"), "{answer}");
    client.query("ROLLBACK")?;
    Ok(())
}

/// Where node 1 has all tables, code runs there that reaches any of them; when the first table is spread, what is
/// still to come of a transaction must not.
#[test]
fn a_transaction_of_one_node_does_not_go_on_after_the_first_spread() -> Result<()> {
    for what in ["deferred", "cursor", "portal"] {
        let servers = servers::start(2)?;
        let default_distribution = DefaultDistribution::Home;
        let switches = Switches::default();
        let config = Config { default_distribution, switches, ..config(&servers, String::new()) };
        let cluster = TestCluster::start_configured(servers, config)?;
        let (mut client, mut changer) =
            (Client::connect(&cluster.endpoint())?, Client::connect(&cluster.endpoint())?);
        run(
            &mut client,
            &[
                "CREATE TABLE b (k int, j int)",
                "INSERT INTO b SELECT n, n FROM generate_series(1, 60) n",
                "CREATE TABLE a (id int)",
                "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS
                 $$BEGIN EXECUTE 'INSERT INTO b SELECT n, n FROM generate_series(61, 66) n'; RETURN NULL; END$$",
                "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON a DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION fill()",
                // The first row does not come to the table, and locks nothing.
                "CREATE FUNCTION counted(n int) RETURNS bigint LANGUAGE plpgsql AS
                 $$DECLARE found bigint; BEGIN IF n = 1 THEN RETURN 0; END IF;
                   EXECUTE 'SELECT count(*) FROM b' INTO found; RETURN found; END$$",
                "BEGIN",
            ],
        )?;
        match what {
            "deferred" => drop(client.query("INSERT INTO a VALUES (1)")?),
            "cursor" => drop(
                client
                    .query("DECLARE c CURSOR FOR SELECT counted(n) FROM generate_series(1, 3) n")?,
            ),
            _ => {
                let flight = "P |SELECT counted(n) FROM generate_series(1, 3) n\nB p|\nE p|1\nS";
                let said = conversation::hold(&mut client, flight)?;
                ensure!(said.iter().any(|line| line == "DataRow 0"), "{said:#?}");
            }
        }
        changer.query("SELECT tutti_distribute('b', 'k')")?;
        let refused = match what {
            "deferred" => client.simple("COMMIT", &[])?.error().map(|e| e.sqlstate().to_owned()),
            "cursor" => client.simple("FETCH c", &[])?.error().map(|e| e.sqlstate().to_owned()),
            _ => conversation::hold(&mut client, "E p|1\nS")?
                .iter()
                .find_map(|line| line.strip_prefix("Error ").map(str::to_owned)),
        };
        ensure!(refused.as_deref() == Some("40001"), "{what}: {refused:?}");
        client.query("ROLLBACK")?;
        ensure!(client.value("SELECT count(*) FROM b")? == "60", "{what}");
    }
    Ok(())
}

/// GRANT and REVOKE lock no table, and a move gives other nodes the rights of the moment.
#[test]
fn rights_that_change_beside_a_move_are_the_same_everywhere() -> Result<()> {
    let cluster = start_with_home_tables(2)?;
    let endpoint = cluster.endpoint();
    let mut changer = Client::connect(&endpoint)?;
    run(
        &mut changer,
        &[
            "CREATE ROLE reader LOGIN",
            "CREATE TABLE kept (k int)",
            "INSERT INTO kept SELECT generate_series(1, 12)",
            "GRANT SELECT ON kept TO reader",
            "BEGIN",
            "SELECT tutti_distribute('kept', 'k')",
        ],
    )?;
    let revoking = thread::spawn(move || {
        Client::connect(&endpoint)?.query("REVOKE SELECT ON kept FROM reader")
    });
    sleep(Duration::from_millis(300));
    changer.query("COMMIT")?;
    revoking.join().map_err(|_| anyhow::anyhow!("the client panicked"))??;
    let mut reader = Client::connect_as(&cluster.endpoint(), "reader")?;
    for k in 1..=12 {
        let answer = reader.simple(&format!("SELECT * FROM kept WHERE k = {k}"), &[])?;
        let state = answer.error().map(|error| error.sqlstate().to_owned());
        ensure!(state.as_deref() == Some("42501"), "{k}: {answer}");
    }
    Ok(())
}

/// COMMIT PREPARED of a client's comes from anywhere, and overtakes no statement.
#[test]
fn a_client_prepares_no_change_for_which_others_would_have_to_be_ended() -> Result<()> {
    let cluster = start_with_home_tables(2)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(
        &mut client,
        &[
            "CREATE TABLE here (id int)",
            "CREATE FUNCTION writes() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN EXECUTE 'UPDATE spread SET v = 1'; RETURN NULL; END$$",
            "BEGIN",
            "CREATE TABLE made (id int)",
            "CREATE TRIGGER late AFTER INSERT ON here FOR EACH ROW EXECUTE FUNCTION writes()",
        ],
    )?;
    let answer = client.simple("PREPARE TRANSACTION 'mine'", &[])?;
    let error = answer.error().context("it was prepared")?;
    ensure!(error.sqlstate() == "0A000", "{error:?}");
    ensure!(client.value("SELECT to_regclass('made') IS NULL")? == "t");
    Ok(())
}

/// The first statement of a flight waits for a row; a change of a table that only later ones use has
/// nothing to do with it, and is committed meanwhile.
#[test]
fn a_later_statement_of_a_flight_is_planned_by_what_was_committed_before_it() -> Result<()> {
    const KEYS: usize = 12;
    let cluster = start(2)?;
    let endpoint = cluster.endpoint();
    let mut changer = Client::connect(&endpoint)?;
    run(
        &mut changer,
        &[
            "CREATE TABLE a (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)",
            "INSERT INTO a SELECT n, 0 FROM generate_series(1, 10) n",
            "CREATE TABLE b (k int, j int) DISTRIBUTE BY HASH (k)",
            &format!("INSERT INTO b SELECT n, 7919 * n FROM generate_series(1, {KEYS}) n"),
        ],
    )?;
    let flight_of = |first: &str, begin: &str| {
        let one = |sql: String| format!("P |{sql}\nB |\nE |0\n");
        let later = (1..=KEYS).map(|k| one(format!("SELECT 'b', count(*) FROM b WHERE k = {k}")));
        format!("{begin}{}{}S", one(first.to_owned()), later.collect::<String>())
    };
    for (first, begin, column) in [
        ("UPDATE a SET v = v + 1", "", "j"),
        ("UPDATE a SET v = v + 1", "P |BEGIN\nB |\nE |0\n", "k"),
        ("UPDATE a SET v = v + 1 WHERE id = 3", "", "j"),
        ("SELECT id FROM a FOR UPDATE", "", "k"),
    ] {
        let mut locker = Client::connect(&endpoint)?;
        run(&mut locker, &["BEGIN", "UPDATE a SET v = 1"])?;
        let (to, flight) = (endpoint.clone(), flight_of(first, begin));
        let asked = thread::spawn(move || conversation::hold(&mut Client::connect(&to)?, &flight));
        let waits = cluster.comes_to_wait_for_a_lock(Duration::from_secs(20))?;
        ensure!(waits, "nobody waits");
        changer.query(&format!("SELECT tutti_distribute('b', '{column}')"))?;
        locker.query("COMMIT")?;
        let said = asked.join().map_err(|_| anyhow::anyhow!("the client panicked"))??;
        let seen = said.iter().filter(|line| *line == "DataRow b | 1").count();
        let refused = said.iter().any(|line| line == "Error 40001");
        ensure!(seen == KEYS || refused, "{begin}{first}: {seen} of {KEYS} rows: {said:#?}");
    }
    Ok(())
}

/// A view of what node 1 has comes to show, or to be written to, what others have too, while a statement waits for it:
/// the statement is planned by that.
#[test]
fn who_waits_for_a_view_meets_what_it_has_come_to_show() -> Result<()> {
    let cluster = start_with_home_tables(2)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query(
        "CREATE TABLE dealt (k int PRIMARY KEY, v int) DISTRIBUTE BY HASH (k);
         INSERT INTO dealt SELECT n, 10 FROM generate_series(1, 10) n;
         CREATE TABLE alone (k int PRIMARY KEY, v int) DISTRIBUTE BY HOME;
         INSERT INTO alone SELECT n, 30 FROM generate_series(1, 30) n;
         CREATE TABLE copied (k int PRIMARY KEY, v int) DISTRIBUTE BY REPLICATED;
         INSERT INTO copied SELECT n, 20 FROM generate_series(1, 20) n;
         CREATE TABLE sink (k int, v int) DISTRIBUTE BY HOME",
    )?;
    let mixed = "SELECT k, v FROM dealt UNION ALL SELECT k + 100, v FROM alone";
    let joined_to = "SELECT alone.k, alone.v FROM alone WHERE k IN (SELECT k FROM dealt)";
    let copies = "SELECT k, v FROM copied WHERE k IN (SELECT k FROM alone)";
    let sum = "SELECT count(*) FROM shown";
    for (query, waits, then, expected) in [
        (mixed, "Q SELECT count(*) FROM shown", None, "DataRow 40"),
        (mixed, "P |SELECT count(*) FROM shown\nB |\nE |0\nS", None, "DataRow 40"),
        (mixed, "Q SELECT count(*) FROM over", None, "DataRow 40"),
        (mixed, "Q INSERT INTO sink SELECT * FROM shown", Some("SELECT count(*) FROM sink"), "40"),
        (joined_to, "Q SELECT count(*) FROM shown", None, "DataRow 10"),
        (copies, "Q UPDATE shown SET v = v + 1", Some("SELECT sum(v) FROM copied"), "420"),
    ] {
        admin.query(
            "DELETE FROM sink; DROP VIEW IF EXISTS shown CASCADE; CREATE VIEW shown AS SELECT k, v FROM alone;
             CREATE VIEW over AS SELECT * FROM shown",
        )?;
        let mut changer = Client::connect(&cluster.endpoint())?;
        changer.query(&format!("BEGIN; CREATE OR REPLACE VIEW shown AS {query}"))?;
        let waiting = Client::connect(&cluster.endpoint())?;
        let waiting = flights::meanwhile(waiting, waits.to_owned());
        ensure!(
            cluster.comes_to_wait_for_a_lock(Duration::from_secs(10))?,
            "{waits} does not wait"
        );
        changer.query("COMMIT")?;
        let (said, _) = flights::joined(waiting)?;
        ensure!(!said.iter().any(|line| line.starts_with("Error")), "{query}, {waits}: {said:#?}");
        match then {
            None => {
                ensure!(said.iter().any(|line| line == expected), "{query}, {waits}: {said:#?}")
            }
            Some(sql) => {
                let found = admin.value(sql)?;
                ensure!(found == expected, "{query}, {waits}: {found}");
            }
        }
    }
    ensure!(admin.value(sum)? == "20");
    Ok(())
}

/// A name is taken away by one change and given to a table of several nodes by another, while a client pauses or waits
/// for the lock of another table: it meets the second whole, or is told.
#[test]
fn a_name_that_is_taken_away_and_given_anew_is_looked_up_anew() -> Result<()> {
    let cluster = start_with_home_tables(2)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query("CREATE TABLE locked (k int) DISTRIBUTE BY HOME")?;
    let both = "SELECT (SELECT count(*) FROM locked), (SELECT count(*) FROM named)";
    for (takes, begun, then) in [
        ("DROP TABLE named", "P |SELECT count(*) FROM named\nB |", "E |0\nS"),
        ("ALTER TABLE named RENAME TO other", "P |SELECT count(*) FROM named\nB |", "E |0\nS"),
        ("DROP TABLE named", "P |INSERT INTO named SELECT generate_series(21, 30)\nB |", "E |0\nS"),
        ("DROP TABLE named", "", both),
        ("ALTER TABLE named RENAME TO other", "", both),
    ] {
        admin.query(
            "DROP TABLE IF EXISTS named, other; CREATE TABLE named (k int PRIMARY KEY) DISTRIBUTE BY HOME;
             INSERT INTO named VALUES (1)",
        )?;
        let mut client = Client::connect(&cluster.endpoint())?;
        let mut locker = Client::connect(&cluster.endpoint())?;
        let waiting = if begun.is_empty() {
            locker.query("BEGIN; LOCK TABLE locked")?;
            client.query("BEGIN")?;
            let waiting = flights::meanwhile(client, format!("Q {then}"));
            ensure!(cluster.comes_to_wait_for_a_lock(Duration::from_secs(10))?, "it does not wait");
            Ok(waiting)
        } else {
            conversation::hold(&mut client, &format!("{begun}\n~ 20"))?;
            Err(client)
        };
        admin.query(takes)?;
        admin.query("CREATE TABLE named (k int PRIMARY KEY) DISTRIBUTE BY HASH (k)")?;
        admin.query("INSERT INTO named SELECT generate_series(1, 20)")?;
        let said = match waiting {
            Ok(waiting) => {
                locker.query("COMMIT")?;
                flights::joined(waiting)?.0
            }
            Err(mut client) => conversation::hold(&mut client, then)?,
        };
        let right = ["DataRow 20", "DataRow 0 | 20", "CommandComplete INSERT 0 10", "Error 40001"];
        ensure!(said.iter().any(|line| right.contains(&&**line)), "{takes}, {begun}: {said:#?}");
    }
    Ok(())
}

/// Until its COMMIT others have tables on several nodes, and definitions go to all nodes.
#[test]
fn a_transaction_that_drops_the_last_table_of_several_nodes_may_go_on() -> Result<()> {
    let cluster = start_with_home_tables(2)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    for (number, then) in [
        "DROP TABLE IF EXISTS nothing",
        "CREATE TABLE made (k int)",
        "CREATE TYPE t AS (a int); INSERT INTO kept VALUES (1)",
        "CREATE SCHEMA s; CREATE TABLE s.last (k int PRIMARY KEY) DISTRIBUTE BY HASH (k)",
    ]
    .into_iter()
    .enumerate()
    {
        admin.query("CREATE TABLE last (k int PRIMARY KEY) DISTRIBUTE BY HASH (k)")?;
        admin.query("CREATE TABLE IF NOT EXISTS kept (k int) DISTRIBUTE BY HOME")?;
        match number % 2 {
            0 => admin.query(&format!("DROP TABLE last; {then}"))?,
            _ => {
                admin.query("BEGIN")?;
                admin.query("DROP TABLE last")?;
                admin.query(then)?;
                admin.query("COMMIT")?
            }
        };
    }
    Ok(())
}

/// A name that means nothing when a statement is planned, and is given while that waits for another table. Who may
/// begin anew finds what has the name now; who may not gets an error.
#[test]
fn a_name_that_is_given_meanwhile_is_looked_up_anew() -> Result<()> {
    let cluster = start_with_home_tables(2)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query(
        "CREATE TABLE locked (k int) DISTRIBUTE BY HOME;
         CREATE TABLE kept (k int) DISTRIBUTE BY HOME;
         CREATE FUNCTION twice() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN DELETE FROM spread WHERE k = 1; RETURN new; END'",
    )?;
    let reads = "SELECT (SELECT count(*) FROM locked), (SELECT count(*) FROM named)";
    let copies = "COPY (SELECT count(*) FROM locked RIGHT JOIN named USING (k)) TO STDOUT";
    let explains = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) \
                    SELECT count(*) FROM locked RIGHT JOIN named USING (k)";
    let writes = "WITH n AS (SELECT count(*) FROM locked) INSERT INTO named SELECT generate_series(21, 30) FROM n";
    let hash = "CREATE TABLE named (k int PRIMARY KEY) DISTRIBUTE BY HASH (k);
                INSERT INTO named SELECT generate_series(1, 20)";
    let renamed = "ALTER TABLE spread RENAME TO named";
    let shown = "CREATE VIEW named AS SELECT k FROM spread UNION ALL SELECT k FROM kept";
    let moved = "CREATE TABLE named (k int PRIMARY KEY) DISTRIBUTE BY HOME;
                 INSERT INTO named SELECT generate_series(1, 20) |
                 SELECT tutti_distribute('named', 'k')";
    let watched = "CREATE TABLE named (k int PRIMARY KEY) DISTRIBUTE BY HOME;
                   CREATE TRIGGER t BEFORE INSERT ON named FOR EACH ROW EXECUTE FUNCTION twice()";
    for (change, statement, right) in [
        (hash, reads, "DataRow 0 | 20"),
        (renamed, reads, "DataRow 0 | 20"),
        (shown, reads, "DataRow 0 | 20"),
        (moved, reads, "DataRow 0 | 20"),
        (hash, copies, r"CopyData 20\n"),
        (hash, writes, "CommandComplete INSERT 0 10"),
        (moved, writes, "CommandComplete INSERT 0 10"),
        (watched, writes, "Error 0A000"),
        (hash, explains, "CommandComplete EXPLAIN"),
    ] {
        for in_block in [false, true] {
            admin.query("DROP VIEW IF EXISTS named; DROP TABLE IF EXISTS spread;").or_else(
                |_| admin.query("DROP TABLE IF EXISTS named; DROP TABLE IF EXISTS spread"),
            )?;
            admin.query(
                "CREATE TABLE spread (k int PRIMARY KEY) DISTRIBUTE BY HASH (k);
                 INSERT INTO spread SELECT generate_series(1, 20)",
            )?;
            let mut client = Client::connect(&cluster.endpoint())?;
            let mut locker = Client::connect(&cluster.endpoint())?;
            if in_block {
                client.query("BEGIN")?;
            }
            locker.query("BEGIN; LOCK TABLE locked")?;
            let waiting = flights::meanwhile(client, format!("Q {statement}"));
            ensure!(
                cluster.comes_to_wait_for_a_lock(Duration::from_secs(10))?,
                "{statement} does not wait"
            );
            for part in change.split('|') {
                admin.query(part)?;
            }
            locker.query("COMMIT")?;
            let (said, mut client) = flights::joined(waiting)?;
            let is_right = said.iter().any(|line| line == right);
            let is_refused = said.iter().any(|line| line == "Error 40001");
            ensure!(
                is_right != is_refused && (in_block || is_right),
                "{change}, {statement}, in a block: {in_block}: {said:#?}"
            );
            if in_block {
                client.query("COMMIT")?;
            }
            if statement == writes && is_right && right.starts_with("Command") {
                let rows = admin.query("SELECT count(*) FROM named WHERE k BETWEEN 21 AND 30")?;
                ensure!(format!("{rows:?}").contains("10"), "{change}: {rows:?}");
            }
        }
    }
    Ok(())
}

/// PostgreSQL's own relations are there, whoever makes what meanwhile.
#[test]
fn a_name_that_is_given_is_nothing_to_readers_of_catalogs() -> Result<()> {
    let cluster = start_with_home_tables(2)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query("CREATE TABLE locked (k int) DISTRIBUTE BY HOME")?;
    let readers = [
        "SELECT (SELECT count(*) FROM locked), relname FROM pg_class WHERE relname = 'pg_type'",
        "SELECT (SELECT count(*) FROM locked), count(*) FROM pg_stat_activity a, information_schema.tables t",
    ];
    for (number, reads) in readers.into_iter().enumerate() {
        let mut client = Client::connect(&cluster.endpoint())?;
        let mut locker = Client::connect(&cluster.endpoint())?;
        locker.query("BEGIN; LOCK TABLE locked")?;
        client.query("BEGIN")?;
        let waiting = flights::meanwhile(client, format!("Q {reads}"));
        ensure!(cluster.comes_to_wait_for_a_lock(Duration::from_secs(10))?, "it does not wait");
        admin.query(&format!(
            "CREATE TABLE made{number} (k int PRIMARY KEY) DISTRIBUTE BY HASH (k)"
        ))?;
        admin.query(&format!("CREATE VIEW shown{number} AS SELECT * FROM made{number}"))?;
        locker.query("COMMIT")?;
        let (said, _) = flights::joined(waiting)?;
        ensure!(said.iter().any(|line| line == "CommandComplete SELECT 1"), "{reads}: {said:#?}");
    }
    Ok(())
}

/// What a client does over and over: conversations in turn, after it has prepared a statement, if any.
struct Work {
    prepares: Option<String>,
    conversations: Vec<String>,
}

impl Work {
    /// How often it was done, and how often refused.
    fn hold_until(&self, stop: &AtomicBool, endpoint: &Endpoint) -> Result<(usize, usize)> {
        let mut client = Client::connect(endpoint)?;
        // By itself it may be ended, before or after it is prepared.
        let mut has_prepared = self.prepares.is_none();
        while !has_prepared {
            let prepares = self.prepares.as_deref().unwrap_or_default();
            let said = conversation::hold(&mut client, &format!("P s|{prepares}\nS"))?;
            has_prepared = said.iter().any(|line| line == "ParseComplete");
            ensure!(has_prepared || said.iter().any(|line| line == "Error 40001"), "{said:#?}");
        }
        let (mut done, mut refused) = (0, 0);
        for conversation in self.conversations.iter().cycle() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let said = conversation::hold(&mut client, conversation)?;
            match said.iter().find(|line| line.starts_with("Error")) {
                None => done += 1,
                Some(error) => {
                    ensure!(error == "Error 40001", "{said:#?}");
                    refused += 1;
                }
            }
        }
        Ok((done, refused))
    }
}

/// Works beside so many indexes of these tables, with a column `v`, that come and go.
fn work_beside_indexes(
    endpoint: &Endpoint,
    (tables, count): (&[&str], usize),
    works: &[Work],
) -> Result<Vec<(usize, usize)>> {
    let mut admin = Client::connect(endpoint)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let clients: Vec<_> =
            works.iter().map(|work| scope.spawn(|| work.hold_until(&stop, endpoint))).collect();
        let changed = tables.iter().cycle().take(count).try_for_each(|table| {
            admin.query(&format!("CREATE INDEX made ON {table} (v)"))?;
            admin.query("DROP INDEX made")?;
            sleep(Duration::from_millis(20));
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        let told = clients.into_iter().map(|client| client.join().expect("no panic")).collect();
        changed.and(told)
    })
}

/// Outside of transactions prepared statements and unnamed ones are run again as queries are, by whichever change they
/// were ended: one that makes an index and one that drops it, for example, the second of which meets what the
/// first has ended.
#[test]
fn changes_of_the_schema_are_hardly_an_error_for_single_statements() -> Result<()> {
    const CHANGES: usize = 40;
    let cluster = start_with_home_tables(2)?;
    let endpoint = cluster.endpoint();
    Client::connect(&endpoint)?.query(
        "CREATE TABLE busy (id int PRIMARY KEY, v int) DISTRIBUTE BY HOME;
         INSERT INTO busy SELECT n, 0 FROM generate_series(1, 100) n",
    )?;
    let works: Vec<_> =
        ["SELECT v FROM busy WHERE id = $1", "UPDATE busy SET v = v + 1 WHERE id = $1"]
            .iter()
            .flat_map(|sql| {
                let unnamed = format!("P |{sql}\nB ||7\nD P \nE |0\nS");
                let named = "B |s|7\nD P \nE |0\nS".to_owned();
                [
                    Work { prepares: None, conversations: vec![unnamed] },
                    Work { prepares: Some((*sql).to_owned()), conversations: vec![named] },
                ]
            })
            .collect();
    let told = work_beside_indexes(&endpoint, (&["busy"], CHANGES), &works)?;
    let (done, refused) = told.iter().fold((0, 0), |sum, told| (sum.0 + told.0, sum.1 + told.1));
    eprintln!("{done} done, {refused} refused");
    ensure!(0 < done && refused < CHANGES / 3, "{done} done, {refused} refused");
    Ok(())
}

/// The same as drivers ask that first parse and describe, with Sync or Flush, by all placements; and each is done once.
#[test]
fn changes_of_the_schema_are_hardly_an_error_for_drivers() -> Result<()> {
    const CHANGES: usize = 30;
    let cluster = start(2)?;
    let endpoint = cluster.endpoint();
    let mut admin = Client::connect(&endpoint)?;
    let mut works = Vec::new();
    for (table, by) in [("home", "HOME"), ("hash", "HASH (id)"), ("copied", "REPLICATED")] {
        admin.query(&format!(
            "CREATE TABLE {table} (id int PRIMARY KEY, v int) DISTRIBUTE BY {by};
             INSERT INTO {table} SELECT n, 0 FROM generate_series(1, 100) n"
        ))?;
        for sql in [
            format!("SELECT count(*) FROM {table} WHERE v <> $1"),
            format!("UPDATE {table} SET v = v + 1 WHERE id = $1"),
        ] {
            let parse = format!("P |{sql}\nD S ");
            let execute = "B ||7\nD P \nE |0\nS";
            let conversations =
                vec![format!("{parse}\nH\n{execute}"), format!("{parse}\nS\n--\n{execute}")];
            works.push(Work { prepares: None, conversations });
        }
    }
    let tables = ["home", "hash", "copied"];
    let told = work_beside_indexes(&endpoint, (&tables, CHANGES), &works)?;
    for (work, (done, refused)) in works.iter().zip(&told) {
        let what = &work.conversations[0];
        ensure!(0 < *done && *refused < CHANGES / 3, "{what}: {done} done, {refused} refused");
    }
    for (table, (done, refused)) in tables.iter().zip(told.iter().skip(1).step_by(2)) {
        let found = admin.value(&format!("SELECT v FROM {table} WHERE id = 7"))?;
        ensure!(
            found == done.to_string(),
            "{table}: {done} done, {refused} refused, {found} found"
        );
    }
    Ok(())
}

/// A flight that waits for long, and changes of a table that it does not use.
#[test]
fn a_change_of_another_table_leaves_a_flight_alone() -> Result<()> {
    let cluster = start(2)?;
    let endpoint = cluster.endpoint();
    let mut changer = Client::connect(&endpoint)?;
    run(
        &mut changer,
        &[
            "CREATE TABLE a (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)",
            "INSERT INTO a SELECT n, 0 FROM generate_series(1, 10) n",
            "CREATE TABLE b (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)",
            "CREATE TABLE other (k int, j int) DISTRIBUTE BY HASH (k)",
            "INSERT INTO other SELECT n, 7919 * n FROM generate_series(1, 10) n",
        ],
    )?;
    for (turn, begin) in ["", "P |BEGIN\nB |\nE |0\n"].into_iter().enumerate() {
        let mut locker = Client::connect(&endpoint)?;
        run(&mut locker, &["BEGIN", "UPDATE a SET v = 1 WHERE id = 3"])?;
        let one = |sql: &str| format!("P |{sql}\nB |\nE |0\n");
        let flight = [
            "UPDATE a SET v = v + 1 WHERE id = 3",
            "SELECT 'a', v FROM a WHERE id = 3",
            "INSERT INTO b VALUES (3)",
            "DELETE FROM b WHERE id = 3",
        ];
        let flight = format!("{begin}{}S", flight.map(one).concat());
        let to = endpoint.clone();
        let asked = thread::spawn(move || {
            let mut client = Client::connect(&to)?;
            let said = conversation::hold(&mut client, &flight)?;
            client.query("COMMIT")?;
            anyhow::Ok(said)
        });
        let waits = cluster.comes_to_wait_for_a_lock(Duration::from_secs(20))?;
        ensure!(waits, "nobody waits");
        changer.query(&format!("ALTER TABLE other ADD COLUMN c{turn} int DEFAULT 7"))?;
        changer.query(
            ["SELECT tutti_distribute('other', 'j')", "SELECT tutti_replicate('other')"][turn],
        )?;
        locker.query("COMMIT")?;
        let said = asked.join().map_err(|_| anyhow::anyhow!("the client panicked"))??;
        ensure!(said.iter().any(|line| line == "DataRow a | 2"), "{begin}: {said:#?}");
        ensure!(!said.iter().any(|line| line.starts_with("Error")), "{begin}: {said:#?}");
    }
    Ok(())
}

/// Different tables, each with a view, a check and a generated column, changed in parallel: plain
/// PostgreSQL knows no reason to wait.
#[test]
fn changes_of_different_tables_neither_wait_nor_deadlock() -> Result<()> {
    const SESSIONS: usize = 3;
    let cluster = start(3)?;
    let endpoint = cluster.endpoint();
    let mut client = Client::connect(&endpoint)?;
    for i in 0..SESSIONS {
        run(
            &mut client,
            &[
                &format!(
                    "CREATE TABLE p{i} (id int, v text DEFAULT lower('X'), CHECK (id > 0),
                     g text GENERATED ALWAYS AS (lower(v)) STORED)"
                ),
                &format!("CREATE VIEW pv{i} AS SELECT count(*) FROM p{i}"),
            ],
        )?;
    }
    client.query("CREATE VIEW all_of_them AS SELECT p0.id FROM p0, p1, p2")?;
    thread::scope(|scope| {
        let work = |i| {
            let endpoint = &endpoint;
            scope.spawn(move || {
                let mut client = Client::connect(endpoint)?;
                for round in 0..4 {
                    if round % 2 == 0 {
                        client.query("BEGIN")?;
                    }
                    run(
                        &mut client,
                        &[
                            &format!("ALTER TABLE p{i} ADD PRIMARY KEY (id)"),
                            &format!("CREATE INDEX pi{i} ON p{i} (v)"),
                            &format!("CREATE VIEW pw{i} AS SELECT v FROM p{i}"),
                            &format!("ALTER TABLE p{i} RENAME COLUMN v TO w"),
                            &format!("ALTER TABLE p{i} RENAME COLUMN w TO v"),
                            &format!("DROP VIEW pw{i}"),
                            &format!("DROP INDEX pi{i}"),
                            &format!("ALTER TABLE p{i} DROP CONSTRAINT p{i}_pkey"),
                        ],
                    )?;
                    if round % 2 == 0 {
                        client.query("COMMIT")?;
                    }
                }
                Ok(())
            })
        };
        let threads: Vec<_> = (0..SESSIONS).map(work).collect();
        threads.into_iter().try_for_each(|thread| -> Result<()> {
            thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?
        })
    })?;
    let found = disagreements(&cluster.nodes())?;
    ensure!(found.is_empty(), "{found:#?}");

    // An open transaction that has changed a table blocks no session that does not use it.
    run(&mut client, &["BEGIN", "ALTER TABLE p0 ADD COLUMN w int"])?;
    let mut other = Client::connect(&endpoint)?;
    run(&mut other, &["SET statement_timeout = '5s'"])?;
    let begun = Instant::now();
    run(
        &mut other,
        &[
            "CREATE TABLE unrelated (id int PRIMARY KEY)",
            "CREATE VIEW unrelated_too AS SELECT * FROM unrelated",
            "ALTER TABLE p1 ADD COLUMN w int",
            "CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "DROP VIEW unrelated_too",
            "DROP TABLE unrelated",
        ],
    )?;
    ensure!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    client.query("COMMIT")?;
    Ok(())
}

/// The first to commit learns late that it has: the second's version of the table is newer.
#[test]
fn whoever_commits_last_is_published_last() -> Result<()> {
    const ATTEMPTS: u32 = 30;
    let cluster = start_with_home_tables(2)?;
    let seconds = [
        "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION counting()",
        "ALTER TABLE t ADD COLUMN c int DEFAULT counts()",
        "SELECT tutti_distribute('t', 'id')",
    ];
    for second in seconds {
        let mut is_late = false;
        for _ in 0..ATTEMPTS {
            is_late = commit_with_late_news(&cluster, second)?;
            if is_late {
                break;
            }
        }
        ensure!(
            is_late,
            "{second}: the first transaction was never late to hear that it had committed"
        );
    }
    Ok(())
}

/// A transaction that changes a table commits, and `second`, which waits for it, changes the table too. The
/// process of node 2, where the first one has read, is stopped between its vote and its COMMIT. False: it
/// was not, for the first one was quicker.
fn commit_with_late_news(cluster: &TestCluster, second: &'static str) -> Result<bool> {
    let (endpoint, nodes) = (cluster.endpoint(), cluster.nodes());
    let mut client = Client::connect(&endpoint)?;
    run(&mut client, &["DROP TABLE IF EXISTS t", "CREATE TABLE t (id int, v int)"])?;
    let mut first = Client::connect(&endpoint)?;
    run(&mut first, &["BEGIN", "SELECT count(*) FROM spread", "ALTER TABLE t ADD COLUMN a int"])?;
    let waiting = meanwhile(&endpoint, second);
    let waits_with = if second.starts_with("SELECT") { "LOCK TABLE" } else { second };
    wait_until_waiting(&nodes[0], waits_with)?;
    let (mut node, mut other) = (Client::connect(&nodes[0])?, Client::connect(&nodes[1])?);
    let commit = thread::spawn(move || first.query("COMMIT"));
    let voted = "SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'
        AND query = 'SHOW server_version_num'";
    let stopped = loop {
        match other.query(voted)?.into_iter().flatten().flatten().next() {
            Some(pid) => break Some(Stopped::process(pid)?),
            None if commit.is_finished() => break None,
            None => (),
        }
    };
    let is_there = "SELECT count(*) FROM pg_attribute
        WHERE attrelid = 't'::regclass AND attname = 'a'";
    while node.value(is_there)? == "0" {
        sleep(Duration::from_millis(10));
    }
    // Long enough to commit; a distributed table wants the node that is stopped, or not.
    sleep(A_WHILE);
    let is_late = !commit.is_finished();
    drop(stopped);
    commit.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
    let done = joined(waiting)?;
    ensure!(!done.starts_with("40"), "{second}: {done}");
    if second.contains("distribute") {
        client.query("INSERT INTO t SELECT g, g FROM generate_series(1, 90) g")?;
        let here = node.value("SELECT count(*) FROM t")?;
        ensure!(here != "90" && client.value("SELECT count(*) FROM t")? == "90", "{here}");
    } else {
        let answer = said(&client.simple("INSERT INTO t VALUES (1, 1)", b"")?);
        ensure!(answer == "0A000", "behind {second}: {answer}");
    }
    Ok(is_late)
}

/// What waits on node 1 for a table of node 1's runs what the table has then: what it was planned
/// without is asked for all the same.
#[test]
fn what_waits_for_a_home_table_runs_no_code_that_it_was_planned_without() -> Result<()> {
    let cluster = start_with_home_tables(2)?;
    let (endpoint, nodes) = (cluster.endpoint(), cluster.nodes());
    let mut client = Client::connect(&endpoint)?;
    let insert = "INSERT INTO t (id) VALUES (1)";
    let refused = [
        ("CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION counting()", insert),
        ("ALTER TABLE t ALTER v SET DEFAULT counts()", insert),
        ("ALTER TABLE t ADD COLUMN w int DEFAULT counts()", insert),
        ("ALTER TABLE t ADD CHECK (counts() > id)", insert),
        ("CREATE RULE ru AS ON INSERT TO t DO ALSO INSERT INTO log VALUES (counts())", insert),
        ("CREATE OR REPLACE VIEW seen AS SELECT counts() AS id", "SELECT id FROM seen"),
    ];
    for (change, waits) in refused {
        run(
            &mut client,
            &[
                "DROP VIEW IF EXISTS seen; DROP TABLE IF EXISTS t, log",
                "CREATE TABLE t (id int, v int)",
                "CREATE TABLE log (id int PRIMARY KEY)",
                "CREATE VIEW seen AS SELECT id FROM log",
                "BEGIN",
                change,
            ],
        )?;
        let waiting = meanwhile(&endpoint, waits);
        wait_until_waiting(&nodes[0], waits)?;
        client.query("COMMIT")?;
        let answer = joined(waiting)?;
        ensure!(answer == "0A000", "{waits} behind {change}: {answer}");
        ensure!(client.value("SELECT count(*) FROM t")? == "0");
    }

    // What brings no code lets it go on, also in a transaction.
    run(&mut client, &["BEGIN", "ALTER TABLE log ADD COLUMN w text DEFAULT now()"])?;
    let waits = "INSERT INTO log VALUES (1)";
    let waiting = meanwhile(&endpoint, &format!("BEGIN; SELECT 1; {waits}; COMMIT"));
    wait_until_waiting(&nodes[0], waits)?;
    client.query("COMMIT")?;
    ensure!(joined(waiting)? == "1" && client.value("SELECT count(*) FROM log")? == "1");
    Ok(())
}

/// The name by which a statement has waited is that of another table when it goes on.
#[test]
fn what_waits_for_a_home_table_finds_no_other_one_unseen() -> Result<()> {
    let cluster = start_with_home_tables(2)?;
    let (endpoint, nodes) = (cluster.endpoint(), cluster.nodes());
    let mut client = Client::connect(&endpoint)?;
    for change in [
        "DROP TABLE first.spread",
        "DROP TABLE first.spread CASCADE",
        "ALTER TABLE first.spread RENAME TO other",
        "ALTER TABLE first.spread SET SCHEMA second",
    ] {
        run(
            &mut client,
            &[
                "CREATE SCHEMA first",
                "CREATE SCHEMA second",
                "CREATE TABLE first.spread (id int, v int)",
                "DELETE FROM public.spread",
            ],
        )?;
        let mut other = Client::connect(&endpoint)?;
        other.query("SET search_path = first, public")?;
        run(&mut client, &["BEGIN", change])?;
        let waits = "INSERT INTO spread VALUES (1), (2), (3), (4), (5), (6), (7), (8)";
        let waiting = thread::spawn(move || other.query(waits));
        wait_until_waiting(&nodes[0], waits)?;
        client.query("COMMIT")?;
        waiting.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        for id in 1..=8 {
            let found = format!("SELECT count(*) FROM public.spread WHERE id = {id}");
            ensure!(client.value(&found)? == "1", "{change}: {id}");
        }
        client.query("DROP SCHEMA first, second CASCADE")?;
    }
    Ok(())
}

/// A procedure that commits is asked nothing, for it is proven to touch tables of node 1 only. What would
/// make that untrue has to wait until it has ended; what would not does not notice it.
#[test]
fn what_a_committing_procedure_rests_on_stays_while_it_runs() -> Result<()> {
    let cluster = start_with_home_tables(2)?;
    let endpoint = cluster.endpoint();
    let mut client = Client::connect(&endpoint)?;
    run(
        &mut client,
        &[
            "CREATE SCHEMA first",
            "CREATE TABLE work (id int, v int)",
            "CREATE TABLE enough (id int)",
            "CREATE FUNCTION step() RETURNS void LANGUAGE plpgsql AS
                 'BEGIN INSERT INTO work VALUES (1, 1); END'",
            "CREATE PROCEDURE works() LANGUAGE plpgsql AS
                 'BEGIN LOOP
                      PERFORM step();
                      COMMIT;
                      EXIT WHEN EXISTS (SELECT FROM enough);
                  END LOOP; END'",
        ],
    )?;
    let mut worker = Client::connect(&endpoint)?;
    worker.query("SET search_path = first, public")?;
    let working = thread::spawn(move || worker.query("CALL works()"));
    let is_at_work = |client: &mut Client| -> Result<bool> {
        let count = client.value("SELECT count(*) FROM work")?;
        sleep(Duration::from_millis(50));
        Ok(client.value("SELECT count(*) FROM work")? != count)
    };
    while !is_at_work(&mut client)? {}
    let refused = [
        "CREATE OR REPLACE FUNCTION step() RETURNS void LANGUAGE plpgsql AS
             'BEGIN INSERT INTO spread VALUES (counts()); END'",
        "CREATE FUNCTION first.step() RETURNS void LANGUAGE plpgsql AS
             'BEGIN PERFORM counts(); END'",
        "CREATE TRIGGER tr BEFORE INSERT ON work FOR EACH ROW EXECUTE FUNCTION counting()",
        "ALTER TABLE work ALTER v SET DEFAULT counts()",
        "CREATE TABLE first.work (id int, v int) DISTRIBUTE BY HASH (id)",
        "CREATE TABLE first.enough (id int) DISTRIBUTE BY HASH (id)",
        "SELECT tutti_distribute('work', 'id')",
    ];
    for change in refused {
        let answer = said(&client.simple(change, b"")?);
        ensure!(answer == "40001", "{change}: {answer}");
    }
    let taken = [
        "CREATE OR REPLACE FUNCTION step() RETURNS void LANGUAGE plpgsql AS
             'BEGIN INSERT INTO work VALUES (2, 2); END'",
        "CREATE FUNCTION first.step(int) RETURNS void LANGUAGE plpgsql AS 'BEGIN END'",
        "ALTER TABLE work ADD COLUMN w int DEFAULT 7",
        "CREATE TABLE first.other (id int) DISTRIBUTE BY HASH (id)",
        "SELECT tutti_home('first.other')",
    ];
    for change in taken {
        client.query(change)?;
    }
    ensure!(is_at_work(&mut client)?);
    client.query("INSERT INTO enough VALUES (1)")?;
    working.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
    ensure!(client.value("SELECT count(*) FROM work WHERE id = 2 AND w = 7")? != "0");
    // No session has worked on a part of it, and now nothing prevents it.
    ensure!(client.value("SELECT count(*) FROM spread")? == "90");
    for change in refused {
        client.query(change)?;
    }
    Ok(())
}

/// Servers choose names that they do not have yet, and node 1 has tables that others have not.
#[test]
fn an_index_has_the_same_name_everywhere() -> Result<()> {
    let cluster = start_with_home_tables(2)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE TABLE rr_v_idx (i int) DISTRIBUTE BY HOME",
        "CREATE TABLE rr_k_v_key (i int) DISTRIBUTE BY HOME",
        "CREATE TABLE rr (k int PRIMARY KEY, v int) DISTRIBUTE BY REPLICATED",
    ] {
        client.query(sql)?;
    }
    for sql in ["CREATE UNIQUE INDEX ON rr (v)", "ALTER TABLE rr ADD UNIQUE (k, v)"] {
        let answer = client.simple(sql, b"")?;
        let indexes = |node: &Endpoint| -> Result<String> {
            Client::connect(node)?.value(
                "SELECT string_agg(indexrelid::regclass::text, ', ' ORDER BY 1) FROM pg_index
                 WHERE indrelid = 'rr'::regclass",
            )
        };
        let nodes = cluster.nodes();
        ensure!(indexes(&nodes[0])? == indexes(&nodes[1])?, "{sql}: {answer}");
        if sql.starts_with("CREATE") {
            ensure!(answer.error().is_some_and(|error| error.sqlstate() == "0A000"), "{answer}");
        }
    }
    client.query("CREATE UNIQUE INDEX one ON rr (v); CREATE INDEX ON rr (v, k); DROP INDEX one")?;
    client.query("INSERT INTO rr VALUES (1, 1), (2, 1)").map(drop)
}

/// Comments are how tools say who sends a statement. They are no part of it.
#[test]
fn a_comment_before_a_statement_changes_nothing() -> Result<()> {
    let cluster = start_with_home_tables(2)?;
    let (endpoint, nodes) = (cluster.endpoint(), cluster.nodes());
    let mut client = Client::connect(&endpoint)?;
    for comment in ["", "/* create order */ ", "-- alter nothing\n", "; "] {
        run(
            &mut client,
            &[
                "DROP TABLE IF EXISTS t",
                "CREATE TABLE t (id int, v int)",
                "BEGIN",
                "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION counting()",
            ],
        )?;
        let insert = format!("{comment}INSERT INTO t VALUES (1, 1)");
        let answer = said(&client.simple(&insert, b"")?);
        client.query("ROLLBACK")?;
        ensure!(answer == "0A000", "{insert}: {answer}");
    }
    // What was made before it checks the rows.
    run(
        &mut client,
        &[
            "INSERT INTO t VALUES (1, 1)",
            "BEGIN",
            "ALTER TABLE t ADD CONSTRAINT late CHECK (counts() > id) NOT VALID",
        ],
    )?;
    let answer = said(&client.simple("ALTER TABLE t VALIDATE CONSTRAINT late", b"")?);
    client.query("ROLLBACK")?;
    ensure!(answer == "0A000", "VALIDATE: {answer}");

    // While a change is being committed, other transactions can still end.
    let mut other = Client::connect(&endpoint)?;
    other.query("BEGIN")?;
    run(&mut client, &["BEGIN", "SELECT count(*) FROM spread", "ALTER TABLE t ADD COLUMN a int"])?;
    let stopped = Stopped::in_transaction(&nodes[1])?;
    let commit = thread::spawn(move || client.query("COMMIT"));
    sleep(A_WHILE);
    let begun = Instant::now();
    other.query("/* the end */ COMMIT")?;
    let waited = begun.elapsed();
    drop(stopped);
    commit.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
    ensure!(waited < A_WHILE, "{waited:?}");
    Ok(())
}

#[test]
fn a_transaction_uses_what_it_has_made_and_rolls_it_back() -> Result<()> {
    let cluster = start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    // From here on nodes 2 and 3 count otherwise than node 1.
    let mut node = Client::connect(&cluster.nodes()[1])?;
    run(&mut node, &["CREATE TABLE past_the_gateway (a int)", "DROP TABLE past_the_gateway"])?;
    run(
        &mut client,
        &[
            "BEGIN",
            "CREATE TYPE mood AS ENUM ('a', 'b')",
            "CREATE TABLE moods (id int PRIMARY KEY, m mood) DISTRIBUTE BY HASH (id)",
            "PREPARE put (int, mood) AS INSERT INTO moods VALUES ($1, $2)",
        ],
    )?;
    for id in 1..=9 {
        client.query(&format!("EXECUTE put ({id}, 'a')"))?;
    }
    let rows = client.query("SELECT m FROM moods")?;
    ensure!(rows.len() == 9, "{rows:?}");
    run(
        &mut client,
        &[
            "SAVEPOINT s",
            "ALTER TABLE moods RENAME TO feelings",
            "INSERT INTO feelings VALUES (10, 'b')",
            "ROLLBACK TO s",
            "INSERT INTO moods VALUES (10, 'b')",
            "COMMIT",
        ],
    )?;
    ensure!(client.value("SELECT count(*) FROM moods")? == "10");
    run(
        &mut client,
        &[
            "CREATE TABLE m1 (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)",
            "BEGIN ISOLATION LEVEL SERIALIZABLE",
            "TRUNCATE m1",
            "SAVEPOINT s2",
            "SELECT id FROM m1",
            "ROLLBACK TO s2",
            "ROLLBACK",
        ],
    )
}

/// Names of views in their own texts, and views over views.
#[test]
fn a_view_over_a_recursive_view_is_a_view() -> Result<()> {
    let cluster = start(2)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(
        &mut client,
        &[
            "CREATE RECURSIVE VIEW nums (n) AS VALUES (1) UNION ALL SELECT n + 1 FROM nums WHERE n < 5",
            "CREATE VIEW over_it AS SELECT * FROM nums",
            "CREATE OR REPLACE RECURSIVE VIEW nums (n) AS
                VALUES (1) UNION ALL SELECT n + 1 FROM nums WHERE n < 6",
        ],
    )?;
    ensure!(client.value("SELECT sum(n) FROM over_it")? == "21");
    client.query("CREATE VIEW v0 AS SELECT 1 AS a")?;
    for i in 1..=5 {
        let below = i - 1;
        client.query(&format!(
            "CREATE VIEW v{i} AS SELECT a FROM v{below} UNION SELECT a FROM v{below}"
        ))?;
    }
    ensure!(client.value("SELECT a FROM v5")? == "1");
    Ok(())
}

#[test]
fn a_temporary_child_is_its_sessions_business() -> Result<()> {
    let cluster = start(2)?;
    let (mut one, mut other) =
        (Client::connect(&cluster.endpoint())?, Client::connect(&cluster.endpoint())?);
    run(
        &mut one,
        &[
            "CREATE TABLE parent (a int) DISTRIBUTE BY HOME",
            "CREATE TABLE spread (a int)",
            "CREATE TEMP TABLE child () INHERITS (parent)",
            "INSERT INTO child VALUES (1)",
        ],
    )?;
    ensure!(one.value("SELECT count(*) FROM parent")? == "1");
    let refused = one.simple("CREATE TEMP TABLE c2 () INHERITS (spread)", b"")?;
    ensure!(refused.error().is_some_and(|error| error.sqlstate() == "0A000"), "{refused}");
    run(
        &mut other,
        &["CREATE TABLE unrelated (a int)", "CREATE SEQUENCE s", "DROP TABLE unrelated"],
    )
}

/// What the clients of the generator know they have done.
#[derive(Default)]
struct Ledger {
    acknowledged: BTreeSet<i64>,
    unknown: BTreeSet<i64>,
}

/// Inserts rows until the end; remembers what became of each.
fn write(endpoint: &Endpoint, writer: i64, seed: u64, ended: &AtomicBool) -> Result<Ledger> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut client = Client::connect(endpoint)?;
    let mut ledger = Ledger::default();
    let mut next = writer * 1_000_000;
    while !ended.load(Ordering::Relaxed) {
        next += 1;
        let insert = format!("INSERT INTO t VALUES ({next}, {})", next * 3);
        let statements = match random.random_range(0..5) {
            0 => vec![insert],
            1 => vec!["BEGIN".to_owned(), insert, "COMMIT".to_owned()],
            2 | 3 => vec![
                format!(
                    "SELECT pg_sleep(0.003) FROM still WHERE id = {}",
                    random.random_range(1..9)
                ),
                insert,
            ],
            _ => vec![
                "BEGIN ISOLATION LEVEL REPEATABLE READ".to_owned(),
                "SELECT count(*) FROM t WHERE id < 0".to_owned(),
                insert,
                "COMMIT".to_owned(),
            ],
        };
        let mut failed = None;
        if statements.len() == 2 {
            // One flight.
            let one = |sql: &String| format!("P |{sql}\nB |\nE |0\n");
            let begin = if random.random() { "P |BEGIN\nB |\nE |0\n" } else { "" };
            let commit = if begin.is_empty() { "" } else { "P |COMMIT\nB |\nE |0\n" };
            let flight = statements.iter().map(one).collect::<String>();
            let said = conversation::hold(&mut client, &format!("{begin}{flight}{commit}S"))?;
            failed = said.iter().find_map(|line| line.strip_prefix("Error ").map(str::to_owned));
        }
        for sql in statements.iter().filter(|_| statements.len() != 2) {
            let answer = client.simple(sql, b"")?;
            if let Some(error) = answer.error() {
                failed = Some(error.sqlstate().to_owned());
                break;
            }
        }
        match failed.as_deref() {
            None => drop(ledger.acknowledged.insert(next)),
            Some("08007") => drop(ledger.unknown.insert(next)),
            Some("40001" | "40P01" | "42P01" | "57P03") => drop(client.simple("ROLLBACK", b"")?),
            Some(other) => bail!("{statements:?}: {other}"),
        }
    }
    Ok(ledger)
}

/// Reads rows that are there from the beginning, in every way.
fn read(endpoint: &Endpoint, seed: u64, ended: &AtomicBool) -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut client = Client::connect(endpoint)?;
    while !ended.load(Ordering::Relaxed) {
        let id = random.random_range(1..=50);
        let (sql, expected) = match random.random_range(0..4) {
            0 => ("SELECT count(*) FROM t WHERE id BETWEEN 1 AND 50".to_owned(), "50"),
            1 => (format!("SELECT count(*) FROM t WHERE id = {id}"), "1"),
            2 => (format!("SELECT count(*) FROM t WHERE v = {}", id * 3), "1"),
            _ => ("SELECT count(*) FROM tv WHERE id BETWEEN 1 AND 50".to_owned(), "50"),
        };
        let answer = client.simple(&sql, b"")?;
        match answer.error() {
            Some(error) if ["40001", "40P01", "57P03"].contains(&error.sqlstate()) => (),
            Some(error) => bail!("{sql}: {} {}", error.sqlstate(), error.message()),
            None => {
                let found = answer.texts().concat();
                ensure!(found == [Some(expected.to_owned())], "{sql}: {found:?}");
            }
        }
    }
    Ok(())
}

/// Changes where the rows of `t` are, and the schema around it.
fn change(endpoint: &Endpoint, seed: u64, ended: &AtomicBool) -> Result<u32> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut client = Client::connect(endpoint)?;
    let mut changes = 0;
    while !ended.load(Ordering::Relaxed) {
        let other = random.random_range(0..3);
        let statements: Vec<String> = match random.random_range(0..9) {
            0 => vec!["SELECT tutti_distribute('t', 'id')".into()],
            1 => vec!["SELECT tutti_distribute('t', 'v')".into()],
            2 => vec!["SELECT tutti_round_robin('t')".into()],
            3 => vec!["SELECT tutti_replicate('t')".into()],
            4 => vec![
                "BEGIN".into(),
                "SELECT tutti_distribute('t', 'id')".into(),
                if random.random() { "ROLLBACK" } else { "COMMIT" }.into(),
            ],
            5 => vec![
                format!("CREATE TABLE other_{other} (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)"),
                format!("DROP TABLE other_{other}"),
            ],
            6 => {
                vec!["ALTER TABLE t ADD COLUMN w int".into(), "ALTER TABLE t DROP COLUMN w".into()]
            }
            7 => vec!["CREATE OR REPLACE VIEW tv AS SELECT id FROM t".into()],
            _ => vec![
                "BEGIN".into(),
                "CREATE INDEX ON t (v)".into(),
                format!("CREATE TABLE IF NOT EXISTS other_{other} (id int)"),
                "ROLLBACK".into(),
            ],
        };
        for sql in &statements {
            let answer = client.simple(sql, b"")?;
            let Some(error) = answer.error() else { continue };
            // Others change the same things.
            if !["40001", "40P01", "42P01", "42P07", "42701", "42703", "XX000", "55P03"]
                .contains(&error.sqlstate())
            {
                bail!("{sql}: {} {}", error.sqlstate(), error.message());
            }
            client.simple("ROLLBACK", b"")?;
            break;
        }
        changes += 1;
        sleep(Duration::from_millis(random.random_range(0..60)));
    }
    Ok(changes)
}

/// The oracle: every row that a client knows to be there is there once, by scan and by each key, none
/// that it knows not to be there, copies are equal, and the gateway's catalog is the nodes'.
#[test]
fn every_row_is_there_once_whatever_changes_meanwhile() -> Result<()> {
    const SECONDS: u64 = 12;
    let seed = environment::number("TUTTI_SEED", 1);
    let cluster = start(3)?;
    let endpoint = cluster.endpoint();
    let mut client = Client::connect(&endpoint)?;
    run(
        &mut client,
        &[
            "CREATE TABLE t (id int, v int) DISTRIBUTE BY HASH (id)",
            "CREATE VIEW tv AS SELECT id FROM t",
            "INSERT INTO t SELECT g, g * 3 FROM generate_series(1, 50) g",
            "CREATE TABLE still (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)",
            "INSERT INTO still SELECT generate_series(1, 9)",
        ],
    )?;
    let ended = AtomicBool::new(false);
    let (ledgers, changes) = thread::scope(|scope| -> Result<_> {
        let (endpoint, ended) = (&endpoint, &ended);
        let writers: Vec<_> = (1..=3)
            .map(|writer| {
                scope.spawn(move || {
                    write(endpoint, writer, seed * 100 + writer.unsigned_abs(), ended)
                })
            })
            .collect();
        let readers: Vec<_> = (1..=2)
            .map(|i| scope.spawn(move || read(endpoint, seed * 100 + 10 + i, ended)))
            .collect();
        let changers: Vec<_> = (1..=2)
            .map(|i| scope.spawn(move || change(endpoint, seed * 100 + 20 + i, ended)))
            .collect();
        sleep(Duration::from_secs(SECONDS));
        ended.store(true, Ordering::Relaxed);
        let panicked = |_| anyhow::anyhow!("a client panicked");
        let mut ledgers = Vec::new();
        for writer in writers {
            ledgers.push(writer.join().map_err(panicked)??);
        }
        for reader in readers {
            reader.join().map_err(panicked)??;
        }
        let mut changes = 0;
        for changer in changers {
            changes += changer.join().map_err(panicked)??;
        }
        Ok((ledgers, changes))
    })?;
    let id = |row: &Vec<Option<String>>| -> Result<i64> {
        Ok(row[0].as_deref().context("no key is null")?.parse()?)
    };
    let found = client.query("SELECT id FROM t WHERE id > 50 ORDER BY id")?;
    let found = found.iter().map(id).collect::<Result<Vec<_>>>()?;
    let mut once: BTreeSet<_> = found.iter().copied().collect();
    ensure!(once.len() == found.len(), "seed {seed}: rows are there twice");
    let acknowledged: BTreeSet<_> =
        ledgers.iter().flat_map(|ledger| ledger.acknowledged.iter().copied()).collect();
    for ledger in &ledgers {
        once.retain(|id| !ledger.unknown.contains(id) || acknowledged.contains(id));
    }
    ensure!(
        once == acknowledged,
        "seed {seed}: lost {:?}, undead {:?}",
        acknowledged.difference(&once).take(9).collect::<Vec<_>>(),
        once.difference(&acknowledged).take(9).collect::<Vec<_>>()
    );
    for id in acknowledged.iter().step_by(acknowledged.len() / 50 + 1) {
        for key in [format!("id = {id}"), format!("v = {}", id * 3)] {
            let count = client.value(&format!("SELECT count(*) FROM t WHERE {key}"))?;
            ensure!(count == "1", "seed {seed}: {key}: {count}");
        }
    }
    let found = disagreements(&cluster.nodes())?;
    ensure!(found.is_empty(), "seed {seed}: {found:#?}");
    let known = client.query("SELECT * FROM tutti_tables()")?;
    let kind = Client::connect(&cluster.nodes()[0])?
        .value("SELECT kind FROM tutti.placement WHERE relation = 't'::regclass")?;
    let at_gateway = known.iter().find(|row| row[0].as_deref() == Some("public.t"));
    let at_gateway = at_gateway.and_then(|row| row[1].clone()).unwrap_or_default();
    ensure!(at_gateway.replace(' ', "_") == kind, "seed {seed}: {at_gateway}, not {kind}");
    ensure!(0 < changes && !acknowledged.is_empty(), "nothing happened");
    Ok(())
}
