//! `tutti lab` and `tutti bench`: run `tutti-lab`, a separate program.
//!
//! Owns: finding that program beside this one. Never: measures; what measures and draws plots is not
//! part of what runs in production.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, bail};

const LAB: &str = "tutti-lab";

/// Becomes `tutti-lab` with these arguments; returns only if it cannot.
pub(crate) fn run(command: Option<&str>, arguments: &[OsString]) -> anyhow::Result<()> {
    let lab = std::env::current_exe().context("where this program is")?.with_file_name(LAB);
    if !lab.is_file() {
        bail!(
            "the lab and the benchmarks are the program {LAB}, which is not beside this one ({}): \
             `./dev lab` and `./dev bench` build and run it, or put it there \
             (cargo build --profile dist -p tutti-lab)",
            lab.display()
        );
    }
    let failed = Command::new(&lab).args(command.map(OsStr::new)).args(arguments).exec();
    Err(failed).with_context(|| format!("cannot run {}", lab.display()))
}
