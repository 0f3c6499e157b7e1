//! Where a benchmark runs: servers of its own, a table of accounts, and one gateway at a time.
//!
//! Owns: starting and ending these. Never: leaves a server running when its value is dropped.
//! Start reading at [`Place::make`].

use std::path::Path;

use anyhow::{Context, ensure};
use tokio::task::spawn_blocking;
use tutti_embed::Cluster;
use tutti_gateway::Switches;

use crate::ground::durable;
use crate::ground::gateway::{self, Gateway};

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

impl Place {
    /// Makes the servers and fills the accounts; takes some seconds. Each flush of a server's log
    /// is made to take `flush_us` longer than the disk needs.
    pub(super) async fn make(nodes: u16, clients_max: u16, flush_us: u32) -> anyhow::Result<Self> {
        let connections = u32::from(clients_max) * CONNECTIONS_PER_CLIENT + CONNECTIONS_BESIDES;
        let further = [
            ("commit_delay", flush_us.to_string()),
            // Also when nobody else is at work on the node.
            ("commit_siblings", "0".to_owned()),
        ];
        let options = durable(connections, &further);
        ensure!(options.fsync, "a commit without a flush is none");
        let cluster = spawn_blocking(move || Cluster::create_temp_with(nodes, options)).await??;
        let config = gateway::config(&cluster, Switches::default());
        tutti_gateway::init(&config, false)
            .await
            .context("cannot write the catalog into the nodes")?;
        let gateway = Gateway::start(config).await?;
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
        Gateway::start(gateway::config(&self.cluster, switches)).await
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

fn node_urls(cluster: &Cluster) -> Vec<String> {
    cluster.servers().iter().map(|server| server.url()).collect()
}

async fn fill(url: &str, transfers: &Transfers) -> anyhow::Result<()> {
    let mut session = PreparingSession::connect(url).await?;
    session.query("CREATE SCHEMA bench").await?;
    transfers.setup(&mut session).await
}
