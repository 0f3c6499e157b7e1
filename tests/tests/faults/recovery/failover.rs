//! A node's primary is killed and its standby promoted, under load.
//!
//! Owns: a real standby, made by pg_basebackup. Needs PostgreSQL's client programs; without them the
//! test says so and does nothing.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::ensure;
use tutti_embed::Cluster;
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::{self, TestCluster};
use tutti_tests::{programs, servers};

use super::restarts::under_load;
use super::support::*;

/// A streaming standby of one of the servers.
struct Standby {
    postmaster: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Standby {
    /// Copies the server and starts the copy as its synchronous standby.
    fn of(servers: &Cluster, index: usize, basebackup: &Path) -> Result<Self> {
        let server = servers.server(index);
        // The account that the servers run as, if we are root.
        let owner = fs::metadata(server.dir().join("data"))?;
        let dir = tempfile::Builder::new().prefix("tutti-standby-").tempdir()?;
        chown(dir.path(), Some(owner.uid()), Some(owner.gid()))?;
        let data: PathBuf = dir.path().join("data");
        let as_owner = |program: &Path| {
            let mut command = Command::new(program);
            command.uid(owner.uid()).gid(owner.gid()).current_dir(dir.path());
            command
        };
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let primary = format!("host=127.0.0.1 port={} user=postgres", server.port());
        programs::run(
            as_owner(basebackup)
                .args(["--write-recovery-conf", "--checkpoint=fast", "--dbname", &primary])
                .arg("--pgdata")
                .arg(&data),
        )?;
        let log = fs::File::create(dir.path().join("server.log"))?;
        let postmaster = as_owner(&servers.binaries().dir().join("postgres"))
            .arg("-D")
            .arg(&data)
            .args(["-c", &format!("port={port}"), "-c", "unix_socket_directories="])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        let standby = Self { postmaster, port, _dir: dir };
        eventually("the standby follows", || {
            Client::connect(&standby.endpoint())?;
            let mut primary = Client::connect(&servers::endpoint(servers, index))?;
            let following = primary
                .value("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'")?;
            ensure!(following == "1", "{following} standbys");
            Ok(())
        })?;
        let mut primary = Client::connect(&servers::endpoint(servers, index))?;
        primary.query("ALTER SYSTEM SET synchronous_standby_names = '*'")?;
        primary.query("SELECT pg_reload_conf()")?;
        eventually("the standby is synchronous", || {
            let state = primary.value("SELECT sync_state FROM pg_stat_replication")?;
            ensure!(state == "sync", "{state}");
            Ok(())
        })?;
        Ok(standby)
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::on(self.port)
    }

    fn promote(&self) -> Result {
        let promoted = Client::connect(&self.endpoint())?.value("SELECT pg_promote()")?;
        ensure!(promoted == "t", "the standby was not promoted");
        Ok(())
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        // Its children notice and end; its data is not needed.
        let _ = self.postmaster.kill();
        let _ = self.postmaster.wait();
    }
}

#[test]
fn a_promoted_standby_takes_over_with_every_transaction_whole() -> Result {
    let servers = servers::durable(2)?;
    let beside = servers.binaries().dir().join("pg_basebackup");
    let Some(basebackup) = Some(beside)
        .filter(|path| path.exists())
        .or_else(|| programs::postgresql_program("pg_basebackup"))
    else {
        eprintln!("skipped: pg_basebackup was not found");
        return Ok(());
    };
    let standby = Standby::of(&servers, 1, &basebackup)?;
    let mut config = gateway::config(&servers, String::new());
    let second = &mut config.nodes[1];
    second.hosts =
        vec![format!("127.0.0.1:{}", standby.port), format!("127.0.0.1:{}", second.port)];
    second.host = String::new();
    let mut cluster = TestCluster::start_configured(servers, config)?;
    let gateway = cluster.endpoint();
    make_accounts(&gateway)?;
    let mut left_prepared = String::new();
    let load = under_load(&gateway, rand::random(), || {
        std::thread::sleep(Duration::from_secs(2));
        cluster.servers_mut().server_mut(1).kill9()?;
        let mut node = Client::connect(&standby.endpoint())?;
        left_prepared = node.value("SELECT count(*) FROM pg_prepared_xacts")?;
        standby.promote()?;
        eventually("the gateway uses the promoted standby", || {
            Client::connect(&gateway)?.value("SELECT sum(balance) FROM account").map(drop)
        })
    })?;
    let acknowledged = load.asked.values().filter(|b| **b == Believed::Acknowledged).count();
    println!("{acknowledged} acknowledged, {left_prepared} prepared when promoted");
    ensure!(0 < acknowledged, "nothing was ever acknowledged");
    let nodes = [cluster.nodes()[0].clone(), standby.endpoint()];
    come_to_rest(&nodes)?;
    check(&nodes, &gateway, &load.asked)
}
