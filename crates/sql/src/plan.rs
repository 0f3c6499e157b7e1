//! What the executor has to do for one statement: the contract between planner and executor.
//!
//! Owns: the plan's types. A plan depends on the statement, the catalog and the name scope, never on
//! parameter values: what depends on those is left as [`KeyValue::Parameter`] and decided at Bind.
//! Never: chooses (see [`crate::planner`]) nor runs (the gateway's executor obeys).
//!
//! SQL texts in plans are final except for what the executor fills in: `$n` stay the client's parameters (same
//! numbers, always sent with all their types); a [`Template`]'s gaps receive gathered rows, as parameters after the
//! client's (as settings for commands that take none), the current time ([`Piece::Time`]) and what is each
//! node's own ([`Piece::Buckets`]); and names that only the session knows are replaced ([`SessionNames`]).

mod concerns;
mod copy;
mod explain;
mod gather;
mod place;
mod residue;
mod rows;
mod schema;
mod session;
mod session_names;
mod steps;

use std::sync::Arc;

pub use concerns::Concerns;
pub use copy::{CopiedColumns, CopyFrom, CopyTo, CopyToPlan};
pub use explain::{Explain, ExplainFormat};
pub use gather::{
    Brought, ByKey, Collect, CollectFrom, ComputedFirst, FirstRows, Gather, InTables, Partial,
    Piece, Reduced, RowLocks, RowsTable, RunOn, ScalarSubquery, Template,
};
pub use place::{Access, KeyValue, NodeChoice, Pin};
pub use residue::Residue;
pub use rows::{LockMode, ReturnedRows, RowKind, RowsWrite, TableLock};
pub use schema::{
    AddedForeignKeys, AddedIndex, Computed, ConcurrentIndex, CreatedTable, Ddl, DdlNodes, Draws,
    DroppedIndex, FilledView, GlobalIndex, IndexName, Lending, Truncated, Unnamed,
};
pub use session::{
    InstanceNamed, Placing, PreparedCommand, RequestCall, Setting, Shown, SignalTarget,
    TransactionControl, TransactionModes, TuttiCall, Value,
};
pub use session_names::{ProcessFunction, SessionName, SessionNameAt};
pub use steps::{Step, Steps};

use crate::catalog::{Placement, Relation};
use crate::refusal::Refusal;

/// A plan and the reason for it, which EXPLAIN shows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Planned {
    /// What to do.
    pub plan: Plan,
    /// Why this and nothing cheaper: one sentence, lower case, no full stop.
    pub why: String,
    /// What may stay behind in the server sessions that run it.
    pub residue: Residue,
    /// What in its text asks for something of the session that no node knows, in order.
    pub session_names: Vec<SessionNameAt>,
    /// What it runs on node 1 that the gateway does not see; asked for when it has run.
    pub unseen: Option<Box<Unseen>>,
    /// What it depends on, if that is known.
    pub concerns: Option<Arc<Concerns>>,
    /// It may commit before it ends, or run after its own end, and was proven to touch tables of node 1
    /// only: these must stay there meanwhile.
    pub unasked: bool,
    /// What it runs at its end reads tables, besides rows that were gathered before: one snapshot for
    /// all.
    pub one_moment: bool,
    /// Whether it was planned for parts of which each has a snapshot of its own, see
    /// [`crate::planner::Context::collects_replicated`].
    pub in_moments: bool,
    /// Views, by OID, whose queries it writes out, and that name tables with row security: only as their owner does
    /// it read what they show.
    pub as_owner_of: Vec<u32>,
    /// Views, by OID, whose queries it writes out, each with the view that reads it, if not the client does: nobody but the
    /// gateway asks whether they may be read.
    pub written_out: Vec<(Option<u32>, u32)>,
    /// It reads rows of asynchronously replicated tables, which may be late: no SERIALIZABLE transaction may.
    pub may_be_late: bool,
    /// It may change what entries are kept of, or what they refer to: what has changed is asked for when it has run.
    pub keeps_entries: bool,
    /// It may change what foreign keys that hold over all nodes refer to: they are checked when it has run.
    pub checks_references: bool,
}

/// Code on node 1 of which it is not known what it touches until it has run.
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
    pub fn new(plan: impl Into<Plan>, why: impl Into<String>) -> Self {
        Self {
            plan: plan.into(),
            why: why.into(),
            residue: Residue::default(),
            session_names: Vec::new(),
            unseen: None,
            concerns: None,
            may_be_late: false,
            keeps_entries: false,
            checks_references: false,
            as_owner_of: Vec::new(),
            written_out: Vec::new(),
            unasked: false,
            one_moment: false,
            in_moments: false,
        }
    }

    /// The relations on which it depends, by OID, if that is known.
    pub fn relations(&self) -> Option<&Arc<[u32]>> {
        self.concerns.as_ref()?.relations.as_ref()
    }

    /// The statement unchanged on node 1, which it may write.
    pub(crate) fn at_home(why: impl Into<String>) -> Self {
        Self::new(
            DataPlan::One { node: NodeChoice::Home, access: Access::Write, otherwise: None },
            why,
        )
    }
}

impl Plan {
    /// Whether one node alone reads the client's text, which it is sent as it is.
    pub fn is_read_by_a_node(&self) -> bool {
        matches!(self, Self::Data(DataPlan::One { otherwise: None, .. }))
    }

    /// The tables that are written by a plan of several steps, by their OIDs on node 1: what they
    /// have of defaults and triggers has made the plan, and must not change before they are locked.
    pub fn written_in_steps(&self) -> Vec<u32> {
        let Self::Data(plan) = self else { return Vec::new() };
        match plan {
            DataPlan::Replicas { rows, .. } | DataPlan::Rows(rows) => rows.written().collect(),
            DataPlan::Gather(gather) => {
                let rows = match &gather.run_on {
                    RunOn::Replicas { rows, .. } | RunOn::Rows(rows) => Some(rows),
                    RunOn::One(_) | RunOn::EachNode => None,
                };
                rows.into_iter().flat_map(RowsWrite::written).chain(gather.writes).collect()
            }
            DataPlan::Insert(insert) => {
                let rows = insert.rows.iter().flat_map(RowsWrite::written);
                rows.chain([insert.relation.oid]).collect()
            }
            DataPlan::Move(of) => vec![of.relation.oid],
            DataPlan::Steps(steps) => {
                steps.all().flat_map(|step| step.planned.plan.written_in_steps()).collect()
            }
            DataPlan::CopyFrom(copy) => vec![copy.relation.oid],
            DataPlan::One { otherwise: Some(otherwise), .. } => otherwise.plan.written_in_steps(),
            DataPlan::Explain(explain) if explain.analyze => explain.of.plan.written_in_steps(),
            DataPlan::One { otherwise: None, .. }
            | DataPlan::Scatter { .. }
            | DataPlan::CopyTo(_)
            | DataPlan::DeclareCursor { .. }
            | DataPlan::Cursor { .. }
            | DataPlan::Explain(_)
            | DataPlan::Refused(_) => Vec::new(),
        }
    }
}

impl Plan {
    /// The relations whose rows are read in one step and made anew in another, by the columns that they have.
    pub fn brought(&self) -> Vec<&Arc<Relation>> {
        fn of_gather(gather: &Gather) -> Vec<&Arc<Relation>> {
            gather.collects.iter().map(|collect| &collect.relation).collect()
        }
        match self {
            Self::Data(DataPlan::Gather(gather)) => of_gather(gather),
            Self::Data(DataPlan::One { otherwise: Some(otherwise), .. }) => {
                otherwise.plan.brought()
            }
            Self::Data(DataPlan::Insert(insert)) => match &insert.source {
                InsertSource::Values { .. } => Vec::new(),
                InsertSource::Select { plan, .. } => plan.plan.brought(),
            },
            Self::Data(DataPlan::CopyTo(copy)) => match &copy.plan {
                CopyToPlan::Gather(gather) => of_gather(gather),
                CopyToPlan::One(..) | CopyToPlan::Scatter => Vec::new(),
            },
            Self::Data(DataPlan::DeclareCursor { query, .. }) => query.plan.brought(),
            Self::Data(DataPlan::Explain(explain)) => explain.of.plan.brought(),
            Self::Data(DataPlan::Steps(steps)) => {
                steps.all().flat_map(|step| step.planned.plan.brought()).collect()
            }
            Self::Schema(SchemaPlan::TemporaryDdl { gather: Some(gather), .. }) => {
                of_gather(gather)
            }
            Self::Data(_) | Self::Schema(_) | Self::Session(_) => Vec::new(),
        }
    }
}

impl Planned {
    /// Whether what it does on several nodes must be there on all of them or on none, for the nodes' copies
    /// and definitions to stay alike: whatever its client would be content with.
    ///
    /// Of rows that may go to another node, whether they have gone is known when it has run.
    pub fn ties_nodes(&self) -> bool {
        // Of code that is not seen, nothing is known in time. Entries go with their rows.
        self.unseen.is_some() || self.keeps_entries || self.plan.ties_nodes()
    }
}

impl Plan {
    fn ties_nodes(&self) -> bool {
        match self {
            Self::Data(plan) => plan.ties_nodes(),
            Self::Schema(plan) => !matches!(plan, SchemaPlan::LockEverywhere { .. }),
            Self::Session(plan) => matches!(
                plan,
                SessionPlan::Tutti(
                    TuttiCall::Distribute { .. } | TuttiCall::Place(_) | TuttiCall::Declare { .. }
                )
            ),
        }
    }
}

impl DataPlan {
    fn ties_nodes(&self) -> bool {
        let of_gather =
            |gather: &Gather| matches!(gather.run_on, RunOn::Replicas { .. } | RunOn::Rows(_));
        match self {
            // On one node replicated tables are written only where there is no other.
            Self::One { .. } | Self::Scatter { .. } | Self::Move(_) => false,
            Self::Cursor { .. } | Self::Refused(_) => false,
            Self::Replicas { .. } | Self::Rows(_) => true,
            Self::Gather(gather) => of_gather(gather),
            Self::Insert(insert) => {
                let of_source = match &insert.source {
                    InsertSource::Values { .. } => false,
                    InsertSource::Select { plan, .. } => plan.ties_nodes(),
                };
                of_source
                    || insert.rows.is_some()
                    || insert.relation.placement == Placement::Replicated
            }
            Self::CopyFrom(copy) => {
                copy.rows.is_some() || copy.relation.placement == Placement::Replicated
            }
            Self::CopyTo(copy) => match &copy.plan {
                CopyToPlan::One(..) | CopyToPlan::Scatter => false,
                CopyToPlan::Gather(gather) => of_gather(gather),
            },
            Self::DeclareCursor { query, .. } => query.ties_nodes(),
            Self::Steps(steps) => steps.all().any(|step| step.planned.ties_nodes()),
            Self::Explain(explain) => explain.of.ties_nodes(),
        }
    }
}

/// UPDATE that may change distribution keys.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Move {
    /// The target table.
    pub relation: Arc<Relation>,
    /// Columns that the statement assigns.
    pub assigned: Vec<String>,
    /// Per node: locks the rows and returns for each its position (`ctid`), the table that holds it
    /// there (`tableoid`), and its new value as composite text.
    pub select: String,
    /// For rows that stay on their node. Gap 0: places, 1: tables, 2: rows.
    pub update: Template,
    /// For rows that leave it. Gap 0: places, 1: tables.
    pub delete: Template,
    /// Gap 0: the rows for the node.
    pub insert: Template,
    /// RETURNING is present: `update` and `insert` return rows, in whichever order.
    pub returns: bool,
    /// Where the key is computed, what node 1 is asked for the buckets of rows. Gap 0: the rows.
    pub bucket_question: Option<Template>,
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
    /// The target is replicated, and node 1 alone inserts the rows: the result goes to the other
    /// nodes.
    pub rows: Option<RowsWrite>,
    /// Where the key is computed, what node 1 is asked for the buckets of rows. Gap 0: the rows.
    pub bucket_question: Option<Template>,
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
        /// For each column of the distribution key the output column that is stored there.
        key: Vec<Option<usize>>,
        /// The INSERT per node; gap 0 is a parameter inside `unnest(GAP::schema.t[])`.
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

/// The same locks in EXCLUSIVE mode, which keeps out all but readers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LockBefore {
    /// On node 1.
    pub home: String,
    /// On the others; empty: nothing.
    pub others: String,
}

/// What to do for one statement, by what carries it out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Plan {
    /// Reads or writes rows.
    Data(DataPlan),
    /// Changes definitions, or deals with tables as a whole.
    Schema(SchemaPlan),
    /// Is the session's own, or answered by the gateway.
    Session(SessionPlan),
}

impl From<DataPlan> for Plan {
    fn from(plan: DataPlan) -> Self {
        Self::Data(plan)
    }
}

impl From<SchemaPlan> for Plan {
    fn from(plan: SchemaPlan) -> Self {
        Self::Schema(plan)
    }
}

impl From<SessionPlan> for Plan {
    fn from(plan: SessionPlan) -> Self {
        Self::Session(plan)
    }
}

/// What to do for a statement over rows, read now, by a cursor later, or only explained: on which nodes, and
/// how their answers become one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DataPlan {
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
    /// UPDATE that may change distribution keys: each node locks its rows and returns their new values.
    /// Those that stay on their node are updated there; the others are deleted, and inserted where they
    /// belong.
    Move(Box<Move>),
    /// COPY … FROM STDIN to more than what one unchanged statement on one node can do.
    CopyFrom(CopyFrom),
    /// COPY … TO STDOUT.
    CopyTo(CopyTo),
    /// `DECLARE name CURSOR FOR query`; `query` holds the plan of the query, whose texts are the whole
    /// DECLARE statement. Scatter never occurs here (it is gathered).
    DeclareCursor {
        /// Cursor name.
        name: String,
        /// WITH HOLD.
        holds: bool,
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
    /// EXPLAIN [ANALYZE] of a statement.
    Explain(Explain),
    /// What changes data in WITH, one part after the other.
    Steps(Box<Steps>),
    /// Nothing: the error for the client instead. Only where a plan could not be carried out as
    /// intended.
    Refused(Box<Refusal>),
}

/// What to do for a statement about definitions, or about tables as a whole: on which nodes, and in which
/// order and transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SchemaPlan {
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
        /// Whether code is changed that permanent objects may use.
        changes_code: bool,
    },
    /// On every node, outside any transaction block (VACUUM, ANALYZE, REINDEX, CLUSTER, CHECKPOINT).
    EveryNodeAlone {
        /// PostgreSQL refuses it inside a transaction block.
        refuses_transaction: bool,
        /// What other nodes are sent, if it is not the client's text: the part that they have,
        /// which may be nothing.
        others: Option<String>,
    },
    /// CREATE INDEX CONCURRENTLY of a table of several nodes, DROP INDEX CONCURRENTLY.
    Concurrently(ConcurrentIndex),
    /// LOCK TABLE: on every node, node 1 first.
    LockEverywhere {
        /// What other nodes are sent, if it is not the client's text: the part that they have.
        others: Option<String>,
        /// ACCESS EXCLUSIVE, the mode of LOCK TABLE without one, gives a transaction a number, and then
        /// no snapshot can be imported any more. So where the transaction needs one, this comes first.
        before: Option<LockBefore>,
    },
}

/// What to do for a statement about the session's own things: its transaction, settings, prepared
/// statements and channels; and for what the gateway itself is asked ([`TuttiCall`]): most of that neither
/// reads rows nor changes definitions, so it is of neither kind above.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SessionPlan {
    /// BEGIN, COMMIT and the like.
    Transaction(TransactionControl),
    /// SET, SHOW and the like.
    Setting(Setting),
    /// PREPARE, EXECUTE, DEALLOCATE.
    PreparedCommand(PreparedCommand),
    /// LISTEN, UNLISTEN: node 1, whose channels the others listen to as well. NOTIFY: node 1.
    Notification {
        /// Not NOTIFY.
        listens: bool,
    },
    /// A function of Tutti itself: `SELECT tutti_distribute('orders', 'customer_id')` and the like.
    Tutti(TuttiCall),
    /// An empty statement.
    Empty,
}
