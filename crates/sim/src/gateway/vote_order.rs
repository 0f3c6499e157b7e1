//! Driving [`VoteOrder`]: one order of votes on nodes that transactions share.
//!
//! Owns: who is told that it has its turn.
//! Start reading at [`Gateway::take_turn`].

use std::collections::{BTreeMap, BTreeSet};

use tutti_txn::rooms::Visit;
use tutti_txn::{NodeId, VoteOrder};

use super::Gateway;
use crate::bugs::Bug;
use crate::tasks::Slot;

#[derive(Default)]
pub struct Queue {
    machine: VoteOrder,
    begun: u64,
    waiting: BTreeMap<Visit, Slot<()>>,
}

impl Queue {
    fn change(&mut self, step: impl FnOnce(&mut VoteOrder, &mut Vec<Visit>)) {
        let mut granted = Vec::new();
        step(&mut self.machine, &mut granted);
        for visit in granted {
            if let Some(slot) = self.waiting.remove(&visit) {
                slot.set(());
            }
        }
    }
}

/// A turn. Over when dropped.
pub struct VotePermit {
    gateway: Gateway,
    visit: Visit,
}

impl Drop for VotePermit {
    fn drop(&mut self) {
        self.gateway.0.turns.borrow_mut().change(|machine, out| machine.done(self.visit, out));
    }
}

impl Gateway {
    /// Waits for a turn on all these nodes.
    pub(super) async fn take_turn(&self, nodes: BTreeSet<NodeId>) -> Option<VotePermit> {
        if self.sim().has(Bug::TurnsAreSkipped) {
            return None;
        }
        let slot = Slot::default();
        let turn = {
            let mut queue = self.0.turns.borrow_mut();
            queue.begun += 1;
            let visit = Visit(queue.begun);
            queue.waiting.insert(visit, slot.clone());
            queue.change(|machine, out| machine.ask(visit, nodes, out));
            VotePermit { gateway: self.clone(), visit }
        };
        slot.take().await;
        Some(turn)
    }
}
