//! Which planner a statement is for, and what applies to all plans.
//!
//! Owns: the dispatch, and the order of statements within statements: what is explained, or copied from,
//! is planned first, and its plan handed to the planner of the statement around it.
//! Never: reads what is in a statement; its planner does.
//! Start reading at [`plan`].

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{CopyStmt, ExplainStmt};

use super::context::Context;
use super::dependencies::concerns;
use super::known_views::Known;
use super::modifying_with::modifying_refusal;
use super::syntax::has_into;
use super::unseen::gathers_to_write;
use super::{
    carried, cluster_sizes, computed_first, copy, ddl, described_table, dml, entries, insert,
    modifying_steps, own_schema, query, residue, row_security, session_names, solo, unseen,
    utility,
};
use crate::closure::Reach;
use crate::plan::{
    Access, DataPlan, Ddl, DdlNodes, NodeChoice, Plan, Planned, Residue, RunOn, SchemaPlan,
};
use crate::refusal::Refusal;
use crate::statement::Statement;

/// What no single plan can do may be done in parts.
const UNSUPPORTED: &str = "0A000";

/// Chooses how to run `statement`.
///
/// Errors: a [`Refusal`] when no plan would give PostgreSQL's answer; the client is told.
pub fn plan(statement: &Statement, context: &Context<'_>) -> Result<Planned, Refusal> {
    own_schema::refuse_changes(statement)?;
    if let Some(planned) = utility::plan_placing(statement, context)? {
        return Ok(planned);
    }
    let Some((catalog, counts_as)) = carried::as_it_counts(statement, context)? else {
        return plan_known(statement, context);
    };
    let mut planned = plan_known(statement, &Context { catalog: &catalog, ..*context })?;
    carried::confine(&mut planned, statement, counts_as)?;
    planned.may_be_late = carried::may_be_late(statement, counts_as);
    Ok(planned)
}

/// The same, where the planners know all placements that they meet.
fn plan_known(statement: &Statement, context: &Context<'_>) -> Result<Planned, Refusal> {
    let (mut planned, reach) = plan_with_reach(statement, context)?;
    if !planned.unasked && ddl::is_of_relations(&statement.tree, &reach, context) {
        track_relations(&mut planned, statement, context);
    }
    if !planned.unasked && !context.catalog.is_solo() {
        let views = Known::default();
        let context = &Context { views: Some(&views), ..*context };
        let is_asked = planned.unseen.as_ref().is_some_and(|unseen| unseen.reason.is_some());
        planned.concerns = concerns(statement, &reach, is_asked, context).map(Arc::new);
    }
    Ok(planned)
}

/// The plan of a statement within another, and what code it can reach.
fn plan_with_reach(
    statement: &Statement,
    context: &Context<'_>,
) -> Result<(Planned, Reach), Refusal> {
    entries::refuse_conflicts(&statement.tree, context)?;
    let reach = unseen::of_statement(statement, context);
    let opaque = reach.opaque.as_ref().filter(|_| !context.catalog.is_solo());
    let views = Known::default();
    let context = &Context { opaque, views: Some(&views), ..*context };
    let mut planned = match choose(statement, context) {
        Err(refusal) if refusal.sqlstate == UNSUPPORTED && is_copy(&statement.tree) => {
            copy_in_steps(&statement.tree, refusal, context)?
        }
        Err(refusal)
            if refusal.sqlstate == UNSUPPORTED && modifying_steps::is_meant(&statement.tree) =>
        {
            modifying_steps::plan(&statement.tree, refusal, context, &plan_with_reach)?
        }
        chosen => beside_keys(chosen?, statement, context),
    };
    unseen::account(&mut planned, statement, &reach, context)?;
    planned.residue = residue::residue(&statement.tree, &reach, context);
    note_moments(&mut planned, context);
    planned.session_names = session_names::session_names(statement);
    row_security::note_views(&mut planned, &statement.tree, context);
    entries::note(&mut planned, &statement.tree, context);
    if context.catalog.is_solo() {
        planned.unasked = reach.commits.is_some();
        // What a view calls, say, may write.
        if reach.opaque.is_some()
            && let Plan::Data(DataPlan::One { access, .. }) = &mut planned.plan
        {
            *access = Access::Write;
        }
    }
    Ok((planned, reach))
}

/// What changes data in WITH, by keys that parameters say: where these are on several nodes it is run in parts, if it may be.
fn beside_keys(mut planned: Planned, statement: &Statement, context: &Context<'_>) -> Planned {
    if let Plan::Data(DataPlan::One { node: NodeChoice::Pinned(pins), otherwise, .. }) =
        &mut planned.plan
        && otherwise.is_none()
        && 1 < pins.len()
        && modifying_steps::is_meant(&statement.tree)
    {
        let (tree, refusal) = (&statement.tree, modifying_refusal());
        let steps = modifying_steps::plan(tree, refusal, context, &plan_with_reach);
        *otherwise = steps.ok().map(Box::new);
    }
    planned
}

/// For how many snapshots it was planned, and what takes its place where its keys are on several nodes.
fn note_moments(planned: &mut Planned, context: &Context<'_>) {
    planned.in_moments = context.collects_replicated;
    if let Plan::Data(DataPlan::One { otherwise: Some(otherwise), .. }) = &mut planned.plan {
        note_moments(otherwise, context);
    }
}

/// The plan of a schema change of relations alone: the executor asks what these have become.
fn track_relations(planned: &mut Planned, statement: &Statement, context: &Context<'_>) {
    match &mut planned.plan {
        Plan::Schema(SchemaPlan::Ddl(ddl)) => ddl.of_relations = true,
        Plan::Schema(SchemaPlan::CreateTableAs { ddl, .. }) => {
            ddl.of_relations = true;
            return;
        }
        Plan::Data(DataPlan::One {
            node: NodeChoice::Home,
            access: Access::Write,
            otherwise: None,
        }) if !context.catalog.is_solo() => {
            let scope = DdlNodes::HomeAsItIs;
            planned.plan =
                Plan::Schema(SchemaPlan::Ddl(Ddl { of_relations: true, scope, ..Ddl::default() }));
        }
        _ => return,
    }
    // A column that is added may have a default that draws; and a table may be made from anything.
    let query = residue::of_made_table(&statement.tree, context);
    planned.residue = Residue { sequences: true, ..query };
}

/// The same for a statement outside a transaction at READ COMMITTED. What only reads gets one snapshot
/// for all its parts; what writes begins a transaction, whose parts have one each, unless code that it runs
/// at its end reads tables.
pub fn plan_by_itself(statement: &Statement, context: &Context<'_>) -> Result<Planned, Refusal> {
    let planned = plan(statement, context)?;
    if !gathers_to_write(&planned.plan) {
        return Ok(planned);
    }
    if changes_beside_collected(&planned.plan) {
        // Else the rows that are changed would be read later than those that are collected, and a transaction of
        // others between the two would be seen in part.
        return Ok(Planned { one_moment: true, ..planned });
    }
    let collected = plan(statement, &Context { collects_replicated: true, ..*context });
    let wants_one_moment = match &collected {
        Ok(collected) => collected.unseen.as_ref().is_some_and(|unseen| unseen.one_snapshot),
        Err(_) => true,
    };
    if !wants_one_moment {
        return collected;
    }
    // A query that writes by what it calls: VOLATILE code sees moments of its own anyway.
    let one_moment = !matches!(statement.tree, NodeEnum::SelectStmt(_))
        || modifying_steps::is_meant(&statement.tree);
    Ok(Planned { one_moment, ..planned })
}

/// Whether nodes change their own rows by what others have.
fn changes_beside_collected(plan: &Plan) -> bool {
    match plan {
        Plan::Data(DataPlan::Gather(gather)) => {
            gather.access == Access::Write
                && gather.writes.is_some()
                && !gather.collects.is_empty()
                && !gather.locks_rows()
                && matches!(gather.run_on, RunOn::One(_) | RunOn::EachNode)
        }
        Plan::Data(DataPlan::One { otherwise: Some(otherwise), .. }) => {
            changes_beside_collected(&otherwise.plan)
        }
        Plan::Data(DataPlan::Explain(explain)) => {
            explain.analyze && changes_beside_collected(&explain.of.plan)
        }
        _ => false,
    }
}

fn choose(statement: &Statement, context: &Context<'_>) -> Result<Planned, Refusal> {
    if let NodeEnum::CreateCastStmt(cast) = &statement.tree {
        ddl::refuse_cast(cast)?;
    }
    let is_of_session = statement.spreads() || statement.is_of_session();
    if context.catalog.is_solo() && !is_of_session {
        return choose_solo(statement, context);
    }
    refuse_filling_by_changes(&statement.tree, context)?;
    match &statement.tree {
        NodeEnum::SelectStmt(select) => {
            if let Some(planned) = utility::special_select(select, context)? {
                return Ok(planned);
            }
            if has_into(select) {
                return ddl::plan_select_into(select, statement, context);
            }
            if let Some(described) = described_table::with_placement(select, context) {
                return query::plan_at_home(described, context);
            }
            cluster_sizes::planned_with(select, context, &|select| {
                let mut planned = query::plan_select(select, context)?;
                computed_first::add(&mut planned, select, context)?;
                Ok(planned)
            })
        }
        NodeEnum::InsertStmt(insert) => insert::plan_insert(insert, statement, context),
        tree @ (NodeEnum::UpdateStmt(_) | NodeEnum::DeleteStmt(_) | NodeEnum::MergeStmt(_)) => {
            dml::plan_modification(tree, context)
        }
        NodeEnum::ExplainStmt(explain) => explain_plan(explain, statement, context),
        NodeEnum::CopyStmt(copy) => copy_plan(copy, statement, context),
        _ => match utility::plan_utility(statement, context)? {
            Some(planned) => Ok(planned),
            None => schema_plan(statement, context),
        },
    }
}

/// A table is filled by a query of its own, in which WITH cannot change data (PostgreSQL has that at the top only); and where
/// node 1 fills it, node 1 alone would change its rows.
fn refuse_filling_by_changes(tree: &NodeEnum, context: &Context<'_>) -> Result<(), Refusal> {
    let query = match tree {
        NodeEnum::SelectStmt(select) if has_into(select) => Some(tree),
        NodeEnum::CreateTableAsStmt(create) => {
            create.query.as_ref().and_then(|query| query.node.as_ref())
        }
        _ => None,
    };
    match query.is_some_and(|query| modifying_steps::changes_beyond_home(query, context)) {
        true => Err(Refusal::unsupported(
            "making a table of a query whose WITH changes data of several nodes is not supported",
            "The table is filled by a statement of its own, in which WITH can only read.",
            "Create the table first, then INSERT behind that WITH.",
        )),
        false => Ok(()),
    }
}

/// In a cluster of which node 1 has all: its plan, unless only the session knows what is run.
fn choose_solo(statement: &Statement, context: &Context<'_>) -> Result<Planned, Refusal> {
    let of_session = match &statement.tree {
        NodeEnum::SelectStmt(select) => utility::special_select(select, context)?,
        tree => utility::plan_within(solo::run_within(tree), statement)?,
    };
    Ok(of_session.unwrap_or_else(|| solo::plan_solo(statement, context)))
}

fn explain_plan(
    explain: &ExplainStmt,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let of = explain.query.as_ref().and_then(|query| query.node.as_ref());
    if let Some(planned) = utility::plan_within(of, statement)? {
        return Ok(planned);
    }
    let (prefix, explained) = utility::explained(explain, statement)?;
    let (planned, _) = plan_with_reach(&explained, context)?;
    Ok(utility::plan_explain(explain, prefix, explained.text, planned))
}

fn copy_plan(
    copy: &CopyStmt,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let changing = copy::changing(copy, statement)?;
    let inner = changing.map(|changing| plan(&changing, context)).transpose()?;
    copy::plan_copy(copy, statement, inner, context)
}

fn is_copy(tree: &NodeEnum) -> bool {
    matches!(tree, NodeEnum::CopyStmt(_))
}

/// COPY of what a change of several nodes returns, or of a query with such a change in its WITH.
fn copy_in_steps(
    tree: &NodeEnum,
    refusal: Refusal,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let NodeEnum::CopyStmt(copy) = tree else { return Err(refusal) };
    let of_returned = copy::of_returned(copy)?;
    let tree = of_returned.as_ref().unwrap_or(tree);
    match modifying_steps::is_meant(tree) {
        true => modifying_steps::plan(tree, refusal, context, &plan_with_reach),
        false => Err(refusal),
    }
}

fn schema_plan(statement: &Statement, context: &Context<'_>) -> Result<Planned, Refusal> {
    if let NodeEnum::CreateTableAsStmt(create) = &statement.tree
        && statement.distribute_by.is_none()
        && let Some(planned) = utility::plan_within(
            create.query.as_ref().and_then(|query| query.node.as_ref()),
            statement,
        )?
    {
        return Ok(planned);
    }
    ddl::plan_ddl(statement, context)
}
