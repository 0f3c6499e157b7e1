//! `tutti up --demo`: a small shop, some questions to it, and money that moves between nodes.
//!
//! Owns: the order of the show and how much of everything there is. Never: uses more than any
//! client of the gateway could, except that it asks the nodes themselves where rows are.
//! Start reading at [`run`].

use std::time::Duration;

use crate::client;

mod fill;
mod money;
mod questions;
mod readings;

/// How much there is of everything. Small enough to be filled in seconds on a slow machine.
const CUSTOMERS: i32 = 2_000;
const ITEMS: i32 = 200;
const ORDERS: i32 = 10_000;
const ACCOUNTS: i64 = 600;
const OPENING_BALANCE: i64 = 1_000;
/// All the money there is; no transfer changes it.
const MONEY: i64 = ACCOUNTS * OPENING_BALANCE;

/// What a user may choose.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many clients move money.
    pub clients: u16,
    /// How long they move it.
    pub lasts: Duration,
}

/// Shows what a cluster does, through the gateway at `url`.
///
/// Recreates its schema `shop` each time. Fails if money was lost or made, or if a reading was
/// wrong while money moved.
pub async fn run(url: &str, node_urls: &[String], options: Options) -> anyhow::Result<()> {
    let client = client::connect(url).await?;
    println!("\n== A shop (nodes: {}) ==", node_urls.len());
    fill::make_and_fill(&client).await?;
    questions::ask(&client, node_urls).await?;
    money::move_and_watch(url, node_urls, options).await
}

/// What a client was told, in a line.
fn reason(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} {}", error.code().code(), error.message()),
        None => error.to_string(),
    }
}
