//! Scalar subqueries that depend on nothing around them: computed first, and values in the statement that is then planned.
//!
//! Owns: which subqueries these are, and the statement with gaps in their places.
//! Never: chooses whether that is done; it is one of a gathered read's ways.
//! Start reading at [`add`].
//!
//! PostgreSQL computes such a subquery once, when a row first asks for it (an InitPlan, `optimizer/plan/subselect.c`). With
//! its value in its place the statement often needs no rows of other nodes any more, or even a single node. Here it is
//! computed also where no row would ask for it; so only those count that cannot fail ([`super::cannot_fail`]).

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, SelectStmt, SubLink, SubLinkType};

use super::cannot_fail::CannotFail;
use super::context::Context;
use super::functions::volatility;
use super::gaps::{cut, expression, gap, output_name, refuse_marked};
use super::mentions;
use super::query::plan_select;
use super::sql_text::deparse;
use super::syntax::{WithNames, bare_name, contains, has_subquery, is_star_output};
use super::views::analyse_select;
use crate::catalog::Volatility;
use crate::plan::{Access, ComputedFirst, DataPlan, Gather, Plan, Planned, ScalarSubquery};
use crate::refusal::Refusal;
use crate::walk;

/// More such subqueries than this are not looked at.
const SUBQUERIES_MAX: usize = 16;

/// Adds this way to the plan of `select`, if it is a gathered read and has such subqueries.
pub(super) fn add(
    planned: &mut Planned,
    select: &SelectStmt,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    let Some(gather) = gathered_read(planned) else { return Ok(()) };
    if gather.partial.is_some() || context.collects_replicated || context.opaque.is_some() {
        return Ok(());
    }
    let mut tree = NodeEnum::SelectStmt(Box::new(select.clone()));
    if refuse_marked(&tree).is_err() || locks(&tree) {
        return Ok(());
    }
    let mut search = Search { context, with_names: WithNames::of(&tree), found: Vec::new() };
    search.look(&mut tree, Place::Elsewhere)?;
    if !search.found.is_empty() {
        let rest = cut(&deparse(&tree)?)?;
        gather.first = Some(Box::new(ComputedFirst { subqueries: search.found, rest }));
    }
    Ok(())
}

fn gathered_read(planned: &mut Planned) -> Option<&mut Gather> {
    match &mut planned.plan {
        Plan::Data(DataPlan::Gather(gather)) if gather.access == Access::Read => Some(gather),
        Plan::Data(DataPlan::One { otherwise: Some(otherwise), .. }) => gathered_read(otherwise),
        _ => None,
    }
}

/// Whether rows are locked in it.
fn locks(tree: &NodeEnum) -> bool {
    contains(tree, &|of| matches!(of, NodeEnum::SelectStmt(of) if !of.locking_clause.is_empty()))
}

/// Where in a statement an expression stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// In WHERE, HAVING or ON: no output has its name or length.
    Condition,
    Elsewhere,
}

struct Search<'a> {
    context: &'a Context<'a>,
    with_names: WithNames,
    found: Vec<ScalarSubquery>,
}

impl Search<'_> {
    fn look(&mut self, tree: &mut NodeEnum, place: Place) -> Result<(), Refusal> {
        match tree {
            NodeEnum::SelectStmt(select) => {
                let conditions = (select.where_clause.take(), select.having_clause.take());
                let others = self.look_into(tree, Place::Elsewhere);
                let NodeEnum::SelectStmt(select) = tree else { return others };
                (select.where_clause, select.having_clause) = conditions;
                others?;
                if let Some(condition) = &mut select.where_clause {
                    self.visit(condition, Place::Condition)?;
                }
                // What is grouped by, perhaps by an output's name or number, must be written alike there.
                let mut written = select.group_clause.iter().chain(&select.target_list);
                let has_subquery = !select.group_clause.is_empty() && written.any(has_subquery);
                match &mut select.having_clause {
                    Some(condition) if !has_subquery => self.visit(condition, Place::Condition),
                    _ => Ok(()),
                }
            }
            NodeEnum::JoinExpr(join) => {
                let condition = join.quals.take();
                let others = self.look_into(tree, Place::Elsewhere);
                let NodeEnum::JoinExpr(join) = tree else { return others };
                join.quals = condition;
                others?;
                join.quals.as_mut().map_or(Ok(()), |on| self.visit(on, Place::Condition))
            }
            // What is not asked for in each case.
            NodeEnum::CaseExpr(_) | NodeEnum::CoalesceExpr(_) => {
                self.look_into(tree, Place::Elsewhere)
            }
            _ => self.look_into(tree, place),
        }
    }

    fn look_into(&mut self, tree: &mut NodeEnum, place: Place) -> Result<(), Refusal> {
        let mut looked = Ok(());
        walk::write::children(tree, &mut |child| {
            if looked.is_ok() {
                looked = self.visit(child, place);
            }
        });
        looked
    }

    fn visit(&mut self, node: &mut Node, place: Place) -> Result<(), Refusal> {
        if place == Place::Condition
            && self.found.len() < SUBQUERIES_MAX
            && let Some(NodeEnum::SubLink(link)) = &node.node
            && let Some(found) = self.of_link(link)?
        {
            *node = expression(&gap(self.found.len()))?;
            self.found.push(found);
            return Ok(());
        }
        node.node.as_mut().map_or(Ok(()), |tree| self.look(tree, place))
    }

    /// What is to be computed first, if the subquery is of this kind.
    fn of_link(&self, link: &SubLink) -> Result<Option<ScalarSubquery>, Refusal> {
        let Some(node) = link.subselect.as_deref() else { return Ok(None) };
        let Some(tree @ NodeEnum::SelectStmt(select)) = &node.node else { return Ok(None) };
        if link.sub_link_type() != SubLinkType::ExprSublink
            || !is_plain(select)
            || self.with_names.are_read_in(tree)
            || mentions::of(tree, self.context).distributed.is_none()
            || volatility(node, self.context) == Volatility::Volatile
        {
            return Ok(None);
        }
        // Where it is read by itself, a name that it finds around it is nobody's.
        let Ok(analysis) = analyse_select(select, self.context) else { return Ok(None) };
        let cannot_fail = CannotFail { analysis: &analysis, context: self.context };
        if analysis.loose_star
            || !analysis.loose_names.is_empty()
            || analysis.outer_aggregate
            || !cannot_fail.query(select)
        {
            return Ok(None);
        }
        let text = deparse(tree)?;
        let mut asked = (**select).clone();
        let Some(NodeEnum::ResTarget(target)) =
            asked.target_list.first_mut().and_then(|target| target.node.as_mut())
        else {
            return Ok(None);
        };
        // As text that any session reads alike.
        let mut output = expression("tutti.value_output(NULL)")?;
        let Some(NodeEnum::FuncCall(call)) = &mut output.node else { return Ok(None) };
        call.args = target.val.take().map(|value| *value).into_iter().collect();
        target.val = Some(Box::new(output));
        let query = deparse(&NodeEnum::SelectStmt(Box::new(asked)))?;
        let again = crate::statement::parse(&query)?.pop().map(|statement| statement.tree);
        let Some(NodeEnum::SelectStmt(asked)) = again else { return Ok(None) };
        match plan_select(&asked, self.context) {
            Ok(planned) => Ok(Some(ScalarSubquery { text, query, planned: Box::new(planned) })),
            Err(_) => Ok(None),
        }
    }
}

/// A query with one output, which may be written otherwise without changing which rows there are.
fn is_plain(select: &SelectStmt) -> bool {
    let means_the_same = |by: &Node| match &by.node {
        Some(NodeEnum::SortBy(by)) => by.node.as_deref().is_some_and(|by| match bare_name(by) {
            Some(name) => select.target_list.iter().all(|target| !names_output(name, target)),
            None => !matches!(by.node, Some(NodeEnum::AConst(_))),
        }),
        _ => false,
    };
    select.larg.is_none()
        && select.values_lists.is_empty()
        && select.into_clause.is_none()
        && select.with_clause.is_none()
        && select.distinct_clause.is_empty()
        && select.group_clause.is_empty()
        && select.locking_clause.is_empty()
        && select.target_list.len() == 1
        && !select.target_list.iter().any(is_star_output)
        && select.sort_clause.iter().all(means_the_same)
}

/// Whether a name in ORDER BY means this output, and no column of the same name.
fn names_output(name: &str, target: &Node) -> bool {
    let Some(NodeEnum::ResTarget(target)) = &target.node else { return true };
    match output_name(target) {
        None => target.name == name,
        Some(own) => own == name && target.val.as_deref().and_then(bare_name) != Some(name),
    }
}

#[cfg(test)]
mod tests;
