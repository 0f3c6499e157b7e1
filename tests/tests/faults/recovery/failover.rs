//! A node's primary is killed and its standby promoted, under load.
//!
//! Owns: a real standby, made by pg_basebackup. Needs PostgreSQL's client programs; without them the
//! test says so and does nothing.

use std::fs;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{Context, ensure};
use tutti_embed::Cluster;
use tutti_gateway::Config;
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::gateway::{self, TestCluster};
use tutti_tests::process::GatewayProcess;
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

/// `None`: it is not there, and was said to be missing.
fn basebackup(servers: &Cluster) -> Option<PathBuf> {
    let beside = servers.binaries().dir().join("pg_basebackup");
    let found = Some(beside).filter(|path| path.exists());
    let found = found.or_else(|| programs::postgresql_program("pg_basebackup"));
    if found.is_none() {
        eprintln!("skipped: pg_basebackup was not found");
    }
    found
}

/// The node of this index is one of its server and this standby.
fn with_standby(servers: &Cluster, standby: &Standby, index: usize) -> Config {
    let mut config = gateway::config(servers, String::new());
    let node = &mut config.nodes[index];
    node.hosts = vec![format!("127.0.0.1:{}", standby.port), format!("127.0.0.1:{}", node.port)];
    node.host = String::new();
    config
}

#[test]
fn a_promoted_standby_takes_over_with_every_transaction_whole() -> Result {
    let servers = servers::durable(2)?;
    let Some(basebackup) = basebackup(&servers) else { return Ok(()) };
    let standby = Standby::of(&servers, 1, &basebackup)?;
    let config = with_standby(&servers, &standby, 1);
    let mut cluster = TestCluster::start_configured(servers, config)?;
    let gateway = cluster.endpoint();
    make_accounts(&gateway)?;
    let mut left_prepared = String::new();
    let load = under_load(&gateway, rand::random(), || {
        sleep(Duration::from_secs(2));
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

/// The postmaster hangs, what it has started goes on: its backends answer, beside a standby that was promoted.
#[test]
fn a_primary_that_goes_on_beside_its_successor_answers_nobody() -> Result {
    let servers = servers::durable(2)?;
    let Some(basebackup) = basebackup(&servers) else { return Ok(()) };
    let standby = Standby::of(&servers, 1, &basebackup)?;
    let old = servers::endpoint(&servers, 1);
    let pid_file = fs::read_to_string(servers.server(1).dir().join("data/postmaster.pid"))?;
    let pid = pid_file.lines().next().context("a pid")?.to_owned();
    let signal = |signal: &str| programs::run(Command::new("kill").args([signal, &pid])).map(drop);
    let config = with_standby(&servers, &standby, 1);
    let mut other_way_round = config.clone();
    other_way_round.nodes[1].hosts.reverse();
    let mut cluster = TestCluster::start_configured(servers, config)?;
    let at = cluster.endpoint();
    let mut client = Client::connect(&at)?;
    client.query(
        "CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT n, 0 FROM generate_series(1, 60) n",
    )?;
    let mut on_old = Client::connect(&old)?;
    let id = on_old.value("SELECT min(id) FROM t")?;
    let read = format!("SELECT v FROM t WHERE id = {id}");
    let mut open = Client::connect(&at)?;
    open.query("BEGIN")?;
    ensure!(open.value(&read)? == "0");
    let mut bound = Client::connect(&at)?;
    bound.query(&format!(
        "PREPARE kept AS {read}; SELECT pg_advisory_lock(5) FROM t WHERE id = {id}"
    ))?;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| -> Result<String> {
            let mut client = Client::connect(&at)?;
            let answer =
                client.simple(&format!("SELECT pg_sleep(300) FROM t WHERE id = {id}"), b"")?;
            Ok(answer.error().context("it was answered")?.sqlstate().to_owned())
        });
        eventually("it sleeps", || {
            let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
            ensure!(on_old.value(sleeping)? == "1");
            Ok(())
        })?;
        signal("-STOP")?;
        standby.promote()?;
        // The gateway looks for the node where it is silent now.
        on_old.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tutti watch'",
        )?;
        let write = format!("UPDATE t SET v = 1 WHERE id = {id}");
        let written = eventually("the standby is the node", || {
            let mut client = Client::connect(&at)?;
            // One that the old primary takes waits for its standby.
            client.query("SET statement_timeout = '5s'")?;
            client.query(&write)
        });
        ensure!(on_old.value(&read)? == "0", "it does not go on");
        let answer = open.simple(&read, b"")?;
        let told = answer.error().map(|error| error.sqlstate().to_owned());
        let asked = bound.simple("EXECUTE kept", b"").map(|answer| answer.to_string());
        signal("-CONT")?;
        written?;
        ensure!(told.as_deref() == Some("08006"), "the open transaction read {answer}");
        ensure!(asked.as_ref().is_ok_and(|answer| !answer.contains("| 0")), "{asked:?}");
        let state = waiting.join().expect("it does not panic")?;
        ensure!(state == "08006", "{state}");
        // The old primary can be reached again, and still takes writes.
        ensure!(Client::connect(&old)?.value(&read)? == "0");
        for _ in 0..20 {
            ensure!(Client::connect(&at)?.value(&read)? == "1");
            sleep(Duration::from_millis(50));
        }
        Ok(())
    })?;
    // Another gateway knows nothing of what has been, and is told of the old one first.
    cluster.stop_gateway()?;
    let gateway = GatewayProcess::start_configured(other_way_round, &[])?;
    for _ in 0..20 {
        ensure!(Client::connect(&gateway.endpoint())?.value(&read)? == "1");
    }
    ensure!(Client::connect(&old)?.value(&read)? == "0", "the old one is not there any more");
    Ok(())
}

/// Node 1's primary goes on beside its successor, and so does the gateway that leads there, while another one leads by
/// the successor: the former hears of it from the other nodes, follows, and shows what the latter has.
#[test]
fn a_gateway_that_leads_by_a_former_primary_follows_who_leads_by_its_successor() -> Result {
    let servers = servers::durable(2)?;
    let Some(basebackup) = basebackup(&servers) else { return Ok(()) };
    let standby = Standby::of(&servers, 0, &basebackup)?;
    let old = servers::endpoint(&servers, 0);
    let config = with_standby(&servers, &standby, 0);
    let mut cluster = TestCluster::start_configured(servers, config.clone())?;
    let at = cluster.endpoint();
    let mut client = Client::connect(&at)?;
    client.query(
        "CREATE TABLE t (id int PRIMARY KEY, v int) DISTRIBUTE BY HASH (id);
         INSERT INTO t SELECT n, 0 FROM generate_series(1, 20) n;
         CREATE TABLE h (v int) DISTRIBUTE BY HOME;
         INSERT INTO h VALUES (0)",
    )?;
    let read = "SELECT v FROM h";
    standby.promote()?;
    let latter = GatewayProcess::start_configured(config, &[])?;
    let mut through_latter = Client::connect(&latter.endpoint())?;
    through_latter.query("UPDATE h SET v = 1; UPDATE t SET v = 1")?;
    ensure!(Client::connect(&old)?.value(read)? == "0", "the old one is not there any more");
    eventually("the former follows", || {
        let shown = Client::connect(&at)?.value(read)?;
        ensure!(shown == "1", "{shown}");
        Ok(())
    })?;
    // The session that it had was ended.
    ensure!(client.value(read).map_or(true, |shown| shown == "1"));
    for round in 2..12 {
        let (mut writer, mut reader) =
            (Client::connect(&at)?, Client::connect(&latter.endpoint())?);
        writer.query(&format!("UPDATE h SET v = {round}"))?;
        ensure!(reader.value(read)? == round.to_string());
        ensure!(reader.value("SELECT sum(v) FROM t")? == "20");
    }
    cluster.leave_unaudited("its node 1 is another server");
    cluster.stop_gateway()
}

/// The way to a server, on which nobody gets anywhere until it is opened.
struct Road {
    port: u16,
    is_open: Arc<AtomicBool>,
}

impl Road {
    fn closed_to(server: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (port, is_open) = (listener.local_addr()?.port(), Arc::new(AtomicBool::new(false)));
        let opened = is_open.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                if !opened.load(Ordering::Relaxed) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let pairs = [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))];
                for (from, to) in pairs {
                    let (Ok(mut from), Ok(mut to)) = (from, to) else { continue };
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Ok(Self { port, is_open })
    }
}

/// A gateway that can reach a former primary of node 1 only, whose commits wait for the standby that has taken its place,
/// begins to lead there: as soon as it can reach the other, it gives up.
#[test]
fn a_gateway_that_would_lead_by_a_former_primary_gives_up() -> Result {
    let servers = servers::durable(2)?;
    let Some(basebackup) = basebackup(&servers) else { return Ok(()) };
    let standby = Standby::of(&servers, 0, &basebackup)?;
    let old = servers::endpoint(&servers, 0);
    let config = with_standby(&servers, &standby, 0);
    let mut cluster = TestCluster::start_configured(servers, config.clone())?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE h (v int) DISTRIBUTE BY HOME; INSERT INTO h VALUES (0)")?;
    drop(client);
    cluster.leave_unaudited("its node 1 is another server");
    cluster.stop_gateway()?;
    // From now on the next number that is drawn has to be made durable.
    Client::connect(&old)?.query("CHECKPOINT")?;
    standby.promote()?;
    let road = Road::closed_to(standby.port)?;
    let mut cut = config.clone();
    cut.nodes[0].hosts[0] = format!("127.0.0.1:{}", road.port);
    let mut late = GatewayProcess::start_configured(cut, &[])?;
    eventually("it begins to lead by the former primary", || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        ensure!(Client::connect(&old)?.value(waiting)? != "0", "no commit waits there");
        Ok(())
    })?;
    let first = GatewayProcess::start_configured(config, &[])?;
    let mut writer = Client::connect(&first.endpoint())?;
    writer.query("UPDATE h SET v = 1")?;
    road.is_open.store(true, Ordering::Relaxed);
    // One that has not been one of the cluster's gateways yet ends; others would follow. It does not wait until what it
    // has begun times out.
    eventually("it gives up", || {
        ensure!(late.has_ended()?, "it goes on");
        Ok(())
    })?;
    ensure!(late.log().contains("only a former primary answers"), "{}", late.log());
    Ok(())
}

/// The gateway that has seen the successor is gone, and the successor cannot be reached: the next gateway, which finds the
/// former primary only, hears of it from the other node.
#[test]
fn a_gateway_that_starts_while_the_successor_is_away_takes_no_former_primary() -> Result {
    let servers = servers::durable(2)?;
    let Some(basebackup) = basebackup(&servers) else { return Ok(()) };
    let standby = Standby::of(&servers, 0, &basebackup)?;
    let old = servers::endpoint(&servers, 0);
    let other = servers::endpoint(&servers, 1);
    let config = with_standby(&servers, &standby, 0);
    let mut cluster = TestCluster::start_configured(servers, config.clone())?;
    let mut client = Client::connect(&cluster.endpoint())?;
    client.query("CREATE TABLE h (v int) DISTRIBUTE BY HOME; INSERT INTO h VALUES (0)")?;
    drop(client);
    cluster.leave_unaudited("its node 1 is another server");
    cluster.servers_mut().server_mut(0).kill9()?;
    standby.promote()?;
    eventually("the standby is the node", || {
        Client::connect(&cluster.endpoint())?.query("UPDATE h SET v = 1").map(drop)
    })?;
    eventually("the other node has been told", || {
        let told = "SELECT timeline FROM tutti.seen WHERE node = 1";
        ensure!(Client::connect(&other)?.value(told)? == "00000002");
        Ok(())
    })?;
    cluster.stop_gateway()?;
    cluster.servers_mut().server_mut(0).start()?;
    eventually("the former primary takes writes", || {
        let mut old = Client::connect(&old)?;
        old.query("SET synchronous_commit = local; CREATE TABLE IF NOT EXISTS astray ()").map(drop)
    })?;
    let road = Road::closed_to(standby.port)?;
    let mut cut = config.clone();
    cut.nodes[0].hosts[0] = format!("127.0.0.1:{}", road.port);
    let told = match GatewayProcess::start_configured(cut.clone(), &[]) {
        Err(ended) => format!("{ended:#}"),
        Ok(mut gateway) => {
            eventually("it does not serve", || {
                ensure!(gateway.has_ended()?, "it goes on");
                Ok(())
            })?;
            gateway.log()
        }
    };
    ensure!(told.contains("only a former primary answers"), "{told}");
    road.is_open.store(true, Ordering::Relaxed);
    let gateway = GatewayProcess::start_configured(cut, &[])?;
    ensure!(Client::connect(&gateway.endpoint())?.value("SELECT v FROM h")? == "1");
    Ok(())
}
