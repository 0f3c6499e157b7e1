//! Connections to nodes.
//!
//! Owns: opening, authentication, framed reading and writing, simple queries for the gateway's own
//! needs.
//! Never: decides what is sent for a client.

mod answer;
mod authentication;
mod connection;
mod own;

pub(crate) use answer::{PartialAnswer, Progress};
pub use connection::{NodeConnection, NodeError, Rows};
pub(crate) use own::{Durability, open_own};
