//! Tasks that wait until a machine of `tutti_txn` lets them proceed.
//!
//! Owns: whom to wake, and that a task is woken in the same step that releases it.
//! Never: decides which may proceed; locks (its owner does).
//! Start reading at [`Waiters::change`].

use std::collections::HashMap;
use std::hash::Hash;

use tokio::sync::oneshot;

/// A machine, and the tasks waiting for it, by the names that it knows them by.
#[derive(Debug)]
pub(super) struct Waiters<Machine, Name> {
    /// The machine that decides.
    pub(super) machine: Machine,
    named: u64,
    waiting: HashMap<Name, oneshot::Sender<()>>,
    released: Vec<Name>,
}

impl<Machine: Default, Name> Default for Waiters<Machine, Name> {
    fn default() -> Self {
        let machine = Machine::default();
        Self { machine, named: 0, waiting: HashMap::new(), released: Vec::new() }
    }
}

impl<Machine, Name: Copy + Eq + Hash> Waiters<Machine, Name> {
    /// A number not returned before, to make a name of.
    pub(super) fn next_number(&mut self) -> u64 {
        self.named += 1;
        self.named
    }

    /// From now on a task waits under this name, until the receiver gets its message. The sender is dropped only
    /// after sending.
    pub(super) fn wait(&mut self, name: Name) -> oneshot::Receiver<()> {
        let (wake, released) = oneshot::channel();
        self.waiting.insert(name, wake);
        released
    }

    /// Nothing waits under this name any more.
    pub(super) fn give_up(&mut self, name: Name) {
        self.waiting.remove(&name);
    }

    /// A step of the machine, which appends the names of those that may proceed; they are woken.
    pub(super) fn change(&mut self, step: impl FnOnce(&mut Machine, &mut Vec<Name>)) {
        step(&mut self.machine, &mut self.released);
        for name in self.released.drain(..) {
            if let Some(wake) = self.waiting.remove(&name) {
                // A task that is gone withdraws by its own drop.
                let _ = wake.send(());
            }
        }
    }
}
