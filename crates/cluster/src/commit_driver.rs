//! Committing a transaction that wrote on several nodes: drives one coordinator.
//!
//! Owns: turning the coordinator's effects into statements on links and finishers and requests to the
//! authority, and their answers into events; and holding what the authority has granted.
//! Never: decides what comes next, what is waited for or when something is released
//! (`tutti_txn::coordinator` does), or words what a client is told.
//! Start reading at [`CommitDriver::run`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tutti_link::Link;
use tutti_link::availability::OPEN_PATIENCE;
use tutti_link::connection::{NodeError, Rows};
use tutti_link::pool::links::Links;
use tutti_link::seals::Seals;
use tutti_sql::catalog::NodeId;
use tutti_txn::Coordinator;
use tutti_txn::coordinator::{AbortCause, Effect, Event, Form, Outcome, Terms};
use tutti_txn::gid::{self, Gid};
use tutti_txn::rooms::Room;
use tutti_wire::error_fields::ErrorFields;

use crate::Boxed;
use crate::authority::causes::Causes;
use crate::authority::in_application::Entered;
use crate::authority::rooms::RoomVisit;
use crate::authority::sentinels::Coverage;
use crate::authority::vote_order::VotePermit;
use crate::cluster::Cluster;
use crate::numbers::{sql_node, txn_node};
use crate::recovery::Recoverer;
use crate::requests::Record;

/// How long past the deadline for votes a node may take before its connection is given up.
const ANSWER_PATIENCE: Duration = Duration::from_secs(3);
/// How long a node may take to apply what is decided, while snapshots wait; then recovery takes over
/// and the node is closed to reads.
const FINISH_PATIENCE: Duration = Duration::from_secs(3);
/// How long we try to find out whether a decision was recorded before we say that we do not know.
const SETTLE_PATIENCE: Duration = Duration::from_secs(10);

/// What a node answered.
type Answered = Result<Vec<Rows>, NodeError>;

/// What keeps a client's code, which runs inside a commit, from taking long while others wait.
pub struct RunLimit {
    /// Polled beside the statement: ends it sooner or later, and never completes itself.
    pub ending: Boxed<'static, ()>,
    /// Called when the statement is answered.
    pub done: Box<dyn FnOnce() + Send>,
}

/// What a commit needs of the session whose transaction it is.
pub trait CommittingSession: Send + Sync {
    /// For a statement on `node` that may run a client's code. `None`: there is none, or nothing waits for
    /// it.
    fn run_limit(&self, node: NodeId) -> Option<RunLimit>;

    /// Cancels what the session's backend on `node` does.
    fn cancel(&self, node: NodeId) -> Boxed<'static, ()>;
}

/// How a commit ended, as far as its client may be told.
#[derive(Debug)]
pub struct CommitOutcome {
    /// The transaction.
    pub gid: Gid,
    /// What became of it.
    pub outcome: Outcome,
    /// The error of the node that caused an abort, if one reported any.
    pub refusal: Option<ErrorFields>,
    /// It is aborted because its client has cancelled.
    pub is_cancelled: bool,
}

/// What a driver is given.
#[derive(Debug)]
pub struct Commission {
    /// The transaction. Its anchor is one of the writers, unless the record is elsewhere.
    pub gid: Gid,
    /// Nodes that hold a part of it.
    pub writers: BTreeSet<gid::NodeId>,
    /// Where it is decided.
    pub form: Form,
    /// SERIALIZABLE: which sentinels must have stood until all nodes have voted.
    pub tickets: BTreeMap<NodeId, Coverage>,
    /// SERIALIZABLE only: its permit to vote.
    pub vote_permit: Option<VotePermit>,
    /// How long nodes may take to vote.
    pub vote_patience: Duration,
    /// What is kept with the decision, by the anchor.
    pub request: Option<Record>,
}

/// Something that was awaited has happened.
enum Happened {
    /// A statement on a session's link was answered; the link comes back if it still works.
    OnLink { node: NodeId, effect: Effect, link: Option<Box<Link>>, answered: Answered },
    /// A statement of a finisher was answered.
    Finished { node: NodeId, effect: Effect, answered: Answered },
    /// Recording the decision was answered.
    Decided(Result<bool, NodeError>),
    /// The permit to become visible was granted.
    TookPlace(VotePermit),
    /// The commit room was entered.
    Entered(RoomVisit),
    /// An event that needs no translation.
    Event(Event),
}

/// Drives one [`Coordinator`].
pub struct CommitDriver {
    gid: Gid,
    form: Form,
    cluster: Arc<Cluster>,
    session: Arc<dyn CommittingSession>,
    writers: BTreeSet<gid::NodeId>,
    tickets: BTreeMap<NodeId, Coverage>,
    /// Errors that nodes refused with, for the one that is the cause.
    refusals: BTreeMap<NodeId, ErrorFields>,
    /// Statements for links on which another one is still running.
    queued: BTreeMap<NodeId, VecDeque<Effect>>,
    /// What happened without waiting.
    happened: VecDeque<Happened>,
    running: JoinSet<Happened>,
    /// Cancel requests in flight: a late one must not hit the session's next statement.
    cancelling: JoinSet<()>,
    vote_permit: Option<VotePermit>,
    visibility_place: Granted<VotePermit>,
    room: Granted<RoomVisit>,
    application: Option<Entered>,
    causes: Causes,
    vote_patience: Duration,
    request: Option<Record>,
    /// The client has cancelled in time.
    is_cancelled: bool,
}

/// What the authority is asked for, grants, and takes back when it is dropped.
#[derive(Debug, Default)]
enum Granted<T> {
    #[default]
    Unwanted,
    /// The request, where it has to wait.
    Asked(Option<AbortHandle>),
    Held(T),
}

impl<T> Granted<T> {
    /// A grant that arrives after the request was withdrawn is released.
    fn hold(&mut self, granted: T) {
        if let Self::Asked(_) = self {
            *self = Self::Held(granted);
        }
    }

    /// Releases the grant, or withdraws the request for it.
    fn release(&mut self) {
        if let Self::Asked(Some(request)) = std::mem::take(self) {
            request.abort();
        }
    }
}

impl CommitDriver {
    /// Nothing is sent yet.
    pub fn new(
        cluster: Arc<Cluster>,
        session: Arc<dyn CommittingSession>,
        commission: Commission,
    ) -> Self {
        let Commission { gid, writers, form, tickets, vote_permit, vote_patience, request } =
            commission;
        Self {
            gid,
            form,
            cluster,
            session,
            writers,
            tickets,
            refusals: BTreeMap::new(),
            queued: BTreeMap::new(),
            happened: VecDeque::new(),
            running: JoinSet::new(),
            cancelling: JoinSet::new(),
            vote_permit,
            visibility_place: Granted::default(),
            room: Granted::default(),
            application: None,
            causes: Causes::default(),
            vote_patience,
            request,
            is_cancelled: false,
        }
    }

    /// Runs the commit over these links, which hold the transaction's parts, to the point where its client
    /// can be told. `cancelled`: resolves when its client cancels.
    pub async fn run(
        mut self,
        links: &mut Links,
        cancelled: impl Future<Output = ()>,
    ) -> CommitOutcome {
        let anchor = self.gid.anchor;
        let participants = self.writers.iter().copied().filter(|node| *node != anchor).collect();
        let deadline = Instant::now() + self.vote_patience;
        let mut deadline_is_due = true;
        tokio::pin!(cancelled);
        let terms = Terms {
            form: self.form,
            serializable: self.vote_permit.is_some(),
            watched: !self.tickets.is_empty(),
        };
        let mut effects = Vec::new();
        let mut coordinator =
            Coordinator::begin(self.gid.clone(), terms, participants, &mut effects);
        let mut outcome = Outcome::Unknown;
        loop {
            for effect in effects.drain(..) {
                match effect {
                    Effect::Reply(told) => outcome = told,
                    effect => self.perform(links, effect),
                }
            }
            if coordinator.is_finished() {
                break;
            }
            if let Some(happened) = self.happened.pop_front() {
                self.step(links, &mut coordinator, happened, &mut effects);
                continue;
            }
            tokio::select! {
                happened = self.running.join_next() => {
                    let happened =
                        happened.expect("a coordinator that is not finished awaits something");
                    if let Some(happened) = unless_withdrawn(happened) {
                        self.step(links, &mut coordinator, happened, &mut effects);
                    }
                }
                () = sleep_until(deadline), if deadline_is_due => {
                    deadline_is_due = false;
                    coordinator.step(Event::DeadlineReached, &mut effects);
                }
                () = &mut cancelled, if !self.is_cancelled && coordinator.may_be_given_up() => {
                    self.is_cancelled = true;
                    coordinator.step(Event::DeadlineReached, &mut effects);
                }
            }
        }
        while self.cancelling.join_next().await.is_some() {}
        self.conclude(outcome)
    }

    fn step(
        &mut self,
        links: &mut Links,
        coordinator: &mut Coordinator,
        happened: Happened,
        effects: &mut Vec<Effect>,
    ) {
        let event = self.event(links, happened);
        coordinator.step(event, effects);
    }

    fn perform(&mut self, links: &mut Links, effect: Effect) {
        let anchor = sql_node(self.gid.anchor);
        match effect {
            Effect::Prepare(node) => self.on_link(links, sql_node(node), effect),
            Effect::RecordDecision | Effect::CommitAnchor | Effect::RollbackAnchor => {
                self.on_link(links, anchor, effect);
            }
            Effect::CommitPrepared(node) | Effect::RollbackPrepared(node) => {
                self.on_finisher(sql_node(node), effect);
            }
            Effect::Decide => {
                let (cluster, gid) = (self.cluster.clone(), self.gid.clone());
                let of_request = self.request.as_ref().map(|record| record.decision_sql(&gid));
                self.running.spawn(async move {
                    let finishers = &cluster.finishers;
                    Happened::Decided(match of_request {
                        Some(sql) => finishers.decide_request(anchor, sql).await.map(|()| true),
                        None => finishers.decide(anchor, &gid).await,
                    })
                });
            }
            Effect::YieldVoteOrder => {
                let order = &self.cluster.authority.vote_order;
                self.vote_permit.take_if(|permit| order.is_awaited(permit));
            }
            Effect::LeaveVoteOrder => self.vote_permit = None,
            Effect::ConfirmSentinels => {
                let (cluster, tickets) = (self.cluster.clone(), std::mem::take(&mut self.tickets));
                self.running
                    .spawn(async move { Happened::Event(confirm(&cluster, tickets).await) });
            }
            Effect::TakeVisibilityPlace => {
                let order = &self.cluster.authority.visibility_order;
                let place = self.causes.place(order, self.writers.clone());
                let taking = async move { Happened::TookPlace(place.await) };
                self.visibility_place = Granted::Asked(self.begin(taking));
            }
            Effect::LeaveVisibilityPlace => self.visibility_place.release(),
            Effect::WaitForCauses => {
                let Cluster { authority, availability, .. } = &*self.cluster;
                let (in_application, patience) = (&authority.in_application, OPEN_PATIENCE);
                let shown =
                    self.causes.shown(in_application, availability, &self.writers, patience);
                self.begin(async move {
                    shown.await;
                    Happened::Event(Event::CausesShown)
                });
            }
            Effect::EnterCommitRoom => {
                let rooms = self.cluster.authority.rooms.clone();
                let entering = async move { Happened::Entered(rooms.enter(Room::Commit).await) };
                self.room = Granted::Asked(self.begin(entering));
            }
            Effect::LeaveCommitRoom => self.room.release(),
            Effect::BeginApplication => {
                let writers = self.writers.iter().copied();
                self.application = Some(self.cluster.authority.in_application.begin(writers));
            }
            Effect::NoteApplied(node) => {
                if let Some(application) = &self.application {
                    application.applied(node);
                }
            }
            Effect::EndApplication => self.application = None,
            Effect::ForgetDecision => self.cluster.note_applied(self.gid.clone()),
            Effect::CancelPrepare(node) => {
                let cancelling = self.session.cancel(sql_node(node));
                self.cancelling.spawn(cancelling);
            }
            Effect::Settle => {
                let (cluster, gid) = (self.cluster.clone(), self.gid.clone());
                self.running.spawn(async move { Happened::Event(settle(&cluster, &gid).await) });
            }
            Effect::LeaveToRecovery { node, decision } => {
                self.cluster.leave_to_recovery(&self.gid, sql_node(node), decision);
                self.happened.push_back(Happened::Event(Event::HandedOver(node)));
            }
            Effect::Reply(_) => unreachable!("the caller takes replies"),
        }
    }

    /// Begins what may have to wait for others. If it need not wait, it happens without a task of its
    /// own.
    fn begin(
        &mut self,
        happening: impl Future<Output = Happened> + Send + 'static,
    ) -> Option<AbortHandle> {
        let mut happening = Box::pin(happening);
        // This poll registers no waker: the task polls again when it starts.
        match happening.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(happened) => {
                self.happened.push_back(happened);
                None
            }
            Poll::Pending => Some(self.running.spawn(happening)),
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
            effect => Some(self.sql(effect)),
        };
        let patience = self.vote_patience + ANSWER_PATIENCE;
        let (seals, gid) = (self.cluster.seals.clone(), self.gid.to_string());
        let runs_code = matches!(effect, Effect::Prepare(_) | Effect::CommitAnchor);
        let limit = runs_code.then(|| self.session.run_limit(node));
        self.running.spawn(async move {
            let running = async {
                match &sql {
                    Some(sql) => link.query(sql).await,
                    None => record(&mut link, &gid, &seals).await,
                }
            };
            let answered = tokio::time::timeout(patience, within(limit.flatten(), running)).await;
            let (link, answered) = match answered {
                Ok(answered) if !link.connection().is_broken() => (Some(link), answered),
                Ok(answered) => (None, answered),
                // Whatever it does now, its answer is no longer read.
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
            _ => unreachable!("{effect:?} is not a statement of this driver"),
        }
    }

    fn event(&mut self, links: &mut Links, happened: Happened) -> Event {
        match happened {
            Happened::Event(event) => event,
            Happened::TookPlace(place) => {
                self.visibility_place.hold(place);
                Event::VisibilityPlaceTaken
            }
            Happened::Entered(inside) => {
                self.room.hold(inside);
                Event::CommitRoomEntered
            }
            Happened::Decided(Ok(true)) => Event::DecisionRecorded,
            Happened::Decided(Ok(false)) => Event::DecisionRefused,
            Happened::Decided(Err(NodeError::Refused(fields))) => {
                self.refusals.insert(sql_node(self.gid.anchor), *fields);
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
        }
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
        let at = txn_node(node);
        let refused = match &answered {
            // A FATAL is followed by the end of the connection: whether what it interrupted was
            // executed is not known.
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
            (Effect::CommitAnchor, true, _) if !rolled_back => Event::AnchorCommitted,
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

    fn event_of_finisher(&self, node: NodeId, effect: Effect, answered: &Answered) -> Event {
        let at = txn_node(node);
        match (effect, answered) {
            (Effect::CommitPrepared(_), Ok(_)) => Event::ParticipantCommitted(at),
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

    fn conclude(mut self, outcome: Outcome) -> CommitOutcome {
        let anchor = sql_node(self.gid.anchor);
        let refusal = match outcome {
            Outcome::Committed | Outcome::Unknown => None,
            Outcome::Aborted { cause } => match cause {
                AbortCause::VotedNo(node) | AbortCause::VoteLost(node) => {
                    self.refusals.remove(&sql_node(node))
                }
                AbortCause::DecisionRefused | AbortCause::AnchorRefused => {
                    self.refusals.remove(&anchor)
                }
                AbortCause::AnchorLost
                | AbortCause::FoundAborted
                | AbortCause::DeadlineReached
                | AbortCause::SentinelMissing(_) => None,
            },
        };
        CommitOutcome { gid: self.gid, outcome, refusal, is_cancelled: self.is_cancelled }
    }
}

/// A task's result; `None` if its request was withdrawn.
fn unless_withdrawn(happened: Result<Happened, JoinError>) -> Option<Happened> {
    match happened {
        Ok(happened) => Some(happened),
        Err(error) if error.is_cancelled() => None,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// Asks the sentinels of all nodes whether they have stood until now. Names the first node where one has not.
async fn confirm(cluster: &Cluster, tickets: BTreeMap<NodeId, Coverage>) -> Event {
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
        Some(node) => Event::SentinelMissing(txn_node(node)),
        None => Event::SentinelsConfirmed,
    }
}

/// The record as part of the anchor's own transaction, which runs under the client's role: the
/// seal proves that it is the gateway's statement.
async fn record(link: &mut Link, gid: &str, seals: &Seals) -> Result<Vec<Rows>, NodeError> {
    // It is sent with the next query, and its error becomes that query's.
    link.put_silent("SET LOCAL synchronous_commit = on");
    link.learn_moment().await?;
    let seal = seals.seal_now(link.connection(), &format!("decision {gid}"));
    let sql = format!("SELECT tutti.record_decision('{gid}', $1)");
    link.query_with(&sql, vec![seal]).await
}

/// Asks for the record, over new connections, until it answers or patience is over.
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

/// Waits for the answer to a statement, which `limit` may end early.
pub async fn within<T>(limit: Option<RunLimit>, running: impl Future<Output = T>) -> T {
    let Some(RunLimit { mut ending, done }) = limit else { return running.await };
    let answered = tokio::select! {
        biased;
        answered = running => answered,
        () = &mut ending => unreachable!("what ends a statement does not end itself"),
    };
    done();
    answered
}
