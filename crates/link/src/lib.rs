//! Connections to nodes, and the pool that provides clients' transactions with them.
//!
//! Owns: opening and authenticating a connection, TLS and SCRAM of both sides, framed reading and
//! writing, which nodes may be read, and which session gets which connection.
//! Never: knows a transaction, a plan or a client; decides what is sent.
//! Start reading at [`NodeConnection`], then [`pool`].

pub mod availability;
pub mod connection;
pub mod control_pool;
pub mod net;
pub mod pool;
pub mod seals;
pub mod spool;
pub mod translation;

pub use connection::{Credentials, Endpoint, Endpoints, NodeConnection, NodeError, Rows};
pub use pool::link::Link;
