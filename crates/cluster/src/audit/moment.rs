//! One moment of all nodes, taken without the gateway.
//!
//! Owns: the auditor's connections, two to a node: the exporter keeps the moment's snapshot, the worker
//! reads by it, one transaction at a time.
//! Never: needs a gateway, keeps a lock beyond one transaction of the worker.
//! Start reading at [`Moment::take`].
//!
//! **Why the moment is one.** A transaction over several nodes is visible on one of them and not yet on
//! another between its decision and the last COMMIT PREPARED. Every decision is a row of `tutti.decision`
//! on its anchor. So on each node that table is locked against writers (SHARE: readers go on); from then
//! on nothing is decided. What was decided before, and is still prepared somewhere, is waited for. Then no
//! transaction is half visible, and each node's snapshot is taken. Then the locks are released; all of it
//! takes a few round trips, in which transactions over several nodes cannot be decided, and no others
//! wait. Transactions of one node go on meanwhile: on its one node a snapshot shows each of them or not.
//!
//! What was decided and stays prepared, because its gateway has died, cannot be waited for. Then the
//! moment lists the tables it has written: what those hold is not known yet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tutti_configuration::Config;
use tutti_link::Endpoint;
use tutti_link::connection::{Durability, NodeConnection, NodeError, Rows, open_own};
use tutti_sql::catalog::NodeId;
use tutti_txn::gid::Gid;

use crate::catalog::Answer;
use crate::error::{GatewayError, in_full};
use crate::setup::check_identity;

/// The name of the auditor's backends on nodes.
pub(super) const NAME: &str = "tutti check";
/// A node that has not answered a small question within this is unreachable.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same while the fence stands.
const FENCED_PATIENCE: Duration = Duration::from_secs(2);
/// How long the fence waits for writers of `tutti.decision`; later ones wait for the fence.
const FENCE_PATIENCE_MS: u32 = 300;
/// How long what was decided may take to be applied while nothing else is decided.
const APPLICATION_PATIENCE: Duration = Duration::from_millis(700);
const POLL: Duration = Duration::from_millis(3);
/// How often putting up the fence is tried.
const ATTEMPTS: u32 = 6;

/// Makes a value's text exact and the same on all nodes, planning a scan evaluate none of a table's
/// checks, and waits short.
const SETTINGS: &str = "SELECT pg_catalog.set_config(s.name, s.value, false)
FROM (VALUES ('datestyle', 'ISO, YMD'), ('intervalstyle', 'iso_8601'), ('timezone', 'UTC'),
    ('extra_float_digits', '3'), ('bytea_output', 'hex'), ('xmloption', 'content'),
    ('lc_monetary', 'C'), ('array_nulls', 'on'), ('row_security', 'off'),
    ('quote_all_identifiers', 'off'), ('constraint_exclusion', 'off'), ('jit', 'off'),
    ('max_parallel_workers_per_gather', '0'), ('lock_timeout', '2s'),
    ('transform_null_equals', 'off'), ('synchronize_seqscans', 'off'),
    ('escape_string_warning', 'off'), ('client_min_messages', 'error')) AS s (name, value);";

/// What is prepared here and decided here of this cluster.
const COMMITS: &str = "SELECT 'prepared', gid FROM pg_catalog.pg_prepared_xacts
WHERE database = pg_catalog.current_database()
UNION ALL SELECT 'decided', gid FROM tutti.decision WHERE decision = 'committed'";

/// The tables that a prepared transaction has locked as a write does.
const WRITTEN_BY: &str = "SELECT DISTINCT x.gid, n.nspname, c.relname
FROM pg_catalog.pg_prepared_xacts x
JOIN pg_catalog.pg_locks k ON k.locktype = 'transactionid' AND k.transactionid = x.transaction
    AND k.pid IS NULL
JOIN pg_catalog.pg_locks l ON l.virtualtransaction = k.virtualtransaction AND l.pid IS NULL
    AND l.locktype = 'relation' AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')
JOIN pg_catalog.pg_class c ON c.oid = l.relation
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE x.database = pg_catalog.current_database()";

/// A table's name: schema and table.
pub(super) type Name = (String, String);

/// The answers of several nodes to one question.
pub(super) type Answers = BTreeMap<NodeId, Result<Vec<Rows>, NodeError>>;

/// Connections to nodes.
#[derive(Debug, Default)]
pub(super) struct Connections(pub BTreeMap<NodeId, NodeConnection>);

impl Connections {
    /// Asks each node its question, concurrently. A connection that breaks, or is silent for longer
    /// than `patience`, is gone afterwards.
    pub async fn ask(
        &mut self,
        patience: Option<Duration>,
        question: impl Fn(NodeId) -> Option<String>,
    ) -> Answers {
        let mut asked = JoinSet::new();
        let mut left = BTreeMap::new();
        for (node, mut connection) in std::mem::take(&mut self.0) {
            let Some(sql) = question(node) else {
                left.insert(node, connection);
                continue;
            };
            asked.spawn(async move {
                let answer = match patience {
                    Some(patience) => timeout(patience, connection.query(&sql)).await,
                    None => Ok(connection.query(&sql).await),
                };
                let late = || NodeError::Lost { node, source: std::io::ErrorKind::TimedOut.into() };
                let is_late = answer.is_err();
                (connection, answer.unwrap_or_else(|_| Err(late())), is_late)
            });
        }
        let mut answers = Answers::new();
        while let Some(done) = asked.join_next().await {
            let (connection, answer, is_late) = done.expect("a query does not panic");
            let node = connection.node();
            answers.insert(node, answer);
            if !connection.is_broken() && !is_late {
                left.insert(node, connection);
            }
        }
        self.0 = left;
        answers
    }

    /// The same question to all, which has a short answer.
    pub async fn ask_all(&mut self, sql: &str) -> Answers {
        self.ask(Some(PATIENCE), |_| Some(sql.to_owned())).await
    }

    /// The same while others wait for the fence.
    async fn ask_fenced(&mut self, sql: &str) -> Answers {
        self.ask(Some(FENCED_PATIENCE), |_| Some(sql.to_owned())).await
    }

    /// The nodes that are connected.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.0.keys().copied().collect()
    }

    fn close(&mut self) {
        for connection in std::mem::take(&mut self.0).into_values() {
            connection.close();
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Moment {
    exporters: Connections,
    /// In no transaction, unless a check is reading.
    pub workers: Connections,
    /// The names by which workers import.
    snapshots: BTreeMap<NodeId, String>,
    /// Why there is no snapshot of a node.
    pub away: BTreeMap<NodeId, String>,
    /// Decided, and still prepared somewhere; with what each has written.
    pub unapplied: BTreeMap<Gid, BTreeSet<Name>>,
}

impl Moment {
    /// Connects to all nodes that answer and are the right servers, and takes the moment.
    ///
    /// Errors: no node answers; or the fence cannot be put up because `tutti.decision` is kept
    /// locked.
    pub async fn take(config: &Config) -> Result<Self, GatewayError> {
        let mut away = BTreeMap::new();
        let (mut workers, mut exporters) = (Connections::default(), Connections::default());
        let mut opening = JoinSet::new();
        for node in config.nodes.iter().map(|node| NodeId(node.id)) {
            let config = config.clone();
            opening.spawn(async move { (node, open_both(&config, node).await) });
        }
        let mut first_error = None;
        while let Some(opened) = opening.join_next().await {
            let (node, opened) = opened.expect("opening does not panic");
            match opened {
                Ok((worker, exporter)) => {
                    workers.0.insert(node, worker);
                    exporters.0.insert(node, exporter);
                }
                Err(error) => {
                    away.insert(node, in_full(&error));
                    first_error.get_or_insert(error);
                }
            }
        }
        if let (true, Some(error)) = (workers.0.is_empty(), first_error) {
            return Err(error);
        }
        let (snapshots, unapplied) = (BTreeMap::new(), BTreeMap::new());
        let mut moment = Self { exporters, workers, snapshots, away, unapplied };
        moment.retake(config).await?;
        Ok(moment)
    }

    /// A new moment, by the same connections.
    pub async fn retake(&mut self, config: &Config) -> Result<(), GatewayError> {
        self.release().await;
        for attempt in 1..=ATTEMPTS {
            if self.attempt(config, attempt == ATTEMPTS).await? {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20 << attempt)).await;
        }
        Err(GatewayError::NoMoment)
    }

    async fn attempt(&mut self, config: &Config, is_last: bool) -> Result<bool, GatewayError> {
        let fence = format!(
            "BEGIN; SET LOCAL lock_timeout = {FENCE_PATIENCE_MS}; LOCK TABLE tutti.decision IN SHARE MODE"
        );
        let fenced = self.workers.ask_fenced(&fence).await;
        let stands = fenced.values().all(Result::is_ok);
        let mut taken = false;
        if stands {
            let unapplied = self.wait_for_application().await?;
            if unapplied.is_empty() || is_last {
                self.unapplied = unapplied;
                self.export().await?;
                taken = true;
            }
        }
        self.workers.ask_fenced("ROLLBACK").await;
        self.note_gone(&fenced);
        if taken && !self.unapplied.is_empty() {
            self.find_written().await?;
        }
        // A node that came back meanwhile may have decided something.
        Ok(taken && !self.is_somebody_back(config).await)
    }

    /// Requires: the fence stands. Returns what is still unapplied after [`APPLICATION_PATIENCE`].
    async fn wait_for_application(
        &mut self,
    ) -> Result<BTreeMap<Gid, BTreeSet<Name>>, GatewayError> {
        let give_up = Instant::now() + APPLICATION_PATIENCE;
        loop {
            let (mut prepared, mut decided) = (BTreeSet::new(), BTreeSet::new());
            for (node, answer) in self.workers.ask_fenced(COMMITS).await {
                let Ok(results) = answer else { continue };
                let rows = results.first().cloned().unwrap_or_default();
                let answer = Answer { node, what: "what is prepared and decided", rows: &rows };
                for row in 0..answer.len() {
                    let Ok(gid) = answer.text(row, 1)?.parse::<Gid>() else { continue };
                    match answer.text(row, 0)? {
                        "prepared" => prepared.insert(gid),
                        _ => decided.insert(gid),
                    };
                }
            }
            let unapplied: BTreeMap<_, _> =
                prepared.intersection(&decided).map(|gid| (gid.clone(), BTreeSet::new())).collect();
            if unapplied.is_empty() || give_up < Instant::now() {
                return Ok(unapplied);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Requires: the fence stands.
    async fn export(&mut self) -> Result<(), GatewayError> {
        const EXPORT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT pg_catalog.pg_export_snapshot()";
        self.snapshots.clear();
        let exported = self.exporters.ask_fenced(EXPORT).await;
        for (node, answer) in &exported {
            let Ok(results) = answer else { continue };
            if let Some(name) = results.last().and_then(|rows| rows.text(0, 0)) {
                self.snapshots.insert(*node, name.to_owned());
            }
        }
        self.note_gone(&exported);
        Ok(())
    }

    async fn find_written(&mut self) -> Result<(), GatewayError> {
        for (node, answer) in self.workers.ask_all(WRITTEN_BY).await {
            let Ok(results) = answer else { continue };
            let rows = results.first().cloned().unwrap_or_default();
            let answer = Answer { node, what: "what is prepared", rows: &rows };
            for row in 0..answer.len() {
                let Ok(gid) = answer.text(row, 0)?.parse::<Gid>() else { continue };
                if let Some(written) = self.unapplied.get_mut(&gid) {
                    written
                        .insert((answer.text(row, 1)?.to_owned(), answer.text(row, 2)?.to_owned()));
                }
            }
        }
        Ok(())
    }

    async fn is_somebody_back(&self, config: &Config) -> bool {
        for node in &config.nodes {
            let id = NodeId(node.id);
            if !self.workers.0.contains_key(&id)
                && let Ok(Ok((worker, exporter))) =
                    timeout(Duration::from_secs(1), open_both(config, id)).await
            {
                worker.close();
                exporter.close();
                return true;
            }
        }
        false
    }

    fn note_gone(&mut self, answers: &Answers) {
        for (node, answer) in answers {
            let is_gone =
                !self.workers.0.contains_key(node) || !self.exporters.0.contains_key(node);
            if let (true, Err(error)) = (is_gone, answer) {
                self.away.entry(*node).or_insert_with(|| in_full(error));
                self.workers.0.remove(node);
                self.exporters.0.remove(node);
                self.snapshots.remove(node);
            }
        }
    }

    /// A node no longer answers.
    pub fn lose(&mut self, node: NodeId, why: String) {
        self.away.entry(node).or_insert(why);
        self.workers.0.remove(&node);
        self.exporters.0.remove(&node);
        self.snapshots.remove(&node);
    }

    /// The connection that reads on a node, and the one that can see whether others wait for it.
    pub fn worker_and_exporter(
        &mut self,
        node: NodeId,
    ) -> Option<(&mut NodeConnection, &mut NodeConnection)> {
        Some((self.workers.0.get_mut(&node)?, self.exporters.0.get_mut(&node)?))
    }

    /// What a worker's transaction at this moment begins with.
    pub fn begin(&self, node: NodeId) -> Option<String> {
        self.snapshots.get(&node).map(|name| {
            format!(
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT '{name}';"
            )
        })
    }

    /// The id of the cluster that node 1 belongs to.
    pub async fn cluster_id(&mut self) -> Option<String> {
        let home = self.workers.0.get_mut(&NodeId::HOME)?;
        let rows = home.rows("SELECT id FROM tutti.cluster").await.ok()?;
        rows.text(0, 0).map(str::to_owned)
    }

    /// Releases the snapshots, which hold back vacuum.
    async fn release(&mut self) {
        if !self.snapshots.is_empty() {
            self.snapshots.clear();
            self.exporters.ask_all("ROLLBACK").await;
        }
    }

    /// Ends the moment.
    pub fn close(mut self) {
        self.exporters.close();
        self.workers.close();
    }
}

async fn open_both(
    config: &Config,
    node: NodeId,
) -> Result<(NodeConnection, NodeConnection), GatewayError> {
    let place = &config.nodes[usize::from(node.0) - 1];
    let endpoint = Endpoint::new(place, &config.database);
    let mut worker = open_own(&endpoint, NAME, Durability::Relaxed).await?;
    check_identity(&mut worker, config, None).await?;
    worker.rows(SETTINGS).await?;
    let exporter = open_own(&endpoint, NAME, Durability::Relaxed).await?;
    Ok((worker, exporter))
}
