//! Typed values from a node's answer to one of the gateway's own queries.
//!
//! Owns: that an answer of the wrong shape is an error, never a default.
//! Never: knows what was asked.

use std::str::FromStr;

use tutti_link::connection::Rows;
use tutti_sql::catalog::NodeId;

use crate::error::GatewayError;

/// One statement's rows, with what an error about them needs.
pub struct Answer<'a> {
    /// The node that answered.
    pub node: NodeId,
    /// What was asked for, to be read after "the query for".
    pub what: &'static str,
    /// The rows.
    pub rows: &'a Rows,
}

impl<'a> Answer<'a> {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.rows.is_empty()
    }

    /// Text that cannot be NULL.
    pub fn text(&self, row: usize, column: usize) -> Result<&'a str, GatewayError> {
        self.rows.text(row, column).ok_or_else(|| self.unreadable())
    }

    /// Text that can be NULL.
    pub fn optional(&self, row: usize, column: usize) -> Option<&'a str> {
        self.rows.text(row, column)
    }

    /// A number that cannot be NULL.
    pub fn number<T: FromStr>(&self, row: usize, column: usize) -> Result<T, GatewayError> {
        self.text(row, column)?.parse().map_err(|_| self.unreadable())
    }

    /// A boolean that cannot be NULL.
    pub fn boolean(&self, row: usize, column: usize) -> Result<bool, GatewayError> {
        match self.text(row, column)? {
            "t" => Ok(true),
            "f" => Ok(false),
            _ => Err(self.unreadable()),
        }
    }

    /// The error for what could not be read.
    pub fn unreadable(&self) -> GatewayError {
        GatewayError::Unreadable { node: self.node, what: self.what }
    }
}
