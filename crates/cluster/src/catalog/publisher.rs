//! The newest catalog, and how sessions get it: read by the gateway, published as a whole, only
//! forwards.
//!
//! Owns: the catalog and the OIDs that go with it, how many changes of the schema have been
//! committed, and which of them every plan must know. While one is being committed, no statement begins (the
//! hold). `own_changes` is what a transaction brings itself, `reading` what catches up in the background.
//! Never: begins or ends a transaction; ends a statement (`tutti_txn::placement_change` says which).
//! Start reading at [`Publisher`], then [`run`](super::reading::run).
//!
//! A transaction that changed relations brings what it has read of them itself, holding their locks; that
//! takes the place of what was known of them. All else is read here: at most what has changed of
//! the OIDs, and everything only where functions or names have changed, where a node or a session
//! cannot say what it did (recovery), and when a table is spread for the first time: as long as node 1
//! has all tables, no session looks at the catalog and nothing is read.
//!
//! **Order.** What a transaction has read of a relation is current only as long as no other has changed
//! the relation since; and the first to commit need not be the first to publish. So everything that is noted
//! gets a number, a transaction knows the last one from before its reading, and where something newer may
//! concern what it has read, that is left aside and everything is read.
//!
//! A change that is committed stays committed, so nothing that goes wrong here is an error of a session:
//! reading is tried again until it succeeds. Until then statements wait, and are refused (57P03) if
//! that takes long, for a plan that does not know a table counts it as node 1's.
//!
//! **Why no statement is planned in vain.** A statement is in sight (who asks [`Publisher::is_held`] has said so) before it
//! looks whether it may begin; a change holds new statements before it looks which are in sight. Both in one
//! order for all (`SeqCst`), so of a statement and a change at least one sees the other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tutti_link::translation::{Numbering, OidMaps, PublishedOids};
use tutti_sql::catalog::Catalog;

use super::code::UNREAD_BODY;
use super::oids::with_own;
pub use super::own_changes::{AsOf, OwnChanges, OwnOids};

/// How long no change may have come before what no session needs is read.
pub(super) const LEISURE: Duration = Duration::from_secs(2);

/// A catalog with what was read together with it.
#[derive(Debug)]
struct Published {
    catalog: Arc<Catalog>,
    oids: Arc<OidMaps>,
}

impl Published {
    fn learn(&mut self, changes: &OwnChanges) {
        let Some(OwnOids { home, others }) = changes.oids.as_deref() else { return };
        if !others.is_empty() {
            self.oids = Arc::new(with_own(&self.oids, home, others));
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Publisher {
    current: RwLock<Published>,
    /// Changes in commit: as long as there is one, no statement begins.
    holds: AtomicU64,
    /// Statements that changes have overtaken repeatedly.
    starving: AtomicU64,
    /// Changes that have been committed, or may have been.
    changed: AtomicU64,
    /// The last of them that every plan must know.
    needed: AtomicU64,
    /// The last of them that a session waits for.
    wanted: AtomicU64,
    /// The last of them for which everything has to be read.
    unread: AtomicU64,
    /// When the last change came that plans need not know.
    changed_at: Mutex<Option<Instant>>,
    /// Names have changed: what was known of texts that mention them does not hold.
    pub(super) renamed: AtomicBool,
    noted: Mutex<Noted>,
    /// The last of the changes that `current` knows.
    published: AtomicU64,
    /// There is something to read.
    pub(super) news: Notify,
    /// Something was published, or a hold has ended.
    progress: Notify,
}

/// What was noted, in the order of noting, which is after each one's commit.
#[derive(Debug, Default)]
struct Noted {
    /// What has been merged since the current reading began.
    merged: Vec<OwnChanges>,
    /// How many there were.
    count: u64,
    /// The last that concerned each relation.
    of_relations: BTreeMap<u32, u64>,
    /// The last that may have concerned any.
    of_any: u64,
}

impl Noted {
    /// More relations are not remembered one by one.
    const RELATIONS_MAX: usize = 10_000;

    fn note_any(&mut self) {
        self.count += 1;
        self.of_any = self.count;
        self.of_relations.clear();
    }

    fn note(&mut self, changes: &OwnChanges) {
        if Self::RELATIONS_MAX < self.of_relations.len() + changes.relations.len() {
            return self.note_any();
        }
        self.count += 1;
        self.of_relations.extend(changes.touched().map(|relation| (relation, self.count)));
    }

    /// Whether what a transaction has read may lack what others have committed.
    fn is_newer_than(&self, changes: &OwnChanges) -> bool {
        let is_newer =
            |relation| self.of_relations.get(&relation).is_some_and(|it| changes.as_of < *it);
        changes.as_of < self.of_any || changes.touched().any(is_newer)
    }
}

/// No statement begins until this is dropped.
#[derive(Debug)]
pub struct Hold(Arc<Publisher>);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.holds.fetch_sub(1, Ordering::SeqCst);
        self.0.progress.notify_waiters();
    }
}

/// As long as this exists, the next changes wait a moment.
#[derive(Debug)]
pub struct Starving(Arc<Publisher>);

impl Drop for Starving {
    fn drop(&mut self) {
        self.0.starving.fetch_sub(1, Ordering::SeqCst);
        self.0.progress.notify_waiters();
    }
}

/// One of the changes, in the order in which they were noted.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Change(u64);

impl Publisher {
    /// With the catalog that the gateway starts with.
    pub fn new(catalog: Catalog, oids: OidMaps) -> Arc<Self> {
        let current = Published { catalog: Arc::new(catalog), oids: Arc::new(oids) };
        Arc::new(Self {
            current: RwLock::new(current),
            holds: AtomicU64::new(0),
            starving: AtomicU64::new(0),
            changed: AtomicU64::new(0),
            needed: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            unread: AtomicU64::new(0),
            changed_at: Mutex::default(),
            renamed: AtomicBool::new(false),
            noted: Mutex::default(),
            published: AtomicU64::new(0),
            news: Notify::new(),
            progress: Notify::new(),
        })
    }

    /// The newest catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.current().catalog.clone()
    }

    /// Makes `known` the newest catalog, if it is another one.
    pub fn refresh(&self, known: &mut Arc<Catalog>) {
        let current = self.current();
        if !Arc::ptr_eq(&current.catalog, known) {
            known.clone_from(&current.catalog);
        }
    }

    /// How the nodes' OIDs differ from node 1's.
    pub fn oids(&self) -> Arc<OidMaps> {
        self.current().oids.clone()
    }

    /// Whether no statement may be planned now: a change is being committed, or is not published yet.
    ///
    /// Who asks in order to plan must be in sight already; see the module's documentation.
    pub fn is_held(&self) -> bool {
        self.holds.load(Ordering::SeqCst) != 0
            || self.published.load(Ordering::SeqCst) < self.needed.load(Ordering::SeqCst)
    }

    /// Waits until a statement may be planned. False: not in time.
    pub async fn wait_for_end_of_hold(&self, give_up: Instant) -> bool {
        self.wait(give_up, || !self.is_held()).await
    }

    /// A change is about to be committed: no statement begins until the hold is dropped.
    pub fn hold(self: &Arc<Self>) -> Hold {
        self.holds.fetch_add(1, Ordering::SeqCst);
        Hold(self.clone())
    }

    /// A statement has been overtaken more than once: changes that come let it pass.
    pub fn starve(self: &Arc<Self>) -> Starving {
        self.starving.fetch_add(1, Ordering::SeqCst);
        Starving(self.clone())
    }

    /// Before a change is committed: waits for sessions that changes keep from their turn, but not long, for
    /// they may wait for what the change itself has locked.
    pub async fn let_pass(&self, give_up: Instant) {
        self.wait(give_up, || self.starving.load(Ordering::SeqCst) == 0).await;
    }

    /// A change of node 1 alone was committed. As long as all tables are there, plans need not know of
    /// it, for they send everything there with or without it.
    pub fn note_changed(&self) {
        if self.catalog().is_solo() {
            let change = self.changed.fetch_add(1, Ordering::SeqCst) + 1;
            self.unread.fetch_max(change, Ordering::SeqCst);
            *self.changed_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        } else {
            self.need_changed();
        }
    }

    /// Names have changed with the change that is noted next: views that no one has touched are printed
    /// otherwise.
    pub fn note_renamed(&self) {
        self.renamed.store(true, Ordering::SeqCst);
    }

    /// A change was committed, or may have been: what is planned from now on waits until it, and all
    /// that were noted before it, are read and published.
    pub fn need_changed(&self) -> Change {
        self.noted().note_any();
        let change = self.changed.fetch_add(1, Ordering::SeqCst) + 1;
        self.unread.fetch_max(change, Ordering::SeqCst);
        self.need(change)
    }

    /// The same, of a transaction that knows what it has changed. Where others may have changed the same
    /// since it has read that, all is read: the second has waited for a lock of the first, but the first may
    /// be slow to arrive here, and some locks two can have concurrently.
    pub fn need_own(&self, changes: &OwnChanges) -> Change {
        self.renamed.fetch_or(changes.renames, Ordering::SeqCst);
        if changes.is_more || self.catalog().is_solo() {
            return self.need_changed();
        }
        // In this order with `publish`, which applies them again to what it has read.
        let mut noted = self.noted();
        if noted.is_newer_than(changes) {
            drop(noted);
            return self.need_changed();
        }
        noted.note(changes);
        noted.merged.push(changes.clone());
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        current.catalog = Arc::new(changes.apply(&current.catalog));
        current.learn(changes);
        drop((current, noted));
        match &changes.oids {
            Some(_) => Change(0),
            None => self.need(self.changed.fetch_add(1, Ordering::SeqCst) + 1),
        }
    }

    /// To be asked before a transaction reads what it has changed.
    pub fn as_of(&self) -> AsOf {
        AsOf(self.noted().count)
    }

    fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn need(&self, change: u64) -> Change {
        self.needed.fetch_max(change, Ordering::SeqCst);
        self.wanted.fetch_max(change, Ordering::SeqCst);
        self.news.notify_one();
        Change(change)
    }

    /// Reads what was noted, also what plans need not know.
    pub fn want_all(&self) -> Change {
        let change = self.changed.load(Ordering::SeqCst);
        self.wanted.fetch_max(change, Ordering::SeqCst);
        self.news.notify_one();
        Change(change)
    }

    /// The same, and what could not be read because of another's locks is tried again.
    pub fn want_whole(&self) -> Change {
        if is_partial(&self.catalog()) {
            self.read_again();
        }
        self.want_all()
    }

    /// Whether something has changed that plans need not know, and that has not been read: what code there
    /// is, say.
    pub fn is_behind(&self) -> bool {
        self.published.load(Ordering::SeqCst) < self.changed.load(Ordering::SeqCst)
    }

    /// How many changes were committed, read or not.
    pub fn changes(&self) -> u64 {
        self.changed.load(Ordering::SeqCst)
    }

    /// Reads such changes once there have been no more for a while.
    pub fn catch_up_at_leisure(&self) {
        let changed_at = *self.changed_at.lock().unwrap_or_else(PoisonError::into_inner);
        if changed_at.is_none_or(|at| LEISURE < at.elapsed()) {
            self.want_all();
        }
    }

    /// Reads everything anew, though nothing has changed. No session waits for it.
    pub(super) fn read_again(&self) {
        let change = self.changed.fetch_add(1, Ordering::SeqCst) + 1;
        self.unread.fetch_max(change, Ordering::SeqCst);
        self.want_all();
    }

    /// Waits until a change is published. False: not in time.
    pub async fn wait_for(&self, change: Change, give_up: Instant) -> bool {
        self.wait(give_up, || change.0 <= self.published.load(Ordering::SeqCst)).await
    }

    async fn wait(&self, give_up: Instant, ready: impl Fn() -> bool) -> bool {
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            // Registered before the look, so that nothing is missed.
            progress.as_mut().enable();
            if ready() {
                return true;
            }
            if timeout_at(give_up, progress).await.is_err() {
                return ready();
            }
        }
    }

    /// Makes this the newest catalog, or leaves the one that there is. Only
    /// [`reading::run`](super::reading::run) does, one reading after another.
    pub(super) fn publish(&self, catalog: Option<Catalog>, oids: Arc<OidMaps>, knows: Change) {
        let mut noted = self.noted();
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut catalog) = catalog {
            catalog.version = catalog.version.max(current.catalog.version + 1);
            // What came while it was read may be missing in it.
            for changes in &noted.merged {
                catalog = changes.apply(&catalog);
            }
            current.catalog = Arc::new(catalog);
        }
        current.oids = oids;
        noted.merged.drain(..).for_each(|changes| current.learn(&changes));
        drop((current, noted));
        self.published.fetch_max(knows.0, Ordering::SeqCst);
        self.progress.notify_waiters();
    }

    fn current(&self) -> std::sync::RwLockReadGuard<'_, Published> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reading begins: what is merged from here on may be missing in it.
    pub(super) fn begin_reading(&self) -> Change {
        self.noted().merged.clear();
        Change(self.changed.load(Ordering::SeqCst))
    }

    pub(super) fn has_nothing_to_read(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) <= self.published.load(Ordering::SeqCst)
    }

    pub(super) fn must_read_all(&self) -> bool {
        self.published.load(Ordering::SeqCst) < self.unread.load(Ordering::SeqCst)
    }
}

impl PublishedOids for Publisher {
    fn oids(&self) -> Arc<OidMaps> {
        self.oids()
    }

    fn numbering(&self) -> Numbering {
        let current = self.current();
        Numbering { oids: current.oids.clone(), catalog: current.catalog.clone() }
    }
}

/// Whether the body of a function could not be read, so that it is opaque for now.
pub(super) fn is_partial(catalog: &Catalog) -> bool {
    catalog.code.bodies().any(|(_, body)| body.is_of("sql", UNREAD_BODY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    #[tokio::test]
    async fn plans_wait_for_changes_that_they_must_know_and_for_no_others() {
        let publisher = Publisher::new(Catalog::default(), OidMaps::default());
        assert!(!publisher.is_held());
        publisher.note_changed();
        assert!(!publisher.is_held(), "nobody needs it");
        let change = publisher.need_changed();
        assert!(!publisher.wait_for_end_of_hold(soon()).await);
        publisher.publish(None, publisher.oids(), Change(1));
        assert!(!publisher.wait_for(change, soon()).await, "an older reading does not count");
        publisher.publish(Some(Catalog::default()), publisher.oids(), change);
        assert!(publisher.wait_for_end_of_hold(soon()).await);
        publisher.note_changed();
        publisher.want_all();
        assert!(!publisher.is_held() && !publisher.has_nothing_to_read(), "one waits, others not");
    }

    #[tokio::test]
    async fn changes_let_pass_whom_they_have_overtaken_again_and_again() {
        let publisher = Publisher::new(Catalog::default(), OidMaps::default());
        publisher.let_pass(Instant::now() + Duration::from_secs(3600)).await;
        let starving = publisher.starve();
        publisher.let_pass(soon()).await;
        let waiting = publisher.let_pass(Instant::now() + Duration::from_secs(3600));
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_millis(5), waiting.as_mut()).await.is_err());
        drop(starving);
        waiting.await;
    }

    #[tokio::test]
    async fn a_hold_ends_when_it_is_dropped() {
        let publisher = Publisher::new(Catalog::default(), OidMaps::default());
        let (one, other) = (publisher.hold(), publisher.hold());
        drop(one);
        assert!(!publisher.wait_for_end_of_hold(soon()).await);
        let waiting = publisher.wait_for_end_of_hold(Instant::now() + Duration::from_secs(5));
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_millis(5), waiting.as_mut()).await.is_err());
        drop(other);
        assert!(waiting.await);
    }
}
