//! Views whose queries are written out although policies may show their owners other rows than the client.
//!
//! Owns: which these are. Never: knows who owns one, or who asks; the gateway's executor does.
//! Start reading at [`note_views`].

use std::collections::BTreeSet;
use std::sync::Arc;

use pg_query::NodeEnum;

use super::context::Context;
use super::{mentions, views};
use crate::catalog::{Relation, RelationKind};
use crate::plan::{DataPlan, Plan, Planned, SchemaPlan};

/// Notes the views that a plan may have written out and that read tables with row security. What nodes get as it is
/// written, they read by the rights of each view's owner.
pub(super) fn note_views(planned: &mut Planned, tree: &NodeEnum, context: &Context<'_>) {
    match &mut planned.plan {
        Plan::Data(DataPlan::One { otherwise: Some(otherwise), .. }) => {
            note_views(otherwise, tree, context);
        }
        Plan::Data(DataPlan::One { .. } | DataPlan::Scatter { .. }) | Plan::Session(_) => (),
        Plan::Schema(plan) if !matches!(plan, SchemaPlan::CreateTableAs { .. }) => (),
        Plan::Data(_) | Plan::Schema(_) => {
            let named = mentions::with_targets(tree, context).relations;
            if !named.values().any(|relation| relation.row_security) {
                return;
            }
            let mut found = BTreeSet::new();
            for view in named.values().filter(|it| may_be_written_out(it, context)) {
                // What it reads is written out with it.
                let read = mentions::of_relation(view, context).relations;
                found.extend(read.values().filter(|it| shows_some(it, context)).map(|it| it.oid));
            }
            planned.as_owner_of = found.into_iter().collect();
        }
    }
}

/// Whether it is a view that a node cannot answer for its own rows.
fn may_be_written_out(relation: &Relation, context: &Context<'_>) -> bool {
    let RelationKind::View { definition } = &relation.kind else { return false };
    // One that cannot be read is refused.
    views::contents(relation, definition, context)
        .is_ok_and(|it| it.distributed && !it.is_apart(context.opaque.is_some()))
}

/// Whether it is a view over a table with row security, read through further views.
fn shows_some(relation: &Arc<Relation>, context: &Context<'_>) -> bool {
    matches!(relation.kind, RelationKind::View { .. })
        && mentions::of_relation(relation, context).relations.values().any(|it| it.row_security)
}
