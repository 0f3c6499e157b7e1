//! Ends those that hold on to what is the gateways' own.
//!
//! Owns: the end of backends and prepared transactions that have locked, or wait to lock, a relation of
//! schema `tutti` in a mode that only a gateway uses.
//! Never: ends a superuser's, nor what a gateway has prepared.
//! Start reading at [`end_trespassers`]. The reasons: docs/security.md, "Locks on the schema tutti".
//!
//! Clients' roles have no right to such a lock, except members of `pg_write_all_data`, to whom a node
//! cannot refuse it: LOCK TABLE needs a right that they have on every relation.

use tutti_link::connection::NodeConnection;
use tutti_sql::catalog::quote_literal;

use crate::error::GatewayError;

/// The holders: a description and, for a prepared transaction, its identifier. Others are ended by the query
/// itself. Clients' ordinary statements lock in modes that block nothing, also through our functions; those of
/// a database's owner (VACUUM FULL, REINDEX) do not lock for long. On `backend`, which a gateway that takes a
/// node over locks against `tutti.serve`, a mode that any writer has is in its way; `tutti.serve` itself is
/// over within the second that is granted here.
const END: &str = "WITH locked AS (
    SELECT l.pid, l.virtualtransaction, pg_catalog.bool_or(c.relname OPERATOR(pg_catalog.=) 'serving') AS serving
    FROM pg_catalog.pg_locks AS l JOIN pg_catalog.pg_class AS c ON c.oid OPERATOR(pg_catalog.=) l.relation
    WHERE l.locktype OPERATOR(pg_catalog.=) 'relation'
        AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d
            WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
        AND c.relnamespace OPERATOR(pg_catalog.=) (SELECT n.oid FROM pg_catalog.pg_namespace AS n
            WHERE n.nspname OPERATOR(pg_catalog.=) 'tutti')
        AND (l.mode OPERATOR(pg_catalog.=) ANY
                ('{ShareLock,ShareRowExclusiveLock,ExclusiveLock,AccessExclusiveLock}'::pg_catalog.text[])
            OR (c.relname OPERATOR(pg_catalog.=) 'serving'
                AND l.mode OPERATOR(pg_catalog.<>) 'AccessShareLock')
            OR (c.relname OPERATOR(pg_catalog.=) 'backend' AND l.granted
                AND l.mode OPERATOR(pg_catalog.<>) ALL ('{AccessShareLock,RowShareLock}'::pg_catalog.text[])))
    GROUP BY l.pid, l.virtualtransaction
)
SELECT pg_catalog.format('process %s of role %I', a.pid, r.rolname), NULL,
    pg_catalog.pg_terminate_backend(a.pid)
FROM locked AS l JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) a.usesysid AND NOT r.rolsuper
WHERE l.serving OR a.xact_start OPERATOR(pg_catalog.<)
    (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) '1 s'::pg_catalog.interval)
UNION ALL
SELECT pg_catalog.format('prepared transaction %L of role %I', p.gid, r.rolname), p.gid, true
FROM locked AS l JOIN pg_catalog.pg_locks AS x ON x.pid IS NULL
    AND x.locktype OPERATOR(pg_catalog.=) 'transactionid'
    AND x.virtualtransaction OPERATOR(pg_catalog.=) l.virtualtransaction
JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction OPERATOR(pg_catalog.=) x.transactionid
JOIN pg_catalog.pg_roles AS r ON r.rolname OPERATOR(pg_catalog.=) p.owner AND NOT r.rolsuper
WHERE l.pid IS NULL AND NOT pg_catalog.starts_with(p.gid, 'tutti_')
    AND p.database OPERATOR(pg_catalog.=) pg_catalog.current_database()";

/// Who has locked `tutti.backend` in a way that keeps a gateway from taking the node over.
const BLOCKERS: &str = "SELECT pg_catalog.string_agg(coalesce(
        CASE WHEN a.pid IS NOT NULL
            THEN pg_catalog.format('process %s of role %s', a.pid, coalesce(a.usename, '-')) END,
        CASE WHEN p.gid IS NOT NULL
            THEN pg_catalog.format('prepared transaction %L of role %s', p.gid, p.owner) END,
        'somebody'), ', ')
FROM pg_catalog.pg_locks AS l
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid
LEFT JOIN pg_catalog.pg_locks AS x ON l.pid IS NULL AND x.pid IS NULL
    AND x.locktype OPERATOR(pg_catalog.=) 'transactionid'
    AND x.virtualtransaction OPERATOR(pg_catalog.=) l.virtualtransaction
LEFT JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction OPERATOR(pg_catalog.=) x.transactionid
WHERE l.relation OPERATOR(pg_catalog.=) 'tutti.backend'::pg_catalog.regclass::pg_catalog.oid AND l.granted
    AND l.mode OPERATOR(pg_catalog.<>) ALL ('{AccessShareLock,RowShareLock}'::pg_catalog.text[])
    AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d
        WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())";

/// Who keeps a gateway from taking the node over, in words for its operator.
pub(super) async fn blockers(connection: &mut NodeConnection) -> Result<String, GatewayError> {
    let rows = connection.rows(BLOCKERS).await?;
    Ok(rows.text(0, 0).unwrap_or("somebody who is gone now").to_owned())
}

/// Ends all that hold, or wait for, a gateway's lock on this node.
pub(super) async fn end_trespassers(connection: &mut NodeConnection) -> Result<(), GatewayError> {
    let rows = connection.rows(END).await?;
    for row in 0..rows.rows.len() {
        let node = connection.node();
        let who = rows.text(row, 0).unwrap_or_default();
        tracing::warn!(%node, who, "a client has locked tables of schema tutti, and is ended");
        if let Some(gid) = rows.text(row, 1) {
            // It may have just been ended.
            let sql = format!("ROLLBACK PREPARED {}", quote_literal(gid));
            if let Err(error) = connection.query(&sql).await {
                tracing::warn!(%node, %error, gid, "cannot end a prepared transaction");
            }
        }
    }
    Ok(())
}
