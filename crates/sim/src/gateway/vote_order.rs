//! Driving [`VoteOrder`]: one order of votes, and one of becoming visible, on nodes that transactions share.
//!
//! Owns: which transaction is told that it has its turn.
//! Start reading at [`Gateway::ask_for_turn`].

use std::cell::RefCell;
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

/// Which of the two orders.
#[derive(Clone, Copy)]
pub enum Order {
    OfVotes,
    OfVisibility,
}

/// A turn, asked for or granted. Over when dropped.
pub struct VotePermit {
    gateway: Gateway,
    order: Order,
    visit: Visit,
}

impl VotePermit {
    /// Whether another waits for this one's end.
    pub fn is_awaited(&self) -> bool {
        self.gateway.order(self.order).borrow().machine.is_awaited(self.visit)
    }
}

impl Drop for VotePermit {
    fn drop(&mut self) {
        let mut queue = self.gateway.order(self.order).borrow_mut();
        queue.waiting.remove(&self.visit);
        queue.change(|machine, out| machine.done(self.visit, out));
    }
}

impl Gateway {
    fn order(&self, order: Order) -> &RefCell<Queue> {
        match order {
            Order::OfVotes => &self.0.votes,
            Order::OfVisibility => &self.0.visibility,
        }
    }

    /// Waits for a turn to vote on all these nodes.
    pub(super) async fn take_vote_permit(&self, nodes: BTreeSet<NodeId>) -> Option<VotePermit> {
        if self.sim().has(Bug::TurnsAreSkipped) {
            return None;
        }
        let (turn, granted) = self.ask_for_turn(Order::OfVotes, nodes);
        granted.take().await;
        Some(turn)
    }

    /// Asks for a turn. The slot tells when it comes.
    pub(super) fn ask_for_turn(
        &self,
        order: Order,
        nodes: BTreeSet<NodeId>,
    ) -> (VotePermit, Slot<()>) {
        let slot = Slot::default();
        let mut queue = self.order(order).borrow_mut();
        queue.begun += 1;
        let visit = Visit(queue.begun);
        queue.waiting.insert(visit, slot.clone());
        queue.change(|machine, out| machine.ask(visit, nodes, out));
        (VotePermit { gateway: self.clone(), order, visit }, slot)
    }
}
