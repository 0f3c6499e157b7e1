//! Sending a statement to several nodes so that all of them run it on one snapshot.
//!
//! Owns: the visit of the snapshot room of a READ COMMITTED statement inside a transaction, whose
//! snapshot cannot be imported.
//! Never: reads the statement's answers.
//! Start reading at [`Executor::send_to_many`]; the protocol is `docs/protocol/rooms.md`.
//!
//! **Reads.** PostgreSQL fixes the snapshot of a SELECT when it is bound (`PortalStart`). So: Parse
//! outside the room, which waits for locks on the tables and keeps them; Bind inside; as soon as all
//! nodes have answered, leave; Execute outside.
//!
//! **Writes** take their snapshot when they are executed. So Execute is sent inside the room, and it
//! is left when each node has either answered or is known to be running it: it has a snapshot, or it
//! waits for a lock, which it does after its snapshot.
//!
//! **No statement waits in the room for a lock.** The lock's holder may be waiting for the commit
//! room. If a Bind takes long, the room is left, the Bind awaited outside, and a second one is made
//! inside, which finds its locks taken. Time limits here only choose between two correct ways.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use tutti_link::Link;
use tutti_link::connection::told;
use tutti_link::spool::Spool;
use tutti_sql::catalog::NodeId;
use tutti_sql::plan::Access;
use tutti_wire::backend::decode_data_row;
use tutti_wire::frame::Frame;
use tutti_wire::frontend::{
    Target, put_bind, put_close, put_describe, put_execute, put_flush, put_parse, put_sync,
};

use crate::client::failure::Failure;
use crate::executor::Executor;
use crate::plans::request::{Call, IssuedBy};

/// A Bind that takes longer is awaited outside the room, at the first attempt.
const BIND_PATIENCE: Duration = Duration::from_millis(20);
/// Up to so many bytes go into the sockets' buffers, whatever the node does. More is not sent in the room.
const SENT_IN_ROOM_BYTES_MAX: usize = 16 << 10;
/// A statement that has not ended is cancelled again at this interval.
const CANCEL_INTERVAL: Duration = Duration::from_millis(100);
const CANCELS_MAX: u32 = 50;
/// How often it is checked whether a write is running.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// What a statement's snapshot must show on the nodes it goes to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SnapshotNeed {
    /// Rows: all nodes must show the same transactions.
    Rows,
    /// The same of a DECLARE, whose snapshot is taken as a write's is.
    RowsOfCursor,
    /// Nothing but its own values: rows to insert.
    Nothing,
}

/// The answers of several nodes to one statement: all are read, in the order of the nodes, whatever their
/// outcome. As soon as one has failed the others are ended, for they may wait for locks. The client is told
/// the first failure, and never that the others were ended for it.
///
/// Use: [`Self::next`] until there is none, reading each node's answer to its end; [`Self::note`] each failure;
/// then [`Self::end`].
#[derive(Debug)]
pub(super) struct Answers<'n> {
    nodes: &'n [NodeId],
    /// How many nodes have been returned.
    read: usize,
    told: Option<Failure>,
    /// The node that failed before its answer was due.
    first: Option<NodeId>,
    rest_is_ended: bool,
}

impl<'n> Answers<'n> {
    /// None is read yet. Requires: each of these nodes was sent its part of the statement.
    pub(super) fn of(nodes: &'n [NodeId]) -> Self {
        Self { nodes, read: 0, told: None, first: None, rest_is_ended: false }
    }

    /// Whether none has failed yet.
    pub(super) fn are_good(&self) -> bool {
        self.told.is_none()
    }

    /// The next node: it is answering, or is lost, or has been ended.
    pub(super) async fn next(&mut self, executor: &mut Executor<'_>) -> Option<NodeId> {
        let node = *self.nodes.get(self.read)?;
        self.read += 1;
        self.await_turn(node, executor).await;
        Some(node)
    }

    /// The node that was returned last has failed.
    ///
    /// Errors: the client is lost; no further answer need be read for it.
    pub(super) async fn note(
        &mut self,
        executor: &mut Executor<'_>,
        failure: Failure,
    ) -> Result<(), Failure> {
        if let Failure::Client(error) = failure {
            return Err(error.into());
        }
        if self.told.is_none() || self.first == self.nodes[..self.read].last().copied() {
            self.told = Some(failure);
        }
        if !self.rest_is_ended {
            self.rest_is_ended = true;
            executor.end_on_the_rest(self.nodes[self.read..].iter().copied()).await;
        }
        Ok(())
    }

    /// All have been read.
    ///
    /// Errors: what the client is told, if one has failed.
    pub(super) fn end(self) -> Result<(), Failure> {
        self.told.map_or(Ok(()), Err)
    }

    /// Waits until `node` answers. If a later one fails before that, all that are still running are ended: they
    /// may be waiting for a lock.
    async fn await_turn(&mut self, node: NodeId, executor: &mut Executor<'_>) {
        let rest = &self.nodes[self.read..];
        if self.rest_is_ended || rest.is_empty() {
            return;
        }
        for node in std::iter::once(&node).chain(rest) {
            let Some(link) = executor.tx.links.get_mut(node) else { return };
            if link.catch_up_early().await.is_err() {
                // Reading its answer finds the same.
                return;
            }
        }
        let Some(failed) = executor.tx.links.first_failed(node, rest).await else { return };
        self.first = Some(failed);
        self.rest_is_ended = true;
        let others = std::iter::once(node).chain(rest.iter().copied());
        executor.end_on_the_rest(others.filter(|node| *node != failed)).await;
    }
}

impl Executor<'_> {
    /// Sends one text to each of these nodes, which may be one. Every link then has an answer to be
    /// read to ReadyForQuery, refused or not.
    pub(super) async fn send_to_many(
        &mut self,
        texts: &[(NodeId, &str)],
        access: Access,
        need: SnapshotNeed,
        issued_by: IssuedBy,
        call: &Call,
    ) -> Result<(), Failure> {
        let sent = self.send_to_each(texts, access, need, issued_by, call).await;
        let left = self.tx.leave_snapshot_room().await;
        sent.and(left)
    }

    async fn send_to_each(
        &mut self,
        texts: &[(NodeId, &str)],
        access: Access,
        need: SnapshotNeed,
        issued_by: IssuedBy,
        call: &Call,
    ) -> Result<(), Failure> {
        let nodes: Vec<_> = texts.iter().map(|(node, _)| *node).collect();
        self.tx.enlist_all(&nodes, access).await?;
        let in_room = need != SnapshotNeed::Nothing
            && 1 < texts.len()
            && self.tx.has_snapshot_per_part()
            && self.tx.registry.cluster.config.switches.rooms;
        if in_room {
            let mut half_way = BTreeSet::new();
            let when = match need {
                SnapshotNeed::RowsOfCursor => Access::Write,
                SnapshotNeed::Rows | SnapshotNeed::Nothing => access,
            };
            let sent = self.send_in_room(texts, when, issued_by, call, &mut half_way).await;
            // One has refused, or is lost. Reading the answers, now or later, finds the end of each.
            self.end_all(half_way).await;
            return sent;
        }
        if self.tx.locks_in_turn {
            // Each is then waited for before the next is sent its part.
            self.tx.leave_snapshot_room().await?;
        }
        // What a snapshot that was just taken in the room shows, all its nodes show.
        if !self.tx.is_in_snapshot_room() {
            for node in nodes {
                self.tx.wait_for_visible(node).await?;
            }
        }
        for (position, (node, text)) in texts.iter().enumerate() {
            if self.tx.locks_in_turn
                && let Some((before, _)) = position.checked_sub(1).map(|before| texts[before])
            {
                // It has its locks when it answers. Reading the answer finds whatever is wrong with it.
                let link = self.tx.links.at(&before);
                if link.catch_up_early().await.is_ok() {
                    _ = link.wait_for_anything().await;
                }
            }
            let stored_here = self.tx.transaction.stored_on(*node);
            let link = self.tx.links.at(node);
            if let Some(relations) = stored_here.filter(|_| issued_by == IssuedBy::Gateway) {
                call.put_age_check(link, text, &relations);
            }
            match issued_by {
                IssuedBy::Client => call.put(link, text),
                IssuedBy::Gateway => call.put_internal(link, text),
            }
            if SENT_IN_ROOM_BYTES_MAX < link.connection().outgoing().len() {
                self.tx.leave_snapshot_room().await?;
            }
            self.tx.links.at(node).connection().flush().await?;
        }
        Ok(())
    }

    /// `access` says when the statement takes its snapshot. `half_way` holds the nodes that were sent something and no
    /// Sync after it.
    async fn send_in_room(
        &mut self,
        texts: &[(NodeId, &str)],
        access: Access,
        issued_by: IssuedBy,
        call: &Call,
        half_way: &mut BTreeSet<NodeId>,
    ) -> Result<(), Failure> {
        for (node, text) in texts {
            let link = self.tx.links.at(node);
            link.begin();
            half_way.insert(*node);
            let types = link.types_here(&call.parts(issued_by, *node).0);
            let out = link.connection().outgoing();
            put_parse(out, "", text, &types);
            put_flush(out);
            link.connection().flush().await?;
        }
        let nodes: Vec<_> = texts.iter().map(|(node, _)| *node).collect();
        let mut good = self.await_all(&mut nodes.clone(), b'1').await?;
        if access == Access::Write && good {
            // Table locks are waited for outside the room.
            self.bind_all(&nodes, issued_by, call).await?;
            good = self.await_all(&mut nodes.clone(), b'2').await?;
        }
        let registry = self.tx.registry.clone();
        let mut bound = access == Access::Write;
        let mut patience = BIND_PATIENCE;
        while good {
            if bound {
                for node in &nodes {
                    let link = self.tx.links.at(node);
                    put_close(link.connection().outgoing(), Target::Portal, "");
                }
            }
            let entering = registry.cluster.enter_snapshot_room(&nodes);
            let inside = self.tx.unless_cancelled(entering).await??;
            self.bind_all(&nodes, issued_by, call).await?;
            bound = true;
            let mut unbound = nodes.clone();
            let answered = self.await_all(&mut unbound, b'2');
            match tokio::time::timeout(patience, answered).await {
                Ok(answered) => good = answered?,
                Err(_) => {
                    drop(inside);
                    good = self.await_all(&mut unbound, b'2').await?;
                    // Its locks are taken now; if it is planning that takes long, that has to be
                    // accepted.
                    patience *= 2;
                    continue;
                }
            }
            if access == Access::Read {
                drop(inside);
            }
            self.execute_all(&nodes, issued_by, call, half_way).await?;
            if access == Access::Write && good {
                self.await_start(&nodes).await?;
            }
            return Ok(());
        }
        Ok(())
    }

    /// Ends what was begun on nodes. A broken connection is found when its answer is read.
    async fn end_all(&mut self, nodes: BTreeSet<NodeId>) {
        for node in nodes {
            let Some(link) = self.tx.links.get_mut(&node) else { continue };
            put_sync(link.connection().outgoing());
            if let Err(error) = link.connection().flush().await {
                tracing::debug!(%node, %error, "a connection is lost in a statement");
            }
        }
    }

    async fn bind_all(
        &mut self,
        nodes: &[NodeId],
        issued_by: IssuedBy,
        call: &Call,
    ) -> Result<(), Failure> {
        for node in nodes {
            let link = self.tx.links.at(node);
            let (types, arguments) = call.parts(issued_by, *node);
            let arguments = link.arguments_here(&types, &arguments);
            let out = link.connection().outgoing();
            put_bind(out, "", "", &arguments);
            put_flush(out);
            link.connection().flush().await?;
        }
        Ok(())
    }

    /// Waits for this message of every node of the list, last one first; a node that has answered
    /// leaves the list, so that a caller that gave up waiting can resume. False: one has refused.
    async fn await_all(&mut self, nodes: &mut Vec<NodeId>, tag: u8) -> Result<bool, Failure> {
        while let Some(node) = nodes.last() {
            let link = self.tx.links.at(node);
            if !link.wait_for(tag).await? {
                return Ok(false);
            }
            nodes.pop();
        }
        Ok(true)
    }

    async fn execute_all(
        &mut self,
        nodes: &[NodeId],
        issued_by: IssuedBy,
        call: &Call,
        half_way: &mut BTreeSet<NodeId>,
    ) -> Result<(), Failure> {
        for node in nodes {
            let link = self.tx.links.at(node);
            half_way.remove(node);
            let must_describe = link.must_describe(&call.parts(issued_by, *node).1);
            let out = link.connection().outgoing();
            if must_describe || (issued_by == IssuedBy::Client && !call.is_extended()) {
                put_describe(out, Target::Portal, "");
            }
            put_execute(out, "", 0);
            put_sync(out);
            link.connection().flush().await?;
        }
        Ok(())
    }

    /// Waits until each node has its snapshot for what was just sent. Requires: only the answer to
    /// that is outstanding.
    pub(super) async fn await_start(&mut self, nodes: &[NodeId]) -> Result<(), Failure> {
        for node in nodes {
            loop {
                let link = self.tx.links.at(node);
                let answered = tokio::time::timeout(POLL_INTERVAL, link.wait_for_anything()).await;
                if let Ok(answered) = answered {
                    answered?;
                    break;
                }
                if self.is_at_work(*node).await {
                    break;
                }
            }
        }
        Ok(())
    }

    /// A statement has failed on one node (a timeout, a cancellation, a lock that cannot be had):
    /// what the other nodes still do for it is in vain, and is ended. Their answers must still
    /// be read.
    pub(super) async fn end_on_the_rest(&mut self, nodes: impl Iterator<Item = NodeId>) {
        let nodes: Vec<_> = nodes.collect();
        if nodes.is_empty() {
            return;
        }
        let mut targets = self.tx.registry.backends.of(self.tx.process_id);
        targets.retain(|target| nodes.contains(&target.key().node));
        for _ in 0..CANCELS_MAX {
            self.tx.registry.cancel(&targets).await;
            // A cancel request that arrives before its statement hits nothing, and the statement may then
            // wait for a lock.
            let answers = self.begin_to_answer(&nodes);
            if tokio::time::timeout(CANCEL_INTERVAL, answers).await.is_ok() {
                break;
            }
        }
    }

    /// Waits until each of these nodes has answered something, or is lost. Cancel-safe.
    async fn begin_to_answer(&mut self, nodes: &[NodeId]) {
        for node in nodes {
            if let Some(link) = self.tx.links.get_mut(node) {
                // Reading its answer finds the same.
                _ = link.wait_for_anything().await;
            }
        }
    }

    /// Whether the backend on `node` is seen to run with a snapshot.
    async fn is_at_work(&mut self, node: NodeId) -> bool {
        let link = self.tx.links.at(&node);
        let (process_id, _) = link.connection().backend_key();
        // An open cursor has a snapshot of its own, which says nothing about the statement's.
        let has_cursors = !self.tx.cursors.is_empty() || !self.tx.portals.is_empty();
        let snapshot = if has_cursors { "false" } else { "backend_xmin IS NOT NULL" };
        let sql = format!(
            "SELECT FROM pg_catalog.pg_stat_activity WHERE pid = {process_id} \
             AND state = 'active' AND (wait_event_type = 'Lock' OR {snapshot})"
        );
        let registry = self.tx.registry.clone();
        let Ok(mut connection) = registry.cluster.connections.checkout(node).await else {
            return false;
        };
        let seen = connection.rows(&sql).await.is_ok_and(|rows| !rows.rows.is_empty());
        registry.cluster.connections.release(connection);
        seen
    }
}

/// Reads one internal answer to ReadyForQuery; every row goes to `take`.
///
/// Errors: what the node answered with, or the first error of `take`; read to the end either way.
pub(super) async fn read_rows(
    link: &mut Link,
    take: impl FnMut(&[Option<Bytes>]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    read_answer(link, Rows::To(take)).await
}

/// The same of rows that are kept as they are.
pub(super) async fn put_rows(link: &mut Link, spool: &mut Spool) -> Result<(), Failure> {
    type Taker = fn(&[Option<Bytes>]) -> Result<(), Failure>;
    read_answer(link, Rows::<Taker>::Kept(spool)).await
}

/// Where rows go.
enum Rows<'s, T> {
    To(T),
    Kept(&'s mut Spool),
}

async fn read_answer<T: FnMut(&[Option<Bytes>]) -> Result<(), Failure>>(
    link: &mut Link,
    mut rows: Rows<'_, T>,
) -> Result<(), Failure> {
    let refused_before = link.catch_up().await?;
    let mut failure: Option<Failure> = None;
    loop {
        let Some(frame) = link.connection().take_frame()? else {
            link.connection().read_more().await?;
            continue;
        };
        match frame.tag() {
            b'D' if failure.is_none() => match &mut rows {
                Rows::To(take) => failure = take(&decode_data_row(&frame)?).err(),
                Rows::Kept(spool) => {
                    spool.buffer().extend_from_slice(frame.as_bytes());
                    spool.make_room().await;
                }
            },
            _ if ends_answer(link, &frame, &mut failure)? => break,
            _ => (),
        }
    }
    refused_before.map_or(Ok(()), Err)?;
    failure.map_or(Ok(()), Err)
}

/// Whether this is the last of an answer that the gateway reads itself: ReadyForQuery, or an error that ends the
/// connection. The first error is kept.
pub(super) fn ends_answer(
    link: &mut Link,
    frame: &Frame,
    failure: &mut Option<Failure>,
) -> Result<bool, Failure> {
    match frame.tag() {
        b'E' => {
            let error = told(frame)?;
            let is_fatal = error.is_fatal();
            failure.get_or_insert_with(|| error.into());
            if is_fatal {
                link.connection().note_end();
            }
            Ok(is_fatal)
        }
        b'Z' => {
            link.answered();
            Ok(true)
        }
        _ => Ok(false),
    }
}
