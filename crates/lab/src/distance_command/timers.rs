//! How late short waits end.
//!
//! Owns: measuring it, for the runtime's own timers and for those of links. Never: draws conclusions.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tutti_lab::distance::Alarm;

/// Halves of short round trips.
const WAITS: [Duration; 5] = [
    Duration::from_micros(50),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_micros(1_000),
    Duration::from_micros(6_000),
];
const TIMES: u32 = 200;
/// Significant digits of durations.
const DIGITS: u8 = 3;

/// How long waits lasted, in nanoseconds.
#[derive(Debug)]
pub(super) struct Waits {
    pub asked: Duration,
    pub of_the_runtime_ns: Histogram<u64>,
    pub of_links_ns: Histogram<u64>,
}

/// Waits again and again, for some seconds in all.
pub(super) async fn measure() -> anyhow::Result<Vec<Waits>> {
    let mut measured = Vec::new();
    let mut alarm = Alarm::default();
    for asked in WAITS {
        let mut waits = Waits {
            asked,
            of_the_runtime_ns: Histogram::new(DIGITS)?,
            of_links_ns: Histogram::new(DIGITS)?,
        };
        for _ in 0..TIMES {
            let begun = Instant::now();
            tokio::time::sleep(asked).await;
            waits.of_the_runtime_ns.record(begun.elapsed().as_nanos() as u64)?;
            let begun = Instant::now();
            alarm.until(begun + asked).await?;
            waits.of_links_ns.record(begun.elapsed().as_nanos() as u64)?;
        }
        measured.push(waits);
    }
    Ok(measured)
}
