//! Random SQL: equal answers on one PostgreSQL and on clusters of one, two and three nodes, and equal tables afterwards.
//!
//! Owns: which seeds are run where, and what is told of one that differs. What a seed is made into, and how answers are
//! compared, is in `tutti_tests::random`.

use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use tutti_tests::environment::number;
use tutti_tests::gateway::TestCluster;
use tutti_tests::random::case::Case;
use tutti_tests::random::judge::{Arena, Figures};
use tutti_tests::random::shrink::shrunk;
use tutti_tests::servers;

/// The first seed; see `TUTTI_RANDOM_SEED`.
const SEED: u64 = 1;
/// A minute or so; see `TUTTI_RANDOM_SEEDS`.
const SEEDS: u64 = 16;
/// Of each seed; see `TUTTI_RANDOM_STATEMENTS`.
const STATEMENTS: u64 = 250;

/// On how many nodes a seed's case is run.
fn nodes_of(seed: u64) -> u16 {
    match seed % 8 {
        0 => 1,
        2 | 4 | 6 => 2,
        _ => 3,
    }
}

/// Runs all seeds that belong to a cluster of so many nodes; tells each difference.
fn run(nodes: u16, seeds: &[u64], statements: usize) -> Result<(Figures, usize)> {
    let (mut figures, mut differences) = (Figures::default(), 0);
    if seeds.is_empty() {
        return Ok((figures, differences));
    }
    let plain = servers::start(1)?;
    let mut cluster = TestCluster::start(nodes)?;
    let arena = Arena {
        expected: servers::endpoint(&plain, 0),
        subject: cluster.endpoint(),
        nodes: cluster.nodes(),
    };
    for seed in seeds {
        let case = Case::draw(*seed, statements);
        let mut of_seed = Figures::default();
        let found = arena.run(&case, &mut of_seed).with_context(|| format!("seed {seed}"))?;
        figures.add(&of_seed);
        let Some(finding) = found else {
            let audited = cluster.audit()?;
            if !audited.findings.is_empty() {
                differences += 1;
                println!(
                    "──── seed {seed}, {nodes} nodes: {audited}\n  again: ./dev random --seed {seed} --statements {statements}"
                );
            }
            continue;
        };
        differences += 1;
        println!(
            "──── seed {seed}, {nodes} nodes: {finding}\n  again: ./dev random --seed {seed} --statements {statements}"
        );
        if std::env::var_os("TUTTI_RANDOM_UNSHRUNK").is_none() {
            let (small, finding) = shrunk(&arena, &case, finding)?;
            println!("  shrunk:");
            for setting in &small.settings {
                println!("SET {setting};");
            }
            for statement in &small.setup {
                println!("{statement}");
            }
            for unit in &small.units {
                println!("{unit}");
            }
            println!("  {finding}");
        }
    }
    cluster.stop_gateway()?;
    Ok((figures, differences))
}

#[test]
fn random_statements_answer_like_postgresql() -> Result<()> {
    let first = number("TUTTI_RANDOM_SEED", SEED);
    let seeds = number("TUTTI_RANDOM_SEEDS", SEEDS);
    let statements = usize::try_from(number("TUTTI_RANDOM_STATEMENTS", STATEMENTS))?;
    let begun = Instant::now();
    let workers = [1, 2, 3].map(|nodes| {
        let seeds: Vec<_> =
            (first..first + seeds).filter(|seed| nodes_of(*seed) == nodes).collect();
        thread::spawn(move || run(nodes, &seeds, statements))
    });
    let (mut figures, mut differences) = (Figures::default(), 0);
    for worker in workers {
        let (of_worker, found) = worker.join().ok().context("a worker panicked")??;
        figures.add(&of_worker);
        differences += found;
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{figures}{seeds} seeds in {seconds:.0} s");
    ensure!(figures.equal > 0, "nothing was compared");
    ensure!(differences == 0, "{differences} differences");
    Ok(())
}
