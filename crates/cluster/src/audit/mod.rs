//! The auditor: whether everything that must hold between the nodes does, checked on the nodes.
//!
//! Owns: what is checked, in which order, and the report.
//! Never: changes anything of clients, blocks writers for longer than a few round trips, runs
//! user-defined code, or trusts the gateway.
//! Start reading at [`check`], then [`moment`]. `rows`: where rows are; `definitions`: what nodes have in
//! common; `left`: what gateways leave behind; `memory`: what a gateway has in memory; `background`:
//! periodic audits.

pub mod background;
mod definitions;
mod left;
pub mod memory;
mod moment;
mod rows;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use tutti_settings::{Address, Config};
use tutti_sql::catalog::NodeId;

use self::moment::Moment;
use crate::Boxed;
use crate::cluster::Cluster;
use crate::error::GatewayError;

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
    /// What could not be checked.
    pub unchecked: Vec<Unchecked>,
    /// What is worth knowing but not wrong.
    pub notes: Vec<String>,
}

/// Something that is not as it must be.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// What kind of damage.
    pub kind: Kind,
    /// On which node; `None` for the gateway.
    pub node: Option<u16>,
    /// What it is about: a table, a transaction …
    pub object: String,
    /// In words.
    pub message: String,
    /// Some of the rows, if it is about rows.
    pub keys: Vec<String>,
}

/// Something that could not be checked.
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
    /// Nodes have different definitions of what they share.
    Definition,
    /// Nodes know different placements, or an impossible one.
    Placement,
    /// A bucket map is incomplete, or not the same everywhere.
    Map,
    /// The schema `tutti` is not intact.
    Schema,
    /// A sequence yields values where it must not.
    Sequence,
    /// A transaction has stayed prepared.
    Prepared,
    /// A decision's record cannot be right, or is left over.
    Decision,
    /// Tickets pile up.
    Tickets,
    /// A backend of a gateway that is gone.
    Backend,
    /// A gateway's memory differs from the nodes.
    Memory,
}

/// Where the running gateway is asked for what it has in memory.
#[derive(Clone, Debug)]
pub enum Gateway {
    /// It is not asked.
    Unasked,
    /// It listens here.
    At(Address),
}

/// Reports from time to time what is being done.
pub struct Progress<'a>(Option<Box<dyn Fn(String) + Send + Sync + 'a>>);

impl<'a> Progress<'a> {
    /// Reports by calling `told`.
    pub fn to(told: impl Fn(String) + Send + Sync + 'a) -> Self {
        Self(Some(Box::new(told)))
    }

    /// Reports nothing.
    pub fn silent() -> Self {
        Self(None)
    }

    fn tell(&self, what: impl FnOnce() -> String) {
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

/// Checks everything, with the gateway or without.
///
/// Errors: no node answers; no moment could be taken. A node that does not answer is part
/// of the report.
///
/// A box, so that not every calling program compiles it again.
pub fn check<'a>(
    config: &'a Config,
    gateway: &'a Gateway,
    progress: &'a Progress<'a>,
) -> Boxed<'a, Result<Report, GatewayError>> {
    let asked = match gateway {
        Gateway::Unasked => Memory::Unasked,
        Gateway::At(place) => Memory::At(place),
    };
    Box::pin(look(config, asked, progress))
}

/// How to reach what the gateway has in memory.
enum Memory<'a> {
    Unasked,
    At(&'a Address),
    Own(&'a Arc<Cluster>),
}

async fn look(
    config: &Config,
    memory: Memory<'_>,
    progress: &Progress<'_>,
) -> Result<Report, GatewayError> {
    let begun = Instant::now();
    let mut report = Report { cluster: config.cluster.clone(), ..Report::default() };
    let mut moment = Moment::take(config).await?;
    for (gid, written) in &moment.unapplied {
        report.notes.push(format!(
            "transaction {gid} is decided and not applied everywhere; it has written {} tables",
            written.len()
        ));
    }
    rows::check(config, &mut moment, &mut report, progress).await?;
    progress.tell(|| "definitions".to_owned());
    definitions::check(&mut moment, &mut report).await?;
    left::check(config, &mut moment, &mut report).await?;
    match memory {
        Memory::Own(cluster) => memory::check_own(cluster, &mut report).await,
        Memory::At(place) if report.gateway == Some(true) => {
            let id = moment.cluster_id().await;
            memory::ask(config, place, id.as_deref(), &mut report).await;
        }
        Memory::Unasked if report.gateway == Some(true) => report.unchecked(
            "the catalog in the gateway's memory".to_owned(),
            "it was not asked".to_owned(),
        ),
        // No gateway has it in memory.
        Memory::At(_) | Memory::Unasked => (),
    }
    for (node, why) in &moment.away {
        report.unchecked(format!("node {node}"), why.clone());
    }
    moment.close();
    report.findings.sort_by(|a, b| (a.kind, &a.object, a.node).cmp(&(b.kind, &b.object, b.node)));
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}

impl Report {
    /// Nothing was found, and everything was checked.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.unchecked.is_empty()
    }

    /// Which kinds of damage there are.
    pub fn kinds(&self) -> BTreeSet<Kind> {
        self.findings.iter().map(|finding| finding.kind).collect()
    }

    fn find(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    fn unchecked(&mut self, what: String, why: String) {
        self.unchecked.push(Unchecked { what, why });
    }
}

impl Finding {
    fn new(kind: Kind, node: Option<NodeId>, object: String, message: String) -> Self {
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
