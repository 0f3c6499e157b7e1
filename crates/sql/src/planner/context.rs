//! What a statement is planned against: the catalog, the session's names, and what was found out on the way.
//!
//! Owns: looking a relation up as the session names it. Never: changes while a statement is planned.
//! Start reading at [`Context`].

use std::sync::Arc;

use pg_query::protobuf::RangeVar;

use super::known_views::Known;
use crate::catalog::{Catalog, NameScope, Relation};
use crate::closure::Reason;

/// What a statement is planned against.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The cluster's relations, functions and bucket maps.
    pub catalog: &'a Catalog,
    /// How the session sees names.
    pub scope: &'a NameScope,
    /// Each part of a gathered read will run on a snapshot of its own: replicated and home tables
    /// are collected together with the distributed ones, not read later by the final statement.
    pub collects_replicated: bool,
    /// Why it cannot be known what the statement touches, if so: it must run on node 1. Found by
    /// [`super::plan`].
    pub opaque: Option<&'a Reason>,
    /// What is known of views already. Given by [`super::plan`].
    pub views: Option<&'a Known>,
    /// Views that will be written out are there still: what is found out is what names mean.
    pub views_stay: bool,
}

impl<'a> Context<'a> {
    /// One in which nothing is found out yet, and the parts of a read share a snapshot.
    pub fn new(catalog: &'a Catalog, scope: &'a NameScope) -> Self {
        Self {
            catalog,
            scope,
            collects_replicated: false,
            opaque: None,
            views: None,
            views_stay: false,
        }
    }

    /// The relation that `range` means; `None` for what only node 1 knows.
    pub(crate) fn relation(&self, range: &RangeVar) -> Option<&'a Arc<Relation>> {
        let schema = Some(range.schemaname.as_str()).filter(|schema| !schema.is_empty());
        self.catalog.resolve(self.scope, schema, &range.relname)
    }

    /// Whether an operator's name, said of values of PostgreSQL's own types and without a schema, may mean one of the
    /// users' that the session sees.
    pub(crate) fn replaces_operator(&self, name: &str) -> bool {
        self.catalog.code.replaces_operator(name, &self.scope.search_path)
    }

    /// The same of those that compare and calculate.
    pub(crate) fn replaces_operators(&self) -> bool {
        const NAMES: [&str; 9] = ["=", "<>", "<", "<=", ">", ">=", "+", "-", "*"];
        NAMES.iter().any(|name| self.replaces_operator(name))
    }

    /// Whether a name of a type of PostgreSQL's own, without a schema, may mean one of the users'. Temporary ones come
    /// first whatever the search path; and every relation gives its name to the type of its rows.
    pub(crate) fn hides_type(&self, name: &str) -> bool {
        self.catalog.code.type_names().any(|known| known == name)
            || self.scope.temporary.iter().any(|known| known == name)
            || (self.scope.puts_others_first()
                && self.catalog.relations.values().any(|schema| schema.contains_key(name)))
    }
}
