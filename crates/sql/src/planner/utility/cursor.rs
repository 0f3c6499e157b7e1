//! DECLARE, FETCH, MOVE and CLOSE.
//!
//! Owns: giving a cursor one node to live on. Never: tracks open cursors; the session does.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    ClosePortalStmt, DeclareCursorStmt, FetchStmt, LockClauseStrength, SelectStmt, Token,
};

use crate::plan::{Access, DataPlan, Plan, Planned};
use crate::planner::context::Context;
use crate::planner::{cluster_sizes, query};
use crate::refusal::Refusal;
use crate::statement::tokens::{scan, with_depth};
use crate::statement::{Statement, holds};

pub(super) fn plan_declare(
    declare: &DeclareCursorStmt,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let Some(NodeEnum::SelectStmt(select)) =
        declare.query.as_ref().and_then(|query| query.node.as_ref())
    else {
        let message = "DECLARE CURSOR must specify a query";
        return Err(Refusal::postgres("42P11", message));
    };
    let of_select = |select: &SelectStmt| plan_query(declare, select, statement, context);
    cluster_sizes::planned_with(select, context, &of_select)
}

fn plan_query(
    declare: &DeclareCursorStmt,
    select: &SelectStmt,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let planned_query = query::plan_select(select, context)?;
    // A cursor lives on one node, so what would run on several is gathered.
    let gathered = || -> Result<Plan, Refusal> {
        refuse_locks(declare, select)?;
        let before = format!("{} ", declaration(&statement.text)?);
        let gather = query::gather_query_in_parts(select, &before, "", context)?;
        Ok(Plan::Data(DataPlan::Gather(gather)))
    };
    let plan = match planned_query.plan {
        Plan::Data(DataPlan::One { node, access: Access::Read, otherwise }) => {
            let otherwise = match otherwise {
                Some(other) => Some(Box::new(Planned::new(gathered()?, other.why))),
                None => None,
            };
            Plan::Data(DataPlan::One { node, access: Access::Read, otherwise })
        }
        Plan::Data(DataPlan::One { node, access, otherwise: None }) => {
            Plan::Data(DataPlan::One { node, access, otherwise: None })
        }
        _ => gathered()?,
    };
    let query = Box::new(Planned::new(plan, planned_query.why.clone()));
    let name = declare.portalname.clone();
    let declared = DataPlan::DeclareCursor { name, holds: holds(declare), query };
    Ok(Planned::new(declared, planned_query.why))
}

/// What PostgreSQL refuses: the query that is sent to it has no clause of locks where these are taken before.
fn refuse_locks(declare: &DeclareCursorStmt, select: &SelectStmt) -> Result<(), Refusal> {
    const SCROLL: i32 = 0x02;
    const INSENSITIVE: i32 = 0x08;
    const HOLD: i32 = 0x20;
    let lock = select.locking_clause.first().and_then(|node| match &node.node {
        Some(NodeEnum::LockingClause(lock)) => Some(lock.strength()),
        _ => None,
    });
    let Some(lock) = lock else { return Ok(()) };
    let lock = match lock {
        LockClauseStrength::LcsForkeyshare => "FOR KEY SHARE",
        LockClauseStrength::LcsForshare => "FOR SHARE",
        LockClauseStrength::LcsFornokeyupdate => "FOR NO KEY UPDATE",
        _ => "FOR UPDATE",
    };
    let (sqlstate, message, which) = match declare.options {
        of if of & HOLD != 0 => {
            ("0A000", format!("DECLARE CURSOR WITH HOLD ... {lock} is not supported"), "Holdable")
        }
        of if of & SCROLL != 0 => {
            ("0A000", format!("DECLARE SCROLL CURSOR ... {lock} is not supported"), "Scrollable")
        }
        of if of & INSENSITIVE != 0 => {
            ("42P11", format!("DECLARE INSENSITIVE CURSOR ... {lock} is not valid"), "Insensitive")
        }
        _ => return Ok(()),
    };
    let detail = format!("{which} cursors must be READ ONLY.");
    Err(Refusal::postgres(sqlstate, message).with_detail(detail))
}

/// `DECLARE … FOR` as written.
fn declaration(text: &str) -> Result<&str, Refusal> {
    let tokens = scan(text).map_err(|error| Refusal::postgres("42601", error.to_string()))?;
    with_depth(&tokens)
        .find(|(depth, token)| *depth == 0 && token.token == Token::For)
        .and_then(|(_, token)| text.get(..token.end))
        .ok_or_else(|| Refusal::postgres("42601", "syntax error at end of input"))
}

pub(super) fn plan_fetch(fetch: &FetchStmt) -> Planned {
    let name = Some(fetch.portalname.clone());
    Planned::new(DataPlan::Cursor { name, close: false }, "the cursor lives on one node")
}

pub(super) fn plan_close(close: &ClosePortalStmt) -> Planned {
    let name = Some(close.portalname.clone()).filter(|name| !name.is_empty());
    Planned::new(DataPlan::Cursor { name, close: true }, "the cursor lives on one node")
}
