//! Several servers in one directory: `node1`, `node2`, … with a state file and a lock.
//!
//! Owns: that one process at a time works on the directory, and that a directory whose making was
//! interrupted is completed by the next. Never: knows what the servers hold.
//! Start reading at [`Cluster::open`].

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::account::ServerAccount;
use crate::binaries::Binaries;
use crate::error::EmbedError;
use crate::place;
use crate::port;
use crate::segment;
use crate::server::Server;
use crate::settings::ServerOptions;
use crate::state::ClusterState;

/// What a new directory gets when the number of nodes is not given.
const NODES_DEFAULT: u16 = 3;
const STATE_FILE: &str = "cluster.toml";
const LOCK_FILE: &str = "lock";
const TEMP_PREFIX: &str = "tutti-temp-";
/// Younger ones may be in the making by another process that has not locked them yet.
const TEMP_AGE_MIN: Duration = Duration::from_secs(60);

/// How a cluster is opened or made.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// How many nodes. `None`: as many as the directory holds, three in a new one.
    pub nodes: Option<u16>,
    /// How each server is made and run.
    pub server: ServerOptions,
}

/// Servers that belong together, in one directory that is locked while this value lives.
///
/// Dropping it stops the servers; call [`Self::stop`] to get errors.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    binaries: Binaries,
    state: ClusterState,
    // Fields drop in this order: the servers stop, the directory goes, the lock last.
    servers: Vec<Server>,
    temp: Option<TempDir>,
    _lock: DirLock,
}

impl Cluster {
    /// Opens the cluster in `dir`, or makes one there. Its servers are not started yet.
    ///
    /// A making that was interrupted is completed. The binaries are searched for, see
    /// [`Binaries::find`]; an existing directory needs the major version that made it.
    ///
    /// Errors: `InUse` if another process has the directory; `NotOurs`, `NodeCount`,
    /// `NodeDataMissing` if it holds something else than asked for; what finding binaries and
    /// making servers can report.
    pub fn open(dir: &Path, options: &ClusterOptions) -> Result<Self, EmbedError> {
        let dir = std::path::absolute(dir).map_err(EmbedError::read(dir))?;
        let account = ServerAccount::choose()?;
        account.require_open(&dir)?;
        refuse_foreign(&dir)?;
        fs::create_dir_all(&dir).map_err(EmbedError::make_directory(&dir))?;
        let lock = lock(&dir)?;
        Self::open_locked(dir, lock, account, options)
    }

    /// A started cluster of `nodes` servers for a test: made from the template, in the system's
    /// temporary directory (or in memory), which goes when the value is dropped.
    pub fn create_temp(nodes: u16) -> Result<Self, EmbedError> {
        Self::create_temp_with(nodes, ServerOptions::for_tests_in_memory())
    }

    /// Like [`Self::create_temp`], with other options.
    ///
    /// Also removes what killed tests have left behind, and the shared memory of all killed
    /// servers of the account.
    pub fn create_temp_with(nodes: u16, server: ServerOptions) -> Result<Self, EmbedError> {
        let memory = place::memory_dir();
        let parent = std::env::temp_dir();
        for parent in memory.iter().chain([&parent]) {
            sweep_temp(parent);
        }
        let parent = memory.filter(|_| server.in_memory).unwrap_or(parent);
        segment::sweep(ServerAccount::choose()?.uid());
        let temp = tempfile::Builder::new()
            .prefix(TEMP_PREFIX)
            .permissions(fs::Permissions::from_mode(0o711))
            .tempdir_in(&parent)
            .map_err(EmbedError::make_directory(&parent))?;
        let mut cluster = Self::open(temp.path(), &ClusterOptions { nodes: Some(nodes), server })?;
        cluster.temp = Some(temp);
        cluster.start()?;
        Ok(cluster)
    }

    /// The name and the ports of the cluster in `dir`, running or not; `None` if there is none.
    ///
    /// Only reads, so it also works while another process has the directory.
    pub fn peek(dir: &Path) -> Result<Option<(String, Vec<u16>)>, EmbedError> {
        let state = ClusterState::read(&dir.join(STATE_FILE))?;
        Ok(state.map(|state| (state.name, state.ports)))
    }

    /// Starts all servers that do not run, at the same time, and waits until they take sessions.
    pub fn start(&mut self) -> Result<(), EmbedError> {
        each_at_once(self.servers.iter_mut(), Server::start)?;
        let ports: Vec<u16> = self.servers.iter().map(Server::port).collect();
        if ports != self.state.ports {
            self.state.ports = ports;
            self.state.write(&self.dir.join(STATE_FILE))?;
        }
        Ok(())
    }

    /// Stops all servers (fast), at the same time.
    pub fn stop(&mut self) -> Result<(), EmbedError> {
        each_at_once(self.servers.iter_mut(), Server::stop)
    }

    /// The servers, in their order: node 1 first.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The server at `index`; node 1 has index 0.
    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// The server at `index`, to stop, kill or start it; node 1 has index 0.
    pub fn server_mut(&mut self, index: usize) -> &mut Server {
        &mut self.servers[index]
    }

    /// The cluster's name, made up when its directory was.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The binaries its servers run.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn open_locked(
        dir: PathBuf,
        lock: DirLock,
        account: ServerAccount,
        options: &ClusterOptions,
    ) -> Result<Self, EmbedError> {
        // The servers' account must pass through to its own folders, and no further.
        if account != ServerAccount::Own {
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o711))
                .map_err(EmbedError::write(&dir))?;
        }
        let state_path = dir.join(STATE_FILE);
        let (binaries, mut state) = match ClusterState::read(&state_path)? {
            Some(state) => {
                let has = u16::try_from(state.ports.len()).unwrap_or(u16::MAX);
                if let Some(asked) = options.nodes.filter(|asked| *asked != has) {
                    return Err(EmbedError::NodeCount { dir, has, asked });
                }
                (Binaries::find_major(&account, state.postgresql, &dir)?, state)
            }
            None => {
                let binaries = Binaries::find(&account)?;
                let nodes = options.nodes.unwrap_or(NODES_DEFAULT);
                let ports = choose_ports(nodes)?;
                let state = ClusterState::new(binaries.version().major, ports);
                state.write(&state_path)?;
                (binaries, state)
            }
        };

        let node_dir = |index: usize| dir.join(format!("node{}", index + 1));
        let mut missing: Vec<PathBuf> =
            (0..state.ports.len()).map(node_dir).filter(|dir| !Server::exists(dir)).collect();
        if state.complete && !missing.is_empty() {
            return Err(EmbedError::NodeDataMissing { dir: missing.swap_remove(0) });
        }
        each_at_once(missing.iter(), |dir| {
            Server::create(dir, &binaries, &account, options.server.clone()).map(drop)
        })?;
        if !state.complete {
            state.complete = true;
            state.write(&state_path)?;
        }
        let open = |(index, port): (usize, &u16)| {
            let options = options.server.clone();
            Server::open(&node_dir(index), &binaries, &account, options, Some(*port))
        };
        let servers = state.ports.iter().enumerate().map(open).collect::<Result<_, _>>()?;
        Ok(Self { dir, binaries, state, servers, temp: None, _lock: lock })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.temp.is_some() {
            let stopped = each_at_once(self.servers.iter_mut(), Server::discard);
            if let Err(error) = stopped {
                tracing::error!(%error, "a temporary server could not be stopped");
            }
        } else if let Err(error) = self.stop() {
            tracing::error!(%error, "a server could not be stopped");
        }
    }
}

/// Runs `work` on every item in a thread of its own; the first error, after all have ended.
fn each_at_once<T: Send>(
    items: impl Iterator<Item = T>,
    work: impl Fn(T) -> Result<(), EmbedError> + Sync,
) -> Result<(), EmbedError> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.map(|item| scope.spawn(move || work(item))).collect();
        let results: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        results.into_iter().collect()
    })
}

fn choose_ports(count: u16) -> Result<Vec<u16>, EmbedError> {
    let mut ports = Vec::new();
    while ports.len() < usize::from(count) {
        let port = port::choose_free()?;
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    Ok(ports)
}

/// Refuses a directory that holds files, but no cluster of ours: `--data ~` must do no harm.
fn refuse_foreign(dir: &Path) -> Result<(), EmbedError> {
    let Ok(mut entries) = fs::read_dir(dir) else { return Ok(()) };
    if entries.next().is_some() && !dir.join(LOCK_FILE).exists() {
        return Err(EmbedError::NotOurs { dir: dir.to_owned() });
    }
    Ok(())
}

/// The lock of a directory, held while this value lives. A killed process's lock is free immediately;
/// servers do not inherit it, because the standard library opens files close-on-exec.
#[derive(Debug)]
struct DirLock(File);

impl Drop for DirLock {
    /// Says so, instead of only closing the file: a child that another thread is starting has a copy of it
    /// between its fork and its exec, and the lock would be held until then.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

fn lock(dir: &Path) -> Result<DirLock, EmbedError> {
    let path = dir.join(LOCK_FILE);
    let mut file = OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(&path)
        .map_err(EmbedError::write(&path))?;
    match file.try_lock() {
        Ok(()) => (),
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            return Err(EmbedError::InUse { dir: dir.to_owned(), pid: holder.trim().parse().ok() });
        }
        Err(TryLockError::Error(error)) => return Err(EmbedError::write(&path)(error)),
    }
    file.set_len(0).map_err(EmbedError::write(&path))?;
    write!(file, "{}", std::process::id()).map_err(EmbedError::write(&path))?;
    Ok(DirLock(file))
}

/// Removes temporary clusters whose process was killed, with the servers that still run in them.
///
/// Best effort: what cannot be removed is left for the next time.
fn sweep_temp(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_temp = entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX);
        if is_temp && let Some(left_behind) = open_left_behind(&entry.path()) {
            tracing::info!(dir = %left_behind.dir.display(), "removing what a killed test left");
            left_behind.remove();
        }
    }
}

/// A temporary cluster that no process holds, locked by us.
struct LeftBehind {
    dir: PathBuf,
    _lock: DirLock,
}

fn open_left_behind(dir: &Path) -> Option<LeftBehind> {
    let metadata = fs::symlink_metadata(dir).ok()?;
    let age = SystemTime::now().duration_since(metadata.modified().ok()?).ok()?;
    let ours = metadata.is_dir() && metadata.uid() == nix::unistd::geteuid().as_raw();
    if !ours || age < TEMP_AGE_MIN {
        return None;
    }
    Some(LeftBehind { dir: dir.to_owned(), _lock: lock(dir).ok()? })
}

impl LeftBehind {
    fn remove(self) {
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        for entry in entries.flatten() {
            if crate::server::kill_left_behind(&entry.path()).is_err() {
                return;
            }
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}
