//! Servers behind proxies, and a gateway, all of which a test may strike at a moment of its choice.
//!
//! Owns: starting them, and bringing back what was killed. Never: strikes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use tutti_embed::Cluster;
use tutti_gateway::{Config, Switches};
use tutti_tests::client::Endpoint;
use tutti_tests::process::{self, GatewayProcess};
use tutti_tests::{gateway, servers};

use super::proxy::Proxy;
use super::support::Result;

/// What can be struck. Strikes have weak references to it: a proxy's threads keep them beyond the test, and
/// servers and gateway must end with it.
pub struct Struck {
    pub servers: Arc<Mutex<Cluster>>,
    pub gateway: Arc<Mutex<Option<GatewayProcess>>>,
    /// Before each node, node 1 first.
    pub proxies: Vec<Proxy>,
    config: Config,
}

pub fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Struck {
    pub fn start(nodes: u16) -> Result<Self> {
        let servers = servers::durable(nodes)?;
        process::init(&servers)?;
        let mut config = gateway::config(&servers, String::new());
        config.switches = Switches::default();
        let proxies = config.nodes.iter_mut().map(Proxy::before).collect::<Result<Vec<_>>>()?;
        let servers = Arc::new(Mutex::new(servers));
        let this = Self { servers, gateway: Arc::default(), proxies, config };
        this.revive()?;
        Ok(this)
    }

    pub fn nodes(&self) -> Vec<Endpoint> {
        let servers = locked(&self.servers);
        (0..self.proxies.len()).map(|index| servers::endpoint(&servers, index)).collect()
    }

    pub fn endpoint(&self) -> Result<Endpoint> {
        Ok(locked(&self.gateway).as_ref().context("there is no gateway")?.endpoint())
    }

    /// What was killed comes back.
    pub fn revive(&self) -> Result {
        for index in 0..self.proxies.len() {
            let mut servers = locked(&self.servers);
            if !servers.server_mut(index).is_running() {
                servers.server_mut(index).start()?;
            }
        }
        let mut gateway = locked(&self.gateway);
        if gateway.is_none() {
            *gateway = Some(GatewayProcess::start_configured(self.config.clone(), &[])?);
        }
        Ok(())
    }
}
