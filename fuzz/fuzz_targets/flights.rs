//! libFuzzer on [`tutti_fuzzing::wire::flights`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tutti_fuzzing::wire::flights(data));
