//! Execute: a portal's rows go to the client, all or some.
//!
//! Owns: forwarding to the node that has the portal, and sending the rows that the executor
//! produced.
//! Never: chooses where a statement runs (Bind did).

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;
use tutti_link::spool::SpoolError;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{
    Access, DataPlan, Explain, Plan, PreparedCommand, SchemaPlan, SessionPlan, Setting,
};
use tutti_sql::statement::Statement;
use tutti_wire::backend::{self, put_bare, put_command_complete};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frontend::put_execute;

use super::due::{Expect, Undo};
use crate::client::failure::Failure;
use crate::plans::request::Done;
use crate::session::Session;
use crate::transaction::Mode;
use crate::transaction::named::{Bound, PendingPortal, Portal, WaitingRows};
use crate::transaction::plan_needs::reads_several_nodes;
use crate::transaction::planning::transaction_failed;
use crate::transaction::state::Isolation;

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
                    self.join_cursor(name, access);
                }
                if self.tx.transaction.failed {
                    return Err(transaction_failed());
                }
                self.keep_portal(node, name, bound.as_deref(), runs).await?;
                self.execute_on_node(name, row_limit, node, access, copies).await
            }
            Portal::Beside => {
                if self.is_running_cursor(name) {
                    self.join_cursor(name, Access::Read);
                }
                if self.tx.transaction.failed {
                    return Err(transaction_failed());
                }
                self.quiet_pipeline().await?;
                self.executor().execute_beside(name, row_limit).await
            }
            Portal::Empty => {
                self.respond(Undo::Nothing, |out| put_bare(out, b'I'));
                Ok(())
            }
            Portal::Plan(pending) => self.execute_plan(name, &pending, row_limit).await,
            Portal::Rows { pending, .. } => {
                self.tx.refuse_if_failed(&pending.planned)?;
                self.drain().await?;
                self.hand_out(name, row_limit).await
            }
            Portal::Finished(pending) => self.execute_again(name, &pending).await,
        }
    }

    /// Before rows of an SQL cursor are asked for: changes see what its query depends on.
    fn join_cursor(&mut self, name: &str, access: Access) {
        let concerns = self.tx.cursors.get(name).and_then(|it| it.concerns.clone());
        self.tx.join_concerns(concerns.as_ref(), access);
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
        let numbered = self.pipeline.numbered.contains_key(name).then(|| name.to_owned());
        self.pipeline.expects.push_back(Expect::Execute(numbered));
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
        let spool = self.tx.spool();
        self.client.begin_spool(spool);
        let executed = self.execute(planned, &parsed.text, call).await;
        let spool = self.client.end_spool();
        let (executed, Some(mut spool)) = (executed?, spool) else {
            return Err(Failure::error("XX000", "the rows of a portal were not kept"));
        };
        let tag = match executed {
            // It is among what was kept.
            Done::Told => None,
            Done::Tag(tag) => Some(tag),
            Done::Empty => Some(String::new()),
        };
        if let Some(tag) = tag {
            put_command_complete(spool.buffer(), &tag);
        }
        let rows = WaitingRows::new(spool.end().await.map_err(not_kept)?);
        let made = self.tx.transaction.step_count();
        let (pending, rows) = (pending.clone(), Arc::new(Mutex::new(rows)));
        self.tx.portals.insert(name.to_owned(), Portal::Rows { pending, rows, made });
        self.hand_out(name, row_limit).await
    }

    /// Does nothing if the statement itself has ended the portal: COMMIT does.
    fn finish_portal(&mut self, name: &str, pending: &Arc<PendingPortal>) {
        if let Some(portal) = self.tx.portals.get_mut(name) {
            *portal = Portal::Finished(pending.clone());
        }
    }

    /// Sends up to `row_limit` of the rows that a portal has left; all if it is not positive.
    async fn hand_out(&mut self, name: &str, row_limit: i32) -> Result<(), Failure> {
        let Some(Portal::Rows { pending, rows, .. }) = self.tx.portals.get(name).cloned() else {
            return Ok(());
        };
        let limit =
            usize::try_from(row_limit).ok().filter(|limit| 0 < *limit).unwrap_or(usize::MAX);
        let mut waiting = rows.lock().await;
        let mut rows = 0;
        let tag = loop {
            if rows == limit {
                put_bare(self.client.out(), b's');
                return Ok(());
            }
            let Some(frame) = waiting.next_frame().await? else {
                return Err(Failure::error("XX000", "the rows of a portal have no end"));
            };
            if frame.tag() == b'C' {
                break backend::decode_command_complete(&frame)?;
            }
            if frame.tag() == b'D' {
                rows += 1;
                waiting.has_given = true;
            }
            self.client.out().extend_from_slice(frame.as_bytes());
            self.client.flush_if_full().await?;
        };
        let out = self.client.out();
        // PostgreSQL counts the rows of the last Execute, if the statement returns any.
        let returns_rows = |words: &str| waiting.has_given || matches!(words, "SELECT" | "FETCH");
        match tag.rsplit_once(' ') {
            Some((words, count)) if returns_rows(words) && is_number(count) => {
                put_command_complete(out, &format!("{words} {rows}"));
            }
            _ => put_command_complete(out, &tag),
        }
        self.finish_portal(name, &pending);
        Ok(())
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

fn not_kept(error: SpoolError) -> Failure {
    let bytes_max = match error {
        SpoolError::Node(error) => return error.into(),
        SpoolError::TooMany { bytes_max } => bytes_max,
    };
    ErrorFields::error("54000", "the statement has too many rows to hand them out in portions")
        .with(
            b'D',
            format!(
                "The gateway keeps up to {} MiB of them. The rest could not be kept on node 1: all connections that \
                 clients may have are in use, or an event trigger there would see the table.",
                bytes_max >> 20
            ),
        )
        .with(b'H', "Ask for all rows at once (by no row limit), for fewer, or later.")
        .into()
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
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
