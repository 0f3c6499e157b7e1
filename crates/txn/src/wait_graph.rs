//! Who waits for whom over all nodes: deadlocks that no single node can see, and whom to end.
//!
//! Owns: which waits are certain, which of them can never end, and the choice of victims.
//! Never: asks a node, cancels anything, or knows what a lock is.
//! Start reading at [`WaitGraph::look`], then [`victims`].
//!
//! **Why two looks.** The nodes are not asked at the same instant, so one look can show a cycle that
//! never was: A waits for B on node 1, that wait ends, and only then does B begin to wait for A on
//! node 2. So a cycle counts only if each of its waits was there, the very same wait, in two
//! consecutive looks of which the second began when the first had ended. Each of them then lasted from
//! its place in the first look to its place in the second, so all of them existed together at the instant
//! between the looks. A party in such a cycle goes on only when the one it waits for has ended, so the cycle
//! does not go away by itself: it is a deadlock. This needs that a wait's identity is never used again, and
//! that a party waits for **all** that it is said to wait for. What may end the cycle nevertheless (a
//! timeout, a cancel request) ends a wait in it, which is why the caller, before it ends a victim, looks once
//! more whether it still is in that wait.
//!
//! **What is left to the nodes.** Parties that wait for each other on one node only are found by that
//! node's own deadlock detector, so only knots of waits on at least two nodes are reported.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::gid::NodeId;

/// One party waits for another on a node.
///
/// `P` orders parties by age: the greater began later. `I` identifies the wait: if it ends and
/// another begins, even of the same two parties, the identity is another.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Wait<P, I> {
    /// Cannot go on…
    pub waiter: P,
    /// …before this one has ended.
    pub blocker: P,
    /// Where.
    pub node: NodeId,
    /// Which wait.
    pub identity: I,
}

/// A party to be ended, and why.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Victim<P, I> {
    /// Whom.
    pub party: P,
    /// A shortest cycle of waits over at least two nodes, beginning with one of the victim's: each
    /// one's blocker is the next one's waiter, the last one's blocker is the victim.
    pub cycle: Vec<Wait<P, I>>,
}

/// Remembers the previous look.
#[derive(Clone, Debug)]
pub struct WaitGraph<P, I> {
    last: BTreeSet<Wait<P, I>>,
}

impl<P, I> Default for WaitGraph<P, I> {
    fn default() -> Self {
        Self { last: BTreeSet::new() }
    }
}

impl<P: Copy + Ord, I: Clone + Ord> WaitGraph<P, I> {
    /// Takes the waits that all nodes show now, and says which parties to end, of those that `may_end`; only
    /// those that run again, if that is enough.
    ///
    /// Requires: no node was asked for this look before all had answered for the last one. A node
    /// that does not answer is left out: what it does not confirm is not believed.
    /// After victims were named, the next ones are named two looks later at the earliest, so that
    /// waits which are just being ended do not count.
    pub fn observe(
        &mut self,
        seen: BTreeSet<Wait<P, I>>,
        may_end: impl Fn(&P) -> bool,
        runs_again: impl Fn(&P) -> bool,
    ) -> Vec<Victim<P, I>> {
        let certain: BTreeSet<_> = self.last.intersection(&seen).cloned().collect();
        self.last = seen;
        let victims = victims(&certain, may_end, runs_again);
        if !victims.is_empty() {
            self.forget();
        }
        victims
    }

    /// Whether the last look, if the next one confirms it, will name victims.
    pub fn is_suspicious(&self) -> bool {
        !knots(&self.last, &BTreeSet::new()).is_empty()
    }

    /// Forgets all looks: the next look confirms nothing.
    pub fn forget(&mut self) {
        self.last.clear();
    }
}

/// In knots of up to this many parties it is tried whether ending one of them is enough.
const TRIED_ALONE_MAX: usize = 32;

/// Who must end so that no party is left in a knot of waits over several nodes: one, if one is enough, of the
/// youngest, and none in vain. The least number possible is not promised: that problem is NP-hard. A knot in
/// which none `may_end` stays. One that can be undone by those alone that `runs_again`, whose clients notice
/// nothing, costs no others, however many they are.
pub fn victims<P: Copy + Ord, I: Clone + Ord>(
    waits: &BTreeSet<Wait<P, I>>,
    may_end: impl Fn(&P) -> bool,
    runs_again: impl Fn(&P) -> bool,
) -> Vec<Victim<P, I>> {
    let mut ended = BTreeSet::new();
    while let Some((knot, candidates)) = knots(waits, &ended).into_iter().find_map(|knot| {
        let candidates: Vec<P> = knot.iter().rev().copied().filter(&may_end).collect();
        Some((knot, candidates)).filter(|(_, candidates)| !candidates.is_empty())
    }) {
        let undone_with = |parties: &[P]| {
            let with_them = ended.iter().chain(parties).copied().collect();
            knots(waits, &with_them).iter().all(|left| left.is_disjoint(&knot))
        };
        let free: Vec<P> = candidates.iter().copied().filter(&runs_again).collect();
        if !free.is_empty() && undone_with(&free) {
            ended.extend(free);
            continue;
        }
        let enough = |party: &&P| undone_with(&[**party]);
        let tried = if candidates.len() <= TRIED_ALONE_MAX { &candidates[..] } else { &[] };
        let youngest = &candidates[0];
        ended.insert(*tried.iter().find(enough).unwrap_or(youngest));
    }
    // Ending a younger one may have been needless once an older one had to end as well.
    let stays = knots(waits, &ended);
    for party in ended.clone() {
        ended.remove(&party);
        if knots(waits, &ended) != stays {
            ended.insert(party);
        }
    }
    ended
        .iter()
        .map(|party| {
            let others: BTreeSet<P> =
                ended.iter().copied().filter(|other| other != party).collect();
            let cycle = shortest_round(waits, &others, *party);
            Victim { party: *party, cycle: cycle.into_iter().cloned().collect() }
        })
        .collect()
}

/// Waits by their waiter.
type Outgoing<'a, P, I> = BTreeMap<P, Vec<&'a Wait<P, I>>>;

/// Groups of parties that all wait for each other, directly or not, on at least two nodes: the
/// strongly connected components of the graph whose inner edges have several nodes. Those that have `ended`
/// do not count.
fn knots<P: Copy + Ord, I>(waits: &BTreeSet<Wait<P, I>>, ended: &BTreeSet<P>) -> Vec<BTreeSet<P>> {
    let waits = in_rounds(waits, ended);
    let mut forwards: BTreeMap<P, Vec<P>> = BTreeMap::new();
    let mut backwards: BTreeMap<P, Vec<P>> = BTreeMap::new();
    for wait in &waits {
        forwards.entry(wait.waiter).or_default().push(wait.blocker);
        backwards.entry(wait.blocker).or_default().push(wait.waiter);
    }
    let mut found = Vec::new();
    let mut unassigned: BTreeSet<P> = forwards.keys().copied().collect();
    while let Some(party) = unassigned.first().copied() {
        let ahead = reachable(&forwards, party);
        let behind = reachable(&backwards, party);
        let group: BTreeSet<P> = behind.intersection(&ahead).copied().collect();
        let inside =
            |wait: &&&Wait<P, I>| group.contains(&wait.waiter) && group.contains(&wait.blocker);
        let nodes: BTreeSet<NodeId> = waits.iter().filter(inside).map(|wait| wait.node).collect();
        unassigned.retain(|party| !group.contains(party));
        if 1 < nodes.len() {
            found.push(group);
        }
    }
    found
}

/// Removes parties that wait for none or that none waits for, repeatedly: what remains is small
/// even when hundreds queue for one row. In linear time, for the same reason.
fn in_rounds<'a, P: Copy + Ord, I>(
    waits: &'a BTreeSet<Wait<P, I>>,
    ended: &BTreeSet<P>,
) -> Vec<&'a Wait<P, I>> {
    let mut left: Vec<Option<&Wait<P, I>>> = waits.iter().map(Some).collect();
    let mut outgoing: BTreeMap<P, BTreeSet<usize>> = BTreeMap::new();
    let mut incoming: BTreeMap<P, BTreeSet<usize>> = BTreeMap::new();
    for (index, wait) in waits.iter().enumerate() {
        for party in [wait.waiter, wait.blocker] {
            outgoing.entry(party).or_default();
            incoming.entry(party).or_default();
        }
        outgoing.entry(wait.waiter).or_default().insert(index);
        incoming.entry(wait.blocker).or_default().insert(index);
    }
    let is_loose = |party: &P| {
        ended.contains(party) || outgoing[party].is_empty() || incoming[party].is_empty()
    };
    let mut loose: Vec<P> = outgoing.keys().copied().filter(is_loose).collect();
    while let Some(party) = loose.pop() {
        for index in outgoing.insert(party, BTreeSet::new()).unwrap_or_default() {
            let Some(wait) = left[index].take() else { continue };
            let others = incoming.entry(wait.blocker).or_default();
            others.remove(&index);
            if others.is_empty() {
                loose.push(wait.blocker);
            }
        }
        for index in incoming.insert(party, BTreeSet::new()).unwrap_or_default() {
            let Some(wait) = left[index].take() else { continue };
            let others = outgoing.entry(wait.waiter).or_default();
            others.remove(&index);
            if others.is_empty() {
                loose.push(wait.waiter);
            }
        }
    }
    left.into_iter().flatten().collect()
}

fn reachable<P: Copy + Ord>(next: &BTreeMap<P, Vec<P>>, from: P) -> BTreeSet<P> {
    let mut found = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(party) = open.pop() {
        for further in next.get(&party).into_iter().flatten() {
            if found.insert(*further) {
                open.push(*further);
            }
        }
    }
    found
}

/// The shortest way from `party` back to itself over waits on at least two nodes, by breadth-first
/// search over pairs of a party and the only node so far (`None`: there were several). Empty if
/// there is none.
fn shortest_round<'a, P: Copy + Ord, I>(
    waits: &'a BTreeSet<Wait<P, I>>,
    ended: &BTreeSet<P>,
    party: P,
) -> Vec<&'a Wait<P, I>> {
    let mut outgoing: Outgoing<'a, P, I> = BTreeMap::new();
    for wait in in_rounds(waits, ended) {
        outgoing.entry(wait.waiter).or_default().push(wait);
    }
    let mut reached: BTreeSet<(P, Option<NodeId>)> = BTreeSet::new();
    let mut open = VecDeque::from([(party, Vec::new())]);
    while let Some((at, way)) = open.pop_front() {
        for wait in outgoing.get(&at).into_iter().flatten() {
            let mut further = way.clone();
            further.push(*wait);
            let only = Some(wait.node).filter(|node| further.iter().all(|w| w.node == *node));
            if wait.blocker == party && only.is_none() {
                return further;
            }
            if reached.insert((wait.blocker, only)) {
                open.push_back((wait.blocker, further));
            }
        }
    }
    Vec::new()
}
