//! One task per node that tracks whether its server is still in the same run.
//!
//! Owns: a connection to the node that is always open, the closing of the node when that breaks,
//! and the search of the node before it is opened again.
//! Never: settles; it hands over what it finds.
//! Start reading at [`run`].

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tutti_link::availability::Why;
use tutti_link::connection::{ASK_WRITTEN, Durability, NodeConnection, NodeError, open_own};
use tutti_sql::catalog::NodeId;
use tutti_txn::gid::Gid;

use super::PREPARED;
use super::fence::check_newest;
use super::timelines;
use super::trespass::end_trespassers;
use crate::catalog::{Answer, learn_secret};
use crate::cluster::Cluster;
use crate::error::{GatewayError, in_full};
use crate::numbers::{is_of, txn_node};
use crate::setup::check_identity;

/// How often a node is checked when nothing is known to be wrong.
const INTERVAL: Duration = Duration::from_secs(1);
/// A node that does not answer the check for so long is taken for lost.
const SILENCE_LIMIT: Duration = Duration::from_secs(4);
/// Between two attempts to reach a node.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Between two checks of transactions whose coordinator is about to finish them.
const LIVE_PAUSE: Duration = Duration::from_millis(10);

/// What a watch has told of a node.
#[derive(Debug, Default)]
struct Known {
    /// Why it is away, if it is: said once in the log.
    reason: Option<String>,
    /// How far it had written what it acknowledged.
    written: Option<Written>,
}

/// A place in a server's write-ahead log.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Written {
    /// In hexadecimal digits, of one length.
    timeline: String,
    bytes: u64,
}

/// Watches one node, forever.
pub async fn run(cluster: Arc<Cluster>, node: NodeId) {
    let mut known = Known::default();
    loop {
        let watched = watch(&cluster, node, &mut known).await;
        cluster.availability.close(node, Why::Away);
        if let Err(error) = watched {
            // Node 1 need not know it: where it has been replaced, this gateway may be led by what it was.
            if let GatewayError::Replaced { newest, .. } = error {
                cluster.note_incarnation(newest);
            }
            let reason = in_full(&error);
            if known.reason.as_ref() != Some(&reason) {
                tracing::warn!(%node, reason, "the node cannot be watched; it is closed to reads");
                cluster.availability.note_reason(node, reason.clone());
                known.reason = Some(reason);
            }
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Searches the node, opens it, and watches until something is wrong with it.
async fn watch(cluster: &Cluster, node: NodeId, known: &mut Known) -> Result<(), GatewayError> {
    cluster.endpoints.of(node).unsettle();
    let mut connection =
        open_own(cluster.endpoints.of(node), "tutti watch", Durability::Full).await?;
    let run = connection.ask_run().await?;
    refuse_rewound(&mut connection, known).await?;
    let is_new = !cluster.seals.knows(node);
    if is_new {
        get_to_know(cluster, &mut connection).await?;
    }
    super::fence(&mut connection, cluster.incarnation()).await?;
    hand_over_prepared(cluster, &mut connection).await?;
    // Statements wait until the node's OIDs have been read, for which it must be open.
    let hold = is_new.then(|| cluster.publisher.hold());
    let mut told = timelines::ask(&mut connection, &cluster.endpoints).await?;
    cluster.availability.learn(node, run);
    // Whatever they lead to, it is not the node any more.
    let ended = connection.end_all_to_others(cluster.endpoints.of(node));
    if 0 < ended {
        tracing::info!(%node, ended, "another server is the node now; connections to the former have been ended");
    }
    cluster.availability.open(node, &Why::Away);
    if let Some(hold) = hold {
        cluster.publisher.need_changed();
        drop(hold);
    }
    known.reason = None;

    // Prepared, without a coordinator, and not handed over: seen once. Twice in a row is no
    // coincidence.
    let mut odd = BTreeSet::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => (),
            // Nothing is outstanding: this is the end of the connection, or a message of no
            // interest.
            read = connection.read_more() => read?,
            () = cluster.availability.suspected(node) => return Ok(()),
        }
        timeout(SILENCE_LIMIT, end_trespassers(&mut connection))
            .await
            .map_err(|_| silent(node))??;
        timeout(SILENCE_LIMIT, check_newest(&mut connection, cluster.incarnation()))
            .await
            .map_err(|_| silent(node))??;
        known.written = Some(written(&mut connection).await?);
        timeout(SILENCE_LIMIT, timelines::tell(&mut connection, &cluster.endpoints, &mut told))
            .await
            .map_err(|_| silent(node))??;
        let mut still_odd = BTreeSet::new();
        for gid in prepared(cluster, &mut connection).await? {
            if gid.incarnation < cluster.incarnation() {
                // A dead gateway's PREPARE that landed late. It has not been decided, so it cannot be
                // visible elsewhere.
                cluster.unsettled.add(&cluster.availability, &gid, node, false);
            } else if !cluster.coordinators.contains(&gid) && !cluster.unsettled.contains(&gid) {
                if odd.contains(&gid) {
                    tracing::error!(%gid, %node, "nobody finishes this transaction; settling it");
                    cluster.unsettled.add(&cluster.availability, &gid, node, true);
                }
                still_odd.insert(gid);
            }
        }
        odd = still_odd;
    }
}

/// A server that has less than it had acknowledged was restored from an older copy: what other nodes have done with it
/// would be half there.
///
/// Errors: [`GatewayError::Rewound`]; [`GatewayError::Succeeded`] if another server has taken its place since.
async fn refuse_rewound(
    connection: &mut NodeConnection,
    known: &Known,
) -> Result<(), GatewayError> {
    let Some(before) = &known.written else { return Ok(()) };
    let now = written(connection).await?;
    let node = connection.node();
    // A later timeline is that of a promoted standby, which need not have what was not acknowledged.
    match now.timeline.cmp(&before.timeline) {
        Ordering::Less => Err(GatewayError::Succeeded { node }),
        Ordering::Equal if now.bytes < before.bytes => {
            Err(GatewayError::Rewound { node, bytes: before.bytes - now.bytes })
        }
        Ordering::Equal | Ordering::Greater => Ok(()),
    }
}

/// How far the server has written what it acknowledges.
async fn written(connection: &mut NodeConnection) -> Result<Written, GatewayError> {
    let node = connection.node();
    let rows =
        timeout(SILENCE_LIMIT, connection.rows(ASK_WRITTEN)).await.map_err(|_| silent(node))??;
    let answer = Answer { node, what: "how far it has written", rows: &rows };
    Ok(Written { timeline: answer.text(0, 0)?.to_owned(), bytes: answer.number(0, 1)? })
}

/// Learns about a node that was unreachable at the start what a gateway learns of its nodes when it
/// starts.
async fn get_to_know(
    cluster: &Cluster,
    connection: &mut NodeConnection,
) -> Result<(), GatewayError> {
    let mut home = cluster.connections.checkout(NodeId::HOME).await?;
    let cluster_id = check_identity(&mut home, &cluster.config, None).await;
    cluster.connections.release(home);
    check_identity(connection, &cluster.config, Some(&cluster_id?)).await?;
    learn_secret(&cluster.seals, connection).await
}

/// Hands over what is prepared on a node that was unreachable and has no coordinator. Waits for
/// live coordinators: one that got its answer from the server's former run does not
/// notice that the part is there again.
///
/// Returns when what was prepared at the beginning has been handed to recovery or is gone.
async fn hand_over_prepared(
    cluster: &Cluster,
    connection: &mut NodeConnection,
) -> Result<(), GatewayError> {
    let node = connection.node();
    let mut wanted: Option<BTreeSet<Gid>> = None;
    loop {
        let mut found = prepared(cluster, connection).await?;
        if let Some(wanted) = &wanted {
            found.retain(|gid| wanted.contains(gid));
        }
        let (live, left): (BTreeSet<_>, BTreeSet<_>) =
            found.into_iter().partition(|gid| cluster.coordinators.contains(gid));
        for gid in left {
            cluster.unsettled.add(&cluster.availability, &gid, node, true);
        }
        if live.is_empty() {
            return Ok(());
        }
        wanted = Some(live);
        tokio::time::sleep(LIVE_PAUSE).await;
    }
}

fn silent(node: NodeId) -> NodeError {
    NodeError::Lost { node, source: std::io::ErrorKind::TimedOut.into() }
}

/// This cluster's prepared transactions on a node, of this incarnation and earlier ones.
async fn prepared(
    cluster: &Cluster,
    connection: &mut NodeConnection,
) -> Result<BTreeSet<Gid>, GatewayError> {
    let node = connection.node();
    let rows =
        timeout(SILENCE_LIMIT, connection.rows(PREPARED)).await.map_err(|_| silent(node))??;
    let answer = Answer { node, what: "prepared transactions", rows: &rows };
    let mut listed = Vec::new();
    for row in 0..answer.len() {
        listed.push((txn_node(node), answer.text(row, 0)?));
    }
    // Of a later incarnation: it has taken the cluster over, which is asked for itself.
    let later = cluster.incarnation() + 1;
    let found = tutti_txn::recovery::in_doubt(cluster.tag(), later, listed);
    let nodes: Vec<_> = cluster.config.nodes.iter().map(|node| NodeId(node.id)).collect();
    let is_ours = |gid: &Gid| is_of(gid, &nodes);
    Ok(found.into_keys().filter(is_ours).collect())
}
