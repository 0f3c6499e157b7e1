//! Which role a client has proved to be.
//!
//! Owns: what a login leaves for the session.
//! Never: proves it (the door does).

use tutti_link::connection::Credentials;
use tutti_link::pool::RoleSettings;

/// Which role a client has proved to be.
pub(crate) struct ClientIdentity {
    /// The role that the client has logged in as.
    pub(crate) user: String,
    /// What its session can log in to nodes with.
    pub(crate) credentials: Credentials,
    /// The role's number on node 1.
    pub(crate) role: u32,
    /// It is a superuser.
    pub(crate) is_superuser: bool,
    /// What the role's sessions begin with.
    pub(crate) settings: RoleSettings,
}
