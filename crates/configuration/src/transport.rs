//! Settings of connections: TLS to clients and to nodes, keepalive, and limits at the door.
//!
//! Owns: their names and defaults.
//! Never: reads a certificate.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::address::Address;

/// `[tls]`: what clients that ask for TLS get.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ClientTls {
    /// PEM file of the gateway's certificate, and of those between it and its authority.
    pub certificate: PathBuf,
    /// PEM file of its private key.
    pub key: PathBuf,
    /// PEM file of the authorities whose certificates of clients count, for the method `cert`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_ca: Option<PathBuf>,
    /// The oldest version that is spoken.
    #[serde(default)]
    pub min_version: TlsVersion,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum TlsVersion {
    /// PostgreSQL's own default.
    #[default]
    #[serde(rename = "1.2")]
    V1_2,
    /// The newest.
    #[serde(rename = "1.3")]
    V1_3,
}

/// How a connection to a node is protected.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    /// Not at all.
    Disable,
    /// Encrypted; whose certificate it is does not matter.
    Require,
    /// Encrypted, by a certificate of the named authorities that is made for the node's host.
    VerifyFull,
}

/// TLS to a node: under `[node_tls]` for all nodes, under `tls` of one for that one.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NodeTls {
    /// `verify-full` unless the node's host is a loopback address, then `disable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sslmode: Option<SslMode>,
    /// PEM file of the authorities that are trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sslrootcert: Option<PathBuf>,
    /// PEM file of the gateway's own certificate, if nodes ask for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sslcert: Option<PathBuf>,
    /// PEM file of its private key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sslkey: Option<PathBuf>,
}

impl NodeTls {
    /// With what `default` says where this says nothing.
    pub(super) fn or(self, default: &Self) -> Self {
        // A certificate and its key belong together.
        let own = if self.sslcert.is_some() || self.sslkey.is_some() { &self } else { default };
        Self {
            sslmode: self.sslmode.or(default.sslmode),
            sslrootcert: self.sslrootcert.clone().or_else(|| default.sslrootcert.clone()),
            sslcert: own.sslcert.clone(),
            sslkey: own.sslkey.clone(),
        }
    }

    /// How a connection to this address is protected.
    pub fn mode(&self, address: &Address) -> SslMode {
        let default =
            if is_loopback(&address.host) { SslMode::Disable } else { SslMode::VerifyFull };
        self.sslmode.unwrap_or(default)
    }
}

/// Whether a host is this machine by its address itself, so that no one else can listen.
pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

/// `[limits]`: who is not let in, regardless of the rules.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Most clients at a time.
    pub max_clients: usize,
    /// This many of these are kept for superusers.
    pub reserved_for_superusers: usize,
    /// Most connections at a time that have not logged in yet.
    pub max_handshakes: usize,
    /// Most of them from one address (of IPv6: from one network of 64 bits).
    pub max_handshakes_per_address: usize,
    /// How long a client may take to log in, in seconds.
    pub authentication_timeout_s: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_clients: 10_000,
            reserved_for_superusers: 3,
            max_handshakes: 1_000,
            max_handshakes_per_address: 250,
            authentication_timeout_s: 60,
        }
    }
}

/// `[keepalive]`: how soon a peer that has vanished silently is noticed. Of all sockets, to
/// clients and to nodes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Keepalive {
    /// Silence before the first probe, in seconds.
    pub idle_s: u64,
    /// Between probes, in seconds.
    pub interval_s: u64,
    /// This many without an answer end the connection.
    pub probes: u32,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { idle_s: 60, interval_s: 10, probes: 6 }
    }
}
