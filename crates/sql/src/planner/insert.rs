//! Plans of INSERT.
//!
//! Owns: where new rows go, and which of their values must be computed once for the whole cluster.
//! Never: hashes parameters (Bind does) nor splits rows over nodes (the executor does).
//! Start reading at [`plan_insert`].
//!
//! In the order of preference: as written on one node; as written on all nodes (replicated, nothing
//! that could differ); the client's VALUES rows per node; a query whose rows are then inserted.

mod clauses;
mod ctes;
mod elsewhere;
mod inserting;
mod push_down;
mod source;
mod target;
mod values;

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{InsertStmt, Node};

use super::carried::refuse_change;
use super::context::Context;
use super::defaults::Evaluation;
use super::sql_text::deparse;
use super::unseen::refuse_unsafe_code;
use super::{mentions, replicas, written_views};
use crate::catalog::{Placement, Relation, RelationKind};
use crate::closure::events;
use crate::plan::{Access, DataPlan, Insert, InsertSource, Plan, Planned};
use crate::refusal::Refusal;
use crate::statement::Statement;
use inserting::{Inserting, on_conflict, on_every_node};

/// Plans an INSERT.
pub(super) fn plan_insert(
    insert: &InsertStmt,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    if context.catalog.is_solo() {
        return Ok(Planned::at_home("no table is on other nodes"));
    }
    if let Some(plan) = elsewhere::plan_changing_with(insert, context)? {
        return Ok(plan);
    }
    let relation = match insert.relation.as_ref().and_then(|range| context.relation(range)) {
        None => return elsewhere::plan_home(insert, context),
        Some(relation) => relation,
    };
    refuse_unsafe_code(relation, fired(insert), context)?;
    match (&relation.kind, &relation.placement) {
        (RelationKind::View { .. }, _)
            if mentions::of_relation(relation, context).distributed.is_some() =>
        {
            return plan_view_of_spread(insert, relation, statement, context);
        }
        (RelationKind::View { .. }, _) => {
            return elsewhere::plan_view(relation, insert, context);
        }
        (_, Placement::Home) => return elsewhere::plan_home(insert, context),
        (_, Placement::Async { .. }) => return Err(refuse_change(relation)),
        _ => {}
    }
    if let Some(why) = by_row(insert, relation, context) {
        return plan_by_row(insert, relation, why, statement, context);
    }
    clauses::check(insert, relation, context)?;

    if insert.select_stmt.is_none() {
        return plan_default_values(insert, relation, context);
    }
    plan_rows(insert, relation, &statement.text, context)
}

/// INSERT into a view over a spread table: as if the view were spread itself.
fn plan_view_of_spread(
    insert: &InsertStmt,
    view: &Arc<Relation>,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let written = written_views::as_table(view, context)?;
    refuse_unsafe_code(written.base, fired(insert), context)?;
    let refuse = |detail: String| {
        Refusal::unsupported(
            format!("this INSERT into view \"{}\" is not supported", view.name),
            detail,
            "Insert into the table itself.",
        )
    };
    let table = &written.base.name;
    if !written.base.computed_keys.is_empty() {
        return Err(refuse(format!(
            "The distribution key of {table} is computed from its columns."
        )));
    }
    if !written.shows_key() {
        return Err(refuse(format!("It does not show the distribution key of {table}.")));
    }
    if let Some(column) = written.hidden_default(false, context) {
        return Err(refuse(format!(
            "It does not show \"{column}\" of {table}, whose default must be evaluated once for the whole cluster."
        )));
    }
    clauses::check(insert, &written.table, context)?;
    let mut planned = match insert.select_stmt {
        None => plan_default_values(insert, &written.table, context)?,
        Some(_) => plan_rows(insert, &written.table, &statement.text, context)?,
    };
    let Some(column) = written.hidden_default(true, context) else { return Ok(planned) };
    let refusal = refuse(format!(
        "It does not show \"{column}\" of {table}, and each node would give its rows another time there."
    ));
    match &mut planned.plan {
        Plan::Data(DataPlan::One { otherwise, .. }) => {
            let refused = DataPlan::Refused(Box::new(refusal));
            *otherwise = otherwise
                .take()
                .map(|_| Box::new(Planned::new(refused, "the rows are on several nodes")));
            Ok(planned)
        }
        _ => Err(refusal),
    }
}

/// Why the copies of a replicated table must get the rows that node 1 has stored, and not just those
/// given.
fn by_row(insert: &InsertStmt, relation: &Arc<Relation>, context: &Context<'_>) -> Option<String> {
    if relation.placement != Placement::Replicated {
        return None;
    }
    let effect = || replicas::Effect::of(&NodeEnum::InsertStmt(Box::new(insert.clone())));
    replicas::table_obstacle(relation)
        .or_else(|| replicas::target_obstacle(relation, &effect(), context))
        .or_else(|| clauses::obstacle(insert, context))
}

/// The INSERT on node 1; if it reads distributed tables, over rows that are brought there.
fn plan_by_row(
    insert: &InsertStmt,
    relation: &Arc<Relation>,
    why: String,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let tree = NodeEnum::InsertStmt(Box::new(insert.clone()));
    let rows = replicas::rows_of(&tree, relation, context);
    let why = format!("node 1 computes the rows for all copies: {why}");
    if mentions::of(&tree, context).distributed.is_none() {
        return Ok(Planned::new(DataPlan::Rows(rows), why));
    }
    clauses::check_reads_of_all(insert, context)?;
    let mut plan = plan_rows(insert, relation, &statement.text, context)?;
    if let Plan::Data(DataPlan::Insert(insert)) = &mut plan.plan {
        insert.rows = Some(rows);
    }
    plan.why = why;
    Ok(plan)
}

/// INSERT … DEFAULT VALUES: the same as one row with DEFAULT for its first column.
fn plan_default_values(
    insert: &InsertStmt,
    relation: &Arc<Relation>,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let evaluation = Evaluation::of(relation, context);
    let nothing_once = !(0..relation.columns.len()).any(|column| evaluation.once(column));
    let replicated = relation.placement == Placement::Replicated;
    if nothing_once && replicated && clauses::conflict_is_fixed(insert, context) {
        return Ok(on_every_node(insert, relation, context));
    }
    let Some(first) = relation.columns.iter().find(|column| !column.generated) else {
        return Err(Refusal::unsupported(
            format!("a row without values cannot be inserted into {}", relation.sql_name()),
            "Its table has no column that could say where the row belongs.",
            "Make the table replicated (tutti_replicate).",
        ));
    };
    let mut explicit = insert.clone();
    explicit.cols = vec![target::column_node(&first.name)];
    explicit.select_stmt = crate::statement::parse("VALUES (DEFAULT)")?
        .pop()
        .map(|values| Box::new(Node { node: Some(values.tree) }));
    let text = deparse(&NodeEnum::InsertStmt(Box::new(explicit.clone())))?;
    // Never forwarded as it is: its text is not the client's.
    plan_rows(&explicit, relation, &text, context)
}

/// Plans an INSERT with VALUES or a query; `text` is its text.
fn plan_rows(
    insert: &InsertStmt,
    relation: &Arc<Relation>,
    text: &str,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let Some(NodeEnum::SelectStmt(select)) =
        insert.select_stmt.as_ref().and_then(|source| source.node.as_ref())
    else {
        return Err(Refusal::postgres("42601", "syntax error at end of input"));
    };
    let inserting = Inserting::of(insert, relation, context)?;
    if insert.with_clause.is_none()
        && let Some(plan) = values::plan(select, text, &inserting)?
    {
        return Ok(plan);
    }
    let select = &inserting.with_time_literals(select);
    if let Some(plan) = push_down::plan(select, &inserting)? {
        return Ok(plan);
    }
    source::plan(select, &inserting)
}

/// The INSERT by which a new table of node 1 is filled, if each node gives rows of its query: they go there as they come.
/// (Into a table that others know, they are brought with the statement, which may have triggers to fire, or ON CONFLICT.)
pub fn plan_filling(statement: &Statement, context: &Context<'_>) -> Result<Option<Plan>, Refusal> {
    let NodeEnum::InsertStmt(insert) = &statement.tree else { return Ok(None) };
    let relation = insert.relation.as_ref().and_then(|range| context.relation(range));
    let is_plain = |relation: &&Arc<Relation>| {
        matches!(relation.kind, RelationKind::Table)
            && relation.placement == Placement::Home
            && !relation.has_triggers
    };
    let select = insert.select_stmt.as_ref().and_then(|source| source.node.as_ref());
    let (Some(relation), Some(NodeEnum::SelectStmt(select))) = (relation.filter(is_plain), select)
    else {
        return Ok(None);
    };
    let inserting = Inserting::of(insert, relation, context)?;
    let planned = source::plan(select, &inserting)?;
    let Plan::Data(DataPlan::Insert(Insert { source: InsertSource::Select { plan, .. }, .. })) =
        &planned.plan
    else {
        return Ok(None);
    };
    let is_of_each = matches!(plan.plan, Plan::Data(DataPlan::Scatter { access: Access::Read }));
    Ok(is_of_each.then_some(planned.plan))
}

/// What an INSERT fires.
fn fired(insert: &InsertStmt) -> u8 {
    match on_conflict(insert) {
        true => events::INSERT | events::UPDATE,
        false => events::INSERT,
    }
}

#[cfg(test)]
mod tests;
