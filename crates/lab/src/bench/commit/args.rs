//! The options of `tutti-lab bench commit`.
//!
//! Owns: their names and defaults. Never: does what they ask for.

use std::path::PathBuf;

use clap::Args;

use super::variant::{self, Variant};

#[derive(Debug, Args)]
pub(crate) struct CommitArgs {
    /// Numbers of clients
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 8, 32],
          value_parser = clap::value_parser!(u16).range(1..=200))]
    pub(super) clients: Vec<u16>,
    /// How long each measurement lasts
    #[arg(long, value_name = "SECONDS", default_value_t = 2,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(super) seconds: u64,
    /// How many PostgreSQL servers
    #[arg(long, value_name = "N", default_value_t = 2,
          value_parser = clap::value_parser!(u16).range(2..=16))]
    pub(super) nodes: u16,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: u32,
    /// Variants of the gateway; the others are compared with the first
    #[arg(long, value_name = "NAME,…", value_delimiter = ',',
          default_values = [variant::ROOMS_ON, variant::ROOMS_OFF], value_parser = variant::find)]
    pub(super) variants: Vec<Variant>,
    /// Make every flush so much slower, as on another disk (PostgreSQL's commit_delay)
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub(super) flush_us: u32,
    /// Write every measurement to this file, one line of JSON each
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}
