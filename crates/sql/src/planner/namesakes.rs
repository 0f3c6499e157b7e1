//! Tables of one name in several schemas, of which the rows are brought together.
//!
//! Owns: what those are called in the final statement, where no schema tells them apart, and which references may
//! mean them. Never: rewrites a reference (`gather.rs` does).
//! Start reading at [`renamed`].

use std::collections::BTreeMap;

use pg_query::NodeEnum;
use pg_query::protobuf::{ColumnRef, JoinExpr, Node, SelectStmt};

use super::analysis::{Analysis, ColumnUse, Item, ItemId, NOWHERE, Source};
use super::output_names;
use super::syntax::string;
use crate::refusal::Refusal;
use crate::walk;

/// The column references of a statement.
#[derive(Default)]
pub(super) struct References<'t> {
    all: Vec<&'t ColumnRef>,
    /// Where those stand that mean an output.
    outputs_meant: Vec<i32>,
    /// Of those in an ON, where they stand, and where the tables do that are joined by then.
    in_joins: Vec<(i32, Vec<i32>)>,
}

impl<'t> References<'t> {
    pub(super) fn of(tree: &'t NodeEnum) -> Self {
        let mut references = Self::default();
        references.add(tree);
        references
    }

    fn add(&mut self, tree: &'t NodeEnum) {
        match tree {
            NodeEnum::ColumnRef(reference) => self.all.push(reference),
            NodeEnum::SelectStmt(select) => self.add_outputs_meant(select),
            NodeEnum::JoinExpr(join) => self.add_in_join(join),
            _ => (),
        }
        walk::read::children(tree, &mut |child| {
            if let Some(child) = &child.node {
                self.add(child);
            }
        });
    }

    /// Entries of ORDER BY and GROUP BY that are nothing but a name which an output of their query has: they mean the
    /// output, and no table's row.
    fn add_outputs_meant(&mut self, select: &SelectStmt) {
        let mut first = select;
        while let Some(left) = &first.larg {
            first = left;
        }
        let names: Vec<_> = first
            .target_list
            .iter()
            .filter_map(|target| match &target.node {
                // A table's row without AS is none of its own.
                Some(NodeEnum::ResTarget(target)) => output_names::own(target),
                _ => None,
            })
            .collect();
        let sorted = select.sort_clause.iter().filter_map(|part| match &part.node {
            Some(NodeEnum::SortBy(by)) => by.node.as_deref(),
            _ => None,
        });
        for node in sorted.chain(&select.group_clause).chain(&select.distinct_clause) {
            if let Some(NodeEnum::ColumnRef(reference)) = &node.node
                && let [name] = &reference.fields[..]
                && string(name).is_some_and(|name| names.contains(&name))
            {
                self.outputs_meant.push(reference.location);
            }
        }
    }

    fn add_in_join(&mut self, join: &JoinExpr) {
        let Some(quals) = join.quals.as_ref().and_then(|quals| quals.node.as_ref()) else { return };
        let mut tables = Vec::new();
        for side in [&join.larg, &join.rarg].into_iter().flatten() {
            from_locations(side, &mut tables);
        }
        let mut below = Self::default();
        below.add(quals);
        self.in_joins.extend(below.all.iter().map(|it| (it.location, tables.clone())));
    }

    /// Whether a reference at this place may mean a table that stands at that one: in an ON, of those that are joined
    /// by then.
    fn may_mean(&self, reference: i32, table: i32) -> bool {
        let joined = self.in_joins.iter().find(|(location, _)| *location == reference);
        joined.is_none_or(|(_, tables)| tables.contains(&table))
    }

    /// Those that say a schema.
    fn with_schemas(&self) -> impl Iterator<Item = &'t ColumnRef> {
        self.all.iter().copied().filter(|reference| 2 < reference.fields.len())
    }

    /// Those that may say a table without its schema: where, which name, and whether `name.column` or a name alone.
    fn by_names_alone(&self) -> impl Iterator<Item = (i32, &'t str, bool)> {
        self.all.iter().filter_map(|reference| match &reference.fields[..] {
            [name] | [name, _] if !self.outputs_meant.contains(&reference.location) => {
                Some((reference.location, string(name)?, reference.fields.len() == 2))
            }
            _ => None,
        })
    }

    /// Where those stand that mean an output.
    pub(super) fn into_outputs_meant(self) -> Vec<i32> {
        self.outputs_meant
    }
}

/// What those collected tables are called in the final statement that are told apart from others by their schemas, of which
/// the rows that come in their place have none.
///
/// Errors: 0A000 if it is not certain where they are mentioned.
pub(super) fn renamed(
    collected: &[ItemId],
    references: &References<'_>,
    analysis: &Analysis<'_>,
) -> Result<BTreeMap<ItemId, String>, Refusal> {
    let mut renamed = BTreeMap::new();
    for &item in collected {
        let Item { name, alias, .. } = analysis.items[item];
        let others = || {
            (0..analysis.items.len()).filter(|it| *it != item && analysis.items[*it].name == name)
        };
        if name.is_empty() || alias.is_some() || others().next().is_none() {
            continue;
        }
        if others().any(|other| {
            stand_together(item, other, analysis) && !are_told_apart(item, other, analysis)
        }) {
            // As on one server, it is said of both names that they mean either.
            continue;
        }
        let beside: Vec<_> =
            others().filter(|other| stand_together(item, *other, analysis)).collect();
        let is_beside_another = !beside.is_empty();
        let may_mean = |reference: i32, item: ItemId| {
            references.may_mean(reference, analysis.items[item].location)
        };
        let is_ambiguous = |reference: i32| {
            may_mean(reference, item) && beside.iter().any(|other| may_mean(reference, *other))
        };
        let by_name = |of: &&ColumnUse| {
            (of.item == item || beside.contains(&of.item))
                && is_ambiguous(of.location)
                && references.by_names_alone().any(|(location, called, is_column)| {
                    location == of.location
                        && of.location != NOWHERE
                        && called == name
                        && (is_column || of.column.is_none())
                })
        };
        if is_beside_another && analysis.uses.iter().any(|of| by_name(&of)) {
            let message = format!("table reference \"{name}\" is ambiguous");
            return Err(Refusal::postgres("42P09", message));
        }
        let is_called_by_schema = analysis.uses.iter().any(|of| {
            of.item == item && references.with_schemas().any(|it| it.location == of.location)
        });
        if !is_beside_another && !is_called_by_schema {
            // By its name alone it means what it means without the rows of others.
            continue;
        }
        let is_loose = references.with_schemas().any(|reference| {
            let is_known = analysis.uses.iter().any(|of| of.location == reference.location);
            !is_known && reference.fields.iter().filter_map(string).any(|field| field == name)
        });
        if is_loose || (is_beside_another && analysis.loose_names.contains(&name)) {
            return Err(Refusal::unsupported(
                format!("it is not certain where this statement means which \"{name}\""),
                "Several tables have that name, and the rows of one are brought together.",
                "Give the tables different aliases.",
            ));
        }
        renamed.insert(item, free_name(item, analysis));
    }
    Ok(renamed)
}

/// A name that nothing in the statement has.
fn free_name(item: ItemId, analysis: &Analysis<'_>) -> String {
    let mut name = format!("tutti_{item}");
    while analysis.items.iter().any(|item| item.name == name) {
        name.push('_');
    }
    name
}

/// Whether two items stand in the same FROM.
fn stand_together(one: ItemId, other: ItemId, analysis: &Analysis<'_>) -> bool {
    analysis.queries.iter().any(|query| query.items.contains(&one) && query.items.contains(&other))
}

/// Whether two items of one name are different tables, told apart by their schemas.
fn are_told_apart(one: ItemId, other: ItemId, analysis: &Analysis<'_>) -> bool {
    let relation = |item: ItemId| match &analysis.items[item].source {
        Source::Table { relation, .. } => Some(relation.oid),
        Source::Query(_) | Source::Opaque => None,
    };
    analysis.items[other].alias.is_none()
        && relation(other).is_some()
        && relation(one) != relation(other)
}

/// Locations of the tables directly in a FROM entry.
pub(super) fn from_locations(node: &Node, locations: &mut Vec<i32>) {
    match &node.node {
        Some(NodeEnum::RangeVar(range)) => locations.push(range.location),
        Some(NodeEnum::JoinExpr(join)) => {
            for side in [&join.larg, &join.rarg].into_iter().flatten() {
                from_locations(side, locations);
            }
        }
        _ => (),
    }
}
