//! Recording decisions on one anchor, many in one statement.
//!
//! Owns: which decisions go together. Never: asks what became of an unanswered one; recovery does.

use std::io;

use tokio::sync::{mpsc, oneshot};
use tutti_link::connection::{Durability, Endpoint, NodeError};
use tutti_sql::catalog::NodeId;
use tutti_txn::gid::Gid;

use super::pipelined::PipelinedConnection;

/// Most decisions that one statement records: more would delay the first.
const BATCH_MAX: usize = 256;

type Answered = Result<bool, NodeError>;

/// A decision to be recorded, and where its answer goes.
type Asked = (Gid, oneshot::Sender<Answered>);

/// Handle for recording in an anchor's `tutti.decision`.
#[derive(Debug)]
pub(super) struct DecisionLog {
    node: NodeId,
    asked: mpsc::UnboundedSender<Asked>,
}

impl DecisionLog {
    pub(super) fn new(anchor: Endpoint) -> Self {
        let node = anchor.node();
        let (asked, incoming) = mpsc::unbounded_channel();
        let connection = PipelinedConnection::new(anchor, "tutti decisions", Durability::Full);
        // Ends by itself when the decision log is dropped.
        tokio::spawn(record_together(connection, node, incoming));
        Self { node, asked }
    }

    /// See [`super::finishers::Finishers::decide`].
    pub(super) async fn record(&self, gid: &Gid) -> Answered {
        let (answer, answered) = oneshot::channel();
        let gone = || NodeError::not_connected(self.node);
        self.asked.send((gid.clone(), answer)).map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

async fn record_together(
    connection: PipelinedConnection,
    node: NodeId,
    mut incoming: mpsc::UnboundedReceiver<Asked>,
) {
    while let Some(first) = incoming.recv().await {
        let mut batch = vec![first];
        while batch.len() < BATCH_MAX
            && let Ok(asked) = incoming.try_recv()
        {
            batch.push(asked);
        }
        let answered = connection.run(statement(batch.iter().map(|(gid, _)| gid))).await;
        for (gid, answer) in batch {
            // The caller may be gone.
            let _ = answer.send(match &answered {
                Ok(results) => {
                    let rows = results.first().into_iter().flat_map(|rows| &rows.rows);
                    let name = gid.to_string();
                    Ok(rows.flatten().flatten().any(|recorded| recorded == name.as_bytes()))
                }
                Err(error) => Err(for_each(error, node)),
            });
        }
    }
}

fn statement<'a>(gids: impl Iterator<Item = &'a Gid>) -> String {
    // Gids are made of [a-z0-9_] only. In the order of their numbers, so that two statements with
    // gids in common (there are none, barring a bug) would not deadlock.
    let mut gids: Vec<String> = gids.map(Gid::to_string).collect();
    gids.sort_unstable();
    format!(
        "INSERT INTO tutti.decision (gid, decision) \
         SELECT gid, 'committed' FROM pg_catalog.unnest('{{{}}}'::pg_catalog.text[]) AS gid \
         ON CONFLICT DO NOTHING RETURNING gid",
        gids.join(",")
    )
}

/// A copy of an error, which concerns every decision of a statement.
fn for_each(error: &NodeError, node: NodeId) -> NodeError {
    match error {
        NodeError::Refused(fields) => NodeError::Refused(fields.clone()),
        NodeError::Connect { node, host, port, source } => NodeError::Connect {
            node: *node,
            host: host.clone(),
            port: *port,
            source: source.kind().into(),
        },
        NodeError::Lost { source, .. } | NodeError::Unresolved { source, .. } => {
            NodeError::Lost { node, source: source.kind().into() }
        }
        NodeError::Closed { node, reason } => {
            NodeError::Closed { node: *node, reason: reason.clone() }
        }
        // Neither says whether the statement was executed.
        NodeError::Authentication { .. }
        | NodeError::OtherVerifier { .. }
        | NodeError::Misreads { .. }
        | NodeError::Protocol(_) => {
            NodeError::Lost { node, source: io::ErrorKind::ConnectionAborted.into() }
        }
    }
}
