//! Answers to TPC-H's queries that are known.
//!
//! Owns: the digests of one PostgreSQL's answers at one scale. Never: asks.
//! Start reading at [`known`].

use super::rows::Size;

/// The scale of which answers are known.
const SCALE: f64 = 0.01;

/// Of each query: the digest of the rows that PostgreSQL 15 answers with. A test asks again
/// (`crates/lab/tests/run.rs`).
const KNOWN: [u64; 22] = [
    0xe6f0_3022_279e_5379,
    0x7421_6e49_bb9b_62c7,
    0x2ea3_7bed_0474_235f,
    0xb2a5_e9bc_fafc_ac1d,
    0x2ab6_e10c_6a40_98a2,
    0x4f35_20a1_5e8d_8def,
    0xf127_5a84_e1f6_43e1,
    0xec2d_ba2b_0967_f0f4,
    0x6ef8_5799_12fb_a189,
    0x55d6_88ce_d5d1_bf9c,
    0x2a14_70b1_0a62_bb7c,
    0x3992_c887_8711_234e,
    0xe440_451e_1339_9cc8,
    0x84e4_e002_d4b8_4a77,
    0x0d9c_f8b5_0591_8b09,
    0x16a7_27de_d9a9_1c09,
    0x5cf0_20e9_4ef1_e6c6,
    0xcbf2_9ce4_8422_2325,
    0xd517_144b_c8d5_d47b,
    0x2bd0_2f32_3fa5_1327,
    0x422e_3cd9_bcb4_4f46,
    0xee02_71f9_db86_86b9,
];

/// The digest of the right answer to a query (from 0), where it is known.
pub(super) fn known(size: Size, query: usize) -> Option<u64> {
    (size == Size::of_scale(SCALE)).then(|| KNOWN.get(query).copied()).flatten()
}
