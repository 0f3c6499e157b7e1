//! Connections to nodes.
//!
//! Owns: opening, authentication, framed reading and writing, simple queries for the gateway's own
//! needs.
//! Never: decides what is sent for a client.

mod answer;
mod authentication;
mod connection;
mod credentials;
mod dial;
mod own;
mod tls;

pub(crate) use answer::{PartialAnswer, Progress};
pub use authentication::Has;
pub use connection::{NodeConnection, NodeError, Rows};
pub use credentials::{Credentials, Secret};
pub(crate) use dial::cancel;
pub(crate) use own::{Durability, open_own};
pub use tls::Connector;
