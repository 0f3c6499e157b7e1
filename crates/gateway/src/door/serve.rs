//! Accepting clients, and the gateway's own life: follow, lead, drain, stop.
//!
//! Owns: the listener, and the tasks that live as long as the gateway leads or follows. (The order of start-up is the
//! cluster's; when a gateway takes the lead is for [`Follower`] to say.)
//! Never: acts for a session.

use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tutti_cluster::error::GatewayError;
use tutti_cluster::gateways::{Follower, Leader};
use tutti_cluster::housekeeping::Housekeeper;
use tutti_cluster::recovery::LOCK_PATIENCE;
use tutti_cluster::start::start;
use tutti_cluster::{Boxed, audit};
use tutti_configuration::Config;
use tutti_wire::error_fields::ErrorFields;

use super::forward::Forwarder;
use super::login::welcome;
use crate::client::gate::Gate;
use crate::monitor::{deadlock, lost_clients};
use crate::registry::Registry;
use crate::registry::activity::Activities;

/// Pause after a failed accept (such as being out of file descriptors).
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How long one that takes the place of another waits for its lock: a third may have been faster.
const TURN_PATIENCE: Duration = Duration::from_secs(1);

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
    // Why this gateway does not lead.
    let mut led_by_another = None;
    let mut patience = LOCK_PATIENCE;
    loop {
        let joined = tokio::select! {
            joined = Follower::join(&config) => joined,
            // A start may wait for nodes.
            () = &mut shutdown => return Ok(()),
        };
        match (joined, led_by_another.take()) {
            (Ok(mut follower), reason) => {
                let leader = follower.leader().await.unwrap_or_default();
                if reason.is_some() || leader.is_some() {
                    let followed = follow(&gate, follower, leader, &listener, &mut shutdown).await;
                    if followed == Followed::UntilTheEnd {
                        drop(listener);
                        return Ok(());
                    }
                    patience = TURN_PATIENCE;
                }
            }
            // It can neither lead nor follow.
            (Err(_), Some(error)) => return Err(error),
            // What is wrong is for the start to say.
            (Err(_), None) => (),
        }
        match lead(&config, &gate, listener, &mut shutdown, patience).await {
            Led::UntilTheEnd(ended) => return ended,
            Led::Refused(again, error) => {
                tracing::warn!(%error, "this gateway follows another");
                (listener, led_by_another) = (again, Some(error));
            }
        }
    }
}

/// How a gateway's time as a follower has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Followed {
    /// It is to lead.
    UntilItsTurn,
    /// It was asked to end, and has no clients any more.
    UntilTheEnd,
}

/// Passes clients on to the gateway that leads.
async fn follow(
    gate: &Arc<Gate>,
    mut follower: Follower,
    leader: Option<Leader>,
    listener: &TcpListener,
    shutdown: &mut Boxed<'static, ()>,
) -> Followed {
    let address = leader.as_ref().map(|leader| leader.address.as_str());
    tracing::info!(address, "following the gateway that leads");
    let patience = follower.drain_timeout();
    let (tell, leader) = watch::channel(leader);
    let forwarder = Arc::new(Forwarder { leader, seals: follower.seals(), gate: gate.clone() });
    let mut clients = JoinSet::new();
    let following = follower.follow(&tell);
    tokio::pin!(following);
    loop {
        tokio::select! {
            () = &mut following => {
                // Whoever was passed on to one that is gone connects again.
                clients.shutdown().await;
                return Followed::UntilItsTurn;
            }
            () = &mut *shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if gate.clients_max() <= clients.len() => turn_away(stream),
                Ok((stream, peer)) => {
                    clients.spawn(forwarder.clone().pass_on(stream, peer));
                }
                Err(error) => pause_accepting(&error).await,
            },
            Some(_) = clients.join_next() => (),
        }
    }
    // What they run is not known here: they may end it.
    let emptied = async { while clients.join_next().await.is_some() {} };
    tokio::select! {
        _ = tokio::time::timeout(patience, emptied) => (),
        () = &mut following => (),
    }
    Followed::UntilTheEnd
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
}

/// Serves clients as the gateway that leads.
async fn lead(
    config: &Config,
    gate: &Arc<Gate>,
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
        Err(error) => return Led::UntilTheEnd(Err(error)),
    };
    let registry = Arc::new(Registry::new(cluster.clone(), activities));

    let mut background = JoinSet::new();
    background.spawn(deadlock::run(registry.clone()));
    background.spawn(lost_clients::run(registry.clone()));
    background.spawn(reload_certificates(gate.clone()));
    background.spawn(audit::background::run(cluster.clone()));
    let pool = registry.clone();
    background.spawn(async move { pool.pool.tend().await });
    let mut sessions = JoinSet::new();
    let keeping_house = Housekeeper::new(cluster, lock).run();
    tokio::pin!(keeping_house);
    let ended = loop {
        tokio::select! {
            () = &mut *shutdown => break Ok(()),
            error = &mut keeping_house => break Err(error),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let (registry, gate) = (registry.clone(), gate.clone());
                    let Some(knocking) = gate.knock(peer.ip()) else {
                        turn_away(stream);
                        continue;
                    };
                    sessions.spawn(async move {
                        if let Err(error) = welcome(registry, gate, stream, peer, knocking).await {
                            tracing::debug!(%peer, %error, "session ended");
                        }
                    });
                }
                Err(error) => pause_accepting(&error).await,
            },
            Some(finished) = sessions.join_next() => {
                if let Err(error) = finished {
                    tracing::error!(%error, "a session failed by a bug; its transaction is rolled back");
                }
            }
        }
    };
    match ended {
        Ok(()) => {
            // No more clients are let in.
            drop(listener);
            let drained = tokio::select! {
                () = drain(&registry, &mut sessions) => Ok(()),
                error = &mut keeping_house => Err(error),
            };
            sessions.shutdown().await;
            Led::UntilTheEnd(drained)
        }
        Err(error) => {
            sessions.shutdown().await;
            match is_replaced(&error) {
                true => Led::Refused(listener, error),
                false => Led::UntilTheEnd(Err(error)),
            }
        }
    }
}

/// Whether another gateway has the cluster.
fn is_replaced(error: &GatewayError) -> bool {
    matches!(error, GatewayError::GatewayRunning { .. } | GatewayError::Replaced { .. })
}

/// Lets transactions in progress finish and then ends their sessions; ends the others immediately.
async fn drain(registry: &Registry, sessions: &mut JoinSet<()>) {
    let patience = Duration::from_secs(registry.cluster.config.drain_timeout_s);
    registry.drain();
    let emptied = async { while sessions.join_next().await.is_some() {} };
    if tokio::time::timeout(patience, emptied).await.is_err() {
        tracing::warn!(
            sessions = sessions.len(),
            "transactions did not end within drain_timeout_s; they are rolled back"
        );
    }
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
    ErrorFields::fatal("53300", "too many connections that have not logged in yet")
        .put(&mut refusal, b'E');
    // The runtime does not know yet that the socket is writable; the system does.
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write(&refusal);
    }
}
