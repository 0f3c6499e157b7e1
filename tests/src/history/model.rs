//! A history: what transactions asked for, what they were told, and when.
//!
//! Owns: the types. Never: judges. The text form of each is in `notation`.
//! Start reading at [`Transaction`].

use std::collections::BTreeMap;

/// Position in the order of events of a run: sending a statement and having its answer each take one.
pub type Instant = u64;

/// A value written to a register or an element appended to a list. Each is written once per key;
/// 0 is what a register holds before it was first written.
pub type Value = i64;

/// What a register holds before it was first written.
pub const INITIAL: Value = 0;

/// Number of a transaction, as people see it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TransactionId(pub u32);

/// One row.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Key {
    /// A value that writes replace.
    Register(u32),
    /// Elements that writes are appended to.
    List(u32),
}

/// Isolation levels as PostgreSQL has them: REPEATABLE READ is snapshot isolation.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Level {
    /// Each statement has a snapshot of its own.
    ReadCommitted,
    /// One snapshot for the whole transaction.
    RepeatableRead,
    /// As if one after the other.
    Serializable,
}

impl Level {
    /// All of them, the weakest first.
    pub const ALL: [Self; 3] = [Self::ReadCommitted, Self::RepeatableRead, Self::Serializable];

    /// As SQL calls it.
    pub fn sql(self) -> &'static str {
        match self {
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }

    /// Whether all statements of a transaction read one snapshot.
    pub fn has_one_snapshot(self) -> bool {
        self != Self::ReadCommitted
    }
}

/// What a client may believe about its transaction.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Outcome {
    /// It was told COMMIT.
    Committed,
    /// It was told an error, or never asked for COMMIT.
    Aborted,
    /// It asked for COMMIT and was not told what came of it.
    Unknown,
}

/// What a statement saw or did in one row.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Operation {
    /// A register held `value`, which had replaced `over` if the row told.
    Read {
        /// The register.
        register: u32,
        /// What it held.
        value: Value,
        /// What that replaced.
        over: Option<Value>,
    },
    /// A register got `value`, which replaced `over` if the server told.
    Write {
        /// The register.
        register: u32,
        /// What it got.
        value: Value,
        /// What it had.
        over: Option<Value>,
    },
    /// A list held these elements, oldest first.
    ReadList {
        /// The list.
        list: u32,
        /// What it held.
        elements: Vec<Value>,
    },
    /// A list got one more element at its end.
    Append {
        /// The list.
        list: u32,
        /// What it got.
        element: Value,
    },
}

impl Operation {
    /// The row.
    pub fn key(&self) -> Key {
        match self {
            Self::Read { register, .. } | Self::Write { register, .. } => Key::Register(*register),
            Self::ReadList { list, .. } | Self::Append { list, .. } => Key::List(*list),
        }
    }

    /// What it wrote.
    pub fn written(&self) -> Option<(Key, Value)> {
        match self {
            Self::Write { value, .. } => Some((self.key(), *value)),
            Self::Append { element, .. } => Some((self.key(), *element)),
            Self::Read { .. } | Self::ReadList { .. } => None,
        }
    }

    /// Whether it is a read.
    pub fn is_read(&self) -> bool {
        self.written().is_none()
    }
}

/// How a statement finds its rows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// By keys.
    Keys,
    /// By a condition that rows may start to satisfy: what it reads is a predicate.
    Predicate,
    /// By keys, and locks the rows (`FOR UPDATE`): it reads the newest versions, not a snapshot.
    Locking,
}

/// One statement that was answered, with all that it saw and did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Statement {
    /// Before it was sent.
    pub sent: Instant,
    /// After its answer was there.
    pub answered: Instant,
    /// How it finds rows.
    pub access: Access,
    /// What it saw and did.
    pub operations: Vec<Operation>,
}

/// One transaction as its client knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Transaction {
    /// Its number.
    pub id: TransactionId,
    /// Who ran it; a client runs one at a time.
    pub client: u32,
    /// Its isolation level.
    pub level: Level,
    /// Before its first statement was sent (BEGIN takes no snapshot).
    pub begin: Instant,
    /// After its end was acknowledged, or it was given up.
    pub end: Instant,
    /// What its client believes.
    pub outcome: Outcome,
    /// Whether it reads everything after all others have ended and all faults have been repaired, so
    /// that what it does not see is lost.
    pub at_rest: bool,
    /// Its statements in order. One that failed is left out, unless it may have written.
    pub statements: Vec<Statement>,
}

impl Transaction {
    /// All operations in order, with the statement of each.
    pub fn operations(&self) -> impl Iterator<Item = (usize, &Operation)> {
        self.statements
            .iter()
            .enumerate()
            .flat_map(|(index, statement)| statement.operations.iter().map(move |o| (index, o)))
    }

    /// What it left in each row that it wrote: the last of what it wrote there.
    pub fn installed(&self) -> BTreeMap<Key, Value> {
        self.operations().filter_map(|(_, operation)| operation.written()).collect()
    }
}

/// A whole run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct History {
    /// All transactions; ids are distinct.
    pub transactions: Vec<Transaction>,
}
