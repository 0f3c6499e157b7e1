//! ARCHITECTURE.md against the tree: crates that exist, files that exist, and every room labelled.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tutti_tests::layers::{Layers, upward};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

/// Files with an extension below a directory.
fn files_below(dir: &Path, extension: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            files_below(&path, extension, found)?;
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    Ok(())
}

/// The text of the section whose heading contains a word.
fn section<'a>(text: &'a str, heading: &str) -> Option<&'a str> {
    text.split("\n## ").find(|part| part.lines().next().is_some_and(|line| line.contains(heading)))
}

#[test]
fn every_crate_has_its_room_and_no_room_is_empty() -> Result<()> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md"))?;
    let rooms = section(&text, "The rooms").context("no section on the rooms")?;
    let described: BTreeSet<String> = rooms
        .lines()
        .filter_map(|line| line.strip_prefix("### `")?.split('`').next().map(str::to_owned))
        .collect();
    let mut present = BTreeSet::from(["tests".to_owned()]);
    for entry in fs::read_dir(root().join("crates"))? {
        present.insert(format!("crates/{}", entry?.file_name().to_string_lossy()));
    }
    ensure!(described == present, "described {described:?}, present {present:?}");
    Ok(())
}

#[test]
fn every_link_of_the_documents_leads_somewhere() -> Result<()> {
    let mut documents = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    files_below(&root().join("docs"), "md", &mut documents)?;
    let mut checked = 0;
    for document in documents {
        let text = fs::read_to_string(&document)?;
        let home = document.parent().context("a directory")?;
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            ensure!(home.join(path).exists(), "{}: {target} is not there", document.display());
            checked += 1;
        }
    }
    ensure!(checked > 20, "only {checked} links were found");
    Ok(())
}

/// Paths in backticks are promises as well.
#[test]
fn every_file_that_the_map_names_exists() -> Result<()> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md"))?;
    let named: Vec<&str> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| name.starts_with("crates/") || name.starts_with("tests/"))
        .collect();
    ensure!(named.len() > 10, "only {} files are named", named.len());
    for name in named {
        ensure!(root().join(name).exists(), "{name} is not there");
    }
    Ok(())
}

#[test]
fn every_source_file_says_what_it_is() -> Result<()> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(root().join("crates"))? {
        files_below(&entry?.path().join("src"), "rs", &mut sources)?;
    }
    files_below(&root().join("tests/src"), "rs", &mut sources)?;
    files_below(&root().join("tests/tests"), "rs", &mut sources)?;
    let silent: Vec<String> = sources
        .iter()
        .filter(|path| fs::read_to_string(path).is_ok_and(|text| !text.starts_with("//! ")))
        .map(|path| path.display().to_string())
        .collect();
    ensure!(silent.is_empty(), "these do not begin with what they are: {silent:?}");
    Ok(())
}

/// Uses that run up today, by crate. They may only become fewer.
const UPWARD: [(&str, usize); 5] = [
    ("crates/sql/src", 0),
    ("crates/link/src", 0),
    ("crates/cluster/src", 0),
    ("crates/gateway/src", 0),
    ("crates/sim/src", 0),
];

/// The blocks ```` ```layers DIRECTORY ```` of the map: from the ground up, a layer a line.
fn layered(map: &str) -> Vec<(&str, Layers)> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    let blocks = map.split("```layers ").skip(1);
    blocks
        .filter_map(|block| {
            let (dir, layers) = block.split("```").next()?.split_once('\n')?;
            Some((dir, layers.lines().map(words).collect()))
        })
        .collect()
}

#[test]
fn imports_run_down_the_layers() -> Result<()> {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md"))?;
    let layered = layered(&map);
    ensure!(layered.len() == UPWARD.len(), "the map has layers of {} crates", layered.len());
    for (dir, layers) in layered {
        let (_, allowed) = UPWARD
            .iter()
            .find(|(known, _)| *known == dir)
            .with_context(|| format!("nobody counts the layers of {dir}"))?;
        let found = upward(&root().join(dir), &layers)?;
        let list = || found.iter().map(|it| format!("\n  {it}")).collect::<String>();
        ensure!(found.len() <= *allowed, "{dir}: {} run up, {allowed} may{}", found.len(), list());
        ensure!(found.len() == *allowed, "{dir}: only {} run up now; write that down", found.len());
    }
    Ok(())
}
