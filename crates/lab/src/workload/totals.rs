//! Whether tables are as they were filled: how many rows each has, and sums over them.
//!
//! Owns: the questions, and the comparison. Never: fills a table.
//! Start reading at [`Totals`].

use std::collections::BTreeMap;

use anyhow::{Context, ensure};

use super::session::Session;
use super::transfers::integers;
use super::{Asked, Believed, Found};

/// A table: whether every server has all of its rows, and what four sums are of.
pub(super) type Summed = (&'static str, bool, [&'static str; 4]);

/// How many rows each table has, and sums over them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Totals(BTreeMap<&'static str, [i64; 5]>);

impl Totals {
    /// Of the rows as they are made: of each its table, and four figures.
    pub(super) fn made(rows: impl Iterator<Item = (&'static str, [i64; 4])>) -> Self {
        let mut this = Self::default();
        for (table, [one, two, three, four]) in rows {
            this.add(table, [1, one, two, three, four]);
        }
        this
    }

    fn add(&mut self, table: &'static str, more: [i64; 5]) {
        let sums = self.0.entry(table).or_default();
        for (sum, more) in sums.iter_mut().zip(more) {
            *sum += more;
        }
    }

    /// How many rows a table has.
    #[cfg(test)]
    pub(super) fn rows(&self, table: &str) -> i64 {
        self.0[table][0]
    }

    /// Of all servers that together have all rows.
    ///
    /// Errors: copies differ.
    async fn read<S: Session>(tables: &[Summed], parts: &mut [S]) -> anyhow::Result<Self> {
        let mut this = Self::default();
        for (number, part) in parts.iter_mut().enumerate() {
            for (table, is_everywhere, figures) in tables.iter().copied() {
                let sums = figures.map(|figure| format!("coalesce(sum({figure}), 0)::bigint"));
                let sql = format!("SELECT count(*), {} FROM {table}", sums.join(", "));
                let rows = integers(part, &sql).await?;
                let row = rows.first().and_then(|row| <[i64; 5]>::try_from(&row[..]).ok());
                let row = row.with_context(|| format!("no sums: {sql}"))?;
                if is_everywhere && 0 < number {
                    let first = this.0.get(table);
                    ensure!(first == Some(&row), "copies of {table} differ: {first:?}, {row:?}");
                } else {
                    this.add(table, row);
                }
            }
        }
        Ok(this)
    }

    /// What of a read-only workload is found: tables as they were made, on all servers together and by the gateway.
    ///
    /// Errors: they are not.
    pub(super) async fn check<S: Session>(
        &self,
        tables: &[Summed],
        parts: &mut [S],
        whole: Option<&mut S>,
        asked: &Asked,
    ) -> anyhow::Result<Found> {
        self.compare(&Self::read(tables, parts).await?).context("not the rows that were made")?;
        if let Some(gateway) = whole {
            let seen = Self::read(tables, std::slice::from_mut(gateway)).await?;
            self.compare(&seen).context("the gateway sees other rows")?;
        }
        // Whose answer was wrong has ended the run.
        let right = asked.values().filter(|believed| **believed == Believed::Acknowledged);
        Ok(Found { acknowledged: right.count(), ..Found::default() })
    }

    /// Errors: the first table that differs.
    fn compare(&self, there: &Self) -> anyhow::Result<()> {
        for (table, made) in &self.0 {
            let is = there.0.get(table).copied().unwrap_or_default();
            ensure!(is == *made, "{table}: rows and sums are {is:?}, not {made:?}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_is_lost_is_missed() {
        let made = Totals::made([("a", [1, 2, 3, 4]), ("b", [5, 6, 7, 8])].into_iter());
        made.compare(&made.clone()).unwrap();
        for table in ["a", "b"] {
            let mut there = made.clone();
            there.add(table, [-1, 0, 0, 0, 0]);
            let said = made.compare(&there).unwrap_err().to_string();
            assert!(said.starts_with(table), "{said}");
            let mut changed = made.clone();
            changed.add(table, [0, 1, 0, 0, 0]);
            assert!(made.compare(&changed).is_err());
        }
    }
}
