//! Every small world, exhaustively: the commit in both forms and its recovery over a model of a few
//! nodes, with every order of events, every loss and every moment of death within stated limits.
//!
//! Owns: the limits of each exploration, and the list of planted bugs that it must find.
//! Never: samples. What is within the limits is visited, all of it.
//! Start reading at [`every_small_world_keeps_its_promises_anchored`] and `…_apart`, then `world.rs` for what can happen
//! and `invariants.rs` for what must hold.

#[path = "../exploration/mod.rs"]
mod exploration;
mod explore;
mod invariants;
mod moves;
mod mutation;
mod world;

use std::collections::BTreeSet;

use tutti_txn::{AbortCause, Form, Outcome, Terms};

use explore::{Seen, explore};
use invariants::{AFTER_QUIET, ALWAYS};
use mutation::Mutation;
use world::{Limits, World};

fn explore_all(terms: Terms, explorations: &[(u16, Limits)]) -> Seen {
    let mut all = Seen::default();
    for &(participants, limits) in explorations {
        match explore(World::begin(terms, participants, limits), None, |_| true) {
            Ok(seen) => {
                println!(
                    "{terms:?}, {participants} participants, {limits:?}: {} states",
                    seen.states
                );
                all.extend(seen);
            }
            Err(failure) => {
                panic!("{terms:?}, {participants} participants, {limits:?}\n{failure}")
            }
        }
    }
    all
}

/// With everything that a commit may have to wait for.
fn serializable(form: Form) -> Terms {
    Terms { form, serializable: true, watched: true }
}

const NONE: Limits =
    Limits { breaks: 0, repeats: 0, crashes: 0, sweeps: 0, forgets: 0, deadlines: 0 };

/// Limits of the anchored form. They differ so that each kind of fault meets the others somewhere.
const SMALL_ANCHORED: &[(u16, Limits)] = &[
    // One participant: many faults together.
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
];

/// Limits of the decision apart. The anchor votes too, so one participant here is as much as two
/// anchored.
const SMALL_APART: &[(u16, Limits)] = &[
    // One participant: three faults together.
    (1, Limits { breaks: 1, repeats: 1, forgets: 1, ..NONE }),
    (1, Limits { repeats: 1, crashes: 1, forgets: 1, ..NONE }),
    (1, Limits { breaks: 1, crashes: 1, sweeps: 1, ..NONE }),
    (1, Limits { crashes: 1, sweeps: 1, deadlines: 1, ..NONE }),
    (1, Limits { breaks: 1, crashes: 2, ..NONE }),
    (1, Limits { breaks: 2, crashes: 1, ..NONE }),
    // Two: pairs of faults.
    (2, Limits { breaks: 1, deadlines: 1, ..NONE }),
    (2, Limits { breaks: 1, crashes: 1, ..NONE }),
    (2, Limits { breaks: 1, repeats: 1, ..NONE }),
    (2, Limits { sweeps: 1, ..NONE }),
    (2, Limits { crashes: 1, forgets: 1, ..NONE }),
    // Three: single faults.
    (3, Limits { crashes: 1, ..NONE }),
    (3, Limits { breaks: 1, ..NONE }),
];

/// Limits of SERIALIZABLE transactions, which ask sentinels and wait for their turn as well.
const SMALL_SERIALIZABLE: &[(u16, Limits)] = &[
    (1, Limits { breaks: 2, ..NONE }),
    (1, Limits { breaks: 1, crashes: 1, ..NONE }),
    (1, Limits { repeats: 1, deadlines: 1, ..NONE }),
    (1, Limits { crashes: 1, sweeps: 1, ..NONE }),
    (1, Limits { breaks: 1, deadlines: 1, forgets: 1, ..NONE }),
    (2, Limits { breaks: 1, ..NONE }),
    (2, Limits { deadlines: 1, ..NONE }),
    (2, Limits { crashes: 1, ..NONE }),
];

/// Goal: no run within the limits breaks an invariant. Method: visit every reachable state.
#[test]
fn every_small_world_keeps_its_promises_anchored() {
    let seen = explore_all(Terms::of(Form::Anchored), SMALL_ANCHORED);
    check_reached(
        &seen,
        [
            "anchor lost",
            "anchor refused",
            "deadline reached",
            "decision refused",
            "found aborted",
            "vote lost",
            "voted no",
        ]
        .into(),
    );
}

/// The same with the decision apart: one voter more.
#[test]
fn every_small_world_keeps_its_promises_apart() {
    let seen = explore_all(Terms::of(Form::Apart), SMALL_APART);
    check_reached(
        &seen,
        ["deadline reached", "decision refused", "found aborted", "vote lost", "voted no"].into(),
    );
}

/// The same with the decision elsewhere, as of a request: the anchor has no part. One voter alone, too.
#[test]
fn every_small_world_keeps_its_promises_elsewhere() {
    let seen = explore_all(Terms::of(Form::Elsewhere), SMALL_APART);
    check_reached(
        &seen,
        ["deadline reached", "decision refused", "found aborted", "vote lost", "voted no"].into(),
    );
}

/// The same of SERIALIZABLE transactions, in all forms.
#[test]
fn every_small_world_of_serializable_transactions_keeps_its_promises() {
    let both = BTreeSet::from(["deadline reached", "found aborted", "sentinel missing"]);
    let both: BTreeSet<_> =
        both.into_iter().chain(["vote lost", "voted no", "decision refused"]).collect();
    let anchored = explore_all(serializable(Form::Anchored), SMALL_SERIALIZABLE);
    let further = ["anchor lost", "anchor refused"];
    check_reached(&anchored, both.iter().copied().chain(further).collect());
    let apart = explore_all(serializable(Form::Apart), SMALL_SERIALIZABLE);
    check_reached(&apart, both.clone());
    let elsewhere = explore_all(serializable(Form::Elsewhere), SMALL_SERIALIZABLE);
    check_reached(&elsewhere, both);
}

/// An exploration that never reaches an outcome proves nothing about it.
fn check_reached(seen: &Seen, causes: BTreeSet<&str>) {
    let reached: BTreeSet<_> =
        seen.told.iter().filter_map(|outcome| name_of_abort(*outcome)).collect();
    assert_eq!(reached, causes);
    assert!(seen.told.contains(&Outcome::Committed));
    // Told that the outcome is unknown, and told nothing because the gateway died: both must end both ways.
    for told in [Some(Outcome::Unknown), None] {
        for committed in [true, false] {
            assert!(seen.fates.contains(&(told, committed)), "never: {told:?}, {committed}");
        }
    }
}

/// The same with more faults together: minutes, and gigabytes.
#[test]
#[ignore = "takes minutes; run it after a change of the protocol"]
fn every_larger_world_keeps_its_promises() {
    for form in [Form::Anchored, Form::Apart, Form::Elsewhere] {
        explore_all(
            Terms::of(form),
            &[
                (
                    1,
                    Limits {
                        breaks: 2,
                        repeats: 1,
                        crashes: 2,
                        sweeps: 1,
                        forgets: 1,
                        deadlines: 1,
                    },
                ),
                (2, Limits { breaks: 2, deadlines: 1, ..NONE }),
                (2, Limits { breaks: 1, sweeps: 1, ..NONE }),
                (2, Limits { crashes: 1, breaks: 1, repeats: 1, forgets: 1, ..NONE }),
            ],
        );
    }
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
            AbortCause::SentinelMissing(_) => "sentinel missing",
        }),
    }
}

const ONE_BREAK: Limits = Limits { breaks: 1, ..NONE };
const ONE_CRASH: Limits = Limits { crashes: 1, ..NONE };
const ONE_DEADLINE: Limits = Limits { deadlines: 1, ..NONE };
const ONE_FORGET: Limits = Limits { forgets: 1, ..NONE };
const ONE_SWEEP: Limits = Limits { sweeps: 1, ..NONE };

/// A bug, the faults that it needs to show, and the invariants that must notice it.
type Planted = (Mutation, Limits, &'static [&'static str]);

/// Bugs that either form could have.
const PLANTED: &[Planted] = &[
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
    // Apart, what is wrongly rolled back is so everywhere, unless the gateway dies meanwhile.
    (
        Mutation::LostDecisionMeansAborted,
        Limits { crashes: 1, ..ONE_BREAK },
        &["no_rollback_behind_the_decision", "told_the_truth", "atomicity"],
    ),
    (
        Mutation::DeadlineAbortsWhileDeciding,
        Limits { crashes: 1, ..ONE_DEADLINE },
        &["no_rollback_behind_the_decision", "told_the_truth", "atomicity"],
    ),
    (Mutation::RoomIsNotEntered, NONE, &["half_applied_only_in_the_room"]),
    (Mutation::UnknownMeansDone, ONE_BREAK, &["no_orphan_after_quiet"]),
    (Mutation::UnknownMeansSettled, ONE_BREAK, &["no_orphan_after_quiet"]),
    (Mutation::UnansweredPrepareIsForgotten, NONE, &["no_orphan_after_quiet"]),
    (Mutation::RecoveryLeavesNoRecord, ONE_SWEEP, &["atomicity", "told_the_truth"]),
    (Mutation::ListingDoesNotFence, ONE_BREAK, &["no_orphan_after_quiet"]),
    (Mutation::RestartIsNotSwept, ONE_FORGET, &["no_orphan_after_quiet", "told_the_truth"]),
    (
        Mutation::LostParticipantIsNotClosed,
        ONE_BREAK,
        &["half_applied_only_in_the_room", "committed_is_applied_or_handed_over"],
    ),
    (Mutation::LossIsNotReported, ONE_BREAK, &["everybody_is_answered"]),
    (Mutation::ApplicationIsNotBegun, NONE, &["half_applied_only_in_application"]),
    (Mutation::PlaceIsKept, NONE, &["everybody_is_answered"]),
    (Mutation::MissingSentinelIsOverlooked, NONE, &["unwatched_is_not_committed"]),
    (Mutation::RecordOfHandedOverIsForgotten, ONE_BREAK, &["record_outlives_what_may_ask"]),
];

/// Bugs that only the decision apart could have.
const PLANTED_APART: &[Planted] = &[
    (Mutation::RefusedDecisionMeansRecorded, NONE, &["decision_before_any_commit_prepared"]),
    (Mutation::RefusedDecisionMeansRecorded, ONE_SWEEP, &["atomicity", "told_the_truth"]),
    (Mutation::RoomIsAskedForWithTheDecision, NONE, &["apart_in_the_room_only_when_decided"]),
    (Mutation::SweepOverlooksTheAnchor, ONE_CRASH, &["no_orphan_after_quiet"]),
    (Mutation::SweepSettlesOnlyWhatItFound, ONE_SWEEP, &["half_applied_only_in_the_room"]),
];

/// Goal: the exploration is worth something. Method: plant each bug, and demand that each invariant
/// that should notice does; and that no invariant is without a bug that it notices.
#[test]
fn every_planted_bug_is_found() {
    let in_form = |form| move |planted: &Planted| (form, *planted);
    let planted = PLANTED
        .iter()
        .map(in_form(Form::Anchored))
        .chain(PLANTED.iter().chain(PLANTED_APART).map(in_form(Form::Apart)));
    let mut noticed = BTreeSet::new();
    for (form, (mutation, limits, names)) in planted {
        for &name in names {
            let world = World::begin(serializable(form), 2, limits);
            match explore(world, Some(mutation), |watched| watched == name) {
                Ok(seen) => {
                    panic!("{form:?}: {name} missed {mutation:?} in {} states", seen.states)
                }
                Err(failure) => println!("{form:?}, {mutation:?}: {failure}"),
            }
            noticed.insert(name);
        }
    }
    let all: BTreeSet<_> = ALWAYS.iter().chain(AFTER_QUIET).map(|(name, _)| *name).collect();
    assert_eq!(noticed, all);
}
