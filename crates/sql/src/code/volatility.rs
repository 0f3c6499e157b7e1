//! How far a function's result can be relied upon.
//!
//! Owns: PostgreSQL's three classes, from the least volatile to the most. Never: says which function is of which.

/// PostgreSQL's `provolatile`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Volatility {
    /// Same arguments, same result, forever.
    Immutable,
    /// Same result within one statement on one node (`now()`).
    Stable,
    /// A new result at every call, or a side effect (`random()`, `nextval()`).
    Volatile,
}
