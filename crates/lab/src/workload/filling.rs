//! Making tables, and what they are filled with: made-up words and amounts, many rows at once.
//!
//! Owns: how rows get there. Never: knows a table. Start reading at [`Rows`].

use anyhow::Context;
use rand::Rng;
use rand::rngs::StdRng;

use super::dialect::Dialect;
use super::session::Session;

/// Rows that one INSERT has.
const ROWS_AT_ONCE: usize = 500;
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// Makes tables that are on every server (name, columns), tables whose rows are where the hash of a key says (name,
/// columns, key), and indexes.
pub(super) async fn make_tables<S: Session>(
    session: &mut S,
    dialect: Dialect,
    everywhere: &[(&str, &str)],
    by_hash: &[(&str, &str, &str)],
    indexes: &[&str],
) -> anyhow::Result<()> {
    let mut statements = Vec::new();
    for (table, columns) in everywhere {
        statements.extend(dialect.replicated(table, columns));
    }
    for (table, columns, key) in by_hash {
        statements.extend(dialect.by_hash(table, columns, key));
    }
    statements.extend(indexes.iter().copied().map(str::to_owned));
    for statement in statements {
        session.query(&statement).await.context(statement)?;
    }
    Ok(())
}

/// Fills tables with rows, each given with its table, and has them analysed.
pub(super) async fn fill<S: Session>(
    session: &mut S,
    tables: impl Iterator<Item = &'static str>,
    rows: impl Iterator<Item = (&'static str, String)>,
) -> anyhow::Result<()> {
    let mut into: Vec<_> = tables.map(Rows::into).collect();
    for (table, row) in rows {
        let rows = into.iter_mut().find(|rows| rows.table == table);
        rows.context("a row of no table")?.add(session, row).await?;
    }
    for rows in &mut into {
        rows.end(session).await?;
        let analyze = format!("ANALYZE {}", rows.table);
        session.query(&analyze).await.context(analyze)?;
    }
    Ok(())
}

/// Rows on their way into a table.
pub(super) struct Rows {
    table: &'static str,
    rows: Vec<String>,
}

impl Rows {
    pub(super) fn into(table: &'static str) -> Self {
        Self { table, rows: Vec::new() }
    }

    pub(super) async fn add<S: Session>(
        &mut self,
        session: &mut S,
        row: String,
    ) -> anyhow::Result<()> {
        self.rows.push(row);
        if self.rows.len() < ROWS_AT_ONCE { Ok(()) } else { self.end(session).await }
    }

    pub(super) async fn end<S: Session>(&mut self, session: &mut S) -> anyhow::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let sql = format!("INSERT INTO {} VALUES ({})", self.table, self.rows.join("), ("));
        self.rows.clear();
        session.query(&sql).await.with_context(|| format!("fill {}", self.table))?;
        Ok(())
    }
}

/// Cents as SQL has an amount.
pub(super) fn cents(amount: i64) -> String {
    let sign = if amount < 0 { "-" } else { "" };
    let amount = amount.abs();
    format!("{sign}{}.{:02}", amount / 100, amount % 100)
}

/// Letters and digits.
pub(super) fn text(chars: std::ops::RangeInclusive<usize>, random: &mut StdRng) -> String {
    let count = random.random_range(chars);
    let letter = |_| char::from(LETTERS[random.random_range(0..LETTERS.len())]);
    (0..count).map(letter).collect()
}

pub(super) fn digits(count: usize, random: &mut StdRng) -> String {
    (0..count).map(|_| char::from(b'0' + random.random_range(0..10_u8))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        assert_eq!([0, 5, 123, -100_050].map(cents), ["0.00", "0.05", "1.23", "-1000.50"]);
    }
}
