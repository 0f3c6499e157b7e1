//! Figures of measurements.
//!
//! Owns: records, and ratios of those of a round. Never: measures, prints.

use serde::{Serialize, Serializer};

use super::shapes::{Kind, Shape};
use crate::bench::median::Median;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Record {
    pub round: u32,
    #[serde(serialize_with = "name_of")]
    pub kind: Kind,
    pub shape: &'static str,
    /// [`POSTGRESQL`] or [`TUTTI`].
    pub endpoint: &'static str,
    pub ms: f64,
}

fn name_of<S: Serializer>(kind: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

pub(super) const POSTGRESQL: &str = "postgresql";
pub(super) const TUTTI: &str = "tutti";

/// All measurements of a run.
#[derive(Debug, Default)]
pub(super) struct Figures(Vec<Record>);

impl Figures {
    pub(super) fn push(&mut self, record: Record) {
        self.0.push(record);
    }

    /// Of a statement in every round, in order.
    pub(super) fn ms(&self, shape: &Shape, endpoint: &str) -> Vec<f64> {
        let is_meant = |record: &&Record| {
            (record.kind, record.shape, record.endpoint) == (shape.kind, shape.name, endpoint)
        };
        self.0.iter().filter(is_meant).map(|record| record.ms).collect()
    }

    /// Of one PostgreSQL's time, divided round by round.
    pub(super) fn ratio(&self, shape: &Shape) -> Option<Median> {
        let (ours, theirs) = (self.ms(shape, TUTTI), self.ms(shape, POSTGRESQL));
        Median::of(ours.into_iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
    }
}
