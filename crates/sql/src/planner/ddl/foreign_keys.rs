//! Foreign keys that a statement adds, as far as they may hold over all nodes by entries of their own.
//!
//! Owns: the statement as nodes run it then: no node can look at the rows that there are.
//! Never: decides whether they are to hold so (the session's setting does), nor whether they can (the nodes do).
//! Start reading at [`added`]; the reasons are docs/decisions/2026-11-30-foreign-keys-over-nodes.md.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableCmd, AlterTableStmt, AlterTableType, ColumnDef, ConstrType, Constraint, DropBehavior,
    Node,
};

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
    let mut added = Vec::new();
    let mut is_changed = false;
    for command in &mut alter.cmds {
        let Some(NodeEnum::AlterTableCmd(command)) = &mut command.node else { continue };
        match command.def.as_mut().and_then(|def| def.node.as_mut()) {
            Some(NodeEnum::Constraint(constraint))
                if is_foreign_key(constraint)
                    && !constraint.skip_validation
                    && is_over_nodes(constraint, own, context) =>
            {
                leave_unchecked(constraint);
                is_changed = true;
            }
            Some(NodeEnum::ColumnDef(column)) => {
                added.extend(taken_out(column, own, context));
            }
            _ => (),
        }
    }
    if !is_changed && added.is_empty() {
        return None;
    }
    alter.cmds.extend(added);
    NodeEnum::AlterTableStmt(alter).deparse(pg_query::DeparseOptions::default()).ok()
}

fn leave_unchecked(constraint: &mut Constraint) {
    constraint.skip_validation = true;
    constraint.initially_valid = false;
}

/// The foreign keys of a new column, as commands that add them to the table: of a column they cannot be NOT VALID, and a
/// default would be looked for.
fn taken_out(column: &mut ColumnDef, own: &Relation, context: &Context<'_>) -> Vec<Node> {
    let mut commands = Vec::new();
    let mut kept = Vec::new();
    let mut last: Option<Constraint> = None;
    let add = |constraint: Option<Constraint>, commands: &mut Vec<Node>| {
        let Some(constraint) = constraint else { return };
        let command = AlterTableCmd {
            subtype: AlterTableType::AtAddConstraint as i32,
            def: Some(Box::new(Node { node: Some(NodeEnum::Constraint(Box::new(constraint))) })),
            behavior: DropBehavior::DropRestrict as i32,
            ..AlterTableCmd::default()
        };
        commands.push(Node { node: Some(NodeEnum::AlterTableCmd(Box::new(command))) });
    };
    for node in std::mem::take(&mut column.constraints) {
        let constraint = match &node.node {
            Some(NodeEnum::Constraint(constraint)) => constraint,
            _ => {
                kept.push(node);
                continue;
            }
        };
        match (constraint.contype(), &mut last) {
            // What is said of the one before it.
            (ConstrType::ConstrAttrDeferrable, Some(last)) => last.deferrable = true,
            (ConstrType::ConstrAttrNotDeferrable, Some(last)) => last.deferrable = false,
            (ConstrType::ConstrAttrDeferred, Some(last)) => {
                (last.deferrable, last.initdeferred) = (true, true);
            }
            (ConstrType::ConstrAttrImmediate, Some(last)) => last.initdeferred = false,
            (ConstrType::ConstrForeign, _) => {
                add(last.take(), &mut commands);
                let mut named = Constraint::clone(constraint);
                let name = pg_query::protobuf::String { sval: column.colname.clone() };
                named.fk_attrs = vec![Node { node: Some(NodeEnum::String(name)) }];
                match is_over_nodes(&named, own, context) {
                    true => {
                        leave_unchecked(&mut named);
                        last = Some(named);
                    }
                    false => kept.push(node),
                }
            }
            _ => {
                add(last.take(), &mut commands);
                kept.push(node);
            }
        }
    }
    add(last.take(), &mut commands);
    column.constraints = kept;
    commands
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
