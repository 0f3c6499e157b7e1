//! Which SERIALIZABLE transactions are at work that may write: what READ ONLY DEFERRABLE waits for.
//!
//! Owns: their count, and waiting until those of a moment have ended.
//! Never: looks at what they do.
//! Start reading at [`SerializableWriters::moment`].
//!
//! A READ ONLY transaction can only be part of a dangerous structure through a writer that was at
//! work when its snapshot was taken (Ports, Grittner, VLDB 2012, section 4.2: *safe snapshots*).
//! PostgreSQL waits for those and looks whether they did harm; over several nodes a snapshot at
//! whose moment there was none is safe without a look.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct SerializableWriters {
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct State {
    begun: u64,
    at_work: BTreeSet<u64>,
}

/// One of them; it has ended when this is dropped.
#[derive(Debug)]
pub struct Writer {
    writers: Arc<SerializableWriters>,
    number: u64,
}

/// What was going on at some moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Moment {
    begun: u64,
    last_at_work: Option<u64>,
}

impl SerializableWriters {
    /// A transaction begins, before it takes its snapshot.
    pub fn begin(self: &Arc<Self>) -> Writer {
        let mut state = self.state();
        state.begun += 1;
        let number = state.begun;
        state.at_work.insert(number);
        Writer { writers: self.clone(), number }
    }

    /// What is going on now.
    pub fn moment(&self) -> Moment {
        let state = self.state();
        Moment { begun: state.begun, last_at_work: state.at_work.last().copied() }
    }

    /// Waits until those at work at `moment` have ended.
    pub async fn wait_for_end(&self, moment: &Moment) {
        loop {
            let ended = self.ended.notified();
            tokio::pin!(ended);
            // Registered before the look, so that no end is missed.
            ended.as_mut().enable();
            let first = self.state().at_work.first().copied();
            if first.is_none_or(|first| moment.last_at_work.is_none_or(|last| last < first)) {
                return;
            }
            ended.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Moment {
    /// Whether nobody was at work from this moment to `later`.
    pub fn was_quiet_until(&self, later: &Self) -> bool {
        self.last_at_work.is_none() && self.begun == later.begun
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.writers.state().at_work.remove(&self.number);
        self.writers.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_moment_is_quiet_if_nobody_was_at_work_or_began() {
        let writers = Arc::new(SerializableWriters::default());
        let before = writers.moment();
        assert!(before.was_quiet_until(&writers.moment()));
        let writer = writers.begin();
        assert!(!before.was_quiet_until(&writers.moment()));
        let during = writers.moment();
        drop(writer);
        assert!(!during.was_quiet_until(&writers.moment()));
        writers.wait_for_end(&during).await;
    }
}
