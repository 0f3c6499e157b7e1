//! Reads of a READ COMMITTED block that would bring all their rows to one node, because its parts see several moments:
//! many rows are worth connections beside the block, which see one.
//!
//! Owns: which statements these are, and that one which meets a lock there is carried out in its block after all.
//! Never: says what a block may not have done before (`transaction::apart` does).

use tutti_sql::plan::{Access, DataPlan, Gather, Plan, Planned, Residue};
use tutti_sql::statement;
use tutti_wire::sqlstate;

use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Done};
use crate::registry::activity::says_overtaken;

/// Fewer rows are brought together in the block: that takes no further connections.
const ROWS_MIN: f64 = 2_000.0;

impl Executor<'_> {
    /// What the statement would bring to one node, if it may be carried out apart from its block.
    pub(super) fn may_read_apart<'p>(&self, planned: &'p Planned) -> Option<&'p Gather> {
        // What nodes can say in parts they say in the block.
        let gathers_all = gathered(planned).filter(|gather| gather.partial.is_none());
        gathers_all.filter(|_| self.tx.may_read_apart())
    }

    /// Carries it out apart from the block; `None` where it is to be carried out in it.
    ///
    /// Requires: [`Self::may_read_apart`] has given `gather`.
    pub(super) async fn read_apart(
        &mut self,
        gather: &Gather,
        text: &str,
        call: &Call,
    ) -> Result<Option<Done>, Failure> {
        if !self.is_worth_it(gather, call).await? || !self.tx.set_block_aside() {
            return Ok(None);
        }
        let written = self.client.written();
        let ran = self.run_apart(text, call).await;
        self.tx.take_block_back(ran.is_ok()).await;
        if let Err(Failure::Statement(error)) = &ran
            && (error.sqlstate() == sqlstate::LOCK_NOT_AVAILABLE
                || says_overtaken(error)
                || self.tx.activity.take_deadlock(error))
            && let Some(start) = self.client.said_again(written)
        {
            // Whoever has the lock may be waiting for the block.
            self.client.take_back(start);
            return Ok(None);
        }
        ran
    }

    /// Carries it out by the plan that it has by itself; `None` where that reads something of its own session's.
    async fn run_apart(&mut self, text: &str, call: &Call) -> Result<Option<Done>, Failure> {
        let Some(statement) = statement::parse(text)?.pop() else { return Ok(None) };
        let alone = self.tx.plan(&statement)?;
        if gathered(&alone).is_none() {
            return Ok(None);
        }
        self.tx.note_read_apart(&alone);
        Box::pin(self.execute(&alone, text, call)).await.map(Some)
    }

    async fn is_worth_it(&mut self, gather: &Gather, call: &Call) -> Result<bool, Failure> {
        if let Some(drawn) = self.drawn("apart", &gather.statement, 2) {
            return Ok(drawn == 0);
        }
        let rows = self.expected_rows(&gather.collects, call).await?;
        let expected = gather.collects.iter().map(|collect| rows.get(&collect.select.to_string()));
        Ok(ROWS_MIN <= expected.flatten().sum::<f64>())
    }
}

/// The query, where it reads what any session would.
fn gathered(planned: &Planned) -> Option<&Gather> {
    match &planned.plan {
        Plan::Data(DataPlan::Gather(gather)) => {
            let is_plain = planned.unseen.is_none()
                && planned.residue == Residue::default()
                && planned.session_names.is_empty()
                && !planned.unasked
                && !planned.keeps_entries;
            let reads = gather.access == Access::Read && !gather.locks_rows();
            // Another session's connection may answer it.
            (is_plain && reads && gather.in_tables.is_some()).then_some(gather)
        }
        Plan::Data(DataPlan::Explain(explain)) => gathered(&explain.of),
        _ => None,
    }
}
