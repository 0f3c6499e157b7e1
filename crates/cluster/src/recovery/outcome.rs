//! Questions about single transactions: `tutti_outcome('gid')`, and what is in doubt now.
//!
//! Owns: what may be answered, and when it is not known.
//! Never: settles a transaction whose coordinator lives.
//! Start reading at [`outcome`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tokio::time::timeout;
use tutti_sql::catalog::{NodeId, quote_literal};
use tutti_txn::decision::Decision;
use tutti_txn::gid::Gid;
use tutti_wire::error_fields::ErrorFields;

use super::Recoverer;
use crate::catalog::Answer;
use crate::cluster::Cluster;
use crate::error::GatewayError;
use crate::numbers::{is_of, sql_node};

/// How long the nodes may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
const SETTLE_PATIENCE: Duration = Duration::from_secs(5);

/// What became of a transaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// Decided.
    Decided(Decision),
    /// Its coordinator is running.
    InProgress,
    /// There is no record, and nothing of it is prepared anywhere. A client that was told 08007
    /// does not get this answer while records are kept: recovery records what it finds.
    Unknown,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Decided(decision) => decision.as_str(),
            Self::InProgress => "in progress",
            Self::Unknown => "unknown",
        })
    }
}

/// What became of the transaction that `text` names; settles it if nothing else is about to.
///
/// Errors: 22023 if it names none of this cluster's; 57P03 if a node that must be asked is
/// unreachable.
pub async fn outcome(cluster: &Cluster, text: &str) -> Result<Fate, ErrorFields> {
    let gid = parse(cluster, text)?;
    // Checked first: a coordinator that ends meanwhile has recorded what it decided.
    if cluster.coordinators.contains(&gid) {
        return Ok(Fate::InProgress);
    }
    let mut recoverer = Recoverer::of(cluster);
    let found = timeout(PATIENCE, find_out(cluster, &mut recoverer, &gid)).await;
    let unanswered = |why: String| {
        ErrorFields::error("57P03", "the outcome of the transaction cannot be found out now")
            .with(b'D', why)
            .with(b'H', "Ask again when the nodes can be reached.")
    };
    match found {
        Ok(Ok(fate)) => Ok(fate),
        Ok(Err(error)) => Err(unanswered(error.to_string())),
        Err(_) => Err(unanswered("A node does not answer.".to_owned())),
    }
}

fn parse(cluster: &Cluster, text: &str) -> Result<Gid, ErrorFields> {
    let invalid = |message: String| {
        ErrorFields::error("22023", message)
            .with(b'H', "The identifier is in the hint of the error 08007.")
    };
    let gid: Gid = text.parse().map_err(|error| invalid(format!("{error}")))?;
    let is_ours = gid.cluster == *cluster.tag()
        && usize::from(gid.anchor.0) <= cluster.config.nodes.len()
        && gid.incarnation <= cluster.incarnation();
    if !is_ours {
        return Err(invalid(format!("{gid} is not a transaction of this cluster")));
    }
    Ok(gid)
}

async fn find_out(
    cluster: &Cluster,
    recoverer: &mut Recoverer,
    gid: &Gid,
) -> Result<Fate, GatewayError> {
    if let Some(decision) = recoverer.read_decision(gid).await? {
        return Ok(Fate::Decided(decision));
    }
    let mut nodes = BTreeSet::new();
    for node in recoverer.nodes() {
        let listed = recoverer.list_prepared_on(node).await?;
        if listed.iter().any(|(found, _)| found == gid) {
            nodes.insert(node);
        }
    }
    if cluster.coordinators.contains(gid) {
        // A gid that was guessed before it was assigned.
        return Ok(Fate::InProgress);
    }
    if nodes.is_empty() && !cluster.unsettled.contains(gid) {
        // Settled between the two looks?
        let decision = recoverer.read_decision(gid).await?;
        return Ok(decision.map_or(Fate::Unknown, Fate::Decided));
    }
    recoverer.settle(gid, &nodes, SETTLE_PATIENCE).await.map(Fate::Decided)
}

/// A transaction that is prepared somewhere.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InDoubt {
    /// Which transaction.
    pub gid: Gid,
    /// On which nodes.
    pub nodes: BTreeSet<NodeId>,
    /// Since when, by the first of these nodes.
    pub since: String,
    /// What the record says; `None`: nothing, or its anchor does not answer.
    pub decision: Option<Decision>,
}

impl InDoubt {
    /// The nodes in one text.
    pub fn nodes_text(&self) -> String {
        self.nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// What is prepared on the nodes that answer: in doubt, or just being committed.
pub async fn list_in_doubt(recoverer: &mut Recoverer) -> Result<Vec<InDoubt>, GatewayError> {
    let mut found: BTreeMap<Gid, InDoubt> = BTreeMap::new();
    for node in recoverer.nodes() {
        let listed = match timeout(SETTLE_PATIENCE, recoverer.list_prepared_on(node)).await {
            Ok(Ok(listed)) => listed,
            // That it is unreachable is reported elsewhere.
            Ok(Err(GatewayError::Node(_))) | Err(_) => continue,
            Ok(Err(error)) => return Err(error),
        };
        for (gid, since) in listed {
            let new = InDoubt { gid: gid.clone(), nodes: BTreeSet::new(), since, decision: None };
            found.entry(gid).or_insert(new).nodes.insert(node);
        }
    }
    for doubt in found.values_mut() {
        let read = timeout(SETTLE_PATIENCE, recoverer.read_decision(&doubt.gid)).await;
        doubt.decision = read.ok().and_then(Result::ok).flatten();
    }
    Ok(found.into_values().collect())
}

/// A prepared transaction that is not this cluster's: a client's own, or made directly on a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Foreign {
    /// As its owner named it.
    pub gid: String,
    /// On which node.
    pub node: NodeId,
    /// Its owner.
    pub owner: String,
    /// Since when.
    pub since: String,
}

/// What others have prepared on the nodes that answer: it is left alone, but holds locks and slots.
pub async fn list_foreign(recoverer: &mut Recoverer) -> Result<Vec<Foreign>, GatewayError> {
    let mut found = Vec::new();
    for node in recoverer.nodes() {
        match timeout(SETTLE_PATIENCE, recoverer.list_foreign_on(node)).await {
            Ok(Ok(listed)) => found.extend(listed),
            // That it is unreachable is reported elsewhere.
            Ok(Err(GatewayError::Node(_))) | Err(_) => (),
            Ok(Err(error)) => return Err(error),
        }
    }
    Ok(found)
}

impl Recoverer {
    async fn list_foreign_on(&mut self, node: NodeId) -> Result<Vec<Foreign>, GatewayError> {
        let list = "SELECT gid, owner, prepared FROM pg_catalog.pg_prepared_xacts
WHERE database = pg_catalog.current_database() ORDER BY prepared, gid";
        let rows = self.connection(node).await?.rows(list).await?;
        let answer = Answer { node, what: "prepared transactions", rows: &rows };
        let mut listed = Vec::new();
        for row in 0..answer.len() {
            let gid = answer.text(row, 0)?;
            if gid.parse::<Gid>().is_ok_and(|gid| self.may_be_ours(&gid)) {
                continue;
            }
            let (owner, since) = (answer.text(row, 1)?.to_owned(), answer.text(row, 2)?.to_owned());
            listed.push(Foreign { gid: gid.to_owned(), node, owner, since });
        }
        Ok(listed)
    }

    fn may_be_ours(&self, gid: &Gid) -> bool {
        gid.cluster == self.cluster && is_of(gid, &self.nodes())
    }

    /// What the record says now. `None` is not final: it may be written a moment later.
    async fn read_decision(&mut self, gid: &Gid) -> Result<Option<Decision>, GatewayError> {
        let node = sql_node(gid.anchor);
        if !self.nodes().contains(&node) {
            return Err(GatewayError::UnknownAnchor { gid: gid.to_string(), anchor: node });
        }
        let read = format!(
            "SELECT decision FROM tutti.decision WHERE gid = {}",
            quote_literal(&gid.to_string())
        );
        let rows = self.connection(node).await?.rows(&read).await?;
        let answer = Answer { node, what: "a decision", rows: &rows };
        answer
            .optional(0, 0)
            .map(|text| {
                text.parse().map_err(|_| GatewayError::BadDecision {
                    gid: gid.to_string(),
                    node,
                    found: text.to_owned(),
                })
            })
            .transpose()
    }

    /// What of this cluster is prepared on a node, each with its time as text.
    async fn list_prepared_on(&mut self, node: NodeId) -> Result<Vec<(Gid, String)>, GatewayError> {
        let list = "SELECT gid, prepared FROM pg_catalog.pg_prepared_xacts
WHERE database = pg_catalog.current_database()";
        let rows = self.connection(node).await?.rows(list).await?;
        let answer = Answer { node, what: "prepared transactions", rows: &rows };
        let mut listed = Vec::new();
        for row in 0..answer.len() {
            match answer.text(row, 0)?.parse::<Gid>() {
                Ok(gid) if self.may_be_ours(&gid) => {
                    listed.push((gid, answer.text(row, 1)?.to_owned()));
                }
                // Not this cluster's.
                Ok(_) | Err(_) => (),
            }
        }
        Ok(listed)
    }
}
