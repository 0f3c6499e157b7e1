//! The auditor: whether everything that must hold between the nodes does, checked on the nodes.
//!
//! Owns: what is checked, and in which order.
//! Never: changes anything of clients, blocks writers for longer than a few round trips, runs
//! user-defined code, or trusts the gateway.
//! Start reading at [`check`], then [`moment`]. `report`: what is found; `rows`: where rows are; `definitions`: what nodes
//! have in common; `left`: what gateways leave behind; `memory`: what a gateway has in memory; `background`:
//! periodic audits.

pub mod background;
mod definitions;
mod entries;
mod left;
pub mod memory;
mod moment;
mod report;
mod rows;

use std::sync::Arc;
use std::time::Instant;

use tutti_configuration::{Address, Config};

use self::moment::Moment;
pub use self::report::{Finding, Kind, Progress, Report, Unchecked};
use crate::Boxed;
use crate::cluster::Cluster;
use crate::error::GatewayError;

/// Where the running gateway is asked for what it has in memory.
#[derive(Clone, Debug)]
pub enum Gateway {
    /// It is not asked.
    Unasked,
    /// It listens here.
    At(Address),
}

/// Checks everything, with the gateway or without.
///
/// Errors: no node answers; no moment could be taken. A node that does not answer is part
/// of the report.
///
/// A box, so that not every calling program compiles it again.
pub fn check<'a>(
    config: &'a Config,
    gateway: &'a Gateway,
    progress: &'a Progress<'a>,
) -> Boxed<'a, Result<Report, GatewayError>> {
    let asked = match gateway {
        Gateway::Unasked => Memory::Unasked,
        Gateway::At(place) => Memory::At(place),
    };
    Box::pin(look(config, asked, progress))
}

/// How to reach what the gateway has in memory.
enum Memory<'a> {
    Unasked,
    At(&'a Address),
    Own(&'a Arc<Cluster>),
}

async fn look(
    config: &Config,
    memory: Memory<'_>,
    progress: &Progress<'_>,
) -> Result<Report, GatewayError> {
    let begun = Instant::now();
    let mut report = Report { cluster: config.cluster.clone(), ..Report::default() };
    let mut moment = Moment::take(config).await?;
    for (gid, written) in &moment.unapplied {
        report.notes.push(format!(
            "transaction {gid} is decided and not applied everywhere; it has written {} tables",
            written.len()
        ));
    }
    rows::check(config, &mut moment, &mut report, progress).await?;
    entries::check(config, &mut moment, &mut report).await?;
    progress.tell(|| "definitions".to_owned());
    definitions::check(&mut moment, &mut report).await?;
    left::check(config, &mut moment, &mut report).await?;
    match memory {
        Memory::Own(cluster) => memory::check_own(cluster, &mut report).await,
        Memory::At(place) if report.gateway == Some(true) => {
            let id = moment.cluster_id().await;
            memory::ask(config, place, id.as_deref(), &mut report).await;
        }
        Memory::Unasked if report.gateway == Some(true) => report.unchecked(
            "the catalog in the gateway's memory".to_owned(),
            "it was not asked".to_owned(),
        ),
        // No gateway has it in memory.
        Memory::At(_) | Memory::Unasked => (),
    }
    for (node, why) in &moment.away {
        report.unchecked(format!("node {node}"), why.clone());
    }
    moment.close();
    report.findings.sort_by(|a, b| (a.kind, &a.object, a.node).cmp(&(b.kind, &b.object, b.node)));
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}
