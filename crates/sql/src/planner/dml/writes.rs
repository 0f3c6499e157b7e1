//! What the plans of UPDATE, DELETE and MERGE share.
//!
//! Owns: a write at the node of its pins, one over collected rows, and what no write to several nodes can have.
//! Never: chooses between them.

use pg_query::NodeEnum;

use super::moment;
use crate::plan::{
    Access, Collect, DataPlan, Gather, NodeChoice, Pin, Plan, Planned, RunOn, Template,
};
use crate::planner::analysis::{Analysis, ItemId, Source};
use crate::planner::context::Context;
use crate::planner::gather::{self, Order};
use crate::planner::pins::{Landing, landing};
use crate::refusal::Refusal;

/// The statement as it is on the node where all `pins` land; what is to be done if they land on several is asked for only
/// where parameters decide that. `None`: they land on several.
pub(super) fn at_pins(
    pins: &[Pin],
    why: String,
    otherwise: impl FnOnce() -> Result<Planned, Refusal>,
    context: &Context<'_>,
) -> Result<Option<Planned>, Refusal> {
    let otherwise = match landing(pins, context.catalog) {
        Landing::Several => return Ok(None),
        Landing::Certain => None,
        Landing::Open => Some(Box::new(otherwise()?)),
    };
    let node = NodeChoice::Pinned(pins.to_vec());
    Ok(Some(Planned::new(DataPlan::One { node, access: Access::Write, otherwise }, why)))
}

/// Collects what `order` says, and makes the final statement, whose target is read where it is. `tree` may have gaps.
///
/// Errors: 0A000 if the rows that are collected and those that are changed cannot be of one moment.
pub(super) fn beside_collected(
    tree: NodeEnum,
    analysis: &Analysis<'_>,
    order: &Order<'_>,
    context: &Context<'_>,
) -> Result<(Vec<Collect>, Template), Refusal> {
    let target = analysis.target.map(|target| &analysis.items[target].source);
    let collected = gather::collected(&tree, analysis, order)?;
    let is_read_before = collected.iter().any(|of| of.relation.returned_by.is_none());
    // Beside rows that are locked, as they are then, the rest is read when they are.
    let has_moments = context.collects_replicated && analysis.locked.is_empty() && is_read_before;
    let Some(Source::Table { relation, .. }) = target.filter(|_| has_moments) else {
        return gather::build_around(tree, analysis, order, context);
    };
    let tree = moment::checked(tree, relation, collected.len(), context)?;
    let (mut collects, statement) = gather::build_around(tree, analysis, order, context)?;
    collects.push(moment::collect(relation));
    Ok((collects, statement))
}

/// The plan of a final statement that writes the target over what is collected.
pub(super) fn around(
    built: (Vec<Collect>, Template),
    analysis: &Analysis<'_>,
    run_on: RunOn,
) -> Plan {
    let (collects, statement) = built;
    let writes = analysis.target.and_then(|target| match analysis.items[target].source {
        Source::Table { relation, .. } => Some(relation.oid),
        _ => None,
    });
    Plan::Data(DataPlan::Gather(Gather {
        collects,
        statement,
        partial: None,
        brought: Vec::new(),
        in_tables: None,
        first: None,
        run_on,
        access: Access::Write,
        writes,
    }))
}

/// The tables and views that the statement reads and only node 1 has, which are brought from there.
///
/// Errors: 0A000 for one that cannot be.
pub(super) fn brought_from_home(analysis: &Analysis<'_>) -> Result<Vec<ItemId>, Refusal> {
    if let Some(home) = &analysis.home_alone {
        return Err(refuse_home_relation(home));
    }
    let is_at_home = |item: &ItemId| analysis.items[*item].is_at_home();
    let items: Vec<_> = (0..analysis.items.len()).filter(is_at_home).collect();
    match items.iter().find(|item| !gather::is_collectable_on_node_1(**item, analysis)) {
        Some(item) => Err(refuse_home_relation(analysis.items[*item].name)),
        None => Ok(items),
    }
}

fn refuse_home_relation(relation: &str) -> Refusal {
    Refusal::unsupported(
        format!("\"{relation}\" cannot be used in a write to several nodes"),
        "It is on node 1 only, and the other nodes do not see it.",
        "Insert its rows into a replicated table first, or write the rows one by one.",
    )
}

pub(super) fn refuse_home_function(name: &str) -> Refusal {
    Refusal::unsupported(
        format!("{name}() in a write to several nodes is not supported"),
        "It must be called on node 1.",
        "Pin the distribution key, or compute the value first.",
    )
}

pub(super) fn refuse_differing(obstacle: &str) -> Refusal {
    Refusal::unsupported(
        "this write to several nodes may differ by node",
        format!("In it {obstacle}."),
        "Compute what it reads first and send the result with the statement.",
    )
}
