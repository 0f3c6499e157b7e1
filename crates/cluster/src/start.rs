//! What a gateway does with its cluster before it serves clients.
//!
//! Owns: the order: the nodes are the right ones, the lock, the fence, what is in doubt is settled, the
//! catalog is read. Only then is there a [`Cluster`].
//! Never: lets a client in.
//! Start reading at [`start`].

use std::sync::Arc;

use tutti_link::connection::{Durability, open_own};
use tutti_link::seals::Seals;
use tutti_link::translation::OidMaps;
use tutti_link::{Endpoint, Endpoints, NodeConnection, NodeError};
use tutti_settings::{Config, DefaultDistribution};
use tutti_sql::catalog::NodeId;

use crate::catalog::{self, NodeOids, learn_secret, oids};
use crate::cluster::{Cluster, SessionsAtWork};
use crate::error::GatewayError;
use crate::recovery::{Recoverer, fence, gateway_lock, next_incarnation};
use crate::setup::{check_default, check_identity};

/// Takes the cluster over. Everything that an earlier gateway left in doubt is settled, on the nodes that are
/// reachable. Returns the cluster, and the connection whose life is the gateway's lock.
///
/// Requires: [`Config::check`] has passed.
///
/// Errors: node 1 cannot be reached; nodes belong to another cluster, are served by another gateway,
/// or hold transactions that cannot be settled.
pub async fn start(
    config: Config,
    sessions: Arc<dyn SessionsAtWork>,
) -> Result<(Arc<Cluster>, NodeConnection), GatewayError> {
    let endpoints = Endpoints::new(&config);
    let there = check_nodes(&config, &endpoints).await?;
    let mut home = open(endpoints.of(NodeId::HOME)).await?;
    let mut lock = open(endpoints.of(NodeId::HOME)).await?;
    gateway_lock(&mut lock).await?;
    let seals = learn_seals(&there).await?;
    let incarnation = next_incarnation(&mut home).await?;
    take_over(&config, &endpoints, &there, incarnation).await?;
    check_default(&mut home, &config).await?;
    let mut catalog = catalog::load(&mut home).await?;
    catalog.home_by_default = config.default_distribution == DefaultDistribution::Home;
    let oids = read_oids(&there, &mut home).await?;
    home.close();
    let cluster = Cluster::new(config, endpoints, incarnation, catalog, oids, seals, sessions);
    Ok((Arc::new(cluster), lock))
}

/// Opens a connection on which the gateway starts, or holds its lock.
pub(crate) async fn open(endpoint: &Endpoint) -> Result<NodeConnection, GatewayError> {
    Ok(open_own(endpoint, "tutti gateway", Durability::Full).await?)
}

/// Refuses servers that are not the configured nodes of one cluster. Returns those that are reachable;
/// the others are checked when they come back (`recovery::watch`).
///
/// Errors: node 1 is unreachable.
async fn check_nodes(
    config: &Config,
    endpoints: &Endpoints,
) -> Result<Vec<Endpoint>, GatewayError> {
    let mut cluster_id = None;
    let mut there = Vec::new();
    for endpoint in endpoints.iter() {
        let mut connection = match open(endpoint).await {
            Err(GatewayError::Node(error @ NodeError::Connect { .. })) if cluster_id.is_some() => {
                tracing::warn!(node = %endpoint.node(), %error, "a node is away; starting without it");
                continue;
            }
            opened => opened?,
        };
        let id = check_identity(&mut connection, config, cluster_id.as_deref()).await?;
        cluster_id.get_or_insert(id);
        connection.close();
        there.push(endpoint.clone());
    }
    Ok(there)
}

/// Reads the secrets by which this gateway proves itself to the nodes; completes the schema of a
/// cluster created by an earlier version.
async fn learn_seals(there: &[Endpoint]) -> Result<Seals, GatewayError> {
    let seals = Seals::default();
    for endpoint in there {
        let mut connection = open(endpoint).await?;
        learn_secret(&seals, &mut connection).await?;
        connection.close();
    }
    Ok(seals)
}

/// Ends what earlier gateways have left running, and settles what they have left in doubt, on
/// reachable nodes. For the others their watch does the same when they come back.
async fn take_over(
    config: &Config,
    endpoints: &Endpoints,
    there: &[Endpoint],
    incarnation: u64,
) -> Result<(), GatewayError> {
    let mut fenced = 0;
    for endpoint in there {
        let mut connection = open(endpoint).await?;
        match fence(&mut connection, incarnation).await {
            Ok(()) => fenced += 1,
            Err(error @ GatewayError::Unfenced { .. }) => {
                tracing::warn!(node = %endpoint.node(), %error, "the node stays closed");
            }
            Err(error) => return Err(error),
        }
        connection.close();
    }
    if fenced < config.nodes.len() {
        return Ok(());
    }
    let mut recoverer = Recoverer::by(config, endpoints)?;
    let settled = recoverer.settle_in_doubt(incarnation).await?;
    let forgotten = recoverer.clean_decisions(incarnation).await?;
    tracing::info!(?settled, forgotten, incarnation, "settled what was in doubt");
    Ok(())
}

/// How the OIDs of the reachable nodes differ from node 1's.
async fn read_oids(there: &[Endpoint], home: &mut NodeConnection) -> Result<OidMaps, GatewayError> {
    let at_home = NodeOids::load(home).await?;
    let mut others = Vec::new();
    for endpoint in &there[1..] {
        let mut connection = open(endpoint).await?;
        others.push((connection.node(), NodeOids::load(&mut connection).await?));
        connection.close();
    }
    Ok(oids::compare(&at_home, &others))
}
