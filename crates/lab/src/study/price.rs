//! The price list: what one transaction costs, by how much it guarantees and how far away its servers are.
//!
//! Owns: the same transfers on every system at every distance, and the counting of round trips (on the links) and
//! of flushes (from the servers' statistics). Never: delays anything itself.
//! Source: "Sharded is not distributed" gives 1, 3 and 4.5 round trips for one replicated PostgreSQL, sharding
//! with two-phase commit, and a distributed database.
//! Start reading at [`run`], then [`Guarantee`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::bank::{Bank, CHECKED, TRANSFERS};
use super::series::{OutputArgs, Series};
use crate::configuration::{Configuration, Planned};
use crate::ground::{Distances, Ground, System};
use crate::load::Driven;
use crate::record::Record;
use crate::report::plot::{Axis, Chart, Marks, Series as Line};
use crate::report::{Block, Page, Table, figure, median};
use tutti_lab::client;
use tutti_lab::distance::Stretch;

pub(crate) const NAME: &str = "price";

const CONFIGURATION: Configuration = Configuration {
    kind: &["guarantee", "rtt_ms"],
    varies: &["repetition"],
    shared: &["clients", "seconds"],
};

const ACCOUNTS: i64 = 2_000;
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
    let all: Vec<Planned> = plan(&args).flat_map(|(.., runs)| runs).collect();
    let mut series = Series::begin(NAME, CONFIGURATION, &args.output, &all)?;
    for (guarantee, rtt_ms, runs) in plan(&args) {
        if series.passes_over(&runs) {
            continue;
        }
        let distances = guarantee.distances(rtt_ms)?;
        let system = guarantee.system();
        let bank = series.make(Bank::open(&system, args.clients, &distances, ACCOUNTS)).await?;
        for Planned { name, parameters } in runs {
            let machine = series.machine(&bank.ground.name);
            let record = async {
                bank.ground.tidy().await?;
                let Measured { driven, figures } = measure(&bank, guarantee, &args).await?;
                Ok(Record {
                    figures,
                    ..Record::of_clients(NAME, &name, parameters, &driven, CHECKED, machine)
                })
            };
            series.run(&name, record).await?;
        }
        bank.ground.remove().await?;
    }
    series.end(page)
}

/// What is bought at which distance, and the runs of it.
fn plan(args: &PriceArgs) -> impl Iterator<Item = (Guarantee, f64, Vec<Planned>)> {
    let kinds = args
        .guarantees
        .iter()
        .flat_map(|guarantee| args.rtt_ms.iter().map(move |rtt_ms| (*guarantee, *rtt_ms)));
    kinds.map(|(guarantee, rtt_ms)| {
        let run = |repetition: u32| {
            Planned::of(
                format!("{}, {rtt_ms} ms #{repetition}", guarantee.name()),
                [
                    ("guarantee", guarantee.name().into()),
                    ("rtt_ms", rtt_ms.into()),
                    ("clients", args.clients.into()),
                    ("seconds", args.seconds.into()),
                    ("repetition", repetition.into()),
                ],
            )
        };
        (guarantee, rtt_ms, (1..=args.repetitions).map(run).collect())
    })
}

/// A run, and what was counted of it.
struct Measured {
    driven: Driven,
    figures: BTreeMap<String, f64>,
}

async fn measure(bank: &Bank, guarantee: Guarantee, args: &PriceArgs) -> anyhow::Result<Measured> {
    let global = if guarantee.is_global() { 1.0 } else { 0.0 };
    let movers = bank.movers(args.clients, global, guarantee.preamble()).await?;
    let steps = Arc::<AtomicU64>::default();
    let (trips, flushes_before) = (bank.ground.round_trips(), flushes(&bank.ground).await?);
    let driven = bank.work(movers, WARM_UP, args.seconds, steps.clone()).await?;
    let trips = bank.ground.round_trips() - trips;
    let flushes = flushes(&bank.ground).await? - flushes_before;
    // Those of the time that is not counted, too: what is counted here began with them.
    let all = steps.load(Ordering::Relaxed).max(1) as f64;
    let mut figures = BTreeMap::from([("flushes_per_transaction".to_owned(), flushes / all)]);
    if 0 < trips {
        figures.insert("round_trips_per_transaction".to_owned(), trips as f64 / all);
    }
    bank.check().await?;
    Ok(Measured { driven, figures })
}

/// How often all servers have flushed their logs.
async fn flushes(ground: &Ground) -> anyhow::Result<f64> {
    tokio::time::sleep(STATISTICS_LATE).await;
    let mut flushes = 0;
    for url in ground.node_urls.iter().chain(&ground.standby_url) {
        let client = client::connect(url).await?;
        let row = client.query_one("SELECT wal_sync FROM pg_stat_wal", &[]).await?;
        flushes += row.get::<_, i64>(0);
    }
    Ok(flushes as f64)
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
    let p50 = |record: &Record| record.of(TRANSFERS).p50_ms;
    let near = distances.first().copied().unwrap_or_default();
    let mut lines = Vec::new();
    for guarantee in &guarantees {
        for rtt_ms in &distances {
            let here = |what: &dyn Fn(&Record) -> f64| of(*guarantee, *rtt_ms, what);
            let per_s = here(&|record| record.of(TRANSFERS).per_s);
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
                figure(here(&|record| record.of(TRANSFERS).p99_ms)),
                figure(waits),
                figure(here(&counted("round_trips_per_transaction"))),
                figure(here(&counted("flushes_per_transaction"))),
                figure(here(&|record| record.of(TRANSFERS).failed.values().sum::<u64>() as f64)),
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
                series: series(|record| record.of(TRANSFERS).p50_ms),
                marks: Marks::Lines,
            }),
            Block::Plot(Chart {
                name: "throughput-by-distance".to_owned(),
                caption: "Transactions per second by distance, with the same clients".to_owned(),
                x: Axis::of("round trip to every server, ms"),
                y: Axis::of("transactions per second").logarithmic(),
                series: series(|record| record.of(TRANSFERS).per_s),
                marks: Marks::Lines,
            }),
        ],
    })
}
