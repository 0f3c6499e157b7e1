//! What a change of the schema, or a deadlock over several nodes, has ended before its client was told anything is run
//! again: one PostgreSQL would have let it wait.
//!
//! Owns: which failures these are, how often they may come, and whose time that costs.
//! Never: runs anything. Who does: `simple` a Query, `extended/again` a flight, `fast_path` what one node runs.
//! Start reading at [`Session::is_to_run_again`].

use std::time::Instant;
use tutti_wire::sqlstate;

use crate::client::failure::Failure;
use crate::registry::activity::says_overtaken;
use crate::session::Session;
use crate::transaction::Mode;
use crate::transaction::waiting::canceled;

/// After so many runs a statement reports the deadlock that has ended it, a flight the change, and what takes the short
/// way takes the long one.
pub(super) const RUNS_MAX: u32 = 20;

impl Session {
    /// The client has not been sent what was said from `start` on: the statement is run again. `overtaken`:
    /// how often that has been; from the second time on changes wait for it.
    pub(super) fn take_back(&mut self, start: usize, overtaken: &mut u32) {
        self.client.take_back(start);
        *overtaken += 1;
        self.tx.locks_in_turn = true;
        if 1 < *overtaken {
            self.tx.starving = Some(self.tx.registry.cluster.publisher.starve());
        }
    }

    /// Before a statement that began at `begun` is run again: its nodes know only of its last run.
    ///
    /// Errors: 57014 if its time has run out.
    pub(super) async fn heed_timeout(&mut self, begun: Instant) -> Result<(), Failure> {
        if self.tx.activity.is_cancelled() {
            return Err(canceled(sqlstate::QUERY_CANCELED, "user request"));
        }
        match self.tx.statement_timeout().await? {
            Some(timeout) if timeout <= begun.elapsed() => {
                Err(canceled(sqlstate::QUERY_CANCELED, "statement timeout"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a statement, of which the client has been sent nothing, failed only because its plan was
    /// overtaken; or as the victim of a deadlock over several nodes: on one server it would have held
    /// all its locks or waited for them. `times`: how often it has been run again.
    /// Requires: it is rolled back before it runs again.
    pub(super) fn is_to_run_again(&self, ran: &Result<(), Failure>, times: u32) -> bool {
        let Err(Failure::Statement(error)) = ran else { return false };
        if self.tx.activity.is_cancelled() {
            return false;
        }
        let is_whole = self.tx.transaction.mode == Mode::Implicit;
        says_overtaken(error)
            || self.tx.activity.take_overtaken(error)
            || (is_whole && times < RUNS_MAX && self.tx.activity.take_deadlock(error))
    }

    /// Whether a statement was stopped by a change of placements before anything of it was sent: it may
    /// be planned again in its transaction, which is unaffected.
    pub(super) fn is_unsent<T>(&self, ran: &Result<T, Failure>) -> bool {
        matches!(ran, Err(Failure::Statement(error)) if says_overtaken(error))
            && self.tx.activity.plan.is_overtaken_unsent()
            && !self.tx.transaction.failed
            && !self.tx.transaction.doomed
    }
}
