//! A server whose commits wait until its standby has them, by PostgreSQL's own streaming replication.
//!
//! Owns: making the second of two servers a standby of the first. Never: promotes it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tutti_embed::Cluster;

/// What a standby may need until it has connected.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// Makes server 2 a copy of server 1 that follows it, and server 1 wait for it at each commit. `port`: where the
/// standby connects, which may be a link to server 1.
///
/// Requires: both were just made, and nothing is in them. Blocks.
pub(super) fn make(cluster: &mut Cluster, port: u16) -> anyhow::Result<()> {
    // What was shut down cleanly can be copied: the copy goes on where the log ended.
    cluster.server_mut(0).stop()?;
    cluster.server_mut(1).stop()?;
    let (first, second) =
        (cluster.server(0).dir().join("data"), cluster.server(1).dir().join("data"));
    let own_settings = fs::read(second.join("tutti.conf")).ok();
    fs::remove_dir_all(&second).with_context(|| format!("remove {}", second.display()))?;
    // With owners and modes, as PostgreSQL wants them.
    let copied =
        Command::new("cp").arg("-a").arg(&first).arg(&second).status().context("run cp")?;
    ensure!(copied.success(), "cannot copy a server's files: {copied}");
    if let Some(settings) = own_settings {
        fs::write(second.join("tutti.conf"), settings)?;
    }
    let signal = second.join("standby.signal");
    let made = Command::new("cp").arg("-a").arg(second.join("PG_VERSION")).arg(&signal).status();
    ensure!(made.context("run cp")?.success(), "cannot make {}", signal.display());
    append(&second, &format!("primary_conninfo = 'host=127.0.0.1 port={port} user=postgres'"))?;
    append(&first, "synchronous_standby_names = '*'")?;
    cluster.server_mut(0).start()?;
    cluster.server_mut(1).start()?;
    Ok(())
}

/// The file that ALTER SYSTEM writes is read last.
fn append(data: &Path, line: &str) -> anyhow::Result<()> {
    let path = data.join("postgresql.auto.conf");
    let mut file = OpenOptions::new().append(true).open(&path)?;
    writeln!(file, "{line}").with_context(|| format!("write {}", path.display()))
}

/// Waits until commits on the first server wait for the standby.
pub(super) async fn wait_until_synchronous(url: &str) -> anyhow::Result<()> {
    let client = tutti_lab::client::connect(url).await?;
    let begun = Instant::now();
    loop {
        let sql = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        if client.query_one(sql, &[]).await?.get::<_, i64>(0) == 1 {
            return Ok(());
        }
        ensure!(begun.elapsed() < CONNECT_LIMIT, "the standby does not connect to its server");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
