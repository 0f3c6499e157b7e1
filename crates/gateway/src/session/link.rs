//! One session's connection to one node, with what the session has left there.
//!
//! Owns: which prepared statements the node knows by which name, and answers that nobody shall see.
//! Never: chooses what to send.

use std::collections::HashMap;

use tutti_wire::frontend::put_query;

use crate::node::{NodeConnection, NodeError, Rows};

/// Identifies a client's prepared statement for as long as the session lives: names are reused.
pub type StatementId = u64;

/// A connection to a node that serves one session.
#[derive(Debug)]
pub struct Link {
    connection: NodeConnection,
    /// Silent queries whose answers were not read yet.
    silent: u32,
    /// Client's statement name to the statement that the node knows under it.
    pub prepared: HashMap<String, StatementId>,
}

impl Link {
    /// Wraps a fresh connection.
    pub fn new(connection: NodeConnection) -> Self {
        Self { connection, silent: 0, prepared: HashMap::new() }
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
        self.forget_unnamed();
        put_query(self.connection.outgoing(), sql);
        self.silent += 1;
    }

    /// Reads the answers to silent queries. Returns the first refusal among them; whoever reads the
    /// answer that follows must read it first, then report the refusal.
    ///
    /// Errors: the connection is lost; there is no further answer.
    pub async fn settle(&mut self) -> Result<Option<NodeError>, NodeError> {
        let mut refused = None;
        while 0 < self.silent {
            self.silent -= 1;
            match self.connection.finish_query().await {
                Ok(_) => (),
                Err(error) if self.connection.is_broken() => return Err(error),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Ok(refused)
    }

    /// Runs the gateway's own query and returns all rows of all statements.
    pub async fn query(&mut self, sql: &str) -> Result<Vec<Rows>, NodeError> {
        self.forget_unnamed();
        put_query(self.connection.outgoing(), sql);
        self.connection.flush().await?;
        let refused_before = self.settle().await?;
        let rows = self.connection.finish_query().await;
        refused_before.map_or(rows, Err)
    }

    /// A simple query destroys the node's unnamed statement.
    pub fn forget_unnamed(&mut self) {
        self.prepared.remove("");
    }
}
