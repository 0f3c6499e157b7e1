//! Plans of statements with INSERT, UPDATE, DELETE or MERGE in WITH.
//!
//! Owns: on which nodes all their parts can see one snapshot, and the refusal where there are none.
//! Never: plans one of the parts by itself.
//! Start reading at [`modifying`].

use std::sync::Arc;

use pg_query::NodeEnum;

use super::analysis::{Analysis, ItemId, ModificationKind, Source};
use super::context::Context;
use super::locality::{all_pins, home_reason};
use super::pins::{Facts, Landing, landing};
use super::unseen::refuse_unsafe_code;
use super::{replicas, views, written_defaults};
use crate::catalog::{Placement, Relation, RelationKind};
use crate::code::events;
use crate::plan::{Access, DataPlan, NodeChoice, Plan, Planned};
use crate::refusal::Refusal;

/// Statements with INSERT, UPDATE, DELETE or MERGE in WITH.
pub(super) fn modifying(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let main = analysis.target.and_then(|target| match analysis.items[target].source {
        Source::Table { relation, .. } => Some(relation),
        _ => None,
    });
    let relations = || analysis.modifications.iter().filter_map(|of| of.relation).chain(main);
    written_defaults::written_out(tree, context)?;
    relations().try_for_each(|relation| refuse_unsafe_code(relation, events::ALL, context))?;
    for relation in relations() {
        if let RelationKind::View { definition } = &relation.kind
            && views::contents(relation, definition, context)?.distributed
        {
            return Err(views::refuse_write(relation));
        }
    }
    let why = "a statement in WITH changes data".to_owned();
    if analysis.distributed().next().is_none() {
        let rows = replicas::rows_of_tables(relations(), &replicas::Effect::any(), context);
        let is_proven =
            || analysis.home_relation.is_none() && replicas::obstacle(tree, context).is_none();
        let plan = if rows.tables.is_empty() {
            Plan::Data(DataPlan::One {
                node: NodeChoice::Home,
                access: Access::Write,
                otherwise: None,
            })
        } else if is_proven() {
            Plan::Data(DataPlan::Replicas { locks: replicas::replica_locks(analysis), rows })
        } else {
            Plan::Data(DataPlan::Rows(rows))
        };
        return Ok(Planned::new(plan, why));
    }
    let targets = || analysis.modifications.iter().filter_map(|of| of.target);
    let spread = |item: ItemId| analysis.items[item].distributed().is_some();
    let inserts_spread = analysis.modifications.iter().any(|of| {
        matches!(of.kind, ModificationKind::Insert | ModificationKind::Merge)
            && of.target.is_some_and(spread)
    });
    let replicated_target = targets().any(|item| analysis.items[item].replicated().is_some());
    // Other nodes do not have what is written there.
    let writes_home = |relation: Option<&Arc<Relation>>| {
        relation.is_none_or(|relation| relation.placement == Placement::Home)
    };
    let home = home_reason(analysis).is_some()
        || analysis.modifications.iter().any(|of| writes_home(of.relation));
    let facts = Facts::from_values(analysis);
    let is_select = analysis.target.is_none();
    match all_pins(analysis, &facts) {
        Some(pins)
            if is_select
                && !home
                && !inserts_spread
                && !replicated_target
                && !analysis.moves_key
                && landing(&pins, context.catalog) != Landing::Several =>
        {
            let node = NodeChoice::Pinned(pins);
            Ok(Planned::new(DataPlan::One { node, access: Access::Write, otherwise: None }, why))
        }
        _ => Err(modifying_refusal()),
    }
}

/// The refusal of those that no node can run.
pub(super) fn modifying_refusal() -> Refusal {
    Refusal::unsupported(
        "a statement in WITH that changes data must concern one node or replicated tables only",
        "All its parts see one snapshot, which Tutti cannot give to parts on several nodes.",
        "Pin every distributed table by its distribution key, or send the parts as statements of \
         their own in one transaction.",
    )
}
