//! `tutti bench`: what consistency costs, measured on servers of its own.
//!
//! Owns: the order of measurements: rounds, in them the workloads, in these all variants one behind
//! another, so that what disturbs the machine disturbs all alike. Never: measures by itself.
//! Start reading at [`commit`].

use std::fs::File;
use std::io::{LineWriter, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};

use self::figures::{Figures, Measured, Record, Who};
use self::place::Place;
use self::variant::Variant;
use self::workload::{Workload, measure};
use crate::shutdown::Shutdown;

mod figures;
mod place;
mod report;
mod variant;
mod workload;

/// The way without a gateway: clients of each node itself.
const DIRECT: &str = "direct";
/// What runs before anything is counted.
const FIRST_RUN: Duration = Duration::from_secs(1);

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure transactions over one node and over several, with and without what isolates them.
    ///
    /// Starts PostgreSQL servers of its own in the system's temporary directory (TMPDIR), with
    /// fsync on, and removes them at the end. A gateway runs in this process, and so do the clients.
    ///
    /// Workloads, each with every number of clients: SELECT 1; SELECT and UPDATE of one row, in
    /// autocommit; local transfers (BEGIN, two UPDATEs on one node, COMMIT), alone, beside as many
    /// clients that do the same, and beside as many whose transfers are global; global transfers
    /// (the two UPDATEs on different nodes), alone and beside a reader that sums all accounts again
    /// and again. A sum that never was is a wrong reading.
    ///
    /// Ways: `direct` (clients of each PostgreSQL node itself) and the gateway's variants:
    /// `rooms-on` (as it is shipped), `rooms-off` (nobody waits for anybody; readings may be wrong),
    /// and, if asked for, `apart` and `anchored` (where the decision of a transaction is made). In
    /// each round every workload runs in all ways, one right behind another; ratios are taken within
    /// a round, and shown with the lowest and the highest of all rounds.
    ///
    /// Per second: transactions, or statements, of all measured clients together. Durations (p50,
    /// p99): of the COMMIT alone where the work is a transaction, of the statement otherwise.
    /// Clients send when they have their last answer. The first half second is not counted.
    ///
    /// After each measurement the accounts must hold what they did, or the command fails.
    #[command(after_help = "Examples:\n  \
        tutti bench commit                            about a quarter of an hour\n  \
        tutti bench commit --rounds 1 --seconds 1     a first look\n  \
        tutti bench commit --clients 8 --rounds 15    for a noisy machine\n  \
        tutti bench commit --variants apart,anchored  which form of the decision is faster\n  \
        tutti bench commit --flush-us 1000            as if the disk needed 1 ms more\n  \
        tutti bench commit --json run.jsonl           every measurement, one line of JSON each")]
    Commit(CommitArgs),
}

#[derive(Debug, Args)]
pub(crate) struct CommitArgs {
    /// Numbers of clients
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 8, 32],
          value_parser = clap::value_parser!(u16).range(1..=200))]
    clients: Vec<u16>,
    /// How long each measurement lasts
    #[arg(long, value_name = "SECONDS", default_value_t = 2,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// How many PostgreSQL servers
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(2..=16))]
    nodes: u16,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Variants of the gateway; the others are compared with the first
    #[arg(long, value_name = "NAME,…", value_delimiter = ',',
          default_values = [variant::ROOMS_ON, variant::ROOMS_OFF], value_parser = variant::find)]
    variants: Vec<Variant>,
    /// Make every flush so much slower, as on another disk (PostgreSQL's commit_delay)
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(..=100_000))]
    flush_us: u32,
    /// Write every measurement to this file, one line of JSON each
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs a benchmark and prints what came of it.
pub(crate) async fn run(command: BenchCommand) -> anyhow::Result<()> {
    let BenchCommand::Commit(args) = command;
    commit(args).await
}

async fn commit(args: CommitArgs) -> anyhow::Result<()> {
    let mut shutdown = Shutdown::on_signals()?;
    // First what fails fastest.
    let mut json = args.json.as_ref().map(create).transpose()?;

    let clients_max = args.clients.iter().copied().max().context("no number of clients")?;
    eprintln!("tutti: making {} nodes and their accounts", args.nodes);
    let place = Place::make(args.nodes, clients_max, args.flush_us).await?;
    print!("{}", report::about(&args, &place));

    let mut figures = Figures::default();
    let measured = tokio::select! {
        measured = measure_all(&args, &place, &mut figures, json.as_mut()) => measured,
        () = shutdown.asked() => Err(anyhow::anyhow!("ended before all was measured")),
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

fn create(path: &PathBuf) -> anyhow::Result<LineWriter<File>> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(LineWriter::new(file))
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
    measure_one(place, Workload::Global, args.clients[0], FIRST_RUN, Some(args.variants[0]))
        .await?;

    let bar = progress_bar(args);
    for round in 1..=args.rounds {
        for &clients in &args.clients {
            place.tidy().await?;
            for workload in Workload::ALL {
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
fn ways(args: &CommitArgs, workload: Workload, round: u32) -> Vec<Option<Variant>> {
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
    workload: Workload,
    clients: u16,
    lasts: Duration,
    way: Option<Variant>,
) -> anyhow::Result<Vec<(Who, Measured)>> {
    let accounts = place.accounts();
    let Some(variant) = way else {
        return measure(workload, clients, lasts, &place.node_urls(), accounts).await;
    };
    let gateway = place.start_gateway(variant.switches).await?;
    let urls = [gateway.url.clone()];
    let measured = measure(workload, clients, lasts, &urls, accounts).await;
    let stopped = gateway.stop().await;
    // What went wrong first is what the user must hear.
    let measured = measured.with_context(|| format!("the gateway's variant {}", variant.name))?;
    stopped?;
    Ok(measured)
}

/// On a terminal a bar with the time that is left; elsewhere nothing.
fn progress_bar(args: &CommitArgs) -> ProgressBar {
    let of_a_round: usize =
        Workload::ALL.iter().map(|workload| ways(args, *workload, 1).len()).sum();
    let all = of_a_round as u64 * args.clients.len() as u64 * u64::from(args.rounds);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {eta} left  {msg}")
        .expect("the template is right");
    ProgressBar::new(all).with_style(style)
}
