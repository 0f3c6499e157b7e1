//! What an anchor's record can say.
//!
//! Owns: the two decisions and their spelling in `tutti.decision`.
//! Never: decides. The coordinator's COMMIT on the anchor does, or recovery's refusal.
//! Start reading at [`Decision`].

use std::fmt;
use std::str::FromStr;

/// What was decided about a global transaction: the content of its row in `tutti.decision` on its
/// anchor.
///
/// The protocol needs this much of the table, on every node:
///
/// ```sql
/// CREATE TABLE tutti.decision (
///     gid      text PRIMARY KEY,
///     decision text NOT NULL CHECK (decision IN ('committed', 'aborted'))
/// );
/// ```
///
/// The primary key is the whole arbitration: the coordinator inserts `committed` in the anchor's
/// own transaction, recovery inserts `aborted` on its own, and PostgreSQL lets one of them succeed.
/// A row never changes. It may be deleted only when no part of its transaction and no backend that
/// could still insert the other decision is left on any node.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Decision {
    /// Every part commits.
    Committed,
    /// Every part rolls back.
    Aborted,
}

impl Decision {
    /// The text in the column `decision`; also understood by [`str::parse`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Aborted => "aborted",
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The column `decision` held something else: a reader must not guess.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("\"{found}\" is not a decision: tutti.decision holds \"committed\" or \"aborted\"")]
pub struct UnknownDecision {
    /// The text found.
    pub found: String,
}

impl FromStr for Decision {
    type Err = UnknownDecision;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "committed" => Ok(Self::Committed),
            "aborted" => Ok(Self::Aborted),
            _ => Err(UnknownDecision { found: text.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_writes_and_nothing_else() {
        for decision in [Decision::Committed, Decision::Aborted] {
            assert_eq!(decision.as_str().parse(), Ok(decision));
        }
        assert!("Committed".parse::<Decision>().is_err());
        assert!("".parse::<Decision>().is_err());
    }
}
