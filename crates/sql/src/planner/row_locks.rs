//! FOR UPDATE and the like of rows that are collected: they are locked where they are.
//!
//! Owns: for which queries that locks the rows that one server would, and the clauses by which a node locks its own.
//! Never: counts the rows of several nodes together; the executor does.
//! Start reading at [`take`].
//!
//! Locks are taken below LIMIT: PostgreSQL locks row by row until there are enough. Of several nodes it is not known
//! before how many each has of the first rows. So the count goes with the lock, and is no longer in the final statement,
//! which has those rows that were locked and no others.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    LimitOption, LockWaitPolicy, Node, SelectStmt, SubLink, SubLinkType, a_const,
};

use super::analysis::{Analysis, ItemId};
use super::context::Context;
use super::gaps::parse_select;
use super::sql_text::{deparse, deparse_expression};
use super::top_rows;
use crate::refusal::Refusal;
use crate::walk;

/// A lock that was taken out of a statement.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    /// The table whose rows it is of, the only one of its query.
    pub(super) item: ItemId,
    /// ` FOR UPDATE SKIP LOCKED`.
    pub(super) clause: String,
    /// Not SKIP LOCKED: rows of others are waited for, or refused.
    pub(super) heeds_others: bool,
    /// NOWAIT.
    pub(super) refuses: bool,
    /// The condition of its query is no longer in the statement: each node decides it.
    pub(super) is_local: bool,
    /// Which rows are enough, if not all.
    pub(super) first: Option<First>,
}

/// The LIMIT and OFFSET of such a query, as SQL, and its order.
#[derive(Clone, Debug)]
pub(super) struct First {
    pub(super) limit: String,
    pub(super) offset: Option<String>,
    /// ` ORDER BY …`, or nothing.
    pub(super) order: String,
    /// ` ORDER BY … LIMIT …` with which no node gives fewer than are needed of it.
    pub(super) of_node: String,
    /// There is no LIMIT: all rows are locked, in an order.
    pub(super) is_all: bool,
}

/// Takes the locks of rows that are collected out of the statement, and the counts that go with them; and of those that
/// are `local`, the conditions of their queries.
///
/// Errors: 0A000 where it is not known which rows PostgreSQL would lock.
pub(super) fn take(
    tree: &mut NodeEnum,
    analysis: &Analysis<'_>,
    collected: &[ItemId],
    local: &[ItemId],
    context: &Context<'_>,
) -> Result<Vec<Lock>, Refusal> {
    let is_locked = |item: &&ItemId| analysis.locked.contains(item);
    let wanted: Vec<_> = collected.iter().filter(is_locked).copied().collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let mut search = Search { analysis, context, wanted: &wanted, local, found: Vec::new() };
    search.visit(tree)?;
    let found = search.found;
    let relation = |item: ItemId| {
        analysis.items[item].distributed().map(|(relation, _)| (&relation.schema, &relation.name))
    };
    for lock in &found {
        let is_alike = |other: &&ItemId| relation(**other) == relation(lock.item);
        // Rows are collected once for all mentions of a table.
        if 1 < collected.iter().filter(is_alike).count() {
            return Err(refusal());
        }
        let is_other = |query: &&super::analysis::Query<'_>| !query.items.contains(&lock.item);
        // Whoever reads the first rows of these only, locks no others.
        if analysis.queries.iter().filter(is_other).any(|query| query.has_limit) {
            return Err(refusal());
        }
    }
    // What is collected beside it would be of another moment.
    let counts = found.iter().any(|lock| lock.first.as_ref().is_some_and(|first| !first.is_all));
    match found.len() == wanted.len() && (!counts || collected.len() == 1) {
        true => Ok(found),
        false => Err(refusal()),
    }
}

fn refusal() -> Refusal {
    Refusal::unsupported(
        "locking rows of several nodes is not supported in this query",
        "The rows are brought together before the query's result is known, so it is not known which of them to \
         lock.",
        "Lock the rows by a query over the one table, with a LIMIT of its own only, or pin the distribution key.",
    )
}

struct Search<'s, 'a> {
    analysis: &'s Analysis<'a>,
    context: &'s Context<'a>,
    wanted: &'s [ItemId],
    local: &'s [ItemId],
    found: Vec<Lock>,
}

impl Search<'_, '_> {
    fn visit(&mut self, node: &mut NodeEnum) -> Result<(), Refusal> {
        if let NodeEnum::SelectStmt(select) = node
            && !select.locking_clause.is_empty()
            && let Some(item) = self.only_table(select)
        {
            let lock = self.lock(select, item)?;
            self.found.push(lock);
        }
        let is_exists = |link: &SubLink| link.sub_link_type() == SubLinkType::ExistsSublink;
        let before = self.found.len();
        let mut result = Ok(());
        walk::write::children(node, &mut |child| {
            if let (Ok(()), Some(node)) = (&result, &mut child.node) {
                result = self.visit(node);
            }
        });
        result?;
        if let NodeEnum::SubLink(link) = node
            && is_exists(link)
            && before < self.found.len()
        {
            // One row is enough for it.
            return Err(refusal());
        }
        Ok(())
    }

    /// The table whose rows are collected, if there is nothing else in its FROM.
    fn only_table(&self, select: &SelectStmt) -> Option<ItemId> {
        let [Node { node: Some(NodeEnum::RangeVar(range)) }] = &select.from_clause[..] else {
            return None;
        };
        let is_it = |item: &&ItemId| {
            0 <= range.location && self.analysis.items[**item].location == range.location
        };
        self.wanted.iter().find(is_it).copied()
    }

    fn lock(&self, select: &mut SelectStmt, item: ItemId) -> Result<Lock, Refusal> {
        let mut levels = self.analysis.queries.iter().filter(|query| query.items.contains(&item));
        let (Some(level), None) = (levels.next(), levels.next()) else { return Err(refusal()) };
        let is_simple = level.items[..] == [item]
            && self.analysis.items[item].linear
            && self.analysis.items[item].sample.is_none()
            && level.set.is_none()
            && !level.recursive
            && !level.has_aggregates
            && !level.has_grouping
            && !level.has_distinct
            && !level.has_windows
            && !level.has_row_makers
            && select.locking_clause.len() == 1;
        if !is_simple {
            return Err(refusal());
        }
        let (clause, policy) = take_clause(select)?;
        let first = match policy == LockWaitPolicy::LockWaitBlock {
            true => self.all_in_order(select, item)?,
            false => None,
        };
        let first = first.map_or_else(|| self.first(select, item), |all| Ok(Some(all)))?;
        if first.is_some() {
            select.limit_count = None;
            select.limit_offset = None;
            select.limit_option = LimitOption::Default.into();
        }
        let is_local = self.local.contains(&item);
        if is_local {
            select.where_clause = None;
        }
        Ok(Lock {
            item,
            clause,
            is_local,
            heeds_others: policy != LockWaitPolicy::LockWaitSkip,
            refuses: policy == LockWaitPolicy::LockWaitError,
            first,
        })
    }

    /// ORDER BY without LIMIT: sessions that lock in one order do not meet in a circle.
    fn all_in_order(&self, select: &SelectStmt, item: ItemId) -> Result<Option<First>, Refusal> {
        if !select.limit_count.as_deref().is_none_or(is_null)
            || select.limit_offset.is_some()
            || select.sort_clause.is_empty()
        {
            return Ok(None);
        }
        let order = top_rows::order(select, item, self.analysis, self.context);
        let Some(order) = order.filter(|order| !order.is_empty()) else { return Ok(None) };
        let limit = i64::MAX.to_string();
        Ok(Some(First {
            offset: None,
            of_node: top_rows::clause(order.clone(), &limit)?,
            order: top_rows::order_clause(order)?,
            limit,
            is_all: true,
        }))
    }

    fn first(&self, select: &SelectStmt, item: ItemId) -> Result<Option<First>, Refusal> {
        let Some(limit) = select.limit_count.as_deref().filter(|limit| !is_null(limit)) else {
            // Rows that OFFSET skips are locked.
            return Ok(None);
        };
        if select.limit_option() == LimitOption::WithTies {
            return Err(refusal());
        }
        let (count, order) =
            (top_rows::count(select)?, top_rows::order(select, item, self.analysis, self.context));
        let offset = select.limit_offset.as_deref();
        // What is wrong with these numbers, the executor says; and a sum may be too large.
        let is_known = |node: Option<&Node>| node.is_none_or(top_rows::is_number);
        let are_known = is_known(Some(limit)) && is_known(offset);
        let count = count.or_else(|| are_known.then(|| i64::MAX.to_string()));
        let (Some(count), Some(order)) = (count, order) else { return Err(refusal()) };
        Ok(Some(First {
            limit: deparse_expression(limit)?,
            offset: offset.map(deparse_expression).transpose()?,
            of_node: top_rows::clause(order.clone(), &count)?,
            order: top_rows::order_clause(order)?,
            is_all: false,
        }))
    }
}

impl Lock {
    /// The clause that locks rows of this table alone.
    pub(super) fn clause_of(&self, alias: &str) -> String {
        let ends = [" SKIP LOCKED", " NOWAIT", ""];
        let end = ends.into_iter().find(|end| self.clause.ends_with(end)).unwrap_or_default();
        let strength = self.clause.strip_suffix(end).unwrap_or(&self.clause);
        format!("{strength} OF {alias}{end}")
    }
}

/// Takes ` FOR UPDATE …` out, without the names of tables.
fn take_clause(select: &mut SelectStmt) -> Result<(String, LockWaitPolicy), Refusal> {
    let mut bare = parse_select("SELECT 1 FROM t FOR UPDATE")?;
    bare.locking_clause = std::mem::take(&mut select.locking_clause);
    let mut policy = LockWaitPolicy::LockWaitBlock;
    if let Some(NodeEnum::LockingClause(lock)) = &mut bare.locking_clause[0].node {
        lock.locked_rels.clear();
        policy = lock.wait_policy();
    }
    let text = deparse(&NodeEnum::SelectStmt(bare))?;
    let at = text.find(" FOR ").ok_or_else(refusal)?;
    Ok((text[at..].to_owned(), policy))
}

/// LIMIT ALL.
fn is_null(node: &Node) -> bool {
    match &node.node {
        Some(NodeEnum::AConst(of)) => of.isnull && !matches!(of.val, Some(a_const::Val::Ival(_))),
        _ => false,
    }
}
