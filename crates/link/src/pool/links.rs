//! The connections that a session has at the moment, at most one to a node.
//!
//! Owns: finding one by its node. Never: checks one out or releases it (`transaction::checkout`
//! does).
//!
//! They are few, usually none or one: a sorted vector keeps its memory between statements,
//! which a tree does not.

use std::future::poll_fn;
use std::task::Poll;

use tutti_sql::catalog::NodeId;
use tutti_wire::frame::{Frame, frame_len};

use super::link::Link;
use crate::connection::NodeError;

/// How much is read ahead of answers that are not due yet, to see whether they are errors.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// See the module's documentation. In the order of nodes.
#[derive(Debug, Default)]
pub struct Links(Vec<(NodeId, Box<Link>)>);

/// Whether an error is among the messages that have come.
fn holds_error(incoming: &[u8]) -> bool {
    let mut at = 0;
    while at < incoming.len() {
        if incoming[at] == b'E' {
            return true;
        }
        let Ok(Some(len)) = frame_len(&incoming[at..]) else { return false };
        at += len;
    }
    false
}

impl Links {
    /// The link to `node`.
    pub fn get(&self, node: &NodeId) -> Option<&Link> {
        self.place(node).ok().map(|place| &*self.0[place].1)
    }

    /// The same, for use.
    pub fn get_mut(&mut self, node: &NodeId) -> Option<&mut Link> {
        let place = self.place(node).ok()?;
        Some(&mut *self.0[place].1)
    }

    /// The link to a node that the current statement is enlisted on.
    ///
    /// Panics: there is none.
    pub fn at(&mut self, node: &NodeId) -> &mut Link {
        self.get_mut(node).expect("the node takes part in the statement")
    }

    /// Whether there is one to `node`.
    pub fn contains_key(&self, node: &NodeId) -> bool {
        self.place(node).is_ok()
    }

    /// Adds a link; one to the same node is closed.
    pub fn insert(&mut self, node: NodeId, link: Box<Link>) {
        match self.place(&node) {
            Ok(place) => self.0[place].1 = link,
            Err(place) => self.0.insert(place, (node, link)),
        }
    }

    /// Takes a link out.
    pub fn remove(&mut self, node: &NodeId) -> Option<Box<Link>> {
        let place = self.place(node).ok()?;
        Some(self.0.remove(place).1)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The nodes that there are links to.
    pub fn keys(&self) -> impl Iterator<Item = &NodeId> {
        self.0.iter().map(|(node, _)| node)
    }

    /// All.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeId, &Link)> {
        self.0.iter().map(|(node, link)| (node, &**link))
    }

    /// The same, for use.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&NodeId, &mut Link)> {
        self.0.iter_mut().map(|(node, link)| (&*node, &mut **link))
    }

    /// The same, without their nodes.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.0.iter_mut().map(|(_, link)| &mut **link)
    }

    /// The next message of any node. Cancel-safe. For links of which no answer is due.
    pub async fn next_frame(&mut self) -> (NodeId, Result<Frame, NodeError>) {
        poll_fn(|context| {
            for (node, link) in &mut self.0 {
                if let Poll::Ready(frame) = link.connection().poll_frame(context) {
                    return Poll::Ready((*node, frame));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Waits until `node` has begun to answer. `Some`: one of `others` has failed before that.
    /// Cancel-safe. Requires: nothing precedes the awaited answers.
    pub async fn first_failed(&mut self, node: NodeId, others: &[NodeId]) -> Option<NodeId> {
        poll_fn(|context| {
            for (at, link) in &mut self.0 {
                let is_awaited = *at == node;
                if !is_awaited && !others.contains(at) {
                    continue;
                }
                let connection = link.connection();
                let is_lost = connection.poll_read_ahead(context, READ_AHEAD_BYTES).is_err();
                let incoming = connection.incoming();
                if is_awaited && (is_lost || !incoming.is_empty()) {
                    return Poll::Ready(None);
                }
                if !is_awaited && (is_lost || holds_error(incoming)) {
                    return Poll::Ready(Some(*at));
                }
            }
            Poll::Pending
        })
        .await
    }

    fn place(&self, node: &NodeId) -> Result<usize, usize> {
        self.0.binary_search_by_key(node, |(known, _)| *known)
    }
}
