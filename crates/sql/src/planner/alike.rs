//! What every node computes alike, of the same row and at the same time.
//!
//! Owns: that rule, for what nodes compute instead of the one that runs the final statement: their aggregates and their
//! order. Never: asks whether it changes later; a statement is over by then.
//! Start reading at [`Alike::is_alike`].

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, SqlValueFunctionOp};

use super::analysis::Analysis;
use super::context::Context;
use super::current_time::says_now;
use super::functions::{is_age_today, is_built_in, is_time};
use super::syntax::{name_of, string};
use crate::built_in_types::{is_local, may_be_time};
use crate::catalog::{Column, RelationKind, Volatility};
use crate::walk;

/// Functions that depend on settings of the session, which all nodes have alike, and on nothing of the server.
const OF_THE_SESSION: [&str; 11] = [
    "age",
    "concat",
    "concat_ws",
    "date_part",
    "date_trunc",
    "extract",
    "format",
    "timezone",
    "to_char",
    "to_date",
    "to_timestamp",
];
/// How many views may lie over one another.
const VIEW_DEPTH_MAX: usize = 32;

/// See the module's documentation.
pub(super) struct Alike<'p, 'a> {
    /// Of the statement in which the expressions stand.
    pub(super) analysis: &'p Analysis<'a>,
    pub(super) context: &'p Context<'a>,
}

impl<'a> Alike<'_, 'a> {
    /// Whether every node computes the same of the same row: not what a server is called, or how it numbers things.
    pub(super) fn is_alike(&self, node: &Node) -> bool {
        self.holds(node, true)
    }

    /// The same of all that a query reads: its FROM and WHERE, views that are named there and what these read.
    pub(super) fn reads_alike(&self, from: &[Node], condition: Option<&Node>) -> bool {
        from.iter()
            .chain(condition)
            .all(|node| self.holds(node, true) && self.views_are_alike(node, 0))
    }

    /// `has_uses`: what columns mean is in the analysis.
    fn holds(&self, node: &Node, has_uses: bool) -> bool {
        let Some(of) = &node.node else { return true };
        let here = match of {
            NodeEnum::FuncCall(call) => {
                let (schema, name) = name_of(call);
                let found = self.context.catalog.function(self.context.scope, schema, name);
                let is_built_in = is_built_in(schema, name, self.context);
                found.is_some_and(|function| match function.volatility {
                    Volatility::Immutable => true,
                    Volatility::Stable => {
                        is_built_in && OF_THE_SESSION.contains(&name) && !is_age_today(call)
                    }
                    Volatility::Volatile => false,
                })
            }
            NodeEnum::TypeCast(cast) => {
                let is_plain = |of: &Node| match &of.node {
                    // Looked at below.
                    Some(NodeEnum::AConst(_)) => true,
                    Some(NodeEnum::ColumnRef(reference)) => {
                        has_uses && self.analysis.column_of_table(reference).is_some_and(is_of_time)
                    }
                    _ => false,
                };
                // A text may say now, to each node at another time.
                cast.type_name.as_ref().is_some_and(|name| {
                    let name = name.names.last().and_then(string).unwrap_or_default();
                    !is_local(name)
                        && (!may_be_time(name) || cast.arg.as_deref().is_some_and(is_plain))
                })
            }
            NodeEnum::AConst(_) => !says_now(node),
            NodeEnum::AExpr(of) => {
                let name = of.name.last().and_then(string).unwrap_or_default();
                !self.context.catalog.code.has_operator(name)
            }
            // Nodes' databases may have other names.
            NodeEnum::SqlvalueFunction(of) => {
                !is_time(of) && of.op() != SqlValueFunctionOp::SvfopCurrentCatalog
            }
            _ => true,
        };
        let mut all = here;
        walk::read::children(of, &mut |child| all = all && self.holds(child, has_uses));
        all
    }

    fn views_are_alike(&self, node: &Node, depth: usize) -> bool {
        let Some(of) = &node.node else { return true };
        let mut all = match of {
            NodeEnum::RangeVar(range) => self.context.relation(range).is_none_or(|relation| {
                let RelationKind::View { definition } = &relation.kind else { return true };
                depth < VIEW_DEPTH_MAX
                    && crate::statement::parse(definition).is_ok_and(|trees| {
                        trees.into_iter().all(|tree| {
                            let node = Node { node: Some(tree.tree) };
                            self.holds(&node, false) && self.views_are_alike(&node, depth + 1)
                        })
                    })
            }),
            _ => true,
        };
        walk::read::children(of, &mut |child| all = all && self.views_are_alike(child, depth));
        all
    }
}

/// date, time, timestamp, timestamptz, timetz.
pub(super) fn is_of_time(column: &Column) -> bool {
    const TIMES: [u32; 5] = [1082, 1083, 1114, 1184, 1266];
    TIMES.contains(&column.type_oid)
}
