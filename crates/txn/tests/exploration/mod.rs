//! What every exploration of a small world needs: telling states apart, and how one was reached.
//!
//! Owns: fingerprints and the way back through them. Never: knows a world, or what must hold in it.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Tells states apart: 128 bits, so that two of millions do not meet by chance.
pub fn fingerprint(world: &impl Hash) -> u128 {
    let half = |salt: u64| {
        let mut hasher = DefaultHasher::new();
        salt.hash(&mut hasher);
        world.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(1) << 64 | half(2)
}

/// The moves to the state `index`; `origins`: of each state, the one before it and the move, none of the first.
pub fn path_to<Move: Copy>(mut index: usize, origins: &[Option<(usize, Move)>]) -> Vec<Move> {
    let mut path = Vec::new();
    while let Some((before, step)) = origins[index] {
        path.push(step);
        index = before;
    }
    path.reverse();
    path
}
