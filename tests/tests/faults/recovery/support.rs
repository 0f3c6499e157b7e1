//! A cluster for one test, and what tests do to it.
//!
//! Owns: connections to the nodes past the gateway, and the lab's workload of transfers as these tests
//! run it: between chosen accounts, with entries, checked when all has come to rest.

use std::time::{Duration, Instant};

use anyhow::ensure;
use tutti_embed::Cluster;
use tutti_gateway::{Config, init};
use tutti_lab::workload::Workload;
use tutti_lab::workload::transfers::{Books, Transfers};
pub use tutti_lab::workload::{Asked, Believed};
use tutti_link::{Credentials, NodeConnection};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::workload::{at_once, sessions};
use tutti_tests::{gateway, servers};
use tutti_txn::gid::Gid;

pub type Result<T = (), E = anyhow::Error> = std::result::Result<T, E>;

/// Servers with the catalog on them, and no gateway.
pub async fn initialised(nodes: u16) -> Result<(Cluster, Config)> {
    let servers = servers::durable(nodes)?;
    let config = gateway::config(&servers, "127.0.0.1:0".to_owned());
    init(&config, false).await?;
    Ok((servers, config))
}

/// A connection to a node; node 1 has number 1.
pub async fn open(config: &Config, node: u16) -> Result<NodeConnection> {
    let place = &config.nodes[usize::from(node) - 1];
    Ok(NodeConnection::open(
        &tutti_link::Endpoint::new(place, "postgres"),
        "postgres",
        &Credentials::Nothing,
        &[],
    )
    .await?)
}

/// The first value of an answer.
pub async fn text(connection: &mut NodeConnection, sql: &str) -> Result<String> {
    Ok(connection.rows(sql).await?.text(0, 0).unwrap_or("NULL").to_owned())
}

/// A transaction of the cluster `test`.
pub fn gid(incarnation: u64, number: u64, anchor: u16) -> Gid {
    format!("tutti_test_{incarnation}_{number}_{anchor}").parse().expect("one of ours")
}

pub const ACCOUNTS: i64 = 40;
pub const OPENING_BALANCE: i64 = 1_000;
/// How long everything may take to settle.
pub const REST_LIMIT: Duration = Duration::from_secs(60);

/// What is moved, and what must hold of it.
fn transfers() -> Transfers {
    Transfers::new(ACCOUNTS, OPENING_BALANCE, Books::Entries)
}

/// Makes accounts and entries, one entry per transfer and account.
pub fn make_accounts(gateway: &Endpoint) -> Result {
    at_once(transfers().setup(&mut Client::connect(gateway)?))
}

/// One account on each of the first two nodes.
pub fn accounts_on_two_nodes(nodes: &[Endpoint]) -> Result<(i64, i64)> {
    let one_of = |node: &Endpoint| -> Result<i64> {
        Ok(Client::connect(node)?.value("SELECT min(id) FROM account")?.parse()?)
    };
    Ok((one_of(&nodes[0])?, one_of(&nodes[1])?))
}

/// Moves 1 from one account to another. Refused: the session may be in a failed transaction.
pub fn transfer(client: &mut Client, number: i64, from: i64, to: i64) -> Believed {
    let outcome = at_once(transfers().transfer(client, number, [(from, -1), (to, 1)]));
    outcome.expect("an account is one row").believed
}

/// Tries until it works, at most [`REST_LIMIT`].
pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + REST_LIMIT;
    loop {
        match attempt() {
            Ok(value) => return Ok(value),
            Err(error) if deadline < Instant::now() => {
                return Err(error.context(format!("not in {REST_LIMIT:?}: {what}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Waits until nothing is prepared on any node.
pub fn come_to_rest(nodes: &[Endpoint]) -> Result {
    eventually("no prepared transaction is left", || {
        for node in nodes {
            let listed = Client::connect(node)?
                .value("SELECT coalesce(string_agg(gid, ' '), '') FROM pg_prepared_xacts")?;
            ensure!(listed.is_empty(), "prepared on port {}: {listed}", node.port);
        }
        Ok(())
    })
}

/// Checks nodes at rest: each transfer is there whole or not at all, as its client believes, and so
/// is the money. Through the gateway the same is seen, and what was unknown is reported.
pub fn check(nodes: &[Endpoint], gateway: &Endpoint, asked: &Asked) -> Result {
    let mut client = eventually("the gateway reads all nodes", || {
        let mut client = Client::connect(gateway)?;
        client.value(transfers().sum_sql())?;
        Ok(client)
    })?;
    at_once(transfers().check(&mut sessions(nodes)?, Some(&mut client), asked))?;
    Ok(())
}
