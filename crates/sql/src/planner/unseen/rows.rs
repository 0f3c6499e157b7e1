//! Code that runs with rows where they are written or read: triggers, checks, defaults, policies, types.
//!
//! Owns: the rule that no such code may read more than its row on a node that has a part of the rows only.
//! Never: examines a statement or its plan.
//! Start reading at [`refuse_unsafe_code`].

use std::sync::Arc;

use super::wording::{hint, refusal};
use crate::catalog::{Catalog, NameScope, Placement, Relation, RelationKind};
use crate::closure::{Reach, Reason, Search, Writing};
use crate::code::{AttachedKind, FIRST_USER_OID, events};
use crate::planner::context::Context;
use crate::refusal::Refusal;

/// Whether a column's default cannot be computed on any node.
pub(crate) fn default_is_opaque(relation: &Relation, column: &str, context: &Context<'_>) -> bool {
    let mut search = Search::new(context.catalog, context.scope, Writing::Row);
    search.default(relation, column);
    !search.finish().is_transparent()
}

/// Refuses a default that must be computed on node 1 and accounted for there, where it is not
/// asked.
pub(crate) fn refuse_opaque_default(
    relation: &Relation,
    column: usize,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    let mut search = Search::new(context.catalog, context.scope, Writing::Statement);
    search.default(relation, &relation.columns[column].name);
    search.finish().opaque.map_or(Ok(()), |reason| Err(refusal(&reason)))
}

/// What runs with the rows of a relation where they are written.
fn of_rows(relation: &Arc<Relation>, fired: u8, context: &Context<'_>) -> Reach {
    let writing = match relation.placement {
        Placement::Replicated => Writing::Copies,
        _ => Writing::Row,
    };
    let mut search = Search::new(context.catalog, context.scope, writing);
    search.write(relation, fired);
    search.finish()
}

/// Whether writing a relation may leave something in the session that only its node knows.
pub(crate) fn leaves_anything(relation: &Arc<Relation>, context: &Context<'_>) -> bool {
    let reach = of_rows(relation, events::ALL, context);
    reach.leaves || reach.opaque.is_some() || reach.sets
}

/// Refuses a write that would run code where the rows are, on several nodes, which no single node
/// can run, or which may move a row away from where it belongs.
pub(crate) fn refuse_unsafe_code(
    relation: &Arc<Relation>,
    fired: u8,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    if context.catalog.is_solo() || relation.placement == Placement::Home {
        return Ok(());
    }
    let writes = fired & (events::INSERT | events::UPDATE) != 0;
    let key = relation.placement.key_columns().into_iter().map(|key| key.column);
    for column in key.chain(relation.key_sources()).filter(|_| writes) {
        let key = &relation.columns[column].name;
        let what = match relation.key_sources().any(|source| source == column) {
            true => format!("\"{key}\", from which the distribution key is computed,"),
            false => format!("the distribution key \"{key}\""),
        };
        let code = &context.catalog.code;
        let mut tables = code.with_children(relation.oid).into_iter();
        if let Some((trigger, function)) = tables.find_map(|oid| code.key_changer(oid, key)) {
            return Err(Refusal::unsupported(
                format!("writing to {} would fire \"{trigger}\"", relation.sql_name()),
                format!(
                    "It runs {function} before the row is stored, which may give {what} another value: the row would \
                     be on the wrong node."
                ),
                "Let the client give the key its value, and the trigger return NEW as it is.",
            ));
        }
    }
    let Some(reason) = of_rows(relation, fired, context).opaque else { return Ok(()) };
    let culprit = culprit(relation, fired, context);
    Err(Refusal::unsupported(
        format!("writing to {} would fire {culprit}", relation.sql_name()),
        format!(
            "It runs inside the node that has the row, which sees its own rows only: {reason}."
        ),
        hint(&reason, "row"),
    ))
}

/// Refuses to read a table of several nodes where each of them would run code to plan that: it computes what is
/// constant in indexes and checks, whatever the statement then does with the rows.
pub(super) fn refuse_unsafe_planning(
    relation: &Arc<Relation>,
    context: &Context<'_>,
) -> Result<(), Refusal> {
    if !relation.placement.is_distributed() {
        return Ok(());
    }
    let mut search = Search::new(context.catalog, context.scope, Writing::Row);
    search.plan(relation.oid, false);
    search.finish().opaque.map_or(Ok(()), |reason| {
        Err(Refusal::unsupported(
            format!("reading {} would run code of its checks or indexes", relation.sql_name()),
            format!(
                "Each node that has a part of the rows computes what is constant there: {reason}."
            ),
            hint(&reason, "row"),
        ))
    })
}

/// The object of a relation's whose code is opaque, or what is written with it.
fn culprit(relation: &Arc<Relation>, fired: u8, context: &Context<'_>) -> String {
    let code = &context.catalog.code;
    let objects = code.attached_to(relation.oid).iter().filter(|it| it.runs_for(fired));
    for object in objects {
        let mut search = Search::new(context.catalog, context.scope, Writing::Row);
        search.attached(object);
        if search.finish().opaque.is_some() {
            return format!("\"{}\"", object.name);
        }
    }
    match code.written_with(relation.oid).iter().find(|other| other.by & fired != 0) {
        Some(other) => format!("code of \"{}\", which is written with it", other.name),
        None => "code of its columns' types".to_owned(),
    }
}

/// Rows in transit are read with the reader's rights: code that any role may have written must not run
/// there. A declaration by its owner concerns results, never that.
///
/// Errors: 0A000 for a relation with a type that has such code in its checks.
pub fn refuse_transit(relation: &Arc<Relation>, catalog: &Catalog) -> Result<(), Refusal> {
    // What belongs to types is known by number.
    let scope = NameScope::default();
    let mut search = Search::new(catalog, &scope, Writing::Transit);
    search.make_rows(relation);
    let Some(reason) = search.finish().opaque else { return Ok(()) };
    Err(Refusal::unsupported(
        format!("rows of {} cannot be brought to one node", relation.sql_name()),
        format!("The type of a column would be checked there by whoever reads them: {reason}."),
        "Let the type's check call PostgreSQL's own functions only, or read the table by its \
         distribution key.",
    ))
}

/// Whether a relation has columns of types that may get such checks while its rows are in transit: domains,
/// and types made of others.
pub fn may_be_checked(relation: &Relation) -> bool {
    relation.columns.iter().any(|column| column.domain || FIRST_USER_OID <= column.type_oid)
}

/// Refuses to move rows of a table to where that would run code that looks at more than the row: its
/// generated columns are computed and its constraints checked again, those of its columns' types too, and
/// its indexes filled. (Its triggers stay off.) Node 1 is no better for that than another: where a
/// table is on several nodes, each sees its own rows only.
pub fn refuse_moving(
    relation: &Relation,
    scope: &NameScope,
    catalog: &Catalog,
) -> Result<(), Refusal> {
    let refusal = |runs: String, reason: &Reason| {
        Refusal::unsupported(
            format!("rows of table \"{}\" cannot be written on other nodes", relation.name),
            format!("That runs {runs} there, and a node sees its own rows only: {reason}."),
            hint(reason, "row"),
        )
    };
    let tables = catalog.code.with_children(relation.oid);
    let objects = tables.iter().flat_map(|table| catalog.code.attached_to(*table));
    for object in objects.filter(|it| matches!(it.kind, AttachedKind::Check | AttachedKind::Index))
    {
        let mut search = Search::new(catalog, scope, Writing::Row);
        search.attached(object);
        if let Some(reason) = search.finish().opaque {
            return Err(refusal(format!("{} \"{}\"", object.kind.word(), object.name), &reason));
        }
    }
    for column in &relation.columns {
        let mut search = Search::new(catalog, scope, Writing::Row);
        search.make(column.type_oid);
        if let Some(reason) = search.finish().opaque {
            let runs = format!("the type of column \"{}\"", column.name);
            return Err(refusal(runs, &reason));
        }
    }
    Ok(())
}

/// Checks the types that a client declares of a statement's parameters.
///
/// Errors: 0A000 for one that runs code which could not be accounted for.
pub fn refuse_types(types: &[u32], catalog: &Catalog, scope: &NameScope) -> Result<(), Refusal> {
    if catalog.is_solo() || types.is_empty() {
        return Ok(());
    }
    let mut search = Search::new(catalog, scope, Writing::Statement);
    types.iter().for_each(|oid| search.make(*oid));
    search.finish().opaque.map_or(Ok(()), |reason| Err(refusal(&reason)))
}

/// Checks the policies of all tables that other nodes have a part of: each node applies them for
/// itself, to every statement.
///
/// Errors: 0A000 for the first that a node cannot apply.
pub fn check_policies(catalog: &Catalog) -> Result<(), Refusal> {
    if catalog.is_solo() {
        return Ok(());
    }
    let scope = NameScope::public();
    let mut tables: Vec<_> =
        catalog.relations.values().flat_map(|tables| tables.values()).collect();
    tables.retain(|table| {
        table.placement != Placement::Home && !matches!(table.kind, RelationKind::View { .. })
    });
    tables.sort_by_key(|table| (&table.schema, &table.name));
    for table in tables {
        for policy in catalog.code.policies_of(table.oid) {
            let mut search = Search::new(catalog, &scope, Writing::Row);
            search.attached(policy);
            if let Some(reason) = search.finish().opaque {
                return Err(Refusal::unsupported(
                    format!(
                        "policy \"{}\" of table \"{}\" cannot be enforced",
                        policy.name, table.name
                    ),
                    format!("Each node would ask it of its own rows: {reason}."),
                    "Make the tables that the condition refers to REPLICATED, and declare functions \
                     that read nothing else: SELECT tutti_function('f', 'replicated').",
                ));
            }
        }
    }
    Ok(())
}
