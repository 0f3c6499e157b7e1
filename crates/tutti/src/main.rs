//! The program `tutti`: its commands and their options.
//!
//! Owns: the command line, the log, the exit status. Never: does the work; that is `up`, `operate`,
//! `check` and `advise` here, and the crates `tutti-gateway`, `tutti-embed` and `tutti-lab` (the demo).
//! Start reading at [`Command`].

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use tutti_lab::demo;

mod advise;
mod check;
mod lab;
mod operate;
mod shutdown;
mod up;

/// One PostgreSQL made of many.
#[derive(Debug, Parser)]
#[command(
    version,
    about,
    after_help = "Start with `tutti up --demo`; then connect with psql to the address it prints.\n\
                  Set TUTTI_LOG to see more, e.g. TUTTI_LOG=info or TUTTI_LOG=tutti_cluster=debug."
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a cluster on this machine: PostgreSQL servers and a gateway in front of them.
    ///
    /// Uses the PostgreSQL (15 or newer) that is installed, or fetches one. Runs until Ctrl-C, and
    /// then stops the servers too. Run again on the same directory, it carries on with the data.
    #[command(after_help = "Examples:\n  \
        tutti up                                  three nodes in ./data/tutti, on port 7432\n  \
        tutti up --demo                           and show what it does, with a small shop\n  \
        tutti up --nodes 5 --data /srv/tutti      five nodes, elsewhere\n  \
        psql postgres://postgres@127.0.0.1:7432/postgres\n\n\
        Environment:\n  \
        PG_CONFIG=PATH   the pg_config of the PostgreSQL to use\n  \
        TUTTI_PG=fetch   fetch PostgreSQL's server binaries even if one is installed\n  \
        TUTTI_CACHE=DIR  where fetched binaries are kept")]
    Up(UpArgs),

    /// Run the gateway in front of PostgreSQL servers that you run.
    #[command(after_help = "Example:\n  \
        tutti init --config tutti.toml && tutti serve --config tutti.toml\n\n\
        The file is explained in docs/tutti.example.toml.")]
    Serve {
        #[command(flatten)]
        config: ConfigFile,
    },

    /// Write the cluster's catalog into the nodes, once, before the first `serve`.
    ///
    /// Does nothing that is already done, so it may be run again.
    #[command(after_help = "Examples:\n  \
        tutti init --config tutti.toml            all nodes are empty\n  \
        tutti init --config tutti.toml --adopt    node 1 already holds tables; they become part\n                                            \
        of the cluster")]
    Init {
        #[command(flatten)]
        config: ConfigFile,
        /// Node 1 already holds tables: make them part of the cluster.
        #[arg(long)]
        adopt: bool,
    },

    /// Show the nodes, the tables and where their rows are.
    #[command(after_help = "Examples:\n  \
        tutti status                              the cluster of `tutti up` in ./data/tutti\n  \
        tutti status --data /srv/tutti\n  \
        tutti status --config tutti.toml")]
    Status(StatusArgs),

    /// Look whether everything that must hold between the nodes does: copies, rows, definitions.
    ///
    /// Looks at all nodes at one moment, beside whatever load there is, with a gateway or without, and
    /// changes nothing. What is compared: the copies of replicated tables, row for row by hash; rows of
    /// distributed tables on nodes that do not own their keys, and keys that are there twice; rows of home
    /// tables elsewhere; definitions and rights of what nodes share, placements, bucket maps, sequences, the
    /// schema tutti; what gateways may leave behind: prepared transactions, decisions, tickets, backends; and
    /// what the running gateway has in memory.
    #[command(
        after_help = "Exit status: 0 nothing found, 1 something found (it is printed), 2 nothing found, \
        but not everything could be looked at.\n\n\
        Examples:\n  \
        tutti check                               the cluster of `tutti up` in ./data/tutti\n  \
        tutti check --data /srv/tutti --gateway 127.0.0.1:7433\n  \
        tutti check --config tutti.toml --json | jq .findings\n\n\
        To decide what is one moment, transactions over several nodes are not committed for a few \
        round trips; nobody else waits. While it runs, vacuum keeps what it may still read. Tables \
        are read in portions, and a schema change waits for a portion at most."
    )]
    Check(CheckArgs),

    /// Propose which tables to spread, and by which column, from the statements that are sent.
    ///
    /// Plans each statement for many placements, as the gateway would, and proposes those by which most calls
    /// go to one node. Changes nothing: it prints the commands. Node 1 is asked for its tables and, without
    /// --log, for what `pg_stat_statements` has counted there.
    #[command(after_help = "Examples:\n  \
        tutti advise --config tutti.toml\n  \
        tutti advise --config tutti.toml --log /var/log/postgresql/postgresql.log\n  \
        tutti advise --nodes 8 --json | jq .tables\n\n\
        Statements: CREATE EXTENSION pg_stat_statements (in shared_preload_libraries of node 1), or a log\n\
        with log_statement = 'all' or log_min_duration_statement = 0.")]
    Advise(AdviseArgs),

    /// Measure what consistency and the gateway cost: runs `tutti-lab bench`, a program of its own.
    #[command(disable_help_flag = true)]
    Bench {
        /// What `tutti-lab bench` is given
        #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },

    /// Study what consistency costs, here and far apart: runs `tutti-lab`, a program of its own.
    #[command(disable_help_flag = true)]
    Lab {
        /// What `tutti-lab` is given, such as `transfer --quick`; --help says what there is
        #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
struct UpArgs {
    /// How many PostgreSQL servers [default: as many as the directory holds, or 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: Option<u16>,
    /// Address and port for clients; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7432")]
    listen: String,
    /// Let everybody in who can reach that address, without a password
    #[arg(long)]
    allow_trust_off_loopback: bool,
    /// Directory for the data [default: ./data/tutti]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Fill a small shop, move money between nodes and check that none is lost
    #[arg(long)]
    demo: bool,
    #[command(flatten)]
    demo_options: DemoOptions,
}

#[derive(Clone, Copy, Debug, Args)]
struct DemoOptions {
    /// How many clients move money in the demo
    #[arg(long, value_name = "N", default_value_t = 8, requires = "demo",
          value_parser = clap::value_parser!(u16).range(1..=100))]
    clients: u16,
    /// How long they move it
    #[arg(long, value_name = "SECONDS", default_value_t = 30, requires = "demo")]
    demo_seconds: u64,
    /// End after the demo, instead of running on
    #[arg(long, requires = "demo")]
    demo_exit: bool,
}

impl DemoOptions {
    fn chosen(self) -> demo::Options {
        demo::Options { clients: self.clients, lasts: Duration::from_secs(self.demo_seconds) }
    }
}

#[derive(Debug, Args)]
struct ConfigFile {
    /// The configuration file
    #[arg(long = "config", value_name = "FILE", default_value = "tutti.toml")]
    path: PathBuf,
}

#[derive(Debug, Args)]
struct StatusArgs {
    /// Configuration file of the cluster to look at
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    config: Option<PathBuf>,
    /// Data directory of a cluster that `tutti up` runs [default: ./data/tutti]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    cluster: StatusArgs,
    /// Where the gateway listens [default: as configured; with --data 127.0.0.1:7432]
    #[arg(long, value_name = "HOST:PORT")]
    gateway: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct AdviseArgs {
    #[command(flatten)]
    cluster: StatusArgs,
    /// A server's log with the statements, in place of what `pg_stat_statements` has counted
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// For so many nodes [default: those of the cluster, at least 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=64))]
    nodes: Option<u16>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_env("TUTTI_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();

    let command = CommandLine::parse().command;
    let is_check = matches!(command, Command::Check(_));
    let runtime = match tutti_gateway::runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("tutti: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(run(command));
    // A download that the user interrupted must not keep us; tasks with something to finish have
    // been waited for.
    runtime.shutdown_background();
    match done {
        Ok(status) => status,
        Err(error) => {
            // With its causes, on one line: `what failed: because of what`.
            eprintln!("tutti: {error:#}");
            if is_check { ExitCode::from(check::NOT_CHECKED) } else { ExitCode::FAILURE }
        }
    }
}

async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Check(args) => return check::check(args).await,
        Command::Advise(args) => advise::advise(args).await,
        Command::Up(args) => up::up(args).await,
        Command::Serve { config } => operate::serve(&config.path).await,
        Command::Init { config, adopt } => operate::init(&config.path, adopt).await,
        Command::Status(args) => operate::status(args).await,
        Command::Bench { arguments } => lab::run(Some("bench"), &arguments),
        Command::Lab { arguments } => lab::run(None, &arguments),
    }
    .map(|()| ExitCode::SUCCESS)
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
    fn a_benchmark_is_given_its_arguments_as_they_are() {
        let line = ["tutti", "bench", "pool", "--quick", "--help"];
        let parsed = CommandLine::try_parse_from(line).unwrap().command;
        let Command::Bench { arguments } = parsed else { panic!("{parsed:?}") };
        assert_eq!(arguments, ["pool", "--quick", "--help"]);
        let line = ["tutti", "lab", "transfer", "-x", "8", "--help"];
        let parsed = CommandLine::try_parse_from(line).unwrap().command;
        let Command::Lab { arguments } = parsed else { panic!("{parsed:?}") };
        assert_eq!(arguments, ["transfer", "-x", "8", "--help"]);
        let none = CommandLine::try_parse_from(["tutti", "bench"]).unwrap().command;
        assert!(matches!(none, Command::Bench { arguments } if arguments.is_empty()));
    }

    #[test]
    fn demo_options_need_the_demo() {
        assert!(CommandLine::try_parse_from(["tutti", "up", "--demo-exit"]).is_err());
        assert!(CommandLine::try_parse_from(["tutti", "up", "--demo", "--demo-exit"]).is_ok());
        assert!(CommandLine::try_parse_from(["tutti", "up", "--nodes", "0"]).is_err());
    }
}
