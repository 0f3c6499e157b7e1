//! The price list: what one transaction costs, by how much it guarantees and how far away its servers are.
//!
//! Owns: the same transfers on every system at every distance, and the counting of round trips (on the links) and
//! of flushes (from the servers' statistics). Never: delays anything itself.
//! Source: "Sharded is not distributed" gives 1, 3 and 4.5 round trips for one replicated PostgreSQL, sharding
//! with two-phase commit, and a distributed database.
//! Start reading at [`run`], then [`Guarantee`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;

use super::series::{OutputArgs, Series};
use crate::ground::{Distances, Ground, System};
use crate::load::{Client, Crew, Done, Pace, Step, Window, drive};
use crate::record::Record;
use crate::report::plot::{Axis, Chart, Marks, Series as Line};
use crate::report::{Block, Page, Table, figure, median};
use tutti_lab::accounts::{Accounts, Transfer};
use tutti_lab::client;
use tutti_lab::distance::Stretch;
use tutti_lab::workload::session::{Failure, PreparingSession, Session};
use tutti_lab::workload::transfers::Transfers;
use tutti_lab::workload::{Asked, Workload};

pub(crate) const NAME: &str = "price";

const TABLE: &str = "lab_account";
const KEY: &str = "id";
const ACCOUNTS: i64 = 2_000;
const OPENING_BALANCE: i64 = 1_000;
const NODES: u16 = 3;
const WARM_UP: Duration = Duration::from_millis(700);
/// Seconds that a server may take to make its statistics known.
const STATISTICS_LATE: Duration = Duration::from_millis(1_200);

/// `tutti-lab price`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PriceArgs {
    /// What is bought
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Guarantee::ALL)]
    guarantees: Vec<Guarantee>,

    /// Round trips to every server, in milliseconds: 0 is the same host
    #[arg(long, value_delimiter = ',', default_values_t = [0.0, 0.5, 2.0, 12.0, 70.0])]
    rtt_ms: Vec<f64>,

    /// Clients, each of which sends when it has its last answer
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=500))]
    clients: u16,

    /// Seconds that are counted of each run
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,

    /// Runs of each kind
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,

    /// Within a minute: two distances, one repetition, READ COMMITTED
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// What a transaction is sure of.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Guarantee {
    /// One PostgreSQL server
    One,
    /// One PostgreSQL server whose commits wait for a synchronous standby
    Standby,
    /// Tutti, both accounts on one node
    Local,
    /// Tutti, the accounts on two nodes, READ COMMITTED
    Global,
    /// The same at REPEATABLE READ
    GlobalRepeatableRead,
    /// The same at SERIALIZABLE
    GlobalSerializable,
    /// The same without atomic commit (SET tutti.commit = 'base')
    Base,
}

impl Guarantee {
    const ALL: [Self; 7] = [
        Self::One,
        Self::Standby,
        Self::Local,
        Self::Global,
        Self::GlobalRepeatableRead,
        Self::GlobalSerializable,
        Self::Base,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::One => "one PostgreSQL",
            Self::Standby => "with a synchronous standby",
            Self::Local => "Tutti, local",
            Self::Global => "Tutti, global",
            Self::GlobalRepeatableRead => "Tutti, global, repeatable read",
            Self::GlobalSerializable => "Tutti, global, serializable",
            Self::Base => "Tutti, BASE",
        }
    }

    fn system(self) -> System {
        match self {
            Self::One => System::PostgreSql,
            Self::Standby => System::PostgreSqlWithStandby,
            _ => System::Tutti { nodes: NODES },
        }
    }

    /// What a session says before its first transaction.
    fn preamble(self) -> Option<&'static str> {
        match self {
            Self::One | Self::Standby | Self::Local | Self::Global => None,
            Self::GlobalRepeatableRead => {
                Some("SET default_transaction_isolation = 'repeatable read'")
            }
            Self::GlobalSerializable => Some("SET default_transaction_isolation = 'serializable'"),
            Self::Base => Some("SET tutti.commit = 'base'"),
        }
    }

    fn is_global(self) -> bool {
        !matches!(self, Self::One | Self::Standby | Self::Local)
    }

    /// Where the round trip is: between clients and the server, between the server and its standby, or between
    /// the gateway, which is beside the clients, and its nodes.
    fn distances(self, rtt_ms: f64) -> anyhow::Result<Distances> {
        let (none, there) = (Distances::default(), Some(Stretch::of_rtt_ms(rtt_ms)?));
        Ok(match self {
            Self::One => Distances { clients: there, ..none },
            Self::Standby => Distances { clients: there, standby: there, ..none },
            _ => Distances { nodes: vec![there; usize::from(NODES)], ..none },
        })
    }
}

/// Runs the study.
pub(crate) async fn run(mut args: PriceArgs) -> anyhow::Result<()> {
    if args.quick {
        (args.seconds, args.repetitions, args.rtt_ms) = (1, 1, vec![0.0, 5.0]);
        args.guarantees.retain(|it| {
            !matches!(it, Guarantee::GlobalRepeatableRead | Guarantee::GlobalSerializable)
        });
    }
    let runs = args.guarantees.len() * args.rtt_ms.len() * args.repetitions as usize;
    let mut series = Series::begin(NAME, &args.output, runs)?;
    for guarantee in args.guarantees.iter().copied() {
        for rtt_ms in args.rtt_ms.iter().copied() {
            let planned: Vec<_> = (1..=args.repetitions)
                .map(|repetition| {
                    (repetition, format!("{}, {rtt_ms} ms #{repetition}", guarantee.name()))
                })
                .collect();
            if series.passes_over(planned.iter().map(|(_, run)| run)) {
                continue;
            }
            let place = Place::make(guarantee, args.clients, rtt_ms).await?;
            for (repetition, run) in planned {
                let machine = series.machine(&place.ground.name);
                let record = async {
                    place.ground.tidy().await?;
                    let Measured { driven, figures } = place.measure(&args).await?;
                    let parameters = BTreeMap::from([
                        ("guarantee".to_owned(), Value::from(guarantee.name())),
                        ("rtt_ms".to_owned(), Value::from(rtt_ms)),
                        ("clients".to_owned(), Value::from(args.clients)),
                        ("repetition".to_owned(), Value::from(repetition)),
                    ]);
                    Ok(Record {
                        figures,
                        ..Record::of_clients(
                            NAME,
                            &run,
                            parameters,
                            &driven,
                            "at rest the accounts hold all the money there is",
                            machine,
                        )
                    })
                };
                series.run(&run, record).await?;
            }
            place.ground.remove().await?;
        }
    }
    series.end(page)
}

/// A system with accounts.
struct Place {
    guarantee: Guarantee,
    ground: Ground,
    accounts: Accounts,
    transfers: Transfers,
}

/// A run, and what was counted of it.
struct Measured {
    driven: crate::load::Driven,
    figures: BTreeMap<String, f64>,
}

impl Place {
    async fn make(guarantee: Guarantee, clients: u16, rtt_ms: f64) -> anyhow::Result<Self> {
        let distances = guarantee.distances(rtt_ms)?;
        let ground = Ground::make(&guarantee.system(), clients, &distances).await?;
        let columns = format!(
            "CREATE TABLE {TABLE} ({KEY} bigint PRIMARY KEY, balance bigint NOT NULL) WITH (fillfactor = 50)"
        );
        let made_by = match guarantee.system() {
            System::Tutti { .. } => format!("{columns} DISTRIBUTE BY HASH ({KEY})"),
            _ => columns,
        };
        let transfers = Transfers::without_books(ACCOUNTS, OPENING_BALANCE, TABLE, KEY);
        let transfers = transfers.made_by(&made_by);
        let mut session = PreparingSession::connect(&ground.url).await?;
        transfers.setup(&mut session).await.context("cannot make the accounts")?;
        let accounts = Accounts::ask_nodes(&ground.node_urls, TABLE, KEY).await?;
        Ok(Self { guarantee, ground, accounts, transfers })
    }

    async fn measure(&self, args: &PriceArgs) -> anyhow::Result<Measured> {
        let mut clients: Vec<Box<dyn Client>> = Vec::new();
        for number in 0..args.clients {
            let mut session = PreparingSession::connect(&self.ground.url).await?;
            if let Some(said) = self.guarantee.preamble() {
                session.query(said).await.with_context(|| said.to_owned())?;
            }
            session.prepare(self.transfers.update_sql()).await?;
            let client = Payer {
                session,
                random: StdRng::seed_from_u64(u64::from(number)),
                accounts: self.accounts.clone(),
                transfers: self.transfers.clone(),
                node: usize::from(number),
                is_global: self.guarantee.is_global(),
            };
            clients.push(Box::new(client));
        }
        let steps = Arc::<AtomicU64>::default();
        let (trips, flushes) = (self.ground.round_trips(), self.flushes().await?);
        let pace = Pace::Closed { think: Duration::ZERO };
        let crew = Crew { kind: "transfers", pace, clients, decides: true };
        let window = Window { warm_up: WARM_UP, lasts: Some(Duration::from_secs(args.seconds)) };
        let driven = drive(vec![crew], window, steps.clone()).await?;
        let trips = self.ground.round_trips() - trips;
        let flushes = self.flushes().await? - flushes;
        // Those of the time that is not counted, too: what is counted here began with them.
        let all = steps.load(std::sync::atomic::Ordering::Relaxed).max(1) as f64;
        let mut figures = BTreeMap::from([("flushes_per_transaction".to_owned(), flushes / all)]);
        if 0 < trips {
            figures.insert("round_trips_per_transaction".to_owned(), trips as f64 / all);
        }
        let mut whole = vec![PreparingSession::connect(&self.ground.url).await?];
        self.transfers.check(&mut whole, None, &Asked::new()).await.context("after the run")?;
        Ok(Measured { driven, figures })
    }

    /// How often all servers have flushed their logs.
    async fn flushes(&self) -> anyhow::Result<f64> {
        tokio::time::sleep(STATISTICS_LATE).await;
        let mut flushes = 0;
        for url in self.ground.node_urls.iter().chain(&self.ground.standby_url) {
            let client = client::connect(url).await?;
            let row = client.query_one("SELECT wal_sync FROM pg_stat_wal", &[]).await?;
            flushes += row.get::<_, i64>(0);
        }
        Ok(flushes as f64)
    }
}

/// Moves money between two accounts, of one node or of two.
struct Payer {
    session: PreparingSession,
    random: StdRng,
    accounts: Accounts,
    transfers: Transfers,
    node: usize,
    is_global: bool,
}

impl Client for Payer {
    fn step(&mut self) -> Step<'_> {
        Box::pin(async {
            let transfer: Transfer = match self.is_global {
                true => self.accounts.transfer_between_nodes(&mut self.random),
                false => self.accounts.transfer_on(self.node, &mut self.random),
            };
            match self.transfers.transfer(&mut self.session, 0, transfer).await?.failure {
                None => Ok(Done::Right),
                Some(Failure::Error { sqlstate, .. }) => {
                    self.session.query("ROLLBACK").await?;
                    Ok(Done::Failed(sqlstate))
                }
                Some(lost) => Err(lost.into()),
            }
        })
    }
}

/// What the runs have shown.
pub(crate) fn page(records: &[Record]) -> anyhow::Result<Page> {
    let mut distances: Vec<f64> = records.iter().map(|record| record.number("rtt_ms")).collect();
    distances.sort_by(f64::total_cmp);
    distances.dedup();
    let guarantees: Vec<Guarantee> = Guarantee::ALL
        .into_iter()
        .filter(|it| records.iter().any(|record| record.text("guarantee") == it.name()))
        .collect();
    let of = |guarantee: Guarantee, rtt_ms: f64, what: &dyn Fn(&Record) -> f64| {
        let here = records.iter().filter(|record| {
            record.text("guarantee") == guarantee.name() && record.number("rtt_ms") == rtt_ms
        });
        median(here.map(what).collect())
    };
    let counted = |name: &'static str| {
        move |record: &Record| record.figures.get(name).copied().unwrap_or(f64::NAN)
    };
    let p50 = |record: &Record| record.of("transfers").p50_ms;
    let near = distances.first().copied().unwrap_or_default();
    let mut lines = Vec::new();
    for guarantee in &guarantees {
        for rtt_ms in &distances {
            let here = |what: &dyn Fn(&Record) -> f64| of(*guarantee, *rtt_ms, what);
            let per_s = here(&|record| record.of("transfers").per_s);
            if per_s.is_nan() {
                continue;
            }
            // What each millisecond of distance adds to a transaction.
            let waits = (here(&p50) - of(*guarantee, near, &p50)) / (rtt_ms - near);
            lines.push(vec![
                guarantee.name().to_owned(),
                rtt_ms.to_string(),
                figure(per_s),
                figure(here(&p50)),
                figure(here(&|record| record.of("transfers").p99_ms)),
                figure(waits),
                figure(here(&counted("round_trips_per_transaction"))),
                figure(here(&counted("flushes_per_transaction"))),
                figure(here(&|record| record.of("transfers").failed.values().sum::<u64>() as f64)),
            ]);
        }
    }
    let series = |what: fn(&Record) -> f64| -> Vec<Line> {
        let line = |guarantee: &Guarantee| Line {
            name: guarantee.name().to_owned(),
            points: distances
                .iter()
                .map(|rtt_ms| (*rtt_ms, of(*guarantee, *rtt_ms, &what)))
                .filter(|(_, value)| value.is_finite())
                .collect(),
            is_dashed: false,
        };
        guarantees.iter().map(line).collect()
    };
    Ok(Page {
        title: "The price of a transaction".to_owned(),
        lead: "A transfer (BEGIN, two UPDATEs of one row each, COMMIT) by clients that send when they have their \
               last answer: on one PostgreSQL, with a synchronous standby, and on Tutti, at every distance. The \
               gateway is beside the clients and the servers are far away; of one PostgreSQL, too."
            .to_owned(),
        files: Vec::new(),
        blocks: vec![
            Table::block(
                "Medians of the repetitions. Waits: round trips of the distance that a transaction takes, from \
                 how its median time grows with it. Round trips: all that were counted on the links, divided by \
                 transactions; several may be under way at once. Flushes: of all servers' logs together; one \
                 flush may serve several transactions.",
                &[
                    "what", "rtt ms", "per s", "p50 ms", "p99 ms", "waits", "round trips", "flushes",
                    "refused",
                ],
                lines,
            ),
            Block::Text(
                "Published counts of round trips per transaction, for comparison: 1 for one replicated \
                 PostgreSQL, 3 for sharding with two-phase commit, 4.5 for a distributed database; they count \
                 the commit, the figures here the whole transaction with its statements."
                    .to_owned(),
            ),
            Block::Plot(Chart {
                name: "time-by-distance".to_owned(),
                caption: "Median time of a transaction by distance".to_owned(),
                x: Axis::of("round trip to every server, ms"),
                y: Axis::of("p50, ms"),
                series: series(|record| record.of("transfers").p50_ms),
                marks: Marks::Lines,
            }),
            Block::Plot(Chart {
                name: "throughput-by-distance".to_owned(),
                caption: "Transactions per second by distance, with the same clients".to_owned(),
                x: Axis::of("round trip to every server, ms"),
                y: Axis::of("transactions per second").logarithmic(),
                series: series(|record| record.of("transfers").per_s),
                marks: Marks::Lines,
            }),
        ],
    })
}
