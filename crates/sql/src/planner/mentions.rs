//! Which relations a tree names, however deep, views looked through.
//!
//! Owns: a coarse answer for statements that are refused or run as a whole. Where rows come from
//! exactly is determined by `query.rs`.
//! Never: misses a relation; a CTE named like a table counts as that table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, RangeVar};

use super::context::Context;
use super::syntax::written;
use super::temporary::is_temporary;
use crate::catalog::{NameScope, Placement, Relation, RelationKind};
use crate::walk;

/// What relations a tree names.
#[derive(Debug, Default)]
pub(super) struct Mentions {
    /// The first distributed table, qualified.
    pub distributed: Option<String>,
    /// The first replicated table, qualified.
    pub replicated: Option<String>,
    /// The first table that is on node 1 alone, qualified.
    pub home: Option<String>,
    /// The first temporary one.
    pub temporary: Option<String>,
    /// All of them by qualified name, including views and what they read.
    pub relations: BTreeMap<String, Arc<Relation>>,
    /// Those of them, by OID, that the tree itself names.
    pub named: BTreeSet<u32>,
}

/// How many views may lie over one another before the innermost counts as distributed.
const VIEW_DEPTH_MAX: usize = 32;

/// What relations `tree` names.
pub(super) fn of(tree: &NodeEnum, context: &Context<'_>) -> Mentions {
    let mut mentions = Mentions::default();
    mentions.add_tree(tree, context, 0);
    mentions
}

/// What a relation stands for: itself, or for a view what its query names.
pub(super) fn of_relation(relation: &Arc<Relation>, context: &Context<'_>) -> Mentions {
    let mut mentions = Mentions::default();
    mentions.add_relation(relation, context, 0);
    mentions
}

/// The relations, by OID, that a view's own query names.
pub(super) fn named_by(view: &Relation, context: &Context<'_>) -> BTreeSet<u32> {
    let RelationKind::View { definition } = &view.kind else { return BTreeSet::new() };
    // Every name in it is qualified.
    let scope = NameScope::default();
    let context = Context { scope: &scope, ..*context };
    let trees = crate::statement::parse(definition).unwrap_or_default();
    trees.iter().flat_map(|tree| of(&tree.tree, &context).named).collect()
}

/// The relations that a statement names: those of [`of`], and those that it writes.
pub(super) fn with_targets(tree: &NodeEnum, context: &Context<'_>) -> Mentions {
    let mut mentions = of(tree, context);
    mentions.add_targets(tree, context);
    if let Some(inner) = query_within(tree) {
        mentions.add_tree(inner, context, 0);
        mentions.add_targets(inner, context);
    }
    mentions
}

/// The statement that a statement explains, copies, declares or makes something of.
pub(super) fn query_within(tree: &NodeEnum) -> Option<&NodeEnum> {
    let inner = match tree {
        NodeEnum::ExplainStmt(explain) => explain.query.as_deref(),
        NodeEnum::DeclareCursorStmt(declare) => declare.query.as_deref(),
        NodeEnum::CreateTableAsStmt(create) => create.query.as_deref(),
        NodeEnum::ViewStmt(view) => view.query.as_deref(),
        NodeEnum::CopyStmt(copy) => copy.query.as_deref(),
        _ => None,
    };
    inner?.node.as_ref()
}

/// What a statement names that neither reads nor writes rows by a query.
pub(super) fn ranges_of_utility(tree: &NodeEnum) -> Vec<&RangeVar> {
    fn range(node: &Node) -> Option<&RangeVar> {
        match node.node.as_ref()? {
            NodeEnum::RangeVar(range) => Some(range),
            NodeEnum::VacuumRelation(vacuum) => vacuum.relation.as_ref(),
            _ => None,
        }
    }
    match tree {
        NodeEnum::TruncateStmt(truncate) => truncate.relations.iter().filter_map(range).collect(),
        NodeEnum::LockStmt(lock) => lock.relations.iter().filter_map(range).collect(),
        NodeEnum::VacuumStmt(vacuum) => vacuum.rels.iter().filter_map(range).collect(),
        NodeEnum::ReindexStmt(reindex) => reindex.relation.iter().collect(),
        NodeEnum::ClusterStmt(cluster) => cluster.relation.iter().collect(),
        NodeEnum::RefreshMatViewStmt(refresh) => refresh.relation.iter().collect(),
        _ => Vec::new(),
    }
}

impl Mentions {
    fn add_targets(&mut self, tree: &NodeEnum, context: &Context<'_>) {
        let target = match tree {
            NodeEnum::CopyStmt(copy) => copy.relation.as_ref(),
            tree => written(tree),
        };
        if let Some(range) = target {
            self.add_range(range, context, 0);
        }
        walk::read::children(tree, &mut |child| {
            if let Some(child) = &child.node {
                self.add_targets(child, context);
            }
        });
    }

    fn add_tree(&mut self, tree: &NodeEnum, context: &Context<'_>, depth: usize) {
        match tree {
            NodeEnum::RangeVar(range) => self.add_range(range, context, depth),
            // What a query of WITH changes is the whole statement's business.
            NodeEnum::CommonTableExpr(cte) => {
                let query = cte.ctequery.as_ref().and_then(|query| query.node.as_ref());
                if let Some(range) = query.and_then(written) {
                    self.add_range(range, context, depth);
                }
            }
            _ => (),
        }
        walk::read::children(tree, &mut |child| {
            if let Some(child) = &child.node {
                self.add_tree(child, context, depth);
            }
        });
    }

    fn add_range(&mut self, range: &RangeVar, context: &Context<'_>, depth: usize) {
        if is_temporary(range, context) {
            self.temporary.get_or_insert_with(|| range.relname.clone());
        } else if let Some(relation) = context.relation(range) {
            self.add_relation(relation, context, depth);
        }
    }

    fn add_relation(&mut self, relation: &Arc<Relation>, context: &Context<'_>, depth: usize) {
        if depth == 0 {
            self.named.insert(relation.oid);
        }
        let name = || relation.sql_name();
        // Views that use views twice each would be looked through two, four, eight … times.
        if self.relations.insert(name(), relation.clone()).is_some() {
            return;
        }
        if let RelationKind::View { definition } = &relation.kind {
            let trees = match crate::statement::parse(definition) {
                Ok(trees) if depth < VIEW_DEPTH_MAX => trees,
                // What cannot be seen into must not pass for harmless.
                _ => {
                    self.distributed.get_or_insert_with(name);
                    return;
                }
            };
            // Every name in it is qualified; what is not is a CTE of its own, perhaps named like itself.
            let scope = NameScope::default();
            let context = Context { scope: &scope, ..*context };
            for tree in trees {
                self.add_tree(&tree.tree, &context, depth + 1);
            }
            return;
        }
        match relation.placement {
            _ if relation.returned_by.is_some() => {
                self.distributed.get_or_insert_with(name);
            }
            Placement::Hash { .. } | Placement::HashOfSeveral { .. } | Placement::RoundRobin => {
                self.distributed.get_or_insert_with(name);
            }
            Placement::Replicated | Placement::Async { .. } => {
                self.replicated.get_or_insert_with(name);
            }
            Placement::Home if relation.kind == RelationKind::Sequence => {}
            Placement::Home => {
                self.home.get_or_insert_with(name);
            }
        }
    }
}
