//! What a server answered, in a form that can be compared and printed.
//!
//! Owns: the types. Never: reads a socket (`client`) nor decides what counts as equal (`compare`).

use std::fmt;

use bytes::Bytes;
use tutti_wire::error_fields::ErrorFields;

/// One row; `None` is NULL.
pub type Row = Vec<Option<Bytes>>;

/// One column as RowDescription names it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Type OID; OIDs from 16384 on differ between servers.
    pub type_oid: u32,
    /// `atttypmod`.
    pub type_modifier: i32,
    /// 0 text, 1 binary.
    pub format: i16,
}

/// The answer to one statement.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// Rows, also of RETURNING.
    Rows {
        /// The row's shape.
        columns: Vec<Column>,
        /// The rows in the order they came.
        rows: Vec<Row>,
        /// How often the portal was suspended by a row limit.
        suspensions: usize,
        /// The command tag.
        tag: String,
    },
    /// No rows.
    Done {
        /// The command tag.
        tag: String,
    },
    /// COPY … TO STDOUT.
    CopyOut {
        /// The format.
        binary: bool,
        /// All data in the order it came.
        data: Vec<u8>,
        /// The command tag.
        tag: String,
    },
    /// An empty statement.
    Empty,
    /// The statement failed.
    Failed(ErrorFields),
}

/// Everything between a request and ReadyForQuery.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Answer {
    /// One per statement that was run.
    pub outcomes: Vec<Outcome>,
    /// Notices and warnings.
    pub notices: Vec<ErrorFields>,
    /// Settings that the server reported as changed.
    pub parameters: Vec<(String, String)>,
    /// Names and payloads of notifications.
    pub notifications: Vec<(String, String)>,
    /// The byte of ReadyForQuery: `I`, `T` or `E`.
    pub status: u8,
}

impl Answer {
    /// The first error, if a statement failed.
    pub fn error(&self) -> Option<&ErrorFields> {
        self.outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Failed(error) => Some(error),
            _ => None,
        })
    }

    /// The rows of the last statement that gave rows, as text.
    pub fn texts(&self) -> Vec<Vec<Option<String>>> {
        let last = self.outcomes.iter().rev().find_map(|outcome| match outcome {
            Outcome::Rows { rows, .. } => Some(rows),
            _ => None,
        });
        let text = |value: &Option<Bytes>| {
            value.as_ref().map(|value| String::from_utf8_lossy(value).into_owned())
        };
        last.map(|rows| rows.iter().map(|row| row.iter().map(text).collect()).collect())
            .unwrap_or_default()
    }
}

/// Rows beyond this are counted, not shown.
const ROWS_SHOWN: usize = 12;

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for outcome in &self.outcomes {
            writeln!(f, "{outcome}")?;
        }
        for notice in &self.notices {
            writeln!(f, "{} {}", notice.get(b'S').unwrap_or("NOTICE"), described(notice))?;
        }
        for (name, value) in &self.parameters {
            writeln!(f, "parameter {name} = {value}")?;
        }
        for (channel, payload) in &self.notifications {
            writeln!(f, "notification {channel}: {payload}")?;
        }
        write!(f, "status {}", char::from(self.status))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows { columns, rows, suspensions, tag } => {
                let names: Vec<String> = columns
                    .iter()
                    .map(|c| format!("{}:{}({})", c.name, c.type_oid, c.type_modifier))
                    .collect();
                writeln!(f, "{}", names.join(" | "))?;
                for row in rows.iter().take(ROWS_SHOWN) {
                    writeln!(f, "  {}", row_text(row))?;
                }
                if rows.len() > ROWS_SHOWN {
                    writeln!(f, "  … {} rows in all", rows.len())?;
                }
                if *suspensions > 0 {
                    writeln!(f, "  suspended {suspensions} times")?;
                }
                write!(f, "{tag}")
            }
            Self::Done { tag } => write!(f, "{tag}"),
            Self::CopyOut { data, tag, .. } => {
                let shown = &data[..data.len().min(600)];
                write!(f, "{}{tag}", shown.escape_ascii().to_string().replace("\\n", "\n"))
            }
            Self::Empty => write!(f, "(empty statement)"),
            Self::Failed(error) => write!(f, "ERROR {}", described(error)),
        }
    }
}

/// A row as text, values that are not text escaped.
pub fn row_text(row: &Row) -> String {
    let value = |value: &Option<Bytes>| match value {
        None => "NULL".to_owned(),
        Some(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => text.to_owned(),
            _ => bytes.escape_ascii().to_string(),
        },
    };
    row.iter().map(value).collect::<Vec<_>>().join(" | ")
}

fn described(error: &ErrorFields) -> String {
    let mut text = format!("{}: {}", error.sqlstate(), error.message());
    for (code, name) in [(b'D', "detail"), (b'H', "hint")] {
        if let Some(field) = error.get(code) {
            text.push_str(&format!(" [{name}: {field}]"));
        }
    }
    text
}
