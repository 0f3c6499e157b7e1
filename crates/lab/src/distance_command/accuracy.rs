//! What links do, beside what they should do.
//!
//! Owns: which links are measured, and how it is shown. Never: sends a byte; that is `echo`.
//! Start reading at [`measure`].

use std::fs::File;
use std::io::{LineWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde::Serialize;
use tutti_lab::distance::{Link, Profile, Stretch};
use tutti_lab::table;

use super::echo;
use super::timers::{self, Waits};
use crate::bench::output::json_file;

/// Round trips that are measured where nothing is asked for.
const RTTS_MS: [f64; 5] = [0.2, 0.5, 2.0, 12.0, 100.0];

/// A link that is to be measured.
#[derive(Debug)]
pub(super) struct Measured {
    name: String,
    stretch: Stretch,
}

impl Measured {
    pub(super) fn new(name: impl Into<String>, stretch: Stretch) -> Self {
        Self { name: name.into(), stretch }
    }
}

/// The links of a profile: inside of a site, and between every two.
pub(super) fn links_of(profile: &Profile) -> Vec<Measured> {
    let inside = Measured::new("inside", profile.inside());
    let between =
        profile.pairs().map(|(from, to, stretch)| Measured::new(format!("{from} - {to}"), stretch));
    [inside].into_iter().chain(between).collect()
}

/// Near and far ones, and a narrow one.
pub(super) fn a_few() -> anyhow::Result<Vec<Measured>> {
    let mut few = RTTS_MS
        .into_iter()
        .map(|rtt_ms| Ok(Measured::new(format!("{rtt_ms} ms"), Stretch::of_rtt_ms(rtt_ms)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    few.push(Measured::new("12 ms and narrow", Stretch::new(12.0, 1.0, Some(100.0))?));
    few.push(Measured::new("200 ms and wide", Stretch::new(200.0, 2.0, Some(1_000.0))?));
    Ok(few)
}

/// A line of the file.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Record<'a> {
    RoundTrips {
        link: &'a str,
        /// None where there is no link between.
        configured: Option<Stretch>,
        measured: Durations,
    },
    Bandwidth {
        link: &'a str,
        configured: Option<Stretch>,
        mbit: f64,
    },
    Timers {
        asked_ms: f64,
        runtime: Durations,
        links: Durations,
    },
}

/// Of a histogram of nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Durations {
    count: u64,
    min_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl From<&Histogram<u64>> for Durations {
    fn from(taken_ns: &Histogram<u64>) -> Self {
        let ms = |ns: u64| ns as f64 / 1e6;
        Self {
            count: taken_ns.len(),
            min_ms: ms(taken_ns.min()),
            p50_ms: ms(taken_ns.value_at_quantile(0.5)),
            p99_ms: ms(taken_ns.value_at_quantile(0.99)),
            max_ms: ms(taken_ns.max()),
        }
    }
}

impl Durations {
    fn fields(&self) -> [String; 4] {
        [self.min_ms, self.p50_ms, self.p99_ms, self.max_ms].map(|ms| format!("{ms:.3}"))
    }
}

/// The servers that everything is sent to.
#[derive(Debug)]
struct Servers {
    echo: echo::Server,
    pouring: echo::Server,
    /// Of a measurement.
    lasts: Duration,
}

/// Where the lines of JSON go, if anywhere.
type Json = Option<LineWriter<File>>;

/// Measures each link, and what is there without one, and prints it all.
pub(super) async fn measure(
    links: &[Measured],
    lasts: Duration,
    with_timers: bool,
    json: Option<&Path>,
) -> anyhow::Result<()> {
    let mut json = json.map(json_file).transpose()?;
    if with_timers {
        println!("{}", timer_table(&timers::measure().await?, &mut json)?);
    }
    let servers =
        Servers { echo: echo::echo_server().await?, pouring: echo::pouring_server().await?, lasts };
    let names =
        ["link", "round trip ms", "+ jitter", "min", "p50", "p99", "max", "Mbit/s", "measured"];
    let mut lines = vec![names.map(str::to_owned).to_vec()];

    let (direct, line) = servers.direct(&mut json).await?;
    lines.push(line);
    let no_distance = Measured::new("link without distance", Stretch::NONE);
    let (through, line) = servers.link(&no_distance, &mut json).await?;
    lines.push(line);
    for link in links {
        lines.push(servers.link(link, &mut json).await?.1);
    }
    print!("{}", table::layout(&lines));
    println!(
        "A link without distance adds {:.3} ms to a round trip (of the medians).",
        through.p50_ms - direct.p50_ms
    );
    Ok(())
}

impl Servers {
    /// Without a link.
    async fn direct(&self, json: &mut Json) -> anyhow::Result<(Durations, Vec<String>)> {
        self.measured("no link", None, (self.echo.address, self.pouring.address), json).await
    }

    async fn link(
        &self,
        link: &Measured,
        json: &mut Json,
    ) -> anyhow::Result<(Durations, Vec<String>)> {
        let Measured { name, stretch } = link;
        let echo = Link::open(self.echo.address.to_string(), *stretch).await?;
        let pouring = Link::open(self.pouring.address.to_string(), *stretch).await?;
        self.measured(name, Some(*stretch), (echo.address(), pouring.address()), json).await
    }

    /// What comes of the two servers at these addresses.
    async fn measured(
        &self,
        link: &str,
        configured: Option<Stretch>,
        (echo, pouring): (SocketAddr, SocketAddr),
        json: &mut Json,
    ) -> anyhow::Result<(Durations, Vec<String>)> {
        let measured = Durations::from(&echo::round_trips(echo, self.lasts).await?);
        write(json, &Record::RoundTrips { link, configured, measured })?;
        let mbit = echo::bandwidth_mbit(pouring, self.lasts).await?;
        write(json, &Record::Bandwidth { link, configured, mbit })?;

        let asked = |figure: Option<f64>| figure.map_or_else(String::new, |it| it.to_string());
        let mut line = vec![
            link.to_owned(),
            asked(configured.map(|it| it.rtt_ms())),
            asked(configured.map(|it| it.jitter_ms())),
        ];
        line.extend(measured.fields());
        line.push(asked(configured.and_then(|it| it.bandwidth_mbit())));
        line.push(format!("{mbit:.1}"));
        Ok((measured, line))
    }
}

fn timer_table(waits: &[Waits], json: &mut Json) -> anyhow::Result<String> {
    let names =
        ["a wait of ms", "runtime's: min", "p50", "p99", "max", "links': min", "p50", "p99", "max"];
    let mut lines = vec![names.map(str::to_owned).to_vec()];
    for it in waits {
        let asked_ms = it.asked.as_secs_f64() * 1_000.0;
        let runtime = Durations::from(&it.of_the_runtime_ns);
        let links = Durations::from(&it.of_links_ns);
        write(json, &Record::Timers { asked_ms, runtime, links })?;
        let fields = [runtime.fields(), links.fields()].concat();
        lines.push([vec![asked_ms.to_string()], fields].concat());
    }
    Ok(table::layout(&lines))
}

fn write(json: &mut Json, record: &Record<'_>) -> anyhow::Result<()> {
    if let Some(file) = json {
        let line = serde_json::to_string(record)?;
        writeln!(file, "{line}").context("cannot write a measurement")?;
    }
    Ok(())
}
