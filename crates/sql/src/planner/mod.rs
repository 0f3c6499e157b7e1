//! From a statement, the catalog and a name scope to a plan that says why.
//!
//! Owns: the choice between one node, scatter and gather for everything that reads or changes rows,
//! and the dispatch of all other statements.
//! Never: looks at parameter values (they come at Bind), runs anything.
//! Start reading at [`plan`], then `query.rs`.

mod analyse;
mod analysis;
mod by_shape;
mod context;
mod copy;
mod current_time;
mod ddl;
mod defaults;
mod determinism;
mod dml;
mod explain;
mod filters;
#[cfg(test)]
mod fixture;
mod function_use;
mod functions;
mod gather;
mod holes;
mod insert;
mod known_views;
mod leaves;
mod mentions;
mod names;
mod oids;
mod output_names;
mod own;
mod own_schema;
mod pins;
mod printed;
mod query;
mod replicas;
mod scatter;
mod solo;
mod sql_text;
#[cfg(test)]
mod statements_tests;
mod syntax;
mod temporary;
mod unseen;
mod utility;
mod views;

use std::collections::BTreeSet;
use std::sync::Arc;

use pg_query::NodeEnum;

pub use by_shape::{OneNode, ShapePlan, Unfit, are_alike, plan_shape};
pub use context::Context;
pub use current_time::names_current_time;
pub use explain::explain_lines;
pub use gather::is_read_alike;
use known_views::Known;
pub use unseen::{
    check_policies, fires_event_triggers, gathers_to_write, may_be_checked, refuse_moving,
    refuse_transit, refuse_types, runs_script,
};
pub use utility::{are_constants, bind_arguments, name_parameters, say_queries};

use crate::catalog::{Placement, Relation};
use crate::closure::Reach;
use crate::plan::{Access, Ddl, DdlScope, Leaves, NodeChoice, Plan, Planned};
use crate::refusal::Refusal;
use crate::statement::Statement;
use syntax::has_into;

/// Chooses how to run `statement`.
///
/// Errors: a [`Refusal`] when no plan would give PostgreSQL's answer; the client is told.
pub fn plan(statement: &Statement, context: &Context<'_>) -> Result<Planned, Refusal> {
    own_schema::refuse_changes(statement)?;
    let (mut planned, reach) = plan_with_reach(statement, context)?;
    if !planned.unasked && ddl::is_of_relations(&statement.tree, &reach, context) {
        settle_relations(&mut planned, statement, context);
    }
    let is_one = matches!(planned.plan, Plan::One { otherwise: None, .. });
    if !is_one && !planned.unasked && !context.catalog.is_solo() {
        let views = Known::default();
        let context = &Context { views: Some(&views), ..*context };
        planned.concerns = concerns(statement, &reach, context);
    }
    Ok(planned)
}

/// The plan of a statement within another, and what code it can reach.
fn plan_with_reach(
    statement: &Statement,
    context: &Context<'_>,
) -> Result<(Planned, Reach), Refusal> {
    let reach = unseen::of_statement(statement, context);
    let opaque = reach.opaque.as_ref().filter(|_| !context.catalog.is_solo());
    let views = Known::default();
    let context = &Context { opaque, views: Some(&views), ..*context };
    let mut planned = choose(statement, context)?;
    unseen::settle(&mut planned, statement, &reach, context)?;
    planned.leaves = leaves::leaves(&statement.tree, &reach, context);
    planned.own = own::own_names(statement);
    if context.catalog.is_solo() {
        planned.unasked = reach.commits.is_some();
        // What a view calls, say, may write.
        if reach.opaque.is_some()
            && let Plan::One { access, .. } = &mut planned.plan
        {
            *access = Access::Write;
        }
    }
    Ok((planned, reach))
}

/// The plan of a schema change of relations alone: the executor asks what these have become.
fn settle_relations(planned: &mut Planned, statement: &Statement, context: &Context<'_>) {
    match &mut planned.plan {
        Plan::Ddl(ddl) => ddl.of_relations = true,
        Plan::CreateTableAs { ddl, .. } => {
            ddl.of_relations = true;
            return;
        }
        Plan::One { node: NodeChoice::Home, access: Access::Write, otherwise: None }
            if !context.catalog.is_solo() =>
        {
            let scope = DdlScope::HomeAsItIs;
            planned.plan = Plan::Ddl(Ddl { of_relations: true, scope, ..Ddl::default() });
        }
        _ => return,
    }
    // A column that is added may have a default that draws; and a table may be made of anything.
    let query = leaves::of_made_table(&statement.tree, context);
    planned.leaves = Leaves { sequences: true, ..query };
}

/// The same for a statement outside a transaction at READ COMMITTED. What only reads gets one snapshot
/// for all its parts; what writes begins a transaction, whose parts have one each, unless code that it runs
/// at its end reads tables.
pub fn plan_by_itself(statement: &Statement, context: &Context<'_>) -> Result<Planned, Refusal> {
    let planned = plan(statement, context)?;
    if !gathers_to_write(&planned.plan) {
        return Ok(planned);
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
    let one_moment = !matches!(statement.tree, NodeEnum::SelectStmt(_));
    Ok(Planned { one_moment, ..planned })
}

fn choose(statement: &Statement, context: &Context<'_>) -> Result<Planned, Refusal> {
    if let NodeEnum::CreateCastStmt(cast) = &statement.tree {
        ddl::refuse_cast(cast)?;
    }
    if context.catalog.is_solo()
        && let Some(planned) = solo::plan_solo(statement, context)?
    {
        return Ok(planned);
    }
    match &statement.tree {
        NodeEnum::SelectStmt(select) => {
            if let Some(planned) = utility::special_select(select, context)? {
                return Ok(planned);
            }
            if has_into(select) {
                return ddl::plan_select_into(select, statement, context);
            }
            query::plan_select(select, context)
        }
        NodeEnum::InsertStmt(insert) => insert::plan_insert(insert, statement, context),
        tree @ (NodeEnum::UpdateStmt(_) | NodeEnum::DeleteStmt(_) | NodeEnum::MergeStmt(_)) => {
            dml::plan_modification(tree, context)
        }
        _ => utility::plan_utility(statement, context),
    }
}

/// All relations that `statement` names, views looked through.
pub fn relations_of(statement: &Statement, context: &Context<'_>) -> Vec<Arc<Relation>> {
    mentions::with_targets(&statement.tree, context).relations.into_values().collect()
}

/// What code that a statement runs may read on whichever node runs it: replicated tables.
#[derive(Debug)]
pub struct ReadByCode(BTreeSet<String>);

impl ReadByCode {
    /// Whether the relation may be among it.
    pub fn may_be(&self, relation: &Relation) -> bool {
        // What a function reads that is only declared to be right has no names of tables.
        !self.0.is_empty()
            && relation.placement == Placement::Replicated
            && (self.0.contains(&relation.sql_name())
                || self.0.iter().any(|name| !name.starts_with('"')))
    }
}

/// See [`ReadByCode`]. What opaque code reads on node 1 is asked there.
pub fn read_by_code(statement: &Statement, context: &Context<'_>) -> ReadByCode {
    ReadByCode(unseen::of_statement(statement, context).reads)
}

/// The relations on which the plan of a statement depends, by OID; `None` if these cannot be told.
/// Whoever changes where others are does not concern it.
fn concerns(statement: &Statement, reach: &Reach, context: &Context<'_>) -> Option<Arc<[u32]>> {
    use pg_query::protobuf::{DropBehavior, ObjectType};
    let names_tables = match &statement.tree {
        NodeEnum::SelectStmt(_)
        | NodeEnum::InsertStmt(_)
        | NodeEnum::UpdateStmt(_)
        | NodeEnum::DeleteStmt(_)
        | NodeEnum::MergeStmt(_)
        | NodeEnum::AlterTableStmt(_)
        | NodeEnum::IndexStmt(_)
        | NodeEnum::RenameStmt(_)
        | NodeEnum::CreateStmt(_)
        | NodeEnum::ViewStmt(_) => true,
        NodeEnum::DropStmt(drop) => {
            drop.behavior() != DropBehavior::DropCascade
                && matches!(drop.remove_type(), ObjectType::ObjectTable | ObjectType::ObjectView)
        }
        _ => false,
    };
    if !names_tables || reach.opaque.is_some() || !reach.reads.is_empty() {
        return None;
    }
    let named = mentions::with_targets(&statement.tree, context).relations;
    let mut oids: BTreeSet<u32> = named.values().map(|relation| relation.oid).collect();
    // Parts that write, foreign keys, parents: whatever has a name that stands in the text. A view stands
    // for what it reads.
    for token in crate::statement::tokens::scan(&statement.text).ok()? {
        if token.token == pg_query::protobuf::Token::Uident {
            return None;
        }
        let Some(name) = token.column_name() else { continue };
        let relations = context.catalog.relations.values();
        for relation in relations.filter_map(|all| all.get(&*name)) {
            if oids.insert(relation.oid) {
                let read = mentions::of_relation(relation, context).relations;
                oids.extend(read.values().map(|relation| relation.oid));
            }
        }
    }
    // What is written with them: children, and what foreign keys with actions reach.
    let mut next: Vec<u32> = oids.iter().copied().collect();
    while let Some(relation) = next.pop() {
        let others = context.catalog.code.written_with(relation).iter().map(|it| it.relation);
        next.extend(others.filter(|other| oids.insert(*other)));
    }
    Some(oids.into_iter().collect())
}
