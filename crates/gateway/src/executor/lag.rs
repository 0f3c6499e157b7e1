//! `tutti_lag()`: how far nodes are behind each other with asynchronously replicated rows.
//!
//! Owns: asking the nodes that are there. Never: waits for one that is not.

use tutti_cluster::carrying::{Carriers, Lag};
use tutti_sql::catalog::NodeId;

use crate::client::failure::Failure;
use crate::executor::Executor;

/// Names of its columns.
pub(super) const COLUMNS: [&str; 4] = ["home", "node", "bytes", "seconds"];

impl Executor<'_> {
    pub(super) async fn lag(&mut self) -> Result<Vec<Vec<Option<String>>>, Failure> {
        let cluster = self.tx.registry.cluster.clone();
        if !self.tx.catalog.has_async {
            return Ok(Vec::new());
        }
        let nodes = self.tx.catalog.nodes.clone();
        let carriers = Carriers::new(&cluster.config.cluster, nodes.iter().copied());
        let mut rows = Vec::new();
        for home in &nodes {
            if !cluster.availability.is_there(*home) {
                let unknown = |node: &NodeId| {
                    vec![Some(home.to_string()), Some(node.to_string()), None, None]
                };
                rows.extend(nodes.iter().filter(|node| *node != home).map(unknown));
                continue;
            }
            let mut connection = cluster.connections.checkout(*home).await?;
            let found = carriers.lag(&mut connection).await;
            cluster.connections.release(connection);
            let row = |lag: Lag| {
                let seconds = lag.behind.map(|behind| format!("{:.3}", behind.as_secs_f64()));
                vec![
                    Some(lag.from.to_string()),
                    Some(lag.to.to_string()),
                    lag.bytes.map(|bytes| bytes.to_string()),
                    seconds,
                ]
            };
            rows.extend(found?.into_iter().map(row));
        }
        Ok(rows)
    }
}
