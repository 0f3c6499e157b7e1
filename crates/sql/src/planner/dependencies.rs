//! On which relations a statement, and its plan, depend.
//!
//! Owns: that nothing by which a plan could become wrong is left out. Never: keeps plans; the gateway's cache
//! does.
//! Start reading at [`concerns`].

mod absent;

use std::collections::BTreeSet;
use std::sync::Arc;

use pg_query::NodeEnum;

use super::context::Context;
use super::{mentions, unseen};
use crate::catalog::{Catalog, NameScope, Placement, Relation, RelationKind};
use crate::closure::Reach;
use crate::plan::Concerns;
use crate::statement::Statement;

/// All relations that `statement` names, views looked through.
pub fn relations_of(statement: &Statement, context: &Context<'_>) -> Vec<Arc<Relation>> {
    let named = mentions::with_targets(&statement.tree, context).relations;
    let of_utility = mentions::ranges_of_utility(&statement.tree).into_iter();
    let of_utility = of_utility.filter_map(|range| context.relation(range).cloned());
    named.into_values().chain(of_utility).collect()
}

/// Whether a view stands for a table, read through further views, of which node 1 does not have all rows to itself.
pub fn shows_other_nodes(view: &Arc<Relation>, catalog: &Catalog) -> bool {
    let scope = NameScope::default();
    let read = mentions::of_relation(view, &Context::new(catalog, &scope)).relations;
    let is_table = |relation: &&Arc<Relation>| relation.kind == RelationKind::Table;
    read.values().filter(is_table).any(|table| table.placement != Placement::Home)
}

/// What code that a statement runs may read on whichever node runs it: replicated tables.
#[derive(Debug)]
pub struct ReadByCode(BTreeSet<String>);

impl ReadByCode {
    /// Whether the relation may be among it.
    pub fn may_be(&self, relation: &Relation) -> bool {
        // What a function reads that is only declared to be right has no names of tables.
        !self.0.is_empty()
            && relation.placement == Placement::Replicated
            && (self.0.contains(&relation.sql_name())
                || self.0.iter().any(|name| !name.starts_with('"')))
    }
}

/// See [`ReadByCode`]. What opaque code reads on node 1 is asked there.
pub fn read_by_code(statement: &Statement, context: &Context<'_>) -> ReadByCode {
    ReadByCode(unseen::of_statement(statement, context).reads)
}

/// What the plan of a statement depends on; `None` if that cannot be determined. `is_asked`: what its code has
/// touched is asked afterwards.
pub(super) fn concerns(
    statement: &Statement,
    reach: &Reach,
    is_asked: bool,
    context: &Context<'_>,
) -> Option<Concerns> {
    if let NodeEnum::FetchStmt(_) | NodeEnum::ExecuteStmt(_) = &statement.tree {
        // It is of another statement.
        return None;
    }
    Some(Concerns {
        relations: relations(statement, reach, context),
        calls: unseen::calls_of(statement, reach, context).into_iter().collect(),
        is_asked,
        names_absent: absent::names_absent(&statement.tree, context),
    })
}

/// The relations on which the plan of a statement depends, by OID; `None` if these cannot be
/// determined. A change to where other relations are does not concern it.
fn relations(statement: &Statement, reach: &Reach, context: &Context<'_>) -> Option<Arc<[u32]>> {
    use pg_query::protobuf::{DropBehavior, ObjectType};
    let names_tables = match &statement.tree {
        NodeEnum::SelectStmt(_)
        | NodeEnum::DeclareCursorStmt(_)
        | NodeEnum::InsertStmt(_)
        | NodeEnum::UpdateStmt(_)
        | NodeEnum::DeleteStmt(_)
        | NodeEnum::MergeStmt(_)
        | NodeEnum::CopyStmt(_)
        | NodeEnum::ExplainStmt(_)
        | NodeEnum::CreateTableAsStmt(_)
        | NodeEnum::LockStmt(_)
        | NodeEnum::AlterTableStmt(_)
        | NodeEnum::IndexStmt(_)
        | NodeEnum::RenameStmt(_)
        | NodeEnum::CreateStmt(_)
        | NodeEnum::ViewStmt(_) => true,
        NodeEnum::TruncateStmt(truncate) => truncate.behavior() != DropBehavior::DropCascade,
        NodeEnum::DropStmt(drop) => {
            drop.behavior() != DropBehavior::DropCascade
                && matches!(drop.remove_type(), ObjectType::ObjectTable | ObjectType::ObjectView)
        }
        _ => false,
    };
    if !names_tables || reach.opaque.is_some() || !reach.reads.is_empty() {
        return None;
    }
    let named = mentions::with_targets(&statement.tree, context).relations;
    let mut oids: BTreeSet<u32> = named.values().map(|relation| relation.oid).collect();
    // Parts that write, foreign keys, parents: all that is named in the text. A view stands
    // for what it reads.
    for token in crate::statement::tokens::scan(&statement.text).ok()? {
        if token.token == pg_query::protobuf::Token::Uident {
            return None;
        }
        let Some(name) = token.column_name() else { continue };
        let relations = context.catalog.relations.values();
        for relation in relations.filter_map(|all| all.get(&*name)) {
            if oids.insert(relation.oid) {
                let read = mentions::of_relation(relation, context).relations;
                oids.extend(read.values().map(|relation| relation.oid));
            }
        }
    }
    // What is written with them: children, and what foreign keys with actions reach.
    let mut next: Vec<u32> = oids.iter().copied().collect();
    while let Some(relation) = next.pop() {
        let others = context.catalog.code.written_with(relation).iter().map(|it| it.relation);
        next.extend(others.filter(|other| oids.insert(*other)));
    }
    Some(oids.into_iter().collect())
}
