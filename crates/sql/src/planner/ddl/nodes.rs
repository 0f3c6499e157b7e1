//! Which nodes a schema change is for, where tables are on node 1 by default.
//!
//! Owns: what a statement names that is on node 1 alone, and what it says on the other nodes.
//! Never: checks what a change leaves behind; the executor does, on the catalog after it.
//! Start reading at [`on_node_1_alone`], then [`with_nodes`]; the rules with their reasons are
//! docs/decisions/2026-11-22-home-tables.md.
//!
//! A statement about tables of node 1 is node 1's alone, as it is. One about tables that are spread is
//! for all nodes and must succeed on all. Of what is neither (types, functions, schemas, roles, views)
//! the other nodes have what does not name a table of node 1: there the statement runs as far as it
//! concerns something that exists there.

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterSubscriptionStmt, AlterSubscriptionType, AlterTableCmd, AlterTableType, ConstrType,
    CreateStmt, CreateTableAsStmt, DropBehavior, DropStmt, GrantStmt, GrantTargetType, Node,
    ObjectType,
};

use crate::catalog::{Placement, Relation, RelationKind};
use crate::plan::{Ddl, DdlNodes, Plan, Planned, SchemaPlan};
use crate::planner::context::Context;
use crate::planner::mentions;
use crate::planner::named::{Named, has_rows};
use crate::planner::sql_text::deparse;
use crate::planner::syntax::{adds_sequence, is_on, option, string};
use crate::planner::temporary::is_temporary;
use crate::refusal::Refusal;
use crate::statement::Statement;

/// The tables that `tree` changes, or makes something on.
fn named(tree: &NodeEnum, context: &Context<'_>) -> Named {
    let mut named = Named::default();
    match tree {
        NodeEnum::AlterTableStmt(alter) if alter.objtype() == ObjectType::ObjectTable => {
            named.add_table(alter.relation.as_ref(), context);
        }
        NodeEnum::AlterTableStmt(alter) => named.add_range(alter.relation.as_ref(), context),
        NodeEnum::IndexStmt(index) => named.add_table(index.relation.as_ref(), context),
        NodeEnum::CreateTrigStmt(trigger) => named.add_table(trigger.relation.as_ref(), context),
        NodeEnum::RuleStmt(rule) => named.add_table(rule.relation.as_ref(), context),
        NodeEnum::CreatePolicyStmt(policy) => named.add_table(policy.table.as_ref(), context),
        NodeEnum::AlterPolicyStmt(policy) => named.add_table(policy.table.as_ref(), context),
        NodeEnum::RenameStmt(rename) => named.add_range(rename.relation.as_ref(), context),
        NodeEnum::AlterObjectSchemaStmt(alter) => named.add_range(alter.relation.as_ref(), context),
        NodeEnum::AlterOwnerStmt(alter) => named.add_range(alter.relation.as_ref(), context),
        NodeEnum::AlterObjectDependsStmt(alter) => {
            named.add_range(alter.relation.as_ref(), context);
        }
        NodeEnum::RefreshMatViewStmt(refresh) => {
            named.add_range(refresh.relation.as_ref(), context);
        }
        NodeEnum::CreateStatsStmt(statistics) => named.add_ranges(&statistics.relations, context),
        NodeEnum::TruncateStmt(truncate) => named.add_ranges(&truncate.relations, context),
        NodeEnum::GrantStmt(grant)
            if grant.targtype() == GrantTargetType::AclTargetObject
                && grant.objtype() == ObjectType::ObjectTable =>
        {
            named.add_ranges(&grant.objects, context);
        }
        NodeEnum::DropStmt(drop) => {
            for object in &drop.objects {
                named.add(dropped_from(drop, object, context));
            }
        }
        _ => named.other = true,
    }
    named
}

/// The table that a DROP of this object is about: itself, or what it belongs to.
fn dropped_from<'a>(
    drop: &DropStmt,
    object: &Node,
    context: &Context<'a>,
) -> Option<&'a std::sync::Arc<Relation>> {
    let parts_behind = match drop.remove_type() {
        ObjectType::ObjectTable | ObjectType::ObjectMatview | ObjectType::ObjectForeignTable => 0,
        ObjectType::ObjectTrigger | ObjectType::ObjectRule | ObjectType::ObjectPolicy => 1,
        _ => return None,
    };
    let Some(NodeEnum::List(list)) = &object.node else { return None };
    let parts: Vec<&str> = list.items.iter().filter_map(string).collect();
    let (schema, name) = match &parts[..parts.len().checked_sub(parts_behind)?] {
        [.., schema, name] => (Some(*schema), *name),
        [name] => (None, *name),
        [] => return None,
    };
    context.catalog.resolve(context.scope, schema, name)
}

/// The plan of a schema change that is node 1's business alone, as it is. `None`: it may be another
/// node's as well, or the rules of placement have to be looked at after it.
pub(super) fn on_node_1_alone(statement: &Statement, context: &Context<'_>) -> Option<Planned> {
    if !context.catalog.home_by_default {
        return None;
    }
    let is_home = match &statement.tree {
        // What other nodes never have.
        NodeEnum::CreateSeqStmt(_)
        | NodeEnum::CommentStmt(_)
        | NodeEnum::SecLabelStmt(_)
        | NodeEnum::CreateEventTrigStmt(_)
        | NodeEnum::AlterEventTrigStmt(_)
        | NodeEnum::CreatePublicationStmt(_)
        | NodeEnum::AlterPublicationStmt(_)
        | NodeEnum::CreateForeignTableStmt(_)
        | NodeEnum::ImportForeignSchemaStmt(_)
        | NodeEnum::CreateForeignServerStmt(_)
        | NodeEnum::AlterForeignServerStmt(_)
        | NodeEnum::CreateFdwStmt(_)
        | NodeEnum::AlterFdwStmt(_)
        | NodeEnum::CreateUserMappingStmt(_)
        | NodeEnum::AlterUserMappingStmt(_)
        | NodeEnum::DropUserMappingStmt(_)
        | NodeEnum::CreateAmStmt(_)
        | NodeEnum::CreateConversionStmt(_)
        | NodeEnum::CreateTransformStmt(_)
        // A directory, a library or a subscription of the server's; what tables of several nodes would
        // need of it, they are refused for lack of it.
        | NodeEnum::CreateTableSpaceStmt(_)
        | NodeEnum::DropTableSpaceStmt(_)
        | NodeEnum::AlterTableSpaceOptionsStmt(_)
        | NodeEnum::LoadStmt(_)
        | NodeEnum::DropSubscriptionStmt(_) => true,
        // It may date from when all tables were on node 1, but must bring no further rows.
        NodeEnum::AlterSubscriptionStmt(alter) => !brings_more_rows(alter),
        NodeEnum::DropStmt(drop) if stays_on_node_1(drop.remove_type()) => true,
        NodeEnum::CreateStmt(create) => {
            makes_home_table(create, statement, context) && !ties_tables(&create.table_elts)
        }
        NodeEnum::CreateTableAsStmt(create) => {
            !statement.spreads() && is_filled_at_home(create, context)
        }
        NodeEnum::ViewStmt(view) => view
            .query
            .as_ref()
            .and_then(|query| query.node.as_ref())
            .is_some_and(|query| mentions::of(query, context).home.is_some()),
        tree => named(tree, context).is_home_alone() && !changes_ties(tree),
    };
    const WHY: &str = "it concerns node 1 alone";
    let (gives_names, adds_events) =
        (gives_other_names(&statement.tree), adds_event_triggers(&statement.tree));
    is_home.then(|| match gives_names || adds_events {
        // What its transaction says next may mean something else, or what others have begun fire it.
        true => Planned::new(
            SchemaPlan::Ddl(Ddl {
                scope: DdlNodes::HomeAsItIs,
                of_relations: gives_names,
                may_drop: matches!(statement.tree, NodeEnum::DropStmt(_)),
                ..Ddl::default()
            }),
            WHY,
        ),
        false => Planned::at_home(WHY),
    })
}

/// Whether node 1 has what fills a table that lasts.
fn is_filled_at_home(create: &CreateTableAsStmt, context: &Context<'_>) -> bool {
    let query = create.query.as_ref().and_then(|query| query.node.as_ref());
    let range = create.into.as_ref().and_then(|into| into.rel.as_ref());
    query.is_some_and(|query| mentions::of(query, context).distributed.is_none())
        && !range.is_some_and(|range| is_temporary(range, context))
}

/// SELECT … INTO, said as CREATE TABLE … AS, if it is node 1's alone.
pub(super) fn select_into_on_node_1_alone(
    create: &CreateTableAsStmt,
    statement: &Statement,
    context: &Context<'_>,
) -> Option<Planned> {
    let is_home = context.catalog.home_by_default
        && !statement.spreads()
        && is_filled_at_home(create, context);
    is_home.then(|| Planned::at_home("it concerns node 1 alone"))
}

/// Whether names of relations mean something else, or nothing, after a statement that is not of
/// relations alone ([`super::is_of_relations`]).
fn gives_other_names(tree: &NodeEnum) -> bool {
    match tree {
        NodeEnum::RenameStmt(_) | NodeEnum::AlterObjectSchemaStmt(_) => true,
        NodeEnum::DropStmt(drop) => {
            drop.behavior() == DropBehavior::DropCascade
                && !drop.concurrent
                && !stays_on_node_1(drop.remove_type())
        }
        _ => false,
    }
}

/// Whether changes of the schema may fire more from now on.
fn adds_event_triggers(tree: &NodeEnum) -> bool {
    matches!(tree, NodeEnum::CreateEventTrigStmt(_) | NodeEnum::AlterEventTrigStmt(_))
}

/// Whether a subscription may write more, or again.
fn brings_more_rows(alter: &AlterSubscriptionStmt) -> bool {
    match alter.kind() {
        AlterSubscriptionType::AlterSubscriptionEnabled => {
            option(&alter.options, "enabled").is_none_or(is_on)
        }
        kind => matches!(
            kind,
            AlterSubscriptionType::AlterSubscriptionSetPublication
                | AlterSubscriptionType::AlterSubscriptionAddPublication
                | AlterSubscriptionType::AlterSubscriptionRefresh
        ),
    }
}

fn stays_on_node_1(kind: ObjectType) -> bool {
    matches!(
        kind,
        ObjectType::ObjectEventTrigger
            | ObjectType::ObjectPublication
            | ObjectType::ObjectForeignServer
            | ObjectType::ObjectFdw
            | ObjectType::ObjectAccessMethod
            | ObjectType::ObjectConversion
            | ObjectType::ObjectTransform
    )
}

/// Whether a new table is on node 1 alone: it says so, or says nothing and its parents are.
fn makes_home_table(create: &CreateStmt, statement: &Statement, context: &Context<'_>) -> bool {
    let mut parents = Named::default();
    parents.add_ranges(&create.inh_relations, context);
    !statement.spreads() && parents.spread.is_empty()
}

/// Whether among these elements of a table is a foreign key: whether it can be depends on where the
/// other table is.
fn ties_tables(elements: &[Node]) -> bool {
    let is_foreign = |node: &Node| match &node.node {
        Some(NodeEnum::Constraint(constraint)) => constraint.contype() == ConstrType::ConstrForeign,
        _ => false,
    };
    elements.iter().any(|element| match &element.node {
        Some(NodeEnum::ColumnDef(column)) => column.constraints.iter().any(is_foreign),
        _ => is_foreign(element),
    })
}

/// Whether a new table says nothing of where its rows are, and refers to one that is distributed by hash. At home, or
/// with copies, it could not.
pub(super) fn follows(create: &CreateStmt, statement: &Statement, context: &Context<'_>) -> bool {
    let refers_to_hash = |node: &Node| match &node.node {
        Some(NodeEnum::Constraint(constraint)) => {
            let target = constraint.pktable.as_ref().and_then(|range| context.relation(range));
            target.is_some_and(|target| matches!(target.placement, Placement::Hash { .. }))
        }
        _ => false,
    };
    statement.distribute_by.is_none()
        && create.inh_relations.is_empty()
        && create.table_elts.iter().any(|element| match &element.node {
            Some(NodeEnum::ColumnDef(column)) => column.constraints.iter().any(refers_to_hash),
            _ => refers_to_hash(element),
        })
}

/// The same for changes of a table.
fn changes_ties(tree: &NodeEnum) -> bool {
    let NodeEnum::AlterTableStmt(alter) = tree else { return false };
    alter.cmds.iter().any(|command| match &command.node {
        Some(NodeEnum::AlterTableCmd(command)) => changes_tie(command),
        _ => true,
    })
}

fn changes_tie(command: &AlterTableCmd) -> bool {
    match command.subtype() {
        AlterTableType::AtAttachPartition | AlterTableType::AtAddInherit => true,
        AlterTableType::AtAddColumn | AlterTableType::AtAddConstraint => command
            .def
            .as_deref()
            .is_some_and(|definition| ties_tables(std::slice::from_ref(definition))),
        _ => false,
    }
}

/// The statement on all nodes, in one global transaction.
pub(super) fn everywhere(ddl: Ddl) -> Planned {
    Planned::new(SchemaPlan::Ddl(ddl), "every node has the whole schema")
}

/// Says of a planned schema change which nodes it is for.
pub(super) fn with_nodes(
    mut plan: Planned,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    if !context.catalog.home_by_default {
        return Ok(plan);
    }
    let tree = &statement.tree;
    let Plan::Schema(SchemaPlan::Ddl(ddl) | SchemaPlan::CreateTableAs { ddl, .. }) = &mut plan.plan
    else {
        return Ok(plan);
    };
    ddl.scope = match tree {
        NodeEnum::CreateStmt(create) if follows(create, statement, context) => DdlNodes::Shared {
            relations: Vec::new(),
            brings: false,
            others: None,
            each: Vec::new(),
        },
        NodeEnum::CreateStmt(create) if makes_home_table(create, statement, context) => {
            DdlNodes::Home
        }
        NodeEnum::CreateTableAsStmt(_) | NodeEnum::SelectStmt(_) if !statement.spreads() => {
            DdlNodes::Home
        }
        _ => {
            let named = named(tree, context);
            if named.is_home_alone() {
                DdlNodes::Home
            } else {
                let (others, each) = on_others(tree, &named, context)?;
                let brings = may_need_more(tree);
                DdlNodes::Shared { relations: named.spread, brings, others, each }
            }
        }
    };
    if ddl.scope == DdlNodes::Home && ddl.fills.is_none() {
        "it concerns node 1 alone".clone_into(&mut plan.why);
    }
    Ok(plan)
}

/// Whether tables may need more than before: what another node lacks of it has to be brought there.
fn may_need_more(tree: &NodeEnum) -> bool {
    matches!(tree, NodeEnum::AlterTableStmt(alter) if !adds_sequence(alter))
        || matches!(
            tree,
            NodeEnum::IndexStmt(_)
                | NodeEnum::CreateTrigStmt(_)
                | NodeEnum::RuleStmt(_)
                | NodeEnum::CreatePolicyStmt(_)
                | NodeEnum::AlterPolicyStmt(_)
                | NodeEnum::CreateStatsStmt(_)
        )
}

/// What a statement says on other nodes, if it is not the same; and what it says of single objects that they may have
/// or not.
fn on_others(
    tree: &NodeEnum,
    named: &Named,
    context: &Context<'_>,
) -> Result<(Option<String>, Vec<String>), Refusal> {
    let is_spread = |node: &Node| match &node.node {
        Some(NodeEnum::RangeVar(range)) => {
            context.relation(range).is_some_and(|relation| is_elsewhere(relation, context))
        }
        _ => true,
    };
    let has_no_rows = |node: &Node| match &node.node {
        Some(NodeEnum::RangeVar(range)) => {
            context.relation(range).is_none_or(|relation| !has_rows(&relation.kind))
        }
        _ => true,
    };
    let changed = match tree {
        NodeEnum::DropStmt(drop) => {
            let of = |object: &Node| dropped_from(drop, object, context);
            let objects = first_that_is_something(
                &drop.objects,
                |object| of(object).is_none_or(|relation| relation.placement != Placement::Home),
                |object| of(object).is_none_or(|relation| !has_rows(&relation.kind)),
            );
            NodeEnum::DropStmt(DropStmt { objects, missing_ok: true, ..drop.clone() })
        }
        NodeEnum::TruncateStmt(truncate) if named.home => {
            let mut truncate = truncate.clone();
            truncate.relations =
                first_that_is_something(&truncate.relations, is_spread, has_no_rows);
            NodeEnum::TruncateStmt(truncate)
        }
        NodeEnum::GrantStmt(grant) if grants_each(grant) => {
            // One that is not there must not keep the others from theirs.
            let of = |objects: Vec<Node>| {
                deparse(&NodeEnum::GrantStmt(GrantStmt { objects, ..grant.clone() }))
            };
            let is_of_relations = grant.objtype() == ObjectType::ObjectTable;
            let (certain, open): (Vec<_>, Vec<_>) =
                grant.objects.iter().cloned().partition(|it| is_of_relations && is_spread(it));
            let open = open.into_iter().filter(|it| !is_of_relations || has_no_rows(it));
            let groups = (!certain.is_empty()).then_some(certain).into_iter();
            let mut groups = groups.chain(open.map(|object| vec![object]));
            let first = groups.next().unwrap_or_else(|| grant.objects.clone());
            return Ok((Some(of(first)?), groups.map(of).collect::<Result<_, _>>()?));
        }
        NodeEnum::CreateSchemaStmt(create) if !create.schema_elts.is_empty() => {
            let mut create = create.clone();
            create.schema_elts.clear();
            NodeEnum::CreateSchemaStmt(create)
        }
        _ => return Ok((None, Vec::new())),
    };
    Ok((Some(deparse(&changed)?), Vec::new()))
}

/// Whether it is as good as one statement for each of several objects.
fn grants_each(grant: &GrantStmt) -> bool {
    1 < grant.objects.len() && grant.targtype() == GrantTargetType::AclTargetObject
}

/// Whether other nodes surely have it: a table of which they have rows, or a view of such tables alone.
fn is_elsewhere(relation: &Arc<Relation>, context: &Context<'_>) -> bool {
    if !matches!(relation.kind, RelationKind::View { .. }) {
        return relation.placement != Placement::Home;
    }
    let mut tables = mentions::of_relation(relation, context)
        .relations
        .into_values()
        .filter(|it| has_rows(&it.kind))
        .peekable();
    tables.peek().is_some() && tables.all(|it| it.placement != Placement::Home)
}

/// Of these objects, those that other nodes certainly have; if there are none, those that they may have.
/// Never empty: a statement needs an object.
fn first_that_is_something(
    objects: &[Node],
    is_spread: impl Fn(&Node) -> bool,
    may_be_there: impl Fn(&Node) -> bool,
) -> Vec<Node> {
    let chosen = |keep: &dyn Fn(&Node) -> bool| -> Option<Vec<Node>> {
        let kept: Vec<_> = objects.iter().filter(|object| keep(object)).cloned().collect();
        (!kept.is_empty()).then_some(kept)
    };
    chosen(&is_spread).or_else(|| chosen(&may_be_there)).unwrap_or_else(|| objects.to_vec())
}
