//! Prepared statements and portals of one session, by either protocol level.
//!
//! Owns: what is known of them, and PREPARE / EXECUTE / DEALLOCATE in SQL.
//! Never: sends protocol messages for them (see `extended`).

use std::sync::Arc;

use bytes::Bytes;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Planned, Prepared};
use tutti_sql::planner;
use tutti_sql::statement::{self, Statement};
use tutti_wire::backend::ColumnDescription;

use super::{Mode, Session, StatementId};
use crate::executor::{Call, Done};
use crate::failure::Failure;

/// A client's prepared statement (protocol level).
#[derive(Clone, Debug)]
pub struct PreparedStatement {
    /// Identifies it on links, where names are reused.
    pub id: StatementId,
    /// The statement; `None` if it is empty.
    pub statement: Option<Arc<Statement>>,
    /// Parameter types: as the client fixed them, later as a node described them. 0 is open.
    pub types: Vec<u32>,
    /// `types` and `columns` are what a node said.
    pub described: bool,
    /// Result columns as a node described them; `None`: no rows.
    pub columns: Option<Vec<ColumnDescription>>,
    /// The plan, and the catalog version and scope it was made for.
    pub plan: Option<CachedPlan>,
}

/// A plan and what it depends on.
#[derive(Clone, Debug)]
pub struct CachedPlan {
    /// Catalog version.
    pub version: u64,
    /// How often the session's name scope had changed.
    pub scope_changes: u64,
    /// The plan.
    pub planned: Arc<Planned>,
}

/// A bound statement.
#[derive(Clone, Debug)]
pub struct Portal {
    /// Name of the prepared statement it was made from.
    pub statement: String,
    /// Values and formats.
    pub call: Call,
    /// Where its answer comes from.
    pub source: PortalSource,
}

/// Where a portal's rows come from.
#[derive(Clone, Debug)]
pub enum PortalSource {
    /// A portal of the same name on this node.
    Node(NodeId),
    /// The executor runs the plan at Execute.
    Plan(Arc<Planned>, Arc<Statement>),
    /// The executor has run it; this is what is left to hand out.
    Rows {
        /// Whole frames: DataRow.
        frames: Bytes,
        /// Command tag of the whole.
        tag: String,
    },
    /// Nothing to do: the statement is empty.
    Empty,
}

impl Session {
    /// Runs PREPARE, EXECUTE and DEALLOCATE.
    pub(crate) async fn execute_prepared(
        &mut self,
        prepared: &Prepared,
        call: &Call,
    ) -> Result<Done, Failure> {
        match prepared {
            Prepared::Prepare { name, types, text } => {
                if self.sql_prepared.contains_key(name) || self.statements.contains_key(name) {
                    let message = format!("prepared statement \"{name}\" already exists");
                    return Err(Failure::error("42P05", message));
                }
                self.check_prepare(types, text).await?;
                self.sql_prepared.insert(name.clone(), (types.clone(), text.clone()));
                Ok(Done::Tag("PREPARE".to_owned()))
            }
            Prepared::Execute { name, arguments } => {
                let Some((types, text)) = self.sql_prepared.get(name) else {
                    let message = format!("prepared statement \"{name}\" does not exist");
                    return Err(Failure::error("26000", message));
                };
                let text = planner::bind_arguments(name, text, types, arguments)?;
                let mut statements = statement::parse(&text)?;
                let Some(statement) = statements.pop() else { return Ok(Done::Empty) };
                let planned = self.plan(&statement)?;
                self.execute(&planned, &statement.text, call).await
            }
            Prepared::Deallocate(Some(name)) => {
                let known = self.sql_prepared.remove(name).is_some()
                    || self.statements.remove(name).is_some();
                if known {
                    return Ok(Done::Tag("DEALLOCATE".to_owned()));
                }
                let message = format!("prepared statement \"{name}\" does not exist");
                Err(Failure::error("26000", message))
            }
            Prepared::Deallocate(None) => {
                self.sql_prepared.clear();
                self.statements.clear();
                Ok(Done::Tag("DEALLOCATE ALL".to_owned()))
            }
        }
    }

    /// Lets node 1 analyse the statement, so that PREPARE fails where PostgreSQL's would.
    async fn check_prepare(&mut self, types: &[String], text: &str) -> Result<(), Failure> {
        let declared = match types {
            [] => String::new(),
            types => format!(" ({})", types.join(", ")),
        };
        let sql = format!("PREPARE tutti_check{declared} AS {text}");
        let link = self.enlist(NodeId::HOME, tutti_sql::plan::Access::Read).await?;
        link.query(&sql).await?;
        link.query("DEALLOCATE tutti_check").await?;
        Ok(())
    }

    /// Whether statements commit by themselves at the moment.
    pub(super) fn is_autocommit(&self) -> bool {
        self.transaction.mode == Mode::None
    }
}
