//! Which plans the session carries out itself.
//!
//! Owns: the way from a plan to whoever carries it out. Never: carries one out.

use tutti_sql::plan::{Plan, Planned};

use super::Session;
use crate::client::failure::Failure;
use crate::plans::request::{Call, Done};

impl Session {
    /// Carries out `planned`, whose statement is `text`: what changes the session itself here, all else by the
    /// executor.
    pub(crate) async fn execute(
        &mut self,
        planned: &Planned,
        text: &str,
        call: &Call,
    ) -> Result<Done, Failure> {
        if !matches!(planned.plan, Plan::Setting(_) | Plan::Prepared(_) | Plan::Transaction(_)) {
            return self.executor().execute(planned, text, call).await;
        }
        let begun = self.executor().begin(planned, text, call).await?;
        let sent = &begun.sent;
        let ran = match &planned.plan {
            Plan::Setting(setting) => self.execute_setting(setting, sent, call).await,
            Plan::Prepared(prepared) => Box::pin(self.execute_prepared(prepared, sent, call)).await,
            Plan::Transaction(control) => self.transaction_control(control, sent, call).await,
            _ => unreachable!("the executor has carried it out"),
        };
        self.executor().end(begun, planned, text, ran).await
    }
}
