//! Who may connect, over what, and as which role the nodes see them.
//!
//! Owns: listening, the proof that a client gives, the keys that its login leaves for the nodes, the tasks that live as
//! long as the gateway, and the clients of one that follows another, which are passed on.
//! Never: stores or logs a password or a key.
//! Start reading at [`serve`], then `login`, then `authenticate`; docs/security.md has the whole
//! picture.

mod authenticate;
mod forward;
mod login;
pub mod serve;
mod startup_packet;
