//! Accepting clients, and the gateway's own life: follow, lead, drain, stop.
//!
//! Owns: the listener, and the tasks that live as long as the gateway leads or follows. (The order of start-up is the
//! cluster's; when a gateway takes the lead is for [`Follower`] to say.)
//! Never: acts for a session.

use std::future::Future;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tutti_cluster::error::{GatewayError, in_full};
use tutti_cluster::gateways::{Follower, Leader};
use tutti_cluster::housekeeping::Housekeeper;
use tutti_cluster::recovery::LOCK_PATIENCE;
use tutti_cluster::start::start;
use tutti_cluster::{Boxed, audit};
use tutti_configuration::Config;

use super::forward::Forwarder;
use super::login::welcome;
use crate::client::gate::{Gate, too_many_handshakes};
use crate::monitor::{deadlock, lost_clients};
use crate::registry::Registry;
use crate::registry::activity::Activities;

/// Pause after a failed accept (such as being out of file descriptors).
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How long one that takes the place of another waits for its lock: a third may have been faster.
const TURN_PATIENCE: Duration = Duration::from_secs(1);

/// How long transactions may take that others have brought to a gateway that was ending already.
const BROUGHT_PATIENCE: Duration = Duration::from_secs(2);

/// How long sessions may take to tell their clients that they have been ended.
const FAREWELL_PATIENCE: Duration = Duration::from_secs(1);

/// Pause of one that could not take the lead, before it tries again.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// What a gateway runs on: its threads have the stack that the deepest statement needs.
///
/// Errors: the system grants no threads.
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
/// Where another gateway leads the cluster, this one passes its clients on to that, until it takes its place.
///
/// Errors: node 1 cannot be reached; nodes belong to another cluster, or hold transactions that cannot be settled;
/// another gateway leads that cannot be followed.
///
/// A box, and not an `async fn`: else every program that serves, each of the tests among them, would compile
/// all sessions again.
pub fn serve(
    config: Config,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Boxed<'static, Result<(), GatewayError>> {
    serve_until(config, listener, Box::pin(shutdown))
}

fn serve_until(
    config: Config,
    listener: TcpListener,
    shutdown: Boxed<'static, ()>,
) -> Boxed<'static, Result<(), GatewayError>> {
    Box::pin(run(config, listener, shutdown))
}

async fn run(
    config: Config,
    mut listener: TcpListener,
    mut shutdown: Boxed<'static, ()>,
) -> Result<(), GatewayError> {
    config.check()?;
    let gate = Gate::new(&config)?;
    // As long as it lives, whether it leads or not: unheard, a SIGHUP would end it.
    let mut reloading = JoinSet::new();
    reloading.spawn(reload_certificates(gate.clone()));
    let joined = tokio::select! {
        joined = Follower::join(&config) => joined,
        // A start may wait for nodes.
        () = &mut shutdown => return Ok(()),
    };
    let (tell, leader) = watch::channel(None);
    let has_joined = joined.is_ok();
    let (mut follower, seals) = match joined {
        Ok(mut follower) => {
            let leader = follower.leader().await.unwrap_or_default();
            let seals = follower.seals();
            let must_follow = leader.is_some();
            tell.send_replace(leader);
            (must_follow.then_some(follower), seals)
        }
        // What is wrong is for the start to say.
        Err(_) => (None, Arc::default()),
    };
    let forwarder = Arc::new(Forwarder { leader, seals: seals.clone(), gate: gate.clone() });
    let mut passed_on = PassedOn { tell, forwarder, clients: JoinSet::new() };
    let mut patience = LOCK_PATIENCE;
    // Since when it is one of the cluster's: from then on nothing but its own shutdown ends it.
    let mut is_one = false;
    loop {
        if let Some(follower) = follower.take() {
            is_one = true;
            match follow(&mut passed_on, follower, listener, &mut shutdown).await {
                Some(again) => listener = again,
                None => return Ok(()),
            }
            patience = TURN_PATIENCE;
        }
        match lead(&config, &mut passed_on, listener, &mut shutdown, patience).await {
            Led::UntilTheEnd(ended) => return ended,
            Led::Refused(again, error) => {
                // One of another version it cannot follow.
                if !has_joined && Follower::join(&config).await.is_err() {
                    return Err(error);
                }
                tracing::warn!(%error, "this gateway follows another");
                (listener, follower) = (again, Some(Follower::again(&config, seals.clone())));
            }
            // Node 1 is away, or full, or the configuration is another than that of those that lead.
            Led::Failed(again, error) if is_one => {
                tracing::error!(error = in_full(&error), "this gateway cannot lead, and follows");
                tokio::time::sleep(FAILURE_PAUSE).await;
                (listener, follower) = (again, Some(Follower::again(&config, seals.clone())));
            }
            Led::Failed(_, error) => return Err(error),
        }
    }
}

/// The clients that are passed on, and who leads.
struct PassedOn {
    tell: watch::Sender<Option<Leader>>,
    forwarder: Arc<Forwarder>,
    clients: JoinSet<()>,
}

/// Passes clients on to the gateway that leads, until it is this one's turn; then with the listener. `None`: it was
/// asked to end, and has no clients any more.
///
/// Those that wait for a gateway that leads go on waiting when it is this one's turn, and may be passed on to itself.
async fn follow(
    passed_on: &mut PassedOn,
    mut follower: Follower,
    listener: TcpListener,
    shutdown: &mut Boxed<'static, ()>,
) -> Option<TcpListener> {
    tracing::info!("following the gateway that leads");
    let patience = follower.drain_timeout();
    let PassedOn { tell, forwarder, clients } = passed_on;
    let following = follower.follow(tell);
    tokio::pin!(following);
    loop {
        tokio::select! {
            () = &mut following => return Some(listener),
            () = &mut *shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if forwarder.gate.clients_max() <= clients.len() => turn_away(stream),
                Ok((stream, peer)) => match forwarder.gate.knock(peer.ip()) {
                    Some(knocking) => {
                        clients.spawn(forwarder.clone().pass_on(stream, peer, knocking));
                    }
                    None => turn_away(stream),
                }
                Err(error) => pause_accepting(&error).await,
            },
            Some(_) = clients.join_next() => (),
        }
    }
    // No more clients are let in.
    drop(listener);
    // What they run is not known here: they may end it.
    let emptied = async { while clients.join_next().await.is_some() {} };
    tokio::select! {
        _ = tokio::time::timeout(patience, emptied) => (),
        () = &mut following => (),
    }
    None
}

async fn pause_accepting(error: &std::io::Error) {
    tracing::warn!(%error, "cannot accept a client");
    tokio::time::sleep(ACCEPT_RETRY).await;
}

/// How a gateway's time as the one that leads has ended.
#[derive(Debug)]
enum Led {
    /// It was asked to end, or cannot go on.
    UntilTheEnd(Result<(), GatewayError>),
    /// Another one leads. Nobody is served by this one any more.
    Refused(TcpListener, GatewayError),
    /// It could not take the lead.
    Failed(TcpListener, GatewayError),
}

/// Serves clients as the gateway that leads.
async fn lead(
    config: &Config,
    passed_on: &mut PassedOn,
    listener: TcpListener,
    shutdown: &mut Boxed<'static, ()>,
    patience: Duration,
) -> Led {
    let activities = Arc::new(Activities::default());
    let started = tokio::select! {
        started = start(config.clone(), activities.clone(), patience) => started,
        // A start may wait for nodes.
        () = &mut *shutdown => return Led::UntilTheEnd(Ok(())),
    };
    let (cluster, lock) = match started {
        Ok(started) => started,
        Err(error) if is_replaced(&error) => return Led::Refused(listener, error),
        Err(error) => return Led::Failed(listener, error),
    };
    let gate = &passed_on.forwarder.gate.clone();
    let identity = cluster.incarnation();
    passed_on.tell.send_replace(own_address(&listener).map(|address| Leader { identity, address }));
    let registry = Arc::new(Registry::new(cluster.clone(), activities));

    let mut background = JoinSet::new();
    background.spawn(deadlock::run(registry.clone()));
    background.spawn(lost_clients::run(registry.clone()));
    background.spawn(audit::background::run(cluster.clone()));
    let pool = registry.clone();
    background.spawn(async move { pool.pool.tend().await });
    let mut sessions = JoinSet::new();
    let welcome_to = |sessions: &mut JoinSet<()>, stream, peer: SocketAddr| {
        let (registry, gate) = (registry.clone(), gate.clone());
        let Some(knocking) = gate.knock(peer.ip()) else { return turn_away(stream) };
        sessions.spawn(async move {
            if let Err(error) = welcome(registry, gate, stream, peer, knocking).await {
                tracing::debug!(%peer, %error, "session ended");
            }
        });
    };
    let keeping_house = Housekeeper::new(cluster, lock).run();
    tokio::pin!(keeping_house);
    let ended = loop {
        tokio::select! {
            () = &mut *shutdown => break Ok(()),
            error = &mut keeping_house => break Err(error),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => welcome_to(&mut sessions, stream, peer),
                Err(error) => pause_accepting(&error).await,
            },
            Some(_) = passed_on.clients.join_next() => (),
            Some(finished) = sessions.join_next() => {
                if let Err(error) = finished {
                    tracing::error!(%error, "a session failed by a bug; its transaction is rolled back");
                }
            }
        }
    };
    match ended {
        Ok(()) => {
            let mut brought = JoinSet::new();
            let ending = async {
                // While transactions end that there are, others bring theirs: nobody else can lead yet.
                registry.hand_over();
                let patience = Duration::from_secs(registry.cluster.config.drain_timeout_s);
                let deadline = tokio::time::sleep(patience);
                tokio::pin!(deadline);
                loop {
                    tokio::select! {
                        () = &mut deadline => break,
                        accepted = listener.accept() => match accepted {
                            Ok((stream, peer)) => welcome_to(&mut brought, stream, peer),
                            Err(error) => pause_accepting(&error).await,
                        },
                        Some(_) = brought.join_next() => (),
                        ended = sessions.join_next() => if ended.is_none() { break },
                    }
                }
                if !sessions.is_empty() {
                    tracing::warn!(
                        sessions = sessions.len(),
                        "transactions did not end within drain_timeout_s; they are rolled back"
                    );
                }
                // No more clients are let in.
                drop(listener);
                registry.drain();
                let emptied = async { while brought.join_next().await.is_some() {} };
                _ = tokio::time::timeout(BROUGHT_PATIENCE, emptied).await;
                registry.end_all();
                let told = async {
                    while sessions.join_next().await.is_some() {}
                    while brought.join_next().await.is_some() {}
                };
                _ = tokio::time::timeout(FAREWELL_PATIENCE, told).await;
            };
            let drained = tokio::select! {
                () = ending => Ok(()),
                error = &mut keeping_house => Err(error),
            };
            sessions.shutdown().await;
            brought.shutdown().await;
            Led::UntilTheEnd(drained)
        }
        Err(error) => {
            // At once: what they read may be another gateway's to say.
            sessions.shutdown().await;
            match is_replaced(&error) {
                true => Led::Refused(listener, error),
                false => Led::UntilTheEnd(Err(error)),
            }
        }
    }
}

/// Where this gateway reaches itself.
fn own_address(listener: &TcpListener) -> Option<String> {
    let mut address = listener.local_addr().ok()?;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Some(address.to_string())
}

/// Whether another gateway has the cluster.
fn is_replaced(error: &GatewayError) -> bool {
    matches!(error, GatewayError::GatewayRunning { .. } | GatewayError::Replaced { .. })
}

/// Reloads the certificates at SIGHUP, as PostgreSQL does.
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

/// Turns a client away while too many are logging in. Whether it learns why does not matter.
fn turn_away(stream: TcpStream) {
    let mut refusal = BytesMut::new();
    too_many_handshakes().put(&mut refusal, b'E');
    // The runtime does not know yet that the socket is writable; the system does.
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write(&refusal);
    }
}
