//! Cycles that no isolation level allows, and the smallest of each kind.
//!
//! Owns: which cycles are looked for, in which order, and what they are called.
//! Never: adds an edge. Start reading at [`find`].
//!
//! Why a cycle **without two adjacent rw edges** is always an anomaly: only vertices with a snapshot
//! have rw edges going out, and a vertex with a snapshot that is entered by ww, wr or time has
//! commit(previous) < snap(itself). So along the cycle each edge that is not rw leads from a commit
//! to a later commit, or to a later snapshot if an rw edge follows; each rw edge leads from a
//! snapshot to a later commit. Round the cycle an instant would be before itself.
//! This holds whatever the levels of the others are, so writers at READ COMMITTED do not excuse a
//! reader at REPEATABLE READ; and it holds for each statement at READ COMMITTED.
//! Cycles with two adjacent rw edges are what snapshot isolation allows (A. Fekete et al., "Making
//! Snapshot Isolation Serializable", TODS 2005). They are anomalies among SERIALIZABLE transactions
//! alone; real time is left out there, because serializability does not speak of it.
//!
//! Strongly connected components (petgraph, because its Kosaraju does not recurse: histories are
//! deep) say whether there is a cycle at all. The shortest one is found by a breadth-first search of
//! our own, since it must not go through two rw edges in a row.

use std::collections::{BTreeMap, VecDeque};

use petgraph::algo::kosaraju_scc;
use petgraph::graph::DiGraph;

use super::anomaly::{Anomaly, Kind};
use super::graph::{Edge, EdgeKind, Graph};
use super::model::History;

/// Edges of a component from which a way back is sought. A run that is badly wrong has thousands,
/// and any of them proves it; without a limit a report would take minutes.
const CLOSINGS_TRIED: usize = 300;

/// Which cycles a search is for.
#[derive(Clone, Copy, Debug)]
struct Search {
    edges: &'static [EdgeKind],
    /// Every cycle found goes through an edge of one of these kinds.
    closed_by: &'static [EdgeKind],
    /// Whether two rw edges may be adjacent; if so, only SERIALIZABLE transactions take part.
    is_of_serializable: bool,
}

use EdgeKind::{ReadWrite, RealTime, WriteRead, WriteWrite};

/// From the cycles that prove most to those that need most. Searches of one group are made
/// only if none before them found anything: what they find would mostly follow from that.
const SEARCHES: &[&[Search]] = &[
    &[
        Search { edges: &[WriteWrite], closed_by: &[WriteWrite], is_of_serializable: false },
        Search {
            edges: &[WriteWrite, WriteRead],
            closed_by: &[WriteRead],
            is_of_serializable: false,
        },
        Search {
            edges: &[WriteWrite, WriteRead, ReadWrite],
            closed_by: &[ReadWrite],
            is_of_serializable: false,
        },
        Search {
            edges: &[WriteWrite, WriteRead, ReadWrite],
            closed_by: &[ReadWrite],
            is_of_serializable: true,
        },
    ],
    &[
        Search {
            edges: &[WriteWrite, WriteRead, RealTime],
            closed_by: &[WriteWrite, WriteRead],
            is_of_serializable: false,
        },
        Search {
            edges: &[WriteWrite, WriteRead, ReadWrite, RealTime],
            closed_by: &[ReadWrite],
            is_of_serializable: false,
        },
    ],
];

/// Finds the smallest cycle of each kind.
pub fn find(history: &History, graph: &Graph, anomalies: &mut Vec<Anomaly>) {
    for group in SEARCHES {
        let mut smallest: BTreeMap<Kind, Vec<Edge>> = BTreeMap::new();
        for search in *group {
            for cycle in search.run(graph) {
                let Some(kind) = kind_of(&cycle, search.is_of_serializable) else { continue };
                let known = smallest.entry(kind).or_insert_with(|| cycle.clone());
                if cycle.len() < known.len() {
                    *known = cycle;
                }
            }
        }
        let found_some = !smallest.is_empty();
        anomalies.extend(
            smallest.into_iter().map(|(kind, cycle)| anomaly_of(history, graph, kind, &cycle)),
        );
        if found_some {
            return;
        }
    }
}

fn anomaly_of(history: &History, graph: &Graph, kind: Kind, cycle: &[Edge]) -> Anomaly {
    let mut transactions: Vec<_> = cycle
        .iter()
        .map(|edge| history.transactions[graph.vertices[edge.from].transaction].id)
        .collect();
    transactions.sort_unstable();
    transactions.dedup();
    let mut keys: Vec<_> = cycle.iter().filter_map(|edge| Some(edge.row?.0)).collect();
    keys.sort_unstable();
    keys.dedup();
    let proof = cycle.iter().map(|edge| graph.sentence(history, edge)).collect();
    Anomaly { kind, proof, transactions, keys }
}

/// What a cycle is called; `None` if another search is for it.
fn kind_of(cycle: &[Edge], is_of_serializable: bool) -> Option<Kind> {
    let count = |kind| cycle.iter().filter(|edge| edge.kind == kind).count();
    let (rw, has_time) = (count(ReadWrite), count(RealTime) > 0);
    if is_of_serializable {
        let mut pairs = cycle.iter().zip(cycle.iter().cycle().skip(1));
        if !pairs.any(|(a, b)| a.kind == ReadWrite && b.kind == ReadWrite) {
            return None;
        }
        let by_predicate = cycle.iter().any(|edge| edge.kind == ReadWrite && edge.by_predicate);
        return Some(if by_predicate { Kind::PredicateWriteSkew } else { Kind::WriteSkew });
    }
    Some(match (rw, has_time) {
        (0, true) => Kind::BackInTime,
        (0, false) if count(WriteRead) == 0 => Kind::DirtyWrite,
        (0, false) => Kind::CircularInformationFlow,
        (1, true) => Kind::StaleRead,
        (1, false) => match cycle {
            [read, back] if read.row.map(|r| r.0) == back.row.map(|r| r.0) => match back.kind {
                WriteWrite => Kind::LostUpdate,
                WriteRead | ReadWrite | RealTime => Kind::NonRepeatableRead,
            },
            [_, back] if back.kind == WriteRead => Kind::FracturedRead,
            _ => Kind::ReadSkew,
        },
        (_, _) => Kind::LongFork,
    })
}

impl Search {
    /// The shortest cycle through each of the edges that are tried.
    fn run(self, graph: &Graph) -> Vec<Vec<Edge>> {
        let mut cycles = Vec::new();
        for component in self.components(graph) {
            let mut is_member = vec![false; graph.vertices.len()];
            component.iter().for_each(|vertex| is_member[*vertex] = true);
            let closings: Vec<Edge> = component
                .iter()
                .flat_map(|vertex| &graph.edges[*vertex])
                .filter(|edge| is_member[edge.to] && self.closed_by.contains(&edge.kind))
                .copied()
                .collect();
            let step = closings.len().div_ceil(CLOSINGS_TRIED).max(1);
            for closing in closings.iter().step_by(step) {
                cycles.extend(self.way_back(graph, &component, &is_member, closing));
            }
        }
        cycles
    }

    fn admits(self, graph: &Graph, vertex: usize) -> bool {
        !self.is_of_serializable || graph.vertices[vertex].is_serializable
    }

    /// Whether an edge may be taken by one who came by an rw edge or not.
    fn may_follow(self, came_by_rw: bool, kind: EdgeKind) -> bool {
        self.edges.contains(&kind) && (self.is_of_serializable || !came_by_rw || kind != ReadWrite)
    }

    /// Sets of vertices with cycles among them. A place in the graph that is searched is a
    /// vertex and whether one came there by an rw edge.
    fn components(self, graph: &Graph) -> Vec<Vec<usize>> {
        let mut places: DiGraph<(), ()> = DiGraph::new();
        let index: Vec<_> = (0..2 * graph.vertices.len()).map(|_| places.add_node(())).collect();
        for edge in graph.edges.iter().flatten() {
            if !self.admits(graph, edge.from) || !self.admits(graph, edge.to) {
                continue;
            }
            for came_by_rw in [false, true] {
                if self.may_follow(came_by_rw, edge.kind) {
                    let from = 2 * edge.from + usize::from(came_by_rw);
                    let to = 2 * edge.to + usize::from(edge.kind == ReadWrite);
                    places.add_edge(index[from], index[to], ());
                }
            }
        }
        let components = kosaraju_scc(&places).into_iter().filter(|places| places.len() > 1);
        let vertices = components.map(|places| {
            let mut vertices: Vec<usize> = places.iter().map(|place| place.index() / 2).collect();
            vertices.sort_unstable();
            vertices.dedup();
            vertices
        });
        vertices.collect()
    }

    /// The shortest cycle that begins with this edge.
    fn way_back(
        self,
        graph: &Graph,
        component: &[usize],
        is_member: &[bool],
        closing: &Edge,
    ) -> Option<Vec<Edge>> {
        let place = |vertex: usize, came_by_rw: bool| 2 * vertex + usize::from(came_by_rw);
        let mut came_by: Vec<Option<Edge>> = vec![None; 2 * graph.vertices.len()];
        let mut came_from: Vec<usize> = vec![usize::MAX; 2 * graph.vertices.len()];
        let start = (closing.to, closing.kind == ReadWrite);
        let mut queue = VecDeque::from([start]);
        came_by[place(start.0, start.1)] = Some(*closing);
        while let Some((vertex, came_by_rw)) = queue.pop_front() {
            if vertex == closing.from && self.may_follow(came_by_rw, closing.kind) {
                let mut cycle = Vec::new();
                let mut here = place(vertex, came_by_rw);
                while let Some(edge) = came_by[here] {
                    cycle.push(edge);
                    if here == place(start.0, start.1) {
                        break;
                    }
                    here = came_from[here];
                }
                cycle.reverse();
                return Some(cycle);
            }
            let with_time = self.edges.contains(&RealTime);
            let later = component.iter().filter(|to| {
                with_time && graph.vertices[vertex].ended_before(&graph.vertices[**to])
            });
            let in_time = later.map(|to| graph.real_time_edge(vertex, *to));
            let others = graph.edges[vertex].iter().filter(|e| e.kind != RealTime).copied();
            for edge in others.chain(in_time) {
                let to = (edge.to, edge.kind == ReadWrite);
                let is_new = came_by[place(to.0, to.1)].is_none();
                if is_new && is_member[edge.to] && self.may_follow(came_by_rw, edge.kind) {
                    came_by[place(to.0, to.1)] = Some(edge);
                    came_from[place(to.0, to.1)] = place(vertex, came_by_rw);
                    queue.push_back(to);
                }
            }
        }
        None
    }
}
