//! A gateway: drives the real machines over the simulated network, as the product's does over TCP.
//!
//! Owns: the state that all its sessions share, and its life: it starts, settles what the last one left in
//! doubt, serves until it learns that another does, and may die at any moment with everything in it.
//! Never: decides what a commit does next, who may enter a room, or how a transaction in doubt ends;
//! `tutti_txn` does.
//! Start reading at [`Gateway::start`]; then `tenure.rs`, `operations.rs`, `commit.rs`.

mod applying;
mod commit;
mod doors;
mod nodes;
mod operations;
mod placement_change;
mod plans;
mod publisher;
mod recovery;
mod snapshots;
mod tenure;
mod vote_order;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tutti_txn::coordinator::Form;
use tutti_txn::placement_change::Session;
use tutti_txn::tenure::Event;
use tutti_txn::{ClusterTag, Gid, NodeId};

use crate::link::Link;
use crate::node::statement::{BackendId, TxnNo};
use crate::tasks::{GatewayId, Mailbox, Slot};
use crate::world::Sim;

pub use self::operations::{Operation, Reply, Source};

/// The node that has the lock.
const HOME: NodeId = NodeId(1);
/// How long a gateway waits before it tries something again.
const RETRY_PAUSE: u64 = 500;
/// How often it looks whether nodes are still those that it knows.
const WATCH_PAUSE: u64 = 8_000;

/// One gateway. Clones are the same one.
#[derive(Clone)]
pub struct Gateway(Rc<Inner>);

struct Inner {
    sim: Sim,
    id: GatewayId,
    /// The events for its tenure.
    tenure: Mailbox<Event>,
    /// The connection whose life is the lock.
    lock: RefCell<Option<Link>>,
    cluster: ClusterTag,
    form: Form,
    incarnation: Cell<u64>,
    is_serving: Cell<bool>,
    doors: RefCell<doors::Doors>,
    applying: RefCell<applying::Waits>,
    votes: RefCell<vote_order::Queue>,
    visibility: RefCell<vote_order::Queue>,
    nodes: RefCell<BTreeMap<NodeId, nodes::NodeState>>,
    /// Transactions that a coordinator of this gateway is driving, and who waits for its end.
    active: RefCell<BTreeMap<Gid, Vec<Slot<()>>>>,
    snapshots: RefCell<snapshots::Snapshots>,
    publisher: RefCell<publisher::Publisher>,
    /// What each session that is served is doing.
    activities: RefCell<BTreeMap<Session, Rc<plans::Activity>>>,
    sessions_begun: Cell<i32>,
    /// Backends of which connections were lost while they had something to do, under numbers that no session
    /// has. They may still do it.
    left: RefCell<BTreeMap<Session, (NodeId, BackendId)>>,
}

impl Gateway {
    /// Starts a gateway. It serves as soon as it has the lock and has settled what it finds.
    pub fn start(sim: &Sim, id: GatewayId) -> Self {
        let (form, nodes) = {
            let world = sim.world();
            (world.plan.form, world.plan.nodes())
        };
        let gateway = Self(Rc::new(Inner {
            sim: sim.clone(),
            id,
            tenure: Mailbox::default(),
            lock: RefCell::default(),
            cluster: "sim".parse().expect("a tag"),
            form,
            incarnation: Cell::new(0),
            is_serving: Cell::new(false),
            doors: RefCell::default(),
            applying: RefCell::default(),
            votes: RefCell::default(),
            visibility: RefCell::default(),
            nodes: RefCell::new(nodes.map(|n| (n, nodes::NodeState::default())).collect()),
            active: RefCell::default(),
            snapshots: RefCell::default(),
            publisher: RefCell::default(),
            activities: RefCell::default(),
            sessions_begun: Cell::new(0),
            left: RefCell::default(),
        }));
        gateway.spawn(gateway.clone().live());
        gateway
    }

    /// Whether clients are let in.
    pub fn is_serving(&self) -> bool {
        self.0.is_serving.get()
    }

    /// The number of its life; 0 before it has one.
    pub fn incarnation(&self) -> u64 {
        self.0.incarnation.get()
    }

    /// Its sim, for what runs inside it.
    fn sim(&self) -> &Sim {
        &self.0.sim
    }

    fn gid(&self, txn: TxnNo, anchor: NodeId) -> Gid {
        let incarnation = self.0.incarnation.get();
        Gid { cluster: self.0.cluster.clone(), incarnation, number: u64::from(txn), anchor }
    }

    fn is_active(&self, gid: &Gid) -> bool {
        self.0.active.borrow().contains_key(gid)
    }

    /// Waits until no coordinator of this gateway drives the transaction.
    async fn wait_until_inactive(&self, gid: &Gid) {
        let ended = Slot::default();
        match self.0.active.borrow_mut().get_mut(gid) {
            Some(waiting) => waiting.push(ended.clone()),
            None => return,
        }
        ended.take().await;
    }

    /// Only with [`Bug::OldSnapshotIsReused`]: releases what was kept for reuse.
    pub fn forget_snapshots(&self) {
        let last = self.0.snapshots.borrow_mut().last.take();
        drop(last);
    }

    /// Whether nothing waits, once no client asks for anything any more.
    ///
    /// Errors: what is still going on.
    pub fn check_quiet(&self) -> Result<(), String> {
        if !self.0.doors.borrow().is_quiet() {
            return Err("somebody is in a room or waits for one".to_owned());
        }
        if !self.0.applying.borrow().is_quiet() {
            return Err("a transaction is still in application".to_owned());
        }
        if let Some(gid) = self.0.active.borrow().keys().next() {
            return Err(format!("a coordinator is at work on {gid}"));
        }
        match self.0.nodes.borrow().iter().find(|(_, state)| !state.is_open()) {
            Some((node, _)) => Err(format!("{node} is still closed to reads")),
            None => Ok(()),
        }
    }
}
