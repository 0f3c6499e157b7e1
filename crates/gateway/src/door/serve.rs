//! Accepting clients, and the gateway's own life: start, serve, drain, stop.
//!
//! Owns: the listener, and the tasks that live as long as the
//! gateway. (The order of start-up is the cluster's.)
//! Never: acts for a session.

use std::future::Future;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tutti_cluster::error::GatewayError;
use tutti_cluster::housekeeping::Housekeeper;
use tutti_cluster::start::start;
use tutti_cluster::{Boxed, audit};
use tutti_configuration::Config;
use tutti_wire::error_fields::ErrorFields;

use super::login::welcome;
use crate::client::gate::Gate;
use crate::monitor::{deadlock, lost_clients};
use crate::registry::Registry;
use crate::registry::activity::Activities;

/// Pause after a failed accept (such as being out of file descriptors).
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

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
/// Errors: node 1 cannot be reached; nodes belong to another cluster, are served by another gateway,
/// or hold transactions that cannot be settled.
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
    listener: TcpListener,
    mut shutdown: Boxed<'static, ()>,
) -> Result<(), GatewayError> {
    config.check()?;
    let gate = Gate::new(&config)?;
    let activities = Arc::new(Activities::default());
    let (cluster, lock) = tokio::select! {
        started = start(config, activities.clone()) => started?,
        // A start may wait for nodes.
        () = &mut shutdown => return Ok(()),
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
            () = &mut shutdown => break Ok(()),
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
    // No more clients are let in.
    drop(listener);
    if ended.is_ok() {
        tokio::select! {
            () = drain(&registry, &mut sessions) => (),
            error = &mut keeping_house => return Err(error),
        }
    }
    sessions.shutdown().await;
    ended
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
