//! A flight of the extended protocol that fails leaves nothing, whoever finds the error; what is set LOCAL
//! in one holds up to its Sync.

use anyhow::{Context, Result, ensure};
use tutti_tests::client::Client;
use tutti_tests::conversation;
use tutti_tests::gateway::TestCluster;
use tutti_tests::servers;

/// What runs before the error, each in one statement.
const WRITES: [&str; 6] = [
    "INSERT INTO spread VALUES (1001, 1)",
    "INSERT INTO spread VALUES (1002, 1)",
    "INSERT INTO spread VALUES (1003, 1), (1004, 1), (1005, 1), (1006, 1) RETURNING id",
    "INSERT INTO copied VALUES (1001, 1)",
    "INSERT INTO at_home VALUES (1001, 1)",
    "UPDATE spread SET v = 7",
];

/// Messages that fail, and what they say. Those without a text fail in the gateway alone.
const ERRORS: [(&str, &[&str]); 14] = [
    ("P |SELEC 1", &["42601"]),
    ("P |SELECT 1; SELECT 2", &["42601"]),
    ("P |MERGE INTO spread s USING copied c ON s.id = c.id WHEN MATCHED THEN DELETE", &["0A000"]),
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
        "INSERT INTO spread SELECT g, 0 FROM generate_series(1, 20) g",
        "INSERT INTO copied SELECT g, 0 FROM generate_series(1, 20) g",
    ] {
        client.query(statement)?;
    }
    Ok(cluster)
}

#[test]
fn a_flight_that_fails_leaves_nothing() -> Result<()> {
    let cluster = cluster()?;
    let mut looker = Client::connect(&cluster.endpoint())?;
    let mut client = Client::connect(&cluster.endpoint())?;
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
            // With answers asked for before the end, and all at once.
            let flush = if (index + turn) % 2 == 0 { "H\n--\n" } else { "" };
            let mut text = String::new();
            for write in writes {
                text.push_str(&format!("P |{}\nB |\nE |0\n{flush}", WRITES[*write]));
            }
            // What comes behind the error is skipped.
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
const CONVERSATIONS: [&str; 12] = [
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
];

#[test]
fn flights_and_strings_hear_what_postgresql_says() -> Result<()> {
    let cluster = cluster()?;
    let plain = servers::start(1)?;
    let endpoint = servers::endpoint(&plain, 0);
    let mut maker = Client::connect(&endpoint)?;
    maker.query("CREATE TABLE spread (id int PRIMARY KEY, v int)")?;
    maker.query("INSERT INTO spread SELECT g, 0 FROM generate_series(1, 20) g")?;
    for text in CONVERSATIONS {
        let expected = conversation::hold(&mut Client::connect(&endpoint)?, text)?;
        let found = conversation::hold(&mut Client::connect(&cluster.endpoint())?, text)?;
        ensure!(expected == found, "{text}\nexpected {expected:#?}\nfound {found:#?}");
    }
    Ok(())
}
