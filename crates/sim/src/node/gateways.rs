//! What a node knows of gateways: the schema `tutti` as far as `docs/protocol/one-gateway.md` relies on it.
//!
//! Owns: the lock of the gateway that serves, the numbers drawn, the newest number known (`tutti.gateway`),
//! and the list of backends that run clients' statements (`tutti.backend`, unlogged: it is empty after a
//! crash, which has ended the backends).
//! Never: knows which gateway is right.
//! Start reading at [`Gateways`].

use std::collections::BTreeMap;

use super::statement::BackendId;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Gateways {
    /// The last number drawn.
    pub drawn: u64,
    /// The newest number that a gateway has raised this node to.
    pub newest: u64,
    /// Which backend runs clients' statements, and for which gateway.
    pub listed: BTreeMap<BackendId, u64>,
    lock: Option<BackendId>,
}

impl Gateways {
    /// Takes the lock. False: another backend has it.
    pub fn take_lock(&mut self, id: BackendId) -> bool {
        *self.lock.get_or_insert(id) == id
    }

    /// A backend has ended, and its lock, if it had it, is free. Its row stays in the list, and belongs to no
    /// backend.
    pub fn backend_ended(&mut self, id: BackendId) {
        self.lock.take_if(|holder| *holder == id);
    }

    /// Those on the list for earlier gateways than this one; some may have ended.
    pub fn listed_before(&self, incarnation: u64) -> impl Iterator<Item = BackendId> {
        let earlier = self.listed.iter().filter(move |(_, of)| **of < incarnation);
        earlier.map(|(backend, _)| *backend)
    }
}
