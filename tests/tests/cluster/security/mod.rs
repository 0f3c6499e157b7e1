//! Who may connect, over what, and as which role: against nodes that ask for TLS and SCRAM
//! themselves.
//!
//! Owns: the cases, by subject; `place` makes the cluster with its certificates, `clients` the
//! programs that knock.

mod clients;
mod door;
mod logins;
mod logs;
mod place;
mod rules;
mod tls;
