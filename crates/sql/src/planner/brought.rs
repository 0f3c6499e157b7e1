//! Bringing some tables of a query to every node, so that the others are read where they are.
//!
//! Owns: which tables these may be, and the query's plan once they are there.
//! Never: chooses among the ways; what each moves depends on how many rows there are, which is asked when it is run.
//! Start reading at [`ways`].
//!
//! A join of tables that are spread by different keys has its rows on several nodes. Once all rows of one of them are
//! on every node, as those of a replicated table are, each node joins its own rows of the other: what holds of
//! replicated tables (`scatter.rs`, `partial.rs`) holds of it. Such rows travel as those that are gathered do.

use pg_query::NodeEnum;

use super::analysis::{Analysis, ItemId};
use super::context::Context;
use super::gather::{self, Order};
use super::{partial, scatter};
use crate::catalog::Column;
use crate::plan::Brought;
use crate::refusal::Refusal;

/// More ways than this are not looked at.
const WAYS_MAX: usize = 6;
/// The OIDs of what users make begin here: what reads such values on a node may be their code.
const FIRST_OF_USERS: u32 = 16_384;

/// The ways in which a read that is gathered otherwise can be answered once some tables are on every node; none if its
/// parts would not be of one moment.
pub(super) fn ways(
    tree: &NodeEnum,
    analysis: &Analysis<'_>,
    context: &Context<'_>,
) -> Result<Vec<Brought>, Refusal> {
    if context.collects_replicated || context.opaque.is_some() || !analysis.locked.is_empty() {
        return Ok(Vec::new());
    }
    let mut ways = Vec::new();
    let may_travel = |items: &Vec<ItemId>| items.iter().all(|item| is_plain(*item, analysis));
    for items in scatter::tables_elsewhere(analysis).into_iter().filter(may_travel).take(WAYS_MAX) {
        let everywhere = analysis.with_everywhere(&items);
        if scatter::obstacle(&everywhere).is_none() && analysis.time_in_view.is_none() {
            let order = Order { collect: &items, literal_time: true, local: &[] };
            let (collects, statement) = gather::build(tree.clone(), analysis, &order, context)?;
            ways.push(Brought::Rows { collects, statement });
        } else if let Some(partial) = partial::of(tree, analysis, &items, context)? {
            ways.push(Brought::Parts(Box::new(partial)));
        }
    }
    Ok(ways)
}

/// Whether a table's rows are made of values that every node reads without running users' code.
fn is_plain(item: ItemId, analysis: &Analysis<'_>) -> bool {
    let plain = |column: &Column| column.type_oid < FIRST_OF_USERS && !column.domain;
    let of = &analysis.items[item];
    !of.sampled
        && !analysis.system_columns.contains(&item)
        && of.distributed().is_some_and(|(relation, _)| relation.columns.iter().all(plain))
}
