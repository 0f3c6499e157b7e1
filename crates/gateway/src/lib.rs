//! The gateway: clients on one side, nodes on the other.
//!
//! Owns: sockets, sessions, the executor that obeys plans, and the drivers of the pure parts.
//! Never: decides where a statement runs (`tutti-sql`) or what a commit does next (`tutti-txn`).
//! Start reading at `session`, then `executor`.

pub mod config;
pub mod node;

pub use config::{Config, ConfigError, DefaultDistribution, NodeConfig};
