//! Removing the records of transactions that will not be asked about again, and of what else only
//! grows.
//!
//! Owns: when a record may be removed.
//! Never: removes one that a prepared part could still need.
//! Start reading at [`run`].
//!
//! COMMIT PREPARED is sent with `synchronous_commit = off`. Its acknowledgement means that it is
//! flushed on the node, but not that it has reached the node's standbys: after a fail-over the part
//! can be there again, prepared, and then the record must still exist. So before records are
//! removed, every node writes something small with `synchronous_commit = on`: when that is
//! acknowledged, everything the node had written before is durable. It counts only if the node is
//! still in the same run of the server that was searched; after a fail-over, what had been applied
//! on the former primary may be in doubt again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tutti_link::connection::{NodeConnection, NodeError, Run};
use tutti_sql::catalog::NodeId;
use tutti_txn::gid::Gid;

use super::Recoverer;
use crate::cluster::Cluster;
use crate::error::GatewayError;

const INTERVAL: Duration = Duration::from_secs(1);
/// A node whose standbys do not answer for so long is asked again later.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// How often old records are looked for.
const CLEANING_INTERVAL: Duration = Duration::from_secs(3600);
/// How often rows that say no more than one would, or nothing, are merged.
const COMPACTING_INTERVAL: Duration = Duration::from_secs(60);
/// The sum of the changes stays as it is; tickets have done their work once inserted, and without a
/// sentinel nothing else removes them. A few of either are left alone. On a single node tables are
/// dropped without the gateway noticing: their registrations are removed here.
const COMPACT: &str = "
WITH many AS (SELECT 1 FROM tutti.change OFFSET 1000 LIMIT 1),
    gone AS (DELETE FROM tutti.change WHERE EXISTS (SELECT FROM many) RETURNING weight)
INSERT INTO tutti.change SELECT pg_catalog.sum(weight) FROM gone HAVING count(*) > 0;
DELETE FROM tutti.ticket WHERE EXISTS (SELECT FROM tutti.ticket OFFSET 10000 LIMIT 1);
SELECT tutti.forget_dropped()";
/// Written to a node's WAL; never read.
const WRITE: &str = "SELECT pg_catalog.pg_logical_emit_message(true, 'tutti', '')";

/// Forgets, forever.
pub async fn run(cluster: Arc<Cluster>) {
    let mut recoverer = Recoverer::of(&cluster);
    let mut rounds = 0_u64;
    loop {
        tokio::time::sleep(INTERVAL).await;
        rounds += 1;
        let applied = cluster.unsettled.take_applied();
        if !applied.is_empty() {
            let forgetting = forget(&cluster, &mut recoverer, &applied);
            match timeout(SILENCE_LIMIT, forgetting).await {
                Ok(Ok(true)) => (),
                Ok(Ok(false)) => cluster.unsettled.note_applied(applied),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "cannot forget decisions yet");
                    cluster.unsettled.note_applied(applied);
                }
                Err(_) => {
                    tracing::warn!("a node or its standbys say nothing; decisions are kept");
                    recoverer = Recoverer::of(&cluster);
                    cluster.unsettled.note_applied(applied);
                }
            }
        }
        // The first time at once: some gateways do not live for as long as it takes.
        if (rounds - 1).is_multiple_of(COMPACTING_INTERVAL.as_secs()) {
            compact_all(&cluster).await;
        }
        if rounds.is_multiple_of(CLEANING_INTERVAL.as_secs())
            && let Err(error) = recoverer.clean_decisions(cluster.incarnation()).await
        {
            tracing::warn!(%error, "cannot remove old decisions; trying again in an hour");
        }
    }
}

/// Families of requests that are older than is promised: a further attempt at one of them would be a new request.
fn forget_requests(cluster: &Cluster) -> String {
    let seconds = u64::from(cluster.config.requests.keep_hours) * 3600;
    format!(
        "DELETE FROM tutti.request WHERE at OPERATOR(pg_catalog.<) \
             (pg_catalog.now() OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => {seconds}))"
    )
}

/// Keeps what grows with every schema change, or with every request, small, on nodes that are reachable.
async fn compact_all(cluster: &Cluster) {
    let forget_requests = forget_requests(cluster);
    for node in &cluster.config.nodes {
        let node = NodeId(node.id);
        if !cluster.availability.is_open(node) {
            continue;
        }
        let compacting = async {
            let mut connection = cluster.connections.checkout(node).await?;
            let mut compacted = connection.query(COMPACT).await;
            if compacted.is_ok() {
                compacted = connection.query(&forget_requests).await;
            }
            cluster.connections.release(connection);
            compacted
        };
        match timeout(SILENCE_LIMIT, compacting).await {
            Ok(Ok(_)) => (),
            Ok(Err(error @ NodeError::Refused(_))) => {
                tracing::warn!(%node, %error, "what has been there for long cannot be removed");
            }
            Ok(Err(error)) => tracing::debug!(%node, %error, "cannot compact"),
            Err(_) => tracing::debug!(%node, "cannot compact: no answer"),
        }
    }
}

/// Removes the records of these transactions. False: not now.
async fn forget(
    cluster: &Cluster,
    recoverer: &mut Recoverer,
    applied: &[Gid],
) -> Result<bool, GatewayError> {
    let mut runs = BTreeMap::new();
    for node in recoverer.nodes() {
        if !cluster.availability.is_there(node) {
            return Ok(false);
        }
        runs.insert(node, write(recoverer.connection(node).await?).await?);
    }
    let is_current = |(node, run): (&NodeId, &Run)| cluster.availability.is_current(*node, run);
    if !runs.iter().all(is_current) {
        return Ok(false);
    }
    // What was found again in a new run is recovery's, which will note it again.
    let gone: Vec<_> =
        applied.iter().filter(|gid| !cluster.unsettled.contains(gid)).cloned().collect();
    recoverer.forget_decisions(&gone).await?;
    Ok(true)
}

/// Makes sure that all that the node has written so far is durable. Returns its run.
async fn write(connection: &mut NodeConnection) -> Result<Run, GatewayError> {
    // First, so that the run is the one that has written.
    let run = connection.ask_run().await?;
    connection.rows(WRITE).await?;
    Ok(run)
}
