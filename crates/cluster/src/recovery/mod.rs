//! Settling what an earlier gateway left in doubt, and cleaning up after commits.
//!
//! Owns: the listing of prepared transactions, the driving of [`tutti_txn::recovery`], and the removal of
//! decisions no longer needed; in `fence`, that one gateway serves a cluster.
//! Never: decides. The record on the anchor does; `docs/protocol/anchored-commit.md` says why.
//! Start reading at [`Recoverer::settle_in_doubt`], then `driver`. While the gateway serves: `watch`
//! (one task per node, sees what is in doubt there), `resolver` (settles it), `forget`.
//!
//! **Fencing.** Listing a node shows that nothing is left only if no backend of a dead gateway can
//! still prepare there: `fence` ends them first. As a second line, nodes are listed again until no
//! PREPARE TRANSACTION of a transaction in doubt runs, and while the gateway serves, every node is
//! listed periodically, and what belongs to earlier incarnations is settled.

mod driver;
pub mod fence;
pub mod forget;
mod outcome;
pub mod resolver;
pub(crate) mod timelines;
mod trespass;
pub mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tutti_configuration::Config;
use tutti_link::connection::NodeConnection;
use tutti_link::{Endpoint, Endpoints};
use tutti_sql::catalog::{NodeId, quote_literal};
use tutti_txn::decision::Decision;
use tutti_txn::gid::{ClusterTag, Gid};
use tutti_txn::recovery::in_doubt;

use crate::catalog::Answer;
use crate::cluster::Cluster;
use crate::error::GatewayError;
use crate::numbers::{is_of, sql_node, txn_node};

pub use self::fence::is_served;
pub(crate) use self::fence::{LOCK_INTERVAL, open};
pub use self::fence::{LOCK_PATIENCE, fence, gateway_lock, newest_incarnation, next_incarnation};
pub use self::outcome::{Foreign, InDoubt};
pub use self::outcome::{list_foreign, list_in_doubt, outcome};

/// How often the nodes are listed before an operator must intervene.
const ROUNDS_MAX: u32 = 100;
const ROUND_PAUSE: Duration = Duration::from_millis(100);
/// How long one transaction may take to settle while the gateway starts.
const SETTLE_PATIENCE: Duration = Duration::from_secs(30);
/// Rounds of waiting for backends that prepare for an earlier gateway, before they are ended.
const ROUNDS_OF_PATIENCE: u32 = 20;
/// What may be forgotten only by age: records that a client was told to ask for (08007), and
/// refusals, for a gateway that was wrongly taken for dead may still try to record the other
/// decision.
const RECORDS_KEPT: &str = "7 days";
/// What this cluster has prepared on a node, and since when.
const PREPARED: &str = "SELECT gid FROM pg_catalog.pg_prepared_xacts
WHERE database = pg_catalog.current_database()";

/// How many transactions were settled, and how.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Settled {
    /// Committed where they were still prepared.
    pub committed: u64,
    /// Rolled back.
    pub aborted: u64,
}

/// Connections to the nodes, opened when first needed, and what recovery does with them.
///
/// Worth keeping for repeated sweeps.
#[derive(Debug)]
pub struct Recoverer {
    endpoints: Endpoints,
    cluster: ClusterTag,
    connections: BTreeMap<NodeId, NodeConnection>,
}

/// What the nodes list at one time.
struct Listing {
    in_doubt: BTreeMap<Gid, BTreeSet<NodeId>>,
    /// A PREPARE of an old incarnation is running somewhere.
    still_preparing: bool,
}

impl Recoverer {
    /// Opens nothing yet.
    ///
    /// Errors: [`GatewayError::ClusterName`].
    pub fn new(config: &Config) -> Result<Self, GatewayError> {
        Self::by(config, &Endpoints::new(config))
    }

    /// The same over endpoints of this configuration that have state already.
    pub fn by(config: &Config, endpoints: &Endpoints) -> Result<Self, GatewayError> {
        let cluster = config
            .cluster
            .parse()
            .map_err(|_| GatewayError::ClusterName { name: config.cluster.clone() })?;
        Ok(Self { endpoints: endpoints.clone(), cluster, connections: BTreeMap::new() })
    }

    /// For a cluster that is served.
    pub fn of(cluster: &Cluster) -> Self {
        let (endpoints, cluster) = (cluster.endpoints.clone(), cluster.tag().clone());
        Self { endpoints, cluster, connections: BTreeMap::new() }
    }

    /// Settles every prepared transaction of incarnations before `incarnation`. For the start of a
    /// gateway, which has none of its own yet, before it serves. What a later gateway prepares it leaves
    /// alone: that may have taken over while this one stood still, and is alive.
    ///
    /// If new ones keep appearing, they are late or not a gateway's: what was there
    /// at the beginning is settled, and the watch settles the rest.
    ///
    /// Errors: a node that does not answer.
    pub async fn settle_in_doubt(&mut self, incarnation: u64) -> Result<Settled, GatewayError> {
        let mut settled = Settled::default();
        let mut last = String::new();
        for round in 0..ROUNDS_MAX {
            let listing = self.list(incarnation).await?;
            if listing.in_doubt.is_empty() && !listing.still_preparing {
                return Ok(settled);
            }
            last = listing.in_doubt.keys().map(Gid::to_string).collect::<Vec<_>>().join(", ");
            if listing.in_doubt.is_empty() {
                if ROUNDS_OF_PATIENCE < round {
                    self.end_preparing().await?;
                }
                tokio::time::sleep(ROUND_PAUSE).await;
            }
            self.settle_all(listing, &mut settled).await?;
        }
        tracing::warn!(
            gids = last,
            rounds = ROUNDS_MAX,
            "transactions keep being prepared that are not ours"
        );
        Ok(settled)
    }

    /// Ends backends that prepare a transaction of this cluster: no gateway is waiting for them.
    async fn end_preparing(&mut self) -> Result<(), GatewayError> {
        let own = format!("'tutti_{}_[0-9]+_[0-9]+_[0-9]+'", self.cluster);
        let sql = format!(
            "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
WHERE datname = pg_catalog.current_database() AND state = 'active'
    AND query ~* {}",
            quote_literal(&format!("^\\s*PREPARE\\s+TRANSACTION\\s+{own}\\s*$"))
        );
        for node in self.nodes() {
            self.connection(node).await?.rows(&sql).await?;
        }
        Ok(())
    }

    /// Settles prepared transactions of incarnations before `incarnation`, as far as they are visible
    /// now. For a serving gateway, every few seconds.
    pub async fn sweep(&mut self, incarnation: u64) -> Result<Settled, GatewayError> {
        let mut settled = Settled::default();
        let listing = self.list(incarnation).await?;
        self.settle_all(listing, &mut settled).await?;
        Ok(settled)
    }

    async fn settle_all(
        &mut self,
        listing: Listing,
        settled: &mut Settled,
    ) -> Result<(), GatewayError> {
        for (gid, nodes) in listing.in_doubt {
            let nodes = nodes.into_iter().collect();
            let decision = self.settle(&gid, &nodes, SETTLE_PATIENCE).await?;
            tracing::info!(%gid, %decision, "settled a transaction that was in doubt");
            match decision {
                Decision::Committed => settled.committed += 1,
                Decision::Aborted => settled.aborted += 1,
            }
        }
        Ok(())
    }

    /// Lists what incarnations before `incarnation` have prepared, or are preparing, on all nodes.
    async fn list(&mut self, incarnation: u64) -> Result<Listing, GatewayError> {
        // Statements are listed before prepared transactions: one that ends in between is in the second list.
        // A gateway's PREPARE is the whole text; a text with more after it may run for long after it has
        // prepared.
        const PREPARING: &str = "SELECT query FROM pg_catalog.pg_stat_activity
            WHERE datname = pg_catalog.current_database() AND state = 'active'
                AND query ~* '^\\s*PREPARE\\s+TRANSACTION\\s+''[^'']*''\\s*$'";
        let mut prepared = Vec::new();
        let mut still_preparing = false;
        for node in self.nodes() {
            let connection = self.connection(node).await?;
            let preparing = connection.rows(PREPARING).await?;
            let rows = connection.rows(PREPARED).await?;
            let of = |text: &str| -> Option<Gid> { text.parse().ok() };
            let answer = Answer { node, what: "statements that prepare", rows: &preparing };
            for row in 0..answer.len() {
                let gid = answer.text(row, 0)?.split('\'').nth(1).and_then(of);
                still_preparing |= gid.is_some_and(|gid| {
                    gid.cluster == self.cluster
                        && gid.incarnation < incarnation
                        && is_of(&gid, &self.nodes())
                });
            }
            let answer = Answer { node, what: "prepared transactions", rows: &rows };
            for row in 0..answer.len() {
                prepared.push((node, answer.text(row, 0)?.to_owned()));
            }
        }
        let listed = prepared.iter().map(|(node, gid)| (txn_node(*node), gid.as_str()));
        let mut in_doubt: BTreeMap<Gid, BTreeSet<NodeId>> =
            in_doubt(&self.cluster, incarnation, listed)
                .into_iter()
                .map(|(gid, nodes)| (gid, nodes.into_iter().map(sql_node).collect()))
                .collect();
        let nodes = self.nodes();
        in_doubt.retain(|gid, _| is_of(gid, &nodes));
        Ok(Listing { in_doubt, still_preparing })
    }

    /// Removes the records of transactions that are applied on all their nodes.
    pub async fn forget_decisions(&mut self, applied: &[Gid]) -> Result<(), GatewayError> {
        let mut by_anchor: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
        for gid in applied {
            by_anchor.entry(sql_node(gid.anchor)).or_default().push(gid.to_string());
        }
        for (anchor, gids) in by_anchor {
            // Gids are made of [a-z0-9_] only.
            let list = gids.join(",");
            let sql = format!("DELETE FROM tutti.decision WHERE gid = ANY ('{{{list}}}')");
            self.connection(anchor).await?.rows(&sql).await?;
        }
        Ok(())
    }

    /// Removes records of incarnations up to `incarnation` that are old. Returns how many.
    ///
    /// Most records are removed long before, see [`Self::forget_decisions`]. Only those of
    /// transactions in whose commit something failed, and refusals, are kept until here.
    pub async fn clean_decisions(&mut self, incarnation: u64) -> Result<u64, GatewayError> {
        let listing = self.list(u64::MAX).await?;
        let in_doubt: Vec<_> = listing.in_doubt.keys().map(Gid::to_string).collect();
        let own = format!("^tutti_{}_[0-9]{{1,18}}_[0-9]+_[0-9]+$", self.cluster);
        let sql = format!(
            "DELETE FROM tutti.decision WHERE CASE WHEN gid ~ '{own}'
    THEN pg_catalog.split_part(gid, '_', 3)::pg_catalog.int8 <= {}
        AND at < pg_catalog.now() - '{RECORDS_KEPT}'::pg_catalog.interval
        AND gid <> ALL ('{{{}}}')
    ELSE false END",
            i64::try_from(incarnation).unwrap_or(i64::MAX),
            in_doubt.join(",")
        );
        let mut removed = 0;
        for node in self.nodes() {
            let tag = self.connection(node).await?.rows(&sql).await?.tag;
            let count = tag.strip_prefix("DELETE ").and_then(|count| count.parse::<u64>().ok());
            removed += count.ok_or(GatewayError::Unreadable { node, what: "removed decisions" })?;
        }
        Ok(removed)
    }

    fn nodes(&self) -> Vec<NodeId> {
        self.endpoints.iter().map(Endpoint::node).collect()
    }
}
