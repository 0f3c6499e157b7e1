//! A client's session, as workloads use it.
//!
//! Owns: the trait, how a statement fails, and the session by tokio-postgres.
//! Never: knows what is asked. Start reading at [`Session`].

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::future::Future;

use bytes::BytesMut;
use tokio_postgres::error::Severity;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, SimpleQueryMessage, Statement};

use crate::client;

/// Rows as text; `None` is NULL.
pub type Rows = Vec<Vec<Option<String>>>;

/// What a workload needs of a client. A statement ends before the next one is asked for.
pub trait Session: Send {
    /// Runs a text without parameters and gives its rows.
    fn query(&mut self, sql: &str) -> impl Future<Output = Result<Rows, Failure>> + Send;

    /// Runs a statement whose parameters are integers (`$1`, `$2`, …), in whatever way this session
    /// sends parameters, and says how many rows it was about.
    fn execute(
        &mut self,
        sql: &str,
        values: &[i64],
    ) -> impl Future<Output = Result<u64, Failure>> + Send;

    /// As [`execute`](Self::execute), with parameters of other types, too.
    fn execute_with(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> impl Future<Output = Result<u64, Failure>> + Send;
}

/// A value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of any type.
    Null,
    /// `text`.
    Text(String),
    /// `integer` or `bigint`.
    Integer(i64),
    /// `double precision`.
    Real(f64),
}

impl Value {
    /// As a server writes it; `None` is NULL.
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text.clone()),
            Self::Integer(value) => Some(value.to_string()),
            Self::Real(value) => Some(value.to_string()),
        }
    }

    /// As it stands in a statement.
    pub fn literal(&self) -> String {
        match (self, self.text()) {
            (_, None) => "NULL".to_owned(),
            (Self::Text(_), Some(text)) => format!("'{}'", text.replace('\'', "''")),
            (_, Some(number)) => number,
        }
    }
}

/// Why a statement has no result.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The server said no, and the session goes on.
    Error {
        /// What kind of error.
        sqlstate: String,
        /// For people.
        message: String,
        /// What to do about it; empty if there is none.
        hint: String,
    },
    /// The session has ended: what the statement did is not known.
    Lost {
        /// For people.
        reason: String,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error { sqlstate, message, .. } => write!(f, "{sqlstate} {message}"),
            Self::Lost { reason } => f.write_str(reason),
        }
    }
}

impl std::error::Error for Failure {}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(told) = error.as_db_error() else {
            return Self::Lost { reason: error.to_string() };
        };
        let (sqlstate, message) = (told.code().code().to_owned(), told.message().to_owned());
        match told.parsed_severity() {
            Some(Severity::Fatal | Severity::Panic) => {
                Self::Lost { reason: format!("{sqlstate} {message}") }
            }
            _ => {
                Self::Error { sqlstate, message, hint: told.hint().unwrap_or_default().to_owned() }
            }
        }
    }
}

/// A session that prepares each statement with parameters once.
#[derive(Debug)]
pub struct PreparingSession {
    client: Client,
    prepared: HashMap<String, Statement>,
}

impl PreparingSession {
    /// Opens a session.
    pub async fn connect(url: &str) -> anyhow::Result<Self> {
        Ok(Self { client: client::connect(url).await?, prepared: HashMap::new() })
    }

    /// The client, for what is not part of a workload.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Prepares a statement, so that its first execution is like the others.
    pub async fn prepare(&mut self, sql: &str) -> Result<Statement, Failure> {
        if let Some(known) = self.prepared.get(sql) {
            return Ok(known.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

impl Session for PreparingSession {
    async fn query(&mut self, sql: &str) -> Result<Rows, Failure> {
        let answer = self.client.simple_query(sql).await?;
        let rows = answer.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let texts = rows.map(|row| (0..row.len()).map(|i| row.get(i).map(str::to_owned)).collect());
        Ok(texts.collect())
    }

    async fn execute(&mut self, sql: &str, values: &[i64]) -> Result<u64, Failure> {
        let statement = self.prepare(sql).await?;
        let integers = values.iter().map(|value| Value::Integer(*value));
        Ok(self.client.execute_raw(&statement, integers).await?)
    }

    async fn execute_with(&mut self, sql: &str, values: &[Value]) -> Result<u64, Failure> {
        let statement = self.prepare(sql).await?;
        Ok(self.client.execute_raw(&statement, values).await?)
    }
}

impl ToSql for Value {
    fn to_sql(
        &self,
        r#type: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match (self, r#type) {
            (Self::Null, _) => Ok(IsNull::Yes),
            (Self::Text(text), &Type::TEXT) => text.to_sql(r#type, out),
            (Self::Integer(value), &Type::INT4) => i32::try_from(*value)?.to_sql(r#type, out),
            (Self::Integer(value), &Type::INT8) => value.to_sql(r#type, out),
            (Self::Real(value), &Type::FLOAT8) => value.to_sql(r#type, out),
            _ => Err(format!("{self:?} is no {type}").into()),
        }
    }

    fn accepts(r#type: &Type) -> bool {
        matches!(*r#type, Type::TEXT | Type::INT4 | Type::INT8 | Type::FLOAT8)
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_sent_only_as_its_own_type() {
        let sent = |value: Value, r#type: &Type| {
            let mut out = BytesMut::new();
            value.to_sql(r#type, &mut out).map(|_| out.to_vec()).map_err(|error| error.to_string())
        };
        assert_eq!(sent(Value::Integer(258), &Type::INT4).unwrap(), [0, 0, 1, 2]);
        assert_eq!(sent(Value::Integer(1), &Type::INT8).unwrap(), [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(sent(Value::Text("it".to_owned()), &Type::TEXT).unwrap(), b"it");
        assert_eq!(sent(Value::Null, &Type::FLOAT8).unwrap(), b"");
        assert!(sent(Value::Integer(1 << 40), &Type::INT4).is_err(), "it does not fit");
        let said = sent(Value::Text("3".to_owned()), &Type::INT4).unwrap_err();
        assert_eq!(said, "Text(\"3\") is no int4");
    }

    #[test]
    fn a_literal_ends_where_its_text_does() {
        let of = |value: Value| value.literal();
        assert_eq!(of(Value::Text("O'Neill".to_owned())), "'O''Neill'");
        assert_eq!(
            [of(Value::Null), of(Value::Integer(-3)), of(Value::Real(2.5))],
            ["NULL", "-3", "2.5"]
        );
    }
}
