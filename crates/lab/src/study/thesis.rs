//! The thesis's study: two-phase commit against none, on replicated servers, while selects are balanced over them.
//!
//! Owns: the shop, its selects and random alters, the batch of 25 runs, and the comparison of its curves with the
//! published ones. Never: knows how writes travel.
//! Source: "Two-phase commit against none, on replicated PostgreSQL", sections 3.1 to 4.3: 4,800 selects by 8
//! threads, 8 threads that alter until these are done, sleeps of 2.0 to 0.1 s between alters, 1, 2 and 4 nodes.
//! Start reading at [`run`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use super::series::{OutputArgs, Series};
use crate::ground::{Distances, Ground, System};
use crate::load::{Client, Crew, Done, Pace, Step, Window, drive};
use crate::record::Record;
use crate::report::plot::{Axis, Chart, Marks, Series as Line};
use crate::report::{Block, Page, Table, figure, median};
use tutti_lab::client;
use tutti_lab::distance::Stretch;
use tutti_lab::workload::session::{Failure, PreparingSession, Session};

pub(crate) const NAME: &str = "thesis";

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

const CONVERGE_LIMIT: Duration = Duration::from_secs(60);

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

    /// Milliseconds of a round trip between the gateway and every node but the first
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

    fn run(self) -> String {
        let Self { nodes, sleep_s, repetition, .. } = self;
        format!("{nodes} nodes, {}, sleep {sleep_s} s #{repetition}", self.mode())
    }
}

/// As the thesis's program is called: `-st 8 -at 8`, which are two letters behind one hyphen.
pub(crate) fn spell_out(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let spelt = |argument: String| match argument.as_str() {
        "-st" => "--select-threads".to_owned(),
        "-at" => "--alter-threads".to_owned(),
        _ => argument,
    };
    arguments.map(spelt).collect()
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
    let mut series = Series::begin(NAME, &args.output, plans.len())?;
    let mut kinds: Vec<(u16, bool)> = plans.iter().map(|plan| (plan.nodes, plan.is_acid)).collect();
    kinds.dedup();
    for (nodes, is_acid) in kinds {
        let here = || plans.iter().filter(|plan| (plan.nodes, plan.is_acid) == (nodes, is_acid));
        let names: Vec<String> = here().map(|plan| plan.run()).collect();
        if series.passes_over(&names) {
            continue;
        }
        let there = args.rtt_ms.map(Stretch::of_rtt_ms).transpose()?;
        let mut far = vec![there; usize::from(nodes)];
        far[0] = None;
        let distances = Distances { nodes: far, ..Distances::default() };
        let clients = args.select_threads + args.alter_threads;
        let ground = Ground::make(&System::Tutti { nodes }, clients, &distances).await?;
        for plan in here() {
            let run = plan.run();
            let machine = series.machine(&ground.name);
            let record = measure(&args, &ground, *plan, machine);
            series.run(&run, record).await?;
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

async fn measure(
    args: &ThesisArgs,
    ground: &Ground,
    plan: Plan,
    machine: crate::record::Machine,
) -> anyhow::Result<Record> {
    make_shop(args, ground, plan).await.context("cannot make the shop")?;
    ground.tidy().await?;
    let left = Arc::new(AtomicI64::new(args.selects));
    let purchases = Arc::new(AtomicI64::new(1));
    let mut selects: Vec<Box<dyn Client>> = Vec::new();
    for number in 0..args.select_threads {
        let session = PreparingSession::connect(&ground.url).await?;
        let (random, left) = (StdRng::seed_from_u64(u64::from(number)), left.clone());
        selects.push(Box::new(Looker { session, random, left, shoppers: args.shoppers }));
    }
    let mut alters: Vec<Box<dyn Client>> = Vec::new();
    for number in 0..args.alter_threads {
        let session = PreparingSession::connect(&ground.url).await?;
        alters.push(Box::new(Shopper {
            session,
            random: StdRng::seed_from_u64(1_000 + u64::from(number)),
            purchases: purchases.clone(),
            shoppers: args.shoppers,
            statements: args.statements,
        }));
    }
    let crews = vec![
        Crew {
            kind: "selects",
            pace: Pace::Closed { think: Duration::from_millis(args.select_pause_ms) },
            clients: selects,
            decides: true,
        },
        Crew {
            kind: "alters",
            pace: Pace::Closed { think: Duration::from_secs_f64(plan.sleep_s) },
            clients: alters,
            decides: false,
        },
    ];
    let window = Window { warm_up: Duration::ZERO, lasts: None };
    let driven = drive(crews, window, Arc::<AtomicU64>::default()).await?;
    let checked = check(ground).await.context("after the run")?;
    let lasted_s = driven.lasted.as_secs_f64();
    let clients: BTreeMap<_, _> = driven.figures().into_iter().collect();
    let count = |kind: &str| clients.get(kind).map_or(0, |figures| figures.count) as f64;
    let queries = count("selects") + count("alters") * f64::from(args.statements);
    let figures = BTreeMap::from([("queries_per_s".to_owned(), queries / lasted_s)]);
    let parameters = BTreeMap::from([
        ("nodes".to_owned(), Value::from(plan.nodes)),
        ("mode".to_owned(), Value::from(plan.mode())),
        ("sleep_s".to_owned(), Value::from(plan.sleep_s)),
        ("repetition".to_owned(), Value::from(plan.repetition)),
        ("selects".to_owned(), Value::from(args.selects)),
        ("select_threads".to_owned(), Value::from(args.select_threads)),
        ("alter_threads".to_owned(), Value::from(args.alter_threads)),
        ("select_pause_ms".to_owned(), Value::from(args.select_pause_ms)),
        ("statements".to_owned(), Value::from(args.statements)),
        ("rtt_ms".to_owned(), Value::from(args.rtt_ms.unwrap_or_default())),
    ]);
    let (study, run) = (NAME.to_owned(), plan.run());
    Ok(Record { study, run, parameters, lasted_s, clients, figures, checked, made_on: machine })
}

/// Makes and fills the shop anew.
async fn make_shop(args: &ThesisArgs, ground: &Ground, plan: Plan) -> anyhow::Result<()> {
    let spread = match plan.nodes == 1 || plan.is_acid {
        true => "DISTRIBUTE BY REPLICATED",
        false => "DISTRIBUTE BY REPLICATED ASYNC",
    };
    let mut session = PreparingSession::connect(&ground.url).await?;
    let (shoppers, items) = (args.shoppers, args.shoppers * 10);
    for sql in [
        "DROP TABLE IF EXISTS purchase, item, shopper".to_owned(),
        format!(
            "CREATE TABLE shopper (id bigint PRIMARY KEY, name text NOT NULL, spent bigint NOT NULL) {spread}"
        ),
        format!(
            "CREATE TABLE item (id bigint PRIMARY KEY, name text NOT NULL, price bigint NOT NULL, stock bigint NOT NULL) {spread}"
        ),
        format!(
            "CREATE TABLE purchase (id bigint PRIMARY KEY, shopper bigint NOT NULL, item bigint NOT NULL, shipped boolean NOT NULL) {spread}"
        ),
    ] {
        session.query(&sql).await.with_context(|| sql.clone())?;
    }
    // Row by row in batches: each row has its own home.
    for (table, count, row) in [
        ("shopper", shoppers, "'shopper no. ' || n, 0"),
        ("item", items, "'item no. ' || n, 1 + n % 90, 1000000"),
    ] {
        let sql = format!("INSERT INTO {table} SELECT n, {row} FROM generate_series(1, {count}) n");
        session.query(&sql).await.with_context(|| sql.clone())?;
    }
    converge(ground).await.context("after the shop was filled")
}

/// Waits until all nodes have the same.
async fn converge(ground: &Ground) -> anyhow::Result<()> {
    let begun = std::time::Instant::now();
    loop {
        let states = states(ground).await?;
        if states.windows(2).all(|two| two[0] == two[1]) {
            return Ok(());
        }
        ensure!(begun.elapsed() < CONVERGE_LIMIT, "the nodes have not become the same: {states:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What each node has, in one figure for each table.
async fn states(ground: &Ground) -> anyhow::Result<Vec<Vec<Option<String>>>> {
    let mut states = Vec::new();
    for url in &ground.node_urls {
        let node = client::connect(url).await?;
        let mut state = Vec::new();
        for table in ["shopper", "item", "purchase"] {
            let sql = format!("SELECT md5(string_agg(t::text, ',' ORDER BY id)) FROM {table} t");
            state.push(node.query_one(&sql, &[]).await?.get(0));
        }
        states.push(state);
    }
    Ok(states)
}

/// Errors: nodes differ for longer than what is under way needs.
async fn check(ground: &Ground) -> anyhow::Result<String> {
    converge(ground).await?;
    Ok("all nodes have the same rows in the end".to_owned())
}

/// Looks at what is for sale, and at what was bought.
struct Looker {
    session: PreparingSession,
    random: StdRng,
    left: Arc<AtomicI64>,
    shoppers: i64,
}

impl Client for Looker {
    fn step(&mut self) -> Step<'_> {
        Box::pin(async {
            if self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
                return Ok(Done::Nothing);
            }
            let (shopper, item) = (
                self.random.random_range(1..=self.shoppers),
                self.random.random_range(1..=self.shoppers * 10),
            );
            let looked = match self.random.random_range(0..4) {
                0 => {
                    self.session
                        .execute("SELECT name, spent FROM shopper WHERE id = $1", &[shopper])
                        .await
                }
                1 => {
                    self.session
                        .execute("SELECT name, price, stock FROM item WHERE id = $1", &[item])
                        .await
                }
                2 => {
                    let sql = "SELECT i.name FROM purchase p JOIN item i ON i.id = p.item WHERE p.shopper = $1";
                    self.session.execute(sql, &[shopper]).await
                }
                _ => {
                    let sql =
                        "SELECT id, name FROM item WHERE id BETWEEN $1 AND $1 + 20 ORDER BY price";
                    self.session.execute(sql, &[item]).await
                }
            };
            done(&mut self.session, looked.map(|_| ())).await
        })
    }
}

/// Buys, ships, restocks.
struct Shopper {
    session: PreparingSession,
    random: StdRng,
    purchases: Arc<AtomicI64>,
    shoppers: i64,
    statements: u32,
}

impl Shopper {
    async fn alter(&mut self) -> Result<(), Failure> {
        self.session.query("BEGIN").await?;
        // Rows in the order of their numbers, so that no two threads wait for each other in a circle.
        let mut items: Vec<i64> = (0..self.statements)
            .map(|_| self.random.random_range(1..=self.shoppers * 10))
            .collect();
        items.sort_unstable();
        for item in items {
            match self.random.random_range(0..3) {
                0 => {
                    let number = self.purchases.fetch_add(1, Ordering::Relaxed);
                    let shopper = self.random.random_range(1..=self.shoppers);
                    let sql = "INSERT INTO purchase VALUES ($1, $2, $3, false)";
                    self.session.execute(sql, &[number, shopper, item]).await?;
                }
                1 => {
                    let sql = "UPDATE item SET stock = stock - 1 WHERE id = $1";
                    self.session.execute(sql, &[item]).await?;
                }
                _ => {
                    let sql = "UPDATE item SET price = 1 + (price + 7) % 90 WHERE id = $1";
                    self.session.execute(sql, &[item]).await?;
                }
            }
        }
        self.session.query("COMMIT").await.map(|_| ())
    }
}

impl Client for Shopper {
    fn step(&mut self) -> Step<'_> {
        Box::pin(async {
            let altered = self.alter().await;
            done(&mut self.session, altered).await
        })
    }
}

async fn done(session: &mut PreparingSession, answer: Result<(), Failure>) -> anyhow::Result<Done> {
    match answer {
        Ok(()) => Ok(Done::Right),
        Err(Failure::Error { sqlstate, .. }) => {
            session.query("ROLLBACK").await?;
            Ok(Done::Failed(sqlstate))
        }
        Err(lost) => Err(lost.into()),
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

/// What the runs have shown.
pub(crate) fn page(records: &[Record]) -> anyhow::Result<Page> {
    let mut sleeps: Vec<f64> = records.iter().map(|record| record.number("sleep_s")).collect();
    sleeps.sort_by(|one, other| other.total_cmp(one));
    sleeps.dedup();
    let mut columns: Vec<(u16, bool)> = records
        .iter()
        .map(|record| (record.number("nodes") as u16, record.text("mode") != "BASE"))
        .collect();
    columns.sort_by_key(|(nodes, is_acid)| (*nodes, !is_acid));
    columns.dedup();
    let published = |column: (u16, bool), sleep_s: f64| {
        let place = COLUMNS.iter().position(|it| *it == column)?;
        PUBLISHED.iter().find(|(of, _)| *of == sleep_s).map(|(_, rates)| rates[place])
    };
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
             these are done, each alter a transaction of {} statements. ACID: tables replicated with every commit; \
             BASE: replicated asynchronously.",
            first.number("selects"),
            first.number("select_threads"),
            first.number("select_pause_ms"),
            first.number("alter_threads"),
            first.number("statements"),
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

/// The thesis's three statements, from the figures.
fn shape(records: &[Record], sleeps: &[f64], columns: &[(u16, bool)]) -> String {
    let (Some(longest), Some(shortest)) = (sleeps.first().copied(), sleeps.last().copied()) else {
        return String::new();
    };
    let growth = |column: (u16, bool)| {
        rate(records, column.0, column.1, shortest) / rate(records, column.0, column.1, longest)
    };
    let mut said = Vec::new();
    let of_mode = |wanted: bool| -> Vec<(u16, bool)> {
        columns
            .iter()
            .copied()
            .filter(|(nodes, is_acid)| 1 < *nodes && *is_acid == wanted)
            .collect()
    };
    let (acid, base) = (of_mode(true), of_mode(false));
    for (acid, base) in acid.iter().zip(&base) {
        let (flat, grows) = (growth(*acid), growth(*base));
        said.push(format!(
            "With {} nodes ACID grows {}-fold from the longest sleep to the shortest, BASE {}-fold: {}.",
            acid.0,
            figure(flat),
            figure(grows),
            if flat < grows { "ACID is the flatter one, as published" } else { "not as published" }
        ));
    }
    for (mode, of) in [("ACID", &acid), ("BASE", &base)] {
        let (Some(few), Some(many)) = (of.first(), of.last()) else { continue };
        if few == many {
            continue;
        }
        let ratio = rate(records, many.0, many.1, shortest) / rate(records, few.0, few.1, shortest);
        let falls = match ratio < 1.0 {
            true => "it falls with nodes, as published",
            false => "it does not fall with nodes, unlike what was published",
        };
        said.push(format!(
            "At the shortest sleep {mode} with {} nodes has {} of its throughput with {}: {falls}.",
            many.0,
            figure(ratio),
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
            "{}: {} queries per second in {} s",
            record.run,
            figure(record.figures.get("queries_per_s").copied().unwrap_or(f64::NAN)),
            figure(record.lasted_s)
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

    #[test]
    fn the_program_is_called_as_the_thesis_has_it() {
        let words =
            ["tutti-lab", "thesis", "-st", "8", "-at", "8", "-n", "4", "-s", "2.0", "--tpc"];
        let spelt = spell_out(words.map(str::to_owned).into_iter());
        assert_eq!(spelt[2], "--select-threads");
        assert_eq!(spelt[4], "--alter-threads");
        assert_eq!(spelt[6..], words[6..]);
    }
}
