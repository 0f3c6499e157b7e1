//! Who may come in, over what, and as whom the nodes see them.
//!
//! Owns: the gate (limits, rules, TLS), the proof that a client gives, the keys that its login leaves
//! for the nodes, and passwords in statements, which no node gets to see.
//! Never: stores or logs a password or a key.
//! Start reading at `authenticate`; docs/security.md tells the whole.

mod authenticate;
mod certificate;
mod gate;
pub(crate) mod password;
mod role;
pub mod scram;
pub(crate) mod scram_client;
pub(crate) mod scram_server;
pub(crate) mod server_tls;
pub(crate) mod stream;

pub(crate) use authenticate::authenticate;
pub(crate) use certificate::end_point;
pub(crate) use gate::{Gate, Knock, Place};
pub(crate) use role::{RoleSettings, settings_of};
pub use server_tls::TlsError;

use ring::rand::{SecureRandom, SystemRandom};

/// A fresh nonce for SCRAM: printable, 144 bits of randomness, as many as PostgreSQL's.
pub(crate) fn nonce() -> String {
    scram::encode(&random::<18>())
}

/// The system's randomness. A system without any cannot be worked on.
fn random<const LEN: usize>() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    SystemRandom::new().fill(&mut bytes).expect("the system has randomness");
    bytes
}

#[cfg(test)]
mod tests;
