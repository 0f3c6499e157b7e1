//! What a statement's conditions say of the rows of one table: those that do not meet it need not be collected.
//!
//! Owns: which conditions, and which parts of them, each node can check of its own rows, as text.
//! Never: leaves a row out that the statement would find (`own_rows.rs` says what is the same wherever it is computed).
//! Start reading at [`of_own_rows`].

use pg_query::NodeEnum;
use pg_query::protobuf::{BoolExprType, ColumnRef, Node, String as PgString};

use super::analysis::{Analysis, ColumnUse, ItemId};
use super::cannot_fail::CannotFail;
use super::context::Context;
use super::guards;
use super::own_rows::{concerns_only, split, unqualify};
use super::sql_text::deparse_expression;
use super::time_gaps::TimeGaps;
use crate::refusal::Refusal;
use crate::walk;

/// How conditions are said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said<'s> {
    /// The current time becomes the final statement's, to the microsecond.
    pub(super) literal_time: bool,
    /// The table is called so, and its columns as they are in the catalog: not as this mention of it calls them. OR joins
    /// what several mentions of it demand.
    pub(super) alias: Option<&'s str>,
}

/// The conditions of the table's own query level that concern nothing but its rows. With `all` a
/// condition that cannot be moved is an error.
pub(super) fn of_own_rows(
    item: ItemId,
    analysis: &Analysis<'_>,
    all: bool,
    said: Said<'_>,
    context: &Context<'_>,
) -> Result<Vec<String>, Refusal> {
    let Some(id) = analysis.queries.iter().position(|query| query.items.contains(&item)) else {
        return Ok(Vec::new());
    };
    let level = &analysis.queries[id];
    let mut conjuncts = Vec::new();
    // Of others, an outer join has made rows of NULLs, which may meet it.
    if let Some(condition) = level.condition.filter(|_| analysis.items[item].linear || all) {
        split(condition, &mut conjuncts);
    }
    for (condition, items) in &level.join_conditions {
        if items.contains(&item) {
            split(condition, &mut conjuncts);
        }
    }
    let said_there = |conjunct: &Node| {
        let mut conjunct = conjunct.clone();
        if said.literal_time {
            TimeGaps { analysis: Some(analysis), context }.put(&mut conjunct)?;
        }
        let is_of_rows = concerns_only(&conjunct, item, analysis, context);
        Ok((conjunct, is_of_rows))
    };
    let there = conjuncts.iter().map(|conjunct| said_there(conjunct));
    let there = there.collect::<Result<Vec<_>, Refusal>>()?;
    // PostgreSQL may never come to what it computes only where a row, CASE, or another condition lets it.
    let cannot_fail = CannotFail { analysis, context };
    let is_checked = |condition: &Node| {
        let mut both = conjuncts.iter().zip(&there);
        both.any(|(conjunct, (_, is_of_rows))| *is_of_rows && std::ptr::eq(*conjunct, condition))
    };
    let is_guarded = !all && guards::of(item, id, analysis, &is_checked);
    let reader = Reader { item, analysis, said, context };
    let (mut conditions, mut that_may_fail) = (Vec::new(), Vec::new());
    for (conjunct, is_of_rows) in &there {
        let may_fail = said.alias.is_some() && !all && !cannot_fail.holds(conjunct);
        if *is_of_rows && may_fail {
            that_may_fail.push(conjunct);
        } else if *is_of_rows && (all || !is_guarded || cannot_fail.holds(conjunct)) {
            conditions.push(reader.text(conjunct)?);
        } else if all {
            return Err(Refusal::unsupported(
                "locking rows of several nodes is not supported with this condition",
                "It must be checked where the rows are, before they are locked.",
                "Use conditions on the table's own columns without subqueries or volatile functions.",
            ));
        } else if let Some(part) = reader.part(conjunct)? {
            conditions.push(part);
        }
    }
    // Within OR nothing guards another: PostgreSQL checks there what is written first, goes on behind a NULL, and takes
    // what several mentions demand alike out of it.
    if let [only] = that_may_fail[..]
        && conditions.is_empty()
        && !is_guarded
        && !matches!(only.node, Some(NodeEnum::BoolExpr(_)))
    {
        conditions.push(reader.text(only)?);
    }
    Ok(conditions)
}

struct Reader<'r, 'a> {
    item: ItemId,
    analysis: &'r Analysis<'a>,
    said: Said<'r>,
    context: &'r Context<'r>,
}

impl Reader<'_, '_> {
    /// A condition that concerns nothing but the table's rows.
    fn text(&self, condition: &Node) -> Result<String, Refusal> {
        let mut moved = condition.clone();
        if let (Some(alias), Some(node)) = (self.said.alias, &mut moved.node) {
            self.name_by_catalog(node, alias);
        }
        if let Some(node) = &mut moved.node {
            unqualify(node);
        }
        Ok(format!("({})", deparse_expression(&moved)?))
    }

    /// What a condition demands of the table's rows, where OR joins it with what it demands of others: of
    /// `(a.x = 1 AND b.y = 1) OR (a.x = 2 AND b.y = 2)` it is `a.x = 1 OR a.x = 2`.
    ///
    /// What was guarded by a condition on others is not any more, so only of what cannot fail.
    fn part(&self, condition: &Node) -> Result<Option<String>, Refusal> {
        let cannot_fail = CannotFail { analysis: self.analysis, context: self.context };
        if concerns_only(condition, self.item, self.analysis, self.context)
            && cannot_fail.holds(condition)
        {
            return self.text(condition).map(Some);
        }
        let Some(NodeEnum::BoolExpr(of)) = &condition.node else { return Ok(None) };
        let parts = of.args.iter().map(|argument| self.part(argument));
        let parts: Vec<_> = parts.collect::<Result<_, _>>()?;
        Ok(match of.boolop() {
            BoolExprType::OrExpr => {
                let parts = parts.into_iter().collect::<Option<Vec<_>>>();
                parts.map(|parts| format!("({})", parts.join(" OR ")))
            }
            BoolExprType::AndExpr => {
                let parts: Vec<_> = parts.into_iter().flatten().collect();
                (!parts.is_empty()).then(|| format!("({})", parts.join(" AND ")))
            }
            _ => None,
        })
    }

    fn name_by_catalog(&self, node: &mut NodeEnum, alias: &str) {
        if let NodeEnum::ColumnRef(reference) = node {
            let at = |of: &&ColumnUse| of.item == self.item && of.location == reference.location;
            let column = self.analysis.uses.iter().find(at).and_then(|of| of.column);
            let relation = self.analysis.items[self.item].relation();
            if let (Some(column), Some(relation)) = (column, relation) {
                let names = [alias, &relation.columns[column].name];
                let name = |name: &str| Node {
                    node: Some(NodeEnum::String(PgString { sval: name.to_owned() })),
                };
                let fields = names.into_iter().map(name).collect();
                *reference = ColumnRef { fields, location: reference.location };
            }
            return;
        }
        walk::write::children(node, &mut |child| {
            if let Some(node) = &mut child.node {
                self.name_by_catalog(node, alias);
            }
        });
    }
}

/// The whole WHERE of a table's query level.
pub(super) fn whole(
    item: ItemId,
    analysis: &Analysis<'_>,
    said: Said<'_>,
    context: &Context<'_>,
) -> Result<String, Refusal> {
    let level = analysis.queries.iter().find(|query| query.items.contains(&item));
    let Some(condition) = level.and_then(|level| level.condition) else { return Ok(String::new()) };
    let mut condition = condition.clone();
    if said.literal_time {
        TimeGaps { analysis: Some(analysis), context }.put(&mut condition)?;
    }
    Ok(format!("({})", deparse_expression(&condition)?))
}
