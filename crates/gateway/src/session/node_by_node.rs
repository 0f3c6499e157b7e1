//! Committing a transaction whose client is content that each node commits its part by itself
//! (`tutti.commit = 'base'`).
//!
//! Owns: driving [`NodeByNode`] over the session's links, and what the client is told.
//! Never: says which transactions are committed so (`Transaction::must_be_whole` does).
//! Start reading at [`Session::commit_node_by_node`]; the rules are in docs/protocol/base.md.

use std::collections::BTreeMap;

use tutti_cluster::numbers::{sql_node, txn_node};
use tutti_link::Rows;
use tutti_link::connection::{NodeError, UNKNOWN_OUTCOME};
use tutti_sql::catalog::NodeId;
use tutti_txn::NodeByNode;
use tutti_txn::node_by_node::{Effect, Event, Fate, Outcome};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use super::Session;
use crate::client::failure::Failure;

/// Why nodes have not committed, or are not known to have.
type Reasons = BTreeMap<NodeId, ErrorFields>;

impl Session {
    /// Has each of `writers` commit by itself, all at once.
    ///
    /// Errors: nothing is committed; or SQLSTATE 08007: some nodes have committed, or may have, and others have
    /// not. The detail says which.
    pub(super) async fn commit_node_by_node(&mut self, writers: &[NodeId]) -> Result<(), Failure> {
        // As late as nothing is committed yet, a node that is known to be lost saves the others.
        self.insist_on_all(writers)?;
        let mut reasons = Reasons::new();
        let mut effects = Vec::new();
        let nodes = writers.iter().copied().map(txn_node).collect();
        let mut commit = NodeByNode::begin(nodes, &mut effects);
        let told = 'driving: loop {
            let mut events = Vec::new();
            let mut commits = Vec::new();
            for effect in effects.drain(..) {
                match effect {
                    Effect::WaitForCauses(nodes) => {
                        for node in nodes {
                            self.tx.wait_for_visible(sql_node(node)).await?;
                        }
                        events.push(Event::CausesShown);
                    }
                    Effect::Pass => {
                        self.tx.pass_rooms().await?;
                        self.insist_on_all(writers)?;
                        events.push(Event::Passed);
                    }
                    Effect::Commit(node) => commits.push((sql_node(node), "COMMIT".to_owned())),
                    Effect::Reply(outcome) => break 'driving told(outcome, reasons),
                }
            }
            for (node, answered) in self.tx.on_links(commits).await {
                self.pass_notices(node);
                events.push(self.heard(node, answered, &mut reasons));
            }
            events.into_iter().for_each(|event| commit.step(event, &mut effects));
        };
        // What was read elsewhere cannot undo what is committed.
        let _ = self.commit_readers(&writers.iter().copied().collect()).await;
        told
    }

    /// Errors: 08006 if a node's part is lost already.
    fn insist_on_all(&self, writers: &[NodeId]) -> Result<(), Failure> {
        let availability = &self.tx.registry.cluster.availability;
        let is_there =
            |node: &NodeId| self.tx.links.contains_key(node) && availability.is_there(*node);
        let Some(lost) = writers.iter().find(|node| !is_there(node)) else { return Ok(()) };
        let message = format!("connection to node {lost} lost before the commit");
        Err(ErrorFields::error(sqlstate::CONNECTION_FAILURE, message)
            .with(b'H', "Nothing was committed; retrying is safe.")
            .into())
    }

    /// What a node's answer to COMMIT means.
    fn heard(
        &self,
        node: NodeId,
        answered: Result<Vec<Rows>, NodeError>,
        reasons: &mut Reasons,
    ) -> Event {
        let number = txn_node(node);
        match answered {
            Ok(rows) if rows.first().is_some_and(|rows| rows.tag == "ROLLBACK") => {
                let message = "the transaction was rolled back by its node";
                reasons.insert(node, ErrorFields::error("40000", message));
                Event::Refused(number)
            }
            Ok(_) => Event::Committed(number),
            // A FATAL is no answer: it is followed by the end of the connection.
            Err(NodeError::Refused(fields)) if self.tx.links.contains_key(&node) => {
                reasons.insert(node, *fields);
                Event::Refused(number)
            }
            Err(lost) => {
                reasons.insert(node, ErrorFields::error(UNKNOWN_OUTCOME, lost.to_string()));
                Event::Lost(number)
            }
        }
    }
}

/// What the client is told.
fn told(outcome: Outcome, reasons: Reasons) -> Result<(), Failure> {
    let parts = match outcome {
        Outcome::Committed => return Ok(()),
        // Each has refused for itself; whose reason is told does not depend on who was first.
        Outcome::Aborted => {
            let first = reasons.into_values().next();
            return Err(first.expect("who refuses says why").into());
        }
        Outcome::Parted(parts) => parts,
    };
    let nodes = |wanted: Fate, words: &str| {
        let of_node = |(node, _): (&tutti_txn::NodeId, &Fate)| {
            let node = sql_node(*node);
            match reasons.get(&node) {
                Some(why) => format!("node {node} ({})", why.message()),
                None => format!("node {node}"),
            }
        };
        let nodes: Vec<_> =
            parts.iter().filter(|(_, fate)| **fate == wanted).map(of_node).collect();
        (!nodes.is_empty()).then(|| format!("{words} {}", nodes.join(", ")))
    };
    let said = [
        nodes(Fate::Committed, "committed on"),
        nodes(Fate::RolledBack, "not committed on"),
        nodes(Fate::Unknown, "not known of"),
    ];
    let message = match parts.values().any(|fate| *fate == Fate::Unknown) {
        true => "it is not known of all nodes whether they have committed this transaction",
        false => "this transaction is committed on some of its nodes, and not on others",
    };
    let detail = format!("It is {}.", said.into_iter().flatten().collect::<Vec<_>>().join("; "));
    let hint = "With tutti.commit = 'base' each node commits by itself, and nothing is made up for: look for \
                its rows, and repeat or undo what is missing.";
    Err(ErrorFields::error(UNKNOWN_OUTCOME, message).with(b'D', detail).with(b'H', hint).into())
}
