//! What a run was told, in a form that is compared and printed.
//!
//! Owns: what of an answer counts: rows, command tags, SQLSTATEs, the transaction's state.
//! Never: decides what may differ (see `judge`).

use std::fmt;

use crate::answer::{Answer, Outcome, row_text};

/// Serialization failure.
pub const SERIALIZATION_FAILURE: &str = "40001";

/// What a session was told of one statement.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Told {
    /// The rows as text, columns separated by ` | `.
    pub rows: Vec<String>,
    /// Command tags.
    pub tags: Vec<String>,
    /// If it failed.
    pub sqlstate: Option<String>,
    /// SQLSTATEs of warnings.
    pub warnings: Vec<String>,
    /// The transaction's state: `I`, `T` or `E`; `!` if the session was lost.
    pub status: char,
    /// The error's text: for readers, never compared.
    pub message: Message,
}

/// A text that may differ.
#[derive(Clone, Debug, Default)]
pub struct Message(pub String);

impl PartialEq for Message {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Message {}

impl Told {
    /// What counts of an answer.
    pub fn by(answer: &Answer) -> Self {
        let mut told = Self { status: char::from(answer.status), ..Self::default() };
        for outcome in &answer.outcomes {
            match outcome {
                Outcome::Rows { rows, tag, .. } => {
                    told.rows.extend(rows.iter().map(row_text));
                    told.tags.push(tag.clone());
                }
                Outcome::Done { tag } | Outcome::CopyOut { tag, .. } => told.tags.push(tag.clone()),
                Outcome::Empty => (),
                Outcome::Failed(error) => {
                    told.sqlstate = Some(error.sqlstate().to_owned());
                    told.message = Message(error.message().to_owned());
                }
            }
        }
        told.warnings = answer.notices.iter().map(|notice| notice.sqlstate().to_owned()).collect();
        told
    }

    /// The session is gone.
    pub fn lost(why: &anyhow::Error) -> Self {
        Self { status: '!', message: Message(format!("{why:#}")), ..Self::default() }
    }

    /// Whether it is a serialization failure.
    pub fn is_refused(&self) -> bool {
        self.sqlstate.as_deref() == Some(SERIALIZATION_FAILURE)
    }

    /// The value of a label: the rows in one text; `None` if the statement failed.
    pub fn seen(&self) -> Option<String> {
        self.sqlstate.is_none().then(|| self.rows.join(", "))
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            write!(f, "({row}) ")?;
        }
        for tag in &self.tags {
            write!(f, "{tag} ")?;
        }
        if let Some(sqlstate) = &self.sqlstate {
            write!(f, "ERROR {sqlstate} ")?;
        }
        for warning in &self.warnings {
            write!(f, "warning {warning} ")?;
        }
        write!(f, "[{}]", self.status)?;
        if !self.message.0.is_empty() {
            write!(f, "  -- {}", self.message.0)?;
        }
        Ok(())
    }
}

/// An answer, and to which statement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answered {
    /// The session.
    pub session: String,
    /// The statement's line.
    pub line: usize,
    /// The answer.
    pub told: Told,
}

/// What happened after one step, until nothing moved any more.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The step's line.
    pub line: usize,
    /// The step, placeholders filled in.
    pub step: String,
    /// Who was answered, by name and line.
    pub answers: Vec<Answered>,
    /// Who waits now.
    pub waiting: Vec<String>,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:4}  {}", self.line, self.step)?;
        for Answered { session, line, told } in &self.answers {
            if *line == self.line {
                writeln!(f, "        {told}")?;
            } else {
                writeln!(f, "        {session} goes on from line {line}: {told}")?;
            }
        }
        for session in &self.waiting {
            writeln!(f, "        {session} waits")?;
        }
        Ok(())
    }
}

/// A whole run.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Record {
    /// One for each step.
    pub entries: Vec<Entry>,
}

impl Record {
    /// All answers in order.
    pub fn answers(&self) -> impl Iterator<Item = &Answered> {
        self.entries.iter().flat_map(|entry| &entry.answers)
    }

    /// What the statement of a line was told.
    pub fn told(&self, line: usize) -> Option<&Told> {
        self.answers().find(|answered| answered.line == line).map(|answered| &answered.told)
    }

    /// Whether all that the session asked to commit was committed: no COMMIT failed or rolled back,
    /// nothing failed outside a transaction, and nothing is left open.
    pub fn committed(&self, session: &str) -> bool {
        let mut own = self.answers().filter(|answered| answered.session == session).peekable();
        let mut rolled_back = own.peek().is_none();
        let mut last_status = 'I';
        for Answered { told, .. } in own {
            let failed_alone = told.sqlstate.is_some() && told.status != 'E';
            // ROLLBACK TO has the same tag, but leaves the transaction open.
            let ended = told.status == 'I' && told.tags.iter().any(|tag| tag == "ROLLBACK");
            rolled_back |= failed_alone || ended;
            last_status = told.status;
        }
        !rolled_back && last_status == 'I'
    }

    /// Entries before the first serialization failure.
    pub fn undisturbed(&self) -> usize {
        let disturbed = |entry: &Entry| entry.answers.iter().any(|it| it.told.is_refused());
        self.entries.iter().position(disturbed).unwrap_or(self.entries.len())
    }

    /// The first session that got a serialization failure.
    pub fn refused(&self) -> Option<&str> {
        let refused = self.answers().find(|answered| answered.told.is_refused());
        refused.map(|answered| answered.session.as_str())
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entries.iter().try_for_each(|entry| entry.fmt(f))
    }
}
