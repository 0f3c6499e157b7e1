//! Where a statement may read a text as a time.
//!
//! Owns: which expressions can be no text there. `now` is when the transaction began that reads it, so a statement that
//! reads texts means something else in another transaction. (Literals are read before.)
//! Never: knows a type of what it does not recognize; such a value may be a text.
//! Start reading at [`may_be_read`].

use pg_query::NodeEnum;
use pg_query::protobuf::{ColumnRef, Node, SelectStmt, SetOperation};

use super::analysis::Analysis;
use super::context::Context;
use super::functions;
use super::syntax::{is_star_output, string};
use crate::walk;

/// Types whose values say themselves which time they are.
const TIMES: [&str; 5] = ["date", "time", "timetz", "timestamp", "timestamptz"];
/// Built-in functions of which none gives a text, or reads `now` in one.
const GIVES_TIMES: [&str; 10] = [
    "age",
    "clock_timestamp",
    "date_trunc",
    "make_date",
    "make_timestamp",
    "make_timestamptz",
    "now",
    "statement_timestamp",
    "to_timestamp",
    "transaction_timestamp",
];

/// Whether a text may be read as a time, anywhere in this statement.
pub(super) fn may_be_read(tree: &NodeEnum, analysis: &Analysis<'_>, context: &Context<'_>) -> bool {
    Reading { analysis, context, select: None }.reads_text(tree)
}

/// Values where they stand.
#[derive(Clone, Copy)]
struct Reading<'a> {
    analysis: &'a Analysis<'a>,
    context: &'a Context<'a>,
    /// The query that is nearest.
    select: Option<&'a SelectStmt>,
}

impl<'a> Reading<'a> {
    fn reads_text(self, tree: &'a NodeEnum) -> bool {
        let within = match tree {
            NodeEnum::SelectStmt(select) => Reading { select: Some(select), ..self },
            _ => self,
        };
        let mut found = match tree {
            NodeEnum::TypeCast(cast) => {
                cast.type_name.as_ref().is_some_and(|name| is_time(&name.names))
                    && within.may_be_text(cast.arg.as_deref())
            }
            NodeEnum::FuncCall(call) => {
                is_time(&call.funcname)
                    && call.args.len() == 1
                    && within.may_be_text(call.args.first())
            }
            _ => false,
        };
        walk::read::children(tree, &mut |child| {
            found |= child.node.as_ref().is_some_and(|child| within.reads_text(child));
        });
        found
    }

    fn may_be_text(self, value: Option<&'a Node>) -> bool {
        match value.and_then(|value| value.node.as_ref()) {
            Some(NodeEnum::AConst(_) | NodeEnum::SqlvalueFunction(_)) => false,
            Some(NodeEnum::TypeCast(cast)) => {
                !cast.type_name.as_ref().is_some_and(|name| is_time(&name.names))
            }
            Some(NodeEnum::FuncCall(call)) => {
                let (schema, name) = match &*call.funcname {
                    [name] => (None, string(name)),
                    [schema, name] => (string(schema), string(name)),
                    _ => return true,
                };
                !name.is_some_and(|name| {
                    GIVES_TIMES.contains(&name)
                        && functions::means_built_in(schema, name, self.context)
                })
            }
            Some(NodeEnum::ColumnRef(column)) => match self.computed(column) {
                Some((select, value)) => {
                    Reading { select: Some(select), ..self }.may_be_text(Some(value))
                }
                None => self.may_be_text_in_tables(column),
            },
            _ => true,
        }
    }

    /// What a column of a subquery is, where one of the query's own is named so.
    fn computed(self, column: &ColumnRef) -> Option<(&'a SelectStmt, &'a Node)> {
        let [of, name] = &*column.fields else { return None };
        let (of, name) = (string(of)?, string(name)?);
        self.select?.from_clause.iter().find_map(|item| {
            let NodeEnum::RangeSubselect(item) = item.node.as_ref()? else { return None };
            let alias = item.alias.as_ref().filter(|alias| alias.aliasname == of)?;
            let NodeEnum::SelectStmt(select) = item.subquery.as_ref()?.node.as_ref()? else {
                return None;
            };
            // One query's output, and a place in it that no `*` moves.
            let targets =
                (select.op() == SetOperation::SetopNone).then_some(&select.target_list)?;
            let at = alias.colnames.iter().position(|column| string(column) == Some(name))?;
            let values: Option<Vec<_>> = targets.iter().map(value_of).collect();
            Some((&**select, *values?.get(at)?))
        })
    }

    /// By its name alone: any of these tables may be meant.
    fn may_be_text_in_tables(self, column: &ColumnRef) -> bool {
        let name = column.fields.last().and_then(string);
        let relations = self.analysis.items.iter().filter_map(|item| item.relation());
        let columns = relations.flat_map(|relation| &relation.columns);
        let mut named = columns.filter(|column| Some(&*column.name) == name).peekable();
        named.peek().is_none() || named.any(|column| !is_of_times(column.type_oid))
    }
}

/// An output's expression, if it is one column.
fn value_of(target: &Node) -> Option<&Node> {
    if is_star_output(target) {
        return None;
    }
    let NodeEnum::ResTarget(target) = target.node.as_ref()? else { return None };
    target.val.as_deref()
}

fn is_time(names: &[Node]) -> bool {
    names.last().and_then(string).is_some_and(|name| TIMES.contains(&name))
}

/// date, time, timestamp, timestamptz, timetz.
const fn is_of_times(type_oid: u32) -> bool {
    matches!(type_oid, 1082 | 1083 | 1114 | 1184 | 1266)
}
