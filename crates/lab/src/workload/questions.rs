//! Queries over tables that stay as they are: in which order they are asked, and whether the answers are right.
//!
//! Owns: what an answer is, and that each query's answer stays the same. Never: knows a query.
//! Start reading at [`Questions`].

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, bail, ensure};

use super::Outcome;
use super::draws::Draws;
use super::fnv::fnv_1a;
use super::session::{self, Session};

/// Some queries, by their names.
#[derive(Debug)]
pub(super) struct Questions {
    names: Vec<&'static str>,
    /// What each was answered first. The rows stay, so the answer must.
    first: Mutex<BTreeMap<usize, Answer>>,
}

impl Questions {
    pub(super) fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        Self { names: names.into_iter().collect(), first: Mutex::default() }
    }

    fn name(&self, query: usize) -> &'static str {
        self.names[query]
    }

    /// Which query a transaction is, from 0: as many in a row as there are, are all of them, in an order of their own.
    pub(super) fn query_of(&self, number: i64) -> usize {
        let count = self.names.len() as i64;
        let (turn, place) = ((number - 1).div_euclid(count), (number - 1).rem_euclid(count));
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        let mut draws = Draws::of("turn", turn);
        for last in (1..order.len()).rev() {
            order.swap(last, draws.within(0..=last as i64) as usize);
        }
        order[place as usize]
    }

    /// Asks one of them, by this text, as a transaction.
    ///
    /// Errors: as [`Self::judge`].
    pub(super) async fn ask<S: Session>(
        &self,
        session: &mut S,
        query: usize,
        sql: &str,
        known: Option<u64>,
    ) -> anyhow::Result<Outcome> {
        let begun = Instant::now();
        let answer = session.query(sql).await;
        let took = begun.elapsed();
        let told = match answer {
            Ok(rows) => {
                self.judge(query, rows, known)?;
                Ok(())
            }
            Err(failure) => Err(failure),
        };
        Ok(Outcome::decided(told, took).of_kind(self.name(query)))
    }

    /// Compares an answer with the first one, and with the digest of the right one, where that is known.
    ///
    /// Errors: it differs.
    fn judge(&self, query: usize, rows: session::Rows, known: Option<u64>) -> anyhow::Result<()> {
        let answer = Answer::of(rows);
        if let Some(known) = known {
            ensure!(
                answer.digest() == known,
                "{} is answered wrongly: its {} rows have the digest {:016x}, one PostgreSQL's have {known:016x}",
                self.name(query),
                answer.0.len(),
                answer.digest()
            );
        }
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let before = first.entry(query).or_insert_with(|| answer.clone());
        before
            .compare(&answer)
            .with_context(|| format!("{} was answered differently", self.name(query)))
    }
}

/// Rows, in an order that does not depend on the server's.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Answer(Vec<String>);

impl Answer {
    fn of(rows: session::Rows) -> Self {
        let text = |row: Vec<Option<String>>| {
            let values: Vec<String> =
                row.into_iter().map(|value| value.unwrap_or_else(|| "\\N".to_owned())).collect();
            values.join("\t")
        };
        let mut rows: Vec<String> = rows.into_iter().map(text).collect();
        rows.sort_unstable();
        Self(rows)
    }

    fn digest(&self) -> u64 {
        fnv_1a(self.0.iter().flat_map(|row| row.bytes().chain([b'\n'])))
    }

    /// Errors: the first row that differs.
    fn compare(&self, other: &Self) -> anyhow::Result<()> {
        for (before, now) in self.0.iter().zip(&other.0) {
            ensure!(before == now, "a row was {before:?} and is {now:?}");
        }
        if self.0.len() != other.0.len() {
            bail!("there were {} rows and are {}", self.0.len(), other.0.len());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn questions() -> Questions {
        Questions::new(["a", "b", "c", "d", "e", "f", "g"])
    }

    #[test]
    fn each_turn_asks_every_query_in_an_order_of_its_own() {
        let asked = questions();
        let turn = |first: i64| (first..first + 7).map(|it| asked.query_of(it)).collect::<Vec<_>>();
        let all: BTreeSet<usize> = (0..7).collect();
        for first in [1, 8, 15] {
            assert_eq!(turn(first).into_iter().collect::<BTreeSet<_>>(), all);
        }
        assert_ne!(turn(1), turn(8));
    }

    /// A row that is lost, doubled or changed, in a query of which no answer is known.
    #[test]
    fn an_answer_that_changes_is_an_error() {
        let row = |text: &str| vec![Some(text.to_owned()), None];
        let asked = questions();
        asked.judge(3, vec![row("a"), row("b")], None).unwrap();
        asked.judge(3, vec![row("b"), row("a")], None).unwrap();
        for wrong in [vec![row("a")], vec![row("a"), row("b"), row("b")], vec![row("a"), row("c")]]
        {
            let said = format!("{:#}", asked.judge(3, wrong, None).unwrap_err());
            assert!(said.starts_with("d was answered differently"), "{said}");
        }
        asked.judge(4, vec![row("c")], None).unwrap();
    }

    #[test]
    fn an_answer_that_is_known_is_held_against_the_first_one_too() {
        let said = format!("{:#}", questions().judge(0, Vec::new(), Some(7)).unwrap_err());
        assert!(said.starts_with("a is answered wrongly"), "{said}");
    }

    #[test]
    fn the_order_of_rows_makes_no_difference_and_their_values_do() {
        let row = |a: &str, b: Option<&str>| vec![Some(a.to_owned()), b.map(str::to_owned)];
        let of = |rows: &[Vec<Option<String>>]| Answer::of(rows.to_vec()).digest();
        let (one, two) = (row("1", None), row("2", Some("x")));
        assert_eq!(of(&[one.clone(), two.clone()]), of(&[two.clone(), one.clone()]));
        assert_ne!(of(std::slice::from_ref(&one)), of(&[one.clone(), one.clone()]));
        assert_ne!(of(&[one]), of(&[row("1", Some(""))]));
        // The test vector of the algorithm's authors for no bytes.
        assert_eq!(of(&[]), 0xcbf2_9ce4_8422_2325);
    }
}
