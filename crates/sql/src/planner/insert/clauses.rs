//! ON CONFLICT and RETURNING: what they may contain where rows lie on several nodes.
//!
//! Owns: these refusals. Never: reads the source of the rows.

use pg_query::NodeEnum;
use pg_query::protobuf::{InsertStmt, Node};

use crate::catalog::Relation;
use crate::planner::context::Context;
use crate::planner::defaults::{Evaluation, needs_one_place, reads_time};
use crate::planner::determinism::{expression_obstacle, is_fixed};
use crate::planner::mentions;
use crate::planner::syntax::{contains, has_subquery, is_subquery, says_default};
use crate::planner::time_gaps::TimeGaps;
use crate::refusal::Refusal;

/// RETURNING is present.
pub(super) fn returns_rows(insert: &InsertStmt) -> bool {
    insert.returning_clause.as_ref().is_some_and(|clause| !clause.exprs.is_empty())
}

/// The expressions of RETURNING.
fn returning(insert: &InsertStmt) -> impl Iterator<Item = &Node> {
    insert.returning_clause.iter().flat_map(|clause| &clause.exprs)
}

/// The expressions of ON CONFLICT DO UPDATE.
fn conflict(insert: &InsertStmt) -> impl Iterator<Item = &Node> {
    insert
        .on_conflict_clause
        .iter()
        .flat_map(|clause| clause.target_list.iter().chain(clause.where_clause.as_deref()))
}

/// Refuses what the nodes would each do differently, or cannot do.
pub(super) fn check(
    insert: &InsertStmt,
    relation: &Relation,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    for expression in conflict(insert).chain(returning(insert)) {
        check_reads(expression, insert, context)?;
        check_is_everywhere(expression, context)?;
    }
    check_defaults(insert, relation, context)?;
    let key = relation.placement.key_columns().into_iter().map(|key| key.column);
    let mut deciding = key.chain(relation.key_sources());
    deciding.try_for_each(|column| check_key_kept(insert, &relation.columns[column].name, relation))
}

/// Why ON CONFLICT or RETURNING need not do the same on every node, as a clause.
pub(super) fn obstacle(insert: &InsertStmt, context: &Context<'_>) -> Option<String> {
    let from_values = match insert.select_stmt.as_ref().and_then(|it| it.node.as_ref()) {
        Some(NodeEnum::SelectStmt(select)) => !select.values_lists.is_empty(),
        _ => true,
    };
    if insert.on_conflict_clause.is_some() && !from_values {
        return Some("of conflicting rows the first is taken".to_owned());
    }
    let mut expressions = conflict(insert).chain(returning(insert));
    expressions.find_map(|expression| {
        let mut frozen = expression.clone();
        let gaps = TimeGaps { analysis: None, context };
        if let Err(refusal) = gaps.put(&mut frozen) {
            return Some(refusal.message);
        }
        expression_obstacle(&frozen, context).or_else(|| {
            let reads = has_subquery(&frozen);
            reads.then(|| "a subquery is in ON CONFLICT or RETURNING".to_owned())
        })
    })
}

/// Refuses ON CONFLICT and RETURNING that read what node 1 does not have whole.
pub(super) fn check_reads_of_all(
    insert: &InsertStmt,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    conflict(insert)
        .chain(returning(insert))
        .try_for_each(|expression| check_reads(expression, insert, context))
}

/// Whether ON CONFLICT DO UPDATE does the same on every node as it is written.
pub(super) fn conflict_is_fixed(insert: &InsertStmt, context: &Context<'_>) -> bool {
    conflict(insert).all(|expression| is_fixed(expression, context))
}

/// Whether ON CONFLICT or RETURNING depend on the current time.
pub(super) fn has_time(insert: &InsertStmt, context: &Context<'_>) -> bool {
    conflict(insert).chain(returning(insert)).any(|expression| reads_time(expression, context))
}

/// Puts gaps in place of `now()` and the like in ON CONFLICT and RETURNING, which each node would evaluate to another
/// time.
pub(super) fn freeze_time(
    insert: &mut InsertStmt,
    relation: &Relation,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    let gaps = TimeGaps { analysis: None, context };
    if let Some(returning) = &mut insert.returning_clause {
        returning.exprs.iter_mut().try_for_each(|it| gaps.put(it))?;
    }
    let Some(clause) = &mut insert.on_conflict_clause else { return Ok(()) };
    gaps.put_assigned(&mut clause.target_list, relation)?;
    let filter = clause.where_clause.as_deref_mut();
    clause.target_list.iter_mut().chain(filter).try_for_each(|it| gaps.put(it))
}

/// A clause runs on the row's node: it can read what that node has.
fn check_reads(
    expression: &Node,
    insert: &InsertStmt,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    let Some(tree) = &expression.node else { return Ok(()) };
    let mentioned = mentions::of(tree, context);
    let reason = if needs_one_place(expression, context) {
        "They call a function that only one place in the cluster can answer."
    } else if mentioned.distributed.is_some() || mentioned.temporary.is_some() {
        "They read a table that not every node has whole."
    } else if insert.with_clause.is_some() && contains(tree, &is_subquery) {
        "They may read a query of WITH, which is run before the rows are placed."
    } else {
        return Ok(());
    };
    Err(Refusal::unsupported(
        "these expressions in ON CONFLICT or RETURNING are not supported",
        reason,
        "Compute the value in a statement of its own.",
    ))
}

/// A home table is on node 1, and by its name another node may know another one.
fn check_is_everywhere(expression: &Node, context: &Context<'_>) -> Result<(), Refusal> {
    let mentioned = expression.node.as_ref().map(|tree| mentions::of(tree, context));
    let Some(home) = mentioned.and_then(|mentioned| mentioned.home) else { return Ok(()) };
    Err(Refusal::unsupported(
        format!("reading home table {home} in ON CONFLICT or RETURNING is not supported"),
        "The clause runs on the row's node, and the table is on node 1.",
        format!(
            "Replicate the table (tutti_replicate('{home}')), or read it in a statement of its own."
        ),
    ))
}

/// `SET column = DEFAULT` is evaluated by the node that has the row.
fn check_defaults(
    insert: &InsertStmt,
    relation: &Relation,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    let evaluation = Evaluation::of(relation, context);
    let targets = insert.on_conflict_clause.iter().flat_map(|clause| &clause.target_list);
    for target in targets {
        let Some(NodeEnum::ResTarget(target)) = &target.node else { continue };
        let value = target.val.as_ref().and_then(|value| value.node.as_ref());
        // Of a row that several columns are assigned from, another's may be meant.
        if value.is_some_and(says_default)
            && relation.column(&target.name).is_some_and(|column| evaluation.once(column))
        {
            return Err(Refusal::unsupported(
                format!("ON CONFLICT DO UPDATE SET \"{}\" = DEFAULT is not supported", target.name),
                "The default must be evaluated once for the whole cluster.",
                "Give the value among the inserted ones and use EXCLUDED.column.",
            ));
        }
    }
    Ok(())
}

/// ON CONFLICT DO UPDATE must leave the row where it is.
fn check_key_kept(insert: &InsertStmt, key: &str, relation: &Relation) -> Result<(), Refusal> {
    let sets_key =
        insert.on_conflict_clause.iter().flat_map(|clause| &clause.target_list).any(|target| {
            match &target.node {
                Some(NodeEnum::ResTarget(target)) => target.name == key,
                _ => false,
            }
        });
    if !sets_key {
        return Ok(());
    }
    let is_source = relation.key_sources().any(|source| relation.columns[source].name == key);
    Err(Refusal::unsupported(
        match is_source {
            true => format!(
                "ON CONFLICT DO UPDATE cannot set \"{key}\", from which the distribution key is computed"
            ),
            false => format!("ON CONFLICT DO UPDATE cannot set the distribution key \"{key}\""),
        },
        "The row would have to move to another node in the middle of the statement.",
        "Leave the key out of SET (it equals EXCLUDED's in most cases), or use UPDATE.",
    ))
}
