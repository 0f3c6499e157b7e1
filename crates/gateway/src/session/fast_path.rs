//! The short way for a statement that one node runs by itself, which is what most statements are.
//!
//! Owns: recognising it in what the client has sent, before any message is taken apart, and bringing it
//! to its node and the answer back as they are. Never: does what the long way (`simple`, `extended`)
//! would not. What needs a wait, a look or a change of state before it may run goes there.
//! Start reading at [`Session::take_fast_path`].
//!
//! It exists because of what a statement costs here compared with what it costs its node: the less of the
//! gateway's code and memory it touches, the less of both it pushes out of the processor's caches, in
//! which the servers work as well (docs/measurements.md, the hot path).

use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use tutti_link::pool::link::StatementId;
use tutti_link::pool::{CheckoutRequest, Lookup, put_name_of};
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, DataPlan, NodeChoice, Plan, Planned, Residue, SessionPlan};
use tutti_sql::planner::OneNode;
use tutti_sql::statement::Statement;
use tutti_wire::flight::{Execution, Flight};

use crate::client::ClientError;
use crate::client::failure::Failure;
use crate::executor::relay_all;
use crate::plans::ShapeEntry;
use crate::plans::route::{BoundParameter, one_node};
use crate::registry::plan_in_sight::PlanInSight;
use crate::session::Session;
use crate::session::fast_control::{Control, Told};
use crate::session::run_again::RUNS_MAX;
use crate::transaction::named::{Portal, PreparedStatement};
use crate::transaction::state::Entrance;
use crate::transaction::{Level, Mode};

/// Types with smaller numbers are the same on every server, and made of code that is built in
/// (`FirstGenbkiObjectId` in PostgreSQL's transam.h).
const TYPE_OIDS_OF_OWN: u32 = 10_000;
/// A flight that can take the short way.
#[derive(Clone, Debug)]
enum Recognised {
    /// A node runs it.
    Statement(OnNode),
    /// BEGIN, COMMIT and the like.
    Control(Control),
}

/// A statement that a node runs by itself.
#[derive(Clone, Debug)]
struct OnNode {
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
    /// A prepared statement, which nodes know by this number; where its Bind goes on after the names,
    /// and where the messages after the Bind are.
    Execution { number: u64, arguments: Range<usize>, rest: Range<usize> },
    /// The unnamed statement, parsed and executed.
    Unnamed { statement: Arc<Statement>, types: Vec<u32> },
}

/// How far the short way has come with what the client has sent.
enum Taken {
    /// It is answered.
    Answered,
    /// Nothing was done.
    Nothing,
    /// A change has ended it before the client was told anything: it may be run again when that is over.
    Back(Box<OnNode>),
}

/// What was known of what a client executes, before a change.
enum Outdated {
    /// A prepared statement of this name.
    Prepared(String),
    /// A text, whose statement is known still.
    Text(Arc<Statement>),
}

/// What a client has bound.
struct Values<'a> {
    execution: &'a Execution<'a>,
    /// 0: none was given.
    types: &'a [u32],
    /// A node has reported them.
    are_described: bool,
}

impl Session {
    /// Answers what the client has sent, if that can be done the short way. False: nothing was done.
    pub(super) async fn take_fast_path(&mut self) -> Result<bool, ClientError> {
        for _ in 0..RUNS_MAX {
            match self.take_fast_path_once().await? {
                Taken::Answered => return Ok(true),
                Taken::Nothing => {
                    if !self.renew_plan().await? {
                        return Ok(false);
                    }
                }
                // The client's messages are still there.
                Taken::Back(flight) => {
                    if let Err(failure) = self.begin_statement("").await {
                        self.take(&flight);
                        self.end_statement(Err(failure)).await?;
                        return Ok(true);
                    }
                    self.tx.activity.plan.end();
                    self.return_links().await?;
                }
            }
        }
        Ok(false)
    }

    /// Plans anew what the client executes by itself, if it was known before a change of the schema: the long way
    /// would do that, too, but what it has sent, and a further change has ended, cannot be run again. False: there
    /// is nothing to renew, or the long way will tell what is wrong.
    async fn renew_plan(&mut self) -> Result<bool, ClientError> {
        let is_plain = self.tx.transaction.mode == Mode::None
            && self.is_at_rest()
            && self.tx.links.is_empty()
            && self.tx.bindings.is_empty()
            && self.tx.portals.is_empty();
        let outdated = if is_plain { self.outdated() } else { None };
        let Some(outdated) = outdated else { return Ok(false) };
        let renewed = async {
            self.begin_statement("").await?;
            match outdated {
                Outdated::Prepared(name) => {
                    self.plan_of(&name)?;
                    self.describe_anew(&name).await?;
                    // Nor can what parses it in the same flight be run again.
                    let node = self.describing_node(&name)?;
                    self.parse_by_itself(node, &name).await
                }
                Outdated::Text(statement) => self.tx.plan(&statement).map(drop),
            }
        };
        let renewed = renewed.await;
        let is_stopped = renewed.is_err() && self.is_to_run_again(&renewed, 0);
        self.tx.activity.plan.end();
        self.return_links().await?;
        Ok(renewed.is_ok() || is_stopped)
    }

    /// What is at the front of the client's stream, if it was planned or described on another basis.
    fn outdated(&mut self) -> Option<Outdated> {
        let basis = self.tx.basis()?;
        match Flight::peek(self.client.unread())? {
            Flight::Execution(execution) => {
                let statement = self.tx.statements.get(execution.statement)?;
                let is_planned = statement.plan.as_ref().is_some_and(|plan| plan.basis == basis);
                let is_described =
                    !statement.described || statement.described_version == self.described_basis();
                let (meaning, _) = statement.number.as_ref()?;
                let is_outdated = !is_planned || !is_described || !self.is_meant(meaning);
                is_outdated.then(|| Outdated::Prepared(execution.statement.to_owned()))
            }
            Flight::Unnamed { text, .. } => {
                self.tx.registry.plans.outdated(basis, text).map(Outdated::Text)
            }
            Flight::Query { .. } => None,
        }
    }

    async fn take_fast_path_once(&mut self) -> Result<Taken, ClientError> {
        let mut flight = match self.recognise() {
            Some(Recognised::Statement(flight)) => flight,
            Some(Recognised::Control(control)) => {
                return Ok(match Box::pin(self.take_control(control)).await? {
                    true => Taken::Answered,
                    false => Taken::Nothing,
                });
            }
            None => return Ok(Taken::Nothing),
        };
        if !self.is_admitted_at_once() {
            // The long way would wait for the same, and cost more after it.
            self.tx.activity.plan.end();
            match self.tx.registry.pool.admit(&self.tx.share).await {
                Ok(permit) => self.tx.permit = Some(permit),
                Err(full) => {
                    self.take(&flight);
                    self.end_statement(Err(full.to_fields().into())).await?;
                    return Ok(Taken::Answered);
                }
            }
            // The schema may have changed meanwhile.
            let Some(Recognised::Statement(again)) = self.recognise() else {
                return Ok(Taken::Nothing);
            };
            flight = again;
        }
        let Some(node) = self.send(&flight) else { return Ok(Taken::Nothing) };
        let (is_outside, written) = (!self.tx.transaction.is_open(), self.client.written());
        let mut parsed = false;
        let ran = self.finish(node, &mut parsed).await;
        if ran.is_err()
            && is_outside
            && let Some(start) = self.client.said_again(written)
            && self.is_to_run_again(&ran, 0)
        {
            self.client.take_back(start);
            return Ok(Taken::Back(Box::new(flight)));
        }
        self.take(&flight);
        if parsed {
            self.keep_unnamed(flight, node);
        }
        self.end_statement(ran).await?;
        Ok(Taken::Answered)
    }

    /// What is at the front of the client's stream, if only a node is needed to run it.
    fn recognise(&mut self) -> Option<Recognised> {
        let is_plain = match self.tx.transaction.mode {
            Mode::None => {
                // A connection that is here already is bound to the session: the long way handles it.
                self.tx.links.is_empty()
                    && self.tx.bindings.is_empty()
                    && self.tx.portals.is_empty()
                    && self.tx.level() != Level::Serializable
            }
            // What reads rows that may be late is refused at SERIALIZABLE, by who knows its plan.
            Mode::Explicit if self.tx.catalog.has_async => {
                !self.tx.transaction.failed
                    && !self.tx.transaction.doomed
                    && self.tx.level() != Level::Serializable
            }
            Mode::Explicit => !self.tx.transaction.failed && !self.tx.transaction.doomed,
            Mode::Implicit => false,
        };
        if !is_plain || !self.is_at_rest() || self.tx.registry.cluster.config.switches.check_plans {
            return None;
        }
        // As `begin_statement`, if it had nothing to wait for or to do.
        if !self.tx.comes_into_sight(PlanInSight::begin_to_send) {
            return None;
        }
        self.tx.refresh_catalog();
        if self.tx.has_older_snapshot() || self.tx.must_refresh_scope() {
            return None;
        }
        let basis = self.tx.basis()?;
        let unread = self.client.unread();
        match Flight::peek(unread)? {
            Flight::Query { text, len } => {
                let Some(shape) = self.tx.planning.scan(text) else {
                    let (statement, planned) = self.tx.registry.plans.of_one(basis, text)?;
                    let control = Control { statement, planned, len, told: Told::Query };
                    return control
                        .is_plain(&self.tx.transaction)
                        .then_some(Recognised::Control(control));
                };
                let known = self.tx.registry.plans.of_shape(basis, shape.key);
                let Some(ShapeEntry::Plan(plan)) = known else { return None };
                let (node, access) = plan.one_node(text, shape.literals, &self.tx.catalog)?;
                self.tx.note_concerns(plan.concerns(), access);
                Some(Recognised::Statement(OnNode { node, access, len, kind: Kind::Query }))
            }
            Flight::Execution(execution) => {
                let statement = self.tx.statements.get(execution.statement)?;
                let plan = statement.plan.as_ref().filter(|plan| plan.basis == basis)?;
                if matches!(plan.planned.plan, Plan::Session(SessionPlan::Transaction(_))) {
                    let control = control_of_prepared(statement, &plan.planned, &execution)?;
                    let is_plain = control.is_plain(&self.tx.transaction);
                    return is_plain.then_some(Recognised::Control(control));
                }
                let (node, access, number) =
                    self.of_prepared(statement, &plan.planned, &execution)?;
                let concerns = plan.planned.concerns.clone();
                let place = |part: &[u8]| {
                    let start = part.as_ptr() as usize - unread.as_ptr() as usize;
                    start..start + part.len()
                };
                let (arguments, rest) = (place(execution.arguments), place(execution.rest));
                let kind = Kind::Execution { number, arguments, rest };
                let len = execution.len;
                self.tx.note_concerns(concerns.as_ref(), access);
                Some(Recognised::Statement(OnNode { node, access, len, kind }))
            }
            Flight::Unnamed { text, types, execution, len } => {
                let types: Vec<u32> =
                    types.as_chunks().0.iter().map(|it| u32::from_be_bytes(*it)).collect();
                if types.iter().any(|oid| TYPE_OIDS_OF_OWN <= *oid) {
                    return None;
                }
                let (statement, planned) = self.tx.registry.plans.of_one(basis, text)?;
                if !statement.is_of_rows() {
                    let is_bound = types.is_empty() && binds_nothing(&execution);
                    let told = Told::Execution { prepared: None, describes: execution.describes() };
                    let control = Control { statement, planned, len, told };
                    let is_plain = is_bound && control.is_plain(&self.tx.transaction);
                    return is_plain.then_some(Recognised::Control(control));
                }
                let values = Values { execution: &execution, types: &types, are_described: false };
                let (node, access) = self.one_node(&statement, &planned, &values)?;
                self.tx.note_concerns(planned.concerns.as_ref(), access);
                let kind = Kind::Unnamed { statement, types };
                Some(Recognised::Statement(OnNode { node, access, len, kind }))
            }
        }
    }

    /// Where a prepared statement runs with these values, what it does there, and its number.
    fn of_prepared(
        &self,
        statement: &PreparedStatement,
        planned: &Planned,
        execution: &Execution<'_>,
    ) -> Option<(OneNode, Access, u64)> {
        let (meaning, number) = statement.number.as_ref()?;
        let parsed = statement.statement.as_ref()?;
        // After DDL its columns must be looked at again.
        let is_described_anew =
            statement.described && statement.described_version != self.described_basis();
        if is_described_anew || !self.is_meant(meaning) || parsed.is_copy() {
            return None;
        }
        if !execution.is_text() && statement.says_numbers(&self.tx.catalog.code) {
            return None;
        }
        let (types, are_described) = (&*statement.types, statement.described);
        let values = Values { execution, types, are_described };
        let (node, access) = self.one_node(parsed, planned, &values)?;
        Some((node, access, *number))
    }

    /// Where a statement runs with these values, if that is one node and nothing is left behind, and what it
    /// does there.
    fn one_node(
        &self,
        statement: &Statement,
        planned: &Planned,
        values: &Values<'_>,
    ) -> Option<(OneNode, Access)> {
        let Values { execution, types, are_described } = values;
        let count = types.len().max(usize::from(statement.parameter_count));
        // A portal that goes on later, in a block, must know what it was bound with.
        let is_kept = self.tx.transaction.is_open() && execution.may_suspend();
        if is_kept
            || execution.value_count() != count
            || !execution.has_formats_for_values()
            || planned.residue != Residue::default()
            || planned.unseen.is_some()
            || planned.keeps_entries
            || !planned.session_names.is_empty()
        {
            return None;
        }
        let Plan::Data(DataPlan::One { node, access, .. }) = &planned.plan else { return None };
        // Of several parameters the types have to be known before they can be compared.
        if matches!(node, NodeChoice::Pinned(pins) if 1 < pins.len()) && !are_described {
            return None;
        }
        let parameter = |index| {
            let (format, value) = execution.value(index)?;
            Some(BoundParameter { type_oid: types.get(index).copied(), format, value })
        };
        Some((one_node(&self.tx.catalog, node, parameter)?, *access))
    }

    /// Writes the flight to its node, if there is a connection to it that is ready. From here on it is no
    /// longer the client's, and the node's answer is awaited.
    fn send(&mut self, flight: &OnNode) -> Option<NodeId> {
        let node = match flight.node {
            OneNode::At(node) => node,
            OneNode::Speaker => self.tx.speaker(),
            OneNode::Any => self.tx.any_node(),
        };
        let is_write = flight.access == Access::Write;
        let is_outside = self.tx.transaction.mode == Mode::None;
        let commits_itself = is_outside && self.tx.may_write(flight.access);
        // The same waits as on the long way, if there were any: `wait_for_visible` and `pass_rooms`. In
        // this order: a part that is left to recovery closes its node before it ceases to be in
        // application, so a reader that looks the other way round may see neither.
        if !self.tx.registry.cluster.authority.in_application.is_shown_by(node)
            || !self.tx.registry.cluster.availability.is_open(node)
            || (!is_outside && self.tx.must_refresh(node))
            || (is_write && is_outside && !self.tx.registry.cluster.authority.rooms.may_pass())
            || !self.link_at_once(node)
        {
            return None;
        }
        let may_be_replaced = self.tx.residue.anything;
        let joins = !is_outside && !self.tx.transaction.used.contains(&node);
        if joins {
            self.tx.note_refreshed(node);
        }
        let link = self.tx.links.get_mut(&node).filter(|link| link.is_ready())?;
        if let Kind::Execution { number, .. } = &flight.kind
            && (may_be_replaced || link.known.find(*number) != Lookup::There)
        {
            return None;
        }
        // A change that stops the plan sees from now on that something may come; or that is seen here.
        link.note_sending();
        if self.tx.activity.plan.is_overtaken() {
            link.note_heard();
            return None;
        }
        if joins {
            link.put_begin(&self.tx.transaction.begin_sql(Entrance::default()));
            self.tx.transaction.used.insert(node);
            self.tx.transaction.record(node, flight.access);
            self.tx.activity.note_nodes(self.tx.transaction.nodes.len());
        }
        if !is_outside {
            self.tx.transaction.note_alone(self.tx.catalog.is_solo(), flight.access);
        }
        link.begin();
        link.connection().note_own_commit(commits_itself);
        let unread = self.client.unread();
        let out = link.connection().outgoing();
        match &flight.kind {
            Kind::Query | Kind::Unnamed { .. } => out.extend_from_slice(&unread[..flight.len]),
            Kind::Execution { number, arguments, rest } => {
                put_bind(out, *number, &unread[arguments.clone()]);
                out.extend_from_slice(&unread[rest.clone()]);
            }
        }
        self.tx.writes += u64::from(is_write);
        if !is_outside {
            self.tx.transaction.queried = true;
            self.tx.transaction.record(node, flight.access);
            if !matches!(flight.kind, Kind::Query) {
                link.unnamed_portal = true;
                let access = flight.access;
                let portal = Portal::Node { node, access, copies: false, bound: None, runs: true };
                self.tx.portals.insert(String::new(), portal);
            }
        }
        Some(node)
    }

    /// The flight has been read.
    fn take(&mut self, flight: &OnNode) {
        self.client.skip(flight.len);
        match flight.kind {
            Kind::Query => {
                self.tx.registry.plans.note_by_shape(true);
                self.tx.portals.remove("");
                self.tx.statements.remove("");
            }
            Kind::Execution { .. } => (),
            Kind::Unnamed { .. } => {
                self.tx.statements.remove("");
            }
        }
    }

    /// The unnamed statement that the node has parsed stays until another takes its place.
    fn keep_unnamed(&mut self, flight: OnNode, node: NodeId) {
        let Kind::Unnamed { statement, types } = flight.kind else { return };
        let id = self.put_unnamed(statement, types);
        if let Some(link) = self.tx.links.get_mut(&node) {
            link.unnamed = Some(id);
        }
    }

    /// Makes it the client's unnamed statement.
    pub(super) fn put_unnamed(
        &mut self,
        statement: Arc<Statement>,
        types: Vec<u32>,
    ) -> StatementId {
        let id = self.next_statement_id();
        let statement = PreparedStatement::parsed(id, Some(statement), types);
        self.tx.statements.insert(String::new(), statement);
        id
    }

    /// Whether the session may have connections.
    fn is_admitted_at_once(&mut self) -> bool {
        if self.tx.permit.is_none() {
            self.tx.permit = self.tx.registry.pool.admit_at_once(&self.tx.share);
        }
        self.tx.permit.is_some()
    }

    /// Whether there is a link to `node` for the next statement, or one could be checked out without a wait.
    fn link_at_once(&mut self, node: NodeId) -> bool {
        if !self.tx.transaction.is_open() {
            return self.borrow_at_once(node);
        }
        if self.tx.transaction.used.contains(&node) {
            return self.tx.links.contains_key(&node);
        }
        if !self.joins_at_once(node) {
            return false;
        }
        if !self.tx.links.contains_key(&node) {
            if !self.borrow_at_once(node) {
                return false;
            }
            self.tx.checked_out.insert(node);
        }
        true
    }

    /// Whether all that a node needs to take part in the transaction is a BEGIN before its first statement:
    /// as `enlist`, where that has nothing to ask, to wait for or to make up for.
    fn joins_at_once(&self, node: NodeId) -> bool {
        let transaction = &self.tx.transaction;
        !transaction.nodes.contains_key(&node)
            && self.tx.level() == Level::ReadCommitted
            && transaction.step_count() == 0
            && !transaction.counts_idle_time
            && transaction.own_oids.is_none()
            && !self.tx.bindings.contains_key(&node)
            && !self.tx.may_leave_on(node)
    }

    fn borrow_at_once(&mut self, node: NodeId) -> bool {
        if !self.tx.begins_as_others_do() {
            return false;
        }
        let request = CheckoutRequest {
            user: &self.tx.user,
            role: self.tx.role,
            credentials: &self.tx.credentials,
            session: self.tx.number,
            state: self.tx.settings.state(),
            has_placeholders: self.tx.settings.has_placeholders,
        };
        let Some(mut link) = self.tx.registry.pool.try_checkout(node, &request) else {
            return false;
        };
        link.work_for(&self.tx.workers);
        self.tx.links.insert(node, link);
        true
    }

    async fn finish(&mut self, node: NodeId, parsed: &mut bool) -> Result<(), Failure> {
        let link = self.tx.links.get_mut(&node).expect("just used");
        link.connection().flush().await?;
        // A BEGIN has an answer of its own.
        let refused_before = link.catch_up().await?;
        let relayed = relay_all(&mut self.client, link, parsed).await;
        refused_before.map_or(relayed, |error| Err(error.into()))
    }
}

/// A prepared BEGIN, COMMIT or ROLLBACK.
fn control_of_prepared(
    prepared: &PreparedStatement,
    planned: &Arc<Planned>,
    execution: &Execution<'_>,
) -> Option<Control> {
    if !prepared.types.is_empty() || !binds_nothing(execution) {
        return None;
    }
    let told = Told::Execution {
        prepared: Some((execution.statement.to_owned(), prepared.id)),
        describes: execution.describes(),
    };
    let statement = prepared.statement.clone()?;
    Some(Control { statement, planned: planned.clone(), len: execution.len, told })
}

/// Whether it is right for a statement without parameters.
fn binds_nothing(execution: &Execution<'_>) -> bool {
    execution.value_count() == 0 && execution.has_formats_for_values()
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
