//! A gateway: drives the real machines over the simulated network, as the product's does over TCP.
//!
//! Owns: the state that all its sessions share, and its life: it starts, settles what the last one
//! left, serves, and dies at any moment with everything in it.
//! Never: decides what a commit does next, who may enter a room, or how a transaction in doubt ends;
//! `tutti_txn` does.
//! Start reading at [`Gateway::start`]; then `operations.rs`, `commit.rs`.

mod applying;
mod commit;
mod doors;
mod nodes;
mod operations;
mod recovery;
mod snapshots;
mod vote_order;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tutti_txn::coordinator::Form;
use tutti_txn::{ClusterTag, Gid, NodeId};

use crate::bugs::Bug;
use crate::node::statement::{Answer, Statement, TxnNo};
use crate::tasks::{Owner, Slot};
use crate::world::Sim;

pub use self::operations::{Operation, Reply};

/// How long a gateway waits before it tries something again.
const RETRY_PAUSE: u64 = 500;
/// How often it looks whether nodes are still those that it knows.
const WATCH_PAUSE: u64 = 8_000;

/// One gateway. Clones are the same one.
#[derive(Clone)]
pub struct Gateway(Rc<Inner>);

struct Inner {
    sim: Sim,
    cluster: ClusterTag,
    form: Form,
    incarnation: Cell<u64>,
    is_serving: Cell<bool>,
    doors: RefCell<doors::Doors>,
    applying: RefCell<applying::Waits>,
    votes: RefCell<vote_order::Queue>,
    visibility: RefCell<vote_order::Queue>,
    nodes: RefCell<BTreeMap<NodeId, nodes::NodeState>>,
    /// Transactions that a coordinator of this gateway is at work on, and who waits for its end.
    active: RefCell<BTreeMap<Gid, Vec<Slot<()>>>>,
    snapshots: RefCell<snapshots::Snapshots>,
}

impl Gateway {
    /// Starts a gateway. It serves as soon as it has settled what it finds.
    pub fn start(sim: &Sim) -> Self {
        let (form, nodes) = {
            let world = sim.world();
            (world.plan.form, world.plan.nodes().collect::<Vec<_>>())
        };
        let gateway = Self(Rc::new(Inner {
            sim: sim.clone(),
            cluster: "sim".parse().expect("a tag"),
            form,
            incarnation: Cell::new(0),
            is_serving: Cell::new(false),
            doors: RefCell::default(),
            applying: RefCell::default(),
            votes: RefCell::default(),
            visibility: RefCell::default(),
            nodes: RefCell::new(nodes.iter().map(|n| (*n, nodes::NodeState::default())).collect()),
            active: RefCell::default(),
            snapshots: RefCell::default(),
        }));
        let starting = gateway.clone();
        sim.spawn(Owner::Gateway, async move { starting.begin_to_serve(nodes).await });
        gateway
    }

    /// Whether clients may ask.
    pub fn is_serving(&self) -> bool {
        self.0.is_serving.get()
    }

    /// Its sim, for what runs inside it.
    fn sim(&self) -> &Sim {
        &self.0.sim
    }

    async fn begin_to_serve(self, nodes: Vec<NodeId>) {
        let home = nodes[0];
        loop {
            if let Ok(link) = self.connect(home).await
                && let Ok(Answer::Incarnation(number)) = link.ask(Statement::NextIncarnation).await
            {
                self.0.incarnation.set(number);
                break;
            }
            self.sim().sleep(RETRY_PAUSE).await;
        }
        if self.sim().has(Bug::GatewayServesUnsettled) {
            self.open_unsettled(&nodes).await;
        } else {
            for node in &nodes {
                self.begin_sweep(*node);
            }
            for node in &nodes {
                while self.wait_until_open(*node).await.is_err() {}
            }
        }
        self.sim().note(|| format!("gateway {} serves", self.0.incarnation.get()));
        self.0.is_serving.set(true);
        for node in nodes {
            let watching = self.clone();
            self.sim().spawn(Owner::Gateway, async move {
                loop {
                    watching.sim().sleep(WATCH_PAUSE).await;
                    watching.watch(node).await;
                }
            });
        }
    }

    /// Only with [`Bug::GatewayServesUnsettled`]: the nodes are swept a while later.
    async fn open_unsettled(&self, nodes: &[NodeId]) {
        for node in nodes.iter().copied() {
            let epoch = loop {
                if let Ok(link) = self.connect(node).await {
                    break link.epoch;
                }
                self.sim().sleep(RETRY_PAUSE).await;
            };
            self.with_node(node, |state| state.settled_epoch = Some(epoch));
            let sweeping = self.clone();
            self.sim().spawn(Owner::Gateway, async move {
                sweeping.sim().sleep(WATCH_PAUSE).await;
                sweeping.begin_sweep(node);
            });
        }
    }

    fn gid(&self, txn: TxnNo, anchor: NodeId) -> Gid {
        let incarnation = self.0.incarnation.get();
        Gid { cluster: self.0.cluster.clone(), incarnation, number: u64::from(txn), anchor }
    }

    fn is_active(&self, gid: &Gid) -> bool {
        self.0.active.borrow().contains_key(gid)
    }

    /// Waits until no coordinator of this gateway is at work on the transaction.
    async fn wait_until_inactive(&self, gid: &Gid) {
        let ended = Slot::default();
        match self.0.active.borrow_mut().get_mut(gid) {
            Some(waiting) => waiting.push(ended.clone()),
            None => return,
        }
        ended.take().await;
    }

    /// Only with [`Bug::OldSnapshotIsReused`]: lets go what was kept for reuse.
    pub fn forget_snapshots(&self) {
        let last = self.0.snapshots.borrow_mut().last.take();
        drop(last);
    }

    /// Whether nobody waits for anything, once nobody asks any more.
    ///
    /// Errors: what is still going on.
    pub fn check_quiet(&self) -> Result<(), String> {
        if !self.is_serving() {
            return Err("the gateway has not begun to serve".to_owned());
        }
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
