//! Statements that a client sends together, and portals that it executes later, beside changes of placements
//! and of the schema: the union of what they use is what changes see of them.
//!
//! Owns: the cases that were found wrong once. Never: judges a change on its own (see `schema_changes`).
//! Start reading at [`a_utility_portal_begins_when_it_is_executed`].

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use tutti_gateway::{Config, DefaultDistribution, Switches};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::conversation;
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::{environment, servers};

/// Rows of table `b`.
const ROWS: i32 = 40;

fn start(nodes: u16) -> Result<TestCluster> {
    let cluster = TestCluster::start_with(servers::durable(nodes)?, Switches::default())?;
    Client::connect(&cluster.endpoint())?.query(
        "CREATE TABLE zz (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
         INSERT INTO zz SELECT n, 0 FROM generate_series(1, 20) n;
         CREATE TABLE other (k int, j int) DISTRIBUTE BY HASH (k);
         INSERT INTO other SELECT n, 7919 * n FROM generate_series(1, 10) n",
    )?;
    Ok(cluster)
}

/// Makes the home table `b` anew.
fn make_b(client: &mut Client) -> Result<()> {
    client.query(&format!(
        "DROP TABLE IF EXISTS b; CREATE TABLE b (k int, j int) DISTRIBUTE BY HOME;
         INSERT INTO b SELECT n, 7919 * n FROM generate_series(1, {ROWS}) n"
    ))?;
    Ok(())
}

pub(crate) fn one(sql: &str) -> String {
    format!("P |{sql}\nB |\nE |0\n")
}

/// Holds a conversation in a thread of its own.
pub(crate) fn meanwhile(
    mut client: Client,
    flight: String,
) -> JoinHandle<Result<(Vec<String>, Client)>> {
    thread::spawn(move || {
        let said = conversation::hold(&mut client, &flight)?;
        Ok((said, client))
    })
}

pub(crate) fn joined<T>(thread: JoinHandle<Result<T>>) -> Result<T> {
    thread.join().map_err(|_| anyhow::anyhow!("a client panicked"))?
}

/// Has a node wait with each commit and vote, or wait no more.
pub(crate) fn vote_slowly(node: &mut Client, is_slow: bool) -> Result<()> {
    let names = if is_slow { "nobody" } else { "" };
    node.query(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"))?;
    node.query("SELECT pg_reload_conf()")?;
    sleep(Duration::from_millis(200));
    Ok(())
}

fn rows_of_b(cluster: &TestCluster) -> Result<Vec<String>> {
    let count = |node: &Endpoint| Client::connect(node)?.value("SELECT count(*) FROM b");
    cluster.nodes().iter().map(count).collect()
}

/// Whether a conversation was refused; that which was done must be all of it.
fn was_done(said: &[String], tag: &str) -> Result<bool> {
    let is_done = said.iter().any(|line| line.contains(tag));
    let refused = said.iter().any(|line| line == "Error 40001");
    ensure!(is_done != refused, "{said:#?}");
    Ok(is_done)
}

/// A client that pauses within a flight, before anything of it was sent, while a change stops what it has planned:
/// whatever message comes next, the flight goes on with the change, and the gateway with everybody else.
#[test]
fn a_flight_that_pauses_before_anything_is_sent_goes_on_with_the_change() -> Result<()> {
    let cluster = start(2)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    admin.query(
        "CREATE TABLE paused (k int PRIMARY KEY, v int) DISTRIBUTE BY HASH (k);
         INSERT INTO paused SELECT n, 10 * n FROM generate_series(1, 20) n",
    )?;
    let (one, all) = ("SELECT v FROM paused WHERE k = 5", "SELECT count(*) FROM paused");
    let suspended = format!("Q BEGIN\nP |{one}\nB p|\nE p|1\nS\n--");
    let cases = [
        (String::new(), format!("P |{one}"), "H\nB |\nE |0"),
        (String::new(), format!("P |{one}"), "C P nothing\nB |\nE |0"),
        (String::new(), format!("P |{one}"), "C S nothing\nB |\nE |0"),
        (String::new(), format!("P |{one}"), "P other|SELECT 1\nB |\nE |0\nC S other"),
        (String::new(), format!("P |{one}"), "D S\nB |\nE |0"),
        (String::new(), format!("P |{one}"), "B |\nE |0"),
        (String::new(), format!("P named|{one}"), "S\nB |named\nE |0\nC S named"),
        (String::new(), format!("P |{one}\nB |"), "H\nE |0"),
        (String::new(), format!("P |{all}\nB |"), "H\nE |0"),
        (String::new(), format!("P |{all}\nB |"), "C P nothing\nD P\nE |0"),
        (suspended.clone(), format!("P |{all}\nB |"), "C P p\nE |0"),
        (suspended.clone(), format!("P |{all}\nB |"), "D P p\nE |0"),
        (suspended, format!("P |{one}"), "E p|1\nB |\nE |0"),
    ];
    for (before, planned, then) in cases {
        let what = format!("{before} {planned}, then {then}");
        let mut client = Client::connect(&cluster.endpoint())?;
        if !before.is_empty() {
            conversation::hold(&mut client, &before)?;
        }
        conversation::hold(&mut client, &format!("{planned}\n--\n"))?;
        // The flight's messages are there, and what is planned is planned.
        sleep(Duration::from_millis(50));
        // One that has a lock on the table keeps others from changing it.
        let changed = if before.is_empty() { "paused" } else { "other_paused" };
        admin.query("CREATE TABLE other_paused (k int) DISTRIBUTE BY HASH (k)")?;
        admin.query(&format!("ALTER TABLE {changed} ADD COLUMN w int"))?;
        let said = conversation::hold(&mut client, &format!("{then}\nS\n--\n"))
            .with_context(|| what.clone())?;
        ensure!(!said.iter().any(|line| line.starts_with("Error")), "{what}: {said:#?}");
        let value = if planned.contains("count") { "20" } else { "50" };
        ensure!(said.iter().any(|line| line.contains(value)), "{what}: {said:#?}");
        ensure!(admin.value("SELECT 1")? == "1");
        drop(client);
        admin.query("DROP TABLE other_paused")?;
        if before.is_empty() {
            admin.query("ALTER TABLE paused DROP COLUMN w")?;
        }
    }
    Ok(())
}

/// A transaction that makes tables on all nodes goes on beside others that do, whose changes its nodes are made to
/// notice.
#[test]
fn a_transaction_that_makes_tables_goes_on_beside_changes_of_others() -> Result<()> {
    let cluster = start(2)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for first in ["CREATE TABLE m1 (k int) DISTRIBUTE BY HASH (k)", "SELECT count(*) FROM zz"] {
        client.query(&format!("BEGIN; {first}"))?;
        for made in ["m2", "m3"] {
            admin.query("CREATE TABLE u (k int) DISTRIBUTE BY HASH (k); DROP TABLE u")?;
            client.query(&format!("CREATE TABLE {made} (k int) DISTRIBUTE BY HASH (k)"))?;
            client.query(&format!("INSERT INTO {made} SELECT generate_series(1, 9)"))?;
            admin.query("CREATE TABLE u (k int) DISTRIBUTE BY HASH (k); DROP TABLE u")?;
            client.query(&format!("CREATE INDEX ON {made} (k)"))?;
            ensure!(client.value(&format!("SELECT count(*) FROM {made}"))? == "9", "{first}");
        }
        client.query("ROLLBACK")?;
    }
    Ok(())
}

/// A portal shows rows as they were when it was bound. One that the gateway carries out when it is executed is
/// refused if its session has written since, whether within a block or not; others' writes are as good before as
/// after.
#[test]
fn a_portal_shows_nothing_that_was_written_after_its_bind() -> Result<()> {
    let cluster = start(2)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    let write = one("UPDATE zz SET v = v + 1 WHERE id = 1");
    let writes_all = one("UPDATE zz SET v = v + 1");
    for query in
        ["SELECT sum(v) FROM zz", "SELECT zz.v, j FROM zz JOIN other ON k = id ORDER BY id"]
    {
        for write in [&write, &writes_all] {
            for block in ["Q BEGIN\n--\n", ""] {
                let flight = format!("{block}P |{query}\nB p|\n{write}E p|0\nS\n--\nQ ROLLBACK");
                let said = conversation::hold(&mut client, &flight)?;
                ensure!(said.iter().any(|line| line == "Error 0A000"), "{flight}: {said:#?}");
                ensure!(client.value("SELECT sum(v) FROM zz")? == "0", "{flight}");
                let flight = format!("{block}P |{query}\nB p|\nE p|0\nS\n--\nQ ROLLBACK");
                let said = conversation::hold(&mut client, &flight)?;
                ensure!(!said.iter().any(|line| line.starts_with("Error")), "{flight}: {said:#?}");
            }
        }
    }
    Ok(())
}

/// A TRUNCATE or COPY that was bound earlier and is executed, with other statements around it, while a change of
/// its table is open: it waits for the change's lock, and must not run by the placement before it.
#[test]
fn a_utility_portal_begins_when_it_is_executed() -> Result<()> {
    let cluster = start(2)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let read = one("SELECT v FROM zz WHERE id = 1");
    let whole = one("SELECT count(*) FROM zz");
    let show = one("SHOW work_mem");
    let insert = one("INSERT INTO zz SELECT n, 0 FROM generate_series(100, 109) n");
    let end = one("DELETE FROM zz WHERE id >= 100");
    let execute = "E pp|0\n".to_owned();
    for (begin, flight) in [
        (true, format!("{read}{execute}S")),
        (true, format!("{execute}{read}S")),
        (true, format!("{whole}{execute}{read}S")),
        (true, format!("{execute}S")),
        (false, format!("P |TRUNCATE b\nB pp|\n{whole}{execute}S")),
        (false, format!("P |TRUNCATE b\nB pp|\n{show}{execute}{read}S")),
        (false, format!("P |TRUNCATE b\nB pp|\n{insert}{execute}{end}S")),
        (false, format!("P |TRUNCATE b\nB pp|\n{read}{execute}{read}S")),
    ] {
        for change in ["tutti_distribute('b', 'k')", "tutti_replicate('b')"] {
            make_b(&mut admin)?;
            let mut client = Client::connect(&cluster.endpoint())?;
            if begin {
                client.query("BEGIN")?;
                conversation::hold(&mut client, "P |TRUNCATE b\nB pp|\nS")?;
            }
            let mut changer = Client::connect(&cluster.endpoint())?;
            changer.query(&format!("BEGIN; SELECT {change}"))?;
            let asked = meanwhile(client, flight.clone());
            cluster.comes_to_wait_for_a_lock(Duration::from_secs(2))?;
            changer.query("COMMIT")?;
            let (said, mut client) = joined(asked)?;
            if begin {
                client.query("COMMIT")?;
            }
            let done = was_done(&said, "TRUNCATE TABLE")?;
            let rows = admin.value("SELECT count(*) FROM b")?;
            let expected = if done { "0".to_owned() } else { ROWS.to_string() };
            let on_nodes = rows_of_b(&cluster)?;
            ensure!(rows == expected, "{flight} {change}: {rows} rows {on_nodes:?}; {said:#?}");
            ensure!(!done || on_nodes.iter().all(|rows| rows == "0"), "{flight}: {on_nodes:?}");
        }
    }
    Ok(())
}

/// The same while the change is being committed, for long: a node's vote is slow.
#[test]
fn a_utility_portal_waits_for_a_change_that_is_being_committed() -> Result<()> {
    let cluster = start(2)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let mut second = Client::connect(&cluster.nodes()[1])?;
    for flight in
        ["E pp|0\nS".to_owned(), format!("{}E pp|0\nS", one("SELECT v FROM zz WHERE id = 1"))]
    {
        make_b(&mut admin)?;
        let mut client = Client::connect(&cluster.endpoint())?;
        client.query("BEGIN")?;
        conversation::hold(&mut client, "P |TRUNCATE b\nB pp|\nS")?;
        let mut changer = Client::connect(&cluster.endpoint())?;
        changer.query("BEGIN; SELECT tutti_distribute('b', 'k')")?;
        vote_slowly(&mut second, true)?;
        let committed = meanwhile(changer, "Q COMMIT".to_owned());
        sleep(Duration::from_millis(400));
        let asked = meanwhile(client, flight.clone());
        sleep(Duration::from_millis(700));
        vote_slowly(&mut second, false)?;
        let (changed, _) = joined(committed)?;
        ensure!(changed.iter().any(|line| line.contains("COMMIT")), "{changed:#?}");
        let (said, mut client) = joined(asked)?;
        client.query("COMMIT")?;
        let done = was_done(&said, "TRUNCATE TABLE")?;
        let rows = admin.value("SELECT count(*) FROM b")?;
        ensure!(rows == if done { "0" } else { "40" }, "{flight}: {rows} rows; {said:#?}");
    }
    Ok(())
}

/// A table of the same name is made in a schema that comes first in a session's search path, while the session
/// has a plan by the other one's placement, and waits for something else.
#[test]
fn a_name_that_means_another_table_concerns_plans_of_the_first() -> Result<()> {
    let cluster = start(3)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let key = Client::connect(&cluster.nodes()[1])?.value("SELECT min(id) FROM zz")?;
    let insert = format!("INSERT INTO b VALUES ({key}, 103)");
    let update = format!("UPDATE zz SET v = v + 1 WHERE id = {key}");
    let joins = format!("SELECT zz.id, b.j FROM zz, b WHERE zz.id = {key} AND b.k = {key}");
    let steps = "INSERT INTO tgt SELECT b.k, b.j FROM zz JOIN b ON b.k = zz.id".to_owned();
    for (lock, flight) in [
        (
            format!("UPDATE zz SET v = 1 WHERE id = {key}"),
            format!("{}{}S", one(&update), one(&insert)),
        ),
        ("LOCK TABLE zz IN ACCESS EXCLUSIVE MODE".to_owned(), format!("Q {joins}")),
        ("LOCK TABLE zz IN ACCESS EXCLUSIVE MODE".to_owned(), format!("Q {steps}")),
    ] {
        for (columns, fill) in [("DISTRIBUTE BY HASH (j)", true), ("DISTRIBUTE BY HOME", false)] {
            admin.query(
                "DROP TABLE IF EXISTS b, tgt; DROP SCHEMA IF EXISTS s1 CASCADE; CREATE SCHEMA s1;
                 CREATE TABLE b (k int, j int) DISTRIBUTE BY HASH (k);
                 INSERT INTO b SELECT n, n FROM generate_series(1, 20) n;
                 CREATE TABLE tgt (k int, j int) DISTRIBUTE BY HASH (k)",
            )?;
            let mut locker = Client::connect(&cluster.endpoint())?;
            locker.query(&format!("BEGIN; {lock}"))?;
            let mut client = Client::connect(&cluster.endpoint())?;
            client.query("SET search_path = s1, public")?;
            let asked = meanwhile(client, flight.clone());
            ensure!(cluster.comes_to_wait_for_a_lock(Duration::from_secs(10))?, "nobody waits");
            let mut changer = Client::connect(&cluster.endpoint())?;
            changer.query(&format!("BEGIN; CREATE TABLE s1.b (k int, j int) {columns}"))?;
            if fill {
                changer
                    .query("INSERT INTO s1.b SELECT n, 7919 * n FROM generate_series(1, 20) n")?;
            }
            let committed = meanwhile(changer, "Q COMMIT".to_owned());
            // It may wait for the statement, which waits for this.
            sleep(Duration::from_millis(300));
            locker.query("COMMIT")?;
            let (changed, _) = joined(committed)?;
            let made = changed.iter().any(|line| line == "CommandComplete COMMIT");
            let (said, _) = joined(asked)?;
            let refused = said.iter().any(|line| line.starts_with("Error"));
            ensure!(!refused || said.iter().any(|line| line == "Error 40001"), "{said:#?}");
            if flight.starts_with("Q SELECT") && !refused {
                let rows: Vec<_> = said.iter().filter(|line| line.starts_with("DataRow")).collect();
                let (by_first, by_second) = (format!("DataRow {key} | {key}"), usize::from(fill));
                let is_first = rows.len() == 1 && *rows[0] == by_first;
                let is_second = made && rows.len() == by_second;
                ensure!(is_first || is_second, "{columns}: {said:#?}");
            }
            if flight.starts_with("Q INSERT") && !refused {
                let count = admin.value("SELECT count(*) FROM tgt")?;
                let is_second = made && count == if fill { "20" } else { "0" };
                ensure!(count == "20" || is_second, "{columns}: {count} rows; {said:#?}");
            }
        }
    }
    // Where the rows of all these tables are, the auditor looks at the end.
    Ok(())
}

/// On one PostgreSQL the portal of a query goes on with the tables that its names meant when it was bound; that of a
/// utility statement looks them up when it is executed. Here that is so, or it is refused.
#[test]
fn a_portal_does_not_come_to_mean_another_table() -> Result<()> {
    let cluster = start(2)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    let swap = "ALTER TABLE b RENAME TO b_old; ALTER TABLE c RENAME TO b";
    let path = "SET search_path = s1, public";
    for (sql, change, is_own) in [
        ("TRUNCATE b", swap, false),
        ("TRUNCATE b", "ALTER TABLE s2.b SET SCHEMA s1", false),
        ("TRUNCATE b", path, true),
        ("DELETE FROM b", path, true),
        ("DELETE FROM b WHERE k < 0 OR k > 0", path, true),
        ("INSERT INTO b SELECT k + 100, j FROM b", path, true),
        ("DELETE FROM b", "CREATE TEMP TABLE b (k int, j int)", true),
    ] {
        admin.query("DROP TABLE IF EXISTS b_old, c; DROP SCHEMA IF EXISTS s1, s2 CASCADE")?;
        make_b(&mut admin)?;
        admin.query(
            "CREATE TABLE c (k int, j int) DISTRIBUTE BY HASH (k);
             INSERT INTO c SELECT n, n FROM generate_series(1, 20) n;
             CREATE SCHEMA s1; CREATE SCHEMA s2;
             CREATE TABLE s2.b (k int, j int) DISTRIBUTE BY HASH (k);
             INSERT INTO s2.b SELECT n, n FROM generate_series(1, 20) n",
        )?;
        let mut client = Client::connect(&cluster.endpoint())?;
        client.query("SET search_path = s1, public; BEGIN")?;
        if is_own && change == path {
            client.query("SET search_path = public")?;
            admin.query("ALTER TABLE s2.b SET SCHEMA s1")?;
        }
        conversation::hold(&mut client, &format!("P |{sql}\nB pp|\nS"))?;
        if is_own {
            client.query(change)?
        } else {
            admin.query(change)?
        };
        let said = conversation::hold(&mut client, "E pp|0\nS")?;
        let refused = said.iter().any(|line| line.starts_with("Error"));
        ensure!(
            !refused || said.iter().any(|line| line == "Error 0A000" || line == "Error 40001"),
            "{sql}: {said:#?}"
        );
        client.query("COMMIT")?;
        if sql.starts_with("TRUNCATE") && !refused {
            // What the name means now, on all nodes.
            let means = client.value("SELECT count(*) FROM b")?;
            ensure!(means == "0", "{sql}, {change}: {means} rows are left");
            continue;
        }
        for (table, rows) in [("s1.b", "20"), ("s2.b", "20"), ("c", "20")] {
            let name = if table == "c" && change == swap { "b" } else { table };
            if admin.value(&format!("SELECT to_regclass('{name}') IS NULL"))? == "t" {
                continue;
            }
            let found = admin.value(&format!("SELECT count(*) FROM {name}"))?;
            ensure!(found == rows, "{sql}, {change}: {found} rows in {table}: {said:#?}");
        }
    }
    Ok(())
}

/// A table that others make is no table of a portal that was bound before, or runs already.
#[test]
fn a_new_table_is_no_business_of_what_was_bound_before() -> Result<()> {
    let cluster = start(2)?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    make_b(&mut admin)?;
    for (turn, sql) in [
        "INSERT INTO zz VALUES (101, 1), (102, 1), (103, 1) RETURNING id",
        "INSERT INTO zz VALUES (104, 1) RETURNING id",
        "UPDATE zz SET v = v + 1 WHERE id = 3 RETURNING id",
        "TRUNCATE b",
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = Client::connect(&cluster.endpoint())?;
        client.query("BEGIN")?;
        conversation::hold(&mut client, &format!("P |{sql}\nB pp|\nS"))?;
        admin.query(&format!("CREATE TABLE new_{turn} (id int) DISTRIBUTE BY HASH (id)"))?;
        let said = conversation::hold(&mut client, "E pp|1\nS")?;
        ensure!(!said.iter().any(|line| line.starts_with("Error")), "{sql}: {said:#?}");
        admin.query(&format!("CREATE TABLE newer_{turn} (id int) DISTRIBUTE BY HASH (id)"))?;
        if sql.starts_with("INSERT") {
            let said = conversation::hold(&mut client, "E pp|0\nS")?;
            ensure!(!said.iter().any(|line| line.starts_with("Error")), "{sql}: {said:#?}");
        }
        client.query("COMMIT")?;
    }
    Ok(())
}

/// What a flight depends on while its last statement, of whatever kind, waits for the ones before it.
#[test]
fn what_waits_behind_a_flight_does_not_make_it_depend_on_everything() -> Result<()> {
    let cluster = start(2)?;
    let update = "UPDATE zz SET v = v + 1 WHERE id = 3";
    let select = "SELECT 'v', v FROM zz WHERE id = 3";
    for (turn, flight) in [
        vec!["BEGIN", update, select, "COMMIT"],
        vec![update, select, "SELECT count(*) FROM zz"],
        vec![update, "SELECT count(*) FROM zz"],
        vec!["BEGIN", update, select, "SAVEPOINT s", select, "COMMIT"],
        vec![update, select, "SET work_mem = '5MB'"],
    ]
    .into_iter()
    .enumerate()
    {
        let mut locker = Client::connect(&cluster.endpoint())?;
        locker.query("BEGIN; UPDATE zz SET v = 7 WHERE id = 3")?;
        let text = format!("{}S", flight.iter().map(|sql| one(sql)).collect::<String>());
        let asked = meanwhile(Client::connect(&cluster.endpoint())?, text);
        ensure!(cluster.comes_to_wait_for_a_lock(Duration::from_secs(10))?, "nobody waits");
        let mut changer = Client::connect(&cluster.endpoint())?;
        changer.query(&format!("ALTER TABLE other ADD COLUMN c{turn} int DEFAULT 7"))?;
        let column = if turn % 2 == 0 { "j" } else { "k" };
        changer.query(&format!("SELECT tutti_distribute('other', '{column}')"))?;
        locker.query("COMMIT")?;
        let (said, _) = joined(asked)?;
        ensure!(!said.iter().any(|line| line.starts_with("Error")), "{flight:?}: {said:#?}");
    }
    Ok(())
}

/// A pipeline at REPEATABLE READ whose first statement took its snapshot on one node, beside changes: an error
/// that a retry answers, if any.
#[test]
fn a_pipeline_with_a_snapshot_of_its_own_is_never_told_that_it_is_unsupported() -> Result<()> {
    let cluster = start(2)?;
    let endpoint = cluster.endpoint();
    Client::connect(&endpoint)?
        .query("CREATE TABLE home (id int) DISTRIBUTE BY HOME; INSERT INTO home VALUES (1)")?;
    let changes = thread::spawn(move || {
        let mut changer = Client::connect(&endpoint)?;
        for turn in 0..40 {
            changer.query(&format!("CREATE TABLE t{turn} (a int) DISTRIBUTE BY HASH (a)"))?;
            changer.query(&format!("DROP TABLE t{turn}"))?;
        }
        anyhow::Ok(())
    });
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("SET default_transaction_isolation = 'repeatable read'")?;
    let flight = ["TRUNCATE home", "SELECT count(*) FROM home", "UPDATE home SET id = id"];
    let flight = format!("{}S", flight.map(one).concat());
    while !changes.is_finished() {
        let said = conversation::hold(&mut client, &flight)?;
        let errors: Vec<_> = said.iter().filter(|line| line.starts_with("Error")).collect();
        ensure!(errors.iter().all(|line| *line == "Error 40001"), "{said:#?}");
    }
    joined(changes)
}

/// What was prepared while node 1 had all tables may be a change of definitions, and its COMMIT PREPARED tells no
/// other node.
#[test]
fn the_first_table_is_not_spread_beside_a_prepared_transaction() -> Result<()> {
    let servers = servers::durable(2)?;
    let default_distribution = DefaultDistribution::Home;
    let config = Config { default_distribution, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    let makes = |by: i32| {
        format!(
            "CREATE OR REPLACE FUNCTION ff(i int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT i + {by}'"
        )
    };
    client.query(&makes(1))?;
    client.query(&format!("BEGIN; {}; PREPARE TRANSACTION 'mine'", makes(1000)))?;
    let spread = "CREATE TABLE sp (k int, j int) DISTRIBUTE BY HASH (k)";
    let answer = client.simple(spread, b"")?;
    let error = answer.error().context("it was spread")?;
    ensure!(error.sqlstate() == "55000", "{answer}");
    client.query("COMMIT PREPARED 'mine'")?;
    client.query(spread)?;
    client.query("INSERT INTO sp SELECT n, n FROM generate_series(1, 9) n")?;
    let found = client.value("SELECT count(*) FROM sp WHERE ff(k) > 500")?;
    if found != "9" {
        bail!("{found} of 9 rows");
    }
    Ok(())
}

/// Where the choice among [`pauses`] starts, and how many are chosen.
const PAUSES_SEED: &str = "TUTTI_PAUSES_SEED";
const PAUSES: &str = "TUTTI_PAUSES";
const PAUSES_DEFAULT: u64 = 700;

/// Conversations of one or two statements of every kind, with a Flush and a pause at every place.
fn pauses() -> Vec<String> {
    let kinds = [
        "SELECT v FROM zz WHERE id = 7",
        "SELECT count(*), sum(v) FROM zz",
        "SELECT k, five() FROM b ORDER BY k LIMIT 1",
        "SELECT five() + 1",
        "UPDATE zz SET v = v WHERE id = 3",
    ];
    let at_once = kinds.map(one).into_iter();
    let paused = kinds.map(|sql| format!("{}~ 40\n", one(sql))).into_iter();
    let in_block = |text: String| [format!("Q BEGIN\n--\n{text}"), text];
    let mut cases = BTreeSet::new();
    for begun in at_once.chain(paused).chain([String::new()]).flat_map(in_block) {
        for (sql, flushed) in
            kinds.iter().flat_map(|sql| ["", "P", "B", "D", "PBD"].map(|it| (sql, it)))
        {
            for (paused, what) in
                ["P", "B", "D"].iter().flat_map(|it| ["", "S", "P"].map(|what| (*it, what)))
            {
                let after = |step: &str| {
                    let flush = if flushed.contains(step) { "H\n" } else { "" };
                    let pause = if paused == step { "~ 40\n" } else { "" };
                    format!("{flush}{pause}")
                };
                let (parsed, bound) = (after("P"), after("B"));
                let described = match what {
                    "" => String::new(),
                    what => format!("D {what} \n{}", after("D")),
                };
                cases.insert(format!(
                    "{begun}P |{sql}\n{parsed}B |\n{bound}{described}E |0\nS\n--\nQ COMMIT"
                ));
            }
        }
    }
    cases.into_iter().collect()
}

/// Statements that a client sends in parts and asks about in between, beside changes that have nothing to do with
/// them: nobody is told of those. (The code that is called could use what is moved; but it does not wait for it.)
#[test]
fn wherever_a_flight_pauses_changes_of_other_things_pass_it_by() -> Result<()> {
    const CLIENTS: usize = 6;
    let seed = environment::number(PAUSES_SEED, rand::random::<u32>().into());
    let count = usize::try_from(environment::number(PAUSES, PAUSES_DEFAULT))?;
    let mut cases = pauses();
    cases.shuffle(&mut StdRng::seed_from_u64(seed));
    cases.truncate(count);
    let cluster = start(2)?;
    let endpoint = cluster.endpoint();
    let mut admin = Client::connect(&endpoint)?;
    make_b(&mut admin)?;
    let five = "CREATE FUNCTION five() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 5; END'";
    admin.query(five)?;
    let (next, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
    let converse = || -> Result<()> {
        let mut client = Client::connect(&endpoint)?;
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let said = conversation::hold(&mut client, case)?;
            let is_wrong = said.iter().any(|line| line.starts_with("Error"));
            ensure!(!is_wrong, "{PAUSES_SEED}={seed} {PAUSES}={count}\n{case}\n{said:#?}");
        }
        Ok(())
    };
    thread::scope(|scope| -> Result<()> {
        let changes = scope.spawn(|| -> Result<()> {
            while !ends.load(Ordering::Relaxed) {
                for sql in ["SELECT tutti_home('other')", "SELECT tutti_distribute('other', 'k')"] {
                    admin.query(sql)?;
                    sleep(Duration::from_millis(5));
                }
            }
            Ok(())
        });
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(converse)).collect();
        let held: Result<()> =
            clients.into_iter().try_for_each(|client| client.join().expect("no panic"));
        ends.store(true, Ordering::Relaxed);
        changes.join().expect("no panic")?;
        held
    })
}
