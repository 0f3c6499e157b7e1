//! Free ports on 127.0.0.1.
//!
//! Owns: the choice. Never: keeps a port; the caller that starts on it must be ready to lose it.

use std::net::{Ipv4Addr, TcpListener};

use crate::error::EmbedError;

/// Below the range that Linux gives to outgoing connections (from 32768), so that a server which
/// comes back after a crash finds its port still free.
const PORTS: std::ops::Range<u16> = 17_000..32_000;

/// Draws ports until one is free. Two callers may be given the same: see the module's note.
pub(crate) fn choose_free() -> Result<u16, EmbedError> {
    for _ in 0..1_000 {
        let port = rand::random_range(PORTS);
        if is_free(port) {
            return Ok(port);
        }
    }
    Err(EmbedError::NoFreePort)
}

/// Whether a process could listen on `port` now.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
