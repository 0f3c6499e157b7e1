//! Connections to nodes.
//!
//! Owns: opening, authentication, framed reading and writing, simple queries for the gateway's own
//! needs.
//! Never: decides what is sent for a client.

mod answer;
mod authentication;
mod control;
mod credentials;
mod dial;
mod endpoint;
mod error;
mod node_connection;
mod reading;
mod run;
mod tls;

pub use answer::{PartialAnswer, Progress, Rows, told, told_notice};
pub use control::{ASK_WRITTEN, Durability, open_own, settle_on_newest, until_succeeded};
pub use credentials::{Credentials, Has};
pub use dial::cancel;
pub use endpoint::{Endpoint, Endpoints};
pub use error::{LOOK_THERE, NodeError, UNKNOWN_OUTCOME, unknown_outcome};
pub use node_connection::{ASK_MOMENT, HIDE_PARAMETERS, NodeConnection, put_statement};
pub use reading::{
    Misreading, SETTINGS_OF_READING, is_refused_setting, may_mean_more, refused_default,
};
pub use run::Run;
pub use tls::Connector;
