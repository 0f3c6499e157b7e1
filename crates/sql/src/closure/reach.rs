//! What a search through code has found: whether a statement may run anywhere, and if not, why.
//!
//! Owns: these findings and how they are put together. Never: searches (`search` does).
//! Start reading at [`Reach`].

use std::collections::BTreeSet;

/// What was found about code that a statement can reach.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Reach {
    /// Why it cannot be known what it touches, if so: `function f() reads table "t"`.
    pub opaque: Option<Reason>,
    /// Replicated tables that it reads, and does no more with; qualified.
    pub reads: BTreeSet<String>,
    /// It may change settings of the session.
    pub sets: bool,
    /// It may catch an error of its own, and so undo a part of what it did.
    pub catches: bool,
    /// It may read rows by their place, which a server does not count where a table has no page.
    pub samples: bool,
    /// A function may give the current time, or what another server has otherwise.
    pub differs: bool,
    /// It may turn off what accounting for it rests on.
    pub hides: bool,
    /// What ends transactions in it.
    pub commits: Option<String>,
    /// It may leave anything in its session: code that was declared, not proven.
    pub leaves: bool,
    /// Why its text does not prove that it touches tables of node 1 only, if so. (It may read
    /// replicated ones.)
    pub beyond_home: Option<Reason>,
    /// Tables that such a proof rests on, by OID.
    pub home_tables: BTreeSet<u32>,
    /// What it calls, and may call by what its text says: see [`grown`](super::grown).
    pub calls: BTreeSet<u32>,
}

impl Reach {
    /// Adds what `other` found.
    pub fn merge(&mut self, other: Self) {
        self.opaque = self.opaque.take().or(other.opaque);
        self.reads.extend(other.reads);
        self.sets |= other.sets;
        self.catches |= other.catches;
        self.samples |= other.samples;
        self.differs |= other.differs;
        self.hides |= other.hides;
        self.commits = self.commits.take().or(other.commits);
        self.leaves |= other.leaves;
        self.beyond_home = self.beyond_home.take().or(other.beyond_home);
        self.home_tables.extend(other.home_tables);
        self.calls.extend(other.calls);
    }

    /// Whether any node may run it, and all give the same.
    pub fn is_transparent(&self) -> bool {
        self.opaque.is_none() && self.reads.is_empty()
    }
}

/// Why code is opaque.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reason {
    /// The code: `function f()`.
    pub code: String,
    /// What it does, as the rest of a sentence: `reads table "t"`.
    pub does: String,
}

impl Reason {
    /// Whether it is so only by declaration.
    pub fn is_declared_home(&self) -> bool {
        self.does == DECLARED_HOME
    }
}

/// What is said of functions that are declared so.
pub(super) const DECLARED_HOME: &str = "is declared 'home'";

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.code, self.does)
    }
}
