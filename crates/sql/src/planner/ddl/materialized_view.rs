//! Materialized views: each node fills its own copy, so all must read the same rows.
//!
//! Owns: what they may read, and when they are filled again. Never: fills one.
//! Start reading at [`plan_materialized_view`].

use pg_query::NodeEnum;
use pg_query::protobuf::RefreshMatViewStmt;

use super::nodes::everywhere;
use super::refused;
use crate::catalog::Placement;
use crate::plan::{DataPlan, Ddl, NodeChoice, Plan, Planned};
use crate::planner::context::Context;
use crate::planner::{mentions, query};
use crate::refusal::Refusal;

/// CREATE MATERIALIZED VIEW: each node fills its own copy, so all must read the same rows.
pub(super) fn plan_materialized_view(
    query_tree: &NodeEnum,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    refuse_materialized(mentions::of(query_tree, context).distributed.as_deref())?;
    let NodeEnum::SelectStmt(select) = query_tree else {
        return Err(refused::execute());
    };
    match query::plan_select(select, context)?.plan {
        Plan::Data(DataPlan::One { node: NodeChoice::Home | NodeChoice::Any, .. }) => {
            Ok(everywhere(Ddl {
                creates: None,
                may_drop: false,
                touches_sequences: false,
                ..Ddl::default()
            }))
        }
        _ => Err(refused::materialized("its query")),
    }
}

fn refuse_materialized(distributed: Option<&str>) -> Result<(), Refusal> {
    match distributed {
        Some(name) => Err(refused::materialized(name)),
        None => Ok(()),
    }
}

/// Refuses REFRESH of what distributed tables have become, and such as no transaction of several nodes can have.
pub(super) fn check_refresh(
    refresh: &RefreshMatViewStmt,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    if let Some(relation) = refresh.relation.as_ref().and_then(|it| context.relation(it)) {
        let name = mentions::of_relation(relation, context).distributed;
        refuse_materialized(name.as_deref())?;
        // It creates temporary tables, with which no transaction can be prepared.
        let is_home_alone =
            relation.placement == Placement::Home && context.catalog.home_by_default;
        if refresh.concurrent && !is_home_alone && !context.catalog.is_solo() {
            return Err(refused::concurrently("REFRESH MATERIALIZED VIEW"));
        }
    }
    Ok(())
}
