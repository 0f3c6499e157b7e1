//! Which kind of commit a transaction over several nodes needs.
//!
//! Owns: whether its nodes commit together, and if so where and in which form that is decided.
//! Never: commits (`session::global_commit` and `session::node_by_node` do).
//! Start reading at [`TransactionContext::form_of_commit`].

use tutti_sql::catalog::NodeId;
use tutti_txn::coordinator::Form;

use crate::transaction::settings::CommitMode;
use crate::transaction::{Level, TransactionContext};

impl TransactionContext {
    /// Whether each node commits its part of the transaction by itself. Where it is SERIALIZABLE that would not
    /// be as if alone: a client that asks for both gets the one that promises more.
    pub(crate) fn commits_node_by_node(&self) -> bool {
        self.settings.commit == CommitMode::Base
            && self.level() != Level::Serializable
            && !self.transaction.must_be_whole()
    }

    /// Where the commit of a transaction that wrote on all of `writers` is decided, and in which form.
    pub(crate) fn form_of_commit(&self, writers: &[NodeId]) -> (NodeId, Form) {
        let spread = usize::try_from(self.number).unwrap_or(0) % writers.len();
        let must_anchor = self.cannot_prepare(writers);
        let form = match (must_anchor.is_some(), self.level() == Level::Serializable) {
            (true, _) => Form::Anchored,
            // All checks are done before the decision: none is waited for in the commit room.
            (false, true) => Form::Apart,
            (false, false) => self.registry.cluster.config.switches.form,
        };
        (must_anchor.unwrap_or(writers[spread]), form)
    }

    /// Which of the writers cannot prepare: it has touched temporary tables, notifications, or cursors WITH HOLD.
    pub(crate) fn cannot_prepare(&self, writers: &[NodeId]) -> Option<NodeId> {
        let temporary = (!self.scope.temporary.is_empty()).then_some(NodeId::HOME);
        let node = self.transaction.must_anchor.or(temporary);
        node.filter(|node| writers.contains(node))
    }
}
