//! What must hold for any bytes: one check per decoder, each a function of bytes that panics if the
//! decoder does or breaks its promise.
//!
//! Owns: the checks ([`TARGETS`] names them all) and the seeds of their corpora. Never: generates
//! bytes. Two drivers do: libFuzzer (`fuzz/`, run by `./dev fuzz`), which looks for new paths, and
//! `tests/corpus.rs`, which needs no set-up and is part of `cargo test`.
//! Start reading at [`TARGETS`], then [`wire::frames`].

pub mod copy;
pub mod seeds;
pub mod sql;
pub mod wire;

/// A check of one decoder.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Also the name of its file in `fuzz/fuzz_targets` and of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Panics if the decoder does not keep its promise for these bytes.
    pub check: fn(&[u8]),
}

/// All checks.
pub const TARGETS: &[Target] = &[
    Target { name: "frames", check: wire::frames },
    Target { name: "frontend", check: wire::frontend },
    Target { name: "flights", check: wire::flights },
    Target { name: "backend", check: wire::backend },
    Target { name: "startup", check: wire::startup },
    Target { name: "copy_text", check: copy::text },
    Target { name: "copy_csv", check: copy::csv },
    Target { name: "copy_binary", check: copy::binary },
    Target { name: "statements", check: sql::statements },
    Target { name: "shapes", check: sql::shapes },
];
