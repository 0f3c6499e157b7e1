//! What goes on beside the sessions, as long as a gateway serves its cluster.
//!
//! Owns: the gateway's lock, and that recovery and the reading of the catalog run.
//! Never: does their work itself.
//! Start reading at [`Housekeeper::run`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tutti_link::{NodeConnection, NodeError};
use tutti_sql::catalog::NodeId;

use crate::catalog::reading::{self, Reader};
use crate::cluster::Cluster;
use crate::error::GatewayError;
use crate::recovery;
use crate::start::open;

/// How often this gateway looks whether it still has its lock, if nothing tells it.
const LOCK_INTERVAL: Duration = Duration::from_secs(1);
/// When node 1 has not answered for so long, the lock is taken anew.
const LOCK_SILENCE: Duration = Duration::from_secs(5);

/// Watches over the gateway's lock, and runs what recovers nodes and forgets decisions.
#[derive(Debug)]
pub struct Housekeeper {
    cluster: Arc<Cluster>,
    /// Holds the gateway's lock.
    lock: NodeConnection,
}

impl Housekeeper {
    /// For what [`start`](crate::start::start) has given.
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
        helpers.spawn(self.publishing());
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

    fn publishing(&self) -> impl Future<Output = ()> + use<> {
        let cluster = self.cluster.clone();
        let reader = Reader {
            publisher: cluster.publisher.clone(),
            nodes: cluster.availability.clone(),
            connections: cluster.connections.clone(),
        };
        // Whoever listens on node 1 alone listens on all from then on.
        reading::run(reader, move || cluster.sessions.wake_all())
    }

    /// The lock ends with its connection. Whoever has taken it meanwhile has ended our backends on the
    /// nodes before it has served anybody, so nothing is lost by trying.
    async fn retake_lock(&mut self) -> Result<(), GatewayError> {
        let (before, _) = self.lock.backend_key();
        let mut lock = open(self.cluster.endpoints.of(NodeId::HOME)).await?;
        // Its server may not know that the connection is gone.
        lock.rows(&format!(
            "SELECT pg_catalog.pg_terminate_backend(l.pid) FROM pg_catalog.pg_locks l
             WHERE l.relation OPERATOR(pg_catalog.=) 'tutti.serving'::pg_catalog.regclass::pg_catalog.oid
                 AND l.pid OPERATOR(pg_catalog.=) {before}"
        ))
        .await?;
        recovery::gateway_lock(&mut lock).await?;
        recovery::check_newest(&mut lock, self.cluster.incarnation()).await?;
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
