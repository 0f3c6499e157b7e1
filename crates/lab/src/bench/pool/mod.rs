//! `tutti-lab bench pool`: the gateway beside PgBouncer and beside PostgreSQL itself, by pgbench.
//!
//! Owns: the order of measurements: rounds, in them the loads, in these all targets one after
//! another, so that what disturbs the machine disturbs all alike. Never: measures by itself.
//! Start reading at [`pool`]; what is compared is in `target`, where it runs in `place`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{LineWriter, Write};
use std::time::Duration;

use anyhow::{Context, ensure};

use self::bouncer::Bouncer;
use self::figures::{Figures, Line, Measured, Record};
use self::pgbench::Ran;
use self::place::{Front, Place};
use self::plan::Plan;
pub(crate) use self::plan::PoolArgs;
use self::target::{Load, Target, name};
use super::output::{json_file, progress_bar};
use crate::interrupt::Interrupt;

mod beside;
mod bouncer;
mod figures;
mod gateway;
mod idle;
mod pgbench;
mod place;
mod plan;
mod plot;
mod process;
mod report;
mod tables;
mod target;
mod tpcb;
mod usage;

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
            for front in in_order(&fronts, round) {
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

/// The targets in the order of a round: every other one goes backwards, so that none is always
/// the first.
fn in_order(fronts: &[Front], round: u32) -> Vec<&Front> {
    let mut fronts: Vec<&Front> = fronts.iter().collect();
    if round.is_multiple_of(2) {
        fronts.reverse();
    }
    fronts
}
