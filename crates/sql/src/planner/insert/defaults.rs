//! Which columns of a table must be evaluated once for the whole cluster when no value is given.
//!
//! Owns: that rule. Never: evaluates.

use pg_query::NodeEnum;
use pg_query::protobuf::Node;

use super::super::functions::{FunctionUse, name_of};
use super::super::unseen::default_is_opaque;
use super::super::{Context, oids, printed, replicas};
use crate::catalog::{Placement, Relation};
use crate::refusal::Refusal;
use crate::walk;

/// The rule, worked out for one table.
pub(in crate::planner) struct Evaluation<'a> {
    relation: &'a Relation,
    /// Per column.
    once: Vec<bool>,
    /// Per column: the default depends on the current time.
    time: Vec<bool>,
    /// The session may have hidden what the defaults mean.
    is_hidden: bool,
}

impl<'a> Evaluation<'a> {
    /// Works the rule out.
    pub fn of(relation: &'a Relation, context: &Context<'_>) -> Self {
        let (mut once, mut time) = (Vec::new(), Vec::new());
        for (index, column) in relation.columns.iter().enumerate() {
            let default = column.default.as_deref().filter(|_| !column.generated).map(expression);
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
            once.push(match relation.placement {
                _ if column.generated => false,
                // Without the key nobody knows where the row belongs.
                Placement::Hash { key, .. } => index == key || from_cluster,
                Placement::RoundRobin => from_cluster,
                Placement::Replicated => {
                    from_cluster
                        || column.default.as_deref().is_some_and(has_time_of_making)
                        || default.is_some_and(|default| !is_fixed(&default, context))
                }
                Placement::Home => false,
            });
        }
        Self { relation, once, time, is_hidden: printed::is_hidden(context.scope) }
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
    /// Errors: as [`printed::qualify`].
    pub fn default_sql(&self, column: usize) -> Result<String, Refusal> {
        match &self.relation.columns[column].default {
            None => Ok("NULL".to_owned()),
            Some(default) if self.is_hidden => printed::qualified(default),
            Some(default) => Ok(default.clone()),
        }
    }
}

/// The tree of an expression's text.
pub(in crate::planner) fn expression(text: &str) -> Option<Node> {
    let statement = crate::statement::parse(&format!("SELECT {text}")).ok()?.pop()?;
    let NodeEnum::SelectStmt(mut select) = statement.tree else { return None };
    match select.target_list.pop()?.node? {
        NodeEnum::ResTarget(target) if select.target_list.is_empty() => {
            target.val.map(|value| *value)
        }
        _ => None,
    }
}

/// Whether an expression is for one place in the cluster to answer: it draws from a sequence, or is an
/// OID of node 1.
pub(super) fn needs_one_place(expression: &Node, context: &Context<'_>) -> bool {
    let mut calls = FunctionUse::default();
    add_calls(expression, context, &mut calls);
    calls.home.is_some() || draws(expression) || oids::shown(expression)
}

/// Whether a function of a sequence is called, whatever the catalog knows of it.
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

/// Whether an expression provably has the same value on every node, whenever it is evaluated.
pub(in crate::planner) fn is_fixed(expression: &Node, context: &Context<'_>) -> bool {
    replicas::expression_obstacle(expression, context).is_none()
}

/// Whether an expression, as a node prints it, has a constant of a date or time. Each node has read it
/// when the object was made, and it may have said `now`.
pub(in crate::planner) fn has_time_of_making(printed: &str) -> bool {
    ["::date", "::time"].iter().any(|of| printed.contains(of))
}

/// Whether an expression's value depends on when it is evaluated, though not on where.
pub(super) fn reads_time(expression: &Node, context: &Context<'_>) -> bool {
    let mut calls = FunctionUse::default();
    add_calls(expression, context, &mut calls);
    calls.reads_time || says_now(expression)
}

/// Whether a literal below is one that the input functions of dates and times read as the current
/// time: `'now'::timestamptz` is a literal to the grammar, and another value on each node.
fn says_now(node: &Node) -> bool {
    use pg_query::protobuf::a_const::Val;
    let Some(node) = &node.node else { return false };
    if let NodeEnum::AConst(constant) = node
        && let Some(Val::Sval(text)) = &constant.val
    {
        return names_current_time(&text.sval);
    }
    let mut found = false;
    walk::read::children(node, &mut |child| found |= says_now(child));
    found
}

/// Whether the input functions of dates and times may read this text as the current time.
pub fn names_current_time(text: &str) -> bool {
    const WORDS: [&str; 4] = ["now", "today", "tomorrow", "yesterday"];
    text.split(|character: char| !character.is_ascii_alphabetic())
        .any(|word| WORDS.iter().any(|current| word.eq_ignore_ascii_case(current)))
}
