//! Collecting rows of tables from the nodes that have them.
//!
//! Owns: in which order tables are collected, for of some only those rows matter that belong to rows of others; one
//! statement per node and round, so that a node's tables are read in one snapshot; and to which node each row goes.
//! Never: looks into a client's row.
//! Start reading at [`Executor::collect`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytes::Bytes;
use tutti_sql::catalog::{MapId, NodeId};
use tutti_sql::hash::Bucket;
use tutti_sql::plan::{Access, Collect, CollectFrom};

use super::array_literal::ArrayText;
use super::estimate::{Sizes, sizes};
use super::exchanges::Came;
use super::fan_out::{Answers, SnapshotNeed, read_rows};
use super::filled::{Times, fill_template, fill_template_with};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, IssuedBy, Rows, too_large};
use crate::plans::route::node_of_bucket;

/// A table of at least so many rows is worth a round trip in which fewer of them are asked for.
const ROWS_MIN: f64 = 1000.0;
/// How many times as many rows a table must have as what it is reduced by, which goes to every node.
const TIMES_MIN: f64 = 4.0;
/// More bytes of rows than this are not sent to every node for what they may save.
const REDUCING_BYTES_MAX: usize = 16 << 20;

/// The rows that were collected of a table, as texts of arrays.
#[derive(Clone, Debug)]
pub(super) enum Collected {
    /// For whoever needs them.
    Same(Bytes),
    /// For each node its own.
    OfNode(BTreeMap<NodeId, Bytes>),
}

impl Collected {
    /// What a node needs of it.
    fn of_node(&self, node: NodeId) -> Bytes {
        match self {
            Self::Same(rows) => rows.clone(),
            Self::OfNode(rows) => {
                rows.get(&node).cloned().unwrap_or_else(|| ArrayText::default().into_bytes())
            }
        }
    }

    /// The rows, of which none is meant for one node alone.
    pub(super) fn into_same(self) -> Result<Bytes, Failure> {
        match self {
            Self::Same(rows) => Ok(rows),
            Self::OfNode(_) => Err(Failure::error("XX000", "rows of some nodes go to one")),
        }
    }
}

/// What is collected in one round: each table, and by which of its ways to collect fewer rows.
pub(super) type Round = Vec<(usize, Option<usize>)>;

/// A table's rows as they come in.
#[derive(Default)]
struct Incoming {
    same: ArrayText,
    of_node: BTreeMap<NodeId, ArrayText>,
    rows: u64,
    bytes: usize,
}

impl Executor<'_> {
    /// All of a plan's collects, in order; `expected`: how many rows each is expected to give, where that was asked.
    pub(super) async fn collect(
        &mut self,
        collects: &[Collect],
        expected: Option<Vec<Sizes>>,
        times: &Times,
        call: &Call,
    ) -> Result<Vec<Collected>, Failure> {
        if let [collect] = collects
            && let Some(first) = collect.locks.as_ref().and_then(|locks| locks.first.as_ref())
            && (!first.is_all || first.by_key.is_some())
        {
            let begun = Instant::now();
            let rows = self.lock_first(collect, first, times, call).await?;
            self.note_locked(&collect.relation.name, rows.len(), begun.elapsed());
            return Ok(vec![Collected::Same(rows)]);
        }
        let mut collected = BTreeMap::new();
        for round in self.rounds_of(collects, expected, call).await? {
            self.collect_round(collects, &round, &mut collected, times, call).await?;
        }
        for (index, collect) in collects.iter().enumerate() {
            if let CollectFrom::Returned(step) = collect.from {
                let returned = self.tx.returned.as_ref().and_then(|all| all.get(step)).cloned();
                let returned = returned.ok_or_else(|| {
                    Failure::error("XX000", "rows are read that no step has returned")
                })?;
                collected.insert(index, Collected::Same(returned));
            }
        }
        Ok(collected.into_values().collect())
    }

    /// In which order the tables are collected. Asks for what is not known of their sizes, where it depends on them.
    pub(super) async fn rounds_of(
        &mut self,
        collects: &[Collect],
        expected: Option<Vec<Sizes>>,
        call: &Call,
    ) -> Result<Vec<Round>, Failure> {
        let always = self.tx.registry.cluster.config.switches.any_way;
        let can_be_reduced = collects.iter().any(|collect| !collect.reduced.is_empty());
        let expected = match expected {
            Some(expected) => expected,
            None if can_be_reduced && !always => {
                let rows = self.expected_rows(collects, call).await?;
                sizes(collects, &rows, self.tx.catalog.nodes.len())
            }
            None => Vec::new(),
        };
        let by = |collect: &Collect| collect.reduced.iter().map(|reduced| reduced.by).collect();
        Ok(rounds(&collects.iter().map(by).collect::<Vec<_>>(), &expected, always))
    }

    async fn collect_round(
        &mut self,
        collects: &[Collect],
        round: &Round,
        collected: &mut BTreeMap<usize, Collected>,
        times: &Times,
        call: &Call,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let locks = collects.iter().any(|collect| collect.locks.is_some());
        let access = if locks { Access::Write } else { Access::Read };
        let mut wanted: BTreeMap<NodeId, Vec<(usize, Option<usize>)>> = BTreeMap::new();
        for &(index, way) in round {
            let collect = &collects[index];
            let chosen = match &collect.from {
                CollectFrom::AllNodes => None,
                CollectFrom::One(choice) => self.choose(choice, call),
                CollectFrom::Returned(_) => continue,
            };
            let way = way.filter(|way| {
                let by = collected.get(&collect.reduced[*way].by);
                matches!(by, Some(Collected::Same(rows)) if rows.len() <= REDUCING_BYTES_MAX)
                    && call.can_carry(collects.len())
            });
            let nodes = chosen.map_or_else(|| self.tx.catalog.nodes.clone(), |node| vec![node]);
            for node in nodes {
                wanted.entry(node).or_default().push((index, way));
            }
        }
        let mut carried: BTreeMap<NodeId, Vec<Bytes>> = BTreeMap::new();
        let mut texts = Vec::new();
        for (node, asked) in &wanted {
            let by =
                |&(index, way): &(usize, Option<usize>)| Some(collects[index].reduced[way?].by);
            let by: Vec<_> =
                asked.iter().filter_map(by).collect::<BTreeSet<_>>().into_iter().collect();
            let selects = asked.iter().map(|&(index, way)| {
                let collect = &collects[index];
                let select = match way {
                    None => fill_template(&collect.select, call, times),
                    Some(way) => {
                        let place = |of: usize| by.iter().position(|by| *by == of).unwrap_or(of);
                        fill_template_with(&collect.reduced[way].select, call, times, place)
                    }
                };
                let bucket =
                    if collect.route.is_some() { "tutti_b" } else { "NULL::pg_catalog.int8" };
                let columns = if collect.route.is_some() { "tutti_r, tutti_b" } else { "tutti_r" };
                format!("SELECT {index}, tutti_r, {bucket} FROM ({select}) AS tutti_q({columns})")
            });
            texts.push((*node, selects.collect::<Vec<_>>().join(" UNION ALL ")));
            let rows = by.iter().filter_map(|by| Some(collected.get(by)?.of_node(*node)));
            carried.insert(*node, rows.collect());
        }
        let texts: Vec<_> = texts.iter().map(|(node, text)| (*node, text.as_str())).collect();
        self.refuse_parameters_elsewhere(wanted.keys().copied(), call)?;
        let (mut gathered, bytes_max) = (0, self.travelling_bytes_max());
        let carrying = match carried.values().any(|rows| !rows.is_empty()) {
            true => Cow::Owned(call.carrying(Rows::OfNode(carried), bytes_max)?),
            false => Cow::Borrowed(call),
        };
        if !texts.is_empty() {
            let by = IssuedBy::Gateway;
            self.send_to_many(&texts, access, SnapshotNeed::Rows, by, &carrying).await?;
        }
        let mut incoming: BTreeMap<usize, Incoming> = BTreeMap::new();
        for (index, _) in round {
            incoming.insert(*index, Incoming::default());
        }
        let nodes: Vec<_> = wanted.keys().copied().collect();
        let mut awaited = Answers::of(&nodes);
        let catalog = self.tx.catalog.clone();
        let node_of = |map: MapId, bucket: Option<&Bytes>| {
            let bucket = std::str::from_utf8(bucket?).ok()?.parse().ok()?;
            node_of_bucket(&catalog, map, Bucket(bucket))
        };
        while let Some(node) = awaited.next(self).await {
            let link = self.tx.links.at(&node);
            let read = read_rows(link, |row| {
                let [Some(index), Some(composite), bucket] = row else { return Ok(()) };
                let index = std::str::from_utf8(index).ok().and_then(|index| index.parse().ok());
                let incoming =
                    index.and_then(|index: usize| Some((index, incoming.get_mut(&index)?)));
                let (Some((index, incoming)), Ok(composite)) =
                    (incoming, std::str::from_utf8(composite))
                else {
                    return Ok(());
                };
                let array = match collects[index].route {
                    None => &mut incoming.same,
                    Some(map) => {
                        let node = node_of(map, bucket.as_ref()).ok_or_else(|| {
                            Failure::error("XX000", "a row that travels has no node to go to")
                        })?;
                        incoming.of_node.entry(node).or_default()
                    }
                };
                let bytes = array.push_composite(composite);
                gathered += bytes;
                incoming.rows += 1;
                incoming.bytes += bytes;
                if bytes_max < gathered {
                    return Err(too_large(bytes_max));
                }
                Ok(())
            });
            if let Err(error) = read.await {
                awaited.note(self, error).await?;
            }
        }
        awaited.end()?;
        if self.exchanges.is_some() && !texts.is_empty() {
            let of = |index: &usize| incoming.get(index).map_or((0, 0), |of| (of.rows, of.bytes));
            let came = Came { collects, round, wanted: &wanted, elapsed: begun.elapsed() };
            self.note_round(&came, of, &texts, access, &carrying).await?;
        }
        for (index, Incoming { same, of_node, .. }) in incoming {
            let rows = match collects[index].route {
                None => Collected::Same(same.into_bytes()),
                Some(_) => {
                    let of_node = of_node.into_iter();
                    Collected::OfNode(
                        of_node.map(|(node, rows)| (node, rows.into_bytes())).collect(),
                    )
                }
            };
            collected.insert(index, rows);
        }
        Ok(())
    }

    /// Collected rows as parameters of what every node runs.
    pub(super) fn rows_of(&self, collected: &[Collected]) -> Rows {
        let of_node = |node: &NodeId| {
            (*node, collected.iter().map(|of| of.of_node(*node)).collect::<Vec<_>>())
        };
        Rows::OfNode(self.tx.catalog.nodes.iter().map(of_node).collect())
    }
}

/// Which tables are collected at the same time, and which after others, by whose rows they are reduced.
///
/// `reducers`: for each table, by whose rows it can be. `sizes`: of all, or of none where they are not known. With
/// `always` every table that can be is reduced.
fn rounds(reducers: &[Vec<usize>], sizes: &[Sizes], always: bool) -> Vec<Round> {
    let parents: Vec<Option<(usize, usize)>> = reducers
        .iter()
        .enumerate()
        .map(|(index, reducers)| {
            let ways = reducers.iter().copied().enumerate();
            if always {
                return ways.min_by_key(|(_, by)| *by);
            }
            let of = sizes.get(index)?;
            let worth = ways.filter_map(|(way, by)| {
                let expected = (*of.reduced.get(way)?)?;
                let is_worth = ROWS_MIN <= of.own
                    && sizes.get(by)?.least() * TIMES_MIN <= of.own
                    && expected * 2.0 <= of.own;
                is_worth.then_some((expected, (way, by)))
            });
            worth.min_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, way)| way)
        })
        .collect();
    let mut left: Vec<usize> = (0..reducers.len()).collect();
    let mut rounds = Vec::new();
    while !left.is_empty() {
        let waits = |index: &usize| parents[*index].is_some_and(|(_, by)| left.contains(&by));
        let mut round: Round = left
            .iter()
            .filter(|index| !waits(index))
            .map(|index| (*index, parents[*index].map(|(way, _)| way)))
            .collect();
        if round.is_empty() {
            // They wait for one another: the smallest of them does not.
            let own = |index: &usize| sizes.get(*index).map_or(0.0, |of| of.own);
            let first = left.iter().min_by(|one, other| own(one).total_cmp(&own(other)));
            round.extend(first.map(|index| (*index, None)));
        }
        left.retain(|index| !round.iter().any(|(of, _)| of == index));
        rounds.push(round);
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(own: f64, reduced: &[f64]) -> Sizes {
        Sizes { own, reduced: reduced.iter().copied().map(Some).collect() }
    }

    /// Of `part`, `partsupp`, `lineitem` and `supplier` as TPC-H's query 20 has them.
    #[test]
    fn a_table_waits_for_those_that_leave_few_of_its_rows() {
        let reducers = [vec![1], vec![0, 3], vec![1], vec![1]];
        let sizes = [
            sizes(200.0, &[200.0]),
            sizes(80_000.0, &[800.0, 80_000.0]),
            sizes(90_000.0, &[1_000.0]),
            sizes(1_000.0, &[1_000.0]),
        ];
        let expected = [vec![(0, None), (3, None)], vec![(1, Some(0))], vec![(2, Some(0))]];
        assert_eq!(rounds(&reducers, &sizes, false), expected);
    }

    #[test]
    fn what_saves_little_is_not_waited_for() {
        let reducers = [vec![], vec![0]];
        let all_at_once = [vec![(0, None), (1, None)]];
        for of in [
            // Too few rows to save any, too many to reduce by, too many left.
            [sizes(10.0, &[]), sizes(900.0, &[1.0])],
            [sizes(3_000.0, &[]), sizes(10_000.0, &[100.0])],
            [sizes(10.0, &[]), sizes(10_000.0, &[6_000.0])],
        ] {
            assert_eq!(rounds(&reducers, &of, false), all_at_once, "{of:?}");
        }
        assert_eq!(rounds(&reducers, &[], false), all_at_once);
    }

    #[test]
    fn of_tables_that_wait_for_each_other_one_is_collected_first() {
        let reducers = [vec![1], vec![0]];
        let sizes = [sizes(20_000.0, &[10.0]), sizes(10_000.0, &[10.0])];
        let expected = [vec![(1, None)], vec![(0, Some(0))]];
        assert_eq!(rounds(&reducers, &sizes, false), expected);
        assert_eq!(rounds(&reducers, &[], true), [vec![(0, None)], vec![(1, Some(0))]]);
    }
}
