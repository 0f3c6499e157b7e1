//! TPC-H: the questions that a wholesale supplier asks of its orders, and whether the answers are right.
//!
//! Owns: the workload as the lab runs it: one query is one transaction, and every 22 in a row are the 22 queries in
//! an order of their own. Never: changes a row once the tables are filled; claims that a figure is a TPC result.
//! Source: TPC Benchmark H, revision 3.0; what differs is in docs/lab/workloads.md.
//! Start reading at [`TpcH`], then [`queries`].

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
pub(super) mod rows;

use load::TABLES;
use queries::QUERIES;
use rows::Size;

/// The orders of a wholesale supplier, read only.
#[derive(Debug)]
pub struct TpcH {
    size: Size,
    dialect: Dialect,
    questions: Questions,
    made: OnceLock<Totals>,
}

impl TpcH {
    /// With so much of the standard's rows: `scale` 1 is about a gigabyte.
    pub fn new(scale: f64, dialect: Dialect) -> Self {
        let size = Size::of_scale(scale);
        let questions = Questions::new(QUERIES.map(|(name, _)| name));
        Self { size, dialect, questions, made: OnceLock::new() }
    }
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
        let query = self.questions.query_of(number);
        let known = answers::known(self.size, query);
        self.questions.ask(session, query, &queries::text(query, self.size.scale), known).await
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
