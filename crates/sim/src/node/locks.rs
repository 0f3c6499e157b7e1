//! Locks of a node: on rows, on the unique key of `tutti.decision`, and on tables.
//!
//! Owns: which transaction holds what. Never: queues; a statement that finds a lock taken tries again when a
//! transaction has ended, in the order of asking.
//! Start reading at [`Locks::take`], then [`Locks::take_table`].

use std::collections::BTreeMap;

use tutti_txn::Gid;

use super::statement::Key;

/// A node's own number for a transaction; survives PREPARE.
pub type Xid = u32;

/// What can be locked by one transaction at a time.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Lockable {
    /// A row, by the transaction that changes it.
    Register(Key),
    /// A key of `tutti.decision`, by the transaction that inserts it.
    Decision(Gid),
}

/// How a table is locked.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum TableMode {
    /// By whoever reads it or writes its rows. (PostgreSQL's modes for the two do not conflict.)
    Shared,
    /// ACCESS EXCLUSIVE.
    Exclusive,
}

impl TableMode {
    /// Whether two transactions cannot have these.
    pub fn conflicts(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

/// Which transaction holds what until it ends.
#[derive(Debug, Default)]
pub struct Locks {
    rows: BTreeMap<Lockable, Xid>,
    tables: BTreeMap<(Key, Xid), TableMode>,
}

impl Locks {
    /// Takes a lock for a transaction. False: another transaction has it.
    pub fn take(&mut self, what: Lockable, xid: Xid) -> bool {
        *self.rows.entry(what).or_insert(xid) == xid
    }

    /// Takes a table's lock for a transaction. False: others have it in a mode that conflicts.
    pub fn take_table(&mut self, table: Key, xid: Xid, mode: TableMode) -> bool {
        if self.table_holders(table).any(|(other, held)| other != xid && mode.conflicts(held)) {
            return false;
        }
        let held = self.tables.entry((table, xid)).or_insert(mode);
        *held = mode.max(*held);
        true
    }

    /// Whether the transaction has the table's lock in this mode or a stronger one.
    pub fn has_table(&self, table: Key, xid: Xid, mode: TableMode) -> bool {
        self.tables.get(&(table, xid)).is_some_and(|held| mode <= *held)
    }

    /// The tables that a transaction has locked.
    pub fn tables_of(&self, xid: Xid) -> BTreeMap<Key, TableMode> {
        let own = self.tables.iter().filter(|((_, of), _)| *of == xid);
        own.map(|((table, _), mode)| (*table, *mode)).collect()
    }

    /// Who has a table's lock.
    pub fn table_holders(&self, table: Key) -> impl Iterator<Item = (Xid, TableMode)> {
        let of_table = self.tables.range((table, 0)..=(table, Xid::MAX));
        of_table.map(|((_, xid), mode)| (*xid, *mode))
    }

    /// Who has a row.
    pub fn holder(&self, what: &Lockable) -> Option<Xid> {
        self.rows.get(what).copied()
    }

    /// The transaction has ended.
    pub fn release(&mut self, xid: Xid) {
        self.rows.retain(|_, holder| *holder != xid);
        self.tables.retain(|(_, holder), _| *holder != xid);
    }
}
