//! Who must come before whom: vertices with a snapshot and a commit, edges that order them.
//!
//! Owns: the graph and the reasons of its edges. Never: searches it (`cycles`).
//! Start reading at [`Vertex`], then [`EdgeKind`].
//!
//! Every vertex V has an instant at which it reads, snap(V), and one at which its writes appear,
//! commit(V), with snap(V) <= commit(V). An edge says something of these instants, and a cycle is an
//! anomaly when what its edges say cannot all be true; the argument is at [`cycles`](super::cycles).

use std::collections::HashMap;

use super::model::{History, INITIAL, Instant, Key, Level, Value};
use super::notation::elements_text;
use super::reads::ExternalRead;
use super::versions::Versions;

/// A transaction; or a statement of a READ COMMITTED transaction as a reader with a snapshot of its
/// own, which writes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Vertex {
    /// Index of the transaction.
    pub transaction: usize,
    /// Index of the statement, if it is one.
    pub statement: Option<usize>,
    begin: Instant,
    /// When a client knew that it had happened; `None`: none was told.
    end: Option<Instant>,
    /// Whether it is a SERIALIZABLE transaction that has committed.
    pub is_serializable: bool,
}

impl Vertex {
    /// Whether it was known to have ended before the other began.
    pub fn ended_before(&self, other: &Self) -> bool {
        self.end.is_some_and(|end| end < other.begin)
    }
}

/// What an edge from V to W says.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum EdgeKind {
    /// W replaced a version of V: commit(V) < commit(W), and where W has one snapshot
    /// commit(V) < snap(W).
    WriteWrite,
    /// W read a version of V: commit(V) < commit(W), and where W has one snapshot
    /// commit(V) < snap(W).
    WriteRead,
    /// V, which has one snapshot, read what W replaced: snap(V) < commit(W).
    ReadWrite,
    /// V ended before W began: commit(V) < snap(W).
    RealTime,
}

impl EdgeKind {
    /// As the literature has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteWrite => "ww",
            Self::WriteRead => "wr",
            Self::ReadWrite => "rw",
            Self::RealTime => "time",
        }
    }
}

/// An edge with its reason. Of real time there is no row.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// Index of the vertex that comes first.
    pub from: usize,
    /// Index of the vertex that comes after it.
    pub to: usize,
    /// What it says.
    pub kind: EdgeKind,
    /// The row, and there the version of (or read by) `from` and the one of (or read by) `to`.
    pub row: Option<(Key, Value, Value)>,
    /// Whether the read was of a predicate.
    pub by_predicate: bool,
}

/// All vertices and edges of a history.
#[derive(Debug)]
pub struct Graph {
    /// Readers and writers.
    pub vertices: Vec<Vertex>,
    /// Edges by the vertex that they leave. Of real time only as many as reach everything.
    pub edges: Vec<Vec<Edge>>,
}

impl Graph {
    /// Makes the graph of a history.
    pub fn new(history: &History, versions: &Versions, reads: &[ExternalRead<'_>]) -> Self {
        let mut graph = Self { vertices: Vec::new(), edges: Vec::new() };
        let mut vertex_of: HashMap<(usize, Option<usize>), usize> = HashMap::new();
        for (index, transaction) in history.transactions.iter().enumerate() {
            let has_committed = versions.has_committed(index);
            // One that aborted has shown its client a snapshot all the same.
            if has_committed || transaction.level.has_one_snapshot() {
                vertex_of.insert((index, None), graph.vertices.len());
                graph.vertices.push(Vertex {
                    transaction: index,
                    statement: None,
                    begin: transaction.begin,
                    end: (transaction.outcome != super::model::Outcome::Unknown)
                        .then_some(transaction.end),
                    is_serializable: has_committed && transaction.level == Level::Serializable,
                });
            }
        }
        for read in reads.iter().filter(|read| read.is_of_snapshot) {
            let (transaction, Some(statement)) = read.unit(history) else { continue };
            vertex_of.entry((transaction, Some(statement))).or_insert_with(|| {
                let Some(s) = history.transactions[transaction].statements.get(statement) else {
                    unreachable!("reads name statements that exist")
                };
                graph.vertices.push(Vertex {
                    transaction,
                    statement: Some(statement),
                    begin: s.sent,
                    end: Some(s.answered),
                    is_serializable: false,
                });
                graph.vertices.len() - 1
            });
        }
        graph.edges = vec![Vec::new(); graph.vertices.len()];
        graph.add_versions(versions, &vertex_of);
        graph.add_reads(history, versions, reads, &vertex_of);
        graph.add_real_time();
        graph
    }

    fn add(&mut self, edge: Edge) {
        let same = |e: &Edge| (e.to, e.kind) == (edge.to, edge.kind);
        if edge.from != edge.to && !self.edges[edge.from].iter().any(same) {
            self.edges[edge.from].push(edge);
        }
    }

    fn add_versions(
        &mut self,
        versions: &Versions,
        vertex_of: &HashMap<(usize, Option<usize>), usize>,
    ) {
        for ((key, value), next) in versions.orders() {
            let from = versions.committed_writer((key, value));
            let to = versions.committed_writer((key, next));
            if let (Some(from), Some(to)) = (from, to) {
                self.add(Edge {
                    from: vertex_of[&(from, None)],
                    to: vertex_of[&(to, None)],
                    kind: EdgeKind::WriteWrite,
                    row: Some((key, value, next)),
                    by_predicate: false,
                });
            }
        }
    }

    fn add_reads(
        &mut self,
        history: &History,
        versions: &Versions,
        reads: &[ExternalRead<'_>],
        vertex_of: &HashMap<(usize, Option<usize>), usize>,
    ) {
        for read in reads {
            let (key, version) = (read.key, read.version);
            let as_snapshot = if read.is_of_snapshot { Some(read.unit(history)) } else { None };
            let as_snapshot = as_snapshot.map(|unit| vertex_of[&unit]);
            let as_whole = vertex_of.get(&(read.reader, None)).copied();
            if let Some(writer) = versions.committed_writer((key, version)) {
                let from = vertex_of[&(writer, None)];
                let readers = as_snapshot.into_iter().chain(as_whole);
                for to in readers.filter(|_| writer != read.reader) {
                    let (kind, row) = (EdgeKind::WriteRead, Some((key, version, version)));
                    self.add(Edge { from, to, kind, row, by_predicate: read.by_predicate });
                }
            }
            let Some(from) = as_snapshot else { continue };
            for next in versions.successors((key, version)) {
                let writer = versions.committed_writer((key, *next));
                let Some(writer) = writer.filter(|writer| *writer != read.reader) else { continue };
                self.add(Edge {
                    from,
                    to: vertex_of[&(writer, None)],
                    kind: EdgeKind::ReadWrite,
                    row: Some((key, version, *next)),
                    by_predicate: read.by_predicate,
                });
            }
        }
    }

    /// Adds edges of real time from those vertices that no other vertex follows in time: the rest
    /// follows from these.
    fn add_real_time(&mut self) {
        let mut ends: Vec<(Instant, usize)> = self
            .vertices
            .iter()
            .enumerate()
            .filter_map(|(index, vertex)| Some((vertex.end?, index)))
            .collect();
        ends.sort_unstable();
        let mut latest_begin = 0;
        let mut latest_begins = Vec::with_capacity(ends.len());
        for (_, index) in &ends {
            latest_begin = latest_begin.max(self.vertices[*index].begin);
            latest_begins.push(latest_begin);
        }
        for to in 0..self.vertices.len() {
            let ended = ends.partition_point(|(end, _)| *end < self.vertices[to].begin);
            let Some(latest_begin) = ended.checked_sub(1).map(|last| latest_begins[last]) else {
                continue;
            };
            let first = ends.partition_point(|(end, _)| *end < latest_begin);
            for (_, from) in &ends[first..ended] {
                self.add(self.real_time_edge(*from, to));
            }
        }
    }

    /// The edge between two of which one ended before the other began.
    pub fn real_time_edge(&self, from: usize, to: usize) -> Edge {
        Edge { from, to, kind: EdgeKind::RealTime, row: None, by_predicate: false }
    }

    /// The vertex as people call it.
    pub fn name(&self, history: &History, vertex: usize) -> String {
        let Vertex { transaction, statement, .. } = self.vertices[vertex];
        let id = history.transactions[transaction].id;
        statement.map_or(id.to_string(), |s| format!("{id}'s statement {}", s + 1))
    }

    /// The edge as a sentence, with the reason.
    pub fn sentence(&self, history: &History, edge: &Edge) -> String {
        let (from, to) = (self.name(history, edge.from), self.name(history, edge.to));
        let why = match edge.row {
            None => {
                let end = self.vertices[edge.from].end.unwrap_or_default();
                let begin = self.vertices[edge.to].begin;
                format!("{from} had ended (at {end}) before {to} began (at {begin})")
            }
            Some((key, before, after)) => {
                let before = match key {
                    Key::List(_) if before == INITIAL => elements_text(&[]),
                    Key::List(_) => format!("[… {before}]"),
                    Key::Register(_) => before.to_string(),
                };
                match edge.kind {
                    EdgeKind::WriteWrite => {
                        format!("{to} replaced {from}'s {key} = {before} by {after}")
                    }
                    EdgeKind::WriteRead => format!("{to} read {from}'s {key} = {before}"),
                    EdgeKind::ReadWrite | EdgeKind::RealTime => {
                        format!("{from} read {key} = {before}, which {to} replaced by {after}")
                    }
                }
            }
        };
        format!("{from} -{}-> {to}: {why}", edge.kind.name())
    }
}
