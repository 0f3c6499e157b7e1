//! The 64-bit hash of a byte string that PostgreSQL's hash functions are made of.
//!
//! Owns: the mixing, for seed 0 and the little-endian reading of bytes, which is what PostgreSQL
//! does on every processor it is commonly run on. Never: knows a data type.
//!
//! Source: Bob Jenkins, "lookup3.c", 2006, in the variant of PostgreSQL
//! `src/common/hashfn.c` (`hash_bytes_extended`, `hash_bytes_uint32_extended`).

/// What the three lanes start from, before the length is added.
const LANE_START: u32 = 0x9e37_79b9_u32.wrapping_add(3_923_095);

/// Hashes a byte string; `hash_bytes_extended(bytes, len, 0)` in PostgreSQL.
pub(super) fn hash_bytes(bytes: &[u8]) -> u64 {
    // PostgreSQL's length is a 32-bit int: no value it can hold is longer than 1 GB.
    let start = LANE_START.wrapping_add(bytes.len() as u32);
    let mut lanes = [start; 3];
    let mut blocks = bytes.chunks_exact(12);
    for block in &mut blocks {
        for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(4)) {
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            *lane = lane.wrapping_add(word);
        }
        mix(&mut lanes);
    }
    for (index, byte) in blocks.remainder().iter().enumerate() {
        // The lowest byte of the third lane belongs to the length, so its bytes sit one higher.
        let (lane, shift) = match index {
            0..4 => (0, 8 * index),
            4..8 => (1, 8 * (index - 4)),
            _ => (2, 8 * (index - 7)),
        };
        lanes[lane] = lanes[lane].wrapping_add(u32::from(*byte) << shift);
    }
    finish(lanes)
}

/// Hashes one 32-bit word; equal to [`hash_bytes`] of its four bytes.
pub(super) fn hash_word(word: u32) -> u64 {
    let start = LANE_START.wrapping_add(4);
    finish([start.wrapping_add(word), start, start])
}

fn mix([a, b, c]: &mut [u32; 3]) {
    for (rotate_c, rotate_a, rotate_b) in [(4, 6, 8), (16, 19, 4)] {
        *a = a.wrapping_sub(*c) ^ c.rotate_left(rotate_c);
        *c = c.wrapping_add(*b);
        *b = b.wrapping_sub(*a) ^ a.rotate_left(rotate_a);
        *a = a.wrapping_add(*c);
        *c = c.wrapping_sub(*b) ^ b.rotate_left(rotate_b);
        *b = b.wrapping_add(*a);
    }
}

fn finish([mut a, mut b, mut c]: [u32; 3]) -> u64 {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    c = (c ^ b).wrapping_sub(b.rotate_left(24));
    (u64::from(b) << 32) | u64::from(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hash_as_their_bytes() {
        for word in [0, 1, 42, 0x0102_0304, u32::MAX] {
            assert_eq!(hash_word(word), hash_bytes(&word.to_le_bytes()));
        }
    }

    /// `select hashtextextended(…, 0)` on PostgreSQL 15.
    #[test]
    fn byte_strings_hash_as_on_the_server() {
        let on_server: [(&str, i64); 3] = [
            ("", -6_939_563_903_564_495_251),
            ("tutti", -2_314_567_019_312_674_967),
            ("a longer text than one block of twelve", 2_911_359_196_939_941_781),
        ];
        for (text, expected) in on_server {
            assert_eq!(hash_bytes(text.as_bytes()), expected as u64, "{text:?}");
        }
    }
}
