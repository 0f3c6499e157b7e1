//! Numbers for what a statement may call: objects of users' by their OIDs, and words of its text among them.
//!
//! Owns: that words and objects do not have the same number. Never: knows what a word means.
//! Start reading at [`mark_of`].

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::code::Called;

/// Marks every statement that fires event triggers.
pub(crate) const FIRES_EVENTS: u32 = WORD;
/// Marks words, in the place where objects of users' have their OIDs. (An OID as large is taken for a word: it
/// takes two billion objects.)
const WORD: u32 = 1 << 31;

/// By whose sight a word means something.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Seen<'a> {
    /// What this schema has, which is in a search path, or stands before the word.
    In(&'a str),
    /// What any schema has: the word is some owner's, whose path is not known.
    ByOwner,
    /// What there is, once the schemas that roles see have changed.
    Anew,
}

/// A word by which a statement may call something, as a number among OIDs. Different words may have the
/// same number: then a statement counts that calls nothing.
pub(crate) fn mark_of(seen: Seen<'_>, call: (Called, &str)) -> u32 {
    let mut hasher = DefaultHasher::new();
    (seen, call).hash(&mut hasher);
    WORD | u32::try_from(hasher.finish() >> 33).expect("31 bits")
}

/// Whether a number is that of an object, not of a word.
pub(crate) fn is_object(mark: u32) -> bool {
    mark < WORD
}
