//! A model of one PostgreSQL server, as far as the protocol relies on it.
//!
//! Owns: backends and what they run, transactions, prepared transactions, crash and replay.
//! Never: knows of networks or gateways, or how long anything takes. A flush that takes time ends when
//! [`Node::flush`] is called, a wait that has a limit when [`Node::lock_timeout`] is; the time of the world is
//! told ([`Node::set_time`]) only to be shown by `pg_stat_activity`.
//! Start reading at [`Node::submit`], then [`Node::execute`]. It is compared with a real server by
//! `tests/tests/cluster/sim_model.rs`.
//!
//! What is modelled, from PostgreSQL's documentation and source: a commit is visible at one instant,
//! after its record is flushed, and only then answered; a backend whose client is gone does what it was sent
//! before it ends; an UPDATE at READ COMMITTED waits for the row's other writer and goes on with what that
//! one committed; a prepared transaction keeps its locks, also over a restart; an INSERT waits for an
//! uncommitted one of the same unique key; who asks for a table's lock waits also for those that wait for it
//! already; a statement that waits can be cancelled.

pub mod gateways;
pub mod locks;
pub mod log;
pub mod mvcc;
pub mod statement;
mod tables;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tutti_txn::{Decision, Gid};

use self::gateways::Gateways;
use self::locks::{Lockable, Locks, Xid};
use self::log::{Log, Record};
use self::mvcc::{Changes, Snapshot, Store};
use self::statement::{
    Answer, BackendId, ExportId, Isolation, Key, Rows, SqlState, Statement, is_table,
};

/// What a node did that the world must know of.
#[derive(Debug)]
pub enum Output {
    /// A statement was answered.
    Answered(BackendId, Answer),
    /// A backend flushes the log; [`Node::flush`] it later.
    Flushes(BackendId),
    /// A backend waits for a lock; the number tells waits apart.
    Waits(BackendId, u64),
    /// A backend has ended.
    Ended(BackendId),
    /// A prepared part became visible.
    PartCommitted(Gid),
    /// A part was prepared, or an anchor's own transaction committed: the node's point in the order
    /// of votes.
    Voted(Gid),
}

#[derive(Debug)]
struct Transaction {
    xid: Xid,
    isolation: Isolation,
    snapshot: Option<Snapshot>,
    changes: Changes,
    failed: bool,
    has_exported: bool,
    /// Made for one statement, without a BEGIN.
    is_implicit: bool,
}

#[derive(Debug)]
struct Flush {
    position: usize,
    replicate: bool,
    ending: Ending,
    answer: Answer,
}

/// What happens to a transaction when its record is flushed.
#[derive(Debug)]
enum Ending {
    Commit,
    Prepare(Gid),
    CommitPrepared(Gid),
    RollbackPrepared(Gid),
    Raise(u64),
    Nothing,
}

#[derive(Debug, Default)]
struct Backend {
    queue: VecDeque<Statement>,
    transaction: Option<Transaction>,
    portal: Option<Rows>,
    waiting: Option<(u64, Statement)>,
    flushing: Option<Flush>,
    /// When the last statement began.
    began: u64,
    client_has_gone: bool,
    must_end: bool,
}

#[derive(Debug)]
struct PreparedPart {
    xid: Xid,
    changes: Changes,
    /// False while its PREPARE flushes: its name is taken, but it does not exist yet.
    is_valid: bool,
    is_being_ended: bool,
}

/// How a statement continues.
enum Step {
    Answer(Answer),
    Wait,
    Flush(Flush),
}

/// One server.
#[derive(Debug, Default)]
pub struct Node {
    log: Log,
    store: Store,
    locks: Locks,
    prepared: BTreeMap<Gid, PreparedPart>,
    backends: BTreeMap<BackendId, Backend>,
    /// Backends that wait, in the order in which they began to.
    waiting: Vec<BackendId>,
    exported: BTreeMap<ExportId, (BackendId, Snapshot)>,
    gateways: Gateways,
    /// Numbers given out: backends, transactions, snapshots, waits.
    numbers: u32,
    now: u64,
    outputs: Vec<Output>,
}

impl Node {
    // ---- what can happen to it ----

    /// The time of the world.
    pub fn set_time(&mut self, now: u64) {
        self.now = now;
    }

    /// A client connects.
    pub fn connect(&mut self) -> BackendId {
        let id = self.next_number();
        self.backends.insert(id, Backend::default());
        id
    }

    /// A statement arrives. It is begun when those before it on its backend are done. Nothing
    /// happens if the backend has ended.
    pub fn submit(&mut self, backend: BackendId, statement: Statement) {
        if let Some(found) = self.backends.get_mut(&backend) {
            found.queue.push_back(statement);
            self.advance(backend);
        }
    }

    /// The client's end of the connection is gone. The backend does what it was sent, and ends.
    pub fn hang_up(&mut self, backend: BackendId) {
        if let Some(found) = self.backends.get_mut(&backend) {
            found.client_has_gone = true;
            self.advance(backend);
        }
    }

    /// The backend's flush is over.
    pub fn flush(&mut self, backend: BackendId) {
        let Some(flush) = self.backends.get_mut(&backend).and_then(|b| b.flushing.take()) else {
            return;
        };
        self.log.flush(flush.position, flush.replicate);
        self.end_transaction(backend, flush.ending);
        self.answer(backend, flush.answer);
        self.go_on(backend);
    }

    /// The wait of this number has lasted too long.
    pub fn lock_timeout(&mut self, backend: BackendId, wait: u64) {
        let found = self.backends.get(&backend);
        if found.is_some_and(|b| b.waiting.as_ref().is_some_and(|w| w.0 == wait)) {
            self.end_wait(backend, SqlState::LockNotAvailable);
            self.go_on(backend);
        }
    }

    /// The server stops immediately and starts again from the first `kept` records of its log.
    pub fn restart(&mut self, kept: usize) {
        self.log.truncate(kept);
        self.store = Store::default();
        self.locks = Locks::default();
        self.prepared.clear();
        self.backends.clear();
        self.waiting.clear();
        self.exported.clear();
        self.outputs.clear();
        self.gateways = Gateways::default();
        let mut tables = BTreeMap::new();
        for record in self.log.records() {
            match record {
                Record::Commit(changes) => self.store.apply(changes),
                Record::Prepare(gid, xid, changes, locked) => {
                    tables.insert(*xid, locked.clone());
                    let part = PreparedPart {
                        xid: *xid,
                        changes: changes.clone(),
                        is_valid: true,
                        is_being_ended: false,
                    };
                    self.prepared.insert(gid.clone(), part);
                }
                Record::CommitPrepared(gid) => {
                    if let Some(part) = self.prepared.remove(gid) {
                        self.store.apply(&part.changes);
                    }
                }
                Record::RollbackPrepared(gid) => {
                    self.prepared.remove(gid);
                }
                Record::Incarnation(number) => self.gateways.drawn = *number,
                Record::Newest(number) => self.gateways.newest = *number,
            }
        }
        for part in self.prepared.values() {
            for (table, mode) in tables.remove(&part.xid).into_iter().flatten() {
                self.locks.take_table(table, part.xid, mode);
            }
            for (key, _) in &part.changes.appends {
                self.locks.take(Lockable::Register(*key), part.xid);
            }
            for (gid, _) in &part.changes.decisions {
                self.locks.take(Lockable::Decision(gid.clone()), part.xid);
            }
        }
    }

    // ---- what can be seen of it ----

    /// What has happened since the last call.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Its log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The newest gateway that it knows.
    pub fn newest_gateway(&self) -> u64 {
        self.gateways.newest
    }

    /// What any session may read now.
    pub fn read_all(&self, keys: &BTreeSet<Key>) -> Rows {
        self.store.read(keys, self.store.snapshot(), &Changes::default())
    }

    /// Whether the backend has not ended.
    pub fn is_connected(&self, backend: BackendId) -> bool {
        self.backends.contains_key(&backend)
    }

    /// The backends that wait for a lock, in the order in which they began to.
    pub fn waiting(&self) -> &[BackendId] {
        &self.waiting
    }

    /// What is prepared, waits, or is open.
    pub fn unfinished(&self) -> Vec<String> {
        let prepared = self.prepared.keys().map(|gid| format!("{gid} is prepared"));
        let waiting = self.waiting.iter().map(|id| format!("backend {id} waits"));
        let is_open = |b: &Backend| b.transaction.is_some() || !b.queue.is_empty();
        let open = self.backends.iter().filter(|(_, b)| is_open(b));
        prepared
            .chain(waiting)
            .chain(open.map(|(id, _)| format!("backend {id} has an open transaction")))
            .collect()
    }

    /// Whether the record says `committed`, durably.
    pub fn has_decided(&self, gid: &Gid) -> bool {
        let decided = (gid.clone(), Decision::Committed);
        self.log.records()[..self.log.flushed()].iter().any(|record| match record {
            Record::Commit(changes) => changes.decisions.contains(&decided),
            _ => false,
        })
    }

    // ---- how it goes on ----

    fn next_number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    fn answer(&mut self, backend: BackendId, answer: Answer) {
        self.outputs.push(Output::Answered(backend, answer));
    }

    /// Something ended: this backend goes on, and then those that wait try again.
    fn go_on(&mut self, backend: BackendId) {
        self.advance(backend);
        self.retry_waiting();
    }

    fn advance(&mut self, id: BackendId) {
        while let Some(backend) = self.backends.get_mut(&id) {
            if backend.flushing.is_some() {
                return;
            }
            if backend.must_end {
                self.end_backend(id);
                return;
            }
            if backend.waiting.is_some() {
                return;
            }
            let Some(statement) = backend.queue.pop_front() else {
                if backend.client_has_gone {
                    self.end_backend(id);
                    self.retry_waiting();
                }
                return;
            };
            backend.began = self.now;
            match self.execute(id, &statement) {
                Step::Answer(answer) => {
                    self.answer(id, answer);
                    self.retry_waiting();
                }
                Step::Wait => self.begin_to_wait(id, statement),
                Step::Flush(flush) => self.begin_to_flush(id, flush),
            }
        }
    }

    fn begin_to_wait(&mut self, id: BackendId, statement: Statement) {
        let wait = u64::from(self.next_number());
        if let Some(backend) = self.backends.get_mut(&id) {
            backend.waiting = Some((wait, statement));
            self.waiting.push(id);
            self.outputs.push(Output::Waits(id, wait));
        }
    }

    fn begin_to_flush(&mut self, id: BackendId, flush: Flush) {
        if let Some(backend) = self.backends.get_mut(&id) {
            backend.flushing = Some(flush);
            self.outputs.push(Output::Flushes(id));
        }
    }

    /// Those that wait try again, in order, until none makes progress.
    fn retry_waiting(&mut self) {
        let mut index = 0;
        while let Some(&id) = self.waiting.get(index) {
            let statement = self.backends.get(&id).and_then(|b| b.waiting.clone());
            let step = match &statement {
                Some((_, statement)) => self.execute(id, statement),
                None => Step::Wait,
            };
            if matches!(step, Step::Wait) {
                index += 1;
                continue;
            }
            self.waiting.retain(|waiting| *waiting != id);
            if let Some(backend) = self.backends.get_mut(&id) {
                backend.waiting = None;
            }
            match step {
                Step::Answer(answer) => self.answer(id, answer),
                Step::Flush(flush) => self.begin_to_flush(id, flush),
                Step::Wait => (),
            }
            self.advance(id);
            index = 0;
        }
    }

    /// A statement that waits fails.
    fn end_wait(&mut self, id: BackendId, why: SqlState) {
        self.waiting.retain(|waiting| *waiting != id);
        if self.backends.get_mut(&id).and_then(|backend| backend.waiting.take()).is_some() {
            self.fail_statement(id);
            self.answer(id, Answer::Error(why));
        }
    }

    fn end_backend(&mut self, id: BackendId) {
        self.end_transaction(id, Ending::Nothing);
        if let Some(transaction) = self.backends.get_mut(&id).and_then(|b| b.transaction.take()) {
            self.locks.release(transaction.xid);
        }
        self.backends.remove(&id);
        self.waiting.retain(|waiting| *waiting != id);
        self.exported.retain(|_, (by, _)| *by != id);
        self.gateways.backend_ended(id);
        self.outputs.push(Output::Ended(id));
    }

    fn end_transaction(&mut self, id: BackendId, ending: Ending) {
        match ending {
            Ending::Nothing => (),
            Ending::Commit => {
                if let Some(transaction) = self.take_transaction(id) {
                    if !transaction.changes.is_empty() {
                        self.store.apply(&transaction.changes);
                    }
                    self.locks.release(transaction.xid);
                    for (gid, decision) in transaction.changes.decisions {
                        if decision == Decision::Committed {
                            self.outputs.push(Output::Voted(gid));
                        }
                    }
                }
            }
            Ending::Prepare(gid) => {
                self.take_transaction(id);
                if let Some(part) = self.prepared.get_mut(&gid) {
                    part.is_valid = true;
                }
                self.outputs.push(Output::Voted(gid));
            }
            Ending::CommitPrepared(gid) => {
                if let Some(part) = self.prepared.remove(&gid) {
                    self.store.apply(&part.changes);
                    self.locks.release(part.xid);
                    self.outputs.push(Output::PartCommitted(gid));
                }
            }
            Ending::RollbackPrepared(gid) => {
                if let Some(part) = self.prepared.remove(&gid) {
                    self.locks.release(part.xid);
                }
            }
            Ending::Raise(incarnation) => self.gateways.newest = incarnation,
        }
    }

    fn take_transaction(&mut self, id: BackendId) -> Option<Transaction> {
        let transaction = self.backends.get_mut(&id)?.transaction.take();
        self.exported.retain(|_, (by, _)| *by != id);
        transaction
    }

    fn transaction(&self, id: BackendId) -> Option<&Transaction> {
        self.backends.get(&id)?.transaction.as_ref()
    }

    fn transaction_mut(&mut self, id: BackendId) -> Option<&mut Transaction> {
        self.backends.get_mut(&id)?.transaction.as_mut()
    }

    /// The transaction's number and isolation; one is made for the statement if there is none.
    fn need_transaction(&mut self, id: BackendId) -> (Xid, Isolation) {
        if let Some(open) = self.transaction(id) {
            return (open.xid, open.isolation);
        }
        self.begin_transaction(id, Isolation::ReadCommitted, true);
        (self.numbers, Isolation::ReadCommitted)
    }

    fn begin_transaction(&mut self, id: BackendId, isolation: Isolation, is_implicit: bool) {
        let xid = self.next_number();
        if let Some(backend) = self.backends.get_mut(&id) {
            backend.transaction = Some(Transaction {
                xid,
                isolation,
                snapshot: None,
                changes: Changes::default(),
                failed: false,
                has_exported: false,
                is_implicit,
            });
        }
    }

    /// The statement failed, and with it its transaction, of which nothing is kept.
    fn fail_statement(&mut self, id: BackendId) {
        let Some(transaction) = self.transaction_mut(id) else { return };
        transaction.failed = true;
        let (xid, is_implicit) = (transaction.xid, transaction.is_implicit);
        self.locks.release(xid);
        if is_implicit {
            self.take_transaction(id);
        }
    }

    fn error(&mut self, id: BackendId, state: SqlState) -> Step {
        self.fail_statement(id);
        Step::Answer(Answer::Error(state))
    }

    /// The snapshot for the statement that runs now.
    fn statement_snapshot(&mut self, id: BackendId) -> Snapshot {
        let now = self.store.snapshot();
        match self.transaction_mut(id) {
            Some(open) if open.isolation == Isolation::RepeatableRead => {
                *open.snapshot.get_or_insert(now)
            }
            _ => now,
        }
    }

    // ---- statements ----

    /// Runs a statement, or finds that it must wait; then it is tried again later.
    fn execute(&mut self, id: BackendId, statement: &Statement) -> Step {
        let ends =
            matches!(statement, Statement::Commit | Statement::Rollback | Statement::Prepare(_));
        if !ends && self.transaction(id).is_some_and(|open| open.failed) {
            return Step::Answer(Answer::Error(SqlState::InFailedTransaction));
        }
        match statement {
            Statement::Begin(isolation) => {
                if self.transaction(id).is_none() {
                    self.begin_transaction(id, *isolation, false);
                }
                Step::Answer(Answer::Done)
            }
            Statement::Import(export) => match self.exported.get(export) {
                Some(&(_, snapshot)) => {
                    if let Some(open) = self.transaction_mut(id) {
                        open.snapshot = Some(snapshot);
                    }
                    Step::Answer(Answer::Done)
                }
                None => self.error(id, SqlState::UndefinedObject),
            },
            Statement::Export => {
                let snapshot = self.statement_snapshot(id);
                let export = self.next_number();
                self.exported.insert(export, (id, snapshot));
                if let Some(open) = self.transaction_mut(id) {
                    open.has_exported = true;
                }
                Step::Answer(Answer::Exported(export))
            }
            Statement::Read(keys) => match self.lock_to_read(id, keys) {
                true => {
                    let rows = self.read(id, keys);
                    self.finish_statement(id, Answer::Rows(rows))
                }
                false => Step::Wait,
            },
            Statement::Parse(keys) => match self.lock_to_read(id, keys) {
                true => Step::Answer(Answer::Done),
                false => Step::Wait,
            },
            Statement::Bind(keys) => {
                if !self.lock_to_read(id, keys) {
                    return Step::Wait;
                }
                let rows = self.read(id, keys);
                if let Some(backend) = self.backends.get_mut(&id) {
                    backend.portal = Some(rows);
                }
                Step::Answer(Answer::Done)
            }
            Statement::Execute => {
                let portal = self.backends.get_mut(&id).and_then(|b| b.portal.take());
                self.finish_statement(id, Answer::Rows(portal.unwrap_or_default()))
            }
            Statement::Append(table, txn) if is_table(*table) => self.insert(id, *table, &[*txn]),
            Statement::Append(key, txn) => self.append(id, *key, *txn),
            Statement::LockTable(table) => self.lock_table(id, *table),
            Statement::TakeOut(table) => self.take_out(id, *table),
            Statement::PutIn(table, txns) => self.insert(id, *table, txns),
            Statement::Commit => self.commit(id, Answer::Done),
            Statement::Rollback => {
                if let Some(open) = self.take_transaction(id) {
                    self.locks.release(open.xid);
                }
                Step::Answer(Answer::Done)
            }
            Statement::Prepare(gid) => self.prepare(id, gid),
            Statement::CommitPrepared(gid) => self.end_prepared(gid, true),
            Statement::RollbackPrepared(gid) => self.end_prepared(gid, false),
            Statement::RecordDecision(gid) => {
                match self.insert_decision(id, gid, Decision::Committed) {
                    None => Step::Wait,
                    Some(true) => self.finish_statement(id, Answer::Done),
                    Some(false) => self.error(id, SqlState::UniqueViolation),
                }
            }
            Statement::Decide(gid) => match self.insert_decision(id, gid, Decision::Committed) {
                None => Step::Wait,
                Some(inserted) => self.finish_statement(id, Answer::Inserted(inserted)),
            },
            Statement::ReadOrRefuse(gid) => {
                match self.insert_decision(id, gid, Decision::Aborted) {
                    None => Step::Wait,
                    Some(true) => {
                        self.finish_statement(id, Answer::Decision(Some(Decision::Aborted)))
                    }
                    Some(false) => {
                        let found = self.store.decision(gid);
                        self.finish_statement(id, Answer::Decision(found))
                    }
                }
            }
            Statement::ReadDecision(gid) => {
                Step::Answer(Answer::Decision(self.store.decision(gid)))
            }
            Statement::ForgetDecision(gid) => {
                let changes = Changes { forgotten: vec![gid.clone()], ..Changes::default() };
                self.store.apply(&changes);
                self.log.append(Record::Commit(changes));
                Step::Answer(Answer::Done)
            }
            Statement::ListPrepared => {
                let valid = self.prepared.iter().filter(|(_, part)| part.is_valid);
                Step::Answer(Answer::Prepared(valid.map(|(gid, _)| gid.clone()).collect()))
            }
            Statement::EndBackends(backends) => match self.end_backends(id, backends) {
                true => Step::Answer(Answer::Done),
                false => Step::Wait,
            },
            Statement::Cancel(backends) => {
                backends.iter().for_each(|other| self.cancel(*other));
                Step::Answer(Answer::Done)
            }
            Statement::Look { of, ours } => {
                Step::Answer(Answer::Activity(self.activity_of(of, ours)))
            }
            Statement::TakeLock => match self.gateways.take_lock(id) {
                true => Step::Answer(Answer::Done),
                false => self.error(id, SqlState::LockNotAvailable),
            },
            Statement::ReadNewest => Step::Answer(Answer::Incarnation(self.gateways.newest)),
            Statement::Serve(incarnation) => match self.is_being_raised() {
                true => Step::Wait,
                false if *incarnation < self.gateways.newest => {
                    self.error(id, SqlState::AdminShutdown)
                }
                false => {
                    self.gateways.listed.insert(id, *incarnation);
                    Step::Answer(Answer::Done)
                }
            },
            Statement::Raise(incarnation) => self.raise(*incarnation),
            Statement::EndListed(incarnation) => {
                let listed = self.gateways.listed_before(*incarnation);
                let there: BTreeSet<_> =
                    listed.filter(|other| self.backends.contains_key(other)).collect();
                self.end_backends(id, &there);
                Step::Answer(Answer::Count(there.len()))
            }
            Statement::ClearList(incarnation) => {
                self.gateways.listed.retain(|_, of| *incarnation <= *of);
                Step::Answer(Answer::Done)
            }
            Statement::Harden => Step::Flush(Flush {
                position: self.log.len(),
                replicate: true,
                ending: Ending::Nothing,
                answer: Answer::Done,
            }),
            Statement::NextIncarnation => {
                self.gateways.drawn += 1;
                let position = self.log.append(Record::Incarnation(self.gateways.drawn));
                Step::Flush(Flush {
                    position,
                    replicate: true,
                    ending: Ending::Nothing,
                    answer: Answer::Incarnation(self.gateways.drawn),
                })
            }
        }
    }

    fn read(&mut self, id: BackendId, keys: &BTreeSet<Key>) -> Rows {
        let snapshot = self.statement_snapshot(id);
        let none = Changes::default();
        let own = self.transaction(id).map_or(&none, |open| &open.changes);
        self.store.read(keys, snapshot, own)
    }

    fn append(&mut self, id: BackendId, key: Key, txn: u32) -> Step {
        let (xid, isolation) = self.need_transaction(id);
        let mut snapshot = self.statement_snapshot(id);
        if isolation == Isolation::RepeatableRead && self.store.changed_after(key, snapshot) {
            return self.error(id, SqlState::SerializationFailure);
        }
        if !self.locks.take(Lockable::Register(key), xid) {
            return Step::Wait;
        }
        if isolation == Isolation::ReadCommitted {
            // The row is read again once it is locked.
            snapshot = self.store.snapshot();
        }
        let Some(open) = self.transaction_mut(id) else { return Step::Wait };
        open.changes.appends.push((key, txn));
        let own = open.changes.clone();
        let rows = self.store.read(&[key].into(), snapshot, &own);
        self.finish_statement(id, Answer::Rows(rows))
    }

    /// Inserts a row unless there is one. None: another transaction's is uncommitted.
    fn insert_decision(&mut self, id: BackendId, gid: &Gid, decision: Decision) -> Option<bool> {
        let (xid, _) = self.need_transaction(id);
        if self.store.decision(gid).is_some() {
            return Some(false);
        }
        if !self.locks.take(Lockable::Decision(gid.clone()), xid) {
            return None;
        }
        let open = self.transaction_mut(id)?;
        if open.changes.decisions.iter().any(|(own, _)| own == gid) {
            return Some(false);
        }
        open.changes.decisions.push((gid.clone(), decision));
        Some(true)
    }

    /// The statement has done its work; without a BEGIN its transaction commits with it.
    fn finish_statement(&mut self, id: BackendId, answer: Answer) -> Step {
        if self.transaction(id).is_some_and(|open| open.is_implicit) {
            self.commit(id, answer)
        } else {
            Step::Answer(answer)
        }
    }

    fn commit(&mut self, id: BackendId, answer: Answer) -> Step {
        let Some(open) = self.transaction(id) else { return Step::Answer(Answer::Done) };
        if open.failed {
            self.take_transaction(id);
            return Step::Answer(Answer::RolledBack);
        }
        if open.changes.is_empty() {
            self.end_transaction(id, Ending::Commit);
            return Step::Answer(answer);
        }
        let changes = open.changes.clone();
        let position = self.log.append(Record::Commit(changes));
        Step::Flush(Flush { position, replicate: true, ending: Ending::Commit, answer })
    }

    fn prepare(&mut self, id: BackendId, gid: &Gid) -> Step {
        let Some(open) = self.transaction(id) else { return Step::Answer(Answer::RolledBack) };
        let (xid, failed, has_exported) = (open.xid, open.failed, open.has_exported);
        let changes = open.changes.clone();
        let refused = match () {
            () if failed => Some(Answer::RolledBack),
            () if has_exported => Some(Answer::Error(SqlState::FeatureNotSupported)),
            () if self.prepared.contains_key(gid) => Some(Answer::Error(SqlState::DuplicateObject)),
            () => None,
        };
        if let Some(answer) = refused {
            self.take_transaction(id);
            self.locks.release(xid);
            return Step::Answer(answer);
        }
        let part =
            PreparedPart { xid, changes: changes.clone(), is_valid: false, is_being_ended: false };
        self.prepared.insert(gid.clone(), part);
        let tables = self.locks.tables_of(xid);
        let position = self.log.append(Record::Prepare(gid.clone(), xid, changes, tables));
        Step::Flush(Flush {
            position,
            replicate: true,
            ending: Ending::Prepare(gid.clone()),
            answer: Answer::Done,
        })
    }

    fn end_prepared(&mut self, gid: &Gid, commit: bool) -> Step {
        match self.prepared.get_mut(gid) {
            Some(part) if part.is_valid && !part.is_being_ended => part.is_being_ended = true,
            Some(part) if part.is_valid => {
                return Step::Answer(Answer::Error(SqlState::NotInPrerequisiteState));
            }
            _ => return Step::Answer(Answer::Error(SqlState::UndefinedObject)),
        }
        let (record, ending) = if commit {
            (Record::CommitPrepared(gid.clone()), Ending::CommitPrepared(gid.clone()))
        } else {
            (Record::RollbackPrepared(gid.clone()), Ending::RollbackPrepared(gid.clone()))
        };
        let position = self.log.append(record);
        // It is flushed, but `synchronous_commit = off` does not wait for the standby.
        Step::Flush(Flush { position, replicate: false, ending, answer: Answer::Done })
    }

    /// A gateway that takes a node over holds its list while the new number is being flushed.
    fn is_being_raised(&self) -> bool {
        let raises = |b: &Backend| {
            b.flushing.as_ref().is_some_and(|flush| matches!(flush.ending, Ending::Raise(_)))
        };
        self.backends.values().any(raises)
    }

    fn raise(&mut self, incarnation: u64) -> Step {
        if self.is_being_raised() {
            return Step::Wait;
        }
        if incarnation <= self.gateways.newest {
            return Step::Answer(Answer::Done);
        }
        let position = self.log.append(Record::Newest(incarnation));
        let ending = Ending::Raise(incarnation);
        Step::Flush(Flush { position, replicate: true, ending, answer: Answer::Done })
    }

    /// Terminates these backends. Returns whether all have ended.
    fn end_backends(&mut self, asking: BackendId, backends: &BTreeSet<BackendId>) -> bool {
        let mut all_gone = true;
        for other in backends.iter().filter(|other| **other != asking) {
            let Some(backend) = self.backends.get_mut(other) else { continue };
            if backend.flushing.is_some() {
                // Nothing interrupts a commit; the backend ends after it.
                all_gone = false;
                backend.must_end = true;
            } else {
                self.end_backend(*other);
            }
        }
        all_gone
    }
}
