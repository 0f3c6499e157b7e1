//! The table that is to move with its partitions and children, as node 1 knows them.
//!
//! Owns: which tables belong together, and what about them forbids that rows move.
//! Never: looks at rows or changes anything.

use tutti_link::connection::NodeConnection;
use tutti_sql::catalog::{Relation, quote_identifier, quote_literal};
use tutti_sql::refusal::Refusal;

use super::super::placement::Registration;
use super::super::rows::Answer;
use crate::error::GatewayError;

/// A table that belongs to the one that was named.
pub(super) struct Member {
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) partitioned: bool,
    /// Row security holds for its owner too.
    pub(super) forced: bool,
}

/// The table with all its partitions and children; other sessions' temporary ones are not seen through it.
pub(super) async fn read_family(
    home: &mut NodeConnection,
    relation: &Relation,
) -> Result<Vec<Member>, GatewayError> {
    let sql = format!(
        "WITH RECURSIVE family (oid) AS (
    SELECT {0}::pg_catalog.oid
    UNION SELECT h.inhrelid FROM family f JOIN pg_catalog.pg_inherits h ON h.inhparent OPERATOR(pg_catalog.=) f.oid
    JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) h.inhrelid AND (
        c.relpersistence OPERATOR(pg_catalog.<>) 't' OR c.relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())
)
SELECT n.nspname, c.relname, c.relkind,
    EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhrelid OPERATOR(pg_catalog.=) {0}::pg_catalog.oid),
    pg_catalog.pg_has_role(c.relowner, 'USAGE'), c.relpersistence OPERATOR(pg_catalog.=) 't',
    c.relrowsecurity AND c.relforcerowsecurity
FROM family f JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) f.oid
JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
ORDER BY c.oid OPERATOR(pg_catalog.=) {0}::pg_catalog.oid DESC, n.nspname, c.relname",
        relation.oid
    );
    let rows = home.rows(&sql).await?;
    let answer = Answer { node: home.node(), what: "a table's partitions", rows: &rows };
    let mut family = Vec::with_capacity(answer.len());
    for row in 0..answer.len() {
        let name = answer.text(row, 1)?.to_owned();
        if !answer.boolean(row, 4)? {
            return Err(Refusal::postgres("42501", format!("must be owner of table {name}")).into());
        }
        if answer.boolean(row, 3)? {
            return Err(Refusal::unsupported(
                format!("cannot redistribute \"{}\" alone", relation.name),
                "It is a partition or child of another table, whose rows must be on the same nodes.",
                "Name the topmost table; its partitions and children follow.",
            )
            .into());
        }
        let kind = answer.text(row, 2)?;
        if !matches!(kind, "r" | "p") {
            return Err(Refusal::unsupported(
                format!("cannot redistribute \"{}\"", relation.name),
                format!("Its partition \"{name}\" is a foreign table: its rows are on no node."),
                "Detach the foreign table first.",
            )
            .into());
        }
        if answer.boolean(row, 5)? {
            return Err(Refusal::unsupported(
                format!("cannot redistribute \"{}\"", relation.name),
                format!("Its child \"{name}\" is a temporary table, which is on node 1 alone."),
                "Drop the temporary table first.",
            )
            .into());
        }
        family.push(Member {
            schema: answer.text(row, 0)?.to_owned(),
            name,
            partitioned: kind == "p",
            forced: answer.boolean(row, 6)?,
        });
    }
    Ok(family)
}

/// Triggers and rules that fire in replicas too would fire for rows that only travel.
pub(super) async fn what_fires(
    home: &mut NodeConnection,
    relation: &Relation,
    family: &[Registration],
) -> Result<Option<Refusal>, GatewayError> {
    let name = |table: &Registration| {
        let (schema, table) = (quote_identifier(&table.schema), quote_identifier(&table.table));
        quote_literal(&format!("{schema}.{table}"))
    };
    let family: Vec<_> = family.iter().map(name).collect();
    let sql = format!(
        "WITH family (oid) AS (SELECT pg_catalog.unnest(ARRAY[{}])::pg_catalog.regclass::pg_catalog.oid)
SELECT pg_catalog.format('trigger \"%s\"', t.tgname), t.tgrelid::pg_catalog.regclass::pg_catalog.text,
    CASE WHEN t.tgenabled OPERATOR(pg_catalog.=) 'A' THEN 'ALWAYS' ELSE 'REPLICA' END
FROM family f JOIN pg_catalog.pg_trigger t ON t.tgrelid OPERATOR(pg_catalog.=) f.oid
WHERE NOT t.tgisinternal AND t.tgenabled OPERATOR(pg_catalog.=) ANY ('{{A,R}}')
UNION ALL SELECT pg_catalog.format('rule \"%s\"', r.rulename),
    r.ev_class::pg_catalog.regclass::pg_catalog.text,
    CASE WHEN r.ev_enabled OPERATOR(pg_catalog.=) 'A' THEN 'ALWAYS' ELSE 'REPLICA' END
FROM family f JOIN pg_catalog.pg_rewrite r ON r.ev_class OPERATOR(pg_catalog.=) f.oid
WHERE r.ev_type OPERATOR(pg_catalog.<>) '1' AND r.ev_enabled OPERATOR(pg_catalog.=) ANY ('{{A,R}}') ORDER BY 2, 1",
        family.join(", ")
    );
    let rows = home.rows(&sql).await?;
    let answer = Answer { node: home.node(), what: "triggers that fire always", rows: &rows };
    if answer.is_empty() {
        return Ok(None);
    }
    let (what, of, when) = (answer.text(0, 0)?, answer.text(0, 1)?, answer.text(0, 2)?);
    Ok(Some(Refusal::unsupported(
        format!("cannot redistribute \"{}\"", relation.name),
        format!("The {what} of {of} is ENABLE {when}: it would fire for rows that only travel."),
        "ALTER TABLE … DISABLE it, redistribute the table, and ENABLE it as it was, in one transaction.",
    )))
}
