//! From a text to a plan, by what the gateway knows already wherever it can.
//!
//! Owns: the order in which the caches are asked, and when they are passed by: while the transaction
//! sees a catalog of its own. Never: keeps a plan (`plans` does) nor makes one (`tutti_sql` does).
//! Start reading at [`Session::plan_by_shape`].

use std::ops::Range;
use std::sync::Arc;

use tutti_sql::catalog::Catalog;
use tutti_sql::plan::{Plan, Planned, TransactionControl};
use tutti_sql::planner::{self, Context, Unfit};
use tutti_sql::refusal::Refusal;
use tutti_sql::shape::{Scanner, Shape};
use tutti_sql::statement::Statement;

use super::Session;
use crate::failure::Failure;
use crate::plans::{Basis, OfShape};

/// What a session keeps for finding plans quickly.
#[derive(Debug, Default)]
pub(super) struct Planning {
    scanner: Scanner,
    /// The number of this catalog with the scope as it was after so many changes.
    number: Option<(Arc<Catalog>, u64, u64)>,
}

impl Planning {
    /// The shape of a text, if it has one.
    pub(super) fn scan<'s>(&'s mut self, text: &str) -> Option<Shape<'s>> {
        self.scanner.scan(text)
    }
}

/// What is known of a text by its shape.
pub(super) enum ByShape {
    /// How to run it.
    Plan {
        /// The plan.
        planned: Arc<Planned>,
        /// Where in the text the statement is.
        statement: Range<usize>,
    },
    /// Nothing yet: it is worth finding out.
    Unknown,
    /// It has no shape, or none that helps.
    Never,
}

impl Session {
    /// What plans depend on at the moment; `None` if nobody else can use what this session plans.
    pub(super) fn basis(&mut self) -> Option<Basis> {
        if self.transaction.catalog_changed {
            return None;
        }
        let number = match &self.planning.number {
            Some((catalog, changes, number))
                if Arc::ptr_eq(catalog, &self.catalog) && *changes == self.scope_changes =>
            {
                *number
            }
            _ => {
                let number = self.shared.plans.bases.number(&self.catalog, &self.scope);
                let known = (self.catalog.clone(), self.scope_changes, number);
                self.planning.number = Some(known);
                number
            }
        };
        Some(Basis { number, collects_replicated: self.has_snapshot_per_part() })
    }

    /// The plan of a text, if its shape is known: without parsing it.
    pub(super) fn plan_by_shape(&mut self, text: &str) -> Result<ByShape, Failure> {
        self.refresh_catalog();
        let Some(basis) = self.basis() else { return Ok(ByShape::Never) };
        let Some(shape) = self.planning.scanner.scan(text) else { return Ok(ByShape::Never) };
        let plans = &self.shared.plans;
        let known = plans.of_shape(basis, shape.key);
        let resolved = match &known {
            Some(OfShape::Plan(plan)) => plan.resolve(text, shape.literals, &self.catalog),
            Some(OfShape::Never) | None => None,
        };
        plans.note_by_shape(resolved.is_some());
        let statement = shape.start..shape.end;
        match (resolved, known) {
            (Some(planned), _) => {
                self.check_plan(text, &planned)?;
                self.refuse_in_failed(&planned)?;
                Ok(ByShape::Plan { planned, statement })
            }
            (None, None) => Ok(ByShape::Unknown),
            (None, Some(_)) => Ok(ByShape::Never),
        }
    }

    /// Finds out about the shape of a text, which is the one statement that was just planned.
    pub(super) fn learn_shape(&mut self, text: &str, statement: &Statement, planned: &Planned) {
        let Some(basis) = self.basis() else { return };
        let Some(shape) = self.planning.scanner.scan(text) else { return };
        let collects_replicated = basis.collects_replicated;
        let context = Context { catalog: &self.catalog, scope: &self.scope, collects_replicated };
        let known = match planner::plan_shape(statement, text, &shape, planned, &context) {
            Ok(plan) => OfShape::Plan(Arc::new(plan)),
            Err(Unfit::Shape) => OfShape::Never,
            Err(Unfit::Literals) => return,
        };
        self.shared.plans.keep_shape(basis, shape.key, known);
    }

    /// The plan of a statement, made now or before, unless the transaction has failed.
    pub(crate) fn plan(&mut self, statement: &Statement) -> Result<Arc<Planned>, Failure> {
        self.refresh_catalog();
        let basis = self.basis();
        if let Some(basis) = basis
            && let Some(planned) = self.shared.plans.of_text(basis, statement)
        {
            self.check_plan(&statement.text, &planned)?;
            self.refuse_in_failed(&planned)?;
            return Ok(planned);
        }
        let planned = self.plan_anew(statement).map(Arc::new);
        match &planned {
            Ok(planned) => self.refuse_in_failed(planned)?,
            Err(_) if self.transaction.failed => return Err(transaction_failed()),
            Err(_) => (),
        }
        let planned = planned?;
        if let Some(basis) = basis {
            self.shared.plans.keep_text(basis, statement, &planned);
        }
        Ok(planned)
    }

    fn plan_anew(&self, statement: &Statement) -> Result<Planned, Refusal> {
        let context = Context {
            catalog: &self.catalog,
            scope: &self.scope,
            collects_replicated: self.has_snapshot_per_part(),
        };
        planner::plan(statement, &context)
    }

    fn refuse_in_failed(&self, planned: &Planned) -> Result<(), Failure> {
        if self.transaction.failed && !ends_failed_transaction(planned) {
            return Err(transaction_failed());
        }
        Ok(())
    }

    /// For tests: a plan that was kept must be the one that the statement would get now.
    fn check_plan(&self, text: &str, kept: &Planned) -> Result<(), Failure> {
        if !self.shared.config.switches.check_plans {
            return Ok(());
        }
        let statements = tutti_sql::statement::parse(text)?;
        let fresh = statements.first().map(|statement| self.plan_anew(statement));
        match fresh {
            Some(Ok(fresh)) if planner::are_alike(&fresh, kept) => Ok(()),
            fresh => {
                let message = format!("the plan that was kept for {text} is not its own");
                let error = tutti_wire::error_fields::ErrorFields::error("XX000", message);
                Err(error.with(b'D', format!("Kept: {kept:?}. Its own: {fresh:?}.")).into())
            }
        }
    }
}

/// What a failed transaction still accepts.
pub(super) fn ends_failed_transaction(planned: &Planned) -> bool {
    matches!(
        planned.plan,
        Plan::Transaction(
            TransactionControl::Commit { .. }
                | TransactionControl::Rollback { .. }
                | TransactionControl::RollbackTo(_)
        )
    )
}

/// What a failed transaction says to everything else.
pub(super) fn transaction_failed() -> Failure {
    let message = "current transaction is aborted, commands ignored until end of transaction block";
    Failure::error("25P02", message)
}
