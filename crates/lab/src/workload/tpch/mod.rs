//! TPC-H: the questions that a wholesale supplier asks of its orders, and whether the answers are right.
//!
//! Owns: the workload as the lab runs it: one query is one transaction, and every 22 in a row are the 22 queries in
//! an order of their own. Never: changes a row once the tables are filled; claims that a figure is a TPC result.
//! Source: TPC Benchmark H, revision 3.0; what differs is in docs/lab/workloads.md.
//! Start reading at [`TpcH`], then [`queries`].

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use anyhow::{Context, ensure};
use rand::rngs::StdRng;

use super::dialect::Dialect;
use super::session::{Rows, Session};
use super::{Asked, Believed, Found, Outcome, Workload};

mod answers;
mod draws;
mod load;
mod queries;
mod rows;
mod words;

use answers::Answer;
use draws::Draws;
use load::Totals;
use queries::QUERIES;
use rows::Size;

/// The orders of a wholesale supplier, read only.
#[derive(Debug)]
pub struct TpcH {
    size: Size,
    dialect: Dialect,
    /// What each query was answered first. The rows stay, so the answer must.
    first: Mutex<BTreeMap<usize, Answer>>,
    made: OnceLock<Totals>,
}

impl TpcH {
    /// With so much of the standard's rows: `scale` 1 is about a gigabyte.
    pub fn new(scale: f64, dialect: Dialect) -> Self {
        let size = Size::of_scale(scale);
        Self { size, dialect, first: Mutex::default(), made: OnceLock::new() }
    }

    /// Compares an answer with what is known of it.
    ///
    /// Errors: it differs from the one that is kept with the lab, or from the first one.
    fn judge(&self, query: usize, rows: Rows) -> anyhow::Result<()> {
        let answer = Answer::of(rows);
        if let Some(known) = answers::known(self.size, query) {
            ensure!(
                answer.digest() == known,
                "{} is answered wrongly: its {} rows have the digest {:016x}, one PostgreSQL's have {known:016x}",
                QUERIES[query].0,
                answer.rows(),
                answer.digest()
            );
        }
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let before = first.entry(query).or_insert_with(|| answer.clone());
        before
            .compare(&answer)
            .with_context(|| format!("{} was answered differently", QUERIES[query].0))
    }
}

/// Which query a transaction is, from 0.
fn query_of(number: i64) -> usize {
    let count = QUERIES.len() as i64;
    let (turn, place) = ((number - 1).div_euclid(count), (number - 1).rem_euclid(count));
    let mut order: Vec<usize> = (0..QUERIES.len()).collect();
    let mut draws = Draws::of("turn", turn);
    for last in (1..order.len()).rev() {
        order.swap(last, draws.within(0..=last as i64) as usize);
    }
    order[place as usize]
}

impl Workload for TpcH {
    async fn setup<S: Session>(&self, session: &mut S) -> anyhow::Result<()> {
        load::load(session, self.size, self.dialect).await
    }

    async fn transaction<S: Session>(
        &self,
        session: &mut S,
        number: i64,
        _: &mut StdRng,
    ) -> anyhow::Result<Outcome> {
        let query = query_of(number);
        let sql = queries::text(query, self.size.scale);
        let begun = Instant::now();
        let answer = session.query(&sql).await;
        let took = begun.elapsed();
        let told = match answer {
            Ok(rows) => {
                self.judge(query, rows)?;
                Ok(())
            }
            Err(failure) => Err(failure),
        };
        Ok(Outcome::decided(told, took).of_kind(QUERIES[query].0))
    }

    async fn check<S: Session>(
        &self,
        parts: &mut [S],
        whole: Option<&mut S>,
        asked: &Asked,
    ) -> anyhow::Result<Found> {
        let made = self.made.get_or_init(|| Totals::made(self.size));
        made.compare(&Totals::read(parts).await?).context("not the rows that were made")?;
        if let Some(gateway) = whole {
            let seen = Totals::read(std::slice::from_mut(gateway)).await?;
            made.compare(&seen).context("the gateway sees other rows")?;
        }
        // Whose answer was wrong has ended the run.
        let right = asked.values().filter(|believed| **believed == Believed::Acknowledged);
        Ok(Found { acknowledged: right.count(), ..Found::default() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_turn_asks_every_query_in_an_order_of_its_own() {
        let turn = |first: i64| (first..first + 22).map(query_of).collect::<Vec<_>>();
        let all: BTreeSet<usize> = (0..22).collect();
        for first in [1, 23, 45] {
            assert_eq!(turn(first).into_iter().collect::<BTreeSet<_>>(), all);
        }
        assert_ne!(turn(1), turn(23));
    }

    /// A row that is lost, doubled or changed, in a query of which no answer is kept.
    #[test]
    fn an_answer_that_changes_is_an_error() {
        let row = |text: &str| vec![Some(text.to_owned()), None];
        let workload = TpcH::new(0.002, Dialect::Plain);
        workload.judge(3, vec![row("a"), row("b")]).unwrap();
        workload.judge(3, vec![row("b"), row("a")]).unwrap();
        for wrong in [vec![row("a")], vec![row("a"), row("b"), row("b")], vec![row("a"), row("c")]]
        {
            let said = format!("{:#}", workload.judge(3, wrong).unwrap_err());
            assert!(said.starts_with("Q04 was answered differently"), "{said}");
        }
        workload.judge(4, vec![row("c")]).unwrap();
    }

    #[test]
    fn an_answer_that_is_kept_is_held_against_the_first_one_too() {
        let workload = TpcH::new(0.01, Dialect::Plain);
        let said = format!("{:#}", workload.judge(0, Vec::new()).unwrap_err());
        assert!(said.starts_with("Q01 is answered wrongly"), "{said}");
    }
}
