//! Each reader by itself: does it see what it wrote, and only what was committed?
//!
//! Owns: the checks that need no graph, and the list of external reads, from which the graph is
//! made. Never: compares one row with another, except for fractured reads, which need no more than
//! one reader and one writer.
//! Start reading at [`collect`].

use std::collections::{BTreeMap, HashMap, HashSet};

use super::anomaly::{Anomaly, Kind};
use super::model::{Access, History, INITIAL, Key, Operation, Outcome, Transaction, Value};
use super::notation::elements_text;
use super::versions::Versions;

/// A read of what others wrote: the reader had not written the row itself.
#[derive(Debug)]
pub struct ExternalRead<'a> {
    /// Index of the transaction.
    pub reader: usize,
    /// Index of the statement in it.
    pub statement: usize,
    /// The row.
    pub key: Key,
    /// The version: a register's value, a list's last element.
    pub version: Value,
    /// Values that were there: a list's elements.
    pub elements: &'a [Value],
    /// Whether it comes from a snapshot. A locking read at READ COMMITTED does not.
    pub is_of_snapshot: bool,
    /// Whether it was found by a predicate.
    pub by_predicate: bool,
}

impl ExternalRead<'_> {
    /// Reads with the same unit come from one snapshot: those of a transaction, or at READ COMMITTED
    /// those of a statement.
    pub fn unit(&self, history: &History) -> (usize, Option<usize>) {
        let has_one = history.transactions[self.reader].level.has_one_snapshot();
        (self.reader, (!has_one).then_some(self.statement))
    }
}

/// Checks every read by itself and gives the external ones.
pub fn collect<'a>(
    history: &'a History,
    versions: &Versions,
    anomalies: &mut Vec<Anomaly>,
) -> Vec<ExternalRead<'a>> {
    let mut external = Vec::new();
    for (index, transaction) in history.transactions.iter().enumerate() {
        let mut reader = Reader {
            index,
            history,
            transaction,
            versions,
            own: BTreeMap::new(),
            first_reads: BTreeMap::new(),
            anomalies,
        };
        for (statement, operation) in transaction.operations() {
            external.extend(reader.visit(statement, operation));
        }
    }
    external
}

/// The state while one transaction's operations are gone through.
struct Reader<'a, 'b> {
    index: usize,
    history: &'a History,
    transaction: &'a Transaction,
    versions: &'b Versions,
    /// What it wrote so far, per row.
    own: BTreeMap<Key, Vec<Value>>,
    /// What it first read in each row before it wrote there; of lists, without own elements.
    first_reads: BTreeMap<Key, &'a Operation>,
    anomalies: &'b mut Vec<Anomaly>,
}

impl<'a> Reader<'a, '_> {
    fn visit(&mut self, statement: usize, operation: &'a Operation) -> Option<ExternalRead<'a>> {
        let key = operation.key();
        if let Some((_, value)) = operation.written() {
            self.own.entry(key).or_default().push(value);
            return None;
        }
        let (version, elements): (Value, &[Value]) = match operation {
            Operation::Read { value, .. } => (*value, std::slice::from_ref(value)),
            Operation::ReadList { elements, .. } => {
                (elements.last().copied().unwrap_or(INITIAL), elements)
            }
            Operation::Write { .. } | Operation::Append { .. } => return None,
        };
        self.check_origins(key, elements);
        if self.own.contains_key(&key) {
            self.check_own(key, operation, elements);
            return None;
        }
        if elements.iter().any(|v| self.writer(key, *v) == Some(self.index)) {
            let what = format!("{operation}, before it wrote that");
            self.report(Kind::InternalInconsistency, key, &[], what);
            return None;
        }
        if self.versions.written((key, version)).is_some_and(|w| !w.is_final) {
            let others = self.writer(key, version);
            let what = format!("{operation}: {version} was replaced by its writer itself");
            self.report(Kind::IntermediateRead, key, others.as_slice(), what);
        }
        let has_one_snapshot = self.transaction.level.has_one_snapshot();
        let first = *self.first_reads.entry(key).or_insert(operation);
        if has_one_snapshot && first != operation {
            let what = format!("{first}, then {operation}");
            self.report(Kind::NonRepeatableRead, key, &[], what);
        }
        let access = self.transaction.statements[statement].access;
        Some(ExternalRead {
            reader: self.index,
            statement,
            key,
            version,
            elements,
            is_of_snapshot: has_one_snapshot || access != Access::Locking,
            by_predicate: access == Access::Predicate,
        })
    }

    /// Each value must have been written once, by a transaction that did not abort.
    fn check_origins(&mut self, key: Key, elements: &[Value]) {
        let mut met = HashSet::new();
        for value in elements {
            if !met.insert(*value) {
                let what = format!("read {key} with {value} in it twice");
                self.report(Kind::DuplicateElement, key, &[], what);
            }
            match self.writer(key, *value) {
                None if *value == INITIAL && matches!(key, Key::Register(_)) => (),
                None => {
                    let what = format!("read {value} in {key}, which nobody wrote");
                    self.report(Kind::UnwrittenValue, key, &[], what);
                }
                Some(writer) if writer != self.index && !self.versions.has_committed(writer) => {
                    let what = format!("read {value} in {key}, whose writer aborted");
                    self.report(Kind::AbortedRead, key, &[writer], what);
                }
                Some(_) => (),
            }
        }
    }

    /// After a transaction wrote a row, it alone can write there until its end.
    fn check_own(&mut self, key: Key, operation: &'a Operation, elements: &[Value]) {
        let own = self.own[&key].clone();
        let agrees = match key {
            Key::Register(_) => elements.last() == own.last(),
            Key::List(_) => {
                let before = elements.len().saturating_sub(own.len());
                elements[before..] == own[..] && self.agrees_with_snapshot(key, &elements[..before])
            }
        };
        if !agrees {
            let what = format!("{operation}, after it wrote {}", elements_text(&own));
            self.report(Kind::InternalInconsistency, key, &[], what);
        }
    }

    /// A transaction with one snapshot can only have written upon what that shows.
    fn agrees_with_snapshot(&self, key: Key, before: &[Value]) -> bool {
        match self.first_reads.get(&key) {
            Some(Operation::ReadList { elements, .. })
                if self.transaction.level.has_one_snapshot() =>
            {
                elements == before
            }
            _ => true,
        }
    }

    fn writer(&self, key: Key, value: Value) -> Option<usize> {
        self.versions.written((key, value)).map(|written| written.writer)
    }

    fn report(&mut self, kind: Kind, key: Key, others: &[usize], what: String) {
        let others = others.iter().filter(|other| **other != self.index);
        let ids = others.map(|other| self.history.transactions[*other].id);
        self.anomalies.push(Anomaly {
            kind,
            proof: vec![format!("{} {what}", self.transaction.id)],
            transactions: [self.transaction.id].into_iter().chain(ids).collect(),
            keys: vec![key],
        });
    }
}

/// Finds snapshots that show something of a transaction in one row and not yet in another, at most
/// one per snapshot.
///
/// These are cycles of two edges, but the general search could name a longer one instead, where
/// later writes lie between what was seen and the transaction that was seen in part.
pub fn find_fractured(
    history: &History,
    versions: &Versions,
    reads: &[ExternalRead<'_>],
    anomalies: &mut Vec<Anomaly>,
) {
    let mut units: BTreeMap<(usize, Option<usize>), Vec<&ExternalRead<'_>>> = BTreeMap::new();
    for read in reads.iter().filter(|read| read.is_of_snapshot) {
        units.entry(read.unit(history)).or_default().push(read);
    }
    for ((reader, statement), reads) in units {
        let mut seen: HashMap<usize, (Key, Value)> = HashMap::new();
        for read in &reads {
            for value in read.elements {
                if let Some(writer) = versions.committed_writer((read.key, *value)) {
                    seen.insert(writer, (read.key, *value));
                }
            }
        }
        let found = reads.iter().find_map(|read| {
            versions.later((read.key, read.version)).into_iter().find_map(|missed| {
                let writer = versions.committed_writer((read.key, missed))?;
                let (key, value) = *seen.get(&writer)?;
                (key != read.key && writer != reader).then_some((read, missed, writer, key, value))
            })
        });
        let Some((read, missed, writer, key, value)) = found else { continue };
        let (id, writer) = (history.transactions[reader].id, history.transactions[writer].id);
        let who = statement.map_or(id.to_string(), |s| format!("{id}'s statement {}", s + 1));
        anomalies.push(Anomaly {
            kind: Kind::FracturedRead,
            proof: vec![
                format!("{who} saw {writer}: {value} in {key}"),
                format!(
                    "{who} did not see {writer}: {missed} in {}, which it read as of {}",
                    read.key, read.version
                ),
            ],
            transactions: vec![id, writer],
            keys: vec![key, read.key],
        });
    }
}

/// Finds what was acknowledged or seen, and is not there when all is at rest.
pub fn find_lost(history: &History, versions: &Versions, anomalies: &mut Vec<Anomaly>) {
    let at_rest = history.transactions.iter().filter(|transaction| transaction.at_rest);
    let mut present: HashMap<Key, HashSet<Value>> = HashMap::new();
    for (_, operation) in at_rest.flat_map(Transaction::operations) {
        let key = operation.key();
        match operation {
            Operation::ReadList { elements, .. } => {
                present.insert(key, elements.iter().copied().collect());
            }
            Operation::Read { value, .. } => {
                // Where the register does not tell what it held before, nothing can be said.
                if let Some(ancestry) = versions.ancestry((key, *value)) {
                    present.insert(key, ancestry);
                }
            }
            Operation::Write { .. } | Operation::Append { .. } => (),
        }
    }
    for (index, transaction) in history.transactions.iter().enumerate() {
        if !versions.has_committed(index) {
            continue;
        }
        let written = transaction.operations().filter_map(|(_, operation)| operation.written());
        let lost = written
            .into_iter()
            .find(|(key, value)| present.get(key).is_some_and(|present| !present.contains(value)));
        let Some((key, value)) = lost else { continue };
        let (kind, why) = match transaction.outcome {
            Outcome::Committed => (Kind::LostWrite, "was acknowledged"),
            Outcome::Aborted | Outcome::Unknown => (Kind::HalfApplied, "was seen in part"),
        };
        anomalies.push(Anomaly {
            kind,
            proof: vec![format!(
                "{} {why}, and its {value} is not in {key} at rest",
                transaction.id
            )],
            transactions: vec![transaction.id],
            keys: vec![key],
        });
    }
}

/// Finds pairs that both replaced the version that both had read, whatever its place in the order.
pub fn find_lost_updates(
    history: &History,
    versions: &Versions,
    reads: &[ExternalRead<'_>],
    anomalies: &mut Vec<Anomaly>,
) {
    let mut replacers: BTreeMap<(Key, Value), Vec<usize>> = BTreeMap::new();
    for read in reads {
        let transaction = &history.transactions[read.reader];
        let writes = transaction.operations().filter_map(|(_, operation)| operation.written());
        let replaces = writes.into_iter().any(|(key, _)| key == read.key);
        if replaces && transaction.level.has_one_snapshot() && versions.has_committed(read.reader) {
            let replacers = replacers.entry((read.key, read.version)).or_default();
            if !replacers.contains(&read.reader) {
                replacers.push(read.reader);
            }
        }
    }
    for ((key, value), replacers) in replacers.iter().filter(|(_, r)| r.len() > 1) {
        let ids: Vec<_> = replacers.iter().map(|r| history.transactions[*r].id).collect();
        anomalies.push(Anomaly {
            kind: Kind::LostUpdate,
            proof: ids
                .iter()
                .map(|id| format!("{id} read {key} as of {value} and replaced that"))
                .collect(),
            transactions: ids,
            keys: vec![*key],
        });
    }
}
