//! A session's side of its role's pause ([`Pauses`](crate::registry::pauses::Pauses)).
//!
//! Owns: when a session waits for it, and what counts as having made all sessions wait.
//! Never: knows how long a pause is.

use tokio::time::Instant;

use crate::client::failure::Failure;
use crate::transaction::TransactionContext;

impl TransactionContext {
    /// The role that must pause: none for a superuser, who may stop others anyway and is in a hurry
    /// when it happens.
    pub(crate) fn pausing_role(&self) -> Option<String> {
        let pauses = self.registry.cluster.config.switches.pauses && !self.share.is_superuser();
        pauses.then(|| self.user.clone())
    }

    /// Before something that makes all sessions wait.
    ///
    /// Errors: 57014 and 55P03, as of any wait.
    pub(crate) async fn wait_for_pause(&mut self) -> Result<(), Failure> {
        let Some(role) = self.pausing_role() else { return Ok(()) };
        let registry = self.registry.clone();
        if registry.pauses.until(&role).is_some() {
            self.while_wanted(registry.pauses.wait(&role)).await?;
        }
        Ok(())
    }

    /// Whether its role's pause is not over yet.
    pub(crate) fn is_paused(&self) -> bool {
        self.pausing_role().is_some_and(|role| self.registry.pauses.until(&role).is_some())
    }

    /// All sessions have waited for this since `begun`.
    pub(crate) fn note_pause(&self, begun: Instant) {
        if let Some(role) = self.pausing_role() {
            self.registry.pauses.note(&role, begun.elapsed());
        }
    }
}
