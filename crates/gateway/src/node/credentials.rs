//! What a session can log in to nodes with.
//!
//! Owns: the choice between nothing, keys of a client's own login, and the configured password of
//! the gateway's own role.
//! Never: prints any of them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::config::NodeConfig;
use crate::security::scram::ScramKeys;

/// A password in memory: wiped when dropped, and never printed.
#[derive(Clone, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// The password itself, for the one place that uses it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What a login to a node can be answered with. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub enum Credentials {
    /// Nothing: the node must let the role in by itself, because it trusts the gateway's address or
    /// certificate.
    #[default]
    Nothing,
    /// What the client's own login to the gateway left.
    Keys(Arc<ScramKeys>),
    /// The configured password of the gateway's own role.
    Password(Secret),
}

impl Credentials {
    /// Those of the gateway's own role on this node. Not for clients, whatever their role.
    pub fn of_gateway(node: &NodeConfig) -> Self {
        node.password.clone().map_or(Self::Nothing, Self::Password)
    }
}
