//! INSERT whose target is not a distributed or replicated table: what only node 1 has, and views.
//! Also WITH that changes data.
//!
//! Owns: these special cases. Never: places rows.

use pg_query::NodeEnum;
use pg_query::protobuf::{InsertStmt, Node};

use super::clauses;
use super::ctes::with_ctes;
use crate::catalog::Relation;
use crate::plan::{Access, DataPlan, NodeChoice, Planned, RunOn};
use crate::planner::context::Context;
use crate::planner::modifying_with::modifying;
use crate::planner::sql_text::deparse;
use crate::planner::syntax::written_in_with;
use crate::planner::views::analyse;
use crate::planner::{mentions, query, replicas};
use crate::refusal::Refusal;

/// The whole statement as a node.
fn whole(insert: &InsertStmt) -> NodeEnum {
    NodeEnum::InsertStmt(Box::new(insert.clone()))
}

/// INSERT after WITH queries that change data; `None` if there are none.
pub(super) fn plan_changing_with(
    insert: &InsertStmt,
    context: &Context<'_>,
) -> Result<Option<Planned>, Refusal> {
    let queries = insert.with_clause.iter().flat_map(|with| &with.ctes);
    let mut targets: Vec<_> = queries.filter_map(written_in_with).collect();
    if targets.is_empty() {
        return Ok(None);
    }
    targets.extend(&insert.relation);
    let mentioned = mentions::of(&whole(insert), context);
    let all_home = targets.iter().all(|range| {
        let Some(relation) = context.relation(range) else { return true };
        let of = mentions::of_relation(relation, context);
        of.distributed.is_none() && of.replicated.is_none()
    });
    if all_home && mentioned.distributed.is_none() {
        return Ok(Some(Planned::at_home("all it reads and writes is on node 1")));
    }
    let writes_distributed = targets.iter().any(|range| {
        let relation = context.relation(range);
        relation.is_some_and(|of| mentions::of_relation(of, context).distributed.is_some())
    });
    if mentioned.distributed.is_none() && !writes_distributed {
        let tree = whole(insert);
        return Ok(Some(modifying(&tree, &analyse(&tree, context)?, context)?));
    }
    Err(Refusal::unsupported(
        "INSERT behind a WITH query that changes data is not supported here",
        "The parts of the statement would write on different nodes, and each must see what the \
         others saw.",
        "Run the parts as statements of their own in one transaction.",
    ))
}

/// INSERT into what only node 1 has (temporary tables, mostly).
pub(super) fn plan_home(insert: &InsertStmt, context: &Context<'_>) -> Result<Planned, Refusal> {
    let tree = whole(insert);
    if mentions::of(&tree, context).distributed.is_none() {
        return Ok(Planned::at_home(
            "the target is on node 1, which has all that the statement reads",
        ));
    }
    let mut others = insert.clone();
    others.select_stmt = None;
    others.with_clause = None;
    if mentions::of(&whole(&others), context).distributed.is_some() {
        return Err(Refusal::unsupported(
            "these expressions in ON CONFLICT or RETURNING are not supported",
            "They read a distributed table, which node 1 does not have whole.",
            "Compute the value in a statement of its own.",
        ));
    }
    let Some(select) = with_ctes(insert)? else {
        return Ok(Planned::at_home("the target is on node 1"));
    };
    // The query's text goes between what precedes and follows it: the statement is written
    // out with a mark in its place.
    const MARK: &str = "SELECT 'tutti: the query'";
    others.select_stmt =
        crate::statement::parse(MARK)?.pop().map(|mark| Box::new(Node { node: Some(mark.tree) }));
    let text = deparse(&whole(&others))?;
    let (before, after) = text.split_once(MARK).unwrap_or((&text, ""));
    let mut gather = query::gather_query_in_parts(&select, before, after, context)?;
    gather.run_on = RunOn::One(NodeChoice::Home);
    gather.access = Access::Write;
    Ok(Planned::new(
        DataPlan::Gather(gather),
        "the target is on node 1, so the rows are brought there",
    ))
}

/// INSERT into a view that PostgreSQL rewrites to its table.
///
/// Requires: it reads nothing that is spread.
pub(super) fn plan_view(
    view: &std::sync::Arc<Relation>,
    insert: &InsertStmt,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let below = mentions::of_relation(view, context);
    if below.replicated.is_none() {
        return plan_home(insert, context);
    }
    let tree = whole(insert);
    let rows = replicas::rows_of(&tree, view, context);
    let mentioned = mentions::of(&tree, context);
    if mentioned.distributed.is_some() {
        return Err(Refusal::unsupported(
            format!("this INSERT into the view {} is not supported", view.sql_name()),
            "It reads a distributed table, whose rows are on several nodes.",
            "Insert into the view's table itself.",
        ));
    }
    let obstacle = replicas::obstacle(&tree, context)
        .or_else(|| clauses::obstacle(insert, context))
        .or_else(|| rows.tables.iter().find_map(|table| replicas::table_obstacle(table)));
    Ok(match obstacle {
        None => Planned::new(
            DataPlan::Replicas { locks: Vec::new(), rows },
            "every node has all rows, and no value can differ",
        ),
        Some(why) => Planned::new(
            DataPlan::Rows(rows),
            format!("node 1 computes the rows for all copies: {why}"),
        ),
    })
}
