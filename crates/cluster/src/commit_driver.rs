//! Committing a transaction that wrote on several nodes: drives one coordinator.
//!
//! Owns: turning the coordinator's effects into statements on links and finishers, and their answers
//! into events; the commit room, the vote order and the sentinels of this commit.
//! Never: decides what comes next (`tutti_txn::coordinator` does), or words what a client is told.
//! Start reading at [`Driver::run`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tutti_link::Link;
use tutti_link::availability::OPEN_PATIENCE;
use tutti_link::connection::{NodeError, Rows};
use tutti_link::pool::links::Links;
use tutti_link::seals::Seals;
use tutti_sql::catalog::NodeId;
use tutti_txn::Coordinator;
use tutti_txn::coordinator::{AbortCause, Effect, Event, Form, Outcome, Phase, Purpose};
use tutti_txn::gid::{self, Gid};
use tutti_txn::rooms::Room;
use tutti_wire::error_fields::ErrorFields;

use crate::Boxed;
use crate::authority::in_application::Entered;
use crate::authority::rooms::Inside;
use crate::authority::sentinels::Coverage;
use crate::authority::vote_order::VotePermit;
use crate::cluster::Cluster;
use crate::recovery::Recoverer;

/// What a node may take beyond the deadline for votes until its connection is given up.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);
/// How long a node may take to apply what is decided, while whoever takes a snapshot waits; then it is
/// recovery's, and the node closed to reads.
const FINISH_PATIENCE: Duration = Duration::from_secs(3);
/// How long we try to find out whether a decision was recorded before we say that we do not know.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

/// What a node answered.
type Answered = Result<Vec<Rows>, NodeError>;

/// What keeps a client's code, which runs inside of a commit, from taking long while others wait.
pub struct Bound {
    /// To be polled beside the statement: ends it sooner or later, and never finishes itself.
    pub ending: Boxed<'static, ()>,
    /// To be called when the statement is answered.
    pub done: Box<dyn FnOnce() + Send>,
}

/// What a commit needs of the session whose transaction it is.
pub trait CommittingSession: Send + Sync {
    /// For a statement on `node` that may run a client's code. `None`: there is none, or nobody waits for it.
    fn bound(&self, node: NodeId) -> Option<Bound>;

    /// Cancels what the session's backend on `node` does.
    fn cancel(&self, node: NodeId) -> Boxed<'static, ()>;
}

/// How a commit ended, as far as its client may hear.
#[derive(Debug)]
pub struct CommitOutcome {
    /// The transaction.
    pub gid: Gid,
    /// What became of it.
    pub outcome: Outcome,
    /// What the node said that is the cause, if it is aborted and one has said something.
    pub refusal: Option<ErrorFields>,
    /// It is aborted because its client has given up.
    pub is_cancelled: bool,
}

/// What a driver begins with.
#[derive(Debug)]
pub struct Commission {
    /// The transaction. Its anchor is one of the writers.
    pub gid: Gid,
    /// Nodes that hold a part of it.
    pub writers: BTreeSet<gid::NodeId>,
    /// Whether others of its kind must become visible before or after it everywhere.
    pub serializable: bool,
    /// SERIALIZABLE: which sentinels must have stood until all nodes have voted.
    pub tickets: BTreeMap<NodeId, Coverage>,
    /// SERIALIZABLE: its permit to vote.
    pub permit: Option<VotePermit>,
    /// How long nodes may take to vote.
    pub vote_patience: Duration,
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
pub struct Driver {
    gid: Gid,
    cluster: Arc<Cluster>,
    session: Arc<dyn CommittingSession>,
    writers: BTreeSet<gid::NodeId>,
    /// Whether others of its kind must become visible before or after it everywhere.
    serializable: bool,
    /// SERIALIZABLE: which sentinels must have stood until all nodes have voted.
    tickets: BTreeMap<NodeId, Coverage>,
    /// SERIALIZABLE: they have not; the anchor's transaction is rolled back where it would commit.
    is_uncovered: bool,
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
    /// Nothing is sent yet.
    pub fn new(
        cluster: Arc<Cluster>,
        session: Arc<dyn CommittingSession>,
        commission: Commission,
    ) -> Self {
        let Commission { gid, writers, serializable, tickets, permit, vote_patience } = commission;
        Self {
            gid,
            cluster,
            session,
            writers,
            serializable,
            tickets,
            is_uncovered: false,
            refusals: BTreeMap::new(),
            queued: BTreeMap::new(),
            running: JoinSet::new(),
            cancelling: JoinSet::new(),
            inside: None,
            applying: None,
            turn: permit,
            place: None,
            vote_patience,
            is_cancelled: false,
        }
    }

    /// Runs the commit over these links, which hold the transaction's parts, to where its client can be told.
    /// `cancelled`: its client has given up.
    pub async fn run(
        mut self,
        links: &mut Links,
        form: Form,
        cancelled: impl Future<Output = ()>,
    ) -> CommitOutcome {
        let anchor = self.gid.anchor;
        let participants = self.writers.iter().copied().filter(|node| *node != anchor).collect();
        let deadline = Instant::now() + self.vote_patience;
        let mut deadline_is_due = true;
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
                        self.perform(links, effect);
                    }
                    effect => self.perform(links, effect),
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
            if let Some(event) = self.event(links, happened) {
                coordinator.step(event, &mut effects);
            }
        }
        while self.cancelling.join_next().await.is_some() {}
        self.conclude(outcome, all_flushed)
    }

    fn perform(&mut self, links: &mut Links, effect: Effect) {
        let anchor = NodeId(self.gid.anchor.0);
        match effect {
            Effect::Prepare(node) => self.on_link(links, NodeId(node.0), effect),
            Effect::RecordDecision | Effect::RollbackAnchor => {
                self.on_link(links, anchor, effect);
            }
            Effect::CommitAnchor if !self.tickets.is_empty() => self.ask_sentinels(effect),
            Effect::CommitAnchor => {
                self.begin_to_apply();
                self.on_link(links, anchor, effect);
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
                let (cluster, writers) = (self.cluster.clone(), self.writers.clone());
                let serializable = self.serializable;
                let decided = Instant::now();
                self.running.spawn(async move {
                    let place = match serializable {
                        // Whoever shares nodes with it becomes visible on all of them before or after it.
                        true => {
                            Some(cluster.authority.visibility_order.take(writers.clone()).await)
                        }
                        false => None,
                    };
                    // Whoever sees this commit on one of its nodes must see there what its client
                    // may have seen elsewhere before (docs/protocol/rooms.md, causes).
                    for node in writers {
                        let node = NodeId(node.0);
                        cluster.authority.applying.wait(Some(node)).await;
                        // What is left to recovery there counts as applied, for nobody reads the
                        // node; but whatever is at work on it goes on.
                        cluster.availability.wait_until_settled(node, decided, OPEN_PATIENCE).await;
                    }
                    Happened::Entered(cluster.authority.rooms.enter(Room::Commit).await, place)
                });
            }
            Effect::LeaveCommitRoom => {
                self.applying = None;
                self.inside = None;
                self.place = None;
                self.turn = None;
            }
            Effect::CancelPrepare(node) => {
                let cancelling = self.session.cancel(NodeId(node.0));
                self.cancelling.spawn(cancelling);
            }
            Effect::Settle => {
                let (cluster, gid) = (self.cluster.clone(), self.gid.clone());
                self.running.spawn(async move { Happened::Event(settle(&cluster, &gid).await) });
            }
            Effect::LeaveToRecovery { node, decision } => {
                if decision.is_none() {
                    // Recovery may find it committed, and apply it on one node before another.
                    self.begin_to_apply();
                }
                self.cluster.leave_to_recovery(&self.gid, NodeId(node.0), decision);
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
        if self.turn.as_ref().is_some_and(|turn| self.cluster.authority.vote_order.is_awaited(turn))
        {
            self.turn = None;
        }
    }

    fn decide(&mut self) {
        let (cluster, gid) = (self.cluster.clone(), self.gid.clone());
        let anchor = NodeId(gid.anchor.0);
        self.running
            .spawn(async move { Happened::Decided(cluster.finishers.decide(anchor, &gid).await) });
    }

    /// All have voted that can be asked before the decision. It is made only if sentinels have stood on
    /// all nodes until now.
    fn ask_sentinels(&mut self, decides: Effect) {
        let cluster = self.cluster.clone();
        let tickets = std::mem::take(&mut self.tickets);
        self.running.spawn(async move {
            let mut asked = JoinSet::new();
            for (node, coverage) in tickets {
                let sentinels = cluster.authority.sentinels.clone();
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
                Some(self.cluster.authority.applying.begin(self.writers.iter().copied()));
        }
    }

    /// Runs a statement on the session's link, after the one that may be running there.
    fn on_link(&mut self, links: &mut Links, node: NodeId, effect: Effect) {
        if let Some(queue) = self.queued.get_mut(&node) {
            queue.push_back(effect);
            return;
        }
        let Some(mut link) = links.remove(&node) else {
            let answered = Err(NodeError::not_connected(node));
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
        let (seals, gid) = (self.cluster.seals.clone(), self.gid.to_string());
        let runs_code = matches!(effect, Effect::Prepare(_) | Effect::CommitAnchor);
        let bound = runs_code.then(|| self.session.bound(node));
        self.running.spawn(async move {
            let running = async {
                match &sql {
                    Some(sql) => link.query(sql).await,
                    None => record(&mut link, &gid, &seals).await,
                }
            };
            let answered = tokio::time::timeout(patience, within(bound.flatten(), running)).await;
            let (link, answered) = match answered {
                Ok(answered) if !link.connection().is_broken() => (Some(link), answered),
                Ok(answered) => (None, answered),
                // Whatever it does now, nobody listens any more.
                Err(_) => (None, Err(NodeError::not_connected(node))),
            };
            Happened::OnLink { node, effect, link, answered }
        });
    }

    fn on_finisher(&mut self, node: NodeId, effect: Effect) {
        let (cluster, sql) = (self.cluster.clone(), self.sql(effect));
        self.running.spawn(async move {
            let answered = tokio::time::timeout(FINISH_PATIENCE, cluster.finishers.run(node, sql));
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

    fn event(&mut self, links: &mut Links, happened: Happened) -> Option<Event> {
        Some(match happened {
            Happened::Event(event) => event,
            Happened::Entered(inside, place) => {
                self.inside = Some(inside);
                self.place = place;
                Event::CommitRoomEntered
            }
            Happened::Covered { decides } => {
                // Nobody has any more to ask.
                self.perform(links, decides);
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
                        self.on_link(links, NodeId(self.gid.anchor.0), decides);
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
                    links.insert(node, link);
                }
                for effect in queue {
                    self.on_link(links, node, effect);
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

    fn conclude(mut self, outcome: Outcome, all_flushed: bool) -> CommitOutcome {
        let anchor = NodeId(self.gid.anchor.0);
        let refusal = match outcome {
            Outcome::Committed | Outcome::Unknown => None,
            Outcome::Aborted { cause } => match cause {
                AbortCause::VotedNo(node) | AbortCause::VoteLost(node) => {
                    self.refusals.remove(&NodeId(node.0))
                }
                AbortCause::DecisionRefused | AbortCause::AnchorRefused => {
                    self.refusals.remove(&anchor)
                }
                AbortCause::AnchorLost | AbortCause::FoundAborted | AbortCause::DeadlineReached => {
                    None
                }
            },
        };
        if outcome == Outcome::Committed && all_flushed {
            self.cluster.note_applied(self.gid.clone());
        }
        CommitOutcome { gid: self.gid, outcome, refusal, is_cancelled: self.is_cancelled }
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
async fn settle(cluster: &Cluster, gid: &Gid) -> Event {
    let asked = tokio::time::timeout(SETTLE_PATIENCE, async {
        loop {
            match Recoverer::of(cluster).read_or_refuse_decision(gid).await {
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

/// Waits for the answer to a statement, beside which `bound` may end it.
pub async fn within<T>(bound: Option<Bound>, running: impl Future<Output = T>) -> T {
    let Some(Bound { mut ending, done }) = bound else { return running.await };
    let answered = tokio::select! {
        biased;
        answered = running => answered,
        () = &mut ending => unreachable!("what ends a statement does not end itself"),
    };
    done();
    answered
}
