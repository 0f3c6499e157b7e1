//! The format of interleavings, described in `tests/anomalies/README.md`.
//!
//! Owns: reading. Never: runs anything. Start reading at [`parse`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// An isolation level that scripts are run at.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Level {
    /// READ COMMITTED.
    ReadCommitted,
    /// REPEATABLE READ.
    RepeatableRead,
    /// SERIALIZABLE.
    Serializable,
}

impl Level {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ReadCommitted, Self::RepeatableRead, Self::Serializable];

    /// As PostgreSQL's settings spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadCommitted => "read committed",
            Self::RepeatableRead => "repeatable read",
            Self::Serializable => "serializable",
        }
    }

    fn named(name: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|level| level.name() == name)
            .with_context(|| format!("no such level: {name:?}"))
    }
}

/// Who does something.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    /// A session sends a statement.
    Say {
        /// The session's name.
        session: String,
        /// What the condition calls the rows of the answer.
        label: Option<String>,
        /// The statement, placeholders included.
        sql: String,
    },
    /// No session does anything until a waiting one has been answered.
    Await,
}

/// A condition on what committed transactions have seen, in SQL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Anomaly {
    /// Over one Boolean per session (its transaction committed) and one text per label.
    pub condition: String,
    /// Where one PostgreSQL shows it.
    pub appears_at: BTreeSet<Level>,
}

/// One interleaving.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Script {
    /// Name of the file, without its extension.
    pub file: String,
    /// From its heading.
    pub title: String,
    /// Statements that make its tables.
    pub setup: Vec<String>,
    /// Levels it is run at; empty: once, as it is written.
    pub levels: BTreeSet<Level>,
    /// What must not appear.
    pub anomaly: Option<Anomaly>,
    /// No statement needs to be refused with 40001 at SERIALIZABLE, so none may be.
    pub none_refused: bool,
    /// At SERIALIZABLE over several nodes its reads may be of another moment than on one server.
    pub other_moment: bool,
    /// Sessions that end with 40P01 if the deadlock spans nodes.
    pub victims: BTreeSet<String>,
    /// Line of the file (from 1) and what is done.
    pub steps: Vec<(usize, Step)>,
}

impl Script {
    /// The sessions, in order of their names.
    pub fn sessions(&self) -> BTreeSet<&str> {
        let names = self.steps.iter().filter_map(|(_, step)| match step {
            Step::Say { session, .. } => Some(session.as_str()),
            Step::Await => None,
        });
        names.collect()
    }

    /// The labels, in the order they are given.
    pub fn labels(&self) -> Vec<&str> {
        let labels = self.steps.iter().filter_map(|(_, step)| match step {
            Step::Say { label, .. } => label.as_deref(),
            Step::Await => None,
        });
        labels.collect()
    }

    /// For messages.
    pub fn name(&self) -> String {
        format!("{}: {}", self.file, self.title)
    }

    /// What does not fit together; the reader of one line cannot see it.
    fn complete(mut self) -> Result<Self> {
        ensure!(!self.steps.is_empty(), "{}: nothing is done", self.title);
        let labels = self.labels();
        let distinct: BTreeSet<_> = labels.iter().collect();
        ensure!(distinct.len() == labels.len(), "{}: a label is given twice", self.title);
        let mentions_level = self.steps.iter().any(|(_, step)| match step {
            Step::Say { sql, .. } => sql.contains("{level}"),
            Step::Await => false,
        });
        if mentions_level && self.levels.is_empty() {
            self.levels = Level::ALL.into();
        }
        ensure!(
            mentions_level != self.levels.is_empty(),
            "{}: levels are given, but no statement says {{level}}",
            self.title
        );
        if let Some(anomaly) = &self.anomaly {
            let known = anomaly.appears_at.is_subset(&self.levels) || self.levels.is_empty();
            ensure!(known, "{}: appears at a level that it is not run at", self.title);
        }
        Ok(self)
    }
}

/// Reads all interleavings of a file.
pub fn read(path: &Path) -> Result<Vec<Script>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let file = path.file_stem().unwrap_or_default().to_string_lossy();
    parse(&file, &text).with_context(|| path.display().to_string())
}

/// Reads all interleavings of a directory's files, by name.
pub fn read_directory(directory: &Path) -> Result<Vec<Script>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .with_context(|| directory.display().to_string())?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    let mut scripts = Vec::new();
    for path in paths {
        scripts.extend(read(&path)?);
    }
    Ok(scripts)
}

/// Reads a file's text. What stands before the first heading holds for all its interleavings.
pub fn parse(file: &str, text: &str) -> Result<Vec<Script>> {
    let mut shared = Script { file: file.to_owned(), ..Script::default() };
    let mut scripts: Vec<Script> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(title) = line.strip_prefix("## ") {
            scripts.push(Script { title: title.to_owned(), ..shared.clone() });
        } else if !line.is_empty() && !line.starts_with('#') {
            let script = scripts.last_mut().unwrap_or(&mut shared);
            read_line(script, index + 1, line).with_context(|| format!("line {}", index + 1))?;
        }
    }
    ensure!(shared.steps.is_empty(), "something is done before the first heading");
    scripts.into_iter().map(Script::complete).collect()
}

fn read_line(script: &mut Script, number: usize, line: &str) -> Result<()> {
    match line {
        "none refused" => script.none_refused = true,
        "other moment" => script.other_moment = true,
        "await" => script.steps.push((number, Step::Await)),
        _ => {
            let (head, rest) = line.split_once(':').context("no colon")?;
            read_directive(script, number, head.trim(), rest.trim())?;
        }
    }
    Ok(())
}

fn read_directive(script: &mut Script, number: usize, head: &str, rest: &str) -> Result<()> {
    match head {
        "setup" => script.setup.push(rest.to_owned()),
        "levels" => script.levels = read_levels(rest)?,
        "anomaly" => {
            let condition = rest.to_owned();
            script.anomaly = Some(Anomaly { condition, appears_at: BTreeSet::new() });
        }
        "appears at" => {
            let anomaly = script.anomaly.as_mut().context("no anomaly to appear")?;
            anomaly.appears_at = if rest == "never" { BTreeSet::new() } else { read_levels(rest)? };
        }
        "victims" => script.victims = rest.split(',').map(|name| name.trim().to_owned()).collect(),
        _ => {
            let words: Vec<&str> = head.split_whitespace().collect();
            let (session, label) = match words[..] {
                [session] => (session, None),
                [session, "sees", label] => (session, Some(label.to_owned())),
                _ => bail!("SESSION: STATEMENT or SESSION sees LABEL: STATEMENT expected"),
            };
            let (session, sql) = (session.to_owned(), rest.to_owned());
            script.steps.push((number, Step::Say { session, label, sql }));
        }
    }
    Ok(())
}

fn read_levels(names: &str) -> Result<BTreeSet<Level>> {
    names.split(',').map(|name| Level::named(name.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# About.\nsetup: CREATE TABLE t (id int)\n\n## first\nnone refused\n\
        anomaly: t1 AND x = '1'\nappears at: read committed, repeatable read\n\
        t2: BEGIN ISOLATION LEVEL {level}\nt1 sees x: SELECT 'a:b'\nawait\n\n## second\nt1: SELECT 1\n";

    #[test]
    fn a_file_is_read() {
        let scripts = parse("file", TEXT).unwrap();
        let [first, second] = scripts.as_slice() else { panic!("{scripts:?}") };
        assert_eq!(first.name(), "file: first");
        assert_eq!(first.setup, ["CREATE TABLE t (id int)"]);
        assert_eq!(first.setup, second.setup);
        assert_eq!(first.levels, Level::ALL.into());
        assert!(second.levels.is_empty() && second.anomaly.is_none() && !second.none_refused);
        let anomaly = first.anomaly.as_ref().unwrap();
        assert_eq!(anomaly.condition, "t1 AND x = '1'");
        assert_eq!(anomaly.appears_at, [Level::ReadCommitted, Level::RepeatableRead].into());
        assert_eq!(first.sessions().into_iter().collect::<Vec<_>>(), ["t1", "t2"]);
        assert_eq!(first.labels(), ["x"]);
        let said = Step::Say {
            session: "t1".to_owned(),
            label: Some("x".to_owned()),
            sql: "SELECT 'a:b'".to_owned(),
        };
        assert_eq!(first.steps[1..], [(9, said), (10, Step::Await)]);
    }

    #[test]
    fn mistakes_are_reported() {
        assert!(parse("f", "t1: SELECT 1\n## late\nt1: SELECT 1").is_err());
        assert!(parse("f", "## nothing").is_err());
        assert!(parse("f", "## x\nlevels: serializable\nt1: BEGIN").is_err());
        assert!(parse("f", "## x\nlevels: snapshot\nt1: BEGIN {level}").is_err());
        assert!(parse("f", "## x\nappears at: never\nt1: BEGIN").is_err());
        assert!(parse("f", "## x\nt1 sees: SELECT 1").is_err());
        assert!(parse("f", "## x\nt1 sees y: SELECT 1\nt1 sees y: SELECT 2").is_err());
        assert!(parse("f", "## x\njust words").is_err());
    }
}
