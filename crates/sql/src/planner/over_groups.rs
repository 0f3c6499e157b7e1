//! Queries over groups: subqueries of FROM, of WITH, and operands of UNION and the like, are answered in parts, and the
//! final statement is the client's own with what puts these together in their places.
//!
//! Owns: which subqueries these are, and that computing them first cannot be told from computing them with the statement.
//! Never: splits one ([`partial::of`] does).
//! Start reading at [`of`].
//!
//! `SELECT avg(n) FROM (SELECT g, count(*) AS n FROM t GROUP BY g) AS s` becomes `SELECT avg(n) FROM (<the final statement of
//! the subquery>) AS s`.

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, RangeSubselect, SelectStmt};

use super::analysis::Analysis;
use super::cannot_fail::CannotFail;
use super::context::Context;
use super::gaps::{cut, gap, parse_select, refuse_marked};
use super::locality::home_reason;
use super::sql_text::deparse;
use super::syntax::{WithNames, contains, is_star_output, string};
use super::time_gaps::TimeGaps;
use super::views::analyse_select;
use super::{mentions, partial};
use crate::plan::{Partial, Piece, Template};
use crate::refusal::Refusal;

/// Stands for the first subquery until the statement is text, and each number below it for a further one. No column has
/// such a number.
const MARK: usize = usize::MAX;

/// The statement in parts, where all that is spread is in subqueries that can be.
///
/// `tree` has the locations of `analysis`.
pub(super) fn of(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Option<Partial>, Refusal> {
    if context.opaque.is_some()
        || analysis.time_in_view.is_some()
        || !analysis.system_columns.is_empty()
        || !analysis.locked.is_empty()
        || refuse_marked(tree).is_err()
    {
        return Ok(None);
    }
    let mut search = Search { context, with_names: WithNames::of(tree), found: Vec::new() };
    let mut tree = tree.clone();
    let NodeEnum::SelectStmt(select) = &mut tree else { return Ok(None) };
    search.look(select, true)?;
    let rest = mentions::of(&tree, context);
    let has_moments = 1 < search.found.len() || !rest.relations.is_empty();
    // What else is read is read by the final statement.
    if rest.distributed.is_some() || (context.collects_replicated && has_moments) {
        return Ok(None);
    }
    let mut tree = Node { node: Some(tree) };
    TimeGaps { analysis: Some(analysis), context }.put(&mut tree)?;
    let Some(tree) = &tree.node else { return Ok(None) };
    let Some(statement) = with_queries(cut(&deparse(tree)?)?, &search.found) else {
        return Ok(None);
    };
    let mut found = search.found.into_iter();
    let first = found.next();
    Ok(first.map(|first| Partial { statement, more: found.collect(), ..first }))
}

/// `statement` with the final statement of each of `found` in the place of `SELECT <mark>`; `None` if one has no place.
fn with_queries(statement: Template, found: &[Partial]) -> Option<Template> {
    let mut pieces = Vec::new();
    let mut put = 0;
    for piece in statement.0 {
        match (piece, pieces.last_mut()) {
            (Piece::Rows(mark), Some(Piece::Sql(before))) => {
                let index = MARK - mark;
                let kept = before.strip_suffix("SELECT ")?.len();
                before.truncate(kept);
                let gaps = found.get(..index)?.iter().map(|before| before.expected.len()).sum();
                // It may be an operand of UNION.
                pieces.extend(found.get(index)?.statement.behind(gaps).wrap("(", ")").0);
                put += 1;
            }
            (Piece::Rows(_), _) => return None,
            (piece, _) => pieces.push(piece),
        }
    }
    (put == found.len()).then_some(Template(pieces))
}

struct Search<'a> {
    context: &'a Context<'a>,
    with_names: WithNames,
    /// The subqueries in parts, in whose places there are marks.
    found: Vec<Partial>,
}

impl Search<'_> {
    /// Looks at the queries of which `select` is made. `is_total`: PostgreSQL computes all rows and values of it.
    fn look(&mut self, select: &mut SelectStmt, is_total: bool) -> Result<(), Refusal> {
        if select.with_clause.as_ref().is_some_and(|with| with.recursive) {
            return Ok(());
        }
        for cte in select.with_clause.iter_mut().flat_map(|with| &mut with.ctes) {
            if let Some(NodeEnum::CommonTableExpr(cte)) = &mut cte.node
                && let Some(query) = cte.ctequery.as_deref_mut()
            {
                // It may not be asked for, or for its first rows only.
                self.put_in_parts(query, false)?;
            }
        }
        let all_rows = select.limit_count.is_none() && select.limit_offset.is_none();
        for arm in [&mut select.larg, &mut select.rarg].into_iter().flatten() {
            let mut query = Node { node: Some(NodeEnum::SelectStmt(std::mem::take(arm))) };
            self.put_in_parts(&mut query, is_total && all_rows)?;
            if let Some(NodeEnum::SelectStmt(query)) = query.node {
                *arm = query;
            }
        }
        let is_total = is_total && asks_for_all(select);
        let mut queries = Vec::new();
        for item in &mut select.from_clause {
            note_subqueries(item, is_total, &mut queries);
        }
        for (query, is_total) in queries {
            self.put_in_parts(query, is_total)?;
        }
        Ok(())
    }

    /// Puts a query that reads what is spread in parts, or looks into it.
    fn put_in_parts(&mut self, query: &mut Node, is_total: bool) -> Result<(), Refusal> {
        let tree = query.node.as_ref();
        if tree.is_none_or(|tree| mentions::of(tree, self.context).distributed.is_none()) {
            return Ok(());
        }
        if let Some(partial) = self.in_parts(query, is_total)? {
            let mark = parse_select(&format!("SELECT {}", gap(MARK - self.found.len())))?;
            self.found.push(partial);
            query.node = Some(NodeEnum::SelectStmt(mark));
        } else if let Some(NodeEnum::SelectStmt(inner)) = &mut query.node {
            self.look(inner, is_total)?;
        }
        Ok(())
    }

    /// The query in parts, if it means by itself what it means where it stands, and may be computed first.
    fn in_parts(&self, query: &Node, is_total: bool) -> Result<Option<Partial>, Refusal> {
        let Some(tree @ NodeEnum::SelectStmt(select)) = &query.node else { return Ok(None) };
        if self.with_names.are_read_in(tree) || !is_reduced(select) || is_typed_around(select) {
            return Ok(None);
        }
        // Read again, so that every node has a location of its own.
        let tree = NodeEnum::SelectStmt(parse_select(&deparse(tree)?)?);
        let NodeEnum::SelectStmt(select) = &tree else { return Ok(None) };
        // A name that it would find around it is nobody's.
        let Ok(analysis) = analyse_select(select, self.context) else { return Ok(None) };
        if analysis.loose_star
            || !analysis.loose_names.is_empty()
            || analysis.outer_aggregate
            || home_reason(&analysis).is_some()
            || analysis.functions.may_write.is_some()
            || analysis.functions.volatile.is_some()
            || !analysis.locked.is_empty()
            || !analysis.modifications.is_empty()
            || analysis.reads_returned()
        {
            return Ok(None);
        }
        let level = &analysis.queries[0];
        let is_grouped = level.has_aggregates || level.has_grouping || level.has_distinct;
        if !is_grouped && select.limit_count.is_none() {
            return Ok(None);
        }
        let cannot_fail = CannotFail { analysis: &analysis, context: self.context };
        let may_fail = !(cannot_fail.query(select) && cannot_fail.groups(select));
        if may_fail && !is_total {
            return Ok(None);
        }
        partial::of(&tree, &analysis, &[], self.context)
    }
}

/// The subqueries of an item of FROM, and whether all rows and values of each are asked for.
fn note_subqueries<'n>(
    item: &'n mut Node,
    is_total: bool,
    queries: &mut Vec<(&'n mut Node, bool)>,
) {
    match &mut item.node {
        Some(NodeEnum::RangeSubselect(of)) if !of.lateral => {
            if let Some(query) = of.subquery.as_deref_mut() {
                queries.push((query, is_total));
            }
        }
        Some(NodeEnum::JoinExpr(join)) => {
            for side in [&mut join.larg, &mut join.rarg].into_iter().flatten() {
                note_subqueries(side, false, queries);
            }
        }
        _ => (),
    }
}

/// Whether fewer rows than there are may come of it.
fn is_reduced(select: &SelectStmt) -> bool {
    let aggregates = |target: &Node| match &target.node {
        Some(target) => contains(target, &|of| matches!(of, NodeEnum::FuncCall(_))),
        None => false,
    };
    !select.group_clause.is_empty()
        || !select.distinct_clause.is_empty()
        || select.limit_count.is_some()
        || select.having_clause.is_some()
        || select.target_list.iter().any(aggregates)
}

/// Whether a literal is among what is distinct: of which type it is may depend on what is around the query.
fn is_typed_around(select: &SelectStmt) -> bool {
    let is_literal = |target: &Node| match &target.node {
        Some(NodeEnum::ResTarget(target)) => {
            matches!(target.val.as_ref().and_then(|of| of.node.as_ref()), Some(NodeEnum::AConst(_)))
        }
        _ => false,
    };
    !select.distinct_clause.is_empty() && select.target_list.iter().any(is_literal)
}

/// Whether PostgreSQL computes all rows and values of the one subquery that `select` is over, whatever these are: nothing
/// chooses among them before.
fn asks_for_all(select: &SelectStmt) -> bool {
    let [Node { node: Some(NodeEnum::RangeSubselect(of)) }] = &select.from_clause[..] else {
        return false;
    };
    let is_whole = select.where_clause.is_none()
        && select.with_clause.is_none()
        && select.having_clause.is_none()
        && select.limit_count.is_none()
        && select.limit_offset.is_none();
    is_whole && asks_for_all_columns(select, of)
}

fn asks_for_all_columns(select: &SelectStmt, of: &RangeSubselect) -> bool {
    if let [target] = &select.target_list[..]
        && is_star_output(target)
    {
        return true;
    }
    let Some(alias) = &of.alias else { return false };
    let Some(NodeEnum::SelectStmt(inner)) = of.subquery.as_ref().and_then(|of| of.node.as_ref())
    else {
        return false;
    };
    let mut inner = inner;
    while let Some(first) = &inner.larg {
        inner = first;
    }
    let names: Vec<_> = alias.colnames.iter().filter_map(string).collect();
    !names.is_empty()
        && names.len() == inner.target_list.len()
        && !inner.target_list.iter().any(is_star_output)
        && names.iter().all(|name| {
            select.target_list.iter().any(|target| {
                target.node.as_ref().is_some_and(|target| {
                    contains(target, &|of| match of {
                        NodeEnum::ColumnRef(reference) => {
                            reference.fields.last().and_then(string) == Some(*name)
                        }
                        _ => false,
                    })
                })
            })
        })
}

#[cfg(test)]
mod tests;
