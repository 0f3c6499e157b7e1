//! Describe: which parameters a statement takes and which columns it returns.
//!
//! Owns: which node is asked, and what is remembered of the answer.
//! Never: runs the statement to find out.

use tutti_sql::plan::{
    Access, DataPlan, Plan, Planned, PreparedCommand, SessionPlan, TuttiCall, Value,
};
use tutti_wire::backend::{
    ColumnDescription, put_bare, put_parameter_description, put_row_description,
};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frontend::{Arguments, Target, put_describe};

use super::due::{Expect, Undo};
use crate::client::failure::Failure;
use crate::executor::describe::Columns;
use crate::executor::local_columns;
use crate::plans::request::Call;
use crate::registry::activity::says_overtaken;
use crate::session::Session;
use crate::transaction::named::{PendingPortal, Portal};
use crate::transaction::planning::transaction_failed;

/// Whether no node needs to see a statement at Parse or Describe.
pub(super) fn is_answered_here(plan: &Plan) -> bool {
    match plan {
        // Nodes find at Parse what is wrong with the statement that is explained.
        Plan::Data(DataPlan::Explain(_)) => false,
        plan => local_columns(plan).is_some(),
    }
}

/// The types of the parameters of what the gateway answers itself; `given`: those that the client has named.
/// `None`: they are a node's to find out.
pub(super) fn parameters_known_here(plan: &Plan, given: &[u32]) -> Option<Vec<u32>> {
    const TEXT: u32 = 25;
    const BIGINT: u32 = 20;
    let Plan::Session(SessionPlan::Tutti(TuttiCall::Request(asked))) = plan else {
        return None;
    };
    let mut types = Vec::new();
    for (value, is_number) in asked.values() {
        let Value::Parameter(index) = value else { continue };
        let index = usize::from(*index);
        types.resize(types.len().max(index + 1), TEXT);
        let open = if is_number { BIGINT } else { TEXT };
        types[index] = given.get(index).copied().filter(|named| *named != 0).unwrap_or(open);
    }
    Some(types)
}

impl Session {
    pub(super) async fn describe_statement(&mut self, name: String) -> Result<(), Failure> {
        let statement = self.statement(&name)?;
        let id = statement.id;
        let Some(parsed) = statement.statement.clone() else {
            let types = statement.types.clone();
            self.respond(Undo::Nothing, |out| {
                put_parameter_description(out, &types);
                put_bare(out, b'n');
            });
            return Ok(());
        };
        let planned = self.plan_of(&name)?;
        self.refuse_rows_if_failed(&planned)?;
        if let Some(columns) = self.columns_known_here(&planned, &parsed.text).await? {
            let given = &self.statement(&name)?.types;
            let types = parameters_known_here(&planned.plan, given).unwrap_or_default();
            self.check_unchecked_here();
            self.respond(Undo::Nothing, |out| {
                put_parameter_description(out, &types);
                put_columns(out, columns.as_deref());
            });
            return Ok(());
        }
        self.tx.activity.plan.note_analysis(planned.concerns.as_ref());
        if self.is_described_separately(&planned) {
            self.check_separately(&name).await?;
            self.describe_anew(&name).await?;
            let statement = self.statement(&name)?;
            let (types, columns) = (statement.types.clone(), statement.columns.clone());
            self.respond(Undo::Nothing, |out| {
                put_parameter_description(out, &types);
                put_columns(out, columns.as_deref());
            });
            return Ok(());
        }
        let node = self.describing_node(&name)?;
        let there = self.ensure_parsed(node, &name).await?;
        let link = self.tx.links.get_mut(&node).expect("parsed there");
        put_describe(link.connection().outgoing(), Target::Statement, &there);
        self.pipeline.expects.push_back(Expect::DescribeStatement { name, id });
        Ok(())
    }

    pub(super) async fn describe_portal(&mut self, name: &str) -> Result<(), Failure> {
        let pending = match self.portal(name)? {
            Portal::Node { node, bound, runs, .. } => {
                self.keep_portal(node, name, bound.as_deref(), runs).await?;
                self.switch_to(node, Access::Read).await?;
                let link = self.tx.links.at(&node);
                put_describe(link.connection().outgoing(), Target::Portal, name);
                self.pipeline.expects.push_back(Expect::DescribePortal);
                return Ok(());
            }
            Portal::Empty => {
                self.respond(Undo::Nothing, |out| put_bare(out, b'n'));
                return Ok(());
            }
            Portal::Beside => {
                if self.tx.transaction.failed {
                    return Err(transaction_failed());
                }
                self.quiet_pipeline().await?;
                let columns = self.executor().describe_beside(name, None).await?;
                self.respond(Undo::Nothing, |out| put_columns(out, columns.as_deref()));
                return Ok(());
            }
            Portal::Plan(pending) | Portal::Rows { pending, .. } | Portal::Finished(pending) => {
                pending
            }
        };
        self.refuse_rows_if_failed(&pending.planned)?;
        let mut columns = self.columns_of(&pending).await?;
        if let (Some(columns), Call::Extended { arguments, .. }) = (&mut columns, &pending.call) {
            set_formats(columns, arguments);
        }
        self.respond(Undo::Nothing, |out| put_columns(out, columns.as_deref()));
        Ok(())
    }

    /// A transaction that has failed describes no rows. (A statement without rows needs no access
    /// to catalogs.)
    fn refuse_rows_if_failed(&self, planned: &Planned) -> Result<(), Failure> {
        let has_none = is_answered_here(&planned.plan)
            && local_columns(&planned.plan).is_some_and(|columns| columns.is_none());
        if has_none { Ok(()) } else { self.tx.refuse_if_failed(planned) }
    }

    /// Whether a statement's analysis must leave no lock in the transaction: its plan takes stronger ones. (That ends
    /// an unnamed portal, which matters more than a deadlock that may not be.)
    pub(super) fn is_described_separately(&self, planned: &Planned) -> bool {
        let has_unnamed = matches!(self.tx.portals.get(""), Some(Portal::Node { .. }));
        self.tx.transaction.is_open() && !has_unnamed && !planned.plan.written_in_steps().is_empty()
    }

    /// Lets node 1 analyse such a statement, whose Parse is due if no node has seen it.
    pub(super) async fn check_separately(&mut self, name: &str) -> Result<(), Failure> {
        let is_due = self.pipeline.unchecked.take_if(|unchecked| unchecked == name).is_some();
        if let Err(failure) = self.describe_silently(name).await {
            let is_stopped = self.tx.activity.plan.is_overtaken()
                || matches!(&failure, Failure::Statement(error) if says_overtaken(error));
            if is_due && is_stopped {
                // Whoever takes its message again finds it; where nobody does, it goes with the rest (`skip_rest`).
                self.pipeline.unchecked = Some(name.to_owned());
            } else if is_due {
                // It has failed itself.
                self.tx.statements.remove(name);
            }
            return Err(failure);
        }
        if is_due {
            self.respond(Undo::Forget(name.to_owned()), |out| put_bare(out, b'1'));
        }
        Ok(())
    }

    /// The columns of a portal that the executor runs.
    pub(super) async fn columns_of(&mut self, pending: &PendingPortal) -> Result<Columns, Failure> {
        if let Some(columns) =
            self.columns_known_here(&pending.planned, &pending.parsed.text).await?
        {
            return Ok(columns);
        }
        let name = &pending.statement;
        if let Plan::Data(DataPlan::Cursor { name: Some(cursor), close: false }) =
            &pending.planned.plan
        {
            self.quiet_pipeline().await?;
            let node = self.tx.node_of_cursor(cursor);
            return Ok(self.executor().describe_text_on(node, &pending.parsed.text, &[]).await?.1);
        }
        if self.tx.statements.get(name).is_some_and(|statement| statement.id == pending.id) {
            self.describe_silently(name).await?;
            return Ok(self.statement(name)?.columns.clone());
        }
        // The statement was closed; the portal lives on.
        self.quiet_pipeline().await?;
        let Call::Extended { types, .. } = &pending.call else { return Ok(None) };
        Ok(self.executor().describe_text(&pending.parsed.text, types).await?.1)
    }

    /// What the gateway can say by itself about a statement's rows.
    async fn columns_known_here(
        &mut self,
        planned: &Planned,
        text: &str,
    ) -> Result<Option<Columns>, Failure> {
        match &planned.plan {
            Plan::Session(SessionPlan::PreparedCommand(PreparedCommand::Execute {
                name, ..
            })) => {
                if !self.tx.statements.contains_key(name) {
                    return Ok(Some(None));
                }
                self.describe_silently(name).await?;
                Ok(Some(self.statement(name)?.columns.clone()))
            }
            Plan::Data(DataPlan::Cursor { name: Some(cursor), close: false })
                if self.tx.is_beside(cursor) =>
            {
                self.quiet_pipeline().await?;
                Ok(Some(self.executor().describe_beside(cursor, Some(text)).await?))
            }
            plan if is_answered_here(plan) => Ok(local_columns(plan)),
            _ => Ok(None),
        }
    }

    /// Asks a node what the statement's parameters and columns are, for the gateway's own use.
    pub(in crate::session) async fn describe_silently(
        &mut self,
        name: &str,
    ) -> Result<(), Failure> {
        if self.statement(name)?.described {
            return Ok(());
        }
        if self.tx.transaction.failed {
            return Err(transaction_failed());
        }
        self.quiet_pipeline().await?;
        let statement = self.statement(name)?;
        // The answers that were just read may have held the description.
        if statement.described {
            return Ok(());
        }
        let (types, parsed) = (statement.types.clone(), statement.statement.clone());
        let Some(parsed) = parsed else { return Ok(()) };
        let planned = self.plan_of(name)?;
        let (types, columns) = match self.is_described_separately(&planned) {
            true => self.executor().describe_text_separately(&parsed.text, &types).await?,
            false => self.executor().describe_text(&parsed.text, &types).await?,
        };
        let version = self.described_basis();
        if let Some(statement) = self.tx.statements.get_mut(name) {
            statement.types = types;
            statement.columns = columns;
            statement.described = true;
            statement.described_version = version;
        }
        Ok(())
    }

    /// After DDL: a client that was told of the statement's columns must not get others.
    ///
    /// Errors: 0A000 as PostgreSQL words it, where they have changed.
    pub(in crate::session) async fn describe_anew(&mut self, name: &str) -> Result<(), Failure> {
        let version = self.described_basis();
        let statement = self.statement(name)?;
        if !statement.described || statement.described_version == version {
            return Ok(());
        }
        let told = statement.columns.clone();
        let id = statement.id;
        if let Some(statement) = self.tx.statements.get_mut(name) {
            statement.described = false;
        }
        self.describe_silently(name).await?;
        let statement = self.statement(name)?;
        if statement.id == id && !are_alike(told.as_deref(), statement.columns.as_deref()) {
            if let Some(statement) = self.tx.statements.get_mut(name) {
                // A client that tries again gets it again.
                (statement.columns, statement.described_version) = (told, ((0, 0), 0));
            }
            // Drivers know it by the routine, and prepare the statement again.
            let message = "cached plan must not change result type";
            let error = ErrorFields::error("0A000", message)
                .with(b'F', "plancache.c")
                .with(b'R', "RevalidateCachedQuery");
            return Err(error.into());
        }
        Ok(())
    }
}

/// Whether rows of the one description can be read with the other.
fn are_alike(one: Option<&[ColumnDescription]>, other: Option<&[ColumnDescription]>) -> bool {
    let types = |columns: &[ColumnDescription]| -> Vec<_> {
        columns.iter().map(|it| (it.name.clone(), it.type_oid, it.type_modifier)).collect()
    };
    one.map(types) == other.map(types)
}

fn put_columns(out: &mut bytes::BytesMut, columns: Option<&[ColumnDescription]>) {
    match columns {
        Some(columns) => put_row_description(out, columns),
        None => put_bare(out, b'n'),
    }
}

fn set_formats(columns: &mut [ColumnDescription], arguments: &Arguments) {
    for (index, column) in columns.iter_mut().enumerate() {
        column.format = arguments.result_format(index);
    }
}
