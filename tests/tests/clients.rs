//! Client test suites that others wrote, against a cluster and plain PostgreSQL: runs
//! `tests/clients/run.py`, which compares each test with `tests/clients/listed` and
//! docs/compatibility.md. Needs the package registries, the first time. Start reading there.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tutti_tests::programs;

#[test]
fn foreign_suites_find_what_is_listed() -> Result<()> {
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/run.py");
    // Its progress is to be seen while it runs, so its output is not collected.
    let status = Command::new("python3")
        .arg(&runner)
        .arg("--tutti")
        .arg(programs::tutti()?)
        .status()
        .with_context(|| format!("run {}", runner.display()))?;
    ensure!(status.success(), "the suites did not go as listed: see above, or ./dev clients");
    Ok(())
}
