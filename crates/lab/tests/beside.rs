//! `tutti bench`: becomes `tutti-lab bench` beside it, and says how to get it elsewhere.
//!
//! Needs the program `tutti` of the same build, as `cargo test --workspace` makes it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The product's program, beside the lab's.
fn tutti() -> PathBuf {
    let beside = Path::new(env!("CARGO_BIN_EXE_tutti-lab")).with_file_name("tutti");
    assert!(beside.is_file(), "{} is missing: cargo build -p tutti", beside.display());
    beside
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

#[test]
fn it_is_the_lab_that_answers() {
    let output = run(&tutti(), &["bench", "commit", "--help"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("Usage: tutti-lab bench commit"), "{said}");
}

#[test]
fn alone_it_says_how_to_get_the_lab() {
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("tutti");
    std::fs::copy(tutti(), &alone).unwrap();
    let output = run(&alone, &["bench", "pool", "--quick"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("tutti-lab, which is not beside this one"), "{said}");
    assert!(said.contains("./dev bench"), "{said}");
}
