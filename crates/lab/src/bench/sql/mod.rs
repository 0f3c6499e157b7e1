//! `tutti-lab bench sql`: what statements over several nodes cost beside one PostgreSQL, by their shape.
//!
//! Owns: the order of measurements: rounds, in them the shapes, in these both endpoints one right after the other.
//! Never: knows the statements.
//! Start reading at [`sql`].

use std::fs::File;
use std::io::{LineWriter, Write};
use std::pin::pin;
use std::time::Instant;

use anyhow::{Context, ensure};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::task::spawn_blocking;
use tokio_postgres::{Client, SimpleQueryMessage};
use tutti_embed::Cluster;
use tutti_gateway::Switches;
use tutti_lab::client;

pub(crate) use self::args::SqlArgs;
use self::figures::{Figures, POSTGRESQL, Record, TUTTI};
use self::shapes::{SHAPES, Shape, TABLES, Work, written_for};
use super::output::{json_file, progress_bar};
use crate::ground::durable;
use crate::ground::gateway::{self, Gateway};
use crate::interrupt::Interrupt;

mod args;
mod figures;
mod report;
mod shapes;

/// What a server admits; one client is measured.
const CONNECTIONS: u32 = 100;

/// One of the two that are compared.
struct Endpoint {
    name: &'static str,
    distributes: bool,
    client: Client,
}

/// Runs the benchmark and prints what came of it.
pub(super) async fn sql(mut args: SqlArgs) -> anyhow::Result<()> {
    let mut interrupt = Interrupt::listen()?;
    // First what fails fastest.
    let mut json = args.json.as_deref().map(json_file).transpose()?;
    if args.quick {
        (args.rows, args.rounds) = (args.rows.min(100_000), args.rounds.min(2));
    }
    let shapes: Vec<_> = SHAPES.iter().filter(|shape| shape.name.contains(&args.only)).collect();
    ensure!(!shapes.is_empty(), "no statement has \"{}\" in its name", args.only);

    eprintln!("tutti-lab: making {} + 1 servers and their {} rows", args.nodes, args.rows);
    let nodes = args.nodes;
    let options = durable(CONNECTIONS, &[]);
    let alone = options.clone();
    let cluster = spawn_blocking(move || Cluster::create_temp_with(nodes, options)).await??;
    let server = spawn_blocking(move || Cluster::create_temp_with(1, alone)).await??;
    let config = gateway::config(&cluster, Switches::default());
    tutti_gateway::init(&config, false).await.context("cannot write the catalog into the nodes")?;
    let gateway = Gateway::start(config).await?;
    print!("{}", report::about(&args, cluster.binaries().version()));

    let mut figures = Figures::default();
    let plain = server.servers().first().context("no server")?.url();
    let measured = tokio::select! {
        measured = measure_all(&args, &shapes, [&plain, &gateway.url], &mut figures, json.as_mut()) => measured,
        () = interrupt.came() => Err(anyhow::anyhow!("ended before all was measured")),
    };
    let stopped = gateway.stop().await;
    spawn_blocking(move || drop((cluster, server))).await?;
    measured?;
    stopped?;
    if let Some(mut json) = json {
        json.flush().context("cannot write the measurements")?;
    }
    print!("{}", report::tables(&shapes, &figures));
    Ok(())
}

async fn measure_all(
    args: &SqlArgs,
    shapes: &[&Shape],
    [plain, tutti]: [&str; 2],
    figures: &mut Figures,
    mut json: Option<&mut LineWriter<File>>,
) -> anyhow::Result<()> {
    let mut endpoints = [
        Endpoint { name: POSTGRESQL, distributes: false, client: client::connect(plain).await? },
        Endpoint { name: TUTTI, distributes: true, client: client::connect(tutti).await? },
    ];
    for endpoint in &endpoints {
        fill(endpoint, args.rows).await.with_context(|| format!("filling {}", endpoint.name))?;
    }
    let data = copy_data(args.rows);
    let bar = progress_bar(u64::from(args.rounds) * shapes.len() as u64);
    // The first round reads code and files, and is not counted.
    for round in 0..=args.rounds {
        for shape in shapes {
            bar.set_message(format!("round {round}, {}", shape.name));
            let mut answers = Vec::new();
            for endpoint in &endpoints {
                let about = || format!("{} on {}", shape.name, endpoint.name);
                let (ms, answer) = measure(endpoint, shape, &data).await.with_context(about)?;
                answers.push(answer);
                let (kind, shape, endpoint) = (shape.kind, shape.name, endpoint.name);
                let record = Record { round, kind, shape, endpoint, ms };
                if round == 0 {
                    continue;
                }
                if let Some(json) = &mut json {
                    writeln!(json, "{}", serde_json::to_string(&record)?)?;
                }
                figures.push(record);
            }
            ensure!(answers[0] == answers[1], "{}: the answers differ", shape.name);
            if 0 < round {
                bar.inc(1);
            }
        }
        // None is always the first.
        endpoints.reverse();
    }
    bar.finish_and_clear();
    Ok(())
}

async fn fill(endpoint: &Endpoint, rows: u32) -> anyhow::Result<()> {
    for [name, columns, placed, select] in TABLES {
        let create = format!("CREATE TABLE {name} ({columns}) {{distribute {placed}}}");
        let create = written_for(&create, endpoint.distributes);
        endpoint.client.batch_execute(&create).await?;
        if !select.is_empty() {
            let select = select.replace("{rows}", &rows.to_string());
            endpoint.client.batch_execute(&format!("INSERT INTO {name} {select}")).await?;
        }
        endpoint.client.batch_execute(&format!("VACUUM ANALYZE {name}")).await?;
    }
    Ok(())
}

/// What COPY brings in: a tenth as many rows as `sales` has.
fn copy_data(rows: u32) -> Bytes {
    let mut data = String::new();
    for row in 0..rows / 10 {
        data.push_str(&format!("{}\t{row}\trow number {row}\n", row % 5_000));
    }
    Bytes::from(data)
}

/// How long a statement takes, and its rows in some order, to be compared.
async fn measure(
    endpoint: &Endpoint,
    shape: &Shape,
    data: &Bytes,
) -> anyhow::Result<(f64, Vec<String>)> {
    let sql = written_for(shape.sql, endpoint.distributes);
    let begun = Instant::now();
    let mut answer = Vec::new();
    match shape.work {
        Work::Query => {
            for message in endpoint.client.simple_query(&sql).await? {
                if let SimpleQueryMessage::Row(row) = message {
                    let values: Vec<_> = (0..row.len()).map(|at| row.get(at)).collect();
                    answer.push(format!("{values:?}"));
                }
            }
        }
        Work::Change => endpoint.client.batch_execute(&sql).await?,
        Work::CopyIn => {
            let mut sink = pin!(endpoint.client.copy_in::<_, Bytes>(&sql).await?);
            // As clients do: some kilobytes at a time.
            let mut rest = data.clone();
            while !rest.is_empty() {
                sink.send(rest.split_to(rest.len().min(64 << 10))).await?;
            }
            sink.finish().await?;
        }
        Work::CopyOut => {
            let mut stream = pin!(endpoint.client.copy_out(&sql).await?);
            let mut bytes = 0;
            while let Some(piece) = stream.next().await {
                bytes += piece?.len();
            }
            answer.push(bytes.to_string());
        }
    }
    let ms = begun.elapsed().as_secs_f64() * 1_000.0;
    if !shape.undo.is_empty() {
        endpoint.client.batch_execute(shape.undo).await.context("undoing it")?;
    }
    answer.sort_unstable();
    Ok((ms, answer))
}
