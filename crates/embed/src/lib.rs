//! PostgreSQL servers on this machine, for `tutti up` and for tests.
//!
//! Owns: finding (or fetching) PostgreSQL's binaries, initdb, the settings a node needs, and the
//! life of the server processes, also across a SIGKILL of our own process.
//! Never: speaks SQL, knows the gateway or its catalog. Blocks: call it from
//! `tokio::task::spawn_blocking` where an executor must not block.
//! Start reading at [`Cluster`] (several servers in one directory), then [`Server`] (one).
//!
//! ```no_run
//! # fn main() -> Result<(), tutti_embed::EmbedError> {
//! let mut cluster = tutti_embed::Cluster::create_temp(3)?; // started; removed on drop
//! let url = cluster.server(0).url(); // postgres://postgres@127.0.0.1:PORT/postgres
//! cluster.server_mut(0).kill9()?; // as if the power had been cut
//! cluster.server_mut(0).start()?; // on the same port, with what was durable
//! # Ok(())
//! # }
//! ```

mod account;
mod binaries;
mod cluster;
mod error;
#[cfg(feature = "fetch")]
mod fetch;
mod find;
mod initdb;
mod place;
mod port;
mod probe;
mod process;
mod segment;
mod server;
mod settings;
mod state;
mod version;

pub use account::ServerAccount;
pub use binaries::Binaries;
pub use cluster::{Cluster, ClusterOptions};
pub use error::EmbedError;
pub use place::cache_dir;
pub use server::Server;
pub use settings::ServerOptions;
pub use version::Version;
