//! What is measured: a load, run for a moment by some clients in one way.
//!
//! Owns: the clients' loops and the clock. What a transfer is and what must hold afterwards is the
//! workload `transfers`.
//! Never: starts a gateway, compares figures. Start reading at [`measure`].

use std::time::{Duration, Instant};

use anyhow::Context;
use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio_postgres::Statement;

use super::measured::{Measured, Who};
use super::place::Money;
use tutti_lab::accounts::Transfer;
use tutti_lab::workload::session::PreparingSession;
use tutti_lab::workload::{Asked, Workload};

/// The part of a measurement that is not counted, because caches and plans are still made.
const WARM_UP: Duration = Duration::from_millis(500);
/// Digits that a histogram keeps of each duration.
const DIGITS: u8 = 3;

/// A kind of load. All loops are closed: a client sends when it has its last answer.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Load {
    /// `SELECT 1`: the round trip.
    RoundTrip,
    /// One row by its key, autocommit.
    Select,
    /// One row by its key, autocommit.
    Update,
    /// Transfers between two accounts of one node.
    Local,
    /// The same while as many other clients run local transactions too.
    LocalBesideLocal,
    /// The same while as many other clients run transfers over two nodes.
    LocalBesideGlobal,
    /// Transfers between two nodes.
    Global,
    /// The same while one more client sums all accounts again and again.
    GlobalAndReader,
}

impl Load {
    pub(super) const ALL: [Self; 8] = [
        Self::RoundTrip,
        Self::Select,
        Self::Update,
        Self::Local,
        Self::LocalBesideLocal,
        Self::LocalBesideGlobal,
        Self::Global,
        Self::GlobalAndReader,
    ];

    /// As the tables and the records have it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::RoundTrip => "SELECT 1",
            Self::Select => "SELECT by key",
            Self::Update => "UPDATE by key",
            Self::Local => "local",
            Self::LocalBesideLocal => "local, beside local",
            Self::LocalBesideGlobal => "local, beside global",
            Self::Global => "global",
            Self::GlobalAndReader => "global, and a reader",
        }
    }

    /// Whether it can also run on a plain node, for comparison.
    pub(super) fn runs_on_one_node(self) -> bool {
        match self {
            Self::RoundTrip | Self::Select | Self::Update | Self::Local => true,
            Self::LocalBesideLocal
            | Self::LocalBesideGlobal
            | Self::Global
            | Self::GlobalAndReader => false,
        }
    }

    /// Who takes part; the measured clients come first.
    fn crews(self, count: u16) -> Vec<Crew> {
        let clients = |work| Crew { who: Who::Clients, work, count };
        let neighbours = |work| Crew { who: Who::Neighbours, work, count };
        match self {
            Self::RoundTrip => vec![clients(Work::RoundTrip)],
            Self::Select => vec![clients(Work::Select)],
            Self::Update => vec![clients(Work::Update)],
            Self::Local => vec![clients(Work::Local)],
            Self::LocalBesideLocal => vec![clients(Work::Local), neighbours(Work::Local)],
            Self::LocalBesideGlobal => vec![clients(Work::Local), neighbours(Work::Global)],
            Self::Global => vec![clients(Work::Global)],
            Self::GlobalAndReader => {
                let reader = Crew { who: Who::Reader, work: Work::Reader, count: 1 };
                vec![clients(Work::Global), reader]
            }
        }
    }
}

/// Clients that do the same.
#[derive(Clone, Copy, Debug)]
struct Crew {
    who: Who,
    work: Work,
    count: u16,
}

/// What one client does again and again.
#[derive(Clone, Copy, Debug)]
enum Work {
    RoundTrip,
    Select,
    Update,
    Local,
    Global,
    Reader,
}

/// When is counted what clients begin. They begin before, and stop at the end.
#[derive(Clone, Copy, Debug)]
struct Window {
    from: Instant,
    to: Instant,
}

/// What one client, or several, did in the window.
#[derive(Debug)]
struct Tally {
    done: u64,
    wrong: u64,
    /// Nanoseconds.
    latency: Histogram<u64>,
}

impl Tally {
    fn new() -> Self {
        let latency = Histogram::new(DIGITS).expect("a histogram may have so many digits");
        Self { done: 0, wrong: 0, latency }
    }

    fn add(&mut self, other: &Self) {
        self.done += other.done;
        self.wrong += other.wrong;
        self.latency.add(&other.latency).expect("a histogram that grows takes every value");
    }

    fn measured(&self, lasts: Duration) -> Measured {
        let us = |quantile| self.latency.value_at_quantile(quantile) as f64 / 1_000.0;
        Measured {
            per_s: self.done as f64 / lasts.as_secs_f64(),
            p50_us: us(0.5),
            p99_us: us(0.99),
            count: self.done,
            wrong: self.wrong,
        }
    }
}

/// Runs a workload and says what came of it, for each kind of client that took part.
///
/// `urls` are what the clients connect to, in turn: the gateway, or each node itself.
///
/// Errors: a client is told one; afterwards the accounts do not hold what they did.
pub(super) async fn measure(
    workload: Load,
    clients: u16,
    lasts: Duration,
    urls: &[String],
    money: &Money,
) -> anyhow::Result<Vec<(Who, Measured)>> {
    let crews = workload.crews(clients);
    // All are there before the first begins.
    let mut ready = Vec::new();
    for (crew, &Crew { work, count, .. }) in crews.iter().enumerate() {
        for number in 0..usize::from(count) {
            let seed = (crew * usize::from(count) + number) as u64;
            let url = &urls[number % urls.len()];
            ready.push((crew, Worker::connect(url, work, number, seed, money).await?));
        }
    }

    let from = Instant::now() + WARM_UP;
    let window = Window { from, to: from + lasts };
    let mut tasks = JoinSet::new();
    for (crew, worker) in ready {
        tasks.spawn(async move { (crew, worker.run(window).await) });
    }
    let mut tallies: Vec<Tally> = crews.iter().map(|_| Tally::new()).collect();
    while let Some(ended) = tasks.join_next().await {
        let (crew, tally) = ended?;
        tallies[crew].add(&tally.with_context(|| format!("a client of “{}”", workload.name()))?);
    }
    check_money(urls, money).await?;
    Ok(crews.iter().zip(&tallies).map(|(crew, tally)| (crew.who, tally.measured(lasts))).collect())
}

/// At rest the accounts hold what they did; the gateway sees all of them, each node its own.
async fn check_money(urls: &[String], money: &Money) -> anyhow::Result<()> {
    let mut parts = Vec::new();
    for url in urls {
        parts.push(PreparingSession::connect(url).await?);
    }
    money.transfers.check(&mut parts, None, &Asked::new()).await?;
    Ok(())
}

/// One client with its statement.
#[derive(Debug)]
struct Worker {
    work: Work,
    session: PreparingSession,
    statement: Statement,
    /// Its place in the crew, which decides on which node its local work is.
    number: usize,
    random: StdRng,
    money: Money,
}

impl Worker {
    async fn connect(
        url: &str,
        work: Work,
        number: usize,
        seed: u64,
        money: &Money,
    ) -> anyhow::Result<Self> {
        let mut session = PreparingSession::connect(url).await?;
        let sql = match work {
            Work::RoundTrip => "SELECT 1",
            Work::Select => "SELECT balance FROM bench.accounts WHERE account_id = $1",
            Work::Update | Work::Local | Work::Global => money.transfers.update_sql(),
            Work::Reader => money.transfers.sum_sql(),
        };
        let statement = session.prepare(sql).await?;
        let random = StdRng::seed_from_u64(seed);
        Ok(Self { work, session, statement, number, random, money: money.clone() })
    }

    async fn run(mut self, window: Window) -> anyhow::Result<Tally> {
        let mut tally = Tally::new();
        loop {
            let begun = Instant::now();
            if window.to <= begun {
                return Ok(tally);
            }
            let (took, is_right) = self.once().await?;
            if window.from <= begun {
                tally.done += 1;
                tally.wrong += u64::from(!is_right);
                tally.latency.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX))?;
            }
        }
    }

    /// Does it once: how long what is timed took, and whether the answer can be.
    async fn once(&mut self) -> anyhow::Result<(Duration, bool)> {
        let Money { accounts, transfers } = &self.money;
        match self.work {
            Work::Local => {
                let transfer = accounts.transfer_on(self.number, &mut self.random);
                return Ok((self.transfer(transfer).await?, true));
            }
            Work::Global => {
                let transfer = accounts.transfer_between_nodes(&mut self.random);
                return Ok((self.transfer(transfer).await?, true));
            }
            Work::RoundTrip | Work::Select | Work::Update | Work::Reader => (),
        }
        let account = i32::try_from(accounts.any_on(self.number, &mut self.random))?;
        let (client, statement) = (self.session.client(), &self.statement);
        let begun = Instant::now();
        let is_right = match self.work {
            Work::Select => client.query(statement, &[&account]).await?.len() == 1,
            // By nothing, so that the sum stays; to PostgreSQL a new version of the row all the same.
            Work::Update => client.execute(statement, &[&0_i64, &account]).await? == 1,
            Work::Reader => {
                client.query_one(statement, &[]).await?.get::<_, i64>(0) == transfers.money()
            }
            _ => client.query(statement, &[]).await?.len() == 1,
        };
        Ok((begun.elapsed(), is_right))
    }

    /// Moves money and says how long the COMMIT took. Here every transfer must succeed, so what was
    /// believed need not be kept.
    async fn transfer(&mut self, transfer: Transfer) -> anyhow::Result<Duration> {
        let outcome = self.money.transfers.transfer(&mut self.session, 0, transfer).await?;
        outcome.failure.map_or(Ok(outcome.decided_in), |failure| Err(failure.into()))
    }
}
