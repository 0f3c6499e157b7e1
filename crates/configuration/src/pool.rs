//! `[pool]`: how many connections clients' transactions may have.
//!
//! Owns: the numbers and what follows from them.
//! Never: counts connections.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// `[pool]` of the configuration.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolConfig {
    /// Most transactions running concurrently, and so most connections to each node for clients. The
    /// gateway's own connections (about 20 per node) come on top.
    pub size: usize,
    /// Most of them by one role, which is no superuser; 0: a fifth is left for others.
    pub size_per_user: usize,
    /// This many more, for superusers when the others are taken; at most a quarter of `size`.
    pub reserved_for_superusers: usize,
    /// Seconds that a transaction waits for its turn before it is refused.
    pub queue_timeout_s: u64,
    /// Seconds after which an idle connection is closed.
    pub idle_timeout_s: u64,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            size: 50,
            size_per_user: 0,
            reserved_for_superusers: 3,
            queue_timeout_s: 30,
            idle_timeout_s: 600,
        }
    }
}

impl PoolConfig {
    /// Most transactions of one role.
    pub fn most_of_a_role(&self) -> usize {
        match self.size_per_user {
            0 => self.size - self.size / 5,
            configured => configured.min(self.size),
        }
    }

    /// Places that only superusers get.
    pub fn reserved(&self) -> usize {
        self.reserved_for_superusers.min(self.size / 4)
    }

    /// After which an idle connection is closed.
    pub fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_timeout_s)
    }
}
