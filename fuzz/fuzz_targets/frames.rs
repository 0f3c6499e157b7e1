//! libFuzzer on [`tutti_fuzzing::wire::frames`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tutti_fuzzing::wire::frames(data));
