//! Views that are written out: nodes are asked for rows of the tables that they read, as the client.
//!
//! Owns: that only those read one who may read it; and over tables with row security only its owner, for whom the
//! policies that count are. Never: finds out which views that concerns (the planner does).
//! Start reading at [`Executor::refuse_views_of_others`].

use tutti_sql::catalog::NodeId;
use tutti_sql::plan::Access;
use tutti_wire::error_fields::ErrorFields;

use super::Executor;
use crate::client::failure::Failure;

impl Executor<'_> {
    /// Before a statement that has these views, by OID, written out, each with the view that reads it if not the client
    /// does: that is done by the right of its owner, unless it is `security_invoker`.
    ///
    /// Errors: 42501 as on one server; 0A000 if some of a view's columns only may be read.
    pub(super) async fn refuse_unreadable_views(
        &mut self,
        views: &[(Option<u32>, u32)],
    ) -> Result<(), Failure> {
        if views.is_empty() {
            return Ok(());
        }
        let of = |(reader, view): &(Option<u32>, u32)| format!("({}, {view})", reader.unwrap_or(0));
        let views: Vec<_> = views.iter().map(of).collect();
        let sql = format!(
            "SELECT n.nspname, c.relname, a.may_look, a.may_read_some
             FROM (VALUES {}) AS v (reader, oid)
             JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) v.oid::pg_catalog.oid
             JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
             LEFT JOIN pg_catalog.pg_class r ON r.oid OPERATOR(pg_catalog.=) v.reader::pg_catalog.oid
             CROSS JOIN LATERAL (SELECT CASE WHEN r.oid IS NULL
                 OR EXISTS (SELECT FROM pg_catalog.pg_options_to_table(r.reloptions) AS o
                     WHERE o.option_name OPERATOR(pg_catalog.=) 'security_invoker'
                     AND o.option_value::pg_catalog.bool)
                 THEN current_user ELSE pg_catalog.pg_get_userbyid(r.relowner) END) AS w (who)
             CROSS JOIN LATERAL (SELECT
                 r.oid IS NOT NULL OR pg_catalog.has_schema_privilege(w.who, n.oid, 'USAGE'),
                 pg_catalog.has_table_privilege(w.who, c.oid, 'SELECT'),
                 pg_catalog.has_any_column_privilege(w.who, c.oid, 'SELECT')
             ) AS a (may_look, may_read, may_read_some)
             WHERE NOT (a.may_look AND a.may_read) ORDER BY 1, 2 LIMIT 1",
            views.join(", ")
        );
        let rows = self.tx.enlist(NodeId::HOME, Access::Read).await?.query(&sql).await?;
        let Some(row) = rows.first().filter(|rows| rows.rows.len() == 1) else { return Ok(()) };
        let text = |column| row.text(0, column).unwrap_or_default();
        let (schema, view) = (text(0), text(1));
        if text(2) != "t" {
            let message = format!("permission denied for schema {schema}");
            return Err(Failure::error("42501", message));
        }
        if text(3) != "t" {
            return Err(Failure::error("42501", format!("permission denied for view {view}")));
        }
        Err(Failure::unsupported(
            format!(
                "only some columns of view \"{view}\" may be read, and its rows are on several nodes"
            ),
            "Its query is written out, and nodes do not know which of its columns are read.",
            "Grant SELECT on the whole view.",
        ))
    }

    /// Before a statement that has these views, by OID, written out.
    ///
    /// Errors: 0A000 if one of them belongs to another role than the client has now, and is not `security_invoker`.
    pub(super) async fn refuse_views_of_others(&mut self, views: &[u32]) -> Result<(), Failure> {
        if views.is_empty() {
            return Ok(());
        }
        let views: Vec<_> = views.iter().map(u32::to_string).collect();
        let sql = format!(
            "SELECT c.relname, pg_catalog.pg_get_userbyid(c.relowner) FROM pg_catalog.pg_class c \
             WHERE c.oid OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.oid[]) \
             AND pg_catalog.pg_get_userbyid(c.relowner) OPERATOR(pg_catalog.<>) current_user \
             AND NOT EXISTS (SELECT FROM pg_catalog.pg_options_to_table(c.reloptions) AS o \
                 WHERE o.option_name OPERATOR(pg_catalog.=) 'security_invoker' \
                 AND o.option_value::pg_catalog.bool) \
             ORDER BY 1 LIMIT 1",
            views.join(",")
        );
        let rows = self.tx.enlist(NodeId::HOME, Access::Read).await?.query(&sql).await?;
        let found = rows.first().and_then(|rows| rows.text(0, 0).zip(rows.text(0, 1)));
        let Some((view, owner)) = found else { return Ok(()) };
        let message = format!("view \"{view}\" cannot be written out with the rights of its owner");
        let detail = format!(
            "Its rows are on several nodes, of tables with row security: its query would be answered by the policies \
             for the role that asks, and not by those for \"{owner}\"."
        );
        let hint = "Read it as its owner, create it WITH (security_invoker), or ask for rows that each node can find \
                    for itself.";
        Err(ErrorFields::error("0A000", message).with(b'D', detail).with(b'H', hint).into())
    }
}
