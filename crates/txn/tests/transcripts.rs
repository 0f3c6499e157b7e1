//! Runs of the two machines, written as texts.
//!
//! Owns: what a reviewer should be able to read: which event brings which effects, in the cases that
//! matter. Never: explores; that is `anchored_commit/`.
//! Start reading at the first test. A line at the margin is an event, an indented one an effect.

use std::fmt::{Debug, Write};

use expect_test::{Expect, expect};
use tutti_txn::{Coordinator, Decision, Event, Form, Gid, NodeId, Recovery, Terms, recovery};

const N1: NodeId = NodeId(1);
const N2: NodeId = NodeId(2);
const N3: NodeId = NodeId(3);

fn gid() -> Gid {
    "tutti_shop_4_17_1".parse().expect("ours")
}

/// One line per item, with nodes as `n2`.
fn lines<T: Debug>(transcript: &mut String, indent: &str, items: &[T]) {
    for item in items {
        let mut line = format!("{item:?}");
        for id in 1..=3 {
            line = line.replace(&format!("NodeId({id})"), &format!("n{id}"));
        }
        writeln!(transcript, "{indent}{line}").expect("a string takes all");
    }
}

fn check_commit(events: &[Event], expected: Expect) {
    check_form(Form::Anchored, "begin n2 n3, anchor n1\n", events, expected);
}

fn check_commit_apart(events: &[Event], expected: Expect) {
    check_form(Form::Apart, "begin n2 n3, anchor n1, decision apart\n", events, expected);
}

fn check_form(form: Form, title: &str, events: &[Event], expected: Expect) {
    check_terms(Terms::of(form), title, events, expected);
}

fn check_terms(terms: Terms, title: &str, events: &[Event], expected: Expect) {
    let mut transcript = title.to_owned();
    let mut effects = Vec::new();
    let mut coordinator = Coordinator::begin(gid(), terms, [N2, N3].into(), &mut effects);
    lines(&mut transcript, "  ", &effects);
    for event in events {
        effects.clear();
        coordinator.step(*event, &mut effects);
        lines(&mut transcript, "", &[event]);
        lines(&mut transcript, "  ", &effects);
    }
    lines(&mut transcript, "= ", &[coordinator.phase()]);
    expected.assert_eq(&transcript);
}

fn check_recovery(events: &[recovery::Event], expected: Expect) {
    let mut transcript = "begin n2 n3, anchor n1\n".to_owned();
    let mut effects = Vec::new();
    let mut recovery = Recovery::begin(gid(), [N2, N3].into(), &mut effects);
    lines(&mut transcript, "  ", &effects);
    for event in events {
        effects.clear();
        recovery.step(*event, &mut effects);
        lines(&mut transcript, "", &[event]);
        lines(&mut transcript, "  ", &effects);
    }
    lines(&mut transcript, "= ", &[recovery.phase()]);
    expected.assert_eq(&transcript);
}

const ALL_VOTED: [Event; 3] = [Event::VotedYes(N2), Event::DecisionRecorded, Event::VotedYes(N3)];

fn after_all_voted(events: &[Event]) -> Vec<Event> {
    ALL_VOTED.iter().chain(events).copied().collect()
}

/// Nothing goes wrong. The deadline passes while the anchor commits, and must be ignored: the commit
/// may already have happened.
#[test]
fn commit() {
    check_commit(
        &after_all_voted(&[
            Event::CausesShown,
            Event::CommitRoomEntered,
            Event::DeadlineReached,
            Event::AnchorCommitted,
            Event::ParticipantCommitted(N3),
            Event::ParticipantCommitted(N2),
        ]),
        expect![[r#"
            begin n2 n3, anchor n1
              Prepare(n2)
              Prepare(n3)
              RecordDecision
            VotedYes(n2)
            DecisionRecorded
            VotedYes(n3)
              WaitForCauses
            CausesShown
              EnterCommitRoom
            CommitRoomEntered
              BeginApplication
              CommitAnchor
            DeadlineReached
            AnchorCommitted
              NoteApplied(n1)
              CommitPrepared(n2)
              CommitPrepared(n3)
            ParticipantCommitted(n3)
              NoteApplied(n3)
            ParticipantCommitted(n2)
              NoteApplied(n2)
              EndApplication
              LeaveCommitRoom
              ForgetDecision
              Reply(Committed)
            = Finished
        "#]],
    );
}

/// A node refuses while another has not answered: what that one did must be known before it can be
/// undone.
#[test]
fn abort_awaits_the_votes_that_are_out() {
    check_commit(
        &[
            Event::VotedNo(N2),
            Event::AnchorRolledBack,
            Event::VotedYes(N3),
            Event::ParticipantRolledBack(N3),
        ],
        expect![[r#"
            begin n2 n3, anchor n1
              Prepare(n2)
              Prepare(n3)
              RecordDecision
            VotedNo(n2)
              CancelPrepare(n3)
              RollbackAnchor
              Reply(Aborted { cause: VotedNo(n2) })
            AnchorRolledBack
            VotedYes(n3)
              RollbackPrepared(n3)
            ParticipantRolledBack(n3)
            = Finished
        "#]],
    );
}

/// A vote is lost, and the node does not know the gid: its PREPARE may still land, so recovery must
/// look after it.
#[test]
fn a_lost_vote_that_cannot_be_undone_is_left_to_recovery() {
    check_commit(
        &[
            Event::VotedYes(N2),
            Event::VoteLost(N3),
            Event::AnchorRolledBack,
            Event::ParticipantUnknown(N3),
            Event::ParticipantRolledBack(N2),
            Event::HandedOver(N3),
        ],
        expect![[r#"
            begin n2 n3, anchor n1
              Prepare(n2)
              Prepare(n3)
              RecordDecision
            VotedYes(n2)
            VoteLost(n3)
              RollbackPrepared(n2)
              RollbackPrepared(n3)
              RollbackAnchor
              Reply(Aborted { cause: VoteLost(n3) })
            AnchorRolledBack
            ParticipantUnknown(n3)
              LeaveToRecovery { node: n3, decision: Some(Aborted) }
            ParticipantRolledBack(n2)
            HandedOver(n3)
            = Finished
        "#]],
    );
}

/// The deadline passes while the transaction waits for the room: it withdraws.
#[test]
fn deadline_before_the_room() {
    check_commit(
        &after_all_voted(&[Event::CausesShown, Event::DeadlineReached]),
        expect![[r#"
            begin n2 n3, anchor n1
              Prepare(n2)
              Prepare(n3)
              RecordDecision
            VotedYes(n2)
            DecisionRecorded
            VotedYes(n3)
              WaitForCauses
            CausesShown
              EnterCommitRoom
            DeadlineReached
              RollbackPrepared(n2)
              RollbackPrepared(n3)
              RollbackAnchor
              LeaveCommitRoom
              Reply(Aborted { cause: DeadlineReached })
            = Aborting { open: {n1: Answer, n2: Answer, n3: Answer} }
        "#]],
    );
}

/// The anchor's connection breaks during its COMMIT, which turns out to have happened.
#[test]
fn lost_anchor_settled_as_committed() {
    check_commit(
        &after_all_voted(&[
            Event::CausesShown,
            Event::CommitRoomEntered,
            Event::AnchorLost,
            Event::Settled(Decision::Committed),
            Event::ParticipantCommitted(N2),
            Event::ParticipantLost(N3),
            Event::HandedOver(N3),
        ]),
        expect![[r#"
            begin n2 n3, anchor n1
              Prepare(n2)
              Prepare(n3)
              RecordDecision
            VotedYes(n2)
            DecisionRecorded
            VotedYes(n3)
              WaitForCauses
            CausesShown
              EnterCommitRoom
            CommitRoomEntered
              BeginApplication
              CommitAnchor
            AnchorLost
              Settle
            Settled(Committed)
              NoteApplied(n1)
              CommitPrepared(n2)
              CommitPrepared(n3)
            ParticipantCommitted(n2)
              NoteApplied(n2)
            ParticipantLost(n3)
              LeaveToRecovery { node: n3, decision: Some(Committed) }
            HandedOver(n3)
              NoteApplied(n3)
              EndApplication
              LeaveCommitRoom
              Reply(Committed)
            = Finished
        "#]],
    );
}

/// The anchor's connection breaks during its COMMIT, and the anchor stays unreachable: the outcome is
/// unknown, and nothing may be touched.
#[test]
fn lost_anchor_and_nobody_knows() {
    check_commit(
        &after_all_voted(&[
            Event::CausesShown,
            Event::CommitRoomEntered,
            Event::AnchorLost,
            Event::SettleTimedOut,
            Event::HandedOver(N1),
            Event::HandedOver(N2),
            Event::HandedOver(N3),
        ]),
        expect![[r#"
            begin n2 n3, anchor n1
              Prepare(n2)
              Prepare(n3)
              RecordDecision
            VotedYes(n2)
            DecisionRecorded
            VotedYes(n3)
              WaitForCauses
            CausesShown
              EnterCommitRoom
            CommitRoomEntered
              BeginApplication
              CommitAnchor
            AnchorLost
              Settle
            SettleTimedOut
              LeaveToRecovery { node: n1, decision: None }
              LeaveToRecovery { node: n2, decision: None }
              LeaveToRecovery { node: n3, decision: None }
            HandedOver(n1)
              NoteApplied(n1)
            HandedOver(n2)
              NoteApplied(n2)
            HandedOver(n3)
              NoteApplied(n3)
              EndApplication
              LeaveCommitRoom
              Reply(Unknown)
            = Finished
        "#]],
    );
}

const ALL_VOTED_APART: [Event; 3] = [Event::VotedYes(N2), Event::VotedYes(N1), Event::VotedYes(N3)];

fn after_all_voted_apart(events: &[Event]) -> Vec<Event> {
    ALL_VOTED_APART.iter().chain(events).copied().collect()
}

/// Nothing goes wrong. The deadline passes while the record is being written, and again while the
/// transaction waits for the room, and must be ignored: the decision may have been made.
#[test]
fn commit_apart() {
    check_commit_apart(
        &after_all_voted_apart(&[
            Event::DeadlineReached,
            Event::DecisionRecorded,
            Event::DeadlineReached,
            Event::CausesShown,
            Event::CommitRoomEntered,
            Event::ParticipantCommitted(N3),
            Event::ParticipantCommitted(N1),
            Event::ParticipantCommitted(N2),
        ]),
        expect![[r#"
            begin n2 n3, anchor n1, decision apart
              Prepare(n1)
              Prepare(n2)
              Prepare(n3)
            VotedYes(n2)
            VotedYes(n1)
            VotedYes(n3)
              Decide
            DeadlineReached
            DecisionRecorded
              WaitForCauses
            DeadlineReached
            CausesShown
              EnterCommitRoom
            CommitRoomEntered
              BeginApplication
              CommitPrepared(n1)
              CommitPrepared(n2)
              CommitPrepared(n3)
            ParticipantCommitted(n3)
              NoteApplied(n3)
            ParticipantCommitted(n1)
              NoteApplied(n1)
            ParticipantCommitted(n2)
              NoteApplied(n2)
              EndApplication
              LeaveCommitRoom
              ForgetDecision
              Reply(Committed)
            = Finished
        "#]],
    );
}

const SERIALIZABLE: Terms = Terms { form: Form::Apart, serializable: true, watched: true };

/// SERIALIZABLE, decision apart: the permit to vote is offered to others when all have voted, the sentinels
/// are asked before the decision, and the place to become visible comes before the causes and the room.
#[test]
fn commit_serializable() {
    check_terms(
        SERIALIZABLE,
        "begin n2 n3, anchor n1, decision apart, serializable\n",
        &after_all_voted_apart(&[
            Event::SentinelsConfirmed,
            Event::DecisionRecorded,
            Event::VisibilityPlaceTaken,
            Event::CausesShown,
            Event::CommitRoomEntered,
            Event::ParticipantCommitted(N3),
            Event::ParticipantCommitted(N1),
            Event::ParticipantCommitted(N2),
        ]),
        expect![[r#"
            begin n2 n3, anchor n1, decision apart, serializable
              Prepare(n1)
              Prepare(n2)
              Prepare(n3)
            VotedYes(n2)
            VotedYes(n1)
            VotedYes(n3)
              YieldVoteOrder
              ConfirmSentinels
            SentinelsConfirmed
              Decide
            DecisionRecorded
              TakeVisibilityPlace
            VisibilityPlaceTaken
              WaitForCauses
            CausesShown
              EnterCommitRoom
            CommitRoomEntered
              BeginApplication
              CommitPrepared(n1)
              CommitPrepared(n2)
              CommitPrepared(n3)
            ParticipantCommitted(n3)
              NoteApplied(n3)
            ParticipantCommitted(n1)
              NoteApplied(n1)
            ParticipantCommitted(n2)
              NoteApplied(n2)
              EndApplication
              LeaveCommitRoom
              LeaveVisibilityPlace
              LeaveVoteOrder
              ForgetDecision
              Reply(Committed)
            = Finished
        "#]],
    );
}

/// SERIALIZABLE, anchored: the sentinels are asked inside the room, and one was missing. Nothing has been
/// decided, and all that others wait for is released before the parts are undone, except the permit to
/// vote.
#[test]
fn a_sentinel_was_missing() {
    check_terms(
        Terms { form: Form::Anchored, ..SERIALIZABLE },
        "begin n2 n3, anchor n1, serializable\n",
        &after_all_voted(&[
            Event::VisibilityPlaceTaken,
            Event::CausesShown,
            Event::CommitRoomEntered,
            Event::SentinelMissing(N3),
            Event::AnchorRolledBack,
            Event::ParticipantRolledBack(N2),
            Event::ParticipantRolledBack(N3),
        ]),
        expect![[r#"
            begin n2 n3, anchor n1, serializable
              Prepare(n2)
              Prepare(n3)
              RecordDecision
            VotedYes(n2)
            DecisionRecorded
            VotedYes(n3)
              TakeVisibilityPlace
            VisibilityPlaceTaken
              WaitForCauses
            CausesShown
              EnterCommitRoom
            CommitRoomEntered
              ConfirmSentinels
            SentinelMissing(n3)
              RollbackPrepared(n2)
              RollbackPrepared(n3)
              RollbackAnchor
              LeaveCommitRoom
              LeaveVisibilityPlace
              Reply(Aborted { cause: SentinelMissing(n3) })
            AnchorRolledBack
            ParticipantRolledBack(n2)
            ParticipantRolledBack(n3)
              LeaveVoteOrder
            = Finished
        "#]],
    );
}

/// A node refuses while the anchor has not answered: the anchor is undone like any other voter, and
/// the room was never asked for.
#[test]
fn abort_apart_undoes_the_anchor_like_any_voter() {
    check_commit_apart(
        &[
            Event::VotedYes(N3),
            Event::VotedNo(N2),
            Event::VotedYes(N1),
            Event::ParticipantRolledBack(N3),
            Event::ParticipantRolledBack(N1),
        ],
        expect![[r#"
            begin n2 n3, anchor n1, decision apart
              Prepare(n1)
              Prepare(n2)
              Prepare(n3)
            VotedYes(n3)
            VotedNo(n2)
              CancelPrepare(n1)
              RollbackPrepared(n3)
              Reply(Aborted { cause: VotedNo(n2) })
            VotedYes(n1)
              RollbackPrepared(n1)
            ParticipantRolledBack(n3)
            ParticipantRolledBack(n1)
            = Finished
        "#]],
    );
}

/// The anchor's vote is lost, and it does not know the gid: its PREPARE may still land, so recovery
/// must look after it.
#[test]
fn a_lost_vote_of_the_anchor_apart_is_left_to_recovery() {
    check_commit_apart(
        &[
            Event::VotedYes(N2),
            Event::VotedYes(N3),
            Event::VoteLost(N1),
            Event::ParticipantRolledBack(N2),
            Event::ParticipantUnknown(N1),
            Event::ParticipantRolledBack(N3),
            Event::HandedOver(N1),
        ],
        expect![[r#"
            begin n2 n3, anchor n1, decision apart
              Prepare(n1)
              Prepare(n2)
              Prepare(n3)
            VotedYes(n2)
            VotedYes(n3)
            VoteLost(n1)
              RollbackPrepared(n1)
              RollbackPrepared(n2)
              RollbackPrepared(n3)
              Reply(Aborted { cause: VoteLost(n1) })
            ParticipantRolledBack(n2)
            ParticipantUnknown(n1)
              LeaveToRecovery { node: n1, decision: Some(Aborted) }
            ParticipantRolledBack(n3)
            HandedOver(n1)
            = Finished
        "#]],
    );
}

/// The deadline passes before all have voted.
#[test]
fn deadline_apart() {
    check_commit_apart(
        &[Event::VotedYes(N1), Event::DeadlineReached],
        expect![[r#"
        begin n2 n3, anchor n1, decision apart
          Prepare(n1)
          Prepare(n2)
          Prepare(n3)
        VotedYes(n1)
        DeadlineReached
          RollbackPrepared(n1)
          CancelPrepare(n2)
          CancelPrepare(n3)
          Reply(Aborted { cause: DeadlineReached })
        = Aborting { open: {n1: Answer, n2: Vote, n3: Vote} }
    "#]],
    );
}

/// Recovery took this gateway for dead, and its refusal was there first.
#[test]
fn decision_apart_refused() {
    check_commit_apart(
        &after_all_voted_apart(&[
            Event::DecisionRefused,
            Event::ParticipantUnknown(N2),
            Event::ParticipantRolledBack(N1),
            Event::ParticipantRolledBack(N3),
            Event::HandedOver(N2),
        ]),
        expect![[r#"
            begin n2 n3, anchor n1, decision apart
              Prepare(n1)
              Prepare(n2)
              Prepare(n3)
            VotedYes(n2)
            VotedYes(n1)
            VotedYes(n3)
              Decide
            DecisionRefused
              RollbackPrepared(n1)
              RollbackPrepared(n2)
              RollbackPrepared(n3)
              Reply(Aborted { cause: DecisionRefused })
            ParticipantUnknown(n2)
              LeaveToRecovery { node: n2, decision: Some(Aborted) }
            ParticipantRolledBack(n1)
            ParticipantRolledBack(n3)
            HandedOver(n2)
            = Finished
        "#]],
    );
}

/// The answer to the decision is lost, and the record says that it was made: only now is the room
/// entered.
#[test]
fn lost_decision_apart_settled_as_committed() {
    check_commit_apart(
        &after_all_voted_apart(&[
            Event::DecisionLost,
            Event::Settled(Decision::Committed),
            Event::CausesShown,
            Event::CommitRoomEntered,
            Event::ParticipantCommitted(N1),
            Event::ParticipantCommitted(N2),
            Event::ParticipantLost(N3),
            Event::HandedOver(N3),
        ]),
        expect![[r#"
            begin n2 n3, anchor n1, decision apart
              Prepare(n1)
              Prepare(n2)
              Prepare(n3)
            VotedYes(n2)
            VotedYes(n1)
            VotedYes(n3)
              Decide
            DecisionLost
              Settle
            Settled(Committed)
              WaitForCauses
            CausesShown
              EnterCommitRoom
            CommitRoomEntered
              BeginApplication
              CommitPrepared(n1)
              CommitPrepared(n2)
              CommitPrepared(n3)
            ParticipantCommitted(n1)
              NoteApplied(n1)
            ParticipantCommitted(n2)
              NoteApplied(n2)
            ParticipantLost(n3)
              LeaveToRecovery { node: n3, decision: Some(Committed) }
            HandedOver(n3)
              NoteApplied(n3)
              EndApplication
              LeaveCommitRoom
              Reply(Committed)
            = Finished
        "#]],
    );
}

/// The answer to the decision is lost, and the record says that it never will be made.
#[test]
fn lost_decision_apart_settled_as_aborted() {
    check_commit_apart(
        &after_all_voted_apart(&[
            Event::DecisionLost,
            Event::Settled(Decision::Aborted),
            Event::ParticipantRolledBack(N1),
            Event::ParticipantRolledBack(N2),
            Event::ParticipantRolledBack(N3),
        ]),
        expect![[r#"
            begin n2 n3, anchor n1, decision apart
              Prepare(n1)
              Prepare(n2)
              Prepare(n3)
            VotedYes(n2)
            VotedYes(n1)
            VotedYes(n3)
              Decide
            DecisionLost
              Settle
            Settled(Aborted)
              RollbackPrepared(n1)
              RollbackPrepared(n2)
              RollbackPrepared(n3)
              Reply(Aborted { cause: FoundAborted })
            ParticipantRolledBack(n1)
            ParticipantRolledBack(n2)
            ParticipantRolledBack(n3)
            = Finished
        "#]],
    );
}

/// The answer to the decision is lost, and the anchor stays unreachable: the nodes are handed over inside
/// the room, because recovery may apply a decision on one before the next is closed to reads.
#[test]
fn lost_decision_apart_and_nobody_knows() {
    check_commit_apart(
        &after_all_voted_apart(&[
            Event::DecisionLost,
            Event::SettleTimedOut,
            Event::CausesShown,
            Event::CommitRoomEntered,
            Event::HandedOver(N1),
            Event::HandedOver(N2),
            Event::HandedOver(N3),
        ]),
        expect![[r#"
            begin n2 n3, anchor n1, decision apart
              Prepare(n1)
              Prepare(n2)
              Prepare(n3)
            VotedYes(n2)
            VotedYes(n1)
            VotedYes(n3)
              Decide
            DecisionLost
              Settle
            SettleTimedOut
              WaitForCauses
            CausesShown
              EnterCommitRoom
            CommitRoomEntered
              BeginApplication
              LeaveToRecovery { node: n1, decision: None }
              LeaveToRecovery { node: n2, decision: None }
              LeaveToRecovery { node: n3, decision: None }
            HandedOver(n1)
              NoteApplied(n1)
            HandedOver(n2)
              NoteApplied(n2)
            HandedOver(n3)
              NoteApplied(n3)
              EndApplication
              LeaveCommitRoom
              Reply(Unknown)
            = Finished
        "#]],
    );
}

/// Another session finishes n2 at the same time (42704), and n3 is unreachable for a while: only looks end
/// it.
#[test]
fn recovery_looks_before_it_believes() {
    check_recovery(
        &[
            recovery::Event::AnchorUnreachable,
            recovery::Event::RetryDue(N1),
            recovery::Event::DecisionFound(Decision::Committed),
            recovery::Event::ParticipantUnknown(N2),
            recovery::Event::ParticipantLost(N3),
            recovery::Event::Listed { node: N2, prepared: false },
            recovery::Event::RetryDue(N3),
            recovery::Event::Listed { node: N3, prepared: true },
            recovery::Event::ParticipantCommitted(N3),
            recovery::Event::Listed { node: N3, prepared: false },
        ],
        expect![[r#"
            begin n2 n3, anchor n1
              ReadOrRefuseDecision
            AnchorUnreachable
              RetryLater(n1)
            RetryDue(n1)
              ReadOrRefuseDecision
            DecisionFound(Committed)
              CommitPrepared(n2)
              CommitPrepared(n3)
            ParticipantUnknown(n2)
              ListPrepared(n2)
            ParticipantLost(n3)
              RetryLater(n3)
            Listed { node: n2, prepared: false }
            RetryDue(n3)
              ListPrepared(n3)
            Listed { node: n3, prepared: true }
              CommitPrepared(n3)
            ParticipantCommitted(n3)
              ListPrepared(n3)
            Listed { node: n3, prepared: false }
              Announce(Committed)
            = Finished { decision: Committed }
        "#]],
    );
}
