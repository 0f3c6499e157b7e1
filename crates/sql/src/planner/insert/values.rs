//! VALUES rows that can be sent as the client wrote them.
//!
//! Owns: cutting the rows out of the text and pinning each one's key.
//! Never: changes a row's text.

use pg_query::NodeEnum;
use pg_query::protobuf::{AConst, Node, OverridingKind, SelectStmt, Token};

use super::inserting::{Inserting, on_every_node};
use super::target::row_items;
use super::{clauses, source};
use crate::catalog::{KeyPart, MapId, Placement};
use crate::hash::Bucket;
use crate::plan::{Access, DataPlan, InsertSource, KeyValue, NodeChoice, Pin, Planned, ValuesRow};
use crate::planner::alike::is_of_time;
use crate::planner::defaults::{needs_one_place, reads_time};
use crate::planner::determinism::is_fixed;
use crate::planner::filters::value;
use crate::planner::pins::{self, Landing, landing};
use crate::planner::syntax::has_subquery;
use crate::refusal::Refusal;
use crate::statement::tokens::{Lexeme, list, scan, with_depth};

/// The plan that sends rows as written; `None` if something has to be evaluated first.
pub(super) fn plan(
    select: &SelectStmt,
    text: &str,
    inserting: &Inserting<'_>,
) -> Result<Option<Planned>, Refusal> {
    let plain = !select.values_lists.is_empty()
        && select.sort_clause.is_empty()
        && select.limit_count.is_none()
        && select.limit_offset.is_none()
        && select.with_clause.is_none();
    let rows: Vec<&[Node]> = select.values_lists.iter().filter_map(row_items).collect();
    if !plain || inserting.omitted_once().next().is_some() || !as_written(&rows, inserting) {
        return Ok(None);
    }
    match *inserting.placement() {
        Placement::Replicated => {
            if !clauses::conflict_is_fixed(inserting.insert, inserting.context) {
                return Ok(None);
            }
            let Inserting { insert, relation, context, .. } = inserting;
            Ok(Some(on_every_node(insert, relation, context)))
        }
        Placement::Hash { .. } | Placement::HashOfSeveral { .. } => {
            let pins: Option<Vec<Pin>> =
                rows.iter().map(|row| pin_of_row(row, inserting)).collect();
            match pins {
                Some(pins) => plan_pinned(pins, select, text, inserting).map(Some),
                None => Ok(None),
            }
        }
        Placement::RoundRobin if rows.len() > 1 && has_time(&rows, inserting) => Ok(None),
        Placement::RoundRobin => {
            let keys = vec![None; rows.len()];
            let Some(source) = cut(text, keys) else { return Ok(None) };
            let why = "rows of a round robin table go to the nodes in turn";
            Ok(Some(Planned::new(inserting.plan_of(source), why)))
        }
        Placement::Home | Placement::Async { .. } => Ok(None),
    }
}

/// Whether every value may be evaluated by the node or nodes that store it.
fn as_written(rows: &[&[Node]], inserting: &Inserting<'_>) -> bool {
    let context = inserting.context;
    if context.opaque.is_some() {
        return false;
    }
    let replicated = *inserting.placement() == Placement::Replicated;
    // OVERRIDING USER VALUE: what is given for an identity column counts as DEFAULT.
    let user_value = inserting.insert.r#override() == OverridingKind::OverridingUserValue;
    rows.iter().all(|row| {
        row.iter().zip(&inserting.target.columns).all(|(value, column)| {
            let is_default = matches!(value.node, Some(NodeEnum::SetToDefault(_)));
            if is_default || user_value && inserting.relation.columns[*column].identity.is_some() {
                return !inserting.evaluation.once(*column);
            }
            !has_subquery(value)
                && !needs_one_place(value, context)
                && (!replicated || is_fixed(value, context))
        })
    })
}

/// Whether a value of some row, or what is done with rows, depends on the current time, which one statement has one of.
fn has_time(rows: &[&[Node]], inserting: &Inserting<'_>) -> bool {
    clauses::has_time(inserting.insert, inserting.context)
        || inserting.omitted_for_several_nodes().next().is_some()
        || rows.iter().any(|row| {
            row.iter().zip(&inserting.target.columns).any(|(value, column)| match &value.node {
                Some(NodeEnum::SetToDefault(_)) => {
                    inserting.evaluation.once_for_several_nodes(*column)
                }
                // The literal 'now' is a time only where the column makes it one.
                Some(NodeEnum::AConst(_)) if !is_of_time(&inserting.relation.columns[*column]) => {
                    false
                }
                _ => reads_time(value, inserting.context),
            })
        })
}

/// One node if the rows belong together, else the rows per node.
fn plan_pinned(
    pins: Vec<Pin>,
    select: &SelectStmt,
    text: &str,
    inserting: &Inserting<'_>,
) -> Result<Planned, Refusal> {
    let landing = landing(&pins, inserting.context.catalog);
    let split = || -> Result<Planned, Refusal> {
        let rows: Vec<&[Node]> = select.values_lists.iter().filter_map(row_items).collect();
        if rows.len() > 1 && has_time(&rows, inserting) {
            return source::plan(select, inserting);
        }
        let source = cut(text, pins.iter().cloned().map(Some).collect()).ok_or_else(not_cut)?;
        let why = "each row goes to the node of its distribution key";
        Ok(Planned::new(inserting.plan_of(source), why))
    };
    let otherwise = match landing {
        Landing::Certain => None,
        Landing::Open => Some(Box::new(split()?)),
        Landing::Several => return split(),
    };
    let why = match pins.len() {
        1 => "the row belongs on the node of its distribution key",
        _ => "all rows belong on one node",
    };
    let node = NodeChoice::Pinned(pins);
    Ok(Planned::new(DataPlan::One { node, access: Access::Write, otherwise }, why))
}

fn not_cut() -> Refusal {
    Refusal::unsupported(
        "the rows of this INSERT could not be told apart",
        "They belong on different nodes.",
        "Write one INSERT per row.",
    )
}

/// The pin of a row's key; `None` if its bucket is not certain.
fn pin_of_row(row: &[Node], inserting: &Inserting<'_>) -> Option<Pin> {
    let map = inserting.placement().key_map()?;
    let pin = |key: KeyPart| {
        let mut columns = inserting.target.columns.iter();
        stored_pin(row.get(columns.position(|it| *it == key.column)?)?, key, map, inserting)
    };
    let parts = inserting.placement().key_columns().into_iter().map(pin);
    let parts = parts.collect::<Option<Vec<_>>>()?;
    match inserting.placement() {
        Placement::HashOfSeveral { .. } => Some(Pin::of_several(map, parts)),
        _ => parts.into_iter().next(),
    }
}

/// The pin of a value that is stored in this column of the key; `None` if its bucket is not certain.
fn stored_pin(node: &Node, key: KeyPart, map: MapId, inserting: &Inserting<'_>) -> Option<Pin> {
    let relation = inserting.relation;
    let KeyPart { column, key_type } = key;
    if matches!(&node.node, Some(NodeEnum::AConst(AConst { isnull: true, .. }))) {
        let value = KeyValue::Bucket(Bucket::OF_NULL);
        let stored = Some(relation.columns[column].type_modifier);
        return Some(Pin { map, key_type, value, stored, ends: false });
    }
    let value = value(node, inserting.context)?;
    pins::stored_pin(value, relation, column, &inserting.context.catalog.maps)
}

/// Cuts an INSERT's text into what precedes its rows, the rows, and what follows.
/// `keys` has one entry per row of the parse tree.
fn cut(text: &str, keys: Vec<Option<Pin>>) -> Option<InsertSource> {
    let tokens = scan(text).ok()?;
    // INSERT INTO name.name: a table may be called "values" too.
    let mut next = 3;
    while tokens.get(next).is_some_and(|token| token.text == ".") {
        next += 2;
    }
    let behind_name = next;
    let values = behind_name
        + with_depth(&tokens[behind_name..]).position(|(depth, token): (usize, &Lexeme<'_>)| {
            depth == 0 && token.token == Token::Values
        })?;
    let mut rows = Vec::with_capacity(keys.len());
    let mut open = values + 1;
    let mut end = tokens[values].end;
    for key in keys {
        let (_, behind) = list(text, &tokens, open)?;
        end = tokens[behind - 1].end;
        rows.push(ValuesRow { sql: text[tokens[open].start..end].to_owned(), key });
        open = behind + 1;
    }
    // After the last row no comma may follow, or the rows were not all met.
    if tokens.get(open - 1).is_some_and(|token| token.text == ",") {
        return None;
    }
    let prefix = format!("{} ", text[..tokens[values].end].trim_end());
    let suffix = match text[end..].trim() {
        "" => String::new(),
        rest => format!(" {rest}"),
    };
    Some(InsertSource::Values { prefix, rows, suffix })
}
