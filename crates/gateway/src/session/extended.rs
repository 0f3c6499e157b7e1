//! The extended protocol: Parse, Bind, Describe, Execute, Close, Flush, Sync.
//!
//! Owns: the pipeline of messages that go to one node unread and whose answers come back in order,
//! and the detour for plans that the executor must carry out.
//! Never: waits for a node while more messages for it may come.
//! Start reading at [`Session::extended_message`].
//!
//! As long as the messages between two Syncs concern one node, they are forwarded as the client
//! wrote them and only their answers are counted ([`Expect`]). Anything else first brings the pipeline
//! to rest ([`Session::quiet_pipeline`]).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::BytesMut;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, NodeChoice, Plan, Planned};
use tutti_sql::statement;
use tutti_wire::backend::{
    self, ColumnDescription, put_bare, put_command_complete, put_parameter_description,
    put_row_description,
};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::{Frame, frame_len};
use tutti_wire::frontend::{
    self, Arguments, Bind, Message, Parse, Target, put_bind, put_close, put_describe, put_execute,
    put_flush, put_parse, put_sync,
};

use super::prepared::{CachedPlan, PortalSource};
use super::{Mode, Portal, PreparedStatement, Session};
use crate::client::ClientError;
use crate::executor::{Call, Done};
use crate::failure::Failure;
use crate::node::NodeError;

/// Messages for a node are sent when this many bytes of them have gathered.
const PIPELINE_FLUSH_BYTES: usize = 32 * 1024;

/// An answer that is due to the client.
#[derive(Debug)]
enum Expect {
    /// ParseComplete for the client.
    Parse,
    /// ParseComplete that the client does not know of.
    SilentParse,
    /// CloseComplete that the client does not know of.
    SilentClose,
    /// BindComplete.
    Bind,
    /// ParameterDescription and RowDescription or NoData; kept for the named statement.
    DescribeStatement(String),
    /// RowDescription or NoData.
    DescribePortal,
    /// Rows and what ends them.
    Execute,
    /// Something of our own that is to be sent when its turn comes.
    Local(BytesMut),
}

/// Messages that were sent to a node and not answered yet.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    /// The node they went to.
    node: Option<NodeId>,
    expects: VecDeque<Expect>,
    /// Nodes that have received messages since the last Sync, and whether something ran there.
    unsynced: BTreeMap<NodeId, bool>,
    /// A Parse that no node has seen yet: statement name.
    unchecked: Option<String>,
    /// An error was sent: messages are skipped until Sync.
    skipping: bool,
}

impl Session {
    /// Takes one message of the extended protocol.
    pub(super) async fn extended_message(&mut self, frame: &Frame) -> Result<(), ClientError> {
        if frame.tag() == b'S' {
            return self.sync().await;
        }
        if self.pipeline.skipping {
            return Ok(());
        }
        let taken = self.take_message(frame).await;
        self.skip_on_failure(taken).await
    }

    async fn skip_on_failure(&mut self, taken: Result<(), Failure>) -> Result<(), ClientError> {
        let failure = match taken {
            Ok(()) => return Ok(()),
            // Answers to earlier messages come first; one of them may itself be an error.
            Err(failure) => match self.drain().await {
                Ok(()) => failure,
                Err(earlier) => earlier,
            },
        };
        self.pipeline.skipping = true;
        self.pipeline.expects.clear();
        self.pipeline.unchecked = None;
        match failure {
            Failure::Client(error) => Err(error),
            Failure::Statement(error) => {
                self.client.put_error(&error);
                self.fail_transaction();
                Ok(())
            }
        }
    }

    async fn take_message(&mut self, frame: &Frame) -> Result<(), Failure> {
        match frontend::decode(frame)? {
            Message::Parse(parse) => self.parse(parse).await,
            Message::Bind(bind) => self.bind(frame, bind).await,
            Message::Describe(Target::Statement, name) => self.describe_statement(name).await,
            Message::Describe(Target::Portal, name) => self.describe_portal(name).await,
            Message::Execute { portal, row_limit } => self.execute_portal(portal, row_limit).await,
            Message::Close(target, name) => self.close(target, &name).await,
            Message::Flush => {
                self.check_unchecked().await?;
                self.drain().await?;
                Ok(self.client.flush().await?)
            }
            other => unreachable!("{other:?} is not of the extended protocol"),
        }
    }

    // Parse

    async fn parse(&mut self, parse: Parse) -> Result<(), Failure> {
        self.check_unchecked().await?;
        let Parse { name, sql, types } = parse;
        if !name.is_empty()
            && (self.statements.contains_key(&name) || self.sql_prepared.contains_key(&name))
        {
            return Err(Failure::error(
                "42P05",
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        let mut statements = statement::parse(&sql)?;
        if 1 < statements.len() {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(Failure::error("42601", message));
        }
        let statement = statements.pop().map(Arc::new);
        let id = self.next_statement_id();
        let prepared =
            PreparedStatement { id, statement, types, described: false, columns: None, plan: None };
        let empty = prepared.statement.is_none();
        self.statements.insert(name.clone(), prepared);
        if empty {
            self.respond(|out| put_bare(out, b'1'));
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
    async fn check_unchecked(&mut self) -> Result<(), Failure> {
        let Some(name) = self.pipeline.unchecked.clone() else { return Ok(()) };
        if crate::executor::local_columns(&self.plan_of(&name)?.plan).is_some() {
            self.check_unchecked_locally();
            return Ok(());
        }
        self.pipeline.unchecked = None;
        let node = self.describing_node(&name)?;
        self.send_parse(node, &name, Expect::Parse).await
    }

    /// Where a statement is analysed: where it will run if that is known, else on node 1.
    fn describing_node(&mut self, name: &str) -> Result<NodeId, Failure> {
        let planned = self.plan_of(name)?;
        Ok(match &planned.plan {
            Plan::One { node: NodeChoice::Any, .. } => {
                self.pipeline.node.unwrap_or_else(|| self.any_node())
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
        let statement = self.statement(name)?;
        let (id, types) = (statement.id, statement.types.clone());
        let Some(parsed) = statement.statement.clone() else { return Ok(()) };
        self.turn_to(node, Access::Read).await?;
        let link = self.links.get_mut(&node).expect("turned to");
        let occupied = link.prepared.insert(name.to_owned(), id).is_some();
        let out = link.connection().outgoing();
        if occupied && !name.is_empty() {
            put_close(out, Target::Statement, name);
            self.pipeline.expects.push_back(Expect::SilentClose);
        }
        let link = self.links.get_mut(&node).expect("turned to");
        let types = link.types_here(&types);
        put_parse(link.connection().outgoing(), name, &parsed.text, &types);
        self.pipeline.expects.push_back(expect);
        Ok(())
    }

    /// Makes sure that `node` knows the statement, unseen by the client unless its Parse is due.
    async fn ensure_parsed(&mut self, node: NodeId, name: &str) -> Result<(), Failure> {
        let id = self.statement(name)?.id;
        if self.pipeline.unchecked.as_deref() == Some(name) {
            self.pipeline.unchecked = None;
            return self.send_parse(node, name, Expect::Parse).await;
        }
        self.turn_to(node, Access::Read).await?;
        let link = self.links.get_mut(&node).expect("turned to");
        if link.prepared.get(name) == Some(&id) {
            return Ok(());
        }
        self.send_parse(node, name, Expect::SilentParse).await
    }

    // Bind

    async fn bind(&mut self, frame: &Frame, bind: Bind) -> Result<(), Failure> {
        let Bind { portal, statement: name, arguments } = bind;
        let statement = self.statement(&name)?;
        let call = Call::Extended { types: statement.types.clone(), arguments };
        let Some(parsed) = statement.statement.clone() else {
            self.portals
                .insert(portal, Portal { statement: name, call, source: PortalSource::Empty });
            self.respond(|out| put_bare(out, b'2'));
            return Ok(());
        };
        if !portal.is_empty() && self.portals.contains_key(&portal) {
            return Err(Failure::error("42P03", format!("cursor \"{portal}\" already exists")));
        }
        let mut planned = self.plan_of(&name)?;
        self.refuse_if_failed(&planned)?;
        if self.pins_need_types(&planned, &name) {
            self.describe_silently(&name).await?;
        }
        let call = Call::Extended {
            types: self.statement(&name)?.types.clone(),
            arguments: arguments_of(call),
        };
        loop {
            let Plan::One { node, access, otherwise } = &planned.plan else { break };
            if let Some(node) = self.choose(node, &call) {
                let access = *access;
                self.ensure_parsed(node, &name).await?;
                self.turn_to(node, access).await?;
                let link = self.links.get_mut(&node).expect("turned to");
                link.connection().outgoing().extend_from_slice(frame.as_bytes());
                self.pipeline.expects.push_back(Expect::Bind);
                let source = PortalSource::Node(node);
                self.portals.insert(portal, Portal { statement: name, call, source });
                return Ok(());
            }
            let Some(otherwise) = otherwise.clone() else { break };
            planned = Arc::new(*otherwise);
        }
        self.check_unchecked().await?;
        let source = PortalSource::Plan(planned, parsed);
        self.portals.insert(portal, Portal { statement: name, call, source });
        self.respond(|out| put_bare(out, b'2'));
        Ok(())
    }

    /// Whether a pin depends on a parameter in binary form whose type nobody has said.
    fn pins_need_types(&self, planned: &Planned, name: &str) -> bool {
        let Plan::One { node: NodeChoice::Pinned(pins), .. } = &planned.plan else { return false };
        let Some(statement) = self.statements.get(name) else { return false };
        1 < pins.len()
            && !statement.described
            && pins.iter().any(|pin| match pin.value {
                tutti_sql::plan::KeyValue::Parameter(index) => {
                    statement.types.get(usize::from(index)).copied().unwrap_or(0) == 0
                }
                tutti_sql::plan::KeyValue::Bucket(_) => false,
            })
    }

    // Describe

    async fn describe_statement(&mut self, name: String) -> Result<(), Failure> {
        let statement = self.statement(&name)?;
        if statement.statement.is_none() {
            let types = statement.types.clone();
            self.respond(|out| {
                put_parameter_description(out, &types);
                put_bare(out, b'n');
            });
            return Ok(());
        }
        let planned = self.plan_of(&name)?;
        if let Some(columns) = crate::executor::local_columns(&planned.plan) {
            self.check_unchecked_locally();
            self.respond(|out| {
                put_parameter_description(out, &[]);
                match &columns {
                    Some(columns) => put_row_description(out, columns),
                    None => put_bare(out, b'n'),
                }
            });
            return Ok(());
        }
        let node = self.describing_node(&name)?;
        self.ensure_parsed(node, &name).await?;
        let link = self.links.get_mut(&node).expect("parsed there");
        put_describe(link.connection().outgoing(), Target::Statement, &name);
        self.pipeline.expects.push_back(Expect::DescribeStatement(name));
        Ok(())
    }

    async fn describe_portal(&mut self, name: String) -> Result<(), Failure> {
        let portal = self.portal(&name)?;
        let statement = portal.statement.clone();
        match portal.source.clone() {
            PortalSource::Node(node) => {
                self.turn_to(node, Access::Read).await?;
                let link = self.links.get_mut(&node).expect("turned to");
                put_describe(link.connection().outgoing(), Target::Portal, &name);
                self.pipeline.expects.push_back(Expect::DescribePortal);
                Ok(())
            }
            PortalSource::Empty => {
                self.respond(|out| put_bare(out, b'n'));
                Ok(())
            }
            PortalSource::Plan(planned, _) => {
                let columns = match crate::executor::local_columns(&planned.plan) {
                    Some(columns) => columns,
                    None => {
                        self.describe_silently(&statement).await?;
                        self.statement(&statement)?.columns.clone()
                    }
                };
                let Call::Extended { arguments, .. } = &self.portal(&name)?.call else {
                    unreachable!("portals are bound");
                };
                let columns = columns.map(|columns| with_formats(columns, arguments));
                self.respond(|out| match &columns {
                    Some(columns) => put_row_description(out, columns),
                    None => put_bare(out, b'n'),
                });
                Ok(())
            }
            PortalSource::Rows { .. } => Err(Failure::error(
                "0A000",
                "a portal that spans several nodes can be described only before it is executed",
            )),
        }
    }

    /// Asks a node what the statement's parameters and columns are, for our own use.
    async fn describe_silently(&mut self, name: &str) -> Result<(), Failure> {
        if self.statement(name)?.described {
            return Ok(());
        }
        self.check_unchecked().await?;
        self.quiet_pipeline().await?;
        let statement = self.statement(name)?;
        let (types, parsed) = (statement.types.clone(), statement.statement.clone());
        let Some(parsed) = parsed else { return Ok(()) };
        let (types, columns) = self.describe_text(&parsed.text, &types).await?;
        if let Some(statement) = self.statements.get_mut(name) {
            statement.types = types;
            statement.columns = columns;
            statement.described = true;
        }
        Ok(())
    }

    /// Lets node 1 analyse `text`: parameter types and result columns.
    ///
    /// Errors: whatever PostgreSQL's analysis finds. Requires: the pipeline rests.
    pub(crate) async fn describe_text(
        &mut self,
        text: &str,
        types: &[u32],
    ) -> Result<(Vec<u32>, Option<Vec<ColumnDescription>>), Failure> {
        let link = self.enlist(NodeId::HOME, Access::Read).await?;
        link.forget_unnamed();
        let out = link.connection().outgoing();
        put_parse(out, "", text, types);
        put_describe(out, Target::Statement, "");
        put_sync(out);
        link.connection().flush().await?;
        let refused_before = link.settle().await?;
        let mut described = (Vec::new(), None);
        let mut refused = None;
        loop {
            let frame = link.connection().next_frame().await?;
            match frame.tag() {
                b't' => described.0 = backend::decode_parameter_description(&frame)?,
                b'T' => described.1 = Some(backend::decode_row_description(&frame)?),
                b'E' => refused = Some(ErrorFields::decode(&frame)?),
                b'Z' => break,
                _ => (),
            }
        }
        refused_before.map_or(Ok(()), Err)?;
        refused.map_or(Ok(described), |error| Err(error.into()))
    }

    // Execute

    async fn execute_portal(&mut self, name: String, row_limit: i32) -> Result<(), Failure> {
        let portal = self.portal(&name)?;
        let (source, call, statement) =
            (portal.source.clone(), portal.call.clone(), portal.statement.clone());
        match source {
            PortalSource::Node(node) => {
                let (access, copies) = self.access_and_copy(&statement)?;
                self.turn_to(node, access).await?;
                let link = self.links.get_mut(&node).expect("turned to");
                put_execute(link.connection().outgoing(), &name, row_limit);
                self.pipeline.expects.push_back(Expect::Execute);
                self.pipeline.unsynced.insert(node, true);
                if copies {
                    self.drain().await?;
                } else if PIPELINE_FLUSH_BYTES
                    < self.links.get_mut(&node).expect("turned to").connection().outgoing().len()
                {
                    self.links.get_mut(&node).expect("turned to").connection().flush().await?;
                }
                Ok(())
            }
            PortalSource::Empty => {
                self.respond(|out| put_bare(out, b'I'));
                Ok(())
            }
            PortalSource::Rows { .. } => {
                self.hand_out(&name, row_limit);
                Ok(())
            }
            PortalSource::Plan(planned, parsed) => {
                self.execute_plan(&name, &statement, &planned, &parsed, call, row_limit).await
            }
        }
    }

    /// What the statement does, and whether COPY data may flow.
    fn access_and_copy(&mut self, name: &str) -> Result<(Access, bool), Failure> {
        let planned = self.plan_of(name)?;
        let copies =
            self.statement(name)?.statement.as_ref().is_some_and(|parsed| parsed.is_copy());
        let access = match &planned.plan {
            Plan::One { access, .. } => *access,
            _ => Access::Write,
        };
        Ok((access, copies))
    }

    /// A plan for several nodes, or for the gateway itself.
    async fn execute_plan(
        &mut self,
        portal: &str,
        statement: &str,
        planned: &Arc<Planned>,
        parsed: &Arc<statement::Statement>,
        call: Call,
        row_limit: i32,
    ) -> Result<(), Failure> {
        self.refuse_if_failed(planned)?;
        self.quiet_pipeline().await?;
        let needs_types = 0 < parsed.parameter_count && self.statements.contains_key(statement);
        let call = match (needs_types, call) {
            (true, Call::Extended { arguments, .. }) => {
                self.describe_silently(statement).await?;
                Call::Extended { types: self.statement(statement)?.types.clone(), arguments }
            }
            (_, call) => call,
        };
        if row_limit <= 0 {
            let done = self.execute(planned, &parsed.text, &call).await?;
            self.tell(done);
            return Ok(());
        }
        self.client.begin_capture();
        let executed = self.execute(planned, &parsed.text, &call).await;
        let frames = self.client.end_capture();
        let (frames, tag) = match executed? {
            Done::Tag(tag) => (frames, tag),
            Done::Told => split_off_tag(frames)?,
            Done::Empty => (frames, String::new()),
        };
        if let Some(portal) = self.portals.get_mut(portal) {
            portal.source = PortalSource::Rows { frames, tag };
        }
        self.hand_out(portal, row_limit);
        Ok(())
    }

    /// Sends up to `row_limit` of the rows that a portal has left; all if it is not positive.
    fn hand_out(&mut self, name: &str, row_limit: i32) {
        let Some(Portal { source: PortalSource::Rows { frames, tag }, .. }) =
            self.portals.get_mut(name)
        else {
            return;
        };
        let limit =
            usize::try_from(row_limit).ok().filter(|limit| 0 < *limit).unwrap_or(usize::MAX);
        let (mut len, mut rows) = (0, 0);
        while rows < limit
            && let Ok(Some(frame)) = frame_len(&frames[len..])
        {
            rows += usize::from(frames[len] == b'D');
            len += frame;
        }
        let sent = frames.split_to(len);
        let tag = (frames.is_empty() && rows < limit).then(|| tag.clone());
        let out = self.client.out();
        out.extend_from_slice(&sent);
        match tag {
            // PostgreSQL counts the rows of the last Execute.
            Some(tag) if tag.starts_with("SELECT ") => {
                put_command_complete(out, &format!("SELECT {rows}"));
            }
            Some(tag) => put_command_complete(out, &tag),
            None => put_bare(out, b's'),
        }
    }

    // Close, Sync

    async fn close(&mut self, target: Target, name: &str) -> Result<(), Failure> {
        self.check_unchecked().await?;
        match target {
            Target::Portal => {
                if let Some(Portal { source: PortalSource::Node(node), .. }) =
                    self.portals.remove(name)
                {
                    self.turn_to(node, Access::Read).await?;
                    let link = self.links.get_mut(&node).expect("turned to");
                    put_close(link.connection().outgoing(), Target::Portal, name);
                    self.pipeline.expects.push_back(Expect::SilentClose);
                }
            }
            // Nodes forget a statement when its name is used again.
            Target::Statement => {
                self.statements.remove(name);
            }
        }
        self.respond(|out| put_bare(out, b'3'));
        Ok(())
    }

    async fn sync(&mut self) -> Result<(), ClientError> {
        let synced = self.finish_pipeline().await;
        let failed = synced.is_err() || self.pipeline.skipping;
        self.skip_on_failure(synced).await?;
        self.pipeline.skipping = false;
        let quiet = self.sync_nodes().await;
        let ended = match (quiet, self.transaction.mode, failed) {
            (Err(failure), ..) => Err(failure),
            (Ok(()), Mode::Implicit, true) => self.rollback().await,
            (Ok(()), Mode::Implicit, false) => self.commit().await,
            (Ok(()), Mode::None | Mode::Explicit, _) => Ok(()),
        };
        self.report(ended).await?;
        if self.transaction.mode == Mode::None {
            self.portals.clear();
        }
        self.client.put_ready(self.transaction.status());
        self.client.flush().await
    }

    async fn finish_pipeline(&mut self) -> Result<(), Failure> {
        if self.pipeline.skipping {
            return Ok(());
        }
        self.check_unchecked().await?;
        // The node's Sync travels with what it ends, so that one flight does for all.
        if self.pipeline.unsynced.len() == 1
            && let Some(node) = self.pipeline.node
            && self.pipeline.unsynced.contains_key(&node)
            && let Some(link) = self.links.get_mut(&node)
        {
            put_sync(link.connection().outgoing());
            link.connection().flush().await?;
            let drained = self.read_expected().await;
            // ReadyForQuery is read here in any case: errors are answered before it.
            let ready = self.read_ready(node).await;
            self.pipeline.unsynced.clear();
            self.pipeline.node = None;
            return drained.and(ready);
        }
        self.drain().await
    }

    async fn read_ready(&mut self, node: NodeId) -> Result<(), Failure> {
        let Some(link) = self.links.get_mut(&node) else { return Ok(()) };
        // A BEGIN that was sent silently has a ReadyForQuery of its own, which comes first.
        let mut refused = match link.settle().await? {
            Some(NodeError::Refused(fields)) => Some(*fields),
            Some(error) => return Err(error.into()),
            None => None,
        };
        loop {
            let frame = link.connection().next_frame().await?;
            match frame.tag() {
                b'Z' => break,
                // A deferred constraint, or a commit that failed.
                b'E' => refused = refused.or(Some(ErrorFields::decode(&frame)?)),
                b'N' | b'A' | b'S' => self.client.out().extend_from_slice(frame.as_bytes()),
                _ => (),
            }
        }
        refused.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Sends Sync to every node that has received messages since the last, and waits for each.
    async fn sync_nodes(&mut self) -> Result<(), Failure> {
        let nodes = std::mem::take(&mut self.pipeline.unsynced);
        self.pipeline.node = None;
        let mut outcome = Ok(());
        for node in nodes.into_keys() {
            if let Some(link) = self.links.get_mut(&node) {
                put_sync(link.connection().outgoing());
                let flushed = link.connection().flush().await;
                let ready = match flushed {
                    Ok(()) => self.read_ready(node).await,
                    Err(error) => Err(error.into()),
                };
                outcome = outcome.and(ready);
            }
        }
        outcome
    }

    // The pipeline

    /// Makes `node` the one whose answers come next.
    ///
    /// Turning away from a node on which something ran outside a transaction makes what ran there,
    /// and all that follows until Sync, one implicit transaction: PostgreSQL's meaning of a pipeline.
    async fn turn_to(&mut self, node: NodeId, access: Access) -> Result<(), Failure> {
        if self.pipeline.node != Some(node) {
            self.drain().await?;
            let something_ran =
                self.pipeline.unsynced.iter().any(|(other, ran)| *ran && *other != node);
            if something_ran && self.is_autocommit() {
                self.begin_behind().await?;
            }
        }
        let joins = self.transaction.is_open() && !self.transaction.nodes.contains_key(&node);
        if joins && self.pipeline.unsynced.contains_key(&node) {
            // BEGIN is a simple query: the node's pipeline must rest before it.
            self.drain().await?;
            let link = self.link(node).await?;
            put_sync(link.connection().outgoing());
            link.connection().flush().await?;
            self.read_ready(node).await?;
            self.pipeline.unsynced.remove(&node);
        }
        self.enlist(node, access).await?;
        self.pipeline.node = Some(node);
        self.pipeline.unsynced.entry(node).or_insert(false);
        Ok(())
    }

    /// BEGIN behind statements that already ran since the last Sync: PostgreSQL makes them part of
    /// the block.
    async fn begin_behind(&mut self) -> Result<(), Failure> {
        self.transaction.mode = Mode::Implicit;
        let ran: Vec<_> =
            self.pipeline.unsynced.iter().filter(|(_, ran)| **ran).map(|(node, _)| *node).collect();
        for node in ran {
            let link = self.link(node).await?;
            link.forget_unnamed();
            let out = link.connection().outgoing();
            put_parse(out, "", "BEGIN", &[]);
            put_bind(out, "", "", &Arguments::default());
            put_execute(out, "", 0);
            put_sync(out);
            link.connection().flush().await?;
            self.read_ready(node).await?;
            self.transaction.record(node, Access::Write);
            self.pipeline.unsynced.remove(&node);
        }
        Ok(())
    }

    /// Brings the pipeline to rest: all answers read, no node waits for a Sync.
    pub(super) async fn quiet_pipeline(&mut self) -> Result<(), Failure> {
        self.check_unchecked().await?;
        self.drain().await?;
        if self.pipeline.unsynced.values().any(|ran| *ran) && self.is_autocommit() {
            self.begin_behind().await?;
        }
        self.sync_nodes().await
    }

    /// Writes something of our own, when its turn comes.
    fn respond(&mut self, write: impl FnOnce(&mut BytesMut)) {
        if self.pipeline.expects.is_empty() {
            write(self.client.out());
        } else {
            let mut bytes = BytesMut::new();
            write(&mut bytes);
            self.pipeline.expects.push_back(Expect::Local(bytes));
        }
    }

    /// A statement that no node needs to see counts as checked.
    fn check_unchecked_locally(&mut self) {
        if self.pipeline.unchecked.take().is_some() {
            self.respond(|out| put_bare(out, b'1'));
        }
    }

    /// Reads every answer that is due and passes it on.
    async fn drain(&mut self) -> Result<(), Failure> {
        if self.pipeline.expects.is_empty() {
            return Ok(());
        }
        if let Some(node) = self.pipeline.node
            && let Some(link) = self.links.get_mut(&node)
        {
            put_flush(link.connection().outgoing());
            link.connection().flush().await?;
        }
        self.read_expected().await
    }

    async fn read_expected(&mut self) -> Result<(), Failure> {
        while let Some(expect) = self.pipeline.expects.pop_front() {
            if let Expect::Local(bytes) = expect {
                self.client.out().extend_from_slice(&bytes);
                continue;
            }
            if let Err(failure) = self.read_one_expected(&expect).await {
                self.pipeline.expects.clear();
                return Err(failure);
            }
        }
        Ok(())
    }

    async fn read_one_expected(&mut self, expect: &Expect) -> Result<(), Failure> {
        let node = self.pipeline.node.expect("answers are expected from a node");
        let Some(link) = self.links.get_mut(&node) else {
            return Err(Failure::error("08006", format!("connection to node {node} lost")));
        };
        if let Some(refused) = link.settle().await? {
            return Err(refused.into());
        }
        loop {
            let link = self.links.get_mut(&node).expect("there above");
            let frame = match tutti_wire::frame::take_frame(link.connection().incoming())? {
                Some(frame) => frame,
                None => {
                    self.client.flush_if_full().await?;
                    link.connection().read_more().await?;
                    continue;
                }
            };
            let out = self.client.out();
            match (frame.tag(), expect) {
                (b'E', _) => return Err(ErrorFields::decode(&frame)?.into()),
                (b'N' | b'A' | b'S', _) => out.extend_from_slice(frame.as_bytes()),
                (b'1', Expect::SilentParse) | (b'3', Expect::SilentClose) => return Ok(()),
                (b'1', Expect::Parse) | (b'2', Expect::Bind) => {
                    out.extend_from_slice(frame.as_bytes());
                    return Ok(());
                }
                (b't', Expect::DescribeStatement(name)) => {
                    link.put_description(out, &frame)?;
                    let types = backend::decode_parameter_description(&frame)?;
                    let types = self.shared.oids().types_to_home(node, &types);
                    if let Some(statement) = self.statements.get_mut(name) {
                        statement.types = types;
                    }
                }
                (b'T' | b'n', Expect::DescribeStatement(name)) => {
                    link.put_description(out, &frame)?;
                    let mut columns = (frame.tag() == b'T')
                        .then(|| backend::decode_row_description(&frame))
                        .transpose()?;
                    if let Some(columns) = &mut columns {
                        self.shared.oids().to_home(node, columns);
                    }
                    if let Some(statement) = self.statements.get_mut(name) {
                        statement.columns = columns;
                        statement.described = true;
                    }
                    return Ok(());
                }
                (b'T' | b'n', Expect::DescribePortal) => {
                    link.put_description(out, &frame)?;
                    return Ok(());
                }
                (b'D' | b'H' | b'd' | b'c', Expect::Execute) => {
                    out.extend_from_slice(frame.as_bytes());
                }
                (b'G', Expect::Execute) => {
                    out.extend_from_slice(frame.as_bytes());
                    let link = self.links.get_mut(&node).expect("there above");
                    crate::executor::pump_copy_data(&mut self.client, link, false).await?;
                    let link = self.links.get_mut(&node).expect("there above");
                    put_flush(link.connection().outgoing());
                    link.connection().flush().await?;
                }
                (b'C' | b'I' | b's', Expect::Execute) => {
                    out.extend_from_slice(frame.as_bytes());
                    return Ok(());
                }
                (tag, expect) => {
                    let message =
                        format!("node {node} sent {tag:#x} where {expect:?} was expected");
                    return Err(Failure::error("08P01", message));
                }
            }
        }
    }

    // Looking things up

    fn statement(&self, name: &str) -> Result<&PreparedStatement, Failure> {
        self.statements.get(name).ok_or_else(|| {
            let message = match name {
                "" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{name}\" does not exist"),
            };
            Failure::error("26000", message)
        })
    }

    fn portal(&self, name: &str) -> Result<&Portal, Failure> {
        self.portals
            .get(name)
            .ok_or_else(|| Failure::error("34000", format!("portal \"{name}\" does not exist")))
    }

    /// The statement's plan, made anew if the catalog or the meaning of names has changed.
    fn plan_of(&mut self, name: &str) -> Result<Arc<Planned>, Failure> {
        self.refresh_catalog();
        let (version, scope_changes) = (self.catalog.version, self.scope_changes);
        let statement = self.statement(name)?;
        if let Some(cached) = &statement.plan
            && (cached.version, cached.scope_changes) == (version, scope_changes)
            && !self.transaction.catalog_changed
        {
            return Ok(cached.planned.clone());
        }
        let Some(parsed) = statement.statement.clone() else {
            let why = "the statement is empty".to_owned();
            return Ok(Arc::new(Planned { plan: Plan::Empty, why }));
        };
        let planned = Arc::new(self.plan(&parsed)?);
        if let Some(statement) = self.statements.get_mut(name) {
            statement.plan = Some(CachedPlan { version, scope_changes, planned: planned.clone() });
        }
        Ok(planned)
    }

    fn refuse_if_failed(&self, planned: &Planned) -> Result<(), Failure> {
        if self.transaction.failed && !super::simple::ends_failed_transaction(planned) {
            let message =
                "current transaction is aborted, commands ignored until end of transaction block";
            return Err(Failure::error("25P02", message));
        }
        Ok(())
    }
}

fn arguments_of(call: Call) -> Arguments {
    match call {
        Call::Extended { arguments, .. } => arguments,
        Call::Simple => Arguments::default(),
    }
}

fn with_formats(
    mut columns: Vec<ColumnDescription>,
    arguments: &Arguments,
) -> Vec<ColumnDescription> {
    for (index, column) in columns.iter_mut().enumerate() {
        column.format = arguments.result_format(index);
    }
    columns
}

/// Captured answers end with a CommandComplete when the executor has told the client already.
fn split_off_tag(mut frames: bytes::Bytes) -> Result<(bytes::Bytes, String), Failure> {
    let mut at = 0;
    while let Some(len) = frame_len(&frames[at..])? {
        if frames[at] == b'C' {
            let mut last = BytesMut::from(&frames[at..at + len]);
            let frame = tutti_wire::frame::take_frame(&mut last)?.expect("a whole frame");
            let tag = backend::decode_command_complete(&frame)?;
            frames.truncate(at);
            return Ok((frames, tag));
        }
        at += len;
    }
    Ok((frames, String::new()))
}
