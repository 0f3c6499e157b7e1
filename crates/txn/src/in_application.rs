//! Which decided transactions may be visible on some of their nodes and not yet on others.
//!
//! Owns: for each such transaction the nodes that have not shown it yet, and who waits for that.
//! Never: delays a reader for what comes later: a wait is for what is in application when it begins.
//! Start reading at [`InApplication::wait`].
//!
//! A statement that reads one node takes no snapshot over several, so it needs no room; but it must
//! not miss a transaction there that a client, perhaps its own, has already seen elsewhere.
//! It waits for the transactions that have its node among those still to show them.

use std::collections::{BTreeMap, BTreeSet};

use crate::gid::NodeId;

/// A transaction in application, by the order in which they began.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Entry(u64);

/// One wait, named by the caller. Never used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Wait(pub u64);

/// Transactions in application, and who waits for them.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct InApplication {
    begun: u64,
    /// Nodes that have not shown the transaction yet.
    missing: BTreeMap<Entry, BTreeSet<NodeId>>,
    waits: BTreeMap<Wait, BTreeSet<(Entry, NodeId)>>,
}

impl InApplication {
    /// A transaction that wrote on `nodes` is about to become visible: the first statement that
    /// makes it so has not been sent yet.
    pub fn begin(&mut self, nodes: impl IntoIterator<Item = NodeId>) -> Entry {
        self.begun += 1;
        let entry = Entry(self.begun);
        self.missing.insert(entry, nodes.into_iter().collect());
        entry
    }

    /// `node` shows the transaction, or is closed to reads until it does. Waits that are over are appended to
    /// `released`.
    pub fn applied(&mut self, entry: Entry, node: NodeId, released: &mut Vec<Wait>) {
        if let Some(missing) = self.missing.get_mut(&entry) {
            missing.remove(&node);
            if missing.is_empty() {
                self.missing.remove(&entry);
            }
        }
        self.release(|known, at| known == entry && at == node, released);
    }

    /// All its nodes show the transaction, or none will.
    pub fn end(&mut self, entry: Entry, released: &mut Vec<Wait>) {
        self.missing.remove(&entry);
        self.release(|known, _| known == entry, released);
    }

    /// Whether no transaction is in application.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty()
    }

    /// Whether `node` shows everything that is in application now, so that no reader has to wait.
    pub fn is_shown_by(&self, node: NodeId) -> bool {
        !self.missing.values().any(|missing| missing.contains(&node))
    }

    /// Begins to wait for all that is in application now and still missing on `node`, or on any node
    /// if it is `None`. True: there is nothing to wait for, and no wait was begun.
    pub fn wait(&mut self, wait: Wait, node: Option<NodeId>) -> bool {
        let pending: BTreeSet<_> = self
            .missing
            .iter()
            .flat_map(|(entry, nodes)| nodes.iter().map(|at| (*entry, *at)))
            .filter(|(_, at)| node.is_none_or(|node| node == *at))
            .collect();
        if pending.is_empty() {
            return true;
        }
        self.waits.insert(wait, pending);
        false
    }

    /// The caller gives up its wait.
    pub fn withdraw(&mut self, wait: Wait) {
        self.waits.remove(&wait);
    }

    fn release(&mut self, is_over: impl Fn(Entry, NodeId) -> bool, released: &mut Vec<Wait>) {
        self.waits.retain(|wait, pending| {
            pending.retain(|(entry, node)| !is_over(*entry, *node));
            if pending.is_empty() {
                released.push(*wait);
            }
            !pending.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);
    const C: NodeId = NodeId(3);

    #[test]
    fn a_wait_is_for_its_node_and_for_what_is_there() {
        let mut in_application = InApplication::default();
        let mut released = Vec::new();
        assert!(in_application.wait(Wait(1), Some(A)));
        let first = in_application.begin([A, B]);
        assert!(!in_application.wait(Wait(2), Some(A)));
        assert!(!in_application.wait(Wait(3), None));
        let second = in_application.begin([A]);
        in_application.applied(first, A, &mut released);
        assert_eq!(released, [Wait(2)], "the later transaction is not waited for");
        assert!(
            !in_application.is_shown_by(A)
                && !in_application.is_shown_by(B)
                && in_application.is_shown_by(C)
        );
        assert!(!in_application.wait(Wait(4), Some(A)), "the second is still missing there");
        assert!(!in_application.wait(Wait(5), Some(B)));
        in_application.applied(first, B, &mut released);
        in_application.end(second, &mut released);
        assert_eq!(released, [Wait(2), Wait(3), Wait(5), Wait(4)]);
        assert!(in_application.is_empty());
    }
}
