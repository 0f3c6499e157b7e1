//! How servers reach each other, as libpq's connection strings.
//!
//! Owns: turning the gateway's configuration of a node into what another node connects by. Never: connects.

use std::collections::BTreeMap;

use tutti_configuration::{Config, NodeConfig, SslMode};
use tutti_sql::catalog::NodeId;

/// How servers reach each node: as the gateway does, by its addresses, role and password, and as well protected. The
/// files of certificates are each server's own, where libpq looks for them.
pub fn reached_at(config: &Config) -> BTreeMap<NodeId, String> {
    config.nodes.iter().map(|node| (NodeId(node.id), of_node(node, &config.database))).collect()
}

fn of_node(node: &NodeConfig, database: &str) -> String {
    let addresses = node.addresses();
    let listed = |of: &dyn Fn(&tutti_configuration::Address) -> String| {
        addresses.iter().map(of).collect::<Vec<_>>().join(",")
    };
    let modes: Vec<_> = addresses.iter().map(|address| node.tls.mode(address)).collect();
    // One for all addresses: the strictest.
    let mode = match (modes.contains(&SslMode::VerifyFull), modes.contains(&SslMode::Require)) {
        (true, _) => "verify-full",
        (_, true) => "require",
        _ => "disable",
    };
    // A primary and its standbys: the one that takes writes is the node.
    let mut text = format!(
        "host={} port={} user={} dbname={} target_session_attrs=read-write sslmode={mode}",
        quoted(&listed(&|address| address.host.clone())),
        listed(&|address| address.port.to_string()),
        quoted(&node.user),
        quoted(database)
    );
    if let Some(password) = &node.password {
        text.push_str(&format!(" password={}", quoted(password.reveal())));
    }
    text
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use tutti_configuration::NodeTls;

    use super::*;

    #[test]
    fn servers_reach_each_other_as_well_protected_as_the_gateway_does() {
        let node = |host: &str, sslmode| NodeConfig {
            id: 2,
            host: host.to_owned(),
            user: "o'brien".to_owned(),
            tls: NodeTls { sslmode, ..NodeTls::default() },
            ..NodeConfig::default()
        };
        let of = |host: &str, sslmode| of_node(&node(host, sslmode), "db");
        assert_eq!(
            of("127.0.0.1", None),
            "host='127.0.0.1' port=5432 user='o\\'brien' dbname='db' target_session_attrs=read-write \
             sslmode=disable"
        );
        assert!(of("db2", None).ends_with("sslmode=verify-full"));
        assert!(of("db2", Some(SslMode::Require)).ends_with("sslmode=require"));
        let hosts = vec!["a:7000".to_owned(), "b".to_owned()];
        let many = of_node(&NodeConfig { hosts, ..node("", None) }, "db");
        assert!(many.starts_with("host='a,b' port=7000,5432 user="), "{many}");
    }
}
