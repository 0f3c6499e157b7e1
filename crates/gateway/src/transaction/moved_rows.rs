//! The commit of a transaction that has taken rows to other nodes, because their keys have changed.
//!
//! Owns: that a statement waiting for such a row looks for it again, or its client is told to
//! retry.
//! Never: moves a row (`executor::insert` does), commits (`commit` does).
//! Start reading at [`TransactionContext::begin_to_move`].
//!
//! On its old node such a row is deleted. A statement at READ COMMITTED that waits for it there finds
//! nothing when the wait is over, and has no reason to look elsewhere: its update would be lost. One
//! PostgreSQL follows the row, or says 40001 where it has gone to another partition. So before the
//! commit
//! 1. new statements are held, as for a placement change (`placement_change`),
//! 2. statements that may be looking for rows of the table are waited for; one that waits for us is
//!    cancelled. It has done nothing, so it runs again when the hold ends, and finds the row where it is
//!    now; inside a client's transaction, or if its client has been sent something already, it fails
//!    with 40001.
//!
//! Statements that only read are left alone: what their snapshots show does not change. (Whether a
//! statement locks rows of a table shows in its lock on the table.)

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tutti_cluster::catalog::publisher::Hold;
use tutti_cluster::error::GatewayError;
use tutti_sql::catalog::{Relation, quote_literal};

use super::waiting::canceled;
use crate::client::failure::Failure;
use crate::registry::{Ending, Registry, process_ids};
use crate::transaction::TransactionContext;

/// A statement that has run for this long has taken its locks.
const LOCKS_TAKEN_AFTER_MS: u64 = 20;
/// Statements that end within this are not examined.
const GLANCE: Duration = Duration::from_millis(4);
/// A node that has not answered by then is not waited for: all sessions wait meanwhile.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// A statement that may still reach a moved row is cancelled then.
const PATIENCE: Duration = Duration::from_secs(1);
/// One whose code survives a cancellation (it can) is ended with its connection then.
const STUBBORN_PATIENCE: Duration = Duration::from_secs(2);
/// None is waited for longer; a statement that was cancelled does nothing more.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// What a statement that may look for rows of the table is doing.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Seen {
    /// None of its backends does anything.
    Idle,
    /// It only reads the table, or does not use it.
    Elsewhere,
    /// It may not have taken its locks yet.
    OnItsWay,
    /// It may lock rows of the table.
    AtRows,
    /// It waits for a lock of ours.
    WaitsForUs,
}

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
        self.activity.end_plan();
        let is_held = self.transaction.change.is_some();
        if !is_held {
            self.wait_for_pause().await?;
        }
        let begun = Instant::now();
        let registry = self.registry.clone();
        let hold = (!is_held).then(|| registry.cluster.publisher.hold());
        for (_, activity) in registry.activities.with_plans(self.process_id) {
            activity.overtake_unsent();
        }
        let activity = self.activity.clone();
        let ended = tokio::select! {
            ended = end_searches(&registry, self.process_id, &self.transaction.moved) => ended,
            () = activity.cancelled() => return Err(canceled("57014", "user request")),
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
    let mut pause = Duration::from_millis(1);
    let mut cancelled: BTreeMap<i32, Instant> = BTreeMap::new();
    while begun.elapsed() < END_PATIENCE {
        let mut left = registry.activities.with_plans(own);
        // Statements that commit before they end touch tables of node 1 only.
        left.retain(|(_, activity)| activity.unasked().is_none() && activity.may_concern(&oids));
        if left.is_empty() {
            return Ok(());
        }
        if GLANCE <= begun.elapsed() {
            let seen = look(registry, own, moved).await?;
            let is_late = PATIENCE < begun.elapsed();
            let mut is_over = true;
            for (session, activity) in left {
                let seen = seen.get(&session).copied().unwrap_or(Seen::Idle);
                match seen {
                    Seen::Elsewhere => continue,
                    Seen::Idle | Seen::OnItsWay if is_late => continue,
                    Seen::AtRows if !is_late => (),
                    Seen::AtRows | Seen::WaitsForUs => {
                        let is_known = cancelled.contains_key(&session);
                        let since = *cancelled.entry(session).or_insert_with(Instant::now);
                        activity.mark_moved();
                        activity.overtake();
                        let targets = registry.backends.of(session);
                        if STUBBORN_PATIENCE < since.elapsed() {
                            registry.end_backends(&targets, Ending::AtWork).await;
                        } else if !is_known || seen == Seen::WaitsForUs {
                            registry.cancel(&targets).await;
                        }
                    }
                    Seen::Idle | Seen::OnItsWay => (),
                }
                is_over = false;
            }
            if is_over {
                return Ok(());
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
    Ok(())
}

/// Asks the nodes what the backends of all sessions with plans are doing.
async fn look(
    registry: &Registry,
    own: i32,
    moved: &BTreeMap<u32, String>,
) -> Result<BTreeMap<i32, Seen>, GatewayError> {
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
        OPERATOR(pg_catalog.>) '{LOCKS_TAKEN_AFTER_MS} ms'::pg_catalog.interval
FROM pg_catalog.pg_stat_activity a WHERE a.pid OPERATOR(pg_catalog.=) ANY ('{{{theirs}}}'::pg_catalog.int4[])",
            names.join(","),
            names.join(","),
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
            let known = seen.entry(*session).or_insert(found);
            *known = (*known).max(found);
        }
    }
    Ok(seen)
}
