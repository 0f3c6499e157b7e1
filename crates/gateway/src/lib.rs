//! The gateway: clients on one side, a cluster on the other.
//!
//! Owns: clients' sockets, sessions, and the executor that obeys plans.
//! Never: decides where a statement runs (`tutti-sql`) or what a commit does next (`tutti-txn`).
//! Start reading at `session`, then `executor`. From the bottom up: `client`, `plans`, `registry`,
//! `transaction`, `executor`, `session`, `monitor`, `door`.

mod client;
mod door;
mod executor;
mod monitor;
mod plans;
mod registry;
mod session;
mod transaction;

pub use door::serve::{runtime, serve};
pub use tutti_cluster::{GatewayError, audit, init, status, workload};
pub use tutti_configuration::{
    Address, Config, ConfigError, DefaultDistribution, NodeConfig, PoolConfig, Rule, Switches,
};
pub use tutti_sql::{advice, catalog};
