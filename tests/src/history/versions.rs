//! The versions of each row: who wrote them, whether they count, and what followed what.
//!
//! Owns: what is inferred from all transactions together. Never: looks at one reader's consistency
//! (`reads`) or at cycles (`cycles`).
//! Start reading at [`Versions::infer`].

use std::collections::{BTreeMap, HashMap, HashSet};

use super::anomaly::{Anomaly, Kind};
use super::model::{History, INITIAL, Key, Operation, Outcome, Value};
use super::notation::elements_text;

/// A version of a row: what a write left there. Of a list it is named by its last element, and
/// [`INITIAL`] stands for the empty list.
pub type Version = (Key, Value);

/// Who wrote a version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Written {
    /// Index of the transaction.
    pub writer: usize,
    /// Whether it is the last that the writer wrote there.
    pub is_final: bool,
}

/// All versions of a history.
#[derive(Debug, Default)]
pub struct Versions {
    written: HashMap<Version, Written>,
    values: BTreeMap<Key, Vec<Value>>,
    successors: BTreeMap<Version, Vec<Value>>,
    predecessors: HashMap<Version, Value>,
    has_committed: Vec<bool>,
}

impl Versions {
    /// Finds writers, fates and orders. What contradicts itself is added to `anomalies`.
    pub fn infer(history: &History, anomalies: &mut Vec<Anomaly>) -> Self {
        let mut versions = Self::default();
        for (writer, transaction) in history.transactions.iter().enumerate() {
            let installed = transaction.installed();
            for (_, operation) in transaction.operations() {
                if let Some((key, value)) = operation.written() {
                    let is_final = installed.get(&key) == Some(&value);
                    versions.written.insert((key, value), Written { writer, is_final });
                    versions.values.entry(key).or_default().push(value);
                }
            }
        }
        versions.decide_fates(history);
        versions.order_lists(history, anomalies);
        versions.order_registers(history, anomalies);
        for values in versions.successors.values_mut() {
            values.sort_unstable();
            values.dedup();
        }
        versions
    }

    /// Which transaction wrote it; none wrote [`INITIAL`].
    pub fn written(&self, version: Version) -> Option<Written> {
        self.written.get(&version).copied()
    }

    /// Who wrote it, if that transaction has committed.
    pub fn committed_writer(&self, version: Version) -> Option<usize> {
        self.written(version).map(|w| w.writer).filter(|writer| self.has_committed[*writer])
    }

    /// Whether a transaction counts as committed: its client was told so, or was told nothing and
    /// others saw its writes.
    pub fn has_committed(&self, transaction: usize) -> bool {
        self.has_committed[transaction]
    }

    /// Versions known to come after this one; nothing is known to lie between.
    pub fn successors(&self, version: Version) -> &[Value] {
        self.successors.get(&version).map_or(&[], Vec::as_slice)
    }

    /// Every version that has a known successor, with these.
    pub fn orders(&self) -> impl Iterator<Item = (Version, Value)> {
        self.successors.iter().flat_map(|(v, next)| next.iter().map(|next| (*v, *next)))
    }

    /// All versions known to come after this one, the nearest first.
    pub fn later(&self, (key, value): Version) -> Vec<Value> {
        let mut found: Vec<Value> = Vec::new();
        let mut met = HashSet::from([value]);
        let mut frontier = vec![value];
        while let Some(value) = frontier.pop() {
            for next in self.successors((key, value)) {
                if met.insert(*next) {
                    found.push(*next);
                    frontier.push(*next);
                }
            }
        }
        found
    }

    /// The version and all before it back to [`INITIAL`]; `None` if some step is not known.
    pub fn ancestry(&self, (key, value): Version) -> Option<HashSet<Value>> {
        let mut met = HashSet::new();
        let mut value = value;
        while met.insert(value) {
            if value == INITIAL {
                return Some(met);
            }
            value = *self.predecessors.get(&(key, value))?;
        }
        None
    }

    /// A transaction with unknown outcome has committed iff another transaction saw a write of it.
    fn decide_fates(&mut self, history: &History) {
        let committed = |outcome| outcome == Outcome::Committed;
        self.has_committed =
            history.transactions.iter().map(|transaction| committed(transaction.outcome)).collect();
        for (reader, transaction) in history.transactions.iter().enumerate() {
            for (_, operation) in transaction.operations() {
                for seen in values_seen(operation) {
                    let Some(written) = self.written((operation.key(), seen)) else { continue };
                    let outcome = history.transactions[written.writer].outcome;
                    if written.writer != reader && outcome == Outcome::Unknown {
                        self.has_committed[written.writer] = true;
                    }
                }
            }
        }
    }

    /// The longest read of a list tells its order; every other read must be a beginning of it.
    fn order_lists(&mut self, history: &History, anomalies: &mut Vec<Anomaly>) {
        let mut reads: BTreeMap<u32, Vec<(usize, &[Value])>> = BTreeMap::new();
        for (reader, transaction) in history.transactions.iter().enumerate() {
            for (_, operation) in transaction.operations() {
                if let Operation::ReadList { list, elements } = operation {
                    let elements = self.without_undone(Key::List(*list), elements, reader);
                    reads.entry(*list).or_default().push((reader, elements));
                }
            }
        }
        for (list, mut reads) in reads {
            let key = Key::List(list);
            reads.sort_by_key(|(_, elements)| elements.len());
            let Some((longest_reader, longest)) = reads.pop() else { continue };
            for (reader, elements) in reads {
                if !longest.starts_with(elements) {
                    anomalies.push(Anomaly {
                        kind: Kind::IncompatibleOrders,
                        proof: vec![
                            differing_reads(history, key, reader, elements),
                            differing_reads(history, key, longest_reader, longest),
                        ],
                        transactions: distinct(history, &[reader, longest_reader]),
                        keys: vec![key],
                    });
                }
            }
            let mut before = INITIAL;
            let mut met = HashSet::new();
            // An element that is there twice has no place in an order.
            for element in longest.iter().filter(|element| met.insert(**element)) {
                self.successors.entry((key, before)).or_default().push(*element);
                before = *element;
            }
            // What committed and is in no read was appended after all that is.
            for value in self.committed_values(key) {
                if !met.contains(&value) {
                    self.successors.entry((key, before)).or_default().push(value);
                }
            }
        }
    }

    /// What committed transactions wrote in a row.
    fn committed_values(&self, key: Key) -> Vec<Value> {
        let all = self.values.get(&key).map_or(&[][..], Vec::as_slice);
        let committed = all.iter().filter(|v| self.committed_writer((key, **v)).is_some());
        committed.copied().collect()
    }

    /// What a reader that did not commit had appended itself says nothing about the order.
    fn without_undone<'a>(&self, key: Key, elements: &'a [Value], reader: usize) -> &'a [Value] {
        if self.has_committed(reader) {
            return elements;
        }
        let is_own = |v: &Value| self.written((key, *v)).is_some_and(|w| w.writer == reader);
        &elements[..elements.iter().position(is_own).unwrap_or(elements.len())]
    }

    /// Registers tell what each version replaced; failing that, what a transaction had read before
    /// it wrote comes before what it wrote.
    fn order_registers(&mut self, history: &History, anomalies: &mut Vec<Anomaly>) {
        let mut replaced_by: BTreeMap<Version, (Value, usize)> = BTreeMap::new();
        for (index, transaction) in history.transactions.iter().enumerate() {
            let mut last_read: HashMap<Key, Value> = HashMap::new();
            for (_, operation) in transaction.operations() {
                let key = operation.key();
                let (value, over) = match operation {
                    Operation::Read { value, over, .. } => {
                        last_read.insert(key, *value);
                        (*value, *over)
                    }
                    Operation::Write { value, over, .. } => {
                        if over.is_none() && self.has_committed(index) {
                            let before = last_read.get(&key).copied();
                            let entry = before.map(|b| self.successors.entry((key, b)));
                            entry.into_iter().for_each(|e| e.or_default().push(*value));
                        }
                        last_read.insert(key, *value);
                        (*value, *over)
                    }
                    Operation::ReadList { .. } | Operation::Append { .. } => continue,
                };
                let Some(over) = over.filter(|_| value != INITIAL) else { continue };
                if self.committed_writer((key, value)).is_none() {
                    continue;
                }
                let known = self.predecessors.insert((key, value), over);
                let (other, teller) = *replaced_by.entry((key, over)).or_insert((value, index));
                let contradiction = if known.is_some_and(|known| known != over) {
                    format!(
                        "{key}'s {value} replaced {over}, and it replaced {}",
                        known.unwrap_or(0)
                    )
                } else if other != value {
                    format!("{key}'s {over} was replaced by {other} and by {value}")
                } else {
                    self.successors.entry((key, over)).or_default().push(value);
                    continue;
                };
                anomalies.push(Anomaly {
                    kind: Kind::IncompatibleOrders,
                    proof: vec![contradiction],
                    transactions: distinct(history, &[teller, index]),
                    keys: vec![key],
                });
            }
        }
        // Of what a write replaced nothing may be known, but INITIAL was there first.
        let registers: Vec<Key> =
            self.values.keys().copied().filter(|key| matches!(key, Key::Register(_))).collect();
        for key in registers {
            for value in self.committed_values(key) {
                if !self.predecessors.contains_key(&(key, value)) {
                    self.successors.entry((key, INITIAL)).or_default().push(value);
                }
            }
        }
    }
}

/// Values of a row that an operation proves to have been there.
fn values_seen(operation: &Operation) -> Vec<Value> {
    match operation {
        Operation::Read { value, over, .. } => over.iter().copied().chain([*value]).collect(),
        Operation::Write { over, .. } => over.iter().copied().collect(),
        Operation::ReadList { elements, .. } => elements.clone(),
        Operation::Append { .. } => Vec::new(),
    }
}

fn differing_reads(history: &History, key: Key, reader: usize, elements: &[Value]) -> String {
    let id = history.transactions[reader].id;
    format!("{id} read {key} as {}", elements_text(elements))
}

fn distinct(history: &History, transactions: &[usize]) -> Vec<super::model::TransactionId> {
    let mut ids: Vec<_> = transactions.iter().map(|t| history.transactions[*t].id).collect();
    ids.dedup();
    ids
}
