//! Expressions: which columns they use, what they call, and the columns that a query has for others.
//!
//! Owns: that walk. Never: reads conditions (`filters.rs` does) or decides what a name means.
//! Start reading at [`Analyser::expression`].

use pg_query::NodeEnum;
use pg_query::protobuf::{ColumnRef, FuncCall, Node, SubLink, SubLinkType};

use super::Analyser;
use crate::planner::analysis::{ColumnId, ColumnUse, ItemId, Output, QueryId, SystemUse};
use crate::planner::names::Meaning;
use crate::planner::syntax::{is_star, is_star_of_value, name_of, string};
use crate::planner::{functions, output_names};
use crate::refusal::Refusal;
use crate::walk;

impl<'a> Analyser<'a> {
    /// The output columns of a target list; `None` if they cannot be known.
    pub(in crate::planner) fn outputs(
        &self,
        targets: &'a [Node],
        query: QueryId,
    ) -> Option<Vec<Output<'a>>> {
        let mut outputs = Vec::with_capacity(targets.len());
        for target in targets {
            let Some(NodeEnum::ResTarget(target)) = &target.node else { return None };
            let written = target.val.as_deref()?;
            let value = written.node.as_ref()?;
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
                        outputs.push(Output { name, column: Some(column), value: Some(written) });
                        continue;
                    }
                    Meaning::Unknown if is_star(reference) => return None,
                    Meaning::Row(_) | Meaning::System(_) | Meaning::Unknown => (),
                }
            }
            // How many columns its type has is not known here.
            if is_star_of_value(value) {
                return None;
            }
            let name = match target.name.as_str() {
                "" => output_names::figure(value),
                name => name,
            };
            outputs.push(Output { name, column: None, value: Some(written) });
        }
        Some(outputs)
    }

    fn all_columns(&self, item: ItemId, outputs: &mut Vec<Output<'a>>) -> Option<()> {
        for column in 0..self.analysis.width(item)? {
            let name = self.analysis.column_name(item, column)?;
            let column = Some(ColumnId { item, column });
            outputs.push(Output { name, column, value: None });
        }
        Some(())
    }

    pub(in crate::planner) fn expressions(&mut self, nodes: &'a [Node]) -> Result<(), Refusal> {
        nodes.iter().try_for_each(|node| self.expression(node))
    }

    /// Any expression, and whatever holds expressions.
    pub(in crate::planner) fn expression(&mut self, node: &'a Node) -> Result<(), Refusal> {
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
        self.in_expressions += 1;
        let result = self.joined(link);
        self.in_expressions -= 1;
        result
    }

    /// The same of a subquery that is tested for every row of its level, as a table is that is joined.
    pub(in crate::planner) fn joined(&mut self, link: &'a SubLink) -> Result<(), Refusal> {
        if let Some(test) = &link.testexpr {
            self.expression(test)?;
        }
        // What an EXISTS says that it selects is not computed.
        self.skips_stars = link.sub_link_type() == SubLinkType::ExistsSublink;
        let Some(subselect) = &link.subselect else { return Ok(()) };
        match &subselect.node {
            Some(NodeEnum::SelectStmt(select)) => {
                let (items, uses) = (self.analysis.items.len(), self.analysis.uses.len());
                let query = self.query(select)?;
                let of = &mut self.analysis.queries[query];
                of.references += 1;
                of.unstable |= link.sub_link_type() == SubLinkType::ArraySublink;
                // EXISTS and IN are joins to PostgreSQL, most often.
                let is_computed = matches!(
                    link.sub_link_type(),
                    SubLinkType::ExprSublink | SubLinkType::ArraySublink | SubLinkType::AllSublink
                );
                let depends = self.analysis.uses[uses..].iter().any(|used| used.item < items);
                self.analysis.computes_by_row |= is_computed && depends;
                Ok(())
            }
            _ => self.expression(subselect),
        }
    }

    /// `*` or `t.*` where it is not computed.
    pub(in crate::planner) fn star_for_its_rights(&mut self, target: &'a Node) {
        let Some(NodeEnum::ResTarget(target)) = &target.node else { return };
        let value = target.val.as_ref().and_then(|value| value.node.as_ref());
        let Some(NodeEnum::ColumnRef(star)) = value else { return };
        match self.analysis.meaning(star, &self.scopes) {
            Meaning::Row(item) => self.analysis.only_named.push(item),
            Meaning::Star(query) => {
                let items = self.analysis.queries[query].items.clone();
                self.analysis.only_named.extend(items);
            }
            Meaning::Column(_) | Meaning::System(_) | Meaning::Unknown => self.column_ref(star),
        }
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
            Meaning::System(item) => {
                let name = reference.fields.last().and_then(string).unwrap_or_default();
                let (location, is_bare) = (reference.location, reference.fields.len() == 1);
                let system = SystemUse { item, name, location, is_bare };
                self.analysis.system_columns.push(system);
            }
            Meaning::Unknown => {
                self.analysis.loose_star |= is_star(reference);
                self.analysis.loose_names.extend(reference.fields.iter().filter_map(string));
                self.note_attribute(reference);
            }
        }
    }

    /// `t.count` is `count(t)` where t has no such column.
    fn note_attribute(&mut self, reference: &ColumnRef) {
        let [_, .., name] = &reference.fields[..] else { return };
        let name = string(name).unwrap_or_default();
        let function = self.context.catalog.function(self.context.scope, None, name);
        if let Some(&level) = self.scopes.last() {
            let level = &mut self.analysis.queries[level];
            level.has_aggregates |= function.is_some_and(|function| function.aggregate);
            level.has_row_makers |= function.is_some_and(|function| function.returns_set);
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
            && let Some(level) = level
            && functions::adds_up(name_of(call).1)
            && (used.iter().any(|used| self.is_float(used)) || call.args.iter().any(may_make_float))
        {
            // Sums of floats depend on the order of the rows in their last digits.
            self.analysis.queries[level].unstable = true;
        }
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

impl Analyser<'_> {
    /// Whether a float may be meant.
    fn is_float(&self, used: &ColumnUse) -> bool {
        const FLOATS: [u32; 2] = [700, 701];
        let Some(column) = used.column else { return true };
        let id = ColumnId { item: used.item, column };
        match self.analysis.base(id).and_then(|(of, column)| of.columns.get(column)) {
            Some(column) => FLOATS.contains(&column.type_oid) || column.domain,
            None => true,
        }
    }
}

/// Whether a float may come of what is none: by a cast, or a function.
fn may_make_float(node: &Node) -> bool {
    const KEEP: [&str; 8] =
        ["abs", "char_length", "extract", "length", "mod", "octet_length", "round", "trunc"];
    let Some(of) = &node.node else { return false };
    let mut found = match of {
        NodeEnum::TypeCast(cast) => cast.type_name.as_ref().is_none_or(|name| {
            let name = name.names.last().and_then(string).unwrap_or_default();
            !["int2", "int4", "int8", "numeric"].contains(&name)
        }),
        NodeEnum::FuncCall(call) => !KEEP.contains(&name_of(call).1),
        NodeEnum::AExpr(of) => {
            let name = of.name.last().and_then(string).unwrap_or_default();
            ["^", "|/", "||/"].contains(&name)
        }
        _ => false,
    };
    walk::read::children(of, &mut |child| found = found || may_make_float(child));
    found
}

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
