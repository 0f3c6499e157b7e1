//! Figures of measurements, and what follows from several rounds of them.
//!
//! Owns: records, and ratios of those of a round. Never: measures, prints.
//! Start reading at [`Figures::ratio`].

use std::collections::BTreeSet;

use serde::{Serialize, Serializer};

use super::load::Load;
use super::measured::{Measured, Who};
use crate::bench::median::Median;

/// One measurement of some clients: of what, how, when, and its figures.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Record {
    pub round: u32,
    pub clients: u16,
    #[serde(serialize_with = "name_of")]
    pub workload: Load,
    pub who: Who,
    /// The variant's name, or [`DIRECT`](super::variant::DIRECT).
    pub way: &'static str,
    #[serde(flatten)]
    pub measured: Measured,
}

fn name_of<S: Serializer>(workload: &Load, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(workload.name())
}

/// Which measurements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Which {
    pub clients: u16,
    pub workload: Load,
    pub who: Who,
    pub way: &'static str,
}

/// All measurements of a run.
#[derive(Debug, Default)]
pub(super) struct Figures {
    records: Vec<Record>,
}

impl Figures {
    pub(super) fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    /// A figure over the rounds; a round that lacks what it needs does not count.
    pub(super) fn over_rounds(&self, figure: impl Fn(u32) -> Option<f64>) -> Option<Median> {
        let rounds: BTreeSet<u32> = self.records.iter().map(|record| record.round).collect();
        Median::of(rounds.into_iter().filter_map(figure))
    }

    /// How many per second in one way there are for each in the other, over the rounds.
    ///
    /// Divided round by round, because what disturbs the machine lasts longer than the two
    /// measurements of a round, and so disturbs both alike.
    pub(super) fn ratio(&self, one: Which, other: Which) -> Option<Median> {
        self.over_rounds(|round| Some(self.at(round, one)?.per_s / self.at(round, other)?.per_s))
    }

    /// What was measured in a round.
    pub(super) fn at(&self, round: u32, which: Which) -> Option<&Measured> {
        let is_asked = |of: &&Record| {
            of.round == round
                && (of.clients, of.workload, of.who, of.way)
                    == (which.clients, which.workload, which.who, which.way)
        };
        self.records.iter().find(is_asked).map(|record| &record.measured)
    }

    /// All readings of one way: how many, and how many of them were wrong.
    pub(super) fn readings(&self, way: &str) -> (u64, u64) {
        let readings = self.records.iter().filter(|of| of.who == Who::Reader && of.way == way);
        readings
            .fold((0, 0), |(all, wrong), of| (all + of.measured.count, wrong + of.measured.wrong))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(round: u32, way: &'static str, per_s: f64) -> Record {
        let measured = Measured { per_s, p50_us: 1.0, p99_us: 2.0, count: 15, wrong: 0 };
        let (workload, who) = (Load::Global, Who::Clients);
        Record { round, clients: 1, workload, who, way, measured }
    }

    #[test]
    fn ratios_compare_what_was_measured_in_the_same_round() {
        let mut figures = Figures::default();
        // The machine is half as fast in round 2, and round 3 was not finished.
        for (round, way, per_s) in
            [(1, "a", 90.0), (1, "b", 100.0), (2, "b", 50.0), (2, "a", 40.0), (3, "a", 10.0)]
        {
            figures.push(record(round, way, per_s));
        }
        let which = |way| Which { clients: 1, workload: Load::Global, who: Who::Clients, way };
        let ratio = figures.ratio(which("a"), which("b")).unwrap();
        assert_eq!((ratio.low, ratio.high), (0.8, 0.9));
    }

    #[test]
    fn a_record_is_one_flat_object() {
        let text = serde_json::to_string(&record(2, "direct", 7.5)).unwrap();
        let expected = r#"{"round":2,"clients":1,"workload":"global","who":"clients","way":"direct","per_s":7.5,"p50_us":1.0,"p99_us":2.0,"count":15,"wrong":0}"#;
        assert_eq!(text, expected);
    }
}
