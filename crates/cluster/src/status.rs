//! `tutti status`: what the cluster looks like now, for a person to read.
//!
//! Owns: asking every node, even when some do not answer, and laying out the answers in columns.
//! Never: changes anything.
//! Start reading at [`status`].

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tokio::time::timeout;
use tutti_configuration::Config;
use tutti_link::connection::{Credentials, NodeConnection, settle_on_newest};
use tutti_link::{Endpoint, Endpoints};
use tutti_sql::catalog::{MapId, Maps, NodeId, Placement, Relation, RelationKind};

use crate::Boxed;
use crate::audit::background::{self, LastAudit};
use crate::catalog::{self, Answer};
use crate::error::{GatewayError, in_full};
use crate::gateways::{self, GatewayThere};
use crate::recovery::{self, Foreign, InDoubt, Recoverer};
use crate::setup::check_identity;

/// A node that has not answered within this is down.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);

/// The cluster at one time. `Display` writes aligned tables.
#[derive(Clone, Debug)]
pub struct Status {
    /// The cluster's name.
    pub cluster: String,
    /// As configured, in order.
    pub nodes: Vec<NodeStatus>,
    /// Those that are there, the one that leads first; empty if node 1 does not answer.
    pub gateways: Vec<GatewayThere>,
    /// Tables by schema and name; empty if node 1 does not answer.
    pub tables: Vec<TableStatus>,
    /// Buckets of each map by node: slices of hashes, or ranges.
    pub buckets: BTreeMap<MapId, BTreeMap<NodeId, usize>>,
    /// Transactions that are prepared on the nodes that answer.
    pub in_doubt: Vec<InDoubt>,
    /// What the last background audit found, if there was one.
    pub audit: Option<LastAudit>,
    /// Transactions prepared there that are not the cluster's.
    pub foreign: Vec<Foreign>,
}

/// One server.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// Which node.
    pub id: NodeId,
    /// `host:port`.
    pub address: String,
    /// What it reports, or why it does not answer.
    pub answer: Result<NodeFacts, String>,
}

/// What a node that answers reports.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// `server_version`.
    pub version: String,
    /// Prepared transactions of this cluster.
    pub prepared: u64,
    /// Age of the oldest of them, in seconds; a running commit's is near zero.
    pub oldest_prepared_s: Option<f64>,
    /// Estimated rows of each table by qualified name; tables that were never analysed are missing.
    row_estimates: BTreeMap<String, u64>,
}

/// One table.
#[derive(Clone, Debug)]
pub struct TableStatus {
    /// `schema.name`, as stored.
    pub name: String,
    /// `hash`, `round robin`, `replicated` or `node 1 only`.
    pub placement: &'static str,
    /// The distribution key.
    pub key: Option<String>,
    /// Its bucket map.
    pub map: Option<MapId>,
    /// Estimated rows, by node in order; `None` where the node is down or has not analysed it.
    pub row_estimates: Vec<Option<u64>>,
}

/// Asks all nodes. A node that does not answer is part of the status, not an error.
///
/// Errors: node 1 answers, but its catalog cannot be read.
///
/// A box, so that not every calling program compiles it again.
pub fn status(config: &Config) -> Boxed<'_, Result<Status, GatewayError>> {
    Box::pin(ask_all(config))
}

async fn ask_all(config: &Config) -> Result<Status, GatewayError> {
    let mut asked = Vec::with_capacity(config.nodes.len());
    let endpoints = Endpoints::new(config);
    for endpoint in endpoints.iter() {
        let (config, endpoint) = (config.clone(), endpoint.clone());
        asked.push(tokio::spawn(async move {
            let asked = ask(&config, &endpoint);
            timeout(ANSWER_PATIENCE, asked).await.map_err(|_| "no answer".to_owned())
        }));
    }
    let mut nodes = Vec::with_capacity(config.nodes.len());
    let (mut loaded, mut audit, mut gateways) = (None, None, Vec::new());
    let mut cluster_id: Option<String> = None;
    for (endpoint, asked) in endpoints.iter().zip(asked) {
        let id = endpoint.node();
        let answered = asked.await.map_err(|error| error.to_string()).flatten();
        let answer = match answered {
            Ok(Ok((_, identity, _))) if cluster_id.as_ref().is_some_and(|id| *id != identity) => {
                Err(format!("it belongs to another cluster (its id is {identity})"))
            }
            Ok(Ok((mut connection, identity, facts))) => {
                cluster_id.get_or_insert(identity);
                if id == NodeId::HOME {
                    loaded = Some(catalog::load(&mut connection).await?);
                    // A gateway of this version creates their tables.
                    audit = background::last(&mut connection).await.ok().flatten();
                    gateways = gateways::all(&mut connection).await.unwrap_or_default();
                }
                connection.close();
                Ok(facts)
            }
            Ok(Err(error)) => Err(in_full(&error)),
            Err(why) => Err(why),
        };
        nodes.push(NodeStatus { id, address: endpoint.address().to_string(), answer });
    }
    let catalog = loaded.unwrap_or_default();
    let mut buckets: BTreeMap<MapId, BTreeMap<NodeId, usize>> = BTreeMap::new();
    for (map, owners) in &catalog.maps {
        for owner in owners.nodes_of_keys() {
            *buckets.entry(*map).or_default().entry(*owner).or_default() += 1;
        }
    }
    let relations = catalog.relations.values().flat_map(|schema| schema.values());
    let mut tables: Vec<_> = relations
        .filter(|relation| relation.kind == RelationKind::Table)
        .map(|relation| table_status(relation, &catalog.maps, &nodes))
        .collect();
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    let mut recoverer = Recoverer::by(config, &endpoints)?;
    let in_doubt = recovery::list_in_doubt(&mut recoverer).await?;
    let foreign = recovery::list_foreign(&mut recoverer).await?;
    let cluster = config.cluster.clone();
    Ok(Status { cluster, nodes, gateways, tables, buckets, in_doubt, foreign, audit })
}

async fn ask(
    config: &Config,
    endpoint: &Endpoint,
) -> Result<(NodeConnection, String, NodeFacts), GatewayError> {
    let settings = [("application_name", "tutti status"), ("client_encoding", "UTF8")];
    let own = endpoint.config();
    let credentials = Credentials::of_gateway(own);
    settle_on_newest(endpoint).await?;
    let mut connection = NodeConnection::open(endpoint, &own.user, &credentials, &settings).await?;
    let cluster_id = check_identity(&mut connection, config, None).await?;
    let facts = read_facts(&mut connection, &config.cluster).await?;
    Ok((connection, cluster_id, facts))
}

async fn read_facts(
    connection: &mut NodeConnection,
    cluster: &str,
) -> Result<NodeFacts, GatewayError> {
    let node = connection.node();
    // The cluster's name is checked to be [a-z0-9]; the underscores are literal in a regular
    // expression.
    let summary = format!(
        "SELECT pg_catalog.current_setting('server_version'), count(*),
    extract(epoch FROM max(pg_catalog.clock_timestamp() - prepared))
FROM pg_catalog.pg_prepared_xacts
WHERE database = pg_catalog.current_database() AND gid ~ '^tutti_{cluster}_[0-9]'"
    );
    let rows = connection.rows(&summary).await?;
    let answer = Answer { node, what: "its status", rows: &rows };
    let oldest = answer.optional(0, 2).map(|text| text.parse().map_err(|_| answer.unreadable()));
    let mut facts = NodeFacts {
        version: answer.text(0, 0)?.to_owned(),
        prepared: answer.number(0, 1)?,
        oldest_prepared_s: oldest.transpose()?,
        row_estimates: BTreeMap::new(),
    };
    // -1 means never analysed; then the statistics collector's count is at least a recent estimate.
    let rows = connection
        .rows(
            "SELECT n.nspname || '.' || c.relname,
    CASE WHEN c.reltuples >= 0 THEN c.reltuples::pg_catalog.int8
         ELSE pg_catalog.pg_stat_get_live_tuples(c.oid) END
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname <> ALL ('{pg_catalog,information_schema,pg_toast}')",
        )
        .await?;
    let answer = Answer { node, what: "row estimates", rows: &rows };
    for row in 0..answer.len() {
        facts.row_estimates.insert(answer.text(row, 0)?.to_owned(), answer.number(row, 1)?);
    }
    Ok(facts)
}

fn table_status(relation: &Relation, maps: &Maps, nodes: &[NodeStatus]) -> TableStatus {
    let name = format!("{}.{}", relation.schema, relation.name);
    let (placement, key, map) = match &relation.placement {
        Placement::Hash { map, .. } | Placement::HashOfSeveral { map, .. } => {
            let word = maps.get(map).map_or("hash", |it| it.bucketing.word());
            (word, relation.key_names(), Some(*map))
        }
        Placement::RoundRobin => ("round robin", None, None),
        Placement::Replicated => ("replicated", None, None),
        Placement::Async { key, map, stage, .. } => {
            (stage.words(), Some(relation.columns[*key].name.clone()), Some(*map))
        }
        Placement::Home => ("node 1 only", None, None),
    };
    let estimate = |node: &NodeStatus| {
        node.answer.as_ref().ok().and_then(|facts| facts.row_estimates.get(&name).copied())
    };
    let row_estimates = nodes.iter().map(estimate).collect();
    TableStatus { name, placement, key, map, row_estimates }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "cluster {}\n", self.cluster)?;
        let header = ["node", "address", "state", "version", "in doubt or committing"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        for node in &self.nodes {
            let [state, version, prepared] = match &node.answer {
                Ok(facts) => ["up".to_owned(), facts.version.clone(), facts.prepared_text()],
                Err(why) => [format!("down: {why}"), "-".to_owned(), "-".to_owned()],
            };
            rows.push(vec![node.id.to_string(), node.address.clone(), state, version, prepared]);
        }
        write_table(f, &rows)?;

        let header = ["gateway", "state", "since"].map(str::to_owned).to_vec();
        let gateways = self.gateways.iter().map(|GatewayThere { address, leads, since }| {
            let state = if *leads { "leads" } else { "follows" };
            vec![address.clone(), state.to_owned(), since.clone()]
        });
        let rows: Vec<_> = std::iter::once(header).chain(gateways).collect();
        write_table_if_any(f, &rows)?;

        let node_names: Vec<_> = self.nodes.iter().map(|node| node.id.to_string()).collect();
        let header = ["table", "placement", "key", "map"].map(str::to_owned);
        let estimates = node_names.iter().map(|node| format!("rows on {node} (estimate)"));
        let mut rows = vec![header.into_iter().chain(estimates).collect()];
        for table in &self.tables {
            let mut row = vec![
                table.name.clone(),
                table.placement.to_owned(),
                table.key.clone().unwrap_or_else(|| "-".to_owned()),
                table.map.map_or_else(|| "-".to_owned(), |map| map.0.to_string()),
            ];
            let number = |count: &Option<u64>| count.map_or("-".to_owned(), |n| n.to_string());
            row.extend(table.row_estimates.iter().map(number));
            rows.push(row);
        }
        writeln!(f)?;
        write_table(f, &rows)?;

        let buckets = node_names.iter().map(|node| format!("buckets on {node}"));
        let mut rows = vec![std::iter::once("map".to_owned()).chain(buckets).collect()];
        for (map, owners) in &self.buckets {
            let count = |node: &NodeStatus| owners.get(&node.id).copied().unwrap_or(0).to_string();
            rows.push(
                std::iter::once(map.0.to_string()).chain(self.nodes.iter().map(count)).collect(),
            );
        }
        writeln!(f)?;
        write_table(f, &rows)?;
        if let Some(audit) = &self.audit {
            let count = audit.findings.len();
            writeln!(f, "\nlast audit at {}: {count} findings", audit.at)?;
            for finding in &audit.findings {
                writeln!(f, "{finding}")?;
            }
            for unchecked in &audit.unchecked {
                writeln!(f, "not checked: {unchecked}")?;
            }
        }

        let header = ["in doubt or committing", "prepared on", "since", "decision"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        for doubt in &self.in_doubt {
            let decision = doubt.decision.map_or("not known".to_owned(), |found| found.to_string());
            let (gid, nodes) = (doubt.gid.to_string(), doubt.nodes_text());
            rows.push(vec![gid, nodes, doubt.since.clone(), decision]);
        }
        write_table_if_any(f, &rows)?;

        let header = ["prepared by others", "prepared on", "since", "owner"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        for Foreign { gid, node, owner, since } in &self.foreign {
            // Any client may have chosen it.
            let gid = gid.escape_debug().to_string();
            rows.push(vec![gid, node.to_string(), since.clone(), owner.clone()]);
        }
        write_table_if_any(f, &rows)
    }
}

impl NodeFacts {
    fn prepared_text(&self) -> String {
        match self.oldest_prepared_s {
            Some(age_s) => format!("{} (oldest {age_s:.1} s)", self.prepared),
            None => "0".to_owned(),
        }
    }
}

/// Writes an empty line and the table, if it has more than its header.
fn write_table_if_any(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    if rows.len() <= 1 {
        return Ok(());
    }
    writeln!(f)?;
    write_table(f, rows)
}

/// Writes rows with columns as wide as their widest cell; the first row is the header.
fn write_table(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let mut widths = vec![0; rows.first().map_or(0, Vec::len)];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for (position, row) in rows.iter().enumerate() {
        let line: String =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}  ")).collect();
        writeln!(f, "{}", line.trim_end())?;
        if position == 0 {
            let rule: Vec<_> = widths.iter().map(|width| "-".repeat(*width)).collect();
            writeln!(f, "{}", rule.join("  "))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tutti_txn::decision::Decision;

    use super::*;

    #[test]
    fn columns_are_aligned() {
        let node =
            |id, answer| NodeStatus { id: NodeId(id), address: "db:5432".to_owned(), answer };
        let facts = NodeFacts {
            version: "18.1".to_owned(),
            prepared: 2,
            oldest_prepared_s: Some(61.04),
            row_estimates: BTreeMap::from([("public.orders".to_owned(), 12)]),
        };
        let nodes = vec![node(1, Ok(facts)), node(2, Err("no route".to_owned()))];
        let table = TableStatus {
            name: "public.orders".to_owned(),
            placement: "hash",
            key: Some("customer".to_owned()),
            map: Some(MapId(1)),
            row_estimates: vec![Some(12), None],
        };
        let buckets =
            BTreeMap::from([(MapId(1), BTreeMap::from([(NodeId(1), 512), (NodeId(2), 512)]))]);
        let doubt = InDoubt {
            gid: "tutti_main_4_17_1".parse().unwrap(),
            nodes: [NodeId(1), NodeId(2)].into(),
            since: "2026-11-21 06:00:00+00".to_owned(),
            decision: Some(Decision::Committed),
        };
        let there = |address: &str, leads| GatewayThere {
            address: address.to_owned(),
            leads,
            since: "2026-11-21 06:00:00+00".to_owned(),
        };
        let gateways = vec![there("10.0.0.7:7432", true), there("10.0.0.8:7432", false)];
        let (cluster, tables, in_doubt) = ("main".to_owned(), vec![table], vec![doubt]);
        let foreign = vec![Foreign {
            gid: "it's\nmine".to_owned(),
            node: NodeId(2),
            owner: "ann".to_owned(),
            since: "2026-11-21 06:00:00+00".to_owned(),
        }];
        let status =
            Status { cluster, nodes, gateways, tables, buckets, in_doubt, foreign, audit: None };
        let expected = "\
cluster main

node  address  state           version  in doubt or committing
----  -------  --------------  -------  ----------------------
n1    db:5432  up              18.1     2 (oldest 61.0 s)
n2    db:5432  down: no route  -        -

gateway        state    since
-------------  -------  ----------------------
10.0.0.7:7432  leads    2026-11-21 06:00:00+00
10.0.0.8:7432  follows  2026-11-21 06:00:00+00

table          placement  key       map  rows on n1 (estimate)  rows on n2 (estimate)
-------------  ---------  --------  ---  ---------------------  ---------------------
public.orders  hash       customer  1    12                     -

map  buckets on n1  buckets on n2
---  -------------  -------------
1    512            512

in doubt or committing  prepared on  since                   decision
----------------------  -----------  ----------------------  ---------
tutti_main_4_17_1       n1, n2       2026-11-21 06:00:00+00  committed

prepared by others  prepared on  since                   owner
------------------  -----------  ----------------------  -----
it\\'s\\nmine         n2           2026-11-21 06:00:00+00  ann
";
        assert_eq!(status.to_string(), expected);
    }
}
