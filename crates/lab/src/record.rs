//! What was measured: a line of JSON for each run, in a directory that one can carry on with.
//!
//! Owns: the format, that a run which was cut off leaves no half line behind, and that one process at a time adds
//! runs. Never: knows a study.
//! Start reading at [`Record`], then [`Records`].

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::load::{Driven, Figures};

/// What decides a run's figures, by name.
pub(crate) type Parameters = BTreeMap<String, Value>;

/// The file's name in a study's directory.
const FILE: &str = "runs.jsonl";

/// One run of a study.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Record {
    /// Which study.
    pub study: String,
    /// Which run of it: all that differs from the study's other runs, repetitions too.
    pub run: String,
    /// The same as values, by name.
    pub parameters: Parameters,
    /// How long what was counted took, in seconds.
    pub lasted_s: f64,
    /// What clients did, by what they are called.
    pub clients: BTreeMap<String, Figures>,
    /// Further figures by name; the unit is the end of the name.
    pub figures: BTreeMap<String, f64>,
    /// What was checked afterwards, and held.
    pub checked: String,
    /// Where and with what, as every run of a directory says for itself.
    pub made_on: Machine,
}

impl Record {
    /// Of what clients did, with no further figures.
    pub(crate) fn of_clients(
        study: &str,
        run: &str,
        parameters: Parameters,
        driven: &Driven,
        checked: &str,
        made_on: Machine,
    ) -> Self {
        Self {
            study: study.to_owned(),
            run: run.to_owned(),
            parameters,
            lasted_s: driven.lasted.as_secs_f64(),
            clients: driven.figures().into_iter().collect(),
            figures: BTreeMap::new(),
            checked: checked.to_owned(),
            made_on,
        }
    }

    /// A parameter as a number; 0 where there is none.
    pub(crate) fn number(&self, parameter: &str) -> f64 {
        self.parameters.get(parameter).and_then(Value::as_f64).unwrap_or_default()
    }

    /// A parameter as text; empty where there is none.
    pub(crate) fn text(&self, parameter: &str) -> &str {
        self.parameters.get(parameter).and_then(Value::as_str).unwrap_or_default()
    }

    /// What these clients did; nothing where there were none.
    pub(crate) fn of(&self, clients: &str) -> Figures {
        self.clients.get(clients).cloned().unwrap_or_default()
    }
}

/// The machine and the programs of a run.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Machine {
    /// Threads of the processor.
    pub processors: usize,
    /// As the system calls it.
    pub processor: String,
    /// Of the system.
    pub kernel: String,
    /// What was measured, with its version.
    pub server: String,
    /// This program's version.
    pub lab: String,
    /// The command that makes the run again.
    pub command: String,
}

impl Machine {
    /// This one, in front of `server`.
    pub(crate) fn this(server: &str, command: &str) -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let model = read("/proc/cpuinfo");
        let model = model.lines().find_map(|line| line.strip_prefix("model name"));
        let model = model.and_then(|it| it.split_once(':')).map(|(_, name)| name.trim().to_owned());
        Self {
            processors: std::thread::available_parallelism().map_or(1, Into::into),
            processor: model.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            server: server.to_owned(),
            lab: env!("CARGO_PKG_VERSION").to_owned(),
            command: command.to_owned(),
        }
    }
}

/// The runs of a directory, and where the next ones go. The file is locked while this value lives; the lock of a
/// process that has ended, however it did, is free.
#[derive(Debug)]
pub(crate) struct Records {
    path: PathBuf,
    file: File,
    all: Vec<Record>,
}

impl Records {
    /// Opens a directory to add runs of a study; makes it where it is missing. What it has already is carried
    /// on with.
    ///
    /// Errors: another process adds runs to it; it has runs of another study, or a line that is no run.
    pub(crate) fn carry_on(dir: &Path, study: &str) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let path = dir.join(FILE);
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let mut file = file.with_context(|| format!("cannot write {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => (),
            Err(TryLockError::WouldBlock) => bail!(
                "{} is in use: another tutti-lab adds runs to it; wait until it has ended, or name another --out",
                dir.display()
            ),
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // A program that was killed may have left a part of a line.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        file.seek(SeekFrom::End(0))?;
        let all = parse(&text[..whole], &path)?;
        if let Some(other) = all.iter().find(|record| record.study != study) {
            let (dir, other) = (dir.display(), &other.study);
            bail!("{dir} has runs of the study {other}: name another directory for {study}");
        }
        Ok(Self { path, file, all })
    }

    /// Whether this run is there already.
    pub(crate) fn has(&self, run: &str) -> bool {
        self.all.iter().any(|record| record.run == run)
    }

    /// Adds a run; it is in the file when this returns.
    pub(crate) fn add(&mut self, record: Record) -> anyhow::Result<()> {
        ensure!(!self.has(&record.run), "the run {} was made twice", record.run);
        let line = serde_json::to_string(&record)? + "\n";
        let written = self.file.write_all(line.as_bytes());
        written.with_context(|| format!("cannot write {}", self.path.display()))?;
        self.all.push(record);
        Ok(())
    }

    /// All of them, in the order in which they were made.
    pub(crate) fn all(&self) -> &[Record] {
        &self.all
    }
}

impl Drop for Records {
    /// Says so, instead of only closing the file: a child that another thread is starting has a copy of it between
    /// its fork and its exec, and the lock would be held until then.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Reads the runs of a directory.
pub(crate) fn read(dir: &Path) -> anyhow::Result<Vec<Record>> {
    let path = dir.join(FILE);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("{} has no runs: cannot read {FILE}", dir.display()))?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let all = parse(&text[..whole], &path)?;
    ensure!(!all.is_empty(), "{} has no runs", dir.display());
    let studies: BTreeSet<_> = all.iter().map(|record| record.study.as_str()).collect();
    ensure!(studies.len() == 1, "{} has runs of several studies: {studies:?}", dir.display());
    Ok(all)
}

fn parse(text: &str, path: &Path) -> anyhow::Result<Vec<Record>> {
    let record = |(number, line): (usize, &str)| {
        serde_json::from_str(line)
            .with_context(|| format!("{}, line {}: not a run", path.display(), number + 1))
    };
    text.lines().enumerate().map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(study: &str, run: &str) -> Record {
        Record {
            study: study.to_owned(),
            run: run.to_owned(),
            parameters: BTreeMap::from([("nodes".to_owned(), Value::from(3))]),
            lasted_s: 1.5,
            clients: BTreeMap::from([("writers".to_owned(), Figures::default())]),
            figures: BTreeMap::new(),
            checked: "all of it".to_owned(),
            made_on: Machine::this("PostgreSQL 15", "tutti-lab cost"),
        }
    }

    #[test]
    fn a_directory_is_carried_on_with_even_after_half_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut records = Records::carry_on(dir.path(), "cost").unwrap();
        records.add(record("cost", "a")).unwrap();
        assert!(records.add(record("cost", "a")).is_err());
        let path = dir.path().join(FILE);
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"study\":\"co");
        std::fs::write(&path, text).unwrap();
        drop(records);
        let mut records = Records::carry_on(dir.path(), "cost").unwrap();
        assert!(records.has("a") && !records.has("b"));
        records.add(record("cost", "b")).unwrap();
        assert_eq!(read(dir.path()).unwrap(), [record("cost", "a"), record("cost", "b")]);
        drop(records);
        assert!(Records::carry_on(dir.path(), "thesis").is_err());
    }

    #[test]
    fn one_at_a_time_adds_runs_and_anyone_reads_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut records = Records::carry_on(dir.path(), "cost").unwrap();
        records.add(record("cost", "a")).unwrap();
        let said = Records::carry_on(dir.path(), "cost").unwrap_err().to_string();
        assert!(said.contains("is in use") && said.contains("another --out"), "{said}");
        assert_eq!(read(dir.path()).unwrap().len(), 1);
        drop(records);
        assert!(Records::carry_on(dir.path(), "cost").unwrap().has("a"));
    }

    #[test]
    fn what_is_no_run_is_said_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).is_err());
        std::fs::write(dir.path().join(FILE), "{}\n").unwrap();
        let said = format!("{:#}", read(dir.path()).unwrap_err());
        assert!(said.contains("line 1: not a run"), "{said}");
    }
}
