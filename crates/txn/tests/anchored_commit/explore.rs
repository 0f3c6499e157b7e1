//! Visits every state of a world, and reproduces a failure by the shortest path.
//!
//! Owns: the search. Never: knows what a move means.
//! Start reading at [`explore`].
//!
//! Breadth first, so that the first failure found has no shorter one. States are remembered by a
//! 128-bit fingerprint; two of a million sharing one is less likely than a memory error.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use tutti_txn::Outcome;

use crate::exploration::{fingerprint, path_to};
use crate::invariants::{AFTER_QUIET, ALWAYS};
use crate::moves::Move;
use crate::mutation::Mutation;
use crate::world::World;

/// What an exploration without failure has met.
#[derive(Default)]
pub struct Seen {
    pub states: usize,
    pub told: BTreeSet<Outcome>,
    /// Quiet ends: what the client was told last, and whether the transaction committed.
    pub fates: BTreeSet<(Option<Outcome>, bool)>,
}

impl Seen {
    pub fn extend(&mut self, other: Seen) {
        self.states += other.states;
        self.told.extend(other.told);
        self.fates.extend(other.fates);
    }
}

/// A broken invariant and the path that reproduces it.
pub struct Failure {
    invariant: &'static str,
    path: Vec<Move>,
    world: World,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} is broken after:", self.invariant)?;
        for step in &self.path {
            writeln!(f, "  {step}")?;
        }
        write!(f, "leaving {:?}", self.world)
    }
}

/// Visits everything reachable from `start`; stops at the first broken invariant among those whose
/// names `watches` accepts.
pub fn explore(
    start: World,
    mutation: Option<Mutation>,
    watches: impl Fn(&str) -> bool,
) -> Result<Seen, Box<Failure>> {
    let mut seen = Seen::default();
    let mut fingerprints = HashSet::from([fingerprint(&start)]);
    // How each state was first reached: the state before, and the move.
    let mut origins: Vec<Option<(usize, Move)>> = vec![None];
    let mut frontier = vec![(0, start)];
    while !frontier.is_empty() {
        let mut next_frontier = Vec::new();
        for (index, world) in frontier {
            let moves = world.moves(mutation);
            let quiet = !moves.iter().any(|step| step.is_progress());
            let quiet_invariants = if quiet { AFTER_QUIET } else { &[] };
            for (invariant, holds) in ALWAYS.iter().chain(quiet_invariants) {
                if watches(invariant) && !holds(&world) {
                    let path = path_to(index, &origins);
                    return Err(Box::new(Failure { invariant, path, world }));
                }
            }
            seen.told.extend(&world.told);
            if quiet {
                seen.fates.insert((world.told.last().copied(), world.anchor_has_committed()));
            }
            for step in moves {
                let mut after = world.clone();
                after.apply(step, mutation);
                if fingerprints.insert(fingerprint(&after)) {
                    next_frontier.push((origins.len(), after));
                    origins.push(Some((index, step)));
                }
            }
        }
        frontier = next_frontier;
    }
    seen.states = origins.len();
    Ok(seen)
}
