//! Keys of several columns: which statements run where, what the catalog says, what moves, and what the auditor sees.
//!
//! Owns: that. That the answers are PostgreSQL's is `differential`'s business (`keys_of_several.sql`).

use anyhow::{Result, ensure};
use tutti_gateway::{Config, Switches};
use tutti_tests::client::Client;
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

const TABLES: [&str; 5] = [
    "CREATE TABLE stock (w int, item bigint, quantity int, PRIMARY KEY (w, item)) DISTRIBUTE BY HASH (w, item)",
    "CREATE TABLE lines (w int, item bigint, line int, amount numeric, PRIMARY KEY (w, item, line), \
     FOREIGN KEY (w, item) REFERENCES stock) DISTRIBUTE BY HASH (w, item)",
    "INSERT INTO stock SELECT w, i, w * i FROM generate_series(1, 20) w, generate_series(1, 30) i",
    "INSERT INTO lines SELECT w, item, l, l FROM stock, generate_series(1, 2) l",
    "ANALYZE stock",
];

fn start() -> Result<(TestCluster, Client)> {
    let servers = servers::start(2)?;
    let switches = Switches { check_plans: true, ..Switches::default() };
    let config = Config { switches, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(&mut client, &TABLES)?;
    Ok((cluster, client))
}

fn run(client: &mut Client, statements: &[&str]) -> Result<()> {
    for sql in statements {
        let answer = client.simple(sql, b"")?;
        ensure!(answer.error().is_none(), "{sql}\n{answer}");
    }
    Ok(())
}

fn explained(client: &mut Client, sql: &str) -> Result<String> {
    let lines = client.query(&format!("EXPLAIN {sql}"))?;
    Ok(lines.into_iter().flatten().flatten().collect::<Vec<_>>().join("\n"))
}

/// How many rows of the table each node has.
fn rows_by_node(cluster: &TestCluster, table: &str) -> Result<Vec<u64>> {
    let count = format!("SELECT count(*) FROM {table}");
    let of_node = |node| Ok(Client::connect(&node)?.value(&count)?.parse()?);
    cluster.nodes().into_iter().map(of_node).collect()
}

#[test]
fn rows_are_found_and_joined_where_all_columns_say() -> Result<()> {
    let (cluster, mut client) = start()?;
    let rows = rows_by_node(&cluster, "stock")?;
    ensure!(rows.iter().sum::<u64>() == 600 && rows.iter().all(|rows| 200 < *rows), "{rows:?}");
    for (sql, expected) in [
        ("SELECT * FROM stock WHERE w = 3 AND item = 4", "pinned to one value of (w, item)"),
        ("SELECT * FROM stock WHERE (w, item) = (3, 4)", "pinned to one value of (w, item)"),
        (
            "UPDATE stock SET quantity = 1 WHERE item = 4 AND w = 3",
            "pinned to one value of (w, item)",
        ),
        (
            "DELETE FROM lines WHERE item = 4 AND w = 3 AND line = 1",
            "pinned to one value of (w, item)",
        ),
        ("INSERT INTO stock VALUES (300, 400, 1)", "belongs on the node of its distribution key"),
        ("SELECT * FROM stock WHERE w = 3", "on every node, answers concatenated"),
        (
            "SELECT * FROM stock s JOIN lines l ON s.w = l.w AND s.item = l.item",
            "on every node, answers concatenated",
        ),
        (
            "SELECT * FROM stock s LEFT JOIN lines l USING (w, item)",
            "on every node, answers concatenated",
        ),
        (
            "SELECT w, item, count(*) FROM lines GROUP BY item, w",
            "on every node, answers concatenated",
        ),
        (
            "SELECT * FROM stock s WHERE EXISTS (SELECT FROM lines l WHERE l.w = s.w AND l.item = s.item)",
            "on every node, answers concatenated",
        ),
        (
            "UPDATE lines l SET amount = 1 FROM stock s WHERE s.w = l.w AND s.item = l.item",
            "on every node, answers concatenated",
        ),
    ] {
        let told = explained(&mut client, sql)?;
        ensure!(told.contains(expected), "{sql}\n{told}");
    }
    for sql in [
        "SELECT count(*) FROM stock s JOIN lines l ON s.w = l.w",
        "SELECT count(*) FROM stock s JOIN lines l ON s.w = l.item AND s.item = l.w",
        // The rows of the other side that are kept need not be equal.
        "SELECT count(*) FROM stock s FULL JOIN lines l ON s.w = l.w AND s.item = l.line",
    ] {
        let told = explained(&mut client, sql)?;
        ensure!(!told.contains("on every node, answers concatenated"), "{sql}\n{told}");
    }
    Ok(())
}

#[test]
fn they_move_with_their_tables() -> Result<()> {
    let (cluster, mut client) = start()?;
    let known = client.query("SELECT * FROM tutti_tables()")?.concat();
    ensure!(known.contains(&Some("w, item".to_owned())), "{known:?}");
    run(&mut client, &["DROP TABLE lines"])?;
    for by in [
        "HASH (item)",
        "HASH (item, w)",
        "ROUND ROBIN",
        "HASH (w, item)",
        "REPLICATED",
        "HASH (w, item)",
        "HOME",
        "HASH (quantity, w, item)",
    ] {
        let sql = format!("ALTER TABLE stock DISTRIBUTE BY {by}");
        let answer = client.simple(&sql, b"")?;
        // The primary key does not contain the last ones.
        let is_refused = by == "ROUND ROBIN" || by.starts_with("HASH (quantity");
        ensure!(answer.error().is_some() == is_refused, "{sql}\n{answer}");
        assert_eq!(
            client.value("SELECT count(*) || ' ' || sum(quantity) FROM stock")?,
            "600 97650"
        );
        assert_eq!(client.value("SELECT quantity FROM stock WHERE w = 7 AND item = 9")?, "63");
        ensure!(cluster.audit()?.findings.is_empty(), "{sql}: {:#?}", cluster.audit()?);
    }
    for (sql, sqlstate) in [
        ("ALTER TABLE stock DISTRIBUTE BY HASH (w, w)", "42701"),
        ("ALTER TABLE stock DISTRIBUTE BY HASH (w, nothing)", "42703"),
        ("ALTER TABLE stock DISTRIBUTE BY HASH (w, item,)", "42601"),
        (
            "CREATE TABLE wide (a int, b int, c int, d int, e int, f int, g int) DISTRIBUTE BY HASH (a, b, c, d, e, f, g)",
            "54011",
        ),
        ("CREATE TABLE odd (a int, b point) DISTRIBUTE BY HASH (a, b)", "0A000"),
    ] {
        let answer = client.simple(sql, b"")?;
        let told = answer.error().map(|error| error.sqlstate().to_owned());
        assert_eq!(told.as_deref(), Some(sqlstate), "{sql}");
    }
    Ok(())
}

/// One whose row is where another's key says.
#[test]
fn the_auditor_finds_stray_rows() -> Result<()> {
    let (mut cluster, mut client) = start()?;
    run(&mut client, &["DROP TABLE lines"])?;
    ensure!(cluster.audit()?.findings.is_empty(), "{:#?}", cluster.audit()?);
    for node in cluster.nodes() {
        let mut node = Client::connect(&node)?;
        let strays = "INSERT INTO stock SELECT 1000 + i, 7, 0 FROM generate_series(1, 64) i";
        let answer = node.simple(strays, b"")?;
        ensure!(answer.error().is_none(), "{answer}");
    }
    let findings = format!("{:?}", cluster.audit()?.findings);
    ensure!(findings.contains("belong to other nodes by their key"), "{findings}");
    cluster.leave_unaudited("rows were put where they do not belong");
    drop(client);
    cluster.stop_gateway()
}
