//! Sessions share connections to nodes, and none notices: pooling, session state, what binds a
//! session to a connection, idle clients, and the gateway's end.
//!
//! Most cases give the gateway one connection per node (`size = 1`), so that every statement of one
//! session is served by the connection that another session used just before.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::BytesMut;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tutti_gateway::{Config, PoolConfig};
use tutti_tests::client::{Client, Endpoint, Flight, Request, text_arguments};
use tutti_tests::environment::turns;
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::Fields;
use tutti_wire::frontend::{
    Arguments, Target, put_bind, put_copy_data, put_describe, put_execute, put_parse, put_query,
    put_sync,
};
use tutti_wire::startup::put_cancel;

/// A cluster whose gateway has these limits.
fn start(nodes: u16, pool: PoolConfig) -> Result<TestCluster> {
    let servers = servers::start(nodes)?;
    let config = Config { pool, ..config(&servers, String::new()) };
    TestCluster::start_configured(servers, config)
}

/// One connection per node for all sessions.
fn narrow(nodes: u16) -> Result<TestCluster> {
    start(nodes, PoolConfig { size: 1, ..PoolConfig::default() })
}

/// Two sessions that get each other's connections.
fn two_sessions(cluster: &TestCluster) -> Result<(Client, Client)> {
    Ok((Client::connect(&cluster.endpoint())?, Client::connect(&cluster.endpoint())?))
}

/// The SQLSTATE that `sql` is refused with.
fn setting(client: &mut Client, name: &str) -> Result<String> {
    client.value(&format!("SHOW {name}"))
}

fn refusal(client: &mut Client, sql: &str) -> Result<ErrorFields> {
    let answer = client.simple(sql, b"")?;
    match answer.error() {
        Some(error) => Ok(error.clone()),
        None => bail!("{sql} was not refused"),
    }
}

#[test]
fn a_transaction_has_connections_only_from_its_first_statement_to_its_end() -> Result<()> {
    let cluster = narrow(2)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    one.query("BEGIN")?;
    ensure!(one.value("SHOW tutti.pool")?.starts_with("node n1: 0 lent, 1 idle;"));
    // The other session is not kept waiting by a BEGIN.
    other.query("INSERT INTO t SELECT generate_series(1, 9)")?;
    ensure!(one.value("SELECT count(*) FROM t")? == "9");
    ensure!(one.value("SHOW tutti.pool")?.starts_with("node n1: 1 lent, 0 idle;"));
    one.query("COMMIT")?;
    ensure!(
        other.value("SHOW tutti.pool")?
            == "node n1: 0 lent, 1 idle; node n2: 0 lent, 1 idle; 0 transactions waiting"
    );
    Ok(())
}

#[test]
fn many_clients_share_few_connections() -> Result<()> {
    let cluster = start(2, PoolConfig { size: 3, ..PoolConfig::default() })?;
    let mut clients = Vec::new();
    for _ in 0..60 {
        clients.push(Client::connect(&cluster.endpoint())?);
    }
    for client in &mut clients {
        client.query("BEGIN; SELECT 1; COMMIT")?;
    }
    let on_node = Client::connect(&cluster.nodes()[0])?.value(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tutti-tests'
         AND pid <> pg_backend_pid()",
    )?;
    ensure!(on_node.parse::<usize>()? <= 3, "{on_node} connections for clients");
    Ok(())
}

#[test]
fn whoever_waits_too_long_is_told_and_may_come_again() -> Result<()> {
    let pool = PoolConfig { size: 1, queue_timeout_s: 1, ..PoolConfig::default() };
    let cluster = start(2, pool)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("BEGIN; SELECT 1")?;
    let full = refusal(&mut other, "SELECT 1")?;
    ensure!(full.sqlstate() == "53300", "{full:?}");
    ensure!(full.get(b'H').is_some_and(|hint| hint.starts_with("Retrying is safe")), "{full:?}");
    one.query("COMMIT")?;
    other.query("SELECT 1")?;
    Ok(())
}

/// Goal: who would end a wait does not wait behind those whom it would end. Method: all places are taken by statements
/// that wait for rows of a transaction that is prepared.
#[test]
fn the_end_of_a_prepared_transaction_waits_for_no_place() -> Result<()> {
    let pool = PoolConfig { size: 2, queue_timeout_s: 5, ..PoolConfig::default() };
    let cluster = start(2, pool)?;
    let gateway = cluster.endpoint();
    let mut one = Client::connect(&gateway)?;
    one.query(
        "CREATE TABLE kept (id int, v int) DISTRIBUTE BY HOME; INSERT INTO kept VALUES (1, 0)",
    )?;
    one.query("BEGIN; UPDATE kept SET v = v + 1; PREPARE TRANSACTION 'mine'")?;
    std::thread::scope(|scope| -> Result<()> {
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    Client::connect(&gateway)?.query("UPDATE kept SET v = v + 1")?;
                    Ok(())
                })
            })
            .collect();
        let all_wait = || -> Result<bool> {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
            Ok(Client::connect(&cluster.nodes()[0])?.value(sql)? == "2")
        };
        while !all_wait()? {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        one.query("COMMIT PREPARED 'mine'")?;
        for waiter in waiting {
            waiter.join().expect("it does not panic")?;
        }
        Ok(())
    })?;
    ensure!(one.value("SELECT v FROM kept")? == "5");
    Ok(())
}

/// Goal: a statement that waits for a place is planned anew if a change comes meanwhile; nothing of it was sent. Method:
/// it is prepared by name, alone, in a block.
#[test]
fn what_waits_for_a_place_is_planned_anew() -> Result<()> {
    let pool = PoolConfig { size: 2, ..PoolConfig::default() };
    let cluster = start(2, pool)?;
    let gateway = cluster.endpoint();
    let mut changing = Client::connect(&gateway)?;
    changing.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    let (mut holding, mut waiting) = two_sessions(&cluster)?;
    holding.query("BEGIN; SELECT count(*) FROM t")?;
    changing.query("BEGIN; CREATE TABLE other (id int) DISTRIBUTE BY HASH (id)")?;
    waiting.query("BEGIN")?;
    std::thread::scope(|scope| -> Result<()> {
        let prepared = scope.spawn(|| prepare(&mut waiting, "p", "SELECT id FROM t WHERE id = 7"));
        std::thread::sleep(std::time::Duration::from_millis(300));
        changing.query("COMMIT")?;
        holding.query("COMMIT")?;
        let prepared = prepared.join().expect("it does not panic")?;
        ensure!(prepared.is_ok(), "{prepared:?}");
        Ok(())
    })?;
    waiting.query("SELECT count(*) FROM t; COMMIT")?;
    Ok(())
}

/// Names have to be looked up again before the next statement, and cannot be.
#[test]
fn whatever_fails_before_a_statement_is_answered_in_its_own_way() -> Result<()> {
    let pool = PoolConfig { size: 1, queue_timeout_s: 1, ..PoolConfig::default() };
    let cluster = start(2, pool)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    one.query("BEGIN; SET LOCAL search_path = pg_catalog; COMMIT")?;
    other.query("BEGIN; SELECT count(*) FROM t")?;
    for _ in 0..2 {
        ensure!(refusal(&mut one, "SELECT 1")?.sqlstate() == "53300");
        let refused = prepare(&mut one, "p", "SELECT 1")?;
        ensure!(refused.is_err_and(|error| error.sqlstate() == "53300"));
    }
    other.query("COMMIT")?;
    ensure!(one.value("SELECT count(*) FROM t")? == "0");
    Ok(())
}

#[test]
fn roles_can_be_limited_one_by_one() -> Result<()> {
    let pool =
        PoolConfig { size: 4, size_per_user: 1, queue_timeout_s: 1, ..PoolConfig::default() };
    let cluster = start(1, pool)?;
    // Superusers are not limited.
    Client::connect(&cluster.endpoint())?.query("CREATE ROLE ann LOGIN")?;
    let mut one = Client::connect_as(&cluster.endpoint(), "ann")?;
    let mut other = Client::connect_as(&cluster.endpoint(), "ann")?;
    one.query("BEGIN; SELECT 1")?;
    let full = refusal(&mut other, "SELECT 1")?;
    ensure!(full.get(b'D').is_some_and(|text| text.contains("of this role")), "{full:?}");
    Ok(())
}

#[test]
fn settings_follow_their_session_and_reach_no_other() -> Result<()> {
    let cluster = narrow(2)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    let show = |client: &mut Client, name: &str| client.value(&format!("SHOW {name}"));
    one.query("SET work_mem = '7MB'")?;
    ensure!(show(&mut other, "work_mem")? == "4MB" && show(&mut one, "work_mem")? == "7MB");
    other.query("SELECT set_config('work_mem', '9MB', false)")?;
    ensure!(show(&mut one, "work_mem")? == "7MB" && show(&mut other, "work_mem")? == "9MB");
    // In forms that the gateway does not take apart.
    other.query("SELECT 1, set_config('work_mem', (8 + 3) || 'MB', false)")?;
    ensure!(show(&mut one, "work_mem")? == "7MB" && show(&mut other, "work_mem")? == "11MB");
    other.query("DO $$ BEGIN PERFORM set_config('my.secret', 'x', false); END $$")?;
    ensure!(one.value("SELECT coalesce(current_setting('my.secret', true), '')")?.is_empty());
    // Nor is seen that another one has used a name.
    other.query("BEGIN; SET LOCAL my.own = 'x'; COMMIT")?;
    ensure!(one.value("SELECT current_setting('my.own', true) IS NULL")? == "t");
    // SET LOCAL and what is rolled back end with the transaction.
    one.query("BEGIN; SET LOCAL work_mem = '1MB'; SET maintenance_work_mem = '2MB'; ROLLBACK")?;
    show(&mut other, "work_mem")?;
    ensure!(show(&mut one, "work_mem")? == "7MB");
    ensure!(show(&mut one, "maintenance_work_mem")? == "64MB");
    one.query("BEGIN; SET LOCAL work_mem = '1MB'; SET maintenance_work_mem = '2MB'; COMMIT")?;
    show(&mut other, "work_mem")?;
    ensure!(show(&mut one, "maintenance_work_mem")? == "2MB");
    // RESET goes back to what the startup packet said.
    one.query("SET application_name = 'else'")?;
    ensure!(show(&mut other, "application_name")? == "tutti-tests");
    one.query("RESET application_name")?;
    ensure!(show(&mut one, "application_name")? == "tutti-tests");
    one.query("SET application_name = 'else'; SET application_name TO DEFAULT")?;
    ensure!(show(&mut one, "application_name")? == "tutti-tests");
    one.query("RESET ALL")?;
    show(&mut other, "work_mem")?;
    ensure!(show(&mut one, "work_mem")? == "4MB");
    ensure!(show(&mut one, "application_name")? == "tutti-tests");
    one.query("SET work_mem = '3MB'")?;
    one.query("DISCARD ALL")?;
    ensure!(show(&mut one, "work_mem")? == "4MB");
    ensure!(show(&mut one, "application_name")? == "tutti-tests");
    Ok(())
}

#[test]
fn settings_hold_on_every_node() -> Result<()> {
    let cluster = narrow(2)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query(
        "CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT generate_series(1, 20)",
    )?;
    one.query("SELECT set_config('app.tenant', 'a', false)")?;
    other.query("SET app.tenant = 'b'")?;
    let tenants = "SELECT DISTINCT current_setting('app.tenant') FROM t";
    for _ in 0..2 {
        ensure!(one.value(tenants)? == "a" && other.value(tenants)? == "b");
    }
    Ok(())
}

/// What a transaction has set is undone on every node with it, also on those that had prepared it before
/// another refused, or had only been read.
#[test]
fn what_is_set_in_a_transaction_is_undone_on_every_node() -> Result<()> {
    let cluster = start(3, PoolConfig::default())?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(
        "CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT generate_series(1, 90);
         CREATE TABLE unique_later (id int, UNIQUE (id) DEFERRABLE INITIALLY DEFERRED) DISTRIBUTE BY HASH (id);
         INSERT INTO unique_later SELECT generate_series(1, 90)",
    )?;
    let seen = "SELECT DISTINCT concat_ws(' ', current_setting('work_mem'), current_setting('app.tenant')) FROM t";
    client.query("SET work_mem = '5MB'; SET app.tenant = 'a'")?;
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        for id in 1..=12 {
            client.query(&format!("BEGIN ISOLATION LEVEL {level}"))?;
            client.query("SET work_mem = '6MB'; SELECT set_config('app.tenant', 'b', false)")?;
            let read_only = id % 3 == 0;
            if !read_only {
                client.query("INSERT INTO unique_later SELECT generate_series(101, 130)")?;
            }
            client.query("SELECT count(*) FROM t")?;
            client.query(&format!("INSERT INTO unique_later VALUES ({id})"))?;
            let refused = refusal(&mut client, "COMMIT")?;
            ensure!(refused.sqlstate() == "23505", "{refused:?}");
            let has = client.value(seen)?;
            ensure!(has == "5MB a", "{level}, {id}: {has}");
        }
    }
    Ok(())
}

/// RESET ALL in a transaction is a step of it like any SET, and needs no snapshot.
#[test]
fn reset_all_in_a_transaction_is_a_step_of_it() -> Result<()> {
    let cluster = start(2, PoolConfig { size: 2, ..PoolConfig::default() })?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(
        "CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT generate_series(1, 20)",
    )?;
    let on_all_nodes = "SELECT DISTINCT current_setting('work_mem') FROM t";
    for begin in [
        "BEGIN",
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "BEGIN ISOLATION LEVEL SERIALIZABLE",
        "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE",
    ] {
        for first in ["RESET ALL", "SET search_path = public; RESET ALL", "RESET application_name"]
        {
            for end in ["COMMIT", "ROLLBACK"] {
                client.query(begin)?;
                for sql in first.split("; ") {
                    client.query(sql)?;
                }
                ensure!(client.value("SELECT count(*) FROM t")? == "20", "{begin}; {first}");
                ensure!(setting(&mut client, "application_name")? == "tutti-tests");
                client.query(end)?;
            }
        }
    }
    // What the transaction has set before it is undone too, but not what it sets after it.
    client.query("SET work_mem = '7MB'")?;
    client.query("BEGIN; SET work_mem = '8MB'; SET LOCAL enable_sort = off; RESET ALL")?;
    ensure!(client.value(on_all_nodes)? == "4MB");
    client.query("SET maintenance_work_mem = '9MB'; COMMIT")?;
    for _ in 0..2 {
        ensure!(client.value(on_all_nodes)? == "4MB");
        ensure!(setting(&mut client, "maintenance_work_mem")? == "9MB");
        ensure!(setting(&mut client, "application_name")? == "tutti-tests");
        Client::connect(&cluster.endpoint())?.value(on_all_nodes)?;
    }
    // Undone, whatever it has reset.
    client.query("SET work_mem = '7MB'; SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE")?;
    client.query("SET default_transaction_read_only = on")?;
    for undo in ["ROLLBACK", "ROLLBACK TO s; COMMIT"] {
        client.query("BEGIN; SAVEPOINT s; RESET ALL")?;
        ensure!(client.value(on_all_nodes)? == "4MB");
        client.query(undo)?;
        ensure!(client.value(on_all_nodes)? == "7MB", "{undo}");
        client.query("BEGIN")?;
        ensure!(setting(&mut client, "transaction_isolation")? == "serializable", "{undo}");
        ensure!(setting(&mut client, "transaction_read_only")? == "on", "{undo}");
        client.query("COMMIT")?;
    }
    client.query("BEGIN; RESET ALL; COMMIT; BEGIN")?;
    ensure!(setting(&mut client, "transaction_isolation")? == "read committed");
    ensure!(setting(&mut client, "transaction_read_only")? == "off");
    client.query("COMMIT")?;
    Ok(())
}

#[test]
fn roles_follow_their_session() -> Result<()> {
    let cluster = narrow(2)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("CREATE ROLE reader; CREATE ROLE writer")?;
    one.query("SET ROLE reader")?;
    other.query("SET SESSION AUTHORIZATION writer")?;
    for _ in 0..2 {
        ensure!(one.value("SELECT current_user")? == "reader");
        ensure!(other.value("SELECT session_user")? == "writer");
    }
    one.query("RESET ROLE")?;
    other.query("RESET SESSION AUTHORIZATION")?;
    ensure!(one.value("SELECT current_user")? == "postgres");
    ensure!(other.value("SELECT session_user")? == "postgres");
    // A role that is gone must not leave the session with more rights than it asked for.
    other.query("SET ROLE reader")?;
    one.query("DROP ROLE reader")?;
    let refused = refusal(&mut other, "SELECT current_user")?;
    ensure!(refused.sqlstate() == "22023", "{refused:?}");
    Ok(())
}

/// What sessions of the role `r` have on all nodes of these settings, each session on its own.
const OF_ALL_NODES: &str = "SELECT DISTINCT concat_ws(' ', current_setting('app.tenant', true), \
    current_setting('work_mem'), current_setting('search_path')) FROM public.h";

#[test]
fn what_sessions_begin_with_changes_for_those_that_come_later() -> Result<()> {
    let cluster = start(3, PoolConfig { size: 2, ..PoolConfig::default() })?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    owner.query("CREATE TABLE h (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    owner.query("INSERT INTO h SELECT generate_series(1, 90)")?;
    owner.query("CREATE ROLE r LOGIN; GRANT SELECT ON h TO r; CREATE SCHEMA other")?;
    owner.query("ALTER ROLE r SET app.tenant = '1'; ALTER ROLE r SET search_path = public")?;
    let connect = || Client::connect_as(&cluster.endpoint(), "r");
    let mut before = [connect()?, connect()?, connect()?];
    // One of them is in a transaction meanwhile, and has a connection to one node only.
    before[0].query("BEGIN; SELECT * FROM h WHERE id = 1")?;
    before[2].query("SET work_mem = '9MB'")?;
    for change in [
        "ALTER ROLE r SET app.tenant = '2'",
        "ALTER ROLE r SET work_mem = '7MB'",
        "ALTER ROLE r SET search_path = other, public",
        "ALTER ROLE r RESET app.tenant",
        "ALTER DATABASE postgres SET work_mem = '6MB'",
        "ALTER ROLE r RESET ALL",
    ] {
        owner.query(change)?;
        let mut after = connect()?;
        let began = after.value(OF_ALL_NODES)?;
        let expected = match change {
            "ALTER ROLE r SET app.tenant = '2'" => "2 4MB public",
            "ALTER ROLE r SET work_mem = '7MB'" => "2 7MB public",
            "ALTER ROLE r SET search_path = other, public" => "2 7MB other, public",
            "ALTER ROLE r RESET ALL" => "6MB \"$user\", public",
            _ => "7MB other, public",
        };
        ensure!(began == expected, "{change}: a new session has {began}");
        for (session, memory) in before.iter_mut().zip(["4MB", "4MB", "9MB"]) {
            let has = session.value(OF_ALL_NODES)?;
            ensure!(has == format!("1 {memory} public"), "{change}: an old session has {has}");
        }
    }
    let mut late = before.each_mut().map(|session| -> Result<String> {
        session.query("SET LOCAL app.tenant TO DEFAULT")?;
        session.query("BEGIN; SET LOCAL app.tenant TO DEFAULT; SET LOCAL work_mem TO DEFAULT")?;
        session.query("SET LOCAL search_path TO DEFAULT")?;
        let has = session.value(OF_ALL_NODES)?;
        session.query("COMMIT")?;
        Ok(has)
    });
    for has in &mut late {
        let has = has.as_mut().map_err(|error| anyhow::anyhow!("{error:#}"))?;
        ensure!(has == "1 4MB public", "SET LOCAL … TO DEFAULT goes to {has}");
    }
    before[0].query("COMMIT; RESET app.tenant; RESET work_mem; RESET search_path")?;
    before[1].query("RESET ALL")?;
    before[2].query("DISCARD ALL")?;
    for session in &mut before {
        let has = session.value(OF_ALL_NODES)?;
        ensure!(has == "1 4MB public", "RESET goes back to {has}");
    }
    owner.query("ALTER DATABASE postgres RESET work_mem")?;
    Ok(())
}

#[test]
fn what_binds_a_session_keeps_its_connection_and_says_so() -> Result<()> {
    let pool = PoolConfig { size: 2, ..PoolConfig::default() };
    let cluster = start(2, pool)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    one.query("INSERT INTO t SELECT generate_series(1, 9)")?;
    let pairs = [
        ("SELECT pg_advisory_lock(1)", "SELECT pg_advisory_unlock(1)", "advisory locks"),
        ("CREATE TEMP TABLE mine AS SELECT 1 AS a", "DROP TABLE mine", "temporary objects"),
        ("LISTEN c", "UNLISTEN c", "channels"),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT id FROM t", "CLOSE c", "cursors"),
    ];
    for (bind, release, words) in pairs {
        one.query(bind)?;
        let pinned = one.value("SHOW tutti.pinned")?;
        ensure!(pinned.starts_with("node n") && pinned.ends_with(words), "{bind}: {pinned}");
        // A session that listens, listens on every node.
        let nodes = if words == "channels" { 2 } else { 1 };
        let pool = other.value("SHOW tutti.pool")?;
        ensure!(pool.matches(": 1 lent").count() == nodes, "{pool}");
        // Another session is not touched by it, and works on.
        ensure!(other.value("SHOW tutti.pinned")?.is_empty());
        ensure!(other.value("SELECT count(*) FROM t")? == "9");
        one.query(release)?;
        ensure!(one.value("SHOW tutti.pinned")?.is_empty(), "{release}");
    }
    one.query("CREATE TEMP TABLE mine (a int); INSERT INTO mine VALUES (3), (4)")?;
    ensure!(one.value("SELECT count(*) FROM t JOIN mine ON id = a")? == "2");
    ensure!(refusal(&mut other, "SELECT * FROM mine")?.sqlstate() == "42P01");
    one.query("DISCARD ALL")?;
    ensure!(one.value("SHOW tutti.pinned")?.is_empty());
    Ok(())
}

#[test]
fn whoever_listens_hears_every_node() -> Result<()> {
    const ROWS: usize = 12;
    let cluster = start(3, PoolConfig::default())?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    other.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    other.query(
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
         $$BEGIN PERFORM pg_notify(TG_ARGV[0], NEW.id::text); RETURN NEW; END$$",
    )?;
    for channel in ["alone", "in_block"] {
        other.query(&format!(
            "CREATE TRIGGER {channel} AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION tell('{channel}')"
        ))?;
    }
    one.query("LISTEN alone")?;
    one.query("BEGIN")?;
    one.query("LISTEN in_block")?;
    one.query("COMMIT")?;
    for row in 1..=ROWS {
        other.query(&format!("INSERT INTO t VALUES ({row})"))?;
    }
    other.query("NOTIFY alone, 'by hand'")?;
    let mut heard = Vec::new();
    while heard.len() < 2 * ROWS + 1 {
        let frame = one.receive()?;
        ensure!(frame.tag() == b'A', "{frame:?}");
        let mut fields = Fields::of(&frame);
        ensure!(fields.int32()? == other.process_id, "not by who has sent it");
        heard.push((fields.string()?, fields.string()?));
    }
    let mut expected = vec![("alone".to_owned(), "by hand".to_owned())];
    for row in 1..=ROWS {
        expected.extend(["alone", "in_block"].map(|channel| (channel.to_owned(), row.to_string())));
    }
    heard.sort();
    expected.sort();
    ensure!(heard == expected, "{heard:?}");

    // What comes while the gateway makes other nodes listen too is delivered immediately.
    for round in 0..ROWS {
        let mut listener = Client::connect(&cluster.endpoint())?;
        listener.query("LISTEN at_once")?;
        other.query(&format!("NOTIFY at_once, '{round}'"))?;
        let mut fields = Fields::of(&listener.receive()?);
        let (_, channel, told) = (fields.int32()?, fields.string()?, fields.string()?);
        ensure!(channel == "at_once" && told == round.to_string(), "{channel} {told}");
    }

    one.query("UNLISTEN alone")?;
    other.query("DELETE FROM t")?;
    for row in 1..=ROWS {
        other.query(&format!("INSERT INTO t VALUES ({row})"))?;
    }
    for _ in 0..ROWS {
        let mut fields = Fields::of(&one.receive()?);
        ensure!(fields.int32().is_ok() && fields.string()? == "in_block");
    }
    one.query("UNLISTEN *")?;
    ensure!(one.value("SHOW tutti.pinned")?.is_empty());
    Ok(())
}

#[test]
fn session_locks_exclude_other_sessions_until_they_are_given_back() -> Result<()> {
    let cluster = start(2, PoolConfig { size: 2, ..PoolConfig::default() })?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("SELECT pg_advisory_lock(7)")?;
    one.query("SELECT 1")?;
    ensure!(other.value("SELECT pg_try_advisory_lock(7)")? == "f");
    drop(one);
    // The end of the session gives it back.
    other.query("SET statement_timeout = '20s'; SELECT pg_advisory_lock(7)")?;
    Ok(())
}

#[test]
fn sequences_are_remembered_for_the_session_that_drew_from_them() -> Result<()> {
    let cluster = start(1, PoolConfig { size: 2, ..PoolConfig::default() })?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("CREATE SEQUENCE s")?;
    one.query("SELECT nextval('s')")?;
    other.query("SELECT 1")?;
    ensure!(one.value("SELECT currval('s')")? == "1");
    drop(one);
    for _ in 0..3 {
        ensure!(refusal(&mut other, "SELECT lastval()")?.sqlstate() == "55000");
    }
    Ok(())
}

/// Whatever statement a default is drawn by, within whichever other, over a link that another session gets next.
#[test]
fn what_a_default_drew_is_remembered_for_no_other_session() -> Result<()> {
    let cluster = start(2, PoolConfig { size: 2, ..PoolConfig::default() })?;
    let mut one = Client::connect(&cluster.endpoint())?;
    one.query(
        "CREATE TABLE drawn (k int, n serial, g int GENERATED BY DEFAULT AS IDENTITY) DISTRIBUTE BY HASH (k);
         CREATE TABLE later (k int, n int) DISTRIBUTE BY HASH (k);
         CREATE TABLE home (k int, n serial) DISTRIBUTE BY HOME;
         CREATE SEQUENCE s",
    )?;
    let ways = [
        "INSERT INTO home (k) VALUES (1)",
        "INSERT INTO drawn (k) VALUES (1)",
        "WITH x AS (INSERT INTO home (k) VALUES (1) RETURNING n) SELECT * FROM x",
        "WITH x AS (INSERT INTO home (k) VALUES (1) RETURNING n) UPDATE later SET n = 1 WHERE k = 1",
        "UPDATE home SET n = DEFAULT WHERE k = 1",
        "WITH x AS (UPDATE home SET n = DEFAULT WHERE k = 1 RETURNING n) SELECT * FROM x",
        "INSERT INTO later (k, n) VALUES (1, 1)",
    ];
    for (round, change) in
        ["SELECT 1", "ALTER TABLE later ALTER n SET DEFAULT nextval('s')"].into_iter().enumerate()
    {
        one.query(change)?;
        for way in ways.into_iter().chain(["INSERT INTO later (k) VALUES (1)"]) {
            for _ in 0..3 {
                // Not all of them can be done over nodes.
                let _ = one.simple(way, b"")?;
                let mut other = Client::connect(&cluster.endpoint())?;
                for sql in ["SELECT lastval()", "SELECT currval('home_n_seq')"] {
                    let code = refusal(&mut other, sql)?.sqlstate().to_owned();
                    ensure!(code == "55000", "round {round}, after {way}: {sql}: {code}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn broken_connections_are_replaced() -> Result<()> {
    let cluster = narrow(2)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    let end_all = "SELECT count(pg_terminate_backend(pid, 20000)) FROM pg_stat_activity
         WHERE application_name = 'tutti-tests' AND pid <> pg_backend_pid()";
    for _ in 0..3 {
        for node in cluster.nodes() {
            Client::connect(&node)?.query(end_all)?;
        }
        ensure!(client.value("SELECT count(*) FROM t")? == "0");
    }
    // A session ends with what was bound to its connection.
    client.query("CREATE TEMP TABLE mine (a int)")?;
    Client::connect(&cluster.nodes()[0])?.query(end_all)?;
    client.send_bytes(&{
        let mut bytes = BytesMut::new();
        put_query(&mut bytes, "SELECT * FROM mine");
        bytes
    })?;
    ensure!(farewell(&mut client)?.sqlstate() == "57P01");
    Ok(())
}

/// Cancels whatever the session's server processes on this node are at, until told to stop.
fn cancel_all_the_time(node: &Endpoint, stop: &AtomicBool) -> Result<u64> {
    let mut client = Client::connect(node)?;
    let mut hit = 0;
    while !stop.load(Ordering::Relaxed) {
        // Asked each time: a connection whose BEGIN was refused is replaced.
        let cancelled = client.value(
            "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
             WHERE application_name = 'tutti-tests' AND pid <> pg_backend_pid()",
        )?;
        hit += cancelled.parse::<u64>()?;
    }
    Ok(hit)
}

/// BEGIN travels with a transaction's first statement, and a cancellation that meets BEGIN must not let
/// the statement run, and commit, by itself. It is met once in some ten thousand.
#[test]
fn nothing_runs_outside_of_its_transaction() -> Result<()> {
    let turns = turns(8_000);
    let cluster = start(2, PoolConfig { size: 1, ..PoolConfig::default() })?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id); TABLE t")?;
    let (stop, nodes) = (AtomicBool::new(false), cluster.nodes());
    thread::scope(|scope| -> Result<()> {
        let cancelling: Vec<_> =
            nodes.iter().map(|node| scope.spawn(|| cancel_all_the_time(node, &stop))).collect();
        let mut roll_back = |turn: u32| -> Result<()> {
            let insert = format!("INSERT INTO t VALUES ({turn})");
            client.simple("BEGIN", b"")?;
            match turn.is_multiple_of(2) {
                true => client.simple(&insert, b"")?,
                false => {
                    let request = Request { sql: &insert, ..Request::default() };
                    client.extended(&request, Flight::OneFlight, b"")?
                }
            };
            client.simple("ROLLBACK", b"").map(drop)
        };
        let done = (0..turns).try_for_each(&mut roll_back);
        stop.store(true, Ordering::Relaxed);
        done?;
        for cancelling in cancelling {
            ensure!(cancelling.join().expect("no panic")? > 100);
        }
        Ok(())
    })?;
    let left = client.value("SELECT count(*) FROM t")?;
    ensure!(left == "0", "{left} of {turns} rows were inserted and stayed");
    Ok(())
}

/// After a SET or a COMMIT the gateway itself reads how names are resolved now. A failure of that is no error
/// of a statement that has been executed.
#[test]
fn what_is_told_of_a_setting_has_happened() -> Result<()> {
    let turns = turns(4_000) as usize;
    let cluster = start(2, PoolConfig::default())?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id); TABLE t")?;
    client.query("CREATE SCHEMA s0; CREATE SCHEMA s1")?;
    let (stop, nodes) = (AtomicBool::new(false), cluster.nodes());
    let told = thread::scope(|scope| {
        let cancelling: Vec<_> =
            nodes.iter().map(|node| scope.spawn(|| cancel_all_the_time(node, &stop))).collect();
        let told = (0..turns).try_fold([0, 0], |[done, refused], turn| {
            Ok(match set_search_path(&mut client, turn)? {
                true => [done + 1, refused],
                false => [done, refused + 1],
            })
        });
        stop.store(true, Ordering::Relaxed);
        for cancelling in cancelling {
            ensure!(cancelling.join().expect("no panic")? > 100);
        }
        told
    })?;
    ensure!(0 < told[0], "done and refused: {told:?}");
    Ok(())
}

/// What the gateway asks for itself takes as long as it takes, be it longer than the client's `statement_timeout`.
#[test]
fn a_short_timeout_ends_no_question_of_the_gateways() -> Result<()> {
    let cluster = start(2, PoolConfig::default())?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for table in 0..100 {
        client.query(&format!("CREATE TEMPORARY TABLE t{table} (id int)"))?;
    }
    client.query("SET statement_timeout = '3ms'; SET search_path = pg_catalog, public")?;
    for block in [false, true] {
        let mut answers = 0;
        for turn in 0..50 {
            // How names are seen is asked anew.
            persist(&mut client, "ROLLBACK")?;
            if block {
                persist(&mut client, "BEGIN")?;
            }
            client.simple(
                &format!("SET search_path = {}", ["public", "pg_catalog"][turn % 2]),
                b"",
            )?;
            answers += usize::from(client.simple("SELECT 1", b"")?.error().is_none());
        }
        ensure!(0 < answers, "in a block: {block}");
    }
    persist(&mut client, "ROLLBACK")?;
    persist(&mut client, "SET statement_timeout = 0")?;
    ensure!(client.value("SHOW statement_timeout")? == "0");
    Ok(())
}

/// A `statement_timeout` that runs out at the very end of a message is reported where the next one is read, which the
/// server then skips: each statement is answered all the same, with its own answer or with 57014, and nothing stays open.
#[test]
fn a_timeout_between_two_messages_puts_no_answer_out_of_step() -> Result<()> {
    const SESSIONS: usize = 30;
    let turns = turns(300) as usize;
    let cluster = start(2, PoolConfig::default())?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    client.query("INSERT INTO t SELECT generate_series(1, 3000)")?;
    let (endpoint, timed_out) = (cluster.endpoint(), AtomicU32::new(0));
    thread::scope(|scope| -> Result<()> {
        let session = |number: usize| -> Result<()> {
            let mut client = Client::connect(&endpoint)?;
            for turn in 0..turns {
                let limit_ms = [0, 1, 1, 3][(turn + number) % 4];
                let told = client.simple(&format!("SET statement_timeout = {limit_ms}"), b"")?;
                let in_block = turn % 3 == 0;
                if in_block {
                    client.simple("BEGIN", b"")?;
                }
                let from = ["t", "t a JOIN t b USING (id)"][turn / 2 % 2];
                let sql = format!("SELECT count(*) + {turn} FROM {from}");
                let answer = client.simple(&sql, b"")?;
                match answer.error() {
                    None => ensure!(
                        answer.to_string().contains(&(3000 + turn).to_string()),
                        "{sql}: {answer}, after {told}"
                    ),
                    Some(error) => {
                        ensure!(error.sqlstate() == "57014", "{sql}: {error:?}");
                        timed_out.fetch_add(1, Ordering::Relaxed);
                    }
                }
                if in_block {
                    client.simple("ROLLBACK", b"")?;
                }
            }
            Ok(())
        };
        let sessions: Vec<_> =
            (0..SESSIONS).map(|number| scope.spawn(move || session(number))).collect();
        sessions.into_iter().try_for_each(|session| session.join().expect("no panic"))
    })?;
    ensure!(0 < timed_out.into_inner(), "no statement took longer than a millisecond");
    client.query("SET lock_timeout = '10s'; LOCK TABLE t IN ACCESS EXCLUSIVE MODE").map(drop)
}

/// Changes the schema, which others wait for, until told to stop; how often it did.
fn change_all_the_time(endpoint: &Endpoint, stop: &AtomicBool) -> Result<u64> {
    let mut client = Client::connect(endpoint)?;
    let mut changed = 0;
    while !stop.load(Ordering::Relaxed) {
        for sql in ["CREATE TABLE other (id int) DISTRIBUTE BY REPLICATED", "DROP TABLE other"] {
            persist(&mut client, sql)?;
            changed += 1;
        }
    }
    Ok(changed)
}

/// What is bound to a connection, or may be, is not lost by cancel requests that meet the beginning or the
/// end of its transaction, or a question of the gateway's: also one of a session that waits for a change.
#[test]
fn a_cancelled_statement_ends_no_session() -> Result<()> {
    let turns = turns(1_200) as usize;
    const LEAVES: [&str; 4] = [
        "TABLE own",
        // Settings, locks, or anything: only the node knows.
        "DO $$ BEGIN PERFORM set_config('a.b', 'c', false); END $$",
        "SELECT pg_advisory_lock(1), pg_advisory_unlock(1)",
        "SELECT set_config('a.c', 'd', false)",
    ];
    let cluster = start(2, PoolConfig::default())?;
    let mut clients = Vec::new();
    for _ in LEAVES {
        clients.push(Client::connect(&cluster.endpoint())?);
    }
    clients[0].query(
        "CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id); TABLE t;
         CREATE TEMPORARY TABLE own AS SELECT 1 AS a",
    )?;
    let (stop, nodes) = (AtomicBool::new(false), cluster.nodes());
    thread::scope(|scope| -> Result<()> {
        let cancelling: Vec<_> =
            nodes.iter().map(|node| scope.spawn(|| cancel_all_the_time(node, &stop))).collect();
        let changing = scope.spawn(|| change_all_the_time(&cluster.endpoint(), &stop));
        let ran = (0..turns).try_for_each(|turn| {
            let leaves = LEAVES[turn % LEAVES.len()];
            let client = &mut clients[turn % LEAVES.len()];
            let is_extended = turn / LEAVES.len() % 2 == 1;
            persist(client, "BEGIN")?;
            for sql in [leaves, "SELECT count(*) FROM t", "COMMIT"] {
                let request = Request { sql, ..Request::default() };
                let answer = match is_extended {
                    true => client.extended(&request, Flight::OneFlight, b""),
                    false => client.simple(sql, b""),
                };
                let answer = answer.with_context(|| format!("turn {turn}: {sql}"))?;
                if let Some(error) = answer.error() {
                    let sqlstate = error.sqlstate();
                    // 40001: code that may use anything, beside a change.
                    let expected = ["57014", "25P02", "40001"];
                    ensure!(expected.contains(&sqlstate), "{turn}: {sql}: {error:?}");
                }
            }
            persist(client, "ROLLBACK").map(drop)
        });
        stop.store(true, Ordering::Relaxed);
        ensure!(changing.join().expect("no panic")? > 5);
        for cancelling in cancelling {
            ensure!(cancelling.join().expect("no panic")? > 100);
        }
        ran
    })?;
    ensure!(persist(&mut clients[0], "TABLE own")? == "1");
    Ok(())
}

/// Cancels what sessions of this name do on a node, now and then, until told to stop.
fn cancel_now_and_then(node: &Endpoint, name: &str, stop: &AtomicBool) -> Result<()> {
    let mut client = Client::connect(node)?;
    let mut random = StdRng::seed_from_u64(node.port.into());
    while !stop.load(Ordering::Relaxed) {
        client.query(&format!(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
             WHERE application_name = '{name}' AND state = 'active'"
        ))?;
        thread::sleep(Duration::from_micros(random.random_range(0..1_500)));
    }
    Ok(())
}

/// What a cancelled statement was told to have failed has not happened on any node, and what was told to have happened
/// has on all: statements that compute values first, and savepoints of one name.
#[test]
fn what_was_cancelled_has_not_happened_anywhere() -> Result<()> {
    let turns = i32::try_from(turns(1_500))?;
    let cluster = start(2, PoolConfig::default())?;
    let mut admin = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE TABLE t (id int PRIMARY KEY, turn int) DISTRIBUTE BY HASH (id)",
        "CREATE TABLE copies (id int PRIMARY KEY) DISTRIBUTE BY REPLICATED",
        "CREATE SEQUENCE s",
        "CREATE TABLE drawn (id int PRIMARY KEY, n int DEFAULT nextval('s'), at timestamptz DEFAULT now())
             DISTRIBUTE BY HASH (id)",
    ] {
        admin.query(sql)?;
    }
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("SET application_name = 'cancelled'")?;
    let (stop, nodes) = (AtomicBool::new(false), cluster.nodes());
    let (mut drawn, mut blocks) = (Vec::new(), Vec::new());
    thread::scope(|scope| -> Result<()> {
        let cancelling: Vec<_> = nodes
            .iter()
            .map(|node| scope.spawn(|| cancel_now_and_then(node, "cancelled", &stop)))
            .collect();
        let mut turn = |turn: i32| -> Result<()> {
            let mut told = |sql: String| -> Result<bool> {
                let request = Request { sql: &sql, ..Request::default() };
                let answer = match turn % 2 {
                    0 => client.simple(&sql, b"")?,
                    _ => client.extended(&request, Flight::OneFlight, b"")?,
                };
                let error = answer.error().map(|error| error.sqlstate().to_owned());
                let known =
                    error.as_deref().is_none_or(|it| ["57014", "25P02", "08006"].contains(&it));
                ensure!(known, "turn {turn}: {sql}: {answer}");
                // A COMMIT that rolls back says so.
                let rolled_back = sql == "COMMIT" && !answer.to_string().contains("COMMIT");
                Ok(error.is_none() && !rolled_back)
            };
            if told(format!("INSERT INTO drawn (id) VALUES ({turn})"))? {
                drawn.push(turn);
            }
            let group = |from: i32| {
                let rows: Vec<_> = (from..from + 4).map(|id| format!("({id}, {turn})")).collect();
                format!("INSERT INTO t VALUES {}", rows.join(", "))
            };
            let again = ["SAVEPOINT a", "RELEASE a"][usize::try_from(turn / 2 % 2)?];
            let first = turn * 10;
            let goes_on = told("BEGIN".to_owned())?
                && told(group(first))?
                && told("SAVEPOINT a".to_owned())?
                && told(group(first + 4))?
                && told(format!("INSERT INTO copies VALUES ({turn})"))?
                && (again == "SAVEPOINT a" || told("SAVEPOINT a".to_owned())?);
            if goes_on {
                let went = told(again.to_owned())?;
                // Back to the second if that was made, or could not be released; else to the first.
                let to_second = (again == "SAVEPOINT a") == went;
                if told("ROLLBACK TO a".to_owned())? && told("COMMIT".to_owned())? {
                    blocks.push((turn, to_second));
                }
            }
            while !told("ROLLBACK".to_owned())? {}
            Ok(())
        };
        let ran = (0..turns).try_for_each(&mut turn);
        stop.store(true, Ordering::Relaxed);
        for cancelling in cancelling {
            cancelling.join().expect("no panic")?;
        }
        ran
    })?;
    let ints = |rows: Vec<Vec<Option<String>>>| -> Vec<i32> {
        rows.iter().filter_map(|row| row[0].as_deref()?.parse().ok()).collect()
    };
    let found = ints(admin.query("SELECT id FROM drawn ORDER BY id")?);
    ensure!(found == drawn, "{} rows, and {} were told", found.len(), drawn.len());
    for (turn, to_second) in &blocks {
        let rows = ints(admin.query(&format!("SELECT id FROM t WHERE turn = {turn}"))?);
        let expected = if *to_second { 8 } else { 4 };
        ensure!(rows.len() == expected, "turn {turn}: {rows:?}, not {expected}");
    }
    let rows = admin.value("SELECT count(DISTINCT turn) FROM t")?;
    ensure!(rows == blocks.len().to_string(), "{rows} turns, and {} were told", blocks.len());
    ensure!(!blocks.is_empty() && drawn.len() < usize::try_from(turns)?);
    Ok(())
}

/// Sets the search path in one of several ways. Whether the client was told that it is set, and it is.
fn set_search_path(client: &mut Client, turn: usize) -> Result<bool> {
    let (new, old) = (["s0", "s1"][turn % 2], ["s1", "s0"][turn % 2]);
    persist(client, &format!("SET search_path = {old}"))?;
    let set = format!("SET search_path = {new}");
    let way = turn / 2 % 4;
    let mut answers = Vec::new();
    match way {
        0 => answers.push(client.simple(&set, b"")?),
        1 => answers.push(client.extended(
            &Request { sql: &set, ..Request::default() },
            Flight::OneFlight,
            b"",
        )?),
        way => {
            persist(client, "BEGIN")?;
            answers.push(client.simple(&set, b"")?);
            let commit = Request { sql: "COMMIT", ..Request::default() };
            answers.push(match way {
                2 => client.simple("COMMIT", b"")?,
                _ => client.extended(&commit, Flight::OneFlight, b"")?,
            });
        }
    }
    let is_refused = answers.iter().any(|answer| answer.error().is_some());
    for answer in &answers {
        ensure!(answer.outcomes.len() == 1, "way {way}: one statement was told {answer:?}");
    }
    persist(client, "ROLLBACK")?;
    let now = persist(client, "SHOW search_path")?;
    let expected = if is_refused { old } else { new };
    ensure!(now == expected, "way {way}: told {answers:?}, and the path is {now}, not {expected}");
    Ok(!is_refused)
}

/// Runs a statement until it is not cancelled; its value, if it has one.
fn persist(client: &mut Client, sql: &str) -> Result<String> {
    loop {
        let answer = client.simple(sql, b"")?;
        match answer.error() {
            Some(error) => ensure!(error.sqlstate() == "57014", "{sql}: {error:?}"),
            None => {
                let rows = answer.texts();
                return Ok(rows.first().and_then(|row| row[0].clone()).unwrap_or_default());
            }
        }
    }
}

/// They are set again on every connection that the session gets, and kept in the gateway's memory.
#[test]
fn what_a_session_sets_is_limited_and_can_be_set_back() -> Result<()> {
    let cluster = narrow(2)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id); TABLE t")?;
    let long = "y".repeat(1 << 20);
    for in_transaction in [false, true] {
        if in_transaction {
            client.query("BEGIN")?;
        }
        for turn in 0..15 {
            client.query(&format!("SET a.b{turn} = '{long}'"))?;
        }
        let error = refusal(&mut client, &format!("SET a.b15 = '{long}'"))?;
        ensure!(error.sqlstate() == "54000", "{error:?}");
        if in_transaction {
            client.query("ROLLBACK")?;
        }
        client.query("SET a.b0 = ''; RESET ALL")?;
        ensure!(client.value("SELECT length(current_setting('a.b3'))")? == "0");
    }
    Ok(())
}

/// A connection that another session has used is cleaned by what is sent with the next statement. If
/// something else keeps that from being sent, its answer is not awaited.
#[test]
fn a_session_goes_on_whose_statement_was_never_sent() -> Result<()> {
    let mut cluster = narrow(2)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id); CREATE SEQUENCE s")?;
    one.query("INSERT INTO t SELECT generate_series(1, 20)")?;
    let ids = cluster
        .nodes()
        .into_iter()
        .map(|node| Client::connect(&node)?.value("SELECT min(id) FROM t"));
    let ids = ids.collect::<Result<Vec<_>>>()?;
    cluster.leave_unaudited("a function of the schema tutti is made to fail");
    // The transaction is given a ticket on node 2 when it reaches node 1.
    Client::connect(&cluster.nodes()[1])?.query(
        "CREATE OR REPLACE FUNCTION tutti.insert_ticket() RETURNS void LANGUAGE plpgsql AS
         $$BEGIN RAISE serialization_failure USING MESSAGE = 'a pivot'; END$$",
    )?;
    for end in ["ROLLBACK", "COMMIT"] {
        other.query("SELECT nextval('s')")?;
        one.query("BEGIN ISOLATION LEVEL SERIALIZABLE")?;
        one.query(&format!("SELECT * FROM t WHERE id = {}", ids[1]))?;
        let refused = refusal(&mut one, &format!("SELECT * FROM t WHERE id = {}", ids[0]))?;
        ensure!(refused.sqlstate() == "40001", "{refused:?}");
        one.query(end)?;
        ensure!(one.value("SELECT count(*) FROM t")? == "20");
    }
    Ok(())
}

/// A connection is lost in a transaction over several nodes: its next statement is told so, and the
/// connections to the other nodes are neither waited for nor kept forever.
#[test]
fn a_lost_connection_leaves_the_others_usable() -> Result<()> {
    let cluster = narrow(2)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)")?;
    client.query("INSERT INTO t SELECT g, 0 FROM generate_series(1, 20) g")?;
    let end_all = "SELECT count(pg_terminate_backend(pid, 20000)) FROM pg_stat_activity
         WHERE application_name = 'tutti-tests' AND pid <> pg_backend_pid()";
    for sql in ["SELECT id FROM t", "SELECT count(*) FROM t", "UPDATE t SET v = v + 1"] {
        for node in cluster.nodes() {
            client.query("BEGIN")?;
            client.query(sql)?;
            Client::connect(&node)?.query(end_all)?;
            let refused = refusal(&mut client, sql)?;
            ensure!(["08006", "57P01"].contains(&refused.sqlstate()), "{sql}: {refused:?}");
            client.query("ROLLBACK")?;
            ensure!(client.value("SELECT sum(v) FROM t")? == "0", "{sql}");
            let pool = client.value("SHOW tutti.pool")?;
            ensure!(pool.matches(": 0 lent").count() == 2, "{sql}: {pool}");
        }
    }
    Ok(())
}

/// Parse, Describe and Sync; the number of result columns or the error.
fn prepare(client: &mut Client, name: &str, sql: &str) -> Result<Result<usize, ErrorFields>> {
    let mut bytes = BytesMut::new();
    put_parse(&mut bytes, name, sql, &[]);
    put_describe(&mut bytes, Target::Statement, name);
    put_sync(&mut bytes);
    client.send_bytes(&bytes)?;
    let mut outcome = Ok(0);
    loop {
        let frame = client.receive()?;
        match frame.tag() {
            b'T' => outcome = Ok(tutti_wire::backend::decode_row_description(&frame)?.len()),
            b'E' => outcome = Err(ErrorFields::decode(&frame)?),
            b'Z' => return Ok(outcome),
            _ => (),
        }
    }
}

/// Bind, Execute and Sync; the number of rows or the error.
fn execute(client: &mut Client, name: &str) -> Result<Result<usize, ErrorFields>> {
    let mut bytes = BytesMut::new();
    put_bind(&mut bytes, "", name, &Arguments::default());
    put_execute(&mut bytes, "", 0);
    put_sync(&mut bytes);
    client.send_bytes(&bytes)?;
    let (mut rows, mut refused) = (0, None);
    loop {
        let frame = client.receive()?;
        match frame.tag() {
            b'D' => rows += 1,
            b'E' => refused = Some(ErrorFields::decode(&frame)?),
            b'Z' => return Ok(refused.map_or(Ok(rows), Err)),
            _ => (),
        }
    }
}

#[test]
fn sessions_share_prepared_statements_and_their_names_do_not_meet() -> Result<()> {
    let cluster = narrow(1)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)")?;
    let of_t = "SELECT * FROM t";
    ensure!(prepare(&mut one, "a", of_t)? == Ok(1));
    ensure!(prepare(&mut other, "b", of_t)? == Ok(1));
    ensure!(prepare(&mut other, "a", "SELECT 1, 2")? == Ok(2));
    ensure!(execute(&mut one, "a")? == Ok(2) && execute(&mut other, "b")? == Ok(2));
    ensure!(execute(&mut other, "a")? == Ok(1));
    let known = "SELECT count(*) FROM pg_prepared_statements WHERE statement = 'SELECT * FROM t'";
    ensure!(one.value(known)? == "1", "the node analyses the text once");
    Ok(())
}

#[test]
fn statements_about_a_cursor_are_not_shared() -> Result<()> {
    let cluster = narrow(1)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("BEGIN; DECLARE c CURSOR FOR SELECT 1")?;
    ensure!(prepare(&mut one, "f", "FETCH c")? == Ok(1));
    one.query("COMMIT")?;
    // PostgreSQL 15 crashes where an old analysis of FETCH is described without its cursor.
    ensure!(prepare(&mut other, "f", "FETCH c")? == Ok(0));
    ensure!(one.value("SELECT 1")? == "1");
    Ok(())
}

#[test]
fn ddl_does_not_let_old_statements_answer_wrongly() -> Result<()> {
    let cluster = narrow(2)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    one.query("INSERT INTO t VALUES (1), (2)")?;
    for sql in ["SELECT * FROM t", "SELECT * FROM t WHERE id = 1"] {
        one.query("ALTER TABLE t DROP COLUMN IF EXISTS v")?;
        ensure!(prepare(&mut one, sql, sql)? == Ok(1));
        execute(&mut one, sql)?.expect("nothing has changed yet");
        other.query("ALTER TABLE t ADD COLUMN v int")?;
        // As PostgreSQL: who was told of one column does not get two.
        for _ in 0..2 {
            let refused = execute(&mut one, sql)?.expect_err("it has two columns now");
            ensure!(refused.sqlstate() == "0A000", "{refused:?}");
            ensure!(refused.message() == "cached plan must not change result type");
        }
        ensure!(prepare(&mut other, sql, sql)? == Ok(2), "others get what is true now");
        execute(&mut other, sql)?.expect("it was prepared after the change");
        ensure!(prepare(&mut one, &format!("{sql} again"), sql)? == Ok(2));
    }
    Ok(())
}

#[test]
fn the_same_text_means_what_the_sessions_names_mean() -> Result<()> {
    let cluster = narrow(2)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query(
        "CREATE SCHEMA a; CREATE TABLE a.t (x int); INSERT INTO a.t VALUES (1);
         CREATE SCHEMA b; CREATE TABLE b.t (x int, y int)",
    )?;
    one.query("SET search_path = a")?;
    other.query("SET search_path = b")?;
    ensure!(prepare(&mut one, "s", "SELECT * FROM t")? == Ok(1));
    ensure!(prepare(&mut other, "s", "SELECT * FROM t")? == Ok(2));
    for _ in 0..2 {
        ensure!(execute(&mut one, "s")? == Ok(1) && execute(&mut other, "s")? == Ok(0));
    }
    Ok(())
}

/// Who was told of the columns of the table that a name meant does not get those of another.
#[test]
fn another_search_path_does_not_let_old_statements_answer_otherwise_than_told() -> Result<()> {
    let cluster = narrow(2)?;
    let (mut one, _) = two_sessions(&cluster)?;
    one.query(
        "CREATE SCHEMA a; CREATE TABLE a.t (x int) DISTRIBUTE BY HASH (x); INSERT INTO a.t VALUES (1), (2);
         CREATE SCHEMA b; CREATE TABLE b.t (x int, y int) DISTRIBUTE BY HASH (x); INSERT INTO b.t VALUES (1, 1);
         CREATE SCHEMA c; CREATE TABLE c.t (x int) DISTRIBUTE BY HASH (x); INSERT INTO c.t VALUES (7)",
    )?;
    one.query("SET search_path = a")?;
    for sql in ["SELECT * FROM t", "SELECT * FROM t WHERE x > 0", "SELECT t FROM t"] {
        ensure!(prepare(&mut one, sql, sql)? == Ok(1));
        ensure!(execute(&mut one, sql)? == Ok(2));
    }
    one.query("SET search_path = b")?;
    for sql in ["SELECT * FROM t", "SELECT * FROM t WHERE x > 0", "SELECT t FROM t"] {
        for _ in 0..2 {
            let refused = execute(&mut one, sql)?.expect_err("the name means another table now");
            ensure!(refused.message() == "cached plan must not change result type", "{refused:?}");
        }
    }
    one.query("SET search_path = c")?;
    ensure!(execute(&mut one, "SELECT * FROM t")? == Ok(1), "its columns are alike");
    one.query("SET search_path = a")?;
    ensure!(execute(&mut one, "SELECT t FROM t")? == Ok(2));
    Ok(())
}

#[test]
fn a_cancel_request_hits_nobody_else() -> Result<()> {
    let cluster = narrow(1)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    let (process_id, secret) = (one.process_id, one.secret);
    let endpoint = cluster.endpoint();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let cancelling = scope.spawn(|| -> Result<()> {
            while !done.load(Ordering::Relaxed) {
                let mut stream = std::net::TcpStream::connect(("127.0.0.1", endpoint.port))?;
                let mut packet = BytesMut::new();
                put_cancel(&mut packet, process_id, secret);
                std::io::Write::write_all(&mut stream, &packet)?;
                // The gateway closes the connection when it has passed the request on.
                std::io::Read::read(&mut stream, &mut [0])?;
            }
            Ok(())
        });
        let working = scope.spawn(|| -> Result<()> {
            for _ in 0..300 {
                // This one may be cancelled at any time.
                one.simple("SELECT 1", b"")?;
            }
            Ok(())
        });
        let mut outcome = Ok(());
        for _ in 0..300 {
            let answered = other.query("SELECT count(*) FROM generate_series(1, 1000)");
            outcome = outcome.and(answered.map(drop));
        }
        let worked = working.join().expect("it does not panic");
        done.store(true, Ordering::Relaxed);
        cancelling.join().expect("it does not panic")?;
        worked?;
        outcome
    })
}

/// Waits for the FATAL error that a session ends with.
fn farewell(client: &mut Client) -> Result<ErrorFields> {
    loop {
        let frame = client.receive()?;
        if frame.tag() == b'E' {
            let error = ErrorFields::decode(&frame)?;
            if error.is_fatal() {
                ensure!(client.receive().is_err(), "the connection goes on");
                return Ok(error);
            }
        }
    }
}

#[test]
fn sessions_know_their_own_numbers_and_can_be_ended_by_them() -> Result<()> {
    let cluster = narrow(2)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    for client in [&mut one, &mut other] {
        let number = client.process_id.to_string();
        ensure!(client.value("SELECT pg_backend_pid()")? == number);
        ensure!(client.value("SELECT x FROM (SELECT pg_backend_pid() AS x) s")? == number);
    }
    let number = one.process_id;
    ensure!(other.value(&format!("SELECT pg_cancel_backend({number})"))? == "t");
    one.query("SELECT 1")?;
    other.query("CREATE ROLE nobody; SET ROLE nobody")?;
    let refused = refusal(&mut other, &format!("SELECT pg_terminate_backend({number})"))?;
    ensure!(refused.sqlstate() == "42501", "{refused:?}");
    other.query("RESET ROLE")?;
    ensure!(other.value(&format!("SELECT pg_terminate_backend({number})"))? == "t");
    ensure!(farewell(&mut one)?.sqlstate() == "57P01");
    Ok(())
}

#[test]
fn sessions_see_their_own_prepared_statements_only() -> Result<()> {
    let cluster = narrow(2)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("PREPARE by_sql (int) AS SELECT $1")?;
    ensure!(prepare(&mut other, "by_parse", "SELECT 2")? == Ok(1));
    let names = "SELECT string_agg(name || ' ' || statement || ' ' || from_sql, ',')
         FROM pg_prepared_statements";
    ensure!(one.value(names)? == "by_sql SELECT $1 true", "{}", one.value(names)?);
    ensure!(other.value(names)? == "by_parse SELECT 2 false");
    Ok(())
}

#[test]
fn copy_data_is_not_sent_on_after_the_node_has_refused() -> Result<()> {
    let cluster = narrow(1)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int PRIMARY KEY)")?;
    let mut bytes = BytesMut::new();
    put_query(&mut bytes, "COPY t FROM STDIN");
    client.send_bytes(&bytes)?;
    while client.receive()?.tag() != b'G' {}
    // No CopyDone: the error comes without it.
    bytes.clear();
    for line in ["1\n", "x\n", "2\n"] {
        put_copy_data(&mut bytes, line.as_bytes());
    }
    client.send_bytes(&bytes)?;
    while client.receive()?.tag() != b'E' {}
    while client.receive()?.tag() != b'Z' {}
    ensure!(client.value("SELECT count(*) FROM t")? == "0");
    Ok(())
}

#[test]
fn an_error_is_told_before_the_flight_ends() -> Result<()> {
    let cluster = narrow(1)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int PRIMARY KEY, v text) DISTRIBUTE BY HASH (id)")?;
    ensure!(prepare(&mut client, "insert", "INSERT INTO t VALUES ($1, $2)")? == Ok(0));
    let mut bytes = BytesMut::new();
    let mut insert = |id: usize, len: usize| {
        let values = [Some(id.to_string()), Some("x".repeat(len))];
        put_bind(&mut bytes, "", "insert", &text_arguments(&values));
        put_execute(&mut bytes, "", 0);
    };
    insert(1, 1);
    insert(1, 1);
    for id in 2..40 {
        insert(id, 40_000);
    }
    // No Sync yet.
    client.send_bytes(&bytes)?;
    let error = loop {
        let frame = client.receive()?;
        if frame.tag() == b'E' {
            break ErrorFields::decode(&frame)?;
        }
    };
    ensure!(error.sqlstate() == "23505", "{error:?}");
    bytes.clear();
    put_sync(&mut bytes);
    client.send_bytes(&bytes)?;
    ensure!(client.receive()?.tag() == b'Z', "something follows the error");
    ensure!(client.value("SELECT count(*) FROM t")? == "0");
    Ok(())
}

#[test]
fn what_fails_on_the_way_to_a_statement_is_told_as_it_is() -> Result<()> {
    let mut cluster = start(2, PoolConfig::default())?;
    cluster.leave_unaudited("a function of the schema tutti is made to fail");
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    client.query("INSERT INTO t SELECT generate_series(1, 20)")?;
    let nodes = cluster.nodes();
    let [mut home, mut other] = [Client::connect(&nodes[0])?, Client::connect(&nodes[1])?];
    let (here, there) =
        (home.value("SELECT min(id) FROM t")?, other.value("SELECT min(id) FROM t")?);
    // The transaction is given a ticket on node 1 when it reaches node 2.
    home.query(
        "CREATE OR REPLACE FUNCTION tutti.insert_ticket() RETURNS void LANGUAGE plpgsql AS
         $$BEGIN RAISE serialization_failure USING MESSAGE = 'a pivot'; END$$",
    )?;
    client.query("BEGIN ISOLATION LEVEL SERIALIZABLE")?;
    client.query(&format!("SELECT * FROM t WHERE id = {here}"))?;
    let mut bytes = BytesMut::new();
    put_parse(&mut bytes, "", "SELECT * FROM t WHERE id = $1", &[]);
    put_bind(&mut bytes, "", "", &text_arguments(&[Some(there)]));
    put_execute(&mut bytes, "", 0);
    put_sync(&mut bytes);
    client.send_bytes(&bytes)?;
    let mut errors = Vec::new();
    loop {
        let frame = client.receive()?;
        match frame.tag() {
            b'E' => errors.push(ErrorFields::decode(&frame)?),
            b'Z' => break,
            _ => (),
        }
    }
    ensure!(errors.len() == 1 && errors[0].sqlstate() == "40001", "{errors:?}");
    client.query("ROLLBACK")?;
    ensure!(client.value("SELECT count(*) FROM t")? == "20");
    Ok(())
}

#[test]
fn a_session_that_is_ended_in_a_statement_is_told_once() -> Result<()> {
    let cluster = start(2, PoolConfig::default())?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    let mut bytes = BytesMut::new();
    put_query(&mut bytes, "SELECT pg_sleep(600)");
    one.send_bytes(&bytes)?;
    let number = one.process_id;
    ensure!(other.value(&format!("SELECT pg_terminate_backend({number})"))? == "t");
    // Itself.
    bytes.clear();
    put_query(&mut bytes, "SELECT pg_terminate_backend(pg_backend_pid())");
    other.send_bytes(&bytes)?;
    for client in [&mut one, &mut other] {
        let error = farewell(client)?;
        ensure!(error.sqlstate() == "57P01", "{error:?}");
        ensure!(error.message() == "terminating connection due to administrator command");
    }
    Ok(())
}

#[test]
fn idle_clients_are_sent_away_as_their_settings_say() -> Result<()> {
    let cluster = narrow(2)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    client.query("SET idle_in_transaction_session_timeout = '300ms'")?;
    client.query("BEGIN; INSERT INTO t SELECT generate_series(1, 9)")?;
    ensure!(farewell(&mut client)?.sqlstate() == "25P03");
    let mut client = Client::connect(&cluster.endpoint())?;
    ensure!(client.value("SELECT count(*) FROM t")? == "0", "it was rolled back");
    client.query("SET idle_session_timeout = '300ms'")?;
    ensure!(farewell(&mut client)?.sqlstate() == "57P05");
    Ok(())
}

#[test]
fn a_gateway_that_is_asked_to_stop_fails_no_transaction() -> Result<()> {
    let mut cluster = start(2, PoolConfig::default())?;
    let (mut idle, mut working) = two_sessions(&cluster)?;
    working.query("CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    working.query("BEGIN; INSERT INTO t SELECT generate_series(1, 9)")?;
    let nodes = cluster.nodes();
    let (stopped, has_stopped) = mpsc::channel();
    std::thread::scope(|scope| -> Result<()> {
        let stopping = scope.spawn(|| {
            let outcome = cluster.stop_gateway();
            stopped.send(()).expect("somebody waits for it");
            outcome
        });
        ensure!(farewell(&mut idle)?.sqlstate() == "57P01");
        ensure!(has_stopped.try_recv().is_err(), "a transaction is at work");
        working.query("INSERT INTO t VALUES (10)")?;
        working.query("COMMIT")?;
        ensure!(farewell(&mut working)?.sqlstate() == "57P01");
        has_stopped.recv_timeout(Duration::from_secs(30))?;
        stopping.join().expect("it does not panic")
    })?;
    let mut rows = 0;
    for node in nodes {
        rows += Client::connect(&node)?.value("SELECT count(*) FROM t")?.parse::<u32>()?;
    }
    ensure!(rows == 10, "{rows} rows");
    Ok(())
}
