//! EXPLAIN of what several nodes do: one tree, in every format, and run once where ANALYZE runs it.
//!
//! Owns: that its documents are documents and have the parts, that what is said to have come has come, and that a statement
//! that writes has written once, on all nodes or on none.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tutti_gateway::{Config, Switches};
use tutti_tests::client::Client;
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

/// A cluster whose gateway takes the way that moves the fewest rows.
fn start() -> Result<(TestCluster, Client)> {
    let servers = servers::start(3)?;
    let switches = Switches { check_plans: true, ..Switches::default() };
    let config = Config { switches, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE TABLE big (id int PRIMARY KEY, s int, w text) DISTRIBUTE BY HASH (id)",
        "CREATE TABLE small (id int PRIMARY KEY, name text) DISTRIBUTE BY HASH (id)",
        "CREATE TABLE every (id int PRIMARY KEY, name text) DISTRIBUTE BY REPLICATED",
        "CREATE TABLE home (id int PRIMARY KEY, n int) DISTRIBUTE BY HOME",
        "INSERT INTO big SELECT k, k % 40, 'w' || k % 3 FROM generate_series(1, 4000) k",
        "INSERT INTO small SELECT k, 'n' || k FROM generate_series(1, 40) k",
        "ANALYZE big",
        "ANALYZE small",
    ] {
        let answer = client.simple(sql, b"")?;
        ensure!(answer.error().is_none(), "{sql}\n{answer}");
    }
    Ok((cluster, client))
}

fn lines(client: &mut Client, sql: &str) -> Result<String> {
    let rows = client.query(sql)?;
    Ok(rows.into_iter().flatten().flatten().collect::<Vec<_>>().join("\n"))
}

fn plan(client: &mut Client, options: &str, sql: &str) -> Result<Value> {
    let text = lines(client, &format!("EXPLAIN ({options}, FORMAT JSON) {sql}"))?;
    let document: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    Ok(document[0]["Plan"].clone())
}

/// The steps of this kind, however deep.
fn steps<'v>(plan: &'v Value, provider: &str) -> Vec<&'v Value> {
    let below = plan["Plans"].as_array().into_iter().flatten();
    let own = (plan["Custom Plan Provider"] == provider).then_some(plan);
    own.into_iter().chain(below.flat_map(|plan| steps(plan, provider))).collect()
}

#[test]
fn every_format_is_one_tree() -> Result<()> {
    let (_cluster, mut client) = start()?;
    let join = "SELECT count(*) FROM big a FULL JOIN small b ON a.s = b.id";
    for options in ["COSTS ON", "VERBOSE, SETTINGS", "BUFFERS, ANALYZE", "ANALYZE, WAL, TIMING OFF"]
    {
        let plan = plan(&mut client, options, join)?;
        assert_eq!(plan["Node Type"], "Custom Scan", "{options}");
        assert_eq!(plan["Custom Plan Provider"], "Tutti Gather", "{options}");
        // The final step's own plan, and below it the nodes' of what is brought to it.
        assert_eq!(plan["Plans"][0]["Plans"][0]["Node Type"], "Aggregate", "{options}");
        let collects = steps(&plan, "Tutti Collect");
        ensure!(!collects.is_empty(), "{options}: {plan:#}");
        for collect in collects {
            assert_eq!(steps(collect, "Tutti Node").len(), 3, "{options}");
        }
        ensure!(plan["Description"].is_string(), "{options}");
    }
    for (format, begins) in
        [("YAML", "- Plan: \n    Node Type: \"Custom Scan\""), ("XML", "<explain xmlns=")]
    {
        let text = lines(&mut client, &format!("EXPLAIN (FORMAT {format}) {join}"))?;
        ensure!(text.starts_with(begins), "{text}");
    }
    // PostgreSQL itself reads what we call XML.
    let xml = lines(&mut client, &format!("EXPLAIN (ANALYZE, FORMAT XML) {join}"))?;
    let is_read = client.value(&format!("SELECT '{}' IS DOCUMENT", xml.replace('\'', "''")));
    ensure!(is_read? == "t");
    let one = lines(&mut client, "EXPLAIN (FORMAT JSON) SELECT * FROM big WHERE id = 7")?;
    ensure!(one.contains("\"Index Scan\"") && !one.contains("Tutti"), "{one}");
    let generic =
        client.simple(&format!("EXPLAIN (ANALYZE, ANALYZE OFF) {join}"), b"")?.to_string();
    ensure!(!generic.contains("actual"), "{generic}");
    Ok(())
}

#[test]
fn what_has_come_is_counted() -> Result<()> {
    let (_cluster, mut client) = start()?;
    let full =
        plan(&mut client, "ANALYZE", "SELECT count(*) FROM big a FULL JOIN small b ON a.s = b.id")?;
    let collects = steps(&full, "Tutti Collect");
    let rows: u64 = collects.iter().filter_map(|collect| collect["Actual Rows"].as_u64()).sum();
    assert_eq!(rows, 4040);
    ensure!(collects.iter().all(|collect| 0 < collect["Bytes"].as_u64().unwrap_or_default()));
    ensure!(collects.iter().all(|collect| collect["Actual Total Time"].is_number()));
    assert_eq!(full["Actual Rows"], 1);
    // The nodes say the same.
    let of_nodes = steps(collects[0], "Tutti Node");
    let said: u64 = of_nodes.iter().filter_map(|node| node["Actual Rows"].as_u64()).sum();
    assert_eq!(Some(said), collects[0]["Actual Rows"].as_u64());

    let parts = plan(&mut client, "ANALYZE, TIMING OFF", "SELECT s, count(*) FROM big GROUP BY s")?;
    let parts = steps(&parts, "Tutti Parts");
    assert_eq!(parts[0]["Actual Rows"], 120);
    ensure!(parts[0]["Actual Total Time"].is_null());

    let join = "SELECT b.id, s.name FROM small s JOIN big b ON s.id = b.s ORDER BY b.id LIMIT 3";
    let text = lines(
        &mut client,
        &format!("EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) {join}"),
    )?;
    ensure!(text.contains("->  Collect small from n1-n3  (actual rows=40 bytes="), "{text}");
    ensure!(text.contains("->  Parts of n1-n3  (actual rows=9 bytes="), "{text}");
    ensure!(text.contains("Node n2: as node n1 (actual rows="), "{text}");
    ensure!(!text.contains("time="), "{text}");
    let first = "SELECT count(*) FROM big WHERE s > (SELECT avg(id) FROM small)";
    let text = lines(&mut client, &format!("EXPLAIN ANALYZE {first}"))?;
    ensure!(text.contains("Chosen: first SELECT avg(id) FROM small"), "{text}");
    Ok(())
}

#[test]
fn what_writes_is_run_once_on_all_nodes() -> Result<()> {
    let (cluster, mut client) = start()?;
    for (sql, check, expected) in [
        (
            "UPDATE big SET w = w || '!' WHERE s = 3",
            "SELECT count(*) FROM big WHERE w ~ '^w.!$'",
            "100",
        ),
        ("INSERT INTO every VALUES (1, 'a'), (2, 'b')", "SELECT count(*) FROM every", "2"),
        (
            "UPDATE every SET name = name || '!'",
            "SELECT string_agg(name, ' ' ORDER BY id) FROM every",
            "a! b!",
        ),
        (
            "INSERT INTO big SELECT id + 5000, 1, 'new' FROM big WHERE id < 21 RETURNING *",
            "SELECT count(*) FROM big WHERE w = 'new'",
            "20",
        ),
        (
            "INSERT INTO big VALUES (6001, 1, 'v'), (6002, 1, 'v'), (6003, 1, 'v')",
            "SELECT count(*) FROM big WHERE w = 'v'",
            "3",
        ),
        (
            "UPDATE big SET id = id + 10000 WHERE w = 'v'",
            "SELECT min(id) FROM big WHERE w = 'v'",
            "16001",
        ),
        (
            "DELETE FROM big USING small WHERE small.id = big.s AND small.id = 5",
            "SELECT count(*) FROM big WHERE s = 5",
            "0",
        ),
        (
            "INSERT INTO home SELECT s, count(*) FROM big GROUP BY s",
            "SELECT count(*) FROM home",
            "39",
        ),
        (
            "WITH d AS (DELETE FROM big WHERE w = 'v' RETURNING id) INSERT INTO small SELECT id, 'was' FROM d",
            "SELECT count(*) FROM small",
            "43",
        ),
    ] {
        let text = lines(&mut client, &format!("EXPLAIN ANALYZE {sql}"))?;
        ensure!(text.contains("actual"), "{sql}\n{text}");
        assert_eq!(client.value(check)?, expected, "{sql}");
        let text = lines(&mut client, &format!("EXPLAIN (ANALYZE, FORMAT JSON) {sql}"));
        // Some cannot be run twice; then nothing of them has been done.
        ensure!(text.is_ok() || client.value(check)? == expected, "{sql}");
        if sql.starts_with("UPDATE every") {
            assert_eq!(client.value(check)?, "a!! b!!");
        }
    }
    for node in cluster.nodes() {
        let copy =
            Client::connect(&node)?.value("SELECT string_agg(name, ' ' ORDER BY id) FROM every")?;
        assert_eq!(copy, "a!! b!!");
    }
    // Nothing of what is undone stays, and nothing is run without ANALYZE.
    let count = "SELECT count(*) FROM big";
    let before = client.value(count)?;
    client.query("BEGIN")?;
    lines(&mut client, "EXPLAIN ANALYZE DELETE FROM big")?;
    assert_eq!(client.value(count)?, "0");
    client.query("ROLLBACK")?;
    lines(&mut client, "EXPLAIN (COSTS OFF, FORMAT JSON) DELETE FROM big")?;
    assert_eq!(client.value(count)?, before);
    // Part of it fails on one node.
    let fails = "EXPLAIN ANALYZE UPDATE big SET s = 1 / (id - 3000)";
    ensure!(client.simple(fails, b"")?.error().is_some_and(|error| error.sqlstate() == "22012"));
    assert_eq!(client.value("SELECT count(*) FROM big WHERE s = 0 AND id = 1")?, "0");
    let locked = "EXPLAIN (ANALYZE, COSTS OFF) SELECT * FROM big ORDER BY id LIMIT 2 FOR UPDATE";
    ensure!(lines(&mut client, locked)?.contains("locking the first rows"));
    Ok(())
}
