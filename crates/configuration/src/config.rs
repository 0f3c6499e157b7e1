//! The whole configuration, and what must be true of it.
//!
//! Owns: the sections of `tutti.toml`, and the checks that types cannot make.
//! Never: opens anything.
//! Start reading at [`Config`], then [`Config::check`].

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tutti_txn::Form;

use crate::address::{Address, parse_address};
use crate::node::NodeConfig;
use crate::pool::PoolConfig;
use crate::rules::{Method, Origin, Rule};
use crate::transport::{ClientTls, Keepalive, Limits, NodeTls, SslMode};

/// What `tutti serve` and `tutti init` are told.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Address and port to listen on.
    #[serde(default = "default_listen")]
    pub listen: String,
    /// The database that the cluster is made of, on every node.
    #[serde(default = "default_database")]
    pub database: String,
    /// Short name of the cluster: 1 to 16 of `a-z0-9`. Part of every global transaction's identifier.
    #[serde(default = "default_cluster")]
    pub cluster: String,
    /// Where the rows of a table go whose CREATE TABLE does not say.
    #[serde(default)]
    pub default_distribution: DefaultDistribution,
    /// Whether a rule may let in a client from another machine without authentication.
    #[serde(default)]
    pub allow_trust_off_loopback: bool,
    /// TLS to clients; without it, clients that ask for it are told that there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClientTls>,
    /// TLS to nodes, where a node does not say something else.
    #[serde(default)]
    pub node_tls: NodeTls,
    /// Who is not let in, regardless of the rules.
    #[serde(default)]
    pub limits: Limits,
    /// How soon vanished clients and nodes are noticed.
    #[serde(default)]
    pub keepalive: Keepalive,
    /// Who may connect from where. None: every client that proves to know its password.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// The nodes. Ids count from 1 without gaps; node 1 answers catalog queries.
    #[serde(default, rename = "node")]
    pub nodes: Vec<NodeConfig>,
    /// The connections that clients' transactions run on.
    #[serde(default)]
    pub pool: PoolConfig,
    /// Audits in the background.
    #[serde(default)]
    pub audit: AuditConfig,
    /// Requests that are executed once.
    #[serde(default)]
    pub requests: RequestsConfig,
    /// Other gateways of the same cluster.
    #[serde(default)]
    pub gateways: GatewaysConfig,
    /// Seconds that running transactions get to end when the gateway is asked to stop.
    #[serde(default = "default_drain_timeout_s")]
    pub drain_timeout_s: u64,
    /// No configuration file can set them.
    #[serde(skip)]
    pub switches: Switches,
}

/// `[audit]`: what `tutti check` does, done by the gateway every now and then.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AuditConfig {
    /// Seconds from one to the next; 0: none.
    #[serde(default)]
    pub interval_s: u64,
}

/// `[requests]`: those that are executed once, however often they are sent.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RequestsConfig {
    /// Hours for which the result of one is kept: a further attempt within them gets it, and one after them is a
    /// new request.
    #[serde(default = "default_keep_hours")]
    pub keep_hours: u32,
}

fn default_keep_hours() -> u32 {
    7 * 24
}

impl Default for RequestsConfig {
    fn default() -> Self {
        Self { keep_hours: default_keep_hours() }
    }
}

/// `[gateways]`: what one must know to be one of several.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GatewaysConfig {
    /// Where the others reach this one, `host:port`. `None`: at the address that it listens on, or, where that is
    /// any, the one that node 1 sees it come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Seconds for which the one that leads may say nothing to node 1 before another takes its place.
    #[serde(default = "default_lease_s")]
    pub lease_s: u32,
}

fn default_lease_s() -> u32 {
    5
}

impl Default for GatewaysConfig {
    fn default() -> Self {
        Self { address: None, lease_s: default_lease_s() }
    }
}

impl Default for Config {
    /// What a file says that says nothing; it has no nodes yet.
    fn default() -> Self {
        toml::from_str("").expect("everything has a default")
    }
}

/// Parts that tests and measurements may switch off, to show what they are for and what they cost, and limits that
/// nobody but they has needed to change. With rooms or sentinels off, transactions are not isolated as promised.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Switches {
    /// Commit room and snapshot room: off, none waits for another.
    pub rooms: bool,
    /// Sentinels and tickets: off, SERIALIZABLE is only each node's own.
    pub sentinels: bool,
    /// Where decisions are made, for transactions that leave a choice.
    pub form: Form,
    /// How long nodes may take to vote before the transaction is aborted.
    pub vote_deadline: Duration,
    /// Every plan that was kept is compared with the one that its statement would get: tests check whether
    /// the caches are right, and statements are parsed as if there were none.
    pub check_plans: bool,
    /// Of the ways in which a read of several nodes can be answered any is taken, by the statement's text and the session's
    /// `tutti.draw`, not the one that moves the fewest rows: tests check whether all give the same.
    pub any_way: bool,
    /// Most bytes that the rows may take which travel with one statement.
    pub travelling_bytes_max: usize,
    /// From how many bytes of them the gateway keeps no more of the rows that it collects, where it can pass them on as
    /// they come.
    pub kept_bytes_max: usize,
    /// After every change of the schema the catalog that is published is compared with what there is,
    /// read from the start: a session whose change is missing there is ended.
    pub check_catalog: bool,
    /// A role that has kept all others waiting at a COMMIT waits for longer before the next: off, that can be
    /// tried more often.
    pub pauses: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            rooms: true,
            sentinels: true,
            form: Form::Apart,
            vote_deadline: Duration::from_secs(60),
            check_plans: false,
            any_way: false,
            // A message to a server may have 1 GiB at most, and the server copies what is in it.
            travelling_bytes_max: 512 << 20,
            kept_bytes_max: 8 << 20,
            check_catalog: false,
            pauses: true,
        }
    }
}

/// Placement of tables that say nothing.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DefaultDistribution {
    /// On node 1, as if there were no other: every schema and all code works unchanged, and writes
    /// cost one node. Tables that grow are distributed or replicated one by one.
    #[default]
    Home,
    /// On every node. Reads scale, writes do not; code that the gateway cannot see into is refused.
    Replicated,
    /// Each row on some node. Tables with unique constraints are refused.
    RoundRobin,
}

fn default_drain_timeout_s() -> u64 {
    30
}

fn default_listen() -> String {
    "127.0.0.1:7432".to_owned()
}

fn default_database() -> String {
    "postgres".to_owned()
}

fn default_cluster() -> String {
    "main".to_owned()
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not TOML, or not our names.
    #[error("cannot read the configuration: {0}")]
    Syntax(#[from] toml::de::Error),
    /// No `[[node]]`.
    #[error("the configuration names no node: add a [[node]] section for each PostgreSQL server")]
    NoNodes,
    /// `[pool] size = 0`.
    #[error("[pool] size must be at least 1: so many transactions can be at work at once")]
    NoConnections,
    /// A leader says something once a second.
    #[error(
        "[gateways] lease_s must be at least 3: the gateway that leads says something once a second"
    )]
    ShortLease,
    /// Ids are not 1, 2, 3…
    #[error("node ids must be 1, 2, 3… in order; found {found} where {expected} was expected")]
    NodeIds {
        /// As written.
        found: u16,
        /// What the position asks for.
        expected: usize,
    },
    /// Neither or both of `host` and `hosts`.
    #[error("node {node} needs either host = \"...\" or hosts = [\"...\", ...], and not both")]
    Hosts {
        /// Its id.
        node: u16,
    },
    /// One of `hosts` cannot be read.
    #[error("node {node}: {found:?} is not a host or host:port")]
    Host {
        /// Its id.
        node: u16,
        /// As written.
        found: String,
    },
    /// The nodes' certificates cannot be verified by nothing.
    #[error(
        "node {node} is on another machine ({host}), to which connections are protected by TLS: name \
         the authority of its certificate by sslrootcert, or say sslmode = \"require\" (encrypted, \
         by whatever certificate) or sslmode = \"disable\", under [node_tls]"
    )]
    NoRootCertificate {
        /// Its id.
        node: u16,
        /// Its host.
        host: String,
    },
    /// A certificate without its key, or the other way round.
    #[error("node {node}: sslcert and sslkey belong together")]
    HalfCertificate {
        /// Its id.
        node: u16,
    },
    /// A rule that no one would want by mistake.
    #[error(
        "a rule has method = \"trust\" for address \"{address}\": it would let everybody there in, \
         unasked. If that is meant, set allow_trust_off_loopback = true"
    )]
    TrustOffLoopback {
        /// As written.
        address: Origin,
    },
    /// A rule that can never be met.
    #[error("a rule has method = \"cert\", which needs client_ca under [tls]")]
    NoClientAuthority,
    /// The cluster's name cannot be part of an identifier.
    #[error("cluster must be 1 to 16 characters of a-z and 0-9, not {0:?}")]
    ClusterName(String),
}

impl Config {
    /// Reads and checks a configuration.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let mut config: Self = toml::from_str(text)?;
        config.complete();
        config.check()?;
        Ok(config)
    }

    /// Gives every node what is configured for all of them and not for itself.
    pub fn complete(&mut self) {
        for node in &mut self.nodes {
            node.tls = std::mem::take(&mut node.tls).or(&self.node_tls);
            node.keepalive = self.keepalive.clone();
        }
    }

    /// Checks what types cannot say.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.nodes.is_empty() {
            return Err(ConfigError::NoNodes);
        }
        if self.pool.size == 0 {
            return Err(ConfigError::NoConnections);
        }
        if self.gateways.lease_s < 3 {
            return Err(ConfigError::ShortLease);
        }
        for (position, node) in self.nodes.iter().enumerate() {
            if usize::from(node.id) != position + 1 {
                return Err(ConfigError::NodeIds { found: node.id, expected: position + 1 });
            }
            if node.host.is_empty() == node.hosts.is_empty() {
                return Err(ConfigError::Hosts { node: node.id });
            }
            let bad = node.hosts.iter().find(|text| parse_address(text, node.port).is_none());
            if let Some(found) = bad {
                return Err(ConfigError::Host { node: node.id, found: found.clone() });
            }
            let verified = |address: &Address| node.tls.mode(address) == SslMode::VerifyFull;
            if let Some(Address { host, .. }) = node.addresses().into_iter().find(verified)
                && node.tls.sslrootcert.is_none()
            {
                return Err(ConfigError::NoRootCertificate { node: node.id, host });
            }
            if node.tls.sslcert.is_some() != node.tls.sslkey.is_some() {
                return Err(ConfigError::HalfCertificate { node: node.id });
            }
        }
        let trusting = self.rules.iter().find(|rule| rule.trusts_off_loopback());
        if let Some(rule) = trusting.filter(|_| !self.allow_trust_off_loopback) {
            return Err(ConfigError::TrustOffLoopback { address: rule.address });
        }
        let has_authority = self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        if !has_authority && self.rules.iter().any(|rule| rule.method == Method::Cert) {
            return Err(ConfigError::NoClientAuthority);
        }
        let name_is_good = (1..=16).contains(&self.cluster.len())
            && self.cluster.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if !name_is_good {
            return Err(ConfigError::ClusterName(self.cluster.clone()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_serve() {
        let config = Config::from_toml("[[node]]\nid = 1\nhost = \"127.0.0.1\"\n").unwrap();
        assert_eq!(config.listen, "127.0.0.1:7432");
        assert_eq!(config.nodes[0].port, 5432);
    }

    #[test]
    fn nodes_elsewhere_are_verified_unless_said_otherwise() {
        let read = |more: &str| {
            Config::from_toml(&format!("[[node]]\nid = 1\nhost = \"db1\"\n{more}"))
                .map(|config| config.nodes[0].tls.mode(&config.nodes[0].addresses()[0]))
        };
        assert!(matches!(read(""), Err(ConfigError::NoRootCertificate { node: 1, .. })));
        assert_eq!(read("[node_tls]\nsslrootcert = 'ca.crt'\n").unwrap(), SslMode::VerifyFull);
        assert_eq!(read("tls = { sslmode = 'disable' }").unwrap(), SslMode::Disable);
        let both = "tls = { sslmode = 'require' }\n[node_tls]\nsslmode = 'disable'\n";
        assert_eq!(read(both).unwrap(), SslMode::Require);
        let half = "tls = { sslmode = 'require', sslkey = 'a.key' }";
        assert!(matches!(read(half), Err(ConfigError::HalfCertificate { node: 1 })));
    }

    #[test]
    fn trust_off_loopback_must_be_said_in_words() {
        let read = |top: &str, rule: &str| {
            let node = "[[node]]\nid = 1\nhost = '127.0.0.1'\n";
            Config::from_toml(&format!("{top}\n{node}[[rules]]\n{rule}\n"))
        };
        let wide = "method = 'trust'";
        assert!(matches!(read("", wide), Err(ConfigError::TrustOffLoopback { .. })));
        read("allow_trust_off_loopback = true", wide).unwrap();
        read("", "address = 'loopback'\nmethod = 'trust'").unwrap();
        assert!(matches!(read("", "method = 'cert'"), Err(ConfigError::NoClientAuthority)));
        assert!(matches!(read("", "method = 'md5'"), Err(ConfigError::Syntax(_))));
    }

    #[test]
    fn a_configuration_prints_no_password() {
        let text = "[[node]]\nid = 1\nhost = 'localhost'\npassword = 'hush'\n";
        let config = Config::from_toml(text).unwrap();
        assert!(!format!("{config:?}").contains("hush"));
        assert_eq!(toml::to_string(&config).unwrap().matches("hush").count(), 1);
    }

    #[test]
    fn gaps_in_node_ids_are_refused() {
        let error = Config::from_toml("[[node]]\nid = 2\nhost = \"db1\"\n").unwrap_err();
        assert!(matches!(error, ConfigError::NodeIds { found: 2, expected: 1 }));
    }

    #[test]
    fn a_node_may_be_a_list_of_hosts() {
        let text = "[[node]]\nid = 1\nport = 6000\nhosts = ['a', 'b:5433', '[::1]:5434', 'fe80::1']\n\
             tls = { sslmode = 'disable' }\n";
        let config = Config::from_toml(text).unwrap();
        let addresses = config.nodes[0].addresses().into_iter();
        let shown = addresses.map(|address| address.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(shown, "a:6000 b:5433 [::1]:5434 [fe80::1]:6000");
    }

    #[test]
    fn hosts_that_cannot_be_are_refused() {
        let check = |line: &str| Config::from_toml(&format!("[[node]]\nid = 1\n{line}\n"));
        assert!(matches!(check(""), Err(ConfigError::Hosts { node: 1 })));
        assert!(matches!(check("host = 'a'\nhosts = ['b']"), Err(ConfigError::Hosts { .. })));
        for bad in ["a:", "a:x", ":5432", "[::1", "[::1]5432", ""] {
            let checked = check(&format!("hosts = ['{bad}']"));
            assert!(matches!(checked, Err(ConfigError::Host { .. })), "{bad}: {checked:?}");
        }
    }
}
