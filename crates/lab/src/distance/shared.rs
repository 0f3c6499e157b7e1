//! What the connections of a link have in common.
//!
//! Owns: the wires, the ledger, and what was said of how the link is to behave.
//! Never: touches a socket.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ledger::{Direction, Ledger};
use super::line::Wire;
use super::stretch::Stretch;

/// Whether anything passes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Passage {
    /// Everything.
    Open,
    /// What is connected; no new connection.
    Refusing,
    /// Nothing, and nobody is told.
    Silent,
}

/// How a link behaves from now on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behaviour {
    pub stretch: Stretch,
    pub passage: Passage,
    /// How often all connections were reset: one that began before the latest time ends.
    pub resets: u64,
}

#[derive(Debug, Default)]
pub(super) struct Shared {
    ledger: Mutex<Ledger>,
    forth: Mutex<Wire>,
    back: Mutex<Wire>,
}

impl Shared {
    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        locked(&self.ledger)
    }

    pub(super) fn wire(&self, direction: Direction) -> MutexGuard<'_, Wire> {
        locked(match direction {
            Direction::Forth => &self.forth,
            Direction::Back => &self.back,
        })
    }
}

/// Each holds plain figures, which are right between any two statements.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
