//! A node as operators have it: a primary with a synchronous standby, each on a host of its own.
//!
//! Owns: both servers, their data, which of them is the primary, and what an operator does when that is lost.
//! Never: speaks to a gateway.
//! Start reading at [`Node::make`].

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tutti_embed::Cluster;
use tutti_gateway::NodeConfig;
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::network::{Host, Network};
use tutti_tests::programs;

use crate::recovery::support::eventually;

const PORT: u16 = 5432;
/// Of the disk that each server has to itself.
const DISK: &str = "size=512m,mode=700";
/// A file that leaves no room for others.
const BALLAST: &str = "ballast";

/// Whether servers can have disks of their own here; it is said if not.
pub(super) fn can_have_disks() -> Result<bool> {
    let dir = tempfile::tempdir()?;
    let mount = ["-t", "tmpfs", "-o", DISK, "tmpfs"];
    let mounted = programs::output(Command::new("mount").args(mount).arg(dir.path()))?;
    if !mounted.status.success() {
        eprintln!("skipped: {}", String::from_utf8_lossy(&mounted.stderr).trim());
        return Ok(false);
    }
    programs::run(Command::new("umount").arg(dir.path()))?;
    Ok(true)
}

/// One server, or its place.
pub(super) struct Member {
    pub(super) host: Host,
    /// What is mounted there is its disk.
    dir: PathBuf,
    server: Option<Child>,
}

/// See the module's documentation.
pub(super) struct Node {
    members: [Member; 2],
    primary: usize,
    binaries: PathBuf,
    owner: (u32, u32),
    _dir: tempfile::TempDir,
}

impl Node {
    /// Of a server that has ended, by its data; the hosts have numbers from `first` on.
    pub(super) fn make(
        servers: &Cluster,
        index: usize,
        network: &Network,
        first: u8,
    ) -> Result<Self> {
        let data = servers.server(index).dir().join("data");
        let of = fs::metadata(&data)?;
        let owner = (of.uid(), of.gid());
        let dir = tempfile::Builder::new().prefix("tutti-storm-").tempdir()?;
        chown(dir.path(), Some(owner.0), Some(owner.1))?;
        let member = |number: u8| {
            let host = network.host(first + number)?;
            let place = dir.path().join(number.to_string());
            fs::create_dir(&place)?;
            let disk = format!("{DISK},uid={},gid={}", owner.0, owner.1);
            let mount = ["-t", "tmpfs", "-o", &disk, "tmpfs"];
            programs::run(Command::new("mount").args(mount).arg(&place))?;
            Ok::<_, anyhow::Error>(Member { host, dir: place, server: None })
        };
        let members = [member(0)?, member(1)?];
        let binaries = servers.binaries().dir().to_owned();
        programs::run(Command::new("cp").arg("-a").arg(data).arg(members[0].data()))?;
        let rules = members[0].data().join("pg_hba.conf");
        let range = network.range();
        let trusting = format!(
            "host all all {range} trust\nhost replication all {range} trust\n{}",
            fs::read_to_string(&rules)?
        );
        fs::write(&rules, trusting)?;
        let mut node = Self { members, primary: 0, binaries, owner, _dir: dir };
        node.start(0)?;
        node.follow(1)?;
        Ok(node)
    }

    /// As the gateways know it.
    pub(super) fn config(&self, id: u16) -> NodeConfig {
        let hosts = self.members.iter().map(|of| format!("{}:{PORT}", of.host.address)).collect();
        NodeConfig { id, hosts, ..NodeConfig::default() }
    }

    /// Where its primary is.
    pub(super) fn endpoint(&self) -> Endpoint {
        self.members[self.primary].endpoint()
    }

    pub(super) fn primary(&self) -> &Member {
        &self.members[self.primary]
    }

    pub(super) fn standby(&self) -> &Member {
        &self.members[1 - self.primary]
    }

    /// SIGKILL to all of the primary's processes.
    pub(super) fn kill_primary(&mut self) -> Result<()> {
        self.members[self.primary].kill9()
    }

    /// The primary starts again from what it has.
    pub(super) fn restart_primary(&mut self) -> Result<()> {
        self.start(self.primary)
    }

    /// The standby takes the primary's place.
    pub(super) fn promote(&mut self) -> Result<()> {
        self.primary = 1 - self.primary;
        let promoted = Client::connect(&self.endpoint())?.value("SELECT pg_promote()")?;
        ensure!(promoted == "t", "the standby was not promoted");
        Ok(())
    }

    /// What was the primary becomes a standby: a new copy.
    pub(super) fn rebuild_standby(&mut self) -> Result<()> {
        let gone = 1 - self.primary;
        fs::remove_dir_all(self.members[gone].data())?;
        self.follow(gone)
    }

    /// Waits until the standby has what the primary acknowledges.
    pub(super) fn wait_for_standby(&self) -> Result<()> {
        eventually("the standby is synchronous", || {
            let mut primary = Client::connect(&self.endpoint())?;
            let state = primary
                .value("SELECT coalesce(min(sync_state), 'none') FROM pg_stat_replication")?;
            ensure!(state == "sync", "{state}\n{}", self.standby().log());
            Ok(())
        })
    }

    fn follow(&mut self, index: usize) -> Result<()> {
        let primary = format!("host={} port={PORT} user=postgres", self.primary().host.address);
        let member = &self.members[index];
        let basebackup = self.binaries.join("pg_basebackup");
        programs::run(
            member
                .host
                .command(&basebackup, Some(self.owner))
                .args(["--write-recovery-conf", "--checkpoint=fast", "--dbname", &primary])
                .arg("--pgdata")
                .arg(member.data())
                .current_dir(&member.dir),
        )?;
        self.start(index)?;
        self.wait_for_standby()
    }

    fn start(&mut self, index: usize) -> Result<()> {
        let postgres = self.binaries.join("postgres");
        let member = &mut self.members[index];
        let listen = format!("listen_addresses={}", member.host.address);
        let settings = [
            listen.as_str(),
            "port=5432",
            "unix_socket_directories=",
            "synchronous_standby_names=*",
            // One that a link has lost is noticed before the storm is over.
            "wal_sender_timeout=5s",
            "wal_receiver_timeout=5s",
            "wal_retrieve_retry_interval=500ms",
            "max_wal_size=64MB",
            "min_wal_size=32MB",
            "wal_keep_size=128MB",
            "restart_after_crash=on",
        ];
        let log = fs::OpenOptions::new().append(true).create(true).open(member.log_path())?;
        let server = member
            .host
            .command(&postgres, Some(self.owner))
            .arg("-D")
            .arg(member.data())
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .current_dir(&member.dir)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("start postgres")?;
        member.server = Some(server);
        let endpoint = member.endpoint();
        let log = member.log_path();
        eventually("a server starts", || {
            Client::connect(&endpoint)
                .map(drop)
                .with_context(|| fs::read_to_string(&log).unwrap_or_default())
        })
    }
}

impl Member {
    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Beside its disk, which may be full.
    fn log_path(&self) -> PathBuf {
        self.dir.with_extension("log")
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint::at(self.host.address, PORT)
    }

    /// Of the postmaster and all that it has started.
    fn processes(&self) -> Result<Vec<String>> {
        let server = self.server.as_ref().context("it runs")?.id().to_string();
        let children = format!("/proc/{server}/task/{server}/children");
        let children = fs::read_to_string(children).unwrap_or_default();
        let all = children.split_whitespace().map(ToOwned::to_owned);
        Ok(std::iter::once(server).chain(all).collect())
    }

    fn signal(&self, signal: &str) -> Result<()> {
        // Some may have ended by themselves meanwhile.
        programs::output(Command::new("kill").arg(signal).args(self.processes()?)).map(drop)
    }

    /// SIGSTOP to all its processes.
    pub(super) fn pause(&self) -> Result<()> {
        self.signal("-STOP")
    }

    /// SIGCONT.
    pub(super) fn resume(&self) -> Result<()> {
        self.signal("-CONT")
    }

    fn kill9(&mut self) -> Result<()> {
        self.signal("-KILL")?;
        if let Some(mut server) = self.server.take() {
            server.wait()?;
        }
        Ok(())
    }

    /// Leaves no room on its disk.
    pub(super) fn fill_disk(&self) -> Result<()> {
        let ballast = self.dir.join(BALLAST);
        // Until there is no room.
        _ = programs::output(
            Command::new("dd")
                .args(["if=/dev/zero", "bs=64k"])
                .arg(format!("of={}", ballast.display())),
        )?;
        Ok(())
    }

    pub(super) fn free_disk(&self) -> Result<()> {
        fs::remove_file(self.dir.join(BALLAST)).context("the ballast")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.server.is_some() {
            _ = self.kill9();
        }
        // What PostgreSQL has started may take a moment to notice.
        for _ in 0..50 {
            let unmounted = programs::output(Command::new("umount").arg(&self.dir));
            if unmounted.is_ok_and(|of| of.status.success()) || !is_mounted(&self.dir) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.contains(&format!(" {} ", dir.display()))
}
