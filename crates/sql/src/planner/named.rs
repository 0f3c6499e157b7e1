//! The tables that a statement names, by where their rows are: on node 1 alone, or on several.
//!
//! Owns: recognising what is node 1's alone, where tables are on node 1 by default.
//! Never: looks through views (`mentions.rs` does).
//! Start reading at [`Named`].

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, RangeVar};

use super::context::Context;
use super::temporary::is_temporary;
use crate::catalog::{Placement, Relation, RelationKind};
use crate::plan::Planned;

/// The tables that a statement names.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// OIDs of those that are on several nodes.
    pub(super) spread: Vec<u32>,
    /// Some are on node 1 alone.
    pub(super) home: bool,
    /// Some names mean no table that the catalog knows: indexes, views, sequences, types …
    pub(super) other: bool,
}

impl Named {
    pub(super) fn add(&mut self, relation: Option<&Arc<Relation>>) {
        match relation {
            Some(relation) if has_rows(&relation.kind) => match relation.placement {
                Placement::Home => self.home = true,
                _ => self.spread.push(relation.oid),
            },
            _ => self.other = true,
        }
    }

    /// A name that must be a table's. One that the catalog does not know yet is node 1's: a spread
    /// table is known before any client can learn of it.
    pub(super) fn add_table(&mut self, range: Option<&RangeVar>, context: &Context<'_>) {
        let Some(range) = range else {
            self.other = true;
            return;
        };
        match context.relation(range) {
            None if !is_temporary(range, context) => self.home = true,
            relation => self.add(relation),
        }
    }

    pub(super) fn add_range(&mut self, range: Option<&RangeVar>, context: &Context<'_>) {
        match range {
            Some(range) => self.add(context.relation(range)),
            None => self.other = true,
        }
    }

    pub(super) fn add_ranges(&mut self, ranges: &[Node], context: &Context<'_>) {
        for range in ranges {
            match &range.node {
                Some(NodeEnum::RangeVar(range)) => self.add(context.relation(range)),
                _ => self.other = true,
            }
        }
    }

    pub(super) fn is_home_alone(&self) -> bool {
        self.home && self.spread.is_empty() && !self.other
    }
}

/// Whether it has rows that are somewhere.
pub(super) fn has_rows(kind: &RelationKind) -> bool {
    matches!(kind, RelationKind::Table | RelationKind::MaterializedView | RelationKind::Other)
}

/// A statement about tables that are all on node 1, or are not known: LOCK, VACUUM and the like.
pub(super) fn at_home_if_all<'n>(
    ranges: impl Iterator<Item = Option<&'n RangeVar>>,
    context: &Context<'_>,
) -> Option<Planned> {
    let mut named = Named::default();
    ranges.for_each(|range| named.add_range(range, context));
    (context.catalog.home_by_default && named.is_home_alone())
        .then(|| Planned::at_home("its tables are on node 1 alone"))
}
