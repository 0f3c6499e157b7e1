//! What is counted of clients' steps.
//!
//! Owns: histograms, counts, and counts second by second. Never: reads a clock.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::Done;

/// Digits that a histogram keeps of each duration.
const DIGITS: u8 = 3;

/// What one client, or several, did.
#[derive(Debug)]
pub(crate) struct Tally {
    right: u64,
    wrong: u64,
    failed: BTreeMap<String, u64>,
    /// Microseconds, of what was done, right or wrong.
    latency: Histogram<u64>,
    /// What was done by the second in which it was due.
    per_second: Vec<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        let latency = Histogram::new(DIGITS).expect("a histogram may have so many digits");
        let (failed, per_second) = (BTreeMap::new(), Vec::new());
        Self { right: 0, wrong: 0, failed, latency, per_second }
    }
}

/// The figures of a tally.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Steps that were done, right or wrong.
    pub count: u64,
    /// Steps with an answer that no serial order gives.
    pub wrong: u64,
    /// Steps that were refused, by SQLSTATE.
    pub failed: BTreeMap<String, u64>,
    /// Done per second.
    pub per_s: f64,
    /// Milliseconds.
    pub mean_ms: f64,
    /// Milliseconds.
    pub p50_ms: f64,
    /// Milliseconds.
    pub p95_ms: f64,
    /// Milliseconds.
    pub p99_ms: f64,
    /// Milliseconds.
    pub max_ms: f64,
    /// Done in each second.
    pub per_second: Vec<u64>,
}

impl Tally {
    /// Notes a step that was due `at` after the beginning and `took` so long from then on.
    pub(super) fn note(&mut self, done: &Done, at: Duration, took: Duration) -> anyhow::Result<()> {
        match done {
            Done::Right => self.right += 1,
            Done::Wrong => self.wrong += 1,
            Done::Failed(sqlstate) => {
                *self.failed.entry(sqlstate.clone()).or_default() += 1;
                return Ok(());
            }
            Done::Nothing => return Ok(()),
        }
        let took = u64::try_from(took.as_micros()).context("a step of many years")?;
        self.latency.record(took)?;
        // Counted where it ended: a second in which everything waited shows nothing.
        let second = usize::try_from((at + Duration::from_micros(took)).as_secs())?;
        if self.per_second.len() <= second {
            self.per_second.resize(second + 1, 0);
        }
        self.per_second[second] += 1;
        Ok(())
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.right += other.right;
        self.wrong += other.wrong;
        for (sqlstate, count) in &other.failed {
            *self.failed.entry(sqlstate.clone()).or_default() += count;
        }
        self.latency.add(&other.latency).expect("a histogram that grows takes every value");
        let seconds = self.per_second.len().max(other.per_second.len());
        self.per_second.resize(seconds, 0);
        for (sum, count) in self.per_second.iter_mut().zip(&other.per_second) {
            *sum += count;
        }
    }

    pub(super) fn figures(&self, lasted: Duration) -> Figures {
        let ms = |us: u64| us as f64 / 1_000.0;
        let quantile = |of| ms(self.latency.value_at_quantile(of));
        // What began within the time ended after it: not a second of its own.
        let seconds = usize::try_from(lasted.as_secs().max(1)).unwrap_or(usize::MAX);
        let per_second = self.per_second.iter().copied().take(seconds).collect();
        let count = self.right + self.wrong;
        Figures {
            count,
            wrong: self.wrong,
            failed: self.failed.clone(),
            per_s: count as f64 / lasted.as_secs_f64().max(f64::MIN_POSITIVE),
            mean_ms: self.latency.mean() / 1_000.0,
            p50_ms: quantile(0.5),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            max_ms: ms(self.latency.max()),
            per_second,
        }
    }
}
