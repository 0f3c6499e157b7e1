//! Plans of schema changes: on all nodes, or on node 1 for what is temporary, or a refusal.
//!
//! Owns: which statements change the schema of the cluster and what else the executor must then
//! do.
//! Never: checks that keys and constraints fit the placement; the executor does, on the catalog
//! that the change leaves behind.
//! Start reading at [`plan_ddl`].

mod added_column;
mod alter_table;
mod concurrently;
mod create_table;
mod extent;
mod foreign_keys;
mod materialized_view;
mod nodes;
mod refused;
mod temporary;

use pg_query::NodeEnum;
use pg_query::protobuf::ObjectType;

pub use alter_table::leaves_index_unnamed;
pub use concurrently::index_name;
pub(super) use create_table::plan_select_into;
pub(super) use extent::is_of_relations;
pub use materialized_view::lending_of;
pub(super) use refused::refuse_cast;

use super::context::Context;
use super::{entries, row_types};
use crate::plan::{Ddl, Plan, Planned, SchemaPlan};
use crate::refusal::Refusal;
use crate::statement::Statement;
use nodes::everywhere;

/// Plans every statement that changes the schema.
pub(super) fn plan_ddl(statement: &Statement, context: &Context<'_>) -> Result<Planned, Refusal> {
    let tree = &statement.tree;
    if let NodeEnum::RefreshMatViewStmt(refresh) = tree
        && materialized_view::may_need_others(refresh, context)
    {
        let planned = materialized_view::plan_refresh(refresh, context)?;
        return nodes::with_nodes(planned, statement, context);
    }
    // A temporary object may hide other tables from the next statement on, which is noted before.
    let is_temporary = temporary::concerns_only_temporary(tree, context);
    if !matches!(is_temporary, Ok(true))
        && let Some(planned) = nodes::on_node_1_alone(statement, context)
    {
        return Ok(planned);
    }
    if let Some(refusal) = refused::always(tree, context) {
        return Err(refusal);
    }
    if !context.catalog.is_solo() && !matches!(is_temporary, Ok(true)) {
        row_types::refuse_mistakable(statement, context)?;
    }
    let global_unique = match tree {
        NodeEnum::IndexStmt(index) if statement.global_unique => entries::wanted(index, context)?,
        _ => None,
    };
    match tree {
        NodeEnum::DropStmt(drop) if drop.concurrent => return Ok(concurrently::plan_drop(drop)),
        NodeEnum::IndexStmt(index) if index.concurrent && matches!(is_temporary, Ok(false)) => {
            return concurrently::plan_create(index, context);
        }
        _ => (),
    }
    if is_temporary? {
        if statement.distribute_by.is_some() {
            return Err(Refusal::unsupported(
                "a temporary table cannot be distributed",
                "Temporary tables are on node 1 only.",
                "Leave out TEMPORARY or DISTRIBUTE BY.",
            ));
        }
        let changes_code = temporary::changes_code(tree);
        let plan = Plan::Schema(SchemaPlan::TemporaryDdl { gather: None, changes_code });
        return Ok(Planned::new(plan, "temporary objects are on node 1"));
    }
    let mut planned = match tree {
        NodeEnum::CreateStmt(create) => create_table::plan(create, statement, context),
        NodeEnum::CreateTableAsStmt(create) => create_table::plan_as(create, statement, context),
        NodeEnum::AlterTableStmt(alter) => alter_table::plan(alter, context),
        NodeEnum::RefreshMatViewStmt(refresh) => materialized_view::plan_refresh(refresh, context),
        _ => Ok(everywhere(Ddl {
            creates: None,
            may_drop: may_drop(tree),
            touches_sequences: touches_sequences(tree),
            names_role: names_role(tree),
            global_unique,
            truncates: entries::truncated(tree, context),
            ..Ddl::default()
        })),
    }?;
    if let Plan::Schema(SchemaPlan::Ddl(ddl)) = &mut planned.plan {
        ddl.foreign_keys = foreign_keys::added(tree, context);
    }
    nodes::with_nodes(planned, statement, context)
}

fn may_drop(tree: &NodeEnum) -> bool {
    matches!(
        tree,
        NodeEnum::DropStmt(_)
            | NodeEnum::DropOwnedStmt(_)
            | NodeEnum::RenameStmt(_)
            | NodeEnum::AlterObjectSchemaStmt(_)
            | NodeEnum::AlterExtensionStmt(_)
            | NodeEnum::DropRoleStmt(_)
    )
}

/// The role that is called so from then on.
fn names_role(tree: &NodeEnum) -> Option<String> {
    match tree {
        NodeEnum::CreateRoleStmt(create) => Some(create.role.clone()),
        NodeEnum::RenameStmt(rename) if rename.rename_type() == ObjectType::ObjectRole => {
            Some(rename.newname.clone())
        }
        _ => None,
    }
}

fn touches_sequences(tree: &NodeEnum) -> bool {
    match tree {
        NodeEnum::CreateSeqStmt(_)
        | NodeEnum::AlterSeqStmt(_)
        // An extension's script may create anything.
        | NodeEnum::CreateExtensionStmt(_)
        | NodeEnum::AlterExtensionStmt(_) => true,
        NodeEnum::TruncateStmt(truncate) => truncate.restart_seqs,
        _ => false,
    }
}
