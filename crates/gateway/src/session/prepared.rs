//! Prepared statements and portals of one session, by either protocol level.
//!
//! Owns: what is known of them, and PREPARE / EXECUTE / DEALLOCATE in SQL, which share one name
//! space with Parse and Close.
//! Never: sends protocol messages for them (see `extended`).

use std::fmt::Write;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tutti_sql::catalog::{Catalog, NodeId, quote_literal};
use tutti_sql::plan::{Access, Plan, Planned, Prepared};
use tutti_sql::planner;
use tutti_sql::statement::Statement;
use tutti_wire::backend::ColumnDescription;

use super::planning::ByShape;
use super::{Mode, Session, StatementId};
use crate::client::failure::Failure;
use crate::executor::{Call, Done};
use crate::plans::Basis;
use tutti_link::pool::SchemaVersion;

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
    /// The number by which nodes know it, and what that depends on, once it had to have one.
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
    /// A statement of which nothing is known but what the client said.
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

/// What the meaning of a session's statement depends on beside its text and types.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Meaning {
    /// What the schema was.
    pub version: SchemaVersion,
    /// How often the session's name scope had changed.
    pub scope_changes: u64,
    /// What was set of the role, as SQL.
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
        /// COPY data may flow when it is executed.
        copies: bool,
        /// The statement, if it works in transaction blocks only.
        parsed: Option<Arc<Statement>>,
    },
    /// The executor runs the plan at Execute.
    Plan(Arc<Unrun>),
    /// The executor has run it; this is what is left to hand out.
    Rows {
        /// What it was made from.
        unrun: Arc<Unrun>,
        /// Whole frames: DataRow.
        frames: Bytes,
        /// Command tag of the whole.
        tag: String,
    },
    /// The executor has run it, and the client has everything.
    Finished(Arc<Unrun>),
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
        let Self::Plan(unrun) = self else { return false };
        matches!(unrun.planned.plan, Plan::Cursor { name: None, .. })
    }
}

/// What the executor needs to run a portal. Independent of the statement, which may be closed or
/// replaced meanwhile.
#[derive(Clone, Debug)]
pub struct Unrun {
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

impl Session {
    /// Runs PREPARE, EXECUTE and DEALLOCATE.
    pub(crate) async fn execute_prepared(
        &mut self,
        prepared: &Prepared,
        whole: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        match prepared {
            Prepared::Prepare { name, types, text } => {
                let there = self.prepare_at_home(name, types, text, whole, call).await?;
                if let Some(done) = there {
                    return Ok(done);
                }
                self.prepare(name, types, text).await?;
                Ok(Done::Tag("PREPARE".to_owned()))
            }
            Prepared::Execute { name, arguments } => {
                if let Some(done) = self.execute_at_home(name, whole, false, call).await? {
                    return Ok(done);
                }
                let Some(text) = self.bound_text(name, arguments).await? else {
                    return Ok(Done::Empty);
                };
                self.execute_text(&text, call).await
            }
            Prepared::Within { before, name, arguments, after } => {
                if let Some(done) = self.execute_at_home(name, whole, true, call).await? {
                    return Ok(done);
                }
                let Some(text) = self.bound_text(name, arguments).await? else {
                    return Ok(Done::Empty);
                };
                self.execute_text(&format!("{before}{text}{after}"), call).await
            }
            Prepared::Deallocate(Some(name)) => match self.statements.remove(name) {
                Some(_) => Ok(Done::Tag("DEALLOCATE".to_owned())),
                None => Err(no_such_statement(name)),
            },
            Prepared::Deallocate(None) => {
                // The unnamed statement is not one of them.
                self.statements.retain(|name, _| name.is_empty());
                Ok(Done::Tag("DEALLOCATE ALL".to_owned()))
            }
        }
    }

    /// Runs a statement that the gateway has put together from the client's.
    async fn execute_text(&mut self, text: &str, call: &Call) -> Result<Done, Failure> {
        let by_shape = self.plan_by_shape(text)?;
        if let ByShape::Plan { planned, statement } = by_shape {
            return self.execute(&planned, &text[statement], call).await;
        }
        let statements = self.registry.plans.parse(text)?;
        let Some(statement) = statements.last() else { return Ok(Done::Empty) };
        let planned = self.plan(statement)?;
        if matches!(by_shape, ByShape::Unknown) {
            self.learn_shape(text, statement, &planned);
        }
        self.execute(&planned, &statement.text, call).await
    }

    /// The text of a prepared statement with these arguments in place of its parameters; `None`: it is empty.
    async fn bound_text(
        &mut self,
        name: &str,
        arguments: &[String],
    ) -> Result<Option<String>, Failure> {
        let Some((types, text)) = self.prepared_text(name).await? else { return Ok(None) };
        let is_open = arguments.len() == types.len() && !planner::are_constants(arguments, &types);
        let values = match is_open {
            true => self.values_of_arguments(name, &types, arguments).await?,
            false => None,
        };
        let arguments = values.as_deref().unwrap_or(arguments);
        Ok(Some(planner::bind_arguments(name, &text, &types, arguments)?))
    }

    /// What the arguments of EXECUTE are, as literals: computed once, assigned to the parameters' types, and
    /// refused where PostgreSQL refuses them, for it is node 1 that executes something with them. What only
    /// settings say how to read stays as it is written.
    ///
    /// `None`: they cannot be computed apart from the statement, for what they reach has to be accounted for.
    async fn values_of_arguments(
        &mut self,
        name: &str,
        types: &[String],
        arguments: &[String],
    ) -> Result<Option<Vec<String>>, Failure> {
        if planner::name_parameters(arguments) {
            return Ok(None);
        }
        let list = arguments.join(", ");
        let text = format!("SELECT {list}");
        let parsed = self.registry.plans.parse(&text)?;
        let [statement] = &parsed[..] else { return Ok(None) };
        let mut access = Access::Read;
        if !planner::say_queries(arguments) {
            let planned = self.plan(statement)?;
            let Plan::One { access: of_plan, .. } = &planned.plan else { return Ok(None) };
            if planned.unseen.is_some() || !planned.own.is_empty() {
                return Ok(None);
            }
            access = *of_plan;
            self.note_leaves(&planned, &text);
        }
        let (id, oids) = match self.statements.get(name) {
            Some(statement) => (statement.id, statement.types.clone()),
            None => return Err(no_such_statement(name)),
        };
        // Before the transaction's snapshot nothing is to be asked without it.
        self.takes_snapshot = true;
        let link = self.enlist(NodeId::HOME, access).await?;
        let there = format!("tutti_arguments_{id}");
        if link.sql_statements.iter().all(|(known, _)| *known != there) {
            let values = (1..=types.len()).map(|number| format!("tutti.value_output(${number})"));
            let values = values.collect::<Vec<_>>().join(", ");
            let types = types.join(", ");
            link.query(&format!("PREPARE {there} ({types}) AS SELECT {values}")).await?;
            link.sql_statements.push((there.clone(), id));
        }
        let answer = link.query(&format!("EXECUTE {there} ({list})")).await;
        let rows = answer.map_err(|error| Failure::from(error).without_position())?;
        let Some(row) = rows.first() else { return Ok(None) };
        let value = |(column, argument): (usize, &String)| {
            let is_read_alike = oids.get(column).is_some_and(|oid| planner::is_read_alike(*oid));
            match row.text(0, column) {
                None => "NULL".to_owned(),
                Some(value) if is_read_alike => quote_literal(value),
                Some(_) => argument.clone(),
            }
        };
        Ok(Some(arguments.iter().enumerate().map(value).collect()))
    }

    async fn prepare(&mut self, name: &str, types: &[String], text: &str) -> Result<(), Failure> {
        let oids = self.type_oids(types).await?;
        // Node 1 analyses the statement, so that PREPARE fails where PostgreSQL's would.
        let (oids, columns) = self.describe_text(text, &oids).await?;
        if self.statements.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Failure::error("42P05", message));
        }
        let statement = self.registry.plans.parse(text)?.last().cloned();
        let mut prepared = PreparedStatement::parsed(self.next_statement_id(), statement, oids);
        prepared.described = true;
        prepared.described_version = self.schema_version();
        prepared.columns = columns;
        prepared.from_sql = true;
        self.statements.insert(name.to_owned(), prepared);
        Ok(())
    }

    /// OIDs of types as SQL spells them.
    pub(super) async fn type_oids(&mut self, types: &[String]) -> Result<Vec<u32>, Failure> {
        if types.is_empty() {
            return Ok(Vec::new());
        }
        let columns: Vec<_> = types
            .iter()
            .map(|name| format!("{}::pg_catalog.regtype::pg_catalog.oid", quote_literal(name)))
            .collect();
        let sql = format!("SELECT {}", columns.join(", "));
        let rows = self.enlist(NodeId::HOME, Access::Read).await?.query(&sql).await?;
        let oid = |column| rows.first()?.text(0, column)?.parse().ok();
        Ok((0..types.len()).map(|column| oid(column).unwrap_or(0)).collect())
    }

    /// A prepared statement's parameter types as SQL spells them, and its text; `None`: it is empty.
    async fn prepared_text(
        &mut self,
        name: &str,
    ) -> Result<Option<(Vec<String>, String)>, Failure> {
        let Some(statement) = self.statements.get(name) else {
            return Err(no_such_statement(name));
        };
        let Some(parsed) = statement.statement.clone() else { return Ok(None) };
        if let Some(types) = statement.type_names.clone() {
            return Ok(Some((types, parsed.text.clone())));
        }
        let mut names = Vec::new();
        if 0 < parsed.parameter_count || !statement.types.is_empty() {
            self.takes_snapshot = true;
            self.describe_silently(name).await?;
            let oids = self.statements.get(name).map_or(Vec::new(), |s| s.types.clone());
            names = self.type_names(&oids).await?;
        }
        if let Some(statement) = self.statements.get_mut(name) {
            statement.type_names = Some(names.clone());
        }
        Ok(Some((names, parsed.text.clone())))
    }

    /// How SQL spells types, wherever and whatever the search path is; without what they are modified by,
    /// which parameters have not.
    async fn type_names(&mut self, oids: &[u32]) -> Result<Vec<String>, Failure> {
        if oids.is_empty() {
            return Ok(Vec::new());
        }
        let name_of = |oid: &u32| {
            format!(
                "(SELECT pg_catalog.format('%I.%I', n.nspname, t.typname) FROM pg_catalog.pg_type AS t \
                 JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) t.typnamespace \
                 WHERE t.oid OPERATOR(pg_catalog.=) {oid}::pg_catalog.oid)"
            )
        };
        let columns: Vec<_> = oids.iter().map(name_of).collect();
        let sql = format!("SELECT {}", columns.join(", "));
        let rows = self.enlist(NodeId::HOME, Access::Read).await?.query(&sql).await?;
        let name = |column| Some(rows.first()?.text(0, column)?.to_owned());
        Ok((0..oids.len()).map(|column| name(column).unwrap_or_else(|| "unknown".into())).collect())
    }

    /// The rows of the view `pg_prepared_statements`, as a query.
    pub(super) async fn prepared_statements_sql(&mut self) -> Result<String, Failure> {
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
    pub(super) fn is_autocommit(&self) -> bool {
        self.transaction.mode == Mode::None
    }
}

fn no_such_statement(name: &str) -> Failure {
    Failure::error("26000", format!("prepared statement \"{name}\" does not exist"))
}
