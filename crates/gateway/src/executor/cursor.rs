//! SQL cursors: each lives on one node.
//!
//! Owns: which node; and whether it is on a connection of the session's, or, over many rows, on one of its own.
//! Never: moves one; keeps a row of one.
//! Start reading at [`Executor::declare`].

use std::collections::BTreeSet;

use tutti_link::Link;
use tutti_sql::catalog::{NodeId, quote_literal};
use tutti_sql::plan::{Access, DataPlan, Gather, NodeChoice, Plan, Planned, RunOn};
use tutti_sql::statement::first_word;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frontend::{Target, put_describe, put_execute, put_parse, put_sync};

use super::describe::{Columns, read_description};
use super::gather::Filled;
use super::receiver::{Receiver, Reception};
use super::relay::{Filter, Relayed, relay};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done};
use crate::registry::activity::overtaken;
use crate::transaction::Mode;
use crate::transaction::beside::Beside;
use crate::transaction::named::{Cursor, Portal};

/// What a client may set between two FETCHes that decides how values are written, and how long one may take; and what
/// expressions may ask for.
const SETTINGS: &str = "SELECT name, pg_catalog.current_setting(name) FROM pg_catalog.pg_settings \
     WHERE name OPERATOR(pg_catalog.=) ANY ('{DateStyle,IntervalStyle,TimeZone,bytea_output,extra_float_digits,\
lc_messages,lc_monetary,lc_numeric,lc_time,lock_timeout,statement_timeout,xmlbinary,xmloption}'::pg_catalog.text[]) \
     OR category OPERATOR(pg_catalog.=) 'Customized Options' \
        AND NOT pg_catalog.starts_with(name, 'tutti.')";

impl Executor<'_> {
    /// `cursor`: its name, and whether it is WITH HOLD.
    pub(super) async fn declare(
        &mut self,
        cursor: (&str, bool),
        planned: &Planned,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let (name, holds) = cursor;
        if self.tx.cursors.contains_key(name) {
            let message = format!("cursor \"{name}\" already exists");
            return Err(Failure::error("42P03", message));
        }
        let (node, access, filled) = match &planned.plan {
            Plan::Data(DataPlan::One { node, access, otherwise }) => {
                // A transaction commits with such a cursor on one node only; where any has the rows, that is where
                // the rest is that it can have on one: temporary tables, notifications.
                let anchored = self.tx.transaction.must_anchor.unwrap_or(NodeId::HOME);
                let chosen = match node {
                    NodeChoice::Any if holds => Some(anchored),
                    node => self.choose(node, call),
                };
                match (chosen, otherwise) {
                    (Some(node), _) => (node, *access, None),
                    (None, Some(otherwise)) => {
                        return Box::pin(self.declare(cursor, otherwise, text, call)).await;
                    }
                    (None, None) => return Err(Failure::error("XX000", "the cursor has no node")),
                }
            }
            Plan::Data(DataPlan::Gather(gather)) => {
                let RunOn::One(choice) = &gather.run_on else {
                    return Err(Failure::error("XX000", "a cursor cannot be on several nodes"));
                };
                let reception = self.reception_of_cursor(gather);
                if reception.is_none() || gather.partial.is_some() {
                    self.tx.note_cursor();
                }
                let filled = match self.fill_parts(gather, call).await? {
                    Some((text, call)) => Filled::Finally(text, call),
                    None => self.fill(gather, reception, call).await?,
                };
                match filled {
                    Filled::Received(receiver, text, call) => {
                        return self.declare_beside(cursor, receiver, &text, &call).await;
                    }
                    Filled::Finally(text, call) => {
                        let node = self.choose(choice, &call).unwrap_or(NodeId::HOME);
                        (node, gather.access, Some((text, call)))
                    }
                    Filled::OnEach(..) | Filled::OfNodes(..) => {
                        return Err(Failure::error(
                            "XX000",
                            "a cursor's rows are on several nodes",
                        ));
                    }
                }
            }
            other => {
                tracing::error!(?other, "a cursor's query has a plan that no node can hold");
                return Err(Failure::error("XX000", "the cursor's query cannot be run"));
            }
        };
        self.tx.note_cursor();
        if holds {
            self.tx.must_anchor(node)?;
        }
        let (text, call) = match &filled {
            Some((filled, carrying)) => (filled.as_str(), carrying),
            None => (text, call),
        };
        let done = self.run_on_one(node, access, text, call).await?;
        self.note_declared(cursor, node, None);
        Ok(done)
    }

    fn note_declared(&mut self, (name, holds): (&str, bool), node: NodeId, beside: Option<Beside>) {
        // Outside of a transaction, its node has already committed it.
        let made = self.tx.transaction.is_open().then(|| self.tx.transaction.step_count());
        let (then, concerns) = (self.tx.bound_now(), self.tx.activity.plan.concerns());
        let cursor = Cursor { node, beside, holds, then, concerns, made };
        self.tx.cursors.insert(name.to_owned(), cursor);
    }

    /// Whether a statement is about a cursor and leaves nothing of one on the session's connections, or says itself when
    /// it does.
    pub(super) fn leaves_no_cursor(&self, plan: &Plan) -> bool {
        match plan {
            Plan::Data(DataPlan::DeclareCursor { .. }) => true,
            Plan::Data(DataPlan::Cursor { name: Some(name), close: true }) => {
                self.tx.cursors.get(name).is_some_and(|it| it.beside.is_some() || !it.holds)
            }
            _ => false,
        }
    }

    /// Before a transaction is begun for a statement.
    ///
    /// Errors: 25P01 where it is none for a cursor. (No node could say so: to it, it is a block.)
    pub(super) fn refuse_cursor_outside(&self, plan: &Plan) -> Result<(), Failure> {
        let ends_with_block =
            matches!(plan, Plan::Data(DataPlan::DeclareCursor { holds: false, .. }));
        match ends_with_block && self.tx.transaction.mode == Mode::None {
            true => self.tx.need_block("DECLARE CURSOR"),
            false => Ok(()),
        }
    }

    /// Where the rows of a cursor may go when they are many.
    fn reception_of_cursor<'p>(&self, gather: &'p Gather) -> Option<Reception<'p>> {
        // Locks on tables that are read in place would last as long as the cursor: its own session would wait for them.
        let reception = self.reception_of(gather).filter(|_| self.tx.may_wait_beside());
        reception.filter(|reception| !reception.in_tables.reads_in_place)
    }

    /// The receiver's connection becomes the cursor's.
    async fn declare_beside(
        &mut self,
        cursor: (&str, bool),
        mut receiver: Receiver<'_>,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let set = self.tx.set_by_now();
        let tag = self.tell_receiver(&mut receiver, text, call).await?;
        let (mut link, permit) = receiver.into_link();
        if cursor.1 {
            link.query("SET idle_session_timeout = 0").await?;
        }
        let node = link.node();
        let mut beside = Beside { link: Some(link), _permit: permit, set, is_held: false };
        if cursor.1 && self.tx.transaction.mode != Mode::Explicit {
            // Its transaction ends with the statement, or may do so without a COMMIT.
            beside.hold().await?;
        }
        self.note_declared(cursor, node, Some(beside));
        Ok(Done::Tag(tag))
    }

    pub(super) async fn use_cursor(
        &mut self,
        name: Option<&str>,
        close: bool,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let Some(name) = name else {
            let of_portals = self.tx.portals.values().filter_map(Portal::node);
            let of_cursors = self.tx.cursors.values().filter(|cursor| cursor.beside.is_none());
            let of_cursors = of_cursors.map(|cursor| cursor.node);
            let nodes: BTreeSet<_> = of_cursors.chain(of_portals).collect();
            for node in nodes {
                self.internal_rows(node, Access::Read, text, call).await?;
            }
            self.tx.cursors.clear();
            // All but the one that runs this.
            self.tx.portals.retain(|_, portal| portal.is_of_close_all());
            return Ok(Done::Tag("CLOSE CURSOR ALL".to_owned()));
        };
        if close && self.tx.portals.get(name).is_some_and(|portal| portal.node().is_none()) {
            // No node knows it.
            self.tx.portals.remove(name);
            return Ok(Done::Tag("CLOSE CURSOR".to_owned()));
        }
        if !close {
            self.tx.refuse_cursor_of_one_node()?;
            if self.tx.portals.get(name).is_some_and(|portal| portal.node().is_none()) {
                return Err(Failure::unsupported(
                    format!("FETCH from portal \"{name}\", which no single node has"),
                    "Its statement is carried out by the gateway: it reads several nodes, or calls code \
                     of which is asked afterwards what it has touched.",
                    "Execute the portal by the protocol, or declare a cursor by SQL.",
                ));
            }
        }
        if self.tx.is_beside(name) {
            return self.use_beside(name, close, text, call).await;
        }
        let node = self.tx.node_of_cursor(name);
        // WHERE CURRENT OF writes; FETCH and MOVE may lock or call functions, except on a cursor held beyond
        // its transaction: its rows are materialized.
        let reads = close || !self.tx.transaction.is_open();
        let access = if reads { Access::Read } else { Access::Write };
        let done = self.run_on_one(node, access, text, call).await?;
        if close {
            self.tx.cursors.remove(name);
            self.tx.portals.remove(name);
        }
        Ok(done)
    }

    /// The same of a cursor on a connection of its own.
    async fn use_beside(
        &mut self,
        name: &str,
        close: bool,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        if close {
            self.tx.cursors.remove(name);
            return Ok(Done::Tag("CLOSE CURSOR".to_owned()));
        }
        let word = first_word(text);
        if !["fetch", "move"].iter().any(|it| word.eq_ignore_ascii_case(it)) {
            return Err(not_updatable(name));
        }
        let complete = self.tells_at_once(call);
        let filter = Filter::rows(call, complete);
        let answer = self.ask_beside(name, filter, |link| call.put(link, text)).await?;
        Ok(if complete { Done::Told } else { Done::Tag(answer.tag) })
    }

    /// Passes on what a cursor on a connection of its own answers an Execute of its portal with: SQL's cursors are portals.
    /// `row_limit`: as in the message.
    pub(crate) async fn execute_beside(
        &mut self,
        name: &str,
        row_limit: i32,
    ) -> Result<(), Failure> {
        let filter = Filter { describe: false, rows: true, complete: true, extended: true };
        let put = |link: &mut Link| {
            let out = link.connection().outgoing();
            put_execute(out, name, row_limit);
            put_sync(out);
        };
        self.ask_beside(name, filter, put).await.map(drop)
    }

    /// Passes on what such a cursor's connection answers to what `put` asks.
    async fn ask_beside(
        &mut self,
        name: &str,
        filter: Filter,
        put: impl FnOnce(&mut Link),
    ) -> Result<Relayed, Failure> {
        self.set_beside(name).await?;
        let activity = self.tx.activity.clone();
        let Some(beside) = self.tx.beside(name) else { return Err(cannot_run(name)) };
        let Some(link) = beside.link.as_mut() else { return Err(cannot_run(name)) };
        // As [`crate::transaction::TransactionContext::enlist`] has it.
        link.note_sending();
        if activity.plan.is_overtaken() {
            link.note_heard();
            return Err(overtaken().into());
        }
        put(link);
        link.connection().flush().await?;
        let answer = relay(self.client, link, filter).await;
        if answer.is_err() && !beside.is_held {
            // Its transaction has failed, in which nothing can be undone.
            beside.link = None;
        }
        answer
    }

    /// What a client has set since applies to what such a cursor gives from now on.
    async fn set_beside(&mut self, name: &str) -> Result<(), Failure> {
        let Some(before) = self.tx.beside(name).map(|beside| beside.set.clone()) else {
            return Ok(());
        };
        if !self.tx.may_have_set(&before) {
            return Ok(());
        }
        let rows = self.internal_rows(NodeId::HOME, Access::Read, SETTINGS, &Call::Simple).await?;
        let now = self.tx.set_by_now();
        let Some(beside) = self.tx.beside(name) else { return Ok(()) };
        if let Some(link) = &mut beside.link {
            let there = link.query(SETTINGS).await?.into_iter().next().unwrap_or_default().rows;
            let differs = rows.iter().filter(|row| !there.contains(row));
            let set = differs.filter_map(|row| {
                let text = |column: usize| {
                    let value = row.get(column)?.as_ref()?;
                    std::str::from_utf8(value).ok().map(quote_literal)
                };
                Some(format!("pg_catalog.set_config({}, {}, false)", text(0)?, text(1)?))
            });
            let set = set.collect::<Vec<_>>();
            if !set.is_empty() {
                link.query(&format!("SELECT {}", set.join(", "))).await?;
            }
        }
        beside.set = now;
        Ok(())
    }

    /// The columns of such a cursor, as a Describe of its portal says them; `fetch`: those of this FETCH from it.
    pub(crate) async fn describe_beside(
        &mut self,
        name: &str,
        fetch: Option<&str>,
    ) -> Result<Columns, Failure> {
        let Some(link) = self.tx.beside(name).and_then(|beside| beside.link.as_mut()) else {
            return Err(cannot_run(name));
        };
        let out = link.connection().outgoing();
        match fetch {
            Some(text) => {
                put_parse(out, "", text, &[]);
                put_describe(out, Target::Statement, "");
            }
            None => put_describe(out, Target::Portal, name),
        }
        put_sync(out);
        link.connection().flush().await?;
        Ok(read_description(self.client, link).await?.1)
    }
}

/// What it gives are rows that were collected, and no table's any more.
pub(super) fn not_updatable(name: &str) -> Failure {
    let message = format!("cursor \"{name}\" is not a simply updatable scan");
    ErrorFields::error("24000", message)
        .with(b'D', "Its rows come from several nodes.")
        .with(b'H', "Name the rows by their key.")
        .into()
}

fn cannot_run(name: &str) -> Failure {
    Failure::error("55000", format!("portal \"{name}\" cannot be run"))
}
