//! Running early what would run at COMMIT.
//!
//! Owns: the SQL for it, and what its answers mean. Never: runs it (the executor does), or decides when.

use tutti_link::Rows;
use tutti_wire::error_fields::ErrorFields;

/// Runs what is deferred, after a savepoint: run early, a trigger queued by a trigger runs sooner than at
/// COMMIT, and a check may fail on what is corrected later.
pub(crate) const RUN_DEFERRED: &str = "SAVEPOINT tutti_commit; SET CONSTRAINTS ALL IMMEDIATE; ";
pub(crate) const UNDO_DEFERRED: &str =
    "ROLLBACK TO SAVEPOINT tutti_commit; RELEASE SAVEPOINT tutti_commit";
/// How many rows the transaction has changed so far in tables that have deferrable user-defined
/// triggers.
pub(crate) const CHANGES: &str =
    "SELECT CASE WHEN pg_catalog.current_setting('track_counts') OPERATOR(pg_catalog.=) 'on'
    THEN (SELECT pg_catalog.concat('n', pg_catalog.sum(
            pg_catalog.pg_stat_get_xact_tuples_inserted(t.tgrelid)
            OPERATOR(pg_catalog.+) pg_catalog.pg_stat_get_xact_tuples_updated(t.tgrelid)
            OPERATOR(pg_catalog.+) pg_catalog.pg_stat_get_xact_tuples_deleted(t.tgrelid)))
        FROM pg_catalog.pg_trigger AS t
        WHERE t.tgdeferrable AND NOT t.tgisinternal) END; ";
/// Whether what was run early has queued no user-defined trigger, which would have run immediately and not after the
/// others: what they see and do is then what it would be at COMMIT. The first and the last answer are those of
/// [`CHANGES`].
pub(crate) fn keeps_order(answers: &[Rows]) -> bool {
    let [before, .., after] = answers else { return false };
    before.text(0, 0).is_some_and(|before| after.text(0, 0) == Some(before))
}

/// Whether a deferred trigger's error may not occur at COMMIT, where it runs after others.
pub(crate) fn may_be_mended(error: &ErrorFields) -> bool {
    // It was ended, or the transaction cannot go on.
    const FOR_GOOD: [&str; 7] = ["08", "40", "53", "55", "57", "58", "XX"];
    !FOR_GOOD.iter().any(|class| error.sqlstate().starts_with(class))
}
