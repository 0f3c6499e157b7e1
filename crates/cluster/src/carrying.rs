//! Carrying rows of asynchronously replicated tables from their home to the other nodes, by PostgreSQL's own
//! logical replication.
//!
//! Owns: what each node publishes, the slots and subscriptions between every two nodes, how far behind they
//! are, and whether they have arrived. Never: knows a placement, or writes a row.
//! Start reading at [`Carriers::set_up`]; why it is so is in docs/decisions/2026-11-25-replicated-async.md.
//!
//! Each row has a home, the node of its key's bucket, and is written there only. Every node publishes the rows
//! whose home it is ([`filter_sql`]) and subscribes to all others. A row that has arrived by replication is not
//! of the node's own home, so the filter keeps it from being sent on: there is no loop, though PostgreSQL 15
//! cannot tell where a change comes from.
//!
//! What the filter does not apply to is not published: TRUNCATE would go round for ever.
//!
//! A change that arrives for a table which the subscription does not know yet is dropped silently, and one
//! for a table that is not there stops all that comes behind it. So a table is published and subscribed to
//! everywhere before its first write ([`Carriers::begin`]), and is withdrawn only when all has arrived
//! ([`Carriers::wait_for_arrival`], [`Carriers::end`]); what changes its definition has to do both.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tutti_link::connection::{NodeConnection, NodeError};
use tutti_sql::catalog::{BucketMap, CARRIERS, NodeId, quote_identifier, quote_literal};
use tutti_sql::hash::{BUCKET_COUNT, Bucket, KeyType};
use tutti_sql::refusal::Refusal;
use tutti_wire::sqlstate;

use crate::catalog::Answer;
use crate::error::GatewayError;

mod reach;

pub use reach::reached_at;

/// What each node publishes, for all tables.
pub const PUBLICATION: &str = CARRIERS;
/// How long a slot waits for the transactions that are open on its node.
const SLOT_PATIENCE: Duration = Duration::from_secs(30);
/// How long what receives rows may go on when it is to end.
const END_PATIENCE: Duration = Duration::from_secs(20);
/// Of the subscriptions `s`: all databases of a server have theirs in one table.
const OF_THIS_DATABASE: &str =
    "s.subdbid OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database AS d
    WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())";
/// How often it is asked whether all has arrived.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The connections of the gateway's own role, outside of transactions, by node.
pub type Connections<'a> = BTreeMap<NodeId, &'a mut NodeConnection>;

/// A table whose rows are carried.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CarriedTable {
    /// Schema, as stored.
    pub schema: String,
    /// Name, as stored.
    pub name: String,
    /// The column of the primary key whose value says where a row's home is.
    pub key: String,
    /// How it hashes.
    pub key_type: KeyType,
}

impl CarriedTable {
    fn sql_name(&self) -> String {
        format!("{}.{}", quote_identifier(&self.schema), quote_identifier(&self.name))
    }
}

/// How far one node is behind another.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Lag {
    /// Where the rows have their home.
    pub from: NodeId,
    /// Where they are still to arrive.
    pub to: NodeId,
    /// Bytes of the write-ahead log of `from` that `to` has not confirmed, also of what does not concern it; `None`:
    /// `from` does not keep them for it any more.
    pub bytes: Option<u64>,
    /// How long ago that was written which was confirmed last; `None`: `to` is not connected.
    pub behind: Option<Duration>,
}

/// What rows on their way are to come to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Awaited {
    /// They have arrived.
    Arrival,
    /// They are on their way no longer: they have arrived or were dropped, or their slot has lost them.
    Passing,
}

/// A place in a node's write-ahead log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place(String);

/// The condition, over the table's own columns, that holds for rows whose home is `node`: of built-in immutable
/// functions only, for publications take no others.
pub fn filter_sql(key: &str, key_type: KeyType, map: &BucketMap, node: NodeId) -> String {
    let bucket = map.bucketing.sql_bucket(key_type, &quote_identifier(key));
    let ranges = ranges_of(map, node);
    if ranges.is_empty() {
        return "false".to_owned();
    }
    let within = |(first, last): (u16, u16)| match first == last {
        true => format!("{bucket} OPERATOR(pg_catalog.=) {first}::pg_catalog.int8"),
        false => format!(
            "({bucket} OPERATOR(pg_catalog.>=) {first}::pg_catalog.int8 \
             AND {bucket} OPERATOR(pg_catalog.<=) {last}::pg_catalog.int8)"
        ),
    };
    // A bucket's hash is computed once where its nodes' buckets are in many pieces.
    match ranges.len() <= 2 {
        true => ranges.into_iter().map(within).collect::<Vec<_>>().join(" OR "),
        false => {
            let buckets = ranges.iter().flat_map(|(first, last)| *first..=*last);
            let buckets: Vec<_> = buckets.map(|bucket| bucket.to_string()).collect();
            format!(
                "{bucket} OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.int8[])",
                buckets.join(",")
            )
        }
    }
}

/// The node's buckets, as ranges from first to last.
fn ranges_of(map: &BucketMap, node: NodeId) -> Vec<(u16, u16)> {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for bucket in (0..BUCKET_COUNT).filter(|bucket| map.node(Bucket(*bucket)) == node) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == bucket => *last = bucket,
            _ => ranges.push((bucket, bucket)),
        }
    }
    ranges
}

/// The carriers of one cluster.
#[derive(Clone, Debug)]
pub struct Carriers {
    cluster: String,
    nodes: BTreeSet<NodeId>,
}

impl Carriers {
    /// `cluster`: its name, in lower case letters, digits and underscores.
    pub fn new(cluster: &str, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        Self { cluster: cluster.to_owned(), nodes: nodes.into_iter().collect() }
    }

    /// The slot on `from` that `to` reads.
    fn slot(&self, from: NodeId, to: NodeId) -> String {
        format!("tutti_{}_{}_{}", self.cluster, from.0, to.0)
    }

    /// The subscription on a node to what `from` publishes.
    fn subscription(from: NodeId) -> String {
        format!("{PUBLICATION}_{}", from.0)
    }

    fn others(&self, node: NodeId) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().copied().filter(move |other| *other != node)
    }

    /// Whether this server can carry rows.
    ///
    /// Errors: 0A000 with what to set in its configuration.
    pub async fn check_server(&self, server: &mut NodeConnection) -> Result<(), GatewayError> {
        let node = server.node();
        let names = [
            "wal_level",
            "max_replication_slots",
            "max_wal_senders",
            "max_logical_replication_workers",
            "max_worker_processes",
        ];
        let asked = names.map(|name| format!("pg_catalog.current_setting('{name}')")).join(", ");
        let rows = server.rows(&format!("SELECT {asked}")).await?;
        let answer = Answer { node, what: "settings of replication", rows: &rows };
        let refused = |name: &str, value: &str, needed: &str| -> GatewayError {
            Refusal::unsupported(
                format!("node {node} cannot carry rows of asynchronously replicated tables"),
                format!(
                    "Its {name} is {value}; PostgreSQL's logical replication between the nodes needs {needed}."
                ),
                format!("Set {name} = {needed} on every node, and restart it."),
            )
            .into()
        };
        let level = answer.text(0, 0)?;
        if level != "logical" {
            return Err(refused(names[0], level, "logical"));
        }
        let others = self.others(node).count();
        for (column, name) in names.iter().enumerate().skip(1) {
            let value: usize = answer.number(0, column)?;
            // What starts the workers is a process of the server's own.
            let needed = others + usize::from(*name == "max_worker_processes");
            if value < needed {
                return Err(refused(name, &value.to_string(), &needed.to_string()));
            }
        }
        Ok(())
    }

    /// Makes what is missing between every two nodes. `reached_at`: how servers reach each of them, as libpq's
    /// connection strings. A slot waits for the transactions that are open on its node.
    ///
    /// Requires: no table is carried. What is missing would have kept rows for it.
    /// Errors: as [`Self::check_server`]; 55000 if transactions on a node do not end; a node's own.
    pub async fn set_up(
        &self,
        connections: &mut Connections<'_>,
        reached_at: &BTreeMap<NodeId, String>,
    ) -> Result<(), GatewayError> {
        for connection in connections.values_mut() {
            self.check_server(connection).await?;
        }
        for (node, connection) in &mut *connections {
            if !exists(connection, "pg_publication", "pubname", PUBLICATION).await? {
                let create = format!(
                    "CREATE PUBLICATION {PUBLICATION} WITH (publish = 'insert, update, delete')"
                );
                connection.rows(&create).await?;
            }
            for to in self.others(*node) {
                let slot = self.slot(*node, to);
                if !exists(connection, "pg_replication_slots", "slot_name", &slot).await? {
                    make_slot(connection, &slot).await?;
                }
            }
        }
        for (node, connection) in &mut *connections {
            for from in self.others(*node) {
                let name = Self::subscription(from);
                if exists(connection, "pg_subscription", "subname", &name).await? {
                    continue;
                }
                let reached = reached_at.get(&from).map_or("", String::as_str);
                let create = format!(
                    "CREATE SUBSCRIPTION {name} CONNECTION {} PUBLICATION {PUBLICATION}
                         WITH (create_slot = false, slot_name = '{}', copy_data = false)",
                    quote_literal(reached),
                    self.slot(from, *node)
                );
                connection.rows(&create).await?;
            }
        }
        Ok(())
    }

    /// What is missing of what [`Self::set_up`] makes, in words: rows of carried tables are lost on their way.
    pub async fn faults(
        &self,
        connections: &mut Connections<'_>,
    ) -> Result<Vec<String>, GatewayError> {
        let mut faults = Vec::new();
        for (node, connection) in &mut *connections {
            if !exists(connection, "pg_publication", "pubname", PUBLICATION).await? {
                faults.push(format!("node {node} publishes nothing"));
            }
            for to in self.others(*node) {
                let sql = format!(
                    "SELECT s.wal_status OPERATOR(pg_catalog.=) 'lost' FROM pg_catalog.pg_replication_slots AS s
WHERE s.slot_name OPERATOR(pg_catalog.=) '{}'",
                    self.slot(*node, to)
                );
                let rows = connection.rows(&sql).await?;
                // NULL: it has never been read from.
                if rows.rows.is_empty() || rows.text(0, 0) == Some("t") {
                    faults.push(format!("node {node} has not kept its rows for node {to}"));
                }
            }
            for from in self.others(*node) {
                let name = Self::subscription(from);
                if !exists(connection, "pg_subscription", "subname", &name).await? {
                    faults.push(format!("node {node} does not receive the rows of node {from}"));
                }
            }
        }
        Ok(faults)
    }

    /// Where rows arrive and are not taken in, in words, with how often that has failed so far: a server that cannot apply a
    /// row tries it again for ever, and lets nothing pass it.
    pub async fn refusals(
        &self,
        connections: &mut Connections<'_>,
    ) -> Result<BTreeMap<String, u64>, GatewayError> {
        let mut refusals = BTreeMap::new();
        for (node, connection) in &mut *connections {
            for from in self.others(*node) {
                let sql = format!(
                    "SELECT s.subenabled, t.apply_error_count FROM pg_catalog.pg_subscription AS s
LEFT JOIN pg_catalog.pg_stat_subscription_stats AS t ON t.subid OPERATOR(pg_catalog.=) s.oid
WHERE s.subname OPERATOR(pg_catalog.=) '{}' AND {OF_THIS_DATABASE}",
                    Self::subscription(from)
                );
                let rows = connection.rows(&sql).await?;
                let failed = rows.text(0, 1).and_then(|count| count.parse().ok()).unwrap_or(0);
                match rows.text(0, 0) {
                    Some("f") => {
                        let what = format!(
                            "node {node} has been told not to receive the rows of node {from}"
                        );
                        refusals.insert(what, failed);
                    }
                    Some(_) if 0 < failed => {
                        refusals.insert(
                            format!("node {node} cannot apply the rows of node {from}"),
                            failed,
                        );
                    }
                    _ => (),
                }
            }
        }
        Ok(refusals)
    }

    /// Subscriptions connect as is configured now.
    pub async fn renew(
        &self,
        connections: &mut Connections<'_>,
        reached_at: &BTreeMap<NodeId, String>,
    ) -> Result<(), GatewayError> {
        for (node, connection) in &mut *connections {
            for from in self.others(*node) {
                let name = Self::subscription(from);
                let reached = quote_literal(reached_at.get(&from).map_or("", String::as_str));
                let sql = format!(
                    "SELECT s.subconninfo OPERATOR(pg_catalog.=) {reached} FROM pg_catalog.pg_subscription AS s
WHERE s.subname OPERATOR(pg_catalog.=) '{name}' AND {OF_THIS_DATABASE}"
                );
                if connection.rows(&sql).await?.text(0, 0) == Some("f") {
                    let alter = format!("ALTER SUBSCRIPTION {name} CONNECTION {reached}");
                    connection.rows(&alter).await?;
                }
            }
        }
        Ok(())
    }

    /// Whether something of it is on one of these nodes.
    pub async fn is_anywhere(
        &self,
        connections: &mut Connections<'_>,
    ) -> Result<bool, GatewayError> {
        for (node, connection) in &mut *connections {
            let mut is_here = exists(connection, "pg_publication", "pubname", PUBLICATION).await?;
            for other in self.others(*node) {
                let (slot, name) = (self.slot(*node, other), Self::subscription(other));
                is_here |= exists(connection, "pg_replication_slots", "slot_name", &slot).await?
                    || exists(connection, "pg_subscription", "subname", &name).await?;
            }
            if is_here {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// From now on rows of the table are carried. Requires: it is on all nodes with the same rows, and no one
    /// writes it before this has returned.
    pub async fn begin(
        &self,
        connections: &mut Connections<'_>,
        table: &CarriedTable,
        map: &BucketMap,
    ) -> Result<(), GatewayError> {
        for (node, connection) in &mut *connections {
            let filter = filter_sql(&table.key, table.key_type, map, *node);
            let name = table.sql_name();
            if is_published(connection, table).await? {
                continue;
            }
            connection
                .rows(&format!("ALTER PUBLICATION {PUBLICATION} ADD TABLE {name} WHERE ({filter})"))
                .await?;
        }
        self.subscribe(connections).await
    }

    /// Rows of the table are carried no longer. Requires: all have arrived, and no one writes it.
    pub async fn end(
        &self,
        connections: &mut Connections<'_>,
        table: &CarriedTable,
    ) -> Result<(), GatewayError> {
        for connection in connections.values_mut() {
            let name = table.sql_name();
            if !is_published(connection, table).await? {
                continue;
            }
            connection.rows(&format!("ALTER PUBLICATION {PUBLICATION} DROP TABLE {name}")).await?;
        }
        self.subscribe(connections).await
    }

    /// Rows of the table are carried no longer, though some may be on their way: they are dropped when they arrive.
    /// Requires: no one writes it; what has arrived somewhere and is not of that node's home is deleted after this.
    ///
    /// Errors: 55000 if a node goes on with what it receives; a node's own.
    pub async fn end_early(
        &self,
        connections: &mut Connections<'_>,
        table: &CarriedTable,
    ) -> Result<(), GatewayError> {
        self.end(connections, table).await?;
        // What receives rows remembers the tables that it has met for as long as it runs.
        for (node, connection) in &mut *connections {
            for from in self.others(*node) {
                let name = Self::subscription(from);
                connection.rows(&format!("ALTER SUBSCRIPTION {name} DISABLE")).await?;
                let ended = wait_for_end(connection, &name).await;
                connection.rows(&format!("ALTER SUBSCRIPTION {name} ENABLE")).await?;
                if !ended? {
                    let message =
                        format!("node {node} does not stop to receive rows of node {from}");
                    return Err(Refusal::postgres("55000", message)
                        .with_hint("Try again; until then the table can be read, and not written.")
                        .into());
                }
            }
        }
        Ok(())
    }

    /// Subscriptions learn which tables are published. What is new has the same rows everywhere.
    async fn subscribe(&self, connections: &mut Connections<'_>) -> Result<(), GatewayError> {
        for (node, connection) in &mut *connections {
            for from in self.others(*node) {
                let name = Self::subscription(from);
                let refresh = format!(
                    "ALTER SUBSCRIPTION {name} REFRESH PUBLICATION WITH (copy_data = false)"
                );
                connection.rows(&refresh).await?;
            }
        }
        Ok(())
    }

    /// How far the others are behind this node.
    pub async fn lag(&self, from: &mut NodeConnection) -> Result<Vec<Lag>, GatewayError> {
        let node = from.node();
        let rows = from
            .rows(
                "SELECT s.slot_name,
    CASE WHEN s.wal_status OPERATOR(pg_catalog.<>) 'lost' THEN greatest(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), s.confirmed_flush_lsn), 0)::pg_catalog.int8 END,
    CASE WHEN s.active THEN coalesce(pg_catalog.date_part('epoch', r.flush_lag), 0) END
FROM pg_catalog.pg_replication_slots AS s
LEFT JOIN pg_catalog.pg_stat_replication AS r ON r.pid OPERATOR(pg_catalog.=) s.active_pid",
            )
            .await?;
        let answer = Answer { node, what: "replication slots", rows: &rows };
        let mut found = Vec::new();
        for to in self.others(node) {
            let slot = self.slot(node, to);
            let row = (0..answer.len()).find(|row| answer.optional(*row, 0) == Some(&slot));
            let Some(row) = row else {
                found.push(Lag { from: node, to, bytes: None, behind: None });
                continue;
            };
            let bytes = match answer.optional(row, 1) {
                Some(_) => Some(answer.number(row, 1)?),
                None => None,
            };
            let behind = match answer.optional(row, 2) {
                Some(_) => Duration::try_from_secs_f64(answer.number(row, 2)?).ok(),
                None => None,
            };
            found.push(Lag { from: node, to, bytes, behind });
        }
        Ok(found)
    }

    /// Where the node's log is now: all that is committed there is before this.
    pub async fn place(&self, node: &mut NodeConnection) -> Result<Place, GatewayError> {
        let rows = node.rows("SELECT pg_catalog.pg_current_wal_insert_lsn()").await?;
        let answer = Answer { node: node.node(), what: "its log", rows: &rows };
        Ok(Place(answer.text(0, 0)?.to_owned()))
    }

    /// Waits until all that was committed on this node before `place` has arrived on the others. Returns those on
    /// which it has not when `patience` is over.
    pub async fn wait_for_arrival(
        &self,
        from: &mut NodeConnection,
        place: &Place,
        patience: Duration,
    ) -> Result<Vec<NodeId>, GatewayError> {
        self.wait_for(Awaited::Arrival, from, place, patience).await
    }

    /// Waits, at most for `patience`, until all that was committed on each node until now has come to this at every
    /// other. Returns one to which it has not.
    pub async fn wait_for_all(
        &self,
        awaited: Awaited,
        connections: &mut Connections<'_>,
        patience: Duration,
    ) -> Result<Option<NodeId>, GatewayError> {
        for connection in connections.values_mut() {
            let place = self.place(connection).await?;
            let missing = self.wait_for(awaited, connection, &place, patience).await?;
            if let Some(missing) = missing.first() {
                return Ok(Some(*missing));
            }
        }
        Ok(None)
    }

    async fn wait_for(
        &self,
        awaited: Awaited,
        from: &mut NodeConnection,
        place: &Place,
        patience: Duration,
    ) -> Result<Vec<NodeId>, GatewayError> {
        let deadline = Instant::now() + patience;
        loop {
            let mut missing = Vec::new();
            for to in self.others(from.node()) {
                let sql = format!(
                    "SELECT confirmed_flush_lsn OPERATOR(pg_catalog.>=) '{}'::pg_catalog.pg_lsn,
    wal_status OPERATOR(pg_catalog.=) 'lost'
FROM pg_catalog.pg_replication_slots WHERE slot_name OPERATOR(pg_catalog.=) '{}'",
                    place.0,
                    self.slot(from.node(), to)
                );
                let rows = from.rows(&sql).await?;
                let is_confirmed = rows.text(0, 0) == Some("t");
                let is_kept = !rows.rows.is_empty() && rows.text(0, 1) == Some("f");
                let is_over = match awaited {
                    Awaited::Arrival => is_confirmed,
                    Awaited::Passing => is_confirmed || !is_kept,
                };
                if !is_over {
                    missing.push(to);
                }
            }
            if missing.is_empty() || deadline <= Instant::now() {
                return Ok(missing);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Removes all of it, as far as it is there: the nodes are as they were before.
    pub async fn take_down(&self, connections: &mut Connections<'_>) -> Result<(), GatewayError> {
        for (node, connection) in &mut *connections {
            for from in self.others(*node) {
                let name = Self::subscription(from);
                if !exists(connection, "pg_subscription", "subname", &name).await? {
                    continue;
                }
                // Without its slot, which may be on a node that is away, and goes below.
                connection.rows(&format!("ALTER SUBSCRIPTION {name} DISABLE")).await?;
                connection
                    .rows(&format!("ALTER SUBSCRIPTION {name} SET (slot_name = NONE)"))
                    .await?;
                connection.rows(&format!("DROP SUBSCRIPTION {name}")).await?;
            }
        }
        for (node, connection) in &mut *connections {
            for to in self.others(*node) {
                let slot = self.slot(*node, to);
                // A sender that has just lost its reader still holds it.
                let drop = format!(
                    "SELECT pg_catalog.pg_terminate_backend(active_pid, 5000) FROM pg_catalog.pg_replication_slots
WHERE slot_name OPERATOR(pg_catalog.=) '{slot}' AND active;
SELECT pg_catalog.pg_drop_replication_slot(slot_name) FROM pg_catalog.pg_replication_slots
WHERE slot_name OPERATOR(pg_catalog.=) '{slot}'"
                );
                connection.rows(&drop).await?;
            }
            connection.rows(&format!("DROP PUBLICATION IF EXISTS {PUBLICATION}")).await?;
        }
        Ok(())
    }
}

/// Waits until nothing receives for a subscription. Returns whether it has come to that.
async fn wait_for_end(connection: &mut NodeConnection, name: &str) -> Result<bool, GatewayError> {
    let sql = format!(
        "SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_subscription AS t
JOIN pg_catalog.pg_subscription AS s ON s.oid OPERATOR(pg_catalog.=) t.subid
WHERE t.pid IS NOT NULL AND s.subname OPERATOR(pg_catalog.=) '{name}' AND {OF_THIS_DATABASE}"
    );
    let deadline = Instant::now() + END_PATIENCE;
    while connection.rows(&sql).await?.text(0, 0) != Some("0") {
        if deadline <= Instant::now() {
            return Ok(false);
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(true)
}

/// Makes a slot, and gives up where transactions on its node do not end.
async fn make_slot(connection: &mut NodeConnection, slot: &str) -> Result<(), GatewayError> {
    let node = connection.node();
    let limit = format!("SET statement_timeout = {}", SLOT_PATIENCE.as_millis());
    connection.rows(&limit).await?;
    let create =
        format!("SELECT pg_catalog.pg_create_logical_replication_slot('{slot}', 'pgoutput')");
    let made = connection.rows(&create).await;
    connection.rows("RESET statement_timeout").await?;
    match made {
        Ok(_) => Ok(()),
        Err(NodeError::Refused(error)) if error.sqlstate() == sqlstate::QUERY_CANCELED => {
            let message = format!("node {node} could not begin to keep its rows for others");
            Err(Refusal::postgres("55000", message)
                .with_detail(
                    "A replication slot is made when all transactions that have written on its node have ended, \
                     prepared ones too, and some did not.",
                )
                .with_hint("Try again when long transactions have ended.")
                .into())
        }
        Err(error) => Err(error.into()),
    }
}

async fn is_published(
    connection: &mut NodeConnection,
    table: &CarriedTable,
) -> Result<bool, GatewayError> {
    let sql = format!(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_publication_tables
WHERE pubname OPERATOR(pg_catalog.=) '{PUBLICATION}' AND schemaname OPERATOR(pg_catalog.=) {}
    AND tablename OPERATOR(pg_catalog.=) {})",
        quote_literal(&table.schema),
        quote_literal(&table.name)
    );
    let node = connection.node();
    let rows = connection.rows(&sql).await?;
    Answer { node, what: "published tables", rows: &rows }.boolean(0, 0)
}

async fn exists(
    connection: &mut NodeConnection,
    catalog: &str,
    column: &str,
    name: &str,
) -> Result<bool, GatewayError> {
    let of_this = match catalog {
        "pg_subscription" => format!(" AND {OF_THIS_DATABASE}"),
        _ => String::new(),
    };
    let sql = format!(
        "SELECT EXISTS (SELECT FROM pg_catalog.{catalog} AS s WHERE s.{column} OPERATOR(pg_catalog.=) '{name}'{of_this})"
    );
    let node = connection.node();
    let rows = connection.rows(&sql).await?;
    Answer { node, what: catalog_words(catalog), rows: &rows }.boolean(0, 0)
}

fn catalog_words(catalog: &str) -> &'static str {
    match catalog {
        "pg_publication" => "publications",
        "pg_subscription" => "subscriptions",
        _ => "replication slots",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::maps::even_map;

    #[test]
    fn every_bucket_is_published_by_one_node() {
        let nodes = [NodeId(1), NodeId(2), NodeId(3)];
        let mut map = even_map(&nodes);
        map.nodes[7] = NodeId(3);
        map.nodes[900] = NodeId(1);
        let mut owners = vec![0; usize::from(BUCKET_COUNT)];
        for node in nodes {
            for (first, last) in ranges_of(&map, node) {
                (first..=last).for_each(|bucket| owners[usize::from(bucket)] += 1);
            }
        }
        assert!(owners.iter().all(|owners| *owners == 1));
        assert_eq!(ranges_of(&map, NodeId(1)), [(0, 6), (8, 341), (900, 900)]);
        let filter = filter_sql("k", KeyType::Int4, &map, NodeId(2));
        assert!(filter.contains(">=) 342") && filter.contains("<=) 682"), "{filter}");
        let filter = filter_sql("k", KeyType::Int4, &map, NodeId(1));
        assert!(filter.contains("ANY ('{0,1,2,3,4,5,6,8,"), "{filter}");
        assert_eq!(filter_sql("k", KeyType::Int4, &map, NodeId(4)), "false");
    }
}
