//! A model of the nodes, the network, the gateway and its death, around the real machines.
//!
//! Owns: when a [`Move`] can happen ([`World::moves`]), and what it does ([`World::apply`]).
//! Never: judges; that is `invariants.rs`.
//! Start reading at [`World`].
//!
//! What is assumed of PostgreSQL: a statement happens at one instant or not at all; a backend whose
//! connection broke may still run what it was sent, and then ends, rolling back what is open; the
//! unique key of `tutti.decision` makes an INSERT wait for an open one of the same gid.

use std::collections::{BTreeMap, BTreeSet};

use tutti_txn::coordinator::{Phase, Purpose};
use tutti_txn::{
    Coordinator, Decision, Effect, Event, Form, Gid, NodeId, Outcome, Recovery, Terms, recovery,
};

use crate::moves::{Flight, Move, Order};
use crate::mutation::Mutation;

pub const ANCHOR: NodeId = NodeId(1);

/// How many faults of each kind may still happen.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Limits {
    /// Connections that break, and answers given up.
    pub breaks: u8,
    /// Answers that arrive twice.
    pub repeats: u8,
    /// Deaths of the gateway, or of the one that recovers for it.
    pub crashes: u8,
    /// Sweeps by another gateway that takes this one for dead although it lives.
    pub sweeps: u8,
    /// Nodes that fail over to a copy that lacks an acknowledged COMMIT PREPARED.
    pub forgets: u8,
    /// Deadlines.
    pub deadlines: u8,
}

/// The transaction's part on one node.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Part {
    Working,
    Prepared,
    Committed,
    RolledBack,
}

/// The transaction's row in the anchor's `tutti.decision`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Row {
    Absent,
    /// Anchored only: `committed`, inserted by the anchor's open transaction.
    Pending,
    Committed,
    Aborted,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Node {
    pub part: Part,
    /// Whether the session's connection to it is still open.
    pub connected: bool,
}

/// A look at all voters for transactions in doubt.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Sweep {
    unlisted: BTreeSet<NodeId>,
    found: BTreeSet<NodeId>,
    /// Whether it was called for by no death or restart.
    uncalled: bool,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct World {
    pub form: Form,
    /// None once its gateway has died.
    pub coordinator: Option<Coordinator>,
    pub recovery: Option<Recovery>,
    pub nodes: BTreeMap<NodeId, Node>,
    pub row: Row,
    pub in_commit_room: bool,
    /// In application: the nodes that do not show it yet.
    applying: Option<BTreeSet<NodeId>>,
    has_permit_to_vote: bool,
    has_visibility_place: bool,
    /// A sentinel was not open all the time.
    pub is_unwatched: bool,
    /// The record was to be forgotten while a node could still ask for it.
    pub was_forgotten_early: bool,
    pub told: Vec<Outcome>,
    /// Nodes that are not read before they are settled: handed over, or being recovered. Opened when
    /// the recovery announces that they are.
    closed_to_reads: BTreeSet<NodeId>,
    /// Nodes that are not read because they restarted; opened when a sweep after that has settled
    /// what it found.
    restarted: BTreeSet<NodeId>,
    /// Nodes handed over, waiting for a recovery to start.
    handed_over: BTreeSet<NodeId>,
    /// The nodes that [`Self::recovery`] was given.
    recovering: BTreeSet<NodeId>,
    sweep: Option<Sweep>,
    sweep_owed: bool,
    flights: BTreeSet<Flight>,
    limits: Limits,
}

impl World {
    /// A transaction that has written on `participants` nodes, and on the anchor unless that is elsewhere, at its COMMIT.
    pub fn begin(terms: Terms, participants: u16, limits: Limits) -> Self {
        let participants: BTreeSet<_> = (2..2 + participants).map(NodeId).collect();
        let working = Node { part: Part::Working, connected: true };
        let mut effects = Vec::new();
        let coordinator = Coordinator::begin(gid(), terms, participants.clone(), &mut effects);
        let anchor = (terms.form != Form::Elsewhere).then_some(ANCHOR);
        let mut world = Self {
            form: terms.form,
            coordinator: Some(coordinator),
            recovery: None,
            nodes: participants.into_iter().chain(anchor).map(|id| (id, working)).collect(),
            row: Row::Absent,
            in_commit_room: false,
            applying: None,
            has_permit_to_vote: terms.serializable,
            has_visibility_place: false,
            is_unwatched: false,
            was_forgotten_early: false,
            told: Vec::new(),
            closed_to_reads: BTreeSet::new(),
            restarted: BTreeSet::new(),
            handed_over: BTreeSet::new(),
            recovering: BTreeSet::new(),
            sweep: None,
            sweep_owed: false,
            flights: BTreeSet::new(),
            limits,
        };
        world.perform(effects, None);
        world
    }

    pub fn anchor_has_committed(&self) -> bool {
        // An anchor without a part shows nothing itself.
        let of_record = || self.nodes.values().any(|node| node.part == Part::Committed);
        self.nodes.get(&ANCHOR).map_or_else(of_record, |node| node.part == Part::Committed)
    }

    pub fn is_closed_to_reads(&self, id: NodeId) -> bool {
        self.closed_to_reads.contains(&id) || self.restarted.contains(&id)
    }

    /// Whether readers of the node wait for the transaction.
    pub fn is_waited_for_on(&self, id: NodeId) -> bool {
        self.applying.as_ref().is_some_and(|missing| missing.contains(&id))
    }

    /// Whether the gateway has anything for this transaction that others wait for.
    pub fn holds_anything(&self) -> bool {
        self.in_commit_room
            || self.applying.is_some()
            || self.has_permit_to_vote
            || self.has_visibility_place
    }

    /// Whether the coordinator is on its way to leave everything to recovery, undecided.
    pub fn is_surrendering(&self) -> bool {
        self.coordinator.as_ref().is_some_and(|coordinator| {
            matches!(
                coordinator.phase(),
                Phase::Entering { purpose: Purpose::Surrender, .. } | Phase::Surrendering { .. }
            )
        })
    }

    /// Whether the node prepares its part.
    fn votes(&self, id: NodeId) -> bool {
        id != ANCHOR || self.form == Form::Apart
    }

    fn voters(&self) -> BTreeSet<NodeId> {
        self.nodes.keys().copied().filter(|id| self.votes(*id)).collect()
    }

    fn coordinator_is_busy(&self) -> bool {
        self.coordinator.as_ref().is_some_and(|coordinator| !coordinator.is_finished())
    }

    // ---- what can happen ----

    /// Everything that can happen next.
    pub fn moves(&self, mutation: Option<Mutation>) -> Vec<Move> {
        let mut moves = Vec::new();
        for &flight in &self.flights {
            match flight {
                Flight::Order { order, awaited } => {
                    self.moves_of_order(flight, order, awaited, mutation, &mut moves);
                }
                Flight::ToCoordinator(_) | Flight::ToRecovery(_) => {
                    moves.push(Move::Deliver(flight));
                    if 0 < self.limits.repeats {
                        moves.push(Move::DeliverAndRepeat(flight));
                    }
                }
            }
        }
        for (&id, node) in &self.nodes {
            let sent = self.flights.iter().any(|flight| flight.on_session(id));
            if !node.connected && (node.part == Part::Working || sent) {
                moves.push(Move::BackendEnds(id));
            }
            // A break of an idle voter's connection changes nothing: it has voted.
            let worth_breaking = sent || (!self.votes(id) && self.coordinator_is_busy());
            if node.connected && worth_breaking && 0 < self.limits.breaks {
                moves.push(Move::Break(id));
            }
            if self.votes(id) && node.part == Part::Committed && 0 < self.limits.forgets {
                moves.push(Move::ForgetCommit(id));
            }
        }
        if self.recovery.is_none() && self.sweep.is_none() {
            if self.sweep_owed {
                moves.push(Move::StartSweep);
            }
            if !self.handed_over.is_empty() {
                moves.push(Move::StartRecovery);
            }
            if self.coordinator_is_busy() && 0 < self.limits.sweeps {
                moves.push(Move::StartUncalledSweep);
            }
        }
        if let Some(sweep) = &self.sweep {
            moves.extend(sweep.unlisted.iter().copied().map(Move::SweepNode));
        }
        if self.coordinator_is_busy() && 0 < self.limits.deadlines {
            moves.push(Move::Deadline);
        }
        let somebody_works =
            self.coordinator_is_busy() || self.recovery.is_some() || self.sweep.is_some();
        if somebody_works && 0 < self.limits.crashes {
            moves.push(Move::Crash);
        }
        moves
    }

    fn moves_of_order(
        &self,
        flight: Flight,
        order: Order,
        awaited: bool,
        mutation: Option<Mutation>,
        moves: &mut Vec<Move>,
    ) {
        let asks_for_decision = matches!(
            order,
            Order::Coordinator(Effect::Settle)
                | Order::Recovery(recovery::Effect::ReadOrRefuseDecision)
        );
        let only_reads = mutation == Some(Mutation::RecoveryLeavesNoRecord);
        let blocked = match order {
            // The unique key makes it wait for the open INSERT.
            _ if asks_for_decision => self.row == Row::Pending && !only_reads,
            // One connection: it runs after the INSERT.
            Order::Coordinator(Effect::RollbackAnchor) => self.flights.iter().any(|flight| {
                matches!(
                    flight,
                    Flight::Order { order: Order::Coordinator(Effect::RecordDecision), .. }
                )
            }),
            Order::Coordinator(_) | Order::Recovery(_) => false,
        };
        if !blocked {
            moves.push(Move::Run(flight));
        }
        if matches!(
            order,
            Order::Coordinator(
                Effect::Prepare(_)
                    | Effect::CommitAnchor
                    | Effect::Decide
                    | Effect::ConfirmSentinels
            )
        ) {
            moves.push(Move::Refuse(flight));
        }
        if awaited
            && order.leaves_the_gateway()
            && order.session().is_none()
            && 0 < self.limits.breaks
        {
            moves.push(Move::GiveUp(flight));
        }
    }

    // ---- what it does ----

    /// Lets `step` happen.
    pub fn apply(&mut self, step: Move, mutation: Option<Mutation>) {
        match step {
            Move::Run(flight) => {
                self.flights.remove(&flight);
                let Flight::Order { order, awaited } = flight else { unreachable!("only orders") };
                self.run(order, awaited, mutation);
            }
            Move::Refuse(flight) => {
                self.flights.remove(&flight);
                let Flight::Order { order, awaited } = flight else { unreachable!("only orders") };
                if let Some(id) = order.session() {
                    self.roll_back_open(id);
                }
                let refusal = match order {
                    Order::Coordinator(Effect::Prepare(id)) => Event::VotedNo(id),
                    Order::Coordinator(Effect::CommitAnchor) => Event::AnchorRefused,
                    Order::Coordinator(Effect::Decide) => Event::DecisionRefused,
                    Order::Coordinator(Effect::ConfirmSentinels) => {
                        self.is_unwatched = true;
                        Event::SentinelMissing(ANCHOR)
                    }
                    Order::Coordinator(_) | Order::Recovery(_) => unreachable!("never refused"),
                };
                self.answer_coordinator(awaited, refusal);
            }
            Move::Deliver(flight) => {
                self.flights.remove(&flight);
                self.deliver(flight, mutation);
            }
            Move::DeliverAndRepeat(flight) => {
                self.limits.repeats -= 1;
                self.deliver(flight, mutation);
            }
            Move::BackendEnds(id) => self.end_backend(id),
            Move::StartSweep => {
                self.sweep_owed = false;
                self.start_sweep(false, mutation);
            }
            Move::StartUncalledSweep => {
                self.limits.sweeps -= 1;
                self.start_sweep(true, mutation);
            }
            Move::SweepNode(id) => self.sweep_node(id, mutation),
            Move::StartRecovery => {
                let nodes = std::mem::take(&mut self.handed_over);
                self.start_recovery(nodes);
            }
            Move::Break(id) => {
                self.limits.breaks -= 1;
                self.disconnect(id);
                let lost = match self.votes(id) {
                    true => Event::VoteLost(id),
                    false => Event::AnchorLost,
                };
                self.flights.insert(Flight::ToCoordinator(lost));
            }
            Move::GiveUp(flight) => {
                self.limits.breaks -= 1;
                self.give_up(flight, mutation);
            }
            Move::Deadline => {
                self.limits.deadlines -= 1;
                self.deliver(Flight::ToCoordinator(Event::DeadlineReached), mutation);
            }
            Move::Crash => self.crash(),
            Move::ForgetCommit(id) => {
                self.limits.forgets -= 1;
                self.node(id).part = Part::Prepared;
                self.restarted.insert(id);
                self.sweep_owed = mutation != Some(Mutation::RestartIsNotSwept);
            }
        }
    }

    fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("orders name nodes of the world")
    }

    fn run(&mut self, order: Order, awaited: bool, mutation: Option<Mutation>) {
        match order {
            Order::Coordinator(effect) => {
                if let Some(answer) = self.run_for_coordinator(effect, mutation) {
                    self.answer_coordinator(awaited, answer);
                }
            }
            Order::Recovery(effect) => {
                let answer = self.run_for_recovery(effect, mutation);
                if awaited {
                    self.flights.insert(Flight::ToRecovery(answer));
                }
            }
        }
    }

    fn run_for_coordinator(&mut self, effect: Effect, mutation: Option<Mutation>) -> Option<Event> {
        Some(match effect {
            Effect::Prepare(id) => {
                assert_eq!(self.nodes[&id].part, Part::Working);
                self.node(id).part = Part::Prepared;
                Event::VotedYes(id)
            }
            Effect::RecordDecision => match self.row {
                Row::Absent => {
                    self.row = Row::Pending;
                    Event::DecisionRecorded
                }
                Row::Aborted => {
                    // The transaction has failed: only a rollback can follow.
                    self.node(ANCHOR).part = Part::RolledBack;
                    Event::DecisionRefused
                }
                Row::Pending | Row::Committed => unreachable!("recorded once"),
            },
            Effect::Decide => match self.row {
                Row::Absent => {
                    self.row = Row::Committed;
                    Event::DecisionRecorded
                }
                Row::Aborted => Event::DecisionRefused,
                Row::Pending | Row::Committed => unreachable!("decided once"),
            },
            Effect::CommitAnchor => {
                assert_eq!((self.nodes[&ANCHOR].part, self.row), (Part::Working, Row::Pending));
                self.node(ANCHOR).part = Part::Committed;
                self.row = Row::Committed;
                Event::AnchorCommitted
            }
            Effect::RollbackAnchor => {
                self.roll_back_open(ANCHOR);
                Event::AnchorRolledBack
            }
            Effect::Settle => Event::Settled(self.read_or_refuse(mutation)),
            Effect::CommitPrepared(id) => match self.finish(id, Part::Committed) {
                true => Event::ParticipantCommitted(id),
                false => Event::ParticipantUnknown(id),
            },
            Effect::RollbackPrepared(id) => match self.finish(id, Part::RolledBack) {
                true => Event::ParticipantRolledBack(id),
                false => Event::ParticipantUnknown(id),
            },
            Effect::ConfirmSentinels => Event::SentinelsConfirmed,
            Effect::TakeVisibilityPlace => {
                self.has_visibility_place = true;
                Event::VisibilityPlaceTaken
            }
            Effect::WaitForCauses => Event::CausesShown,
            Effect::EnterCommitRoom => {
                self.in_commit_room = mutation != Some(Mutation::RoomIsNotEntered);
                Event::CommitRoomEntered
            }
            Effect::LeaveToRecovery { node, .. } => {
                self.handed_over.insert(node);
                if mutation != Some(Mutation::LostParticipantIsNotClosed) {
                    self.closed_to_reads.insert(node);
                }
                Event::HandedOver(node)
            }
            Effect::CancelPrepare(_)
            | Effect::YieldVoteOrder
            | Effect::LeaveVoteOrder
            | Effect::LeaveVisibilityPlace
            | Effect::LeaveCommitRoom
            | Effect::BeginApplication
            | Effect::NoteApplied(_)
            | Effect::EndApplication
            | Effect::ForgetDecision
            | Effect::Reply(_) => unreachable!("performed at once"),
        })
    }

    fn run_for_recovery(
        &mut self,
        effect: recovery::Effect,
        mutation: Option<Mutation>,
    ) -> recovery::Event {
        use recovery::{Effect, Event};
        match effect {
            Effect::ReadOrRefuseDecision => Event::DecisionFound(self.read_or_refuse(mutation)),
            Effect::CommitPrepared(id) => match self.finish(id, Part::Committed) {
                true => Event::ParticipantCommitted(id),
                false => Event::ParticipantUnknown(id),
            },
            Effect::RollbackPrepared(id) => match self.finish(id, Part::RolledBack) {
                true => Event::ParticipantRolledBack(id),
                false => Event::ParticipantUnknown(id),
            },
            Effect::ListPrepared(id) => {
                self.fence(id, mutation);
                Event::Listed { node: id, prepared: self.nodes[&id].part == Part::Prepared }
            }
            Effect::RetryLater(id) => Event::RetryDue(id),
            Effect::Announce(_) => unreachable!("performed at once"),
        }
    }

    fn read_or_refuse(&mut self, mutation: Option<Mutation>) -> Decision {
        let only_reads = mutation == Some(Mutation::RecoveryLeavesNoRecord);
        match self.row {
            Row::Committed => Decision::Committed,
            Row::Aborted => Decision::Aborted,
            Row::Absent | Row::Pending if only_reads => Decision::Aborted,
            Row::Absent => {
                self.row = Row::Aborted;
                Decision::Aborted
            }
            Row::Pending => unreachable!("blocked behind the open INSERT"),
        }
    }

    /// COMMIT PREPARED or ROLLBACK PREPARED; false stands for 42704.
    fn finish(&mut self, id: NodeId, end: Part) -> bool {
        let found = self.nodes[&id].part == Part::Prepared;
        if found {
            self.node(id).part = end;
        }
        found
    }

    /// Terminates the backends that no one waits for, as a listing must before it looks.
    fn fence(&mut self, id: NodeId, mutation: Option<Mutation>) {
        if !self.nodes[&id].connected && mutation != Some(Mutation::ListingDoesNotFence) {
            self.end_backend(id);
        }
    }

    fn end_backend(&mut self, id: NodeId) {
        self.flights.retain(|flight| !flight.on_session(id));
        self.roll_back_open(id);
    }

    fn roll_back_open(&mut self, id: NodeId) {
        if self.nodes[&id].part == Part::Working {
            self.node(id).part = Part::RolledBack;
            if id == ANCHOR && self.row == Row::Pending {
                self.row = Row::Absent;
            }
        }
    }

    fn answer_coordinator(&mut self, awaited: bool, answer: Event) {
        if awaited {
            self.flights.insert(Flight::ToCoordinator(answer));
        }
    }

    /// The session's connection is lost; what it was sent may still happen, unnoticed.
    fn disconnect(&mut self, id: NodeId) {
        self.node(id).connected = false;
        self.flights = std::mem::take(&mut self.flights)
            .into_iter()
            .map(|flight| match flight {
                Flight::Order { order, .. } if order.session() == Some(id) => {
                    Flight::Order { order, awaited: false }
                }
                other => other,
            })
            .collect();
    }

    fn give_up(&mut self, flight: Flight, mutation: Option<Mutation>) {
        self.flights.remove(&flight);
        let Flight::Order { order, .. } = flight else { unreachable!("only orders") };
        self.flights.insert(Flight::Order { order, awaited: false });
        if mutation == Some(Mutation::LossIsNotReported) {
            return;
        }
        self.flights.insert(match order {
            Order::Coordinator(Effect::Decide) => Flight::ToCoordinator(Event::DecisionLost),
            Order::Coordinator(Effect::Settle) => Flight::ToCoordinator(Event::SettleTimedOut),
            Order::Coordinator(Effect::CommitPrepared(id) | Effect::RollbackPrepared(id)) => {
                Flight::ToCoordinator(Event::ParticipantLost(id))
            }
            Order::Recovery(recovery::Effect::ReadOrRefuseDecision) => {
                Flight::ToRecovery(recovery::Event::AnchorUnreachable)
            }
            Order::Recovery(
                recovery::Effect::CommitPrepared(id)
                | recovery::Effect::RollbackPrepared(id)
                | recovery::Effect::ListPrepared(id),
            ) => Flight::ToRecovery(recovery::Event::ParticipantLost(id)),
            Order::Coordinator(_) | Order::Recovery(_) => unreachable!("{order:?} is answered"),
        });
    }

    /// No one waits for these flights any more: what was sent to a node may still happen, the rest is gone.
    fn abandon(&mut self, is_abandoned: impl Fn(&Flight) -> bool) {
        self.flights = std::mem::take(&mut self.flights)
            .into_iter()
            .filter_map(|flight| match flight {
                kept if !is_abandoned(&kept) => Some(kept),
                Flight::Order { order, .. } if order.leaves_the_gateway() => {
                    Some(Flight::Order { order, awaited: false })
                }
                Flight::Order { .. } | Flight::ToCoordinator(_) | Flight::ToRecovery(_) => None,
            })
            .collect();
    }

    /// Everything in memory is lost; what was sent may still happen; the next start sweeps.
    fn crash(&mut self) {
        self.limits.crashes -= 1;
        for id in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.disconnect(id);
        }
        self.abandon(|_| true);
        self.coordinator = None;
        self.recovery = None;
        self.recovering.clear();
        self.sweep = None;
        self.handed_over.clear();
        self.in_commit_room = false;
        self.applying = None;
        self.has_permit_to_vote = false;
        self.has_visibility_place = false;
        self.sweep_owed = true;
    }

    fn start_sweep(&mut self, uncalled: bool, mutation: Option<Mutation>) {
        let mut unlisted = self.voters();
        if mutation == Some(Mutation::SweepOverlooksTheAnchor) {
            unlisted.remove(&ANCHOR);
        }
        self.sweep = Some(Sweep { unlisted, found: BTreeSet::new(), uncalled });
    }

    fn sweep_node(&mut self, id: NodeId, mutation: Option<Mutation>) {
        self.fence(id, mutation);
        let prepared = self.nodes[&id].part == Part::Prepared;
        let sweep = self.sweep.as_mut().expect("a sweep is going on");
        sweep.unlisted.remove(&id);
        if prepared {
            sweep.found.insert(id);
        }
        if sweep.unlisted.is_empty() {
            let (found, uncalled) = (std::mem::take(&mut sweep.found), sweep.uncalled);
            self.sweep = None;
            let widens = self.form != Form::Anchored
                && uncalled
                && mutation != Some(Mutation::SweepSettlesOnlyWhatItFound);
            if found.is_empty() {
                self.open_restarted();
            } else if widens {
                // Its gateway may live, and wait for the room with everything decided: then what was
                // prepared after its listing must not lag behind what is settled now.
                self.start_recovery(self.voters());
            } else {
                self.start_recovery(found);
            }
        }
    }

    /// Restarted nodes may be read again, unless one restarted unnoticed by the sweep.
    fn open_restarted(&mut self) {
        if !self.sweep_owed {
            self.restarted.clear();
        }
    }

    fn start_recovery(&mut self, nodes: BTreeSet<NodeId>) {
        let mut effects = Vec::new();
        self.recovering = nodes.clone();
        self.closed_to_reads.extend(&nodes);
        self.recovery = Some(Recovery::begin(gid(), nodes, &mut effects));
        self.perform_recovery(effects);
    }

    // ---- between the world and the machines, where bugs are planted ----

    fn deliver(&mut self, flight: Flight, mutation: Option<Mutation>) {
        match flight {
            Flight::ToCoordinator(event) => self.deliver_to_coordinator(event, mutation),
            Flight::ToRecovery(event) => self.deliver_to_recovery(event, mutation),
            Flight::Order { .. } => unreachable!("orders run"),
        }
    }

    fn deliver_to_coordinator(&mut self, event: Event, mutation: Option<Mutation>) {
        let Some(mut coordinator) = self.coordinator.take() else { return };
        let deciding = *coordinator.phase() == Phase::Deciding;
        let finishing = matches!(coordinator.phase(), Phase::Finishing { .. });
        let (decided, refused) = match self.form {
            Form::Anchored => (Event::AnchorCommitted, Event::AnchorRefused),
            Form::Apart | Form::Elsewhere => (Event::DecisionRecorded, Event::DecisionRefused),
        };
        let mut events = vec![event];
        match (mutation, event) {
            (Some(Mutation::CommitBeforeAllVotes), Event::VotedYes(_)) => {
                events = self.voters().into_iter().map(Event::VotedYes).collect();
            }
            (Some(Mutation::LostDecisionMeansAborted), Event::AnchorLost | Event::DecisionLost)
            | (Some(Mutation::DeadlineAbortsWhileDeciding), Event::DeadlineReached)
                if deciding =>
            {
                events = vec![refused];
            }
            (Some(Mutation::RefusedDecisionMeansRecorded), Event::DecisionRefused) if deciding => {
                events = vec![decided];
            }
            (Some(Mutation::MissingSentinelIsOverlooked), Event::SentinelMissing(_)) => {
                events = vec![Event::SentinelsConfirmed];
            }
            (Some(Mutation::UnknownMeansDone), Event::ParticipantUnknown(id)) => {
                events = vec![match finishing {
                    true => Event::ParticipantCommitted(id),
                    false => Event::ParticipantRolledBack(id),
                }];
            }
            _ => (),
        }
        let mut effects = Vec::new();
        for event in events {
            coordinator.step(event, &mut effects);
        }
        if mutation == Some(Mutation::ReplyAtDecision) && deciding && event == decided {
            effects.push(Effect::Reply(Outcome::Committed));
        }
        self.coordinator = Some(coordinator);
        self.perform(effects, mutation);
    }

    fn perform(&mut self, effects: Vec<Effect>, mutation: Option<Mutation>) {
        for effect in effects {
            let order = Order::Coordinator(effect);
            match effect {
                Effect::CancelPrepare(id) => {
                    // A cancel may come too late; that it comes in time is `Refuse`.
                    if mutation == Some(Mutation::UnansweredPrepareIsForgotten) {
                        self.deliver_to_coordinator(Event::VotedNo(id), mutation);
                    }
                }
                Effect::YieldVoteOrder => {
                    assert!(self.has_permit_to_vote, "it has none");
                }
                Effect::LeaveVoteOrder => self.has_permit_to_vote = false,
                Effect::LeaveVisibilityPlace => {
                    let withdrawn = self.withdraw(Effect::TakeVisibilityPlace);
                    assert!(self.has_visibility_place || withdrawn, "it has none");
                    self.has_visibility_place = mutation == Some(Mutation::PlaceIsKept);
                }
                Effect::LeaveCommitRoom => {
                    let withdrawn = self.withdraw(Effect::EnterCommitRoom);
                    assert!(self.in_commit_room || withdrawn || mutation.is_some(), "not in it");
                    self.in_commit_room = false;
                }
                Effect::BeginApplication => {
                    assert!(self.applying.is_none(), "begun twice");
                    if mutation != Some(Mutation::ApplicationIsNotBegun) {
                        self.applying = Some(self.nodes.keys().copied().collect());
                    }
                }
                Effect::NoteApplied(id) => {
                    if let Some(missing) = &mut self.applying {
                        missing.remove(&id);
                    }
                }
                Effect::EndApplication => self.applying = None,
                Effect::ForgetDecision => self.forget_record(),
                Effect::Reply(outcome) => {
                    self.told.push(outcome);
                    let committed = outcome == Outcome::Committed;
                    if committed && mutation == Some(Mutation::RecordOfHandedOverIsForgotten) {
                        self.forget_record();
                    }
                }
                _ => {
                    // On a connection that broke, and whose loss is about to be told, nothing is sent.
                    if order.session().is_none_or(|id| self.nodes[&id].connected) {
                        self.flights.insert(Flight::Order { order, awaited: true });
                    }
                }
            }
            let decides = matches!(effect, Effect::CommitAnchor | Effect::Decide);
            if mutation == Some(Mutation::CommitPreparedBeforeDecision) && decides {
                for id in self.voters() {
                    let order = Order::Coordinator(Effect::CommitPrepared(id));
                    self.flights.insert(Flight::Order { order, awaited: true });
                }
            }
            if mutation == Some(Mutation::RoomIsAskedForWithTheDecision) && decides {
                let order = Order::Coordinator(Effect::EnterCommitRoom);
                self.flights.insert(Flight::Order { order, awaited: true });
            }
        }
    }

    /// Takes back what was asked for and not yet given.
    fn withdraw(&mut self, request: Effect) -> bool {
        let order = Order::Coordinator(request);
        self.flights.remove(&Flight::Order { order, awaited: true })
    }

    /// Deleted when what the nodes have answered is durable. A node that loses an answer all the same
    /// (a failover) has restarted; that the record outlives this is the driver's responsibility.
    fn forget_record(&mut self) {
        let asks = |(id, node): (&NodeId, &Node)| {
            node.part != Part::Committed && !self.restarted.contains(id)
        };
        self.was_forgotten_early |= self.nodes.iter().any(asks);
    }

    fn deliver_to_recovery(&mut self, event: recovery::Event, mutation: Option<Mutation>) {
        let Some(mut recovery) = self.recovery.take() else { return };
        let mut effects = Vec::new();
        recovery.step(event, &mut effects);
        if mutation == Some(Mutation::UnknownMeansSettled)
            && let recovery::Event::ParticipantUnknown(node) = event
        {
            effects.retain(|effect| *effect != recovery::Effect::ListPrepared(node));
            recovery.step(recovery::Event::Listed { node, prepared: false }, &mut effects);
        }
        self.recovery = Some(recovery);
        self.perform_recovery(effects);
    }

    fn perform_recovery(&mut self, effects: Vec<recovery::Effect>) {
        for effect in effects {
            match effect {
                recovery::Effect::Announce(_) => {
                    // Its driver ends with it, and whatever was still said to it: what it has asked for may
                    // still happen, but its answer is not the next recovery's.
                    self.recovery = None;
                    self.abandon(|flight| match flight {
                        Flight::Order { order, .. } => matches!(order, Order::Recovery(_)),
                        Flight::ToRecovery(_) => true,
                        Flight::ToCoordinator(_) => false,
                    });
                    for id in std::mem::take(&mut self.recovering) {
                        self.closed_to_reads.remove(&id);
                    }
                    self.open_restarted();
                }
                _ => {
                    let order = Order::Recovery(effect);
                    self.flights.insert(Flight::Order { order, awaited: true });
                }
            }
        }
    }
}

fn gid() -> Gid {
    let cluster = "model".parse().expect("the tag fits");
    Gid { cluster, incarnation: 1, number: 1, anchor: ANCHOR }
}
