//! What a session can log in to nodes with.
//!
//! Owns: the choice between nothing, keys of a client's own login, and the configured password of
//! the gateway's own role.
//! Never: prints any of them.

use std::sync::Arc;

use tutti_configuration::{NodeConfig, Secret};

use crate::net::scram::ScramKeys;

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

/// What there was to answer with, for the error's hint.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Has {
    /// Nothing at all.
    Nothing,
    /// Keys, which only SCRAM can use.
    Keys,
    /// A password.
    Password,
}

impl Has {
    /// What the operator can do.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Self::Nothing => {
                "The gateway has nothing to answer with: let clients log in to it by scram-sha-256, \
                 or let the node trust the gateway (pg_hba.conf); for the gateway's own role, \
                 configure its password."
            }
            Self::Keys => {
                "The node's pg_hba.conf must ask the gateway's address for scram-sha-256, or trust it."
            }
            Self::Password => {
                "Check the configured password, and that the node's pg_hba.conf asks for scram-sha-256."
            }
        }
    }
}
