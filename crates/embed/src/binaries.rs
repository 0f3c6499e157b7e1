//! A folder with PostgreSQL's server binaries.
//!
//! Owns: what counts as usable, and the version check.
//! Never: looks for one; that is `find.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::EmbedError;
use crate::version::Version;

/// The oldest major version whose protocol, prepared transactions and replication we rely on.
const MAJOR_MIN: u32 = 15;

/// A folder with `postgres` and `initdb` of one version, 15 or newer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Binaries {
    dir: PathBuf,
    version: Version,
}

impl Binaries {
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
}
