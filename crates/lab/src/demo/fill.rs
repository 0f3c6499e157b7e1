//! Makes the shop's tables and fills them, with a progress bar.
//!
//! Owns: the rows, the same ones every time. Never: reads a clock or the system's randomness.

use anyhow::Context;
use bytes::Bytes;
use futures_util::SinkExt;
use indicatif::{ProgressBar, ProgressStyle};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt::Write as _;
use std::pin::pin;
use tokio_postgres::Client;

use super::shop::{ACCOUNTS, CUSTOMERS, ITEMS, OPENING_BALANCE, ORDERS};

/// The tables, as a reader should see them.
const SHOP_SQL: &str = include_str!("shop.sql");

/// Rows in one COPY.
const ROWS_PER_COPY: usize = 2_000;
const LINES_PER_ORDER_MAX: i32 = 5;
const CITIES: [&str; 6] = ["Lisboa", "Kyoto", "Oslo", "Quito", "Accra", "Perth"];
const GOODS: [&str; 8] = ["tea", "bread", "lamp", "chair", "paper", "rope", "bell", "kite"];

/// One table's name with columns, and its rows as COPY's text format has them.
struct Rows {
    target: &'static str,
    lines: Vec<String>,
}

/// Recreates the schema `shop` and fills it.
pub(super) async fn make_and_fill(client: &Client) -> anyhow::Result<()> {
    for statement in statements(SHOP_SQL) {
        client
            .batch_execute(&statement)
            .await
            .with_context(|| format!("the shop's tables: {}", first_words(&statement)))?;
    }
    let tables = rows();
    let row_count: usize = tables.iter().map(|table| table.lines.len()).sum();
    let bar = progress_bar(row_count);
    for Rows { target, lines } in &tables {
        bar.set_message(*target);
        for part in lines.chunks(ROWS_PER_COPY) {
            copy(client, target, part).await.with_context(|| format!("cannot fill {target}"))?;
            bar.inc(part.len() as u64);
        }
    }
    bar.finish_and_clear();
    for Rows { target, lines } in &tables {
        println!("{:>7} rows in {target}", lines.len());
    }
    Ok(())
}

async fn copy(client: &Client, target: &str, lines: &[String]) -> anyhow::Result<()> {
    let sink = client.copy_in(&format!("COPY {target} FROM STDIN")).await?;
    let mut sink = pin!(sink);
    sink.send(Bytes::from(lines.concat())).await?;
    let copied = sink.finish().await?;
    anyhow::ensure!(copied == lines.len() as u64, "{copied} rows arrived of {}", lines.len());
    Ok(())
}

/// All rows of the shop, in an order that its foreign keys allow.
fn rows() -> Vec<Rows> {
    let mut random = StdRng::seed_from_u64(1);
    let item = |id: i32| {
        let name = GOODS[(id as usize) % GOODS.len()];
        format!("{id}\t{name} no. {id}\t{}.{:02}\n", 1 + id % 90, id * 7 % 100)
    };
    let customer = |id: i32| {
        let city = CITIES[(id as usize) % CITIES.len()];
        format!("{id}\tCustomer {id}\t{city}\n")
    };
    let mut orders = Vec::new();
    let mut order_lines = Vec::new();
    for order_id in 1..=ORDERS {
        let customer_id = random.random_range(1..=CUSTOMERS);
        let (month, day) = (random.random_range(1..=12), random.random_range(1..=28));
        orders.push(format!("{customer_id}\t{order_id}\t2026-{month:02}-{day:02}\n"));
        for line_no in 1..=random.random_range(1..=LINES_PER_ORDER_MAX) {
            let (item_id, quantity) = (random.random_range(1..=ITEMS), random.random_range(1..=9));
            let line = format!("{customer_id}\t{order_id}\t{line_no}\t{item_id}\t{quantity}\n");
            order_lines.push(line);
        }
    }
    let account = |id: i64| format!("{id}\t{OPENING_BALANCE}\n");
    let table = |target, lines| Rows { target, lines };
    vec![
        table("shop.items", (1..=ITEMS).map(item).collect()),
        table("shop.customers", (1..=CUSTOMERS).map(customer).collect()),
        table("shop.orders", orders),
        table("shop.order_lines", order_lines),
        table("shop.stock", (1..=ITEMS).map(|id| format!("{id}\t1000\n")).collect()),
        table("shop.accounts", (1..=ACCOUNTS).map(account).collect()),
    ]
}

/// The statements of a script without its comments.
fn statements(script: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut statement = String::new();
    for line in script.lines().filter(|line| !line.starts_with("--")) {
        writeln!(statement, "{line}").expect("writing to a string does not fail");
        if line.ends_with(';') {
            statements.push(std::mem::take(&mut statement).trim().to_owned());
        }
    }
    statements
}

fn first_words(statement: &str) -> &str {
    statement.lines().next().unwrap_or_default()
}

/// On a terminal a bar; elsewhere nothing, and the totals afterwards say enough.
fn progress_bar(row_count: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {human_pos:>7}/{human_len} rows  {msg}")
        .expect("the template is right");
    ProgressBar::new(row_count as u64).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_split_into_statements() {
        let statements = statements(SHOP_SQL);
        assert_eq!(statements.len(), 8);
        assert_eq!(first_words(&statements[0]), "DROP SCHEMA IF EXISTS shop CASCADE;");
        assert!(statements[2].starts_with("CREATE TABLE shop.items ("));
        assert!(statements[2].ends_with(") DISTRIBUTE BY REPLICATED;"));
    }

    #[test]
    fn rows_are_the_same_every_time() {
        let all = || rows().into_iter().map(|table| table.lines).collect::<Vec<_>>();
        assert_eq!(all(), all());
    }
}
