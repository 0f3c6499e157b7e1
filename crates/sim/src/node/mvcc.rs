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
    /// Appended to registers, in this order.
    pub appends: Vec<(Key, TxnNo)>,
    /// Tables whose rows are gone, except for what is appended.
    pub taken_out: BTreeSet<Key>,
    /// Rows inserted.
    pub decisions: Vec<(Gid, Decision)>,
    /// Rows deleted.
    pub forgotten: Vec<Gid>,
}

impl Changes {
    /// Whether there is anything to commit.
    pub fn is_empty(&self) -> bool {
        let Self { appends, taken_out, decisions, forgotten } = self;
        let has_rows = !appends.is_empty() || !taken_out.is_empty();
        !has_rows && decisions.is_empty() && forgotten.is_empty()
    }
}

/// What a transaction appended, and which snapshots show it.
#[derive(Debug)]
struct Version {
    txn: TxnNo,
    since: Snapshot,
    /// It was taken out then.
    until: Option<Snapshot>,
}

impl Version {
    fn is_visible(&self, at: Snapshot) -> bool {
        self.since <= at && self.until.is_none_or(|until| at < until)
    }
}

/// What is committed.
#[derive(Debug, Default)]
pub struct Store {
    now: u64,
    registers: BTreeMap<Key, Vec<Version>>,
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
        for key in &changes.taken_out {
            let versions = self.registers.get_mut(key).into_iter().flatten();
            versions.filter(|v| v.until.is_none()).for_each(|v| v.until = Some(now));
        }
        for (key, txn) in &changes.appends {
            let version = Version { txn: *txn, since: now, until: None };
            self.registers.entry(*key).or_default().push(version);
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
            let is_there = |v: &&Version| v.is_visible(at) && !own.taken_out.contains(key);
            let seen = committed.filter(is_there).map(|v| v.txn);
            seen.chain(own.appends.iter().filter(|(own_key, _)| own_key == key).map(|(_, t)| *t))
                .collect()
        };
        keys.iter().map(|key| (*key, visible(key))).collect()
    }

    /// Whether a register was changed after the snapshot.
    pub fn changed_after(&self, key: Key, at: Snapshot) -> bool {
        let versions = self.registers.get(&key).into_iter().flatten();
        versions.map(|v| v.until.unwrap_or(v.since)).any(|changed| at < changed)
    }

    /// The record of a global transaction.
    pub fn decision(&self, gid: &Gid) -> Option<Decision> {
        self.decisions.get(gid).copied()
    }
}
