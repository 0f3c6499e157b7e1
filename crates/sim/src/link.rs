//! A gateway's end of a connection to a node.
//!
//! Owns: that a connection is closed when nobody holds it any more.
//! Start reading at [`Link::open`].

use tutti_txn::NodeId;

use crate::network::{ConnId, Lost};
use crate::node::statement::{Answer, BackendId, Statement};
use crate::tasks::Slot;
use crate::world::Sim;

/// A gateway's end of a connection. Closed when dropped.
pub struct Link {
    sim: Sim,
    id: ConnId,
    /// The node.
    pub node: NodeId,
    /// The node's start that it is connected to.
    pub epoch: u64,
    /// The backend, as BackendKeyData tells.
    pub backend: BackendId,
}

impl Link {
    /// Connects to a node.
    ///
    /// Errors: the node does not answer, or it is down.
    pub async fn open(sim: &Sim, node: NodeId, incarnation: u64) -> Result<Self, Lost> {
        let (id, opening) = sim.world().open(node, incarnation);
        let mut link = Self { sim: sim.clone(), id, node, epoch: 0, backend: 0 };
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

    /// Whether it is known to be broken.
    pub fn is_broken(&self) -> bool {
        self.sim.world().network.is_known_lost(self.id)
    }

    /// Gives the connection up; whoever waits for an answer hears that it is lost.
    pub fn close(&self) {
        self.sim.world().close(self.id);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}
