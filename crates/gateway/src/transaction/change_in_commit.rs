//! The commit of a schema or placement change, as its transaction keeps it until the result is published.
//!
//! Owns: that new statements are held for as long as the value lives.
//! Never: moves its machine on; `placement_change` does.

use tutti_cluster::catalog::publisher::Hold;
use tutti_txn::PlacementChange;

/// A change in its commit. No statement begins until it is published, or until this is dropped.
#[derive(Debug)]
pub(crate) struct ChangeInCommit {
    /// Where the commit is.
    pub(super) machine: PlacementChange,
    /// Keeps new statements from beginning, once the machine has said so.
    pub(super) hold: Option<Hold>,
}
