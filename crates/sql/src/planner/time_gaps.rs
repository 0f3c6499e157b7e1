//! The current time in a statement that several nodes take part in: all must have one.
//!
//! Owns: what in a statement gives the current time (`now()`, `CURRENT_DATE`, `'today'::date`, `column < 'now'`), and
//! that its outputs keep their names where a literal comes in its place.
//! Never: reads a clock; the executor asks node 1 before the statement is run.
//! Start reading at [`TimeGaps::put`].

use pg_query::NodeEnum;
use pg_query::protobuf::{AConst, Alias, MergeWhenClause, Node, RangeFunction, TypeCast, a_const};

use super::alike::is_of_time;
use super::analysis::{Analysis, Source};
use super::context::Context;
use super::current_time::{current_times, names_current_time};
use super::functions::{is_time, is_time_call};
use super::gaps::{expression, gap_of_time, output_name};
use super::output_names;
use super::sql_text::deparse_expression;
use super::syntax::{name_of, string};
use super::time_types::{TimeTypes, type_of};
use crate::built_in_types;
use crate::catalog::Relation;
use crate::refusal::Refusal;
use crate::walk;

/// Puts gaps in place of the current time.
#[derive(Clone, Copy)]
pub(super) struct TimeGaps<'t, 'a> {
    /// What columns mean; without it, literals beside them are left alone.
    pub(super) analysis: Option<&'t Analysis<'a>>,
    pub(super) context: &'t Context<'a>,
}

impl TimeGaps<'_, '_> {
    pub(super) fn put(self, node: &mut Node) -> Result<(), Refusal> {
        if let Some(gap) = self.gap(node)? {
            *node = gap;
            return Ok(());
        }
        if let (Some(analysis), Some(of)) = (self.analysis, &mut node.node) {
            TimeTypes { analysis, context: self.context }.tell_literals(of, &mut literal_gap)?;
        }
        if let (Some(analysis), Some(NodeEnum::UpdateStmt(update))) =
            (self.analysis, &mut node.node)
            && let Some(relation) = target(analysis)
        {
            self.put_assigned(&mut update.target_list, relation)?;
        }
        if let (Some(analysis), Some(NodeEnum::MergeWhenClause(clause))) =
            (self.analysis, &mut node.node)
            && let Some(relation) = target(analysis)
        {
            for (value, type_name) in types_inserted(clause, relation) {
                if let (Some(value), Some(type_name)) = (clause.values.get_mut(value), type_name) {
                    literal_gap(value, &type_name)?;
                }
            }
            self.put_assigned(&mut clause.target_list, relation)?;
        }
        let Some(of) = &mut node.node else { return Ok(()) };
        let name = match of {
            NodeEnum::ResTarget(target) => output_name(target),
            NodeEnum::RangeFunction(function) => {
                self.keep_alias(function);
                None
            }
            _ => None,
        };
        let mut result = Ok(());
        walk::write::children(of, &mut |child| {
            if result.is_ok() {
                result = self.put(child);
            }
        });
        if let NodeEnum::ResTarget(target) = of
            && let Some(name) = name
            && output_name(target).as_ref() != Some(&name)
        {
            target.name = name;
        }
        result
    }

    /// What stands for the current time, where a node gives it.
    fn gap(self, node: &Node) -> Result<Option<Node>, Refusal> {
        let (sql, type_name) = match &node.node {
            Some(NodeEnum::FuncCall(call)) if is_time_call(call, self.context) => {
                let sql = format!("pg_catalog.{}()", name_of(call).1);
                (sql, "pg_catalog.timestamptz".to_owned())
            }
            Some(NodeEnum::SqlvalueFunction(function)) if is_time(function) => {
                (deparse_expression(node)?, type_of(function))
            }
            Some(NodeEnum::TypeCast(cast)) if is_time_literal(cast) => {
                let mut gap = cast.clone();
                gap.arg = Some(Box::new(expression(&gap_of_time(&deparse_expression(node)?))?));
                return Ok(Some(Node { node: Some(NodeEnum::TypeCast(gap)) }));
            }
            _ => return Ok(None),
        };
        expression(&format!("{}::{type_name}", gap_of_time(&sql))).map(Some)
    }

    /// Literals that are assigned to columns of dates and times of this relation are such, too.
    pub(super) fn put_assigned(
        self,
        targets: &mut [Node],
        relation: &Relation,
    ) -> Result<(), Refusal> {
        let names: Vec<_> = targets
            .iter()
            .map(|target| match &target.node {
                Some(NodeEnum::ResTarget(target)) if target.indirection.is_empty() => {
                    type_assigned(&target.name, relation)
                }
                _ => None,
            })
            .collect();
        for place in 0..targets.len() {
            let Some(NodeEnum::ResTarget(target)) = &mut targets[place].node else { continue };
            let Some(value) = target.val.as_deref_mut() else { continue };
            match &mut value.node {
                // `(a, b) = (1, 2)`: each target has all of the row, and says which of it is its own.
                Some(NodeEnum::MultiAssignRef(of)) => {
                    let first = place + 1 - usize::try_from(of.colno).unwrap_or(1).min(place + 1);
                    let row = of.source.as_deref_mut().and_then(|source| source.node.as_mut());
                    let Some(NodeEnum::RowExpr(row)) = row else { continue };
                    for (value, type_name) in row.args.iter_mut().zip(&names[first..]) {
                        if let Some(type_name) = type_name {
                            literal_gap(value, type_name)?;
                        }
                    }
                }
                _ => {
                    if let Some(type_name) = &names[place] {
                        literal_gap(value, type_name)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// `FROM now()` is called `now`, and its column too.
    fn keep_alias(self, function: &mut RangeFunction) {
        if function.alias.is_some() {
            return;
        }
        let [only] = &function.functions[..] else { return };
        let Some(NodeEnum::List(list)) = &only.node else { return };
        let Some(call) = list.items.first().filter(|call| self.gives_time(call)) else { return };
        let Some(name) = call.node.as_ref().map(output_names::figure) else { return };
        function.alias = Some(Alias { aliasname: name.to_owned(), colnames: Vec::new() });
    }

    fn gives_time(self, node: &Node) -> bool {
        match &node.node {
            Some(NodeEnum::FuncCall(call)) => is_time_call(call, self.context),
            Some(NodeEnum::SqlvalueFunction(function)) => is_time(function),
            _ => false,
        }
    }
}

/// Whether a statement has literals that [`TimeGaps`] would replace.
pub(super) fn has_literals(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<bool, Refusal> {
    let before = current_times(tree);
    Ok(before != 0 && current_times(&with_gaps(tree, analysis, context)?) < before)
}

fn with_gaps(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<NodeEnum, Refusal> {
    let mut node = Node { node: Some(tree.clone()) };
    TimeGaps { analysis: Some(analysis), context }.put(&mut node)?;
    node.node.ok_or_else(|| Refusal::postgres("XX000", "a statement is gone"))
}

/// Refuses a statement of several nodes in which a literal may mean the current time, of which is not known what type it
/// has: each node would read it as the time at which its own transaction began.
pub(super) fn refuse_untold(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    if current_times(tree) == 0 {
        return Ok(());
    }
    let tree = with_gaps(tree, analysis, context)?;
    match (TimeTypes { analysis, context }).untold(&tree) {
        None => Ok(()),
        Some(text) => Err(Refusal::unsupported(
            format!("'{text}' may be another time on each node here"),
            "Several nodes take part, and each would read it as the time at which its own transaction began.",
            format!("Write now() or CURRENT_DATE, or '{text}'::text if it is a text."),
        )),
    }
}

/// For each value that a clause of MERGE inserts, by its place, the type of its column if it is a date or time.
fn types_inserted(clause: &MergeWhenClause, relation: &Relation) -> Vec<(usize, Option<String>)> {
    let name = |at: usize| match clause.target_list.get(at).map(|target| &target.node) {
        Some(Some(NodeEnum::ResTarget(target))) => Some(target.name.as_str()),
        Some(_) => None,
        None => relation.columns.get(at).map(|column| column.name.as_str()),
    };
    let of = |at| (at, name(at).and_then(|name| type_assigned(name, relation)));
    (0..clause.values.len()).map(of).collect()
}

/// Whether it is a literal of a date or time that means the current one.
fn is_time_literal(cast: &TypeCast) -> bool {
    let type_name = cast.type_name.as_ref();
    let name = type_name.and_then(|name| string(name.names.last()?));
    name.is_some_and(built_in_types::is_time)
        && type_name.is_some_and(|name| name.array_bounds.is_empty())
        && cast.arg.as_deref().is_some_and(|argument| match &argument.node {
            Some(NodeEnum::AConst(constant)) => names_time(constant),
            _ => false,
        })
}

fn names_time(constant: &AConst) -> bool {
    matches!(&constant.val, Some(a_const::Val::Sval(text)) if names_current_time(&text.sval))
}

/// The table that a statement changes.
fn target<'a>(analysis: &Analysis<'a>) -> Option<&'a Relation> {
    match analysis.items[analysis.target?].source {
        Source::Table { relation, .. } => Some(relation),
        Source::Query(_) | Source::Opaque => None,
    }
}

/// The type of the date or time that a column has which is assigned to.
fn type_assigned(name: &str, relation: &Relation) -> Option<String> {
    let column = relation.columns.iter().find(|column| column.name == name)?;
    is_of_time(column).then(|| column.type_name.clone())
}

/// A literal that means the current time is one of this type.
fn literal_gap(node: &mut Node, type_name: &str) -> Result<(), Refusal> {
    if let Some(NodeEnum::AConst(constant)) = &node.node
        && names_time(constant)
    {
        let sql = format!("CAST({} AS {type_name})", deparse_expression(node)?);
        *node = expression(&format!("CAST({} AS {type_name})", gap_of_time(&sql)))?;
    }
    Ok(())
}
