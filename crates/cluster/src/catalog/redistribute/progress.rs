//! How far tables are that are getting another placement, for other sessions to see, and that it is to end.
//!
//! Owns: what is counted. Never: says who may see it, or when it has ended: whoever shares it does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tutti_sql::refusal::Refusal;

/// What is being done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Phase {
    /// The table is being locked: others may be using it.
    #[default]
    Locking,
    /// Other nodes get its definition and what that needs.
    Preparing,
    /// Rows are being deleted where they do not belong, and those that travel will be.
    Deleting,
    /// Rows travel.
    Moving,
    /// All rows are where they belong; the schema is being checked.
    Checking,
}

impl Phase {
    /// For users.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Locking => "waiting for locks",
            Self::Preparing => "preparing other nodes",
            Self::Deleting => "deleting rows",
            Self::Moving => "moving rows",
            Self::Checking => "checking the schema",
        }
    }
}

/// What there is to see at one moment.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Seen {
    /// The table at hand, with its schema.
    pub relation: String,
    /// What is being done with it.
    pub phase: Phase,
    /// Rows of it that have been read where they were, to be stored where they belong.
    pub rows: u64,
    /// The length of their texts.
    pub bytes: u64,
    /// How many rows it has where rows are read, by the statistics there; `None`: there are none.
    pub estimated_rows: Option<u64>,
    /// Tables that are where they are to be.
    pub tables_done: usize,
    /// All tables of the statement that may move.
    pub tables_total: usize,
}

/// Written by the one session that moves the tables, a few times per table and once per batch of rows; read by whoever asks.
#[derive(Debug, Default)]
pub struct Progress {
    seen: Mutex<Seen>,
    cancelled: AtomicBool,
}

impl Progress {
    /// What there is to see now.
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It is to end: a cancel request that comes between two statements finds nothing on any node.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Errors: 57014 if it is to end.
    pub(super) fn heed(&self) -> Result<(), Refusal> {
        match self.cancelled.load(Ordering::Acquire) {
            true => Err(Refusal::postgres("57014", "canceling statement due to user request")),
            false => Ok(()),
        }
    }

    /// Something else is being done from now on.
    pub fn enter(&self, phase: Phase) {
        self.change(|seen| seen.phase = phase);
    }

    /// There are so many tables, of which this is the first.
    pub fn begin(&self, relation: &str, tables_total: usize) {
        let relation = relation.to_owned();
        self.change(|seen| *seen = Seen { relation, tables_total, ..Seen::default() });
    }

    /// The next table is at hand.
    pub fn begin_table(&self, relation: &str) {
        let relation = relation.to_owned();
        self.change(|seen| {
            let Seen { tables_done, tables_total, phase, .. } = *seen;
            *seen = Seen { relation, tables_done, tables_total, phase, ..Seen::default() };
        });
    }

    /// The table at hand is where it is to be.
    pub fn end_table(&self) {
        self.change(|seen| seen.tables_done += 1);
    }

    pub(super) fn estimate(&self, rows: Option<u64>) {
        self.change(|seen| seen.estimated_rows = rows);
    }

    pub(super) fn moved(&self, rows: usize, bytes: usize) {
        let (rows, bytes) = (rows as u64, bytes as u64);
        self.change(|seen| {
            seen.rows += rows;
            seen.bytes += bytes;
        });
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_is_counted_from_nothing() {
        let progress = Progress::default();
        progress.begin("public.customers", 2);
        progress.enter(Phase::Moving);
        progress.estimate(Some(1000));
        progress.moved(500, 9000);
        progress.moved(20, 300);
        let seen = progress.seen();
        assert_eq!((seen.rows, seen.bytes, seen.estimated_rows), (520, 9300, Some(1000)));
        progress.end_table();
        progress.begin_table("public.orders");
        let expected = Seen {
            relation: "public.orders".to_owned(),
            phase: Phase::Moving,
            tables_done: 1,
            tables_total: 2,
            ..Seen::default()
        };
        assert_eq!(progress.seen(), expected);
    }

    #[test]
    fn what_is_cancelled_ends() {
        let progress = Progress::default();
        assert!(progress.heed().is_ok());
        progress.cancel();
        assert_eq!(progress.heed().map_err(|refusal| refusal.sqlstate), Err("57014"));
    }
}
