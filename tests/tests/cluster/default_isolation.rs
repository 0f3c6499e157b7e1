//! The isolation level that a session begins with, given by its role or by its startup options: it
//! holds over several nodes as on one PostgreSQL.
//!
//! Owns: levels that come from outside the session; those that it sets itself are in
//! `tests/anomalies/set_transaction.txt`. And that whatever statement makes a transaction one over
//! several nodes does so at every level.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::runtime::Runtime;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};
use tutti_tests::answer::Answer;
use tutti_tests::client::{Client, Endpoint, Flight, Request};
use tutti_tests::gateway::TestCluster;
use tutti_tests::interleaving::script::Level;
use tutti_tests::servers;

/// Rows enough for every node to have some.
const ROWS: usize = 16;

/// Who says the level.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// ALTER ROLE … SET.
    Role,
    /// `options` of the startup packet.
    Startup,
}

fn config(endpoint: &Endpoint, source: Source, level: Level) -> Config {
    let mut config = Config::new();
    config.host("127.0.0.1").port(endpoint.port).dbname("postgres");
    match source {
        Source::Role => config.user("careful"),
        Source::Startup => {
            let level = level.name().replace(' ', "\\ ");
            config.user("postgres").options(format!("-c default_transaction_isolation={level}"))
        }
    };
    config
}

/// What a session sees of its level, of one row and of all rows while another changes them.
async fn observe(config: &Config, other: &mut Client) -> Result<Vec<String>> {
    let (client, connection) = config.connect(NoTls).await.context("connect")?;
    let connection = tokio::spawn(connection);
    let mut seen = Vec::new();
    for statement in [
        "SHOW default_transaction_isolation",
        "SHOW transaction_isolation",
        "SELECT sum(balance) FROM account",
        "BEGIN",
        "SELECT balance FROM account WHERE id = 1",
        "(the other)",
        "SELECT min(balance), max(balance) FROM account",
        "SELECT balance FROM account WHERE id = 1",
        "SHOW transaction_isolation",
        "COMMIT",
        "UPDATE account SET balance = balance - 1",
        "SELECT min(balance), max(balance) FROM account",
    ] {
        if statement == "(the other)" {
            other.query("UPDATE account SET balance = balance + 1")?;
            continue;
        }
        let messages = client.simple_query(statement).await.context(statement)?;
        for message in messages {
            if let SimpleQueryMessage::Row(row) = message {
                let values: Vec<_> = (0..row.len()).map(|n| row.get(n).unwrap_or("NULL")).collect();
                seen.push(format!("{statement}: {}", values.join(" ")));
            }
        }
    }
    drop(client);
    connection.await?.context("end the session")?;
    Ok(seen)
}

fn observe_all(endpoint: &Endpoint, placed: &str) -> Result<Vec<String>> {
    let mut owner = Client::connect(endpoint)?;
    owner.query(&format!("CREATE TABLE account (id int PRIMARY KEY, balance int){placed}"))?;
    owner.query(&format!("INSERT INTO account SELECT n, 0 FROM generate_series(1, {ROWS}) n"))?;
    owner.query("CREATE ROLE careful LOGIN")?;
    owner.query("GRANT ALL ON account TO careful")?;
    let runtime = Runtime::new()?;
    let mut seen = Vec::new();
    for level in Level::ALL {
        let name = level.name();
        owner.query(&format!("ALTER ROLE careful SET default_transaction_isolation = '{name}'"))?;
        for source in [Source::Role, Source::Startup] {
            let observed = runtime.block_on(observe(&config(endpoint, source, level), &mut owner));
            seen.push(format!("{name} by {source:?}"));
            match observed {
                Ok(observed) => seen.extend(observed),
                Err(error) => seen.push(format!("{error:#}")),
            }
        }
    }
    Ok(seen)
}

#[test]
fn roles_and_startup_options_give_the_level_on_all_nodes() -> Result<()> {
    let plain = servers::start(1)?;
    let expected = observe_all(&servers::endpoint(&plain, 0), "")?;
    ensure!(expected.iter().any(|line| line.contains("serializable")), "{expected:#?}");
    let mut cluster = TestCluster::start(2)?;
    let found = observe_all(&cluster.endpoint(), " DISTRIBUTE BY HASH (id)")?;
    for node in cluster.nodes() {
        let rows: usize = Client::connect(&node)?.value("SELECT count(*) FROM account")?.parse()?;
        ensure!(rows > 0 && rows < ROWS, "a node has {rows} rows of {ROWS}");
    }
    assert_eq!(expected, found);
    cluster.stop_gateway()
}

/// Kinds of statements, on the table `{t}` of 40 rows.
const KINDS: [&str; 22] = [
    "SELECT id, v FROM {t}",
    "SELECT v, count(*) FROM {t} GROUP BY v",
    "SELECT id FROM {t} WHERE v = 1 FOR UPDATE",
    "SELECT count(*) FROM {t} JOIN l ON l.v = {t}.v",
    "INSERT INTO {t} VALUES (101, 1), (102, 2), (103, 3), (104, 4), (105, 5)",
    "INSERT INTO {t} VALUES (101, 1), (102, 2), (103, 3), (104, 4), (105, 5) RETURNING id, v",
    "INSERT INTO {t} SELECT id + 100, v FROM {t}",
    "INSERT INTO {t} SELECT id + 100, v FROM {t} RETURNING id",
    "INSERT INTO {t} SELECT id + 100, 0 FROM l RETURNING *",
    "INSERT INTO l SELECT id + 100, v FROM {t}",
    "INSERT INTO {t} VALUES (101, adds(1)), (102, adds(2)), (103, adds(3)) RETURNING v",
    "INSERT INTO {t} (v) VALUES (1), (2), (3), (4)",
    "UPDATE {t} SET v = v + 1",
    "UPDATE {t} SET v = v + 1 RETURNING id, v",
    "UPDATE {t} SET v = l.v FROM l WHERE l.id = {t}.id",
    "UPDATE {t} SET id = id + 100",
    "DELETE FROM {t} WHERE v = 1 RETURNING id",
    "COPY {t} FROM STDIN",
    "COPY {t} TO STDOUT",
    "TRUNCATE {t}",
    "CREATE TABLE made AS SELECT id, v FROM {t}",
    "DECLARE c CURSOR FOR SELECT id FROM {t}",
];

const PLACES: [(&str, &str); 4] = [
    ("h", " DISTRIBUTE BY HASH (id)"),
    ("rr", " DISTRIBUTE BY ROUND ROBIN"),
    ("r", " DISTRIBUTE BY REPLICATED"),
    ("l", " DISTRIBUTE BY HOME"),
];

/// What the transaction has done before.
const BEFORE: [&str; 3] = ["", "SELECT v FROM {t} WHERE id = 1", "UPDATE l SET v = v + 1"];

/// Rows in no order, the tag or the SQLSTATE.
fn shown(answer: &Answer) -> String {
    match answer.error() {
        Some(error) => error.sqlstate().to_owned(),
        None => {
            let mut rows: Vec<String> =
                answer.texts().iter().map(|row| format!("{row:?}")).collect();
            rows.sort_unstable();
            format!("{rows:?}")
        }
    }
}

fn in_transaction(
    client: &mut Client,
    begin: &str,
    before: &str,
    statement: &str,
    is_extended: bool,
) -> Result<Vec<String>> {
    let data = b"201\t1\n202\t2\n203\t3\n204\t4\n";
    let mut seen = Vec::new();
    for sql in [begin, before].iter().filter(|sql| !sql.is_empty()) {
        seen.push(shown(&client.simple(sql, b"")?));
    }
    let answer = match is_extended {
        true => {
            let request = Request { sql: statement, types: &[], arguments: &[], row_limit: 0 };
            client.extended(&request, Flight::TwoFlights, data)?
        }
        false => client.simple(statement, data)?,
    };
    seen.push(shown(&answer));
    for sql in ["SELECT count(*), sum(v) FROM l", "ROLLBACK"] {
        seen.push(shown(&client.simple(sql, b"")?));
    }
    Ok(seen)
}

#[test]
fn whatever_statement_makes_a_transaction_one_over_several_nodes_does_so_at_every_level()
-> Result<()> {
    let plain = servers::start(1)?;
    let mut cluster = TestCluster::start(3)?;
    let mut expected = Client::connect(&servers::endpoint(&plain, 0))?;
    let mut subject = Client::connect(&cluster.endpoint())?;
    for (name, placed) in PLACES {
        for (client, placed) in [(&mut expected, ""), (&mut subject, placed)] {
            // Rows that are dealt out cannot be unique.
            let key = if name == "rr" { "" } else { " PRIMARY KEY" };
            client.query(&format!("CREATE TABLE {name} (id serial{key}, v int){placed}"))?;
            client.query(&format!(
                "INSERT INTO {name} SELECT g, g % 4 FROM generate_series(1, 40) g"
            ))?;
        }
    }
    for client in [&mut expected, &mut subject] {
        client.query(
            "CREATE FUNCTION adds(x int) RETURNS int LANGUAGE plpgsql AS \
             'BEGIN RETURN x + 1; END'",
        )?;
    }
    let (mut answered, mut refused) = (0, 0);
    for level in Level::ALL {
        for kind in KINDS {
            for (name, _) in PLACES {
                for (number, before) in BEFORE.iter().enumerate() {
                    let begin = format!("BEGIN ISOLATION LEVEL {}", level.name());
                    let (statement, before) =
                        (kind.replace("{t}", name), before.replace("{t}", name));
                    let is_extended = number % 2 == 1;
                    let run = |client: &mut Client| {
                        in_transaction(client, &begin, &before, &statement, is_extended)
                    };
                    let about = || format!("{begin}; {before}; {statement}");
                    let found = run(&mut subject).with_context(about)?;
                    if found.iter().any(|seen| seen == "0A000") {
                        refused += 1;
                        continue;
                    }
                    answered += 1;
                    let should = run(&mut expected).with_context(about)?;
                    ensure!(found == should, "{}: {found:?} instead of {should:?}", about());
                }
            }
        }
    }
    ensure!(4 * refused < answered, "{answered} answered, {refused} refused");
    cluster.stop_gateway()
}

/// Where the accounts of [`what_a_statement_reads_is_of_one_moment`] are.
const PLACED: [(&str, &str); 4] =
    [("h", "HOME"), ("a", "HASH (id)"), ("o", "ROUND ROBIN"), ("r", "REPLICATED")];
/// All the money there is.
const TOTAL: &str = "4000";

/// Statements that read all accounts and tell the sum.
const SUMS: [&str; 10] = [
    "SELECT s FROM v",
    "SELECT sum(n) FROM (SELECT n FROM h UNION ALL SELECT n FROM a UNION ALL SELECT n FROM r UNION ALL SELECT n FROM o) q",
    "WITH x AS (SELECT sum(n) AS s FROM h), y AS (SELECT sum(n) AS s FROM a), z AS (SELECT sum(n) AS s FROM o),
        w AS (SELECT sum(n) AS s FROM r) SELECT x.s + y.s + z.s + w.s FROM x, y, z, w",
    "INSERT INTO out_home SELECT 1, s FROM v RETURNING s",
    "INSERT INTO out_hash SELECT 1, s FROM v RETURNING s",
    "INSERT INTO out_copies SELECT 1, s FROM v RETURNING s",
    "UPDATE one_home SET s = (SELECT s FROM v) RETURNING s",
    "UPDATE one_copies SET s = (SELECT s FROM v) RETURNING s",
    "DELETE FROM out_home WHERE s = 0 OR id = (SELECT -s FROM v); SELECT s FROM v",
    "SELECT sum(n) FROM (SELECT n FROM a UNION ALL SELECT n FROM o UNION ALL SELECT n FROM r) q, (SELECT 1) w
        HAVING sum(n) + (SELECT sum(n) FROM h) <> 4000 UNION ALL SELECT 4000",
];

/// Moves money between two accounts of different tables until `stop`. A transaction that has to be
/// retried is given up.
fn move_money(endpoint: &Endpoint, seed: usize, stop: Instant) -> Result<usize> {
    let mut client = Client::connect(endpoint)?;
    let mut moved = 0;
    let mut step = seed;
    while Instant::now() < stop {
        step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = |bits: usize, among: usize| (step >> bits) % among;
        let from = pick(33, 4);
        let to = (from + 1 + pick(37, 3)) % 4;
        let amount = 1 + pick(41, 9);
        let statements = [
            "BEGIN".to_owned(),
            format!(
                "UPDATE {} SET n = n - {amount} WHERE id = {}",
                PLACED[from].0,
                1 + pick(45, 10)
            ),
            format!("UPDATE {} SET n = n + {amount} WHERE id = {}", PLACED[to].0, 1 + pick(49, 10)),
            "COMMIT".to_owned(),
        ];
        match statements.iter().try_for_each(|sql| client.query(sql).map(drop)) {
            Ok(()) => moved += 1,
            Err(_) => drop(client.query("ROLLBACK")?),
        }
    }
    Ok(moved)
}

/// At READ COMMITTED too, and where it writes what it has read: half a transaction is never seen.
#[test]
fn what_a_statement_reads_is_of_one_moment() -> Result<()> {
    const RUN: Duration = Duration::from_secs(12);
    let cluster = TestCluster::start(3)?;
    let mut owner = Client::connect(&cluster.endpoint())?;
    for (table, placed) in PLACED {
        owner.query(&format!("CREATE TABLE {table} (id int, n int) DISTRIBUTE BY {placed}"))?;
        owner.query(&format!("INSERT INTO {table} SELECT g, 100 FROM generate_series(1, 10) g"))?;
    }
    for (name, placed) in [("home", "HOME"), ("hash", "HASH (s)"), ("copies", "REPLICATED")] {
        owner
            .query(&format!("CREATE TABLE out_{name} (id int, s bigint) DISTRIBUTE BY {placed}"))?;
        owner
            .query(&format!("CREATE TABLE one_{name} (id int, s bigint) DISTRIBUTE BY {placed}"))?;
        owner.query(&format!("INSERT INTO one_{name} VALUES (1, 0)"))?;
    }
    owner.query(
        "CREATE VIEW v AS SELECT (SELECT sum(n) FROM h) + (SELECT sum(n) FROM a) + (SELECT sum(n) FROM r)
            + (SELECT sum(n) FROM o) AS s",
    )?;
    let endpoint = cluster.endpoint();
    let stop = Instant::now() + RUN;
    let movers: Vec<_> = (1..=2)
        .map(|seed| {
            let endpoint = endpoint.clone();
            std::thread::spawn(move || move_money(&endpoint, seed, stop))
        })
        .collect();
    let mut readings = 0;
    while Instant::now() < stop {
        for sql in SUMS {
            for is_block in [false, true] {
                if is_block {
                    owner.query("BEGIN")?;
                }
                let seen = owner.value(sql);
                if is_block {
                    owner.query("COMMIT")?;
                }
                let seen = seen.with_context(|| sql.to_owned())?;
                ensure!(seen == TOTAL, "in a block: {is_block}: {sql}: {seen}");
                readings += 1;
            }
        }
        for make in
            ["CREATE TEMPORARY TABLE made AS SELECT s FROM v", "SELECT s INTO TEMP made FROM v"]
        {
            owner.query(make).with_context(|| make.to_owned())?;
            let seen = owner.value("SELECT s FROM made")?;
            ensure!(seen == TOTAL, "{make}: {seen}");
            owner.query("DROP TABLE made")?;
        }
    }
    for mover in movers {
        let moved = mover.join().expect("a mover does not panic")?;
        ensure!(0 < moved, "nothing was moved beside {readings} readings");
    }
    Ok(())
}
