//! What a statement runs on node 1 that the gateway does not see.
//!
//! Owns: what is noted about it until the statement ends. Never: looks at a node (the executor does).

use tutti_sql::plan::Unseen;

/// What is accounted for at the moment.
#[derive(Debug)]
pub(crate) struct Accounting {
    pub(crate) unseen: Unseen,
    /// Names of settings that nobody lists, where settings matter.
    pub(crate) names: Option<String>,
    /// Known to nobody else: what was noted before code ran is still that if it was noted under it.
    pub(crate) nonce: String,
    /// The first question has been asked.
    pub(crate) marked: bool,
    /// The statement itself changes the schema.
    pub(crate) changes_schema: bool,
    /// Replicated tables whose rows other nodes get after the statement, whoever has written them:
    /// schema and name.
    pub(crate) travelling: Vec<(String, String)>,
}
