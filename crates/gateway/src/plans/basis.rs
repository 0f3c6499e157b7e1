//! What plans depend on besides their statement, as numbers that are quick to compare.
//!
//! Owns: which catalog and name scope a number means. Never: gives a number twice.

use std::sync::{Arc, Mutex, PoisonError};

use tutti_sql::catalog::{Catalog, NameScope};

/// Most pairs of catalog and name scope that keep their number; sessions with temporary tables have
/// scopes of their own. A pair that is forgotten gets another number: its plans are made again.
const NUMBERED_MAX: usize = 256;

/// What a plan depends on besides its statement.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Basis {
    /// A catalog and a name scope, by [`Bases::number`].
    pub number: u64,
    /// [`tutti_sql::planner::Context::collects_replicated`].
    pub collects_replicated: bool,
    /// The same for what writes: it begins a transaction at READ COMMITTED.
    pub collects_to_write: bool,
}

/// The numbers in use.
#[derive(Debug, Default)]
pub struct Bases(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    last: u64,
    numbered: Vec<(Arc<Catalog>, NameScope, u64)>,
}

impl Bases {
    /// The number of a catalog and a name scope.
    ///
    /// Catalogs are told apart as objects, not by their version: what a transaction sees of its own
    /// changes has a version that other sessions may reach as well. Holding the catalog keeps its
    /// address from being used again.
    pub fn number(&self, catalog: &Arc<Catalog>, scope: &NameScope) -> u64 {
        let mut numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(of, known, _): &&(Arc<Catalog>, NameScope, u64)| {
            Arc::ptr_eq(of, catalog) && known == scope
        };
        if let Some((.., number)) = numbers.numbered.iter().find(same) {
            return *number;
        }
        numbers.last += 1;
        let number = numbers.last;
        // Sessions drop older catalogs at their next statement.
        numbers.numbered.retain(|(of, ..)| catalog.version <= of.version);
        if numbers.numbered.len() == NUMBERED_MAX {
            numbers.numbered.remove(0);
        }
        numbers.numbered.push((catalog.clone(), scope.clone(), number));
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(version: u64) -> Arc<Catalog> {
        Arc::new(Catalog { version, ..Catalog::default() })
    }

    fn scope(schema: &str) -> NameScope {
        NameScope { search_path: vec![schema.to_owned()], ..NameScope::default() }
    }

    #[test]
    fn equal_things_have_one_number() {
        let bases = Bases::default();
        let catalog = catalog(1);
        let number = bases.number(&catalog, &scope("public"));
        assert_eq!(bases.number(&catalog.clone(), &scope("public")), number);
        assert_ne!(bases.number(&catalog, &scope("other")), number);
    }

    #[test]
    fn catalogs_of_one_version_are_not_taken_for_each_other() {
        let bases = Bases::default();
        let (one, other) = (catalog(2), catalog(2));
        assert_ne!(bases.number(&one, &scope("public")), bases.number(&other, &scope("public")));
    }

    #[test]
    fn older_catalogs_are_let_go() {
        let bases = Bases::default();
        let old = catalog(1);
        let number = bases.number(&old, &scope("public"));
        let new = catalog(2);
        bases.number(&new, &scope("public"));
        assert_eq!(Arc::strong_count(&old), 1);
        assert_ne!(bases.number(&old, &scope("public")), number, "no number is given twice");
    }

    #[test]
    fn the_numbers_in_use_are_bounded() {
        let bases = Bases::default();
        let catalog = catalog(1);
        for index in 0..NUMBERED_MAX + 10 {
            bases.number(&catalog, &scope(&index.to_string()));
        }
        assert_eq!(Arc::strong_count(&catalog), NUMBERED_MAX + 1);
    }
}
