//! The System V shared memory segments of servers: one of 56 bytes each, by which PostgreSQL notices
//! processes of a predecessor (`src/backend/port/sysv_shmem.c`).
//!
//! Owns: removing what a killed server left of them, because the system has few (4,096 on Linux), keeps
//! them until it is restarted, and no server starts when all are taken.
//! Never: removes one that a process has, or of whose maker a process is left; where the system has no list
//! of them (macOS), removes none. Errors are told in the log only: a segment that stays is found by the
//! next sweep.
//! Start reading at [`remove`].

use std::fs;
use std::process::{Command, Stdio};

use crate::process;

/// What Linux lists them in; macOS has no such file.
const LIST: &str = "/proc/sysvipc/shm";
/// `sizeof(PGShmemHeader)` on machines of 64 bits: all that is in the segment with
/// `shared_memory_type = mmap`, which is the default.
const HEADER_BYTES: u64 = 56;

/// A segment by its two names: the key is its maker's choice, the number the system's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Segment {
    key: i64,
    id: u64,
}

/// A segment as the system lists it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Listed {
    segment: Segment,
    bytes: u64,
    maker_pid: u32,
    attached: u64,
    owner_uid: u32,
}

impl Segment {
    /// From the seventh line of `postmaster.pid`: key and number.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        Some(Self { key: words.next()?.parse().ok()?, id: words.next()?.parse().ok()? })
    }
}

/// Removes the segment of a server whose processes have ended, if it still exists.
pub(crate) fn remove(segment: Segment) {
    // The number alone may be another server's by now.
    let is_it = |listed: &Listed| listed.segment == segment && listed.attached == 0;
    end(list().into_iter().filter(is_it));
}

/// Removes what killed servers of an account left, wherever their directories were.
pub(crate) fn sweep(owner_uid: u32) {
    let is_its = |listed: &Listed| listed.owner_uid == owner_uid && listed.is_left_behind();
    end(list().into_iter().filter(is_its));
}

impl Listed {
    /// One line of the system's list; its columns are named in the first one.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let word = |index: usize| words.get(index).copied();
        Some(Self {
            segment: Segment { key: word(0)?.parse().ok()?, id: word(1)?.parse().ok()? },
            bytes: word(3)?.parse().ok()?,
            maker_pid: word(4)?.parse().ok()?,
            attached: word(6)?.parse().ok()?,
            owner_uid: word(7)?.parse().ok()?,
        })
    }

    /// A starting server has not attached itself yet, but its postmaster, which makes it, runs.
    fn is_left_behind(&self) -> bool {
        self.bytes == HEADER_BYTES && self.attached == 0 && !process::is_running(self.maker_pid)
    }
}

fn list() -> Vec<Listed> {
    let text = fs::read_to_string(LIST).unwrap_or_default();
    text.lines().skip(1).filter_map(Listed::parse).collect()
}

fn end(listed: impl Iterator<Item = Listed>) {
    let segments: Vec<Segment> = listed.map(|listed| listed.segment).collect();
    // Bounded, because a command line is.
    segments.chunks(500).for_each(ipcrm);
}

/// The system call would need unsafe code, and the tool is part of every system.
fn ipcrm(segments: &[Segment]) {
    let mut command = Command::new("ipcrm");
    for segment in segments {
        command.args(["-m", &segment.id.to_string()]);
    }
    // It complains of one that another process removed at the same time; that is as well.
    match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) => tracing::debug!(count = segments.len(), %status, "removed shared memory"),
        Err(error) => tracing::warn!(%error, "shared memory of killed servers was not removed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_list_is_read() {
        let line = "  12505041    131      600                    56   2251   2260      3   \
                    106   112   106   112 1795466958 0 1795466958 4096 0";
        let segment = Segment { key: 12_505_041, id: 131 };
        assert_eq!(
            Listed::parse(line),
            Some(Listed { segment, bytes: 56, maker_pid: 2251, attached: 3, owner_uid: 106 })
        );
        assert_eq!(Segment::parse(" 12505041       131"), Some(segment));
        assert_eq!(Listed::parse("key shmid perms"), None);
        assert_eq!(Segment::parse(""), None);
    }

    #[test]
    fn only_what_nobody_has_is_left_behind() {
        let segment = Segment { key: 1, id: 1 };
        // Far above what Linux gives to processes.
        let left = Listed { segment, bytes: 56, maker_pid: 1 << 30, attached: 0, owner_uid: 0 };
        assert!(left.is_left_behind());
        assert!(!Listed { attached: 1, ..left }.is_left_behind());
        assert!(!Listed { maker_pid: std::process::id(), ..left }.is_left_behind());
        assert!(!Listed { bytes: 4096, ..left }.is_left_behind());
    }
}
