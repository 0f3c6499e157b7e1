//! TABLESAMPLE of tables whose rows are collected.
//!
//! Owns: which samples a node can take of its own rows, and their text.
//! Never: chooses where a sample is taken.
//! Start reading at [`clause`].
//!
//! Of BERNOULLI and SYSTEM a row or a page is chosen by itself, whatever others there are: samples of each node's rows are
//! together one of all rows. Another method may count them (`system_rows`), and is not sent to several nodes.

use pg_query::NodeEnum;
use pg_query::protobuf::{AExprKind, Node, RangeTableSample};

use super::sql_text::deparse_expression;
use super::syntax::string;
use crate::refusal::Refusal;

const METHODS: [&str; 2] = ["bernoulli", "system"];

/// ` TABLESAMPLE …`, if each node can take the sample of its own rows.
pub(super) fn clause(sample: &RangeTableSample) -> Result<Option<String>, Refusal> {
    let names: Vec<_> = sample.method.iter().filter_map(string).collect();
    let method = match names[..] {
        [method] | ["pg_catalog", method] if METHODS.contains(&method) => method,
        _ => return Ok(None),
    };
    let repeatable = sample.repeatable.as_deref();
    if !sample.args.iter().chain(repeatable).all(is_constant) {
        return Ok(None);
    }
    let arguments = sample.args.iter().map(deparse_expression).collect::<Result<Vec<_>, _>>()?;
    let repeatable = match repeatable {
        Some(seed) => format!(" REPEATABLE ({})", deparse_expression(seed)?),
        None => String::new(),
    };
    let arguments = arguments.join(", ");
    Ok(Some(format!(" TABLESAMPLE pg_catalog.{method} ({arguments}){repeatable}")))
}

/// A literal or parameter, perhaps negative or cast.
fn is_constant(value: &Node) -> bool {
    match &value.node {
        Some(NodeEnum::AConst(_) | NodeEnum::ParamRef(_)) => true,
        Some(NodeEnum::TypeCast(cast)) => cast.arg.as_deref().is_some_and(is_constant),
        Some(NodeEnum::AExpr(of)) => {
            of.kind() == AExprKind::AexprOp
                && of.lexpr.is_none()
                && matches!(&of.name[..], [name] if string(name) == Some("-"))
                && of.rexpr.as_deref().is_some_and(is_constant)
        }
        _ => false,
    }
}
