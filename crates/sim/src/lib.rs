//! A whole cluster from one seed: nodes, their network, gateways and clients, around the real
//! machines of `tutti_txn`.
//!
//! Owns: a model of PostgreSQL as far as the protocol relies on it, faults, what must hold
//! ([`invariants`]), and bugs to plant ([`bugs`]).
//! Never: looks at a clock, opens a socket, starts a thread, or reads any file: a seed is the whole
//! input of [`run`], and gives the same run on every machine. Only the program beside it
//! (`main.rs`) counts minutes and prints.
//! Start reading at [`run::run`], then `world/mod.rs`, `node/mod.rs`, `gateway/mod.rs`.

pub mod bugs;
mod client;
mod clock;
pub mod faults;
mod gateway;
pub mod history;
pub mod invariants;
mod link;
mod network;
pub mod node;
mod run;
pub mod serial;
mod tasks;
mod trace;
mod world;

pub use bugs::Bug;
pub use run::{Report, run};
