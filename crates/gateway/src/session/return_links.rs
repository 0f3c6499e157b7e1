//! Between messages: connections that nothing binds are released to the pool.
//!
//! Owns: what they are asked before that. Never: what binds one (`transaction::checkout` does).

use std::sync::Arc;

use tutti_sql::catalog::NodeId;

use super::Session;
use crate::client::ClientError;
use crate::transaction::checkout::UNKNOWN;

impl Session {
    /// Between messages: outside of a transaction, connections that nothing binds are released.
    ///
    /// Errors: the client is lost.
    pub(super) async fn return_links(&mut self) -> Result<(), ClientError> {
        if self.tx.transaction.is_open() || !self.is_at_rest() {
            return Ok(());
        }
        self.tx.bind_to_what_was_lost();
        if self.tx.links.is_empty() {
            self.tx.permit = None;
            return Ok(());
        }
        let mut left = std::mem::take(&mut self.tx.residue);
        // Before the client is told, for it may tell others.
        if std::mem::take(&mut left.schema) {
            match self.tx.catalog.is_solo() {
                true => self.tx.registry.cluster.publisher.note_changed(),
                // What code can reach decides how statements run.
                false => Box::pin(self.tx.publish_unseen()).await,
            }
        }
        if std::mem::take(&mut self.tx.changed_defaults) {
            self.tx.registry.pool.renew();
        }
        // It is not known what code there is: it may have left anything.
        let publisher = &self.tx.registry.cluster.publisher;
        let is_behind = self.tx.catalog.is_solo()
            && (publisher.is_behind() || !Arc::ptr_eq(&publisher.catalog(), &self.tx.catalog));
        if is_behind {
            publisher.catch_up_at_leisure();
            // As long as there are enough connections for all, a session gets its own back.
            let may_be_lent = !self.tx.registry.pool.has_room(NodeId::HOME);
            left.anything |= may_be_lent;
            left.values |= may_be_lent;
        }
        let is_unknown = self.tx.bindings.values().any(|words| words == UNKNOWN);
        if left.anything || !left.settings.is_empty() || is_unknown {
            // The client need not wait for what is asked now.
            self.client.flush().await?;
            Box::pin(self.tx.learn_what_is_left(&left, is_behind)).await;
        }
        if left.anything {
            self.tx.links.values_mut().for_each(|link| link.known.doubt_all());
        }
        let owes = |node: &NodeId| self.tx.links.get(node).is_some_and(|link| !link.is_quiet());
        if self.tx.bindings.keys().any(owes) {
            // The client need not wait for what is awaited now.
            self.client.flush().await?;
        }
        self.tx.mend_bound_links().await;
        if let Err(error) = self.tx.forget_seen_tables().await {
            tracing::debug!(%error, "a connection was lost when it was free");
        }
        loop {
            let is_free = |node: &&NodeId| !self.tx.bindings.contains_key(node);
            let Some(node) = self.tx.links.keys().find(is_free).copied() else { break };
            let Some(mut link) = self.tx.links.remove(&node) else { continue };
            link.residue.merge(left.clone());
            link.residue.anything |= is_behind;
            link.residue.values |= is_behind;
            // Which names with a dot unseen code has set may be unknown.
            link.has_placeholders |= self.tx.settings.has_placeholders || left.values;
            if !link.is_quiet() && self.tx.may_be_released(&link) {
                self.client.flush().await?;
            }
            self.tx.release_link(node, link).await;
        }
        if self.tx.links.is_empty() {
            self.tx.permit = None;
        }
        Ok(())
    }
}
