//! Storms: three gateways before three nodes with standbys, each process on a host of its own, under load, while they
//! are killed, stopped, cut off and promoted, links lose what goes one way, and disks are full.
//!
//! Owns: which fault comes when (chosen by a seed), the load, and what must hold afterwards: histories are those that the
//! levels allow, requests were executed once as their clients were told, no sum was ever wrong, nothing is prepared,
//! nothing is locked, and the auditor finds nothing.
//! Never: waits for the cluster between faults longer than for service through every gateway that is there.
//! Start reading at [`storm`]. Needs `ip` and the right to make network namespaces; without them the test says so and does
//! nothing.

mod node;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use tutti_configuration::{Keepalive, NodeTls, SslMode};
use tutti_gateway::{Config, DefaultDistribution, Rule};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::history::run::{self, Load};
use tutti_tests::network::{Host, Network};
use tutti_tests::process::{self, GatewayProcess, HOST_PORT};
use tutti_tests::{audit, environment, servers};

use self::node::Node;
use crate::history::ANY;
use crate::recovery::support::eventually;
use crate::requests;

/// How many faults; more find more.
const FAULTS: &str = "TUTTI_STORM_FAULTS";
const FAULTS_DEFAULT: u64 = 8;
/// Chooses them; printed, so that a run can be repeated as far as timing allows.
const SEED: &str = "TUTTI_STORM_SEED";
const NODES: u8 = 3;
const GATEWAYS: u8 = 3;
/// Transactions of the history between two faults.
const TRANSACTIONS_BETWEEN: u32 = 60;
/// How long what is not killed stays broken.
const BROKEN_MS: std::ops::Range<u64> = 300..6_000;
/// Why gateways are not audited one by one.
const AUDITED: &str = "the storm is audited as a whole";
/// How long until every gateway serves everything again.
const SERVICE_LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    KillGateway,
    StopGateway,
    CutGateway,
    /// What it sends to a node does not arrive.
    CutGatewayToNode,
    /// What the node sends to it does not.
    CutNodeToGateway,
    KillNode,
    StopNode,
    CutNode,
    CutStandby,
    Promote,
    FillDisk,
}

/// A fault, and where.
#[derive(Clone, Copy, Debug)]
struct Struck {
    fault: Fault,
    gateway: usize,
    node: usize,
}

impl Fault {
    const OF_GATEWAYS: &[Self] = &[Self::KillGateway, Self::StopGateway, Self::CutGateway];
    const OF_NODES: &[Self] =
        &[Self::KillNode, Self::StopNode, Self::CutNode, Self::CutStandby, Self::Promote];

    fn is_of_gateway(self) -> bool {
        Self::OF_GATEWAYS.contains(&self)
    }

    fn is_of_link(self) -> bool {
        matches!(self, Self::CutGatewayToNode | Self::CutNodeToGateway)
    }

    const ALL: [Self; 11] = [
        Self::KillGateway,
        Self::StopGateway,
        Self::CutGateway,
        Self::CutGatewayToNode,
        Self::CutNodeToGateway,
        Self::KillNode,
        Self::StopNode,
        Self::CutNode,
        Self::CutStandby,
        Self::Promote,
        Self::FillDisk,
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KillGateway => "a gateway killed",
            Self::StopGateway => "a gateway stopped",
            Self::CutGateway => "a gateway cut off",
            Self::CutGatewayToNode => "a gateway's way to a node cut",
            Self::CutNodeToGateway => "a node's way to a gateway cut",
            Self::KillNode => "a node killed",
            Self::StopNode => "a node stopped",
            Self::CutNode => "a node cut off",
            Self::CutStandby => "a standby cut off",
            Self::Promote => "a standby promoted",
            Self::FillDisk => "a node's disk full",
        })
    }
}

/// All processes.
struct World {
    config: Config,
    /// `None`: killed.
    gateways: Vec<Option<GatewayProcess>>,
    hosts: Vec<Host>,
    nodes: Vec<Node>,
    _network: Network,
}

impl World {
    /// `None`: it cannot be made here.
    fn make() -> Result<Option<Self>> {
        let Some(network) = Network::make()? else { return Ok(None) };
        if !node::can_have_disks()? {
            return Ok(None);
        }
        let mut servers = servers::durable(NODES.into())?;
        servers.stop()?;
        let make = |index| Node::make(&servers, usize::from(index), &network, 20 + 2 * index);
        let nodes = (0..NODES).map(make).collect::<Result<Vec<_>>>()?;
        let mut config = Config {
            cluster: "test".to_owned(),
            rules: vec![Rule::trust_everybody()],
            allow_trust_off_loopback: true,
            default_distribution: DefaultDistribution::Replicated,
            nodes: (1..).zip(&nodes).map(|(id, node)| node.config(id)).collect(),
            node_tls: NodeTls { sslmode: Some(SslMode::Disable), ..NodeTls::default() },
            drain_timeout_s: 5,
            // What a link has lost is noticed before the storm is over.
            keepalive: Keepalive { idle_s: 2, interval_s: 1, probes: 3 },
            ..Config::default()
        };
        config.complete();
        process::init_configured(&config)?;
        let hosts =
            (0..GATEWAYS).map(|number| network.host(10 + number)).collect::<Result<Vec<_>>>()?;
        let start = |host| {
            let mut gateway = GatewayProcess::start_on(config.clone(), host)?;
            gateway.leave_unaudited(AUDITED);
            Ok(Some(gateway))
        };
        let gateways = hosts.iter().map(start).collect::<Result<Vec<_>>>()?;
        Ok(Some(Self { config, gateways, hosts, nodes, _network: network }))
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.hosts.iter().map(|host| Endpoint::at(host.address, HOST_PORT)).collect()
    }

    /// What `fault` does to these.
    fn break_up(&mut self, Struck { fault, gateway, node }: Struck) -> Result<()> {
        let (host, at) = (&self.hosts[gateway], &mut self.nodes[node]);
        match fault {
            Fault::KillGateway => self.gateways[gateway].take().context("it runs")?.kill9(),
            Fault::StopGateway => self.gateways[gateway].as_ref().context("it runs")?.pause(),
            Fault::CutGateway => host.cut(),
            Fault::CutGatewayToNode => host.cut_to(&at.primary().host),
            Fault::CutNodeToGateway => at.primary().host.cut_to(host),
            Fault::KillNode => at.kill_primary(),
            Fault::StopNode => at.primary().pause(),
            Fault::CutNode => at.primary().host.cut(),
            Fault::CutStandby => at.standby().host.cut(),
            Fault::Promote => {
                // Only one that has all that was acknowledged may be.
                at.wait_for_standby()?;
                at.kill_primary()
            }
            Fault::FillDisk => at.primary().fill_disk(),
        }
    }

    /// Has it whole again.
    fn mend(&mut self, Struck { fault, gateway, node }: Struck) -> Result<()> {
        let (host, at) = (&self.hosts[gateway], &mut self.nodes[node]);
        match fault {
            Fault::KillGateway => self.start_gateway(gateway),
            Fault::StopGateway => self.gateways[gateway].as_ref().context("it runs")?.resume(),
            Fault::CutGateway => host.mend(),
            Fault::CutGatewayToNode => host.mend_to(&at.primary().host),
            Fault::CutNodeToGateway => at.primary().host.mend_to(host),
            Fault::KillNode => at.restart_primary(),
            Fault::StopNode => at.primary().resume(),
            Fault::CutNode => at.primary().host.mend(),
            Fault::CutStandby => at.standby().host.mend(),
            Fault::Promote => {
                at.promote()?;
                at.rebuild_standby()
            }
            Fault::FillDisk => at.primary().free_disk(),
        }
    }

    fn start_gateway(&mut self, number: usize) -> Result<()> {
        let mut started = GatewayProcess::start_on(self.config.clone(), &self.hosts[number])?;
        started.leave_unaudited(AUDITED);
        self.gateways[number] = Some(started);
        Ok(())
    }

    /// One fault, or two at a time, and how long it took until all was served: from the fault on where nothing but a
    /// gateway is struck, for the others serve meanwhile; else from when it is mended.
    fn strike(&mut self, fault: Fault, rng: &mut StdRng) -> Result<(String, Duration)> {
        let struck = |fault, rng: &mut StdRng| Struck {
            fault,
            gateway: rng.random_range(0..usize::from(GATEWAYS)),
            node: rng.random_range(0..usize::from(NODES)),
        };
        let mut all = vec![struck(fault, rng)];
        let beside = if fault.is_of_gateway() { Fault::OF_NODES } else { Fault::OF_GATEWAYS };
        if !fault.is_of_link() && rng.random_bool(0.35) {
            all.push(struck(*beside.choose(rng).context("there are some")?, rng));
        }
        let broken = Duration::from_millis(rng.random_range(BROKEN_MS));
        all.iter().try_for_each(|it| self.break_up(*it))?;
        eprintln!("     {all:?}");
        let begun = Instant::now();
        let mut took = None;
        if let [Struck { gateway, fault, .. }] = all[..]
            && fault.is_of_gateway()
        {
            took = Some(self.wait_for_service(Some(gateway))?);
        }
        sleep(broken.saturating_sub(begun.elapsed()));
        all.shuffle(rng);
        let mending = Instant::now();
        all.iter().try_for_each(|it| self.mend(*it))?;
        self.wait_for_service(None)?;
        let names: Vec<_> = all.iter().map(|it| it.fault.to_string()).collect();
        Ok((names.join(", "), took.unwrap_or_else(|| mending.elapsed())))
    }

    /// How long it takes from now until every gateway, or every other one, answers for all nodes.
    fn wait_for_service(&mut self, but: Option<usize>) -> Result<Duration> {
        let begun = Instant::now();
        for (number, gateway) in self.endpoints().iter().enumerate() {
            while but != Some(number) {
                // One that starts while node 1 is away ends by itself; whoever looks after it starts it again.
                if self.gateways[number].as_mut().is_some_and(|it| it.has_ended().unwrap_or(false))
                {
                    self.start_gateway(number)?;
                }
                let answered = Client::connect(gateway).and_then(|mut it| it.value(requests::SUM));
                match answered {
                    Ok(_) => break,
                    Err(error) if SERVICE_LIMIT < begun.elapsed() => {
                        return Err(error.context(format!("no service at {}", gateway.host)));
                    }
                    Err(_) => sleep(Duration::from_millis(20)),
                }
            }
        }
        Ok(begun.elapsed())
    }

    fn logs(&self) -> String {
        let of_gateways = self.gateways.iter().flatten().map(GatewayProcess::log);
        let of_nodes =
            self.nodes.iter().flat_map(|node| [node.primary().log(), node.standby().log()]);
        let last = |log: String| {
            let lines: Vec<_> = log.lines().collect();
            lines[lines.len().saturating_sub(25)..].join("\n")
        };
        of_gateways.chain(of_nodes).map(last).collect::<Vec<_>>().join("\n----\n")
    }

    /// What must be so on each node when nobody is at work.
    fn check_nodes(&self) -> Result<()> {
        eventually("nothing is prepared, nothing is locked", || {
            for node in &self.nodes {
                let mut client = Client::connect(&node.endpoint())?;
                let prepared = client.value("SELECT count(*) FROM pg_prepared_xacts")?;
                let locked = client.value(
                    "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
                     WHERE c.relnamespace = 'public'::regnamespace",
                )?;
                ensure!(
                    (&*prepared, &*locked) == ("0", "0"),
                    "{prepared} prepared, {locked} locks"
                );
            }
            Ok(())
        })
    }
}

/// Reads sums through any gateway until it is told to stop: how many it has read.
fn read_sums(known: &Mutex<Vec<Endpoint>>, stop: &AtomicBool, seed: u64) -> Result<u64> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut read = 0;
    let mut client: Option<Client> = None;
    while !stop.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(30));
        let Some(mut session) = client.take().or_else(|| requests::connect(known, &mut rng)) else {
            continue;
        };
        let level = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"].choose(&mut rng);
        let sql = match rng.random_bool(0.5) {
            true => requests::SUM.to_owned(),
            false => format!(
                "BEGIN ISOLATION LEVEL {}; {}; COMMIT",
                level.copied().unwrap_or_default(),
                requests::SUM
            ),
        };
        let Ok(answer) = session.simple(&sql, b"") else { continue };
        if answer.error().is_some() {
            client = session.simple("ROLLBACK", b"").is_ok().then_some(session);
            continue;
        }
        let texts = answer.texts();
        let sum = texts.first().and_then(|row| row[0].clone()).context("a sum")?;
        ensure!(sum == requests::TOTAL.to_string(), "a sum is {sum}, not {}", requests::TOTAL);
        read += 1;
        client = Some(session);
    }
    Ok(read)
}

/// A short one by default; an hour or two with `TUTTI_STORM_FAULTS=1000`.
#[test]
fn storm() -> Result<()> {
    let faults = u32::try_from(environment::number(FAULTS, FAULTS_DEFAULT))?;
    let seed = environment::number(SEED, rand::random());
    println!("{SEED}={seed} {FAULTS}={faults}");
    let Some(mut world) = World::make()? else { return Ok(()) };
    let result = blow(&mut world, faults, seed);
    result.with_context(|| {
        format!(
            "{SEED}={seed} {FAULTS}={faults} ./dev test --test faults storm::\n{}",
            world.logs()
        )
    })
}

fn blow(world: &mut World, faults: u32, seed: u64) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let load = Load { faults, ..Load::from_environment(seed, faults * TRANSACTIONS_BETWEEN, ANY) };
    let first = world.endpoints()[0].clone();
    load.create_tables(&first, "DISTRIBUTE BY HASH (id)")?;
    requests::create_tables(&first)?;
    let known = Mutex::new(world.endpoints());
    let (stop, next) = (AtomicBool::new(false), AtomicI64::new(1));
    let asked = requests::Load { gateways: &known, stop: &stop, next: &next };
    let sums = AtomicU64::new(0);
    let (mut told, mut taken) = (BTreeMap::new(), BTreeMap::<String, Vec<Duration>>::new());
    let history = thread::scope(|scope| -> Result<_> {
        let (asked, known, stop, sums) = (&asked, &known, &stop, &sums);
        let clients: Vec<_> = (0..2)
            .map(|client| {
                scope.spawn(move || requests::run_client(asked, seed.wrapping_add(client)))
            })
            .collect();
        let reader = scope.spawn(move || {
            read_sums(known, stop, seed).map(|read| sums.store(read, Ordering::Relaxed))
        });
        // Each of its sessions goes where a gateway is when it begins.
        let at = Mutex::new(first);
        // Each kind comes about as often as any other.
        let mut deck = Vec::new();
        let history = run::run(&load, &at, |number| {
            if deck.is_empty() {
                deck = Fault::ALL.to_vec();
            }
            let fault = deck.swap_remove(rng.random_range(0..deck.len()));
            let struck = world.strike(fault, &mut rng);
            let (what, took) = struck.with_context(|| format!("fault {number}: {fault}"))?;
            println!("{number:4} {:.1} s: {what}", took.as_secs_f64());
            taken.entry(what).or_default().push(took);
            *at.lock().expect("nobody panicked") =
                world.endpoints().choose(&mut rng).context("there are three")?.clone();
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            told.extend(client.join().expect("a client does not panic")?);
        }
        reader.join().expect("a reader does not panic")?;
        history
    })?;
    println!("seconds until all was served: middle, most, how often");
    for (what, all) in taken.iter_mut().filter(|(what, _)| !what.contains(',')) {
        all.sort();
        let (middle, most) = (all[all.len() / 2].as_secs_f64(), all[all.len() - 1].as_secs_f64());
        println!("{middle:6.1} {most:6.1} {:4} {what}", all.len());
    }
    println!("{} requests, {} sums", told.len(), sums.load(Ordering::Relaxed));
    let last = world.endpoints()[0].clone();
    requests::check(&mut Client::connect(&last)?, &told)?;
    world.check_nodes()?;
    run::judge(&history, &load, "storm", Path::new(env!("CARGO_TARGET_TMPDIR")))?;
    audit::judge(Some(audit::run(world.config.clone(), Some(last))?))
}
