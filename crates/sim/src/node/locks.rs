//! Row locks of a node, and the unique key of `tutti.decision`.
//!
//! Owns: which transaction holds what. Never: queues; a statement that finds a lock taken tries again when a
//! transaction has ended, in the order of asking.
//! Start reading at [`Locks::take`].

use std::collections::BTreeMap;

use tutti_txn::Gid;

use super::statement::Key;

/// A node's own number for a transaction; survives PREPARE.
pub type Xid = u32;

/// What can be locked.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Lockable {
    /// A row, by the transaction that changes it.
    Register(Key),
    /// A key of `tutti.decision`, by the transaction that inserts it.
    Decision(Gid),
}

/// Which transaction holds what until it ends.
#[derive(Debug, Default)]
pub struct Locks(BTreeMap<Lockable, Xid>);

impl Locks {
    /// Takes a lock for a transaction. False: another transaction has it.
    pub fn take(&mut self, what: Lockable, xid: Xid) -> bool {
        *self.0.entry(what).or_insert(xid) == xid
    }

    /// The transaction has ended.
    pub fn release(&mut self, xid: Xid) {
        self.0.retain(|_, holder| *holder != xid);
    }
}
