//! Waiting for one's turn on nodes.
//!
//! Owns: the one [`tutti_txn::VoteOrder`] of this gateway, and whom to wake.
//! Never: holds its lock across an await.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tutti_txn::gid;
use tutti_txn::rooms::Visit;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct VoteOrder {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    order: tutti_txn::VoteOrder,
    asked: u64,
    waiting: HashMap<Visit, oneshot::Sender<()>>,
    granted: Vec<Visit>,
}

/// A turn, asked for or granted. It is over when this is dropped.
#[derive(Debug)]
pub struct VotePermit {
    order: Arc<VoteOrder>,
    visit: Visit,
}

impl VoteOrder {
    /// Waits for a turn on all of `nodes`, and has it until the value is dropped.
    pub async fn take(self: &Arc<Self>, nodes: BTreeSet<gid::NodeId>) -> VotePermit {
        let (turn, granted) = {
            let mut state = self.state();
            state.asked += 1;
            let visit = Visit(state.asked);
            let (wake, granted) = oneshot::channel();
            state.waiting.insert(visit, wake);
            state.change(|order, granted| order.ask(visit, nodes, granted));
            (VotePermit { order: self.clone(), visit }, granted)
        };
        let _ = granted.await;
        turn
    }

    /// Whether somebody waits for this one's end.
    pub fn is_awaited(&self, turn: &VotePermit) -> bool {
        self.state().order.is_awaited(turn.visit)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn change(&mut self, step: impl FnOnce(&mut tutti_txn::VoteOrder, &mut Vec<Visit>)) {
        step(&mut self.order, &mut self.granted);
        for visit in self.granted.drain(..) {
            if let Some(wake) = self.waiting.remove(&visit) {
                let _ = wake.send(());
            }
        }
    }
}

impl Drop for VotePermit {
    fn drop(&mut self) {
        let mut state = self.order.state();
        state.waiting.remove(&self.visit);
        state.change(|order, granted| order.done(self.visit, granted));
    }
}
