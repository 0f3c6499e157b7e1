//! Why a node could not do something.
//!
//! Owns: one variant per way in which a connection fails, and how each looks to a client, which must be
//! able to tell *failed*, *retry is safe* and *unknown* apart.
//! Never: decides what happens next.

use std::fmt::Display;
use std::io;

use tutti_configuration::Address;
use tutti_sql::catalog::NodeId;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::WireError;
use tutti_wire::sqlstate;

use super::credentials::Has;
use super::endpoint::Endpoint;

/// SQLSTATE transaction_resolution_unknown.
pub const UNKNOWN_OUTCOME: &str = sqlstate::TRANSACTION_RESOLUTION_UNKNOWN;
/// What to do where there is no record of the outcome.
pub const LOOK_THERE: &str = "It wrote on one node only; look there whether its rows are present.";

/// The error for a transaction of which it is not known whether its node has committed it.
pub fn unknown_outcome(why: impl Display) -> ErrorFields {
    let message = format!("the outcome of this transaction is not known: {why}");
    ErrorFields::error(UNKNOWN_OUTCOME, message)
}

/// Why a node could not do something.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// No connection could be opened.
    #[error("cannot connect to node {node} at {host}:{port}")]
    Connect {
        /// Which node.
        node: NodeId,
        /// Its host.
        host: String,
        /// Its port.
        port: u16,
        /// What the network said.
        #[source]
        source: io::Error,
    },
    /// The connection broke. What was sent last may or may not have been executed; if it was, the node has
    /// not committed it.
    #[error("connection to node {node} lost")]
    Lost {
        /// Which node.
        node: NodeId,
        /// What the network said.
        #[source]
        source: io::Error,
    },
    /// The connection broke after something that may write and that the node itself commits: it may
    /// have been committed.
    #[error("connection to node {node} lost")]
    Unresolved {
        /// Which node.
        node: NodeId,
        /// What the network said.
        #[source]
        source: io::Error,
    },
    /// The node asked for a way to authenticate that does not work here.
    #[error("node {node} asked for authentication of role \"{user}\" by {method}, which failed")]
    Authentication {
        /// Which node.
        node: NodeId,
        /// The role.
        user: String,
        /// Which way.
        method: &'static str,
        /// What there was to answer with.
        has: Has,
    },
    /// The node's verifier of this role is not the one that the client's keys belong to.
    #[error("node {node} has another password for role \"{user}\" than node n1")]
    OtherVerifier {
        /// Which node.
        node: NodeId,
        /// The role.
        user: String,
    },
    /// The server would read statements differently from the gateway.
    #[error("node {node} reads statements otherwise: {}", .why.message())]
    Misreads {
        /// Which node.
        node: NodeId,
        /// As a client is told.
        why: Box<ErrorFields>,
    },
    /// The node has not been recovered yet, so nothing was sent to it.
    #[error("node {node} is being recovered")]
    Closed {
        /// Which node.
        node: NodeId,
        /// Why, if it is known.
        reason: Option<String>,
    },
    /// The node answered with an error.
    #[error("{}", .0.message())]
    Refused(Box<ErrorFields>),
    /// The node sent what the protocol does not allow.
    #[error("a node broke the protocol: {0}")]
    Protocol(#[from] WireError),
}

impl NodeError {
    /// No connection to where the node is configured to be.
    pub fn unreachable(endpoint: &Endpoint, source: io::Error) -> Self {
        Self::unreachable_at(endpoint, &endpoint.address(), source)
    }

    pub(super) fn unreachable_at(
        endpoint: &Endpoint,
        address: &Address,
        source: io::Error,
    ) -> Self {
        let Address { host, port } = address.clone();
        Self::Connect { node: endpoint.node(), host, port, source }
    }

    /// There is no connection to the node any more.
    pub fn not_connected(node: NodeId) -> Self {
        Self::Lost { node, source: io::ErrorKind::NotConnected.into() }
    }

    /// The error as a client sees it. A lost connection is 08006 where what the statement did is
    /// undone with its transaction, which the node rolls back, and 08007 where the node may have
    /// committed it.
    pub fn to_fields(&self) -> ErrorFields {
        match self {
            Self::Refused(fields) => (**fields).clone(),
            Self::Connect { source, .. } => ErrorFields::error("08001", self.to_string())
                .with(b'D', source.to_string())
                .with(b'H', "Retrying is safe: nothing was sent to the node."),
            Self::Lost { source, .. } => {
                ErrorFields::error(sqlstate::CONNECTION_FAILURE, self.to_string())
                    .with(b'D', source.to_string())
            }
            Self::Unresolved { source, .. } => {
                unknown_outcome(self).with(b'D', source.to_string()).with(b'H', LOOK_THERE)
            }
            Self::Authentication { has, .. } => {
                ErrorFields::error("08004", self.to_string()).with(b'H', has.hint())
            }
            Self::OtherVerifier { user, .. } => ErrorFields::error("28P01", self.to_string())
                .with(b'D', "Nodes must have the same verifier: PostgreSQL salts each one anew.")
                .with(
                    b'H',
                    format!("Set it through the gateway: ALTER ROLE \"{user}\" PASSWORD '...'."),
                ),
            Self::Misreads { why, .. } => (**why).clone(),
            Self::Closed { reason, .. } => ErrorFields::error("57P03", self.to_string())
                .with(
                    b'D',
                    match reason {
                        Some(reason) => format!("{reason}."),
                        None => {
                            "Transactions in doubt must be settled there before it may be read."
                                .to_owned()
                        }
                    },
                )
                .with(b'H', "Retrying is safe: nothing was sent to the node."),
            Self::Protocol(_) => ErrorFields::error("08P01", self.to_string()),
        }
    }
}
