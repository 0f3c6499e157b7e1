//! The account that servers run as: ours, or another one where we are root.
//!
//! Owns: choosing it, giving it files, checking that it can reach a directory.
//! Never: changes the mode of a directory that it was not given.
//! Why: PostgreSQL refuses to run as root (`src/backend/main/main.c`, `check_root`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{User, geteuid};

use crate::error::EmbedError;

/// The account that servers run as.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ServerAccount {
    /// Our own: we are not root.
    Own,
    /// Another one, because we are root and PostgreSQL refuses that.
    Other {
        /// Its name.
        name: String,
        /// Its user id.
        uid: u32,
        /// Its group id.
        gid: u32,
    },
}

impl ServerAccount {
    /// Chooses the account: our own, or as root `postgres`, or else `nobody`.
    ///
    /// Errors: `NoAccount`, `LookUpAccount`.
    pub fn choose() -> Result<Self, EmbedError> {
        if !geteuid().is_root() {
            return Ok(Self::Own);
        }
        for name in ["postgres", "nobody"] {
            let user = User::from_name(name)
                .map_err(|errno| EmbedError::LookUpAccount { name, source: errno.into() })?;
            if let Some(user) = user.filter(|user| !user.uid.is_root()) {
                let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
                return Ok(Self::Other { name: user.name, uid, gid });
            }
        }
        Err(EmbedError::NoAccount)
    }

    /// Its user id.
    pub(crate) fn uid(&self) -> u32 {
        match self {
            Self::Own => geteuid().as_raw(),
            Self::Other { uid, .. } => *uid,
        }
    }

    /// A command that will run as this account, with a neutral locale and working directory.
    ///
    /// The standard library drops the supplementary groups of root when it changes the user.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // Not our working directory: the account may have no right to it.
        command.current_dir("/").env("LC_ALL", "C");
        if let Self::Other { uid, gid, .. } = self {
            command.uid(*uid).gid(*gid);
        }
        command
    }

    /// Gives `path` to the account; nothing to do where it is our own.
    pub(crate) fn give(&self, path: &Path) -> Result<(), EmbedError> {
        let Self::Other { name, uid, gid } = self else { return Ok(()) };
        std::os::unix::fs::lchown(path, Some(*uid), Some(*gid)).map_err(|source| {
            EmbedError::ChangeOwner { account: name.clone(), path: path.to_owned(), source }
        })
    }

    /// The first directory on the way to `path` (itself included) that the account may not enter.
    ///
    /// Directories that do not exist yet do not count: we will create them. Looks at owner, group
    /// and mode only; access control lists are not considered.
    pub fn closed_directory(&self, path: &Path) -> Option<PathBuf> {
        let Self::Other { uid, gid, .. } = self else { return None };
        let mut ancestors: Vec<&Path> = path.ancestors().collect();
        ancestors.reverse();
        for directory in ancestors {
            let Ok(metadata) = fs::metadata(directory) else { return None };
            let execute_bit = if metadata.uid() == *uid {
                0o100
            } else if metadata.gid() == *gid {
                0o010
            } else {
                0o001
            };
            if metadata.mode() & execute_bit == 0 {
                return Some(directory.to_owned());
            }
        }
        None
    }

    /// Fails with `PathClosed` if the account cannot reach `path`.
    pub(crate) fn require_open(&self, path: &Path) -> Result<(), EmbedError> {
        match (self, self.closed_directory(path)) {
            (Self::Other { name, .. }, Some(closed)) => {
                Err(EmbedError::PathClosed { account: name.clone(), closed })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_closed_directory_on_the_way_is_named() {
        let dir = tempfile::Builder::new()
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()
            .unwrap();
        let closed = dir.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        // An account that owns nothing and is in no group here.
        let account = ServerAccount::Other { name: "stranger".into(), uid: 65_000, gid: 65_000 };

        assert_eq!(account.closed_directory(&closed.join("to/be/made")), Some(closed.clone()));
        assert_eq!(account.closed_directory(&dir.path().join("to/be/made")), None);
        assert_eq!(ServerAccount::Own.closed_directory(&closed), None);
    }
}
