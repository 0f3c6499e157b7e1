//! ALTER TABLE … DISTRIBUTE BY: a table that is there gets another placement.
//!
//! Owns: what of the statement is refused before any table is looked at.
//! Never: finds the table, or what refers to it; the executor does, in its transaction.

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::RangeVar;

use crate::catalog::quote_identifier;
use crate::plan::{Concerns, Placing, Planned, Residue, SessionPlan, TuttiCall};
use crate::planner::context::Context;
use crate::refusal::Refusal;
use crate::statement::Statement;

/// The plan of ALTER TABLE with a clause DISTRIBUTE BY; `None` for all others.
///
/// Errors: 0A000 with ONLY.
pub(in crate::planner) fn plan_placing(
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Option<Planned>, Refusal> {
    let (NodeEnum::AlterTableStmt(alter), Some(distribute_by)) =
        (&statement.tree, &statement.distribute_by)
    else {
        return Ok(None);
    };
    let Some(range) = &alter.relation else {
        return Err(Refusal::postgres("42601", "syntax error at end of input"));
    };
    if !range.inh {
        return Err(Refusal::unsupported(
            "ALTER TABLE ONLY … DISTRIBUTE BY is not supported",
            "Rows of partitions and children are rows of their parent, and must be where the parent's are.",
            "Leave out ONLY.",
        ));
    }
    let placing = Placing {
        table: sql_name(range),
        distribute_by: distribute_by.clone(),
        if_exists: alter.missing_ok,
        cascades: statement.cascades,
    };
    let plan = SessionPlan::Tutti(TuttiCall::Place(placing));
    let mut planned = Planned::new(plan, "the gateway moves the rows itself");
    // Rows that are written where they were not run code of the table's.
    planned.residue = Residue { anything: true, values: true, ..Residue::default() };
    if !context.catalog.is_solo() {
        // It looks up the tables itself, under locks: what others change meanwhile need not wait for it, nor end it.
        let (relations, calls) = (Some([].into()), [].into());
        let concerns = Concerns { relations, calls, is_asked: false, names_absent: false };
        planned.concerns = Some(Arc::new(concerns));
    }
    Ok(Some(planned))
}

fn sql_name(range: &RangeVar) -> String {
    let parts = [&range.catalogname, &range.schemaname, &range.relname];
    let written = parts.into_iter().filter(|part| !part.is_empty());
    written.map(|part| quote_identifier(part)).collect::<Vec<_>>().join(".")
}
