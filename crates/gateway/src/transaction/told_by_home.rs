//! What a transaction must know of what its client has given names to, to run a statement.
//!
//! Owns: the view of prepared statements, which of them node 1 has, and where a cursor is.
//! Never: makes or executes one; sends protocol messages for them.
//! Start reading at [`TransactionContext::told_by_home`].

use std::fmt::Write;
use std::time::UNIX_EPOCH;

use tutti_sql::catalog::{NodeId, quote_identifier, quote_literal};
use tutti_sql::plan::{Access, DataPlan, KeyValue, NodeChoice, Pin, Plan, Planned};

use super::named::{Portal, PreparedStatement};
use super::planning::{ends_failed_transaction, transaction_failed};
use super::{Level, Mode, TransactionContext};
use crate::client::failure::Failure;

impl TransactionContext {
    /// The rows of the view `pg_prepared_statements`, as a query.
    pub(crate) async fn prepared_statements_sql(&mut self) -> Result<String, Failure> {
        let of_home = self.told_by_home().await?;
        let mut sql = "SELECT NULL::pg_catalog.text AS name, NULL::pg_catalog.text AS statement, \
             NULL::pg_catalog.timestamptz AS prepare_time, \
             NULL::pg_catalog.regtype[] AS parameter_types, NULL::pg_catalog.bool AS from_sql, \
             NULL::pg_catalog.int8 AS generic_plans, NULL::pg_catalog.int8 AS custom_plans \
             WHERE false"
            .to_owned();
        if !of_home.is_empty() {
            let names: Vec<_> = of_home.iter().map(|name| quote_literal(name)).collect();
            write!(
                sql,
                " UNION ALL (SELECT name, statement, prepare_time, parameter_types, from_sql, \
                 generic_plans, custom_plans FROM pg_catalog.pg_prepared_statements \
                 WHERE name OPERATOR(pg_catalog.=) ANY (ARRAY[{}]::pg_catalog.text[]) ORDER BY prepare_time)",
                names.join(", ")
            )
            .expect("a String takes everything");
        }
        let is_kept_here = |name: &String| !name.is_empty() && !of_home.contains(name);
        for (name, statement) in self.statements.iter().filter(|(name, _)| is_kept_here(name)) {
            let text = statement.statement.as_ref().map_or("", |parsed| &parsed.text);
            let text = statement.source.as_deref().unwrap_or(text);
            let since = statement.prepared_at.duration_since(UNIX_EPOCH).unwrap_or_default();
            let types: Vec<_> = statement.types.iter().map(u32::to_string).collect();
            write!(
                sql,
                " UNION ALL SELECT {}, {}, pg_catalog.to_timestamp({}), \
                 '{{{}}}'::pg_catalog.oid[]::pg_catalog.regtype[], {}, 0, 0",
                quote_literal(name),
                quote_literal(text),
                since.as_secs_f64(),
                types.join(","),
                statement.from_sql
            )
            .expect("a String takes everything");
        }
        Ok(sql)
    }

    /// Whether statements commit by themselves at the moment.
    pub(crate) fn is_autocommit(&self) -> bool {
        self.transaction.mode == Mode::None
    }

    /// The session's connection to node 1 forgets what the session has given up.
    pub(crate) async fn forget_sql_statements(&mut self) -> Result<(), Failure> {
        let link = self.enlist(NodeId::HOME, Access::Read).await?;
        let known = std::mem::take(&mut link.sql_statements);
        let (kept, given_up): (Vec<_>, Vec<_>) = known.into_iter().partition(|(name, id)| {
            self.statements.get(name).is_some_and(|statement| statement.id == *id)
        });
        let Some(link) = self.links.get_mut(&NodeId::HOME) else { return Ok(()) };
        link.sql_statements = kept;
        for (name, _) in given_up {
            link.query(&format!("DEALLOCATE {}", quote_identifier(&name))).await?;
        }
        Ok(())
    }

    /// The names, as SQL, of those that node 1 itself describes. They are brought there.
    pub(crate) async fn told_by_home(&mut self) -> Result<Vec<String>, Failure> {
        let of_home = |(name, statement): (&String, &PreparedStatement)| {
            statement.source.is_some().then(|| name.clone())
        };
        let names: Vec<_> = self.statements.iter().filter_map(of_home).collect();
        if !self.catalog.is_solo() || names.is_empty() {
            return Ok(Vec::new());
        }
        self.forget_sql_statements().await?;
        let link = self.links.get(&NodeId::HOME);
        let known = link.map_or_else(Vec::new, |link| link.sql_statements.clone());
        let is_known = |name: &String| known.iter().any(|(there, _)| there == name);
        Ok(names.into_iter().filter(is_known).collect())
    }

    /// Whether a pin depends on a parameter in binary form whose type is not given.
    pub(crate) fn pins_need_types(&self, planned: &Planned, name: &str) -> bool {
        let Plan::Data(DataPlan::One { node: NodeChoice::Pinned(pins), .. }) = &planned.plan else {
            return false;
        };
        let Some(statement) = self.statements.get(name) else { return false };
        let parts = || pins.iter().flat_map(Pin::parts);
        1 < parts().count()
            && !statement.described
            && parts().any(|part| match part.value {
                KeyValue::Parameter(index) => {
                    statement.types.get(usize::from(index)).copied().unwrap_or(0) == 0
                }
                KeyValue::Bucket(_) | KeyValue::Literal(_) | KeyValue::Several(_) => false,
            })
    }

    pub(crate) fn refuse_if_failed(&self, planned: &Planned) -> Result<(), Failure> {
        if self.transaction.failed && !ends_failed_transaction(planned) {
            return Err(transaction_failed());
        }
        Ok(())
    }

    /// Errors: 0A000 for a statement that reads what may be late in a transaction that is to be as if alone.
    pub(crate) fn refuse_late_reads(&self, planned: &Planned) -> Result<(), Failure> {
        if !planned.may_be_late || self.level() != Level::Serializable || self.catalog.is_solo() {
            return Ok(());
        }
        Err(Failure::unsupported(
            "asynchronously replicated tables cannot be read at SERIALIZABLE",
            "A node may have their rows late, and no conflict with those who write them at their homes would be \
             found.",
            "Read them at REPEATABLE READ, or make the table replicated: SELECT tutti_replicate(…).",
        ))
    }

    /// Where a cursor is, or a portal of the extended protocol, which SQL knows as one; what is unknown is
    /// looked for on node 1.
    pub(crate) fn node_of_cursor(&self, cursor: &str) -> NodeId {
        let declared = self.cursors.get(cursor).map(|cursor| cursor.node);
        let bound = || self.portals.get(cursor).and_then(Portal::node);
        declared.or_else(bound).unwrap_or(NodeId::HOME)
    }
}
