//! Who carries out a plan: transactions, settings, prepared statements and channels the session, all else the
//! executor.
//!
//! Owns: choosing what carries out a plan. Never: carries one out.

use tutti_sql::plan::{Plan, Planned, SessionPlan, TuttiCall};

use super::Session;
use crate::client::failure::Failure;
use crate::plans::request::{Call, Done};

impl Session {
    /// Carries out `planned`, whose statement is `text`.
    pub(crate) async fn execute(
        &mut self,
        planned: &Planned,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        if matches!(planned.plan, Plan::Schema(_) | Plan::Session(SessionPlan::Tutti(_)))
            && let Some(done) = Box::pin(self.replicate(planned, text, call)).await?
        {
            return Ok(done);
        }
        let Plan::Session(plan) = &planned.plan else {
            return self.executor().execute(planned, text, call).await;
        };
        let begun = self.executor().begin(planned, text, call).await?;
        let ran = self.obey(plan, &begun.sent, call).await;
        self.executor().end(begun, planned, text, ran).await
    }

    async fn obey(&mut self, plan: &SessionPlan, text: &str, call: &Call) -> Result<Done, Failure> {
        match plan {
            SessionPlan::Transaction(control) => {
                self.transaction_control(control, text, call).await
            }
            SessionPlan::Setting(setting) => self.execute_setting(setting, text, call).await,
            SessionPlan::PreparedCommand(prepared) => {
                Box::pin(self.execute_prepared(prepared, text, call)).await
            }
            SessionPlan::Notification { listens } => self.notification(*listens, text, call).await,
            // What it asks of the gateway takes the executor's means: moving rows, asking nodes.
            SessionPlan::Tutti(function @ TuttiCall::Request(asked)) => {
                Box::pin(self.request(function, asked, text, call)).await
            }
            SessionPlan::Tutti(function) => {
                self.executor().call_own_function(function, text, call).await
            }
            SessionPlan::Empty => Ok(Done::Empty),
        }
    }
}
