//! Aggregates of which nodes say parts: what each node is asked, and how the parts are put together.
//!
//! Owns: which aggregates these are, and that the final one is PostgreSQL's to the last digit (but for floats).
//! Never: decides whether a query is split.
//! Start reading at [`PartialColumns::put_together`].

use std::mem::Discriminant;

use pg_query::NodeEnum;
use pg_query::protobuf::{ColumnRef, FuncCall, Node};

use crate::catalog::Column;
use crate::planner::alike::Alike;
use crate::planner::analysis::{Analysis, ColumnId, NOWHERE, Query, Source};
use crate::planner::context::Context;
use crate::planner::functions::is_built_in;
use crate::planner::gaps::expression;
use crate::planner::gather::is_read_alike;
use crate::planner::own_rows::leave_database_out;
use crate::planner::sql_text::deparse_expression;
use crate::planner::syntax::{name_of, string};
use crate::refusal::Refusal;
use crate::walk;

const INT2: u32 = 21;
const INT4: u32 = 23;
const INT8: u32 = 20;
const NUMERIC: u32 = 1700;
pub(in crate::planner) const FLOAT4: u32 = 700;
pub(in crate::planner) const FLOAT8: u32 = 701;

/// What aggregates are put together by.
enum Putting {
    /// The same aggregate of the parts.
    Same,
    Count,
    Sum,
    Average,
    /// The variance of a sample or of the population, or the root of it.
    Variance {
        is_of_sample: bool,
        is_root: bool,
    },
}

fn putting(name: &str) -> Option<Putting> {
    Some(match name {
        "count" => Putting::Count,
        "sum" => Putting::Sum,
        "avg" => Putting::Average,
        "variance" | "var_samp" => Putting::Variance { is_of_sample: true, is_root: false },
        "var_pop" => Putting::Variance { is_of_sample: false, is_root: false },
        "stddev" | "stddev_samp" => Putting::Variance { is_of_sample: true, is_root: true },
        "stddev_pop" => Putting::Variance { is_of_sample: false, is_root: true },
        "min" | "max" | "bool_and" | "bool_or" | "every" | "bit_and" | "bit_or" => Putting::Same,
        _ => return None,
    })
}

/// A column of what each node says.
pub(in crate::planner) struct PartialColumn {
    /// Its expression on the node.
    pub(in crate::planner) text: String,
    /// The type that it must have, if only with one the parts can be put together.
    pub(in crate::planner) expected: Option<u32>,
    /// It is known to be no array.
    pub(in crate::planner) is_plain: bool,
    /// The type of a table's own column, and its name.
    pub(in crate::planner) known: Option<(u32, String)>,
}

pub(in crate::planner) struct PartialColumns<'p, 'a> {
    pub(in crate::planner) analysis: &'p Analysis<'a>,
    pub(in crate::planner) context: &'p Context<'a>,
    pub(in crate::planner) alike: Alike<'p, 'a>,
    /// The expressions of GROUP BY, as they are compared, in order: the first columns.
    pub(in crate::planner) groups: Vec<String>,
    /// What kind of expressions they are, and how large.
    pub(in crate::planner) kinds: Vec<(Discriminant<NodeEnum>, usize)>,
    /// What their values are declared to be, where that says more than the type.
    pub(in crate::planner) declared: Vec<Option<String>>,
    pub(in crate::planner) columns: Vec<PartialColumn>,
    /// Which of the columns, counted from 1, have values of which the distinct ones are aggregated: nodes group by them
    /// too.
    pub(in crate::planner) distinct: Vec<usize>,
    /// What groups must meet, as the client says it: nodes leave out the others, as PostgreSQL does.
    pub(in crate::planner) conditions: Vec<String>,
    /// Any column of the rows may be one, not only what they are grouped by.
    pub(in crate::planner) takes_columns: bool,
}

impl<'a> PartialColumns<'_, 'a> {
    /// The one column that is meant.
    pub(in crate::planner) fn meaning(&self, reference: &ColumnRef) -> Option<ColumnId> {
        if reference.location == NOWHERE {
            return None;
        }
        let mut uses = self.analysis.uses.iter().filter(|of| of.location == reference.location);
        let (found, None) = (uses.next()?, uses.next()) else { return None };
        Some(ColumnId { item: found.item, column: found.column? })
    }

    /// The column of a table that is meant, also through subqueries.
    pub(in crate::planner) fn base(&self, reference: &ColumnRef) -> Option<&Column> {
        self.base_column(self.meaning(reference)?)
    }

    /// The same of a column of the query's.
    pub(in crate::planner) fn base_column(&self, meant: ColumnId) -> Option<&Column> {
        let is_of_query = matches!(self.analysis.items[meant.item].source, Source::Query(_));
        if is_of_query && self.may_differ_in_queries() {
            return None;
        }
        let (relation, column) = self.analysis.base(meant)?;
        relation.columns.get(column)
    }

    /// Whether what a query calls by a column's name may be of another type than that column.
    fn may_differ_in_queries(&self) -> bool {
        let may_differ = |of: &Query<'_>| !of.merged_unlike.is_empty() || of.set.is_some();
        self.analysis.queries.iter().any(may_differ)
    }

    /// The expression that a subquery has for the column that is meant.
    pub(in crate::planner) fn written_in_query(&self, reference: &ColumnRef) -> Option<&'a Node> {
        let meant = self.meaning(reference)?;
        let Source::Query(query) = self.analysis.items[meant.item].source else { return None };
        if self.may_differ_in_queries() {
            return None;
        }
        self.analysis.queries[query].outputs.as_ref()?.get(meant.column)?.value
    }

    /// What stands for an aggregate in the final query; `None` if its parts cannot be put together.
    pub(in crate::planner) fn put_together(
        &mut self,
        call: &FuncCall,
    ) -> Result<Option<Node>, Refusal> {
        let (schema, name) = name_of(call);
        let is_plain = !call.agg_within_group
            && call.agg_order.is_empty()
            && call.over.is_none()
            && !call.func_variadic;
        if !is_plain || !is_built_in(schema, name, self.context) {
            return Ok(None);
        }
        let Some(putting) = putting(name) else { return Ok(None) };
        if !call.args.iter().chain(call.agg_filter.as_deref()).all(|it| self.alike.is_alike(it)) {
            return Ok(None);
        }
        let catalog = self.context.catalog;
        if catalog.code.has_function(name)
            || catalog.functions.values().any(|of| of.contains_key(name))
        {
            // Of which types it means whose cannot be told.
            return Ok(None);
        }
        let text = match putting {
            Putting::Same => {
                // The distinct ones have the same least and greatest, and are all true if all are.
                let is_plain = call.args.iter().all(|argument| self.is_plain(argument));
                let call = FuncCall { agg_distinct: false, ..call.clone() };
                let part = self.part(on_node(&called(call))?, None);
                self.note_plain(&part, is_plain);
                format!("pg_catalog.{name}({part})")
            }
            _ if call.agg_distinct => {
                let Some(text) = self.of_distinct(name, call)? else { return Ok(None) };
                text
            }
            Putting::Count => {
                let part = self.part(on_node(&called(call.clone()))?, Some(INT8));
                format!("COALESCE(pg_catalog.sum({part}), 0)::pg_catalog.int8")
            }
            Putting::Sum => {
                let Some(of) = self.summed(call) else { return Ok(None) };
                let expected = match of {
                    INT2 | INT4 => INT8,
                    FLOAT4 | FLOAT8 => of,
                    _ => NUMERIC,
                };
                let sum = self.part(on_node(&called(call.clone()))?, Some(expected));
                match expected {
                    INT8 => format!("pg_catalog.sum({sum})::pg_catalog.int8"),
                    _ => format!("pg_catalog.sum({sum})"),
                }
            }
            Putting::Average => {
                let Some(of) = self.summed(call) else { return Ok(None) };
                let count = self.part(on_node(&of_arguments(call, "count", "%")?)?, Some(INT8));
                let (sum, total) = match of {
                    FLOAT4 | FLOAT8 => {
                        let sum = of_arguments(call, "sum", "CAST(% AS pg_catalog.float8)")?;
                        let total = format!("pg_catalog.sum({count})::pg_catalog.float8");
                        (self.part(on_node(&sum)?, Some(FLOAT8)), total)
                    }
                    _ => {
                        let expected = if of == INT2 || of == INT4 { INT8 } else { NUMERIC };
                        let sum = on_node(&of_arguments(call, "sum", "%")?)?;
                        (self.part(sum, Some(expected)), format!("pg_catalog.sum({count})"))
                    }
                };
                format!("(pg_catalog.sum({sum}) OPERATOR(pg_catalog./) NULLIF({total}, 0))")
            }
            Putting::Variance { is_of_sample, is_root } => {
                let Some(INT2 | INT4 | INT8 | NUMERIC) = self.summed(call) else { return Ok(None) };
                let exact = "CAST(% AS pg_catalog.numeric)";
                let square = format!("{exact} OPERATOR(pg_catalog.*) {exact}");
                let mut sum = |name: &str, of: &str, expected: u32| -> Result<String, Refusal> {
                    let part = self.part(on_node(&of_arguments(call, name, of)?)?, Some(expected));
                    Ok(format!("pg_catalog.sum({part})"))
                };
                let count = sum("count", "%", INT8)?;
                let (of_values, of_squares) =
                    (sum("sum", exact, NUMERIC)?, sum("sum", &square, NUMERIC)?);
                variance(&count, &of_values, &of_squares, is_of_sample, is_root)
            }
        };
        expression(&text).map(Some)
    }

    /// The type of what an aggregate sums, where it can be put together.
    fn summed(&self, call: &FuncCall) -> Option<u32> {
        let [argument] = &call.args[..] else { return None };
        self.number_type(argument)
    }

    /// An aggregate of distinct values: nodes group by these too, and the final query aggregates what they say.
    fn of_distinct(&mut self, name: &str, call: &FuncCall) -> Result<Option<String>, Refusal> {
        let [argument] = &call.args[..] else { return Ok(None) };
        let expected = match name {
            "count" => None,
            "sum" | "avg" => match self.number_type(argument) {
                Some(of @ (INT2 | INT4 | INT8 | NUMERIC)) => Some(of),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let value = on_node(argument)?;
        let text = match &call.agg_filter {
            // These aggregates pass NULL over.
            Some(filter) => format!("CASE WHEN {} THEN {value} END", on_node(filter)?),
            None => value,
        };
        let is_plain = self.is_plain(argument);
        let column = self.part(text, expected);
        self.note_plain(&column, is_plain);
        let place = column.strip_prefix("tutti_f.c").and_then(|place| place.parse().ok());
        self.distinct.extend(place.filter(|place| !self.distinct.contains(place)));
        Ok(Some(format!("pg_catalog.{name}(DISTINCT {column})")))
    }

    /// The column that has this part, in a final query.
    fn part(&mut self, text: String, expected: Option<u32>) -> String {
        let found = self.columns.iter().skip(self.groups.len()).position(|it| it.text == text);
        let place = found.map_or_else(
            || {
                let is_plain = expected.is_some();
                self.columns.push(PartialColumn { text, expected, is_plain, known: None });
                self.columns.len()
            },
            |found| self.groups.len() + found + 1,
        );
        format!("tutti_f.c{place}")
    }

    /// Whether an expression's values are known to be no arrays.
    pub(in crate::planner) fn is_plain(&self, node: &Node) -> bool {
        let of_column = match &node.node {
            Some(NodeEnum::ColumnRef(reference)) => self.base(reference),
            _ => None,
        };
        of_column.map_or_else(
            || self.number_type(node).is_some(),
            |column| is_read_alike(column.type_oid),
        )
    }

    /// What is known of the column that [`Self::part`] has called so.
    fn note_plain(&mut self, column: &str, is_plain: bool) {
        let place = column.strip_prefix("tutti_f.c").and_then(|place| place.parse::<usize>().ok());
        if let Some(column) = place.and_then(|place| self.columns.get_mut(place - 1)) {
            column.is_plain |= is_plain;
        }
    }

    /// The type of a sum's argument, where it is a number: an integer, numeric, or a float, whose sum depends on its order.
    fn number_type(&self, node: &Node) -> Option<u32> {
        use pg_query::protobuf::a_const::Val;
        let is_number = |oid: &u32| [INT2, INT4, INT8, NUMERIC, FLOAT4, FLOAT8].contains(oid);
        match node.node.as_ref()? {
            NodeEnum::ColumnRef(reference) => {
                match (self.base(reference), self.written_in_query(reference)) {
                    (Some(column), _) => Some(column.type_oid).filter(is_number),
                    (None, Some(value)) => self.number_type(value),
                    (None, None) => None,
                }
            }
            NodeEnum::FuncCall(call) => self.type_of_aggregate(call),
            NodeEnum::AConst(constant) => match constant.val.as_ref()? {
                Val::Ival(_) => Some(INT4),
                Val::Fval(number) if number.fval.parse::<i64>().is_ok() => Some(INT8),
                Val::Fval(_) => Some(NUMERIC),
                _ => None,
            },
            NodeEnum::AExpr(of) => {
                let [operator] = &of.name[..] else { return None };
                let is_arithmetic = ["+", "-", "*"].contains(&string(operator)?);
                let is_plain = of.kind() == pg_query::protobuf::AExprKind::AexprOp;
                (is_arithmetic && is_plain).then_some(())?;
                let right = self.number_type(of.rexpr.as_deref()?)?;
                let left = match of.lexpr.as_deref() {
                    Some(left) => self.number_type(left)?,
                    None => right,
                };
                wider(left, right)
            }
            NodeEnum::CaseExpr(case) => {
                let mut found = case.defresult.as_deref().map(|it| self.number_type(it));
                for when in &case.args {
                    let Some(NodeEnum::CaseWhen(when)) = &when.node else { return None };
                    let next = self.number_type(when.result.as_deref()?);
                    found = Some(match found {
                        None => next,
                        Some(found) => wider(found?, next?),
                    });
                }
                found?
            }
            NodeEnum::CoalesceExpr(of) => {
                let mut types = of.args.iter().map(|argument| self.number_type(argument));
                let first = types.next()??;
                types.try_fold(first, |found, next| wider(found, next?))
            }
            _ => None,
        }
    }
}

impl PartialColumns<'_, '_> {
    /// The type of an aggregate of numbers, in a subquery.
    fn type_of_aggregate(&self, call: &FuncCall) -> Option<u32> {
        let (schema, name) = name_of(call);
        let is_plain = call.over.is_none() && is_built_in(schema, name, self.context);
        let is_users = self.context.catalog.functions.values().any(|of| of.contains_key(name));
        (is_plain && !is_users).then_some(())?;
        match name {
            "count" => Some(INT8),
            "sum" | "avg" | "min" | "max" => {
                let of = self.summed(call)?;
                Some(match (name, of) {
                    ("min" | "max", of) => of,
                    ("sum", INT2 | INT4) => INT8,
                    ("sum", FLOAT4) => FLOAT4,
                    (_, FLOAT4 | FLOAT8) => FLOAT8,
                    _ => NUMERIC,
                })
            }
            _ => None,
        }
    }
}

/// The type of both together, as PostgreSQL computes with them.
fn wider(one: u32, other: u32) -> Option<u32> {
    const ORDER: [u32; 4] = [INT2, INT4, INT8, NUMERIC];
    match (one, other) {
        (FLOAT4, FLOAT4) => Some(FLOAT4),
        (FLOAT4 | FLOAT8, _) | (_, FLOAT4 | FLOAT8) => Some(FLOAT8),
        _ => ORDER.into_iter().rev().find(|it| [one, other].contains(it)),
    }
}

/// The variance, or its root, of sums over all: the number of values, of the values, and of their squares, as
/// PostgreSQL computes it (`numeric_stddev_internal` of its `numeric.c`).
fn variance(
    count: &str,
    of_values: &str,
    of_squares: &str,
    is_of_sample: bool,
    is_root: bool,
) -> String {
    let times = |one: &str, other: &str| format!("({one} OPERATOR(pg_catalog.*) {other})");
    let above = format!(
        "({} OPERATOR(pg_catalog.-) {})",
        times(count, of_squares),
        times(of_values, of_values)
    );
    let (least, below) = match is_of_sample {
        true => (1, times(count, &format!("({count} OPERATOR(pg_catalog.-) 1)"))),
        false => (0, times(count, count)),
    };
    let variance = format!("({above} OPERATOR(pg_catalog./) {below})");
    let value = match is_root {
        // As many digits as the variance has, of a root with many more, so that it is rounded once. NaN has none.
        true => {
            let digits = format!("pg_catalog.scale({variance})");
            format!(
                "COALESCE(pg_catalog.round(pg_catalog.sqrt(pg_catalog.round({variance}, \
                 {digits} OPERATOR(pg_catalog.+) 20)), {digits}), {variance})"
            )
        }
        false => variance,
    };
    format!(
        "CASE WHEN {count} OPERATOR(pg_catalog.>) {least} THEN \
         CASE WHEN {above} OPERATOR(pg_catalog.<=) 0 THEN 0 ELSE {value} END END"
    )
}

/// The same call of another aggregate of `pg_catalog`, over what `%` says of the argument.
fn of_arguments(call: &FuncCall, name: &str, of: &str) -> Result<Node, Refusal> {
    let mut call = FuncCall { agg_distinct: false, ..call.clone() };
    call.funcname = ["pg_catalog", name].map(word).to_vec();
    for argument in &mut call.args {
        let mut said = expression(&of.replace('%', "$1"))?;
        put_argument(&mut said, argument);
        *argument = said;
    }
    Ok(called(call))
}

/// Puts the argument where a parameter stands.
fn put_argument(said: &mut Node, argument: &Node) {
    match &mut said.node {
        Some(NodeEnum::ParamRef(_)) => said.clone_from(argument),
        Some(of) => walk::write::children(of, &mut |child| put_argument(child, argument)),
        None => (),
    }
}

fn called(call: FuncCall) -> Node {
    Node { node: Some(NodeEnum::FuncCall(Box::new(call))) }
}

/// An expression's text on a node.
pub(in crate::planner) fn on_node(node: &Node) -> Result<String, Refusal> {
    let mut node = node.clone();
    if let Some(node) = &mut node.node {
        leave_database_out(node);
    }
    deparse_expression(&node)
}

pub(in crate::planner) fn word(name: &str) -> Node {
    let sval = name.to_owned();
    Node { node: Some(NodeEnum::String(pg_query::protobuf::String { sval })) }
}
