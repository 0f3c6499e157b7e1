//! Settling what is in doubt while the gateway serves.
//!
//! Owns: a few workers, each with connections of its own, and when a transaction is retried.
//! Never: finds out what is in doubt; coordinators and `watch` do.
//! Start reading at [`run`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tutti_sql::catalog::NodeId;
use tutti_txn::decision::Decision;
use tutti_txn::gid::Gid;

use super::Recoverer;
use crate::cluster::Cluster;
use crate::error::in_full;

/// Transactions settled at the same time; each needs a connection per node.
const WORKERS_MAX: usize = 4;
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(2);
/// An attempt ends if a node that takes part in it is silent for so long.
const SILENCE_LIMIT: Duration = Duration::from_secs(20);
/// Between two attempts at a transaction, and between two checks whether a node is back.
const PAUSE: Duration = Duration::from_millis(200);

/// Settles what is in doubt, forever.
pub async fn run(cluster: Arc<Cluster>) {
    let mut idle: Vec<Recoverer> = Vec::new();
    let mut working = JoinSet::new();
    loop {
        while working.len() < WORKERS_MAX
            && let Some((gid, nodes)) =
                cluster.unsettled.take_due(|node| cluster.availability.is_there(node))
        {
            let recoverer = idle.pop().unwrap_or_else(|| Recoverer::of(&cluster));
            working.spawn(attempt(cluster.clone(), recoverer, gid, nodes));
        }
        if working.is_empty() {
            // Connections are not kept for the next failure.
            idle.clear();
        }
        tokio::select! {
            () = cluster.unsettled.news() => (),
            Some(worked) = working.join_next() => match worked {
                Ok(recoverer) => idle.extend(recoverer),
                Err(error) => tracing::error!(%error, "recovery failed by a bug"),
            },
            () = tokio::time::sleep(PAUSE), if !cluster.unsettled.is_empty() => (),
        }
    }
}

/// One attempt. Returns the connections unless one of them hangs.
async fn attempt(
    cluster: Arc<Cluster>,
    mut recoverer: Recoverer,
    gid: Gid,
    nodes: BTreeSet<NodeId>,
) -> Option<Recoverer> {
    let mut open = nodes.clone();
    let settling = recoverer.settle_parts(&gid, &mut open, ATTEMPT);
    let outcome = timeout(SILENCE_LIMIT, settling).await;
    let settled: BTreeSet<_> = nodes.difference(&open).copied().collect();
    if !settled.is_empty() && !matches!(outcome, Ok(Ok(Decision::Aborted))) {
        // Before its nodes are opened: it may have changed the schema or a placement.
        note_recovered(&cluster);
    }
    cluster.unsettled.worked(&cluster.availability, &gid, &settled, Instant::now() + PAUSE);
    match outcome {
        Ok(Ok(decision)) => {
            tracing::info!(%gid, %decision, "settled a transaction that was in doubt");
            // Its record stays until it is old: a client may have been told to ask for it.
            Some(recoverer)
        }
        Ok(Err(error)) => {
            tracing::warn!(%gid, error = %in_full(&error), "cannot settle yet; trying again");
            Some(recoverer)
        }
        Err(_) => {
            tracing::warn!(%gid, "a node says nothing; trying again");
            None
        }
    }
}

/// A transaction that its session had given up was committed. Plans made from now on know
/// what it has changed, and what was planned before and not sent is planned again.
fn note_recovered(cluster: &Cluster) {
    cluster.publisher.need_changed();
    cluster.sessions.plan_again();
}
