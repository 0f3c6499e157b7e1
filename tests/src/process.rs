//! A gateway in a process of its own, to be killed.
//!
//! Owns: the process and its configuration file. Never: the servers, which outlive it.

use std::fs;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tutti_embed::Cluster;
use tutti_gateway::Config;
use tutti_gateway::audit::Report;

use crate::audit;
use crate::client::{Client, Endpoint};
use crate::gateway;
use crate::network::Host;
use crate::programs;

/// How long a gateway may take until a statement works; it settles what is in doubt first.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Where a gateway listens that has a host to itself.
pub const HOST_PORT: u16 = 7432;

/// `tutti serve` in front of servers.
#[derive(Debug)]
pub struct GatewayProcess {
    child: Child,
    at: Endpoint,
    files: TempDir,
    config: Config,
    unaudited: Option<&'static str>,
}

/// Writes the catalog into the nodes by `tutti init`.
pub fn init(servers: &Cluster) -> Result<()> {
    init_configured(&gateway::config(servers, "127.0.0.1:0".to_owned()))
}

/// The same by this configuration.
pub fn init_configured(config: &Config) -> Result<()> {
    let files = write_config(config)?;
    let path = files.path().join("tutti.toml");
    programs::run(Command::new(programs::tutti()?).arg("init").arg("--config").arg(path))?;
    Ok(())
}

fn write_config(config: &Config) -> Result<TempDir> {
    let files = tempfile::tempdir()?;
    fs::write(files.path().join("tutti.toml"), toml::to_string(config)?)?;
    Ok(files)
}

impl GatewayProcess {
    /// Starts the built binary and waits until a statement works.
    pub fn start(servers: &Cluster) -> Result<Self> {
        let mut process = Self::start_configured(gateway::config(servers, String::new()), &[])?;
        process.wait_until_ready()?;
        Ok(process)
    }

    /// Starts the built binary by this configuration, except for its port, and with these variables
    /// in its environment. It listens when this returns; clients that connect wait until it serves.
    pub fn start_configured(config: Config, environment: &[(&str, &str)]) -> Result<Self> {
        let mut command = Command::new(programs::tutti()?);
        command.envs(environment.iter().copied());
        Self::listening(config, Endpoint::on(free_port()?), command)
    }

    /// The same on a host of its own, where it need not answer.
    pub fn start_on(config: Config, host: &Host) -> Result<Self> {
        let at = Endpoint::at(host.address, HOST_PORT);
        Self::spawn(config, at, host.command(&programs::tutti()?, None))
    }

    fn listening(config: Config, at: Endpoint, command: Command) -> Result<Self> {
        let mut process = Self::spawn(config, at, command)?;
        process.wait_until_listening()?;
        Ok(process)
    }

    fn spawn(mut config: Config, at: Endpoint, mut command: Command) -> Result<Self> {
        config.listen = format!("{}:{}", at.host, at.port);
        let files = write_config(&config)?;
        let log = fs::File::create(files.path().join("gateway.log"))?;
        let child = command
            .arg("serve")
            .arg("--config")
            .arg(files.path().join("tutti.toml"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("start tutti serve")?;
        Ok(Self { child, at, files, config, unaudited: None })
    }

    fn wait_until_listening(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_LIMIT;
        while TcpStream::connect((self.at.host, self.at.port)).is_err() {
            self.check_running(deadline)?;
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn check_running(&mut self, deadline: Instant) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("tutti serve ended with {status}: {}", self.log());
        }
        ensure!(Instant::now() < deadline, "tutti serve does not listen: {}", self.log());
        Ok(())
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + READY_LIMIT;
        loop {
            let answered =
                Client::connect(&self.endpoint()).and_then(|mut client| client.value("SELECT 1"));
            match answered {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => {
                    return Err(error.context(self.log()));
                }
                Err(_) => (),
            }
            self.check_running(deadline)?;
            sleep(Duration::from_millis(20));
        }
    }

    /// Its configuration.
    pub fn config_file(&self) -> PathBuf {
        self.files.path().join("tutti.toml")
    }

    /// Where clients connect.
    pub fn endpoint(&self) -> Endpoint {
        self.at.clone()
    }

    /// The most memory that it ever had resident, in bytes.
    pub fn peak_resident_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|it| it.trim().strip_suffix("kB")).context("no VmHWM")?;
        Ok(kib.trim().parse::<u64>()? * 1024)
    }

    /// How many files it has open, sockets among them.
    pub fn open_files(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/fd", self.child.id()))?.count())
    }

    /// What it wrote to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.files.path().join("gateway.log")).unwrap_or_default()
    }

    /// SIGHUP: it reloads its certificates.
    pub fn hang_up(&self) -> Result<()> {
        self.signal("-HUP")
    }

    /// SIGTERM: it ends when its clients' transactions have; a second one ends it at once.
    pub fn terminate(&self) -> Result<()> {
        self.signal("-TERM")
    }

    /// SIGSTOP: it does nothing, and notices nothing, until [`Self::resume`].
    pub fn pause(&self) -> Result<()> {
        self.signal("-STOP")
    }

    /// SIGCONT.
    pub fn resume(&self) -> Result<()> {
        self.signal("-CONT")
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.child.id().to_string();
        programs::run(Command::new("kill").args([signal, &pid]))?;
        Ok(())
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Where its configuration is.
    pub fn config_path(&self) -> PathBuf {
        self.files.path().join("tutti.toml")
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill9(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl GatewayProcess {
    /// See [`gateway::TestCluster::leave_unaudited`].
    pub fn leave_unaudited(&mut self, reason: &'static str) {
        self.unaudited = Some(reason);
    }

    /// What the auditor finds now.
    pub fn audit(&self) -> Result<Report> {
        audit::run(self.config.clone(), Some(self.endpoint()))
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        let is_running = matches!(self.child.try_wait(), Ok(None));
        let audited =
            if is_running { audit::at_the_end(self.unaudited, || self.audit()) } else { None };
        // Already gone after `kill9`.
        let _ = self.child.kill();
        let _ = self.child.wait();
        audit::insist(audited);
    }
}

/// A port that is free now. Another process may take it first; then the start fails and says so.
pub fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
