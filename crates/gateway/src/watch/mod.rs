//! What looks after sessions while they work: deadlocks over nodes, and clients that have gone.
//!
//! Owns: two tasks that live as long as the gateway.
//! Never: runs a statement of a client.

pub mod deadlock;
pub mod lost_clients;
mod wait_edges;
