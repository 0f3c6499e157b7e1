//! The short way for a statement that one node runs by itself, which is what most statements are.
//!
//! Owns: recognising it in what the client has sent, before any message is taken apart, and bringing it
//! to its node and the answer back as they are. Never: does what the long way (`simple`, `extended`)
//! would not. Whatever needs a wait, a look or a change of state before it may run goes there.
//! Start reading at [`Session::take_fast_path`].
//!
//! It exists because of what a statement costs here beside what it costs its node: the less of the
//! gateway's code and memory it touches, the less of both it pushes out of the processor's caches, in
//! which the servers work as well (docs/measurements.md, the hot path).

use std::ops::Range;

use bytes::{BufMut, BytesMut};
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, KeyValue, Leaves, NodeChoice, Plan};
use tutti_sql::planner::OneNode;
use tutti_wire::flight::{Execution, Flight};

use super::prepared::Portal;
use super::{Level, Mode, Session};
use crate::client::ClientError;
use crate::client::failure::Failure;
use crate::executor::placement::{bucket_of_bound, node_of_bucket};
use crate::executor::relay_all;
use crate::plans::{Basis, OfShape};
use tutti_link::pool::{Borrower, Lookup, put_name_of};

/// A flight that can take the short way.
#[derive(Clone, Debug)]
struct Recognised {
    node: OneNode,
    access: Access,
    /// Bytes of its messages.
    len: usize,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// A Query.
    Query,
    /// A prepared statement, which nodes know by this number; where its Bind goes on behind the names,
    /// and where the messages behind the Bind are.
    Execution { number: u64, arguments: Range<usize>, rest: Range<usize> },
}

impl Session {
    /// Answers what the client has sent, if that can be done the short way. False: nothing was done.
    pub(super) async fn take_fast_path(&mut self) -> Result<bool, ClientError> {
        let Some(mut flight) = self.recognise() else { return Ok(false) };
        if !self.is_admitted_at_once() {
            // The long way would wait for the same, and cost more behind it.
            self.activity.end_plan();
            match self.registry.pool.admit(&self.share).await {
                Ok(permit) => self.permit = Some(permit),
                Err(full) => {
                    self.take(&flight);
                    self.end_statement(Err(full.to_fields().into())).await?;
                    return Ok(true);
                }
            }
            // The schema may have changed meanwhile.
            let Some(again) = self.recognise() else { return Ok(false) };
            flight = again;
        }
        let Some(node) = self.send(&flight) else { return Ok(false) };
        let (is_outside, written) = (!self.transaction.is_open(), self.client.written());
        let ran = self.finish(node).await;
        if ran.is_err()
            && is_outside
            && let Some(start) = self.client.said_again(written)
            && self.is_to_run_again(&ran, 0)
        {
            self.client.take_back(start);
            // The client's messages are still there.
            return Ok(false);
        }
        self.take(&flight);
        self.end_statement(ran).await?;
        Ok(true)
    }

    /// What is at the front of the client's stream, if nothing but a node is needed to run it.
    fn recognise(&mut self) -> Option<Recognised> {
        let is_plain = match self.transaction.mode {
            Mode::None => {
                // A connection that is here already is bound to the session: the long way looks after it.
                self.links.is_empty()
                    && self.bindings.is_empty()
                    && self.portals.is_empty()
                    && self.level() != Level::Serializable
            }
            Mode::Explicit => !self.transaction.failed && !self.transaction.doomed,
            Mode::Implicit => false,
        };
        if !is_plain
            || !self.pipeline.is_at_rest()
            || self.registry.cluster.config.switches.check_plans
        {
            return None;
        }
        // As `begin_statement`, if it had nothing to wait for or to do.
        self.activity.begin_to_send();
        if !self.registry.cluster.publisher.is_at_rest() {
            return None;
        }
        self.refresh_catalog();
        if self.has_older_snapshot() || self.must_look_at_scope() {
            return None;
        }
        let basis = self.basis()?;
        let unread = self.client.unread();
        match Flight::look(unread)? {
            Flight::Query { text, len } => {
                let shape = self.planning.scan(text)?;
                let known = self.registry.plans.of_shape(basis, shape.key);
                let Some(OfShape::Plan(plan)) = known else { return None };
                let (node, access) = plan.one_node(text, shape.literals, &self.catalog)?;
                Some(Recognised { node, access, len, kind: Kind::Query })
            }
            Flight::Execution(execution) => {
                let (node, access, number) = self.of_prepared(basis, &execution)?;
                let place = |part: &[u8]| {
                    let start = part.as_ptr() as usize - unread.as_ptr() as usize;
                    start..start + part.len()
                };
                let (arguments, rest) = (place(execution.arguments), place(execution.rest));
                let kind = Kind::Execution { number, arguments, rest };
                Some(Recognised { node, access, len: execution.len, kind })
            }
        }
    }

    /// Where a prepared statement runs with these values, what it does there, and its number.
    fn of_prepared(
        &self,
        basis: Basis,
        execution: &Execution<'_>,
    ) -> Option<(OneNode, Access, u64)> {
        let statement = self.statements.get(execution.statement)?;
        let plan = statement.plan.as_ref().filter(|plan| plan.basis == basis)?;
        let (meaning, number) = statement.number.as_ref()?;
        let parsed = statement.statement.as_ref()?;
        // After DDL its columns must be looked at again.
        let is_described_anew =
            statement.described && statement.described_version != self.schema_version();
        let count = statement.types.len().max(usize::from(parsed.parameter_count));
        if is_described_anew
            || !self.is_meant(meaning)
            || execution.value_count() != count
            || !execution.has_formats_for_values()
            || parsed.is_copy()
            || plan.planned.leaves != Leaves::default()
            || plan.planned.unseen.is_some()
            || !plan.planned.own.is_empty()
        {
            return None;
        }
        let Plan::One { node, access, .. } = &plan.planned.plan else { return None };
        let pins = match node {
            NodeChoice::Home => return Some((OneNode::At(NodeId::HOME), *access, *number)),
            NodeChoice::Any => return Some((OneNode::Any, *access, *number)),
            NodeChoice::Pinned(pins) => pins,
        };
        // Of several parameters the types have to be known before they can be compared.
        if 1 < pins.len() && !statement.described {
            return None;
        }
        let mut found = OneNode::Any;
        for pin in pins {
            let bucket = match pin.value {
                KeyValue::Bucket(bucket) => bucket,
                KeyValue::Parameter(index) => {
                    let index = usize::from(index);
                    let (format, value) = execution.value(index)?;
                    bucket_of_bound(pin, statement.types.get(index).copied(), format, value)?
                }
                KeyValue::Literal(_) => return None,
            };
            let node = OneNode::At(node_of_bucket(&self.catalog, pin.map, bucket)?);
            if found != OneNode::Any && found != node {
                return None;
            }
            found = node;
        }
        Some((found, *access, *number))
    }

    /// Writes the flight to its node, if there is a connection to it that is ready. From here on it is
    /// the client's no more, and the node's answer is awaited.
    fn send(&mut self, flight: &Recognised) -> Option<NodeId> {
        let node = match flight.node {
            OneNode::At(node) => node,
            OneNode::Any => self.any_node(),
        };
        let is_write = flight.access == Access::Write;
        let is_outside = self.transaction.mode == Mode::None;
        let commits_itself = is_outside && self.may_write(flight.access);
        // The same waits as on the long way, if there were any: `wait_for_visible` and `pass_rooms`. In
        // this order: a part that is left to recovery closes its node before it ceases to be in
        // application, so whoever looks the other way round may see neither.
        if !self.registry.cluster.authority.applying.is_idle()
            || !self.registry.cluster.nodes.is_open(node)
            || (is_write && is_outside && !self.registry.cluster.authority.doors.may_pass())
            || !self.link_at_once(node)
        {
            return None;
        }
        let may_be_replaced = self.leaves.anything;
        let link = self.links.get_mut(&node).filter(|link| link.is_ready())?;
        if let Kind::Execution { number, .. } = &flight.kind
            && (may_be_replaced || link.known.look(*number) != Lookup::There)
        {
            return None;
        }
        link.begin();
        link.connection().note_own_commit(commits_itself);
        let unread = self.client.unread();
        let out = link.connection().outgoing();
        match &flight.kind {
            Kind::Query => out.extend_from_slice(&unread[..flight.len]),
            Kind::Execution { number, arguments, rest } => {
                put_bind(out, *number, &unread[arguments.clone()]);
                out.extend_from_slice(&unread[rest.clone()]);
            }
        }
        if !is_outside {
            self.transaction.queried = true;
            self.transaction.record(node, flight.access);
            if matches!(flight.kind, Kind::Execution { .. }) {
                link.unnamed_portal = true;
                let access = flight.access;
                let portal = Portal::Node { node, access, copies: false, parsed: None };
                self.portals.insert(String::new(), portal);
            }
        }
        Some(node)
    }

    /// The flight has been read.
    fn take(&mut self, flight: &Recognised) {
        self.client.skip(flight.len);
        if matches!(flight.kind, Kind::Query) {
            self.registry.plans.note_by_shape(true);
            self.portals.remove("");
            self.statements.remove("");
        }
    }

    /// Whether the session may have connections.
    fn is_admitted_at_once(&mut self) -> bool {
        if self.permit.is_none() && !self.transaction.is_open() {
            self.permit = self.registry.pool.admit_at_once(&self.share);
        }
        self.permit.is_some() || self.transaction.is_open()
    }

    /// Whether there is a link to `node` for the next statement, if need be lent without any wait.
    fn link_at_once(&mut self, node: NodeId) -> bool {
        if self.transaction.is_open() {
            // Its first statement on a node brings the node into the transaction.
            return self.transaction.used.contains(&node) && self.links.contains_key(&node);
        }
        if !self.begins_as_others_do() {
            return false;
        }
        let borrower = Borrower {
            user: &self.user,
            role: self.role,
            credentials: &self.credentials,
            session: self.number,
            state: self.settings.state(),
            has_placeholders: self.settings.has_placeholders,
        };
        let Some(mut link) = self.registry.pool.lend_at_once(node, &borrower) else { return false };
        link.work_for(&self.workers);
        self.links.insert(node, link);
        true
    }

    async fn finish(&mut self, node: NodeId) -> Result<(), Failure> {
        let link = self.links.get_mut(&node).expect("just used");
        link.connection().flush().await?;
        relay_all(&mut self.client, link).await
    }
}

/// Appends a Bind of the statement that nodes know by this number to the unnamed portal.
fn put_bind(out: &mut BytesMut, number: u64, arguments: &[u8]) {
    let start = out.len();
    out.put_slice(&[b'B', 0, 0, 0, 0, 0]);
    put_name_of(out, number);
    out.put_u8(0);
    out.put_slice(arguments);
    let len =
        u32::try_from(out.len() - start - 1).expect("as long as what came in, but for a name");
    out[start + 1..start + 5].copy_from_slice(&len.to_be_bytes());
}
