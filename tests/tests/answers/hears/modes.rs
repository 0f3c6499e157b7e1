//! BEGIN in a block, SET TRANSACTION after savepoints, the wait for a safe snapshot: as PostgreSQL.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::TestCluster;
use tutti_tests::servers;

use super::{begin, ended, finish};

/// What sets modes, wherever it stands.
const MODES: [&str; 8] = [
    "BEGIN ISOLATION LEVEL SERIALIZABLE",
    "START TRANSACTION READ ONLY",
    "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "BEGIN READ WRITE",
    "SET TRANSACTION READ ONLY",
    "SET LOCAL transaction_read_only = on",
    "SET TRANSACTION READ WRITE",
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
];
/// What comes before: nothing, a query of one node, a savepoint, both.
const BEFORE: [&[&str]; 5] = [
    &[],
    &["SELECT v FROM t WHERE id = 1"],
    &["SAVEPOINT s"],
    &["SELECT v FROM t WHERE id = 1", "SAVEPOINT s"],
    &["SET TRANSACTION READ ONLY", "SAVEPOINT s"],
];
/// What comes after it.
const BEHIND: [&[&str]; 4] = [
    &[],
    &["ROLLBACK TO SAVEPOINT s"],
    &["RELEASE SAVEPOINT s"],
    &["SELECT count(*) FROM t", "ROLLBACK TO SAVEPOINT s"],
];
/// And what is seen of it.
const LOOKS: [&[&str]; 2] = [
    &[
        "SHOW transaction_isolation",
        "SHOW transaction_read_only",
        "SELECT count(*) FROM t",
        "INSERT INTO t VALUES (101, 0), (102, 0), (103, 0), (104, 0)",
    ],
    &["COMMIT AND CHAIN"],
];

fn make(endpoint: &Endpoint, by: &str) -> Result<()> {
    let mut client = Client::connect(endpoint)?;
    client.query(&format!("CREATE TABLE t (id int PRIMARY KEY, v int){by}"))?;
    client.query("INSERT INTO t SELECT g, 0 FROM generate_series(1, 20) g")?;
    Ok(())
}

/// What is said to each statement of a transaction, in short.
fn said(endpoint: &Endpoint, level: &str, statements: &[&str]) -> Result<Vec<String>> {
    let mut client = Client::connect(endpoint)?;
    client.query(&format!("BEGIN ISOLATION LEVEL {level}"))?;
    let mut all = Vec::new();
    for statement in statements {
        let answer = client.simple(statement, &[])?;
        let failed =
            answer.error().map(|error| format!("{} {}", error.sqlstate(), error.message()));
        let warned: Vec<_> = answer.notices.iter().map(|notice| notice.sqlstate()).collect();
        let rows = answer.texts();
        all.push(format!(
            "{statement}: {failed:?} {warned:?} {rows:?} {}",
            char::from(answer.status)
        ));
    }
    let chained = client.simple("SHOW transaction_read_only", &[])?;
    all.push(format!("{:?}", chained.texts()));
    client.query("ROLLBACK")?;
    client.query("DELETE FROM t WHERE id > 100")?;
    Ok(all)
}

#[test]
fn modes_hold_where_postgresql_holds_them() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let plain = servers::start(1)?;
    let (gateway, plain) = (cluster.endpoint(), servers::endpoint(&plain, 0));
    make(&gateway, " DISTRIBUTE BY HASH (id)")?;
    make(&plain, "")?;
    let mut wrong = Vec::new();
    for level in ["READ COMMITTED", "SERIALIZABLE"] {
        for before in BEFORE {
            for modes in MODES {
                for behind in BEHIND {
                    for look in LOOKS {
                        let statements: Vec<_> = before
                            .iter()
                            .chain([&modes])
                            .chain(behind)
                            .chain(look)
                            .copied()
                            .collect();
                        let expected = said(&plain, level, &statements)?;
                        let found = said(&gateway, level, &statements)?;
                        if expected != found {
                            wrong.push(format!("{level}\n{expected:#?}\n{found:#?}"));
                        }
                    }
                }
            }
        }
    }
    let some = wrong.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
    ensure!(wrong.is_empty(), "{} differ, such as\n{some}", wrong.len());
    Ok(())
}

/// How a transaction begins.
const BEGINNINGS: [&str; 3] =
    ["BEGIN", "BEGIN READ ONLY", "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY, DEFERRABLE"];
/// What is said in it, and which savepoints are open when it ends.
const INSIDE: [&[&str]; 13] = [
    &[],
    &["SET TRANSACTION READ ONLY"],
    &["SET TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE"],
    &["SET LOCAL transaction_read_only = on"],
    &["SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"],
    &["SAVEPOINT a", "SET TRANSACTION READ ONLY"],
    &["SET TRANSACTION READ ONLY", "SAVEPOINT a"],
    &["SET TRANSACTION READ ONLY", "SAVEPOINT a", "RELEASE a"],
    &["SAVEPOINT a", "SET TRANSACTION READ ONLY", "SAVEPOINT b"],
    &["SAVEPOINT a", "SET TRANSACTION READ ONLY", "SAVEPOINT b", "RELEASE b"],
    &["SAVEPOINT a", "SET TRANSACTION READ ONLY", "RELEASE a"],
    &["SAVEPOINT a", "SET TRANSACTION READ ONLY", "ROLLBACK TO a"],
    &["SAVEPOINT a", "SELECT 1 / 0", "ROLLBACK TO a", "SET TRANSACTION READ ONLY"],
];
const CHAINS: [&str; 2] = ["COMMIT AND CHAIN", "ROLLBACK AND CHAIN"];

#[test]
fn what_a_chain_hands_on() -> Result<()> {
    let cluster = TestCluster::start(2)?;
    let plain = servers::start(1)?;
    let (gateway, plain) = (cluster.endpoint(), servers::endpoint(&plain, 0));
    make(&gateway, " DISTRIBUTE BY HASH (id)")?;
    make(&plain, "")?;
    let defaults = ["RESET ALL", "SET default_transaction_isolation = 'repeatable read'"];
    let failures: [&[&str]; 2] = [&[], &["SELECT 1 / (v - v) FROM t WHERE id = 1"]];
    let mut wrong = Vec::new();
    for default in defaults {
        for beginning in BEGINNINGS {
            for handed_on in [None, Some(CHAINS[0]), Some(CHAINS[1])] {
                for inside in INSIDE {
                    for failure in failures {
                        for chain in CHAINS {
                            let mut statements = vec![default, beginning];
                            statements.extend(handed_on);
                            statements.extend(inside.iter().chain(failure));
                            // And what one that fails immediately hands on.
                            statements.extend([chain, "SELECT 1 / 0", "ROLLBACK AND CHAIN"]);
                            let expected = modes_said(&plain, &statements)?;
                            let found = modes_said(&gateway, &statements)?;
                            if expected != found {
                                wrong.push(format!("{expected:#?}\n{found:#?}"));
                            }
                        }
                    }
                }
            }
        }
    }
    let some = wrong.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
    ensure!(wrong.is_empty(), "{} differ, such as\n{some}", wrong.len());
    Ok(())
}

/// The answer to each of these, and the transaction's modes after each that may have begun one.
fn modes_said(endpoint: &Endpoint, statements: &[&str]) -> Result<Vec<String>> {
    let mut client = Client::connect(endpoint)?;
    let mut all = Vec::new();
    for statement in statements {
        let answer = client.simple(statement, &[])?;
        let mut said = format!("{statement}: {}", ended(&answer));
        if statement.ends_with("CHAIN") && answer.status == b'T' {
            for name in ["isolation", "read_only", "deferrable"] {
                let shown = client.value(&format!("SHOW transaction_{name}"))?;
                said.push_str(&format!(" {shown}"));
            }
        }
        all.push(said);
    }
    Ok(all)
}

#[test]
fn the_wait_for_a_safe_snapshot_can_be_ended() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let gateway = cluster.endpoint();
    make(&gateway, " DISTRIBUTE BY HASH (id)")?;
    const DEFERRABLE: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE";
    let mut writer = Client::connect(&gateway)?;
    writer.query("BEGIN ISOLATION LEVEL SERIALIZABLE")?;
    writer.query("UPDATE t SET v = 1 WHERE id = 1")?;

    // By the client's statement_timeout, however it was set.
    for set in ["SET statement_timeout = '500ms'", "BEGIN; SET LOCAL statement_timeout = '500ms'"] {
        let mut reader = Client::connect(&gateway)?;
        reader.query(set)?;
        let begun = Instant::now();
        let answer = match set.starts_with("SET") {
            true => {
                reader.query(DEFERRABLE)?;
                reader.simple("SELECT count(*) FROM t", &[])?
            }
            false => {
                reader
                    .query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE")?;
                reader.simple("SELECT count(*) FROM t", &[])?
            }
        };
        let error = answer.error().expect("it waits in vain");
        ensure!(error.sqlstate() == "57014" && error.message().contains("timeout"), "{error:?}");
        ensure!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        reader.query("ROLLBACK")?;
    }

    // By a cancel request, from outside and by a function.
    let mut other = Client::connect(&gateway)?;
    for _ in 0..2 {
        let mut reader = Client::connect(&gateway)?;
        let number = reader.process_id;
        reader.query(DEFERRABLE)?;
        let waiting = begin(reader, "SELECT count(*) FROM t");
        ensure!(!waiting.is_finished());
        other.query(&format!("SELECT pg_cancel_backend({number})"))?;
        let (mut reader, answer) = finish(waiting)?;
        let error = answer.error().expect("it was cancelled");
        ensure!(error.sqlstate() == "57014" && error.message().contains("user"), "{error:?}");
        reader.query("ROLLBACK")?;
    }

    // And it goes on when the writer has ended.
    let mut reader = Client::connect(&gateway)?;
    reader.query(DEFERRABLE)?;
    let waiting = begin(reader, "SELECT sum(v) FROM t");
    ensure!(!waiting.is_finished());
    thread::sleep(Duration::from_millis(200));
    writer.query("COMMIT")?;
    let (_, answer) = finish(waiting)?;
    ensure!(answer.texts() == [[Some("1".to_owned())]], "{answer}");
    Ok(())
}
