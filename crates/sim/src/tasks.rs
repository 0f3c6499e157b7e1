//! Tasks: what gateways and clients do, written as futures and run one at a time in one order.
//!
//! Owns: the ready queue, the spawning and ending of tasks, and the two things a task can wait for:
//! a [`Slot`] (one value) and a [`Mailbox`] (many).
//! Never: runs anything at the same time as anything else, and never looks at a clock: what wakes a
//! task is another task or an event of the world. So the same seed gives the same run.
//! Start reading at [`Tasks::run`].

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A gateway's process; never used twice.
pub type GatewayId = u32;

/// Whose task it is; a gateway's end with the gateway.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Owner {
    /// A client, or the world itself.
    Outside,
    /// A gateway.
    Gateway(GatewayId),
}

type Work = Pin<Box<dyn Future<Output = ()>>>;
/// The standard wakers must be `Send`, so the queue is, although one thread uses it.
type ReadyQueue = Arc<Mutex<VecDeque<u64>>>;

struct TaskWaker {
    task: u64,
    ready: ReadyQueue,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        push(&self.ready, self.task);
    }
}

fn push(ready: &ReadyQueue, task: u64) {
    ready.lock().unwrap_or_else(PoisonError::into_inner).push_back(task);
}

/// All tasks of a world.
#[derive(Default)]
pub struct Tasks {
    begun: Cell<u64>,
    waiting: RefCell<BTreeMap<u64, (Owner, Work)>>,
    ready: ReadyQueue,
    /// Whose tasks are halted, and which of them would run.
    frozen: RefCell<BTreeMap<Owner, Vec<u64>>>,
}

impl Tasks {
    /// Adds a task, to be run when its turn comes.
    pub fn spawn(&self, owner: Owner, work: impl Future<Output = ()> + 'static) {
        let task = self.begun.get() + 1;
        self.begun.set(task);
        self.waiting.borrow_mut().insert(task, (owner, Box::pin(work)));
        push(&self.ready, task);
    }

    /// Runs tasks in the order in which they were woken, until all wait.
    pub fn run(&self) {
        loop {
            let next = self.ready.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(task) = next else { return };
            // A task may have ended after it was woken.
            let Some((owner, mut work)) = self.waiting.borrow_mut().remove(&task) else { continue };
            if let Some(parked) = self.frozen.borrow_mut().get_mut(&owner) {
                parked.push(task);
                self.waiting.borrow_mut().insert(task, (owner, work));
                continue;
            }
            let waker = Waker::from(Arc::new(TaskWaker { task, ready: self.ready.clone() }));
            if work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
                self.waiting.borrow_mut().insert(task, (owner, work));
            }
        }
    }

    /// Halts all tasks of an owner. What they wait for may happen meanwhile.
    pub fn freeze(&self, owner: Owner) {
        self.frozen.borrow_mut().entry(owner).or_default();
    }

    /// Lets them go on, in the order in which they were woken.
    pub fn thaw(&self, owner: Owner) {
        let parked = self.frozen.borrow_mut().remove(&owner).unwrap_or_default();
        parked.into_iter().for_each(|task| push(&self.ready, task));
    }

    /// Ends all tasks of an owner, wherever they are.
    pub fn end(&self, owner: Owner) {
        self.frozen.borrow_mut().remove(&owner);
        let (ended, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.waiting.take().into_iter().partition(|(_, (of, _))| *of == owner);
        *self.waiting.borrow_mut() = kept;
        // What tasks hold may spawn or wake others when dropped, so nothing is borrowed here.
        drop(ended);
    }

    /// Ends all tasks.
    pub fn end_all(&self) {
        let owners: BTreeSet<_> = self.waiting.borrow().values().map(|(of, _)| *of).collect();
        owners.into_iter().for_each(|owner| self.end(owner));
    }
}

/// One value that another task or an event will provide. Clones stand for the same value.
pub struct Slot<T>(Rc<RefCell<(Option<T>, Option<Waker>)>>);

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(Rc::new(RefCell::new((None, None))))
    }
}

impl<T> Slot<T> {
    /// Provides the value. The first one counts.
    pub fn set(&self, value: T) {
        let mut inner = self.0.borrow_mut();
        if inner.0.is_none() {
            inner.0 = Some(value);
            if let Some(waker) = inner.1.take() {
                waker.wake();
            }
        }
    }

    /// A slot that has its value already.
    pub fn filled(value: T) -> Self {
        let slot = Self::default();
        slot.set(value);
        slot
    }

    fn poll_take(&self, context: &Context<'_>) -> Poll<T> {
        let mut inner = self.0.borrow_mut();
        match inner.0.take() {
            Some(value) => Poll::Ready(value),
            None => {
                inner.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Waits for the value and takes it.
    pub async fn take(self) -> T {
        poll_fn(|context| self.poll_take(context)).await
    }

    /// Waits for the value, but not longer than until `bell`.
    pub async fn take_before(self, bell: Slot<()>) -> Option<T> {
        poll_fn(|context| match self.poll_take(context) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => bell.poll_take(context).map(|()| None),
        })
        .await
    }
}

/// Values provided one after the other, for one reader.
pub struct Mailbox<T>(Rc<RefCell<(VecDeque<T>, Option<Waker>)>>);

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self(Rc::new(RefCell::new((VecDeque::new(), None))))
    }
}

impl<T> Mailbox<T> {
    /// Adds a value.
    pub fn put(&self, value: T) {
        let mut inner = self.0.borrow_mut();
        inner.0.push_back(value);
        if let Some(waker) = inner.1.take() {
            waker.wake();
        }
    }

    /// The next value, if it is there.
    pub fn try_next(&self) -> Option<T> {
        self.0.borrow_mut().0.pop_front()
    }

    /// Waits for the next value.
    pub async fn next(&self) -> T {
        poll_fn(|context| {
            let mut inner = self.0.borrow_mut();
            match inner.0.pop_front() {
                Some(value) => Poll::Ready(value),
                None => {
                    inner.1 = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}
