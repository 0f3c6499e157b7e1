//! The program `tutti-lab`: measurements of Tutti, on servers of their own.
//!
//! A program apart from `tutti`, so that what runs in production does not carry what draws plots.
//! Owns: the command line, the log, the exit status. Never: measures; that is `bench`.
//! Start reading at [`Command`].

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

mod bench;
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
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("TUTTI_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();

    let Command::Bench { command } = CommandLine::parse().command;
    // As the gateway's own: `bench commit` runs one in this process.
    let runtime = match tutti_gateway::runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("tutti-lab: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(bench::run(command));
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
}
