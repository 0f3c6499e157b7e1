//! Walks a statement once and writes down what the planner needs to know of it.
//!
//! Owns: query levels, CTEs and what hides what.
//! Never: decides. FROM is read in `from`, expressions in `expressions`, conditions in `filters.rs`, names in
//! `names.rs`.
//! Start reading at [`analyse`].

mod expressions;
mod from;

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, SelectStmt, SetOperation as SetKind, WithClause};

use super::analysis::{
    Analysis, Modification, ModificationKind, Output, Query, QueryId, SetOperation, Source,
    Whereabouts,
};
use super::context::Context;
use super::names::{Found, Meaning};
use super::syntax::{bare_name, is_star_of_tables, named_output, string};
use super::{oids, output_names, row_types};
use crate::catalog::Relation;
use crate::refusal::Refusal;
use crate::walk;

/// Finds out everything about `statement`: SELECT, UPDATE, DELETE, MERGE or INSERT.
///
/// Requires: its views were looked into (`views.rs` does that, and then calls this).
/// Every `RangeVar` and `ColumnRef` must have a location of its own (as the parser gives them).
/// The statement itself is query 0.
pub(super) fn analyse<'a>(
    statement: &'a NodeEnum,
    context: &Context<'a>,
) -> Result<Analysis<'a>, Refusal> {
    let mut analyser = Analyser::new(*context);
    analyser.statement(statement)?;
    analyser.show_oids_of_home(oids::shows(statement));
    analyser.note_home_rows(row_types::named(statement, context));
    Ok(analyser.finish())
}

/// The same for a SELECT.
pub(super) fn analyse_select<'a>(
    select: &'a SelectStmt,
    context: &Context<'a>,
) -> Result<Analysis<'a>, Refusal> {
    let mut analyser = Analyser::new(*context);
    analyser.query(select)?;
    let (mut shows, mut named) = (false, None);
    walk::read::select(select, &mut |child| {
        shows = shows || child.node.as_ref().is_some_and(oids::shows);
        named = named.or_else(|| row_types::named(child.node.as_ref()?, context));
    });
    analyser.show_oids_of_home(shows);
    analyser.note_home_rows(named);
    Ok(analyser.finish())
}

/// Whether an output has this name that is not just a column of it.
fn names_output(name: &str, outputs: &[Node]) -> bool {
    outputs.iter().any(|target| match &target.node {
        Some(NodeEnum::ResTarget(target)) => output_names::own(target) == Some(name),
        _ => false,
    })
}

/// A CTE in sight. Later ones hide earlier ones of the same name.
struct Cte<'a> {
    name: &'a str,
    /// `None`: refers to itself, or its columns are not known for another reason.
    query: Option<QueryId>,
    /// How often it was met while it was `None`.
    met: usize,
}

/// The walk's state.
pub(super) struct Analyser<'a> {
    pub(super) context: Context<'a>,
    pub(super) analysis: Analysis<'a>,
    /// Query levels whose names are in sight, innermost last.
    pub(super) scopes: Vec<QueryId>,
    ctes: Vec<Cte<'a>>,
    in_aggregate: bool,
    /// Within how many subqueries that are parts of expressions, and no joins.
    in_expressions: usize,
    /// Query levels whose FROM and WHERE are being read.
    filtering: Vec<QueryId>,
    /// The next SELECT is an EXISTS's.
    skips_stars: bool,
}

impl<'a> Analyser<'a> {
    fn new(context: Context<'a>) -> Self {
        let analysis = Analysis { maps: Some(&context.catalog.maps), ..Analysis::default() };
        Self {
            context,
            analysis,
            scopes: Vec::new(),
            ctes: Vec::new(),
            in_aggregate: false,
            in_expressions: 0,
            filtering: Vec::new(),
            skips_stars: false,
        }
    }

    fn finish(mut self) -> Analysis<'a> {
        self.analysis.functions.add_opaque(&self.context);
        self.analysis
    }

    /// Clients know tables and types by the OIDs of node 1.
    fn show_oids_of_home(&mut self, shows: bool) {
        if shows {
            self.analysis.functions.home.get_or_insert_with(|| "regclass".to_owned());
        }
    }

    /// Values of the type of a home table's rows are as good as the rows: other nodes have no such type, and no view that
    /// names it.
    fn note_home_rows(&mut self, of: Option<&Arc<Relation>>) {
        if let Some(relation) = of {
            self.note_home_alone(&relation.name);
        }
    }

    fn note_home_alone(&mut self, name: &str) {
        self.analysis.home_relation.get_or_insert_with(|| name.to_owned());
        self.analysis.home_alone.get_or_insert_with(|| name.to_owned());
    }

    fn statement(&mut self, statement: &'a NodeEnum) -> Result<QueryId, Refusal> {
        match statement {
            NodeEnum::SelectStmt(select) => self.query(select),
            NodeEnum::UpdateStmt(update) => {
                let (query, hidden) = self.open(update.with_clause.as_ref())?;
                self.target(update.relation.as_ref())?;
                self.add_from_list(&update.from_clause)?;
                self.where_clause(update.where_clause.as_deref(), query)?;
                self.expressions(&update.target_list)?;
                self.returning(update.returning_clause.as_ref(), query)?;
                self.close(hidden);
                Ok(query)
            }
            NodeEnum::DeleteStmt(delete) => {
                let (query, hidden) = self.open(delete.with_clause.as_ref())?;
                self.target(delete.relation.as_ref())?;
                self.add_from_list(&delete.using_clause)?;
                self.where_clause(delete.where_clause.as_deref(), query)?;
                self.returning(delete.returning_clause.as_ref(), query)?;
                self.close(hidden);
                Ok(query)
            }
            NodeEnum::MergeStmt(merge) => {
                let (query, hidden) = self.open(merge.with_clause.as_ref())?;
                let target = self.target(merge.relation.as_ref())?;
                if let Some(source) = &merge.source_relation {
                    self.add_from_item(source, true)?;
                }
                if let Some(condition) = &merge.join_condition {
                    // As in `source LEFT JOIN target ON`: source rows without a match count too.
                    self.filter(condition, target..target + 1)?;
                }
                self.expressions(&merge.merge_when_clauses)?;
                self.returning(merge.returning_clause.as_ref(), query)?;
                self.close(hidden);
                Ok(query)
            }
            NodeEnum::InsertStmt(insert) => {
                let (query, hidden) = self.open(insert.with_clause.as_ref())?;
                // The source sees nothing of the target.
                self.scopes.pop();
                if let Some(source) = &insert.select_stmt {
                    self.expression(source)?;
                }
                self.scopes.push(query);
                self.target(insert.relation.as_ref())?;
                if let Some(conflict) = &insert.on_conflict_clause {
                    self.analysis.queries[query].names_unknown = true;
                    if let Some(infer) = &conflict.infer {
                        self.expressions(&infer.index_elems)?;
                        self.where_clause(infer.where_clause.as_deref(), query)?;
                    }
                    self.expressions(&conflict.target_list)?;
                    if let Some(condition) = &conflict.where_clause {
                        self.expression(condition)?;
                    }
                }
                self.returning(insert.returning_clause.as_ref(), query)?;
                self.close(hidden);
                Ok(query)
            }
            _ => Err(Refusal::postgres("0A000", "this statement cannot be part of a query")),
        }
    }

    /// Begins a query level; returns it and how many CTEs were in sight before.
    fn open(&mut self, with: Option<&'a WithClause>) -> Result<(QueryId, usize), Refusal> {
        let query = self.analysis.queries.len();
        let in_expression = 0 < self.in_expressions;
        self.analysis.queries.push(Query { in_expression, ..Query::default() });
        let in_sight = self.ctes.len();
        if let Some(with) = with {
            self.with(with)?;
        }
        self.scopes.push(query);
        Ok((query, in_sight))
    }

    fn close(&mut self, ctes_in_sight: usize) {
        self.scopes.pop();
        self.ctes.truncate(ctes_in_sight);
    }

    fn with(&mut self, with: &'a WithClause) -> Result<(), Refusal> {
        let expressions = || {
            with.ctes.iter().filter_map(|node| match &node.node {
                Some(NodeEnum::CommonTableExpr(cte)) => Some(&**cte),
                _ => None,
            })
        };
        let first = self.ctes.len();
        if with.recursive {
            let names = expressions().map(|cte| Cte { name: &cte.ctename, query: None, met: 0 });
            self.ctes.extend(names);
        }
        for (index, cte) in expressions().enumerate() {
            let first_query = self.analysis.queries.len();
            let Some(statement) = cte.ctequery.as_ref().and_then(|node| node.node.as_ref()) else {
                continue;
            };
            let query = self.statement(statement)?;
            if !cte.aliascolnames.is_empty()
                && let Some(outputs) = &mut self.analysis.queries[query].outputs
            {
                for (output, name) in outputs.iter_mut().zip(&cte.aliascolnames) {
                    output.name = string(name).unwrap_or_default();
                }
            }
            self.note_modification(statement, query);
            let has_extra_columns = cte.search_clause.is_some() || cte.cycle_clause.is_some();
            if !with.recursive {
                self.ctes.push(Cte { name: &cte.ctename, query: Some(query), met: 0 });
            } else if self.ctes[first + index].met == 0 && !has_extra_columns {
                self.ctes[first + index].query = Some(query);
            } else {
                for query in &mut self.analysis.queries[first_query..] {
                    query.recursive = true;
                }
            }
        }
        Ok(())
    }

    /// Remembers that a statement in WITH changes data.
    fn note_modification(&mut self, statement: &NodeEnum, query: QueryId) {
        let kind = match statement {
            NodeEnum::InsertStmt(_) => ModificationKind::Insert,
            NodeEnum::UpdateStmt(_) => ModificationKind::Update,
            NodeEnum::DeleteStmt(_) => ModificationKind::Delete,
            NodeEnum::MergeStmt(_) => ModificationKind::Merge,
            _ => return,
        };
        let target = self.analysis.target.take();
        let relation = target.and_then(|target| match self.analysis.items[target].source {
            Source::Table { relation, .. } => Some(relation),
            _ => None,
        });
        if let (NodeEnum::UpdateStmt(update), Some(relation)) = (statement, relation)
            && let Whereabouts::Hash { key, .. } = Whereabouts::of(relation)
        {
            let name = &relation.columns[key].name;
            let assigns = |node: &Node| matches!(&node.node, Some(NodeEnum::ResTarget(target)) if target.name == *name);
            self.analysis.moves_key |= update.target_list.iter().any(assigns);
        }
        // What it returns are rows as they are now, about which filters outside say nothing.
        self.analysis.queries[query].recursive = true;
        self.analysis.modifications.push(Modification { target, relation, kind });
    }

    /// A SELECT with everything around it.
    pub(super) fn query(&mut self, select: &'a SelectStmt) -> Result<QueryId, Refusal> {
        let skips_stars = std::mem::take(&mut self.skips_stars);
        let (query, hidden) = self.open(select.with_clause.as_ref())?;
        if let (Some(left), Some(right)) = (&select.larg, &select.rarg) {
            // The parts of a set operation do not see its level, which has no tables.
            self.scopes.pop();
            let (left, right) = (self.query(left)?, self.query(right)?);
            self.scopes.push(query);
            let union = select.op() == SetKind::SetopUnion;
            let set = SetOperation { left, right, union_all: union && select.all };
            for part in [left, right] {
                self.analysis.queries[part].references += 1;
            }
            let outputs = self.analysis.queries[left].outputs.as_ref().map(|outputs| {
                outputs
                    .iter()
                    .map(|output| Output { column: None, value: None, ..*output })
                    .collect()
            });
            let of = &mut self.analysis.queries[query];
            of.set = Some(set);
            of.outputs = outputs;
            // ORDER BY of a set operation names its outputs, which have no columns to look up.
            of.names_unknown = true;
        } else if select.values_lists.is_empty() {
            self.select(select, query, skips_stars)?;
        } else {
            self.expressions(&select.values_lists)?;
            let width = match select.values_lists.first().and_then(|node| node.node.as_ref()) {
                Some(NodeEnum::List(list)) => list.items.len(),
                _ => 0,
            };
            let name = |index: usize| {
                VALUES_NAMES.get(index).map(|name| Output { name, column: None, value: None })
            };
            self.analysis.queries[query].outputs = (0..width).map(name).collect();
        }
        self.sorted(&select.sort_clause, select)?;
        for limit in [&select.limit_offset, &select.limit_count].into_iter().flatten() {
            self.expression(limit)?;
        }
        let of = &mut self.analysis.queries[query];
        of.has_order = !select.sort_clause.is_empty();
        of.has_limit = select.limit_offset.is_some() || select.limit_count.is_some();
        of.unstable |= of.has_limit || of.has_distinct_on || of.has_windows;
        for lock in &select.locking_clause {
            if let Some(NodeEnum::LockingClause(lock)) = &lock.node {
                self.lock(lock, query);
            }
        }
        self.close(hidden);
        Ok(query)
    }

    /// FROM, WHERE, GROUP BY, HAVING, WINDOW, DISTINCT and the outputs.
    fn select(
        &mut self,
        select: &'a SelectStmt,
        query: QueryId,
        skips_stars: bool,
    ) -> Result<(), Refusal> {
        self.filtering.push(query);
        self.add_from_list(&select.from_clause)?;
        self.where_clause(select.where_clause.as_deref(), query)?;
        self.filtering.pop();
        let skips_stars = skips_stars
            && select.distinct_clause.is_empty()
            && select.group_clause.is_empty()
            && select.having_clause.is_none();
        for target in &select.target_list {
            match skips_stars && is_star_of_tables(target) {
                true => self.star_for_its_rights(target),
                false => self.expression(target)?,
            }
        }
        for node in &select.group_clause {
            // A column comes before an output of its name.
            let means_output = bare_name(node).is_some_and(|name| {
                names_output(name, &select.target_list) && self.has_no_column(name, query)
            });
            if !means_output {
                self.expression(node)?;
            }
        }
        self.expressions(&select.window_clause)?;
        if let Some(having) = &select.having_clause {
            self.expression(having)?;
        }
        let mut group_columns = Vec::new();
        let mut has_grouping_sets = false;
        for node in &select.group_clause {
            match &node.node {
                Some(NodeEnum::GroupingSet(_)) => has_grouping_sets = true,
                _ => {
                    if let Some(NodeEnum::ColumnRef(reference)) = &node.node
                        && let Meaning::Column(column) =
                            self.analysis.meaning(reference, &self.scopes)
                    {
                        group_columns.push(column);
                    } else if let Some(reference) = named_output(node, &select.target_list)
                        && let Meaning::Column(column) =
                            self.analysis.meaning(reference, &self.scopes)
                    {
                        group_columns.push(column);
                    }
                }
            }
        }
        let on =
            select.distinct_clause.iter().filter(|node| node.node.is_some()).collect::<Vec<_>>();
        for node in &on {
            if !bare_name(node).is_some_and(|name| names_output(name, &select.target_list)) {
                self.expression(node)?;
            }
        }
        let has_distinct_on = !on.is_empty();
        // The outputs of the statement itself are only needed to see what DISTINCT ranges over, and what stars mean.
        let has_star = || select.target_list.iter().any(is_star_of_tables);
        let outputs = if query != 0 || !select.distinct_clause.is_empty() || has_star() {
            self.outputs(&select.target_list, query)
        } else {
            None
        };
        let of = &mut self.analysis.queries[query];
        of.outputs = outputs;
        of.having = select.having_clause.as_deref();
        of.group_columns = group_columns;
        of.has_grouping = !select.group_clause.is_empty();
        of.has_grouping_sets = has_grouping_sets || select.group_distinct;
        of.has_aggregates |= select.having_clause.is_some();
        of.has_distinct = !select.distinct_clause.is_empty();
        of.has_distinct_on = has_distinct_on;
        of.has_windows |= !select.window_clause.is_empty();
        Ok(())
    }

    /// The entries of an ORDER BY. One that is nothing but a name means the output that has it, before any column.
    fn sorted(&mut self, by: &'a [Node], select: &'a SelectStmt) -> Result<(), Refusal> {
        let mut first = select;
        while let Some(left) = &first.larg {
            first = left;
        }
        by.iter().try_for_each(|node| {
            let value = match &node.node {
                Some(NodeEnum::SortBy(by)) => by.node.as_deref(),
                _ => None,
            };
            let name = value.and_then(bare_name);
            match name.is_some_and(|name| names_output(name, &first.target_list)) {
                true => Ok(()),
                false => self.expression(node),
            }
        })
    }

    /// Whether it is certain that no column at this level has the name.
    fn has_no_column(&self, name: &str, query: QueryId) -> bool {
        let of = &self.analysis.queries[query];
        !of.names_unknown
            && of.merged.iter().all(|(merged, _)| *merged != name)
            && of.items.iter().all(|item| {
                !self.analysis.items[*item].hidden && self.analysis.find(*item, name) == Found::None
            })
    }

    fn where_clause(&mut self, node: Option<&'a Node>, query: QueryId) -> Result<(), Refusal> {
        let Some(node) = node else { return Ok(()) };
        if let Some(NodeEnum::CurrentOfExpr(current)) = &node.node {
            self.analysis.current_of = Some(&current.cursor_name);
            return Ok(());
        }
        self.analysis.queries[query].condition = Some(node);
        let first = self.analysis.queries[query].items.first().copied();
        let first = first.unwrap_or(self.analysis.items.len());
        self.filter(node, first..self.analysis.items.len())
    }

    fn returning(
        &mut self,
        returning: Option<&'a pg_query::protobuf::ReturningClause>,
        query: QueryId,
    ) -> Result<(), Refusal> {
        if let Some(returning) = returning {
            self.expressions(&returning.exprs)?;
            // `old` and `new` make what `*` means uncertain.
            if returning.options.is_empty() {
                self.analysis.queries[query].outputs = self.outputs(&returning.exprs, query);
            }
        }
        Ok(())
    }
}

/// What PostgreSQL calls the columns of VALUES.
const VALUES_NAMES: [&str; 16] = [
    "column1", "column2", "column3", "column4", "column5", "column6", "column7", "column8",
    "column9", "column10", "column11", "column12", "column13", "column14", "column15", "column16",
];
