//! What all steps of planning one INSERT share.
//!
//! Owns: which columns the client's list leaves out, and which of these are computed before rows travel.
//! Never: chooses where the rows go.
//! Start reading at [`Inserting`].

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{InsertStmt, OnConflictAction, SelectStmt, SetOperation};

use super::clauses;
use super::target::Target;
use crate::catalog::{Placement, Relation};
use crate::plan::{DataPlan, Insert, InsertSource, Plan, Planned, Template};
use crate::planner::alike::is_of_time;
use crate::planner::computed_keys;
use crate::planner::context::Context;
use crate::planner::current_time::says_now;
use crate::planner::defaults::Evaluation;
use crate::planner::replicas;
use crate::planner::sql_text::parse_expression;
use crate::planner::syntax::is_star_output;
use crate::refusal::Refusal;

/// What all steps of planning one INSERT share.
pub(super) struct Inserting<'a> {
    pub(super) insert: &'a InsertStmt,
    pub(super) relation: &'a Arc<Relation>,
    pub(super) target: Target,
    pub(super) evaluation: Evaluation<'a>,
    bucket_question: Option<Template>,
    pub(super) context: &'a Context<'a>,
}

impl<'a> Inserting<'a> {
    /// Into this table.
    pub(super) fn of(
        insert: &'a InsertStmt,
        relation: &'a Arc<Relation>,
        context: &'a Context<'a>,
    ) -> Result<Self, Refusal> {
        let target = Target::of(insert, relation, context)?;
        let evaluation = Evaluation::of(relation, context);
        let bucket_question = computed_keys::question(relation, context)?;
        Ok(Self { insert, relation, target, evaluation, bucket_question, context })
    }

    /// The table's placement.
    pub(super) fn placement(&self) -> &Placement {
        &self.relation.placement
    }

    /// The plan around rows that come from `source`.
    pub(super) fn plan_of(&self, source: InsertSource) -> Plan {
        Plan::Data(DataPlan::Insert(Insert {
            relation: self.relation.clone(),
            source,
            returning: clauses::returns_rows(self.insert),
            one_row_each: !on_conflict(self.insert),
            rows: None,
            bucket_question: self.bucket_question.clone(),
        }))
    }

    /// Columns that the client's list leaves out and whose defaults are not left to the node that
    /// receives the row: they are evaluated once, before.
    pub(super) fn omitted_once(&self) -> impl Iterator<Item = usize> {
        self.omitted().filter(|column| self.evaluation.once(*column))
    }

    /// The same for rows that go to several nodes.
    pub(super) fn omitted_for_several_nodes(&self) -> impl Iterator<Item = usize> {
        self.omitted().filter(|column| self.evaluation.once_for_several_nodes(*column))
    }

    /// The same for columns left out of rows that travel: a NULL in place of a domain's default might
    /// not be in the domain.
    pub(super) fn omitted_in_rows(&self) -> impl Iterator<Item = usize> {
        self.omitted().filter(|column| self.is_computed(*column))
    }

    /// Whether rows that travel have this column's default.
    pub(super) fn is_computed(&self, column: usize) -> bool {
        let of = &self.relation.columns[column];
        self.evaluation.once_for_several_nodes(column)
            || of.domain && of.default.is_some() && !of.generated
    }

    /// The query, in which literals that are stored as dates or times, and mean the current one, are cast to that: each
    /// node would read them as a time of its own.
    ///
    /// Not those of DISTINCT, UNION and the like: these are texts, which PostgreSQL does not store as such.
    pub(super) fn with_time_literals(&self, select: &SelectStmt) -> SelectStmt {
        let mut select = select.clone();
        if select.op() != SetOperation::SetopNone || !select.distinct_clause.is_empty() {
            return select;
        }
        let targets = select.target_list.iter_mut().take_while(|target| !is_star_output(target));
        for (target, column) in targets.zip(&self.target.columns) {
            let column = &self.relation.columns[*column];
            let Some(NodeEnum::ResTarget(target)) = &mut target.node else { continue };
            let Some(value) = target.val.as_deref_mut().filter(|_| is_of_time(column)) else {
                continue;
            };
            if matches!(value.node, Some(NodeEnum::AConst(_)))
                && says_now(value)
                && let Some(mut cast) =
                    parse_expression(&format!("CAST(NULL AS {})", column.type_name))
                && let Some(NodeEnum::TypeCast(of)) = &mut cast.node
            {
                of.arg = Some(Box::new(std::mem::take(value)));
                *value = cast;
            }
        }
        select
    }

    fn omitted(&self) -> impl Iterator<Item = usize> {
        (0..self.relation.columns.len()).filter(|column| !self.target.columns.contains(column))
    }
}

/// ON CONFLICT is present.
pub(super) fn on_conflict(insert: &InsertStmt) -> bool {
    insert.on_conflict_clause.as_ref().is_some_and(|clause| {
        matches!(
            clause.action(),
            OnConflictAction::OnconflictNothing | OnConflictAction::OnconflictUpdate
        )
    })
}

/// The INSERT as it is written, on all nodes.
pub(super) fn on_every_node(
    insert: &InsertStmt,
    relation: &Arc<Relation>,
    context: &Context<'_>,
) -> Planned {
    let tree = NodeEnum::InsertStmt(Box::new(insert.clone()));
    let rows = replicas::rows_of(&tree, relation, context);
    let plan = Plan::Data(DataPlan::Replicas { locks: Vec::new(), rows });
    Planned::new(plan, "every node has all rows, and no value can differ")
}
