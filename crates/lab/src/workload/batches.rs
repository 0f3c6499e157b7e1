//! Batches of rows that land on every node, each by one statement that commits by itself.
//!
//! Owns: the table, and that a batch is there whole or not at all.
//! Never: chooses clients, nor what fails while they run. Start reading at [`Batches`].

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, ensure};
use rand::rngs::StdRng;

use super::session::Session;
use super::transfers::integers;
use super::{Asked, Found, Outcome, Workload};

/// Batches of so many rows: enough that every node gets some.
#[derive(Clone, Copy, Debug)]
pub struct Batches {
    /// Rows in each.
    pub rows: i64,
}

impl Workload for Batches {
    async fn setup<S: Session>(&self, session: &mut S) -> anyhow::Result<()> {
        let statement = "CREATE TABLE marker (slot bigint, batch bigint, PRIMARY KEY (slot, batch)) \
                         DISTRIBUTE BY HASH (slot)";
        session.query(statement).await.context(statement)?;
        Ok(())
    }

    async fn transaction<S: Session>(
        &self,
        session: &mut S,
        number: i64,
        _: &mut StdRng,
    ) -> anyhow::Result<Outcome> {
        let rows: Vec<String> = (1..=self.rows).map(|slot| format!("({slot}, {number})")).collect();
        let begun = Instant::now();
        let answer = session.query(&format!("INSERT INTO marker VALUES {}", rows.join(", "))).await;
        Ok(Outcome::decided(answer.map(|_| ()), begun.elapsed()))
    }

    async fn check<S: Session>(
        &self,
        parts: &mut [S],
        whole: Option<&mut S>,
        asked: &Asked,
    ) -> anyhow::Result<Found> {
        let mut batches: BTreeMap<i64, i64> = BTreeMap::new();
        for part in parts {
            for row in integers(part, "SELECT batch, count(*) FROM marker GROUP BY batch").await? {
                *batches.entry(row[0]).or_default() += row[1];
            }
        }
        for (number, rows) in &batches {
            ensure!(*rows == self.rows, "batch {number} is half done: {rows} rows");
        }
        if let Some(gateway) = whole {
            let seen = integers(gateway, "SELECT count(*) FROM marker").await?[0][0];
            let rows: i64 = batches.values().sum();
            ensure!(seen == rows, "the gateway sees {seen} rows of {rows}");
        }
        Found::compare("batch", asked, &batches.into_keys().collect())
    }
}
