//! Plain PostgreSQL servers for tests: one alone, or the nodes of a cluster.
//!
//! Owns: how test servers are set. They are durable (fsync on), as the product's are: tests of
//! commits mean little without. Never: starts a gateway.

use std::collections::BTreeMap;

use anyhow::Result;
use tutti_embed::{Cluster, ServerOptions};

use crate::client::Endpoint;

/// Servers that go when the value is dropped.
pub fn start(nodes: u16) -> Result<Cluster> {
    start_with(nodes, &[])
}

/// Like [`start`], with settings.
pub fn start_with(nodes: u16, settings: &[(&str, &str)]) -> Result<Cluster> {
    let own = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let options =
        ServerOptions { settings: own.collect::<BTreeMap<_, _>>(), ..ServerOptions::for_tests() };
    Ok(Cluster::create_temp_with(nodes, options)?)
}

/// Where the server at `index` listens; node 1 has index 0.
pub fn endpoint(cluster: &Cluster, index: usize) -> Endpoint {
    Endpoint::on(cluster.server(index).port())
}
