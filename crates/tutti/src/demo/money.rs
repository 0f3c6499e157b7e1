//! Moves money between accounts on different nodes while a reader sums all of it.
//!
//! Owns: the transfers, the reader, the figures and the last check. Never: hides a wrong reading.
//! Start reading at [`move_and_watch`].

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_postgres::{Client, Statement};

use super::{ACCOUNTS, OPENING_BALANCE};
use crate::{DemoOptions, session};

/// All the money there is; no transfer changes it.
const MONEY: i64 = ACCOUNTS as i64 * OPENING_BALANCE;
const AMOUNT_MAX: i64 = 50;
/// Where there is no terminal, a line now and then is enough.
const LINE_INTERVAL_S: u64 = 5;
/// So that a client whose every transfer fails does not spin.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);
/// The reader is one more client, not a flood.
const PAUSE_BETWEEN_READINGS: Duration = Duration::from_millis(20);

/// Account numbers by node: the first list is node 1's.
type AccountsByNode = Vec<Vec<i32>>;

/// What happened so far, counted by all tasks.
#[derive(Debug, Default)]
struct Figures {
    transfers: AtomicU64,
    readings: AtomicU64,
    readings_wrong: AtomicU64,
    readings_failed: AtomicU64,
    /// How many transfers failed, by what the client was told.
    failures: Mutex<BTreeMap<String, u64>>,
}

impl Figures {
    fn count_failure(&self, error: &tokio_postgres::Error) {
        let reason = match error.as_db_error() {
            Some(error) => format!("{} {}", error.code().code(), error.message()),
            None => error.to_string(),
        };
        let mut failures = self.failures.lock().expect("no holder panics");
        *failures.entry(reason).or_default() += 1;
    }

    fn failure_count(&self) -> u64 {
        self.failures.lock().expect("no holder panics").values().sum()
    }

    fn line(&self, elapsed_s: u64, transfers_per_s: u64) -> String {
        format!(
            "{elapsed_s:>3} s  {:>6} transfers/s  {:>8} transfers  {} failed  {:>5} readings  {} wrong",
            HumanCount(transfers_per_s).to_string(),
            HumanCount(self.transfers.load(Relaxed)).to_string(),
            self.failure_count(),
            self.readings.load(Relaxed),
            self.readings_wrong.load(Relaxed),
        )
    }
}

/// Moves money for a while and prints live figures, a summary, and whether all money is there.
///
/// Fails if at rest the sum is not what it was.
pub(super) async fn move_and_watch(
    url: &str,
    node_urls: &[String],
    options: DemoOptions,
) -> anyhow::Result<()> {
    let accounts = accounts_by_node(node_urls).await?;
    println!(
        "\n== {} clients move money between nodes for {} s; a reader sums all accounts ==",
        options.clients, options.demo_seconds
    );
    let figures = std::sync::Arc::new(Figures::default());
    let started = Instant::now();
    let end = started + Duration::from_secs(options.demo_seconds);

    let mut tasks = JoinSet::new();
    for seed in 0..u64::from(options.clients) {
        let (url, accounts, figures) = (url.to_owned(), accounts.clone(), figures.clone());
        tasks.spawn(async move { move_money(&url, &accounts, &figures, seed, end).await });
    }
    let (reader_url, reader_figures) = (url.to_owned(), figures.clone());
    tasks.spawn(async move { read_sums(&reader_url, &reader_figures, end).await });

    show_progress(&figures, started, end).await;
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    print_summary(&figures, started.elapsed());

    let client = session::connect(url).await?;
    let at_rest = sum_of_accounts(&client).await.context("cannot sum the accounts at rest")?;
    ensure!(at_rest == MONEY, "at rest the accounts hold {at_rest}, not {MONEY}");
    println!(
        "at rest the accounts hold {at_rest}, as in the beginning: nothing lost, nothing made"
    );
    Ok(())
}

/// Asks each node which accounts it has. Only the demo needs to know; a client never does.
async fn accounts_by_node(node_urls: &[String]) -> anyhow::Result<AccountsByNode> {
    let mut accounts = AccountsByNode::new();
    for url in node_urls {
        let client = session::connect(url).await?;
        let rows = client.query("SELECT account_id FROM shop.accounts", &[]).await?;
        accounts.push(rows.iter().map(|row| row.get(0)).collect());
    }
    accounts.retain(|on_node| !on_node.is_empty());
    ensure!(!accounts.is_empty(), "no node has an account");
    Ok(accounts)
}

/// One client: transfers until the end, on a new connection when the old one is lost.
async fn move_money(
    url: &str,
    accounts: &AccountsByNode,
    figures: &Figures,
    seed: u64,
    end: Instant,
) -> anyhow::Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut client = session::connect(url).await?;
    let mut update = prepare(&client).await?;
    while Instant::now() < end {
        let moves = choose_transfer(accounts, &mut random);
        let Err(error) = transfer(&client, &update, moves).await else {
            figures.transfers.fetch_add(1, Relaxed);
            continue;
        };
        figures.count_failure(&error);
        // Without a transaction this only gives a warning.
        let _ = client.batch_execute("ROLLBACK").await;
        sleep(PAUSE_AFTER_FAILURE).await;
        if client.is_closed() {
            client = session::connect(url).await?;
            update = prepare(&client).await?;
        }
    }
    Ok(())
}

async fn prepare(client: &Client) -> Result<Statement, tokio_postgres::Error> {
    client.prepare("UPDATE shop.accounts SET balance = balance + $1 WHERE account_id = $2").await
}

/// Two accounts, on different nodes where there are two, and what each is given.
fn choose_transfer(accounts: &AccountsByNode, random: &mut StdRng) -> [(i32, i64); 2] {
    let from_node = random.random_range(0..accounts.len());
    let to_node = match accounts.len() {
        1 => 0,
        nodes => (from_node + random.random_range(1..nodes)) % nodes,
    };
    let amount = random.random_range(1..=AMOUNT_MAX);
    let mut any_of = |node: usize| accounts[node][random.random_range(0..accounts[node].len())];
    let mut moves = [(any_of(from_node), -amount), (any_of(to_node), amount)];
    // Everybody locks in the order of the numbers, so nobody waits in a circle.
    moves.sort_unstable();
    moves
}

async fn transfer(
    client: &Client,
    update: &Statement,
    moves: [(i32, i64); 2],
) -> Result<(), tokio_postgres::Error> {
    client.batch_execute("BEGIN").await?;
    for (account_id, amount) in moves {
        client.execute(update, &[&amount, &account_id]).await?;
    }
    client.batch_execute("COMMIT").await
}

/// The reader: sums all accounts again and again, and counts the sums that cannot be.
async fn read_sums(url: &str, figures: &Figures, end: Instant) -> anyhow::Result<()> {
    let mut client = session::connect(url).await?;
    while Instant::now() < end {
        match sum_of_accounts(&client).await {
            Ok(sum) => {
                figures.readings.fetch_add(1, Relaxed);
                figures.readings_wrong.fetch_add(u64::from(sum != MONEY), Relaxed);
            }
            Err(_) => {
                figures.readings_failed.fetch_add(1, Relaxed);
                if client.is_closed() {
                    client = session::connect(url).await?;
                }
            }
        }
        sleep(PAUSE_BETWEEN_READINGS).await;
    }
    Ok(())
}

async fn sum_of_accounts(client: &Client) -> Result<i64, tokio_postgres::Error> {
    let row = client.query_one("SELECT sum(balance)::bigint FROM shop.accounts", &[]).await?;
    row.try_get(0)
}

/// Prints the figures every second on a terminal (in place), or else every few seconds.
async fn show_progress(figures: &Figures, started: Instant, end: Instant) {
    let on_terminal = std::io::stderr().is_terminal();
    let bar = ProgressBar::new_spinner()
        .with_style(ProgressStyle::with_template("{msg}").expect("the template is right"));
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut transfers_before = 0;
    let mut measured_at = started;
    while Instant::now() < end {
        ticks.tick().await;
        let elapsed_s = started.elapsed().as_secs();
        if !on_terminal && !elapsed_s.is_multiple_of(LINE_INTERVAL_S) {
            continue;
        }
        let transfers = figures.transfers.load(Relaxed);
        let rate = (transfers - transfers_before) as f64 / measured_at.elapsed().as_secs_f64();
        (transfers_before, measured_at) = (transfers, Instant::now());
        let line = figures.line(elapsed_s, rate.round() as u64);
        if on_terminal {
            bar.set_message(line);
        } else {
            println!("{line}");
        }
    }
    bar.finish_and_clear();
}

fn print_summary(figures: &Figures, elapsed: Duration) {
    let transfers = figures.transfers.load(Relaxed);
    let elapsed_s = elapsed.as_secs_f64();
    println!("\n== Summary ==");
    println!(
        "transfers: {} in {elapsed_s:.1} s, {:.0} per second; {} failed",
        HumanCount(transfers),
        transfers as f64 / elapsed_s,
        figures.failure_count()
    );
    for (reason, count) in figures.failures.lock().expect("no holder panics").iter() {
        println!("  failed {count} times: {reason}");
    }
    println!(
        "readings of the sum of all accounts: {}; wrong: {}; failed: {}",
        figures.readings.load(Relaxed),
        figures.readings_wrong.load(Relaxed),
        figures.readings_failed.load(Relaxed)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transfers_keep_the_sum_and_cross_nodes_and_lock_in_order() {
        let accounts: AccountsByNode = vec![vec![1, 4, 7], vec![2, 5], vec![3]];
        let node_of = |id: i32| accounts.iter().position(|on_node| on_node.contains(&id));
        let mut random = StdRng::seed_from_u64(7);
        for _ in 0..1_000 {
            let [first, second] = choose_transfer(&accounts, &mut random);
            assert_eq!(first.1 + second.1, 0);
            assert!(first.0 < second.0);
            assert_ne!(node_of(first.0), node_of(second.0));
        }
    }
}
