//! Which literals are dates and times by what stands beside them.
//!
//! Owns: of which date or time an expression is, where that can be said without asking PostgreSQL; and which literals take
//! its type, as `parse_coerce.c` has it ("unknown" literals take the type of the others).
//! Never: decides what becomes of such a literal.
//! Start reading at [`TimeTypes::tell_literals`].

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AExpr, AExprKind, CaseExpr, Node, SelectStmt, SetOperation, SqlValueFunction, SubLink,
    SubLinkType, a_const,
};

use super::alike::is_of_time;
use super::analysis::Analysis;
use super::context::Context;
use super::current_time::{is_current_time, names_current_time};
use super::functions::{is_time, is_time_call, means_built_in};
use super::syntax::{is_star_output, name_of, string};
use crate::built_in_types;
use crate::refusal::Refusal;
use crate::walk;

/// Is given a literal and its type.
type Tell<'t> = &'t mut dyn FnMut(&mut Node, &str) -> Result<(), Refusal>;

/// Built-in functions that take dates and times, and may read a text as one.
const TAKES_TIMES: [&str; 18] = [
    "age",
    "date",
    "date_bin",
    "date_part",
    "date_trunc",
    "daterange",
    "datemultirange",
    "extract",
    "generate_series",
    "isfinite",
    "overlaps",
    "time",
    "timestamp",
    "timestamptz",
    "timezone",
    "tsrange",
    "tstzrange",
    "jsonb_populate_record",
];

/// Built-in types, and functions that make them, whose values hold dates or times.
const HOLDS_TIMES: [&str; 6] =
    ["daterange", "datemultirange", "tsmultirange", "tsrange", "tstzmultirange", "tstzrange"];

/// Expressions of one statement.
#[derive(Clone, Copy)]
pub(super) struct TimeTypes<'t, 'a> {
    pub(super) analysis: &'t Analysis<'a>,
    pub(super) context: &'t Context<'a>,
}

impl TimeTypes<'_, '_> {
    /// Tells the literals that stand directly in this expression beside dates or times.
    pub(super) fn tell_literals(self, of: &mut NodeEnum, tell: Tell<'_>) -> Result<(), Refusal> {
        match of {
            NodeEnum::AExpr(of) => self.tell_operands(of, tell),
            NodeEnum::CoalesceExpr(of) => self.tell_alike(of.args.iter_mut().collect(), tell),
            NodeEnum::MinMaxExpr(of) => self.tell_alike(of.args.iter_mut().collect(), tell),
            NodeEnum::AArrayExpr(of) => self.tell_alike(of.elements.iter_mut().collect(), tell),
            NodeEnum::CaseExpr(of) => self.tell_case(of, tell),
            NodeEnum::SubLink(of) => self.tell_sought(of, tell),
            NodeEnum::SelectStmt(of) => self.tell_outputs(of, tell),
            NodeEnum::TypeCast(of) => {
                let type_name = of.type_name.as_ref().filter(|of| !of.array_bounds.is_empty());
                let name = type_name.and_then(|of| string(of.names.last()?));
                let Some(name) = name.filter(|name| built_in_types::is_time(name)) else {
                    return Ok(());
                };
                let name = format!("pg_catalog.{name}");
                match of.arg.as_deref_mut().and_then(|it| it.node.as_mut()) {
                    Some(NodeEnum::AArrayExpr(array)) => {
                        array.elements.iter_mut().try_for_each(|element| tell(element, &name))
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// These have one type.
    fn tell_alike(self, all: Vec<&mut Node>, tell: Tell<'_>) -> Result<(), Refusal> {
        let Some(type_name) = all.iter().find_map(|node| self.of(node)) else { return Ok(()) };
        all.into_iter().try_for_each(|node| tell(node, &type_name))
    }

    fn tell_operands(self, of: &mut AExpr, tell: Tell<'_>) -> Result<(), Refusal> {
        if !compares(of) {
            return Ok(());
        }
        let kind = of.kind();
        let sides = [&mut of.lexpr, &mut of.rexpr].into_iter().flatten();
        let mut sides: Vec<&mut Node> = sides.map(|side| &mut **side).collect();
        if let [left, right] = &mut sides[..]
            && let (Some(NodeEnum::RowExpr(left)), Some(NodeEnum::RowExpr(right))) =
                (&mut left.node, &mut right.node)
        {
            return left
                .args
                .iter_mut()
                .zip(&mut right.args)
                .try_for_each(|(left, right)| self.tell_alike(vec![left, right], tell));
        }
        if let [left, right] = &mut sides[..]
            && let (Some(NodeEnum::RowExpr(left)), Some(NodeEnum::List(right))) =
                (&mut left.node, &mut right.node)
        {
            for row in &mut right.items {
                let Some(NodeEnum::RowExpr(row)) = &mut row.node else { continue };
                left.args
                    .iter_mut()
                    .zip(&mut row.args)
                    .try_for_each(|(left, right)| self.tell_alike(vec![left, right], tell))?;
            }
            return Ok(());
        }
        let has_elements = matches!(kind, AExprKind::AexprOpAny | AExprKind::AexprOpAll);
        // A literal there is an array.
        sides.pop_if(|side| has_elements && matches!(side.node, Some(NodeEnum::AConst(_))));
        let mut all = Vec::new();
        for side in sides {
            match &side.node {
                Some(NodeEnum::List(_)) => {
                    let Some(NodeEnum::List(list)) = &mut side.node else { continue };
                    all.extend(list.items.iter_mut());
                }
                Some(NodeEnum::AArrayExpr(_)) if has_elements => {
                    let Some(NodeEnum::AArrayExpr(array)) = &mut side.node else { continue };
                    all.extend(array.elements.iter_mut());
                }
                _ => all.push(side),
            }
        }
        self.tell_alike(all, tell)
    }

    fn tell_case(self, of: &mut CaseExpr, tell: Tell<'_>) -> Result<(), Refusal> {
        let mut conditions: Vec<&mut Node> = Vec::new();
        let mut results: Vec<&mut Node> = Vec::new();
        let has_argument = of.arg.is_some();
        conditions.extend(of.arg.as_deref_mut());
        for when in &mut of.args {
            let Some(NodeEnum::CaseWhen(when)) = &mut when.node else { continue };
            conditions.extend(when.expr.as_deref_mut().filter(|_| has_argument));
            results.extend(when.result.as_deref_mut());
        }
        results.extend(of.defresult.as_deref_mut());
        self.tell_alike(conditions, tell)?;
        self.tell_alike(results, tell)
    }

    /// `expression IN (SELECT …)` and its like.
    fn tell_sought(self, of: &mut SubLink, tell: Tell<'_>) -> Result<(), Refusal> {
        if !matches!(of.sub_link_type(), SubLinkType::AnySublink | SubLinkType::AllSublink) {
            return Ok(());
        }
        let type_name = of.subselect.as_deref().and_then(|select| self.of_only_output(select));
        match (&mut of.testexpr, type_name) {
            (Some(sought), Some(type_name)) => tell(sought, &type_name),
            _ => Ok(()),
        }
    }

    /// Columns of UNION and its like, and of VALUES, have one type.
    fn tell_outputs(self, of: &mut SelectStmt, tell: Tell<'_>) -> Result<(), Refusal> {
        let mut rows: Vec<Vec<&mut Node>> = Vec::new();
        if of.op() != SetOperation::SetopNone {
            let (left, right) = (of.larg.as_deref_mut(), of.rarg.as_deref_mut());
            left.into_iter().chain(right).for_each(|of| add_outputs(of, &mut rows));
        } else {
            rows.extend(of.values_lists.iter_mut().filter_map(items));
        }
        let width = rows.iter().map(Vec::len).min().unwrap_or(0);
        let mut rows: Vec<_> = rows.into_iter().map(Vec::into_iter).collect();
        (0..width).try_for_each(|_| {
            self.tell_alike(rows.iter_mut().filter_map(Iterator::next).collect(), tell)
        })
    }

    /// The date or time that the expression is, if it is known to be one: the name of its type.
    fn of(self, node: &Node) -> Option<String> {
        match node.node.as_ref()? {
            NodeEnum::ColumnRef(reference) => {
                let column = self.analysis.column_of_table(reference)?;
                is_of_time(column).then(|| column.type_name.clone())
            }
            NodeEnum::FuncCall(call) if is_time_call(call, self.context) => {
                Some("pg_catalog.timestamptz".to_owned())
            }
            NodeEnum::FuncCall(call) => match name_of(call) {
                (schema, "date_trunc") if means_built_in(schema, "date_trunc", self.context) => {
                    self.of(call.args.get(1)?)
                }
                _ => None,
            },
            NodeEnum::SqlvalueFunction(function) => is_time(function).then(|| type_of(function)),
            NodeEnum::TypeCast(cast) => {
                let type_name = cast.type_name.as_ref().filter(|of| of.array_bounds.is_empty())?;
                let name = type_name.names.last().and_then(string)?;
                built_in_types::is_time(name).then(|| format!("pg_catalog.{name}"))
            }
            NodeEnum::CoalesceExpr(of) => of.args.iter().find_map(|of| self.of(of)),
            NodeEnum::MinMaxExpr(of) => of.args.iter().find_map(|of| self.of(of)),
            NodeEnum::CaseExpr(of) => {
                let results = of.args.iter().filter_map(|when| match &when.node {
                    Some(NodeEnum::CaseWhen(when)) => when.result.as_deref(),
                    _ => None,
                });
                results.chain(of.defresult.as_deref()).find_map(|of| self.of(of))
            }
            NodeEnum::AExpr(of) => {
                let sides = [of.lexpr.as_deref(), of.rexpr.as_deref()];
                let [left, right] = sides.map(|side| side.and_then(|side| self.of(side)));
                match (of.kind(), of.name.last().and_then(string)?) {
                    (AExprKind::AexprNullif, _) => left,
                    (AExprKind::AexprOp, "+") => left.or(right),
                    (AExprKind::AexprOp, "-") if right.is_none() => left,
                    _ => None,
                }
            }
            NodeEnum::SubLink(of) if of.sub_link_type() == SubLinkType::ExprSublink => {
                self.of_only_output(of.subselect.as_deref()?)
            }
            _ => None,
        }
    }

    /// Whether there are dates or times that the statement may read.
    fn knows_times(self) -> bool {
        let relations = self.analysis.items.iter().filter_map(|item| item.relation());
        self.analysis.functions.reads_time
            || relations.flat_map(|relation| &relation.columns).any(is_of_time)
    }

    fn of_only_output(self, select: &Node) -> Option<String> {
        let Some(NodeEnum::SelectStmt(select)) = &select.node else { return None };
        let [only] = &select.target_list[..] else { return None };
        let Some(NodeEnum::ResTarget(target)) = &only.node else { return None };
        self.of(target.val.as_deref()?)
    }

    /// A literal that means the current time if it is a date or time, as it may be: an argument of a function, or in what
    /// holds dates or times.
    pub(super) fn untold(self, tree: &NodeEnum) -> Option<String> {
        let mut found = match tree {
            NodeEnum::TypeCast(cast) => {
                let name = cast.type_name.as_ref().and_then(|of| string(of.names.last()?));
                let name = name.unwrap_or_default();
                let argument = cast.arg.as_deref();
                let said = argument.and_then(|argument| said(argument, names_current_time));
                match said {
                    // Of types that are not known, domains may be dates and times.
                    Some(text) => {
                        let is_known = built_in_types::is_built_in(name);
                        let holds = HOLDS_TIMES.contains(&name) || built_in_types::is_time(name);
                        (holds || !is_known && is_current_time(&text)).then_some(text)
                    }
                    // A text that is computed of one.
                    None if built_in_types::may_be_time(name) => {
                        argument.and_then(|argument| first_said(argument.node.as_ref()?))
                    }
                    None => None,
                }
            }
            NodeEnum::FuncCall(call) => {
                let (schema, name) = name_of(call);
                let takes = !means_built_in(schema, name, self.context)
                    || TAKES_TIMES.contains(&name)
                    || name.ends_with("_in");
                let makes_records =
                    name.contains("_to_record") || name.contains("_populate_record");
                let means = if makes_records { names_current_time } else { is_current_time };
                // `timestamptz('now'::text)` is a cast.
                let casts = built_in_types::is_time(name);
                let mut arguments = call.args.iter().filter(|_| takes || makes_records);
                arguments.find_map(|argument| {
                    let computed = argument.node.as_ref().filter(|_| casts);
                    said(argument, means).or_else(|| first_said(computed?))
                })
            }
            NodeEnum::AExpr(of) if compares(of) => {
                let sides = [of.lexpr.as_deref(), of.rexpr.as_deref()];
                let holds = |side: &Node| match &side.node {
                    Some(NodeEnum::ColumnRef(reference)) => {
                        match self.analysis.column_of_table(reference) {
                            Some(column) => holds_times(column.type_oid),
                            // Of a subquery: it may be a date or time if there is one anywhere.
                            None => self.knows_times(),
                        }
                    }
                    Some(NodeEnum::AArrayExpr(of)) => {
                        of.elements.iter().any(|element| self.of(element).is_some())
                    }
                    Some(NodeEnum::RowExpr(of)) => {
                        of.args.iter().any(|value| self.of(value).is_some())
                    }
                    Some(NodeEnum::FuncCall(call)) => HOLDS_TIMES.contains(&name_of(call).1),
                    _ => false,
                };
                let is_array = matches!(of.kind(), AExprKind::AexprOpAny | AExprKind::AexprOpAll);
                let beside = sides
                    .into_iter()
                    .flatten()
                    .any(|side| holds(side) || is_array && self.of(side).is_some());
                let mut literals = sides.into_iter().flatten().filter(|_| beside);
                literals.find_map(|literal| said(literal, names_current_time))
            }
            NodeEnum::UpdateStmt(of) => of.target_list.iter().find_map(|target| {
                let Some(NodeEnum::ResTarget(target)) = &target.node else { return None };
                let relation = self.analysis.items[self.analysis.target?].relation()?;
                let column = &relation.columns[relation.column(&target.name)?];
                let value = target.val.as_deref().filter(|_| holds_times(column.type_oid))?;
                said(value, names_current_time)
            }),
            _ => None,
        };
        walk::read::children(tree, &mut |child| {
            if found.is_none() {
                found = child.node.as_ref().and_then(|child| self.untold(child));
            }
        });
        found
    }
}

/// The first literal below that is nothing but the current time.
fn first_said(tree: &NodeEnum) -> Option<String> {
    if let NodeEnum::AConst(constant) = tree
        && let Some(a_const::Val::Sval(text)) = &constant.val
    {
        return is_current_time(&text.sval).then(|| text.sval.clone());
    }
    let mut found = None;
    walk::read::children(tree, &mut |child| {
        if found.is_none() {
            found = child.node.as_ref().and_then(first_said);
        }
    });
    found
}

/// Whether its operands have one type, or one is an array of the other.
fn compares(of: &AExpr) -> bool {
    // What is taken from a date or time is read as one, too, if it can be.
    const OPERATORS: [&str; 8] = ["=", "<>", "!=", "<", "<=", ">", ">=", "-"];
    let is_known = || {
        let name = of.name.last().and_then(string);
        let is_built_in = match &of.name[..] {
            [_] => true,
            [schema, _] => string(schema) == Some("pg_catalog"),
            _ => false,
        };
        is_built_in && name.is_some_and(|name| OPERATORS.contains(&name))
    };
    match of.kind() {
        AExprKind::AexprOp | AExprKind::AexprOpAny | AExprKind::AexprOpAll => is_known(),
        AExprKind::AexprIn
        | AExprKind::AexprDistinct
        | AExprKind::AexprNotDistinct
        | AExprKind::AexprNullif
        | AExprKind::AexprBetween
        | AExprKind::AexprNotBetween
        | AExprKind::AexprBetweenSym
        | AExprKind::AexprNotBetweenSym => true,
        _ => false,
    }
}

/// The outputs of each query of a set operation, as far as no `*` stands before them.
fn add_outputs<'s>(of: &'s mut SelectStmt, rows: &mut Vec<Vec<&'s mut Node>>) {
    if of.op() != SetOperation::SetopNone {
        let (left, right) = (of.larg.as_deref_mut(), of.rarg.as_deref_mut());
        left.into_iter().chain(right).for_each(|of| add_outputs(of, rows));
        return;
    }
    if !of.values_lists.is_empty() {
        rows.extend(of.values_lists.iter_mut().filter_map(items));
        return;
    }
    let plain = of.target_list.iter_mut().take_while(|target| !is_star_output(target));
    let values = plain.filter_map(|target| match &mut target.node {
        Some(NodeEnum::ResTarget(target)) => target.val.as_deref_mut(),
        _ => None,
    });
    rows.push(values.collect());
}

fn items(list: &mut Node) -> Option<Vec<&mut Node>> {
    match &mut list.node {
        Some(NodeEnum::List(list)) => Some(list.items.iter_mut().collect()),
        _ => None,
    }
}

/// The text of a literal for which this holds.
fn said(node: &Node, means: fn(&str) -> bool) -> Option<String> {
    match &node.node {
        Some(NodeEnum::AConst(constant)) => match &constant.val {
            Some(a_const::Val::Sval(text)) if means(&text.sval) => Some(text.sval.clone()),
            _ => None,
        },
        // In a list, as of IN.
        Some(NodeEnum::List(list)) => list.items.iter().find_map(|item| said(item, means)),
        Some(NodeEnum::NamedArgExpr(of)) => said(of.arg.as_deref()?, means),
        _ => None,
    }
}

/// tsrange, tstzrange, daterange, their multiranges, and arrays of dates and times.
const fn holds_times(type_oid: u32) -> bool {
    matches!(type_oid, 3908 | 3910 | 3912 | 4533 | 4534 | 4535 | 1182 | 1183 | 1115 | 1185 | 1270)
}

/// The type of `CURRENT_DATE` and the like.
pub(super) fn type_of(function: &SqlValueFunction) -> String {
    use pg_query::protobuf::SqlValueFunctionOp as Op;
    let type_name = match function.op() {
        Op::SvfopCurrentDate => "date",
        Op::SvfopCurrentTime | Op::SvfopCurrentTimeN => "timetz",
        Op::SvfopLocaltime | Op::SvfopLocaltimeN => "time",
        Op::SvfopLocaltimestamp | Op::SvfopLocaltimestampN => "timestamp",
        _ => "timestamptz",
    };
    match function.typmod {
        digits if 0 <= digits => format!("pg_catalog.{type_name}({digits})"),
        _ => format!("pg_catalog.{type_name}"),
    }
}
