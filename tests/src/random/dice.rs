//! Everything random that is drawn, from one number.
//!
//! Owns: the generator, so that one seed gives one case on every machine. Never: knows what is drawn.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A stream of draws.
#[derive(Clone, Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// True in so many of a hundred draws.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.0.random_range(0..100) < percent
    }

    /// A number below `end`; 0 where there is none.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { self.0.random_range(0..end) }
    }

    /// The same, small ones more often.
    pub fn low(&mut self, end: usize) -> usize {
        self.below(end).min(self.below(end))
    }

    /// From `first` up to `last`.
    pub fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }

    /// One of these.
    ///
    /// Panics: there is none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// The index of one of these, each as often as its weight says.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut left = self.0.random_range(0..weights.iter().sum::<u32>());
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        0
    }
}
