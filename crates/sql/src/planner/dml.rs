//! Plans of UPDATE, DELETE and MERGE.
//!
//! Owns: where rows are changed, and what must be refused.
//! Never: rewrites anything (`gather.rs` and `moves.rs` do).
//! Start reading at [`plan_modification`].

mod merge;
mod moment;
mod moves;
mod writes;

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, UpdateStmt};

use super::analysis::{Analysis, ItemId, Source, Whereabouts};
use super::carried::refuse_change;
use super::context::Context;
use super::filters::value;
use super::gather::Order;
use super::locality::{all_pins, home_reason, not_pinned, pinned_reason};
use super::modifying_with::modifying;
use super::pins::Facts;
use super::syntax::{say_default, written};
use super::unseen::refuse_unsafe_code;
use super::views::analyse;
use super::{
    gaps, gather, local_locks, replicas, scatter, system_columns, time_gaps, unseen, views,
    written_defaults, written_views,
};
use crate::catalog::{KeyPart, Placement, Relation, RelationKind};
use crate::closure::events;
use crate::plan::{Access, DataPlan, NodeChoice, Plan, Planned, RowsWrite, RunOn};
use crate::refusal::Refusal;
use writes::{
    around, at_pins, beside_collected, brought_from_home, refuse_differing, refuse_home_function,
};

/// Plans an UPDATE, DELETE or MERGE.
pub(super) fn plan_modification(
    tree: &NodeEnum,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    if context.catalog.is_solo() {
        return Ok(Planned::at_home("no table is on other nodes"));
    }
    let expanded = views::expanded_tree(tree, context)?;
    let tree = expanded.as_ref().unwrap_or(tree);
    let explicit = written_defaults::written_out(tree, context)?;
    let tree = explicit.as_ref().unwrap_or(tree);
    let explicit = merge::written_out(tree, context)?;
    let tree = explicit.as_ref().unwrap_or(tree);
    let analysis = analyse(tree, context)?;
    let relation = written(tree).and_then(|range| context.relation(range));
    if let Some(name) = analysis.current_of {
        return at_cursor(tree, relation, name, context);
    }
    if let Some(relation) = relation {
        refuse_unsafe_code(relation, fired(tree, relation), context)?;
    }
    if !analysis.modifications.is_empty() {
        return modifying(tree, &analysis, context);
    }
    let Some(relation) = relation else { return on_home(tree, &analysis, context) };
    if let RelationKind::View { definition } = &relation.kind {
        return on_view(tree, relation, definition, &analysis, context);
    }
    match relation.placement {
        Placement::Home => on_home(tree, &analysis, context),
        Placement::Async { .. } => Err(refuse_change(relation)),
        Placement::Replicated => on_replicated(tree, relation, None, &analysis, context),
        Placement::Hash { .. } | Placement::HashOfSeveral { .. } | Placement::RoundRobin => {
            on_distributed(tree, relation, &analysis, context)
        }
    }
}

/// What a write fires. Rows of several nodes whose key changes are deleted and inserted; copies are written without
/// firing anything.
fn fired(tree: &NodeEnum, relation: &Relation) -> u8 {
    match (tree, &relation.placement) {
        (NodeEnum::DeleteStmt(_), _) => events::DELETE,
        (NodeEnum::UpdateStmt(_), Placement::Replicated) => events::UPDATE,
        _ => events::ALL,
    }
}

/// A target that only node 1 has.
fn on_home(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    if analysis.distributed().next().is_none() {
        return Ok(Planned::at_home("its table is on node 1 only"));
    }
    let run_on = RunOn::One(NodeChoice::Home);
    let plan = gathered(tree, analysis, None, run_on, false, context)?;
    Ok(Planned::new(plan, "its table is on node 1 only, and it reads distributed tables"))
}

fn on_view(
    tree: &NodeEnum,
    view: &Arc<Relation>,
    definition: &str,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let contents = views::contents(view, definition, context)?;
    if contents.distributed {
        return on_view_of_spread(tree, view, analysis, context);
    }
    if !contents.home {
        return on_replicated(tree, view, None, analysis, context);
    }
    match views::written_through(view, context) {
        // What else it reads is on node 1, but copies are to be written.
        Some(table) if table.placement == Placement::Replicated => {
            let home = format!("{} reads what is on node 1 only", view.name);
            on_replicated(tree, view, Some(home), analysis, context)
        }
        _ => on_home(tree, analysis, context),
    }
}

/// A view over a spread table: as if it were spread itself.
fn on_view_of_spread(
    tree: &NodeEnum,
    view: &Arc<Relation>,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    if matches!(tree, NodeEnum::MergeStmt(_)) {
        let message = format!("cannot execute MERGE on relation \"{}\"", view.name);
        return Err(Refusal::postgres("0A000", message)
            .with_detail("This operation is not supported for views."));
    }
    let written = written_views::as_table(view, context)?;
    refuse_unsafe_code(written.base, fired(tree, written.base), context)?;
    let target = analysis.target.unwrap_or_default();
    let mut analysis = analysis.clone();
    let spread = Whereabouts::of(&written.table);
    analysis.items[target].source = Source::Table { relation: &written.table, spread };
    if let NodeEnum::UpdateStmt(update) = tree {
        let facts = Facts::from_values(&analysis);
        let moves =
            matches!(key_change(update, &written.table, target, &facts, context), KeyChange::Moves);
        // Which default is meant, the view's or the table's, PostgreSQL knows; and each node has its own sequences.
        if moves || say_default(&update.target_list) {
            return Err(Refusal::unsupported(
                format!("this UPDATE of view \"{}\" is not supported", view.name),
                match moves {
                    true => {
                        "It may change distribution keys, and rows would have to go to another node."
                    }
                    false => "It asks for a default, which each node would evaluate by itself.",
                },
                "Update the table itself.",
            ));
        }
    }
    on_distributed(tree, &written.table, &analysis, context)
}

/// WHERE CURRENT OF: the row is where the cursor is, its copies are everywhere.
fn at_cursor(
    tree: &NodeEnum,
    relation: Option<&Arc<Relation>>,
    cursor: &str,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let cursor = cursor.to_owned();
    let why = "the cursor's row is where the cursor is";
    match relation.filter(|relation| relation.placement == Placement::Replicated) {
        None => Ok(Planned::new(DataPlan::Cursor { name: Some(cursor), close: false }, why)),
        Some(relation) => {
            refuse_unsafe_code(relation, fired(tree, relation), context)?;
            let rows = replicas::rows_of(tree, relation, context);
            Ok(Planned::new(DataPlan::Rows(RowsWrite { cursor: Some(cursor), ..rows }), why))
        }
    }
}

/// A write to the copies of `target`, a table or a view of such. `home`: why only node 1 can tell the rows, if it is
/// the view's doing.
fn on_replicated(
    tree: &NodeEnum,
    target: &Arc<Relation>,
    home: Option<String>,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let rows = replicas::rows_of(tree, target, context);
    let reads = analysis.distributed().next().map(|(_, relation, _)| relation);
    let on_home =
        || analysis.home_relation.as_ref().map(|name| format!("{name} is on node 1 only"));
    let obstacle = home.or_else(on_home).or_else(|| replicas::obstacle(tree, context));
    let plan = match (&obstacle, reads) {
        (None, None) => {
            Plan::Data(DataPlan::Replicas { locks: replicas::replica_locks(analysis), rows })
        }
        (None, Some(_)) => {
            let run_on = RunOn::Replicas { locks: replicas::replica_locks(analysis), rows };
            gathered(tree, analysis, None, run_on, false, context)?
        }
        (Some(_), None) => Plan::Data(DataPlan::Rows(rows)),
        (Some(_), Some(_)) => gathered(tree, analysis, None, RunOn::Rows(rows), false, context)?,
    };
    Ok(Planned::new(plan, why_replicated(obstacle, reads)))
}

fn why_replicated(obstacle: Option<String>, reads: Option<&Arc<Relation>>) -> String {
    match (obstacle, reads) {
        (None, None) => "every node has all the rows it changes".to_owned(),
        (None, Some(read)) => format!("a replicated table is changed by {}", read.name),
        (Some(obstacle), _) => format!("node 1 computes the rows for all copies: {obstacle}"),
    }
}

fn on_distributed(
    tree: &NodeEnum,
    relation: &Arc<Relation>,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    if let NodeEnum::MergeStmt(merge) = tree {
        return merge::plan(merge, tree, relation, analysis, context);
    }
    let target = analysis.target.unwrap_or_default();
    let facts = Facts::from_values(analysis);
    let pins = all_pins(analysis, &facts).filter(|_| home_reason(analysis).is_none());
    let key_change = match tree {
        NodeEnum::UpdateStmt(update) => key_change(update, relation, target, &facts, context),
        _ => KeyChange::None,
    };
    if let (Some(pins), KeyChange::None) = (&pins, &key_change) {
        let why = pinned_reason(analysis, pins.len());
        let otherwise = || spread(tree, relation, analysis, context);
        if let Some(planned) = at_pins(pins, why, otherwise, context)? {
            return Ok(planned);
        }
    }
    match key_change {
        KeyChange::None => spread(tree, relation, analysis, context),
        KeyChange::Moves => {
            let on_one_node = pins.is_some_and(|pins| pins.len() == 1);
            moves::plan(tree, relation, analysis, on_one_node, context)
        }
    }
}

/// A write whose rows are on several nodes.
fn spread(
    tree: &NodeEnum,
    relation: &Relation,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    if let Some(reason) = context.opaque {
        return Err(unseen::refusal(reason));
    }
    if let Some(name) = &analysis.functions.home {
        return Err(refuse_home_function(name));
    }
    let target = analysis.target.unwrap_or_default();
    brought_from_home(analysis)?;
    let not_pinned = not_pinned(analysis)
        .unwrap_or_else(|| format!("the keys of {} are on several nodes", relation.name));
    system_columns::refuse_places(tree, analysis, context)?;
    system_columns::refuse_number(tree, analysis)?;
    let brought = || Some(format!("{} is brought from node 1", analysis.home_relation.as_ref()?));
    let obstacle = scatter::write_obstacle(analysis, target).or_else(brought);
    time_gaps::refuse_untold(tree, analysis, context)?;
    let reads_time =
        analysis.functions.reads_time || time_gaps::has_literals(tree, analysis, context)?;
    if obstacle.is_none() && !reads_time {
        let why = format!("{not_pinned}; each node changes its own rows");
        return Ok(Planned::new(DataPlan::Scatter { access: Access::Write }, why));
    }
    let differs = scatter::unstable_subquery(analysis).or_else(|| analysis.time_in_view.clone());
    if let Some(obstacle) = differs {
        return Err(refuse_differing(&obstacle));
    }
    let why = match obstacle {
        Some(obstacle) => format!("{not_pinned}; {obstacle}"),
        None => format!("{not_pinned}; all nodes must get the same time"),
    };
    let plan = gathered(tree, analysis, Some(target), RunOn::EachNode, true, context)?;
    Ok(Planned::new(plan, why))
}

/// The statement with every distributed table but the target collected; where node 1's tables are not known, these too.
fn gathered(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    target: Option<ItemId>,
    run_on: RunOn,
    literal_time: bool,
    context: &Context<'_>,
) -> Result<Plan, Refusal> {
    let away = run_on == RunOn::EachNode;
    let mut collect: Vec<ItemId> = analysis
        .distributed()
        .map(|(item, ..)| item)
        .filter(|item| Some(*item) != target)
        .collect();
    if away {
        collect.extend(brought_from_home(analysis)?);
    }
    // Beside rows that are locked, as they are then, the rest is read when they are.
    let collects_more = context.collects_replicated && analysis.locked.is_empty();
    if collects_more && !collect.is_empty() {
        let more = gather::collectable_on_node_1(analysis);
        let more: Vec<_> = more.filter(|item| !collect.contains(item)).collect();
        collect.extend(more);
    }
    let local = local_locks::of(tree, analysis, context)?;
    collect.retain(|item| !local.iter().any(|lock| lock.read.contains(item)));
    let local: Vec<_> = local.iter().map(|lock| lock.item).collect();
    let order = Order { collect: &collect, brought: &[], literal_time, local: &local, away };
    gaps::refuse_marked(tree)?;
    let built = beside_collected(tree.clone(), analysis, &order, context)?;
    Ok(around(built, analysis, run_on))
}

/// What an UPDATE does to distribution keys.
enum KeyChange {
    /// Nothing: not assigned, or assigned the value it has.
    None,
    /// Rows may have to move.
    Moves,
}

fn key_change(
    update: &UpdateStmt,
    relation: &Relation,
    target: ItemId,
    facts: &Facts<'_, '_>,
    context: &Context<'_>,
) -> KeyChange {
    // Of what a key is computed from, equal values may still give different keys.
    let is_source = |node: &Node| match &node.node {
        Some(NodeEnum::ResTarget(target)) => {
            relation.key_sources().any(|source| relation.columns[source].name == target.name)
        }
        _ => false,
    };
    if update.target_list.iter().any(is_source) {
        return KeyChange::Moves;
    }
    for KeyPart { column, .. } in relation.placement.key_columns() {
        if relation.columns[column].generated {
            continue;
        }
        let name = &relation.columns[column].name;
        let assignment = update.target_list.iter().find_map(|node| match &node.node {
            Some(NodeEnum::ResTarget(assignment)) if assignment.name == *name => Some(assignment),
            _ => None,
        });
        let Some(assignment) = assignment else { continue };
        // ORMs assign every column: `SET id = 5 … WHERE id = 5` changes nothing.
        let assigned = assignment.val.as_deref().and_then(|node| value(node, context));
        if !assigned.is_some_and(|assigned| facts.keeps(target, column, assigned)) {
            return KeyChange::Moves;
        }
    }
    KeyChange::None
}

#[cfg(test)]
mod tests;
