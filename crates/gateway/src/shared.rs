//! What all sessions of one gateway share.
//!
//! Owns: the source of global transaction identifiers, the registry by which
//! cancel requests find their session, and decisions that may be forgotten.
//! Never: holds a lock across an await.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use tutti_sql::catalog::{Catalog, NodeId};
use tutti_txn::decision::Decision;
use tutti_txn::gid::{ClusterTag, Gid};

use crate::backends::{Backends, Target};
use crate::catalog::share::{self, Wanted};
use crate::catalog::{OidMaps, Publisher, Seals};
use crate::config::{Config, NodeConfig};
use crate::deadlock::Activities;
use crate::error::GatewayError;
use crate::finisher::{self, Finishers};
use crate::isolation::applying::Applying;
use crate::isolation::connections::OwnConnections;
use crate::isolation::rooms::Doors;
use crate::isolation::serial::Writers;
use crate::isolation::snapshots::Snapshots;
use crate::isolation::turns::Turns;
use crate::live::Live;
use crate::node::{self, NodeError, Rows};
use crate::nodes::Nodes;
use crate::plans::Plans;
use crate::pool::{Pool, SharedStatements};
use crate::recovery::doubts::Doubts;
use crate::sentinel::Sentinels;
use crate::session::Pauses;

/// Of a transaction's number, so many bits are drawn by chance.
const CHANCE_BITS: u32 = 20;
/// How long a node may take to take a cancel request.
const CANCEL_PATIENCE: Duration = Duration::from_secs(3);

/// Shared by all sessions.
#[derive(Debug)]
pub struct Shared {
    /// As configured.
    pub config: Config,
    /// Transactions that are decided and not applied everywhere.
    pub applying: Arc<Applying>,
    /// The commit room and the snapshot room.
    pub doors: Arc<Doors>,
    /// Turns for the votes of SERIALIZABLE transactions.
    pub turns: Arc<Turns>,
    /// Turns for their becoming visible.
    pub places: Arc<Turns>,
    /// How many changes were committed that may give a search path other schemas: schemas, rights to
    /// use them, roles.
    pub path_changes: AtomicU64,
    /// SERIALIZABLE transactions that may write.
    pub serial_writers: Arc<Writers>,
    /// Snapshots of all nodes.
    pub snapshots: Arc<Snapshots>,
    /// What makes nodes see SERIALIZABLE transactions over several of them.
    pub sentinels: Arc<Sentinels>,
    /// The gateway's own connections.
    pub connections: Arc<OwnConnections>,
    /// What ends global transactions on nodes, and records decisions.
    pub finishers: Finishers,
    /// The connections that clients' transactions run on.
    pub pool: Pool,
    /// Statements that clients have prepared.
    pub statements: SharedStatements,
    /// Whom cancel requests mean.
    pub backends: Backends,
    /// What sessions are at, for whoever looks for deadlocks.
    pub activities: Activities,
    /// Which nodes may be read.
    pub nodes: Arc<Nodes>,
    /// The newest catalog.
    pub publisher: Arc<Publisher>,
    /// What tells the nodes that a statement in a client's transaction is the gateway's.
    pub seals: Arc<Seals>,
    /// Global transactions that are being committed here.
    pub live: Live,
    /// Those that recovery must finish.
    pub doubts: Doubts,
    /// Statements and plans that are known already.
    pub plans: Plans,
    /// When roles for which everybody has waited may do that again.
    pub pauses: Pauses,
    /// Cloned by each session that is preparing a transaction of its client's.
    pub preparing: Arc<()>,
    bringing_roles: tokio::sync::Mutex<()>,
    cluster: ClusterTag,
    incarnation: u64,
    transactions: AtomicU64,
    /// Of the numbers of transactions.
    chance: RandomState,
    rows_dealt: AtomicU64,
    sessions: AtomicU64,
    draining: AtomicBool,
}

impl Shared {
    /// For a gateway of this incarnation with this catalog.
    ///
    /// Requires: [`Config::check`] has passed, which makes the cluster's name a tag.
    pub fn new(
        config: Config,
        incarnation: u64,
        catalog: Catalog,
        oids: OidMaps,
        seals: Seals,
    ) -> Self {
        let cluster = config.cluster.parse().expect("Config::check has passed");
        let finishers = Finishers::new(&Arc::new(config.clone()), finisher::LANES_DEFAULT);
        let doors = Doors::new(config.switches.rooms);
        let nodes = Arc::new(Nodes::new(&config));
        let connections = Arc::new(OwnConnections::new(nodes.clone()));
        let seals = Arc::new(seals);
        Self {
            pool: Pool::new(config.clone(), nodes.clone(), incarnation, seals.clone()),
            statements: SharedStatements::default(),
            backends: Backends::default(),
            applying: Applying::new(config.switches.rooms),
            turns: Arc::default(),
            places: Arc::default(),
            path_changes: AtomicU64::new(0),
            serial_writers: Arc::default(),
            snapshots: Snapshots::new(
                config.clone(),
                nodes.clone(),
                doors.clone(),
                connections.clone(),
            ),
            sentinels: Sentinels::start(&config),
            doors,
            connections,
            nodes,
            publisher: Publisher::new(catalog, oids),
            seals,
            live: Live::default(),
            doubts: Doubts::default(),
            plans: Plans::default(),
            config,
            finishers,
            activities: Activities::default(),
            pauses: Pauses::default(),
            preparing: Arc::default(),
            bringing_roles: tokio::sync::Mutex::default(),
            cluster,
            incarnation,
            transactions: AtomicU64::new(0),
            chance: RandomState::new(),
            rows_dealt: AtomicU64::new(0),
            sessions: AtomicU64::new(0),
            draining: AtomicBool::new(false),
        }
    }

    /// The number of this gateway's life.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The newest catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.publisher.catalog()
    }

    /// Makes roles on `node` what they are on node 1, as far as that is committed.
    pub async fn bring_roles(&self, node: NodeId) -> Result<(), GatewayError> {
        // Two would make the same.
        let _one = self.bringing_roles.lock().await;
        let (config, connections) = (&self.config, &self.connections);
        let mut home = connections.lend(config, NodeId::HOME).await?;
        home.query("BEGIN").await?;
        let roles = share::read_definitions(&mut home, Wanted::ROLES, &self.seals).await;
        home.query("ROLLBACK").await?;
        connections.give_back(home);
        let roles = roles?;
        let mut other = connections.lend(config, node).await?;
        other.query("BEGIN").await?;
        let made = share::make_definitions(&mut other, &roles, Wanted::ROLES, &self.seals).await;
        // Of a transaction that has failed this is the end, too.
        other.query("COMMIT").await?;
        connections.give_back(other);
        made?;
        Ok(())
    }

    /// Whether `node` lacks a role that node 1 has, in a cluster where it may.
    pub async fn lacks_a_role(&self, node: NodeId) -> Result<bool, GatewayError> {
        if !self.catalog().home_by_default {
            return Ok(false);
        }
        let (config, connections) = (&self.config, &self.connections);
        let mut home = connections.lend(config, NodeId::HOME).await?;
        let mut other = connections.lend(config, node).await?;
        let lacks = share::lacks_a_role(&mut home, &mut other).await;
        connections.give_back(home);
        connections.give_back(other);
        lacks
    }

    /// What is committed on node 1 of what tables that are spread may need.
    pub async fn committed_definitions(&self) -> Result<String, GatewayError> {
        let mut home = self.connections.lend(&self.config, NodeId::HOME).await?;
        let found = share::committed_definitions(&mut home).await;
        self.connections.give_back(home);
        found
    }

    /// Asks a node by a connection of the gateway's own, and waits no longer than this.
    ///
    /// Errors: the node does not answer, or refuses.
    pub async fn ask_within(
        &self,
        limit: Duration,
        node: NodeId,
        sql: &str,
    ) -> Result<Rows, GatewayError> {
        let asked = async {
            let mut connection = self.connections.lend(&self.config, node).await?;
            let rows = connection.rows(sql).await?;
            self.connections.give_back(connection);
            Ok(rows)
        };
        // One that was given up half-way is not given back.
        timeout(limit, asked).await.unwrap_or_else(|_| {
            Err(NodeError::Lost { node, source: std::io::ErrorKind::TimedOut.into() }.into())
        })
    }

    /// Makes `known` the newest catalog, if it is another one.
    pub fn refresh_catalog(&self, known: &mut Arc<Catalog>) {
        self.publisher.refresh(known);
    }

    /// How the nodes' OIDs differ from node 1's.
    pub fn oids(&self) -> Arc<OidMaps> {
        self.publisher.oids()
    }

    /// A schema change that wants no publication at once, for it concerns node 1 alone, has ended.
    pub fn note_changed(&self) {
        self.publisher.note_changed();
    }

    /// How to reach a node. Panics for a node that is not in the catalog.
    pub fn node(&self, node: NodeId) -> &NodeConfig {
        &self.config.nodes[usize::from(node.0) - 1]
    }

    /// A fresh global transaction identifier.
    pub fn next_gid(&self, anchor: NodeId) -> Gid {
        Gid {
            cluster: self.cluster.clone(),
            incarnation: self.incarnation,
            number: self.next_number(),
            anchor: tutti_txn::gid::NodeId(anchor.0),
        }
    }

    /// Never the same again. Nobody can tell the next from the last: who prepares a transaction under an
    /// identifier that is not given out yet would keep ours from it.
    fn next_number(&self) -> u64 {
        let count = self.transactions.fetch_add(1, Ordering::Relaxed) + 1;
        count << CHANCE_BITS | self.chance.hash_one(count) >> (u64::BITS - CHANCE_BITS)
    }

    /// Counts rows of round-robin tables, so that they are dealt out evenly.
    pub fn deal_row(&self) -> u64 {
        self.rows_dealt.fetch_add(1, Ordering::Relaxed)
    }

    /// From now on no transaction begins: sessions end as soon as they are in none.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.activities.wake_all();
    }

    /// Whether the gateway is about to stop.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Numbers a new session.
    pub fn next_session(&self) -> u64 {
        self.sessions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Sends cancel requests to these backends, and waits until the nodes have taken them: what is
    /// sent to a backend afterwards is not hit any more.
    pub async fn cancel(&self, targets: &[Target]) {
        for backend in targets.iter().map(Target::key) {
            let sent = node::cancel(self.node(backend.node), backend.process_id, backend.secret);
            // A node that says nothing would keep whoever cancels for ever.
            let sent = tokio::time::timeout(CANCEL_PATIENCE, sent).await;
            if let Err(error) = sent.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                tracing::warn!(node = %backend.node, %error, "cannot pass a cancel request on");
            }
        }
    }

    /// Ends these backends, whose code goes on behind a cancellation; or with `only_cancels` what they do,
    /// but for a wait for a standby: what waits there is committed.
    pub async fn end_backends(&self, targets: &[Target], only_cancels: bool) {
        let how = if only_cancels { "pg_cancel_backend" } else { "pg_terminate_backend" };
        for backend in targets.iter().map(Target::key) {
            let sql = format!(
                "SELECT pg_catalog.{how}(a.pid) FROM pg_catalog.pg_stat_activity AS a \
                 WHERE a.pid OPERATOR(pg_catalog.=) {} \
                 AND a.state OPERATOR(pg_catalog.=) 'active' \
                 AND coalesce(a.wait_event, '') OPERATOR(pg_catalog.<>) 'SyncRep'",
                backend.process_id
            );
            let asking = async {
                let mut connection = self.connections.lend(&self.config, backend.node).await?;
                connection.query(&sql).await?;
                self.connections.give_back(connection);
                Ok::<_, node::NodeError>(())
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
        self.cancel(&self.backends.of(process_id)).await;
    }

    /// The same for the session's backend on one node.
    pub async fn cancel_backend(&self, process_id: i32, node: NodeId) {
        let mut targets = self.backends.of(process_id);
        targets.retain(|target| target.key().node == node);
        self.cancel(&targets).await;
    }

    /// The cluster's name as it is in gids.
    pub fn cluster(&self) -> &ClusterTag {
        &self.cluster
    }

    /// A global transaction has committed on all its nodes: its record may be forgotten.
    pub fn note_applied(&self, gid: Gid) {
        self.doubts.note_applied([gid]);
    }

    /// A coordinator cannot finish this node; recovery does. Unless it is certain that the
    /// transaction is aborted, the node is closed to reads when this returns.
    pub fn leave_to_recovery(&self, gid: &Gid, node: NodeId, decision: Option<Decision>) {
        let closes = decision != Some(Decision::Aborted);
        self.doubts.add(&self.nodes, gid, node, closes);
    }
}
