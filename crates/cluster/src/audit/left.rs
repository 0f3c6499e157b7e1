//! What gateways leave behind: prepared transactions, decisions' records, tickets, backends.
//!
//! Owns: which of these are too old, or contradict each other.
//! Never: removes anything; a gateway does.
//! Start reading at [`check`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tutti_configuration::Config;
use tutti_link::connection::{NodeConnection, Rows};
use tutti_sql::catalog::NodeId;
use tutti_txn::gid::Gid;

use super::moment::{Moment, NAME};
use super::report::{Finding, Kind, Report};
use crate::catalog::Answer;
use crate::error::GatewayError;
use crate::recovery;

/// A gateway settles transactions sooner.
const SETTLED_WITHIN_S: f64 = 60.0;
/// How long backends may outlive their gateway.
const BACKENDS_END_WITHIN_S: f64 = 10.0;
/// A live gateway retakes a lost lock within this time.
const LOCK_RETAKEN_WITHIN: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Records that are kept on purpose are kept for seven days.
const RECORDS_KEPT_S: f64 = 8.0 * 86_400.0;
/// More tickets than this mean that none are being removed.
const TICKETS_MAX: u64 = 100_000;

const PREPARED: &str = "SELECT gid, extract(epoch FROM clock_timestamp() - prepared), owner
FROM pg_prepared_xacts WHERE database = current_database();";
const DECISIONS: &str = "SELECT gid, decision, extract(epoch FROM clock_timestamp() - at)
FROM tutti.decision;";
const TICKETS: &str = "SELECT count(*) FROM (SELECT FROM tutti.ticket LIMIT 100001) AS tickets;";

struct Prepared {
    age_s: f64,
    owner: String,
}

struct Record {
    node: NodeId,
    decision: String,
    age_s: f64,
}

/// Lists and judges what was left.
pub(super) async fn check(
    config: &Config,
    moment: &mut Moment,
    report: &mut Report,
) -> Result<(), GatewayError> {
    let backends = format!(
        "SELECT pid, application_name, state, extract(epoch FROM clock_timestamp() - backend_start)
FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'tutti %'
    AND application_name NOT IN ('{NAME}', 'tutti status') AND pid <> pg_backend_pid();"
    );
    let sql = format!("{PREPARED} {DECISIONS} {TICKETS} {backends}");
    let mut prepared: BTreeMap<Gid, BTreeMap<NodeId, Prepared>> = BTreeMap::new();
    let mut records: BTreeMap<Gid, Vec<Record>> = BTreeMap::new();
    let answers = moment.workers.ask_all(&sql).await;
    let mut found = Vec::new();
    for (node, answer) in answers {
        let results = match answer {
            Ok(results) => results,
            Err(error) => {
                report.unchecked(format!("what is left behind on {node}"), error.to_string());
                continue;
            }
        };
        let [transactions, decisions, tickets, backends] = results.as_slice() else {
            return Err(GatewayError::Unreadable { node, what: "what is left behind" });
        };
        read_prepared(config, node, transactions, &mut prepared, report)?;
        read_records(node, decisions, &mut records, report)?;
        let tickets: u64 = Answer { node, what: "tickets", rows: tickets }.number(0, 0)?;
        if tickets > TICKETS_MAX {
            let message =
                format!("more than {TICKETS_MAX} tickets; its gateway should remove them");
            report.find(Finding::new(Kind::Tickets, Some(node), "tutti.ticket".into(), message));
        }
        read_backends(node, backends, &mut found)?;
    }
    if let Some(home) = moment.workers.0.get_mut(&NodeId::HOME) {
        report.gateway = Some(is_served(home, !found.is_empty()).await?);
    }
    if report.gateway == Some(false) {
        found.into_iter().for_each(|finding| report.find(finding));
    }
    judge_prepared(&prepared, &records, report);
    judge_records(&prepared, &records, report);
    Ok(())
}

fn read_prepared(
    config: &Config,
    node: NodeId,
    rows: &Rows,
    prepared: &mut BTreeMap<Gid, BTreeMap<NodeId, Prepared>>,
    report: &mut Report,
) -> Result<(), GatewayError> {
    let answer = Answer { node, what: "prepared transactions", rows };
    for row in 0..answer.len() {
        let text = answer.text(row, 0)?;
        let found = Prepared { age_s: answer.number(row, 1)?, owner: answer.text(row, 2)?.into() };
        match text.parse::<Gid>() {
            Ok(gid) if gid.cluster.as_str() == config.cluster => {
                prepared.entry(gid).or_default().insert(node, found);
            }
            // It may be a client's own, and hold locks for as long as its owner wants.
            _ => report.notes.push(format!(
                "{node}: transaction {text:?} of {} is prepared for {:.0} s, and not this cluster's",
                found.owner, found.age_s
            )),
        }
    }
    Ok(())
}

fn read_records(
    node: NodeId,
    rows: &Rows,
    records: &mut BTreeMap<Gid, Vec<Record>>,
    report: &mut Report,
) -> Result<(), GatewayError> {
    let answer = Answer { node, what: "decisions", rows };
    for row in 0..answer.len() {
        let text = answer.text(row, 0)?;
        let decision = answer.text(row, 1)?.to_owned();
        let Ok(gid) = text.parse::<Gid>() else {
            let message = format!("a record ({decision}) of what is no transaction of Tutti's");
            report.find(Finding::new(Kind::Decision, Some(node), text.to_owned(), message));
            continue;
        };
        if gid.anchor.0 != node.0 {
            let message =
                format!("a record ({decision}) that belongs to its anchor {}", gid.anchor);
            report.find(Finding::new(Kind::Decision, Some(node), text.to_owned(), message));
        }
        let record = Record { node, decision, age_s: answer.number(row, 2)? };
        records.entry(gid).or_default().push(record);
    }
    Ok(())
}

fn judge_prepared(
    prepared: &BTreeMap<Gid, BTreeMap<NodeId, Prepared>>,
    records: &BTreeMap<Gid, Vec<Record>>,
    report: &mut Report,
) {
    for (gid, nodes) in prepared {
        let decided = records.get(gid).and_then(|records| records.first());
        let decided = decided.map_or("not decided".to_owned(), |it| it.decision.clone());
        for (node, Prepared { age_s, .. }) in nodes {
            let why = match report.gateway {
                Some(true) if *age_s < SETTLED_WITHIN_S => continue,
                Some(true) => "the gateway should have settled it",
                Some(false) => "no gateway runs; the next one settles it when it starts",
                None if *age_s < SETTLED_WITHIN_S => continue,
                None => "node 1 does not answer, so nobody can settle it",
            };
            let message = format!("prepared for {age_s:.0} s and {decided}, with its locks: {why}");
            report.find(Finding::new(Kind::Prepared, Some(*node), gid.to_string(), message));
        }
    }
}

fn judge_records(
    prepared: &BTreeMap<Gid, BTreeMap<NodeId, Prepared>>,
    records: &BTreeMap<Gid, Vec<Record>>,
    report: &mut Report,
) {
    for (gid, records) in records {
        let said: BTreeSet<_> = records.iter().map(|record| record.decision.as_str()).collect();
        if said.len() > 1 {
            let message = "it is recorded as committed and as aborted".to_owned();
            let node = records.first().map(|record| record.node);
            report.find(Finding::new(Kind::Decision, node, gid.to_string(), message));
        }
        for record in records {
            if RECORDS_KEPT_S < record.age_s && !prepared.contains_key(gid) {
                let days = Duration::from_secs_f64(record.age_s).as_secs() / 86_400;
                let message = format!("its record ({}) is {days} days old", record.decision);
                report.find(Finding::new(
                    Kind::Decision,
                    Some(record.node),
                    gid.to_string(),
                    message,
                ));
            }
        }
    }
}

/// A gateway's own connections, which are leftovers where no gateway runs. Those that run clients'
/// statements have names that clients choose.
fn read_backends(node: NodeId, rows: &Rows, found: &mut Vec<Finding>) -> Result<(), GatewayError> {
    let answer = Answer { node, what: "backends", rows };
    for row in 0..answer.len() {
        let (pid, name) = (answer.text(row, 0)?, answer.text(row, 1)?);
        let (state, age_s): (_, f64) =
            (answer.optional(row, 2).unwrap_or("-"), answer.number(row, 3)?);
        if BACKENDS_END_WITHIN_S < age_s {
            let message = format!(
                "a gateway's backend (\"{name}\", {state}) for {age_s:.0} s, and no gateway runs"
            );
            found.push(Finding::new(Kind::Backend, Some(node), format!("process {pid}"), message));
        }
    }
    Ok(())
}

/// Whether a gateway runs. One that has just lost its lock, with its connection to node 1, retakes it
/// within a second or so: where something `speaks_for_one`, that is waited for.
async fn is_served(home: &mut NodeConnection, speaks_for_one: bool) -> Result<bool, GatewayError> {
    let give_up = Instant::now() + LOCK_RETAKEN_WITHIN;
    loop {
        let is_served = recovery::is_served(home).await?;
        if is_served || !speaks_for_one || give_up < Instant::now() {
            return Ok(is_served);
        }
        sleep(POLL_INTERVAL).await;
    }
}
