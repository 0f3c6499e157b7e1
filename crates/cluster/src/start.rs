//! What a gateway does with its cluster before it serves clients.
//!
//! Owns: the order: the nodes are the right ones, the lock, the fence, what is in doubt is settled, the
//! catalog is read. Only then is there a [`Cluster`].
//! Never: lets a client in.
//! Start reading at [`start`].

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tutti_configuration::{Config, DefaultDistribution};
use tutti_link::connection::until_succeeded;
use tutti_link::seals::Seals;
use tutti_link::translation::OidMaps;
use tutti_link::{Endpoint, Endpoints, NodeConnection, NodeError};
use tutti_sql::catalog::NodeId;
use tutti_wire::sqlstate;

use crate::catalog::{self, NodeOids, learn_secret, oids};
use crate::cluster::{Cluster, SessionsAtWork};
use crate::error::{GatewayError, in_full};
use crate::gateways::announce;
use crate::recovery::{
    LOCK_INTERVAL, Recoverer, fence, gateway_lock, next_incarnation, open, timelines,
};
use crate::setup::{check_default, check_identity};

/// How long a node may take for one step of a start. (A commit that waits for a standby that is away takes
/// for ever.)
const STEP_PATIENCE: Duration = Duration::from_secs(30);

/// Takes the cluster over. Everything that an earlier gateway left in doubt is settled, on the nodes that are
/// reachable. Returns the cluster, and the connection whose life is the gateway's lock.
///
/// A node other than node 1 that cannot be reached, does not answer, or does not let the gateway in yet is left
/// closed; its watch does what is missing here when it comes back.
///
/// `patience`: how long to wait for the lock of another gateway, which may just have been killed.
///
/// Requires: [`Config::check`] has passed.
///
/// Errors: node 1 cannot be reached; nodes belong to another cluster, or hold transactions that cannot be settled;
/// [`GatewayError::GatewayRunning`] where another gateway leads.
pub async fn start(
    config: Config,
    sessions: Arc<dyn SessionsAtWork>,
    patience: Duration,
) -> Result<(Arc<Cluster>, NodeConnection), GatewayError> {
    let endpoints = Endpoints::new(&config);
    timelines::ask_all(&endpoints).await;
    let there = check_nodes(&config, &endpoints).await?;
    let mut lock = open(endpoints.of(NodeId::HOME)).await?;
    gateway_lock(&mut lock, patience).await?;
    let (pid, _) = lock.backend_key();
    let mut home = open(endpoints.of(NodeId::HOME)).await?;
    let taking_over = take_the_lead(config, sessions, endpoints.clone(), there, pid);
    let cluster = tokio::select! {
        cluster = taking_over => cluster?,
        error = keep(&mut lock) => return Err(error.into()),
        // The commits of a former primary wait for those who have taken its place.
        error = until_succeeded(&mut home, endpoints.of(NodeId::HOME)) => return Err(error.into()),
    };
    home.close();
    Ok((Arc::new(cluster), lock))
}

/// Those that follow take one that says nothing for dead. Ends by an error only.
async fn keep(lock: &mut NodeConnection) -> NodeError {
    loop {
        sleep(LOCK_INTERVAL).await;
        if let Err(error) = lock.query("SELECT").await {
            return error;
        }
    }
}

/// What the one with the lock does, which session `lock` has.
async fn take_the_lead(
    config: Config,
    sessions: Arc<dyn SessionsAtWork>,
    endpoints: Endpoints,
    there: Vec<Endpoint>,
    lock: i32,
) -> Result<Cluster, GatewayError> {
    let mut home = open(endpoints.of(NodeId::HOME)).await?;
    let there = complete_schemas(there).await?;
    let incarnation = within(NodeId::HOME, next_incarnation(&mut home)).await?;
    let there = take_over(&config, &endpoints, there, incarnation).await?;
    check_default(&mut home, &config).await?;
    let mut catalog = catalog::load(&mut home).await?;
    catalog.home_by_default = config.default_distribution == DefaultDistribution::Home;
    let seals = Seals::default();
    let oids = get_to_know(&there, &mut home, &seals).await?;
    announce(&mut home, &config, incarnation, Some(lock)).await?;
    home.close();
    Ok(Cluster::new(config, endpoints, incarnation, catalog, oids, seals, sessions))
}

/// Takes a step of the start on a node. `None`: the node is away, and the gateway starts without it.
///
/// Errors: node 1 is away; what is wrong with a node that is there.
async fn step<T>(
    endpoint: &Endpoint,
    work: impl Future<Output = Result<T, GatewayError>>,
) -> Result<Option<T>, GatewayError> {
    let node = endpoint.node();
    match within(node, work).await {
        Ok(done) => Ok(Some(done)),
        Err(error) if node != NodeId::HOME && is_away(&error) => {
            tracing::warn!(%node, error = in_full(&error), "a node is away; starting without it");
            Ok(None)
        }
        Err(GatewayError::Node(source @ NodeError::Refused(_))) => {
            Err(GatewayError::Unready { node, source })
        }
        Err(error) => Err(error),
    }
}

/// What takes longer than [`STEP_PATIENCE`] is given up.
async fn within<T>(
    node: NodeId,
    work: impl Future<Output = Result<T, GatewayError>>,
) -> Result<T, GatewayError> {
    timeout(STEP_PATIENCE, work).await.unwrap_or_else(|_| {
        let source = std::io::ErrorKind::TimedOut.into();
        Err(NodeError::Lost { node, source }.into())
    })
}

/// Whether the node may do it later: it cannot be reached, is starting or stopping, or is full.
fn is_away(error: &GatewayError) -> bool {
    match error {
        GatewayError::Node(error) | GatewayError::Unready { source: error, .. } => match error {
            NodeError::Refused(fields) => {
                [sqlstate::ADMIN_SHUTDOWN, "57P02", "57P03", "53300"].contains(&fields.sqlstate())
            }
            error => matches!(error, NodeError::Connect { .. } | NodeError::Lost { .. }),
        },
        GatewayError::Unfenced { .. } | GatewayError::Locked { .. } => true,
        GatewayError::Settle { source, .. } => {
            matches!(source, NodeError::Connect { .. } | NodeError::Lost { .. })
        }
        _ => false,
    }
}

/// Refuses servers that are not the configured nodes of one cluster. Returns those that are reachable;
/// the others are checked when they come back (`recovery::watch`).
///
/// Errors: node 1 is unreachable.
async fn check_nodes(
    config: &Config,
    endpoints: &Endpoints,
) -> Result<Vec<Endpoint>, GatewayError> {
    let mut cluster_id: Option<String> = None;
    let mut there = Vec::new();
    for endpoint in endpoints.iter() {
        let identify = async {
            let mut connection = open(endpoint).await?;
            let id = check_identity(&mut connection, config, cluster_id.as_deref()).await?;
            connection.close();
            Ok(id)
        };
        if let Some(id) = step(endpoint, identify).await? {
            cluster_id.get_or_insert(id);
            there.push(endpoint.clone());
        }
    }
    if let Some(id) = &cluster_id {
        endpoints.iter().for_each(|endpoint| endpoint.expect(id));
    }
    Ok(there)
}

/// Completes the schema of a cluster created by an earlier version.
async fn complete_schemas(there: Vec<Endpoint>) -> Result<Vec<Endpoint>, GatewayError> {
    let mut complete = Vec::new();
    for endpoint in there {
        let completing = async {
            let mut connection = open(&endpoint).await?;
            learn_secret(&Seals::default(), &mut connection).await?;
            connection.close();
            Ok(())
        };
        if step(&endpoint, completing).await?.is_some() {
            complete.push(endpoint);
        }
    }
    Ok(complete)
}

/// Ends what earlier gateways have left running, and settles what they have left in doubt, on
/// reachable nodes. For the others their watch does the same when they come back. Returns those that were
/// taken over.
async fn take_over(
    config: &Config,
    endpoints: &Endpoints,
    there: Vec<Endpoint>,
    incarnation: u64,
) -> Result<Vec<Endpoint>, GatewayError> {
    let mut fenced = Vec::new();
    for endpoint in there {
        let fencing = async {
            let mut connection = open(&endpoint).await?;
            fence(&mut connection, incarnation).await?;
            connection.close();
            Ok(())
        };
        if step(&endpoint, fencing).await?.is_some() {
            fenced.push(endpoint);
        }
    }
    if fenced.len() < config.nodes.len() {
        return Ok(fenced);
    }
    let settling = async {
        let mut recoverer = Recoverer::by(config, endpoints)?;
        let settled = recoverer.settle_in_doubt(incarnation).await?;
        let forgotten = recoverer.clean_decisions(incarnation).await?;
        tracing::info!(?settled, forgotten, incarnation, "settled what was in doubt");
        Ok(())
    };
    match timeout(STEP_PATIENCE, settling).await {
        Ok(Ok(())) => (),
        Ok(Err(error)) if !is_away(&error) => return Err(error),
        Ok(Err(error)) => {
            tracing::warn!(error = in_full(&error), "what is in doubt is settled node by node");
        }
        Err(_) => {
            tracing::warn!("settling takes long; what is in doubt is settled node by node")
        }
    }
    Ok(fenced)
}

/// Reads how the OIDs of these nodes differ from node 1's, and the secrets by which this gateway proves itself
/// to them. A node of which no secret is known is read when it is opened.
async fn get_to_know(
    there: &[Endpoint],
    home: &mut NodeConnection,
    seals: &Seals,
) -> Result<OidMaps, GatewayError> {
    let at_home = NodeOids::load(home).await?;
    learn_secret(seals, home).await?;
    let mut others = Vec::new();
    for endpoint in there.iter().filter(|endpoint| endpoint.node() != NodeId::HOME) {
        let learning = async {
            let mut connection = open(endpoint).await?;
            let oids = NodeOids::load(&mut connection).await?;
            learn_secret(seals, &mut connection).await?;
            connection.close();
            Ok(oids)
        };
        if let Some(oids) = step(endpoint, learning).await? {
            others.push((endpoint.node(), oids));
        }
    }
    Ok(oids::compare(&at_home, &others))
}
