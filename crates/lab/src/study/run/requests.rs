//! Transactions as requests that are executed once.
//!
//! Owns: what BEGIN and COMMIT of a workload become then. Never: knows what is between them.
//! What a request is: docs/protocol/exactly-once.md.
//! Start reading at [`Requesting`].

use serde::{Deserialize, Serialize};
use tutti_lab::workload::session::{Failure, PreparingSession, Rows, Session, Value};

/// Which transactions are requests.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Requests {
    /// None.
    #[default]
    None,
    /// Each is the first instance of one.
    Each,
    /// Each is the second instance of one whose first has done everything but commit, over another connection.
    AfterSibling,
}

impl Requests {
    /// In a run's name; empty for what is usual.
    pub(super) fn in_words(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Each => "as requests",
            Self::AfterSibling => "as requests after pending siblings",
        }
    }
}

/// What it has in place of an error, for who stops before its COMMIT.
const PENDING: &str = "pending";

/// A session whose next transaction is an instance of a request.
pub(super) struct Requesting<'s> {
    pub(super) session: &'s mut PreparingSession,
    /// The request's name.
    pub(super) family: String,
    pub(super) instance: u32,
    /// It does everything but commit.
    pub(super) stays_pending: bool,
}

impl Session for Requesting<'_> {
    async fn query(&mut self, sql: &str) -> Result<Rows, Failure> {
        match sql {
            "BEGIN" => {
                let begin = format!("BEGIN_MIP '{}', {}", self.family, self.instance);
                self.session.query(&begin).await
            }
            "COMMIT" if self.stays_pending => Err(Failure::Error {
                sqlstate: PENDING.to_owned(),
                message: "it is not committed".to_owned(),
                hint: String::new(),
            }),
            "COMMIT" => self.session.query("SELECT tutti_remember('done'); COMMIT").await,
            other => self.session.query(other).await,
        }
    }

    async fn execute(&mut self, sql: &str, values: &[i64]) -> Result<u64, Failure> {
        self.session.execute(sql, values).await
    }

    async fn execute_with(&mut self, sql: &str, values: &[Value]) -> Result<u64, Failure> {
        self.session.execute_with(sql, values).await
    }
}
