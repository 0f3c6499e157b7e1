//! `tutti-lab predict`: the slowdown to expect, as far as it is known.
//!
//! Owns: the options. Never: computes a figure; that is `model`.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::Args;
use tutti_lab::model::predict::{Predictor, Question, text};
use tutti_lab::model::runs;
use tutti_lab::model::specification::distributed;

use crate::terminal::print;

/// Far more than between any two places on Earth.
const RTT_MS_MAX: f64 = 100_000.0;

#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    /// Nodes of the distributed database.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,

    /// Milliseconds of a round trip between two nodes, the mean over all pairs of nodes (`ping` tells);
    /// needed where there are several nodes.
    #[arg(long, value_name = "MS", value_parser = round_trip)]
    rtt_ms: Option<f64>,

    /// Concurrent clients that write.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    workers: u32,

    /// Runs to fit, as `tutti-lab fit` reads them: your own, or the paper's spreadsheet. Without it, the
    /// figures that the paper published.
    #[arg(long, value_name = "FILE.csv")]
    from: Option<PathBuf>,

    /// Print JSON, with all digits.
    #[arg(long)]
    json: bool,
}

/// Milliseconds, from 0 to [`RTT_MS_MAX`].
fn round_trip(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(ms) if (0.0..=RTT_MS_MAX).contains(&ms) => Ok(ms),
        _ => Err(format!("it must be a number of milliseconds, from 0 to {RTT_MS_MAX}")),
    }
}

/// Predicts and prints.
pub(crate) fn predict(args: &PredictArgs) -> anyhow::Result<()> {
    let rtt_ms = match (args.nodes, args.rtt_ms) {
        (1, _) => 0.0,
        (_, Some(rtt_ms)) => rtt_ms,
        (_, None) => bail!("--rtt-ms is needed: the slowdown of several nodes depends on it most"),
    };
    let predictor = match &args.from {
        None => Predictor::published(),
        Some(file) => {
            let runs = runs::read(file)?;
            let source = file.display().to_string();
            ensure!(
                !distributed(&runs).is_empty(),
                "{source} has no run on a distributed database"
            );
            Predictor::of_runs(&runs, &source).with_context(|| format!("cannot fit {source}"))?
        }
    };
    let answer = predictor.answer(Question { nodes: args.nodes, rtt_ms, workers: args.workers });
    if args.json {
        print(&format!("{}\n", serde_json::to_string_pretty(&answer)?))
    } else {
        print(&text(&answer))
    }
}
