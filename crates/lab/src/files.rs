//! Files that are there as a whole or not at all: pages, and the data behind their plots.
//!
//! Owns: that what was there stays until all of the new is on the disk. Never: knows what is in them.
//! Start reading at [`write_all`].

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;

/// Before what the user's mask takes away, as of any other new file.
const MODE: u32 = 0o666;

/// Writes files of a directory, by name: each beside its place first, and all into their places at the end.
///
/// Errors: one cannot be written; then all of those that were there are as before.
pub(crate) fn write_all<'a>(
    dir: &Path,
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> anyhow::Result<()> {
    let mut written = Vec::new();
    for (name, contents) in files {
        let path = dir.join(name);
        let write = || {
            let mut file = tempfile::Builder::new()
                .prefix(&format!(".{name}."))
                .permissions(Permissions::from_mode(MODE))
                .tempfile_in(dir)?;
            file.write_all(contents.as_bytes())?;
            // Some systems say only then that the disk is full.
            file.as_file().sync_all()?;
            std::io::Result::Ok(file)
        };
        let file = write().with_context(|| format!("cannot write {}", path.display()))?;
        written.push((file, path));
    }
    for (file, path) in written {
        file.persist(&path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_replaced_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path(), [("index.html", "old"), ("a.csv", "old")]).unwrap();
        write_all(dir.path(), [("index.html", "new")]).unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join("index.html")).unwrap(), "new");
        assert_eq!(std::fs::read_to_string(dir.path().join("a.csv")).unwrap(), "old");
        assert_eq!(names(dir.path()), ["a.csv", "index.html"]);
        // As readable as what any other program writes.
        let plain = dir.path().join("plain");
        std::fs::write(&plain, "").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&dir.path().join("index.html")), mode(&plain));
    }

    #[test]
    fn what_was_there_stays_where_one_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path(), [("index.html", "old")]).unwrap();
        // There is no such directory: as little can be written there as on a full disk.
        let failed = write_all(dir.path(), [("index.html", "new"), ("no/such.csv", "new")]);
        let said = format!("{:#}", failed.unwrap_err());
        assert!(said.contains("cannot write") && said.contains("no/such.csv"), "{said}");
        assert_eq!(std::fs::read_to_string(dir.path().join("index.html")).unwrap(), "old");
        assert_eq!(names(dir.path()), ["index.html"]);
    }
}
