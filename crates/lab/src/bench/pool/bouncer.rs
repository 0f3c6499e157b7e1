//! PgBouncer: found, configured, started.
//!
//! Owns: its settings, and what it can pool how. Never: measures it.
//! Start reading at [`Bouncer::start`].

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use tutti_embed::ServerAccount;

use super::process::Process;
use super::target::Protocol;

/// The databases that its clients name: the same one after it, pooled by transaction or by session.
const BY_TRANSACTION: &str = "transaction";
const BY_SESSION: &str = "session";
/// Where Debian and others put it, which is on the search path of administrators only.
const DIRECTORIES_BESIDES: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];
/// The first version that keeps track of prepared statements when it pools by transaction.
const KNOWS_PREPARED_SINCE: (u32, u32) = (1, 21);
/// How many prepared statements it keeps for each connection, where it can; its default is none.
const PREPARED_STATEMENTS_MAX: u32 = 200;

/// An installed PgBouncer.
#[derive(Clone, Debug)]
pub(super) struct Bouncer {
    program: PathBuf,
    version: (u32, u32),
}

/// What a PgBouncer is to serve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Serves {
    /// The PostgreSQL server behind it.
    pub server_port: u16,
    /// Connections to it, when pooled by transaction; its own default if nothing is said.
    pub pool: Option<u16>,
    /// Connections to it, when pooled by session: one for each client.
    pub sessions: u16,
    pub clients_max: u32,
}

impl Bouncer {
    /// Takes the one that is named, or searches for one.
    pub(super) fn find(named: Option<&Path>) -> anyhow::Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories =
            std::env::split_paths(&path).chain(DIRECTORIES_BESIDES.map(PathBuf::from));
        let program = match named {
            Some(program) => program.to_owned(),
            None => directories.map(|dir| dir.join("pgbouncer")).find(|path| path.is_file()).context(
                "pgbouncer is not installed (Debian: apt-get install pgbouncer); install it, name it with --pgbouncer, or leave it out of --targets",
            )?,
        };
        let output = Command::new(&program)
            .arg("--version")
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = parse_version(&text)
            .with_context(|| format!("{} says no version: {text}", program.display()))?;
        Ok(Self { program, version })
    }

    /// For people.
    pub(super) fn version(&self) -> String {
        let (major, minor) = self.version;
        format!("{major}.{minor}")
    }

    /// The database that clients of this protocol name, which says how they are pooled.
    ///
    /// An old PgBouncer that pools by transaction forwards Parse and Bind unchanged to whichever
    /// server connection is free. With more than one client that fails: a prepared statement
    /// "already exists" that another client made, or "does not exist".
    pub(super) fn database(&self, protocol: Protocol) -> &'static str {
        match protocol {
            Protocol::Prepared if !self.knows_prepared() => BY_SESSION,
            Protocol::Simple | Protocol::Extended | Protocol::Prepared => BY_TRANSACTION,
        }
    }

    fn knows_prepared(&self) -> bool {
        KNOWS_PREPARED_SINCE <= self.version
    }

    /// Starts it, with its files in `dir`; says on which port it listens.
    pub(super) fn start(&self, dir: &Path, serves: Serves) -> anyhow::Result<(Process, u16)> {
        // It cannot choose a free port by itself; nobody takes this one in the moment between.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let file = dir.join("pgbouncer.ini");
        fs::write(&file, self.settings(port, serves))?;
        let mut command = tokio::process::Command::new(&self.program);
        if let ServerAccount::Other { name, .. } = ServerAccount::choose()? {
            // Like PostgreSQL it refuses to run as root.
            command.arg("--user").arg(name);
        }
        // It says everything on standard error.
        command.arg(&file).stdout(Stdio::null());
        Ok((Process::start("pgbouncer", &mut command, dir.join("pgbouncer.log"))?, port))
    }

    fn settings(&self, port: u16, serves: Serves) -> String {
        let Serves { server_port, pool, sessions, clients_max } = serves;
        let server = format!("host=127.0.0.1 port={server_port} dbname=postgres user=postgres");
        let pool = pool.map_or_else(String::new, |size| format!(" pool_size={size}"));
        let mut text = format!(
            "[databases]\n\
             {BY_TRANSACTION} = {server}{pool}\n\
             {BY_SESSION} = {server} pool_mode=session pool_size={sessions}\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             pool_mode = transaction\n\
             max_client_conn = {clients_max}\n\
             log_connections = 0\n\
             log_disconnections = 0\n\
             log_stats = 0\n"
        );
        if self.knows_prepared() {
            text += &format!("max_prepared_statements = {PREPARED_STATEMENTS_MAX}\n");
        }
        text
    }
}

/// Reads the first line of `pgbouncer --version`: `PgBouncer 1.18.0`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.lines().next()?.strip_prefix("PgBouncer ")?.split('.');
    Some((parts.next()?.trim().parse().ok()?, parts.next()?.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let text = "PgBouncer 1.18.0\nlibevent 2.1.12-stable\nadns: c-ares 1.18.1\n";
        assert_eq!(parse_version(text), Some((1, 18)));
        assert_eq!(parse_version("something else"), None);
    }

    #[test]
    fn only_those_that_know_prepared_statements_pool_them_by_transaction() {
        let of = |version| Bouncer { program: PathBuf::new(), version };
        assert_eq!(of((1, 18)).database(Protocol::Prepared), BY_SESSION);
        assert_eq!(of((1, 18)).database(Protocol::Extended), BY_TRANSACTION);
        assert_eq!(of((1, 21)).database(Protocol::Prepared), BY_TRANSACTION);
        let serves = Serves { server_port: 1, pool: Some(2), sessions: 3, clients_max: 4 };
        // An older one refuses to start with a setting that it does not know.
        assert!(!of((1, 18)).settings(5, serves).contains("max_prepared_statements"));
        assert!(of((1, 21)).settings(5, serves).contains("max_prepared_statements = 200\n"));
    }
}
