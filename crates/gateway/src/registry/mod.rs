//! What all sessions of one gateway share, beside the cluster.
//!
//! Owns: the pool, what is known of statements and plans, and which sessions there are: by these,
//! cancel requests find their session and all learn that the gateway is about to stop.
//! Never: holds a lock across an await.
//! Start reading at [`Registry`].

pub mod activity;
pub(crate) mod known_roles;
pub mod pauses;
pub mod plan_in_sight;
pub mod redistributions;
pub mod requests;
pub mod role;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tutti_cluster::Cluster;
use tutti_link::NodeError;
use tutti_link::connection::cancel;
use tutti_link::pool::backends::{Backends, Target};
use tutti_link::pool::link::Surroundings;
use tutti_link::pool::{Pool, SharedStatements};
use tutti_sql::catalog::NodeId;

use self::activity::Activities;
use self::known_roles::KnownRoles;
use self::pauses::Pauses;
use self::redistributions::Redistributions;
use self::requests::RequestsAtWork;
use crate::plans::Plans;

/// How long a node may take to accept a cancel request.
const CANCEL_PATIENCE: Duration = Duration::from_secs(3);

/// Pause before checking again whether a session has ended.
const CANCEL_PAUSE: Duration = Duration::from_millis(100);

/// Of a row of `pg_stat_activity`.
const ACTIVE: &str = "a.state OPERATOR(pg_catalog.=) 'active'";

/// What is ended of backends.
#[derive(Clone, Copy, Debug)]
pub enum Ending {
    /// What they do.
    Statements,
    /// Those that do something: their code survives a cancellation.
    AtWork,
    /// Each of them.
    All,
}

/// Shared by all sessions.
#[derive(Debug)]
pub struct Registry {
    /// The cluster they work on.
    pub cluster: Arc<Cluster>,
    /// How many changes were committed that may change the schemas of a search path: schemas, rights
    /// to use them, roles.
    pub path_changes: AtomicU64,
    /// The connections that clients' transactions run on.
    pub pool: Pool,
    /// Statements that clients have prepared.
    pub statements: SharedStatements,
    /// Which session a cancel request is for.
    pub backends: Arc<Backends>,
    /// What sessions are doing, for deadlock detection and for changes of the schema.
    pub activities: Arc<Activities>,
    /// What node 1 has said of roles, for while it is away.
    pub(crate) known_roles: KnownRoles,
    /// Statements and plans that are known already.
    pub plans: Plans,
    /// When roles that made all sessions wait may do so again.
    pub pauses: Pauses,
    /// Which sessions are moving tables.
    pub redistributions: Arc<Redistributions>,
    /// Which sessions are executing which requests.
    pub requests: Arc<RequestsAtWork>,
    /// Cloned by each session that is preparing its client's transaction.
    pub preparing: Arc<()>,
    rows_dealt: AtomicU64,
    sessions: AtomicU64,
    /// Sessions with smaller numbers end as soon as they are outside a transaction.
    drained_below: AtomicU64,
}

impl Registry {
    /// No session yet. `activities`: those that the cluster tells of changes.
    pub fn new(cluster: Arc<Cluster>, activities: Arc<Activities>) -> Self {
        let backends = Arc::new(Backends::default());
        let surroundings = Arc::new(Surroundings {
            seals: cluster.seals.clone(),
            backends: backends.clone(),
            oids: cluster.publisher.clone(),
        });
        let pool = Pool::new(
            cluster.config.pool.clone(),
            cluster.endpoints.clone(),
            cluster.availability.clone(),
            cluster.incarnation(),
            surroundings,
        );
        Self {
            cluster,
            path_changes: AtomicU64::new(0),
            pool,
            statements: SharedStatements::default(),
            backends,
            activities,
            known_roles: KnownRoles::default(),
            plans: Plans::default(),
            pauses: Pauses::default(),
            redistributions: Arc::default(),
            requests: Arc::default(),
            preparing: Arc::default(),
            rows_dealt: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
            drained_below: AtomicU64::new(0),
        }
    }

    /// Counts rows of round-robin tables, so that they are distributed evenly.
    pub fn deal_row(&self) -> u64 {
        self.rows_dealt.fetch_add(1, Ordering::Relaxed)
    }

    /// From now on no transaction begins: sessions end as soon as they are outside one.
    pub fn drain(&self) {
        self.drained_below.store(u64::MAX, Ordering::Release);
        self.activities.wake_all();
    }

    /// The same of the sessions that there are, and of none that other gateways bring.
    pub fn hand_over(&self) {
        self.drained_below.store(self.sessions.load(Ordering::Relaxed) + 1, Ordering::Release);
        self.activities.wake_all();
    }

    /// No session goes on: each is told so as soon as it waits for its client, or for something in the gateway.
    pub fn end_all(&self) {
        self.activities.terminate_all(activity::TERMINATED_MESSAGE);
    }

    /// Whether the session of this number is to end.
    pub fn drains(&self, session: u64) -> bool {
        session < self.drained_below.load(Ordering::Acquire)
    }

    /// Whether the gateway is about to stop.
    pub fn is_stopping(&self) -> bool {
        self.drains(0)
    }

    /// Numbers a new session.
    pub fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The backends that work for these sessions, by node: their process ids there, and for which session.
    pub(crate) fn backends_by_node(
        &self,
        sessions: impl IntoIterator<Item = i32>,
    ) -> BTreeMap<NodeId, BTreeMap<i32, i32>> {
        let mut found: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for session in sessions {
            for target in self.backends.of(session) {
                let key = target.key();
                found.entry(key.node).or_default().insert(key.process_id, session);
            }
        }
        found
    }

    /// Sends cancel requests to these backends, and waits until the nodes have taken them: what is
    /// sent to a backend afterwards is not hit any more.
    pub async fn cancel(&self, targets: &[Target]) {
        for backend in targets.iter().map(Target::key) {
            let sent =
                cancel(self.cluster.endpoints.of(backend.node), backend.process_id, backend.secret);
            // A silent node would block the caller indefinitely.
            let sent = tokio::time::timeout(CANCEL_PATIENCE, sent).await;
            if let Err(error) = sent.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                tracing::warn!(node = %backend.node, %error, "cannot pass a cancel request on");
            }
        }
    }

    /// Ends these backends, or what they do; except one that waits for a standby: its transaction is
    /// committed.
    pub async fn end_backends(&self, targets: &[Target], ending: Ending) {
        let (how, which) = match ending {
            Ending::Statements => ("pg_cancel_backend", ACTIVE),
            Ending::AtWork => ("pg_terminate_backend", ACTIVE),
            Ending::All => ("pg_terminate_backend", "true"),
        };
        for target in targets {
            let backend = target.key();
            let sql = format!(
                "SELECT pg_catalog.{how}(a.pid) FROM pg_catalog.pg_stat_activity AS a \
                 WHERE a.pid OPERATOR(pg_catalog.=) {} \
                 AND EXISTS (SELECT FROM tutti.backend AS b \
                     WHERE b.pid OPERATOR(pg_catalog.=) a.pid \
                     AND b.started OPERATOR(pg_catalog.=) a.backend_start) \
                 AND {which} \
                 AND coalesce(a.wait_event, '') OPERATOR(pg_catalog.<>) 'SyncRep'",
                backend.process_id,
            );
            let asking = async {
                let mut connection = self.cluster.connections.checkout(backend.node).await?;
                connection.query(&sql).await?;
                self.cluster.connections.release(connection);
                Ok::<_, NodeError>(())
            };
            match tokio::time::timeout(CANCEL_PATIENCE, asking).await {
                Ok(Ok(())) => (),
                Ok(Err(error)) => {
                    tracing::warn!(node = %backend.node, %error, "cannot end a backend");
                }
                Err(_) => tracing::warn!(node = %backend.node, "a node ends no backend in time"),
            }
        }
    }

    /// Cancels what a session does, wherever it waits.
    pub async fn cancel_session(&self, process_id: i32) {
        self.activities.cancel(process_id);
        self.redistributions.cancel(process_id);
        self.cancel(&self.backends.of(process_id)).await;
    }

    /// Ends a session as soon as its statement does, which is cancelled; `why` is what its client is told last. If it
    /// is still there after `patience`, by force: its client may be silent in a COPY, or read nothing, or its code
    /// heed no cancellation.
    pub async fn end_session(
        self: &Arc<Self>,
        process_id: i32,
        why: &'static str,
        patience: Duration,
    ) {
        let force_from = Instant::now() + patience;
        self.activities.terminate(process_id, why);
        self.cancel_session(process_id).await;
        let registry = self.clone();
        // One that was about to send a statement to a node is not affected by the first cancel request: there was
        // nothing to cancel yet.
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(CANCEL_PAUSE).await;
                if !registry.activities.is_ending(process_id) {
                    return;
                }
                registry.cancel_session(process_id).await;
                if Instant::now() < force_from {
                    continue;
                }
                registry.activities.cut_off(process_id);
                let backends = registry.backends.of(process_id);
                registry.end_backends(&backends, Ending::AtWork).await;
            }
        });
    }

    /// The same for the session's backend on one node.
    pub async fn cancel_backend(&self, process_id: i32, node: NodeId) {
        let mut targets = self.backends.of(process_id);
        targets.retain(|target| target.key().node == node);
        self.cancel(&targets).await;
    }
}

/// The process ids of what [`Registry::backends_by_node`] gives for a node, as the elements of an array in SQL.
pub(crate) fn process_ids<S>(backends: &BTreeMap<i32, S>) -> String {
    backends.keys().map(i32::to_string).collect::<Vec<_>>().join(",")
}
