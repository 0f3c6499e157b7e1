//! Answers to the Star Schema Benchmark's queries that are known.
//!
//! Owns: the digests of one PostgreSQL's answers at one scale. Never: asks.
//! Start reading at [`known`].

use super::rows::Size;

/// The scale of which answers are known.
const SCALE: f64 = 0.01;

/// Of each query: the digest of the rows that PostgreSQL 15 answers with (Q3.3 and Q3.4: none). A test asks again
/// (`crates/lab/tests/run.rs`).
const KNOWN: [u64; 13] = [
    0x6f7a_993f_cead_f011,
    0x7032_a99f_b16e_e5c8,
    0x030f_66fc_6c32_add7,
    0x2a14_79a1_8622_5deb,
    0x66e0_d7fb_8b3b_964e,
    0xaba5_faf2_5faf_54a9,
    0x8e9c_780f_7813_2d37,
    0x316b_4e17_6a4d_c174,
    0xcbf2_9ce4_8422_2325,
    0xcbf2_9ce4_8422_2325,
    0x2272_3f2b_1e0b_b66a,
    0x8d1b_1c34_c315_c420,
    0xc0dd_8319_4494_8890,
];

/// The digest of the right answer to a query (from 0), where it is known.
pub(super) fn known(size: Size, query: usize) -> Option<u64> {
    (size == Size::of_scale(SCALE)).then(|| KNOWN.get(query).copied()).flatten()
}
