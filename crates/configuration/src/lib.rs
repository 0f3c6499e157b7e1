//! The gateway's configuration file, `tutti.toml`, as plain data.
//!
//! Owns: names, defaults and checks of the settings.
//! Never: opens anything, or knows a connection.
//! Start reading at [`Config`].

mod address;
mod config;
mod node;
mod pool;
mod rules;
mod secret;
mod transport;

pub use address::Address;
pub use config::{AuditConfig, Config, ConfigError, DefaultDistribution, GatewaysConfig, Switches};
pub use node::NodeConfig;
pub use pool::PoolConfig;
pub use rules::{Arrival, ConnectionKind, Method, Origin, Rule, decide, need_groups};
pub use secret::Secret;
pub use transport::{ClientTls, Keepalive, Limits, NodeTls, SslMode, TlsVersion};
