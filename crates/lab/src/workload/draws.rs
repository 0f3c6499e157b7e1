//! Draws that stay the same whatever libraries do: answers to queries over them are kept with the lab.
//!
//! Owns: numbers by table and row. Never: depends on what was drawn for another row.
//! Source: SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, figure 16).
//! Start reading at [`Draws::of`].

use std::ops::RangeInclusive;

/// What makes each table's draws others.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The draws of one row.
#[derive(Clone, Debug)]
pub(super) struct Draws(u64);

impl Draws {
    pub(super) fn of(table: &str, row: i64) -> Self {
        let table = table.bytes().fold(0, |hash: u64, byte| mixed(hash ^ u64::from(byte)));
        Self(mixed(table ^ mixed(row.cast_unsigned())))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mixed(self.0)
    }

    pub(super) fn within(&mut self, range: RangeInclusive<i64>) -> i64 {
        let width = range.end().abs_diff(*range.start()) + 1;
        // The high half of the product: as likely as each other but for 2^-64 of the width.
        let place = (u128::from(self.next()) * u128::from(width)) >> 64;
        range.start() + i64::try_from(place).unwrap_or(0)
    }

    pub(super) fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        let last = i64::try_from(list.len()).unwrap_or(i64::MAX) - 1;
        list[usize::try_from(self.within(0..=last)).unwrap_or(0)]
    }
}

fn mixed(word: u64) -> u64 {
    let word = word.wrapping_add(GOLDEN);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_within_and_all_of_them_come() {
        let mut seen = [0_u32; 7];
        for row in 0..700 {
            let drawn = Draws::of("part", row).within(-3..=3);
            seen[usize::try_from(drawn + 3).unwrap()] += 1;
        }
        assert!(seen.iter().all(|count| (60..140).contains(count)), "{seen:?}");
        assert_ne!(Draws::of("part", 1).next(), Draws::of("orders", 1).next());
        assert_eq!(Draws::of("part", 1).within(5..=5), 5);
    }
}
