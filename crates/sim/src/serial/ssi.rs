//! One node's SERIALIZABLE: what PostgreSQL's `predicate.c` notes and refuses, statement by statement.
//!
//! Owns: snapshots, versions of rows, SIREAD locks, read-write conflicts, and the three moments at which
//! the server looks for a dangerous structure.
//! Never: knows of other nodes, gateways, or why something is written.
//! Start reading at [`Node::flag`], then [`Node::prepare`].
//!
//! Names are PostgreSQL's where it has one: *doomed*, *prepared*, *summary* … Every row is a table of its
//! own, so a lock of a row is a relation's. `tests/tests/cluster/serial_model.rs` compares it with a server,
//! in both directions. Left out, because nothing here needs it: conflicts summarised for lack of memory (it
//! is enough for 3,000 transactions, and here are four; those of a restart are here), and the removal of what
//! no transaction can meet any more.

use std::fmt;

/// A transaction of one node, or a sentinel there.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Sx(pub u8);

/// A set of transactions.
#[derive(Clone, Copy, Default, Eq, Hash, PartialEq)]
pub struct Set(pub u16);

impl Set {
    /// Whether it is in there.
    pub fn has(self, sx: Sx) -> bool {
        self.0 & (1 << sx.0) != 0
    }

    /// Puts it in.
    pub fn add(&mut self, sx: Sx) {
        self.0 |= 1 << sx.0;
    }

    /// Takes it out.
    pub fn remove(&mut self, sx: Sx) {
        self.0 &= !(1 << sx.0);
    }

    /// All of it, in order.
    pub fn iter(self) -> impl Iterator<Item = Sx> {
        (0..16).map(Sx).filter(move |sx| self.has(*sx))
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|sx| sx.0)).finish()
    }
}

/// 40001: the transaction must be rolled back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Refused;

/// A table of one row; or the table of tickets, in which each transaction may have rows of its own.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Row(pub u8);

/// The number of a prepare or a commit on this node. PostgreSQL's `SerCommitSeqNo`.
type SeqNo = u8;
/// Where a transaction's number begins; 0 is none.
type Xid = u8;

#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Sxact {
    has_begun: bool,
    has_written: bool,
    /// Declared, or because it has committed without having written.
    is_read_only: bool,
    is_declared_read_only: bool,
    /// READ ONLY: those whose end says whether its snapshot is safe.
    possibly_unsafe: Set,
    /// READ ONLY: nothing that it reads can be part of an anomaly.
    is_safe: bool,
    /// And so it is not watched any more, or never was.
    is_released: bool,
    /// Committed before a restart.
    is_forgotten: bool,
    /// Prepared before a restart: it may have had conflicts in and out.
    is_summary: bool,
    is_doomed: bool,
    is_rolled_back: bool,
    xid: Xid,
    xmin: Xid,
    finished_before: Xid,
    /// What it sees.
    snapshot: Set,
    last_commit_before_snapshot: SeqNo,
    prepared: Option<SeqNo>,
    /// By PREPARE TRANSACTION: it outlives a restart.
    is_two_phase: bool,
    committed: Option<SeqNo>,
    /// It had a conflict out to one that had committed when it did; the first of these prepared then.
    earliest_out: Option<SeqNo>,
    /// In the order in which they were noted: dooming the first may save the next.
    conflicts_in: Vec<Sx>,
    conflicts_out: Set,
}

/// What a transaction begins with on a node.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Snapshot {
    seen: Set,
    xmin: Xid,
}

#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
struct Versions {
    /// Whose versions are committed, in order.
    committed: Vec<Sx>,
    /// The transaction that has a later one, and with it the row's lock.
    pending: Option<Sx>,
}

/// See the module's documentation.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Node {
    sxacts: Vec<Sxact>,
    rows: Vec<Versions>,
    /// Which transactions have a SIREAD lock of each row, and last, of the table of tickets; in order.
    locks: Vec<Vec<Sx>>,
    /// Who has a ticket that was not rolled back, in the order in which a search finds them: the first one
    /// met may end the search.
    tickets: Vec<Sx>,
    /// A ticket was added, whatever happened to it.
    has_had_tickets: bool,
    last_seq_no: SeqNo,
    last_xid: Xid,
}

/// What a restart leaves prepared has this one: before all that comes.
const RECOVERY: SeqNo = 1;

impl Node {
    /// A node with this many rows.
    pub fn new(rows: u8) -> Self {
        let rows = usize::from(rows);
        let (rows, locks) = (vec![Versions::default(); rows], vec![Vec::new(); rows + 1]);
        Self { rows, locks, last_seq_no: RECOVERY, ..Self::default() }
    }

    /// What is visible now.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot { seen: Set::default(), xmin: self.last_xid + 1 };
        for (sx, sxact) in self.all() {
            if sxact.committed.is_some() {
                snapshot.seen.add(sx);
            } else if sxact.xid != 0 && !sxact.is_rolled_back {
                snapshot.xmin = snapshot.xmin.min(sxact.xid);
            }
        }
        snapshot
    }

    /// `sx` begins, with a snapshot of now or of earlier. `GetSerializableTransactionSnapshotInt`.
    pub fn begin(&mut self, sx: Sx, snapshot: Snapshot, read_only: bool) {
        let index = usize::from(sx.0);
        let mut writers = Set::default();
        let mut is_alone = true;
        for (other, sxact) in self.all() {
            let is_at_work = sxact.committed.is_none() && !sxact.is_rolled_back;
            if is_at_work && !sxact.is_declared_read_only {
                is_alone = false;
                if !sxact.is_doomed {
                    writers.add(other);
                }
            }
        }
        let is_safe = read_only && (is_alone || writers == Set::default());
        if self.sxacts.len() <= index {
            self.sxacts.resize(index + 1, Sxact::default());
        }
        self.sxacts[index] = Sxact {
            has_begun: true,
            xmin: snapshot.xmin,
            snapshot: snapshot.seen,
            last_commit_before_snapshot: self.last_seq_no,
            is_read_only: read_only,
            is_declared_read_only: read_only,
            possibly_unsafe: if read_only { writers } else { Set::default() },
            is_safe,
            is_released: is_safe,
            ..Sxact::default()
        };
    }

    /// Reads a row: whose version it is, `None` the first.
    pub fn read(&mut self, sx: Sx, row: Row) -> Result<Option<Sx>, Refused> {
        let versions = self.rows[usize::from(row.0)].clone();
        if self.is_tracked(sx) {
            self.may_go_on(sx)?;
            self.lock(sx, usize::from(row.0));
            for (index, writer) in versions.committed.iter().copied().enumerate() {
                let next = versions.committed.get(index + 1);
                if self.is_met(sx, writer, next.copied()) {
                    self.conflict_out(sx, writer)?;
                }
            }
            if let Some(writer) = versions.pending {
                self.conflict_out(sx, writer)?;
            }
        }
        if versions.pending == Some(sx) {
            return Ok(Some(sx));
        }
        let seen = self.get(sx).snapshot;
        Ok(versions.committed.iter().copied().rfind(|writer| seen.has(*writer)))
    }

    /// Whether writing the row would wait for another transaction.
    pub fn waits(&self, sx: Sx, row: Row) -> bool {
        self.rows[usize::from(row.0)].pending.is_some_and(|holder| holder != sx)
    }

    /// Reads a row and writes a new version of it. Requires: it need not wait.
    pub fn write(&mut self, sx: Sx, row: Row) -> Result<Option<Sx>, Refused> {
        let seen = self.read(sx, row)?;
        self.take_xid(sx);
        let versions = &self.rows[usize::from(row.0)];
        let snapshot = self.get(sx).snapshot;
        if versions.committed.iter().any(|writer| !snapshot.has(*writer)) {
            return Err(Refused);
        }
        self.conflicts_in(sx, usize::from(row.0))?;
        self.rows[usize::from(row.0)].pending = Some(sx);
        Ok(seen)
    }

    /// Adds a ticket.
    pub fn insert_ticket(&mut self, sx: Sx) -> Result<(), Refused> {
        self.take_xid(sx);
        self.conflicts_in(sx, self.rows.len())?;
        self.has_had_tickets = true;
        if !self.has_ticket(sx) {
            self.tickets.push(sx);
        }
        Ok(())
    }

    /// Whether its ticket is there.
    pub fn has_ticket(&self, sx: Sx) -> bool {
        self.tickets.contains(&sx)
    }

    /// Searches all tickets.
    pub fn read_tickets(&mut self, sx: Sx) -> Result<(), Refused> {
        if !self.is_tracked(sx) {
            return Ok(());
        }
        // The server checks whether it is doomed when it meets a row.
        if self.has_had_tickets {
            self.may_go_on(sx)?;
        }
        self.lock(sx, self.rows.len());
        for writer in self.tickets.clone() {
            if self.is_met(sx, writer, None) {
                self.conflict_out(sx, writer)?;
            }
        }
        Ok(())
    }

    /// Part of a transaction is undone: what it wrote of these rows, its ticket if that is asked.
    /// What PostgreSQL has noted about it stays.
    pub fn undo(&mut self, sx: Sx, rows: u16, ticket: bool) {
        for (index, versions) in self.rows.iter_mut().enumerate() {
            if rows & (1 << index) != 0 && versions.pending == Some(sx) {
                versions.pending = None;
            }
        }
        if ticket {
            self.tickets.retain(|other| *other != sx);
        }
    }

    /// The rows of which it has a version that is not committed.
    pub fn pending(&self, sx: Sx) -> u16 {
        let held = self.rows.iter().enumerate().filter(|(_, row)| row.pending == Some(sx));
        held.map(|(index, _)| 1 << index).sum()
    }

    /// The check before a commit, or PREPARE TRANSACTION: from now on it cannot be refused any more.
    /// `PreCommit_CheckForSerializationFailure`. By PREPARE TRANSACTION it takes a number, and counts as
    /// having written.
    pub fn prepare(&mut self, sx: Sx, for_later: bool) -> Result<(), Refused> {
        if self.get(sx).is_released {
            return Ok(());
        }
        if for_later {
            self.take_xid(sx);
            let sxact = self.at(sx);
            (sxact.has_written, sxact.is_two_phase) = (true, true);
        }
        if self.get(sx).is_doomed {
            return Err(Refused);
        }
        for near in self.get(sx).conflicts_in.clone() {
            let pivot = self.get(near);
            if pivot.committed.is_some() || pivot.is_doomed {
                continue;
            }
            let is_dangerous = pivot.conflicts_in.iter().any(|far| {
                let other = self.get(*far);
                *far == sx || (other.committed.is_none() && !other.is_read_only && !other.is_doomed)
            });
            if is_dangerous {
                if pivot.prepared.is_some() {
                    return Err(Refused);
                }
                self.at(near).is_doomed = true;
            }
        }
        self.last_seq_no += 1;
        self.at(sx).prepared = Some(self.last_seq_no);
        Ok(())
    }

    /// Whether it has been checked, and can still be rolled back.
    pub fn is_prepared(&self, sx: Sx) -> bool {
        self.get(sx).prepared.is_some() || self.get(sx).is_released
    }

    /// It becomes visible. Requires: prepared.
    pub fn commit(&mut self, sx: Sx) {
        if self.get(sx).is_released {
            self.at(sx).is_rolled_back = true;
            return;
        }
        for versions in &mut self.rows {
            if versions.pending == Some(sx) {
                versions.pending = None;
                versions.committed.push(sx);
            }
        }
        self.last_seq_no += 1;
        let now = self.last_seq_no;
        let finished_before = self.last_xid + 1;
        let sxact = self.at(sx);
        sxact.committed = Some(now);
        sxact.finished_before = finished_before;
        sxact.is_read_only |= !sxact.has_written;
        sxact.possibly_unsafe = Set::default();
        if sxact.is_summary && !sxact.is_read_only {
            // It is not known when the first transaction of the structure was prepared.
            sxact.earliest_out = Some(RECOVERY + 1);
        }
        let (outs, ins) = (sxact.conflicts_out, sxact.conflicts_in.clone());
        let is_read_only = sxact.is_read_only;
        for out in outs.iter() {
            let Sxact { prepared, committed: Some(_), .. } = *self.get(out) else { continue };
            let sxact = self.at(sx);
            if !is_read_only {
                sxact.earliest_out = sxact.earliest_out.into_iter().chain(prepared).min();
            }
            self.release(sx, out);
        }
        for from in ins {
            let other = self.get(from);
            if other.committed.is_some() || other.is_read_only {
                self.release(from, sx);
            }
        }
        self.ends_beside_readers(sx, true);
    }

    /// A writer has ended: those READ ONLY transactions that were there with it may know more.
    fn ends_beside_readers(&mut self, writer: Sx, has_committed: bool) {
        let ended = self.get(writer);
        if ended.is_declared_read_only {
            return;
        }
        let earliest = ended.earliest_out.filter(|_| has_committed && ended.has_written);
        for sxact in &mut self.sxacts {
            if !sxact.possibly_unsafe.has(writer) {
                continue;
            }
            if earliest.is_some_and(|earliest| earliest <= sxact.last_commit_before_snapshot) {
                // It stays watched.
                sxact.possibly_unsafe = Set::default();
                continue;
            }
            sxact.possibly_unsafe.remove(writer);
            sxact.is_safe = sxact.possibly_unsafe == Set::default();
        }
    }

    /// The server restarts: what is prepared stays, as having had conflicts both ways, and
    /// all else is gone. `predicatelock_twophase_recover`.
    pub fn restart(&mut self) {
        for index in 0..self.sxacts.len() {
            let sx = Sx(u8::try_from(index).expect("worlds are small"));
            let Sxact { has_begun, prepared, is_two_phase, committed, is_rolled_back, .. } =
                *self.get(sx);
            if !has_begun || is_rolled_back {
                continue;
            }
            let stays = prepared.is_some() && is_two_phase;
            if !stays && committed.is_none() {
                self.roll_back(sx);
            }
            let finished_before = self.last_xid + 1;
            let sxact = self.at(sx);
            sxact.conflicts_in.clear();
            sxact.conflicts_out = Set::default();
            if committed.is_some() {
                // No one knows it any more.
                sxact.is_forgotten = true;
                sxact.finished_before = finished_before;
            } else if stays {
                sxact.prepared = Some(RECOVERY);
                sxact.last_commit_before_snapshot = RECOVERY;
                sxact.is_summary = true;
            }
        }
        for index in 0..self.locks.len() {
            let mut holders = std::mem::take(&mut self.locks[index]);
            holders.retain(|holder| !self.get(*holder).is_forgotten);
            self.locks[index] = holders;
        }
        self.last_seq_no = RECOVERY;
    }

    /// Nothing of it remains; also when it is prepared.
    pub fn roll_back(&mut self, sx: Sx) {
        let finished_before = self.last_xid + 1;
        self.undo(sx, u16::MAX, true);
        let sxact = self.at(sx);
        sxact.is_doomed = true;
        sxact.is_rolled_back = true;
        sxact.prepared = None;
        sxact.finished_before = finished_before;
        let (outs, ins) = (sxact.conflicts_out, sxact.conflicts_in.clone());
        for holders in &mut self.locks {
            holders.retain(|holder| *holder != sx);
        }
        for out in outs.iter() {
            self.release(sx, out);
        }
        for from in ins {
            self.release(from, sx);
        }
        self.at(sx).possibly_unsafe = Set::default();
        self.ends_beside_readers(sx, false);
    }

    /// Whose versions are committed, in order.
    pub fn versions(&self, row: Row) -> &[Sx] {
        &self.rows[usize::from(row.0)].committed
    }

    fn get(&self, sx: Sx) -> &Sxact {
        &self.sxacts[usize::from(sx.0)]
    }

    fn at(&mut self, sx: Sx) -> &mut Sxact {
        &mut self.sxacts[usize::from(sx.0)]
    }

    fn all(&self) -> impl Iterator<Item = (Sx, &Sxact)> {
        (0..).map(Sx).zip(&self.sxacts).filter(|(_, sxact)| sxact.has_begun)
    }

    fn take_xid(&mut self, sx: Sx) {
        if self.get(sx).xid == 0 {
            self.last_xid += 1;
            self.at(sx).xid = self.last_xid;
        }
    }

    fn lock(&mut self, sx: Sx, table: usize) {
        let holders = &mut self.locks[table];
        if !holders.contains(&sx) {
            holders.push(sx);
        }
    }

    /// Whether its reads are noted: not those of a transaction whose snapshot is known to be safe.
    /// `SerializationNeededForRead`.
    fn is_tracked(&mut self, sx: Sx) -> bool {
        if self.get(sx).is_safe && !self.get(sx).is_released {
            self.roll_back(sx);
            let sxact = self.at(sx);
            (sxact.is_released, sxact.is_rolled_back) = (true, false);
        }
        !self.get(sx).is_released
    }

    /// Whether `reader`, which comes upon a committed version, checks for conflicts with its writer: it does
    /// not see it, or sees that it was replaced, not long ago, by one that it sees too.
    fn is_met(&self, reader: Sx, writer: Sx, next: Option<Sx>) -> bool {
        let me = self.get(reader);
        if !me.snapshot.has(writer) {
            return true;
        }
        let is_recent = |sx: Sx| me.xmin <= self.get(sx).xid;
        next.is_some_and(|next| me.snapshot.has(next) && is_recent(next) && is_recent(writer))
    }

    fn may_go_on(&self, sx: Sx) -> Result<(), Refused> {
        if self.get(sx).is_doomed { Err(Refused) } else { Ok(()) }
    }

    /// `CheckForSerializableConflictOut`.
    fn conflict_out(&mut self, reader: Sx, writer: Sx) -> Result<(), Refused> {
        let (me, other) = (self.get(reader), self.get(writer));
        let is_seen = me.snapshot.has(writer);
        if reader == writer || other.is_doomed || other.is_forgotten {
            return Ok(());
        }
        if other.is_summary {
            return Err(Refused);
        }
        // It will appear to have been first.
        let is_first = me.is_read_only
            && other.committed.is_some()
            && other.earliest_out.is_none_or(|out| me.last_commit_before_snapshot < out);
        if is_first || is_seen || me.conflicts_out.has(writer) {
            return Ok(());
        }
        self.flag(reader, writer, reader)
    }

    /// `CheckForSerializableConflictIn`, for a table of which any part is written.
    fn conflicts_in(&mut self, writer: Sx, table: usize) -> Result<(), Refused> {
        self.may_go_on(writer)?;
        self.at(writer).has_written = true;
        for reader in self.locks[table].clone() {
            if reader == writer {
                continue;
            }
            let (other, me) = (self.get(reader), self.get(writer));
            // Coarser than being concurrent: the oldest transaction that was running counts.
            let overlaps = other.committed.is_none() || me.xmin < other.finished_before;
            let is_new = !other.conflicts_out.has(writer);
            if !other.is_doomed && overlaps && is_new {
                self.flag(reader, writer, writer)?;
            }
        }
        Ok(())
    }

    /// `FlagRWConflict` with `OnConflict_CheckForSerializationFailure`; `me` is either of them.
    fn flag(&mut self, reader: Sx, writer: Sx, me: Sx) -> Result<(), Refused> {
        if self.is_dangerous(reader, writer) {
            if me == writer || self.get(writer).prepared.is_some() {
                return Err(Refused);
            }
            self.at(writer).is_doomed = true;
        }
        self.at(reader).conflicts_out.add(writer);
        self.at(writer).conflicts_in.push(reader);
        Ok(())
    }

    fn is_dangerous(&self, reader: Sx, writer: Sx) -> bool {
        let (r, w) = (self.get(reader), self.get(writer));
        let before = |prepared: SeqNo, committed: Option<SeqNo>| {
            committed.is_none_or(|committed| prepared <= committed)
        };
        if w.is_summary || (w.committed.is_some() && w.earliest_out.is_some()) {
            return true;
        }
        // The writer is a pivot.
        let is_pivot = w.conflicts_out.iter().any(|out| {
            self.get(out).prepared.is_some_and(|prepared| {
                before(prepared, r.committed)
                    && before(prepared, w.committed)
                    && (!r.is_read_only || prepared <= r.last_commit_before_snapshot)
            })
        });
        if is_pivot {
            return true;
        }
        // The reader is.
        let Some(prepared) = w.prepared.filter(|_| !r.is_read_only) else { return false };
        if r.is_summary {
            return true;
        }
        r.conflicts_in.iter().any(|from| {
            let t0 = self.get(*from);
            !t0.is_doomed
                && t0.committed.is_none_or(|committed| prepared <= committed)
                && (!t0.is_read_only || prepared <= t0.last_commit_before_snapshot)
        })
    }

    fn release(&mut self, reader: Sx, writer: Sx) {
        self.at(reader).conflicts_out.remove(writer);
        self.at(writer).conflicts_in.retain(|from| *from != reader);
    }
}
