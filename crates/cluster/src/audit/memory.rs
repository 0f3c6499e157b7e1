//! What a gateway has in memory, compared with what the nodes have.
//!
//! Owns: the gateway's answer to `tutti_check()`, and asking a running gateway for it.
//! Never: judges by anything it has not just read.
//! Start reading at [`differences`].
//!
//! Only the gateway can read its memory, so it is asked by a client's statement.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use tutti_configuration::{Address, Config, NodeConfig, NodeTls, SslMode};
use tutti_link::Endpoint;
use tutti_link::connection::{Credentials, NodeConnection};

use super::report::{Finding, Kind, Report};
use crate::catalog;
use crate::cluster::Cluster;
use crate::error::{GatewayError, in_full};

const PATIENCE: Duration = Duration::from_secs(40);
/// Reading the catalog takes less.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(20);

/// How the catalog in memory differs from what the nodes have; empty if it does not, or if the
/// schema keeps changing.
pub async fn differences(cluster: &Cluster) -> Vec<String> {
    // What plans need not know, and what another's locks have hidden, is read lazily: its absence is
    // no difference.
    let publisher = &cluster.publisher;
    let change = publisher.want_whole();
    if !publisher.wait_for(change, Instant::now() + PUBLISHED_WITHIN).await {
        return vec!["changes that were committed are not published yet".to_owned()];
    }
    catalog::check::difference(publisher, &cluster.connections).await.into_iter().collect()
}

/// Asks this gateway itself.
pub(super) async fn check_own(cluster: &Cluster, report: &mut Report) {
    for difference in differences(cluster).await {
        tell(report, difference);
    }
}

fn tell(report: &mut Report, difference: String) {
    let name = "catalog in memory".to_owned();
    report.find(Finding::new(Kind::Memory, None, name, difference));
}

/// Asks the gateway that listens at `place`, as the gateway's own role on node 1. `cluster_id` is what
/// node 1 reports: another cluster's gateway may listen there.
pub(super) async fn ask(
    config: &Config,
    place: &Address,
    cluster_id: Option<&str>,
    report: &mut Report,
) {
    let asked = timeout(PATIENCE, ask_at(config, place)).await;
    let mut not_asked = |why: String| {
        report.unchecked(
            "the catalog in the gateway's memory".to_owned(),
            format!("{why} (--gateway says where it listens)"),
        );
    };
    match asked {
        Ok(Ok((id, differences))) if Some(id.as_str()) == cluster_id => {
            for difference in differences {
                tell(report, difference);
            }
        }
        Ok(Ok(_)) => not_asked(format!("at {place} listens a gateway of another cluster")),
        Ok(Err(error)) => {
            not_asked(format!("the gateway at {place} could not be asked: {}", in_full(&error)));
        }
        Err(_) => not_asked(format!("the gateway at {place} does not answer")),
    }
}

async fn ask_at(config: &Config, place: &Address) -> Result<(String, Vec<String>), GatewayError> {
    let home = &config.nodes[0];
    let gateway = NodeConfig {
        id: home.id,
        host: place.host.clone(),
        port: place.port,
        user: home.user.clone(),
        password: home.password.clone(),
        tls: NodeTls { sslmode: Some(SslMode::Disable), ..NodeTls::default() },
        ..NodeConfig::default()
    };
    let endpoint = Endpoint::new(&gateway, &config.database);
    let credentials = Credentials::of_gateway(&gateway);
    let settings = [("application_name", super::moment::NAME), ("client_encoding", "UTF8")];
    let mut connection =
        NodeConnection::open(&endpoint, &gateway.user, &credentials, &settings).await?;
    let rows = connection.rows("SELECT id FROM tutti.cluster").await?;
    let id = rows.text(0, 0).unwrap_or_default().to_owned();
    let rows = connection.rows("SELECT * FROM tutti_check()").await?;
    connection.close();
    let differences =
        (0..rows.rows.len()).filter_map(|row| rows.text(row, 0).map(str::to_owned)).collect();
    Ok((id, differences))
}
