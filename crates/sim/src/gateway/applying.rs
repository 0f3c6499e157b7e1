//! Driving [`InApplication`]: waiting for transactions that are visible on some nodes only.
//!
//! Owns: which wait is told that it is over.
//! Start reading at [`Gateway::wait_for_applying`].

use std::collections::BTreeMap;

use tutti_txn::NodeId;
use tutti_txn::in_application::{Entry, InApplication, Wait};

use super::Gateway;
use crate::tasks::Slot;

#[derive(Default)]
pub struct Waits {
    machine: InApplication,
    begun: u64,
    waiting: BTreeMap<Wait, Slot<()>>,
}

impl Waits {
    pub fn is_quiet(&self) -> bool {
        self.machine.is_empty() && self.waiting.is_empty()
    }

    fn change(&mut self, step: impl FnOnce(&mut InApplication, &mut Vec<Wait>)) {
        let mut released = Vec::new();
        step(&mut self.machine, &mut released);
        for wait in released {
            if let Some(slot) = self.waiting.remove(&wait) {
                slot.set(());
            }
        }
    }
}

impl Gateway {
    pub(super) fn begin_applying(&self, nodes: impl IntoIterator<Item = NodeId>) -> Entry {
        self.0.applying.borrow_mut().machine.begin(nodes)
    }

    pub(super) fn is_applied(&self, entry: Entry, node: NodeId) {
        self.0.applying.borrow_mut().change(|machine, out| machine.applied(entry, node, out));
    }

    pub(super) fn end_applying(&self, entry: Entry) {
        self.0.applying.borrow_mut().change(|machine, out| machine.end(entry, out));
    }

    /// Waits for what is in application now and not yet visible on `node`.
    pub(super) async fn wait_for_applying(&self, node: NodeId) {
        self.begin_wait(node).take().await;
    }

    /// The same, to be waited for later: what comes into application meanwhile does not count.
    pub(super) fn begin_wait(&self, node: NodeId) -> Slot<()> {
        let slot = Slot::default();
        let mut waits = self.0.applying.borrow_mut();
        waits.begun += 1;
        let wait = Wait(waits.begun);
        if waits.machine.wait(wait, Some(node)) {
            slot.set(());
        } else {
            waits.waiting.insert(wait, slot.clone());
        }
        slot
    }
}
