//! The program `tutti-lab`: measurements of Tutti, on servers of their own.
//!
//! A program apart from `tutti`, so that what runs in production does not carry what draws plots.
//! Owns: the command line, the log, the exit status. Never: measures; that is `bench`, `study` and
//! `distance_command`; never fits, that is the library's `model`.
//! Start reading at [`Command`].

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

mod bench;
mod configuration;
mod distance_command;
mod files;
mod fit;
mod ground;
mod interrupt;
mod load;
mod median;
mod password;
mod predict;
mod record;
mod report;
mod study;
mod terminal;

/// Tries Tutti out and measures it, on servers of its own; says what distance costs.
#[derive(Debug, Parser)]
#[command(
    name = "tutti-lab",
    version,
    about,
    after_help = "`tutti bench …` is the same where the two programs stand side by side.\n\
                  Set TUTTI_LOG to see more, e.g. TUTTI_LOG=info."
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure on this machine, with servers of its own, what consistency and the gateway cost.
    Bench {
        #[command(subcommand)]
        command: bench::BenchCommand,
    },
    /// Measure links that stand for distances, or keep one open before any server.
    ///
    /// A link listens on a port of 127.0.0.1, carries every connection to an address, and delays,
    /// narrows and counts what passes. Opening a connection costs a round trip, as it does between
    /// machines.
    ///
    /// Without --listen: an echo is asked again and again, without a link, through one without
    /// distance, and through each of the links asked for; then a server pours through each. The
    /// table has the round trips as configured and as measured, and the bandwidth.
    ///
    /// With --listen: a link is kept open until interrupted. Then what passed is printed: flights
    /// (what one side sends before anything of the other comes) and round trips (a flight forth,
    /// and one back).
    #[command(after_help = "Examples:\n  \
        tutti-lab distance                                         near and far, in half a minute\n  \
        tutti-lab distance --profile three-continents              every distance of a profile\n  \
        tutti-lab distance --rtt-ms 0.5 --timers                   why links have their own timers\n  \
        tutti-lab distance --listen 6432 --to db:5432 --rtt-ms 12  put any server 12 ms away")]
    Distance(distance_command::DistanceArgs),

    /// Fit the cost model to measured runs: what each kind of distance multiplies the run time by.
    ///
    /// Ordinary least squares of the logarithm of the relative run time, over the runs on a distributed
    /// database. Prints the table that statsmodels prints, then each coefficient in words.
    #[command(after_help = "Examples:\n  \
        tutti-lab fit runs.csv\n  \
        tutti-lab fit runs.csv --plots pictures     with two pictures: deployments.svg, residuals.svg\n  \
        tutti-lab fit runs.csv --json > fit.json")]
    Fit(fit::FitArgs),

    /// Say which slowdown to expect on a distributed database, and whether that is known at all.
    ///
    /// The run time of writes without contention, as a factor of one PostgreSQL server's, with the 95 %
    /// confidence interval of the typical run and the 95 % prediction interval of one run. Where the
    /// question lies outside of what was measured, it says so, and gives the nearest that was.
    #[command(after_help = "Examples:\n  \
        tutti-lab predict --nodes 3 --rtt-ms 12 --workers 40\n  \
        tutti-lab predict --nodes 3 --rtt-ms 0.4 --workers 20 --from runs.csv\n  \
        tutti-lab predict --nodes 1 --workers 60 --json")]
    Predict(predict::PredictArgs),

    /// Move money between accounts while readers sum all of it: how many sums never were?
    ///
    /// On any PostgreSQL-compatible endpoint, or on a Tutti of its own. A reading is wrong if it is not all the
    /// money there is: a part of a transaction over several servers was seen without its other part.
    #[command(after_help = "Examples:\n  \
        tutti-lab transfer --quick\n  \
        tutti-lab transfer --url postgres://me@citus:5432/db --url postgres://me@tutti:7432/db --out sums")]
    Transfer(study::transfer::TransferArgs),

    /// Insert the Lahman records over six deployments, near and far, and model what that costs.
    ///
    /// One PostgreSQL on the client's host, and on another; one Tutti node; three in a region, on a continent,
    /// on three continents; distances are emulated. Before each run everything is undone, after it every record
    /// is read back. The run can be interrupted and carried on with the same --out.
    #[command(after_help = "Examples:\n  \
        tutti-lab cost --quick                      within a minute\n  \
        tutti-lab cost --out cost                   90 runs\n  \
        tutti-lab cost --placement replicated --out cost-replicated")]
    Cost(study::cost::CostArgs),

    /// Measure what a transaction costs by how much it guarantees and how far away its servers are.
    ///
    /// The same transfers on one PostgreSQL, with a synchronous standby, and on Tutti: local, global at each
    /// isolation level, BASE; at each distance. Round trips and flushes are counted.
    #[command(after_help = "Examples:\n  \
        tutti-lab price --quick\n  \
        tutti-lab price --rtt-ms 0,2,70 --out price")]
    Price(study::price::PriceArgs),

    /// Measure how throughput grows with nodes that each have the same small share of a processor.
    ///
    /// Transfers that are local, on two nodes in a tenth of all cases, and always; beside the figures that
    /// Postgres-XC has published. Needs the right to make control groups (root), and says so where it lacks it.
    #[command(after_help = "Examples:\n  \
        tutti-lab scale --quick\n  \
        tutti-lab scale --nodes 1,2,3,5,10 --out scale")]
    Scale(study::scale::ScaleArgs),

    /// Two-phase commit against none: queries per second while a replicated shop is looked at and altered.
    ///
    /// The batch of 25 runs of the thesis: 1, 2 and 4 nodes, five times between alters, ACID (every write is
    /// committed on all nodes by two-phase commit) or BASE (nodes commit one by one, rows are carried to the
    /// others afterwards); with -n or -s one run. The page has a graph of each run, the closing chart, tables
    /// beside the published ones, and a fitted function for each curve.
    #[command(after_help = "Examples:\n  \
        tutti-lab thesis --quick\n  \
        tutti-lab thesis --out thesis                         25 runs\n  \
        tutti-lab thesis -st 8 -at 8 -n 4 -s 2.0 --tpc        one run, as the thesis writes it\n  \
        tutti-lab thesis --batch-nodes 3,8 --rtt-ms 5 --data json --data-bytes 2000")]
    Thesis(study::thesis::ThesisArgs),

    /// Make the page about a directory of runs, or compare two directories of the same study.
    Report {
        /// A directory that a study has written
        dir: std::path::PathBuf,
        /// A later one, to compare with it
        other: Option<std::path::PathBuf>,
    },

    /// Run any workload against any endpoint, as a file says.
    ///
    /// The file names a system of the lab's own or the URL of another, a workload and its parameters, clients and
    /// how long. After each run what the workload left is compared with what clients were told. The run can be
    /// interrupted and carried on with the same --out. On another's endpoint everything is in the schema
    /// lab_run, which is made anew and removed.
    #[command(after_help = "Examples:\n  \
        tutti-lab run docs/lab/examples/ycsb.toml --quick\n  \
        tutti-lab run docs/lab/examples/ycsb.toml --out ycsb")]
    Run(study::run::RunArgs),
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("TUTTI_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();

    let done = match CommandLine::parse_from(study::thesis::spell_out(std::env::args_os())).command
    {
        Command::Fit(args) => fit::fit(&args),
        Command::Predict(args) => predict::predict(&args),
        Command::Report { dir, other } => study::report(&dir, other.as_deref()),
        running => run(running),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // With its causes, in one line: `what failed: because of what`.
            eprintln!("tutti-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What starts something and measures it.
fn run(command: Command) -> anyhow::Result<()> {
    // As the gateway's own: studies and `bench commit` run one in this process.
    let runtime = tutti_gateway::runtime().context("cannot start")?;
    let done = runtime.block_on(async {
        match command {
            Command::Bench { command } => bench::run(command).await,
            Command::Distance(args) => distance_command::run(args).await,
            Command::Transfer(args) => study::transfer::run(args).await,
            Command::Cost(args) => study::cost::run(args).await,
            Command::Price(args) => study::price::run(args).await,
            Command::Run(args) => study::run::run(args).await,
            Command::Scale(args) => study::scale::run(args).await,
            Command::Thesis(args) => study::thesis::run(args).await,
            Command::Fit(_) | Command::Predict(_) | Command::Report { .. } => {
                unreachable!("they start nothing")
            }
        }
    });
    runtime.shutdown_background();
    done
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn a_benchmark_takes_lists_and_knows_its_variants() {
        let bench = |option, value| {
            CommandLine::try_parse_from(["tutti-lab", "bench", "commit", option, value]).is_ok()
        };
        assert!(bench("--clients", "1,8,32"));
        assert!(!bench("--clients", "0"));
        assert!(bench("--variants", "rooms-off,rooms-on"));
        assert!(!bench("--variants", "no-such"));
        // A transaction over two nodes needs two.
        assert!(!bench("--nodes", "1"));

        let pool = |option, value| {
            CommandLine::try_parse_from(["tutti-lab", "bench", "pool", option, value]).is_ok()
        };
        assert!(pool("--targets", "direct,pgbouncer,tutti-2"));
        assert!(!pool("--targets", "no-such"));
        assert!(pool("--scripts", "select,tpcb,tpcb-local"));
        assert!(pool("--protocols", "simple,extended,prepared"));
        assert!(!pool("--protocols", "binary"));
    }

    #[test]
    fn a_distance_is_measured_or_kept() {
        let distance = |options: &str| {
            let words = ["tutti-lab", "distance"].into_iter().chain(options.split_whitespace());
            CommandLine::try_parse_from(words).is_ok()
        };
        assert!(distance(""));
        assert!(distance("--profile one-region --seconds 1"));
        assert!(!distance("--profile one-planet"));
        assert!(!distance("--profile one-region --rtt-ms 3"));
        assert!(distance("--rtt-ms 12 --jitter-ms 1 --bandwidth-mbit 100 --timers"));
        assert!(!distance("--jitter-ms 1"));
        assert!(distance("--listen 6432 --to db:5432 --rtt-ms 12"));
        assert!(!distance("--listen 6432 --rtt-ms 12"));
        assert!(!distance("--listen 6432 --to db:5432"));
        assert!(!distance("--listen 6432 --to db --rtt-ms 12"));
        assert!(!distance("--to db:5432 --rtt-ms 12"));
    }
}
