//! One cluster, as a gateway sees it.
//!
//! Owns: the catalog as it is stored and published, who waits for whom (rooms, vote order, snapshots,
//! sentinels), what finishes global transactions, recovery, set-up, and the audit.
//! Never: knows a client, a session or a kind of plan.
//! Start reading at [`Cluster`].

pub mod audit;
pub mod authority;
pub mod carrying;
pub mod carrying_monitor;
pub mod catalog;
pub mod cluster;
pub mod commit;
pub mod commit_driver;
pub mod error;
pub mod gateways;
pub mod housekeeping;
pub mod numbers;
pub mod recovery;
pub mod requests;
pub mod setup;
pub mod start;
pub mod status;
pub mod workload;

pub use cluster::{Cluster, SessionsAtWork};
pub use error::GatewayError;
pub use setup::init;
pub use status::status;
pub use workload::workload;

/// A boxed future.
pub type Boxed<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
