//! `tutti-lab bench pool`: the gateway beside PgBouncer and beside PostgreSQL itself, by pgbench.
//!
//! Owns: the order of measurements: rounds, in them the loads, in these all targets one after
//! another, so that what disturbs the machine disturbs all alike. Never: measures by itself.
//! Start reading at [`pool`]; what is compared is in `target`, where it runs in `place`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{LineWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;

use self::bouncer::Bouncer;
use self::figures::{Figures, Line, Measured, Record};
use self::pgbench::Ran;
use self::place::{Front, Place};
use self::target::{Build, Load, Protocol, Script, Target, name};
use super::{json_file, progress_bar};
use crate::interrupt::Interrupt;

mod beside;
mod bouncer;
mod figures;
mod gateway;
mod idle;
mod pgbench;
mod place;
mod plot;
mod process;
mod report;
mod tables;
mod target;
mod usage;

#[derive(Debug, Args)]
pub(crate) struct PoolArgs {
    /// How long each measurement lasts [default: 2, quick: 1]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// How often everything is measured; 0 measures idle clients only [default: 3, quick: 1]
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Numbers of clients [default: 1,8,64, quick: 1,8]
    #[arg(long, value_name = "N,…", value_delimiter = ',',
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: Vec<u16>,
    /// How statements are sent [default: all, quick: simple,prepared]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    protocols: Vec<Protocol>,
    /// What clients run [default: select,tpcb-local]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    scripts: Vec<Script>,
    /// What they connect to [default: direct,pgbouncer,tutti-1,tutti-3]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = Target::parse)]
    targets: Vec<Target>,
    /// Another build of this program, whose gateway is measured too; may be repeated
    #[arg(long, value_name = "[NAME=]PATH", value_parser = Build::parse)]
    gateway_binary: Vec<Build>,
    /// Idle clients whose memory is measured; 0 for none [default: 5000, quick: 500]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=100_000))]
    idle: Option<u32>,
    /// Rows of pgbench's accounts, in 100,000s [default: 10, quick: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    scale: Option<u32>,
    /// Connections that PgBouncer, pooling by transaction, and gateways have to each server for
    /// clients [default: what each has by default, PgBouncer 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pool: Option<u16>,
    /// The pgbouncer to use [default: the one that is installed]
    #[arg(long, value_name = "PATH")]
    pgbouncer: Option<PathBuf>,
    /// Measure less: about one minute
    #[arg(long)]
    quick: bool,
    /// Write every measurement to this file, one line of JSON each
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the result into this file (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// What is measured: the options, and the defaults of those that were not given.
#[derive(Clone, Debug)]
struct Plan {
    seconds: u64,
    rounds: u32,
    clients: Vec<u16>,
    protocols: Vec<Protocol>,
    scripts: Vec<Script>,
    /// Those of other builds too.
    targets: Vec<Target>,
    idle: u32,
    scale: u32,
    /// What each has by default, if nothing is said.
    pool: Option<u16>,
}

impl Plan {
    fn of(args: &PoolArgs) -> Self {
        fn or<T: Clone>(given: &[T], default: &[T]) -> Vec<T> {
            if given.is_empty() { default.to_vec() } else { given.to_vec() }
        }
        let quick = args.quick;
        let protocols: &[Protocol] = if quick {
            &[Protocol::Simple, Protocol::Prepared]
        } else {
            &[Protocol::Simple, Protocol::Extended, Protocol::Prepared]
        };
        let own = |nodes| Target::Tutti { nodes, build: None };
        let targets = or(&args.targets, &[Target::Direct, Target::Bouncer, own(1), own(3)]);
        Self {
            seconds: args.seconds.unwrap_or(if quick { 1 } else { 2 }),
            rounds: args.rounds.unwrap_or(if quick { 1 } else { 3 }),
            clients: or(&args.clients, if quick { &[1, 8] } else { &[1, 8, 64] }),
            protocols: or(&args.protocols, protocols),
            scripts: or(&args.scripts, &[Script::Select, Script::TpcbLocal]),
            targets: with_builds(targets, &args.gateway_binary),
            idle: args.idle.unwrap_or(if quick { 500 } else { 5_000 }),
            scale: args.scale.unwrap_or(if quick { 1 } else { 10 }),
            pool: args.pool,
        }
    }

    fn clients_max(&self) -> u16 {
        self.clients.iter().copied().max().unwrap_or_default()
    }

    /// Every load, those with few clients first.
    fn loads(&self) -> Vec<Load> {
        let mut loads = Vec::new();
        for &clients in &self.clients {
            for &script in &self.scripts {
                for &protocol in &self.protocols {
                    loads.push(Load { script, protocol, clients });
                }
            }
        }
        loads
    }

    /// The targets in the order of a round: every other one goes backwards, so that none is always
    /// the first.
    fn in_order<'a>(&self, fronts: &'a [Front], round: u32) -> Vec<&'a Front> {
        let mut fronts: Vec<&Front> = fronts.iter().collect();
        if round.is_multiple_of(2) {
            fronts.reverse();
        }
        fronts
    }
}

/// Every gateway once more for each other build, right after its own.
fn with_builds(targets: Vec<Target>, builds: &[Build]) -> Vec<Target> {
    let mut all = Vec::new();
    for target in targets {
        let nodes = match target {
            Target::Tutti { nodes, .. } => Some(nodes),
            Target::Direct | Target::Bouncer => None,
        };
        all.push(target);
        for build in builds {
            all.extend(nodes.map(|nodes| Target::Tutti { nodes, build: Some(build.name.clone()) }));
        }
    }
    all
}

/// Runs the benchmark and prints what came of it.
pub(super) async fn pool(args: PoolArgs) -> anyhow::Result<()> {
    let mut interrupt = Interrupt::listen()?;
    let plan = Plan::of(&args);
    // First what fails fastest.
    let distinct: BTreeSet<&Target> = plan.targets.iter().collect();
    ensure!(
        distinct.len() == plan.targets.len(),
        "each target once, and each --gateway-binary by its own name (NAME=PATH)"
    );
    let mut json = args.json.as_deref().map(json_file).transpose()?;
    idle::allow_files(plan.idle)?;
    let bouncer = if plan.targets.contains(&Target::Bouncer) {
        Some(Bouncer::find(args.pgbouncer.as_deref())?)
    } else {
        None
    };

    eprintln!("tutti-lab: making the servers and their tables");
    let about_bouncer = bouncer.clone();
    let place = tokio::select! {
        place = Place::make(&plan, &args.gateway_binary, bouncer) => place?,
        () = interrupt.came() => anyhow::bail!("ended before anything was measured"),
    };
    print!("{}", report::about(&plan, &place, about_bouncer.as_ref()));

    let mut figures = Figures::default();
    let measured = tokio::select! {
        measured = measure_all(&plan, &place, &mut figures, json.as_mut()) => measured,
        () = interrupt.came() => Err(anyhow::anyhow!("ended before all was measured")),
    };
    place.remove().await?;
    if let Some(mut json) = json {
        json.flush().context("cannot write the measurements")?;
    }
    // Also of a run that was ended or failed: what was measured until then is not lost.
    print!("{}", report::tables(&plan, &figures));
    measured?;
    print!("{}", report::aims(&plan, &figures));
    if let Some(file) = &args.plot {
        plot::draw(file, &plan, &figures)
            .with_context(|| format!("cannot draw {}", file.display()))?;
    }
    Ok(())
}

async fn measure_all(
    plan: &Plan,
    place: &Place,
    figures: &mut Figures,
    mut json: Option<&mut LineWriter<File>>,
) -> anyhow::Result<()> {
    if plan.idle != 0 {
        measure_idle(plan, place, figures, json.as_deref_mut()).await?;
    }
    measure_loads(plan, place, figures, json).await
}

/// Measures what idle clients cost, each target by a process that has done nothing else: what an
/// earlier load has left behind would be used again, and so not be seen.
async fn measure_idle(
    plan: &Plan,
    place: &Place,
    figures: &mut Figures,
    mut json: Option<&mut LineWriter<File>>,
) -> anyhow::Result<()> {
    for target in plan.targets.iter().filter(|target| **target != Target::Direct) {
        eprintln!("tutti-lab: {} idle clients, {target}", plan.idle);
        let front = place.start(target, plan).await?;
        if let Some(idle) = idle::measure(&front, plan.idle).await? {
            if let Some(json) = &mut json {
                writeln!(json, "{}", serde_json::to_string(&Line::Idle(&idle))?)?;
            }
            figures.idle.push(idle);
        }
        front.stop().await?;
    }
    Ok(())
}

/// Measures every load on every target in every round.
async fn measure_loads(
    plan: &Plan,
    place: &Place,
    figures: &mut Figures,
    mut json: Option<&mut LineWriter<File>>,
) -> anyhow::Result<()> {
    let mut fronts = Vec::new();
    for target in &plan.targets {
        fronts.push(place.start(target, plan).await?);
    }
    let loads = plan.loads();
    let all = loads.len() as u64 * fronts.len() as u64 * u64::from(plan.rounds);
    let bar = progress_bar(all);
    for round in 1..=plan.rounds {
        if bar.is_hidden() {
            eprintln!("tutti-lab: round {round} of {}", plan.rounds);
        }
        place.tidy().await?;
        for &load in &loads {
            for front in plan.in_order(&fronts, round) {
                bar.set_message(format!(
                    "round {round}, {} clients, {}, {}, {}",
                    load.clients,
                    name(load.script),
                    name(load.protocol),
                    front.target
                ));
                let ran = front.run(&place.pgbench, load, plan.seconds).await?;
                let record = record(round, load, front, ran);
                if let Some(json) = &mut json {
                    writeln!(json, "{}", serde_json::to_string(&Line::Load(&record))?)?;
                }
                figures.records.push(record);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    for front in fronts {
        front.check().await?;
        front.stop().await?;
    }
    Ok(())
}

fn record(round: u32, load: Load, front: &Front, ran: (Ran, Option<Duration>)) -> Record {
    let (Ran { processed, failed, counted }, cpu_time) = ran;
    let measured = Measured {
        per_s: counted.per_s,
        p50_us: counted.p50_us,
        p99_us: counted.p99_us,
        count: counted.count,
        processed,
        failed,
        cpu_us: cpu_time.map(|time| time.as_secs_f64() * 1_000_000.0 / processed as f64),
    };
    let (target, pooling) = (front.target.clone(), front.pooling(load.protocol));
    Record { round, load, target, pooling, measured }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gateway_is_measured_with_every_build() {
        let build = |name: &str| Build { name: name.to_owned(), binary: PathBuf::from("/tutti") };
        let own = Target::Tutti { nodes: 3, build: None };
        let all = with_builds(vec![Target::Direct, own], &[build("old"), build("odd")]);
        let names: Vec<String> = all.iter().map(Target::to_string).collect();
        assert_eq!(names, ["direct", "tutti-3", "tutti-3@old", "tutti-3@odd"]);
    }
}
