//! Finishers: what ends global transactions, over connections that all sessions share.
//!
//! Owns: a few pipelined connections per node for COMMIT PREPARED and ROLLBACK PREPARED, and the
//! recording of decisions, many in one statement, or one with what a request has led to.
//! Never: chooses what to send, retries, or knows what an answer means to its transaction.
//! Start reading at [`Finishers::run`] and [`Finishers::decide`]; `pipelined` is one connection.
//!
//! Why more than one connection per node: COMMIT PREPARED flushes the log before it answers, and a
//! server handles the requests of one connection one after the other. Over a single connection
//! every transaction would wait for the flushes of all before it; over several the server flushes
//! for them together. `docs/decisions/2026-11-21-finishers.md` has the figures.

use std::collections::BTreeMap;

use tutti_link::connection::{Durability, Endpoint, Endpoints, NodeError, Rows};
use tutti_sql::catalog::NodeId;
use tutti_txn::gid::Gid;

use super::decision_log::DecisionLog;
use super::pipelined::PipelinedConnection;

/// Connections per node for finishing, unless configured otherwise.
pub const CONNECTIONS_DEFAULT: usize = 4;

/// See the module's documentation. Dropping it closes the connections.
#[derive(Debug)]
pub struct Finishers {
    nodes: BTreeMap<NodeId, Node>,
}

#[derive(Debug)]
struct Node {
    connections: Vec<PipelinedConnection>,
    decision_log: DecisionLog,
    /// For decisions about requests, each a transaction of its own.
    requests: Vec<PipelinedConnection>,
}

impl Finishers {
    /// For the nodes of this configuration, with `connections` to each; opened when first
    /// needed.
    ///
    /// Requires: a tokio runtime, and at least one connection.
    pub fn new(endpoints: &Endpoints, connections: usize) -> Self {
        assert!(0 < connections, "nothing could be finished");
        let several = |endpoint: &Endpoint, name, durability| {
            let one = |_| PipelinedConnection::new(endpoint.clone(), name, durability);
            (0..connections).map(one).collect()
        };
        let node = |endpoint: &Endpoint| Node {
            connections: several(endpoint, "tutti finisher", Durability::Relaxed),
            decision_log: DecisionLog::new(endpoint.clone()),
            requests: several(endpoint, "tutti requests", Durability::Full),
        };
        Self { nodes: endpoints.iter().map(|it| (it.node(), node(it))).collect() }
    }

    /// Runs COMMIT PREPARED or ROLLBACK PREPARED on a node, as the gateway's own role, with
    /// `synchronous_commit = off`.
    ///
    /// The statement runs even if the caller stops waiting for it.
    ///
    /// Errors: [`NodeError::Refused`] with the node's answer; [`NodeError::Connect`]: it was not sent;
    /// [`NodeError::Lost`]: it may or may not have been executed.
    pub async fn run(&self, node: NodeId, sql: String) -> Result<Vec<Rows>, NodeError> {
        least_loaded(&self.node(node).connections).run(sql).await
    }

    /// Runs a statement that decides about a request on the node that keeps it, durably.
    ///
    /// Errors: as [`Self::decide`].
    pub async fn decide_request(&self, keeper: NodeId, sql: String) -> Result<(), NodeError> {
        least_loaded(&self.node(keeper).requests).run(sql).await.map(drop)
    }

    /// Records `committed` for the transaction on its anchor, durably, unless there is a record.
    /// False: there is one, which recovery wrote: the transaction must be aborted.
    ///
    /// Calls that arrive while a statement is running share the next one.
    ///
    /// Errors: [`NodeError::Refused`] and [`NodeError::Connect`]: it is not recorded;
    /// [`NodeError::Lost`]: it is not known, and recovery must be asked.
    pub async fn decide(&self, anchor: NodeId, gid: &Gid) -> Result<bool, NodeError> {
        self.node(anchor).decision_log.record(gid).await
    }

    fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(&id).expect("nodes are those of the configuration")
    }
}

fn least_loaded(connections: &[PipelinedConnection]) -> &PipelinedConnection {
    let least = connections.iter().min_by_key(|connection| connection.load());
    least.expect("there is at least one")
}
