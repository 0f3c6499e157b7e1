//! Numbers of which few come often: Zipf's distribution.
//!
//! Owns: the distribution, and the scattering of its ranks. Never: draws by itself; it is given a draw.
//! Source: Gray et al., "Quickly Generating Billion-Record Synthetic Databases", SIGMOD 1994, figure 5, which is
//! what YCSB uses (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010, section 4.1).

use super::fnv::fnv_1a;

/// Ranks below `count`, 0 the most frequent; the frequency of the rank r is as 1 / (r + 1)^skew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zipf {
    count: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
    /// What the draws up to which are rank 1.
    second: f64,
}

impl Zipf {
    /// Requires: at least two ranks, and a skew between 0 and 1 (both excluded). Takes time in proportion to `count`.
    pub(super) fn new(count: u64, skew: f64) -> Self {
        assert!(2 <= count && 0.0 < skew && skew < 1.0, "{count} ranks, skew {skew}");
        let zeta: f64 = (1..=count).map(|rank| (rank as f64).powf(-skew)).sum();
        let second = 1.0 + 0.5_f64.powf(skew);
        let count = count as f64;
        let eta = (1.0 - (2.0 / count).powf(1.0 - skew)) / (1.0 - second / zeta);
        Self { count, zeta, alpha: 1.0 / (1.0 - skew), eta, second }
    }

    /// The rank that belongs to a draw from [0, 1).
    pub(super) fn rank(&self, draw: f64) -> u64 {
        let scaled = draw * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.second {
            return 1;
        }
        let rank = self.count * (self.eta * draw - self.eta + 1.0).powf(self.alpha);
        // Rounding may reach the end, which is excluded.
        rank.min(self.count - 1.0) as u64
    }
}

/// A number below `count` for a rank, so that frequent ones are not beside each other (FNV-1a, 64 bits). As with
/// YCSB two ranks may have one number.
pub(super) fn scattered(rank: u64, count: u64) -> u64 {
    fnv_1a(rank.to_le_bytes()) % count
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn frequencies_are_as_the_distribution_says() {
        const DRAWS: u32 = 400_000;
        let (count, skew) = (1_000, 0.99);
        let zipf = Zipf::new(count, skew);
        let mut random = StdRng::seed_from_u64(1);
        let mut seen = vec![0_u32; count as usize];
        for _ in 0..DRAWS {
            seen[zipf.rank(random.random()) as usize] += 1;
        }
        let zeta: f64 = (1..=count).map(|rank| (rank as f64).powf(-skew)).sum();
        let meant = |ranks: std::ops::Range<u64>| -> f64 {
            ranks.map(|rank| ((rank + 1) as f64).powf(-skew) / zeta).sum()
        };
        // The method is exact for the first two, and an approximation behind them.
        for (ranks, off_max) in [(0..1, 0.02), (1..2, 0.02), (0..10, 0.15), (0..100, 0.1)] {
            let here: u32 = seen[ranks.start as usize..ranks.end as usize].iter().sum();
            let ratio = f64::from(here) / f64::from(DRAWS) / meant(ranks.clone());
            assert!((ratio - 1.0).abs() < off_max, "{ranks:?}: {ratio}");
        }
        assert!(0 < seen[900..].iter().sum::<u32>());
        assert!(zipf.rank(1.0 - f64::EPSILON) < count);
    }

    #[test]
    fn ranks_are_scattered() {
        let numbers: Vec<u64> = (0..4).map(|rank| scattered(rank, 1_000)).collect();
        assert!(numbers.iter().all(|number| *number < 1_000), "{numbers:?}");
        assert!(numbers.windows(2).all(|two| 10 < two[0].abs_diff(two[1])), "{numbers:?}");
    }
}
