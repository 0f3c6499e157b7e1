//! What a session's client has given names to: prepared statements, portals, cursors.
//!
//! Owns: what is known of them, and what a transaction must know of them to run a statement.
//! Never: makes or executes one; sends protocol messages for them.
//! Start reading at [`PreparedStatement`], then [`Portal`].

use std::fmt::Write;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tutti_link::pool::SchemaVersion;
use tutti_link::pool::link::StatementId;
use tutti_sql::catalog::{Catalog, NodeId, quote_identifier, quote_literal};
use tutti_sql::plan::{Access, DataPlan, KeyValue, NodeChoice, Plan, Planned, SessionPlan};
use tutti_sql::statement::Statement;
use tutti_wire::backend::ColumnDescription;

use super::{Mode, TransactionContext};
use crate::client::failure::Failure;
use crate::plans::Basis;
use crate::plans::request::Call;
use crate::transaction::planning::transaction_failed;

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
    /// Version of the catalog when it did.
    pub described_version: SchemaVersion,
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
            described_version: (0, 0),
            columns: None,
            type_names: None,
            prepared_at: SystemTime::now(),
            from_sql: false,
            source: None,
            plan: None,
        }
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
        /// The statement, if it works in transaction blocks only.
        parsed: Option<Arc<Statement>>,
    },
    /// The executor runs the plan at Execute.
    Plan(Arc<PendingPortal>),
    /// The executor has run it; this is what is left to send.
    Rows {
        /// What it was made from.
        pending: Arc<PendingPortal>,
        /// Whole frames: DataRow.
        frames: Bytes,
        /// Command tag of the whole.
        tag: String,
    },
    /// The executor has run it, and the client has everything.
    Finished(Arc<PendingPortal>),
    /// Nothing to do: the statement is empty.
    Empty,
}

impl Portal {
    /// The node that has it, if one has.
    pub(crate) fn node(&self) -> Option<NodeId> {
        match self {
            Self::Node { node, .. } => Some(*node),
            Self::Plan(_) | Self::Rows { .. } | Self::Finished(_) | Self::Empty => None,
        }
    }

    /// Whether it runs CLOSE ALL.
    pub(crate) fn is_of_close_all(&self) -> bool {
        let Self::Plan(pending) = self else { return false };
        matches!(pending.planned.plan, Plan::Session(SessionPlan::Cursor { name: None, .. }))
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
    /// The statement.
    pub parsed: Arc<Statement>,
    /// Values and formats.
    pub call: Call,
}

/// A cursor that SQL has declared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// The node it is on.
    pub node: NodeId,
    /// WITH HOLD.
    pub holds: bool,
    /// After how many steps of its transaction it was declared, as long as that may be undone.
    pub made: Option<usize>,
}

impl TransactionContext {
    /// The rows of the view `pg_prepared_statements`, as a query.
    pub(crate) async fn prepared_statements_sql(&mut self) -> Result<String, Failure> {
        let of_home = self.told_by_home().await?;
        let mut sql = "SELECT NULL::pg_catalog.text AS name, NULL::pg_catalog.text AS statement, \
             NULL::pg_catalog.timestamptz AS prepare_time, \
             NULL::pg_catalog.regtype[] AS parameter_types, NULL::pg_catalog.bool AS from_sql, \
             NULL::pg_catalog.int8 AS generic_plans, NULL::pg_catalog.int8 AS custom_plans \
             WHERE false"
            .to_owned();
        if !of_home.is_empty() {
            let names: Vec<_> = of_home.iter().map(|name| quote_literal(name)).collect();
            write!(
                sql,
                " UNION ALL (SELECT name, statement, prepare_time, parameter_types, from_sql, \
                 generic_plans, custom_plans FROM pg_catalog.pg_prepared_statements \
                 WHERE name OPERATOR(pg_catalog.=) ANY (ARRAY[{}]::pg_catalog.text[]) ORDER BY prepare_time)",
                names.join(", ")
            )
            .expect("a String takes everything");
        }
        let is_kept_here = |name: &String| !name.is_empty() && !of_home.contains(name);
        for (name, statement) in self.statements.iter().filter(|(name, _)| is_kept_here(name)) {
            let text = statement.statement.as_ref().map_or("", |parsed| &parsed.text);
            let text = statement.source.as_deref().unwrap_or(text);
            let since = statement.prepared_at.duration_since(UNIX_EPOCH).unwrap_or_default();
            let types: Vec<_> = statement.types.iter().map(u32::to_string).collect();
            write!(
                sql,
                " UNION ALL SELECT {}, {}, pg_catalog.to_timestamp({}), \
                 '{{{}}}'::pg_catalog.oid[]::pg_catalog.regtype[], {}, 0, 0",
                quote_literal(name),
                quote_literal(text),
                since.as_secs_f64(),
                types.join(","),
                statement.from_sql
            )
            .expect("a String takes everything");
        }
        Ok(sql)
    }

    /// Whether statements commit by themselves at the moment.
    pub(crate) fn is_autocommit(&self) -> bool {
        self.transaction.mode == Mode::None
    }

    /// Makes the session's connection to node 1 forget what the session has deallocated.
    pub(crate) async fn forget_sql_statements(&mut self) -> Result<(), Failure> {
        let link = self.enlist(NodeId::HOME, Access::Read).await?;
        let known = std::mem::take(&mut link.sql_statements);
        let (kept, given_up): (Vec<_>, Vec<_>) = known.into_iter().partition(|(name, id)| {
            self.statements.get(name).is_some_and(|statement| statement.id == *id)
        });
        let Some(link) = self.links.get_mut(&NodeId::HOME) else { return Ok(()) };
        link.sql_statements = kept;
        for (name, _) in given_up {
            link.query(&format!("DEALLOCATE {}", quote_identifier(&name))).await?;
        }
        Ok(())
    }

    /// The names, as SQL, of those that node 1 itself describes. They are prepared there.
    pub(crate) async fn told_by_home(&mut self) -> Result<Vec<String>, Failure> {
        let of_home = |(name, statement): (&String, &PreparedStatement)| {
            statement.source.is_some().then(|| name.clone())
        };
        let names: Vec<_> = self.statements.iter().filter_map(of_home).collect();
        if !self.catalog.is_solo() || names.is_empty() {
            return Ok(Vec::new());
        }
        self.forget_sql_statements().await?;
        let link = self.links.get(&NodeId::HOME);
        let known = link.map_or_else(Vec::new, |link| link.sql_statements.clone());
        let is_known = |name: &String| known.iter().any(|(there, _)| there == name);
        Ok(names.into_iter().filter(is_known).collect())
    }

    /// Whether a pin depends on a parameter in binary form whose type was not specified.
    pub(crate) fn pins_need_types(&self, planned: &Planned, name: &str) -> bool {
        let Plan::Data(DataPlan::One { node: NodeChoice::Pinned(pins), .. }) = &planned.plan else {
            return false;
        };
        let Some(statement) = self.statements.get(name) else { return false };
        1 < pins.len()
            && !statement.described
            && pins.iter().any(|pin| match pin.value {
                KeyValue::Parameter(index) => {
                    statement.types.get(usize::from(index)).copied().unwrap_or(0) == 0
                }
                KeyValue::Bucket(_) | KeyValue::Literal(_) => false,
            })
    }

    pub(crate) fn refuse_if_failed(&self, planned: &Planned) -> Result<(), Failure> {
        if self.transaction.failed && !super::planning::ends_failed_transaction(planned) {
            return Err(transaction_failed());
        }
        Ok(())
    }

    /// Where a cursor is, or a portal of the extended protocol, which SQL knows as one; an unknown one is
    /// looked for on node 1.
    pub(crate) fn node_of_cursor(&self, cursor: &str) -> NodeId {
        let declared = self.cursors.get(cursor).map(|cursor| cursor.node);
        let bound = || self.portals.get(cursor).and_then(Portal::node);
        declared.or_else(bound).unwrap_or(NodeId::HOME)
    }
}
