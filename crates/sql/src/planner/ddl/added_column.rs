//! ALTER TABLE … ADD COLUMN: what the rows that are there get of the new column.
//!
//! Owns: which defaults every node may compute for its own rows, which node 1 computes once for all, and which
//! come from sequences. Never: checks constraints against the placement.
//! Start reading at [`check_added`], then [`computed`].
//!
//! PostgreSQL computes a default that is not volatile once, and keeps the value for all rows that are there.
//! Nodes would compute one each; so all of them are told node 1's value, and the expression becomes the default of later
//! rows in the same statement. Values of sequences each node draws from its own copy, and the executor moves them to what
//! it draws for them on node 1.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableCmd, AlterTableStmt, AlterTableType, ColumnDef, ConstrType, Constraint, DropBehavior,
    FuncCall, Node, TypeCast, TypeName, a_const,
};

use crate::built_in_types::may_be_time;
use crate::catalog::{Placement, Relation, Volatility, quote_identifier};
use crate::plan::{Computed, Draws};
use crate::planner::context::Context;
use crate::planner::current_time::{has_time_of_making, names_current_time, says_now};
use crate::planner::determinism::expression_obstacle;
use crate::planner::functions::{means_built_in, volatility};
use crate::planner::gaps::{cut, expression, gap_of_time, refuse_marked};
use crate::planner::sql_text::{deparse, deparse_expression, parse_expression};
use crate::planner::syntax::{column_makes_sequence, contains, name_of, string};
use crate::refusal::Refusal;
use crate::walk;

/// Volatile functions of PostgreSQL's that look at nothing but chance and the clock: where a row is on one node, that
/// may ask them.
const OF_CHANCE: [&str; 7] = [
    "random",
    "random_normal",
    "gen_random_uuid",
    "uuidv4",
    "uuidv7",
    "clock_timestamp",
    "timeofday",
];

/// How the rows that are there get their values.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Values {
    /// Each node computes those of its rows.
    OfEachNode,
    /// The copies of a replicated table may come out differently: they get those of node 1.
    Copied,
    /// The same, and the column takes no other values than its sequence's.
    CopiedAlways,
    /// Node 1 computes one for all rows.
    Once,
    /// A sequence has one for each row.
    Drawn,
}

pub(super) fn added_column(command: &AlterTableCmd) -> Option<&ColumnDef> {
    match command.def.as_ref()?.node.as_ref()? {
        NodeEnum::ColumnDef(column) => Some(column),
        _ => None,
    }
}

/// A column whose default each node would evaluate for existing rows.
pub(super) fn check_added(
    alter: &AlterTableStmt,
    column: &ColumnDef,
    relation: &Relation,
    context: &Context<'_>,
) -> Result<Values, Refusal> {
    // An error, or nothing where it says IF NOT EXISTS.
    let is_there = relation.column(&column.colname).is_some() && !drops(alter, &column.colname);
    if is_there || relation.placement == Placement::Home {
        return Ok(Values::OfEachNode);
    }
    if column_makes_sequence(column) {
        let is_fixed = constraints(column).any(|constraint| {
            constraint.contype() == ConstrType::ConstrIdentity && constraint.generated_when == "a"
        });
        return match relation.placement {
            Placement::Replicated if is_fixed => Ok(Values::CopiedAlways),
            Placement::Replicated => Ok(Values::Copied),
            _ if !may_draw(column, relation, context) => Err(not_immutable(&column.colname)),
            _ => Ok(Values::Drawn),
        };
    }
    let mut values = Values::OfEachNode;
    let mut is_given = false;
    for constraint in constraints(column) {
        let Some(value) = &constraint.raw_expr else { continue };
        match constraint.contype() {
            ConstrType::ConstrDefault => {
                is_given = true;
                values = given(value, column, relation, context)?;
            }
            ConstrType::ConstrGenerated => {
                is_given = true;
                // A function that is declared IMMUTABLE and is not would give copies other values: they are compared
                // with node 1's rows.
                if relation.placement == Placement::Replicated && calls_users(value, context) {
                    values = values.max(Values::Copied);
                }
            }
            _ => (),
        }
    }
    let of_type = column.type_name.as_ref().filter(|it| !is_given && it.array_bounds.is_empty());
    if let Some(name) = of_type.and_then(|it| it.names.last()).and_then(string) {
        // Of several schemas' domains, any may be meant.
        for default in context.catalog.code.defaults_of_domains(name) {
            // A constant of a time may be another on each node, by when that has read it.
            if relation.placement == Placement::Replicated && has_time_of_making(default) {
                values = values.max(Values::Copied);
            }
            values = values.max(match parse_expression(default) {
                Some(value) => computed(&value, &column.colname, relation, context)?,
                None => Values::Copied,
            });
        }
    }
    Ok(values)
}

/// Whether a function is called that is not PostgreSQL's own.
fn calls_users(expression: &Node, context: &Context<'_>) -> bool {
    let is_users = |node: &NodeEnum| match node {
        NodeEnum::FuncCall(call) => {
            let (schema, name) = name_of(call);
            !means_built_in(schema, name, context)
        }
        _ => false,
    };
    expression.node.as_ref().is_some_and(|node| contains(node, &is_users))
}

/// Whether the statement drops a column of this name, which comes first.
fn drops(alter: &AlterTableStmt, name: &str) -> bool {
    alter.cmds.iter().any(|command| match &command.node {
        Some(NodeEnum::AlterTableCmd(command)) => {
            command.subtype() == AlterTableType::AtDropColumn && command.name == name
        }
        _ => false,
    })
}

fn constraints(column: &ColumnDef) -> impl Iterator<Item = &Constraint> {
    column.constraints.iter().filter_map(|constraint| match &constraint.node {
        Some(NodeEnum::Constraint(constraint)) => Some(&**constraint),
        _ => None,
    })
}

/// The default that a column is added with.
fn given(
    value: &Node,
    column: &ColumnDef,
    relation: &Relation,
    context: &Context<'_>,
) -> Result<Values, Refusal> {
    if sequence(value, context).is_some() {
        return match relation.placement {
            // Every copy of the sequence gives values that are replaced.
            Placement::Replicated => Ok(Values::Copied),
            _ if !may_draw(column, relation, context) => Err(not_immutable(&column.colname)),
            _ => Ok(Values::Drawn),
        };
    }
    let type_name = column.type_name.as_ref().and_then(|it| it.names.last()).and_then(string);
    let is_now = says_now(value) && type_name.is_none_or(may_be_time);
    let differs = is_now || expression_obstacle(value, context).is_some();
    let is_once = !merges(column, relation, context)
        && volatility(value, context) != Volatility::Volatile
        && (!is_now || is_literal_of_now(value))
        && column.type_name.as_ref().is_some_and(keeps_its_length);
    match &relation.placement {
        Placement::Async { .. } if differs => Err(not_immutable(&column.colname)),
        // (An expression that is immutable has no obstacle that another node's rows would show.)
        Placement::Replicated if differs && is_once => Ok(Values::Once),
        Placement::Hash { .. } | Placement::HashOfSeveral { .. } | Placement::RoundRobin
            if is_once
                && (is_now
                    // As a name that is cast to the number that a node has for it.
                    || (differs && !says_now(value))
                    || volatility(value, context) == Volatility::Stable) =>
        {
            Ok(Values::Once)
        }
        Placement::Hash { .. } | Placement::HashOfSeveral { .. } | Placement::RoundRobin
            if is_now =>
        {
            Err(not_immutable(&column.colname))
        }
        Placement::Hash { .. } | Placement::HashOfSeveral { .. } | Placement::RoundRobin
            if is_of_chance(value, context) =>
        {
            Ok(Values::OfEachNode)
        }
        _ => computed(value, &column.colname, relation, context),
    }
}

/// A value that each row gets from an expression that is not a column's own default.
pub(super) fn computed(
    value: &Node,
    column: &str,
    relation: &Relation,
    context: &Context<'_>,
) -> Result<Values, Refusal> {
    match relation.placement {
        Placement::Home => Ok(Values::OfEachNode),
        // Other nodes' copies of a sequence give no values.
        Placement::Replicated if draws(value) => Err(not_immutable(column)),
        Placement::Replicated => Ok(match expression_obstacle(value, context) {
            Some(_) => Values::Copied,
            None => Values::OfEachNode,
        }),
        _ if volatility(value, context) != Volatility::Immutable => Err(not_immutable(column)),
        _ => Ok(Values::OfEachNode),
    }
}

/// Whether rows of a table get values of a sequence where they are.
fn may_draw(column: &ColumnDef, relation: &Relation, context: &Context<'_>) -> bool {
    relation.placement.is_distributed() && !merges(column, relation, context)
}

/// Whether a table below has such a column already: it keeps its own default.
fn merges(column: &ColumnDef, relation: &Relation, context: &Context<'_>) -> bool {
    let tables = context.catalog.code.with_children(relation.oid);
    1 < tables.len()
        && context.catalog.relations.values().flat_map(std::collections::HashMap::values).any(
            |other| {
                other.oid != relation.oid
                    && tables.contains(&other.oid)
                    && other.column(&column.colname).is_some()
            },
        )
}

/// Whether a literal may be cast to the type without its length and then be stored in it: a bare `char` is one
/// character long.
fn keeps_its_length(name: &TypeName) -> bool {
    let last = name.names.last().and_then(string);
    last.is_some_and(|last| !matches!(last, "bpchar" | "char" | "bit" | "character"))
        && !name.setof
        && !name.pct_type
}

/// Whether it is nothing but a literal of the current time, of which PostgreSQL keeps the value that it has then.
fn is_literal_of_now(value: &Node) -> bool {
    match &value.node {
        Some(NodeEnum::AConst(constant)) => {
            matches!(&constant.val, Some(a_const::Val::Sval(text)) if names_current_time(&text.sval))
        }
        Some(NodeEnum::TypeCast(cast)) => cast.arg.as_deref().is_some_and(|argument| {
            matches!(argument.node, Some(NodeEnum::AConst(_))) && is_literal_of_now(argument)
        }),
        _ => false,
    }
}

/// Whether all that it calls is immutable or of chance.
fn is_of_chance(value: &Node, context: &Context<'_>) -> bool {
    let Some(of) = &value.node else { return true };
    let here = match of {
        NodeEnum::FuncCall(call) => {
            let (schema, name) = name_of(call);
            (OF_CHANCE.contains(&name) && means_built_in(schema, name, context))
                || context
                    .catalog
                    .function(context.scope, schema, name)
                    .is_some_and(|it| it.volatility == Volatility::Immutable)
        }
        NodeEnum::SqlvalueFunction(_) | NodeEnum::SubLink(_) => false,
        _ => true,
    };
    let mut all = here;
    walk::read::children(of, &mut |child| all = all && is_of_chance(child, context));
    all
}

/// The sequence, as it is written, of a default that is the next value of one.
fn sequence<'v>(value: &'v Node, context: &Context<'_>) -> Option<&'v str> {
    let of_call = |call: &'v FuncCall| {
        let (schema, name) = name_of(call);
        let is_nextval = name == "nextval" && means_built_in(schema, name, context);
        let [argument] = &call.args[..] else { return None };
        let text = match &argument.node {
            Some(NodeEnum::TypeCast(cast)) => cast
                .type_name
                .as_ref()
                .and_then(|it| string(it.names.last()?))
                .filter(|name| *name == "regclass")
                .and(cast.arg.as_deref()),
            _ => Some(argument),
        };
        match text.and_then(|it| it.node.as_ref()) {
            Some(NodeEnum::AConst(constant)) if is_nextval => match &constant.val {
                Some(a_const::Val::Sval(text)) => Some(text.sval.as_str()),
                _ => None,
            },
            _ => None,
        }
    };
    match value.node.as_ref()? {
        NodeEnum::FuncCall(call) => of_call(call),
        NodeEnum::TypeCast(cast) => match cast.arg.as_deref()?.node.as_ref()? {
            NodeEnum::FuncCall(call) => of_call(call),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a column's default draws from a sequence that is there.
pub(super) fn draws_of_others(column: &ColumnDef) -> bool {
    constraints(column).any(|constraint| constraint.raw_expr.as_deref().is_some_and(draws))
}

/// Whether it draws from a sequence.
fn draws(value: &Node) -> bool {
    let is_draw =
        |of: &NodeEnum| matches!(of, NodeEnum::FuncCall(call) if name_of(call).1 == "nextval");
    value.node.as_ref().is_some_and(|of| contains(of, &is_draw))
}

/// What the executor does for these values beyond running the statement; `values`: of each command, in order.
pub(super) fn computed_of(
    alter: &AlterTableStmt,
    values: &[Values],
    relation: &Relation,
    context: &Context<'_>,
) -> Result<Option<Computed>, Refusal> {
    let mut rewritten = alter.clone();
    let mut draws = Vec::new();
    let mut always = Vec::new();
    let mut commands = Vec::new();
    for (index, mut node) in std::mem::take(&mut rewritten.cmds).into_iter().enumerate() {
        let (Some(NodeEnum::AlterTableCmd(command)), Some(values)) =
            (&mut node.node, values.get(index))
        else {
            commands.push(node);
            continue;
        };
        // Made meanwhile, it would get the default without the values.
        let is_once = *values == Values::Once;
        command.missing_ok &= !is_once;
        let Some(NodeEnum::ColumnDef(column)) =
            command.def.as_mut().and_then(|it| it.node.as_mut())
        else {
            commands.push(node);
            continue;
        };
        let mut default = None;
        match values {
            Values::OfEachNode | Values::Copied => (),
            Values::CopiedAlways => {
                always.push(quote_identifier(&column.colname));
                for constraint in &mut column.constraints {
                    if let Some(NodeEnum::Constraint(constraint)) = &mut constraint.node
                        && constraint.contype() == ConstrType::ConstrIdentity
                    {
                        "d".clone_into(&mut constraint.generated_when);
                    }
                }
            }
            Values::Once => default = say_once(column)?,
            Values::Drawn => {
                let named = constraints(column)
                    .filter(|it| it.contype() == ConstrType::ConstrDefault)
                    .find_map(|it| sequence(it.raw_expr.as_deref()?, context));
                draws.push(Draws {
                    table: relation.sql_name(),
                    column: column.colname.clone(),
                    sequence: named.map(str::to_owned),
                });
            }
        }
        // Before what the client says of the column behind this: of several defaults the last one counts.
        commands.push(node);
        commands.extend(default);
    }
    rewritten.cmds = commands;
    let is_rewritten = values.iter().any(|it| matches!(it, Values::Once | Values::CopiedAlways));
    let text = match is_rewritten {
        false => None,
        true => {
            let tree = NodeEnum::AlterTableStmt(alter.clone());
            refuse_marked(&tree)?;
            Some(cut(&deparse(&NodeEnum::AlterTableStmt(rewritten))?)?)
        }
    };
    let afterwards = (!always.is_empty()).then(|| {
        let actions: Vec<_> =
            always.iter().map(|it| format!("ALTER COLUMN {it} SET GENERATED ALWAYS")).collect();
        format!("ALTER TABLE {} {}", relation.sql_name(), actions.join(", "))
    });
    let is_some = text.is_some() || !draws.is_empty();
    Ok(is_some.then_some(Computed { text, draws, afterwards }))
}

/// Puts a gap for node 1's value in place of a column's default. Returns the command that gives it its default, if that is
/// not the value.
fn say_once(column: &mut ColumnDef) -> Result<Option<Node>, Refusal> {
    let type_name = column.type_name.clone().map(|it| TypeName { typmods: Vec::new(), ..it });
    for constraint in &mut column.constraints {
        let Some(NodeEnum::Constraint(constraint)) = &mut constraint.node else { continue };
        if constraint.contype() != ConstrType::ConstrDefault {
            continue;
        }
        let Some(value) = constraint.raw_expr.as_mut() else { continue };
        let cast = TypeCast { arg: Some(value.clone()), type_name, location: -1 };
        let cast = Node { node: Some(NodeEnum::TypeCast(Box::new(cast))) };
        let gap = expression(&gap_of_time(&deparse_expression(&cast)?))?;
        let written = std::mem::replace(value, Box::new(gap));
        if is_literal_of_now(&written) {
            return Ok(None);
        }
        let command = AlterTableCmd {
            subtype: AlterTableType::AtColumnDefault.into(),
            name: column.colname.clone(),
            def: Some(written),
            // What is no member of an enum aborts the library's writer.
            behavior: DropBehavior::DropRestrict.into(),
            ..AlterTableCmd::default()
        };
        return Ok(Some(Node { node: Some(NodeEnum::AlterTableCmd(Box::new(command))) }));
    }
    Ok(None)
}

fn not_immutable(column: &str) -> Refusal {
    Refusal::unsupported(
        format!("column \"{column}\" cannot be computed on each node"),
        "The rows that are there get its value from an expression that each node would evaluate \
         for itself, with different results.",
        "Add the column without the default, set it with UPDATE, then ALTER COLUMN … SET DEFAULT.",
    )
}
