//! Clients: they draw what to ask for, one thing after the other.
//!
//! Owns: the choice of requests. Never: tries a request again; a new one is as good.
//! Start reading at [`run`].

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use rand::Rng;
use rand::seq::SliceRandom;

use crate::gateway::{Gateway, Operation, Reply};
use crate::history::{Register, SessionId, Told};
use crate::invariants;
use crate::node::statement::TxnNo;
use crate::tasks::{Owner, Slot};
use crate::world::{Sim, World};

/// How often a client looks whether a gateway serves.
const LOOK_PAUSE: u64 = 700;

/// The transaction that a request is about, and where its answer goes.
type Call = (Option<TxnNo>, Slot<Reply>);

/// The gateway of the moment, and who waits for its answers.
#[derive(Default)]
pub struct Cluster {
    /// None while there is none.
    pub gateway: RefCell<Option<Gateway>>,
    /// Requests that have no answer yet.
    calls: RefCell<BTreeMap<u64, Call>>,
    begun: Cell<u64>,
    /// How many clients have not ended.
    pub busy: Cell<usize>,
}

impl Cluster {
    /// The gateway dies: whoever waits for it finds its connection broken.
    pub fn gateway_dies(&self, sim: &Sim) {
        sim.end_gateway();
        let gateway = self.gateway.borrow_mut().take();
        drop(gateway);
        sim.world().gateway_is_dying = false;
        for (_, (txn, call)) in self.calls.take() {
            if let Some(txn) = txn {
                invariants::tell(&mut sim.world().history, txn, Told::Unknown);
            }
            call.set(Reply::Read);
        }
    }

    async fn ask(self: &Rc<Self>, sim: &Sim, session: SessionId, operation: Operation) {
        let Some(gateway) = self.gateway.borrow().clone() else { return };
        let call = self.begun.get() + 1;
        self.begun.set(call);
        let answer = Slot::default();
        let txn = match &operation {
            Operation::Write { txn, .. } => Some(*txn),
            Operation::Read(_) => None,
            Operation::Snapshot { write, .. } => write.as_ref().map(|(txn, _)| *txn),
        };
        self.calls.borrow_mut().insert(call, (txn, answer.clone()));
        let cluster = self.clone();
        sim.spawn(Owner::Gateway, async move {
            let reply = gateway.serve(session, operation).await;
            let waiting = cluster.calls.borrow_mut().remove(&call);
            if let Some((_, answer)) = waiting {
                answer.set(reply);
            }
        });
        answer.take().await;
    }
}

/// One client's life.
pub async fn run(sim: Sim, cluster: Rc<Cluster>, session: SessionId) {
    loop {
        let pause = {
            let mut world = sim.world();
            let longest = world.plan.pause;
            world.draw(0, longest)
        };
        sim.sleep(pause).await;
        let calm_at = sim.world().plan.calm_at;
        if calm_at <= sim.now() {
            break;
        }
        let serves = cluster.gateway.borrow().as_ref().is_some_and(Gateway::is_serving);
        if !serves {
            sim.sleep(LOOK_PAUSE).await;
            continue;
        }
        let operation = draw(&mut sim.world(), session);
        sim.note(|| format!("session {session} asks for {operation:?}"));
        cluster.ask(&sim, session, operation).await;
    }
    cluster.busy.set(cluster.busy.get() - 1);
}

fn draw(world: &mut World, session: SessionId) -> Operation {
    let mix = world.plan.mix;
    let total = mix.transfers + mix.locals + mix.wide_reads + mix.narrow_reads + mix.snapshots;
    let mut drawn = world.rng.random_range(0..total);
    let mut is = |weight: u32| {
        let hit = drawn < weight;
        drawn = drawn.saturating_sub(weight);
        hit
    };
    if is(mix.transfers) {
        let writes = draw_registers(world, 2);
        let takes_turns = world.chance(30);
        let txn = begin(world, session, &writes, takes_turns);
        let glance = world.chance(30).then(|| draw_nodes(world, 1)[0]);
        Operation::Write { txn, writes, glance, takes_turns, is_autocommit: false }
    } else if is(mix.locals) {
        let mut writes = draw_registers(world, 1);
        writes.truncate(1);
        let is_autocommit = world.chance(50);
        let txn = begin(world, session, &writes, false);
        let glance = world.chance(50).then(|| draw_nodes(world, 1)[0]);
        Operation::Write { txn, writes, glance, takes_turns: false, is_autocommit }
    } else if is(mix.wide_reads) {
        Operation::Read(draw_nodes(world, 2).into_iter().collect())
    } else if is(mix.narrow_reads) {
        Operation::Read(draw_nodes(world, 1).into_iter().take(1).collect())
    } else {
        let reads = draw_nodes(world, 2);
        let write = world.chance(40).then(|| {
            let writes = draw_registers(world, 1);
            (begin(world, session, &writes, false), writes)
        });
        Operation::Snapshot { reads, write }
    }
}

fn begin(world: &mut World, session: SessionId, writes: &[Register], takes_turns: bool) -> TxnNo {
    let writes: BTreeSet<_> = writes.iter().copied().collect();
    world.history.begin(session, writes, takes_turns)
}

/// At least so many nodes, in any order.
fn draw_nodes(world: &mut World, least: u16) -> Vec<tutti_txn::NodeId> {
    let count = world.rng.random_range(least..=world.plan.node_count);
    let mut nodes: Vec<_> = world.plan.nodes().collect();
    nodes.shuffle(&mut world.rng);
    nodes.truncate(usize::from(count));
    nodes
}

/// One register on each of some nodes; mostly in the order of nodes, which avoids most deadlocks.
fn draw_registers(world: &mut World, least: u16) -> Vec<Register> {
    let most = 3.min(world.plan.node_count);
    let count = world.rng.random_range(least..=most);
    let mut nodes = draw_nodes(world, least.max(count));
    nodes.truncate(usize::from(count));
    if !world.chance(10) {
        nodes.sort_unstable();
    }
    let keys = world.plan.keys;
    nodes.into_iter().map(|node| (node, world.rng.random_range(1..=keys))).collect()
}
