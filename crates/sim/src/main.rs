//! Runs seeds from the command line: one with its trace, some, or as many as fit into some minutes; or
//! visits small worlds of SERIALIZABLE transactions.
//!
//! Owns: the clock and the printing, which the simulator itself must not have.
//! Start reading at [`main`].

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use tutti_sim::serial::world::World;
use tutti_sim::serial::{self, explore, worlds};
use tutti_sim::{Bug, Report, run};

/// Simulates a cluster from a seed, and checks what must hold.
#[derive(Debug, Parser)]
struct Arguments {
    /// Run this one, and tell what happened if something is broken.
    #[arg(long)]
    seed: Option<u64>,
    /// Where to begin.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// Go on as long as this instead.
    #[arg(long)]
    minutes: Option<u64>,
    /// Plant this bug.
    #[arg(long, value_parser = bug)]
    bug: Option<Bug>,
    /// With --seed: tell also what happened if all is well.
    #[arg(long)]
    trace: bool,
    /// Visit every order of this world of SERIALIZABLE transactions instead, say "rx1 wy2 | ry2 wx1"
    /// (crates/sim/src/serial/world.rs); or "all": every world of three small transactions.
    #[arg(long)]
    serial: Option<String>,
    /// Plant this bug in it.
    #[arg(long, value_parser = serial_bug)]
    serial_bug: Option<serial::Bug>,
    /// Visit so many states of a world at most.
    #[arg(long, default_value_t = 20_000_000)]
    states: u64,
}

fn serial_bug(name: &str) -> Result<serial::Bug, String> {
    let names = || {
        let names = serial::Bug::ALL.iter().map(|(bug, _)| format!("{bug:?}"));
        names.collect::<Vec<_>>().join(", ")
    };
    serial::Bug::named(name).ok_or_else(|| format!("the bugs are {}", names()))
}

fn bug(name: &str) -> Result<Bug, String> {
    let names =
        || Bug::ALL.iter().map(|(bug, _)| format!("{bug:?}")).collect::<Vec<_>>().join(", ");
    Bug::named(name).ok_or_else(|| format!("the bugs are {}", names()))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.serial.as_deref() {
        Some("all") => return visit_all(&arguments),
        Some(text) => match text.parse() {
            Ok(world) => return visit(&world, &arguments),
            Err(error) => {
                println!("{error}");
                return ExitCode::FAILURE;
            }
        },
        None => (),
    }
    if let Some(seed) = arguments.seed {
        return show(seed, &arguments);
    }
    let begun = Instant::now();
    let limit = arguments.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let (mut told, mut sum) = (begun, Report::default());
    let mut seed = arguments.from;
    loop {
        let is_over = match limit {
            Some(limit) => limit <= begun.elapsed(),
            None => arguments.from + arguments.seeds <= seed,
        };
        if is_over {
            break;
        }
        let report = run(seed, arguments.bug, false);
        if !report.violations.is_empty() {
            return show(seed, &arguments);
        }
        sum.committed += report.committed;
        sum.aborted += report.aborted;
        sum.unknown += report.unknown;
        sum.moved += report.moved;
        sum.observations += report.observations;
        seed += 1;
        if Duration::from_secs(10) <= told.elapsed() {
            told = Instant::now();
            println!("{}", progress(seed - arguments.from, &sum, begun.elapsed()));
        }
    }
    println!("{}", progress(seed - arguments.from, &sum, begun.elapsed()));
    ExitCode::SUCCESS
}

/// All small worlds, or as many as fit into `--minutes`; each up to `--states`.
fn visit_all(arguments: &Arguments) -> ExitCode {
    let begun = Instant::now();
    let limit = arguments.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    let (mut told, mut visited, mut cut, mut states) = (begun, 0, 0, 0);
    for world in worlds() {
        if limit.is_some_and(|limit| limit <= begun.elapsed()) {
            break;
        }
        let found = explore(&world, arguments.serial_bug, arguments.states);
        if found.anomaly.is_some() {
            return visit(&world, arguments);
        }
        visited += 1;
        cut += u32::from(found.is_cut);
        states += found.states;
        if Duration::from_secs(10) <= told.elapsed() {
            told = Instant::now();
            println!("{visited} worlds, {states} states; at {world}");
        }
    }
    println!("{visited} worlds, {cut} of them not to the end, {states} states; all serializable");
    ExitCode::SUCCESS
}

fn visit(world: &World, arguments: &Arguments) -> ExitCode {
    let found = explore(world, arguments.serial_bug, arguments.states);
    let Some((trace, circle)) = found.anomaly else {
        let (states, ends, all) = (found.states, found.ends, found.all_committed);
        let cut = if found.is_cut { ", given up" } else { "" };
        println!(
            "{world}: {states} states{cut}, {ends} ends, {all} in which all committed; all well"
        );
        return ExitCode::SUCCESS;
    };
    for line in trace {
        println!("{line}");
    }
    println!("not serializable: {circle}");
    let bug = arguments.serial_bug.map_or(String::new(), |bug| format!(" --serial-bug {bug:?}"));
    println!("again: cargo sim --serial \"{world}\"{bug}");
    ExitCode::FAILURE
}

fn progress(seeds: u64, sum: &Report, elapsed: Duration) -> String {
    format!(
        "{seeds} seeds in {:.0} s: transactions {} committed ({} of them moved a table), {} aborted, {} unknown; {} snapshots judged; all well",
        elapsed.as_secs_f64(),
        sum.committed,
        sum.moved,
        sum.aborted,
        sum.unknown,
        sum.observations
    )
}

fn show(seed: u64, arguments: &Arguments) -> ExitCode {
    let report = run(seed, arguments.bug, true);
    let is_broken = !report.violations.is_empty();
    if is_broken || arguments.trace {
        println!("{}", report.plan);
        for line in &report.trace {
            println!("{line}");
        }
    }
    for violation in &report.violations {
        println!("{}: {}", violation.property, violation.found);
    }
    if is_broken {
        let bug = arguments.bug.map_or(String::new(), |bug| format!(" --bug {bug:?}"));
        println!("again: cargo sim --seed {seed}{bug}");
        ExitCode::FAILURE
    } else {
        println!("seed {seed}: {}", progress(1, &report, Duration::ZERO));
        ExitCode::SUCCESS
    }
}
