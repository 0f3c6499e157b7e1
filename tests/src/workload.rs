//! The lab's workloads by the client with exact control over the protocol.
//!
//! Owns: that client as a session of a workload. Never: knows a workload.
//! Start reading at [`at_once`].

use std::future::{Future, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tutti_lab::workload::session::{Rows, Value};
use tutti_lab::workload::{Failure, Session};

use crate::answer::{Answer, Outcome};
use crate::client::{Client, Endpoint};

/// What comes of a workload's step on sessions that block: such a step never waits for anything else.
pub fn at_once<T>(step: impl Future<Output = T>) -> T {
    match pin!(step).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a session that blocks has nothing to wait for"),
    }
}

/// A session with each of these.
pub fn sessions(endpoints: &[Endpoint]) -> anyhow::Result<Vec<Client>> {
    endpoints.iter().map(Client::connect).collect()
}

/// By the simple protocol; parameters become part of the text.
impl Session for Client {
    fn query(&mut self, sql: &str) -> impl Future<Output = Result<Rows, Failure>> + Send {
        ready(ask(self, sql).map(|answer| answer.texts()))
    }

    fn execute(
        &mut self,
        sql: &str,
        values: &[i64],
    ) -> impl Future<Output = Result<u64, Failure>> + Send {
        let texts: Vec<String> = values.iter().map(i64::to_string).collect();
        ready(ask(self, &with_values(sql, &texts)).map(|answer| rows_affected(&answer)))
    }

    fn execute_with(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> impl Future<Output = Result<u64, Failure>> + Send {
        let literals: Vec<String> = values.iter().map(Value::literal).collect();
        ready(ask(self, &with_values(sql, &literals)).map(|answer| rows_affected(&answer)))
    }
}

fn ask(client: &mut Client, sql: &str) -> Result<Answer, Failure> {
    let lost = |error: anyhow::Error| Failure::Lost { reason: format!("{error:#}") };
    let answer = client.simple(sql, &[]).map_err(lost)?;
    let Some(error) = answer.error() else { return Ok(answer) };
    Err(Failure::Error {
        sqlstate: error.sqlstate().to_owned(),
        message: error.message().to_owned(),
        hint: error.get(b'H').unwrap_or_default().to_owned(),
    })
}

/// In one pass, so that `$1` is found neither in `$10` nor in a value.
fn with_values(sql: &str, values: &[String]) -> String {
    let mut pieces = sql.split('$');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let after = piece.trim_start_matches(|it: char| it.is_ascii_digit());
        let number: Option<usize> = piece[..piece.len() - after.len()].parse().ok();
        match number.and_then(|number| values.get(number.checked_sub(1)?)) {
            Some(value) => text.extend([value.as_str(), after]),
            None => text.extend(["$", piece]),
        }
    }
    text
}

/// From the last tag: `UPDATE 1`.
fn rows_affected(answer: &Answer) -> u64 {
    let tag = answer.outcomes.last().and_then(|outcome| match outcome {
        Outcome::Rows { tag, .. } | Outcome::Done { tag } => Some(tag),
        _ => None,
    });
    tag.and_then(|tag| tag.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_part_of_the_text() {
        let sql = "VALUES ($1, $2), ($10)";
        let mut values = [-1, 20, 3, 4, 5, 6, 7, 8, 9, 10].map(|it: i64| it.to_string());
        assert_eq!(with_values(sql, &values), "VALUES (-1, 20), (10)");
        values[0] = Value::Text("costs $2".to_owned()).literal();
        assert_eq!(with_values("VALUES ($1, $2, '$')", &values), "VALUES ('costs $2', 20, '$')");
    }

    #[test]
    fn rows_are_counted_by_the_tag() {
        let answer = |tag: &str| {
            let outcomes = vec![Outcome::Done { tag: tag.to_owned() }];
            Answer { outcomes, ..Answer::default() }
        };
        assert_eq!(rows_affected(&answer("INSERT 0 2")), 2);
        assert_eq!(rows_affected(&answer("COMMIT")), 0);
    }
}
