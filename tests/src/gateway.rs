//! A cluster with its gateway inside the test's own process.
//!
//! Owns: the servers, the catalog's first writing, and the runtime that the gateway runs on.
//! Never: outlives its value. For a gateway that can be killed see `process`.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tutti_embed::Cluster;
use tutti_gateway::audit::Report;
use tutti_gateway::workload::Workload;
use tutti_gateway::{Config, DefaultDistribution, GatewayError, NodeConfig, Rule, Switches};

use crate::audit;
use crate::client::{Client, Endpoint};
use crate::servers;

/// How long a gateway may take to end its sessions.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Servers and a gateway on a free port.
#[derive(Debug)]
pub struct TestCluster {
    port: u16,
    end: Option<oneshot::Sender<()>>,
    gateway: Option<JoinHandle<Result<(), GatewayError>>>,
    runtime: Option<Runtime>,
    servers: Cluster,
    config: Config,
    /// Why the auditor has nothing to say at the end.
    unaudited: Option<&'static str>,
}

/// With the plans that a gateway keeps compared with new ones, and any way to answer taken; and with `TUTTI_CHECK_CATALOG` set the
/// catalog too, after every change of it, which takes longer.
fn checked() -> Switches {
    let check_catalog = std::env::var_os("TUTTI_CHECK_CATALOG").is_some();
    Switches { check_plans: true, any_way: true, check_catalog, ..Switches::default() }
}

/// The configuration of a gateway in front of these servers.
pub fn config(servers: &Cluster, listen: String) -> Config {
    let node = |(index, server): (usize, &tutti_embed::Server)| NodeConfig {
        id: u16::try_from(index + 1).expect("few nodes"),
        host: "127.0.0.1".to_owned(),
        port: server.port(),
        ..NodeConfig::default()
    };
    Config {
        listen,
        cluster: "test".to_owned(),
        rules: vec![Rule::trust_loopback()],
        // What is tested is what happens on several nodes.
        default_distribution: DefaultDistribution::Replicated,
        nodes: servers.servers().iter().enumerate().map(node).collect(),
        // Below END_LIMIT: clients that a test has left in a transaction are not waited for long.
        drain_timeout_s: 5,
        switches: checked(),
        ..Config::default()
    }
}

impl TestCluster {
    /// Starts so many servers, writes the catalog, and starts the gateway.
    pub fn start(nodes: u16) -> Result<Self> {
        Self::start_on(servers::start(nodes)?)
    }

    /// Starts a gateway in front of these servers.
    pub fn start_on(servers: Cluster) -> Result<Self> {
        Self::start_with(servers, checked())
    }

    /// The same, where tables without a clause are on node 1 alone.
    pub fn start_at_home(servers: Cluster) -> Result<Self> {
        let default_distribution = DefaultDistribution::Home;
        let config = Config { default_distribution, ..config(&servers, String::new()) };
        Self::start_configured(servers, config)
    }

    /// How many backends of the nodes `pg_stat_activity` shows for which this holds.
    pub fn backends_where(&self, condition: &str) -> Result<u64> {
        let count = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND ({condition})"
        );
        let counts = self.nodes().into_iter().map(|node| {
            let count = Client::connect(&node)?.value(&count)?;
            Ok(count.parse::<u64>()?)
        });
        counts.sum()
    }

    /// Waits until there is none.
    pub fn ensure_no_backend_where(&self, condition: &str) -> Result<()> {
        let begun = Instant::now();
        while self.backends_where(condition)? != 0 {
            ensure!(
                begun.elapsed() < Duration::from_secs(20),
                "there still are backends: {condition}"
            );
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// What `tutti advise` goes by.
    pub fn workload(&self) -> Result<Workload> {
        let runtime = self.runtime.as_ref().context("the cluster has been stopped")?;
        Ok(runtime.block_on(tutti_gateway::workload(&self.config))?)
    }

    /// The same, with parts of the gateway switched off: to show that a test finds what they prevent.
    pub fn start_with(servers: Cluster, switches: Switches) -> Result<Self> {
        let config = Config { switches, ..config(&servers, String::new()) };
        Self::start_configured(servers, config)
    }

    /// The same, by this configuration of the servers; the address to listen on is chosen here.
    pub fn start_configured(servers: Cluster, config: Config) -> Result<Self> {
        let runtime = tutti_gateway::runtime()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let port = listener.local_addr()?.port();
        let config = Config { listen: format!("127.0.0.1:{port}"), ..config };
        runtime.block_on(tutti_gateway::init(&config, false)).context("write the catalog")?;
        let (end, asked_to_end) = oneshot::channel::<()>();
        let audited = config.clone();
        let gateway = runtime.spawn(tutti_gateway::serve(config, listener, async move {
            // Dropping the sender asks as well.
            let _ = asked_to_end.await;
        }));
        let (end, gateway, runtime) = (Some(end), Some(gateway), Some(runtime));
        Ok(Self { port, end, gateway, runtime, servers, config: audited, unaudited: None })
    }

    /// Where clients connect.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::on(self.port)
    }

    /// Where the nodes listen, node 1 first.
    pub fn nodes(&self) -> Vec<Endpoint> {
        (0..self.servers.servers().len())
            .map(|index| servers::endpoint(&self.servers, index))
            .collect()
    }

    /// Waits until a statement waits for a lock on one of the nodes, or for so long: then it is false.
    pub fn comes_to_wait_for_a_lock(&self, patience: Duration) -> Result<bool> {
        let mut nodes = self.nodes().iter().map(Client::connect).collect::<Result<Vec<_>>>()?;
        let begun = Instant::now();
        while begun.elapsed() < patience {
            for node in &mut nodes {
                if node.value("SELECT count(*) FROM pg_locks WHERE NOT granted")? != "0" {
                    return Ok(true);
                }
            }
            sleep(Duration::from_millis(10));
        }
        Ok(false)
    }

    /// The nodes themselves.
    pub fn servers(&self) -> &Cluster {
        &self.servers
    }

    /// The nodes themselves, to stop or kill them.
    pub fn servers_mut(&mut self) -> &mut Cluster {
        &mut self.servers
    }

    /// Has the cluster audited while the gateway can be asked, then asks the gateway to end and waits for
    /// it.
    ///
    /// Errors: the auditor has found something; the gateway reports an error, or does not end in time.
    pub fn stop_gateway(&mut self) -> Result<()> {
        let audited = audit::at_the_end(self.unaudited, || self.audit());
        self.unaudited.get_or_insert("it was looked at before its gateway ended");
        let ended = self.end_gateway();
        audit::judge(audited)?;
        ended
    }

    fn end_gateway(&mut self) -> Result<()> {
        drop(self.end.take());
        let (Some(runtime), Some(gateway)) = (&self.runtime, self.gateway.take()) else {
            return Ok(());
        };
        let ended = runtime.block_on(async { tokio::time::timeout(END_LIMIT, gateway).await });
        // With what it has left running, as if its process had ended.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(END_LIMIT);
        }
        ensure!(ended.is_ok(), "the gateway does not end within {END_LIMIT:?}");
        ended.context("wait")??.context("the gateway failed")
    }
}

impl TestCluster {
    /// The auditor does not check this cluster when the test ends: it leaves behind what must not be, for
    /// this reason.
    pub fn leave_unaudited(&mut self, reason: &'static str) {
        self.unaudited = Some(reason);
    }

    /// What the auditor finds now.
    pub fn audit(&self) -> Result<Report> {
        let config = self.config.clone();
        let is_served = self.gateway.as_ref().is_some_and(|gateway| !gateway.is_finished());
        audit::run(config, is_served.then(|| Endpoint::on(self.port)))
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        let audited = audit::at_the_end(self.unaudited, || self.audit());
        drop(self.end.take());
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(END_LIMIT);
        }
        audit::insist(audited);
    }
}
