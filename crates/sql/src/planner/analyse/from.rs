//! The entries of FROM clauses, the tables that are changed, and what is locked of them.
//!
//! Owns: joins, and which condition may leave out rows of which side. Never: decides what a name means.
//! Start reading at [`Analyser::add_from_item`].

use std::ops::Range;

use pg_query::NodeEnum;
use pg_query::protobuf::{Alias, JoinExpr, JoinType, LockingClause, Node, RangeVar};

use super::Analyser;
use crate::catalog::{Placement, Relation, RelationKind};
use crate::planner::analysis::{
    ColumnId, ColumnUse, Constraint, Item, ItemId, NOWHERE, QueryId, Source, Whereabouts,
};
use crate::planner::names::Found;
use crate::planner::syntax::string;
use crate::refusal::Refusal;

impl<'a> Analyser<'a> {
    /// The table that a statement changes.
    pub(in crate::planner) fn target(
        &mut self,
        range: Option<&'a RangeVar>,
    ) -> Result<ItemId, Refusal> {
        let target = self.analysis.items.len();
        if let Some(range) = range {
            let relation = self.context.relation(range);
            if relation.is_none() {
                self.note_home_alone(&range.relname);
            }
            let source = relation.map_or(Source::Opaque, |relation| Source::Table {
                relation,
                spread: Whereabouts::of(relation),
            });
            // A target stays where it is: no location by which it could be replaced.
            self.add_item(source, &range.relname, range.alias.as_ref(), -1, true);
            self.analysis.target = Some(target);
        }
        Ok(target)
    }

    pub(in crate::planner) fn add_from_list(&mut self, from: &'a [Node]) -> Result<(), Refusal> {
        from.iter().try_for_each(|node| self.add_from_item(node, true).map(|_| ()))
    }

    /// An entry of FROM; returns the items that it made at this level.
    pub(in crate::planner) fn add_from_item(
        &mut self,
        node: &'a Node,
        linear: bool,
    ) -> Result<Vec<ItemId>, Refusal> {
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
                // With it, it is computed for each of their rows, of which there may be none.
                self.in_expressions += usize::from(sub.lateral);
                let query = self.query(select)?;
                self.in_expressions -= usize::from(sub.lateral);
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
                    self.analysis.items[item].sample = Some(sample);
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
            self.note_home_alone(&range.relname);
            return Ok(self.add_item(
                Source::Opaque,
                &range.relname,
                alias,
                range.location,
                linear,
            ));
        };
        let mut varies = false;
        let spread = match &relation.kind {
            RelationKind::View { .. } => {
                let Some(known) = self.context.views else { return Err(not_looked_into(relation)) };
                let contents = known.contents(relation)?;
                if contents.functions.reads_time {
                    let why = || format!("view {} reads the current time", relation.name);
                    self.analysis.time_in_view.get_or_insert_with(why);
                }
                self.analysis.functions.merge(contents.functions.clone());
                varies = contents.varies;
                // With one node nothing is expanded, for nothing needs to be.
                let expands = contents.distributed && !self.context.catalog.is_solo();
                if expands
                    && !self.context.views_stay
                    && !contents.is_apart(self.context.opaque.is_some())
                {
                    return Err(Refusal::postgres(
                        "XX000",
                        format!("view \"{}\" was not expanded", relation.name),
                    ));
                }
                match (expands, contents.home) {
                    (true, _) => Whereabouts::RoundRobin,
                    (false, true) => Whereabouts::Home,
                    (false, false) => Whereabouts::Replicated,
                }
            }
            _ => Whereabouts::of(relation),
        };
        // Other nodes would not know the type of rows that were returned by a table of node 1, either.
        let is_returned_by_home =
            relation.returned_by.is_some() && relation.placement == Placement::Home;
        if is_returned_by_home {
            self.note_home_alone(&relation.name);
        }
        if spread == Whereabouts::Home {
            self.analysis.home_relation.get_or_insert_with(|| relation.name.clone());
        }
        let source = Source::Table { relation, spread };
        let item = self.add_item(source, &range.relname, alias, range.location, linear);
        (self.analysis.items[item].only, self.analysis.items[item].varies) = (!range.inh, varies);
        Ok(item)
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
            sample: None,
            only: false,
            varies: false,
            hidden: false,
        });
        if let Some(&level) = self.scopes.last() {
            self.analysis.queries[level].items.push(id);
        }
        id
    }

    /// An item that no name reaches.
    pub(in crate::planner) fn add_nameless_item(&mut self, query: QueryId) -> ItemId {
        self.analysis.queries[query].references += 1;
        self.analysis.items.push(Item {
            source: Source::Query(query),
            name: "",
            alias: None,
            location: -1,
            linear: false,
            sample: None,
            only: false,
            varies: false,
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
            if !self.merge_column(name, &left, &right, &pinnable, kind) {
                self.analysis.loose_names.push(name);
            }
        }
        if let Some(quals) = &join.quals {
            self.filter(quals, pinnable.clone())?;
            // Of a condition that NULL meets, only where none of these rows was made of NULLs before.
            let is_alone = pinnable.len() == 1;
            let drops = |item: &ItemId| self.analysis.items[*item].linear || is_alone;
            let dropped: Vec<_> = pinnable.filter(drops).collect();
            if let Some(&level) = self.scopes.last() {
                self.analysis.queries[level].join_conditions.push((quals, dropped));
            }
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

    /// One column of USING or NATURAL. False: it is not known of both sides which it is.
    fn merge_column(
        &mut self,
        name: &'a str,
        left: &[ItemId],
        right: &[ItemId],
        pinnable: &Range<ItemId>,
        kind: JoinType,
    ) -> bool {
        let Some(&level) = self.scopes.last() else { return false };
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
            if !self.context.replaces_operator("=") {
                self.analysis.constraints.push(Constraint::Equal {
                    left,
                    pins_left: pinnable.contains(&left.item),
                    right,
                    pins_right: pinnable.contains(&right.item),
                });
            }
            for ColumnId { item, column } in [left, right] {
                let (column, location) = (Some(column), NOWHERE);
                self.analysis.uses.push(ColumnUse {
                    item,
                    column,
                    location,
                    before_grouping: true,
                });
            }
        }
        let declared = |column: Option<ColumnId>| {
            let (relation, column) = self.analysis.base(column?)?;
            Some(&relation.columns.get(column)?.declared_type)
        };
        let are_alike = declared(from_left).is_some_and(|it| Some(it) == declared(from_right));
        if !are_alike {
            self.analysis.queries[level].merged_unlike.push(name);
        }
        // Of two types the column has one that may be neither's, in which conditions are computed otherwise.
        let type_oid = |column: Option<ColumnId>| {
            let (relation, column) = self.analysis.base(column?)?;
            relation.columns.get(column).map(|of| (of.type_oid, of.nondeterministic))
        };
        let is_of_one_type = type_oid(from_left).is_some_and(|it| Some(it) == type_oid(from_right));
        let value = match kind {
            _ if !is_of_one_type => None,
            JoinType::JoinInner | JoinType::JoinLeft => from_left,
            JoinType::JoinRight => from_right,
            _ => None,
        };
        self.analysis.queries[level].merged.push((name, value));
        from_left.is_some() && from_right.is_some()
    }

    /// FOR UPDATE and the like.
    pub(in crate::planner) fn lock(&mut self, lock: &LockingClause, query: QueryId) {
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
}

fn not_looked_into(view: &Relation) -> Refusal {
    Refusal::postgres("XX000", format!("view \"{}\" was not looked into", view.name))
}
