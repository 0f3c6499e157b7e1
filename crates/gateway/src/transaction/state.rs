//! A client's transaction: which nodes take part, and how to bring a joining one up to date.
//!
//! Owns: the session's view of its transaction: mode, savepoints, settings made in it.
//! Never: sends anything (see `commit` and the executor).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tutti_cluster::authority::rooms::RoomVisit;
use tutti_cluster::authority::sentinels::Coverage;
use tutti_cluster::authority::serializable_in_progress::InProgress;
use tutti_cluster::authority::snapshots::ClusterSnapshot;
use tutti_cluster::catalog::publisher::OwnChanges;
use tutti_cluster::requests::Record;
use tutti_link::translation::OidMaps;
use tutti_sql::catalog::{Catalog, NodeId, quote_identifier};
use tutti_sql::plan::{Access, TransactionModes, Unseen};
use tutti_wire::backend::TransactionStatus;
use tutti_wire::error_fields::ErrorFields;

use super::bound_with::LateCalls;
use super::change_in_commit::ChangeInCommit;
use crate::registry::requests::AtWork;

/// How a transaction came about.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// There is none: each statement commits by itself on its node.
    #[default]
    None,
    /// The gateway began it for one statement on several nodes, or for several statements in one
    /// message; it ends with them.
    Implicit,
    /// The client said BEGIN.
    Explicit,
}

/// An isolation level by PostgreSQL's name for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Isolation {
    /// The same as READ COMMITTED, under a name that SHOW tells.
    ReadUncommitted,
    /// Each statement has a snapshot of its own.
    ReadCommitted,
    /// One snapshot for the transaction.
    RepeatableRead,
    /// The same, and as if transactions had run one after the other.
    Serializable,
}

impl Isolation {
    /// By the name that the server shows; `None`: there is no such level.
    pub fn named(name: &str) -> Option<Self> {
        const ALL: [Isolation; 4] = [
            Isolation::ReadUncommitted,
            Isolation::ReadCommitted,
            Isolation::RepeatableRead,
            Isolation::Serializable,
        ];
        ALL.into_iter().find(|level| level.name() == name)
    }

    /// As the server shows it, and SQL spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read uncommitted",
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }

    /// What it isolates from.
    pub fn level(self) -> Level {
        match self {
            Self::ReadUncommitted | Self::ReadCommitted => Level::ReadCommitted,
            Self::RepeatableRead => Level::RepeatableRead,
            Self::Serializable => Level::Serializable,
        }
    }
}

/// What a transaction is, as the client asked for it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Characteristics {
    /// `None`: the session's default.
    pub isolation: Option<Isolation>,
    /// READ ONLY or READ WRITE; `None`: the session's default.
    pub read_only: Option<bool>,
    /// DEFERRABLE or NOT DEFERRABLE; `None`: the session's default.
    pub deferrable: Option<bool>,
}

impl TryFrom<&TransactionModes> for Characteristics {
    type Error = ErrorFields;

    /// Errors: 22023 where the named isolation level does not exist.
    fn try_from(modes: &TransactionModes) -> Result<Self, ErrorFields> {
        let TransactionModes { isolation, read_only, deferrable } = modes.clone();
        let unknown = |name: &str| {
            let message =
                format!("invalid value for parameter \"transaction_isolation\": \"{name}\"");
            let hint = "Available values: serializable, repeatable read, read committed, read uncommitted.";
            ErrorFields::error("22023", message).with(b'H', hint)
        };
        let read = |name: String| Isolation::named(&name).ok_or_else(|| unknown(&name));
        Ok(Self { isolation: isolation.map(read).transpose()?, read_only, deferrable })
    }
}

/// What a transaction is isolated from. READ UNCOMMITTED is READ COMMITTED in PostgreSQL.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Level {
    /// Each statement has a snapshot of its own.
    #[default]
    ReadCommitted,
    /// One snapshot for the transaction.
    RepeatableRead,
    /// The same, and as if transactions had run one after the other.
    Serializable,
}

impl Characteristics {
    /// The level, if one is given.
    pub fn level(&self) -> Option<Level> {
        self.isolation.map(Isolation::level)
    }

    /// What is given, as session settings for default modes.
    pub fn as_defaults(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let on_off = |is_on: bool| if is_on { "on" } else { "off" };
        let given = [
            ("default_transaction_isolation", self.isolation.map(Isolation::name)),
            ("default_transaction_read_only", self.read_only.map(on_off)),
            ("default_transaction_deferrable", self.deferrable.map(on_off)),
        ];
        given.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// What is given in `later` wins.
    pub fn update(&mut self, later: &Self) {
        if later.isolation.is_some() {
            self.isolation = later.isolation;
        }
        if later.read_only.is_some() {
            self.read_only = later.read_only;
        }
        if later.deferrable.is_some() {
            self.deferrable = later.deferrable;
        }
    }

    /// As SQL after BEGIN or SET TRANSACTION; may be empty.
    pub fn to_sql(&self) -> String {
        let isolation = self.isolation.map(|level| format!(" ISOLATION LEVEL {}", level.name()));
        let access = self.read_only.map(|only| if only { " READ ONLY" } else { " READ WRITE" });
        let deferrable =
            self.deferrable.map(|is| if is { " DEFERRABLE" } else { " NOT DEFERRABLE" });
        [isolation.as_deref(), access, deferrable].into_iter().flatten().collect()
    }
}

/// A step that a node that joins late must repeat.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Step {
    Savepoint {
        /// What the client calls it; others may have the same name.
        name: String,
        /// What nodes call it.
        on_nodes: String,
    },
    /// SET TRANSACTION after a savepoint or a query.
    Modes { sql: String, given: Characteristics },
    /// SET, SET LOCAL, SET CONSTRAINTS…
    Setting {
        sql: String,
        /// Name, if it outlives the transaction; empty for RESET ALL.
        kept_as: Option<String>,
    },
}

impl Step {
    /// What repeats it on a node that joins later.
    fn to_sql(&self) -> String {
        match self {
            Self::Savepoint { on_nodes, .. } => format!("SAVEPOINT {on_nodes}"),
            Self::Setting { sql, .. } | Self::Modes { sql, .. } => sql.clone(),
        }
    }
}

/// The session's transaction.
#[derive(Debug, Default)]
pub struct Transaction {
    /// How it came about.
    pub mode: Mode,
    /// A statement failed: only ROLLBACK (TO) is accepted.
    pub failed: bool,
    /// The relations of a READ COMMITTED statement that has this transaction to itself, so that all it
    /// reads is as of one time: its snapshot must not be older than the locks that it takes.
    pub at_one_moment: Option<Arc<[u32]>>,
    /// It is a READ COMMITTED statement's that only reads, and ends with it.
    pub is_of_one_read: bool,
    /// It takes its snapshot on its own connections: nothing needs the name of an exported one.
    pub takes_own_snapshot: bool,
    /// How many savepoints it has named for nodes.
    savepoints: u32,
    /// A node lost its part: not even ROLLBACK TO helps.
    pub doomed: bool,
    /// Level and access mode.
    pub characteristics: Characteristics,
    /// What these were before anything was said of this transaction: the session's defaults, or what AND
    /// CHAIN has handed on.
    pub began_with: Characteristics,
    /// The nodes to which BEGIN was sent, and the highest access there.
    pub nodes: BTreeMap<NodeId, Access>,
    /// This node has done what PREPARE TRANSACTION refuses: it must be the anchor.
    pub must_anchor: Option<NodeId>,
    /// LISTEN or UNLISTEN was executed in it.
    pub listens: bool,
    /// The schema was changed in it: the session has its own catalog until the end.
    pub catalog_changed: bool,
    /// It has changed the schema since it last read its own catalog.
    pub own_is_stale: bool,
    /// It has changed more of the schema than relations.
    pub changes_more: bool,
    /// It has changed the schema on more than node 1 alone.
    pub changes_elsewhere: bool,
    /// It has brought more to other nodes than tables.
    pub brings_more: bool,
    /// It spreads the first table: which definitions were committed when they were brought to other
    /// nodes.
    pub shared_definitions: Option<String>,
    /// It changed the schema while node 1 alone had one, and so on node 1 alone.
    pub changed_alone: bool,
    /// It wrote while node 1 had all tables: code that comes with its COMMIT (deferred triggers) is node 1's.
    pub wrote_alone: bool,
    /// It used node 1 while that had all tables: its cursors and portals go on as they were planned then.
    pub used_alone: bool,
    /// A node that joins now does not repeat the steps yet: something else must come first.
    pub steps_come_later: bool,
    /// The published catalog that its own derives from.
    pub own_catalog_of: Option<Arc<Catalog>>,
    /// What its own catalog has that the published one has not.
    pub own_changes: Option<OwnChanges>,
    /// Its commit as a change of the schema, which holds new statements.
    pub(crate) change: Option<ChangeInCommit>,
    /// The OIDs that nodes have given to what it has created.
    pub own_oids: Option<Arc<OidMaps>>,
    /// It has renamed other objects.
    pub renames: bool,
    /// The catalog at the moment of its snapshot, if it has one for all its statements.
    pub snapshot_catalog: Option<Arc<Catalog>>,
    /// Names may resolve differently if it is rolled back.
    pub scope_changed: bool,
    /// A statement has taken a snapshot: the level is fixed.
    pub queried: bool,
    /// Its snapshot of all nodes, once it needed one.
    pub snapshot: Option<ClusterSnapshot>,
    /// In place of that, it has taken part of a snapshot on each of its nodes itself.
    pub(crate) own_snapshot: Option<OwnSnapshot>,
    /// The snapshot is safe: nothing that is read in it can be part of an anomaly.
    pub has_safe_snapshot: bool,
    /// SERIALIZABLE and not READ ONLY: others may wait for its end.
    pub serializable_in_progress: Option<InProgress>,
    /// Nodes on which a statement has needed a snapshot.
    pub used: BTreeSet<NodeId>,
    /// SERIALIZABLE over several nodes: where it has a ticket, and the sentinels it counts on there.
    pub tickets: BTreeMap<NodeId, Coverage>,
    /// Nodes must not end it for idling: the gateway counts the client's time.
    pub counts_idle_time: bool,
    /// One of its cursors runs code that the gateway does not see.
    pub unseen: Option<Box<Unseen>>,
    /// Its statements have run code that the gateway does not see: all that is known of these.
    pub unseen_ran: Option<Box<Unseen>>,
    /// Such code may be left for the end of the transaction: deferred triggers.
    pub defers_unseen: bool,
    /// How many statements are running, one within another, that may change what entries are kept of: these are kept when
    /// the outermost has run.
    pub changing_entries: usize,
    /// Foreign keys that hold over all nodes may be unchecked, for they are deferred.
    pub defers_references: bool,
    /// What SET CONSTRAINTS has said in it, in order: names (none: all), and whether these are deferred. (Of a savepoint
    /// that was gone back to, too: when an error is told, not whether, depends on it.)
    pub set_constraints: Vec<(Vec<String>, bool)>,
    /// What its statements call may run when it ends, and what that meant.
    pub(crate) late_calls: Option<LateCalls>,
    /// It has changed what new sessions begin with.
    pub changed_defaults: bool,
    /// It has changed schemas, rights or roles: what a search path means.
    pub changed_paths: bool,
    /// It has changed which schemas roles see among those that there were.
    pub changed_sight: bool,
    /// It has failed, and nodes other than the one that failed have undone their part already.
    pub undone: bool,
    /// A statement of it has done on several nodes what must be there on all or on none
    /// ([`Planned::ties_nodes`](tutti_sql::plan::Planned::ties_nodes)).
    pub ties_nodes: bool,
    /// Tables whose rows it has moved to other nodes, by OID on node 1, and their names in SQL.
    pub moved: BTreeMap<u32, String>,
    /// Nodes that could not commit what they had read for a transaction that is committed.
    pub has_undone: BTreeSet<NodeId>,
    /// It is an instance of a request.
    pub request: Option<OpenRequest>,
    steps: Vec<Step>,
}

/// An instance of a request whose transaction is open.
#[derive(Debug)]
pub struct OpenRequest {
    /// Which one.
    pub at_work: AtWork,
    /// What was to be remembered at first, and since; ROLLBACK TO takes the last away.
    remembered: Vec<Remembered>,
}

/// What is to be remembered of a request.
#[derive(Clone, Debug, Default)]
pub struct Remembered {
    /// How many steps the transaction had then.
    pub made: usize,
    /// What was asked for, as far as its client has said.
    pub request: Option<String>,
    /// What its client is to be told.
    pub result: Option<String>,
    /// Its client has said both.
    pub is_prepared: bool,
}

impl OpenRequest {
    /// Nothing is to be remembered yet.
    pub fn new(at_work: AtWork) -> Self {
        Self { at_work, remembered: vec![Remembered::default()] }
    }

    /// What was said last counts.
    pub fn remembered(&self) -> &Remembered {
        self.remembered.last().expect("the first one stays")
    }

    /// From now on.
    pub fn remember(&mut self, said: Remembered) {
        // What no savepoint can bring back is not kept.
        if 1 < self.remembered.len() && self.remembered().made == said.made {
            self.remembered.pop();
        }
        self.remembered.push(said);
    }

    /// The transaction has gone back to where it had `steps` steps, the last of them a savepoint's.
    pub fn go_back(&mut self, steps: usize) {
        let kept = self.remembered.iter().skip(1).take_while(|said| said.made < steps).count();
        self.remembered.truncate(1 + kept);
    }

    /// A savepoint is released: what was said after it was said after `steps` steps.
    pub fn release(&mut self, steps: usize) {
        self.remembered.iter_mut().for_each(|said| said.made = said.made.min(steps));
    }

    /// What is to be kept when it commits.
    pub fn record(&self) -> Record {
        let Remembered { request, result, .. } = self.remembered().clone();
        Record { instance: self.at_work.instance().clone(), request, result }
    }
}

/// Parts of one snapshot that the transaction's own connections have taken.
#[derive(Debug)]
pub(crate) struct OwnSnapshot {
    /// Until all of them are known to have.
    pub(super) visit: Option<RoomVisit>,
}

/// How a node enters a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entrance<'a> {
    /// Name of the exported snapshot to import.
    pub snapshot: Option<&'a str>,
    /// Take a snapshot of its own at once, not with the first statement.
    pub takes_snapshot: bool,
    /// Insert a ticket.
    pub ticket: bool,
    /// READ WRITE until the ticket is there, READ ONLY after it.
    pub read_only_later: bool,
    /// DEFERRABLE was asked for, and the gateway has waited in the node's stead: a node does not let
    /// such a transaction import a snapshot.
    pub has_waited: bool,
}

impl Entrance<'_> {
    /// For a node that takes part already, but has taken no snapshot yet.
    pub fn to_sql(self) -> String {
        let mut steps = Vec::new();
        if self.has_waited {
            steps.push("SET TRANSACTION NOT DEFERRABLE".to_owned());
        }
        if self.read_only_later {
            steps.push("SET TRANSACTION READ WRITE".to_owned());
        }
        if let Some(name) = self.snapshot {
            steps.push(format!("SET TRANSACTION SNAPSHOT '{name}'"));
        }
        if self.takes_snapshot {
            // The shortest statement that PostgreSQL takes one for. It locks nothing.
            steps.push("SELECT".to_owned());
        }
        if self.ticket {
            steps.push(INSERT_TICKET.to_owned());
        }
        if self.read_only_later {
            steps.push("SET TRANSACTION READ ONLY".to_owned());
        }
        steps.join("; ")
    }
}

/// Makes a transaction visible to the sentinels of a node.
pub const INSERT_TICKET: &str = "SELECT tutti.insert_ticket()";
/// The same after ROLLBACK TO. A transaction that is READ ONLY got its ticket before it became so, and
/// so before the savepoint; and it cannot insert one now.
pub const RENEW_TICKET: &str = "SELECT tutti.insert_ticket() \
    WHERE pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'off'";

impl Transaction {
    /// A statement is about to run; whether node 1 has all tables.
    pub fn note_alone(&mut self, is_solo: bool, access: Access) {
        self.used_alone |= is_solo;
        self.wrote_alone |= is_solo && access == Access::Write;
    }

    /// Of [`Self::at_one_moment`], those that nodes may rewrite without the gateway: on node 1, its
    /// home tables.
    pub(crate) fn stored_on(&self, node: NodeId) -> Option<Arc<[u32]>> {
        self.at_one_moment.clone().filter(|_| node == NodeId::HOME)
    }

    /// A statement is about to run. Outside of a transaction it may become one.
    pub fn note_ties(&mut self, ties_nodes: bool) {
        self.ties_nodes = ties_nodes || (self.is_open() && self.ties_nodes);
    }

    /// Whether it must be committed on all its nodes or on none, whatever its client would be content with: the
    /// gateway rests on it.
    pub fn must_be_whole(&self) -> bool {
        let changes = self.catalog_changed || self.changed_defaults || self.changed_paths;
        // Code that has run, or will, of which it is not known in time what it writes.
        let is_unseen = self.unseen_ran.is_some() || self.defers_unseen || self.wrote_alone;
        // What its session has, or others hear, goes with what it has written.
        let is_more_than_rows = self.must_anchor.is_some() || self.listens;
        let goes_together = self.ties_nodes || self.request.is_some() || !self.moved.is_empty();
        goes_together || changes || is_unseen || is_more_than_rows
    }

    /// What ReadyForQuery says.
    pub fn status(&self) -> TransactionStatus {
        match (self.mode, self.failed) {
            (Mode::None | Mode::Implicit, _) => TransactionStatus::Idle,
            (Mode::Explicit, false) => TransactionStatus::InTransaction,
            (Mode::Explicit, true) => TransactionStatus::Failed,
        }
    }

    /// Notes that a statement of it has run such code.
    pub fn note_unseen(&mut self, unseen: &Unseen, defers: bool) {
        self.defers_unseen |= defers;
        let ran = self.unseen_ran.get_or_insert_with(|| Box::new(unseen.clone()));
        ran.sets |= unseen.sets;
        ran.catches |= unseen.catches;
        ran.samples |= unseen.samples;
        // What runs later is no part of a gathered statement.
        ran.one_snapshot = false;
    }

    /// Whether names may mean something other than before it, beside the relations that it has
    /// changed.
    pub fn may_change_scope(&self) -> bool {
        self.scope_changed || self.changes_more || self.renames
    }

    /// Whether there is one, of either kind.
    pub fn is_open(&self) -> bool {
        self.mode != Mode::None
    }

    /// Notes that `node` does `access`.
    pub fn record(&mut self, node: NodeId, access: Access) {
        let most = self.nodes.entry(node).or_insert(access);
        *most = (*most).max(access);
    }

    /// What of `access` can come to pass on the node: READ ONLY, nothing is written but temporary tables, which are
    /// node 1's. A node that has written nothing votes on no commit, nor makes node 1 record one, which READ ONLY it
    /// could not.
    pub fn possible_access(&self, node: NodeId, access: Access) -> Access {
        match node != NodeId::HOME && access == Access::Write && self.is_read_only() {
            true => Access::Read,
            false => access,
        }
    }

    /// Nodes that may have written.
    pub fn writers(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().filter(|(_, access)| **access == Access::Write).map(|(node, _)| *node)
    }

    /// What begins the transaction on a node.
    pub fn begin_sql(&self, entrance: Entrance<'_>) -> String {
        let mut characteristics = self.characteristics.clone();
        if entrance.read_only_later {
            characteristics.read_only = Some(false);
        }
        if entrance.has_waited {
            characteristics.deferrable = None;
        }
        format!("BEGIN{}", characteristics.to_sql())
    }

    /// One query string that brings a node from `entrance` to the transaction's current state; may
    /// be empty.
    pub fn catch_up_sql(&self, entrance: Entrance<'_>) -> String {
        let mut steps = Vec::new();
        if self.counts_idle_time {
            steps.push("SET LOCAL idle_in_transaction_session_timeout = 0".to_owned());
        }
        let Entrance { ticket, read_only_later, .. } = entrance;
        let snapshot =
            Entrance { ticket: false, read_only_later: false, has_waited: false, ..entrance };
        if snapshot.snapshot.is_some() || snapshot.takes_snapshot {
            steps.push(snapshot.to_sql());
        }
        // Settings apply to the ticket too: its insert may have to wait, and timeouts end that. But a
        // transaction that is READ ONLY can no longer insert one.
        let before_ticket = match self.is_read_only() {
            true => {
                let is_setting = |step: &&Step| matches!(step, Step::Setting { .. });
                self.steps.iter().take_while(is_setting).count()
            }
            false => self.steps.len(),
        };
        let (before, behind) = match self.steps_come_later {
            true => (&[][..], &[][..]),
            false => self.steps.split_at(before_ticket),
        };
        steps.extend(before.iter().map(Step::to_sql));
        if ticket {
            // ROLLBACK TO removes it where it comes after a savepoint; then it is renewed.
            steps.push(INSERT_TICKET.to_owned());
        }
        if read_only_later {
            steps.push("SET TRANSACTION READ ONLY".to_owned());
        }
        steps.extend(behind.iter().map(Step::to_sql));
        steps.join("; ")
    }

    /// Whether a deferrable constraint of this name, which begins so, is deferred now.
    pub fn is_deferred(&self, name: &str, initially: bool) -> bool {
        let said = self.set_constraints.iter().rev().find(|(names, _)| {
            names.is_empty() || names.iter().any(|named| is_last_part(named, name))
        });
        said.map_or(initially, |(_, deferred)| *deferred)
    }

    /// What the transaction has set, and its savepoints; may be empty.
    pub fn steps_sql(&self) -> String {
        self.steps.iter().map(Step::to_sql).collect::<Vec<_>>().join("; ")
    }

    /// How many steps it has taken.
    pub fn step_count(&self) -> usize {
        self.steps.len()
    }

    /// What nodes are to call its next savepoint: no other of the transaction is called so, ever. By the client's name a
    /// node on which SAVEPOINT or RELEASE has failed would go back to another savepoint than the rest, where several have
    /// that name.
    pub fn name_savepoint(&mut self) -> String {
        self.savepoints += 1;
        format!("tutti_{}", self.savepoints)
    }

    /// SAVEPOINT was done, on its nodes under the name that [`Self::name_savepoint`] gave.
    pub fn push_savepoint(&mut self, name: &str, on_nodes: String) {
        self.steps.push(Step::Savepoint { name: name.to_owned(), on_nodes });
    }

    /// What nodes call the client's savepoint of that name, if there is one.
    pub fn savepoint_on_nodes(&self, name: &str) -> Option<&str> {
        match &self.steps[self.savepoint_position(name)?] {
            Step::Savepoint { on_nodes, .. } => Some(on_nodes),
            Step::Setting { .. } | Step::Modes { .. } => None,
        }
    }

    /// How much memory its settings take.
    pub fn settings_bytes(&self) -> usize {
        let bytes = self.steps.iter().map(|step| match step {
            Step::Setting { sql, .. } => sql.len(),
            Step::Savepoint { .. } | Step::Modes { .. } => 0,
        });
        bytes.sum()
    }

    /// Whether settings were made in it.
    pub fn sets_anything(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Setting { .. }))
    }

    /// Whether catching up takes a snapshot: `set_config` is called by a SELECT.
    pub fn catches_up_by_query(&self) -> bool {
        self.steps
            .iter()
            .any(|step| matches!(step, Step::Setting { sql, .. } if sql.starts_with("SELECT ")))
    }

    /// The savepoint that was made last and is still there, as nodes call it.
    pub fn last_savepoint(&self) -> Option<&str> {
        self.steps.iter().rev().find_map(|step| match step {
            Step::Savepoint { on_nodes, .. } => Some(on_nodes.as_str()),
            Step::Setting { .. } | Step::Modes { .. } => None,
        })
    }

    /// SET TRANSACTION was executed where it may be undone separately from the transaction, or is not
    /// part of what its nodes begin with.
    pub fn push_modes(&mut self, sql: &str, given: Characteristics) {
        self.steps.push(Step::Modes { sql: sql.to_owned(), given });
    }

    /// Its modes by all that was said so far.
    pub fn characteristics_now(&self) -> Characteristics {
        self.characteristics_behind(&self.steps)
    }

    fn characteristics_behind(&self, steps: &[Step]) -> Characteristics {
        let mut now = self.characteristics.clone();
        for step in steps {
            if let Step::Modes { given, .. } = step {
                now.update(given);
            }
        }
        now
    }

    /// What AND CHAIN hands on to the next one. PostgreSQL saves it after undoing the subtransactions that must
    /// be undone, and nothing else: modes are settings, and are undone like these. So after ROLLBACK it is what
    /// held before the first savepoint that is open; and if the whole transaction is undone by then, because it
    /// failed outside of any savepoint, what held before its modes were set at all.
    pub fn characteristics_to_chain(&self, rolls_back: bool) -> Characteristics {
        let is_savepoint = |step: &Step| matches!(step, Step::Savepoint { .. });
        match self.steps.iter().position(is_savepoint) {
            Some(first) if rolls_back || self.failed => {
                self.characteristics_behind(&self.steps[..first])
            }
            None if self.failed => self.began_with.clone(),
            _ => self.characteristics_now(),
        }
    }

    /// Whether it may no longer write.
    pub fn is_read_only(&self) -> bool {
        let said_last = self.steps.iter().rev().find_map(|step| match step {
            Step::Modes { given, .. } => given.read_only,
            Step::Savepoint { .. } | Step::Setting { .. } => None,
        });
        said_last.or(self.characteristics.read_only) == Some(true)
    }

    /// ROLLBACK TO was done: later steps are undone, the savepoint stays.
    pub fn rollback_to(&mut self, name: &str) {
        // Others may have spread the first table before it is tried again.
        self.shared_definitions = None;
        if let Some(position) = self.savepoint_position(name) {
            self.steps.truncate(position + 1);
        }
    }

    /// RELEASE was done: the savepoint and later ones are gone, settings stay. Not so READ ONLY: the
    /// transaction is what it was (`CommitSubTransaction` in PostgreSQL's xact.c).
    pub fn release(&mut self, name: &str) {
        if let Some(position) = self.savepoint_position(name) {
            let tail = self.steps.split_off(position);
            let settings = tail.into_iter().filter(|step| matches!(step, Step::Setting { .. }));
            self.steps.extend(settings);
        }
    }

    fn savepoint_position(&self, name: &str) -> Option<usize> {
        let is_it =
            |step: &Step| matches!(step, Step::Savepoint { name: found, .. } if found == name);
        self.steps.iter().rposition(is_it)
    }

    /// A setting was made; `kept_as` if it outlives a COMMIT.
    pub fn push_setting(&mut self, sql: &str, kept_as: Option<String>) {
        self.steps.push(Step::Setting { sql: sql.to_owned(), kept_as });
    }

    /// A transaction of one read at one moment, with the settings of this one, and one more.
    pub fn for_read_apart(&self, setting: &str) -> Self {
        let mut characteristics = self.characteristics_now();
        characteristics.isolation = Some(Isolation::RepeatableRead);
        let settings = self.steps.iter().filter(|step| matches!(step, Step::Setting { .. }));
        let mut apart = Self {
            mode: Mode::Implicit,
            is_of_one_read: true,
            characteristics,
            began_with: self.began_with.clone(),
            counts_idle_time: self.counts_idle_time,
            steps: settings.cloned().collect(),
            ..Self::default()
        };
        apart.push_setting(setting, None);
        apart
    }

    /// Settings that a COMMIT makes the session's own: name and SQL, in order. RESET ALL has no name.
    pub fn kept_settings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.steps.iter().filter_map(|step| match step {
            Step::Setting { sql, kept_as: Some(name) } => Some((name.as_str(), sql.as_str())),
            Step::Setting { kept_as: None, .. } | Step::Savepoint { .. } | Step::Modes { .. } => {
                None
            }
        })
    }
}

/// Whether a SQL name, perhaps with a schema, ends with this name.
pub(crate) fn is_last_part(named: &str, name: &str) -> bool {
    let quoted = quote_identifier(name);
    named == quoted
        || named == name
        || named.ends_with(&format!(".{quoted}"))
        || named.ends_with(&format!(".{name}"))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(transaction: &Transaction, expected: Expect) {
        expected.assert_eq(&sql_of(transaction, Entrance::default()));
    }

    fn sql_of(transaction: &Transaction, entrance: Entrance<'_>) -> String {
        let steps = [transaction.begin_sql(entrance), transaction.catch_up_sql(entrance)];
        steps.iter().filter(|sql| !sql.is_empty()).cloned().collect::<Vec<_>>().join("; ")
    }

    fn push_savepoint(transaction: &mut Transaction, name: &str) {
        let on_nodes = transaction.name_savepoint();
        transaction.push_savepoint(name, on_nodes);
    }

    #[test]
    fn a_node_that_joins_late_repeats_what_still_holds() {
        let mut transaction = Transaction::default();
        transaction.characteristics.isolation = Some(Isolation::RepeatableRead);
        transaction.push_setting("SET LOCAL a = 1", None);
        push_savepoint(&mut transaction, "s");
        transaction.push_setting("SET b = 2", Some("b".into()));
        push_savepoint(&mut transaction, "t");
        check(
            &transaction,
            expect![[
                r#"BEGIN ISOLATION LEVEL repeatable read; SET LOCAL a = 1; SAVEPOINT tutti_1; SET b = 2; SAVEPOINT tutti_2"#
            ]],
        );
        transaction.release("s");
        check(
            &transaction,
            expect!["BEGIN ISOLATION LEVEL repeatable read; SET LOCAL a = 1; SET b = 2"],
        );
    }

    #[test]
    fn what_is_set_behind_a_savepoint_goes_with_it() {
        let read_only = Characteristics { read_only: Some(true), ..Characteristics::default() };
        let mut transaction = Transaction::default();
        push_savepoint(&mut transaction, "s");
        transaction.push_modes("SET TRANSACTION READ ONLY", read_only.clone());
        assert!(transaction.is_read_only());
        assert_eq!(transaction.characteristics_now(), read_only);
        check(&transaction, expect![[r#"BEGIN; SAVEPOINT tutti_1; SET TRANSACTION READ ONLY"#]]);
        let mut released = Transaction::default();
        std::mem::swap(&mut released.steps, &mut transaction.steps);
        transaction.steps.clone_from(&released.steps);
        transaction.rollback_to("s");
        assert!(!transaction.is_read_only());
        released.release("s");
        assert!(!released.is_read_only());
        check(&released, expect!["BEGIN"]);
    }

    #[test]
    fn a_ticket_comes_behind_the_snapshot_and_before_read_only() {
        let mut transaction = Transaction::default();
        transaction.characteristics.isolation = Some(Isolation::Serializable);
        transaction.characteristics.read_only = Some(true);
        push_savepoint(&mut transaction, "s");
        let entrance = Entrance {
            snapshot: Some("3-1"),
            ticket: true,
            read_only_later: true,
            ..Entrance::default()
        };
        expect![[
            r#"BEGIN ISOLATION LEVEL serializable READ WRITE; SET TRANSACTION SNAPSHOT '3-1'; SELECT tutti.insert_ticket(); SET TRANSACTION READ ONLY; SAVEPOINT tutti_1"#
        ]]
        .assert_eq(&sql_of(&transaction, entrance));
    }

    #[test]
    fn timeouts_hold_for_the_ticket_too() {
        let mut transaction = Transaction::default();
        transaction.push_setting("SET LOCAL lock_timeout = 1", None);
        push_savepoint(&mut transaction, "s");
        transaction.push_setting("SET LOCAL statement_timeout = 1", None);
        let entrance = Entrance { snapshot: Some("3-1"), ticket: true, ..Entrance::default() };
        expect![[
            r#"BEGIN; SET TRANSACTION SNAPSHOT '3-1'; SET LOCAL lock_timeout = 1; SAVEPOINT tutti_1; SET LOCAL statement_timeout = 1; SELECT tutti.insert_ticket()"#
        ]]
        .assert_eq(&sql_of(&transaction, entrance));
        let read_only = Characteristics { read_only: Some(true), ..Characteristics::default() };
        transaction.push_modes("SET TRANSACTION READ ONLY", read_only);
        expect![[
            r#"BEGIN; SET TRANSACTION SNAPSHOT '3-1'; SET LOCAL lock_timeout = 1; SELECT tutti.insert_ticket(); SAVEPOINT tutti_1; SET LOCAL statement_timeout = 1; SET TRANSACTION READ ONLY"#
        ]]
        .assert_eq(&sql_of(&transaction, entrance));
    }

    #[test]
    fn rollback_to_forgets_what_came_later_and_keeps_the_savepoint() {
        let mut transaction = Transaction::default();
        push_savepoint(&mut transaction, "s");
        transaction.push_setting("SET b = 2", Some("b".into()));
        transaction.rollback_to("s");
        check(&transaction, expect![[r#"BEGIN; SAVEPOINT tutti_1"#]]);
        assert_eq!(transaction.kept_settings().count(), 0);
    }
}
