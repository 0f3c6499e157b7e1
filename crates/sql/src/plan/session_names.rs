//! Words of a statement that the session answers, for no node knows what they ask for.
//!
//! Owns: what these are. Never: finds them in a text (the planner does) or answers (the session does).
//! Start reading at [`SessionNameAt`].

use std::ops::Range;

/// Words in a statement's text that the session answers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SessionNameAt {
    /// Where they are, in bytes.
    pub range: Range<usize>,
    /// What they mean.
    pub name: SessionName,
}

/// What a session or the gateway knows and no node does.
///
/// Clients know each other by the gateway's session numbers, nodes know processes. Where a statement
/// speaks of processes, one is replaced by the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SessionName {
    /// `pg_backend_pid()`; `unnamed`: it is an item of the select list that has its column's name.
    ProcessId {
        /// See above.
        unnamed: bool,
    },
    /// The view `pg_prepared_statements`, with or without an alias after it.
    PreparedStatements {
        /// See above.
        aliased: bool,
    },
    /// A view with a column `pid`, with or without an alias after it.
    Processes {
        /// Its name.
        view: &'static str,
        /// See above.
        aliased: bool,
    },
    /// The beginning of a call, from the function's name to the bracket.
    Call(ProcessFunction),
    /// The bracket that ends it; `unaliased`: it is an item of FROM that has its function's name.
    CallEnd {
        /// What is called.
        function: ProcessFunction,
        /// See above.
        unaliased: bool,
    },
}

/// A function that takes the process it is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ProcessFunction {
    /// `pg_cancel_backend(pid)`
    Cancel,
    /// `pg_terminate_backend(pid)`, with or without a second argument for how long to wait.
    Terminate {
        /// See above.
        waits: bool,
    },
    /// `pg_blocking_pids(pid)`
    Blocking,
    /// `pg_safe_snapshot_blocking_pids(pid)`
    SafeSnapshotBlocking,
    /// `pg_isolation_test_session_is_blocked(pid, pids)`
    IsBlocked,
    /// `pg_log_backend_memory_contexts(pid)`
    LogMemory,
}

impl ProcessFunction {
    /// Its name in PostgreSQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cancel => "pg_cancel_backend",
            Self::Terminate { .. } => "pg_terminate_backend",
            Self::Blocking => "pg_blocking_pids",
            Self::SafeSnapshotBlocking => "pg_safe_snapshot_blocking_pids",
            Self::IsBlocked => "pg_isolation_test_session_is_blocked",
            Self::LogMemory => "pg_log_backend_memory_contexts",
        }
    }
}
