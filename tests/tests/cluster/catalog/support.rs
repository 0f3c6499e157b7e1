//! A cluster for one test, and what tests do to it.
//!
//! Owns: connections to every node, and DDL as the gateway's executor does it.

use std::collections::BTreeMap;

use tutti_cluster::catalog::{self, choose_placement, note_change, register};
use tutti_cluster::init;
use tutti_embed::Cluster;
use tutti_gateway::{Config, DefaultDistribution, GatewayError};
use tutti_link::seals::Seals;
use tutti_link::{Credentials, Endpoint, NodeConnection, NodeError};
use tutti_sql::catalog::{Catalog, NodeId};
use tutti_sql::plan::CreatedTable;
use tutti_sql::statement::DistributeBy;

pub type Result<T = ()> = std::result::Result<T, anyhow::Error>;

pub fn config(cluster: &Cluster) -> Config {
    tutti_tests::gateway::config(cluster, "127.0.0.1:0".to_owned())
}

pub type Connections = BTreeMap<NodeId, NodeConnection>;

pub async fn connect(config: &Config) -> Result<Connections> {
    let mut connections = Connections::new();
    for node in &config.nodes {
        let connection = NodeConnection::open(
            &Endpoint::new(node, "postgres"),
            "postgres",
            &Credentials::Nothing,
            &[],
        )
        .await?;
        connections.insert(NodeId(node.id), connection);
    }
    Ok(connections)
}

/// Servers that are a cluster, with a connection to each.
pub async fn initialised(nodes: u16) -> Result<(Cluster, Config, Connections)> {
    let cluster = Cluster::create_temp(nodes)?;
    let config = config(&cluster);
    init(&config, false).await?;
    let connections = connect(&config).await?;
    Ok((cluster, config, connections))
}

pub async fn everywhere(connections: &mut Connections, sql: &str) -> Result {
    for connection in connections.values_mut() {
        connection.query(sql).await?;
    }
    Ok(())
}

pub async fn load(connections: &mut Connections) -> Result<Catalog> {
    let home = self::home(connections);
    let loaded = catalog::load(home).await?;
    let again = catalog::reload(home, &loaded).await?;
    assert_eq!((loaded.version, &loaded.relations), (again.version, &again.relations));
    Ok(loaded)
}

pub async fn text(connection: &mut NodeConnection, sql: &str) -> Result<String> {
    Ok(connection.rows(sql).await?.text(0, 0).unwrap_or("NULL").to_owned())
}

pub fn created(name: &str, distribute_by: Option<DistributeBy>) -> CreatedTable {
    CreatedTable {
        schema: None,
        name: name.to_owned(),
        distribute_by,
        parent: None,
        follows: false,
        if_not_exists: false,
        filled_by: None,
    }
}

pub fn by_hash(column: &str) -> Option<DistributeBy> {
    Some(DistributeBy::Hash(column.to_owned()))
}

/// What the executor does for a CREATE TABLE: on all nodes, registered, in the open transactions.
pub async fn create(connections: &mut Connections, sql: &str, created: &CreatedTable) -> Result {
    everywhere(connections, sql).await?;
    let catalog = load(connections).await?;
    let home = self::home(connections);
    let chosen = choose_placement(home, DefaultDistribution::Replicated, created, &catalog).await?;
    let Some(registration) = chosen.map(|chosen| chosen.registration) else { return Ok(()) };
    let seals = Seals::default();
    for connection in connections.values_mut() {
        catalog::learn_secret(&seals, connection).await?;
        // A seal is good in one transaction.
        let is_outside = connection.is_outside_transaction();
        if is_outside {
            connection.query("BEGIN").await?;
        }
        register(connection, &registration, &seals).await?;
        note_change(connection).await?;
        if is_outside {
            connection.query("COMMIT").await?;
        }
    }
    Ok(())
}

pub fn sqlstate(error: &anyhow::Error) -> Option<String> {
    if let Some(NodeError::Refused(fields)) = error.downcast_ref() {
        return Some(fields.sqlstate().to_owned());
    }
    error.downcast_ref::<GatewayError>().map(|error| error.to_fields().sqlstate().to_owned())
}

pub fn home(connections: &mut Connections) -> &mut NodeConnection {
    at(connections, 1)
}

pub fn at(connections: &mut Connections, node: u16) -> &mut NodeConnection {
    connections.get_mut(&NodeId(node)).expect("the cluster has that node")
}
