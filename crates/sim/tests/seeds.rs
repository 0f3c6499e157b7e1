//! Seeds: some thousands that no one has chosen, and those that once failed.
//!
//! `cargo sim-soak` runs as many as fit into ten minutes.

use std::fs;
use std::path::Path;

use tutti_sim::{Report, run};

/// How many are run by every `cargo test`.
const SEEDS: u64 = 2_000;

fn judge(seed: u64) -> Report {
    let report = run(seed, None, false);
    let found: Vec<_> =
        report.violations.iter().map(|v| format!("{}: {}", v.property, v.found)).collect();
    assert!(found.is_empty(), "{found:#?}\nagain: cargo sim --seed {seed}");
    report
}

fn judge_all(seeds: impl Iterator<Item = u64>) -> Report {
    let mut sum = Report::default();
    for seed in seeds {
        let report = judge(seed);
        sum.committed += report.committed;
        sum.aborted += report.aborted;
        sum.unknown += report.unknown;
        sum.moved += report.moved;
        sum.observations += report.observations;
    }
    sum
}

/// Goal: every property holds in worlds that no one has chosen. Method: seeds in order, in two
/// halves because tests run in parallel. The sums show that the worlds are not idle.
#[test]
fn every_property_holds_in_even_seeds() {
    let sum = judge_all((0..SEEDS).step_by(2));
    assert!(10_000 < sum.committed && 1_000 < sum.aborted && 500 < sum.unknown, "{sum:?}");
}

/// See `every_property_holds_in_even_seeds`.
#[test]
fn every_property_holds_in_odd_seeds() {
    let sum = judge_all((1..SEEDS).step_by(2));
    assert!(10_000 < sum.committed && 20_000 < sum.observations, "{sum:?}");
    assert!(500 < sum.moved, "{sum:?}");
}

/// Seeds that once failed, with what was wrong then. A change of the simulator may give them other
/// worlds; they cost nothing.
#[test]
fn seeds_that_once_failed_hold() {
    let mut count = 0;
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for entry in fs::read_dir(directory).expect("the directory is in the repository") {
        let text = fs::read_to_string(entry.expect("readable").path()).expect("readable");
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let seed = line.split_whitespace().next().and_then(|number| number.parse().ok());
            judge(seed.unwrap_or_else(|| panic!("no seed: {line}")));
            count += 1;
        }
    }
    assert!(0 < count, "no seeds were found");
}

/// Goal: a failure can be repeated. Method: the same seed twice, with and without a trace.
#[test]
fn a_seed_gives_one_run() {
    for seed in [3, 58, 977] {
        let (one, two) = (run(seed, None, false), run(seed, None, true));
        let told = |r: &Report| (r.committed, r.aborted, r.unknown, r.observations, r.plan.clone());
        assert_eq!(told(&one), told(&two), "seed {seed}");
        assert_eq!(run(seed, None, true).trace, two.trace, "seed {seed}");
    }
}
