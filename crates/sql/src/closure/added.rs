//! Whether a change of the schema makes statements that were planned before it run code that their plans
//! do not reckon with.
//!
//! Owns: that sessions running such a statement, under any search path, are reckoned with, even where a
//! name means another relation to some from now on.
//! Never: says which statements these are.
//! Start reading at [`adds_code`], then [`mistakable`]. Functions and types by themselves are `grown`'s.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::search::{Search, Writing, schemas_with_names};
use crate::catalog::{Catalog, NameScope, Placement, Relation, RelationKind};
use crate::code::{Attached, AttachedKind, Code, FIRST_USER_OID, WrittenWith, events};

/// Whether by `new` one of these relations has code that it does not have by `old` and that is not
/// proven to look at its arguments only.
pub fn adds_code(old: &Catalog, new: &Catalog, relations: &BTreeSet<u32>) -> bool {
    let (before, after) = (find(old, relations), find(new, relations));
    let has_more = |relation: &&&Arc<Relation>| {
        has_more(before.get(&relation.oid).copied(), relation, &old.code, &new.code)
    };
    let grown: Vec<_> = after.values().filter(has_more).collect();
    if grown.is_empty() {
        return false;
    }
    let scope = any_scope(new);
    let mut search = Search::new(new, &scope, Writing::Statement);
    for relation in grown {
        search.read(relation);
        search.write(relation, events::ALL);
        for column in &relation.columns {
            search.default(relation, &column.name);
        }
        let attached = new.code.attached_to(relation.oid).iter();
        attached
            .filter(|it| it.kind == AttachedKind::Statistics)
            .for_each(|it| search.attached(it));
    }
    let reach = search.finish();
    !reach.is_transparent() || reach.sets
}

fn find<'a>(catalog: &'a Catalog, relations: &BTreeSet<u32>) -> HashMap<u32, &'a Arc<Relation>> {
    let all = catalog.relations.values().flat_map(HashMap::values);
    let found = all.filter(|relation| relations.contains(&relation.oid));
    found.map(|relation| (relation.oid, relation)).collect()
}

/// Relations of other schemas whose names these relations get or lose: a statement that names one of them may
/// mean another from now on, or may until now.
pub fn mistakable(old: &Catalog, new: &Catalog, relations: &BTreeSet<u32>) -> BTreeSet<u32> {
    let (before, after) = (find(old, relations), find(new, relations));
    let mut found = mistaken(&before, &after, old);
    found.extend(mistaken(&after, &before, new));
    found
}

/// Relations that have another name, or are in another schema, by `new` than by `old`.
pub fn renamed(old: &Catalog, new: &Catalog) -> BTreeSet<u32> {
    let has_its_name = |relation: &&Arc<Relation>| {
        let named = new.relations.get(&relation.schema).and_then(|of| of.get(&relation.name));
        named.is_some_and(|named| named.oid == relation.oid)
    };
    let before = old.relations.values().flat_map(HashMap::values);
    let gone: BTreeSet<u32> = before.filter(|it| !has_its_name(it)).map(|it| it.oid).collect();
    find(new, &gone).into_keys().collect()
}

/// Whether code that was planned with `old`, and looks relations up when it comes to them, finds by `new` that one is
/// elsewhere, is another one or of another definition, or runs code by itself that it did not. `changed_sight`:
/// sessions may see other schemas than before.
pub fn turned(old: &Catalog, new: &Catalog, changed_sight: bool) -> bool {
    let is_other = |before: &Arc<Relation>| {
        let named = new.relations.get(&before.schema).and_then(|of| of.get(&before.name));
        named.is_some_and(|after| {
            (after.oid, &after.kind) != (before.oid, &before.kind)
                || is_elsewhere(before, after, old, new)
        })
    };
    if old.relations.values().flat_map(HashMap::values).any(is_other) {
        return true;
    }
    // Made, dropped or renamed: relations of other schemas that have the name may be meant, or not any more.
    let oids = |of: &Catalog| -> BTreeSet<u32> {
        of.relations.values().flat_map(HashMap::values).map(|relation| relation.oid).collect()
    };
    let (before, after) = (oids(old), oids(new));
    let mut named = renamed(old, new);
    named.extend(before.symmetric_difference(&after));
    if !mistakable(old, new, &named).is_empty() {
        return true;
    }
    if changed_sight && !(namesakes(old).is_empty() && namesakes(new).is_empty()) {
        return true;
    }
    adds_code(old, new, &before.intersection(&after).copied().collect())
}

/// Whether rows of a relation are elsewhere by `new`, which has it as `after`, than by `old`.
pub fn is_elsewhere(before: &Relation, after: &Relation, old: &Catalog, new: &Catalog) -> bool {
    let map = match after.placement {
        Placement::Async { map, .. } => Some(map),
        ref placement => placement.key_map(),
    };
    let is_mapped_anew = map.is_some_and(|map| old.maps.get(&map) != new.maps.get(&map));
    before.placement != after.placement || is_mapped_anew
}

/// Relations whose names others have, too, in other schemas: which one a statement means rests on the schemas
/// that its session sees.
pub fn namesakes(catalog: &Catalog) -> BTreeSet<u32> {
    let mut by_name: HashMap<&str, Vec<u32>> = HashMap::new();
    for relation in catalog.relations.values().flat_map(HashMap::values) {
        by_name.entry(&relation.name).or_default().push(relation.oid);
    }
    by_name.into_values().filter(|named| 1 < named.len()).flatten().collect()
}

/// For each relation that is not in `others` by the name that it has: those of other schemas that have it too.
fn mistaken(
    relations: &HashMap<u32, &Arc<Relation>>,
    others: &HashMap<u32, &Arc<Relation>>,
    catalog: &Catalog,
) -> BTreeSet<u32> {
    let named = |relation: &Relation| (relation.schema.clone(), relation.name.clone());
    let is_alike = |relation: &Relation| {
        others.get(&relation.oid).is_some_and(|other| named(other) == named(relation))
    };
    let mut found = BTreeSet::new();
    for relation in relations.values().filter(|relation| !is_alike(relation)) {
        let others = catalog.relations.iter().filter(|(schema, _)| **schema != relation.schema);
        found.extend(others.filter_map(|(_, of)| Some(of.get(&relation.name)?.oid)));
    }
    found
}

fn has_more(before: Option<&Arc<Relation>>, after: &Relation, old: &Code, new: &Code) -> bool {
    let oid = after.oid;
    // Under another name it is a different relation to a session that waits.
    let before = before.filter(|it| it.name == after.name && it.schema == after.schema);
    let old = before.map(|_| old);
    let had = |it: &Attached| old.is_some_and(|old| old.attached_to(oid).contains(it));
    let had_with = |it: &WrittenWith| old.is_some_and(|old| old.written_with(oid).contains(it));
    let had_type = |wanted: u32| {
        before.is_some_and(|before| before.columns.iter().any(|it| it.type_oid == wanted))
    };
    let is_of_user = |wanted: u32| FIRST_USER_OID <= wanted;
    new.attached_to(oid).iter().any(|it| !had(it))
        || new.written_with(oid).iter().any(|it| !had_with(it))
        || after.columns.iter().any(|it| is_of_user(it.type_oid) && !had_type(it.type_oid))
        || (matches!(after.kind, RelationKind::View { .. })
            && before.is_none_or(|before| before.kind != after.kind))
}

/// What a name may mean to any session.
pub(super) fn any_scope(catalog: &Catalog) -> NameScope {
    let search_path = schemas_with_names(catalog).into_iter().collect();
    NameScope { search_path, ..NameScope::default() }
}
