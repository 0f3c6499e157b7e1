//! Rows that are too many for the gateway to keep: temporary tables take them as they come.
//!
//! Owns: that they arrive as they are, that far more of them can be gathered than the gateway may keep, that blocks see
//! what they have written and can still be committed on several nodes, and that nothing is left behind whatever ends it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tutti_gateway::{Config, DefaultDistribution, Switches};
use tutti_tests::client::{Client, Flight, Request};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::servers;

/// A cluster of two nodes whose gateway keeps so many bytes of rows, and fails where more than four times as many would
/// have to travel at once.
fn start(kept_bytes_max: usize) -> Result<TestCluster> {
    let servers = servers::start(2)?;
    let travelling_bytes_max = 4 * kept_bytes_max.max(1 << 20);
    let switches =
        Switches { check_plans: true, kept_bytes_max, travelling_bytes_max, ..Switches::default() };
    let default_distribution = DefaultDistribution::RoundRobin;
    let config = Config { switches, default_distribution, ..config(&servers, String::new()) };
    TestCluster::start_configured(servers, config)
}

fn run(client: &mut Client, statements: &[&str]) -> Result<()> {
    for sql in statements {
        let answer = client.simple(sql, b"")?;
        ensure!(answer.error().is_none(), "{sql}\n{answer}");
    }
    Ok(())
}

/// Connections on the nodes that have had such tables.
const RECEIVES: &str = "query LIKE '%tutti\\_rows\\_%'";

const WIDE: [&str; 3] = [
    "CREATE TABLE wide (k int PRIMARY KEY, g int, pad text) DISTRIBUTE BY HASH (k)",
    "CREATE TABLE other (k int PRIMARY KEY, g int, pad text) DISTRIBUTE BY HASH (k)",
    "CREATE TABLE copies (g int PRIMARY KEY, name text) DISTRIBUTE BY REPLICATED",
];

/// About 15 MB in each of two tables.
fn fill(client: &mut Client) -> Result<()> {
    run(client, &WIDE)?;
    let pad = "x\"\\\\t,()".repeat(120);
    for table in ["wide", "other"] {
        let data: String = (0..15_000).map(|k| format!("{k}\t{}\t{pad}{k}\n", k % 701)).collect();
        let copied = client.simple(&format!("COPY {table} FROM STDIN"), data.as_bytes())?;
        ensure!(copied.error().is_none(), "{copied}");
    }
    run(
        client,
        &["INSERT INTO copies SELECT g, 'n' || g FROM generate_series(0, 700) g", "ANALYZE"],
    )
}

/// What only a final statement over all rows can say.
const JOIN: &str = "SELECT count(*) || ' ' || sum(length(a.pad)) || ' ' || max(b.pad) FROM wide a \
     FULL JOIN other b ON a.g + 0 = b.g AND a.pad = b.pad";

#[test]
fn far_more_can_be_gathered_than_is_kept() -> Result<()> {
    let cluster = start(1 << 20)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    fill(&mut client)?;
    let expected =
        client.value("SELECT count(*) || ' ' || sum(length(pad)) || ' ' || max(pad) FROM wide")?;
    ensure!(client.value(JOIN)? == expected);
    // With a table that is read in place, in the snapshot of the rest.
    let in_place = "SELECT count(*) || ' ' || count(DISTINCT c.name) FROM wide a \
         FULL JOIN other b ON a.g + 0 = b.g AND a.pad = b.pad JOIN copies c ON c.g = a.g";
    assert_eq!(client.value(in_place)?, "15000 701");
    // By the extended protocol, and as COPY.
    let request = Request { sql: JOIN, ..Request::default() };
    let answer = client.extended(&request, Flight::TwoFlights, b"")?;
    ensure!(answer.texts() == [[Some(expected.clone())]], "{answer}");
    let copied = client.simple(&format!("COPY ({JOIN}) TO STDOUT"), b"")?;
    ensure!(copied.error().is_none(), "{copied}");
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "REPEATABLE READ READ ONLY"]
    {
        run(&mut client, &[&format!("BEGIN ISOLATION LEVEL {level}")])?;
        ensure!(client.value(JOIN)? == expected, "{level}");
        run(&mut client, &["COMMIT"])?;
    }
    cluster.ensure_no_backend_where(RECEIVES)
}

#[test]
fn a_block_sees_what_it_has_written_and_commits_on_all_nodes() -> Result<()> {
    let cluster = start(0)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(&mut client, &WIDE)?;
    run(
        &mut client,
        &[
            "INSERT INTO wide SELECT k, k, 'p' || k FROM generate_series(1, 40) k",
            "INSERT INTO other SELECT k, k, 'p' || k FROM generate_series(1, 30) k",
            "INSERT INTO copies SELECT k, 'n' || k FROM generate_series(1, 40) k",
        ],
    )?;
    let join = "SELECT count(*) || ' ' || count(b.k) || ' ' || coalesce(max(c.name), '') FROM wide a \
         FULL JOIN other b ON a.pad = b.pad LEFT JOIN copies c ON c.g = a.g";
    for (level, changes) in [("READ COMMITTED", 1), ("REPEATABLE READ", 2), ("SERIALIZABLE", 3)] {
        run(
            &mut client,
            &[
                &format!("BEGIN ISOLATION LEVEL {level}"),
                "SET LOCAL search_path = public, pg_catalog",
                "SAVEPOINT s",
                &format!("UPDATE wide SET pad = 'q' WHERE k = {changes} OR k = 10 + {changes}"),
                &format!("UPDATE copies SET name = 'zz{changes}' WHERE g = 5"),
            ],
        )?;
        let expected = format!("{} {} zz{changes}", 40 + 2 * changes, 30);
        assert_eq!(client.value(join)?, expected, "{level}");
        run(&mut client, &["COMMIT"])?;
        assert_eq!(client.value(join)?, expected, "after {level}");
    }
    // What a transaction has made itself is there for it alone.
    run(
        &mut client,
        &["BEGIN", "CREATE TYPE mood AS ENUM ('sad')", "ALTER TABLE wide ADD COLUMN m mood"],
    )?;
    let with_mood =
        "SELECT count(a.m) || ' ' || count(*) FROM wide a FULL JOIN other b ON a.pad = b.pad";
    assert_eq!(client.value(with_mood)?, "0 46");
    run(&mut client, &["ROLLBACK"])?;
    cluster.ensure_no_backend_where(RECEIVES)
}

/// What is inserted from such a query goes on in portions: all of it, or nothing.
#[test]
fn inserts_take_portions() -> Result<()> {
    let cluster = start(1 << 18)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    fill(&mut client)?;
    run(
        &mut client,
        &["CREATE TABLE target (k int PRIMARY KEY, pad text) DISTRIBUTE BY HASH (k)"],
    )?;
    let query = "SELECT a.k, b.pad FROM wide a FULL JOIN other b ON a.pad = b.pad";
    let answer = client.simple(&format!("INSERT INTO target {query}"), b"")?;
    ensure!(answer.error().is_none() && answer.to_string().contains("INSERT 0 15000"), "{answer}");
    let of = |table: &str| {
        format!(
            "SELECT count(*) || ' ' || count(DISTINCT k) || ' ' || sum(length(pad)) FROM {table}"
        )
    };
    let expected = client.value(&of("wide"))?;
    assert_eq!(client.value(&of("target"))?, expected);
    // The last rows are there already.
    run(&mut client, &["DELETE FROM target WHERE k < 14990"])?;
    let again = format!("INSERT INTO target {query} ORDER BY a.k");
    for around in [["", ""], ["BEGIN", "ROLLBACK"]] {
        run(&mut client, &around[..1])?;
        let answer = client.simple(&again, b"")?;
        let state = answer.error().map(|error| error.sqlstate().to_owned());
        ensure!(state.as_deref() == Some("23505"), "{answer}");
        run(&mut client, &around[1..])?;
        assert_eq!(client.value("SELECT count(*) FROM target")?, "10");
    }
    let none = format!("INSERT INTO target {query} WHERE a.pad = b.pad || b.k");
    let answer = client.simple(&none, b"")?;
    ensure!(answer.error().is_none() && answer.to_string().contains("INSERT 0 0"), "{answer}");
    cluster.ensure_no_backend_where(RECEIVES)
}

/// Values of every kind, under settings that would change them.
#[test]
fn rows_arrive_as_they_are() -> Result<()> {
    let cluster = start(0)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    run(
        &mut client,
        &[
            "CREATE DOMAIN short AS text CHECK (length(VALUE) < 9)",
            "CREATE TYPE pair AS (a int, b text)",
            "CREATE TYPE mood AS ENUM ('sad', 'so, so')",
            "CREATE TABLE kinds (k int PRIMARY KEY, gone int, t text COLLATE \"C\", c char(5), n numeric(9, 3), f float8, d date, \
             tz timestamptz, i interval, b bytea, a int[], x xml, m money, j json, jb jsonb, s short, p pair, o mood, \
             r int4range, bit varbit, \"odd \"\"name\" text) DISTRIBUTE BY HASH (k)",
            "ALTER TABLE kinds DROP COLUMN gone",
            "INSERT INTO kinds VALUES (1, E'a\\tb\\nc\\\\d\"e\\r,', 'x', 1.5, 'NaN', '2024-02-03', '2024-02-03 04:05:06.789+02', \
             '1 mon -2 days 03:00', '\\xdeadbeef', '{1,NULL,3}', '<a>b</a>', 12.34, '{\"a\" : [1]}', '{\"b\": null}', 'short', \
             ROW(1, 'a,\"b'), 'so, so', '[1,5)', B'101', '')",
            "INSERT INTO kinds (k, t, f, a) VALUES (2, '', 0.1, '{}'), (3, '\\N', '-Infinity', NULL), (4, '\\.', 1e-300, '{NULL}')",
        ],
    )?;
    let columns =
        "k, t, c, n, f, d, tz, i, b, a, x::text, m, j::text, jb, s, p, o, r, bit, \"odd \"\"name\"";
    let settings = [
        "SET DateStyle = 'German, DMY'",
        "SET IntervalStyle = sql_standard",
        "SET array_nulls = off",
        "SET xmloption = document",
        "SET bytea_output = escape",
        "SET extra_float_digits = -5",
        "SET TimeZone = 'Asia/Tokyo'",
    ];
    for setting in settings {
        run(&mut client, &[setting])?;
        let direct = client.query(&format!("SELECT {columns} FROM kinds ORDER BY k"))?;
        let by_join = format!(
            "SELECT {columns} FROM kinds q JOIN (SELECT g.k AS kk, row_number() OVER (ORDER BY g.t, g.k) FROM kinds g) w ON kk = k ORDER BY k"
        );
        let by_join = client.query(&by_join)?;
        ensure!(direct == by_join, "{setting}:\n{direct:?}\n{by_join:?}");
        let shown = format!("{setting}; SHOW array_nulls; SHOW xmloption");
        ensure!(client.simple(&shown, b"")?.error().is_none());
    }
    let star = "SELECT q.*, w.n FROM kinds q JOIN (SELECT k AS kk, row_number() OVER (ORDER BY t, k) AS n FROM kinds) w ON kk = k ORDER BY k";
    let request = Request { sql: star, ..Request::default() };
    let answer = client.extended(&request, Flight::TwoFlights, b"")?;
    ensure!(answer.error().is_none() && answer.texts().len() == 4, "{answer}");
    cluster.ensure_no_backend_where(RECEIVES)
}

#[test]
fn whatever_ends_it_leaves_nothing_behind() -> Result<()> {
    let cluster = start(1 << 16)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    fill(&mut client)?;
    // The final statement would never end; and a row that it cannot compute.
    let endless = "SELECT count(*) FROM wide a, other b, wide c, other d WHERE a.pad > b.pad AND c.pad <> d.pad AND a.pad <> d.pad";
    run(&mut client, &["SET statement_timeout = 1500"])?;
    let answer = client.simple(endless, b"")?;
    let state = answer.error().map(|error| error.sqlstate().to_owned());
    ensure!(state.as_deref() == Some("57014"), "{answer}");
    run(&mut client, &["RESET statement_timeout"])?;
    cluster.ensure_no_backend_where(RECEIVES)?;
    let wrong = "SELECT sum(1 / (a.k - b.k)) FROM wide a FULL JOIN other b ON a.pad = b.pad";
    for around in [["", ""], ["BEGIN", "ROLLBACK"]] {
        run(&mut client, &around[..1])?;
        let answer = client.simple(wrong, b"")?;
        let state = answer.error().map(|error| error.sqlstate().to_owned());
        ensure!(state.as_deref() == Some("22012"), "{answer}");
        run(&mut client, &around[1..])?;
        cluster.ensure_no_backend_where(RECEIVES)?;
    }
    // A client that is gone.
    let mut lost = Client::connect(&cluster.endpoint())?;
    let process_id = lost.value("SELECT pg_backend_pid()")?;
    let mut bytes = b"Q".to_vec();
    bytes.extend_from_slice(&u32::try_from(endless.len() + 5)?.to_be_bytes());
    bytes.extend_from_slice(endless.as_bytes());
    bytes.push(0);
    lost.send_bytes(&bytes)?;
    let begun = Instant::now();
    while cluster.backends_where(RECEIVES)? == 0 {
        ensure!(begun.elapsed() < Duration::from_secs(20), "no temporary tables were made");
    }
    // Somebody ends it.
    client.value(&format!("SELECT pg_cancel_backend({process_id})"))?;
    let told = loop {
        let frame = lost.receive().context("the cancelled statement")?;
        if frame.tag() == b'E' || frame.tag() == b'Z' {
            break frame.tag();
        }
    };
    ensure!(told == b'E', "the statement was not cancelled");
    cluster.ensure_no_backend_where(RECEIVES)
}
