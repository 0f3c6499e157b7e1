//! Committing a transaction that wrote on several nodes, as its session sees it.
//!
//! Owns: what comes before the votes (readers, the permit to vote), and what the client is told at the end.
//! Never: drives the commit (`tutti_cluster::commit_driver` does).
//! Start reading at [`Session::commit_global`].

use std::collections::BTreeSet;
use std::sync::Arc;

use tutti_cluster::Boxed;
use tutti_cluster::commit_driver::{
    Commission, CommitDriver, CommitOutcome, CommittingSession, RunLimit,
};
use tutti_cluster::numbers::{sql_node, txn_node};
use tutti_cluster::requests::Record;
use tutti_link::connection::UNKNOWN_OUTCOME;
use tutti_sql::catalog::NodeId;
use tutti_txn::coordinator::{AbortCause, Form, Outcome};
use tutti_txn::placement_change::VOTE_PATIENCE;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use super::Session;
use super::code_at_commit::LateCode;
use crate::client::failure::Failure;
use crate::registry::Registry;
use crate::transaction::Level;
use crate::transaction::waiting::canceled;

impl Session {
    /// Commits a transaction that wrote on all of `writers`. `late`: code that may run meanwhile. `decided`: by which
    /// node, and in which form; with the record of a request, by its keeper.
    ///
    /// Errors: it is aborted and nothing of it remains; or SQLSTATE 08007: the outcome is not known
    /// yet.
    pub(super) async fn commit_global(
        &mut self,
        writers: &[NodeId],
        late: Option<Arc<LateCode>>,
        decided: (NodeId, Form),
        request: Option<Record>,
    ) -> Result<(), Failure> {
        let serializable = self.tx.level() == Level::Serializable;
        let (anchor, form) = decided;
        let mut permit = None;
        if serializable {
            self.commit_readers_first(&writers.iter().copied().collect()).await?;
            let nodes: BTreeSet<_> = writers.iter().copied().map(txn_node).collect();
            let order = self.tx.registry.cluster.authority.vote_order.clone();
            permit = loop {
                let permit = self.tx.while_wanted(order.take(nodes.clone())).await?;
                // Others of the same role may have held permits for long while this one queued.
                if late.is_none() || !self.tx.is_paused() {
                    break Some(permit);
                }
                drop(permit);
                self.tx.wait_for_pause().await?;
            };
        }
        let cluster = self.tx.registry.cluster.clone();
        let gid = cluster.next_gid(anchor);
        let _alive = cluster.coordinators.begin(gid.clone());
        let deadline = cluster.config.switches.vote_deadline;
        let activity = self.tx.activity.clone();
        activity.note_commit(Some(gid.clone()));
        let commission = Commission {
            gid,
            writers: writers.iter().copied().map(txn_node).collect(),
            form,
            tickets: std::mem::take(&mut self.tx.transaction.tickets),
            vote_permit: permit,
            vote_patience: match self.tx.transaction.catalog_changed {
                true => VOTE_PATIENCE.min(deadline),
                false => deadline,
            },
            request,
        };
        let (registry, process_id) = (self.tx.registry.clone(), self.tx.process_id);
        let committing = Arc::new(Committing { registry, process_id, late });
        let driver = CommitDriver::new(cluster.clone(), committing, commission);
        let ended = driver.run(&mut self.tx.links, activity.cancelled()).await;
        activity.note_commit(None);
        let outcome = told(ended);
        if !serializable {
            // The readers' part is over; none of their answers can change the outcome.
            let _ = self.commit_readers(&writers.iter().copied().collect()).await;
        }
        outcome
    }
}

/// This session, as its commit's driver sees it.
struct Committing {
    registry: Arc<Registry>,
    process_id: i32,
    /// Code that may run on nodes when they vote or commit, for which others must not wait long.
    late: Option<Arc<LateCode>>,
}

impl CommittingSession for Committing {
    fn run_limit(&self, node: NodeId) -> Option<RunLimit> {
        self.late.as_ref().map(|late| late.run_limit(node))
    }

    fn cancel(&self, node: NodeId) -> Boxed<'static, ()> {
        let (registry, process_id) = (self.registry.clone(), self.process_id);
        Box::pin(async move { registry.cancel_backend(process_id, node).await })
    }
}

/// What the client is told.
fn told(ended: CommitOutcome) -> Result<(), Failure> {
    let CommitOutcome { gid, outcome, refusal, is_cancelled } = ended;
    let anchor = sql_node(gid.anchor);
    let plain = |sqlstate: &str, message: String| {
        let hint = "Nothing was committed; retrying is safe.";
        Err(ErrorFields::error(sqlstate, message).with(b'H', hint).into())
    };
    let cause = match outcome {
        Outcome::Committed => return Ok(()),
        Outcome::Unknown => {
            let message = "the outcome of this transaction is not known yet";
            let hint = format!("Ask later: SELECT tutti_outcome('{gid}').");
            return Err(ErrorFields::error(UNKNOWN_OUTCOME, message).with(b'H', hint).into());
        }
        Outcome::Aborted { cause } => cause,
    };
    match (cause, refusal) {
        (AbortCause::DecisionRefused, Some(fields)) if fields.sqlstate() == "23505" => plain(
            sqlstate::SERIALIZATION_FAILURE,
            "recovery has aborted this transaction".to_owned(),
        ),
        (_, Some(fields)) => Err(fields.into()),
        (AbortCause::VotedNo(node), None) => {
            plain("40000", format!("node {node} rolled the transaction back"))
        }
        (AbortCause::DecisionRefused, None) => plain(
            sqlstate::SERIALIZATION_FAILURE,
            "recovery has aborted this transaction".to_owned(),
        ),
        (AbortCause::AnchorRefused, None) => {
            plain("40000", format!("node {anchor} rolled the transaction back"))
        }
        (AbortCause::VoteLost(node), None) => plain(
            sqlstate::CONNECTION_FAILURE,
            format!("connection to node {node} lost before it voted"),
        ),
        (AbortCause::AnchorLost | AbortCause::FoundAborted, None) => plain(
            sqlstate::CONNECTION_FAILURE,
            format!("connection to node {anchor} lost during the commit"),
        ),
        (AbortCause::DeadlineReached, None) if is_cancelled => {
            Err(canceled(sqlstate::QUERY_CANCELED, "user request"))
        }
        (AbortCause::SentinelMissing(node), None) => Err(ErrorFields::error(
            sqlstate::SERIALIZATION_FAILURE,
            format!("no sentinel has watched node {node} for a moment"),
        )
        .with(b'H', "The transaction might succeed if retried.")
        .into()),
        (AbortCause::DeadlineReached, None) => {
            plain("40000", "not all nodes voted in time".to_owned())
        }
    }
}
