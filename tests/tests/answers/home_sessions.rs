//! Sessions of a cluster whose tables are all at home behave as one server's: SQL-level prepared
//! statements and prepared transactions, notices, texts of errors, savepoints, what a session has
//! drawn from sequences. PostgreSQL's own suite (`regress.rs`) covers what one session sees; here are
//! those that share a connection, and what holds when a table is spread.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::BytesMut;
use tutti_gateway::{Config, DefaultDistribution, PoolConfig};
use tutti_tests::answer::Outcome;
use tutti_tests::client::{Client, Flight, Request};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frontend::{Arguments, put_bind, put_execute, put_parse, put_query, put_sync};

/// Two nodes, all tables at home, and so many connections to each.
fn start(size: usize) -> Result<TestCluster> {
    let servers = servers::start(2)?;
    let pool = PoolConfig { size, ..PoolConfig::default() };
    let default_distribution = DefaultDistribution::Home;
    let config = Config { default_distribution, pool, ..config(&servers, String::new()) };
    TestCluster::start_configured(servers, config)
}

fn two_sessions(cluster: &TestCluster) -> Result<(Client, Client)> {
    Ok((Client::connect(&cluster.endpoint())?, Client::connect(&cluster.endpoint())?))
}

fn refusal(client: &mut Client, sql: &str) -> Result<ErrorFields> {
    let answer = client.simple(sql, b"")?;
    answer.error().cloned().with_context(|| format!("{sql} was not refused"))
}

fn field(error: &ErrorFields, wanted: u8) -> Option<&str> {
    error.fields.iter().find(|(code, _)| *code == wanted).map(|(_, value)| value.as_str())
}

fn spread_something(client: &mut Client) -> Result<()> {
    client.query("CREATE TABLE spread (id int PRIMARY KEY) DISTRIBUTE BY HASH (id)")?;
    Ok(())
}

#[test]
fn statements_of_one_name_on_one_connection_do_not_meet() -> Result<()> {
    let cluster = start(1)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("CREATE TABLE t (id int, name text); INSERT INTO t VALUES (1, 'a'), (2, 'b')")?;
    one.query("PREPARE p (int) AS SELECT name FROM t WHERE id = $1")?;
    other.query("PREPARE p (text) AS SELECT id FROM t WHERE name = $1")?;
    for _ in 0..2 {
        ensure!(one.value("EXECUTE p(1)")? == "a");
        ensure!(other.value("EXECUTE p('b')")? == "2");
        let explained = one.query("EXPLAIN (COSTS OFF) EXECUTE p(2)")?;
        ensure!(explained[0] == [Some("Seq Scan on t".to_owned())], "{explained:?}");
        let statements = "SELECT string_agg(statement, '|') FROM pg_prepared_statements";
        let text = "PREPARE p (text) AS SELECT id FROM t WHERE name = $1";
        ensure!(other.value(statements)? == text, "{}", other.value(statements)?);
    }
    other.query("CREATE TABLE copied AS EXECUTE p('a')")?;
    ensure!(one.value("SELECT id FROM copied")? == "1");
    ensure!(refusal(&mut one, "PREPARE p AS SELECT 1")?.sqlstate() == "42P05");
    one.query("DEALLOCATE p")?;
    ensure!(refusal(&mut one, "EXECUTE p(1)")?.sqlstate() == "26000");
    ensure!(other.value("EXECUTE p('b')")? == "2");
    one.query("PREPARE p AS SELECT count(*) FROM t")?;
    ensure!(one.value("EXECUTE p")? == "2");
    other.query("DISCARD ALL")?;
    ensure!(refusal(&mut other, "EXECUTE p('b')")?.sqlstate() == "26000");
    ensure!(one.value("EXECUTE p")? == "2");
    // What a transaction is rolled back with stays prepared.
    one.query("BEGIN; PREPARE q AS SELECT 7; ROLLBACK")?;
    ensure!(one.value("EXECUTE q")? == "7");
    other.query("PREPARE r AS SELECT name FROM t; ALTER TABLE t DROP COLUMN name")?;
    let refused = refusal(&mut other, "EXECUTE r")?;
    ensure!(refused.sqlstate() == "42703", "{refused:?}");
    // From now on the gateway plans what is executed.
    spread_something(&mut other)?;
    ensure!(one.value("EXECUTE p")? == "2");
    ensure!(one.value("EXECUTE q")? == "7");
    Ok(())
}

#[test]
fn clients_prepare_transactions_of_their_own() -> Result<()> {
    let cluster = start(5)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("CREATE TABLE t (id int)")?;
    one.query("BEGIN; INSERT INTO t VALUES (1); SET work_mem = '5MB'")?;
    one.query("PREPARE TRANSACTION 'mine'")?;
    ensure!(one.value("SHOW work_mem")? == "5MB");
    ensure!(one.value("SELECT count(*) FROM t")? == "0");
    ensure!(other.value("SELECT gid FROM pg_prepared_xacts")? == "mine");
    other.query("COMMIT PREPARED 'mine'")?;
    ensure!(one.value("SELECT count(*) FROM t")? == "1");
    one.query("BEGIN; CREATE TABLE u (id int)")?;
    one.query("PREPARE TRANSACTION 'mine'")?;
    ensure!(refusal(&mut other, "SELECT * FROM u")?.sqlstate() == "42P01");
    one.query("COMMIT PREPARED 'mine'")?;
    other.query("SELECT * FROM u")?;
    one.query("BEGIN; INSERT INTO t VALUES (2)")?;
    one.query("PREPARE TRANSACTION 'again'")?;
    one.query("ROLLBACK PREPARED 'again'")?;
    ensure!(one.value("SELECT count(*) FROM t")? == "1");
    // The gateway's own names, and a cluster that commits on several nodes.
    one.query("BEGIN")?;
    let own = refusal(&mut one, "PREPARE TRANSACTION 'tutti_test_1_1_1'")?;
    ensure!(own.sqlstate() == "0A000", "{own:?}");
    one.query("ROLLBACK")?;
    ensure!(refusal(&mut one, "COMMIT PREPARED 'tutti_test_1_1_1'")?.sqlstate() == "0A000");
    spread_something(&mut one)?;
    one.query("BEGIN; INSERT INTO spread SELECT generate_series(1, 20)")?;
    ensure!(refusal(&mut one, "PREPARE TRANSACTION 'mine'")?.sqlstate() == "0A000");
    one.query("ROLLBACK")?;
    // What has been done on node 1 alone is that node's.
    one.query("BEGIN; INSERT INTO t VALUES (3)")?;
    one.query("PREPARE TRANSACTION 'mine'")?;
    other.query("COMMIT PREPARED 'mine'")?;
    ensure!(one.value("SELECT count(*) FROM t")? == "2");
    // What other nodes have read is committed before node 1 refuses; what they were set to is undone
    // all the same.
    one.query("INSERT INTO spread SELECT generate_series(1, 20)")?;
    other.query("BEGIN; INSERT INTO t VALUES (4)")?;
    other.query("PREPARE TRANSACTION 'mine'")?;
    one.query(
        "BEGIN; INSERT INTO t VALUES (5); SELECT count(*) FROM spread; SET work_mem = '7MB'",
    )?;
    let taken = refusal(&mut one, "PREPARE TRANSACTION 'mine'")?;
    ensure!(taken.sqlstate() == "42710", "{taken:?}");
    let expected = one.value("SHOW work_mem")?;
    for id in 1..=20 {
        let seen = format!("SELECT current_setting('work_mem') FROM spread WHERE id = {id}");
        let (shown, elsewhere) = (one.value(&seen)?, other.value(&seen)?);
        ensure!(shown == expected && elsewhere != "7MB", "{id}: {shown}, {elsewhere}");
    }
    Ok(())
}

#[test]
fn notices_come_when_they_are_said() -> Result<()> {
    let cluster = start(5)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    let mut bytes = BytesMut::new();
    put_query(&mut bytes, "DO $$ BEGIN RAISE NOTICE 'now'; PERFORM pg_sleep(30); END $$");
    let began = Instant::now();
    one.send_bytes(&bytes)?;
    ensure!(one.receive()?.tag() == b'N');
    ensure!(began.elapsed() < Duration::from_secs(15), "the notice waits for the end");
    let number = one.process_id;
    other.query(&format!("SELECT pg_cancel_backend({number})"))?;
    while one.receive()?.tag() != b'Z' {}
    one.query(
        "CREATE TABLE t (id int);
         CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE NOTICE 'row %', NEW.id; RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER say AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION say();
         BEGIN; INSERT INTO t VALUES (1), (2)",
    )?;
    bytes.clear();
    put_query(&mut bytes, "COMMIT");
    one.send_bytes(&bytes)?;
    let mut tags = Vec::new();
    while tags.last() != Some(&b'Z') {
        tags.push(one.receive()?.tag());
    }
    ensure!(tags == b"NNCZ", "{tags:?}");
    Ok(())
}

#[test]
fn errors_of_texts_are_postgresqls_own() -> Result<()> {
    let cluster = start(5)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    let mut plain = Client::connect(&cluster.nodes()[0])?;
    for spread in [false, true] {
        if spread {
            spread_something(&mut client)?;
        }
        for sql in [
            r"SELECT U&'wrong: \061'",
            "SELECT 1; ALTER INDEX i ALTER COLUMN 0 SET STATISTICS 1",
            "COPY x TO stdout WHERE a = 1",
            "SELEC 1",
            "SELECT 1 +",
            "CREATE TABLE g (b int GENERATED BY DEFAULT AS (a * 2) STORED)",
        ] {
            let (here, there) = (refusal(&mut client, sql)?, refusal(&mut plain, sql)?);
            for code in *b"CMPDH" {
                ensure!(field(&here, code) == field(&there, code), "{sql}: {here:?} {there:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn savepoints_need_a_block_and_undo_access_modes() -> Result<()> {
    let cluster = start(5)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int)")?;
    for spread in [false, true] {
        if spread {
            spread_something(&mut client)?;
        }
        let refused = refusal(&mut client, "INSERT INTO t VALUES (1); SAVEPOINT s; SELECT 1")?;
        ensure!(refused.sqlstate() == "25P01", "{refused:?}");
        ensure!(client.value("SELECT count(*) FROM t")? == "0");
        client.query("BEGIN; SAVEPOINT s; SET TRANSACTION READ ONLY")?;
        ensure!(refusal(&mut client, "INSERT INTO t VALUES (1)")?.sqlstate() == "25006");
        client.query("ROLLBACK TO s")?;
        ensure!(client.value("SHOW transaction_read_only")? == "off");
        client.query("INSERT INTO t VALUES (1); ROLLBACK")?;
    }
    Ok(())
}

#[test]
fn what_new_sessions_begin_with_changes_nothing_of_old_ones() -> Result<()> {
    let cluster = start(5)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("CREATE SEQUENCE s; SELECT nextval('s')")?;
    other.query("CREATE ROLE somebody; ALTER ROLE somebody SET work_mem = '3MB'")?;
    ensure!(one.value("SELECT currval('s')")? == "1");
    other.query("DROP ROLE somebody")?;
    ensure!(one.value("SELECT currval('s')")? == "1");
    // Another user's session has no role of its own.
    one.query("CREATE ROLE a; CREATE ROLE b; SET ROLE a; SET SESSION AUTHORIZATION b")?;
    for _ in 0..3 {
        ensure!(one.value("SELECT current_user || ' ' || current_setting('role')")? == "b none");
        other.query("SELECT 1")?;
    }
    one.query("RESET SESSION AUTHORIZATION")?;
    ensure!(one.value("SELECT current_user || ' ' || current_setting('role')")? == "postgres none");
    Ok(())
}

/// What yet unread code has set is its session's, and stays with it.
#[test]
fn what_new_functions_set_stays_with_their_session() -> Result<()> {
    let cluster = start(1)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    for round in 0..3 {
        one.query(&format!(
            "CREATE OR REPLACE FUNCTION sets_{round}(v text) RETURNS text LANGUAGE plpgsql AS \
             $$BEGIN PERFORM set_config('work_mem', v || 'MB', false); \
             RETURN set_config('app.round_{round}', v, false); END$$"
        ))?;
        one.query(&format!("SELECT sets_{round}('{}')", 7 + round))?;
        ensure!(other.value("SHOW work_mem")? == "4MB");
        let there = other.value(&format!("SELECT current_setting('app.round_{round}', true)"))?;
        ensure!(there.is_empty() || there == "NULL", "{there}");
        ensure!(one.value("SHOW work_mem")? == format!("{}MB", 7 + round));
        let own = one.value(&format!("SELECT current_setting('app.round_{round}')"))?;
        ensure!(own == (7 + round).to_string(), "{own}");
        // And what it locks.
        one.query(&format!(
            "CREATE FUNCTION locks_{round}() RETURNS void LANGUAGE sql AS 'SELECT pg_advisory_lock({round})'"
        ))?;
        one.query(&format!("SELECT locks_{round}()"))?;
        let held =
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
        ensure!(one.value(held)? == "1");
        one.query("SELECT pg_advisory_unlock_all()")?;
    }
    Ok(())
}

#[test]
fn kinds_of_transactions_follow_their_session() -> Result<()> {
    let cluster = start(1)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    // As drivers say it: each statement leaves what the other said.
    one.query("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE")?;
    one.query("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")?;
    for _ in 0..2 {
        ensure!(other.value("SHOW transaction_isolation")? == "read committed");
        ensure!(one.value("SHOW transaction_isolation")? == "serializable");
        ensure!(refusal(&mut one, "CREATE TABLE t (id int)")?.sqlstate() == "25006");
    }
    one.query("SET default_transaction_read_only = off; RESET default_transaction_isolation")?;
    ensure!(other.value("SHOW transaction_read_only")? == "off");
    one.query("CREATE TABLE t (id int)")?;
    ensure!(one.value("SHOW transaction_isolation")? == "read committed");
    Ok(())
}

#[test]
fn what_only_superusers_may_set_stays_with_its_session() -> Result<()> {
    let cluster = start(2)?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    owner.query("CREATE ROLE r LOGIN; CREATE ROLE s LOGIN")?;
    owner.query(
        "CREATE FUNCTION sets(name text, value text) RETURNS text LANGUAGE sql SECURITY DEFINER
         AS 'SELECT set_config($1, $2, false)'",
    )?;
    let mut others = [(); 2].map(|()| Client::connect_as(&cluster.endpoint(), "s"));
    let mut give_to_others = || -> Result<()> {
        // Both hold a connection to node 1 at the same time.
        for other in others.iter_mut().flatten() {
            other.query("BEGIN; SELECT 1")?;
        }
        others.iter_mut().flatten().try_for_each(|other| other.query("COMMIT").map(|_| ()))
    };
    for is_spread in [false, true] {
        if is_spread {
            spread_something(&mut owner)?;
        }
        let mut one = Client::connect_as(&cluster.endpoint(), "r")?;
        for text in [
            "SELECT set_config('log_statement', 'none', false)",
            "WITH w AS (SELECT set_config('log_statement', 'none', false)) SELECT count(*) FROM w",
            "SELECT set_config(n, 'none', false) FROM (VALUES ('log_statement')) AS v (n)",
        ] {
            ensure!(refusal(&mut one, text)?.sqlstate() == "42501", "{text}");
            give_to_others()?;
            ensure!(one.value("SELECT 7")? == "7", "{text}");
        }
        one.query("SELECT sets('log_min_duration_statement', '77s')")?;
        ensure!(one.value("SHOW tutti.pinned")? == "node n1: settings of superusers");
        for _ in 0..2 {
            let mut other = Client::connect_as(&cluster.endpoint(), "s")?;
            ensure!(other.value("SHOW log_min_duration_statement")? == "-1");
            ensure!(one.value("SHOW log_min_duration_statement")? == "77s");
        }
    }
    Ok(())
}

#[test]
fn arguments_beyond_no_parameters_are_not_looked_at() -> Result<()> {
    let cluster = start(1)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    for is_spread in [false, true] {
        if is_spread {
            spread_something(&mut one)?;
        }
        one.query("PREPARE p AS SELECT set_config('app.told', 'yes', false); EXECUTE p(3)")?;
        other.query("SELECT 1")?;
        ensure!(one.value("SHOW app.told")? == "yes");
        one.query("PREPARE q AS SELECT $1::int")?;
        ensure!(refusal(&mut one, "EXECUTE q(1, 2)")?.sqlstate() == "42601");
        one.query("DEALLOCATE ALL; RESET app.told")?;
    }
    Ok(())
}

#[test]
fn random_numbers_follow_the_sessions_own_seed_only() -> Result<()> {
    let cluster = start(1)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    one.query("SELECT setseed(0.3)")?;
    let follows = one.value("SELECT random()")?;
    for spreads in [false, true] {
        if spreads {
            spread_something(&mut one)?;
        }
        for seed in ["SELECT setseed(0.3)", "DO $$ BEGIN PERFORM setseed(0.3); END $$"] {
            one.query(seed)?;
            let seen = other.value("SELECT random()")?;
            ensure!(seen != follows, "{seed}: another session gets {seen}");
        }
    }
    Ok(())
}

#[test]
fn temporary_code_comes_and_goes_beside_spread_tables() -> Result<()> {
    let cluster = start(2)?;
    let mut one = Client::connect(&cluster.endpoint())?;
    spread_something(&mut one)?;
    for text in [
        "CREATE FUNCTION pg_temp.f(int) RETURNS int LANGUAGE sql AS 'SELECT 5'",
        "ALTER FUNCTION pg_temp.f(int) IMMUTABLE",
        "COMMENT ON FUNCTION pg_temp.f(int) IS 'five'",
        "CREATE OPERATOR pg_temp.=== (leftarg = int, rightarg = int, function = int4eq)",
        "CREATE AGGREGATE pg_temp.total(int) (sfunc = int4pl, stype = int)",
        "CREATE TYPE pg_temp.pair AS (a int, b int)",
        "ALTER TYPE pair ADD ATTRIBUTE c int",
        "CREATE TYPE pg_temp.mood AS ENUM ('sad')",
        "ALTER TYPE pg_temp.mood ADD VALUE 'glad'",
        "CREATE DOMAIN pg_temp.small AS int CHECK (value < 10)",
        "ALTER DOMAIN small DROP NOT NULL",
        "CREATE FUNCTION pg_temp.of(pg_temp.pair) RETURNS int LANGUAGE sql AS 'SELECT $1.a'",
        "CREATE CAST (pg_temp.pair AS int) WITH FUNCTION pg_temp.of(pg_temp.pair)",
        "DROP CAST (pg_temp.pair AS int)",
        "DROP FUNCTION pg_temp.of",
        "ALTER FUNCTION pg_temp.f(int) RENAME TO g",
        "DROP FUNCTION pg_temp.g(int)",
        "DROP OPERATOR pg_temp.=== (int, int)",
        "DROP AGGREGATE pg_temp.total(int)",
        "DROP TYPE pair",
        "DROP TYPE pg_temp.mood",
        "DROP DOMAIN small",
    ] {
        one.query(text).with_context(|| text.to_owned())?;
    }
    Ok(())
}

/// The schema of temporary objects that a server has for as long as it lives is its session's, also when nothing is
/// left in it.
#[test]
fn temporary_schemas_are_seen_by_their_sessions_alone() -> Result<()> {
    const SEEN: &str =
        "SELECT (pg_my_temp_schema() <> 0) || ' ' || array_length(current_schemas(true), 1)";
    let cluster = start(2)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    for spreads in [false, true] {
        if spreads {
            spread_something(&mut one)?;
        }
        for text in [
            "CREATE TEMP TABLE t (id int)",
            "DROP TABLE t",
            "BEGIN; CREATE TEMP TABLE t (id int) ON COMMIT DROP; COMMIT",
            "DO $$ BEGIN CREATE TEMP TABLE t (id int); DROP TABLE t; END $$",
            "SELECT 1",
        ] {
            one.query(text)?;
            assert_eq!(one.value(SEEN)?, "true 3", "{text}");
            assert_eq!(other.value(SEEN)?, "false 2", "{text}");
        }
    }
    drop(one);
    for _ in 0..3 {
        assert_eq!(Client::connect(&cluster.endpoint())?.value(SEEN)?, "false 2");
        assert_eq!(other.value(SEEN)?, "false 2");
    }
    Ok(())
}

#[test]
fn row_security_off_is_about_the_clients_tables() -> Result<()> {
    let cluster = start(2)?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    spread_something(&mut owner)?;
    owner
        .query("CREATE ROLE r LOGIN; GRANT ALL ON SCHEMA public TO r; GRANT ALL ON spread TO r")?;
    owner.query("CREATE TABLE guarded (id int); GRANT ALL ON guarded TO r")?;
    owner.query("ALTER TABLE guarded ENABLE ROW LEVEL SECURITY")?;
    let mut one = Client::connect_as(&cluster.endpoint(), "r")?;
    one.query("SET row_security = off")?;
    for text in [
        "CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 5; END'",
        "SELECT f()",
        "DO $$ BEGIN PERFORM set_config('row_security', 'off', false); END $$",
        "BEGIN; CREATE TABLE t (id int PRIMARY KEY) DISTRIBUTE BY HASH (id); SELECT f(); COMMIT",
        "ALTER TABLE t ADD COLUMN n int DEFAULT 3",
        "CREATE TABLE u (id int); REINDEX TABLE t",
        "INSERT INTO u SELECT f()",
        "DROP TABLE t, u",
    ] {
        one.query(text).with_context(|| text.to_owned())?;
    }
    ensure!(refusal(&mut one, "SELECT * FROM guarded")?.sqlstate() == "42501");
    Ok(())
}

#[test]
fn a_table_made_of_a_query_leaves_what_the_query_does() -> Result<()> {
    let cluster = start(2)?;
    let mut one = Client::connect(&cluster.endpoint())?;
    for is_spread in [false, true] {
        if is_spread {
            spread_something(&mut one)?;
        }
        one.query("CREATE TABLE c AS SELECT pg_try_advisory_lock(7) AS got")?;
        let pinned = one.value("SHOW tutti.pinned")?;
        ensure!(pinned == "node n1: advisory locks", "{pinned}");
        one.query("SELECT pg_advisory_unlock(7); DROP TABLE c")?;
    }
    Ok(())
}

/// What libpq's functions for large objects send: `lo_creat(-1)`, by its number.
fn lo_creat(client: &mut Client) -> Result<()> {
    let mut message = vec![b'F', 0, 0, 0, 22];
    message.extend_from_slice(&957_u32.to_be_bytes());
    message.extend_from_slice(&[0, 1, 0, 1, 0, 1, 0, 0, 0, 4]);
    message.extend_from_slice(&(-1_i32).to_be_bytes());
    message.extend_from_slice(&[0, 1]);
    message[4] = u8::try_from(message.len() - 1)?;
    client.send_bytes(&message)?;
    let mut answered = false;
    loop {
        let frame = client.receive()?;
        match frame.tag() {
            b'V' => answered = true,
            b'Z' => break,
            tag => ensure!(tag != b'E', "{:?}", String::from_utf8_lossy(frame.body())),
        }
    }
    ensure!(answered, "a large object has no number");
    Ok(())
}

#[test]
fn large_objects_are_made_beside_empty_spread_tables() -> Result<()> {
    let cluster = start(2)?;
    let mut one = Client::connect(&cluster.endpoint())?;
    lo_creat(&mut one)?;
    spread_something(&mut one)?;
    lo_creat(&mut one)?;
    one.query("BEGIN")?;
    lo_creat(&mut one)?;
    one.query("ROLLBACK")?;
    ensure!(one.value("SELECT count(*) FROM pg_largeobject_metadata")? == "2");
    Ok(())
}

#[test]
fn constraints_of_home_tables_are_set_on_node_1() -> Result<()> {
    let cluster = start(2)?;
    let mut one = Client::connect(&cluster.endpoint())?;
    spread_something(&mut one)?;
    one.query("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int, a int)")?;
    one.query("ALTER TABLE b ADD CONSTRAINT \"B a\" FOREIGN KEY (a) REFERENCES a DEFERRABLE INITIALLY DEFERRED")?;
    one.query("CREATE TABLE c (id int PRIMARY KEY, up int) DISTRIBUTE BY REPLICATED")?;
    one.query("ALTER TABLE c ADD CONSTRAINT up FOREIGN KEY (up) REFERENCES c DEFERRABLE INITIALLY DEFERRED")?;
    for begin in
        ["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN ISOLATION LEVEL SERIALIZABLE"]
    {
        for text in [
            "SET CONSTRAINTS \"B a\" IMMEDIATE; SELECT count(*) FROM spread",
            "SELECT count(*) FROM spread; SET CONSTRAINTS public.\"B a\", up DEFERRED",
            "SET CONSTRAINTS up, \"B a\" IMMEDIATE; INSERT INTO spread SELECT generate_series(1, 9)",
            "SET CONSTRAINTS \"B a\" IMMEDIATE; SAVEPOINT s; SELECT count(*) FROM spread; ROLLBACK TO s",
            "SET CONSTRAINTS \"B a\" IMMEDIATE; DROP INDEX IF EXISTS nosuch",
        ] {
            one.query(&format!("{begin}; {text}; ROLLBACK"))
                .with_context(|| format!("{begin}; {text}"))?;
        }
        let told =
            refusal(&mut one, &format!("{begin}; SET CONSTRAINTS nosuch IMMEDIATE; ROLLBACK"))?;
        ensure!(told.sqlstate() == "42704");
        one.query("ROLLBACK")?;
        for (set, insert) in [
            ("\"B a\" IMMEDIATE", "INSERT INTO b VALUES (1, 77)"),
            ("\"B a\", up IMMEDIATE", "INSERT INTO c VALUES (1, 77)"),
        ] {
            one.query(&format!("{begin}; SELECT count(*) FROM spread; SET CONSTRAINTS {set}"))?;
            ensure!(refusal(&mut one, insert)?.sqlstate() == "23503", "{set}; {insert}");
            one.query("ROLLBACK")?;
        }
    }
    Ok(())
}

/// The check is made when it is asked for, wherever the rows are.
#[test]
fn what_was_deferred_is_checked_at_once_on_all_nodes() -> Result<()> {
    let cluster = start(2)?;
    let mut one = Client::connect(&cluster.endpoint())?;
    one.query(
        "CREATE TABLE d (id int, n int, CONSTRAINT once UNIQUE (id) DEFERRABLE INITIALLY DEFERRED)
         DISTRIBUTE BY HASH (id)",
    )?;
    for id in 1..=6 {
        for set in ["ALL", "once"] {
            one.query(&format!("BEGIN; INSERT INTO d VALUES ({id}, 1)"))?;
            one.query(&format!("SAVEPOINT s; INSERT INTO d VALUES ({id}, 2)"))?;
            let told = refusal(&mut one, &format!("SET CONSTRAINTS {set} IMMEDIATE"))?;
            ensure!(told.sqlstate() == "23505" && field(&told, b'W').is_none(), "{told:?}");
            one.query("ROLLBACK TO s")?;
            one.query(&format!("SET CONSTRAINTS {set} IMMEDIATE; COMMIT; DELETE FROM d"))?;
        }
    }
    Ok(())
}

/// Others change schemas all the time; a transaction's first statement is its first all the same.
#[test]
fn what_others_change_does_not_begin_a_transaction() -> Result<()> {
    let cluster = start(2)?;
    let (mut one, mut other) = two_sessions(&cluster)?;
    spread_something(&mut one)?;
    one.query("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)")?;
    one.query("BEGIN")?;
    other.query("CREATE SCHEMA s; DROP SCHEMA s")?;
    one.query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")?;
    ensure!(one.value("SHOW transaction_isolation")? == "repeatable read");
    one.query("COMMIT")?;
    // LOCK takes no snapshot: what is committed while it waits is seen.
    one.query("BEGIN ISOLATION LEVEL REPEATABLE READ")?;
    other.query("CREATE SCHEMA s; DROP SCHEMA s")?;
    one.query("LOCK TABLE t IN ACCESS SHARE MODE")?;
    other.query("UPDATE t SET n = 5")?;
    ensure!(one.value("SELECT n FROM t")? == "5");
    one.query("COMMIT")?;
    Ok(())
}

/// A query of a pipeline is analysed where its tables are.
#[test]
fn pipelines_join_home_tables_behind_any_node() -> Result<()> {
    let cluster = start(2)?;
    let mut one = Client::connect(&cluster.endpoint())?;
    one.query("CREATE TABLE px (id int PRIMARY KEY, n int) DISTRIBUTE BY HASH (id)")?;
    one.query("CREATE TABLE ph (id int PRIMARY KEY, x int)")?;
    one.query("INSERT INTO px SELECT g, 0 FROM generate_series(1, 10) g")?;
    one.query("INSERT INTO ph SELECT g, g FROM generate_series(1, 10) g")?;
    for id in 1..=10 {
        let texts = [
            format!("UPDATE px SET n = n + 1 WHERE id = {id}"),
            "SELECT sum(ph.x) FROM ph JOIN px USING (id)".to_owned(),
            format!("INSERT INTO px SELECT {id} + x, 7 FROM ph WHERE id = 10 AND {id} > 1"),
        ];
        let mut flight = BytesMut::new();
        for text in &texts {
            put_parse(&mut flight, "", text, &[]);
            put_bind(&mut flight, "", "", &Arguments::default());
            put_execute(&mut flight, "", 0);
        }
        put_sync(&mut flight);
        one.send_bytes(&flight)?;
        loop {
            let frame = one.receive()?;
            match frame.tag() {
                b'Z' => break,
                tag => ensure!(tag != b'E', "{id}: {:?}", String::from_utf8_lossy(frame.body())),
            }
        }
    }
    ensure!(one.value("SELECT count(*) FROM px")? == "19");
    Ok(())
}

/// PostgreSQL locks what a statement reads before it takes the statement's snapshot. A snapshot of the whole
/// cluster is older than locks on node 1, and to it a table that is emptied, rewritten or replaced meanwhile
/// looks empty.
#[test]
fn home_tables_are_never_seen_empty_while_they_are_stored_anew() -> Result<()> {
    const REFILLS: [&str; 3] = [
        "BEGIN; TRUNCATE h; INSERT INTO h SELECT g, g FROM generate_series(1, 50) g; COMMIT",
        "ALTER TABLE h ALTER COLUMN v TYPE bigint; ALTER TABLE h ALTER COLUMN v TYPE int",
        "BEGIN; CREATE TABLE new (LIKE h); INSERT INTO new SELECT g, g FROM generate_series(1, 50) g; \
         DROP TABLE h CASCADE; ALTER TABLE new RENAME TO h; CREATE VIEW w AS SELECT * FROM h; COMMIT",
    ];
    let cluster = start(6)?;
    let (mut filling, mut looking) = two_sessions(&cluster)?;
    filling.query("CREATE TABLE s (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)")?;
    filling.query("CREATE TABLE sink (id int) DISTRIBUTE BY HASH (id)")?;
    filling.query("INSERT INTO s SELECT g, g FROM generate_series(1, 50) g")?;
    filling.query("CREATE TABLE h (id int, v int); CREATE VIEW w AS SELECT * FROM h")?;
    filling.query(REFILLS[0])?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let fill = scope.spawn(|| -> Result<usize> {
            let mut turns = 0;
            while !stop.load(Ordering::Relaxed) {
                // Which may be a deadlock's victim, as on one server.
                filling.simple(REFILLS[turns % REFILLS.len()], b"")?;
                filling.simple("ROLLBACK", b"")?;
                turns += 1;
            }
            Ok(turns)
        });
        let mut counts = BTreeMap::new();
        let looked = (0..240).try_for_each(|turn| -> Result<()> {
            let (sql, of) = [
                ("SELECT s.id FROM h JOIN s ON h.v = s.v", "SELECT 50"),
                ("SELECT s.id FROM w JOIN s ON w.v = s.v", "SELECT 50"),
                ("SELECT id FROM s WHERE v IN (SELECT v FROM h)", "SELECT 50"),
                ("INSERT INTO sink SELECT s.id FROM h JOIN s ON h.v = s.v", "INSERT 0 50"),
            ][turn % 4];
            let answer = match turn / 4 % 2 {
                0 => looking.simple(sql, b"")?,
                _ => {
                    let request = Request { sql, ..Request::default() };
                    looking.extended(&request, Flight::OneFlight, b"")?
                }
            };
            let told = match answer.outcomes.last() {
                Some(Outcome::Rows { tag, .. } | Outcome::Done { tag }) => tag.clone(),
                Some(Outcome::Failed(error)) => error.sqlstate().to_owned(),
                other => bail!("{sql}: {other:?}"),
            };
            // The view is dropped and recreated; and a session that waits for more than one lock may be a
            // victim.
            let is_known = told == of || ["42P01", "40P01"].contains(&&*told);
            ensure!(is_known, "turn {turn}: {sql}: {told}");
            *counts.entry(told).or_insert(0_u32) += 1;
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        let turns = fill.join().expect("no panic")?;
        looked?;
        ensure!(3 < turns, "the table was filled {turns} times");
        ensure!(counts.get("SELECT 50").is_some_and(|whole| 40 < *whole), "{counts:?}");
        Ok(())
    })
}
