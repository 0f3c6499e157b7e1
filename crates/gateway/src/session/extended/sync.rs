//! Close and Sync: what ends a statement, a portal, a flight.
//!
//! Owns: the end of a flight: Syncs to nodes, the implicit transaction's commit, ReadyForQuery.
//! Never: decides how a transaction commits (`commit` does).
//! Start reading at [`Session::sync`].

use tutti_link::connection::NodeError;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::Access;
use tutti_wire::backend::put_bare;
use tutti_wire::frontend::{Target, put_close, put_sync};

use super::due::{Expect, Undo};
use super::pipeline::put_own_statement;
use crate::client::ClientError;
use crate::client::failure::Failure;
use crate::executor::Refused;
use crate::session::Session;
use crate::transaction::Mode;
use crate::transaction::named::Portal;

impl Session {
    pub(super) async fn close(&mut self, target: Target, name: String) -> Result<(), Failure> {
        let mut undo = Undo::Nothing;
        match target {
            Target::Portal => {
                let portal = self.portal(&name).ok();
                self.tx.portals.remove(&name);
                self.tx.cursors.remove(&name);
                if let Some(Portal::Node { node, .. }) = portal {
                    self.switch_to(node, Access::Read).await?;
                    let link = self.tx.links.at(&node);
                    put_close(link.connection().outgoing(), Target::Portal, &name);
                    self.pipeline.expects.push_back(Expect::SilentClose);
                }
            }
            // Nodes forget a statement when its name is used again.
            Target::Statement => {
                if let Some(statement) = self.tx.statements.remove(&name) {
                    undo = Undo::Restore(name, Box::new(statement));
                }
            }
        }
        self.respond(undo, |out| put_bare(out, b'3'));
        Ok(())
    }

    pub(super) async fn sync(&mut self) -> Result<(), ClientError> {
        let mut synced = self.finish_pipeline().await;
        if synced.is_err() {
            synced = Box::pin(self.run_flight_again(synced, true)).await;
        }
        (self.pipeline.kept, self.pipeline.has_begun) = (None, false);
        let failed = synced.is_err() || self.pipeline.skipping;
        self.skip_on_failure(synced).await?;
        self.pipeline.skipping = false;
        let quiet = match failed {
            true => self.undo_flight().await,
            false => self.sync_nodes().await,
        };
        let ended = match (quiet, self.tx.transaction.mode, failed) {
            // A flight has one error, and the client has it.
            (Err(Failure::Statement(error)), mode, true) => {
                tracing::debug!(error = error.message(), "a flight that has failed fails again");
                self.tx.fail_transaction();
                if mode == Mode::Implicit {
                    self.rollback().await;
                }
                Ok(())
            }
            (Err(failure), ..) => Err(failure),
            (Ok(()), Mode::Implicit, true) => {
                self.rollback().await;
                Ok(())
            }
            (Ok(()), Mode::Implicit, false) => self.commit().await,
            (Ok(()), Mode::None | Mode::Explicit, _) => Ok(()),
        };
        self.report(ended).await?;
        self.tx.undo_failed().await;
        self.tx.release_exporters();
        self.pass_notifications();
        self.pipeline.in_progress = None;
        if self.tx.transaction.mode == Mode::None {
            self.tx.portals.clear();
            self.pipeline.forget_portals();
            self.tx.conclude_cursors(!failed);
        }
        self.client.put_ready(self.tx.transaction.status());
        self.client.flush().await
    }

    /// Outside a transaction, Sync commits what ran on its node: like any commit, it waits for its
    /// causes, which may have become visible after its statement, and passes the rooms.
    async fn pass_before_sync(&mut self) -> Result<(), Failure> {
        if self.tx.transaction.mode == Mode::None && self.tx.unseen_late_calls().is_some() {
            self.drain().await?;
            // To ask the node would end its transaction.
            self.tx.begin_late_calls_of_flight().await?;
        }
        if std::mem::take(&mut self.pipeline.wrote) && self.tx.transaction.mode == Mode::None {
            for node in self.nodes_of_flight() {
                self.tx.wait_for_visible(node).await?;
            }
            self.tx.pass_rooms().await?;
        }
        Ok(())
    }

    /// Nodes on which something of the flight ran.
    pub(super) fn nodes_of_flight(&self) -> Vec<NodeId> {
        let unsynced = self.tx.flight.iter();
        unsynced.filter(|(_, ran)| **ran).map(|(node, _)| *node).collect()
    }

    /// The end of a flight that has failed: nothing of it remains, whichever side found the error. What
    /// ran outside a transaction would be committed by its node's Sync. (A node that has failed itself
    /// skips what comes before that.)
    pub(super) async fn undo_flight(&mut self) -> Result<(), Failure> {
        self.pipeline.wrote = false;
        let ran = match self.tx.transaction.mode {
            Mode::None => self.nodes_of_flight(),
            Mode::Implicit | Mode::Explicit => Vec::new(),
        };
        for node in ran {
            self.tx.flight.remove(&node);
            let Some(link) = self.tx.links.get_mut(&node) else { continue };
            link.unnamed = None;
            let out = link.connection().outgoing();
            put_own_statement(out, "ROLLBACK");
            put_sync(out);
            // The node warns that there is no block. If it cannot be reached, it has rolled back
            // what it did.
            let undone = match link.connection().flush().await {
                Ok(()) => link.finish_flight().await,
                Err(error) => Err(error),
            };
            if let Err(error) = undone {
                tracing::debug!(%node, %error, "a node is gone, and what it has not committed");
                self.tx.links.remove(&node);
                self.tx.end_if_bound(node);
            }
        }
        self.pass_reports_on();
        self.sync_nodes().await
    }

    pub(super) async fn finish_pipeline(&mut self) -> Result<(), Failure> {
        if self.pipeline.skipping {
            return Ok(());
        }
        self.check_unchecked().await?;
        self.pass_before_sync().await?;
        if let Some(node) = self.pipeline.node {
            self.may_flush(node)?;
        }
        // The node's Sync travels with what it ends, so that one flight suffices.
        if self.tx.flight.len() == 1
            && let Some(node) = self.pipeline.node
            && self.tx.flight.contains_key(&node)
            && let Some(link) = self.tx.links.get_mut(&node)
        {
            put_sync(link.connection().outgoing());
            link.connection().flush().await?;
            let drained = self.read_expected().await;
            // ReadyForQuery is read here in any case: errors are answered before it.
            let ready = self.read_ready(node).await;
            self.tx.flight.clear();
            self.forget_flight();
            self.pipeline.node = None;
            return drained.and(ready);
        }
        self.drain().await
    }

    pub(super) async fn read_ready(&mut self, node: NodeId) -> Result<(), Failure> {
        let Some(link) = self.tx.links.get_mut(&node) else { return Ok(()) };
        // A BEGIN that was sent silently has a ReadyForQuery of its own, which comes first.
        let mut refused = match link.catch_up().await? {
            Some(NodeError::Refused(fields)) => Refused(Some(*fields)),
            Some(error) => return Err(error.into()),
            None => Refused::default(),
        };
        loop {
            let frame = link.connection().next_frame().await?;
            match frame.tag() {
                b'Z' => {
                    link.answered();
                    break;
                }
                // A deferred constraint, or a commit that failed.
                b'E' if refused.is_end(link, &frame)? => break,
                b'E' => (),
                b'N' => self.client.out().extend_from_slice(frame.as_bytes()),
                b'A' => link.put_notification(self.client.out(), &frame),
                b'S' => self.client.report_setting(link, &frame)?,
                _ => (),
            }
        }
        refused.into_result()
    }

    /// Sends Sync to every node that has received messages since the last, and waits for each.
    pub(super) async fn sync_nodes(&mut self) -> Result<(), Failure> {
        let nodes = std::mem::take(&mut self.tx.flight);
        self.pipeline.node = None;
        let mut outcome = Ok(());
        for node in nodes.into_keys() {
            if let Some(link) = self.tx.links.get_mut(&node) {
                put_sync(link.connection().outgoing());
                let flushed = link.connection().flush().await;
                let ready = match flushed {
                    Ok(()) => self.read_ready(node).await,
                    Err(error) => Err(error.into()),
                };
                outcome = outcome.and(ready);
            }
        }
        self.forget_flight();
        outcome
    }

    /// Nodes have been sent a Sync: what was open there outside of a transaction is not any more.
    fn forget_flight(&mut self) {
        if !self.tx.transaction.is_open() {
            self.tx.forget_refreshed();
        }
    }
}
