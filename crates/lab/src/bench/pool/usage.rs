//! What the system knows of a process: processor time and memory.
//!
//! Owns: reading `/proc`. Never: starts or ends the process.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::unistd::{SysconfVar, sysconf};

/// The processor time that a process has used so far, its own and the system's for it, in ticks of
/// the clock: a hundredth of a second nearly everywhere.
pub(super) fn cpu_time(pid: u32) -> anyhow::Result<Duration> {
    let ticks = cpu_ticks(&read(pid, "stat")?).context("cannot understand /proc/PID/stat")?;
    let per_second = sysconf(SysconfVar::CLK_TCK)?.and_then(|ticks| u64::try_from(ticks).ok());
    let per_second = per_second.context("the system does not say how long a tick is")?;
    ensure!(per_second != 0, "the system says that a tick takes forever");
    Ok(Duration::from_micros(ticks * 1_000_000 / per_second))
}

/// The memory that a process has resident, in bytes.
///
/// Added up from its mappings, because the counters that are quicker to read (`VmRSS`) lag behind
/// by some pages for each thread.
pub(super) fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let kib = resident_kib(&read(pid, "smaps_rollup")?);
    Ok(kib.context("cannot understand /proc/PID/smaps_rollup")? * 1024)
}

fn read(pid: u32, file: &str) -> anyhow::Result<String> {
    let path = PathBuf::from(format!("/proc/{pid}/{file}"));
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// The sum of `utime` and `stime` of `/proc/PID/stat`: its fields 14 and 15 (see proc(5)).
fn cpu_ticks(stat: &str) -> Option<u64> {
    // The second field is the program's name in brackets, and may hold brackets and spaces itself.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(14 - 3);
    let (utime, stime): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(utime + stime)
}

/// The line `Rss:` of `/proc/PID/smaps_rollup`.
fn resident_kib(smaps: &str) -> Option<u64> {
    let rest = smaps.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    rest.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let fields = "S 1 2 2 0 -1 4194560 999 0 3 0 1234 66 7 8 20 0 9 0 5150 1 2";
        assert_eq!(cpu_ticks(&format!("4711 (tutti) {fields}")), Some(1_300));
        assert_eq!(cpu_ticks(&format!("4711 (a) R 1 (b c) {fields}")), Some(1_300));
        assert_eq!(cpu_ticks("4711 (tutti) S 1 2"), None);
        assert_eq!(cpu_ticks(""), None);
    }

    #[test]
    fn resident_memory_is_found_among_the_other_lines() {
        let smaps = "55d0-7ffd ---p 00000000 00:00 0   [rollup]\nRss:   8020 kB\nPss:  4100 kB\n";
        assert_eq!(resident_kib(smaps), Some(8_020));
        assert_eq!(resident_kib("Pss: 4100 kB\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_and_uses_time() {
        let me = std::process::id();
        assert!(0 < resident_bytes(me).unwrap());
        let before = cpu_time(me).unwrap();
        // Ends only if time is seen to pass.
        while cpu_time(me).unwrap() == before {}
    }
}
