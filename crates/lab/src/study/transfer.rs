//! Alice and Bob: how many sums that never were does a reader see while money moves?
//!
//! Owns: writers that move money between accounts, readers that sum all of them, and the count of sums that
//! are not all the money there is, on any endpoint. Never: judges a system by its name.
//! Start reading at [`run`].

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::bank::{CHECKED, KEY, OPENING_BALANCE, TABLE, TRANSFERS, check, done};
use super::series::{OutputArgs, Series};
use crate::configuration::{Configuration, Planned};
use crate::ground::{Distances, Ground, System};
use crate::load::{Client, Crew, Done, Pace, Step, Window, drive};
use crate::password::without_password;
use crate::record::Record;
use crate::report::plot::{Axis, Chart, Marks, Series as Line};
use crate::report::{Block, Page, Table, figure, median};
use tutti_lab::workload::Workload;
use tutti_lab::workload::dialect::Dialect;
use tutti_lab::workload::session::{Failure, PreparingSession, Session};
use tutti_lab::workload::transfers::Transfers;

pub(crate) const NAME: &str = "transfer";

const WARM_UP: Duration = Duration::from_millis(500);
/// Systems are set beside each other; each may need a dialect of its own.
const CONFIGURATION: Configuration = Configuration {
    kind: &["system"],
    varies: &["reading", "repetition"],
    shared: &["writers", "readers", "accounts", "seconds"],
};

/// `tutti-lab transfer`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TransferArgs {
    /// What to measure, e.g. postgres://me@host:5432/db; may be given several times. Without it: a Tutti of
    /// three servers of its own
    #[arg(long, value_name = "URL")]
    url: Vec<String>,

    /// What the endpoint is told of the table of accounts
    #[arg(long, value_enum, default_value_t = DialectChoice::Guess)]
    dialect: DialectChoice,

    /// Servers behind a gateway of its own
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=32))]
    nodes: u16,

    /// Clients that move money
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    writers: u16,

    /// Clients that sum all accounts
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1000))]
    readers: u16,

    /// Accounts; few make conflicts, many make sums slow
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(i64).range(2..=10_000_000))]
    accounts: i64,

    /// How readers sum
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Reading::Statement, Reading::Transaction])]
    reading: Vec<Reading>,

    /// Seconds that are counted of each run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,

    /// Runs of each kind
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,

    /// About ten seconds in all
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// What an endpoint is told of a table.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum DialectChoice {
    /// As the endpoint says of itself: Tutti's DISTRIBUTE BY, Citus's create_distributed_table, else plain
    Guess,
    /// CREATE TABLE … DISTRIBUTE BY HASH (id)
    Tutti,
    /// create_distributed_table
    Citus,
    /// A plain CREATE TABLE: one server, or a proxy whose own configuration shards by id
    Plain,
}

/// What a reader does.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Reading {
    /// One SELECT sum(…)
    Statement,
    /// Two SELECTs, each of half the accounts, in one transaction at REPEATABLE READ
    Transaction,
}

impl Reading {
    fn name(self) -> &'static str {
        match self {
            Self::Statement => "one statement",
            Self::Transaction => "two statements at REPEATABLE READ",
        }
    }
}

/// Runs the study.
pub(crate) async fn run(mut args: TransferArgs) -> anyhow::Result<()> {
    if args.quick {
        (args.seconds, args.repetitions, args.accounts) = (2, 1, args.accounts.min(200));
    }
    let systems = match args.url.is_empty() {
        true => vec![System::Tutti { nodes: args.nodes }],
        false => args.url.iter().cloned().map(System::Endpoint).collect(),
    };
    let plans: Vec<(System, Vec<(Reading, Planned)>)> =
        systems.into_iter().map(|system| (system.clone(), plan(&args, &system))).collect();
    let all: Vec<Planned> =
        plans.iter().flat_map(|(_, runs)| runs.iter().map(|(_, run)| run.clone())).collect();
    let mut series = Series::begin(NAME, CONFIGURATION, &args.output, &all)?;
    for (system, runs) in plans {
        if series.passes_over(runs.iter().map(|(_, run)| run)) {
            continue;
        }
        let clients = args.writers + args.readers;
        let (ground, transfers) = series
            .make(async {
                let ground = Ground::make(&system, clients, &Distances::default()).await?;
                let made = setup(&args, &ground.url).await.context("cannot make the accounts")?;
                Ok((ground, made))
            })
            .await?;
        for (reading, Planned { name, parameters }) in runs {
            let machine = series.machine(&ground.name);
            let work = measure(&args, &ground.url, &transfers, reading);
            let record = async {
                let driven = work.await?;
                Ok(Record::of_clients(NAME, &name, parameters, &driven, CHECKED, machine))
            };
            series.run(&name, record).await?;
        }
        let mut session = PreparingSession::connect(&ground.url).await?;
        session.query(&format!("DROP TABLE {TABLE}")).await?;
        drop(session);
        ground.remove().await?;
    }
    series.end(page)
}

/// The runs on a system.
fn plan(args: &TransferArgs, system: &System) -> Vec<(Reading, Planned)> {
    let label = match system {
        System::Endpoint(url) => without_password(url),
        _ => format!("Tutti, {} nodes", args.nodes),
    };
    let dialect =
        args.dialect.to_possible_value().map_or_else(String::new, |it| it.get_name().to_owned());
    let mut planned = Vec::new();
    for repetition in 1..=args.repetitions {
        for reading in args.reading.iter().copied() {
            let run = Planned::of(
                format!("{label}, {} #{repetition}", reading.name()),
                [
                    ("system", label.as_str().into()),
                    ("reading", reading.name().into()),
                    ("writers", args.writers.into()),
                    ("readers", args.readers.into()),
                    ("accounts", args.accounts.into()),
                    ("seconds", args.seconds.into()),
                    ("dialect", dialect.as_str().into()),
                    ("repetition", repetition.into()),
                ],
            );
            planned.push((reading, run));
        }
    }
    planned
}

/// Makes the accounts anew.
async fn setup(args: &TransferArgs, url: &str) -> anyhow::Result<Transfers> {
    let mut session = PreparingSession::connect(url).await?;
    let dialect = match args.dialect {
        DialectChoice::Guess => Dialect::guess(&mut session).await?,
        DialectChoice::Tutti => Dialect::Tutti,
        DialectChoice::Citus => Dialect::Citus,
        DialectChoice::Plain => Dialect::Plain,
    };
    session.query(&format!("DROP TABLE IF EXISTS {TABLE}")).await?;
    let columns = format!("{KEY} bigint PRIMARY KEY, balance bigint NOT NULL");
    let made_by = dialect.by_hash(TABLE, &columns, KEY).join("; ");
    let transfers = Transfers::without_books(args.accounts, OPENING_BALANCE, TABLE, KEY);
    let transfers = transfers.made_by(&made_by);
    transfers.setup(&mut session).await?;
    Ok(transfers)
}

async fn measure(
    args: &TransferArgs,
    url: &str,
    transfers: &Transfers,
    reading: Reading,
) -> anyhow::Result<crate::load::Driven> {
    let mut writers: Vec<Box<dyn Client>> = Vec::new();
    for number in 0..args.writers {
        let session = PreparingSession::connect(url).await?;
        let random = StdRng::seed_from_u64(u64::from(number));
        writers.push(Box::new(Writer { session, random, transfers: transfers.clone() }));
    }
    let mut readers: Vec<Box<dyn Client>> = Vec::new();
    for _ in 0..args.readers {
        let session = PreparingSession::connect(url).await?;
        let half = args.accounts / 2;
        readers.push(Box::new(Reader { session, reading, half, transfers: transfers.clone() }));
    }
    let pace = Pace::Closed { think: Duration::ZERO };
    let crews = vec![
        Crew { kind: TRANSFERS, pace, clients: writers, decides: true },
        Crew { kind: "readings", pace, clients: readers, decides: true },
    ];
    let lasts = Some(Duration::from_secs(args.seconds));
    let driven = drive(crews, Window { warm_up: WARM_UP, lasts }, Arc::<AtomicU64>::default());
    let driven = driven.await?;
    check(url, transfers).await?;
    Ok(driven)
}

/// Moves money.
struct Writer {
    session: PreparingSession,
    random: StdRng,
    transfers: Transfers,
}

impl Client for Writer {
    fn step(&mut self) -> Step<'_> {
        Box::pin(async {
            let outcome =
                self.transfers.transaction(&mut self.session, 0, &mut self.random).await?;
            done(&mut self.session, outcome.failure).await
        })
    }
}

/// Sums all the money.
struct Reader {
    session: PreparingSession,
    reading: Reading,
    /// The accounts up to here are summed first.
    half: i64,
    transfers: Transfers,
}

impl Reader {
    async fn sum(&mut self) -> Result<i64, Failure> {
        let texts = match self.reading {
            Reading::Statement => vec![self.transfers.sum_sql().to_owned()],
            Reading::Transaction => vec![
                "BEGIN ISOLATION LEVEL REPEATABLE READ".to_owned(),
                format!("{} WHERE {KEY} <= {}", self.transfers.sum_sql(), self.half),
                format!("{} WHERE {KEY} > {}", self.transfers.sum_sql(), self.half),
                "COMMIT".to_owned(),
            ],
        };
        let mut sum = 0;
        for text in texts {
            let rows = self.session.query(&text).await?;
            let value = rows.first().and_then(|row| row[0].as_deref());
            sum += value.and_then(|value| value.parse::<i64>().ok()).unwrap_or_default();
        }
        Ok(sum)
    }
}

impl Client for Reader {
    fn step(&mut self) -> Step<'_> {
        Box::pin(async {
            match self.sum().await {
                Ok(sum) if sum == self.transfers.money() => Ok(Done::Right),
                Ok(_) => Ok(Done::Wrong),
                Err(failure) => done(&mut self.session, Some(failure)).await,
            }
        })
    }
}

/// What the runs have shown.
pub(crate) fn page(records: &[Record]) -> anyhow::Result<Page> {
    let mut kinds: Vec<(String, String)> = Vec::new();
    for record in records {
        let kind = (record.text("system").to_owned(), record.text("reading").to_owned());
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    ensure!(!kinds.is_empty(), "no run says what it measured");
    let mut lines = Vec::new();
    let mut wrong_in_all = 0;
    for (system, reading) in &kinds {
        let of_kind =
            |record: &&Record| record.text("system") == system && record.text("reading") == reading;
        let here: Vec<&Record> = records.iter().filter(of_kind).collect();
        let readings: u64 = here.iter().map(|record| record.of("readings").count).sum();
        let wrong: u64 = here.iter().map(|record| record.of("readings").wrong).sum();
        wrong_in_all += wrong;
        let seconds: f64 = here.iter().map(|record| record.lasted_s).sum();
        let rate = |clients: &str| {
            figure(median(here.iter().map(|record| record.of(clients).per_s).collect()))
        };
        let p99 = median(here.iter().map(|record| record.of(TRANSFERS).p99_ms).collect());
        let refused = |clients: &str| -> u64 {
            here.iter().flat_map(|record| record.of(clients).failed.into_values()).sum()
        };
        lines.push(vec![
            system.clone(),
            reading.clone(),
            rate(TRANSFERS),
            figure(p99),
            rate("readings"),
            readings.to_string(),
            wrong.to_string(),
            format!("{:.1} %", 100.0 * wrong as f64 / readings.max(1) as f64),
            figure(wrong as f64 / seconds),
            (refused(TRANSFERS) + refused("readings")).to_string(),
        ]);
    }
    let lead = match wrong_in_all {
        0 => "While transfers moved money between accounts, every sum of all accounts was all the money \
              there is. A wrong sum is money that was seen on its way: in neither account, or in both."
            .to_owned(),
        wrong => format!(
            "{wrong} sums of all accounts were not all the money there is: a part of a transfer was seen \
             without its other part."
        ),
    };
    let systems = kinds.iter().map(|(system, reading)| format!("{system}, {reading}"));
    let chart = Chart {
        name: "wrong-sums".to_owned(),
        caption: "Readings per second, right and wrong, by system and way of reading (each repetition a bar \
                  of its own would hide the sum: these are means)"
            .to_owned(),
        x: Axis::named("", (1..=kinds.len()).map(|number| number.to_string()).collect()),
        y: Axis::of("readings per second"),
        series: vec![
            bars(records, &kinds, "right", |figures| figures.count - figures.wrong),
            bars(records, &kinds, "wrong", |figures| figures.wrong),
        ],
        marks: Marks::Bars,
    };
    let legend = systems.enumerate().map(|(number, name)| format!("{}: {name}", number + 1));
    Ok(Page {
        title: "Alice and Bob: sums while money moves".to_owned(),
        lead,
        files: Vec::new(),
        blocks: vec![
            Table::block(
                "Medians of the repetitions; readings, wrong sums and refusals of all of them together. \
                 Refused: 40001, 40P01 and the like, which a client repeats.",
                &[
                    "system",
                    "reading",
                    "transfers/s",
                    "p99 ms",
                    "readings/s",
                    "readings",
                    "wrong",
                    "share",
                    "wrong/s",
                    "refused",
                ],
                lines,
            ),
            Block::Plot(chart),
            Block::Text(legend.collect::<Vec<_>>().join("; ")),
        ],
    })
}

fn bars(
    records: &[Record],
    kinds: &[(String, String)],
    name: &str,
    of: impl Fn(&crate::load::Figures) -> u64,
) -> Line {
    let mean = |(place, (system, reading)): (usize, &(String, String))| {
        let here = records
            .iter()
            .filter(|it| it.text("system") == system && it.text("reading") == reading);
        let (mut count, mut seconds) = (0, 0.0);
        for record in here {
            count += of(&record.of("readings"));
            seconds += record.lasted_s;
        }
        (place as f64, count as f64 / seconds)
    };
    let points = kinds.iter().enumerate().map(mean).collect();
    Line { name: name.to_owned(), points, is_dashed: false }
}
