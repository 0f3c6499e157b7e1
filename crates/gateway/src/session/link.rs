//! One session's connection to one node, with what the session has left there.
//!
//! Owns: which prepared statements the node knows by which name, and answers that nobody shall see.
//! Never: chooses what to send.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::BytesMut;
use tutti_sql::catalog::NodeId;
use tutti_wire::backend::{
    decode_parameter_description, decode_row_description, put_parameter_description,
    put_row_description,
};
use tutti_wire::frame::{Frame, WireError};
use tutti_wire::frontend::put_query;

use crate::catalog::FIRST_NORMAL_OID;
use crate::node::{NodeConnection, NodeError, Rows};
use crate::shared::Shared;

/// Identifies a client's prepared statement for as long as the session lives: names are reused.
pub type StatementId = u64;

/// An answer that nobody has read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Unread {
    /// Of a silent query: matters if it is a refusal.
    Silent,
    /// Of a statement that was given up because something failed elsewhere.
    Abandoned,
}

/// A connection to a node that serves one session.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    connection: NodeConnection,
    /// Answers that stand before the next one, oldest first.
    unread: VecDeque<Unread>,
    /// An answer is due that somebody is about to read.
    awaited: bool,
    /// What a silent query was refused with, found while waiting for something else.
    refused: Option<NodeError>,
    /// Client's statement name to the statement that the node knows under it.
    pub prepared: HashMap<String, StatementId>,
    /// The node has the client's unnamed portal.
    pub unnamed_portal: bool,
}

impl Link {
    /// Wraps a fresh connection.
    pub fn new(shared: Arc<Shared>, connection: NodeConnection) -> Self {
        Self {
            shared,
            connection,
            unread: VecDeque::new(),
            awaited: false,
            refused: None,
            prepared: HashMap::new(),
            unnamed_portal: false,
        }
    }

    /// Appends a RowDescription or ParameterDescription of this node, in node 1's OIDs.
    pub fn put_description(&self, out: &mut BytesMut, frame: &Frame) -> Result<(), WireError> {
        let node = self.connection.node();
        match frame.tag() {
            b'T' if node != NodeId::HOME => {
                let mut columns = decode_row_description(frame)?;
                if self.shared.oids().to_home(node, &mut columns) {
                    put_row_description(out, &columns);
                    return Ok(());
                }
            }
            b't' if node != NodeId::HOME => {
                let types = decode_parameter_description(frame)?;
                put_parameter_description(out, &self.shared.oids().types_to_home(node, &types));
                return Ok(());
            }
            _ => (),
        }
        out.extend_from_slice(frame.as_bytes());
        Ok(())
    }

    /// Parameter types, which the client gives in node 1's OIDs, in this node's.
    pub fn types_here(&self, types: &[u32]) -> Vec<u32> {
        match self.connection.node() {
            NodeId::HOME => types.to_vec(),
            _ if types.iter().all(|oid| *oid < FIRST_NORMAL_OID) => types.to_vec(),
            node => self.shared.oids().types_from_home(node, types),
        }
    }

    /// The connection, for writing, and for reading once [`Self::settle`] has returned.
    pub fn connection(&mut self) -> &mut NodeConnection {
        &mut self.connection
    }

    /// Unwraps the connection.
    pub fn into_connection(self) -> NodeConnection {
        self.connection
    }

    /// Whether the connection cannot be used any more.
    pub fn is_broken(&self) -> bool {
        self.connection.is_broken()
    }

    /// Appends a query whose answer only matters if it is an error. It travels with whatever is
    /// flushed next.
    pub fn put_silent(&mut self, sql: &str) {
        self.begin();
        self.awaited = false;
        put_query(self.connection.outgoing(), sql);
        self.unread.push_back(Unread::Silent);
    }

    /// A statement is about to be written whose answer will be read to ReadyForQuery. Whoever has
    /// read it says [`Self::answered`]; an answer that was given up half-way is skipped later.
    pub fn begin(&mut self) {
        self.forget_unnamed();
        if self.awaited {
            self.unread.push_back(Unread::Abandoned);
        }
        self.awaited = true;
    }

    /// The answer has been read to ReadyForQuery.
    pub fn answered(&mut self) {
        self.awaited = false;
    }

    /// Reads the answers that stand before the next one. Returns the first refusal among them; whoever reads the
    /// answer that follows must read it first, then report the refusal.
    ///
    /// Errors: the connection is lost; there is no further answer.
    pub async fn settle(&mut self) -> Result<Option<NodeError>, NodeError> {
        let mut refused = self.refused.take();
        while let Some(unread) = self.unread.pop_front() {
            match (self.connection.finish_query().await, unread) {
                (Err(error), _) if self.connection.is_broken() => return Err(error),
                (Err(error), Unread::Silent) => refused = refused.or(Some(error)),
                (Ok(_), _) | (Err(_), Unread::Abandoned) => (),
            }
        }
        Ok(refused)
    }

    /// Waits for a message that comes before the rows of an answer: ParseComplete (`1`) or
    /// BindComplete (`2`), and takes it. False: there is an error instead, which whoever reads the
    /// answer will find. Cancel-safe. Requires: what has been written is flushed.
    pub async fn wait_for(&mut self, tag: u8) -> Result<bool, NodeError> {
        if !self.unread.is_empty() {
            self.settle_early().await?;
        }
        loop {
            match self.connection.incoming().first().copied() {
                Some(b'E') => return Ok(false),
                // CloseComplete, and what may come at any time.
                Some(found) if found == tag || matches!(found, b'3' | b'N' | b'S' | b'A') => {
                    let frame = self.connection.next_frame().await?;
                    if frame.tag() == tag {
                        return Ok(true);
                    }
                }
                Some(_) => return Ok(false),
                None => self.connection.read_more().await?,
            }
        }
    }

    /// Reads silent answers now; a refusal among them is kept for whoever settles next.
    pub async fn settle_early(&mut self) -> Result<(), NodeError> {
        self.refused = self.settle().await?;
        Ok(())
    }

    /// Waits until the node has sent something that nobody has taken. Cancel-safe.
    pub async fn wait_for_anything(&mut self) -> Result<(), NodeError> {
        if self.connection.incoming().is_empty() {
            self.connection.read_more().await?;
        }
        Ok(())
    }

    /// Whether the node has answered everything.
    pub fn is_quiet(&self) -> bool {
        self.unread.is_empty() && !self.awaited
    }

    /// Runs the gateway's own query and returns all rows of all statements.
    pub async fn query(&mut self, sql: &str) -> Result<Vec<Rows>, NodeError> {
        self.begin();
        put_query(self.connection.outgoing(), sql);
        self.connection.flush().await?;
        let refused_before = self.settle().await?;
        let rows = self.connection.finish_query().await;
        self.answered();
        refused_before.map_or(rows, Err)
    }

    /// A simple query destroys the node's unnamed statement and portal.
    pub fn forget_unnamed(&mut self) {
        self.prepared.remove("");
        self.unnamed_portal = false;
    }
}
