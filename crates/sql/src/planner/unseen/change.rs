//! What a change of the schema makes servers run besides what it executes.
//!
//! Owns: three ways of it. A server computes what is constant in the expressions of the tables that it scans, builds or
//! compares; it folds those of a new table as soon as they are there; and it reads the constants of a text that
//! it only analyses.
//! Never: judges statements that read or write rows (`reach` does).
//! Start reading at [`add_computed_by_change`].

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableStmt, AlterTableType, ConstrType, CreateFunctionStmt, Node, RangeVar,
};

use crate::closure::Search;
use crate::planner::context::Context;
use crate::planner::sql_text::deparse_expression;
use crate::planner::syntax::{column_makes_sequence, option, option_text};
use crate::walk;

/// Adds all of that for a statement, whatever it is.
pub(super) fn add_computed_by_change(
    tree: &NodeEnum,
    text: &str,
    context: &Context<'_>,
    search: &mut Search<'_>,
) {
    if computes_of_tables(tree) {
        add_planned(tree, context, search);
    }
    if is_analysed_only(tree) {
        search.analysed(text);
    }
    for folded in folded_in_new_tables(tree) {
        search.text(&folded);
    }
    if let NodeEnum::CreateFunctionStmt(create) = tree {
        for body in bodies_analysed(create) {
            // Its parameters stand outside of it.
            search.analysed(body);
            search.analysed(text);
        }
    }
}

/// What a child holds, if there is one.
pub(super) fn inner(node: Option<&Node>) -> Option<&NodeEnum> {
    node.and_then(|node| node.node.as_ref())
}

/// Whether it changes the schema in a way that makes a server scan, build or compare something of the tables
/// that it names: then what is constant in their checks and indexes is computed. Others must work for a client
/// that wants to get rid of such code.
fn computes_of_tables(tree: &NodeEnum) -> bool {
    match tree {
        NodeEnum::CreateStmt(_)
        | NodeEnum::CreateSchemaStmt(_)
        | NodeEnum::IndexStmt(_)
        | NodeEnum::ReindexStmt(_)
        | NodeEnum::ClusterStmt(_) => true,
        NodeEnum::AlterTableStmt(alter) => alters(
            alter,
            &[
                AlterTableType::AtAddColumn,
                AlterTableType::AtSetNotNull,
                AlterTableType::AtSetExpression,
                AlterTableType::AtAddIndex,
                AlterTableType::AtAddConstraint,
                AlterTableType::AtAddIndexConstraint,
                AlterTableType::AtValidateConstraint,
                AlterTableType::AtAlterColumnType,
                AlterTableType::AtSetLogged,
                AlterTableType::AtSetUnLogged,
                AlterTableType::AtSetAccessMethod,
                AlterTableType::AtAddInherit,
                AlterTableType::AtAttachPartition,
                AlterTableType::AtDetachPartition,
            ],
        ),
        _ => false,
    }
}

/// Whether an ALTER TABLE has a command of one of these kinds.
pub(super) fn alters(alter: &AlterTableStmt, kinds: &[AlterTableType]) -> bool {
    alter.cmds.iter().any(|command| match &command.node {
        Some(NodeEnum::AlterTableCmd(command)) => kinds.contains(&command.subtype()),
        _ => false,
    })
}

/// Whether it adds a column that rows may get values of: all are written anew then, by what the table has. Where it only
/// may be NULL they are not.
pub(super) fn fills_rows(command: &Node, context: &Context<'_>) -> bool {
    let Some(NodeEnum::AlterTableCmd(command)) = &command.node else { return false };
    let Some(NodeEnum::ColumnDef(column)) = inner(command.def.as_deref()) else { return false };
    let name = column.type_name.as_ref().and_then(|name| inner(name.names.last()));
    let is_users = match name {
        Some(NodeEnum::String(name)) => {
            context.catalog.code.types_named(&name.sval).next().is_some()
        }
        _ => true,
    };
    command.subtype() == AlterTableType::AtAddColumn
        && (!column.constraints.is_empty() || is_users || column_makes_sequence(column))
}

/// Whether it stores expressions or queries, or may: the server analyses them, and executes none.
fn is_analysed_only(tree: &NodeEnum) -> bool {
    matches!(
        tree,
        NodeEnum::ViewStmt(_)
            | NodeEnum::CreateStmt(_)
            | NodeEnum::CreateForeignTableStmt(_)
            | NodeEnum::CreateSchemaStmt(_)
            | NodeEnum::IndexStmt(_)
            | NodeEnum::AlterTableStmt(_)
            | NodeEnum::CreatePolicyStmt(_)
            | NodeEnum::AlterPolicyStmt(_)
            | NodeEnum::RuleStmt(_)
            | NodeEnum::CreateTrigStmt(_)
            | NodeEnum::CreateDomainStmt(_)
            | NodeEnum::AlterDomainStmt(_)
            | NodeEnum::CreateStatsStmt(_)
            | NodeEnum::DefineStmt(_)
            | NodeEnum::CreatePublicationStmt(_)
            | NodeEnum::AlterPublicationStmt(_)
    ) || matches!(tree, NodeEnum::CreateFunctionStmt(create)
        if create.sql_body.is_some() || create.parameters.iter().any(has_default))
}

/// Parts of the expressions that a new table is checked, generated, indexed or partitioned by which hold no column: the
/// server folds them as soon as they are there. As queries of their own.
fn folded_in_new_tables(tree: &NodeEnum) -> Vec<String> {
    let mut found = Vec::new();
    add_folded_in_new_tables(tree, &mut found);
    found
}

fn add_folded_in_new_tables(tree: &NodeEnum, found: &mut Vec<String>) {
    let each = |nodes: &[Node], found: &mut Vec<String>| {
        for node in nodes.iter().filter_map(|node| node.node.as_ref()) {
            add_folded_in_new_tables(node, found);
        }
    };
    match tree {
        NodeEnum::CreateSchemaStmt(create) => each(&create.schema_elts, found),
        NodeEnum::CreateStmt(create) => {
            each(&create.table_elts, found);
            if let Some(spec) = &create.partspec {
                each(&spec.part_params, found);
            }
        }
        NodeEnum::ColumnDef(column) => each(&column.constraints, found),
        NodeEnum::Constraint(constraint) => {
            match constraint.contype() {
                ConstrType::ConstrCheck | ConstrType::ConstrGenerated => {
                    add_constants(constraint.raw_expr.as_deref(), found);
                }
                _ => (),
            }
            each(&constraint.exclusions, found);
            add_constants(constraint.where_clause.as_deref(), found);
        }
        NodeEnum::List(pair) => each(&pair.items, found),
        NodeEnum::PartitionElem(key) => add_constants(key.expr.as_deref(), found),
        NodeEnum::IndexElem(key) => add_constants(key.expr.as_deref(), found),
        NodeEnum::IndexStmt(index) => {
            each(&index.index_params, found);
            add_constants(index.where_clause.as_deref(), found);
        }
        _ => (),
    }
}

/// Adds the largest parts of an expression that hold no column.
fn add_constants(expression: Option<&Node>, found: &mut Vec<String>) {
    let (Some(expression), Some(tree)) = (expression, inner(expression)) else { return };
    if !holds_column(tree) {
        if !matches!(tree, NodeEnum::AConst(_)) {
            // What cannot be printed is nothing that a constant can be.
            found.extend(deparse_expression(expression).map(|text| format!("SELECT {text}")));
        }
        return;
    }
    walk::read::children(tree, &mut |child: &Node| add_constants(Some(child), found));
}

fn holds_column(tree: &NodeEnum) -> bool {
    let mut holds = matches!(tree, NodeEnum::ColumnRef(_));
    walk::read::children(tree, &mut |child: &Node| {
        holds = holds || inner(Some(child)).is_some_and(holds_column);
    });
    holds
}

fn has_default(parameter: &Node) -> bool {
    matches!(inner(Some(parameter)), Some(NodeEnum::FunctionParameter(it)) if it.defexpr.is_some())
}

/// Bodies that a server analyses when the function is made: those in SQL.
fn bodies_analysed(create: &CreateFunctionStmt) -> impl Iterator<Item = &str> {
    let is_sql = option(&create.options, "language")
        .and_then(option_text)
        .is_some_and(|language| language.eq_ignore_ascii_case("sql"));
    let body = option(&create.options, "as").filter(|_| is_sql);
    let parts = body.and_then(|it| inner(it.arg.as_deref())).and_then(|it| match it {
        NodeEnum::List(parts) => Some(&parts.items),
        _ => None,
    });
    parts.into_iter().flatten().filter_map(|part| match inner(Some(part)) {
        Some(NodeEnum::String(text)) => Some(text.sval.as_str()),
        _ => None,
    })
}

/// Adds what a server computes of the tables that a change of the schema names, and of those above them.
fn add_planned(tree: &NodeEnum, context: &Context<'_>, search: &mut Search<'_>) {
    for_each_table(tree, &mut |range| {
        let Some(relation) = context.relation(range) else { return };
        search.plan(relation.oid, true);
        // Indexes are built, bounds of partitions compared, foreign keys looked up.
        search.see(relation);
        for above in context.catalog.code.above(relation.oid) {
            search.plan(above, true);
        }
    });
}

/// Calls `visit` for the tables that a change of a table, or of an index, names.
pub(in crate::planner) fn for_each_table(tree: &NodeEnum, visit: &mut dyn FnMut(&RangeVar)) {
    let parts = |nodes: &[Node], visit: &mut dyn FnMut(&RangeVar)| {
        for part in nodes.iter().filter_map(|node| node.node.as_ref()) {
            for_each_table(part, visit);
        }
    };
    match tree {
        NodeEnum::RangeVar(range) => visit(range),
        NodeEnum::CreateSchemaStmt(create) => parts(&create.schema_elts, visit),
        NodeEnum::CreateStmt(create) => {
            parts(&create.inh_relations, visit);
            parts(&create.table_elts, visit);
        }
        NodeEnum::AlterTableStmt(alter) => {
            alter.relation.iter().for_each(&mut *visit);
            parts(&alter.cmds, visit);
        }
        NodeEnum::AlterTableCmd(command) => {
            inner(command.def.as_deref()).into_iter().for_each(|def| for_each_table(def, visit));
        }
        NodeEnum::TableLikeClause(like) => like.relation.iter().for_each(visit),
        NodeEnum::PartitionCmd(partition) => partition.name.iter().for_each(visit),
        NodeEnum::ColumnDef(column) => parts(&column.constraints, visit),
        NodeEnum::Constraint(constraint) => constraint.pktable.iter().for_each(visit),
        NodeEnum::IndexStmt(index) => index.relation.iter().for_each(visit),
        NodeEnum::ReindexStmt(reindex) => reindex.relation.iter().for_each(visit),
        NodeEnum::ClusterStmt(cluster) => cluster.relation.iter().for_each(visit),
        _ => (),
    }
}
