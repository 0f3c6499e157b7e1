//! All that is known of code, as lines that can be compared.
//!
//! Owns: that two readings of the same database give the same lines, in whatever order the server told.
//! Never: is used to plan.

use std::collections::BTreeSet;
use std::fmt::Debug;

use super::{Attached, Code, KeyColumn, Use, WrittenWith};

impl Code {
    /// Every fact, one to a line.
    pub fn facts(&self) -> BTreeSet<String> {
        let mut facts = BTreeSet::new();
        for (oid, of) in &self.functions {
            let mut of = of.clone();
            sort(&mut of.uses);
            facts.insert(format!("function {oid}: {of:?}"));
        }
        for (oid, of) in &self.operators {
            facts.insert(format!("operator {oid}: {of:?}"));
        }
        for (oid, of) in &self.types {
            let mut of = of.clone();
            sort(&mut of.seen);
            sort(&mut of.made);
            of.parts.sort_unstable();
            facts.insert(format!("type {oid}: {of:?}"));
        }
        for names in [&self.function_names, &self.operator_names, &self.type_names] {
            for (name, oids) in names {
                facts.extend(oids.iter().map(|oid| format!("{oid} is called {name}")));
            }
        }
        facts.extend(self.row_types.iter().map(|(of, row)| format!("rows of {of} are {row}")));
        facts.extend(self.elements.iter().map(|(of, element)| format!("{of} is of {element}")));
        for (relation, all) in &self.attached {
            facts.extend(all.iter().flat_map(|of| facts_of_attached(&relation.to_string(), of)));
        }
        for (relation, all) in &self.written_with {
            facts.extend(all.iter().map(|other| fact_of_written(*relation, other)));
        }
        facts.extend(self.everywhere.iter().map(|uses| format!("everywhere: {uses:?}")));
        facts.extend(self.event_triggers.iter().flat_map(|of| facts_of_attached("events", of)));
        facts
    }
}

fn sort(all: &mut [impl Debug]) {
    all.sort_by_key(|one| format!("{one:?}"));
}

fn facts_of_attached(to: &str, attached: &Attached) -> Vec<String> {
    let Attached { kind, name, events, changes_row, uses } = attached;
    let of =
        |used: Option<&Use>| format!("{to} has {kind:?} {name} {events} {changes_row}: {used:?}");
    uses.iter().map(|used| of(Some(used))).chain([of(None)]).collect()
}

fn fact_of_written(relation: u32, other: &WrittenWith) -> String {
    let mut other = other.clone();
    other
        .columns
        .sort_by_key(|KeyColumn { referred, referring, .. }| format!("{referred} {referring}"));
    format!("{relation} is written with {other:?}")
}
