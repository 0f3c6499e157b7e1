//! The isolation level that a session begins with, given by its role or by its startup options: it
//! holds over several nodes as on one PostgreSQL.
//!
//! Owns: levels that come from outside the session; those that it sets itself are in
//! `tests/anomalies/set_transaction.txt`.

use anyhow::{Context, Result, ensure};
use tokio::runtime::Runtime;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};
use tutti_tests::client::{Client, Endpoint};
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
