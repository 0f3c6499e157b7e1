//! Writes to replicated tables: by statement where that provably does the same everywhere, else by row.
//!
//! Owns: the proof, and what the executor needs to let rows travel.
//! Never: chooses locks or gathers (`dml.rs`, `insert.rs` and `query.rs` do).
//! Start reading at [`obstacle`].
//!
//! What a statement evaluates is proven in `determinism.rs`; here, what it writes.

mod actions;
mod locks;

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{CmdType, InsertStmt, MergeStmt, MergeWhenClause, Node, RangeVar};

use super::context::Context;
use super::defaults::Evaluation;
use super::determinism::{Proof, Proven};
use super::syntax::say_default;
use crate::catalog::{Placement, Relation, RelationKind, quote_identifier};
use crate::plan::{ReturnedRows, RowKind, RowsWrite};
use crate::walk;
pub(super) use actions::Effect;
pub(super) use locks::replica_locks;

/// Why the statement need not do the same on every node that has the same rows, as a clause; `None`
/// if it provably does.
pub(super) fn obstacle(tree: &NodeEnum, context: &Context<'_>) -> Option<String> {
    StatementProof::new(context).tree(tree).err()
}

/// Why rows that are stored in this table are not the same everywhere, whatever their values.
pub(super) fn table_obstacle(relation: &Relation) -> Option<String> {
    if relation.has_triggers {
        return Some(format!("a trigger or rule of {} runs", relation.name));
    }
    let generated = relation.columns.iter().find(|column| column.generated)?;
    Some(format!("column {} is generated", generated.name))
}

/// Why the side effects of a write to this table, or to the tables of this view, are not the same
/// everywhere.
pub(super) fn target_obstacle(
    relation: &Arc<Relation>,
    effect: &Effect,
    context: &Context<'_>,
) -> Option<String> {
    if relation.kind == RelationKind::Table {
        return actions::of(relation, effect, context).obstacle();
    }
    // Which columns of its tables a view's columns are is not looked up.
    tables_of(relation, context).iter().find_map(|table| {
        table_obstacle(table).or_else(|| actions::of(table, &Effect::any(), context).obstacle())
    })
}

/// The proof for a whole statement.
struct StatementProof<'a> {
    context: &'a Context<'a>,
    /// That of all that it evaluates.
    evaluated: Proof<'a>,
}

impl<'a> StatementProof<'a> {
    fn new(context: &'a Context<'a>) -> Self {
        Self { context, evaluated: Proof::new(context) }
    }

    fn tree(&self, node: &NodeEnum) -> Proven {
        match node {
            NodeEnum::InsertStmt(insert) => self.insert(insert, node)?,
            NodeEnum::UpdateStmt(update) => {
                if !update.from_clause.is_empty() {
                    return Err("of several matching rows any is taken".to_owned());
                }
                self.target(update.relation.as_ref(), node)?;
                if say_default(&update.target_list) {
                    self.defaults(update.relation.as_ref())?;
                }
            }
            NodeEnum::DeleteStmt(delete) => self.target(delete.relation.as_ref(), node)?,
            NodeEnum::MergeStmt(merge) => {
                self.target(merge.relation.as_ref(), node)?;
                self.merged_defaults(merge)?;
            }
            other => self.evaluated.alone(other)?,
        }
        let mut proven = Ok(());
        walk::read::children(node, &mut |child| {
            if proven.is_ok() {
                proven = child.node.as_ref().map_or(Ok(()), |child| self.tree(child));
            }
        });
        proven
    }

    fn insert(&self, insert: &InsertStmt, tree: &NodeEnum) -> Proven {
        let target = insert.relation.as_ref();
        self.target(target, tree)?;
        self.defaults(target)?;
        let from_values = match insert.select_stmt.as_ref().and_then(|it| it.node.as_ref()) {
            Some(NodeEnum::SelectStmt(select)) => !select.values_lists.is_empty(),
            _ => true,
        };
        if insert.on_conflict_clause.is_some() && !from_values {
            return Err("of conflicting rows the first is taken".to_owned());
        }
        Ok(())
    }

    /// A table that `tree` changes.
    fn target(&self, range: Option<&RangeVar>, tree: &NodeEnum) -> Proven {
        let Some(range) = range else { return Ok(()) };
        self.evaluated.relation(range)?;
        let Some(relation) = self.context.relation(range) else { return Ok(()) };
        let obstacle = table_obstacle(relation)
            .or_else(|| target_obstacle(relation, &Effect::of(tree), self.context));
        obstacle.map_or(Ok(()), Err)
    }

    fn defaults(&self, range: Option<&RangeVar>) -> Proven {
        let Some(relation) = range.and_then(|range| self.context.relation(range)) else {
            return Ok(());
        };
        // A view's table may have columns that the view has not.
        let is_view = matches!(relation.kind, RelationKind::View { .. });
        let tables = if is_view { tables_of(relation, self.context) } else { Vec::new() };
        tables.iter().chain([relation]).try_for_each(|relation| self.defaults_of(relation))
    }

    fn defaults_of(&self, relation: &Relation) -> Proven {
        let evaluation = Evaluation::of(relation, self.context);
        let once = (0..relation.columns.len())
            .find(|column| evaluation.once_for_several_nodes(*column))
            .map(|column| &relation.columns[column].name);
        once.map_or(Ok(()), |name| Err(format!("the default of {name} may be evaluated")))
    }

    /// A default that a MERGE takes, because it says so or because a new row has no value.
    fn merged_defaults(&self, merge: &MergeStmt) -> Proven {
        let Some(relation) = merge.relation.as_ref().and_then(|of| self.context.relation(of))
        else {
            return Ok(());
        };
        if matches!(relation.kind, RelationKind::View { .. }) {
            return self.defaults(merge.relation.as_ref());
        }
        let evaluation = Evaluation::of(relation, self.context);
        let once = |column: &usize| evaluation.once_for_several_nodes(*column);
        let clauses = merge.merge_when_clauses.iter().filter_map(|node| match &node.node {
            Some(NodeEnum::MergeWhenClause(clause)) => Some(&**clause),
            _ => None,
        });
        for clause in clauses {
            let takes = |column: &usize| {
                say_default(&clause.values)
                    || say_default(&clause.target_list)
                    || clause.command_type() == CmdType::CmdInsert
                        && !gives(clause, *column, &relation.columns[*column].name)
            };
            if let Some(column) = (0..relation.columns.len()).filter(once).find(takes) {
                let name = &relation.columns[column].name;
                return Err(format!("the default of {name} may be evaluated"));
            }
        }
        Ok(())
    }
}

/// Whether an inserting clause has a value for the column.
fn gives(clause: &MergeWhenClause, column: usize, name: &str) -> bool {
    if clause.target_list.is_empty() {
        return column < clause.values.len();
    }
    clause
        .target_list
        .iter()
        .any(|node| matches!(&node.node, Some(NodeEnum::ResTarget(target)) if target.name == name))
}

/// What must travel for a statement that writes `relation`.
pub(super) fn rows_of(
    tree: &NodeEnum,
    relation: &Arc<Relation>,
    context: &Context<'_>,
) -> RowsWrite {
    let is_table = relation.kind == RelationKind::Table;
    let effect = if is_table { Effect::of(tree) } else { Effect::any() };
    let (rows, is_left_to_nodes) = rows_and_reached(tables_of(relation, context), &effect, context);
    let returned = if is_left_to_nodes { returned(tree, relation) } else { None };
    let names_some = match tree {
        NodeEnum::UpdateStmt(update) => update.where_clause.is_some(),
        NodeEnum::DeleteStmt(delete) => delete.where_clause.is_some(),
        NodeEnum::InsertStmt(insert) => insert.on_conflict_clause.is_some(),
        _ => false,
    };
    RowsWrite { returned, names_some, ..rows }
}

/// The same for a statement that writes several tables, or none that it returns the rows of.
pub(super) fn rows_of_tables<'t>(
    relations: impl Iterator<Item = &'t Arc<Relation>>,
    effect: &Effect,
    context: &Context<'_>,
) -> RowsWrite {
    let mut tables: Vec<Arc<Relation>> = Vec::new();
    relations.for_each(|relation| add_all(&mut tables, tables_of(relation, context)));
    rows_and_reached(tables, effect, context).0
}

/// What travels if nothing is returned, and whether each node may follow foreign keys for itself.
fn rows_and_reached(
    tables: Vec<Arc<Relation>>,
    effect: &Effect,
    context: &Context<'_>,
) -> (RowsWrite, bool) {
    let mut rows = RowsWrite {
        tables: Vec::new(),
        reached: Vec::new(),
        is_referred_to: false,
        names_some: false,
        returned: None,
        cursor: None,
    };
    let mut is_left_to_nodes = true;
    for table in &tables {
        let found = actions::of(table, effect, context);
        is_left_to_nodes &= found.by_action.is_none();
        rows.is_referred_to |= found.is_referred_to;
        add_all(&mut rows.reached, found.reached);
    }
    rows.reached.retain(|table| !tables.iter().any(|known| known.oid == table.oid));
    rows.tables = tables;
    (rows, is_left_to_nodes)
}

fn add_all(tables: &mut Vec<Arc<Relation>>, more: Vec<Arc<Relation>>) {
    for table in more {
        if !tables.iter().any(|known| known.oid == table.oid && known.name == table.name) {
            tables.push(table);
        }
    }
}

/// The replicated tables that are written when `relation` is: itself, or what a view reads.
fn tables_of(relation: &Arc<Relation>, context: &Context<'_>) -> Vec<Arc<Relation>> {
    let mut seen = vec![relation.clone()];
    let mut next = 0;
    while let Some(relation) = seen.get(next).cloned() {
        next += 1;
        if let RelationKind::View { definition } = &relation.kind {
            for tree in crate::statement::parse(definition).unwrap_or_default() {
                add_named(&tree.tree, context, &mut seen);
            }
        }
    }
    seen.retain(|relation| {
        relation.kind == RelationKind::Table && relation.placement == Placement::Replicated
    });
    seen
}

fn add_named(tree: &NodeEnum, context: &Context<'_>, seen: &mut Vec<Arc<Relation>>) {
    if let NodeEnum::RangeVar(range) = tree
        && let Some(relation) = context.relation(range)
        && !seen.contains(relation)
    {
        seen.push(relation.clone());
    }
    walk::read::children(tree, &mut |child| {
        if let Some(child) = &child.node {
            add_named(child, context, seen);
        }
    });
}

/// How the statement can say itself which rows it wrote. `None` where what it returns does not say
/// which rows of the copies these were.
fn returned(tree: &NodeEnum, relation: &Relation) -> Option<ReturnedRows> {
    if relation.kind != RelationKind::Table {
        return None;
    }
    let is_key = |name: &str| {
        relation.column(name).is_some_and(|column| relation.primary_key.contains(&column))
    };
    let keeps_key = |targets: &[Node]| {
        !relation.primary_key.is_empty()
            && targets.iter().all(|node| match &node.node {
                Some(NodeEnum::ResTarget(target)) => !is_key(&target.name),
                _ => false,
            })
    };
    let (kind, range, returning) = match tree {
        NodeEnum::InsertStmt(insert) => {
            let kind = match &insert.on_conflict_clause {
                Some(conflict) if !conflict.target_list.is_empty() => {
                    if !keeps_key(&conflict.target_list) {
                        return None;
                    }
                    RowKind::Upsert
                }
                _ => RowKind::Insert,
            };
            (kind, insert.relation.as_ref()?, insert.returning_clause.as_ref())
        }
        NodeEnum::UpdateStmt(update) if keeps_key(&update.target_list) => {
            (RowKind::Update, update.relation.as_ref()?, update.returning_clause.as_ref())
        }
        NodeEnum::DeleteStmt(delete) if keeps_key(&[]) => {
            (RowKind::Delete, delete.relation.as_ref()?, delete.returning_clause.as_ref())
        }
        _ => return None,
    };
    // `WITH (OLD AS o)` is inside RETURNING; a statement that needs it takes the slow way.
    if returning.is_some_and(|returning| !returning.options.is_empty()) {
        return None;
    }
    let name = range.alias.as_ref().map_or(&range.relname, |alias| &alias.aliasname);
    let row = format!("tutti.row_text(ROW({}.*))", quote_identifier(name));
    let returning = match returning.is_some_and(|returning| !returning.exprs.is_empty()) {
        true => format!("\n, {row}"),
        false => format!("\nRETURNING {row}"),
    };
    Some(ReturnedRows { kind, returning })
}
