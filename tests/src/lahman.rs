//! The Lahman baseball tables, which lie beside the repository, not in it.
//!
//! Owns: finding and cutting them. Never: changes them.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Directory of the CSV files: `shared/data/lahman` in the repository or any directory above it.
pub fn directory() -> Option<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|dir| dir.join("shared/data/lahman"))
        .find(|dir| dir.is_dir())
}

/// The directory, or `None` with a message for the log of a test that cannot run without.
pub fn directory_or_skip(test: &str) -> Option<PathBuf> {
    let found = directory();
    if found.is_none() {
        eprintln!(
            "{test} skipped: there is no shared/data/lahman above {}",
            env!("CARGO_MANIFEST_DIR")
        );
    }
    found
}

/// The header and the first `rows` lines of a file.
pub fn first_lines(name: &str, rows: usize) -> Result<Vec<u8>> {
    let path = directory().context("the Lahman files are not there")?.join(name);
    let file = File::open(&path).with_context(|| path.display().to_string())?;
    let mut data = Vec::new();
    for line in BufReader::new(file).split(b'\n').take(rows + 1) {
        data.extend(line?);
        data.push(b'\n');
    }
    Ok(data)
}
