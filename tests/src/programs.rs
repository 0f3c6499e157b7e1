//! Programs that tests run: `psql`, `pgbench`, Python with psycopg, and our own binary.
//!
//! Owns: finding them, and what happens when one is missing: the test fails, or, with
//! `TUTTI_TESTS_MAY_SKIP` set, says so and passes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

/// Set (to anything) where programs may be missing.
const MAY_SKIP: &str = "TUTTI_TESTS_MAY_SKIP";
/// A Python that can import psycopg.
const PYTHON: &str = "TUTTI_TEST_PYTHON";

/// Finds a client program of PostgreSQL; `None` if it is missing and may be.
pub fn postgresql_program(name: &str) -> Option<PathBuf> {
    let mut places = on_path();
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .map(|entries| entries.flatten().map(|entry| entry.path().join("bin")).collect())
        .unwrap_or_default();
    versions.sort();
    places.extend(versions.into_iter().rev());
    let found = places.iter().map(|dir| dir.join(name)).find(|path| path.is_file());
    found.or_else(|| missing(&format!("{name} is not installed (Debian: postgresql-client)")))
}

/// Finds a Python that can import psycopg 3; `None` if there is none and may be none.
pub fn python_with_psycopg() -> Option<PathBuf> {
    let python = std::env::var_os(PYTHON).map_or_else(|| "python3".into(), PathBuf::from);
    let imports = Command::new(&python).args(["-c", "import psycopg"]).output();
    match imports {
        Ok(output) if output.status.success() => Some(python),
        _ => missing(&format!(
            "{} cannot import psycopg 3: install it, or set {PYTHON} to a Python that has it",
            python.display()
        )),
    }
}

/// Finds a program that the test goes without where it is missing.
pub fn optional(name: &str) -> Option<PathBuf> {
    on_path().iter().map(|dir| dir.join(name)).find(|path| path.is_file())
}

fn on_path() -> Vec<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect()
}

fn missing(what: &str) -> Option<PathBuf> {
    assert!(std::env::var_os(MAY_SKIP).is_some(), "{what}; with {MAY_SKIP} set, tests skip it");
    eprintln!("skipped: {what}");
    None
}

/// The binary `tutti` of the same build as the running test.
pub fn tutti() -> Result<PathBuf> {
    let test = std::env::current_exe().context("where this test is")?;
    // target/debug/deps/test-0123 → target/debug/tutti
    let built = test.parent().and_then(Path::parent).context("no target directory")?.join("tutti");
    ensure!(
        built.is_file(),
        "{} is missing: build it first (cargo build -p tutti), as ./dev test does",
        built.display()
    );
    Ok(built)
}

/// Runs a program to its end and gives its standard output; its failure is an error with all it said.
pub fn run(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    ensure!(
        output.status.success(),
        "{command:?} ended with {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program to its end, whatever it says.
pub fn output(command: &mut Command) -> Result<Output> {
    command.output().with_context(|| format!("run {command:?}"))
}
