//! Locks on node 1 that a write to replicated tables takes before it runs on every node.
//!
//! Owns: which tables these are, and in which mode. Never: takes one; the executor does.
//! Start reading at [`replica_locks`]; the reasons are docs/protocol/replicated-tables.md.

use crate::catalog::RelationKind;
use crate::plan::{LockMode, TableLock};
use crate::planner::analysis::{Analysis, Constraint, ItemId, Source};

/// What must be locked on node 1 so that the statement finds the same on every node: nothing if it
/// changes rows that it names by primary key and reads nothing else.
pub(crate) fn replica_locks(analysis: &Analysis<'_>) -> Vec<TableLock> {
    let is_target = |item: ItemId| {
        analysis.target == Some(item)
            || analysis.modifications.iter().any(|of| of.target == Some(item))
    };
    if let ([_], Some(target)) = (&analysis.items[..], analysis.target)
        && names_rows_by_key(analysis, target)
    {
        return Vec::new();
    }
    let mut locks: Vec<TableLock> = Vec::new();
    for (item, of) in analysis.items.iter().enumerate() {
        // Locking a view locks what it reads.
        let relation = match of.source {
            Source::Table { relation, .. }
                if matches!(relation.kind, RelationKind::View { .. })
                    || of.replicated().is_some() =>
            {
                relation
            }
            _ => continue,
        };
        let mode = if is_target(item) { LockMode::ShareRowExclusive } else { LockMode::Share };
        let (schema, table) = (&relation.schema, &relation.name);
        match locks.iter_mut().find(|known| known.schema == *schema && known.table == *table) {
            Some(known) => known.mode = known.mode.max(mode),
            None => {
                locks.push(TableLock { schema: schema.clone(), table: table.clone(), mode });
            }
        }
    }
    // One order for all, so that two statements never hold some of the locks each.
    locks.sort_by(|one, other| (&one.schema, &one.table).cmp(&(&other.schema, &other.table)));
    locks
}

fn names_rows_by_key(analysis: &Analysis<'_>, target: ItemId) -> bool {
    let Some(relation) = analysis.items[target].replicated() else { return false };
    let is_named = |column: &usize| {
        analysis.constraints.iter().any(|constraint| match constraint {
            Constraint::OneOf { column: of, .. } => of.item == target && of.column == *column,
            Constraint::Equal { .. } | Constraint::Bound { .. } => false,
        })
    };
    !relation.primary_key.is_empty() && relation.primary_key.iter().all(is_named)
}
