//! ORDER BY … LIMIT over one table: the first rows of all are among the first rows of each node.
//!
//! Owns: when that is so, and how each node is asked for its first rows. Never: says which are the first of all; the
//! final statement orders and counts what was collected once more.
//! Start reading at [`of`].

use pg_query::NodeEnum;
use pg_query::protobuf::{LimitOption, Node, SelectStmt, SetOperation, a_const};

use super::alike::Alike;
use super::analysis::{Analysis, ItemId};
use super::context::Context;
use super::own_rows::{concerns_only, split, unqualify};
use super::sql_text::{deparse, deparse_expression};
use super::syntax::{contains, is_any_star, is_star_of_value, string};
use crate::refusal::Refusal;
use crate::walk;

/// ` ORDER BY … LIMIT …` by which each node gives enough of its rows, if the statement asks for the first rows of one
/// distributed table and all its conditions are met where these are.
pub(super) fn of(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Option<String>, Refusal> {
    let NodeEnum::SelectStmt(select) = tree else { return Ok(None) };
    let ([item], [level]) = (&analysis.items[..], &analysis.queries[..]) else { return Ok(None) };
    let reduces = level.has_distinct
        || level.has_windows
        || level.has_aggregates
        || level.has_grouping
        || level.has_row_makers
        || level.set.is_some();
    if reduces || item.distributed().is_none() || !item.linear || item.sample.is_some() {
        return Ok(None);
    }
    let Some(count) = count(select)? else { return Ok(None) };
    let here = |node: &Node| concerns_only(node, 0, analysis, context);
    let mut conditions = Vec::new();
    if let Some(condition) = level.condition {
        split(condition, &mut conditions);
    }
    if !conditions.into_iter().all(here) {
        return Ok(None);
    }
    let Some(order) = order(select, 0, analysis, context) else { return Ok(None) };
    clause(order, &count).map(Some)
}

/// ` ORDER BY … LIMIT …` of these entries and this number of rows.
///
/// By what is the same of all rows nothing is ordered; and the value of an output, put in the place of its name, would be
/// taken for an output's number.
pub(super) fn clause(order: Vec<Node>, count: &str) -> Result<String, Refusal> {
    Ok(format!("{} LIMIT {count}", order_clause(order)?))
}

/// ` ORDER BY …` of these entries, as far as they order anything.
pub(super) fn order_clause(mut order: Vec<Node>) -> Result<String, Refusal> {
    // An aggregate, such as count(*), is another value for each group.
    let calls = |part: &Node| {
        let is_call = |tree: &NodeEnum| matches!(tree, NodeEnum::FuncCall(_));
        part.node.as_ref().is_some_and(|tree| contains(tree, &is_call))
    };
    order.retain(|part| has_column(part) || calls(part));
    let bare = SelectStmt {
        sort_clause: order,
        limit_option: LimitOption::Default.into(),
        op: SetOperation::SetopNone.into(),
        ..SelectStmt::default()
    };
    let order = deparse(&NodeEnum::SelectStmt(Box::new(bare)))?;
    Ok(order.find(" ORDER BY").map_or(String::new(), |at| order[at..].to_owned()))
}

/// How many rows are enough, as SQL; `None`: it is not known that less than all are.
pub(super) fn count(select: &SelectStmt) -> Result<Option<String>, Refusal> {
    let Some(count) = select.limit_count.as_deref() else { return Ok(None) };
    if select.limit_option() == LimitOption::WithTies {
        return Ok(None);
    }
    let offset = select.limit_offset.as_deref();
    match (constant(count), offset.map_or(Some(0), constant)) {
        (Some(count), Some(offset)) => {
            return Ok(count
                .checked_add(offset)
                .filter(|sum| 0 <= *sum)
                .map(|sum| sum.to_string()));
        }
        (Some(count), _) if count < 0 => return Ok(None),
        _ => (),
    }
    let mut parts = Vec::new();
    for part in [Some(count), offset].into_iter().flatten() {
        if constant(part).is_none() && !is_parameter(part) {
            return Ok(None);
        }
        let text = deparse_expression(part)?;
        // A parameter is what LIMIT makes of it, whatever is done with it then.
        parts.push(format!("({text})::pg_catalog.int8::pg_catalog.numeric"));
    }
    // What is wrong with a number is told by the final statement, and a missing one counts as no limit.
    let sum = parts.join(" OPERATOR(pg_catalog.+) ");
    let all = i64::MAX;
    Ok(Some(format!("LEAST(GREATEST(COALESCE({sum}, {all}), 0), {all})::pg_catalog.int8")))
}

/// Whether it is an integer as it is written.
pub(super) fn is_number(node: &Node) -> bool {
    constant(node).is_some()
}

fn constant(node: &Node) -> Option<i64> {
    match node.node.as_ref()? {
        NodeEnum::AConst(constant) => match constant.val.as_ref()? {
            a_const::Val::Ival(number) => Some(number.ival.into()),
            a_const::Val::Fval(number) => number.fval.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Whether it is a parameter, perhaps with a cast.
fn is_parameter(node: &Node) -> bool {
    match &node.node {
        Some(NodeEnum::ParamRef(_)) => true,
        Some(NodeEnum::TypeCast(cast)) => cast.arg.as_deref().is_some_and(is_parameter),
        _ => false,
    }
}

/// The order, with what outputs stand for in place of their names and numbers.
pub(super) fn order(
    select: &SelectStmt,
    item: ItemId,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Option<Vec<Node>> {
    let mut order = select.sort_clause.clone();
    for part in &mut order {
        let Some(NodeEnum::SortBy(by)) = &mut part.node else { return None };
        let value = by.node.as_deref_mut()?;
        if let Some(output) = output(select, value)? {
            *value = output.clone();
        }
        let alike = Alike { analysis, context };
        if !concerns_only(value, item, analysis, context) || !alike.is_alike(value) {
            return None;
        }
        unqualify(value.node.as_mut()?);
    }
    Some(order)
}

/// Whether a column is mentioned in it.
pub(super) fn has_column(node: &Node) -> bool {
    let Some(of) = &node.node else { return false };
    let mut found = matches!(of, NodeEnum::ColumnRef(_) | NodeEnum::SubLink(_));
    walk::read::children(of, &mut |child| found = found || has_column(child));
    found
}

/// The output that an entry of ORDER BY means by its number or name, if it means one; `None` where that is not known.
pub(super) fn output<'s>(select: &'s SelectStmt, by: &Node) -> Option<Option<&'s Node>> {
    let targets = || {
        select.target_list.iter().map(|target| match &target.node {
            Some(NodeEnum::ResTarget(target)) => target.val.as_deref().map(|value| (target, value)),
            _ => None,
        })
    };
    let name = match by.node.as_ref()? {
        NodeEnum::AConst(_) => {
            let number = usize::try_from(constant(by)?).ok()?.checked_sub(1)?;
            // A star before it stands for several.
            let before: Option<Vec<_>> = targets().take(number + 1).collect();
            let before = before?;
            let is_star =
                before.iter().any(|(_, value)| value.node.as_ref().is_some_and(is_any_star));
            return (!is_star).then_some(Some(before.get(number)?.1));
        }
        NodeEnum::ColumnRef(reference) => match &reference.fields[..] {
            [name] => string(name)?,
            _ => return Some(None),
        },
        _ => return Some(None),
    };
    let mut found = None;
    for target in targets() {
        let (target, value) = target?;
        if target.name == name {
            // Two of a name are an error if they are not the same.
            found = match found {
                None => Some(value),
                Some(_) => return None,
            };
        }
    }
    // One without AS has a column's own name, which means the column either way; what is called after a function or
    // type is left alone.
    let is_figured = |(target, value): (&pg_query::protobuf::ResTarget, &Node)| {
        let of = value.node.as_ref();
        target.name.is_empty()
            && !matches!(of, Some(NodeEnum::ColumnRef(_)))
            && of.is_some_and(|of| super::output_names::figure(of) == name)
    };
    // The columns of a composite value have names of their own.
    let is_of_value = |value: &Node| value.node.as_ref().is_some_and(is_star_of_value);
    let mut targets = targets().flatten();
    if targets.any(|(target, value)| is_figured((target, value)) || is_of_value(value)) {
        return None;
    }
    Some(found)
}
