//! What a transaction needs before it may use a node: its snapshot, its tickets, its waits.
//!
//! Owns: when a transaction takes its snapshot of all nodes and when it releases it, and when it
//! becomes a SERIALIZABLE transaction over several nodes.
//! Never: runs a statement of the client's.
//! Start reading at [`TransactionContext::enlist`]; the protocols are `docs/protocol/rooms.md` and
//! `docs/protocol/serializable.md`.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tutti_cluster::authority::sentinels::Coverage;
use tutti_cluster::authority::serializable_in_progress::InProgress;
use tutti_cluster::authority::snapshots::SnapshotKind;
use tutti_link::Link;
use tutti_link::availability::OPEN_PATIENCE;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::Access;
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use super::scope::REFRESH_CACHES;
use super::state::{Entrance, INSERT_TICKET, Level, Mode, RENEW_TICKET};
use super::waiting::canceled;
use crate::client::failure::Failure;
use crate::registry::activity::overtaken;
use crate::transaction::state::Isolation;
use crate::transaction::{Characteristics, Transaction, TransactionContext};

/// How long a SERIALIZABLE transaction waits for the first sentinel on a node.
const SENTINEL_PATIENCE: Duration = Duration::from_secs(5);
/// How many snapshots are tried until one includes the nodes that can be reached.
const SNAPSHOT_ATTEMPTS: u32 = 3;
/// How many snapshots READ ONLY DEFERRABLE tries to find a safe one.
const SAFE_SNAPSHOT_ATTEMPTS: u32 = 100;

/// The node was unreachable when the transaction's snapshot was taken.
pub(super) fn not_in_snapshot(node: NodeId) -> Failure {
    let message = format!("the transaction's snapshot does not include node {node}");
    ErrorFields::error(sqlstate::SERIALIZATION_FAILURE, message)
        .with(b'D', "The node was away when it was taken.")
        .with(b'H', "The transaction might succeed if retried.")
        .into()
}

impl TransactionContext {
    /// The level of the transaction, or of a statement outside of one.
    pub(crate) fn level(&self) -> Level {
        let own = self.transaction.characteristics.level();
        own.or(self.settings.characteristics.level()).unwrap_or_default()
    }

    /// The link to `node`, enlisted in the transaction if there is one, for `access`.
    pub(crate) async fn enlist(
        &mut self,
        node: NodeId,
        access: Access,
    ) -> Result<&mut Link, Failure> {
        self.enlist_for_flight(node, access).await?;
        // A flight may have answers due that come before.
        if !self.flight.contains_key(&node) && self.must_refresh(node) {
            self.note_refreshed(node);
            // Awaited: callers may use the connection as one that owes nothing.
            self.links.at(&node).query(REFRESH_CACHES).await?;
        }
        let link = self.links.at(&node);
        // A change that stops the plan sees from now on that something may come; or that is seen here.
        let owes_more = link.note_sending();
        if self.activity.plan.is_overtaken() {
            if !owes_more {
                link.note_heard();
            }
            return Err(overtaken().into());
        }
        Ok(link)
    }

    /// The same for what must not be sent before it is known that the transaction has begun there.
    ///
    /// Errors: BEGIN was refused.
    pub(crate) async fn enlist_begun(
        &mut self,
        node: NodeId,
        access: Access,
    ) -> Result<&mut Link, Failure> {
        if !self.enlist(node, access).await?.owes_begin() {
            return Ok(self.links.at(&node));
        }
        self.links.at(&node).catch_up_early().await?;
        // Once more: a change may have come meanwhile, and the caller must not wait between this and sending.
        self.enlist(node, access).await
    }

    /// The same for messages of a client's flight: whether the node must first refresh its caches after what others have
    /// changed is the caller's business.
    pub(crate) async fn enlist_for_flight(
        &mut self,
        node: NodeId,
        access: Access,
    ) -> Result<&mut Link, Failure> {
        self.writes += u64::from(access == Access::Write);
        self.link(node).await?;
        if self.takes_own_snapshot() {
            self.take_own_snapshot().await?;
            self.leave_snapshot_room().await?;
        }
        if self.transaction.is_open() {
            self.transaction.queried |= self.takes_snapshot;
            let joins = !self.transaction.nodes.contains_key(&node);
            // SHOW, LOCK TABLE and the like take part without a snapshot; but after a savepoint none
            // can be imported any more.
            let catches_up_behind_it = self.transaction.catches_up_by_query()
                || self.transaction.last_savepoint().is_some()
                    && self.level() != Level::ReadCommitted;
            let takes_snapshot = self.takes_snapshot || (joins && catches_up_behind_it);
            let uses = takes_snapshot && !self.transaction.used.contains(&node);
            if uses
                && self.transaction.serializable_in_progress.is_none()
                && self.transaction.characteristics.read_only != Some(true)
            {
                // Before the snapshot: a count of those in progress must not miss one that has a
                // snapshot.
                self.transaction.serializable_in_progress = self.begin_serializable();
            }
            let imports = uses && self.ensure_snapshot_of(&[node]).await?;
            let ticket = uses && self.ensure_tickets(node).await?;
            if joins && !self.flight.contains_key(&node) {
                self.note_refreshed(node);
            }
            if joins || uses {
                self.enter(node, joins, imports, ticket).await?;
            }
            if uses {
                self.transaction.used.insert(node);
            }
            let possible = match ticket {
                true => Access::Write,
                false => self.transaction.possible_access(node, access),
            };
            self.transaction.record(node, possible);
            self.activity.note_nodes(self.transaction.nodes.len());
        }
        if self.transaction.is_open() {
            self.transaction.note_alone(self.catalog.is_solo(), access);
        }
        // Last: the caller writes to the link without waiting again.
        if !self.activity.plan.may_send() {
            return Err(overtaken().into());
        }
        let (is_open, may_write) = (self.transaction.is_open(), self.may_write(access));
        // Messages of a flight that are not answered are committed together.
        let is_behind_others = self.flight.contains_key(&node);
        let link = self.links.get_mut(&node).expect("opened above");
        let connection = link.connection();
        let goes_on = is_behind_others && connection.may_commit_itself();
        connection.note_own_commit(!is_open && (may_write || goes_on));
        Ok(link)
    }

    /// Whether a statement with this `access` in its plan may write: where one node has everything, its
    /// code may have changed since it was read.
    pub(crate) fn may_write(&self, access: Access) -> bool {
        access == Access::Write
            || (self.catalog.is_solo() && self.registry.cluster.publisher.is_behind())
    }

    /// Brings several nodes into the transaction before any of them is sent its part of a statement: the
    /// second may make the transaction one over several nodes, and then the first is asked once more.
    ///
    /// The caller leaves the snapshot room ([`Self::leave_snapshot_room`]) as soon as it has sent them, or failed to.
    pub(crate) async fn enlist_all(
        &mut self,
        nodes: &[NodeId],
        access: Access,
    ) -> Result<(), Failure> {
        if self.takes_own_snapshot() {
            self.take_own_snapshot().await?;
        } else if self.transaction.is_open()
            && self.takes_snapshot
            && self.transaction.used.is_empty()
        {
            for node in nodes {
                self.link(*node).await?;
            }
            self.ensure_snapshot_of(nodes).await?;
        }
        for node in nodes {
            self.enlist(*node, access).await?;
        }
        Ok(())
    }

    /// Writes what brings `node` into the transaction, or into its snapshot.
    ///
    /// BEGIN is sent together with what follows, and a connection on which it is refused is closed. Where
    /// the session would end with its connection, BEGIN is awaited instead: cancelling a statement must not
    /// end a session.
    ///
    /// Errors: BEGIN was refused, and the node takes no part.
    async fn enter(
        &mut self,
        node: NodeId,
        joins: bool,
        imports: bool,
        ticket: bool,
    ) -> Result<(), Failure> {
        let must_outlive = self.must_outlive(node);
        if joins && must_outlive && !self.flight.contains_key(&node) {
            self.links.at(&node).be_in_none().await?;
        }
        let transaction = &mut self.transaction;
        let snapshot = transaction.snapshot.as_ref().filter(|_| imports);
        let snapshot = snapshot.and_then(|snapshot| snapshot.name(node));
        // A node that joins gets its ticket before the steps, and a step that makes it READ ONLY may
        // be undone.
        let is_read_only = match joins {
            true => transaction.characteristics.read_only == Some(true),
            false => transaction.is_read_only(),
        };
        let read_only_later = ticket && is_read_only;
        let has_waited = snapshot.is_some() && transaction.characteristics.deferrable == Some(true);
        let takes_snapshot = false;
        let entrance = Entrance { snapshot, takes_snapshot, ticket, read_only_later, has_waited };
        let link = self.links.get_mut(&node).expect("opened before");
        if joins {
            return join(link, transaction, entrance, must_outlive).await;
        }
        let sql = entrance.to_sql();
        if !sql.is_empty() {
            link.put_silent(&sql);
        }
        Ok(())
    }

    /// Whether the session would end with its connection to `node`.
    pub(super) fn must_outlive(&self, node: NodeId) -> bool {
        self.bindings.contains_key(&node) || self.may_leave_on(node)
    }

    /// A SERIALIZABLE transaction begins that may write: READ ONLY DEFERRABLE waits for it.
    pub(crate) fn begin_serializable(&self) -> Option<InProgress> {
        let counts = self.level() == Level::Serializable && self.is_over_several_nodes();
        counts.then(|| self.registry.cluster.authority.serializable_in_progress.begin())
    }

    fn is_over_several_nodes(&self) -> bool {
        !self.catalog.is_solo()
    }

    /// Whether the transaction has a snapshot with these nodes in it; takes it if its level needs one. They
    /// can be reached: where the snapshot lacks one that was unreachable, another is taken, as long as
    /// nothing was read in it.
    async fn ensure_snapshot_of(&mut self, nodes: &[NodeId]) -> Result<bool, Failure> {
        let mut attempts = SNAPSHOT_ATTEMPTS;
        loop {
            let has_one = self.ensure_snapshot().await?;
            let snapshot = self.transaction.snapshot.as_ref().filter(|_| has_one);
            let missing = match self.transaction.own_snapshot {
                // All nodes of it take part already.
                Some(_) => nodes.iter().find(|node| !self.transaction.used.contains(node)),
                None => snapshot
                    .and_then(|snapshot| nodes.iter().find(|node| snapshot.name(**node).is_none())),
            };
            let Some(node) = missing.copied() else { return Ok(has_one) };
            attempts -= 1;
            if attempts == 0 || !self.transaction.used.is_empty() {
                return Err(not_in_snapshot(node));
            }
            self.transaction.snapshot = None;
            self.transaction.has_safe_snapshot = false;
        }
    }

    /// Whether the transaction imports a snapshot of all nodes; takes it if its level needs one.
    async fn ensure_snapshot(&mut self) -> Result<bool, Failure> {
        if self.transaction.snapshot.is_some() {
            return Ok(true);
        }
        if self.transaction.own_snapshot.is_some() {
            return Ok(false);
        }
        let kind = match self.level() {
            Level::ReadCommitted => return Ok(false),
            Level::RepeatableRead => SnapshotKind::RepeatableRead,
            Level::Serializable => SnapshotKind::Serializable,
        };
        let wanted = self.is_over_several_nodes() && self.registry.cluster.config.switches.rooms;
        if wanted && !self.transaction.used.is_empty() {
            // The transaction began when node 1 had everything, and so has a snapshot of node 1
            // alone.
            let message = "could not serialize access due to a table that was spread over nodes";
            return Err(ErrorFields::error(sqlstate::SERIALIZATION_FAILURE, message)
                .with(b'D', "The transaction's snapshot is older, and of one node.")
                .with(b'H', "The transaction might succeed if retried.")
                .into());
        }
        let deferrable = Characteristics {
            isolation: Some(Isolation::Serializable),
            read_only: Some(true),
            deferrable: Some(true),
        };
        // This snapshot sees rows that are moved later where they were.
        self.transaction.snapshot_catalog = Some(self.registry.cluster.catalog());
        if wanted && self.transaction.characteristics == deferrable {
            self.take_safe_snapshot().await?;
        } else if wanted {
            let snapshots = self.registry.cluster.authority.snapshots.clone();
            self.transaction.snapshot = Some(self.while_wanted(snapshots.take(kind)).await??);
        }
        Ok(wanted)
    }

    /// SERIALIZABLE READ ONLY DEFERRABLE: waits for a snapshot taken while no SERIALIZABLE
    /// transaction that may write was in progress. If there is none for long, the transaction runs
    /// the risk of being aborted like any other.
    ///
    /// Errors: 57014 when the wait is cancelled, or lasts longer than the client's `statement_timeout`.
    async fn take_safe_snapshot(&mut self) -> Result<(), Failure> {
        let (registry, activity) = (self.registry.clone(), self.activity.clone());
        let cancelled = activity.cancelled();
        tokio::pin!(cancelled);
        let begun = Instant::now();
        let mut timeout = None;
        for attempt in 0..SAFE_SNAPSHOT_ATTEMPTS {
            let before = registry.cluster.authority.serializable_in_progress.observe();
            let snapshot =
                registry.cluster.authority.snapshots.take(SnapshotKind::Serializable).await?;
            let after = registry.cluster.authority.serializable_in_progress.observe();
            self.transaction.has_safe_snapshot = before.was_quiet_until(&after);
            self.transaction.snapshot = Some(snapshot);
            if self.transaction.has_safe_snapshot {
                break;
            }
            if attempt == 0 {
                timeout = self.statement_timeout().await?;
            }
            let too_long = async {
                match timeout {
                    Some(timeout) => sleep_until(begun + timeout).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = registry.cluster.authority.serializable_in_progress.wait_for_end(&after) => (),
                () = &mut cancelled => return Err(canceled(sqlstate::QUERY_CANCELED, "user request")),
                () = too_long => return Err(canceled(sqlstate::QUERY_CANCELED, "statement timeout")),
            }
        }
        Ok(())
    }

    /// Whether the transaction has no snapshot yet, and will get one of several nodes.
    pub(crate) fn will_import_snapshot(&self) -> bool {
        self.keeps_its_snapshot()
            && self.transaction.snapshot.is_none()
            && self.transaction.used.is_empty()
    }

    /// On every node of the transaction, before what makes that impossible: SAVEPOINT, LOCK in ACCESS
    /// EXCLUSIVE mode.
    pub(crate) async fn import_on_all(&mut self) -> Result<(), Failure> {
        let nodes: Vec<_> = self.transaction.nodes.keys().copied().collect();
        self.takes_snapshot = true;
        for node in nodes {
            self.enlist(node, Access::Read).await?;
        }
        Ok(())
    }

    /// Whether `node`, which is about to be used, must get a ticket. If it makes this a SERIALIZABLE
    /// transaction over several nodes, the node that takes part already gets its ticket now, and
    /// must have answered before anything of `node` is seen: what the transaction has read may be
    /// outdated.
    async fn ensure_tickets(&mut self, node: NodeId) -> Result<bool, Failure> {
        let is_only_one = self.transaction.used.is_empty();
        // What is READ ONLY cannot insert a ticket later.
        let read_only = self.transaction.is_read_only();
        if !self.uses_tickets() || (is_only_one && !read_only) {
            return Ok(false);
        }
        self.insert_tickets().await?;
        let coverage = self.cover(node).await?;
        self.transaction.tickets.insert(node, coverage);
        Ok(true)
    }

    /// Whether the transaction gets tickets as soon as it uses several nodes.
    fn uses_tickets(&self) -> bool {
        self.level() == Level::Serializable
            && self.is_over_several_nodes()
            && self.registry.cluster.config.switches.sentinels
            && !self.transaction.has_safe_snapshot
    }

    /// A ticket on every node that is used and has none, if it is SERIALIZABLE over several nodes.
    pub(crate) async fn insert_tickets(&mut self) -> Result<(), Failure> {
        if !self.uses_tickets() {
            return Ok(());
        }
        let used = self.transaction.used.iter().copied();
        let without: Vec<_> =
            used.filter(|node| !self.transaction.tickets.contains_key(node)).collect();
        for node in without {
            let coverage = self.cover(node).await?;
            // The node votes whether or not the insert succeeds; only a ticket that was
            // acknowledged counts.
            self.transaction.record(node, Access::Write);
            let Some(link) = self.links.get_mut(&node) else { continue };
            link.query(INSERT_TICKET).await?;
            self.transaction.tickets.insert(node, coverage);
        }
        Ok(())
    }

    async fn cover(&mut self, node: NodeId) -> Result<Coverage, Failure> {
        let sentinels = self.registry.cluster.authority.sentinels.clone();
        let covered = sentinels.wait_for_coverage(node, SENTINEL_PATIENCE);
        self.while_wanted(covered).await?.ok_or_else(|| {
            let message = format!("no sentinel on node {node} watches serializable access");
            ErrorFields::error(sqlstate::SERIALIZATION_FAILURE, message)
                .with(b'D', "Without it the node cannot tell what must not be committed.")
                .with(b'H', "The transaction might succeed if retried.")
                .into()
        })
    }

    /// After ROLLBACK TO: tickets that were inserted after the savepoint are gone.
    pub(crate) async fn renew_tickets(&mut self) -> Result<(), Failure> {
        let nodes: Vec<_> = self.transaction.tickets.keys().copied().collect();
        self.tell_silently(nodes, RENEW_TICKET).await
    }

    /// Sends `sql` to nodes without waiting for an answer, which matters only if it is an error.
    pub(super) async fn tell_silently(
        &mut self,
        nodes: impl IntoIterator<Item = NodeId>,
        sql: &str,
    ) -> Result<(), Failure> {
        for node in nodes {
            if let Some(link) = self.links.get_mut(&node) {
                link.put_silent(sql);
                link.connection().flush().await?;
            }
        }
        Ok(())
    }

    /// Whether the parts of a gathered read will have snapshots of their own: READ COMMITTED inside
    /// a transaction, which cannot import one.
    pub(crate) fn has_snapshot_per_part(&self) -> bool {
        self.transaction.is_open()
            && self.level() == Level::ReadCommitted
            && self.is_over_several_nodes()
    }

    /// Whether a statement that writes begins such a transaction.
    pub(crate) fn begins_with_snapshot_per_part(&self) -> bool {
        !self.transaction.is_open()
            && self.level() == Level::ReadCommitted
            && self.is_over_several_nodes()
    }

    /// Whether further statements have the snapshot of the first, which one node alone may have taken.
    pub(crate) fn keeps_its_snapshot(&self) -> bool {
        self.level() != Level::ReadCommitted && self.is_over_several_nodes()
    }

    /// Between statements: nodes that have imported the snapshot need its exporter no longer.
    pub(crate) fn release_exporters(&mut self) {
        let Some(snapshot) = &mut self.transaction.snapshot else { return };
        for node in &self.transaction.used {
            if self.links.get(node).is_some_and(|link| link.is_quiet()) {
                snapshot.imported(*node);
            }
        }
    }

    /// Before a statement that takes its snapshot on `node` alone: whatever may already have been
    /// seen elsewhere must be visible there.
    ///
    /// Errors: 57P03 when a transaction that its coordinator could not finish there is not settled
    /// in time; 57014 as [`Self::while_wanted`].
    pub(crate) async fn wait_for_visible(&mut self, node: NodeId) -> Result<(), Failure> {
        if self.registry.cluster.authority.in_application.is_shown_by(node)
            && self.registry.cluster.availability.is_open(node)
        {
            return Ok(());
        }
        let registry = self.registry.clone();
        let visible = async {
            registry.cluster.authority.in_application.wait(Some(node)).await;
            // Such a transaction has closed the node before it stopped counting as in application.
            registry.cluster.availability.wait_until_open(node, OPEN_PATIENCE).await
        };
        Ok(self.while_wanted(visible).await??)
    }

    /// Before something that may commit a write on one node.
    ///
    /// Errors: as [`Self::while_wanted`].
    pub(crate) async fn pass_rooms(&mut self) -> Result<(), Failure> {
        let rooms = self.registry.cluster.authority.rooms.clone();
        if rooms.may_pass() {
            return Ok(());
        }
        self.while_wanted(rooms.pass()).await
    }

    /// Waits until every node shows what is in application now.
    ///
    /// Errors: as [`Self::while_wanted`].
    pub(crate) async fn wait_for_all_visible(&mut self) -> Result<(), Failure> {
        let in_application = self.registry.cluster.authority.in_application.clone();
        if in_application.is_idle() {
            return Ok(());
        }
        self.while_wanted(in_application.wait(None)).await
    }

    /// After a statement failed: what PostgreSQL would have undone immediately, the other nodes
    /// undo now, so that no one waits for its locks until the client sends ROLLBACK.
    pub(crate) async fn undo_failed(&mut self) {
        let Transaction { mode: Mode::Explicit, failed: true, undone: false, .. } =
            self.transaction
        else {
            return;
        };
        self.transaction.undone = true;
        let sql = match self.transaction.last_savepoint() {
            Some(name) => format!("ROLLBACK TO SAVEPOINT {name}"),
            None => "ROLLBACK".to_owned(),
        };
        let nodes: Vec<_> = self.transaction.nodes.keys().copied().collect();
        for node in nodes {
            let Some(link) = self.links.get_mut(&node) else { continue };
            link.put_silent(&sql);
            if let Err(error) = link.connection().flush().await {
                tracing::debug!(%node, %error, "a node is gone, and its part with it");
            }
        }
    }
}

/// Writes BEGIN, and what brings a node to where the transaction is.
///
/// Errors: BEGIN was refused where it is awaited (`must_outlive`).
pub(super) async fn join(
    link: &mut Link,
    transaction: &Transaction,
    entrance: Entrance<'_>,
    must_outlive: bool,
) -> Result<(), Failure> {
    let begin = transaction.begin_sql(entrance);
    let catch_up = transaction.catch_up_sql(entrance);
    if !must_outlive || !link.is_quiet() {
        link.put_begin_answered(&begin, &catch_up);
        return Ok(());
    }
    link.begin_at_once(&begin).await?;
    if !catch_up.is_empty() {
        link.put_silent(&catch_up);
    }
    Ok(())
}
