//! Simulated time, and which event comes when.
//!
//! Owns: the order of events: by time, and at one time by when they were scheduled.
//! Never: looks at a real clock, or knows what an event means.
//! Start reading at [`Queue::next_before`].

use std::collections::BTreeMap;

/// Simulated time, in microseconds since the beginning.
pub type Time = u64;

/// Events that are still to come.
pub struct Queue<E> {
    events: BTreeMap<(Time, u64), E>,
    scheduled: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { events: BTreeMap::new(), scheduled: 0 }
    }
}

impl<E> Queue<E> {
    /// Schedules an event.
    pub fn at(&mut self, time: Time, event: E) {
        self.scheduled += 1;
        self.events.insert((time, self.scheduled), event);
    }

    /// The next event, if it comes no later than `end`.
    pub fn next_before(&mut self, end: Time) -> Option<(Time, E)> {
        let next = self.events.first_entry().filter(|next| next.key().0 <= end)?;
        let ((time, _), event) = next.remove_entry();
        Some((time, event))
    }
}
