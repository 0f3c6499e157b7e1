//! One statement on several nodes: when it fails on one the others end, whichever it is; it sees what its
//! client has seen; at every level.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tutti_tests::client::Client;
use tutti_tests::gateway::TestCluster;

use super::{begin, ended, finish, keys_by_node};

/// A statement that writes these rows, and what COPY is given.
fn forms(rows: &[i64]) -> Vec<(String, Vec<u8>)> {
    let values: Vec<_> = rows.iter().map(|id| format!("({id}, 1)")).collect();
    let list: Vec<_> = rows.iter().map(ToString::to_string).collect();
    let data: String = rows.iter().map(|id| format!("{id}\t1\n")).collect();
    let (values, list) = (values.join(", "), list.join(", "));
    vec![
        (format!("INSERT INTO t VALUES {values} RETURNING id"), Vec::new()),
        (format!("INSERT INTO t VALUES {values}"), Vec::new()),
        (format!("INSERT INTO t SELECT unnest(ARRAY[{list}]), 1 RETURNING id"), Vec::new()),
        ("COPY t FROM STDIN".to_owned(), data.into_bytes()),
    ]
}

/// Keys that are not taken yet, by node.
fn free_keys(cluster: &TestCluster) -> Result<Vec<Vec<i64>>> {
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("INSERT INTO t SELECT g, 0 FROM generate_series(1, 120) g")?;
    let keys = keys_by_node(&cluster.nodes(), "t", "id")?;
    client.query("DELETE FROM t")?;
    Ok(keys)
}

#[test]
fn when_one_node_fails_the_others_end() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)")?;
    let keys = free_keys(&cluster)?;
    for (waits, fails) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        for turn in 0..4 {
            client.query("DELETE FROM t")?;
            // On one node a row is there, on another a session is about to commit it.
            let (there, coming) = (keys[fails][0], keys[waits][0]);
            client.query(&format!("INSERT INTO t VALUES ({there}, 0)"))?;
            let mut holder = Client::connect(&cluster.endpoint())?;
            holder.query(&format!("BEGIN; INSERT INTO t VALUES ({coming}, 0)"))?;
            let rows: Vec<_> = keys.iter().map(|of| of[0]).collect();
            let (sql, data) = forms(&rows).swap_remove(turn);
            let begun = Instant::now();
            let answer = client.simple(&sql, &data)?;
            ensure!(ended(&answer) == "23505", "{sql}: {answer}");
            ensure!(
                begun.elapsed() < Duration::from_secs(5),
                "{sql} ended after {:?}",
                begun.elapsed()
            );
            // Nothing blocks any session, and nothing of it is there.
            holder.query("ROLLBACK")?;
            ensure!(client.value("SELECT count(*) FROM t")? == "1", "{sql}");
        }
    }
    Ok(())
}

#[test]
fn it_works_at_every_level_as_the_first_statement_and_later() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)")?;
    client.query("SET statement_timeout = '20s'")?;
    let keys = free_keys(&cluster)?;
    let rows: Vec<_> = keys.iter().flat_map(|of| of[..2].to_vec()).collect();
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        client.query(&format!("SET default_transaction_isolation = '{level}'"))?;
        for (sql, data) in forms(&rows) {
            for first in [None, Some(format!("SELECT v FROM t WHERE id = {}", rows[0]))] {
                for is_in_block in [true, false] {
                    if is_in_block {
                        client.query("BEGIN")?;
                    }
                    if let Some(first) = first.as_ref().filter(|_| is_in_block) {
                        client.query(first)?;
                    }
                    let answer = client.simple(&sql, &data)?;
                    ensure!(answer.error().is_none(), "{level}, {first:?}, {sql}: {answer}");
                    if is_in_block {
                        client.query("COMMIT")?;
                    }
                    ensure!(client.value("SELECT count(*) FROM t")? == "6", "{sql}");
                    client.query("DELETE FROM t")?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_copy_that_one_node_does_not_take_leaves_the_session_usable() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)")?;
    for node in cluster.nodes() {
        let mut holder = Client::connect(&node)?;
        holder.query("BEGIN; LOCK TABLE t")?;
        client.query("SET lock_timeout = '300ms'")?;
        for is_in_block in [false, true] {
            if is_in_block {
                client.query("BEGIN")?;
            }
            let answer = client.simple("COPY t FROM STDIN", b"1\t1\n2\t1\n3\t1\n4\t1\n")?;
            ensure!(ended(&answer) == "55P03", "{answer}");
            if is_in_block {
                client.query("ROLLBACK")?;
            }
            ensure!(client.value("SELECT 1")? == "1");
        }
        holder.query("ROLLBACK")?;
        ensure!(client.value("SELECT count(*) FROM t")? == "0");
    }
    Ok(())
}

#[test]
fn whoever_waits_for_a_replicated_row_is_in_no_deadlock() -> Result<()> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    const INSERT: &str = "INSERT INTO r (name) VALUES ('new') RETURNING id";
    const LOCK: &str = "SELECT * FROM r WHERE name = 'old' FOR UPDATE";
    const LOCK_BY_KEY: &str = "SELECT * FROM r WHERE id = 1 FOR UPDATE";
    for (first, second, third, told) in [
        (INSERT, INSERT, "UPDATE r SET v = 'x' WHERE name = 'new'", "23505"),
        (INSERT, INSERT, "UPDATE r SET v = 'x' WHERE id = 2", "23505"),
        (LOCK, LOCK, "UPDATE r SET v = 'x' WHERE name = 'old'", ""),
        (LOCK, LOCK, "UPDATE r SET v = 'x' WHERE id = 1", ""),
        (LOCK, "UPDATE r SET v = 'y' WHERE id = 1", "UPDATE r SET v = 'x' WHERE id = 1", ""),
        (LOCK, "UPDATE r SET v = 'y' WHERE name = 'old'", "UPDATE r SET v = 'x' WHERE id = 1", ""),
        (
            LOCK,
            "UPDATE r SET v = 'y' WHERE name = 'old'",
            "UPDATE r SET v = 'x' WHERE name = 'old'",
            "",
        ),
        (LOCK, "DELETE FROM r WHERE name = 'old'", "UPDATE r SET v = 'x' WHERE name = 'old'", ""),
        (LOCK_BY_KEY, LOCK_BY_KEY, "UPDATE r SET v = 'x' WHERE id = 1", ""),
        (
            LOCK_BY_KEY,
            "INSERT INTO r (name) VALUES ('old') ON CONFLICT DO NOTHING",
            "DELETE FROM r WHERE id = 1",
            "",
        ),
        (
            "UPDATE r SET v = 'a' WHERE id = 1",
            "UPDATE r SET v = 'b' WHERE name = 'old'",
            "UPDATE r SET v = 'c'",
            "",
        ),
        (
            "UPDATE r SET v = 'a' WHERE id = 1",
            "INSERT INTO r (name) VALUES ('old') ON CONFLICT (name) DO UPDATE SET v = 'b'",
            "UPDATE r SET v = 'c' WHERE name = 'old'",
            "",
        ),
    ] {
        client.query("DROP TABLE IF EXISTS r")?;
        client.query(
            "CREATE TABLE r (id serial PRIMARY KEY, name text UNIQUE, v text) DISTRIBUTE BY REPLICATED",
        )?;
        client.query("INSERT INTO r (name) VALUES ('old')")?;
        let mut one = Client::connect(&cluster.endpoint())?;
        let mut other = Client::connect(&cluster.endpoint())?;
        one.query("BEGIN")?;
        other.query("BEGIN")?;
        one.query(first)?;
        let waiting = begin(other, second);
        let answer = one.simple(third, &[])?;
        ensure!(answer.error().is_none(), "{first} / {second} / {third}: {answer}");
        one.query("COMMIT")?;
        let (_, answer) = finish(waiting)?;
        let found = answer.error().map_or("", |error| error.sqlstate());
        ensure!(found == told, "{first} / {second} / {third}: {answer}");
    }
    Ok(())
}
