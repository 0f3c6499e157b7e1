//! Where the comparison runs: servers, and in front of them PgBouncer and gateways.
//!
//! Owns: starting and ending these, and who has which servers. Never: measures.
//! Start reading at [`Place::make`], then [`Place::start`].

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;
use tokio::task::spawn_blocking;
use tutti_embed::{Cluster, ServerOptions};

use super::bouncer::{Bouncer, Serves};
use super::pgbench::{Pgbench, Ran};
use super::plan::Plan;
use super::process::Process;
use super::target::{Build, Load, Protocol, Target};
use super::{beside, gateway, tables};
use tutti_lab::client;

/// The database on every server.
const DATABASE: &str = "postgres";
/// Connections that a node must admit for each client: its own, and as many again that are just
/// ending; a third for those that PgBouncer keeps beside.
const CONNECTIONS_PER_CLIENT: u32 = 3;
const CONNECTIONS_BESIDES: u32 = 100;
/// No pooler has more connections by default.
const POOL_USUAL: u16 = 50;

/// Servers with the tables on them.
#[derive(Debug)]
pub(super) struct Place {
    // Fields drop in this order: the servers stop, and then the directory goes.
    plain: Option<Cluster>,
    gateways: BTreeMap<Target, Behind>,
    bouncer: Option<Bouncer>,
    pub pgbench: Pgbench,
    dir: TempDir,
    postgresql: String,
}

/// What is behind a gateway, and its program.
#[derive(Debug)]
struct Behind {
    binary: PathBuf,
    cluster: Cluster,
}

/// A target that takes clients.
#[derive(Debug)]
pub(super) struct Front {
    pub target: Target,
    port: u16,
    /// PgBouncer's or the gateway's; PostgreSQL's own is not ours to watch.
    process: Option<Process>,
    bouncer: Option<Bouncer>,
}

impl Place {
    /// Makes the servers and fills their tables; takes some seconds for each.
    pub(super) async fn make(
        plan: &Plan,
        builds: &[Build],
        bouncer: Option<Bouncer>,
    ) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("tutti-bench-")
            // PgBouncer may run as another account than ours.
            .permissions(fs::Permissions::from_mode(0o711))
            .tempdir()?;
        let has_plain = plan.targets.iter().any(|of| !matches!(of, Target::Tutti { .. }));
        let plain = if has_plain { Some(servers(1, plan).await?) } else { None };
        let mut gateways = BTreeMap::new();
        for target in &plan.targets {
            let Target::Tutti { nodes, build } = target else { continue };
            let named = builds.iter().find(|of| Some(&of.name) == build.as_ref());
            let binary = match named {
                Some(build) => build.binary.clone(),
                None => beside::tutti()?,
            };
            let cluster = servers(*nodes, plan).await?;
            gateways.insert(target.clone(), Behind { binary, cluster });
        }
        let all = || plain.iter().chain(gateways.values().map(|behind| &behind.cluster));
        let binaries = all().next().context("no target")?.binaries();
        let postgresql = binaries.version().to_string();
        let pgbench = Pgbench::new(binaries.dir(), dir.path())?;
        let place = Self { plain, gateways, bouncer, pgbench, dir, postgresql };
        place.fill(plan).await?;
        Ok(place)
    }

    async fn fill(&self, plan: &Plan) -> anyhow::Result<()> {
        if let Some(plain) = &self.plain {
            let server = plain.server(0);
            let client = client::connect(&server.url()).await?;
            let made = tables::make(&self.pgbench, server.port(), &client, false, plan.scale).await;
            made.context("cannot make the tables of the server without a gateway")?;
        }
        for (target, Behind { binary, cluster }) in &self.gateways {
            gateway::init(binary, self.dir.path(), cluster, plan.pool).await?;
            let front = self.start(target, plan).await?;
            let client = client::connect(&front.url(Protocol::Simple)).await?;
            let made = tables::make(&self.pgbench, front.port, &client, true, plan.scale).await;
            made.with_context(|| format!("cannot make the tables of {target}"))?;
            drop(client);
            front.stop().await?;
        }
        Ok(())
    }

    /// Starts what a target consists of beside its servers, and waits until it takes clients.
    pub(super) async fn start(&self, target: &Target, plan: &Plan) -> anyhow::Result<Front> {
        let dir = self.dir.path();
        let plain_port =
            || self.plain.as_ref().map(|plain| plain.server(0).port()).context("no plain server");
        let mut bouncer = None;
        let (process, port) = match target {
            Target::Direct => (None, plain_port()?),
            Target::Bouncer => {
                let found = self.bouncer.as_ref().context("no PgBouncer")?;
                let serves = Serves {
                    server_port: plain_port()?,
                    pool: plan.pool,
                    sessions: plan.clients_max(),
                    clients_max: plan.idle + u32::from(plan.clients_max()) + CONNECTIONS_BESIDES,
                };
                let (process, port) = found.start(dir, serves)?;
                bouncer = Some(found.clone());
                (Some(process), port)
            }
            Target::Tutti { .. } => {
                let behind = self.gateways.get(target).context("no servers for a gateway")?;
                let name = target.to_string();
                let (process, port) =
                    gateway::serve(&name, &behind.binary, dir, &behind.cluster, plan.pool).await?;
                (Some(process), port)
            }
        };
        let front = Front { target: target.clone(), port, process, bouncer };
        let answered = client::first_answer(&front.url(Protocol::Simple)).await;
        answered.with_context(|| format!("{target} does not answer{}", front.last_words()))?;
        Ok(front)
    }

    /// Lets no measurement pay for what the ones before it left.
    pub(super) async fn tidy(&self) -> anyhow::Result<()> {
        for cluster in self.clusters() {
            for server in cluster.servers() {
                tables::tidy(&client::connect(&server.url()).await?).await?;
            }
        }
        Ok(())
    }

    fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.plain.iter().chain(self.gateways.values().map(|behind| &behind.cluster))
    }

    /// Where the files are.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The version of PostgreSQL that runs here, for people.
    pub(super) fn postgresql(&self) -> &str {
        &self.postgresql
    }

    /// Ends the servers and removes their directories.
    pub(super) async fn remove(self) -> anyhow::Result<()> {
        Ok(spawn_blocking(move || drop(self)).await?)
    }
}

impl Front {
    /// What clients of this protocol connect to.
    pub(super) fn url(&self, protocol: Protocol) -> String {
        let address = ([127, 0, 0, 1], self.port).into();
        client::url(address, self.database(protocol))
    }

    fn database(&self, protocol: Protocol) -> &'static str {
        self.bouncer.as_ref().map_or(DATABASE, |bouncer| bouncer.database(protocol))
    }

    /// How PgBouncer pools clients of this protocol; nothing for other targets.
    pub(super) fn pooling(&self, protocol: Protocol) -> Option<&'static str> {
        self.bouncer.as_ref().map(|bouncer| bouncer.database(protocol))
    }

    /// Its process, where it has one of its own.
    pub(super) fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// Runs a load, and says beside what came of it what processor time its process used.
    pub(super) async fn run(
        &self,
        pgbench: &Pgbench,
        load: Load,
        seconds: u64,
    ) -> anyhow::Result<(Ran, Option<Duration>)> {
        let cpu_time = || self.process.as_ref().map(Process::cpu_time).transpose();
        let before = cpu_time()?;
        let database = self.database(load.protocol);
        let ran = pgbench.run(load, self.port, database, seconds).await;
        let ran = ran.with_context(|| format!("{}{}", self.target, self.last_words()))?;
        let after = cpu_time()?;
        Ok((ran, after.zip(before).map(|(after, before)| after - before)))
    }

    /// What its clients have done agrees with itself.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        let client = client::connect(&self.url(Protocol::Simple)).await?;
        tables::check(&client).await.with_context(|| format!("{} is wrong", self.target))
    }

    fn last_words(&self) -> String {
        self.process.as_ref().map_or_else(String::new, Process::last_words)
    }

    /// Ends its process and waits for it.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        match self.process {
            Some(process) => process.stop().await,
            None => Ok(()),
        }
    }
}

async fn servers(nodes: u16, plan: &Plan) -> anyhow::Result<Cluster> {
    let connections = u32::from(plan.clients_max().max(plan.pool.unwrap_or(POOL_USUAL)))
        * CONNECTIONS_PER_CLIENT
        + CONNECTIONS_BESIDES;
    let settings = [
        ("max_connections", connections.to_string()),
        ("max_prepared_transactions", connections.to_string()),
        // All tables fit, so that no target reads where another does not.
        ("shared_buffers", "512MB".to_owned()),
        // A checkpoint would slow down the one measurement that it falls into; there is one
        // between measurements instead.
        ("checkpoint_timeout", "1h".to_owned()),
        ("max_wal_size", "8GB".to_owned()),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value)).into();
    let options = ServerOptions { settings, ..ServerOptions::default() };
    anyhow::ensure!(options.fsync, "a commit without a flush is none");
    Ok(spawn_blocking(move || Cluster::create_temp_with(nodes, options)).await??)
}
