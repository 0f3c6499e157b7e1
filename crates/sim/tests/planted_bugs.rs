//! Each bug of the list, switched on, is found by a property that is meant for it, within a bounded
//! number of seeds; and without it the very seeds that found it are clean.

use tutti_sim::{Bug, run};

/// Within how many seeds a bug must be found.
const SEEDS: u64 = 4_000;

/// The first seed in which the bug breaks one of its properties.
fn find(bug: Bug, properties: &[&str]) -> u64 {
    let breaks = |seed: &u64| {
        let report = run(*seed, Some(bug), false);
        report.violations.iter().any(|violation| properties.contains(&violation.property))
    };
    (0..SEEDS).find(breaks).unwrap_or_else(|| {
        panic!("{bug:?} broke none of {properties:?} within {SEEDS} seeds");
    })
}

fn find_every(half: usize) {
    for (bug, properties) in Bug::ALL.iter().skip(half).step_by(2) {
        let seed = find(*bug, properties);
        println!("{bug:?}: seed {seed}");
        let clean = run(seed, None, false).violations;
        assert!(clean.is_empty(), "seed {seed} fails without {bug:?}: {clean:?}");
    }
}

/// Goal: the properties can fail, and see what they are for. Two halves, to run in parallel.
#[test]
fn planted_bugs_are_found() {
    find_every(0);
}

/// See `planted_bugs_are_found`.
#[test]
fn further_planted_bugs_are_found() {
    find_every(1);
}
