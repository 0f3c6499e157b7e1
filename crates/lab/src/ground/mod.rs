//! Where a study runs: servers of its own and a gateway in front of them, or what somebody else runs.
//!
//! Owns: starting these, what is in between, and ending them. Never: leaves a server running when its value is
//! dropped; measures.
//! Start reading at [`Ground::make`].

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, ensure};
use tokio::task::spawn_blocking;
use tutti_embed::{Cluster, Server, ServerOptions};
use tutti_gateway::Switches;

use tutti_lab::client;
use tutti_lab::distance::{Link, Profile, Stretch};

pub(crate) mod begun;
mod fault;
pub(crate) mod gateway;
pub(crate) mod share;
mod standby;

pub(crate) use fault::{Fault, FaultKind};
pub(crate) use gateway::Gateway;

/// Connections that a node must admit for each client: its own, and as many again that are just ending.
const CONNECTIONS_PER_CLIENT: u32 = 2;
const CONNECTIONS_BESIDES: u32 = 50;

/// What is measured.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum System {
    /// One PostgreSQL server.
    PostgreSql,
    /// One PostgreSQL server whose commits wait for a synchronous standby.
    PostgreSqlWithStandby,
    /// A gateway in front of so many.
    Tutti {
        /// Servers behind it.
        nodes: u16,
    },
    /// Whatever answers there.
    Endpoint(String),
}

/// A part of a system that can be far away, or fail.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Component {
    /// What clients connect to.
    Endpoint,
    /// A server, from 1 on.
    Node(u16),
    /// The synchronous standby.
    Standby,
}

/// How far things are from each other. `None`: no link is put in between; a link without distance delays nothing
/// and counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Distances {
    /// Between clients and what they connect to.
    pub clients: Option<Stretch>,
    /// Between the gateway and each node, node 1 first.
    pub nodes: Vec<Option<Stretch>>,
    /// Between a server and its standby.
    pub standby: Option<Stretch>,
}

impl Distances {
    /// A gateway and clients at the first site of a profile, and nodes dealt out over its sites.
    pub(crate) fn of_profile(profile: &Profile, nodes: u16) -> Self {
        let to_node = |node: usize| match profile.site_of(node) {
            0 => None,
            site => profile.between(0, site),
        };
        Self { nodes: (0..usize::from(nodes)).map(to_node).collect(), ..Self::default() }
    }

    /// What a statement to any one node takes on its way, on average, in milliseconds.
    pub(crate) fn mean_rtt_ms(&self) -> f64 {
        let of = |stretch: &Option<Stretch>| stretch.map_or(0.0, |stretch| stretch.rtt_ms());
        let nodes = match self.nodes.len() {
            0 => 0.0,
            count => self.nodes.iter().map(of).sum::<f64>() / count as f64,
        };
        of(&self.clients) + nodes
    }
}

/// A running system.
#[derive(Debug)]
pub(crate) struct Ground {
    /// Where clients connect.
    pub url: String,
    /// The servers themselves, node 1 first; none of a system that somebody else runs.
    pub node_urls: Vec<String>,
    /// The standby, where there is one.
    pub standby_url: Option<String>,
    /// What it calls itself, with its version.
    pub name: String,
    /// What is in between, for as long as this is.
    links: BTreeMap<Component, Link>,
    gateway: Option<Gateway>,
    cluster: Option<Arc<Mutex<Cluster>>>,
}

impl Ground {
    /// Starts a system for at most so many clients.
    ///
    /// Errors: servers cannot be started; an endpoint does not answer.
    pub(crate) async fn make(
        system: &System,
        clients_max: u16,
        distances: &Distances,
    ) -> anyhow::Result<Self> {
        let servers = match system {
            System::Endpoint(url) => return Self::of_others(url).await,
            System::PostgreSql => 1,
            System::PostgreSqlWithStandby => 2,
            System::Tutti { nodes } => *nodes,
        };
        let options = server_options(clients_max);
        ensure!(options.fsync, "a commit without a flush is none");
        let mut cluster =
            spawn_blocking(move || Cluster::create_temp_with(servers, options)).await??;
        // Behind it, as it has removed the servers that killed commands left, which hold their groups.
        spawn_blocking(share::sweep).await?;
        let mut node_urls: Vec<String> = cluster.servers().iter().map(Server::url).collect();
        let postgresql = format!("PostgreSQL {}", cluster.binaries().version());
        let mut links = BTreeMap::new();
        let (mut gateway, mut standby_url, mut name) = (None, None, postgresql.clone());
        let mut url = node_urls[0].clone();
        match system {
            System::Tutti { .. } => {
                let mut config = gateway::config(&cluster, Switches::default());
                tutti_gateway::init(&config, false)
                    .await
                    .context("cannot write the catalog into the nodes")?;
                let nodes = config.nodes.iter_mut().zip(&distances.nodes);
                for ((node, stretch), number) in nodes.zip(1..) {
                    let component = Component::Node(number);
                    node.port = put_between(node.port, component, *stretch, &mut links).await?;
                }
                let started = Gateway::start(config).await?;
                url.clone_from(&started.url);
                if distances.clients.is_some() {
                    let gateway: tokio_postgres::Config = url.parse()?;
                    let port = gateway.get_ports().first().copied().context("it has a port")?;
                    let port =
                        put_between(port, Component::Endpoint, distances.clients, &mut links)
                            .await?;
                    let database = gateway.get_dbname().unwrap_or("postgres");
                    url = client::url((Ipv4Addr::LOCALHOST, port).into(), database);
                }
                gateway = Some(started);
                name = format!("Tutti {} on {postgresql}", env!("CARGO_PKG_VERSION"));
            }
            System::PostgreSqlWithStandby => {
                let first = cluster.server(0).port();
                let port =
                    put_between(first, Component::Standby, distances.standby, &mut links).await?;
                cluster =
                    spawn_blocking(move || standby::make(&mut cluster, port).map(|()| cluster))
                        .await??;
                ensure!(
                    cluster.server(0).port() == first,
                    "a port was taken meanwhile; start again"
                );
                standby::wait_until_synchronous(&url).await?;
                standby_url = node_urls.pop();
                name = format!("{postgresql} with a synchronous standby");
            }
            System::PostgreSql | System::Endpoint(_) => {
                let port = cluster.server(0).port();
                let port =
                    put_between(port, Component::Endpoint, distances.clients, &mut links).await?;
                url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
            }
        }
        if let System::PostgreSqlWithStandby = system {
            let port = cluster.server(0).port();
            let port =
                put_between(port, Component::Endpoint, distances.clients, &mut links).await?;
            url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
        }
        let cluster = Some(Arc::new(Mutex::new(cluster)));
        Ok(Self { url, node_urls, standby_url, name, links, gateway, cluster })
    }

    async fn of_others(url: &str) -> anyhow::Result<Self> {
        let client = client::connect(url).await?;
        let name = client.query_one("SELECT version()", &[]).await?.get(0);
        Ok(Self {
            url: url.to_owned(),
            node_urls: Vec::new(),
            standby_url: None,
            name,
            links: BTreeMap::new(),
            gateway: None,
            cluster: None,
        })
    }

    /// How many round trips have passed on all links since they were opened.
    pub(crate) fn round_trips(&self) -> u64 {
        self.links.values().map(|link| link.counts().round_trips).sum()
    }

    /// The servers' first processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let Some(cluster) = &self.cluster else { return Vec::new() };
        let cluster = cluster.lock().unwrap_or_else(PoisonError::into_inner);
        cluster.servers().iter().filter_map(Server::pid).collect()
    }

    /// Lets no run pay for what those before it left behind.
    pub(crate) async fn tidy(&self) -> anyhow::Result<()> {
        for url in &self.node_urls {
            client::connect(url).await?.batch_execute("CHECKPOINT").await?;
        }
        Ok(())
    }

    /// Ends everything and removes it.
    pub(crate) async fn remove(mut self) -> anyhow::Result<()> {
        if let Some(gateway) = self.gateway.take() {
            gateway.stop().await?;
        }
        Ok(spawn_blocking(move || drop(self)).await?)
    }
}

/// Opens a link to a port of this machine, if there is a distance, and says where it listens.
async fn put_between(
    port: u16,
    component: Component,
    stretch: Option<Stretch>,
    links: &mut BTreeMap<Component, Link>,
) -> anyhow::Result<u16> {
    let Some(stretch) = stretch else { return Ok(port) };
    let to = format!("127.0.0.1:{port}");
    let link = Link::open(to, stretch).await?;
    let port = link.address().port();
    links.insert(component, link);
    Ok(port)
}

/// As an operator would set them for so many clients.
fn server_options(clients_max: u16) -> ServerOptions {
    let connections = u32::from(clients_max) * CONNECTIONS_PER_CLIENT + CONNECTIONS_BESIDES;
    durable(connections, &[])
}

/// Servers that admit so many connections; everything that makes commits durable is on.
pub(crate) fn durable(connections: u32, further: &[(&str, String)]) -> ServerOptions {
    let settings = [
        ("max_connections", connections.to_string()),
        ("max_prepared_transactions", connections.to_string()),
        // A checkpoint would slow down the one run that it falls into; there is one between runs instead.
        ("checkpoint_timeout", "1h".to_owned()),
        ("max_wal_size", "8GB".to_owned()),
    ];
    let settings = settings.iter().chain(further);
    let settings = settings.map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    ServerOptions { settings, ..ServerOptions::default() }
}
