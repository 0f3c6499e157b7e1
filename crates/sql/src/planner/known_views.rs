//! What has been found out about views while a statement is planned.
//!
//! Owns: that each view is looked into once, however often others read it.
//! Never: looks into one (`views.rs` does).
//! Start reading at [`Known`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pg_query::NodeEnum;

use super::function_use::FunctionUse;
use crate::catalog::Relation;
use crate::refusal::Refusal;

/// What a view reads.
#[derive(Debug)]
pub(super) struct Contents {
    /// A distributed table, perhaps through other views.
    pub(super) distributed: bool,
    /// Something that only node 1 has.
    pub(super) home: bool,
    /// Its rows are those that each node finds for itself, concatenated, whatever other code there is.
    pub(super) apart: bool,
    /// It may give other rows each time it is read.
    pub(super) varies: bool,
    pub(super) functions: FunctionUse,
    /// Its query, with the views in it written out.
    pub(super) query: NodeEnum,
    /// How many views that is, itself included.
    pub(super) written_out: usize,
    /// How many of them lie over one another.
    pub(super) depth: usize,
}

impl Contents {
    /// Whether each node can say its own part of it in a statement whose own code `is_opaque` or not.
    pub(super) fn is_apart(&self, is_opaque: bool) -> bool {
        // What the statement's own code does is not the view's doing, but it must run on one node.
        self.apart && !is_opaque
    }
}

/// What has been found out about views while a statement is planned, by qualified name: each is
/// analysed once, however often others read it. `None`: it is being analysed.
#[derive(Debug, Default)]
pub struct Known(Mutex<KnownViews>);

type KnownViews = HashMap<String, Option<Result<Arc<Contents>, Refusal>>>;

impl Known {
    /// What the view reads, other views looked through.
    ///
    /// Requires: it was looked into. Errors: what was wrong with it; 42P17 for one that is being looked into,
    /// and so reads itself, which PostgreSQL says as late.
    pub(super) fn contents(&self, view: &Relation) -> Result<Arc<Contents>, Refusal> {
        let found = self.lock().get(&view.sql_name()).cloned().flatten();
        found.unwrap_or_else(|| Err(infinite_recursion(view)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, KnownViews> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn infinite_recursion(view: &Relation) -> Refusal {
    let message = format!("infinite recursion detected in rules for relation \"{}\"", view.name);
    Refusal::postgres("42P17", message)
}
