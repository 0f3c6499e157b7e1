//! Plain PostgreSQL servers for tests: one alone, or the nodes of a cluster.
//!
//! Owns: how test servers are set. Those of [`durable`] are on the system's disk and flush what they commit,
//! as the product's do: for tests that kill servers or gateways, or judge what commits have left. The others
//! are in memory, where there is room, and do not wait for disks: what they answer is the same.
//! Never: starts a gateway.

use anyhow::Result;
use tutti_embed::{Cluster, ServerOptions};

use crate::client::Endpoint;

/// Servers that go when the value is dropped: in memory, where there is room, and they do not flush.
pub fn start(nodes: u16) -> Result<Cluster> {
    start_with(nodes, &[])
}

/// Like [`start`], with settings.
pub fn start_with(nodes: u16, settings: &[(&str, &str)]) -> Result<Cluster> {
    create(nodes, settings, false)
}

/// Like [`start`], on the system's disk, with fsync on.
pub fn durable(nodes: u16) -> Result<Cluster> {
    durable_with(nodes, &[])
}

/// Like [`durable`], with settings.
pub fn durable_with(nodes: u16, settings: &[(&str, &str)]) -> Result<Cluster> {
    create(nodes, settings, true)
}

fn create(nodes: u16, settings: &[(&str, &str)], durable: bool) -> Result<Cluster> {
    let mut options = match durable {
        true => ServerOptions::for_tests(),
        false => ServerOptions { fsync: false, ..ServerOptions::for_tests_in_memory() },
    };
    let own = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    options.settings.extend(own);
    Ok(Cluster::create_temp_with(nodes, options)?)
}

/// Where the server at `index` listens; node 1 has index 0.
pub fn endpoint(cluster: &Cluster, index: usize) -> Endpoint {
    Endpoint::on(cluster.server(index).port())
}
