//! The first rows of several nodes, locked: those that one server would lock, and no others.
//!
//! Owns: in which order nodes lock, which of their rows are the first of all, and that the locks of the others are
//! given back. Never: says what comes before what; node 1 does.
//! Start reading at [`Executor::lock_first`].
//!
//! Each node has a cursor over its own rows, in the client's order. What it fetches it locks, row by row, each behind a
//! savepoint of the gateway's. So its last rows can be given back: ROLLBACK TO the savepoint before them releases their
//! locks and undoes nothing else, for nothing else has happened since. Nothing is locked twice, and what has been
//! fetched is what was locked.
//!
//! The rows of a node keep the order in which it has fetched them, as on one server, where others may have changed
//! them meanwhile.

use bytes::Bytes;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, Collect, CollectFrom, FirstRows};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frontend::put_query;

use super::array_literal::ArrayText;
use super::fan_out::{Answers, SnapshotNeed};
use super::gather::{Times, fill_template, read_rows};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Rows, too_large};

/// What the cursors are called on the nodes.
const CURSOR: &str = "tutti_row_locks";
/// Before the row with this number of a node.
const SAVEPOINT: &str = "tutti_row_";
/// Most rows that are locked in an order: a server keeps a few kilobytes for each savepoint.
const ORDERED_MAX: u64 = 10_000;

/// How many rows are locked, and how many of these are not collected.
struct Count {
    all: u64,
    skipped: usize,
}

/// What is locked, for whom.
struct Wanted<'w> {
    collect: &'w Collect,
    first: &'w FirstRows,
    all: u64,
    times: &'w Times,
    call: &'w Call,
}

/// The rows of one node, as far as they are known.
struct Share {
    node: NodeId,
    /// Locked, in the order of its cursor.
    locked: Vec<Bytes>,
    /// What its cursor finds next, unless that has changed meanwhile; not locked.
    expected: Vec<Bytes>,
    /// There is nothing behind these.
    is_whole: bool,
    /// How many of them all are among the first.
    chosen: usize,
    /// How many savepoints it has: one before each of its rows, and before the end.
    savepoints: usize,
}

impl Share {
    fn new(node: NodeId) -> Self {
        Self {
            node,
            locked: Vec::new(),
            expected: Vec::new(),
            is_whole: false,
            chosen: 0,
            savepoints: 0,
        }
    }

    fn len(&self) -> usize {
        self.locked.len() + self.expected.len()
    }

    /// How many further rows of it must be locked before it is known which are the first `all`.
    fn missing(&self, all: u64) -> usize {
        match self.chosen.saturating_sub(self.locked.len()) {
            // What it has next may come before rows of others.
            0 if self.chosen == self.len() && !self.is_whole => {
                usize::from(as_count(self.chosen) < all)
            }
            missing => missing,
        }
    }

    /// So many rows were asked for, and these have come.
    fn add(&mut self, asked: usize, rows: Vec<Bytes>) {
        self.savepoints += asked;
        let has_ended = rows.len() < asked;
        let is_as_expected = self.expected.get(..asked) == Some(&rows[..]);
        match is_as_expected {
            true => drop(self.expected.drain(..asked)),
            // It is of another moment.
            false => self.expected.clear(),
        }
        self.is_whole = has_ended || (self.is_whole && is_as_expected);
        self.locked.extend(rows);
    }

    /// What gives back the rows that are not chosen, and ends the cursor.
    fn end_sql(&self) -> String {
        let mut sql = String::new();
        if self.chosen < self.savepoints {
            sql.push_str(&format!("ROLLBACK TO SAVEPOINT {SAVEPOINT}{}; ", self.chosen + 1));
        }
        if 0 < self.savepoints {
            sql.push_str(&format!("RELEASE SAVEPOINT {SAVEPOINT}1; "));
        }
        sql + &format!("CLOSE {CURSOR}")
    }
}

impl Executor<'_> {
    /// Locks the first rows that `collect` asks for, and returns them, in order, as the text of an array.
    pub(super) async fn lock_first(
        &mut self,
        collect: &Collect,
        first: &FirstRows,
        times: &Times,
        call: &Call,
    ) -> Result<Bytes, Failure> {
        self.need_transaction();
        let count = self.count_of(first, call).await?;
        let chosen = match &collect.from {
            CollectFrom::AllNodes => None,
            CollectFrom::One(choice) => self.choose(choice, call),
        };
        let nodes = chosen.map_or_else(|| self.tx.catalog.nodes.clone(), |node| vec![node]);
        let wanted = Wanted { collect, first, all: count.all, times, call };
        let mut rows = match (&first.order, count.all) {
            (_, 0) => Vec::new(),
            (Some(_), _) if 1 < nodes.len() => self.lock_in_order(&nodes, &wanted).await?,
            _ => self.lock_any(&nodes, &wanted).await?,
        };
        let mut array = ArrayText::default();
        for row in rows.split_off(count.skipped.min(rows.len())) {
            let row = std::str::from_utf8(&row).map_err(|_| not_read())?;
            array.push_composite(row);
        }
        Ok(array.into_bytes())
    }

    /// What LIMIT and OFFSET say.
    ///
    /// Errors: 2201W and 2201X, as PostgreSQL has them.
    async fn count_of(&mut self, first: &FirstRows, call: &Call) -> Result<Count, Failure> {
        let offset = first.offset.as_deref().unwrap_or("0");
        let (limit, offset) = match (first.limit.parse::<i64>(), offset.parse::<i64>()) {
            (Ok(limit), Ok(offset)) => (Some(limit), offset),
            _ => {
                let sql = format!(
                    "SELECT ({})::pg_catalog.int8, ({offset})::pg_catalog.int8",
                    first.limit
                );
                let rows = self.internal_rows(NodeId::HOME, Access::Read, &sql, call).await?;
                let row = rows.first().ok_or_else(not_read)?;
                let number = |column: usize| {
                    let value = row.get(column)?.as_deref()?;
                    std::str::from_utf8(value).ok()?.parse::<i64>().ok()
                };
                (number(0), number(1).unwrap_or_default())
            }
        };
        let refusal = |code: &str, what: &str| {
            Failure::from(ErrorFields::error(code, format!("{what} must not be negative")))
        };
        let skipped = u64::try_from(offset).map_err(|_| refusal("2201X", "OFFSET"))?;
        let all = match limit {
            None => u64::MAX,
            // Nothing is read for it.
            Some(0) => 0,
            Some(limit) => {
                let limit = u64::try_from(limit).map_err(|_| refusal("2201W", "LIMIT"))?;
                limit.saturating_add(skipped)
            }
        };
        if first.order.is_some() && ORDERED_MAX < all {
            return Err(ErrorFields::error("54000", "too many rows to lock in their order")
                .with(
                    b'D',
                    format!(
                        "LIMIT and OFFSET ask for more than {ORDERED_MAX} rows of several nodes."
                    ),
                )
                .with(b'H', "Lock fewer at a time, or leave ORDER BY or LIMIT out.")
                .into());
        }
        Ok(Count { all, skipped: usize::try_from(skipped).unwrap_or(usize::MAX) })
    }

    /// Any rows: one node after another, until there are enough.
    async fn lock_any(
        &mut self,
        nodes: &[NodeId],
        wanted: &Wanted<'_>,
    ) -> Result<Vec<Bytes>, Failure> {
        // Sessions that do not wait for each other begin at different nodes.
        let start = match wanted.first.waits {
            true => 0,
            false => self.start_among(nodes),
        };
        let mut rows = Vec::new();
        for node in nodes[start..].iter().chain(&nodes[..start]) {
            let missing = wanted.all.saturating_sub(as_count(rows.len()));
            if missing == 0 {
                break;
            }
            self.declare_cursors(&[*node], wanted).await?;
            // Its SELECT has a LIMIT as well, and FETCH cannot count further.
            let count = i32::try_from(missing).map_or("ALL".to_owned(), |it| it.to_string());
            let sql = format!("FETCH {count} FROM {CURSOR}; CLOSE {CURSOR}");
            let found: Vec<_> = self.fetch(&[(*node, sql)], false).await?.pop().unwrap_or_default();
            if !found.is_empty() {
                self.tx.enlist(*node, Access::Write).await?;
            }
            rows.extend(found);
        }
        Ok(rows)
    }

    fn start_among(&self, nodes: &[NodeId]) -> usize {
        let number = usize::try_from(self.tx.process_id.unsigned_abs()).unwrap_or_default();
        number.checked_rem(nodes.len()).unwrap_or_default()
    }

    /// The first rows in the client's order.
    async fn lock_in_order(
        &mut self,
        nodes: &[NodeId],
        wanted: &Wanted<'_>,
    ) -> Result<Vec<Bytes>, Failure> {
        let mut shares: Vec<_> = nodes.iter().map(|node| Share::new(*node)).collect();
        if let Some(unlocked) = &wanted.first.unlocked {
            let sql = fill_template(unlocked, wanted.call, wanted.times);
            let texts: Vec<_> = nodes.iter().map(|node| (*node, sql.as_str())).collect();
            let rows = self.internal_rows_of_each(&texts, Access::Read, wanted.call).await?;
            for (share, rows) in shares.iter_mut().zip(rows) {
                let rows = rows.into_iter().map(|row| row.into_iter().next().flatten());
                share.expected = rows.collect::<Option<_>>().ok_or_else(not_read)?;
                share.is_whole = as_count(share.expected.len()) < wanted.all;
            }
        }
        self.declare_cursors(nodes, wanted).await?;
        let taken = loop {
            let ranks = self.ranks(&shares, wanted).await?;
            let taken = choose_first(&mut shares, &ranks, wanted.all);
            if shares.iter().all(|share| share.missing(wanted.all) == 0) {
                break taken;
            }
            self.lock_missing(&mut shares, wanted).await?;
        };
        for share in &shares {
            let access = if 0 < share.chosen { Access::Write } else { Access::Read };
            let link = self.tx.enlist(share.node, access).await?;
            link.put_silent(&share.end_sql());
            link.connection().flush().await?;
        }
        let mut of_nodes: Vec<_> =
            shares.into_iter().map(|share| share.locked.into_iter()).collect();
        let rows = taken.into_iter().map(|share| of_nodes.get_mut(share)?.next());
        rows.collect::<Option<_>>().ok_or_else(not_read)
    }

    async fn declare_cursors(
        &mut self,
        nodes: &[NodeId],
        wanted: &Wanted<'_>,
    ) -> Result<(), Failure> {
        let select = fill_template(&wanted.collect.select, wanted.call, wanted.times);
        let sql = format!("DECLARE {CURSOR} NO SCROLL CURSOR FOR {select}");
        let texts: Vec<_> = nodes.iter().map(|node| (*node, sql.as_str())).collect();
        let need = SnapshotNeed::RowsOfCursor;
        self.internal_rows_with(&texts, Access::Read, need, wanted.call).await?;
        Ok(())
    }

    /// The place of each row of each share among them all.
    async fn ranks(
        &mut self,
        shares: &[Share],
        wanted: &Wanted<'_>,
    ) -> Result<Vec<Vec<usize>>, Failure> {
        let all: Vec<_> =
            shares.iter().flat_map(|it| it.locked.iter().chain(&it.expected)).collect();
        let mut ranks: Vec<usize> = (0..all.len()).collect();
        let is_of_one = shares.iter().filter(|share| 0 < share.len()).count() < 2;
        if let (false, Some(order)) = (is_of_one, &wanted.first.order) {
            let mut array = ArrayText::default();
            for row in &all {
                array.push_composite(std::str::from_utf8(row).map_err(|_| not_read())?);
            }
            let rows = Rows::Everywhere(vec![array.into_bytes()]);
            let call = wanted.call.carrying(rows, self.travelling_bytes_max())?;
            let sql = fill_template(order, &call, wanted.times);
            let places = self.internal_rows(NodeId::HOME, Access::Read, &sql, &call).await?;
            let place = |row: &Vec<Option<Bytes>>| {
                let place = std::str::from_utf8(row.first()?.as_deref()?).ok()?;
                place.parse::<usize>().ok()?.checked_sub(1).filter(|place| *place < all.len())
            };
            if places.len() != all.len() {
                return Err(not_read());
            }
            for (rank, row) in places.iter().enumerate() {
                ranks[place(row).ok_or_else(not_read)?] = rank;
            }
        }
        let mut ranks = ranks.into_iter();
        Ok(shares.iter().map(|share| ranks.by_ref().take(share.len()).collect()).collect())
    }

    /// Locks further rows of those nodes of which rows are missing.
    async fn lock_missing(
        &mut self,
        shares: &mut [Share],
        wanted: &Wanted<'_>,
    ) -> Result<(), Failure> {
        let taken = shares.iter().map(|share| as_count(share.chosen)).sum();
        let (mut texts, mut asked) = (Vec::new(), Vec::new());
        for (index, share) in shares.iter().enumerate() {
            let mut missing = share.missing(wanted.all);
            if missing == 0 {
                continue;
            }
            if wanted.first.unlocked.is_none() {
                // No one waits for what is too much.
                let rest = wanted.all.saturating_sub(taken);
                missing = usize::try_from(rest).map_or(missing, |rest| rest.max(missing));
            }
            let from = share.savepoints + 1;
            let rows = (from..from + missing)
                .map(|row| format!("SAVEPOINT {SAVEPOINT}{row}; FETCH 1 FROM {CURSOR}"));
            texts.push((share.node, rows.collect::<Vec<_>>().join("; ")));
            asked.push((index, missing));
        }
        let fetched = self.fetch(&texts, wanted.first.waits).await?;
        for ((index, asked), rows) in asked.into_iter().zip(fetched) {
            shares[index].add(asked, rows);
        }
        Ok(())
    }

    /// Runs a text with FETCH on each of these nodes: one list of rows per node. `in_turn`: each has its locks before the
    /// next is asked, for sessions that wait for each other.
    async fn fetch(
        &mut self,
        texts: &[(NodeId, String)],
        in_turn: bool,
    ) -> Result<Vec<Vec<Bytes>>, Failure> {
        let mut all = Vec::with_capacity(texts.len());
        let mut bytes = 0;
        let at_once = if in_turn { 1 } else { texts.len().max(1) };
        for texts in texts.chunks(at_once) {
            for (node, text) in texts {
                let link = self.tx.enlist(*node, Access::Read).await?;
                link.begin();
                put_query(link.connection().outgoing(), text);
                link.connection().flush().await?;
            }
            let nodes: Vec<_> = texts.iter().map(|(node, _)| *node).collect();
            let bytes_max = self.travelling_bytes_max();
            let mut awaited = Answers::of(&nodes);
            while let Some(node) = awaited.next(self).await {
                let mut rows = Vec::new();
                let link = self.tx.links.at(&node);
                let read = read_rows(link, |row| {
                    let [Some(row)] = row else { return Err(not_read()) };
                    bytes += row.len();
                    if bytes_max < bytes {
                        return Err(too_large(bytes_max));
                    }
                    rows.push(row.clone());
                    Ok(())
                });
                if let Err(error) = read.await {
                    awaited.note(self, error).await?;
                }
                all.push(rows);
            }
            awaited.end()?;
        }
        Ok(all)
    }
}

/// Finds out which of the rows that are known are the first of all, and returns of which share each of them is.
fn choose_first(shares: &mut [Share], ranks: &[Vec<usize>], all: u64) -> Vec<usize> {
    let mut taken = Vec::new();
    shares.iter_mut().for_each(|share| share.chosen = 0);
    while as_count(taken.len()) < all {
        let heads = (0..shares.len()).filter_map(|index| {
            let share = &shares[index];
            Some((ranks.get(index)?.get(share.chosen)?, index))
        });
        let Some((_, index)) = heads.min() else { break };
        shares[index].chosen += 1;
        taken.push(index);
    }
    taken
}

fn as_count(rows: usize) -> u64 {
    u64::try_from(rows).unwrap_or(u64::MAX)
}

fn not_read() -> Failure {
    Failure::error("XX000", "a node's answer to FETCH is not what was asked for")
}
