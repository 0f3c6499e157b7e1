//! CREATE TABLE AS and SELECT INTO: create everywhere, then fill like any INSERT … SELECT.
//!
//! Owns: the two halves and their one answer.
//! Never: copies rows itself.

use tutti_sql::plan::Ddl;
use tutti_sql::statement;

use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done};

impl Executor<'_> {
    pub(super) async fn create_table_as(
        &mut self,
        ddl: &Ddl,
        create: &str,
        insert: Option<&str>,
        call: &Call,
    ) -> Result<Done, Failure> {
        self.need_transaction();
        let existed = match &ddl.creates {
            Some(created) if created.if_not_exists => self
                .tx
                .catalog
                .resolve(&self.tx.scope, created.schema.as_deref(), &created.name)
                .is_some(),
            _ => false,
        };
        let created = self.ddl(ddl, create, &internal(call)).await?;
        let (Some(insert), false) = (insert, existed) else { return Ok(created) };
        let mut statements = statement::parse(insert)?;
        let Some(statement) = statements.pop() else { return Ok(created) };
        let planned = self.tx.plan(&statement)?;
        let planned = self.tx.plan_filling(&statement, planned)?;
        self.tx.is_part = true;
        let filled = Box::pin(self.execute(&planned, &statement.text, &internal(call))).await;
        self.tx.is_part = false;
        let filled = filled.map_err(Failure::without_position)?;
        Ok(match filled {
            Done::Tag(tag) => Done::Tag(tag.replace("INSERT 0", "SELECT")),
            other => other,
        })
    }
}

/// The query's parameters, if it has any, are the client's.
pub(super) fn internal(call: &Call) -> Call {
    match call {
        Call::Extended { arguments, .. } if arguments.values.is_empty() => Call::Simple,
        call => call.clone(),
    }
}
