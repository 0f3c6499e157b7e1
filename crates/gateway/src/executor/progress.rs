//! `tutti_progress()`: how far tables are that are getting another placement.
//!
//! Owns: who may see what: of others' sessions only that they do this, as in `pg_stat_progress_…`.
//! Never: counts anything; who moves the tables does.

use tutti_sql::catalog::{NodeId, quote_literal};
use tutti_sql::plan::Access;

use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::registry::redistributions::Listed;

/// Names of its columns.
pub(super) const COLUMNS: [&str; 9] = [
    "pid",
    "relation",
    "phase",
    "rows",
    "bytes",
    "estimated_rows",
    "tables_done",
    "tables_total",
    "begun",
];

impl Executor<'_> {
    pub(super) async fn progress(&mut self) -> Result<Vec<Vec<Option<String>>>, Failure> {
        let listed = self.tx.registry.redistributions.list();
        if listed.is_empty() {
            return Ok(Vec::new());
        }
        let asked = listed.iter().map(|it| {
            let seconds = it.begun.elapsed().as_secs_f64();
            format!("({}, {seconds}::pg_catalog.float8)", quote_literal(&it.role))
        });
        // Whether the client may see it, and when it began, by node 1's clock and in the session's time zone.
        let sql = format!(
            "SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE')
    OR coalesce((SELECT pg_catalog.pg_has_role(r.oid, 'USAGE') FROM pg_catalog.pg_roles r
        WHERE r.rolname OPERATOR(pg_catalog.=) v.role), false),
    (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.make_interval(0, 0, 0, 0, 0, 0, v.seconds))::pg_catalog.text
FROM (VALUES {}) AS v (role, seconds)",
            asked.collect::<Vec<_>>().join(", ")
        );
        let rows = self.tx.enlist(NodeId::HOME, Access::Read).await?.query(&sql).await?;
        let rows = rows.first().cloned().unwrap_or_default();
        let row = |(index, it): (usize, Listed)| {
            let pid = Some(it.process_id.to_string());
            if rows.text(index, 0) != Some("t") {
                return [pid].into_iter().chain(vec![None; COLUMNS.len() - 1]).collect();
            }
            let seen = it.seen;
            vec![
                pid,
                Some(seen.relation),
                Some(seen.phase.as_str().to_owned()),
                Some(seen.rows.to_string()),
                Some(seen.bytes.to_string()),
                seen.estimated_rows.map(|rows| rows.to_string()),
                Some(seen.tables_done.to_string()),
                Some(seen.tables_total.to_string()),
                rows.text(index, 1).map(str::to_owned),
            ]
        };
        Ok(listed.into_iter().enumerate().map(row).collect())
    }
}
