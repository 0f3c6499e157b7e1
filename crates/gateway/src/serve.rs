//! Accepting clients, and the gateway's own life: start, housekeeping, stop.
//!
//! Owns: the order of start-up (lock, settle what is in doubt, load the catalog, only then serve),
//! the listener, the packets before a session, cancel requests, and that recovery runs.
//! Never: speaks for a session.

use std::future::Future;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, timeout_at};
use tutti_sql::catalog::NodeId;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frame::WireError;
use tutti_wire::startup::Startup;

use crate::audit;
use crate::catalog::{self, NodeOids, OidMaps, Seals};
use crate::client::{Client, ClientError};
use crate::config::{Config, DefaultDistribution, NodeConfig};
use crate::deadlock;
use crate::error::GatewayError;
use crate::init;
use crate::lost_clients;
use crate::node::{Credentials, NodeConnection};
use crate::recovery::{self, Recoverer};
use crate::security::Gate;
use crate::session::Session;
use crate::shared::Shared;

/// How often this gateway looks whether it still has its lock.
const LOCK_INTERVAL: Duration = Duration::from_secs(1);
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
    config.check()?;
    let gate = Gate::new(&config)?;
    check_nodes(&config).await?;
    let mut home = open_home(&config).await?;
    recovery::gateway_lock(&mut home).await?;
    let incarnation = recovery::next_incarnation(&mut home).await?;
    let mut recoverer = Recoverer::new(&config)?;
    let settled = recoverer.settle_in_doubt().await?;
    let forgotten = recoverer.clean_decisions(incarnation).await?;
    tracing::info!(?settled, forgotten, incarnation, "settled what was in doubt");
    let seals = learn_seals(&config).await?;
    init::check_default(&mut home, &config).await?;
    let mut catalog = catalog::load(&mut home).await?;
    catalog.home_by_default = config.default_distribution == DefaultDistribution::Home;
    let oids = read_oids(&config, &mut home).await?;
    let shared = Arc::new(Shared::new(config, incarnation, catalog, oids, seals));

    let mut watches = JoinSet::new();
    watches.spawn(deadlock::watch(shared.clone()));
    watches.spawn(lost_clients::watch(shared.clone()));
    watches.spawn(reload_certificates(gate.clone()));
    watches.spawn(audit::background::run(shared.clone()));
    let pool = shared.clone();
    watches.spawn(async move { pool.pool.tend().await });
    let mut sessions = JoinSet::new();
    let house = Housekeeper { shared: shared.clone(), home };
    let keeping_house = house.run();
    tokio::pin!(shutdown, keeping_house);
    let ended = loop {
        tokio::select! {
            () = &mut shutdown => break Ok(()),
            error = &mut keeping_house => break Err(error),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let (shared, gate) = (shared.clone(), gate.clone());
                    let Some(knocking) = gate.knock() else {
                        turn_away(stream);
                        continue;
                    };
                    sessions.spawn(async move {
                        if let Err(error) = welcome(shared, gate, stream, peer, knocking).await {
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
    // Nobody is let in any more.
    drop(listener);
    if ended.is_ok() {
        tokio::select! {
            () = drain(&shared, &mut sessions) => (),
            error = &mut keeping_house => return Err(error),
        }
    }
    sessions.shutdown().await;
    ended
}

/// Lets transactions that are at work come to their end, and ends their sessions then; the others at
/// once.
async fn drain(shared: &Shared, sessions: &mut JoinSet<()>) {
    let patience = Duration::from_secs(shared.config.drain_timeout_s);
    shared.drain();
    let emptied = async { while sessions.join_next().await.is_some() {} };
    if tokio::time::timeout(patience, emptied).await.is_err() {
        tracing::warn!(
            sessions = sessions.len(),
            "transactions did not end within drain_timeout_s; they are rolled back"
        );
    }
}

/// Reads the certificates anew at SIGHUP, as PostgreSQL does.
async fn reload_certificates(gate: Arc<Gate>) {
    let Some(tls) = &gate.tls else { return };
    let mut hangups = match signal(SignalKind::hangup()) {
        Ok(hangups) => hangups,
        Err(error) => return tracing::warn!(%error, "SIGHUP will not reload the certificates"),
    };
    while hangups.recv().await.is_some() {
        match tls.reload() {
            Ok(()) => tracing::info!("read the certificates anew"),
            Err(error) => tracing::warn!(%error, "the certificates stay as they were"),
        }
    }
}

async fn open_home(config: &Config) -> Result<NodeConnection, GatewayError> {
    open(config, &config.nodes[0]).await
}

async fn open(config: &Config, node: &NodeConfig) -> Result<NodeConnection, GatewayError> {
    let settings = [("application_name", "tutti gateway"), ("search_path", "pg_catalog, pg_temp")];
    let credentials = Credentials::of_gateway(node);
    Ok(NodeConnection::open(node, &node.user, &credentials, &config.database, &settings).await?)
}

/// Refuses servers that are not the configured nodes of one cluster.
async fn check_nodes(config: &Config) -> Result<(), GatewayError> {
    let mut cluster_id = None;
    for node in &config.nodes {
        let mut connection = open(config, node).await?;
        let id = init::check_identity(&mut connection, config, cluster_id.as_deref()).await?;
        cluster_id.get_or_insert(id);
        connection.close();
    }
    Ok(())
}

/// Reads what this gateway proves itself by to the nodes; completes the schema of a cluster that an
/// earlier version has made.
async fn learn_seals(config: &Config) -> Result<Seals, GatewayError> {
    let mut seals = Seals::default();
    for node in &config.nodes {
        let mut connection = open(config, node).await?;
        seals.learn(&mut connection).await?;
        connection.close();
    }
    Ok(seals)
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

/// Watches over the gateway's lock, and runs what recovers nodes and forgets decisions.
struct Housekeeper {
    shared: Arc<Shared>,
    /// Holds the gateway's lock.
    home: NodeConnection,
}

impl Housekeeper {
    /// Runs until another gateway has taken the cluster over.
    async fn run(mut self) -> GatewayError {
        let mut helpers = JoinSet::new();
        for node in &self.shared.config.nodes {
            helpers.spawn(recovery::watch::run(self.shared.clone(), NodeId(node.id)));
        }
        helpers.spawn(recovery::settler::run(self.shared.clone()));
        helpers.spawn(recovery::forget::run(self.shared.clone()));
        helpers.spawn(catalog::publisher::run(self.shared.clone()));
        let mut rounds = tokio::time::interval(LOCK_INTERVAL);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = rounds.tick() => (),
                // The whole runtime ends, in whatever order.
                Some(Err(error)) = helpers.join_next(), if !helpers.is_empty() => {
                    if error.is_cancelled() {
                        std::future::pending::<()>().await;
                    }
                    panic!("recovery ended by a bug: {error}")
                }
            }
            if let Err(error) = self.keep_lock().await {
                match error {
                    GatewayError::GatewayRunning { .. } => return error,
                    error => tracing::warn!(%error, "cannot see whether this gateway has its lock"),
                }
            }
        }
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

/// Somebody comes while too many have not said who they are. Whether it hears why does not matter.
fn turn_away(stream: TcpStream) {
    let mut refusal = BytesMut::new();
    ErrorFields::fatal("53300", "too many connections that have not logged in yet")
        .put(&mut refusal, b'E');
    // The runtime does not know yet that one can write; the system does.
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write(&refusal);
    }
}

/// One connection, from its first byte.
async fn welcome(
    shared: Arc<Shared>,
    gate: Arc<Gate>,
    stream: TcpStream,
    peer: SocketAddr,
    knocking: OwnedSemaphorePermit,
) -> Result<(), ClientError> {
    stream.set_nodelay(true)?;
    gate.keepalive().apply(&stream);
    let mut client = Client::new(stream, peer, gate, knocking);
    let deadline = client.deadline();
    match timeout_at(deadline, read_startup(&mut client)).await {
        Ok(Ok(Some(Startup::Cancel { process_id, secret }))) => {
            if shared.backends.is_session(process_id, secret) {
                shared.cancel_session(process_id).await;
            }
            Ok(())
        }
        Ok(Ok(Some(Startup::Session { version, parameters }))) => {
            match Session::begin(shared, client, version, parameters).await? {
                Some(session) => session.run().await,
                None => Ok(()),
            }
        }
        // Gone, or too slow. PostgreSQL says nothing either.
        Ok(Ok(_)) | Err(_) => Ok(()),
        Ok(Err(error @ ClientError::Protocol(_))) => {
            client.put_error(&ErrorFields::fatal("08P01", "invalid startup packet"));
            client.flush().await?;
            Err(error)
        }
        Ok(Err(error)) => Err(error),
    }
}

/// Answers requests for encryption until the client says what it wants. `None` if it leaves, or has
/// been told to.
async fn read_startup(client: &mut Client) -> Result<Option<Startup>, ClientError> {
    let has_tls = client.gate().tls.is_some();
    let is_direct = has_tls && client.begins_with_tls().await?;
    if is_direct {
        client.encrypt().await?;
        // As PostgreSQL: it must have been meant for this protocol.
        if client.session().is_none_or(|session| session.alpn_protocol().is_none()) {
            return Ok(None);
        }
    }
    loop {
        match client.startup().await? {
            Some(Startup::SslRequest) if client.session().is_none() => {
                // Somebody between may have put it there, to be taken for the client's own words.
                if client.has_read_on() {
                    let message = "received unencrypted data after SSL request";
                    let detail = "This could be either a client-software bug or evidence of an \
                                  attempted man-in-the-middle attack.";
                    let error = ErrorFields::fatal("08P01", message).with(b'D', detail);
                    client.put_error(&error);
                    client.flush().await?;
                    return Ok(None);
                }
                client.answer_encryption_request(if has_tls { b'S' } else { b'N' }).await?;
                if has_tls {
                    client.encrypt().await?;
                }
            }
            // Never here: the client may go on without, or leave.
            Some(Startup::GssEncRequest) if client.session().is_none() => {
                client.answer_encryption_request(b'N').await?;
            }
            Some(Startup::SslRequest | Startup::GssEncRequest) => {
                return Err(WireError::Malformed.into());
            }
            other => return Ok(other),
        }
    }
}
