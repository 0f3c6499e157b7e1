//! What a statement says, as the planner needs it: tables, query levels, filters, uses of columns.
//!
//! Owns: the types. `analyse.rs` fills them, `names.rs` resolves names in them.
//! Never: decides anything.
//! Start reading at [`Analysis`].

use std::sync::Arc;

use super::function_use::FunctionUse;
use super::syntax::string;
use crate::catalog::{Column, KeyPart, MapId, Maps, Placement, Relation};
use crate::shape::Hole;
use pg_query::protobuf::{Alias, ColumnRef, Node, RangeTableSample};

/// Index in [`Analysis::items`].
pub(super) type ItemId = usize;
/// Index in [`Analysis::queries`].
pub(super) type QueryId = usize;

/// A column of an item.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ColumnId {
    pub(super) item: ItemId,
    /// In the relation's or the query's order.
    pub(super) column: usize,
}

/// Where the rows of an item come from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    /// A table, or a view that contains no distributed table.
    Table { relation: &'a Arc<Relation>, spread: Whereabouts },
    /// A subquery or a CTE that does not refer to itself.
    Query(QueryId),
    /// A function, a relation that only node 1 knows, a recursive CTE.
    Opaque,
}

/// Where the rows of a table are, for the purpose of planning.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Whereabouts {
    /// By hash of column `key`.
    Hash { key: usize, map: MapId },
    /// Anywhere; also where several columns together say ([`Item::several`]).
    RoundRobin,
    /// Everywhere.
    Replicated,
    /// On node 1.
    Home,
}

impl Whereabouts {
    pub(super) fn of(relation: &Relation) -> Self {
        match relation.placement {
            _ if relation.returned_by.is_some() => Self::RoundRobin,
            Placement::Hash { key, map, .. } => Self::Hash { key, map },
            Placement::RoundRobin | Placement::HashOfSeveral { .. } => Self::RoundRobin,
            Placement::Replicated => Self::Replicated,
            Placement::Home | Placement::Async { .. } => Self::Home,
        }
    }
}

/// One entry of some FROM clause (also: the target of a write, the query of an IN).
#[derive(Clone, Debug)]
pub(super) struct Item<'a> {
    pub(super) source: Source<'a>,
    /// The name that qualifies its columns; empty if nothing can.
    pub(super) name: &'a str,
    /// `AS name (columns)`, if written.
    pub(super) alias: Option<&'a Alias>,
    /// Location of its `RangeVar`, unique in the statement; -1 for others.
    pub(super) location: i32,
    /// No row of it is null-extended or only tested for: the level's rows are linear in it.
    pub(super) linear: bool,
    /// Its TABLESAMPLE, if it is read through one.
    pub(super) sample: Option<&'a RangeTableSample>,
    /// ONLY: without the rows of tables that inherit from it, or of partitions.
    pub(super) only: bool,
    /// A view that may give other rows each time it is read.
    pub(super) varies: bool,
    /// Hidden after the alias of a join.
    pub(super) hidden: bool,
}

impl<'a> Item<'a> {
    /// The table with distributed rows, if it is one.
    pub(super) fn distributed(&self) -> Option<(&'a Arc<Relation>, Whereabouts)> {
        match self.source {
            Source::Table {
                relation,
                spread: spread @ (Whereabouts::Hash { .. } | Whereabouts::RoundRobin),
            } => Some((relation, spread)),
            _ => None,
        }
    }

    /// The columns of its key, and the map, if it is a table whose rows are where several columns together say.
    pub(super) fn several(&self) -> Option<(&'a [KeyPart], MapId)> {
        match self.source {
            Source::Table { relation, spread: Whereabouts::RoundRobin }
                if relation.returned_by.is_none() =>
            {
                match &relation.placement {
                    Placement::HashOfSeveral { key, map } => Some((key, *map)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The table, if it is one, or a view that contains no distributed table.
    pub(super) fn relation(&self) -> Option<&'a Arc<Relation>> {
        match self.source {
            Source::Table { relation, .. } => Some(relation),
            Source::Query(_) | Source::Opaque => None,
        }
    }

    /// The relation that node 1 has whole, if it is one.
    pub(super) fn whole_on_node_1(&self) -> Option<&'a Arc<Relation>> {
        match self.source {
            Source::Table { relation, spread: Whereabouts::Replicated | Whereabouts::Home } => {
                Some(relation)
            }
            _ => None,
        }
    }

    /// Whether it is a table or view that only node 1 has.
    pub(super) fn is_at_home(&self) -> bool {
        matches!(self.source, Source::Table { spread: Whereabouts::Home, .. })
    }

    /// The replicated table, if it is one.
    pub(super) fn replicated(&self) -> Option<&'a Arc<Relation>> {
        match self.source {
            Source::Table { relation, spread: Whereabouts::Replicated } => Some(relation),
            _ => None,
        }
    }
}

/// A table whose rows are brought to the nodes before the rest is run there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct BroughtItem {
    pub(super) item: ItemId,
    /// Where they are then: on every node, or each on one, by the hash of a column.
    pub(super) at: Whereabouts,
}

/// An output column of a query.
#[derive(Clone, Debug)]
pub(super) struct Output<'a> {
    pub(super) name: &'a str,
    /// The column that it is, if it is nothing but one.
    pub(super) column: Option<ColumnId>,
    /// The expression that it is, if it is written.
    pub(super) value: Option<&'a Node>,
}

/// A set operation's parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct SetOperation {
    pub(super) left: QueryId,
    pub(super) right: QueryId,
    /// UNION ALL.
    pub(super) union_all: bool,
}

/// One query level.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent clause of SELECT")]
pub(super) struct Query<'a> {
    pub(super) set: Option<SetOperation>,
    /// `None`: not known.
    pub(super) outputs: Option<Vec<Output<'a>>>,
    /// Entries of its FROM, hidden ones too.
    pub(super) items: Vec<ItemId>,
    /// Columns merged by USING or NATURAL, with the column that has their value.
    pub(super) merged: Vec<(&'a str, Option<ColumnId>)>,
    /// Those of them that may have another type, or another length, than that column.
    pub(super) merged_unlike: Vec<&'a str>,
    /// A NATURAL join with something whose columns are not known.
    pub(super) names_unknown: bool,
    /// Its WHERE.
    pub(super) condition: Option<&'a Node>,
    /// The ON of its joins, each with the items of which rows that break it may be left out.
    pub(super) join_conditions: Vec<(&'a Node, Vec<ItemId>)>,
    pub(super) having: Option<&'a Node>,
    /// How many places read it.
    pub(super) references: usize,
    pub(super) has_order: bool,
    /// LIMIT, OFFSET or FETCH.
    pub(super) has_limit: bool,
    pub(super) has_distinct: bool,
    pub(super) has_distinct_on: bool,
    pub(super) has_windows: bool,
    pub(super) has_aggregates: bool,
    pub(super) has_grouping: bool,
    pub(super) has_grouping_sets: bool,
    /// A set-returning function among its outputs.
    pub(super) has_row_makers: bool,
    /// Its result may differ between two nodes that have the same rows (LIMIT, row order).
    pub(super) unstable: bool,
    /// Plain columns in GROUP BY.
    pub(super) group_columns: Vec<ColumnId>,
    /// It is part of a CTE that refers to itself.
    pub(super) recursive: bool,
    /// It is computed as part of an expression: PostgreSQL may never come to it.
    pub(super) in_expression: bool,
}

impl Query<'_> {
    /// A filter on output `column` may be moved into it without changing what passes.
    pub(super) fn takes_filter(&self, column: usize) -> bool {
        if self.references != 1
            || self.recursive
            || self.has_limit
            || self.has_distinct_on
            || self.has_windows
            || self.has_grouping_sets
            || self.has_row_makers
        {
            return false;
        }
        if self.has_grouping || self.has_aggregates {
            let column = self.outputs.as_ref().and_then(|outputs| outputs.get(column)?.column);
            return column.is_some_and(|column| self.group_columns.contains(&column));
        }
        true
    }
}

/// A value that a column is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// An integer literal.
    Integer(i64),
    /// A numeric literal, or an integer too large for 32 bits, as written.
    Number(&'a str),
    /// A string literal whose type follows from what it is compared with.
    Untyped(&'a str),
    /// A string literal cast to a type of this family of key types.
    Typed(&'a str, &'static str),
    /// `$n`, counted from 0.
    Parameter(u16),
    /// `$n` cast to a type of this family of key types.
    CastParameter(u16, &'static str),
    /// Some literal of the statement's shape.
    Hole(Hole),
}

/// What a WHERE or ON clause demands of the rows that pass it.
#[derive(Clone, Debug)]
pub(super) enum Constraint<'a> {
    /// Two columns are equal; rows of the items marked `pins_…` that break it may be left out.
    Equal { left: ColumnId, pins_left: bool, right: ColumnId, pins_right: bool },
    /// A column has one of these values; rows of its item that break it may be left out.
    OneOf { column: ColumnId, values: Vec<Value<'a>> },
    /// A column has no value beyond this one; rows of its item that break it may be left out. Only where tables are
    /// distributed by ranges.
    Bound { column: ColumnId, value: Value<'a>, side: Side },
}

/// Where a column's values are, seen from a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Side {
    /// Above it, or there.
    From,
    /// Below it, or there.
    To,
    /// Below it.
    Below,
}

/// Of a use that is no reference.
pub(super) const NOWHERE: i32 = -1;

/// A mention of an item's column.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnUse {
    pub(super) item: ItemId,
    /// `None`: the whole row.
    pub(super) column: Option<usize>,
    /// Location of the `ColumnRef`; [`NOWHERE`] if there is none, as in USING.
    pub(super) location: i32,
    /// Inside an aggregate or in the WHERE or FROM of its level: it need not be in GROUP BY.
    pub(super) before_grouping: bool,
}

/// A mention of an item's system column.
#[derive(Clone, Copy, Debug)]
pub(super) struct SystemUse<'a> {
    pub(super) item: ItemId,
    pub(super) name: &'a str,
    /// Location of the `ColumnRef`.
    pub(super) location: i32,
    /// Without the name of its table.
    pub(super) is_bare: bool,
}

/// A data-modifying statement in WITH.
#[derive(Clone, Copy, Debug)]
pub(super) struct Modification<'a> {
    /// The target, if the catalog knows it.
    pub(super) target: Option<ItemId>,
    pub(super) relation: Option<&'a Arc<Relation>>,
    pub(super) kind: ModificationKind,
}

/// Which statement changes data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ModificationKind {
    Insert,
    Update,
    Delete,
    Merge,
}

/// Everything that was found out about a statement.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a finding of its own")]
pub(super) struct Analysis<'a> {
    /// Of the catalog: how keys have their buckets. `None`: not known, so that none is.
    pub(super) maps: Option<&'a Maps>,
    pub(super) items: Vec<Item<'a>>,
    pub(super) queries: Vec<Query<'a>>,
    pub(super) constraints: Vec<Constraint<'a>>,
    pub(super) uses: Vec<ColumnUse>,
    /// Names in column references that could not be resolved with certainty.
    pub(super) loose_names: Vec<&'a str>,
    /// A `*` or NATURAL whose columns could not be resolved.
    pub(super) loose_star: bool,
    pub(super) functions: FunctionUse,
    /// Why the current time cannot be made the same on all nodes: a view reads it, and stays a view.
    pub(super) time_in_view: Option<String>,
    /// A relation that only node 1 has.
    pub(super) home_relation: Option<String>,
    /// The same, if it is more than a table of the statement's: it is not known, or its type is meant.
    pub(super) home_alone: Option<String>,
    /// Tables in WITH that are changed.
    pub(super) modifications: Vec<Modification<'a>>,
    /// An UPDATE in WITH assigns a distribution key.
    pub(super) moves_key: bool,
    /// Mentions of system columns.
    pub(super) system_columns: Vec<SystemUse<'a>>,
    /// Items whose rows are locked.
    pub(super) locked: Vec<ItemId>,
    /// Items of which all columns are named where none is computed: the right to read them is needed, their values
    /// are not.
    pub(super) only_named: Vec<ItemId>,
    /// A subquery is computed for each row around it.
    pub(super) computes_by_row: bool,
    /// An aggregate in a subquery that belongs to a query around it.
    pub(super) outer_aggregate: bool,
    /// The cursor of WHERE CURRENT OF.
    pub(super) current_of: Option<&'a str>,
    /// The target of UPDATE, DELETE or MERGE.
    pub(super) target: Option<ItemId>,
}

impl<'a> Analysis<'a> {
    /// Whether some map is of ranges.
    pub(super) fn has_ranges(&self) -> bool {
        let mut maps = self.maps.into_iter().flat_map(|maps| maps.values());
        maps.any(|map| map.bucketing.splits().is_some())
    }

    /// The same statement when the rows of these tables have been brought.
    pub(super) fn with_brought(&self, brought: &[BroughtItem]) -> Self {
        let mut analysis = self.clone();
        for of in brought {
            if let Source::Table { spread, .. } = &mut analysis.items[of.item].source {
                *spread = of.at;
            }
        }
        analysis
    }

    /// Whether it reads what a part of the statement has returned, which no node has.
    pub(super) fn reads_returned(&self) -> bool {
        self.distributed().any(|(_, relation, _)| relation.returned_by.is_some())
    }

    /// Whether a system column of the item is mentioned.
    pub(super) fn mentions_system_column(&self, item: ItemId) -> bool {
        self.system_columns.iter().any(|of| of.item == item)
    }

    /// Whether rows of distributed tables are read in a query.
    pub(super) fn reads_distributed(&self, query: QueryId) -> bool {
        let of = &self.queries[query];
        of.set.is_some_and(|set| {
            self.reads_distributed(set.left) || self.reads_distributed(set.right)
        }) || of.items.iter().any(|item| match self.items[*item].source {
            Source::Query(query) => self.reads_distributed(query),
            _ => self.items[*item].distributed().is_some(),
        })
    }

    /// The items with distributed rows.
    pub(super) fn distributed(
        &self,
    ) -> impl Iterator<Item = (ItemId, &'a Arc<Relation>, Whereabouts)> {
        self.items.iter().enumerate().filter_map(|(id, item)| {
            let (relation, spread) = item.distributed()?;
            Some((id, relation, spread))
        })
    }

    /// The column that a reference means, if it is a table's own.
    pub(super) fn column_of_table(&self, reference: &ColumnRef) -> Option<&'a Column> {
        let mut uses = self.uses.iter().filter(|of| of.location == reference.location);
        let (found, None) = (uses.next()?, uses.next()) else { return None };
        match self.items[found.item].source {
            Source::Table { relation, .. } => relation.columns.get(found.column?),
            Source::Query(_) | Source::Opaque => None,
        }
    }

    /// How many columns an item has, if known.
    pub(super) fn width(&self, item: ItemId) -> Option<usize> {
        match self.items[item].source {
            Source::Table { relation, .. } => Some(relation.columns.len()),
            Source::Query(query) => Some(self.queries[query].outputs.as_ref()?.len()),
            Source::Opaque => None,
        }
    }

    /// The name of an item's column.
    pub(super) fn column_name(&self, item: ItemId, column: usize) -> Option<&'a str> {
        let of = &self.items[item];
        if let Some(name) = of.alias.and_then(|alias| alias.colnames.get(column)) {
            return string(name);
        }
        match of.source {
            Source::Table { relation, .. } => Some(&relation.columns.get(column)?.name),
            Source::Query(query) => Some(self.queries[query].outputs.as_ref()?.get(column)?.name),
            Source::Opaque => None,
        }
    }

    /// The column of a table that `column` is, looking through subqueries.
    pub(super) fn base(&self, column: ColumnId) -> Option<(&'a Arc<Relation>, usize)> {
        match self.items[column.item].source {
            Source::Table { relation, .. } => Some((relation, column.column)),
            Source::Query(query) => self.base_of_output(query, column.column),
            Source::Opaque => None,
        }
    }

    /// The column of a table, or of what is not looked into, that a column of a query without set operations is.
    pub(super) fn column_within(&self, column: ColumnId) -> Option<ColumnId> {
        match self.items[column.item].source {
            Source::Query(query) => {
                let of = &self.queries[query];
                let output = of.outputs.as_ref()?.get(column.column)?;
                self.column_within(output.column.filter(|_| of.set.is_none() && !of.recursive)?)
            }
            Source::Table { .. } | Source::Opaque => Some(column),
        }
    }

    pub(super) fn base_of_output(
        &self,
        query: QueryId,
        column: usize,
    ) -> Option<(&'a Arc<Relation>, usize)> {
        match self.queries[query].set {
            // Of parts of several types the column has one that may be none of theirs, and other hashes.
            Some(SetOperation { left, right, .. }) => {
                let of = |part| {
                    let (relation, column) = self.base_of_output(part, column)?;
                    let of = relation.columns.get(column)?;
                    Some((relation, column, (of.type_oid, of.nondeterministic)))
                };
                let (relation, column, kind) = of(left)?;
                let (_, _, other) = of(right)?;
                (kind == other).then_some((relation, column))
            }
            None => self.base(self.queries[query].outputs.as_ref()?.get(column)?.column?),
        }
    }
}
