//! Which differential scripts run: all of `tests/differential`, under every distribution they name.
//!
//! Owns: the order (scripts that change nothing share their tables) and the choice by environment.
//! Never: compares. Start reading at [`run_all`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::agreement::Others;
use crate::differential::{Protocol, Report, Setting, Stage, scripts};
use crate::lahman;
use crate::script::{Placement, Script};

/// Chooses what runs: `FILE DISTRIBUTION NODES PROTOCOL`, `-` for all.
const CHOICE: &str = "TUTTI_DIFFERENTIAL";
/// Set: each test runs all of what it divides with others otherwise.
const WHOLE: &str = "TUTTI_WHOLE";
/// Differences beyond these get one line only.
const SHOWN: usize = 40;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("differential")
}

/// What the environment asks for.
#[derive(Debug, Default)]
pub struct Choice {
    words: Vec<String>,
}

impl Choice {
    /// Reads the environment.
    pub fn from_environment() -> Self {
        let text = std::env::var(CHOICE).unwrap_or_default();
        Self { words: text.split_whitespace().map(str::to_owned).collect() }
    }

    /// Whether the word at `index` is this value, or left out.
    pub fn allows(&self, index: usize, value: &str) -> bool {
        self.words.get(index).is_none_or(|word| word == "-" || word == value)
    }

    /// Whether anything is chosen.
    pub fn is_made(&self) -> bool {
        !self.words.is_empty()
    }
}

/// Whether each test runs all of what it divides with others otherwise.
pub fn is_whole() -> bool {
    std::env::var_os(WHOLE).is_some()
}

/// Which of several things a test runs, where others run the rest: every `of`th one, from number `first` on.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// From 0.
    pub first: usize,
    /// At least 1.
    pub of: usize,
}

impl Part {
    /// All of them.
    pub const WHOLE: Self = Self { first: 0, of: 1 };
    /// Every other one.
    pub const EVEN: Self = Self { first: 0, of: 2 };
    /// The others.
    pub const ODD: Self = Self { first: 1, of: 2 };

    /// Whether the thing of this number is in it; all are where [`is_whole`].
    pub fn has(self, number: usize) -> bool {
        number % self.of == self.first || is_whole()
    }
}

/// What of the scripts a test runs.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Of the scripts.
    pub scripts: Part,
    /// Of each script's distributions, counted from the script's number, so that it is not always the same ones.
    pub distributions: Part,
}

impl Share {
    /// Everything.
    pub const WHOLE: Self = Self { scripts: Part::WHOLE, distributions: Part::WHOLE };
}

/// Runs every script of this part that the choice allows, by these protocols.
pub fn run_all(
    stage: &Stage,
    protocols: &[Protocol],
    share: Share,
    choice: &Choice,
) -> Result<Report> {
    let mut report = Report::default();
    if !choice.allows(2, &stage.nodes.len().to_string()) {
        return Ok(report);
    }
    let mut by_setup: BTreeMap<Option<String>, Vec<Script>> = BTreeMap::new();
    for (number, script) in scripts(&directory())?.into_iter().enumerate() {
        if !share.scripts.has(number) {
            continue;
        }
        let file = script.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let needs_data = script.setup.as_deref() == Some("lahman");
        if needs_data && lahman::directory_or_skip(&file).is_none() {
            continue;
        }
        if script.only_at_home && stage.others == Others::HaveAll {
            continue;
        }
        if choice.allows(0, &file) {
            by_setup.entry(script.setup.clone()).or_default().push(script);
        }
    }
    for (setup, mut scripts) in by_setup {
        // Those that change nothing share one making of the tables.
        scripts.sort_by_key(|script| script.changes_data);
        let setup = match setup {
            Some(name) => Script::read(&directory().join("setup").join(format!("{name}.sql")))?,
            None => Script::default(),
        };
        let mut names: Vec<String> = setup.distributions.keys().cloned().collect();
        names.extend(scripts.iter().flat_map(|script| script.distributions.keys().cloned()));
        names.sort();
        names.dedup();
        let mut names: Vec<&String> = names.iter().filter(|name| choice.allows(1, name)).collect();
        if stage.nodes.is_empty() {
            // A plain server knows no distribution.
            names.truncate(1);
        }
        for (place, distribution) in names.into_iter().enumerate() {
            let of_share = |number: usize| share.distributions.has(number + place);
            let chosen: Vec<&Script> = scripts
                .iter()
                .enumerate()
                .filter(|(number, _)| {
                    stage.nodes.is_empty() || choice.is_made() || of_share(*number)
                })
                .map(|(_, script)| script)
                .collect();
            report.add(run_under(stage, &setup, &chosen, distribution, protocols, choice)?);
        }
    }
    Ok(report)
}

fn run_under(
    stage: &Stage,
    setup: &Script,
    scripts: &[&Script],
    distribution: &str,
    protocols: &[Protocol],
    choice: &Choice,
) -> Result<Report> {
    let mut report = Report::default();
    let mut is_made = false;
    for script in scripts {
        let is_known = setup.distributions.contains_key(distribution)
            || script.distributions.contains_key(distribution);
        if !is_known {
            continue;
        }
        let mut placement: Placement =
            setup.distributions.get(distribution).cloned().unwrap_or_default();
        placement.extend(script.distributions.get(distribution).cloned().unwrap_or_default());
        for protocol in protocols.iter().filter(|p| choice.allows(3, p.name())) {
            if !is_made {
                stage.clear()?;
                let setting = Setting { script: setup, distribution, protocol: Protocol::Simple };
                let made = stage.run(&setting, &placement)?;
                let failed = !made.differences.is_empty();
                report.add(made);
                if failed {
                    // Without its tables a script tells nothing more.
                    return Ok(report);
                }
            }
            let setting = Setting { script, distribution, protocol: *protocol };
            let found = stage.run(&setting, &placement)?;
            is_made = !script.changes_data;
            report.add(found);
        }
    }
    Ok(report)
}

/// Fails with the differences, if there are any.
pub fn judge(report: &Report, choice: &Choice) {
    println!(
        "{} statements compared, {} refused on purpose, {} differences",
        report.compared,
        report.refused,
        report.differences.len()
    );
    for difference in &report.differences {
        println!("{}", difference.summary());
    }
    for difference in report.differences.iter().take(SHOWN) {
        println!("{difference}");
    }
    assert!(report.differences.is_empty(), "{} differences, see above", report.differences.len());
    assert!(choice.is_made() || report.compared > 300, "hardly anything was compared");
}
