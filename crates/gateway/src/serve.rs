//! Accepting clients, and the gateway's own life: start, housekeeping, stop.
//!
//! Owns: the order of start-up (lock, fence, settle what is in doubt, load the catalog, only then serve),
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
use tokio::task::JoinSet;
use tokio::time::{timeout, timeout_at};
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
use crate::node::{Durability, NodeConnection, NodeError, open_own};
use crate::recovery::{self, Recoverer};
use crate::security::{Gate, Knock};
use crate::session::Session;
use crate::shared::Shared;

/// How often this gateway looks whether it still has its lock, if nothing tells it.
const LOCK_INTERVAL: Duration = Duration::from_secs(1);
/// When node 1 has not answered for so long, the lock is taken anew.
const LOCK_SILENCE: Duration = Duration::from_secs(5);
/// Pause after a failed accept (out of file descriptors, say).
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What a gateway runs on: its threads have the stack that the deepest statement needs.
///
/// Errors: the system gives no threads.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(tutti_sql::statement::STACK_BYTES)
        .build()
}

/// Serves clients on `listener` until `shutdown`. Requires: a [`runtime`].
///
/// Before the first client is let in, everything that an earlier gateway left in doubt is settled, on
/// the nodes that are there.
///
/// Errors: node 1 cannot be reached; nodes are somebody else's, are served by another gateway, or hold
/// transactions that cannot be settled.
pub async fn serve(
    config: Config,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), GatewayError> {
    config.check()?;
    let gate = Gate::new(&config)?;
    let there = check_nodes(&config).await?;
    let mut home = open(&config, &config.nodes[0]).await?;
    let mut lock = open(&config, &config.nodes[0]).await?;
    recovery::gateway_lock(&mut lock).await?;
    let seals = learn_seals(&config, &there).await?;
    let incarnation = recovery::next_incarnation(&mut home).await?;
    take_over(&config, &there, incarnation).await?;
    init::check_default(&mut home, &config).await?;
    let mut catalog = catalog::load(&mut home).await?;
    catalog.home_by_default = config.default_distribution == DefaultDistribution::Home;
    let oids = read_oids(&config, &there, &mut home).await?;
    home.close();
    let shared = Arc::new(Shared::new(config, incarnation, catalog, oids, seals));

    let mut watches = JoinSet::new();
    watches.spawn(deadlock::watch(shared.clone()));
    watches.spawn(lost_clients::watch(shared.clone()));
    watches.spawn(reload_certificates(gate.clone()));
    watches.spawn(audit::background::run(shared.clone()));
    let pool = shared.clone();
    watches.spawn(async move { pool.pool.tend().await });
    let mut sessions = JoinSet::new();
    let house = Housekeeper { shared: shared.clone(), lock };
    let keeping_house = house.run();
    tokio::pin!(shutdown, keeping_house);
    let ended = loop {
        tokio::select! {
            () = &mut shutdown => break Ok(()),
            error = &mut keeping_house => break Err(error),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let (shared, gate) = (shared.clone(), gate.clone());
                    let Some(knocking) = gate.knock(peer.ip()) else {
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

async fn open(config: &Config, node: &NodeConfig) -> Result<NodeConnection, GatewayError> {
    Ok(open_own(&config.database, node, "tutti gateway", Durability::Full).await?)
}

/// Refuses servers that are not the configured nodes of one cluster. Returns those that are there; the
/// others are asked when they come (`recovery::watch`).
///
/// Errors: node 1 is not there.
async fn check_nodes(config: &Config) -> Result<Vec<&NodeConfig>, GatewayError> {
    let mut cluster_id = None;
    let mut there = Vec::new();
    for node in &config.nodes {
        let mut connection = match open(config, node).await {
            Err(GatewayError::Node(error @ NodeError::Connect { .. })) if cluster_id.is_some() => {
                tracing::warn!(node = node.id, %error, "a node is away; starting without it");
                continue;
            }
            opened => opened?,
        };
        let id = init::check_identity(&mut connection, config, cluster_id.as_deref()).await?;
        cluster_id.get_or_insert(id);
        connection.close();
        there.push(node);
    }
    Ok(there)
}

/// Reads what this gateway proves itself by to the nodes; completes the schema of a cluster that an
/// earlier version has made.
async fn learn_seals(config: &Config, there: &[&NodeConfig]) -> Result<Seals, GatewayError> {
    let seals = Seals::default();
    for node in there {
        let mut connection = open(config, node).await?;
        seals.learn(&mut connection).await?;
        connection.close();
    }
    Ok(seals)
}

/// Ends what earlier gateways have left running, and settles what they have left in doubt, where nodes
/// are there. For the others their watch does the same when they come.
async fn take_over(
    config: &Config,
    there: &[&NodeConfig],
    incarnation: u64,
) -> Result<(), GatewayError> {
    let mut fenced = 0;
    for node in there {
        let mut connection = open(config, node).await?;
        match recovery::fence(&mut connection, incarnation).await {
            Ok(()) => fenced += 1,
            Err(error @ GatewayError::Unfenced { .. }) => {
                tracing::warn!(node = node.id, %error, "the node stays closed");
            }
            Err(error) => return Err(error),
        }
        connection.close();
    }
    if fenced < config.nodes.len() {
        return Ok(());
    }
    let mut recoverer = Recoverer::new(config)?;
    let settled = recoverer.settle_in_doubt().await?;
    let forgotten = recoverer.clean_decisions(incarnation).await?;
    tracing::info!(?settled, forgotten, incarnation, "settled what was in doubt");
    Ok(())
}

/// How the OIDs of the nodes that are there differ from node 1's.
async fn read_oids(
    config: &Config,
    there: &[&NodeConfig],
    home: &mut NodeConnection,
) -> Result<OidMaps, GatewayError> {
    let at_home = NodeOids::load(home).await?;
    let mut others = Vec::new();
    for node in &there[1..] {
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
    lock: NodeConnection,
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
        loop {
            let lost = tokio::select! {
                error = lost_lock(&mut self.lock) => error,
                // The whole runtime ends, in whatever order.
                Some(Err(error)) = helpers.join_next(), if !helpers.is_empty() => {
                    if error.is_cancelled() {
                        std::future::pending::<()>().await;
                    }
                    panic!("recovery ended by a bug: {error}")
                }
            };
            tracing::warn!(error = %lost, "the gateway's lock is lost; taking it again");
            while let Err(error) = self.retake_lock().await {
                match error {
                    GatewayError::GatewayRunning { .. } | GatewayError::Replaced { .. } => {
                        return error;
                    }
                    error => tracing::warn!(%error, "cannot take the gateway's lock again yet"),
                }
                tokio::time::sleep(LOCK_INTERVAL).await;
            }
        }
    }

    /// The lock ends with its connection. Whoever has taken it meanwhile has ended our backends on the
    /// nodes before it has served anybody, so nothing is lost by trying.
    async fn retake_lock(&mut self) -> Result<(), GatewayError> {
        let (before, _) = self.lock.backend_key();
        let mut lock = open(&self.shared.config, &self.shared.config.nodes[0]).await?;
        // Its server may not know that the connection is gone.
        lock.rows(&format!(
            "SELECT pg_catalog.pg_terminate_backend(l.pid) FROM pg_catalog.pg_locks l
             WHERE l.relation OPERATOR(pg_catalog.=) 'tutti.serving'::pg_catalog.regclass::pg_catalog.oid
                 AND l.pid OPERATOR(pg_catalog.=) {before}"
        ))
        .await?;
        recovery::gateway_lock(&mut lock).await?;
        recovery::check_newest(&mut lock, self.shared.incarnation()).await?;
        self.lock = lock;
        Ok(())
    }
}

/// Waits until the connection that holds the lock is lost, or silent for long.
async fn lost_lock(lock: &mut NodeConnection) -> NodeError {
    loop {
        match timeout(LOCK_INTERVAL, lock.read_more()).await {
            Ok(Ok(())) => (),
            Ok(Err(error)) => return error,
            Err(_) => match timeout(LOCK_SILENCE, lock.rows("SELECT 1")).await {
                Ok(Ok(_)) => (),
                Ok(Err(error)) => return error,
                Err(_) => {
                    let source = std::io::ErrorKind::TimedOut.into();
                    return NodeError::Lost { node: lock.node(), source };
                }
            },
        }
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
    knocking: Knock,
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
