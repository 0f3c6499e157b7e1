//! Distances between machines, on one machine: TCP links that delay, narrow and cut.
//!
//! Owns: links, what passes on them and how often, and profiles of how far sites are from each other.
//! Never: starts a server, knows SQL or the protocol; it carries bytes.
//! Start reading at [`Link`]; what is delayed and how well is in `docs/lab/distances.md`.

mod alarm;
mod connection;
mod ledger;
mod line;
mod link;
mod profile;
mod pump;
mod shared;
mod stretch;

pub use alarm::Alarm;
pub use ledger::{ConnectionCounts, Counts, Direction};
pub use link::Link;
pub use profile::{Profile, Shipped};
pub use stretch::Stretch;
