//! The gateway's configuration file, `tutti.toml`.
//!
//! Owns: names, defaults and checks of the settings.
//! Never: opens anything.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tutti_txn::Form;

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
    /// The nodes. Ids count from 1 without gaps; node 1 answers catalog queries.
    #[serde(default, rename = "node")]
    pub nodes: Vec<NodeConfig>,
    /// For tests and measurements only; no configuration file can set them.
    #[serde(skip)]
    pub switches: Switches,
}

/// Parts that tests and measurements may switch off, to show what they are for and what they cost.
/// With rooms or
/// sentinels off, transactions are not isolated as promised.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Switches {
    /// Commit room and snapshot room: off, nobody waits for anybody.
    pub rooms: bool,
    /// Sentinels and tickets: off, SERIALIZABLE is only each node's own.
    pub sentinels: bool,
    /// Where decisions are made, for transactions that leave a choice.
    pub form: Form,
    /// How long nodes may take to vote before the transaction is aborted.
    pub vote_deadline: Duration,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            rooms: true,
            sentinels: true,
            form: Form::Apart,
            vote_deadline: Duration::from_secs(60),
        }
    }
}

/// Placement of tables that say nothing.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DefaultDistribution {
    /// On every node. Every schema works unchanged; reads scale, writes do not.
    #[default]
    Replicated,
    /// Each row on some node. Tables with unique constraints are refused.
    RoundRobin,
}

/// One node.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// 1, 2, 3…
    pub id: u16,
    /// Name or address.
    pub host: String,
    /// TCP port.
    #[serde(default = "default_port")]
    pub port: u16,
    /// Role that the gateway itself connects as; needs to be superuser or owner of the database.
    #[serde(default = "default_user")]
    pub user: String,
    /// Its password, if the node asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
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

fn default_port() -> u16 {
    5432
}

fn default_user() -> String {
    "postgres".to_owned()
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
    /// Ids are not 1, 2, 3…
    #[error("node ids must be 1, 2, 3… in order; found {found} where {expected} was expected")]
    NodeIds {
        /// As written.
        found: u16,
        /// What the position asks for.
        expected: usize,
    },
    /// The cluster's name cannot be part of an identifier.
    #[error("cluster must be 1 to 16 characters of a-z and 0-9, not {0:?}")]
    ClusterName(String),
}

impl Config {
    /// Reads and checks a configuration.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)?;
        config.check()?;
        Ok(config)
    }

    /// Checks what types cannot say.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.nodes.is_empty() {
            return Err(ConfigError::NoNodes);
        }
        for (position, node) in self.nodes.iter().enumerate() {
            if usize::from(node.id) != position + 1 {
                return Err(ConfigError::NodeIds { found: node.id, expected: position + 1 });
            }
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
        let config = Config::from_toml("[[node]]\nid = 1\nhost = \"db1\"\n").unwrap();
        assert_eq!(config.listen, "127.0.0.1:7432");
        assert_eq!(config.nodes[0].port, 5432);
    }

    #[test]
    fn gaps_in_node_ids_are_refused() {
        let error = Config::from_toml("[[node]]\nid = 2\nhost = \"db1\"\n").unwrap_err();
        assert!(matches!(error, ConfigError::NodeIds { found: 2, expected: 1 }));
    }
}
