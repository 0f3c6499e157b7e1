//! What the code that a statement calls meant when the statement was bound or declared.
//!
//! Owns: what says that it may mean something else now. Never: compares (`planning` does).
//! Start reading at [`BoundWith`].

use std::sync::Arc;

use tutti_sql::catalog::Catalog;
use tutti_sql::plan::Concerns;

/// When something was bound or declared, as far as the meaning of the code that it calls rests on it.
#[derive(Clone, Debug)]
pub struct BoundWith {
    /// The catalog that it was planned with.
    pub catalog: Arc<Catalog>,
    /// How often sessions had come to see other schemas.
    pub path_changes: u64,
    /// How often the session's own path, or what is temporary, had come to hide other names.
    pub sight_changes: u64,
}

/// What statements have left for the end of their transaction, where code that they call may run once more.
#[derive(Clone, Debug)]
pub struct LateCalls {
    /// When the first of them was planned.
    pub then: BoundWith,
    /// What they call.
    pub concerns: Arc<Concerns>,
    /// The plan by which changes see them, see [`PlanInSight`](crate::registry::plan_in_sight::PlanInSight).
    pub plan_number: u64,
}
