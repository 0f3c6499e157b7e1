//! The reading in the background that catches up with changes of the schema.
//!
//! Owns: what is read when, over connections of the gateway's own, and trying again until it succeeds.
//! Never: decides what plans must know (`publisher` does).
//! Start reading at [`run`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::timeout;
use tutti_link::availability::{Availability, OPEN_PATIENCE};
use tutti_link::connection::NodeError;
use tutti_link::control_pool::ControlPool;
use tutti_link::translation::OidMaps;
use tutti_sql::catalog::{Catalog, NodeId};

use super::oids::{Name, compare_again};
use super::publisher::{LEISURE, Publisher, is_partial};
use super::{NodeOids, reload};
use crate::error::GatewayError;

/// Between two attempts to read.
const RETRY: Duration = Duration::from_millis(200);

/// What is needed for reading what is published.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Where it is published.
    pub publisher: Arc<Publisher>,
    /// Which nodes may be read.
    pub nodes: Arc<Availability>,
    /// Over which they are read.
    pub connections: Arc<ControlPool>,
}

/// Reads whenever something has changed that a session needs, for ever. `became_spread`: called when tables
/// were spread for the first time.
pub async fn run(reader: Reader, became_spread: impl Fn()) {
    let publisher = reader.publisher.clone();
    let mut oids = BTreeMap::new();
    // Nodes whose OIDs could not be read.
    let mut missing: Vec<NodeId> = Vec::new();
    let mut pause = LEISURE;
    loop {
        if publisher.has_nothing_to_read() {
            let is_partial = is_partial(&publisher.catalog());
            if !is_partial {
                pause = LEISURE;
            }
            tokio::select! {
                () = publisher.news.notified() => (),
                () = wait_for_one(&reader, &missing), if !missing.is_empty() => (),
                () = tokio::time::sleep(pause), if is_partial => {
                    publisher.read_again();
                    pause = (2 * pause).min(PARTIAL_PAUSE_MAX);
                }
            }
        }
        if publisher.has_nothing_to_read() && missing.is_empty() {
            continue;
        }
        let knows = publisher.begin_reading();
        match timeout(READING_MAX, read(&reader, &mut oids)).await {
            Ok(Ok((catalog, maps, away))) => {
                let was_solo = publisher.catalog().is_solo();
                publisher.publish(catalog, Arc::new(maps), knows);
                if was_solo && !publisher.catalog().is_solo() {
                    became_spread();
                }
                missing = away;
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot read the catalog yet; trying again");
                tokio::time::sleep(RETRY).await;
            }
            Err(_) => tracing::warn!("a node says nothing while the catalog is read; trying again"),
        }
    }
}

/// How often at least what others' locks have kept from being read is tried again.
const PARTIAL_PAUSE_MAX: Duration = Duration::from_secs(60);

/// A node that has not answered by then is asked again.
const READING_MAX: Duration = Duration::from_secs(20);

async fn wait_for_one(reader: &Reader, missing: &[NodeId]) {
    while !missing.iter().any(|node| reader.nodes.is_open(*node)) {
        tokio::time::sleep(RETRY).await;
    }
}

/// Reads what has to be read of the catalog on node 1, and the OIDs of all nodes, over connections of
/// the gateway's own: a client's operators and temporary tables may go by the names of PostgreSQL's.
///
/// A node that is unreachable keeps the OIDs that are known of it; it cannot be asked now. Returns
/// such nodes as well.
async fn read(
    reader: &Reader,
    known: &mut BTreeMap<NodeId, NodeOids>,
) -> Result<(Option<Catalog>, OidMaps, Vec<NodeId>), GatewayError> {
    let publisher = &reader.publisher;
    let previous = publisher.catalog();
    let catalog = match publisher.must_read_all() {
        true => Some(read_all(reader, &previous).await?),
        false => None,
    };
    let mut changed = BTreeSet::new();
    let mut away = Vec::new();
    for node in previous.nodes.iter().copied() {
        match read_oids(reader, node, known.entry(node).or_default()).await {
            Ok(names) => changed.extend(names),
            Err(error) if node == NodeId::HOME => return Err(error),
            Err(error) => {
                tracing::warn!(%node, %error, "cannot read the OIDs of a node yet");
                away.push(node);
            }
        }
    }
    let mut maps = OidMaps::clone(&publisher.oids());
    if let Some(home) = known.get(&NodeId::HOME) {
        for (node, oids) in known.iter().filter(|(node, _)| **node != NodeId::HOME) {
            compare_again(&mut maps, home, *node, oids, &changed);
        }
    }
    Ok((catalog, maps, away))
}

async fn read_all(reader: &Reader, previous: &Catalog) -> Result<Catalog, GatewayError> {
    let renamed = reader.publisher.renamed.swap(false, Ordering::SeqCst);
    let mut previous = previous.clone();
    if renamed {
        previous.view_rules.clear();
    }
    let reading = async {
        reader.nodes.wait_until_open(NodeId::HOME, OPEN_PATIENCE).await?;
        let mut home = reader.connections.checkout(NodeId::HOME).await?;
        let catalog = reload(&mut home, &previous).await?;
        reader.connections.release(home);
        Ok(catalog)
    };
    let read = reading.await;
    if read.is_err() {
        reader.publisher.renamed.fetch_or(renamed, Ordering::SeqCst);
    }
    read
}

/// What has changed since the last time. Returns the names.
async fn read_oids(
    reader: &Reader,
    node: NodeId,
    known: &mut NodeOids,
) -> Result<Vec<Name>, GatewayError> {
    // Until what is prepared there is settled, its types are not what they will be.
    if !reader.nodes.is_open(node) {
        return Err(NodeError::Closed { node, reason: None }.into());
    }
    let reading = async {
        let mut connection = reader.connections.checkout(node).await?;
        let changed = known.update(&mut connection).await?;
        reader.connections.release(connection);
        Ok(changed)
    };
    tokio::select! {
        read = reading => read,
        () = wait_until_closed(reader, node) => Err(NodeError::Closed { node, reason: None }.into()),
    }
}

/// One that is taken for lost says nothing more.
async fn wait_until_closed(reader: &Reader, node: NodeId) {
    while reader.nodes.is_there(node) {
        tokio::time::sleep(RETRY).await;
    }
}
