//! Nodes whose fail-over Patroni does, with etcd, as docs/operate/patroni.md tells operators to run it.
//!
//! Owns: the processes, configured by docs/operate/patroni.yml with other addresses, and what is done to them.
//! Needs Debian's packages of both, which `./dev` gets; without them the test says so and does nothing.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tutti_gateway::NodeConfig;
use tutti_tests::client::{Client, Endpoint};
use tutti_tests::process::{self, GatewayProcess, free_port};
use tutti_tests::{gateway, programs, servers};

use super::restarts::under_load;
use super::support::*;

/// What operators are given.
const CONFIGURATION: &str = include_str!("../../../../docs/operate/patroni.yml");
/// How long Patroni may take to make a primary and its standby, on a machine that does much else.
const MAKE_LIMIT: Duration = Duration::from_secs(120);

/// What all processes share.
struct Ground {
    patroni: PathBuf,
    etcd_port: u16,
    binaries: PathBuf,
    dir: tempfile::TempDir,
    /// The account that they run as: PostgreSQL refuses to be root's.
    owner: (u32, u32),
    etcd: Child,
}

impl Ground {
    /// `None`: the programs are not there.
    fn make(owner: (u32, u32), binaries: &Path) -> Result<Option<Self>> {
        let beside = |name: &str| binaries.join(name).exists();
        let found = (programs::optional("patroni"), programs::optional("etcd"));
        let (Some(patroni), Some(etcd), true) = (found.0, found.1, beside("pg_rewind")) else {
            eprintln!("skipped: patroni, etcd or pg_rewind was not found");
            return Ok(None);
        };
        let dir = tempfile::Builder::new().prefix("tutti-patroni-").tempdir()?;
        chown(dir.path(), Some(owner.0), Some(owner.1))?;
        let (etcd_port, peers) = (free_port()?, format!("http://127.0.0.1:{}", free_port()?));
        let clients = format!("http://127.0.0.1:{etcd_port}");
        let mut command = Command::new(etcd);
        command.arg("--data-dir").arg(dir.path().join("etcd"));
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}"), "--enable-v2"]);
        command.uid(owner.0).gid(owner.1).current_dir(dir.path());
        let log = fs::File::create(dir.path().join("etcd.log"))?;
        let etcd = command.stdout(Stdio::null()).stderr(log).spawn().context("start etcd")?;
        let binaries = binaries.to_owned();
        Ok(Some(Self { patroni, etcd_port, binaries, dir, owner, etcd }))
    }

    /// Debian's packages are for Debian's Python; unpacked, they are beside the program.
    fn patroni(&self, program: &str) -> Command {
        let script = self.patroni.with_file_name(program);
        let mut command = Command::new("/usr/bin/python3");
        if let Some(place) = self.patroni.parent().and_then(Path::parent) {
            command.env("PYTHONPATH", place.join("lib/python3/dist-packages"));
        }
        command.arg(script).uid(self.owner.0).gid(self.owner.1).current_dir(self.dir.path());
        command
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
    }
}

/// One member of one node.
struct Member<'g> {
    ground: &'g Ground,
    name: String,
    port: u16,
    /// `None`: killed.
    patroni: Option<Child>,
}

impl<'g> Member<'g> {
    fn make(ground: &'g Ground, scope: &str, letter: char) -> Result<Self> {
        let name = format!("{scope}-{letter}");
        let (port, rest) = (free_port()?, free_port()?);
        let mut text = CONFIGURATION.to_owned();
        let mut put = |written: &str, here: &str| -> Result {
            ensure!(text.contains(written), "docs/operate/patroni.yml has no {written}");
            text = text.replace(written, here);
            Ok(())
        };
        let dir = ground.dir.path();
        put("/var/lib/postgresql/15/orders-1", &format!("{}/{name}", dir.display()))?;
        put("/var/lib/postgresql/orders-1.pgpass", &format!("{}/{name}.pgpass", dir.display()))?;
        put("/usr/lib/postgresql/15/bin", &ground.binaries.display().to_string())?;
        put("name: orders-1-a", &format!("name: {name}"))?;
        put("scope: orders-1", &format!("scope: {scope}"))?;
        put("10.0.0.11:5432", &format!("127.0.0.1:{port}"))?;
        put("10.0.0.11:8008", &format!("127.0.0.1:{rest}"))?;
        put("10.0.0.31:2379", &format!("127.0.0.1:{}", ground.etcd_port))?;
        // The clients of these tests have no passwords.
        put("all all 10.0.0.0/8 scram-sha-256", "all all 127.0.0.1/32 trust")?;
        put("replicator 10.0.0.0/8", "replicator 127.0.0.1/32")?;
        fs::write(dir.join(format!("{name}.yml")), text)?;
        let mut member = Self { ground, name, port, patroni: None };
        member.start()?;
        Ok(member)
    }

    fn configuration(&self) -> PathBuf {
        self.ground.dir.path().join(format!("{}.yml", self.name))
    }

    fn log(&self) -> PathBuf {
        self.ground.dir.path().join(format!("{}.log", self.name))
    }

    fn start(&mut self) -> Result {
        let log = fs::File::options().create(true).append(true).open(self.log())?;
        let mut command = self.ground.patroni("patroni");
        command.arg(self.configuration()).stdout(log.try_clone()?).stderr(log);
        self.patroni = Some(command.spawn().context("start patroni")?);
        Ok(())
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::on(self.port)
    }

    fn takes_writes(&self) -> bool {
        let asked = Client::connect(&self.endpoint())
            .and_then(|mut client| client.value("SELECT pg_is_in_recovery()"));
        asked.is_ok_and(|answer| answer == "f")
    }

    /// The server alone; Patroni notices.
    fn kill_server(&self) {
        let file = self.ground.dir.path().join(&self.name).join("postmaster.pid");
        let Ok(content) = fs::read_to_string(file) else { return };
        let Some(pid) = content.lines().next() else { return };
        let _ = Command::new("kill").args(["-9", pid]).output();
    }

    /// As if its machine had lost its power.
    fn kill_machine(&mut self) {
        if let Some(mut patroni) = self.patroni.take() {
            let _ = patroni.kill();
            let _ = patroni.wait();
        }
        self.kill_server();
    }
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        self.kill_machine();
    }
}

/// A primary and a standby.
struct Node<'g>([Member<'g>; 2]);

impl<'g> Node<'g> {
    fn make(ground: &'g Ground, scope: &str) -> Result<Self> {
        Ok(Self([Member::make(ground, scope, 'a')?, Member::make(ground, scope, 'b')?]))
    }

    fn configured(&self, id: u16) -> NodeConfig {
        let hosts = self.0.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
        NodeConfig { id, hosts, ..NodeConfig::default() }
    }

    /// Waits until one takes writes and the other is its synchronous standby; the index of the first.
    fn wait_until_whole(&self) -> Result<usize> {
        let begun = Instant::now();
        loop {
            let primary = self.0.iter().position(Member::takes_writes);
            let is_whole = primary.is_some_and(|index| {
                let state = "SELECT coalesce(max(sync_state), '') FROM pg_stat_replication";
                let asked = Client::connect(&self.0[index].endpoint())
                    .and_then(|mut client| client.value(state));
                asked.is_ok_and(|state| state == "sync")
            });
            match primary {
                Some(index) if is_whole => return Ok(index),
                _ if begun.elapsed() < MAKE_LIMIT => sleep(Duration::from_millis(200)),
                _ => return Err(anyhow::anyhow!("{}", self.logs())),
            }
        }
    }

    fn logs(&self) -> String {
        let of = |member: &Member<'_>| fs::read_to_string(member.log()).unwrap_or_default();
        format!("not whole in {MAKE_LIMIT:?}:\n{}\n{}", of(&self.0[0]), of(&self.0[1]))
    }

    /// Waits until this member takes writes.
    fn wait_for(&self, index: usize) -> Result {
        let begun = Instant::now();
        while !self.0[index].takes_writes() {
            ensure!(begun.elapsed() < MAKE_LIMIT, "{}", self.logs());
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Says how long after `begun` this member takes writes, and money of all nodes is moved and counted.
    fn tell_fail_over(&self, what: &str, to: usize, at: &Endpoint, begun: Instant) -> Result {
        self.wait_for(to)?;
        let promoted = begun.elapsed().as_secs_f64();
        eventually("all nodes are served", || {
            Client::connect(at)?.query(
                "BEGIN; UPDATE account SET balance = balance; SELECT sum(balance) FROM account; COMMIT",
            )
        })?;
        let served = begun.elapsed().as_secs_f64();
        println!("{what}: promoted {promoted:.1} s, served {served:.1} s");
        Ok(())
    }
}

#[test]
fn patroni_replaces_primaries_with_every_transaction_whole() -> Result {
    let third = servers::durable(1)?;
    let owner = fs::metadata(third.server(0).dir().join("data"))?;
    let Some(ground) = Ground::make((owner.uid(), owner.gid()), third.binaries().dir())? else {
        return Ok(());
    };
    // As on the nodes that Patroni has made.
    Client::connect(&servers::endpoint(&third, 0))?
        .query("CREATE ROLE replicator LOGIN REPLICATION")?;
    let mut nodes = [Node::make(&ground, "money-1")?, Node::make(&ground, "money-2")?];
    let mut config = gateway::config(&third, String::new());
    let plain = NodeConfig { id: 3, ..config.nodes.remove(0) };
    config.nodes = vec![nodes[0].configured(1), nodes[1].configured(2), plain];
    for node in &nodes {
        node.wait_until_whole()?;
    }
    process::init_configured(&config)?;
    let gateway = GatewayProcess::start_configured(config, &[])?;
    let at = gateway.endpoint();
    make_accounts(&at)?;
    let load = under_load(&at, rand::random(), || {
        sleep(Duration::from_secs(2));

        // A server dies; Patroni is there, and sees it.
        let old = nodes[1].wait_until_whole()?;
        let begun = Instant::now();
        nodes[1].0[old].kill_server();
        nodes[1].tell_fail_over("server of node 2 killed", 1 - old, &at, begun)?;

        // A machine dies, with all that is on it; it is node 1's.
        let old = nodes[0].wait_until_whole()?;
        let begun = Instant::now();
        nodes[0].0[old].kill_machine();
        nodes[0].tell_fail_over("machine of node 1 killed", 1 - old, &at, begun)?;
        nodes[0].0[old].start()?;
        nodes[0].wait_until_whole()?;

        // An operator wants the other one.
        let old = nodes[1].wait_until_whole()?;
        let begun = Instant::now();
        let [from, to] = [&nodes[1].0[old].name, &nodes[1].0[1 - old].name];
        let mut switch = ground.patroni("patronictl");
        switch.arg("-c").arg(nodes[1].0[old].configuration());
        switch.args(["switchover", "money-2", "--leader", from, "--candidate", to, "--force"]);
        programs::run(&mut switch)?;
        nodes[1].tell_fail_over("node 2 switched", 1 - old, &at, begun)?;
        Ok(())
    })?;
    let acknowledged = load.asked.values().filter(|b| **b == Believed::Acknowledged).count();
    let unknown = load.asked.values().filter(|b| matches!(b, Believed::Unknown(_))).count();
    println!("{acknowledged} acknowledged, {unknown} unknown, {} totals read", load.totals_read);
    ensure!(0 < acknowledged, "nothing was ever acknowledged");
    let mut primaries = Vec::new();
    for node in &nodes {
        primaries.push(node.0[node.wait_until_whole()?].endpoint());
    }
    primaries.push(servers::endpoint(&third, 0));
    come_to_rest(&primaries)?;
    check(&primaries, &at, &load.asked)
}
