//! Connections to nodes.
//!
//! Owns: opening, authentication, framed reading and writing, simple queries for the gateway's own
//! needs.
//! Never: decides what is sent for a client.

mod authentication;
mod connection;

pub use connection::{NodeConnection, NodeError, Rows};
