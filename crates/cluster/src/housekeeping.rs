//! What runs beside the sessions as long as a gateway serves its cluster.
//!
//! Owns: the gateway's lock, and keeping recovery and the catalog reader running.
//! Never: does their work itself, or decides what the loss of the lock means ([`Tenure`] does).
//! Start reading at [`Housekeeper::run`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tutti_link::{NodeConnection, NodeError};
use tutti_sql::catalog::NodeId;
use tutti_txn::Tenure;
use tutti_txn::tenure::{Effect, End, Event, Phase};

use crate::carrying_monitor;
use crate::catalog::reading::{self, Reader};
use crate::cluster::Cluster;
use crate::error::GatewayError;
use crate::gateways::announce;
use crate::recovery::{self, LOCK_INTERVAL, open};

/// When node 1 has not answered for so long, the lock is taken again.
const LOCK_SILENCE: Duration = Duration::from_secs(5);

/// Watches over the gateway's lock, and runs what recovers nodes and forgets decisions.
#[derive(Debug)]
pub struct Housekeeper {
    cluster: Arc<Cluster>,
    /// Holds the gateway's lock.
    lock: NodeConnection,
}

impl Housekeeper {
    /// From what [`start`](crate::start::start) returned.
    pub fn new(cluster: Arc<Cluster>, lock: NodeConnection) -> Self {
        Self { cluster, lock }
    }

    /// Runs until another gateway has taken the cluster over.
    pub async fn run(mut self) -> GatewayError {
        let mut helpers = JoinSet::new();
        for endpoint in self.cluster.endpoints.iter() {
            helpers.spawn(recovery::watch::run(self.cluster.clone(), endpoint.node()));
        }
        helpers.spawn(recovery::resolver::run(self.cluster.clone()));
        helpers.spawn(recovery::forget::run(self.cluster.clone()));
        helpers.spawn(carrying_monitor::run(self.cluster.clone()));
        helpers.spawn(self.publishing());
        let mut effects = Vec::new();
        let own = self.cluster.incarnation();
        let mut tenure = Tenure::serving(own, &mut effects);
        let mut newest = self.cluster.newest_incarnation();
        loop {
            // Each effect of a gateway that serves is answered before the next one comes.
            let Some(effect) = effects.pop() else {
                unreachable!("a gateway's tenure stands still")
            };
            let replaced = async {
                let newest = newest.wait_for(|newest| own < *newest).await;
                newest.map(|newest| Event::Newest(*newest))
            };
            let performed = tokio::select! {
                performed = self.perform(effect) => performed,
                // Whichever node knows it, and whatever this gateway waits for: node 1 may be one that was replaced, or
                // another gateway may have its lock.
                Ok(event) = replaced => Ok(event),
                // The whole runtime ends, in whatever order.
                Some(Err(error)) = helpers.join_next(), if !helpers.is_empty() => {
                    if error.is_cancelled() {
                        std::future::pending::<()>().await;
                    }
                    panic!("recovery ended by a bug: {error}")
                }
            };
            let event = match &performed {
                Ok(event) => *event,
                Err(error) => failed(effect, error),
            };
            tenure.step(event, &mut effects);
            if let Phase::Over(end) = tenure.phase() {
                return match (end, performed) {
                    (End::Replaced { newest }, _) => {
                        GatewayError::Replaced { incarnation: tenure.incarnation(), newest }
                    }
                    (End::Refused, Err(by)) => by,
                    (End::Refused, Ok(_)) => {
                        unreachable!("a gateway is refused by another's lock")
                    }
                };
            }
        }
    }

    /// Does what the tenure says.
    async fn perform(&mut self, effect: Effect) -> Result<Event, GatewayError> {
        match effect {
            Effect::WatchLock => await_lock_event(&mut self.lock).await,
            Effect::TakeLock => self.retake_lock().await,
            Effect::ReadNewest => newest(&mut self.lock).await,
            Effect::RetryLater => {
                tokio::time::sleep(LOCK_INTERVAL).await;
                Ok(Event::RetryDue)
            }
            Effect::Draw | Effect::TakeOver { .. } | Effect::Serve | Effect::End(_) => {
                unreachable!("a gateway that serves has started, and has not ended")
            }
        }
    }

    fn publishing(&self) -> impl Future<Output = ()> + use<> {
        let cluster = self.cluster.clone();
        let reader = Reader {
            publisher: cluster.publisher.clone(),
            nodes: cluster.availability.clone(),
            connections: cluster.connections.clone(),
        };
        // Sessions that listen on node 1 alone listen on all from then on.
        reading::run(reader, move || cluster.sessions.wake_all())
    }

    /// The lock ends with its connection. Another gateway that has taken it meanwhile has ended our backends on
    /// the nodes before it has served any client, so nothing is lost by trying.
    async fn retake_lock(&mut self) -> Result<Event, GatewayError> {
        let (before, _) = self.lock.backend_key();
        let mut lock = open(self.cluster.endpoints.of(NodeId::HOME)).await?;
        // Its server may not know that the old connection is gone.
        lock.rows(&format!(
            "SELECT pg_catalog.pg_terminate_backend(l.pid) FROM pg_catalog.pg_locks l
             WHERE l.relation OPERATOR(pg_catalog.=) 'tutti.serving'::pg_catalog.regclass::pg_catalog.oid
                 AND l.pid OPERATOR(pg_catalog.=) {before}"
        ))
        .await?;
        // Long: what has the lock may be this gateway's own former backend, which hangs and does not end yet.
        recovery::gateway_lock(&mut lock, recovery::LOCK_PATIENCE).await?;
        let (pid, _) = lock.backend_key();
        let connections = &self.cluster.connections;
        let mut home = connections.checkout(NodeId::HOME).await?;
        announce(&mut home, &self.cluster.config, self.cluster.incarnation(), Some(pid)).await?;
        connections.release(home);
        self.lock = lock;
        Ok(Event::LockTaken)
    }
}

/// What it means that `effect` failed.
fn failed(effect: Effect, error: &GatewayError) -> Event {
    match (effect, error) {
        (Effect::WatchLock, error) => {
            tracing::warn!(%error, "the gateway's lock is lost; taking it again");
            Event::LockLost
        }
        (_, GatewayError::GatewayRunning { .. }) => Event::LockHeld,
        (_, error) => {
            tracing::warn!(%error, "cannot take the gateway's lock again yet");
            Event::HomeLost
        }
    }
}

/// Waits for the next that the lock's connection tells: it is lost, or silent for long (an error); or, after a
/// while, the newest incarnation that node 1 knows. One that starts may lose the lock to this gateway and raise
/// that all the same; then this one has the lock and serves no client.
async fn await_lock_event(lock: &mut NodeConnection) -> Result<Event, GatewayError> {
    loop {
        match timeout(LOCK_INTERVAL, lock.read_more()).await {
            Ok(read) => read?,
            Err(_) => {
                return timeout(LOCK_SILENCE, newest(lock)).await.unwrap_or_else(|_| {
                    let source = std::io::ErrorKind::TimedOut.into();
                    Err(NodeError::Lost { node: lock.node(), source }.into())
                });
            }
        }
    }
}

async fn newest(lock: &mut NodeConnection) -> Result<Event, GatewayError> {
    Ok(Event::Newest(recovery::newest_incarnation(lock).await?))
}
