//! The target columns of an INSERT.
//!
//! Owns: the column list, written or implied. Never: looks at values.

use std::collections::HashSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{InsertStmt, List, Node, ResTarget, SelectStmt};

use super::ctes::with_ctes;
use crate::catalog::Relation;
use crate::planner::analysis::{Analysis, Query, Source};
use crate::planner::context::Context;
use crate::planner::functions::means_built_in;
use crate::planner::syntax::{is_star_output, name_of};
use crate::planner::views;
use crate::refusal::Refusal;

/// Which columns receive the source's values.
pub(super) struct Target {
    /// Indexes in [`Relation::columns`], in the order of the source's columns.
    pub columns: Vec<usize>,
    /// Some target is a part of a column (`a[1]`, `a.b`).
    pub parts: bool,
}

impl Target {
    /// Reads the list; without one the first columns are meant, as many as the source has.
    ///
    /// Errors: as PostgreSQL words them; 0A000 when the number of the source's columns is not
    /// known.
    pub fn of(
        insert: &InsertStmt,
        relation: &Relation,
        context: &Context<'_>,
    ) -> Result<Self, Refusal> {
        let width = match with_ctes(insert)? {
            Some(select) => source_width(&select, context)?,
            None => None,
        };
        if insert.cols.is_empty() {
            let width = width.ok_or_else(|| {
                Refusal::unsupported(
                    "this INSERT needs a column list",
                    "The number of columns that its query yields is not known to the planner.",
                    "Name the target columns: INSERT INTO table (columns) SELECT ….",
                )
            })?;
            if width > relation.columns.len() {
                let message = "INSERT has more expressions than target columns";
                return Err(Refusal::postgres("42601", message));
            }
            return Ok(Self { columns: (0..width).collect(), parts: false });
        }
        let mut columns = Vec::with_capacity(insert.cols.len());
        let mut parts = false;
        let mut seen = HashSet::new();
        for target in &insert.cols {
            let Some(NodeEnum::ResTarget(target)) = &target.node else { continue };
            parts |= !target.indirection.is_empty();
            let name = &target.name;
            let column = relation.column(name).ok_or_else(|| {
                let message =
                    format!("column \"{name}\" of relation \"{}\" does not exist", relation.name);
                Refusal::postgres("42703", message)
            })?;
            if !seen.insert(column) && target.indirection.is_empty() {
                let message = format!("column \"{name}\" specified more than once");
                return Err(Refusal::postgres("42701", message));
            }
            columns.push(column);
        }
        match width {
            Some(width) if width > columns.len() => {
                Err(Refusal::postgres("42601", "INSERT has more expressions than target columns"))
            }
            Some(width) if width < columns.len() => {
                Err(Refusal::postgres("42601", "INSERT has more target columns than expressions"))
            }
            _ => Ok(Self { columns, parts }),
        }
    }
}

/// How many columns the source has, if that is known.
fn source_width(select: &SelectStmt, context: &Context<'_>) -> Result<Option<usize>, Refusal> {
    let mut rows = select.values_lists.iter().filter_map(row_items).map(<[Node]>::len);
    if let Some(width) = rows.next() {
        if rows.any(|other| other != width) {
            let message = "VALUES lists must all be the same length";
            return Err(Refusal::postgres("42601", message));
        }
        return Ok(Some(width));
    }
    let wrapper = NodeEnum::SelectStmt(Box::new(around(select)?));
    let expanded = views::expanded_tree(&wrapper, context)?;
    let analysis = views::analyse(expanded.as_ref().unwrap_or(&wrapper), context)?;
    let width = source_of(&analysis).and_then(|query| Some(query.outputs.as_ref()?.len()));
    Ok(width.or_else(|| width_of_call(select, context)))
}

/// Built-in functions that return one column, whatever they are given.
const OF_ONE_COLUMN: [&str; 13] = [
    "generate_series",
    "generate_subscripts",
    "json_array_elements",
    "json_array_elements_text",
    "json_object_keys",
    "jsonb_array_elements",
    "jsonb_array_elements_text",
    "jsonb_object_keys",
    "jsonb_path_query",
    "regexp_matches",
    "regexp_split_to_table",
    "string_to_table",
    "unnest",
];

/// How many columns `SELECT * FROM f(…)` gives, if that can be said without asking PostgreSQL.
fn width_of_call(select: &SelectStmt, context: &Context<'_>) -> Option<usize> {
    let ([target], [from]) = (&select.target_list[..], &select.from_clause[..]) else {
        return None;
    };
    let Some(NodeEnum::RangeFunction(of)) = &from.node else { return None };
    if !is_star_output(target) {
        return None;
    }
    let ordinality = usize::from(of.ordinality);
    if !of.coldeflist.is_empty() {
        return Some(of.coldeflist.len() + ordinality);
    }
    let [function] = &of.functions[..] else { return None };
    let Some(NodeEnum::List(List { items })) = &function.node else { return None };
    let Some(NodeEnum::FuncCall(call)) = &items.first()?.node else { return None };
    let (schema, name) = name_of(call);
    // What is in arrays of users' types may have columns of its own.
    let is_of_one = OF_ONE_COLUMN.contains(&name)
        && (name != "unnest" || matches!(&call.args[..], [array] if is_plain_array(array)));
    // Another function of the name may be meant, by its arguments.
    let is_alone = schema.is_some()
        || context.catalog.functions.values().all(|functions| !functions.contains_key(name));
    (is_of_one && is_alone && means_built_in(schema, name, context)).then_some(1 + ordinality)
}

/// Whether it is an array of constants, which are of a built-in type.
fn is_plain_array(array: &Node) -> bool {
    match &array.node {
        Some(NodeEnum::AArrayExpr(array)) => {
            array.elements.iter().all(|it| matches!(it.node, Some(NodeEnum::AConst(_))))
        }
        _ => false,
    }
}

/// `SELECT 1 FROM (source) AS s`: a query's outputs are computed only for a query that reads them.
pub(super) fn around(select: &SelectStmt) -> Result<SelectStmt, Refusal> {
    let source = NodeEnum::SelectStmt(Box::new(select.clone()));
    match crate::statement::parse("SELECT 1 FROM (SELECT 1) AS s")?.pop().map(|it| it.tree) {
        Some(NodeEnum::SelectStmt(mut wrapper)) => {
            put_source(&mut wrapper, source);
            Ok(*wrapper)
        }
        _ => Err(Refusal::postgres("XX000", "the source of an INSERT could not be wrapped")),
    }
}

/// Puts `source` in place of the subquery that a wrapper selects from.
pub(super) fn put_source(wrapper: &mut SelectStmt, source: NodeEnum) {
    if let Some(Node { node: Some(NodeEnum::RangeSubselect(subselect)) }) =
        wrapper.from_clause.first_mut()
    {
        subselect.subquery = Some(Box::new(Node { node: Some(source) }));
    }
}

/// The source's own query level in the analysis of what [`around`] made.
pub(super) fn source_of<'s, 'a>(analysis: &'s Analysis<'a>) -> Option<&'s Query<'a>> {
    let item = *analysis.queries.first()?.items.first()?;
    match analysis.items.get(item)?.source {
        Source::Query(query) => analysis.queries.get(query),
        _ => None,
    }
}

/// The expressions of one VALUES row.
pub(super) fn row_items(row: &Node) -> Option<&[Node]> {
    match &row.node {
        Some(NodeEnum::List(List { items })) => Some(items),
        _ => None,
    }
}

/// An entry of a column list.
pub(super) fn column_node(name: &str) -> Node {
    let target = ResTarget { name: name.to_owned(), ..ResTarget::default() };
    Node { node: Some(NodeEnum::ResTarget(Box::new(target))) }
}
