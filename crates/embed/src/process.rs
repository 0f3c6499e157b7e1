//! Processes of this machine: which there are, whose child, and signals to them.
//!
//! Owns: reading `/proc`, or `ps` where there is none (macOS). Never: decides whom to signal.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::EmbedError;

/// One process that can still do something; zombies are left out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's number.
    pub parent: u32,
}

/// All processes that run now, without zombies.
pub(crate) fn running() -> Result<Vec<Process>, EmbedError> {
    let failed = |source| EmbedError::ListProcesses { source };
    if !Path::new("/proc/self/stat").exists() {
        return running_by_ps().map_err(failed);
    }
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc").map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        processes.extend(read_stat(pid));
    }
    Ok(processes)
}

/// Whether the process runs; a zombie does not.
pub(crate) fn is_running(pid: u32) -> bool {
    if Path::new("/proc/self/stat").exists() {
        return read_stat(pid).is_some();
    }
    kill(as_pid(pid), None) != Err(Errno::ESRCH)
}

/// The children of `parent`, at this moment.
pub(crate) fn children_of(parent: u32) -> Result<Vec<u32>, EmbedError> {
    let children = running()?.into_iter().filter(|process| process.parent == parent);
    Ok(children.map(|process| process.pid).collect())
}

/// A process's working directory, if it can be determined.
pub(crate) fn working_directory(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// The command line of a process, if it can be determined.
pub(crate) fn command_line(pid: u32) -> Option<String> {
    if let Ok(bytes) = fs::read(format!("/proc/{pid}/cmdline")) {
        return Some(String::from_utf8_lossy(&bytes).replace('\0', " "));
    }
    let output = Command::new("ps").args(["-o", "args=", "-p", &pid.to_string()]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Sends a signal; a process that is gone is not an error. `dir` is for the message only.
pub(crate) fn signal(pid: u32, signal: Signal, dir: &Path) -> Result<(), EmbedError> {
    match kill(as_pid(pid), signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => {
            Err(EmbedError::Signal { pid, dir: dir.to_owned(), source: io::Error::from(errno) })
        }
    }
}

/// Waits until none of `pids` runs. False if one still does after `limit`.
pub(crate) fn wait_until_gone(pids: &[u32], limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while pids.iter().any(|pid| is_running(*pid)) {
        if deadline < Instant::now() {
            return false;
        }
        sleep(Duration::from_millis(5));
    }
    true
}

/// Reads one `/proc/PID/stat`: `pid (name) state parent …`, where the name may hold anything.
fn read_stat(pid: u32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    (state != "Z" && state != "X").then_some(Process { pid, parent })
}

fn running_by_ps() -> io::Result<Vec<Process>> {
    let output = Command::new("ps").args(["-axo", "pid=,ppid=,stat="]).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let parse = |line: &str| {
        let mut fields = line.split_whitespace();
        let pid = fields.next()?.parse().ok()?;
        let parent = fields.next()?.parse().ok()?;
        (!fields.next()?.starts_with('Z')).then_some(Process { pid, parent })
    };
    Ok(text.lines().filter_map(parse).collect())
}

fn as_pid(pid: u32) -> Pid {
    Pid::from_raw(pid.try_into().expect("the system's process numbers fit its own type"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_seen_while_it_runs_and_not_as_a_zombie() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        assert!(children_of(std::process::id()).unwrap().contains(&pid));

        signal(pid, Signal::SIGKILL, Path::new("/")).unwrap();
        // Not waited for yet, so the system still lists it.
        assert!(wait_until_gone(&[pid], Duration::from_secs(10)));
        assert!(!children_of(std::process::id()).unwrap().contains(&pid));
        child.wait().unwrap();
    }
}
