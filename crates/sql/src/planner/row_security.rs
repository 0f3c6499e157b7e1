//! Views whose queries are written out: nodes do not know that a view was asked for, nor as whose.
//!
//! Owns: which these are, and which of them policies may show to their owners otherwise than to the client. Never: knows
//! who owns one, or who asks; the gateway's executor does.
//! Start reading at [`note_views`].

use std::collections::BTreeSet;
use std::sync::Arc;

use pg_query::NodeEnum;

use super::context::Context;
use super::syntax::contains;
use super::{mentions, views};
use crate::catalog::{Relation, RelationKind};
use crate::plan::{DataPlan, Plan, Planned, SchemaPlan};

/// Notes the views that a plan may have written out: those that the client must be allowed to read, and those that read
/// tables with row security. What nodes get as it is written, they read by the rights of each view's owner.
pub(super) fn note_views(planned: &mut Planned, tree: &NodeEnum, context: &Context<'_>) {
    match &mut planned.plan {
        Plan::Data(DataPlan::One { otherwise: Some(otherwise), .. }) => {
            note_views(otherwise, tree, context);
        }
        Plan::Data(DataPlan::One { .. } | DataPlan::Scatter { .. }) | Plan::Session(_) => (),
        Plan::Schema(plan) if !has_query(plan) => (),
        Plan::Data(_) | Plan::Schema(_) => {
            let named = mentions::with_targets(tree, context).relations;
            // What rows are changed by is gathered without its views.
            let changes = contains(tree, &|node| {
                matches!(
                    node,
                    NodeEnum::UpdateStmt(_) | NodeEnum::DeleteStmt(_) | NodeEnum::MergeStmt(_)
                )
            });
            let is_meant = |it: &&Arc<Relation>| may_be_written_out(it, changes, context);
            let views: Vec<_> = named.values().filter(is_meant).collect();
            if views.is_empty() {
                return;
            }
            let mut read = mentions::of(tree, context).named;
            if let Some(query) = mentions::query_within(tree) {
                read.extend(mentions::of(query, context).named);
            }
            let by_client = views.iter().filter(|view| read.contains(&view.oid));
            let mut written_out: BTreeSet<_> = by_client.map(|view| (None, view.oid)).collect();
            for reader in &views {
                // With it, whatever it reads.
                let read = mentions::named_by(reader, context);
                let is_view = |it: &&Arc<Relation>| matches!(it.kind, RelationKind::View { .. });
                let inner = named.values().filter(is_view).filter(|it| read.contains(&it.oid));
                written_out.extend(inner.map(|it| (Some(reader.oid), it.oid)));
            }
            planned.written_out = written_out.into_iter().collect();
            if !named.values().any(|relation| relation.row_security) {
                return;
            }
            let mut found = BTreeSet::new();
            for view in views {
                // What it reads is written out with it.
                let read = mentions::of_relation(view, context).relations;
                found.extend(read.values().filter(|it| shows_some(it, context)).map(|it| it.oid));
            }
            planned.as_owner_of = found.into_iter().collect();
        }
    }
}

/// Whether it fills a table with the rows of a query.
fn has_query(plan: &SchemaPlan) -> bool {
    match plan {
        SchemaPlan::CreateTableAs { .. } => true,
        SchemaPlan::TemporaryDdl { gather, .. } => gather.is_some(),
        SchemaPlan::Ddl(_)
        | SchemaPlan::EveryNodeAlone { .. }
        | SchemaPlan::Concurrently(_)
        | SchemaPlan::LockEverywhere { .. } => false,
    }
}

/// Whether it is a view that a node cannot answer for its own rows; `any`: or is not asked to.
fn may_be_written_out(relation: &Relation, any: bool, context: &Context<'_>) -> bool {
    let RelationKind::View { definition } = &relation.kind else { return false };
    // One that cannot be read is refused.
    views::contents(relation, definition, context)
        .is_ok_and(|it| it.distributed && (any || !it.is_apart(context.opaque.is_some())))
}

/// Whether it is a view over a table with row security, read through further views.
fn shows_some(relation: &Arc<Relation>, context: &Context<'_>) -> bool {
    matches!(relation.kind, RelationKind::View { .. })
        && mentions::of_relation(relation, context).relations.values().any(|it| it.row_security)
}
