//! Snapshots of the whole cluster: exporters that export them, and transactions that share them.
//!
//! Owns: that a transaction gets only a snapshot whose room opened after it had asked.
//! Start reading at [`Gateway::snapshot`].

use std::collections::BTreeMap;
use std::rc::Rc;

use tutti_txn::NodeId;
use tutti_txn::rooms::Room;

use super::{Gateway, RETRY_PAUSE};
use crate::bugs::Bug;
use crate::link::Link;
use crate::network::Lost;
use crate::node::statement::{Answer, ExportId, Isolation, Statement};
use crate::tasks::Slot;

/// How often a snapshot is tried before those that wait are told that there is none.
const TRIES: u32 = 20;

#[derive(Default)]
pub struct Snapshots {
    asks: Vec<Slot<Option<Rc<Exporters>>>>,
    /// Whether a task is on its way into the room that will serve these requests too.
    is_being_taken: bool,
    /// Only with [`Bug::OldSnapshotIsReused`].
    pub last: Option<Rc<Exporters>>,
}

/// One snapshot: a transaction on every node keeps its part until the last user is gone.
pub struct Exporters(BTreeMap<NodeId, (Link, ExportId)>);

impl Exporters {
    /// The name of the node's part, and the start of the node that it belongs to.
    pub fn part(&self, node: NodeId) -> Option<(ExportId, u64)> {
        self.0.get(&node).map(|(link, export)| (*export, link.epoch))
    }
}

impl Gateway {
    /// A snapshot of all nodes, taken after this was called.
    pub(super) async fn snapshot(&self) -> Option<Rc<Exporters>> {
        if self.sim().has(Bug::OldSnapshotIsReused)
            && let Some(last) = self.0.snapshots.borrow().last.clone()
        {
            return Some(last);
        }
        let asked = Slot::default();
        let must_take = {
            let mut snapshots = self.0.snapshots.borrow_mut();
            snapshots.asks.push(asked.clone());
            !std::mem::replace(&mut snapshots.is_being_taken, true)
        };
        if must_take {
            let taking = self.clone();
            self.spawn(async move { taking.serve_asks().await });
        }
        asked.take().await
    }

    async fn serve_asks(self) {
        for _ in 0..TRIES {
            if self.try_snapshot().await.is_ok() {
                return;
            }
            self.sim().sleep(RETRY_PAUSE).await;
        }
        let asks = {
            let mut snapshots = self.0.snapshots.borrow_mut();
            snapshots.is_being_taken = false;
            std::mem::take(&mut snapshots.asks)
        };
        for ask in asks {
            ask.set(None);
        }
    }

    /// Errors: a node does not answer or is not open; the requests still wait, unless the room had opened.
    async fn try_snapshot(&self) -> Result<(), Lost> {
        let nodes: Vec<_> = self.0.nodes.borrow().keys().copied().collect();
        let mut links = Vec::new();
        for node in nodes {
            links.push(self.own_link(node).await?);
        }
        let (visiting, granted) = self.enter(Room::Snapshot);
        granted.take().await;
        if !links.iter().all(|link| self.may_read(link)) {
            return Err(Lost);
        }
        // Later requests get a later one.
        let asks = {
            let mut snapshots = self.0.snapshots.borrow_mut();
            snapshots.is_being_taken = false;
            std::mem::take(&mut snapshots.asks)
        };
        let taken = self.export(links).await.map(Rc::new);
        drop(visiting);
        if self.sim().has(Bug::OldSnapshotIsReused) {
            self.0.snapshots.borrow_mut().last.clone_from(&taken);
        }
        for ask in asks {
            ask.set(taken.clone());
        }
        Ok(())
    }

    async fn export(&self, links: Vec<Link>) -> Option<Exporters> {
        let answers: Vec<_> = links
            .iter()
            .map(|link| {
                link.send(Statement::Begin(Isolation::RepeatableRead));
                link.send(Statement::Export)
            })
            .collect();
        let mut exporters = BTreeMap::new();
        for (link, answer) in links.into_iter().zip(answers) {
            match answer.take().await {
                Ok(Answer::Exported(export)) => exporters.insert(link.node, (link, export)),
                _ => return None,
            };
        }
        Some(Exporters(exporters))
    }
}
