//! Histories as text: a line per transaction, to read in reports, to write by hand in tests, and to
//! keep from a run that failed.
//!
//! Owns: both directions. Never: judges.
//!
//! ```text
//! T1 c1 RC 1-6 committed | 2-3 append l1 7, write r2 7 over 4 | 4-5 read l1 [6 7]
//! T2 c2 SER 7-9 unknown | locking read r1 0
//! T3 c1 RR 8-12 aborted | predicate read r1 0, read r2 7 over 4
//! T4 c1 RC 20-22 committed at rest | read l1 [6 7]
//! ```
//! A statement without instants of its own has those of its transaction.

use std::fmt;
use std::str::FromStr;

use super::model::{
    Access, History, Instant, Key, Level, Operation, Outcome, Statement, Transaction,
    TransactionId, Value,
};

/// Why a text is no history.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: cannot read {found:?}: expected {expected}")]
pub struct NotationError {
    line: usize,
    found: String,
    expected: &'static str,
}

type Parsed<T> = Result<T, (String, &'static str)>;

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}", self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(number) => write!(f, "r{number}"),
            Self::List(number) => write!(f, "l{number}"),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ReadCommitted => "RC",
            Self::RepeatableRead => "RR",
            Self::Serializable => "SER",
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Committed => "committed",
            Self::Aborted => "aborted",
            Self::Unknown => "unknown",
        })
    }
}

/// Elements as `[1 2 3]`.
pub fn elements_text(elements: &[Value]) -> String {
    let texts: Vec<String> = elements.iter().map(Value::to_string).collect();
    format!("[{}]", texts.join(" "))
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key();
        let over = |over: &Option<Value>| over.map(|v| format!(" over {v}")).unwrap_or_default();
        match self {
            Self::Read { value, over: o, .. } => write!(f, "read {key} {value}{}", over(o)),
            Self::Write { value, over: o, .. } => write!(f, "write {key} {value}{}", over(o)),
            Self::ReadList { elements, .. } => write!(f, "read {key} {}", elements_text(elements)),
            Self::Append { element, .. } => write!(f, "append {key} {element}"),
        }
    }
}

/// A transaction as a line, each of its operations as `shown`; statements of which none is shown are
/// left out.
pub fn line_of(transaction: &Transaction, shown: impl Fn(&Operation) -> Option<String>) -> String {
    let Transaction { id, client, level, begin, end, outcome, at_rest, statements } = transaction;
    let mut line = format!("{id} c{client} {level} {begin}-{end} {outcome}");
    if *at_rest {
        line.push_str(" at rest");
    }
    for statement in statements {
        let operations: Vec<String> = statement.operations.iter().filter_map(&shown).collect();
        if operations.is_empty() {
            continue;
        }
        line.push_str(" |");
        if (statement.sent, statement.answered) != (*begin, *end) {
            line.push_str(&format!(" {}-{}", statement.sent, statement.answered));
        }
        line.push_str(match statement.access {
            Access::Keys => " ",
            Access::Predicate => " predicate ",
            Access::Locking => " locking ",
        });
        line.push_str(&operations.join(", "));
    }
    line
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&line_of(self, |operation| Some(operation.to_string())))
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.transactions.iter().try_for_each(|transaction| writeln!(f, "{transaction}"))
    }
}

impl FromStr for History {
    type Err = NotationError;

    /// Reads lines as they are shown; empty lines and lines that begin with `#` are passed over.
    fn from_str(text: &str) -> Result<Self, NotationError> {
        let mut transactions = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let transaction = transaction_of(line).map_err(|(found, expected)| NotationError {
                line: index + 1,
                found,
                expected,
            })?;
            transactions.push(transaction);
        }
        Ok(Self { transactions })
    }
}

fn transaction_of(line: &str) -> Parsed<Transaction> {
    let mut parts = line.split('|');
    let head = parts.next().unwrap_or_default();
    let mut words = head.split_whitespace();
    let id = TransactionId(number_after(words.next(), 'T', "a transaction as T1")?);
    let client = number_after(words.next(), 'c', "a client as c1")?;
    let level = match words.next() {
        Some("RC") => Level::ReadCommitted,
        Some("RR") => Level::RepeatableRead,
        Some("SER") => Level::Serializable,
        other => return Err(unread(other, "RC, RR or SER")),
    };
    let (begin, end) = interval_of(words.next())?;
    let outcome = match words.next() {
        Some("committed") => Outcome::Committed,
        Some("aborted") => Outcome::Aborted,
        Some("unknown") => Outcome::Unknown,
        other => return Err(unread(other, "committed, aborted or unknown")),
    };
    let rest: Vec<&str> = words.collect();
    let at_rest = match rest.as_slice() {
        [] => false,
        ["at", "rest"] => true,
        [first, ..] => return Err(unread(Some(first), "at rest, or the first statement")),
    };
    let statements = parts.map(|part| statement_of(part, begin, end)).collect::<Parsed<_>>()?;
    Ok(Transaction { id, client, level, begin, end, outcome, at_rest, statements })
}

fn statement_of(text: &str, begin: Instant, end: Instant) -> Parsed<Statement> {
    let mut text = text.trim();
    let (mut sent, mut answered) = (begin, end);
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        let (instants, rest) = text.split_once(' ').unwrap_or((text, ""));
        (sent, answered) = interval_of(Some(instants))?;
        text = rest;
    }
    let (access, text) = match text.split_once(' ') {
        Some(("predicate", rest)) => (Access::Predicate, rest),
        Some(("locking", rest)) => (Access::Locking, rest),
        _ => (Access::Keys, text),
    };
    let operations = text.split(',').map(operation_of).collect::<Parsed<_>>()?;
    Ok(Statement { sent, answered, access, operations })
}

fn operation_of(text: &str) -> Parsed<Operation> {
    let mut words = text.split_whitespace();
    let verb = words.next();
    let key = words.next().unwrap_or_default();
    let rest: Vec<&str> = words.collect();
    if let Some(list) = key.strip_prefix('l') {
        let list = number(list, "a list as l1")?;
        return match (verb, rest.as_slice()) {
            (Some("append"), [element]) => {
                Ok(Operation::Append { list, element: number(element, "an element")? })
            }
            (Some("read"), elements) => {
                let elements = elements.join(" ");
                let inner = elements.strip_prefix('[').and_then(|e| e.strip_suffix(']'));
                let inner = inner.ok_or_else(|| unread(Some(text), "elements as [1 2 3]"))?;
                let values = inner.split_whitespace().map(|word| number(word, "an element"));
                Ok(Operation::ReadList { list, elements: values.collect::<Parsed<_>>()? })
            }
            _ => Err(unread(Some(text), "append l1 1 or read l1 [1]")),
        };
    }
    let register = number_after(Some(key), 'r', "a register as r1 or a list as l1")?;
    let (value, over) = match rest.as_slice() {
        [value] => (number(value, "a value")?, None),
        [value, "over", over] => (number(value, "a value")?, Some(number(over, "a value")?)),
        _ => return Err(unread(Some(text), "a value, or one over another")),
    };
    match verb {
        Some("read") => Ok(Operation::Read { register, value, over }),
        Some("write") => Ok(Operation::Write { register, value, over }),
        other => Err(unread(other, "read, write or append")),
    }
}

fn interval_of(word: Option<&str>) -> Parsed<(Instant, Instant)> {
    let expected = "instants as 1-2";
    let (first, last) =
        word.and_then(|word| word.split_once('-')).ok_or_else(|| unread(word, expected))?;
    Ok((number(first, expected)?, number(last, expected)?))
}

fn number_after<T: FromStr>(word: Option<&str>, prefix: char, expected: &'static str) -> Parsed<T> {
    let digits = word.and_then(|word| word.strip_prefix(prefix));
    number(digits.ok_or_else(|| unread(word, expected))?, expected)
}

fn number<T: FromStr>(word: &str, expected: &'static str) -> Parsed<T> {
    word.parse().map_err(|_| unread(Some(word), expected))
}

fn unread(found: Option<&str>, expected: &'static str) -> (String, &'static str) {
    (found.unwrap_or("nothing").to_owned(), expected)
}
