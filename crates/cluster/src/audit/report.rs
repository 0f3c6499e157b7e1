//! What an audit gives: its report, and its progress.
//!
//! Owns: the kinds of damage, and how a finding reads. Never: looks at anything.
//! Start reading at [`Report`].

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use tutti_sql::catalog::NodeId;

/// What an audit has found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The cluster's name.
    pub cluster: String,
    /// How long it took.
    pub seconds: f64,
    /// Tables that clients have made, partitions counted.
    pub tables: u64,
    /// Rows that were read, copies counted.
    pub rows: u64,
    /// Whether a gateway serves the cluster; `None`: node 1 does not answer.
    pub gateway: Option<bool>,
    /// What is not as it must be.
    pub findings: Vec<Finding>,
    /// What could not be looked at.
    pub unchecked: Vec<Unchecked>,
    /// What is worth knowing and not wrong.
    pub notes: Vec<String>,
}

/// Something that is not as it must be.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// What kind of damage.
    pub kind: Kind,
    /// Where; `None` for the gateway.
    pub node: Option<u16>,
    /// Of what: a table, a transaction …
    pub object: String,
    /// In words.
    pub message: String,
    /// Some of the rows, if it is about rows.
    pub keys: Vec<String>,
}

/// Something that could not be looked at.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Unchecked {
    /// What.
    pub what: String,
    /// Why not.
    pub why: String,
}

/// Kinds of damage.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Copies of a replicated table are not equal.
    CopiesDiffer,
    /// Rows on a node that does not own their bucket.
    StrayRows,
    /// Rows with one key on two nodes.
    DuplicateKeys,
    /// Rows of a home table elsewhere.
    HomeRows,
    /// Entries of a unique index that holds over all nodes are not those that its rows have, or on another node.
    Entries,
    /// Nodes have different definitions of what they share.
    Definition,
    /// Nodes know different placements, or one that cannot be.
    Placement,
    /// A bucket map is not whole, or not the same everywhere.
    Map,
    /// The schema `tutti` is not whole.
    Schema,
    /// A sequence gives values where it must not.
    Sequence,
    /// A transaction stays prepared.
    Prepared,
    /// A decision's record cannot be right, or is left over.
    Decision,
    /// Tickets pile up.
    Tickets,
    /// A backend of a gateway that has ended.
    Backend,
    /// A gateway has in memory what is not so.
    Memory,
}

/// Gets reports of progress from time to time.
pub struct Progress<'a>(Option<Box<dyn Fn(String) + Send + Sync + 'a>>);

impl<'a> Progress<'a> {
    /// Where it is reported.
    pub fn to(told: impl Fn(String) + Send + Sync + 'a) -> Self {
        Self(Some(Box::new(told)))
    }

    /// Nowhere.
    pub fn silent() -> Self {
        Self(None)
    }

    pub(super) fn tell(&self, what: impl FnOnce() -> String) {
        if let Some(told) = &self.0 {
            told(what());
        }
    }
}

impl fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress(..)")
    }
}

impl Report {
    /// Nothing was found, and everything was looked at.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.unchecked.is_empty()
    }

    /// Which kinds of damage there are.
    pub fn kinds(&self) -> BTreeSet<Kind> {
        self.findings.iter().map(|finding| finding.kind).collect()
    }

    pub(super) fn find(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    pub(super) fn unchecked(&mut self, what: String, why: String) {
        self.unchecked.push(Unchecked { what, why });
    }
}

impl Finding {
    pub(super) fn new(kind: Kind, node: Option<NodeId>, object: String, message: String) -> Self {
        Self { kind, node: node.map(|node| node.0), object, message, keys: Vec::new() }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CopiesDiffer => "copies differ",
            Self::StrayRows => "rows on the wrong node",
            Self::DuplicateKeys => "duplicate keys",
            Self::HomeRows => "rows of a home table elsewhere",
            Self::Entries => "entries of a unique index",
            Self::Definition => "definitions differ",
            Self::Placement => "placements differ",
            Self::Map => "bucket map",
            Self::Schema => "schema tutti",
            Self::Sequence => "sequence",
            Self::Prepared => "prepared transaction",
            Self::Decision => "decision",
            Self::Tickets => "tickets",
            Self::Backend => "backend",
            Self::Memory => "the gateway's memory",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.object)?;
        if let Some(node) = self.node {
            write!(f, " on {}", NodeId(node))?;
        }
        write!(f, ": {}", self.message)?;
        self.keys.iter().try_for_each(|key| write!(f, "\n    {key}"))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        for Unchecked { what, why } in &self.unchecked {
            writeln!(f, "not checked: {what}: {why}")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        let found = match self.findings.len() {
            0 => "nothing found".to_owned(),
            count => format!("{count} findings"),
        };
        let unchecked = match self.unchecked.len() {
            0 => String::new(),
            count => format!(", {count} things not checked"),
        };
        write!(
            f,
            "cluster {}: {found}{unchecked}; {} tables, {} rows, {:.1} s",
            self.cluster, self.tables, self.rows, self.seconds
        )
    }
}
