//! What the executor has to do for one statement: the contract between planner and executor.
//!
//! Owns: the plan's types. A plan depends on the statement, the catalog and the name scope, never on
//! parameter values: what depends on those is left as [`KeyValue::Parameter`] and decided at Bind.
//! Never: chooses (see [`crate::planner`]) nor runs (the gateway's executor obeys).
//!
//! SQL texts in plans are final but for two things the executor fills in: `$n` stay the client's
//! parameters (same numbers, always sent with all their types), and a [`Template`]'s gaps receive
//! gathered rows.

use std::ops::Range;
use std::sync::Arc;

use crate::catalog::{MapId, Relation, quote_identifier};
use crate::closure::Declaration;
use crate::hash::{Bucket, KeyType};
use crate::refusal::Refusal;
use crate::shape::Hole;
use crate::statement::DistributeBy;

/// A plan and the reason for it, which EXPLAIN shows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Planned {
    /// What to do.
    pub plan: Plan,
    /// Why this and nothing cheaper: one sentence, lower case, no full stop.
    pub why: String,
    /// What may stay behind in the server sessions that run it.
    pub leaves: Leaves,
    /// What in its text asks for something of the session that no node knows, in order.
    pub own: Vec<OwnName>,
    /// What it runs on node 1 that the gateway does not see; asked for when it has run.
    pub unseen: Option<Box<Unseen>>,
    /// The relations on which it depends, by OID, if that is known: for plans of several steps.
    pub concerns: Option<Arc<[u32]>>,
    /// It may commit before it ends, or run after its own end, and was proven to touch tables of node 1
    /// only: these must stay there meanwhile.
    pub unasked: bool,
    /// What it runs at its end reads tables, beside rows that were gathered before: one snapshot for all.
    pub one_moment: bool,
}

/// Code on node 1 of which nobody knows what it touches until it has run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unseen {
    /// Why: `function f() reads table "t"`. `None`: it touches no table.
    pub reason: Option<String>,
    /// It may change settings of the session.
    pub sets: bool,
    /// It may catch errors of its own: what it touched before may be undone, and was seen.
    pub catches: bool,
    /// It may read rows by their place (TABLESAMPLE, ctid).
    pub samples: bool,
    /// Rows were gathered on an earlier snapshot than it sees: it must read no table at all.
    pub one_snapshot: bool,
}

impl Planned {
    /// A plan and its reason; nothing stays behind.
    pub fn new(plan: Plan, why: impl Into<String>) -> Self {
        Self {
            plan,
            why: why.into(),
            leaves: Leaves::default(),
            own: Vec::new(),
            unseen: None,
            concerns: None,
            unasked: false,
            one_moment: false,
        }
    }

    /// The statement unchanged on node 1, which it may write.
    pub(crate) fn at_home(why: impl Into<String>) -> Self {
        Self::new(Plan::One { node: NodeChoice::Home, access: Access::Write, otherwise: None }, why)
    }
}

/// Words in a statement's text that the session answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnName {
    /// Where they are, in bytes.
    pub range: Range<usize>,
    /// What they mean.
    pub own: Own,
}

/// What a session or the gateway knows and no node does.
///
/// Clients know each other by the gateway's session numbers, nodes know processes. Where a statement
/// speaks of processes, one is put in the place of the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Own {
    /// `pg_backend_pid()`; `unnamed`: it is an item of the select list that has its column's name.
    ProcessId {
        /// See above.
        unnamed: bool,
    },
    /// The view `pg_prepared_statements`, with or without an alias after it.
    PreparedStatements {
        /// See above.
        aliased: bool,
    },
    /// A view with a column `pid`, with or without an alias after it.
    Processes {
        /// Its name.
        view: &'static str,
        /// See above.
        aliased: bool,
    },
    /// The beginning of a call, from the function's name to the bracket.
    Call(ProcessFunction),
    /// The bracket that ends it; `unaliased`: it is an item of FROM that has its function's name.
    CallEnd {
        /// What is called.
        function: ProcessFunction,
        /// See above.
        unaliased: bool,
    },
}

/// A function that is told which process it is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProcessFunction {
    /// `pg_cancel_backend(pid)`
    Cancel,
    /// `pg_terminate_backend(pid)`, with or without a second argument for how long to wait.
    Terminate {
        /// See above.
        waits: bool,
    },
    /// `pg_blocking_pids(pid)`
    Blocking,
    /// `pg_safe_snapshot_blocking_pids(pid)`
    SafeSnapshotBlocking,
    /// `pg_isolation_test_session_is_blocked(pid, pids)`
    IsBlocked,
    /// `pg_log_backend_memory_contexts(pid)`
    LogMemory,
}

impl ProcessFunction {
    /// Its name in PostgreSQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancel => "pg_cancel_backend",
            Self::Terminate { .. } => "pg_terminate_backend",
            Self::Blocking => "pg_blocking_pids",
            Self::SafeSnapshotBlocking => "pg_safe_snapshot_blocking_pids",
            Self::IsBlocked => "pg_isolation_test_session_is_blocked",
            Self::LogMemory => "pg_log_backend_memory_contexts",
        }
    }
}

/// What a statement may leave behind in the server session it runs in, beyond its transaction.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Leaves {
    /// What `currval` and `lastval` answer, or `random` goes on with.
    pub sequences: bool,
    /// Notifications, whose sender is told by the connection, to some of those who listen later.
    pub notifies: bool,
    /// Values of any settings, which code that nobody has seen may have set.
    pub values: bool,
    /// Values of these settings (lower-case names) that only the server knows.
    pub settings: Vec<String>,
    /// Anything: session locks, temporary tables, channels, cursors, or what unseen code has set.
    pub anything: bool,
    /// The schema may be another one: the catalog has to be read again, once the transaction has
    /// ended.
    pub schema: bool,
}

impl Leaves {
    /// Adds what `other` leaves.
    pub fn merge(&mut self, other: Self) {
        self.sequences |= other.sequences;
        self.notifies |= other.notifies;
        self.anything |= other.anything;
        self.values |= other.values;
        self.schema |= other.schema;
        self.settings.extend(other.settings);
    }
}

/// What the statement does to the data of the nodes it runs on.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Access {
    /// Reads only; its transaction needs no vote from the node.
    Read,
    /// May write (also: calls volatile functions that are not built in).
    Write,
}

/// Whom a signal is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SignalTarget {
    /// The session itself: `pg_backend_pid()`.
    Own,
    /// A literal.
    Constant(i32),
    /// The client's parameter with this index, counted from 0.
    Parameter(u16),
}

/// A value that the distribution key is pinned to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum KeyValue {
    /// A literal, hashed at plan time (NULL too).
    Bucket(Bucket),
    /// The client's parameter with this index, counted from 0.
    Parameter(u16),
    /// The literal in this hole of the statement's shape. Only plans of shapes have it; what is
    /// executed comes from [`ShapePlan::resolve`](crate::planner::ShapePlan::resolve), which has put
    /// buckets there.
    Literal(Hole),
}

/// One value of one pinned distribution key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pin {
    /// The bucket map of the table it pins.
    pub map: MapId,
    /// How the value hashes; a parameter must have a type of the same family (or be text that is
    /// not typed yet), else the pin does not hold.
    pub key_type: KeyType,
    /// The value.
    pub value: KeyValue,
    /// The value will be stored in a column with this type modifier (-1: none), which may change
    /// it; `None`: it is compared with the key.
    pub stored: Option<i32>,
}

/// Which single node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NodeChoice {
    /// Node 1 (catalogs, sequences, temporary tables, volatile things, locks on replicated rows).
    Home,
    /// Any node will do; the executor prefers one that the transaction already uses.
    Any,
    /// The node on which all these values land. If they land on several, or one cannot be hashed,
    /// the plan's `otherwise` is taken.
    Pinned(Vec<Pin>),
}

/// SQL text with gaps that gathered rows fill.
///
/// A gap stands inside `unnest(GAP::schema.table[])`: the executor puts a string literal with the
/// array of the collected rows there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Template(pub Vec<Piece>);

impl Template {
    /// The same with text before and after.
    #[must_use]
    pub fn wrap(mut self, before: &str, after: &str) -> Self {
        self.0.insert(0, Piece::Sql(before.to_owned()));
        self.0.push(Piece::Sql(after.to_owned()));
        self
    }
}

/// A part of a [`Template`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Piece {
    /// Text as it is.
    Sql(String),
    /// The rows of [`Gather::collects`] with this index (or, in [`InsertSource::Select`], the
    /// source's rows for the node: index 0), as a parameter that is the text of an array of composite
    /// values.
    Rows(usize),
    /// The transaction's timestamp, as a `timestamptz` literal that the executor read from node 1:
    /// what `now()` must be on all nodes alike.
    Now,
}

/// What to bring together of one table before a final statement can run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Collect {
    /// Whose rows.
    pub relation: Arc<Relation>,
    /// A SELECT with exactly one output column: the row as the table's own composite type, cast to
    /// text: `SELECT ROW(a, NULL, c)::public.t::text FROM public.t AS alias WHERE …`. Columns that
    /// the statement cannot need are NULL.
    pub select: String,
    /// From which nodes.
    pub from: CollectFrom,
}

/// Where a [`Collect`] runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CollectFrom {
    /// On all nodes: each has its share.
    AllNodes,
    /// On one node, which has all that matters (pinned, or a replicated table).
    One(NodeChoice),
}

/// Gather: collect, then run a final statement over the collected rows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Gather {
    /// What to collect; tables that the final statement can read in place are not here.
    pub collects: Vec<Collect>,
    /// The final statement.
    pub statement: Template,
    /// Where the final statement runs.
    pub run_on: RunOn,
    /// What the final statement does.
    pub access: Access,
    /// The distributed or home table that it writes: its OID on node 1.
    pub writes: Option<u32>,
}

/// Where a final statement runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RunOn {
    /// On one node; its answer is the answer.
    One(NodeChoice),
    /// On every node, over the rows each has; answers are concatenated, row counts added.
    EachNode,
    /// On every node, node 1 first and alone; all must report the same row count; node 1's answer
    /// is the answer.
    Replicas {
        /// Locks on node 1, to be taken before the statement, in this order. Needed where what the
        /// statement writes depends on more than the rows it names by primary key
        /// (docs/protocol/replicated-tables.md).
        locks: Vec<TableLock>,
        /// How to do the same by row, where a parameter's value makes that necessary.
        rows: RowsWrite,
    },
    /// On node 1; the rows that it wrote go to the other nodes.
    Rows(RowsWrite),
}

/// A write to replicated tables by row: the statement runs on node 1, and the rows that it has written
/// there are stored on the other nodes as they are.
#[derive(Clone, Eq, PartialEq)]
pub struct RowsWrite {
    /// Every replicated table that it may write.
    pub tables: Vec<Arc<Relation>>,
    /// Replicated tables that actions of foreign keys may write with them.
    pub reached: Vec<Arc<Relation>>,
    /// A distributed table refers to one of them: each node has rows that only it can check, so
    /// foreign keys must be followed there.
    pub is_referred_to: bool,
    /// The statement says by a condition which rows it writes, so they are likely to be few.
    pub names_some: bool,
    /// How the statement itself says which rows it wrote. `None`: only a comparison of the tables
    /// can tell.
    pub returned: Option<ReturnedRows>,
    /// It is about the current row of this cursor, which must be on node 1.
    pub cursor: Option<String>,
}

impl RowsWrite {
    fn written(&self) -> impl Iterator<Item = u32> {
        self.tables.iter().chain(&self.reached).map(|table| table.oid)
    }
}

impl Plan {
    /// The tables that are written by a plan of several steps, by their OIDs on node 1: what they
    /// have of defaults and triggers has made the plan, and must not change before they are locked.
    pub fn written_in_steps(&self) -> Vec<u32> {
        match self {
            Self::Replicas { rows, .. } | Self::Rows(rows) => rows.written().collect(),
            Self::Gather(gather) => {
                let rows = match &gather.run_on {
                    RunOn::Replicas { rows, .. } | RunOn::Rows(rows) => Some(rows),
                    RunOn::One(_) | RunOn::EachNode => None,
                };
                rows.into_iter().flat_map(RowsWrite::written).chain(gather.writes).collect()
            }
            Self::Insert(insert) => {
                let rows = insert.rows.iter().flat_map(RowsWrite::written);
                rows.chain([insert.relation.oid]).collect()
            }
            Self::Move(of) => vec![of.relation.oid],
            Self::CopyFrom(copy) => vec![copy.relation.oid],
            _ => Vec::new(),
        }
    }
}

impl std::fmt::Debug for RowsWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tables: Vec<_> = self.tables.iter().map(|table| table.name.as_str()).collect();
        write!(f, "{}", tables.join(" "))?;
        match &self.returned {
            Some(returned) => write!(f, " returned by {}", returned.kind.as_str())?,
            None => write!(f, " compared")?,
        }
        if !self.reached.is_empty() {
            let reached: Vec<_> = self.reached.iter().map(|table| table.name.as_str()).collect();
            write!(f, " with {}", reached.join(" "))?;
        }
        self.cursor.as_ref().map_or(Ok(()), |cursor| write!(f, " at {cursor}"))
    }
}

/// Rows that a statement returns beside what the client has asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReturnedRows {
    /// What was done to them.
    pub kind: RowKind,
    /// What is to be put after the statement, so that the row is one more column of what it returns.
    pub returning: String,
}

/// What a statement does to the rows that it returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RowKind {
    /// They are new.
    Insert,
    /// They are new, or have been changed under their primary key.
    Upsert,
    /// They have been changed under their primary key.
    Update,
    /// They are gone.
    Delete,
}

impl RowKind {
    /// As the schema's functions call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Upsert => "upsert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// A lock on a table, or on all that a view reads.
#[derive(Clone, Eq, PartialEq)]
pub struct TableLock {
    /// Schema of the table.
    pub schema: String,
    /// Its name.
    pub table: String,
    /// How it is locked.
    pub mode: LockMode,
}

/// How a table is locked.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum LockMode {
    /// SHARE: nobody writes it.
    Share,
    /// SHARE ROW EXCLUSIVE: nobody else writes it, nor locks it to do so.
    ShareRowExclusive,
}

impl LockMode {
    /// As LOCK TABLE has it.
    pub fn as_sql(self) -> &'static str {
        match self {
            Self::Share => "SHARE",
            Self::ShareRowExclusive => "SHARE ROW EXCLUSIVE",
        }
    }
}

/// As the statement that would take it.
impl std::fmt::Display for TableLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (schema, table) = (quote_identifier(&self.schema), quote_identifier(&self.table));
        write!(f, "LOCK TABLE {schema}.{table} IN {} MODE", self.mode.as_sql())
    }
}

impl std::fmt::Debug for TableLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// UPDATE that may change distribution keys.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Move {
    /// The target table.
    pub relation: Arc<Relation>,
    /// Per node: locks the rows and returns of each its place (`ctid`), the table that has it there
    /// (`tableoid`), and as composite text what it shall become.
    pub select: String,
    /// For rows that stay on their node. Gap 0: places, 1: tables, 2: rows.
    pub update: Template,
    /// For rows that leave it. Gap 0: places, 1: tables.
    pub delete: Template,
    /// Gap 0: the rows for the node.
    pub insert: Template,
}

/// Which columns of a table each row of an INSERT must receive beyond what the client wrote.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Insert {
    /// The target table (not a view).
    pub relation: Arc<Relation>,
    /// Where the rows come from.
    pub source: InsertSource,
    /// RETURNING is present: rows come back.
    pub returning: bool,
    /// Every source row gives exactly one returned row, in order, on each node (no ON CONFLICT): the
    /// executor then restores the source's order over the nodes.
    pub one_row_each: bool,
    /// The target is replicated, and node 1 alone inserts the rows: what comes of it goes to the other
    /// nodes.
    pub rows: Option<RowsWrite>,
}

/// The rows of an INSERT that goes to several nodes or needs values evaluated first.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum InsertSource {
    /// VALUES lists that can be sent as the client wrote them: per node `prefix`, the node's rows
    /// joined by `, `, `suffix`. Only for hash and round robin targets, nothing to evaluate.
    Values {
        /// `INSERT INTO t (cols) [OVERRIDING …] VALUES `.
        prefix: String,
        /// The rows in order.
        rows: Vec<ValuesRow>,
        /// ` ON CONFLICT … RETURNING …`, or empty.
        suffix: String,
    },
    /// A query is run first (as a statement of its own, see `plan`), its rows are then inserted.
    Select {
        /// The query that yields the rows: exactly `columns.len()` output columns, each cast to its
        /// column's type (without modifier), plus nothing else. Columns that the client left out but
        /// whose default must be evaluated once for the cluster (sequences; anything not immutable
        /// for a replicated target; the distribution key) are included here.
        query: String,
        /// How to run `query`.
        plan: Box<Planned>,
        /// For each output column its index in `relation.columns`.
        columns: Vec<usize>,
        /// Output column that is the distribution key (hash targets).
        key: Option<usize>,
        /// The INSERT per node; gap 0 is `'…'` inside `unnest(GAP::schema.t[])`.
        insert: Template,
    },
}

/// One row of [`InsertSource::Values`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ValuesRow {
    /// `(1, 'x', $3)`.
    pub sql: String,
    /// Its distribution key (hash targets); `None` for round robin.
    pub key: Option<Pin>,
}

/// COPY … FROM STDIN.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CopyFrom {
    /// The target table.
    pub relation: Arc<Relation>,
    /// The COPY statement for the nodes, with the columns of `fill` appended to its column list.
    pub statement: String,
    /// Format options as written, for the splitter: lower-case names, values as text (`format`,
    /// `delimiter`, `null`, `header`, `quote`, `escape`, `force_null`, `force_not_null`,
    /// `encoding`, `default`); an option that names columns has one entry for each.
    pub options: Vec<(String, String)>,
    /// Columns that the data has, as indexes in `relation.columns`, in the data's order.
    pub columns: Vec<usize>,
    /// Position of the distribution key among `columns` and then `fill` (hash targets).
    pub key: Option<usize>,
    /// Columns to append to each row: index in `relation.columns` and the expression to evaluate
    /// once per row on node 1 (defaults that must be drawn once for the cluster).
    pub fill: Vec<(usize, String)>,
    /// What is appended is read alike whatever a session has set (it is written so).
    pub fill_is_read_alike: bool,
    /// Positions in the data of columns where a text may mean the current time (replicated targets):
    /// each node reads it for itself.
    pub timed: Vec<usize>,
    /// What travels after the data if it does.
    pub rows: Option<RowsWrite>,
}

/// COPY … TO STDOUT.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CopyTo {
    /// How the rows come together; texts inside are COPY statements.
    pub plan: CopyToPlan,
    /// Binary format: signature and trailer must appear once.
    pub binary: bool,
    /// A header line must appear once.
    pub header: bool,
}

/// The three ways of COPY … TO STDOUT.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CopyToPlan {
    /// The client's statement on one node, and what it does there: it may return rows that it writes.
    One(NodeChoice, Access),
    /// The client's statement on every node, concatenated.
    Scatter,
    /// Gather; the final statement is a COPY.
    Gather(Gather),
}

/// A statement that changes the schema.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ddl {
    /// Tables (not views) that it creates: `None` schema means the first of the search path. Their
    /// placement is registered in the same transaction.
    pub creates: Option<CreatedTable>,
    /// Something may have been dropped or renamed: registrations without a table are removed.
    pub may_drop: bool,
    /// Sequences may have been created, reset or altered (serial columns, TRUNCATE … RESTART
    /// IDENTITY): copies outside node 1 are disarmed again.
    pub touches_sequences: bool,
    /// Which nodes it is for.
    pub scope: DdlScope,
    /// It changes relations alone and what belongs to them: no function, type, operator or cast.
    pub of_relations: bool,
    /// It computes rows of a replicated table anew, which need not come out the same everywhere: the
    /// copies then get those of node 1.
    pub rows: Option<RowsWrite>,
    /// The role whose name it takes. Other nodes may still have one of that name, which was dropped while
    /// all was on node 1.
    pub names_role: Option<String>,
}

/// Which nodes a schema change is for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum DdlScope {
    /// All, alike: everything is on all nodes.
    #[default]
    AllNodes,
    /// Node 1 alone.
    Home,
    /// Node 1 alone, and no rule of placement can be broken by it: nothing is asked after it until the
    /// transaction needs to know what it has changed.
    HomeAsItIs,
    /// Node 1, and the others as far as they have what it concerns.
    Shared {
        /// OIDs (on node 1) of the tables on several nodes that it changes: with these it must succeed
        /// everywhere. None: on other nodes it may name what only node 1 has, and is then left out.
        relations: Vec<u32>,
        /// These may need more than before, which other nodes may lack.
        brings: bool,
        /// What other nodes are told, if it is not the client's text.
        others: Option<String>,
    },
}

/// A table that a DDL statement creates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CreatedTable {
    /// Schema as written, if written.
    pub schema: Option<String>,
    /// Its name.
    pub name: String,
    /// The clause, if written.
    pub distribute_by: Option<DistributeBy>,
    /// `PARTITION OF` / `INHERITS`: takes the parent's placement (schema as written, name).
    pub parent: Option<(Option<String>, String)>,
    /// IF NOT EXISTS: an existing table keeps its registration.
    pub if_not_exists: bool,
    /// `CREATE TABLE … AS` / `SELECT INTO`: the nodes create it empty (`Plan::CreateTableAs`).
    pub filled_by: Option<String>,
}

/// Transaction modes, as far as they are given.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TransactionModes {
    /// Isolation level: `read committed`, `repeatable read`, `serializable`, `read uncommitted`.
    pub isolation: Option<String>,
    /// READ ONLY / READ WRITE.
    pub read_only: Option<bool>,
    /// DEFERRABLE / NOT DEFERRABLE.
    pub deferrable: Option<bool>,
}

/// Statements about transactions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TransactionControl {
    /// BEGIN / START TRANSACTION.
    Begin {
        /// What is given.
        modes: TransactionModes,
        /// START TRANSACTION, whose command tag says so.
        start: bool,
    },
    /// COMMIT / END, with AND CHAIN.
    Commit {
        /// AND CHAIN.
        chain: bool,
    },
    /// ROLLBACK / ABORT, with AND CHAIN.
    Rollback {
        /// AND CHAIN.
        chain: bool,
    },
    /// SAVEPOINT name.
    Savepoint(String),
    /// RELEASE name.
    Release(String),
    /// ROLLBACK TO name.
    RollbackTo(String),
    /// PREPARE TRANSACTION with this identifier.
    Prepare(String),
    /// COMMIT PREPARED or ROLLBACK PREPARED with this identifier.
    EndPrepared(String),
}

/// SET and its kin.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Setting {
    /// `SET [SESSION] name …`, also `SET TIME ZONE`, `SET ROLE`, `SET SESSION AUTHORIZATION`.
    Set {
        /// Lower-case name (`role`, `session_authorization`, `timezone` for the special forms).
        name: String,
    },
    /// `SET LOCAL name …`.
    SetLocal {
        /// Lower-case name.
        name: String,
        /// `SET LOCAL name TO DEFAULT`.
        to_default: bool,
    },
    /// `SET TRANSACTION …`.
    SetTransaction {
        /// What is given.
        modes: TransactionModes,
        /// SET SESSION CHARACTERISTICS AS TRANSACTION.
        session: bool,
        /// `SET TRANSACTION SNAPSHOT` was used.
        snapshot: bool,
    },
    /// SET CONSTRAINTS: for this transaction, on every node.
    SetConstraints {
        /// As SQL; empty for ALL.
        names: Vec<String>,
        /// DEFERRED or IMMEDIATE.
        deferred: bool,
    },
    /// `RESET name`.
    Reset {
        /// Lower-case name.
        name: String,
    },
    /// RESET ALL.
    ResetAll,
    /// `SHOW name` / SHOW ALL.
    Show {
        /// Lower-case name, `all` for all.
        name: String,
    },
    /// DISCARD ALL / PLANS / SEQUENCES / TEMP.
    Discard {
        /// Lower-case word.
        what: String,
    },
    /// `SELECT set_config('name', 'value', is_local)` with constant arguments: run on node 1 for its
    /// answer, remembered as SET.
    SetConfig {
        /// Lower-case name.
        name: String,
        /// The value; `None` for NULL.
        value: Option<String>,
        /// Third argument.
        local: bool,
    },
}

/// The same locks in EXCLUSIVE mode, which keeps out everybody but who only reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LockBefore {
    /// On node 1.
    pub home: String,
    /// On the others; empty: nothing.
    pub others: String,
}

/// SQL-level prepared statements.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Prepared {
    /// `PREPARE name (types) AS text`.
    Prepare {
        /// Name.
        name: String,
        /// Declared types, as written.
        types: Vec<String>,
        /// The statement after AS.
        text: String,
    },
    /// `EXECUTE name (arguments)`.
    Execute {
        /// Name.
        name: String,
        /// Arguments as SQL expressions.
        arguments: Vec<String>,
    },
    /// A statement around EXECUTE: `EXPLAIN EXECUTE name (arguments)`, `CREATE TABLE … AS EXECUTE …`.
    Within {
        /// The text before EXECUTE.
        before: String,
        /// Name.
        name: String,
        /// Arguments as SQL expressions.
        arguments: Vec<String>,
        /// The text after the arguments.
        after: String,
    },
    /// `DEALLOCATE name`; `None` for ALL.
    Deallocate(Option<String>),
}

/// What to do for one statement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Plan {
    /// Forward the statement as the client wrote it to one node.
    One {
        /// Which.
        node: NodeChoice,
        /// What it does there.
        access: Access,
        /// Taken when `node` is pinned and the pins do not agree at run time. Present whenever that
        /// can happen.
        otherwise: Option<Box<Planned>>,
    },
    /// Forward it unchanged to every node; rows are concatenated, row counts added.
    Scatter {
        /// What it does there.
        access: Access,
    },
    /// A write to replicated tables, unchanged on every node, node 1 first ([`RunOn::Replicas`]).
    Replicas {
        /// As in [`RunOn::Replicas`].
        locks: Vec<TableLock>,
        /// As there.
        rows: RowsWrite,
    },
    /// A write to replicated tables, unchanged on node 1; what it wrote there goes to the other nodes.
    Rows(RowsWrite),
    /// Gather.
    Gather(Gather),
    /// INSERT that one node alone cannot take as written.
    Insert(Insert),
    /// UPDATE that may change distribution keys: each node locks its rows and says what they shall become.
    /// Those that stay on their node are updated there; the others are deleted, and inserted where they
    /// belong.
    Move(Box<Move>),
    /// COPY … FROM STDIN to more than what one unchanged statement on one node can do.
    CopyFrom(CopyFrom),
    /// COPY … TO STDOUT.
    CopyTo(CopyTo),
    /// Schema change: the statement on all nodes, node 1 first, in one global transaction.
    Ddl(Ddl),
    /// `CREATE TABLE … AS` / `SELECT INTO`: `create` on all nodes (WITH NO DATA), registered, then
    /// `insert` (an INSERT … SELECT text) is planned and run, unless WITH NO DATA was asked for.
    CreateTableAs {
        /// The DDL half.
        ddl: Ddl,
        /// `CREATE TABLE … AS … WITH NO DATA`.
        create: String,
        /// `INSERT INTO t SELECT …`, or `None` for WITH NO DATA.
        insert: Option<String>,
    },
    /// Creates, changes or drops temporary objects only: on node 1, after which the session's names
    /// may mean something else.
    TemporaryDdl {
        /// CREATE TEMPORARY TABLE … AS over distributed tables: the rows are gathered, and the final
        /// statement creates the table. `None`: the statement as the client wrote it.
        gather: Option<Gather>,
    },
    /// On every node, outside any transaction block (VACUUM, ANALYZE, REINDEX, CLUSTER, CHECKPOINT).
    EveryNodeAlone {
        /// PostgreSQL refuses it inside a transaction block.
        refuses_transaction: bool,
        /// What other nodes are told, if it is not the client's text: what they have, which may be
        /// nothing.
        others: Option<String>,
    },
    /// DROP INDEX CONCURRENTLY: on node 1, outside any transaction block, if no table of these indexes
    /// (as SQL names) is on other nodes.
    DropHomeIndexes(Vec<String>),
    /// BEGIN, COMMIT and their kin.
    Transaction(TransactionControl),
    /// SET, SHOW and their kin.
    Setting(Setting),
    /// PREPARE, EXECUTE, DEALLOCATE.
    Prepared(Prepared),
    /// `DECLARE name CURSOR FOR query`; `query` holds the plan of the query, whose texts are the whole
    /// DECLARE statement. Scatter never occurs here (it is gathered).
    DeclareCursor {
        /// Cursor name.
        name: String,
        /// How to run it: `One` or `Gather`.
        query: Box<Planned>,
    },
    /// FETCH / MOVE / CLOSE, UPDATE or DELETE … WHERE CURRENT OF: on the cursor's node.
    Cursor {
        /// Cursor name; `None` for CLOSE ALL.
        name: Option<String>,
        /// CLOSE.
        close: bool,
    },
    /// LISTEN, UNLISTEN: node 1, whose channels the others listen to as well. NOTIFY: node 1.
    Notification {
        /// Not NOTIFY.
        listens: bool,
    },
    /// LOCK TABLE: on every node, node 1 first.
    LockEverywhere {
        /// What other nodes are told, if it is not the client's text: what they have.
        others: Option<String>,
        /// ACCESS EXCLUSIVE, the mode of LOCK TABLE without one, gives a transaction a number, and then
        /// no snapshot can be imported any more. So where the transaction needs one, this comes first.
        before: Option<LockBefore>,
    },
    /// EXPLAIN [ANALYZE] of a statement.
    Explain {
        /// The statement's own plan.
        of: Box<Planned>,
        /// Text of the explained statement.
        statement: String,
        /// `EXPLAIN (options) ` with which to ask a node about a statement.
        prefix: String,
        /// ANALYZE was asked for (it really runs the statement).
        analyze: bool,
        /// FORMAT TEXT (or none given).
        text_format: bool,
    },
    /// A function of Tutti itself: `SELECT tutti_distribute('orders', 'customer_id')` and the like.
    Tutti(TuttiCall),
    /// Nothing: what the client is told instead. Only where a plan could not be carried out as hoped.
    Refused(Box<Refusal>),
    /// An empty statement.
    Empty,
}

/// Functions that the gateway answers itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TuttiCall {
    /// `tutti_distribute('table', 'column', …)`: HASH by that column;
    /// `tutti_replicate('table', …)`; `tutti_round_robin('table', …)`; `tutti_home('table', …)`.
    Distribute {
        /// The function's name (the answer's column name).
        function: String,
        /// Table names as given (may be qualified; parsed as regclass does), and to what. They go
        /// together: what may be when all are there, may be.
        tables: Vec<(String, DistributeBy)>,
    },
    /// `tutti_function('f', 'row')`: says where a function may run; NULL or `none` takes it back.
    Declare {
        /// The function, perhaps with the types of its arguments.
        function: String,
        /// What is said of it.
        declared: Option<Declaration>,
    },
    /// `tutti_outcome('gid')`: what became of a transaction.
    Outcome {
        /// Its identifier, as given.
        gid: String,
    },
    /// `pg_cancel_backend(n)`, `pg_terminate_backend(n)`: where n is a session of the gateway's, the
    /// gateway obeys; else it is a process of node 1.
    Signal {
        /// `pg_cancel_backend` or `pg_terminate_backend`.
        function: String,
        /// The session or process.
        target: SignalTarget,
    },
    /// `tutti_version()`, `tutti_nodes()`, `tutti_tables()`, `tutti_in_doubt()`, `tutti_check()`: information.
    Show {
        /// The function's name.
        function: String,
    },
}
