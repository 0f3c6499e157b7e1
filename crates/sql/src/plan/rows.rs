//! Writes to replicated tables: the rows that travel, and the locks that precede them.
//!
//! Owns: what the executor has to know of both. Never: compares or sends rows.
//! Start reading at [`RowsWrite`].

use std::sync::Arc;

use crate::catalog::{Relation, quote_identifier};

/// A write to replicated tables by row: the statement runs on node 1, and the rows that it has written
/// there are stored on the other nodes as they are.
#[derive(Clone, Eq, PartialEq)]
pub struct RowsWrite {
    /// Every replicated table that it may write.
    pub tables: Vec<Arc<Relation>>,
    /// Replicated tables that actions of foreign keys may write with them.
    pub reached: Vec<Arc<Relation>>,
    /// A distributed table refers to one of them: each node has rows that only it can check, so
    /// foreign keys must be followed there.
    pub is_referred_to: bool,
    /// The statement says by a condition which rows it writes, so they are likely to be few.
    pub names_some: bool,
    /// How the statement itself says which rows it wrote. `None`: only a comparison of the tables
    /// can tell.
    pub returned: Option<ReturnedRows>,
    /// It is about the current row of this cursor, which must be on node 1.
    pub cursor: Option<String>,
}

impl RowsWrite {
    pub(super) fn written(&self) -> impl Iterator<Item = u32> {
        self.tables.iter().chain(&self.reached).map(|table| table.oid)
    }
}

impl std::fmt::Debug for RowsWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tables: Vec<_> = self.tables.iter().map(|table| table.name.as_str()).collect();
        write!(f, "{}", tables.join(" "))?;
        match &self.returned {
            Some(returned) => write!(f, " returned by {}", returned.kind.as_str())?,
            None => write!(f, " compared")?,
        }
        if !self.reached.is_empty() {
            let reached: Vec<_> = self.reached.iter().map(|table| table.name.as_str()).collect();
            write!(f, " with {}", reached.join(" "))?;
        }
        self.cursor.as_ref().map_or(Ok(()), |cursor| write!(f, " at {cursor}"))
    }
}

/// Rows that a statement returns besides what the client has asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReturnedRows {
    /// What was done to them.
    pub kind: RowKind,
    /// What to append to the statement, so that the row is one more column of what it returns.
    pub returning: String,
}

/// What a statement does to the rows that it returns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RowKind {
    /// They are new.
    Insert,
    /// They are new, or have been changed under their primary key.
    Upsert,
    /// They have been changed under their primary key.
    Update,
    /// They are gone.
    Delete,
}

impl RowKind {
    /// As the schema's functions call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Upsert => "upsert",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// A lock on a table, or on all that a view reads.
#[derive(Clone, Eq, PartialEq)]
pub struct TableLock {
    /// Schema of the table.
    pub schema: String,
    /// Its name.
    pub table: String,
    /// How it is locked.
    pub mode: LockMode,
}

/// How a table is locked.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum LockMode {
    /// SHARE: no transaction writes it.
    Share,
    /// SHARE ROW EXCLUSIVE: no other transaction writes it, nor locks it to do so.
    ShareRowExclusive,
}

impl LockMode {
    /// As LOCK TABLE has it.
    pub fn as_sql(self) -> &'static str {
        match self {
            Self::Share => "SHARE",
            Self::ShareRowExclusive => "SHARE ROW EXCLUSIVE",
        }
    }
}

/// As the statement that would take it.
impl std::fmt::Display for TableLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (schema, table) = (quote_identifier(&self.schema), quote_identifier(&self.table));
        write!(f, "LOCK TABLE {schema}.{table} IN {} MODE", self.mode.as_sql())
    }
}

impl std::fmt::Debug for TableLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}
