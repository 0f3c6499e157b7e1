//! What a session's client has given names to: prepared statements, portals, cursors.
//!
//! Owns: what is known of them.
//! Never: makes or executes one; sends protocol messages for them.
//! Start reading at [`PreparedStatement`], then [`Portal`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::BytesMut;
use tokio::sync::Mutex;
use tutti_link::pool::SchemaVersion;
use tutti_link::pool::link::StatementId;
use tutti_link::spool::Kept;
use tutti_sql::catalog::{Catalog, NodeId};
use tutti_sql::closure::Code;
use tutti_sql::plan::{Access, Concerns, DataPlan, Plan, Planned};
use tutti_sql::statement::Statement;
use tutti_wire::backend::ColumnDescription;
use tutti_wire::frame::{Frame, take_frame};

use crate::client::failure::Failure;
use crate::plans::Basis;
use crate::plans::request::Call;
use crate::transaction::beside::Beside;
use crate::transaction::bound_with::BoundWith;

/// A client's prepared statement, made by Parse or by PREPARE.
#[derive(Clone, Debug)]
pub struct PreparedStatement {
    /// Identifies it on links, where names are reused.
    pub id: StatementId,
    /// The statement; `None` if it is empty.
    pub statement: Option<Arc<Statement>>,
    /// Parameter types as the client fixed them. 0 is open.
    pub types_given: Vec<u32>,
    /// Parameter types: as the client fixed them, later as a node described them. 0 is open.
    pub types: Vec<u32>,
    /// The number by which nodes know it, and what that depends on, once it has needed one.
    pub number: Option<(Meaning, u64)>,
    /// `types` and `columns` are what a node said.
    pub described: bool,
    /// Version of the catalog when it did, and [`ScopeState::path`](super::scope_state::ScopeState::path).
    pub described_version: (SchemaVersion, u64),
    /// Result columns as a node described them; `None`: no rows.
    pub columns: Option<Vec<ColumnDescription>>,
    /// Parameter types as SQL spells them, if EXECUTE has asked for them.
    pub type_names: Option<Vec<String>>,
    /// When it was made.
    pub prepared_at: SystemTime,
    /// By PREPARE, not by Parse.
    pub from_sql: bool,
    /// The text of PREPARE, if node 1 prepares it.
    pub source: Option<Arc<str>>,
    /// The plan, and what it was made for.
    pub plan: Option<CachedPlan>,
    /// The unnamed statement in whose place it was parsed while earlier messages were unanswered: if one of them has
    /// failed, a server keeps that.
    pub replaces: Option<Box<PreparedStatement>>,
}

impl PreparedStatement {
    /// A statement of which only what the client said is known.
    pub fn parsed(id: StatementId, statement: Option<Arc<Statement>>, types: Vec<u32>) -> Self {
        Self {
            id,
            statement,
            types_given: types.clone(),
            types,
            number: None,
            described: false,
            described_version: ((0, 0), 0),
            columns: None,
            type_names: None,
            prepared_at: SystemTime::now(),
            from_sql: false,
            source: None,
            plan: None,
            replaces: None,
        }
    }

    /// Whether its parameters or columns, as far as they are known, say in binary format numbers that servers may have
    /// given differently.
    pub fn says_numbers(&self, code: &Code) -> bool {
        let columns = self.columns.iter().flatten().map(|column| column.type_oid);
        self.types.iter().copied().chain(columns).any(|oid| code.says_numbers(oid))
    }
}

/// What the meaning of a session's statement depends on besides its text and types.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Meaning {
    /// The version of the schema.
    pub version: SchemaVersion,
    /// How often the session's name scope had changed.
    pub scope_changes: u64,
    /// The role settings, as SQL.
    pub role: String,
    /// The session has changed the schema in a transaction that is open.
    pub private: bool,
}

/// A plan and what it depends on.
#[derive(Clone, Debug)]
pub struct CachedPlan {
    /// Catalog and names.
    pub basis: Basis,
    /// The plan.
    pub planned: Arc<Planned>,
}

/// What a portal on a node was made from.
#[derive(Debug)]
pub struct Bound {
    /// The statement.
    pub statement: Arc<Statement>,
    /// Its plan.
    pub planned: Arc<Planned>,
    /// When that was.
    pub(crate) then: BoundWith,
    /// The plan by which changes have seen it, see [`PlanInSight`](crate::registry::plan_in_sight::PlanInSight).
    pub plan_number: u64,
    /// The relations that it named then, by OID. `None`: all that it uses is locked since it was bound, as is
    /// not so of utility statements, nor of what writes others with its table, or calls code.
    pub unheld: Option<BTreeSet<u32>>,
    /// How to bind it once more, should its node lose it before it runs.
    pub again: Option<BindAgain>,
}

impl Bound {
    /// Whether executing it is the beginning of a statement, unless changes have seen it ever since it was bound.
    pub(crate) fn begins(&self, ran: bool) -> bool {
        !ran && self.unheld.is_some()
    }
}

/// What an unnamed portal was bound with that is executed later than it is bound, and is no query whose snapshot
/// is as old as that.
#[derive(Debug)]
pub struct BindAgain {
    /// The client's message.
    pub message: Frame,
    /// The statement that its name meant.
    pub id: StatementId,
}

/// A bound statement.
#[derive(Clone, Debug)]
pub enum Portal {
    /// A portal of the same name on this node.
    Node {
        /// The node.
        node: NodeId,
        /// What executing it does.
        access: Access,
        /// Executing it may transfer COPY data.
        copies: bool,
        /// What it was made from, where the session has read that.
        bound: Option<Arc<Bound>>,
        /// It was executed before: what it uses is locked.
        runs: bool,
    },
    /// The executor runs the plan at Execute.
    Plan(Arc<PendingPortal>),
    /// The executor has run it; this is what is left to send.
    Rows {
        /// What it was made from.
        pending: Arc<PendingPortal>,
        /// Its rows, and the end of the whole.
        rows: Arc<Mutex<WaitingRows>>,
        /// After how many steps of its transaction it has run.
        made: usize,
    },
    /// The executor has run it, and the client has everything.
    Finished(Arc<PendingPortal>),
    /// Nothing to do: the statement is empty.
    Empty,
    /// An SQL cursor on a connection of its own. (It is among the cursors, not among the portals.)
    Beside,
}

/// What a client has not asked for yet of a portal's answer.
#[derive(Debug)]
pub struct WaitingRows {
    /// Those that are next.
    ahead: BytesMut,
    kept: Kept,
    /// There were some, and the client has them.
    pub(crate) has_given: bool,
}

impl WaitingRows {
    pub(crate) fn new(kept: Kept) -> Self {
        Self { ahead: BytesMut::new(), kept, has_given: false }
    }

    /// The next message: a row, or what comes between rows, or, at last, CommandComplete.
    pub(crate) async fn next_frame(&mut self) -> Result<Option<Frame>, Failure> {
        loop {
            if let Some(frame) = take_frame(&mut self.ahead)? {
                return Ok(Some(frame));
            }
            if !self.kept.take_more(&mut self.ahead).await? {
                return match self.ahead.is_empty() {
                    true => Ok(None),
                    false => Err(Failure::error("XX000", "rows that waited have no end")),
                };
            }
        }
    }
}

impl Portal {
    /// The node that has it, if one has.
    pub(crate) fn node(&self) -> Option<NodeId> {
        match self {
            Self::Node { node, .. } => Some(*node),
            Self::Plan(_) | Self::Rows { .. } | Self::Finished(_) | Self::Empty | Self::Beside => {
                None
            }
        }
    }

    /// Whether it runs CLOSE ALL.
    pub(crate) fn is_of_close_all(&self) -> bool {
        let Self::Plan(pending) = self else { return false };
        matches!(pending.planned.plan, Plan::Data(DataPlan::Cursor { name: None, .. }))
    }
}

/// What the executor needs to run a portal. Independent of the statement, which may be closed or
/// replaced meanwhile.
#[derive(Clone, Debug)]
pub struct PendingPortal {
    /// Name of the prepared statement it was made from.
    pub statement: String,
    /// Which statement had that name.
    pub id: StatementId,
    /// The plan.
    pub planned: Arc<Planned>,
    /// What it was planned with.
    pub catalog: Arc<Catalog>,
    /// How often the session's names had come to mean something else by then.
    pub scope_changes: u64,
    /// The relations that it named then, by OID.
    pub named: BTreeSet<u32>,
    /// The statement.
    pub parsed: Arc<Statement>,
    /// Values and formats.
    pub call: Call,
    /// How often the session had written when it was bound.
    pub writes: u64,
}

/// A cursor that SQL has declared.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// The node it is on.
    pub node: NodeId,
    /// There, on a connection of its own; `None`: on the session's.
    pub beside: Option<Beside>,
    /// WITH HOLD.
    pub holds: bool,
    /// When it was declared: each FETCH goes on with the snapshot and the plan of then, and code in it may come
    /// to any table.
    pub then: BoundWith,
    /// What its plan depends on.
    pub concerns: Option<Arc<Concerns>>,
    /// After how many steps of its transaction it was declared, as long as that may be undone.
    pub made: Option<usize>,
}

impl Cursor {
    /// Whether it is held beyond the transaction that declared it: then its rows are computed.
    pub(crate) fn has_all_rows(&self) -> bool {
        self.holds && self.made.is_none()
    }
}
