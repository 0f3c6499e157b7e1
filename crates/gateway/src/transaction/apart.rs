//! A read of a READ COMMITTED block that is carried out apart from it: on connections of its own, which have one snapshot of
//! all nodes.
//!
//! Owns: of which blocks nobody can tell that, and what the session has meanwhile.
//! Never: chooses the statement, or runs it (`executor::apart` does).
//! Start reading at [`TransactionContext::may_read_apart`]; why it is the same is in `docs/protocol/rooms.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use tutti_link::connection::Rows;
use tutti_link::pool::links::Links;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, Planned, Residue};

use super::TransactionContext;
use super::aside::Aside;
use super::plan_needs::reads_every_node_itself;
use super::state::{Mode, Transaction};
use crate::client::failure::Failure;

/// Nobody waits longer than this for a lock of a table: who holds it may be waiting for what the block has locked, which
/// for the server is somebody else.
const PATIENCE_SQL: &str = "SET LOCAL lock_timeout = '500ms'";

impl TransactionContext {
    /// Whether a statement sees the same outside of the block, which is READ COMMITTED, has changed nothing, and has left
    /// nothing on its connections but settings that are repeated elsewhere.
    pub(crate) fn may_read_apart(&self) -> bool {
        let block = &self.transaction;
        block.mode == Mode::Explicit
            && self.has_snapshot_per_part()
            && self.registry.cluster.config.switches.rooms
            && !(block.failed || block.doomed || block.may_show_more())
            // What a COMMIT would keep.
            && block.kept_settings().next().is_none()
            && block.nodes.values().all(|access| *access == Access::Read)
            && self.bindings.is_empty()
            && self.residue == Residue::default()
            && self.returned.is_none()
            && self.accounting.is_none()
            && !self.is_part
    }

    /// Sets the block aside for a transaction that reads at one moment. False: there is no room for further connections
    /// now. (Nobody waits for some: who has connections already would wait for others who have.)
    pub(crate) fn set_block_aside(&mut self) -> bool {
        let Some(permit) = self.registry.pool.admit_at_once(&self.share) else { return false };
        let transaction = self.transaction.for_read_apart(PATIENCE_SQL);
        // Its level is settled, as by any query.
        self.transaction.queried = true;
        let mut aside = Box::new(Aside {
            transaction,
            links: Links::default(),
            permit: Some(permit),
            checked_out: BTreeSet::new(),
            refreshed: Vec::new(),
            flight: BTreeMap::new(),
        });
        self.exchange(&mut aside);
        self.block_aside = Some(aside);
        true
    }

    /// Before what is read apart is sent anywhere.
    pub(crate) fn note_read_apart(&mut self, planned: &Planned) {
        self.transaction.at_one_moment = planned.relations().cloned();
        self.transaction.takes_own_snapshot = reads_every_node_itself(&planned.plan);
    }

    /// The statement has been carried out, or has not: the session goes on with its block.
    pub(crate) async fn take_block_back(&mut self, is_done: bool) {
        let Some(mut block) = self.block_aside.take() else { return };
        let nodes: Vec<_> = self.transaction.nodes.keys().copied().collect();
        if is_done {
            // Not COMMIT: what the block has set is not yet its session's, and never another's. Whoever does not answer is not
            // released.
            _ = self.tell_silently(nodes, "ROLLBACK").await;
        } else {
            self.roll_back_parts().await;
        }
        self.exchange(&mut block);
        self.activity.note_nodes(self.transaction.nodes.len());
        let nodes: Vec<_> = block.links.keys().copied().collect();
        for node in nodes {
            if let Some(mut link) = block.links.remove(&node) {
                link.has_placeholders |= self.settings.has_placeholders;
                self.release_link(node, link).await;
            }
        }
    }

    /// Asks node 1 in the block, whether it is set aside or not.
    ///
    /// Errors: it does not answer.
    pub(crate) async fn ask_in_block(&mut self, sql: &str) -> Result<Vec<Rows>, Failure> {
        let mut aside = self.block_aside.take();
        if let Some(block) = &mut aside {
            self.exchange(block);
        }
        let asked = async {
            let link = self.enlist(NodeId::HOME, Access::Read).await?;
            Ok(link.query(sql).await?)
        };
        let asked = asked.await;
        if let Some(block) = &mut aside {
            self.exchange(block);
        }
        self.block_aside = aside;
        asked
    }

    fn exchange(&mut self, other: &mut Aside) {
        mem::swap(&mut self.transaction, &mut other.transaction);
        mem::swap(&mut self.links, &mut other.links);
        mem::swap(&mut self.permit, &mut other.permit);
        mem::swap(&mut self.checked_out, &mut other.checked_out);
        mem::swap(&mut self.refreshed, &mut other.refreshed);
        mem::swap(&mut self.flight, &mut other.flight);
    }
}

impl Transaction {
    /// Whether its own statements may see what others do not, or in another way.
    fn may_show_more(&self) -> bool {
        self.catalog_changed
            || self.changes_more
            || self.changed_alone
            || self.changed_paths
            || self.changed_sight
            || self.changed_defaults
            || self.renames
            || self.listens
            || self.defers_unseen
            || self.must_anchor.is_some()
            || self.unseen.is_some()
            || self.unseen_ran.is_some()
            || self.late_calls.is_some()
            || self.request.is_some()
            || self.own_oids.is_some()
            || !self.moved.is_empty()
            || !self.set_constraints.is_empty()
            || self.steps_come_later
            || self.catches_up_by_query()
    }
}
