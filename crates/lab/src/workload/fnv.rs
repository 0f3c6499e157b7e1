//! A hash of bytes that stays the same whatever libraries do.
//!
//! Owns: FNV-1a, 64 bits (Fowler, Noll, Vo), which is short enough to be written down. Never: is a defence against
//! anybody. Start reading at [`fnv_1a`].

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

pub(super) fn fnv_1a(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    bytes.into_iter().fold(OFFSET_BASIS, mix)
}
