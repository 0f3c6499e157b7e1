//! The newest catalog, and how sessions get it: read by the gateway, published as a whole, only
//! forwards.
//!
//! Owns: the catalog and the OIDs that go with it, how many changes of the schema have been
//! committed, which of them every plan must know, and the reading in the background that catches up
//! with them. While one is being committed, no statement begins (the hold).
//! Never: begins or ends a transaction; ends a statement (`tutti_txn::placement_change` says which).
//! Start reading at [`Publisher`], then [`run`].
//!
//! A transaction that changed relations brings what it has read of them itself, holding their locks; that
//! takes the place of what was known of them. All else is read here: at most what has changed of
//! the OIDs, and everything only where functions or names have changed, where a node or a session
//! cannot say what it did (recovery), and when a table is spread for the first time: as long as node 1
//! has all tables, nobody looks at the catalog and nothing is read.
//!
//! **Order.** What a transaction has read of a relation is what there is only as long as nobody has changed
//! the relation since; and who commits first need not publish first. So everything that is noted gets a
//! number, a transaction knows the last one from before its reading, and where something newer may
//! concern what it has read, that is left aside and everything is read.
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

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use tutti_link::availability::{Availability, OPEN_PATIENCE};
use tutti_link::connection::NodeError;
use tutti_link::control_pool::ControlPool;
use tutti_link::translation::{OidMaps, PublishedOids};
use tutti_sql::catalog::{BucketMap, Catalog, MapId, NodeId, Placement, Relation, RelationKind};
use tutti_sql::closure::Code;

use super::changes::RelationChanges;
use super::code::UNREAD_BODY;
use super::load::OwnCatalog;
use super::oids::{Name, compare_again, with_own};
use super::{NodeOids, reload};
use crate::error::GatewayError;

/// Between two attempts to read.
const RETRY: Duration = Duration::from_millis(200);

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
    /// Statements that changes have overtaken again and again.
    starving: AtomicU64,
    /// Changes that have been committed, or may have been.
    changed: AtomicU64,
    /// The last of them that every plan must know.
    needed: AtomicU64,
    /// The last of them that somebody waits for.
    wanted: AtomicU64,
    /// The last of them for which everything has to be read.
    unread: AtomicU64,
    /// When the last change came that plans need not know.
    changed_at: Mutex<Option<Instant>>,
    /// Names have changed: what was known of texts that mention them does not hold.
    renamed: AtomicBool,
    noted: Mutex<Noted>,
    /// The last of the changes that `current` knows.
    published: AtomicU64,
    /// There is something to read.
    news: Notify,
    /// Something was published, or a hold has ended.
    progress: Notify,
}

/// What was noted, in the order of noting, which is behind each one's commit.
#[derive(Debug, Default)]
struct Noted {
    /// What has been merged since the reading that is at work began.
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

/// How far a reading may count on knowing what was noted.
#[derive(Clone, Copy, Debug)]
pub struct AsOf(u64);

/// What one transaction has changed, as it has read it itself.
#[derive(Clone, Debug)]
pub struct OwnChanges {
    /// The last that had been noted when it was about to be read.
    as_of: u64,
    /// `None`: gone.
    relations: BTreeMap<u32, Option<Arc<Relation>>>,
    view_rules: HashMap<u32, String>,
    maps: BTreeMap<MapId, BucketMap>,
    version: u64,
    /// The code that belongs to the relations; `None`: that was not asked, for it changed more.
    code: Option<Arc<Code>>,
    /// What the nodes call the relations; `None`: they are to be asked.
    oids: Option<Arc<OwnOids>>,
    /// It changed more than relations.
    is_more: bool,
    /// It changed names.
    pub renames: bool,
}

/// What the nodes call what a transaction has made or renamed.
#[derive(Debug)]
pub struct OwnOids {
    /// Node 1.
    pub home: NodeOids,
    /// The others that have it.
    pub others: Vec<(NodeId, NodeOids)>,
}

impl OwnChanges {
    /// Of a transaction that has changed relations alone, as it has read them itself.
    pub fn of_relations(base: &Catalog, read: RelationChanges, as_of: AsOf) -> Self {
        let RelationChanges { relations, view_rules, maps, code, compares_otherwise, .. } = read;
        let old = base.relations.values().flat_map(HashMap::values);
        let is_more = compares_otherwise
            || old.into_iter().any(|old| {
                let Some(new) = relations.get(&old.oid) else { return false };
                let moves = new.as_ref().is_some_and(|new| new.placement != old.placement);
                // Where rows are decides what code may reach them, that of other tables too.
                moves || base.code.has_code_for_rows(old.oid)
            });
        Self {
            as_of: as_of.0,
            relations,
            view_rules: view_rules.into_iter().collect(),
            maps,
            version: 0,
            code: Some(Arc::new(code)),
            oids: None,
            is_more,
            renames: false,
        }
    }

    /// Where nothing else was made: what the nodes call it.
    pub fn know_oids(&mut self, oids: OwnOids) {
        self.oids = Some(Arc::new(oids));
    }

    /// The relations on which it holds the locks of a change.
    pub fn touched(&self) -> impl Iterator<Item = u32> {
        self.relations.keys().copied()
    }

    /// Whether it holds the locks of a change on this relation.
    pub fn touches(&self, relation: u32) -> bool {
        self.relations.contains_key(&relation)
    }

    /// Of a transaction that has changed more, by what it sees.
    pub fn of_more(own: &OwnCatalog, renames: bool, as_of: AsOf) -> Self {
        let catalog = &own.catalog;
        let mut relations: BTreeMap<_, _> = own.touched.iter().map(|oid| (*oid, None)).collect();
        for relation in catalog.relations.values().flat_map(HashMap::values) {
            if let Some(found) = relations.get_mut(&relation.oid) {
                *found = Some(relation.clone());
            }
        }
        let is_touched = |oid: &u32| relations.contains_key(oid);
        let view_rules = catalog.view_rules.iter().filter(|(oid, _)| is_touched(oid));
        Self {
            as_of: as_of.0,
            view_rules: view_rules.map(|(oid, rule)| (*oid, rule.clone())).collect(),
            maps: catalog.maps.clone(),
            version: catalog.version,
            code: None,
            oids: None,
            is_more: true,
            renames,
            relations,
        }
    }

    /// Whether it has changed nothing else.
    pub fn is_all(&self) -> bool {
        !self.is_more
    }

    /// Whether a relation is among what it has changed, or what it made others look otherwise: the
    /// texts of views that mention what it has renamed.
    pub fn may_have_changed(&self, relation: &Relation) -> bool {
        self.touches(relation.oid)
            || (self.renames && matches!(relation.kind, RelationKind::View { .. }))
    }

    /// `base` with these changes.
    pub fn apply(&self, base: &Catalog) -> Catalog {
        let mut catalog = base.clone();
        catalog.version = self.version.max(base.version + 1);
        for relations in catalog.relations.values_mut() {
            relations.retain(|_, relation| !self.relations.contains_key(&relation.oid));
        }
        for (oid, relation) in &self.relations {
            catalog.view_rules.remove(oid);
            let Some(relation) = relation else { continue };
            let schema = catalog.relations.entry(relation.schema.clone()).or_default();
            schema.insert(relation.name.clone(), relation.clone());
        }
        if let Some(code) = &self.code {
            let is_meant = |oid| self.relations.contains_key(&oid);
            catalog.code = Arc::new(catalog.code.with_relations(is_meant, code));
        }
        catalog.view_rules.extend(self.view_rules.clone());
        catalog.maps.extend(self.maps.clone());
        let mut relations = catalog.relations.values().flat_map(HashMap::values);
        catalog.is_spread = relations.any(|relation| relation.placement != Placement::Home);
        catalog
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

/// As long as this is there, the next changes wait a moment.
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

    /// A statement has been overtaken more than once: changes that come let it pass.
    pub fn starve(self: &Arc<Self>) -> Starving {
        self.starving.fetch_add(1, Ordering::SeqCst);
        Starving(self.clone())
    }

    /// Before a change is committed: waits for those whom changes keep from their turn, but not long, for
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

    /// Names have changed with the change that is noted next: views that nobody has touched are printed
    /// otherwise.
    pub fn note_renamed(&self) {
        self.renamed.store(true, Ordering::SeqCst);
    }

    /// A change was committed, or may have been: whatever is planned from now on waits until it, and all
    /// that were noted before it, are read and published.
    pub fn need_changed(&self) -> Change {
        self.noted().note_any();
        let change = self.changed.fetch_add(1, Ordering::SeqCst) + 1;
        self.unread.fetch_max(change, Ordering::SeqCst);
        self.need(change)
    }

    /// The same, of a transaction that knows what it has changed. Where others may have changed the same
    /// since it has read that, all is read: who comes second has waited for a lock of the first, but the
    /// first may be slow to come here, and some locks two can have at once.
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

    /// The same, and what could not be read for somebody's locks is tried again.
    pub fn want_whole(&self) -> Change {
        if is_partial(&self.catalog()) {
            self.read_again();
        }
        self.want_all()
    }

    /// Whether something has changed that plans need not know, and that nobody has read: what code there
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

    /// Reads everything anew, though nothing has changed. Nobody waits for it.
    fn read_again(&self) {
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

    /// Makes this the newest catalog, or leaves the one that there is. Only [`run`] does, one reading
    /// after another.
    fn publish(&self, catalog: Option<Catalog>, oids: Arc<OidMaps>, knows: Change) {
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
    fn begin_reading(&self) -> Change {
        self.noted().merged.clear();
        Change(self.changed.load(Ordering::SeqCst))
    }

    fn has_nothing_to_read(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) <= self.published.load(Ordering::SeqCst)
    }

    fn must_read_all(&self) -> bool {
        self.published.load(Ordering::SeqCst) < self.unread.load(Ordering::SeqCst)
    }
}

impl PublishedOids for Publisher {
    fn oids(&self) -> Arc<OidMaps> {
        self.oids()
    }
}

/// What is needed for reading what is published.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Where it is published.
    pub publisher: Arc<Publisher>,
    /// Which nodes may be read.
    pub nodes: Arc<Availability>,
    /// Over which they are read.
    pub connections: Arc<ControlPool>,
}

/// Reads whenever something has changed that somebody needs, for ever. `became_spread`: called when tables
/// were spread for the first time.
pub async fn run(reader: Reader, became_spread: impl Fn()) {
    let publisher = reader.publisher.clone();
    let mut oids = BTreeMap::new();
    // Nodes whose OIDs could not be read.
    let mut missing: Vec<NodeId> = Vec::new();
    let mut pause = LEISURE;
    loop {
        if publisher.has_nothing_to_read() {
            let is_partial = is_partial(&publisher.catalog());
            if !is_partial {
                pause = LEISURE;
            }
            tokio::select! {
                () = publisher.news.notified() => (),
                () = wait_for_one(&reader, &missing), if !missing.is_empty() => (),
                () = tokio::time::sleep(pause), if is_partial => {
                    publisher.read_again();
                    pause = (2 * pause).min(PARTIAL_PAUSE_MAX);
                }
            }
        }
        if publisher.has_nothing_to_read() && missing.is_empty() {
            continue;
        }
        let knows = publisher.begin_reading();
        match timeout(READING_MAX, read(&reader, &mut oids)).await {
            Ok(Ok((catalog, maps, away))) => {
                let was_solo = publisher.catalog().is_solo();
                publisher.publish(catalog, Arc::new(maps), knows);
                if was_solo && !publisher.catalog().is_solo() {
                    became_spread();
                }
                missing = away;
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot read the catalog yet; trying again");
                tokio::time::sleep(RETRY).await;
            }
            Err(_) => tracing::warn!("a node says nothing while the catalog is read; trying again"),
        }
    }
}

/// How long no change may have come before what nobody needs is read.
const LEISURE: Duration = Duration::from_secs(2);

/// How often at least what somebody's locks have kept from being read is tried again.
const PARTIAL_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Whether the body of a function could not be read, so that it is opaque for now.
fn is_partial(catalog: &Catalog) -> bool {
    catalog.code.bodies().any(|(_, body)| body.is_of("sql", UNREAD_BODY))
}

/// A node that has not answered by then is asked anew.
const READING_MAX: Duration = Duration::from_secs(20);

async fn wait_for_one(reader: &Reader, missing: &[NodeId]) {
    while !missing.iter().any(|node| reader.nodes.is_open(*node)) {
        tokio::time::sleep(RETRY).await;
    }
}

/// Reads what has to be read of the catalog on node 1, and the OIDs of all nodes, over connections of
/// the gateway's own: a client's operators and temporary tables may go by the names of PostgreSQL's.
///
/// A node that is away keeps the OIDs that are known of it; nobody can ask it anything now. Returns
/// such nodes as well.
async fn read(
    reader: &Reader,
    known: &mut BTreeMap<NodeId, NodeOids>,
) -> Result<(Option<Catalog>, OidMaps, Vec<NodeId>), GatewayError> {
    let publisher = &reader.publisher;
    let previous = publisher.catalog();
    let catalog = match publisher.must_read_all() {
        true => Some(read_all(reader, &previous).await?),
        false => None,
    };
    let mut changed = BTreeSet::new();
    let mut away = Vec::new();
    for node in previous.nodes.iter().copied() {
        match read_oids(reader, node, known.entry(node).or_default()).await {
            Ok(names) => changed.extend(names),
            Err(error) if node == NodeId::HOME => return Err(error),
            Err(error) => {
                tracing::warn!(%node, %error, "cannot read the OIDs of a node yet");
                away.push(node);
            }
        }
    }
    let mut maps = OidMaps::clone(&publisher.oids());
    if let Some(home) = known.get(&NodeId::HOME) {
        for (node, oids) in known.iter().filter(|(node, _)| **node != NodeId::HOME) {
            compare_again(&mut maps, home, *node, oids, &changed);
        }
    }
    Ok((catalog, maps, away))
}

async fn read_all(reader: &Reader, previous: &Catalog) -> Result<Catalog, GatewayError> {
    let renamed = reader.publisher.renamed.swap(false, Ordering::SeqCst);
    let mut previous = previous.clone();
    if renamed {
        previous.view_rules.clear();
    }
    let reading = async {
        reader.nodes.wait_until_open(NodeId::HOME, OPEN_PATIENCE).await?;
        let mut home = reader.connections.checkout(NodeId::HOME).await?;
        let catalog = reload(&mut home, &previous).await?;
        reader.connections.release(home);
        Ok(catalog)
    };
    let read = reading.await;
    if read.is_err() {
        reader.publisher.renamed.fetch_or(renamed, Ordering::SeqCst);
    }
    read
}

/// What has changed since the last time. Returns the names.
async fn read_oids(
    reader: &Reader,
    node: NodeId,
    known: &mut NodeOids,
) -> Result<Vec<Name>, GatewayError> {
    // Until what is prepared there is settled, its types are not what they will be.
    if !reader.nodes.is_open(node) {
        return Err(NodeError::Closed { node }.into());
    }
    let reading = async {
        let mut connection = reader.connections.checkout(node).await?;
        let changed = known.update(&mut connection).await?;
        reader.connections.release(connection);
        Ok(changed)
    };
    tokio::select! {
        read = reading => read,
        () = wait_until_closed(reader, node) => Err(NodeError::Closed { node }.into()),
    }
}

/// One that is taken for gone says nothing more.
async fn wait_until_closed(reader: &Reader, node: NodeId) {
    while reader.nodes.is_there(node) {
        tokio::time::sleep(RETRY).await;
    }
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
        publisher.publish(None, publisher.oids(), Change(1));
        assert!(!publisher.wait_for(change, soon()).await, "an older reading does not count");
        publisher.publish(Some(Catalog::default()), publisher.oids(), change);
        assert!(publisher.wait_for_rest(soon()).await);
        publisher.note_changed();
        publisher.want_all();
        assert!(
            publisher.is_at_rest() && !publisher.has_nothing_to_read(),
            "one waits, others not"
        );
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
        assert!(!publisher.wait_for_rest(soon()).await);
        let waiting = publisher.wait_for_rest(Instant::now() + Duration::from_secs(5));
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_millis(5), waiting.as_mut()).await.is_err());
        drop(other);
        assert!(waiting.await);
    }
}
