//! Execute: a portal's rows go to the client, all or some.
//!
//! Owns: forwarding to the node that has the portal, and sending the rows that the executor
//! produced.
//! Never: chooses where a statement runs (Bind did).

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{
    Access, DataPlan, Explain, Plan, PreparedCommand, SchemaPlan, SessionPlan, Setting,
};
use tutti_sql::statement::Statement;
use tutti_wire::backend::{self, put_bare, put_command_complete};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::frame_len;
use tutti_wire::frontend::put_execute;

use super::due::{Expect, Undo};
use crate::client::failure::Failure;
use crate::plans::request::Done;
use crate::session::Session;
use crate::transaction::Mode;
use crate::transaction::named::{Bound, PendingPortal, Portal};
use crate::transaction::planning::transaction_failed;
use crate::transaction::state::Isolation;
use crate::transaction::statement_snapshot::reads_several_nodes;

/// Messages for a node are sent when this many bytes of them have gathered.
const PIPELINE_FLUSH_BYTES: usize = 32 * 1024;

impl Session {
    pub(super) async fn execute_portal(
        &mut self,
        name: &str,
        row_limit: i32,
    ) -> Result<(), Failure> {
        match self.portal(name)? {
            Portal::Node { node, access, copies, bound, runs } => {
                if let Some(bound) = &bound {
                    self.go_on_with(bound, runs, access)?;
                } else if self.is_running_cursor(name) {
                    let concerns = self.tx.cursors.get(name).and_then(|it| it.concerns.clone());
                    self.tx.join_concerns(concerns.as_ref(), access);
                }
                if self.tx.transaction.failed {
                    return Err(transaction_failed());
                }
                self.keep_portal(node, name, bound.as_deref(), runs).await?;
                self.execute_on_node(name, row_limit, node, access, copies).await
            }
            Portal::Empty => {
                self.respond(Undo::Nothing, |out| put_bare(out, b'I'));
                Ok(())
            }
            Portal::Plan(pending) => self.execute_plan(name, &pending, row_limit).await,
            Portal::Rows { pending, .. } => {
                self.tx.refuse_if_failed(&pending.planned)?;
                self.drain().await?;
                self.hand_out(name, row_limit);
                Ok(())
            }
            Portal::Finished(pending) => self.execute_again(name, &pending).await,
        }
    }

    /// Before a portal on a node is executed that the session has bound.
    ///
    /// Errors: 40001 if nothing has kept its tables, or the code that it runs, as they were; 0A000 if its names
    /// mean others; 25P01.
    fn go_on_with(&mut self, bound: &Bound, runs: bool, access: Access) -> Result<(), Failure> {
        if !self.tx.activity.plan.is_still(bound.plan_number) {
            let concerns = self.tx.refuse_bound_otherwise(bound, bound.begins(runs))?;
            self.tx.join_concerns(concerns.as_ref(), access);
        } else if self.tx.transaction.catalog_changed {
            self.tx.refuse_moved_since(&bound.then.catalog, bound.planned.concerns.as_deref())?;
        }
        self.tx.refuse_outside_block(&bound.statement)
    }

    async fn execute_on_node(
        &mut self,
        name: &str,
        row_limit: i32,
        node: NodeId,
        access: Access,
        copies: bool,
    ) -> Result<(), Failure> {
        self.tx.refuse_cursor_of_one_node()?;
        self.tx.wait_for_visible(node).await?;
        self.switch_to(node, access).await?;
        if let Some(Portal::Node { runs, .. }) = self.tx.portals.get_mut(name) {
            *runs = true;
        }
        self.pipeline.wrote |= access == Access::Write;
        if self.tx.is_autocommit() && access == Access::Write && self.pipeline.in_progress.is_none()
        {
            self.pipeline.in_progress = self.tx.begin_serializable();
        }
        if self.pipeline.executes() {
            self.tx.activity.plan.note_sends_ahead();
        }
        self.pipeline.expects.push_back(Expect::Execute);
        self.tx.flight.insert(node, true);
        let link = self.tx.links.at(&node);
        let out = link.connection().outgoing();
        put_execute(out, name, row_limit);
        if PIPELINE_FLUSH_BYTES < out.len() {
            self.may_flush(node)?;
            let link = self.tx.links.at(&node);
            link.connection().flush().await?;
            self.pass_early_answers().await?;
        }
        if copies {
            // The client's next messages may be the data.
            self.drain().await?;
        }
        Ok(())
    }

    /// A plan for several nodes, or for the gateway itself.
    async fn execute_plan(
        &mut self,
        name: &str,
        pending: &Arc<PendingPortal>,
        row_limit: i32,
    ) -> Result<(), Failure> {
        self.tx.refuse_if_failed(&pending.planned)?;
        if pending.parsed.is_select() && pending.writes != self.tx.writes {
            // Its rows are those of its Bind, and it is only now that nodes are asked for them.
            return Err(Failure::unsupported(
                "executing a portal that was bound before its session has written",
                "Its query is carried out by the gateway only now, and would show what was written since.",
                "Bind it after that, or execute it before.",
            ));
        }
        self.quiet_pipeline().await?;
        let is_outside = self.tx.transaction.mode == Mode::None;
        let begun = Instant::now();
        let mut overtaken = 0_u32;
        loop {
            let written = self.client.written();
            let ran = self.execute_plan_once(name, pending, row_limit).await;
            self.tx.starving = None;
            self.tx.locks_in_turn = false;
            let said = self.client.said_again(written).filter(|_| is_outside);
            let Some(start) = said.filter(|_| self.is_to_run_again(&ran, overtaken)) else {
                return ran;
            };
            self.take_back(start, &mut overtaken);
            if self.tx.transaction.is_open() {
                // It is the statement's alone: other portals of the flight outlive it.
                let portals = std::mem::take(&mut self.tx.portals);
                self.rollback().await;
                self.tx.portals = portals;
            }
            self.heed_timeout(begun).await?;
            self.begin_statement(&pending.parsed.text).await?;
        }
    }

    async fn execute_plan_once(
        &mut self,
        name: &str,
        pending: &Arc<PendingPortal>,
        row_limit: i32,
    ) -> Result<(), Failure> {
        let PendingPortal { parsed, call, .. } = &**pending;
        self.tx.refresh_catalog();
        let means_the_same = pending.scope_changes == self.tx.scope_state.changes;
        // In a block others' changes would have waited for the locks that binding a query takes.
        let is_in_block = self.tx.transaction.mode == Mode::Explicit && parsed.is_of_rows();
        if !means_the_same || is_in_block && !Arc::ptr_eq(&pending.catalog, &self.tx.catalog) {
            self.tx.refuse_named_otherwise(parsed, &pending.named)?;
        }
        let planned = match means_the_same && Arc::ptr_eq(&pending.catalog, &self.tx.catalog) {
            true => pending.planned.clone(),
            // It was bound before the schema or a placement changed.
            false => self.tx.plan(parsed)?,
        };
        let planned = &planned;
        let changes_rows = match &planned.plan {
            Plan::Session(SessionPlan::PreparedCommand(
                PreparedCommand::Execute { name, .. } | PreparedCommand::Within { name, .. },
            )) => {
                let prepared = self.tx.statements.get(name).and_then(|it| it.statement.clone());
                prepared.is_some_and(|it| self.tx.plan(&it).is_ok_and(|it| writes(&it.plan)))
            }
            plan => (parsed.is_of_rows() || parsed.is_explain()) && writes(plan),
        };
        let was_alone = self.tx.transaction.mode == Mode::None;
        let is_undone = changes_rows || changes_session(parsed, &planned.plan);
        // PostgreSQL, too, applies row limits only where rows are returned.
        let keeps_rows = 0 < row_limit && !parsed.is_copy();
        if is_undone && keeps_rows
            || (is_undone || reads_several_nodes(&planned.plan)) && !self.client.comes_to_sync()
        {
            // What follows until Sync may fail and undo this, as do more rows than can be kept; or it reads
            // what this has read, or begins a block, in which a query has then been run.
            self.executor().need_transaction();
        }
        let planned = match self.tx.has_snapshot_per_part() && !planned.in_moments {
            // It was bound before it was known that it would be part of a transaction.
            true => match self.tx.plan(parsed) {
                Ok(planned) => &planned.clone(),
                Err(_) if was_alone => {
                    // Nothing but one snapshot will do, and nothing has run in the transaction.
                    let transaction = &mut self.tx.transaction;
                    transaction.characteristics.isolation = Some(Isolation::RepeatableRead);
                    transaction.at_one_moment = planned.relations().cloned();
                    planned
                }
                Err(refused) => return Err(refused),
            },
            false => planned,
        };
        self.tx.refuse_outside_block(parsed)?;
        if !keeps_rows {
            let done = self.execute(planned, &parsed.text, call).await?;
            self.tell(done);
            self.finish_portal(name, pending);
            return Ok(());
        }
        let bytes_max = self.executor().travelling_bytes_max();
        self.client.begin_capture(bytes_max);
        let executed = self.execute(planned, &parsed.text, call).await;
        let frames = self.client.end_capture();
        let executed = executed?;
        let frames = frames.ok_or_else(|| too_many_kept(bytes_max))?;
        let (frames, tag) = match executed {
            Done::Tag(tag) => (frames, tag),
            Done::Told => split_off_tag(frames)?,
            Done::Empty => (frames, String::new()),
        };
        let returns_rows = ["SELECT ", "FETCH "].iter().any(|word| tag.starts_with(word))
            || frames_of(&frames).any(|frame| frame == b'D');
        let rows = Portal::Rows { pending: pending.clone(), frames, tag, returns_rows };
        self.tx.portals.insert(name.to_owned(), rows);
        self.hand_out(name, row_limit);
        Ok(())
    }

    /// Does nothing if the statement itself has ended the portal: COMMIT does.
    fn finish_portal(&mut self, name: &str, pending: &Arc<PendingPortal>) {
        if let Some(portal) = self.tx.portals.get_mut(name) {
            *portal = Portal::Finished(pending.clone());
        }
    }

    /// Sends up to `row_limit` of the rows that a portal has left; all if it is not positive.
    fn hand_out(&mut self, name: &str, row_limit: i32) {
        let Some(Portal::Rows { pending, frames, tag, returns_rows }) =
            self.tx.portals.get_mut(name)
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
        let out = self.client.out();
        out.extend_from_slice(&frames.split_to(len));
        if rows == limit {
            put_bare(out, b's');
            return;
        }
        // PostgreSQL counts the rows of the last Execute, of a portal that returns any.
        match tag.rsplit_once(' ') {
            Some((words, count)) if *returns_rows && is_number(count) => {
                put_command_complete(out, &format!("{words} {rows}"));
            }
            _ => put_command_complete(out, tag),
        }
        let pending = pending.clone();
        self.finish_portal(name, &pending);
    }

    /// Another Execute of a portal that is exhausted: no more rows, or an error.
    async fn execute_again(&mut self, name: &str, pending: &PendingPortal) -> Result<(), Failure> {
        self.tx.refuse_if_failed(&pending.planned)?;
        if self.columns_of(pending).await?.is_none() {
            return Err(Failure::error("55000", format!("portal \"{name}\" cannot be run")));
        }
        let word = pending.parsed.text.split_whitespace().next().unwrap_or_default();
        let tag = match word.to_ascii_uppercase().as_str() {
            "INSERT" => "INSERT 0 0".to_owned(),
            tag @ ("EXPLAIN" | "SHOW") => tag.to_owned(),
            word @ ("UPDATE" | "DELETE" | "MERGE" | "FETCH") => format!("{word} 0"),
            _ => "SELECT 0".to_owned(),
        };
        self.respond(Undo::Nothing, |out| put_command_complete(out, &tag));
        Ok(())
    }
}

fn too_many_kept(bytes_max: usize) -> Failure {
    ErrorFields::error("54000", "the statement has too many rows to hand them out in portions")
        .with(
            b'D',
            format!(
                "Rows of several nodes are kept by the gateway, up to {} MiB.",
                bytes_max >> 20
            ),
        )
        .with(b'H', "Ask for all rows at once (by no row limit), or for fewer.")
        .into()
}

/// The tags of whole frames.
fn frames_of(frames: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = frames;
    std::iter::from_fn(move || {
        let len = frame_len(rest).ok()??;
        let tag = *rest.first()?;
        rest = rest.get(len..)?;
        Some(tag)
    })
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Captured answers end with a CommandComplete when the executor has told the client already.
fn split_off_tag(mut frames: Bytes) -> Result<(Bytes, String), Failure> {
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

/// Whether it changes rows, directly or in what it explains.
fn writes(plan: &Plan) -> bool {
    match plan {
        Plan::Data(
            DataPlan::Insert(_) | DataPlan::Steps(_) | DataPlan::One { access: Access::Write, .. },
        ) => true,
        Plan::Data(DataPlan::Explain(Explain { analyze: true, of, .. })) => writes(&of.plan),
        _ => false,
    }
}

/// Whether it changes the session, and is undone with a transaction in which it has done so.
fn changes_session(statement: &Statement, plan: &Plan) -> bool {
    match plan {
        Plan::Schema(SchemaPlan::TemporaryDdl { .. })
        | Plan::Session(SessionPlan::Notification { .. }) => true,
        Plan::Data(DataPlan::DeclareCursor { .. }) => statement.is_held_cursor(),
        Plan::Session(SessionPlan::Setting(setting)) => match setting {
            // A local set_config() lasts until Sync.
            Setting::Set { .. }
            | Setting::Reset { .. }
            | Setting::ResetAll
            | Setting::SetConfig { .. } => true,
            Setting::SetTransaction { session, .. } => *session,
            Setting::SetLocal { .. }
            | Setting::SetConstraints { .. }
            | Setting::Show { .. }
            | Setting::Discard { .. } => false,
        },
        _ => false,
    }
}
