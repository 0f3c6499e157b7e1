//! EXPLAIN of another statement.
//!
//! Owns: what is asked of nodes, and in which form the client gets it.
//! Never: renders a plan.

use super::Planned;

/// EXPLAIN [ANALYZE] of a statement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Explain {
    /// The statement's own plan.
    pub of: Box<Planned>,
    /// Text of the explained statement.
    pub statement: String,
    /// `EXPLAIN (options) ` with which to ask a node about a part of the statement; unless text is wanted, for JSON.
    pub prefix: String,
    /// The same that runs nothing.
    pub estimate_prefix: String,
    /// ANALYZE was asked for (it really runs the statement).
    pub analyze: bool,
    /// VERBOSE.
    pub verbose: bool,
    /// ANALYZE shows times.
    pub timing: bool,
    /// The time of the whole is shown.
    pub summary: bool,
    /// GENERIC_PLAN: the statement has parameters without values.
    pub generic: bool,
    /// What the client gets.
    pub format: ExplainFormat,
}

/// EXPLAIN's FORMAT.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ExplainFormat {
    /// Lines; also where none is given.
    Text,
    /// A document.
    Json,
    /// A document.
    Yaml,
    /// A document.
    Xml,
}

impl ExplainFormat {
    /// The OID of the answer's type.
    pub fn type_oid(self) -> u32 {
        match self {
            Self::Text | Self::Yaml => 25,
            Self::Json => 114,
            Self::Xml => 142,
        }
    }
}
