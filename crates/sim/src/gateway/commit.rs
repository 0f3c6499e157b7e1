//! Driving [`Coordinator`]: its effects become statements and visits, their answers events.
//!
//! Owns: what a commit holds: its links, its place in the room, its permits, its entry in application.
//! Never: decides what comes next, what is waited for or when something is released.
//! Start reading at [`Gateway::commit_global`].

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tutti_txn::coordinator::{Effect, Event, Outcome};
use tutti_txn::in_application::Entry;
use tutti_txn::rooms::Room;
use tutti_txn::{Coordinator, Decision, Gid, NodeId, Terms};

use super::doors::Visiting;
use super::recovery::Finished;
use super::vote_order::{Order, VotePermit};
use super::{Gateway, RETRY_PAUSE};
use crate::bugs::Bug;
use crate::history::Told;
use crate::link::Link;
use crate::network::Lost;
use crate::node::statement::{Answer, Statement, TxnNo};
use crate::tasks::{Mailbox, Slot};

/// How long a coordinator tries to find the record.
const SETTLE_PATIENCE: u64 = 15_000;
/// How long it waits for a vote that it does not want any more.
const CANCEL_PATIENCE: u64 = 2_000;

/// The connections on which a transaction wrote.
pub type Links = BTreeMap<NodeId, Link>;

struct Driver {
    gateway: Gateway,
    gid: Gid,
    links: Rc<Links>,
    events: Mailbox<Event>,
    told: Slot<Told>,
    vote_permit: Option<VotePermit>,
    visibility_place: Option<VotePermit>,
    visiting: Option<Visiting>,
    entry: Option<Entry>,
    /// Nodes that have answered COMMIT PREPARED, with the start of the node that did.
    acknowledgements: Mailbox<(NodeId, u64)>,
}

impl Gateway {
    /// Commits a transaction that wrote on several nodes. Returns when the client may be told; what is left
    /// to do goes on after it.
    pub(super) async fn commit_global(&self, txn: TxnNo, links: Links, takes_turns: bool) -> Told {
        let nodes: BTreeSet<NodeId> = links.keys().copied().collect();
        let anchor = {
            let mut world = self.sim().world();
            let index = world.draw(0, nodes.len() as u64 - 1);
            nodes.iter().copied().nth(usize::try_from(index).unwrap_or(0)).expect("in range")
        };
        let gid = self.gid(txn, anchor);
        self.0.active.borrow_mut().insert(gid.clone(), Vec::new());
        let vote_permit = match takes_turns {
            true => self.take_vote_permit(nodes.clone()).await,
            false => None,
        };
        let terms = Terms { form: self.0.form, serializable: takes_turns, watched: false };
        let told = Slot::default();
        let driver = Driver {
            gateway: self.clone(),
            gid,
            links: Rc::new(links),
            events: Mailbox::default(),
            told: told.clone(),
            vote_permit,
            visibility_place: None,
            visiting: None,
            entry: None,
            acknowledgements: Mailbox::default(),
        };
        self.spawn(async move { driver.run(terms).await });
        told.take().await
    }

    /// What the session of a commit may have seen on some nodes is shown by these before its own
    /// effect is. The causes are those of the moment of the call.
    pub(super) fn wait_for_causes(&self, nodes: impl IntoIterator<Item = NodeId>) -> Slot<()> {
        let done = Slot::default();
        if self.sim().has(Bug::CommitOvertakesItsCause) {
            done.set(());
            return done;
        }
        let waits: Vec<_> = nodes.into_iter().map(|node| (node, self.begin_wait(node))).collect();
        let (gateway, ringing) = (self.clone(), done.clone());
        self.spawn(async move {
            for (node, wait) in waits {
                wait.take().await;
                // What is left to recovery counts as applied, but what runs on the node goes on.
                if gateway.with_node(node, |state| !state.closed_by.is_empty()) {
                    let _ = gateway.wait_until_open(node).await;
                }
            }
            ringing.set(());
        });
        done
    }

    /// Deletes the record once no failure can make anyone ask for it: every node that committed its
    /// part has flushed that, and its standby has it.
    async fn forget_decision(self, gid: Gid, acknowledged: BTreeMap<NodeId, u64>) {
        if !self.sim().has(Bug::DecisionIsForgottenEarly) {
            for (node, epoch) in acknowledged {
                let Ok(link) = self.any_link(node).await else { return };
                // Another start of the node may have lost what this flush is to make durable.
                if link.epoch != epoch || link.ask(Statement::Harden).await != Ok(Answer::Done) {
                    return;
                }
                self.give_back(link);
            }
        }
        self.finish(gid.anchor, Statement::ForgetDecision(gid)).await;
    }
}

impl Driver {
    fn sim(&self) -> &crate::world::Sim {
        self.gateway.sim()
    }

    async fn run(mut self, terms: Terms) {
        let anchor = self.gid.anchor;
        let participants: BTreeSet<_> =
            self.links.keys().copied().filter(|node| *node != anchor).collect();
        self.deadline();
        let mut effects = Vec::new();
        let mut machine = Coordinator::begin(self.gid.clone(), terms, participants, &mut effects);
        loop {
            for effect in std::mem::take(&mut effects) {
                self.perform(effect);
            }
            if machine.is_finished() {
                break;
            }
            let event = self.events.next().await;
            machine.step(event, &mut effects);
        }
        let (gateway, gid) = (self.gateway.clone(), self.gid.clone());
        let waiting = gateway.0.active.borrow_mut().remove(&gid);
        for slot in waiting.into_iter().flatten() {
            slot.set(());
        }
    }

    fn deadline(&self) {
        let limit = self.sim().world().plan.vote_deadline;
        let (sim, events) = (self.sim().clone(), self.events.clone());
        self.gateway.spawn(async move {
            sim.sleep(limit).await;
            events.put(Event::DeadlineReached);
        });
    }

    /// Begins an effect; its answer arrives as an event.
    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Reply(outcome) => {
                self.told.set(match outcome {
                    Outcome::Committed => Told::Committed,
                    Outcome::Aborted { .. } => Told::Aborted,
                    Outcome::Unknown => Told::Unknown,
                });
            }
            Effect::YieldVoteOrder => {
                self.vote_permit.take_if(|permit| permit.is_awaited());
            }
            Effect::LeaveVoteOrder => self.vote_permit = None,
            Effect::ConfirmSentinels => unreachable!("`serial` has the world with sentinels"),
            Effect::TakeVisibilityPlace => self.take_visibility_place(),
            Effect::LeaveVisibilityPlace => self.visibility_place = None,
            Effect::WaitForCauses => self.wait_for_causes(),
            Effect::EnterCommitRoom => self.enter_room(),
            Effect::LeaveCommitRoom => self.visiting = None,
            Effect::BeginApplication => {
                self.entry = Some(self.gateway.begin_applying(self.links.keys().copied()));
            }
            Effect::NoteApplied(node) => self.note_applied(node),
            Effect::EndApplication => {
                if let Some(entry) = self.entry.take() {
                    self.gateway.end_applying(entry);
                }
            }
            Effect::ForgetDecision => {
                let acknowledged =
                    std::iter::from_fn(|| self.acknowledgements.try_next()).collect();
                let (forgetting, gid) = (self.gateway.clone(), self.gid.clone());
                self.gateway.spawn(forgetting.forget_decision(gid, acknowledged));
            }
            Effect::LeaveToRecovery { node, decision } => self.hand_over(node, decision),
            Effect::Prepare(node) => self.ask(node, Statement::Prepare(self.gid.clone())),
            Effect::CancelPrepare(node) => {
                let (gateway, links) = (self.gateway.clone(), self.links.clone());
                self.gateway.spawn(async move {
                    gateway.sim().sleep(CANCEL_PATIENCE).await;
                    gateway.give_up(&links[&node]);
                });
            }
            Effect::RecordDecision => {
                self.ask(self.gid.anchor, Statement::RecordDecision(self.gid.clone()));
            }
            Effect::CommitAnchor => {
                self.commit_prepared_early();
                self.ask(self.gid.anchor, Statement::Commit);
            }
            Effect::RollbackAnchor => self.ask(self.gid.anchor, Statement::Rollback),
            Effect::Decide => {
                self.commit_prepared_early();
                self.decide();
            }
            Effect::Settle => self.settle(),
            Effect::CommitPrepared(node) => {
                self.finish(node, Statement::CommitPrepared(self.gid.clone()));
            }
            Effect::RollbackPrepared(node) => {
                self.finish(node, Statement::RollbackPrepared(self.gid.clone()));
            }
        }
    }

    /// A statement on the session's own connection.
    fn ask(&self, node: NodeId, statement: Statement) {
        let (gateway, links, events) =
            (self.gateway.clone(), self.links.clone(), self.events.clone());
        let lost_means_refused = self.sim().has(Bug::LostDecisionMeansAborted);
        let sent = links[&node].send(statement.clone());
        self.gateway.spawn(async move {
            let answer = sent.take().await;
            let event = match (&statement, &answer) {
                (Statement::Prepare(_), Ok(Answer::Done)) => Event::VotedYes(node),
                (Statement::Prepare(_), Ok(_)) => Event::VotedNo(node),
                (Statement::Prepare(_), Err(Lost)) => {
                    gateway.give_up(&links[&node]);
                    Event::VoteLost(node)
                }
                (Statement::RecordDecision(_), Ok(Answer::Done)) => Event::DecisionRecorded,
                (Statement::RecordDecision(_), Ok(_)) => Event::DecisionRefused,
                (Statement::Commit, Ok(Answer::Done)) => Event::AnchorCommitted,
                (Statement::Commit, Ok(_)) => Event::AnchorRefused,
                (Statement::Commit, Err(Lost)) if lost_means_refused => Event::AnchorRefused,
                (Statement::Rollback, Ok(_)) => Event::AnchorRolledBack,
                (_, Ok(_) | Err(Lost)) => Event::AnchorLost,
            };
            gateway.tell_machine(&events, event);
            drop(links);
        });
    }

    /// Form apart: the record is a transaction of its own.
    fn decide(&self) {
        let (gateway, gid, events) = (self.gateway.clone(), self.gid.clone(), self.events.clone());
        let lost_means_refused = self.sim().has(Bug::LostDecisionMeansAborted);
        self.gateway.spawn(async move {
            let answer = match gateway.any_link(gid.anchor).await {
                Ok(link) => {
                    let answer = link.ask(Statement::Decide(gid)).await;
                    gateway.give_back(link);
                    answer
                }
                Err(Lost) => Err(Lost),
            };
            let event = match answer {
                Ok(Answer::Inserted(true)) => Event::DecisionRecorded,
                Ok(Answer::Inserted(false) | Answer::Error(_)) => Event::DecisionRefused,
                Ok(_) | Err(Lost) if lost_means_refused => Event::DecisionRefused,
                Ok(_) | Err(Lost) => Event::DecisionLost,
            };
            gateway.tell_machine(&events, event);
        });
    }

    fn settle(&self) {
        let (gateway, gid, events) = (self.gateway.clone(), self.gid.clone(), self.events.clone());
        self.gateway.spawn(async move {
            let give_up = gateway.sim().now() + SETTLE_PATIENCE;
            let event = loop {
                if let Ok(decision) = gateway.read_or_refuse(&gid).await {
                    break Event::Settled(decision);
                }
                if give_up < gateway.sim().now() {
                    break Event::SettleTimedOut;
                }
                gateway.sim().sleep(RETRY_PAUSE).await;
            };
            gateway.tell_machine(&events, event);
        });
    }

    fn finish(&self, node: NodeId, statement: Statement) {
        let (gateway, events) = (self.gateway.clone(), self.events.clone());
        let acknowledgements = self.acknowledgements.clone();
        self.gateway.spawn(async move {
            let commits = matches!(statement, Statement::CommitPrepared(_));
            let event = match gateway.finish(node, statement).await {
                Finished::Done(epoch) if commits => {
                    acknowledgements.put((node, epoch));
                    Event::ParticipantCommitted(node)
                }
                Finished::Done(_) => Event::ParticipantRolledBack(node),
                Finished::Unknown => Event::ParticipantUnknown(node),
                Finished::Lost => Event::ParticipantLost(node),
            };
            gateway.tell_machine(&events, event);
        });
    }

    fn note_applied(&mut self, node: NodeId) {
        if let Some(entry) = self.entry {
            self.gateway.is_applied(entry, node);
        }
        // Of the first node but one: when the anchor decides, it is the only one.
        if node != self.gid.anchor && self.sim().has(Bug::CommitterLeavesTheRoomEarly) {
            self.visiting = None;
        }
    }

    fn take_visibility_place(&mut self) {
        let (gateway, nodes) = (self.gateway.clone(), self.links.keys().copied().collect());
        let (permit, granted) = gateway.ask_for_turn(Order::OfVisibility, nodes);
        self.visibility_place = Some(permit);
        self.tell_when(granted, Event::VisibilityPlaceTaken);
    }

    fn wait_for_causes(&self) {
        let shown = self.gateway.wait_for_causes(self.links.keys().copied());
        self.tell_when(shown, Event::CausesShown);
    }

    fn tell_when(&self, done: Slot<()>, event: Event) {
        let (gateway, events) = (self.gateway.clone(), self.events.clone());
        self.gateway.spawn(async move {
            done.take().await;
            gateway.tell_machine(&events, event);
        });
    }

    fn enter_room(&mut self) {
        if self.sim().has(Bug::CommitterSkipsTheRoom) {
            self.events.put(Event::CommitRoomEntered);
            return;
        }
        let (visiting, granted) = self.gateway.enter(Room::Commit);
        self.visiting = Some(visiting);
        self.tell_when(granted, Event::CommitRoomEntered);
    }

    fn hand_over(&self, node: NodeId, decision: Option<Decision>) {
        if decision != Some(Decision::Aborted) && !self.sim().has(Bug::HandedOverNodeIsRead) {
            self.gateway.with_node(node, |state| state.closed_by.insert(self.gid.clone()));
        }
        let (gateway, gid) = (self.gateway.clone(), self.gid.clone());
        self.sim().note(|| format!("{gid} on {node} is left to recovery"));
        self.gateway.spawn(async move { gateway.recover(gid, [node].into()).await });
        self.gateway.tell_machine(&self.events, Event::HandedOver(node));
    }

    /// Only with [`Bug::CommitPreparedBeforeTheDecision`].
    fn commit_prepared_early(&self) {
        if self.sim().has(Bug::CommitPreparedBeforeTheDecision) {
            for node in self.links.keys().filter(|node| **node != self.gid.anchor) {
                let (gateway, gid, node) = (self.gateway.clone(), self.gid.clone(), *node);
                self.gateway.spawn(async move {
                    gateway.finish(node, Statement::CommitPrepared(gid)).await;
                });
            }
        }
    }
}

/// What a client is told of a plain COMMIT on one node.
pub fn told_of_one(answer: Result<Answer, Lost>) -> Told {
    match answer {
        Ok(Answer::Done | Answer::Rows(_)) => Told::Committed,
        Err(Lost) => Told::Unknown,
        Ok(_) => Told::Aborted,
    }
}
