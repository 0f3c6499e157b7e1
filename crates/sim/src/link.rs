//! A gateway's end of a connection to a node.
//!
//! Owns: that a connection is closed when no one holds it any more.
//! Start reading at [`Link::open`].

use tutti_txn::NodeId;

use crate::network::{ConnId, Lost};
use crate::node::statement::{Answer, BackendId, Statement};
use crate::tasks::{GatewayId, Slot};
use crate::world::Sim;

/// A gateway's end of a connection. Closed when dropped.
pub struct Link {
    sim: Sim,
    id: ConnId,
    /// The node.
    pub node: NodeId,
    /// The node's start that it is connected to.
    pub epoch: u64,
    /// The backend, as BackendKeyData says.
    pub backend: BackendId,
    /// Whether clients' statements run on it.
    pub is_for_clients: bool,
}

impl Link {
    /// Connects to a node.
    ///
    /// Errors: the node does not answer, or it is down.
    pub async fn open(sim: &Sim, gateway: GatewayId, node: NodeId) -> Result<Self, Lost> {
        let (id, opening) = sim.world().open(gateway, node);
        let (sim, is_for_clients) = (sim.clone(), false);
        let mut link = Self { sim, id, node, epoch: 0, backend: 0, is_for_clients };
        // The network itself tells when it is lost.
        (link.backend, link.epoch) = opening.take().await?;
        Ok(link)
    }

    /// Sends a statement; its answer comes later.
    pub fn send(&self, statement: Statement) -> Slot<Result<Answer, Lost>> {
        self.sim.world().send(self.id, statement)
    }

    /// Sends a statement and waits for its answer.
    pub async fn ask(&self, statement: Statement) -> Result<Answer, Lost> {
        self.send(statement).take().await
    }

    /// From now on clients' statements of this gateway run on it.
    pub fn serve_clients(&mut self, incarnation: u64) {
        self.is_for_clients = true;
        self.sim.world().network.serve(self.id, incarnation);
    }

    /// Whether it is known to be broken.
    pub fn is_broken(&self) -> bool {
        self.sim.world().network.is_known_lost(self.id)
    }

    /// Its number in the network.
    pub fn id(&self) -> ConnId {
        self.id
    }

    /// Gives the connection up; a task that waits for an answer is told that it is lost.
    pub fn close(&self) {
        self.sim.world().close(self.id);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}
