//! Collecting rows of tables from the nodes that have them.
//!
//! Owns: in which order tables are collected, for of some only those rows matter that belong to rows of others; one
//! statement per node and round, so that a node's tables are read in one snapshot; to which node each row goes; and when
//! there are too many to keep them.
//! Never: looks into a client's row.
//! Start reading at [`Executor::collect`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytes::Bytes;
use tutti_sql::catalog::NodeId;
use tutti_sql::hash::Bucket;
use tutti_sql::plan::{Access, Collect, CollectFrom};
use tutti_wire::backend::decode_data_row;

use super::array_literal::ArrayText;
use super::estimate::{Sizes, sizes};
use super::exchanges::Came;
use super::fan_out::{Answers, SnapshotNeed, ends_answer};
use super::filled::{Times, fill_template, fill_template_with};
use super::receiver::{Receiver, Reception};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, IssuedBy, Rows, too_large};
use crate::plans::route::node_of_bucket;

/// A table of at least so many rows is worth a round trip in which fewer of them are asked for.
const ROWS_MIN: f64 = 1000.0;
/// How many times as many rows a table must have as what it is reduced by, which goes to every node.
const TIMES_MIN: f64 = 4.0;
/// Rows of fewer bytes are kept where there are many of other tables: they may say which of further tables can matter.
const PASSED_BYTES_MIN: usize = 1 << 20;
/// More bytes of rows than this are not sent to every node for what they may save.
const REDUCING_BYTES_MAX: usize = 16 << 20;

/// The rows that were collected of a table, as texts of arrays.
#[derive(Clone, Debug)]
pub(super) enum Collected {
    /// For whoever needs them.
    Same(Bytes),
    /// For each node its own.
    OfNode(BTreeMap<NodeId, Bytes>),
    /// The receiver has them.
    Passed,
}

impl Collected {
    /// What a node needs of it.
    pub(super) fn of_node(&self, node: NodeId) -> Bytes {
        match self {
            Self::Same(rows) => rows.clone(),
            Self::OfNode(rows) => {
                rows.get(&node).cloned().unwrap_or_else(|| ArrayText::default().into_bytes())
            }
            // They are passed on where one node needs them, from a receiver.
            Self::Passed => ArrayText::default().into_bytes(),
        }
    }

    /// How many bytes are kept.
    fn len(&self) -> usize {
        match self {
            Self::Same(rows) => rows.len(),
            Self::OfNode(rows) => rows.values().map(Bytes::len).sum(),
            Self::Passed => 0,
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
    is_passed: bool,
    rows: u64,
    bytes: usize,
}

/// Where rows go as they come in.
struct Intake<'a, 'p> {
    collects: &'a [Collect],
    /// By the index of their table.
    incoming: BTreeMap<usize, Incoming>,
    /// How many bytes are kept, of tables that were collected before, too.
    kept_bytes: usize,
    overflow: &'a mut Overflow<'p>,
    times: &'a Times,
    call: &'a Call,
}

/// What is done with more rows than are to be kept.
pub(super) struct Overflow<'p> {
    /// Where they may go.
    reception: Option<Reception<'p>>,
    /// Where they go.
    pub(super) receiver: Option<Receiver<'p>>,
    /// From how many bytes on nothing is kept: there is another way to the answer.
    gives_up_at: Option<usize>,
    /// So it has come.
    pub(super) has_given_up: bool,
}

impl<'p> Overflow<'p> {
    /// They are an error.
    pub(super) fn refused() -> Self {
        Self::to(None)
    }

    /// They go there, if that can be had.
    pub(super) fn to(reception: Option<Reception<'p>>) -> Self {
        Self { reception, receiver: None, gives_up_at: None, has_given_up: false }
    }

    /// They are for nothing from so many bytes on, if there is another way.
    pub(super) fn giving_up(gives_up_at: Option<usize>) -> Self {
        Self { gives_up_at, ..Self::to(None) }
    }
}

impl Executor<'_> {
    /// All of a plan's collects, in order; `expected`: how many rows each is expected to give, where that was asked.
    pub(super) async fn collect(
        &mut self,
        collects: &[Collect],
        expected: Option<Vec<Sizes>>,
        times: &Times,
        call: &Call,
        overflow: &mut Overflow<'_>,
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
            self.collect_round(collects, &round, &mut collected, times, call, overflow).await?;
            if overflow.has_given_up {
                return Ok(Vec::new());
            }
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
        let first = collects.first().map(|collect| &collect.select);
        let drawn = first.and_then(|select| self.drawn("reduced", select, 4));
        // Always, never, or by how many rows there are.
        let always = drawn.is_some_and(|drawn| drawn < 2);
        let can_be_reduced = collects.iter().any(|collect| !collect.reduced.is_empty());
        let expected = match expected {
            Some(expected) => expected,
            None if can_be_reduced && matches!(drawn, None | Some(3)) => {
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
        overflow: &mut Overflow<'_>,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let locks = collects.iter().any(|collect| collect.locks.is_some());
        let access = if locks { Access::Write } else { Access::Read };
        let mut wanted: BTreeMap<NodeId, Vec<(usize, Option<usize>)>> = BTreeMap::new();
        for &(index, way) in round {
            let collect = &collects[index];
            let chosen = match &collect.from {
                CollectFrom::AllNodes | CollectFrom::Moments => None,
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
        let asks = round.iter().any(|(index, _)| collects[*index].from == CollectFrom::Moments);
        let unfinished = if asks { self.unfinished().await? } else { BTreeMap::new() };
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
                    None if collect.from == CollectFrom::Moments => {
                        let unfinished = unfinished.get(node).map_or("", String::as_str);
                        format!(
                            "SELECT pg_catalog.concat(pg_catalog.pg_current_snapshot(), '|{unfinished}')"
                        )
                    }
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
        let bytes_max = self.travelling_bytes_max();
        let carrying = match carried.values().any(|rows| !rows.is_empty()) {
            true => Cow::Owned(call.carrying(Rows::OfNode(carried), bytes_max)?),
            false => Cow::Borrowed(call),
        };
        if !texts.is_empty() {
            let by = IssuedBy::Gateway;
            self.send_to_many(&texts, access, SnapshotNeed::Rows, by, &carrying).await?;
        }
        let kept = collected.values().map(Collected::len).sum();
        let incoming = round.iter().map(|(index, _)| (*index, Incoming::default())).collect();
        let mut intake = Intake { collects, incoming, kept_bytes: kept, overflow, times, call };
        let nodes: Vec<_> = wanted.keys().copied().collect();
        let mut awaited = Answers::of(&nodes);
        while let Some(node) = awaited.next(self).await {
            let is_wanted = awaited.are_good();
            if let Err(error) = self.take_in(node, &mut intake, is_wanted).await {
                awaited.note(self, error).await?;
            }
        }
        awaited.end()?;
        let incoming = intake.incoming;
        if self.exchanges.is_some() && !texts.is_empty() {
            let of = |index: &usize| incoming.get(index).map_or((0, 0), |of| (of.rows, of.bytes));
            let came = Came { collects, round, wanted: &wanted, elapsed: begun.elapsed() };
            self.note_round(&came, of, &texts, access, &carrying).await?;
        }
        for (index, Incoming { same, of_node, is_passed, .. }) in incoming {
            let is_same = collects[index].route.is_none() && of_node.is_empty();
            let rows = match is_same {
                _ if is_passed => Collected::Passed,
                true => Collected::Same(same.into_bytes()),
                false => {
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

    /// Which transactions have not ended on each node, as `tutti.unfinished()` says it.
    async fn unfinished(&mut self) -> Result<BTreeMap<NodeId, String>, Failure> {
        const UNFINISHED: &str = "SELECT tutti.unfinished()";
        let nodes = self.tx.catalog.nodes.clone();
        let texts: Vec<_> = nodes.iter().map(|node| (*node, UNFINISHED)).collect();
        let (access, need) = (Access::Read, SnapshotNeed::Nothing);
        let said = self.internal_rows_with(&texts, access, need, &Call::Simple).await?;
        let mut unfinished = BTreeMap::new();
        for (node, rows) in nodes.into_iter().zip(said) {
            let text =
                rows.first().and_then(|row| std::str::from_utf8(row.first()?.as_ref()?).ok());
            let is_sound = |text: &&str| {
                text.bytes().all(|byte| byte.is_ascii_digit() || b"|{},".contains(&byte))
            };
            let text = text.filter(is_sound).ok_or_else(|| {
                Failure::error("XX000", "a node did not say which transactions are running")
            })?;
            unfinished.insert(node, text.to_owned());
        }
        Ok(unfinished)
    }

    /// Reads one node's answer to its end.
    async fn take_in(
        &mut self,
        node: NodeId,
        intake: &mut Intake<'_, '_>,
        is_wanted: bool,
    ) -> Result<(), Failure> {
        let refused_before = self.tx.links.at(&node).catch_up().await?;
        let mut failure: Option<Failure> = None;
        loop {
            let link = self.tx.links.at(&node);
            let Some(frame) = link.connection().take_frame()? else {
                link.connection().read_more().await?;
                continue;
            };
            match frame.tag() {
                b'D' if failure.is_none() && is_wanted => {
                    if let Err(error) = self.take_row(node, &decode_data_row(&frame)?, intake).await
                    {
                        if let Failure::Client(error) = error {
                            return Err(error.into());
                        }
                        failure = Some(error);
                        // The rest of its answer would be read for nothing.
                        self.end_on_the_rest(std::iter::once(node)).await;
                    }
                }
                _ if ends_answer(link, &frame, &mut failure)? => break,
                _ => (),
            }
        }
        refused_before.map_or(Ok(()), Err)?;
        failure.map_or(Ok(()), Err)
    }

    async fn take_row(
        &mut self,
        from: NodeId,
        row: &[Option<Bytes>],
        intake: &mut Intake<'_, '_>,
    ) -> Result<(), Failure> {
        if intake.overflow.has_given_up {
            return Ok(());
        }
        let [Some(index), Some(composite), bucket] = row else { return Ok(()) };
        let index = std::str::from_utf8(index).ok().and_then(|index| index.parse().ok());
        let incoming =
            index.and_then(|index: usize| Some((index, intake.incoming.get_mut(&index)?)));
        let (Some((index, incoming)), Ok(composite)) = (incoming, std::str::from_utf8(composite))
        else {
            return Ok(());
        };
        if let (true, Some(receiver)) = (incoming.is_passed, &mut intake.overflow.receiver) {
            return receiver.take(index, composite).await;
        }
        let array = match intake.collects[index].route {
            None if intake.collects[index].from == CollectFrom::Moments => {
                incoming.of_node.entry(from).or_default()
            }
            None => &mut incoming.same,
            Some(map) => {
                let bucket = bucket
                    .as_ref()
                    .and_then(|bucket| std::str::from_utf8(bucket).ok()?.parse().ok().map(Bucket));
                let node = bucket.and_then(|bucket| node_of_bucket(&self.tx.catalog, map, bucket));
                let node = node.ok_or_else(|| {
                    Failure::error("XX000", "a row that travels has no node to go to")
                })?;
                incoming.of_node.entry(node).or_default()
            }
        };
        let bytes = array.push_composite(composite);
        intake.kept_bytes += bytes;
        incoming.rows += 1;
        incoming.bytes += bytes;
        let is_large = |reception: &Reception<'_>| reception.kept_bytes_max < intake.kept_bytes;
        if intake.overflow.reception.as_ref().is_some_and(is_large) {
            self.pass_on(index, intake).await?;
        }
        if intake.overflow.gives_up_at.is_some_and(|most| most < intake.kept_bytes) {
            // Its answer is read to the end all the same: the transaction goes on.
            intake.overflow.has_given_up = true;
            intake.incoming.values_mut().for_each(|incoming| *incoming = Incoming::default());
            return Ok(());
        }
        let bytes_max = self.travelling_bytes_max();
        if bytes_max < intake.kept_bytes {
            return Err(too_large(bytes_max));
        }
        Ok(())
    }

    /// From now on rows of this table are not kept, if there are many, and a receiver can be had.
    async fn pass_on(&mut self, index: usize, intake: &mut Intake<'_, '_>) -> Result<(), Failure> {
        let Some(reception) = intake.overflow.reception else { return Ok(()) };
        if intake.overflow.receiver.is_none() {
            intake.overflow.receiver =
                self.open_receiver(&reception, intake.times, intake.call).await?;
        }
        let (Some(receiver), Some(incoming)) =
            (&mut intake.overflow.receiver, intake.incoming.get_mut(&index))
        else {
            intake.overflow.reception = None;
            return Ok(());
        };
        if incoming.same.len() < PASSED_BYTES_MIN.min(reception.kept_bytes_max) {
            return Ok(());
        }
        incoming.is_passed = true;
        let rows = std::mem::take(&mut incoming.same).into_bytes();
        intake.kept_bytes = intake.kept_bytes.saturating_sub(rows.len());
        receiver.take_kept(index, &rows).await
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
