//! What a node is set to, and how that is written for the server.
//!
//! Owns: the settings Tutti needs from every server it starts. Never: touches `postgresql.conf`
//! beyond one include line, so an operator's own settings there stay.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The file in the data directory that is written anew before every start.
pub(crate) const SETTINGS_FILE: &str = "tutti.conf";

/// The longest path of a socket that the system's address can hold (108 bytes with the final 0 on
/// Linux, 104 on macOS), less `/.s.PGSQL.65535.lock`.
const SOCKET_DIR_LEN_MAX: usize = 103 - 20;

/// How a server is made and run.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Whether commits survive a power cut of the machine. A SIGKILL of the server they always
    /// survive: the operating system still has what was written.
    pub fsync: bool,
    /// Whether initdb turns on checksums of data pages.
    pub data_checksums: bool,
    /// Whether to copy a data directory that initdb once made, instead of running initdb.
    ///
    /// Much faster, but servers then share their system identifier: for tests only.
    pub from_template: bool,
    /// Whether a temporary cluster may have its directory in memory, where there is room: a power cut of
    /// the machine would take it, a SIGKILL of a server takes nothing.
    pub in_memory: bool,
    /// Further settings, by name; they win over ours.
    pub settings: BTreeMap<String, String>,
}

impl Default for ServerOptions {
    /// Durable servers, each made by initdb.
    fn default() -> Self {
        Self {
            fsync: true,
            data_checksums: false,
            from_template: false,
            in_memory: false,
            settings: BTreeMap::new(),
        }
    }
}

impl ServerOptions {
    /// For tests that kill servers or judge what survives: made from the template, which saves the time of
    /// initdb, on the system's disk, with fsync on.
    pub fn for_tests() -> Self {
        let settings = [
            // As files in the data directory, which go with it: segments of POSIX shared memory outlive a
            // server that is killed.
            ("dynamic_shared_memory_type", "mmap"),
            // Compiling expressions took a sixth of the processor's time, and changes no answer.
            ("jit", "off"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { from_template: true, settings: settings.into(), ..Self::default() }
    }

    /// For all other tests: the same in memory, if there is room. Making and removing thousands of files on
    /// a disk took more than half of the processor's time.
    pub fn for_tests_in_memory() -> Self {
        Self { in_memory: true, ..Self::for_tests() }
    }

    /// The text of the settings file of a server on `port` with its data in `data_dir`.
    pub(crate) fn render(&self, port: u16, data_dir: &Path) -> String {
        let mut all: BTreeMap<&str, String> = BTreeMap::from([
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("port", port.to_string()),
            ("unix_socket_directories", socket_dir(data_dir)),
            ("fsync", if self.fsync { "on" } else { "off" }.to_owned()),
            // One for every transaction that may stand between its vote and its decision.
            ("max_prepared_transactions", "200".to_owned()),
            ("max_connections", "200".to_owned()),
            // Moving buckets and asynchronous replicas use logical replication.
            ("wal_level", "logical".to_owned()),
            // Messages reach clients through the gateway; they must not differ between nodes.
            ("lc_messages", "C".to_owned()),
            // Our child's standard error is the log file; a collector would be one process more.
            ("logging_collector", "off".to_owned()),
            ("log_destination", "stderr".to_owned()),
        ]);
        all.extend(self.settings.iter().map(|(name, value)| (name.as_str(), value.clone())));

        let mut text =
            String::from("# Written by tutti before every start; changes here are lost.\n");
        for (name, value) in all {
            writeln!(text, "{name} = '{}'", value.replace('\'', "''"))
                .expect("writing to a string does not fail");
        }
        text
    }
}

/// The directory of the server's Unix socket: its data directory, or none if that path is too long
/// for a socket's address.
pub(crate) fn socket_dir(data_dir: &Path) -> String {
    match data_dir.to_str() {
        // A comma would separate two directories.
        Some(dir) if dir.len() <= SOCKET_DIR_LEN_MAX && !dir.contains([',', '"']) => dir.to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_settings_win_and_are_quoted() {
        let settings = BTreeMap::from([
            ("max_connections".to_owned(), "20".to_owned()),
            ("log_line_prefix".to_owned(), "it's %m".to_owned()),
        ]);
        let options = ServerOptions { settings, ..ServerOptions::default() };
        let text = options.render(17_001, Path::new("/data"));
        assert!(text.contains("\nmax_connections = '20'\n"), "{text}");
        assert!(text.contains("\nlog_line_prefix = 'it''s %m'\n"), "{text}");
        assert!(text.contains("\nport = '17001'\n"), "{text}");
        assert!(text.contains("\nfsync = 'on'\n"), "{text}");
    }

    #[test]
    fn a_path_too_long_for_a_socket_has_none() {
        assert_eq!(socket_dir(Path::new("/data/node1/data")), "/data/node1/data");
        assert_eq!(socket_dir(Path::new(&format!("/{}", "x".repeat(90)))), "");
    }
}
