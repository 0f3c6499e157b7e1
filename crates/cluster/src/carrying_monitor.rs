//! Looking after what carries rows of asynchronously replicated tables, while a gateway serves.
//!
//! Owns: that nothing of it stays on the nodes when no table needs it, for a slot that no one reads keeps its node's
//! log for ever; that nodes reach each other as is configured now; and saying in the log what is broken.
//! Never: repairs a slot that has lost rows, which would hide that they are missing.
//! Start reading at [`run`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::carrying::{Carriers, Connections, reached_at};
use crate::cluster::Cluster;
use crate::error::GatewayError;

const INTERVAL: Duration = Duration::from_secs(10);

/// What was found, so that it is looked for, or said, once.
#[derive(Debug, Default)]
struct Known {
    /// Nothing is on any node.
    is_bare: bool,
    faults: Vec<String>,
    /// Where rows are not taken in, and how often that had failed at the last look.
    refusals: BTreeMap<String, u64>,
}

/// Looks after it, forever.
pub async fn run(cluster: Arc<Cluster>) {
    let mut known = Known::default();
    loop {
        if let Err(error) = inspect(&cluster, &mut known).await {
            tracing::debug!(%error, "could not look after what carries rows");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn inspect(cluster: &Cluster, known: &mut Known) -> Result<(), GatewayError> {
    let nodes = cluster.catalog().nodes.clone();
    let is_needed = cluster.catalog().has_async;
    let all_are_there = nodes.iter().all(|node| cluster.availability.is_there(*node));
    if nodes.len() < 2 || !all_are_there || !is_needed && known.is_bare {
        return Ok(());
    }
    // Who changes it has it: later.
    let Ok(_one) = cluster.carrying.try_lock() else { return Ok(()) };
    if !cluster.catalog().has_async {
        let removed = remove_unused(cluster).await?;
        if removed {
            tracing::info!("removed slots and subscriptions that no table needs");
        }
        *known = Known { is_bare: true, ..Known::default() };
        return Ok(());
    }
    known.is_bare = false;
    let (faults, refusals) = with_all(cluster, async |carriers, connections| {
        carriers.renew(connections, &reached_at(&cluster.config)).await?;
        Ok((carriers.faults(connections).await?, carriers.refusals(connections).await?))
    })
    .await?;
    // It has failed since the last look, or was told so; as long as that goes on, once a look.
    for (what, failed) in &refusals {
        if known.refusals.get(what) != Some(failed) {
            tracing::warn!(
                what,
                failed,
                "rows of asynchronously replicated tables wait: the server's log says for what (docs/protocol/base.md)"
            );
        }
    }
    known.refusals = refusals;
    if faults != known.faults {
        for fault in &faults {
            tracing::error!(
                fault,
                "rows of asynchronously replicated tables are lost on their way: distribute these tables by their keys \
                 (tutti_distribute), which keeps every row at its home, and make them asynchronous again"
            );
        }
        known.faults = faults;
    }
    Ok(())
}

/// Removes what carries rows if no table needs it. Returns whether there was anything.
///
/// Requires: [`Cluster::carrying`] is held, and the catalog is that of the last change under it.
/// Errors: a node's; what is left is removed later ([`run`]).
pub async fn remove_unused(cluster: &Cluster) -> Result<bool, GatewayError> {
    if cluster.catalog().has_async {
        return Ok(false);
    }
    with_all(cluster, async |carriers, connections| {
        let is_there = carriers.is_anywhere(connections).await?;
        if is_there {
            carriers.take_down(connections).await?;
        }
        Ok(is_there)
    })
    .await
}

/// Does something on all nodes, by connections of the gateway's own. They are closed if it fails.
///
/// Errors: a node cannot be reached; what is done.
pub async fn with_all<T>(
    cluster: &Cluster,
    doing: impl AsyncFnOnce(&Carriers, &mut Connections<'_>) -> Result<T, GatewayError>,
) -> Result<T, GatewayError> {
    let nodes = cluster.catalog().nodes.clone();
    let carriers = Carriers::new(&cluster.config.cluster, nodes.iter().copied());
    let mut open = Vec::new();
    for node in nodes {
        open.push(cluster.connections.checkout(node).await?);
    }
    let mut connections: Connections<'_> =
        open.iter_mut().map(|connection| (connection.node(), connection)).collect();
    let done = doing(&carriers, &mut connections).await?;
    open.into_iter().for_each(|connection| cluster.connections.release(connection));
    Ok(done)
}
