//! libFuzzer on [`tutti_fuzzing::copy::text`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tutti_fuzzing::copy::text(data));
