//! Parse: a text becomes a prepared statement.
//!
//! Owns: which node analyses it for the client, and which nodes know it by which name.
//! Never: lets a node see a statement before it must: the Bind after it says which node that is.

use tutti_link::connection::may_mean_more;
use tutti_link::pool::{Lookup, SchemaVersion, StatementKey, name_of};
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, DataPlan, NodeChoice, Plan};
use tutti_wire::backend::put_bare;
use tutti_wire::frontend::{Parse, Target, put_close, put_parse, put_sync};

use super::due::{Expect, Undo};
use crate::client::failure::Failure;
use crate::plans::request::Call;
use crate::session::Session;
use crate::transaction::named::{Meaning, PreparedStatement};
use crate::transaction::planning::Parsed;
use crate::transaction::waiting::Waits;

impl Session {
    pub(super) async fn parse(&mut self, parse: Parse) -> Result<(), Failure> {
        let Parse { name, sql, types } = parse;
        // It is gone even if the new one proves invalid.
        let replaced = if name.is_empty() { self.tx.statements.remove("") } else { None };
        // A server reports what code has set with ReadyForQuery, not before.
        let may_have_set = self.tx.residue.anything || self.tx.residue.values;
        if may_have_set && may_mean_more(&sql) {
            self.quiet_pipeline().await?;
            self.tx.end_if_misread();
        }
        let statements = match self.parse_text(&sql).await? {
            Parsed::Statements(statements) => statements,
            Parsed::ByNodesOnly(refusal) => return Err(refusal.into()),
        };
        if 1 < statements.len() {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(Failure::error("42601", message));
        }
        let statement = statements.first().cloned();
        if self.tx.statements.contains_key(&name) {
            // As on a server, what is wrong with the text comes first, and that the transaction has failed.
            statement.map_or(Ok(()), |statement| self.tx.plan(&statement).map(drop))?;
            let message = format!("prepared statement \"{name}\" already exists");
            return Err(Failure::error("42P05", message));
        }
        let empty = statement.is_none();
        let mut prepared = PreparedStatement::parsed(self.next_statement_id(), statement, types);
        if !self.pipeline.expects.is_empty() {
            prepared.replaces = replaced.map(Box::new);
        }
        self.tx.statements.insert(name.clone(), prepared);
        if empty {
            self.respond(Undo::Forget(name), |out| put_bare(out, b'1'));
            return Ok(());
        }
        // Refusals belong to Parse, as PostgreSQL's own analysis errors do.
        if let Err(failure) = self.plan_of(&name) {
            self.tx.statements.remove(&name);
            return Err(failure);
        }
        self.pipeline.unchecked = Some(name);
        Ok(())
    }

    /// Sends the statement that no node has seen yet to one, whose ParseComplete is forwarded to
    /// the client.
    pub(super) async fn check_unchecked(&mut self) -> Result<(), Failure> {
        let Some(name) = self.pipeline.unchecked.clone() else { return Ok(()) };
        let node = loop {
            let plan = &self.tx.activity.plan;
            let is_stopped =
                plan.is_overtaken_unsent() || (plan.is_overtaken() && self.has_sent_nothing());
            if is_stopped || !plan.exists() {
                // The client has paused since its Parse, and a change has stopped what was planned then.
                if self.has_sent_nothing() {
                    let text = self.statement(&name)?.statement.as_ref().map(|it| it.text.clone());
                    self.begin_statement(text.as_deref().unwrap_or_default()).await?;
                } else if !self.tx.must_refresh_scope() {
                    self.tx.begin_in_sight(Waits::AskingNobody).await?;
                }
            }
            let planned = self.plan_of(&name)?;
            if super::describe::is_answered_here(&planned.plan) {
                self.check_unchecked_here();
                return Ok(());
            }
            self.tx.activity.plan.note_analysis(planned.concerns.as_ref());
            if self.is_described_separately(&planned) {
                return Box::pin(self.check_separately(&name)).await;
            }
            let node = self.describing_node(&name)?;
            if self.tx.links.get(&node).is_some_and(|link| !link.is_broken()) {
                break node;
            }
            // A change may stop the plan while a link is waited for.
            self.tx.link(node).await?;
        };
        self.send_parse(node, &name, true).await?;
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
    pub(in crate::session) fn describing_node(&mut self, name: &str) -> Result<NodeId, Failure> {
        let planned = self.plan_of(name)?;
        Ok(match &planned.plan {
            Plan::Data(DataPlan::One { node: NodeChoice::Any, .. }) => {
                self.pipeline.node.unwrap_or_else(|| self.tx.any_node())
            }
            Plan::Data(DataPlan::One { node: NodeChoice::Speaker, .. }) => self.tx.speaker(),
            Plan::Data(DataPlan::Cursor { name: Some(cursor), close: false }) => {
                self.tx.node_of_cursor(cursor)
            }
            // Pinned to literals: only there, for analysis may already fix a snapshot.
            Plan::Data(DataPlan::One { node: node @ NodeChoice::Pinned(_), .. }) => self
                .executor()
                .choose(node, &Call::Simple)
                .or(self.pipeline.node)
                .unwrap_or(NodeId::HOME),
            // It may use objects that only node 1 has.
            Plan::Data(DataPlan::Rows(_)) => NodeId::HOME,
            _ if self.tx.catalog.home_by_default => NodeId::HOME,
            _ => self.pipeline.node.unwrap_or(NodeId::HOME),
        })
    }

    /// Sends `node` the statement if it does not have it; `due`: the client waits for ParseComplete.
    /// Returns the name by which the node knows it.
    async fn send_parse(&mut self, node: NodeId, name: &str, due: bool) -> Result<String, Failure> {
        self.switch_to(node, Access::Read).await?;
        let number = if name.is_empty() { None } else { Some(self.number_of(name)?) };
        let statement = self.statement(name)?;
        let (id, types) = (statement.id, statement.types_given.clone());
        let Some(parsed) = statement.statement.clone() else { return Ok(String::new()) };
        let may_be_replaced = self.tx.residue.anything;
        let link = self.tx.links.at(&node);
        let there = number.map_or_else(String::new, name_of);
        let known = match number {
            None if link.unnamed == Some(id) => Lookup::There,
            None => Lookup::Missing,
            // Code that has run there may have replaced it.
            Some(_) if may_be_replaced => Lookup::Unsure,
            Some(number) => link.known.find(number),
        };
        if known == Lookup::There {
            if due {
                let name = name.to_owned();
                self.respond(Undo::Forget(name), |out| put_bare(out, b'1'));
            }
            return Ok(there);
        }
        let types = link.types_here(&types);
        let mut closed = None;
        match number {
            Some(number) => closed = link.known.add(number),
            None => link.unnamed = Some(id),
        }
        let out = link.connection().outgoing();
        if known == Lookup::Unsure {
            put_close(out, Target::Statement, &there);
            self.pipeline.expects.push_back(Expect::SilentClose);
        }
        if let Some(closed) = closed {
            put_close(out, Target::Statement, &name_of(closed));
            self.pipeline.expects.push_back(Expect::SilentClose);
        }
        put_parse(out, &there, &parsed.text, &types);
        self.pipeline.expects.push_back(match due {
            true => Expect::Parse(name.to_owned(), number),
            false => Expect::SilentParse(number),
        });
        Ok(there)
    }

    /// Makes sure that `node` knows the statement, unseen by the client unless its Parse is due.
    /// Returns the name by which the node knows it.
    pub(super) async fn ensure_parsed(
        &mut self,
        node: NodeId,
        name: &str,
    ) -> Result<String, Failure> {
        if self.pipeline.unchecked.as_deref() == Some(name) {
            let there = self.send_parse(node, name, true).await?;
            self.pipeline.unchecked = None;
            return Ok(there);
        }
        self.describe_anew(name).await?;
        self.send_parse(node, name, false).await
    }

    /// Lets a node know a prepared statement before it is executed, and waits for that. Requires: nothing is due.
    ///
    /// Errors: what the node's analysis finds; the connection is lost.
    pub(in crate::session) async fn parse_by_itself(
        &mut self,
        node: NodeId,
        name: &str,
    ) -> Result<(), Failure> {
        let number = self.number_of(name)?;
        let statement = self.statement(name)?;
        let (parsed, types) = (statement.statement.clone(), statement.types_given.clone());
        let Some(parsed) = parsed else { return Ok(()) };
        let link = self.tx.enlist(node, Access::Read).await?;
        if link.known.find(number) != Lookup::Missing {
            return Ok(());
        }
        let types = link.types_here(&types);
        let closed = link.known.add(number);
        link.begin();
        let out = link.connection().outgoing();
        if let Some(closed) = closed {
            put_close(out, Target::Statement, &name_of(closed));
        }
        put_parse(out, &name_of(number), &parsed.text, &types);
        put_sync(out);
        link.connection().flush().await?;
        let refused_before = link.catch_up().await?;
        let answer = link.connection().finish_query().await;
        link.answered();
        if answer.is_err() {
            link.known.doubt(number);
        }
        refused_before.map_or(Ok(()), Err)?;
        Ok(answer.map(drop)?)
    }

    /// Whether a statement with this meaning still means the same.
    pub(in crate::session) fn is_meant(&self, known: &Meaning) -> bool {
        let Meaning { version, scope_changes, role, private } = known;
        *version == self.schema_version()
            && *scope_changes == self.tx.scope_state.changes
            && role == self.tx.settings.role()
            && *private == self.has_own_schema()
    }

    /// The version of the schema for this session.
    pub(in crate::session) fn schema_version(&self) -> SchemaVersion {
        match self.tx.catalog.is_solo() {
            true => {
                let own = u64::from(self.has_own_schema());
                (self.tx.catalog.version, 2 * self.tx.registry.cluster.publisher.changes() + own)
            }
            // A change may be undone, and another one then leads to a schema of the same number.
            false if self.has_own_schema() => {
                (self.tx.catalog.version, self.tx.scope_state.own_schemas)
            }
            false => (self.tx.catalog.version, 0),
        }
    }

    /// What a statement's description depends on: which tables there are, and which of them its names mean.
    pub(in crate::session) fn described_basis(&self) -> (SchemaVersion, u64) {
        (self.schema_version(), self.tx.scope_state.path)
    }

    /// Whether it has changed the schema, and other sessions do not see it yet.
    fn has_own_schema(&self) -> bool {
        self.tx.transaction.catalog_changed
            || self.tx.transaction.own_is_stale
            || self.tx.residue.schema
    }

    /// The number by which nodes know a named statement, with its current meaning.
    fn number_of(&mut self, name: &str) -> Result<u64, Failure> {
        let statement = self.statement(name)?;
        if let Some((known, number)) = &statement.number
            && self.is_meant(known)
        {
            return Ok(*number);
        }
        let meaning = Meaning {
            version: self.schema_version(),
            scope_changes: self.tx.scope_state.changes,
            role: self.tx.settings.role().to_owned(),
            private: self.has_own_schema(),
        };
        let parsed = statement.statement.as_ref();
        // What a FETCH returns depends on a cursor of one session, and a server that describes it
        // to another one, without such a cursor, crashes (PostgreSQL 15, FetchStatementTargetList).
        let is_for_all = parsed.is_some_and(|parsed| parsed.is_of_rows());
        let is_private = meaning.private || !self.tx.scope.temporary.is_empty() || !is_for_all;
        let key = StatementKey {
            text: parsed.map_or("", |parsed| &parsed.text).into(),
            types: statement.types_given.clone(),
            version: meaning.version,
            scope: self.tx.scope.clone(),
            role: meaning.role.clone(),
            // No other statement has this pair.
            private: if is_private {
                self.tx.number << 32 | (statement.id & 0xffff_ffff)
            } else {
                0
            },
        };
        let number = self.tx.registry.statements.number(key);
        if let Some(statement) = self.tx.statements.get_mut(name) {
            statement.number = Some((meaning, number));
        }
        Ok(number)
    }
}
