//! Finds PostgreSQL's server binaries on this machine.
//!
//! Owns: the order of places.
//! Never: installs anything; fetching is `fetch.rs`, and only where that feature is built.
//! Start reading at [`Binaries::find`].

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::account::ServerAccount;
use crate::binaries::Binaries;
use crate::error::EmbedError;

/// Folders whose subfolders (`VERSION/bin` or `NAME/bin`) hold PostgreSQL where distributions put it.
const USUAL_PARENTS: [&str; 5] =
    ["/usr/lib/postgresql", "/usr", "/opt/homebrew/opt", "/usr/local/opt", "/usr/lib64"];

/// Where PostgreSQL's own `make install` puts it.
const USUAL_PLACES: [&str; 2] = ["/usr/local/pgsql/bin", "/opt/pgsql/bin"];

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
        match search(account, None, &mut rejected)? {
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
        match search(account, Some(needed), &mut rejected)? {
            Some(binaries) => Ok(binaries),
            None => {
                let dir = dir.to_owned();
                let error = EmbedError::NoPostgresOfMajor { dir, needed, rejected };
                fetch_or(error, Some(needed), account)
            }
        }
    }
}

/// The first usable candidate, `None` if there is none or `TUTTI_PG=fetch` forbids to look.
fn search(
    account: &ServerAccount,
    major: Option<u32>,
    rejected: &mut Vec<String>,
) -> Result<Option<Binaries>, EmbedError> {
    if env::var("TUTTI_PG").is_ok_and(|value| value == "fetch") {
        if cfg!(not(feature = "fetch")) {
            return Err(EmbedError::FetchNotBuilt);
        }
        return Ok(None);
    }
    for dir in candidates() {
        match Binaries::at(&dir) {
            Err(error) => rejected.push(error.to_string()),
            Ok(found) if major.is_some_and(|major| major != found.version().major) => {
                rejected.push(format!("{} is PostgreSQL {}", dir.display(), found.version()));
            }
            Ok(found) => match account.require_open(&dir) {
                Err(error) => rejected.push(error.to_string()),
                Ok(()) => return Ok(Some(found)),
            },
        }
    }
    Ok(None)
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
    dirs.sort_by_key(|dir| std::cmp::Reverse(Binaries::at(dir).ok().map(|found| found.version())));
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
