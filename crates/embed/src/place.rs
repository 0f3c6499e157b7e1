//! Where things that outlive a cluster are kept: fetched binaries, initdb templates.
//!
//! Owns: the cache directory's place. Never: holds anything that cannot be made again.

use std::env;
use std::path::PathBuf;

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
