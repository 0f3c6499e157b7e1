//! Walks a statement once and writes down what the planner needs to know of it.
//!
//! Owns: query levels, the entries of FROM clauses, CTEs and what hides what.
//! Never: decides. Conditions are read in `filters.rs`, names in `names.rs`.
//! Start reading at [`analyse`].

use std::ops::Range;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    Alias, ColumnRef, FuncCall, JoinExpr, JoinType, LockingClause, Node, RangeVar, SelectStmt,
    SetOperation as SetKind, SubLink, WithClause,
};

use super::analysis::{
    Analysis, ColumnUse, Constraint, Item, ItemId, Modification, ModificationKind, Output, Query,
    QueryId, SetOperation, Source, Spread,
};
use super::context::Context;
use super::names::{Found, Meaning};
use super::syntax::{name_of, string};
use super::{functions, oids, output_names};
use crate::catalog::{Relation, RelationKind};
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
    Ok(analyser.finish())
}

/// The same for a SELECT.
pub(super) fn analyse_select<'a>(
    select: &'a SelectStmt,
    context: &Context<'a>,
) -> Result<Analysis<'a>, Refusal> {
    let mut analyser = Analyser::new(*context);
    analyser.query(select)?;
    let mut shows = false;
    walk::read::select(select, &mut |child| {
        shows = shows || child.node.as_ref().is_some_and(oids::shows);
    });
    analyser.show_oids_of_home(shows);
    Ok(analyser.finish())
}

fn not_looked_into(view: &Relation) -> Refusal {
    Refusal::postgres("XX000", format!("view \"{}\" was not looked into", view.name))
}

/// The column that an output is, where GROUP BY says the output's name or number.
fn named_output<'n>(grouped: &Node, outputs: &'n [Node]) -> Option<&'n ColumnRef> {
    use pg_query::protobuf::a_const::Val;
    let targets = || {
        outputs.iter().map_while(|node| match node.node.as_ref()? {
            NodeEnum::ResTarget(target) => Some(&**target),
            _ => None,
        })
    };
    let column =
        |target: &'n pg_query::protobuf::ResTarget| match target.val.as_ref()?.node.as_ref()? {
            NodeEnum::ColumnRef(reference) => Some(reference),
            _ => None,
        };
    let is_star = |target: &pg_query::protobuf::ResTarget| {
        let column = target.val.as_ref().and_then(|value| match value.node.as_ref()? {
            NodeEnum::ColumnRef(reference) => reference.fields.last(),
            _ => None,
        });
        column.is_some_and(|last| matches!(last.node, Some(NodeEnum::AStar(_))))
    };
    match grouped.node.as_ref()? {
        NodeEnum::ColumnRef(reference) => {
            let [name] = &reference.fields[..] else { return None };
            let name = string(name)?;
            targets().find(|target| target.name == name).and_then(column)
        }
        NodeEnum::AConst(constant) => {
            let Some(Val::Ival(number)) = &constant.val else { return None };
            let index = usize::try_from(number.ival).ok()?.checked_sub(1)?;
            if targets().take(index).any(is_star) {
                return None;
            }
            targets().nth(index).and_then(column)
        }
        _ => None,
    }
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
    /// Query levels whose FROM and WHERE are being read.
    filtering: Vec<QueryId>,
}

impl<'a> Analyser<'a> {
    fn new(context: Context<'a>) -> Self {
        Self {
            context,
            analysis: Analysis::default(),
            scopes: Vec::new(),
            ctes: Vec::new(),
            in_aggregate: false,
            filtering: Vec::new(),
        }
    }

    fn finish(mut self) -> Analysis<'a> {
        self.analysis.functions.add_opaque(&self.context);
        self.analysis
    }

    /// Clients know tables and types by the OIDs of node 1.
    fn show_oids_of_home(&mut self, shows: bool) {
        if shows && !self.analysis.items.is_empty() {
            self.analysis.functions.home.get_or_insert_with(|| "regclass".to_owned());
        }
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
                    self.add_from_item(source, false)?;
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
        self.analysis.queries.push(Query::default());
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
            && let Spread::Hash { key, .. } = Spread::of(relation)
        {
            let name = &relation.columns[key].name;
            let assigns = |node: &Node| matches!(&node.node, Some(NodeEnum::ResTarget(target)) if target.name == *name);
            self.analysis.moves_key |= update.target_list.iter().any(assigns);
        }
        // What it returns are rows as they are now, of which filters outside say nothing.
        self.analysis.queries[query].recursive = true;
        self.analysis.modifications.push(Modification { target, relation, kind });
    }

    /// A SELECT with everything around it.
    pub(super) fn query(&mut self, select: &'a SelectStmt) -> Result<QueryId, Refusal> {
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
                outputs.iter().map(|output| Output { name: output.name, column: None }).collect()
            });
            let of = &mut self.analysis.queries[query];
            of.set = Some(set);
            of.outputs = outputs;
            // ORDER BY of a set operation names its outputs, which have no columns to look up.
            of.names_unknown = true;
        } else if select.values_lists.is_empty() {
            self.select(select, query)?;
        } else {
            self.expressions(&select.values_lists)?;
            let width = match select.values_lists.first().and_then(|node| node.node.as_ref()) {
                Some(NodeEnum::List(list)) => list.items.len(),
                _ => 0,
            };
            let name =
                |index: usize| VALUES_NAMES.get(index).map(|name| Output { name, column: None });
            self.analysis.queries[query].outputs = (0..width).map(name).collect();
        }
        self.expressions(&select.sort_clause)?;
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
    fn select(&mut self, select: &'a SelectStmt, query: QueryId) -> Result<(), Refusal> {
        self.filtering.push(query);
        self.add_from_list(&select.from_clause)?;
        self.where_clause(select.where_clause.as_deref(), query)?;
        self.filtering.pop();
        self.expressions(&select.target_list)?;
        self.expressions(&select.group_clause)?;
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
            self.expression(node)?;
        }
        let has_distinct_on = !on.is_empty();
        // The outputs of the statement itself are only needed to see what DISTINCT ranges over.
        let outputs = if query != 0 || !select.distinct_clause.is_empty() {
            self.outputs(&select.target_list, query)
        } else {
            None
        };
        let of = &mut self.analysis.queries[query];
        of.outputs = outputs;
        of.group_columns = group_columns;
        of.has_grouping = !select.group_clause.is_empty();
        of.has_grouping_sets = has_grouping_sets || select.group_distinct;
        of.has_aggregates |= select.having_clause.is_some();
        of.has_distinct = !select.distinct_clause.is_empty();
        of.has_distinct_on = has_distinct_on;
        of.has_windows |= !select.window_clause.is_empty();
        Ok(())
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

    /// The table that a statement changes.
    fn target(&mut self, range: Option<&'a RangeVar>) -> Result<ItemId, Refusal> {
        let target = self.analysis.items.len();
        if let Some(range) = range {
            let relation = self.context.relation(range);
            if relation.is_none() {
                self.analysis.home_relation.get_or_insert_with(|| range.relname.clone());
            }
            let source = relation.map_or(Source::Opaque, |relation| Source::Table {
                relation,
                spread: Spread::of(relation),
            });
            // A target stays where it is: no location by which it could be replaced.
            self.add_item(source, &range.relname, range.alias.as_ref(), -1, true);
            self.analysis.target = Some(target);
        }
        Ok(target)
    }

    fn add_from_list(&mut self, from: &'a [Node]) -> Result<(), Refusal> {
        from.iter().try_for_each(|node| self.add_from_item(node, true).map(|_| ()))
    }

    /// An entry of FROM; returns the items that it made at this level.
    fn add_from_item(&mut self, node: &'a Node, linear: bool) -> Result<Vec<ItemId>, Refusal> {
        match node.node.as_ref() {
            Some(NodeEnum::RangeVar(range)) => Ok(vec![self.range_var(range, linear)?]),
            Some(NodeEnum::RangeSubselect(sub)) => {
                let Some(NodeEnum::SelectStmt(select)) =
                    sub.subquery.as_ref().and_then(|node| node.node.as_ref())
                else {
                    return Ok(Vec::new());
                };
                // Without LATERAL it does not see its neighbours.
                let level = if sub.lateral { None } else { self.scopes.pop() };
                let query = self.query(select)?;
                self.scopes.extend(level);
                self.analysis.queries[query].references += 1;
                Ok(vec![self.add_item(Source::Query(query), "", sub.alias.as_ref(), -1, linear)])
            }
            Some(NodeEnum::JoinExpr(join)) => self.join(join, linear),
            Some(NodeEnum::RangeTableSample(sample)) => {
                self.expressions(&sample.args)?;
                if let Some(repeatable) = &sample.repeatable {
                    self.expression(repeatable)?;
                }
                let Some(relation) = &sample.relation else { return Ok(Vec::new()) };
                let items = self.add_from_item(relation, linear)?;
                for &item in &items {
                    self.analysis.items[item].sampled = true;
                }
                Ok(items)
            }
            Some(function) => {
                let alias = match function {
                    NodeEnum::RangeFunction(function) => function.alias.as_ref(),
                    NodeEnum::RangeTableFunc(function) => function.alias.as_ref(),
                    NodeEnum::JsonTable(table) => table.alias.as_ref(),
                    _ => None,
                };
                self.expression(node)?;
                Ok(vec![self.add_item(Source::Opaque, "", alias, -1, linear)])
            }
            None => Ok(Vec::new()),
        }
    }

    fn range_var(&mut self, range: &'a RangeVar, linear: bool) -> Result<ItemId, Refusal> {
        let alias = range.alias.as_ref();
        if range.schemaname.is_empty()
            && let Some(cte) = self.ctes.iter_mut().rev().find(|cte| cte.name == range.relname)
        {
            cte.met += 1;
            let source = match cte.query {
                Some(query) => {
                    self.analysis.queries[query].references += 1;
                    Source::Query(query)
                }
                None => Source::Opaque,
            };
            return Ok(self.add_item(source, &range.relname, alias, -1, linear));
        }
        let Some(relation) = self.context.relation(range) else {
            self.analysis.home_relation.get_or_insert_with(|| range.relname.clone());
            return Ok(self.add_item(
                Source::Opaque,
                &range.relname,
                alias,
                range.location,
                linear,
            ));
        };
        let spread = match &relation.kind {
            RelationKind::View { .. } => {
                let Some(known) = self.context.views else { return Err(not_looked_into(relation)) };
                let contents = known.contents(relation)?;
                if contents.functions.reads_time {
                    let why = || format!("view {} reads the current time", relation.name);
                    self.analysis.time_in_view.get_or_insert_with(why);
                }
                self.analysis.functions.merge(contents.functions.clone());
                // With one node nothing is expanded, for nothing needs to be.
                let expands = contents.distributed && !self.context.catalog.is_solo();
                if expands && !contents.is_apart(self.context.opaque.is_some()) {
                    return Err(Refusal::postgres(
                        "XX000",
                        format!("view \"{}\" was not expanded", relation.name),
                    ));
                }
                match (expands, contents.home) {
                    (true, _) => Spread::RoundRobin,
                    (false, true) => Spread::Home,
                    (false, false) => Spread::Replicated,
                }
            }
            _ => Spread::of(relation),
        };
        if spread == Spread::Home {
            self.analysis.home_relation.get_or_insert_with(|| relation.name.clone());
        }
        let source = Source::Table { relation, spread };
        Ok(self.add_item(source, &range.relname, alias, range.location, linear))
    }

    fn add_item(
        &mut self,
        source: Source<'a>,
        name: &'a str,
        alias: Option<&'a Alias>,
        location: i32,
        linear: bool,
    ) -> ItemId {
        let id = self.analysis.items.len();
        let name = alias.map_or(name, |alias| &alias.aliasname);
        self.analysis.items.push(Item {
            source,
            name,
            alias,
            location,
            linear,
            sampled: false,
            hidden: false,
        });
        if let Some(&level) = self.scopes.last() {
            self.analysis.queries[level].items.push(id);
        }
        id
    }

    /// An item that no name reaches.
    pub(super) fn add_nameless_item(&mut self, query: QueryId) -> ItemId {
        self.analysis.queries[query].references += 1;
        self.analysis.items.push(Item {
            source: Source::Query(query),
            name: "",
            alias: None,
            location: -1,
            linear: false,
            sampled: false,
            hidden: true,
        });
        self.analysis.items.len() - 1
    }

    fn join(&mut self, join: &'a JoinExpr, linear: bool) -> Result<Vec<ItemId>, Refusal> {
        let kind = join.jointype();
        let start = self.analysis.items.len();
        let side = |node: &'a Option<Box<Node>>, this: &mut Self, linear| match node {
            Some(node) => this.add_from_item(node, linear),
            None => Ok(Vec::new()),
        };
        let keeps_left = matches!(kind, JoinType::JoinInner | JoinType::JoinLeft);
        let keeps_right = matches!(kind, JoinType::JoinInner | JoinType::JoinRight);
        let left = side(&join.larg, self, linear && keeps_left)?;
        let middle = self.analysis.items.len();
        let right = side(&join.rarg, self, linear && keeps_right)?;
        let end = self.analysis.items.len();
        // Rows that break an ON condition can be left out on the sides that it may drop rows of.
        let pinnable = match kind {
            JoinType::JoinInner => start..end,
            JoinType::JoinLeft => middle..end,
            JoinType::JoinRight => start..middle,
            _ => end..end,
        };
        if join.is_natural {
            self.natural(&left, &right, &pinnable, kind);
        }
        for name in join.using_clause.iter().filter_map(string) {
            self.analysis.loose_names.push(name);
            self.merge_column(name, &left, &right, &pinnable, kind);
        }
        if let Some(quals) = &join.quals {
            self.filter(quals, pinnable)?;
        }
        let mut items = left;
        items.extend(right);
        if let Some(alias) = &join.alias {
            for &item in &items {
                self.analysis.items[item].hidden = true;
            }
            if let Some(&level) = self.scopes.last() {
                self.analysis.queries[level].merged.clear();
            }
            // Its columns are those of both sides; `join_alias.c` is looked up by name alone.
            self.analysis.loose_star = true;
            items.push(self.add_item(Source::Opaque, "", Some(alias), -1, false));
        }
        Ok(items)
    }

    fn natural(
        &mut self,
        left: &[ItemId],
        right: &[ItemId],
        pinnable: &Range<ItemId>,
        kind: JoinType,
    ) {
        self.analysis.loose_star = true;
        let known = left.iter().chain(right).all(|item| self.analysis.width(*item).is_some());
        if !known {
            if let Some(&level) = self.scopes.last() {
                self.analysis.queries[level].names_unknown = true;
            }
            return;
        }
        let mut names = Vec::new();
        for &item in left {
            for column in 0..self.analysis.width(item).unwrap_or(0) {
                if let Some(name) = self.analysis.column_name(item, column)
                    && !names.contains(&name)
                    && right.iter().any(|item| self.analysis.find(*item, name) != Found::None)
                {
                    names.push(name);
                }
            }
        }
        for name in names {
            self.merge_column(name, left, right, pinnable, kind);
        }
    }

    /// One column of USING or NATURAL.
    fn merge_column(
        &mut self,
        name: &'a str,
        left: &[ItemId],
        right: &[ItemId],
        pinnable: &Range<ItemId>,
        kind: JoinType,
    ) {
        let Some(&level) = self.scopes.last() else { return };
        let merged = &self.analysis.queries[level].merged;
        let earlier = merged.iter().rev().find(|(merged, _)| *merged == name).map(|(_, id)| *id);
        let find = |side: &[ItemId]| {
            let mut found = side.iter().filter_map(|item| match self.analysis.find(*item, name) {
                Found::One(column) => Some(column),
                Found::None | Found::Uncertain => None,
            });
            let first = found.next()?;
            if found.next().is_none() { Some(first) } else { earlier? }
        };
        let (from_left, from_right) = (find(left), find(right));
        if let (Some(left), Some(right)) = (from_left, from_right) {
            self.analysis.constraints.push(Constraint::Equal {
                left,
                pins_left: pinnable.contains(&left.item),
                right,
                pins_right: pinnable.contains(&right.item),
            });
        }
        let value = match kind {
            JoinType::JoinInner | JoinType::JoinLeft => from_left,
            JoinType::JoinRight => from_right,
            _ => None,
        };
        self.analysis.queries[level].merged.push((name, value));
    }

    /// FOR UPDATE and its kin.
    fn lock(&mut self, lock: &LockingClause, query: QueryId) {
        let names = lock.locked_rels.iter().filter_map(|node| match &node.node {
            Some(NodeEnum::RangeVar(range)) => Some(range.relname.as_str()),
            _ => None,
        });
        let names = names.collect::<Vec<_>>();
        for item in self.analysis.queries[query].items.clone() {
            if names.is_empty() || names.contains(&self.analysis.items[item].name) {
                self.lock_item(item);
            }
        }
    }

    fn lock_item(&mut self, item: ItemId) {
        match self.analysis.items[item].source {
            Source::Table { .. } => self.analysis.locked.push(item),
            Source::Query(query) => {
                for item in self.analysis.queries[query].items.clone() {
                    self.lock_item(item);
                }
            }
            Source::Opaque => (),
        }
    }

    /// The output columns of a target list; `None` if they cannot be known.
    fn outputs(&self, targets: &'a [Node], query: QueryId) -> Option<Vec<Output<'a>>> {
        let mut outputs = Vec::with_capacity(targets.len());
        for target in targets {
            let Some(NodeEnum::ResTarget(target)) = &target.node else { return None };
            let value = target.val.as_ref()?.node.as_ref()?;
            if let NodeEnum::ColumnRef(reference) = value {
                match self.analysis.meaning(reference, &self.scopes) {
                    Meaning::Star(_) => {
                        let level = &self.analysis.queries[query];
                        if !level.merged.is_empty() || level.names_unknown {
                            return None;
                        }
                        for &item in &level.items {
                            if self.analysis.items[item].hidden {
                                return None;
                            }
                            self.all_columns(item, &mut outputs)?;
                        }
                        continue;
                    }
                    Meaning::Row(item) if is_star(reference) => {
                        self.all_columns(item, &mut outputs)?;
                        continue;
                    }
                    Meaning::Column(column) => {
                        let name = reference.fields.last().and_then(string)?;
                        let name = if target.name.is_empty() { name } else { &target.name };
                        outputs.push(Output { name, column: Some(column) });
                        continue;
                    }
                    Meaning::Unknown if is_star(reference) => return None,
                    Meaning::Row(_) | Meaning::System(_) | Meaning::Unknown => (),
                }
            }
            let name = match target.name.as_str() {
                "" => output_names::figure(value),
                name => name,
            };
            outputs.push(Output { name, column: None });
        }
        Some(outputs)
    }

    fn all_columns(&self, item: ItemId, outputs: &mut Vec<Output<'a>>) -> Option<()> {
        for column in 0..self.analysis.width(item)? {
            let name = self.analysis.column_name(item, column)?;
            let column = Some(super::analysis::ColumnId { item, column });
            outputs.push(Output { name, column });
        }
        Some(())
    }

    pub(super) fn expressions(&mut self, nodes: &'a [Node]) -> Result<(), Refusal> {
        nodes.iter().try_for_each(|node| self.expression(node))
    }

    /// Any expression, and whatever holds expressions.
    pub(super) fn expression(&mut self, node: &'a Node) -> Result<(), Refusal> {
        let Some(node) = &node.node else { return Ok(()) };
        match node {
            NodeEnum::ColumnRef(reference) => self.column_ref(reference),
            NodeEnum::SelectStmt(select) => {
                let query = self.query(select)?;
                self.analysis.queries[query].references += 1;
                return Ok(());
            }
            NodeEnum::SubLink(link) => return self.sublink(link),
            NodeEnum::FuncCall(call) => return self.call(call),
            NodeEnum::JsonArrayAgg(_) | NodeEnum::JsonObjectAgg(_) => {
                if let Some(&level) = self.scopes.last() {
                    let level = &mut self.analysis.queries[level];
                    level.has_aggregates = true;
                    level.unstable = true;
                }
            }
            NodeEnum::GroupingFunc(_) => {
                if let Some(&level) = self.scopes.last() {
                    self.analysis.queries[level].has_aggregates = true;
                }
            }
            NodeEnum::SqlvalueFunction(function) => {
                self.analysis.functions.add_value_function(function);
            }
            _ => (),
        }
        self.children(node)
    }

    fn children(&mut self, node: &'a NodeEnum) -> Result<(), Refusal> {
        let mut result = Ok(());
        walk::read::children(node, &mut |child| {
            if result.is_ok() {
                result = self.expression(child);
            }
        });
        result
    }

    fn sublink(&mut self, link: &'a SubLink) -> Result<(), Refusal> {
        if let Some(test) = &link.testexpr {
            self.expression(test)?;
        }
        if let Some(subselect) = &link.subselect {
            self.expression(subselect)?;
        }
        Ok(())
    }

    fn column_ref(&mut self, reference: &'a ColumnRef) {
        match self.analysis.meaning(reference, &self.scopes) {
            Meaning::Column(column) => self.used(column.item, Some(column.column), reference),
            Meaning::Row(item) => self.used(item, None, reference),
            Meaning::Star(query) => {
                for item in self.analysis.queries[query].items.clone() {
                    self.used(item, None, reference);
                }
            }
            Meaning::System(item) => self.analysis.system_columns.push(item),
            Meaning::Unknown => {
                self.analysis.loose_star |= is_star(reference);
                self.analysis.loose_names.extend(reference.fields.iter().filter_map(string));
            }
        }
    }

    fn used(&mut self, item: ItemId, column: Option<usize>, reference: &ColumnRef) {
        let is_filtered =
            self.filtering.iter().any(|query| self.analysis.queries[*query].items.contains(&item));
        let before_grouping = self.in_aggregate || is_filtered;
        let location = reference.location;
        self.analysis.uses.push(ColumnUse { item, column, location, before_grouping });
    }

    fn call(&mut self, call: &'a FuncCall) -> Result<(), Refusal> {
        let function = self.analysis.functions.add(call, &self.context);
        let is_window = call.over.is_some();
        let is_aggregate = !is_window
            && (call.agg_star
                || call.agg_distinct
                || call.agg_within_group
                || call.agg_filter.is_some()
                || !call.agg_order.is_empty()
                || function.is_some_and(|function| function.aggregate));
        let level = self.scopes.last().copied();
        if let Some(level) = level {
            let (_, name) = name_of(call);
            let level = &mut self.analysis.queries[level];
            level.has_windows |= is_window;
            level.has_aggregates |= is_aggregate;
            level.unstable |= is_aggregate && !functions::is_orderless(name);
            level.has_row_makers |= function.is_some_and(|function| function.returns_set);
        }
        let used_before = self.analysis.uses.len();
        let was_in_aggregate = self.in_aggregate;
        self.in_aggregate |= is_aggregate;
        let mut result = Ok(());
        visit_call(call, &mut |child| {
            if result.is_ok() {
                result = self.expression(child);
            }
        });
        self.in_aggregate = was_in_aggregate;
        let used = &self.analysis.uses[used_before..];
        if is_aggregate
            && !used.is_empty()
            && let Some(level) = level
            && !used.iter().any(|used| self.analysis.queries[level].items.contains(&used.item))
        {
            self.analysis.outer_aggregate = true;
        }
        result
    }
}

/// What PostgreSQL calls the columns of VALUES.
const VALUES_NAMES: [&str; 16] = [
    "column1", "column2", "column3", "column4", "column5", "column6", "column7", "column8",
    "column9", "column10", "column11", "column12", "column13", "column14", "column15", "column16",
];

/// The arguments of a call, its ORDER BY, FILTER and OVER.
fn visit_call<'a>(call: &'a FuncCall, visit: &mut dyn FnMut(&'a Node)) {
    call.args.iter().for_each(&mut *visit);
    call.agg_order.iter().for_each(&mut *visit);
    call.agg_filter.as_deref().into_iter().for_each(&mut *visit);
    if let Some(over) = &call.over {
        over.partition_clause.iter().for_each(&mut *visit);
        over.order_clause.iter().for_each(&mut *visit);
        over.start_offset.as_deref().into_iter().for_each(&mut *visit);
        over.end_offset.as_deref().into_iter().for_each(&mut *visit);
    }
}

pub(super) fn is_star(reference: &ColumnRef) -> bool {
    reference.fields.last().is_some_and(|node| matches!(node.node, Some(NodeEnum::AStar(_))))
}
