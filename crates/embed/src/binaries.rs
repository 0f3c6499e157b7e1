//! Finds PostgreSQL's server binaries on this machine.
//!
//! Owns: the order of places, what counts as usable, and the version check.
//! Never: installs anything; fetching is `fetch.rs`, and only where that feature is built.
//! Start reading at [`Binaries::find`].

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::account::ServerAccount;
use crate::error::EmbedError;

/// The oldest major version whose protocol, prepared transactions and replication we rely on.
const MAJOR_MIN: u32 = 15;

/// Folders whose subfolders (`VERSION/bin` or `NAME/bin`) hold PostgreSQL where distributions put it.
const USUAL_PARENTS: [&str; 5] =
    ["/usr/lib/postgresql", "/usr", "/opt/homebrew/opt", "/usr/local/opt", "/usr/lib64"];

/// Where PostgreSQL's own `make install` puts it.
const USUAL_PLACES: [&str; 2] = ["/usr/local/pgsql/bin", "/opt/pgsql/bin"];

/// A version as `postgres --version` prints it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Version {
    /// 15, 16, …
    pub major: u32,
    /// The minor release; 0 for a beta or development version.
    pub minor: u32,
}

impl Version {
    /// Reads `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`, `… 19beta1`, `… 19devel`.
    fn parse(text: &str) -> Option<Self> {
        let number = text.split_once("(PostgreSQL) ")?.1.split_whitespace().next()?;
        let digits = |text: &str| -> Option<u32> {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..end].parse().ok()
        };
        let minor = number.split_once('.').and_then(|(_, minor)| digits(minor)).unwrap_or(0);
        Some(Self { major: digits(number)?, minor })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A folder with `postgres` and `initdb` of one version, 15 or newer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Binaries {
    dir: PathBuf,
    version: Version,
}

impl Binaries {
    /// Finds PostgreSQL 15 or newer: what `PG_CONFIG` names, then PATH, then the usual places, the
    /// newest first. Where none is found, fetches one if this build can (feature `fetch`).
    ///
    /// `TUTTI_PG=fetch` skips the search and fetches. Never touches the network otherwise, if
    /// binaries are found.
    ///
    /// Errors: `NoPostgres`, `Fetch`.
    pub fn find(account: &ServerAccount) -> Result<Self, EmbedError> {
        let mut rejected = Vec::new();
        match Self::search(account, None, &mut rejected)? {
            Some(binaries) => Ok(binaries),
            None => fetch_or(EmbedError::NoPostgres { rejected }, None, account),
        }
    }

    /// Like [`Self::find`], for a data directory that major version `needed` made.
    ///
    /// Errors: `NoPostgresOfMajor`, `Fetch`.
    pub fn find_major(
        account: &ServerAccount,
        needed: u32,
        dir: &Path,
    ) -> Result<Self, EmbedError> {
        let mut rejected = Vec::new();
        match Self::search(account, Some(needed), &mut rejected)? {
            Some(binaries) => Ok(binaries),
            None => {
                let dir = dir.to_owned();
                let error = EmbedError::NoPostgresOfMajor { dir, needed, rejected };
                fetch_or(error, Some(needed), account)
            }
        }
    }

    /// The binaries in one folder.
    ///
    /// Errors: `RunTool` if `postgres` or `initdb` is missing there, `TooOld`.
    pub fn at(dir: &Path) -> Result<Self, EmbedError> {
        let mut version = None;
        for tool in ["initdb", "postgres"] {
            let tool = dir.join(tool);
            let output = Command::new(&tool)
                .arg("--version")
                .output()
                .map_err(|source| EmbedError::RunTool { tool: tool.clone(), source })?;
            version = Version::parse(&String::from_utf8_lossy(&output.stdout));
        }
        match version {
            Some(version) if version.major >= MAJOR_MIN => {
                Ok(Self { dir: dir.to_owned(), version })
            }
            found => Err(EmbedError::TooOld {
                dir: dir.to_owned(),
                found: found.unwrap_or(Version { major: 0, minor: 0 }),
            }),
        }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The version of `postgres` in it.
    pub fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn postgres(&self) -> PathBuf {
        self.dir.join("postgres")
    }

    pub(crate) fn initdb(&self) -> PathBuf {
        self.dir.join("initdb")
    }

    /// The first usable candidate, `None` if there is none or `TUTTI_PG=fetch` forbids to look.
    fn search(
        account: &ServerAccount,
        major: Option<u32>,
        rejected: &mut Vec<String>,
    ) -> Result<Option<Self>, EmbedError> {
        if env::var("TUTTI_PG").is_ok_and(|value| value == "fetch") {
            if cfg!(not(feature = "fetch")) {
                return Err(EmbedError::FetchNotBuilt);
            }
            return Ok(None);
        }
        for dir in candidates() {
            match Self::at(&dir) {
                Err(error) => rejected.push(error.to_string()),
                Ok(found) if major.is_some_and(|major| major != found.version.major) => {
                    rejected.push(format!("{} is PostgreSQL {}", dir.display(), found.version));
                }
                Ok(found) => match account.require_open(&dir) {
                    Err(error) => rejected.push(error.to_string()),
                    Ok(()) => return Ok(Some(found)),
                },
            }
        }
        Ok(None)
    }
}

/// Folders to look at, in order, each once; only those that hold a file `postgres`.
fn candidates() -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    dirs.extend(env::var_os("PG_CONFIG").and_then(|tool| bindir_of(Path::new(&tool))));
    if let Some(path) = env::var_os("PATH") {
        for dir in env::split_paths(&path) {
            for tool in ["postgres", "initdb"] {
                // A symlink such as Debian's administrators make: the real folder has the rest.
                let real = fs::canonicalize(dir.join(tool)).ok();
                dirs.extend(real.and_then(|tool| tool.parent().map(Path::to_owned)));
            }
            let pg_config = dir.join("pg_config");
            if pg_config.exists() {
                dirs.extend(bindir_of(&pg_config));
            }
        }
    }
    dirs.extend(usual_places());

    let mut seen = Vec::new();
    for dir in dirs {
        if dir.join("postgres").exists() && !seen.contains(&dir) {
            seen.push(dir);
        }
    }
    seen
}

/// What this pg_config says about its server programs; `None` if it does not answer.
fn bindir_of(pg_config: &Path) -> Option<PathBuf> {
    let output = Command::new(pg_config).arg("--bindir").output().ok()?;
    let bindir = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !bindir.trim().is_empty()).then(|| PathBuf::from(bindir.trim()))
}

/// The usual places of distributions that exist here, the newest version first.
fn usual_places() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = USUAL_PLACES.iter().map(PathBuf::from).collect();
    for parent in USUAL_PARENTS {
        let Ok(entries) = fs::read_dir(parent) else { continue };
        dirs.extend(entries.flatten().map(|entry| entry.path().join("bin")));
    }
    dirs.retain(|dir| dir.join("postgres").exists());
    dirs.sort_by_key(|dir| std::cmp::Reverse(Binaries::at(dir).ok().map(|found| found.version)));
    dirs
}

#[cfg(feature = "fetch")]
fn fetch_or(
    _not_found: EmbedError,
    major: Option<u32>,
    account: &ServerAccount,
) -> Result<Binaries, EmbedError> {
    crate::fetch::fetch(major, account)
}

#[cfg(not(feature = "fetch"))]
fn fetch_or(
    not_found: EmbedError,
    _major: Option<u32>,
    _account: &ServerAccount,
) -> Result<Binaries, EmbedError> {
    Err(not_found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_releases_and_betas_are_read() {
        let version = |text| Version::parse(text).map(|version| version.to_string());
        let debian = "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n";
        assert_eq!(version(debian).as_deref(), Some("15.18"));
        assert_eq!(version("postgres (PostgreSQL) 19beta2").as_deref(), Some("19.0"));
        assert_eq!(version("postgres (PostgreSQL) 20devel").as_deref(), Some("20.0"));
        assert_eq!(version("mysqld 8"), None);
    }
}
