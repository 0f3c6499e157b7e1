//! What can be wrong with a history, by name.
//!
//! Owns: the kinds, and one finding with its proof. Never: searches.
//! Start reading at [`Kind`].

use std::fmt;

use super::model::{Key, TransactionId};

/// What is wrong. None of them may occur where the checker looks for it: `checker` says which are
/// promised at which level.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// A value was read that was never written.
    UnwrittenValue,
    /// An element is in a list twice: a write was done twice.
    DuplicateElement,
    /// A transaction does not see what it wrote itself, or sees what it has not written yet.
    InternalInconsistency,
    /// G1a: something was read that an aborted transaction wrote.
    AbortedRead,
    /// G1b: something was read that its writer itself replaced before it committed.
    IntermediateRead,
    /// Two reads of a row cannot both come from one order of its versions.
    IncompatibleOrders,
    /// What was acknowledged is not there when all is at rest.
    LostWrite,
    /// Something of a transaction was seen, and something of it is not there when all is at rest.
    HalfApplied,
    /// G0: a cycle of writes alone.
    DirtyWrite,
    /// G1c: a cycle of writes and of reads of what was written.
    CircularInformationFlow,
    /// The same, with real time as one of the steps: the future was seen.
    BackInTime,
    /// One snapshot shows two versions of one row.
    NonRepeatableRead,
    /// One snapshot (of a statement or a transaction) shows a part of a transaction.
    FracturedRead,
    /// Two transactions read the same version and both replaced it.
    LostUpdate,
    /// G-single: a snapshot shows an effect without its cause.
    ReadSkew,
    /// A snapshot lacks what was acknowledged before it was asked for.
    StaleRead,
    /// G-nonadjacent: two snapshots show two transactions in opposite orders.
    LongFork,
    /// G2-item: transactions read what the others replaced, rows by key.
    WriteSkew,
    /// G2: the same, where at least one read was of a predicate.
    PredicateWriteSkew,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::UnwrittenValue,
        Self::DuplicateElement,
        Self::InternalInconsistency,
        Self::AbortedRead,
        Self::IntermediateRead,
        Self::IncompatibleOrders,
        Self::LostWrite,
        Self::HalfApplied,
        Self::DirtyWrite,
        Self::CircularInformationFlow,
        Self::BackInTime,
        Self::NonRepeatableRead,
        Self::FracturedRead,
        Self::LostUpdate,
        Self::ReadSkew,
        Self::StaleRead,
        Self::LongFork,
        Self::WriteSkew,
        Self::PredicateWriteSkew,
    ];

    /// What people call it, with the name from the literature.
    pub fn name(self) -> &'static str {
        match self {
            Self::UnwrittenValue => "value that nobody wrote",
            Self::DuplicateElement => "element appended twice",
            Self::InternalInconsistency => "internal inconsistency",
            Self::AbortedRead => "aborted read (G1a)",
            Self::IntermediateRead => "intermediate read (G1b)",
            Self::IncompatibleOrders => "incompatible orders",
            Self::LostWrite => "lost acknowledged write",
            Self::HalfApplied => "half-applied transaction",
            Self::DirtyWrite => "dirty write (G0)",
            Self::CircularInformationFlow => "circular information flow (G1c)",
            Self::BackInTime => "back in time (G1c with real time)",
            Self::NonRepeatableRead => "non-repeatable read",
            Self::FracturedRead => "fractured read",
            Self::LostUpdate => "lost update",
            Self::ReadSkew => "read skew (G-single)",
            Self::StaleRead => "stale read (G-single with real time)",
            Self::LongFork => "long fork (G-nonadjacent)",
            Self::WriteSkew => "write skew (G2-item)",
            Self::PredicateWriteSkew => "write skew over a predicate (G2)",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One finding.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Anomaly {
    /// What is wrong.
    pub kind: Kind,
    /// Sentences that prove it: for a cycle, one per edge.
    pub proof: Vec<String>,
    /// Who takes part, each once.
    pub transactions: Vec<TransactionId>,
    /// The rows that the proof speaks of.
    pub keys: Vec<Key>,
}
