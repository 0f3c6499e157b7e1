//! What a node has committed, and what snapshots show of it.
//!
//! Owns: the registers' versions in the order in which they became visible, and the table
//! `tutti.decision`.
//! Never: knows who holds a lock, nor what is in the log.
//! Start reading at [`Store`].

use std::collections::{BTreeMap, BTreeSet};

use tutti_txn::{Decision, Gid};

use super::statement::{Key, Rows, TxnNo};

/// A point in a node's history: everything that became visible up to it is seen.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Snapshot(u64);

/// What a transaction changes when it commits.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Changes {
    /// Appended to registers.
    pub appends: Vec<(Key, TxnNo)>,
    /// Rows inserted.
    pub decisions: Vec<(Gid, Decision)>,
    /// Rows deleted.
    pub forgotten: Vec<Gid>,
}

impl Changes {
    /// Whether there is anything to commit.
    pub fn is_empty(&self) -> bool {
        self.appends.is_empty() && self.decisions.is_empty() && self.forgotten.is_empty()
    }
}

/// What is committed.
#[derive(Debug, Default)]
pub struct Store {
    now: u64,
    /// A register only ever grows, so its versions are the prefixes of one list.
    registers: BTreeMap<Key, Vec<(Snapshot, TxnNo)>>,
    decisions: BTreeMap<Gid, Decision>,
}

impl Store {
    /// What is visible now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.now)
    }

    /// Makes changes visible, all in one instant.
    pub fn apply(&mut self, changes: &Changes) {
        self.now += 1;
        let now = Snapshot(self.now);
        for (key, txn) in &changes.appends {
            self.registers.entry(*key).or_default().push((now, *txn));
        }
        self.decisions.extend(changes.decisions.iter().cloned());
        for gid in &changes.forgotten {
            self.decisions.remove(gid);
        }
    }

    /// The registers as a transaction with this snapshot and these changes sees them.
    pub fn read(&self, keys: &BTreeSet<Key>, at: Snapshot, own: &Changes) -> Rows {
        let visible = |key: &Key| {
            let committed = self.registers.get(key).into_iter().flatten();
            let seen = committed.take_while(|(since, _)| *since <= at).map(|(_, txn)| *txn);
            seen.chain(own.appends.iter().filter(|(own_key, _)| own_key == key).map(|(_, t)| *t))
                .collect()
        };
        keys.iter().map(|key| (*key, visible(key))).collect()
    }

    /// Whether a register was changed after the snapshot.
    pub fn changed_after(&self, key: Key, at: Snapshot) -> bool {
        self.registers.get(&key).and_then(|list| list.last()).is_some_and(|(since, _)| at < *since)
    }

    /// The record of a global transaction.
    pub fn decision(&self, gid: &Gid) -> Option<Decision> {
        self.decisions.get(gid).copied()
    }
}
