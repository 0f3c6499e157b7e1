//! What looks after busy sessions: deadlocks over nodes, and clients that are gone.
//!
//! Owns: two tasks that live as long as the gateway.
//! Never: runs a client's statement.

pub mod deadlock;
pub mod lost_clients;
mod wait_edges;
