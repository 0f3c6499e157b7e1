//! The thesis's study: two-phase commit against none, on replicated servers, while selects are balanced over them.
//!
//! Owns: who looks at the shop and who alters it, the batch of 25 runs, and the comparison of its curves with the
//! published ones. The shop and its statements are the workload's, `workload/shop`. Never: knows how writes travel.
//! Source: "Two-phase commit against none, on replicated PostgreSQL", sections 3.1 to 4.3: 4,800 selects by 8
//! threads, 8 threads that alter until these are done, sleeps of 2.0 to 0.1 s between alters, 1, 2 and 4 nodes.
//! Start reading at [`run`].

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::bank;
use super::series::{OutputArgs, Series};
use crate::configuration::{Configuration, Planned};
use crate::ground::{Distances, Ground, System};
use crate::load::{Client, Crew, Done, Driven, Pace, Step, Window, drive};
use crate::record::Record;
use crate::report::plot::{Axis, Chart, Marks, Series as Line};
use crate::report::{Block, Page, Table, figure, median};
use tutti_lab::client;
use tutti_lab::distance::Stretch;
use tutti_lab::workload::dialect::Dialect;
use tutti_lab::workload::session::{Failure, PreparingSession, Session};
use tutti_lab::workload::shop::{self, Alteration, Commit, Data, Look, STOCK, Size, TABLES};

pub(crate) const NAME: &str = "thesis";

const CONFIGURATION: Configuration = Configuration {
    kind: &["nodes", "mode", "sleep_s"],
    varies: &["repetition"],
    shared: &[
        "selects",
        "select_threads",
        "alter_threads",
        "select_pause_ms",
        "statements",
        "shoppers",
        "data",
        "data_bytes",
        "rtt_ms",
    ],
};

/// Published: sleep in seconds, and queries per second of 1 node, of 2 and 4 with two-phase commit, of 2 and 4
/// without.
const PUBLISHED: [(f64, [f64; 5]); 5] = [
    (2.0, [289.0, 217.0, 293.0, 207.0, 282.0]),
    (1.5, [381.0, 278.0, 385.0, 236.0, 364.0]),
    (1.0, [554.0, 344.0, 541.0, 266.0, 414.0]),
    (0.5, [998.0, 448.0, 677.0, 377.0, 691.0]),
    (0.1, [3180.0, 604.0, 2192.0, 491.0, 1141.0]),
];
/// What the columns are: nodes, and whether commits are atomic.
const COLUMNS: [(u16, bool); 5] = [(1, true), (2, true), (2, false), (4, true), (4, false)];

/// A ratio below this is no noise.
const CLEARLY_LESS: f64 = 0.9;
/// What crews are called in figures.
const SELECTS: &str = "selects";
const ALTERS: &str = "alters";
/// `tutti-lab thesis`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ThesisArgs {
    /// Threads that select (also -st)
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=500))]
    select_threads: u16,

    /// Threads that alter until all selects are done (also -at)
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(0..=500))]
    alter_threads: u16,

    /// Nodes of a single run; without it, and without -s, the batch of 25 is run
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..=32))]
    nodes: Option<u16>,

    /// Seconds between the alters of a thread, of a single run
    #[arg(short, long)]
    sleep: Option<f64>,

    /// A single run with two-phase commit (ACID); without it every node commits as it receives (BASE)
    #[arg(long)]
    tpc: bool,

    /// Numbers of nodes in the batch
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4])]
    batch_nodes: Vec<u16>,

    /// Sleeps in the batch, in seconds
    #[arg(long, value_delimiter = ',', default_values_t = [2.0, 1.5, 1.0, 0.5, 0.1])]
    batch_sleeps: Vec<f64>,

    /// Selects in all
    #[arg(long, default_value_t = 4800, value_parser = clap::value_parser!(i64).range(1..))]
    selects: i64,

    /// Milliseconds that a thread waits between its selects. The thesis's machines needed about 125 for one;
    /// without a pause a fast machine is done before anything was altered
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..))]
    select_pause_ms: u64,

    /// Statements of an alter, which is one transaction. The published figures are of about 50
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    statements: u32,

    /// Shoppers, and ten times as many items
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(i64).range(1..))]
    shoppers: i64,

    /// What each item carries besides its numbers, which alters write anew
    #[arg(long, value_enum, default_value_t = Data::Text)]
    data: Data,

    /// Bytes of that
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    data_bytes: u32,

    /// Milliseconds of a round trip to every node but the first, from the gateway and from other nodes
    #[arg(long)]
    rtt_ms: Option<f64>,

    /// Runs of each kind
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,

    /// Within a minute: one and two nodes, two sleeps, few selects
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: OutputArgs,
}

impl ThesisArgs {
    fn size(&self) -> Size {
        Size {
            shoppers: self.shoppers,
            statements: self.statements,
            data: self.data,
            data_bytes: self.data_bytes,
        }
    }
}

/// One of the batch.
#[derive(Clone, Copy, Debug)]
struct Plan {
    nodes: u16,
    /// Two-phase commit; of one node it is the same.
    is_acid: bool,
    sleep_s: f64,
    repetition: u32,
}

impl Plan {
    fn mode(self) -> &'static str {
        match (self.nodes, self.is_acid) {
            (1, _) => "one",
            (_, true) => "ACID",
            (_, false) => "BASE",
        }
    }

    fn commit(self) -> Commit {
        if self.nodes == 1 || self.is_acid { Commit::Acid } else { Commit::Base }
    }

    fn planned(self, args: &ThesisArgs) -> Planned {
        let Self { nodes, sleep_s, repetition, .. } = self;
        Planned::of(
            format!("{nodes} nodes, {}, sleep {sleep_s} s #{repetition}", self.mode()),
            [
                ("nodes", nodes.into()),
                ("mode", self.mode().into()),
                ("sleep_s", sleep_s.into()),
                ("repetition", repetition.into()),
                ("selects", args.selects.into()),
                ("select_threads", args.select_threads.into()),
                ("alter_threads", args.alter_threads.into()),
                ("select_pause_ms", args.select_pause_ms.into()),
                ("statements", args.statements.into()),
                ("shoppers", args.shoppers.into()),
                ("data", args.data.name().into()),
                ("data_bytes", args.data_bytes.into()),
                ("rtt_ms", args.rtt_ms.unwrap_or_default().into()),
            ],
        )
    }
}

/// As the thesis's program is called: `-st 8 -at 8`, which are two letters after one hyphen. Other commands have no
/// such options.
pub(crate) fn spell_out(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    if arguments.get(1).is_some_and(|command| command == NAME) {
        for argument in arguments.iter_mut().skip(2) {
            for (short, long) in [("-st", "--select-threads"), ("-at", "--alter-threads")] {
                if argument == short {
                    *argument = long.into();
                }
            }
        }
    }
    arguments
}

/// Runs the study.
pub(crate) async fn run(mut args: ThesisArgs) -> anyhow::Result<()> {
    if args.quick {
        args.selects = args.selects.min(240);
        args.select_pause_ms = args.select_pause_ms.min(30);
        (args.batch_nodes, args.batch_sleeps) = (vec![1, 2], vec![0.5, 0.1]);
        args.statements = args.statements.min(10);
    }
    let plans = plans(&args);
    let all: Vec<Planned> = plans.iter().map(|plan| plan.planned(&args)).collect();
    let mut series = Series::begin(NAME, CONFIGURATION, &args.output, &all)?;
    let mut kinds: Vec<(u16, bool)> = plans.iter().map(|plan| (plan.nodes, plan.is_acid)).collect();
    kinds.dedup();
    for (nodes, is_acid) in kinds {
        let planned: Vec<_> = plans
            .iter()
            .filter(|plan| (plan.nodes, plan.is_acid) == (nodes, is_acid))
            .map(|plan| (*plan, plan.planned(&args)))
            .collect();
        if series.passes_over(planned.iter().map(|(_, run)| run)) {
            continue;
        }
        let there = args.rtt_ms.map(Stretch::of_rtt_ms).transpose()?;
        let mut far = vec![there; usize::from(nodes)];
        far[0] = None;
        let distances = Distances { nodes: far, ..Distances::default() };
        let clients = args.select_threads + args.alter_threads;
        let system = System::Tutti { nodes };
        let ground = series.make(Ground::make(&system, clients, &distances)).await?;
        for (plan, Planned { name, parameters }) in planned {
            let machine = series.machine(&ground.name);
            let record = async {
                let (driven, checked) = measure(&args, &ground, plan).await?;
                let count = |of: &str| {
                    let mut figures = driven.figures().into_iter();
                    figures.find(|(kind, _)| kind == of).map_or(0, |(_, it)| it.count) as f64
                };
                // As the thesis counts: selects and statements of alters by the time of the whole run.
                let queries = count(SELECTS) + count(ALTERS) * f64::from(args.statements);
                let rate = queries / driven.lasted.as_secs_f64();
                Ok(Record {
                    figures: BTreeMap::from([("queries_per_s".to_owned(), rate)]),
                    ..Record::of_clients(NAME, &name, parameters, &driven, &checked, machine)
                })
            };
            series.run(&name, record).await?;
        }
        ground.remove().await?;
    }
    series.end(page)
}

fn plans(args: &ThesisArgs) -> Vec<Plan> {
    let is_single = args.nodes.is_some() || args.sleep.is_some();
    let (kinds, sleeps): (Vec<(u16, bool)>, Vec<f64>) = match is_single {
        true => (vec![(args.nodes.unwrap_or(1), args.tpc)], vec![args.sleep.unwrap_or(2.0)]),
        false => {
            let modes = |nodes: &u16| match nodes {
                1 => vec![(1, true)],
                nodes => vec![(*nodes, true), (*nodes, false)],
            };
            (args.batch_nodes.iter().flat_map(modes).collect(), args.batch_sleeps.clone())
        }
    };
    let mut plans = Vec::new();
    for (nodes, is_acid) in kinds {
        for repetition in 1..=args.repetitions {
            for sleep_s in sleeps.iter().copied() {
                plans.push(Plan { nodes, is_acid, sleep_s, repetition });
            }
        }
    }
    plans
}

/// A run on a shop of its own, and what was checked behind it.
async fn measure(
    args: &ThesisArgs,
    ground: &Ground,
    plan: Plan,
) -> anyhow::Result<(Driven, String)> {
    make_shop(args, ground, plan).await.context("cannot make the shop")?;
    ground.tidy().await?;
    let left = Arc::new(AtomicI64::new(args.selects));
    let mut selects: Vec<Box<dyn Client>> = Vec::new();
    for number in 0..args.select_threads {
        let session = PreparingSession::connect(&ground.url).await?;
        let (random, left) = (StdRng::seed_from_u64(u64::from(number)), left.clone());
        selects.push(Box::new(Selector { session, random, left, size: args.size() }));
    }
    let books = Arc::<Books>::default();
    let mut alters: Vec<Box<dyn Client>> = Vec::new();
    for number in 0..args.alter_threads {
        let mut session = PreparingSession::connect(&ground.url).await?;
        if !plan.is_acid {
            session.query(shop::BASE).await?;
        }
        alters.push(Box::new(Shopper {
            session,
            random: StdRng::seed_from_u64(1_000 + u64::from(number)),
            books: books.clone(),
            size: args.size(),
        }));
    }
    let crews = vec![
        Crew {
            kind: SELECTS,
            pace: Pace::Closed { think: Duration::from_millis(args.select_pause_ms) },
            clients: selects,
            decides: true,
        },
        Crew {
            kind: ALTERS,
            pace: Pace::Closed { think: Duration::from_secs_f64(plan.sleep_s) },
            clients: alters,
            decides: false,
        },
    ];
    let window = Window { warm_up: Duration::ZERO, lasts: None };
    let driven = drive(crews, window, Arc::<AtomicU64>::default()).await?;
    let checked = check(ground, &books).await.context("after the run")?;
    Ok((driven, checked))
}

/// Makes and fills the shop anew.
async fn make_shop(args: &ThesisArgs, ground: &Ground, plan: Plan) -> anyhow::Result<()> {
    let mut session = PreparingSession::connect(&ground.url).await?;
    for table in TABLES {
        let known = format!("SELECT 1 FROM pg_class WHERE relname = '{table}'");
        if session.query(&known).await?.is_empty() {
            continue;
        }
        // One that is replicated asynchronously is dropped when all of it has arrived.
        for sql in [format!("SELECT tutti_replicate('{table}')"), format!("DROP TABLE {table}")] {
            session.query(&sql).await.with_context(|| sql.clone())?;
        }
    }
    shop::make(&mut session, args.size(), Dialect::Tutti, plan.commit()).await?;
    converge(ground).await.context("after the shop was filled")
}

/// Waits until all nodes have the same.
async fn converge(ground: &Ground) -> anyhow::Result<()> {
    let mut nodes = Vec::new();
    for url in &ground.node_urls {
        nodes.push(PreparingSession::connect(url).await?);
    }
    shop::converge(&mut nodes, Commit::Base).await
}

/// What the shoppers were told, to be compared with what is there.
#[derive(Debug, Default)]
struct Books {
    /// The last number that was given to a purchase.
    numbers: AtomicI64,
    bought: AtomicI64,
    sold: AtomicI64,
    refused: AtomicI64,
}

/// Errors: nodes differ for longer than what is on its way needs, or lack what shoppers were told.
async fn check(ground: &Ground, books: &Books) -> anyhow::Result<String> {
    converge(ground).await?;
    let told = |count: &AtomicI64| count.load(Ordering::Relaxed);
    let sql = format!(
        "SELECT (SELECT count(*) FROM purchase), (SELECT sum({STOCK} - stock)::bigint FROM item)"
    );
    let row = client::connect(&ground.node_urls[0]).await?.query_one(&sql, &[]).await?;
    let (bought, sold): (i64, i64) = (row.get(0), row.get(1));
    // What was refused may be there in part where nodes commit one by one.
    let acknowledged = (told(&books.bought), told(&books.sold));
    let holds = match told(&books.refused) {
        0 => (bought, sold) == acknowledged,
        _ => acknowledged.0 <= bought && acknowledged.1 <= sold,
    };
    ensure!(
        holds,
        "the nodes have {bought} purchases and {sold} sales, and shoppers were told of {acknowledged:?}"
    );
    Ok("in the end all nodes had the same rows, with every purchase and sale that was acknowledged"
        .to_owned())
}

/// Looks at what is for sale, and at what was bought.
struct Selector {
    session: PreparingSession,
    random: StdRng,
    left: Arc<AtomicI64>,
    size: Size,
}

impl Client for Selector {
    fn step(&mut self) -> Step<'_> {
        Box::pin(async {
            if self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
                return Ok(Done::Nothing);
            }
            let look = Look::draw(self.size, &mut self.random);
            // Nothing that it does conflicts with a look.
            let rows = look.ask(&mut self.session).await?;
            ensure!(look.rows(self.size).contains(&rows), "{look:?}: {rows} rows");
            Ok(Done::Right)
        })
    }
}

/// Buys, sells, ships, and gives items other prices.
struct Shopper {
    session: PreparingSession,
    random: StdRng,
    books: Arc<Books>,
    size: Size,
}

impl Shopper {
    /// Purchases and sales of one transaction.
    async fn alter(&mut self) -> Result<(i64, i64), Failure> {
        let (mut bought, mut sold) = (0, 0);
        let numbers = &self.books.numbers;
        let given = numbers.load(Ordering::Relaxed).max(1);
        let statements = Alteration::draw(
            self.size,
            &mut self.random,
            || 1 + numbers.fetch_add(1, Ordering::Relaxed),
            |random| random.random_range(1..=given),
        );
        self.session.query("BEGIN").await?;
        for alteration in statements {
            let rows = alteration.perform(&mut self.session, self.size).await?;
            let rows = rows.and_then(|it| i64::try_from(it).ok()).unwrap_or(0);
            match alteration {
                Alteration::Buy { .. } => bought += rows,
                Alteration::Sell { .. } => sold += rows,
                Alteration::Reprice { .. } | Alteration::Ship { .. } => (),
            }
        }
        self.session.query("COMMIT").await?;
        Ok((bought, sold))
    }
}

/// Whether what was asked could have been done at another moment.
fn is_of_conflict(failure: &Failure) -> bool {
    match failure {
        Failure::Error { sqlstate, .. } => sqlstate.starts_with("40") || sqlstate == "55P03",
        Failure::Lost { .. } => false,
    }
}

impl Client for Shopper {
    fn step(&mut self) -> Step<'_> {
        Box::pin(async {
            let altered = self.alter().await;
            let (counted, failure) = match altered {
                Ok(counted) => (counted, None),
                // Another one was first: counted, and not done again.
                Err(failure @ Failure::Error { .. }) if is_of_conflict(&failure) => {
                    ((0, 0), Some(failure))
                }
                // What is never done has no figures.
                Err(failure) => return Err(failure.into()),
            };
            self.books.bought.fetch_add(counted.0, Ordering::Relaxed);
            self.books.sold.fetch_add(counted.1, Ordering::Relaxed);
            self.books.refused.fetch_add(i64::from(failure.is_some()), Ordering::Relaxed);
            bank::done(&mut self.session, failure).await
        })
    }
}

/// The median of queries per second of a kind; NaN where there is no run.
fn rate(records: &[Record], nodes: u16, is_acid: bool, sleep_s: f64) -> f64 {
    let mode = Plan { nodes, is_acid, sleep_s, repetition: 0 }.mode();
    let here = records.iter().filter(|record| {
        record.number("nodes") == f64::from(nodes)
            && record.text("mode") == mode
            && record.number("sleep_s") == sleep_s
    });
    median(
        here.map(|record| record.figures.get("queries_per_s").copied().unwrap_or(f64::NAN))
            .collect(),
    )
}

fn column_name((nodes, is_acid): (u16, bool)) -> String {
    let mode = Plan { nodes, is_acid, sleep_s: 0.0, repetition: 0 }.mode();
    match nodes {
        1 => "1 node".to_owned(),
        nodes => format!("{nodes} nodes, {mode}"),
    }
}

/// The longest first, as the thesis has them.
fn sleeps_of(records: &[Record]) -> Vec<f64> {
    let mut sleeps: Vec<f64> = records.iter().map(|record| record.number("sleep_s")).collect();
    sleeps.sort_by(|one, other| other.total_cmp(one));
    sleeps.dedup();
    sleeps
}

/// Numbers of nodes, each with and without two-phase commit.
fn columns_of(records: &[Record]) -> Vec<(u16, bool)> {
    let mut columns: Vec<(u16, bool)> = records
        .iter()
        .map(|record| (record.number("nodes") as u16, record.text("mode") != "BASE"))
        .collect();
    columns.sort_by_key(|(nodes, is_acid)| (*nodes, !is_acid));
    columns.dedup();
    columns
}

/// What the runs have shown.
pub(crate) fn page(records: &[Record]) -> anyhow::Result<Page> {
    let (sleeps, columns) = (sleeps_of(records), columns_of(records));
    let mut names = vec!["sleep s".to_owned()];
    for column in &columns {
        names.push(column_name(*column));
        names.push("published".to_owned());
    }
    let line = |sleep_s: &f64| {
        let mut line = vec![sleep_s.to_string()];
        for column in &columns {
            line.push(figure(rate(records, column.0, column.1, *sleep_s)));
            line.push(published(*column, *sleep_s).map_or("-".to_owned(), figure));
        }
        line
    };
    let lines = sleeps.iter().map(line).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let curve = |column: &(u16, bool)| Line {
        name: column_name(*column),
        points: sleeps
            .iter()
            .map(|sleep_s| (*sleep_s, rate(records, column.0, column.1, *sleep_s)))
            .filter(|(_, rate)| rate.is_finite())
            .collect(),
        is_dashed: false,
    };
    let curves: Vec<Line> = columns.iter().map(curve).collect();
    let first = &records[0];
    let mut blocks = vec![
        Table::block(
            "Queries per second: selects and the statements of alters, divided by the time of the run; beside what \
             the thesis has published of four Raspberry Pi 2",
            &names,
            lines,
        ),
        Block::Plot(Chart {
            name: "queries-by-sleep".to_owned(),
            caption: "Queries per second by the time between alters".to_owned(),
            x: Axis::of("sleep between alters, s"),
            y: Axis::of("queries per second").logarithmic(),
            series: curves.clone(),
            marks: Marks::Lines,
        }),
        fitted(&curves),
        Block::Heading("Is the shape the same?".to_owned()),
        Block::Text(shape(records, &sleeps, &columns)),
        Block::Heading("Each run, second by second".to_owned()),
    ];
    for record in records {
        blocks.push(over_time(record));
    }
    Ok(Page {
        title: "Two-phase commit against none, on replicated servers".to_owned(),
        lead: format!(
            "{} selects by {} threads ({} ms between two of a thread), and {} threads that alter the shop until \
             these are done, each alter a transaction of {} statements ({} bytes of {} in an item). ACID: every write \
             is committed on all nodes by two-phase commit. BASE: nodes commit one by one, and carry rows to each \
             other afterwards.",
            first.number("selects"),
            first.number("select_threads"),
            first.number("select_pause_ms"),
            first.number("alter_threads"),
            first.number("statements"),
            first.number("data_bytes"),
            first.text("data"),
        ),
        blocks,
        files: Vec::new(),
    })
}

/// A power of the sleep for each curve, by least squares of the logarithms.
fn fitted(curves: &[Line]) -> Block {
    let line = |curve: &Line| {
        let points: Vec<(f64, f64)> = curve.points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let sum = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
        let (xx, xy, yy) = (
            sum(&|point| (point.0 - x).powi(2)),
            sum(&|point| (point.0 - x) * (point.1 - y)),
            sum(&|point| (point.1 - y).powi(2)),
        );
        let exponent = xy / xx;
        let factor = (y - exponent * x).exp();
        vec![
            curve.name.clone(),
            format!("{} · sleep^{}", figure(factor), figure(exponent)),
            figure(xy * xy / (xx * yy)),
        ]
    };
    Table::block(
        "A fitted function for each curve: queries per second as a power of the sleep in seconds. An exponent of 0 \
         is flat; -1 is what clients would do that only sleep.",
        &["curve", "queries per second", "R²"],
        curves.iter().filter(|curve| 2 < curve.points.len()).map(line).collect(),
    )
}

/// What was published of a kind; `None`: not measured there.
fn published((nodes, is_acid): (u16, bool), sleep_s: f64) -> Option<f64> {
    let place = COLUMNS.iter().position(|it| *it == (nodes, is_acid))?;
    PUBLISHED.iter().find(|(of, _)| *of == sleep_s).map(|(_, rates)| rates[place])
}

/// A ratio of two figures, and the same ratio of the published ones.
fn beside(measured: f64, published: Option<f64>) -> String {
    match published {
        Some(published) => format!("{} (published {})", figure(measured), figure(published)),
        None => figure(measured),
    }
}

/// The thesis's three statements, from the figures.
fn shape(records: &[Record], sleeps: &[f64], columns: &[(u16, bool)]) -> String {
    let (Some(longest), Some(shortest)) = (sleeps.first().copied(), sleeps.last().copied()) else {
        return String::new();
    };
    let rate = |column: (u16, bool), sleep_s| rate(records, column.0, column.1, sleep_s);
    let ratio_of_published = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
    let growth = |column| rate(column, shortest) / rate(column, longest);
    let growth_beside = |column| {
        let published = ratio_of_published(published(column, shortest), published(column, longest));
        beside(growth(column), published)
    };
    let of_mode = |wanted: bool| -> Vec<(u16, bool)> {
        let is_meant = |(nodes, is_acid): &&(u16, bool)| 1 < *nodes && *is_acid == wanted;
        columns.iter().filter(is_meant).copied().collect()
    };
    let (acid, base) = (of_mode(true), of_mode(false));
    let mut said = Vec::new();
    for (acid, base) in acid.iter().copied().zip(base.iter().copied()) {
        let verdict = match growth(acid) / growth(base) {
            flatter if flatter < CLEARLY_LESS => "ACID is the flatter one, as published",
            steeper if 1.0 / CLEARLY_LESS < steeper => {
                "BASE is the flatter one, unlike what was published"
            }
            _ => "neither is clearly the flatter one, unlike what was published",
        };
        said.push(format!(
            "With {} nodes ACID grows by a factor of {} from the longest sleep to the shortest, BASE by {}: {verdict}.",
            acid.0,
            growth_beside(acid),
            growth_beside(base),
        ));
    }
    for (mode, of) in [("ACID", &acid), ("BASE", &base)] {
        let (Some(few), Some(many)) = (of.first().copied(), of.last().copied()) else { continue };
        if few == many {
            continue;
        }
        let ratio = rate(many, shortest) / rate(few, shortest);
        let verdict = match ratio {
            less if less < CLEARLY_LESS => "it falls with nodes, as published",
            _ => "it does not clearly fall with nodes, unlike what was published",
        };
        let published = ratio_of_published(published(many, shortest), published(few, shortest));
        said.push(format!(
            "At the shortest sleep {mode} with {} nodes has {} of its throughput with {}: {verdict}.",
            many.0,
            beside(ratio, published),
            few.0
        ));
    }
    said.join(" ")
}

fn over_time(record: &Record) -> Block {
    let statements = record.number("statements");
    let line = |kind: &str, factor: f64| Line {
        name: kind.to_owned(),
        points: record
            .of(kind)
            .per_second
            .iter()
            .enumerate()
            .map(|(second, count)| (second as f64, *count as f64 * factor))
            .collect(),
        is_dashed: false,
    };
    let name: String = record
        .run
        .chars()
        .map(|it| if it.is_ascii_alphanumeric() { it.to_ascii_lowercase() } else { '-' })
        .collect();
    Block::Plot(Chart {
        name: format!("over-time-{name}"),
        caption: format!(
            "{}: {} queries per second in {} s; {} alters refused",
            record.run,
            figure(record.figures.get("queries_per_s").copied().unwrap_or(f64::NAN)),
            figure(record.lasted_s),
            record.of(ALTERS).failed.values().sum::<u64>()
        ),
        x: Axis::of("second of the run"),
        y: Axis::of("queries per second"),
        series: vec![line("selects", 1.0), line("alters", statements)],
        marks: Marks::Lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Machine;

    #[test]
    fn the_program_is_called_as_the_thesis_has_it() {
        let spelt = |words: &str| -> Vec<OsString> {
            spell_out(words.split_whitespace().map(OsString::from))
        };
        assert_eq!(
            spelt("tutti-lab thesis -st 8 -at 8 -n 4 -s 2.0 --tpc"),
            "tutti-lab thesis --select-threads 8 --alter-threads 8 -n 4 -s 2.0 --tpc"
                .split_whitespace()
                .collect::<Vec<_>>()
        );
        assert_eq!(spelt("tutti-lab run -st"), ["tutti-lab", "run", "-st"]);
    }

    fn record(nodes: u16, mode: &str, sleep_s: f64, queries_per_s: f64) -> Record {
        Record {
            study: NAME.to_owned(),
            run: format!("{nodes} nodes, {mode}, sleep {sleep_s} s #1"),
            parameters: BTreeMap::from([
                ("nodes".to_owned(), nodes.into()),
                ("mode".to_owned(), mode.into()),
                ("sleep_s".to_owned(), sleep_s.into()),
            ]),
            lasted_s: 75.0,
            clients: BTreeMap::new(),
            figures: BTreeMap::from([("queries_per_s".to_owned(), queries_per_s)]),
            checked: String::new(),
            made_on: Machine::this("none", "none"),
        }
    }

    /// The published figures as if they were measured.
    #[test]
    fn the_published_figures_have_the_published_shape() {
        let mut records = Vec::new();
        for (sleep_s, rates) in PUBLISHED {
            for ((nodes, is_acid), rate) in COLUMNS.into_iter().zip(rates) {
                let plan = Plan { nodes, is_acid, sleep_s, repetition: 1 };
                records.push(record(nodes, plan.mode(), sleep_s, rate));
            }
        }
        let page = page(&records).unwrap().in_terminal();
        for said in [
            " 0.1 | 3180 | 3180 | 604 | 604 | 2192 | 2192 | 491 | 491 | 1141 | 1141 ",
            "With 2 nodes ACID grows by a factor of 2.78 (published 2.78) from the longest sleep to the shortest, \
             BASE by 7.48 (published 7.48): ACID is the flatter one, as published.",
            "At the shortest sleep BASE with 4 nodes has 0.521 (published 0.521) of its throughput with 2: it falls \
             with nodes, as published.",
        ] {
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words(&page).contains(&words(said)), "{said}: {page}");
        }
        // And what has another one is told so.
        records.retain(|record| record.text("mode") != "ACID" || record.number("nodes") == 2.0);
        records.iter_mut().filter(|it| it.text("mode") == "ACID").for_each(|it| {
            it.figures.insert("queries_per_s".to_owned(), 1_000.0 / it.number("sleep_s"));
        });
        let (sleeps, columns) = (sleeps_of(&records), columns_of(&records));
        let said = shape(&records, &sleeps, &columns);
        assert!(said.contains("BASE is the flatter one, unlike what was published"), "{said}");
    }
}
