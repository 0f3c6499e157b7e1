//! A link that is kept open until a signal comes.
//!
//! Owns: what is said of it at its beginning and its end. Never: measures.

use tutti_lab::distance::{Counts, Link, Stretch};
use tutti_lab::table;

use crate::interrupt::Interrupt;

/// Connections that are listed one by one at the end; of more, the latest.
const LISTED_MAX: usize = 20;

/// Opens a link, says where, waits, and says what has passed.
pub(super) async fn keep(port: u16, to: &str, stretch: Stretch) -> anyhow::Result<()> {
    let mut interrupt = Interrupt::listen()?;
    let link = Link::open_on(port, to, stretch).await?;
    println!("{} leads to {to}, {}; end it by Ctrl-C", link.address(), described(&stretch));
    interrupt.came().await;
    print!("\n{}", summary(&link));
    Ok(())
}

fn described(stretch: &Stretch) -> String {
    let mut text = format!("a round trip of {} ms away", stretch.rtt_ms());
    if 0.0 < stretch.jitter_ms() {
        text += &format!(" and {} ms more on average", stretch.jitter_ms());
    }
    if let Some(mbit) = stretch.bandwidth_mbit() {
        text += &format!(", {mbit} Mbit/s each way");
    }
    text
}

fn summary(link: &Link) -> String {
    let connections = link.connections();
    let names = ["connection", "round trips", "flights forth", "back", "bytes forth", "back"];
    let mut lines = vec![names.map(str::to_owned).to_vec()];
    for it in connections.iter().skip(connections.len().saturating_sub(LISTED_MAX)) {
        let state = if it.open { ", open" } else { "" };
        lines.push(line(format!("{}{state}", it.number), &it.counts));
    }
    let total = link.counts();
    lines.push(line(format!("all {}", total.connections), &total));
    table::layout(&lines)
}

fn line(name: String, counts: &Counts) -> Vec<String> {
    let figures = [
        counts.round_trips,
        counts.flights_forth,
        counts.flights_back,
        counts.bytes_forth,
        counts.bytes_back,
    ];
    [name].into_iter().chain(figures.map(|figure| figure.to_string())).collect()
}
