//! Views that contain distributed tables, written out as subqueries.
//!
//! Owns: what a view contains, and its expansion in a tree.
//!
//! A view has the rights and the policies of its owner, its query written out has those of the
//! caller. So where rows are gathered, a view stays a view if each node can compute its own part of
//! it.
//!
//! Never: touches a view over replicated tables only, which every node can answer by itself.
//! Start reading at [`expand`].

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Alias, Node, RangeSubselect, RangeVar, SelectStmt};

use super::analysis::Analysis;
use super::context::Context;
use super::known_views::{Contents, Known, infinite_recursion};
use super::printed::Hiding;
use super::{analyse, scatter, view_references, view_rows};
use crate::catalog::{NameScope, Relation, RelationKind};
use crate::refusal::Refusal;
use crate::walk;

/// So many views are written out in place of one at most: views that read others twice each, ten
/// deep.
const WRITTEN_OUT_MAX: usize = 1024;
/// How deep views may be nested: code that walks the written-out tree recurses as deep.
const DEPTH_MAX: usize = 64;

/// What the view reads, other views looked through.
///
/// Errors: 42P17 for a view that reads itself, which PostgreSQL says as late; 54001 for more than
/// could be written out.
pub(super) fn contents(
    view: &Relation,
    definition: &str,
    context: &Context<'_>,
) -> Result<Arc<Contents>, Refusal> {
    let known_here = Known::default();
    let known = context.views.unwrap_or(&known_here);
    if let Some(found) = known.lock().get(&view.sql_name()) {
        return found.clone().unwrap_or_else(|| Err(infinite_recursion(view)));
    }
    let hiding = Hiding::of(context);
    let scope = NameScope::default();
    let context = Context { scope: &scope, opaque: None, views: Some(known), ..*context };
    // What a view reads is analysed before it, so analysing one recurses no deeper.
    let mut pending = vec![Pending::new(view, definition, hiding, &context)];
    let mut found = None;
    while let Some(last) = pending.last_mut() {
        if let Some((view, definition)) = last.below.pop() {
            if !known.lock().contains_key(&view.sql_name()) {
                pending.push(Pending::new(view, definition, hiding, &context));
            }
            continue;
        }
        let Some(last) = pending.pop() else { break };
        let (view, query) = (last.view, last.query);
        let contents = query.and_then(|query| look_into(view, query, &context)).map(Arc::new);
        known.lock().insert(view.sql_name(), Some(contents.clone()));
        found = Some(contents);
    }
    found.unwrap_or_else(|| Err(infinite_recursion(view)))
}

/// Finds out everything about `statement`, its views looked into: SELECT, UPDATE, DELETE, MERGE or INSERT.
///
/// Every `RangeVar` and `ColumnRef` must have a location of its own (as the parser gives them).
/// The statement itself is query 0.
pub(super) fn analyse<'a>(
    statement: &'a NodeEnum,
    context: &Context<'a>,
) -> Result<Analysis<'a>, Refusal> {
    let mut views = Vec::new();
    walk::read::children(statement, &mut |child| add_views(child, context, &mut views));
    look_into_all(&views, context);
    analyse::analyse(statement, context)
}

/// The same for a SELECT.
pub(super) fn analyse_select<'a>(
    select: &'a SelectStmt,
    context: &Context<'a>,
) -> Result<Analysis<'a>, Refusal> {
    let mut views = Vec::new();
    walk::read::select(select, &mut |child| add_views(child, context, &mut views));
    look_into_all(&views, context);
    analyse::analyse_select(select, context)
}

/// An error in a view is reported when it is read.
fn look_into_all(views: &[(&Relation, &str)], context: &Context<'_>) {
    for (relation, definition) in views {
        let _ = contents(relation, definition, context);
    }
}

/// A view that is being looked into.
struct Pending<'a> {
    view: &'a Relation,
    query: Result<NodeEnum, Refusal>,
    /// The views that it reads, and that have not been visited yet.
    below: Vec<(&'a Relation, &'a str)>,
}

impl<'a> Pending<'a> {
    fn new(
        relation: &'a Relation,
        definition: &str,
        hiding: Hiding<'_>,
        context: &Context<'a>,
    ) -> Self {
        if let Some(known) = context.views {
            known.lock().insert(relation.sql_name(), None);
        }
        let query = read_query(relation, definition).and_then(|mut query| {
            hiding.qualify(&mut query)?;
            Ok(query)
        });
        let mut below = Vec::new();
        if let Ok(query) = &query {
            walk::read::children(query, &mut |child| add_views(child, context, &mut below));
        }
        Self { view: relation, query, below }
    }
}

/// The views that are named at a node and below it.
fn add_views<'a>(node: &Node, context: &Context<'a>, views: &mut Vec<(&'a Relation, &'a str)>) {
    match &node.node {
        Some(NodeEnum::RangeVar(range)) => views.extend(view(range, context)),
        Some(tree) => walk::read::children(tree, &mut |child| add_views(child, context, views)),
        None => (),
    }
}

fn look_into(
    view: &Relation,
    mut query: NodeEnum,
    context: &Context<'_>,
) -> Result<Contents, Refusal> {
    let expanded = expand(&mut query, Views::None, context)?;
    if WRITTEN_OUT_MAX <= expanded.views || DEPTH_MAX <= expanded.depth {
        return Err(too_deep(view));
    }
    let analysis = analyse::analyse(&query, context)?;
    let distributed = analysis.distributed().next().is_some();
    let home = analysis.home_relation.is_some() || analysis.functions.home.is_some();
    let apart = distributed
        && !home
        && !analysis.functions.reads_time
        && analysis.time_in_view.is_none()
        && analysis.locked.is_empty()
        && scatter::obstacle(&analysis).is_none();
    let functions = analysis.functions.clone();
    let varies =
        functions.volatile.is_some() || analysis.items.iter().any(|item| item.sample.is_some());
    drop(analysis);
    Ok(Contents {
        distributed,
        home,
        apart,
        varies,
        functions,
        query,
        written_out: expanded.views + 1,
        depth: expanded.depth + 1,
    })
}

fn too_deep(view: &Relation) -> Refusal {
    Refusal::postgres("54001", format!("view \"{}\" is too complex", view.name))
        .with_detail(format!(
            "It reads a distributed table through other views: written out, these are more than \
             {WRITTEN_OUT_MAX} queries, or more than {DEPTH_MAX} inside one another."
        ))
        .with_hint("Let its query name the tables themselves.")
}

/// The table that a write to a view writes, where PostgreSQL translates it by itself (its documentation, CREATE VIEW,
/// "Updatable Views"): the only one in FROM, through views of that kind.
pub(super) fn written_through<'a>(
    view: &'a Arc<Relation>,
    context: &Context<'a>,
) -> Option<&'a Arc<Relation>> {
    let mut relation = view;
    for _ in 0..DEPTH_MAX {
        let RelationKind::View { definition } = &relation.kind else { return Some(relation) };
        let Ok(NodeEnum::SelectStmt(select)) = read_query(relation, definition) else {
            return None;
        };
        let [Node { node: Some(NodeEnum::RangeVar(range)) }] = &select.from_clause[..] else {
            return None;
        };
        relation = context.relation(range)?;
    }
    None
}

/// What is said of a write to a view that contains a distributed table.
pub(super) fn refuse_write(view: &Relation) -> Refusal {
    Refusal::unsupported(
        format!("view \"{}\" cannot be written", view.name),
        "It reads a distributed table, whose rows are on several nodes.",
        "Write to the table itself.",
    )
}

/// The tree with its views over distributed tables written out, if it has any.
pub(super) fn expanded_tree(
    tree: &NodeEnum,
    context: &Context<'_>,
) -> Result<Option<NodeEnum>, Refusal> {
    if context.catalog.is_solo() || !mentions_view(tree, context) {
        return Ok(None);
    }
    let mut tree = tree.clone();
    Ok(expand(&mut tree, Views::None, context)?.is_any().then_some(tree))
}

/// Whether the query mentions a view at all.
pub(super) fn select_mentions_view(select: &SelectStmt, context: &Context<'_>) -> bool {
    let mut found = false;
    walk::read::select(select, &mut |child| {
        found |= match &child.node {
            Some(NodeEnum::RangeVar(range)) => view(range, context).is_some(),
            Some(child) => !found && mentions_view(child, context),
            None => false,
        };
    });
    found
}

/// Whether the tree mentions a view at all.
pub(super) fn mentions_view(node: &NodeEnum, context: &Context<'_>) -> bool {
    let mut found = false;
    walk::read::children(node, &mut |child| {
        found |= match &child.node {
            Some(NodeEnum::RangeVar(range)) => view(range, context).is_some(),
            Some(child) => !found && mentions_view(child, context),
            None => false,
        };
    });
    found
}

/// Which views over distributed tables stay in a tree.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Views {
    /// None of them.
    None,
    /// Those that each node can answer for its own rows.
    Apart,
}

/// What was written out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expanded {
    /// So many views.
    views: usize,
    /// The most of them inside one another.
    depth: usize,
}

impl Expanded {
    pub(super) fn is_any(self) -> bool {
        0 < self.views
    }

    fn add(&mut self, other: Self) {
        self.views += other.views;
        self.depth = self.depth.max(other.depth);
    }
}

/// Replaces each view that contains a distributed table and does not stay by its query, and gives every `RangeVar` and
/// `ColumnRef` of the tree a location of its own. Returns what there was of them.
pub(super) fn expand(
    tree: &mut NodeEnum,
    staying: Views,
    context: &Context<'_>,
) -> Result<Expanded, Refusal> {
    let mut found = Vec::new();
    walk::read::children(tree, &mut |child| add_views(child, context, &mut found));
    look_into_all(&found, context);
    let is_written_out = |relation: &Relation| match &relation.kind {
        RelationKind::View { definition } => contents(relation, definition, context)
            .is_ok_and(|contents| is_written_out(&contents, staying, context)),
        _ => false,
    };
    view_rows::keep_types(tree, &is_written_out, context);
    view_references::leave_schemas_out(tree, context);
    let expanded = replace(tree, staying, context, &mut Vec::new())?;
    if expanded.is_any() {
        let mut next = 0;
        number(tree, &mut next);
    }
    Ok(expanded)
}

fn replace(
    tree: &mut NodeEnum,
    staying: Views,
    context: &Context<'_>,
    ctes: &mut Vec<String>,
) -> Result<Expanded, Refusal> {
    let in_sight = ctes.len();
    let with = match tree {
        NodeEnum::SelectStmt(select) => select.with_clause.as_ref(),
        NodeEnum::UpdateStmt(update) => update.with_clause.as_ref(),
        NodeEnum::DeleteStmt(delete) => delete.with_clause.as_ref(),
        NodeEnum::InsertStmt(insert) => insert.with_clause.as_ref(),
        NodeEnum::MergeStmt(merge) => merge.with_clause.as_ref(),
        _ => None,
    };
    // Without RECURSIVE a CTE's query sees the CTEs before it, not itself.
    if let Some(with) = with.filter(|with| with.recursive) {
        ctes.extend(with.ctes.iter().filter_map(cte_name).map(str::to_owned));
    }
    let mut result = Ok(Expanded::default());
    walk::write::children(tree, &mut |child| {
        let Ok(expanded) = &mut result else { return };
        match replace_child(child, staying, context, ctes) {
            Ok(found) => expanded.add(found),
            Err(refusal) => result = Err(refusal),
        }
        ctes.extend(cte_name(child).map(str::to_owned));
    });
    ctes.truncate(in_sight);
    result
}

fn cte_name(node: &Node) -> Option<&str> {
    match &node.node {
        Some(NodeEnum::CommonTableExpr(cte)) => Some(&cte.ctename),
        _ => None,
    }
}

fn replace_child(
    child: &mut Node,
    staying: Views,
    context: &Context<'_>,
    ctes: &mut Vec<String>,
) -> Result<Expanded, Refusal> {
    let nothing = Ok(Expanded::default());
    if let Some(NodeEnum::RangeTableSample(sample)) = &child.node
        && let Some(NodeEnum::RangeVar(range)) =
            sample.relation.as_ref().and_then(|relation| relation.node.as_ref())
        && !(range.schemaname.is_empty() && ctes.contains(&range.relname))
        && view(range, context).is_some()
    {
        let message = "TABLESAMPLE clause can only be applied to tables and materialized views";
        return Err(Refusal::postgres("0A000", message));
    }
    let Some(NodeEnum::RangeVar(range)) = &child.node else {
        return child.node.as_mut().map_or(nothing, |node| replace(node, staying, context, ctes));
    };
    if range.schemaname.is_empty() && ctes.contains(&range.relname) {
        return nothing;
    }
    let Some((relation, definition)) = view(range, context) else { return nothing };
    let contents = contents(relation, definition, context)?;
    if !is_written_out(&contents, staying, context) {
        return nothing;
    }
    // What it reads is read with its rights, so nothing in it stays by itself.
    let query = contents.query.clone();
    let alias = alias(range, relation);
    child.node = Some(NodeEnum::RangeSubselect(Box::new(RangeSubselect {
        lateral: false,
        subquery: Some(Box::new(Node { node: Some(query) })),
        alias: Some(alias),
    })));
    Ok(Expanded { views: contents.written_out, depth: contents.depth })
}

fn is_written_out(contents: &Contents, staying: Views, context: &Context<'_>) -> bool {
    let stays = staying == Views::Apart && contents.is_apart(context.opaque.is_some());
    contents.distributed && !stays
}

/// The view's name or written alias, with all its columns' names.
fn alias(range: &RangeVar, view: &Relation) -> Alias {
    let written = range.alias.as_ref();
    let name = |(index, column): (usize, &crate::catalog::Column)| {
        written.and_then(|alias| alias.colnames.get(index).cloned()).unwrap_or_else(|| Node {
            node: Some(NodeEnum::String(pg_query::protobuf::String { sval: column.name.clone() })),
        })
    };
    Alias {
        aliasname: written.map_or(&range.relname, |alias| &alias.aliasname).clone(),
        colnames: view.columns.iter().enumerate().map(name).collect(),
    }
}

fn view<'a>(range: &RangeVar, context: &Context<'a>) -> Option<(&'a Relation, &'a str)> {
    let relation = context.relation(range)?;
    match &relation.kind {
        RelationKind::View { definition } => Some((relation, definition)),
        _ => None,
    }
}

/// The query of a view as it is written.
pub(super) fn read_query(view: &Relation, definition: &str) -> Result<NodeEnum, Refusal> {
    let unreadable = |why: String| {
        Refusal::unsupported(
            format!("view \"{}\" cannot be read", view.name),
            why,
            "Use the view's query in place of the view.",
        )
    };
    let text = definition.trim_end().trim_end_matches(';');
    let parsed =
        crate::statement::grammar::parse(text).map_err(|error| unreadable(error.to_string()))?;
    let statement = parsed.protobuf.stmts.into_iter().next().and_then(|raw| raw.stmt);
    statement
        .and_then(|node| node.node)
        .ok_or_else(|| unreadable("Its definition is empty.".to_owned()))
}

fn number(tree: &mut NodeEnum, next: &mut i32) {
    walk::write::children(tree, &mut |child| {
        match &mut child.node {
            Some(NodeEnum::RangeVar(range)) => {
                range.location = *next;
                *next += 1;
            }
            Some(NodeEnum::ColumnRef(reference)) => {
                reference.location = *next;
                *next += 1;
            }
            Some(node) => number(node, next),
            None => (),
        };
    });
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::fixture::shop;
    use super::super::plan;
    use super::*;
    use crate::catalog::{Catalog, Column, Placement};

    /// The shop, and views `v0` … that read one another as `of` says, the first one `table`.
    fn chain(length: usize, table: &str, of: impl Fn(&str) -> String) -> Catalog {
        let mut catalog = shop(3);
        let public = catalog.relations.get_mut("public").expect("the shop's schema");
        let columns: Vec<Column> = public["big_orders"].columns.clone();
        for i in 0..length {
            let below = if i == 0 { table.to_owned() } else { format!("public.v{}", i - 1) };
            let view = Relation {
                schema: "public".to_owned(),
                name: format!("v{i}"),
                oid: 30_000 + u32::try_from(i).expect("few"),
                kind: RelationKind::View { definition: of(&below) },
                placement: Placement::Home,
                columns: columns.clone(),
                primary_key: Vec::new(),
                has_triggers: false,
                row_security: false,
                returned_by: None,
                kept: Vec::new(),
                referred: Vec::new(),
                computed_keys: Vec::new(),
            };
            public.insert(view.name.clone(), Arc::new(view));
        }
        catalog
    }

    /// What becomes of it: "planned", or the SQLSTATE of the refusal.
    fn outcome(catalog: &Catalog, sql: &str) -> &'static str {
        let scope = NameScope::public();
        let context = Context::new(catalog, &scope);
        let statement = &crate::statement::parse(sql).expect("it is SQL")[0];
        plan(statement, &context).map_or_else(|refusal| refusal.sqlstate, |_| "planned")
    }

    fn twice(below: &str) -> String {
        format!("SELECT a.id FROM {below} a JOIN {below} b ON a.id = b.id")
    }

    #[test]
    fn views_that_read_others_twice_are_looked_into_once() {
        let begun = Instant::now();
        for table in ["public.home", "public.rates", "public.orders"] {
            let catalog = chain(40, table, twice);
            // PostgreSQL itself would write out 2^40 of them.
            let expected = if table == "public.orders" { "54001" } else { "planned" };
            for sql in ["SELECT * FROM v39", "SELECT * FROM v39, orders", "DELETE FROM v39"] {
                let outcome = outcome(&catalog, sql);
                assert!([expected, "0A000"].contains(&outcome), "{table}: {sql}: {outcome}");
            }
            for sql in ["SELECT * FROM v4", "CREATE VIEW w AS SELECT * FROM v39"] {
                assert_eq!(outcome(&catalog, sql), "planned", "{table}: {sql}");
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }

    #[test]
    fn views_over_one_another_end() {
        let once = |below: &str| format!("SELECT x.id FROM {below} x");
        for table in ["public.home", "public.rates", "public.orders"] {
            let catalog = chain(400, table, once);
            assert_eq!(outcome(&catalog, "SELECT * FROM v60"), "planned", "{table}");
            let expected = if table == "public.orders" { "54001" } else { "planned" };
            assert_eq!(outcome(&catalog, "SELECT * FROM v399"), expected, "{table}");
        }
    }

    #[test]
    fn a_view_that_reads_itself_is_refused_as_postgresql_does() {
        let catalog = chain(3, "public.v2", twice);
        for sql in ["SELECT * FROM v0", "SELECT * FROM v2 JOIN orders USING (id)", "DELETE FROM v1"]
        {
            assert_eq!(outcome(&catalog, sql), "42P17", "{sql}");
        }
    }
}
