//! Which way of answering moves the fewest rows between nodes.
//!
//! Owns: asking PostgreSQL's planner how many rows each collecting SELECT gives, and the comparison.
//! Never: makes a way, or counts a row.
//! Start reading at [`Executor::least_moving`].

use std::collections::BTreeMap;

use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, Brought, Collect, CollectFrom, Gather};

use super::gather::fill_template;
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::Call;

/// How many rows a SELECT gives, by its text.
pub(super) type Rows = BTreeMap<String, f64>;

impl Executor<'_> {
    /// The way that moves the fewest rows, if it is not to bring all of them to one node; also where it is not known how
    /// many these are.
    pub(super) async fn least_moving<'g>(
        &mut self,
        gather: &'g Gather,
        call: &Call,
    ) -> Result<Option<&'g Brought>, Failure> {
        if gather.brought.is_empty() {
            return Ok(None);
        }
        if self.tx.registry.cluster.config.switches.any_way {
            // One of them, or none, or that which would be taken.
            let choices = gather.brought.len() + 2;
            let statement = gather.statement.to_string();
            let drawn =
                statement.bytes().fold(0, |sum, byte| (sum * 31 + usize::from(byte)) % choices);
            match gather.brought.get(drawn) {
                Some(way) => return Ok(Some(way)),
                None if drawn == gather.brought.len() => return Ok(None),
                None => (),
            }
        }
        let rows = self.estimate(gather, call).await?;
        let nodes = self.tx.catalog.nodes.len();
        // To the gateway, and from there to the node that answers.
        let Some(all) = moved(&gather.collects, 1, &rows) else { return Ok(None) };
        let ways = gather.brought.iter().filter_map(|way| {
            let moved = moved(way.collects(), nodes, &rows)?;
            (moved < all).then_some((moved, way))
        });
        Ok(ways.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, way)| way))
    }

    /// How many rows node 1 expects each collecting SELECT to give, on all nodes together. Empty where it does not say.
    async fn estimate(&mut self, gather: &Gather, call: &Call) -> Result<Rows, Failure> {
        let of_ways = gather.brought.iter().flat_map(Brought::collects);
        let collects: Vec<_> = gather.collects.iter().chain(of_ways).collect();
        let times = self.times_for(collects.iter().map(|collect| &collect.select)).await?;
        let mut asked: BTreeMap<String, (&Collect, String)> = BTreeMap::new();
        for collect in collects {
            let select = fill_template(&collect.select, call, &times);
            asked.entry(key(collect)).or_insert((collect, select));
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
                CollectFrom::One(_) | CollectFrom::Returned(_) => 1,
            };
            rows.insert(key, expected * on as f64);
        }
        Ok(rows)
    }
}

fn key(collect: &Collect) -> String {
    collect.select.to_string()
}

/// How many rows travel if these are collected and sent to so many nodes.
fn moved(collects: &[Collect], to: usize, rows: &Rows) -> Option<f64> {
    let rows = collects.iter().map(|collect| rows.get(&key(collect)).copied());
    let all: f64 = rows.sum::<Option<f64>>()?;
    Some(all * (1 + to) as f64)
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
