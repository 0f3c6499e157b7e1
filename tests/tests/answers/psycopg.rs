//! psycopg 3 through the gateway: `tests/python/psycopg_session.py` and `request_helper.py` on a cluster of three nodes.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use tutti_tests::gateway::TestCluster;
use tutti_tests::programs;

/// As many as the script's list; a script that ends early proves less.
const CHECKS: usize = 13;
/// The same of the helper's.
const CHECKS_OF_HELPER: usize = 8;

#[test]
fn psycopg_finds_a_postgresql() -> Result<()> {
    let Some(python) = programs::python_with_psycopg() else { return Ok(()) };
    let cluster = TestCluster::start(3)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/psycopg_session.py");
    let passed = programs::run(Command::new(python).arg(script).arg(cluster.endpoint().url()))?;
    print!("{passed}");
    ensure!(passed.lines().count() == CHECKS, "{passed}");
    Ok(())
}

#[test]
fn the_helper_for_requests_survives_lost_connections() -> Result<()> {
    let Some(python) = programs::python_with_psycopg() else { return Ok(()) };
    let cluster = TestCluster::start(3)?;
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (script, helper) =
        (tests.join("python/request_helper.py"), tests.join("../clients/python"));
    let url = cluster.endpoint().url();
    let passed = programs::run(Command::new(python).arg("-B").arg(script).arg(url).arg(helper))?;
    print!("{passed}");
    ensure!(passed.lines().count() == CHECKS_OF_HELPER, "{passed}");
    Ok(())
}
