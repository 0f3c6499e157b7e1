//! References to columns of views that are written out.
//!
//! Owns: what they are called once the view's query stands in its place, which has no schema. Never: writes one out
//! (`views.rs` does).
//! Start reading at [`leave_schemas_out`].

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, RangeVar};

use super::context::Context;
use super::output_names;
use super::syntax::string;
use crate::catalog::RelationKind;
use crate::walk;

/// `schema.view.column` becomes `view.column`, where that means the same: what comes in the view's place has no schema.
pub(super) fn leave_schemas_out(tree: &mut NodeEnum, context: &Context<'_>) {
    let mut ctes = Vec::new();
    add_ctes(tree, &mut ctes);
    Levels { context, ctes, levels: Vec::new() }.leave_out(tree);
}

fn add_ctes(tree: &NodeEnum, ctes: &mut Vec<String>) {
    if let NodeEnum::CommonTableExpr(query) = tree {
        ctes.push(query.ctename.clone());
    }
    walk::read::children(tree, &mut |child| {
        if let Some(child) = &child.node {
            add_ctes(child, ctes);
        }
    });
}

/// An entry of a FROM clause.
struct Entry {
    name: String,
    /// Of a view without an alias.
    schema: Option<String>,
}

/// The FROM clauses around a place in a statement, the outermost first.
struct Levels<'c, 'a> {
    context: &'c Context<'a>,
    /// Names of queries of WITH, anywhere.
    ctes: Vec<String>,
    levels: Vec<Vec<Entry>>,
}

impl Levels<'_, '_> {
    fn leave_out(&mut self, tree: &mut NodeEnum) {
        let mut entries = Vec::new();
        let is_level = match tree {
            NodeEnum::SelectStmt(select) => {
                select.from_clause.iter().for_each(|node| self.add(node, &mut entries));
                true
            }
            NodeEnum::UpdateStmt(update) => {
                update.relation.iter().for_each(|range| self.add_range(range, &mut entries));
                update.from_clause.iter().for_each(|node| self.add(node, &mut entries));
                true
            }
            NodeEnum::DeleteStmt(delete) => {
                delete.relation.iter().for_each(|range| self.add_range(range, &mut entries));
                delete.using_clause.iter().for_each(|node| self.add(node, &mut entries));
                true
            }
            NodeEnum::InsertStmt(insert) => {
                insert.relation.iter().for_each(|range| self.add_range(range, &mut entries));
                true
            }
            NodeEnum::ColumnRef(reference) => {
                if let [.., schema, name, _] = &reference.fields[..]
                    && let (Some(schema), Some(name)) = (string(schema), string(name))
                    && self.means_view(schema, name)
                {
                    let surplus = reference.fields.len() - 2;
                    reference.fields.drain(..surplus);
                }
                return;
            }
            _ => false,
        };
        if is_level {
            self.levels.push(entries);
        }
        walk::write::children(tree, &mut |child| {
            if let Some(child) = &mut child.node {
                self.leave_out(child);
            }
        });
        if is_level {
            self.levels.pop();
        }
    }

    /// Whether the name alone means the view of this schema: the innermost clause that has the name has it once, for that.
    fn means_view(&self, schema: &str, name: &str) -> bool {
        let named = |level: &&Vec<Entry>| level.iter().any(|entry| entry.name == name);
        let Some(level) = self.levels.iter().rev().find(named) else { return false };
        let mut entries = level.iter().filter(|entry| entry.name == name);
        entries.next().is_some_and(|entry| entry.schema.as_deref() == Some(schema))
            && entries.next().is_none()
    }

    fn add(&self, node: &Node, entries: &mut Vec<Entry>) {
        let mut push = |name: &str| entries.push(Entry { name: name.to_owned(), schema: None });
        match &node.node {
            Some(NodeEnum::RangeVar(range)) => self.add_range(range, entries),
            Some(NodeEnum::RangeSubselect(of)) => {
                of.alias.iter().for_each(|it| push(&it.aliasname))
            }
            Some(NodeEnum::RangeTableFunc(of)) => {
                of.alias.iter().for_each(|it| push(&it.aliasname))
            }
            Some(NodeEnum::RangeTableSample(of)) => {
                of.relation.iter().for_each(|relation| self.add(relation, entries));
            }
            Some(NodeEnum::RangeFunction(of)) => match (&of.alias, of.functions.first()) {
                (Some(alias), _) => push(&alias.aliasname),
                (None, Some(Node { node: Some(NodeEnum::List(list)) })) => {
                    let call = list.items.first().and_then(|call| call.node.as_ref());
                    call.into_iter().for_each(|call| push(output_names::figure(call)));
                }
                (None, _) => (),
            },
            Some(NodeEnum::JoinExpr(join)) => {
                [&join.alias, &join.join_using_alias]
                    .into_iter()
                    .flatten()
                    .for_each(|alias| push(&alias.aliasname));
                [&join.larg, &join.rarg].into_iter().flatten().for_each(|it| self.add(it, entries));
            }
            _ => (),
        }
    }

    fn add_range(&self, range: &RangeVar, entries: &mut Vec<Entry>) {
        let is_cte = range.schemaname.is_empty() && self.ctes.contains(&range.relname);
        let (name, schema) = match &range.alias {
            Some(alias) => (&alias.aliasname, None),
            None => {
                let found = self.context.relation(range).filter(|_| !is_cte);
                let view = found.filter(|it| matches!(it.kind, RelationKind::View { .. }));
                (&range.relname, view.map(|view| view.schema.clone()))
            }
        };
        entries.push(Entry { name: name.clone(), schema });
    }
}
