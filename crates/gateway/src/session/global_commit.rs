//! Committing a transaction that wrote on several nodes: drives one coordinator.
//!
//! Owns: turning the coordinator's effects into statements on links and finishers, and their answers
//! into events; the commit room, the turn and the sentinels of this commit.
//! Never: decides what comes next (`tutti_txn::coordinator` does).
//! Start reading at [`Session::commit_global`], then [`Driver::run`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tutti_cluster::authority::in_application::Entered;
use tutti_cluster::authority::rooms::Inside;
use tutti_cluster::authority::sentinels::Coverage;
use tutti_cluster::authority::vote_order::VotePermit;
use tutti_link::Link;
use tutti_link::availability::OPEN_PATIENCE;
use tutti_link::connection::{NodeError, Rows, UNKNOWN_OUTCOME};
use tutti_link::seals::Seals;
use tutti_sql::catalog::NodeId;
use tutti_txn::Coordinator;
use tutti_txn::coordinator::{AbortCause, Effect, Event, Form, Outcome, Phase, Purpose};
use tutti_txn::gid::{self, Gid};
use tutti_txn::rooms::Room;
use tutti_wire::error_fields::ErrorFields;

use super::Session;
use super::code_at_commit::{LateCode, bounded};
use crate::client::failure::Failure;
use crate::registry::Registry;
use crate::transaction::ends::{Answered, lost};
use crate::transaction::planning::canceled;
use crate::transaction::{Level, TransactionContext};

/// What a node may take beyond the deadline for votes until its connection is given up.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);
/// How long a node may take to apply what is decided, while whoever takes a snapshot waits; then it is
/// recovery's, and the node closed to reads.
const FINISH_PATIENCE: Duration = Duration::from_secs(3);
/// How long nodes may take to vote on a change of the schema, while no statement begins.
const VOTE_PATIENCE_OF_CHANGE: Duration = Duration::from_secs(9);
/// How long we try to find out whether a decision was recorded before we say that we do not know.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

impl Session {
    /// Commits a transaction that wrote on all of `writers`. `late`: code that may run meanwhile.
    ///
    /// Errors: it is aborted and nothing of it remains; or SQLSTATE 08007: nobody knows yet.
    pub(super) async fn commit_global(
        &mut self,
        writers: &[NodeId],
        late: Option<Arc<LateCode>>,
    ) -> Result<(), Failure> {
        let serializable = self.tx.level() == Level::Serializable;
        let (anchor, form) = self.tx.form_of_commit(writers);
        let mut turn = None;
        if serializable {
            self.commit_readers_first(&writers.iter().copied().collect()).await?;
            let nodes: BTreeSet<_> = writers.iter().map(|node| gid::NodeId(node.0)).collect();
            let turns = self.tx.registry.cluster.authority.vote_order.clone();
            turn = loop {
                let turn = self.tx.while_wanted(turns.take(nodes.clone())).await?;
                // Others of the same role may have kept turns for long since this one came to stand in line.
                if late.is_none() || !self.tx.is_paused() {
                    break Some(turn);
                }
                drop(turn);
                self.tx.wait_for_pause().await?;
            };
        }
        let registry = self.tx.registry.clone();
        let gid = registry.cluster.next_gid(anchor);
        let _alive = registry.cluster.coordinators.begin(gid.clone());
        let driver = Driver {
            gid,
            registry: self.tx.registry.clone(),
            process_id: self.tx.process_id,
            writers: writers.iter().map(|node| gid::NodeId(node.0)).collect(),
            serializable,
            tickets: std::mem::take(&mut self.tx.transaction.tickets),
            is_uncovered: false,
            late,
            refusals: BTreeMap::new(),
            queued: BTreeMap::new(),
            running: JoinSet::new(),
            cancelling: JoinSet::new(),
            inside: None,
            applying: None,
            turn,
            place: None,
            vote_patience: match self.tx.transaction.catalog_changed {
                true => VOTE_PATIENCE_OF_CHANGE.min(registry.cluster.config.switches.vote_deadline),
                false => registry.cluster.config.switches.vote_deadline,
            },
            is_cancelled: false,
        };
        let outcome = driver.run(&mut self.tx, form).await;
        if !serializable {
            // What was only read is over; no answer of it can change the outcome.
            let _ = self.commit_readers(&writers.iter().copied().collect()).await;
        }
        outcome
    }
}

/// Something that was awaited has happened.
enum Happened {
    /// A statement on a session's link was answered; the link comes back if it still works.
    OnLink { node: NodeId, effect: Effect, link: Option<Box<Link>>, answered: Answered },
    /// A statement of a finisher was answered.
    Finished { node: NodeId, effect: Effect, answered: Answered },
    /// The record was asked for.
    Decided(Result<bool, NodeError>),
    /// The commit room is ours, and our place in the order of application, if there must be one.
    Entered(Inside, Option<VotePermit>),
    /// Sentinels have stood on all nodes.
    Covered { decides: Effect },
    /// On this node there was none for a moment.
    Uncovered { node: NodeId, decides: Effect },
    /// An event that needs no more thought.
    Event(Event),
}

/// Drives one [`Coordinator`].
struct Driver {
    gid: Gid,
    registry: Arc<Registry>,
    process_id: i32,
    writers: BTreeSet<gid::NodeId>,
    /// Whether others of its kind must become visible before or after it everywhere.
    serializable: bool,
    /// SERIALIZABLE: which sentinels must have stood until all nodes have voted.
    tickets: BTreeMap<NodeId, Coverage>,
    /// SERIALIZABLE: they have not; the anchor's transaction is rolled back where it would commit.
    is_uncovered: bool,
    /// Code that may run on nodes when they vote or commit, for which others must not wait long.
    late: Option<Arc<LateCode>>,
    /// What nodes refused with, to be told if it is the cause.
    refusals: BTreeMap<NodeId, ErrorFields>,
    /// Statements for links on which another one is still running.
    queued: BTreeMap<NodeId, VecDeque<Effect>>,
    running: JoinSet<Happened>,
    /// Cancel requests on their way: one that comes late must not meet the session's next statement.
    cancelling: JoinSet<()>,
    inside: Option<Inside>,
    applying: Option<Entered>,
    /// Its turn to vote.
    turn: Option<VotePermit>,
    /// Its turn to become visible.
    place: Option<VotePermit>,
    vote_patience: Duration,
    /// The client has given up, in time.
    is_cancelled: bool,
}

/// Whether nothing is decided, nor may be by what is under way.
fn may_be_given_up(coordinator: &Coordinator) -> bool {
    matches!(
        coordinator.phase(),
        Phase::Voting { .. } | Phase::Entering { purpose: Purpose::Decide }
    )
}

impl Driver {
    async fn run(mut self, tx: &mut TransactionContext, form: Form) -> Result<(), Failure> {
        let anchor = self.gid.anchor;
        let participants = self.writers.iter().copied().filter(|node| *node != anchor).collect();
        let deadline = Instant::now() + self.vote_patience;
        let mut deadline_is_due = true;
        let activity = tx.activity.clone();
        let cancelled = activity.cancelled();
        tokio::pin!(cancelled);
        let mut effects = Vec::new();
        let mut coordinator =
            Coordinator::begin(self.gid.clone(), form, participants, &mut effects);
        let mut outcome = Outcome::Unknown;
        let mut all_flushed = true;
        loop {
            for effect in std::mem::take(&mut effects) {
                match effect {
                    Effect::Reply(told) => outcome = told,
                    Effect::LeaveToRecovery { .. } => {
                        all_flushed = false;
                        self.perform(tx, effect);
                    }
                    effect => self.perform(tx, effect),
                }
            }
            if coordinator.is_finished() {
                break;
            }
            let happened = tokio::select! {
                happened = self.running.join_next() => happened,
                () = sleep_until(deadline), if deadline_is_due => {
                    deadline_is_due = false;
                    coordinator.step(Event::DeadlineReached, &mut effects);
                    continue;
                }
                () = &mut cancelled, if !self.is_cancelled && may_be_given_up(&coordinator) => {
                    self.is_cancelled = true;
                    coordinator.step(Event::DeadlineReached, &mut effects);
                    continue;
                }
            };
            let happened = happened.expect("a coordinator that is not finished awaits something");
            let happened = happened.expect("what is awaited does not panic");
            if let Some(event) = self.event(tx, happened) {
                coordinator.step(event, &mut effects);
            }
        }
        while self.cancelling.join_next().await.is_some() {}
        self.conclude(outcome, all_flushed)
    }

    fn perform(&mut self, tx: &mut TransactionContext, effect: Effect) {
        let anchor = NodeId(self.gid.anchor.0);
        match effect {
            Effect::Prepare(node) => self.on_link(tx, NodeId(node.0), effect),
            Effect::RecordDecision | Effect::RollbackAnchor => {
                self.on_link(tx, anchor, effect);
            }
            Effect::CommitAnchor if !self.tickets.is_empty() => self.ask_sentinels(effect),
            Effect::CommitAnchor => {
                self.begin_to_apply();
                self.on_link(tx, anchor, effect);
            }
            Effect::CommitPrepared(node) => {
                self.begin_to_apply();
                self.on_finisher(NodeId(node.0), effect);
            }
            Effect::RollbackPrepared(node) => self.on_finisher(NodeId(node.0), effect),
            Effect::Decide if !self.tickets.is_empty() => {
                self.end_turn_if_awaited();
                self.ask_sentinels(effect);
            }
            Effect::Decide => {
                self.end_turn_if_awaited();
                self.decide();
            }
            Effect::EnterCommitRoom => {
                let (registry, writers) = (self.registry.clone(), self.writers.clone());
                let serializable = self.serializable;
                let decided = Instant::now();
                self.running.spawn(async move {
                    let place = match serializable {
                        // Whoever shares nodes with it becomes visible on all of them before or after it.
                        true => Some(
                            registry.cluster.authority.visibility_order.take(writers.clone()).await,
                        ),
                        false => None,
                    };
                    // Whoever sees this commit on one of its nodes must see there what its client
                    // may have seen elsewhere before (docs/protocol/rooms.md, causes).
                    for node in writers {
                        let node = NodeId(node.0);
                        registry.cluster.authority.applying.wait(Some(node)).await;
                        // What is left to recovery there counts as applied, for nobody reads the
                        // node; but whatever is at work on it goes on.
                        registry
                            .cluster
                            .availability
                            .wait_until_settled(node, decided, OPEN_PATIENCE)
                            .await;
                    }
                    Happened::Entered(
                        registry.cluster.authority.rooms.enter(Room::Commit).await,
                        place,
                    )
                });
            }
            Effect::LeaveCommitRoom => {
                self.applying = None;
                self.inside = None;
                self.place = None;
                self.turn = None;
            }
            Effect::CancelPrepare(node) => {
                let (registry, process_id) = (self.registry.clone(), self.process_id);
                self.cancelling.spawn(async move {
                    registry.cancel_backend(process_id, NodeId(node.0)).await;
                });
            }
            Effect::Settle => {
                let (registry, gid) = (self.registry.clone(), self.gid.clone());
                self.running.spawn(async move { Happened::Event(settle(&registry, &gid).await) });
            }
            Effect::LeaveToRecovery { node, decision } => {
                if decision.is_none() {
                    // Recovery may find it committed, and apply it on one node before another.
                    self.begin_to_apply();
                }
                self.registry.cluster.leave_to_recovery(&self.gid, NodeId(node.0), decision);
                if let Some(applying) = &self.applying {
                    applying.applied(node);
                }
                self.running.spawn(async move { Happened::Event(Event::HandedOver(node)) });
            }
            Effect::Reply(_) => unreachable!("the caller takes replies"),
        }
    }

    /// All have voted. Who votes while this one is prepared is refused if it has overwritten what this one has
    /// read; once it is visible, that is allowed. So the turn is kept as long as that delays nobody.
    fn end_turn_if_awaited(&mut self) {
        if self
            .turn
            .as_ref()
            .is_some_and(|turn| self.registry.cluster.authority.vote_order.is_awaited(turn))
        {
            self.turn = None;
        }
    }

    fn decide(&mut self) {
        let (registry, gid) = (self.registry.clone(), self.gid.clone());
        let anchor = NodeId(gid.anchor.0);
        self.running.spawn(async move {
            Happened::Decided(registry.cluster.finishers.decide(anchor, &gid).await)
        });
    }

    /// All have voted that can be asked before the decision. It is made only if sentinels have stood on
    /// all nodes until now.
    fn ask_sentinels(&mut self, decides: Effect) {
        let registry = self.registry.clone();
        let tickets = std::mem::take(&mut self.tickets);
        self.running.spawn(async move {
            let mut asked = JoinSet::new();
            for (node, coverage) in tickets {
                let sentinels = registry.cluster.authority.sentinels.clone();
                asked.spawn(async move { (node, sentinels.confirm(node, &coverage).await) });
            }
            let mut uncovered = None;
            while let Some(answered) = asked.join_next().await {
                let (node, is_covered) = answered.expect("a question does not panic");
                if !is_covered {
                    uncovered = Some(uncovered.map_or(node, |other: NodeId| other.min(node)));
                }
            }
            match uncovered {
                Some(node) => Happened::Uncovered { node, decides },
                None => Happened::Covered { decides },
            }
        });
    }

    /// From now on some nodes may show the transaction and others not yet.
    fn begin_to_apply(&mut self) {
        if self.applying.is_none() {
            self.applying =
                Some(self.registry.cluster.authority.applying.begin(self.writers.iter().copied()));
        }
    }

    /// Runs a statement on the session's link, after the one that may be running there.
    fn on_link(&mut self, tx: &mut TransactionContext, node: NodeId, effect: Effect) {
        if let Some(queue) = self.queued.get_mut(&node) {
            queue.push_back(effect);
            return;
        }
        let Some(mut link) = tx.links.remove(&node) else {
            let answered = Err(lost(node));
            self.running
                .spawn(async move { Happened::OnLink { node, effect, link: None, answered } });
            return;
        };
        self.queued.insert(node, VecDeque::new());
        let sql = match effect {
            Effect::RecordDecision => None,
            Effect::CommitAnchor if self.is_uncovered => Some(self.sql(Effect::RollbackAnchor)),
            effect => Some(self.sql(effect)),
        };
        let patience = self.vote_patience + ANSWER_PATIENCE;
        let (seals, gid) = (self.registry.cluster.seals.clone(), self.gid.to_string());
        let runs_code = matches!(effect, Effect::Prepare(_) | Effect::CommitAnchor);
        let late = self.late.clone().filter(|_| runs_code);
        self.running.spawn(async move {
            let running = async {
                match &sql {
                    Some(sql) => link.query(sql).await,
                    None => record(&mut link, &gid, &seals).await,
                }
            };
            let running = bounded(late.as_deref(), node, running);
            let answered = tokio::time::timeout(patience, running).await;
            let (link, answered) = match answered {
                Ok(answered) if !link.connection().is_broken() => (Some(link), answered),
                Ok(answered) => (None, answered),
                // Whatever it does now, nobody listens any more.
                Err(_) => (None, Err(lost(node))),
            };
            Happened::OnLink { node, effect, link, answered }
        });
    }

    fn on_finisher(&mut self, node: NodeId, effect: Effect) {
        let (registry, sql) = (self.registry.clone(), self.sql(effect));
        self.running.spawn(async move {
            let answered =
                tokio::time::timeout(FINISH_PATIENCE, registry.cluster.finishers.run(node, sql));
            let late = || NodeError::Lost { node, source: std::io::ErrorKind::TimedOut.into() };
            let answered = answered.await.unwrap_or_else(|_| Err(late()));
            Happened::Finished { node, effect, answered }
        });
    }

    fn sql(&self, effect: Effect) -> String {
        let gid = &self.gid;
        match effect {
            Effect::Prepare(_) => format!("PREPARE TRANSACTION '{gid}'"),
            Effect::CommitAnchor => "COMMIT".to_owned(),
            Effect::RollbackAnchor => "ROLLBACK".to_owned(),
            Effect::CommitPrepared(_) => format!("COMMIT PREPARED '{gid}'"),
            Effect::RollbackPrepared(_) => format!("ROLLBACK PREPARED '{gid}'"),
            Effect::CancelPrepare(_)
            | Effect::Decide
            | Effect::RecordDecision
            | Effect::EnterCommitRoom
            | Effect::LeaveCommitRoom
            | Effect::Settle
            | Effect::LeaveToRecovery { .. }
            | Effect::Reply(_) => unreachable!("{effect:?} is not a statement of this driver"),
        }
    }

    fn event(&mut self, tx: &mut TransactionContext, happened: Happened) -> Option<Event> {
        Some(match happened {
            Happened::Event(event) => event,
            Happened::Entered(inside, place) => {
                self.inside = Some(inside);
                self.place = place;
                Event::CommitRoomEntered
            }
            Happened::Covered { decides } => {
                // Nobody has any more to ask.
                self.perform(tx, decides);
                return None;
            }
            Happened::Uncovered { node, decides } => {
                let message = format!("no sentinel has watched node {node} for a moment");
                let refusal = ErrorFields::error("40001", message)
                    .with(b'H', "The transaction might succeed if retried.");
                self.refusals.insert(NodeId(self.gid.anchor.0), refusal);
                match decides {
                    // Its transaction is open: it ends as if it had refused.
                    Effect::CommitAnchor => {
                        self.is_uncovered = true;
                        self.on_link(tx, NodeId(self.gid.anchor.0), decides);
                        return None;
                    }
                    _ => Event::DecisionRefused,
                }
            }
            Happened::Decided(Ok(true)) => Event::DecisionRecorded,
            Happened::Decided(Ok(false)) => Event::DecisionRefused,
            Happened::Decided(Err(NodeError::Refused(fields))) => {
                self.refusals.insert(NodeId(self.gid.anchor.0), *fields);
                Event::DecisionRefused
            }
            Happened::Decided(Err(error)) => {
                tracing::warn!(gid = %self.gid, %error, "no answer to the record of a decision");
                Event::DecisionLost
            }
            Happened::OnLink { node, effect, link, answered } => {
                let is_alive = link.is_some();
                let queue = self.queued.remove(&node).unwrap_or_default();
                if let Some(link) = link {
                    tx.links.insert(node, link);
                }
                for effect in queue {
                    self.on_link(tx, node, effect);
                }
                self.event_of_link(node, effect, answered, is_alive)
            }
            Happened::Finished { node, effect, answered } => {
                self.event_of_finisher(node, effect, &answered)
            }
        })
    }

    fn event_of_link(
        &mut self,
        node: NodeId,
        effect: Effect,
        answered: Answered,
        is_alive: bool,
    ) -> Event {
        let rolled_back =
            matches!(&answered, Ok(rows) if rows.last().is_some_and(|rows| rows.tag == "ROLLBACK"));
        let at = gid::NodeId(node.0);
        let refused = match &answered {
            // A FATAL is followed by the end of the connection: what it interrupted is not known.
            Err(NodeError::Refused(fields)) if is_alive => {
                self.refusals.insert(node, (**fields).clone());
                true
            }
            _ => false,
        };
        match (effect, answered.is_ok(), refused) {
            (Effect::Prepare(_), true, _) if !rolled_back => Event::VotedYes(at),
            (Effect::Prepare(_), true, _) | (Effect::Prepare(_), false, true) => Event::VotedNo(at),
            (Effect::Prepare(_), false, false) => Event::VoteLost(at),
            (Effect::RecordDecision, true, _) => Event::DecisionRecorded,
            (Effect::RecordDecision, false, true) => Event::DecisionRefused,
            (Effect::CommitAnchor, true, _) if !rolled_back => {
                if let Some(applying) = &self.applying {
                    applying.applied(at);
                }
                Event::AnchorCommitted
            }
            (Effect::CommitAnchor, true, _) | (Effect::CommitAnchor, false, true) => {
                Event::AnchorRefused
            }
            (Effect::RollbackAnchor, true, _) | (Effect::RollbackAnchor, false, true) => {
                Event::AnchorRolledBack
            }
            (
                Effect::RecordDecision | Effect::CommitAnchor | Effect::RollbackAnchor,
                false,
                false,
            ) => Event::AnchorLost,
            _ => unreachable!("{effect:?} is not sent over a session's link"),
        }
    }

    fn event_of_finisher(&mut self, node: NodeId, effect: Effect, answered: &Answered) -> Event {
        let at = gid::NodeId(node.0);
        match (effect, answered) {
            (Effect::CommitPrepared(_), Ok(_)) => {
                if let Some(applying) = &self.applying {
                    applying.applied(at);
                }
                Event::ParticipantCommitted(at)
            }
            (Effect::RollbackPrepared(_), Ok(_)) => Event::ParticipantRolledBack(at),
            (_, Err(NodeError::Refused(fields))) if fields.sqlstate() == "42704" => {
                Event::ParticipantUnknown(at)
            }
            (_, Err(error)) => {
                tracing::warn!(gid = %self.gid, %node, %error, "a part is left to recovery");
                Event::ParticipantLost(at)
            }
            _ => unreachable!("{effect:?} is not sent over a finisher"),
        }
    }

    fn conclude(mut self, outcome: Outcome, all_flushed: bool) -> Result<(), Failure> {
        let anchor = NodeId(self.gid.anchor.0);
        let hint = "Nothing was committed; retrying is safe.";
        let plain = |sqlstate: &str, message: String| {
            Err(ErrorFields::error(sqlstate, message).with(b'H', hint).into())
        };
        match outcome {
            Outcome::Committed => {
                if all_flushed {
                    self.registry.cluster.note_applied(self.gid);
                }
                Ok(())
            }
            Outcome::Unknown => {
                let message = "the outcome of this transaction is not known yet";
                let hint = format!("Ask later: SELECT tutti_outcome('{}').", self.gid);
                Err(ErrorFields::error(UNKNOWN_OUTCOME, message).with(b'H', hint).into())
            }
            Outcome::Aborted { cause } => match cause {
                AbortCause::VotedNo(node) => match self.refusals.remove(&NodeId(node.0)) {
                    Some(fields) => Err(fields.into()),
                    None => plain("40000", format!("node {node} rolled the transaction back")),
                },
                AbortCause::DecisionRefused | AbortCause::AnchorRefused => {
                    match self.refusals.remove(&anchor) {
                        Some(fields)
                            if fields.sqlstate() == "23505"
                                && cause == AbortCause::DecisionRefused =>
                        {
                            plain("40001", "recovery has aborted this transaction".to_owned())
                        }
                        Some(fields) => Err(fields.into()),
                        None if cause == AbortCause::DecisionRefused => {
                            plain("40001", "recovery has aborted this transaction".to_owned())
                        }
                        None => {
                            plain("40000", format!("node {anchor} rolled the transaction back"))
                        }
                    }
                }
                AbortCause::VoteLost(node) => match self.refusals.remove(&NodeId(node.0)) {
                    Some(fields) => Err(fields.into()),
                    None => {
                        plain("08006", format!("connection to node {node} lost before it voted"))
                    }
                },
                AbortCause::AnchorLost | AbortCause::FoundAborted => {
                    plain("08006", format!("connection to node {anchor} lost during the commit"))
                }
                AbortCause::DeadlineReached if self.is_cancelled => {
                    Err(canceled("57014", "user request"))
                }
                AbortCause::DeadlineReached => {
                    plain("40000", "not all nodes voted in time".to_owned())
                }
            },
        }
    }
}

/// The record as part of the anchor's own transaction, which runs under the client's role: the
/// seal says that it is not the client's idea.
async fn record(link: &mut Link, gid: &str, seals: &Seals) -> Result<Vec<Rows>, NodeError> {
    // It travels with the next query, and what is wrong with it is that query's error.
    link.put_silent("SET LOCAL synchronous_commit = on");
    link.learn_moment().await?;
    let seal = seals.seal_now(link.connection(), &format!("decision {gid}"));
    let sql = format!("SELECT tutti.record_decision('{gid}', $1)");
    link.query_with(&sql, vec![seal]).await
}

/// Asks the record, over new connections, until it answers or patience is over.
async fn settle(registry: &Registry, gid: &Gid) -> Event {
    let asked = tokio::time::timeout(SETTLE_PATIENCE, async {
        loop {
            match tutti_cluster::recovery::read_or_refuse_decision(&registry.cluster.config, gid)
                .await
            {
                Ok(decision) => return decision,
                Err(error) => {
                    tracing::warn!(%gid, %error, "cannot ask for the decision yet");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    });
    match asked.await {
        Ok(decision) => Event::Settled(decision),
        Err(_) => Event::SettleTimedOut,
    }
}
