//! A median over rounds, with how far the rounds differ.
//!
//! Owns: medians and how they are shown. Never: knows what was measured.

use std::fmt;

use crate::median::median;

/// A median, with the lowest and the highest of what it is the median of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Median {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Median {
    /// Of any number of values; `None` of none.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let (&low, &high) = (values.first()?, values.last()?);
        Some(Self { low, median: median(values), high })
    }
}

/// As ratios are shown: the median, and the lowest and the highest of all rounds.
impl fmt::Display for Median {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2}-{:.2})", self.median, self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_between_two_where_there_is_none_in_the_middle() {
        let of = |values: &[f64]| Median::of(values.iter().copied());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0, 9.0]), Some(Median { low: 1.0, median: 3.0, high: 9.0 }));
        assert_eq!(of(&[4.0, 1.0, 2.0, 9.0]), Some(Median { low: 1.0, median: 3.0, high: 9.0 }));
    }
}
