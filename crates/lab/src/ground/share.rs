//! The same small share of the processor for every server, so that more servers on one machine are more power.
//!
//! Owns: control groups of the system, made for a study and removed after it, or, where the study was killed, by the
//! next command that makes servers. Never: chooses the share.
//! Start reading at [`Shares::give`].

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;

use super::begun::children;

/// Where systems with one hierarchy for the processor have it (cgroup v1), and those with one for all (v2).
const V1: &str = "/sys/fs/cgroup/cpu";
const V2: &str = "/sys/fs/cgroup";
/// Microseconds. Short, so that a server which has used its share waits for milliseconds and not for most of a
/// tenth of a second.
const PERIOD_US: u64 = 10_000;
/// The system's least.
const QUOTA_US_MIN: u64 = 1_000;

/// Before the processes that a group is of: the one that made it, and the server.
const PREFIX: &str = "tutti-lab-";
/// Processes of a server that was killed just now may be ending only now.
const TRIES: u32 = 10;
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// Control groups; they are removed with this.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    groups: Vec<PathBuf>,
}

impl Shares {
    /// Gives each of these processes, and what they start from now on, so many hundredths of a processor of its
    /// own.
    ///
    /// Errors: this system or this user may not; then nothing is limited.
    pub(crate) fn give(pids: &[u32], percent: f64) -> anyhow::Result<Self> {
        let mut shares = Self::default();
        for pid in pids {
            shares.add(*pid, percent)?;
        }
        Ok(shares)
    }

    fn add(&mut self, pid: u32, percent: f64) -> anyhow::Result<()> {
        let is_v1 =
            Path::new(V1).join("cpu.cfs_quota_us").exists() || Path::new(V1).join("tasks").exists();
        let root = Path::new(if is_v1 { V1 } else { V2 });
        let group = root.join(format!("{PREFIX}{}-{pid}", std::process::id()));
        fs::create_dir(&group).with_context(|| format!("cannot make {}", group.display()))?;
        self.groups.push(group.clone());
        let quota_us = ((PERIOD_US as f64 * percent / 100.0).round() as u64).max(QUOTA_US_MIN);
        let period_us = (quota_us as f64 * 100.0 / percent).round() as u64;
        let settings = match is_v1 {
            true => vec![
                ("cpu.cfs_period_us", period_us.to_string()),
                ("cpu.cfs_quota_us", quota_us.to_string()),
            ],
            false => vec![("cpu.max", format!("{quota_us} {period_us}"))],
        };
        for (file, value) in settings {
            let path = group.join(file);
            let written = fs::write(&path, &value);
            written.with_context(|| format!("cannot write {value} to {}", path.display()))?;
        }
        let members = group.join("cgroup.procs");
        let joined = fs::write(&members, pid.to_string());
        joined.with_context(|| format!("cannot write {pid} to {}", members.display()))?;
        // Its other processes are its children, and not of its process group; what it starts from now on is in it.
        for child in children(pid) {
            // It may have ended since it was listed.
            let _ = fs::write(&members, child.to_string());
        }
        Ok(())
    }
}

/// Removes the groups of commands that were killed.
///
/// Only those without processes: a server that still runs in one is removed by what starts servers, with its
/// directory, and the next time its group goes. Blocks for a moment where there is such a group.
pub(super) fn sweep() {
    for root in [V1, V2] {
        sweep_in(Path::new(root));
    }
}

fn sweep_in(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else { return };
    let left_behind = entries.flatten().filter(|entry| {
        let maker = maker(&entry.file_name().to_string_lossy());
        maker.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    });
    for entry in left_behind {
        for _ in 0..TRIES {
            // Of a group, without any of the files in it; not while a process is in it.
            if fs::remove_dir(entry.path()).is_ok() {
                tracing::info!(group = %entry.path().display(), "removed what a killed study left");
                break;
            }
            std::thread::sleep(TRY_AGAIN);
        }
    }
}

/// The process that made a group of ours.
fn maker(group: &str) -> Option<u32> {
    let (maker, server) = group.strip_prefix(PREFIX)?.split_once('-')?;
    server.parse::<u32>().ok()?;
    maker.parse().ok()
}

impl Drop for Shares {
    fn drop(&mut self) {
        for group in &self.groups {
            // Its processes may be ending only now; without processes it goes.
            for _ in 0..50 {
                let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
                for pid in members.lines() {
                    let _ = fs::write(group.join("../cgroup.procs"), pid);
                }
                if fs::remove_dir(group).is_ok() {
                    break;
                }
                std::thread::sleep(TRY_AGAIN);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_groups_of_processes_that_are_gone_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let (gone, living) = (ended.id(), std::process::id());
        let of = |name: String| root.path().join(name);
        let left = [of(format!("{PREFIX}{gone}-1")), of(format!("{PREFIX}{gone}-2"))];
        let others = [
            of(format!("{PREFIX}{living}-1")),
            of(format!("others-{gone}-1")),
            of(format!("{PREFIX}{gone}")),
        ];
        for dir in left.iter().chain(&others) {
            fs::create_dir(dir).unwrap();
        }
        sweep_in(root.path());
        assert!(!left.iter().any(|dir| dir.exists()));
        assert!(others.iter().all(|dir| dir.exists()));
    }
}
