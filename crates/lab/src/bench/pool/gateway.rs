//! A gateway as a process of its own: `tutti init` and `tutti serve` of any build.
//!
//! Owns: its configuration, and waiting for its first answer. Never: starts the nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::process::Command;
use tokio::time::timeout;
use tutti_embed::Cluster;

use super::process::Process;
use tutti_lab::client;

/// What a gateway may need until it listens.
const LISTEN_LIMIT: Duration = Duration::from_secs(60);

/// Writes the catalog into the nodes, by the build that will serve them.
pub(super) async fn init(
    binary: &Path,
    dir: &Path,
    cluster: &Cluster,
    pool: Option<u16>,
) -> anyhow::Result<()> {
    let output = Command::new(binary)
        .arg("init")
        .arg("--config")
        .arg(write_config(binary, dir, cluster, pool).await?)
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot run {}", binary.display()))?;
    ensure!(
        output.status.success(),
        "cannot write the catalog into the nodes: {}",
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(())
}

/// Starts a gateway and waits for its first answer; says on which port it listens.
pub(super) async fn serve(
    name: &str,
    binary: &Path,
    dir: &Path,
    cluster: &Cluster,
    pool: Option<u16>,
) -> anyhow::Result<(Process, u16)> {
    let mut command = Command::new(binary);
    command
        .arg("serve")
        .arg("--config")
        .arg(write_config(binary, dir, cluster, pool).await?)
        .stdout(Stdio::piped());
    let log = dir.join(format!("{}.log", cluster.name()));
    let mut process = Process::start(name, &mut command, log)?;
    let line = timeout(LISTEN_LIMIT, process.first_line()).await;
    let line = line.with_context(|| format!("{name} does not listen"))??;
    let port = line.as_deref().and_then(port_of);
    let port = port
        .with_context(|| format!("{name} does not say where it listens{}", process.last_words()))?;
    let url = client::url(([127, 0, 0, 1], port).into(), "postgres");
    client::first_answer(&url)
        .await
        .with_context(|| format!("{name} does not answer{}", process.last_words()))?;
    Ok((process, port))
}

/// Whether a build has rules for who is let in. Those that have let nobody in without a password
/// unless a rule says so; the others refuse to read one.
async fn has_rules(binary: &Path) -> anyhow::Result<bool> {
    let help = Command::new(binary).args(["up", "--help"]).kill_on_drop(true).output().await;
    let help = help.with_context(|| format!("cannot run {}", binary.display()))?;
    Ok(String::from_utf8_lossy(&help.stdout).contains("--allow-trust-off-loopback"))
}

/// Writes the configuration of a gateway in front of a cluster: only what every build knows, a rule
/// for those that need one, and the size of its pool if it is asked for, which builds that do not
/// pool refuse.
async fn write_config(
    binary: &Path,
    dir: &Path,
    cluster: &Cluster,
    pool: Option<u16>,
) -> anyhow::Result<PathBuf> {
    let mut text = format!("listen = \"127.0.0.1:0\"\ncluster = \"{}\"\n", cluster.name());
    if let Some(size) = pool {
        text += &format!("[pool]\nsize = {size}\n");
    }
    for (id, server) in (1..).zip(cluster.servers()) {
        text += &format!("[[node]]\nid = {id}\nhost = \"127.0.0.1\"\nport = {}\n", server.port());
    }
    if has_rules(binary).await? {
        text += "[[rules]]\naddress = \"loopback\"\nmethod = \"trust\"\n";
    }
    let file = dir.join(format!("{}.toml", cluster.name()));
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// The port in the line that a gateway prints: `psql postgres://postgres@127.0.0.1:7432/postgres`.
fn port_of(line: &str) -> Option<u16> {
    let address = line.strip_prefix("psql ")?.rsplit_once('@')?.1;
    address.split_once('/')?.0.rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_what_the_gateway_prints() {
        let line = format!("psql {}", client::url(([127, 0, 0, 1], 7432).into(), "postgres"));
        assert_eq!(port_of(&line), Some(7432));
        assert_eq!(port_of("ready"), None);
    }
}
