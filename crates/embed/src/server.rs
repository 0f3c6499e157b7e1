//! One PostgreSQL server: made, started, stopped, killed.
//!
//! Owns: its directory (`data/`, `server.log`) and, while it runs, its postmaster as our child.
//! Never: outlives its [`Server`] value, except when our process is killed; then the next start in
//! the same directory stops what is left before it begins.
//! Start reading at [`Server::start`].

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::account::ServerAccount;
use crate::binaries::Binaries;
use crate::error::EmbedError;
use crate::segment::{self, Segment};
use crate::settings::{self, SETTINGS_FILE, ServerOptions};
use crate::{initdb, port, probe, process};

/// A start may include the recovery of much WAL after a crash.
const START_LIMIT: Duration = Duration::from_secs(180);
/// How long a port or shared memory of a predecessor may take to become free.
const PREDECESSOR_LIMIT: Duration = Duration::from_secs(10);
/// A fast stop writes a checkpoint.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// An immediate stop writes nothing.
const QUIT_LIMIT: Duration = Duration::from_secs(10);
/// What SIGKILL needs, even on a loaded machine.
const KILL_LIMIT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// One PostgreSQL server on 127.0.0.1, role and database `postgres`, no password.
///
/// Dropping it stops the server (fast); call [`Self::stop`] to get errors.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
    binaries: Binaries,
    account: ServerAccount,
    options: ServerOptions,
    port: u16,
    postmaster: Option<Child>,
}

/// How one attempt to start ended.
enum Attempt {
    Ready,
    /// Another process has the port.
    PortTaken,
    /// A predecessor's processes have not all ended.
    PredecessorLingers,
}

impl Server {
    /// Makes a server in `dir`, not yet started; `dir` and what is above it are made as needed.
    ///
    /// If `dir` already holds a complete server, this is [`Self::open`]; a half-made one is made
    /// anew.
    pub fn create(
        dir: &Path,
        binaries: &Binaries,
        account: &ServerAccount,
        options: ServerOptions,
    ) -> Result<Self, EmbedError> {
        if !Self::exists(dir) {
            initdb::make_data_dir(dir, binaries, account, &options)?;
        }
        Self::open(dir, binaries, account, options, None)
    }

    /// Whether `dir` holds a server that was made completely.
    pub fn exists(dir: &Path) -> bool {
        dir.join("data/PG_VERSION").exists()
    }

    /// A server that exists in `dir`, not yet started. `port`: the one it should have, if any.
    pub fn open(
        dir: &Path,
        binaries: &Binaries,
        account: &ServerAccount,
        options: ServerOptions,
        port: Option<u16>,
    ) -> Result<Self, EmbedError> {
        let port = match port {
            Some(port) => port,
            None => port::choose_free()?,
        };
        account.require_open(&dir.join("data"))?;
        Ok(Self {
            // Absolute, because the server works in another directory.
            dir: std::path::absolute(dir).map_err(EmbedError::read(dir))?,
            binaries: binaries.clone(),
            account: account.clone(),
            options,
            port,
            postmaster: None,
        })
    }

    /// Starts the server and waits until it takes sessions. Does nothing if it runs.
    ///
    /// Whatever still runs on the same data is stopped first. If its port is taken, it gets another
    /// one: see [`Self::port`]. After a crash this takes as long as PostgreSQL's recovery takes.
    ///
    /// Errors: `ServerExited` and `ServerSilent` carry the end of the server's log.
    pub fn start(&mut self) -> Result<(), EmbedError> {
        if self.is_running() {
            return Ok(());
        }
        self.stop_predecessor()?;
        let patience = Instant::now() + PREDECESSOR_LIMIT;
        loop {
            let out_of_patience = patience < Instant::now();
            match self.try_start()? {
                Attempt::Ready => return Ok(()),
                Attempt::PredecessorLingers if out_of_patience => return Err(self.exited()),
                Attempt::PortTaken if !port::is_free(self.port) => {
                    let taken = self.port;
                    self.port = port::choose_free()?;
                    tracing::warn!(taken, port = self.port, "port taken, using another one");
                }
                Attempt::PortTaken | Attempt::PredecessorLingers => sleep(POLL_INTERVAL * 10),
            }
        }
    }

    /// Stops the server as `pg_ctl stop -m fast` does: sessions end, a checkpoint is written.
    ///
    /// One that does not end in a minute is stopped harder. Does nothing if it does not run.
    pub fn stop(&mut self) -> Result<(), EmbedError> {
        self.end(&[(Signal::SIGINT, STOP_LIMIT), (Signal::SIGQUIT, QUIT_LIMIT)])
    }

    /// Stops the server as `pg_ctl stop -m immediate` does: immediately, and the next start recovers.
    pub fn stop_immediately(&mut self) -> Result<(), EmbedError> {
        self.end(&[(Signal::SIGQUIT, QUIT_LIMIT)])
    }

    /// SIGKILL to the postmaster and all its children, as near to a power cut of the server as
    /// processes can come: nothing is flushed, prepared transactions and durable commits remain.
    ///
    /// What the operating system had already taken is kept, unlike in a power cut of the machine.
    pub fn kill9(&mut self) -> Result<(), EmbedError> {
        let Some(mut postmaster) = self.postmaster.take() else { return Ok(()) };
        let pid = postmaster.id();
        if postmaster.try_wait().is_ok_and(|status| status.is_some()) {
            return Ok(());
        }
        let killed = kill_tree(pid, &self.dir);
        // Our child: must be waited for, or it stays as a zombie.
        let _ = postmaster.wait();
        killed
    }

    /// Stops the server immediately, and removes what of it the system would keep: its directory is removed
    /// too.
    pub(crate) fn discard(&mut self) -> Result<(), EmbedError> {
        let stopped = self.stop_immediately();
        // One that was killed, now or earlier, has left it.
        remove_segment(&self.data_dir());
        stopped
    }

    /// Stops (fast) and starts again, on the same port unless that was taken meanwhile.
    pub fn restart(&mut self) -> Result<(), EmbedError> {
        self.stop()?;
        self.start()
    }

    /// Whether the postmaster runs now.
    pub fn is_running(&mut self) -> bool {
        match &mut self.postmaster {
            Some(postmaster) => postmaster.try_wait().is_ok_and(|status| status.is_none()),
            None => false,
        }
    }

    /// Its port on 127.0.0.1. [`Self::start`] may change it.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL for role and database `postgres`.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Its directory; `data/` in it is PostgreSQL's.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file that has what the server logs.
    pub fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// The directory of its Unix socket, if the path is short enough for one.
    pub fn socket_dir(&self) -> Option<PathBuf> {
        let dir = settings::socket_dir(&self.data_dir());
        (!dir.is_empty()).then(|| PathBuf::from(dir))
    }

    /// The postmaster's process number while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.postmaster.as_ref().map(Child::id)
    }

    fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Starts a postmaster once and sees how that ends.
    fn try_start(&mut self) -> Result<Attempt, EmbedError> {
        self.write_settings()?;
        let log_start = fs::metadata(self.log_path()).map_or(0, |metadata| metadata.len());
        self.postmaster = Some(self.spawn()?);
        let deadline = Instant::now() + START_LIMIT;
        while self.is_running() {
            if self.says_ready() && probe::takes_sessions(self.port) {
                return Ok(Attempt::Ready);
            }
            if deadline < Instant::now() {
                self.kill9()?;
                return Err(EmbedError::ServerSilent {
                    dir: self.dir.clone(),
                    waited_s: START_LIMIT.as_secs(),
                    log_tail: self.log_tail(),
                });
            }
            sleep(POLL_INTERVAL);
        }
        self.postmaster = None;

        // The exit status says nothing, so the log must. English, because we set the locale.
        let log = read_from(&self.log_path(), log_start);
        if log.contains("Address already in use") {
            Ok(Attempt::PortTaken)
        } else if log.contains("pre-existing shared memory block") || log.contains("postmaster.pid")
        {
            Ok(Attempt::PredecessorLingers)
        } else {
            Err(self.exited())
        }
    }

    fn spawn(&self) -> Result<Child, EmbedError> {
        let log_path = self.log_path();
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log_path)
            .map_err(EmbedError::write(&log_path))?;
        let tool = self.binaries.postgres();
        self.account
            .command(&tool)
            .arg("-D")
            .arg(self.data_dir())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // A group of its own: the terminal's Ctrl-C goes to us alone, and we stop the gateway
            // before the servers.
            .process_group(0)
            .spawn()
            .map_err(|source| EmbedError::RunTool { tool, source })
    }

    fn write_settings(&self) -> Result<(), EmbedError> {
        let path = self.data_dir().join(SETTINGS_FILE);
        let text = self.options.render(self.port, &self.data_dir());
        fs::write(&path, text).map_err(EmbedError::write(&path))?;
        self.account.give(&path)
    }

    /// Whether the pid file names our child and says that it is ready, as pg_ctl looks at it.
    ///
    /// Without this, an answer on the port could be another server's, which had it first.
    fn says_ready(&self) -> bool {
        let pid_file = PidFile::read(&self.data_dir());
        pid_file.is_some_and(|file| Some(file.pid) == self.pid() && file.ready)
    }

    /// Stops a server that still runs on our data: what a killed process of ours left behind.
    fn stop_predecessor(&self) -> Result<(), EmbedError> {
        let data_dir = self.data_dir();
        let Some(PidFile { pid, .. }) = PidFile::read(&data_dir) else { return Ok(()) };
        if !process::is_running(pid) {
            return Ok(());
        }
        if !is_postmaster_of(pid, &data_dir) {
            // The number has been given to another process since. PostgreSQL would take that one
            // for the old server and refuse to start.
            let path = data_dir.join("postmaster.pid");
            return fs::remove_file(&path).map_err(EmbedError::remove(&path));
        }
        tracing::info!(pid, dir = %self.dir.display(), "stopping a server that was left behind");
        for (signal, limit) in [(Signal::SIGINT, QUIT_LIMIT), (Signal::SIGQUIT, QUIT_LIMIT)] {
            process::signal(pid, signal, &self.dir)?;
            if process::wait_until_gone(&[pid], limit) {
                return Ok(());
            }
        }
        kill_tree(pid, &self.dir)
    }

    /// Sends the signals one after the other until the postmaster has ended; at last SIGKILL.
    fn end(&mut self, signals: &[(Signal, Duration)]) -> Result<(), EmbedError> {
        for (signal, limit) in signals {
            let deadline = Instant::now() + *limit;
            let Some(pid) = self.pid() else { return Ok(()) };
            if self.is_running() {
                process::signal(pid, *signal, &self.dir)?;
            }
            while self.is_running() && Instant::now() < deadline {
                sleep(POLL_INTERVAL);
            }
            if !self.is_running() {
                self.postmaster = None;
                return Ok(());
            }
        }
        self.kill9()
    }

    fn exited(&self) -> EmbedError {
        EmbedError::ServerExited { dir: self.dir.clone(), log_tail: self.log_tail() }
    }

    fn log_tail(&self) -> String {
        let log = read_from(&self.log_path(), 0);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::error!(dir = %self.dir.display(), %error, "a server could not be stopped");
        }
    }
}

/// Kills the server of a killed process in `dir`, if one still runs there; no one needs its data.
pub(crate) fn kill_left_behind(dir: &Path) -> Result<(), EmbedError> {
    let data_dir = dir.join("data");
    match PidFile::read(&data_dir) {
        Some(PidFile { pid, .. }) if is_postmaster_of(pid, &data_dir) => kill_tree(pid, dir)?,
        _ => (),
    }
    remove_segment(&data_dir);
    Ok(())
}

/// Removes the shared memory of a server that was killed and is not to be started again: else its next start
/// finds by it what else there is to remove. One that ended by itself leaves none.
fn remove_segment(data_dir: &Path) {
    if let Some(segment) = PidFile::read(data_dir).and_then(|file| file.segment) {
        segment::remove(segment);
    }
}

/// What PostgreSQL's `postmaster.pid` says (its lines: `src/include/utils/pidfile.h`).
struct PidFile {
    pid: u32,
    segment: Option<Segment>,
    ready: bool,
}

impl PidFile {
    fn read(data_dir: &Path) -> Option<Self> {
        let text = fs::read_to_string(data_dir.join("postmaster.pid")).ok()?;
        let mut lines = text.lines();
        // Below 2 a signal would reach other things than one server; it is no postmaster's.
        let pid = lines.next()?.trim().parse::<i32>().ok().filter(|pid| *pid > 1)?;
        let segment = lines.nth(5).and_then(Segment::parse);
        let ready = lines.next().is_some_and(|status| status.trim() == "ready");
        Some(Self { pid: pid.unsigned_abs(), segment, ready })
    }
}

/// Whether the process is a postmaster on exactly this data directory.
fn is_postmaster_of(pid: u32, data_dir: &Path) -> bool {
    let Some(command_line) = process::command_line(pid) else { return false };
    if !command_line.contains("postgres") && !command_line.contains("postmaster") {
        return false;
    }
    match (process::working_directory(pid), fs::canonicalize(data_dir)) {
        (Some(works_in), Ok(data_dir)) => works_in == data_dir,
        _ => command_line.contains(&data_dir.display().to_string()),
    }
}

/// SIGKILL to a postmaster and its children, and waits until the children have ended.
fn kill_tree(pid: u32, dir: &Path) -> Result<(), EmbedError> {
    // A stopped postmaster starts no further child and does not clean up after the first dead one.
    process::signal(pid, Signal::SIGSTOP, dir)?;
    let children = process::children_of(pid)?;
    for child in children.iter().chain([&pid]) {
        process::signal(*child, Signal::SIGKILL, dir)?;
    }
    match children.iter().chain([&pid]).find(|pid| !process::wait_until_gone(&[**pid], KILL_LIMIT))
    {
        Some(pid) => Err(EmbedError::ProcessSurvives { pid: *pid, dir: dir.to_owned() }),
        None => Ok(()),
    }
}

/// The text of a log file from a position on; empty if it cannot be read.
fn read_from(path: &Path, start: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}
