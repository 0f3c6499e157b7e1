//! INSERT whose rows are first computed by a query, then placed.
//!
//! Owns: that query, and the INSERT that each node runs over its rows.
//! Never: decides how the query is run; `query.rs` does.
//! Start reading at [`plan`].
//!
//! Values are cast to their column's type *without* its modifier: the rows travel as the table's
//! composite type, whose input function applies length and precision with the rules of assignment
//! (a value too long is an error), which an explicit cast would not (it cuts).

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{InsertStmt, List, Node, OverridingKind, SelectStmt};

use super::clauses;
use super::ctes::{merge_with, with_ctes};
use super::inserting::Inserting;
use super::target::{column_node, put_source, row_items};
use crate::catalog::{Column, Identity, Placement, quote_identifier};
use crate::plan::{DataPlan, InsertSource, Plan, Planned, RunOn, Template};
use crate::planner::gaps;
use crate::planner::gather::{travelling, value_text};
use crate::planner::sql_text::{deparse, parse_expression};
use crate::planner::stored_types::cast_to_store;
use crate::planner::{gather, query};
use crate::refusal::Refusal;

/// Plans the query and the INSERT over its rows.
pub(super) fn plan(select: &SelectStmt, inserting: &Inserting<'_>) -> Result<Planned, Refusal> {
    if inserting.target.parts {
        return Err(Refusal::unsupported(
            "INSERT into a part of a column is not supported here",
            "Its rows must be computed before they are placed.",
            "Give the whole column's value.",
        ));
    }
    let (columns, tree) = if select.values_lists.is_empty() {
        from_query(inserting)?
    } else {
        from_values(select, inserting)?
    };
    // Pieces of several texts are in the tree; reading its text again gives every node a location
    // of its own, by which the planner tells them apart.
    let query = deparse(&NodeEnum::SelectStmt(Box::new(tree)))?;
    let again = crate::statement::parse(&query)?.pop();
    let Some(NodeEnum::SelectStmt(tree)) = again.map(|statement| statement.tree) else {
        return Err(Refusal::postgres("XX000", "the source of an INSERT could not be read again"));
    };
    let mut plan = Box::new(query::plan_select(&tree, inserting.context)?);
    read_on_one_node(&mut plan, &tree, inserting)?;
    let key = inserting.placement().key_columns().into_iter();
    let key = key.map(|key| columns.iter().position(|column| *column == key.column)).collect();
    let why = match inserting.placement() {
        Placement::Replicated => "every value is computed once, then every node stores the rows",
        _ if !inserting.relation.computed_keys.is_empty() => {
            "the rows are computed first, then their keys on node 1, and each goes to its node"
        }
        _ => "the rows are computed first, then each goes to its node",
    };
    let insert = template(&columns, inserting)?;
    let source = InsertSource::Select { query, plan, columns, key, insert };
    Ok(Planned::new(inserting.plan_of(source), why))
}

/// The executor reads a source's rows from the nodes as they are or gathered on one node; a query
/// that every node would get with one time is gathered too.
fn read_on_one_node(
    planned: &mut Planned,
    tree: &SelectStmt,
    inserting: &Inserting<'_>,
) -> Result<(), Refusal> {
    match &mut planned.plan {
        Plan::Data(DataPlan::One { otherwise: Some(otherwise), .. }) => {
            read_on_one_node(otherwise, tree, inserting)
        }
        Plan::Data(DataPlan::Gather(gather)) if gather.run_on == RunOn::EachNode => {
            *gather = query::gather_query(tree, "", "", inserting.context)?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The column `column` of the target.
fn column<'a>(inserting: &'a Inserting<'_>, column: usize) -> &'a Column {
    &inserting.relation.columns[column]
}

/// Whether the client's value for a column counts, or its default is used regardless.
///
/// Errors: 428C9 for a value that PostgreSQL refuses.
fn takes_value(of: &Column, insert: &InsertStmt) -> Result<bool, Refusal> {
    let refused = |detail: String| {
        let message = format!("cannot insert a non-DEFAULT value into column \"{}\"", of.name);
        Refusal::postgres("428C9", message).with_detail(detail)
    };
    if of.generated {
        return Err(refused(format!("Column \"{}\" is a generated column.", of.name)));
    }
    match (of.identity, insert.r#override()) {
        (Some(_), OverridingKind::OverridingUserValue) => Ok(false),
        (Some(Identity::Always), OverridingKind::OverridingNotSet | OverridingKind::Undefined) => {
            let name = &of.name;
            let detail =
                format!("Column \"{name}\" is an identity column defined as GENERATED ALWAYS.");
            Err(refused(detail).with_hint("Use OVERRIDING SYSTEM VALUE to override."))
        }
        _ => Ok(true),
    }
}

/// `CAST(expression AS type of the column)`, as text that travels.
fn cast(value: Node, of: &Column) -> Result<Node, Refusal> {
    let mut node = read_expression(&travelling("NULL", of))?;
    let cast = match &mut node.node {
        Some(NodeEnum::FuncCall(call)) => call.args.first_mut().and_then(|it| it.node.as_mut()),
        other => other.as_mut(),
    };
    if let Some(NodeEnum::TypeCast(cast)) = cast {
        cast.arg = Some(Box::new(value));
    }
    Ok(node)
}

/// The column's default, cast to its type.
fn default(inserting: &Inserting<'_>, index: usize) -> Result<Node, Refusal> {
    let of = column(inserting, index);
    cast(read_expression(&inserting.evaluation.default_sql(index)?)?, of)
}

fn read_expression(text: &str) -> Result<Node, Refusal> {
    parse_expression(text).ok_or_else(|| {
        Refusal::postgres("XX000", format!("the expression {text} could not be read"))
    })
}

/// VALUES: the same rows, every value cast, defaults in place of DEFAULT.
fn from_values(
    select: &SelectStmt,
    inserting: &Inserting<'_>,
) -> Result<(Vec<usize>, SelectStmt), Refusal> {
    let rows: Vec<&[Node]> = select.values_lists.iter().filter_map(row_items).collect();
    let is_default = |node: &Node| matches!(node.node, Some(NodeEnum::SetToDefault(_)));
    // For each column of the query: the column of the table, and its position in the rows.
    let mut outputs: Vec<(usize, Option<usize>)> = Vec::new();
    for (position, index) in inserting.target.columns.iter().copied().enumerate() {
        let all_default = rows.iter().all(|row| is_default(&row[position]));
        let given = !all_default && takes_value(column(inserting, index), inserting.insert)?;
        if given {
            outputs.push((index, Some(position)));
        } else if inserting.is_computed(index) {
            outputs.push((index, None));
        }
        // Else its node fills it in, as if it had been left out.
    }
    outputs.extend(inserting.omitted_in_rows().map(|index| (index, None)));
    if outputs.is_empty() {
        let first = inserting.relation.columns.iter().position(|column| !column.generated);
        outputs.extend(first.map(|index| (index, None)));
    }
    let mut tree = select.clone();
    tree.values_lists = rows
        .iter()
        .map(|row| {
            let items = outputs
                .iter()
                .map(|(index, position)| match position.map(|position| &row[position]) {
                    Some(value) if !is_default(value) => {
                        cast(value.clone(), column(inserting, *index))
                    }
                    _ => default(inserting, *index),
                })
                .collect::<Result<Vec<_>, Refusal>>()?;
            Ok(Node { node: Some(NodeEnum::List(List { items })) })
        })
        .collect::<Result<Vec<_>, Refusal>>()?;
    merge_with(inserting.insert.with_clause.as_ref(), &mut tree)?;
    Ok((outputs.into_iter().map(|(index, _)| index).collect(), tree))
}

/// A query: wrapped, so that its columns can be cast and defaults be added to each row.
fn from_query(inserting: &Inserting<'_>) -> Result<(Vec<usize>, SelectStmt), Refusal> {
    let Some(source) = with_ctes(inserting.insert)? else {
        return Err(Refusal::postgres("XX000", "an INSERT without a source has no query"));
    };
    let source = inserting.with_time_literals(&source);
    let mut columns = Vec::new();
    let mut outputs = Vec::new();
    let mut omitted: BTreeSet<usize> = inserting.omitted_in_rows().collect();
    for (position, index) in inserting.target.columns.iter().copied().enumerate() {
        if takes_value(column(inserting, index), inserting.insert)? {
            columns.push(index);
            let of = column(inserting, index);
            let value = cast_to_store(&format!("s.c{}", position + 1), of, inserting.context);
            outputs.push(value_text(&value, of.type_oid));
        } else if inserting.is_computed(index) {
            omitted.insert(index);
        }
    }
    if columns.is_empty() && omitted.is_empty() {
        omitted.extend(inserting.relation.columns.iter().position(|column| !column.generated));
    }
    for index in omitted {
        columns.push(index);
        let default = inserting.evaluation.default_sql(index)?;
        outputs.push(travelling(&default, column(inserting, index)));
    }
    let names: Vec<String> =
        (1..=inserting.target.columns.len()).map(|position| format!("c{position}")).collect();
    let names = match names.is_empty() {
        true => String::new(),
        false => format!("({})", names.join(", ")),
    };
    let text = format!("SELECT {} FROM (SELECT 1) AS s {names}", outputs.join(", "));
    let wrapper = crate::statement::parse(&text)?.pop().map(|statement| statement.tree);
    let Some(NodeEnum::SelectStmt(mut wrapper)) = wrapper else {
        return Err(Refusal::postgres("XX000", "the source of an INSERT could not be wrapped"));
    };
    put_source(&mut wrapper, NodeEnum::SelectStmt(Box::new(source)));
    Ok((columns, *wrapper))
}

/// The INSERT per node: the client's statement, its source replaced by the collected rows.
fn template(columns: &[usize], inserting: &Inserting<'_>) -> Result<Template, Refusal> {
    let relation = inserting.relation;
    let names: Vec<&str> =
        columns.iter().map(|index| relation.columns[*index].name.as_str()).collect();
    let outputs: Vec<String> =
        names.iter().map(|name| format!("u.{}", quote_identifier(name))).collect();
    let rows = format!(
        "SELECT {} FROM {} AS u",
        outputs.join(", "),
        gather::rows_of_literal(relation, &gaps::gap(0))
    );
    let mut insert = inserting.insert.clone();
    insert.cols = names.iter().map(|name| column_node(name)).collect();
    insert.with_clause = None;
    insert.select_stmt = None;
    gaps::refuse_marked(&NodeEnum::InsertStmt(Box::new(insert.clone())))?;
    insert.select_stmt =
        crate::statement::parse(&rows)?.pop().map(|rows| Box::new(Node { node: Some(rows.tree) }));
    let fills_always =
        columns.iter().any(|index| relation.columns[*index].identity == Some(Identity::Always));
    let overriding = if fills_always {
        OverridingKind::OverridingSystemValue
    } else {
        OverridingKind::OverridingNotSet
    };
    insert.set_override(overriding);
    clauses::freeze_time(&mut insert, relation, inserting.context)?;
    let text = deparse(&NodeEnum::InsertStmt(Box::new(insert)))?;
    gaps::cut(&text)
}
