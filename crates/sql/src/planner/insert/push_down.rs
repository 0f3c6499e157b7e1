//! INSERT … SELECT that every node can run by itself.
//!
//! Owns: the proof that the rows a node selects belong on that node.
//! Never: moves a row.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, SelectStmt};

use super::inserting::Inserting;
use super::source;
use super::target::{around, source_of};
use crate::catalog::{Placement, Volatility};
use crate::plan::{Access, DataPlan, NodeChoice, Plan, Planned};
use crate::planner::analysis::{Source, Whereabouts};
use crate::planner::functions::volatility;
use crate::planner::{query, views};
use crate::refusal::Refusal;

/// The plan that runs the statement unchanged where the source's rows are; `None` if rows could
/// belong elsewhere.
pub(super) fn plan(
    select: &SelectStmt,
    inserting: &Inserting<'_>,
) -> Result<Option<Planned>, Refusal> {
    if inserting.context.opaque.is_some()
        || inserting.insert.with_clause.is_some()
        || inserting.omitted_once().next().is_some()
        || reads_distributed_view(select, inserting)?
        || !feeds_key_by_key(select, inserting)?
    {
        return Ok(None);
    }
    let tree = Node { node: Some(NodeEnum::SelectStmt(Box::new(select.clone()))) };
    if volatility(&tree, inserting.context) != Volatility::Immutable {
        return Ok(None);
    }
    let why = "each node inserts rows that it has, and their keys belong to it";
    Ok(match query::plan_select(select, inserting.context)?.plan {
        Plan::Data(DataPlan::Scatter { .. })
            if inserting.omitted_for_several_nodes().next().is_none() =>
        {
            Some(Planned::new(DataPlan::Scatter { access: Access::Write }, why))
        }
        Plan::Data(DataPlan::One { node: node @ NodeChoice::Pinned(_), otherwise, .. }) => {
            let otherwise = match otherwise {
                Some(_) => Some(Box::new(source::plan(select, inserting)?)),
                None => None,
            };
            Some(Planned::new(DataPlan::One { node, access: Access::Write, otherwise }, why))
        }
        _ => None,
    })
}

/// Whether a view would have to be written out first.
fn reads_distributed_view(select: &SelectStmt, inserting: &Inserting<'_>) -> Result<bool, Refusal> {
    let tree = NodeEnum::SelectStmt(Box::new(select.clone()));
    Ok(views::expanded_tree(&tree, inserting.context)?.is_some())
}

/// Whether the target's key receives, unchanged, the key of a colocated table in the query's FROM.
fn feeds_key_by_key(select: &SelectStmt, inserting: &Inserting<'_>) -> Result<bool, Refusal> {
    let Placement::Hash { key, key_type, map } = *inserting.placement() else { return Ok(false) };
    let Some(position) = inserting.target.columns.iter().position(|column| *column == key) else {
        return Ok(false);
    };
    if inserting.target.parts || !select.values_lists.is_empty() {
        return Ok(false);
    }
    let wrapper = around(select)?;
    let analysis = views::analyse_select(&wrapper, inserting.context)?;
    let Some(query) = source_of(&analysis) else { return Ok(false) };
    if query.set.is_some() || query.has_grouping_sets {
        return Ok(false);
    }
    let output = query.outputs.as_ref().and_then(|outputs| outputs.get(position)?.column);
    let Some(column) = output else { return Ok(false) };
    let item = &analysis.items[column.item];
    // A null-extended row has a NULL where its node's key would have to be.
    Ok(item.linear
        && match item.source {
            Source::Table { relation, spread: Whereabouts::Hash { key, map: of } } => {
                let same_type = matches!(
                    relation.placement,
                    Placement::Hash { key_type: of, .. } if of == key_type
                );
                of == map && key == column.column && same_type
            }
            _ => false,
        })
}
