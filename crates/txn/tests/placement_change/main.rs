//! Every small world of a change at its COMMIT next to a few sessions: every order of their steps, of what
//! the nodes see, of cancel requests and of time.
//!
//! Owns: which sessions meet which change, and the list of planted bugs that must be found.
//! Never: samples. What is reachable is visited, all of it.
//! Start reading at [`no_order_of_events_breaks_a_promise`], then `world.rs` for what can happen.

#[path = "../exploration/mod.rs"]
mod exploration;
mod mutation;
mod world;

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;

use tutti_txn::placement_change::{Ended, Event, Found, Proof, Refusal, Terms};
use tutti_txn::{PlacementChange, placement_change};

use exploration::{fingerprint, path_to};
use mutation::Mutation;
use world::Access::{Other, Queues, QueuesThenReads, Reads, Writes};
use world::{At, Move, Script, World, plain};

/// Rows are found elsewhere.
const MOVES: Terms = Terms {
    was_solo: false,
    is_solo: false,
    is_at_home: false,
    is_more: false,
    grows_code: false,
    changes_names: false,
    found: Found::Elsewhere,
};
/// Nothing is found elsewhere.
const ADDS: Terms = Terms { found: Found::AsBefore { adds_code: false }, ..MOVES };
/// The same, of a table that node 1 has alone.
const ADDS_AT_HOME: Terms = Terms { is_at_home: true, ..ADDS };
/// The same as [`ADDS`], with code that nodes run.
const ADDS_CODE: Terms = Terms { found: Found::AsBefore { adds_code: true }, ..MOVES };
/// Types are checked by other code.
const CHECKS: Terms = Terms { is_more: true, ..ADDS };
/// Code that is called does more.
const GROWS: Terms = Terms { is_more: true, grows_code: true, ..ADDS };
/// The same, of code for node 1 alone.
const GROWS_AT_HOME: Terms = Terms { is_at_home: true, ..GROWS };
/// The same, and a table moves.
const GROWS_AND_MOVES: Terms = Terms { is_more: true, grows_code: true, ..MOVES };
/// The table is dropped, or called otherwise.
const DROPS: Terms = Terms { changes_names: true, ..ADDS };
/// The same, of a table that node 1 has alone.
const DROPS_AT_HOME: Terms = Terms { is_at_home: true, ..DROPS };
/// The first table is spread.
const SPREADS: Terms = Terms { was_solo: true, ..MOVES };

const READ: Script = plain(&[&[Reads]]);
const WRITE: Script = plain(&[&[Writes]]);
const STRANGER: Script = plain(&[&[Other]]);
const QUEUED_STRANGER: Script = plain(&[&[Queues]]);
/// INSERT … SELECT and the like.
const GATHER: Script = plain(&[&[Other], &[Reads]]);
const GATHER_AND_WRITE: Script = plain(&[&[Other], &[Writes]]);
const SCATTER: Script = plain(&[&[Other, Reads]]);
/// Its one part runs while the other waits for another session, and then meets the change.
const SCATTER_QUEUED: Script = plain(&[&[Other, QueuesThenReads]]);
const STUBBORN: Script = Script { is_stubborn: true, ..READ };
const BRINGS: Script = Script { brings: true, ..plain(&[&[Other], &[Other]]) };
/// A join of a table that it has read on other nodes, without a transaction.
const REBUILDS: Script = Script { rebuilds: true, ..plain(&[&[Other], &[Other]]) };
/// The same within a transaction.
const READS_AND_REBUILDS: Script = Script { rebuilds: true, ..plain(&[&[Reads], &[Other]]) };
const CALLS: Script = Script { calls: true, ..plain(&[&[Other]]) };
const CALLS_IN_STEPS: Script = Script { calls: true, ..plain(&[&[Other], &[Other]]) };
const STUBBORN_CALLS: Script = Script { is_stubborn: true, ..CALLS };
const FLIGHT_OF_CALLS: Script = Script { is_flight: true, ..CALLS_IN_STEPS };
/// Two statements of a flight.
const FLIGHT: Script = Script { is_flight: true, ..plain(&[&[Other], &[Reads]]) };
const FLIGHT_OF_QUEUED: Script = Script { is_flight: true, ..plain(&[&[Queues], &[Writes]]) };
const PROCEDURE: Script = Script { cannot_end: Some(Proof::Holds), ..plain(&[&[Other], &[Other]]) };
const PROCEDURE_OF_CHANGE: Script = Script { cannot_end: Some(Proof::Fails), ..READ };

/// A change, the statements next to it, and whether messages may be slow.
type Start = (Terms, &'static [Script], bool);

const WORLDS: &[Start] = &[
    (MOVES, &[READ, WRITE], false),
    (MOVES, &[READ], true),
    (MOVES, &[GATHER], false),
    (MOVES, &[GATHER], true),
    (MOVES, &[GATHER_AND_WRITE, STRANGER], false),
    (MOVES, &[FLIGHT, READ], false),
    (MOVES, &[FLIGHT_OF_QUEUED], true),
    (ADDS, &[FLIGHT_OF_QUEUED], false),
    (ADDS_CODE, &[FLIGHT], false),
    (SPREADS, &[FLIGHT], false),
    (MOVES, &[SCATTER, STRANGER], false),
    (MOVES, &[SCATTER_QUEUED], true),
    (MOVES, &[STUBBORN], false),
    (MOVES, &[PROCEDURE, READ], false),
    (MOVES, &[PROCEDURE_OF_CHANGE, STRANGER], false),
    (MOVES, &[READ, QUEUED_STRANGER], false),
    (ADDS, &[READ, WRITE], false),
    (ADDS, &[READ], true),
    (ADDS, &[GATHER_AND_WRITE], true),
    (ADDS_CODE, &[GATHER], true),
    (ADDS, &[GATHER_AND_WRITE], false),
    (ADDS, &[GATHER, QUEUED_STRANGER], false),
    (ADDS, &[PROCEDURE_OF_CHANGE, WRITE], false),
    (ADDS, &[REBUILDS], false),
    (ADDS, &[REBUILDS], true),
    (ADDS, &[READS_AND_REBUILDS], false),
    (ADDS_AT_HOME, &[REBUILDS, STRANGER], false),
    (ADDS_AT_HOME, &[REBUILDS], true),
    (ADDS_CODE, &[GATHER], false),
    (ADDS_CODE, &[SCATTER], false),
    (CHECKS, &[BRINGS], false),
    (CHECKS, &[GATHER_AND_WRITE], false),
    (CHECKS, &[PROCEDURE, PROCEDURE_OF_CHANGE], false),
    (GROWS, &[CALLS, STRANGER], false),
    (GROWS_AT_HOME, &[CALLS_IN_STEPS], true),
    (GROWS, &[FLIGHT_OF_CALLS, READ], false),
    (GROWS_AT_HOME, &[STUBBORN_CALLS], false),
    (GROWS, &[PROCEDURE, CALLS], false),
    (GROWS_AND_MOVES, &[CALLS, READ], false),
    (DROPS, &[READ], true),
    (DROPS, &[QUEUED_THEN_READS, STRANGER], false),
    (DROPS, &[GATHER], false),
    (DROPS_AT_HOME, &[QUEUED_THEN_READS], false),
    (DROPS_AT_HOME, &[FLIGHT], false),
    (SPREADS, &[READ], true),
    (SPREADS, &[STRANGER], true),
    (SPREADS, &[GATHER], false),
    (SPREADS, &[STUBBORN], false),
    (SPREADS, &[PROCEDURE, WRITE], false),
];

/// What an exploration has met.
#[derive(Default)]
struct Seen {
    states: usize,
    refused: BTreeSet<Option<Refusal>>,
    committed: bool,
}

/// Visits everything reachable; stops at the first broken promise among those of this name.
fn explore(start: World, mutation: Option<Mutation>, only: Option<&str>) -> Result<Seen, String> {
    let mut seen = Seen::default();
    let mut fingerprints = HashSet::from([fingerprint(&start)]);
    // How each state was first reached: the state before, and the move.
    let mut origins: Vec<Option<(usize, Move)>> = vec![None];
    let mut frontier = vec![(0, start)];
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for (index, world) in frontier {
            let moves = world.moves();
            let mut broken = world.broken.clone();
            if moves.is_empty() {
                broken.extend((!world.is_finished()).then_some("every_change_ends"));
                let is_over = |client: &world::Client| client.at == At::Over;
                let all_are = world.clients.iter().all(is_over) && !world.is_held;
                broken.extend((!all_are).then_some("everybody_goes_on"));
                seen.refused.insert(world.refused);
                seen.committed |= world.is_committed;
            }
            if let Some(name) = broken.iter().find(|name| only.is_none_or(|only| only == **name)) {
                return Err(told(name, index, &origins, &world));
            }
            if !broken.is_empty() {
                // Of a planted bug: nothing that comes after it counts.
                continue;
            }
            for step in moves {
                let mut after = world.clone();
                after.apply(step, mutation);
                if fingerprints.insert(fingerprint(&after)) {
                    next.push((origins.len(), after));
                    origins.push(Some((index, step)));
                }
            }
        }
        frontier = next;
    }
    seen.states = origins.len();
    Ok(seen)
}

fn told(name: &str, index: usize, origins: &[Option<(usize, Move)>], world: &World) -> String {
    let mut text = format!("{name} is broken after:\n");
    for step in path_to(index, origins) {
        let _ = writeln!(text, "  {step}");
    }
    text + &format!("leaving {world:?}")
}

/// Goal: a change never meets a statement with an older plan, cancels no session that it must leave alone,
/// and always ends. Method: visit every reachable state.
#[test]
fn no_order_of_events_breaks_a_promise() {
    let mut refused = BTreeSet::new();
    for (terms, scripts, is_slow) in WORLDS {
        match explore(World::begin(*terms, scripts, *is_slow, false), None, None) {
            Ok(seen) => {
                println!("{terms:?}, {scripts:?}: {} states", seen.states);
                assert!(seen.committed, "{terms:?}, {scripts:?}: it is never committed");
                refused.extend(seen.refused);
            }
            Err(failure) => panic!("{terms:?}, {scripts:?}\n{failure}"),
        }
    }
    // Cancel requests may be as slow as time allows.
    let expected = [None, Some(Refusal::CannotEnd), Some(Refusal::DoesNotEnd)];
    assert_eq!(refused, expected.into());
}

/// Goal: where something that the machine asks for fails, at any moment, no session is held for ever.
#[test]
fn failures_end_a_change_and_its_hold() {
    for (terms, scripts) in [(MOVES, &[GATHER]), (SPREADS, &[READ]), (CHECKS, &[BRINGS])] {
        let start = World::begin(terms, scripts, false, true);
        let seen = explore(start, None, None).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(seen.refused.contains(&Some(Refusal::Failed)));
    }
}

/// A bug, a world in which it shows, and the promise that it breaks.
const PLANTED: &[(Mutation, Start, &str)] = &[
    (Mutation::NobodyIsHeld, (MOVES, &[READ], false), "no_old_plan_meets_the_change"),
    (Mutation::UnsentGoesOn, (ADDS, &[READ], false), "no_old_plan_meets_the_change"),
    (Mutation::StoppedPlansGoOn, (MOVES, &[GATHER], false), "no_old_plan_meets_the_change"),
    (Mutation::WaitingIsOverlooked, (MOVES, &[READ], false), "no_old_plan_meets_the_change"),
    (Mutation::WaitingIsOverlooked, (ADDS, &[WRITE], false), "no_old_plan_meets_the_change"),
    (Mutation::LocksAreTakenAtOnce, (ADDS, &[READ], false), "no_old_plan_meets_the_change"),
    (Mutation::QueuedIsAtWork, (MOVES, &[QUEUED_THEN_READS], true), "no_old_plan_meets_the_change"),
    (Mutation::BusyMeansWaiting, (MOVES, &[GATHER], false), "who_has_its_locks_is_not_cancelled"),
    (Mutation::BusyMeansWaiting, (ADDS, &[GATHER], false), "who_has_its_locks_is_not_cancelled"),
    (Mutation::OneBackendIsAsked, (ADDS, &[SCATTER], false), "no_old_plan_meets_the_change"),
    (Mutation::FirstLookIsKept, (MOVES, &[GATHER], false), "no_old_plan_meets_the_change"),
    (Mutation::SentPlansAreOverlooked, (MOVES, &[READ], false), "no_old_plan_meets_the_change"),
    (
        Mutation::EndingIsForAll,
        (MOVES, &[PROCEDURE_OF_CHANGE], false),
        "what_cannot_be_repeated_is_never_ended",
    ),
    (
        Mutation::ProofIsNotMadeAnew,
        (MOVES, &[PROCEDURE_OF_CHANGE], false),
        "no_old_plan_meets_the_change",
    ),
    (Mutation::EveryPlanUsesAll, (MOVES, &[STRANGER], false), "strangers_are_left_alone"),
    (Mutation::EveryPlanUsesAll, (ADDS_CODE, &[STRANGER], false), "strangers_are_left_alone"),
    (
        Mutation::WritingInStepsIsOverlooked,
        (ADDS, &[GATHER_AND_WRITE], false),
        "no_old_plan_meets_the_change",
    ),
    (Mutation::ReadingIsOverlooked, (ADDS_CODE, &[GATHER], false), "no_old_plan_meets_the_change"),
    (
        Mutation::BroughtRowsAreOverlooked,
        (CHECKS, &[BRINGS], false),
        "no_old_plan_meets_the_change",
    ),
    (Mutation::WhatIsOnItsWayIsOverlooked, (ADDS, &[READ], true), "no_old_plan_meets_the_change"),
    (
        Mutation::WhatIsOnItsWayIsOverlooked,
        (ADDS_CODE, &[GATHER], true),
        "no_old_plan_meets_the_change",
    ),
    (Mutation::RebuildingIsOverlooked, (ADDS, &[REBUILDS], false), "no_old_plan_meets_the_change"),
    (
        Mutation::RebuildingIsOverlooked,
        (ADDS_AT_HOME, &[REBUILDS], false),
        "no_old_plan_meets_the_change",
    ),
    (Mutation::FlightsAreOverlooked, (MOVES, &[FLIGHT], false), "no_old_plan_meets_the_change"),
    (Mutation::CallsAreOverlooked, (GROWS, &[CALLS], false), "no_old_plan_meets_the_change"),
    (
        Mutation::ChangedNamesAreOverlooked,
        (DROPS_AT_HOME, &[QUEUED_THEN_READS], false),
        "no_old_plan_meets_the_change",
    ),
    (Mutation::TimeStandsStill, (MOVES, &[STUBBORN], false), "every_change_ends"),
    (Mutation::NothingIsNoted, (MOVES, &[READ], false), "acknowledged_is_planned_with"),
    (Mutation::HoldIsKept, (MOVES, &[READ], false), "everybody_goes_on"),
];

/// It waits for another's lock before it comes to the change.
const QUEUED_THEN_READS: Script = plain(&[&[QueuesThenReads]]);

/// Goal: the exploration is worth something. Method: plant each bug, and demand that the promise that it
/// breaks is found broken, and that without the bug the same world is clean.
#[test]
fn every_planted_bug_is_found() {
    for (mutation, (terms, scripts, is_slow), name) in PLANTED {
        let start = World::begin(*terms, scripts, *is_slow, false);
        match explore(start.clone(), Some(*mutation), Some(name)) {
            Ok(seen) => panic!("{name} missed {mutation:?} in {} states", seen.states),
            Err(failure) => println!("{mutation:?}: {failure}"),
        }
        if let Err(failure) = explore(start, None, None) {
            panic!("without {mutation:?}: {failure}");
        }
    }
}

/// Goal: events that are not awaited change nothing, in any phase.
#[test]
fn what_is_not_awaited_changes_nothing() {
    let mut effects = Vec::new();
    let machine = PlacementChange::begin(false, &mut effects);
    for event in [Event::Passed, Event::PauseOver, Event::Published, Event::Ended(Ended::Committed)]
    {
        let mut stepped = machine.clone();
        effects.clear();
        stepped.step(event, &mut effects);
        assert_eq!((stepped, &effects[..]), (machine.clone(), &[][..]));
    }
    let mut unheld = PlacementChange::unheld();
    unheld.step(Event::Ended(Ended::Unknown), &mut effects);
    let noted = placement_change::Effect::Note(placement_change::Noted::Everything);
    assert_eq!(effects, [noted], "there is no hold to release");
    assert!(unheld.is_finished());
}
