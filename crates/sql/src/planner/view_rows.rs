//! Whole rows of views that are written out.
//!
//! Owns: that they are of the view's type still: rows of the query in its place are of none, so each is cast, to a type that
//! all nodes have which have the view.
//! Never: writes a view out (`views.rs` does), nor changes what only looks at a row's columns, or is the same for a row
//! of any type.
//! Start reading at [`keep_types`].

use std::collections::HashMap;
use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{ColumnRef, FuncCall, JoinType, Node, ResTarget, SelectStmt};

use super::analyse;
use super::analysis::Source;
use super::context::Context;
use super::output_names;
use super::sql_text::parse_expression;
use super::syntax::{OWN_CAST, contains, string};
use crate::catalog::{Relation, RelationKind};
use crate::code::Code;
use crate::walk;

/// Functions of PostgreSQL's for which a row's type does not matter.
const FOR_ANY_ROW: [&str; 8] = [
    "count",
    "json_agg",
    "jsonb_agg",
    "num_nonnulls",
    "num_nulls",
    "row_to_json",
    "to_json",
    "to_jsonb",
];

/// Casts whole rows of those views that `is_written_out` says. Locations are as the parser gives them.
pub(super) fn keep_types(
    tree: &mut NodeEnum,
    is_written_out: &dyn Fn(&Relation) -> bool,
    context: &Context<'_>,
) {
    if !may_have_rows(tree, context) {
        return;
    }
    // What it means is known as long as the views are there. An error is one of the statement's, told later.
    let context = Context { views_stay: true, ..*context };
    let rows = {
        let Ok(analysis) = analyse::analyse(tree, &context) else { return };
        let whole = analysis.uses.iter().filter(|it| it.column.is_none());
        let of_views = whole.filter_map(|it| match analysis.items[it.item].source {
            Source::Table { relation, .. } if is_written_out(relation) => {
                Some((it.location, relation.clone()))
            }
            _ => None,
        });
        of_views.collect::<HashMap<i32, Arc<Relation>>>()
    };
    if rows.is_empty() {
        return;
    }
    let is_outer = |of: &NodeEnum| {
        matches!(of, NodeEnum::JoinExpr(join)
            if matches!(join.jointype(), JoinType::JoinLeft | JoinType::JoinRight | JoinType::JoinFull))
    };
    let (may_be_null, named) = (contains(tree, &is_outer), output_aliases(tree));
    Casting { code: &context.catalog.code, rows, may_be_null, named }.cast(tree);
}

/// Whether some reference is called as a view is, or as something called otherwise may be.
fn may_have_rows(tree: &NodeEnum, context: &Context<'_>) -> bool {
    let mut names = Vec::new();
    add_views(tree, context, &mut names);
    contains(tree, &|of| match of {
        NodeEnum::ColumnRef(reference) => {
            let is_star = reference.fields.last().is_some_and(is_star);
            let name = match &reference.fields[..] {
                [name] | [name, _] if is_star == (reference.fields.len() == 2) => string(name),
                _ => None,
            };
            name.is_some_and(|name| names.iter().any(|it| it == name))
        }
        _ => false,
    })
}

fn add_views(tree: &NodeEnum, context: &Context<'_>, names: &mut Vec<String>) {
    if let NodeEnum::RangeVar(range) = tree
        && context.relation(range).is_some_and(|it| matches!(it.kind, RelationKind::View { .. }))
    {
        names.push(range.alias.as_ref().map_or(&range.relname, |of| &of.aliasname).clone());
    }
    walk::read::children(tree, &mut |child| {
        if let Some(child) = &child.node {
            add_views(child, context, names);
        }
    });
}

fn is_star(node: &Node) -> bool {
    matches!(node.node, Some(NodeEnum::AStar(_)))
}

/// What outputs are called by AS, anywhere: ORDER BY may mean one of these.
fn output_aliases(tree: &NodeEnum) -> Vec<String> {
    let mut names = Vec::new();
    add_aliases(tree, &mut names);
    names
}

fn add_aliases(tree: &NodeEnum, names: &mut Vec<String>) {
    if let NodeEnum::ResTarget(target) = tree {
        names.push(target.name.clone());
    }
    walk::read::children(tree, &mut |child| {
        if let Some(child) = &child.node {
            add_aliases(child, names);
        }
    });
}

struct Casting<'c> {
    code: &'c Code,
    /// By the location of the reference.
    rows: HashMap<i32, Arc<Relation>>,
    /// Whether a row may be that of nothing, of an outer join.
    may_be_null: bool,
    /// Outputs' names that were written.
    named: Vec<String>,
}

impl Casting<'_> {
    fn cast(&self, tree: &mut NodeEnum) {
        match tree {
            // These take it apart, or do not ask for its type.
            NodeEnum::AIndirection(_) | NodeEnum::NullTest(_) => return self.below(tree, false),
            NodeEnum::FuncCall(call) if self.is_for_any_row(call) => {
                return self.below(tree, false);
            }
            NodeEnum::ResTarget(target) => return self.target(target),
            NodeEnum::SortBy(_) => return self.below(tree, true),
            // `ROW(v.*)` and `VALUES (v.*)` are of its columns.
            NodeEnum::RowExpr(row) => return self.each(row.args.iter_mut(), false),
            NodeEnum::List(list) => return self.each(list.items.iter_mut(), false),
            NodeEnum::SelectStmt(select) => return self.select(select),
            _ => (),
        }
        walk::write::children(tree, &mut |child| self.put(child, true));
    }

    fn select(&self, select: &mut SelectStmt) {
        // What these name may be an output.
        let mut grouped = std::mem::take(&mut select.group_clause);
        let mut distinct = std::mem::take(&mut select.distinct_clause);
        walk::write::select(select, &mut |child| self.put(child, true));
        for node in grouped.iter_mut().chain(&mut distinct) {
            if !matches!(&node.node, Some(NodeEnum::ColumnRef(of)) if self.is_output(of)) {
                self.put(node, true);
            }
        }
        (select.group_clause, select.distinct_clause) = (grouped, distinct);
    }

    /// What is below, of which references are left as they are.
    fn below(&self, tree: &mut NodeEnum, casts_unless_output: bool) {
        walk::write::children(tree, &mut |child| match &child.node {
            Some(NodeEnum::ColumnRef(of)) if !casts_unless_output || self.is_output(of) => (),
            _ => self.put(child, true),
        });
    }

    fn each<'n>(&self, nodes: impl Iterator<Item = &'n mut Node>, casts_stars: bool) {
        nodes.for_each(|node| self.put(node, casts_stars));
    }

    fn target(&self, target: &mut ResTarget) {
        target.indirection.iter_mut().for_each(|node| self.put(node, false));
        let Some(value) = target.val.as_deref_mut() else { return };
        let name = value.node.as_ref().map(output_names::figure).unwrap_or_default().to_owned();
        let is_reference = matches!(&value.node, Some(NodeEnum::ColumnRef(_)));
        // `v.*` is its columns there.
        self.put(value, false);
        let is_cast = is_reference && !matches!(&value.node, Some(NodeEnum::ColumnRef(_)));
        if is_cast && target.name.is_empty() {
            target.name = name;
        }
    }

    fn is_for_any_row(&self, call: &FuncCall) -> bool {
        let name = match &call.funcname[..] {
            [name] => string(name).filter(|name| !self.code.has_function(name)),
            [schema, name] if string(schema) == Some("pg_catalog") => string(name),
            _ => None,
        };
        name.is_some_and(|name| FOR_ANY_ROW.contains(&name))
    }

    fn is_output(&self, reference: &ColumnRef) -> bool {
        let [name] = &reference.fields[..] else { return false };
        string(name).is_some_and(|name| self.named.iter().any(|it| it == name))
    }

    fn put(&self, node: &mut Node, casts_stars: bool) {
        let Some(tree) = &mut node.node else { return };
        let NodeEnum::ColumnRef(reference) = tree else { return self.cast(tree) };
        let Some(view) = self.rows.get(&reference.location) else { return };
        if (casts_stars || !reference.fields.last().is_some_and(is_star))
            && let Some(cast) = self.of_type(reference, view)
        {
            *tree = cast;
        }
    }

    /// `row::view`, of a row of nothing: nothing.
    fn of_type(&self, row: &ColumnRef, view: &Relation) -> Option<NodeEnum> {
        let cast = format!("tutti_row::{}", view.sql_name());
        let mut cast = parse_expression(&match self.may_be_null {
            true => format!(
                "CASE WHEN pg_catalog.num_nulls(tutti_row) OPERATOR(pg_catalog.=) 0 THEN {cast} END"
            ),
            false => cast,
        })?;
        put_row(&mut cast, row);
        cast.node
    }
}

/// Puts it where `tutti_row` stands.
fn put_row(node: &mut Node, row: &ColumnRef) {
    match &mut node.node {
        Some(NodeEnum::ColumnRef(reference)) => reference.clone_from(row),
        Some(tree) => {
            if let NodeEnum::TypeCast(cast) = tree {
                cast.location = OWN_CAST;
            }
            walk::write::children(tree, &mut |child| put_row(child, row));
        }
        None => (),
    }
}
