//! Giving a table that holds rows another placement.
//!
//! Owns: the order in which the nodes lock, register and move: `family` says which tables, `travel` which rows,
//! `leaf` by which SQL.
//! Never: begins or ends a transaction. The caller has one open on every node, commits all of them
//! as one global transaction, and checks the schema with [`super::verify()`] before.
//! Start reading at [`Redistribution::plan`], then [`Redistribution::perform`].
//!
//! Rows travel as texts of anonymous rows, which no one can give a cast, and as parameters, which no one is
//! shown. What reads, deletes and stores them runs as the table's owner (`tutti.as_owner`): planning it
//! computes, and storing a row runs, code of the owner's (checks, generated columns, indexes, statistics,
//! domains), which has no more rights than the owner. Cursors are opened on all sources
//! before anything changes, so each row is read once, as it was; then every node deletes what
//! leaves it; then the rows are dealt out. Nothing of the table is held in memory but one batch.

mod family;
mod leaf;
mod progress;
mod travel;

use std::collections::BTreeMap;

use tutti_link::connection::{NodeConnection, NodeError};
use tutti_link::seals::Seals;
use tutti_sql::catalog::{Catalog, NodeId, Relation, RelationKind};
use tutti_sql::refusal::Refusal;
use tutti_sql::statement::DistributeBy;

use self::family::{read_family, what_fires};
use self::leaf::{CURSOR, Leaf, Steps, estimated_rows, has_no_pages, has_rows};
pub use self::progress::{Phase, Progress, Seen};
use self::travel::Travel;
use super::placement::{
    PlacementKind, Registration, note_change, placement_in_catalog, placement_of, register,
};
use super::rows::Answer;
use super::text_array::TextArray;
use crate::error::GatewayError;

/// The open connections, each inside a transaction.
pub type Connections<'a> = BTreeMap<NodeId, &'a mut NodeConnection>;

/// Rows that are fetched from a node at a time.
const BATCH_ROWS: usize = 500;
/// What is stored by one statement on one node, in bytes of their texts, or a row more.
const BATCH_BYTES: usize = 16 << 20;

/// Settings that decide how values are written as text: alike on all nodes, and exact. Triggers and
/// foreign keys do not fire for rows that only travel.
const TRAVEL_SETTINGS: [(&str, &str); 9] = [
    ("session_replication_role", "replica"),
    ("datestyle", "ISO, YMD"),
    ("intervalstyle", "postgres"),
    ("extra_float_digits", "1"),
    ("bytea_output", "hex"),
    ("row_security", "off"),
    ("array_nulls", "on"),
    ("xmloption", "content"),
    ("lc_monetary", "C"),
];

/// A table's move to another placement, with everything that belongs to it: partitions and children.
#[derive(Clone, Debug)]
pub struct Redistribution {
    /// Qualified and quoted name of the table that was named.
    root: String,
    nodes: Vec<NodeId>,
    leaves: Vec<Leaf>,
    registrations: Vec<Registration>,
    travel: Travel,
}

impl Redistribution {
    /// Determines what has to move. `home` is in the transaction on node 1; `catalog` is what that
    /// transaction sees.
    ///
    /// Errors: [`GatewayError::Refused`] for what is no table, for tables of others (the rights are
    /// those of ALTER TABLE), for partitions (their root must be named), and for a column that cannot
    /// be a key.
    pub async fn plan(
        home: &mut NodeConnection,
        catalog: &Catalog,
        relation: &Relation,
        wanted: &DistributeBy,
        seals: &Seals,
    ) -> Result<Self, GatewayError> {
        if relation.kind != RelationKind::Table {
            let message = format!("\"{}\" is not a table", relation.name);
            return Err(Refusal::postgres("42809", message).into());
        }
        let family = read_family(home, relation).await?;
        let from = placement_in_catalog(relation, &catalog.maps);
        let to = placement_of(home, relation.oid, wanted).await?;
        let mut leaves = Vec::new();
        let mut forced = None;
        let mut registrations = Vec::new();
        for member in family {
            let Some(table) =
                catalog.relations.get(&member.schema).and_then(|tables| tables.get(&member.name))
            else {
                let message = format!("relation \"{}\" does not exist", member.name);
                return Err(Refusal::postgres("42P01", message).into());
            };
            if !member.partitioned {
                let (schema, name) = (member.schema.clone(), member.name.clone());
                leaves.push(Leaf { name: table.sql_name(), schema, table: name });
                forced = forced.or_else(|| member.forced.then(|| member.name.clone()));
            }
            registrations.push(Registration {
                schema: member.schema,
                table: member.name,
                placement: to.clone(),
            });
        }
        let nodes = catalog.nodes.clone();
        let travel = Travel::between(&from, &to, &nodes);
        if travel.writes_rows()
            && let Some(table) = forced
            && !(matches!(from, PlacementKind::Home) && has_no_pages(home, &leaves).await?)
        {
            return Err(Refusal::unsupported(
                format!("cannot redistribute \"{}\"", relation.name),
                format!(
                    "Its rows are stored by its owner, and row security of \"{table}\" is forced on the \
                     owner too: rows could be left behind."
                ),
                "ALTER TABLE … NO FORCE ROW LEVEL SECURITY, redistribute the table, and force it again, \
                 in one transaction.",
            )
            .into());
        }
        if travel != Travel::Nothing
            && let Some(refusal) = what_fires(home, relation, &registrations).await?
        {
            // Where there are no rows, none fires anything; node 1 knows this of its own tables.
            home.rows(&lock_sql(&relation.sql_name())).await?;
            if !matches!(from, PlacementKind::Home) || has_rows(home, &leaves, seals).await? {
                return Err(refusal.into());
            }
        }
        Ok(Self { root: relation.sql_name(), nodes, leaves, registrations, travel })
    }

    /// Registers the new placement on node 1 alone, so that what forbids it can be told before any row travels. The
    /// table is locked there.
    pub async fn register_at_home(
        &self,
        home: &mut NodeConnection,
        seals: &Seals,
    ) -> Result<(), GatewayError> {
        for registration in &self.registrations {
            register(home, registration, seals).await?;
        }
        Ok(())
    }

    /// Locks the table on all nodes, registers the new placement and moves the rows, of which `progress` tells others.
    ///
    /// Errors: a node's own, or [`GatewayError::Refused`]; the caller must then roll back on all
    /// nodes.
    pub async fn perform(
        &self,
        connections: &mut Connections<'_>,
        progress: &Progress,
        seals: &Seals,
    ) -> Result<(), GatewayError> {
        progress.enter(Phase::Locking);
        // Node 1 first, as by every statement that concerns all nodes.
        for connection in connections.values_mut() {
            connection.rows(&self.lock_sql()).await?;
        }
        // Rows are compared with the bucket map, so a new one must be there before they move.
        for connection in connections.values_mut() {
            for registration in &self.registrations {
                register(connection, registration, seals).await?;
            }
            note_change(connection).await?;
        }
        if self.travel == Travel::Nothing {
            return Ok(());
        }
        // Owners of tables do not see it while row security may not hide rows.
        let map = match &self.travel {
            Travel::DropForeign { target } | Travel::SendForeign { target, .. } => {
                read_map(at(connections, NodeId::HOME), target).await?
            }
            _ => String::new(),
        };
        for connection in connections.values_mut() {
            set_for_travel(connection, &self.root).await?;
        }
        let mut estimate = None;
        for node in self.travel.sources() {
            let there = estimated_rows(at(connections, *node), &self.leaves).await?;
            estimate = there.map(|there| estimate.unwrap_or(0) + there).or(estimate);
        }
        progress.estimate(estimate);
        for leaf in &self.leaves {
            self.move_rows(connections, leaf, &map, progress, seals).await?;
        }
        for connection in connections.values_mut() {
            connection.query(&restore_settings()).await?;
        }
        Ok(())
    }

    /// The tables whose rows move: schema and name.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.registrations.iter().map(|it| (it.schema.as_str(), it.table.as_str()))
    }

    /// Whether rows are written where they were not, which runs what computes and checks them.
    pub fn writes_rows(&self) -> bool {
        self.travel.writes_rows()
    }

    /// Takes the table for this transaction alone: no other changes what it is or where its rows
    /// are.
    pub fn lock_sql(&self) -> String {
        lock_sql(&self.root)
    }

    async fn move_rows(
        &self,
        connections: &mut Connections<'_>,
        leaf: &Leaf,
        map: &str,
        progress: &Progress,
        seals: &Seals,
    ) -> Result<(), GatewayError> {
        let Steps { first, sources, then } = leaf.steps(&self.travel, &self.nodes, map);
        if !sources.is_empty()
            && let Some(check) = leaf.check_generated(at(connections, NodeId::HOME)).await?
        {
            for (node, _) in &sources {
                leaf.as_owner(at(connections, *node), &check, "", seals).await?;
            }
        }
        progress.enter(Phase::Deleting);
        for (node, sql) in first {
            leaf.as_owner(at(connections, node), &sql, "", seals).await?;
        }
        for (node, select) in &sources {
            let sql = format!("DECLARE {CURSOR} NO SCROLL CURSOR FOR {select}");
            leaf.as_owner(at(connections, *node), &sql, "", seals).await?;
        }
        for (node, sql) in then {
            leaf.as_owner(at(connections, node), &sql, "", seals).await?;
        }
        let insert = match sources.is_empty() {
            true => String::new(),
            false => leaf.insert(at(connections, NodeId::HOME)).await?,
        };
        progress.enter(Phase::Moving);
        let mut dealt = 0;
        let mut batches: BTreeMap<NodeId, TextArray> = BTreeMap::new();
        for (source, _) in &sources {
            loop {
                progress.heed()?;
                let fetch = format!("FETCH {BATCH_ROWS} FROM {CURSOR}");
                let rows = at(connections, *source).rows(&fetch).await?;
                let answer = Answer { node: *source, what: "rows that move", rows: &rows };
                let mut bytes = 0;
                for row in 0..answer.len() {
                    let text = answer.text(row, 1)?;
                    bytes += text.len();
                    for target in self.targets(*source, &answer, row, &mut dealt)? {
                        let batch = batches.entry(target).or_default();
                        batch.push(text);
                        if BATCH_BYTES <= batch.bytes() {
                            let rows = std::mem::take(batch).finish();
                            leaf.as_owner(at(connections, target), &insert, &rows, seals).await?;
                        }
                    }
                }
                progress.moved(answer.len(), bytes);
                if answer.len() < BATCH_ROWS {
                    break;
                }
            }
            at(connections, *source).rows(&format!("CLOSE {CURSOR}")).await?;
        }
        for (target, batch) in batches {
            if 0 < batch.bytes() {
                let rows = batch.finish();
                leaf.as_owner(at(connections, target), &insert, &rows, seals).await?;
            }
        }
        Ok(())
    }

    /// Where one row goes.
    fn targets(
        &self,
        source: NodeId,
        answer: &Answer<'_>,
        row: usize,
        dealt: &mut usize,
    ) -> Result<Vec<NodeId>, GatewayError> {
        match &self.travel {
            Travel::CopyEverywhere { .. } => {
                Ok(self.nodes.iter().copied().filter(|node| *node != source).collect())
            }
            Travel::DealOut => {
                *dealt += 1;
                Ok(vec![self.nodes[*dealt % self.nodes.len()]])
            }
            Travel::SendForeign { .. } => {
                let target = NodeId(answer.number(row, 0)?);
                if self.nodes.contains(&target) {
                    Ok(vec![target])
                } else {
                    Err(answer.unreadable())
                }
            }
            Travel::BringHome { .. } => Ok(vec![NodeId::HOME]),
            Travel::Nothing | Travel::DropForeign { .. } | Travel::EmptyCopies => Ok(Vec::new()),
        }
    }
}

/// The nodes of a placement's buckets, as the text of an array whose indexes are the buckets.
async fn read_map(
    home: &mut NodeConnection,
    target: &PlacementKind,
) -> Result<String, GatewayError> {
    let map = target.map().expect("only placements by a key give rows an owner");
    let sql = format!(
        "SELECT pg_catalog.concat('[0:', pg_catalog.max(b.bucket), ']=',
    pg_catalog.array_agg(b.node ORDER BY b.bucket)) FROM tutti.bucket b
WHERE b.map OPERATOR(pg_catalog.=) {}",
        map.0
    );
    let rows = home.rows(&sql).await?;
    Ok(Answer { node: home.node(), what: "a map of buckets", rows: &rows }.text(0, 0)?.to_owned())
}

fn at<'a>(connections: &'a mut Connections<'_>, node: NodeId) -> &'a mut NodeConnection {
    connections.get_mut(&node).expect("the caller gives a connection to every node")
}

fn lock_sql(table: &str) -> String {
    format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
}

async fn set_for_travel(connection: &mut NodeConnection, table: &str) -> Result<(), GatewayError> {
    let set = TRAVEL_SETTINGS.iter().map(|(name, value)| {
        format!(
            "SELECT pg_catalog.set_config('tutti.saved_{name}', \
             pg_catalog.current_setting('{name}'), true), \
             pg_catalog.set_config('{name}', '{value}', true);\n"
        )
    });
    match connection.query(&set.collect::<String>()).await {
        Ok(_) => Ok(()),
        Err(NodeError::Refused(fields)) if fields.sqlstate() == "42501" => {
            Err(Refusal::unsupported(
                format!("only a superuser can redistribute table {table}"),
                "Rows move between nodes with triggers and foreign keys off, which takes the right \
                 to set session_replication_role.",
                "Connect as a superuser, or GRANT SET ON PARAMETER session_replication_role on every \
                 node.",
            )
            .into())
        }
        Err(error) => Err(error.into()),
    }
}

fn restore_settings() -> String {
    let restore = TRAVEL_SETTINGS.iter().map(|(name, _)| {
        format!(
            "SELECT pg_catalog.set_config('{name}', \
             pg_catalog.current_setting('tutti.saved_{name}'), true);\n"
        )
    });
    restore.collect()
}
