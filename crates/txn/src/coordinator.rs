//! The commit of one global transaction, in either form of the decision, as a pure state machine.
//!
//! Owns: which phase the transaction is in, what each node has answered, what the client may be told; and
//! the order of all that a commit waits for and holds: its permit to vote, sentinels, its place in the order
//! of becoming visible, its causes, the commit room, its entry in application, the record.
//! Never: reads a clock, touches a socket, awaits, settles what is in doubt (that is
//! [`crate::recovery`]).
//! Start reading at [`Terms`] and [`Phase`], then [`Coordinator::step`]. A caller needs [`Effect`] most.
//!
//! Algorithm of the anchored form: two-phase commit with the "last agent" optimisation (Samaras, Britton,
//! Citron, Mohan, "Two-Phase Commit Optimizations and Tradeoffs in the Commercial Environment", ICDE 1993):
//! one participant does not prepare, its local commit is the decision. With the decision apart: two-phase
//! commit with the decision's record on one of the participants. Both record the decision under a
//! unique key, so that any gateway may settle a transaction in doubt.

use std::collections::{BTreeMap, BTreeSet};

use crate::decision::Decision;
use crate::gid::{Gid, NodeId};

/// Where the decision is made. The forms differ only between the votes and the COMMIT PREPAREDs; the
/// record, and so [`crate::recovery`], is the same.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Form {
    /// The anchor does not prepare: the record is in its transaction, whose local COMMIT, inside the
    /// commit room, is the decision.
    Anchored,
    /// Every writer prepares, the anchor too: the record is a transaction of its own, whose commit is
    /// the decision. The commit room is entered only after it.
    Apart,
    /// The same, on an anchor that has no part of the transaction: it keeps the request that this is an instance of,
    /// whose result is recorded with the decision (`docs/protocol/exactly-once.md`).
    Elsewhere,
}

impl Form {
    /// Whether the record is a transaction of its own.
    fn is_apart(self) -> bool {
        match self {
            Self::Anchored => false,
            Self::Apart | Self::Elsewhere => true,
        }
    }
}

/// What is required of a commit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Terms {
    /// Where it is decided.
    pub form: Form,
    /// SERIALIZABLE. It votes with a permit that it had before this began, and becomes visible before or
    /// after any other of its kind on all the nodes that they share (`docs/protocol/serializable.md`).
    pub serializable: bool,
    /// Sentinels must have been open on its nodes until all had voted; else it must not commit.
    pub watched: bool,
}

impl Terms {
    /// READ COMMITTED or REPEATABLE READ.
    pub fn of(form: Form) -> Self {
        Self { form, serializable: false, watched: false }
    }
}

/// The life of a global transaction at its coordinator, in order. Where the forms differ, the line
/// says so:
///
/// 1. `Voting`: PREPARE TRANSACTION is out on every voter; anchored, also the decision's INSERT on
///    the anchor. Any failure, or the deadline, aborts.
/// 2. `Entering`, anchored: all voted yes; waiting for the commit room and what comes before it
///    ([`Door`]), to decide in it. The deadline still aborts.
/// 3. `Confirming`, where sentinels are wanted: they are asked whether they were open all the time; the
///    deadline still aborts.
/// 4. `Deciding`: the decision is out: the anchor's COMMIT, or apart, the record's INSERT. From here
///    we may not abort: it may have happened.
/// 5. `Settling`: the answer to that was lost; the record is being asked. From here too only an
///    answer may end it.
/// 6. `Entering`, apart: as 2, to apply what is decided, or to surrender. No deadline counts.
/// 7. `Finishing`: decided, committed; the voters are being told, inside the commit room.
/// 8. `Aborting`: decided, aborted; the client has been told; the parts are being undone.
/// 9. `Surrendering`: the record could not be asked in time; every node is being handed to
///    recovery, inside the commit room, and then the client is told that the outcome is unknown.
/// 10. `Finished`: the client has been told, and each node has answered or is recovery's.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Phase {
    /// Life cycle, 1.
    Voting {
        /// Voters whose PREPARE has not been answered.
        votes_missing: BTreeSet<NodeId>,
        /// Whether the INSERT in the anchor's transaction has not been answered. Apart, there is
        /// none.
        record_missing: bool,
    },
    /// Life cycle, 2 and 6.
    Entering {
        /// What the room is wanted for.
        purpose: Purpose,
        /// What is waited for now.
        door: Door,
    },
    /// Life cycle, 3.
    Confirming,
    /// Life cycle, 4.
    Deciding,
    /// Life cycle, 5.
    Settling,
    /// Life cycle, 7.
    Finishing {
        /// What is still to come, per node.
        open: BTreeMap<NodeId, Awaited>,
    },
    /// Life cycle, 8.
    Aborting {
        /// What is still to come, per node; the anchor is among them.
        open: BTreeMap<NodeId, Awaited>,
    },
    /// Life cycle, 9.
    Surrendering {
        /// Nodes that recovery has not taken yet.
        open: BTreeSet<NodeId>,
    },
    /// Life cycle, 10.
    Finished,
}

/// What comes before a transaction may become visible, in this order.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Door {
    /// SERIALIZABLE only: its place in the order of becoming visible. Before the room, so that no transaction
    /// inside waits for a place.
    VisibilityPlace,
    /// What its session may have seen elsewhere must be shown by its nodes: after all votes, because
    /// code that runs at PREPARE may see more, and before the room, which others wait for.
    Causes,
    /// The commit room.
    Room,
}

/// What the commit room is wanted for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Purpose {
    /// The anchor's COMMIT; anchored only. Nothing is decided yet.
    Decide,
    /// The COMMIT PREPAREDs; apart only. The decision is durable.
    Apply,
    /// Handing all nodes to recovery; apart only. It may apply its findings on one of them before
    /// the next one is closed to reads, so that must be inside the room too.
    Surrender,
}

/// What a node still has to answer, once the outcome is fixed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Awaited {
    /// The answer to its PREPARE; only then is it clear what must be undone.
    Vote,
    /// The answer to its commit or rollback.
    Answer,
    /// [`Event::HandedOver`].
    HandOver,
}

/// Something to do. Imperative. Effects that are not answered are done when they are performed, in the
/// order of their batch. For the others that order carries no meaning: what must happen after one of them
/// waits for its [`Event`].
///
/// Two connections per node matter. The **session's connection** is the one on which the
/// transaction's statements ran. The **finisher** is any other connection to the same database as
/// the same or a superior role; COMMIT PREPARED and ROLLBACK PREPARED need not run where PREPARE
/// did, and many transactions can share one, pipelined.
///
/// Below, `<gid>` is [`Coordinator::gid`] as text. Each effect names the events that answer it; a
/// driver that cannot get an answer reports the event that stands for a lost one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Effect {
    /// On the node's session connection: `PREPARE TRANSACTION '<gid>'`.
    ///
    /// Command tag `PREPARE TRANSACTION`: [`Event::VotedYes`]. An ERROR, and also the command tag
    /// `ROLLBACK` (PostgreSQL's answer, without an error, when the transaction had already failed):
    /// [`Event::VotedNo`]; the part is gone. Connection lost before either: [`Event::VoteLost`].
    Prepare(NodeId),
    /// The answer to this node's PREPARE is no longer wanted, because the transaction aborts: send a
    /// CancelRequest for the session's backend, or wait if that is not possible.
    ///
    /// Not answered by itself: the PREPARE is, with one of its three events, and must be. If it
    /// hangs, close the connection after a while and report [`Event::VoteLost`].
    CancelPrepare(NodeId),
    /// Anchored only. On the anchor's session connection, as the transaction's last statement before
    /// its COMMIT:
    /// `INSERT INTO tutti.decision (gid, decision) VALUES ('<gid>', 'committed')`.
    ///
    /// With it, in the same flight: `SET LOCAL synchronous_commit` to what the cluster promises (at
    /// least `on`), whatever the client had set, for this record outlives the client's settings.
    ///
    /// Answered: [`Event::DecisionRecorded`]. An ERROR of either (23505 means that recovery has
    /// written `aborted`): [`Event::DecisionRefused`]. Connection lost: [`Event::AnchorLost`].
    RecordDecision,
    /// Apart only. On the anchor's finisher, as a transaction of its own, `synchronous_commit` what
    /// the cluster promises (at least `on`; the finisher's is off for other statements):
    /// **this is the decision**.
    ///
    /// ```sql
    /// INSERT INTO tutti.decision (gid, decision) VALUES ('<gid>', 'committed')
    ///     ON CONFLICT DO NOTHING RETURNING gid
    /// ```
    ///
    /// Nothing is known before ReadyForQuery: in the extended protocol the row and CommandComplete
    /// come before the commit, and statements up to one Sync are one transaction. One statement may
    /// record the decisions of many transactions, one row each.
    ///
    /// The row is returned: [`Event::DecisionRecorded`]. It is not, because recovery has written
    /// `aborted`, or an ERROR followed by ReadyForQuery: [`Event::DecisionRefused`]. Everything else,
    /// a FATAL before the connection closes and a timeout too: [`Event::DecisionLost`]. Never send
    /// it twice: the second would find the row of the first, and that is not a refusal.
    Decide,
    /// SERIALIZABLE only. All have voted: release the permit to vote if another transaction waits for it,
    /// else keep it. A transaction that votes while this one is prepared is refused if it has overwritten
    /// what this one has read, but not once this one is visible; so the permit is kept as long as that delays
    /// no other. Not answered.
    YieldVoteOrder,
    /// SERIALIZABLE only. Release the permit to vote, if it is still held. Not answered. It is the last to be
    /// released.
    LeaveVoteOrder,
    /// Ask the sentinels of all nodes whether they were open until now, when all have voted.
    ///
    /// All were: [`Event::SentinelsConfirmed`]. One was not, or does not answer:
    /// [`Event::SentinelMissing`].
    ConfirmSentinels,
    /// SERIALIZABLE only. Ask for the place to become visible on all the transaction's nodes, in the order of
    /// asking. Granted: [`Event::VisibilityPlaceTaken`].
    TakeVisibilityPlace,
    /// The place is given up, or the request for it withdrawn. Not answered. Comes once after each
    /// [`Effect::TakeVisibilityPlace`].
    LeaveVisibilityPlace,
    /// Wait until each of the transaction's nodes shows all that is in application there now, and what
    /// recovery has to settle there (`docs/protocol/rooms.md`, causes). The patience with recovery counts
    /// from when the first [`Effect::TakeVisibilityPlace`] or [`Effect::WaitForCauses`] was performed, so that
    /// the patience of those that queue for their place does not add up.
    ///
    /// Done: [`Event::CausesShown`].
    WaitForCauses,
    /// Ask to enter the commit room. Granted: [`Event::CommitRoomEntered`].
    EnterCommitRoom,
    /// Leave the commit room, or withdraw a request for it that was not granted. Not answered. Comes
    /// once after each [`Effect::EnterCommitRoom`], and never without one.
    LeaveCommitRoom,
    /// From now on some of the transaction's nodes may show it and others not: a reader of one of these must
    /// wait for it. Not answered; done before any effect after it.
    BeginApplication,
    /// The node shows the transaction, or is closed to reads until it does. Not answered. Only
    /// between [`Effect::BeginApplication`] and [`Effect::EndApplication`].
    NoteApplied(NodeId),
    /// No reader need wait for the transaction any more. Not answered. Comes once after each
    /// [`Effect::BeginApplication`].
    EndApplication,
    /// Every node has answered its commit: once these answers are durable, no one will read the record, and
    /// it may be deleted. Not answered.
    ForgetDecision,
    /// Anchored only. On the anchor's session connection: `COMMIT`. **This is the decision.**
    ///
    /// Command tag `COMMIT`: [`Event::AnchorCommitted`]. An ERROR followed by ReadyForQuery (a
    /// deferred constraint, a serialization failure), or the command tag `ROLLBACK`:
    /// [`Event::AnchorRefused`]. Everything else, a FATAL before the connection closes too:
    /// [`Event::AnchorLost`], for a terminated backend may have committed before. A cancellation that takes
    /// effect on the anchor is an ERROR like others; none may interrupt a wait for a standby.
    CommitAnchor,
    /// Anchored only. On the anchor's session connection, after whatever is running there:
    /// `ROLLBACK`.
    ///
    /// Answered: [`Event::AnchorRolledBack`]. Connection lost: [`Event::AnchorLost`].
    RollbackAnchor,
    /// Find out whether the anchor's COMMIT, or apart, the record's INSERT happened, and make sure that it
    /// cannot happen later: exactly [`recovery::Effect::ReadOrRefuseDecision`](crate::recovery::Effect), over
    /// a new connection to the anchor, retried until the driver's patience is exhausted.
    ///
    /// Found: [`Event::Settled`]. Patience exhausted: [`Event::SettleTimedOut`].
    Settle,
    /// On the node's finisher: `COMMIT PREPARED '<gid>'`.
    ///
    /// Answered: [`Event::ParticipantCommitted`]. Error 42704 (no such prepared transaction; another session
    /// may have finished it, or not): [`Event::ParticipantUnknown`]. Any other error, or no answer:
    /// [`Event::ParticipantLost`].
    CommitPrepared(NodeId),
    /// On the node's finisher: `ROLLBACK PREPARED '<gid>'`. Also sent when the vote was lost:
    /// then the part may not be there, or not yet.
    ///
    /// Answered: [`Event::ParticipantRolledBack`]. Error 42704: [`Event::ParticipantUnknown`], never
    /// success, for an unanswered PREPARE may still be running. Any other error, or no answer:
    /// [`Event::ParticipantLost`].
    RollbackPrepared(NodeId),
    /// This coordinator cannot finish `node`; recovery must: run a [`Recovery`](crate::Recovery) of
    /// this gid on `node` until it is settled.
    ///
    /// Answer [`Event::HandedOver`] as soon as that is noted and, unless `decision` is [`Decision::Aborted`],
    /// `node` is closed to reads until it is settled there: the commit room is about to be left, and the
    /// client to be told.
    LeaveToRecovery {
        /// The node that may still hold a part.
        node: NodeId,
        /// What is known of the decision; `None` if it could not be determined.
        decision: Option<Decision>,
    },
    /// Tell the client. Happens exactly once, and after an abort not last: go on driving until
    /// [`Coordinator::is_finished`], whether or not the client is still there.
    Reply(Outcome),
}

/// What the client may believe.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Outcome {
    /// Committed on every node, except on those handed to recovery, which are closed to reads until the
    /// commit has reached them: `COMMIT`.
    Committed,
    /// Nothing of it remains or will: an ERROR that fits the cause. A retry is safe.
    Aborted {
        /// Why.
        cause: AbortCause,
    },
    /// The outcome is not known yet: SQLSTATE 08007, with the gid in the hint. Never to be shown as an abort.
    Unknown,
}

/// Why a transaction was aborted.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum AbortCause {
    /// The node refused its PREPARE; its ERROR is the client's.
    VotedNo(NodeId),
    /// The connection to the node broke before it voted.
    VoteLost(NodeId),
    /// The anchor refused the decision's record; its ERROR is the client's, unless it is 23505 on
    /// `tutti.decision`: then recovery took this gateway for dead, and 40001 tells the client to retry.
    /// Apart, that second case comes without an ERROR.
    DecisionRefused,
    /// The anchor refused its COMMIT; its ERROR is the client's. Anchored only.
    AnchorRefused,
    /// The connection to the anchor broke before its COMMIT was sent. Anchored only.
    AnchorLost,
    /// The answer to the decision was lost, and the record says that it did not happen and never
    /// will.
    FoundAborted,
    /// Not all votes arrived in time, or anchored, the room was not entered in time.
    DeadlineReached,
    /// For a moment no sentinel was open on the node: 40001.
    SentinelMissing(NodeId),
}

/// Something that happened. Past tense. See [`Effect`] for what each of them answers.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Event {
    /// PREPARE succeeded: the node can commit, whatever happens to it or to us.
    VotedYes(NodeId),
    /// PREPARE failed, and the node has rolled its part back.
    VotedNo(NodeId),
    /// The connection broke before PREPARE was answered: it may have happened, or may still happen.
    VoteLost(NodeId),
    /// Anchored: the decision's row is in the anchor's transaction. Apart: it is durable.
    DecisionRecorded,
    /// The decision's row was refused. Anchored: the anchor's transaction has failed.
    DecisionRefused,
    /// It is unknown whether the decision's row was written, or will be. Apart only.
    DecisionLost,
    /// Sentinels were open on all nodes throughout.
    SentinelsConfirmed,
    /// On this node there may have been none for a moment.
    SentinelMissing(NodeId),
    /// The transaction has its place: nobody is to become visible before it.
    VisibilityPlaceTaken,
    /// Its nodes show what its session may have seen.
    CausesShown,
    /// This transaction is in the commit room.
    CommitRoomEntered,
    /// The anchor's COMMIT succeeded.
    AnchorCommitted,
    /// The anchor's COMMIT failed, and the anchor has rolled back.
    AnchorRefused,
    /// The anchor's transaction was rolled back at our request.
    AnchorRolledBack,
    /// The session's connection to the anchor broke. After COMMIT was sent: it may have happened.
    /// Anchored only: apart, the anchor's vote is lost as any other is.
    AnchorLost,
    /// The record was found, or `aborted` was written into it.
    Settled(Decision),
    /// The record could not be asked in time.
    SettleTimedOut,
    /// The part is committed.
    ParticipantCommitted(NodeId),
    /// The part is rolled back.
    ParticipantRolledBack(NodeId),
    /// 42704: the node knows no prepared transaction of this gid at this moment.
    ParticipantUnknown(NodeId),
    /// The node did not answer, or with an error that decides nothing.
    ParticipantLost(NodeId),
    /// Recovery has taken the node over.
    HandedOver(NodeId),
    /// The deadline for the votes, and anchored for the commit room, passed; or the client gave up.
    DeadlineReached,
}

/// What must be released.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
struct Held {
    vote_order: bool,
    visibility_place: bool,
    room: bool,
    application: bool,
}

/// Commits one global transaction, or aborts it. See the module's documentation.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Coordinator {
    gid: Gid,
    terms: Terms,
    /// Those that prepare: the participants, and apart, the anchor, unless the record is elsewhere.
    voters: BTreeSet<NodeId>,
    phase: Phase,
    held: Held,
    /// Whether recovery has a node: then the record is recovery's to delete.
    is_handed_over: bool,
}

/// What remains of the anchor's part when the transaction aborts.
enum AnchorPart {
    /// Its transaction is open, or failed and still to be ended.
    Open,
    /// The anchor itself has ended it.
    Gone,
    /// Its connection broke; its backend may take a while to notice.
    Lost,
    /// The same as of any voter's: it is one of them; or it has none.
    Voter,
}

impl Coordinator {
    /// Starts to commit the transaction `gid`, which wrote on its anchor and on `participants`.
    ///
    /// Requires: at least one participant, the anchor not among them, in any form; elsewhere, the anchor has no
    /// part. Only where the decision is apart there may be none: the anchor alone votes, and something is recorded with
    /// the decision that cannot be part of its transaction. Otherwise a transaction that wrote on its anchor alone
    /// needs no coordinator: its plain COMMIT is atomic. Nodes
    /// that were only
    /// read are not participants either: they get a plain COMMIT, at any time.
    pub fn begin(
        gid: Gid,
        terms: Terms,
        participants: BTreeSet<NodeId>,
        effects: &mut Vec<Effect>,
    ) -> Self {
        let form = terms.form;
        let may_be_alone = form == Form::Apart;
        assert!(
            may_be_alone || !participants.is_empty(),
            "{gid}: one writer needs no global transaction"
        );
        assert!(!participants.contains(&gid.anchor), "{gid}: the anchor is no participant");
        let mut voters = participants;
        if form == Form::Apart {
            voters.insert(gid.anchor);
        }
        effects.extend(voters.iter().copied().map(Effect::Prepare));
        if form == Form::Anchored {
            effects.push(Effect::RecordDecision);
        }
        let votes_missing = voters.clone();
        let phase = Phase::Voting { votes_missing, record_missing: form == Form::Anchored };
        let held = Held { vote_order: terms.serializable, ..Held::default() };
        Self { gid, terms, voters, phase, held, is_handed_over: false }
    }

    /// The transaction's identifier; names the anchor.
    pub fn gid(&self) -> &Gid {
        &self.gid
    }

    /// Where the transaction is in its life.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Whether nothing is decided, nor can be by what is under way: [`Event::DeadlineReached`] aborts.
    pub fn may_be_given_up(&self) -> bool {
        matches!(
            self.phase,
            Phase::Voting { .. }
                | Phase::Confirming
                | Phase::Entering { purpose: Purpose::Decide, .. }
        )
    }

    /// Whether everything is over: the client has been told and no further event matters.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Takes one event, moves to the next phase, and appends what must now be done.
    ///
    /// Total: every event is legal in every phase, because the network repeats and delays answers.
    /// An event that is late or repeated changes nothing.
    pub fn step(&mut self, event: Event, effects: &mut Vec<Effect>) {
        let (anchor, form) = (self.gid.anchor, self.terms.form);
        let unended = match form {
            Form::Anchored => AnchorPart::Open,
            Form::Apart | Form::Elsewhere => AnchorPart::Voter,
        };
        match (&mut self.phase, event) {
            (Phase::Voting { votes_missing, .. }, Event::VotedYes(node)) => {
                votes_missing.remove(&node);
                self.go_on_if_all_voted(effects);
            }
            (Phase::Voting { record_missing, .. }, Event::DecisionRecorded) => {
                *record_missing = false;
                self.go_on_if_all_voted(effects);
            }
            (Phase::Voting { votes_missing, .. }, Event::VotedNo(node))
                if votes_missing.contains(&node) =>
            {
                self.abort(AbortCause::VotedNo(node), unended, effects);
            }
            (Phase::Voting { votes_missing, .. }, Event::VoteLost(node))
                if votes_missing.contains(&node) =>
            {
                self.abort(AbortCause::VoteLost(node), unended, effects);
            }
            (Phase::Voting { record_missing: true, .. }, Event::DecisionRefused) => {
                self.abort(AbortCause::DecisionRefused, AnchorPart::Open, effects);
            }
            (
                Phase::Voting { .. }
                | Phase::Entering { purpose: Purpose::Decide, .. }
                | Phase::Confirming,
                Event::AnchorLost,
            ) if form == Form::Anchored => {
                self.abort(AbortCause::AnchorLost, AnchorPart::Lost, effects);
            }
            (
                Phase::Voting { .. }
                | Phase::Entering { purpose: Purpose::Decide, .. }
                | Phase::Confirming,
                Event::DeadlineReached,
            ) => {
                self.abort(AbortCause::DeadlineReached, unended, effects);
            }

            (
                Phase::Entering { door: door @ Door::VisibilityPlace, .. },
                Event::VisibilityPlaceTaken,
            ) => {
                *door = Door::Causes;
                effects.push(Effect::WaitForCauses);
            }
            (Phase::Entering { door: door @ Door::Causes, .. }, Event::CausesShown) => {
                *door = Door::Room;
                self.held.room = true;
                effects.push(Effect::EnterCommitRoom);
            }
            (Phase::Entering { purpose, door: Door::Room }, Event::CommitRoomEntered) => {
                match purpose {
                    Purpose::Decide => self.decide_if_watched(effects),
                    Purpose::Apply => self.apply(effects),
                    Purpose::Surrender => self.surrender(effects),
                }
            }

            (Phase::Confirming, Event::SentinelsConfirmed) => self.decide(effects),
            (Phase::Confirming, Event::SentinelMissing(node)) => {
                self.abort(AbortCause::SentinelMissing(node), unended, effects);
            }

            (Phase::Deciding, Event::AnchorCommitted) if form == Form::Anchored => {
                effects.push(Effect::NoteApplied(anchor));
                self.apply(effects);
            }
            (Phase::Deciding, Event::AnchorRefused) if form == Form::Anchored => {
                self.abort(AbortCause::AnchorRefused, AnchorPart::Gone, effects);
            }
            // Anchored, the answer to the INSERT may be repeated here, and decides nothing.
            (Phase::Deciding, Event::DecisionRecorded) if form.is_apart() => {
                self.enter_room(Purpose::Apply, effects);
            }
            (Phase::Deciding, Event::DecisionRefused) if form.is_apart() => {
                // Only we would write `committed`, and we will not again.
                self.abort(AbortCause::DecisionRefused, AnchorPart::Voter, effects);
            }
            (Phase::Deciding, Event::AnchorLost) if form == Form::Anchored => {
                self.phase = Phase::Settling;
                effects.push(Effect::Settle);
            }
            (Phase::Deciding, Event::DecisionLost) if form.is_apart() => {
                self.phase = Phase::Settling;
                effects.push(Effect::Settle);
            }

            (Phase::Settling, Event::Settled(Decision::Committed)) => match form {
                Form::Anchored => {
                    effects.push(Effect::NoteApplied(anchor));
                    self.apply(effects);
                }
                Form::Apart | Form::Elsewhere => self.enter_room(Purpose::Apply, effects),
            },
            (Phase::Settling, Event::Settled(Decision::Aborted)) => {
                // Anchored: the refusal could only be written after the old backend's transaction
                // had ended.
                let anchor_part = match form {
                    Form::Anchored => AnchorPart::Gone,
                    Form::Apart | Form::Elsewhere => AnchorPart::Voter,
                };
                self.abort(AbortCause::FoundAborted, anchor_part, effects);
            }
            (Phase::Settling, Event::SettleTimedOut) => match form {
                Form::Anchored => self.surrender(effects),
                Form::Apart | Form::Elsewhere => self.enter_room(Purpose::Surrender, effects),
            },

            (Phase::Finishing { open }, Event::ParticipantCommitted(node))
                if open.get(&node) == Some(&Awaited::Answer) =>
            {
                open.remove(&node);
                effects.push(Effect::NoteApplied(node));
                self.finish_if_nothing_is_open(effects);
            }
            (
                Phase::Finishing { open },
                Event::ParticipantUnknown(node) | Event::ParticipantLost(node),
            ) if open.get(&node) == Some(&Awaited::Answer) => {
                leave_to_recovery(open, node, Decision::Committed, effects);
                self.is_handed_over = true;
            }

            (Phase::Aborting { open }, Event::VotedYes(node) | Event::VoteLost(node))
                if open.get(&node) == Some(&Awaited::Vote) =>
            {
                open.insert(node, Awaited::Answer);
                effects.push(Effect::RollbackPrepared(node));
            }
            (Phase::Aborting { open }, Event::VotedNo(node))
                if open.get(&node) == Some(&Awaited::Vote) =>
            {
                open.remove(&node);
                self.finish_if_nothing_is_open(effects);
            }
            (Phase::Aborting { open }, Event::ParticipantRolledBack(node))
                if self.voters.contains(&node) && open.get(&node) == Some(&Awaited::Answer) =>
            {
                open.remove(&node);
                self.finish_if_nothing_is_open(effects);
            }
            (
                Phase::Aborting { open },
                Event::ParticipantUnknown(node) | Event::ParticipantLost(node),
            ) if self.voters.contains(&node) && open.get(&node) == Some(&Awaited::Answer) => {
                leave_to_recovery(open, node, Decision::Aborted, effects);
            }
            (Phase::Aborting { open }, Event::AnchorRolledBack)
                if form == Form::Anchored && open.get(&anchor) == Some(&Awaited::Answer) =>
            {
                open.remove(&anchor);
                self.finish_if_nothing_is_open(effects);
            }
            (Phase::Aborting { open }, Event::AnchorLost)
                if form == Form::Anchored && open.get(&anchor) == Some(&Awaited::Answer) =>
            {
                leave_to_recovery(open, anchor, Decision::Aborted, effects);
            }

            (Phase::Finishing { open }, Event::HandedOver(node))
                if open.get(&node) == Some(&Awaited::HandOver) =>
            {
                open.remove(&node);
                effects.push(Effect::NoteApplied(node));
                self.finish_if_nothing_is_open(effects);
            }
            (Phase::Aborting { open }, Event::HandedOver(node))
                if open.get(&node) == Some(&Awaited::HandOver) =>
            {
                open.remove(&node);
                self.finish_if_nothing_is_open(effects);
            }
            (Phase::Surrendering { open }, Event::HandedOver(node)) => {
                if open.remove(&node) {
                    effects.push(Effect::NoteApplied(node));
                    self.finish_if_nothing_is_open(effects);
                }
            }

            // Late or repeated. Listed so that a new event does not compile until it is handled.
            (
                _,
                Event::VotedYes(_)
                | Event::VotedNo(_)
                | Event::VoteLost(_)
                | Event::DecisionRecorded
                | Event::DecisionRefused
                | Event::DecisionLost
                | Event::SentinelsConfirmed
                | Event::SentinelMissing(_)
                | Event::VisibilityPlaceTaken
                | Event::CausesShown
                | Event::CommitRoomEntered
                | Event::AnchorCommitted
                | Event::AnchorRefused
                | Event::AnchorRolledBack
                | Event::AnchorLost
                | Event::Settled(_)
                | Event::SettleTimedOut
                | Event::ParticipantCommitted(_)
                | Event::ParticipantRolledBack(_)
                | Event::ParticipantUnknown(_)
                | Event::ParticipantLost(_)
                | Event::HandedOver(_)
                | Event::DeadlineReached,
            ) => (),
        }
    }

    fn go_on_if_all_voted(&mut self, effects: &mut Vec<Effect>) {
        if let Phase::Voting { votes_missing, record_missing: false } = &self.phase
            && votes_missing.is_empty()
        {
            match self.terms.form {
                Form::Anchored => self.enter_room(Purpose::Decide, effects),
                Form::Apart | Form::Elsewhere => {
                    if self.terms.serializable {
                        effects.push(Effect::YieldVoteOrder);
                    }
                    self.decide_if_watched(effects);
                }
            }
        }
    }

    /// Requires: all have voted yes; anchored, inside the commit room, where the decision makes it
    /// visible.
    fn decide_if_watched(&mut self, effects: &mut Vec<Effect>) {
        if self.terms.watched {
            self.phase = Phase::Confirming;
            effects.push(Effect::ConfirmSentinels);
        } else {
            self.decide(effects);
        }
    }

    fn decide(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Deciding;
        match self.terms.form {
            Form::Anchored => {
                self.begin_application(effects);
                effects.push(Effect::CommitAnchor);
            }
            Form::Apart | Form::Elsewhere => effects.push(Effect::Decide),
        }
    }

    fn enter_room(&mut self, purpose: Purpose, effects: &mut Vec<Effect>) {
        let (door, effect) = match self.terms.serializable {
            true => (Door::VisibilityPlace, Effect::TakeVisibilityPlace),
            false => (Door::Causes, Effect::WaitForCauses),
        };
        self.held.visibility_place = self.terms.serializable;
        self.phase = Phase::Entering { purpose, door };
        effects.push(effect);
    }

    fn begin_application(&mut self, effects: &mut Vec<Effect>) {
        if !std::mem::replace(&mut self.held.application, true) {
            effects.push(Effect::BeginApplication);
        }
    }

    /// Releases what keeps others waiting, except the permit to vote.
    fn let_others_go_on(&mut self, effects: &mut Vec<Effect>) {
        let held = std::mem::take(&mut self.held);
        self.held.vote_order = held.vote_order;
        effects.extend(held.application.then_some(Effect::EndApplication));
        effects.extend(held.room.then_some(Effect::LeaveCommitRoom));
        effects.extend(held.visibility_place.then_some(Effect::LeaveVisibilityPlace));
    }

    /// Tells the voters to commit. Requires: the decision is durable, and this transaction is in the
    /// commit room.
    fn apply(&mut self, effects: &mut Vec<Effect>) {
        self.begin_application(effects);
        let open = self.voters.iter().map(|node| (*node, Awaited::Answer)).collect();
        self.phase = Phase::Finishing { open };
        effects.extend(self.voters.iter().copied().map(Effect::CommitPrepared));
    }

    /// Hands everything to recovery, undecided. Requires: this transaction is in the commit room.
    fn surrender(&mut self, effects: &mut Vec<Effect>) {
        // Recovery may find it committed, and apply it on one node before another.
        self.begin_application(effects);
        let anchor = (self.terms.form == Form::Anchored).then_some(self.gid.anchor);
        let open: BTreeSet<_> = self.voters.iter().copied().chain(anchor).collect();
        effects.extend(
            open.iter().map(|node| Effect::LeaveToRecovery { node: *node, decision: None }),
        );
        self.phase = Phase::Surrendering { open };
    }

    /// Fixes the outcome as aborted. Requires: the decision was never sent, or is known to have failed;
    /// so nothing can commit any more, and the client may be told immediately.
    fn abort(&mut self, cause: AbortCause, anchor_part: AnchorPart, effects: &mut Vec<Effect>) {
        let none_missing = BTreeSet::new();
        let votes_missing = match &self.phase {
            Phase::Voting { votes_missing, .. } => votes_missing,
            _ => &none_missing,
        };
        let mut open = BTreeMap::new();
        for &node in &self.voters {
            if cause == AbortCause::VotedNo(node) {
                continue;
            }
            if votes_missing.contains(&node) && cause != AbortCause::VoteLost(node) {
                open.insert(node, Awaited::Vote);
                effects.push(Effect::CancelPrepare(node));
            } else {
                open.insert(node, Awaited::Answer);
                effects.push(Effect::RollbackPrepared(node));
            }
        }
        match anchor_part {
            AnchorPart::Open => {
                open.insert(self.gid.anchor, Awaited::Answer);
                effects.push(Effect::RollbackAnchor);
            }
            AnchorPart::Gone | AnchorPart::Voter => (),
            AnchorPart::Lost => {
                leave_to_recovery(&mut open, self.gid.anchor, Decision::Aborted, effects);
            }
        }
        self.let_others_go_on(effects);
        effects.push(Effect::Reply(Outcome::Aborted { cause }));
        self.phase = Phase::Aborting { open };
        self.finish_if_nothing_is_open(effects);
    }

    fn finish_if_nothing_is_open(&mut self, effects: &mut Vec<Effect>) {
        let outcome = match &self.phase {
            Phase::Finishing { open } if open.is_empty() => Some(Outcome::Committed),
            Phase::Surrendering { open } if open.is_empty() => Some(Outcome::Unknown),
            // The client was told when the abort was certain, and the room was left then.
            Phase::Aborting { open } if open.is_empty() => None,
            _ => return,
        };
        self.let_others_go_on(effects);
        if std::mem::take(&mut self.held.vote_order) {
            effects.push(Effect::LeaveVoteOrder);
        }
        if outcome == Some(Outcome::Committed) && !self.is_handed_over {
            effects.push(Effect::ForgetDecision);
        }
        effects.extend(outcome.map(Effect::Reply));
        self.phase = Phase::Finished;
    }
}

fn leave_to_recovery(
    open: &mut BTreeMap<NodeId, Awaited>,
    node: NodeId,
    decision: Decision,
    effects: &mut Vec<Effect>,
) {
    open.insert(node, Awaited::HandOver);
    effects.push(Effect::LeaveToRecovery { node, decision: Some(decision) });
}
