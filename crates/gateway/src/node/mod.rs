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
mod reading;
mod tls;

pub(crate) use answer::{PartialAnswer, Progress, told, told_notice};
pub use authentication::Has;
pub(crate) use connection::{ASK_MOMENT, HIDE_PARAMETERS, put_statement};
pub use connection::{NodeConnection, NodeError, Rows};
pub use credentials::{Credentials, Secret};
pub(crate) use dial::cancel;
pub(crate) use own::{Durability, open_own};
pub(crate) use reading::{
    Misreading, SETTINGS_OF_READING, is_refused_setting, may_mean_more, refused_default,
};
pub use tls::Connector;
