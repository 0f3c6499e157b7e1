//! What can be asked of a node, and what it answers.
//!
//! Owns: the statements that the protocol and its clients need, in the model's own words; each one's
//! documentation says which SQL it stands for, and `tests/tests/cluster/sim_model.rs` runs that SQL.
//! Start reading at [`Statement`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tutti_txn::{Decision, Gid};

/// A client's transaction, numbered by the world.
pub type TxnNo = u32;
/// A register: a row whose value is the list of the transactions that wrote it; or a table of one such row
/// that can be on any node, or the catalog's row about a table ([`is_table`], [`catalog_of`]).
pub type Key = u8;

/// The first table's key.
pub const FIRST_TABLE: Key = 100;
const FIRST_CATALOG: Key = 150;

/// Whether the key is that of a table that can be moved from node to node. It has a lock of its own.
pub fn is_table(key: Key) -> bool {
    (FIRST_TABLE..FIRST_CATALOG).contains(&key)
}

/// The register on node 1 that says where a table is: each move appends to it.
pub fn catalog_of(table: Key) -> Key {
    table - FIRST_TABLE + FIRST_CATALOG
}

/// A backend of a node; never used twice by it, also across restarts.
pub type BackendId = u32;
/// An exported snapshot.
pub type ExportId = u32;
/// What a statement read: each register with the transactions that it shows, in order.
pub type Rows = BTreeMap<Key, Vec<TxnNo>>;

/// Isolation levels of the model. SERIALIZABLE is not among them: PostgreSQL's own detection of
/// dangerous structures is not modelled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Isolation {
    /// A new snapshot for each statement.
    ReadCommitted,
    /// One snapshot for all.
    RepeatableRead,
}

/// A statement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Statement {
    /// `BEGIN ISOLATION LEVEL …`
    Begin(Isolation),
    /// `SET TRANSACTION SNAPSHOT '…'`
    Import(ExportId),
    /// `SELECT pg_export_snapshot()`
    Export,
    /// `SELECT` of some registers.
    Read(BTreeSet<Key>),
    /// Parse of the same, with no Sync after it: the tables are locked here.
    Parse(BTreeSet<Key>),
    /// Bind of the same: its snapshot is taken here.
    Bind(BTreeSet<Key>),
    /// Execute of what was bound.
    Execute,
    /// `UPDATE … SET value = value || <txn> … RETURNING value`; into a table, `INSERT`
    Append(Key, TxnNo),
    /// `LOCK TABLE … IN ACCESS EXCLUSIVE MODE`
    LockTable(Key),
    /// `DELETE FROM` the table, with what it returns.
    TakeOut(Key),
    /// `INSERT` of what another node has given.
    PutIn(Key, Vec<TxnNo>),
    /// `COMMIT`
    Commit,
    /// `ROLLBACK`
    Rollback,
    /// `PREPARE TRANSACTION '…'`
    Prepare(Gid),
    /// `COMMIT PREPARED '…'`
    CommitPrepared(Gid),
    /// `ROLLBACK PREPARED '…'`
    RollbackPrepared(Gid),
    /// `INSERT INTO tutti.decision VALUES ('…', 'committed')`
    RecordDecision(Gid),
    /// `INSERT INTO tutti.decision VALUES ('…', 'committed') ON CONFLICT DO NOTHING RETURNING gid`
    Decide(Gid),
    /// `INSERT INTO tutti.decision VALUES ('…', 'aborted') ON CONFLICT DO NOTHING`, then the
    /// `SELECT decision` of the row.
    ReadOrRefuse(Gid),
    /// Only that `SELECT`.
    ReadDecision(Gid),
    /// `DELETE FROM tutti.decision` of one row, with `synchronous_commit = off`.
    ForgetDecision(Gid),
    /// `SELECT gid FROM pg_prepared_xacts`
    ListPrepared,
    /// `pg_terminate_backend` of these backends, of connections that the asking gateway has given up;
    /// answered when they have ended.
    EndBackends(BTreeSet<BackendId>),
    /// `pg_cancel_backend` of these.
    Cancel(BTreeSet<BackendId>),
    /// `pg_stat_activity` and `pg_blocking_pids` of some backends: what `placement_change` asks.
    Look {
        /// The backends.
        of: BTreeSet<BackendId>,
        /// Those of the change.
        ours: BTreeSet<BackendId>,
    },
    /// `BEGIN; LOCK TABLE tutti.serving IN EXCLUSIVE MODE NOWAIT`: the lock of the gateway that serves, held
    /// until the backend's end.
    TakeLock,
    /// `SELECT incarnation FROM tutti.gateway`: the newest gateway that has come to this node.
    ReadNewest,
    /// `SELECT tutti.serve(<incarnation>, …)`: the backend is put on the node's list, or refused if the node
    /// knows a newer gateway.
    Serve(u64),
    /// `LOCK TABLE tutti.backend IN SHARE ROW EXCLUSIVE MODE`, `UPDATE tutti.gateway SET incarnation = …` if
    /// that is newer, `COMMIT`.
    Raise(u64),
    /// `pg_terminate_backend` of those on the list for gateways before this one, and how many there were.
    EndListed(u64),
    /// `DELETE FROM tutti.backend` of gateways before this one.
    ClearList(u64),
    /// Any commit with `synchronous_commit = on`: what stands in the log before it is then flushed,
    /// and the standby has it.
    Harden,
    /// `SELECT nextval('tutti.incarnation')`
    NextIncarnation,
}

/// What a node answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    /// It is done.
    Done,
    /// A COMMIT or PREPARE TRANSACTION of a failed transaction: the tag `ROLLBACK`.
    RolledBack,
    /// Rows.
    Rows(Rows),
    /// A snapshot's name.
    Exported(ExportId),
    /// What the record says.
    Decision(Option<Decision>),
    /// Whether the row was inserted.
    Inserted(bool),
    /// What is prepared.
    Prepared(Vec<Gid>),
    /// A number never drawn before, or the newest that the node knows.
    Incarnation(u64),
    /// How many there were.
    Count(usize),
    /// What backends do; those that have ended are missing.
    Activity(BTreeMap<BackendId, BackendActivity>),
    /// An ERROR.
    Error(SqlState),
}

/// What a backend does.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct BackendActivity {
    /// It waits for a lock of the asking change.
    pub waits_for_ours: bool,
    /// It runs a statement, or waits in one.
    pub is_active: bool,
    /// It waits for a table's lock.
    pub waits_for_table: bool,
    /// How long ago its last statement began.
    pub runs_for: u64,
}

/// The errors that the model knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SqlState {
    /// 25P02: the transaction has failed, only its end is accepted.
    InFailedTransaction,
    /// 42704: no such prepared transaction, or no such snapshot.
    UndefinedObject,
    /// 42710: a prepared transaction of that name exists.
    DuplicateObject,
    /// 23505: the row exists.
    UniqueViolation,
    /// 40001: the row was changed after the transaction's snapshot.
    SerializationFailure,
    /// 55P03: `lock_timeout`.
    LockNotAvailable,
    /// 55000: another session is ending this prepared transaction.
    NotInPrerequisiteState,
    /// 0A000: an exporter of a snapshot cannot prepare.
    FeatureNotSupported,
    /// 57P01: another gateway has taken the cluster over.
    AdminShutdown,
    /// 57014: it was cancelled.
    QueryCanceled,
}

impl SqlState {
    /// The five characters.
    pub fn code(self) -> &'static str {
        match self {
            Self::InFailedTransaction => "25P02",
            Self::UndefinedObject => "42704",
            Self::DuplicateObject => "42710",
            Self::UniqueViolation => "23505",
            Self::SerializationFailure => "40001",
            Self::LockNotAvailable => "55P03",
            Self::NotInPrerequisiteState => "55000",
            Self::FeatureNotSupported => "0A000",
            Self::AdminShutdown => "57P01",
            Self::QueryCanceled => "57014",
        }
    }
}

/// In SQL, for traces.
impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin(Isolation::ReadCommitted) => f.write_str("BEGIN"),
            Self::Begin(Isolation::RepeatableRead) => f.write_str("BEGIN REPEATABLE READ"),
            Self::Import(export) => write!(f, "SET TRANSACTION SNAPSHOT {export}"),
            Self::Export => f.write_str("export snapshot"),
            Self::Read(keys) => write!(f, "SELECT {keys:?}"),
            Self::Parse(keys) => write!(f, "Parse SELECT {keys:?}"),
            Self::Bind(keys) => write!(f, "Bind SELECT {keys:?}"),
            Self::Execute => f.write_str("Execute"),
            Self::Append(key, txn) => write!(f, "append T{txn} to {key}"),
            Self::LockTable(table) => write!(f, "lock {table}"),
            Self::TakeOut(table) => write!(f, "take out {table}"),
            Self::PutIn(table, txns) => write!(f, "put {txns:?} into {table}"),
            Self::Commit => f.write_str("COMMIT"),
            Self::Rollback => f.write_str("ROLLBACK"),
            Self::Prepare(gid) => write!(f, "PREPARE {gid}"),
            Self::CommitPrepared(gid) => write!(f, "COMMIT PREPARED {gid}"),
            Self::RollbackPrepared(gid) => write!(f, "ROLLBACK PREPARED {gid}"),
            Self::RecordDecision(gid) => write!(f, "record {gid} committed"),
            Self::Decide(gid) => write!(f, "decide {gid} committed"),
            Self::ReadOrRefuse(gid) => write!(f, "read or refuse {gid}"),
            Self::ReadDecision(gid) => write!(f, "read the decision of {gid}"),
            Self::ForgetDecision(gid) => write!(f, "forget the decision of {gid}"),
            Self::ListPrepared => f.write_str("list what is prepared"),
            Self::EndBackends(backends) => write!(f, "end backends {backends:?}"),
            Self::Cancel(backends) => write!(f, "cancel {backends:?}"),
            Self::Look { of, ours } => write!(f, "look at {of:?} beside {ours:?}"),
            Self::TakeLock => f.write_str("take the gateway's lock"),
            Self::ReadNewest => f.write_str("read the newest gateway"),
            Self::Serve(incarnation) => write!(f, "serve for gateway {incarnation}"),
            Self::Raise(incarnation) => write!(f, "raise the newest gateway to {incarnation}"),
            Self::EndListed(incarnation) => {
                write!(f, "end listed backends of gateways before {incarnation}")
            }
            Self::ClearList(incarnation) => {
                write!(f, "clear the list of gateways before {incarnation}")
            }
            Self::Harden => f.write_str("harden"),
            Self::NextIncarnation => f.write_str("draw an incarnation"),
        }
    }
}
