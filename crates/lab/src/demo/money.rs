//! Moves money between accounts on different nodes while readers sum all of it.
//!
//! Owns: the transfers, the figures and the last check. Never: hides a failure.
//! Start reading at [`move_and_watch`].

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::readings::{self, Readings};
use super::shop::{ACCOUNTS, MONEY, OPENING_BALANCE};
use crate::accounts::Accounts;
use crate::workload::session::PreparingSession;
use crate::workload::transfers::Transfers;
use crate::workload::{Asked, Failure, Session, Workload};

/// Where there is no terminal, a line now and then is enough.
const LINE_INTERVAL_S: u64 = 5;
/// So that a client whose every transfer fails does not spin.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(100);

/// What a user may choose.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many clients move money.
    pub clients: u16,
    /// How long they move it.
    pub lasts: Duration,
}

/// What happened so far, counted by all tasks.
#[derive(Debug, Default)]
struct Figures {
    transfers: AtomicU64,
    readings: Readings,
    /// How many transfers failed, by what the client was told.
    failures: Mutex<BTreeMap<String, u64>>,
}

impl Figures {
    fn count_failure(&self, failure: &Failure) {
        let mut failures = self.failures.lock().expect("no holder panics");
        *failures.entry(failure.to_string()).or_default() += 1;
    }

    fn failure_count(&self) -> u64 {
        self.failures.lock().expect("no holder panics").values().sum()
    }

    fn line(&self, elapsed_s: u64, transfers_per_s: u64) -> String {
        let (readings, wrong) = self.readings.totals();
        format!(
            "{elapsed_s:>3} s  {:>6} transfers/s  {:>8} transfers  {} failed  {readings:>5} readings  {wrong} wrong",
            HumanCount(transfers_per_s).to_string(),
            HumanCount(self.transfers.load(Relaxed)).to_string(),
            self.failure_count(),
        )
    }
}

/// Moves money for a while and prints live figures, a summary, and whether all money is there.
///
/// Fails if a reading was wrong, or if at rest the sum is not what it was.
pub(super) async fn move_and_watch(
    url: &str,
    node_urls: &[String],
    options: Options,
) -> anyhow::Result<()> {
    let accounts = Accounts::ask_nodes(node_urls, "shop.accounts", "account_id").await?;
    println!(
        "\n== {} clients move money between nodes for {} s; {} readers sum all accounts ==",
        options.clients,
        options.lasts.as_secs(),
        readings::ALL.len()
    );
    let figures = std::sync::Arc::new(Figures::default());
    let started = Instant::now();
    let end = started + options.lasts;

    let mut tasks = JoinSet::new();
    for seed in 0..u64::from(options.clients) {
        let (url, accounts, figures) = (url.to_owned(), accounts.clone(), figures.clone());
        tasks.spawn(async move { move_money(&url, &accounts, &figures, seed, end).await });
    }
    for index in 0..readings::ALL.len() {
        let (url, accounts, figures) = (url.to_owned(), accounts.clone(), figures.clone());
        tasks.spawn(async move {
            readings::read_until(end, index, &url, &accounts, &figures.readings).await
        });
    }

    show_progress(&figures, started, end).await;
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    print_summary(&figures, started.elapsed());

    let mut gateway = [PreparingSession::connect(url).await?];
    transfers().check(&mut gateway, None, &Asked::new()).await.context("the last check")?;
    println!("at rest the accounts hold {MONEY}, as in the beginning: nothing lost, nothing made");
    figures.readings.check()
}

/// One client: transfers until the end, on a new connection when the old one is lost.
async fn move_money(
    url: &str,
    accounts: &Accounts,
    figures: &Figures,
    seed: u64,
    end: Instant,
) -> anyhow::Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let transfers = transfers();
    let mut session = PreparingSession::connect(url).await?;
    session.prepare(transfers.update_sql()).await?;
    while Instant::now() < end {
        let moves = accounts.transfer_between_nodes(&mut random);
        // No books are kept of single transfers, so they need no numbers.
        let Some(failure) = transfers.transfer(&mut session, 0, moves).await?.failure else {
            figures.transfers.fetch_add(1, Relaxed);
            continue;
        };
        figures.count_failure(&failure);
        // Without a transaction this only gives a warning.
        let _ = session.query("ROLLBACK").await;
        sleep(PAUSE_AFTER_FAILURE).await;
        if session.client().is_closed() {
            session = PreparingSession::connect(url).await?;
        }
    }
    Ok(())
}

/// Between the shop's accounts, which [`fill`](super::fill) makes.
fn transfers() -> Transfers {
    Transfers::without_books(ACCOUNTS, OPENING_BALANCE, "shop.accounts", "account_id")
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
    let (readings, wrong) = figures.readings.totals();
    println!("\n{wrong} wrong readings of {readings}, by isolation level:\n");
    println!("{}", figures.readings.summary());
}
