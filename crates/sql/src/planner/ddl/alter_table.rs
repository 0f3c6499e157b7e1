//! ALTER TABLE: what a placement forbids, and what each node would do differently.
//!
//! Owns: refusals of changes that would leave rows on wrong nodes or copies unequal.
//! Never: checks constraints against the placement.

use pg_query::NodeEnum;
use pg_query::protobuf::{AlterTableCmd, AlterTableStmt, AlterTableType, ConstrType, Constraint};

use super::added_column::{
    Values, added_column, check_added, computed, computed_of, draws_of_others,
};
use super::nodes::everywhere;
use super::refused;
use crate::catalog::{KeyPart, Relation};
use crate::plan::{Ddl, Planned};
use crate::planner::context::Context;
use crate::planner::replicas;
use crate::planner::syntax::column_makes_sequence;
use crate::refusal::Refusal;
use crate::statement::Statement;

pub(super) fn plan(alter: &AlterTableStmt, context: &Context<'_>) -> Result<Planned, Refusal> {
    let relation = alter.relation.as_ref().and_then(|range| context.relation(range));
    let mut touches_sequences = false;
    let mut values = Vec::new();
    for command in &alter.cmds {
        let Some(NodeEnum::AlterTableCmd(command)) = &command.node else {
            values.push(Values::OfEachNode);
            continue;
        };
        if let Some(relation) = relation {
            check_referred(command, relation)?;
        }
        values.push(match relation {
            Some(relation) if !context.catalog.is_solo() => {
                check(alter, command, relation, context)?
            }
            _ => Values::OfEachNode,
        });
        touches_sequences |= match command.subtype() {
            AlterTableType::AtAddColumn => added_column(command).is_some_and(column_makes_sequence),
            AlterTableType::AtAddIdentity
            | AlterTableType::AtSetIdentity
            | AlterTableType::AtDropIdentity => true,
            _ => false,
        };
    }
    let values_computed = match relation {
        Some(relation) => computed_of(alter, &values, relation, context)?.map(Box::new),
        None => None,
    };
    touches_sequences |= values.contains(&Values::Drawn);
    let differs = values.iter().any(|it| matches!(it, Values::Copied | Values::CopiedAlways));
    // Other nodes' copies of a sequence must give values to be replaced.
    touches_sequences |= differs && draws_any(alter);
    let rows = relation.filter(|_| differs).map(|relation| {
        let effect = replicas::Effect::inserted();
        replicas::rows_of_tables([relation].into_iter(), &effect, context)
    });
    let ddl = Ddl {
        creates: None,
        may_drop: false,
        touches_sequences,
        rows,
        computed: values_computed,
        ..Ddl::default()
    };
    Ok(everywhere(ddl))
}

/// Whether a column is added whose values come from a sequence that is there.
fn draws_any(alter: &AlterTableStmt) -> bool {
    alter.cmds.iter().any(|command| match &command.node {
        Some(NodeEnum::AlterTableCmd(command)) => {
            added_column(command).is_some_and(draws_of_others)
        }
        _ => false,
    })
}

/// Whether servers choose the name of an index that a statement makes.
pub fn leaves_index_unnamed(statement: &Statement) -> bool {
    match &statement.tree {
        NodeEnum::IndexStmt(index) => index.idxname.is_empty(),
        NodeEnum::AlterTableStmt(alter) => alter.cmds.iter().any(|command| {
            let Some(NodeEnum::AlterTableCmd(command)) = &command.node else { return false };
            let defined = command.def.as_ref().and_then(|it| it.node.as_ref());
            match defined {
                Some(NodeEnum::Constraint(constraint)) => has_unnamed_index(constraint),
                Some(NodeEnum::ColumnDef(column)) => column.constraints.iter().any(|it| {
                    matches!(&it.node, Some(NodeEnum::Constraint(of)) if has_unnamed_index(of))
                }),
                _ => false,
            }
        }),
        _ => false,
    }
}

fn has_unnamed_index(constraint: &Constraint) -> bool {
    let has_index = matches!(
        constraint.contype(),
        ConstrType::ConstrPrimary | ConstrType::ConstrUnique | ConstrType::ConstrExclusion
    );
    has_index && constraint.conname.is_empty() && constraint.indexname.is_empty()
}

/// What the rows that are there get.
fn check(
    alter: &AlterTableStmt,
    command: &AlterTableCmd,
    relation: &Relation,
    context: &Context<'_>,
) -> Result<Values, Refusal> {
    match command.subtype() {
        AlterTableType::AtSetExpression => {
            check_key(command, relation).map(|()| Values::OfEachNode)
        }
        AlterTableType::AtDropColumn | AlterTableType::AtAlterColumnType => {
            check_key(command, relation)?;
            // ALTER … TYPE … USING may recompute every row on each node.
            if let Some(using) =
                added_column(command).and_then(|column| column.raw_default.as_ref())
            {
                return computed(using, &command.name, relation, context);
            }
            Ok(Values::OfEachNode)
        }
        AlterTableType::AtAddColumn => match added_column(command) {
            Some(column) => check_added(alter, column, relation, context),
            None => Ok(Values::OfEachNode),
        },
        AlterTableType::AtAttachPartition | AlterTableType::AtDetachPartition => {
            let Some(NodeEnum::PartitionCmd(partition)) =
                command.def.as_ref().and_then(|def| def.node.as_ref())
            else {
                return Ok(Values::OfEachNode);
            };
            if partition.concurrent {
                return Err(refused::concurrently("DETACH PARTITION"));
            }
            let other = partition.name.as_ref().and_then(|name| context.relation(name));
            match (command.subtype(), other) {
                (AlterTableType::AtAttachPartition, Some(other)) => {
                    same_placement(relation, other).map(|()| Values::OfEachNode)
                }
                _ => Ok(Values::OfEachNode),
            }
        }
        AlterTableType::AtAddInherit => {
            let Some(NodeEnum::RangeVar(parent)) =
                command.def.as_ref().and_then(|def| def.node.as_ref())
            else {
                return Ok(Values::OfEachNode);
            };
            match context.relation(parent) {
                Some(parent) => same_placement(parent, relation).map(|()| Values::OfEachNode),
                None => Ok(Values::OfEachNode),
            }
        }
        _ => Ok(Values::OfEachNode),
    }
}

/// Its foreign keys would be made anew, and with the client's constraint the entries would go whose own is to be.
fn check_referred(command: &AlterTableCmd, relation: &Relation) -> Result<(), Refusal> {
    let is_named = |column: &usize| relation.columns[*column].name == command.name;
    if command.subtype() != AlterTableType::AtAlterColumnType
        || !relation.referred.iter().any(is_named)
    {
        return Ok(());
    }
    Err(Refusal::unsupported(
        format!("column \"{}\" cannot be changed to another type", command.name),
        "A foreign key that holds over all nodes refers to it.",
        "DROP CONSTRAINT first, and add it again.",
    ))
}

/// The distribution key must stay what the buckets were computed from.
fn check_key(command: &AlterTableCmd, relation: &Relation) -> Result<(), Refusal> {
    let key = relation.placement.key_columns();
    let is_named = |key: &KeyPart| {
        relation.columns.get(key.column).is_some_and(|column| column.name == command.name)
    };
    if !key.iter().any(is_named) {
        return Ok(());
    }
    let (change, hint) = match command.subtype() {
        AlterTableType::AtDropColumn => ("dropped", "Distribute the table by another column first"),
        AlterTableType::AtSetExpression => {
            ("computed otherwise", "Make the table replicated or round robin first")
        }
        _ => ("changed to another type", "Make the table replicated or round robin first"),
    };
    Err(Refusal::unsupported(
        format!("column \"{}\" cannot be {change}", command.name),
        format!(
            "It is {}the distribution key of {}: its value says on which node a row is.",
            if key.len() == 1 { "" } else { "in " },
            relation.sql_name()
        ),
        format!("{hint} (tutti_distribute, tutti_replicate, tutti_round_robin)."),
    ))
}

fn same_placement(parent: &Relation, child: &Relation) -> Result<(), Refusal> {
    let key_names = |relation: &Relation| -> Vec<_> {
        let key = relation.placement.key_columns().into_iter();
        key.map(|key| relation.columns.get(key.column).map(|column| column.name.clone())).collect()
    };
    let same = match (parent.placement.key_map(), child.placement.key_map()) {
        (Some(left), Some(right)) => left == right && key_names(parent) == key_names(child),
        _ => parent.placement == child.placement,
    };
    if same {
        return Ok(());
    }
    Err(Refusal::unsupported(
        format!("{} is placed differently from {}", child.sql_name(), parent.sql_name()),
        "The rows of a child table are rows of its parent and must be where the parent's are.",
        "Give the child the parent's placement first (tutti_distribute and its kin).",
    ))
}
