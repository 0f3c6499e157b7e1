//! Clients: they draw what to ask for, one request after the other.
//!
//! Owns: the choice of requests. Never: tries a request again; a new one is as good.
//! Start reading at [`run`].

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use rand::Rng;
use rand::seq::SliceRandom;
use tutti_txn::NodeId;

use crate::gateway::{Gateway, Operation, Reply, Source};
use crate::history::{Register, SessionId, TABLES, Told};
use crate::invariants;
use crate::node::statement::{FIRST_TABLE, Key, TxnNo, catalog_of};
use crate::tasks::{GatewayId, Owner, Slot};
use crate::world::{Sim, World};

/// How often a client looks whether a gateway serves.
const POLL_INTERVAL: u64 = 700;

/// A request that has no answer yet.
struct Call {
    gateway: GatewayId,
    /// The transaction that it is about.
    txn: Option<TxnNo>,
    answer: Slot<Reply>,
}

/// The gateways that are alive, and which requests wait for their answers.
#[derive(Default)]
pub struct Cluster {
    gateways: RefCell<BTreeMap<GatewayId, Gateway>>,
    started: Cell<GatewayId>,
    calls: RefCell<BTreeMap<u64, Call>>,
    begun: Cell<u64>,
    /// How many clients have not ended.
    pub busy: Cell<usize>,
}

impl Cluster {
    /// A gateway starts.
    pub fn gateway_starts(&self, sim: &Sim) {
        let id = self.started.get() + 1;
        self.started.set(id);
        self.gateways.borrow_mut().insert(id, Gateway::start(sim, id));
    }

    /// A gateway dies: a client that waits for it finds its connection broken.
    pub fn gateway_dies(&self, sim: &Sim, id: GatewayId) {
        sim.end_gateway(id);
        let gateway = self.gateways.borrow_mut().remove(&id);
        drop(gateway);
        sim.gateway_has_ended();
        let (ended, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.calls.take().into_iter().partition(|(_, call)| call.gateway == id);
        *self.calls.borrow_mut() = kept;
        for call in ended.into_values() {
            if let Some(txn) = call.txn {
                invariants::tell(&mut sim.world().history, txn, Told::Unknown);
            }
            call.answer.set(Reply::Read);
        }
    }

    /// Those that are alive, the oldest first.
    pub fn alive(&self) -> Vec<(GatewayId, Gateway)> {
        self.gateways.borrow().iter().map(|(id, gateway)| (*id, gateway.clone())).collect()
    }

    /// Those that let clients in; not all of them know whether they should.
    fn serving(&self) -> Vec<(GatewayId, Gateway)> {
        let mut alive = self.alive();
        alive.retain(|(_, gateway)| gateway.is_serving());
        alive
    }

    /// Whether one gateway serves, on every node, and nothing waits for anything.
    ///
    /// Errors: what is wrong.
    pub fn check_quiet(&self, nodes: impl Iterator<Item = (NodeId, u64)>) -> Result<(), String> {
        let serving = self.serving();
        let [(_, gateway)] = &serving[..] else {
            return Err(format!("{} gateways serve", serving.len()));
        };
        for (node, newest) in nodes {
            if newest != gateway.incarnation() {
                let served = gateway.incarnation();
                return Err(format!("{node} serves gateway {newest}, and gateway {served} serves"));
            }
        }
        gateway.check_quiet()
    }

    async fn ask(
        self: &Rc<Self>,
        sim: &Sim,
        session: SessionId,
        (id, gateway): (GatewayId, Gateway),
        operation: Operation,
    ) {
        let call = self.begun.get() + 1;
        self.begun.set(call);
        let answer = Slot::default();
        let txn = match &operation {
            Operation::Write { txn, .. }
            | Operation::InSteps { txn, .. }
            | Operation::Move { txn, .. } => Some(*txn),
            Operation::Read(..) => None,
            Operation::Snapshot { write, .. } => write.as_ref().map(|(txn, _)| *txn),
        };
        let asked = Call { gateway: id, txn, answer: answer.clone() };
        self.calls.borrow_mut().insert(call, asked);
        let cluster = self.clone();
        sim.spawn(Owner::Gateway(id), async move {
            let reply = gateway.serve(session, operation).await;
            let waiting = cluster.calls.borrow_mut().remove(&call);
            if let Some(call) = waiting {
                call.answer.set(reply);
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
        let mut serving = cluster.serving();
        if serving.is_empty() {
            sim.sleep(POLL_INTERVAL).await;
            continue;
        }
        let index = match serving.len() {
            1 => 0,
            count => sim.world().rng.random_range(0..count),
        };
        let gateway = serving.swap_remove(index);
        let operation = draw(&mut sim.world(), session);
        sim.note(|| {
            format!("session {session} asks gateway process {} for {operation:?}", gateway.0)
        });
        cluster.ask(&sim, session, gateway, operation).await;
    }
    cluster.busy.set(cluster.busy.get() - 1);
}

fn draw(world: &mut World, session: SessionId) -> Operation {
    let mix = world.plan.mix;
    let of_registers =
        mix.transfers + mix.locals + mix.wide_reads + mix.narrow_reads + mix.snapshots;
    let total = of_registers + mix.table_reads + mix.in_steps + mix.moves;
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
        Operation::Read(draw_nodes(world, 2).into_iter().collect(), BTreeSet::new())
    } else if is(mix.narrow_reads) {
        Operation::Read(draw_nodes(world, 1).into_iter().take(1).collect(), BTreeSet::new())
    } else if is(mix.table_reads) {
        let nodes = match world.chance(20) {
            true => draw_nodes(world, 1).into_iter().take(1).collect(),
            false => BTreeSet::new(),
        };
        let count = world.rng.random_range(1..=2);
        let tables = (0..count).map(|_| draw_table(world)).collect();
        Operation::Read(nodes, tables)
    } else if is(mix.in_steps) {
        let then = draw_table(world);
        let first = match world.chance(50) {
            true => (TABLES, draw_table(world)),
            false => {
                let (node, keys) = (draw_nodes(world, 1)[0], world.plan.keys);
                (node, world.rng.random_range(1..=keys))
            }
        };
        let writes = [first, (TABLES, then)];
        let reads = usize::from(first.0 == TABLES);
        let txn = begin(world, session, &writes[reads..], false);
        Operation::InSteps { txn, first, then }
    } else if is(mix.moves) {
        let (table, to) = (draw_table(world), draw_nodes(world, 1)[0]);
        let txn = begin(world, session, &[(NodeId(1), catalog_of(table))], false);
        Operation::Move { txn, table, to }
    } else {
        let mut reads: Vec<_> = draw_nodes(world, 2).into_iter().map(Source::Node).collect();
        if 0 < world.plan.tables {
            let place = world.rng.random_range(0..=reads.len());
            let table = draw_table(world);
            reads.insert(place, Source::Table(table));
        }
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

/// At least this many nodes, in any order.
fn draw_nodes(world: &mut World, least: u16) -> Vec<NodeId> {
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
    let registers = nodes.into_iter().map(|node| (node, world.rng.random_range(1..=keys)));
    let mut registers: Vec<_> = registers.collect();
    if 0 < world.plan.tables && world.chance(60) {
        let index = world.rng.random_range(0..registers.len());
        registers[index] = (TABLES, draw_table(world));
    }
    registers
}

fn draw_table(world: &mut World) -> Key {
    let count = world.plan.tables;
    FIRST_TABLE + world.rng.random_range(0..count)
}
