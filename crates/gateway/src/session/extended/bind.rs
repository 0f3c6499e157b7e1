//! Bind: a statement and values become a portal.
//!
//! Owns: choosing the portal's node by its values, and refusing invalid values where PostgreSQL
//! does.
//! Never: runs anything.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use tutti_link::Link;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, DataPlan, Plan, Planned};
use tutti_sql::planner::refuse_types;
use tutti_sql::statement::Statement;
use tutti_wire::backend::put_bare;
use tutti_wire::frame::{Frame, HEADER_LEN};
use tutti_wire::frontend::{self, Arguments, Bind, Message, Target, put_close, put_describe};

use super::describe::parameters_known_here;
use super::due::{Expect, Undo};
use super::values;
use crate::client::failure::Failure;
use crate::plans::request::Call;
use crate::session::Session;
use crate::transaction::named::{BindAgain, Bound, PendingPortal, Portal, PreparedStatement};

impl Session {
    pub(super) async fn bind(&mut self, frame: &Frame, bind: Bind) -> Result<(), Failure> {
        let Bind { portal, statement: name, arguments } = bind;
        let statement = self.statement(&name)?;
        check_counts(statement, &name, &arguments)?;
        let Some(parsed) = statement.statement.clone() else {
            self.refuse_second_portal(&portal)?;
            self.tx.portals.insert(portal, Portal::Empty);
            self.respond(Undo::Nothing, |out| put_bare(out, b'2'));
            return Ok(());
        };
        let mut planned = self.plan_of(&name)?;
        let chosen = planned.clone();
        match &planned.plan {
            Plan::Data(DataPlan::One { access, .. }) => {
                self.tx.join_concerns(chosen.concerns.as_ref(), *access);
            }
            // The executor begins it when it is executed.
            _ => self.tx.activity.plan.narrow(),
        }
        self.tx.refuse_if_failed(&planned)?;
        self.tx.refuse_late_reads(&planned)?;
        self.refuse_second_portal(&portal)?;
        self.describe_anew(&name).await?;
        if self.tx.pins_need_types(&planned, &name) {
            self.describe_silently(&name).await?;
        }
        let mut call = Call::Extended { types: self.statement(&name)?.types.clone(), arguments };
        while let Plan::Data(DataPlan::One { node, access, otherwise }) = &planned.plan
            && planned.session_names.is_empty()
            && (planned.unseen.is_none() || self.tx.catalog.is_solo())
            && !planned.keeps_entries
        {
            if let Some(node) = self.executor().choose(node, &call) {
                let access = *access;
                self.tx.note_residue(&planned, &parsed.text);
                if self.is_snapshot_of_a_flight(&parsed) {
                    self.executor().need_transaction();
                }
                let there = self.ensure_parsed(node, &name).await?;
                let names = Names { portal: &portal, statement: &name, there: &there };
                self.forward_bind(node, access, frame, names, Expect::Bind).await?;
                self.note_numbered(node, &name, &portal, &call)?;
                // The portal must not end with one of our Syncs.
                self.tx.flight.insert(node, true);
                let copies = parsed.is_copy();
                let holds_tables =
                    parsed.is_of_rows() && access == Access::Read && chosen.relations().is_some();
                let is_lost_easily = !holds_tables && portal.is_empty();
                let again = match is_lost_easily && !self.client.comes_to_execution() {
                    true => {
                        let id = self.statement(&name)?.id;
                        Some(BindAgain { message: frame.copied(), id })
                    }
                    false => None,
                };
                let bound = Bound {
                    planned: chosen,
                    then: self.tx.bound_now(),
                    plan_number: self.tx.activity.plan.number(),
                    unheld: (!holds_tables).then(|| self.tx.named_by(&parsed)),
                    statement: parsed,
                    again,
                };
                let bound = Some(Arc::new(bound));
                let bound = Portal::Node { node, access, copies, bound, runs: false };
                self.tx.portals.insert(portal, bound);
                return Ok(());
            }
            let Some(otherwise) = otherwise.clone() else { break };
            let otherwise = *otherwise;
            planned = Arc::new(Planned { concerns: chosen.concerns.clone(), ..otherwise });
        }
        self.check_unchecked().await?;
        let mut checked_by_node = false;
        if let Call::Extended { types, .. } = &mut call
            && let Some(known) = parameters_known_here(&planned.plan, types)
        {
            *types = known;
        } else if let Call::Extended { types, arguments } = &mut call
            && 0 < parsed.parameter_count
        {
            self.describe_silently(&name).await?;
            types.clone_from(&self.statement(&name)?.types);
            // Where code of a type judges them, that is asked what it has touched, when it is executed.
            let run_no_code = |types| refuse_types(types, &self.tx.catalog, &self.tx.scope).is_ok();
            let may_be_judged = !values::are_surely_valid(types, arguments) && run_no_code(types);
            if may_be_judged && !self.is_described_separately(&planned) {
                self.bind_for_refusal(frame, &name, &portal).await?;
                checked_by_node = true;
            }
        }
        let id = self.statement(&name)?.id;
        let catalog = self.tx.catalog.clone();
        let (scope_changes, named) = (self.tx.scope_state.changes, self.tx.named_by(&parsed));
        let pending = PendingPortal {
            statement: name,
            id,
            planned,
            catalog,
            scope_changes,
            named,
            parsed,
            call,
            writes: self.tx.writes,
        };
        self.tx.portals.insert(portal, Portal::Plan(Arc::new(pending)));
        if !checked_by_node {
            self.respond(Undo::Nothing, |out| put_bare(out, b'2'));
        }
        Ok(())
    }

    /// Whether a statement that one node runs outside of a transaction has its snapshot, at a level above READ
    /// COMMITTED, in common with further statements, which other nodes may run.
    fn is_snapshot_of_a_flight(&self, parsed: &Statement) -> bool {
        self.tx.is_autocommit()
            && self.tx.keeps_its_snapshot()
            && parsed.is_of_rows()
            && !self.client.ends_with_execution()
    }

    fn refuse_second_portal(&self, portal: &str) -> Result<(), Failure> {
        let taken = self.tx.portals.contains_key(portal) || self.tx.cursors.contains_key(portal);
        if taken && !portal.is_empty() {
            return Err(Failure::error("42P03", format!("cursor \"{portal}\" already exists")));
        }
        Ok(())
    }

    async fn forward_bind(
        &mut self,
        node: NodeId,
        access: Access,
        frame: &Frame,
        names: Names<'_>,
        expect: Expect,
    ) -> Result<(), Failure> {
        // A SELECT's snapshot is taken when it is bound.
        self.tx.wait_for_visible(node).await?;
        self.switch_to(node, access).await?;
        let link = self.tx.links.at(&node);
        link.unnamed_portal |= names.portal.is_empty();
        let types = self.tx.statements.get(names.statement).map_or(&[][..], |it| &it.types);
        names.put_bind(link, frame, types)?;
        self.pipeline.expects.push_back(expect);
        Ok(())
    }

    /// Before a portal on a node is executed: which of its columns say numbers in binary format. If that is not known, the
    /// node is asked in the same flight.
    fn note_numbered(
        &mut self,
        node: NodeId,
        name: &str,
        portal: &str,
        call: &Call,
    ) -> Result<(), Failure> {
        self.pipeline.numbered.remove(portal);
        let Call::Extended { arguments, .. } = call else { return Ok(()) };
        let link = self.tx.links.at(&node);
        if !link.must_describe(arguments) {
            return Ok(());
        }
        let statement = self.statement(name)?;
        if statement.described {
            let columns = statement.columns.iter().flatten().enumerate();
            let columns = columns.map(|(index, it)| (it.type_oid, arguments.result_format(index)));
            let numbered = self.tx.links.get(&node).and_then(|link| link.numbered(columns));
            if numbered.is_some() {
                self.pipeline.numbered.insert(portal.to_owned(), numbered);
            }
            return Ok(());
        }
        let link = self.tx.links.at(&node);
        put_describe(link.connection().outgoing(), Target::Portal, portal);
        self.pipeline.expects.push_back(Expect::SilentDescribePortal(portal.to_owned()));
        self.pipeline.numbered.insert(portal.to_owned(), None);
        Ok(())
    }

    /// Before a portal of the client's goes on: its node still has it. An unnamed one does not survive what the
    /// gateway itself asks there, and is bound once more, unless it has run or its snapshot is older.
    ///
    /// Errors: 34000 for those; PostgreSQL's would have survived, so this is an error and not ignored.
    pub(super) async fn keep_portal(
        &mut self,
        node: NodeId,
        name: &str,
        bound: Option<&Bound>,
        runs: bool,
    ) -> Result<(), Failure> {
        let is_there = self.tx.links.get(&node).is_some_and(|link| link.unnamed_portal);
        if !name.is_empty() || is_there {
            return Ok(());
        }
        let lost = || Failure::error("34000", "portal \"\" does not exist");
        let again = bound.and_then(|bound| bound.again.as_ref()).filter(|_| !runs);
        let Some(BindAgain { message, id }) = again else { return Err(lost()) };
        let Message::Bind(bind) = frontend::decode(message)? else {
            unreachable!("it was taken from a Bind");
        };
        if self.tx.statements.get(&bind.statement).is_none_or(|statement| statement.id != *id) {
            return Err(lost());
        }
        let there = self.ensure_parsed(node, &bind.statement).await?;
        let names = Names { portal: name, statement: &bind.statement, there: &there };
        self.forward_bind(node, Access::Read, message, names, Expect::SilentBind).await?;
        self.tx.flight.insert(node, true);
        Ok(())
    }

    /// Lets node 1 judge values that the gateway cannot: its answer is forwarded to the client. The
    /// portal that this creates there is not used.
    async fn bind_for_refusal(
        &mut self,
        frame: &Frame,
        name: &str,
        portal: &str,
    ) -> Result<(), Failure> {
        let there = self.ensure_parsed(NodeId::HOME, name).await?;
        let names = Names { portal, statement: name, there: &there };
        self.forward_bind(NodeId::HOME, Access::Read, frame, names, Expect::Bind).await?;
        let link = self.tx.links.at(&NodeId::HOME);
        link.unnamed_portal &= !portal.is_empty();
        put_close(link.connection().outgoing(), Target::Portal, portal);
        self.pipeline.expects.push_back(Expect::SilentClose);
        Ok(())
    }
}

/// The names in a Bind message, and the one by which the node knows the statement.
#[derive(Clone, Copy)]
struct Names<'a> {
    portal: &'a str,
    statement: &'a str,
    there: &'a str,
}

impl Names<'_> {
    /// Appends the client's message with the node's name for the statement in it, and what values say of types as the
    /// node numbers them.
    fn put_bind(self, link: &mut Link, frame: &Frame, types: &[u32]) -> Result<(), Failure> {
        if link.may_number_otherwise(types)
            && let Message::Bind(bind) = frontend::decode(frame)?
            && let Cow::Owned(arguments) = link.arguments_here(types, &bind.arguments)
        {
            let out = link.connection().outgoing();
            frontend::put_bind(out, self.portal, self.there, &arguments);
        } else {
            self.put_as_it_is(link.connection().outgoing(), frame);
        }
        Ok(())
    }

    fn put_as_it_is(self, out: &mut BytesMut, frame: &Frame) {
        if self.statement == self.there {
            out.extend_from_slice(frame.as_bytes());
            return;
        }
        // Both names end with a zero byte.
        let rest = HEADER_LEN + self.portal.len() + 1 + self.statement.len() + 1;
        let rest = &frame.as_bytes()[rest..];
        let len = HEADER_LEN - 1 + self.portal.len() + 1 + self.there.len() + 1 + rest.len();
        out.reserve(1 + len);
        out.put_u8(b'B');
        out.put_u32(u32::try_from(len).expect("shorter than what came in, but for a short name"));
        out.put_slice(self.portal.as_bytes());
        out.put_u8(0);
        out.put_slice(self.there.as_bytes());
        out.put_u8(0);
        out.put_slice(rest);
    }
}

/// The checks of counts that PostgreSQL makes before it looks at values.
fn check_counts(
    statement: &PreparedStatement,
    name: &str,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let (formats, given) = (arguments.formats.len(), arguments.values.len());
    if 1 < formats && formats != given {
        let message =
            format!("bind message has {formats} parameter formats but {given} parameters");
        return Err(Failure::error("08P01", message));
    }
    let used = statement.statement.as_ref().map_or(0, |parsed| parsed.parameter_count);
    let required = statement.types.len().max(usize::from(used));
    if given != required {
        let message = format!(
            "bind message supplies {given} parameters, but prepared statement \"{name}\" requires {required}"
        );
        return Err(Failure::error("08P01", message));
    }
    Ok(())
}
