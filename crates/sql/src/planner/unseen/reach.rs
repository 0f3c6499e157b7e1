//! What code a statement can reach: where the search begins for each kind of statement.
//!
//! Owns: that nothing which a statement evaluates, reads or fires is left out of the search.
//! Never: reads a body (`closure` does), or says what follows from what was found.
//! Start reading at [`of_statement`].

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableType, DropBehavior, Node, ObjectType, RangeVar, ReindexObjectType,
};

use super::change::{add_computed_by_change, alters, fills_rows, inner};
use crate::catalog::{Catalog, NameScope, Placement, Relation, RelationKind, quote_identifier};
use crate::closure::{FIRES_EVENTS, Reach, Search, Writing};
use crate::code::{Attached, AttachedKind, events};
use crate::planner::context::Context;
use crate::planner::syntax::{has_into, option, option_text, say_default, written};
use crate::refusal::Refusal;
use crate::statement::{Statement, holds};
use crate::walk;

/// What code the statement itself can reach, on any node: its expressions, and what belongs to
/// the tables that it names. What belongs to rows that are written on several nodes is not here
/// ([`refuse_unsafe_code`]).
pub(crate) fn of_statement(statement: &Statement, context: &Context<'_>) -> Reach {
    let mut search = Search::new(context.catalog, context.scope, Writing::Statement);
    let fires = context.catalog.code.has_event_triggers() && fires_event_triggers(statement);
    if fires {
        search.event_triggers();
    }
    if runs_nothing(&statement.tree) {
        return if fires { search.finish() } else { Reach::default() };
    }
    if cannot_be_asked(&statement.tree) {
        search.prove_home(&statement.text);
    }
    add_statement(&statement.tree, &statement.text, context, &mut search);
    if names_things(&statement.tree) {
        search.temporary_code(&statement.text);
    }
    search.finish()
}

/// Refuses to let a server analyse a statement by itself, which is not asked what that did: the server reads constants,
/// and code of their types may be more than node 1's.
///
/// Errors: 0A000.
pub fn refuse_analysis(text: &str, catalog: &Catalog, scope: &NameScope) -> Result<(), Refusal> {
    let mut search = Search::new(catalog, scope, Writing::Statement);
    search.analysed(text);
    let Some(reason) = search.finish().opaque else { return Ok(()) };
    let mut search = Search::new(catalog, scope, Writing::Statement);
    search.prove_home("");
    search.analysed(text);
    if search.finish().beyond_home.is_none() {
        return Ok(());
    }
    Err(Refusal::unsupported(
        format!("preparing this statement would run {}", reason.code),
        format!("A constant in it is read then, by code of its type, which {}.", reason.does),
        "Give the constant as a parameter, or execute the statement without preparing it.",
    ))
}

/// What a statement of this reach calls, or may call by its words, with what runs beside the rows that it
/// writes on several nodes.
pub(crate) fn calls_of(
    statement: &Statement,
    reach: &Reach,
    context: &Context<'_>,
) -> BTreeSet<u32> {
    let mut calls = reach.calls.clone();
    if fires_event_triggers(statement) {
        calls.insert(FIRES_EVENTS);
    }
    let mut search = Search::new(context.catalog, context.scope, Writing::Row);
    add_rows(&statement.tree, context, &mut search);
    calls.extend(search.finish().calls);
    calls
}

fn add_rows(tree: &NodeEnum, context: &Context<'_>, search: &mut Search<'_>) {
    let written = match tree {
        NodeEnum::CopyStmt(copy) => copy.relation.as_ref().filter(|_| copy.is_from),
        tree => written(tree),
    };
    if let Some(relation) = written.and_then(|range| context.relation(range)) {
        search.write(relation, events::ALL);
        add_defaults(relation, search);
    }
    walk::read::children(tree, &mut |child: &Node| {
        if let Some(child) = &child.node {
            add_rows(child, context, search);
        }
    });
}

/// Whether it may do what can only be proven, for it cannot be asked before it takes effect: commit
/// inside, or compute rows at COMMIT.
fn cannot_be_asked(tree: &NodeEnum) -> bool {
    match tree {
        NodeEnum::CallStmt(_) | NodeEnum::DoStmt(_) => true,
        NodeEnum::DeclareCursorStmt(declare) => holds(declare),
        _ => false,
    }
}

/// Whether it never runs code, except event triggers: it must work for a client that wants to get
/// rid of some.
fn runs_nothing(tree: &NodeEnum) -> bool {
    matches!(
        tree,
        NodeEnum::TransactionStmt(_)
            | NodeEnum::VariableSetStmt(_)
            | NodeEnum::VariableShowStmt(_)
            | NodeEnum::DiscardStmt(_)
            | NodeEnum::DeallocateStmt(_)
            | NodeEnum::ListenStmt(_)
            | NodeEnum::UnlistenStmt(_)
            | NodeEnum::NotifyStmt(_)
            | NodeEnum::ClosePortalStmt(_)
            | NodeEnum::LockStmt(_)
            | NodeEnum::CheckPointStmt(_)
            | NodeEnum::DropStmt(_)
            | NodeEnum::DropRoleStmt(_)
            | NodeEnum::DropOwnedStmt(_)
            | NodeEnum::GrantStmt(_)
            | NodeEnum::GrantRoleStmt(_)
    )
}

/// Whether it may name a table, a type or a function, and then runs what they have.
fn names_things(tree: &NodeEnum) -> bool {
    match tree {
        NodeEnum::SelectStmt(_)
        | NodeEnum::InsertStmt(_)
        | NodeEnum::UpdateStmt(_)
        | NodeEnum::DeleteStmt(_)
        | NodeEnum::MergeStmt(_)
        | NodeEnum::CopyStmt(_)
        | NodeEnum::CallStmt(_) => true,
        NodeEnum::ExplainStmt(explain) => inner(explain.query.as_deref()).is_some_and(names_things),
        NodeEnum::DeclareCursorStmt(_) | NodeEnum::CreateTableAsStmt(_) => true,
        _ => false,
    }
}

fn add_statement(tree: &NodeEnum, text: &str, context: &Context<'_>, search: &mut Search<'_>) {
    add_computed_by_change(tree, text, context, search);
    let inner = match tree {
        NodeEnum::SelectStmt(_)
        | NodeEnum::InsertStmt(_)
        | NodeEnum::UpdateStmt(_)
        | NodeEnum::DeleteStmt(_)
        | NodeEnum::MergeStmt(_) => Some(tree),
        NodeEnum::ExplainStmt(explain) => inner(explain.query.as_deref()),
        NodeEnum::DeclareCursorStmt(declare) => inner(declare.query.as_deref()),
        NodeEnum::CreateTableAsStmt(create) => inner(create.query.as_deref()),
        NodeEnum::CopyStmt(copy) => {
            search.text(text);
            if let Some(relation) = copy.relation.as_ref().and_then(|it| context.relation(it)) {
                search.read(relation);
                if copy.is_from && stays_home(relation) {
                    search.write(relation, events::INSERT);
                    add_defaults(relation, search);
                }
            }
            inner(copy.query.as_deref())
        }
        NodeEnum::CallStmt(_) => {
            search.text(text);
            None
        }
        NodeEnum::DoStmt(code) => {
            let body = option(&code.args, "as").and_then(option_text).unwrap_or_default();
            let language = option(&code.args, "language").and_then(option_text);
            search.block(language.as_deref().unwrap_or("plpgsql"), &body);
            None
        }
        NodeEnum::AlterTableStmt(alter) => {
            let has = |kinds: &[AlterTableType]| alters(alter, kinds);
            // A default by itself runs nothing yet; the rest reads existing rows.
            if has(&[
                AlterTableType::AtAddColumn,
                AlterTableType::AtAddConstraint,
                AlterTableType::AtAlterColumnType,
                AlterTableType::AtSetExpression,
                // The bounds may be anything.
                AlterTableType::AtAttachPartition,
            ]) {
                search.text(text);
            }
            let Some(table) = alter.relation.as_ref().and_then(|it| context.relation(it)) else {
                return;
            };
            // The checks that the table has are asked of its rows again.
            let rewrites = has(&[
                AlterTableType::AtValidateConstraint,
                AlterTableType::AtAlterColumnType,
                AlterTableType::AtSetLogged,
                AlterTableType::AtSetUnLogged,
                AlterTableType::AtSetAccessMethod,
            ]);
            if rewrites || alter.cmds.iter().any(|command| fills_rows(command, context)) {
                add_checks(table, context, search);
            }
            // Rows are asked which partition they belong to, and those that no other has taken.
            if has(&[AlterTableType::AtAttachPartition]) {
                add_partitioning(table, context, search);
            }
            None
        }
        NodeEnum::CreateStmt(create) if create.partbound.is_some() => {
            search.text(text);
            for parent in &create.inh_relations {
                if let Some(NodeEnum::RangeVar(range)) = &parent.node
                    && let Some(parent) = context.relation(range)
                {
                    add_partitioning(parent, context, search);
                }
            }
            None
        }
        // A constraint that is added, or asked of the values that there are.
        NodeEnum::AlterDomainStmt(alter) if matches!(&*alter.subtype, "C" | "V") => {
            search.text(text);
            None
        }
        NodeEnum::TruncateStmt(truncate) => {
            for relation in &truncate.relations {
                if let Some(NodeEnum::RangeVar(range)) = &relation.node
                    && let Some(relation) = context.relation(range)
                {
                    let cascades = truncate.behavior() == DropBehavior::DropCascade;
                    add_truncate(relation.oid, cascades, context, search);
                }
            }
            None
        }
        NodeEnum::IndexStmt(_) => {
            search.text(text);
            search.text_of_owner(text);
            None
        }
        NodeEnum::ReindexStmt(reindex) => {
            match reindex.kind() {
                ReindexObjectType::ReindexObjectIndex => {
                    let range = reindex.relation.as_ref();
                    add_index(range.map_or("", |range| &range.relname), context, search);
                }
                ReindexObjectType::ReindexObjectSchema => {
                    add_indexes_of_schema(&reindex.name, context, search);
                }
                // Those of PostgreSQL's own tables.
                ReindexObjectType::ReindexObjectSystem => (),
                _ => add_indexes(reindex.relation.as_ref(), context, search),
            }
            None
        }
        NodeEnum::ClusterStmt(cluster) => {
            add_indexes(cluster.relation.as_ref(), context, search);
            None
        }
        // What is analysed is computed, too, where it is an expression of an index or of statistics.
        NodeEnum::VacuumStmt(vacuum)
            if !vacuum.is_vacuumcmd
                || option(&vacuum.options, "full").is_some()
                || option(&vacuum.options, "analyze").is_some() =>
        {
            for table in &vacuum.rels {
                if let Some(NodeEnum::VacuumRelation(table)) = &table.node {
                    add_computed(table.relation.as_ref(), is_analysed, context, search);
                }
            }
            if vacuum.rels.is_empty() {
                add_computed(None, is_analysed, context, search);
            }
            None
        }
        NodeEnum::RefreshMatViewStmt(refresh) => {
            if let Some(view) = refresh.relation.as_ref().and_then(|it| context.relation(it)) {
                search.read(view);
                // Where tables are on all nodes by default, so are its rows.
                if stays_home(view) && context.catalog.home_by_default {
                    // What its query names is not known.
                    let code = format!("materialized view {}", view.sql_name());
                    search.opaque(&code, "runs its query");
                }
            }
            None
        }
        _ => None,
    };
    if let Some(tree) = inner {
        search.text(text);
        add_tree(tree, context, search);
    }
}

/// Adds the relations of a query or a change of rows, and what belongs to them.
fn add_tree(tree: &NodeEnum, context: &Context<'_>, search: &mut Search<'_>) {
    match tree {
        NodeEnum::RangeVar(range) => {
            if let Some(relation) = context.relation(range) {
                search.read(relation);
            }
        }
        NodeEnum::InsertStmt(insert) => {
            let mut fired = events::INSERT;
            if insert.on_conflict_clause.is_some() {
                fired |= events::UPDATE;
            }
            add_target(insert.relation.as_ref(), fired, true, context, search);
        }
        NodeEnum::UpdateStmt(update) => {
            let says_default = say_default(&update.target_list);
            add_target(update.relation.as_ref(), events::UPDATE, says_default, context, search);
        }
        NodeEnum::DeleteStmt(delete) => {
            add_target(delete.relation.as_ref(), events::DELETE, false, context, search);
        }
        NodeEnum::MergeStmt(merge) => {
            add_target(merge.relation.as_ref(), events::ALL, true, context, search);
        }
        _ => (),
    }
    walk::read::children(tree, &mut |child: &Node| {
        if let Some(child) = &child.node {
            add_tree(child, context, search);
        }
    });
}

/// `takes_defaults`: columns may get what they get if no value is given.
fn add_target(
    range: Option<&RangeVar>,
    fired: u8,
    takes_defaults: bool,
    context: &Context<'_>,
    search: &mut Search<'_>,
) {
    let Some(range) = range else { return };
    let Some(relation) = context.relation(range) else {
        let is_settings =
            range.relname == "pg_settings" && matches!(&*range.schemaname, "" | "pg_catalog");
        if is_settings {
            search.note_sets();
        }
        return;
    };
    search.read(relation);
    if takes_defaults {
        // A view's table may have columns that the view has not.
        relations_behind(relation, context).into_iter().for_each(|it| add_defaults(it, search));
    }
    if stays_home(relation) {
        add_writes(relation, fired, context, search);
    }
}

/// Adds what a write to a relation of node 1 runs; that to a view is one to what it reads.
fn add_writes(relation: &Arc<Relation>, fired: u8, context: &Context<'_>, search: &mut Search<'_>) {
    relations_behind(relation, context).into_iter().for_each(|it| search.write(it, fired));
}

/// A relation, and for a view all that it reads, through other views.
fn relations_behind<'c>(
    relation: &'c Arc<Relation>,
    context: &Context<'c>,
) -> Vec<&'c Arc<Relation>> {
    let mut found = vec![relation];
    let mut at = 0;
    while let Some(relation) = found.get(at).copied() {
        at += 1;
        if !matches!(relation.kind, RelationKind::View { .. }) {
            continue;
        }
        for (schema, name) in context.catalog.code.read_by_view(relation.oid) {
            let table = context.catalog.relations.get(schema).and_then(|all| all.get(name));
            // Views may read others many times, and in a circle.
            if let Some(table) = table.filter(|it| !found.iter().any(|known| known.oid == it.oid)) {
                found.push(table);
            }
        }
    }
    found
}

/// Defaults are computed before the rows are placed where they cannot be computed anywhere.
fn add_defaults(relation: &Arc<Relation>, search: &mut Search<'_>) {
    for column in &relation.columns {
        if column.default.is_some() && !column.generated {
            search.default(relation, &column.name);
        }
    }
}

/// Adds the constraints of a table and of its partitions.
fn add_checks(relation: &Relation, context: &Context<'_>, search: &mut Search<'_>) {
    let code = &context.catalog.code;
    for table in code.with_children(relation.oid) {
        let attached = code.attached_to(table).iter();
        attached
            .filter(|it| matches!(it.kind, AttachedKind::Check | AttachedKind::Index))
            .for_each(|check| search.attached(check));
    }
}

/// Adds what tells which partition of a table, or of those that it is a partition of, a row belongs to.
fn add_partitioning(parent: &Relation, context: &Context<'_>, search: &mut Search<'_>) {
    add_checks(parent, context, search);
    for above in context.catalog.code.above(parent.oid) {
        add_indexes_that(|_| true, above, context, search);
    }
}

/// Adds what computes indexes of this name, in whichever schema.
fn add_index(name: &str, context: &Context<'_>, search: &mut Search<'_>) {
    let name = quote_identifier(name);
    let unquoted = name.trim_matches('"');
    let is_it = |found: &str| {
        [&*name, unquoted].iter().any(|name| {
            found.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
    };
    for table in context.catalog.code.attached_relations() {
        add_indexes_that(|index| is_it(&index.name), table, context, search);
    }
    // (An index of columns alone is known by no name.)
    see_all(context, search);
}

/// Adds what compares values of columns of whatever table.
fn see_all(context: &Context<'_>, search: &mut Search<'_>) {
    context.catalog.relations.values().flat_map(HashMap::values).for_each(|it| search.see(it));
}

/// Adds what computes the indexes of a schema's tables.
fn add_indexes_of_schema(schema: &str, context: &Context<'_>, search: &mut Search<'_>) {
    for table in context.catalog.relations.get(schema).into_iter().flat_map(HashMap::values) {
        search.see(table);
        add_indexes_that(|_| true, table.oid, context, search);
    }
}

/// Adds what computes the indexes of a table, or of the table whose index has the name, or of all.
fn add_indexes(named: Option<&RangeVar>, context: &Context<'_>, search: &mut Search<'_>) {
    add_computed(named, is_index, context, search);
}

fn is_index(attached: &Attached) -> bool {
    attached.kind == AttachedKind::Index
}

fn is_analysed(attached: &Attached) -> bool {
    matches!(attached.kind, AttachedKind::Index | AttachedKind::Statistics)
}

/// The same, of those objects of the tables that are meant.
fn add_computed(
    named: Option<&RangeVar>,
    is_meant: fn(&Attached) -> bool,
    context: &Context<'_>,
    search: &mut Search<'_>,
) {
    let code = &context.catalog.code;
    let table = named.and_then(|range| context.relation(range));
    let mut tables: Vec<u32> = match table {
        Some(table) => code.with_children(table.oid),
        None => code.attached_relations().collect(),
    };
    // Values of columns are compared, for indexes and for statistics.
    match table {
        Some(table) => search.see(table),
        None => see_all(context, search),
    }
    // The first reason found is reported.
    tables.sort_unstable();
    for table in tables {
        let attached = context.catalog.code.attached_to(table).iter();
        attached.filter(|it| is_meant(it)).for_each(|it| search.attached(it));
    }
}

/// Adds the selected indexes of a table; its partition key counts as one.
fn add_indexes_that(
    is_meant: impl Fn(&Attached) -> bool,
    table: u32,
    context: &Context<'_>,
    search: &mut Search<'_>,
) {
    let attached = context.catalog.code.attached_to(table).iter();
    attached.filter(|it| is_index(it) && is_meant(it)).for_each(|index| search.attached(index));
}

/// Adds the triggers that TRUNCATE fires on a table, its partitions and, if it `cascades`, on those that
/// refer to it, and their indexes, which are built anew.
fn add_truncate(table: u32, cascades: bool, context: &Context<'_>, search: &mut Search<'_>) {
    let code = &context.catalog.code;
    let (mut found, mut next) = (vec![table], 0);
    while let Some(table) = found.get(next).copied() {
        next += 1;
        search.plan(table, true);
        let triggers = code.attached_to(table).iter();
        triggers
            .filter(|it| it.kind == AttachedKind::Trigger && it.runs_for(events::TRUNCATE))
            .for_each(|trigger| search.attached(trigger));
        for other in code.written_with(table) {
            if (other.is_child() || cascades) && !found.contains(&other.relation) {
                found.push(other.relation);
            }
        }
    }
}

/// Whether what a write to it runs is run on node 1 alone. (A view's own rows are nowhere.)
fn stays_home(relation: &Relation) -> bool {
    relation.placement == Placement::Home
}

/// Whether it changes the schema. Roles, databases and event triggers themselves fire none.
pub fn fires_event_triggers(statement: &Statement) -> bool {
    let is_event_trigger = |object: ObjectType| object == ObjectType::ObjectEventTrigger;
    match &statement.tree {
        NodeEnum::SelectStmt(select) => has_into(select),
        _ if statement.is_of_rows() || statement.is_of_session() => false,
        NodeEnum::CopyStmt(_)
        | NodeEnum::LockStmt(_)
        | NodeEnum::CheckPointStmt(_)
        | NodeEnum::ExplainStmt(_)
        | NodeEnum::DoStmt(_)
        | NodeEnum::CallStmt(_)
        | NodeEnum::LoadStmt(_)
        | NodeEnum::TruncateStmt(_)
        | NodeEnum::VacuumStmt(_)
        | NodeEnum::ClusterStmt(_)
        | NodeEnum::ReindexStmt(_) => false,
        NodeEnum::CreateEventTrigStmt(_)
        | NodeEnum::AlterEventTrigStmt(_)
        | NodeEnum::CreateRoleStmt(_)
        | NodeEnum::AlterRoleStmt(_)
        | NodeEnum::AlterRoleSetStmt(_)
        | NodeEnum::DropRoleStmt(_)
        | NodeEnum::GrantRoleStmt(_)
        | NodeEnum::AlterDatabaseStmt(_)
        | NodeEnum::AlterDatabaseSetStmt(_)
        | NodeEnum::AlterSystemStmt(_) => false,
        NodeEnum::DropStmt(drop) => !is_event_trigger(drop.remove_type()),
        _ => true,
    }
}

/// Whether it runs the script of an extension, which changes the schema by many statements.
pub fn runs_script(statement: &Statement) -> bool {
    matches!(statement.tree, NodeEnum::CreateExtensionStmt(_) | NodeEnum::AlterExtensionStmt(_))
}
