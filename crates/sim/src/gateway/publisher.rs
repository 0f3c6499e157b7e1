//! The catalog as the sessions of a gateway know it: read after changes, published as a whole.
//!
//! Owns: how many changes were noted, which of them are published, and that no statement begins while one is
//! being committed or is not published.
//! Never: commits a change.
//! Start reading at [`Gateway::note_change`], then [`Gateway::read_catalog`]. The product's is
//! `cluster/catalog/publisher.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use tutti_txn::NodeId;

use super::{Gateway, HOME, RETRY_PAUSE};
use crate::bugs::Bug;
use crate::network::Lost;
use crate::node::statement::{Answer, FIRST_TABLE, Key, Statement, TxnNo, catalog_of};
use crate::tasks::Slot;

/// Where tables are, as it was read once: for each the moves that have brought it there.
#[derive(Debug, Default)]
pub struct Catalog(BTreeMap<Key, Vec<TxnNo>>);

/// See the module's documentation.
#[derive(Default)]
pub struct Publisher {
    current: Rc<Catalog>,
    holds: usize,
    noted: u64,
    published: u64,
    is_reading: bool,
    waiting: Vec<Slot<()>>,
}

impl Publisher {
    fn is_at_rest(&self) -> bool {
        self.holds == 0 && self.noted <= self.published
    }
}

/// No statement begins until this is dropped.
pub struct Hold(Gateway);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.change_publisher(|publisher| publisher.holds -= 1);
    }
}

impl Gateway {
    fn change_publisher<T>(&self, step: impl FnOnce(&mut Publisher) -> T) -> T {
        let (done, ringing) = {
            let mut publisher = self.0.publisher.borrow_mut();
            let done = step(&mut publisher);
            (done, std::mem::take(&mut publisher.waiting))
        };
        ringing.into_iter().for_each(|waiting| waiting.set(()));
        done
    }

    /// What is published.
    pub(super) fn catalog(&self) -> Rc<Catalog> {
        self.0.publisher.borrow().current.clone()
    }

    /// Whether a statement may be planned now.
    pub(super) fn is_at_rest(&self) -> bool {
        self.0.publisher.borrow().is_at_rest()
    }

    /// Waits until a statement may be planned.
    ///
    /// Errors: it takes too long.
    pub(super) async fn wait_for_rest(&self, patience: u64) -> Result<(), Lost> {
        self.wait_until(patience, Publisher::is_at_rest).await
    }

    async fn wait_until(&self, patience: u64, ready: fn(&Publisher) -> bool) -> Result<(), Lost> {
        let give_up = self.sim().now() + patience;
        while !ready(&self.0.publisher.borrow()) {
            let changed = Slot::default();
            self.0.publisher.borrow_mut().waiting.push(changed.clone());
            let left = give_up.saturating_sub(self.sim().now());
            changed.take_before(self.sim().bell(left)).await.ok_or(Lost)?;
        }
        Ok(())
    }

    /// From now on no statement begins, until the hold is dropped.
    pub(super) fn hold(&self) -> Hold {
        self.change_publisher(|publisher| publisher.holds += 1);
        Hold(self.clone())
    }

    /// A change was committed, or may have been: nothing is planned until it is read.
    pub(super) fn note_change(&self) {
        let must_read = self.change_publisher(|publisher| {
            publisher.noted += 1;
            !std::mem::replace(&mut publisher.is_reading, true)
        });
        if must_read {
            let reading = self.clone();
            self.spawn(async move { reading.read_until_published().await });
        }
    }

    /// Waits until all that is noted now is published.
    ///
    /// Errors: it takes too long.
    pub(super) async fn wait_until_published(&self, patience: u64) -> Result<(), Lost> {
        self.wait_until(patience, |publisher| publisher.noted <= publisher.published).await
    }

    async fn read_until_published(self) {
        loop {
            let knows = self.0.publisher.borrow().noted;
            let Ok(read) = self.read_catalog().await else {
                self.sim().sleep(RETRY_PAUSE).await;
                continue;
            };
            let is_over = self.change_publisher(|publisher| {
                let knows = match self.sim().has(Bug::ReadingKnowsWhatCameMeanwhile) {
                    true => publisher.noted,
                    false => knows,
                };
                publisher.current = Rc::new(read);
                publisher.published = knows;
                publisher.is_reading = publisher.published < publisher.noted;
                !publisher.is_reading
            });
            if is_over {
                return;
            }
        }
    }

    /// Reads where all tables are, over a connection of the gateway's own.
    async fn read_catalog(&self) -> Result<Catalog, Lost> {
        let tables: Vec<_> = self.tables().collect();
        let link = self.own_link(HOME).await?;
        let keys = tables.iter().map(|table| catalog_of(*table)).collect();
        let Answer::Rows(mut rows) = link.ask(Statement::Read(keys)).await? else {
            return Err(Lost);
        };
        self.give_back(link);
        let of_table = |table| (table, rows.remove(&catalog_of(table)).unwrap_or_default());
        Ok(Catalog(tables.into_iter().map(of_table).collect()))
    }

    /// All tables.
    pub(super) fn tables(&self) -> impl Iterator<Item = Key> + use<> {
        let count = self.sim().world().plan.tables;
        (0..count).map(|index| FIRST_TABLE + index)
    }

    /// Where a table is, after these moves.
    pub(super) fn place_after(&self, table: Key, moves: &[TxnNo]) -> NodeId {
        let world = self.sim().world();
        let moved = moves.last().and_then(|txn| world.moves.get(txn));
        moved.map_or_else(|| world.plan.first_place(table), |(_, to)| *to)
    }

    /// Where a table is by a catalog.
    pub(super) fn place(&self, catalog: &Catalog, table: Key) -> NodeId {
        self.place_after(table, catalog.moves(table))
    }
}

impl Catalog {
    /// The moves of a table that it knows.
    pub fn moves(&self, table: Key) -> &[TxnNo] {
        self.0.get(&table).map_or(&[], Vec::as_slice)
    }

    /// Whether one of the tables has been moved between this and another catalog.
    pub fn differs(&self, other: &Self, tables: &BTreeSet<Key>) -> bool {
        tables.iter().any(|table| self.moves(*table) != other.moves(*table))
    }
}
