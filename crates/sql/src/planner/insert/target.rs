//! The target columns of an INSERT.
//!
//! Owns: the column list, written or implied. Never: looks at values.

use std::collections::HashSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{InsertStmt, List, Node, ResTarget, SelectStmt};

use super::super::{Context, analyse};
use crate::catalog::Relation;
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
        select: &SelectStmt,
        relation: &Relation,
        context: &Context<'_>,
    ) -> Result<Self, Refusal> {
        let width = source_width(select, context)?;
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
    let analysis = analyse::analyse_select(select, context)?;
    Ok(analysis.queries.first().and_then(|query| Some(query.outputs.as_ref()?.len())))
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
