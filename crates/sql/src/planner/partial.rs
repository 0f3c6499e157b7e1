//! Queries in parts: each node aggregates, joins and sorts its own rows, and what they say is put together.
//!
//! Owns: for which queries that gives what one server would, what each node is asked, and the final statement.
//! Never: decides that a query is answered so (`query.rs` does), or which types may travel (the executor asks).
//! Start reading at [`of`].
//!
//! The query `SELECT g, sum(x) FROM t WHERE … GROUP BY g` becomes the same on each node, and then
//! `SELECT c1, sum(c2) FROM <what they said> AS f (c1, c2) GROUP BY c1`. The final statement knows the types and
//! collations of `c1` and `c2` from the nodes' query itself, which it has once more, and does not run.
//!
//! Of `SELECT a.x, b.y FROM a JOIN b … ORDER BY b.z LIMIT 10` each node says `x`, `y` and `z` of its own rows, its first
//! ten are enough; the final statement has them as its table.

use pg_query::NodeEnum;
use pg_query::protobuf::{ColumnRef, FuncCall, Node, ResTarget, SelectStmt};

use super::alike::Alike;
use super::analysis::{Analysis, BroughtItem, ColumnId, ItemId, Source, Whereabouts};
use super::context::Context;
use super::gaps::{cut, expression, gap, parse_select};
use super::gather::{Order, is_read_alike};
use super::own_rows::{leave_database_out, split};
use super::sql_text::{deparse, deparse_expression};
use super::syntax::{has_subquery, is_star, is_star_output, name_of, string};
use super::time_gaps::TimeGaps;
use super::{gather, output_names, printed, scatter, top_rows};
use crate::catalog::Column;
use crate::plan::{Collect, Partial};
use crate::refusal::Refusal;
use crate::walk;

mod aggregates;

use aggregates::{FLOAT4, FLOAT8, PartialColumn, PartialColumns, on_node, word};

/// A node says as many values as types, and no more than 1,664 (`MaxTupleAttributeNumber`).
const COLUMNS_MAX: usize = 800;
/// Values whose distinct ones are counted multiply the groups of a node.
const DISTINCT_MAX: usize = 2;

/// What a query is that can be in parts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shape {
    /// Groups: nodes say theirs, with parts of their aggregates.
    Groups,
    /// Rows, which the final statement sorts, counts and numbers.
    Rows,
}

fn shape(select: &SelectStmt, analysis: &Analysis<'_>) -> Option<Shape> {
    let level = &analysis.queries[0];
    let is_plain = !level.has_row_makers
        && level.set.is_none()
        && select.into_clause.is_none()
        && select.locking_clause.is_empty()
        && select.with_clause.as_ref().is_none_or(|with| !with.recursive);
    let is_grouped = level.has_aggregates || level.has_grouping;
    // Distinct rows are groups of all that is asked for.
    let is_distinct = level.has_distinct && !level.has_distinct_on && !level.has_windows;
    match () {
        () if !is_plain || (is_grouped && level.has_distinct_on) => None,
        () if is_grouped || is_distinct => Some(Shape::Groups),
        // Of one table, rows are collected as well.
        () => (1 < analysis.items.len()).then_some(Shape::Rows),
    }
}

/// The query in parts, if that is exact: over what each node can say of its own rows, with aggregates that can be put
/// together, where `brought` are tables whose rows are brought to the nodes before.
///
/// `tree` has the locations of `analysis`.
pub(super) fn of(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    brought: &[BroughtItem],
    context: &Context<'_>,
) -> Result<Option<Partial>, Refusal> {
    let mut tree = Node { node: Some(tree.clone()) };
    TimeGaps { analysis: Some(analysis), context }.put(&mut tree)?;
    let Some(NodeEnum::SelectStmt(select)) = &tree.node else { return Ok(None) };
    let Some(shape) = shape(select, analysis) else { return Ok(None) };
    let is_apart = match brought {
        [] => scatter::obstacle_before_grouping(analysis).is_none(),
        _ => scatter::obstacle_before_grouping(&analysis.with_brought(brought)).is_none(),
    };
    if !is_apart
        || analysis.time_in_view.is_some()
        || analysis.loose_star
        || !analysis.loose_names.is_empty()
        || !analysis.system_columns.is_empty()
        || context.opaque.is_some()
        || printed::is_hidden(context)
        || has_namesakes(analysis)
        || !select.limit_count.as_deref().is_none_or(may_be_counted)
        // The final statement has no rows of what nodes are brought.
        || select.limit_offset.as_deref().is_some_and(has_subquery)
        // What is said of a value's order is not said of the column that has it.
        || [
            &select.group_clause,
            &select.target_list,
            &select.sort_clause,
            &select.window_clause,
            &select.distinct_clause,
        ]
        .into_iter()
        .flatten()
        .any(collates)
        || select.having_clause.as_deref().is_some_and(collates)
    {
        return Ok(None);
    }
    let alike = Alike { analysis, context };
    let with = select.with_clause.iter().flat_map(|with| &with.ctes);
    if !alike.reads_alike(&select.from_clause, select.where_clause.as_deref())
        || !with.into_iter().all(|query| alike.reads_alike(std::slice::from_ref(query), None))
    {
        return Ok(None);
    }
    let groups = select.group_clause.len();
    let collects = match (&mut tree.node, brought) {
        (_, []) => Vec::new(),
        (Some(tree), brought) => {
            let collect: Vec<_> = brought.iter().map(|of| of.item).collect();
            let order =
                Order { collect: &collect, brought, literal_time: true, local: &[], away: false };
            let collects = gather::bring(tree, analysis, &order, context)?;
            if let NodeEnum::SelectStmt(select) = tree {
                // What a primary key determines beyond these is found below.
                select.group_clause.truncate(groups);
            }
            collects
        }
        (None, _) => return Ok(None),
    };
    let Some(NodeEnum::SelectStmt(select)) = &tree.node else { return Ok(None) };
    let mut parts = PartialColumns {
        analysis,
        context,
        alike,
        groups: Vec::new(),
        kinds: Vec::new(),
        declared: Vec::new(),
        columns: Vec::new(),
        distinct: Vec::new(),
        conditions: Vec::new(),
        takes_columns: shape == Shape::Rows,
    };
    let split = match shape {
        Shape::Groups => match parts.split_groups(select)? {
            Some(outer) if parts.has_whole_groups(select, brought) => {
                let top = parts.top_groups(select)?;
                Some((outer, top))
            }
            outer => outer.map(|outer| (outer, None)),
        },
        Shape::Rows => parts.split_rows(select)?,
    };
    let Some((outer, top)) = split else { return Ok(None) };
    if parts.columns.is_empty()
        || COLUMNS_MAX < parts.columns.len()
        || DISTINCT_MAX < parts.distinct.len()
    {
        return Ok(None);
    }
    let inner = Inner { select, shape, top };
    parts.finish(&inner, outer, collects).map(Some)
}

/// What every node runs.
struct Inner<'s> {
    select: &'s SelectStmt,
    shape: Shape,
    /// ` ORDER BY … LIMIT …` by which its first rows are enough, if they are.
    top: Option<String>,
}

impl<'a> PartialColumns<'_, 'a> {
    /// The final query's clauses, over the columns; `None` if the query cannot be split.
    fn split_groups(&mut self, select: &SelectStmt) -> Result<Option<SelectStmt>, Refusal> {
        let level = &self.analysis.queries[0];
        let is_grouped = level.has_aggregates || level.has_grouping;
        let has_sets = select.group_clause.iter().any(is_grouping_set);
        let mut group_clause = Vec::new();
        for group in &select.group_clause {
            let Some(group) = self.put_group(select, group)? else { return Ok(None) };
            group_clause.push(group);
        }
        for target in select.target_list.iter().filter(|_| !is_grouped) {
            let Some(NodeEnum::ResTarget(target)) = &target.node else { return Ok(None) };
            let Some(value) = target.val.as_deref() else { return Ok(None) };
            if self.add_group(value)?.is_none() {
                return Ok(None);
            }
        }
        if !has_sets {
            self.add_determined(select)?;
        }
        let mut outer = final_clauses(select);
        outer.having_clause.clone_from(&select.having_clause);
        let Some(targets) = self.put_targets(select)? else { return Ok(None) };
        outer.target_list = targets;
        if let Some(having) = outer.having_clause.as_deref_mut() {
            let mut conditions = Vec::new();
            split(having, &mut conditions);
            for condition in conditions {
                if self.aggregates(condition) && self.has_guard(condition) {
                    // PostgreSQL may make of it a condition of its own, and then computes nothing for other groups.
                    return Ok(None);
                }
                // Of a set that leaves a group out, its column is NULL.
                if !has_sets && !self.aggregates(condition) && self.alike.is_alike(condition) {
                    self.conditions.push(on_node(condition)?);
                }
            }
            if !self.rewrite(having)? {
                return Ok(None);
            }
        }
        if !self.rewrite_order(select, &mut outer)? {
            return Ok(None);
        }
        outer.group_clause = match has_sets {
            true => group_clause,
            false => (1..=self.groups.len()).map(column).collect(),
        };
        outer.group_distinct = select.group_distinct;
        Ok(Some(outer))
    }

    /// Whether all rows of a group are on one node: it has the distribution key of a table whose rows are all there is.
    fn has_whole_groups(&self, select: &SelectStmt, brought: &[BroughtItem]) -> bool {
        let (analysis, level) = (self.analysis, &self.analysis.queries[0]);
        let decides = |item: &ItemId| {
            let of = &analysis.items[*item];
            let is_grouped =
                |column: usize| level.group_columns.contains(&ColumnId { item: *item, column });
            let is_by_key = match (of.distributed(), of.several()) {
                (Some((_, Whereabouts::Hash { key, .. })), _) => is_grouped(key),
                (_, Some((key, _))) => key.iter().all(|part| is_grouped(part.column)),
                _ => false,
            };
            is_by_key && of.linear && !brought.iter().any(|other| other.item == *item)
        };
        // Values that are counted once each make more groups of one.
        self.distinct.is_empty()
            && !level.has_windows
            && !level.has_distinct
            && !select.group_clause.iter().any(is_grouping_set)
            && level.items.iter().any(decides)
    }

    /// Has each node leave out groups by all conditions, and say its first ones only if the statement asks for the first
    /// of all.
    ///
    /// Requires: groups are whole on their nodes.
    fn top_groups(&mut self, select: &SelectStmt) -> Result<Option<String>, Refusal> {
        let mut conditions = Vec::new();
        if let Some(having) = select.having_clause.as_deref() {
            split(having, &mut conditions);
        }
        let mut are_all_there = true;
        for condition in conditions {
            match self.alike.is_alike(condition) && !has_subquery(condition) {
                false => are_all_there = false,
                true if self.aggregates(condition) => self.conditions.push(on_node(condition)?),
                true => (),
            }
        }
        // What is put together of parts may be another value than a node's own, in its last digit.
        const EXACT: [&str; 4] = ["count", "max", "min", "sum"];
        let is_exact = |value: &Node| match &value.node {
            _ if has_subquery(value) => false,
            Some(NodeEnum::FuncCall(call)) => EXACT.contains(&name_of(call).1),
            _ => !self.aggregates(value),
        };
        let is_ordered_alike = |part: &Node| match &part.node {
            Some(NodeEnum::SortBy(by)) => {
                by.node.as_deref().is_some_and(|value| match top_rows::output(select, value) {
                    Some(Some(output)) => is_exact(output),
                    Some(None) => is_exact(value),
                    None => false,
                })
            }
            _ => false,
        };
        match are_all_there && select.sort_clause.iter().all(is_ordered_alike) {
            true => self.top(select),
            false => Ok(None),
        }
    }

    /// The same of a query without groups: what it says is computed of the columns. And how each node finds those of its
    /// rows that may be among the first.
    fn split_rows(
        &mut self,
        select: &SelectStmt,
    ) -> Result<Option<(SelectStmt, Option<String>)>, Refusal> {
        let mut outer = final_clauses(select);
        let Some(targets) = self.put_targets(select)? else { return Ok(None) };
        outer.target_list = targets;
        for value in &mut outer.distinct_clause {
            if value.node.is_some() && !names_output(select, value) && !self.rewrite(value)? {
                return Ok(None);
            }
        }
        if !self.rewrite_order(select, &mut outer)? {
            return Ok(None);
        }
        let level = &self.analysis.queries[0];
        let reduces = level.has_windows || level.has_distinct || level.has_distinct_on;
        let top = if reduces { None } else { self.top(select)? };
        Ok(Some((outer, top)))
    }

    fn put_targets(&mut self, select: &SelectStmt) -> Result<Option<Vec<Node>>, Refusal> {
        let mut targets = Vec::new();
        for target in &select.target_list {
            let Some(NodeEnum::ResTarget(target)) = &target.node else { return Ok(None) };
            let Some(value) = target.val.as_deref() else { return Ok(None) };
            if let Some(NodeEnum::ColumnRef(reference)) = &value.node
                && is_star(reference)
            {
                if !self.takes_columns {
                    return Ok(None);
                }
                let Some(all) = self.columns_of_star(select, reference) else { return Ok(None) };
                for (name, column) in all {
                    let Some(place) = self.add_column(column)? else { return Ok(None) };
                    targets.push(named(name, self.group_column(place)?));
                }
                continue;
            }
            let Some(node) = &value.node else { return Ok(None) };
            let name = match target.name.as_str() {
                "" => output_names::figure(node),
                name => name,
            };
            let (name, mut value) = (name.to_owned(), value.clone());
            if !self.rewrite(&mut value)? {
                return Ok(None);
            }
            targets.push(named(&name, value));
        }
        Ok(Some(targets))
    }

    /// Whether ORDER BY and windows are of what the columns have.
    fn rewrite_order(
        &mut self,
        select: &SelectStmt,
        outer: &mut SelectStmt,
    ) -> Result<bool, Refusal> {
        for part in &mut outer.sort_clause {
            let Some(NodeEnum::SortBy(by)) = &mut part.node else { return Ok(false) };
            let Some(value) = by.node.as_deref_mut() else { return Ok(false) };
            if !names_output(select, value) && !self.rewrite(value)? {
                return Ok(false);
            }
        }
        for window in &mut outer.window_clause {
            if !self.rewrite(window)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// ` ORDER BY … LIMIT …` by which each node gives enough of its rows, if the statement asks for the first of all.
    fn top(&self, select: &SelectStmt) -> Result<Option<String>, Refusal> {
        let Some(count) = top_rows::count(select)? else { return Ok(None) };
        let has_star = select.target_list.iter().any(is_star_output);
        let mut order = select.sort_clause.clone();
        for part in &mut order {
            let Some(NodeEnum::SortBy(by)) = &mut part.node else { return Ok(None) };
            let Some(value) = by.node.as_deref_mut() else { return Ok(None) };
            match top_rows::output(select, value) {
                Some(Some(output)) => *value = output.clone(),
                Some(None) => {
                    // An output of a star's of this name would be meant.
                    if has_star
                        && let Some(NodeEnum::ColumnRef(reference)) = &value.node
                        && self.meaning(reference).is_none()
                    {
                        return Ok(None);
                    }
                }
                None => return Ok(None),
            }
            if !self.alike.is_alike(value) {
                return Ok(None);
            }
            if let Some(node) = &mut value.node {
                leave_database_out(node);
            }
        }
        top_rows::clause(order, &count).map(Some)
    }

    /// What `*` or `t.*` stands for, with the names of its outputs; `None` where that is not certain.
    fn columns_of_star(
        &self,
        select: &SelectStmt,
        star: &ColumnRef,
    ) -> Option<Vec<(&'a str, ColumnId)>> {
        let analysis = self.analysis;
        let level = &analysis.queries[0];
        let outputs = level.outputs.as_ref()?;
        let stars = select.target_list.iter().filter(|target| is_star_output(target)).count();
        // Which of the outputs are this star's.
        let before = select.target_list.iter().position(|target| match &target.node {
            Some(NodeEnum::ResTarget(target)) => {
                target.val.as_ref().is_some_and(|value| match &value.node {
                    Some(NodeEnum::ColumnRef(of)) => of.location == star.location,
                    _ => false,
                })
            }
            _ => false,
        })?;
        let range = match stars {
            1 => before..before + (outputs.len() + 1).checked_sub(select.target_list.len())?,
            _ => {
                let width_of = |target: &Node| match is_star_output(target) {
                    true => self.width_of_star(target),
                    false => Some(1),
                };
                let widths: Option<Vec<_>> = select.target_list.iter().map(width_of).collect();
                let widths = widths?;
                (widths.iter().sum::<usize>() == outputs.len()).then_some(())?;
                let begin = widths[..before].iter().sum();
                begin..begin + widths[before]
            }
        };
        let mut all = Vec::new();
        for output in outputs.get(range)? {
            let column = output.column?;
            let is_certain = !level.merged_unlike.contains(&output.name)
                && !self.analysis.items[column.item].hidden
                && !self.analysis.items[column.item].name.is_empty()
                && level.items.contains(&column.item);
            is_certain.then_some(())?;
            all.push((output.name, column));
        }
        Some(all)
    }

    /// How many columns `t.*` stands for.
    fn width_of_star(&self, target: &Node) -> Option<usize> {
        let Some(NodeEnum::ResTarget(target)) = &target.node else { return None };
        let Some(NodeEnum::ColumnRef(of)) = &target.val.as_ref()?.node else { return None };
        let [.., table, _] = &of.fields[..] else { return None };
        let name = string(table)?;
        let level = &self.analysis.queries[0];
        let mut named = level.items.iter().filter(|item| {
            let item = &self.analysis.items[**item];
            !item.hidden && item.name == name
        });
        let (item, None) = (named.next()?, named.next()) else { return None };
        self.analysis.width(*item)
    }

    /// Adds a column of a table as a group, unless it is known; `None`: it may not travel.
    fn add_column(&mut self, column: ColumnId) -> Result<Option<usize>, Refusal> {
        let Some(name) = self.analysis.column_name(column.item, column.column) else {
            return Ok(None);
        };
        let Some(of) = self.base_column(column).cloned() else { return Ok(None) };
        if !is_read_alike(of.type_oid) {
            return Ok(None);
        }
        let declared = (of.type_modifier != -1).then(|| of.declared_type.clone());
        let reference = reference_to(&[self.analysis.items[column.item].name, name]);
        let compared = deparse_expression(&reference_to(&[&compared_name(column)]))?;
        self.push_group(&reference, compared, declared, Some(&of)).map(Some)
    }

    /// Groups by what a grouped primary key determines, where it is mentioned: that makes no other groups.
    fn add_determined(&mut self, select: &SelectStmt) -> Result<(), Refusal> {
        let mut mentioned = Vec::new();
        let outside = select.target_list.iter().chain(&select.sort_clause);
        for node in outside.chain(&select.window_clause).chain(select.having_clause.as_deref()) {
            self.mentioned_outside_of_aggregates(node, &mut mentioned);
        }
        for node in mentioned {
            let Some(NodeEnum::ColumnRef(reference)) = &node.node else { continue };
            let Some(meant) = self.meaning(reference) else { continue };
            let Source::Table { relation, .. } = self.analysis.items[meant.item].source else {
                continue;
            };
            let (level, key) = (&self.analysis.queries[0], &relation.primary_key);
            let is_grouped = |column: &usize| {
                level.group_columns.contains(&ColumnId { item: meant.item, column: *column })
            };
            if !key.is_empty()
                && level.items.contains(&meant.item)
                && key.iter().all(is_grouped)
                && !is_grouped(&meant.column)
                && !gather::NOT_GROUPABLE.contains(&relation.columns[meant.column].type_oid)
            {
                self.add_group(&node)?;
            }
        }
        Ok(())
    }

    fn mentioned_outside_of_aggregates(&self, node: &Node, mentioned: &mut Vec<Node>) {
        let Some(of) = &node.node else { return };
        match of {
            NodeEnum::ColumnRef(_) => mentioned.push(node.clone()),
            NodeEnum::FuncCall(call) if call.over.is_none() && self.is_aggregate(call) => (),
            NodeEnum::SubLink(_) | NodeEnum::SelectStmt(_) => (),
            _ => walk::read::children(of, &mut |child| {
                self.mentioned_outside_of_aggregates(child, mentioned);
            }),
        }
    }

    /// An entry of GROUP BY in the final query.
    fn put_group(&mut self, select: &SelectStmt, group: &Node) -> Result<Option<Node>, Refusal> {
        if let Some(NodeEnum::GroupingSet(set)) = &group.node {
            let mut set = set.clone();
            for part in &mut set.content {
                let is_certain = is_grouping_set(part)
                    || self.grouped(select, part).is_some_and(|it| self.is_one_group(select, it));
                let put = if is_certain { self.put_group(select, part)? } else { None };
                let Some(put) = put else { return Ok(None) };
                *part = put;
            }
            return Ok(Some(Node { node: Some(NodeEnum::GroupingSet(set)) }));
        }
        let Some(group) = self.grouped(select, group) else { return Ok(None) };
        Ok(self.add_group(group)?.map(|place| column(place + 1)))
    }

    /// Whether it is known which outputs are NULL where a set leaves this group out: PostgreSQL takes some constants for
    /// themselves, and two outputs of one expression for two groups, if they are named by their places.
    fn is_one_group(&self, select: &SelectStmt, group: &Node) -> bool {
        let compared = self.compared(group);
        let outputs = select.target_list.iter().filter(|target| match &target.node {
            Some(NodeEnum::ResTarget(target)) => {
                target.val.as_deref().is_some_and(|value| self.compared(value) == compared)
            }
            _ => false,
        });
        top_rows::has_column(group) && compared.is_some() && outputs.count() < 2
    }

    /// Adds a group, unless it is known, and says which it is; `None`: its values may not travel.
    fn add_group(&mut self, group: &Node) -> Result<Option<usize>, Refusal> {
        let Some(compared) = self.compared(group) else { return Ok(None) };
        let Some(declared) = self.declared(group) else { return Ok(None) };
        if !self.alike.is_alike(group) {
            return Ok(None);
        }
        if let Some(NodeEnum::ColumnRef(reference)) = &group.node
            && self.base(reference).is_some_and(|column| !is_read_alike(column.type_oid))
        {
            return Ok(None);
        }
        self.push_group(group, compared, declared, None).map(Some)
    }

    fn push_group(
        &mut self,
        group: &Node,
        compared: String,
        declared: Option<String>,
        of_table: Option<&Column>,
    ) -> Result<usize, Refusal> {
        if let Some(known) = self.groups.iter().position(|known| *known == compared) {
            return Ok(known);
        }
        self.groups.push(compared);
        self.declared.push(declared);
        let kind = group.node.as_ref().map(std::mem::discriminant);
        self.kinds.extend(kind.map(|kind| (kind, size(group))));
        let of_table = match (of_table, &group.node) {
            (None, Some(NodeEnum::ColumnRef(reference))) => self.base(reference),
            (of_table, _) => of_table,
        };
        let known = of_table.map(|column| (column.type_oid, column.type_name.clone()));
        let (text, is_plain) = (on_node(group)?, known.is_some() || self.is_plain(group));
        self.columns.push(PartialColumn { text, expected: None, is_plain, known });
        Ok(self.groups.len() - 1)
    }

    /// How a group's values are declared; `None`: it is not known what clients are told of them, or what they would
    /// be compared by.
    fn declared(&self, group: &Node) -> Option<Option<String>> {
        match group.node.as_ref()? {
            NodeEnum::ColumnRef(reference) => {
                if let [name] = &reference.fields[..]
                    && self.analysis.queries[0].merged_unlike.contains(&string(name)?)
                {
                    return None;
                }
                let Some(column) = self.base(reference) else {
                    return self.declared(self.written_in_query(reference)?);
                };
                Some((column.type_modifier != -1).then(|| column.declared_type.clone()))
            }
            // These have no length or precision.
            NodeEnum::FuncCall(_)
            | NodeEnum::AConst(_)
            | NodeEnum::BoolExpr(_)
            | NodeEnum::NullTest(_)
            | NodeEnum::BooleanTest(_) => Some(None),
            NodeEnum::AExpr(of) => {
                let has_none = of.kind() != pg_query::protobuf::AExprKind::AexprNullif;
                has_none.then_some(None)
            }
            NodeEnum::TypeCast(cast) => {
                let name = cast.type_name.as_ref()?;
                (name.typmods.is_empty() && name.array_bounds.is_empty()).then_some(None)
            }
            _ => None,
        }
    }

    /// A group's column in the final query, as what it is declared to be.
    fn group_column(&self, group: usize) -> Result<Node, Refusal> {
        match &self.declared[group] {
            Some(declared) => {
                let text = format!("CAST(tutti_f.c{} AS {declared})", group + 1);
                expression(&text)
            }
            None => Ok(column(group + 1)),
        }
    }

    /// The expression that an entry of GROUP BY means.
    fn grouped<'n>(&self, select: &'n SelectStmt, group: &'n Node) -> Option<&'n Node> {
        let value = |target: &'n Node| match &target.node {
            Some(NodeEnum::ResTarget(target)) => target.val.as_deref(),
            _ => None,
        };
        match group.node.as_ref()? {
            NodeEnum::AConst(constant) => {
                let Some(pg_query::protobuf::a_const::Val::Ival(number)) = &constant.val else {
                    return None;
                };
                let place = usize::try_from(number.ival).ok()?.checked_sub(1)?;
                let before = select.target_list.get(..=place)?;
                (!before.iter().any(is_star_output)).then_some(())?;
                value(&before[place])
            }
            // A column comes before an output of its name.
            NodeEnum::ColumnRef(reference) if !self.is_column(reference) => {
                let [name] = &reference.fields[..] else { return None };
                let name = string(name)?;
                let mut named = select.target_list.iter().filter(|target| match &target.node {
                    Some(NodeEnum::ResTarget(target)) if target.name.is_empty() => {
                        let value = target.val.as_ref().and_then(|value| value.node.as_ref());
                        value.is_some_and(|value| output_names::figure(value) == name)
                    }
                    Some(NodeEnum::ResTarget(target)) => target.name == name,
                    _ => false,
                });
                let found = named.next()?;
                named.next().is_none().then_some(())?;
                value(found)
            }
            _ => Some(group),
        }
    }

    fn is_column(&self, reference: &ColumnRef) -> bool {
        self.analysis.uses.iter().any(|of| of.location == reference.location)
    }

    /// The expression as it is compared with others: its columns by what they are, not by how they are called.
    /// `None`: it holds something whose sameness is not known.
    fn compared(&self, node: &Node) -> Option<String> {
        let mut copy = node.clone();
        match self.name_columns(&mut copy) {
            // Parts of expressions that are none themselves have no text.
            true => deparse_expression(&copy).ok(),
            false => None,
        }
    }

    fn name_columns(&self, node: &mut Node) -> bool {
        let Some(of) = &mut node.node else { return true };
        match of {
            NodeEnum::ColumnRef(reference) => {
                let Some(column) = self.meaning(reference) else { return false };
                *node = reference_to(&[&compared_name(column)]);
                true
            }
            NodeEnum::SubLink(_) | NodeEnum::SelectStmt(_) | NodeEnum::GroupingFunc(_) => false,
            _ => {
                let mut all = true;
                walk::write::children(of, &mut |child| all = all && self.name_columns(child));
                all
            }
        }
    }

    /// Replaces groups and aggregates by columns of the parts. Whether nothing else is left that needs rows.
    fn rewrite(&mut self, node: &mut Node) -> Result<bool, Refusal> {
        if let Some(NodeEnum::GroupingFunc(of)) = &mut node.node {
            for argument in &mut of.args {
                let Some(compared) = self.compared(argument) else { return Ok(false) };
                let group = self.groups.iter().position(|group| *group == compared);
                let Some(group) = group else { return Ok(false) };
                *argument = column(group + 1);
            }
            return Ok(true);
        }
        if let Some(NodeEnum::FuncCall(call)) = &node.node
            // Over a window, it is computed of groups.
            && call.over.is_none()
            && self.is_aggregate(call)
        {
            let Some(put) = self.put_together(call)? else { return Ok(false) };
            *node = put;
            return Ok(true);
        }
        if self.may_be_group(node)
            && let Some(compared) = self.compared(node)
            && let Some(group) = self.groups.iter().position(|group| *group == compared)
        {
            *node = self.group_column(group)?;
            return Ok(true);
        }
        if self.takes_columns && matches!(node.node, Some(NodeEnum::ColumnRef(_))) {
            let Some(place) = self.add_group(node)? else { return Ok(false) };
            *node = self.group_column(place)?;
            return Ok(true);
        }
        let Some(of) = &mut node.node else { return Ok(true) };
        match of {
            NodeEnum::ColumnRef(_)
            | NodeEnum::SubLink(_)
            | NodeEnum::SelectStmt(_)
            | NodeEnum::JsonArrayAgg(_)
            | NodeEnum::JsonObjectAgg(_) => return Ok(false),
            _ => (),
        }
        let mut result = Ok(true);
        walk::write::children(of, &mut |child| {
            if let Ok(true) = result {
                result = self.rewrite(child);
            }
        });
        result
    }

    /// Whether it is worth while to compare it with the groups: for a long expression that is not done at every level.
    fn may_be_group(&self, node: &Node) -> bool {
        let Some(of) = &node.node else { return false };
        let kind = std::mem::discriminant(of);
        !matches!(of, NodeEnum::AConst(_) | NodeEnum::ParamRef(_))
            && self.kinds.iter().any(|(other, _)| *other == kind)
            && self.kinds.contains(&(kind, size(node)))
    }

    /// Whether a condition without aggregates is below, which OR, AND or NOT joins to others.
    fn has_guard(&self, node: &Node) -> bool {
        let Some(of) = &node.node else { return false };
        let mut found = match of {
            NodeEnum::BoolExpr(of) => of.args.iter().any(|argument| !self.aggregates(argument)),
            _ => false,
        };
        walk::read::children(of, &mut |child| found = found || self.has_guard(child));
        found
    }

    /// Whether an aggregate, or what may be one, is below.
    fn aggregates(&self, node: &Node) -> bool {
        let Some(of) = &node.node else { return false };
        let mut found = match of {
            NodeEnum::FuncCall(call) => self.is_aggregate(call),
            NodeEnum::GroupingFunc(_)
            | NodeEnum::JsonArrayAgg(_)
            | NodeEnum::JsonObjectAgg(_)
            | NodeEnum::SubLink(_) => true,
            _ => false,
        };
        walk::read::children(of, &mut |child| found = found || self.aggregates(child));
        found
    }

    fn is_aggregate(&self, call: &FuncCall) -> bool {
        let (schema, name) = name_of(call);
        let found = self.context.catalog.function(self.context.scope, schema, name);
        call.agg_star || call.agg_within_group || found.is_none_or(|function| function.aggregate)
    }

    /// The nodes' query and the final one.
    fn finish(
        &self,
        inner: &Inner<'_>,
        mut outer: SelectStmt,
        collects: Vec<Collect>,
    ) -> Result<Partial, Refusal> {
        let columns: Vec<_> = self.columns.iter().map(|column| column.text.as_str()).collect();
        let base = self.base_query(inner, &columns)?;
        let names: Vec<_> = (1..=columns.len()).map(|place| format!("c{place}")).collect();
        let names = names.join(", ");
        let values: Vec<_> = (1..).zip(&self.columns).map(|(at, of)| travelling(at, of)).collect();
        let asked_types: Vec<_> =
            self.columns.iter().map(|column| column.known.is_none()).collect();
        let types = (1..)
            .zip(&asked_types)
            .filter(|(_, is_asked)| **is_asked)
            .map(|(place, _)| format!("pg_catalog.pg_typeof(tutti_f.c{place})::pg_catalog.oid"));
        // Whether an array's NULL is one to this session.
        let nulls = "pg_catalog.current_setting('array_nulls')".to_owned();
        let asked: Vec<_> = values.into_iter().chain(types).chain([nulls]).collect();
        let select = format!("SELECT {} FROM ({base}) AS tutti_f ({names})", asked.join(", "));
        let arrays: Vec<_> = (1..)
            .zip(&self.columns)
            .map(|(place, column)| {
                let rows = gap(collects.len() + place - 1);
                match &column.known {
                    Some((oid, name)) if !has_collation(*oid) => {
                        format!("pg_catalog.unnest({rows}::{name}[])")
                    }
                    _ => format!(
                        "pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c{place}) FROM tutti_z), \
                         {rows}))"
                    ),
                }
            })
            .collect();
        let limited = match inner.top {
            Some(_) => format!("SELECT * FROM ({base}) AS tutti_f"),
            None => base,
        };
        let frame = parse_select(&format!(
            "WITH tutti_z ({names}) AS ({limited} LIMIT 0) \
             SELECT 1 FROM ROWS FROM ({}) AS tutti_f ({names})",
            arrays.join(", ")
        ))?;
        let limit_count = outer.limit_count.clone();
        outer.with_clause = frame.with_clause;
        outer.from_clause = frame.from_clause;
        let statement = cut(&deparse(&NodeEnum::SelectStmt(Box::new(outer)))?)?;
        let expected = self.columns.iter().map(|column| column.expected).collect();
        let are_plain = self.columns.iter().all(|column| column.is_plain);
        let (select, limit) = (cut(&select)?, parameter_of(limit_count.as_deref()));
        Ok(Partial {
            collects,
            select,
            expected,
            asked_types,
            are_plain,
            limit,
            statement,
            more: Vec::new(),
        })
    }

    /// The query for these columns over a node's own rows.
    fn base_query(&self, of: &Inner<'_>, columns: &[&str]) -> Result<String, Refusal> {
        let bare = |with_clause, from_clause, where_clause| -> Result<String, Refusal> {
            let mut tree = NodeEnum::SelectStmt(Box::new(SelectStmt {
                target_list: vec![target("1")?],
                with_clause,
                from_clause,
                where_clause,
                limit_option: pg_query::protobuf::LimitOption::Default.into(),
                op: of.select.op,
                ..SelectStmt::default()
            }));
            leave_database_out(&mut tree);
            deparse(&tree)
        };
        const ASKED: &str = "SELECT 1";
        let from = bare(None, of.select.from_clause.clone(), of.select.where_clause.clone())?;
        let from = from.strip_prefix(ASKED).unwrap_or_default();
        let with = match &of.select.with_clause {
            Some(with) => bare(Some(with.clone()), Vec::new(), None)?,
            None => String::new(),
        };
        let with = with.strip_suffix(ASKED).unwrap_or_default();
        // By their places: a constant could not stand there.
        let places = (1..=self.groups.len()).chain(self.distinct.iter().copied());
        let groups: Vec<_> = places.map(|place| place.to_string()).collect();
        let by = match of.shape {
            Shape::Groups if !groups.is_empty() => format!(" GROUP BY {}", groups.join(", ")),
            Shape::Groups | Shape::Rows => String::new(),
        };
        let having = match self.conditions.is_empty() {
            true => String::new(),
            false => format!(" HAVING ({})", self.conditions.join(") AND (")),
        };
        let top = of.top.as_deref().unwrap_or_default();
        // With names that nobody has: a bare one in ORDER BY would mean an output first.
        let outputs: Vec<_> = (1..)
            .zip(columns)
            .map(|(place, column)| match &of.top {
                Some(_) => format!("{column} AS tutti_c{place}"),
                None => (*column).to_owned(),
            })
            .collect();
        Ok(format!("{with}SELECT {}{from}{by}{having}{top}", outputs.join(", ")))
    }
}

/// Of these types text is what they are written as, and read from: boolean, name, integers, text, varchar, numeric, uuid.
/// Of char(n) it has no spaces.
const AS_TEXT: [u32; 9] = [16, 19, 20, 21, 23, 25, 1043, 1700, 2950];

/// A value as text that any session reads alike.
fn travelling(place: usize, column: &PartialColumn) -> String {
    let as_text = format!("tutti_f.c{place}::pg_catalog.text");
    let written = format!("tutti.value_output(tutti_f.c{place})");
    match (&column.known, column.expected) {
        (Some((oid, _)), _) if AS_TEXT.contains(oid) => as_text,
        (Some(_), _) => written,
        // How floats are written depends on the session.
        (None, Some(FLOAT4 | FLOAT8)) => written,
        (None, Some(_)) => as_text,
        (None, None) => format!(
            "CASE WHEN pg_catalog.pg_typeof(tutti_f.c{place})::pg_catalog.oid OPERATOR(pg_catalog.=) \
             ANY ('{{{}}}'::pg_catalog.oid[]) THEN {as_text} ELSE {written} END",
            AS_TEXT.map(|oid| oid.to_string()).join(",")
        ),
    }
}

/// Whether values of the type, which is read alike everywhere, are compared by a collation.
fn has_collation(type_oid: u32) -> bool {
    /// name, text, bpchar, varchar.
    const OF_TEXT: [u32; 4] = [19, 25, 1042, 1043];
    OF_TEXT.contains(&type_oid)
}

/// Whether a name means two tables of the query, which tells them apart by their schemas.
fn has_namesakes(analysis: &Analysis<'_>) -> bool {
    let names: Vec<_> =
        analysis.queries[0].items.iter().map(|it| analysis.items[*it].name).collect();
    names.iter().enumerate().any(|(at, name)| !name.is_empty() && names[..at].contains(name))
}

/// Whether it is known, before anything is computed, whether this LIMIT asks for rows: with none nothing is.
fn may_be_counted(count: &Node) -> bool {
    use pg_query::protobuf::a_const::Val;
    match &count.node {
        Some(NodeEnum::AConst(of)) => {
            of.isnull || matches!(&of.val, Some(Val::Ival(number)) if number.ival != 0)
        }
        // Looked at when it has a value.
        Some(NodeEnum::ParamRef(_)) => true,
        _ => false,
    }
}

/// The parameter, counted from 0, that is the LIMIT.
fn parameter_of(count: Option<&Node>) -> Option<u16> {
    match count?.node.as_ref()? {
        NodeEnum::ParamRef(parameter) => u16::try_from(parameter.number).ok()?.checked_sub(1),
        _ => None,
    }
}

/// How many nodes an expression has.
fn size(node: &Node) -> usize {
    let mut all = 1;
    if let Some(of) = &node.node {
        walk::read::children(of, &mut |child| all += size(child));
    }
    all
}

fn is_grouping_set(group: &Node) -> bool {
    matches!(group.node, Some(NodeEnum::GroupingSet(_)))
}

/// Whether it says COLLATE somewhere.
fn collates(node: &Node) -> bool {
    let Some(of) = &node.node else { return false };
    let mut found = matches!(of, NodeEnum::CollateClause(_));
    walk::read::children(of, &mut |child| found = found || collates(child));
    found
}

/// What the final query has of the client's as it is.
fn final_clauses(select: &SelectStmt) -> SelectStmt {
    SelectStmt {
        distinct_clause: select.distinct_clause.clone(),
        window_clause: select.window_clause.clone(),
        sort_clause: select.sort_clause.clone(),
        limit_offset: select.limit_offset.clone(),
        limit_count: select.limit_count.clone(),
        limit_option: select.limit_option,
        op: select.op,
        ..SelectStmt::default()
    }
}

/// An output with this name.
fn named(name: &str, value: Node) -> Node {
    let (name, val) = (name.to_owned(), Some(Box::new(value)));
    let target = ResTarget { name, val, ..ResTarget::default() };
    Node { node: Some(NodeEnum::ResTarget(Box::new(target))) }
}

/// What stands for a column where expressions are compared.
fn compared_name(column: ColumnId) -> String {
    format!("tutti column {} of {}", column.column, column.item)
}

/// A column of the parts.
fn column(place: usize) -> Node {
    reference_to(&["tutti_f", &format!("c{place}")])
}

fn reference_to(names: &[&str]) -> Node {
    let fields = names.iter().map(|name| word(name)).collect();
    Node { node: Some(NodeEnum::ColumnRef(ColumnRef { fields, location: -1 })) }
}

fn target(value: &str) -> Result<Node, Refusal> {
    let val = Some(Box::new(expression(value)?));
    Ok(Node {
        node: Some(NodeEnum::ResTarget(Box::new(ResTarget { val, ..ResTarget::default() }))),
    })
}

/// Whether an entry of ORDER BY means an output by its number or by its name.
fn names_output(select: &SelectStmt, by: &Node) -> bool {
    match &by.node {
        Some(NodeEnum::AConst(_)) => true,
        Some(NodeEnum::ColumnRef(reference)) => match &reference.fields[..] {
            [name] => {
                let name = string(name).unwrap_or_default();
                select.target_list.iter().any(|target| match &target.node {
                    Some(NodeEnum::ResTarget(target)) if target.name.is_empty() => {
                        let value = target.val.as_ref().and_then(|value| value.node.as_ref());
                        value.is_some_and(|value| output_names::figure(value) == name)
                    }
                    Some(NodeEnum::ResTarget(target)) => target.name == name,
                    _ => false,
                })
            }
            _ => false,
        },
        _ => false,
    }
}
