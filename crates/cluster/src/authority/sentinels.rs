//! Sentinels: on each node a transaction that has read every ticket, so that PostgreSQL detects
//! serialization failures between SERIALIZABLE transactions over several nodes.
//!
//! Owns: one task per node that keeps a sentinel alive while it is needed, and the removal of
//! old tickets.
//! Never: inserts a ticket, takes part in a client's transaction, or commits a sentinel.
//! Start reading at [`Sentinels`], then [`Post::stand`].
//!
//! **What a sentinel is for.** It is a SERIALIZABLE READ WRITE transaction that holds the
//! relation-level SIREAD lock on `tutti.ticket`. A transaction that inserts a ticket, which the
//! sentinel's snapshot does not contain, has a read-write antidependency coming in from it. If it
//! also has one going out, to a transaction that committed (or prepared) before it on this node, it
//! is the pivot of what PostgreSQL calls a dangerous structure, and is refused with 40001.
//! PostgreSQL checks for that when the last of the three facts appears: the two antidependencies
//! and the end of the other transaction. So from the ticket's insertion to the vote (or COMMIT)
//! there must always be a sentinel that has not ended.
//!
//! **Why replacing it loses nothing.** A sentinel's ROLLBACK removes its antidependencies, but its
//! relief has finished its scan by then. A transaction whose ticket was there but not visible to the
//! relief (uncommitted or prepared) got its antidependency by that scan; one that inserts later meets
//! the relief's SIREAD lock, which is taken before the first page is read. One whose ticket is
//! visible to the relief had committed by then, and no longer needs one: an antidependency appears
//! while both transactions run, so none is found later.
//! A sentinel must not COMMIT: having written nothing, it would be counted as read-only, and the
//! antidependencies from it would count for less.
//!
//! **Why it is asked.** A sentinel may be terminated, which its connection shows only after a
//! while. An answer of its own, with the transaction still open, is proof that it has stood until
//! then; a transaction asks for that when all its nodes have voted, before it is decided.
//!
//! **What it costs a node**: a snapshot that is at most a few seconds old, so vacuum and PostgreSQL's
//! memory of serializable transactions lag by that much; READ ONLY DEFERRABLE waits for one turn.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tutti_link::connection::{Durability, NodeConnection, NodeError, open_own};
use tutti_link::{Endpoint, Endpoints};
use tutti_sql::catalog::NodeId;
use tutti_wire::error_fields::ErrorFields;

/// PostgreSQL 17 added a timeout that older servers do not know.
const NO_TRANSACTION_TIMEOUT: &str = "SELECT pg_catalog.set_config(name, '0', false)
FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout'";
/// The scan, and whether it has taken the lock that it is for.
const BEGIN: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE NOT DEFERRABLE;
SELECT pg_catalog.count(*) FROM tutti.ticket;
SELECT FROM pg_catalog.pg_locks
WHERE mode = 'SIReadLock' AND locktype = 'relation' AND pid = pg_catalog.pg_backend_pid()
    AND relation = 'tutti.ticket'::pg_catalog.regclass";
/// Fails if the transaction has failed and so lost its locks; takes no snapshot.
const STAND_UP: &str = "SHOW transaction_isolation";
/// Tickets of transactions that have ended are no longer needed.
const REMOVE_TICKETS: &str = "DELETE FROM tutti.ticket";
/// Turns between two removals of old tickets.
const REMOVAL_TURNS: u64 = 5;
/// How long a relief may take to connect and scan, or a relieved sentinel to end.
const RELIEF_PATIENCE: Duration = Duration::from_secs(5);
/// After so many failed reliefs in a row, the sentinel on duty is no longer trusted either.
const FAILED_RELIEFS_MAX: u32 = 3;
/// Between two attempts to start a first sentinel on a node.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Why there is no sentinel, or no relief for it.
#[derive(Debug, thiserror::Error)]
enum SentinelError {
    #[error(transparent)]
    Node(#[from] NodeError),
    /// For example because the table was given an index.
    #[error("reading tutti.ticket has not locked the whole table against serializable writers")]
    NotLocked,
    #[error("the node did not answer within {RELIEF_PATIENCE:?}")]
    Silent,
    /// It answered, but is not in the transaction that it began.
    #[error("the sentinel's transaction has ended")]
    Ended,
}

/// The timing of sentinels.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pace {
    /// Between two replacements.
    pub turn: Duration,
    /// After so many turns without a request for it, a sentinel ends.
    pub idle_turns: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { turn: Duration::from_secs(1), idle_turns: 300 }
    }
}

/// Stands for sentinels having relieved each other on one node without a gap since this was given.
///
/// As long as it is kept, the sentinels stay.
#[derive(Clone, Debug)]
pub struct Coverage(Arc<Chain>);

/// Identified by its address: each uninterrupted sequence of sentinels has its own.
#[derive(Debug)]
struct Chain {
    node: NodeId,
}

/// The sentinels of all nodes.
///
/// Use: before a transaction inserts its ticket on a node, take [`Self::wait_for_coverage`]; when all
/// nodes have voted, and before the decision, ask [`Self::confirm`] with what was given; if a
/// sentinel has been missing, abort with 40001.
#[derive(Debug)]
pub struct Sentinels {
    /// In the order of the nodes' ids.
    posts: Vec<Arc<Post>>,
    /// Ended when this value is dropped; the nodes then see the connections close and roll back.
    _tasks: JoinSet<()>,
}

/// One node's sentinel.
#[derive(Debug)]
struct Post {
    endpoint: Endpoint,
    pace: Pace,
    standing: watch::Sender<Option<Coverage>>,
    /// Since the last turn.
    asked: AtomicBool,
    wake: Notify,
    /// Requests for the sentinel's own confirmation. Unanswered when this is closed or dropped.
    calls: mpsc::UnboundedSender<Call>,
    /// Taken out by the node's task.
    called: Mutex<Option<mpsc::UnboundedReceiver<Call>>>,
}

/// Answered when the sentinel on duty has, and dropped if none does.
type Call = oneshot::Sender<()>;

/// The next sentinel, being started.
type Relief<'a> = Pin<Box<dyn Future<Output = Result<NodeConnection, SentinelError>> + Send + 'a>>;

impl Sentinels {
    /// For these nodes. Connects to a node only when a sentinel is requested there.
    ///
    /// Requires: a tokio runtime.
    pub fn start(endpoints: &Endpoints) -> Arc<Self> {
        Self::start_with(endpoints, Pace::default())
    }

    /// The same with the given timing.
    pub fn start_with(endpoints: &Endpoints, pace: Pace) -> Arc<Self> {
        let post = |endpoint: &Endpoint| {
            let (calls, called) = mpsc::unbounded_channel();
            Arc::new(Post {
                endpoint: endpoint.clone(),
                pace,
                standing: watch::Sender::new(None),
                asked: AtomicBool::new(false),
                wake: Notify::new(),
                calls,
                called: Mutex::new(Some(called)),
            })
        };
        let posts: Vec<_> = endpoints.iter().map(post).collect();
        let mut tasks = JoinSet::new();
        for post in &posts {
            tasks.spawn(post.clone().keep());
        }
        Arc::new(Self { posts, _tasks: tasks })
    }

    /// The present coverage of a node, if it has a sentinel. If not, one is being started.
    ///
    /// Panics for a node that is not configured, as do the other methods.
    pub fn coverage(&self, node: NodeId) -> Option<Coverage> {
        let post = self.post(node);
        post.ask();
        post.standing.borrow().clone()
    }

    /// Like [`Self::coverage`], but waits for a sentinel. `None` when `patience` is over: the
    /// transaction cannot be made serializable now and must be refused.
    pub async fn wait_for_coverage(&self, node: NodeId, patience: Duration) -> Option<Coverage> {
        let post = self.post(node);
        post.ask();
        let mut standing = post.standing.subscribe();
        let covered = standing.wait_for(Option::is_some);
        let covered = tokio::time::timeout(patience, covered).await.ok()?;
        covered.ok()?.clone()
    }

    /// Whether sentinels have stood on the node at every moment from when `coverage` was given until
    /// this was called, as confirmed by the one on duty: one round trip to the node, shared by those
    /// who ask at the same time.
    pub async fn confirm(&self, node: NodeId, coverage: &Coverage) -> bool {
        if !self.is_unbroken(node, coverage) {
            return false;
        }
        let post = self.post(node);
        let (call, answered) = oneshot::channel();
        let is_sent = post.calls.send(call).is_ok();
        // Should the sentinel be gone by now, the next one answers, or the call fails immediately.
        post.ask();
        is_sent && answered.await.is_ok() && self.is_unbroken(node, coverage)
    }

    /// The same by what is known without asking: a sentinel that was ended a moment ago may not have
    /// been missed yet.
    pub fn is_unbroken(&self, node: NodeId, coverage: &Coverage) -> bool {
        let standing = self.post(node).standing.borrow();
        standing.as_ref().is_some_and(|now| Arc::ptr_eq(&now.0, &coverage.0))
    }

    fn post(&self, node: NodeId) -> &Post {
        &self.posts[usize::from(node.0) - 1]
    }
}

impl Post {
    fn node(&self) -> NodeId {
        self.endpoint.node()
    }

    fn ask(&self) {
        self.asked.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// The node's task: keeps sentinels whenever they are wanted.
    async fn keep(self: Arc<Self>) {
        let called = self.called.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut called = called.expect("a post has one task");
        loop {
            while !self.asked.load(Ordering::Relaxed) {
                self.wake.notified().await;
            }
            let ended = self.stand(&mut called).await;
            self.standing.send_replace(None);
            // Not answered: earlier callers rely on sentinels that are gone.
            while called.try_recv().is_ok() {}
            if let Err(error) = ended {
                tracing::warn!(node = %self.node(), %error, "no sentinel; trying again");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }

    /// One sentinel after another. Returns when they are no longer needed.
    ///
    /// Errors: the one on duty was lost, or could not be relieved for some time.
    async fn stand(&self, called: &mut mpsc::UnboundedReceiver<Call>) -> Result<(), SentinelError> {
        let mut on_duty = in_time(self.begin(None, false)).await?;
        self.begin_chain();
        let mut resting = None;
        let mut turns = 0_u64;
        let mut idle_turns = 0;
        let mut failed = 0;
        let mut turn_ends = Instant::now() + self.pace.turn;
        let mut relief: Option<Relief<'_>> = None;
        loop {
            let arrived = tokio::select! {
                error = lost(&mut on_duty) => return Err(error),
                Some(call) = called.recv() => {
                    // Run to its end: a half-sent question would spoil the connection.
                    in_time(stand_up(&mut on_duty, called, call)).await?;
                    continue;
                }
                arrived = arrival(&mut relief) => arrived,
                () = tokio::time::sleep_until(turn_ends), if relief.is_none() => {
                    turns += 1;
                    let was_asked = self.asked.swap(false, Ordering::Relaxed);
                    idle_turns = if was_asked { 0 } else { idle_turns + 1 };
                    if self.pace.idle_turns <= idle_turns && self.end_chain_if_unused() {
                        return Ok(());
                    }
                    let removal = turns.is_multiple_of(REMOVAL_TURNS);
                    relief = Some(Box::pin(in_time(self.begin(resting.take(), removal))));
                    continue;
                }
            };
            relief = None;
            turn_ends = Instant::now() + self.pace.turn;
            match arrived {
                Ok(arrived) => {
                    let relieved = std::mem::replace(&mut on_duty, arrived);
                    resting = in_time(end(relieved)).await.ok();
                    if resting.is_none() {
                        // It may have ended before its relief had finished the scan.
                        self.begin_chain();
                    }
                    failed = 0;
                }
                Err(error) => {
                    failed += 1;
                    if FAILED_RELIEFS_MAX <= failed {
                        return Err(error);
                    }
                    tracing::warn!(node = %self.node(), %error, "no relief for the sentinel yet");
                }
            }
        }
    }

    /// A transaction that has read all tickets, on `connection` or a new one.
    async fn begin(
        &self,
        connection: Option<NodeConnection>,
        removal: bool,
    ) -> Result<NodeConnection, SentinelError> {
        let mut connection = match connection {
            Some(connection) => connection,
            None => self.open().await?,
        };
        if removal {
            connection.query(REMOVE_TICKETS).await?;
        }
        let locks = connection.rows(BEGIN).await?;
        if locks.rows.is_empty() {
            return Err(SentinelError::NotLocked);
        }
        Ok(connection)
    }

    async fn open(&self) -> Result<NodeConnection, NodeError> {
        // Its own writes, the removal of tickets, may be lost.
        let mut connection =
            open_own(&self.endpoint, "tutti sentinel", Durability::Relaxed).await?;
        connection.query(NO_TRANSACTION_TIMEOUT).await?;
        Ok(connection)
    }

    fn begin_chain(&self) {
        let chain = Chain { node: self.node() };
        tracing::debug!(node = %chain.node, "a sentinel stands");
        self.standing.send_replace(Some(Coverage(Arc::new(chain))));
    }

    /// False if a transaction relies on the sentinels. Under the channel's lock, so that none can
    /// begin to in between.
    fn end_chain_if_unused(&self) -> bool {
        self.standing.send_if_modified(|standing| {
            let unused =
                standing.as_ref().is_none_or(|coverage| Arc::strong_count(&coverage.0) == 1);
            if unused {
                *standing = None;
            }
            unused
        })
    }
}

/// Ends a sentinel. Its answer shows that it was alive until then.
async fn end(mut relieved: NodeConnection) -> Result<NodeConnection, SentinelError> {
    relieved.query("ROLLBACK").await?;
    Ok(relieved)
}

/// The sentinel on duty confirms that it stands, to `call` and all that have called before it is
/// asked.
async fn stand_up(
    on_duty: &mut NodeConnection,
    called: &mut mpsc::UnboundedReceiver<Call>,
    call: Call,
) -> Result<(), SentinelError> {
    let mut calls = vec![call];
    while let Ok(another) = called.try_recv() {
        calls.push(another);
    }
    let answer = on_duty.rows(STAND_UP).await?;
    if answer.text(0, 0) != Some("serializable") {
        return Err(SentinelError::Ended);
    }
    for call in calls {
        // A caller that is gone no longer needs to know.
        let _ = call.send(());
    }
    Ok(())
}

/// Waits for the relief, if one is on its way. Cancel-safe: it continues when awaited again.
async fn arrival(relief: &mut Option<Relief<'_>>) -> Result<NodeConnection, SentinelError> {
    match relief {
        Some(relief) => relief.as_mut().await,
        None => std::future::pending().await,
    }
}

/// Waits for the connection's end. Cancel-safe.
async fn lost(connection: &mut NodeConnection) -> SentinelError {
    loop {
        match connection.next_frame().await {
            Ok(frame) if frame.tag() == b'E' => match ErrorFields::decode(&frame) {
                Ok(fields) => return NodeError::Refused(Box::new(fields)).into(),
                Err(error) => return NodeError::from(error).into(),
            },
            // Notices and parameter reports.
            Ok(_) => (),
            Err(error) => return error.into(),
        }
    }
}

async fn in_time<T>(
    work: impl Future<Output = Result<T, SentinelError>>,
) -> Result<T, SentinelError> {
    tokio::time::timeout(RELIEF_PATIENCE, work).await.unwrap_or(Err(SentinelError::Silent))
}
