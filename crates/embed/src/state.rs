//! The state file of a cluster's directory: what it consists of, and on which ports.
//!
//! Owns: the file's format and that it is replaced in one step. Never: knows what nodes do.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::EmbedError;

/// Raised when a file of the old form could be misread.
const FORMAT: u32 = 1;

/// What is kept in `cluster.toml`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct ClusterState {
    /// The form of this file.
    pub format: u32,
    /// The cluster's name, made up once; nodes and gateway know each other by it.
    pub name: String,
    /// The major version of PostgreSQL that made the data.
    pub postgresql: u32,
    /// False until every node was made once. Then a missing node is a loss, not a beginning.
    pub complete: bool,
    /// The nodes' ports, in their order.
    pub ports: Vec<u16>,
}

impl ClusterState {
    /// A new cluster's state.
    pub(crate) fn new(postgresql: u32, ports: Vec<u16>) -> Self {
        // Short and plain, because it becomes part of transactions' identifiers.
        let name = format!("t{:08x}", rand::random::<u32>());
        Self { format: FORMAT, name, postgresql, complete: false, ports }
    }

    /// Reads the file; `None` if there is none.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, EmbedError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(EmbedError::read(path)(error)),
        };
        let malformed = |source| EmbedError::StateMalformed { path: path.to_owned(), source };
        // The format first: a newer file may have other fields.
        let format: FormatOnly = toml::from_str(&text).map_err(malformed)?;
        if format.format != FORMAT {
            return Err(EmbedError::StateFormat {
                path: path.to_owned(),
                found: format.format,
                known: FORMAT,
            });
        }
        toml::from_str(&text).map(Some).map_err(malformed)
    }

    /// Replaces the file; a crash leaves the old one or the new one.
    pub(crate) fn write(&self, path: &Path) -> Result<(), EmbedError> {
        let text = toml::to_string(self).expect("plain fields can be written as TOML");
        let beside = path.with_extension("toml.new");
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&beside)?;
            file.write_all(b"# Kept by `tutti up`.\n")?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&beside, path)
        };
        write().map_err(EmbedError::write(path))
    }
}

#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_another_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.toml");
        assert_eq!(ClusterState::read(&path).unwrap(), None);

        let state = ClusterState::new(15, vec![17_001, 17_002]);
        state.write(&path).unwrap();
        assert_eq!(ClusterState::read(&path).unwrap(), Some(state));

        fs::write(&path, "format = 99\nshape = 'unknown'\n").unwrap();
        let error = ClusterState::read(&path).unwrap_err();
        assert!(matches!(error, EmbedError::StateFormat { found: 99, .. }), "{error}");
    }
}
