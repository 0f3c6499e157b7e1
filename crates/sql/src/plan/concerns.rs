//! By what changes of others a plan may become wrong.
//!
//! Owns: how these are put together and compared with a change. Never: determines them (`planner` does).
//! Start reading at [`Concerns`].

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::closure::{self, Grown};

/// What a plan depends on besides its text. Two plans that are carried out together depend on what either does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Concerns {
    /// Relations, by OID, ascending; `None`: any.
    pub relations: Option<Arc<[u32]>>,
    /// The users' code that it runs, or may mean by its words, as [`Grown`] has it; ascending.
    pub calls: Arc<[u32]>,
    /// What it calls is asked afterwards what it has touched.
    pub is_asked: bool,
    /// It names relations that are not there, and would use what comes to have their names before its node
    /// looks them up.
    pub names_absent: bool,
}

impl Concerns {
    /// Whether it may depend on where one of these relations is.
    pub fn may_use(&self, relations: &BTreeSet<u32>) -> bool {
        self.relations.as_ref().is_none_or(|own| own.iter().any(|it| relations.contains(it)))
    }

    /// Whether it is known that it depends on one of these relations.
    pub fn uses(&self, relations: &BTreeSet<u32>) -> bool {
        self.relations.is_some() && self.may_use(relations)
    }

    /// Whether it runs any code of users'.
    pub fn calls_users(&self) -> bool {
        self.calls.iter().any(|it| closure::is_object(*it))
    }

    /// Whether it may run code that it does not reckon with.
    pub fn may_call(&self, grown: &Grown) -> bool {
        grown.may_be_called(&self.calls, self.is_asked)
    }

    /// Whether code that `other` may call is all called by this, too.
    pub fn calls_all_of(&self, other: &Self) -> bool {
        let is_called = |call: &u32| self.calls.binary_search(call).is_ok();
        (!self.is_asked || other.is_asked) && other.calls.iter().all(is_called)
    }

    /// What either depends on.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let relations = self.relations.as_ref().zip(other.relations.as_ref());
        let relations = relations.map(|(one, other)| union(one, other));
        let names_absent = self.names_absent || other.names_absent;
        Self { relations, names_absent, ..self.with_calls_of(other) }
    }

    /// What it depends on where it may call what `other` may call, too.
    #[must_use]
    pub fn with_calls_of(&self, other: &Self) -> Self {
        Self {
            relations: self.relations.clone(),
            calls: union(&self.calls, &other.calls),
            is_asked: self.is_asked && other.is_asked,
            names_absent: self.names_absent,
        }
    }
}

fn union(one: &Arc<[u32]>, other: &Arc<[u32]>) -> Arc<[u32]> {
    match Arc::ptr_eq(one, other) {
        true => one.clone(),
        false => one.iter().chain(&**other).copied().collect::<BTreeSet<_>>().into_iter().collect(),
    }
}
