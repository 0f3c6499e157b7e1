//! Where things are kept: what outlives a cluster (fetched binaries, initdb templates) and what does not.
//!
//! Owns: the cache directory's place, and whether there is one in memory. Never: holds anything that cannot
//! be made again.

use std::path::{Path, PathBuf};
use std::{env, fs};

use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;

/// The directory for what can be fetched or made again.
///
/// `TUTTI_CACHE`, or as root `/var/cache/tutti` (the servers' account must be able to run
/// binaries from it, and root's home is closed to it), or else `$XDG_CACHE_HOME/tutti`,
/// `~/.cache/tutti`.
pub fn cache_dir() -> PathBuf {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(dir) = named("TUTTI_CACHE") {
        return dir;
    }
    if geteuid().is_root() {
        return PathBuf::from("/var/cache/tutti");
    }
    if let Some(dir) = named("XDG_CACHE_HOME") {
        return dir.join("tutti");
    }
    match named("HOME") {
        Some(home) => home.join(".cache/tutti"),
        None => env::temp_dir().join(format!("tutti-cache-{}", geteuid())),
    }
}

/// What a few clusters together may grow to.
const ROOM_MIN_BYTES: u64 = 3 << 30;

/// A directory in memory with room for temporary clusters, if there is one.
pub(crate) fn memory_dir() -> Option<PathBuf> {
    let dir = Path::new("/dev/shm");
    let room = statvfs(dir).ok()?;
    let room = blocks_bytes(room.blocks_available(), room.fragment_size())?;
    // What is in it must fit into the machine's memory as well.
    (ROOM_MIN_BYTES <= room.min(available_memory_bytes()?)).then(|| dir.to_owned())
}

/// Their types differ from system to system.
fn blocks_bytes(blocks: impl TryInto<u64>, block_bytes: impl TryInto<u64>) -> Option<u64> {
    blocks.try_into().ok()?.checked_mul(block_bytes.try_into().ok()?)
}

fn available_memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(kib.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
