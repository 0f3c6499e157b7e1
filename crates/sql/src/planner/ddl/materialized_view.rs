//! Materialized views: who fills them, from what.
//!
//! Owns: what they may read, and which tables' rows node 1 needs of other nodes to fill one.
//! Never: fills one.
//! Start reading at [`plan_materialized_view`]; why it is done so: docs/decisions/2026-11-27-materialized-views.md.
//!
//! Where tables are on node 1 until they are spread, so are materialized views: node 1 fills them by its own CREATE or
//! REFRESH, over tables that are lent the rows of the other nodes meanwhile. Where every node has the whole schema, each
//! fills its own copy, and all must read the same rows.

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{CreateTableAsStmt, RefreshMatViewStmt, SelectStmt};

use super::nodes::everywhere;
use super::refused;
use crate::built_in_types::FIRST_OF_USERS;
use crate::catalog::{Catalog, NameScope, Placement, Relation, RelationKind};
use crate::closure::{Search, Writing};
use crate::code::{AttachedKind, Use};
use crate::plan::{DataPlan, Ddl, FilledView, Lending, NodeChoice, Plan, Planned, SchemaPlan};
use crate::planner::context::Context;
use crate::planner::sql_text::deparse;
use crate::planner::syntax::string;
use crate::planner::{mentions, query};
use crate::refusal::Refusal;
use crate::statement::{self, Statement};
use crate::walk;

/// Columns that every table has and nobody has declared.
const SYSTEM_COLUMNS: [&str; 6] = ["ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"];

/// CREATE MATERIALIZED VIEW.
pub(super) fn plan_materialized_view(
    create: &CreateTableAsStmt,
    query_tree: &NodeEnum,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    if statement.distribute_by.is_some() {
        return Err(Refusal::unsupported(
            "a materialized view cannot be distributed",
            "It is on node 1, which fills it from the rows of all nodes.",
            "Leave out DISTRIBUTE BY, or use CREATE TABLE … AS.",
        ));
    }
    let NodeEnum::SelectStmt(select) = query_tree else { return Err(refused::execute()) };
    if context.catalog.home_by_default {
        let into = create.into.as_deref();
        let name = into.and_then(|into| into.rel.as_ref());
        let is_there =
            create.if_not_exists && name.is_some_and(|name| context.relation(name).is_some());
        // Then it is not filled now.
        let fills = !is_there && !into.is_some_and(|into| into.skip_data);
        let lending = fills.then(|| lending(query_tree, context)).transpose()?;
        return Ok(by_node_1(lending.map(FilledView::Made)));
    }
    refuse_materialized(mentions::of(query_tree, context).distributed.as_deref())?;
    match query::plan_select(select, context)?.plan {
        Plan::Data(DataPlan::One {
            node: NodeChoice::Home | NodeChoice::Speaker | NodeChoice::Any,
            ..
        }) => Ok(everywhere(Ddl::default())),
        _ => Err(refused::materialized("its query")),
    }
}

fn by_node_1(fills: Option<FilledView>) -> Planned {
    let why =
        "node 1 fills the view by its own query, and is lent what other nodes have of the tables";
    let fills = fills.map(Box::new);
    Planned::new(SchemaPlan::Ddl(Ddl { fills, ..Ddl::default() }), why)
}

fn refuse_materialized(distributed: Option<&str>) -> Result<(), Refusal> {
    match distributed {
        Some(name) => Err(refused::materialized(name)),
        None => Ok(()),
    }
}

/// REFRESH MATERIALIZED VIEW.
pub(super) fn plan_refresh(
    refresh: &RefreshMatViewStmt,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let relation = refresh.relation.as_ref().and_then(|it| context.relation(it));
    if let Some(relation) = relation.filter(|it| is_filled_at_home(it, context)) {
        let (schema, name) = (relation.schema.clone(), relation.name.clone());
        let fills = FilledView::Again { schema, name, concurrently: refresh.concurrent };
        return Ok(by_node_1(Some(fills)));
    }
    if let Some(relation) = relation {
        if relation.kind != RelationKind::MaterializedView {
            // As node 1 will say.
            return Ok(Planned::at_home("it is no materialized view"));
        }
        let name = mentions::of_relation(relation, context).distributed;
        refuse_materialized(name.as_deref())?;
        // It creates temporary tables, with which no transaction can be prepared.
        if refresh.concurrent && !context.catalog.is_solo() {
            return Err(refused::concurrently("REFRESH MATERIALIZED VIEW"));
        }
    }
    Ok(everywhere(Ddl::default()))
}

/// Whether node 1 must be asked from what a REFRESH would fill its view.
pub(super) fn may_need_others(refresh: &RefreshMatViewStmt, context: &Context<'_>) -> bool {
    let relation = refresh.relation.as_ref().and_then(|it| context.relation(it));
    !refresh.skip_data && relation.is_some_and(|it| is_filled_at_home(it, context))
}

fn is_filled_at_home(relation: &Arc<Relation>, context: &Context<'_>) -> bool {
    context.catalog.home_by_default
        && relation.kind == RelationKind::MaterializedView
        && relation.placement == Placement::Home
}

/// What node 1 needs to fill a materialized view with this definition, in which every name is qualified.
///
/// Errors: a [`Refusal`] where its own query would not say the same over what it is lent.
pub fn lending_of(definition: &str, catalog: &Catalog) -> Result<Lending, Refusal> {
    // A name that is not qualified is that of a query in WITH.
    let scope = NameScope::default();
    let context = Context::new(catalog, &scope);
    let mut all = Lending::default();
    for statement in statement::parse(definition)? {
        if let Some(name) = unknown(&statement.tree, &context) {
            let message =
                format!("could not refresh a view of \"{name}\", which has changed meanwhile");
            return Err(Refusal::postgres("40001", message));
        }
        all.add(lending(&statement.tree, &context)?);
    }
    Ok(all)
}

/// A relation of users' that the catalog does not know by its name yet, or any more.
fn unknown(tree: &NodeEnum, context: &Context<'_>) -> Option<String> {
    const OF_POSTGRESQL: [&str; 4] = ["", "pg_catalog", "information_schema", "pg_toast"];
    let mut found = match tree {
        NodeEnum::RangeVar(range)
            if !OF_POSTGRESQL.contains(&range.schemaname.as_str())
                && context.relation(range).is_none() =>
        {
            Some(range.relname.clone())
        }
        _ => None,
    };
    walk::read::children(tree, &mut |child| {
        if found.is_none() {
            found = child.node.as_ref().and_then(|child| unknown(child, context));
        }
    });
    found
}

fn lending(query: &NodeEnum, context: &Context<'_>) -> Result<Lending, Refusal> {
    let mut lending = Lending::default();
    let read = mentions::of(query, context).relations;
    for relation in read.values() {
        if relation.is_cluster_view() {
            return Err(Refusal::unsupported(
                format!("a materialized view of {} is not supported", relation.sql_name()),
                "Every node has rows of its own there, about itself, which cannot be lent to the node that fills the view.",
                "Use CREATE TABLE … AS, and INSERT … SELECT again.",
            ));
        }
        match (&relation.kind, &relation.placement) {
            (RelationKind::View { .. }, _) => lending.views.push(relation.oid),
            (RelationKind::Table, placement) if placement.is_distributed() => {
                lending.tables.push(relation.oid);
            }
            (RelationKind::Table, _) => lending.whole.push(relation.oid),
            (RelationKind::MaterializedView | RelationKind::Other, _) => {
                lending.unlockable.get_or_insert_with(|| relation.sql_name());
            }
            (RelationKind::Sequence, _) => (),
        }
    }
    if lending.tables.is_empty() {
        return Ok(Lending::default());
    }
    refuse_parts(query, context)?;
    refuse_computed(read.values(), context)?;
    refuse_code(query, context)?;
    let scope = NameScope::default();
    let context = &Context { scope: &scope, ..*context };
    for relation in read.values() {
        let RelationKind::View { definition } = &relation.kind else { continue };
        for statement in statement::parse(definition)? {
            refuse_parts(&statement.tree, context)?;
        }
    }
    Ok(lending)
}

/// A row that is lent is stored anew: its constraints are checked, and its generated columns computed, by what users'
/// code is now.
fn refuse_computed<'r>(
    read: impl Iterator<Item = &'r Arc<Relation>>,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    let is_users = |of: &Use| match of {
        Use::Function(oid) => FIRST_OF_USERS <= *oid,
        Use::Operator(_) | Use::Type(_) => true,
        Use::Relation(..) => false,
    };
    for relation in read.filter(|relation| relation.placement.is_distributed()) {
        let mut attached = context.catalog.code.attached_to(relation.oid).iter();
        let computed =
            attached.find(|of| of.kind == AttachedKind::Check && of.uses.iter().any(is_users));
        if let Some(computed) = computed {
            return Err(Refusal::unsupported(
                format!(
                    "a materialized view cannot read \"{}\", which is distributed",
                    relation.name
                ),
                format!(
                    "Rows of other nodes are stored anew for it, and \"{}\", a constraint or generated column, would \
                     run users' code once more.",
                    computed.name
                ),
                "Use CREATE TABLE … AS.",
            ));
        }
    }
    Ok(())
}

/// What code reads of a table, by its places or of it alone, nobody sees in the view's query.
fn refuse_code(query: &NodeEnum, context: &Context<'_>) -> Result<(), Refusal> {
    let mut search = Search::new(context.catalog, context.scope, Writing::Statement);
    search.text(&deparse(query)?);
    match search.finish().opaque {
        None => Ok(()),
        Some(reason) => Err(Refusal::unsupported(
            format!("a materialized view over distributed tables cannot call {}", reason.code),
            format!(
                "It {}; rows of other nodes are in a child of their table while node 1 fills the view.",
                reason.does
            ),
            "Write what it reads into the view's query, or use CREATE TABLE … AS.",
        )),
    }
}

/// Rows of other nodes are in a child of their table, which is on node 1 and has places of its own.
fn refuse_parts(tree: &NodeEnum, context: &Context<'_>) -> Result<(), Refusal> {
    let distributed = |node: &NodeEnum| match node {
        NodeEnum::RangeVar(range) => context
            .relation(range)
            .filter(|relation| relation.placement.is_distributed())
            .map(|relation| relation.name.clone()),
        _ => None,
    };
    let refused = match tree {
        NodeEnum::RangeVar(range) if !range.inh => {
            distributed(tree).map(|table| format!("FROM ONLY {table}"))
        }
        NodeEnum::RangeTableSample(sample) => sample
            .relation
            .as_ref()
            .and_then(|it| distributed(it.node.as_ref()?))
            .map(|table| format!("TABLESAMPLE of {table}")),
        NodeEnum::ColumnRef(column) => column
            .fields
            .last()
            .and_then(string)
            .filter(|name| SYSTEM_COLUMNS.contains(name))
            .map(|name| format!("the system column {name}")),
        // `tableoid(t)` and `(t).tableoid` are the same.
        NodeEnum::FuncCall(call) => call
            .funcname
            .last()
            .and_then(string)
            .filter(|name| SYSTEM_COLUMNS.contains(name))
            .map(|name| format!("the system column {name}")),
        NodeEnum::AIndirection(of) => of
            .indirection
            .iter()
            .filter_map(string)
            .find(|name| SYSTEM_COLUMNS.contains(name))
            .map(|name| format!("the system column {name}")),
        NodeEnum::SelectStmt(select) => locks(select).then(|| "FOR UPDATE or FOR SHARE".to_owned()),
        _ => None,
    };
    if let Some(part) = refused {
        return Err(Refusal::unsupported(
            format!("a materialized view over distributed tables cannot have {part}"),
            "Node 1 fills it, where rows of other nodes are in a child of their table meanwhile.",
            "Leave it out of the view's query, or use CREATE TABLE … AS.",
        ));
    }
    let mut found = Ok(());
    walk::read::children(tree, &mut |child| {
        if let (Ok(()), Some(child)) = (&found, &child.node) {
            found = refuse_parts(child, context);
        }
    });
    found
}

fn locks(select: &SelectStmt) -> bool {
    !select.locking_clause.is_empty()
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture;
    use super::*;

    /// The tables of a lending, by name.
    fn tables(definition: &str) -> Result<Vec<String>, String> {
        let catalog = Catalog { home_by_default: true, ..fixture::shop(3) };
        let lending = lending_of(definition, &catalog).map_err(|refusal| refusal.message)?;
        let all = catalog.relations.values().flat_map(|of| of.values());
        let mut names: Vec<_> = all
            .filter(|relation| lending.tables.contains(&relation.oid))
            .map(|relation| relation.name.clone())
            .collect();
        names.sort();
        Ok(names)
    }

    #[test]
    fn distributed_tables_are_lent_whichever_way_they_are_read() {
        for (definition, expected) in [
            ("SELECT 1", vec![]),
            ("SELECT count(*) FROM public.home", vec![]),
            ("SELECT count(*) FROM public.orders JOIN public.rates USING (id)", vec!["orders"]),
            ("SELECT * FROM public.big_orders", vec!["orders"]),
            (
                "SELECT 1 WHERE EXISTS (WITH x AS (SELECT FROM public.orders) SELECT FROM x, public.lines)",
                vec!["lines", "orders"],
            ),
            ("WITH orders AS (SELECT 1) SELECT * FROM orders", vec![]),
        ] {
            assert_eq!(tables(definition).unwrap(), expected, "{definition}");
        }
    }

    #[test]
    fn what_tells_lent_rows_from_others_is_refused() {
        for definition in [
            "SELECT id FROM ONLY public.orders",
            "SELECT tableoid FROM public.orders",
            "SELECT id FROM public.orders TABLESAMPLE system (10)",
            "SELECT id FROM public.orders FOR UPDATE",
        ] {
            let refused = tables(definition).unwrap_err();
            assert!(refused.starts_with("a materialized view over distributed"), "{refused}");
        }
        assert!(tables("SELECT id FROM public.gone").unwrap_err().contains("gone"));
    }
}
