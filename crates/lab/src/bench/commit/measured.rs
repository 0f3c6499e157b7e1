//! What one measurement gives: of which clients, and what they did.
//!
//! Owns: the records. Never: compares them (see `figures`).

use serde::Serialize;

/// Of the clients that run at the same time, those whose figures these are.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Who {
    /// Those that do what the workload is about.
    Clients,
    /// As many others beside them.
    Neighbours,
    /// The one that sums all accounts.
    Reader,
}

/// What some clients together did.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Measured {
    /// Transactions or statements.
    pub per_s: f64,
    /// What half of them, and all but one in a hundred, did not exceed. Of the COMMIT alone where
    /// the work is a transaction, of the statement otherwise.
    pub p50_us: f64,
    pub p99_us: f64,
    pub count: u64,
    /// Answers that cannot be: sums that never were.
    pub wrong: u64,
}
