//! A flight of the extended protocol that fails leaves nothing, whichever side finds the error; what is
//! set LOCAL in one lasts until its Sync.

use anyhow::{Context, Result, ensure};
use tutti_embed::Cluster;
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::conversation;
use tutti_tests::gateway::TestCluster;
use tutti_tests::servers;

/// What runs before the error, each in one statement.
const WRITES: [&str; 9] = [
    "INSERT INTO spread VALUES (1001, 1)",
    "INSERT INTO spread VALUES (1002, 1)",
    "INSERT INTO spread VALUES (1003, 1), (1004, 1), (1005, 1), (1006, 1) RETURNING id",
    "INSERT INTO copied VALUES (1001, 1)",
    "INSERT INTO at_home VALUES (1001, 1)",
    "UPDATE spread SET v = 7",
    "EXECUTE prepared (1007)",
    "EXECUTE prepared_at_home (1002 + 0)",
    "EXPLAIN ANALYZE INSERT INTO at_home VALUES (1003, 1)",
];

/// What they need of the session.
const PREPARE: &str = "PREPARE prepared (int) AS INSERT INTO spread VALUES ($1, 1);
    PREPARE prepared_at_home (int) AS INSERT INTO at_home VALUES ($1, 1)";

/// Messages that fail, and what they say. Those without a text fail in the gateway alone.
const ERRORS: [(&str, &[&str]); 14] = [
    ("P |SELEC 1", &["42601"]),
    ("P |SELECT 1; SELECT 2", &["42601"]),
    ("P |UPDATE spread SET id = v RETURNING ctid", &["0A000"]),
    ("P |SELECT * FROM nowhere\nB |\nE |0", &["42P01"]),
    ("P |SET client_encoding = 'LATIN1'\nB |\nE |0", &["0A000"]),
    ("P taken|SELECT 1\nP taken|SELECT 2", &["42P05"]),
    ("B |nowhere", &["26000"]),
    ("E nowhere|0", &["34000"]),
    ("D S nowhere", &["26000"]),
    ("D P nowhere", &["34000"]),
    ("P |SELECT v FROM spread WHERE id = $1\nB |\nE |0", &["08P01"]),
    ("P |SELECT v FROM spread WHERE id = $1\nB ||x\nE |0", &["22P02"]),
    ("P |SAVEPOINT s\nB |\nE |0", &["25P01"]),
    ("P |SELECT 1 / 0\nB |\nE |0", &["22012"]),
];

const COUNT: &str = "SELECT (SELECT count(*) FROM spread WHERE 1000 < id OR v = 7) \
     + (SELECT count(*) FROM copied WHERE 1000 < id) + (SELECT count(*) FROM at_home)";

fn cluster() -> Result<TestCluster> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for statement in [
        "CREATE TABLE spread (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)",
        "CREATE TABLE copied (id int PRIMARY KEY, v int) DISTRIBUTE BY REPLICATED",
        "CREATE TABLE at_home (id int PRIMARY KEY, v int) DISTRIBUTE BY HOME",
        "CREATE TABLE dealt (id int) DISTRIBUTE BY ROUND ROBIN",
        "INSERT INTO dealt SELECT generate_series(1, 20)",
        "INSERT INTO spread SELECT g, 0 FROM generate_series(1, 20) g",
        "INSERT INTO copied SELECT g, 0 FROM generate_series(1, 20) g",
    ] {
        client.query(statement)?;
    }
    Ok(cluster)
}

/// One PostgreSQL with the table that is compared.
fn one_server() -> Result<(Cluster, Endpoint)> {
    let plain = servers::start(1)?;
    let endpoint = servers::endpoint(&plain, 0);
    let mut client = Client::connect(&endpoint)?;
    client.query("CREATE TABLE spread (id int PRIMARY KEY, v int)")?;
    client.query("CREATE TABLE dealt (id int)")?;
    client.query("INSERT INTO dealt SELECT generate_series(1, 20)")?;
    client.query("INSERT INTO spread SELECT g, 0 FROM generate_series(1, 20) g")?;
    Ok((plain, endpoint))
}

#[test]
fn a_flight_that_fails_leaves_nothing() -> Result<()> {
    let cluster = cluster()?;
    let mut looker = Client::connect(&cluster.endpoint())?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query(PREPARE)?;
    let flights = (0..WRITES.len()).flat_map(|first| {
        (0..WRITES.len()).flat_map(move |second| [vec![first], vec![first, second]])
    });
    let mut flights: Vec<_> = flights.collect();
    flights.sort();
    flights.dedup();
    for (index, writes) in flights.iter().enumerate() {
        // The same row twice is an error of its own.
        if writes.len() == 2 && writes[0] == writes[1] {
            continue;
        }
        for (turn, (error, expected)) in ERRORS.iter().enumerate() {
            // With answers asked for before the end, and all at the end.
            let flush = if (index + turn) % 2 == 0 { "H\n--\n" } else { "" };
            let mut text = String::new();
            for write in writes {
                text.push_str(&format!("P |{}\nB |\nE |0\n{flush}", WRITES[*write]));
            }
            // What follows the error is skipped.
            text.push_str(&format!("{error}\nP |{}\nB |\nE |0\nS", WRITES[0]));
            let said = conversation::hold(&mut client, &text)
                .with_context(|| format!("the session is lost\n{text}"))?;
            let errors: Vec<_> =
                said.iter().filter_map(|line| line.strip_prefix("Error ")).collect();
            ensure!(errors == *expected, "{errors:?}\n{text}\n{said:#?}");
            ensure!(said.last().is_some_and(|last| last == "ReadyForQuery I"), "{said:#?}");
            let left = looker.value(COUNT)?;
            ensure!(left == "0", "{left} rows are left of\n{text}\n{said:#?}");
            // Between two flights nothing is in the way, and named statements stay.
            conversation::hold(&mut client, "C S taken\nS")?;
            ensure!(client.value("SELECT 5")? == "5");
        }
    }
    Ok(())
}

#[test]
fn a_client_that_leaves_before_its_sync_leaves_nothing() -> Result<()> {
    let cluster = cluster()?;
    let mut looker = Client::connect(&cluster.endpoint())?;
    for write in WRITES {
        let mut client = Client::connect(&cluster.endpoint())?;
        client.query(PREPARE)?;
        // The answer to the read says that the write before it has run.
        let text = format!("P |{write}\nB |\nE |0\nH");
        conversation::hold(&mut client, &text)?;
        while client.receive()?.tag() != b'C' {}
        drop(client);
        std::thread::sleep(std::time::Duration::from_millis(100));
        ensure!(looker.value(COUNT)? == "0", "{write}");
    }
    Ok(())
}

/// What is said of flights and strings with transaction commands in them.
const CONVERSATIONS: [&str; 46] = [
    "P |SELECT set_config('search_path', 'pg_catalog', true)\nB |\nE |0\nP |SELECT current_setting('search_path')\nB |\nE |0\nP |SELECT v FROM spread\nB |\nE |0\nS\n--\nQ SHOW search_path",
    "P |SELECT set_config('a.b', 'x', true)\nB |\nE |0\nP |SELECT current_setting('a.b', true)\nB |\nE |0\nP |SELECT count(*) FROM spread WHERE current_setting('a.b', true) = 'x'\nB |\nE |0\nS\n--\nQ SELECT current_setting('a.b', true)",
    "P |SET TRANSACTION READ ONLY\nB |\nE |0\nP |INSERT INTO spread VALUES (1001, 1)\nB |\nE |0\nS",
    "P |SET LOCAL work_mem = '123kB'\nB |\nE |0\nP |SHOW work_mem\nB |\nE |0\nS\n--\nQ SHOW work_mem",
    "P |SET TRANSACTION ISOLATION LEVEL SERIALIZABLE\nB |\nE |0\nP |SHOW transaction_isolation\nB |\nE |0\nS\n--\nQ SHOW transaction_isolation",
    "P |SAVEPOINT s\nB |\nE |0\nS\n--\nQ SELECT 1",
    "Q SELECT 1; SAVEPOINT s\n--\nQ SELECT 2; ROLLBACK TO SAVEPOINT s; SELECT 3\n--\nQ SELECT 4; RELEASE s",
    "Q SET TRANSACTION READ ONLY; INSERT INTO spread VALUES (1001, 1), (1002, 1), (1003, 1), (1004, 1)",
    "Q SET TRANSACTION READ ONLY; SELECT v FROM spread WHERE id = 1\n--\nQ INSERT INTO spread VALUES (1001, 1)\n--\nQ DELETE FROM spread WHERE id > 1000",
    "Q SET LOCAL work_mem = '123kB'; SHOW work_mem\n--\nQ SHOW work_mem",
    "P |BEGIN\nB |\nE |0\nP |SET TRANSACTION READ ONLY\nB |\nE |0\nS\n--\nQ INSERT INTO spread VALUES (1001, 1)\n--\nQ ROLLBACK",
    "P |SELECT 1\nB |\nE |0\nP |BEGIN ISOLATION LEVEL SERIALIZABLE\nB |\nE |0\nS\n--\nQ ROLLBACK",
    "Q SELECT 1; BEGIN READ ONLY\n--\nQ INSERT INTO spread VALUES (1001, 1)\n--\nQ ROLLBACK",
    "Q BEGIN; SELECT 1; COMMIT AND CHAIN\n--\nQ SHOW transaction_read_only\n--\nQ ROLLBACK",
    "Q BEGIN ISOLATION LEVEL REPEATABLE READ\n--\nQ LOCK TABLE spread\n--\nQ SELECT count(*) FROM spread\n--\nQ COMMIT",
    "P |BEGIN ISOLATION LEVEL SERIALIZABLE\nB |\nE |0\nP |LOCK TABLE spread\nB |\nE |0\nS\n--\nQ SELECT count(*) FROM spread\n--\nQ COMMIT",
    "P |DELETE FROM spread WHERE id = 1\nB |\nE |0\nP |DECLARE cu CURSOR FOR SELECT 1\nB |\nE |0\nS\n--\nQ SELECT count(*) FROM spread",
    "P |DELETE FROM spread\nB |\nE |0\nP |LOCK TABLE spread\nB |\nE |0\nS\n--\nQ SELECT count(*) FROM spread",
    "P |SET LOCAL work_mem = '1MB'\nB |\nE |0\nQ LOCK TABLE spread\nS\n--\nQ SELECT 1",
    "P |UPDATE spread SET v = 1\nB |\nE |0\nQ DECLARE cu CURSOR FOR SELECT 1\nS\n--\nQ SELECT sum(v) FROM spread",
    "Q SELECT 1; LOCK TABLE spread; DECLARE cu CURSOR FOR SELECT 2; FETCH cu",
    "P |SELECT count(*) FROM spread\nB |\nE |0\nP |BEGIN ISOLATION LEVEL REPEATABLE READ\nB |\nE |0\nS\n--\nQ ROLLBACK",
    "P |SELECT count(*) FROM spread\nB |\nE |0\nP |BEGIN\nB |\nE |0\nS\n--\nQ ROLLBACK",
    "P |COMMIT\nB |\nE |0\nE |0\nS",
    "P |DECLARE h CURSOR WITH HOLD FOR SELECT id FROM spread ORDER BY id\nB |\nE |0\nP |SELECT 1 / 0\nB |\nE |0\nS\n--\nQ DECLARE h CURSOR WITH HOLD FOR SELECT id FROM spread ORDER BY id\n--\nQ FETCH h",
    "P |DECLARE h CURSOR WITH HOLD FOR SELECT id FROM spread ORDER BY id\nB |\nE |0\nS\n--\nP |SELECT 1 / 0\nB |\nE |0\nS\n--\nQ FETCH h\n--\nQ BEGIN; ROLLBACK; FETCH h",
    "Q DECLARE h CURSOR WITH HOLD FOR SELECT id FROM spread ORDER BY id; SELECT 1 / 0\n--\nQ FETCH h\n--\nQ DECLARE h CURSOR WITH HOLD FOR SELECT 7\n--\nQ FETCH h",
    "Q BEGIN; SAVEPOINT a; DECLARE h CURSOR WITH HOLD FOR SELECT 1; SAVEPOINT b; DECLARE g CURSOR FOR SELECT 2; RELEASE a; SAVEPOINT c; DECLARE i CURSOR FOR SELECT 3; ROLLBACK TO c\n--\nQ FETCH h\n--\nQ FETCH g\n--\nQ DECLARE i CURSOR FOR SELECT 4\n--\nQ COMMIT\n--\nQ FETCH h\n--\nQ FETCH g",
    "Q BEGIN; SAVEPOINT a; DECLARE h CURSOR WITH HOLD FOR SELECT 1; ROLLBACK TO a; DECLARE h CURSOR WITH HOLD FOR SELECT 2; FETCH h; COMMIT\n--\nQ CLOSE h\n--\nQ FETCH h",
    "Q BEGIN; INSERT INTO late VALUES (2, 1); DECLARE h CURSOR WITH HOLD FOR SELECT 1\n--\nQ COMMIT\n--\nQ FETCH h\n--\nQ DECLARE h CURSOR WITH HOLD FOR SELECT 2\n--\nQ FETCH h",
    "Q DECLARE h CURSOR WITH HOLD FOR SELECT id FROM dealt ORDER BY id\n--\nP |SELECT 1 / 0\nB |\nE |0\nS\n--\nQ FETCH h\n--\nQ BEGIN; SELECT 1 / 0\n--\nQ ROLLBACK\n--\nQ FETCH h",
    "P |DECLARE h CURSOR WITH HOLD FOR SELECT id FROM dealt ORDER BY id\nB |\nE |0\nS\n--\nQ BEGIN; SELECT 1 / 0\n--\nP |ROLLBACK\nB |\nE |0\nS\n--\nP |SELECT 1 / (id - id) FROM spread\nB |\nE |0\nS\n--\nQ FETCH h",
    "Q BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT id FROM dealt ORDER BY id; COMMIT\n--\nP |SELECT 1 / 0\nB |\nE |0\nS\n--\nQ FETCH h\n--\nQ SELECT 1; SELECT 1 / 0\n--\nQ FETCH h",
    "Q BEGIN\n--\nP |SELECT id FROM spread WHERE id = 1\nB a|\nP |SELECT 1 AS one\nB b|\nP |SELECT id FROM spread ORDER BY id\nB c|\nE c|1\nS\n--\nQ CLOSE ALL\n--\nE b|0\nS\n--\nQ ROLLBACK",
    "Q BEGIN\n--\nP |SELECT id FROM spread WHERE id = 1\nB a|\nP |SELECT id FROM spread ORDER BY id\nB c|\nS\n--\nQ CLOSE ALL\n--\nP |SELECT 2 AS two\nB a|\nB c|\nE a|0\nE c|0\nS\n--\nQ COMMIT",
    "Q BEGIN\n--\nP |SELECT id FROM spread WHERE id = 1\nB a|\nP |CLOSE ALL\nB z|\nE z|0\nP |SELECT 2 AS two\nB a|\nE a|0\nE z|0\nS\n--\nQ ROLLBACK",
    "Q BEGIN\n--\nP |SELECT id FROM spread WHERE id = 2\nB a|\nP |SELECT id FROM spread ORDER BY id\nB c|\nS\n--\nQ CLOSE a\n--\nQ CLOSE c\n--\nP |SELECT 2 AS two\nB a|\nB c|\nE a|0\nE c|0\nS\n--\nQ CLOSE a\n--\nQ CLOSE a\n--\nQ ROLLBACK",
    "Q BEGIN\n--\nP |SELECT id FROM spread WHERE id = 2\nB a|\nP |SELECT id FROM spread WHERE id = 3\nB b|\nS\n--\nQ FETCH a\n--\nQ FETCH b\n--\nQ ROLLBACK",
    "P |ROLLBACK\nB |\nE |0\nE |0\nS",
    "P |BEGIN\nB |\nE |0\nP |SELECT 1 / (v - v) FROM spread WHERE id = 1\nB |\nE |0\nS\n--\nE |0\nS\n--\nQ ROLLBACK",
    "P |BEGIN\nB |\nE |0\nP |SELECT 1 / (v - v) FROM spread WHERE id = 1\nB |\nE |0\nS\n--\nQ SELECT 1\n--\nE |0\nS\n--\nQ ROLLBACK",
    "P |SET CONSTRAINTS ALL IMMEDIATE\nB |\nE |0\nP |INSERT INTO late VALUES (2, 1)\nB |\nE |0\nP |SELECT 1\nB |\nE |0\nS\n--\nQ SELECT count(*) FROM late",
    "P |SET CONSTRAINTS ALL IMMEDIATE\nB |\nE |0\nS",
    "Q SET default_transaction_isolation = 'repeatable read'\n--\nP |SELECT v FROM spread WHERE id = 1\nB |\nE |0\nP |SELECT count(*) FROM spread\nB |\nE |0\nP |SELECT 1\nB |\nE |0\nS\n--\nQ SELECT 1",
    "Q SET default_transaction_isolation = 'repeatable read'\n--\nP |SELECT 1\nB |\nE |0\nH\n--\nP |SELECT count(*) FROM spread\nB |\nE |0\nS\n--\nQ SELECT 1",
    "Q SET default_transaction_isolation = 'serializable'\n--\nP |UPDATE spread SET v = 2 WHERE id = 1\nB |\nE |0\nP |SELECT sum(v) FROM spread\nB |\nE |0\nS\n--\nQ SELECT sum(v) FROM spread",
];

/// What a statement changes of the session, and how to see it.
const OF_THE_SESSION: [(&str, &str); 12] = [
    ("SET work_mem = '10MB'", "SHOW work_mem"),
    ("RESET work_mem", "SHOW work_mem"),
    ("RESET ALL", "SHOW work_mem"),
    ("SELECT set_config('work_mem', '10MB', false)", "SHOW work_mem"),
    ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SHOW default_transaction_read_only"),
    ("SET search_path = elsewhere", "SHOW search_path"),
    ("SET ROLE test_lowly", "SELECT current_user"),
    ("SET SESSION AUTHORIZATION test_lowly", "SELECT session_user"),
    ("CREATE TEMP TABLE tt (id int)", "SELECT count(*) FROM pg_class WHERE relname = 'tt'"),
    ("LISTEN channel", "SELECT count(*) FROM pg_listening_channels()"),
    ("DECLARE held CURSOR WITH HOLD FOR SELECT 1", "SELECT count(*) FROM pg_cursors"),
    ("SET work_mem = '11MB'", "SELECT v FROM spread WHERE id = 7"),
];

#[test]
fn a_flight_that_fails_leaves_the_session_as_it_was() -> Result<()> {
    let cluster = cluster()?;
    let (_plain, endpoint) = one_server()?;
    for endpoint in [&endpoint, &cluster.endpoint()] {
        // (A role that may not read a table of several nodes is told at Execute, not at Bind.)
        Client::connect(endpoint)?
            .query("CREATE ROLE test_lowly; GRANT SELECT ON spread TO test_lowly")?;
    }
    let seconds = [
        "SELECT 1 / 0",
        "SELECT 1 / (id - id) FROM spread",
        "SELECT * FROM nowhere",
        "SELEC",
        "SELECT 1",
    ];
    for (first, look) in OF_THE_SESSION {
        for second in seconds {
            let text = format!(
                "Q SET work_mem = '9MB'\n--\nP |{first}\nB |\nE |0\nP |{second}\nB |\nE |0\nS\n--\nQ {look}"
            );
            let expected = conversation::hold(&mut Client::connect(&endpoint)?, &text)?;
            let found = conversation::hold(&mut Client::connect(&cluster.endpoint())?, &text)?;
            ensure!(expected == found, "{text}\nexpected {expected:#?}\nfound {found:#?}");
        }
    }
    Ok(())
}

#[test]
fn flights_and_strings_hear_what_postgresql_says() -> Result<()> {
    let cluster = cluster()?;
    let (_plain, endpoint) = one_server()?;
    let mut maker = Client::connect(&endpoint)?;
    let late = "CREATE TABLE late (id int PRIMARY KEY, v int UNIQUE DEFERRABLE INITIALLY DEFERRED)";
    maker.query(late)?;
    let mut here = Client::connect(&cluster.endpoint())?;
    here.query(&format!("{late} DISTRIBUTE BY HOME"))?;
    for client in [&mut maker, &mut here] {
        client.query("INSERT INTO late VALUES (1, 1)")?;
    }
    for text in CONVERSATIONS {
        let expected = conversation::hold(&mut Client::connect(&endpoint)?, text)?;
        let found = conversation::hold(&mut Client::connect(&cluster.endpoint())?, text)?;
        ensure!(expected == found, "{text}\nexpected {expected:#?}\nfound {found:#?}");
    }
    Ok(())
}

/// Names mean what was set just before them, and what is set takes no snapshot: the transaction may still say
/// what kind it is.
#[test]
fn what_is_set_first_decides_names_and_takes_no_snapshot() -> Result<()> {
    const SETS: [&str; 8] = [
        "SET search_path = elsewhere",
        "SET LOCAL search_path = elsewhere",
        "SET ROLE test_lowly",
        "SET SESSION AUTHORIZATION test_lowly",
        "RESET ALL",
        "RESET search_path",
        "SET default_transaction_isolation = 'serializable'",
        "SELECT set_config('search_path', 'elsewhere', true)",
    ];
    const MODES: [&str; 3] = [
        "ISOLATION LEVEL REPEATABLE READ",
        "ISOLATION LEVEL SERIALIZABLE, READ ONLY",
        "READ WRITE",
    ];
    // $S: what sets, $M: modes.
    const WAYS: [&str; 8] = [
        "Q $S; BEGIN $M; SELECT count(*) FROM spread; SHOW transaction_isolation; COMMIT",
        "Q BEGIN; $S; SET TRANSACTION $M; SELECT count(*) FROM spread; COMMIT",
        "Q BEGIN\n--\nQ $S\n--\nQ SET TRANSACTION $M\n--\nQ SELECT count(*) FROM spread\n--\nQ COMMIT",
        "P |$S\nB |\nE |0\nP |BEGIN $M\nB |\nE |0\nP |SELECT count(*) FROM spread\nB |\nE |0\nS\n--\nQ COMMIT",
        "P |BEGIN\nB |\nE |0\nP |$S\nB |\nE |0\nP |SET TRANSACTION $M\nB |\nE |0\nP |SHOW transaction_isolation\nB |\nE |0\nP |SELECT count(*) FROM spread\nB |\nE |0\nS\n--\nQ COMMIT",
        "P a|SELECT count(*) FROM spread\nS\n--\nP |BEGIN\nB |\nE |0\nP |$S\nB |\nE |0\nP |SET TRANSACTION $M\nB |\nE |0\nP |SHOW work_mem\nB |\nE |0\nB |a\nE |0\nS\n--\nQ ROLLBACK",
        "Q BEGIN; $S; SAVEPOINT s; SELECT count(*) FROM spread; ROLLBACK TO s; SELECT count(*) FROM spread; COMMIT; SELECT count(*) FROM spread",
        "Q BEGIN\n--\nQ $S\n--\nQ ROLLBACK\n--\nQ SELECT count(*) FROM spread; SHOW transaction_isolation",
    ];
    let cluster = cluster()?;
    let (_plain, endpoint) = one_server()?;
    for (endpoint, by) in [(&endpoint, ""), (&cluster.endpoint(), " DISTRIBUTE BY HASH (id)")] {
        Client::connect(endpoint)?.query(&format!(
            "CREATE ROLE test_lowly; CREATE SCHEMA elsewhere; CREATE SCHEMA test_lowly;
             CREATE TABLE elsewhere.spread (id int PRIMARY KEY, v int){by};
             CREATE TABLE test_lowly.spread (id int PRIMARY KEY, v int){by};
             INSERT INTO elsewhere.spread SELECT g, 0 FROM generate_series(1, 7) g;
             INSERT INTO test_lowly.spread SELECT g, 0 FROM generate_series(1, 5) g;
             GRANT USAGE ON SCHEMA elsewhere, test_lowly TO test_lowly;
             GRANT SELECT ON spread, elsewhere.spread, test_lowly.spread TO test_lowly"
        ))?;
    }
    for sets in SETS {
        for modes in MODES {
            for way in WAYS {
                let text = way.replace("$S", sets).replace("$M", modes);
                let expected = conversation::hold(&mut Client::connect(&endpoint)?, &text)?;
                let found = conversation::hold(&mut Client::connect(&cluster.endpoint())?, &text)?;
                ensure!(expected == found, "{text}\nexpected {expected:#?}\nfound {found:#?}");
            }
        }
    }
    Ok(())
}
