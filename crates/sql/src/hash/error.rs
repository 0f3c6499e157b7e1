//! Why a key cannot be hashed here.
//!
//! Owns: the two reasons, which every type's reader gives. Never: guesses which it is.

/// Why a value's bucket is not known here.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CannotHash {
    /// Not a value of the type: every server refuses it. Let a node say so in its own words.
    #[error("not a value of the key's type")]
    Malformed,
    /// Perhaps a value of the type, but what the server makes of this spelling depends on its
    /// version or settings, or is not reproduced here. Let a node compute the bucket.
    #[error("a spelling of the key whose value only the server can tell")]
    NotCanonical,
}
