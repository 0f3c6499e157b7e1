//! What must hold, each as a function named for the property.
//!
//! Owns: the properties. Never: changes anything but the list of what was found broken.
//! Start reading at [`observe`] (whenever a session sees something), then [`after_quiet`].

use std::collections::{BTreeMap, BTreeSet};

use tutti_txn::{Gid, NodeId};

use crate::history::{History, Observation, Register, TABLES, Told, Violation};
use crate::node::Node;
use crate::node::statement::{Key, TxnNo, catalog_of, is_table};

/// A session sees something: it is judged, and from now on known.
pub fn observe(history: &mut History, seen: &Observation) {
    judge(history, seen);
    history.note_seen(seen);
}

/// The client is told how its transaction ended.
pub fn tell(history: &mut History, txn: TxnNo, told: Told) {
    if !history.note_told(txn, told) {
        told_once(history, txn);
    }
}

/// What holds of everything that is seen with one snapshot.
fn judge(history: &mut History, seen: &Observation) {
    let shown: BTreeSet<TxnNo> = seen.rows.values().flatten().copied().collect();
    let others = || shown.iter().copied().filter(|txn| Some(*txn) != seen.own);
    let broken = others()
        .find_map(|txn| atomic_visibility(history, seen, txn))
        .or_else(|| {
            let known = history.known_at(seen.mark).iter().copied();
            known
                .filter(|txn| Some(*txn) != seen.own)
                .find_map(|t| snapshot_monotonic(history, seen, t))
        })
        .or_else(|| others().find_map(|txn| causality(history, seen, txn)));
    if let Some(Violation { property, found, txns }) = broken {
        history.broken(property, txns, found);
    }
}

fn missing(history: &History, seen: &Observation, txn: TxnNo) -> Option<Register> {
    let writes = &history.txns.get(&txn)?.writes;
    writes.iter().find(|register| seen.misses(register, txn)).copied()
}

/// A snapshot that shows a transaction anywhere shows it wherever it looks.
fn atomic_visibility(history: &History, seen: &Observation, txn: TxnNo) -> Option<Violation> {
    let (node, key) = missing(history, seen, txn)?;
    let found = format!("{} shows T{txn} in part: not in register {key} of {node}", seen.reader);
    Some(Violation { property: "atomic_visibility", found, txns: vec![txn] })
}

/// What any client has seen or was told to be committed, no later request misses.
fn snapshot_monotonic(history: &History, seen: &Observation, txn: TxnNo) -> Option<Violation> {
    let (node, key) = missing(history, seen, txn)?;
    let found = format!(
        "{} misses T{txn} in register {key} of {node}, which was known when it asked",
        seen.reader
    );
    Some(Violation { property: "snapshot_monotonic", found, txns: vec![txn] })
}

/// A snapshot that shows a transaction shows also what that one's client had seen before.
fn causality(history: &History, seen: &Observation, effect: TxnNo) -> Option<Violation> {
    let depends = &history.txns.get(&effect)?.depends;
    depends.iter().find_map(|cause| {
        let (node, key) = missing(history, seen, *cause)?;
        let found = format!(
            "{} shows T{effect} but not its cause T{cause} in register {key} of {node}",
            seen.reader
        );
        Some(Violation { property: "causality", found, txns: vec![*cause, effect] })
    })
}

/// No part commits before the record is durable. Called when one has.
pub fn decision_before_any_commit_prepared(history: &mut History, gid: &Gid) {
    let found = format!("a part of {gid} became visible without a durable decision");
    let txns = TxnNo::try_from(gid.number).into_iter().collect();
    history.broken("decision_before_any_commit_prepared", txns, found);
}

/// Where a later gateway has fenced a node, no statement of an earlier one's clients runs any more. Called
/// when something was. The run goes on, for clients see what that leads to.
pub fn nobody_is_served_after_the_fence(history: &mut History, node: NodeId, incarnation: u64) {
    let found = format!("{node} served a client of gateway {incarnation} after it was fenced");
    history.note_broken("nobody_is_served_after_the_fence", Vec::new(), found);
}

/// A client is told once. Called when one is told again.
fn told_once(history: &mut History, txn: TxnNo) {
    history.broken("told_once", vec![txn], format!("the client of T{txn} was told twice"));
}

/// A visitor that waits for a room is overtaken by at most one group of later visitors of the other room:
/// those that enter with the ones that were there before. Called when it was more.
pub fn every_waiter_enters(history: &mut History, visit: u64) {
    let found = format!("visit {visit} was overtaken twice by later visitors of the other room");
    history.broken("every_waiter_enters", Vec::new(), found);
}

/// What holds when faults have stopped and no client asks for anything any more.
pub fn after_quiet<'a>(
    history: &mut History,
    nodes: impl Iterator<Item = (NodeId, &'a Node)>,
    keys: &BTreeSet<Key>,
    place_of: impl Fn(Key, &[TxnNo]) -> NodeId,
    clients_answered: bool,
    gateway_is_quiet: Result<(), String>,
) {
    let mut content: BTreeMap<Register, Vec<TxnNo>> = BTreeMap::new();
    let mut unfinished = Vec::new();
    let nodes: BTreeMap<_, _> = nodes.collect();
    for (node, model) in &nodes {
        let (node, rows) = (*node, model.read_all(keys));
        content.extend(rows.into_iter().map(|(key, txns)| ((node, key), txns)));
        unfinished.extend(model.unfinished().into_iter().map(|what| format!("{node}: {what}")));
    }
    rows_are_where_the_catalog_says(history, &mut content, &place_of);
    no_orphan_after_quiet(history, &unfinished);
    atomicity(history, &content);
    told_the_truth(history, &content);
    votes_in_one_order(history);
    if !clients_answered {
        let found = "a client still waits for its answer".to_owned();
        history.broken("everybody_is_answered", Vec::new(), found);
    }
    if let Err(found) = gateway_is_quiet {
        history.broken("everybody_is_answered", Vec::new(), found);
    }
}

/// A table has rows only on the node where node 1's catalog has it. There they are its content from now on.
fn rows_are_where_the_catalog_says(
    history: &mut History,
    content: &mut BTreeMap<Register, Vec<TxnNo>>,
    place_of: &impl Fn(Key, &[TxnNo]) -> NodeId,
) {
    let of_tables: Vec<_> = content.keys().copied().filter(|(_, key)| is_table(*key)).collect();
    for (node, table) in of_tables {
        let moves = content.get(&(NodeId(1), catalog_of(table))).map_or(&[][..], Vec::as_slice);
        let place = place_of(table, moves);
        let Some(rows) = content.remove(&(node, table)) else { continue };
        if node == place {
            content.insert((TABLES, table), rows);
        } else if !rows.is_empty() {
            let found = format!("{node} has {rows:?} of table {table}, which is on {place}");
            history.broken("rows_are_where_the_catalog_says", rows, found);
        }
    }
}

/// No part is left prepared or open, holding locks, and no transaction waits for one.
fn no_orphan_after_quiet(history: &mut History, unfinished: &[String]) {
    if !unfinished.is_empty() {
        history.broken("no_orphan_after_quiet", Vec::new(), unfinished.join("; "));
    }
}

fn places(
    txn: TxnNo,
    writes: &BTreeSet<Register>,
    content: &BTreeMap<Register, Vec<TxnNo>>,
) -> usize {
    let shows =
        |register: &&Register| content.get(register).is_some_and(|txns| txns.contains(&txn));
    writes.iter().filter(shows).count()
}

/// Every transaction is everywhere or nowhere, and once.
fn atomicity(history: &mut History, content: &BTreeMap<Register, Vec<TxnNo>>) {
    let mut found = Vec::new();
    for (txn, known) in &history.txns {
        let places = places(*txn, &known.writes, content);
        if places != 0 && places != known.writes.len() {
            found.push((*txn, format!("T{txn} is in {places} of {} places", known.writes.len())));
        }
    }
    for (register, txns) in content {
        for (index, txn) in txns.iter().enumerate() {
            if txns[..index].contains(txn) {
                found.push((*txn, format!("T{txn} is in {register:?} twice")));
            }
        }
    }
    for (txn, found) in found {
        history.broken("atomicity", vec![txn], found);
    }
}

/// `Committed` told: it is there. `Aborted` told: it is not.
fn told_the_truth(history: &mut History, content: &BTreeMap<Register, Vec<TxnNo>>) {
    let mut lies = Vec::new();
    for (txn, known) in &history.txns {
        let places = places(*txn, &known.writes, content);
        match known.told {
            Some(Told::Committed) if places != known.writes.len() => lies.push((*txn, "committed")),
            Some(Told::Aborted) if places != 0 => lies.push((*txn, "aborted")),
            Some(Told::Committed | Told::Aborted | Told::Unknown) | None => (),
        }
    }
    for (txn, told) in lies {
        let found = format!("the client of T{txn} was told that it {told}, which is not true");
        history.broken("told_the_truth", vec![txn], found);
    }
}

/// Transactions that take turns have voted in one order on all nodes that they share.
fn votes_in_one_order(history: &mut History) {
    let mut orders: BTreeMap<(TxnNo, TxnNo), NodeId> = BTreeMap::new();
    let counts = |txn: &TxnNo| {
        history
            .txns
            .get(txn)
            .is_some_and(|known| known.takes_turns && known.told == Some(Told::Committed))
    };
    let mut crossed = None;
    for (node, votes) in &history.votes {
        let votes: Vec<_> = votes.iter().copied().filter(counts).collect();
        for (index, later) in votes.iter().enumerate() {
            for earlier in &votes[..index] {
                if let Some(other) = orders.get(&(*later, *earlier)) {
                    crossed = Some((*earlier, *later, *node, *other));
                }
                orders.insert((*earlier, *later), *node);
            }
        }
    }
    if let Some((one, two, here, there)) = crossed {
        let found = format!("T{one} voted before T{two} on {here} and after it on {there}");
        history.broken("votes_in_one_order", vec![one, two], found);
    }
}
