//! Which declarations of functions (`tutti_function`) a change of the schema makes untrue.
//!
//! Owns: that what was declared of a function holds only for the tables and functions as they were: where
//! one that its text names is replaced or moved, the declaration ends.
//! Never: takes a name for anything but all that it may mean; sees names that a text composes.
//! Start reading at [`ended`].

use std::collections::{BTreeSet, HashMap};

use crate::catalog::{Catalog, Placement, RelationKind};
use crate::code::{Code, Declaration, FunctionCode};

/// A declaration that no longer holds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ended {
    /// The function.
    pub function: u32,
    /// Its name.
    pub name: String,
    /// What its text names, as it may be said: `table t`.
    pub because: String,
}

/// The declarations of `old` that `new` has made untrue.
///
/// A table that goes from node 1 to several nodes ends only those by which a function touches tables of node 1:
/// the others are declared before the table moves.
pub fn ended(old: &Catalog, new: &Catalog) -> Vec<Ended> {
    if old.code.declared_functions().next().is_none() {
        return Vec::new();
    }
    let changed = changed_names(old, new);
    if changed.is_empty() {
        return Vec::new();
    }
    let declared = old.code.declared_functions().filter(|(oid, _)| {
        new.code.function(*oid).is_some_and(|function| function.declared.is_some())
    });
    let ends = |(oid, function): (u32, &FunctionCode)| {
        let texts = texts_of(oid, &old.code);
        let is_untrue = |changed: &&Changed| {
            changed.ends(function.declared)
                && texts.iter().any(|text| has_word(text, &changed.name.to_lowercase()))
        };
        let changed = changed.iter().find(is_untrue)?;
        Some(Ended {
            function: oid,
            name: format!("{}()", function.name),
            because: format!("{} {}", changed.what, changed.name),
        })
    };
    declared.filter_map(ends).collect()
}

/// A name that means something else, or what it means is somewhere else.
#[derive(Debug)]
struct Changed {
    what: &'static str,
    name: String,
    /// It was on several nodes.
    was_spread: bool,
    /// It is now.
    is_spread: bool,
}

impl Changed {
    fn ends(&self, declared: Option<Declaration>) -> bool {
        match declared {
            Some(Declaration::Home) => self.is_spread,
            Some(Declaration::Row | Declaration::Replicated) => self.was_spread,
            None => false,
        }
    }
}

fn changed_names(old: &Catalog, new: &Catalog) -> Vec<Changed> {
    let mut changed = Vec::new();
    let names: BTreeSet<_> = [old, new]
        .into_iter()
        .flat_map(|catalog| &catalog.relations)
        .flat_map(|(schema, all)| all.keys().map(move |name| (schema, name)))
        .collect();
    for (schema, name) in names {
        let find = |catalog: &Catalog| {
            let found = catalog.relations.get(schema)?.get(name)?;
            (!matches!(found.kind, RelationKind::View { .. }))
                .then(|| (found.oid, found.placement.clone()))
        };
        let (before, after) = (find(old), find(new));
        if before != after {
            let is_spread = |found: &Option<(u32, Placement)>| {
                found.as_ref().is_some_and(|(_, placement)| *placement != Placement::Home)
            };
            changed.push(Changed {
                what: "table",
                name: name.clone(),
                was_spread: is_spread(&before),
                is_spread: is_spread(&after),
            });
        }
    }
    let (before, after) = (functions_by_name(&old.code), functions_by_name(&new.code));
    for name in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
        if before.get(name) != after.get(name) {
            let name = (*name).to_owned();
            changed.push(Changed { what: "function", name, was_spread: true, is_spread: true });
        }
    }
    changed
}

/// What says what a function does: its number, its text, its search path.
type Does<'a> = (u32, &'a str, Option<&'a [String]>);

fn functions_by_name(code: &Code) -> HashMap<&str, BTreeSet<Does<'_>>> {
    let mut functions: HashMap<&str, BTreeSet<_>> = HashMap::new();
    for (oid, function) in code.all_functions() {
        let does = (oid, function.body.text(), function.path.as_deref());
        functions.entry(&function.name).or_default().insert(does);
    }
    functions
}

/// The texts of a function and of those that they name, in small letters.
fn texts_of(function: u32, code: &Code) -> Vec<String> {
    let (mut found, mut texts, mut at) = (vec![function], Vec::new(), 0);
    while let Some(function) = found.get(at).and_then(|oid| code.function(*oid)) {
        at += 1;
        let text = function.body.text().to_lowercase();
        for (oid, other) in code.all_functions() {
            if !found.contains(&oid) && has_word(&text, &other.name.to_lowercase()) {
                found.push(oid);
            }
        }
        texts.push(text);
    }
    texts
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '$');
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(is_part)
            && !text[at + word.len()..].chars().next().is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole() {
        assert!(has_word("insert into public.side values (1)", "side"));
        assert!(has_word("select \"my table\".a", "my table"));
        assert!(!has_word("insert into sides select inside, side_b from b$side", "side"));
        assert!(has_word("side", "side"));
    }
}
