//! What clients' code does at COMMIT while others wait for that commit.
//!
//! Owns: that deferred triggers run before any session has to wait, and that code which can only run
//! inside COMMIT gets a short time, and not often (`pause`).
//! Never: commits (`commit` and `global_commit` do).
//! Start reading at [`Session::run_code_early`], then [`LateCode::run_limit`]. The reasons:
//! docs/protocol/anchored-commit.md, "Code that runs at COMMIT".
//!
//! A COMMIT runs deferred triggers and computes cursors WITH HOLD, for as long as their code takes. Most
//! of our commits keep no one waiting meanwhile: a transaction of one node commits as on one PostgreSQL,
//! and others prepare before they enter the commit room. These do keep others waiting:
//! - the commit of a schema change, or of moved rows, under the hold;
//! - the COMMIT of an anchor that cannot prepare, inside the commit room;
//! - the votes of a SERIALIZABLE transaction, while it holds its permit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tutti_cluster::commit_driver::{RunLimit, within};
use tutti_link::connection::NodeError;
use tutti_sql::catalog::NodeId;
use tutti_txn::coordinator::Form;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use super::Session;
use crate::client::failure::Failure;
use crate::registry::{Ending, Registry};
use crate::transaction::Level;
use crate::transaction::deferred::{
    CHANGES, RUN_DEFERRED, UNDO_DEFERRED, keeps_order, may_be_mended,
};

/// How long such code may take while others wait; then it is cancelled, and later its connection is
/// ended.
const MOMENT: Duration = Duration::from_secs(1);
/// How often it is checked whether nodes are reachable.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Whether COMMIT may still run code: it computes cursors WITH HOLD that the transaction has declared,
/// and a trigger that has run may have deferred itself again. (So may an exclusion constraint, whose
/// expressions are code. Keys are checked by the server itself.)
const MAY_RUN_CODE: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_cursors AS c WHERE c.is_holdable
        AND c.creation_time OPERATOR(pg_catalog.>=) pg_catalog.transaction_timestamp())
    OR EXISTS (SELECT FROM pg_catalog.pg_locks AS l
        JOIN pg_catalog.pg_trigger AS t ON t.tgrelid OPERATOR(pg_catalog.=) l.relation AND t.tgdeferrable
        -- (Not those that keep unique indexes, which have nothing to do then.)
        JOIN pg_catalog.pg_proc AS f ON f.oid OPERATOR(pg_catalog.=) t.tgfoid
            AND f.pronamespace OPERATOR(pg_catalog.<>) (SELECT n.oid FROM pg_catalog.pg_namespace AS n
                WHERE n.nspname OPERATOR(pg_catalog.=) 'tutti')
        JOIN pg_catalog.pg_constraint AS k ON k.oid OPERATOR(pg_catalog.=) t.tgconstraint
        WHERE l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()
            AND l.locktype OPERATOR(pg_catalog.=) 'relation'
            AND l.mode OPERATOR(pg_catalog.<>) 'AccessShareLock'
            AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d
                WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
            AND k.contype::pg_catalog.text OPERATOR(pg_catalog.=) ANY ('{t,x}'::pg_catalog.text[]))";

/// Code that may run inside a commit for which others wait.
#[derive(Debug)]
pub(super) struct LateCode {
    registry: Arc<Registry>,
    /// The role that pauses after it: all sessions wait for it, or all that commit at SERIALIZABLE on the same
    /// nodes.
    pausing: Option<String>,
    process_id: i32,
    /// The error of deferred triggers that were run early.
    refused: Option<ErrorFields>,
    was_ended: AtomicBool,
}

impl Session {
    /// Before the commit of a transaction for which others wait: runs what is deferred, as long as it takes.
    /// Returns the code that may still run inside the commit, if any.
    ///
    /// Errors: those of deferred triggers that no later one can correct; a node is lost; 57014.
    pub(super) async fn run_code_early(
        &mut self,
        writers: &[NodeId],
    ) -> Result<Option<Arc<LateCode>>, Failure> {
        let holds = self.tx.transaction.catalog_changed || !self.tx.transaction.moved.is_empty();
        let is_global = 1 < writers.len();
        let rooms = is_global && !self.tx.commits_node_by_node();
        let stops_all = holds || (rooms && self.tx.form_of_commit(writers).1 == Form::Anchored);
        let takes_turn = is_global && self.tx.level() == Level::Serializable;
        if !stops_all && !takes_turn {
            return Ok(None);
        }
        let run = format!("{CHANGES}{RUN_DEFERRED}{CHANGES}{MAY_RUN_CODE}");
        let asked = writers.iter().map(|node| (*node, run.clone())).collect();
        let registry = self.tx.registry.clone();
        // However long code runs: a node that is lost will not vote.
        let mut answers = tokio::select! {
            answers = self.tx.on_links(asked) => answers,
            node = first_away(&registry, writers) => return Err(NodeError::Closed { node, reason: None }.into()),
        };
        answers.sort_by_key(|(node, _)| *node);
        let (mut runs_code, mut refused, mut undo) = (false, None, Vec::new());
        for (node, answered) in answers {
            let link = self.tx.links.get_mut(&node);
            match (answered, link) {
                (Ok(rows), Some(link)) if !keeps_order(&rows[..rows.len().saturating_sub(1)]) => {
                    // COMMIT runs it again, with its notices.
                    link.connection().take_notices();
                    runs_code = true;
                    undo.push((node, UNDO_DEFERRED.to_owned()));
                }
                (Ok(rows), _) => {
                    let said = rows.last().and_then(|rows| rows.text(0, 0));
                    runs_code |= said != Some("f");
                    self.pass_notices(node);
                }
                (Err(NodeError::Refused(fields)), Some(link)) if may_be_mended(&fields) => {
                    // COMMIT sends them again.
                    link.connection().take_notices();
                    refused.get_or_insert(*fields);
                    undo.push((node, UNDO_DEFERRED.to_owned()));
                }
                (Err(error), _) => return Err(error.into()),
            }
        }
        for (_, undone) in self.tx.on_links(undo).await {
            undone?;
        }
        if !runs_code && refused.is_none() {
            return Ok(None);
        }
        self.tx.wait_for_pause().await?;
        let (registry, process_id) = (self.tx.registry.clone(), self.tx.process_id);
        let was_ended = AtomicBool::new(false);
        let pausing = self.tx.pausing_role();
        Ok(Some(Arc::new(LateCode { registry, pausing, process_id, refused, was_ended })))
    }
}

/// Waits until one of these nodes is unreachable.
async fn first_away(registry: &Registry, nodes: &[NodeId]) -> NodeId {
    loop {
        sleep(POLL_INTERVAL).await;
        if let Some(node) =
            nodes.iter().find(|node| !registry.cluster.availability.is_there(**node))
        {
            return *node;
        }
    }
}

impl LateCode {
    /// The limit for what runs such code on `node`, so that it ends soon, one way or the other.
    pub(super) fn run_limit(self: &Arc<Self>, node: NodeId) -> RunLimit {
        let (late, begun) = (self.clone(), Instant::now());
        let done = Box::new(move || {
            if let Some(role) = &late.pausing {
                late.registry.pauses.note(role, begun.elapsed());
            }
        });
        let late = self.clone();
        let ending = Box::pin(async move {
            let mut ending = Ending::Statements;
            loop {
                sleep(MOMENT).await;
                late.was_ended.store(true, Ordering::Relaxed);
                let mut targets = late.registry.backends.of(late.process_id);
                targets.retain(|target| target.key().node == node);
                late.registry.end_backends(&targets, ending).await;
                // Code can survive a cancellation, but not the end of its connection.
                ending = Ending::AtWork;
            }
        });
        RunLimit { ending, done }
    }

    /// What the client is told about a commit that failed for this.
    pub(super) fn reword(&self, failure: Failure) -> Failure {
        let Failure::Statement(error) = &failure else { return failure };
        if !self.was_ended.load(Ordering::Relaxed) || error.sqlstate() != sqlstate::QUERY_CANCELED {
            return failure;
        }
        if let Some(refused) = &self.refused {
            return refused.clone().into();
        }
        let message = "canceling COMMIT because the code that it runs takes too long";
        let detail = format!(
            "Others wait for this commit. Cursors WITH HOLD that the transaction has declared, and \
             deferred triggers that make others run, may take {} s there.",
            MOMENT.as_secs()
        );
        let hint = "Nothing was committed. Declare such a cursor in a transaction of its own, and run \
                    such triggers before COMMIT by SET CONSTRAINTS ALL IMMEDIATE.";
        ErrorFields::error(sqlstate::QUERY_CANCELED, message)
            .with(b'D', detail)
            .with(b'H', hint)
            .into()
    }
}

/// Waits for the answer to a statement that may run such code on `node`.
pub(super) async fn bounded<T>(
    late: Option<&Arc<LateCode>>,
    node: NodeId,
    running: impl Future<Output = T>,
) -> T {
    within(late.map(|late| late.run_limit(node)), running).await
}
