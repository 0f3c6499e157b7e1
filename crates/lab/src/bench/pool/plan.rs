//! What `tutti-lab bench pool` measures: its options, and what is done where they say nothing.
//!
//! Owns: their names and defaults. Never: measures.

use std::path::PathBuf;

use clap::Args;

use super::target::{Build, Load, Protocol, Script, Target};

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
    pub(super) gateway_binary: Vec<Build>,
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
    pub(super) pgbouncer: Option<PathBuf>,
    /// Measure less: about one minute
    #[arg(long)]
    quick: bool,
    /// Write every measurement to this file, one line of JSON each
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Draw the result into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
}

/// What is measured: the options, and the defaults of those that were not given.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub seconds: u64,
    pub rounds: u32,
    pub clients: Vec<u16>,
    pub protocols: Vec<Protocol>,
    pub scripts: Vec<Script>,
    /// Those of other builds too.
    pub targets: Vec<Target>,
    pub idle: u32,
    pub scale: u32,
    /// What each has by default, if nothing is said.
    pub pool: Option<u16>,
}

impl Plan {
    pub(super) fn of(args: &PoolArgs) -> Self {
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

    pub(super) fn clients_max(&self) -> u16 {
        self.clients.iter().copied().max().unwrap_or_default()
    }

    /// Every load, those with few clients first.
    pub(super) fn loads(&self) -> Vec<Load> {
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
