//! `tutti serve`, `tutti init` and `tutti status`: on PostgreSQL servers that are run elsewhere.
//!
//! Owns: reading the configuration file and reporting what happens. Never: starts a server.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tutti_gateway::Config;
use tutti_lab::client;

use crate::StatusArgs;
use crate::shutdown::Shutdown;
use crate::up;

/// Runs the gateway until it is asked to end.
pub(crate) async fn serve(config_path: &Path) -> anyhow::Result<()> {
    let config = read_config(config_path)?;
    allow_many_clients();
    let mut shutdown = match config.tls {
        // The gateway reloads its certificates.
        Some(_) => Shutdown::on_signals_but_hangup()?,
        None => Shutdown::on_signals()?,
    };
    let listener = TcpListener::bind(&config.listen)
        .await
        .with_context(|| format!("cannot listen on {}", config.listen))?;
    println!("psql {}", client::url(listener.local_addr()?, &config.database));
    let mut hurry = shutdown.clone();
    tokio::select! {
        ended = tutti_gateway::serve(config, listener, async move { shutdown.asked().await }) => {
            ended.context("the gateway ended")
        }
        // The nodes roll back what is open, and the next gateway settles what was being committed.
        () = hurry.asked_again() => bail!("asked twice: ended without waiting for transactions"),
    }
}

/// Every client is an open file: shells often allow 1024 of them where the system allows many more.
fn allow_many_clients() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(now, most)| {
        if now < most { setrlimit(Resource::RLIMIT_NOFILE, most, most) } else { Ok(()) }
    });
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// Writes the catalog into the nodes.
pub(crate) async fn init(config_path: &Path, adopt: bool) -> anyhow::Result<()> {
    let config = read_config(config_path)?;
    tutti_gateway::init(&config, adopt).await.context("cannot write the catalog into the nodes")?;
    println!("{} nodes form the cluster {}", config.nodes.len(), config.cluster);
    Ok(())
}

/// Prints nodes, tables and buckets.
pub(crate) async fn status(args: StatusArgs) -> anyhow::Result<()> {
    let config = match args.config {
        Some(path) => read_config(&path)?,
        None => up::config_of_directory(args.data)?,
    };
    let status = tutti_gateway::status(&config).await.context("cannot ask the nodes")?;
    match writeln!(std::io::stdout(), "{status}") {
        // The reader has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the status"),
    }
}

pub(crate) fn read_config(path: &Path) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).with_context(|| {
        format!("cannot read {} (docs/tutti.example.toml shows one)", path.display())
    })?;
    Config::from_toml(&text).with_context(|| format!("{} is not right", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_example_is_a_configuration() {
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tutti.example.toml");
        let config = read_config(Path::new(example)).unwrap();
        assert_eq!(config.nodes.len(), 3);
        // The values in the example are the defaults.
        let short = "[node_tls]\nsslrootcert = '/etc/tutti/nodes-ca.crt'\n\
                     [[node]]\nid = 1\nhost = '10.0.0.11'\n";
        let short = Config::from_toml(short).unwrap();
        let nodes = short.nodes.clone();
        assert_eq!(Config { nodes, rules: Vec::new(), ..config.clone() }, short);
        assert_eq!(config.nodes[0], short.nodes[0]);
    }
}
