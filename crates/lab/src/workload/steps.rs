//! The statements of a transaction, one after the other, and why it does not come to its COMMIT.
//!
//! Owns: BEGIN, COMMIT and ROLLBACK around them, and what its client may believe then. Never: knows what they do.
//! Start reading at [`carry_out`].

use std::future::Future;
use std::time::Instant;

use anyhow::anyhow;

use super::Outcome;
use super::session::{Failure, Session};

/// What is done between BEGIN and COMMIT.
pub(super) trait Work: Sync {
    /// Does it.
    fn work<S: Session>(&self, session: &mut S) -> impl Future<Output = Result<(), Stop>> + Send;
}

/// Carries out a transaction of a kind.
///
/// Errors: an answer that cannot be.
pub(super) async fn carry_out<S: Session>(
    session: &mut S,
    kind: &'static str,
    number: i64,
    work: impl Work,
) -> anyhow::Result<Outcome> {
    let worked = match session.query("BEGIN").await {
        Ok(_) => work.work(session).await,
        Err(failure) => Err(failure.into()),
    };
    let begun = Instant::now();
    match worked {
        Ok(()) => {
            let answer = session.query("COMMIT").await.map(|_| ());
            Ok(Outcome::decided(answer, begun.elapsed()).of_kind(kind))
        }
        Err(Stop::Wrong) => match session.query("ROLLBACK").await {
            Ok(_) => Ok(Outcome::rolled_back(begun.elapsed()).of_kind(kind)),
            Err(failure) => Ok(Outcome::not_asked(failure).of_kind(kind)),
        },
        Err(Stop::Refused(failure)) => Ok(Outcome::not_asked(failure).of_kind(kind)),
        Err(Stop::Impossible(error)) => Err(error.context(format!("{kind}, number {number}"))),
    }
}

/// Why a transaction does not come to its COMMIT.
#[derive(Debug)]
pub(super) enum Stop {
    /// It was asked for something that does not exist, as one in a hundred is, and is to be rolled back.
    Wrong,
    Refused(Failure),
    /// An answer that cannot be.
    Impossible(anyhow::Error),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Self {
        Self::Impossible(error)
    }
}

/// The one row that a query has.
pub(super) async fn one<S: Session>(
    session: &mut S,
    sql: &str,
) -> Result<Vec<Option<String>>, Stop> {
    let mut rows = session.query(sql).await?;
    match (rows.pop(), rows.len()) {
        (Some(row), 0) => Ok(row),
        (_, more) => bail_impossible(format!("not one row but {more} more: {sql}")),
    }
}

pub(super) fn bail_impossible<T>(what: String) -> Result<T, Stop> {
    Err(Stop::Impossible(anyhow!(what)))
}

/// A column of integers.
pub(super) fn integer(row: &[Option<String>], column: usize) -> anyhow::Result<i64> {
    let text = row.get(column).and_then(Option::as_deref).unwrap_or_default();
    text.parse().map_err(|_| anyhow!("column {column} is no integer: {text:?}"))
}
