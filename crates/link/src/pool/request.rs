//! What a session asks the pool for: a connection, and for which role.
//!
//! Owns: which connections the session can be given. Never: takes one.

use std::sync::Arc;

use super::SessionState;
use super::link::Link;
use crate::connection::Credentials;

/// Who a connection is for.
#[derive(Debug)]
pub struct CheckoutRequest<'a> {
    /// The role that the client has logged in as.
    pub user: &'a str,
    /// Its number on node 1: a name may come to mean another role, whose connections these are not.
    pub role: u32,
    /// What it can log in to nodes with.
    pub credentials: &'a Credentials,
    /// Number of the session.
    pub session: u64,
    /// What it has set.
    pub state: &'a Arc<SessionState>,
    /// It has set names with a dot itself.
    pub has_placeholders: bool,
}

impl CheckoutRequest<'_> {
    /// Whether what the connection's earlier sessions have left on it can be cleaned.
    pub(super) fn may_have(&self, link: &Link) -> bool {
        let is_own = link.owner == self.session;
        is_own || !link.has_temporary_schema && (!link.has_placeholders || self.has_placeholders)
    }
}
