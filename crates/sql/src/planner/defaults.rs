//! Which columns of a table must be evaluated once for the whole cluster when no value is given.
//!
//! Owns: that rule. Never: evaluates.

use pg_query::NodeEnum;
use pg_query::protobuf::Node;

use super::context::Context;
use super::current_time::{has_time_of_making, says_now};
use super::determinism::is_fixed;
use super::function_use::FunctionUse;
use super::oids;
use super::printed::Hiding;
use super::sql_text::parse_expression;
use super::syntax::name_of;
use super::unseen::default_is_opaque;
use crate::catalog::{Placement, Relation, RelationKind};
use crate::refusal::Refusal;
use crate::walk;

/// The rule, worked out for one table.
pub(super) struct Evaluation<'a> {
    relation: &'a Relation,
    /// Per column.
    once: Vec<bool>,
    /// Per column: the default depends on the current time.
    time: Vec<bool>,
    /// What may hide what the defaults mean.
    hiding: Hiding<'a>,
}

impl<'a> Evaluation<'a> {
    /// Works the rule out.
    pub fn of(relation: &'a Relation, context: &Context<'a>) -> Self {
        let (mut once, mut time) = (Vec::new(), Vec::new());
        for (index, column) in relation.columns.iter().enumerate() {
            let default =
                column.default.as_deref().filter(|_| !column.generated).map(parse_expression);
            // A default that cannot be read is taken for the worst.
            let from_cluster = match &default {
                Some(Some(default)) => needs_one_place(default, context),
                Some(None) => true,
                None => false,
            };
            let from_cluster = from_cluster
                || (column.default.is_some() && default_is_opaque(relation, &column.name, context));
            let default = default.flatten();
            time.push(default.as_ref().is_some_and(|default| reads_time(default, context)));
            // What is written through a view may be copies.
            let placement = match relation.kind {
                RelationKind::View { .. } => &Placement::Replicated,
                _ => &relation.placement,
            };
            once.push(match placement {
                _ if column.generated => false,
                // Without the key it is unknown where the row belongs.
                Placement::Hash { .. }
                | Placement::HashOfSeveral { .. }
                | Placement::RoundRobin => {
                    placement.key_columns().iter().any(|key| key.column == index)
                        || relation.key_sources().any(|source| source == index)
                        || from_cluster
                }
                Placement::Replicated => {
                    from_cluster
                        || column.default.as_deref().is_some_and(has_time_of_making)
                        || default.is_some_and(|default| !is_fixed(&default, context))
                }
                Placement::Home | Placement::Async { .. } => false,
            });
        }
        Self { relation, once, time, hiding: Hiding::of(context) }
    }

    /// Whether this column must be evaluated before the row goes to its node or nodes.
    pub fn once(&self, column: usize) -> bool {
        self.once[column]
    }

    /// The same for rows that go to several nodes: one statement has one time.
    pub fn once_for_several_nodes(&self, column: usize) -> bool {
        self.once[column] || self.time[column]
    }

    /// The column's default as SQL.
    ///
    /// Errors: as [`Hiding::qualify`].
    pub fn default_sql(&self, column: usize) -> Result<String, Refusal> {
        match &self.relation.columns[column].default {
            None => Ok("NULL".to_owned()),
            Some(default) => self.hiding.qualified(default),
        }
    }
}

/// Whether an expression is for one place in the cluster to answer: it draws from a sequence, or is an
/// OID of node 1.
pub(super) fn needs_one_place(expression: &Node, context: &Context<'_>) -> bool {
    let mut calls = FunctionUse::default();
    add_calls(expression, context, &mut calls);
    calls.home.is_some() || draws(expression) || oids::shown(expression)
}

/// Whether a function of a sequence is called, whatever the catalog knows about it.
fn draws(node: &Node) -> bool {
    const FUNCTIONS: [&str; 4] = ["nextval", "setval", "currval", "lastval"];
    let Some(node) = &node.node else { return false };
    if let NodeEnum::FuncCall(call) = node
        && FUNCTIONS.contains(&name_of(call).1)
    {
        return true;
    }
    let mut found = false;
    walk::read::children(node, &mut |child| found |= draws(child));
    found
}

/// Collects all calls below a node.
pub(super) fn add_calls(node: &Node, context: &Context<'_>, calls: &mut FunctionUse) {
    let Some(node) = &node.node else { return };
    match node {
        NodeEnum::FuncCall(call) => {
            calls.add(call, context);
        }
        NodeEnum::SqlvalueFunction(function) => calls.add_value_function(function),
        _ => (),
    }
    walk::read::children(node, &mut |child| add_calls(child, context, calls));
}

/// Whether an expression's value depends on when it is evaluated, though not on where.
pub(super) fn reads_time(expression: &Node, context: &Context<'_>) -> bool {
    let mut calls = FunctionUse::default();
    add_calls(expression, context, &mut calls);
    calls.reads_time || says_now(expression)
}
