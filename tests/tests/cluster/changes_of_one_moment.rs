//! What a statement changes in a READ COMMITTED block, by rows that other nodes have, is of the moment at which these
//! were read: beside transactions that change both, it either sees them whole or is told to try again.
//!
//! Owns: that no partner is missed and none invented, also by what is sent otherwise than by itself. Sums, in blocks and
//! outside: `default_isolation.rs`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tutti_tests::answer::Outcome;
use tutti_tests::client::{Client, Endpoint, Flight, Request};
use tutti_tests::gateway::TestCluster;

/// Where the rows are that are changed, each of which has its partner in `partners`.
const CHANGED: [(&str, &str); 3] =
    [("spread", "HASH (id)"), ("at_home", "HOME"), ("copies", "REPLICATED")];

/// Pairs come and go, each whole.
fn change_pairs(endpoint: &Endpoint, table: &str, stop: Instant) -> Result<usize> {
    let mut client = Client::connect(endpoint)?;
    let mut changed = 0;
    let mut id = 1_000_usize;
    while Instant::now() < stop {
        id += 1;
        let gone = id - 3;
        for statements in [
            [
                format!("INSERT INTO {table} VALUES ({id}, 1)"),
                format!("INSERT INTO partners VALUES (default, {id})"),
            ],
            [
                format!("DELETE FROM {table} WHERE id = {gone}"),
                format!("DELETE FROM partners WHERE of = {gone}"),
            ],
        ] {
            client.query("BEGIN")?;
            let done = statements.iter().try_for_each(|sql| {
                // As drivers and PL/pgSQL do it: rows are of subtransactions.
                client.query("SAVEPOINT one")?;
                client.query(sql)?;
                client.query("RELEASE one").map(drop)
            });
            match done {
                Ok(()) => changed += 1,
                Err(_) => drop(client.query("ROLLBACK")?),
            }
            client.query("COMMIT")?;
        }
    }
    Ok(changed)
}

/// Runs `sql` in a block; what it returned, or `None` if it was told to try again.
fn in_block(client: &mut Client, sql: &str) -> Result<Option<Vec<Vec<Option<String>>>>> {
    client.query("BEGIN")?;
    let answer = client.simple(sql, b"")?;
    client.query("ROLLBACK")?;
    match answer.error() {
        None => Ok(Some(answer.texts())),
        Some(error) if error.sqlstate() == "40001" => Ok(None),
        Some(error) => anyhow::bail!("{sql}: {} {}", error.sqlstate(), error.message()),
    }
}

#[test]
fn no_pair_is_seen_in_part() -> Result<()> {
    const RUN: Duration = Duration::from_secs(4);
    let cluster = TestCluster::start(3)?;
    let endpoint = cluster.endpoint();
    let mut owner = Client::connect(&endpoint)?;
    owner.query(
        "CREATE TABLE partners (number bigint GENERATED ALWAYS AS IDENTITY, of int) DISTRIBUTE BY HASH (number)",
    )?;
    for (table, placed) in CHANGED {
        owner.query(&format!("CREATE TABLE {table} (id int, n int) DISTRIBUTE BY {placed}"))?;
        owner.query("TRUNCATE partners")?;
        owner.query(&format!("INSERT INTO {table} SELECT g, 1 FROM generate_series(1, 50) g"))?;
        owner.query("INSERT INTO partners (of) SELECT g FROM generate_series(1, 50) g")?;
        let stop = Instant::now() + RUN;
        let changer = {
            let endpoint = endpoint.clone();
            std::thread::spawn(move || change_pairs(&endpoint, table, stop))
        };
        let without = format!("NOT EXISTS (SELECT FROM partners p WHERE p.of = {table}.id)");
        while Instant::now() < stop {
            for sql in [
                format!("DELETE FROM {table} WHERE {without} RETURNING id"),
                format!("UPDATE {table} SET n = 2 WHERE {without} RETURNING id"),
            ] {
                let rows = in_block(&mut owner, &sql)?.unwrap_or_default();
                ensure!(rows.is_empty(), "{sql}: {rows:?} have partners");
            }
        }
        let changed = changer.join().expect("it does not panic")?;
        ensure!(0 < changed, "nothing was changed");
        let now = in_block(&mut owner, &format!("DELETE FROM {table} WHERE {without}"))?;
        ensure!(now.is_some(), "{table}: told to try again, and nobody else is there");
    }
    Ok(())
}

/// Statements that find rows without partners, of which there are none at any moment.
const WITHOUT: [&str; 5] = [
    "SELECT id FROM spread WHERE NOT EXISTS (SELECT FROM partners p WHERE p.of = spread.id)",
    "SELECT s.id FROM spread s LEFT JOIN partners p ON p.of = s.id WHERE p.of IS NULL",
    "SELECT count(*) FROM spread HAVING count(*) <> (SELECT count(*) FROM partners)",
    "SELECT id FROM spread WHERE id NOT IN (SELECT of FROM partners)",
    "SELECT WHERE (SELECT count(*) FROM spread) <> (SELECT count(*) FROM partners)",
];
/// The same by what is deleted.
const DELETES: [&str; 3] = [
    "COPY (DELETE FROM spread WHERE NOT EXISTS (SELECT FROM partners p WHERE p.of = spread.id) RETURNING id) TO STDOUT",
    "WITH d AS (DELETE FROM spread WHERE NOT EXISTS (SELECT FROM partners p WHERE p.of = spread.id) RETURNING id)
        SELECT id FROM d",
    "WITH d AS (DELETE FROM spread WHERE NOT EXISTS (SELECT FROM partners p WHERE p.of = spread.id) RETURNING id)
        INSERT INTO gone SELECT id FROM d RETURNING id",
];

/// A statement whose Execute is not followed by Sync is part of a transaction, for what follows may fail; a cursor that is
/// held is one, too.
#[test]
fn no_pair_is_seen_in_part_however_a_statement_is_sent() -> Result<()> {
    const RUN: Duration = Duration::from_secs(6);
    let cluster = TestCluster::start(3)?;
    let endpoint = cluster.endpoint();
    let mut owner = Client::connect(&endpoint)?;
    owner.query(
        "CREATE TABLE partners (number bigint GENERATED ALWAYS AS IDENTITY, of int) DISTRIBUTE BY HASH (number)",
    )?;
    owner.query("CREATE TABLE spread (id int, n int) DISTRIBUTE BY HASH (id)")?;
    owner.query("CREATE TABLE gone (id int) DISTRIBUTE BY HASH (id)")?;
    owner.query("INSERT INTO spread SELECT g, 1 FROM generate_series(1, 50) g")?;
    owner.query("INSERT INTO partners (of) SELECT g FROM generate_series(1, 50) g")?;
    let stop = Instant::now() + RUN;
    let changer = {
        let endpoint = endpoint.clone();
        std::thread::spawn(move || change_pairs(&endpoint, "spread", stop))
    };
    while Instant::now() < stop {
        for sql in WITHOUT {
            for row_limit in [0, 1] {
                let request = Request { sql, types: &[], arguments: &[], row_limit };
                let found = owner.extended(&request, Flight::TwoFlights, b"")?;
                ensure!(found.error().is_none(), "{sql}: {:?}", found.error());
                ensure!(found.texts().is_empty(), "{sql}: {:?}", found.texts());
            }
            owner.query(&format!("DECLARE h CURSOR WITH HOLD FOR {sql}"))?;
            let held = owner.query("FETCH ALL FROM h")?;
            ensure!(held.is_empty(), "held: {sql}: {held:?}");
            owner.query("CLOSE h")?;
        }
        for sql in DELETES {
            let deleted = owner.simple(sql, b"")?;
            match deleted.error() {
                None => (),
                Some(error) if error.sqlstate() == "40001" => continue,
                Some(error) => anyhow::bail!("{sql}: {} {}", error.sqlstate(), error.message()),
            }
            let data = deleted
                .outcomes
                .iter()
                .any(|of| matches!(of, Outcome::CopyOut { data, .. } if !data.is_empty()));
            ensure!(!data && deleted.texts().is_empty(), "{sql}: {:?}", deleted.outcomes);
        }
    }
    let changed = changer.join().expect("it does not panic")?;
    ensure!(0 < changed, "nothing was changed");
    Ok(())
}

#[test]
fn a_merge_in_a_block_inserts_no_row_that_is_there() -> Result<()> {
    const RUN: Duration = Duration::from_secs(4);
    let cluster = TestCluster::start(3)?;
    let endpoint = cluster.endpoint();
    let mut owner = Client::connect(&endpoint)?;
    owner.query(
        "CREATE TABLE partners (number bigint GENERATED ALWAYS AS IDENTITY, of int) DISTRIBUTE BY HASH (number)",
    )?;
    owner.query("CREATE TABLE spread (id int, n int) DISTRIBUTE BY HASH (id)")?;
    let stop = Instant::now() + RUN;
    let changer = {
        let endpoint = endpoint.clone();
        std::thread::spawn(move || change_pairs(&endpoint, "spread", stop))
    };
    while Instant::now() < stop {
        owner.query("BEGIN")?;
        let merged = owner.simple(
            "MERGE INTO spread s USING (SELECT DISTINCT of FROM partners) p ON s.id = p.of
                WHEN NOT MATCHED THEN INSERT VALUES (p.of, -1)
                WHEN MATCHED THEN UPDATE SET n = s.n + 1",
            b"",
        )?;
        if merged.error().is_none() {
            // One that was deleted meanwhile is inserted, as on one server.
            let twice = "SELECT id FROM spread GROUP BY id HAVING 1 < count(*)";
            let rows = owner.query(twice).context("after a MERGE")?;
            ensure!(rows.is_empty(), "inserted beside their like: {rows:?}");
        }
        owner.query("ROLLBACK")?;
    }
    let changed = changer.join().expect("it does not panic")?;
    ensure!(0 < changed, "nothing was changed");
    Ok(())
}

/// What the transaction has written itself, in whatever subtransaction, is no reason to try again; and one that waits for
/// a row and then finds it changed goes on, as on one server.
#[test]
fn own_rows_and_rows_that_were_waited_for_are_changed() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let endpoint = cluster.endpoint();
    let mut owner = Client::connect(&endpoint)?;
    owner.query("CREATE TABLE spread (id int, n int) DISTRIBUTE BY HASH (id)")?;
    owner.query("CREATE TABLE others (id int, of int) DISTRIBUTE BY HASH (id)")?;
    owner.query("INSERT INTO spread SELECT g, 0 FROM generate_series(1, 20) g")?;
    owner.query("INSERT INTO others SELECT g + 100, g FROM generate_series(1, 20) g")?;
    let add = "UPDATE spread s SET n = s.n + 1 FROM others o WHERE o.of = s.id AND o.of <= 10";
    owner.query("BEGIN")?;
    owner.query("UPDATE spread SET n = 10 WHERE id = 1")?;
    owner.query("SAVEPOINT a")?;
    owner.query("UPDATE spread SET n = 20 WHERE id = 2")?;
    owner.query("SAVEPOINT b")?;
    owner.query("INSERT INTO spread VALUES (3, 30)")?;
    owner.query("RELEASE a")?;
    owner.query(add)?;
    owner.query(add)?;
    owner.query("COMMIT")?;
    ensure!(owner.value("SELECT sum(n) FROM spread")? == (60 + 11 * 2).to_string());
    let mut other = Client::connect(&endpoint)?;
    other.query("BEGIN")?;
    other.query("UPDATE spread SET n = 1000 WHERE id = 5")?;
    let waits = std::thread::spawn(move || -> Result<Client> {
        owner.query("BEGIN")?;
        owner.query(add)?;
        owner.query("COMMIT")?;
        Ok(owner)
    });
    ensure!(cluster.comes_to_wait_for_a_lock(Duration::from_secs(60))?, "nothing waits");
    other.query("COMMIT")?;
    let mut owner = waits.join().expect("it does not panic")?;
    ensure!(owner.value("SELECT n FROM spread WHERE id = 5")? == "1001");
    Ok(())
}

/// A view's rows have no versions that could be asked: in a block its changes are refused, and otherwise they are made.
#[test]
fn through_a_view_rows_are_changed_outside_of_blocks() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    owner.query("CREATE TABLE spread (id int, n int) DISTRIBUTE BY HASH (id)")?;
    owner.query("CREATE TABLE others (id int, of int) DISTRIBUTE BY HASH (id)")?;
    owner.query("INSERT INTO spread SELECT g, 0 FROM generate_series(1, 20) g")?;
    owner.query("INSERT INTO others SELECT g + 100, g FROM generate_series(1, 20) g")?;
    owner.query("CREATE VIEW shown AS SELECT * FROM spread WHERE id < 15")?;
    let add = "UPDATE shown SET n = n + 1 FROM others o WHERE o.of = shown.id";
    for begin in ["BEGIN", "BEGIN ISOLATION LEVEL REPEATABLE READ"] {
        owner.query(begin)?;
        let answer = owner.simple(add, b"")?;
        let refused = answer.error().map(|error| error.sqlstate().to_owned());
        let expected = (begin == "BEGIN").then(|| "0A000".to_owned());
        ensure!(refused == expected, "{begin}: {refused:?}");
        owner.query("COMMIT")?;
    }
    owner.query(add)?;
    ensure!(owner.value("SELECT sum(n) FROM spread")? == (2 * 14).to_string());
    Ok(())
}
