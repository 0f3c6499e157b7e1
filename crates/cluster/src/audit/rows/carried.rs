//! Copies of asynchronously replicated tables, which may differ as long as rows are on their way.
//!
//! Owns: waiting for these, and what is certain all the same. Never: counts a row.
//! Start reading at [`Comparison::may_be_late`].
//!
//! Copies that differ at one moment prove nothing. If all that was written before it has arrived, and at the next
//! moment they differ in the same way, then nothing was on its way that could have made them alike.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tutti_configuration::Config;
use tutti_link::connection::{Durability, Endpoint, open_own};
use tutti_sql::catalog::NodeId;

use super::{Comparison, Seen, Sums, shown};
use crate::audit::Report;
use crate::audit::moment::{Moment, Name};
use crate::carrying::Carriers;
use crate::error::GatewayError;

/// How long rows are waited for.
const PATIENCE: Duration = Duration::from_secs(10);

impl Comparison<'_> {
    /// Whether copies that differ may do so because rows are late. Remembers how they differ.
    pub(super) fn may_be_late(
        &mut self,
        name: &Name,
        node: NodeId,
        here: Sums,
        expected: Sums,
    ) -> bool {
        let table = self.tables.get(&self.reference).and_then(|tables| tables.get(name));
        if table.is_none_or(|table| table.placement != "async") {
            return false;
        }
        let before = self.seen.insert((name.clone(), node), (here, expected));
        before != Some((here, expected))
    }

    /// Waits until all that nodes have written by now has arrived on the others. Returns what has not, in words.
    pub(super) async fn wait_for_arrival(
        config: &Config,
        moment: &Moment,
    ) -> Result<Option<String>, GatewayError> {
        if let Some((node, _)) = moment.away.iter().next() {
            return Ok(Some(format!("node {node} is away, and rows are kept for it")));
        }
        let nodes: Vec<_> = config.nodes.iter().map(|node| NodeId(node.id)).collect();
        let carriers = Carriers::new(&config.cluster, nodes);
        let mut lacks: BTreeMap<NodeId, NodeId> = BTreeMap::new();
        for place in &config.nodes {
            let endpoint = Endpoint::new(place, &config.database);
            let mut connection = open_own(&endpoint, "tutti audit", Durability::Relaxed).await?;
            let written = carriers.place(&mut connection).await?;
            let missing = carriers.wait_for_arrival(&mut connection, &written, PATIENCE).await?;
            lacks.extend(missing.into_iter().map(|node| (node, NodeId(place.id))));
            connection.close();
        }
        let words = |(node, from): (&NodeId, &NodeId)| format!("node {node} lacks rows of {from}");
        let words: Vec<_> = lacks.iter().map(words).collect();
        Ok((!words.is_empty()).then(|| words.join("; ")))
    }

    /// What is late cannot be judged.
    pub(super) fn give_up(
        seen: &mut Seen,
        wanted: &mut Option<BTreeSet<Name>>,
        why: &str,
        report: &mut Report,
    ) {
        let late: BTreeSet<Name> = seen.keys().map(|(name, _)| name.clone()).collect();
        for name in late {
            report.unchecked(format!("table {}", shown(&name)), why.to_owned());
            if let Some(wanted) = wanted {
                wanted.remove(&name);
            }
        }
        seen.clear();
    }
}
