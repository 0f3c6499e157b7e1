//! Prepared statements and portals of one session, by either protocol level.
//!
//! Owns: what is known of them, and PREPARE / EXECUTE / DEALLOCATE in SQL, which share one name
//! space with Parse and Close.
//! Never: sends protocol messages for them (see `extended`).

use tutti_sql::catalog::{NodeId, quote_literal};
use tutti_sql::plan::{Access, DataPlan, Plan, PreparedCommand};
use tutti_sql::planner;

use crate::client::failure::Failure;
use crate::plans::request::{Call, Done};
use crate::session::Session;
use crate::transaction::named::PreparedStatement;
use crate::transaction::planning::ByShape;

impl Session {
    /// Runs PREPARE, EXECUTE and DEALLOCATE.
    pub(crate) async fn execute_prepared(
        &mut self,
        prepared: &PreparedCommand,
        whole: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        match prepared {
            PreparedCommand::Prepare { name, types, text } => {
                let there = self.prepare_at_home(name, types, text, whole, call).await?;
                if let Some(done) = there {
                    return Ok(done);
                }
                self.prepare(name, types, text).await?;
                Ok(Done::Tag("PREPARE".to_owned()))
            }
            PreparedCommand::Execute { name, arguments } => {
                if let Some(done) = self.execute_at_home(name, whole, false, call).await? {
                    return Ok(done);
                }
                self.expect_same_columns(name).await?;
                let Some(text) = self.bound_text(name, arguments).await? else {
                    return Ok(Done::Empty);
                };
                self.execute_text(&text, call).await
            }
            PreparedCommand::Within { before, name, arguments, after } => {
                if let Some(done) = self.execute_at_home(name, whole, true, call).await? {
                    return Ok(done);
                }
                self.expect_same_columns(name).await?;
                let Some(text) = self.bound_text(name, arguments).await? else {
                    return Ok(Done::Empty);
                };
                self.execute_text(&format!("{before}{text}{after}"), call).await
            }
            PreparedCommand::Deallocate(Some(name)) => match self.tx.statements.remove(name) {
                Some(_) => Ok(Done::Tag("DEALLOCATE".to_owned())),
                None => Err(no_such_statement(name)),
            },
            PreparedCommand::Deallocate(None) => {
                // The unnamed statement is not one of them.
                self.tx.statements.retain(|name, _| name.is_empty());
                Ok(Done::Tag("DEALLOCATE ALL".to_owned()))
            }
        }
    }

    /// Errors: 0A000 if a prepared statement would give other columns than when it was prepared.
    async fn expect_same_columns(&mut self, name: &str) -> Result<(), Failure> {
        match self.tx.statements.contains_key(name) {
            true => Box::pin(self.describe_anew(name)).await,
            false => Ok(()),
        }
    }

    /// Runs a statement that the gateway has composed from the client's.
    async fn execute_text(&mut self, text: &str, call: &Call) -> Result<Done, Failure> {
        let by_shape = self.tx.plan_by_shape(text)?;
        if let ByShape::Plan { planned, statement } = by_shape {
            return self.execute(&planned, &text[statement], call).await;
        }
        let statements = self.tx.registry.plans.parse(text)?;
        let Some(statement) = statements.last() else { return Ok(Done::Empty) };
        let planned = self.tx.plan(statement)?;
        if matches!(by_shape, ByShape::Unknown) {
            self.tx.learn_shape(text, statement, &planned);
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
    /// refused where PostgreSQL refuses them, for it is node 1 that evaluates them. Values whose reading
    /// depends on settings stay as written.
    ///
    /// `None`: they cannot be computed separately from the statement, for the code that they reach has to be
    /// accounted for.
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
        let parsed = self.tx.registry.plans.parse(&text)?;
        let [statement] = &parsed[..] else { return Ok(None) };
        let mut access = Access::Read;
        if !planner::say_queries(arguments) {
            let planned = self.tx.plan(statement)?;
            let Plan::Data(DataPlan::One { access: of_plan, .. }) = &planned.plan else {
                return Ok(None);
            };
            if planned.unseen.is_some() || !planned.session_names.is_empty() || planned.may_be_late
            {
                return Ok(None);
            }
            access = *of_plan;
            self.tx.note_residue(&planned, &text);
        }
        let (id, oids) = match self.tx.statements.get(name) {
            Some(statement) => (statement.id, statement.types.clone()),
            None => return Err(no_such_statement(name)),
        };
        // Before the transaction has its snapshot, nothing may be asked without it.
        self.tx.takes_snapshot = true;
        let link = self.tx.enlist(NodeId::HOME, access).await?;
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
        if !self.tx.catalog.is_solo() {
            planner::refuse_analysis(text, &self.tx.catalog, &self.tx.scope)?;
        }
        // Node 1 analyses the statement, so that PREPARE fails where PostgreSQL's would.
        let (oids, columns) = match self.tx.transaction.is_open() {
            true => self.executor().describe_text_separately(text, &oids).await?,
            false => self.executor().describe_text(text, &oids).await?,
        };
        if self.tx.statements.contains_key(name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Failure::error("42P05", message));
        }
        let statement = self.tx.registry.plans.parse(text)?.last().cloned();
        let mut prepared = PreparedStatement::parsed(self.next_statement_id(), statement, oids);
        prepared.described = true;
        prepared.described_version = self.described_basis();
        prepared.columns = columns;
        prepared.from_sql = true;
        self.tx.statements.insert(name.to_owned(), prepared);
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
        let rows = self.tx.enlist(NodeId::HOME, Access::Read).await?.query(&sql).await?;
        let oid = |column| rows.first()?.text(0, column)?.parse().ok();
        Ok((0..types.len()).map(|column| oid(column).unwrap_or(0)).collect())
    }

    /// A prepared statement's parameter types as SQL spells them, and its text; `None`: it is empty.
    async fn prepared_text(
        &mut self,
        name: &str,
    ) -> Result<Option<(Vec<String>, String)>, Failure> {
        let Some(statement) = self.tx.statements.get(name) else {
            return Err(no_such_statement(name));
        };
        let Some(parsed) = statement.statement.clone() else { return Ok(None) };
        if let Some(types) = statement.type_names.clone() {
            return Ok(Some((types, parsed.text.clone())));
        }
        let mut names = Vec::new();
        if 0 < parsed.parameter_count || !statement.types.is_empty() {
            self.tx.takes_snapshot = true;
            self.describe_silently(name).await?;
            let oids = self.tx.statements.get(name).map_or(Vec::new(), |s| s.types.clone());
            names = self.type_names(&oids).await?;
        }
        if let Some(statement) = self.tx.statements.get_mut(name) {
            statement.type_names = Some(names.clone());
        }
        Ok(Some((names, parsed.text.clone())))
    }

    /// How SQL spells types, on any node and with any search path; without type modifiers, which
    /// parameters do not have.
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
        let rows = self.tx.enlist(NodeId::HOME, Access::Read).await?.query(&sql).await?;
        let name = |column| Some(rows.first()?.text(0, column)?.to_owned());
        Ok((0..oids.len()).map(|column| name(column).unwrap_or_else(|| "unknown".into())).collect())
    }
}

fn no_such_statement(name: &str) -> Failure {
    Failure::error("26000", format!("prepared statement \"{name}\" does not exist"))
}
