//! The source of an INSERT with the WITH before INSERT as its own.
//!
//! Owns: putting both WITH together where that means the same, and the refusal where it does not.
//! Never: looks at the target.
//! Start reading at [`with_ctes`].

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{InsertStmt, SelectStmt, WithClause};

use crate::refusal::Refusal;

/// The source query with the INSERT's WITH queries as its own; `None` for DEFAULT VALUES.
pub(super) fn with_ctes(insert: &InsertStmt) -> Result<Option<SelectStmt>, Refusal> {
    let Some(NodeEnum::SelectStmt(select)) =
        insert.select_stmt.as_ref().and_then(|source| source.node.as_ref())
    else {
        return Ok(None);
    };
    let mut select = (**select).clone();
    merge_with(insert.with_clause.as_ref(), &mut select)?;
    Ok(Some(select))
}

/// Puts the outer WITH before what a query has of its own.
pub(super) fn merge_with(
    outer: Option<&WithClause>,
    select: &mut SelectStmt,
) -> Result<(), Refusal> {
    let Some(outer) = outer else { return Ok(()) };
    let names = |with: &WithClause| -> BTreeSet<String> {
        with.ctes
            .iter()
            .filter_map(|cte| match &cte.node {
                Some(NodeEnum::CommonTableExpr(cte)) => Some(cte.ctename.clone()),
                _ => None,
            })
            .collect()
    };
    let merged = match select.with_clause.take() {
        None => outer.clone(),
        // With RECURSIVE names would be in sight that were not before.
        Some(inner)
            if !inner.recursive && !outer.recursive && names(outer).is_disjoint(&names(&inner)) =>
        {
            let ctes = outer.ctes.iter().cloned().chain(inner.ctes).collect();
            WithClause { ctes, ..outer.clone() }
        }
        Some(_) => {
            return Err(Refusal::unsupported(
                "WITH before INSERT and WITH in its query are not supported together here",
                "Their names collide, or one of them is recursive.",
                "Write all queries into the WITH before INSERT.",
            ));
        }
    };
    select.with_clause = Some(merged);
    Ok(())
}
