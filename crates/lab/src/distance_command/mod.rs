//! `tutti-lab distance`: what links do on this machine, and a link to put before any server.
//!
//! Owns: the options, and which of the two is done.
//! Never: carries bytes; that is `tutti_lab::distance`.
//! Start reading at [`run`].

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tutti_lab::distance::{Profile, Stretch};

mod accuracy;
mod echo;
mod keep;
mod timers;

/// What is measured, or where a link is kept.
#[derive(Debug, Args)]
pub(crate) struct DistanceArgs {
    /// All distances of a profile: its name, or the path of a file in TOML
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = ["rtt_ms", "listen"])]
    profile: Option<Profile>,
    /// The shortest round trip
    #[arg(long, value_name = "MS")]
    rtt_ms: Option<f64>,
    /// What a round trip takes longer on average, exponentially distributed
    #[arg(long, value_name = "MS", default_value_t = 0.0, requires = "rtt_ms")]
    jitter_ms: f64,
    /// Bandwidth of each direction
    #[arg(long, value_name = "MBIT/S", requires = "rtt_ms")]
    bandwidth_mbit: Option<f64>,
    /// How long each measurement lasts
    #[arg(long, value_name = "SECONDS", default_value_t = 2, conflicts_with = "listen",
          value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Measure, too, how late short waits end: by the runtime's own timers, and by the links'
    #[arg(long, conflicts_with = "listen")]
    timers: bool,
    /// Write every measurement to this file, one line of JSON each
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    json: Option<PathBuf>,
    /// Keep a link open on this port of 127.0.0.1 until interrupted; 0 is a free port
    #[arg(long, value_name = "PORT", requires = "to", requires = "rtt_ms")]
    listen: Option<u16>,
    /// Where that link leads
    #[arg(long, value_name = "HOST:PORT", requires = "listen", value_parser = host_and_port)]
    to: Option<String>,
}

/// What the name of a host can be is up to the system's resolver.
fn host_and_port(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(text.to_owned())
        }
        _ => Err("it is HOST:PORT".to_owned()),
    }
}

/// Measures, or keeps a link open.
pub(crate) async fn run(args: DistanceArgs) -> anyhow::Result<()> {
    let asked = args
        .rtt_ms
        .map(|rtt_ms| Stretch::new(rtt_ms, args.jitter_ms, args.bandwidth_mbit))
        .transpose()?;
    if let (Some(port), Some(to), Some(stretch)) = (args.listen, args.to, asked) {
        return keep::keep(port, &to, stretch).await;
    }
    let lasts = Duration::from_secs(args.seconds);
    let links = match (&args.profile, asked) {
        (Some(profile), _) => accuracy::links_of(profile),
        (None, Some(stretch)) => vec![accuracy::Measured::new("as asked", stretch)],
        (None, None) => accuracy::a_few()?,
    };
    if let Some(profile) = &args.profile {
        println!("{}: {}\n", profile.name(), profile.source());
    }
    accuracy::measure(&links, lasts, args.timers, args.json.as_deref()).await
}
