//! The snapshot of a single statement that reads several nodes outside of a transaction.
//!
//! Owns: the transaction that such a statement gets, and that its parts of the snapshot are taken in one visit of the
//! snapshot room.
//! Never: waits for a lock, or for a node that is away, in the room.
//! Start reading at [`TransactionContext::begin_statement_snapshot`]; the protocol is `docs/protocol/rooms.md`.
//!
//! A transaction of several statements imports a snapshot that others have exported, for it need not use every node, and
//! what exports a snapshot cannot prepare. A statement that reads all nodes, and ends, needs neither: inside the room its
//! own connections begin, and take their snapshots; the statement itself travels behind that, in the same flight.

use std::time::Duration;

use tutti_sql::catalog::NodeId;
use tutti_sql::plan::{Access, Plan};
use tutti_wire::sqlstate;

use super::TransactionContext;
use super::enlist::{join, not_in_snapshot};
use super::plan_needs::{reads_every_node_itself, reads_several_nodes};
use super::state::{Entrance, Isolation, Level, Mode, OwnSnapshot};
use super::waiting::{Timeouts, canceled};
use crate::client::failure::Failure;

/// A node that has not taken its snapshot within this is no longer waited for.
const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(2);
/// And after this nobody else comes into the room who would wait for it there.
const PROMPT: Duration = Duration::from_millis(200);

impl TransactionContext {
    /// A read of several nodes outside any transaction gets a snapshot of all of them, as a
    /// transaction of its own. True if it was begun: [`Self::end_statement_snapshot`] ends it.
    pub(crate) fn begin_statement_snapshot(&mut self, plan: &Plan) -> bool {
        let switches = self.registry.cluster.config.switches;
        if self.transaction.mode != Mode::None
            || !switches.rooms
            || self.catalog.is_solo()
            || !reads_several_nodes(plan)
        {
            return false;
        }
        self.open_transaction(Mode::Implicit);
        self.activity.give_way();
        if self.level() == Level::Serializable {
            // It takes part in serialization, and is committed, like any other.
            return false;
        }
        self.transaction.characteristics.isolation = Some(Isolation::RepeatableRead);
        self.transaction.is_of_one_read = true;
        self.transaction.takes_own_snapshot = reads_every_node_itself(plan);
        true
    }

    /// The statement has been answered: the end of its transaction is not awaited.
    pub(crate) async fn end_statement_snapshot(&mut self) -> Result<(), Failure> {
        let ended = std::mem::take(&mut self.transaction);
        self.activity.note_nodes(0);
        self.forget_refreshed();
        self.tell_silently(ended.nodes.keys().copied(), "COMMIT").await
    }

    /// Whether the statement that is about to be sent takes the snapshot.
    pub(super) fn takes_own_snapshot(&self) -> bool {
        let transaction = &self.transaction;
        transaction.takes_own_snapshot
            && self.takes_snapshot
            && transaction.is_open()
            && transaction.used.is_empty()
            && transaction.snapshot.is_none()
            && transaction.own_snapshot.is_none()
    }

    /// Sends what takes the snapshot to every node, inside the snapshot room, and stays there until
    /// [`Self::leave_snapshot_room`]. What is sent meanwhile travels behind it.
    ///
    /// Errors: as [`Self::while_wanted`]; a node cannot be reached, or has not begun in time.
    pub(super) async fn take_own_snapshot(&mut self) -> Result<(), Failure> {
        let registry = self.registry.clone();
        self.transaction.snapshot_catalog = Some(registry.cluster.catalog());
        let (nodes, visit) = loop {
            let nodes = self.connect_to_all().await?;
            let entering = registry.cluster.enter_snapshot_room(&nodes);
            let visit = self.while_wanted(entering).await??;
            // A long wait may have cost the connection to node 1, which did not say in time how long the client wants to
            // wait; and nobody connects in the room.
            if nodes.iter().all(|node| self.links.contains_key(node)) {
                break (nodes, visit);
            }
        };
        let sent = tokio::time::timeout(SNAPSHOT_PATIENCE, self.begin_on(&nodes)).await;
        match sent {
            Ok(sent) => sent?,
            Err(_) => return Err(not_in_snapshot(nodes.last().copied().unwrap_or(NodeId::HOME))),
        }
        self.transaction.own_snapshot = Some(OwnSnapshot { visit: Some(visit) });
        self.activity.note_nodes(self.transaction.nodes.len());
        Ok(())
    }

    /// Sends each of them what begins its part of the transaction, and takes its snapshot.
    async fn begin_on(&mut self, nodes: &[NodeId]) -> Result<(), Failure> {
        let entrance = Entrance { takes_snapshot: true, ..Entrance::default() };
        for node in nodes {
            self.note_refreshed(*node);
            self.transaction.record(*node, Access::Read);
            self.transaction.used.insert(*node);
            let must_outlive = self.must_outlive(*node);
            let link = self.links.at(node);
            join(link, &self.transaction, entrance, must_outlive).await?;
            link.connection().flush().await?;
        }
        Ok(())
    }

    /// Connections that owe nothing, to all nodes: the statement reads each of them. One that is away, or not settled yet,
    /// is waited for, before the room.
    ///
    /// Errors: one does not come back.
    async fn connect_to_all(&mut self) -> Result<Vec<NodeId>, Failure> {
        let nodes = self.catalog.nodes.clone();
        for node in &nodes {
            let link = self.link(*node).await?;
            if !link.is_quiet() {
                link.come_to_rest().await?;
            }
            if self.must_outlive(*node) {
                self.links.at(node).be_in_none().await?;
            }
        }
        for node in &nodes {
            if self.registry.cluster.availability.is_late(*node) {
                self.wait_for_late(*node, &nodes).await?;
                self.registry.cluster.availability.note_prompt(*node);
            }
        }
        Ok(nodes)
    }

    /// Waits until a node answers that was late for the last who asked; no longer than the client wants, as far as
    /// another of `nodes` knows.
    ///
    /// Errors: as [`Self::while_wanted`]; the node is gone.
    async fn wait_for_late(&mut self, late: NodeId, nodes: &[NodeId]) -> Result<(), Failure> {
        let availability = self.registry.cluster.availability.clone();
        let timeouts = match nodes.iter().find(|node| !availability.is_late(**node)) {
            Some(prompt) => self.timeouts_on(*prompt).await?,
            None => Timeouts::default(),
        };
        let Some(mut link) = self.links.remove(&late) else { return Ok(()) };
        let activity = self.activity.clone();
        let too_long = async {
            match timeouts.statement {
                Some(timeout) => tokio::time::sleep(timeout).await,
                None => std::future::pending().await,
            }
        };
        // Its connection owes an answer where it is not waited for any longer, and is closed.
        let answered = tokio::select! {
            biased;
            answered = link.query("") => answered,
            () = activity.cancelled() => {
                self.checked_out.remove(&late);
                return Err(canceled(sqlstate::QUERY_CANCELED, "user request"));
            }
            () = too_long => {
                self.checked_out.remove(&late);
                return Err(canceled(sqlstate::QUERY_CANCELED, "statement timeout"));
            }
        };
        self.links.insert(late, link);
        answered?;
        Ok(())
    }

    /// Leaves the snapshot room, if the transaction is there, as soon as every node has taken its snapshot.
    ///
    /// Errors: a node has not within [`SNAPSHOT_PATIENCE`]; it may take another one later, so its connection is closed.
    pub(crate) async fn leave_snapshot_room(&mut self) -> Result<(), Failure> {
        let own = self.transaction.own_snapshot.as_mut();
        let Some(visit) = own.and_then(|own| own.visit.take()) else { return Ok(()) };
        let mut waiting: Vec<_> = self.transaction.nodes.keys().copied().collect();
        let mut in_time = self.await_snapshots(&mut waiting, PROMPT).await;
        if !in_time {
            let availability = &self.registry.cluster.availability;
            waiting.iter().for_each(|node| availability.note_late(*node));
            in_time = self.await_snapshots(&mut waiting, SNAPSHOT_PATIENCE - PROMPT).await;
        }
        drop(visit);
        let Some(late) = waiting.last().copied().filter(|_| !in_time) else { return Ok(()) };
        for node in waiting {
            if let Some(link) = self.links.get_mut(&node)
                && link.owes_silent()
            {
                link.connection().note_end();
            }
        }
        Err(not_in_snapshot(late))
    }

    /// Waits until these have taken their snapshots; those that have are taken away. False: not all have in time.
    async fn await_snapshots(&mut self, waiting: &mut Vec<NodeId>, patience: Duration) -> bool {
        let all_have = async {
            while let Some(node) = waiting.last() {
                if let Some(link) = self.links.get_mut(node) {
                    // Reading the statement's answer finds the same.
                    _ = link.await_silent().await;
                }
                self.registry.cluster.availability.note_prompt(*node);
                waiting.pop();
            }
        };
        tokio::time::timeout(patience, all_have).await.is_ok()
    }

    /// Whether it is there.
    pub(crate) fn is_in_snapshot_room(&self) -> bool {
        self.transaction.own_snapshot.as_ref().is_some_and(|own| own.visit.is_some())
    }
}
