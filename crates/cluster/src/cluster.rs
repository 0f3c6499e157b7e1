//! A cluster, as seen by the gateway that serves it.
//!
//! Owns: the source of global transaction identifiers, what is shared about the nodes, and queries about
//! the cluster's roles and definitions on all of them.
//! Never: knows a session; holds a lock across an await, except those under which roles are
//! created, and tables become asynchronously replicated.
//! Start reading at [`Cluster`].

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::timeout;
use tutti_configuration::Config;
use tutti_link::availability::Availability;
use tutti_link::control_pool::ControlPool;
use tutti_link::seals::Seals;
use tutti_link::translation::OidMaps;
use tutti_link::{Endpoints, NodeError, Rows};
use tutti_sql::catalog::{Catalog, NodeId};
use tutti_txn::decision::Decision;
use tutti_txn::gid::{ClusterTag, Gid};

use crate::authority::Authority;
use crate::authority::rooms::RoomVisit;
use crate::catalog::Publisher;
use crate::catalog::share::{self, Wanted};
use crate::commit::coordinators::Coordinators;
use crate::commit::finishers::{self, Finishers};
use crate::commit::unsettled::Unsettled;
use crate::error::GatewayError;
use crate::numbers::txn_node;

/// So many bits of a transaction's number are random.
const CHANCE_BITS: u32 = 20;

/// What the cluster tells the sessions of its gateway.
pub trait SessionsAtWork: fmt::Debug + Send + Sync {
    /// Sessions that wait for their client check what has changed.
    fn wake_all(&self);

    /// The schema has changed, and no session knows how: what was planned before and not sent is
    /// planned again.
    fn plan_again(&self);
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Cluster {
    /// As configured.
    pub config: Config,
    /// The nodes' servers.
    pub endpoints: Endpoints,
    /// Which transactions may see and commit what, and when.
    pub authority: Authority,
    /// The gateway's own connections.
    pub connections: Arc<ControlPool>,
    /// What finishes global transactions on nodes, and records decisions.
    pub finishers: Finishers,
    /// Which nodes may be read.
    pub availability: Arc<Availability>,
    /// The newest catalog.
    pub publisher: Arc<Publisher>,
    /// What proves to the nodes that a statement in a client's transaction is the gateway's.
    pub seals: Arc<Seals>,
    /// Global transactions that are being committed here.
    pub coordinators: Coordinators,
    /// Those that recovery must finish.
    pub unsettled: Unsettled,
    /// The sessions, which must be told of some changes.
    pub sessions: Arc<dyn SessionsAtWork>,
    /// Held by who changes which tables are replicated asynchronously, or what carries their rows: the one knows
    /// the other's steps only when they are over.
    pub carrying: Arc<tokio::sync::Mutex<()>>,
    bringing_roles: tokio::sync::Mutex<()>,
    tag: ClusterTag,
    incarnation: u64,
    /// The newest incarnation that any node has told of.
    newest: tokio::sync::watch::Sender<u64>,
    transactions: AtomicU64,
    /// For the random bits of transaction numbers.
    chance: RandomState,
}

impl Cluster {
    /// For a gateway of this incarnation with this catalog. `endpoints`: those of the configuration, with what
    /// was learnt of them at the start.
    ///
    /// Requires: [`Config::check`] has passed, which makes the cluster's name a tag; a tokio runtime.
    pub fn new(
        config: Config,
        endpoints: Endpoints,
        incarnation: u64,
        catalog: Catalog,
        oids: OidMaps,
        seals: Seals,
        sessions: Arc<dyn SessionsAtWork>,
    ) -> Self {
        let tag = config.cluster.parse().expect("Config::check has passed");
        let nodes = Arc::new(Availability::new(&config));
        let connections = Arc::new(ControlPool::new(endpoints.clone(), nodes.clone()));
        Self {
            authority: Authority::new(&config.switches, &endpoints, &nodes, &connections),
            finishers: Finishers::new(&endpoints, finishers::CONNECTIONS_DEFAULT),
            connections,
            availability: nodes,
            publisher: Publisher::new(catalog, oids),
            seals: Arc::new(seals),
            coordinators: Coordinators::default(),
            unsettled: Unsettled::default(),
            sessions,
            endpoints,
            config,
            carrying: Arc::default(),
            bringing_roles: tokio::sync::Mutex::default(),
            tag,
            incarnation,
            newest: tokio::sync::watch::Sender::new(incarnation),
            transactions: AtomicU64::new(0),
            chance: RandomState::new(),
        }
    }

    /// The number of this gateway's incarnation.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// A node knows a gateway of this incarnation.
    pub(crate) fn note_incarnation(&self, incarnation: u64) {
        self.newest.send_if_modified(|newest| {
            let is_newer = *newest < incarnation;
            *newest = incarnation.max(*newest);
            is_newer
        });
    }

    /// The newest incarnation that any node has told of.
    pub(crate) fn newest_incarnation(&self) -> tokio::sync::watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// The newest catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.publisher.catalog()
    }

    /// How the nodes' OIDs differ from node 1's.
    pub fn oids(&self) -> Arc<OidMaps> {
        self.publisher.oids()
    }

    /// Makes the roles on `node` equal to those committed on node 1.
    pub async fn bring_roles(&self, node: NodeId) -> Result<(), GatewayError> {
        // Two calls would create the same roles.
        let _one = self.bringing_roles.lock().await;
        let connections = &self.connections;
        let mut home = connections.checkout(NodeId::HOME).await?;
        home.query("BEGIN").await?;
        let roles = share::read_definitions(&mut home, Wanted::ROLES, &self.seals).await;
        home.query("ROLLBACK").await?;
        connections.release(home);
        let roles = roles?;
        let mut other = connections.checkout(node).await?;
        other.query("BEGIN").await?;
        let made = share::make_definitions(&mut other, &roles, Wanted::ROLES, &self.seals).await;
        // This also ends a transaction that has failed.
        other.query("COMMIT").await?;
        connections.release(other);
        made?;
        Ok(())
    }

    /// Whether `node` lacks a role that node 1 has, in a cluster where it may.
    pub async fn lacks_a_role(&self, node: NodeId) -> Result<bool, GatewayError> {
        if !self.catalog().home_by_default {
            return Ok(false);
        }
        let connections = &self.connections;
        let mut home = connections.checkout(NodeId::HOME).await?;
        let mut other = connections.checkout(node).await?;
        let lacks = share::lacks_a_role(&mut home, &mut other).await;
        connections.release(home);
        connections.release(other);
        lacks
    }

    /// The committed definitions on node 1 that spread tables may need.
    pub async fn committed_definitions(&self) -> Result<String, GatewayError> {
        let mut home = self.connections.checkout(NodeId::HOME).await?;
        let found = share::committed_definitions(&mut home).await;
        self.connections.release(home);
        found
    }

    /// Enters the snapshot room at a time when all these nodes may be read.
    ///
    /// Errors: as [`Rooms::enter_snapshot_room`](crate::authority::rooms::Rooms::enter_snapshot_room).
    pub async fn enter_snapshot_room(&self, nodes: &[NodeId]) -> Result<RoomVisit, NodeError> {
        self.authority.rooms.enter_snapshot_room(&self.availability, nodes).await
    }

    /// Asks a node over one of the gateway's own connections, for no longer than `limit`.
    ///
    /// Errors: the node does not answer, or refuses.
    pub async fn ask_within(
        &self,
        limit: Duration,
        node: NodeId,
        sql: &str,
    ) -> Result<Rows, GatewayError> {
        let asked = async {
            let mut connection = self.connections.checkout(node).await?;
            let rows = connection.rows(sql).await?;
            self.connections.release(connection);
            Ok(rows)
        };
        // A connection that was given up half-way is not released to the pool.
        timeout(limit, asked).await.unwrap_or_else(|_| {
            Err(NodeError::Lost { node, source: std::io::ErrorKind::TimedOut.into() }.into())
        })
    }

    /// A fresh global transaction identifier.
    pub fn next_gid(&self, anchor: NodeId) -> Gid {
        Gid {
            cluster: self.tag.clone(),
            incarnation: self.incarnation,
            number: self.next_number(),
            anchor: txn_node(anchor),
        }
    }

    /// Never repeated. The next cannot be predicted from the last: a client that prepared a transaction
    /// under an identifier not yet used would block ours.
    fn next_number(&self) -> u64 {
        let count = self.transactions.fetch_add(1, Ordering::Relaxed) + 1;
        count << CHANCE_BITS | self.chance.hash_one(count) >> (u64::BITS - CHANCE_BITS)
    }

    /// Its name as it appears in gids.
    pub fn tag(&self) -> &ClusterTag {
        &self.tag
    }

    /// A global transaction has committed on all its nodes: its record may be forgotten.
    pub fn note_applied(&self, gid: Gid) {
        self.unsettled.note_applied([gid]);
    }

    /// A coordinator cannot finish this node; recovery will. Unless it is certain that the
    /// transaction is aborted, the node is closed to reads when this returns.
    pub fn leave_to_recovery(&self, gid: &Gid, node: NodeId, decision: Option<Decision>) {
        let closes = decision != Some(Decision::Aborted);
        self.unsettled.add(&self.availability, gid, node, closes);
    }
}
