//! EXPLAIN: the plan of another statement.
//!
//! Owns: cutting the explained statement out of the text. Never: renders a plan.

use pg_query::protobuf::ExplainStmt;

use crate::plan::{DataPlan, Explain, Planned};
use crate::planner::syntax::{is_on, option, option_text};
use crate::refusal::Refusal;
use crate::statement::Statement;
use crate::statement::tokens::{list, scan};

/// The statement that is explained, and the text before it.
pub(in crate::planner) fn explained<'s>(
    explain: &ExplainStmt,
    statement: &'s Statement,
) -> Result<(&'s str, Statement), Refusal> {
    let (Some(tree), Some(start)) = (
        explain.query.as_ref().and_then(|query| query.node.clone()),
        explained_from(explain, &statement.text)?,
    ) else {
        return Err(Refusal::postgres("42601", "syntax error at end of input"));
    };
    let (prefix, text) = statement.text.split_at(start);
    let explained = Statement {
        text: text.to_owned(),
        offset: statement.offset + start,
        tree,
        distribute_by: statement.distribute_by.clone(),
        global_unique: statement.global_unique,
        parameter_count: statement.parameter_count,
    };
    Ok((prefix, explained))
}

/// EXPLAIN of a statement with this text and this plan.
pub(in crate::planner) fn plan_explain(
    explain: &ExplainStmt,
    prefix: &str,
    text: String,
    of: Planned,
) -> Planned {
    let why = of.why.clone();
    let format = option(&explain.options, "format").and_then(option_text);
    let explain = DataPlan::Explain(Explain {
        of: Box::new(of),
        statement: text,
        prefix: prefix.to_owned(),
        analyze: option(&explain.options, "analyze").is_some_and(is_on),
        text_format: format.is_none_or(|format| format.eq_ignore_ascii_case("text")),
    });
    Planned::new(explain, why)
}

/// The byte at which the explained statement begins.
fn explained_from(explain: &ExplainStmt, text: &str) -> Result<Option<usize>, Refusal> {
    let tokens = scan(text).map_err(|error| Refusal::postgres("42601", error.to_string()))?;
    let mut next = 1;
    // Without options a parenthesis belongs to the query: EXPLAIN (SELECT 1) UNION ….
    if !explain.options.is_empty() {
        if let Some((_, behind)) = list(text, &tokens, next) {
            next = behind;
        } else {
            while tokens.get(next).is_some_and(|token| {
                ["analyze", "analyse", "verbose"].iter().any(|word| token.is_word(word))
            }) {
                next += 1;
            }
        }
    }
    Ok(tokens.get(next).map(|token| token.start))
}
