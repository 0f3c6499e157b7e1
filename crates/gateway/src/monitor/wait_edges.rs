//! Asking the nodes which backend waits for which, and cancelling one wait.
//!
//! Owns: one monitoring connection per node, and the SQL.
//! Never: keeps anything from one look for the next.
//! Start reading at [`Monitors::look`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tutti_cluster::catalog::Answer;
use tutti_cluster::error::GatewayError;
use tutti_cluster::numbers::txn_node;
use tutti_link::connection::{Durability, NodeConnection, open_own};
use tutti_sql::catalog::NodeId;
use tutti_txn::gid;
use tutti_txn::wait_graph::Wait;

use crate::registry::Registry;

/// A node that is slower is left out of the look.
const ANSWER_PATIENCE: Duration = Duration::from_secs(2);
/// When a wait began, in microseconds of the node's clock: with the waiting process, its identity.
const SINCE_US: &str = "(EXTRACT(EPOCH FROM l.waitstart) * 1000000)::pg_catalog.int8";

/// What is waited for, in words.
const WHAT: &str = "l.mode || ' on ' || CASE l.locktype
    WHEN 'transactionid' THEN 'transaction ' || l.transactionid::pg_catalog.text
    WHEN 'virtualxid' THEN 'virtual transaction ' || l.virtualxid
    WHEN 'relation' THEN 'relation ' || l.relation::pg_catalog.regclass::pg_catalog.text
    WHEN 'tuple' THEN pg_catalog.format('tuple (%s,%s) of relation %s',
        l.page, l.tuple, l.relation::pg_catalog.regclass)
    WHEN 'advisory' THEN pg_catalog.format('advisory lock [%s,%s,%s,%s]',
        l.database, l.classid, l.objid, l.objsubid)
    ELSE l.locktype END";

/// Who can wait. Ordered by the begin of transactions, those that are not ours first, so
/// that the youngest of several is one that can be ended.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Party {
    /// A backend that does not work for one of our sessions.
    Outsider {
        /// Where.
        node: gid::NodeId,
        /// Its process id there.
        pid: i32,
    },
    /// One of our sessions' transactions.
    Session {
        /// Earliest begin on any node, in microseconds since 1970; 0 if the gateway may not see it.
        /// Clocks of nodes differ, so who is youngest is only about right; nothing else depends on
        /// it.
        started_us: i64,
        /// As the client knows it.
        process_id: i32,
        /// It reads in a transaction of its own, and is run again.
        gives_way: bool,
    },
}

impl Party {
    /// Whether it is ours, and its client does not notice when it is ended.
    pub(super) fn runs_again(&self) -> bool {
        matches!(self, Self::Session { gives_way: true, .. })
    }

    /// Whether it is ours, and can be told why it is ended.
    pub(super) fn is_session(&self) -> bool {
        matches!(self, Self::Session { .. })
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Outsider { node, pid } => write!(f, "process {pid} of node {node}"),
            Self::Session { process_id, .. } => write!(f, "process {process_id}"),
        }
    }
}

/// One backend's wait for a lock. Never recurs once it has ended: `since_us` is the clock's.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct LockWait {
    /// The waiting process.
    pub pid: i32,
    /// When it began to.
    pub since_us: i64,
    /// Mode and object, in words.
    pub what: String,
}

/// What holds the lock that another waits for.
#[derive(Clone, Debug)]
enum Holder {
    /// A process of the node.
    Process(i32),
    /// What is prepared on it, by its name.
    Prepared(String),
}

/// What one node shows.
#[derive(Debug, Default)]
struct NodeView {
    /// Each wait, with what must end first.
    waits: Vec<(LockWait, Holder)>,
    /// Processes with an open transaction, and when that began.
    started_us: Vec<(i32, i64)>,
}

/// Connections to the nodes, opened when first needed.
#[derive(Debug, Default)]
pub(super) struct Monitors {
    connections: BTreeMap<NodeId, NodeConnection>,
}

impl Monitors {
    /// Asks all nodes concurrently. One that does not answer is left out.
    pub(super) async fn collect(
        &mut self,
        registry: &Arc<Registry>,
    ) -> BTreeSet<Wait<Party, LockWait>> {
        let mut asked = JoinSet::new();
        for endpoint in registry.cluster.endpoints.iter() {
            let (endpoint, node) = (endpoint.clone(), endpoint.node());
            let kept = self.connections.remove(&node);
            asked.spawn(async move {
                let asked = async {
                    let mut connection = match kept {
                        Some(connection) => connection,
                        None => open_own(&endpoint, "tutti deadlock", Durability::Relaxed).await?,
                    };
                    let view = ask(&mut connection).await?;
                    Ok::<_, GatewayError>((connection, view))
                };
                (node, tokio::time::timeout(ANSWER_PATIENCE, asked).await)
            });
        }
        let mut views = Vec::new();
        while let Some(answered) = asked.join_next().await {
            match answered {
                Ok((node, Ok(Ok((connection, view))))) => {
                    self.connections.insert(node, connection);
                    views.push((node, view));
                }
                Ok((node, Ok(Err(error)))) => {
                    tracing::warn!(%node, %error, "cannot look for deadlocks");
                }
                Ok((node, Err(_))) => {
                    tracing::warn!(%node, "no answer in time when looking for deadlocks");
                }
                Err(error) => tracing::error!(%error, "a look for deadlocks failed by a bug"),
            }
        }
        let gives_way = |process_id| {
            registry.activities.of(process_id).is_some_and(|activity| activity.gives_way())
        };
        let committing = registry.activities.committing();
        waits_of(&registry.backends.sessions_by_backend(), &committing, views, gives_way)
    }

    /// Cancels the statement that is in this wait, if it still is. False if it is not.
    pub(super) async fn cancel(
        &mut self,
        node: NodeId,
        wait: &LockWait,
    ) -> Result<bool, GatewayError> {
        let Some(connection) = self.connections.get_mut(&node) else { return Ok(false) };
        let LockWait { pid, since_us, .. } = wait;
        let sql = format!(
            "SELECT pg_catalog.pg_cancel_backend(pid) FROM (SELECT DISTINCT l.pid
                FROM pg_catalog.pg_locks l
                WHERE NOT l.granted AND l.pid = {pid} AND {SINCE_US} = {since_us}) AS waiting"
        );
        let rows = match tokio::time::timeout(ANSWER_PATIENCE, connection.rows(&sql)).await {
            Ok(rows) => rows?,
            Err(_) => {
                // Its answer must not be taken for that of the next question.
                self.connections.remove(&node);
                return Ok(false);
            }
        };
        let answer = Answer { node, what: "a cancelled wait", rows: &rows };
        Ok(!answer.is_empty() && answer.boolean(0, 0)?)
    }

    /// Until the next look.
    pub(super) fn close(&mut self) {
        for (_, connection) in std::mem::take(&mut self.connections) {
            connection.close();
        }
    }
}

/// The waits and the begins of transactions. `pg_locks` and `pg_blocking_pids` are open to any role;
/// other roles' transactions are not, without pg_read_all_stats.
///
/// The two are not one instant: a wait may end and another begin between the row of `pg_locks` and
/// the call. The next look then does not find the first one any more, so the mixture is not believed.
/// A prepared transaction is shown as process 0; among its locks is one of its own number. One of a session's that has not
/// voted everywhere yet may wait for others, where it is about to: on another node, its deferred constraints are checked.
async fn ask(connection: &mut NodeConnection) -> Result<NodeView, GatewayError> {
    let node = connection.node();
    let sql = format!(
        "SELECT l.pid, {SINCE_US}, b.pid, {WHAT} FROM pg_catalog.pg_locks l
        CROSS JOIN LATERAL pg_catalog.unnest(pg_catalog.pg_blocking_pids(l.pid)) AS b (pid)
        WHERE NOT l.granted AND l.waitstart IS NOT NULL AND b.pid <> 0;
        SELECT l.pid, {SINCE_US}, x.gid, {WHAT}
        FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_locks h ON h.granted AND h.pid IS NULL
            AND h.locktype = l.locktype
            AND (h.database, h.relation, h.page, h.tuple, h.transactionid, h.classid, h.objid, h.objsubid)
                IS NOT DISTINCT FROM
                (l.database, l.relation, l.page, l.tuple, l.transactionid, l.classid, l.objid, l.objsubid)
        JOIN pg_catalog.pg_locks o ON o.granted AND o.pid IS NULL AND o.locktype = 'transactionid'
            AND o.virtualtransaction = h.virtualtransaction
        JOIN pg_catalog.pg_prepared_xacts x ON x.transaction = o.transactionid
        WHERE NOT l.granted AND l.waitstart IS NOT NULL AND 0 = ANY (pg_catalog.pg_blocking_pids(l.pid));
        SELECT pid, (EXTRACT(EPOCH FROM xact_start) * 1000000)::pg_catalog.int8
        FROM pg_catalog.pg_stat_activity WHERE xact_start IS NOT NULL"
    );
    let results = connection.query(&sql).await?;
    let [waits, for_prepared, started] = &results[..] else {
        return Err(GatewayError::Unreadable { node, what: "waits" });
    };
    let mut view = NodeView::default();
    let wait_in = |answer: &Answer<'_>, row| {
        let what = answer.text(row, 3)?.to_owned();
        let (pid, since_us) = (answer.number(row, 0)?, answer.number(row, 1)?);
        Ok::<_, GatewayError>(LockWait { pid, since_us, what })
    };
    let answer = Answer { node, what: "waits", rows: waits };
    for row in 0..answer.len() {
        let holder = Holder::Process(answer.number(row, 2)?);
        view.waits.push((wait_in(&answer, row)?, holder));
    }
    let answer = Answer { node, what: "waits for prepared transactions", rows: for_prepared };
    for row in 0..answer.len() {
        let holder = Holder::Prepared(answer.text(row, 2)?.to_owned());
        view.waits.push((wait_in(&answer, row)?, holder));
    }
    let answer = Answer { node, what: "begins of transactions", rows: started };
    for row in 0..answer.len() {
        view.started_us.push((answer.number(row, 0)?, answer.number(row, 1)?));
    }
    Ok(view)
}

/// Processes and what is prepared become parties: those of one session become one.
fn waits_of(
    backends: &HashMap<(NodeId, i32), i32>,
    committing: &HashMap<String, i32>,
    views: Vec<(NodeId, NodeView)>,
    gives_way: impl Fn(i32) -> bool,
) -> BTreeSet<Wait<Party, LockWait>> {
    let mut started: HashMap<i32, i64> = HashMap::new();
    for (node, view) in &views {
        for (pid, started_us) in &view.started_us {
            if let Some(session) = backends.get(&(*node, *pid)) {
                let earliest = started.entry(*session).or_insert(*started_us);
                *earliest = (*earliest).min(*started_us);
            }
        }
    }
    let session = |process_id: i32| Party::Session {
        gives_way: gives_way(process_id),
        started_us: started.get(&process_id).copied().unwrap_or(0),
        process_id,
    };
    let party = |node: NodeId, pid: i32| match backends.get(&(node, pid)) {
        Some(process_id) => session(*process_id),
        None => Party::Outsider { node: txn_node(node), pid },
    };
    let mut waits = BTreeSet::new();
    for (node, view) in views {
        for (identity, holder) in view.waits {
            let blocker = match holder {
                Holder::Process(pid) => party(node, pid),
                Holder::Prepared(gid) => match committing.get(&gid) {
                    Some(process_id) => session(*process_id),
                    // It is decided, or recovery's, or a client's own: it waits for nothing.
                    None => continue,
                },
            };
            let waiter = party(node, identity.pid);
            waits.insert(Wait { waiter, blocker, node: txn_node(node), identity });
        }
    }
    waits
}
