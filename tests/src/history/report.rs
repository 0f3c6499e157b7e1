//! What the checker says of a history, to be read by people.
//!
//! Owns: the counts, and the smallest finding of each kind with the transactions in it.
//! Never: decides what is wrong. Start reading at [`Report`].

use std::collections::BTreeMap;
use std::fmt;

use super::anomaly::{Anomaly, Kind};
use super::model::{History, Key, Operation, Outcome, Transaction};
use super::notation::{elements_text, line_of};
use super::versions::Versions;

/// Elements of a list that are shown; the last ones tell what was seen.
const ELEMENTS_SHOWN: usize = 4;

/// The verdict over a history.
#[derive(Clone, Debug)]
pub struct Report {
    /// Per kind how often it was found, and the smallest finding.
    findings: BTreeMap<Kind, Finding>,
    /// What the history was made of.
    pub figures: Figures,
}

#[derive(Clone, Debug)]
struct Finding {
    count: usize,
    smallest: Anomaly,
    /// The transactions of it, as text, without what does not matter.
    transactions: Vec<String>,
}

/// What a history was made of.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Told COMMIT.
    pub committed: usize,
    /// Told an error.
    pub aborted: usize,
    /// Told nothing.
    pub unknown: usize,
    /// Of those, how many others have seen the writes of.
    pub unknown_seen: usize,
    /// Reads of one row.
    pub row_reads: usize,
    /// Writes of one row.
    pub row_writes: usize,
}

impl Figures {
    fn of(history: &History, versions: &Versions) -> Self {
        let mut figures = Self::default();
        for (index, transaction) in history.transactions.iter().enumerate() {
            match transaction.outcome {
                Outcome::Committed => figures.committed += 1,
                Outcome::Aborted => figures.aborted += 1,
                Outcome::Unknown => {
                    figures.unknown += 1;
                    figures.unknown_seen += usize::from(versions.has_committed(index));
                }
            }
            for (_, operation) in transaction.operations() {
                if operation.is_read() {
                    figures.row_reads += 1;
                } else {
                    figures.row_writes += 1;
                }
            }
        }
        figures
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { committed, aborted, unknown, unknown_seen, row_reads, row_writes } = self;
        write!(
            f,
            "{committed} committed, {aborted} aborted, {unknown} unknown ({unknown_seen} of them seen); \
             {row_reads} rows read, {row_writes} written"
        )
    }
}

impl Report {
    /// Sorts the findings by kind and keeps the smallest of each.
    pub(super) fn new(history: &History, versions: &Versions, anomalies: Vec<Anomaly>) -> Self {
        let mut smallest: BTreeMap<Kind, (usize, Anomaly)> = BTreeMap::new();
        for anomaly in anomalies {
            match smallest.get_mut(&anomaly.kind) {
                None => drop(smallest.insert(anomaly.kind, (1, anomaly))),
                Some((count, known)) => {
                    *count += 1;
                    if anomaly.proof.len() < known.proof.len() {
                        *known = anomaly;
                    }
                }
            }
        }
        let finding = |(count, smallest): (usize, Anomaly)| {
            let involved = history.transactions.iter();
            let involved = involved.filter(|t| smallest.transactions.contains(&t.id));
            let transactions = involved.map(|t| excerpt(t, &smallest.keys)).collect();
            Finding { count, smallest, transactions }
        };
        let findings = smallest.into_iter().map(|(kind, found)| (kind, finding(found))).collect();
        Self { findings, figures: Figures::of(history, versions) }
    }

    /// The kinds that were found.
    pub fn kinds(&self) -> Vec<Kind> {
        self.findings.keys().copied().collect()
    }

    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// The smallest finding of a kind.
    pub fn smallest(&self, kind: Kind) -> Option<&Anomaly> {
        self.findings.get(&kind).map(|finding| &finding.smallest)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_clean() {
            writeln!(f, "nothing wrong: {}", self.figures)?;
        }
        for (kind, Finding { count, smallest, transactions }) in &self.findings {
            let times =
                if *count > 1 { format!(", {count} found, for instance") } else { String::new() };
            writeln!(f, "{kind}{times}:")?;
            smallest.proof.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
            transactions.iter().try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        if !self.is_clean() {
            writeln!(f, "in all: {}", self.figures)?;
        }
        Ok(())
    }
}

/// The transaction as text, with what it did in these rows only, and of long lists the end only.
fn excerpt(transaction: &Transaction, keys: &[Key]) -> String {
    line_of(transaction, |operation| {
        let text = match operation {
            Operation::ReadList { list, elements } if elements.len() > ELEMENTS_SHOWN => {
                let end = &elements[elements.len() - ELEMENTS_SHOWN..];
                format!("read l{list} {}", elements_text(end).replacen('[', "[… ", 1))
            }
            _ => operation.to_string(),
        };
        keys.contains(&operation.key()).then_some(text)
    })
}
