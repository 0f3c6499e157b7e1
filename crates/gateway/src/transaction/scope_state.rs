//! How well a session knows its scope: how it sees names.
//!
//! Owns: what is stale, and how often it has changed. Never: asks a node (`scope` does).

/// How well a session knows its scope.
#[derive(Debug, Default)]
pub(crate) struct ScopeState {
    /// How often the scope has changed.
    pub(crate) changes: u64,
    /// Stands for the search path: another one for another.
    pub(crate) path: u64,
    /// Of these, how often names of tables or code came to mean others.
    pub(crate) sight_changes: u64,
    /// The schema has changed since names were looked up, in a cluster of one node's tables, where they
    /// do not matter; or node 1 could not be asked. The next statement to which they matter asks.
    pub(crate) is_stale: bool,
    /// How long it may be idle has to be asked too, which matters even where everything is on node
    /// 1.
    pub(crate) settings_are_stale: bool,
    /// The transaction has changed the scope, and must look it up before it uses a name.
    pub(crate) is_due: bool,
    /// Code has set what names depend on.
    pub(crate) is_stale_by_settings: bool,
    /// How often the schema has been read as a transaction of the session sees it that has changed it: its number until the
    /// transaction ends.
    pub(crate) own_schemas: u64,
    /// The [`Registry::path_changes`](crate::registry::Registry::path_changes) after which its names were looked up.
    pub(crate) seen_path_changes: u64,
}
