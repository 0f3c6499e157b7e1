//! `[[node]]`: one node and where it may be.
//!
//! Owns: its addresses as written.
//! Never: knows which of them answers (`tutti-link` does).

use serde::{Deserialize, Serialize};

use crate::address::{Address, parse_address};
use crate::secret::Secret;
use crate::transport::{Keepalive, NodeTls};

/// One node.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// 1, 2, 3…
    pub id: u16,
    /// Name or address. Empty if `hosts` is given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// TCP port.
    #[serde(default = "default_port")]
    pub port: u16,
    /// In place of `host`: a primary and its standbys, each `host` or `host:port`. The one that takes
    /// writes is the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Role that the gateway itself connects as; needs to be superuser or owner of the database.
    #[serde(default = "default_user")]
    pub user: String,
    /// Its password, if the node asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// TLS to this node.
    #[serde(default)]
    pub tls: NodeTls,
    /// As configured for all sockets; see [`Config::complete`].
    #[serde(skip)]
    pub keepalive: Keepalive,
}

impl Default for NodeConfig {
    /// Without an id or a host.
    fn default() -> Self {
        Self {
            id: 0,
            host: String::new(),
            port: default_port(),
            hosts: Vec::new(),
            user: default_user(),
            password: None,
            tls: NodeTls::default(),
            keepalive: Keepalive::default(),
        }
    }
}

impl NodeConfig {
    /// Every address where the node may be, as configured. Never empty.
    pub fn addresses(&self) -> Vec<Address> {
        if self.hosts.is_empty() {
            return vec![Address { host: self.host.clone(), port: self.port }];
        }
        let unread = |text: &String| Address { host: text.clone(), port: self.port };
        let read = |text: &String| parse_address(text, self.port).unwrap_or_else(|| unread(text));
        self.hosts.iter().map(read).collect()
    }
}

fn default_port() -> u16 {
    5432
}

fn default_user() -> String {
    "postgres".to_owned()
}
