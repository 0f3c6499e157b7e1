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
    Ok(source_of(&analysis).and_then(|query| Some(query.outputs.as_ref()?.len())))
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
