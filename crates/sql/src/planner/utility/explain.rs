//! EXPLAIN: the plan of another statement.
//!
//! Owns: cutting the explained statement out of the text, and what of its options nodes are asked with. Never: renders a plan.

use std::slice;

use pg_query::NodeEnum;
use pg_query::protobuf::{DefElem, ExplainStmt, Node};

use crate::catalog::{quote_identifier, quote_literal};
use crate::plan::{DataPlan, Explain, ExplainFormat, Planned};
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
        cascades: statement.cascades,
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
    let options = &explain.options;
    let format = last(options, "format").and_then(option_text).map(|it| it.to_ascii_lowercase());
    let format = match format.as_deref() {
        Some("json") => ExplainFormat::Json,
        Some("yaml") => ExplainFormat::Yaml,
        Some("xml") => ExplainFormat::Xml,
        // Of others nodes say that there is none.
        _ => ExplainFormat::Text,
    };
    let analyze = last(options, "analyze").is_some_and(is_on);
    let prefix = match format {
        ExplainFormat::Text => prefix.to_owned(),
        _ => asking(options, |_| true, format),
    };
    let estimate_prefix = match analyze {
        true => asking(options, |name| !WITH_ANALYZE.contains(&name), format),
        false => prefix.clone(),
    };
    let explain = DataPlan::Explain(Explain {
        of: Box::new(of),
        statement: text,
        prefix,
        estimate_prefix,
        analyze,
        verbose: last(options, "verbose").is_some_and(is_on),
        timing: last(options, "timing").is_none_or(is_on),
        summary: last(options, "summary").is_none_or(is_on),
        generic: last(options, "generic_plan").is_some_and(is_on),
        format,
    });
    Planned::new(explain, why)
}

/// What can be asked for only of a statement that is run.
const WITH_ANALYZE: [&str; 4] = ["analyze", "wal", "timing", "serialize"];

/// The option as it counts: the last of its name.
fn last<'a>(options: &'a [Node], name: &str) -> Option<&'a DefElem> {
    options.iter().rev().find_map(|node| option(slice::from_ref(node), name))
}

/// EXPLAIN with those of the client's options that are wanted, in a format that the gateway can read.
fn asking(options: &[Node], is_wanted: impl Fn(&str) -> bool, format: ExplainFormat) -> String {
    let mut asked = Vec::new();
    for node in options {
        let Some(NodeEnum::DefElem(element)) = &node.node else { continue };
        if element.defname == "format" || !is_wanted(&element.defname) {
            continue;
        }
        let value = option_text(element).map(|value| quote_literal(&value)).unwrap_or_default();
        asked.push(format!("{} {value}", quote_identifier(&element.defname)));
    }
    if format != ExplainFormat::Text {
        asked.push("FORMAT JSON".to_owned());
    }
    match asked.is_empty() {
        true => "EXPLAIN ".to_owned(),
        false => format!("EXPLAIN ({}) ", asked.join(", ")),
    }
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
