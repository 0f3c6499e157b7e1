//! The order of votes on nodes, and that of becoming visible there: SERIALIZABLE transactions over several nodes do
//! either in one order on all they share.
//!
//! Owns: whose visits are admitted and who comes after whom.
//! Never: knows what for: a permit to vote in the vote order, a place in the visibility order.
//! Start reading at [`VoteOrder::ask`]; what it is for is in `docs/protocol/serializable.md`.
//!
//! A transaction asks for all its nodes together and gets them together, when all that asked before for any
//! of them are done. So there is one order, the order of asking; there is no circular wait, none is
//! overtaken, and transactions without a common node do not wait for each other.

use std::collections::BTreeSet;

use crate::gid::NodeId;
use crate::rooms::Visit;

/// Who is admitted and who waits.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct VoteOrder {
    /// In the order of asking.
    asked: Vec<Asked>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
struct Asked {
    visit: Visit,
    nodes: BTreeSet<NodeId>,
    is_admitted: bool,
}

impl VoteOrder {
    /// Asks for all of `nodes`. Visits that are admitted by that are appended to `granted`.
    pub fn ask(&mut self, visit: Visit, nodes: BTreeSet<NodeId>, granted: &mut Vec<Visit>) {
        self.asked.push(Asked { visit, nodes, is_admitted: false });
        self.admit(granted);
    }

    /// The visit is over, or given up before it was admitted.
    pub fn done(&mut self, visit: Visit, granted: &mut Vec<Visit>) {
        self.asked.retain(|asked| asked.visit != visit);
        self.admit(granted);
    }

    /// Whether another visit waits for a node that `visit` has asked for.
    pub fn is_awaited(&self, visit: Visit) -> bool {
        let mine = self.asked.iter().find(|asked| asked.visit == visit);
        mine.is_some_and(|mine| {
            let mut waiting = self.asked.iter().filter(|asked| !asked.is_admitted);
            waiting.any(|asked| !asked.nodes.is_disjoint(&mine.nodes))
        })
    }

    fn admit(&mut self, granted: &mut Vec<Visit>) {
        let mut taken: BTreeSet<NodeId> = BTreeSet::new();
        for asked in &mut self.asked {
            if !asked.is_admitted && taken.is_disjoint(&asked.nodes) {
                asked.is_admitted = true;
                granted.push(asked.visit);
            }
            taken.extend(&asked.nodes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(ids: &[u16]) -> BTreeSet<NodeId> {
        ids.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn visits_come_in_the_order_of_asking_where_nodes_are_shared() {
        let mut order = VoteOrder::default();
        let mut granted = Vec::new();
        order.ask(Visit(1), nodes(&[1, 2]), &mut granted);
        order.ask(Visit(2), nodes(&[2, 3]), &mut granted);
        order.ask(Visit(3), nodes(&[3, 4]), &mut granted);
        order.ask(Visit(4), nodes(&[5, 6]), &mut granted);
        assert_eq!(granted, [Visit(1), Visit(4)], "3 shares node 3 with 2, who was there before");
        assert!(order.is_awaited(Visit(1)), "by 2");
        assert!(!order.is_awaited(Visit(4)), "nobody else wants its nodes");
        order.done(Visit(2), &mut granted);
        assert_eq!(granted, [Visit(1), Visit(4), Visit(3)]);
        order.done(Visit(1), &mut granted);
        order.done(Visit(3), &mut granted);
        order.done(Visit(4), &mut granted);
        assert_eq!(order, VoteOrder::default());
    }
}
