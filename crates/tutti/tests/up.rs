//! The program itself: started, asked, ended, killed. Needs PostgreSQL 15 or newer installed.
//!
//! What the gateway answers is tested elsewhere; here only that it is there, and that nothing
//! stays when it goes.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio_postgres::NoTls;
use tutti_embed::Cluster;

const NO_PORTS: Vec<u16> = Vec::new();

/// A `tutti up` that runs; killed if a test fails.
struct Up {
    process: Child,
    stdout: BufReader<ChildStdout>,
    url: String,
}

impl Up {
    /// Starts it on a free port and waits for its `ready`.
    fn start(dir: &Path, arguments: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_tutti"))
            .args(["up", "--nodes", "2", "--listen", "127.0.0.1:0", "--data"])
            .arg(dir)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        let psql = read_line(&mut stdout);
        let url = psql.strip_prefix("psql ").expect("the psql line comes first").to_owned();
        assert_eq!(read_line(&mut stdout), "ready");
        Self { process, stdout, url }
    }

    /// Sends a signal and waits for the end.
    fn end_with(&mut self, signal: Signal) -> Option<i32> {
        let pid = i32::try_from(self.process.id()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
        self.process.wait().unwrap().code()
    }

    fn run(&self, sql: &str) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
            tokio::spawn(connection);
            let messages = client.simple_query(sql).await.unwrap();
            let rows = messages.iter().filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            });
            rows.collect::<Vec<_>>().join(",")
        })
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Gently, so that it stops its servers; already ended is fine.
        if self.process.try_wait().is_ok_and(|status| status.is_none()) {
            self.end_with(Signal::SIGTERM);
        }
    }
}

fn read_line(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

/// A directory that the servers' account can enter.
fn place() -> tempfile::TempDir {
    let open = std::fs::Permissions::from_mode(0o755);
    tempfile::Builder::new().permissions(open).tempdir().unwrap()
}

/// The ports of this cluster's servers on which something listens.
fn listening(dir: &Path) -> Vec<u16> {
    let (_, ports) = Cluster::peek(dir).unwrap().unwrap();
    ports.into_iter().filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_err()).collect()
}

#[test]
fn it_carries_on_with_its_data_and_leaves_no_server_behind() {
    let place = place();
    let dir = place.path().join("data");

    let mut up = Up::start(&dir, &[]);
    up.run("CREATE TABLE kept (n int PRIMARY KEY); INSERT INTO kept VALUES (7)");
    assert_eq!(listening(&dir).len(), 2);
    assert_eq!(up.end_with(Signal::SIGTERM), Some(0));
    assert_eq!(listening(&dir), NO_PORTS);

    let mut up = Up::start(&dir, &[]);
    assert_eq!(up.run("SELECT n FROM kept"), "7");
    // Killed, it can stop nothing; the next one does.
    assert_eq!(up.end_with(Signal::SIGKILL), None);
    assert_eq!(listening(&dir).len(), 2);

    let mut up = Up::start(&dir, &[]);
    assert_eq!(up.run("SELECT n FROM kept"), "7");
    assert_eq!(up.end_with(Signal::SIGINT), Some(0));
    assert_eq!(listening(&dir), NO_PORTS);
}

#[test]
fn a_second_one_on_the_same_directory_is_refused() {
    let place = place();
    let dir = place.path().join("data");
    let _first = Up::start(&dir, &[]);
    let second = Command::new(env!("CARGO_BIN_EXE_tutti"))
        .args(["up", "--listen", "127.0.0.1:0", "--data"])
        .arg(&dir)
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let message = String::from_utf8_lossy(&second.stderr);
    assert!(message.contains("is in use by another tutti"), "{message}");
}

#[test]
fn who_asks_no_password_stays_on_this_machine() {
    let place = place();
    let dir = place.path().join("data");
    let up = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tutti"));
        command
            .args(["up", "--listen", "0.0.0.0:0", "--nodes", "1", "--data"])
            .arg(&dir)
            .args(more);
        command
    };
    let refused = up(&[]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let message = String::from_utf8_lossy(&refused.stderr);
    assert!(message.contains("--allow-trust-off-loopback"), "{message}");
    assert!(!dir.exists());

    let meant = ["--allow-trust-off-loopback", "--demo", "--demo-seconds", "1", "--demo-exit"];
    assert_eq!(up(&meant).output().unwrap().status.code(), Some(0));
}

#[test]
fn a_server_that_ends_by_itself_is_started_again() {
    let place = place();
    let dir = place.path().join("data");
    let up = Up::start(&dir, &[]);
    let postmaster = || -> Option<i32> {
        let pid_file = dir.join("node2/data/postmaster.pid");
        std::fs::read_to_string(pid_file).ok()?.lines().next()?.parse().ok()
    };
    let killed = postmaster().unwrap();
    kill(Pid::from_raw(killed), Signal::SIGKILL).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while postmaster().is_none_or(|pid| pid == killed) || listening(&dir).len() < 2 {
        assert!(Instant::now() < deadline, "node 2 was not started again");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(up.run("SELECT 1"), "1");
}

#[test]
fn the_demo_works_twice_on_one_directory() {
    let place = place();
    let dir = place.path().join("data");
    for _ in 0..2 {
        let arguments = ["--demo", "--demo-seconds", "2", "--clients", "4", "--demo-exit"];
        let mut up = Up::start(&dir, &arguments);
        let mut shown = String::new();
        up.stdout.read_to_string(&mut shown).unwrap();
        assert_eq!(up.process.wait().unwrap().code(), Some(0), "{shown}");
        assert!(shown.contains("at rest the accounts hold 600000"), "{shown}");
        assert!(shown.contains("\n0 wrong readings of "), "{shown}");
        for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
            let rows = shown.lines().filter(|line| line.starts_with(&format!(" {level}")));
            let wrong: Vec<_> = rows.filter_map(|row| row.split('|').nth(2)).collect();
            assert_eq!(wrong.iter().map(|field| field.trim()).collect::<Vec<_>>(), ["0", "0"]);
        }
        assert_eq!(listening(&dir), NO_PORTS);
    }
}
