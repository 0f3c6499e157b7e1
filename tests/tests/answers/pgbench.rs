//! pgbench through the gateway: initialised by it, run by it, and its invariant.
//!
//! Owns: which runs, and that afterwards the sums of accounts, branches, tellers and history agree.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::TestCluster;
use tutti_tests::programs;

/// Seconds per run.
const RUN_S: &str = "1";

fn pgbench(program: &PathBuf, endpoint: &Endpoint, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &endpoint.port.to_string()]);
    programs::run(command.args(arguments).arg(&endpoint.database))
}

/// Runs by each protocol and checks that transactions were done and none failed.
fn run_every_way(program: &PathBuf, endpoint: &Endpoint) -> Result<()> {
    for mode in ["simple", "extended", "prepared"] {
        for script in [None, Some("-S"), Some("-N")] {
            let mut arguments = vec!["-n", "-c", "4", "-j", "2", "-T", RUN_S, "-M", mode];
            arguments.extend(script);
            let report = pgbench(program, endpoint, &arguments)?;
            let done = report
                .lines()
                .find_map(|line| line.strip_prefix("number of transactions actually processed: "))
                .and_then(|count| count.split('/').next()?.trim().parse::<u64>().ok());
            ensure!(done.is_some_and(|done| done > 0), "-M {mode} {script:?}: {report}");
            let failed =
                report.lines().find(|line| line.starts_with("number of failed transactions"));
            ensure!(
                failed.is_none_or(|line| line.contains(": 0 (")),
                "-M {mode} {script:?}: {report}"
            );
            println!("-M {mode} {}: {}", script.unwrap_or("default"), done.unwrap_or(0));
        }
    }
    check_invariant(endpoint)
}

/// What accounts gained is what history tells, and branches gained what tellers gained. (The `-N`
/// script leaves branches and tellers out, so the two pairs differ after it.)
fn check_invariant(endpoint: &Endpoint) -> Result<()> {
    let mut client = Client::connect(endpoint)?;
    let sums = client.query(
        "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT coalesce(sum(delta), 0) FROM pgbench_history), \
                (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(tbalance) FROM pgbench_tellers), \
                (SELECT count(*) FROM pgbench_history) > 0",
    )?;
    let yes = Some("t".to_owned());
    ensure!(sums == [[yes.clone(), yes.clone(), yes]], "the sums differ: {sums:?}");
    Ok(())
}

/// TPC-B: all four sums are equal after runs of the default script alone.
fn check_full_invariant(program: &PathBuf, endpoint: &Endpoint) -> Result<()> {
    let mut client = Client::connect(endpoint)?;
    client.query("UPDATE pgbench_accounts SET abalance = 0 WHERE abalance <> 0")?;
    client.query("UPDATE pgbench_branches SET bbalance = 0")?;
    client.query("UPDATE pgbench_tellers SET tbalance = 0")?;
    client.query("TRUNCATE pgbench_history")?;
    for mode in ["simple", "prepared"] {
        pgbench(program, endpoint, &["-n", "-c", "6", "-j", "2", "-T", RUN_S, "-M", mode])?;
    }
    let sums = client.query(
        "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM pgbench_branches), \
                (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT sum(delta) FROM pgbench_history)",
    )?;
    let row = &sums[0];
    ensure!(row.iter().all(|sum| *sum == row[0] && sum.is_some()), "the sums differ: {sums:?}");
    let moved = client.value("SELECT count(*) FROM pgbench_history WHERE delta <> 0")?;
    ensure!(moved.parse::<u64>()? > 0, "nothing was moved");
    Ok(())
}

#[test]
fn pgbench_runs_as_on_one_postgresql() -> Result<()> {
    let Some(program) = programs::postgresql_program("pgbench") else { return Ok(()) };
    let cluster = TestCluster::start(3)?;
    let endpoint = cluster.endpoint();

    // Unmodified: every table is replicated.
    pgbench(&program, &endpoint, &["-i", "-q", "-s", "1"])?;
    let mut client = Client::connect(&endpoint)?;
    ensure!(client.value("SELECT count(*) FROM pgbench_accounts")? == "100000");
    run_every_way(&program, &endpoint)?;
    check_full_invariant(&program, &endpoint)?;

    // Distributed by the account, while it holds data.
    client.query("SELECT tutti_distribute('pgbench_accounts', 'aid')")?;
    ensure!(client.value("SELECT count(*) FROM pgbench_accounts")? == "100000");
    run_every_way(&program, &endpoint)?;
    check_full_invariant(&program, &endpoint)
}

#[test]
fn every_way_to_initialise_works() -> Result<()> {
    let Some(program) = programs::postgresql_program("pgbench") else { return Ok(()) };
    let cluster = TestCluster::start(2)?;
    let endpoint = cluster.endpoint();
    let mut client = Client::connect(&endpoint)?;
    for steps in ["dtgvp", "dtpf", "dtGvp"] {
        // Foreign keys to history's parents and generation on the server's side are among them.
        pgbench(&program, &endpoint, &["-i", "-q", "-I", steps])?;
        let counts = client.query(
            "SELECT (SELECT count(*) FROM pgbench_branches), (SELECT count(*) FROM pgbench_tellers), \
                    (SELECT count(*) FROM pgbench_accounts)",
        )?;
        let expected = if steps.contains(['g', 'G']) { ["1", "10", "100000"] } else { ["0"; 3] };
        let found: Vec<&str> =
            counts[0].iter().map(|value| value.as_deref().unwrap_or("")).collect();
        ensure!(found == expected, "-I {steps}: {found:?}");
    }
    pgbench(&program, &endpoint, &["-i", "-q", "-I", "d"])?;
    let left = client.value("SELECT count(*) FROM pg_class WHERE relname LIKE 'pgbench%'")?;
    ensure!(left == "0", "{left} relations are left");
    Ok(())
}
