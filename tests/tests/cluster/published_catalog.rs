//! What a gateway publishes of its catalog is what there is, whatever was changed and by whom, and
//! finding that out costs what was changed.
//!
//! Owns: a generator of schema changes by two sessions, of the same tables too, in and outside
//! transactions, with savepoints and rollbacks, while a node answers late now and then and the gateway itself compares what it publishes with a reading from the start
//! (`Switches::check_catalog`) and ends a session whose change is missing; and counts of what a change
//! reads of the nodes' catalogs.
//! Start reading at [`whatever_changes_is_published_as_it_is`].

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tutti_gateway::{Config, DefaultDistribution, Switches};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::{TestCluster, config};
use tutti_tests::{environment, programs, servers};

/// A cluster whose tables are home unless they say otherwise, one of them spread.
fn start(nodes: u16, default_distribution: DefaultDistribution) -> Result<TestCluster> {
    let servers = servers::start(nodes)?;
    let switches = Switches { check_catalog: true, ..Switches::default() };
    let config = Config { default_distribution, switches, ..config(&servers, String::new()) };
    let cluster = TestCluster::start_configured(servers, config)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for sql in [
        "CREATE TABLE spread (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id)",
        "CREATE SCHEMA other",
        "CREATE TYPE mood AS ENUM ('glad', 'sad')",
        "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
        "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "CREATE TABLE common (id int, v text) DISTRIBUTE BY HOME",
        "CREATE FUNCTION twice(a int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT 2 * a'",
    ] {
        client.query(sql)?;
    }
    Ok(cluster)
}

/// A statement of session `s`, about names of its own or about those that both have (session 9's): then
/// they wait for each other, and may deadlock.
fn statement(random: &mut StdRng, own: u32) -> String {
    let s = if random.random_bool(0.3) { 9 } else { own };
    let table = format!(
        "{}t{s}{}",
        ["", "", "other."][random.random_range(0..3)],
        random.random_range(0..3)
    );
    let bare = format!("t{s}{}", random.random_range(0..3));
    let view = format!("v{s}{}", random.random_range(0..3));
    let by =
        ["", "", "DISTRIBUTE BY HASH (id)", "DISTRIBUTE BY REPLICATED", "DISTRIBUTE BY HASH (id)"]
            [random.random_range(0..5)];
    let cascade = ["", "CASCADE"][random.random_range(0..2)];
    let n = random.random_range(0..3);
    match random.random_range(0..34) {
        0..=5 => format!(
            "CREATE TABLE {table} (id int PRIMARY KEY, v text DEFAULT 'x', m mood, p positive DEFAULT 7) {by}"
        ),
        6 => format!(
            "CREATE TABLE {table} (id int PRIMARY KEY, n serial, at timestamptz DEFAULT now()) {by}"
        ),
        7 => format!("CREATE TABLE IF NOT EXISTS {table} AS SELECT id, v FROM spread"),
        8 => format!("CREATE TABLE {table} (LIKE {bare} INCLUDING ALL) {by}"),
        9 => format!(
            "CREATE TABLE {table} (id int PRIMARY KEY REFERENCES {bare} ON DELETE CASCADE, r {bare}) {by}"
        ),
        10 => format!("CREATE TABLE {table} (k int) INHERITS ({bare})"),
        11 => {
            format!("ALTER TABLE {table} ADD COLUMN c{n} int DEFAULT twice({n}) CHECK (c{n} >= 0)")
        }
        12 => format!("ALTER TABLE {table} ADD COLUMN c{n} mood[]"),
        13 => format!("ALTER TABLE {table} DROP COLUMN c{n} {cascade}"),
        14 => format!("ALTER TABLE {table} ALTER v SET DEFAULT md5('{n}'), ALTER v SET NOT NULL"),
        15 => format!("ALTER TABLE {table} ALTER c{n} TYPE bigint"),
        16 => {
            format!("ALTER TABLE {table} ADD FOREIGN KEY (id) REFERENCES {bare} ON UPDATE CASCADE")
        }
        17 => format!("CREATE INDEX ON {table} (twice(id))"),
        18 => format!(
            "CREATE TRIGGER tr BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION noted()"
        ),
        19 => format!("DROP TRIGGER tr ON {table}"),
        20 => format!("ALTER TABLE {table} DISABLE TRIGGER tr"),
        21 => format!(
            "CREATE POLICY po ON {table} USING (twice(id) > 0 AND id IN (SELECT id FROM {bare}))"
        ),
        22 => format!("CREATE RULE ru AS ON UPDATE TO {table} DO ALSO DELETE FROM {bare}"),
        23 | 24 => format!(
            "CREATE OR REPLACE VIEW {view} AS SELECT t.id, twice(t.id) AS two FROM {table} t"
        ),
        25 => format!(
            "CREATE OR REPLACE VIEW {view} AS SELECT a.id FROM {bare} a JOIN spread b USING (id)"
        ),
        26 => format!("DROP VIEW IF EXISTS {view} {cascade}"),
        27 | 28 => format!("DROP TABLE IF EXISTS {table} {cascade}"),
        29 => format!("ALTER TABLE {table} RENAME TO {bare}x"),
        30 => format!("ALTER TABLE {bare}x SET SCHEMA other"),
        31 => format!(
            "CREATE OR REPLACE FUNCTION f{s}{n}() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM {bare}'"
        ),
        32 => {
            format!("SELECT tutti_{}('{table}')", ["replicate", "home"][random.random_range(0..2)])
        }
        _ => format!("CREATE TEMP TABLE passing{s}{n} (id int)"),
    }
}

/// A statement that changes what all sessions change.
fn statement_of_common(random: &mut StdRng) -> String {
    let n = random.random_range(0..3);
    match random.random_range(0..7) {
        0 => format!("ALTER TABLE common ADD COLUMN c{n} mood"),
        1 => format!("ALTER TABLE common DROP COLUMN c{n}"),
        2 => format!(
            "CREATE TRIGGER tr{n} BEFORE INSERT ON common FOR EACH ROW EXECUTE FUNCTION noted()"
        ),
        3 => format!("DROP TRIGGER tr{n} ON common"),
        4 => format!("ALTER TABLE common ALTER v SET DEFAULT twice({n})"),
        5 => "ALTER TABLE common ALTER v DROP DEFAULT".to_owned(),
        _ => format!("CREATE INDEX IF NOT EXISTS common{n} ON common (twice(id + {n}))"),
    }
}

/// Lets backends of clients' transactions on this node stand still for moments, so that what has been
/// committed on node 1 is published late.
fn slow_down(node: &Endpoint, ended: &AtomicBool) -> Result<()> {
    let mut client = Client::connect(node)?;
    while !ended.load(Ordering::Relaxed) {
        let idle = client.query(
            "SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction' LIMIT 1",
        )?;
        let Some(pid) = idle.concat().pop().flatten() else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        // It may have gone meanwhile.
        let signal = |name: &str| programs::run(Command::new("kill").args([name, &*pid]));
        if signal("-STOP").is_ok() {
            thread::sleep(Duration::from_millis(60));
            signal("-CONT")?;
        }
    }
    Ok(())
}

/// How many statements a session has changed something with.
fn change(endpoint: &Endpoint, seed: u64, s: u32, count: u32) -> Result<u32> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut client = Client::connect(endpoint)?;
    let mut changes = 0;
    let mut said = Vec::new();
    for _ in 0..count {
        let mut texts = vec![statement(&mut random, s)];
        if random.random_bool(0.5) {
            texts = vec![statement_of_common(&mut random)];
            if random.random_bool(0.5) {
                texts.insert(0, "BEGIN; SELECT count(*) FROM spread".to_owned());
                texts.push("COMMIT".to_owned());
            }
        } else if random.random_bool(0.3) {
            texts.insert(0, "BEGIN".to_owned());
            if random.random_bool(0.5) {
                texts.insert(1, "SELECT count(*) FROM spread".to_owned());
            }
            for _ in 0..random.random_range(1..4) {
                if random.random_bool(0.4) {
                    texts.push("SAVEPOINT a".to_owned());
                    texts.push(statement(&mut random, s));
                    texts
                        .push(["ROLLBACK TO a", "RELEASE a"][random.random_range(0..2)].to_owned());
                }
                texts.push(statement(&mut random, s));
                texts.push(format!("SELECT count(*) FROM t{s}{}", random.random_range(0..3)));
            }
            texts.push(["COMMIT", "COMMIT", "ROLLBACK"][random.random_range(0..3)].to_owned());
        }
        for text in texts {
            said.push(text.clone());
            let last = said.len().saturating_sub(12);
            let answer = client
                .simple(&text, b"")
                .with_context(|| format!("seed {seed}, behind {:#?}", &said[last..]))?;
            match answer.error() {
                None => changes += 1,
                Some(error) if error.sqlstate() == "XX000" => {
                    bail!("seed {seed}: {answer}\nbehind {:#?}", &said[last..]);
                }
                Some(_) => (),
            }
        }
    }
    Ok(changes)
}

/// `TUTTI_SEED=7` tries another series.
fn seed() -> u64 {
    environment::number("TUTTI_SEED", 1)
}

fn publishes_what_is(default_distribution: DefaultDistribution, count: u32) -> Result<()> {
    let cluster = start(2, default_distribution)?;
    let endpoint = cluster.endpoint();
    let (node, ended) = (cluster.nodes().swap_remove(1), AtomicBool::new(false));
    thread::scope(|scope| {
        let slow = scope.spawn(|| slow_down(&node, &ended));
        let sessions: Vec<_> = (0..2)
            .map(|s| {
                let endpoint = &endpoint;
                scope.spawn(move || change(endpoint, seed() * 10 + u64::from(s), s, count))
            })
            .collect();
        let changed: Vec<_> = sessions.into_iter().map(thread::ScopedJoinHandle::join).collect();
        ended.store(true, Ordering::Relaxed);
        slow.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        for changes in changed {
            let changes = changes.map_err(|_| anyhow::anyhow!("a client panicked"))??;
            ensure!(count / 3 < changes, "only {changes} statements did anything");
        }
        Ok(())
    })
}

#[test]
fn whatever_changes_is_published_as_it_is() -> Result<()> {
    publishes_what_is(DefaultDistribution::Home, 90)
}

#[test]
fn whatever_changes_is_published_as_it_is_where_tables_are_replicated() -> Result<()> {
    publishes_what_is(DefaultDistribution::Replicated, 50)
}

/// What one statement and the gateway's look at what it did read of node 1's catalogs: rows, by scans
/// of tables and through indexes.
fn rows_read_by(client: &mut Client, change: &str) -> Result<i64> {
    // What an index scan fetches is counted by the index.
    const READ: &str = "WITH read (rel) AS (SELECT unnest('{pg_class,pg_attribute,pg_type,pg_depend,
        pg_constraint,pg_index,pg_attrdef,pg_trigger,pg_rewrite,pg_policy,pg_inherits,pg_proc,
        pg_operator,pg_cast,pg_namespace,pg_sequence}'::regclass[]::oid[]))
        SELECT sum(pg_stat_get_xact_tuples_returned(rel) + pg_stat_get_xact_tuples_fetched(rel)) FROM (
            SELECT rel FROM read UNION ALL
            SELECT i.indexrelid FROM read JOIN pg_index i ON i.indrelid = rel) AS r";
    client.query("BEGIN")?;
    let before: i64 = client.value(READ)?.parse()?;
    client.query(change)?;
    let after: i64 = client.value(READ)?.parse()?;
    client.query("ROLLBACK")?;
    Ok(after - before)
}

/// Counted, not timed: twenty times as many tables, views and foreign keys, and a change of one table
/// reads hardly more rows.
#[test]
fn a_change_of_one_table_reads_as_much_however_many_there_are() -> Result<()> {
    let cluster = start(2, DefaultDistribution::Home)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    for by in ["", " DISTRIBUTE BY HASH (id)"] {
        let name = if by.is_empty() { "home" } else { "hash" };
        client.query(&format!("CREATE TABLE of_{name} (id int PRIMARY KEY, v text){by}"))?;
    }
    let changes = [
        "ALTER TABLE of_home ADD COLUMN w int",
        "ALTER TABLE of_hash ADD COLUMN w int",
        "CREATE INDEX ON of_home (v)",
        "CREATE INDEX ON of_hash (v)",
        "CREATE TABLE more (id int PRIMARY KEY, v text DEFAULT 'x')",
        "CREATE TABLE more (id int PRIMARY KEY, v text DEFAULT 'x') DISTRIBUTE BY HASH (id)",
        "DROP TABLE of_home",
        "DROP TABLE of_hash",
    ];
    let mut counts = Vec::new();
    for tables in [10, 200] {
        let mut texts = vec!["BEGIN".to_owned()];
        for i in 0..tables {
            let by = if i % 10 == 0 { "DISTRIBUTE BY REPLICATED" } else { "" };
            texts.push(format!(
                "CREATE TABLE many{tables}_{i} (id serial PRIMARY KEY, v text DEFAULT 'x') {by}"
            ));
            texts.push(format!(
                "CREATE TABLE part{tables}_{i} (id int REFERENCES many{tables}_{i})"
            ));
            texts.push(format!("CREATE VIEW view{tables}_{i} AS SELECT * FROM many{tables}_{i}"));
        }
        texts.push("COMMIT".to_owned());
        for text in &texts {
            client.query(text)?;
        }
        // As autovacuum would: plans of when the catalogs were small are made again.
        Client::connect(&cluster.nodes()[0])?.query("ANALYZE")?;
        // The first time is the server's: what it caches for itself.
        for change in changes {
            rows_read_by(&mut client, change)?;
        }
        let read = changes.map(|change| rows_read_by(&mut client, change));
        counts.push(read.into_iter().collect::<Result<Vec<_>>>()?);
    }
    for ((change, few), many) in changes.iter().zip(&counts[0]).zip(&counts[1]) {
        ensure!(
            0 < *few && *many <= few + few / 4 + 50,
            "{change} reads {few} rows of catalogs beside 10 tables, and {many} beside 200 more"
        );
    }
    Ok(())
}

/// The oracle itself: a change past the gateway is one that it has not published.
#[test]
fn what_is_missing_is_found() -> Result<()> {
    let mut cluster = start(2, DefaultDistribution::Home)?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE t (id int)")?;
    let mut node = Client::connect(&cluster.nodes()[0])?;
    node.query("CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION noted()")?;
    cluster.leave_unaudited("a change was made past the gateway");
    // Whatever this says, it is the last that this session is sent.
    let ended = client.query("CREATE TABLE u (id int)").and_then(|_| client.query("SELECT 1"));
    ensure!(ended.is_err(), "a trigger that is not published was not missed");
    Ok(())
}
