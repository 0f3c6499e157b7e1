//! What unseen code means for a plan that was chosen: add what must be accounted for, or refuse.
//!
//! Owns: the rule that opaque code runs on node 1, accounted for, or not at all. Enforced in one place,
//! [`account`], after whatever the planner has chosen.
//! Never: chooses another plan.
//! Start reading at [`account`].

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::Node;

use super::reach::fires_event_triggers;
use super::rows::{refuse_transit, refuse_unsafe_planning};
use super::wording::{hint, refusal};
use crate::catalog::{Catalog, NameScope};
use crate::closure::{Reach, Reason, Search, Writing};
use crate::code::Attached;
use crate::plan::{
    Access, Collect, Concerns, CopyToPlan, DataPlan, Ddl, DdlNodes, Explain, Gather, InsertSource,
    NodeChoice, Plan, Planned, RowsWrite, RunOn, SchemaPlan, Unseen,
};
use crate::planner::context::Context;
use crate::planner::mentions;
use crate::refusal::Refusal;
use crate::statement::{Statement, holds};
use crate::walk;

/// Whether a statement rebuilds tables or indexes, where nothing can be asked after it: many of these
/// take no transaction.
fn rebuilds(tree: &NodeEnum) -> bool {
    matches!(tree, NodeEnum::ReindexStmt(_) | NodeEnum::ClusterStmt(_) | NodeEnum::VacuumStmt(_))
}

/// Puts into the plan what has to be accounted for when it runs, and refuses what no plan can run rightly.
///
/// Requires: `context.opaque` is the reason in `reach`.
pub(crate) fn account(
    planned: &mut Planned,
    statement: &Statement,
    reach: &Reach,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    if context.catalog.is_solo() {
        return Ok(());
    }
    refuse_gathering_types(&planned.plan, context)?;
    refuse_only(&statement.tree, &planned.plan, context)?;
    account_for_event_triggers(planned, statement, context)?;
    let is_call = matches!(statement.tree, NodeEnum::CallStmt(_));
    // In other statements PostgreSQL lets nothing commit.
    let may_commit = is_call || matches!(statement.tree, NodeEnum::DoStmt(_));
    if let (Some(code), Some(reason), true) = (&reach.commits, &reach.opaque, may_commit) {
        if is_call && reason.is_declared_home() {
            // What it commits cannot be undone: nothing is asked.
            return Ok(());
        }
        let Some(beyond) = &reach.beyond_home else {
            planned.rest_on_home(reach);
            return Ok(());
        };
        return Err(Refusal::unsupported(
            format!("{code} cannot commit here"),
            format!(
                "What it has done until then could not be taken back, and nobody can tell what that is: {beyond}."
            ),
            "Let it end without COMMIT; or, if it touches tables of node 1 only, declare the \
             procedure: SELECT tutti_function('procedure', 'home').",
        ));
    }
    let gathers = context.collects_replicated && gathers(&planned.plan);
    if gathers && let Some(read) = reach.reads.first() {
        return Err(two_snapshots(read));
    }
    if reach.opaque.is_none() && !reach.sets {
        return Ok(());
    }
    if let (true, Some(reason)) = (reach.hides, &reach.opaque) {
        return Err(Refusal::unsupported(
            format!("{} cannot be accounted for", reason.code),
            "Something that the statement runs names track_counts or max_parallel_workers: with \
             these a server can be kept from telling what code has touched.",
            "Leave these settings alone in functions and beside them.",
        ));
    }
    if reach.opaque.is_some() {
        for relation in mentions::with_targets(&statement.tree, context).relations.values() {
            refuse_unsafe_planning(relation, context)?;
        }
    }
    let unseen = Unseen {
        reason: reach.opaque.as_ref().map(ToString::to_string),
        sets: reach.sets,
        catches: reach.catches,
        samples: reach.samples,
        one_snapshot: gathers,
    };
    if let (Some(reason), Plan::Data(DataPlan::Insert(_))) = (&reach.opaque, &planned.plan)
        && says_more_than_rows(&statement.tree)
    {
        // ON CONFLICT and RETURNING run where the rows go.
        return Err(refusal(reason));
    }
    if let (true, Some(reason)) = (rebuilds(&statement.tree), &reach.opaque) {
        return Err(refusal(reason));
    }
    let holds = matches!(&statement.tree, NodeEnum::DeclareCursorStmt(it) if holds(it));
    if holds && reach.beyond_home.is_none() && is_cursor_of_home(&planned.plan) {
        planned.rest_on_home(reach);
        return Ok(());
    }
    let is_accounted_for = !holds && account_for(planned, &unseen);
    match &reach.opaque {
        Some(reason) if !is_accounted_for => Err(refusal(reason)),
        _ => Ok(()),
    }
}

/// For changes on node 1 alone, what event triggers do is asked there like other code. Otherwise it could
/// not be told from what the change itself does to spread tables.
fn account_for_event_triggers(
    planned: &mut Planned,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    if !context.catalog.code.has_event_triggers() || !fires_event_triggers(statement) {
        return Ok(());
    }
    let Some(reason) = unknown_of_event_triggers(context.catalog, context.scope, |_| true) else {
        return Ok(());
    };
    match &mut planned.plan {
        // What it does must be known before the next statement.
        Plan::Schema(SchemaPlan::Ddl(ddl)) if ddl.scope == DdlNodes::HomeAsItIs => {
            ddl.scope = DdlNodes::Home
        }
        Plan::Schema(
            SchemaPlan::Ddl(Ddl { scope: DdlNodes::AllNodes | DdlNodes::Shared { .. }, .. })
            | SchemaPlan::CreateTableAs { .. },
        ) => {
            return Err(Refusal::unsupported(
                "this change of the schema would fire an event trigger, and is not node 1's alone",
                format!(
                    "What the trigger does could not be told from what the change does: {reason}."
                ),
                hint(&reason, "row"),
            ));
        }
        _ => (),
    }
    Ok(())
}

/// Why it cannot be known what these event triggers do, if so.
fn unknown_of_event_triggers(
    catalog: &Catalog,
    scope: &NameScope,
    are_meant: impl Fn(&Attached) -> bool,
) -> Option<Reason> {
    let mut search = Search::new(catalog, scope, Writing::Row);
    search.event_triggers_that(are_meant);
    search.finish().opaque
}

/// After a change of the schema. One that replaces what event triggers call runs the new code at its own end,
/// on each of its nodes, where it was planned with the old.
///
/// Errors: 0A000 if it cannot be known what that did, and could be before.
pub fn check_event_triggers(
    before: &Catalog,
    after: &Catalog,
    scope: &NameScope,
) -> Result<(), Refusal> {
    if after.is_solo() || !after.code.has_event_triggers() {
        return Ok(());
    }
    // Those that were made meanwhile were not there to be fired.
    let stayed = |trigger: &Attached| before.code.event_triggers.contains(trigger);
    let Some(reason) = unknown_of_event_triggers(after, scope, stayed) else { return Ok(()) };
    if unknown_of_event_triggers(before, scope, |_| true).is_some() {
        return Ok(());
    }
    Err(Refusal::unsupported(
        "code that an event trigger calls cannot be replaced by code that does more",
        format!("The event trigger may have been fired by this very change: {reason}."),
        "Drop the event trigger, replace the function, and create the event trigger again.",
    ))
}

impl Planned {
    /// Nothing can be asked after it: what it does is proven to concern node 1 alone, as long as these
    /// tables are there.
    fn rest_on_home(&mut self, reach: &Reach) {
        self.concerns = Some(Arc::new(Concerns {
            relations: Some(reach.home_tables.iter().copied().collect()),
            calls: reach.calls.iter().copied().collect(),
            is_asked: false,
            // What was proven is proven anew by a change.
            names_absent: false,
        }));
        self.unasked = true;
    }
}

fn is_cursor_of_home(plan: &Plan) -> bool {
    match plan {
        Plan::Data(DataPlan::DeclareCursor { query, .. }) => {
            matches!(
                query.plan,
                Plan::Data(DataPlan::One {
                    node: NodeChoice::Home | NodeChoice::Speaker,
                    otherwise: None,
                    ..
                })
            )
        }
        _ => false,
    }
}

/// Whether an INSERT has a part that runs on the nodes of its rows.
fn says_more_than_rows(tree: &NodeEnum) -> bool {
    match tree {
        NodeEnum::InsertStmt(insert) => {
            insert.on_conflict_clause.is_some()
                || insert.returning_clause.as_ref().is_some_and(|it| !it.exprs.is_empty())
        }
        _ => false,
    }
}

/// Gathered rows are those of a table with its children.
fn refuse_only(tree: &NodeEnum, plan: &Plan, context: &Context<'_>) -> Result<(), Refusal> {
    if matches!(
        plan,
        Plan::Data(
            DataPlan::One { otherwise: None, .. }
                | DataPlan::Scatter { .. }
                | DataPlan::Replicas { .. }
        ) | Plan::Schema(
            SchemaPlan::Ddl(_)
                | SchemaPlan::LockEverywhere { .. }
                | SchemaPlan::EveryNodeAlone { .. }
                | SchemaPlan::Concurrently(_)
        )
    ) {
        return Ok(());
    }
    match only(tree, context) {
        Some(table) => Err(Refusal::unsupported(
            format!("FROM ONLY {table} is not supported here"),
            "The statement brings rows of several nodes together, and would bring those of the \
             table's children as well.",
            "Read the table by itself, or without ONLY.",
        )),
        None => Ok(()),
    }
}

/// A table on several nodes that is named with ONLY, and has children.
fn only(tree: &NodeEnum, context: &Context<'_>) -> Option<String> {
    let mut found = match tree {
        NodeEnum::RangeVar(range) if !range.inh => context
            .relation(range)
            .filter(|relation| relation.placement.is_distributed())
            .filter(|relation| 1 < context.catalog.code.with_children(relation.oid).len())
            .map(|relation| relation.name.clone()),
        _ => None,
    };
    walk::read::children(tree, &mut |child: &Node| {
        if found.is_none() {
            found = child.node.as_ref().and_then(|child| only(child, context));
        }
    });
    found
}

/// A gathered statement at READ COMMITTED whose last step would read more, later.
fn two_snapshots(read: &str) -> Refusal {
    Refusal::unsupported(
        "this statement would see two moments of the cluster",
        format!(
            "It brings rows of distributed tables together, and code that it calls then reads \
             {read}: at READ COMMITTED that is a later snapshot."
        ),
        "Run it in a transaction with ISOLATION LEVEL REPEATABLE READ.",
    )
}

/// Notes where in the plan the code runs; false if that is not on node 1 alone.
fn account_for(planned: &mut Planned, unseen: &Unseen) -> bool {
    let is_home = |run_on: &RunOn| matches!(run_on, RunOn::One(NodeChoice::Home));
    match &mut planned.plan {
        Plan::Data(DataPlan::One { node: node @ NodeChoice::Speaker, .. }) => {
            *node = NodeChoice::Home;
        }
        Plan::Data(DataPlan::One { node: NodeChoice::Home, otherwise: None, .. })
        | Plan::Schema(SchemaPlan::TemporaryDdl { .. })
        | Plan::Data(DataPlan::Explain(_) | DataPlan::Cursor { .. }) => (),
        Plan::Schema(SchemaPlan::Ddl(ddl)) if ddl.scope == DdlNodes::Home => (),
        Plan::Data(DataPlan::Gather(gather)) if is_home(&gather.run_on) => (),
        // Whatever it does to the travelling tables, it is their rows after it that travel.
        Plan::Data(DataPlan::Rows(rows)) if rows.cursor.is_none() => {
            if unseen.reason.is_some() {
                rows.returned = None;
            }
        }
        Plan::Data(DataPlan::Replicas { rows, .. }) if unseen.reason.is_some() => {
            let rows = RowsWrite { returned: None, ..rows.clone() };
            planned.plan = Plan::Data(DataPlan::Rows(rows));
        }
        Plan::Data(DataPlan::CopyTo(copy)) => match &copy.plan {
            CopyToPlan::One(NodeChoice::Home, _) => (),
            CopyToPlan::Gather(gather) if is_home(&gather.run_on) => (),
            _ => return false,
        },
        Plan::Data(DataPlan::DeclareCursor { query, .. }) => {
            let mut query = (**query).clone();
            if !account_for(&mut query, unseen) {
                return false;
            }
        }
        Plan::Data(DataPlan::Insert(insert)) => match &mut insert.source {
            InsertSource::Select { plan, .. } => return account_for(plan, unseen),
            InsertSource::Values { .. } => return false,
        },
        // Its query is planned again when it is run.
        Plan::Schema(SchemaPlan::CreateTableAs { .. }) => return true,
        // Each part is accounted for by itself.
        Plan::Data(DataPlan::Steps(_)) => return true,
        _ => return false,
    }
    planned.unseen = Some(Box::new(unseen.clone()));
    true
}

/// Gathered rows are rebuilt, which checks the domains of their columns again.
fn refuse_gathering_types(plan: &Plan, context: &Context<'_>) -> Result<(), Refusal> {
    for collect in collects(plan) {
        refuse_transit(&collect.relation, context.catalog)?;
        let mut search = Search::new(context.catalog, context.scope, Writing::Row);
        search.make_rows(&collect.relation);
        if let Some(reason) = search.finish().opaque {
            return Err(Refusal::unsupported(
                format!("rows of {} cannot be brought to one node", collect.relation.sql_name()),
                format!("The type of a column would be checked anew there: {reason}."),
                hint(&reason, "replicated"),
            ));
        }
    }
    Ok(())
}

fn collects(plan: &Plan) -> &[Collect] {
    gather_of(plan).map_or(&[], |gather| &gather.collects)
}

fn gather_of(plan: &Plan) -> Option<&Gather> {
    match plan {
        Plan::Data(DataPlan::Gather(gather))
        | Plan::Schema(SchemaPlan::TemporaryDdl { gather: Some(gather), .. }) => Some(gather),
        Plan::Data(DataPlan::CopyTo(copy)) => match &copy.plan {
            CopyToPlan::Gather(gather) => Some(gather),
            _ => None,
        },
        Plan::Data(
            DataPlan::One { otherwise: Some(of), .. }
            | DataPlan::DeclareCursor { query: of, .. }
            | DataPlan::Explain(Explain { of, .. }),
        ) => gather_of(&of.plan),
        Plan::Data(DataPlan::Insert(insert)) => match &insert.source {
            InsertSource::Select { plan, .. } => gather_of(&plan.plan),
            InsertSource::Values { .. } => None,
        },
        _ => None,
    }
}

/// Whether the plan brings rows together for what it writes: outside a transaction it begins one, and at
/// READ COMMITTED its parts have snapshots of their own.
pub fn gathers_to_write(plan: &Plan) -> bool {
    match plan {
        Plan::Data(DataPlan::Gather(gather)) => {
            gather.access == Access::Write || gather.locks_rows()
        }
        Plan::Data(DataPlan::One { otherwise: Some(of), .. }) => gathers_to_write(&of.plan),
        // Its rows are kept beyond the transaction, which is begun for it.
        Plan::Data(DataPlan::DeclareCursor { .. })
        // What a temporary table is filled with is read in the transaction that makes it.
        | Plan::Schema(SchemaPlan::TemporaryDdl { .. }) => gather_of(plan).is_some(),
        Plan::Data(DataPlan::Explain(explain)) => {
            explain.analyze && gathers_to_write(&explain.of.plan)
        }
        Plan::Data(DataPlan::Insert(insert)) => match &insert.source {
            InsertSource::Select { plan, .. } => {
                matches!(plan.plan, Plan::Data(DataPlan::Scatter { .. }))
                    || gather_of(&plan.plan).is_some()
            }
            InsertSource::Values { .. } => false,
        },
        Plan::Data(DataPlan::Steps(_)) => true,
        _ => false,
    }
}

/// Whether rows come from several snapshots at READ COMMITTED.
pub fn gathers(plan: &Plan) -> bool {
    !collects(plan).is_empty()
}
