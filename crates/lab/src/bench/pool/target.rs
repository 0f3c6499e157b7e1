//! What is compared, and under which load.
//!
//! Owns: the names of targets, scripts and protocols. Never: runs any.

use std::fmt;
use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Serialize, Serializer};

/// The most nodes of a target: all servers of a run are on one machine.
const NODES_MAX: u16 = 16;

/// What clients connect to.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Target {
    /// One PostgreSQL server itself.
    Direct,
    /// PgBouncer in front of that server.
    Bouncer,
    /// A gateway in front of so many servers of its own.
    Tutti {
        nodes: u16,
        /// The name of its build; none for this program's own.
        build: Option<String>,
    },
}

impl Target {
    /// Reads a name of the command line: `direct`, `pgbouncer`, `tutti-3`.
    pub(super) fn parse(name: &str) -> Result<Self, String> {
        let nodes = match name {
            "direct" => return Ok(Self::Direct),
            "pgbouncer" => return Ok(Self::Bouncer),
            _ => name.strip_prefix("tutti-").and_then(|nodes| nodes.parse().ok()),
        };
        match nodes {
            Some(nodes) if (1..=NODES_MAX).contains(&nodes) => {
                Ok(Self::Tutti { nodes, build: None })
            }
            _ => Err(format!("there are direct, pgbouncer, and tutti-1 to tutti-{NODES_MAX}")),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("direct"),
            Self::Bouncer => f.write_str("pgbouncer"),
            Self::Tutti { nodes, build: None } => write!(f, "tutti-{nodes}"),
            Self::Tutti { nodes, build: Some(build) } => write!(f, "tutti-{nodes}@{build}"),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Another build of this program, whose gateway is measured too.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Build {
    pub name: String,
    pub binary: PathBuf,
}

impl Build {
    /// Reads `NAME=PATH`, or `PATH` alone, which is named `other`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (name, path) = text.split_once('=').unwrap_or(("other", text));
        let binary = PathBuf::from(path);
        if name.is_empty() || !binary.is_file() {
            return Err(format!("{path} is no file; say NAME=PATH, or PATH"));
        }
        Ok(Self { name: name.to_owned(), binary })
    }
}

/// What each client runs again and again.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Script {
    /// pgbench -S: one row by its key
    Select,
    /// TPC-B within one branch: on one node
    TpcbLocal,
    /// pgbench's TPC-B: its rows are on any nodes
    Tpcb,
}

/// How statements are sent; pgbench's names.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Protocol {
    Simple,
    Extended,
    Prepared,
}

/// The name on the command line, in tables and in records.
pub(super) fn name<T: ValueEnum>(value: T) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A script, run by a number of clients that speak a protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub(super) struct Load {
    pub script: Script,
    pub protocol: Protocol,
    pub clients: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_they_are_shown() {
        for name in ["direct", "pgbouncer", "tutti-1", "tutti-16"] {
            assert_eq!(Target::parse(name).unwrap().to_string(), name);
        }
        for wrong in ["tutti", "tutti-0", "tutti-17", "tutti-x", "", "pgcat"] {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
        let of_a_build = Target::Tutti { nodes: 3, build: Some("old".to_owned()) };
        assert_eq!(of_a_build.to_string(), "tutti-3@old");
    }

    #[test]
    fn a_build_may_be_named_and_must_exist() {
        let this = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert_eq!(Build::parse(this).unwrap().name, "other");
        assert_eq!(Build::parse(&format!("old={this}")).unwrap().name, "old");
        assert!(Build::parse("old=/no/such/file").is_err());
        assert!(Build::parse(&format!("={this}")).is_err());
    }
}
