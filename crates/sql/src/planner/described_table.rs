//! psql's `\d+`: a table's placement, among its options.
//!
//! Owns: recognising the one query of psql's that asks for a table's options, and what it asks instead.
//! Never: changes what another client asks: no one else writes this expression.
//! Start reading at [`with_placement`].
//!
//! psql prints what it is told there behind `Options:`, as it is. Of `\d` without `+` nothing is printed as it is that is not
//! said to be something else, so that it cannot be there.

use pg_query::NodeEnum;
use pg_query::protobuf::{AExpr, AExprKind, FuncCall, Node, SelectStmt, SubLinkType};

use super::context::Context;
use super::gaps::expression;
use super::syntax::{name_of, string};

/// The query with the placement of its table, if it is psql's.
pub(super) fn with_placement(
    select: &SelectStmt,
    context: &Context<'_>,
) -> Option<Box<SelectStmt>> {
    let is_options = |target: &Node| options(target).is_some();
    let index = select.target_list.iter().position(is_options)?;
    if context.catalog.is_solo() || !is_of_one_table(select) {
        return None;
    }
    let mut select = Box::new(select.clone());
    let Some(NodeEnum::ResTarget(target)) = &mut select.target_list[index].node else {
        return None;
    };
    let Some(NodeEnum::FuncCall(call)) = &mut target.val.as_mut()?.node else { return None };
    let Some(NodeEnum::AExpr(of)) = &mut call.args.first_mut()?.node else { return None };
    let with = "c.reloptions OPERATOR(pg_catalog.||) tutti.placement_option(c.oid)";
    of.lexpr = Some(Box::new(expression(with).ok()?));
    Some(select)
}

/// `pg_catalog.array_to_string(c.reloptions || array(SELECT …), ', ')`.
fn options(target: &Node) -> Option<&AExpr> {
    let Some(NodeEnum::ResTarget(target)) = &target.node else { return None };
    let call: &FuncCall = match target.val.as_ref()?.node.as_ref()? {
        NodeEnum::FuncCall(call) if name_of(call) == (Some("pg_catalog"), "array_to_string") => {
            call
        }
        _ => return None,
    };
    let [array, _] = &call.args[..] else { return None };
    let of = match array.node.as_ref()? {
        NodeEnum::AExpr(of) if of.kind() == AExprKind::AexprOp => of,
        _ => return None,
    };
    let is_concatenation = of.name.last().and_then(string) == Some("||");
    let is_of_toast = matches!(
        of.rexpr.as_ref()?.node.as_ref()?,
        NodeEnum::SubLink(of) if of.sub_link_type() == SubLinkType::ArraySublink
    );
    let is_its = is_column(of.lexpr.as_deref()?, "reloptions");
    (is_concatenation && is_of_toast && is_its).then_some(of)
}

/// `WHERE c.oid = '16384'`.
fn is_of_one_table(select: &SelectStmt) -> bool {
    let condition = select.where_clause.as_ref().and_then(|node| node.node.as_ref());
    match condition {
        Some(NodeEnum::AExpr(of)) => {
            of.name.last().and_then(string) == Some("=")
                && of.lexpr.as_deref().is_some_and(|left| is_column(left, "oid"))
                && of
                    .rexpr
                    .as_deref()
                    .is_some_and(|right| matches!(right.node, Some(NodeEnum::AConst(_))))
        }
        _ => false,
    }
}

/// Whether it is this column of `c`.
fn is_column(node: &Node, column: &str) -> bool {
    match &node.node {
        Some(NodeEnum::ColumnRef(reference)) => {
            let names: Vec<_> = reference.fields.iter().filter_map(string).collect();
            names == ["c", column]
        }
        _ => false,
    }
}
