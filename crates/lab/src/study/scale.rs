//! How throughput grows with nodes: the same small share of a processor for each of them.
//!
//! Owns: the mixes of local and global transactions, and the comparison with Postgres-XC's figures.
//! Never: limits anything itself.
//! Source: Postgres-XC's throughput of DBT-1 beside one PostgreSQL, which is its figure for write scalability.
//! Start reading at [`run`].

use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::bank::{Bank, CHECKED, TRANSFERS};
use super::series::{OutputArgs, Series};
use crate::configuration::{Configuration, Planned};
use crate::ground::share::Shares;
use crate::ground::{Distances, System};
use crate::load::Driven;
use crate::record::Record;
use crate::report::plot::{Axis, Chart, Marks, Series as Line};
use crate::report::{Block, Page, Table, figure, median};

pub(crate) const NAME: &str = "scale";

/// Servers, and the throughput of Postgres-XC with them, as a factor of one PostgreSQL's.
const POSTGRES_XC: [(u16, f64); 5] = [(1, 0.71), (2, 1.39), (3, 2.06), (5, 3.24), (10, 5.88)];
/// What we want of local transactions.
const AIMS: [(u16, f64); 5] = [(1, 0.95), (2, 1.9), (3, 2.8), (5, 4.5), (10, 9.0)];

const CONFIGURATION: Configuration = Configuration {
    kind: &["system", "nodes", "global_percent"],
    varies: &["repetition"],
    shared: &["share_percent", "clients_per_node", "seconds"],
};

const ACCOUNTS_PER_NODE: i64 = 2_000;
const WARM_UP: Duration = Duration::from_secs(1);
const DIRECT: &str = "PostgreSQL";

/// `tutti-lab scale`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScaleArgs {
    /// Numbers of nodes
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 3, 5, 10],
          value_parser = clap::value_parser!(u16).range(1..=32))]
    nodes: Vec<u16>,

    /// Hundredths of a processor that each node has
    #[arg(long, default_value_t = 8.0)]
    share: f64,

    /// Percent of transactions that are on two nodes
    #[arg(long, value_delimiter = ',', default_values_t = [0, 10, 100],
          value_parser = clap::value_parser!(u8).range(0..=100))]
    global: Vec<u8>,

    /// Clients for each node
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=100))]
    clients: u16,

    /// Seconds that are counted of each run
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,

    /// Runs of each kind
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,

    /// Within a minute: 1 and 3 nodes, one repetition
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the study.
pub(crate) async fn run(mut args: ScaleArgs) -> anyhow::Result<()> {
    if args.quick {
        (args.nodes, args.repetitions, args.seconds) = (vec![1, 3], 1, 2);
        args.clients = args.clients.min(4);
    }
    let plans = plan(&args);
    let all: Vec<Planned> =
        plans.iter().flat_map(|(.., runs)| runs.iter().map(|(_, run)| run.clone())).collect();
    let mut series = Series::begin(NAME, CONFIGURATION, &args.output, &all)?;
    for (system, nodes, runs) in plans {
        if series.passes_over(runs.iter().map(|(_, run)| run)) {
            continue;
        }
        let place = series.make(Place::make(&args, system, nodes)).await?;
        for (global, Planned { name, mut parameters }) in runs {
            let machine = series.machine(&place.bank.ground.name);
            let limited = place.limited.as_deref().unwrap_or("yes");
            parameters.insert("limited".to_owned(), limited.into());
            let record = async {
                place.bank.ground.tidy().await?;
                let driven = place.measure(&args, global).await?;
                Ok(Record::of_clients(NAME, &name, parameters, &driven, CHECKED, machine))
            };
            series.run(&name, record).await?;
        }
        place.bank.ground.remove().await?;
    }
    series.end(page)
}

/// The runs on a system, each with its percentage of global transactions.
type Runs = Vec<(u8, Planned)>;

/// Systems with their numbers of nodes, and the runs on each.
fn plan(args: &ScaleArgs) -> Vec<(&'static str, u16, Runs)> {
    let kinds = [(DIRECT, 1)].into_iter().chain(args.nodes.iter().map(|nodes| ("Tutti", *nodes)));
    let of_kind = |(system, nodes): (&'static str, u16)| {
        // One node has no transaction over two.
        let mixes = if nodes == 1 { vec![0] } else { args.global.clone() };
        let mut runs = Vec::new();
        for repetition in 1..=args.repetitions {
            for global in mixes.iter().copied() {
                let run = Planned::of(
                    format!("{system}, {nodes} nodes, {global} % global #{repetition}"),
                    [
                        ("system", system.into()),
                        ("nodes", nodes.into()),
                        ("global_percent", global.into()),
                        ("share_percent", args.share.into()),
                        ("clients_per_node", args.clients.into()),
                        ("seconds", args.seconds.into()),
                        ("repetition", repetition.into()),
                    ],
                );
                runs.push((global, run));
            }
        }
        (system, nodes, runs)
    };
    kinds.map(of_kind).collect()
}

/// Accounts on servers with their shares.
struct Place {
    bank: Bank,
    clients: u16,
    /// Why the servers could not be limited, if so.
    limited: Option<String>,
    /// Dropped last: it ends with the servers.
    _shares: Shares,
}

impl Place {
    async fn make(args: &ScaleArgs, name: &str, nodes: u16) -> anyhow::Result<Self> {
        let system = match name {
            DIRECT => System::PostgreSql,
            _ => System::Tutti { nodes },
        };
        let clients = args.clients * nodes;
        let accounts = ACCOUNTS_PER_NODE * i64::from(nodes);
        let bank = Bank::open(&system, clients, &Distances::default(), accounts).await?;
        // Limited only now, for it would take long with so little.
        let (shares, limited) = match Shares::give(&bank.ground.pids(), args.share) {
            Ok(shares) => (shares, None),
            Err(error) => {
                let why = format!("no: {error:#}");
                eprintln!(
                    "the nodes share the whole processor, for it cannot be limited here ({why})"
                );
                (Shares::default(), Some(why))
            }
        };
        Ok(Self { bank, clients, limited, _shares: shares })
    }

    async fn measure(&self, args: &ScaleArgs, global: u8) -> anyhow::Result<Driven> {
        let movers = self.bank.movers(self.clients, f64::from(global) / 100.0, None).await?;
        let driven = self.bank.work(movers, WARM_UP, args.seconds, Arc::default()).await?;
        self.bank.check().await?;
        Ok(driven)
    }
}

/// What the runs have shown.
pub(crate) fn page(records: &[Record]) -> anyhow::Result<Page> {
    let rates = |system: &str, nodes: u16, global: f64| -> Vec<f64> {
        let here = records.iter().filter(|record| {
            record.text("system") == system
                && record.number("nodes") == f64::from(nodes)
                && record.number("global_percent") == global
        });
        here.map(|record| record.of(TRANSFERS).per_s).collect()
    };
    let one = median(rates(DIRECT, 1, 0.0));
    let mut nodes: Vec<u16> = records.iter().map(|record| record.number("nodes") as u16).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let mut mixes: Vec<f64> =
        records.iter().map(|record| record.number("global_percent")).collect();
    mixes.sort_by(f64::total_cmp);
    mixes.dedup();
    let of = |table: &[(u16, f64)], nodes: u16| {
        table.iter().find(|(count, _)| *count == nodes).map_or(f64::NAN, |(_, factor)| *factor)
    };
    let mix_name = |mix: f64| match mix {
        0.0 => "all local".to_owned(),
        100.0 => "all on two nodes".to_owned(),
        some => format!("{some} % on two nodes"),
    };
    let mut lines = Vec::new();
    for count in &nodes {
        let mut line = vec![count.to_string()];
        line.extend(mixes.iter().map(|mix| figure(median(rates("Tutti", *count, *mix)))));
        line.extend(mixes.iter().map(|mix| figure(median(rates("Tutti", *count, *mix)) / one)));
        line.extend([figure(of(&POSTGRES_XC, *count)), figure(of(&AIMS, *count))]);
        lines.push(line);
    }
    let mut columns = vec!["nodes".to_owned()];
    columns.extend(mixes.iter().map(|mix| format!("{}: per s", mix_name(*mix))));
    columns.extend(mixes.iter().map(|mix| format!("{}: factor", mix_name(*mix))));
    columns.extend(["Postgres-XC (published)".to_owned(), "aim for local".to_owned()]);
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let measured = |mix: &f64| Line {
        name: mix_name(*mix),
        points: nodes
            .iter()
            .map(|count| (f64::from(*count), median(rates("Tutti", *count, *mix)) / one))
            .filter(|(_, factor)| factor.is_finite())
            .collect(),
        is_dashed: false,
    };
    let mut series: Vec<Line> = mixes.iter().map(measured).collect();
    let published = POSTGRES_XC.iter().map(|(count, factor)| (f64::from(*count), *factor));
    series.push(Line {
        name: "Postgres-XC, DBT-1".to_owned(),
        points: published
            .filter(|(count, _)| nodes.iter().any(|it| f64::from(*it) == *count))
            .collect(),
        is_dashed: true,
    });
    let first = &records[0];
    let limit = match first.text("limited") {
        "yes" => format!(
            "each server has {} % of one processor of its own, and the gateway and the clients the rest",
            first.number("share_percent")
        ),
        why => format!(
            "the servers could not be limited ({why}), so they compete for the same processors"
        ),
    };
    Ok(Page {
        title: "Throughput by number of nodes".to_owned(),
        lead: format!(
            "Transfers between two accounts, of one node or of two; {limit}. Factors are of one PostgreSQL \
             server with the same share and clients that connect to it directly ({} transfers per second).",
            figure(one)
        ),
        files: Vec::new(),
        blocks: vec![
            Table::block("Medians of the repetitions", &columns, lines),
            Block::Plot(Chart {
                name: "throughput-by-nodes".to_owned(),
                caption: "Throughput as a factor of one PostgreSQL; dashed: what Postgres-XC has published of \
                          another workload on other machines"
                    .to_owned(),
                x: Axis::of("nodes"),
                y: Axis::of("factor of one PostgreSQL"),
                series,
                marks: Marks::Lines,
            }),
        ],
    })
}
