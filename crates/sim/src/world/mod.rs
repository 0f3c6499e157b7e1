//! The world: everything that is in it, and the handle through which tasks act.
//!
//! Owns: the events, the one source of randomness, the servers.
//! Never: knows what a gateway does; never looks at a real clock.
//! Start reading at [`Sim::run_until`], then `messages.rs`.

mod messages;
mod sim;

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tutti_txn::NodeId;

use crate::bugs::Bug;
use crate::clock::{Queue, Time};
use crate::faults::{Fault, Plan};
use crate::history::History;
use crate::invariants;
use crate::network::{ConnId, Network};
use crate::node::statement::{Answer, BackendId, Key, Statement, TxnNo};
use crate::node::{Node, Output};
use crate::tasks::Slot;
use crate::trace::Trace;

pub use self::sim::Sim;

/// Something that will happen.
pub enum Event {
    /// A sleeper wakes.
    Wake(Slot<()>),
    /// A request to connect reaches a node.
    Knock(ConnId),
    /// The answer to it reaches the gateway.
    Opened(ConnId, Option<(BackendId, u64)>),
    /// A statement reaches its node.
    ToNode(ConnId, Statement),
    /// An answer reaches its gateway.
    ToGateway(ConnId, Answer),
    /// A backend finds that its client is gone.
    BackendNotices(ConnId),
    /// A gateway finds that a connection is lost.
    GatewayNotices(ConnId),
    /// A backend's flush ends, if the node has not restarted since.
    Flushed(NodeId, u64, BackendId),
    /// A wait has lasted too long, if it still lasts.
    LockTimeout(NodeId, u64, BackendId, u64),
    /// A fault, or the end of one.
    Fault(Fault),
}

/// A server and what is outside its processes.
pub struct Server {
    /// The model of its processes and disk.
    pub node: Node,
    /// Whether it runs.
    pub is_up: bool,
    /// Which start this is: what the postmaster's start time and timeline tell on a real one.
    pub epoch: u64,
}

/// Everything.
pub struct World {
    /// Now.
    pub now: Time,
    /// The one source of randomness.
    pub rng: ChaCha8Rng,
    /// What this seed is made of.
    pub plan: Plan,
    /// The bug that is planted.
    pub bug: Option<Bug>,
    /// The servers.
    pub servers: BTreeMap<NodeId, Server>,
    /// The connections.
    pub network: Network,
    /// What clients did and saw.
    pub history: History,
    /// What happened, if it is traced.
    pub trace: Trace,
    /// What gateways have taken over: the incarnation; no client of an earlier one is served there any more.
    pub fenced: BTreeMap<NodeId, u64>,
    /// What the rows of the catalog say that a move has written: which table is where.
    pub moves: BTreeMap<TxnNo, (Key, NodeId)>,
    /// Whether a gateway is just dying: its connections break and are not closed.
    pub gateway_is_dying: bool,
    queue: Queue<Event>,
}

impl World {
    fn new(seed: u64, bug: Option<Bug>, traced: bool) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let plan = Plan::draw(&mut rng);
        let server = |_| Server { node: Node::default(), is_up: true, epoch: 1 };
        Self {
            now: 0,
            servers: plan.nodes().map(|node| (node, server(node))).collect(),
            rng,
            plan,
            bug,
            network: Network::default(),
            history: History::default(),
            trace: Trace::new(traced),
            fenced: BTreeMap::new(),
            moves: BTreeMap::new(),
            gateway_is_dying: false,
            queue: Queue::default(),
        }
    }

    /// Schedules an event.
    pub fn at(&mut self, time: Time, event: Event) {
        self.queue.at(time.max(self.now), event);
    }

    /// A number from a range.
    pub fn draw(&mut self, from: u64, to: u64) -> u64 {
        self.rng.random_range(from..=to.max(from))
    }

    /// Whether something of this probability, in percent, happens.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// Whether this bug is the planted one.
    pub fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// A server.
    ///
    /// Panics if there is none of that number: the world is wrong then.
    pub fn server(&mut self, node: NodeId) -> &mut Server {
        let server = self.servers.get_mut(&node).expect("plans name nodes that exist");
        server.node.set_time(self.now);
        server
    }

    /// Passes on what a node did.
    pub fn deliver_outputs(&mut self, node: NodeId) {
        let epoch = self.server(node).epoch;
        for output in self.server(node).node.take_outputs() {
            match output {
                Output::Answered(backend, answer) => self.answer(node, backend, answer),
                Output::Flushes(backend) => {
                    let usual = self.draw(self.plan.flush.0, self.plan.flush.1);
                    let is_slow = self.chance(self.plan.slow_flushes_percent);
                    let lasts = if is_slow { usual * self.draw(3, 15) } else { usual };
                    self.at(self.now + lasts, Event::Flushed(node, epoch, backend));
                }
                Output::Waits(backend, wait) => {
                    let limit = self.plan.lock_timeout;
                    self.at(self.now + limit, Event::LockTimeout(node, epoch, backend, wait));
                }
                Output::Ended(backend) => self.backend_ended(node, backend),
                Output::Voted(gid) => self.history.voted(node, &gid),
                Output::PartCommitted(gid) => {
                    self.trace.note(self.now, || format!("{node}: {gid} became visible"));
                    if !self.server(gid.anchor).node.has_decided(&gid) {
                        invariants::decision_before_any_commit_prepared(&mut self.history, &gid);
                    }
                }
            }
        }
    }
}
