//! Hosts of their own on this machine: network namespaces on one bridge, whose links can be cut.
//!
//! Owns: the namespaces, their links to the bridge and the test's own, the addresses; they go with the value, and what
//! an earlier process has left that is gone is removed. Needs Linux, `ip` and the right to make namespaces.
//! Never: knows what runs on a host.
//! Start reading at [`Network::make`].
//!
//! A link that is cut loses what is sent in silence, as a broken switch does: its end is still up. The kernel may have
//! no `netem`, so nothing is slow here: links that delay are the lab's (docs/lab/distances.md).

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, id};

use anyhow::{Context, Result, bail};

use crate::programs::{optional, output, run};

/// How the namespaces, and the test's own link, are named: with the process's number behind.
const PREFIX: &str = "tut";
/// Networks `10.77.N.0/24` that tests may take.
const NETWORKS: u8 = 200;
/// Nobody has it.
const NO_MAC: &str = "02:00:00:00:00:01";

/// The bridge, and the way to it for the test itself.
#[derive(Debug)]
pub struct Network {
    number: u8,
}

/// A host on it. Its processes must have ended when it is dropped.
#[derive(Debug)]
pub struct Host {
    namespace: String,
    /// Where it is reached.
    pub address: Ipv4Addr,
    /// Its end at the bridge.
    port: String,
    hub: String,
}

fn ip(arguments: &[&str]) -> Result<()> {
    run(Command::new("ip").args(arguments)).map(drop)
}

fn hub() -> String {
    format!("{PREFIX}{}-0", id())
}

impl Network {
    /// `None`: it cannot be made here, which is said.
    pub fn make() -> Result<Option<Self>> {
        if optional("ip").is_none() {
            eprintln!("skipped: `ip` was not found (Debian: iproute2)");
            return Ok(None);
        }
        remove_left()?;
        let made = output(Command::new("ip").args(["netns", "add", &hub()]))?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr);
            eprintln!("skipped: no network namespaces here: {}", said.trim());
            return Ok(None);
        }
        let network = Self { number: free_network()? };
        match network.connect() {
            Ok(()) => Ok(Some(network)),
            Err(error) => {
                eprintln!("skipped: no links between network namespaces here: {error:#}");
                Ok(None)
            }
        }
    }

    fn connect(&self) -> Result<()> {
        let (hub, own, there) = (hub(), format!("{PREFIX}{}", id()), "own");
        ip(&["-n", &hub, "link", "add", "bridge", "type", "bridge"])?;
        ip(&["-n", &hub, "link", "set", "bridge", "up"])?;
        ip(&["link", "add", &own, "type", "veth", "peer", "name", there, "netns", &hub])?;
        ip(&["-n", &hub, "link", "set", there, "master", "bridge", "up"])?;
        ip(&["address", "add", &format!("{}/24", self.address(1)), "dev", &own])?;
        ip(&["link", "set", &own, "up"])
    }

    fn address(&self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.number, number)
    }

    /// All its addresses.
    pub fn range(&self) -> String {
        format!("{}/24", self.address(0))
    }

    /// A host, by its number from 2 on.
    pub fn host(&self, number: u8) -> Result<Host> {
        let hub = hub();
        let (namespace, port) = (format!("{PREFIX}{}-{number}", id()), format!("to{number}"));
        let address = self.address(number);
        ip(&["netns", "add", &namespace])?;
        let host = Host { namespace, address, port, hub };
        let Host { namespace, port, hub, .. } = &host;
        ip(&["-n", namespace, "link", "set", "lo", "up"])?;
        ip(&[
            "-n", namespace, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns",
            hub,
        ])?;
        ip(&["-n", namespace, "address", "add", &format!("{address}/24"), "dev", "eth0"])?;
        ip(&["-n", namespace, "link", "set", "eth0", "up"])?;
        ip(&["-n", hub, "link", "set", port, "up"])?;
        host.mend()?;
        Ok(host)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The links go with it.
        _ = ip(&["netns", "del", &hub()]);
    }
}

impl Host {
    /// What runs there, as this user and group if they are given.
    pub fn command(&self, program: &Path, owner: Option<(u32, u32)>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]);
        if let Some((user, group)) = owner {
            command.args(["setpriv", "--reuid", &user.to_string(), "--regid", &group.to_string()]);
            command.arg("--clear-groups");
        }
        command.arg(program);
        command
    }

    /// Nothing that it sends arrives, nor what is sent to it.
    pub fn cut(&self) -> Result<()> {
        ip(&["-n", &self.hub, "link", "set", &self.port, "nomaster"])
    }

    /// Everything arrives again.
    pub fn mend(&self) -> Result<()> {
        ip(&["-n", &self.hub, "link", "set", &self.port, "master", "bridge"])
    }

    /// What it sends to this other one does not arrive; what that one sends does.
    pub fn cut_to(&self, other: &Self) -> Result<()> {
        let to = other.address.to_string();
        let wrong = ["lladdr", NO_MAC, "dev", "eth0", "nud", "permanent"];
        ip(&[&["-n", &self.namespace, "neigh", "replace", &to][..], &wrong].concat())
    }

    /// It does again.
    pub fn mend_to(&self, other: &Self) -> Result<()> {
        ip(&["-n", &self.namespace, "neigh", "del", &other.address.to_string(), "dev", "eth0"])
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        _ = ip(&["netns", "del", &self.namespace]);
    }
}

/// Of processes that are gone.
fn remove_left() -> Result<()> {
    let all = run(Command::new("ip").args(["netns", "list"]))?;
    for name in all.lines().filter_map(|line| line.split_whitespace().next()) {
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
        if process.is_some_and(|(id, _)| !Path::new("/proc").join(id).exists()) {
            ip(&["netns", "del", name])?;
        }
    }
    Ok(())
}

/// One that nobody here has.
fn free_network() -> Result<u8> {
    let taken = run(Command::new("ip").args(["-4", "address", "show"])).context("addresses")?;
    // Another process may look at the same moment: each begins elsewhere.
    let first = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    for step in 0..u16::from(NETWORKS) {
        let number = ((first + step) % u16::from(NETWORKS)) as u8;
        if !taken.contains(&format!("10.77.{number}.")) {
            return Ok(number);
        }
    }
    bail!("all networks 10.77.N.0/24 are taken")
}
