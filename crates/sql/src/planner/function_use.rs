//! What a statement's function calls amount to.
//!
//! Owns: these findings and how they are put together. Never: finds them (`functions.rs` does).
//! Start reading at [`FunctionUse`].

/// What a statement's function calls amount to. Names are kept for messages.
#[derive(Clone, Debug, Default)]
pub(super) struct FunctionUse {
    /// Must be called on node 1, once (sequences, advisory locks, notifications).
    pub(super) home: Option<String>,
    /// `nextval` and the like among [`Self::home`].
    pub(super) sequence: bool,
    /// Volatile.
    pub(super) volatile: Option<String>,
    /// Volatile and not built in: may write.
    pub(super) may_write: Option<String>,
    /// The current time or date.
    pub(super) reads_time: bool,
}

impl FunctionUse {
    /// Adds what `other` found.
    pub(super) fn merge(&mut self, other: Self) {
        self.home = self.home.take().or(other.home);
        self.sequence |= other.sequence;
        self.volatile = self.volatile.take().or(other.volatile);
        self.may_write = self.may_write.take().or(other.may_write);
        self.reads_time |= other.reads_time;
    }
}
