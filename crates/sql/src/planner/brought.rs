//! Bringing some tables of a query to the nodes, so that the others are read where they are.
//!
//! Owns: which tables these may be, and the query's plan once they are there.
//! Never: chooses among the ways; what each moves depends on how many rows there are, which is asked when it is run.
//! Start reading at [`ways`].
//!
//! A join of tables that are spread by different keys has its rows on several nodes. Once all rows of one of them are
//! on every node, as those of a replicated table are, each node joins its own rows of the other: what holds of
//! replicated tables (`scatter.rs`, `partial.rs`) holds of it. Where it is joined with the other's key, each of its rows
//! is needed on one node only, and what holds of a table that is spread by the column that is joined holds of it. Where
//! neither is joined by its key, the rows of both may meet by the hash of what joins them (a repartition join: DeWitt et
//! al., "The Gamma Database Machine Project", 1990, section 4). Such rows travel as those that are gathered do.

use pg_query::NodeEnum;

use super::analysis::{Analysis, BroughtItem};
use super::context::Context;
use super::gather::{self, Order};
use super::semi_joins::is_plain;
use super::{partial, scatter};
use crate::plan::Brought;
use crate::refusal::Refusal;

/// More ways than this are not looked at.
const WAYS_MAX: usize = 8;

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
    let may_travel =
        |brought: &Vec<BroughtItem>| brought.iter().all(|of| is_plain(of.item, analysis));
    for brought in scatter::tables_elsewhere(analysis).into_iter().filter(may_travel).take(WAYS_MAX)
    {
        if scatter::obstacle(&analysis.with_brought(&brought)).is_none()
            && analysis.time_in_view.is_none()
        {
            let items: Vec<_> = brought.iter().map(|of| of.item).collect();
            let order = Order {
                collect: &items,
                brought: &brought,
                literal_time: true,
                local: &[],
                away: false,
            };
            let (collects, statement) = gather::build(tree.clone(), analysis, &order, context)?;
            ways.push(Brought::Rows { collects, statement });
        } else if let Some(partial) = partial::of(tree, analysis, &brought, context)? {
            ways.push(Brought::Parts(Box::new(partial)));
        }
    }
    Ok(ways)
}
