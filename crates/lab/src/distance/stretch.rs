//! How far two machines are from each other, for the bytes between them.
//!
//! Owns: the three figures, what they may be, and what follows from them for one direction.
//! Never: reads a clock or draws a random number.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

/// Nobody is farther away: a satellite's round trip is a hundredth of it.
const RTT_MS_MAX: f64 = 60_000.0;
/// A tenth of a kilobit is slower than any modem, and a terabit faster than any card.
const BANDWIDTH_MBIT_MIN: f64 = 0.0001;
const BANDWIDTH_MBIT_MAX: f64 = 1_000_000.0;

/// An exponential distribution has no end; one that is waited for must have one. Above it lies one
/// draw in 3000.
const JITTER_MEANS_MAX: f64 = 8.0;

/// How long a direction is busy with what is read at once, where bandwidth is limited: so long may
/// a small message of one connection wait for a large one of another.
const CHUNK_TIME: Duration = Duration::from_millis(2);
/// What one packet of Ethernet carries: nothing is sent in smaller pieces.
const CHUNK_MIN: usize = 1_460;
/// What is read at once, at most.
pub(super) const CHUNK_MAX: usize = 64 * 1024;

/// Bytes under way in one direction of one connection where bandwidth is not limited, as TCP's
/// window would limit them.
const WINDOW_UNLIMITED: usize = 16 * 1024 * 1024;
/// The same where it is limited, but wide and far: memory must end somewhere.
const WINDOW_MAX: usize = 256 * 1024 * 1024;

/// What is between two machines. The same in both directions; each has the bandwidth for itself.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Stretch {
    rtt_ms: f64,
    jitter_ms: f64,
    bandwidth_mbit: Option<f64>,
}

/// As it stands in a file.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Written {
    rtt_ms: f64,
    #[serde(default)]
    jitter_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bandwidth_mbit: Option<f64>,
}

impl Stretch {
    /// Round trips that there are, in milliseconds.
    pub const RTT_MS: RangeInclusive<f64> = 0.0..=RTT_MS_MAX;
    /// By how much they may be longer, in milliseconds.
    pub const JITTER_MS: RangeInclusive<f64> = Self::RTT_MS;
    /// Bandwidths that there are, in 10⁶ bits per second.
    pub const BANDWIDTH_MBIT: RangeInclusive<f64> = BANDWIDTH_MBIT_MIN..=BANDWIDTH_MBIT_MAX;

    /// As if both were one machine.
    pub const NONE: Self = Self { rtt_ms: 0.0, jitter_ms: 0.0, bandwidth_mbit: None };

    /// `rtt_ms`: the shortest round trip; half of it is what a byte is on its way at least.
    /// `jitter_ms`: by how much a round trip is longer on average; each direction draws from an
    /// exponential distribution of half that mean, cut off at eight times its mean.
    /// `bandwidth_mbit`: 10⁶ bits per second of each direction, all connections together.
    ///
    /// Errors: a figure that no network has.
    pub fn new(rtt_ms: f64, jitter_ms: f64, bandwidth_mbit: Option<f64>) -> anyhow::Result<Self> {
        // Not a number is in no range.
        ensure!(
            Self::RTT_MS.contains(&rtt_ms),
            "a round trip takes 0 to {RTT_MS_MAX} ms, not {rtt_ms}"
        );
        ensure!(
            Self::JITTER_MS.contains(&jitter_ms),
            "the jitter is 0 to {RTT_MS_MAX} ms, not {jitter_ms}"
        );
        if let Some(mbit) = bandwidth_mbit {
            ensure!(
                Self::BANDWIDTH_MBIT.contains(&mbit),
                "a bandwidth is {BANDWIDTH_MBIT_MIN} to {BANDWIDTH_MBIT_MAX} Mbit/s, not {mbit}"
            );
        }
        Ok(Self { rtt_ms, jitter_ms, bandwidth_mbit })
    }

    /// So far away, and nothing else in the way.
    ///
    /// Errors: as [`Self::new`].
    pub fn of_rtt_ms(rtt_ms: f64) -> anyhow::Result<Self> {
        Self::new(rtt_ms, 0.0, None)
    }

    /// The shortest round trip.
    pub fn rtt_ms(&self) -> f64 {
        self.rtt_ms
    }

    /// What a round trip takes longer, on average.
    pub fn jitter_ms(&self) -> f64 {
        self.jitter_ms
    }

    /// Of each direction; `None`: as fast as this machine is.
    pub fn bandwidth_mbit(&self) -> Option<f64> {
        self.bandwidth_mbit
    }

    /// The shortest time to the other side and back.
    pub fn rtt(&self) -> Duration {
        Duration::from_secs_f64(self.rtt_ms / 1_000.0)
    }

    /// The shortest time to the other side; never less than half a round trip, so that two are one.
    pub fn one_way(&self) -> Duration {
        (self.rtt() + Duration::from_nanos(1)) / 2
    }

    /// How long a byte is on its way to the other side, by a draw from [0, 1).
    pub(super) fn delay(&self, drawn: f64) -> Duration {
        let means = -(1.0 - drawn).ln();
        let jitter_ms = self.jitter_ms / 2.0 * means.clamp(0.0, JITTER_MEANS_MAX);
        self.one_way() + Duration::from_secs_f64(jitter_ms / 1_000.0)
    }

    /// The longest that [`Self::delay`] gives.
    fn delay_max(&self) -> Duration {
        let jitter_ms = self.jitter_ms / 2.0 * JITTER_MEANS_MAX;
        self.one_way() + Duration::from_secs_f64(jitter_ms / 1_000.0)
    }

    /// How long a direction is busy with so many bytes.
    pub(super) fn transmission(&self, bytes: usize) -> Duration {
        match self.bandwidth_mbit {
            Some(mbit) => Duration::from_secs_f64(bytes as f64 * 8.0 / (mbit * 1e6)),
            None => Duration::ZERO,
        }
    }

    /// Bytes that pass in a time.
    fn bytes_in(&self, time: Duration) -> Option<usize> {
        // Saturates, as `as` does.
        self.bandwidth_mbit.map(|mbit| (mbit * 1e6 / 8.0 * time.as_secs_f64()) as usize)
    }

    /// Bytes to read at once.
    pub(super) fn chunk(&self) -> usize {
        self.bytes_in(CHUNK_TIME).map_or(CHUNK_MAX, |bytes| bytes.clamp(CHUNK_MIN, CHUNK_MAX))
    }

    /// Bytes that one connection may have under way in one direction before no more are read:
    /// bandwidth times delay, and a piece that is being put on the wire.
    pub(super) fn window(&self) -> usize {
        let under_way = self.bytes_in(self.delay_max() + 2 * CHUNK_TIME);
        under_way
            .map_or(WINDOW_UNLIMITED, |bytes| bytes.saturating_add(2 * CHUNK_MAX).min(WINDOW_MAX))
    }
}

impl TryFrom<Written> for Stretch {
    type Error = anyhow::Error;

    fn try_from(it: Written) -> Result<Self, Self::Error> {
        Self::new(it.rtt_ms, it.jitter_ms, it.bandwidth_mbit)
    }
}

impl From<Stretch> for Written {
    fn from(it: Stretch) -> Self {
        let Stretch { rtt_ms, jitter_ms, bandwidth_mbit } = it;
        Self { rtt_ms, jitter_ms, bandwidth_mbit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_half_a_round_trip_and_never_less() {
        for rtt_ms in [0.0, 0.25, 0.333_333_333, 1.0, 12.0, 235.0] {
            let stretch = Stretch::new(rtt_ms, 3.0, None).unwrap();
            assert!(stretch.rtt() <= 2 * stretch.one_way());
            for drawn in [0.0, 0.5, 0.999_999_999] {
                assert!(stretch.one_way() <= stretch.delay(drawn));
                assert!(stretch.delay(drawn) <= stretch.delay_max());
            }
        }
    }

    #[test]
    fn the_jitter_has_its_mean() {
        let stretch = Stretch::new(10.0, 4.0, None).unwrap();
        let draws = 100_000;
        let drawn = (0..draws).map(|draw| stretch.delay(f64::from(draw) / f64::from(draws)));
        let mean_ms = drawn.sum::<Duration>().as_secs_f64() * 1_000.0 / f64::from(draws);
        assert!((mean_ms - 7.0).abs() < 0.01, "{mean_ms}");
    }

    #[test]
    fn bandwidth_is_time_per_byte() {
        let narrow = Stretch::new(0.0, 0.0, Some(8.0)).unwrap();
        assert_eq!(narrow.transmission(1_000_000), Duration::from_secs(1));
        assert_eq!(Stretch::NONE.transmission(usize::MAX), Duration::ZERO);
        assert_eq!(narrow.chunk(), 2_000);
        assert_eq!(Stretch::new(0.0, 0.0, Some(0.001)).unwrap().chunk(), CHUNK_MIN);
        assert_eq!(Stretch::NONE.chunk(), CHUNK_MAX);
    }

    #[test]
    fn the_window_holds_what_is_under_way() {
        // 1 Gbit/s over 100 ms one way are 12.5 MB.
        let far = Stretch::new(200.0, 0.0, Some(1_000.0)).unwrap();
        assert!((12_500_000..14_000_000).contains(&far.window()), "{}", far.window());
        assert_eq!(Stretch::NONE.window(), WINDOW_UNLIMITED);
        let absurd = Stretch::new(60_000.0, 60_000.0, Some(1_000_000.0)).unwrap();
        assert_eq!(absurd.window(), WINDOW_MAX);
    }

    #[test]
    fn what_no_network_has_is_refused() {
        for (rtt_ms, jitter_ms, bandwidth_mbit) in [
            (-1.0, 0.0, None),
            (f64::NAN, 0.0, None),
            (f64::INFINITY, 0.0, None),
            (1.0, -0.1, None),
            (1.0, 0.0, Some(0.0)),
            (1.0, 0.0, Some(f64::NAN)),
        ] {
            assert!(
                Stretch::new(rtt_ms, jitter_ms, bandwidth_mbit).is_err(),
                "{rtt_ms} {jitter_ms}"
            );
        }
    }
}
