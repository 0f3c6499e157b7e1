//! TABLESAMPLE, and system columns, of tables whose rows are on several nodes.
//!
//! Owns: what can be said of any sample, and that places and numbers are told as each node, or node 1, has them.

use anyhow::{Result, ensure};
use tutti_tests::client::{Client, Flight, Request, text_arguments};
use tutti_tests::gateway::TestCluster;

fn start() -> Result<(TestCluster, Client)> {
    let cluster = TestCluster::start(3)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE TABLE t (id int PRIMARY KEY, k int, v text) DISTRIBUTE BY HASH (id)",
        "INSERT INTO t SELECT n, n % 10, 'v' || n FROM generate_series(1, 3000) n",
        "CREATE TABLE copies (id int PRIMARY KEY, v text) DISTRIBUTE BY REPLICATED",
        "INSERT INTO copies SELECT n, 'c' FROM generate_series(1, 300) n",
        "CREATE TABLE parts (id int, p int, PRIMARY KEY (id, p)) PARTITION BY LIST (p) DISTRIBUTE BY HASH (id)",
        // So that OIDs differ between nodes.
        "CREATE TABLE own (id int) DISTRIBUTE BY HOME",
        "CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (1)",
        "CREATE TABLE part_2 PARTITION OF parts FOR VALUES IN (2)",
        "INSERT INTO parts SELECT n, 1 + n % 2 FROM generate_series(1, 100) n",
    ] {
        let answer = client.simple(sql, b"")?;
        ensure!(answer.error().is_none(), "{sql}\n{answer}");
    }
    Ok((cluster, client))
}

fn count(client: &mut Client, query: &str) -> Result<u64> {
    client.value(query)?.parse().map_err(|error| anyhow::anyhow!("{query}: {error}"))
}

/// The statement's error, as SQLSTATE and message.
fn refused(client: &mut Client, sql: &str) -> Result<(String, String)> {
    let answer = client.simple(sql, b"")?;
    let error = answer.error().ok_or_else(|| anyhow::anyhow!("{sql}: no error\n{answer}"))?;
    Ok((error.sqlstate().to_owned(), answer.to_string()))
}

#[test]
fn samples_are_taken_of_each_nodes_rows() -> Result<()> {
    let (_cluster, mut client) = start()?;
    for method in ["BERNOULLI", "SYSTEM", "pg_catalog.bernoulli"] {
        for (query, all) in [
            ("SELECT count(*) FROM t TABLESAMPLE {}", 3000),
            ("SELECT count(*) FROM (SELECT * FROM t TABLESAMPLE {} ORDER BY v LIMIT 2500) s", 2500),
            ("SELECT count(DISTINCT s.v) FROM t AS s (a, b) TABLESAMPLE {} WHERE a > 1000", 2000),
            (
                "SELECT sum(n) FROM (SELECT k, count(*) AS n FROM t TABLESAMPLE {} GROUP BY k) s",
                3000,
            ),
            ("SELECT count(*) FROM t a TABLESAMPLE {} JOIN t b ON a.id = b.k", 3000 - 300),
            ("SELECT count(*) FROM t a JOIN t b TABLESAMPLE {} ON a.id = b.k + 0", 3000 - 300),
            ("SELECT count(*) FROM t a TABLESAMPLE {} JOIN t b USING (id)", 3000),
            ("SELECT count(*) FROM t JOIN copies TABLESAMPLE {} USING (id)", 300),
            ("SELECT count(*) FROM t JOIN copies c TABLESAMPLE {} ON c.id = t.k", 3000 - 300),
            ("SELECT count(*) FROM parts TABLESAMPLE {}", 100),
            ("SELECT count(*) FROM copies TABLESAMPLE {}", 300),
            (
                "SELECT count(*) FROM t WHERE EXISTS (SELECT FROM t s TABLESAMPLE {} WHERE s.k = t.id)",
                9,
            ),
        ] {
            for (part, expected) in [("(100)", all), ("(0)", 0), ("(100) REPEATABLE (3)", all)] {
                let query = query.replace("{}", &format!("{method} {part}"));
                let query = query.replace("sum(n)", "coalesce(sum(n), 0)");
                assert_eq!(count(&mut client, &query)?, expected, "{query}");
            }
        }
    }
    for query in [
        "SELECT id FROM t TABLESAMPLE BERNOULLI (30) REPEATABLE (7) ORDER BY id",
        "SELECT id FROM t TABLESAMPLE SYSTEM (30) REPEATABLE (7.5) ORDER BY id",
        "SELECT k, count(*) FROM t TABLESAMPLE BERNOULLI (30) REPEATABLE (-7) GROUP BY k ORDER BY k",
        "SELECT a.id FROM t a TABLESAMPLE BERNOULLI (60) REPEATABLE (7) JOIN t b ON a.id = b.k ORDER BY 1",
    ] {
        assert_eq!(client.query(query)?, client.query(query)?, "{query}");
    }
    // One seed, one sample: of the same rows, however they are read.
    let scattered =
        "SELECT count(*) FROM (SELECT id FROM t TABLESAMPLE BERNOULLI (50) REPEATABLE (5)) s";
    let gathered = "SELECT count(*) FROM (SELECT id FROM t TABLESAMPLE BERNOULLI (50) REPEATABLE (5) ORDER BY v LIMIT 9999) s";
    assert_eq!(client.value(scattered)?, client.value(gathered)?);
    // Of 3,000 rows by half: 15 standard deviations of 27.
    for _ in 0..5 {
        let found = count(&mut client, "SELECT count(*) FROM t TABLESAMPLE BERNOULLI (50)")?;
        ensure!((1100..=1900).contains(&found), "{found}");
    }
    // A replicated table has one sample for all nodes' rows.
    let twice = "SELECT count(*) - count(DISTINCT c.id) * 300 \
         FROM t JOIN copies c TABLESAMPLE BERNOULLI (50) ON c.id = t.k";
    assert_eq!(client.value(twice)?, "0");
    Ok(())
}

#[test]
fn the_arguments_of_a_sample_may_be_parameters() -> Result<()> {
    let (_cluster, mut client) = start()?;
    for (part, expected) in [("100", "3000"), ("0", "0")] {
        for sql in [
            "SELECT count(*) FROM t TABLESAMPLE BERNOULLI ($1)",
            "SELECT count(*) FROM (SELECT * FROM t TABLESAMPLE SYSTEM ($1::real) ORDER BY v LIMIT 9999) s",
        ] {
            let arguments = [text_arguments(&[Some(part.to_owned())])];
            let request = Request { sql, arguments: &arguments, ..Request::default() };
            let answer = client.extended(&request, Flight::OneFlight, b"")?;
            ensure!(answer.texts() == [[Some(expected.to_owned())]], "{sql} {part}\n{answer}");
        }
    }
    // As PostgreSQL says it.
    let (sqlstate, _) = refused(&mut client, "SELECT count(*) FROM t TABLESAMPLE BERNOULLI (101)")?;
    assert_eq!(sqlstate, "2202H");
    for sql in [
        "SELECT id FROM t TABLESAMPLE BERNOULLI ((SELECT 5)) ORDER BY v LIMIT 1",
        "SELECT id FROM t TABLESAMPLE BERNOULLI (5) ORDER BY v LIMIT 1 FOR UPDATE",
        "UPDATE t SET v = c.v FROM copies c TABLESAMPLE BERNOULLI (5) WHERE c.id = t.k",
    ] {
        assert_eq!(refused(&mut client, sql)?.0, "0A000", "{sql}");
    }
    Ok(())
}

#[test]
fn system_columns_are_told_as_each_node_has_them() -> Result<()> {
    let (cluster, mut client) = start()?;
    // Each row is told where it is on its node.
    let mut expected = Vec::new();
    for node in cluster.nodes() {
        expected.extend(Client::connect(&node)?.query("SELECT id, ctid, xmin, xmax, cmin FROM t")?);
    }
    expected.sort();
    for query in [
        "SELECT id, ctid, xmin, xmax, cmin FROM t",
        "SELECT id, ctid, xmin, xmax, cmin FROM t ORDER BY v",
        "SELECT x.id, x.ctid, x.xmin, x.xmax, x.cmin FROM t x ORDER BY x.ctid, v LIMIT 5000",
        "SELECT x.id, x.ctid, x.xmin, x.xmax, x.cmin FROM t x LEFT JOIN (SELECT DISTINCT v FROM t) y ON y.v = x.v",
    ] {
        let mut told = client.query(query)?;
        told.sort();
        assert_eq!(told, expected, "{query}");
    }
    // Stars do not have them.
    let row =
        client.query("SELECT ctid IS NOT NULL, *, t.* FROM t WHERE v = 'v9' ORDER BY k LIMIT 1")?;
    let expected = ["t", "9", "9", "v9", "9", "9", "v9"].map(|value| Some(value.to_owned()));
    assert_eq!(row, [expected]);
    let named = client.simple("SELECT *, ctid FROM t ORDER BY v LIMIT 1", b"")?;
    ensure!(named.to_string().contains("ctid"), "{named}");
    Ok(())
}

#[test]
fn a_table_is_told_by_node_1s_number() -> Result<()> {
    let (_cluster, mut client) = start()?;
    for query in [
        "SELECT count(DISTINCT tableoid) FROM parts",
        "SELECT count(DISTINCT o) FROM (SELECT tableoid AS o FROM parts ORDER BY id LIMIT 99) s",
        "SELECT count(*) FROM pg_class WHERE oid IN (SELECT tableoid FROM parts) AND relname IN ('part_1', 'part_2')",
        "SELECT count(*) FROM (SELECT DISTINCT tableoid::regclass FROM parts) s",
        "SELECT count(DISTINCT c.tableoid::regclass::text) FROM parts c WHERE c.tableoid::regclass::text ~ '^part_'",
        "SELECT count(DISTINCT n.tableoid) FROM parts n WHERE n.tableoid::regclass::text ~ '^part_'",
    ] {
        assert_eq!(client.value(query)?, "2", "{query}");
    }
    let by_name = "SELECT tableoid::regclass, count(*) FROM parts GROUP BY 1 ORDER BY 1::text";
    let by_name = by_name.replace("ORDER BY 1::text", "ORDER BY count(*), 1");
    let rows = client.query(&by_name)?;
    assert_eq!(rows.len(), 2, "{rows:?}");
    let number = client.value("SELECT 'part_1'::regclass::oid")?;
    for query in [
        format!("SELECT count(*) FROM parts WHERE tableoid = {number}"),
        format!("SELECT count(*) FROM parts WHERE tableoid IN ({number}, 1)"),
        "SELECT count(*) FROM parts WHERE tableoid = 'part_1'::regclass".to_owned(),
        "SELECT count(*) FROM parts JOIN pg_class c ON c.oid = parts.tableoid WHERE relname = 'part_1'".to_owned(),
    ] {
        assert_eq!(client.value(&query)?, "50", "{query}");
    }
    let sql = "SELECT count(*) FROM parts WHERE tableoid = $1";
    let arguments = [text_arguments(&[Some(number.clone())])];
    let request = Request { sql, arguments: &arguments, ..Request::default() };
    let answer = client.extended(&request, Flight::OneFlight, b"")?;
    ensure!(answer.texts() == [[Some("50".to_owned())]], "{answer}");
    let change = format!("DELETE FROM parts WHERE tableoid = {number}");
    assert_eq!(refused(&mut client, &change)?.0, "0A000");
    client.query("DELETE FROM parts WHERE tableoid = 'part_1'::regclass")?;
    assert_eq!(client.value("SELECT count(*) FROM parts")?, "50");
    Ok(())
}

#[test]
fn no_row_is_found_by_a_place_that_several_have() -> Result<()> {
    let (_cluster, mut client) = start()?;
    let before = client.value("SELECT concat(count(*), ' ', sum(k)) FROM t")?;
    for sql in [
        "SELECT * FROM t WHERE ctid = '(0,1)'",
        "SELECT * FROM t WHERE '(0,1)' = ctid ORDER BY v",
        "SELECT * FROM t WHERE ctid IN ('(0,1)', '(0,2)')",
        "SELECT * FROM t WHERE ctid = ANY (ARRAY['(0,1)']::tid[])",
        "SELECT * FROM t WHERE ctid::text = '(0,1)'",
        "SELECT * FROM t WHERE (ctid, k) = ('(0,1)', 1)",
        "SELECT * FROM t WHERE ctid IN (SELECT '(0,1)'::tid)",
        "SELECT * FROM t a WHERE ctid = (SELECT min(ctid) FROM t b WHERE a.k = b.k)",
        "SELECT a.id FROM t a JOIN t b ON a.ctid = b.ctid",
        "SELECT a.id FROM t a JOIN t b ON a.ctid < b.ctid AND a.k = b.k",
        "SELECT count(DISTINCT ctid) FROM t",
        "SELECT DISTINCT xmin FROM t",
        "DELETE FROM t WHERE ctid = '(0,1)'",
        "UPDATE t SET k = 0 WHERE ctid = ANY (ARRAY['(0,1)']::tid[])",
        "DELETE FROM t WHERE ctid IN (SELECT ctid FROM t ORDER BY v LIMIT 3)",
        "UPDATE t SET k = 0 FROM (VALUES ('(0,1)'::tid)) s (place) WHERE t.ctid = s.place",
        "DELETE FROM t a USING t b WHERE a.k = b.k AND a.ctid < b.ctid",
    ] {
        assert_eq!(refused(&mut client, sql)?.0, "0A000", "{sql}");
    }
    assert_eq!(client.value("SELECT concat(count(*), ' ', sum(k)) FROM t")?, before);
    // Within a node it means what it means there.
    for (sql, rows) in [
        ("SELECT id FROM t WHERE id = 9 AND ctid = (SELECT ctid FROM t WHERE id = 9)", 1),
        ("SELECT a.id FROM t a JOIN t b ON a.id = b.id AND a.ctid = b.ctid WHERE a.k = 3", 300),
        ("SELECT id FROM t WHERE ctid < '(100000,1)'", 3000),
    ] {
        assert_eq!(client.query(sql)?.len(), rows, "{sql}");
    }
    Ok(())
}
