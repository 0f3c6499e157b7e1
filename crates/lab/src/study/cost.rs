//! The cost model's study: how much longer do inserts take when the database is spread, near and far?
//!
//! Owns: the six deployments, the concurrent workers that insert the Lahman records, and the model of the increase.
//! The records, their tables and their verification are the workload's, `workload/lahman`. Never: knows how links
//! delay.
//! Source: "A cost model for ACID distributed databases": its deployments (i) to (vi), three numbers of
//! workers, five repetitions, everything undone before a run and every record verified after it.
//! Start reading at [`run`], then [`Deployment`].

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::Value;

use super::series::{OutputArgs, Series, shared_data};
use crate::configuration::{Configuration, Planned};
use crate::ground::{Distances, Ground, System};
use crate::load::{Client, Crew, Done, Driven, Pace, Step, Window, drive};
use crate::record::Record;
use crate::report::plot::{Axis, Chart, Marks, Series as Line};
use crate::report::{Block, Page, Table, figure, median};
use tutti_lab::distance::Shipped;
use tutti_lab::model::ols::Coefficient;
use tutti_lab::model::runs::{self, Run};
use tutti_lab::model::specification::{Specification, distributed};
use tutti_lab::model::summary;
use tutti_lab::workload::dialect::Dialect;
use tutti_lab::workload::lahman::{Lahman, Placement, insert};
use tutti_lab::workload::session::{PreparingSession, Session};

pub(crate) const NAME: &str = "cost";

const CONFIGURATION: Configuration = Configuration {
    kind: &["deployment", "workers"],
    varies: &["repetition"],
    shared: &["records", "source", "placement"],
};

/// Published in the paper's table for its own system: what each coefficient was.
const PUBLISHED: [(&str, f64); 5] = [
    ("Intercept", 1.7200),
    ("IsMultiNode", -0.2493),
    ("IsMultiDC", 0.2167),
    ("IsMultiContinent", 1.9180),
    ("Workers", -0.0040),
];

/// `tutti-lab cost`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CostArgs {
    /// Deployments to run, by the paper's numbers; the second one is what the others are compared with
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Deployment::ALL)]
    deployments: Vec<Deployment>,

    /// Concurrent workers
    #[arg(long, value_delimiter = ',', default_values_t = [20, 40, 60],
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: Vec<u16>,

    /// Runs of each deployment with each number of workers
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,

    /// Records to insert in a run, of each table its share; the paper inserted all 293,481
    #[arg(long, default_value_t = 6000, value_parser = clap::value_parser!(u32).range(3..))]
    records: u32,

    /// How the tables are spread: each record on one node, or all of them on every node, as consensus keeps
    /// them in the paper's system
    #[arg(long, value_enum, default_value_t = Placement::Hash)]
    placement: Placement,

    /// Directory with Batting.csv, Fielding.csv and Pitching.csv; without it, shared/data/lahman in this
    /// directory or one above it, else records of the same shape are made
    #[arg(long, value_name = "DIR")]
    lahman: Option<PathBuf>,

    /// Within a minute: few records, one repetition, two numbers of workers
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// The paper's deployments. The program that inserts, and here its gateway, is where the first node is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, ValueEnum)]
enum Deployment {
    /// PostgreSQL on the client's host
    #[value(name = "i")]
    SameHost,
    /// PostgreSQL on another host of the same data centre
    #[value(name = "ii")]
    OtherHost,
    /// One distributed node on the client's host
    #[value(name = "iii")]
    OneNode,
    /// Three nodes in one region
    #[value(name = "iv")]
    OneRegion,
    /// Three nodes in three regions of one continent
    #[value(name = "v")]
    OneContinent,
    /// Three nodes on three continents
    #[value(name = "vi")]
    ThreeContinents,
}

impl Deployment {
    const ALL: [Self; 6] = [
        Self::SameHost,
        Self::OtherHost,
        Self::OneNode,
        Self::OneRegion,
        Self::OneContinent,
        Self::ThreeContinents,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::SameHost => "i: PostgreSQL, same host",
            Self::OtherHost => "ii: PostgreSQL, other host",
            Self::OneNode => "iii: one node",
            Self::OneRegion => "iv: three nodes, one region",
            Self::OneContinent => "v: three regions",
            Self::ThreeContinents => "vi: three continents",
        }
    }

    fn short(self) -> &'static str {
        self.name().split(':').next().unwrap_or_default()
    }

    /// As between the paper's places; the first node is where the gateway is.
    fn distances(self) -> Distances {
        let nodes = |sites: Shipped| Distances::of_profile(&sites.profile(), 3);
        let near = Shipped::OneDataCentre.profile().inside();
        match self {
            Self::SameHost | Self::OneNode => Distances::default(),
            Self::OtherHost => Distances { clients: Some(near), ..Distances::default() },
            Self::OneRegion => {
                Distances { nodes: vec![None, Some(near), Some(near)], ..Distances::default() }
            }
            Self::OneContinent => nodes(Shipped::TwoCities),
            Self::ThreeContinents => nodes(Shipped::ThreeContinents),
        }
    }

    /// Kilometres between all pairs of nodes together, as the paper's data has them.
    fn total_km(self) -> f64 {
        match self {
            Self::OneContinent => 1_500.0,
            Self::ThreeContinents => 31_763.0,
            _ => 0.0,
        }
    }

    fn system(self) -> System {
        match self {
            Self::SameHost | Self::OtherHost => System::PostgreSql,
            Self::OneNode => System::Tutti { nodes: 1 },
            Self::OneRegion | Self::OneContinent | Self::ThreeContinents => {
                System::Tutti { nodes: 3 }
            }
        }
    }

    /// What the regression knows of it: several nodes, data centres, continents.
    fn dummies(self) -> [bool; 3] {
        [Self::OneRegion, Self::OneContinent, Self::ThreeContinents].map(|from| from <= self)
    }
}

/// Runs the study.
pub(crate) async fn run(mut args: CostArgs) -> anyhow::Result<()> {
    if args.quick {
        (args.records, args.repetitions) = (args.records.min(90), 1);
        args.workers = vec![6, 12];
    }
    let wanted = Some(args.records as usize);
    let dir = args.lahman.clone().or_else(|| shared_data("lahman"));
    let lahman = Arc::new(Lahman::of(dir.as_deref(), wanted)?);
    let plans: Vec<(Deployment, Vec<(u16, Planned)>)> =
        args.deployments.iter().map(|it| (*it, plan(&args, *it, &lahman))).collect();
    let all: Vec<Planned> =
        plans.iter().flat_map(|(_, runs)| runs.iter().map(|(_, run)| run.clone())).collect();
    let mut series = Series::begin(NAME, CONFIGURATION, &args.output, &all)?;
    for (deployment, runs) in plans {
        if series.passes_over(runs.iter().map(|(_, run)| run)) {
            continue;
        }
        let (system, distances) = (deployment.system(), deployment.distances());
        let workers_max = args.workers.iter().copied().max().unwrap_or_default();
        let ground = series.make(Ground::make(&system, workers_max, &distances)).await?;
        for (workers, Planned { name, parameters }) in runs {
            let machine = series.machine(&ground.name);
            let record = async {
                let driven =
                    insert_all(&ground, deployment, args.placement, workers, &lahman).await?;
                Ok(Record::of_clients(
                    NAME,
                    &name,
                    parameters,
                    &driven,
                    "every record was read back and is what was inserted",
                    machine,
                ))
            };
            series.run(&name, record).await?;
        }
        ground.remove().await?;
    }
    series.end(page)
}

/// The runs of a deployment, each with its workers.
fn plan(args: &CostArgs, deployment: Deployment, lahman: &Lahman) -> Vec<(u16, Planned)> {
    let [is_multi_node, is_multi_dc, is_multi_continent] = deployment.dummies();
    let mut planned = Vec::new();
    for repetition in 1..=args.repetitions {
        for workers in args.workers.iter().copied() {
            let run = Planned::of(
                format!("{}, {workers} workers #{repetition}", deployment.name()),
                [
                    ("deployment", deployment.name().into()),
                    ("workers", workers.into()),
                    ("repetition", repetition.into()),
                    ("records", lahman.len().into()),
                    ("source", lahman.source.as_str().into()),
                    ("placement", args.placement.name().into()),
                    ("is_distributed", (Deployment::OneNode <= deployment).into()),
                    ("is_multi_node", is_multi_node.into()),
                    ("is_multi_dc", is_multi_dc.into()),
                    ("is_multi_continent", is_multi_continent.into()),
                    ("rtt_ms", deployment.distances().mean_rtt_ms().into()),
                ],
            );
            planned.push((workers, run));
        }
    }
    planned
}

/// Undoes what is there, inserts all records, and reads them back.
async fn insert_all(
    ground: &Ground,
    deployment: Deployment,
    placement: Placement,
    workers: u16,
    lahman: &Arc<Lahman>,
) -> anyhow::Result<Driven> {
    let mut session = PreparingSession::connect(&ground.url).await?;
    let dialect = match deployment.system() {
        System::Tutti { .. } => Dialect::Tutti,
        _ => Dialect::Plain,
    };
    for table in &lahman.tables {
        session.query(&format!("DROP TABLE IF EXISTS {}", table.name)).await?;
        for statement in table.create_sql(dialect, placement) {
            session.query(&statement).await?;
        }
    }
    ground.tidy().await?;
    let next = Arc::new(AtomicUsize::new(0));
    let mut clients: Vec<Box<dyn Client>> = Vec::new();
    for _ in 0..workers {
        clients.push(Box::new(Worker::connect(&ground.url, lahman, &next).await?));
    }
    let pace = Pace::Closed { think: Duration::ZERO };
    let crew = Crew { kind: "inserts", pace, clients, decides: true };
    let window = Window { warm_up: Duration::ZERO, lasts: None };
    let driven = drive(vec![crew], window, Arc::<AtomicU64>::default()).await?;
    for table in &lahman.tables {
        let rows = session.query(&table.select_sql()).await?;
        table.verify(&rows).context("after the run")?;
    }
    Ok(driven)
}

/// Takes the next record that nobody has taken, and inserts it.
struct Worker {
    session: PreparingSession,
    /// One for each table.
    statements: Vec<String>,
    lahman: Arc<Lahman>,
    next: Arc<AtomicUsize>,
}

impl Worker {
    /// Connected, with its statements prepared: what is timed is inserting.
    async fn connect(
        url: &str,
        lahman: &Arc<Lahman>,
        next: &Arc<AtomicUsize>,
    ) -> anyhow::Result<Self> {
        let mut session = PreparingSession::connect(url).await?;
        let mut statements = Vec::new();
        for table in &lahman.tables {
            let statement = table.insert_sql();
            session.prepare(&statement).await?;
            statements.push(statement);
        }
        Ok(Self { session, statements, lahman: lahman.clone(), next: next.clone() })
    }

    async fn insert(&mut self) -> anyhow::Result<Done> {
        let mut place = self.next.fetch_add(1, Ordering::Relaxed);
        for (table, statement) in self.lahman.tables.iter().zip(&self.statements) {
            let Some(record) = table.records.get(place) else {
                place -= table.records.len();
                continue;
            };
            let number = i64::try_from(place + 1)?;
            // One that fails would be missing: the paper counts only runs without.
            let inserted = insert(&mut self.session, statement, number, record).await?;
            anyhow::ensure!(inserted == 1, "an insert says that it made {inserted} rows");
            return Ok(Done::Right);
        }
        Ok(Done::Nothing)
    }
}

impl Client for Worker {
    fn step(&mut self) -> Step<'_> {
        Box::pin(self.insert())
    }
}

/// The runs of a deployment, by workers.
fn of<'a>(records: &'a [Record], deployment: &str, workers: f64) -> Vec<&'a Record> {
    let is_meant = |record: &&Record| {
        record.text("deployment") == deployment && record.number("workers") == workers
    };
    records.iter().filter(is_meant).collect()
}

/// Each run's time, as a factor of the median time of the baseline with as many workers.
fn increases(records: &[Record]) -> Vec<(&Record, f64)> {
    let baseline = |workers| {
        let times = of(records, Deployment::OtherHost.name(), workers);
        median(times.iter().map(|record| record.lasted_s).collect())
    };
    let mut increases = Vec::new();
    for record in records {
        increases.push((record, record.lasted_s / baseline(record.number("workers"))));
    }
    increases.retain(|(_, factor)| factor.is_finite());
    increases
}

/// What the runs have shown.
pub(crate) fn page(records: &[Record]) -> anyhow::Result<Page> {
    let mut workers: Vec<f64> = records.iter().map(|record| record.number("workers")).collect();
    workers.sort_by(f64::total_cmp);
    workers.dedup();
    let deployments: Vec<Deployment> = Deployment::ALL
        .into_iter()
        .filter(|deployment| {
            records.iter().any(|record| record.text("deployment") == deployment.name())
        })
        .collect();
    let increases = increases(records);
    let mut lines = Vec::new();
    for deployment in &deployments {
        for workers in &workers {
            let here = of(records, deployment.name(), *workers);
            let Some(first) = here.first() else { continue };
            let factors = increases.iter().filter(|(record, _)| {
                record.text("deployment") == deployment.name()
                    && record.number("workers") == *workers
            });
            let factor = median(factors.map(|(_, factor)| *factor).collect());
            let of = |figure: fn(&Record) -> f64| {
                median(here.iter().map(|record| figure(record)).collect::<Vec<_>>())
            };
            lines.push(vec![
                deployment.name().to_owned(),
                workers.to_string(),
                figure(first.number("rtt_ms")),
                here.len().to_string(),
                figure(of(|record| record.lasted_s)),
                figure(of(|record| record.of("inserts").per_s)),
                figure(of(|record| record.of("inserts").p50_ms)),
                figure(of(|record| record.of("inserts").p99_ms)),
                figure(factor),
            ]);
        }
    }
    let mut blocks = vec![Table::block(
        "Medians of the repetitions. Round trip: of a statement to its node, mean over the nodes. Increase: run \
         time as a factor of that of deployment ii with as many workers",
        &[
            "deployment",
            "workers",
            "round trip ms",
            "runs",
            "time s",
            "inserts/s",
            "p50 ms",
            "p99 ms",
            "increase",
        ],
        lines,
    )];
    if !increases.is_empty() {
        blocks.push(Block::Plot(box_plot(&increases, &deployments, &workers)));
    }
    let mut lead_of_model = String::new();
    match modelled(&increases) {
        Ok((fitted, model)) => {
            lead_of_model = fitted;
            blocks.extend(model);
        }
        Err(why) => blocks.push(Block::Text(format!("No model is fitted: {why:#}."))),
    }
    let spreadsheet =
        increases.iter().map(|(record, increase)| (as_run(record, *increase), record.lasted_s));
    let first = &records[0];
    Ok(Page {
        title: "What inserts cost, here and far apart".to_owned(),
        lead: format!(
            "{} records of {} in each run, inserted by concurrent workers, each in a transaction of its own, \
             tables spread by {}; the deployments are the paper's, with emulated distances.{lead_of_model}",
            first.number("records"),
            first.text("source"),
            first.text("placement"),
        ),
        blocks,
        // For `tutti-lab fit` and `tutti-lab predict --from`.
        files: vec![("runs.csv".to_owned(), runs::text_of(spreadsheet)?)],
    })
}

/// A run as the cost model has it.
fn as_run(record: &Record, increase: f64) -> Run {
    let is =
        |parameter: &str| record.parameters.get(parameter).and_then(Value::as_bool) == Some(true);
    let deployment = Deployment::ALL.into_iter().find(|it| it.name() == record.text("deployment"));
    Run {
        batch_description: record.text("deployment").to_owned(),
        workers: record.number("workers") as u32,
        is_distributed: is("is_distributed"),
        is_multi_node: is("is_multi_node"),
        is_multi_dc: is("is_multi_dc"),
        is_multi_continent: is("is_multi_continent"),
        multi_node_count: if is("is_multi_node") { 3 } else { 0 },
        total_distance_km: deployment.map_or(0.0, Deployment::total_km),
        runtime_factor: increase.ln(),
    }
}

/// The paper's model of our increases: a sentence for the lead, and its table, its coefficients beside the
/// published ones, and its residuals.
fn modelled(increases: &[(&Record, f64)]) -> anyhow::Result<(String, Vec<Block>)> {
    let runs: Vec<Run> =
        increases.iter().map(|(record, increase)| as_run(record, *increase)).collect();
    let runs = distributed(&runs);
    let fit = Specification::Published.fit(&runs)?;
    let coefficients = fit.estimate.coefficients();
    let line = |of: &Coefficient| {
        let published = PUBLISHED.iter().find(|(term, _)| of.term.starts_with(term));
        vec![
            of.term.clone(),
            format!("{:.4}", of.value),
            format!("{:.3}", of.standard_error),
            format!("{:.3} to {:.3}", of.low, of.high),
            format!("{:.3}", of.p),
            figure(of.value.exp()),
            published.map_or("-".to_owned(), |(_, value)| format!("{value:.4}")),
        ]
    };
    let points = |workers: u32| Line {
        name: format!("{workers} workers"),
        points: runs
            .iter()
            .zip(fit.fitted.iter().zip(&fit.residuals))
            .filter(|(run, _)| run.workers == workers)
            .map(|(_, (fitted, residual))| (*fitted, *residual))
            .collect(),
        is_dashed: false,
    };
    let mut workers: Vec<u32> = runs.iter().map(|run| run.workers).collect();
    workers.sort_unstable();
    workers.dedup();
    let lead = format!(
        " The paper's model explains {} % of the variance of ln(run time / baseline) over {} runs.",
        figure(100.0 * fit.r_squared),
        fit.observations
    );
    let blocks = vec![
        Block::Heading("The paper's model, fitted to these runs".to_owned()),
        Table::block(
            "ln(run time / run time of ii) by least squares. Factor: exp(coefficient), what a step multiplies the \
             run time by. Published: the paper's coefficients, of CockroachDB on hired machines; signs and sizes \
             can be compared, not the systems",
            &["term", "coefficient", "s.e.", "95 % interval", "p", "factor", "published"],
            coefficients.iter().map(line).collect(),
        ),
        Block::Plain(summary::table("RuntimeFactor", &fit)),
        Block::Plot(Chart {
            name: "residuals".to_owned(),
            caption: "What the model leaves unexplained, by what it says".to_owned(),
            x: Axis::of("fitted ln(run time / run time of ii)"),
            y: Axis::of("residual"),
            series: workers.into_iter().map(points).collect(),
            marks: Marks::Points,
        }),
    ];
    Ok((lead, blocks))
}

fn box_plot(increases: &[(&Record, f64)], deployments: &[Deployment], workers: &[f64]) -> Chart {
    let place = |record: &Record| {
        deployments.iter().position(|it| it.name() == record.text("deployment")).unwrap_or_default()
    };
    let series = |workers: &f64| Line {
        name: format!("{workers} workers"),
        points: increases
            .iter()
            .filter(|(record, _)| record.number("workers") == *workers)
            .map(|(record, factor)| (place(record) as f64, *factor))
            .collect(),
        is_dashed: false,
    };
    Chart {
        name: "increase-by-deployment".to_owned(),
        caption: "Run time as a factor of deployment ii: quartiles, least and greatest of the repetitions".to_owned(),
        x: Axis::named("deployment", deployments.iter().map(|it| it.short().to_owned()).collect()),
        y: Axis::of("run time / run time of ii").logarithmic(),
        series: workers.iter().map(series).collect(),
        marks: Marks::Boxes,
    }
}
