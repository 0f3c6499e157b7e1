//! libFuzzer on [`tutti_fuzzing::sql::shapes`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tutti_fuzzing::sql::shapes(data));
