//! DO and CALL: code whose statements the gateway cannot see.
//!
//! Owns: the decision whether such code may run on node 1 alone.
//! Never: runs a piece of it elsewhere. The decision is by the words of the code; what the code
//! builds at run time (EXECUTE) is beyond it.

use std::collections::HashSet;

use pg_query::protobuf::{CallStmt, DoStmt};

use super::super::{Context, functions};
use super::{at_home, option, option_text};
use crate::catalog::{Placement, RelationKind};
use crate::plan::Planned;
use crate::refusal::Refusal;

/// Functions whose value or effect must come from one place for the whole cluster. Node 1 owns the
/// sequences, but code that draws from them also has somewhere to put the values.
const SEQUENCE_FUNCTIONS: [&str; 4] = ["nextval", "setval", "currval", "lastval"];
const WRITING_WORDS: [&str; 6] = ["insert", "update", "delete", "truncate", "merge", "copy"];

pub(super) fn plan_do(code: &DoStmt, context: &Context<'_>) -> Result<Planned, Refusal> {
    let body = option(&code.args, "as").and_then(option_text).unwrap_or_default();
    if !context.catalog.is_solo()
        && let Some(reason) = why_not_on_one_node(&body, context)
    {
        return Err(Refusal::unsupported(
            "this DO block cannot run on one node",
            format!("Its code runs inside node 1, and {reason}."),
            "Send the statements of the block through Tutti one by one.",
        ));
    }
    Ok(at_home("the block's code runs inside node 1 and touches nothing that is spread"))
}

pub(super) fn plan_call(call: &CallStmt, context: &Context<'_>) -> Result<Planned, Refusal> {
    let (schema, name) = call.funccall.as_ref().map_or((None, ""), |call| functions::name_of(call));
    let procedure = context.catalog.function(context.scope, schema, name);
    if !context.catalog.is_solo() && procedure.is_some_and(|found| found.needs_cluster) {
        return Err(Refusal::unsupported(
            format!("procedure {name} cannot run on one node"),
            "Its code runs inside node 1, and it uses a distributed table or a sequence, or writes \
             a replicated table.",
            "Send the statements of the procedure through Tutti one by one.",
        ));
    }
    Ok(at_home("the procedure's code runs inside node 1 and touches nothing that is spread"))
}

/// What in `body` a single node cannot do rightly, as a clause.
fn why_not_on_one_node(body: &str, context: &Context<'_>) -> Option<String> {
    let words = words_of(body);
    if let Some(name) = SEQUENCE_FUNCTIONS.iter().find(|name| words.contains(**name)) {
        return Some(format!("it calls {name}"));
    }
    let writes = WRITING_WORDS.iter().any(|word| words.contains(*word));
    for relation in context.catalog.relations.values().flat_map(|tables| tables.values()) {
        if !words.contains(&relation.name.to_lowercase()) {
            continue;
        }
        let name = &relation.name;
        match (&relation.kind, &relation.placement) {
            (_, placement) if placement.is_distributed() => {
                return Some(format!("it names the distributed table {name}"));
            }
            (_, Placement::Replicated) if writes => {
                return Some(format!("it may write the replicated table {name}"));
            }
            (RelationKind::View { definition }, _) => {
                if let Some(reason) = view_reason(definition, writes, context) {
                    return Some(format!("it names the view {name}: {reason}"));
                }
            }
            _ => {}
        }
    }
    let needs_cluster =
        context.catalog.functions.values().flat_map(|functions| functions.iter()).find(
            |(name, function)| function.needs_cluster && words.contains(&name.to_lowercase()),
        );
    needs_cluster.map(|(name, _)| format!("it calls {name}, which no single node can run rightly"))
}

/// As [`why_not_on_one_node`] for the tables of a view's query. Views over views are not followed:
/// any view below a view counts as distributed.
fn view_reason(definition: &str, writes: bool, context: &Context<'_>) -> Option<String> {
    let words = words_of(definition);
    let tables = context.catalog.relations.values().flat_map(|tables| tables.values());
    tables
        .filter(|relation| words.contains(&relation.name.to_lowercase()))
        .find(|relation| {
            relation.placement.is_distributed()
                || matches!(relation.kind, RelationKind::View { .. })
                || writes && relation.placement == Placement::Replicated
        })
        .map(|relation| format!("its query reads {}", relation.name))
}

/// The words of a piece of code, in lower case.
fn words_of(code: &str) -> HashSet<String> {
    code.split(|character: char| !(character.is_alphanumeric() || "_$".contains(character)))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}
