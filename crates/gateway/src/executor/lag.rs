//! `tutti_lag()`: how far nodes are behind each other with asynchronously replicated rows.
//!
//! Owns: asking the nodes that are there. Never: waits for one that is not.

use std::collections::BTreeMap;

use tutti_cluster::carrying::{Carriers, Lag};
use tutti_settings::Config;
use tutti_sql::catalog::NodeId;

use crate::client::failure::Failure;
use crate::executor::Executor;

/// Names of its columns.
pub(super) const COLUMNS: [&str; 4] = ["home", "node", "bytes", "seconds"];

/// A host, and its port if one is given.
fn place(host: &str, port: u16) -> (&str, String) {
    match host.rsplit_once(':') {
        Some((name, given)) if given.parse::<u16>().is_ok() => (name, given.to_owned()),
        _ => (host, port.to_string()),
    }
}

/// How servers reach each node: as the gateway does.
pub(crate) fn reached_at(config: &Config) -> BTreeMap<NodeId, String> {
    let quoted = |value: &str| format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"));
    let of = |node: &tutti_settings::NodeConfig| {
        // A primary and its standbys: the one that takes writes is the node.
        let places: Vec<(&str, String)> = match node.hosts.is_empty() {
            true => vec![(node.host.as_str(), node.port.to_string())],
            false => node.hosts.iter().map(|host| place(host, node.port)).collect(),
        };
        let hosts: Vec<_> = places.iter().map(|(host, _)| *host).collect();
        let ports: Vec<_> = places.iter().map(|(_, port)| port.as_str()).collect();
        let mut text = format!(
            "host={} port={} user={} dbname={} target_session_attrs=read-write",
            quoted(&hosts.join(",")),
            ports.join(","),
            quoted(&node.user),
            quoted(&config.database)
        );
        if let Some(password) = &node.password {
            text.push_str(&format!(" password={}", quoted(password.reveal())));
        }
        (NodeId(node.id), text)
    };
    config.nodes.iter().map(of).collect()
}

impl Executor<'_> {
    pub(super) async fn lag(&mut self) -> Result<Vec<Vec<Option<String>>>, Failure> {
        let cluster = self.tx.registry.cluster.clone();
        if !self.tx.catalog.has_async {
            return Ok(Vec::new());
        }
        let nodes = self.tx.catalog.nodes.clone();
        let carriers = Carriers::new(&cluster.config.cluster, nodes.iter().copied());
        let mut rows = Vec::new();
        for home in &nodes {
            if !cluster.availability.is_there(*home) {
                let unknown = |node: &NodeId| {
                    vec![Some(home.to_string()), Some(node.to_string()), None, None]
                };
                rows.extend(nodes.iter().filter(|node| *node != home).map(unknown));
                continue;
            }
            let mut connection = cluster.connections.checkout(*home).await?;
            let found = carriers.lag(&mut connection).await;
            cluster.connections.release(connection);
            let row = |lag: Lag| {
                let seconds = lag.behind.map(|behind| format!("{:.3}", behind.as_secs_f64()));
                vec![
                    Some(lag.from.to_string()),
                    Some(lag.to.to_string()),
                    Some(lag.bytes.to_string()),
                    seconds,
                ]
            };
            rows.extend(found?.into_iter().map(row));
        }
        Ok(rows)
    }
}
