//! Which expressions a node can compute of its own rows of one table.
//!
//! Owns: that rule, and how such an expression is said there. Never: moves one (`gather.rs` does).
//! Start reading at [`concerns_only`].

use pg_query::NodeEnum;
use pg_query::protobuf::{AExpr, Node};

use super::analysis::{Analysis, ColumnUse, ItemId};
use super::context::Context;
use super::current_time::says_now;
use super::functions::{is_age_today, is_time_call, volatility};
use super::sql_text::deparse_expression;
use crate::catalog::Volatility;
use crate::closure::{Search, Writing};
use crate::walk;

/// The parts of a condition that AND joins.
pub(super) fn split<'n>(condition: &'n Node, conjuncts: &mut Vec<&'n Node>) {
    match &condition.node {
        Some(NodeEnum::BoolExpr(all))
            if all.boolop() == pg_query::protobuf::BoolExprType::AndExpr =>
        {
            all.args.iter().for_each(|node| split(node, conjuncts));
        }
        _ => conjuncts.push(condition),
    }
}

/// Whether the expression is computed of nothing but rows of this table, and the same wherever that is done.
pub(super) fn concerns_only(
    node: &Node,
    item: ItemId,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> bool {
    // What it says of itself is not believed: what it can reach on a node must be nothing.
    volatility(node, context) < Volatility::Volatile
        && mentions_only(node, item, analysis, context)
        && is_transparent(node, context)
}

/// Whether no code that the condition reaches, by functions, operators, casts or types, is opaque, or gives something
/// else on each node.
fn is_transparent(node: &Node, context: &Context<'_>) -> bool {
    let Ok(text) = deparse_expression(node) else { return false };
    let mut search = Search::new(context.catalog, context.scope, Writing::Statement);
    search.text(&text);
    let reach = search.finish();
    reach.opaque.is_none() && !reach.differs
}

fn mentions_only(
    node: &Node,
    item: ItemId,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> bool {
    let Some(of) = &node.node else { return true };
    let here = match of {
        NodeEnum::SubLink(_) | NodeEnum::SelectStmt(_) => false,
        // The current time is the final statement's, as one transaction has one.
        NodeEnum::SqlvalueFunction(_) => false,
        NodeEnum::FuncCall(call) => !is_time_call(call, context) && !is_age_today(call),
        // Each node would read it at another time.
        NodeEnum::AConst(_) if says_now(node) => false,
        // These it cannot mean.
        NodeEnum::AExpr(of) if compares_with_other(of, analysis) => {
            let sides = [of.lexpr.as_deref(), of.rexpr.as_deref()].into_iter().flatten();
            let mut references = sides.filter(|side| is_reference(side));
            return references.all(|side| mentions_only(side, item, analysis, context));
        }
        NodeEnum::ColumnRef(reference) => {
            let at = |of: &&ColumnUse| of.location == reference.location;
            let mut uses = analysis.uses.iter().filter(at).peekable();
            uses.peek().is_some() && uses.all(|of| of.item == item && of.column.is_some())
        }
        _ => true,
    };
    let mut all = here;
    walk::read::children(of, &mut |child| {
        all = all && mentions_only(child, item, analysis, context);
    });
    all
}

/// Whether a column that is of no date or time is compared with literals.
fn compares_with_other(of: &AExpr, analysis: &Analysis<'_>) -> bool {
    let (Some(left), Some(right)) = (of.lexpr.as_deref(), of.rexpr.as_deref()) else {
        return false;
    };
    let is_other = |node: &Node| match &node.node {
        Some(NodeEnum::ColumnRef(reference)) => analysis
            .column_of_table(reference)
            .is_some_and(|column| !column.domain && is_plain_text(column.type_oid)),
        _ => false,
    };
    let is_literal = |node: &Node| match &node.node {
        Some(NodeEnum::AConst(_)) => true,
        Some(NodeEnum::List(list)) => {
            list.items.iter().all(|it| matches!(it.node, Some(NodeEnum::AConst(_))))
        }
        _ => false,
    };
    (is_other(left) && is_literal(right)) || (is_other(right) && is_literal(left))
}

/// text, varchar, char, name.
fn is_plain_text(type_oid: u32) -> bool {
    [19, 25, 1042, 1043].contains(&type_oid)
}

fn is_reference(node: &Node) -> bool {
    matches!(node.node, Some(NodeEnum::ColumnRef(_)))
}

/// `schema.table.column` becomes `table.column`, in an expression that concerns nothing but rows of one table.
pub(super) fn unqualify(node: &mut NodeEnum) {
    keep_names(node, 2);
}

/// `database.schema.table.column` becomes `schema.table.column`: nodes' databases may have other names.
pub(super) fn leave_database_out(node: &mut NodeEnum) {
    keep_names(node, 3);
}

fn keep_names(node: &mut NodeEnum, most: usize) {
    if let NodeEnum::ColumnRef(reference) = node {
        let surplus = reference.fields.len().saturating_sub(most);
        reference.fields.drain(..surplus);
        return;
    }
    walk::write::children(node, &mut |child| {
        if let Some(node) = &mut child.node {
            keep_names(node, most);
        }
    });
}
