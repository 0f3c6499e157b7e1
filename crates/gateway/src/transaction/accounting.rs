//! What a statement runs on node 1 unseen by the gateway.
//!
//! Owns: what is noted about it until the statement ends. Never: asks a node (the executor does).

use tutti_sql::plan::Unseen;

/// What is accounted for at the moment.
#[derive(Debug)]
pub(crate) struct Accounting {
    pub(crate) unseen: Unseen,
    /// Names of settings that no view lists, where settings matter.
    pub(crate) names: Option<String>,
    /// Known to no one else: what was noted under it before code ran has not been forged by that
    /// code.
    pub(crate) nonce: String,
    /// The first question has been asked.
    pub(crate) marked: bool,
    /// The statement itself changes the schema.
    pub(crate) changes_schema: bool,
    /// Replicated tables whose rows other nodes get after the statement, whichever code wrote them:
    /// schema and name.
    pub(crate) travelling: Vec<(String, String)>,
    /// Distributed tables that the statement finds whole on node 1, whichever code reads them: schema and name.
    pub(crate) lent: Vec<(String, String)>,
}
