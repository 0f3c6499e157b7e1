//! The Star Schema Benchmark: a wholesaler's sales, and what is asked of them by time, place and kind of goods.
//!
//! Owns: the workload as the lab runs it: one query is one transaction, and every 13 in a row are the 13 queries in an
//! order of their own. Never: changes a row once the tables are filled.
//! Source: O'Neil, O'Neil, Chen, Revilak: "The Star Schema Benchmark and Augmented Fact Table Indexing", TPCTC 2009; what
//! differs is in docs/lab/workloads.md.
//! Start reading at [`Ssb`], then [`queries`].

use std::sync::OnceLock;

use rand::rngs::StdRng;

use super::dialect::Dialect;
use super::questions::Questions;
use super::session::Session;
use super::totals::Totals;
use super::{Asked, Found, Outcome, Workload};

mod answers;
mod load;
mod queries;
mod rows;

use load::TABLES;
use queries::QUERIES;
use rows::Size;

/// Sales, read only.
#[derive(Debug)]
pub struct Ssb {
    size: Size,
    dialect: Dialect,
    questions: Questions,
    made: OnceLock<Totals>,
}

impl Ssb {
    /// With so much of the original's rows: `scale` 1 has six million lines of orders.
    pub fn new(scale: f64, dialect: Dialect) -> Self {
        let questions = Questions::new(QUERIES.map(|(name, _)| name));
        Self { size: Size::of_scale(scale), dialect, questions, made: OnceLock::new() }
    }
}

impl Workload for Ssb {
    async fn setup<S: Session>(&self, session: &mut S) -> anyhow::Result<()> {
        load::load(session, self.size, self.dialect).await
    }

    async fn transaction<S: Session>(
        &self,
        session: &mut S,
        number: i64,
        _: &mut StdRng,
    ) -> anyhow::Result<Outcome> {
        let query = self.questions.query_of(number);
        let known = answers::known(self.size, query);
        self.questions.ask(session, query, QUERIES[query].1, known).await
    }

    async fn check<S: Session>(
        &self,
        parts: &mut [S],
        whole: Option<&mut S>,
        asked: &Asked,
    ) -> anyhow::Result<Found> {
        let made = self.made.get_or_init(|| load::made(self.size));
        made.check(&TABLES, parts, whole, asked).await
    }
}
