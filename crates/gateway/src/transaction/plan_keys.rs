//! By what a session finds plans: the shapes of its texts, and the number of its catalog with its names.
//!
//! Owns: what of both is kept from statement to statement. Never: looks for a plan (see `planning`).

use std::sync::Arc;

use tutti_sql::catalog::Catalog;
use tutti_sql::shape::{Scanner, Shape};

/// What a session keeps for finding plans quickly.
#[derive(Debug, Default)]
pub(crate) struct Planning {
    pub(super) scanner: Scanner,
    /// The number of this catalog with the scope as it was after this many changes.
    pub(super) number: Option<(Arc<Catalog>, u64, u64)>,
}

impl Planning {
    /// The shape of a text, if it has one.
    pub(crate) fn scan<'s>(&'s mut self, text: &str) -> Option<Shape<'s>> {
        self.scanner.scan(text)
    }
}
