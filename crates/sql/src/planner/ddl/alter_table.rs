//! ALTER TABLE: what a placement forbids, and what each node would do differently.
//!
//! Owns: refusals of changes that would leave rows on wrong nodes or copies unequal.
//! Never: checks constraints against the placement.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableCmd, AlterTableStmt, AlterTableType, ColumnDef, ConstrType, Constraint, Node,
};

use super::nodes::everywhere;
use super::refused;
use crate::catalog::{Placement, Relation, Volatility};
use crate::plan::{Ddl, Planned};
use crate::planner::built_in_types::may_be_time;
use crate::planner::context::Context;
use crate::planner::current_time::{has_time_of_making, says_now};
use crate::planner::determinism::expression_obstacle;
use crate::planner::functions::volatility;
use crate::planner::replicas;
use crate::planner::sql_text::parse_expression;
use crate::planner::syntax::{column_makes_sequence, name_of, string};
use crate::refusal::Refusal;
use crate::statement::Statement;
use crate::walk;

pub(super) fn plan(alter: &AlterTableStmt, context: &Context<'_>) -> Result<Planned, Refusal> {
    let relation = alter.relation.as_ref().and_then(|range| context.relation(range));
    let (mut touches_sequences, mut differs) = (false, false);
    for command in &alter.cmds {
        let Some(NodeEnum::AlterTableCmd(command)) = &command.node else { continue };
        if let Some(relation) = relation
            && !context.catalog.is_solo()
        {
            differs |= check(command, relation, context)?;
        }
        touches_sequences |= match command.subtype() {
            AlterTableType::AtAddColumn => added_column(command).is_some_and(column_makes_sequence),
            AlterTableType::AtAddIdentity
            | AlterTableType::AtSetIdentity
            | AlterTableType::AtDropIdentity => true,
            _ => false,
        };
    }
    let rows = relation.filter(|_| differs).map(|relation| {
        let effect = replicas::Effect::inserted();
        replicas::rows_of_tables([relation].into_iter(), &effect, context)
    });
    let ddl = Ddl { creates: None, may_drop: false, touches_sequences, rows, ..Ddl::default() };
    Ok(everywhere(ddl))
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

fn added_column(command: &AlterTableCmd) -> Option<&ColumnDef> {
    match command.def.as_ref()?.node.as_ref()? {
        NodeEnum::ColumnDef(column) => Some(column),
        _ => None,
    }
}

/// Whether the rows of a replicated table may come out differently.
fn check(
    command: &AlterTableCmd,
    relation: &Relation,
    context: &Context<'_>,
) -> Result<bool, Refusal> {
    match command.subtype() {
        AlterTableType::AtDropColumn | AlterTableType::AtAlterColumnType => {
            check_key(command, relation)?;
            // ALTER … TYPE … USING may recompute every row on each node.
            if let Some(using) =
                added_column(command).and_then(|column| column.raw_default.as_ref())
            {
                return computed(using, &command.name, relation, context);
            }
            Ok(false)
        }
        AlterTableType::AtAddColumn => match added_column(command) {
            Some(column) => check_added(column, relation, context),
            None => Ok(false),
        },
        AlterTableType::AtAttachPartition | AlterTableType::AtDetachPartition => {
            let Some(NodeEnum::PartitionCmd(partition)) =
                command.def.as_ref().and_then(|def| def.node.as_ref())
            else {
                return Ok(false);
            };
            if partition.concurrent {
                return Err(refused::concurrently("DETACH PARTITION"));
            }
            let other = partition.name.as_ref().and_then(|name| context.relation(name));
            match (command.subtype(), other) {
                (AlterTableType::AtAttachPartition, Some(other)) => {
                    same_placement(relation, other).map(|()| false)
                }
                _ => Ok(false),
            }
        }
        AlterTableType::AtAddInherit => {
            let Some(NodeEnum::RangeVar(parent)) =
                command.def.as_ref().and_then(|def| def.node.as_ref())
            else {
                return Ok(false);
            };
            match context.relation(parent) {
                Some(parent) => same_placement(parent, relation).map(|()| false),
                None => Ok(false),
            }
        }
        _ => Ok(false),
    }
}

/// The distribution key must stay what the buckets were computed from.
fn check_key(command: &AlterTableCmd, relation: &Relation) -> Result<(), Refusal> {
    let Placement::Hash { key, .. } = relation.placement else { return Ok(()) };
    if relation.columns.get(key).is_none_or(|column| column.name != command.name) {
        return Ok(());
    }
    let (change, hint) = match command.subtype() {
        AlterTableType::AtDropColumn => ("dropped", "Distribute the table by another column first"),
        _ => ("changed to another type", "Make the table replicated or round robin first"),
    };
    Err(Refusal::unsupported(
        format!("column \"{}\" cannot be {change}", command.name),
        format!(
            "It is the distribution key of {}: its value says on which node a row is.",
            relation.sql_name()
        ),
        format!("{hint} (tutti_distribute, tutti_replicate, tutti_round_robin)."),
    ))
}

/// A column whose default each node would evaluate for existing rows. Whether the
/// rows of a replicated table may come out differently.
fn check_added(
    column: &ColumnDef,
    relation: &Relation,
    context: &Context<'_>,
) -> Result<bool, Refusal> {
    let constraints = || {
        column.constraints.iter().filter_map(|constraint| match &constraint.node {
            Some(NodeEnum::Constraint(constraint)) => Some(&**constraint),
            _ => None,
        })
    };
    if column_makes_sequence(column) && relation.placement != Placement::Home {
        let is_fixed = constraints().any(|constraint| {
            constraint.contype() == ConstrType::ConstrIdentity && constraint.generated_when == "a"
        });
        // No other value may be stored in such a column.
        return match relation.placement == Placement::Replicated && !is_fixed {
            true => Ok(true),
            false => Err(not_immutable(&column.colname)),
        };
    }
    let mut differs = false;
    let mut is_given = false;
    for constraint in constraints() {
        if constraint.contype() == ConstrType::ConstrDefault
            && let Some(value) = &constraint.raw_expr
        {
            is_given = true;
            differs |= computed(value, &column.colname, relation, context)?;
            let type_name =
                column.type_name.as_ref().and_then(|it| it.names.last()).and_then(string);
            let is_apart = !matches!(relation.placement, Placement::Home | Placement::Replicated);
            if is_apart && says_now(value) && type_name.is_none_or(may_be_time) {
                return Err(not_immutable(&column.colname));
            }
        }
    }
    let of_type = column.type_name.as_ref().filter(|it| !is_given && it.array_bounds.is_empty());
    if let Some(name) = of_type.and_then(|it| it.names.last()).and_then(string) {
        // Of several schemas' domains, any may be meant.
        for default in context.catalog.code.defaults_of_domains(name) {
            // A constant of a time may be another on each node, by when that has read it.
            differs |= relation.placement == Placement::Replicated && has_time_of_making(default);
            differs |= match parse_expression(default) {
                Some(value) => computed(&value, &column.colname, relation, context)?,
                None => true,
            };
        }
    }
    Ok(differs)
}

/// A value that each row gets. Whether the copies of a replicated table may come out differently.
fn computed(
    value: &Node,
    column: &str,
    relation: &Relation,
    context: &Context<'_>,
) -> Result<bool, Refusal> {
    match relation.placement {
        Placement::Home => Ok(false),
        // Other nodes' copies of a sequence give no values.
        Placement::Replicated if draws(value) => Err(not_immutable(column)),
        Placement::Replicated => Ok(expression_obstacle(value, context).is_some()),
        _ if volatility(value, context) != Volatility::Immutable => Err(not_immutable(column)),
        _ => Ok(false),
    }
}

/// Whether it draws from a sequence.
fn draws(value: &Node) -> bool {
    let Some(of) = &value.node else { return false };
    let mut found = matches!(of, NodeEnum::FuncCall(call) if name_of(call).1 == "nextval");
    walk::read::children(of, &mut |child| found = found || draws(child));
    found
}

fn not_immutable(column: &str) -> Refusal {
    Refusal::unsupported(
        format!("column \"{column}\" cannot be computed on each node"),
        "The rows that are there get its value from an expression that each node would evaluate \
         for itself, with different results.",
        "Add the column without the default, set it with UPDATE, then ALTER COLUMN … SET DEFAULT.",
    )
}

fn same_placement(parent: &Relation, child: &Relation) -> Result<(), Refusal> {
    let key_name = |relation: &Relation| match relation.placement {
        Placement::Hash { key, .. } => relation.columns.get(key).map(|column| column.name.clone()),
        _ => None,
    };
    let same = match (&parent.placement, &child.placement) {
        (Placement::Hash { map: left, .. }, Placement::Hash { map: right, .. }) => {
            left == right && key_name(parent) == key_name(child)
        }
        (left, right) => left == right,
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
