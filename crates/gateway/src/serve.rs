//! Accepting clients, and the gateway's own life: start, housekeeping, stop.
//!
//! Owns: the order of start-up (lock, settle what is in doubt, load the catalog, only then serve),
//! the listener, cancel requests, and the forgetting of decisions that nobody needs.
//! Never: speaks for a session.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tutti_txn::decision::Decision;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::startup::Startup;

use crate::catalog::{self, NodeOids, OidMaps};
use crate::client::{Client, ClientError};
use crate::config::{Config, NodeConfig};
use crate::deadlock;
use crate::error::GatewayError;
use crate::node::NodeConnection;
use crate::recovery::{self, Recoverer};
use crate::session::Session;
use crate::shared::Shared;

/// How often decisions of applied transactions are forgotten, and left-overs looked for.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);
/// How long one transaction may take to settle in one round.
const SETTLE_PATIENCE: Duration = Duration::from_secs(5);
/// A client that has not said who it is by then is sent away.
const STARTUP_DEADLINE: Duration = Duration::from_secs(60);
/// Pause after a failed accept (out of file descriptors, say).
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Serves clients on `listener` until `shutdown`.
///
/// Before the first client is let in, everything that an earlier gateway left in doubt is settled.
///
/// Errors: the nodes cannot be reached, are somebody else's, are served by another gateway, or hold
/// transactions that cannot be settled.
pub async fn serve(
    config: Config,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), GatewayError> {
    let mut home = open_home(&config).await?;
    recovery::gateway_lock(&mut home).await?;
    let incarnation = recovery::next_incarnation(&mut home).await?;
    let mut recoverer = Recoverer::new(&config)?;
    let settled = recoverer.settle_in_doubt().await?;
    let forgotten = recoverer.clean_decisions(incarnation).await?;
    tracing::info!(?settled, forgotten, incarnation, "settled what was in doubt");
    let catalog = catalog::load(&mut home).await?;
    let oids = read_oids(&config, &mut home).await?;
    let shared = Arc::new(Shared::new(config, incarnation, catalog, oids));

    let mut sessions = JoinSet::new();
    sessions.spawn(deadlock::watch(shared.clone()));
    let house = Housekeeper { shared: shared.clone(), home, recoverer };
    let keeping_house = house.run();
    tokio::pin!(shutdown, keeping_house);
    let ended = loop {
        tokio::select! {
            () = &mut shutdown => break Ok(()),
            error = &mut keeping_house => break Err(error),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let shared = shared.clone();
                    sessions.spawn(async move {
                        if let Err(error) = welcome(shared, stream).await {
                            tracing::debug!(%peer, %error, "session ended");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            },
            Some(finished) = sessions.join_next() => {
                if let Err(error) = finished {
                    tracing::error!(%error, "a session failed by a bug; its transaction is rolled back");
                }
            }
        }
    };
    sessions.shutdown().await;
    ended
}

async fn open_home(config: &Config) -> Result<NodeConnection, GatewayError> {
    open(config, &config.nodes[0]).await
}

async fn open(config: &Config, node: &NodeConfig) -> Result<NodeConnection, GatewayError> {
    let settings = [("application_name", "tutti gateway")];
    Ok(NodeConnection::open(node, &node.user, &config.database, &settings).await?)
}

/// How the OIDs of every node differ from node 1's.
async fn read_oids(config: &Config, home: &mut NodeConnection) -> Result<OidMaps, GatewayError> {
    let at_home = NodeOids::load(home).await?;
    let mut others = Vec::new();
    for node in &config.nodes[1..] {
        let mut connection = open(config, node).await?;
        others.push((connection.node(), NodeOids::load(&mut connection).await?));
        connection.close();
    }
    Ok(OidMaps::compare(&at_home, &others))
}

/// Forgets decisions that every participant has applied, settles what earlier incarnations left
/// behind and a late PREPARE brought to light, and watches over the gateway's lock.
struct Housekeeper {
    shared: Arc<Shared>,
    /// Holds the gateway's lock.
    home: NodeConnection,
    recoverer: Recoverer,
}

impl Housekeeper {
    /// Runs until another gateway has taken the cluster over.
    async fn run(mut self) -> GatewayError {
        let mut rounds = tokio::time::interval(HOUSEKEEPING_INTERVAL);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            if let Err(error) = self.round().await {
                tracing::warn!(%error, "cannot keep house; trying again");
            }
            if let Err(error) = self.keep_lock().await {
                match error {
                    GatewayError::GatewayRunning { .. } => return error,
                    error => tracing::warn!(%error, "cannot see whether this gateway has its lock"),
                }
            }
        }
    }

    async fn round(&mut self) -> Result<(), GatewayError> {
        let applied = self.shared.take_applied();
        if !applied.is_empty() {
            // Not put back on failure: the next start removes what is left.
            self.recoverer.forget_decisions(&applied).await?;
        }
        self.recoverer.sweep(self.shared.incarnation()).await?;
        for (gid, nodes) in self.shared.take_left() {
            match self.recoverer.settle(&gid, &nodes, SETTLE_PATIENCE).await {
                Ok(Decision::Committed) => self.shared.note_applied(gid),
                Ok(Decision::Aborted) => (),
                Err(error) => {
                    tracing::warn!(%gid, %error, "cannot finish a transaction yet; trying again");
                    self.shared.leave_to_recovery(gid, nodes);
                }
            }
        }
        Ok(())
    }

    /// The lock ends with its connection: a new one must take it again before anybody else does.
    async fn keep_lock(&mut self) -> Result<(), GatewayError> {
        if self.home.rows("SELECT 1").await.is_ok() {
            return Ok(());
        }
        self.home = open_home(&self.shared.config).await?;
        recovery::gateway_lock(&mut self.home).await
    }
}

/// One connection, from its first byte.
async fn welcome(shared: Arc<Shared>, stream: TcpStream) -> Result<(), ClientError> {
    stream.set_nodelay(true)?;
    let mut client = Client::new(stream);
    let deadline = tokio::time::Instant::now() + STARTUP_DEADLINE;
    loop {
        let packet = match tokio::time::timeout_at(deadline, client.startup()).await {
            Ok(packet) => packet,
            Err(_) => return Ok(()),
        };
        match packet {
            Ok(None) => return Ok(()),
            // No encryption here yet: the client may go on without, or leave.
            Ok(Some(Startup::SslRequest | Startup::GssEncRequest)) => {
                client.answer_encryption_request(b'N').await?;
            }
            Ok(Some(Startup::Cancel { process_id, secret })) => {
                shared.cancel(&shared.backends_to_cancel(process_id, secret)).await;
                return Ok(());
            }
            Ok(Some(Startup::Session { version, parameters })) => {
                return match Session::begin(shared, client, version, parameters).await? {
                    Some(session) => session.run().await,
                    None => Ok(()),
                };
            }
            Err(error) => {
                client.put_error(&ErrorFields::fatal("08P01", "invalid startup packet"));
                client.flush().await?;
                return Err(error);
            }
        }
    }
}
