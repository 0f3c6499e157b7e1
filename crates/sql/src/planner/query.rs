//! Plans of queries.
//!
//! Owns: the order of preference (one node, scatter, parts of each node, gather, with some tables brought to every node
//! or without) and the reasons given.
//! Never: rewrites anything (`gather.rs` does).
//! Start reading at [`plan_select`].

use pg_query::NodeEnum;
use pg_query::protobuf::SelectStmt;

use super::analysis::{Analysis, ItemId};
use super::context::Context;
use super::gather::Order;
use super::locality::{access, all_pins, home_reason, not_pinned, pinned_reason};
use super::modifying_with::{modifying, modifying_refusal};
use super::pins::{Facts, Landing, landing};
use super::views::{Views, analyse, analyse_select};
use super::{
    brought, gather, in_tables, local_locks, oids, over_groups, partial, row_types, scatter,
    system_columns, time_gaps, views,
};
use crate::plan::{Access, DataPlan, Gather, InTables, NodeChoice, Partial, Plan, Planned, RunOn};
use crate::refusal::Refusal;

/// Plans a query (SELECT, VALUES, TABLE).
///
/// Where the plan says "as the client wrote it", that is the text the caller took `select` from.
pub(crate) fn plan_select(select: &SelectStmt, context: &Context<'_>) -> Result<Planned, Refusal> {
    if let Some(expanded) = expanded(select, context)? {
        let analysis = analyse(&expanded, context)?;
        let planned = decide(&analysis, || expanded.clone(), context)?;
        if matches!(planned.plan, Plan::Data(DataPlan::Gather(_)))
            && analysis.locked.is_empty()
            && let Some(tree) = with_views(select, context)?
        {
            let analysis = analyse(&tree, context)?;
            return several_nodes(&analysis, &|| tree.clone(), home_reason(&analysis), context);
        }
        return Ok(planned);
    }
    let analysis = analyse_select(select, context)?;
    decide(&analysis, || NodeEnum::SelectStmt(Box::new(select.clone())), context)
}

/// The plan of a query that is not the client's own and reads what only node 1 has: it runs there, over nothing collected.
pub(super) fn plan_at_home(
    select: Box<SelectStmt>,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let tree = NodeEnum::SelectStmt(select);
    let analysis = analyse(&tree, context)?;
    let gather = gather_all(&analysis, tree.clone(), context)?;
    let gather = Gather { run_on: RunOn::One(NodeChoice::Home), ..gather };
    Ok(Planned::new(DataPlan::Gather(gather), "it reads no table of the cluster"))
}

/// Forces a gather of `select`, whose final statement is `before`, the query, `after`
/// (`DECLARE c CURSOR FOR `, ``; `COPY (`, `) TO STDOUT`).
pub(crate) fn gather_query(
    select: &SelectStmt,
    before: &str,
    after: &str,
    context: &Context<'_>,
) -> Result<Gather, Refusal> {
    let tree = as_gathered(select, context)?;
    gather_tree(&tree, &analyse(&tree, context)?, (before, after), context)
}

/// As [`gather_query`], in parts where the query can be.
pub(crate) fn gather_query_in_parts(
    select: &SelectStmt,
    before: &str,
    after: &str,
    context: &Context<'_>,
) -> Result<Gather, Refusal> {
    let tree = as_gathered(select, context)?;
    let analysis = analyse(&tree, context)?;
    let mut gather = gather_tree(&tree, &analysis, (before, after), context)?;
    if may_be_parts(&gather, &analysis) {
        let is_home = home_reason(&analysis).is_some();
        gather.partial = parts(&tree, &analysis, is_home, context)?.map(|parts| {
            let parts = *parts;
            let statement = parts.statement.wrap(before, after);
            Box::new(Partial { statement, ..parts })
        });
    }
    Ok(gather)
}

fn gather_tree(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    (before, after): (&str, &str),
    context: &Context<'_>,
) -> Result<Gather, Refusal> {
    let mut gather = gather_all(analysis, tree.clone(), context)?;
    gather.statement = gather.statement.wrap(before, after);
    if let Some(of) = in_tables_of(&gather, tree.clone(), analysis, context)? {
        let statement = of.statement.wrap(before, after);
        gather.in_tables = Some(Box::new(InTables { statement, ..of }));
    }
    Ok(gather)
}

/// The query as it is gathered: with as many of its views as may stay, for what these read they read with the rights of
/// their owners.
fn as_gathered(select: &SelectStmt, context: &Context<'_>) -> Result<NodeEnum, Refusal> {
    Ok(match (with_views(select, context)?, expanded(select, context)?) {
        (Some(tree), _) if select.locking_clause.is_empty() => tree,
        (_, Some(expanded)) => expanded,
        _ => NodeEnum::SelectStmt(Box::new(select.clone())),
    })
}

/// The query with its views over distributed tables written out, if it has any.
fn expanded(select: &SelectStmt, context: &Context<'_>) -> Result<Option<NodeEnum>, Refusal> {
    if context.catalog.is_solo() || !views::select_mentions_view(select, context) {
        return Ok(None);
    }
    let mut tree = NodeEnum::SelectStmt(Box::new(select.clone()));
    Ok(views::expand(&mut tree, Views::None, context)?.is_any().then_some(tree))
}

/// The query as gathered with the rights of its views: views that each node can answer for its
/// own rows stay. `None` if there is none.
fn with_views(select: &SelectStmt, context: &Context<'_>) -> Result<Option<NodeEnum>, Refusal> {
    let Some(all) = expanded(select, context)? else { return Ok(None) };
    let mut tree = NodeEnum::SelectStmt(Box::new(select.clone()));
    let is_expanded = views::expand(&mut tree, Views::Apart, context)?.is_any();
    Ok((!is_expanded || tree != all).then_some(tree))
}

fn decide(
    analysis: &Analysis<'_>,
    tree: impl Fn() -> NodeEnum,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let access = access(analysis);
    let one = |node, access, why: String| {
        Ok(Planned::new(DataPlan::One { node, access, otherwise: None }, why))
    };
    if context.catalog.is_solo() {
        return one(NodeChoice::Home, access, "no table is on other nodes".to_owned());
    }
    if !analysis.modifications.is_empty() {
        return modifying(&tree(), analysis, context);
    }
    let home = home_reason(analysis);
    if analysis.distributed().next().is_none() {
        if let Some(home) = home {
            return one(NodeChoice::Home, access, home);
        }
        if !analysis.items.iter().any(|item| item.replicated().is_some()) {
            // What another node would do for good stays node 1's.
            let leaves_nothing = access == Access::Read
                && analysis.functions.volatile.is_none()
                && analysis.functions.may_write.is_none();
            // Nor do others have the OIDs that it has, or all types.
            let leaves_nothing = leaves_nothing && {
                let tree = tree();
                !oids::computes(&tree) && row_types::named(&tree, context).is_none()
            };
            let node = if leaves_nothing { NodeChoice::Speaker } else { NodeChoice::Home };
            return one(node, access, "it reads no table of the cluster".to_owned());
        }
        if access == Access::Write {
            let why = "replicated rows are locked and changed on node 1 first".to_owned();
            return one(NodeChoice::Home, access, why);
        }
        return one(NodeChoice::Any, access, "every node has all the rows it reads".to_owned());
    }
    refuse_spread_locks(analysis)?;
    if home.is_none() {
        let facts = Facts::from_values(analysis);
        if let Some(pins) = all_pins(analysis, &facts) {
            let why = pinned_reason(analysis, pins.len());
            match landing(&pins, context.catalog) {
                Landing::Certain => return one(NodeChoice::Pinned(pins), access, why),
                Landing::Open => {
                    // If the values are one node's, what several could not do does not matter.
                    let otherwise =
                        several_nodes(analysis, &tree, None, context).unwrap_or_else(|refusal| {
                            Planned::new(
                                DataPlan::Refused(Box::new(refusal)),
                                "it cannot be planned",
                            )
                        });
                    let node = NodeChoice::Pinned(pins);
                    let plan = Plan::Data(DataPlan::One {
                        node,
                        access,
                        otherwise: Some(Box::new(otherwise)),
                    });
                    return Ok(Planned::new(plan, why));
                }
                Landing::Several => (),
            }
        }
    }
    several_nodes(analysis, &tree, home, context)
}

/// Scatter or gather.
fn several_nodes(
    analysis: &Analysis<'_>,
    tree: &dyn Fn() -> NodeEnum,
    home: Option<String>,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    time_gaps::refuse_untold(&tree(), analysis, context)?;
    let is_home = home.is_some();
    let reads_returned = analysis.reads_returned();
    let returned = || reads_returned.then(|| "it reads what was returned before".to_owned());
    system_columns::refuse_places(&tree(), analysis, context)?;
    let by_number = || system_columns::number_of_table(&tree(), analysis);
    let obstacle = home.or_else(returned).or_else(by_number);
    let obstacle = obstacle.or_else(|| scatter::obstacle(analysis));
    let obstacle = obstacle.or_else(|| analysis.time_in_view.clone());
    let Some(obstacle) = obstacle else {
        let reads_time =
            analysis.functions.reads_time || time_gaps::has_literals(&tree(), analysis, context)?;
        let answer = match reads_time {
            true => "each node answers for its own rows, all with the time of node 1",
            false => "each node answers for its own rows",
        };
        let why = match not_pinned(analysis) {
            Some(not_pinned) => format!("{not_pinned}; {answer}"),
            None => answer.to_owned(),
        };
        let access = access(analysis);
        if !reads_time {
            return Ok(Planned::new(DataPlan::Scatter { access }, why));
        }
        let order =
            Order { collect: &[], brought: &[], literal_time: true, local: &[], away: false };
        let (collects, statement) = gather::build(tree(), analysis, &order, context)?;
        let gather = Gather {
            collects,
            statement,
            partial: None,
            brought: Vec::new(),
            in_tables: None,
            first: None,
            run_on: RunOn::EachNode,
            access,
            writes: None,
        };
        return Ok(Planned::new(DataPlan::Gather(gather), why));
    };
    let mut gather = gather_all(analysis, tree(), context)?;
    gather.in_tables = in_tables_of(&gather, tree(), analysis, context)?.map(Box::new);
    if may_be_parts(&gather, analysis) {
        gather.partial = parts(&tree(), analysis, is_home, context)?;
        if !is_home && gather.partial.is_none() && analysis.system_columns.is_empty() {
            gather.brought = brought::ways(&tree(), analysis, context)?;
        }
    }
    let why = match not_pinned(analysis) {
        Some(not_pinned) => format!("{not_pinned}; {obstacle}"),
        None => obstacle,
    };
    Ok(Planned::new(DataPlan::Gather(gather), why))
}

/// Whether nodes may be asked for parts: what these would lock is not known.
fn may_be_parts(gather: &Gather, analysis: &Analysis<'_>) -> bool {
    gather.access == Access::Read && analysis.locked.is_empty() && !analysis.reads_returned()
}

/// The query in parts, or one that it is over. `is_home`: the final statement must run on node 1.
fn parts(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    is_home: bool,
    context: &Context<'_>,
) -> Result<Option<Box<Partial>>, Refusal> {
    let whole = if is_home { None } else { partial::of(tree, analysis, &[], context)? };
    let parts = match whole {
        None => over_groups::of(tree, analysis, context)?,
        whole => whole,
    };
    Ok(parts.map(Box::new))
}

/// What is gathered over temporary tables, if it only reads.
fn in_tables_of(
    gather: &Gather,
    tree: NodeEnum,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Option<InTables>, Refusal> {
    let may_be =
        gather.access == Access::Read && analysis.locked.is_empty() && !analysis.reads_returned();
    match may_be {
        true => in_tables::of(tree, analysis, &collected(analysis, context), context),
        false => Ok(None),
    }
}

/// The tables whose rows are brought to one node.
fn collected(analysis: &Analysis<'_>, context: &Context<'_>) -> Vec<ItemId> {
    let mut collect: Vec<_> = analysis.distributed().map(|(item, ..)| item).collect();
    // Beside rows that are locked, as they are then, the rest is read when they are.
    if context.collects_replicated && analysis.locked.is_empty() {
        collect.extend(gather::collectable_on_node_1(analysis));
    }
    collect
}

fn gather_all(
    analysis: &Analysis<'_>,
    tree: NodeEnum,
    context: &Context<'_>,
) -> Result<Gather, Refusal> {
    if !analysis.modifications.is_empty() {
        return Err(modifying_refusal());
    }
    refuse_spread_locks(analysis)?;
    let mut collect = collected(analysis, context);
    // Of tables' OIDs only those of node 1 are told.
    let is_home = home_reason(analysis).is_some()
        || analysis.functions.may_write.is_some()
        || analysis.system_columns.iter().any(|of| of.name == "tableoid");
    let node = if is_home { NodeChoice::Home } else { NodeChoice::Any };
    // What is collected by it and what the final statement finds must not differ.
    let reads_time =
        analysis.functions.reads_time || time_gaps::has_literals(&tree, analysis, context)?;
    let literal_time = reads_time && analysis.time_in_view.is_none();
    let local = local_locks::of(&tree, analysis, context)?;
    collect.retain(|item| !local.iter().any(|lock| lock.read.contains(item)));
    let local: Vec<_> = local.iter().map(|lock| lock.item).collect();
    let order = Order { collect: &collect, brought: &[], literal_time, local: &local, away: false };
    let (collects, statement) = gather::build(tree, analysis, &order, context)?;
    let has_locks =
        analysis.locked.iter().any(|item| analysis.items[*item].distributed().is_none());
    let access = if has_locks || analysis.functions.may_write.is_some() {
        Access::Write
    } else {
        Access::Read
    };
    Ok(Gather {
        collects,
        statement,
        partial: None,
        brought: Vec::new(),
        in_tables: None,
        first: None,
        run_on: RunOn::One(node),
        access,
        writes: None,
    })
}

/// Row locks on replicated rows must be taken on node 1, those on distributed rows elsewhere.
fn refuse_spread_locks(analysis: &Analysis<'_>) -> Result<(), Refusal> {
    let replicated = analysis.locked.iter().find_map(|item| analysis.items[*item].replicated());
    match replicated {
        Some(relation) if analysis.distributed().next().is_some() => Err(Refusal::unsupported(
            format!("FOR UPDATE cannot lock rows of replicated table \"{}\" here", relation.name),
            "A lock on one copy of a replicated row does not keep others from locking another copy.",
            "Name the distributed tables to lock (FOR UPDATE OF …), and lock replicated rows in a \
             statement of its own.",
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
