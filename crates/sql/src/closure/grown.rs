//! What code of the users' has come to do more than look at its arguments, and which statements that were
//! planned before may run it: a node looks a function up when it is called, so one that is replaced, or hidden
//! by a better one, is run by statements that were planned without a question about it.
//!
//! Owns: that no such statement is left out: what a name may call, it calls.
//! Never: knows statements; a plan has noted what it calls ([`Reach::calls`](super::Reach::calls)).
//! Start reading at [`grown`]. What belongs to relations is `added`'s.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::added::any_scope;
use super::marks::{FIRES_EVENTS, Seen, mark_of};
use super::reach::Reach;
use super::search::{Search, Writing};
use crate::catalog::{Catalog, NameScope};
use crate::code::{Called, FunctionCode, Use};

/// Code that has become more than it was.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Grown {
    /// Any statement may run it.
    anywhere: bool,
    /// Functions, operators and types by OID, and words that may mean them.
    calls: BTreeSet<u32>,
    /// Those of them that can mislead the questions which are asked after code that is not seen.
    misleads: BTreeSet<u32>,
}

impl Grown {
    /// Whether nothing has.
    pub fn is_empty(&self) -> bool {
        !self.anywhere && self.calls.is_empty()
    }

    /// Whether a statement that calls this may run code that its plan does not reckon with. `is_asked`: what it
    /// has touched is asked afterwards.
    pub fn may_be_called(&self, calls: &[u32], is_asked: bool) -> bool {
        let grown = if is_asked { &self.misleads } else { &self.calls };
        (self.anywhere && !is_asked) || calls.iter().any(|it| grown.contains(it))
    }
}

/// What was found so far.
struct Finding {
    grown: Grown,
    /// Sessions may see other schemas than before.
    changed_sight: bool,
}

impl Finding {
    /// Adds an object that may be called by a word, in this schema, if there is anything to reckon with.
    fn add(&mut self, reach: &Reach, object: u32, word: Option<(&str, (Called, &str))>) {
        let misleads = reach.catches || reach.hides || reach.samples;
        if reach.is_transparent() && !reach.sets && !misleads {
            return;
        }
        self.mark(object, misleads);
        let Some((schema, call)) = word else { return };
        self.mark(mark_of(Seen::In(schema), call), misleads);
        self.mark(mark_of(Seen::ByOwner, call), misleads);
        // Temporary schemas are in every path, by another name.
        if self.changed_sight || schema.starts_with("pg_temp_") {
            self.mark(mark_of(Seen::Anew, call), misleads);
        }
    }

    fn mark(&mut self, mark: u32, misleads: bool) {
        self.grown.calls.insert(mark);
        if misleads {
            self.grown.misleads.insert(mark);
        }
    }
}

/// What by `new` any session may call, or run without calling it, and did not have by `old` as it is.
/// `changed_sight`: sessions may see other schemas than before, so whatever there is may be new to one.
pub fn grown(old: &Catalog, new: &Catalog, changed_sight: bool) -> Grown {
    if Arc::ptr_eq(&old.code, &new.code) && !changed_sight {
        return Grown::default();
    }
    let (before, after) = (&old.code, &new.code);
    let scope = any_scope(new);
    let of = |uses: Use| reach_of(new, &scope, |search| search.object(&uses));
    let mut found = Finding { grown: Grown::default(), changed_sight };
    for (oid, function) in &after.functions {
        let before = before.functions.get(oid);
        if changed_sight || before.is_none_or(|before| !is_same(before, function)) {
            let word = (&*function.schema, (Called::Function, &*function.name));
            found.add(&of(Use::Function(*oid)), *oid, Some(word));
        }
    }
    for (oid, operator) in &after.operators {
        if changed_sight || before.operators.get(oid) != Some(operator) {
            let word = (&*operator.schema, (Called::Operator, &*operator.name));
            found.add(&of(Use::Operator(*oid)), *oid, Some(word));
        }
    }
    for (oid, made) in &after.types {
        if changed_sight || before.types.get(oid) != Some(made) {
            let reach = of(Use::Type(*oid));
            found.add(&reach, *oid, Some((&made.schema, (Called::Type, &made.name))));
            // Whoever knew the array's type alone did not know whose it is.
            for (array, _) in after.elements.iter().filter(|(_, element)| *element == oid) {
                found.add(&reach, *array, None);
            }
        }
    }
    if before.everywhere != after.everywhere {
        found.grown.anywhere = !reach_of(new, &scope, |_| ()).is_transparent();
    }
    if before.event_triggers != after.event_triggers {
        let reach = reach_of(new, &scope, |search| search.event_triggers());
        found.add(&reach, FIRES_EVENTS, None);
    }
    found.grown
}

fn reach_of(catalog: &Catalog, scope: &NameScope, add: impl FnOnce(&mut Search<'_>)) -> Reach {
    let mut search = Search::new(catalog, scope, Writing::Statement);
    add(&mut search);
    search.finish()
}

fn is_same(one: &FunctionCode, other: &FunctionCode) -> bool {
    let FunctionCode {
        schema,
        name,
        path,
        is_definer,
        types,
        takes_one,
        body,
        uses,
        hides,
        declared,
    } = one;
    // A body that was not read again is the same.
    (Arc::ptr_eq(body, &other.body) || *body == other.body)
        && (schema, name, path, types) == (&other.schema, &other.name, &other.path, &other.types)
        && (is_definer, takes_one, uses, hides, declared)
            == (&other.is_definer, &other.takes_one, &other.uses, &other.hides, &other.declared)
}
