//! A cluster for one test, and what tests do to it.
//!
//! Owns: connections to the nodes past the gateway.

use tutti_embed::Cluster;
use tutti_gateway::node::NodeConnection;
use tutti_gateway::{Config, init};
use tutti_tests::{gateway, servers};
use tutti_txn::gid::Gid;

pub type Result<T = (), E = anyhow::Error> = std::result::Result<T, E>;

/// Servers with the catalog on them, and no gateway.
pub async fn initialised(nodes: u16) -> Result<(Cluster, Config)> {
    let servers = servers::start(nodes)?;
    let config = gateway::config(&servers, "127.0.0.1:0".to_owned());
    init(&config, false).await?;
    Ok((servers, config))
}

/// A connection to a node; node 1 has number 1.
pub async fn open(config: &Config, node: u16) -> Result<NodeConnection> {
    let place = &config.nodes[usize::from(node) - 1];
    Ok(NodeConnection::open(place, "postgres", "postgres", &[]).await?)
}

/// The first value of an answer.
pub async fn text(connection: &mut NodeConnection, sql: &str) -> Result<String> {
    Ok(connection.rows(sql).await?.text(0, 0).unwrap_or("NULL").to_owned())
}

/// A transaction of the cluster `test`.
pub fn gid(incarnation: u64, number: u64, anchor: u16) -> Gid {
    format!("tutti_test_{incarnation}_{number}_{anchor}").parse().expect("one of ours")
}
