//! Obeys plans.
//!
//! Owns: how each kind of plan is executed on links, and how answers become one answer.
//! Never: chooses but among the ways that a plan offers, decides a commit, or reads more of a text than its first
//! word.
//! Start reading at [`Executor::execute`].

mod added_column;
mod apart;
mod array_literal;
mod by_row;
mod collect;
mod computed_first;
mod computed_keys;
mod concurrently;
mod copy;
mod create_table_as;
mod cursor;
mod ddl;
pub(crate) mod describe;
pub(crate) mod distribute;
mod draw;
mod entries;
mod estimate;
mod exchanges;
mod explain;
mod fan_out;
mod filled;
mod gather;
mod insert;
pub(crate) mod lag;
mod lending;
mod moves;
mod own_functions;
mod placing;
mod plan_document;
mod plan_tree;
mod progress;
mod reach;
mod receiver;
pub(crate) mod relay;
mod row_locks;
mod row_security;
mod signal;
mod source_rows;
mod steps;
mod tag_total;
pub(crate) mod unseen;
mod utility;

use std::borrow::Cow;

use tutti_cluster::catalog;
use tutti_link::connection::NodeError;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{
    Access, DataPlan, DdlNodes, NodeChoice, Plan, Planned, RowsWrite, RunOn, SchemaPlan, TableLock,
    Unseen,
};
use tutti_sql::planner::{self, OneNode};
use tutti_sql::statement::first_word;
use tutti_wire::frame::Frame;
use tutti_wire::sqlstate;

use crate::client::failure::Failure;
use crate::plans::request::{Call, Done, IssuedBy};
use crate::plans::route;
use crate::transaction::Mode;
use crate::transaction::checkout::renames;
use crate::transaction::plan_needs::{leaves_calls, takes_snapshot};
use crate::transaction::processes::signals;
use crate::transaction::state::Isolation;
use fan_out::{Answers, SnapshotNeed};
use relay::{Filter, Relayed, relay};
use tag_total::TagTotal;

pub(crate) use explain::local_columns;
pub(crate) use reach::Executor;
pub(crate) use relay::{Refused, pump_copy_data, relay_all};

/// A statement between [`Executor::begin`] and [`Executor::end`].
pub(crate) struct Begun<'t> {
    /// Its text, as nodes must read it.
    pub(crate) sent: Cow<'t, str>,
    /// It runs in a transaction of its own, for its snapshot.
    has_own_snapshot: bool,
    /// What it runs on node 1 is accounted for.
    unseen: Option<Unseen>,
    /// What it changes of what entries are kept of is brought to these.
    keeps_entries: bool,
}

impl Executor<'_> {
    /// Carries out `planned`, whose statement is `text`. Rows are written to the client as they
    /// come; the end of the statement is returned.
    ///
    /// A write to several nodes outside a transaction opens an implicit one, which the caller
    /// commits (or rolls back on error).
    pub(crate) async fn execute(
        &mut self,
        planned: &Planned,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        if let Some(gather) = self.may_read_apart(planned)
            && let Some(done) = Box::pin(self.read_apart(gather, text, call)).await?
        {
            return Ok(done);
        }
        let known = self.tx.residue.schema;
        let has_home = self.tx.links.contains_key(&NodeId::HOME);
        let ran = self.carry_out(planned, text, call).await;
        // Nothing was sent there, so there is nothing that others must learn, which they would wait for.
        if !has_home && ran.as_ref().is_err_and(Failure::is_closed) {
            self.tx.residue.schema = known;
        }
        ran
    }

    async fn carry_out(
        &mut self,
        planned: &Planned,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let begun = self.begin(planned, text, call).await?;
        let ran = self.obey(planned, &begun.sent, call).await;
        self.end(begun, planned, text, ran).await
    }

    /// What comes before any statement is carried out, by the executor or the session.
    pub(crate) async fn begin<'t>(
        &mut self,
        planned: &Planned,
        text: &'t str,
        call: &Call,
    ) -> Result<Begun<'t>, Failure> {
        self.tx.refuse_late_reads(planned)?;
        self.tx.takes_snapshot = takes_snapshot(&planned.plan);
        self.tx.transaction.note_ties(planned.ties_nodes());
        let access = if leaves_calls(&planned.plan) { Access::Write } else { Access::Read };
        let concerns = self.tx.concerns_with_cursor(planned)?;
        self.tx.note_concerns(concerns.as_ref(), access);
        // Before it waits for anything, a snapshot or a node that is away: a change that is committed
        // meanwhile must know that its steps are yet to come.
        self.tx.note_steps(&planned.plan);
        self.tx.note_unasked(planned, text);
        if matches!(planned.plan, Plan::Data(DataPlan::DeclareCursor { .. }))
            && planned.unasked
            && self.tx.transaction.is_open()
            && !self.tx.catalog.is_solo()
        {
            return Err(unseen::held_beyond_block());
        }
        if !self.leaves_no_cursor(&planned.plan) {
            self.tx.note_residue(planned, text);
        }
        if planned.residue.notifies {
            // PREPARE TRANSACTION refuses it, whether by NOTIFY or by a function.
            self.tx.must_anchor(NodeId::HOME)?;
        }
        let sent = self.tx.with_own_names(planned, text).await?;
        let has_own_snapshot = self.tx.begin_statement_snapshot(&planned.plan);
        if has_own_snapshot {
            self.tx.transaction.at_one_moment = planned.relations().cloned();
        }
        self.refuse_several_moments(planned)?;
        self.refuse_unreadable_views(&planned.written_out).await?;
        self.refuse_views_of_others(&planned.as_owner_of).await?;
        if !self.tx.catalog.is_solo() && planner::gathers_to_write(&planned.plan) {
            // Before its parts are read: they are as of one time only within a transaction.
            self.refuse_cursor_outside(&planned.plan)?;
            let is_alone = self.tx.transaction.mode == Mode::None;
            self.need_transaction();
            if is_alone && planned.one_moment {
                self.tx.transaction.characteristics.isolation = Some(Isolation::RepeatableRead);
                self.tx.transaction.at_one_moment = planned.relations().cloned();
            }
        }
        let keeps_entries = planned.keeps_entries;
        if keeps_entries {
            // What it has changed is brought to other nodes before it counts.
            self.need_transaction();
        }
        let unseen = planned.unseen.as_deref().cloned();
        let unseen = unseen.or_else(|| self.left_unseen(&planned.plan));
        let unseen = unseen.filter(|_| !self.tx.catalog.is_solo());
        if let Some(unseen) = &unseen {
            self.tx.refuse_moved_for_code()?;
            self.begin_accounting(unseen, &planned.plan, &sent, call);
        }
        self.tx.transaction.changing_entries += usize::from(keeps_entries);
        Ok(Begun { sent, has_own_snapshot, unseen, keeps_entries })
    }

    /// A plan that brings rows of several snapshots together would show transactions of others in part.
    ///
    /// Errors: XX000, whoever has planned it for one.
    fn refuse_several_moments(&self, planned: &Planned) -> Result<(), Failure> {
        let has_parts =
            planner::gathers(&planned.plan) && !planner::gathers_to_write(&planned.plan);
        match has_parts && !planned.in_moments && self.tx.has_snapshot_per_part() {
            true => {
                let message = "a statement was planned for one snapshot, and would have several";
                Err(Failure::error("XX000", message))
            }
            false => Ok(()),
        }
    }

    /// What comes after it.
    pub(crate) async fn end(
        &mut self,
        begun: Begun<'_>,
        planned: &Planned,
        text: &str,
        ran: Result<Done, Failure>,
    ) -> Result<Done, Failure> {
        let Begun { sent, has_own_snapshot, unseen, keeps_entries } = begun;
        let is_counted = unseen.is_some();
        let done = match unseen {
            Some(unseen) => self.end_accounting(&unseen, planned, ran).await,
            None => ran,
        };
        let mut done = done.map_err(|failure| match &sent {
            Cow::Borrowed(_) => failure,
            Cow::Owned(sent) => failure.map_position(|at| position_in(text, sent, planned, at)),
        });
        self.tx.takes_snapshot = true;
        if keeps_entries {
            let changing = self.tx.transaction.changing_entries.saturating_sub(1);
            self.tx.transaction.changing_entries = changing;
            // A statement within another has been part of it.
            if changing == 0
                && done.is_ok()
                && let Err(failure) = self.keep_entries(planned.checks_references, is_counted).await
            {
                done = Err(failure);
            }
        }
        if !self.tx.transaction.is_open() {
            // It has committed by itself.
            self.tx.transaction.note_ties(false);
        }
        if done.is_ok() && signals(planned) {
            done = self.send_asked_signals().await.and(done);
        }
        if has_own_snapshot && done.is_ok() {
            self.tx.end_statement_snapshot().await?;
        }
        done
    }

    async fn obey(&mut self, planned: &Planned, text: &str, call: &Call) -> Result<Done, Failure> {
        match &planned.plan {
            Plan::Data(plan) => self.obey_data(plan, text, call).await,
            Plan::Schema(plan) => self.obey_schema(plan, text, call).await,
            Plan::Session(_) => {
                Err(Failure::error("XX000", "the executor was given a plan of the session's own"))
            }
        }
    }

    async fn obey_data(
        &mut self,
        plan: &DataPlan,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        match plan {
            DataPlan::One { node, access, otherwise } => {
                match (self.choose(node, call), otherwise) {
                    (Some(node), _) => self.run_on_one(node, *access, text, call).await,
                    (None, Some(otherwise)) => Box::pin(self.execute(otherwise, text, call)).await,
                    (None, None) => Err(Failure::unsupported(
                        "the keys of this statement are on several nodes",
                        "Its parts see one snapshot, which Tutti cannot give to parts on several nodes: by other \
                         parameters, whose keys are on one, it can be run.",
                        "Send it once for each key, or its parts as statements of their own in one transaction.",
                    )),
                }
            }
            DataPlan::Scatter { access } => self.run_on_each(*access, text, call).await,
            DataPlan::Replicas { locks, rows } => {
                self.write_replicas(locks, rows, text, call).await
            }
            DataPlan::Rows(rows) => self.write_by_row(rows, text, call).await,
            DataPlan::Gather(gather) => {
                let word = first_word(text).to_ascii_uppercase();
                // A temporary table may be written, and is on one node; a MERGE may do nothing.
                if !matches!(gather.run_on, RunOn::One(_))
                    && ["UPDATE", "DELETE"].contains(&word.as_str())
                {
                    if self.tx.transaction.is_read_only() && !call.is_extended() {
                        // What is wrong with the statement comes first, such as a view that cannot be written.
                        self.describe_text(text, &[]).await?;
                    }
                    self.refuse_if_read_only(&word)?;
                }
                self.gather(gather, call).await
            }
            DataPlan::Insert(insert) => self.insert(insert, text, call).await,
            DataPlan::Move(of) => {
                let moved = self.move_rows(of, text, call).await;
                moved.map_err(Failure::without_position)
            }
            DataPlan::CopyFrom(copy) => self.copy_from(copy, call).await,
            DataPlan::CopyTo(copy) => self.copy_to(copy, text, call).await,
            DataPlan::DeclareCursor { name, holds, query } => {
                self.declare((name, *holds), query, text, call).await
            }
            DataPlan::Cursor { name, close } => {
                self.use_cursor(name.as_deref(), *close, text, call).await
            }
            DataPlan::Explain(explain) => self.explain(explain, text, call).await,
            DataPlan::Steps(steps) => self.run_steps(steps, text, call).await,
            DataPlan::Refused(refusal) => Err((**refusal).clone().into()),
        }
    }

    async fn obey_schema(
        &mut self,
        plan: &SchemaPlan,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        match plan {
            SchemaPlan::Ddl(ddl) => {
                self.tx.transaction.renames |= renames(text);
                // The query that a home table is made from has parameters.
                let as_it_is = ddl.scope == DdlNodes::HomeAsItIs;
                let call = if as_it_is { create_table_as::internal(call) } else { Call::Simple };
                self.ddl(ddl, text, &call).await
            }
            SchemaPlan::CreateTableAs { ddl, create, insert } => {
                self.create_table_as(ddl, create, insert.as_deref(), call).await
            }
            SchemaPlan::TemporaryDdl { gather, changes_code } => {
                if *changes_code {
                    self.refuse_temporary_code_in_use().await?;
                }
                self.temporary_ddl(gather.as_ref(), text, call).await
            }
            SchemaPlan::EveryNodeAlone { refuses_transaction, others } => {
                let others = others.as_deref().unwrap_or(text);
                self.on_every_node_alone(*refuses_transaction, text, others, call).await
            }
            SchemaPlan::Concurrently(index) => self.concurrently(index, text, call).await,
            SchemaPlan::LockEverywhere { others, before } => {
                let others = others.as_deref().unwrap_or(text);
                self.lock_everywhere(text, others, before.as_ref(), call).await
            }
        }
    }

    /// The node that `choice` selects for these parameters; `None` if the pins do not agree.
    pub(crate) fn choose(&self, choice: &NodeChoice, call: &Call) -> Option<NodeId> {
        let parameter = |index| route::parameter(call, index);
        Some(match route::one_node(&self.tx.catalog, choice, parameter)? {
            OneNode::At(node) => node,
            OneNode::Speaker => self.tx.speaker(),
            OneNode::Any => self.tx.any_node(),
        })
    }

    /// Before a write to several nodes: outside a transaction an implicit one is opened.
    pub(crate) fn need_transaction(&mut self) {
        if self.tx.transaction.mode == Mode::None {
            self.tx.open_transaction(Mode::Implicit);
        }
    }

    /// Forwards `text` to one node and its answer to the client.
    pub(crate) async fn run_on_one(
        &mut self,
        node: NodeId,
        access: Access,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let complete = self.tells_at_once(call);
        let answer = self.forward(node, access, text, call, complete).await?;
        Ok(match answer.tag {
            _ if answer.empty => Done::Empty,
            _ if complete => Done::Told,
            tag => Done::Tag(tag),
        })
    }

    /// Whether the client may be told of a statement's end immediately, unless a commit of the gateway's must succeed
    /// first.
    fn tells_at_once(&self, call: &Call) -> bool {
        (self.tx.transaction.mode != Mode::Implicit || call.is_extended())
            && self.tx.accounting.is_none()
            && self.tx.transaction.changing_entries == 0
            && !self.tx.is_part
    }

    /// Forwards a FunctionCall message to node 1 and its answer to the client.
    pub(crate) async fn forward_function_call(&mut self, frame: &Frame) -> Result<(), Failure> {
        if self.tx.transaction.mode == Mode::None {
            self.tx.pass_rooms().await?;
        }
        self.tx.wait_for_visible(NodeId::HOME).await?;
        self.mark(NodeId::HOME).await?;
        let link = self.tx.enlist(NodeId::HOME, Access::Write).await?;
        link.begin();
        link.connection().outgoing().extend_from_slice(frame.as_bytes());
        link.connection().flush().await?;
        let link = self.tx.links.at(&NodeId::HOME);
        relay(self.client, link, Filter::rows(&Call::Simple, false)).await?;
        Ok(())
    }

    /// Forwards `text` to one node and its answer to the client; CommandComplete only if `complete`.
    async fn forward(
        &mut self,
        node: NodeId,
        access: Access,
        text: &str,
        call: &Call,
        complete: bool,
    ) -> Result<Relayed, Failure> {
        let mut _in_progress = None;
        if self.tx.transaction.mode == Mode::None && access == Access::Write {
            // It commits by itself.
            self.tx.pass_rooms().await?;
            _in_progress = self.tx.begin_serializable();
        }
        self.tx.wait_for_visible(node).await?;
        self.mark(node).await?;
        let stored_here = self.tx.transaction.stored_on(node);
        let link = self.tx.enlist(node, access).await?;
        if let Some(relations) = stored_here.filter(|_| !matches!(call, Call::Simple)) {
            call.put_age_check(link, text, &relations);
        }
        call.put(link, text);
        link.connection().flush().await?;
        let link = self.tx.links.at(&node);
        relay(self.client, link, Filter::rows(call, complete)).await
    }

    /// Forwards `text` to every node, concatenates rows and adds up row counts.
    pub(crate) async fn run_on_each(
        &mut self,
        access: Access,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let nodes = self.tx.catalog.nodes.clone();
        let texts = nodes.iter().map(|node| (*node, text)).collect::<Vec<_>>();
        self.run_texts(&texts, access, SnapshotNeed::Rows, call).await
    }

    /// Runs one text per node, concurrently, and merges their answers into one, in the given order.
    async fn run_texts(
        &mut self,
        texts: &[(NodeId, &str)],
        access: Access,
        need: SnapshotNeed,
        call: &Call,
    ) -> Result<Done, Failure> {
        if access == Access::Write && 1 < texts.len() {
            self.need_transaction();
        }
        self.send_to_many(texts, access, need, IssuedBy::Client, call).await?;
        let nodes: Vec<_> = texts.iter().map(|(node, _)| *node).collect();
        let mut total = TagTotal::default();
        let mut awaited = Answers::of(&nodes);
        while let Some(node) = awaited.next(self).await {
            let filter = match (awaited.are_good(), node == nodes[0]) {
                (false, _) => Filter::discard(call),
                (true, true) => Filter::rows(call, false),
                (true, false) => Filter::more_rows(call),
            };
            let link = self.tx.links.at(&node);
            // All answers are read even after an error: links must be idle when we return.
            match relay(self.client, link, filter).await {
                Ok(answer) => total.add(&answer.tag),
                Err(error) => awaited.note(self, error).await?,
            }
        }
        awaited.end()?;
        Ok(Done::Tag(total.tag()))
    }

    /// Before rows are read that are to be locked, or that a statement is to change others by.
    ///
    /// Errors: 25006, as PostgreSQL has it before it computes anything.
    pub(super) fn refuse_if_read_only(&self, command: &str) -> Result<(), Failure> {
        match self.tx.transaction.is_read_only() {
            true => {
                let message = format!("cannot execute {command} in a read-only transaction");
                Err(Failure::error("25006", message))
            }
            false => Ok(()),
        }
    }

    /// Takes locks on node 1 for the transaction.
    pub(crate) async fn lock_at_home(&mut self, locks: &[TableLock]) -> Result<(), Failure> {
        if locks.is_empty() {
            return Ok(());
        }
        let registry = self.tx.registry.clone();
        let link = self.tx.enlist(NodeId::HOME, Access::Write).await?;
        link.learn_moment().await?;
        let (sql, seals) =
            catalog::lock_tables_sql(link.connection(), locks, &registry.cluster.seals);
        let locked = link.query_with(&sql, seals).await.map_err(|error| match error {
            // Where in our function it happened does not concern the client.
            NodeError::Refused(mut fields) => {
                fields.fields.retain(|(code, _)| !b"Wpq".contains(code));
                NodeError::Refused(fields)
            }
            error => error,
        });
        locked?;
        Ok(())
    }

    /// A write to replicated tables that does the same everywhere, unless a value that came with it may
    /// mean the current time, which differs between nodes.
    ///
    /// Where that takes locks on tables, a transaction that has locked a row of them and wants such a
    /// lock would deadlock with one that waits for the row, which is no deadlock on one PostgreSQL. By
    /// row none is taken; but the rows travel, so a statement that names none of them goes by row only
    /// where its transaction may have locked some.
    pub(super) async fn write_replicas(
        &mut self,
        locks: &[TableLock],
        rows: &RowsWrite,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let has_used_home = self.tx.transaction.mode == Mode::Explicit
            && self.tx.transaction.nodes.contains_key(&NodeId::HOME);
        let avoids_locks =
            !locks.is_empty() && rows.returned.is_some() && (rows.names_some || has_used_home);
        match call.may_say_now() || avoids_locks {
            true => self.write_by_row(rows, text, call).await,
            false => self.run_on_replicas(locks, text, call).await,
        }
    }

    /// A write to replicated tables: node 1 first and alone, so that conflicts of concurrent writers
    /// all meet there and never deadlock across nodes; then the others. All must have done the same.
    pub(crate) async fn run_on_replicas(
        &mut self,
        locks: &[TableLock],
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        let nodes = self.tx.catalog.nodes.clone();
        if 1 < nodes.len() {
            self.need_transaction();
        }
        self.lock_at_home(locks).await?;
        self.tx.wait_for_visible(NodeId::HOME).await?;
        let link = self.tx.enlist(NodeId::HOME, Access::Write).await?;
        call.put(link, text);
        link.connection().flush().await?;
        let filter = Filter::rows(call, false);
        let link = self.tx.links.at(&NodeId::HOME);
        let home = relay(self.client, link, filter).await?;
        // All that the statement saw on node 1 must be visible on the other nodes too, or the
        // copies would diverge (docs/protocol/replicated-tables.md).
        self.tx.wait_for_all_visible().await?;
        let others: Vec<_> = nodes.into_iter().filter(|node| *node != NodeId::HOME).collect();
        for node in &others {
            let link = self.tx.enlist(*node, Access::Write).await?;
            call.put(link, text);
            link.connection().flush().await?;
        }
        let mut awaited = Answers::of(&others);
        while let Some(node) = awaited.next(self).await {
            let link = self.tx.links.at(&node);
            let failure = match relay(self.client, link, Filter::discard(call)).await {
                Ok(answer) if answer.tag == home.tag => continue,
                Ok(answer) => replicas_differ(node, &home, &answer),
                Err(error) => error,
            };
            awaited.note(self, failure).await?;
        }
        awaited.end()?;
        Ok(Done::Tag(home.tag))
    }
}

/// Maps a position in the text that was sent, in which words may have been replaced, to the client's
/// text; `None`: inside such words. Both count characters, from 1.
fn position_in(text: &str, sent: &str, planned: &Planned, at: usize) -> Option<usize> {
    let behind = |text: &str, byte: usize| text.get(byte..).map(|rest| rest.chars().count());
    let (all, all_sent) = (text.chars().count(), sent.chars().count());
    let first = planned.session_names.first()?.range.start;
    let last = planned.session_names.last()?.range.end;
    let before = text.get(..first)?.chars().count();
    if at <= before {
        return Some(at);
    }
    // Counted from the end, positions after the last replaced word are unchanged.
    let to_end = all_sent.checked_sub(at)?;
    (to_end < behind(text, last)?).then(|| all - to_end)
}

fn replicas_differ(node: NodeId, home: &Relayed, other: &Relayed) -> Failure {
    tutti_wire::error_fields::ErrorFields::error(
        sqlstate::SERIALIZATION_FAILURE,
        format!(
            "could not write the same rows on node n1 and node {node} due to concurrent changes"
        ),
    )
    .with(b'D', format!("The same statement gave \"{}\" and \"{}\".", home.tag, other.tag))
    .with(
        b'H',
        "Nothing was changed; retry. If it happens without concurrent changes, the copies differ.",
    )
    .into()
}
