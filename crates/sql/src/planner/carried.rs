//! Statements on asynchronously replicated tables: every node has all rows, some of them late, and each row is
//! written at its home.
//!
//! Owns: as what such a table counts in a statement, for the planners know nothing of it: a read takes it for a
//! replicated table or one of node 1, a write for one that is distributed by hash; and the refusals.
//! Never: plans anything itself.
//! Start reading at [`as_it_counts`], then [`settle`].

use std::collections::BTreeMap;
use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, RangeVar};

use super::context::Context;
use super::mentions;
use super::syntax::{has_into, string};
use crate::catalog::{Catalog, Placement, Relation, RelationKind, Stage, quote_literal};
use crate::plan::{CopyToPlan, DataPlan, NodeChoice, Plan, Planned};
use crate::refusal::Refusal;
use crate::statement::Statement;
use crate::walk;

/// As `LockStmt` has it.
const ACCESS_SHARE: i32 = 1;
/// What differs from copy to copy of a row.
const PLACES: [&str; 5] = ["ctid", "xmin", "xmax", "cmin", "cmax"];

/// What such tables count as in a statement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CountsAs {
    /// Every node has all rows.
    Replicated,
    /// Node 1 has all rows.
    Home,
    /// Each row is on the node of its key: the target of a write.
    Hash,
}

/// The catalog by which the statement is to be planned, if it names such tables.
///
/// Errors: 0A000 for what is not done with them.
pub(super) fn as_it_counts(
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Option<(Catalog, CountsAs)>, Refusal> {
    if !context.catalog.has_async || context.catalog.is_solo() {
        return Ok(None);
    }
    let tree = explained(&statement.tree);
    refuse_other_labels(tree, context.catalog)?;
    let mut changed = changed(tree).into_iter().filter_map(|range| context.relation(range));
    if let Some(relation) = changed.find(is_async) {
        return Err(refuse_change(relation));
    }
    refuse_locks(tree, context)?;
    let mentioned = mentions::with_targets(tree, context);
    let carried: Vec<_> = mentioned.relations.values().filter(is_async).cloned().collect();
    let Some(first) = carried.first() else { return Ok(None) };
    let counts_as = match tree {
        NodeEnum::PrepareStmt(_) | NodeEnum::ExecuteStmt(_) => return Ok(None),
        // The rows of one node: others may have others yet.
        NodeEnum::SelectStmt(select) if has_into(select) => {
            refuse_in_read(tree, first, &mentioned.relations)?;
            CountsAs::Home
        }
        NodeEnum::SelectStmt(_) | NodeEnum::DeclareCursorStmt(_) => {
            refuse_in_read(tree, first, &mentioned.relations)?;
            of_read(&mentioned.relations)
        }
        NodeEnum::CreateTableAsStmt(_) => {
            refuse_in_read(tree, first, &mentioned.relations)?;
            CountsAs::Home
        }
        // It is where its tables are, and stays when they are something else.
        NodeEnum::ViewStmt(_) => {
            refuse_in_read(tree, first, &mentioned.relations)?;
            CountsAs::Replicated
        }
        NodeEnum::CopyStmt(copy) if copy.is_from => CountsAs::Hash,
        NodeEnum::CopyStmt(_) => {
            refuse_in_read(tree, first, &mentioned.relations)?;
            of_read(&mentioned.relations)
        }
        // A dump's lock; what is stronger would have to keep rows from arriving.
        NodeEnum::VacuumStmt(_) | NodeEnum::LockStmt(_) => CountsAs::Replicated,
        NodeEnum::InsertStmt(_) | NodeEnum::UpdateStmt(_) | NodeEnum::DeleteStmt(_) => {
            of_write(tree, &carried, context)?
        }
        NodeEnum::MergeStmt(_) => return Err(refuse_way(first, "MERGE")),
        _ => return Err(refuse_change(first)),
    };
    if counts_as == CountsAs::Hash
        && let Some(waiting) = carried.iter().find(|relation| !is_carried(relation))
    {
        return Err(refuse_pending(waiting));
    }
    let mut catalog = context.catalog.clone();
    for relation in &carried {
        let Some(known) = catalog.relations.get_mut(&relation.schema) else { continue };
        let counted =
            Relation { placement: counted(relation, counts_as), ..Relation::clone(relation) };
        known.insert(relation.name.clone(), Arc::new(counted));
    }
    Ok(Some((catalog, counts_as)))
}

/// Tables whose definition, or all of whose rows, a statement changes or locks; those that are dropped are looked
/// for when it has run ([`check_unchanged`]).
fn changed(tree: &NodeEnum) -> Vec<&RangeVar> {
    match tree {
        NodeEnum::TruncateStmt(truncate) => ranges(&truncate.relations),
        // Its children would have its placement, and are not carried.
        NodeEnum::CreateStmt(create) => ranges(&create.inh_relations),
        NodeEnum::AlterTableStmt(alter) => alter.relation.iter().collect(),
        NodeEnum::RenameStmt(rename) => rename.relation.iter().collect(),
        NodeEnum::AlterObjectSchemaStmt(alter) => alter.relation.iter().collect(),
        NodeEnum::IndexStmt(index) => index.relation.iter().collect(),
        NodeEnum::CreateTrigStmt(trigger) => trigger.relation.iter().collect(),
        NodeEnum::RuleStmt(rule) => rule.relation.iter().collect(),
        NodeEnum::CreatePolicyStmt(policy) => policy.table.iter().collect(),
        NodeEnum::AlterPolicyStmt(policy) => policy.table.iter().collect(),
        NodeEnum::ClusterStmt(cluster) => cluster.relation.iter().collect(),
        _ => Vec::new(),
    }
}

/// Refuses locking such tables, or views of them, against more than a change of their definition: rows would not arrive,
/// and what has not arrived is not locked.
fn refuse_locks(tree: &NodeEnum, context: &Context<'_>) -> Result<(), Refusal> {
    let NodeEnum::LockStmt(lock) = tree else { return Ok(()) };
    if lock.mode == ACCESS_SHARE {
        return Ok(());
    }
    for locked in ranges(&lock.relations).into_iter().filter_map(|range| context.relation(range)) {
        let all = mentions::of_relation(locked, context).relations;
        if let Some(relation) = all.values().find(is_async) {
            return Err(refuse_way(relation, "LOCK in this mode"));
        }
    }
    Ok(())
}

/// Refuses renaming a label of an enum while rows that have it, under its old name, may be on their way.
fn refuse_other_labels(tree: &NodeEnum, catalog: &Catalog) -> Result<(), Refusal> {
    if !matches!(tree, NodeEnum::AlterEnumStmt(alter) if !alter.old_val.is_empty()) {
        return Ok(());
    }
    let has_own_types = |relation: &&Arc<Relation>| {
        is_async(relation)
            && relation.columns.iter().any(|it| !it.type_name.starts_with("pg_catalog."))
    };
    let mut tables = catalog.relations.values().flat_map(|known| known.values());
    match tables.find(has_own_types) {
        Some(relation) => Err(refuse_change(relation)),
        None => Ok(()),
    }
}

fn ranges(nodes: &[Node]) -> Vec<&RangeVar> {
    nodes
        .iter()
        .filter_map(|node| match &node.node {
            Some(NodeEnum::RangeVar(range)) => Some(range),
            _ => None,
        })
        .collect()
}

/// What is explained, or else the statement itself.
fn explained(tree: &NodeEnum) -> &NodeEnum {
    match tree {
        NodeEnum::ExplainStmt(explain) => {
            explain.query.as_ref().and_then(|query| query.node.as_ref()).unwrap_or(tree)
        }
        tree => tree,
    }
}

fn is_async(relation: &&Arc<Relation>) -> bool {
    matches!(relation.placement, Placement::Async { .. })
}

fn is_carried(relation: &Relation) -> bool {
    matches!(relation.placement, Placement::Async { stage: Stage::Carried, .. })
}

fn counted(relation: &Relation, counts_as: CountsAs) -> Placement {
    match (counts_as, &relation.placement) {
        (CountsAs::Hash, Placement::Async { key, key_type, map, .. }) => {
            Placement::Hash { key: *key, key_type: *key_type, map: *map }
        }
        (CountsAs::Replicated, _) => Placement::Replicated,
        _ => Placement::Home,
    }
}

/// A read of such tables and replicated ones alone is any node's; views may be on node 1 only.
fn of_read(relations: &BTreeMap<String, Arc<Relation>>) -> CountsAs {
    let is_everywhere = |relation: &Arc<Relation>| {
        relation.kind == RelationKind::Table
            && matches!(relation.placement, Placement::Async { .. } | Placement::Replicated)
    };
    match relations.values().all(is_everywhere) {
        true => CountsAs::Replicated,
        false => CountsAs::Home,
    }
}

fn of_write(
    tree: &NodeEnum,
    carried: &[Arc<Relation>],
    context: &Context<'_>,
) -> Result<CountsAs, Refusal> {
    let range = match tree {
        NodeEnum::InsertStmt(insert) => insert.relation.as_ref(),
        NodeEnum::UpdateStmt(update) => update.relation.as_ref(),
        NodeEnum::DeleteStmt(delete) => delete.relation.as_ref(),
        _ => None,
    };
    let target = range.and_then(|range| context.relation(range));
    if let Some(view) = target
        && matches!(view.kind, RelationKind::View { .. })
        && mentions::of_relation(view, context).relations.values().any(|read| is_async(&read))
    {
        return Err(refuse_way(view, "a write through a view"));
    }
    let Some(target) = target.filter(is_async) else {
        refuse_within(tree, &carried[0])?;
        return Ok(CountsAs::Home);
    };
    refuse_within(tree, target)?;
    let reads = mentions::of(tree, context);
    let is_other = |relation: &&Arc<Relation>| {
        is_async(relation)
            && (relation.oid != target.oid || matches!(tree, NodeEnum::InsertStmt(_)))
    };
    match reads.relations.values().find(is_other) {
        None => Ok(CountsAs::Hash),
        // Its rows are on every node, and would be read once from each.
        Some(read) => Err(Refusal::unsupported(
            format!("{} cannot be read in a write to {}", read.sql_name(), target.sql_name()),
            "Both are replicated asynchronously: the rows that are read may be late where the others are \
             written.",
            "Read in a statement of its own, and send what was read with the write.",
        )),
    }
}

/// Refuses in a read, and in the views that it looks through, what locks rows of such tables, writes, or reads what a
/// copy has of its own.
fn refuse_in_read(
    tree: &NodeEnum,
    relation: &Relation,
    relations: &BTreeMap<String, Arc<Relation>>,
) -> Result<(), Refusal> {
    refuse_within(tree, relation)?;
    refuse_places(query_of(tree), relation)?;
    for view in relations.values() {
        let RelationKind::View { definition } = &view.kind else { continue };
        for read in crate::statement::parse(definition)? {
            refuse_within(&read.tree, relation)?;
            refuse_places(&read.tree, relation)?;
        }
    }
    Ok(())
}

/// The query that a statement is about, or else the statement itself: the walk does not go into statements that are
/// not rows'.
fn query_of(tree: &NodeEnum) -> &NodeEnum {
    let query = match tree {
        NodeEnum::DeclareCursorStmt(declare) => declare.query.as_deref(),
        NodeEnum::CreateTableAsStmt(create) => create.query.as_deref(),
        NodeEnum::ViewStmt(view) => view.query.as_deref(),
        NodeEnum::CopyStmt(copy) => copy.query.as_deref(),
        _ => None,
    };
    query.and_then(|query| query.node.as_ref()).unwrap_or(tree)
}

/// Refuses what locks rows of such tables, or writes in the middle of another statement.
fn refuse_within(tree: &NodeEnum, relation: &Relation) -> Result<(), Refusal> {
    let mut found = None;
    find(query_of(tree), true, &mut found);
    found.map_or(Ok(()), |what| Err(refuse_way(relation, what)))
}

/// Refuses reading what a copy has of its own: compared with the row at home, it would say that somebody has changed
/// it.
fn refuse_places(tree: &NodeEnum, relation: &Relation) -> Result<(), Refusal> {
    match names_place(tree) {
        true => Err(refuse_way(relation, "reading ctid, xmin and their kin")),
        false => Ok(()),
    }
}

fn names_place(tree: &NodeEnum) -> bool {
    let mut found = match tree {
        NodeEnum::ColumnRef(column) => {
            column.fields.last().and_then(string).is_some_and(|name| PLACES.contains(&name))
        }
        _ => false,
    };
    walk::read::children(tree, &mut |child| {
        found = found || child.node.as_ref().is_some_and(names_place);
    });
    found
}

fn find(tree: &NodeEnum, is_outermost: bool, found: &mut Option<&'static str>) {
    match tree {
        NodeEnum::SelectStmt(select) if !select.locking_clause.is_empty() => {
            *found = Some("FOR UPDATE and the like");
        }
        NodeEnum::InsertStmt(_)
        | NodeEnum::UpdateStmt(_)
        | NodeEnum::DeleteStmt(_)
        | NodeEnum::MergeStmt(_)
            if !is_outermost =>
        {
            *found = Some("a write in WITH");
        }
        _ => (),
    }
    walk::read::children(tree, &mut |child| {
        if let Some(child) = &child.node {
            find(child, false, found);
        }
    });
}

/// Whether what the statement reads may be late: rows that are written are at home, where nothing is.
pub(super) fn may_be_late(statement: &Statement, counts_as: CountsAs) -> bool {
    let reads_none = matches!(
        explained(&statement.tree),
        NodeEnum::VacuumStmt(_) | NodeEnum::LockStmt(_) | NodeEnum::ViewStmt(_)
    );
    counts_as != CountsAs::Hash && !reads_none
}

/// What was planned for a write as if its target were distributed by hash: only what goes to the rows' homes
/// may be done so, for the other nodes have copies of the same rows.
pub(super) fn confine(
    planned: &mut Planned,
    statement: &Statement,
    counts_as: CountsAs,
) -> Result<(), Refusal> {
    if counts_as != CountsAs::Hash {
        return Ok(());
    }
    let inserts =
        matches!(explained(&statement.tree), NodeEnum::InsertStmt(_) | NodeEnum::CopyStmt(_));
    confine_plan(planned, inserts)
}

fn confine_plan(planned: &mut Planned, inserts: bool) -> Result<(), Refusal> {
    let refused = || {
        Refusal::unsupported(
            "this write to an asynchronously replicated table does not say which rows' homes it is for",
            "Each row is written at its home, the node of its key. A write that does not name the keys would \
             find copies of the same rows on every node; one that changes the key would give the row another \
             home.",
            "Name the key in WHERE, by equality with values. To change a key, delete the row and insert it.",
        )
    };
    let Plan::Data(plan) = &mut planned.plan else { return Err(refused()) };
    match plan {
        // Of none it would be any node's.
        DataPlan::One { node: NodeChoice::Pinned(pins), otherwise, .. } if !pins.is_empty() => {
            if let Some(otherwise) = otherwise
                && confine_plan(otherwise, inserts).is_err()
            {
                otherwise.plan = Plan::Data(DataPlan::Refused(Box::new(refused())));
                otherwise.unseen = None;
            }
            Ok(())
        }
        DataPlan::Insert(_) | DataPlan::CopyFrom(_) if inserts => Ok(()),
        // Rows of a table that has the same map: each node inserts those whose home it is.
        DataPlan::Scatter { .. } if inserts => Ok(()),
        DataPlan::Explain(explain) => confine_plan(&mut explain.of, inserts),
        DataPlan::CopyTo(copy) if matches!(&copy.plan, CopyToPlan::One(NodeChoice::Pinned(pins), _) if !pins.is_empty()) => {
            Ok(())
        }
        DataPlan::Refused(_) => Ok(()),
        _ => Err(refused()),
    }
}

fn refuse_way(relation: &Relation, what: &str) -> Refusal {
    Refusal::unsupported(
        format!("{what} is not supported with {}", relation.sql_name()),
        "The table is replicated asynchronously: a node may have its rows late, and locks on copies keep \
         nobody from writing.",
        "Use plain statements, or make the table replicated: SELECT tutti_replicate(…).",
    )
}

/// Its definition stays what rows that are on their way were written by.
pub fn refuse_change(relation: &Relation) -> Refusal {
    let name = relation.sql_name();
    Refusal::unsupported(
        format!("{name} cannot be changed while it is replicated asynchronously"),
        "Rows that are still on their way were written by its old definition, and would not fit.",
        format!(
            "Make it replicated, which waits for them: SELECT tutti_replicate({0}). Then change it, and make it \
             asynchronous again: SELECT tutti_replicate({0}, async => true).",
            quote_literal(&name)
        ),
    )
}

fn refuse_pending(relation: &Relation) -> Refusal {
    let name = relation.sql_name();
    let refusal = Refusal::postgres("55000", format!("{name} cannot be written at the moment"));
    if let Placement::Async { stage: Stage::Ending, key, .. } = relation.placement {
        let key = quote_literal(&relation.columns[key].name);
        return refusal
            .with_detail("It is being distributed by its key, and that is not finished.")
            .with_hint(format!(
                "If nobody is doing it any more: SELECT tutti_distribute({}, {key}).",
                quote_literal(&name)
            ));
    }
    refusal
        .with_detail("It is being made asynchronously replicated, or replicated again, and that is not finished.")
        .with_hint(format!(
            "If nobody is doing it any more: SELECT tutti_replicate({0}, async => true), or SELECT \
             tutti_replicate({0}).",
            quote_literal(&name)
        ))
}

/// Whether a schema change leaves such tables what they are.
///
/// Errors: 0A000 for the first that it changes.
pub fn check_unchanged(before: &Catalog, after: &Catalog) -> Result<(), Refusal> {
    if !before.has_async {
        return Ok(());
    }
    let mut tables: Vec<_> = before.relations.values().flat_map(|known| known.values()).collect();
    tables.retain(is_async);
    tables.sort_by_key(|table| (&table.schema, &table.name));
    for table in tables {
        let now = after.relations.get(&table.schema).and_then(|known| known.get(&table.name));
        let is_same = now.is_some_and(|now| {
            let as_before = Relation { placement: table.placement.clone(), ..Relation::clone(now) };
            as_before == **table
        });
        if !is_same {
            return Err(refuse_change(table));
        }
    }
    Ok(())
}
