//! What the gateway knows of its nodes, and its connections to them.
//!
//! Owns: which start of a node has been settled, for which transactions a node is closed to reads, idle
//! connections, and the backends that were given up.
//! Never: reads a node that is closed.
//! Start reading at [`Gateway::link`].

use std::collections::BTreeSet;

use tutti_txn::{Gid, NodeId};

use super::{Gateway, RETRY_PAUSE};
use crate::bugs::Bug;
use crate::link::Link;
use crate::network::Lost;
use crate::node::statement::BackendId;
use crate::tasks::Slot;

/// How long a statement waits for a node to be opened.
const OPEN_PATIENCE: u64 = 20_000;

#[derive(Default)]
pub struct NodeState {
    /// The start of the node whose prepared transactions are settled.
    pub settled_epoch: Option<u64>,
    pub is_being_swept: bool,
    /// Transactions handed to recovery that the node may not show yet.
    pub closed_by: BTreeSet<Gid>,
    /// Backends of connections that were given up while a PREPARE may have been on its way.
    pub given_up: BTreeSet<BackendId>,
    /// Connections for clients' statements: their backends are on the node's list.
    idle: Vec<Link>,
    /// The gateway's own.
    idle_own: Vec<Link>,
    opened: Vec<Slot<()>>,
}

impl NodeState {
    pub fn is_open(&self) -> bool {
        self.settled_epoch.is_some() && self.closed_by.is_empty()
    }

    fn ring_if_open(&mut self) {
        if self.is_open() {
            for waiting in std::mem::take(&mut self.opened) {
                waiting.set(());
            }
        }
    }
}

impl Gateway {
    pub(super) fn with_node<T>(&self, node: NodeId, step: impl FnOnce(&mut NodeState) -> T) -> T {
        let mut nodes = self.0.nodes.borrow_mut();
        let state = nodes.get_mut(&node).expect("plans name nodes that exist");
        let done = step(state);
        state.ring_if_open();
        done
    }

    /// A new connection, to the node's present server.
    pub(super) async fn connect(&self, node: NodeId) -> Result<Link, Lost> {
        let link = Link::open(self.sim(), self.0.id, node).await?;
        let is_news = self.with_node(node, |state| {
            let is_news = state.settled_epoch.is_some_and(|known| known != link.epoch);
            if is_news {
                state.settled_epoch = None;
            }
            is_news
        });
        if is_news {
            self.sim().note(|| format!("{node} has restarted, and is closed until settled"));
            self.begin_sweep(node);
        }
        Ok(link)
    }

    /// An idle connection of the gateway's own or a new one, whatever the state of the node.
    pub(super) async fn any_link(&self, node: NodeId) -> Result<Link, Lost> {
        match self.idle(node, |state| &mut state.idle_own) {
            Some(link) => Ok(link),
            None => self.connect(node).await,
        }
    }

    fn idle(&self, node: NodeId, of: fn(&mut NodeState) -> &mut Vec<Link>) -> Option<Link> {
        // Taken out first: dropping a link must not find the nodes borrowed.
        while let Some(link) = self.with_node(node, |state| of(state).pop()) {
            if !link.is_broken() {
                return Some(link);
            }
        }
        None
    }

    /// A connection for clients' statements to a node that is open to reads.
    ///
    /// Errors: there is none, or the node stays closed for long, or it serves a later gateway.
    pub(super) async fn link(&self, node: NodeId) -> Result<Link, Lost> {
        loop {
            self.wait_until_open(node).await?;
            let link = match self.idle(node, |state| &mut state.idle) {
                Some(link) => link,
                None => {
                    let mut link = self.connect(node).await?;
                    self.list_backend(&mut link).await?;
                    link
                }
            };
            if self.may_read(&link) {
                return Ok(link);
            }
        }
    }

    /// A connection of the gateway's own to a node that is open to reads.
    ///
    /// Errors: there is none, or the node stays closed for long.
    pub(super) async fn own_link(&self, node: NodeId) -> Result<Link, Lost> {
        loop {
            self.wait_until_open(node).await?;
            let link = self.any_link(node).await?;
            if self.may_read(&link) {
                return Ok(link);
            }
        }
    }

    /// Whether a statement may be sent over this connection now.
    pub(super) fn may_read(&self, link: &Link) -> bool {
        self.with_node(link.node, |state| {
            state.is_open() && state.settled_epoch == Some(link.epoch)
        })
    }

    /// Releases a connection that is outside any transaction.
    pub(super) fn give_back(&self, link: Link) {
        if !link.is_broken() {
            self.with_node(link.node, |state| match link.is_for_clients {
                true => state.idle.push(link),
                false => state.idle_own.push(link),
            });
        }
    }

    /// Gives up a connection on which an answer is still to come.
    pub(super) fn give_up(&self, link: &Link) {
        self.with_node(link.node, |state| state.given_up.insert(link.backend));
        link.close();
    }

    /// Errors: it takes too long.
    pub(super) async fn wait_until_open(&self, node: NodeId) -> Result<(), Lost> {
        let opened = Slot::default();
        let is_open = self.with_node(node, |state| {
            if !state.is_open() {
                state.opened.push(opened.clone());
            }
            state.is_open()
        });
        if is_open {
            return Ok(());
        }
        opened.take_before(self.sim().bell(OPEN_PATIENCE)).await.ok_or(Lost)
    }

    /// Before a statement on one node: waits for what others may have seen elsewhere, and until the
    /// node may be read. The statement must be sent before anything else is awaited.
    ///
    /// Errors: the connection leads to an earlier start of the node.
    pub(super) async fn barrier(&self, link: &Link) -> Result<(), Lost> {
        if !self.sim().has(Bug::OneNodeReaderDoesNotWait) {
            self.wait_for_applying(link.node).await;
        }
        while !self.may_read(link) {
            self.wait_until_open(link.node).await?;
            let settled = self.with_node(link.node, |state| state.settled_epoch);
            if settled != Some(link.epoch) {
                return Err(Lost);
            }
        }
        Ok(())
    }

    /// Looks whether a node is still the one that it was.
    pub(super) async fn watch(&self, node: NodeId) {
        match self.connect(node).await {
            Ok(link) => self.give_back(link),
            Err(Lost) => self.sim().sleep(RETRY_PAUSE).await,
        }
    }
}
