//! Entries of what holds over all nodes, unique indexes and foreign keys: they are kept by the transaction that changes the
//! rows.
//!
//! Owns: asking the nodes that were written what has changed of the values, bringing that to the nodes of the entries, and
//! having what refers to others checked; and making the entries of what is new.
//! Never: decides which statements these are (the planner does), nor what is unique, or refers to what (constraints of the
//! entries do).
//! Start reading at [`Executor::keep_entries`]; the reasons are docs/decisions/2026-11-27-global-unique.md and
//! 2026-11-30-foreign-keys-over-nodes.md.
//!
//! Entries are changed on one node after the other, in one order: sessions that wait for one another's values on several
//! nodes are in no circle.

use std::collections::{BTreeMap, BTreeSet};

use tutti_cluster::catalog::entries::{
    Change, Changed, EntryKind, EntryPlace, WANTED_REFERENCES, WantedReference, act_sql, bind_sql,
    check_sql, drain_sql, entries_sql, free_sql, keep_sql, make_unique_sql,
};
use tutti_link::Link;
use tutti_link::connection::{NodeConnection, NodeError};
use tutti_sql::catalog::{Catalog, Kept, KeptKind, MapId, NodeId, Placement, Relation};
use tutti_sql::catalog::{quote_identifier, quote_literal};
use tutti_sql::hash::{Bucket, KeyType};
use tutti_sql::plan::{Access, GlobalIndex, Truncated};
use tutti_wire::error_fields::ErrorFields;

use super::array_literal::ArrayText;
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::route::node_of_bucket;
use crate::transaction::state::{Isolation, is_last_part};
use crate::transaction::{Level, Mode};

/// The rows of which entries are made at a time.
const BATCH_ROWS: usize = 2000;
/// The cursor that reads them; no client's is called so.
const CURSOR: &str = "tutti_entries_of_rows";

/// Of what there are entries: in this order they are changed.
type Number = (EntryKind, u32);

/// What has become of entries, by what they are of, and node: how often each has come and gone.
#[derive(Debug, Default, PartialEq)]
struct Entries(BTreeMap<(Number, NodeId), BTreeMap<String, i64>>);

impl Entries {
    fn add(&mut self, number: Number, node: NodeId, entry: String, times: i64) {
        *self.0.entry((number, node)).or_default().entry(entry).or_default() += times;
    }

    /// The entries that are gone and those that are there, as texts of arrays, without those that are as they were.
    fn into_arrays(self) -> impl Iterator<Item = ((Number, NodeId), (String, String))> {
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

/// Rows to be acted on, by their foreign key and node: their entries, which are gone with what they refer to.
type Orphans = BTreeMap<(u32, NodeId), ArrayText>;

/// What is being made, and by what its entries are placed.
struct Made {
    number: Number,
    key_type: KeyType,
    map: MapId,
}

impl Executor<'_> {
    /// After a statement that may have changed what entries are kept of: what has changed becomes what is there.
    /// `checks`: it may have changed what foreign keys refer to by their entries. `is_counted`: what its code does on its
    /// nodes is counted.
    ///
    /// Errors: 23505 for a value that another row has, and 23503, as PostgreSQL words them.
    pub(super) async fn keep_entries(
        &mut self,
        checks: bool,
        is_counted: bool,
    ) -> Result<(), Failure> {
        let mut checked: BTreeSet<_> = self.tx.transaction.writers().collect();
        let mut entries = Entries::default();
        let mut asked = checked.clone();
        // What refers to what is gone goes as well, and then what refers to that.
        while !asked.is_empty() {
            let mut orphans = Orphans::new();
            for node in std::mem::take(&mut asked) {
                self.drain(node, &mut entries, &mut orphans).await?;
            }
            if is_counted && !orphans.is_empty() {
                return Err(acts_uncounted());
            }
            for ((number, node), rows) in orphans {
                self.act_on_rows(number, node, rows).await?;
                asked.insert(node);
            }
            checked.extend(&asked);
        }
        let catalog = self.tx.catalog.clone();
        let later = match catalog.has_references {
            true => self.references_checked_later(&catalog),
            false => Vec::new(),
        };
        for ((number, node), changed) in entries.into_arrays() {
            let is_checked = match number.0 {
                EntryKind::Unique => false,
                EntryKind::Reference => !later.contains(&number.1),
            };
            self.tx.transaction.defers_references |= later.contains(&number.1);
            checked.insert(node);
            self.change_entries(number, node, changed, is_checked).await?;
        }
        if !checks || !catalog.has_references {
            return Ok(());
        }
        self.tx.transaction.defers_references |= !later.is_empty();
        self.check_references(checked, &later).await
    }

    /// Those of the catalog that a statement leaves to a later one, or to COMMIT.
    fn references_checked_later(&self, catalog: &Catalog) -> Vec<u32> {
        let later = kept(catalog).filter(|(_, it)| match &it.kind {
            KeptKind::Unique => false,
            KeptKind::Reference { name, deferrable, deferred, .. } => {
                *deferrable && self.tx.transaction.is_deferred(name, *deferred)
            }
        });
        later.map(|(_, it)| it.number).collect()
    }

    /// Before what is deferred is checked by the server, which knows entries only: at COMMIT (`named`: `None`), or for SET
    /// CONSTRAINTS … IMMEDIATE of these names (none: of all).
    ///
    /// Errors: 23503.
    pub(crate) async fn check_deferred_references(
        &mut self,
        named: Option<&[String]>,
    ) -> Result<(), Failure> {
        if !self.tx.transaction.defers_references {
            return Ok(());
        }
        let catalog = self.tx.catalog.clone();
        let is_named = |it: &Kept| match (&it.kind, named) {
            (KeptKind::Unique, _) => false,
            (_, None | Some([])) => true,
            (KeptKind::Reference { name, .. }, Some(names)) => {
                names.iter().any(|named| is_last_part(named, name))
            }
        };
        let later: Vec<_> =
            kept(&catalog).filter(|(_, it)| !is_named(it)).map(|(_, it)| it.number).collect();
        let writers = self.tx.transaction.writers().collect();
        self.check_references(writers, &later).await?;
        self.tx.transaction.defers_references = !later.is_empty() && named.is_some();
        Ok(())
    }

    /// `later`: the numbers of foreign keys that are not checked now.
    async fn check_references(
        &mut self,
        nodes: BTreeSet<NodeId>,
        later: &[u32],
    ) -> Result<(), Failure> {
        let registry = self.tx.registry.clone();
        for node in nodes {
            let link = self.tx.enlist(node, Access::Write).await?;
            let seals = &registry.cluster.seals;
            run_sealed(link, |connection| check_sql(connection, later, seals)).await?;
        }
        Ok(())
    }

    /// Does to rows of a node what their foreign key says.
    async fn act_on_rows(
        &mut self,
        number: u32,
        node: NodeId,
        rows: ArrayText,
    ) -> Result<(), Failure> {
        let registry = self.tx.registry.clone();
        let rows = String::from_utf8_lossy(&rows.into_bytes()).into_owned();
        // Their entries were written by the same transactions.
        self.tx.wait_for_visible(node).await?;
        let link = self.tx.enlist(node, Access::Write).await?;
        let seals = &registry.cluster.seals;
        let acted = run_sealed(link, |connection| act_sql(connection, number, rows, seals)).await;
        // What triggers say.
        for notice in link.connection().take_notices() {
            self.client.pass_notice(&notice);
        }
        acted
    }

    /// Asks one node.
    async fn drain(
        &mut self,
        node: NodeId,
        entries: &mut Entries,
        orphans: &mut Orphans,
    ) -> Result<(), Failure> {
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
        let mut maps: BTreeMap<(Number, bool), MapId> = BTreeMap::new();
        for Changed { kind, number, change, bucket, entry } in changes {
            let number = (kind, number);
            let of_rows = change == Change::Orphaned;
            let map = match maps.get(&(number, of_rows)) {
                Some(map) => *map,
                None => *maps.entry((number, of_rows)).or_insert(self.map_of(number, of_rows)?),
            };
            let owner = self.owner(map, bucket)?;
            match change {
                Change::Added => entries.add(number, owner, entry, 1),
                Change::Removed => entries.add(number, owner, entry, -1),
                Change::Orphaned => {
                    orphans.entry((number.1, owner)).or_default().push_composite(&entry);
                    // Its row will tell that it has it no more; if that stays as it is, it has it again.
                    entries.add(number, node, entry, 1);
                }
            }
        }
        Ok(())
    }

    /// By which map entries are on their nodes; `of_rows`: by which their rows are.
    fn map_of(&self, number: Number, of_rows: bool) -> Result<MapId, Failure> {
        let found =
            kept(&self.tx.catalog).find(|(_, it)| (EntryKind::from(&it.kind), it.number) == number);
        let map = found.and_then(|(table, it)| match (&it.kind, of_rows) {
            (KeptKind::Reference { map, .. }, false) => Some(*map),
            _ => table.placement.key_map(),
        });
        map.ok_or_else(|| Failure::error("40001", "what entries are kept of is not known yet"))
    }

    /// The node of an entry.
    fn owner(&self, map: MapId, bucket: u16) -> Result<NodeId, Failure> {
        node_of_bucket(&self.tx.catalog, map, Bucket(bucket))
            .ok_or_else(|| Failure::error("XX000", "the bucket map of entries is not known"))
    }

    /// `flag`: see [`keep_sql`].
    async fn change_entries(
        &mut self,
        number: Number,
        node: NodeId,
        changed: (String, String),
        flag: bool,
    ) -> Result<(), Failure> {
        let registry = self.tx.registry.clone();
        // The entry of a row that was seen on another node was written by the same transaction.
        self.tx.wait_for_visible(node).await?;
        // Asked in one flight with BEGIN, if it is not there yet.
        let link = self.tx.enlist(node, Access::Write).await?;
        let seals = &registry.cluster.seals;
        run_sealed(link, |connection| keep_sql(connection, number, changed, flag, seals)).await
    }

    /// Before entries are made of what is new: they are made from all rows that there are, and not from those that an older
    /// snapshot shows.
    pub(super) fn need_all_rows(&mut self) -> Result<(), Failure> {
        if self.tx.transaction.mode == Mode::None {
            self.need_transaction();
            self.tx.transaction.characteristics.isolation = Some(Isolation::ReadCommitted);
        }
        match self.tx.level() {
            Level::ReadCommitted => Ok(()),
            _ => Err(Failure::unsupported(
                "entries cannot be made over all nodes at this isolation level",
                "Rows that others have committed since the transaction's snapshot would have no entries.",
                "Use a transaction at READ COMMITTED, or none.",
            )),
        }
    }

    /// Before tables are truncated to which entries refer.
    pub(super) async fn free_references(&mut self, truncated: &Truncated) -> Result<(), Failure> {
        self.need_transaction();
        let registry = self.tx.registry.clone();
        for node in [NodeId::HOME].into_iter().chain(self.other_nodes()) {
            let link = self.tx.enlist_begun(node, Access::Write).await?;
            let seals = &registry.cluster.seals;
            run_sealed(link, |connection| free_sql(connection, truncated, seals)).await?;
        }
        Ok(())
    }

    /// Behind that.
    pub(super) async fn bind_references(&mut self) -> Result<(), Failure> {
        let registry = self.tx.registry.clone();
        for node in [NodeId::HOME].into_iter().chain(self.other_nodes()) {
            let link = self.tx.enlist_begun(node, Access::Write).await?;
            let seals = &registry.cluster.seals;
            run_sealed(link, |connection| bind_sql(connection, seals)).await?;
        }
        Ok(())
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
            let seals = &registry.cluster.seals;
            let make = |connection: &NodeConnection| {
                make_unique_sql(connection, (schema, name), number, key_type, seals)
            };
            run_sealed(link, make).await?;
        }
        let made = Made { number: (EntryKind::Unique, number), key_type, map };
        for node in &nodes {
            self.make_entries(*node, &made, true).await?;
        }
        Ok(())
    }

    /// What keeps the foreign keys that the statement has made, as far as no node can check them, and their
    /// entries. They keep writers away from their tables.
    ///
    /// Errors: 0A000 for one that cannot be kept so; 23503.
    pub(super) async fn make_global_references(&mut self) -> Result<(), Failure> {
        let rows = self.tx.link(NodeId::HOME).await?.query(WANTED_REFERENCES).await?;
        let rows = rows.into_iter().next().unwrap_or_default();
        let read = |row| WantedReference::read(&rows, row);
        let wanted: Option<Vec<_>> = (0..rows.rows.len()).map(read).collect();
        let wanted =
            wanted.ok_or_else(|| Failure::error("XX000", "a foreign key is not readable"))?;
        // Tables that are distributed are on all of them.
        let nodes: Vec<_> = [NodeId::HOME].into_iter().chain(self.other_nodes()).collect();
        for reference in &wanted {
            self.make_reference(reference, &nodes).await?;
        }
        Ok(())
    }

    async fn make_reference(
        &mut self,
        wanted: &WantedReference,
        nodes: &[NodeId],
    ) -> Result<(), Failure> {
        let registry = self.tx.registry.clone();
        let hashed = wanted.place.as_ref().map(hashed_as);
        // The node says why it cannot be.
        let key_type = match &hashed {
            None => KeyType::Int4,
            Some(Ok(key_type)) => *key_type,
            Some(Err(detail)) => {
                return Err(Failure::unsupported(
                    format!(
                        "foreign key \"{}\" of table \"{}\" cannot hold over all nodes",
                        wanted.name, wanted.table
                    ),
                    detail,
                    "Give both columns types that are kindred: numbers without fractions, or texts, or one type.",
                ));
            }
        };
        let row_bucket = self.row_bucket(wanted);
        for node in nodes {
            let link = self.tx.enlist_begun(*node, Access::Write).await?;
            let seals = &registry.cluster.seals;
            let make = |connection: &NodeConnection| {
                wanted.make_sql(connection, key_type, &row_bucket, seals)
            };
            run_sealed(link, make).await?;
        }
        let Some(EntryPlace { map, .. }) = wanted.place else { return Ok(()) };
        let made = Made { number: (EntryKind::Reference, wanted.number), key_type, map };
        for node in nodes {
            self.make_entries(*node, &made, false).await?;
        }
        self.check_references(nodes.iter().copied().collect(), &[]).await
    }

    /// See [`WantedReference::make_sql`].
    fn row_bucket(&self, wanted: &WantedReference) -> String {
        let known = wanted.key.and_then(|(key_type, map)| {
            let map = self.tx.catalog.maps.get(&map)?;
            Some(map.bucketing.sql_bucket(KeyType::from_oid(key_type)?, "{}"))
        });
        known.unwrap_or_default()
    }

    /// Of the rows of one node. `flag`: see [`keep_sql`].
    async fn make_entries(&mut self, node: NodeId, made: &Made, flag: bool) -> Result<(), Failure> {
        let Made { number: (kind, number), key_type, map } = *made;
        let link = self.tx.enlist_begun(node, Access::Write).await?;
        link.query(&entries_sql(CURSOR, kind, number, key_type)).await.map_err(without_place)?;
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
                entries.add(made.number, self.owner(map, bucket)?, entry.to_owned(), 1);
            }
            for ((number, node), added) in entries.into_arrays() {
                self.change_entries(number, node, added, flag).await?;
            }
            if rows.rows.len() < BATCH_ROWS {
                self.tx.link(node).await?.query(&format!("CLOSE {CURSOR}")).await?;
                return Ok(());
            }
        }
    }
}

/// All that entries are kept of, with its table.
fn kept(catalog: &Catalog) -> impl Iterator<Item = (&Relation, &Kept)> {
    let relations = catalog.relations.values().flat_map(|all| all.values());
    relations.flat_map(|table| table.kept.iter().map(|it| (&**table, it)))
}

/// How the column that places a foreign key's entries is hashed: as what they refer to is.
///
/// Errors: why it is not, in words.
fn hashed_as(place: &EntryPlace) -> Result<KeyType, String> {
    let key_type = KeyType::from_oid(place.type_oid);
    let referred = KeyType::from_oid(place.referred_type_oid);
    match (key_type, referred) {
        (Some(key_type), Some(referred)) if key_type.family() == referred.family() => Ok(key_type),
        _ => Err(format!(
            "Column \"{}\" is of another kind of type than the one that it refers to, so that a row and the one that \
             it refers to are found by other hashes.",
            place.column
        )),
    }
}

/// Runs what one of our functions is asked for, with the seals that it takes.
async fn run_sealed(
    link: &mut Link,
    sealed: impl FnOnce(&NodeConnection) -> (String, Vec<String>),
) -> Result<(), Failure> {
    link.learn_moment().await?;
    let (sql, values) = sealed(link.connection());
    link.query_with(&sql, values).await.map_err(without_place)?;
    Ok(())
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

fn acts_uncounted() -> Failure {
    Failure::unsupported(
        "the statement deletes what rows on other nodes refer to, and runs code that the gateway does not see",
        "What that code does is counted on the nodes of the statement, and a foreign key would have it run on others.",
        "Delete the rows that refer to it first, in statements of their own.",
    )
}

fn too_many(bytes_max: usize) -> Failure {
    ErrorFields::error(
        "54000",
        "the statement changes too many values of which entries are kept over all nodes",
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
        let (x, y) = ((EntryKind::Unique, 7), (EntryKind::Reference, 7));
        let mut entries = Entries::default();
        // A row is given another value, and its own again; one moves; one is new.
        for (node, entry, times) in
            [(a, "(x,1)", -1), (b, "(y,1)", 1), (b, "(y,1)", -1), (a, "(x,1)", 1)]
        {
            entries.add(x, node, entry.to_owned(), times);
        }
        entries.add(x, b, "(z,1)".to_owned(), -1);
        entries.add(x, b, "(z,2)".to_owned(), 1);
        entries.add(y, a, "(n,3)".to_owned(), 1);
        let arrays: Vec<_> = entries.into_arrays().collect();
        let text = |removed: &str, added: &str| (removed.to_owned(), added.to_owned());
        assert_eq!(
            arrays,
            [((x, b), text("{\"(z,1)\"}", "{\"(z,2)\"}")), ((y, a), text("{}", "{\"(n,3)\"}")),]
        );
    }
}
