//! Waiting for a permit on nodes.
//!
//! Owns: the one [`tutti_txn::VoteOrder`] of this gateway, and whom to wake.
//! Never: holds its lock across an await.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tutti_txn::gid;
use tutti_txn::rooms::Visit;

use super::waiters::Waiters;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct VoteOrder {
    state: Mutex<State>,
}

type State = Waiters<tutti_txn::VoteOrder, Visit>;

/// A permit, asked for or granted. It is released when this is dropped.
#[derive(Debug)]
pub struct VotePermit {
    order: Arc<VoteOrder>,
    visit: Visit,
}

impl VoteOrder {
    /// Waits for a permit on all of `nodes`, and holds it until the value is dropped.
    pub async fn take(self: &Arc<Self>, nodes: BTreeSet<gid::NodeId>) -> VotePermit {
        let (permit, granted) = {
            let mut state = self.state();
            let visit = Visit(state.next_number());
            let granted = state.wait(visit);
            state.change(|order, granted| order.ask(visit, nodes, granted));
            (VotePermit { order: self.clone(), visit }, granted)
        };
        let _ = granted.await;
        permit
    }

    /// Whether another transaction waits for this permit.
    pub fn is_awaited(&self, permit: &VotePermit) -> bool {
        self.state().machine.is_awaited(permit.visit)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for VotePermit {
    fn drop(&mut self) {
        let mut state = self.order.state();
        state.give_up(self.visit);
        state.change(|order, granted| order.done(self.visit, granted));
    }
}
