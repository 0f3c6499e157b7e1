//! The cluster's views: what every node says of itself, read as one table.
//!
//! Owns: that rows of all nodes are in them, with the rights of whoever asks, whatever reads them; and that what would show
//! node 1's rows alone is refused.

use anyhow::{Result, ensure};
use tutti_tests::client::{Client, Flight, Request, text_arguments};
use tutti_tests::gateway::TestCluster;

const VIEWS: [&str; 6] =
    ["stat_activity", "locks", "stat_user_tables", "stat_user_indexes", "stats", "table_sizes"];

fn start() -> Result<(TestCluster, Client)> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE TABLE t (id int PRIMARY KEY, v text) DISTRIBUTE BY HASH (id)",
        "INSERT INTO t SELECT k, repeat('v', 90) FROM generate_series(1, 900) k",
        "ANALYZE t",
    ] {
        let answer = client.simple(sql, b"")?;
        ensure!(answer.error().is_none(), "{sql}\n{answer}");
    }
    Ok((cluster, client))
}

#[test]
fn every_node_has_its_rows_in_each() -> Result<()> {
    let (cluster, mut client) = start()?;
    for view in VIEWS {
        let nodes = format!(
            "SELECT string_agg(DISTINCT node::text, ' ' ORDER BY node::text) FROM tutti.{view}"
        );
        assert_eq!(client.value(&nodes)?, "1 2 3", "{view}");
        // Whole rows travel, whatever their types.
        let rows =
            client.query(&format!("SELECT a.* FROM tutti.{view} a JOIN t ON t.id = a.node"))?;
        ensure!(!rows.is_empty(), "{view}");
    }
    let sizes = "SELECT sum(total_bytes) FROM tutti.table_sizes WHERE relname = 't'";
    let mut sum = 0;
    for node in cluster.nodes() {
        let of_node = Client::connect(&node)?.value("SELECT pg_total_relation_size('t')")?;
        sum += of_node.parse::<u64>()?;
    }
    assert_eq!(client.value(sizes)?, sum.to_string());
    // By parameters, in blocks and beside other tables.
    let sql = "SELECT count(*) FROM tutti.table_sizes s JOIN t ON t.id = s.node WHERE s.node > $1 AND relname = 't'";
    let arguments = [text_arguments(&[Some("1".to_owned())])];
    let request = Request { sql, arguments: &arguments, ..Request::default() };
    let answer = client.extended(&request, Flight::OneFlight, b"")?;
    assert_eq!(answer.texts(), [[Some("2".to_owned())]]);
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        client.query(&format!("BEGIN ISOLATION LEVEL {level}"))?;
        client.query("LOCK TABLE t IN SHARE MODE")?;
        let locks = "SELECT count(*) FROM tutti.locks WHERE relname = 't' AND mode = 'ShareLock'";
        assert_eq!(client.value(locks)?, "3", "{level}");
        client.query("COMMIT")?;
    }
    Ok(())
}

#[test]
fn they_show_what_a_role_may_see() -> Result<()> {
    let (_cluster, mut client) = start()?;
    let others = "SELECT count(*) FILTER (WHERE query <> '<insufficient privilege>') FROM tutti.stat_activity \
         WHERE usename = 'postgres' AND backend_type = 'client backend'";
    ensure!(client.value(others)? != "0");
    ensure!(client.value("SELECT count(*) FROM tutti.stats WHERE tablename = 't'")? == "6");
    client.query("CREATE ROLE weak LOGIN")?;
    client.query("SET ROLE weak")?;
    client.query("SET row_security = off")?;
    assert_eq!(client.value(others)?, "0");
    assert_eq!(client.value("SELECT count(*) FROM tutti.stats WHERE tablename = 't'")?, "0");
    Ok(())
}

#[test]
fn nobody_writes_them_or_reads_the_rows_of_one_node_alone() -> Result<()> {
    let (_cluster, mut client) = start()?;
    client.query("CREATE VIEW busy AS SELECT node, state FROM tutti.stat_activity")?;
    assert_eq!(client.value("SELECT count(DISTINCT node) FROM busy")?, "3");
    client.query(
        "CREATE FUNCTION plain() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM tutti.table_sizes'",
    )?;
    client.query(
        "CREATE FUNCTION hidden() RETURNS bigint LANGUAGE plpgsql AS \
         'DECLARE n bigint; BEGIN EXECUTE ''SELECT count(*) FROM tutti.'' || ''locks'' INTO n; RETURN n; END'",
    )?;
    for (sql, sqlstate) in [
        ("SELECT plain()", "0A000"),
        ("SELECT hidden()", "0A000"),
        ("CREATE MATERIALIZED VIEW m AS SELECT node FROM tutti.stat_activity", "0A000"),
        ("CREATE MATERIALIZED VIEW m AS SELECT node FROM busy", "0A000"),
        ("INSERT INTO tutti.stat_activity (node) VALUES (1)", "42501"),
        ("UPDATE tutti.locks SET node = 2", "42501"),
        ("SELECT tutti_replicate('tutti.stats')", "42809"),
        ("SELECT * FROM tutti.stat_statements", "42704"),
    ] {
        let answer = client.simple(sql, b"")?;
        let told = answer.error().map(|error| error.sqlstate().to_owned());
        assert_eq!(told.as_deref(), Some(sqlstate), "{sql}\n{answer}");
    }
    client.query("SET search_path = tutti, public")?;
    for sql in [
        "INSERT INTO stats (node) VALUES (1)",
        "UPDATE locks SET node = 2",
        "DELETE FROM table_sizes",
    ] {
        ensure!(client.simple(sql, b"")?.error().is_some(), "{sql}");
    }
    assert_eq!(client.value("SELECT count(DISTINCT node) FROM locks")?, "3");
    client.query("RESET search_path")?;
    let listed = client.query("SELECT * FROM tutti_tables()")?;
    ensure!(listed.len() == 1, "{listed:?}");
    Ok(())
}
