//! What clients' code does at COMMIT stops no one else, and does what it does on one PostgreSQL.
//!
//! What may run there (cursors WITH HOLD, deferred triggers, triggers that defer themselves again), with
//! everything for which others wait while a transaction is committed. Nothing here depends on how fast a
//! machine is: the code sleeps for far longer than any session is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tutti_gateway::Switches;
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::TestCluster;
use tutti_tests::servers;

/// How long the code sleeps, unless it is ended.
const SLEEP_S: u32 = 900;
/// No other session may wait this long.
const PATIENCE: Duration = Duration::from_secs(120);

const SETUP: &str = "
CREATE TABLE acc (id int PRIMARY KEY, v int DEFAULT 0, w int DEFAULT 0) DISTRIBUTE BY HASH (id);
INSERT INTO acc SELECT n FROM generate_series(1, 12) AS n;
CREATE TABLE rep (id int PRIMARY KEY, v int DEFAULT 0) DISTRIBUTE BY REPLICATED;
INSERT INTO rep SELECT n FROM generate_series(1, 12) AS n;
CREATE TABLE home (id int PRIMARY KEY, v int DEFAULT 0) DISTRIBUTE BY HOME;
INSERT INTO home SELECT n FROM generate_series(1, 12) AS n;
CREATE ROLE lowly LOGIN;
CREATE SCHEMA lowly AUTHORIZATION lowly";

fn setup_of_attacker() -> String {
    format!(
        "SET search_path = lowly;
CREATE TABLE mine (a int PRIMARY KEY, b int) DISTRIBUTE BY HASH (a);
INSERT INTO mine SELECT n FROM generate_series(1, 20) AS n;
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_sleep({SLEEP_S}); RETURN NULL; END $$;
CREATE TABLE dt (a int) DISTRIBUTE BY HOME;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON dt DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION slow();
CREATE TABLE rt (a int) DISTRIBUTE BY HOME;
CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.a > 0 THEN SET CONSTRAINTS ALL DEFERRED; INSERT INTO lowly.rt VALUES (NEW.a - 1);
    ELSE PERFORM pg_sleep({SLEEP_S}); END IF; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON rt DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION again()"
    )
}

/// What runs at COMMIT.
fn code() -> [(&'static str, String); 4] {
    [
        ("cursor", format!("DECLARE hc CURSOR WITH HOLD FOR SELECT pg_sleep({SLEEP_S})")),
        ("deferred trigger", "INSERT INTO dt VALUES (1)".to_owned()),
        ("trigger that defers itself", "INSERT INTO rt VALUES (1)".to_owned()),
        ("the same, many times", "INSERT INTO rt VALUES (7)".to_owned()),
    ]
}

/// For what others wait.
const WAITED_FOR: [(&str, &str, &str); 7] = [
    ("NOTIFY", "BEGIN", "UPDATE mine SET b = 1; NOTIFY zz"),
    ("temporary table", "BEGIN", "UPDATE mine SET b = 1; CREATE TEMP TABLE tt (a int)"),
    ("home table", "BEGIN", "CREATE TABLE new_home (a int) DISTRIBUTE BY HOME"),
    ("hash table", "BEGIN", "CREATE TABLE new_hash (a int) DISTRIBUTE BY HASH (a)"),
    ("moved rows", "BEGIN", "UPDATE mine SET a = a + 100"),
    ("serializable", "BEGIN ISOLATION LEVEL SERIALIZABLE", "UPDATE mine SET b = 1"),
    ("plain", "BEGIN", "UPDATE mine SET b = 1"),
];

/// What others do; each in a session of its own.
const OBSERVERS: [&str; 8] = [
    "SELECT 1",
    "SELECT v FROM acc WHERE id = 3",
    "SELECT count(*) FROM home",
    "SELECT count(*), sum(v) FROM acc",
    "UPDATE acc SET w = w + 1 WHERE id IN (1, 2, 3, 4)",
    "UPDATE rep SET v = v + 1 WHERE id = 1",
    "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT sum(v) FROM acc; COMMIT",
    "BEGIN; UPDATE home SET v = v + 1 WHERE id = 1; CREATE TABLE gone (a int); DROP TABLE gone; COMMIT",
];

fn start() -> Result<TestCluster> {
    let switches = Switches { pauses: false, ..Switches::default() };
    let cluster = TestCluster::start_with(servers::start(3)?, switches)?;
    Client::connect(&cluster.endpoint())?.query(SETUP)?;
    let mut lowly = Client::connect_as(&cluster.endpoint(), "lowly")?;
    lowly.query(&setup_of_attacker())?;
    // What is asked for before COMMIT is refused where it queues more.
    lowly.query("SELECT tutti_function('lowly.again', 'replicated')")?;
    Ok(cluster)
}

/// Whether some backend of the cluster sleeps.
fn somebody_sleeps(nodes: &mut [Client]) -> Result<bool> {
    for node in nodes {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        if node.value(sql)? != "0" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Each observer gets a few answers, a new session among them.
fn observe(endpoint: &Endpoint) -> Result<()> {
    let mut sessions = Vec::new();
    for sql in OBSERVERS {
        let endpoint = endpoint.clone();
        sessions.push(std::thread::spawn(move || -> Result<()> {
            let mut client = Client::connect(&endpoint)?;
            for _ in 0..2 {
                let begun = Instant::now();
                let answer = client.simple(sql, b"")?;
                let took = begun.elapsed();
                ensure!(took < PATIENCE, "{sql}: after {took:?}");
                // Rows of one table, changed by two: what else may go wrong is not the question.
                ensure!(
                    answer.error().is_none_or(|error| error.sqlstate().starts_with("40")),
                    "{sql}: {:?}",
                    answer.error()
                );
                client.simple("ROLLBACK", b"")?;
            }
            Ok(())
        }));
    }
    for session in sessions {
        session.join().ok().context("an observer panicked")??;
    }
    Ok(())
}

#[test]
fn nobody_waits_for_what_others_run_at_commit() -> Result<()> {
    let cluster = start()?;
    let endpoint = cluster.endpoint();
    let mut admin = Client::connect(&endpoint)?;
    let nodes: Result<Vec<_>> = cluster.nodes().iter().map(Client::connect).collect();
    let mut nodes = nodes?;
    for (code_name, code) in code() {
        for (waited_name, begin, waited_for) in WAITED_FOR {
            let what = format!("{code_name}, {waited_name}");
            let mut attacker = Client::connect_as(&endpoint, "lowly")?;
            let pid = attacker.value("SELECT pg_backend_pid()")?;
            attacker.query("SET search_path = lowly")?;
            attacker.query(&format!("{begin}; {code}; {waited_for}"))?;
            let is_over = Arc::new(AtomicBool::new(false));
            let over = is_over.clone();
            let committing = std::thread::spawn(move || {
                let answer = attacker.simple("COMMIT", b"");
                over.store(true, Ordering::Release);
                answer
            });
            while !is_over.load(Ordering::Acquire) && !somebody_sleeps(&mut nodes)? {
                std::thread::sleep(Duration::from_millis(5));
            }
            let begun = Instant::now();
            observe(&endpoint).with_context(|| what.clone())?;
            ensure!(begun.elapsed() < PATIENCE, "{what}: {:?}", begun.elapsed());
            // A session that still sleeps is in no one's way.
            while !is_over.load(Ordering::Acquire) {
                admin.query(&format!("SELECT pg_cancel_backend({pid})"))?;
                std::thread::sleep(Duration::from_millis(50));
                ensure!(begun.elapsed() < 2 * PATIENCE, "{what}: it cannot be cancelled");
            }
            let answer = committing.join().ok().context("the attacker panicked")??;
            ensure!(
                answer.error().is_some_and(|error| error.sqlstate() == "57014"),
                "{what}: {:?}",
                answer.error()
            );
            ensure!(
                admin.value("SELECT count(*) FROM lowly.mine WHERE a <= 20 AND b IS NULL")? == "20",
                "{what}: something of it was committed"
            );
        }
    }
    Ok(())
}

/// What deferred checks and triggers give that depend on each other, with what makes the gateway run them
/// before COMMIT.
#[test]
fn what_is_deferred_gives_what_it_gives_on_one_server() -> Result<()> {
    let cluster = TestCluster::start(2)?;
    let plain = servers::start(1)?;
    let mut one = Client::connect(&servers::endpoint(&plain, 0))?;
    let mut many = Client::connect(&cluster.endpoint())?;
    let tables = "
CREATE TABLE spread (id int PRIMARY KEY, v int) HASH;
INSERT INTO spread SELECT n, 0 FROM generate_series(1, 12) AS n;
CREATE TABLE c (id int PRIMARY KEY) HOME;
CREATE TABLE b (id int REFERENCES c DEFERRABLE INITIALLY DEFERRED) HOME;
CREATE TABLE a (id int) HOME;
CREATE TABLE d (id int) HOME;
CREATE TABLE u (id int UNIQUE DEFERRABLE INITIALLY DEFERRED) HOME;
CREATE TABLE told (what text, n serial) HOME;
CREATE FUNCTION a_to_b() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO b VALUES (NEW.id); INSERT INTO told VALUES ('a'); RETURN NULL; END $$;
CREATE FUNCTION d_to_c() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.id < 0 THEN RAISE EXCEPTION 'negative' USING ERRCODE = '22003'; END IF;
    RAISE NOTICE 'd: %', NEW.id; INSERT INTO c VALUES (NEW.id); INSERT INTO told VALUES ('d');
    RETURN NULL; END $$;
CREATE TABLE e (id int) HOME;
CREATE TABLE f (id int) HOME;
CREATE FUNCTION e_to_f() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO f VALUES (NEW.id); INSERT INTO told VALUES ('e' || NEW.id); RETURN NULL; END $$;
CREATE FUNCTION f_sees() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO told SELECT 'f' || NEW.id || 'of' || count(*) FROM f; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER t AFTER INSERT ON e DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION e_to_f();
CREATE CONSTRAINT TRIGGER t AFTER INSERT ON f DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION f_sees();
CREATE CONSTRAINT TRIGGER t AFTER INSERT ON a DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION a_to_b();
CREATE CONSTRAINT TRIGGER t AFTER INSERT ON d DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION d_to_c()";
    one.query(&tables.replace(" HASH;", ";").replace(" HOME;", ";"))?;
    many.query(
        &tables
            .replace(" HASH;", " DISTRIBUTE BY HASH (id);")
            .replace(" HOME;", " DISTRIBUTE BY HOME;"),
    )?;
    // Who wants triggers that queue others to run as at COMMIT says where they may run.
    for function in ["e_to_f", "f_sees"] {
        many.query(&format!("SELECT tutti_function('{function}', 'replicated')"))?;
    }
    let deferred = [
        // A check that a later trigger satisfies, and one that nothing does.
        "INSERT INTO a VALUES (1); INSERT INTO d VALUES (1)",
        "INSERT INTO a VALUES (2); INSERT INTO d VALUES (3)",
        "INSERT INTO d VALUES (4); INSERT INTO a VALUES (4)",
        "INSERT INTO b VALUES (5)",
        "INSERT INTO b VALUES (6); INSERT INTO c VALUES (6)",
        "INSERT INTO u VALUES (7), (7)",
        "INSERT INTO u VALUES (8); INSERT INTO u VALUES (8); DELETE FROM u",
        "INSERT INTO d VALUES (-1)",
        "INSERT INTO d VALUES (9), (9)",
        // A check that fails before a trigger runs that would mend it, and the other way round.
        "INSERT INTO b VALUES (10); INSERT INTO d VALUES (10)",
        "INSERT INTO d VALUES (11); INSERT INTO b VALUES (11)",
        "INSERT INTO a VALUES (12); INSERT INTO b VALUES (12); INSERT INTO d VALUES (12)",
        "INSERT INTO u VALUES (13), (13); INSERT INTO d VALUES (13)",
        // A trigger that queues another, which reads what was done.
        "INSERT INTO e VALUES (1), (2), (3)",
        "INSERT INTO f VALUES (4); INSERT INTO e VALUES (5)",
    ];
    let waited_for = [
        "UPDATE spread SET v = v + 1",
        "UPDATE spread SET v = v + 1; NOTIFY zz",
        "UPDATE spread SET v = v + 1; CREATE TEMP TABLE tt (a int) ON COMMIT DROP",
        "CREATE TABLE new_one (a int) HOME; DROP TABLE new_one",
        "UPDATE spread SET id = id + 100 WHERE id < 3; UPDATE spread SET id = id - 100 WHERE 100 < id",
    ];
    let state = "SELECT concat_ws(' ', (SELECT string_agg(what, '' ORDER BY n) FROM told),
        (SELECT count(*) FROM a), (SELECT count(*) FROM b), (SELECT count(*) FROM c),
        (SELECT count(*) FROM d), (SELECT count(*) FROM u))";
    for begin in ["BEGIN", "BEGIN ISOLATION LEVEL SERIALIZABLE"] {
        for deferred in deferred {
            for waited_for in waited_for {
                let what = format!("{begin}; {deferred}; {waited_for}");
                let mut told = Vec::new();
                for client in [&mut one, &mut many] {
                    let is_one = told.is_empty();
                    let home = if is_one { ");" } else { ") DISTRIBUTE BY HOME;" };
                    client.query(&what.replace(") HOME;", home))?;
                    let answer = client.simple("COMMIT", b"")?;
                    let error = answer.error().map(|error| error.sqlstate().to_owned());
                    client.simple("ROLLBACK", b"")?;
                    told.push((error, client.value(state)?));
                    client.query("TRUNCATE told, a, b, c, d, e, f, u")?;
                }
                ensure!(told[0] == told[1], "{what}: {:?} instead of {:?}", told[1], told[0]);
            }
        }
    }
    Ok(())
}

/// A transaction that moves rows waits for those that may be looking for them, and all sessions for the
/// commit. Code that survives a cancellation does not go on forever.
#[test]
fn code_that_heeds_no_cancellation_is_ended_where_others_wait() -> Result<()> {
    let cluster = start()?;
    let endpoint = cluster.endpoint();
    let mut mover = Client::connect_as(&endpoint, "lowly")?;
    mover.query("SET search_path = lowly")?;
    mover.query(&format!(
        "CREATE FUNCTION stubborn(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
            FOR n IN 1..{SLEEP_S} LOOP BEGIN PERFORM pg_sleep(1);
            EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; RETURN $1; END $$"
    ))?;
    let mut stubborn = Client::connect_as(&endpoint, "lowly")?;
    stubborn.query("SET search_path = lowly")?;
    let at_work = std::thread::spawn(move || {
        stubborn.simple("UPDATE mine SET b = stubborn(a) WHERE a = 5", b"")
    });
    let nodes: Result<Vec<_>> = cluster.nodes().iter().map(Client::connect).collect();
    let mut nodes = nodes?;
    while !at_work.is_finished() && !somebody_sleeps(&mut nodes)? {
        std::thread::sleep(Duration::from_millis(5));
    }
    ensure!(!at_work.is_finished(), "{:?}", at_work.join());
    mover.query("BEGIN; UPDATE mine SET a = a + 100 WHERE a = 1; COMMIT")?;
    let begun = Instant::now();
    while !at_work.is_finished() {
        ensure!(begun.elapsed() < PATIENCE, "it goes on");
        std::thread::sleep(Duration::from_millis(50));
    }
    let answer = at_work.join().ok().context("it panicked")??;
    ensure!(answer.error().is_some(), "it has ended by itself");
    ensure!(mover.value("SELECT count(*) FROM mine WHERE b IS NULL")? == "20");
    Ok(())
}
