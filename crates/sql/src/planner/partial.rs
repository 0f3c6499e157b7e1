//! Aggregates over several nodes: each node aggregates its own rows, and what they say is put together.
//!
//! Owns: for which queries that gives what one server would, what each node is asked, and the final statement.
//! Never: decides that a query is answered so (`query.rs` does), or which types may travel (the executor asks).
//! Start reading at [`of`].
//!
//! The query `SELECT g, sum(x) FROM t WHERE … GROUP BY g` becomes the same on each node, and then
//! `SELECT c1, sum(c2) FROM <what they said> AS f (c1, c2) GROUP BY c1`. The final statement knows the types and
//! collations of `c1` and `c2` from the nodes' query itself, which it has once more, and does not run.

use pg_query::NodeEnum;
use pg_query::protobuf::{ColumnRef, FuncCall, Node, ResTarget, SelectStmt};

use super::alike::Alike;
use super::analysis::Analysis;
use super::context::Context;
use super::gaps::{cut, expression, gap, parse_select};
use super::own_rows::{leave_database_out, split};
use super::sql_text::{deparse, deparse_expression};
use super::syntax::{is_star, name_of, string};
use super::time_gaps::TimeGaps;
use super::{output_names, printed, scatter};
use crate::plan::Partial;
use crate::refusal::Refusal;
use crate::walk;

mod aggregates;

use aggregates::{FLOAT4, FLOAT8, PartialColumn, PartialColumns, on_node, word};

/// A node says as many values as types, and no more than 1,664 (`MaxTupleAttributeNumber`).
const COLUMNS_MAX: usize = 800;
/// Values whose distinct ones are counted multiply the groups of a node.
const DISTINCT_MAX: usize = 2;

/// The query in parts, if that is exact: over what each node can say of its own rows, with aggregates that can be put
/// together.
///
/// `tree` has the locations of `analysis`.
pub(super) fn of(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Option<Partial>, Refusal> {
    let mut tree = Node { node: Some(tree.clone()) };
    TimeGaps { analysis: Some(analysis), context }.put(&mut tree)?;
    let Some(NodeEnum::SelectStmt(select)) = &tree.node else { return Ok(None) };
    let level = &analysis.queries[0];
    let is_grouped = level.has_aggregates || level.has_grouping;
    // Distinct rows are groups of all that is asked for.
    let is_of_groups = (is_grouped || (level.has_distinct && !level.has_windows))
        && !level.has_distinct_on
        && !level.has_row_makers
        && level.set.is_none()
        && select.with_clause.is_none()
        && select.into_clause.is_none()
        && select.locking_clause.is_empty();
    if !is_of_groups
        || analysis.time_in_view.is_some()
        || analysis.loose_star
        || !analysis.loose_names.is_empty()
        || !analysis.system_columns.is_empty()
        || context.opaque.is_some()
        || printed::is_hidden(context.scope)
        // What is on all nodes would be read on each at a moment of its own.
        || (context.collects_replicated
            && analysis.items.iter().any(|item| item.whole_on_node_1().is_some()))
        || analysis.items.iter().any(|item| item.sampled)
        || has_namesakes(analysis)
        || !select.limit_count.as_deref().is_none_or(may_be_counted)
        // What is said of a value's order is not said of the column that has it.
        || [&select.group_clause, &select.target_list, &select.sort_clause, &select.window_clause]
            .into_iter()
            .flatten()
            .any(collates)
        || select.having_clause.as_deref().is_some_and(collates)
        || scatter::obstacle_before_grouping(analysis).is_some()
    {
        return Ok(None);
    }
    let alike = Alike { analysis, context };
    if !alike.reads_alike(&select.from_clause, select.where_clause.as_deref()) {
        return Ok(None);
    }
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
    };
    let Some(outer) = parts.split(select, is_grouped)? else { return Ok(None) };
    if parts.columns.is_empty()
        || COLUMNS_MAX < parts.columns.len()
        || DISTINCT_MAX < parts.distinct.len()
    {
        return Ok(None);
    }
    parts.finish(select, outer).map(Some)
}

impl PartialColumns<'_, '_> {
    /// The final query's clauses, over the columns; `None` if the query cannot be split.
    fn split(
        &mut self,
        select: &SelectStmt,
        is_grouped: bool,
    ) -> Result<Option<SelectStmt>, Refusal> {
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
        let mut outer = SelectStmt {
            distinct_clause: select.distinct_clause.clone(),
            window_clause: select.window_clause.clone(),
            target_list: select.target_list.clone(),
            having_clause: select.having_clause.clone(),
            sort_clause: select.sort_clause.clone(),
            limit_offset: select.limit_offset.clone(),
            limit_count: select.limit_count.clone(),
            limit_option: select.limit_option,
            op: select.op,
            ..SelectStmt::default()
        };
        for target in &mut outer.target_list {
            let Some(NodeEnum::ResTarget(target)) = &mut target.node else { return Ok(None) };
            let Some(value) = target.val.as_deref_mut() else { return Ok(None) };
            if target.name.is_empty() {
                let Some(node) = &value.node else { return Ok(None) };
                output_names::figure(node).clone_into(&mut target.name);
            }
            if !self.rewrite(value)? {
                return Ok(None);
            }
        }
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
        for part in &mut outer.sort_clause {
            let Some(NodeEnum::SortBy(by)) = &mut part.node else { return Ok(None) };
            let Some(value) = by.node.as_deref_mut() else { return Ok(None) };
            if !names_output(select, value) && !self.rewrite(value)? {
                return Ok(None);
            }
        }
        for window in &mut outer.window_clause {
            if !self.rewrite(window)? {
                return Ok(None);
            }
        }
        outer.group_clause = match has_sets {
            true => group_clause,
            false => (1..=self.groups.len()).map(column).collect(),
        };
        outer.group_distinct = select.group_distinct;
        Ok(Some(outer))
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
        has_column(group) && compared.is_some() && outputs.count() < 2
    }

    /// Adds a group, unless it is known, and says which it is; `None`: its values may not travel.
    fn add_group(&mut self, group: &Node) -> Result<Option<usize>, Refusal> {
        let Some(compared) = self.compared(group) else { return Ok(None) };
        let Some(declared) = self.declared(group) else { return Ok(None) };
        if !self.alike.is_alike(group) {
            return Ok(None);
        }
        if let Some(known) = self.groups.iter().position(|known| *known == compared) {
            return Ok(Some(known));
        }
        self.groups.push(compared);
        self.declared.push(declared);
        let kind = group.node.as_ref().map(std::mem::discriminant);
        self.kinds.extend(kind.map(|kind| (kind, size(group))));
        let text = on_node(group)?;
        self.columns.push(PartialColumn { text, expected: None });
        Ok(Some(self.groups.len() - 1))
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
                let column = self.base(reference)?;
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
                (!before.iter().any(is_all)).then_some(())?;
                value(&before[place])
            }
            // A column comes before an output of its name.
            NodeEnum::ColumnRef(reference) if !self.is_column(reference) => {
                let [name] = &reference.fields[..] else { return None };
                let name = string(name)?;
                let mut named = select.target_list.iter().filter(|target| match &target.node {
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
                let name = format!("tutti column {} of {}", column.column, column.item);
                *node = reference_to(&[&name]);
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
    fn finish(&self, select: &SelectStmt, mut outer: SelectStmt) -> Result<Partial, Refusal> {
        let inner = SelectStmt {
            from_clause: select.from_clause.clone(),
            where_clause: select.where_clause.clone(),
            limit_option: pg_query::protobuf::LimitOption::Default.into(),
            op: select.op,
            ..SelectStmt::default()
        };
        let mut inner =
            NodeEnum::SelectStmt(Box::new(SelectStmt { target_list: vec![target("1")?], ..inner }));
        leave_database_out(&mut inner);
        let from = deparse(&inner)?;
        let from = from.strip_prefix("SELECT 1").unwrap_or_default();
        let columns: Vec<_> = self.columns.iter().map(|column| column.text.as_str()).collect();
        // By their places: a constant could not stand there.
        let places = (1..=self.groups.len()).chain(self.distinct.iter().copied());
        let groups: Vec<_> = places.map(|place| place.to_string()).collect();
        let by = match groups.is_empty() {
            true => String::new(),
            false => format!(" GROUP BY {}", groups.join(", ")),
        };
        let having = match self.conditions.is_empty() {
            true => String::new(),
            false => format!(" HAVING ({})", self.conditions.join(") AND (")),
        };
        let base = format!("SELECT {}{from}{by}{having}", columns.join(", "));
        let names: Vec<_> = (1..=columns.len()).map(|place| format!("c{place}")).collect();
        let names = names.join(", ");
        let values: Vec<_> = (1..).zip(&self.columns).map(|(at, of)| travelling(at, of)).collect();
        let types = (1..=columns.len())
            .map(|place| format!("pg_catalog.pg_typeof(tutti_f.c{place})::pg_catalog.oid"));
        // Whether an array's NULL is one to this session.
        let nulls = "pg_catalog.current_setting('array_nulls')".to_owned();
        let asked: Vec<_> = values.into_iter().chain(types).chain([nulls]).collect();
        let select = format!("SELECT {} FROM ({base}) AS tutti_f ({names})", asked.join(", "));
        let arrays: Vec<_> = (1..=columns.len())
            .map(|place| {
                format!(
                    "pg_catalog.unnest(COALESCE((SELECT pg_catalog.array_agg(tutti_z.c{place}) FROM tutti_z), \
                     {}))",
                    gap(place - 1)
                )
            })
            .collect();
        let frame = parse_select(&format!(
            "WITH tutti_z ({names}) AS ({base} LIMIT 0) \
             SELECT 1 FROM ROWS FROM ({}) AS tutti_f ({names})",
            arrays.join(", ")
        ))?;
        let limit_count = outer.limit_count.clone();
        outer.with_clause = frame.with_clause;
        outer.from_clause = frame.from_clause;
        let statement = cut(&deparse(&NodeEnum::SelectStmt(Box::new(outer)))?)?;
        let expected = self.columns.iter().map(|column| column.expected).collect();
        let limit = parameter_of(limit_count.as_deref());
        Ok(Partial { select: cut(&select)?, expected, limit, statement })
    }
}

/// A value as text that any session reads alike. (`text` of these is what they are written as.)
fn travelling(place: usize, column: &PartialColumn) -> String {
    match column.expected {
        // How floats are written depends on the session.
        Some(FLOAT4 | FLOAT8) => return format!("tutti.value_output(tutti_f.c{place})"),
        Some(_) => return format!("tutti_f.c{place}::pg_catalog.text"),
        None => (),
    }
    const AS_TEXT: &str = "{16,19,20,21,23,25,1043,1700,2950}";
    format!(
        "CASE WHEN pg_catalog.pg_typeof(tutti_f.c{place})::pg_catalog.oid OPERATOR(pg_catalog.=) \
         ANY ('{AS_TEXT}'::pg_catalog.oid[]) THEN tutti_f.c{place}::pg_catalog.text \
         ELSE tutti.value_output(tutti_f.c{place}) END"
    )
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

/// Whether a column is mentioned in it.
fn has_column(node: &Node) -> bool {
    let Some(of) = &node.node else { return false };
    let mut found = matches!(of, NodeEnum::ColumnRef(_));
    walk::read::children(of, &mut |child| found = found || has_column(child));
    found
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

fn is_all(target: &Node) -> bool {
    let Some(NodeEnum::ResTarget(target)) = &target.node else { return false };
    let value = target.val.as_ref().and_then(|value| value.node.as_ref());
    matches!(value, Some(NodeEnum::ColumnRef(reference)) if is_star(reference))
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
