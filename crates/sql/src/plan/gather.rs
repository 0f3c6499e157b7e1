//! Statements over rows that were brought together.
//!
//! Owns: what is collected, the statement that runs over it, and where.
//! Never: says how rows travel; the executor does.
//! Start reading at [`Gather`].

use std::fmt;
use std::sync::Arc;

use super::Planned;
use super::place::{Access, NodeChoice};
use super::rows::{RowsWrite, TableLock};
use crate::catalog::{MapId, Relation};

/// SQL text with gaps that gathered rows fill.
///
/// A gap stands inside `unnest(GAP::schema.table[])`: the executor puts a parameter there, whose value is the
/// text of the array of the collected rows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Template(pub Vec<Piece>);

impl fmt::Display for Template {
    /// The text, with words in the gaps.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.0 {
            match piece {
                Piece::Sql(text) => formatter.write_str(text)?,
                Piece::Rows(index) => write!(formatter, "<rows {index}>")?,
                Piece::Time(sql) => write!(formatter, "<{sql}>")?,
                Piece::Buckets(_) => formatter.write_str("<buckets>")?,
            }
        }
        Ok(())
    }
}

impl Template {
    /// Whether it is another text for each node.
    pub fn is_of_node(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Buckets(_)))
    }

    /// The same with text before and after.
    #[must_use]
    pub fn wrap(mut self, before: &str, after: &str) -> Self {
        self.0.insert(0, Piece::Sql(before.to_owned()));
        self.0.push(Piece::Sql(after.to_owned()));
        self
    }

    /// Its rows as those of so many gaps later.
    pub(crate) fn behind(&self, gaps: usize) -> Self {
        let shifted = self.0.iter().map(|piece| match piece {
            Piece::Rows(index) => Piece::Rows(index + gaps),
            piece => piece.clone(),
        });
        Self(shifted.collect())
    }
}

/// A part of a [`Template`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Piece {
    /// Text as it is.
    Sql(String),
    /// The rows of [`Gather::collects`] with this index (or, in [`InsertSource::Select`], the
    /// source's rows for the node: index 0), as a parameter that is the text of an array of composite
    /// values.
    Rows(usize),
    /// What this expression gives on node 1 before the statement is run, as a literal: the current time, which must be
    /// the same on all nodes.
    Time(String),
    /// The buckets of this map that the node has to which the statement goes, as the text of an array.
    Buckets(MapId),
}

/// What to bring together of one table before a final statement can run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Collect {
    /// Whose rows; of [`CollectFrom::Moments`], for whose rows' sake.
    pub relation: Arc<Relation>,
    /// A SELECT with exactly one output column: the row as the table's own composite type, cast to
    /// text: `SELECT ROW(a, NULL, c)::public.t::text FROM public.t AS alias WHERE …`. Columns that
    /// the statement cannot need are NULL.
    pub select: Template,
    /// From which nodes.
    pub from: CollectFrom,
    /// It locks the rows.
    pub locks: Option<Box<RowLocks>>,
    /// Each row is needed on one node only, which has it by this map: the SELECT says in a second column its bucket.
    pub route: Option<MapId>,
    /// How to collect fewer rows, once those of another collect are there.
    pub reduced: Vec<Reduced>,
}

/// A [`Collect`] of those rows alone that matter beside the rows of another.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reduced {
    /// The other's index in the same list.
    pub by: usize,
    /// The SELECT: [`Piece::Rows`] is what `by` has collected.
    pub select: Template,
    /// A SELECT that gives as many rows for all that a node knows, to be explained and not to be run.
    pub expected: Template,
}

/// The rows of a [`Collect`] are locked until the transaction ends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RowLocks {
    /// The first of all nodes' rows only; `None`: all that the SELECT finds.
    pub first: Option<FirstRows>,
}

/// So many rows of all nodes, and no others, are to be locked and collected. Each node's SELECT finds as many.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FirstRows {
    /// LIMIT, as SQL; may have the client's parameters.
    pub limit: String,
    /// OFFSET: such rows are locked, and not collected.
    pub offset: Option<String>,
    /// For the rows in gap 0, as they stand there, their ranks in the client's order. `None`: any rows will do.
    pub ranks: Option<Template>,
    /// How to lock one row after another in this order, and no other: for those of other sessions are waited for, or
    /// refused. `None`: they are skipped, any rows will do, or the table has no primary key that serves.
    pub by_key: Option<ByKey>,
    /// Rows that others have locked are waited for: every session locks in the same order.
    pub waits: bool,
    /// All rows are wanted: those of one node after those of another.
    pub is_all: bool,
}

/// Locking of rows that are known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ByKey {
    /// All rows in the client's order, not locked; and each once more, with NULL for all but the key.
    pub unlocked: Template,
    /// Locks the rows, of which the keys are in gap 0, that are still to be found, and says what they are now.
    pub lock: Template,
}

/// Where a [`Collect`] runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CollectFrom {
    /// On all nodes: each has its share.
    AllNodes,
    /// On one node, which has all that matters (pinned, or a replicated table).
    One(NodeChoice),
    /// From none: they are what this one of [`super::Steps::before`] has returned.
    Returned(usize),
    /// From all nodes, for each of them its own: the snapshot in which the others are collected, and what had ended
    /// before it. The executor knows how to ask.
    Moments,
}

/// Gather: collect, then run a final statement over the collected rows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Gather {
    /// What to collect; tables that the final statement can read in place are not here.
    pub collects: Vec<Collect>,
    /// The final statement.
    pub statement: Template,
    /// How nodes can answer for their own rows first, if they can. Where the types of what they say may not travel,
    /// rows are collected.
    pub partial: Option<Box<Partial>>,
    /// Other ways to the same answer, for which some tables are brought to every node and the others stay where they
    /// are. Which way moves the fewest rows is known when it is run.
    pub brought: Vec<Brought>,
    /// The final statement over temporary tables, for many rows, or where it may look up rows again and again.
    pub in_tables: Option<Box<InTables>>,
    /// The statement with some of its subqueries computed before it is planned.
    pub first: Option<Box<ComputedFirst>>,
    /// Where the final statement runs.
    pub run_on: RunOn,
    /// What the final statement does.
    pub access: Access,
    /// The distributed or home table that it writes: its OID on node 1.
    pub writes: Option<u32>,
}

impl Gather {
    /// Whether rows are locked where they are collected.
    pub fn locks_rows(&self) -> bool {
        self.collects.iter().any(|collect| collect.locks.is_some())
    }
}

/// A final statement that finds the collected rows in temporary tables of its transaction's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InTables {
    /// One for each of [`Gather::collects`].
    pub tables: Vec<RowsTable>,
    /// Their indexes and statistics.
    pub prepare: Vec<String>,
    /// The final statement.
    pub statement: Template,
    /// It may look up rows in an index again and again: that is worth tables of few rows, too.
    pub looks_up: bool,
    /// It reads more than these tables.
    pub reads_in_place: bool,
}

/// A temporary table for the rows of a [`Collect`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RowsTable {
    /// What makes it. Gap 0: rows that it has from the start.
    pub create: Template,
    /// What it takes further rows by, as text.
    pub copy: String,
    /// For each of the row's fields whether the table has it.
    pub fields: Vec<bool>,
}

/// A statement without those of its scalar subqueries that depend on nothing around them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ComputedFirst {
    /// These subqueries.
    pub subqueries: Vec<ScalarSubquery>,
    /// The statement, [`Piece::Rows`] in their places: to be planned when their values are known.
    pub rest: Template,
}

/// A subquery that gives at most one value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScalarSubquery {
    /// As it stands in the statement.
    pub text: String,
    /// The same with its value as text that any session reads alike.
    pub query: String,
    /// How to run that.
    pub planned: Box<Planned>,
}

/// How to answer once some tables are on every node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Brought {
    /// By the concatenation of what every node answers.
    Rows {
        /// What is brought.
        collects: Vec<Collect>,
        /// What every node runs.
        statement: Template,
    },
    /// By what every node says of its own rows, put together.
    Parts(Box<Partial>),
}

impl Brought {
    /// What is brought to every node.
    pub fn collects(&self) -> &[Collect] {
        match self {
            Self::Rows { collects, .. } => collects,
            Self::Parts(partial) => &partial.collects,
        }
    }
}

/// What each node says of its own rows (groups with parts of their aggregates, or rows of a join), to be put together.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Partial {
    /// What is brought to every node before.
    pub collects: Vec<Collect>,
    /// What every node runs: values as texts that any session reads alike, then the OIDs of those types that are asked
    /// for, then the session's `array_nulls`. [`Piece::Rows`] are those of `collects`.
    pub select: Template,
    /// Per value, the type that it must have, if not any.
    pub expected: Vec<Option<u32>>,
    /// Per value, whether its type is asked for: those of tables' own columns are known.
    pub asked_types: Vec<bool>,
    /// None of them is an array: where there are no values, none need say so.
    pub are_plain: bool,
    /// The parameter, counted from 0, that is its LIMIT: where it is 0, nothing is to be computed.
    pub limit: Option<u16>,
    /// The final statement: [`Piece::Rows`] are those of `collects`, which may be none here, and behind them the
    /// values of each column, as the text of an array.
    pub statement: Template,
    /// Other subqueries of the final statement that are answered in parts: their values come behind this one's, and their
    /// own final statements are in it.
    pub more: Vec<Partial>,
}

impl Partial {
    /// How many values they say, all together.
    pub fn width(&self) -> usize {
        self.all().map(|parts| parts.expected.len()).sum()
    }

    /// It and those with it, in the order of their values.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.more)
    }
}

/// Where a final statement runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RunOn {
    /// On one node; its answer is the answer.
    One(NodeChoice),
    /// On every node, over the rows each has; answers are concatenated, row counts added.
    EachNode,
    /// On every node, node 1 first and alone; all must report the same row count; node 1's answer
    /// is the answer.
    Replicas {
        /// Locks on node 1, to be taken before the statement, in this order. Needed where what the
        /// statement writes depends on more than the rows it names by primary key
        /// (docs/protocol/replicated-tables.md).
        locks: Vec<TableLock>,
        /// How to do the same by row, where a parameter's value makes that necessary.
        rows: RowsWrite,
    },
    /// On node 1; the rows that it wrote go to the other nodes.
    Rows(RowsWrite),
}
