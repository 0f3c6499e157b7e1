//! The gateway: clients on one side, nodes on the other.
//!
//! Owns: sockets, sessions, the executor that obeys plans, and the drivers of the pure parts.
//! Never: decides where a statement runs (`tutti-sql`) or what a commit does next (`tutti-txn`).
//! Start reading at `session`, then `executor`.

pub mod audit;
mod backends;
pub mod catalog;
mod client;
pub mod config;
mod deadlock;
pub mod error;
mod executor;
mod failure;
pub mod finisher;
pub mod init;
mod isolation;
mod live;
mod lost_clients;
pub mod node;
pub mod nodes;
mod plans;
mod pool;
pub mod recovery;
pub mod security;
pub mod sentinel;
mod serve;
mod session;
mod shared;
pub mod status;

pub use config::{
    Address, Config, ConfigError, DefaultDistribution, NodeConfig, Rule, Switches, Writable,
};
pub use error::GatewayError;
pub use init::init;
pub use pool::PoolConfig;
pub use serve::{runtime, serve};
pub use status::status;
