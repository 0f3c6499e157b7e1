//! What a transaction has changed of the schema, as it has read it itself.
//!
//! Owns: what takes the place of what was known of its relations.
//! Never: reads it, or publishes it (`publisher` does).
//! Start reading at [`OwnChanges`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tutti_sql::catalog::{BucketMap, Catalog, MapId, NodeId, Placement, Relation, RelationKind};
use tutti_sql::closure::Code;

use super::NodeOids;
use super::changes::RelationChanges;
use super::load::OwnCatalog;

/// Up to where a reading may rely on knowing what was noted.
#[derive(Clone, Copy, Debug)]
pub struct AsOf(pub(super) u64);

/// What one transaction has changed, as it has read it itself.
#[derive(Clone, Debug)]
pub struct OwnChanges {
    /// The last that had been noted when it was about to be read.
    pub(super) as_of: u64,
    /// `None`: dropped.
    pub(super) relations: BTreeMap<u32, Option<Arc<Relation>>>,
    view_rules: HashMap<u32, String>,
    maps: BTreeMap<MapId, BucketMap>,
    version: u64,
    /// The code that belongs to the relations; `None`: that was not asked, for it changed more.
    code: Option<Arc<Code>>,
    /// What the nodes call the relations; `None`: they are to be asked.
    pub(super) oids: Option<Arc<OwnOids>>,
    /// It changed more than relations.
    pub(super) is_more: bool,
    /// It changed names.
    pub renames: bool,
}

/// What the nodes call what a transaction has made or renamed.
#[derive(Debug)]
pub struct OwnOids {
    /// Node 1.
    pub home: NodeOids,
    /// The others that have it.
    pub others: Vec<(NodeId, NodeOids)>,
}

impl OwnChanges {
    /// Of a transaction that has changed relations alone, as it has read them itself.
    pub fn of_relations(base: &Catalog, read: RelationChanges, as_of: AsOf) -> Self {
        let RelationChanges { relations, view_rules, maps, code, compares_otherwise, .. } = read;
        let old = base.relations.values().flat_map(HashMap::values);
        let is_more = compares_otherwise
            || old.into_iter().any(|old| {
                let Some(new) = relations.get(&old.oid) else { return false };
                let moves = new.as_ref().is_some_and(|new| new.placement != old.placement);
                // Where rows are decides what code may reach them, that of other tables too.
                moves || base.code.has_code_for_rows(old.oid)
            });
        Self {
            as_of: as_of.0,
            relations,
            view_rules: view_rules.into_iter().collect(),
            maps,
            version: 0,
            code: Some(Arc::new(code)),
            oids: None,
            is_more,
            renames: false,
        }
    }

    /// Where nothing else was made: what the nodes call it.
    pub fn know_oids(&mut self, oids: OwnOids) {
        self.oids = Some(Arc::new(oids));
    }

    /// The relations on which it holds the locks of a change.
    pub fn touched(&self) -> impl Iterator<Item = u32> {
        self.relations.keys().copied()
    }

    /// Whether it holds the locks of a change on this relation.
    pub fn touches(&self, relation: u32) -> bool {
        self.relations.contains_key(&relation)
    }

    /// Of a transaction that has changed more, by what it sees.
    pub fn of_more(own: &OwnCatalog, renames: bool, as_of: AsOf) -> Self {
        let catalog = &own.catalog;
        let mut relations: BTreeMap<_, _> = own.touched.iter().map(|oid| (*oid, None)).collect();
        for relation in catalog.relations.values().flat_map(HashMap::values) {
            if let Some(found) = relations.get_mut(&relation.oid) {
                *found = Some(relation.clone());
            }
        }
        let is_touched = |oid: &u32| relations.contains_key(oid);
        let view_rules = catalog.view_rules.iter().filter(|(oid, _)| is_touched(oid));
        Self {
            as_of: as_of.0,
            view_rules: view_rules.map(|(oid, rule)| (*oid, rule.clone())).collect(),
            maps: catalog.maps.clone(),
            version: catalog.version,
            code: None,
            oids: None,
            is_more: true,
            renames,
            relations,
        }
    }

    /// Whether it has changed nothing else.
    pub fn is_all(&self) -> bool {
        !self.is_more
    }

    /// Whether a relation is among what it has changed, or what it made look different: the
    /// texts of views that mention what it has renamed.
    pub fn may_have_changed(&self, relation: &Relation) -> bool {
        self.touches(relation.oid)
            || (self.renames && matches!(relation.kind, RelationKind::View { .. }))
    }

    /// `base` with these changes.
    pub fn apply(&self, base: &Catalog) -> Catalog {
        let mut catalog = base.clone();
        catalog.version = self.version.max(base.version + 1);
        for relations in catalog.relations.values_mut() {
            relations.retain(|_, relation| !self.relations.contains_key(&relation.oid));
        }
        for (oid, relation) in &self.relations {
            catalog.view_rules.remove(oid);
            let Some(relation) = relation else { continue };
            let schema = catalog.relations.entry(relation.schema.clone()).or_default();
            schema.insert(relation.name.clone(), relation.clone());
        }
        if let Some(code) = &self.code {
            let is_meant = |oid| self.relations.contains_key(&oid);
            catalog.code = Arc::new(catalog.code.with_relations(is_meant, code));
        }
        catalog.view_rules.extend(self.view_rules.clone());
        catalog.maps.extend(self.maps.clone());
        let relations = catalog.relations.values().flat_map(HashMap::values);
        let used: HashSet<_> =
            relations.filter_map(|relation| relation.placement.key_map()).collect();
        // Ranges that no table has any more need not be known, as where all is read.
        catalog.maps.retain(|id, map| map.bucketing.splits().is_none() || used.contains(id));
        let mut relations = catalog.relations.values().flat_map(HashMap::values);
        catalog.has_async =
            relations.clone().any(|relation| matches!(relation.placement, Placement::Async { .. }));
        catalog.has_kept = relations.clone().any(|relation| !relation.kept.is_empty());
        catalog.has_references = relations.clone().any(|relation| !relation.referred.is_empty());
        catalog.has_computed_keys =
            relations.clone().any(|relation| !relation.computed_keys.is_empty());
        catalog.is_spread = relations
            .any(|relation| relation.placement != Placement::Home && !relation.is_cluster_view());
        catalog
    }
}
