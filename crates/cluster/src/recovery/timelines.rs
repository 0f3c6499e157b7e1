//! Which timeline each node was last seen on, as the other nodes know it: a gateway that starts while a node's newest
//! server is away must not take a former primary for the node.
//!
//! Owns: telling nodes of each other's timelines, and asking them. Never: judges a server ([`Endpoint`] does, by the
//! latest that it has been told).
//! Start reading at [`tell`] and [`ask_all`]. Only of nodes that have several hosts anything is known.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use tutti_link::connection::{NodeConnection, NodeError};
use tutti_link::{Endpoint, Endpoints};
use tutti_sql::catalog::{NodeId, quote_literal};

use super::fence::open;
use crate::catalog::Answer;
use crate::error::GatewayError;

/// How long a start waits for what the nodes have been told. One that is away tells nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a node has been told, by this gateway or any before.
pub(super) type Told = BTreeMap<NodeId, String>;

/// Asks all nodes what timelines they know of each other, before one is believed to be the node that it says it is.
///
/// Nodes that do not answer, or have no such table yet, are left out.
pub(crate) async fn ask_all(endpoints: &Endpoints) {
    if !endpoints.iter().any(Endpoint::has_several_hosts) {
        return;
    }
    let asked = endpoints.iter().map(|endpoint| async {
        let asking = async {
            let mut connection = open(endpoint).await?;
            let told = ask(&mut connection, endpoints).await;
            connection.close();
            told
        };
        match timeout(PATIENCE, asking).await {
            Ok(Ok(_)) => (),
            Ok(Err(error)) => {
                tracing::debug!(node = %endpoint.node(), %error, "it tells no timelines");
            }
            Err(_) => tracing::debug!(node = %endpoint.node(), "it tells no timelines in time"),
        }
    });
    join_all(asked).await;
    // What they have told may be of a later server than was found.
    endpoints.iter().for_each(Endpoint::unsettle);
}

/// What this node has been told of others; it counts from now on.
pub(super) async fn ask(
    connection: &mut NodeConnection,
    endpoints: &Endpoints,
) -> Result<Told, GatewayError> {
    let rows = connection.rows("SELECT node, timeline FROM tutti.seen").await?;
    let answer = Answer { node: connection.node(), what: "timelines", rows: &rows };
    let mut told = Told::new();
    for row in 0..answer.len() {
        let (node, timeline) = (NodeId(answer.number(row, 0)?), answer.text(row, 1)?);
        if let Some(endpoint) = endpoints.iter().find(|endpoint| endpoint.node() == node) {
            endpoint.note_timeline(timeline);
            told.insert(node, timeline.to_owned());
        }
    }
    Ok(told)
}

/// Tells a node of the other nodes' timelines, where it knows earlier ones or none.
///
/// The node need not wait for its standby: what is lost with it was known to the others, too.
pub(super) async fn tell(
    connection: &mut NodeConnection,
    endpoints: &Endpoints,
    told: &mut Told,
) -> Result<(), GatewayError> {
    let own = connection.node();
    for endpoint in endpoints.iter().filter(|endpoint| endpoint.node() != own) {
        let Some(timeline) = endpoint.timeline() else { continue };
        let node = endpoint.node();
        if told.get(&node).is_some_and(|known| *known >= timeline) {
            continue;
        }
        // One message is one transaction.
        let sql = format!(
            "SET LOCAL synchronous_commit = local; \
             INSERT INTO tutti.seen AS s (node, timeline) VALUES ({}, {}) \
             ON CONFLICT (node) DO UPDATE SET timeline = greatest(s.timeline, excluded.timeline)",
            node.0,
            quote_literal(&timeline)
        );
        match connection.query(&sql).await {
            Ok(_) => drop(told.insert(node, timeline)),
            // A full disk, say. It is told at the next look.
            Err(NodeError::Refused(refused)) => {
                tracing::debug!(to = %own, refused = refused.message(), "a timeline could not be told");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
