//! Where a statement may read a text as a time.
//!
//! Owns: which expressions can be no text there. `now` is when the transaction began that reads it, so a statement that
//! reads texts means something else in another transaction.
//! Never: knows a type of what it does not recognize; such a value may be a text, and such a type may hold times.
//! Start reading at [`may_be_read`].

use pg_query::NodeEnum;
use pg_query::protobuf::{ColumnRef, FuncCall, Node, SelectStmt, SetOperation};

use super::alike::is_of_time;
use super::analysis::Analysis;
use super::context::Context;
use super::functions;
use super::syntax::{is_star_output, name_of, string};
use crate::built_in_types::{is_time, may_be_time};
use crate::catalog::Volatility;
use crate::walk;

/// Built-in functions of which none gives a text.
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

/// Whether a text may be read as a time, anywhere in this statement, of which literals that are told to be times are gone
/// ([`super::time_gaps`]).
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
                let name = cast.type_name.as_ref().and_then(|name| string(name.names.last()?));
                name.is_none_or(may_be_time) && within.may_be_text(cast.arg.as_deref())
            }
            NodeEnum::FuncCall(call) => within.calls_reader(call),
            _ => false,
        };
        walk::read::children(tree, &mut |child| {
            found |= child.node.as_ref().is_some_and(|child| within.reads_text(child));
        });
        found
    }

    /// A function whose code is not PostgreSQL's may read any; of PostgreSQL's own do those that are called as types, their
    /// input functions, and what makes records of documents.
    fn calls_reader(self, call: &'a FuncCall) -> bool {
        let (schema, name) = name_of(call);
        if schema == Some("tutti") {
            return false;
        }
        if !functions::is_built_in(schema, name, self.context) {
            let function = self.context.catalog.function(self.context.scope, schema, name);
            // What reads a text as a time is no IMMUTABLE function.
            return function.is_none_or(|of| of.volatility != Volatility::Immutable);
        }
        let reads = name.ends_with("_in")
            || name.contains("_populate_record")
            || name.contains("_to_record")
            || is_time(name);
        reads && call.args.iter().any(|argument| self.may_be_text(Some(argument)))
    }

    fn may_be_text(self, value: Option<&'a Node>) -> bool {
        match value.and_then(|value| value.node.as_ref()) {
            // A literal that says now has been seen.
            Some(NodeEnum::AConst(_) | NodeEnum::SqlvalueFunction(_)) => false,
            Some(NodeEnum::TypeCast(cast)) => {
                let name = cast.type_name.as_ref().and_then(|name| string(name.names.last()?));
                !name.is_some_and(is_time)
            }
            Some(NodeEnum::FuncCall(call)) => {
                let (schema, name) = name_of(call);
                !(GIVES_TIMES.contains(&name)
                    && functions::means_built_in(schema, name, self.context))
            }
            Some(NodeEnum::ColumnRef(column)) => match self.computed(column) {
                Some((select, value)) => {
                    Reading { select: Some(select), ..self }.may_be_text(Some(value))
                }
                None => !self.analysis.column_of_table(column).is_some_and(is_of_time),
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
}

/// An output's expression, if it is one column.
fn value_of(target: &Node) -> Option<&Node> {
    if is_star_output(target) {
        return None;
    }
    let NodeEnum::ResTarget(target) = target.node.as_ref()? else { return None };
    target.val.as_deref()
}
