//! Those who wait until a machine of `tutti_txn` lets them go on.
//!
//! Owns: whom to wake, and that whoever is released is woken with the step that releases it.
//! Never: decides who may go on; locks (whoever owns it does).
//! Start reading at [`Waiters::change`].

use std::collections::HashMap;
use std::hash::Hash;

use tokio::sync::oneshot;

/// A machine, and those who wait for it by the names that it knows them by.
#[derive(Debug)]
pub(super) struct Waiters<Machine, Name> {
    /// What decides.
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
    /// A number that was not given before, to make a name of.
    pub(super) fn next_number(&mut self) -> u64 {
        self.named += 1;
        self.named
    }

    /// From now on somebody waits by this name: until the receiver is told. The sender goes only when it has told.
    pub(super) fn wait(&mut self, name: Name) -> oneshot::Receiver<()> {
        let (wake, released) = oneshot::channel();
        self.waiting.insert(name, wake);
        released
    }

    /// Nobody waits by this name any more.
    pub(super) fn give_up(&mut self, name: Name) {
        self.waiting.remove(&name);
    }

    /// A step of the machine, which appends the names of those who may go on; they are woken.
    pub(super) fn change(&mut self, step: impl FnOnce(&mut Machine, &mut Vec<Name>)) {
        step(&mut self.machine, &mut self.released);
        for name in self.released.drain(..) {
            if let Some(wake) = self.waiting.remove(&name) {
                // Whoever is not there any more leaves by its own drop.
                let _ = wake.send(());
            }
        }
    }
}
