//! Every small world, exhaustively: the anchored commit and its recovery over a model of a few
//! nodes, with every order of events, every loss and every moment of death within stated limits.
//!
//! Owns: the limits of each exploration, and the list of planted bugs that it must find.
//! Never: samples. What is within the limits is visited, all of it.
//! Start reading at [`every_small_world_keeps_its_promises`], then `world.rs` for what can happen
//! and `invariants.rs` for what must hold.

mod explore;
mod invariants;
mod moves;
mod mutation;
mod world;

use std::collections::BTreeSet;

use tutti_txn::{AbortCause, Outcome};

use explore::{Seen, explore};
use invariants::{AFTER_QUIET, ALWAYS};
use mutation::Mutation;
use world::{Limits, World};

fn explore_all(explorations: &[(u16, Limits)]) -> Seen {
    let mut all = Seen::default();
    for &(participants, limits) in explorations {
        match explore(World::begin(participants, limits), None, |_| true) {
            Ok(seen) => {
                println!("{participants} participants, {limits:?}: {} states", seen.states);
                all.extend(seen);
            }
            Err(failure) => panic!("{participants} participants, {limits:?}\n{failure}"),
        }
    }
    all
}

const NONE: Limits =
    Limits { breaks: 0, repeats: 0, crashes: 0, sweeps: 0, forgets: 0, deadlines: 0 };

/// Goal: no run within the limits breaks an invariant. Method: visit every reachable state. The
/// limits differ so that each kind of fault meets the others somewhere.
#[test]
fn every_small_world_keeps_its_promises() {
    let seen = explore_all(&[
        // One participant: many faults at once.
        (1, Limits { breaks: 1, repeats: 1, crashes: 1, forgets: 1, ..NONE }),
        (1, Limits { breaks: 1, crashes: 1, sweeps: 1, deadlines: 1, ..NONE }),
        (1, Limits { breaks: 2, crashes: 2, ..NONE }),
        // Two: pairs of faults.
        (2, Limits { breaks: 1, deadlines: 1, ..NONE }),
        (2, Limits { breaks: 1, crashes: 1, ..NONE }),
        (2, Limits { breaks: 1, repeats: 1, ..NONE }),
        (2, Limits { crashes: 1, sweeps: 1, ..NONE }),
        (2, Limits { breaks: 2, ..NONE }),
        (2, Limits { crashes: 2, ..NONE }),
        (2, Limits { crashes: 1, forgets: 1, ..NONE }),
        // Three: single faults.
        (3, Limits { crashes: 1, ..NONE }),
        (3, Limits { breaks: 1, ..NONE }),
    ]);
    // An exploration that never reaches an outcome proves nothing about it.
    let causes: BTreeSet<_> =
        seen.told.iter().filter_map(|outcome| name_of_abort(*outcome)).collect();
    assert_eq!(
        causes,
        [
            "anchor lost",
            "anchor refused",
            "deadline reached",
            "decision refused",
            "found aborted",
            "vote lost",
            "voted no",
        ]
        .into()
    );
    assert!(seen.told.contains(&Outcome::Committed));
    // Told that nobody knows, and told nothing because the gateway died: both must end both ways.
    for told in [Some(Outcome::Unknown), None] {
        for committed in [true, false] {
            assert!(seen.fates.contains(&(told, committed)), "never: {told:?}, {committed}");
        }
    }
}

/// The same with more faults at once: minutes, and gigabytes.
#[test]
#[ignore = "takes minutes; run it after a change of the protocol"]
fn every_larger_world_keeps_its_promises() {
    explore_all(&[
        (1, Limits { breaks: 2, repeats: 1, crashes: 2, sweeps: 1, forgets: 1, deadlines: 1 }),
        (2, Limits { breaks: 2, deadlines: 1, ..NONE }),
        (2, Limits { breaks: 1, sweeps: 1, ..NONE }),
        (2, Limits { crashes: 1, breaks: 1, repeats: 1, forgets: 1, ..NONE }),
    ]);
}

/// Names each cause; a new cause does not compile until it is named, and then must be reached.
fn name_of_abort(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Committed | Outcome::Unknown => None,
        Outcome::Aborted { cause } => Some(match cause {
            AbortCause::VotedNo(_) => "voted no",
            AbortCause::VoteLost(_) => "vote lost",
            AbortCause::DecisionRefused => "decision refused",
            AbortCause::AnchorRefused => "anchor refused",
            AbortCause::AnchorLost => "anchor lost",
            AbortCause::FoundAborted => "found aborted",
            AbortCause::DeadlineReached => "deadline reached",
        }),
    }
}

/// Goal: the exploration is worth something. Method: plant each bug, and demand that each invariant
/// that should notice does; and that no invariant is without a bug that it notices.
#[test]
fn every_planted_bug_is_found() {
    let one_break = Limits { breaks: 1, ..NONE };
    let one_deadline = Limits { deadlines: 1, ..NONE };
    let one_sweep = Limits { sweeps: 1, ..NONE };
    let one_forget = Limits { forgets: 1, ..NONE };
    let planted: &[(Mutation, Limits, &[&str])] = &[
        (Mutation::CommitBeforeAllVotes, NONE, &["atomicity", "told_the_truth"]),
        (
            Mutation::CommitPreparedBeforeDecision,
            NONE,
            &["decision_before_any_commit_prepared", "atomicity"],
        ),
        (
            Mutation::ReplyAtDecision,
            NONE,
            &["committed_is_applied_or_handed_over", "told_at_most_once"],
        ),
        (Mutation::LostAnchorMeansAborted, one_break, &["told_the_truth", "atomicity"]),
        (Mutation::DeadlineAbortsWhileDeciding, one_deadline, &["told_the_truth", "atomicity"]),
        (Mutation::UnknownMeansDone, one_break, &["no_orphan_after_quiet"]),
        (Mutation::UnknownMeansSettled, one_break, &["no_orphan_after_quiet"]),
        (Mutation::UnansweredPrepareIsForgotten, NONE, &["no_orphan_after_quiet"]),
        (Mutation::RecoveryLeavesNoRecord, one_sweep, &["atomicity", "told_the_truth"]),
        (Mutation::ListingDoesNotFence, one_break, &["no_orphan_after_quiet"]),
        (Mutation::RestartIsNotSwept, one_forget, &["no_orphan_after_quiet", "told_the_truth"]),
        (
            Mutation::LostParticipantIsNotClosed,
            one_break,
            &["half_applied_only_in_the_room", "committed_is_applied_or_handed_over"],
        ),
        (Mutation::LossIsNotReported, one_break, &["everybody_is_answered"]),
    ];
    let mut noticed = BTreeSet::new();
    for &(mutation, limits, names) in planted {
        for &name in names {
            match explore(World::begin(2, limits), Some(mutation), |watched| watched == name) {
                Ok(seen) => panic!("{name} missed {mutation:?} in {} states", seen.states),
                Err(failure) => println!("{mutation:?}: {failure}"),
            }
            noticed.insert(name);
        }
    }
    let all: BTreeSet<_> = ALWAYS.iter().chain(AFTER_QUIET).map(|(name, _)| *name).collect();
    assert_eq!(noticed, all);
}
