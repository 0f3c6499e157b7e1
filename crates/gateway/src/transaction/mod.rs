//! What a statement needs of its session to run in a transaction.
//!
//! Owns: the session's connections and what binds them, the transaction's state, the catalog and name scope
//! by which it plans, and what its client has named.
//! Never: writes to a client.
//! Start reading at [`TransactionContext`], then `enlist` (how a node comes to take part), then `checkout`.

pub(crate) mod accounting;
mod apart;
mod aside;
mod at_login;
pub(crate) mod begun_with;
pub(crate) mod beside;
pub(crate) mod bound_with;
pub(crate) mod change_in_commit;
pub(crate) mod checkout;
pub(crate) mod deferred;
pub(crate) mod ends;
pub(crate) mod enlist;
mod kind_of_commit;
pub(crate) mod moved_rows;
pub(crate) mod named;
pub(crate) mod pause;
pub(crate) mod placement_change;
mod plan_keys;
pub(crate) mod plan_needs;
pub(crate) mod planning;
pub(crate) mod processes;
mod resume;
pub(crate) mod scope;
mod scope_state;
pub(crate) mod settings;
pub(crate) mod state;
mod statement_snapshot;
mod told_by_home;
pub(crate) mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use tokio::net::TcpStream;
use tutti_cluster::catalog::publisher::Starving;
use tutti_link::connection::Credentials;
use tutti_link::pool::backends::Workers;
use tutti_link::pool::links::Links;
use tutti_link::pool::{Permit, Share};
use tutti_sql::catalog::{Catalog, NameScope, NodeId};
use tutti_sql::plan::Residue;
use tutti_wire::error_fields::ErrorFields;

use self::accounting::Accounting;
use self::aside::Aside;
use self::at_login::BegunWith;
use self::named::{Cursor, Portal, PreparedStatement};
use self::plan_keys::Planning;
use self::settings::Settings;
use crate::client::identity::ClientIdentity;
use crate::plans::ReadingPermit;
use crate::registry::Registry;
use crate::registry::activity::Activity;

use self::scope_state::ScopeState;
pub(crate) use self::state::{Characteristics, Level, Mode, Transaction};

/// See the module's documentation.
pub(crate) struct TransactionContext {
    /// What all sessions share.
    pub(crate) registry: Arc<Registry>,
    /// The role that the client has logged in as.
    pub(crate) user: String,
    /// The role's number on node 1.
    pub(crate) role: u32,
    /// What the role and the database gave it at its login.
    pub(crate) begun_with: BegunWith,
    /// What connections to nodes are opened with for this session.
    pub(crate) credentials: Credentials,
    /// The session's.
    pub(crate) number: u64,
    /// The process id by which clients know the session.
    pub(crate) process_id: i32,
    /// How many statements that may write its nodes were sent.
    pub(crate) writes: u64,
    /// Nodes where something is open, and what was published when their backends last refreshed their caches after what others
    /// had changed.
    pub(crate) refreshed: Vec<(NodeId, Option<Arc<Catalog>>)>,
    /// What it is doing, for others to see.
    pub(crate) activity: Arc<Activity>,
    /// Which backends work for it.
    pub(crate) workers: Arc<Workers>,
    /// What its role may have at a time.
    pub(crate) share: Share,
    /// The right to have links.
    pub(crate) permit: Option<Permit>,
    /// Connections that are checked out at the moment.
    pub(crate) links: Links,
    /// What binds each of them to the session beyond its transaction.
    pub(crate) bindings: BTreeMap<NodeId, String>,
    /// Nodes to which a connection was checked out since the last ones were released.
    pub(crate) checked_out: BTreeSet<NodeId>,
    /// Why the session cannot go on, if it cannot.
    pub(crate) ended_by: Option<ErrorFields>,
    /// A statement not planned as a rename has renamed other objects.
    pub(crate) renamed: bool,
    /// What its statements may have left on its links since these were checked out.
    pub(crate) residue: Residue,
    /// The catalog by which it plans.
    pub(crate) catalog: Arc<Catalog>,
    /// Where names are looked up.
    pub(crate) scope: NameScope,
    /// How well that is known.
    pub(crate) scope_state: ScopeState,
    /// How far its transaction is.
    pub(crate) transaction: Transaction,
    /// Its block, while a read of it is carried out apart.
    pub(crate) block_aside: Option<Box<Aside>>,
    /// What it has set.
    pub(crate) settings: Settings,
    /// Prepared statements, by name.
    pub(crate) statements: HashMap<String, PreparedStatement>,
    /// Portals, by name.
    pub(crate) portals: HashMap<String, Portal>,
    /// SQL cursors, by name.
    pub(crate) cursors: HashMap<String, Cursor>,
    /// New sessions may begin with other settings or rights than the pool's connections have.
    pub(crate) changed_defaults: bool,
    /// What is known of the plan at hand.
    pub(crate) planning: Planning,
    /// Its statement has been overtaken by changes of the schema repeatedly.
    pub(crate) starving: Option<Starving>,
    /// The statement is run again: it takes its locks on one node after another, as changes of the schema do. One that
    /// waits on the first holds none on the others, and is in no circle of waits.
    pub(crate) locks_in_turn: bool,
    /// The right to have the tree of a large text.
    pub(crate) reading: Option<ReadingPermit>,
    /// It has executed LISTEN.
    pub(crate) listening: bool,
    /// It listens on node 1 only, for there was nothing on other nodes when it began.
    pub(crate) hears_node_1_alone: bool,
    /// What the current statement runs on node 1 unseen by the gateway.
    pub(crate) accounting: Option<Accounting>,
    /// The current statement is a part of the client's, which is not told of its end.
    pub(crate) is_part: bool,
    /// While parts of the current statement run: what those that have run have returned, each as the text of an array
    /// of rows.
    pub(crate) returned: Option<Vec<Bytes>>,
    /// Whether the current statement takes a snapshot; LOCK TABLE and the like do not.
    pub(crate) takes_snapshot: bool,
    /// Nodes to which the client's flight has sent something since its last Sync, and whether something ran
    /// there.
    pub(crate) flight: BTreeMap<NodeId, bool>,
}

impl TransactionContext {
    /// For a new session: no connection yet. Returns the secret by which its client cancels, too.
    pub(crate) fn new(
        registry: Arc<Registry>,
        identity: ClientIdentity,
        startup: Vec<(String, String)>,
        renewal: u64,
        stream: Weak<TcpStream>,
    ) -> (Self, i32) {
        let number = registry.next_session();
        let (process_id, secret, workers) = registry.backends.register(number, &identity.user);
        // Names are looked up after this.
        let seen_path_changes = registry.path_changes.load(Ordering::SeqCst);
        let share = registry.pool.share(identity.role, identity.is_superuser);
        let context = Self {
            share,
            activity: registry.activities.register(process_id, stream),
            catalog: registry.cluster.catalog(),
            registry,
            user: identity.user,
            role: identity.role,
            credentials: identity.credentials,
            begun_with: BegunWith::new(identity.settings, renewal),
            number,
            process_id,
            workers,
            writes: 0,
            refreshed: Vec::new(),
            permit: None,
            links: Links::default(),
            bindings: BTreeMap::new(),
            checked_out: BTreeSet::new(),
            ended_by: None,
            renamed: false,
            residue: Residue::default(),
            scope: NameScope::default(),
            scope_state: ScopeState { seen_path_changes, ..ScopeState::default() },
            transaction: Transaction::default(),
            block_aside: None,
            settings: Settings::of_startup(startup),
            statements: HashMap::new(),
            portals: HashMap::new(),
            cursors: HashMap::new(),
            changed_defaults: false,
            planning: Planning::default(),
            starving: None,
            locks_in_turn: false,
            reading: None,
            listening: false,
            hears_node_1_alone: false,
            accounting: None,
            is_part: false,
            returned: None,
            takes_snapshot: true,
            flight: BTreeMap::new(),
        };
        (context, secret)
    }
}

impl Drop for TransactionContext {
    fn drop(&mut self) {
        // As long as its plan is in sight: what a backend goes on with must not be in nobody's.
        self.links = Links::default();
        self.block_aside = None;
        self.registry.backends.unregister(self.process_id);
    }
}
