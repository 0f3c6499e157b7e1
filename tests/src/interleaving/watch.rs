//! Seeing from outside which sessions wait for which.
//!
//! Owns: one observing session on every server. Backends are told apart by `application_name`, which
//! sessions of a script set and a gateway passes on to the nodes. Never: decides what waiting means.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use crate::client::{Client, Endpoint};

/// What `application_name` begins with in the sessions of a script.
const PREFIX: &str = "interleaving ";

/// Observers of all servers of a stage.
#[derive(Debug)]
pub struct Watch {
    observers: Vec<Client>,
}

/// The statement by which a session tells its name.
pub fn naming(session: &str) -> String {
    format!("SET application_name = '{PREFIX}{session}'")
}

impl Watch {
    /// Connects to the servers.
    pub fn over(servers: &[Endpoint]) -> Result<Self> {
        let observers = servers.iter().map(Client::connect).collect::<Result<_>>();
        Ok(Self { observers: observers.context("connect an observer")? })
    }

    /// Sessions of which some backend waits for a backend of another of `holders`: for a lock, or for
    /// a snapshot that is safe (READ ONLY DEFERRABLE).
    pub fn blocked_by(&mut self, holders: &BTreeSet<String>) -> Result<BTreeSet<String>> {
        let names: Vec<String> = holders.iter().map(|name| format!("'{PREFIX}{name}'")).collect();
        let sql = format!(
            "SELECT DISTINCT substr(w.application_name, {start}) \
             FROM pg_catalog.pg_stat_activity w, pg_catalog.pg_stat_activity h \
             WHERE w.application_name LIKE '{PREFIX}%' AND w.state = 'active' \
             AND h.application_name <> w.application_name \
             AND h.application_name IN ({names}) \
             AND h.pid = ANY (pg_catalog.pg_blocking_pids(w.pid) \
                              || pg_catalog.pg_safe_snapshot_blocking_pids(w.pid))",
            start = PREFIX.len() + 1,
            names = names.join(", "),
        );
        let mut blocked = BTreeSet::new();
        for observer in &mut self.observers {
            blocked.extend(observer.query(&sql)?.into_iter().flatten().flatten());
        }
        Ok(blocked)
    }
}
