//! BEGIN, COMMIT, savepoints and their kin.
//!
//! Owns: reading transaction modes. Never: knows the state of a transaction.

use pg_query::protobuf::{Node, TransactionStmt, TransactionStmtKind};

use super::{option, option_text, planned};
use crate::plan::{Plan, Planned, TransactionControl};

pub(super) fn plan(control: &TransactionStmt) -> Planned {
    let name = || control.savepoint_name.clone();
    let control = match control.kind() {
        kind @ (TransactionStmtKind::TransStmtBegin | TransactionStmtKind::TransStmtStart) => {
            let (isolation, read_only) = modes(&control.options);
            let start = kind == TransactionStmtKind::TransStmtStart;
            TransactionControl::Begin { isolation, read_only, start }
        }
        TransactionStmtKind::TransStmtCommit => TransactionControl::Commit { chain: control.chain },
        TransactionStmtKind::TransStmtRollback => {
            TransactionControl::Rollback { chain: control.chain }
        }
        TransactionStmtKind::TransStmtSavepoint => TransactionControl::Savepoint(name()),
        TransactionStmtKind::TransStmtRelease => TransactionControl::Release(name()),
        TransactionStmtKind::TransStmtRollbackTo => TransactionControl::RollbackTo(name()),
        TransactionStmtKind::TransStmtPrepare
        | TransactionStmtKind::TransStmtCommitPrepared
        | TransactionStmtKind::TransStmtRollbackPrepared
        | TransactionStmtKind::Undefined => TransactionControl::TwoPhase,
    };
    planned(Plan::Transaction(control), "the gateway keeps the transaction")
}

/// Isolation level and access mode among transaction modes; the last one of a kind counts.
pub(super) fn modes(options: &[Node]) -> (Option<String>, Option<bool>) {
    let last =
        |name: &str| options.iter().rev().find_map(|mode| option(std::slice::from_ref(mode), name));
    let isolation = last("transaction_isolation").and_then(option_text);
    let read_only = last("transaction_read_only").and_then(option_text);
    (isolation.map(|level| level.to_ascii_lowercase()), read_only.map(|value| value != "0"))
}
