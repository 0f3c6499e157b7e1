//! The write-ahead log of a node.
//!
//! Owns: its records, how far they are on the node's own disk, and how far on its standby's.
//! Never: decides what a crash keeps; the world does, within what these two positions allow.
//! Start reading at [`Log`].

use std::collections::BTreeMap;

use tutti_txn::Gid;

use super::locks::{TableMode, Xid};
use super::mvcc::Changes;
use super::statement::Key;

/// One record.
#[derive(Clone, Debug)]
pub enum Record {
    /// A transaction commits.
    Commit(Changes),
    /// A part is prepared, and keeps these tables' locks.
    Prepare(Gid, Xid, Changes, BTreeMap<Key, TableMode>),
    /// A prepared part commits.
    CommitPrepared(Gid),
    /// A prepared part is rolled back.
    RollbackPrepared(Gid),
    /// A number was drawn.
    Incarnation(u64),
    /// The node has learnt of a newer gateway.
    Newest(u64),
}

/// The records in order. A restart keeps at least what is flushed, a fail-over at least what is
/// replicated; of the rest either keeps any number of records from the front.
#[derive(Debug, Default)]
pub struct Log {
    records: Vec<Record>,
    flushed: usize,
    replicated: usize,
}

impl Log {
    /// Adds a record. Returns the position after it.
    pub fn append(&mut self, record: Record) -> usize {
        self.records.push(record);
        self.records.len()
    }

    /// Everything before `position` is on the node's disk, and if required on the standby's.
    pub fn flush(&mut self, position: usize, replicate: bool) {
        self.flushed = self.flushed.max(position);
        if replicate {
            self.replicated = self.replicated.max(position);
        }
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How many records a crash certainly keeps.
    pub fn flushed(&self) -> usize {
        self.flushed
    }

    /// How many records a fail-over certainly keeps.
    pub fn replicated(&self) -> usize {
        self.replicated
    }

    /// All but the first `kept` records are gone; the rest is on the disk from which the node now
    /// starts, and its new standby begins with a copy of it.
    pub fn truncate(&mut self, kept: usize) {
        self.records.truncate(kept);
        self.flushed = kept;
        self.replicated = kept;
    }

    /// The records, oldest first.
    pub fn records(&self) -> &[Record] {
        &self.records
    }
}
