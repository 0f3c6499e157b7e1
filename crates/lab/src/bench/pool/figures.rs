//! Figures of the comparison, and what follows from several rounds of them.
//!
//! Owns: records, and ratios of those of a round. Never: measures, prints.
//! Start reading at [`Figures::ratio`].

use std::collections::BTreeSet;

use serde::Serialize;

use super::target::{Load, Target};
use crate::bench::median::Median;

/// One measurement: what, when, and its figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Record {
    pub round: u32,
    #[serde(flatten)]
    pub load: Load,
    pub target: Target,
    /// How PgBouncer pooled; nothing for other targets.
    pub pooling: Option<&'static str>,
    #[serde(flatten)]
    pub measured: Measured,
}

/// What the clients of a measurement together did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Measured {
    pub per_s: f64,
    /// What half of the transactions, and all but one in a hundred, did not exceed; nothing if none
    /// counted.
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    /// How many these are of.
    pub count: u64,
    /// In all of the time, as the processor time is.
    pub processed: u64,
    pub failed: u64,
    /// Processor time of PgBouncer's or the gateway's process for each transaction; nothing for
    /// PostgreSQL itself.
    pub cpu_us: Option<f64>,
}

/// What idle clients cost.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Idle {
    pub target: Target,
    pub asked: u32,
    /// Less than asked if one was refused.
    pub opened: u32,
    pub refusal: Option<String>,
    /// Memory of the process before, with the clients, and when they had gone.
    pub before_bytes: u64,
    pub with_bytes: u64,
    pub after_bytes: u64,
}

impl Idle {
    /// What the process grew by for each client; nothing if there was none.
    pub(super) fn bytes_per_client(&self) -> Option<f64> {
        let grown = self.with_bytes.saturating_sub(self.before_bytes);
        (self.opened != 0).then(|| grown as f64 / f64::from(self.opened))
    }
}

/// A line of the file of measurements.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Line<'a> {
    Load(&'a Record),
    Idle(&'a Idle),
}

/// All measurements of a run.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub records: Vec<Record>,
    pub idle: Vec<Idle>,
}

impl Figures {
    /// A figure of a target over the rounds; nothing if no round has it.
    pub(super) fn over_rounds(
        &self,
        load: Load,
        target: &Target,
        figure: impl Fn(&Measured) -> Option<f64>,
    ) -> Option<Median> {
        let of = |record: &&Record| record.load == load && record.target == *target;
        Median::of(self.records.iter().filter(of).filter_map(|of| figure(&of.measured)))
    }

    /// A figure of one target for each of another's.
    ///
    /// Divided round by round, because what disturbs the machine lasts longer than the measurements
    /// of a load in a round, and so disturbs them alike.
    pub(super) fn ratio(
        &self,
        load: Load,
        one: &Target,
        other: &Target,
        figure: impl Fn(&Measured) -> Option<f64>,
    ) -> Option<Median> {
        let rounds: BTreeSet<u32> = self.records.iter().map(|record| record.round).collect();
        let at = |round, target| figure(self.at(round, load, target)?);
        Median::of(rounds.into_iter().filter_map(|round| Some(at(round, one)? / at(round, other)?)))
    }

    fn at(&self, round: u32, load: Load, target: &Target) -> Option<&Measured> {
        let is_asked = |of: &&Record| of.round == round && of.load == load && of.target == *target;
        self.records.iter().find(is_asked).map(|record| &record.measured)
    }

    /// How PgBouncer pooled under this load.
    pub(super) fn pooling(&self, load: Load) -> Option<&'static str> {
        self.records.iter().filter(|of| of.load == load).find_map(|of| of.pooling)
    }

    /// All transactions that failed.
    pub(super) fn failed(&self) -> u64 {
        self.records.iter().map(|record| record.measured.failed).sum()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::target::{Protocol, Script};
    use super::*;

    pub(in crate::bench::pool) const LOAD: Load =
        Load { script: Script::Select, protocol: Protocol::Prepared, clients: 8 };

    pub(in crate::bench::pool) fn record(
        round: u32,
        load: Load,
        target: Target,
        per_s: f64,
    ) -> Record {
        let measured = Measured {
            per_s,
            p50_us: Some(1_000.0),
            p99_us: Some(2_000.0),
            count: 15,
            processed: 20,
            failed: 0,
            cpu_us: (target != Target::Direct).then_some(12.5),
        };
        let pooling = (target == Target::Bouncer).then_some("session");
        Record { round, load, target, pooling, measured }
    }

    #[test]
    fn ratios_compare_what_was_measured_in_the_same_round_under_the_same_load() {
        let mut figures = Figures::default();
        let (one, other) = (Target::Bouncer, Target::Direct);
        // The machine is half as fast in round 2, and round 3 was not finished.
        for (round, target, per_s) in [
            (1, &one, 90.0),
            (1, &other, 100.0),
            (2, &other, 50.0),
            (2, &one, 40.0),
            (3, &one, 1.0),
        ] {
            figures.records.push(record(round, LOAD, target.clone(), per_s));
        }
        let elsewhere = Load { clients: 1, ..LOAD };
        figures.records.push(record(3, elsewhere, other.clone(), 7.0));
        let ratio = figures.ratio(LOAD, &one, &other, |of| Some(of.per_s)).unwrap();
        assert_eq!((ratio.low, ratio.high), (0.8, 0.9));
        assert_eq!(figures.ratio(elsewhere, &one, &other, |of| Some(of.per_s)), None);
    }

    #[test]
    fn a_record_is_one_flat_object() {
        let line = serde_json::to_string(&Line::Load(&record(2, LOAD, Target::Bouncer, 7.5)));
        let expected = r#"{"kind":"load","round":2,"script":"select","protocol":"prepared","clients":8,"target":"pgbouncer","pooling":"session","per_s":7.5,"p50_us":1000.0,"p99_us":2000.0,"count":15,"processed":20,"failed":0,"cpu_us":12.5}"#;
        assert_eq!(line.unwrap(), expected);
    }

    #[test]
    fn idle_clients_share_what_the_process_grew_by() {
        let idle = |opened, with_bytes| Idle {
            target: Target::Bouncer,
            asked: 10,
            opened,
            refusal: None,
            before_bytes: 1_000,
            with_bytes,
            after_bytes: 1_000,
        };
        assert_eq!(idle(10, 31_000).bytes_per_client(), Some(3_000.0));
        // Memory that was given back meanwhile is no negative cost.
        assert_eq!(idle(10, 900).bytes_per_client(), Some(0.0));
        assert_eq!(idle(0, 31_000).bytes_per_client(), None);
    }
}
