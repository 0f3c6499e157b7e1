//! Unique indexes that hold over all nodes: their entries are kept by the transaction that changes the rows.
//!
//! Owns: asking the nodes that were written what has changed of the values, and bringing that to the nodes of the entries;
//! and making the entries of a new index.
//! Never: decides which statements these are (the planner does), nor what is unique (the entries' primary key does).
//! Start reading at [`Executor::keep_unique`]; the reasons are docs/decisions/2026-11-27-global-unique.md.
//!
//! Entries are changed on one node after the other, in one order: sessions that wait for one another's values on several
//! nodes are in no circle.

use std::collections::BTreeMap;

use tutti_cluster::catalog::unique::{Changed, drain_sql, entries_sql, keep_sql, make_sql};
use tutti_link::connection::NodeError;
use tutti_sql::catalog::{MapId, NodeId, Placement, quote_identifier, quote_literal};
use tutti_sql::hash::{Bucket, KeyType};
use tutti_sql::plan::{Access, GlobalIndex};
use tutti_wire::error_fields::ErrorFields;

use super::array_literal::ArrayText;
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::route::node_of_bucket;
use crate::transaction::state::Isolation;
use crate::transaction::{Level, Mode};

/// The rows of which entries are made at a time.
const BATCH_ROWS: usize = 2000;
/// The cursor that reads them; no client's is called so.
const CURSOR: &str = "tutti_unique_rows";

/// What has become of entries, by index and node: how often each has come and gone.
#[derive(Debug, Default, PartialEq)]
struct Entries(BTreeMap<(u32, NodeId), BTreeMap<String, i64>>);

impl Entries {
    fn add(&mut self, number: u32, node: NodeId, entry: String, times: i64) {
        *self.0.entry((number, node)).or_default().entry(entry).or_default() += times;
    }

    /// The entries that are gone and those that are there, as texts of arrays, without those that are as they were.
    fn into_arrays(self) -> impl Iterator<Item = ((u32, NodeId), (String, String))> {
        self.0.into_iter().filter_map(|(place, entries)| {
            let (mut removed, mut added) = (ArrayText::default(), ArrayText::default());
            let mut is_changed = false;
            for (entry, times) in entries {
                is_changed |= times != 0;
                let array = if times < 0 { &mut removed } else { &mut added };
                for _ in 0..times.abs() {
                    array.push_composite(&entry);
                }
            }
            let text = |array: ArrayText| String::from_utf8_lossy(&array.into_bytes()).into_owned();
            is_changed.then(|| (place, (text(removed), text(added))))
        })
    }
}

impl Executor<'_> {
    /// After a statement that may have changed values of such indexes: what has changed becomes what is there.
    ///
    /// Errors: 23505 for a value that another row has, as PostgreSQL words it.
    pub(super) async fn keep_unique(&mut self) -> Result<(), Failure> {
        let writers: Vec<_> = self.tx.transaction.writers().collect();
        let mut entries = Entries::default();
        for node in writers {
            self.drain(node, &mut entries).await?;
        }
        for ((number, node), changed) in entries.into_arrays() {
            self.change_entries(number, node, changed, false).await?;
        }
        Ok(())
    }

    /// Asks one node.
    async fn drain(&mut self, node: NodeId, entries: &mut Entries) -> Result<(), Failure> {
        let bytes_max = self.travelling_bytes_max();
        let registry = self.tx.registry.clone();
        let link = self.tx.enlist(node, Access::Write).await?;
        link.learn_moment().await?;
        let (sql, values) = drain_sql(link.connection(), &registry.cluster.seals);
        link.connection().keep_notices_up_to(Some(bytes_max));
        let asked = link.query_with(&sql, values).await;
        let notices = link.connection().take_notices();
        link.connection().keep_notices_up_to(None);
        asked.map_err(without_place)?;
        let notices: Vec<_> =
            notices.iter().filter_map(|notice| ErrorFields::decode(notice).ok()).collect();
        if notices.iter().any(|notice| notice.get(b'V') == Some("WARNING")) {
            // It was told to send none: the node has said more than is kept.
            return Err(too_many(bytes_max));
        }
        let connection = self.tx.links.at(&node).connection();
        // What else was said was said by code of others.
        let seals = &registry.cluster.seals;
        let changes: Vec<_> =
            notices.iter().filter_map(|notice| Changed::read(notice, connection, seals)).collect();
        let mut maps: BTreeMap<u32, MapId> = BTreeMap::new();
        for Changed { number, is_added, bucket, entry } in changes {
            let map = match maps.get(&number) {
                Some(map) => *map,
                None => *maps.entry(number).or_insert(self.map_of_index(number)?),
            };
            let owner = self.owner(map, bucket)?;
            entries.add(number, owner, entry, if is_added { 1 } else { -1 });
        }
        Ok(())
    }

    fn map_of_index(&self, number: u32) -> Result<MapId, Failure> {
        let mut relations = self.tx.catalog.relations.values().flat_map(|all| all.values());
        let table = relations.find(|it| it.global_unique.iter().any(|it| it.number == number));
        match table.map(|table| &table.placement) {
            Some(Placement::Hash { map, .. }) => Ok(*map),
            _ => Err(Failure::error(
                "40001",
                "an index that is unique over all nodes is not known yet",
            )),
        }
    }

    /// The node of an entry.
    fn owner(&self, map: MapId, bucket: u16) -> Result<NodeId, Failure> {
        node_of_bucket(&self.tx.catalog, map, Bucket(bucket))
            .ok_or_else(|| Failure::error("XX000", "the bucket map of an index is not known"))
    }

    /// `builds`: the index is being made.
    async fn change_entries(
        &mut self,
        number: u32,
        node: NodeId,
        changed: (String, String),
        builds: bool,
    ) -> Result<(), Failure> {
        let registry = self.tx.registry.clone();
        // The entry of a row that was seen on another node was written by the same transaction.
        self.tx.wait_for_visible(node).await?;
        // Asked in one flight with BEGIN, if it is not there yet.
        let link = self.tx.enlist(node, Access::Write).await?;
        link.learn_moment().await?;
        let seals = &registry.cluster.seals;
        let (sql, values) = keep_sql(link.connection(), number, changed, builds, seals);
        link.query_with(&sql, values).await.map_err(without_place)?;
        Ok(())
    }

    /// Before such an index is made: its entries are made from all rows that there are, and not from those that an older
    /// snapshot shows.
    pub(super) fn need_all_rows(&mut self) -> Result<(), Failure> {
        if self.tx.transaction.mode == Mode::None {
            self.need_transaction();
            self.tx.transaction.characteristics.isolation = Some(Isolation::ReadCommitted);
        }
        match self.tx.level() {
            Level::ReadCommitted => Ok(()),
            _ => Err(Failure::unsupported(
                "an index cannot be made to be unique over all nodes at this isolation level",
                "Rows that others have committed since the transaction's snapshot would have no entries.",
                "Use a transaction at READ COMMITTED, or none.",
            )),
        }
    }

    /// What keeps an index that was just made on these nodes unique over all of them, and its entries. The index keeps
    /// writers away from its table.
    pub(super) async fn make_global_unique(
        &mut self,
        index: &GlobalIndex,
        others: &[NodeId],
    ) -> Result<(), Failure> {
        let registry = self.tx.registry.clone();
        let mut known = self.tx.catalog.relations.values().flat_map(|all| all.values());
        let relation = known.find(|it| it.oid == index.table).cloned();
        let (Some(relation), GlobalIndex { schema, name, first, .. }) = (relation, index) else {
            return Err(Failure::error("42P01", "the table of the index is not known any more"));
        };
        let Placement::Hash { map, .. } = relation.placement else {
            return Err(Failure::error("40001", "the table of the index was changed meanwhile"));
        };
        let column = &relation.columns[*first];
        let Some(key_type) = KeyType::from_oid(column.type_oid) else {
            return Err(Failure::unsupported(
                format!("index \"{name}\" cannot be unique over all nodes"),
                format!("The type of column \"{}\" is {}.", column.name, column.declared_type),
                "Unique over all nodes can be plain columns of built-in types.",
            ));
        };
        let qualified = format!("{}.{}", quote_identifier(schema), quote_identifier(name));
        let sql =
            format!("SELECT {}::pg_catalog.regclass::pg_catalog.oid", quote_literal(&qualified));
        let rows = self.tx.link(NodeId::HOME).await?.query(&sql).await?;
        let number = rows.first().and_then(|rows| rows.text(0, 0)?.parse().ok());
        let number = number.ok_or_else(|| Failure::error("XX000", "an OID is no number"))?;
        let nodes = [&[NodeId::HOME], others].concat();
        for node in &nodes {
            let link = self.tx.enlist_begun(*node, Access::Write).await?;
            link.learn_moment().await?;
            let seals = &registry.cluster.seals;
            let (sql, values) =
                make_sql(link.connection(), (schema, name), number, key_type, seals);
            link.query_with(&sql, values).await.map_err(without_place)?;
        }
        for node in &nodes {
            self.make_entries(*node, number, key_type, map).await?;
        }
        Ok(())
    }

    /// Of the rows of one node.
    async fn make_entries(
        &mut self,
        node: NodeId,
        number: u32,
        key_type: KeyType,
        map: MapId,
    ) -> Result<(), Failure> {
        let link = self.tx.enlist_begun(node, Access::Write).await?;
        link.query(&entries_sql(CURSOR, number, key_type)).await.map_err(without_place)?;
        loop {
            let link = self.tx.link(node).await?;
            let fetched = link.query(&format!("FETCH {BATCH_ROWS} FROM {CURSOR}")).await?;
            let rows = fetched.into_iter().next().unwrap_or_default();
            let mut entries = Entries::default();
            for row in 0..rows.rows.len() {
                let bucket = rows.text(row, 0).and_then(|bucket| bucket.parse().ok());
                let (Some(bucket), Some(entry)) = (bucket, rows.text(row, 1)) else {
                    return Err(Failure::error("XX000", "an entry is not readable"));
                };
                entries.add(number, self.owner(map, bucket)?, entry.to_owned(), 1);
            }
            for ((number, node), added) in entries.into_arrays() {
                self.change_entries(number, node, added, true).await?;
            }
            if rows.rows.len() < BATCH_ROWS {
                self.tx.link(node).await?.query(&format!("CLOSE {CURSOR}")).await?;
                return Ok(());
            }
        }
    }
}

/// Where in our functions it happened does not concern the client.
fn without_place(error: NodeError) -> Failure {
    match error {
        NodeError::Refused(mut fields) => {
            fields.fields.retain(|(code, _)| !b"WpqFLR".contains(code));
            NodeError::Refused(fields).into()
        }
        error => error.into(),
    }
}

fn too_many(bytes_max: usize) -> Failure {
    ErrorFields::error(
        "54000",
        "the statement changes too many values of indexes that are unique over all nodes",
    )
    .with(b'D', format!("The gateway keeps up to {} MiB of them.", bytes_max >> 20))
    .with(b'H', "Change fewer rows at a time.")
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_cancels_out() {
        let (a, b) = (NodeId(1), NodeId(2));
        let mut entries = Entries::default();
        // A row is given another value, and its own again; one moves; one is new.
        for (node, entry, times) in
            [(a, "(x,1)", -1), (b, "(y,1)", 1), (b, "(y,1)", -1), (a, "(x,1)", 1)]
        {
            entries.add(7, node, entry.to_owned(), times);
        }
        entries.add(7, b, "(z,1)".to_owned(), -1);
        entries.add(7, b, "(z,2)".to_owned(), 1);
        entries.add(8, a, "(n,3)".to_owned(), 1);
        let arrays: Vec<_> = entries.into_arrays().collect();
        let text = |removed: &str, added: &str| (removed.to_owned(), added.to_owned());
        assert_eq!(
            arrays,
            [((7, b), text("{\"(z,1)\"}", "{\"(z,2)\"}")), ((8, a), text("{}", "{\"(n,3)\"}")),]
        );
    }
}
