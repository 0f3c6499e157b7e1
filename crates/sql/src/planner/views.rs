//! Views that contain distributed tables, written out as subqueries.
//!
//! Owns: what a view contains, and its expansion in a tree.
//!
//! A view has the rights and the policies of its owner, its query written out those of whoever
//! asks. So where rows are gathered, a view stays one if each node can say its own part of it.
//!
//! Never: touches a view over replicated tables only, which every node can answer by itself.
//! Start reading at [`expand`].

use pg_query::NodeEnum;
use pg_query::protobuf::{Alias, Node, RangeSubselect, RangeVar, SelectStmt};

use super::analyse::analyse;
use super::functions::FunctionUse;
use super::{Context, scatter, walk};
use crate::catalog::{NameScope, Relation, RelationKind};
use crate::refusal::Refusal;

/// What a view reads.
#[derive(Debug)]
pub(super) struct Contents {
    /// A distributed table, perhaps through other views.
    pub(super) distributed: bool,
    /// Something that only node 1 has.
    pub(super) home: bool,
    /// Its rows are those that each node finds for itself, put together.
    pub(super) apart: bool,
    pub(super) functions: FunctionUse,
}

/// What the view reads, other views looked through.
pub(super) fn contents(
    view: &Relation,
    definition: &str,
    context: &Context<'_>,
) -> Result<Contents, Refusal> {
    let mut tree = parse(view, definition)?;
    let scope = NameScope::default();
    // What the statement's own code does is not the view's doing.
    let is_opaque = context.opaque.is_some();
    let context = Context { scope: &scope, opaque: None, ..*context };
    expand(&mut tree, Views::None, &context)?;
    let analysis = analyse(&tree, &context)?;
    let distributed = analysis.distributed().next().is_some();
    let home = analysis.home_relation.is_some() || analysis.functions.home.is_some();
    let apart = distributed
        && !home
        && !analysis.functions.reads_time
        && !is_opaque
        && analysis.time_in_view.is_none()
        && analysis.locked.is_empty()
        && scatter::obstacle(&analysis).is_none();
    Ok(Contents { distributed, home, apart, functions: analysis.functions })
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
    Ok(expand(&mut tree, Views::None, context)?.then_some(tree))
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

/// Replaces each view that contains a distributed table and does not stay by its query, and gives every `RangeVar` and
/// `ColumnRef` of the tree a location of its own. Returns whether there was one.
pub(super) fn expand(
    tree: &mut NodeEnum,
    staying: Views,
    context: &Context<'_>,
) -> Result<bool, Refusal> {
    let expanded = replace(tree, staying, context, &mut Vec::new())?;
    if expanded {
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
) -> Result<bool, Refusal> {
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
    let mut result = Ok(false);
    walk::write::children(tree, &mut |child| {
        let Ok(expanded) = &mut result else { return };
        match replace_child(child, staying, context, ctes) {
            Ok(found) => *expanded |= found,
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
) -> Result<bool, Refusal> {
    let Some(NodeEnum::RangeVar(range)) = &child.node else {
        return child.node.as_mut().map_or(Ok(false), |node| replace(node, staying, context, ctes));
    };
    if range.schemaname.is_empty() && ctes.contains(&range.relname) {
        return Ok(false);
    }
    let Some((relation, definition)) = view(range, context) else { return Ok(false) };
    let contents = contents(relation, definition, context)?;
    if !contents.distributed || (staying == Views::Apart && contents.apart) {
        return Ok(false);
    }
    let mut query = parse(relation, definition)?;
    let scope = NameScope::default();
    let inner = Context { scope: &scope, ..*context };
    // What it reads is read with its rights, so nothing in it stays by itself.
    replace(&mut query, Views::None, &inner, &mut Vec::new())?;
    let alias = alias(range, relation);
    child.node = Some(NodeEnum::RangeSubselect(Box::new(RangeSubselect {
        lateral: false,
        subquery: Some(Box::new(Node { node: Some(query) })),
        alias: Some(alias),
    })));
    Ok(true)
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

fn parse(view: &Relation, definition: &str) -> Result<NodeEnum, Refusal> {
    let unreadable = |why: String| {
        Refusal::unsupported(
            format!("view \"{}\" cannot be read", view.name),
            why,
            "Use the view's query in place of the view.",
        )
    };
    let parsed = pg_query::parse(definition.trim_end().trim_end_matches(';'), 0)
        .map_err(|error| unreadable(error.to_string()))?;
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
