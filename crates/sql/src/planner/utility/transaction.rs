//! BEGIN, COMMIT, savepoints and the like.
//!
//! Owns: reading transaction modes. Never: knows the state of a transaction.

use pg_query::protobuf::{Node, TransactionStmt, TransactionStmtKind};

use crate::plan::{Planned, SessionPlan, TransactionControl, TransactionModes};
use crate::planner::syntax::{option, option_text};

pub(super) fn plan(control: &TransactionStmt) -> Planned {
    let name = || control.savepoint_name.clone();
    let control = match control.kind() {
        kind @ (TransactionStmtKind::TransStmtBegin | TransactionStmtKind::TransStmtStart) => {
            let modes = modes(&control.options);
            let start = kind == TransactionStmtKind::TransStmtStart;
            TransactionControl::Begin { modes, start }
        }
        TransactionStmtKind::TransStmtCommit => TransactionControl::Commit { chain: control.chain },
        TransactionStmtKind::TransStmtRollback => {
            TransactionControl::Rollback { chain: control.chain }
        }
        TransactionStmtKind::TransStmtSavepoint => TransactionControl::Savepoint(name()),
        TransactionStmtKind::TransStmtRelease => TransactionControl::Release(name()),
        TransactionStmtKind::TransStmtRollbackTo => TransactionControl::RollbackTo(name()),
        TransactionStmtKind::TransStmtPrepare => TransactionControl::Prepare(control.gid.clone()),
        TransactionStmtKind::TransStmtCommitPrepared
        | TransactionStmtKind::TransStmtRollbackPrepared
        | TransactionStmtKind::Undefined => TransactionControl::EndPrepared(control.gid.clone()),
    };
    Planned::new(SessionPlan::Transaction(control), "the gateway keeps the transaction")
}

/// The last one of a kind counts.
pub(super) fn modes(options: &[Node]) -> TransactionModes {
    let last =
        |name: &str| options.iter().rev().find_map(|mode| option(std::slice::from_ref(mode), name));
    let isolation = last("transaction_isolation").and_then(option_text);
    let flag = |name: &str| last(name).and_then(option_text).map(|value| value != "0");
    TransactionModes {
        isolation: isolation.map(|level| level.to_ascii_lowercase()),
        read_only: flag("transaction_read_only"),
        deferrable: flag("transaction_deferrable"),
    }
}
