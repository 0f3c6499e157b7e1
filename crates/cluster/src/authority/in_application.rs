//! Waiting for transactions that are visible on some nodes and not yet on others.
//!
//! Owns: the one [`tutti_txn::InApplication`] of this gateway, and whom to wake.
//! Never: holds its lock across an await.
//! Start reading at [`InApplication::wait`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tutti_sql::catalog::NodeId;
use tutti_txn::gid;
use tutti_txn::in_application::{Entry, Wait};

use super::waiters::Waiters;
use crate::numbers::txn_node;

/// See the module's documentation.
#[derive(Debug)]
pub struct InApplication {
    waits_are_on: bool,
    /// How many are in application: the usual answer, none, takes no lock.
    count: AtomicUsize,
    state: Mutex<State>,
}

type State = Waiters<tutti_txn::InApplication, Wait>;

/// A transaction in application; it is applied on all nodes when this is dropped.
#[derive(Debug)]
pub struct Entered {
    in_application: Arc<InApplication>,
    entry: Entry,
}

/// A wait that is given up when this is dropped.
struct Waiting<'a> {
    in_application: &'a InApplication,
    wait: Wait,
}

impl InApplication {
    /// Nothing in application; with `waits_are_on` false nothing waits.
    pub fn new(waits_are_on: bool) -> Arc<Self> {
        Arc::new(Self { waits_are_on, count: AtomicUsize::new(0), state: Mutex::default() })
    }

    /// From now on a transaction that wrote on `nodes` may be visible on some and not on others.
    pub fn begin(self: &Arc<Self>, nodes: impl IntoIterator<Item = gid::NodeId>) -> Entered {
        let mut state = self.state();
        let entry = state.machine.begin(nodes);
        self.count.fetch_add(1, Ordering::SeqCst);
        Entered { in_application: self.clone(), entry }
    }

    /// Whether nothing is in application: no session has to wait for any node.
    pub fn is_idle(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0 || !self.waits_are_on
    }

    /// Whether `node` shows all that is in application now: no session has to wait for it.
    pub fn is_shown_by(&self, node: NodeId) -> bool {
        self.is_idle() || self.state().machine.is_shown_by(txn_node(node))
    }

    /// Waits until all that is in application now is shown by `node`, or by every node if `None`.
    pub async fn wait(&self, node: Option<NodeId>) {
        if self.is_idle() {
            return;
        }
        let (_waiting, released) = {
            let mut state = self.state();
            let wait = Wait(state.next_number());
            if state.machine.wait(wait, node.map(txn_node)) {
                return;
            }
            let released = state.wait(wait);
            (Waiting { in_application: self, wait }, released)
        };
        let _ = released.await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entered {
    /// `node` shows the transaction now, or is not read before it does.
    pub fn applied(&self, node: gid::NodeId) {
        let entry = self.entry;
        self.in_application
            .state()
            .change(|in_application, released| in_application.applied(entry, node, released));
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let entry = self.entry;
        self.in_application
            .state()
            .change(|in_application, released| in_application.end(entry, released));
        self.in_application.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.in_application.state();
        state.give_up(self.wait);
        state.machine.withdraw(self.wait);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_is_let_go_by_those_before_and_not_held_by_those_after() {
        let in_application = InApplication::new(true);
        let nodes = [gid::NodeId(1), gid::NodeId(2)];
        in_application.wait(None).await;
        let first = in_application.begin(nodes);
        let waiting = in_application.wait(Some(NodeId(2)));
        tokio::pin!(waiting);
        let early = tokio::time::timeout(Duration::from_millis(20), waiting.as_mut()).await;
        assert!(early.is_err(), "the first is still inside");
        let second = in_application.begin(nodes);
        let third = in_application.begin([gid::NodeId(1)]);
        assert!(!in_application.is_shown_by(NodeId(2)) && in_application.is_shown_by(NodeId(3)));
        first.applied(gid::NodeId(2));
        waiting.await;
        drop(third);
        first.applied(gid::NodeId(1));
        drop(second);
        in_application.wait(None).await;
        drop(first);
    }
}
