//! The handle through which tasks act on their world.
//!
//! Owns: that tasks run between events, one at a time.
//! Start reading at [`Sim::run_until`].

use std::cell::{RefCell, RefMut};
use std::future::Future;
use std::rc::Rc;

use super::{Event, World};
use crate::bugs::Bug;
use crate::clock::Time;
use crate::faults::Fault;
use crate::tasks::{GatewayId, Owner, Slot, Tasks};

/// See the module's documentation. Clones are handles of the same world.
#[derive(Clone)]
pub struct Sim {
    world: Rc<RefCell<World>>,
    tasks: Rc<Tasks>,
}

impl Sim {
    /// A world at its beginning.
    pub fn new(seed: u64, bug: Option<Bug>, traced: bool) -> Self {
        Self { world: Rc::new(RefCell::new(World::new(seed, bug, traced))), tasks: Rc::default() }
    }

    /// The world; not to be held over an await.
    pub fn world(&self) -> RefMut<'_, World> {
        self.world.borrow_mut()
    }

    /// Now.
    pub fn now(&self) -> Time {
        self.world().now
    }

    /// Whether this bug is the planted one.
    pub fn has(&self, bug: Bug) -> bool {
        self.world().has(bug)
    }

    /// Begins a task.
    pub fn spawn(&self, owner: Owner, work: impl Future<Output = ()> + 'static) {
        self.tasks.spawn(owner, work);
    }

    /// Ends everything that runs in a gateway, and breaks its connections. To be followed by
    /// [`Sim::gateway_has_ended`] when nothing of it is left.
    pub fn end_gateway(&self, gateway: GatewayId) {
        self.world().gateway_is_dying = true;
        self.tasks.end(Owner::Gateway(gateway));
    }

    /// See [`Sim::end_gateway`].
    pub fn gateway_has_ended(&self) {
        self.world().gateway_is_dying = false;
    }

    /// A gateway stands still; its connections and the nodes do not notice.
    pub fn freeze(&self, gateway: GatewayId) {
        self.tasks.freeze(Owner::Gateway(gateway));
    }

    /// It goes on where it stopped.
    pub fn thaw(&self, gateway: GatewayId) {
        self.tasks.thaw(Owner::Gateway(gateway));
    }

    /// Ends everything.
    pub fn end_all(&self) {
        self.world().gateway_is_dying = true;
        self.tasks.end_all();
    }

    /// Rings after a while.
    pub fn bell(&self, after: Time) -> Slot<()> {
        let bell = Slot::default();
        let mut world = self.world();
        let time = world.now + after;
        world.at(time, Event::Wake(bell.clone()));
        bell
    }

    /// Waits a while.
    pub async fn sleep(&self, duration: Time) {
        self.bell(duration).take().await;
    }

    /// Notes something to find the cause of a failure.
    pub fn note(&self, text: impl FnOnce() -> String) {
        let mut world = self.world();
        let now = world.now;
        world.trace.note(now, text);
    }

    /// Runs everything that happens up to a time, or until a property is found broken.
    pub fn run_until(&self, end: Time, mut fault: impl FnMut(&Sim, Fault)) {
        loop {
            self.tasks.run();
            let event = {
                let mut world = self.world();
                if world.history.is_over() {
                    return;
                }
                let Some((time, event)) = world.queue.next_before(end) else {
                    world.now = end;
                    return;
                };
                world.now = time;
                event
            };
            match event {
                Event::Fault(what) => fault(self, what),
                Event::Wake(bell) => bell.set(()),
                event => self.world().happen(event),
            }
        }
    }
}
