//! Makes a data directory, by initdb or from a template that initdb made.
//!
//! Owns: that a folder named `data` is complete: work is done next to it and renamed at the end.
//! Never: starts a server. Start reading at [`make_data_dir`].

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::account::ServerAccount;
use crate::binaries::Binaries;
use crate::error::EmbedError;
use crate::place::cache_dir;
use crate::settings::{SETTINGS_FILE, ServerOptions};

/// Locales to try, in order. Both order text by code point, so servers made by either agree.
const LOCALES: [&str; 2] = ["C.UTF-8", "C"];

/// Makes `dir/data`. A half-made one that a crash left behind is removed.
pub(crate) fn make_data_dir(
    dir: &Path,
    binaries: &Binaries,
    account: &ServerAccount,
    options: &ServerOptions,
) -> Result<(), EmbedError> {
    account.require_open(dir)?;
    make_private_dir(dir, account)?;
    let unfinished = dir.join("data.unfinished");
    remove_tree(&unfinished)?;
    if options.from_template {
        let template = template(binaries, account, options)?;
        copy_tree(&template, &unfinished, account)?;
    } else {
        run_initdb(&unfinished, binaries, account, options)?;
    }
    let data = dir.join("data");
    fs::rename(&unfinished, &data).map_err(EmbedError::write(&data))
}

/// Runs initdb and leaves an include line for our settings.
fn run_initdb(
    data_dir: &Path,
    binaries: &Binaries,
    account: &ServerAccount,
    options: &ServerOptions,
) -> Result<(), EmbedError> {
    let mut output = String::new();
    for locale in LOCALES {
        let tool = binaries.initdb();
        let mut command = account.command(&tool);
        command.arg("-D").arg(data_dir).args(["-U", "postgres", "-A", "trust", "-E", "UTF8"]);
        command.arg(format!("--locale={locale}"));
        if options.data_checksums {
            command.arg("--data-checksums");
        }
        if options.from_template {
            command.arg("--no-sync");
        }
        let ran = command.output().map_err(|source| EmbedError::RunTool { tool, source })?;
        if ran.status.success() {
            return include_settings(data_dir);
        }
        output = format!(
            "{}{}",
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr)
        );
        if !output.contains("invalid locale") {
            break;
        }
    }
    Err(EmbedError::Initdb { dir: data_dir.to_owned(), output })
}

fn include_settings(data_dir: &Path) -> Result<(), EmbedError> {
    let path = data_dir.join("postgresql.conf");
    let mut text = fs::read_to_string(&path).map_err(EmbedError::read(&path))?;
    text.push_str(&format!("\n# Tutti's own settings.\ninclude '{SETTINGS_FILE}'\n"));
    fs::write(&path, text).map_err(EmbedError::write(&path))
}

/// The template for these binaries, made on first use. Several processes may ask concurrently.
fn template(
    binaries: &Binaries,
    account: &ServerAccount,
    options: &ServerOptions,
) -> Result<PathBuf, EmbedError> {
    let owner = match account {
        ServerAccount::Own => "own",
        ServerAccount::Other { name, .. } => name,
    };
    let checksums = if options.data_checksums { "-checksums" } else { "" };
    let place = binaries.dir().display().to_string().replace('/', "_");
    let dir = cache_dir()
        .join("templates")
        .join(format!("{}-{owner}{checksums}{place}", binaries.version()));
    account.require_open(&dir)?;
    make_private_dir(&dir, account)?;

    let lock_path = dir.join("lock");
    let lock = File::create(&lock_path).map_err(EmbedError::write(&lock_path))?;
    lock.lock().map_err(EmbedError::write(&lock_path))?;
    let data = dir.join("data");
    if !data.exists() {
        let unfinished = dir.join("data.unfinished");
        remove_tree(&unfinished)?;
        run_initdb(&unfinished, binaries, account, options)?;
        fs::rename(&unfinished, &data).map_err(EmbedError::write(&data))?;
    }
    Ok(data)
}

/// Makes `dir` (parents readable as usual) for the servers' account alone.
pub(crate) fn make_private_dir(dir: &Path, account: &ServerAccount) -> Result<(), EmbedError> {
    fs::create_dir_all(dir).map_err(EmbedError::make_directory(dir))?;
    account.give(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(EmbedError::write(dir))
}

/// Removes a folder with all it holds; one that is not there is fine.
pub(crate) fn remove_tree(dir: &Path) -> Result<(), EmbedError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(EmbedError::remove(dir)(error)),
        _ => Ok(()),
    }
}

/// Copies a data directory. It holds only folders and plain files, fresh from initdb.
fn copy_tree(from: &Path, to: &Path, account: &ServerAccount) -> Result<(), EmbedError> {
    make_private_dir(to, account)?;
    for entry in fs::read_dir(from).map_err(EmbedError::read(from))? {
        let entry = entry.map_err(EmbedError::read(from))?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type().map_err(EmbedError::read(&entry.path()))?;
        if kind.is_dir() {
            copy_tree(&entry.path(), &target, account)?;
        } else {
            fs::copy(entry.path(), &target).map_err(EmbedError::write(&target))?;
            account.give(&target)?;
        }
    }
    Ok(())
}
