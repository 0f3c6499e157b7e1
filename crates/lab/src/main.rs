//! The program `tutti-lab`: measurements of Tutti, on servers of their own.
//!
//! A program apart from `tutti`, so that what runs in production does not carry what draws plots.
//! Owns: the command line, the log, the exit status. Never: measures; that is `bench` and
//! `distance_command`.
//! Start reading at [`Command`].

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

mod bench;
mod distance_command;
mod interrupt;

/// Tries Tutti out and measures it, on servers of its own.
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
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("TUTTI_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();

    let command = CommandLine::parse().command;
    // As the gateway's own: `bench commit` runs one in this process.
    let runtime = match tutti_gateway::runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("tutti-lab: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(async {
        match command {
            Command::Bench { command } => bench::run(command).await,
            Command::Distance(args) => distance_command::run(args).await,
        }
    });
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // With its causes, in one line: `what failed: because of what`.
            eprintln!("tutti-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
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
