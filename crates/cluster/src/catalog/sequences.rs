//! Sequences outside node 1: there they exist, and never yield a value.
//!
//! Owns: making a `nextval` that runs on the wrong node by mistake fail instead of yielding a value
//! that node 1 yields too.
//! Never: touches node 1, whose sequences are the cluster's.
//!
//! A sequence is disarmed by setting it to its last possible value and forbidding it to cycle.
//! `setval` is not undone by ROLLBACK. That does no harm: a copy of a sequence must be disarmed
//! anyway, and one that a transaction has just created or reset disappears with that transaction.

use tutti_link::connection::NodeConnection;

use crate::error::GatewayError;

/// `setval` and `pg_sequence_last_value` need privileges that a client may not have on others'
/// sequences; it did not touch those, so they are disarmed already.
const DISARM: &str = "SELECT pg_catalog.setval(s.seqrelid::pg_catalog.regclass, s.last, true)
FROM (SELECT q.seqrelid, CASE WHEN q.seqincrement OPERATOR(pg_catalog.>) 0::pg_catalog.int8 THEN q.seqmax ELSE q.seqmin END AS last
      FROM pg_catalog.pg_sequence q
      JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) q.seqrelid
      JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
      WHERE n.nspname OPERATOR(pg_catalog.<>) 'tutti' AND c.relpersistence OPERATOR(pg_catalog.<>) 't') s
WHERE CASE WHEN pg_catalog.has_sequence_privilege(s.seqrelid, 'UPDATE')
            AND pg_catalog.has_sequence_privilege(s.seqrelid, 'SELECT')
           THEN coalesce(pg_catalog.pg_sequence_last_value(s.seqrelid::pg_catalog.regclass) OPERATOR(pg_catalog.<>) s.last, true)
           ELSE false END";

/// Only a sequence's owner can alter it; a client that is not the owner did not just make it cycle.
const FORBID_CYCLES: &str = "DO $tutti$
DECLARE copy pg_catalog.text;
BEGIN
    FOR copy IN SELECT pg_catalog.format('%I.%I', n.nspname, c.relname)
        FROM pg_catalog.pg_sequence q
        JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) q.seqrelid
        JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
        WHERE q.seqcycle AND n.nspname OPERATOR(pg_catalog.<>) 'tutti' AND c.relpersistence OPERATOR(pg_catalog.<>) 't'
            AND pg_catalog.pg_has_role(c.relowner, 'USAGE')
    LOOP
        EXECUTE 'ALTER SEQUENCE ' OPERATOR(pg_catalog.||) copy OPERATOR(pg_catalog.||) ' NO CYCLE';
    END LOOP;
END $tutti$";

/// `RESTART`, unlike `setval`, is undone by ROLLBACK.
const REARM: &str = "DO $tutti$
DECLARE copy pg_catalog.text;
BEGIN
    FOR copy IN SELECT pg_catalog.format('%I.%I', n.nspname, c.relname)
        FROM pg_catalog.pg_sequence q
        JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) q.seqrelid
        JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
        WHERE n.nspname OPERATOR(pg_catalog.<>) 'tutti' AND c.relpersistence OPERATOR(pg_catalog.<>) 't'
            AND pg_catalog.pg_has_role(c.relowner, 'USAGE')
    LOOP
        EXECUTE 'ALTER SEQUENCE ' OPERATOR(pg_catalog.||) copy OPERATOR(pg_catalog.||) ' RESTART';
    END LOOP;
END $tutti$";

/// Disarms every sequence of a node that is not node 1. Does nothing to those that are disarmed.
pub async fn disarm_sequences(copy: &mut NodeConnection) -> Result<(), GatewayError> {
    debug_assert_ne!(copy.node(), tutti_sql::catalog::NodeId::HOME, "node 1 must go on counting");
    copy.query(&disarm_sql()).await?;
    Ok(())
}

/// The SQL that [`disarm_sequences`] runs.
pub fn disarm_sql() -> String {
    format!("{FORBID_CYCLES};\n{DISARM}")
}

/// Sets every sequence of a node that is not node 1 to its start, inside the open transaction.
///
/// For use before ALTER SEQUENCE and ALTER TABLE … ALTER COLUMN … TYPE: new bounds must contain the
/// current value, which the last value of the old bounds would not. [`disarm_sequences`] must follow
/// in the same transaction; if the transaction is rolled back, the sequences are disarmed as before.
pub async fn rearm_sequences(copy: &mut NodeConnection) -> Result<(), GatewayError> {
    debug_assert_ne!(copy.node(), tutti_sql::catalog::NodeId::HOME, "node 1 must go on counting");
    copy.query(REARM).await?;
    Ok(())
}
