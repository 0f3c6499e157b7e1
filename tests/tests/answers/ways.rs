//! The ways in which a read of several nodes can be answered: which is taken, and what it leaves behind.
//!
//! Owns: that of tables of different sizes the small ones travel, and that temporary tables of the gateway's own are made
//! where they may be, and seen by nobody. That all ways give one answer is `differential`'s business (`ways.sql`).

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tutti_gateway::{Config, Switches};
use tutti_tests::client::{Client, Flight, Request, text_arguments};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

/// A cluster whose gateway takes the way that moves the fewest rows.
fn start() -> Result<TestCluster> {
    let servers = servers::start(2)?;
    let switches = Switches { check_plans: true, ..Switches::default() };
    let config = Config { switches, ..config(&servers, String::new()) };
    TestCluster::start_configured(servers, config)
}

fn run(client: &mut Client, statements: &[&str]) -> Result<()> {
    for sql in statements {
        let answer = client.simple(sql, b"")?;
        ensure!(answer.error().is_none(), "{sql}\n{answer}");
    }
    Ok(())
}

fn ensure_explained(client: &mut Client, sql: &str, expected: &str) -> Result<()> {
    let lines = client.query(&format!("EXPLAIN {sql}"))?;
    let is_there = lines.iter().flatten().flatten().any(|line| line.trim() == expected);
    ensure!(is_there, "{sql}\n{lines:#?}");
    Ok(())
}

/// Rows of the big table name those of the small one, and long words.
const TABLES: [&str; 6] = [
    "CREATE TABLE big (id int PRIMARY KEY, s int, g int, word text) DISTRIBUTE BY HASH (id)",
    "CREATE TABLE small (id int PRIMARY KEY, name text, word text) DISTRIBUTE BY HASH (id)",
    "INSERT INTO big SELECT k, k % 40, k % 7, CASE k % 500 WHEN 0 THEN (SELECT string_agg(md5(i::text), '') \
     FROM generate_series(1, 200) i) ELSE 'w' || k % 30 END FROM generate_series(1, 12000) k",
    "INSERT INTO small SELECT k, 'n' || k, 'w' || k FROM generate_series(1, 40) k",
    "ANALYZE big",
    "ANALYZE small",
];

/// A subquery that depends on the row around it, of which only the final statement can say what comes first.
const DEPENDENT: &str = "SELECT (SELECT count(*) FROM big b WHERE b.s = s.id) || ' of ' || s.name FROM small s ORDER BY s.id DESC LIMIT 1 OFFSET 1";

/// Both are large, and neither is joined by its key: their rows meet on all nodes.
#[test]
fn rows_of_large_tables_meet() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(&mut client, &TABLES)?;
    run(
        &mut client,
        &[
            "CREATE TABLE large (id int PRIMARY KEY, s bigint, n int) DISTRIBUTE BY HASH (id)",
            "INSERT INTO large SELECT k, nullif(k % 3000, 7), k FROM generate_series(1, 9000) k",
            "ANALYZE large",
        ],
    )?;
    for (sql, table, to, answer) in [
        (
            "SELECT count(*) || ' ' || sum(l.n) FROM big b JOIN large l ON l.s = b.s",
            "large",
            "the node that each belongs to",
            "35100 108695700",
        ),
        (
            "SELECT count(*) FROM (SELECT l.s, count(*) FROM large l JOIN big b ON l.s = b.s GROUP BY l.s) q",
            "big",
            "the node that each belongs to",
            "39",
        ),
        // Of two nodes each has half of the others' rows: that is less than what would meet.
        (
            "SELECT count(*) || ' ' || count(b.id) FROM large l LEFT JOIN big b ON l.s = b.s",
            "big",
            "every node",
            "43983 35100",
        ),
    ] {
        ensure_explained(&mut client, sql, &format!("Chosen by its rows: bring {table} to {to}"))?;
        assert_eq!(client.value(sql)?, answer, "{sql}");
    }
    Ok(())
}

#[test]
fn the_small_table_travels() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(&mut client, &TABLES)?;
    for (sql, expected) in [
        (
            "SELECT b.g, count(*) FROM big b JOIN small s ON s.id = b.s GROUP BY b.g",
            "Chosen by its rows: bring small to every node",
        ),
        (
            "SELECT b.id, s.name FROM small s JOIN big b ON s.id = b.s ORDER BY b.id LIMIT 3",
            "Chosen by its rows: bring small to every node",
        ),
        // All but one row are left out where they are.
        (
            "SELECT s.name, count(*) FROM big b JOIN small s ON s.id = b.s WHERE b.id < 2 GROUP BY s.name",
            "Chosen by its rows: bring big to the node that each belongs to",
        ),
    ] {
        ensure_explained(&mut client, sql, expected)?;
    }
    let counted = "SELECT string_agg(g || ':' || n, ' ' ORDER BY g) FROM (SELECT b.g, count(*) AS n FROM big b \
         JOIN small s ON s.id = b.s GROUP BY b.g) q";
    assert_eq!(client.value(counted)?, "0:1672 1:1672 2:1672 3:1671 4:1671 5:1671 6:1671");
    Ok(())
}

/// How many servers' sessions have had temporary tables.
fn schemas(cluster: &TestCluster) -> Result<u64> {
    const COUNT: &str = "SELECT count(*) FROM pg_namespace WHERE nspname ~ '^pg_temp_'";
    let counts = cluster.nodes().into_iter().map(|node| {
        let count = Client::connect(&node)?.value(COUNT)?;
        Ok(count.parse::<u64>()?)
    });
    counts.sum()
}

#[test]
fn temporary_tables_of_the_gateway_are_seen_by_nobody() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(&mut client, &TABLES)?;
    assert_eq!(schemas(&cluster)?, 0);
    let begun = Instant::now();
    // On a busy machine it is answered without them now and then.
    while schemas(&cluster)? == 0 {
        assert_eq!(client.value(DEPENDENT)?, "300 of n39");
        ensure!(begun.elapsed() < Duration::from_secs(20), "no temporary table was made");
    }
    // A value of any length is found by its index.
    let by_words = "SELECT (SELECT count(*) FROM big b WHERE b.word = s.word) || ' of ' || s.word FROM small s \
         ORDER BY s.id LIMIT 1 OFFSET 28";
    assert_eq!(client.value(by_words)?, "400 of w29");
    for _ in 0..4 {
        let seen =
            "SELECT pg_my_temp_schema() || ' ' || array_to_string(current_schemas(true), ',')";
        assert_eq!(client.value(seen)?, "0 pg_catalog,public");
    }
    // Those who may have none get the same answer.
    let before = schemas(&cluster)?;
    run(
        &mut client,
        &[
            "REVOKE TEMPORARY ON DATABASE postgres FROM PUBLIC",
            "CREATE ROLE reader LOGIN",
            "GRANT SELECT ON big, small TO reader",
            "SET ROLE reader",
        ],
    )?;
    assert_eq!(client.value(DEPENDENT)?, "300 of n39");
    run(&mut client, &["RESET ROLE", "SET default_transaction_read_only = on"])?;
    assert_eq!(client.value(DEPENDENT)?, "300 of n39");
    assert_eq!(schemas(&cluster)?, before);
    run(&mut client, &["RESET default_transaction_read_only"])?;
    Ok(())
}

/// `*` needs the right to read all columns, also where none of them is computed.
#[test]
fn a_star_in_exists_needs_its_rights() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(&mut client, &TABLES)?;
    run(
        &mut client,
        &[
            "CREATE ROLE reader LOGIN",
            "GRANT SELECT (id, s) ON big TO reader",
            "GRANT SELECT (id) ON small TO reader",
            "SET ROLE reader",
        ],
    )?;
    let exists = |what: &str| {
        format!(
            "SELECT count(*) FROM small s WHERE EXISTS (SELECT {what} FROM big b WHERE b.s = s.id)"
        )
    };
    assert_eq!(client.value(&exists("b.id"))?, "39");
    for star in ["*", "b.*", "1, *"] {
        let answer = client.simple(&exists(star), b"")?;
        let state = answer.error().map(|error| error.sqlstate().to_owned());
        ensure!(state.as_deref() == Some("42501"), "{star}\n{answer}");
    }
    run(&mut client, &["RESET ROLE"])?;
    Ok(())
}

/// As many parameters as the protocol can count leave no room for rows beside them.
#[test]
fn all_parameters_may_be_used() -> Result<()> {
    let cluster = start()?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(&mut client, &TABLES)?;
    let all: Vec<_> = (1..=u16::MAX).map(|number| Some(number.to_string())).collect();
    let marks: Vec<_> = (1..=u16::MAX).map(|number| format!("${number}::int")).collect();
    let sql = format!(
        "SELECT b.id, s.name FROM small s JOIN big b ON s.id = b.s WHERE b.id IN ({})",
        marks.join(", ")
    );
    let arguments = [text_arguments(&all)];
    let request = Request { sql: &sql, arguments: &arguments, ..Request::default() };
    let answer = client.extended(&request, Flight::OneFlight, b"")?;
    ensure!(answer.error().is_none(), "{answer}");
    assert_eq!(answer.texts().len(), 11_700);
    Ok(())
}
