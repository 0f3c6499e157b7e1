//! PREPARE and EXECUTE where node 1 has all there is: node 1 prepares and executes, as one server does.
//!
//! Owns: which of the session's statements its connection to node 1 knows, and bringing it there.
//! Never: keeps a connection for it: the next one is told again when it is asked to execute.
//! Start reading at [`Session::prepare_at_home`].
//!
//! The gateway keeps each statement as well (`prepared`): names are shared with the protocol's own
//! statements, and once a table is spread the gateway plans what EXECUTE runs. What a statement
//! executes by a text of its own, in a function say, it finds on the connection that has it, which is
//! the session's last one as long as there is room.

use tutti_sql::catalog::{NodeId, quote_identifier};
use tutti_sql::plan::{Access, Plan};

use super::{PreparedStatement, Session};
use crate::client::failure::Failure;
use crate::executor::{Call, Done};

impl Session {
    /// PREPARE, whose whole text is `source`; `None`: the gateway has to do it alone.
    pub(super) async fn prepare_at_home(
        &mut self,
        name: &str,
        types: &[String],
        text: &str,
        source: &str,
        call: &Call,
    ) -> Result<Option<Done>, Failure> {
        if !self.catalog.is_solo() || call.is_extended() || self.statements.contains_key(name) {
            return Ok(None);
        }
        let parsed = self.registry.plans.parse(text);
        self.forget_sql_statements().await?;
        let done = self.run_on_one(NodeId::HOME, Access::Read, source, call).await?;
        let id = self.next_statement_id();
        if let Some(link) = self.links.get_mut(&NodeId::HOME) {
            link.sql_statements.push((name.to_owned(), id));
        }
        // What only node 1 can read is forgotten there again.
        let statement = parsed?.last().cloned();
        let oids = self.type_oids(types).await?;
        let mut prepared = PreparedStatement::parsed(id, statement, oids);
        prepared.from_sql = true;
        prepared.source = Some(source.into());
        self.statements.insert(name.to_owned(), prepared);
        Ok(Some(done))
    }

    /// A statement that executes `name`, as the client wrote it; `None`: the gateway has to put the
    /// prepared text into it.
    pub(super) async fn execute_at_home(
        &mut self,
        name: &str,
        text: &str,
        is_within: bool,
        call: &Call,
    ) -> Result<Option<Done>, Failure> {
        let Some(statement) = self.statements.get(name) else { return Ok(None) };
        let known = (self.catalog.is_solo(), &statement.source, &statement.statement);
        let (true, Some(_), Some(parsed)) = known else { return Ok(None) };
        let parsed = parsed.clone();
        let planned = self.plan(&parsed)?;
        let Plan::One { access, .. } = planned.plan else { return Ok(None) };
        if !planned.own.is_empty() {
            return Ok(None);
        }
        self.note_leaves(&planned, &parsed.text);
        self.bring_sql_statement(name).await?;
        let access = if is_within { Access::Write } else { access };
        Ok(Some(self.run_on_one(NodeId::HOME, access, text, call).await?))
    }

    /// The session's connection to node 1 forgets what the session has given up.
    async fn forget_sql_statements(&mut self) -> Result<(), Failure> {
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

    /// Makes sure that the session's connection to node 1 knows a statement.
    async fn bring_sql_statement(&mut self, name: &str) -> Result<(), Failure> {
        self.forget_sql_statements().await?;
        let Some(statement) = self.statements.get(name) else { return Ok(()) };
        let (id, source) = (statement.id, statement.source.clone());
        let (Some(source), Some(link)) = (source, self.links.get_mut(&NodeId::HOME)) else {
            return Ok(());
        };
        if link.sql_statements.iter().all(|(_, known)| *known != id) {
            link.query(&source).await?;
            link.sql_statements.push((name.to_owned(), id));
        }
        Ok(())
    }

    /// The names, as SQL, of those that node 1 itself tells about. They are brought there.
    pub(super) async fn told_by_home(&mut self) -> Result<Vec<String>, Failure> {
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
}
