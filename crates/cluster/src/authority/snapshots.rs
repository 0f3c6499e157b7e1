//! Snapshots of the whole cluster, for REPEATABLE READ, SERIALIZABLE, and single statements.
//!
//! Owns: the exporters: one transaction per node and visit of the snapshot room that exports its
//! snapshot, shared by all that asked before the room was entered, and ended when the last of them
//! has imported it or ended.
//! Never: gives out a snapshot that was taken before it was asked for.
//! Start reading at [`Snapshots::take`].
//!
//! That an exporter keeps a snapshot, and the transaction imports it on the nodes that it uses, has
//! two reasons: a transaction need not open every node at its first statement, and PREPARE TRANSACTION
//! refuses a transaction that has exported its snapshot (one that has imported may prepare).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::oneshot;
use tutti_link::availability::Availability;
use tutti_link::connection::{NodeConnection, NodeError};
use tutti_link::control_pool::ControlPool;
use tutti_link::{Endpoint, Endpoints};
use tutti_sql::catalog::NodeId;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use super::rooms::Rooms;

/// A node that has not exported its snapshot within this is no longer waited for.
const EXPORTER_PATIENCE: Duration = Duration::from_secs(2);
/// One that was not in time is asked whether it answers at all, before the room is entered; for so long.
const LATE_PATIENCE: Duration = Duration::from_millis(200);

/// What the importing transactions will be.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum SnapshotKind {
    /// REPEATABLE READ.
    RepeatableRead,
    /// SERIALIZABLE: imports from a SERIALIZABLE exporter only.
    Serializable,
}

/// Gives out snapshots of all nodes.
#[derive(Debug)]
pub struct Snapshots {
    nodes: Vec<NodeId>,
    rooms: Arc<Rooms>,
    /// Which of them may be read.
    state: Arc<Availability>,
    connections: Arc<ControlPool>,
    asked: Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    requests: Vec<Request>,
    /// A task is taking snapshots and will check the requests again.
    taking: bool,
}

#[derive(Debug)]
struct Request {
    kind: SnapshotKind,
    answer: oneshot::Sender<Result<ClusterSnapshot, ErrorFields>>,
}

/// One transaction's share of a snapshot of all nodes. When dropped, it is released everywhere.
#[derive(Debug)]
pub struct ClusterSnapshot {
    kept: Arc<Kept>,
    /// Nodes that have not imported it.
    open: BTreeSet<NodeId>,
}

/// The snapshot of one visit of the room.
#[derive(Debug)]
struct Kept {
    names: BTreeMap<NodeId, String>,
    exporters: Mutex<BTreeMap<NodeId, Exporter>>,
    connections: Weak<ControlPool>,
}

#[derive(Debug)]
struct Exporter {
    connection: NodeConnection,
    /// How many may still import from it.
    users: usize,
}

impl Snapshots {
    /// For these nodes.
    pub fn new(
        endpoints: &Endpoints,
        state: Arc<Availability>,
        rooms: Arc<Rooms>,
        connections: Arc<ControlPool>,
    ) -> Arc<Self> {
        let nodes = endpoints.iter().map(Endpoint::node).collect();
        Arc::new(Self { nodes, state, rooms, connections, asked: Mutex::default() })
    }

    /// A snapshot of all nodes in which every transaction is whole, and which shows everything that
    /// was acknowledged before this call. A node that is unreachable, or does not answer in time, is
    /// not in it ([`ClusterSnapshot::name`]).
    ///
    /// Errors: no node can be reached.
    pub async fn take(
        self: &Arc<Self>,
        kind: SnapshotKind,
    ) -> Result<ClusterSnapshot, ErrorFields> {
        let (answer, answered) = oneshot::channel();
        let begin = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.requests.push(Request { kind, answer });
            !std::mem::replace(&mut asked.taking, true)
        };
        if begin {
            // A task of its own: the caller may be dropped while others wait for the same snapshot.
            tokio::spawn(self.clone().take_for_all());
        }
        answered.await.unwrap_or_else(|_| {
            Err(ErrorFields::error(
                sqlstate::ADMIN_SHUTDOWN,
                "the gateway is ending, no snapshot was taken",
            ))
        })
    }

    async fn take_for_all(self: Arc<Self>) {
        loop {
            let there = self.nodes_that_are_there();
            let prepared = self.lend_all(&there).await;
            let inside = self.rooms.enter_snapshot_room(&self.state, &there).await;
            if inside.is_err() && there != self.nodes_that_are_there() {
                self.give_back_all(prepared);
                continue;
            }
            // All requests until now came before any snapshot was taken.
            let requests = {
                let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
                if asked.requests.is_empty() {
                    asked.taking = false;
                    break self.give_back_all(prepared);
                }
                std::mem::take(&mut asked.requests)
            };
            let kind = requests.iter().map(|request| request.kind).max();
            let kept = match (prepared, inside) {
                (Ok(connections), Ok(_inside)) => {
                    self.export(connections, kind.unwrap_or(SnapshotKind::RepeatableRead)).await
                }
                (prepared, Err(error)) => {
                    self.give_back_all(prepared);
                    Err(error)
                }
                (Err(error), _) => Err(error),
            };
            match kept {
                Ok(kept) => hand_out(kept, requests),
                Err(error) => {
                    for request in requests {
                        let _ = request.answer.send(Err(refusal(&error)));
                    }
                }
            }
        }
    }

    /// A node that is unreachable has no part in a snapshot; a transaction that needs it there
    /// fails.
    fn nodes_that_are_there(&self) -> Vec<NodeId> {
        let there: Vec<_> =
            self.nodes.iter().copied().filter(|node| self.state.is_there(*node)).collect();
        if there.is_empty() { self.nodes.clone() } else { there }
    }

    /// Opening takes time and is done before the room is entered. A node that accepts no connection is
    /// left out, and one that was late the last time and answers nothing yet.
    async fn lend_all(&self, nodes: &[NodeId]) -> Result<Vec<NodeConnection>, NodeError> {
        let mut connections = Vec::with_capacity(nodes.len());
        let mut failed = None;
        for node in nodes {
            let was_late = self.state.is_late(*node);
            let lent = async {
                let mut connection = self.connections.checkout(*node).await?;
                if was_late {
                    connection.query("").await?;
                    self.state.note_prompt(*node);
                }
                Ok(connection)
            };
            let patience = if was_late { LATE_PATIENCE } else { EXPORTER_PATIENCE };
            match tokio::time::timeout(patience, lent).await.unwrap_or(Err(late(*node))) {
                Ok(connection) => connections.push(connection),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) if connections.is_empty() => Err(error),
            _ => Ok(connections),
        }
    }

    fn give_back_all(&self, connections: Result<Vec<NodeConnection>, NodeError>) {
        for connection in connections.into_iter().flatten() {
            self.connections.release(connection);
        }
    }

    /// Requires: inside the snapshot room.
    async fn export(
        &self,
        connections: Vec<NodeConnection>,
        kind: SnapshotKind,
    ) -> Result<Kept, NodeError> {
        let sql = match kind {
            SnapshotKind::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            // The importing transaction may write only if the exporting one might.
            SnapshotKind::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE",
        };
        let sql = format!("{sql}; SELECT pg_catalog.pg_export_snapshot()");
        let mut running = tokio::task::JoinSet::new();
        for mut connection in connections {
            let sql = sql.clone();
            running.spawn(async move {
                let node = connection.node();
                let exported = tokio::time::timeout(EXPORTER_PATIENCE, connection.rows(&sql)).await;
                let exported = exported.unwrap_or_else(|_| Err(late(node)));
                (connection, exported)
            });
        }
        let mut names = BTreeMap::new();
        let mut exporters = BTreeMap::new();
        let mut failed = None;
        while let Some(ended) = running.join_next().await {
            let (connection, exported) = ended.expect("a query does not panic");
            let node = connection.node();
            match exported {
                Ok(rows) => {
                    names.insert(node, rows.text(0, 0).unwrap_or_default().to_owned());
                    exporters.insert(node, Exporter { connection, users: 0 });
                }
                // The connection is dropped, and with it the transaction it was in.
                Err(error) => {
                    self.state.note_late(node);
                    failed = Some(error);
                }
            }
        }
        let connections = Arc::downgrade(&self.connections);
        let kept = Kept { names, exporters: Mutex::new(exporters), connections };
        match failed {
            Some(error) if kept.names.is_empty() => Err(error),
            Some(error) => {
                tracing::warn!(%error, "a node has no part in a snapshot");
                Ok(kept)
            }
            None => Ok(kept),
        }
    }
}

fn late(node: NodeId) -> NodeError {
    NodeError::Lost { node, source: std::io::ErrorKind::TimedOut.into() }
}

fn hand_out(kept: Kept, requests: Vec<Request>) {
    let mut exporters = kept.exporters.lock().unwrap_or_else(PoisonError::into_inner);
    for exporter in exporters.values_mut() {
        exporter.users = requests.len();
    }
    let open: BTreeSet<_> = exporters.keys().copied().collect();
    drop(exporters);
    let kept = Arc::new(kept);
    for request in requests {
        // If the caller is gone, the share is dropped here, which tells its exporters.
        let _ = request.answer.send(Ok(ClusterSnapshot { kept: kept.clone(), open: open.clone() }));
    }
}

fn refusal(error: &NodeError) -> ErrorFields {
    let mut fields = error.to_fields();
    if fields.sqlstate().starts_with("08") {
        fields = ErrorFields::error(
            sqlstate::CONNECTION_FAILURE,
            "no snapshot of all nodes could be taken",
        )
        .with(b'D', error.to_string())
        .with(b'H', "Retrying is safe: the transaction has done nothing.");
    }
    fields
}

impl ClusterSnapshot {
    /// The name by which `node` imports it. `None`: it was unreachable.
    pub fn name(&self, node: NodeId) -> Option<&str> {
        self.kept.names.get(&node).map(String::as_str)
    }

    /// The same as long as a further transaction of the session's may import it there.
    pub fn open_name(&self, node: NodeId) -> Option<&str> {
        self.name(node).filter(|_| self.open.contains(&node))
    }

    /// The transaction has imported it on `node`: the exporter there is no longer needed for this
    /// one.
    pub fn imported(&mut self, node: NodeId) {
        if self.open.remove(&node) {
            self.kept.release(node);
        }
    }
}

impl Drop for ClusterSnapshot {
    fn drop(&mut self) {
        for node in std::mem::take(&mut self.open) {
            self.kept.release(node);
        }
    }
}

impl Kept {
    fn release(&self, node: NodeId) {
        let is_last = {
            let mut exporters = self.exporters.lock().unwrap_or_else(PoisonError::into_inner);
            exporters.get_mut(&node).is_some_and(|exporter| {
                exporter.users -= 1;
                exporter.users == 0
            })
        };
        if is_last {
            self.end(node);
        }
    }

    /// Ends the exporter's transaction, so that it holds back vacuum no longer.
    fn end(&self, node: NodeId) {
        let mut exporters = self.exporters.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Exporter { mut connection, .. }) = exporters.remove(&node) else { return };
        let Some(connections) = self.connections.upgrade() else { return };
        // Without a runtime the connection is just closed, which ends the transaction too.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if connection.query("ROLLBACK").await.is_ok() {
                connections.release(connection);
            }
        });
    }
}
