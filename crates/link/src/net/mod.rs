//! What a byte stream to a peer is protected by: TLS and SCRAM, of both sides.
//!
//! Owns: encrypted and plain streams, certificates, and both halves of SCRAM-SHA-256.
//! Never: decides who may connect, or stores a password or a key.

pub mod between;
pub mod certificate;
pub mod no_authority;
pub mod pem;
pub mod scram;
pub mod scram_client;
pub mod scram_server;
pub mod server_tls;
pub mod stream;

use ring::rand::{SecureRandom, SystemRandom};

/// A fresh nonce for SCRAM: printable, 144 bits of randomness, as many as PostgreSQL's.
pub fn nonce() -> String {
    scram::encode(&random::<18>())
}

/// The system's randomness. A system without any is unusable.
pub fn random<const LEN: usize>() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    SystemRandom::new().fill(&mut bytes).expect("the system has randomness");
    bytes
}

#[cfg(test)]
mod tests;
