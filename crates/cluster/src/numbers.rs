//! A node's number, as the catalog and as the machines of `txn` have it.
//!
//! Owns: going from one to the other. Never: knows a node.

use tutti_sql::catalog::NodeId;
use tutti_txn::gid::{Gid, NodeId as TxnNodeId};

/// As the machines of `txn` have it.
pub fn txn_node(node: NodeId) -> TxnNodeId {
    TxnNodeId(node.0)
}

/// As the catalog has it.
pub fn sql_node(node: TxnNodeId) -> NodeId {
    NodeId(node.0)
}

/// Whether the transaction can be one of a cluster of these nodes: no other's is settled.
pub(crate) fn is_of(gid: &Gid, nodes: &[NodeId]) -> bool {
    nodes.contains(&sql_node(gid.anchor))
}
