//! One seed from beginning to end.
//!
//! Owns: the beginning, the faults when their time comes, the calm, and the last look.
//! Start reading at [`run`].

use std::rc::Rc;

use crate::bugs::Bug;
use crate::client::{self, Cluster};
use crate::faults::Fault;
use crate::gateway::Gateway;
use crate::history::{Told, Violation};
use crate::invariants;
use crate::tasks::Owner;
use crate::world::{Event, Sim, World};

/// What a seed brought about.
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
    *cluster.gateway.borrow_mut() = Some(Gateway::start(&sim));
    cluster.busy.set(clients);
    for session in 0..clients {
        sim.spawn(Owner::Outside, client::run(sim.clone(), cluster.clone(), session));
    }
    sim.run_until(calm_at, |sim, fault| happen(sim, &cluster, fault));
    let gateway = cluster.gateway.borrow().clone();
    if let Some(gateway) = gateway {
        gateway.forget_snapshots();
    }
    sim.run_until(quiet_at, |sim, fault| happen(sim, &cluster, fault));
    if !sim.world().history.is_broken() {
        let quiet = match cluster.gateway.borrow().as_ref() {
            Some(gateway) => gateway.check_quiet(),
            None => Err("no gateway is left".to_owned()),
        };
        let answered = cluster.busy.get() == 0;
        let mut world = sim.world();
        let World { plan, history, servers, .. } = &mut *world;
        let keys = (1..=plan.keys).collect();
        let nodes = servers.iter().map(|(node, server)| (*node, &server.node));
        invariants::after_quiet(history, nodes, &keys, answered, quiet);
    }
    let report = report(&sim);
    // What is still running holds parts of the world, which holds it.
    sim.end_gateway();
    cluster.gateway.take();
    sim.end_all();
    report
}

fn report(sim: &Sim) -> Report {
    let world = sim.world();
    let history = &world.history;
    let told = |what| history.txns.values().filter(|txn| txn.told == Some(what)).count();
    let words: Vec<_> = history
        .violations
        .first()
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
        observations: history.observations,
        violations: history.violations.clone(),
        trace: world.trace.tail(&words),
        plan: format!("{:?}", world.plan),
    }
}

fn happen(sim: &Sim, cluster: &Cluster, fault: Fault) {
    sim.note(|| format!("FAULT {fault:?}"));
    match fault {
        Fault::GatewayDies => cluster.gateway_dies(sim),
        Fault::GatewayStarts => {
            // Two deaths may have come before this start.
            if cluster.gateway.borrow().is_none() {
                let gateway = Gateway::start(sim);
                *cluster.gateway.borrow_mut() = Some(gateway);
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
