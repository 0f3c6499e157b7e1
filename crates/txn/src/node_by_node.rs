//! The commit of a transaction that wrote on several nodes and is content to have each node commit its part by
//! itself: no votes, no decision, no room. A pure state machine.
//!
//! Owns: what comes before the nodes commit, and what is known of where the transaction is when all have
//! answered or are lost.
//! Never: repairs anything. What one node has committed stays, whatever becomes of it on others; there is
//! nothing that recovery could find. Nor says which transactions may be committed so: the gateway does.
//! Start reading at [`NodeByNode::step`]; what a reader may see of it is in `docs/protocol/base.md`.

use std::collections::{BTreeMap, BTreeSet};

use crate::gid::NodeId;

/// Something to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Effect {
    /// Wait until these nodes show what is in application on them, as any commit does: [`Event::CausesShown`].
    WaitForCauses(BTreeSet<NodeId>),
    /// Wait until the snapshot room is closed, as the commit of one node does: [`Event::Passed`].
    ///
    /// So no snapshot of several nodes shows an effect of this transaction without its causes. That it shows
    /// the transaction on one node and not on another is not prevented.
    Pass,
    /// `COMMIT` on the session's link. All are sent before any is answered: [`Event::Committed`],
    /// [`Event::Refused`] or [`Event::Lost`].
    Commit(NodeId),
    /// The client is told. Happens once, and last.
    Reply(Outcome),
}

/// Something that happened. See [`Effect`] for what each of them answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// What was in application is shown.
    CausesShown,
    /// The snapshot room is closed.
    Passed,
    /// The node has committed its part.
    Committed(NodeId),
    /// The node has refused, and rolled its part back: a deferred constraint, a disk that is full.
    Refused(NodeId),
    /// The connection was lost before the node answered: it has committed its part, or not.
    Lost(NodeId),
}

/// What is known of a node's part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It is committed.
    Committed,
    /// It is rolled back.
    RolledBack,
    /// It is one of the two.
    Unknown,
}

/// How the commit ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// On all nodes.
    Committed,
    /// On none.
    Aborted,
    /// Neither is known to be so.
    Parted(BTreeMap<NodeId, Fate>),
}

/// One transaction's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeByNode {
    writers: BTreeSet<NodeId>,
    fates: BTreeMap<NodeId, Fate>,
}

impl NodeByNode {
    /// A transaction that wrote on all of `writers` is to be committed.
    pub fn begin(writers: BTreeSet<NodeId>, effects: &mut Vec<Effect>) -> Self {
        effects.push(Effect::WaitForCauses(writers.clone()));
        Self { writers, fates: BTreeMap::new() }
    }

    /// What follows from an event.
    pub fn step(&mut self, event: Event, effects: &mut Vec<Effect>) {
        let (node, fate) = match event {
            Event::CausesShown => return effects.push(Effect::Pass),
            Event::Passed => {
                return effects.extend(self.writers.iter().copied().map(Effect::Commit));
            }
            Event::Committed(node) => (node, Fate::Committed),
            Event::Refused(node) => (node, Fate::RolledBack),
            Event::Lost(node) => (node, Fate::Unknown),
        };
        // The first answer counts: a connection that is lost behind it takes nothing back.
        self.fates.entry(node).or_insert(fate);
        if self.fates.len() == self.writers.len() {
            effects.push(Effect::Reply(self.outcome()));
        }
    }

    fn outcome(&self) -> Outcome {
        let all = |wanted| self.fates.values().all(|fate| *fate == wanted);
        match (all(Fate::Committed), all(Fate::RolledBack)) {
            (true, _) => Outcome::Committed,
            (_, true) => Outcome::Aborted,
            _ => Outcome::Parted(self.fates.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    /// All that is done for these answers, in order.
    fn run(answers: &[Event]) -> Vec<Effect> {
        let mut effects = Vec::new();
        let mut commit = NodeByNode::begin(NODES.into(), &mut effects);
        for event in [&[Event::CausesShown, Event::Passed], answers].concat() {
            commit.step(event, &mut effects);
        }
        effects
    }

    #[test]
    fn all_nodes_are_told_before_any_answers() {
        let commits = NODES.map(Effect::Commit);
        let before = [Effect::WaitForCauses(NODES.into()), Effect::Pass];
        assert_eq!(run(&[]), [&before[..], &commits].concat());
    }

    #[test]
    fn every_combination_of_answers_is_told_as_it_is() {
        type Answer = (fn(NodeId) -> Event, Fate);
        const ANSWERS: [Answer; 3] = [
            (Event::Committed, Fate::Committed),
            (Event::Refused, Fate::RolledBack),
            (Event::Lost, Fate::Unknown),
        ];
        for number in 0..27 {
            let chosen = [number % 3, number / 3 % 3, number / 9].map(|index| ANSWERS[index]);
            let events: Vec<_> =
                NODES.iter().zip(chosen).map(|(node, (event, _))| event(*node)).collect();
            let fates: BTreeMap<_, _> =
                NODES.iter().zip(chosen).map(|(node, (_, fate))| (*node, fate)).collect();
            let mut effects = run(&events);
            let told = effects.pop().expect("the client is told");
            let of = |fate| fates.values().filter(|found| **found == fate).count();
            match &told {
                Effect::Reply(Outcome::Committed) => assert_eq!(of(Fate::Committed), 3),
                Effect::Reply(Outcome::Aborted) => assert_eq!(of(Fate::RolledBack), 3),
                Effect::Reply(Outcome::Parted(parts)) => {
                    assert_eq!(*parts, fates);
                    assert!(of(Fate::Committed) < 3 && of(Fate::RolledBack) < 3);
                }
                other => panic!("{other:?}"),
            }
            assert!(!effects.iter().any(|effect| matches!(effect, Effect::Reply(_))));
        }
    }

    #[test]
    fn a_connection_that_is_lost_behind_its_answer_takes_nothing_back() {
        let [one, two, three] = NODES;
        let events = [
            Event::Committed(one),
            Event::Lost(one),
            Event::Committed(two),
            Event::Committed(three),
        ];
        assert_eq!(run(&events).pop(), Some(Effect::Reply(Outcome::Committed)));
    }
}
