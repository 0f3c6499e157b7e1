//! Code that a statement may run and does not show: what it means for the statement's plan.
//!
//! Owns: from where the search through such code begins for each kind of statement, and the rule that
//! opaque code runs on node 1, accounted for, or not at all. Enforced in one place, [`settle`],
//! after whatever the planner has chosen.
//! Never: reads a body (`closure` does).
//! Start reading at [`of_statement`], then [`settle`].

use std::collections::HashMap;
use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableType, DropBehavior, Node, ObjectType, RangeVar, ReindexObjectType,
};

use super::context::Context;
use super::syntax::{option, option_text};
use crate::catalog::{Catalog, NameScope, Placement, Relation, RelationKind, quote_identifier};
use crate::closure::{Reach, Reason, Search, Writing};
use crate::code::{Attached, AttachedKind, FIRST_USER_OID, events};
use crate::plan::{
    Access, Collect, CopyToPlan, Ddl, DdlScope, Gather, InsertSource, NodeChoice, Plan, Planned,
    RowsWrite, RunOn, Unseen,
};
use crate::refusal::Refusal;
use crate::statement::{Statement, holds};
use crate::walk;

/// What code the statement itself can reach, on whatever node: its expressions, and what belongs to
/// the tables that it names. What belongs to rows that are written on several nodes is not here
/// ([`refuse_unsafe_code`]).
pub(super) fn of_statement(statement: &Statement, context: &Context<'_>) -> Reach {
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

/// Whether it may do what can only be proven, for nobody can be asked before it counts: commit inside, or
/// compute rows at COMMIT.
fn cannot_be_asked(tree: &NodeEnum) -> bool {
    match tree {
        NodeEnum::CallStmt(_) | NodeEnum::DoStmt(_) => true,
        NodeEnum::DeclareCursorStmt(declare) => holds(declare),
        _ => false,
    }
}

/// Whether it runs no code whatever there is, but for event triggers: it must work for whoever wants to get
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
            let has = |kinds: &[AlterTableType]| {
                alter.cmds.iter().any(|command| match &command.node {
                    Some(NodeEnum::AlterTableCmd(command)) => kinds.contains(&command.subtype()),
                    _ => false,
                })
            };
            // A default by itself runs nothing yet; the rest looks at the rows that are there.
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
            if has(&[
                AlterTableType::AtValidateConstraint,
                AlterTableType::AtAlterColumnType,
                AlterTableType::AtAddColumn,
                AlterTableType::AtSetLogged,
                AlterTableType::AtSetUnLogged,
                AlterTableType::AtSetAccessMethod,
            ]) {
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
        NodeEnum::VacuumStmt(vacuum) if option(&vacuum.options, "full").is_some() => {
            for table in &vacuum.rels {
                if let Some(NodeEnum::VacuumRelation(table)) = &table.node {
                    add_indexes(table.relation.as_ref(), context, search);
                }
            }
            if vacuum.rels.is_empty() {
                add_indexes(None, context, search);
            }
            None
        }
        NodeEnum::RefreshMatViewStmt(refresh) => {
            if let Some(view) = refresh.relation.as_ref().and_then(|it| context.relation(it)) {
                search.read(view);
                // Where tables are on all nodes unless they say otherwise, so are its rows.
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

fn inner(node: Option<&Node>) -> Option<&NodeEnum> {
    node.and_then(|node| node.node.as_ref())
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
            add_target(insert.relation.as_ref(), fired, context, search);
        }
        NodeEnum::UpdateStmt(update) => {
            add_target(update.relation.as_ref(), events::UPDATE, context, search);
        }
        NodeEnum::DeleteStmt(delete) => {
            add_target(delete.relation.as_ref(), events::DELETE, context, search);
        }
        NodeEnum::MergeStmt(merge) => {
            add_target(merge.relation.as_ref(), events::ALL, context, search);
        }
        _ => (),
    }
    walk::read::children(tree, &mut |child: &Node| {
        if let Some(child) = &child.node {
            add_tree(child, context, search);
        }
    });
}

fn add_target(range: Option<&RangeVar>, fired: u8, context: &Context<'_>, search: &mut Search<'_>) {
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
    if fired & events::INSERT != 0 {
        add_defaults(relation, search);
    }
    if stays_home(relation) {
        add_writes(relation, fired, context, search);
    }
}

/// Adds what a write to a relation of node 1 runs; that to a view is one to what it reads.
fn add_writes(relation: &Arc<Relation>, fired: u8, context: &Context<'_>, search: &mut Search<'_>) {
    let mut found = vec![relation];
    let mut at = 0;
    while let Some(relation) = found.get(at).copied() {
        at += 1;
        search.write(relation, fired);
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
}

/// Adds what computes the indexes of a schema's tables.
fn add_indexes_of_schema(schema: &str, context: &Context<'_>, search: &mut Search<'_>) {
    for table in context.catalog.relations.get(schema).into_iter().flat_map(HashMap::values) {
        add_indexes_that(|_| true, table.oid, context, search);
    }
}

/// Adds what computes the indexes of a table, or of the table whose index has the name, or of all.
fn add_indexes(named: Option<&RangeVar>, context: &Context<'_>, search: &mut Search<'_>) {
    let code = &context.catalog.code;
    let mut tables: Vec<u32> = match named.map(|range| context.relation(range)) {
        Some(Some(table)) => code.with_children(table.oid),
        _ => code.attached_relations().collect(),
    };
    // The first reason that is found is told.
    tables.sort_unstable();
    for table in tables {
        add_indexes_that(|_| true, table, context, search);
    }
}

/// Adds those indexes of a table that are meant; its partition key is one.
fn add_indexes_that(
    is_meant: impl Fn(&Attached) -> bool,
    table: u32,
    context: &Context<'_>,
    search: &mut Search<'_>,
) {
    let attached = context.catalog.code.attached_to(table).iter();
    attached
        .filter(|it| it.kind == AttachedKind::Index && is_meant(it))
        .for_each(|index| search.attached(index));
}

/// Whether a statement rebuilds tables or indexes, where nothing can be asked after it: many of these
/// take no transaction.
fn rebuilds(tree: &NodeEnum) -> bool {
    matches!(tree, NodeEnum::ReindexStmt(_) | NodeEnum::ClusterStmt(_) | NodeEnum::VacuumStmt(_))
}

/// Adds the triggers that TRUNCATE fires on a table, its partitions and, if it `cascades`, on those that
/// refer to it.
fn add_truncate(table: u32, cascades: bool, context: &Context<'_>, search: &mut Search<'_>) {
    let code = &context.catalog.code;
    let (mut found, mut next) = (vec![table], 0);
    while let Some(table) = found.get(next).copied() {
        next += 1;
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

/// Whether a column's default cannot be computed on any node.
pub(super) fn default_is_opaque(relation: &Relation, column: &str, context: &Context<'_>) -> bool {
    let mut search = Search::new(context.catalog, context.scope, Writing::Row);
    search.default(relation, column);
    !search.finish().is_transparent()
}

/// Refuses a default that must be computed on node 1 and accounted for there, where nothing asks.
pub(super) fn refuse_opaque_default(
    relation: &Relation,
    column: usize,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    let mut search = Search::new(context.catalog, context.scope, Writing::Statement);
    search.default(relation, &relation.columns[column].name);
    search.finish().opaque.map_or(Ok(()), |reason| Err(refusal(&reason)))
}

/// What runs with the rows of a relation where they are written.
fn of_rows(relation: &Arc<Relation>, fired: u8, context: &Context<'_>) -> Reach {
    let writing = match relation.placement {
        Placement::Replicated => Writing::Copies,
        _ => Writing::Row,
    };
    let mut search = Search::new(context.catalog, context.scope, writing);
    search.write(relation, fired);
    search.finish()
}

/// Whether writing a relation may leave something in the session that only its node knows.
pub(super) fn leaves_anything(relation: &Arc<Relation>, context: &Context<'_>) -> bool {
    let reach = of_rows(relation, events::ALL, context);
    reach.leaves || reach.opaque.is_some() || reach.sets
}

/// Refuses a write that would run code where the rows are, on several nodes, which no single node
/// can run, or which may move a row away from where it belongs.
pub(super) fn refuse_unsafe_code(
    relation: &Arc<Relation>,
    fired: u8,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    if context.catalog.is_solo() || relation.placement == Placement::Home {
        return Ok(());
    }
    if let Placement::Hash { key, .. } = relation.placement
        && fired & (events::INSERT | events::UPDATE) != 0
    {
        let key = &relation.columns[key].name;
        let code = &context.catalog.code;
        let mut tables = code.with_children(relation.oid).into_iter();
        if let Some((trigger, function)) = tables.find_map(|oid| code.key_changer(oid, key)) {
            return Err(Refusal::unsupported(
                format!("writing to {} would fire \"{trigger}\"", relation.sql_name()),
                format!(
                    "It runs {function} before the row is stored, which may give the distribution \
                     key \"{key}\" another value: the row would be on the wrong node."
                ),
                "Let the client give the key its value, and the trigger return NEW as it is.",
            ));
        }
    }
    let Some(reason) = of_rows(relation, fired, context).opaque else { return Ok(()) };
    let culprit = culprit(relation, fired, context);
    Err(Refusal::unsupported(
        format!("writing to {} would fire {culprit}", relation.sql_name()),
        format!(
            "It runs inside the node that has the row, which sees its own rows only: {reason}."
        ),
        hint(&reason, "row"),
    ))
}

/// The object of a relation's whose code is opaque, or what is written with it.
fn culprit(relation: &Arc<Relation>, fired: u8, context: &Context<'_>) -> String {
    let code = &context.catalog.code;
    let objects = code.attached_to(relation.oid).iter().filter(|it| it.runs_for(fired));
    for object in objects {
        let mut search = Search::new(context.catalog, context.scope, Writing::Row);
        search.attached(object);
        if search.finish().opaque.is_some() {
            return format!("\"{}\"", object.name);
        }
    }
    match code.written_with(relation.oid).iter().find(|other| other.by & fired != 0) {
        Some(other) => format!("code of \"{}\", which is written with it", other.name),
        None => "code of its columns' types".to_owned(),
    }
}

/// Puts into the plan what has to be accounted for when it runs, and refuses what no plan can run rightly.
///
/// Requires: `context.opaque` is the reason in `reach`.
pub(super) fn settle(
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
    settle_event_triggers(planned, statement, context)?;
    let is_call = matches!(statement.tree, NodeEnum::CallStmt(_));
    // In other statements PostgreSQL lets nothing commit.
    let may_commit = is_call || matches!(statement.tree, NodeEnum::DoStmt(_));
    if let (Some(code), Some(reason), true) = (&reach.commits, &reach.opaque, may_commit) {
        if is_call && reason.is_declared_home() {
            // What it commits cannot be taken back: nothing is asked.
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
    let unseen = Unseen {
        reason: reach.opaque.as_ref().map(ToString::to_string),
        sets: reach.sets,
        catches: reach.catches,
        samples: reach.samples,
        one_snapshot: gathers,
    };
    if let (Some(reason), Plan::Insert(_)) = (&reach.opaque, &planned.plan)
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

/// Of what is node 1's alone, what event triggers do is asked there like other code. Otherwise nobody could
/// tell it from what the change itself does to tables that are spread.
fn settle_event_triggers(
    planned: &mut Planned,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    if !context.catalog.code.has_event_triggers() || !fires_event_triggers(statement) {
        return Ok(());
    }
    let mut search = Search::new(context.catalog, context.scope, Writing::Row);
    search.event_triggers();
    let Some(reason) = search.finish().opaque else { return Ok(()) };
    match &mut planned.plan {
        // What it does is to be known before the next statement.
        Plan::Ddl(ddl) if ddl.scope == DdlScope::HomeAsItIs => ddl.scope = DdlScope::Home,
        Plan::Ddl(Ddl { scope: DdlScope::AllNodes | DdlScope::Shared { .. }, .. })
        | Plan::CreateTableAs { .. } => {
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

impl Planned {
    /// Nothing can be asked after it: what it does is proven to concern node 1 alone, as long as these
    /// tables are there.
    fn rest_on_home(&mut self, reach: &Reach) {
        self.concerns = Some(reach.home_tables.iter().copied().collect());
        self.unasked = true;
    }
}

fn is_cursor_of_home(plan: &Plan) -> bool {
    match plan {
        Plan::DeclareCursor { query, .. } => {
            matches!(query.plan, Plan::One { node: NodeChoice::Home, otherwise: None, .. })
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

/// Rows that are brought together are those of a table with its children.
fn refuse_only(tree: &NodeEnum, plan: &Plan, context: &Context<'_>) -> Result<(), Refusal> {
    if matches!(
        plan,
        Plan::One { otherwise: None, .. }
            | Plan::Scatter { .. }
            | Plan::Ddl(_)
            | Plan::Replicas { .. }
            | Plan::LockEverywhere { .. }
            | Plan::EveryNodeAlone { .. }
            | Plan::DropHomeIndexes(_)
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

/// What is said of opaque code that cannot run on node 1 for this statement.
pub(super) fn refusal(reason: &Reason) -> Refusal {
    Refusal::unsupported(
        format!("{} cannot run on one node", reason.code),
        format!("It {}, and a node sees only its own rows.", reason.does),
        hint(reason, "replicated"),
    )
}

/// What to do about opaque code.
fn hint(reason: &Reason, declaration: &str) -> String {
    match reason.code.strip_prefix("function ").and_then(|it| it.strip_suffix("()")) {
        Some(function) => format!(
            "Send its statements from the client; or, if all that it touches {}, say so: SELECT \
             tutti_function('{function}', '{declaration}').",
            match declaration {
                "row" => "belongs to the row's key",
                _ => "are replicated tables that it reads",
            }
        ),
        None => "Drop it, or send the statements that it stands for from the client.".to_owned(),
    }
}

/// Notes where in the plan the code runs; false if that is not on node 1 alone.
fn account_for(planned: &mut Planned, unseen: &Unseen) -> bool {
    let is_home = |run_on: &RunOn| matches!(run_on, RunOn::One(NodeChoice::Home));
    match &mut planned.plan {
        Plan::One { node: NodeChoice::Home, otherwise: None, .. }
        | Plan::TemporaryDdl { .. }
        | Plan::Explain { .. }
        | Plan::Cursor { .. } => (),
        Plan::Ddl(ddl) if ddl.scope == DdlScope::Home => (),
        Plan::Gather(gather) if is_home(&gather.run_on) => (),
        // Whatever it does to the tables that travel, it is their rows after it that do.
        Plan::Rows(rows) if rows.cursor.is_none() => {
            if unseen.reason.is_some() {
                rows.returned = None;
            }
        }
        Plan::Replicas { rows, .. } if unseen.reason.is_some() => {
            let rows = RowsWrite { returned: None, ..rows.clone() };
            planned.plan = Plan::Rows(rows);
        }
        Plan::CopyTo(copy) => match &copy.plan {
            CopyToPlan::One(NodeChoice::Home, _) => (),
            CopyToPlan::Gather(gather) if is_home(&gather.run_on) => (),
            _ => return false,
        },
        Plan::DeclareCursor { query, .. } => {
            let mut query = (**query).clone();
            if !account_for(&mut query, unseen) {
                return false;
            }
        }
        Plan::Insert(insert) => match &mut insert.source {
            InsertSource::Select { plan, .. } => return account_for(plan, unseen),
            InsertSource::Values { .. } => return false,
        },
        // Its query is planned again when it is run.
        Plan::CreateTableAs { .. } => return true,
        _ => return false,
    }
    planned.unseen = Some(Box::new(unseen.clone()));
    true
}

/// Rows that are gathered are made anew, which checks the domains of their columns again.
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

/// Rows on their way are read by whoever reads them, with his rights: no code that any role may have written
/// is to run there. What its owner has declared of it is about results, never about that.
///
/// Errors: 0A000 for a relation with a type that has such code in its checks.
pub fn refuse_transit(relation: &Arc<Relation>, catalog: &Catalog) -> Result<(), Refusal> {
    // What belongs to types is known by number.
    let scope = NameScope::default();
    let mut search = Search::new(catalog, &scope, Writing::Transit);
    search.make_rows(relation);
    let Some(reason) = search.finish().opaque else { return Ok(()) };
    Err(Refusal::unsupported(
        format!("rows of {} cannot be brought to one node", relation.sql_name()),
        format!("The type of a column would be checked there by whoever reads them: {reason}."),
        "Let the type's check call PostgreSQL's own functions only, or read the table by its \
         distribution key.",
    ))
}

/// Whether a relation has columns of types that may get such checks while its rows are on their way: domains,
/// and what is made of others.
pub fn may_be_checked(relation: &Relation) -> bool {
    relation.columns.iter().any(|column| column.domain || FIRST_USER_OID <= column.type_oid)
}

fn collects(plan: &Plan) -> &[Collect] {
    gather_of(plan).map_or(&[], |gather| &gather.collects)
}

fn gather_of(plan: &Plan) -> Option<&Gather> {
    match plan {
        Plan::Gather(gather) | Plan::TemporaryDdl { gather: Some(gather) } => Some(gather),
        Plan::CopyTo(copy) => match &copy.plan {
            CopyToPlan::Gather(gather) => Some(gather),
            _ => None,
        },
        Plan::One { otherwise: Some(of), .. }
        | Plan::DeclareCursor { query: of, .. }
        | Plan::Explain { of, .. } => gather_of(&of.plan),
        Plan::Insert(insert) => match &insert.source {
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
        Plan::Gather(gather) => gather.access == Access::Write,
        Plan::One { otherwise: Some(of), .. } => gathers_to_write(&of.plan),
        Plan::Explain { of, analyze, .. } => *analyze && gathers_to_write(&of.plan),
        Plan::Insert(insert) => match &insert.source {
            InsertSource::Select { plan, .. } => {
                matches!(plan.plan, Plan::Scatter { .. }) || gather_of(&plan.plan).is_some()
            }
            InsertSource::Values { .. } => false,
        },
        _ => false,
    }
}

/// Whether rows come from several snapshots at READ COMMITTED.
fn gathers(plan: &Plan) -> bool {
    !collects(plan).is_empty()
}

/// Whether it changes the schema. Roles, databases and event triggers themselves fire none.
pub fn fires_event_triggers(statement: &Statement) -> bool {
    let is_event_trigger = |object: ObjectType| object == ObjectType::ObjectEventTrigger;
    match &statement.tree {
        NodeEnum::SelectStmt(select) => super::has_into(select),
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

/// Refuses to move rows of a table to where that would run code that looks at more than the row: its
/// generated columns are computed and its constraints checked again, those of its columns' types too, and
/// its indexes filled. (Its triggers stay off.) Node 1 is no better for that than another: where a
/// table is on several nodes, each sees its own rows only.
pub fn refuse_moving(
    relation: &Relation,
    scope: &NameScope,
    catalog: &Catalog,
) -> Result<(), Refusal> {
    let refusal = |runs: String, reason: &Reason| {
        Refusal::unsupported(
            format!("rows of table \"{}\" cannot be written on other nodes", relation.name),
            format!("That runs {runs} there, and a node sees its own rows only: {reason}."),
            hint(reason, "row"),
        )
    };
    let tables = catalog.code.with_children(relation.oid);
    let objects = tables.iter().flat_map(|table| catalog.code.attached_to(*table));
    for object in objects.filter(|it| matches!(it.kind, AttachedKind::Check | AttachedKind::Index))
    {
        let mut search = Search::new(catalog, scope, Writing::Row);
        search.attached(object);
        if let Some(reason) = search.finish().opaque {
            return Err(refusal(format!("{} \"{}\"", object.kind.word(), object.name), &reason));
        }
    }
    for column in &relation.columns {
        let mut search = Search::new(catalog, scope, Writing::Row);
        search.make(column.type_oid);
        if let Some(reason) = search.finish().opaque {
            let runs = format!("the type of column \"{}\"", column.name);
            return Err(refusal(runs, &reason));
        }
    }
    Ok(())
}

/// Checks the types that a client declares of a statement's parameters.
///
/// Errors: 0A000 for one that runs code which nobody could account for.
pub fn refuse_types(types: &[u32], catalog: &Catalog, scope: &NameScope) -> Result<(), Refusal> {
    if catalog.is_solo() || types.is_empty() {
        return Ok(());
    }
    let mut search = Search::new(catalog, scope, Writing::Statement);
    types.iter().for_each(|oid| search.make(*oid));
    search.finish().opaque.map_or(Ok(()), |reason| Err(refusal(&reason)))
}

/// Checks the policies of all tables that other nodes have a part of: each node applies them for
/// itself, to every statement.
///
/// Errors: 0A000 for the first that a node cannot apply.
pub fn check_policies(catalog: &Catalog) -> Result<(), Refusal> {
    if catalog.is_solo() {
        return Ok(());
    }
    let scope = NameScope { search_path: vec!["public".to_owned()], ..NameScope::default() };
    let mut tables: Vec<_> =
        catalog.relations.values().flat_map(|tables| tables.values()).collect();
    tables.retain(|table| {
        table.placement != Placement::Home && !matches!(table.kind, RelationKind::View { .. })
    });
    tables.sort_by_key(|table| (&table.schema, &table.name));
    for table in tables {
        for policy in catalog.code.policies_of(table.oid) {
            let mut search = Search::new(catalog, &scope, Writing::Row);
            search.attached(policy);
            if let Some(reason) = search.finish().opaque {
                return Err(Refusal::unsupported(
                    format!(
                        "policy \"{}\" of table \"{}\" cannot be enforced",
                        policy.name, table.name
                    ),
                    format!("Each node would ask it of its own rows: {reason}."),
                    "Make the tables that the condition refers to REPLICATED, and declare functions \
                     that read nothing else: SELECT tutti_function('f', 'replicated').",
                ));
            }
        }
    }
    Ok(())
}
