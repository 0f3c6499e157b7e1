//! The same small share of the processor for every server, so that more servers on one machine are more power.
//!
//! Owns: control groups of the system, made for a study and removed after it. Never: chooses the share.
//! Start reading at [`Shares::give`].

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Where systems with one hierarchy for the processor have it (cgroup v1), and those with one for all (v2).
const V1: &str = "/sys/fs/cgroup/cpu";
const V2: &str = "/sys/fs/cgroup";
/// Microseconds. Short, so that a server which has used its share waits for milliseconds and not for most of a
/// tenth of a second.
const PERIOD_US: u64 = 10_000;
/// The system's least.
const QUOTA_US_MIN: u64 = 1_000;

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
        let group = root.join(format!("tutti-lab-{}-{pid}", std::process::id()));
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

/// The processes that a process has started and that run.
fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
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
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}
