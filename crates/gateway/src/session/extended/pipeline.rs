//! The pipeline: messages forwarded to one node unread, whose answers come back in order.
//!
//! Owns: which answers are due to the client ([`Expect`]), switching from one node to another, and
//! undoing what was noted for messages that a node skipped after an error.
//! Never: decides what a message means.
//! Start reading at [`Session::switch_to`] and [`Session::drain`].

use bytes::BytesMut;
use tutti_link::connection::told;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::Access;
use tutti_wire::backend;
use tutti_wire::frontend::{
    Arguments, Target, put_bind, put_close, put_execute, put_flush, put_parse, put_sync,
};
use tutti_wire::sqlstate;

use super::due::{Expect, Undo};
use crate::client::ClientError;
use crate::client::failure::Failure;
use crate::registry::activity::overtaken;
use crate::session::Session;
use crate::transaction::Mode;
use crate::transaction::scope::REFRESH_CACHES;
use crate::transaction::state::Isolation;

/// Name of the portal in which one of the gateway's statements runs inside a client's flight.
const OWN_PORTAL: &str = "tutti begin";

/// Name of the statement and portal by which a node refreshes its caches inside a client's
/// flight: the client's own unnamed ones stay.
const REFRESHING: &str = "tutti notice";

/// What to do where an answer has not come yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Patience {
    Waits,
    WhatIsThere,
}

/// Writes a statement of our own after what a flight has sent so far.
pub(super) fn put_own_statement(out: &mut BytesMut, sql: &str) {
    put_parse(out, "", sql, &[]);
    // Not the unnamed portal: the client may still use its own.
    put_bind(out, OWN_PORTAL, "", &Arguments::default());
    put_execute(out, OWN_PORTAL, 0);
    put_close(out, Target::Portal, OWN_PORTAL);
}

fn put_refresh(out: &mut BytesMut) {
    // One that a cancel request has ended has left its statement there.
    put_close(out, Target::Statement, REFRESHING);
    put_parse(out, REFRESHING, REFRESH_CACHES, &[]);
    put_bind(out, REFRESHING, REFRESHING, &Arguments::default());
    put_execute(out, REFRESHING, 0);
    put_close(out, Target::Portal, REFRESHING);
    put_close(out, Target::Statement, REFRESHING);
}

impl Session {
    /// Whether no node has been sent anything that is still pending.
    pub(in crate::session) fn has_sent_nothing(&self) -> bool {
        self.pipeline.expects.is_empty() && self.tx.flight.is_empty()
    }

    /// Whether nothing is due and no node waits for a Sync.
    pub(in crate::session) fn is_at_rest(&self) -> bool {
        self.has_sent_nothing() && self.pipeline.unchecked.is_none() && !self.pipeline.skipping
    }

    /// Makes `node` the one whose answers come next.
    ///
    /// Switching away from a node on which something ran outside a transaction makes what ran there,
    /// and all that follows until Sync, one implicit transaction: PostgreSQL's meaning of a pipeline.
    pub(super) async fn switch_to(&mut self, node: NodeId, access: Access) -> Result<(), Failure> {
        if self.pipeline.node != Some(node) {
            self.drain().await?;
            let something_ran = self.tx.flight.iter().any(|(other, ran)| *ran && *other != node);
            if something_ran && self.tx.is_autocommit() {
                self.begin_behind().await?;
            }
        }
        let joins = self.tx.transaction.is_open() && !self.tx.transaction.nodes.contains_key(&node);
        if joins && self.tx.flight.contains_key(&node) {
            // BEGIN is a simple query: the node's pipeline must rest before it.
            self.drain().await?;
            let link = self.tx.link(node).await?;
            put_sync(link.connection().outgoing());
            link.connection().flush().await?;
            self.read_ready(node).await?;
            self.tx.flight.remove(&node);
        }
        self.tx.enlist_for_flight(node, access).await?.begin_flight();
        self.pipeline.node = Some(node);
        let is_first = !self.tx.flight.contains_key(&node);
        self.tx.flight.entry(node).or_insert(false);
        if is_first && !self.tx.transaction.is_open() {
            self.tx.note_refreshed(node);
        } else if self.tx.must_refresh(node) {
            self.tx.note_refreshed(node);
            put_refresh(self.tx.links.at(&node).connection().outgoing());
            self.pipeline.expects.extend([
                Expect::SilentClose,
                Expect::SilentParse(None),
                Expect::SilentBind,
                Expect::SilentExecute,
                Expect::SilentClose,
                Expect::SilentClose,
            ]);
        }
        Ok(())
    }

    /// BEGIN after statements that already ran since the last Sync: PostgreSQL makes them part of
    /// the block.
    async fn begin_behind(&mut self) -> Result<(), Failure> {
        if self.tx.keeps_its_snapshot() {
            let level = self.tx.settings.characteristics.isolation.map_or("", Isolation::name);
            return Err(Failure::unsupported(
                format!(
                    "a pipeline over several nodes at {} needs a transaction",
                    level.to_uppercase()
                ),
                "Its first statement has taken its snapshot on one node already.",
                "Put BEGIN and COMMIT around it, or Sync behind each statement.",
            ));
        }
        self.tx.open_transaction(Mode::Implicit);
        for node in self.nodes_of_flight() {
            let link = self.tx.link(node).await?;
            link.unnamed = None;
            // If the connection is lost now, nothing has been committed.
            link.connection().note_own_commit(false);
            let out = link.connection().outgoing();
            put_own_statement(out, "BEGIN");
            put_sync(out);
            link.connection().flush().await?;
            self.read_ready(node).await?;
            self.tx.transaction.record(node, Access::Write);
            self.tx.flight.remove(&node);
        }
        Ok(())
    }

    /// Brings the pipeline to rest: all answers read, no node waits for a Sync.
    pub(in crate::session) async fn quiet_pipeline(&mut self) -> Result<(), Failure> {
        self.check_unchecked().await?;
        self.drain().await?;
        if self.tx.flight.values().any(|ran| *ran) && self.tx.is_autocommit() {
            self.begin_behind().await?;
        }
        self.sync_nodes().await
    }

    /// Writes an answer of the gateway's own, in its place in the order.
    pub(super) fn respond(&mut self, undo: Undo, write: impl FnOnce(&mut BytesMut)) {
        if self.pipeline.expects.is_empty() {
            write(self.client.out());
        } else {
            let mut bytes = BytesMut::new();
            write(&mut bytes);
            self.pipeline.expects.push_back(Expect::Own(bytes, undo));
        }
    }

    /// Reads every answer that is due and passes it on.
    pub(super) async fn drain(&mut self) -> Result<(), Failure> {
        if self.pipeline.expects.is_empty() {
            return Ok(());
        }
        if let Some(node) = self.pipeline.node {
            self.may_flush(node)?;
            if let Some(link) = self.tx.links.get_mut(&node) {
                put_flush(link.connection().outgoing());
                link.connection().flush().await?;
            }
        }
        self.read_expected().await
    }

    /// Before what a flight has written for a node is sent: it may have been planned and written long ago, by
    /// a client that comes with its Sync later.
    ///
    /// Errors: a change has stopped the plan since.
    pub(super) fn may_flush(&mut self, node: NodeId) -> Result<(), Failure> {
        let Some(link) = self.tx.links.get_mut(&node) else { return Ok(()) };
        if link.connection().outgoing().is_empty() {
            return Ok(());
        }
        // A change that stops the plan sees from now on that something may come; or that is seen here.
        link.note_sending();
        match self.tx.activity.plan.is_overtaken() {
            true => Err(overtaken().into()),
            false => Ok(()),
        }
    }

    /// Reads what is due. After an error the node skips the rest, and so do we.
    pub(super) async fn read_expected(&mut self) -> Result<(), Failure> {
        self.read_answers(Patience::Waits).await?;
        self.tx.activity.plan.note_all_answered();
        if let Some(link) = self.pipeline.node.and_then(|node| self.tx.links.get_mut(&node)) {
            link.note_heard();
        }
        Ok(())
    }

    /// Passes on what the node has said so far, while the client keeps sending: it may be an error,
    /// after which the rest would be sent in vain.
    pub(super) async fn pass_early_answers(&mut self) -> Result<(), Failure> {
        self.read_answers(Patience::WhatIsThere).await?;
        Ok(self.client.flush_early().await?)
    }

    /// Waits for the client's next message; passes on what the node says meanwhile.
    pub(in crate::session) async fn wait_for_client_or_answer(
        &mut self,
    ) -> Result<bool, ClientError> {
        loop {
            let expected = self.pipeline.node.filter(|_| !self.pipeline.expects.is_empty());
            let Some(link) = expected.and_then(|node| self.tx.links.get_mut(&node)) else {
                return self.client.wait_for_frame().await;
            };
            tokio::select! {
                biased;
                is_there = self.client.wait_for_frame() => return is_there,
                // If it is broken, reading from it will say so.
                _ = link.connection().readable() => (),
            }
            let passed = self.pass_early_answers().await;
            self.skip_on_failure(passed).await?;
        }
    }

    async fn read_answers(&mut self, patience: Patience) -> Result<(), Failure> {
        let written = self.client.written();
        let read = self.read_due(patience).await;
        self.pipeline.passed_on += self.client.written() - written;
        read
    }

    async fn read_due(&mut self, patience: Patience) -> Result<(), Failure> {
        while let Some(expect) = self.pipeline.expects.pop_front() {
            if let Expect::Own(bytes, _) = &expect {
                self.client.out().extend_from_slice(bytes);
                continue;
            }
            match self.read_one_expected(&expect, patience).await {
                Ok(true) => (),
                Ok(false) => {
                    self.pipeline.expects.push_front(expect);
                    break;
                }
                Err(failure) => {
                    let refused = match &expect {
                        Expect::Parse(name, _) => Some(name.clone()),
                        _ => None,
                    };
                    self.pipeline.expects.push_front(expect);
                    self.skip_rest();
                    if let Some(name) = refused {
                        // Not skipped: what it would have replaced is gone.
                        self.tx.statements.remove(&name);
                    }
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    /// From here to Sync nothing is answered; what was noted for unanswered messages is undone.
    pub(super) fn skip_rest(&mut self) {
        self.pipeline.skipping = true;
        if let Some(name) = self.pipeline.unchecked.take() {
            self.unparse(&name);
        }
        while let Some(expect) = self.pipeline.expects.pop_back() {
            match expect {
                Expect::Parse(name, number) => {
                    self.unparse(&name);
                    self.distrust(number);
                }
                Expect::SilentParse(number) => self.distrust(number),
                Expect::Own(_, Undo::Forget(name)) => self.unparse(&name),
                Expect::Own(_, Undo::Restore(name, statement)) => {
                    self.tx.statements.insert(name, *statement);
                }
                Expect::Own(_, Undo::Nothing)
                | Expect::SilentClose
                | Expect::Bind
                | Expect::SilentBind
                | Expect::DescribeStatement { .. }
                | Expect::DescribePortal
                | Expect::SilentDescribePortal(_)
                | Expect::Execute(_)
                | Expect::SilentExecute => (),
            }
        }
    }

    /// The message that made this statement was skipped.
    fn unparse(&mut self, name: &str) {
        let parsed = self.tx.statements.remove(name);
        if let Some(replaced) = parsed.and_then(|parsed| parsed.replaces) {
            self.tx.statements.insert(name.to_owned(), *replaced);
        }
    }

    /// It is not known whether the node has seen the Parse of this statement.
    fn distrust(&mut self, number: Option<u64>) {
        if let Some(node) = self.pipeline.node
            && let Some(link) = self.tx.links.get_mut(&node)
        {
            match number {
                Some(number) => link.known.doubt(number),
                None => link.unnamed = None,
            }
        }
    }

    /// True if the answer is read to its end; else it continues with what comes next.
    async fn read_one_expected(
        &mut self,
        expect: &Expect,
        patience: Patience,
    ) -> Result<bool, Failure> {
        let node = self.pipeline.node.expect("answers are expected from a node");
        let version = self.described_basis();
        let Some(link) = self.tx.links.get_mut(&node) else {
            return Err(Failure::error(
                sqlstate::CONNECTION_FAILURE,
                format!("connection to node {node} lost"),
            ));
        };
        if patience == Patience::WhatIsThere && link.has_unread() {
            return Ok(false);
        }
        if let Some(refused) = link.catch_up().await? {
            return Err(refused.into());
        }
        loop {
            let link = self.tx.links.at(&node);
            let frame = match link.connection().take_frame()? {
                Some(frame) => frame,
                None if patience == Patience::WhatIsThere => {
                    if link.connection().try_read()? {
                        continue;
                    }
                    return Ok(false);
                }
                None => {
                    self.client.flush_if_full().await?;
                    link.connection().read_more().await?;
                    continue;
                }
            };
            let out = self.client.out();
            match (frame.tag(), expect) {
                (b'E', _) => return Err(told(&frame)?.into()),
                (b'N', _) => out.extend_from_slice(frame.as_bytes()),
                (b'A', _) => link.put_notification(out, &frame),
                (b'S', _) => self.client.report_setting(link, &frame)?,
                (b'1', Expect::SilentParse(_))
                | (b'2', Expect::SilentBind)
                | (b'3', Expect::SilentClose)
                | (b'C', Expect::SilentExecute) => return Ok(true),
                (b'D', Expect::SilentExecute) => (),
                (b'1', Expect::Parse(..)) | (b'2', Expect::Bind) => {
                    out.extend_from_slice(frame.as_bytes());
                    return Ok(true);
                }
                (b't', Expect::DescribeStatement { name, id }) => {
                    link.put_description(out, &frame)?;
                    let types = backend::decode_parameter_description(&frame)?;
                    let types = self.tx.oids().types_to_home(node, &types);
                    if let Some(statement) =
                        self.tx.statements.get_mut(name).filter(|s| s.id == *id)
                    {
                        statement.types = types;
                    }
                }
                (b'T' | b'n', Expect::DescribeStatement { name, id }) => {
                    link.put_description(out, &frame)?;
                    let mut columns = (frame.tag() == b'T')
                        .then(|| backend::decode_row_description(&frame))
                        .transpose()?;
                    if let Some(columns) = &mut columns {
                        self.tx.oids().to_home(node, columns);
                    }
                    if let Some(statement) =
                        self.tx.statements.get_mut(name).filter(|s| s.id == *id)
                    {
                        statement.columns = columns;
                        statement.described = true;
                        statement.described_version = version;
                    }
                    return Ok(true);
                }
                (b'T' | b'n', Expect::DescribePortal) => {
                    link.put_description(out, &frame)?;
                    return Ok(true);
                }
                (b'T' | b'n', Expect::SilentDescribePortal(portal)) => {
                    let columns = (frame.tag() == b'T')
                        .then(|| backend::decode_row_description(&frame))
                        .transpose()?;
                    let mut columns = columns.unwrap_or_default();
                    self.tx.oids().to_home(node, &mut columns);
                    let columns = columns.iter().map(|it| (it.type_oid, it.format));
                    let numbered = self.tx.links.at(&node).numbered(columns);
                    self.pipeline.numbered.insert(portal.clone(), numbered);
                    return Ok(true);
                }
                (b'D', Expect::Execute(Some(portal))) => {
                    let numbered = self.pipeline.numbered.get(portal).and_then(Option::as_deref);
                    link.put_row_of(out, &frame, numbered)?;
                }
                (b'D' | b'H' | b'd' | b'c', Expect::Execute(_)) => {
                    out.extend_from_slice(frame.as_bytes());
                }
                (b'G', Expect::Execute(_)) => {
                    out.extend_from_slice(frame.as_bytes());
                    let link = self.tx.links.at(&node);
                    crate::executor::pump_copy_data(&mut self.client, link, false).await?;
                    let link = self.tx.links.at(&node);
                    put_flush(link.connection().outgoing());
                    link.connection().flush().await?;
                }
                (b'C' | b'I' | b's', Expect::Execute(_)) => {
                    out.extend_from_slice(frame.as_bytes());
                    return Ok(true);
                }
                (tag, expect) => {
                    let message =
                        format!("node {node} sent {tag:#x} where {expect:?} was expected");
                    return Err(Failure::error("08P01", message));
                }
            }
        }
    }
}
