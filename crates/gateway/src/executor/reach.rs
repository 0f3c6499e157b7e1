//! What the executor reaches while it carries out a plan: the transaction and the client.
//!
//! Owns: that they are fields of their own, so that a link and the client can be used side by side.
//! Never: does anything; each kind of plan has a file of its own.

use super::plan_tree::Exchanges;
use crate::client::Client;
use crate::transaction::TransactionContext;

/// Carries out plans: over the connections of `tx`, and to `client`.
pub(crate) struct Executor<'a> {
    pub(crate) tx: &'a mut TransactionContext,
    pub(crate) client: &'a mut Client,
    /// What has been brought together, where EXPLAIN ANALYZE is to show it.
    pub(crate) exchanges: Option<Exchanges>,
}
