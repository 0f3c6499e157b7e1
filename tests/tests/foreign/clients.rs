//! Client test suites that others wrote, against a cluster and plain PostgreSQL: runs
//! `tests/clients/run.py`, which compares each test with `tests/clients/listed` and
//! docs/compatibility.md. Needs the package registries, the first time. Start reading there.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use tutti_tests::programs;

/// Many of these tests have deadlines of 100 ms or so, on a machine with two cores. What is really
/// wrong, or listed wrongly, is so each time.
const ATTEMPTS: usize = 2;

#[test]
#[ignore = "a suite that others wrote: ./dev foreign"]
fn foreign_suites_find_what_is_listed() -> Result<()> {
    let runner = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/run.py");
    for _ in 0..ATTEMPTS {
        // Its progress is to be seen while it runs, so its output is not collected. One suite at a
        // time, on both servers.
        let status = Command::new("python3")
            .arg(&runner)
            .args(["--jobs", "1", "--tutti"])
            .arg(programs::tutti()?)
            .status()
            .with_context(|| format!("run {}", runner.display()))?;
        if status.success() {
            return Ok(());
        }
    }
    bail!("the suites did not go as listed: see above, or ./dev clients")
}
