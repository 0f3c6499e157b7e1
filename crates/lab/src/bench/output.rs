//! What a benchmark gives while it runs: a file of measurements, and how far it is.
//!
//! Owns: both, the same for every benchmark and for measurements of distances. Never: knows what is measured.

use std::fs::File;
use std::io::LineWriter;
use std::path::Path;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

/// The file that takes every measurement, a line of JSON each.
pub(crate) fn json_file(path: &Path) -> anyhow::Result<LineWriter<File>> {
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(LineWriter::new(file))
}

/// On a terminal a bar with the time that is left; elsewhere nothing.
pub(super) fn progress_bar(measurements: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {eta} left  {msg}")
        .expect("the template is right");
    ProgressBar::new(measurements).with_style(style)
}
