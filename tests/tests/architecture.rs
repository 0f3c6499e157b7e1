//! ARCHITECTURE.md against the tree: crates that exist, files that exist, and every crate and test described.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tutti_tests::layers::{Layers, circles, upward};

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
fn every_crate_is_described_and_nothing_else() -> Result<()> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md"))?;
    let crates = section(&text, "The crates").context("no section on the crates")?;
    let described: BTreeSet<String> = crates
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
fn every_test_of_the_product_is_named() -> Result<()> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md"))?;
    let mut missing = Vec::new();
    for program in ["answers", "cluster", "faults", "foreign"] {
        let folder = format!("tests/tests/{program}");
        for entry in fs::read_dir(root().join(&folder))? {
            let path = format!("{folder}/{}", entry?.file_name().to_string_lossy());
            if !path.ends_with("/main.rs") && !text.contains(&path) {
                missing.push(path);
            }
        }
    }
    ensure!(missing.is_empty(), "not in ARCHITECTURE.md: {missing:?}");
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

/// A crate with more files than this has layers.
const FILES_WITHOUT_LAYERS_MAX: usize = 5;

/// Circles of files that are left, by crate. They may only become fewer.
const CIRCLES: [(&str, usize); 1] = [("crates/sim/src", 2)];

/// The sources of every crate, as the map calls their directories.
fn source_dirs() -> Result<BTreeSet<String>> {
    let mut dirs = BTreeSet::from(["tests/src".to_owned()]);
    for entry in fs::read_dir(root().join("crates"))? {
        dirs.insert(format!("crates/{}/src", entry?.file_name().to_string_lossy()));
    }
    Ok(dirs)
}

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
fn every_larger_crate_has_layers() -> Result<()> {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md"))?;
    let layered: BTreeSet<&str> = layered(&map).into_iter().map(|(dir, _)| dir).collect();
    for dir in source_dirs()? {
        let mut files = Vec::new();
        files_below(&root().join(&dir), "rs", &mut files)?;
        let needs_layers = FILES_WITHOUT_LAYERS_MAX < files.len();
        let has_layers = layered.contains(&*dir);
        ensure!(has_layers || !needs_layers, "{dir} has no layers in the map");
    }
    Ok(())
}

#[test]
fn imports_run_down_the_layers() -> Result<()> {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md"))?;
    for (dir, layers) in layered(&map) {
        let found = upward(&root().join(dir), &layers)?;
        let list = found.iter().map(|it| format!("\n  {it}")).collect::<String>();
        ensure!(found.is_empty(), "{dir}: {} uses run up{list}", found.len());
    }
    Ok(())
}

#[test]
fn files_use_each_other_in_no_circle() -> Result<()> {
    for dir in source_dirs()? {
        let allowed = CIRCLES.iter().find(|(known, _)| *known == dir).map_or(0, |(_, n)| *n);
        let found = circles(&root().join(&dir))?;
        let list = || found.iter().map(|it| format!("\n  {it}")).collect::<String>();
        ensure!(found.len() <= allowed, "{dir}: {} circles{}", found.len(), list());
        ensure!(found.len() == allowed, "{dir}: only {} circles now; write that down", found.len());
    }
    Ok(())
}
