//! What the code of users' has to do with a table: triggers that change its rows, and the tables above and below
//! it, which are read and written with it.
//!
//! Owns: looking that up. Never: searches what such code may reach in turn (`closure` does).

use super::{Code, Use};

impl Code {
    /// A BEFORE trigger of a relation that may give a row another value of `column`, and its function.
    pub(crate) fn key_changer(&self, relation: u32, column: &str) -> Option<(&str, String)> {
        let triggers = self.attached.get(&relation)?.iter().filter(|it| it.changes_row);
        triggers.flat_map(|trigger| trigger.uses.iter().map(move |uses| (trigger, uses))).find_map(
            |(trigger, uses)| match uses {
                Use::Function(oid) => {
                    let function = self.functions.get(oid)?;
                    let changes = function.body.may_assign(column);
                    changes.then(|| (trigger.name.as_str(), function.in_words()))
                }
                _ => None,
            },
        )
    }

    /// The tables that a table is a partition or a child of, at any distance.
    pub(crate) fn above(&self, table: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut of = vec![table];
        while let Some(child) = of.pop() {
            for (parent, others) in &self.written_with {
                let is_parent = others.iter().any(|it| it.is_child() && it.relation == child);
                if is_parent && !found.contains(parent) {
                    found.push(*parent);
                    of.push(*parent);
                }
            }
        }
        found
    }

    /// The partitions and children of a relation, and itself.
    pub(crate) fn with_children(&self, relation: u32) -> Vec<u32> {
        let mut found = vec![relation];
        let mut at = 0;
        while let Some(of) = found.get(at).copied() {
            at += 1;
            for other in self.written_with.get(&of).into_iter().flatten() {
                if other.is_child() && !found.contains(&other.relation) {
                    found.push(other.relation);
                }
            }
        }
        found
    }
}
