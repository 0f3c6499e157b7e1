//! DEFAULT in UPDATE and MERGE: the column's default, which nodes may evaluate differently.
//!
//! Owns: writing the default out where it stands, so that the planner sees what it calls.
//! Never: decides what a call means; the analysis does.

use pg_query::NodeEnum;
use pg_query::protobuf::{CmdType, MergeStmt, MergeWhenClause, Node};

use super::super::Context;
use super::super::insert::defaults::{Evaluation, expression};
use crate::refusal::Refusal;

/// The UPDATE with the columns' defaults in place of DEFAULT; `None` if it says DEFAULT nowhere, or
/// is another statement.
pub(super) fn written_out(tree: &NodeEnum, context: &Context<'_>) -> Option<NodeEnum> {
    let NodeEnum::UpdateStmt(update) = tree else { return None };
    let relation = context.relation(update.relation.as_ref()?)?;
    let mut explicit = update.clone();
    let mut found = false;
    for node in &mut explicit.target_list {
        let Some(NodeEnum::ResTarget(target)) = &mut node.node else { continue };
        let Some(value) = target.val.as_deref_mut().filter(|value| is_default(value)) else {
            continue;
        };
        let column = relation.column(&target.name).map(|column| &relation.columns[column]);
        // What generates a column, PostgreSQL alone knows.
        let Some(column) = column.filter(|column| !column.generated) else { continue };
        if let Some(default) = column.default.as_deref().and_then(expression) {
            *value = default;
            found = true;
        }
    }
    found.then_some(NodeEnum::UpdateStmt(explicit))
}

/// Refuses a MERGE into a replicated table that takes a default which the nodes would evaluate
/// differently.
pub(super) fn refuse_differing(merge: &MergeStmt, context: &Context<'_>) -> Result<(), Refusal> {
    let Some(relation) = merge.relation.as_ref().and_then(|range| context.relation(range)) else {
        return Ok(());
    };
    let evaluation = Evaluation::of(relation, context);
    let once = || (0..relation.columns.len()).filter(|column| evaluation.once(*column));
    let clauses = merge.merge_when_clauses.iter().filter_map(|node| match &node.node {
        Some(NodeEnum::MergeWhenClause(clause)) => Some(&**clause),
        _ => None,
    });
    for clause in clauses {
        let differs = once().find(|column| {
            says_default(clause)
                || clause.command_type() == CmdType::CmdInsert
                    && !gives(clause, *column, &relation.columns[*column].name)
        });
        if let Some(column) = differs {
            let name = &relation.columns[column].name;
            return Err(Refusal::unsupported(
                format!("the default of column \"{name}\" cannot be used in this MERGE"),
                "Each node would evaluate it for its own copy, with different results.",
                "Give the column's value in the statement.",
            ));
        }
    }
    Ok(())
}

fn is_default(node: &Node) -> bool {
    matches!(node.node, Some(NodeEnum::SetToDefault(_)))
}

fn says_default(clause: &MergeWhenClause) -> bool {
    clause.values.iter().any(is_default)
        || clause.target_list.iter().any(|node| match &node.node {
            Some(NodeEnum::ResTarget(target)) => target.val.as_deref().is_some_and(is_default),
            _ => false,
        })
}

/// Whether an inserting clause has a value for the column.
fn gives(clause: &MergeWhenClause, column: usize, name: &str) -> bool {
    if clause.target_list.is_empty() {
        return column < clause.values.len();
    }
    clause
        .target_list
        .iter()
        .any(|node| matches!(&node.node, Some(NodeEnum::ResTarget(target)) if target.name == name))
}
