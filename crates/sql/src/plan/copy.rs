//! COPY in both directions.
//!
//! Owns: which columns the data has, what is added to it, and where the rows of COPY TO come from.
//! Never: reads or splits data; the executor does.
//! Start reading at [`CopyFrom`] and [`CopyTo`].

use std::sync::Arc;

use super::gather::{Gather, Template};
use super::place::{Access, NodeChoice};
use super::rows::RowsWrite;
use crate::catalog::Relation;

/// COPY … FROM STDIN.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CopyFrom {
    /// The target table.
    pub relation: Arc<Relation>,
    /// The COPY statement for the nodes, with the columns of `fill` appended to its column list.
    pub statement: String,
    /// Format options as written, for the splitter: lower-case names, values as text (`format`,
    /// `delimiter`, `null`, `header`, `quote`, `escape`, `force_null`, `force_not_null`,
    /// `encoding`, `default`); an option that names columns has one entry for each.
    pub options: Vec<(String, String)>,
    /// Columns that the data has, as indexes in `relation.columns`, in the data's order.
    pub columns: Vec<usize>,
    /// Position of each column of the distribution key among `columns` and then `fill`.
    pub key: Vec<Option<usize>>,
    /// Columns to append to each row: index in `relation.columns` and the expression to evaluate
    /// once per row on node 1 (defaults that must be drawn once for the cluster).
    pub fill: Vec<(usize, String)>,
    /// What is appended is read the same under any session settings (it is written so that it is).
    pub fill_is_read_alike: bool,
    /// Positions in the data of columns where a text may mean the current time (replicated targets):
    /// each node reads it for itself.
    pub timed: Vec<usize>,
    /// What travels after the data if it does.
    pub rows: Option<RowsWrite>,
    /// What node 1 is asked for the buckets of rows, where the key is computed, or written as only a server can read it.
    /// Gap 0: the rows. `None`: the table has no key.
    pub bucket_question: Option<Template>,
}

/// COPY … TO STDOUT.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CopyTo {
    /// How the rows come together; texts inside are COPY statements.
    pub plan: CopyToPlan,
    /// Binary format: signature and trailer must appear once.
    pub binary: bool,
    /// A header line must appear once.
    pub header: bool,
    /// What is copied, in binary format.
    pub columns: CopiedColumns,
}

/// The columns of a COPY … TO STDOUT in binary format.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CopiedColumns {
    /// Of these types, as node 1 numbers them. None in other formats.
    OfTypes(Vec<u32>),
    /// Those of this query.
    OfQuery(String),
}

/// The three ways of COPY … TO STDOUT.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CopyToPlan {
    /// The client's statement on one node, and what it does there: it may return rows that it writes.
    One(NodeChoice, Access),
    /// The client's statement on every node, concatenated.
    Scatter,
    /// Gather; the final statement is a COPY.
    Gather(Box<Gather>),
}
