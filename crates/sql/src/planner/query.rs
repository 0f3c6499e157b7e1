//! Plans of queries.
//!
//! Owns: the order of preference (one node, scatter, gather) and the reasons given.
//! Never: rewrites anything (`gather.rs` does).
//! Start reading at [`plan_select`].

use pg_query::NodeEnum;
use pg_query::protobuf::SelectStmt;

use super::analyse::{analyse, analyse_select};
use super::analysis::{Analysis, ItemId, ModificationKind, Source, Spread};
use super::context::Context;
use super::gather::Order;
use super::pins::{Facts, Landing, landing};
use super::unseen::refuse_unsafe_code;
use super::views::Views;
use super::{dml, gather, replicas, scatter, views};
use crate::catalog::RelationKind;
use crate::closure::events;
use crate::plan::{Access, Gather, NodeChoice, Pin, Plan, Planned, RunOn};
use crate::refusal::Refusal;

/// Plans a query (SELECT, VALUES, TABLE).
///
/// Where the plan says "as the client wrote it", that is the text the caller took `select` from.
pub(crate) fn plan_select(select: &SelectStmt, context: &Context<'_>) -> Result<Planned, Refusal> {
    if let Some(expanded) = expanded(select, context)? {
        let analysis = analyse(&expanded, context)?;
        let planned = decide(&analysis, || expanded.clone(), context)?;
        if matches!(planned.plan, Plan::Gather(_))
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

/// Forces a gather of `select`, whose final statement is `before`, the query, `after`
/// (`DECLARE c CURSOR FOR `, ``; `COPY (`, `) TO STDOUT`).
pub(crate) fn gather_query(
    select: &SelectStmt,
    before: &str,
    after: &str,
    context: &Context<'_>,
) -> Result<Gather, Refusal> {
    let tree = match (with_views(select, context)?, expanded(select, context)?) {
        (Some(tree), _) if select.locking_clause.is_empty() => tree,
        (_, Some(expanded)) => expanded,
        _ => NodeEnum::SelectStmt(Box::new(select.clone())),
    };
    let analysis = analyse(&tree, context)?;
    let mut gather = gather_all(&analysis, tree.clone(), context)?;
    gather.statement = gather.statement.wrap(before, after);
    Ok(gather)
}

/// The query with its views over distributed tables written out, if it has any.
fn expanded(select: &SelectStmt, context: &Context<'_>) -> Result<Option<NodeEnum>, Refusal> {
    if context.catalog.is_solo() || !views::select_mentions_view(select, context) {
        return Ok(None);
    }
    let mut tree = NodeEnum::SelectStmt(Box::new(select.clone()));
    Ok(views::expand(&mut tree, Views::None, context)?.is_any().then_some(tree))
}

/// The query as it is gathered with the rights of its views: those that each node can answer for its
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
        Ok(Planned::new(Plan::One { node, access, otherwise: None }, why))
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
            return one(NodeChoice::Home, access, "it reads no table of the cluster".to_owned());
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
                            Planned::new(Plan::Refused(Box::new(refusal)), "it cannot be planned")
                        });
                    let node = NodeChoice::Pinned(pins);
                    let plan = Plan::One { node, access, otherwise: Some(Box::new(otherwise)) };
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
    let obstacle = home.or_else(|| scatter::obstacle(analysis));
    let obstacle = obstacle.or_else(|| analysis.time_in_view.clone());
    let Some(obstacle) = obstacle else {
        let answer = match analysis.functions.reads_time {
            true => "each node answers for its own rows, all with the time of node 1",
            false => "each node answers for its own rows",
        };
        let why = match not_pinned(analysis) {
            Some(not_pinned) => format!("{not_pinned}; {answer}"),
            None => answer.to_owned(),
        };
        let access = access(analysis);
        if !analysis.functions.reads_time {
            return Ok(Planned::new(Plan::Scatter { access }, why));
        }
        let order = Order { collect: &[], literal_time: true };
        let (collects, statement) = gather::build(tree(), analysis, &order, context)?;
        let gather = Gather { collects, statement, run_on: RunOn::EachNode, access, writes: None };
        return Ok(Planned::new(Plan::Gather(gather), why));
    };
    let gather = gather_all(analysis, tree(), context)?;
    let why = match not_pinned(analysis) {
        Some(not_pinned) => format!("{not_pinned}; {obstacle}"),
        None => obstacle,
    };
    Ok(Planned::new(Plan::Gather(gather), why))
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
    let mut collect = analysis.distributed().map(|(item, ..)| item).collect::<Vec<_>>();
    if context.collects_replicated {
        collect.extend(gather::collectable_on_node_1(analysis));
    }
    let is_home = home_reason(analysis).is_some() || analysis.functions.may_write.is_some();
    let node = if is_home { NodeChoice::Home } else { NodeChoice::Any };
    let order = Order { collect: &collect, literal_time: false };
    let (collects, statement) = gather::build(tree, analysis, &order, context)?;
    let has_locks =
        analysis.locked.iter().any(|item| analysis.items[*item].distributed().is_none());
    let access = if has_locks || analysis.functions.may_write.is_some() {
        Access::Write
    } else {
        Access::Read
    };
    Ok(Gather { collects, statement, run_on: RunOn::One(node), access, writes: None })
}

/// What the statement does to the nodes it runs on.
pub(super) fn access(analysis: &Analysis<'_>) -> Access {
    let writes = !analysis.locked.is_empty()
        || analysis.functions.may_write.is_some()
        || analysis.functions.sequence
        || !analysis.modifications.is_empty();
    if writes { Access::Write } else { Access::Read }
}

/// Why node 1 must take part, if it must.
pub(super) fn home_reason(analysis: &Analysis<'_>) -> Option<String> {
    if let Some(relation) = &analysis.home_relation {
        return Some(format!("{relation} is on node 1 only"));
    }
    analysis.functions.home.as_ref().map(|name| format!("{name}() must be called on node 1"))
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

/// The pins of all distributed tables together, if all are pinned.
pub(super) fn all_pins(analysis: &Analysis<'_>, facts: &Facts<'_, '_>) -> Option<Vec<Pin>> {
    let mut pins = Vec::new();
    for (item, ..) in analysis.distributed() {
        for pin in facts.pins_of(item)? {
            if !pins.contains(&pin) {
                pins.push(pin);
            }
        }
    }
    Some(pins)
}

pub(super) fn pinned_reason(analysis: &Analysis<'_>, values: usize) -> String {
    let mut keys = Vec::new();
    let mut tables = 0;
    for (_, relation, spread) in analysis.distributed() {
        tables += 1;
        if let Spread::Hash { key, .. } = spread {
            let key = relation.columns[key].name.as_str();
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
    let keys = keys.join(", ");
    let by = if values == 1 { "one value" } else { "values" };
    match tables {
        1 => format!("its distributed table is pinned to {by} of {keys}"),
        _ => format!("all its distributed tables are pinned to {by} of {keys}"),
    }
}

/// The first table that is not pinned, and why, as a clause.
pub(super) fn not_pinned(analysis: &Analysis<'_>) -> Option<String> {
    let facts = Facts::from_values(analysis);
    analysis.distributed().find(|(item, ..)| facts.pins_of(*item).is_none()).map(
        |(_, relation, spread)| match spread {
            Spread::Hash { key, .. } => format!(
                "{} is not pinned: no usable equality on its distribution key {}",
                relation.name, relation.columns[key].name
            ),
            _ => format!("{} has no distribution key", relation.name),
        },
    )
}

/// Statements with INSERT, UPDATE, DELETE or MERGE in WITH.
pub(super) fn modifying(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let main = analysis.target.and_then(|target| match analysis.items[target].source {
        Source::Table { relation, .. } => Some(relation),
        _ => None,
    });
    let relations = || analysis.modifications.iter().filter_map(|of| of.relation).chain(main);
    relations().try_for_each(|relation| refuse_unsafe_code(relation, events::ALL, context))?;
    for relation in relations() {
        if let RelationKind::View { definition } = &relation.kind
            && views::contents(relation, definition, context)?.distributed
        {
            return Err(dml::refuse_view(relation));
        }
    }
    let why = "a statement in WITH changes data".to_owned();
    if analysis.distributed().next().is_none() {
        let rows = replicas::rows_of_tables(relations(), &replicas::Effect::any(), context);
        let is_proven =
            || analysis.home_relation.is_none() && replicas::obstacle(tree, context).is_none();
        let plan = if rows.tables.is_empty() {
            Plan::One { node: NodeChoice::Home, access: Access::Write, otherwise: None }
        } else if is_proven() {
            Plan::Replicas { locks: dml::replica_locks(analysis), rows }
        } else {
            Plan::Rows(rows)
        };
        return Ok(Planned::new(plan, why));
    }
    let targets = || analysis.modifications.iter().filter_map(|of| of.target);
    let spread = |item: ItemId| analysis.items[item].distributed().is_some();
    let inserts_spread = analysis.modifications.iter().any(|of| {
        matches!(of.kind, ModificationKind::Insert | ModificationKind::Merge)
            && of.target.is_some_and(spread)
    });
    let replicated_target = targets().any(|item| analysis.items[item].replicated().is_some());
    let home = home_reason(analysis).is_some();
    let facts = Facts::from_values(analysis);
    let is_select = analysis.target.is_none();
    match all_pins(analysis, &facts) {
        Some(pins)
            if is_select
                && !home
                && !inserts_spread
                && !replicated_target
                && !analysis.moves_key
                && landing(&pins, context.catalog) != Landing::Several =>
        {
            let node = NodeChoice::Pinned(pins);
            Ok(Planned::new(Plan::One { node, access: Access::Write, otherwise: None }, why))
        }
        _ => Err(modifying_refusal()),
    }
}

fn modifying_refusal() -> Refusal {
    Refusal::unsupported(
        "a statement in WITH that changes data must concern one node or replicated tables only",
        "All its parts see one snapshot, which Tutti cannot give to parts on several nodes.",
        "Pin every distributed table by its distribution key, or send the parts as statements of \
         their own in one transaction.",
    )
}

#[cfg(test)]
mod tests;
