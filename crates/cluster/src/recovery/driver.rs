//! Driving the recovery machine for one transaction: its effects are executed, their answers become
//! events.
//!
//! Owns: the SQL of each effect, and what an answer means.
//! Never: decides anything; [`tutti_txn::Recovery`] does.
//! Start reading at [`Recoverer::settle`].

use std::collections::BTreeSet;
use std::time::Duration;

use tutti_link::connection::{Durability, NodeConnection, NodeError, open_own};
use tutti_sql::catalog::NodeId;
use tutti_txn::Recovery;
use tutti_txn::decision::Decision;
use tutti_txn::gid::{Gid, NodeId as TxnNodeId};
use tutti_txn::recovery::{Effect, Event, Phase};

use super::Recoverer;
use crate::catalog::Answer;
use crate::error::GatewayError;
use crate::numbers::{sql_node, txn_node};

/// Between two attempts at a node that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// An old backend that is still deciding gets this long before it is ended.
const DECIDING_PATIENCE: Duration = Duration::from_secs(3);
/// How long to wait for the end of a backend, in milliseconds.
const END_TIMEOUT_MS: u32 = 5_000;

impl Recoverer {
    /// The connection to a node, opened if it is not open.
    pub(super) async fn connection(
        &mut self,
        node: NodeId,
    ) -> Result<&mut NodeConnection, GatewayError> {
        if self.connections.get(&node).is_none_or(NodeConnection::is_broken) {
            let connection = self.open(node).await?;
            self.connections.insert(node, connection);
        }
        Ok(self.connections.get_mut(&node).expect("just put there"))
    }

    async fn open(&self, node: NodeId) -> Result<NodeConnection, GatewayError> {
        // Callers take nodes from the configuration, or have checked them.
        Ok(open_own(self.endpoints.of(node), "tutti recovery", Durability::Full).await?)
    }

    /// Settles one transaction whose coordinator abandoned it, on the nodes that may hold a part of
    /// it. Tries again until `patience` is over.
    ///
    /// Errors: [`GatewayError::Settle`] with the last failure when `patience` is over; what was done
    /// by then stays done, and settling again continues from there.
    pub async fn settle(
        &mut self,
        gid: &Gid,
        nodes: &BTreeSet<NodeId>,
        patience: Duration,
    ) -> Result<Decision, GatewayError> {
        let mut open = nodes.clone();
        self.settle_parts(gid, &mut open, patience).await
    }

    /// The same; `open` is left, however it ends, with the nodes that may still hold a part.
    pub(super) async fn settle_parts(
        &mut self,
        gid: &Gid,
        open: &mut BTreeSet<NodeId>,
        patience: Duration,
    ) -> Result<Decision, GatewayError> {
        let configured = self.nodes();
        if let Some(anchor) = Some(sql_node(gid.anchor)).filter(|node| !configured.contains(node)) {
            return Err(GatewayError::UnknownAnchor { gid: gid.to_string(), anchor });
        }
        let give_up = tokio::time::Instant::now() + patience;
        let mut effects = Vec::new();
        let parts = open.iter().copied().map(txn_node).collect();
        let mut recovery = Recovery::begin(gid.clone(), parts, &mut effects);
        let mut last_failure = None;
        while !effects.is_empty() {
            // The oldest first, so that an unreachable node does not keep the others waiting.
            let effect = effects.remove(0);
            let answered = match effect {
                Effect::Announce(decision) => {
                    open.clear();
                    return Ok(decision);
                }
                Effect::RetryLater(node) => {
                    if give_up < tokio::time::Instant::now()
                        && let Some((node, source)) = last_failure.take()
                    {
                        return Err(GatewayError::Settle { gid: gid.to_string(), node, source });
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                    Ok(Event::RetryDue(node))
                }
                Effect::ReadOrRefuseDecision => {
                    self.read_or_refuse_decision(gid).await.map(Event::DecisionFound)
                }
                Effect::CommitPrepared(node) => {
                    self.finish(gid, node, "COMMIT", Event::ParticipantCommitted(node)).await
                }
                Effect::RollbackPrepared(node) => {
                    self.finish(gid, node, "ROLLBACK", Event::ParticipantRolledBack(node)).await
                }
                Effect::ListPrepared(node) => self.inspect(gid, node).await,
            };
            let event = match (answered, effect) {
                (Ok(event), _) => event,
                (Err(GatewayError::Node(source)), effect) => {
                    let node = place_of(effect).unwrap_or(gid.anchor);
                    tracing::warn!(%gid, %node, error = %source, "a node did not help to settle");
                    last_failure = Some((sql_node(node), source));
                    match effect {
                        Effect::ReadOrRefuseDecision => Event::AnchorUnreachable,
                        _ => Event::ParticipantLost(node),
                    }
                }
                (Err(error), _) => return Err(error),
            };
            recovery.step(event, &mut effects);
            if let Phase::Applying { open: still, .. } = recovery.phase() {
                open.retain(|node| still.contains_key(&txn_node(*node)));
            }
        }
        unreachable!("a recovery that is not finished always has something to do")
    }

    /// What the record says about one transaction; without a record, aborts it durably. Waits for an
    /// old backend of the anchor that is still deciding, and ends it if that takes long.
    ///
    /// For a coordinator that lost the anchor during its COMMIT.
    pub async fn read_or_refuse_decision(&mut self, gid: &Gid) -> Result<Decision, GatewayError> {
        let anchor = sql_node(gid.anchor);
        if !self.nodes().contains(&anchor) {
            return Err(GatewayError::UnknownAnchor { gid: gid.to_string(), anchor });
        }
        let insert = format!(
            "INSERT INTO tutti.decision (gid, decision) VALUES ('{gid}', 'aborted') \
             ON CONFLICT DO NOTHING"
        );
        // Two strings, hence two transactions: the second sees what the first waited for.
        self.run_or_end_blocker(anchor, &insert).await?;
        let read = format!("SELECT decision FROM tutti.decision WHERE gid = '{gid}'");
        let rows = self.connection(anchor).await?.rows(&read).await?;
        let answer = Answer { node: anchor, what: "a decision", rows: &rows };
        let text = answer.text(0, 0)?;
        text.parse().map_err(|_| GatewayError::BadDecision {
            gid: gid.to_string(),
            node: anchor,
            found: text.to_owned(),
        })
    }

    /// Runs `sql`; if it waits long for another backend, ends that backend. Its gateway is dead or
    /// has abandoned the connection, and whether it has committed is then known.
    async fn run_or_end_blocker(&mut self, node: NodeId, sql: &str) -> Result<(), GatewayError> {
        let mut second = None;
        self.connection(node).await?;
        let mut connection = self.connections.remove(&node).expect("just opened");
        let (waiting, _) = connection.backend_key();
        let outcome = {
            let mut running = std::pin::pin!(connection.query(sql));
            loop {
                tokio::select! {
                    outcome = &mut running => break outcome,
                    () = tokio::time::sleep(DECIDING_PATIENCE) => {
                        let other = match &mut second {
                            Some(other) => other,
                            none => none.insert(self.open(node).await?),
                        };
                        let end = format!(
                            "SELECT pg_catalog.pg_terminate_backend(pid, {END_TIMEOUT_MS})
                             FROM pg_catalog.unnest(pg_catalog.pg_blocking_pids({waiting})) AS pid
                             WHERE pid > 0"
                        );
                        other.rows(&end).await?;
                    }
                }
            }
        };
        if outcome.is_ok() {
            self.connections.insert(node, connection);
        }
        Ok(outcome.map(drop)?)
    }

    async fn finish(
        &mut self,
        gid: &Gid,
        node: TxnNodeId,
        verb: &str,
        done: Event,
    ) -> Result<Event, GatewayError> {
        let connection = self.connection(sql_node(node)).await?;
        match connection.query(&format!("{verb} PREPARED '{gid}'")).await {
            Ok(_) => Ok(done),
            Err(NodeError::Refused(fields)) if fields.sqlstate() == "42704" => {
                Ok(Event::ParticipantUnknown(node))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends backends that are preparing this transaction, then checks whether it is prepared.
    async fn inspect(&mut self, gid: &Gid, node: TxnNodeId) -> Result<Event, GatewayError> {
        let fence = format!(
            "SELECT pg_catalog.pg_terminate_backend(pid, {END_TIMEOUT_MS})
FROM pg_catalog.pg_stat_activity
WHERE datname = pg_catalog.current_database() AND state = 'active'
    AND query ~* '^\\s*PREPARE\\s+TRANSACTION' AND pg_catalog.strpos(query, '''{gid}''') > 0"
        );
        let look = format!(
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_prepared_xacts
WHERE gid = '{gid}' AND database = pg_catalog.current_database())"
        );
        let connection = self.connection(sql_node(node)).await?;
        connection.rows(&fence).await?;
        let rows = connection.rows(&look).await?;
        let answer = Answer { node: sql_node(node), what: "a prepared transaction", rows: &rows };
        Ok(Event::Listed { node, prepared: answer.boolean(0, 0)? })
    }
}

/// The node that an effect concerns; `None` for the anchor's.
fn place_of(effect: Effect) -> Option<TxnNodeId> {
    match effect {
        Effect::CommitPrepared(node)
        | Effect::RollbackPrepared(node)
        | Effect::ListPrepared(node)
        | Effect::RetryLater(node) => Some(node),
        Effect::ReadOrRefuseDecision | Effect::Announce(_) => None,
    }
}
