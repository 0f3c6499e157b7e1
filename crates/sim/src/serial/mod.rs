//! SERIALIZABLE over two nodes in small worlds: every order of all steps, and whether each can be explained
//! by one transaction after another.
//!
//! Owns: the exploration, the judgement, and the bugs that must be found.
//! Never: samples. What is not visited is not in the world: two nodes, a few transactions of a few
//! statements, as many kills, reliefs and errors as it says.
//! Start reading at [`explore`]; the protocol is `gateway.rs`, one node `ssi.rs`, a world's text
//! `world.rs`. Run one: `cargo sim --serial "rx1 wy2 | ry2 wx1"`.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

pub mod gateway;
pub mod ssi;
pub mod world;

use gateway::State;
use ssi::{Row, Sx};
use world::World;

/// A bug to plant in the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bug {
    /// No tickets are inserted.
    TicketIsMissing,
    /// There are no sentinels.
    SentinelIsMissing,
    /// Decided transactions become visible in any order, node by node.
    PlacesAreSkipped,
    /// Nodes that were only read do not vote; what they say at COMMIT is ignored.
    ReaderIsIgnored,
    /// A ticket counts before it is answered, and a transaction that failed to insert it does not vote.
    TicketCountsUnanswered,
    /// Whether sentinels were open is known from memory.
    SentinelIsRemembered,
    /// A sentinel ends before its relief has searched the tickets.
    ReliefComesLate,
    /// ROLLBACK TO takes tickets away for good.
    TicketIsNotRenewed,
    /// A statement on one node does not wait for what is in application there.
    ReaderDoesNotWait,
    /// A node is read as soon as it is up again, while something is prepared there.
    RestartedNodeIsRead,
    /// Votes of several transactions are mixed. Harmless: it costs needless refusals only.
    VotesOutOfTurn,
}

impl Bug {
    /// All that break something, each with a world in which it does.
    pub const ALL: &[(Self, &str)] = &[
        (Self::TicketIsMissing, "rx1 wy2 | ry2 wx1"),
        (Self::SentinelIsMissing, "rx1 wy2 | ry2 wx1"),
        (Self::PlacesAreSkipped, "wx1 wy2 | wu1 wv2 | auto rx1u1 | auto rv2y2"),
        (Self::ReaderIsIgnored, "rx1 wy2 | ry2 wx1"),
        (Self::TicketCountsUnanswered, "rx1 sp ry2 rb wy2 | ry2 wx1 ; error"),
        (Self::SentinelIsRemembered, "rx1 wy2 | ry2 wx1 ; kill"),
        (Self::ReliefComesLate, "rx1 wy2 | ry2 wx1 ; relief"),
        (Self::TicketIsNotRenewed, "rx1 sp ry2 rb wy2 | ry2 wx1 ; relief"),
        (Self::ReaderDoesNotWait, "wx1 wy2 | auto rx1 | auto ry2"),
        (Self::RestartedNodeIsRead, "rx1 wy2 | auto wx1 | auto ry2 ; restart"),
    ];

    /// The bug of this name.
    pub fn named(name: &str) -> Option<Self> {
        let all = Self::ALL.iter().map(|(bug, _)| *bug).chain([Self::VotesOutOfTurn]);
        all.into_iter().find(|bug| format!("{bug:?}") == name)
    }
}

/// What was found in a world.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Different states.
    pub states: u64,
    /// Different ends, and in how many of them all transactions have committed.
    pub ends: u64,
    /// See `ends`.
    pub all_committed: u64,
    /// The exploration was given up at the limit.
    pub is_cut: bool,
    /// What happened until a client saw what cannot be, and the cycle.
    pub anomaly: Option<(Vec<String>, String)>,
}

/// Visits every state of the world, up to `limit`, or to the first anomaly.
///
/// States that were visited are remembered by 64 bits of them.
pub fn explore(world: &World, bug: Option<Bug>, limit: u64) -> Found {
    let mut found = Found::default();
    let mut met = HashSet::new();
    let mut path: Vec<(String, std::vec::IntoIter<(gateway::Action, State)>)> = Vec::new();
    let first = State::new(world, bug);
    met.insert(fingerprint(&first));
    path.push((String::new(), first.next(world, bug).into_iter()));
    while let Some((_, untried)) = path.last_mut() {
        let Some((action, state)) = untried.next() else {
            path.pop();
            continue;
        };
        if !met.insert(fingerprint(&state)) {
            continue;
        }
        found.states += 1;
        if limit < found.states {
            found.is_cut = true;
            return found;
        }
        if state.is_over() {
            found.ends += 1;
            let committed = state.committed().count();
            found.all_committed += u64::from(committed == world.scripts.len());
            if let Some(circle) = circle(&state, world) {
                let mut trace: Vec<_> = path.into_iter().skip(1).map(|(line, _)| line).collect();
                trace.push(told(action, &state));
                found.anomaly = Some((trace, circle));
                return found;
            }
            continue;
        }
        let next = state.next(world, bug).into_iter();
        path.push((told(action, &state), next));
    }
    found
}

/// Every world of three transactions, each of one or two statements on the rows x of node 1 and y of
/// node 2, in blocks, and of those with one statement also outside of one, or declared READ ONLY; at least
/// two are over both nodes.
pub fn worlds() -> impl Iterator<Item = World> {
    const WORDS: [&str; 4] = ["rx1", "wx1", "ry2", "wy2"];
    let two = WORDS.iter().flat_map(|first| {
        let second = WORDS.iter().filter(move |second| *second != first);
        second.map(move |second| format!("{first} {second}"))
    });
    let one = WORDS.iter().flat_map(|word| [(*word).to_owned(), format!("auto {word}")]);
    let read_only = ["ro rx1 ry2", "ro ry2 rx1", "auto ro rx1", "auto ro ry2"].map(str::to_owned);
    let scripts: Vec<String> = two.chain(one).chain(read_only).collect();
    let is_global = |script: &String| script.contains('1') && script.contains('2');
    let count = scripts.len();
    let triples = (0..count)
        .flat_map(move |a| (a..count).flat_map(move |b| (b..count).map(move |c| [a, b, c])));
    triples.filter_map(move |triple| {
        let chosen = triple.map(|index| &scripts[index]);
        let globals = chosen.iter().filter(|script| is_global(script)).count();
        let text = chosen.map(String::as_str).join(" | ");
        (2 <= globals).then(|| text.parse().expect("its own grammar"))
    })
}

fn told(action: gateway::Action, state: &State) -> String {
    use gateway::Action::{Apply, GiveUp, Step, TicketFails, Vote};
    match action {
        Step(client)
        | Vote(client, _)
        | Apply(client, _)
        | GiveUp(client)
        | TicketFails(client) => {
            format!("{action}: {}", state.phase_of(client))
        }
        _ => action.to_string(),
    }
}

fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// A cycle of dependencies among those that have committed, if there is one: then no order of them
/// explains what they have read and written. One that began after another's answer comes after it.
fn circle(state: &State, world: &World) -> Option<String> {
    let committed: Vec<_> = state.committed().map(|(sx, _, _)| sx).collect();
    let mut edges: Vec<(Sx, Sx, String)> = Vec::new();
    for (sx, reads, after) in state.committed() {
        edges.extend(after.iter().map(|before| (before, sx, "answered before".to_owned())));
        for (node, row, seen) in reads {
            let versions = state.nodes()[usize::from(*node)].versions(*row);
            let next = match seen {
                Some(writer) => versions.iter().position(|version| version == writer),
                None => None,
            };
            let next = next.map_or(0, |index| index + 1);
            edges.extend(seen.map(|writer| (writer, sx, format!("wr, node {}", node + 1))));
            let later = versions.get(next).filter(|later| **later != sx);
            edges.extend(later.map(|later| (sx, *later, format!("rw, node {}", node + 1))));
        }
    }
    for (index, node) in state.nodes().iter().enumerate() {
        for row in 0..world.rows(index) {
            for pair in node.versions(Row(row)).windows(2) {
                edges.push((pair[0], pair[1], format!("ww, node {}", index + 1)));
            }
        }
    }
    committed.iter().find_map(|start| way_back(*start, *start, &edges, &mut Vec::new()))
}

fn way_back(start: Sx, at: Sx, edges: &[(Sx, Sx, String)], behind: &mut Vec<Sx>) -> Option<String> {
    behind.push(at);
    for (from, to, why) in edges.iter().filter(|(from, _, _)| *from == at) {
        if *to == start {
            return Some(format!("T{} -{why}-> T{}", from.0, to.0));
        }
        if !behind.contains(to)
            && let Some(rest) = way_back(start, *to, edges, behind)
        {
            return Some(format!("T{} -{why}-> {}", from.0, rest));
        }
    }
    None
}
