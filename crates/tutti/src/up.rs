//! `tutti up`: PostgreSQL servers on this machine and a gateway in front of them.
//!
//! Owns: the order of starting and stopping, and what the user is told meanwhile.
//! Never: leaves a server running when it ends; after a SIGKILL of this process the next start in
//! the same directory stops them. Start reading at [`up`].

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tutti_embed::{Cluster, ClusterOptions, ServerAccount, ServerOptions};
use tutti_gateway::{Config, GatewayError, NodeConfig, Rule};
use tutti_lab::{client, demo};

use crate::UpArgs;
use crate::shutdown::Shutdown;

/// Where the data goes unless specified.
const DATA_DEFAULT: &str = "data/tutti";
/// As root, where it goes if the servers' account cannot reach that.
const DATA_DEFAULT_OF_ROOT: &str = "/var/lib/tutti";
/// The role and database that initdb creates.
const DATABASE: &str = "postgres";
const USER: &str = "postgres";

/// How long sessions may take to end once the gateway is asked to.
const GATEWAY_STOP_LIMIT: Duration = Duration::from_secs(20);
/// How often we look whether every server still runs.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

type Gateway = JoinHandle<Result<(), GatewayError>>;

/// Runs a cluster until it is asked to end.
pub(crate) async fn up(args: UpArgs) -> anyhow::Result<()> {
    let mut shutdown = Shutdown::on_signals()?;
    // First what fails fastest, before anything is created.
    let listener = TcpListener::bind(&args.listen)
        .await
        .with_context(|| format!("cannot listen on {} (choose with --listen)", args.listen))?;
    refuse_trust_off_loopback(&args, listener.local_addr()?)?;

    let dir = data_directory(args.data.clone())?;
    let mut cluster = tokio::select! {
        opened = open_cluster(dir, args.nodes) => opened?,
        // Nothing runs yet, and what is half made will be made again.
        () = shutdown.asked() => return Ok(()),
    };
    // Not to be interrupted, so that no server is left half started; it takes only a moment.
    let (mut cluster, started) = spawn_blocking(move || {
        let started = cluster.start();
        (cluster, started)
    })
    .await?;
    let ran = match started {
        Ok(()) => run_gateway(&args, &mut cluster, listener, shutdown).await,
        Err(error) => Err(error.into()),
    };
    say("stopping the servers");
    let stopped = spawn_blocking(move || cluster.stop()).await?;
    // What went wrong first is what the user must be told.
    ran.and(stopped.context("cannot stop the servers"))
}

/// The configuration of a gateway in front of the cluster in this directory, running or not.
pub(crate) fn config_of_directory(data: Option<PathBuf>) -> anyhow::Result<Config> {
    let dir = data_directory(data)?;
    let (name, ports) = Cluster::peek(&dir)?.with_context(|| {
        format!("{} holds no cluster; name one with --data or --config", dir.display())
    })?;
    Ok(config(&name, &ports, String::new()))
}

/// Finds PostgreSQL and creates the servers, or finds those created before.
async fn open_cluster(dir: PathBuf, nodes: Option<u16>) -> anyhow::Result<Cluster> {
    spawn_blocking(move || {
        let verb = if Cluster::peek(&dir)?.is_some() { "starting" } else { "making" };
        say(&format!("{verb} the nodes in {}", dir.display()));
        let options = ClusterOptions { nodes, server: ServerOptions::default() };
        let cluster = Cluster::open(&dir, &options)?;
        let binaries = cluster.binaries();
        say(&format!(
            "{} nodes with PostgreSQL {} from {}",
            cluster.servers().len(),
            binaries.version(),
            binaries.dir().display()
        ));
        Ok(cluster)
    })
    .await?
}

/// Runs the gateway, and the demo if asked for, until the end is asked for or something fails.
async fn run_gateway(
    args: &UpArgs,
    cluster: &mut Cluster,
    listener: TcpListener,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let address = listener.local_addr()?;
    let ports: Vec<u16> = cluster.servers().iter().map(|server| server.port()).collect();
    let mut config = config(cluster.name(), &ports, address.to_string());
    if args.allow_trust_off_loopback {
        config.allow_trust_off_loopback = true;
        config.rules = vec![Rule::trust_everybody()];
    }
    let (mut user_shutdown, mut hurry) = (shutdown.clone(), shutdown.clone());
    tokio::select! {
        done = tutti_gateway::init(&config, false) => {
            done.context("cannot write the catalog into the nodes")?;
        }
        () = user_shutdown.asked() => return Ok(()),
    }

    // The gateway ends when we ask it to, not by the user's signal itself: so if it ended by itself,
    // it failed.
    let (end_gateway, end_asked) = tokio::sync::oneshot::channel::<()>();
    let mut gateway = tokio::spawn(tutti_gateway::serve(config, listener, async move {
        // An error means that this side is gone, which is also the end.
        let _ = end_asked.await;
    }));

    let url = client::url(address, DATABASE);
    let ran = serve_until_the_end(args, cluster, &url, &mut gateway, shutdown).await;
    let _ = end_gateway.send(());
    if !gateway.is_finished() {
        say("stopping the gateway");
        let stopped = tokio::select! {
            stopped = timeout(GATEWAY_STOP_LIMIT, &mut gateway) => stopped.ok(),
            () = hurry.asked_again() => None,
        };
        match stopped {
            Some(ended) => return ran.and(ended?.context("the gateway ended")),
            None => gateway.abort(),
        }
    }
    ran
}

/// Waits for the first answer, says so, runs the demo, and then watches over the servers.
async fn serve_until_the_end(
    args: &UpArgs,
    cluster: &mut Cluster,
    url: &str,
    gateway: &mut Gateway,
    mut shutdown: Shutdown,
) -> anyhow::Result<()> {
    tokio::select! {
        answered = client::first_answer(url) => answered?,
        ended = &mut *gateway => return Err(why_ended(ended)),
        () = shutdown.asked() => return Ok(()),
    }
    // In two lines that scripts can wait for, even through a pipe.
    println!("psql {url}\nready");
    std::io::stdout().flush()?;

    if args.demo {
        let node_urls: Vec<String> = cluster.servers().iter().map(|server| server.url()).collect();
        let shown = tokio::select! {
            shown = demo::run(url, &node_urls, args.demo_options.chosen()) => shown,
            ended = &mut *gateway => return Err(why_ended(ended)),
            () = shutdown.asked() => return Ok(()),
        };
        match shown.context("the demo failed") {
            Ok(()) if args.demo_options.demo_exit => return Ok(()),
            Ok(()) => say("the cluster runs on; Ctrl-C ends it"),
            Err(error) if args.demo_options.demo_exit => return Err(error),
            Err(error) => say(&format!("{error:#}; the cluster runs on; Ctrl-C ends it")),
        }
    }

    let mut watch = interval(WATCH_INTERVAL);
    watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            ended = &mut *gateway => return Err(why_ended(ended)),
            () = shutdown.asked() => return Ok(()),
            _ = watch.tick() => tokio::task::block_in_place(|| start_ended_servers(cluster))?,
        }
    }
}

/// Restarts servers that we did not end, such as by the system's out-of-memory killer.
fn start_ended_servers(cluster: &mut Cluster) -> anyhow::Result<()> {
    for index in 0..cluster.servers().len() {
        let server = cluster.server_mut(index);
        if server.is_running() {
            continue;
        }
        let (node, port) = (index + 1, server.port());
        say(&format!("node {node} ended by itself; starting it again"));
        server.start().with_context(|| format!("cannot start node {node} again"))?;
        if server.port() != port {
            bail!("the port of node {node} was taken meanwhile; start tutti again");
        }
    }
    Ok(())
}

/// The gateway ended without being asked to.
fn why_ended(ended: Result<Result<(), GatewayError>, tokio::task::JoinError>) -> anyhow::Error {
    match ended {
        Ok(Ok(())) => anyhow::anyhow!("the gateway ended unasked"),
        Ok(Err(error)) => anyhow::Error::new(error).context("the gateway ended"),
        Err(error) => anyhow::Error::new(error).context("the gateway ended"),
    }
}

/// The configuration of a gateway in front of servers on these ports of this machine.
///
/// All users of this machine are let in: a user that can start this can read the data anyway.
pub(crate) fn config(name: &str, ports: &[u16], listen: String) -> Config {
    let node = |(id, port): (u16, &u16)| NodeConfig {
        id,
        host: Ipv4Addr::LOCALHOST.to_string(),
        port: *port,
        user: USER.to_owned(),
        ..NodeConfig::default()
    };
    Config {
        listen,
        database: DATABASE.to_owned(),
        cluster: name.to_owned(),
        rules: vec![Rule::trust_loopback()],
        nodes: (1..).zip(ports).map(node).collect(),
        ..Config::default()
    }
}

/// `tutti up` asks for no password, so it stays on this machine unless told otherwise.
fn refuse_trust_off_loopback(args: &UpArgs, address: SocketAddr) -> anyhow::Result<()> {
    if !args.allow_trust_off_loopback && !address.ip().to_canonical().is_loopback() {
        bail!(
            "{address} can be reached from other machines, and `tutti up` lets everybody in without a \
             password: listen on 127.0.0.1, say --allow-trust-off-loopback if that is meant, or use \
             `tutti serve` with rules (docs/tutti.example.toml)"
        );
    }
    Ok(())
}

/// The data directory: as specified, or `./data/tutti`, or as root one that the servers can reach.
fn data_directory(told: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(dir) = told {
        return Ok(dir);
    }
    let here = std::path::absolute(DATA_DEFAULT).context("there is no current directory")?;
    let account = ServerAccount::choose()?;
    if let (ServerAccount::Other { name, .. }, Some(closed)) =
        (&account, account.closed_directory(&here))
    {
        say(&format!(
            "the servers run as {name}, which may not enter {}; using {DATA_DEFAULT_OF_ROOT}",
            closed.display()
        ));
        return Ok(Path::new(DATA_DEFAULT_OF_ROOT).to_owned());
    }
    Ok(here)
}

/// Progress goes to standard error; standard output is for what scripts read.
fn say(message: &str) {
    eprintln!("tutti: {message}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_counts_nodes_from_one() {
        let config = config("t01", &[17_001, 17_002], "127.0.0.1:7432".to_owned());
        config.check().unwrap();
        assert_eq!((config.nodes[1].id, config.nodes[1].port), (2, 17_002));
    }
}
