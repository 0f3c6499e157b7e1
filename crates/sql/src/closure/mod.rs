//! What code a statement can reach that its text does not show, and what that code may touch.
//!
//! Functions, operators, casts, aggregates, domains, defaults, policies, views, triggers, rules: a node
//! runs them by itself and shows them its own rows only. Code is **transparent** where it is proven
//! to look at its arguments only; it may **read replicated tables** where its text proves that it does no
//! more; everything else is **opaque**: it runs on node 1, which is asked afterwards what it has touched.
//!
//! Owns: the search from a statement through the facts of all such code (`search`), and what a change of
//! these facts means (`added`, `grown`, `declarations`). Never: believes a declared volatility, or misses a name: what
//! a name may mean, it means.
//! Start reading at [`Reach`], then `search.rs`; the facts are in `code`.
//! The reasons: docs/decisions/2026-11-22-unseen-code.md.

mod added;
mod declarations;
mod grown;
mod marks;
mod reach;
mod search;
#[cfg(test)]
mod tests;

pub use crate::code::{
    Attached, AttachedKind, Body, BuiltIn, BuiltInCode, Code, Declaration, FunctionCode, KeyColumn,
    Layout, OperatorCode, TypeCode, TypeKind, Use, WrittenWith, classify, dotted_names, events,
    names_accounting,
};
pub use added::{adds_code, is_elsewhere, mistakable, namesakes, renamed, turned};
pub use declarations::{Ended, ended};
pub use grown::{Grown, grown};
pub(crate) use marks::{FIRES_EVENTS, is_object};
pub use reach::{Reach, Reason};
pub(crate) use search::{Search, Writing, is_of_home_rows, mistakable_rows};
