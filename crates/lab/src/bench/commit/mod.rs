//! `tutti-lab bench commit`: what consistency costs, measured on servers of its own.
//!
//! Owns: the order of measurements: rounds, in them the workloads, in these all variants one after
//! another, so that what disturbs the machine disturbs all alike. Never: measures by itself.
//! Start reading at [`commit`].

use std::fs::File;
use std::io::{LineWriter, Write};
use std::time::Duration;

use anyhow::Context;

pub(crate) use self::args::CommitArgs;
use self::figures::{Figures, Record};
use self::load::{Load, measure};
use self::measured::{Measured, Who};
use self::place::Place;
use self::variant::{DIRECT, Variant};
use super::output::{json_file, progress_bar};
use crate::interrupt::Interrupt;

mod args;
mod figures;
mod load;
mod measured;
mod place;
mod report;
mod variant;

/// What runs before anything is counted.
const FIRST_RUN: Duration = Duration::from_secs(1);

/// Runs the benchmark and prints what came of it.
pub(super) async fn commit(args: CommitArgs) -> anyhow::Result<()> {
    let mut interrupt = Interrupt::listen()?;
    // First what fails fastest.
    let mut json = args.json.as_deref().map(json_file).transpose()?;

    let clients_max = args.clients.iter().copied().max().context("no number of clients")?;
    eprintln!("tutti-lab: making {} nodes and their accounts", args.nodes);
    let place = Place::make(args.nodes, clients_max, args.flush_us).await?;
    print!("{}", report::about(&args, &place));

    let mut figures = Figures::default();
    let measured = tokio::select! {
        measured = measure_all(&args, &place, &mut figures, json.as_mut()) => measured,
        () = interrupt.came() => Err(anyhow::anyhow!("ended before all was measured")),
    };
    place.remove().await?;
    measured?;
    if let Some(mut json) = json {
        json.flush().context("cannot write the measurements")?;
    }
    print!("{}", report::tables(&args, &figures));
    print!("{}", report::aims(&args, &figures));
    Ok(())
}

/// Measures everything in every round.
async fn measure_all(
    args: &CommitArgs,
    place: &Place,
    figures: &mut Figures,
    mut json: Option<&mut LineWriter<File>>,
) -> anyhow::Result<()> {
    let lasts = Duration::from_secs(args.seconds);
    // Files are grown and code is read before anything is counted.
    measure_one(place, Load::Global, args.clients[0], FIRST_RUN, Some(args.variants[0])).await?;

    let bar = progress_bar(measurements(args));
    for round in 1..=args.rounds {
        for &clients in &args.clients {
            place.tidy().await?;
            for workload in Load::ALL {
                for way in ways(args, workload, round) {
                    let way_name = way.map_or(DIRECT, |variant| variant.name);
                    bar.set_message(format!(
                        "round {round}, {clients} clients, {}, {way_name}",
                        workload.name()
                    ));
                    for (who, measured) in measure_one(place, workload, clients, lasts, way).await?
                    {
                        let way = way_name;
                        let record = Record { round, clients, workload, who, way, measured };
                        if let Some(json) = &mut json {
                            writeln!(json, "{}", serde_json::to_string(&record)?)?;
                        }
                        figures.push(record);
                    }
                    bar.inc(1);
                }
            }
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// The ways of a workload; `None` is direct. Every other round goes backwards, so that none is
/// always the first.
fn ways(args: &CommitArgs, workload: Load, round: u32) -> Vec<Option<Variant>> {
    let direct = workload.runs_on_one_node().then_some(None);
    let mut ways: Vec<_> =
        direct.into_iter().chain(args.variants.iter().copied().map(Some)).collect();
    if round.is_multiple_of(2) {
        ways.reverse();
    }
    ways
}

/// Measures a workload through a gateway of its own, or directly on the nodes.
async fn measure_one(
    place: &Place,
    workload: Load,
    clients: u16,
    lasts: Duration,
    way: Option<Variant>,
) -> anyhow::Result<Vec<(Who, Measured)>> {
    let money = place.money();
    let Some(variant) = way else {
        return measure(workload, clients, lasts, &place.node_urls(), money).await;
    };
    let gateway = place.start_gateway(variant.switches).await?;
    let urls = [gateway.url.clone()];
    let measured = measure(workload, clients, lasts, &urls, money).await;
    let stopped = gateway.stop().await;
    // What went wrong first is what the user must hear.
    let measured = measured.with_context(|| format!("the gateway's variant {}", variant.name))?;
    stopped?;
    Ok(measured)
}

/// How many measurements all rounds have together.
fn measurements(args: &CommitArgs) -> u64 {
    let of_a_round: usize = Load::ALL.iter().map(|workload| ways(args, *workload, 1).len()).sum();
    of_a_round as u64 * args.clients.len() as u64 * u64::from(args.rounds)
}
