//! A node's server as this process reaches it.
//!
//! Owns: which of the node's hosts was last found to take writes, which connections are open to them, and the
//! certificates once they have been read. All outlive a connection, so they are part neither of the configuration nor
//! of a connection.
//! Never: opens a connection ([`super::NodeConnection::open`] does).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tutti_configuration::{Address, Config, NodeConfig};
use tutti_sql::catalog::NodeId;

use super::run::OpenConnections;
use super::tls::Connector;

/// See the module's documentation. Cheap to clone; all clones share what one learns.
#[derive(Clone, Debug)]
pub struct Endpoint(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: NodeConfig,
    database: String,
    /// Position in the list of hosts.
    writable: AtomicUsize,
    /// All hosts were asked which of them it is.
    is_settled: AtomicBool,
    /// The latest timeline that one of them had, in hexadecimal digits of one length.
    timeline: Mutex<String>,
    connector: Connector,
    open: Arc<OpenConnections>,
    /// The id of the cluster that the server must belong to.
    cluster_id: OnceLock<String>,
}

impl Endpoint {
    /// The server of this node, and the database of the cluster on it.
    pub fn new(config: &NodeConfig, database: &str) -> Self {
        Self(Arc::new(Inner {
            config: config.clone(),
            database: database.to_owned(),
            writable: AtomicUsize::new(0),
            is_settled: AtomicBool::new(false),
            timeline: Mutex::default(),
            connector: Connector::default(),
            open: Arc::default(),
            cluster_id: OnceLock::new(),
        }))
    }

    /// Which node it is.
    pub fn node(&self) -> NodeId {
        NodeId(self.0.config.id)
    }

    /// As configured.
    pub fn config(&self) -> &NodeConfig {
        &self.0.config
    }

    /// From now on connections of the gateway's own lead to the node of the cluster with this id or nowhere.
    pub fn expect(&self, cluster_id: &str) {
        // Once known, it stays.
        let _ = self.0.cluster_id.set(cluster_id.to_owned());
    }

    /// The id of the cluster that the server must belong to, if it is known.
    pub fn expected(&self) -> Option<&str> {
        self.0.cluster_id.get().map(String::as_str)
    }

    /// The database that connections are opened to.
    pub fn database(&self) -> &str {
        &self.0.database
    }

    /// The address where the node was when last reached, or the first one.
    pub fn address(&self) -> Address {
        self.addresses().swap_remove(0).1
    }

    /// Every address that the node may have, with its position in the configuration; the one that
    /// was last found to take writes comes first, then those after it.
    pub fn addresses(&self) -> Vec<(usize, Address)> {
        let mut addresses: Vec<_> = self.0.config.addresses().into_iter().enumerate().collect();
        let writable = self.0.writable.load(Ordering::Relaxed).min(addresses.len() - 1);
        addresses.rotate_left(writable);
        addresses
    }

    /// The host at this position of the configuration takes writes.
    pub fn note_writable(&self, position: usize) {
        self.0.writable.store(position, Ordering::Relaxed);
    }

    /// Whether several hosts have to be asked which of them the node is.
    pub(super) fn is_open_question(&self) -> bool {
        self.has_several_hosts() && !self.0.is_settled.load(Ordering::Relaxed)
    }

    /// Whether the node may be one of several servers.
    pub fn has_several_hosts(&self) -> bool {
        1 < self.0.config.addresses().len()
    }

    /// The latest timeline that is known of the node; `None`: it has one host, or none has been seen.
    pub fn timeline(&self) -> Option<String> {
        let latest = self.0.timeline.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (self.has_several_hosts() && !latest.is_empty()).then_some(latest)
    }

    /// A host that takes writes has, or has had, this timeline. False: one of them has had a later one, so that this is
    /// a primary whose place another has taken.
    pub fn note_timeline(&self, timeline: &str) -> bool {
        let mut latest = self.0.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        let is_latest = latest.as_str() <= timeline;
        if is_latest {
            timeline.clone_into(&mut latest);
        }
        is_latest
    }

    /// They have been asked.
    pub(super) fn settle(&self) {
        self.0.is_settled.store(true, Ordering::Relaxed);
    }

    /// The node is lost, so that another of its hosts may be it: they are asked before the next connection of the
    /// gateway's own.
    pub fn unsettle(&self) {
        self.0.is_settled.store(false, Ordering::Relaxed);
    }

    pub(super) fn open_connections(&self) -> &Arc<OpenConnections> {
        &self.0.open
    }

    pub(super) fn connector(&self) -> &Connector {
        &self.0.connector
    }
}

/// The endpoints of all nodes of a cluster.
#[derive(Clone, Debug)]
pub struct Endpoints(Arc<[Endpoint]>);

impl Endpoints {
    /// Of the nodes of this configuration.
    pub fn new(config: &Config) -> Self {
        Self(config.nodes.iter().map(|node| Endpoint::new(node, &config.database)).collect())
    }

    /// The server of this node. Panics for a node that is not configured.
    pub fn of(&self, node: NodeId) -> &Endpoint {
        &self.0[usize::from(node.0) - 1]
    }

    /// All, node 1 first.
    pub fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_that_takes_writes_comes_first() {
        let text = "[[node]]\nid = 1\nport = 6000\nhosts = ['a', 'b:5433', '[::1]:5434', 'fe80::1']\n\
             tls = { sslmode = 'disable' }\n";
        let config = Config::from_toml(text).unwrap();
        let endpoint = Endpoint::new(&config.nodes[0], "postgres");
        let shown = |endpoint: &Endpoint| {
            let addresses = endpoint.addresses().into_iter();
            addresses.map(|(_, address)| address.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(shown(&endpoint), "a:6000 b:5433 [::1]:5434 [fe80::1]:6000");
        let copy = endpoint.clone();
        endpoint.note_writable(2);
        assert_eq!(shown(&copy), "[::1]:5434 [fe80::1]:6000 a:6000 b:5433");
        assert_eq!(copy.address().port, 5434);
    }
}
