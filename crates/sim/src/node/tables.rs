//! Tables that can be moved from node to node, as one node sees them: their locks, rows that come and go,
//! and what `pg_stat_activity` and `pg_blocking_pids` say of who waits for whom.
//!
//! Owns: that a lock is granted in the order of asking.
//! Never: knows on which node a table is; every node has the table, and it is empty elsewhere.
//! Start reading at [`Node::lock`].

use std::collections::{BTreeMap, BTreeSet};

use super::locks::{Lockable, TableMode, Xid};
use super::statement::{
    Answer, BackendActivity, BackendId, Key, SqlState, Statement, TxnNo, is_table,
};
use super::{Node, Step};

impl Node {
    /// Takes a table's lock. False: others have it, or have asked for it before.
    ///
    /// As in PostgreSQL, who asks for a lock waits also for those that wait for one which conflicts with it,
    /// unless they wait for this transaction.
    fn lock(&mut self, id: BackendId, table: Key, mode: TableMode) -> bool {
        let (xid, _) = self.need_transaction(id);
        if self.locks.has_table(table, xid, mode) {
            return true;
        }
        let is_overtaking = self.earlier_waiters(id, table).any(|other| {
            self.wanted_table(other)
                .is_some_and(|(it, theirs)| it == table && mode.conflicts(theirs))
        });
        !is_overtaking && self.locks.take_table(table, xid, mode)
    }

    /// Those that began to wait before this one did, or does now. None if the transaction has a lock of the
    /// table already: then it goes ahead of them.
    fn earlier_waiters(&self, id: BackendId, table: Key) -> impl Iterator<Item = BackendId> {
        let xid = self.transaction(id).map(|open| open.xid);
        let goes_ahead = self.locks.table_holders(table).any(|(holder, _)| Some(holder) == xid);
        let earlier = self.waiting.iter().copied().take_while(move |other| *other != id);
        earlier.filter(move |_| !goes_ahead)
    }

    /// The table whose lock a waiting backend waits for: the first that it has not got.
    fn wanted_table(&self, id: BackendId) -> Option<(Key, TableMode)> {
        let (_, statement) = self.backends.get(&id)?.waiting.as_ref()?;
        let xid = self.transaction(id).map(|open| open.xid);
        let has = |table: Key, mode| xid.is_some_and(|it| self.locks.has_table(table, it, mode));
        match statement {
            Statement::Read(keys) | Statement::Parse(keys) | Statement::Bind(keys) => {
                let mut tables = keys.iter().copied().filter(|key| is_table(*key));
                let next = tables.find(|table| !has(*table, TableMode::Shared));
                next.map(|table| (table, TableMode::Shared))
            }
            Statement::Append(table, _) | Statement::PutIn(table, _) if is_table(*table) => {
                Some((*table, TableMode::Shared))
            }
            Statement::LockTable(table) => Some((*table, TableMode::Exclusive)),
            _ => None,
        }
    }

    /// Locks the tables among the keys. False: one of them has to be waited for; those before it are locked.
    ///
    /// PostgreSQL takes a snapshot to analyse a statement before it locks tables: at READ COMMITTED there is
    /// another one later, but at REPEATABLE READ it is the transaction's.
    pub(super) fn lock_to_read(&mut self, id: BackendId, keys: &BTreeSet<Key>) -> bool {
        self.statement_snapshot(id);
        keys.iter().filter(|key| is_table(**key)).all(|key| self.lock(id, *key, TableMode::Shared))
    }

    pub(super) fn lock_table(&mut self, id: BackendId, table: Key) -> Step {
        match self.lock(id, table, TableMode::Exclusive) {
            true => self.finish_statement(id, Answer::Done),
            false => Step::Wait,
        }
    }

    /// Adds rows.
    pub(super) fn insert(&mut self, id: BackendId, table: Key, txns: &[TxnNo]) -> Step {
        if !self.lock_to_read(id, &[table].into()) {
            return Step::Wait;
        }
        if let Some(open) = self.transaction_mut(id) {
            open.changes.appends.extend(txns.iter().map(|txn| (table, *txn)));
        }
        let rows = self.read(id, &[table].into());
        self.finish_statement(id, Answer::Rows(rows))
    }

    /// Deletes all rows of a table that the transaction has locked, and tells what they were.
    pub(super) fn take_out(&mut self, id: BackendId, table: Key) -> Step {
        let rows = self.read(id, &[table].into());
        if let Some(open) = self.transaction_mut(id) {
            open.changes.taken_out.insert(table);
            open.changes.appends.retain(|(key, _)| *key != table);
        }
        self.finish_statement(id, Answer::Rows(rows))
    }

    /// Cancels what a backend waits for. A commit cannot be cancelled.
    pub(super) fn cancel(&mut self, id: BackendId) {
        self.end_wait(id, SqlState::QueryCanceled);
        self.advance(id);
    }

    /// What these backends do, as a change sees it that has these backends itself.
    pub(super) fn activity_of(
        &self,
        backends: &BTreeSet<BackendId>,
        ours: &BTreeSet<BackendId>,
    ) -> BTreeMap<BackendId, BackendActivity> {
        let transactions = ours.iter().filter_map(|id| self.transaction(*id));
        let xids: BTreeSet<Xid> = transactions.map(|open| open.xid).collect();
        let found = backends.iter().filter_map(|id| Some((*id, self.backends.get(id)?)));
        let seen = found.map(|(id, backend)| {
            let is_waiting = backend.waiting.is_some();
            let activity = BackendActivity {
                waits_for_ours: is_waiting && self.is_blocked_by(id, ours, &xids),
                is_active: is_waiting || backend.flushing.is_some(),
                waits_for_table: self.wanted_table(id).is_some(),
                runs_for: self.now - backend.began,
            };
            (id, activity)
        });
        seen.collect()
    }

    /// Whether a waiting backend waits for a lock that one of these transactions has, or wants before it.
    fn is_blocked_by(
        &self,
        id: BackendId,
        ours: &BTreeSet<BackendId>,
        xids: &BTreeSet<Xid>,
    ) -> bool {
        let waiting = self.backends.get(&id).and_then(|backend| backend.waiting.as_ref());
        if let Some((_, Statement::Append(key, _))) = waiting
            && !is_table(*key)
        {
            let holder = self.locks.holder(&Lockable::Register(*key));
            return holder.is_some_and(|holder| xids.contains(&holder));
        }
        let Some((table, mode)) = self.wanted_table(id) else { return false };
        let mut holders = self.locks.table_holders(table);
        let has = holders.any(|(holder, held)| xids.contains(&holder) && mode.conflicts(held));
        let wants = |other: BackendId| {
            self.wanted_table(other)
                .is_some_and(|(it, theirs)| it == table && mode.conflicts(theirs))
        };
        has || self.earlier_waiters(id, table).any(|other| ours.contains(&other) && wants(other))
    }
}
