//! libFuzzer on [`tutti_fuzzing::wire::backend`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tutti_fuzzing::wire::backend(data));
