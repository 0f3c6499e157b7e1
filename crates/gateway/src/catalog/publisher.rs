//! The newest catalog, and how sessions get it: read by the gateway, published as a whole, only
//! forwards.
//!
//! Owns: the catalog and the OIDs that go with it, how many changes of the schema have been
//! committed, which of them every plan must know, and the reading in the background that catches up
//! with them. While one is being committed, no statement begins (the hold).
//! Never: begins or ends a transaction; ends a statement (`session/placement_change` does).
//! Start reading at [`Publisher`], then [`run`].
//!
//! A change that is committed stays committed, so nothing that goes wrong here is anybody's error:
//! reading is tried again until it succeeds. Until then statements wait, and are refused (57P03) if
//! that takes long, for a plan that does not know a table counts it as node 1's.
//!
//! **Why no statement is planned in vain.** A statement is in sight ([`Activity::begin_plan`]) before it
//! looks whether it may begin; a change holds new statements before it looks who is in sight. Both
//! in one order for all (`SeqCst`), so of a statement and a change at least one sees the other.
//!
//! [`Activity::begin_plan`]: crate::deadlock::Activity::begin_plan

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tutti_sql::catalog::{Catalog, NodeId};

use super::{NodeOids, OidMaps, reload};
use crate::error::GatewayError;
use crate::node::NodeError;
use crate::nodes::OPEN_PATIENCE;
use crate::shared::Shared;

/// Between two attempts to read.
const RETRY: Duration = Duration::from_millis(200);
/// How long changes that no plan must know are left to gather, at least; and how many times as long as
/// reading takes.
const REST: Duration = Duration::from_millis(500);
const REST_PER_READING: u32 = 10;

/// A catalog with what was read together with it.
#[derive(Debug)]
struct Published {
    catalog: Arc<Catalog>,
    oids: Arc<OidMaps>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Publisher {
    current: RwLock<Published>,
    /// Changes in commit: as long as there is one, no statement begins.
    holds: AtomicU64,
    /// Changes that have been committed, or may have been.
    changed: AtomicU64,
    /// The last of them that every plan must know.
    needed: AtomicU64,
    /// The last of them that `current` knows.
    published: AtomicU64,
    /// There is something to read.
    news: Notify,
    /// Something was published, or a hold has ended.
    progress: Notify,
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
            changed: AtomicU64::new(0),
            needed: AtomicU64::new(0),
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

    /// Whether a statement may be planned now.
    pub fn is_at_rest(&self) -> bool {
        self.holds.load(Ordering::SeqCst) == 0
            && self.needed.load(Ordering::SeqCst) <= self.published.load(Ordering::SeqCst)
    }

    /// Waits until a statement may be planned. False: not in time.
    pub async fn wait_for_rest(&self, give_up: Instant) -> bool {
        self.wait(give_up, || self.is_at_rest()).await
    }

    /// A change is about to be committed: no statement begins until the hold is dropped.
    pub fn hold(self: &Arc<Self>) -> Hold {
        self.holds.fetch_add(1, Ordering::SeqCst);
        Hold(self.clone())
    }

    /// A change was committed that plans need not know, for they send everything to node 1 with or
    /// without it. The next reading includes it.
    pub fn note_changed(&self) {
        self.changed.fetch_add(1, Ordering::SeqCst);
        self.news.notify_one();
    }

    /// A change was committed, or may have been: whatever is planned from now on waits until it, and all
    /// that were noted before it, are published.
    pub fn need_changed(&self) -> Change {
        let change = self.changed.fetch_add(1, Ordering::SeqCst) + 1;
        self.needed.fetch_max(change, Ordering::SeqCst);
        self.news.notify_one();
        Change(change)
    }

    /// What plans must know now includes everything that was noted.
    pub fn need_all(&self) -> Change {
        let change = self.changed.load(Ordering::SeqCst);
        self.needed.fetch_max(change, Ordering::SeqCst);
        self.news.notify_one();
        Change(change)
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

    /// Makes this the newest catalog. Only [`run`] does, one reading after another.
    fn publish(&self, catalog: Arc<Catalog>, oids: Arc<OidMaps>, knows: Change) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Published { catalog, oids };
        self.published.fetch_max(knows.0, Ordering::SeqCst);
        self.progress.notify_waiters();
    }

    fn current(&self) -> std::sync::RwLockReadGuard<'_, Published> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the catalog whenever it has changed, for ever.
pub(crate) async fn run(shared: Arc<Shared>) {
    let publisher = shared.publisher.clone();
    // Nodes whose OIDs could not be read.
    let mut missing: Vec<NodeId> = Vec::new();
    let mut rest = REST;
    loop {
        tokio::select! {
            () = publisher.news.notified() => (),
            () = wait_for_one(&shared, &missing), if !missing.is_empty() => (),
        }
        if publisher.is_up_to_date() && missing.is_empty() {
            continue;
        }
        if publisher.needs_nothing() && missing.is_empty() {
            let give_up = Instant::now() + rest;
            while publisher.needs_nothing()
                && timeout_at(give_up, publisher.news.notified()).await.is_ok()
            {}
        }
        let begun = Instant::now();
        // What is committed from here on may be missed by this reading.
        let knows = Change(publisher.changed.load(Ordering::SeqCst));
        match read(&shared).await {
            Ok((catalog, oids, away)) => {
                let was_solo = publisher.catalog().is_solo();
                let is_solo = catalog.is_solo();
                publisher.publish(Arc::new(catalog), Arc::new(oids), knows);
                if was_solo && !is_solo {
                    // Whoever listens on node 1 alone listens on all from now on.
                    shared.activities.wake_all();
                }
                missing = away;
                rest = REST.max(begun.elapsed() * REST_PER_READING);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the catalog yet; trying again");
                tokio::time::sleep(RETRY).await;
                publisher.news.notify_one();
            }
        }
    }
}

impl Publisher {
    fn is_up_to_date(&self) -> bool {
        self.changed.load(Ordering::SeqCst) <= self.published.load(Ordering::SeqCst)
    }

    fn needs_nothing(&self) -> bool {
        self.needed.load(Ordering::SeqCst) <= self.published.load(Ordering::SeqCst)
    }
}

async fn wait_for_one(shared: &Shared, missing: &[NodeId]) {
    while !missing.iter().any(|node| shared.nodes.is_open(*node)) {
        tokio::time::sleep(RETRY).await;
    }
}

/// Reads the catalog on node 1 and the OIDs of all nodes, over connections of the gateway's own: a
/// client's operators and temporary tables may go by the names of PostgreSQL's.
///
/// A node that is away keeps the OIDs that are known of it; nobody can ask it anything now. Returns
/// such nodes as well.
async fn read(shared: &Shared) -> Result<(Catalog, OidMaps, Vec<NodeId>), GatewayError> {
    let previous = shared.publisher.catalog();
    shared.nodes.wait_until_open(NodeId::HOME, OPEN_PATIENCE).await?;
    let mut home = shared.connections.lend(&shared.config, NodeId::HOME).await?;
    let catalog = reload(&mut home, &previous).await?;
    let at_home = NodeOids::load(&mut home).await?;
    shared.connections.give_back(home);
    let mut others = Vec::new();
    let mut away = Vec::new();
    for node in catalog.nodes.iter().copied().filter(|node| *node != NodeId::HOME) {
        match read_oids(shared, node).await {
            Ok(oids) => others.push((node, oids)),
            Err(error) => {
                tracing::warn!(%node, %error, "cannot read the OIDs of a node yet");
                away.push(node);
            }
        }
    }
    let mut oids = OidMaps::compare(&at_home, &others);
    oids.keep_of(&shared.publisher.oids(), &away);
    Ok((catalog, oids, away))
}

async fn read_oids(shared: &Shared, node: NodeId) -> Result<NodeOids, GatewayError> {
    // Until what is prepared there is settled, its types are not what they will be.
    if !shared.nodes.is_open(node) {
        return Err(NodeError::Closed { node }.into());
    }
    let mut connection = shared.connections.lend(&shared.config, node).await?;
    let oids = NodeOids::load(&mut connection).await?;
    shared.connections.give_back(connection);
    Ok(oids)
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
        assert!(publisher.is_at_rest());
        publisher.note_changed();
        assert!(publisher.is_at_rest(), "nobody needs it");
        let change = publisher.need_changed();
        assert!(!publisher.wait_for_rest(soon()).await);
        publisher.publish(publisher.catalog(), publisher.oids(), Change(1));
        assert!(!publisher.wait_for(change, soon()).await, "an older reading does not count");
        publisher.publish(publisher.catalog(), publisher.oids(), change);
        assert!(publisher.wait_for_rest(soon()).await);
        publisher.note_changed();
        publisher.need_all();
        assert!(!publisher.is_at_rest(), "now somebody does");
    }

    #[tokio::test]
    async fn a_hold_ends_when_it_is_dropped() {
        let publisher = Publisher::new(Catalog::default(), OidMaps::default());
        let (one, other) = (publisher.hold(), publisher.hold());
        drop(one);
        assert!(!publisher.wait_for_rest(soon()).await);
        let waiting = publisher.wait_for_rest(Instant::now() + Duration::from_secs(5));
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_millis(5), waiting.as_mut()).await.is_err());
        drop(other);
        assert!(waiting.await);
    }
}
