//! Where a benchmark runs: servers of its own, a table of accounts, and one gateway at a time.
//!
//! Owns: starting and ending these. Never: leaves a server running when its value is dropped.
//! Start reading at [`Place::make`].

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;
use tutti_embed::{Cluster, Server, ServerOptions};
use tutti_gateway::{Config, GatewayError, NodeConfig, Rule, Switches};

use tutti_lab::accounts::Accounts;
use tutti_lab::client;
use tutti_lab::workload::session::PreparingSession;
use tutti_lab::workload::transfers::Transfers;
use tutti_lab::workload::{Session, Workload};

/// So many that clients seldom meet on one account, so few that a sum of all is quick.
const ACCOUNTS: i64 = 4_000;
const OPENING_BALANCE: i64 = 1_000;
const TABLE: &str = "bench.accounts";
const KEY: &str = "account_id";
/// Room on each page, so that updates stay there, as in a table that is tuned for them.
const TABLE_MADE_BY: &str = "CREATE TABLE bench.accounts (account_id int PRIMARY KEY, balance bigint NOT NULL) \
     WITH (fillfactor = 50) DISTRIBUTE BY HASH (account_id)";

/// What sessions may need to end once the gateway is asked to.
const GATEWAY_STOP_LIMIT: Duration = Duration::from_secs(20);
/// Connections that a node must admit for each client, in the largest workload: its own, its
/// neighbour's, and as many again for those that are just ending.
const CONNECTIONS_PER_CLIENT: u32 = 4;
const CONNECTIONS_BESIDES: u32 = 50;

/// Servers with accounts on them.
#[derive(Debug)]
pub(super) struct Place {
    cluster: Cluster,
    money: Money,
}

/// The accounts, and what is done to them.
#[derive(Clone, Debug)]
pub(super) struct Money {
    pub transfers: Transfers,
    /// Which node has which.
    pub accounts: Accounts,
}

/// A gateway in front of the servers, in this process.
#[derive(Debug)]
pub(super) struct Gateway {
    pub url: String,
    end: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), GatewayError>>,
}

impl Place {
    /// Makes the servers and fills the accounts; takes some seconds. Each flush of a server's log
    /// is made to take `flush_us` longer than the disk needs.
    pub(super) async fn make(nodes: u16, clients_max: u16, flush_us: u32) -> anyhow::Result<Self> {
        let connections = u32::from(clients_max) * CONNECTIONS_PER_CLIENT + CONNECTIONS_BESIDES;
        let settings = [
            ("max_connections", connections.to_string()),
            ("max_prepared_transactions", connections.to_string()),
            // A checkpoint would slow down the one measurement that it falls into; there is one
            // between measurements instead.
            ("checkpoint_timeout", "1h".to_owned()),
            ("max_wal_size", "8GB".to_owned()),
            ("commit_delay", flush_us.to_string()),
            // Also when nobody else is at work on the node.
            ("commit_siblings", "0".to_owned()),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value));
        let options =
            ServerOptions { settings: BTreeMap::from(settings), ..ServerOptions::default() };
        ensure!(options.fsync, "a commit without a flush is none");
        let cluster = spawn_blocking(move || Cluster::create_temp_with(nodes, options)).await??;
        tutti_gateway::init(&config(&cluster, Switches::default(), String::new()), false)
            .await
            .context("cannot write the catalog into the nodes")?;
        let gateway = start_gateway(&cluster, Switches::default()).await?;
        let transfers =
            Transfers::without_books(ACCOUNTS, OPENING_BALANCE, TABLE, KEY).made_by(TABLE_MADE_BY);
        fill(&gateway.url, &transfers).await.context("cannot make the accounts")?;
        gateway.stop().await?;
        let accounts = Accounts::ask_nodes(&node_urls(&cluster), TABLE, KEY).await?;
        ensure!(accounts.by_node().len() == usize::from(nodes), "a node has no account");
        Ok(Self { cluster, money: Money { transfers, accounts } })
    }

    pub(super) fn money(&self) -> &Money {
        &self.money
    }

    pub(super) fn dir(&self) -> &Path {
        self.cluster.dir()
    }

    /// The version of PostgreSQL that runs here, for people.
    pub(super) fn postgresql(&self) -> String {
        self.cluster.binaries().version().to_string()
    }

    /// Where the nodes themselves are, node 1 first.
    pub(super) fn node_urls(&self) -> Vec<String> {
        node_urls(&self.cluster)
    }

    /// A gateway with these parts switched. One at a time: a second is refused.
    pub(super) async fn start_gateway(&self, switches: Switches) -> anyhow::Result<Gateway> {
        start_gateway(&self.cluster, switches).await
    }

    /// Lets no measurement pay for what the ones before it left.
    pub(super) async fn tidy(&self) -> anyhow::Result<()> {
        for url in self.node_urls() {
            let node = client::connect(&url).await?;
            node.batch_execute("VACUUM bench.accounts").await?;
            node.batch_execute("CHECKPOINT").await?;
        }
        Ok(())
    }

    /// Ends the servers and removes their directory.
    pub(super) async fn remove(self) -> anyhow::Result<()> {
        Ok(spawn_blocking(move || drop(self)).await?)
    }
}

impl Gateway {
    /// Ends the gateway and waits for it; only then can the next one start.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        // An error means that it has ended already, which its own result explains.
        let _ = self.end.send(());
        timeout(GATEWAY_STOP_LIMIT, self.serving)
            .await
            .context("the gateway does not end")??
            .context("the gateway ended")
    }
}

async fn start_gateway(cluster: &Cluster, switches: Switches) -> anyhow::Result<Gateway> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let config = config(cluster, switches, address.to_string());
    let url = client::url(address, &config.database);
    let (end, asked_to_end) = oneshot::channel();
    let mut serving = tokio::spawn(tutti_gateway::serve(config, listener, async move {
        // Dropping the sender asks as well.
        let _ = asked_to_end.await;
    }));
    tokio::select! {
        // Answered as soon as the gateway has settled what it must; until then the client waits.
        client = client::connect(&url) => { client?; }
        ended = &mut serving => {
            ended?.context("the gateway cannot start")?;
            anyhow::bail!("the gateway ended unasked");
        }
    }
    Ok(Gateway { url, end, serving })
}

/// Whoever is on this machine is let in, as by `tutti up`.
fn config(cluster: &Cluster, switches: Switches, listen: String) -> Config {
    let node = |(id, server): (u16, &Server)| NodeConfig {
        id,
        host: Ipv4Addr::LOCALHOST.to_string(),
        port: server.port(),
        user: "postgres".to_owned(),
        ..NodeConfig::default()
    };
    Config {
        listen,
        switches,
        cluster: cluster.name().to_owned(),
        rules: vec![Rule::trust_loopback()],
        nodes: (1..).zip(cluster.servers()).map(node).collect(),
        ..Config::default()
    }
}

fn node_urls(cluster: &Cluster) -> Vec<String> {
    cluster.servers().iter().map(|server| server.url()).collect()
}

async fn fill(url: &str, transfers: &Transfers) -> anyhow::Result<()> {
    let mut session = PreparingSession::connect(url).await?;
    session.query("CREATE SCHEMA bench").await?;
    transfers.setup(&mut session).await
}
