//! A client that carries out intents and writes down what it was told.
//!
//! Owns: which answers mean committed, aborted or unknown. Never: chooses what to ask for (`intent`).
//! Start reading at [`Session::perform`].

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail, ensure};
use tutti_wire::error_fields::ErrorFields;

use super::intent::{self, Begin, Intent, Rows, Sql, Step, Tables};
use super::model::{
    Access, INITIAL, Instant, Level, Operation, Outcome, Statement, Transaction, TransactionId,
    Value,
};
use crate::answer::{Answer, Outcome as StatementOutcome};
use crate::client::{Client, Endpoint, Flight, Request, text_arguments};

/// The outcome is not known: class 08, "transaction resolution unknown".
const RESOLUTION_UNKNOWN: &str = "08007";
/// What transactions must expect: conflicts, deadlocks, time limits, and classes of a server or a
/// connection that is away, and a disk that is full. Anything else is a bug, of the gateway or of this test.
const EXPECTED: &[&str] = &["40001", "40P01", "55P03", "57014", "08", "57P", "53100"];
/// Ends what waits for a lock that will not be released.
const LOCK_TIMEOUT: &str = "5s";

/// Gives each event its place. One for all clients of a run.
#[derive(Debug, Default)]
pub struct EventOrder(AtomicU64);

impl EventOrder {
    /// The next instant.
    pub fn tick(&self) -> Instant {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// Why a statement has no answer to write down.
enum Failed {
    /// The server said so; the session goes on.
    Refused(String),
    /// The connection is gone.
    Lost,
}

/// One connection.
pub struct Session<'a> {
    client: Client,
    number: u32,
    events: &'a EventOrder,
    default_level: Level,
}

/// How a transaction ended, and whether the session can go on.
pub struct Performed {
    /// For the history; `None` if nothing was asked of any row.
    pub transaction: Option<Transaction>,
    /// Whether the connection is gone.
    pub is_lost: bool,
}

impl<'a> Session<'a> {
    /// Opens a session for the client of this number.
    pub fn open(endpoint: &Endpoint, number: u32, events: &'a EventOrder) -> Result<Self> {
        let mut client = Client::connect(endpoint)?;
        client.query(&format!("SET lock_timeout = '{LOCK_TIMEOUT}'"))?;
        Ok(Self { client, number, events, default_level: Level::ReadCommitted })
    }

    /// Carries out a transaction.
    ///
    /// Errors: an answer that no server may give, whatever happens to it.
    pub fn perform(&mut self, intent: &Intent) -> Result<Performed> {
        let mut transaction = Transaction {
            id: TransactionId(intent.number),
            client: self.number,
            level: intent.level,
            begin: 0,
            end: 0,
            outcome: Outcome::Aborted,
            at_rest: false,
            statements: Vec::new(),
        };
        let failed = match self.begin(intent)? {
            Ok(()) => self.steps(intent, &mut transaction)?,
            Err(failed) => Some(failed),
        };
        let autocommits = intent.begin == Begin::Autocommit;
        let (outcome, failed) = match failed {
            // COMMIT was not asked for, so it must not have happened.
            Some(failed) if !autocommits => (Outcome::Aborted, Some(failed)),
            Some(failed) => (outcome_of(&failed), Some(failed)),
            None if autocommits => (Outcome::Committed, None),
            None if intent.gives_up => (Outcome::Aborted, Some(Failed::Refused(String::new()))),
            None => self.commit()?,
        };
        let mut is_lost = matches!(failed, Some(Failed::Lost));
        if failed.is_some() && !is_lost && !autocommits {
            is_lost = self.run("ROLLBACK", &[], false)?.is_err();
        }
        transaction.outcome = outcome;
        transaction.end = self.events.tick();
        transaction.begin = transaction.statements.first().map_or(0, |first| first.sent);
        let did_something = !transaction.statements.is_empty();
        Ok(Performed { transaction: did_something.then_some(transaction), is_lost })
    }

    fn begin(&mut self, intent: &Intent) -> Result<Result<(), Failed>> {
        let level = intent.level;
        let is_of_session = matches!(intent.begin, Begin::Autocommit | Begin::Default);
        if is_of_session && self.default_level != level {
            let name = level.sql().to_lowercase();
            let set = format!("SET default_transaction_isolation = '{name}'");
            if let Err(failed) = self.run(&set, &[], false)? {
                return Ok(Err(failed));
            }
            self.default_level = level;
        }
        let begin = match intent.begin {
            Begin::Autocommit => return Ok(Ok(())),
            Begin::Default => "BEGIN".to_owned(),
            Begin::WithLevel => format!("BEGIN ISOLATION LEVEL {}", level.sql()),
            Begin::ReadOnly => format!("BEGIN ISOLATION LEVEL {} READ ONLY", level.sql()),
        };
        Ok(self.run(&begin, &[], false)?.map(drop))
    }

    fn commit(&mut self) -> Result<(Outcome, Option<Failed>)> {
        Ok(match self.run("COMMIT", &[], false)? {
            Err(failed) => (outcome_of(&failed), Some(failed)),
            Ok(answer) => match answer.outcomes.as_slice() {
                [StatementOutcome::Done { tag }] if tag == "COMMIT" => (Outcome::Committed, None),
                other => bail!("COMMIT was answered by {other:?}"),
            },
        })
    }

    fn steps(&mut self, intent: &Intent, transaction: &mut Transaction) -> Result<Option<Failed>> {
        for step in &intent.steps {
            let done =
                match step {
                    Step::Read(tables, rows) => {
                        self.read(intent, transaction, *tables, rows, false)?.map(drop)
                    }
                    Step::Write(rows, value) => {
                        let sql = intent::update_registers(rows, *value);
                        self.write(intent, transaction, &sql, rows, |row, previous| {
                            Operation::Write { register: row, value: *value, over: previous }
                        })?
                    }
                    Step::Append(rows, element) => {
                        let sql = intent::append_to_lists(rows, *element);
                        self.write(intent, transaction, &sql, rows, |row, _| Operation::Append {
                            list: row,
                            element: *element,
                        })?
                    }
                    Step::ReadThenAppend(list, element) => {
                        self.read_then_append(intent, transaction, *list, *element)?
                    }
                };
            if let Err(failed) = done {
                return Ok(Some(failed));
            }
        }
        Ok(None)
    }

    /// At READ COMMITTED the row must be locked before it is read; elsewhere the snapshot ensures
    /// that no other's append is undone.
    fn read_then_append(
        &mut self,
        intent: &Intent,
        transaction: &mut Transaction,
        list: u32,
        element: Value,
    ) -> Result<Result<(), Failed>> {
        let rows = Rows::One(list);
        if intent.begin == Begin::Autocommit {
            // One statement has no second one to use what it read.
            let sql = intent::append_to_lists(&rows, element);
            return self.write(intent, transaction, &sql, &rows, |_, _| Operation::Append {
                list,
                element,
            });
        }
        let is_locking = !intent.level.has_one_snapshot();
        let operations = match self.read(intent, transaction, Tables::Lists, &rows, is_locking)? {
            Ok(operations) => operations,
            Err(failed) => return Ok(Err(failed)),
        };
        let [Operation::ReadList { elements, .. }] = operations.as_slice() else {
            bail!("one list was asked for, and the answer was {operations:?}");
        };
        let elements: Vec<Value> = elements.iter().copied().chain([element]).collect();
        let sql = intent::replace_list(list, &elements);
        self.write(intent, transaction, &sql, &rows, |_, _| Operation::Append { list, element })
    }

    fn read(
        &mut self,
        intent: &Intent,
        transaction: &mut Transaction,
        tables: Tables,
        rows: &Rows,
        is_locking: bool,
    ) -> Result<Result<Vec<Operation>, Failed>> {
        let Sql { text, arguments } = intent::select(tables, rows, is_locking);
        let sql = Sql { text, arguments };
        let sent = self.events.tick();
        let answer = self.run_sql(&sql, intent.is_extended)?;
        let answered = self.events.tick();
        let answer = match answer {
            Ok(answer) => answer,
            Err(failed) => return Ok(Err(failed)),
        };
        let operations = operations_read(tables, &answer)
            .and_then(|operations| {
                let expected = rows.ids();
                let per_row = if tables == Tables::Both { 2 } else { 1 };
                ensure!(
                    operations.len() == expected.len() * per_row,
                    "rows are missing or too many"
                );
                Ok(operations)
            })
            .with_context(|| format!("T{} {}\n{answer}", intent.number, sql.literal()))?;
        let access = if is_locking { Access::Locking } else { rows.access() };
        let kept = operations.clone();
        transaction.statements.push(Statement { sent, answered, access, operations: kept });
        Ok(Ok(operations))
    }

    /// Also a write that failed is written down: some of it may be seen, and must not be.
    fn write(
        &mut self,
        intent: &Intent,
        transaction: &mut Transaction,
        sql: &Sql,
        rows: &Rows,
        operation: impl Fn(u32, Option<Value>) -> Operation,
    ) -> Result<Result<(), Failed>> {
        let sent = self.events.tick();
        let answer = self.run_sql(sql, intent.is_extended)?;
        let answered = self.events.tick();
        let ids = rows.ids();
        let (operations, done) = match answer {
            Err(failed) => (ids.iter().map(|row| operation(*row, None)).collect(), Err(failed)),
            Ok(answer) => {
                let texts = answer.texts();
                let written: Result<Vec<(u32, Option<Value>)>> = texts
                    .iter()
                    .map(|row| {
                        let previous = row.get(1).map(|_| number(row, 1)).transpose()?;
                        Ok((number(row, 0)?, previous))
                    })
                    .collect();
                let written = written.with_context(|| format!("{}\n{answer}", sql.literal()))?;
                let rows: BTreeSet<u32> = written.iter().map(|(row, _)| *row).collect();
                ensure!(
                    written.len() == ids.len() && rows == ids.iter().copied().collect(),
                    "T{} {}: not the rows that were asked for\n{answer}",
                    intent.number,
                    sql.literal()
                );
                (written.into_iter().map(|(row, p)| operation(row, p)).collect(), Ok(()))
            }
        };
        let access = Access::Keys;
        transaction.statements.push(Statement { sent, answered, access, operations });
        Ok(done)
    }

    fn run_sql(&mut self, sql: &Sql, is_extended: bool) -> Result<Result<Answer, Failed>> {
        if is_extended {
            self.run(&sql.text, &sql.arguments, true)
        } else {
            self.run(&sql.literal(), &[], false)
        }
    }

    fn run(
        &mut self,
        sql: &str,
        arguments: &[String],
        is_extended: bool,
    ) -> Result<Result<Answer, Failed>> {
        let answer = if is_extended {
            let values: Vec<Option<String>> = arguments.iter().cloned().map(Some).collect();
            let arguments = [text_arguments(&values)];
            let request = Request { sql, arguments: &arguments, ..Request::default() };
            self.client.extended(&request, Flight::OneFlight, &[])
        } else {
            self.client.simple(sql, &[])
        };
        let Ok(answer) = answer else { return Ok(Err(Failed::Lost)) };
        match answer.error() {
            None => Ok(Ok(answer)),
            Some(error) if is_expected(error) => {
                Ok(Err(Failed::Refused(error.sqlstate().to_owned())))
            }
            Some(_) => bail!("unexpected answer to {sql}\n{answer}"),
        }
    }

    /// Reads everything, after all others have ended.
    ///
    /// Errors: a statement fails.
    pub fn read_at_rest(&mut self, number: u32, row_count: u32) -> Result<Transaction> {
        let mut transaction = Transaction {
            id: TransactionId(number),
            client: self.number,
            level: Level::ReadCommitted,
            begin: 0,
            end: 0,
            outcome: Outcome::Committed,
            at_rest: true,
            statements: Vec::new(),
        };
        let rows = Rows::Range { first: 1, last: row_count, is_sorted: true };
        for tables in [Tables::Registers, Tables::Lists] {
            let sql = intent::select(tables, &rows, false).literal();
            let sent = self.events.tick();
            let answer = self.client.simple(&sql, &[])?;
            let answered = self.events.tick();
            ensure!(answer.error().is_none(), "{sql}\n{answer}");
            let operations = operations_read(tables, &answer)?;
            let access = Access::Predicate;
            transaction.statements.push(Statement { sent, answered, access, operations });
        }
        transaction.begin = transaction.statements[0].sent;
        transaction.end = self.events.tick();
        Ok(transaction)
    }
}

fn is_expected(error: &ErrorFields) -> bool {
    EXPECTED.iter().any(|expected| error.sqlstate().starts_with(expected))
}

/// What may be believed when the statement that commits has failed.
fn outcome_of(failed: &Failed) -> Outcome {
    match failed {
        Failed::Lost => Outcome::Unknown,
        Failed::Refused(sqlstate) if sqlstate == RESOLUTION_UNKNOWN => Outcome::Unknown,
        Failed::Refused(_) => Outcome::Aborted,
    }
}

fn operations_read(tables: Tables, answer: &Answer) -> Result<Vec<Operation>> {
    let mut operations = Vec::new();
    for row in answer.texts() {
        let id = number(&row, 0)?;
        if tables != Tables::Lists {
            let value: Value = number(&row, 1)?;
            let previous = number(&row, 2)?;
            let over = (value != INITIAL).then_some(previous);
            operations.push(Operation::Read { register: id, value, over });
        }
        if tables != Tables::Registers {
            let text = row.last().cloned().flatten().context("a list is NULL")?;
            let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
            let inner = inner.with_context(|| format!("{text} is no array"))?;
            let elements = inner.split(',').filter(|element| !element.is_empty());
            let elements = elements.map(str::parse).collect::<Result<Vec<Value>, _>>()?;
            operations.push(Operation::ReadList { list: id, elements });
        }
    }
    Ok(operations)
}

fn number<T: std::str::FromStr>(row: &[Option<String>], column: usize) -> Result<T> {
    let text = row.get(column).cloned().flatten();
    text.as_deref()
        .and_then(|text| text.parse().ok())
        .with_context(|| format!("column {column} of {row:?} is no number"))
}
