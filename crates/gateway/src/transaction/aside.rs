//! What a session's block has while a statement of it is carried out apart.
//!
//! Owns: what belongs to a transaction and not to its session. Never: moves it (`apart` does).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tutti_link::pool::Permit;
use tutti_link::pool::links::Links;
use tutti_sql::catalog::{Catalog, NodeId};

use super::state::Transaction;

/// What a block has, while a statement of it is carried out apart; or the other way about.
pub(crate) struct Aside {
    pub(super) transaction: Transaction,
    pub(super) links: Links,
    pub(super) permit: Option<Permit>,
    pub(super) checked_out: BTreeSet<NodeId>,
    pub(super) refreshed: Vec<(NodeId, Option<Arc<Catalog>>)>,
    pub(super) flight: BTreeMap<NodeId, bool>,
}
