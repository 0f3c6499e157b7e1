//! Periodic audits, by the gateway itself.
//!
//! Owns: when they run, and where the last one's report is: in the log, and in `tutti.audit` on
//! node 1 for `tutti status`.
//! Never: runs unless the configuration says so.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tutti_link::connection::NodeConnection;
use tutti_sql::catalog::{NodeId, quote_literal};

use super::report::{Progress, Report};
use super::{Memory, look};
use crate::catalog::Answer;
use crate::cluster::Cluster;
use crate::error::GatewayError;

/// Audits forever; not at all if no interval is configured.
pub async fn run(cluster: Arc<Cluster>) {
    let seconds = cluster.config.audit.interval_s;
    if seconds == 0 {
        return;
    }
    let mut rounds = interval(Duration::from_secs(seconds));
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is immediate.
    rounds.tick().await;
    loop {
        rounds.tick().await;
        match look(&cluster.config, Memory::Own(&cluster), &Progress::silent()).await {
            Ok(report) => {
                log(&report);
                if let Err(error) = keep(&cluster, &report).await {
                    tracing::warn!(%error, "cannot keep the audit's report");
                }
            }
            Err(error) => tracing::warn!(%error, "the audit could not be made"),
        }
    }
}

fn log(report: &Report) {
    for finding in &report.findings {
        tracing::error!(%finding, "audit");
    }
    for unchecked in &report.unchecked {
        tracing::warn!(what = unchecked.what, why = unchecked.why, "audit: not checked");
    }
    let (tables, rows, seconds) = (report.tables, report.rows, report.seconds);
    tracing::info!(findings = report.findings.len(), tables, rows, seconds, "audited");
}

async fn keep(cluster: &Cluster, report: &Report) -> Result<(), GatewayError> {
    let list = |texts: Vec<String>| {
        let texts: Vec<_> = texts.iter().map(|text| quote_literal(text)).collect();
        format!("ARRAY[{}]::pg_catalog.text[]", texts.join(", "))
    };
    let findings = list(report.findings.iter().map(ToString::to_string).collect());
    let unchecked =
        list(report.unchecked.iter().map(|it| format!("{}: {}", it.what, it.why)).collect());
    let mut home = cluster.connections.checkout(NodeId::HOME).await?;
    let sql = format!(
        "INSERT INTO tutti.audit (seconds, findings, unchecked) VALUES ({}, {findings}, {unchecked})
ON CONFLICT (only_row) DO UPDATE SET at = pg_catalog.now(), seconds = excluded.seconds,
    findings = excluded.findings, unchecked = excluded.unchecked",
        report.seconds
    );
    home.rows(&sql).await?;
    cluster.connections.release(home);
    Ok(())
}

/// What the last background audit found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LastAudit {
    /// When, in node 1's format.
    pub at: String,
    /// Each in words.
    pub findings: Vec<String>,
    /// What could not be checked.
    pub unchecked: Vec<String>,
}

/// Reads what the last audit left on node 1; `None` if there was none.
pub async fn last(home: &mut NodeConnection) -> Result<Option<LastAudit>, GatewayError> {
    const LAST: &str = "SELECT 'at', at::pg_catalog.text FROM tutti.audit
UNION ALL SELECT 'finding', f FROM tutti.audit, pg_catalog.unnest(findings) AS f
UNION ALL SELECT 'unchecked', u FROM tutti.audit, pg_catalog.unnest(unchecked) AS u";
    let rows = home.rows(LAST).await?;
    let answer = Answer { node: home.node(), what: "the last audit", rows: &rows };
    if answer.is_empty() {
        return Ok(None);
    }
    let mut last = LastAudit::default();
    for row in 0..answer.len() {
        let text = answer.text(row, 1)?.to_owned();
        match answer.text(row, 0)? {
            "at" => last.at = text,
            "finding" => last.findings.push(text),
            _ => last.unchecked.push(text),
        }
    }
    Ok(Some(last))
}
