//! One seed from beginning to end.
//!
//! Owns: the beginning, the faults when their time comes, the quiet time, and the final checks.
//! Start reading at [`run`].

use std::rc::Rc;

use crate::bugs::Bug;
use crate::client::{self, Cluster};
use crate::faults::Fault;
use crate::gateway::Gateway;
use crate::history::{Told, Violation};
use crate::invariants;
use crate::node::statement::{FIRST_TABLE, TxnNo, catalog_of};
use crate::tasks::{GatewayId, Owner};
use crate::world::{Event, Sim, World};

/// No more gateways than this are alive together.
const GATEWAYS_MAX: usize = 3;

/// How often it is looked for a backend that waits.
const LOOK_FOR_WAITERS: u64 = 250;

/// What came of a seed.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The properties found broken; empty if all hold.
    pub violations: Vec<Violation>,
    /// Transactions that clients were told to be committed, aborted, or unknown.
    pub committed: usize,
    /// See `committed`.
    pub aborted: usize,
    /// See `committed`.
    pub unknown: usize,
    /// Tables that were moved, of these transactions.
    pub moved: usize,
    /// Snapshots and statements that were judged.
    pub observations: u64,
    /// The last lines about the transactions of the first violation; empty unless traced.
    pub trace: Vec<String>,
    /// What the seed was made of.
    pub plan: String,
}

/// Runs a seed. With `traced` it takes longer, and a failure can be understood.
pub fn run(seed: u64, bug: Option<Bug>, traced: bool) -> Report {
    let sim = Sim::new(seed, bug, traced);
    let cluster = Rc::new(Cluster::default());
    let (clients, calm_at, quiet_at) = {
        let mut world = sim.world();
        for (time, fault) in world.plan.faults.clone() {
            world.at(time, Event::Fault(fault));
        }
        (world.plan.clients, world.plan.calm_at, world.plan.quiet_at)
    };
    cluster.gateway_starts(&sim);
    cluster.busy.set(clients);
    for session in 0..clients {
        sim.spawn(Owner::Outside, client::run(sim.clone(), cluster.clone(), session));
    }
    sim.run_until(calm_at, |sim, fault| happen(sim, &cluster, fault));
    for (_, gateway) in cluster.alive() {
        gateway.forget_snapshots();
    }
    sim.run_until(quiet_at, |sim, fault| happen(sim, &cluster, fault));
    if !sim.world().history.is_over() {
        let answered = cluster.busy.get() == 0;
        let mut world = sim.world();
        let World { plan, history, servers, moves, .. } = &mut *world;
        let tables = (0..plan.tables).map(|index| FIRST_TABLE + index);
        let of_table = |table| [table, catalog_of(table)];
        let keys = (1..=plan.keys).chain(tables.flat_map(of_table)).collect();
        let place_of = |table, moved: &[TxnNo]| {
            let last = moved.last().and_then(|txn| moves.get(txn));
            last.map_or_else(|| plan.first_place(table), |(_, to)| *to)
        };
        let newest = servers.iter().map(|(node, server)| (*node, server.node.newest_gateway()));
        let quiet = cluster.check_quiet(newest);
        let nodes = servers.iter().map(|(node, server)| (*node, &server.node));
        invariants::after_quiet(history, nodes, &keys, place_of, answered, quiet);
    }
    let report = report(&sim);
    // What is still running holds parts of the world, which holds it.
    sim.end_all();
    for (gateway, _) in cluster.alive() {
        cluster.gateway_dies(&sim, gateway);
    }
    report
}

fn report(sim: &Sim) -> Report {
    let world = sim.world();
    let history = &world.history;
    let told = |what| history.txns.values().filter(|txn| txn.told == Some(what)).count();
    let words: Vec<_> = history
        .violations
        .last()
        .into_iter()
        .flat_map(|violation| {
            let gids = violation.found.split(' ').filter(|word| word.starts_with("tutti_"));
            let named = violation.txns.iter().flat_map(|t| [format!("T{t} "), format!("_{t}_")]);
            gids.map(str::to_owned).chain(named).collect::<Vec<_>>()
        })
        .collect();
    Report {
        committed: told(Told::Committed),
        aborted: told(Told::Aborted),
        unknown: told(Told::Unknown),
        moved: {
            let is_moved = |txn: &&TxnNo| history.txns[*txn].told == Some(Told::Committed);
            world.moves.keys().filter(is_moved).count()
        },
        observations: history.observations,
        violations: history.violations.clone(),
        trace: world.trace.tail(&words),
        plan: format!("{:?}", world.plan),
    }
}

/// A gateway that has, or had, the lock; if there is none, the oldest.
fn one_with_the_lock(cluster: &Cluster) -> Option<GatewayId> {
    let alive = cluster.alive();
    let has_lock = |of: &&(_, Gateway)| of.1.lock_connection().is_some();
    alive.iter().find(has_lock).or(alive.first()).map(|(gateway, _)| *gateway)
}

fn happen(sim: &Sim, cluster: &Cluster, fault: Fault) {
    sim.note(|| format!("FAULT {fault:?}"));
    match fault {
        Fault::GatewayDies => {
            let alive = cluster.alive();
            if !alive.is_empty() {
                let index = sim.world().draw(0, alive.len() as u64 - 1);
                let (gateway, _) = &alive[usize::try_from(index).unwrap_or(0)];
                cluster.gateway_dies(sim, *gateway);
            }
        }
        Fault::GatewayStarts => {
            if cluster.alive().len() < GATEWAYS_MAX {
                cluster.gateway_starts(sim);
            }
        }
        Fault::GatewayEnds { gateway } => {
            if cluster.alive().iter().all(|(alive, _)| *alive != gateway) {
                return;
            }
            cluster.gateway_dies(sim, gateway);
            let mut world = sim.world();
            let is_calm = world.plan.calm_at <= world.now;
            // The last one is always started again; of others, an operator may have wanted only one.
            if cluster.alive().is_empty() || !is_calm && world.chance(50) {
                let starts = world.now + world.draw(10, 3_000);
                world.at(starts, Event::Fault(Fault::GatewayStarts));
            }
        }
        Fault::GatewayFreezes { duration } => {
            if let Some(gateway) = one_with_the_lock(cluster) {
                sim.freeze(gateway);
                let mut world = sim.world();
                let thaws = world.now + duration;
                world.at(thaws, Event::Fault(Fault::GatewayThaws { gateway }));
            }
        }
        Fault::GatewayThaws { gateway } => sim.thaw(gateway),
        Fault::Parts { node, duration } => {
            if let Some(gateway) = one_with_the_lock(cluster) {
                let mut world = sim.world();
                world.partition(gateway, node);
                let ends = world.now + duration;
                world.at(ends, Event::Fault(Fault::Rejoins { gateway, node }));
            }
        }
        Fault::Rejoins { gateway, node } => sim.world().network.rejoin(gateway, node),
        Fault::LockBreaks { unnoticed } => {
            let locks: Vec<_> = cluster
                .alive()
                .iter()
                .filter_map(|(_, gateway)| gateway.lock_connection())
                .collect();
            for lock in locks {
                sim.world().break_unnoticed(lock, unnoticed);
            }
        }
        Fault::ServerStops { node, .. } => {
            let mut world = sim.world();
            if std::mem::replace(&mut world.server(node).is_up, false) {
                world.server_stopped(node);
            }
        }
        Fault::ServerStarts { node, fails_over } => {
            let mut world = sim.world();
            if world.server(node).is_up {
                return;
            }
            let log = world.server(node).node.log();
            let least = if fails_over { log.replicated() } else { log.flushed() };
            let most = log.len();
            let kept = world.draw(least as u64, most as u64);
            let server = world.server(node);
            server.node.restart(usize::try_from(kept).unwrap_or(most));
            server.is_up = true;
            server.epoch += 1;
        }
        Fault::WaiterBreaks => {
            let mut world = sim.world();
            let waiters = world.connections_of_waiters();
            if waiters.is_empty() {
                let later = world.now + LOOK_FOR_WAITERS;
                if later < world.plan.calm_at {
                    world.at(later, Event::Fault(fault));
                }
                return;
            }
            let index = world.draw(0, waiters.len() as u64 - 1);
            world.break_connection(waiters[usize::try_from(index).unwrap_or(0)]);
        }
        Fault::ConnectionBreaks => {
            let mut world = sim.world();
            let standing = world.network.standing();
            if !standing.is_empty() {
                let index = world.draw(0, standing.len() as u64 - 1);
                let chosen = standing[usize::try_from(index).unwrap_or(0)];
                world.break_connection(chosen);
            }
        }
    }
}
