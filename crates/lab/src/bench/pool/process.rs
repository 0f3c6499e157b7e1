//! A process that is measured: PgBouncer, or a gateway.
//!
//! Owns: its life and its log. Never: leaves it running when its value is dropped.

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::usage;

/// What it may need to end once it is asked to.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// How much of its log an error shows.
const LOG_LINES_SHOWN: usize = 5;

/// A child of ours; killed if its value is dropped.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program; what it says on standard error goes to the file `log`. Its
    /// standard output is the caller's to set.
    pub(super) fn start(name: &str, command: &mut Command, log: PathBuf) -> anyhow::Result<Self> {
        let errors =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stderr(errors)
            // Ctrl-C is for us; we end it in our own order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// The first line that it prints, if its standard output is piped; nothing if it ended before.
    pub(super) async fn first_line(&mut self) -> anyhow::Result<Option<String>> {
        let stdout = self.child.stdout.take().context("the output is not ours to read")?;
        let mut lines = BufReader::new(stdout).lines();
        let first = lines.next_line().await?;
        // What it prints later must go somewhere, or it would fail.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(first)
    }

    /// The processor time that it has used so far.
    pub(super) fn cpu_time(&self) -> anyhow::Result<Duration> {
        usage::cpu_time(self.pid()?)
    }

    /// The memory that it has resident.
    pub(super) fn resident_bytes(&self) -> anyhow::Result<u64> {
        usage::resident_bytes(self.pid()?)
    }

    fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().with_context(|| format!("{} has ended{}", self.name, self.last_words()))
    }

    /// Asks it to end and waits until it has.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        if let Ok(Some(status)) = self.child.try_wait() {
            bail!("{} ended by itself, with {status}{}", self.name, self.last_words());
        }
        kill(Pid::from_raw(self.pid()?.try_into()?), Signal::SIGTERM)?;
        let ended = timeout(STOP_LIMIT, self.child.wait()).await;
        ended.with_context(|| format!("{} does not end{}", self.name, self.last_words()))??;
        Ok(())
    }

    /// The end of its log, for errors.
    pub(super) fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
        if shown.is_empty() { String::new() } else { format!("; it said: {}", shown.join(" | ")) }
    }
}
