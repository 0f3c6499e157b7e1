//! One connection's place in the count of those to its node.
//!
//! Owns: that the place is free when the connection has ended. Never: counts one in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One connection's place in the count.
#[derive(Debug)]
pub struct Slot(Arc<AtomicUsize>);

impl Slot {
    /// For a connection that has been counted.
    pub(super) fn of(count: Arc<AtomicUsize>) -> Self {
        Self(count)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
