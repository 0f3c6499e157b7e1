//! Why the gateway's own work on the cluster (not a client's statement) could not be done.
//!
//! Owns: one variant per failed operation, and how each looks to a client.
//! Never: decides what happens next; the caller does.

use std::io;
use std::path::PathBuf;

use tutti_configuration::ConfigError;
use tutti_link::connection::NodeError;
use tutti_link::net::pem::TlsError;
use tutti_sql::catalog::NodeId;
use tutti_sql::refusal::Refusal;
use tutti_wire::error_fields::ErrorFields;

/// What went wrong, sorted by who can act: the client, the operator, a node.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Its certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A client asked for what Tutti does not do.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A node did not do what it was asked.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A node's answer does not have the shape that the gateway's query requires.
    #[error("node {node} answered the query for {what} with something unreadable")]
    Unreadable {
        /// Which node.
        node: NodeId,
        /// What was asked for.
        what: &'static str,
    },
    /// Preparing a node for the cluster failed.
    #[error("cannot set up node {node}")]
    SetUp {
        /// Which node.
        node: NodeId,
        /// What it said.
        #[source]
        source: NodeError,
    },
    /// The schema `tutti` is not on a node.
    #[error("node {node} does not belong to a cluster yet: run `tutti init` first")]
    NotInitialised {
        /// Which node.
        node: NodeId,
    },
    /// The cluster's name cannot be part of a transaction identifier.
    #[error("cluster must be 1 to 16 characters of a-z and 0-9, not {name:?}")]
    ClusterName {
        /// As configured.
        name: String,
    },
    /// A node belongs to a cluster of another name.
    #[error(
        "the server configured as node {node} belongs to cluster \"{found}\", not to \"{expected}\""
    )]
    OtherClusterName {
        /// Which node.
        node: NodeId,
        /// The name it was given when it was set up.
        found: String,
        /// The configured name.
        expected: String,
    },
    /// A node belongs to another cluster of the same name.
    #[error(
        "the server configured as node {node} belongs to another cluster (its id is {found}, that \
         of the other nodes {expected})"
    )]
    OtherCluster {
        /// Which node.
        node: NodeId,
        /// Its cluster's id.
        found: String,
        /// That of the nodes before it.
        expected: String,
    },
    /// The configuration mixes the nodes up.
    #[error("the server configured as node {node} is node {found} of the cluster")]
    OtherNode {
        /// As configured.
        node: NodeId,
        /// As the node itself knows.
        found: NodeId,
    },
    /// The cluster was created with another number of nodes.
    #[error(
        "the cluster has {stored} nodes, the configuration names {configured}: the number of nodes \
         of a cluster cannot be changed yet"
    )]
    NodeCount {
        /// `[[node]]` sections.
        configured: usize,
        /// Rows in `tutti.node`.
        stored: usize,
    },
    /// The cluster was created to have all definitions on all nodes.
    #[error(
        "default_distribution = \"home\" does not fit this cluster: all its nodes have all \
         definitions, which \"home\" would not keep up; leave \"replicated\" or \"round_robin\", and \
         say DISTRIBUTE BY HOME in CREATE TABLE, or tutti_home('table')"
    )]
    MadeWithoutHome,
    /// The cluster was created to have tables that are not spread on node 1 alone.
    #[error(
        "this cluster was made with default_distribution = \"home\": the other nodes lack the \
         definitions of home tables; leave \"home\", and say DISTRIBUTE BY in CREATE TABLE, or \
         tutti_replicate('table')"
    )]
    MadeWithHome,
    /// The server is too old.
    #[error("node {node} runs PostgreSQL {version}; version 15 or newer is needed")]
    OldServer {
        /// Which node.
        node: NodeId,
        /// Its `server_version`.
        version: String,
    },
    /// The server does not support prepared transactions.
    #[error(
        "node {node} has max_prepared_transactions = 0, so no transaction can span it: set it to at \
         least max_connections in postgresql.conf and restart the server"
    )]
    NoPreparedTransactions {
        /// Which node.
        node: NodeId,
    },
    /// Keys are hashed by their UTF-8 bytes.
    #[error("the database of node {node} has encoding {found}; only UTF8 can be distributed")]
    Encoding {
        /// Which node.
        node: NodeId,
        /// Its encoding.
        found: String,
    },
    /// Node 1 has tables that were not asked to be adopted.
    #[error(
        "the database of node 1 already holds tables ({table} and perhaps others): run \
         `tutti init --adopt` to make them part of the cluster, or use an empty database"
    )]
    HoldsTables {
        /// One of them.
        table: String,
    },
    /// Only node 1's tables can be adopted.
    #[error(
        "the database of node {node} already holds tables ({table} and perhaps others): only node 1 \
         may bring tables into a cluster; use an empty database for the other nodes"
    )]
    HoldsTablesToo {
        /// Which node.
        node: NodeId,
        /// One of them.
        table: String,
    },
    /// Adopting tables needs PostgreSQL's own tool.
    #[error(
        "adopting tables needs pg_dump of version {major} or newer, which was found neither in PATH \
         nor in the distributions' usual places: install PostgreSQL's client tools"
    )]
    NoDumpTool {
        /// Major version of node 1.
        major: u32,
    },
    /// `pg_dump` could not be run.
    #[error("cannot run {}", program.display())]
    RunDump {
        /// The program.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// `pg_dump` failed.
    #[error("{} could not read the schema of node 1: {message}", program.display())]
    Dump {
        /// The program.
        program: PathBuf,
        /// What it wrote to its standard error.
        message: String,
    },
    /// The auditor could not suspend decisions for a moment.
    #[error(
        "no moment could be taken in which nothing is decided: somebody keeps the table tutti.decision \
         on a node locked"
    )]
    NoMoment,
    /// A node did not do what a gateway that starts needs of it.
    #[error("node {node} does not let a gateway start")]
    Unready {
        /// Which node.
        node: NodeId,
        /// What it said.
        #[source]
        source: NodeError,
    },
    /// Somebody has locked what a gateway must lock to take a node over, and cannot be ended by it.
    #[error("node {node} cannot be taken over: {who} has locked tutti.backend there")]
    Locked {
        /// Which node.
        node: NodeId,
        /// A process or prepared transaction, with its role.
        who: String,
    },
    /// Another gateway leads the cluster.
    #[error(
        "another gateway leads this cluster (backend {pid} on node 1 holds its lock: {who}), and cannot be \
         followed: it is of another version, or has only just begun. Stop it first; if its host is gone, the lock \
         is free within half a minute, or by pg_terminate_backend({pid}) on node 1"
    )]
    GatewayRunning {
        /// Process id of its backend on node 1; 0 if it is just gone.
        pid: i64,
        /// Its role, address, and start time.
        who: String,
    },
    /// Another gateway has served the cluster meanwhile.
    #[error(
        "another gateway has taken the cluster over: this one had number {incarnation}, the newest \
         has {newest}"
    )]
    Replaced {
        /// This one's.
        incarnation: u64,
        /// The other's.
        newest: u64,
    },
    /// Backends that an earlier gateway left running on a node do not end.
    #[error("{left} backends of an earlier gateway do not end on node {node}")]
    Unfenced {
        /// Which node.
        node: NodeId,
        /// How many.
        left: u64,
    },
    /// A server that another one has succeeded is back.
    #[error(
        "the server at node {node}'s address is one whose standby was promoted: it has not what the node has \
         written since. Lead the address to the promoted one"
    )]
    Succeeded {
        /// Which node.
        node: NodeId,
    },
    /// A server has less than it had acknowledged.
    #[error(
        "node {node} has lost {bytes} bytes of what it had written: it was restored from an older copy, \
         and transactions over several nodes would be half there. Restore what it had; to accept what it \
         has, restart the gateway"
    )]
    Rewound {
        /// Which node.
        node: NodeId,
        /// How much of its write-ahead log.
        bytes: u64,
    },
    /// A transaction in doubt could not be settled.
    #[error("transaction {gid} is in doubt and could not be settled on node {node}")]
    Settle {
        /// Which transaction.
        gid: String,
        /// Where it failed.
        node: NodeId,
        /// What the node said.
        #[source]
        source: NodeError,
    },
    /// `tutti.decision` or the list of prepared transactions holds what Tutti cannot have written.
    #[error(
        "transaction {gid} is in doubt, and what node {node} says about it makes no sense: {found}"
    )]
    BadDecision {
        /// Which transaction.
        gid: String,
        /// Its anchor.
        node: NodeId,
        /// What was found.
        found: String,
    },
    /// A transaction's anchor is not a node of this cluster.
    #[error("transaction {gid} is in doubt, and its anchor {anchor} is not a node of this cluster")]
    UnknownAnchor {
        /// Which transaction.
        gid: String,
        /// The node it names.
        anchor: NodeId,
    },
}

impl GatewayError {
    /// Whether a node has said that it is starting.
    pub(crate) fn is_starting(&self) -> bool {
        match self {
            Self::Node(NodeError::Refused(fields))
            | Self::Unready { source: NodeError::Refused(fields), .. } => {
                fields.sqlstate() == "57P03"
            }
            _ => false,
        }
    }

    /// The error as a client sees it.
    pub fn to_fields(&self) -> ErrorFields {
        match self {
            Self::Refused(refusal) => {
                let fields = ErrorFields::error(refusal.sqlstate, refusal.message.clone());
                let more = [(b'D', &refusal.detail), (b'H', &refusal.hint)];
                more.into_iter().fold(fields, |fields, (code, text)| match text {
                    Some(text) => fields.with(code, text.clone()),
                    None => fields,
                })
            }
            Self::Node(source) | Self::SetUp { source, .. } | Self::Settle { source, .. } => {
                source.to_fields()
            }
            _ => ErrorFields::error("XX000", self.to_string()),
        }
    }
}

/// An error with its causes, on one line.
pub fn in_full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
