//! Which SERIALIZABLE transactions that may write are in progress: what READ ONLY DEFERRABLE waits for.
//!
//! Owns: their count, and waiting until those in progress at some time have ended.
//! Never: looks at what they do.
//! Start reading at [`SerializableInProgress::observe`].
//!
//! A READ ONLY transaction can only be part of a dangerous structure through a transaction that
//! writes and was in progress when its snapshot was taken (Ports, Grittner, VLDB 2012, section 4.2:
//! *safe snapshots*). PostgreSQL waits for those and checks whether they did harm; over several nodes
//! a snapshot taken while there was none is safe without a check.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct SerializableInProgress {
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct State {
    begun: u64,
    in_progress: BTreeSet<u64>,
}

/// One of them; it has ended when this is dropped.
#[derive(Debug)]
pub struct InProgress {
    all: Arc<SerializableInProgress>,
    number: u64,
}

/// What was in progress at some time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Observation {
    begun: u64,
    last_in_progress: Option<u64>,
}

impl SerializableInProgress {
    /// A transaction begins, before it takes its snapshot.
    pub fn begin(self: &Arc<Self>) -> InProgress {
        let mut state = self.state();
        state.begun += 1;
        let number = state.begun;
        state.in_progress.insert(number);
        InProgress { all: self.clone(), number }
    }

    /// What is in progress now.
    pub fn observe(&self) -> Observation {
        let state = self.state();
        Observation { begun: state.begun, last_in_progress: state.in_progress.last().copied() }
    }

    /// Waits until those that were in progress at `observed` have ended.
    pub async fn wait_for_end(&self, observed: &Observation) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Registered before the look, so that no end is missed.
            ended.as_mut().enable();
            let first = self.state().in_progress.first().copied();
            if first.is_none_or(|first| observed.last_in_progress.is_none_or(|last| last < first)) {
                return;
            }
            ended.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observation {
    /// Whether none was in progress from this time to `later`.
    pub fn was_quiet_until(&self, later: &Self) -> bool {
        self.last_in_progress.is_none() && self.begun == later.begun
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.all.state().in_progress.remove(&self.number);
        self.all.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_time_is_quiet_if_none_was_in_progress_or_began() {
        let all = Arc::new(SerializableInProgress::default());
        let before = all.observe();
        assert!(before.was_quiet_until(&all.observe()));
        let one = all.begin();
        assert!(!before.was_quiet_until(&all.observe()));
        let during = all.observe();
        drop(one);
        assert!(!during.was_quiet_until(&all.observe()));
        all.wait_for_end(&during).await;
    }
}
