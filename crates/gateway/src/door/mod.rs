//! Who may come in, over what, and as whom the nodes see them.
//!
//! Owns: listening, the proof that a client gives, the keys that its login leaves for the nodes, and the
//! tasks that live as long as the gateway.
//! Never: stores or logs a password or a key.
//! Start reading at [`serve`], then `login`, then `authenticate`; docs/security.md tells the whole.

mod authenticate;
mod login;
pub mod serve;
mod startup_packet;
