//! The gateway: clients on one side, a cluster on the other.
//!
//! Owns: clients' sockets, sessions, and the executor that obeys plans.
//! Never: decides where a statement runs (`tutti-sql`) or what a commit does next (`tutti-txn`).
//! Start reading at `session`, then `executor`. From the bottom up: `client`, `plans`, `registry`,
//! `transaction`, `executor`, `session`, `watch`, `door`.

mod client;
mod door;
mod executor;
mod plans;
mod registry;
mod session;
mod transaction;
mod watch;

pub use door::serve::{runtime, serve};
pub use tutti_cluster::{GatewayError, audit, init, status};
pub use tutti_settings::{
    Address, Config, ConfigError, DefaultDistribution, NodeConfig, PoolConfig, Rule, Switches,
};
