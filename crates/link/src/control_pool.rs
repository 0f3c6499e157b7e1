//! Connections of the gateway's own, checked out briefly: to keep a snapshot, to inspect a backend.
//!
//! Owns: the idle ones, per node.
//! Never: hands out one that is in a transaction.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tutti_sql::catalog::NodeId;

use crate::availability::{Availability, OPEN_PATIENCE};
use crate::connection::{Durability, Endpoints, NodeConnection, NodeError, open_own};

/// More idle connections to one node than this are closed.
const IDLE_MAX: usize = 8;

/// See the module's documentation.
#[derive(Debug)]
pub struct ControlPool {
    endpoints: Endpoints,
    nodes: Arc<Availability>,
    idle: Mutex<BTreeMap<NodeId, Vec<NodeConnection>>>,
}

impl ControlPool {
    /// None yet.
    pub fn new(endpoints: Endpoints, nodes: Arc<Availability>) -> Self {
        Self { endpoints, nodes, idle: Mutex::default() }
    }

    /// An idle connection to `node`, or a new one.
    pub async fn checkout(&self, node: NodeId) -> Result<NodeConnection, NodeError> {
        loop {
            let idle = self.idle().get_mut(&node).and_then(Vec::pop);
            let Some(mut connection) = idle else { return self.open(node).await };
            // Its server may have restarted since.
            if connection.is_quiet() {
                return Ok(connection);
            }
        }
    }

    /// A new connection to `node`.
    async fn open(&self, node: NodeId) -> Result<NodeConnection, NodeError> {
        // Nothing that must last is written over it.
        let mut connection =
            open_own(self.endpoints.of(node), "tutti exporter", Durability::Relaxed).await?;
        self.nodes.recognise(&mut connection, OPEN_PATIENCE).await?;
        Ok(connection)
    }

    /// Takes a connection back. Requires: nothing is outstanding on it, and no transaction is open.
    pub fn release(&self, connection: NodeConnection) {
        if connection.is_broken() {
            return;
        }
        let mut idle = self.idle();
        let idle = idle.entry(connection.node()).or_default();
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        } else {
            connection.close();
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, BTreeMap<NodeId, Vec<NodeConnection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
