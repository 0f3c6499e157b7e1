//! The program `tutti-lab`: measurements of Tutti, on servers of their own.
//!
//! A program apart from `tutti`, so that what runs in production does not carry what draws plots.
//! Owns: the command line, the log, the exit status. Never: measures, that is `bench`; never fits, that is
//! the library's `model`.
//! Start reading at [`Command`].

use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

mod bench;
mod fit;
mod interrupt;
mod predict;

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
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("TUTTI_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();

    let done = match CommandLine::parse().command {
        Command::Bench { command } => bench(command),
        Command::Fit(args) => fit::fit(&args),
        Command::Predict(args) => predict::predict(&args),
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

fn bench(command: bench::BenchCommand) -> anyhow::Result<()> {
    // As the gateway's own: `bench commit` runs one in this process.
    let runtime = tutti_gateway::runtime().context("cannot start")?;
    let done = runtime.block_on(bench::run(command));
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
}
