//! What clients asked for, what they were told and what they saw.
//!
//! Owns: the truth by which the invariants judge, and what they have found broken.
//! Never: judges itself.
//! Start reading at [`History::note_seen`].

use std::collections::{BTreeMap, BTreeSet};

use tutti_txn::{Gid, NodeId};

use crate::node::statement::{Key, Rows, TxnNo, is_table};

/// A register of the cluster; of a table, with [`TABLES`] instead of the node that it is on.
pub type Register = (NodeId, Key);
/// Stands for whichever node a table is on.
pub const TABLES: NodeId = NodeId(0);
/// A client.
pub type SessionId = usize;

/// What a client was told about a transaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Told {
    /// COMMIT.
    Committed,
    /// An error that says: nothing remains.
    Aborted,
    /// 08007, or the connection to the gateway broke.
    Unknown,
}

/// A transaction that writes.
#[derive(Debug)]
pub struct Txn {
    /// The registers that it appends to, if it commits.
    pub writes: BTreeSet<Register>,
    /// What its session had seen when it asked for the commit, and what that depends on.
    pub depends: BTreeSet<TxnNo>,
    /// What its client was told.
    pub told: Option<Told>,
    /// Whether it takes turns on its nodes.
    pub takes_turns: bool,
    session: SessionId,
}

/// What a session saw with one snapshot.
#[derive(Debug)]
pub struct Observation {
    /// Who.
    pub session: SessionId,
    /// How many transactions had been seen or acknowledged anywhere when this was asked for.
    pub mark: usize,
    /// The reader's own transaction, whose writes only it sees.
    pub own: Option<TxnNo>,
    /// What was seen.
    pub rows: BTreeMap<Register, Vec<TxnNo>>,
    /// The kind of reader, for the report of a failure.
    pub reader: &'static str,
}

impl Observation {
    /// Adds what was read on a node.
    pub fn add(&mut self, node: NodeId, rows: Rows) {
        let place = |key| if is_table(key) { TABLES } else { node };
        self.rows.extend(rows.into_iter().map(|(key, txns)| ((place(key), key), txns)));
    }

    /// Whether the register was looked at, and did not show the transaction.
    pub fn misses(&self, register: &Register, txn: TxnNo) -> bool {
        self.rows.get(register).is_some_and(|shown| !shown.contains(&txn))
    }
}

/// A broken property.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The property's name.
    pub property: &'static str,
    /// What was found.
    pub found: String,
    /// The transactions that it is about.
    pub txns: Vec<TxnNo>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct History {
    /// By number, from 1.
    pub txns: BTreeMap<TxnNo, Txn>,
    /// What any client has seen or was told to be committed, in that order.
    known: Vec<TxnNo>,
    is_known: BTreeSet<TxnNo>,
    /// What each session has seen, with what that depends on.
    seen: BTreeMap<SessionId, BTreeSet<TxnNo>>,
    /// On each node, in which order transactions voted.
    pub votes: BTreeMap<NodeId, Vec<TxnNo>>,
    /// How many observations were checked.
    pub observations: u64,
    /// What was found broken.
    pub violations: Vec<Violation>,
    is_over: bool,
}

impl History {
    /// A client wants to write.
    pub fn begin(
        &mut self,
        session: SessionId,
        writes: BTreeSet<Register>,
        takes_turns: bool,
    ) -> TxnNo {
        let txn = self.txns.keys().last().map_or(1, |last| last + 1);
        let depends = BTreeSet::new();
        self.txns.insert(txn, Txn { writes, depends, told: None, takes_turns, session });
        txn
    }

    /// How much is known to any client now.
    pub fn mark(&self) -> usize {
        self.known.len()
    }

    /// What was known at a mark.
    pub fn known_at(&self, mark: usize) -> &[TxnNo] {
        &self.known[..mark]
    }

    /// The client asks for the commit: all that it has seen is a cause of it.
    pub fn asks_for_commit(&mut self, txn: TxnNo) {
        if let Some(found) = self.txns.get_mut(&txn) {
            found.depends = self.seen.entry(found.session).or_default().clone();
        }
    }

    /// The client is told. False: it had been told before.
    pub fn note_told(&mut self, txn: TxnNo, told: Told) -> bool {
        let Some(found) = self.txns.get_mut(&txn) else { return true };
        if found.told.replace(told).is_some() {
            return false;
        }
        if told == Told::Committed {
            let session = found.session;
            self.sees(session, txn);
        }
        true
    }

    /// A session has seen something: from now on it is known.
    pub fn note_seen(&mut self, observation: &Observation) {
        self.observations += 1;
        let shown: BTreeSet<TxnNo> = observation.rows.values().flatten().copied().collect();
        for txn in shown {
            if Some(txn) != observation.own {
                self.sees(observation.session, txn);
            }
        }
    }

    fn sees(&mut self, session: SessionId, txn: TxnNo) {
        if self.is_known.insert(txn) {
            self.known.push(txn);
        }
        let seen = self.seen.entry(session).or_default();
        if seen.insert(txn)
            && let Some(found) = self.txns.get(&txn)
        {
            seen.extend(found.depends.iter().copied());
        }
    }

    /// A node passed its point in the order of votes.
    pub fn voted(&mut self, node: NodeId, gid: &Gid) {
        let Ok(txn) = TxnNo::try_from(gid.number) else { return };
        let votes = self.votes.entry(node).or_default();
        if !votes.contains(&txn) {
            votes.push(txn);
        }
    }

    /// A property is broken: the run ends.
    pub fn broken(&mut self, property: &'static str, txns: Vec<TxnNo>, found: String) {
        self.is_over = true;
        self.violations.push(Violation { property, found, txns });
    }

    /// A property is broken, which is noted once; the run goes on.
    pub fn note_broken(&mut self, property: &'static str, txns: Vec<TxnNo>, found: String) {
        if !self.violations.iter().any(|known| known.property == property) {
            self.violations.push(Violation { property, found, txns });
        }
    }

    /// Whether the run ends because a property is broken.
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}
