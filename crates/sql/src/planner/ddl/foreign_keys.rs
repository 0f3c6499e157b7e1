//! Foreign keys that a statement adds, as far as they may hold over all nodes by entries of their own.
//!
//! Owns: the statement as nodes run it then: no node can look at the rows that there are.
//! Never: decides whether they are to hold so (the session's setting does), nor whether they can (the nodes do).
//! Start reading at [`added`]; the reasons are docs/decisions/2026-11-30-foreign-keys-over-nodes.md.

use pg_query::NodeEnum;
use pg_query::protobuf::{AlterTableCmd, AlterTableStmt, ConstrType, Constraint, Node};

use crate::catalog::{Placement, Relation};
use crate::plan::AddedForeignKeys;
use crate::planner::context::Context;

/// The foreign keys of a statement that makes or alters a table; `None`: it adds none.
pub(super) fn added(tree: &NodeEnum, context: &Context<'_>) -> Option<Box<AddedForeignKeys>> {
    match tree {
        NodeEnum::CreateStmt(create) => {
            let constraints = create.table_elts.iter().chain(&create.constraints);
            let has_any = constraints.into_iter().any(has_foreign_key);
            has_any.then(|| Box::new(AddedForeignKeys { unvalidated: None }))
        }
        NodeEnum::AlterTableStmt(alter) => {
            let has_any = alter.cmds.iter().any(|command| match &command.node {
                Some(NodeEnum::AlterTableCmd(command)) => {
                    command.def.as_deref().is_some_and(has_foreign_key)
                }
                _ => false,
            });
            let unvalidated = || unvalidated(alter, context);
            has_any.then(|| Box::new(AddedForeignKeys { unvalidated: unvalidated() }))
        }
        _ => None,
    }
}

fn has_foreign_key(element: &Node) -> bool {
    match &element.node {
        Some(NodeEnum::Constraint(constraint)) => is_foreign_key(constraint),
        Some(NodeEnum::ColumnDef(column)) => column.constraints.iter().any(has_foreign_key),
        _ => false,
    }
}

fn is_foreign_key(constraint: &Constraint) -> bool {
    constraint.contype() == ConstrType::ConstrForeign
}

/// The statement with NOT VALID at those foreign keys that no node could check; `None`: there are none.
fn unvalidated(alter: &AlterTableStmt, context: &Context<'_>) -> Option<String> {
    let own = alter.relation.as_ref().and_then(|range| context.relation(range))?;
    let mut alter = alter.clone();
    let mut is_changed = false;
    for command in &mut alter.cmds {
        let Some(NodeEnum::AlterTableCmd(command)) = &mut command.node else { continue };
        if let Some(constraint) = foreign_key(command)
            && !constraint.skip_validation
            && is_over_nodes(constraint, own, context)
        {
            constraint.skip_validation = true;
            constraint.initially_valid = false;
            is_changed = true;
        }
    }
    if !is_changed {
        return None;
    }
    NodeEnum::AlterTableStmt(alter).deparse(pg_query::DeparseOptions::default()).ok()
}

fn foreign_key(command: &mut AlterTableCmd) -> Option<&mut Constraint> {
    match &mut command.def.as_mut()?.node {
        Some(NodeEnum::Constraint(constraint)) if is_foreign_key(constraint) => Some(constraint),
        _ => None,
    }
}

/// Whether a row and the one that it refers to may be on different nodes, both tables being distributed by hash.
fn is_over_nodes(constraint: &Constraint, own: &Relation, context: &Context<'_>) -> bool {
    let Some(referred) = constraint.pktable.as_ref().and_then(|range| context.relation(range))
    else {
        return false;
    };
    let is_hash = |relation: &Relation| {
        matches!(relation.placement, Placement::Hash { .. } | Placement::HashOfSeveral { .. })
    };
    if !is_hash(own) || !is_hash(referred) {
        return false;
    }
    let names = |nodes: &[Node]| -> Vec<String> {
        let name = |node: &Node| match &node.node {
            Some(NodeEnum::String(name)) => Some(name.sval.clone()),
            _ => None,
        };
        nodes.iter().filter_map(name).collect()
    };
    let columns = names(&constraint.fk_attrs);
    let mut others = names(&constraint.pk_attrs);
    if others.is_empty() {
        others = referred.primary_key.iter().map(|at| referred.columns[*at].name.clone()).collect();
    }
    let pairs = |own_key: &str, other_key: &str| {
        columns.iter().zip(&others).any(|(own, other)| own == own_key && other == other_key)
    };
    let (keys, other_keys) = (own.placement.key_columns(), referred.placement.key_columns());
    let is_paired = keys.len() == other_keys.len()
        && own.placement.key_map() == referred.placement.key_map()
        && keys.iter().zip(other_keys.iter()).all(|(key, other)| {
            pairs(&own.columns[key.column].name, &referred.columns[other.column].name)
        });
    !is_paired
}
