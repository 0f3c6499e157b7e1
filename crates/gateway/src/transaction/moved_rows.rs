//! The commit of a transaction that has taken rows to other nodes, because their keys have changed.
//!
//! Owns: carrying out what the machine says ([`tutti_txn::moved_rows`]: whom it waits for, and why), and the question
//! what the backends of sessions are doing.
//! Never: moves a row (`executor::insert` does), commits (`commit` does), decides whom to wait for.
//! Start reading at [`TransactionContext::begin_to_move`].

use std::collections::{BTreeMap, BTreeSet};
use tokio::time::{Instant, sleep};
use tutti_cluster::catalog::publisher::Hold;
use tutti_cluster::error::GatewayError;
use tutti_sql::catalog::{Relation, quote_literal};
use tutti_txn::moved_rows::{Effect, Event, LOCKS_TAKEN_AFTER, LOOK_PATIENCE, MovedRows, Seen};
use tutti_txn::placement_change::Session;
use tutti_wire::sqlstate;

use super::waiting::canceled;
use crate::client::failure::Failure;
use crate::registry::{Ending, Registry, process_ids};
use crate::transaction::TransactionContext;

impl TransactionContext {
    /// A row of this table has gone to another node in the transaction.
    pub(crate) fn note_moved(&mut self, relation: &Relation) {
        self.transaction.moved.insert(relation.oid, relation.sql_name());
    }

    /// Before the commit of a transaction that has moved rows: from here until the hold is dropped no
    /// statement begins, and none is looking for these rows. None: the schema change that it makes as well
    /// holds them.
    ///
    /// Errors: 57014 if the client cancels; a node cannot be asked.
    pub(crate) async fn begin_to_move(&mut self) -> Result<Option<Hold>, Failure> {
        if self.transaction.moved.is_empty() {
            return Ok(None);
        }
        // Two such commits must not wait for each other.
        self.activity.plan.end();
        let is_held = self.transaction.change.is_some();
        if !is_held {
            self.wait_for_pause().await?;
        }
        let begun = Instant::now();
        let registry = self.registry.clone();
        let hold = (!is_held).then(|| registry.cluster.publisher.hold());
        for (_, activity) in registry.activities.with_plans(self.process_id) {
            activity.plan.overtake_unsent();
        }
        let activity = self.activity.clone();
        let ended = tokio::select! {
            ended = end_searches(&registry, self.process_id, &self.transaction.moved) => ended,
            () = activity.cancelled() => return Err(canceled(sqlstate::QUERY_CANCELED, "user request")),
        };
        self.note_pause(begun);
        ended?;
        Ok(hold)
    }
}

/// Ends, or waits for, every statement that may look for rows of these tables.
async fn end_searches(
    registry: &Registry,
    own: i32,
    moved: &BTreeMap<u32, String>,
) -> Result<(), GatewayError> {
    let begun = Instant::now();
    let oids: BTreeSet<u32> = moved.keys().copied().collect();
    let mut machine = MovedRows::default();
    let mut event = Event::Begun;
    loop {
        let mut answer = None;
        for effect in machine.step(event) {
            answer = match effect {
                Effect::List => {
                    let mut with_plans = registry.activities.with_plans(own);
                    // Statements that commit before they end touch tables of node 1 only.
                    with_plans.retain(|(_, activity)| {
                        activity.plan.unasked().is_none() && activity.plan.may_concern(&oids)
                    });
                    let sessions =
                        with_plans.iter().map(|(session, _)| Session(*session)).collect();
                    Some(Event::Listed { sessions, at: begun.elapsed() })
                }
                Effect::Look => {
                    let seen = look(registry, own, moved).await?;
                    Some(Event::Looked { seen, at: begun.elapsed() })
                }
                Effect::Pause(pause) => {
                    sleep(pause).await;
                    Some(Event::Paused)
                }
                Effect::Overtake(Session(session)) => {
                    if let Some(activity) = registry.activities.of(session) {
                        activity.mark_moved();
                        activity.plan.overtake();
                    }
                    None
                }
                Effect::Cancel(Session(session)) => {
                    registry.cancel(&registry.backends.of(session)).await;
                    None
                }
                Effect::EndConnections(Session(session)) => {
                    registry.end_backends(&registry.backends.of(session), Ending::AtWork).await;
                    None
                }
                Effect::Done => return Ok(()),
            };
        }
        event = answer.expect("the last effect of a batch is answered, or the end");
    }
}

/// Asks the nodes what the backends of all sessions with plans are doing.
async fn look(
    registry: &Registry,
    own: i32,
    moved: &BTreeMap<u32, String>,
) -> Result<BTreeMap<Session, Seen>, GatewayError> {
    let ours = registry.backends_by_node([own]);
    let with_plans = registry.activities.with_plans(own).into_iter().map(|(session, _)| session);
    let names: Vec<_> = moved.values().map(|name| quote_literal(name)).collect();
    let mut seen = BTreeMap::new();
    for (node, backends) in registry.backends_by_node(with_plans) {
        let (ours, theirs) =
            (ours.get(&node).map_or_else(String::new, process_ids), process_ids(&backends));
        let sql = format!(
            "WITH tables (oid) AS (
    SELECT pg_catalog.to_regclass(n) FROM pg_catalog.unnest(ARRAY[{}]::pg_catalog.text[]) AS n
    UNION SELECT p.relid FROM pg_catalog.unnest(ARRAY[{}]::pg_catalog.text[]) AS n,
        pg_catalog.pg_partition_tree(pg_catalog.to_regclass(n)) AS p)
SELECT a.pid, pg_catalog.pg_blocking_pids(a.pid) OPERATOR(pg_catalog.&&) '{{{ours}}}'::pg_catalog.int4[],
    a.state OPERATOR(pg_catalog.=) 'active',
    EXISTS (SELECT FROM pg_catalog.pg_locks l JOIN tables t ON t.oid OPERATOR(pg_catalog.=) l.relation
        WHERE l.pid OPERATOR(pg_catalog.=) a.pid AND l.mode OPERATOR(pg_catalog.=) ANY (
            '{{RowShareLock,RowExclusiveLock}}')),
    pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) a.query_start
        OPERATOR(pg_catalog.>) '{} ms'::pg_catalog.interval
FROM pg_catalog.pg_stat_activity a WHERE a.pid OPERATOR(pg_catalog.=) ANY ('{{{theirs}}}'::pg_catalog.int4[])",
            names.join(","),
            names.join(","),
            LOCKS_TAKEN_AFTER.as_millis(),
        );
        let rows = registry.cluster.ask_within(LOOK_PATIENCE, node, &sql).await?;
        for row in 0..rows.rows.len() {
            let pid = rows.text(row, 0).and_then(|pid| pid.parse().ok()).unwrap_or(0);
            let Some(session) = backends.get(&pid) else { continue };
            let is = |column| rows.text(row, column) == Some("t");
            let found = match (is(1), is(2), is(3), is(4)) {
                (true, ..) => Seen::WaitsForUs,
                (false, false, ..) => Seen::Idle,
                (false, true, true, _) => Seen::AtRows,
                (false, true, false, false) => Seen::OnItsWay,
                (false, true, false, true) => Seen::Elsewhere,
            };
            // What one of its backends is doing says more than that another is idle.
            let known = seen.entry(Session(*session)).or_insert(found);
            *known = (*known).max(found);
        }
    }
    Ok(seen)
}
