//! What else is written when a replicated table is: children, and what foreign keys' actions reach.
//!
//! Every node follows the foreign keys of its own copies. That leaves copies equal where nothing on the
//! way may do something else on another node: a trigger, a rule, a generated column, a default. Where
//! something may, node 1 alone follows them, and all that it has reached travels.
//!
//! Owns: which tables that are, through any number of foreign keys, and whether an action happens at all:
//! one for UPDATE does not unless a column changes that is referred to.
//! Never: reads the bodies of triggers (any may differ), or chooses a plan.
//! Start reading at [`of`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{CmdType, Node};

use crate::catalog::{Column, Placement, Relation};
use crate::closure::{Attached, AttachedKind, WrittenWith, events};
use crate::planner::context::Context;
use crate::planner::current_time::has_time_of_making;
use crate::planner::determinism::is_fixed;
use crate::planner::sql_text::parse_expression;
use crate::planner::unseen::default_is_opaque;

/// What a statement does to the rows of a table.
#[derive(Clone, Debug)]
pub(in crate::planner) struct Effect {
    /// Which kinds of it there may be.
    fired: u8,
    /// The columns that an UPDATE may change; `None`: any.
    changed: Option<BTreeSet<String>>,
}

impl Effect {
    /// What the statement says of its target.
    pub(in crate::planner) fn of(tree: &NodeEnum) -> Self {
        let names = |targets: &[Node]| {
            let name = |node: &Node| match &node.node {
                Some(NodeEnum::ResTarget(target)) => Some(target.name.clone()),
                _ => None,
            };
            targets.iter().map(name).collect::<Option<BTreeSet<_>>>()
        };
        match tree {
            NodeEnum::InsertStmt(insert) => match &insert.on_conflict_clause {
                Some(conflict) => Self {
                    fired: events::INSERT | events::UPDATE,
                    changed: names(&conflict.target_list),
                },
                None => Self::inserted(),
            },
            NodeEnum::UpdateStmt(update) => {
                Self { fired: events::UPDATE, changed: names(&update.target_list) }
            }
            NodeEnum::DeleteStmt(_) => {
                Self { fired: events::DELETE, changed: Some(BTreeSet::new()) }
            }
            NodeEnum::MergeStmt(merge) => {
                let mut effect = Self { fired: 0, changed: Some(BTreeSet::new()) };
                for node in &merge.merge_when_clauses {
                    let Some(NodeEnum::MergeWhenClause(clause)) = &node.node else { continue };
                    match clause.command_type() {
                        CmdType::CmdInsert => effect.fired |= events::INSERT,
                        CmdType::CmdDelete => effect.fired |= events::DELETE,
                        CmdType::CmdUpdate => {
                            effect.fired |= events::UPDATE;
                            effect.add_changed(names(&clause.target_list));
                        }
                        _ => (),
                    }
                }
                effect
            }
            _ => Self::any(),
        }
    }

    /// New rows.
    pub(in crate::planner) fn inserted() -> Self {
        Self { fired: events::INSERT, changed: Some(BTreeSet::new()) }
    }

    /// Anything.
    pub(in crate::planner) fn any() -> Self {
        Self { fired: events::ALL, changed: None }
    }

    fn add_changed(&mut self, more: Option<BTreeSet<String>>) {
        match (&mut self.changed, more) {
            (Some(changed), Some(more)) => changed.extend(more),
            (changed, _) => *changed = None,
        }
    }

    /// Adds what `other` does. Whether that was anything new.
    fn add(&mut self, other: &Self) -> bool {
        let before = (self.fired, self.changed.as_ref().map(BTreeSet::len));
        self.fired |= other.fired;
        self.add_changed(other.changed.clone());
        before != (self.fired, self.changed.as_ref().map(BTreeSet::len))
    }

    fn may_change(&self, column: &str) -> bool {
        self.fired & events::UPDATE != 0
            && self.changed.as_ref().is_none_or(|changed| changed.contains(column))
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Consequences {
    /// Code of a child's, which need not do the same on every node.
    pub(super) differs: Option<String>,
    /// Why nodes that each follow the foreign keys need not do the same.
    pub(super) by_action: Option<String>,
    /// Replicated tables that foreign keys' actions write.
    pub(super) reached: Vec<Arc<Relation>>,
    /// A distributed table refers to one of all these tables.
    pub(super) is_referred_to: bool,
}

impl Consequences {
    /// Why the statement need not do the same on every node.
    pub(super) fn obstacle(self) -> Option<String> {
        self.by_action.or(self.differs)
    }
}

/// A table, and whether it was reached by a foreign key.
type Step = (u32, bool);

struct Walk<'a> {
    context: &'a Context<'a>,
    effects: BTreeMap<Step, Effect>,
    queue: Vec<(Arc<Relation>, bool)>,
    found: Consequences,
}

/// Follows what a statement on `target` writes besides it.
pub(super) fn of(target: &Arc<Relation>, effect: &Effect, context: &Context<'_>) -> Consequences {
    let mut walk = Walk {
        context,
        effects: BTreeMap::from([((target.oid, false), effect.clone())]),
        queue: vec![(target.clone(), false)],
        found: Consequences::default(),
    };
    while let Some((relation, by_action)) = walk.queue.pop() {
        walk.visit(&relation, by_action, target);
    }
    walk.found
}

impl Walk<'_> {
    fn visit(&mut self, relation: &Arc<Relation>, by_action: bool, target: &Arc<Relation>) {
        let code = &self.context.catalog.code;
        let mut effect = self.effects[&(relation.oid, by_action)].clone();
        let runs = |object: &&Attached| {
            matches!(object.kind, AttachedKind::Trigger | AttachedKind::Rule)
                && object.runs_for(effect.fired)
        };
        let fires = code.attached_to(relation.oid).iter().find(runs);
        let own = fires
            .map(|object| format!("\"{}\" of {} runs", object.name, relation.name))
            .or_else(|| self.generated(relation, &effect));
        match by_action {
            true if relation.placement == Placement::Replicated => {
                self.found.by_action = self.found.by_action.take().or(own);
                if !self.found.reached.iter().any(|known| known.oid == relation.oid) {
                    self.found.reached.push(relation.clone());
                }
            }
            false if relation.oid != target.oid => {
                self.found.differs = self.found.differs.take().or(own);
            }
            _ => (),
        }
        if fires.is_some() {
            self.add_changed_by_triggers(relation, &mut effect);
        }
        // The other nodes store rows of such a table without its triggers: foreign keys are some.
        let is_silent = fires.is_some() && !by_action;
        for other in code.written_with(relation.oid) {
            self.follow(relation, other, &effect, by_action, is_silent);
        }
    }

    /// A generated column that is recomputed and need not be the same.
    fn generated(&self, relation: &Relation, effect: &Effect) -> Option<String> {
        if effect.fired & (events::INSERT | events::UPDATE) == 0 {
            return None;
        }
        let differs = |column: &&Column| column.generated && !self.is_same(relation, column);
        let column = relation.columns.iter().find(differs)?;
        Some(format!("column {} of {} is generated", column.name, relation.name))
    }

    /// Whether a default, or what computes a column, is the same on every node.
    fn is_same(&self, relation: &Relation, column: &Column) -> bool {
        let Some(text) = &column.default else { return true };
        parse_expression(text).is_some_and(|tree| is_fixed(&tree, self.context))
            && !has_time_of_making(text)
            && !default_is_opaque(relation, &column.name, self.context)
    }

    fn add_changed_by_triggers(&self, relation: &Relation, effect: &mut Effect) {
        let code = &self.context.catalog.code;
        let referred = code.written_with(relation.oid).iter().flat_map(|other| &other.columns);
        let changed: BTreeSet<String> = referred
            .map(|column| &column.referred)
            .filter(|column| code.key_changer(relation.oid, column).is_some())
            .cloned()
            .collect();
        effect.add_changed(Some(changed));
    }

    fn follow(
        &mut self,
        relation: &Relation,
        other: &WrittenWith,
        effect: &Effect,
        by_action: bool,
        is_silent: bool,
    ) {
        let tables = self.context.catalog.relations.get(&other.schema);
        let Some(referring) = tables.and_then(|tables| tables.get(&other.name)).cloned() else {
            return;
        };
        if other.is_child() {
            return self.push(referring, by_action, effect.clone());
        }
        self.found.is_referred_to |= referring.placement.is_distributed();
        let is_for_delete = other.by & events::DELETE != 0;
        let happens = match other.by {
            0 => false,
            _ if is_for_delete => effect.fired & events::DELETE != 0,
            _ => other.columns.iter().any(|column| effect.may_change(&column.referred)),
        };
        let is_checked = effect.fired & events::DELETE != 0
            || referring.placement.is_distributed()
                && other.columns.iter().any(|column| effect.may_change(&column.referred));
        if is_silent && (happens || is_checked) {
            self.found.by_action.get_or_insert_with(|| {
                format!("{} refers to {}, whose triggers run", referring.name, relation.name)
            });
        }
        if !happens {
            return;
        }
        let set = || other.columns.iter().filter(|column| column.is_set);
        for column in set().filter(|column| column.to_default) {
            let column = referring.column(&column.referring).map(|at| &referring.columns[at]);
            if let Some(column) = column.filter(|column| !self.is_same(&referring, column)) {
                self.found.by_action.get_or_insert_with(|| {
                    format!("the default of {} of {} is taken", column.name, referring.name)
                });
            }
        }
        let changed = set().map(|column| column.referring.clone()).collect();
        self.push(referring, true, Effect { fired: other.as_event, changed: Some(changed) });
    }

    fn push(&mut self, relation: Arc<Relation>, by_action: bool, effect: Effect) {
        let step = (relation.oid, by_action);
        let is_new = match self.effects.get_mut(&step) {
            Some(known) => known.add(&effect),
            None => {
                self.effects.insert(step, effect);
                true
            }
        };
        if is_new {
            self.queue.push((relation, by_action));
        }
    }
}
