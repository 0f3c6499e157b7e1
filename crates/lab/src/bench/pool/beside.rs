//! The program `tutti` that is measured where no other build is named: the one of this build.
//!
//! Owns: finding it. Never: builds it.

use std::path::PathBuf;

use anyhow::{Context, ensure};

/// The `tutti` in the directory of this program.
pub(super) fn tutti() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("where this program is")?;
    let tutti = this.with_file_name("tutti");
    ensure!(
        tutti.is_file(),
        "{} is missing: `./dev bench` builds it, and so does `cargo build -p tutti`",
        tutti.display()
    );
    Ok(tutti)
}
