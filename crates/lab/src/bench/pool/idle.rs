//! What idle clients cost: the memory of PgBouncer's or the gateway's process.
//!
//! Owns: opening the clients. Never: runs a load.
//! Start reading at [`measure`].

use std::time::Duration;

use anyhow::Context;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_postgres::Client;

use super::figures::Idle;
use super::place::Front;
use super::target::Protocol;
use tutti_lab::client;

/// Connections that are opened at the same time.
const AT_ONCE: u32 = 50;
/// What is not in use for so long will not be cleaned up soon either.
const IDLE_AFTER: Duration = Duration::from_secs(1);
/// File descriptors that we and the processes we start need besides those of clients.
const FILES_BESIDES: u64 = 1_000;

/// Allows as many open files as so many idle clients need, to us and to what we start; with two for
/// each there are enough for every target.
///
/// Errors: the system allows fewer.
pub(super) fn allow_files(clients: u32) -> anyhow::Result<()> {
    let (allowed, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let needed = 2 * u64::from(clients) + FILES_BESIDES;
    anyhow::ensure!(
        needed <= most,
        "{clients} idle clients need {needed} open files and {most} are allowed (ulimit -Hn); choose fewer with --idle"
    );
    if allowed < needed {
        setrlimit(Resource::RLIMIT_NOFILE, needed, most)?;
    }
    Ok(())
}

/// Opens so many clients that each run one query and keep quiet, and says what the process grew by;
/// nothing for a target without a process of its own.
///
/// A client that is refused ends the opening, and the figure is of those before it.
pub(super) async fn measure(front: &Front, clients: u32) -> anyhow::Result<Option<Idle>> {
    let Some(process) = front.process() else { return Ok(None) };
    let url = front.url(Protocol::Simple);
    // What the first client of all brings in is not of each.
    let first = one_query(url.clone(), 1).await?;
    sleep(IDLE_AFTER).await;
    let before_bytes = process.resident_bytes()?;
    let mut held: Vec<Client> = Vec::new();
    let mut refusal = None;
    while refusal.is_none() && (held.len() as u32) < clients {
        let number = held.len() as u32;
        let mut opening = JoinSet::new();
        for number in number..clients.min(number + AT_ONCE) {
            opening.spawn(one_query(url.clone(), number + 1));
        }
        while let Some(opened) = opening.join_next().await {
            match opened? {
                Ok(client) => held.push(client),
                Err(error) => refusal = Some(format!("{error:#}")),
            }
        }
    }
    sleep(IDLE_AFTER).await;
    let with_bytes = process.resident_bytes()?;
    let opened = held.len() as u32;
    drop((first, held));
    sleep(IDLE_AFTER).await;
    let after_bytes = process.resident_bytes()?;
    Ok(Some(Idle {
        target: front.target.clone(),
        asked: clients,
        opened,
        refusal,
        before_bytes,
        with_bytes,
        after_bytes,
    }))
}

/// A client that has run one query. By the simple protocol, so that whoever pools by transaction
/// serves it too; each with another account, as clients have.
async fn one_query(url: String, account: u32) -> anyhow::Result<Client> {
    let client = client::connect(&url).await?;
    let query = format!("SELECT abalance FROM pgbench_accounts WHERE aid = {account}");
    client.simple_query(&query).await.context("an idle client's query")?;
    Ok(client)
}
