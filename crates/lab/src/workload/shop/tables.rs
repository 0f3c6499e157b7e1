//! The shop's tables: how they are made and filled, and what a server has of them.
//!
//! Owns: their columns, the rows there are at first, and when servers have the same. Never: changes a row.
//! Start reading at [`make`].

use anyhow::{Context, ensure};

use super::super::dialect::Dialect;
use super::super::session::{Rows, Session};
use super::size::{Commit, Size};

/// Every server has all rows of each.
pub const TABLES: [&str; 3] = ["shopper", "item", "purchase"];
/// A number that no item's stock falls to zero from.
pub const STOCK: i64 = 1_000_000;
/// What an item may cost; each has its price from its number.
pub(super) const PRICES: i64 = 90;
/// By how much a price rises; above the greatest it begins anew.
pub(super) const PRICE_STEP: i64 = 7;

/// How often, and how long between two, servers are asked until they have the same: a minute in all.
const LOOKS_MAX: usize = 1_200;
const BETWEEN_LOOKS: &str = "SELECT pg_sleep(0.05)";

/// Makes and fills them, so that every server has all rows from the first moment on.
///
/// Errors: those of the statements; only a Tutti's nodes commit one by one.
pub async fn make<S: Session>(
    session: &mut S,
    size: Size,
    dialect: Dialect,
    commit: Commit,
) -> anyhow::Result<()> {
    let about = size.data.sql_type();
    let item = format!(
        "id bigint PRIMARY KEY, name text NOT NULL, price bigint NOT NULL, stock bigint NOT NULL, \
         about {about} NOT NULL"
    );
    let mut statements = Vec::new();
    for (table, columns) in [
        ("shopper", "id bigint PRIMARY KEY, name text NOT NULL, spent bigint NOT NULL"),
        ("item", &item),
        (
            "purchase",
            "id bigint PRIMARY KEY, shopper bigint NOT NULL, item bigint NOT NULL, shipped boolean NOT NULL",
        ),
    ] {
        statements.extend(dialect.replicated(table, columns));
    }
    let item = format!(
        "'item no. ' || i, 1 + i % {PRICES}, {STOCK}, {}",
        size.data.sql_value("i", size.data_bytes)
    );
    for (table, count, row) in
        [("shopper", size.shoppers, "'shopper no. ' || i, 0"), ("item", size.items(), &item)]
    {
        statements.push(format!(
            "INSERT INTO {table} SELECT i, {row} FROM generate_series(1, {count}) i"
        ));
    }
    // Only now: what fills them would arrive later otherwise, and looks would miss it.
    if commit == Commit::Base {
        ensure!(dialect == Dialect::Tutti, "only tables of a Tutti are replicated asynchronously");
        statements.extend(
            TABLES.map(|table| format!("SELECT tutti_replicate('{table}', async => true)")),
        );
    }
    for statement in statements {
        session.query(&statement).await.context(statement)?;
    }
    Ok(())
}

/// Rows and a hash of each table, as one server has it.
pub(super) async fn state<S: Session>(part: &mut S) -> anyhow::Result<Vec<Rows>> {
    let mut state = Vec::new();
    for table in TABLES {
        // A hash of hashes: no value becomes too long where items are large.
        let sql = format!(
            "SELECT count(*), md5(string_agg(md5(t::text), '' ORDER BY id)) FROM {table} t"
        );
        state.push(part.query(&sql).await.context(sql)?);
    }
    Ok(state)
}

/// Makes sure that all have the same: at once where every commit is on all of them, else when everything that is on
/// its way has arrived.
///
/// Errors: they differ.
pub async fn converge<S: Session>(parts: &mut [S], commit: Commit) -> anyhow::Result<()> {
    let mut states = states(parts).await?;
    let looks = match commit {
        Commit::Acid => 0,
        Commit::Base => LOOKS_MAX,
    };
    for _ in 0..looks {
        if are_alike(&states) {
            return Ok(());
        }
        // The server waits, for not every session's client can.
        parts[0].query(BETWEEN_LOOKS).await?;
        states = self::states(parts).await?;
    }
    ensure!(are_alike(&states), "the nodes do not have the same: {states:?}");
    Ok(())
}

async fn states<S: Session>(parts: &mut [S]) -> anyhow::Result<Vec<Vec<Rows>>> {
    let mut states = Vec::new();
    for part in parts {
        states.push(state(part).await?);
    }
    Ok(states)
}

fn are_alike(states: &[Vec<Rows>]) -> bool {
    states.windows(2).all(|two| two[0] == two[1])
}
