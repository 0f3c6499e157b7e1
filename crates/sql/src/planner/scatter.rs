//! Whether a statement can run unchanged on every node and its answers be concatenated.
//!
//! Owns: the search for base tables. Never: cares how rows are ordered; ORDER BY is not concatenation.
//! Start reading at [`obstacle`].
//!
//! A base table is a distributed table in which the statement is linear: its result over all rows is
//! the concatenation of its results over each node's rows of the base table. If with only a node's rows
//! of the base table only that node's rows of every other distributed table matter (`pins.rs`), each
//! node computes its part alone.

use super::analysis::{
    Analysis, BroughtItem, ColumnId, Constraint, Item, ItemId, Query, QueryId, Source, Whereabouts,
};
use super::pins::Facts;
use crate::catalog::MapId;
use crate::hash::KeyType;

/// More choices of base tables than this are not tried; UNION ALL multiplies them.
const BASE_CHOICES_MAX: usize = 16;

/// Why the query cannot run node by node, as a clause for the plan's reason; `None` if it can.
pub(super) fn obstacle(analysis: &Analysis<'_>) -> Option<String> {
    if let Some(obstacle) = general_obstacle(analysis) {
        return Some(obstacle);
    }
    let choices = bases(analysis, 0);
    if choices.is_empty() {
        return Some(shape_obstacle(analysis, &analysis.queries[0]));
    }
    if choices.iter().any(|bases| are_enough(analysis, bases)) {
        return None;
    }
    Some(match &choices[0][..] {
        [base] => loose_table(analysis, *base),
        _ => "the parts of the union are not each on one node".to_owned(),
    })
}

/// Why what a query with groups or aggregates groups is not what each node finds for itself, concatenated.
pub(super) fn obstacle_before_grouping(analysis: &Analysis<'_>) -> Option<String> {
    if let Some(obstacle) = general_obstacle(analysis) {
        return Some(obstacle);
    }
    match bases_before_grouping(analysis).iter().any(|bases| are_enough(analysis, bases)) {
        true => None,
        false => Some("no table's rows are apart from one node to another".to_owned()),
    }
}

/// Sets of tables in whose rows, before they are grouped, the query is linear.
fn bases_before_grouping(analysis: &Analysis<'_>) -> Vec<Vec<ItemId>> {
    let level = &analysis.queries[0];
    let linear = level.items.iter().filter(|item| analysis.items[**item].linear);
    let choices = linear.flat_map(|&item| match analysis.items[item].source {
        Source::Table { spread: Whereabouts::Hash { .. } | Whereabouts::RoundRobin, .. } => {
            vec![vec![item]]
        }
        Source::Query(inner) => bases(analysis, inner),
        Source::Table { .. } | Source::Opaque => Vec::new(),
    });
    choices.collect()
}

/// Sets of tables whose rows the nodes would need from each other, for the rest to be read where it is: one for each
/// choice of the tables that stay, then those in which the rows of all that are joined meet by the hash of what joins
/// them. Each node needs all rows of such a table, or, where they are joined so, those that have a hash.
pub(super) fn tables_elsewhere(analysis: &Analysis<'_>) -> Vec<Vec<BroughtItem>> {
    if general_obstacle(analysis).is_some() {
        return Vec::new();
    }
    let staying = bases_before_grouping(analysis).into_iter().map(|bases| {
        let facts = Facts::from_bases(analysis, &bases);
        let is_elsewhere = |item: &ItemId| !bases.contains(item) && !facts.is_local(*item);
        elsewhere(analysis, &facts, is_elsewhere)
    });
    let mut all: Vec<Vec<BroughtItem>> = Vec::new();
    for brought in staying.chain(meetings(analysis)) {
        if !brought.is_empty() && !all.contains(&brought) {
            all.push(brought);
        }
    }
    all
}

/// The tables of which this holds, and where the facts let each be.
fn elsewhere(
    analysis: &Analysis<'_>,
    facts: &Facts<'_, '_>,
    is_elsewhere: impl Fn(&ItemId) -> bool,
) -> Vec<BroughtItem> {
    let elsewhere: Vec<_> =
        analysis.distributed().map(|(item, ..)| item).filter(is_elsewhere).collect();
    let brought = |item: &ItemId| {
        // All mentions of a table have the same rows.
        let same = elsewhere.iter().filter(|other| is_same_table(*item, **other, analysis));
        let mut columns = same.map(|other| facts.local_column(*other));
        let first = columns.next().flatten();
        let at = match first.filter(|_| columns.all(|column| column == first)) {
            Some((key, map)) => Whereabouts::Hash { key, map },
            None => Whereabouts::Replicated,
        };
        BroughtItem { item: *item, at }
    };
    elsewhere.iter().map(brought).collect()
}

/// For each table and each of its columns that is joined, if the query is linear in the table once its rows are apart
/// by the hash of that column: they, and those of the others that it is joined with, by the hash of theirs, unless they
/// are there already.
fn meetings(analysis: &Analysis<'_>) -> Vec<Vec<BroughtItem>> {
    let Some(maps) = analysis.maps else { return Vec::new() };
    let is_by_hash = |map: &MapId| maps.get(map).is_some_and(|of| of.bucketing.splits().is_none());
    let of_tables = analysis.distributed().filter_map(|(_, _, spread)| match spread {
        Whereabouts::Hash { map, .. } => Some(map),
        _ => None,
    });
    let mut candidates: Vec<_> = of_tables.filter(is_by_hash).collect();
    candidates.dedup();
    if candidates.is_empty() {
        candidates.extend(maps.keys().copied().find(is_by_hash));
    }
    let columns = analysis.distributed().flat_map(|(item, ..)| joined_columns(analysis, item));
    let meetings = columns.filter_map(|column| {
        let of_maps = candidates.iter().filter_map(|map| meeting(analysis, column, *map));
        // By a map by which some table is there already, the fewest travel.
        of_maps.min_by_key(Vec::len)
    });
    meetings.collect()
}

/// The tables that are brought to where the rows of one are by the hash of this column; `None` if it is of no use.
fn meeting(analysis: &Analysis<'_>, column: ColumnId, map: MapId) -> Option<Vec<BroughtItem>> {
    let base = BroughtItem { item: column.item, at: Whereabouts::Hash { key: column.column, map } };
    let facts = Facts::from_meeting(analysis, column, map);
    let is_elsewhere = |item: &ItemId| *item == base.item || !facts.is_local(*item);
    let brought = elsewhere(analysis, &facts, is_elsewhere);
    // Otherwise another mention of the table needs its rows elsewhere.
    let is_apart = brought.contains(&base);
    let is_met = |item: ItemId| {
        let comes = |of: &BroughtItem| of.item == item && of.at != Whereabouts::Replicated;
        item != base.item && (facts.is_local(item) || brought.iter().any(comes))
    };
    let is_of_use = is_apart && analysis.distributed().any(|(item, ..)| is_met(item));
    let is_linear =
        || bases_before_grouping(&analysis.with_brought(&[base])).contains(&vec![base.item]);
    (is_of_use && is_linear()).then_some(brought)
}

/// The columns of a table, beside its key, that the statement compares with others and whose values meet their equals
/// by their hash.
fn joined_columns(analysis: &Analysis<'_>, item: ItemId) -> Vec<ColumnId> {
    let key = match analysis.items[item].distributed() {
        Some((_, Whereabouts::Hash { key, .. })) => Some(key),
        _ => None,
    };
    let sides = analysis.constraints.iter().filter_map(|constraint| match constraint {
        Constraint::Equal { left, right, .. } => Some([*left, *right]),
        Constraint::OneOf { .. } | Constraint::Bound { .. } => None,
    });
    let mut columns = Vec::new();
    for column in sides.flatten().filter_map(|side| analysis.column_within(side)) {
        let of = analysis.items[item].relation().and_then(|it| it.columns.get(column.column));
        let has_hash =
            of.is_some_and(|of| !of.nondeterministic && KeyType::from_oid(of.type_oid).is_some());
        let is_key = key == Some(column.column);
        if column.item == item && has_hash && !is_key && !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns
}

fn is_same_table(one: ItemId, other: ItemId, analysis: &Analysis<'_>) -> bool {
    let name = |item: ItemId| {
        let (relation, _) = analysis.items[item].distributed()?;
        Some((&relation.schema, &relation.name))
    };
    name(one) == name(other)
}

/// The same for UPDATE and DELETE of a distributed table.
pub(super) fn write_obstacle(analysis: &Analysis<'_>, target: ItemId) -> Option<String> {
    if !are_enough(analysis, &[target]) {
        return Some(loose_table(analysis, target));
    }
    unstable_subquery(analysis)
}

/// A sample of rows that all nodes have: each would take another.
fn sample_elsewhere(analysis: &Analysis<'_>) -> Option<String> {
    let is_sampled = |item: &&Item<'_>| item.sample.is_some();
    let found = analysis.items.iter().filter(is_sampled).find_map(Item::whole_on_node_1)?;
    Some(format!("{} has another sample on each node", found.name))
}

fn general_obstacle(analysis: &Analysis<'_>) -> Option<String> {
    if let Some(name) = &analysis.functions.volatile {
        return Some(format!("{name}() is volatile"));
    }
    if analysis.outer_aggregate {
        return Some("an aggregate in a subquery belongs to the query around it".to_owned());
    }
    unstable_subquery(analysis)
}

/// A subquery over replicated tables that need not give the same rows on every node.
pub(super) fn unstable_subquery(analysis: &Analysis<'_>) -> Option<String> {
    if let Some(sample) = sample_elsewhere(analysis) {
        return Some(sample);
    }
    let is_unstable =
        |id: &QueryId| analysis.queries[*id].unstable && !analysis.reads_distributed(*id);
    (1..analysis.queries.len()).find(is_unstable).map(|_| {
        "a subquery with LIMIT, windows or ordered aggregates may differ by node".to_owned()
    })
}

/// Whether a node's rows of `bases` need only that node's rows of everything else.
fn are_enough(analysis: &Analysis<'_>, bases: &[ItemId]) -> bool {
    let mut others =
        analysis.distributed().map(|(item, ..)| item).filter(|item| !bases.contains(item));
    let Some(first) = others.next() else { return true };
    let facts = Facts::from_bases(analysis, bases);
    facts.is_local(first) && others.all(|item| facts.is_local(item))
}

/// Sets of tables in which the query is linear when all are taken together.
fn bases(analysis: &Analysis<'_>, query: QueryId) -> Vec<Vec<ItemId>> {
    let of = &analysis.queries[query];
    if of.has_limit
        || of.has_order
        || of.has_distinct_on
        || of.has_windows
        || of.has_grouping_sets
        || of.recursive
        || of.references > 1
        || (of.has_aggregates && !of.has_grouping)
    {
        return Vec::new();
    }
    if let Some(set) = of.set {
        if !set.union_all {
            return Vec::new();
        }
        let right = bases(analysis, set.right);
        let pairs = bases(analysis, set.left).into_iter().flat_map(|left| {
            right.iter().map(move |right| left.iter().chain(right).copied().collect())
        });
        return pairs.take(BASE_CHOICES_MAX).collect();
    }
    let mut choices = Vec::new();
    for &item in &of.items {
        if !analysis.items[item].linear {
            continue;
        }
        match analysis.items[item].source {
            Source::Table { spread, .. } if keeps_groups_apart(of, item, &analysis.items[item]) => {
                if matches!(spread, Whereabouts::Hash { .. } | Whereabouts::RoundRobin) {
                    choices.push(vec![item]);
                }
            }
            Source::Query(inner) if !of.has_grouping && !of.has_distinct => {
                choices.extend(bases(analysis, inner));
            }
            _ => (),
        }
    }
    choices
}

/// No group and no set of duplicates has rows of the table on two nodes.
fn keeps_groups_apart(query: &Query<'_>, item: ItemId, of: &Item<'_>) -> bool {
    let key: Vec<_> = match (of.several(), &of.source) {
        (Some((key, _)), _) => key.iter().map(|part| part.column).collect(),
        (None, Source::Table { spread: Whereabouts::Hash { key, .. }, .. }) => vec![*key],
        _ => Vec::new(),
    };
    let key: Vec<_> = key.into_iter().map(|column| ColumnId { item, column }).collect();
    let outputs = query.outputs.as_deref().unwrap_or_default();
    let is_shown = |key: &ColumnId| outputs.iter().any(|output| output.column == Some(*key));
    let groups = !query.has_grouping
        || !key.is_empty() && key.iter().all(|key| query.group_columns.contains(key));
    let distinct = !query.has_distinct || !key.is_empty() && key.iter().all(is_shown);
    groups && distinct
}

fn shape_obstacle(analysis: &Analysis<'_>, query: &Query<'_>) -> String {
    let what = if query.has_aggregates && !query.has_grouping {
        "aggregates"
    } else if query.has_grouping {
        "GROUP BY"
    } else if query.has_windows {
        "window functions"
    } else if query.has_distinct {
        "DISTINCT"
    } else if query.has_limit {
        "LIMIT"
    } else if query.has_order {
        "ORDER BY"
    } else if query.set.is_some() {
        "set operation"
    } else if query.items.iter().any(|item| analysis.items[*item].linear) {
        "subquery"
    } else {
        "outer join"
    };
    format!("{what} over several nodes")
}

fn loose_table(analysis: &Analysis<'_>, base: ItemId) -> String {
    let facts = Facts::from_bases(analysis, &[base]);
    let loose = analysis
        .distributed()
        .find(|(item, ..)| *item != base && !facts.is_local(*item))
        .map_or("another table", |(_, relation, _)| &relation.name);
    let base = analysis.items[base].distributed().map_or("it", |(relation, _)| &relation.name);
    format!("{loose} is not joined to {base} on both distribution keys")
}
