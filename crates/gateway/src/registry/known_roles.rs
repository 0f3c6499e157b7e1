//! What node 1 has said of roles, kept for while it is away.
//!
//! Owns: what is known of a role, and by which numbers other nodes know it.
//! Never: asks anybody, or says when it is believed (`role` does).
//! Start reading at [`KnownRoles`].

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tutti_link::pool::RoleSettings;
use tutti_sql::catalog::NodeId;
use zeroize::Zeroizing;

/// A role that exists. Its verifier is not printed.
#[derive(Clone)]
pub(crate) struct Role {
    /// Its number on node 1: names can be reused.
    pub(crate) oid: u32,
    pub(crate) is_superuser: bool,
    pub(crate) may_login: bool,
    /// Its password, if it has one, has not expired.
    pub(crate) is_valid: bool,
    /// When that will be over.
    pub(super) expires: Option<Instant>,
    /// Most sessions at a time.
    pub(crate) limit: Option<usize>,
    /// It has the privilege CONNECT on the cluster's database.
    pub(crate) may_connect: bool,
    /// `rolpassword`.
    pub(crate) verifier: Option<Zeroizing<String>>,
    /// Roles that it is a member of, itself included; empty unless asked for.
    pub(crate) groups: Vec<String>,
    /// What its sessions begin with.
    pub(crate) settings: RoleSettings,
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Role").field("oid", &self.oid).finish_non_exhaustive()
    }
}

/// What is known of a role for while node 1 is away.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// As node 1 said last.
    pub(super) role: Role,
    /// By which number other nodes know it; `None`: they lack it.
    pub(super) elsewhere: BTreeMap<NodeId, Option<u32>>,
    /// When these numbers were read.
    pub(super) at: Instant,
}

/// What node 1 has said of roles that were looked up, by name.
#[derive(Debug, Default)]
pub(crate) struct KnownRoles(Mutex<HashMap<String, Known>>);

impl KnownRoles {
    pub(super) fn of(&self, name: &str) -> Option<Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(super) fn note(&self, name: &str, known: Option<Known>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known {
            Some(known) => all.insert(name.to_owned(), known),
            None => all.remove(name),
        };
    }
}
