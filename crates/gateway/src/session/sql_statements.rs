//! PREPARE and EXECUTE where node 1 has everything: node 1 prepares and executes, as one server does.
//!
//! Owns: which of the session's statements its connection to node 1 knows, and bringing it there.
//! Never: keeps a connection for it: the next one is given the statement again when it must execute
//! it.
//! Start reading at [`Session::prepare_at_home`].
//!
//! The gateway keeps each statement as well (`prepared`): names are shared with the protocol's own
//! statements, and once a table is spread the gateway plans what EXECUTE runs. EXECUTE inside other
//! code, such as a function, finds the statement on the connection that has it, which is
//! the session's last one as long as there is room.

use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, DataPlan, Plan};

use crate::client::failure::Failure;
use crate::plans::request::{Call, Done};
use crate::session::Session;
use crate::transaction::named::PreparedStatement;

impl Session {
    /// PREPARE, whose whole text is `source`; `None`: the gateway has to do it by itself.
    pub(super) async fn prepare_at_home(
        &mut self,
        name: &str,
        types: &[String],
        text: &str,
        source: &str,
        call: &Call,
    ) -> Result<Option<Done>, Failure> {
        if !self.tx.catalog.is_solo() || call.is_extended() || self.tx.statements.contains_key(name)
        {
            return Ok(None);
        }
        let parsed = self.tx.registry.plans.parse(text);
        self.tx.forget_sql_statements().await?;
        let done = self.executor().run_on_one(NodeId::HOME, Access::Read, source, call).await?;
        let id = self.next_statement_id();
        if let Some(link) = self.tx.links.get_mut(&NodeId::HOME) {
            link.sql_statements.push((name.to_owned(), id));
        }
        // A statement that only node 1 can read is deallocated there again.
        let statement = parsed?.last().cloned();
        let oids = self.type_oids(types).await?;
        let mut prepared = PreparedStatement::parsed(id, statement, oids);
        prepared.from_sql = true;
        prepared.source = Some(source.into());
        self.tx.statements.insert(name.to_owned(), prepared);
        Ok(Some(done))
    }

    /// A statement that executes `name`, as the client wrote it; `None`: the gateway has to
    /// substitute the prepared text.
    pub(super) async fn execute_at_home(
        &mut self,
        name: &str,
        text: &str,
        is_within: bool,
        call: &Call,
    ) -> Result<Option<Done>, Failure> {
        let Some(statement) = self.tx.statements.get(name) else { return Ok(None) };
        let known = (self.tx.catalog.is_solo(), &statement.source, &statement.statement);
        let (true, Some(_), Some(parsed)) = known else { return Ok(None) };
        let parsed = parsed.clone();
        let planned = self.tx.plan(&parsed)?;
        let Plan::Data(DataPlan::One { access, .. }) = planned.plan else { return Ok(None) };
        if !planned.session_names.is_empty() {
            return Ok(None);
        }
        self.tx.note_residue(&planned, &parsed.text);
        self.bring_sql_statement(name).await?;
        let access = if is_within { Access::Write } else { access };
        Ok(Some(self.executor().run_on_one(NodeId::HOME, access, text, call).await?))
    }

    /// Makes sure that the session's connection to node 1 knows a statement.
    async fn bring_sql_statement(&mut self, name: &str) -> Result<(), Failure> {
        self.tx.forget_sql_statements().await?;
        let Some(statement) = self.tx.statements.get(name) else { return Ok(()) };
        let (id, source) = (statement.id, statement.source.clone());
        let (Some(source), Some(link)) = (source, self.tx.links.get_mut(&NodeId::HOME)) else {
            return Ok(());
        };
        if link.sql_statements.iter().all(|(_, known)| *known != id) {
            link.query(&source).await?;
            link.sql_statements.push((name.to_owned(), id));
        }
        Ok(())
    }
}
