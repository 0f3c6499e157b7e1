//! Whether what is published matches the nodes, for tests (`Switches::check_catalog`).
//!
//! Owns: the comparison of the published catalog and OIDs with one read from scratch.
//! Never: runs in production, changes what is published, or judges while others
//! change the schema.
//! Start reading at [`difference`].

use std::sync::Arc;
use std::time::Duration;

use tutti_link::control_pool::ControlPool;
use tutti_link::translation::OidMaps;
use tutti_sql::catalog::{Catalog, NodeId};
use tutti_sql::closure::Code;

use super::{NodeOids, Publisher, oids, reload};
use crate::error::GatewayError;

/// Within this, what others have committed and not yet published gets published.
const PAUSE: Duration = Duration::from_millis(40);
const ATTEMPTS: u32 = 25;

/// What is published and does not exist, or exists and is not published, in words. `None`: nothing,
/// or it cannot be told because the schema is being changed or a node does not answer.
pub async fn difference(publisher: &Publisher, connections: &ControlPool) -> Option<String> {
    let mut found = None;
    for _ in 0..ATTEMPTS {
        let (published, known) = (publisher.catalog(), publisher.oids());
        let (there, numbers) = read_anew(connections, &published).await.ok()?;
        if Arc::ptr_eq(&published, &publisher.catalog()) {
            found = compare(&published, &there).or_else(|| {
                let lack = known.lack_of(&numbers);
                (!lack.is_empty()).then(|| format!("not known: {}", lack.join("; ")))
            });
            found.as_ref()?;
        }
        tokio::time::sleep(PAUSE).await;
    }
    found
}

fn compare(published: &Catalog, there: &Catalog) -> Option<String> {
    let (published, there) = (published.facts(), there.facts());
    let list = |one: &std::collections::BTreeSet<String>, other| {
        one.difference(other).take(5).cloned().collect::<Vec<_>>().join("; ")
    };
    (published != there).then(|| {
        format!(
            "published and not there: {}; there and not published: {}",
            list(&published, &there),
            list(&there, &published)
        )
    })
}

async fn read_anew(
    connections: &ControlPool,
    published: &Catalog,
) -> Result<(Catalog, OidMaps), GatewayError> {
    let mut connection = connections.checkout(NodeId::HOME).await?;
    // Only what no client can change is taken from what is published.
    let built_in = Arc::clone(published.code.built_in());
    let start = Catalog {
        builtin_functions: Arc::clone(&published.builtin_functions),
        builtin_relations: Arc::clone(&published.builtin_relations),
        code: Arc::new(Code::new(built_in)),
        home_by_default: published.home_by_default,
        ..Catalog::default()
    };
    let there = reload(&mut connection, &start).await?;
    let home = NodeOids::load(&mut connection).await?;
    connections.release(connection);
    let mut others = Vec::new();
    for node in published.nodes.iter().copied().filter(|node| *node != NodeId::HOME) {
        let mut connection = connections.checkout(node).await?;
        others.push((node, NodeOids::load(&mut connection).await?));
        connections.release(connection);
    }
    Ok((there, oids::compare(&home, &others)))
}
