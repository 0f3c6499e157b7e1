//! Which way of answering moves the fewest rows between nodes.
//!
//! Owns: asking PostgreSQL's planner how many rows each collecting SELECT gives, and the comparison.
//! Never: makes a way, or counts a row.
//! Start reading at [`Executor::least_moving`].

use std::collections::BTreeMap;

use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, Brought, Collect, CollectFrom, Gather};

use super::filled::fill_template;
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::Call;

/// How many rows a SELECT gives on all nodes together, by its text.
pub(super) type Rows = BTreeMap<String, f64>;

/// Of so many rows that move, as many may move to several nodes, which join them at the same time, as to one: for
/// fewer one node is as fast, and less is sent.
const MANY: f64 = 10_000.0;

/// More ways to collect fewer rows than this are not asked about.
const REDUCED_MAX: usize = 16;

/// The way that is taken, with how many rows each of its collects is expected to give; nothing where that is not known.
pub(super) struct Way<'g> {
    /// `None`: all rows are brought to one node.
    pub(super) brought: Option<&'g Brought>,
    /// Of the collects of that way.
    pub(super) sizes: Option<Vec<Sizes>>,
}

impl Way<'_> {
    /// All rows to one node.
    pub(super) fn gathering() -> Self {
        Self { brought: None, sizes: None }
    }
}

/// How many rows a collect is expected to give.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sizes {
    /// Of all that the statement may need.
    pub(super) own: f64,
    /// For each of [`Collect::reduced`], where it was asked.
    pub(super) reduced: Vec<Option<f64>>,
}

impl Sizes {
    /// By the way that gives the fewest.
    pub(super) fn least(&self) -> f64 {
        self.reduced.iter().flatten().copied().fold(self.own, f64::min)
    }
}

/// The sizes of these collects; empty where they are not known.
pub(super) fn sizes(collects: &[Collect], rows: &Rows, nodes: usize) -> Vec<Sizes> {
    let of = |collect: &Collect| {
        let own = *rows.get(&collect.select.to_string())?;
        let reduced = collect.reduced.iter().map(|reduced| {
            // Node 1 knows its own rows of the other table alone.
            let expected = rows.get(&reduced.expected.to_string())? * nodes as f64;
            Some(expected.min(own))
        });
        Some(Sizes { own, reduced: reduced.collect() })
    };
    collects.iter().map(of).collect::<Option<_>>().unwrap_or_default()
}

impl Executor<'_> {
    /// The way that moves the fewest rows: that of bringing all of them to one node also where it is not known how many
    /// these are.
    pub(super) async fn least_moving<'g>(
        &mut self,
        gather: &'g Gather,
        call: &Call,
    ) -> Result<Way<'g>, Failure> {
        if gather.brought.is_empty() {
            return Ok(Way::gathering());
        }
        // One of them, or none, or that which would be taken.
        let choices = gather.brought.len() + 2;
        if let Some(drawn) = self.drawn("way", &gather.statement, choices) {
            match gather.brought.get(drawn) {
                Some(way) => return Ok(Way { brought: Some(way), sizes: None }),
                None if drawn == gather.brought.len() => return Ok(Way::gathering()),
                None => (),
            }
        }
        let of_ways = gather.brought.iter().flat_map(Brought::collects);
        let rows = self.expected_rows(gather.collects.iter().chain(of_ways), call).await?;
        let nodes = self.tx.catalog.nodes.len();
        // To the gateway, and from there to the node that answers.
        let of_gather = sizes(&gather.collects, &rows, nodes);
        let Some(all) = moved(&gather.collects, &of_gather, 1) else {
            return Ok(Way::gathering());
        };
        let ways = gather.brought.iter().filter_map(|way| {
            let sizes = sizes(way.collects(), &rows, nodes);
            let moved = moved(way.collects(), &sizes, nodes)?;
            let is_better = moved < all || (moved <= all && MANY <= all);
            is_better.then_some((moved, Way { brought: Some(way), sizes: Some(sizes) }))
        });
        let least = ways.min_by(|one, other| one.0.total_cmp(&other.0));
        let gathering = Way { brought: None, sizes: Some(of_gather) };
        Ok(least.map_or(gathering, |(_, way)| way))
    }

    /// How many rows node 1 expects each collecting SELECT to give, on all nodes together. Empty where it does not say.
    pub(super) async fn expected_rows(
        &mut self,
        collects: impl IntoIterator<Item = &Collect> + Clone,
        call: &Call,
    ) -> Result<Rows, Failure> {
        let own = collects.clone().into_iter().map(|collect| (&collect.select, collect));
        let reduced = collects.into_iter().flat_map(|collect| {
            collect.reduced.iter().map(move |reduced| (&reduced.expected, collect))
        });
        let selects: Vec<_> = own.chain(reduced.take(REDUCED_MAX)).collect();
        let times = self.times_for(selects.iter().map(|(select, _)| *select)).await?;
        let mut asked: BTreeMap<String, (&Collect, String)> = BTreeMap::new();
        for (select, collect) in selects {
            let sql = fill_template(select, call, &times);
            // Of rows that a step has returned nobody asks.
            if !matches!(collect.from, CollectFrom::Returned(_) | CollectFrom::Moments) {
                asked.entry(select.to_string()).or_insert((collect, sql));
            }
        }
        let name = |index: usize| format!("tutti_c{index}");
        let ctes = asked
            .values()
            .enumerate()
            .map(|(index, (_, select))| format!("{} AS MATERIALIZED ({select})", name(index)));
        let reads = (0..asked.len()).map(|index| format!("(SELECT FROM {} LIMIT 1)", name(index)));
        let sql = format!(
            "EXPLAIN WITH {} SELECT WHERE {}",
            ctes.collect::<Vec<_>>().join(", "),
            reads.map(|read| format!("EXISTS {read}")).collect::<Vec<_>>().join(" OR "),
        );
        let lines = self.ask_explain(NodeId::HOME, Access::Read, &sql, call).await?;
        let nodes = self.tx.catalog.nodes.len();
        let mut rows = Rows::new();
        for (index, (key, (collect, _))) in asked.into_iter().enumerate() {
            let Some(expected) = expected_rows(&lines, &name(index)) else {
                return Ok(Rows::new());
            };
            let on = match collect.from {
                CollectFrom::AllNodes => nodes,
                CollectFrom::One(_) | CollectFrom::Returned(_) | CollectFrom::Moments => 1,
            };
            rows.insert(key, expected * on as f64);
        }
        Ok(rows)
    }
}

/// How many rows travel if these are collected and sent to so many nodes, but for those of which each goes to one.
fn moved(collects: &[Collect], sizes: &[Sizes], to: usize) -> Option<f64> {
    let of = |(collect, sizes): (&Collect, &Sizes)| {
        let to = if collect.route.is_some() { 1 } else { to };
        sizes.least() * (1 + to) as f64
    };
    (collects.len() == sizes.len()).then(|| collects.iter().zip(sizes).map(of).sum())
}

/// What EXPLAIN says behind the name of a CTE: `CTE name`, then `->  Seq Scan on t  (cost=0.00..1.00 rows=1 width=32)`.
fn expected_rows(lines: &[String], cte: &str) -> Option<f64> {
    let title = format!("CTE {cte}");
    let at = lines.iter().position(|line| line.trim() == title)?;
    let (_, rest) = lines.get(at + 1)?.rsplit_once(" rows=")?;
    rest.split_once(' ')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_from_the_line_behind_the_name() {
        let lines = [
            "Result  (cost=39.02..39.03 rows=1 width=0)",
            "  CTE tutti_c0",
            "    ->  Seq Scan on part  (cost=0.00..22.70 rows=1270 width=32)",
            "          Filter: (size = 3)",
            "  CTE tutti_c10",
            "    ->  Append  (cost=0.00..2.70 rows=12 width=32)",
        ]
        .map(str::to_owned);
        assert_eq!(expected_rows(&lines, "tutti_c0"), Some(1270.0));
        assert_eq!(expected_rows(&lines, "tutti_c10"), Some(12.0));
        assert_eq!(expected_rows(&lines, "tutti_c1"), None);
    }
}
