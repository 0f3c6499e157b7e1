//! CREATE TABLE, CREATE TABLE … AS and SELECT … INTO.
//!
//! Owns: what the executor must register of a new table, and splitting CREATE TABLE … AS into a
//! schema change and an INSERT. Never: chooses a placement for tables that ask for none.

use pg_query::NodeEnum;
use pg_query::protobuf::{CreateStmt, CreateTableAsStmt, IntoClause, Node, ObjectType, SelectStmt};

use super::materialized_view::plan_materialized_view;
use super::nodes::{self, everywhere};
use super::refused;
use crate::catalog::quote_identifier;
use crate::plan::{CreatedTable, DataPlan, Ddl, NodeChoice, Plan, Planned, RunOn, SchemaPlan};
use crate::planner::context::Context;
use crate::planner::query;
use crate::planner::sql_text::deparse;
use crate::planner::syntax::column_makes_sequence;
use crate::planner::temporary::is_temporary;
use crate::refusal::Refusal;
use crate::statement::Statement;
use crate::walk;

pub(super) fn plan(
    create: &CreateStmt,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let Some(relation) = &create.relation else {
        return Err(Refusal::postgres("42601", "syntax error at end of input"));
    };
    let parent = create.inh_relations.iter().find_map(|parent| match &parent.node {
        Some(NodeEnum::RangeVar(parent)) => {
            Some((written(&parent.schemaname), parent.relname.clone()))
        }
        _ => None,
    });
    if parent.is_some() && statement.distribute_by.is_some() {
        return Err(Refusal::unsupported(
            "a partition or child table cannot have a placement of its own",
            "Its rows are rows of its parent and must be where the parent's are.",
            "Leave out DISTRIBUTE BY.",
        ));
    }
    Ok(everywhere(Ddl {
        creates: Some(CreatedTable {
            schema: written(&relation.schemaname),
            name: relation.relname.clone(),
            distribute_by: statement.distribute_by.clone(),
            follows: parent.is_none() && nodes::follows(create, statement, context),
            parent,
            if_not_exists: create.if_not_exists,
            filled_by: None,
        }),
        may_drop: false,
        touches_sequences: create.table_elts.iter().any(makes_sequence),
        ..Ddl::default()
    }))
}

/// Whether a table element makes a sequence: serial types, identity, LIKE with options.
fn makes_sequence(element: &Node) -> bool {
    match &element.node {
        Some(NodeEnum::ColumnDef(column)) => column_makes_sequence(column),
        Some(NodeEnum::TableLikeClause(like)) => like.options != 0,
        _ => false,
    }
}

/// CREATE TABLE … AS, and CREATE MATERIALIZED VIEW, which the grammar treats alike.
pub(super) fn plan_as(
    create: &CreateTableAsStmt,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let query_tree = create.query.as_ref().and_then(|query| query.node.as_ref());
    let (Some(query_tree), Some(into)) = (query_tree, create.into.as_deref()) else {
        return Err(Refusal::postgres("42601", "syntax error at end of input"));
    };
    if create.objtype() == ObjectType::ObjectMatview {
        return plan_materialized_view(create, query_tree, statement, context);
    }
    let NodeEnum::SelectStmt(select) = query_tree else { return Err(refused::execute()) };
    let Some(relation) = &into.rel else {
        return Err(Refusal::postgres("42601", "syntax error at end of input"));
    };
    if is_temporary(relation, context) {
        return plan_temporary(create, select, statement, context);
    }
    let mut empty = create.clone();
    empty.is_select_into = false;
    if let Some(into) = empty.into.as_mut() {
        into.skip_data = true;
    }
    let insert = (!into.skip_data).then(|| insert_text(into, select, context)).transpose()?;
    let ddl = Ddl {
        creates: Some(CreatedTable {
            schema: written(&relation.schemaname),
            name: relation.relname.clone(),
            distribute_by: statement.distribute_by.clone(),
            parent: None,
            follows: false,
            if_not_exists: create.if_not_exists,
            filled_by: insert.clone(),
        }),
        may_drop: false,
        touches_sequences: false,
        ..Ddl::default()
    };
    let create = deparse(&NodeEnum::CreateTableAsStmt(Box::new(empty)))?;
    Ok(Planned::new(
        SchemaPlan::CreateTableAs { ddl, create, insert },
        "the table is created everywhere, then filled by its placement",
    ))
}

/// `INSERT INTO t query`: the new table's columns are the query's, in order.
fn insert_text(
    into: &IntoClause,
    select: &SelectStmt,
    context: &Context<'_>,
) -> Result<String, Refusal> {
    let relation = into.rel.clone().unwrap_or_default();
    let mut query = NodeEnum::SelectStmt(Box::new(select.clone()));
    keep_meaning(&mut query, &relation.relname, context)?;
    let query = deparse(&query)?;
    let name = quote_identifier(&relation.relname);
    Ok(match written(&relation.schemaname) {
        Some(schema) => format!("INSERT INTO {}.{name} {query}", quote_identifier(&schema)),
        None => format!("INSERT INTO {name} {query}"),
    })
}

/// The query means what its names mean before the new table is there, which may hide one of its tables.
fn keep_meaning(query: &mut NodeEnum, new: &str, context: &Context<'_>) -> Result<(), Refusal> {
    let mut found = Hidden::default();
    qualify(query, new, context, &mut found);
    match found {
        Hidden { table: Some(table), is_cte: true } => Err(Refusal::unsupported(
            format!("the query of the new table \"{new}\" has WITH and a table by that name"),
            format!("Which of its names are those of {table} is not told apart."),
            "Give what is in WITH another name.",
        )),
        _ => Ok(()),
    }
}

/// What a name means that the new table has too.
#[derive(Default)]
struct Hidden {
    table: Option<String>,
    is_cte: bool,
}

fn qualify(node: &mut NodeEnum, new: &str, context: &Context<'_>, found: &mut Hidden) {
    match node {
        NodeEnum::RangeVar(range) if range.relname == new && range.schemaname.is_empty() => {
            if let Some(relation) = context.relation(range) {
                range.schemaname.clone_from(&relation.schema);
                found.table = Some(relation.sql_name());
            }
        }
        NodeEnum::CommonTableExpr(cte) => found.is_cte |= cte.ctename == new,
        _ => (),
    }
    walk::write::children(node, &mut |child| {
        if let Some(node) = &mut child.node {
            qualify(node, new, context, found);
        }
    });
}

/// CREATE TEMPORARY TABLE … AS: the table is on node 1, so its rows are brought there.
fn plan_temporary(
    create: &CreateTableAsStmt,
    select: &SelectStmt,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    if statement.distribute_by.is_some() {
        return Err(Refusal::unsupported(
            "a temporary table cannot be distributed",
            "Temporary tables are on node 1 only.",
            "Leave out TEMPORARY or DISTRIBUTE BY.",
        ));
    }
    let source = query::plan_select(select, context)?;
    if let Plan::Data(DataPlan::One {
        node: NodeChoice::Home | NodeChoice::Speaker | NodeChoice::Any,
        ..
    }) = source.plan
    {
        let why = "temporary tables are on node 1, which has all that the query reads";
        return Ok(Planned::new(
            SchemaPlan::TemporaryDdl { gather: None, changes_code: false },
            why,
        ));
    }
    // The query's text is put between what precedes and follows it, so the statement is
    // written out with an empty query in its place, and cut there.
    const MARK: &str = "SELECT 'tutti: the query'";
    let mut marked = create.clone();
    marked.is_select_into = false;
    let mark = crate::statement::parse(MARK)?;
    marked.query = mark.into_iter().next().map(|mark| Box::new(Node { node: Some(mark.tree) }));
    let text = deparse(&NodeEnum::CreateTableAsStmt(Box::new(marked)))?;
    let Some((before, after)) = text.split_once(MARK) else {
        return Err(Refusal::unsupported(
            "this temporary table cannot be filled from distributed tables",
            "Its definition could not be separated from its query.",
            "Create the table first, then fill it with INSERT … SELECT.",
        ));
    };
    let mut gather = query::gather_query(select, before, after, context)?;
    gather.run_on = RunOn::One(NodeChoice::Home);
    gather.access = crate::plan::Access::Write;
    Ok(Planned::new(
        SchemaPlan::TemporaryDdl { gather: Some(gather), changes_code: false },
        "temporary tables are on node 1, so the rows are brought there",
    ))
}

/// SELECT … INTO: the same as CREATE TABLE … AS.
pub(in crate::planner) fn plan_select_into(
    select: &SelectStmt,
    statement: &Statement,
    context: &Context<'_>,
) -> Result<Planned, Refusal> {
    let mut query = select.clone();
    let Some(into) = take_into(&mut query) else {
        return Err(Refusal::postgres("42601", "SELECT ... INTO is not allowed here"));
    };
    let create = CreateTableAsStmt {
        query: Some(Box::new(Node { node: Some(NodeEnum::SelectStmt(Box::new(query))) })),
        into: Some(into),
        objtype: ObjectType::ObjectTable.into(),
        is_select_into: true,
        if_not_exists: false,
    };
    if let Some(planned) = super::nodes::select_into_on_node_1_alone(&create, statement, context) {
        return Ok(planned);
    }
    // A temporary one over undistributed tables runs as written, so the tree stays the client's.
    let planned = plan_as(&create, statement, context)?;
    super::nodes::with_nodes(planned, statement, context)
}

/// Takes the INTO clause, which in a set operation is in the leftmost query.
fn take_into(select: &mut SelectStmt) -> Option<Box<IntoClause>> {
    match select.into_clause.take() {
        Some(into) => Some(into),
        None => take_into(select.larg.as_mut()?),
    }
}

/// A schema name as written, if it was.
fn written(schema: &str) -> Option<String> {
    Some(schema.to_owned()).filter(|schema| !schema.is_empty())
}
