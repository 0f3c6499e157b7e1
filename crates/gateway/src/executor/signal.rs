//! `pg_cancel_backend` and `pg_terminate_backend` for the gateway's sessions.
//!
//! Owns: which session a number means, and whether the client may end it: PostgreSQL's own rules.
//! Never: signals a process of a node.

use std::time::Duration;

use tutti_sql::catalog::{NodeId, quote_literal};
use tutti_sql::plan::{Access, SignalTarget};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::Call;
use crate::registry::activity::TERMINATED_MESSAGE;
use crate::transaction::processes::ASKED_SIGNALS;

/// How long a session that is to end may take, before it is ended by force.
const FORCE_PATIENCE: Duration = Duration::from_secs(10);

impl Executor<'_> {
    /// Sends the signals that the statement has asked for.
    ///
    /// Errors: 42501 where PostgreSQL would refuse one; earlier ones have been sent.
    pub(crate) async fn send_asked_signals(&mut self) -> Result<(), Failure> {
        let sql = format!(
            "SELECT pg_catalog.current_setting('{ASKED_SIGNALS}', true),
                 pg_catalog.set_config('{ASKED_SIGNALS}', '', true)"
        );
        let link = self.tx.enlist(NodeId::HOME, Access::Read).await?;
        link.has_placeholders = true;
        let rows = link.query(&sql).await?;
        let asked = rows.first().and_then(|rows| rows.text(0, 0)).unwrap_or_default().to_owned();
        for signal in asked.split_whitespace() {
            let terminates = signal.starts_with('t');
            let target = signal.get(1..).and_then(|number| number.parse().ok());
            self.signal(target, terminates).await?;
        }
        Ok(())
    }

    /// The number that was given; `None`: NULL, or in a form that only a node can read.
    pub(super) fn signal_target(&self, target: SignalTarget, call: &Call) -> Option<i32> {
        match (target, call.client()) {
            (SignalTarget::Own, _) => Some(self.tx.process_id),
            (SignalTarget::Constant(number), _) => Some(number),
            (SignalTarget::Parameter(index), Call::Extended { arguments, .. }) => {
                let index = usize::from(index);
                let value = arguments.values.get(index)?.as_ref()?;
                match arguments.format(index) {
                    0 => std::str::from_utf8(value).ok()?.parse().ok(),
                    _ => Some(i32::from_be_bytes(value.as_ref().try_into().ok()?)),
                }
            }
            (SignalTarget::Parameter(_), Call::Simple | Call::Carrying(_)) => None,
        }
    }

    /// Cancels or ends a session. `None`: the gateway has none of this number.
    ///
    /// Errors: 42501 where PostgreSQL would refuse.
    pub(crate) async fn signal(
        &mut self,
        target: Option<i32>,
        terminates: bool,
    ) -> Result<Option<bool>, Failure> {
        let Some(target) = target else { return Ok(None) };
        let Some(user) = self.tx.registry.backends.user_of(target) else { return Ok(None) };
        let user = quote_literal(&user);
        let sql = format!(
            "SELECT me.rolsuper, it.rolsuper, pg_catalog.pg_has_role(it.rolname, 'USAGE'),
                 pg_catalog.pg_has_role('pg_signal_backend', 'USAGE')
             FROM pg_catalog.pg_roles me, pg_catalog.pg_roles it
             WHERE me.rolname OPERATOR(pg_catalog.=) current_user AND it.rolname OPERATOR(pg_catalog.=) {user}"
        );
        let rows = self.tx.enlist(NodeId::HOME, Access::Read).await?.query(&sql).await?;
        let is = |column| rows.first().and_then(|rows| rows.text(0, column)) == Some("t");
        let (i_am_superuser, it_is_superuser, has_role, may_signal) = (is(0), is(1), is(2), is(3));
        let what =
            if terminates { "process is being terminated" } else { "query is being canceled" };
        if it_is_superuser && !i_am_superuser {
            let verb =
                if terminates { "terminate superuser process" } else { "cancel superuser query" };
            return Err(Failure::error("42501", format!("must be a superuser to {verb}")));
        }
        if !i_am_superuser && !has_role && !may_signal {
            let message =
                format!("must be a member of the role whose {what} or member of pg_signal_backend");
            return Err(Failure::error("42501", message));
        }
        let registry = self.tx.registry.clone();
        if target != self.tx.process_id {
            match terminates {
                true => registry.end_session(target, TERMINATED_MESSAGE, FORCE_PATIENCE).await,
                false => registry.cancel_session(target).await,
            }
            return Ok(Some(true));
        }
        if terminates {
            registry.activities.terminate(target, TERMINATED_MESSAGE);
        }
        // The statement that asks for it is the one that is cancelled.
        Err(match terminates {
            true => ErrorFields::fatal(sqlstate::ADMIN_SHUTDOWN, TERMINATED_MESSAGE).into(),
            false => {
                Failure::error(sqlstate::QUERY_CANCELED, "canceling statement due to user request")
            }
        })
    }
}
