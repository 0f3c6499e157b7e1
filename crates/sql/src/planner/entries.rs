//! Unique indexes and foreign keys that hold over all nodes by entries of their own: what statements have to do with them.
//!
//! Owns: which statements may change their values, or what they refer to; ON CONFLICT that would mean them; and which index
//! may become one.
//! Never: knows where entries are, or how they are kept; the executor does.
//! Start reading at [`note`]; the reasons are docs/decisions/2026-11-27-global-unique.md and
//! 2026-11-30-foreign-keys-over-nodes.md.

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{DropBehavior, IndexStmt, InsertStmt, Node, RangeVar, UpdateStmt};

use super::context::Context;
use crate::catalog::{Kept, Placement, Relation, RelationKind};
use crate::closure::events;
use crate::plan::{DataPlan, GlobalIndex, Plan, Planned, Truncated};
use crate::refusal::Refusal;
use crate::walk;

/// What a statement may change of what there are entries of.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Touched {
    /// Values that have entries.
    entries: bool,
    /// Rows or values that entries refer to.
    referred: bool,
}

impl Touched {
    fn or(self, other: Self) -> Self {
        Self { entries: self.entries || other.entries, referred: self.referred || other.referred }
    }
}

/// Marks a plan whose statement may change what entries are kept of, or what they refer to.
pub(super) fn note(planned: &mut Planned, tree: &NodeEnum, context: &Context<'_>) {
    if context.catalog.has_kept {
        mark(planned, touched(tree, context));
    }
}

fn mark(planned: &mut Planned, touched: Touched) {
    planned.keeps_entries = touched.entries || touched.referred;
    planned.checks_references = touched.referred;
    if let Plan::Data(DataPlan::One { otherwise: Some(otherwise), .. }) = &mut planned.plan {
        mark(otherwise, touched);
    }
}

/// What a statement, or one within it, may change.
fn touched(tree: &NodeEnum, context: &Context<'_>) -> Touched {
    let mut found = match tree {
        NodeEnum::InsertStmt(insert) => {
            let fired = match insert.on_conflict_clause {
                Some(_) => events::INSERT | events::UPDATE,
                None => events::INSERT,
            };
            may_change(insert.relation.as_ref(), fired, None, context)
        }
        NodeEnum::UpdateStmt(update) => {
            let assigned = assigned(update);
            may_change(update.relation.as_ref(), events::UPDATE, assigned.as_deref(), context)
        }
        NodeEnum::DeleteStmt(delete) => {
            may_change(delete.relation.as_ref(), events::DELETE, None, context)
        }
        NodeEnum::MergeStmt(merge) => {
            may_change(merge.relation.as_ref(), events::ALL, None, context)
        }
        NodeEnum::CopyStmt(copy) if copy.is_from => {
            may_change(copy.relation.as_ref(), events::INSERT, None, context)
        }
        // What is within these the walk below does not come to.
        NodeEnum::CopyStmt(copy) => within(copy.query.as_deref(), context),
        NodeEnum::ExplainStmt(explain) => within(explain.query.as_deref(), context),
        _ => Touched::default(),
    };
    walk::read::children(tree, &mut |child: &Node| {
        if let Some(child) = &child.node {
            found = found.or(touched(child, context));
        }
    });
    found
}

fn within(query: Option<&Node>, context: &Context<'_>) -> Touched {
    let query = query.and_then(|query| query.node.as_ref());
    query.map_or_else(Touched::default, |query| touched(query, context))
}

/// The columns that an UPDATE assigns; `None` where that is not plain.
fn assigned(update: &UpdateStmt) -> Option<Vec<&str>> {
    update
        .target_list
        .iter()
        .map(|target| match &target.node {
            Some(NodeEnum::ResTarget(target)) => Some(target.name.as_str()),
            _ => None,
        })
        .collect()
}

/// `assigned`: of an UPDATE, the columns that it assigns; `None`: it may be any.
fn may_change(
    range: Option<&RangeVar>,
    fired: u8,
    assigned: Option<&[&str]>,
    context: &Context<'_>,
) -> Touched {
    let mut found = Touched::default();
    let Some(named) = range.and_then(|range| context.relation(range)) else { return found };
    // What is written through a view is called otherwise there.
    let is_table = !matches!(named.kind, RelationKind::View { .. });
    let assigned = assigned.filter(|_| is_table);
    let mut reached: Vec<(&Arc<Relation>, u8)> =
        behind(named, context).into_iter().map(|relation| (relation, fired)).collect();
    let mut at = 0;
    while let Some((relation, fired)) = reached.get(at).copied() {
        let assigned = assigned.filter(|_| relation.oid == named.oid);
        at += 1;
        // What its triggers do on a node is known by what was said of them only, and they may change its rows first.
        if relation.has_triggers && relation.placement != Placement::Home {
            return Touched { entries: true, referred: context.catalog.has_references };
        }
        let changes_rows = fired & (events::INSERT | events::DELETE) != 0;
        found.entries |=
            !relation.kept.is_empty() && (changes_rows || assigns_value(relation, assigned));
        found.referred |= !relation.referred.is_empty()
            && (fired & events::DELETE != 0
                || fired & events::UPDATE != 0
                    && assigns(relation, relation.referred.iter(), assigned));
        for other in context.catalog.code.written_with(relation.oid) {
            if other.by & fired == 0 {
                continue;
            }
            let tables = context.catalog.relations.get(&other.schema);
            let Some(table) = tables.and_then(|all| all.get(&other.name)) else { continue };
            let event = if other.is_child() { fired } else { other.as_event };
            if !reached.iter().any(|(known, of)| known.oid == table.oid && of & event == event) {
                reached.push((table, event));
            }
        }
    }
    found
}

/// Whether an UPDATE of these columns may change an entry: its values, or the distribution key.
fn assigns_value(relation: &Relation, assigned: Option<&[&str]>) -> bool {
    let key = relation.placement.key_columns();
    // A key that is computed changes with what it is computed from.
    let key = key.iter().map(|key| key.column).chain(relation.key_sources()).collect::<Vec<_>>();
    let kept = relation.kept.iter().flat_map(|it| &it.columns);
    assigns(relation, kept.chain(&key), assigned)
}

fn assigns<'a>(
    relation: &Relation,
    mut columns: impl Iterator<Item = &'a usize>,
    assigned: Option<&[&str]>,
) -> bool {
    let Some(assigned) = assigned else { return true };
    columns.any(|column| assigned.contains(&relation.columns[*column].name.as_str()))
}

/// What a statement truncates, if entries may refer to it; `None`: they do not.
pub(super) fn truncated(tree: &NodeEnum, context: &Context<'_>) -> Option<Box<Truncated>> {
    let NodeEnum::TruncateStmt(truncate) = tree else { return None };
    let named = truncate.relations.iter().filter_map(|relation| match &relation.node {
        Some(NodeEnum::RangeVar(range)) => context.relation(range),
        _ => None,
    });
    let named: Vec<_> = named.collect();
    let cascades = truncate.behavior() == DropBehavior::DropCascade;
    // Which tables refer to them, and which to those, the nodes know.
    let may_be_referred = match cascades {
        true => context.catalog.has_references,
        false => named.iter().any(|table| !table.referred.is_empty()),
    };
    let tables = || named.iter().map(|table| table.sql_name()).collect();
    may_be_referred.then(|| Box::new(Truncated { tables: tables(), cascades }))
}

/// A relation, and for a view all that it reads, through other views.
fn behind<'a>(relation: &'a Arc<Relation>, context: &Context<'a>) -> Vec<&'a Arc<Relation>> {
    let mut found = vec![relation];
    let mut at = 0;
    while let Some(relation) = found.get(at).copied() {
        at += 1;
        if !matches!(relation.kind, RelationKind::View { .. }) {
            continue;
        }
        for (schema, name) in context.catalog.code.read_by_view(relation.oid) {
            let table = context.catalog.relations.get(schema).and_then(|all| all.get(name));
            if let Some(table) = table.filter(|it| !found.iter().any(|known| known.oid == it.oid)) {
                found.push(table);
            }
        }
    }
    found
}

/// Refuses ON CONFLICT that would take rows of other nodes for conflicts: a node knows of its own.
///
/// Errors: 0A000.
pub(super) fn refuse_conflicts(tree: &NodeEnum, context: &Context<'_>) -> Result<(), Refusal> {
    if !context.catalog.has_kept {
        return Ok(());
    }
    if let NodeEnum::InsertStmt(insert) = tree {
        refuse_conflict(insert, context)?;
    }
    let mut refused = Ok(());
    walk::read::children(tree, &mut |child: &Node| {
        if let (Ok(()), Some(child)) = (&refused, &child.node) {
            refused = refuse_conflicts(child, context);
        }
    });
    refused
}

fn refuse_conflict(insert: &InsertStmt, context: &Context<'_>) -> Result<(), Refusal> {
    let Some(conflict) = &insert.on_conflict_clause else { return Ok(()) };
    let Some(named) = insert.relation.as_ref().and_then(|range| context.relation(range)) else {
        return Ok(());
    };
    let is_kept = |relation: &&Arc<Relation>| relation.kept.iter().any(Kept::is_unique);
    let Some(table) = behind(named, context).into_iter().find(is_kept) else { return Ok(()) };
    // Such an index is no constraint, and does not contain the distribution key.
    let is_of_one_node = conflict.infer.as_ref().is_some_and(|infer| {
        let key = match table.placement {
            Placement::Hash { key, .. } => table.columns.get(key),
            _ => None,
        };
        let is_key = |element: &Node| match &element.node {
            Some(NodeEnum::IndexElem(element)) => key.is_some_and(|key| key.name == element.name),
            _ => false,
        };
        !infer.conname.is_empty()
            || (named.oid == table.oid && infer.index_elems.iter().any(is_key))
    });
    if is_of_one_node {
        return Ok(());
    }
    Err(Refusal::unsupported(
        format!(
            "this ON CONFLICT is not supported, for \"{}\" has an index that is unique over all nodes",
            table.name
        ),
        "The row that conflicts may be on another node than the one that the new row belongs to.",
        "Name the columns of a unique constraint that contains the distribution key (ON CONFLICT (…)), or catch \
         the error 23505.",
    ))
}

/// The index that is to hold over all nodes; `None` where every unique index of the table does.
///
/// Errors: 0A000 if it cannot. What can be asked of the index that has been made, its node looks at.
pub(super) fn wanted(
    index: &IndexStmt,
    context: &Context<'_>,
) -> Result<Option<Box<GlobalIndex>>, Refusal> {
    let Some(relation) = index.relation.as_ref().and_then(|range| context.relation(range)) else {
        return Ok(None);
    };
    if matches!(relation.placement, Placement::Home | Placement::Replicated) {
        return Ok(None);
    }
    let refuse = |detail: &str, hint: &str| {
        Err(Refusal::unsupported(
            "this index cannot be made to be unique over all nodes",
            detail,
            hint,
        ))
    };
    if index.concurrent {
        return refuse(
            "Its entries are made from all rows in one transaction, and CONCURRENTLY is in none.",
            "Leave CONCURRENTLY out.",
        );
    }
    if !index.unique {
        return refuse(
            "It is not UNIQUE.",
            "CREATE UNIQUE INDEX, or leave out tutti.global_unique.",
        );
    }
    if index.idxname.is_empty() || index.if_not_exists {
        return refuse(
            "Which index it is must be known: it needs a name, and must be new.",
            "Give it a name, and leave out IF NOT EXISTS.",
        );
    }
    if matches!(relation.placement, Placement::HashOfSeveral { .. }) {
        return refuse(
            "Its table is distributed by several columns together.",
            "Distribute the table BY HASH of one column, or make it REPLICATED.",
        );
    }
    if !relation.computed_keys.is_empty() {
        return refuse(
            "Its table is distributed by a generated column.",
            "Distribute the table BY HASH of another column, or make it REPLICATED.",
        );
    }
    if !matches!(relation.placement, Placement::Hash { .. }) {
        return refuse(
            "Its table is not distributed BY HASH.",
            "Distribute the table BY HASH of a column, or make it REPLICATED.",
        );
    }
    let first = index.index_params.first().and_then(|first| match &first.node {
        Some(NodeEnum::IndexElem(element)) => relation.column(&element.name),
        _ => None,
    });
    let Some(first) = first else {
        return refuse("It has an expression, or a column that is not there.", "Name columns.");
    };
    Ok(Some(Box::new(GlobalIndex {
        table: relation.oid,
        schema: relation.schema.clone(),
        name: index.idxname.clone(),
        first,
    })))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::fixture;
    use crate::catalog::{Catalog, Kept, KeptKind, MapId, NameScope, Relation};
    use crate::planner::{Context, plan};
    use crate::statement::parse;

    /// The shop, where names of customers are unique.
    fn shop() -> Catalog {
        let mut catalog = fixture::shop(3);
        let public = catalog.relations.get_mut("public").unwrap();
        let customers = public.get_mut("customers").unwrap();
        *customers = Arc::new(Relation {
            kept: vec![Kept { number: 17, columns: vec![1], kind: KeptKind::Unique }],
            referred: vec![0],
            ..Relation::clone(customers)
        });
        let tickets = public.get_mut("tickets").unwrap();
        let kind = KeptKind::Reference {
            map: MapId(1),
            name: "tickets_customer_fkey".to_owned(),
            deferrable: false,
            deferred: false,
        };
        *tickets = Arc::new(Relation {
            kept: vec![Kept { number: 18, columns: vec![1, 0], kind }],
            ..Relation::clone(tickets)
        });
        catalog.has_references = true;
        catalog.has_kept = true;
        catalog
    }

    /// What it keeps, and what it has checked.
    fn planned(text: &str) -> Result<(bool, bool), String> {
        let catalog = shop();
        let scope = NameScope::public();
        let statement = parse(text).unwrap().remove(0);
        plan(&statement, &Context::new(&catalog, &scope))
            .map(|planned| (planned.keeps_entries, planned.checks_references))
            .map_err(|refusal| refusal.message)
    }

    #[test]
    fn what_may_change_a_value_keeps_the_entries() {
        for text in [
            "INSERT INTO customers VALUES (1, 'a')",
            "INSERT INTO customers VALUES (1, 'a'), (2, 'b')",
            "INSERT INTO customers SELECT id, title FROM tickets",
            "UPDATE customers SET name = 'a' WHERE id = 1",
            "COPY customers FROM STDIN",
            "INSERT INTO tickets VALUES (1, 'a')",
            "UPDATE tickets SET title = 'a'",
            "DELETE FROM tickets",
        ] {
            assert_eq!(planned(text), Ok((true, false)), "{text}");
        }
        // Something may refer to these rows.
        for text in [
            "INSERT INTO customers VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET name = 'b'",
            "UPDATE customers SET id = id + 1",
            "DELETE FROM customers WHERE id = 1",
            "EXPLAIN ANALYZE DELETE FROM customers",
            "WITH d AS (DELETE FROM customers WHERE id = 1 RETURNING *) SELECT * FROM d",
        ] {
            assert_eq!(planned(text), Ok((true, true)), "{text}");
        }
        for text in [
            "SELECT * FROM customers WHERE id = 1",
            "UPDATE orders SET total = 1 WHERE customer_id = 1",
            "COPY customers TO STDOUT",
        ] {
            assert_eq!(planned(text), Ok((false, false)), "{text}");
        }
    }

    #[test]
    fn conflicts_that_may_be_on_other_nodes_are_refused() {
        for text in [
            "INSERT INTO customers VALUES (1, 'a') ON CONFLICT DO NOTHING",
            "INSERT INTO customers VALUES (1, 'a') ON CONFLICT (name) DO NOTHING",
            "INSERT INTO customers VALUES (1, 'a') ON CONFLICT (name) DO UPDATE SET name = 'b'",
        ] {
            assert!(planned(text).unwrap_err().starts_with("this ON CONFLICT"), "{text}");
        }
    }
}
