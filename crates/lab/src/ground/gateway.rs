//! A gateway in this process, in front of servers of this machine.
//!
//! Owns: its configuration, its start and its end. Never: the servers.

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tutti_embed::{Cluster, Server};
use tutti_gateway::{Config, GatewayError, NodeConfig, Rule, Switches};

use tutti_lab::client;

/// What sessions may need to end once the gateway is asked to.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// A gateway that serves. One at a time: a second is refused.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub url: String,
    end: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), GatewayError>>,
}

impl Gateway {
    /// Starts one on a free port, whatever address the configuration has, and waits until it serves.
    pub(crate) async fn start(config: Config) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let config = Config { listen: address.to_string(), ..config };
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
        Ok(Self { url, end, serving })
    }

    /// Ends the gateway and waits for it; only then can the next one start.
    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        // An error means that it has ended already, which its own result explains.
        let _ = self.end.send(());
        timeout(STOP_LIMIT, self.serving)
            .await
            .context("the gateway does not end")??
            .context("the gateway ended")
    }
}

/// Whoever is on this machine is let in, as by `tutti up`.
pub(crate) fn config(cluster: &Cluster, switches: Switches) -> Config {
    let node = |(id, server): (u16, &Server)| NodeConfig {
        id,
        host: Ipv4Addr::LOCALHOST.to_string(),
        port: server.port(),
        user: "postgres".to_owned(),
        ..NodeConfig::default()
    };
    Config {
        switches,
        cluster: cluster.name().to_owned(),
        rules: vec![Rule::trust_loopback()],
        nodes: (1..).zip(cluster.servers()).map(node).collect(),
        ..Config::default()
    }
}
