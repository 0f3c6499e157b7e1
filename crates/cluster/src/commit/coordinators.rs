//! Global transactions whose coordinator runs in this gateway.
//!
//! Owns: their gids, so that no one settles what is being committed.
//! Never: knows how far a coordinator has got.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tutti_txn::gid::Gid;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Coordinators {
    gids: Mutex<HashSet<Gid>>,
}

/// Exists as long as the transaction's coordinator runs.
#[derive(Debug)]
pub struct Coordinating<'a> {
    coordinators: &'a Coordinators,
    gid: Gid,
}

impl Coordinators {
    /// A coordinator begins. Requires: nothing of the transaction is prepared yet. What its
    /// coordinator cannot finish must be handed to recovery before the value is dropped.
    pub fn begin(&self, gid: Gid) -> Coordinating<'_> {
        self.gids().insert(gid.clone());
        Coordinating { coordinators: self, gid }
    }

    /// Whether the transaction's coordinator runs.
    pub fn contains(&self, gid: &Gid) -> bool {
        self.gids().contains(gid)
    }

    fn gids(&self) -> MutexGuard<'_, HashSet<Gid>> {
        self.gids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Coordinating<'_> {
    fn drop(&mut self) {
        self.coordinators.gids().remove(&self.gid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_lives_as_long_as_its_coordinator() {
        let coordinators = Coordinators::default();
        let gid: Gid = "tutti_main_1_1_1".parse().expect("one of ours");
        let alive = coordinators.begin(gid.clone());
        assert!(coordinators.contains(&gid));
        drop(alive);
        assert!(!coordinators.contains(&gid));
    }
}
