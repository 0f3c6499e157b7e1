//! Whether a query raises no error, whatever rows there are.
//!
//! Owns: the expressions of which that is known. All others may fail.
//! Never: says anything of what the statement's analysis, or the folding of its constants, would refuse anyway.
//! Start reading at [`CannotFail::query`].
//!
//! What PostgreSQL computes only if a row asks for it may be computed before only if that cannot be told. `numeric` holds
//! 131,072 digits before the point, and sums of integers are of wider types: those do not overflow. Integers and floats do.

use pg_query::NodeEnum;
use pg_query::protobuf::{AConst, AExpr, AExprKind, FuncCall, Node, SelectStmt, TypeCast, a_const};

use super::analysis::Analysis;
use super::context::Context;
use super::functions::{is_time, is_time_call, means_built_in};
use super::syntax::{name_of, string};
use crate::catalog::RelationKind;

/// int8, int2, int4.
const INTEGERS: [u32; 3] = [20, 21, 23];
const NUMERIC: u32 = 1700;
/// text, character varying, character, name.
const TEXTS: [u32; 4] = [25, 1043, 1042, 19];
const FLOAT8: u32 = 701;
const DATE: u32 = 1082;
const TIMESTAMP: u32 = 1114;
const TIMESTAMPTZ: u32 = 1184;
const JSONB: u32 = 3802;
/// boolean, bytea, floats, date, times, interval, bits, macaddr, inet, cidr, uuid, jsonb: each is compared with itself
/// alone.
const OTHERS: [u32; 17] = [
    16,
    17,
    700,
    FLOAT8,
    DATE,
    1083,
    1266,
    TIMESTAMP,
    TIMESTAMPTZ,
    1186,
    1560,
    1562,
    829,
    869,
    650,
    2950,
    JSONB,
];
/// Arrays of boolean, int2, int4, int8, text, character varying, numeric, uuid.
const ARRAYS: [u32; 8] = [1000, 1005, 1007, 1016, 1009, 1015, 1231, 2951];
const ARRAYS_OF_INTEGERS: [u32; 3] = [1005, 1007, 1016];
/// What times are truncated to. (Those of 4714 BC, the first that there are, might be of a year that has not begun.)
const TRUNCATED_TO: [&str; 8] =
    ["second", "minute", "hour", "day", "week", "month", "quarter", "year"];
/// What dates have.
const OF_DATES: [&str; 9] =
    ["year", "quarter", "month", "week", "day", "dow", "doy", "isodow", "isoyear"];
/// What times have besides.
const OF_TIMES: [&str; 4] = ["hour", "minute", "second", "epoch"];
/// To these a literal is cast when the statement is analysed.
const OF_LITERALS: [&str; 15] = [
    "bool",
    "date",
    "float8",
    "int2",
    "int4",
    "int8",
    "interval",
    "jsonb",
    "numeric",
    "text",
    "time",
    "timestamp",
    "timestamptz",
    "uuid",
    "varchar",
];

const COMPARISONS: [&str; 6] = ["=", "<>", "<", "<=", ">", ">="];

/// What an expression that cannot fail gives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Gives {
    Integer,
    Numeric,
    /// Of a column, whose collation another column's may contradict.
    Text,
    /// Of the type with this OID.
    Other(u32),
    /// A literal, or what is made of literals and the time.
    Constant,
    /// Of any type that fits.
    Parameter,
}

impl Gives {
    /// Whether a comparison of both cannot fail: nothing is cast to a type that may not hold it.
    fn compares_with(self, other: Self) -> bool {
        use Gives::{Constant, Integer, Numeric, Other, Parameter, Text};
        match (self, other) {
            (Integer | Numeric, Integer | Numeric) => true,
            (Other(one), Other(other)) => one == other,
            (Constant, _) | (_, Constant) => true,
            (Parameter, Integer | Text) | (Integer | Text, Parameter) => true,
            _ => false,
        }
    }
}

const BOOLEAN: Gives = Gives::Other(16);

/// What a query is looked at with.
#[derive(Debug)]
pub(super) struct CannotFail<'a> {
    /// Of this query.
    pub(super) analysis: &'a Analysis<'a>,
    pub(super) context: &'a Context<'a>,
}

impl CannotFail<'_> {
    /// Whether the query is of tables and joins of them, and of nothing that may fail.
    pub(super) fn query(&self, select: &SelectStmt) -> bool {
        let conditions = [&select.where_clause, &select.having_clause].into_iter().flatten();
        let sorted = select.sort_clause.iter().map(|by| match &by.node {
            Some(NodeEnum::SortBy(by)) if by.use_op.is_empty() => by.node.as_deref(),
            _ => None,
        });
        let limits = [&select.limit_count, &select.limit_offset].into_iter().flatten();
        let outputs = select.target_list.iter().map(|target| match &target.node {
            Some(NodeEnum::ResTarget(target)) => target.val.as_deref(),
            _ => None,
        });
        select.from_clause.iter().all(|item| self.is_of_tables(item))
            && conditions.into_iter().all(|condition| self.holds(condition))
            && sorted.chain(outputs).all(|node| node.is_some_and(|node| self.holds(node)))
            && limits.into_iter().all(|limit| is_count(limit))
            && select.window_clause.is_empty()
    }

    /// Whether what it groups by raises none. (A name that is an output's was looked at there.)
    pub(super) fn groups(&self, select: &SelectStmt) -> bool {
        let is_safe = |group: &Node| match &group.node {
            Some(NodeEnum::ColumnRef(_) | NodeEnum::AConst(_)) => true,
            Some(NodeEnum::GroupingSet(set)) => set.content.iter().all(|part| self.holds(part)),
            _ => self.holds(group),
        };
        select.group_clause.iter().all(is_safe)
    }

    fn is_of_tables(&self, item: &Node) -> bool {
        match &item.node {
            Some(NodeEnum::RangeVar(range)) => self
                .context
                .relation(range)
                .is_some_and(|relation| relation.kind == RelationKind::Table),
            Some(NodeEnum::JoinExpr(join)) => {
                [&join.larg, &join.rarg]
                    .into_iter()
                    .all(|side| side.as_deref().is_some_and(|side| self.is_of_tables(side)))
                    && join.quals.as_deref().is_none_or(|on| self.holds(on))
            }
            _ => false,
        }
    }

    /// Whether an expression of the query's tables raises none.
    pub(super) fn holds(&self, node: &Node) -> bool {
        self.gives(node).is_some()
    }

    fn all(&self, nodes: &[Node]) -> Option<Gives> {
        nodes.iter().all(|node| self.holds(node)).then_some(BOOLEAN)
    }

    /// `None`: it may fail.
    fn gives(&self, node: &Node) -> Option<Gives> {
        match node.node.as_ref()? {
            NodeEnum::ColumnRef(reference) => {
                let column = self.analysis.column_of_table(reference)?;
                match column.type_oid {
                    // Of which nothing says that its values are more than those of its base type.
                    _ if column.domain => None,
                    NUMERIC => Some(Gives::Numeric),
                    oid if INTEGERS.contains(&oid) => Some(Gives::Integer),
                    // Some functions refuse texts whose equality is not that of their bytes.
                    oid if TEXTS.contains(&oid) => {
                        (!column.nondeterministic).then_some(Gives::Text)
                    }
                    oid if OTHERS.contains(&oid) || ARRAYS.contains(&oid) => {
                        Some(Gives::Other(oid))
                    }
                    _ => None,
                }
            }
            NodeEnum::AConst(constant) => Some(of_constant(constant)),
            NodeEnum::ParamRef(_) => Some(Gives::Parameter),
            NodeEnum::TypeCast(_) if self.is_folded(node) => Some(Gives::Constant),
            NodeEnum::TypeCast(cast) => self.of_cast(cast),
            NodeEnum::AArrayExpr(array) => {
                let is_constant = |node: &Node| {
                    matches!(node.node, Some(NodeEnum::AConst(_))) || self.is_folded(node)
                };
                array.elements.iter().all(is_constant).then_some(Gives::Constant)
            }
            NodeEnum::CoalesceExpr(of) => self.one_of(&of.args),
            NodeEnum::MinMaxExpr(of) => self.one_of(&of.args),
            NodeEnum::CaseExpr(of) if of.arg.is_none() => {
                let mut values: Vec<_> = of.defresult.as_deref().into_iter().collect();
                for when in &of.args {
                    let Some(NodeEnum::CaseWhen(when)) = &when.node else { return None };
                    if !self.holds(when.expr.as_deref()?) {
                        return None;
                    }
                    values.push(when.result.as_deref()?);
                }
                self.one_of(values)
            }
            NodeEnum::SqlvalueFunction(function) if is_time(function) => Some(Gives::Constant),
            NodeEnum::BoolExpr(of) => self.all(&of.args),
            NodeEnum::NullTest(test) => self.gives(test.arg.as_deref()?).and(Some(BOOLEAN)),
            NodeEnum::BooleanTest(test) => self.gives(test.arg.as_deref()?).and(Some(BOOLEAN)),
            NodeEnum::AExpr(of) => self.of_operator(of, node),
            NodeEnum::FuncCall(call) => self.of_call(call),
            _ => None,
        }
    }

    /// One of several values: of one type, or literals. (Collations of texts may contradict one another.)
    fn one_of<'n>(&self, values: impl IntoIterator<Item = &'n Node>) -> Option<Gives> {
        let mut all = Gives::Constant;
        for value in values {
            all = match (all, self.gives(value)?) {
                (one, Gives::Constant) | (Gives::Constant, one) => one,
                (one, other) if one == other && !matches!(one, Gives::Parameter | Gives::Text) => {
                    one
                }
                (Gives::Integer | Gives::Numeric, Gives::Integer | Gives::Numeric) => {
                    Gives::Numeric
                }
                _ => return None,
            };
        }
        Some(all)
    }

    /// A comparison with each of these.
    fn compared(&self, left: &Node, right: &[Node]) -> Option<Gives> {
        let left = self.gives(left)?;
        let compares =
            |node: &Node| self.gives(node).is_some_and(|right| left.compares_with(right));
        right.iter().all(compares).then_some(BOOLEAN)
    }

    /// Whether a function of the user's has this name, too: its arguments may fit better.
    fn is_overloaded(&self, name: &str) -> bool {
        let Context { catalog, scope, .. } = self.context;
        let has_it = |schema| catalog.functions.get(schema).is_some_and(|of| of.contains_key(name));
        scope.search_path.iter().any(|schema| schema != "pg_catalog" && has_it(schema))
    }

    /// The type of `pg_catalog` to which it is cast, as far as the name says.
    fn type_of_cast<'n>(&self, cast: &'n TypeCast) -> Option<&'n str> {
        let to = cast.type_name.as_ref().filter(|to| to.array_bounds.is_empty())?;
        match &to.names.iter().map(string).collect::<Vec<_>>()[..] {
            [Some("pg_catalog"), Some(name)] => Some(*name),
            [Some(name)] => (!self.context.hides_type(name)).then_some(*name),
            _ => None,
        }
    }

    /// Whether it is a literal of a type, or a time made of such.
    fn is_folded(&self, node: &Node) -> bool {
        match &node.node {
            Some(NodeEnum::TypeCast(cast)) => {
                let is_literal = |node: &Node| matches!(node.node, Some(NodeEnum::AConst(_)));
                let is_known =
                    self.type_of_cast(cast).is_some_and(|name| OF_LITERALS.contains(&name));
                is_known && cast.arg.as_deref().is_some_and(is_literal)
            }
            Some(NodeEnum::AExpr(of)) => {
                let sides = [of.lexpr.as_deref(), of.rexpr.as_deref()];
                sides.iter().all(|side| side.is_some_and(|side| self.is_folded(side)))
            }
            _ => false,
        }
    }

    /// A comparison with each element of an array.
    fn compared_with_any(&self, left: &Node, array: &Node) -> Option<Gives> {
        use Gives::{Constant, Integer, Other, Parameter, Text};
        if let Some(NodeEnum::AArrayExpr(array)) = &array.node {
            return self.compared(left, &array.elements);
        }
        let compares = match (self.gives(left)?, self.gives(array)?) {
            (_, Constant) | (Integer | Text, Parameter) => true,
            (Constant, Other(array)) => ARRAYS.contains(&array),
            (Integer, Other(array)) => ARRAYS_OF_INTEGERS.contains(&array),
            _ => false,
        };
        compares.then_some(BOOLEAN)
    }

    /// A cast to a type that holds all values of the other.
    fn of_cast(&self, cast: &TypeCast) -> Option<Gives> {
        use Gives::{Integer, Numeric, Other, Parameter, Text};
        let name = self.type_of_cast(cast)?;
        let to = cast.type_name.as_ref()?;
        match (name, self.gives(cast.arg.as_deref()?)?) {
            ("date", Other(DATE | TIMESTAMP | TIMESTAMPTZ)) => Some(Other(DATE)),
            ("int8", Integer) => Some(Integer),
            ("float8", Integer) => Some(Other(FLOAT8)),
            ("numeric", Integer | Numeric) if to.typmods.is_empty() => Some(Numeric),
            ("text" | "varchar", Integer | Numeric | Text | Other(_)) => Some(Text),
            ("text" | "varchar", Parameter) => Some(Parameter),
            _ => None,
        }
    }

    fn of_operator(&self, of: &AExpr, node: &Node) -> Option<Gives> {
        let [name] = &of.name[..] else { return None };
        let name = string(name)?;
        // One of the user's may fail.
        if self.context.replaces_operators() || self.context.replaces_operator(name) {
            return None;
        }
        let right = of.rexpr.as_deref()?;
        match of.kind() {
            AExprKind::AexprIn
            | AExprKind::AexprBetween
            | AExprKind::AexprNotBetween
            | AExprKind::AexprBetweenSym
            | AExprKind::AexprNotBetweenSym => {
                let Some(NodeEnum::List(list)) = &right.node else { return None };
                self.compared(of.lexpr.as_deref()?, &list.items)
            }
            AExprKind::AexprDistinct | AExprKind::AexprNotDistinct => {
                self.compared(of.lexpr.as_deref()?, std::slice::from_ref(right))
            }
            AExprKind::AexprOpAny | AExprKind::AexprOpAll if COMPARISONS.contains(&name) => {
                self.compared_with_any(of.lexpr.as_deref()?, right)
            }
            AExprKind::AexprNullif => {
                let left = of.lexpr.as_deref()?;
                self.compared(left, std::slice::from_ref(right)).and(self.gives(left))
            }
            AExprKind::AexprLike | AExprKind::AexprIlike => {
                let is_whole = !text_of(right)?.contains('\\');
                let left = self.gives(of.lexpr.as_deref()?)?;
                (is_whole && matches!(left, Gives::Text | Gives::Constant)).then_some(BOOLEAN)
            }
            AExprKind::AexprOp => match name {
                _ if COMPARISONS.contains(&name) => {
                    self.compared(of.lexpr.as_deref()?, std::slice::from_ref(right))
                }
                "+" | "-" if self.is_folded(node) => Some(Gives::Constant),
                "~" | "~*" | "!~" | "!~*" if is_plain_pattern(text_of(right)?) => {
                    let left = self.gives(of.lexpr.as_deref()?)?;
                    (left == Gives::Text).then_some(BOOLEAN)
                }
                "||" => match (self.gives(of.lexpr.as_deref()?)?, self.gives(right)?) {
                    (Gives::Text, Gives::Constant) | (Gives::Constant, Gives::Text) => {
                        Some(Gives::Text)
                    }
                    _ => None,
                },
                "->" | "->>" | "#>" | "#>>" | "@>" | "<@" | "&&" | "?" | "?|" | "?&" => {
                    self.of_contents(name, of.lexpr.as_deref()?, right)
                }
                "+" | "-" | "*" => match (self.gives(of.lexpr.as_deref()?)?, self.gives(right)?) {
                    (Gives::Numeric, Gives::Numeric | Gives::Integer)
                    | (Gives::Integer, Gives::Numeric) => Some(Gives::Numeric),
                    _ => None,
                },
                // Not by 0; nor by -1, of which the least integer has no quotient.
                "/" | "%" if is_positive(right) => {
                    self.gives(of.lexpr.as_deref()?).filter(|of| *of == Gives::Integer)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// What a document or an array has.
    fn of_contents(&self, operator: &str, left: &Node, right: &Node) -> Option<Gives> {
        use Gives::{Constant, Integer, Other, Text};
        match (operator, self.gives(left)?, self.gives(right)?) {
            ("->", Other(JSONB), Constant | Integer) | ("#>", Other(JSONB), Constant) => {
                Some(Other(JSONB))
            }
            ("->>", Other(JSONB), Constant | Integer) | ("#>>", Other(JSONB), Constant) => {
                Some(Text)
            }
            ("@>" | "?" | "?|" | "?&", Other(JSONB), Constant) | ("<@", Constant, Other(JSONB)) => {
                Some(BOOLEAN)
            }
            ("@>" | "<@" | "&&", Other(array), Constant)
            | ("@>" | "<@" | "&&", Constant, Other(array)) => {
                ARRAYS.contains(&array).then_some(BOOLEAN)
            }
            _ => None,
        }
    }

    fn of_call(&self, call: &FuncCall) -> Option<Gives> {
        if is_time_call(call, self.context) {
            return Some(Gives::Constant);
        }
        let (schema, name) = name_of(call);
        if !means_built_in(schema, name, self.context)
            || (schema.is_none() && self.is_overloaded(name))
            || call.over.is_some()
            || call.func_variadic
            || call.agg_distinct
            || !call.agg_order.is_empty()
            || call.agg_filter.as_deref().is_some_and(|filter| !self.holds(filter))
        {
            return None;
        }
        let first = || self.gives(call.args.first()?);
        let is_number = |of: &Gives| matches!(of, Gives::Integer | Gives::Numeric);
        let is_text = |of: &Gives| *of == Gives::Text;
        match (name, call.args.len()) {
            ("count", 0 | 1) => self.all(&call.args).and(Some(Gives::Integer)),
            ("min" | "max", 1) => first(),
            ("bool_and" | "bool_or" | "every", 1) => first().filter(|of| *of == BOOLEAN),
            ("sum", 1) => first().filter(is_number),
            ("avg", 1) => first().filter(is_number).and(Some(Gives::Numeric)),
            ("date_trunc", 2) => {
                let is_time = |of: &Gives| matches!(of, Gives::Other(TIMESTAMP | TIMESTAMPTZ));
                let is_known = is_one_of(&call.args[0], &TRUNCATED_TO);
                self.gives(&call.args[1]).filter(|of| is_known && is_time(of))
            }
            ("extract" | "date_part", 2) => {
                let of_date = is_one_of(&call.args[0], &OF_DATES);
                let of_time = of_date || is_one_of(&call.args[0], &OF_TIMES);
                let has_it = match self.gives(&call.args[1])? {
                    Gives::Other(DATE) => of_date,
                    Gives::Other(TIMESTAMP | TIMESTAMPTZ) => of_time,
                    _ => false,
                };
                let given = if name == "extract" { Gives::Numeric } else { Gives::Other(FLOAT8) };
                has_it.then_some(given)
            }
            ("substring" | "substr", 3) => {
                let is_counted = call.args[1..].iter().all(is_count);
                first().filter(|of| *of == Gives::Text && is_counted)
            }
            ("substring" | "substr" | "left" | "right", 2) if is_integer(&call.args[1]) => {
                first().filter(is_text)
            }
            (
                "lower" | "upper" | "initcap" | "btrim" | "ltrim" | "rtrim" | "reverse" | "md5",
                1,
            ) => first().filter(is_text),
            ("btrim" | "ltrim" | "rtrim", 2) => {
                text_of(&call.args[1])?;
                first().filter(is_text)
            }
            ("length" | "char_length" | "character_length" | "octet_length" | "bit_length", 1) => {
                first().filter(is_text).and(Some(Gives::Integer))
            }
            ("strpos" | "position", 2) => {
                text_of(&call.args[1])?;
                first().filter(is_text).and(Some(Gives::Integer))
            }
            ("starts_with", 2) => {
                text_of(&call.args[1])?;
                first().filter(is_text).and(Some(BOOLEAN))
            }
            ("abs" | "ceil" | "ceiling" | "floor" | "round" | "trunc" | "sign", 1) => {
                first().filter(|of| *of == Gives::Numeric)
            }
            ("round" | "trunc", 2) if is_integer(&call.args[1]) => {
                first().filter(|of| *of == Gives::Numeric)
            }
            _ => None,
        }
    }
}

fn of_constant(constant: &AConst) -> Gives {
    match &constant.val {
        Some(a_const::Val::Ival(_)) => Gives::Integer,
        Some(a_const::Val::Fval(number)) if number.fval.parse::<i64>().is_err() => Gives::Numeric,
        Some(a_const::Val::Fval(_)) => Gives::Integer,
        _ => Gives::Constant,
    }
}

/// Whether it is a literal above 0.
fn is_positive(node: &Node) -> bool {
    match &node.node {
        Some(NodeEnum::AConst(AConst { val: Some(a_const::Val::Ival(number)), .. })) => {
            0 < number.ival
        }
        _ => false,
    }
}

/// Whether it is a literal that says one of these.
fn is_one_of(node: &Node, words: &[&str]) -> bool {
    text_of(node).is_some_and(|text| words.contains(&text))
}

/// The text that a literal says.
fn text_of(node: &Node) -> Option<&str> {
    match &node.node {
        Some(NodeEnum::AConst(AConst { val: Some(a_const::Val::Sval(text)), .. })) => {
            Some(&text.sval)
        }
        _ => None,
    }
}

fn is_integer(node: &Node) -> bool {
    matches!(&node.node, Some(NodeEnum::AConst(AConst { val: Some(a_const::Val::Ival(_)), .. })))
}

/// Whether a regular expression is of letters and digits alone, but for where it begins and ends.
fn is_plain_pattern(pattern: &str) -> bool {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    let pattern = pattern.strip_suffix('$').unwrap_or(pattern);
    let is_plain = |it: char| it.is_alphanumeric() || matches!(it, ' ' | '_' | '-' | '.' | '@');
    !pattern.is_empty() && pattern.chars().all(is_plain)
}

/// A count, or NULL, and not below zero.
fn is_count(node: &Node) -> bool {
    match &node.node {
        Some(NodeEnum::AConst(constant)) => match &constant.val {
            Some(a_const::Val::Ival(count)) => 0 <= count.ival,
            _ => constant.isnull,
        },
        _ => false,
    }
}
