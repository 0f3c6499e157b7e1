//! Parse: a text becomes a prepared statement.
//!
//! Owns: which node analyses it for the client, and which nodes know it by which name.
//! Never: lets a node see a statement before it must: the Bind behind it says which node that is.

use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, NodeChoice, Plan};
use tutti_wire::backend::put_bare;
use tutti_wire::frontend::{Parse, Target, put_close, put_parse};

use super::pipeline::{Expect, Undo};
use super::{PreparedStatement, Session};
use crate::executor::Call;
use crate::failure::Failure;

impl Session {
    pub(super) async fn parse(&mut self, parse: Parse) -> Result<(), Failure> {
        let Parse { name, sql, types } = parse;
        if name.is_empty() {
            // It is gone even if the new one turns out to be wrong.
            self.statements.remove("");
        } else if self.statements.contains_key(&name) {
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Failure::error("42P05", message));
        }
        let statements = self.shared.plans.parse(&sql)?;
        if 1 < statements.len() {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(Failure::error("42601", message));
        }
        let statement = statements.first().cloned();
        let empty = statement.is_none();
        let prepared = PreparedStatement::parsed(self.next_statement_id(), statement, types);
        self.statements.insert(name.clone(), prepared);
        if empty {
            self.respond(Undo::Forget(name), |out| put_bare(out, b'1'));
            return Ok(());
        }
        // Refusals belong to Parse, as PostgreSQL's own analysis errors do.
        if let Err(failure) = self.plan_of(&name) {
            self.statements.remove(&name);
            return Err(failure);
        }
        self.pipeline.unchecked = Some(name);
        Ok(())
    }

    /// Gives the statement that no node has seen yet to one, whose ParseComplete is the client's.
    pub(super) async fn check_unchecked(&mut self) -> Result<(), Failure> {
        let Some(name) = self.pipeline.unchecked.clone() else { return Ok(()) };
        if super::describe::is_answered_here(&self.plan_of(&name)?.plan) {
            self.check_unchecked_here();
            return Ok(());
        }
        let node = self.describing_node(&name)?;
        self.send_parse(node, &name, Expect::Parse(name.clone())).await?;
        self.pipeline.unchecked = None;
        Ok(())
    }

    /// A statement that no node needs to see counts as checked.
    pub(super) fn check_unchecked_here(&mut self) {
        if let Some(name) = self.pipeline.unchecked.take() {
            self.respond(Undo::Forget(name), |out| put_bare(out, b'1'));
        }
    }

    /// Where a statement is analysed: where it will run if that is known, else on node 1.
    pub(super) fn describing_node(&mut self, name: &str) -> Result<NodeId, Failure> {
        let planned = self.plan_of(name)?;
        Ok(match &planned.plan {
            Plan::One { node: NodeChoice::Any, .. } => {
                self.pipeline.node.unwrap_or_else(|| self.any_node())
            }
            Plan::Cursor { name: Some(cursor), close: false } => self.node_of_cursor(cursor),
            // Pinned to literals: only there, for analysis may already fix a snapshot.
            Plan::One { node: node @ NodeChoice::Pinned(_), .. } => {
                self.choose(node, &Call::Simple).or(self.pipeline.node).unwrap_or(NodeId::HOME)
            }
            _ => self.pipeline.node.unwrap_or(NodeId::HOME),
        })
    }

    async fn send_parse(
        &mut self,
        node: NodeId,
        name: &str,
        expect: Expect,
    ) -> Result<(), Failure> {
        self.turn_to(node, Access::Read).await?;
        let statement = self.statement(name)?;
        let (id, types) = (statement.id, statement.types.clone());
        let Some(parsed) = statement.statement.clone() else { return Ok(()) };
        let link = self.links.get_mut(&node).expect("turned to");
        let types = link.types_here(&types);
        let occupied = link.prepared.insert(name.to_owned(), id).is_some();
        let out = link.connection().outgoing();
        if occupied && !name.is_empty() {
            put_close(out, Target::Statement, name);
            self.pipeline.expects.push_back(Expect::SilentClose);
        }
        put_parse(out, name, &parsed.text, &types);
        self.pipeline.expects.push_back(expect);
        Ok(())
    }

    /// Makes sure that `node` knows the statement, unseen by the client unless its Parse is due.
    pub(super) async fn ensure_parsed(&mut self, node: NodeId, name: &str) -> Result<(), Failure> {
        let id = self.statement(name)?.id;
        if self.pipeline.unchecked.as_deref() == Some(name) {
            self.send_parse(node, name, Expect::Parse(name.to_owned())).await?;
            self.pipeline.unchecked = None;
            return Ok(());
        }
        self.turn_to(node, Access::Read).await?;
        let link = self.links.get_mut(&node).expect("turned to");
        if link.prepared.get(name) == Some(&id) {
            return Ok(());
        }
        self.send_parse(node, name, Expect::SilentParse(name.to_owned())).await
    }
}
