//! The options of `tutti-lab bench sql`.
//!
//! Owns: their names and defaults. Never: does what they ask for.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct SqlArgs {
    /// Rows of the largest table
    #[arg(long, value_name = "N", default_value_t = 500_000,
          value_parser = clap::value_parser!(u32).range(1_000..=100_000_000))]
    pub(super) rows: u32,
    /// How many PostgreSQL servers the cluster has
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(super) nodes: u16,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: u32,
    /// Only statements with this in their name
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(super) only: String,
    /// A first look: fewer rows, two rounds
    #[arg(long)]
    pub(super) quick: bool,
    /// Write every measurement to this file, one line of JSON each
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}
