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
//! Where rows of others are skipped, all nodes do so at once. Where these are waited for, or refused, no row may be
//! locked that one server would not come to; and sessions must lock in one order, or they wait for each other. So the
//! cursors are without locks there, and what they show is locked row by row in the order of all, by primary key. What
//! one server finds to have changed meanwhile, a node finds by its own look at the row: it is no longer what was asked
//! for, or is returned as it is now; at REPEATABLE READ it is refused.
//!
//! Rows keep the order in which they are on the snapshots, as on one server, where others may have changed them
//! meanwhile: a node says of each row what it is and what it was.

use std::collections::VecDeque;

use bytes::Bytes;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, ByKey, Collect, CollectFrom, FirstRows, Template};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::frontend::put_query;

use super::array_literal::ArrayText;
use super::fan_out::{Answers, SnapshotNeed, read_rows};
use super::filled::{Times, fill_template};
use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, Rows, too_large};

/// What the cursors are called on the nodes.
const CURSOR: &str = "tutti_row_locks";
/// Before the row with this number of a node.
const SAVEPOINT: &str = "tutti_row_";
/// Most rows that are locked behind savepoints: a server keeps a few kilobytes for each savepoint.
const ORDERED_MAX: u64 = 1_000;

/// So many rows at least are shown before they are locked: some of them may have gone by then.
const SHOWN_MIN: u64 = 8;

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

/// A row of a node.
struct Row {
    text: Bytes,
    /// The same with nothing but its primary key, of rows that are not locked yet; of those that are, as it was when
    /// its place was found.
    beside: Option<Bytes>,
    /// Among all rows that are known.
    rank: u64,
}

/// The rows of one node, as far as they are known.
struct Share {
    node: NodeId,
    /// Those that its cursor has fetched, in their order.
    rows: VecDeque<Row>,
    /// There is nothing behind these.
    is_whole: bool,
    /// How many of them are among the first.
    chosen: usize,
    /// How many savepoints it has: one before each of its rows, and before the end.
    savepoints: usize,
}

impl Share {
    fn new(node: NodeId) -> Self {
        Self { node, rows: VecDeque::new(), is_whole: false, chosen: 0, savepoints: 0 }
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
        // Nodes say so only where there are rows.
        self.refuse_if_read_only("SELECT FOR UPDATE/SHARE")?;
        self.need_transaction();
        let count = self.count_of(first, call).await?;
        let chosen = match &collect.from {
            CollectFrom::AllNodes => None,
            CollectFrom::One(choice) => self.choose(choice, call),
            CollectFrom::Returned(_) | CollectFrom::Moments => {
                return Err(Failure::error("XX000", "what is to be locked is no row of a table"));
            }
        };
        let nodes = chosen.map_or_else(|| self.tx.catalog.nodes.clone(), |node| vec![node]);
        let wanted = Wanted { collect, first, all: count.all, times, call };
        let mut rows = match (&first.ranks, count.all) {
            (_, 0) => Vec::new(),
            (Some(_), _) if first.is_all && 1 < nodes.len() => match &first.by_key {
                Some(by_key) => self.lock_all(&nodes, by_key, &wanted).await?,
                None => self.lock_any(&nodes, &wanted).await?,
            },
            (Some(ranks), _) if 1 < nodes.len() => match &first.by_key {
                Some(by_key) => self.lock_by_key(&nodes, by_key, ranks, &wanted).await?,
                None => self.lock_and_give_back(&nodes, ranks, &wanted).await?,
            },
            _ => self.lock_any(&nodes, &wanted).await?,
        };
        let mut array = ArrayText::default();
        for row in rows.split_off(count.skipped.min(rows.len())) {
            array.push_composite(text_of(&row)?);
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
        if first.ranks.is_some() && first.by_key.is_none() && ORDERED_MAX < all {
            return Err(ErrorFields::error("54000", "too many rows to lock in their order")
                .with(
                    b'D',
                    format!(
                        "LIMIT and OFFSET ask for more than {ORDERED_MAX} rows of several nodes."
                    ),
                )
                .with(b'H', "Lock fewer at a time, or leave LIMIT out.")
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
            self.declare_cursor(&[*node], &wanted.collect.select, wanted).await?;
            // Its SELECT has a LIMIT as well, and FETCH cannot count further.
            let sql = format!("FETCH {} FROM {CURSOR}; CLOSE {CURSOR}", fetch_count(missing));
            let found = self.fetch(&[(*node, sql)]).await?.pop().unwrap_or_default();
            if !found.is_empty() {
                self.tx.enlist(*node, Access::Write).await?;
            }
            rows.extend(found.into_iter().map(|row| row.text));
        }
        Ok(rows)
    }

    fn start_among(&self, nodes: &[NodeId]) -> usize {
        let number = usize::try_from(self.tx.process_id.unsigned_abs()).unwrap_or_default();
        number.checked_rem(nodes.len()).unwrap_or_default()
    }

    /// The first rows in the client's order: as many of each node, then what is too much is given back.
    async fn lock_and_give_back(
        &mut self,
        nodes: &[NodeId],
        ranks: &Template,
        wanted: &Wanted<'_>,
    ) -> Result<Vec<Bytes>, Failure> {
        let mut shares: Vec<_> = nodes.iter().map(|node| Share::new(*node)).collect();
        self.declare_cursor(nodes, &wanted.collect.select, wanted).await?;
        let count = usize::try_from(wanted.all).unwrap_or(usize::MAX);
        let rows =
            (1..=count).map(|row| format!("SAVEPOINT {SAVEPOINT}{row}; FETCH 1 FROM {CURSOR}"));
        let sql = rows.collect::<Vec<_>>().join("; ");
        // Where rows of others are waited for, every session goes to the nodes in this order.
        let at_once = if wanted.first.waits { 1 } else { shares.len() };
        for shares in shares.chunks_mut(at_once) {
            let texts: Vec<_> = shares.iter().map(|share| (share.node, sql.clone())).collect();
            for (share, rows) in shares.iter_mut().zip(self.fetch(&texts).await?) {
                share.savepoints = count;
                share.rows = rows.into();
            }
        }
        self.rank(&mut shares, ranks, wanted).await?;
        let taken = choose_first(&mut shares, wanted.all);
        for share in &shares {
            let access = if 0 < share.chosen { Access::Write } else { Access::Read };
            self.end_cursor(share, access).await?;
        }
        let rows =
            taken.into_iter().map(|share| shares[share].rows.pop_front().map(|row| row.text));
        rows.collect::<Option<_>>().ok_or_else(not_read)
    }

    /// The same, one row after another.
    async fn lock_by_key(
        &mut self,
        nodes: &[NodeId],
        by_key: &ByKey,
        ranks: &Template,
        wanted: &Wanted<'_>,
    ) -> Result<Vec<Bytes>, Failure> {
        let mut shares: Vec<_> = nodes.iter().map(|node| Share::new(*node)).collect();
        self.declare_cursor(nodes, &by_key.unlocked, wanted).await?;
        let mut locked = Vec::new();
        while as_count(locked.len()) < wanted.all {
            let missing = wanted.all - as_count(locked.len());
            if self.show_more(&mut shares, missing.max(SHOWN_MIN)).await? {
                self.rank(&mut shares, ranks, wanted).await?;
            }
            let taken = choose_first(&mut shares, missing);
            let Some(&first) = taken.first() else { break };
            let run = taken.iter().take_while(|share| **share == first).count();
            let Share { node, rows, .. } = &mut shares[first];
            let node = *node;
            let keys = rows.drain(..run);
            locked.extend(self.lock_keys(node, keys, by_key, wanted).await?);
        }
        for share in &shares {
            self.end_cursor(share, Access::Read).await?;
        }
        Ok(locked)
    }

    /// All rows: those of one node after those of another, each in the client's order.
    async fn lock_all(
        &mut self,
        nodes: &[NodeId],
        by_key: &ByKey,
        wanted: &Wanted<'_>,
    ) -> Result<Vec<Bytes>, Failure> {
        let mut shares: Vec<_> = nodes.iter().map(|node| Share::new(*node)).collect();
        self.declare_cursor(nodes, &by_key.unlocked, wanted).await?;
        self.show_more(&mut shares, u64::MAX).await?;
        let mut locked = Vec::new();
        for share in &mut shares {
            if !share.rows.is_empty() {
                let keys = share.rows.drain(..);
                locked.extend(self.lock_keys(share.node, keys, by_key, wanted).await?);
            }
        }
        for share in &shares {
            self.end_cursor(share, Access::Read).await?;
        }
        Ok(locked)
    }

    /// Locks these rows of a node, and says what they are now.
    async fn lock_keys(
        &mut self,
        node: NodeId,
        rows: impl Iterator<Item = Row>,
        by_key: &ByKey,
        wanted: &Wanted<'_>,
    ) -> Result<Vec<Bytes>, Failure> {
        let mut array = ArrayText::default();
        for row in rows {
            array.push_composite(text_of(&row.beside.ok_or_else(not_read)?)?);
        }
        let rows = Rows::Everywhere(vec![array.into_bytes()]);
        let call = wanted.call.carrying(rows, self.travelling_bytes_max())?;
        let sql = fill_template(&by_key.lock, &call, wanted.times);
        let found = self.internal_rows(node, Access::Write, &sql, &call).await?;
        let row = |row: Vec<Option<Bytes>>| row.into_iter().next().flatten().ok_or_else(not_read);
        found.into_iter().map(row).collect()
    }

    /// Lets those cursors go on of which no row is at hand. Whether there was one.
    async fn show_more(&mut self, shares: &mut [Share], count: u64) -> Result<bool, Failure> {
        let is_asked = |share: &&mut Share| share.rows.is_empty() && !share.is_whole;
        let mut asked: Vec<_> = shares.iter_mut().filter(is_asked).collect();
        let sql = format!("FETCH {} FROM {CURSOR}", fetch_count(count));
        let texts: Vec<_> = asked.iter().map(|share| (share.node, sql.clone())).collect();
        for (share, rows) in asked.iter_mut().zip(self.fetch(&texts).await?) {
            share.is_whole = as_count(rows.len()) < count;
            share.rows = rows.into();
        }
        Ok(!asked.is_empty())
    }

    async fn end_cursor(&mut self, share: &Share, access: Access) -> Result<(), Failure> {
        let link = self.tx.enlist(share.node, access).await?;
        link.put_silent(&share.end_sql());
        Ok(link.connection().flush().await?)
    }

    async fn declare_cursor(
        &mut self,
        nodes: &[NodeId],
        select: &Template,
        wanted: &Wanted<'_>,
    ) -> Result<(), Failure> {
        let select = fill_template(select, wanted.call, wanted.times);
        let sql = format!("DECLARE {CURSOR} NO SCROLL CURSOR FOR {select}");
        let texts: Vec<_> = nodes.iter().map(|node| (*node, sql.as_str())).collect();
        let need = SnapshotNeed::RowsOfCursor;
        self.internal_rows_with(&texts, Access::Read, need, wanted.call).await?;
        Ok(())
    }

    /// Gives each row its rank among them all.
    async fn rank(
        &mut self,
        shares: &mut [Share],
        ranks: &Template,
        wanted: &Wanted<'_>,
    ) -> Result<(), Failure> {
        if shares.iter().filter(|share| !share.rows.is_empty()).count() < 2 {
            // They are in their order.
            return Ok(());
        }
        let mut array = ArrayText::default();
        for row in shares.iter().flat_map(|share| &share.rows) {
            let was = row.beside.as_ref().filter(|_| wanted.first.by_key.is_none());
            array.push_composite(text_of(was.unwrap_or(&row.text))?);
        }
        let rows = Rows::Everywhere(vec![array.into_bytes()]);
        let call = wanted.call.carrying(rows, self.travelling_bytes_max())?;
        let sql = fill_template(ranks, &call, wanted.times);
        let ranks = self.internal_rows(NodeId::HOME, Access::Read, &sql, &call).await?;
        let mut ranks = ranks.iter().map(|row| {
            let rank = std::str::from_utf8(row.first()?.as_deref()?).ok()?;
            rank.parse::<u64>().ok()
        });
        for row in shares.iter_mut().flat_map(|share| &mut share.rows) {
            row.rank = ranks.next().flatten().ok_or_else(not_read)?;
        }
        Ok(())
    }

    /// Runs a text with FETCH on each of these nodes: one list of rows per node.
    async fn fetch(&mut self, texts: &[(NodeId, String)]) -> Result<Vec<Vec<Row>>, Failure> {
        for (node, text) in texts {
            let link = self.tx.enlist(*node, Access::Read).await?;
            link.begin();
            put_query(link.connection().outgoing(), text);
            link.connection().flush().await?;
        }
        let nodes: Vec<_> = texts.iter().map(|(node, _)| *node).collect();
        let (mut bytes, bytes_max) = (0, self.travelling_bytes_max());
        let mut all = Vec::with_capacity(texts.len());
        let mut awaited = Answers::of(&nodes);
        while let Some(node) = awaited.next(self).await {
            let mut rows = Vec::new();
            let link = self.tx.links.at(&node);
            let read = read_rows(link, |row| {
                let [Some(text), beside @ ..] = row else { return Err(not_read()) };
                let beside = beside.first().cloned().flatten();
                bytes += text.len() + beside.as_ref().map_or(0, Bytes::len);
                if bytes_max < bytes {
                    return Err(too_large(bytes_max));
                }
                rows.push(Row { text: text.clone(), beside, rank: 0 });
                Ok(())
            });
            if let Err(error) = read.await {
                awaited.note(self, error).await?;
            }
            all.push(rows);
        }
        awaited.end()?;
        Ok(all)
    }
}

/// Finds out which of the rows that are known are the first of all, and returns of which share each of them is.
fn choose_first(shares: &mut [Share], all: u64) -> Vec<usize> {
    let mut taken = Vec::new();
    shares.iter_mut().for_each(|share| share.chosen = 0);
    while as_count(taken.len()) < all {
        let heads = shares.iter().enumerate();
        let heads = heads.filter_map(|(index, it)| Some((it.rows.get(it.chosen)?.rank, index)));
        let Some((_, index)) = heads.min() else { break };
        shares[index].chosen += 1;
        taken.push(index);
    }
    taken
}

/// A number for FETCH, which cannot count further.
fn fetch_count(count: u64) -> String {
    i32::try_from(count).map_or("ALL".to_owned(), |count| count.to_string())
}

fn text_of(row: &Bytes) -> Result<&str, Failure> {
    std::str::from_utf8(row).map_err(|_| not_read())
}

fn as_count(rows: usize) -> u64 {
    u64::try_from(rows).unwrap_or(u64::MAX)
}

fn not_read() -> Failure {
    Failure::error("XX000", "a node's answer to FETCH is not what was asked for")
}
