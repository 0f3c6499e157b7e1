//! All that is known of code, as lines that can be compared.
//!
//! Owns: that two readings of the same database give the same lines, in whatever order the server
//! returned them.
//! Never: is used to plan.

use std::collections::BTreeSet;
use std::fmt::Debug;

use super::{Attached, Code, FunctionCode, KeyColumn, Use, WrittenWith};

impl Code {
    /// Every fact, one to a line, except those about relations that are not known (`is_known`, by OID) or
    /// about temporary functions: these vanish with their session, unnoticed.
    pub fn facts(&self, is_known: impl Fn(u32) -> bool) -> BTreeSet<String> {
        let mut facts = BTreeSet::new();
        let is_known = |oid: u32| is_known(oid) || self.types.contains_key(&oid);
        let is_temporary = |of: &FunctionCode| of.schema.starts_with("pg_temp_");
        for (oid, of) in self.functions.iter().filter(|(_, of)| !is_temporary(of)) {
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
            sort(&mut of.defaults);
            of.parts.sort_unstable();
            facts.insert(format!("type {oid}: {of:?}"));
        }
        for names in [&self.function_names, &self.operator_names, &self.type_names] {
            for (name, oids) in names {
                let lasting =
                    oids.iter().filter(|oid| !self.functions.get(oid).is_some_and(is_temporary));
                facts.extend(lasting.map(|oid| format!("{oid} is called {name}")));
            }
        }
        facts.extend(self.row_types.iter().map(|(of, row)| format!("rows of {of} are {row}")));
        facts.extend(self.elements.iter().map(|(of, element)| format!("{of} is of {element}")));
        for (relation, all) in self.attached.iter().filter(|(relation, _)| is_known(**relation)) {
            facts.extend(all.iter().flat_map(|of| facts_of_attached(&relation.to_string(), of)));
        }
        for (relation, all) in &self.written_with {
            let known = all.iter().filter(|other| is_known(*relation) && is_known(other.relation));
            facts.extend(known.map(|other| fact_of_written(*relation, other)));
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
    let Attached { kind, name, events, changes_row, uses, is_folded } = attached;
    let of = |used: Option<&Use>| {
        format!("{to} has {kind:?} {name} {events} {changes_row} {is_folded}: {used:?}")
    };
    uses.iter().map(|used| of(Some(used))).chain([of(None)]).collect()
}

fn fact_of_written(relation: u32, other: &WrittenWith) -> String {
    let mut other = other.clone();
    other
        .columns
        .sort_by_key(|KeyColumn { referred, referring, .. }| format!("{referred} {referring}"));
    format!("{relation} is written with {other:?}")
}
