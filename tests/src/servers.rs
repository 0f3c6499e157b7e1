//! Plain PostgreSQL servers for tests: one alone, or the nodes of a cluster.
//!
//! Owns: how test servers are set: durable (fsync on), as the product's are. Those that are killed, or of
//! which it is judged what survives, are on the system's disk, so that flushes take their time.
//! Never: starts a gateway.

use anyhow::Result;
use tutti_embed::{Cluster, ServerOptions};

use crate::client::Endpoint;

/// Servers that go when the value is dropped. In memory, if there is room.
pub fn start(nodes: u16) -> Result<Cluster> {
    start_with(nodes, &[])
}

/// Like [`start`], with settings.
pub fn start_with(nodes: u16, settings: &[(&str, &str)]) -> Result<Cluster> {
    let mut options = ServerOptions::for_tests_in_memory();
    let own = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    options.settings.extend(own);
    Ok(Cluster::create_temp_with(nodes, options)?)
}

/// Like [`start`], on the system's disk: to be killed.
pub fn start_on_disk(nodes: u16) -> Result<Cluster> {
    Ok(Cluster::create_temp_with(nodes, ServerOptions::for_tests())?)
}

/// Where the server at `index` listens; node 1 has index 0.
pub fn endpoint(cluster: &Cluster, index: usize) -> Endpoint {
    Endpoint::on(cluster.server(index).port())
}
