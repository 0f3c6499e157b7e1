//! Plans of everything that is neither a query nor a change of rows nor a schema change nor COPY.
//!
//! Owns: the dispatch of utility statements; transactions, settings, cursors, prepared statements
//! and the like are planned in the modules below.
//! Never: remembers anything of a session; the plan says what the session has to do.
//! Start reading at [`plan_utility`].

mod cursor;
mod explain;
mod placing;
mod prepared;
mod request;
mod routine;
mod setting;
mod special;
mod transaction;

use pg_query::NodeEnum;
use pg_query::protobuf::{LockStmt, Node, RangeVar, ReindexObjectType};

pub(super) use explain::{explained, plan_explain};
pub(super) use placing::plan_placing;
pub(super) use prepared::plan_within;
pub use prepared::{are_constants, bind_arguments, name_parameters, say_queries};
pub(super) use special::{reads_literals, special_select};

use super::context::Context;
use super::mentions;
use super::named::at_home_if_all;
use super::sql_text::deparse;
use super::syntax::is_set;
use super::temporary::{all_temporary, is_temporary};
use crate::catalog::{Placement, RelationKind};
use crate::plan::{LockBefore, Plan, Planned, SchemaPlan, SessionPlan};
use crate::refusal::Refusal;
use crate::statement::Statement;

/// Plans every statement that is neither a query nor a change of rows nor of the schema, and contains no
/// other statement that is planned first; `None` for those.
pub(super) fn plan_utility(
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Option<Planned>, Refusal> {
    match &statement.tree {
        NodeEnum::AlterRoleSetStmt(alter) => {
            alter.setstmt.as_ref().map_or(Ok(()), setting::check)?
        }
        NodeEnum::AlterDatabaseSetStmt(alter) => {
            alter.setstmt.as_ref().map_or(Ok(()), setting::check)?;
        }
        _ => (),
    }
    let planned: Result<Planned, Refusal> = match &statement.tree {
        NodeEnum::TransactionStmt(control) => Ok(transaction::plan(control)),
        NodeEnum::VariableSetStmt(set) => setting::check(set).map(|()| setting::plan_set(set)),
        NodeEnum::VariableShowStmt(show) => Ok(setting::plan_show(show)),
        NodeEnum::DiscardStmt(discard) => Ok(setting::plan_discard(discard)),
        NodeEnum::ConstraintsSetStmt(set) => Ok(setting::plan_constraints(set)),
        NodeEnum::PrepareStmt(prepare) => prepared::plan_prepare(prepare, statement),
        NodeEnum::ExecuteStmt(execute) => prepared::plan_execute(execute, statement),
        NodeEnum::DeallocateStmt(deallocate) => Ok(prepared::plan_deallocate(deallocate)),
        NodeEnum::DeclareCursorStmt(declare) => cursor::plan_declare(declare, statement, context),
        NodeEnum::FetchStmt(fetch) => Ok(cursor::plan_fetch(fetch)),
        NodeEnum::ClosePortalStmt(close) => Ok(cursor::plan_close(close)),
        NodeEnum::ListenStmt(_) | NodeEnum::UnlistenStmt(_) => {
            let why = "triggers may notify on any node: whoever listens, listens on all";
            Ok(Planned::new(SessionPlan::Notification { listens: true }, why))
        }
        NodeEnum::NotifyStmt(_) => {
            let why = "a client's notifications go through node 1";
            Ok(Planned::new(SessionPlan::Notification { listens: false }, why))
        }
        tree if let Some(planned) = on_home_tables(tree, context) => Ok(planned),
        NodeEnum::LockStmt(lock) if all_temporary(&lock.relations, context) => {
            Ok(Planned::at_home("temporary tables are on node 1"))
        }
        tree @ NodeEnum::LockStmt(_) => match of_others(tree, context)? {
            Others::Nothing => Ok(lock_at_home(tree, "other nodes have none of the tables")),
            Others::Text(others) => {
                let why = "a table is locked where its rows are: on every node";
                let before = lock_before(tree, Some(context))?;
                Ok(Planned::new(SchemaPlan::LockEverywhere { others, before }, why))
            }
        },
        NodeEnum::VacuumStmt(vacuum)
            if !vacuum.rels.is_empty() && temporary_vacuum(&vacuum.rels, context) =>
        {
            Ok(Planned::at_home("temporary tables are on node 1"))
        }
        tree @ NodeEnum::VacuumStmt(vacuum) => match of_others(tree, context)? {
            Others::Nothing => Ok(Planned::at_home("other nodes have none of the tables")),
            Others::Text(text) => {
                let mut planned = every_node_alone(vacuum.is_vacuumcmd);
                if let Plan::Schema(SchemaPlan::EveryNodeAlone { others, .. }) = &mut planned.plan {
                    *others = text;
                }
                Ok(planned)
            }
        },
        NodeEnum::ClusterStmt(cluster) => match &cluster.relation {
            Some(range) if is_temporary(range, context) => {
                Ok(Planned::at_home("temporary tables are on node 1"))
            }
            relation => Ok(every_node_alone(relation.is_none())),
        },
        NodeEnum::ReindexStmt(reindex) => {
            if reindex.relation.as_ref().is_some_and(|range| is_temporary(range, context)) {
                return Ok(Some(Planned::at_home("temporary tables are on node 1")));
            }
            // It changes no data, so nodes need not do it together.
            let concurrently = reindex.params.iter().any(|option| is_set(option, "concurrently"));
            let alone = !matches!(
                reindex.kind(),
                ReindexObjectType::ReindexObjectIndex | ReindexObjectType::ReindexObjectTable
            );
            Ok(every_node_alone(alone || concurrently))
        }
        NodeEnum::CheckPointStmt(_) => Ok(every_node_alone(false)),
        NodeEnum::DoStmt(_) => Ok(routine::plan_do()),
        NodeEnum::CallStmt(_) => Ok(routine::plan_call()),
        _ => return Ok(None),
    };
    planned.map(Some)
}

/// What other nodes are sent of a LOCK or VACUUM.
enum Others {
    /// The named objects are not theirs: tables of node 1, or of the system.
    Nothing,
    /// This, if it is not the client's text.
    Text(Option<String>),
}

/// What of a LOCK or VACUUM concerns other nodes, where they do not have everything.
fn of_others(tree: &NodeEnum, context: &Context<'_>) -> Result<Others, Refusal> {
    if !context.catalog.home_by_default {
        return Ok(Others::Text(None));
    }
    let is_there = |range: &RangeVar| {
        context.relation(range).is_some()
            && mentions::of(&NodeEnum::RangeVar(range.clone()), context).home.is_none()
    };
    if let NodeEnum::LockStmt(lock) = tree {
        refuse_mixed_views(&lock.relations, context)?;
    }
    let mut tree = tree.clone();
    // VACUUM alone is about everything.
    let (named, left) = match &mut tree {
        NodeEnum::LockStmt(lock) => {
            let named = lock.relations.len();
            lock.relations.retain(|node| match &node.node {
                Some(NodeEnum::RangeVar(range)) => is_there(range),
                _ => true,
            });
            (named, lock.relations.len())
        }
        NodeEnum::VacuumStmt(vacuum) => {
            let named = vacuum.rels.len();
            vacuum.rels.retain(|node| match &node.node {
                Some(NodeEnum::VacuumRelation(table)) => {
                    table.relation.as_ref().is_some_and(is_there)
                }
                _ => true,
            });
            (named, vacuum.rels.len())
        }
        _ => return Ok(Others::Text(None)),
    };
    if 0 < named && left == 0 {
        return Ok(Others::Nothing);
    }
    Ok(Others::Text(Some(deparse(&tree)?)))
}

/// LOCK of a view locks the tables that it reads: other nodes lack one that reads tables of node 1 too.
fn refuse_mixed_views(relations: &[Node], context: &Context<'_>) -> Result<(), Refusal> {
    for node in relations {
        let Some(NodeEnum::RangeVar(range)) = &node.node else { continue };
        let Some(relation) = context.relation(range) else { continue };
        let read = mentions::of_relation(relation, context);
        if matches!(relation.kind, RelationKind::View { .. })
            && read.home.is_some()
            && let Some(spread) = read.relations.values().find(|it| it.placement != Placement::Home)
        {
            return Err(Refusal::unsupported(
                format!("view {} cannot be locked", relation.sql_name()),
                format!(
                    "It reads {}, which other nodes have, and tables of node 1, for which they lack the view.",
                    spread.sql_name()
                ),
                "Lock the tables that it reads.",
            ));
        }
    }
    Ok(())
}

/// LOCK, VACUUM and the like, if all their tables are on node 1 alone.
fn on_home_tables(tree: &NodeEnum, context: &Context<'_>) -> Option<Planned> {
    match tree {
        NodeEnum::LockStmt(lock) => at_home_if_all(
            lock.relations.iter().map(|node| match &node.node {
                Some(NodeEnum::RangeVar(range)) => Some(range),
                _ => None,
            }),
            context,
        )
        .map(|planned| lock_at_home(tree, &planned.why)),
        NodeEnum::VacuumStmt(vacuum) => at_home_if_all(
            vacuum.rels.iter().map(|node| match &node.node {
                Some(NodeEnum::VacuumRelation(table)) => table.relation.as_ref(),
                _ => None,
            }),
            context,
        ),
        NodeEnum::ClusterStmt(cluster) => {
            at_home_if_all(cluster.relation.iter().map(Some), context)
        }
        NodeEnum::ReindexStmt(reindex) => {
            at_home_if_all(reindex.relation.iter().map(Some), context)
        }
        _ => None,
    }
}

/// A LOCK on node 1 alone. Like one on several nodes, it comes before the transaction's snapshot.
fn lock_at_home(tree: &NodeEnum, why: &str) -> Planned {
    // What cannot be printed is what PostgreSQL refuses.
    let before = lock_before(tree, None).ok().flatten();
    Planned::new(SchemaPlan::LockEverywhere { others: Some(String::new()), before }, why)
}

/// What precedes a LOCK in ACCESS EXCLUSIVE mode; `context`: other nodes have some of its tables.
fn lock_before(
    tree: &NodeEnum,
    context: Option<&Context<'_>>,
) -> Result<Option<LockBefore>, Refusal> {
    /// Modes by their numbers in PostgreSQL's lockdefs.h.
    const EXCLUSIVE: i32 = 7;
    const ACCESS_EXCLUSIVE: i32 = 8;
    let NodeEnum::LockStmt(lock) = tree else { return Ok(None) };
    if lock.mode != ACCESS_EXCLUSIVE {
        return Ok(None);
    }
    let before = NodeEnum::LockStmt(LockStmt { mode: EXCLUSIVE, ..lock.clone() });
    let home = deparse(&before)?;
    let others = match context.map(|context| of_others(&before, context)).transpose()? {
        None | Some(Others::Nothing) => String::new(),
        Some(Others::Text(others)) => others.unwrap_or_else(|| home.clone()),
    };
    Ok(Some(LockBefore { home, others }))
}

fn every_node_alone(refuses_transaction: bool) -> Planned {
    Planned::new(
        SchemaPlan::EveryNodeAlone { refuses_transaction, others: None },
        "every node looks after its own share of the tables",
    )
}

fn temporary_vacuum(tables: &[Node], context: &Context<'_>) -> bool {
    tables.iter().all(|table| match &table.node {
        Some(NodeEnum::VacuumRelation(table)) => {
            table.relation.as_ref().is_some_and(|range| is_temporary(range, context))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests;
