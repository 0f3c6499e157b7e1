//! What a random test's length and seed are, where whoever runs it has not said so.
//!
//! Owns: reading them from the environment. Never: draws anything.

/// The number in the environment variable `name`, or `otherwise` where there is none, or no number.
pub fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// How often to try for a meeting that is rare: a quarter of `whole`, or all of it where `TUTTI_LONG` is set.
pub fn turns(whole: u32) -> u32 {
    if std::env::var_os("TUTTI_LONG").is_some() { whole } else { whole.div_ceil(4) }
}
