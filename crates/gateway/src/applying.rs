//! Which global transactions are decided but not yet applied on all their nodes.
//!
//! Owns: their numbers, and waiting until those of a moment are through.
//! Never: holds a lock across an await. The rooms of design section 5 will take this over.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Applying {
    state: Mutex<State>,
    left: Notify,
}

#[derive(Debug, Default)]
struct State {
    entered: u64,
    inside: BTreeSet<u64>,
}

/// A transaction that is being applied; it is through when this is dropped.
#[derive(Debug)]
pub struct Entered<'a> {
    applying: &'a Applying,
    number: u64,
}

impl Applying {
    /// From now on a transaction may be visible on some nodes and not on others.
    pub fn enter(&self) -> Entered<'_> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.entered += 1;
        let number = state.entered;
        state.inside.insert(number);
        Entered { applying: self, number }
    }

    /// Waits until every transaction that is inside now is through. Those that enter later are not
    /// waited for, so the wait is bounded by what is going on.
    pub async fn wait_for_current(&self) {
        let last = self.state.lock().unwrap_or_else(PoisonError::into_inner).entered;
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            // Registered before the look, so that no leaving is missed.
            left.as_mut().enable();
            let first = {
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.inside.first().copied()
            };
            if first.is_none_or(|first| last < first) {
                return;
            }
            left.await;
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut state = self.applying.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.inside.remove(&self.number);
        drop(state);
        self.applying.left.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn whoever_waits_is_let_go_by_those_before_and_not_held_by_those_after() {
        let applying = Applying::default();
        applying.wait_for_current().await;
        let first = applying.enter();
        let waiting = applying.wait_for_current();
        tokio::pin!(waiting);
        let early = tokio::time::timeout(Duration::from_millis(20), waiting.as_mut()).await;
        assert!(early.is_err(), "the first is still inside");
        let second = applying.enter();
        drop(first);
        waiting.await;
        drop(second);
    }
}
