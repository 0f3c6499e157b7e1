//! Driving [`Recovery`], and the sweep of a node that has restarted.
//!
//! Owns: that a node is opened to reads only when nothing in doubt is left there.
//! Never: decides; the record does.
//! Start reading at [`Gateway::begin_sweep`].

use std::collections::{BTreeMap, BTreeSet};

use tutti_txn::recovery::{self, Effect, Event};
use tutti_txn::{Decision, Gid, NodeId, Recovery};

use super::tenure::Unfenced;
use super::{Gateway, RETRY_PAUSE};
use crate::bugs::Bug;
use crate::link::Link;
use crate::network::Lost;
use crate::node::statement::{Answer, SqlState, Statement, TxnNo};
use crate::tasks::Mailbox;

impl Gateway {
    /// Settles everything that is prepared on a node, then opens it.
    pub(super) fn begin_sweep(&self, node: NodeId) {
        if self.with_node(node, |state| std::mem::replace(&mut state.is_being_swept, true)) {
            return;
        }
        let sweeping = self.clone();
        self.spawn(async move {
            while sweeping.sweep(node).await.is_err() {
                sweeping.sim().sleep(RETRY_PAUSE).await;
            }
        });
    }

    /// Errors: the node does not answer, or serves a later gateway. Either way it stays closed.
    async fn sweep(&self, node: NodeId) -> Result<(), Unfenced> {
        let link = self.connect(node).await?;
        if self.sim().has(Bug::RestartedNodeIsRead) && self.is_serving() {
            self.with_node(node, |state| state.settled_epoch = Some(link.epoch));
        }
        loop {
            let seen_early = match self.sim().has(Bug::LooksBeforeTheFence) {
                true => Some(self.list_prepared(&link).await?),
                false => None,
            };
            if !self.sim().has(Bug::AwayNodeIsNotFenced) {
                self.fence(&link).await?;
            }
            let listed = match seen_early {
                Some(listed) => listed,
                None => self.list_prepared(&link).await?,
            };
            // Also what its own coordinators have left.
            let in_doubt = self.in_doubt(self.0.incarnation.get() + 1, &[(node, listed)]);
            if in_doubt.is_empty() {
                break;
            }
            for (gid, nodes) in in_doubt {
                if self.is_active(&gid) {
                    // Its coordinator may have had the answer of the node's earlier life; what it
                    // leaves here is seen by the next look.
                    self.wait_until_inactive(&gid).await;
                } else {
                    self.recover(gid, nodes).await;
                }
            }
        }
        self.with_node(node, |state| {
            state.settled_epoch = Some(link.epoch);
            state.is_being_swept = false;
        });
        self.sim().note(|| format!("{node} is settled"));
        Ok(())
    }

    /// Settles what earlier gateways have left, on nodes that are fenced, until nothing is found.
    ///
    /// Errors: a node does not answer.
    pub(super) async fn settle_in_doubt(&self, nodes: &[NodeId]) -> Result<(), Lost> {
        loop {
            let mut listed = Vec::new();
            for node in nodes {
                let link = self.connect(*node).await?;
                listed.push((*node, self.list_prepared(&link).await?));
            }
            let in_doubt = self.in_doubt(self.0.incarnation.get(), &listed);
            if in_doubt.is_empty() {
                return Ok(());
            }
            for (gid, nodes) in in_doubt {
                self.recover(gid, nodes).await;
            }
        }
    }

    /// Of what nodes have listed, the cluster's transactions of gateways before this one.
    fn in_doubt(
        &self,
        before: u64,
        listed: &[(NodeId, Vec<Gid>)],
    ) -> BTreeMap<Gid, BTreeSet<NodeId>> {
        let of_node = |(node, gids): &(NodeId, Vec<Gid>)| {
            let node = *node;
            gids.iter().map(move |gid| (node, gid.to_string())).collect::<Vec<_>>()
        };
        let texts: Vec<_> = listed.iter().flat_map(of_node).collect();
        let listing = texts.iter().map(|(node, text)| (*node, text.as_str()));
        recovery::in_doubt(&self.0.cluster, before, listing)
    }

    /// Whether the transaction moves a table. (The product notes whatever recovery commits.)
    fn is_move(&self, gid: &Gid) -> bool {
        let txn = TxnNo::try_from(gid.number);
        txn.is_ok_and(|txn| self.sim().world().moves.contains_key(&txn))
    }

    async fn list_prepared(&self, link: &Link) -> Result<Vec<Gid>, Lost> {
        match link.ask(Statement::ListPrepared).await? {
            Answer::Prepared(listed) => Ok(listed),
            _ => Err(Lost),
        }
    }

    /// Settles one transaction on these nodes.
    pub(super) async fn recover(&self, gid: Gid, nodes: BTreeSet<NodeId>) {
        let events = Mailbox::default();
        let mut effects = Vec::new();
        let mut machine = Recovery::begin(gid.clone(), nodes.clone(), &mut effects);
        loop {
            for effect in effects.drain(..) {
                if let Effect::Announce(decision) = effect {
                    self.sim().note(|| format!("{gid} is settled: {decision}"));
                    if self.is_move(&gid) && decision == Decision::Committed {
                        self.note_change();
                    }
                    for node in &nodes {
                        self.with_node(*node, |state| state.closed_by.remove(&gid));
                    }
                    continue;
                }
                let (working, gid, events) = (self.clone(), gid.clone(), events.clone());
                self.spawn(async move {
                    let event = working.perform_recovery(&gid, effect).await;
                    working.tell_machine(&events, event);
                });
            }
            if machine.is_finished() {
                return;
            }
            machine.step(events.next().await, &mut effects);
        }
    }

    async fn perform_recovery(&self, gid: &Gid, effect: Effect) -> Event {
        match effect {
            Effect::ReadOrRefuseDecision => match self.read_or_refuse(gid).await {
                Ok(decision) => Event::DecisionFound(decision),
                Err(Lost) => Event::AnchorUnreachable,
            },
            Effect::CommitPrepared(node) => {
                match self.finish(node, Statement::CommitPrepared(gid.clone())).await {
                    Finished::Done(_) => Event::ParticipantCommitted(node),
                    Finished::Unknown => Event::ParticipantUnknown(node),
                    Finished::Lost => Event::ParticipantLost(node),
                }
            }
            Effect::RollbackPrepared(node) => {
                match self.finish(node, Statement::RollbackPrepared(gid.clone())).await {
                    Finished::Done(_) => Event::ParticipantRolledBack(node),
                    Finished::Unknown => Event::ParticipantUnknown(node),
                    Finished::Lost => Event::ParticipantLost(node),
                }
            }
            Effect::ListPrepared(node) => match self.inspect(gid, node).await {
                Ok(prepared) => Event::Listed { node, prepared },
                Err(Lost) => Event::ParticipantLost(node),
            },
            Effect::RetryLater(node) => {
                self.sim().sleep(RETRY_PAUSE).await;
                Event::RetryDue(node)
            }
            Effect::Announce(decision) => Event::DecisionFound(decision),
        }
    }

    /// What the record says; without one, makes sure that the transaction is aborted.
    pub(super) async fn read_or_refuse(&self, gid: &Gid) -> Result<Decision, Lost> {
        let link = self.connect(gid.anchor).await?;
        let only_reads = self.sim().has(Bug::RecoveryDoesNotRefuse);
        let statement = if only_reads {
            Statement::ReadDecision(gid.clone())
        } else {
            Statement::ReadOrRefuse(gid.clone())
        };
        let answer = link.ask(statement).await?;
        self.give_back(link);
        match answer {
            Answer::Decision(Some(decision)) => Ok(decision),
            Answer::Decision(None) if only_reads => Ok(Decision::Aborted),
            _ => Err(Lost),
        }
    }

    async fn inspect(&self, gid: &Gid, node: NodeId) -> Result<bool, Lost> {
        let link = self.connect(node).await?;
        if !self.sim().has(Bug::LookDoesNotFence) {
            let given_up = self.with_node(node, |state| state.given_up.clone());
            // Not all of them may have ended; then what is seen next proves nothing.
            if link.ask(Statement::EndBackends(given_up)).await? != Answer::Done {
                return Err(Lost);
            }
        }
        let listed = self.list_prepared(&link).await?;
        self.give_back(link);
        Ok(listed.contains(gid))
    }

    /// Ends a part, over a connection that others use as well.
    pub(super) async fn finish(&self, node: NodeId, statement: Statement) -> Finished {
        let Ok(link) = self.any_link(node).await else { return Finished::Lost };
        let epoch = link.epoch;
        let Ok(answer) = link.ask(statement).await else { return Finished::Lost };
        self.give_back(link);
        let unknown_means_done = self.sim().has(Bug::UnknownPreparedMeansDone);
        match answer {
            Answer::Done => Finished::Done(epoch),
            Answer::Error(SqlState::UndefinedObject) if unknown_means_done => Finished::Done(epoch),
            Answer::Error(SqlState::UndefinedObject) => Finished::Unknown,
            _ => Finished::Lost,
        }
    }

    /// Passes an event on, sometimes twice.
    pub(super) fn tell_machine<T: Clone + 'static>(&self, events: &Mailbox<T>, event: T) {
        let repeats = {
            let mut world = self.sim().world();
            let percent = world.plan.repeats_percent;
            world.chance(percent)
        };
        if repeats {
            let (sim, events, event) = (self.sim().clone(), events.clone(), event.clone());
            let after = sim.world().draw(0, 3_000);
            self.spawn(async move {
                sim.sleep(after).await;
                events.put(event);
            });
        }
        events.put(event);
    }
}

/// How the attempt to end a part went.
pub enum Finished {
    /// Done, by the start of the node with this number.
    Done(u64),
    /// 42704.
    Unknown,
    /// No answer, or an error that decides nothing.
    Lost,
}
