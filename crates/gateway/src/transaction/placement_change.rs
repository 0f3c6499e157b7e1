//! The commit of a transaction that changed the schema or a placement, as others see it.
//!
//! Owns: that no statement runs with a plan whose placements are being replaced, and that the result is
//! published before anybody plans again.
//! Never: commits (`commit` does), reads the catalog (`catalog::publisher` does).
//! Start reading at [`TransactionContext::begin_change`].
//!
//! PostgreSQL's own lock does the half of it: the change holds ACCESS EXCLUSIVE on its tables on every
//! node, so whoever used one of them before has ended, and whoever comes waits on its node for the
//! lock, where deadlocks are found and timeouts count. But what waits there has a plan by the old
//! placement, and would run with it as soon as the lock is free. So before the votes
//! 1. new statements are held (they wait in the gateway, for this commit alone: a moment),
//! 2. plans of which nothing was sent are marked: they are made again,
//! 3. what was sent comes to its end, is seen at work with all its locks taken, or waits for us; what
//!    waits for us is cancelled on its nodes. It has done nothing, so it is planned again when the
//!    hold ends, or is told 40001 where something was done or told before it.
//!
//! Then the transaction commits, its result is published, and the hold ends. A hold waits for nobody
//! but statements that are at work, and for them not long; they wait for locks of ours at most, which
//! is what 3 looks for. What a transaction does that is open but idle is nothing until its next
//! statement, which is held and planned like any other. So nobody waits in a circle.
//!
//! Changes by which nothing is found elsewhere than before (a new table, a new column) hold new
//! statements and leave those at work alone. Those of node 1's tables that bring no code with them
//! (a trigger, a default, a policy) let also those go on that wait there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tutti_cluster::catalog::load::READS_CATALOG;
use tutti_cluster::catalog::publisher::{Hold, OwnChanges};
use tutti_cluster::error::GatewayError;
use tutti_link::connection::NodeError;
use tutti_sql::catalog::{Catalog, NodeId};
use tutti_sql::closure::adds_code;
use tutti_sql::planner::{self, Context};
use tutti_sql::statement;
use tutti_wire::error_fields::ErrorFields;

use crate::client::failure::Failure;
use crate::registry::Registry;
use crate::registry::activity::{Activity, Unasked};
use crate::transaction::TransactionContext;

/// A statement that has been at work for so long has taken its locks.
const LOCKS_TAKEN_AFTER_MS: u64 = 20;
/// What ends within that is not looked at.
const GLANCE: Duration = Duration::from_millis(4);
/// A node that has not answered a look by then is not waited for: everybody waits meanwhile.
const LOOK_PATIENCE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// How long a change waits for statements that others have overtaken again and again.
const COURTESY: Duration = Duration::from_secs(1);
/// A node that has not answered by then does not vote.
const VOTER_PATIENCE: Duration = Duration::from_secs(3);
/// A statement of which neither can be said by then is cancelled.
const PATIENCE: Duration = Duration::from_secs(1);
/// One that was cancelled and of which no node knows anything any more will do nothing more.
const IDLE_PATIENCE: Duration = Duration::from_secs(2);
/// One whose code goes on after a cancellation (it can) is ended with its connection then.
const STUBBORN_PATIENCE: Duration = Duration::from_secs(2);
/// A statement that does not end by then although it was cancelled stops the change.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// How long a commit waits for its result to be published. It is committed all the same.
pub(crate) const PUBLISH_PATIENCE: Duration = Duration::from_secs(10);

impl TransactionContext {
    /// Before the commit of a transaction that changed the schema: from here until the hold is dropped
    /// no statement begins. `None` where nothing has changed.
    ///
    /// Errors: 40001 if a statement with an older plan cannot be ended.
    pub(crate) async fn begin_change(&mut self) -> Result<Option<Hold>, Failure> {
        if !self.transaction.catalog_changed {
            return Ok(None);
        }
        self.check_participants().await?;
        if self.starving.is_none() {
            self.registry.cluster.publisher.let_pass(Instant::now() + COURTESY).await;
        }
        // What it had to do with placements is done; two that commit do not wait for each other.
        self.activity.end_plan();
        self.wait_for_pause().await?;
        let begun = Instant::now();
        let hold = self.registry.cluster.publisher.hold();
        let held = self.meet_nobody().await;
        self.note_pause(begun);
        held?;
        Ok(Some(hold))
    }

    /// Under the hold: from when this returns no statement with an older plan meets the change.
    async fn meet_nobody(&mut self) -> Result<(), Failure> {
        let registry = self.registry.clone();
        for (_, activity) in registry.activities.with_plans(self.process_id) {
            activity.overtake_unsent();
        }
        let old = registry.cluster.catalog();
        let is_solo = old.is_solo() && self.catalog.is_solo();
        let changes = self.transaction.own_changes.as_ref();
        let is_at_home = !self.transaction.changes_elsewhere && !old.is_solo();
        if !is_solo && changes.is_none_or(|changes| !changes.is_all()) {
            let checks = Moved::Checks(self.catalog.clone());
            self.overtake_others(Whom::All, &checks).await?;
        }
        let changes = self.transaction.own_changes.as_ref();
        let moved = match is_at_home {
            true => Moved::Nothing,
            false => Moved::between(&old, &self.catalog, changes),
        };
        let (moved, whom) = match moved {
            Moved::Nothing if is_solo => return Ok(()),
            Moved::Nothing => {
                let touched = changes.map(|changes| changes.touched().collect());
                let adds_code = touched.is_none_or(|it| adds_code(&old, &self.catalog, &it));
                if is_at_home && !adds_code {
                    // What node 1 runs by itself finds its tables as they are when it has its locks.
                    return Ok(());
                }
                // A default, a trigger, a column's name: what waits for our locks has a plan without it.
                (Moved::Nothing, Whom::WhoWaits { adds_code })
            }
            // A plan that leaves everything to node 1 may come to any table at any time.
            _ if old.is_solo() && !self.catalog.is_solo() => (Moved::Anything, Whom::All),
            moved => (moved, Whom::WhoComes),
        };
        self.overtake_others(whom, &moved).await?;
        if old.is_solo() && !self.catalog.is_solo() {
            self.check_shared_definitions().await?;
        }
        Ok(())
    }

    /// Brings statements with older plans to where they do not meet the change.
    async fn overtake_others(&self, whom: Whom, moved: &Moved) -> Result<(), Failure> {
        let changes = self.transaction.own_changes.as_ref();
        tokio::select! {
            done = overtake(&self.registry, self.process_id, whom, moved, changes, &self.catalog) => done,
            () = self.activity.cancelled() => {
                Err(Failure::error("57014", "canceling statement due to user request"))
            }
        }
    }

    /// Whether all nodes of the transaction answer: nobody is held for the sake of one that will not vote.
    async fn check_participants(&mut self) -> Result<(), Failure> {
        if self.transaction.nodes.len() < 2 {
            return Ok(());
        }
        let nodes: Vec<_> = self.transaction.nodes.keys().copied().collect();
        let away = nodes.iter().find(|node| !self.registry.cluster.availability.is_there(**node));
        if let Some(node) = away.copied() {
            return Err(NodeError::Closed { node }.into());
        }
        let asked = self.on_all_participants("SHOW server_version_num");
        if let Ok(answered) = timeout(VOTER_PATIENCE, asked).await {
            return answered;
        }
        let silent = nodes.iter().find(|node| !self.links.contains_key(node)).copied();
        let node = silent.unwrap_or(NodeId::HOME);
        let source = std::io::ErrorKind::TimedOut.into();
        Err(NodeError::Lost { node, source }.into())
    }

    /// What other nodes got when the first table was spread must still be what node 1 has: whoever has
    /// changed it since has told nobody else. Whoever has changed it and not committed yet is told at the
    /// COMMIT ([`Self::may_commit_alone`]).
    async fn check_shared_definitions(&self) -> Result<(), Failure> {
        let Some(shared) = &self.transaction.shared_definitions else { return Ok(()) };
        if *shared == self.registry.cluster.committed_definitions().await? {
            return Ok(());
        }
        let message = "definitions were changed while the first table was spread over nodes";
        Err(ErrorFields::error("40001", message)
            .with(b'H', "Nothing was changed; the transaction might succeed if retried.")
            .into())
    }

    /// Before the commit of what was done on node 1 alone because it had everything: whether it still
    /// has. Until the plan that begins here ends, nobody spreads the first table.
    pub(crate) async fn may_commit_alone(&mut self) -> Result<(), Failure> {
        if !self.transaction.changed_alone {
            return Ok(());
        }
        self.begin_commit_in_sight().await?;
        if self.registry.cluster.catalog().is_solo() {
            return Ok(());
        }
        let message = "could not serialize access due to a table that was spread over nodes";
        Err(ErrorFields::error("40001", message)
            .with(b'D', "The transaction has changed definitions on node 1 alone.")
            .with(b'H', "The transaction might succeed if retried.")
            .into())
    }
}

/// What is found elsewhere, or is something else, than before.
#[derive(Debug)]
enum Moved {
    Nothing,
    /// These relations, by OID.
    Relations(BTreeSet<u32>),
    Anything,
    /// Types are checked by code of users' now, by this catalog: of whom rows are on their way shall not
    /// run it.
    Checks(Arc<Catalog>),
}

impl Moved {
    /// What `old` knows and `new` has elsewhere. What others have committed since `new` was read is not
    /// the doing of a transaction that has made these changes.
    fn between(old: &Catalog, new: &Catalog, changes: Option<&OwnChanges>) -> Self {
        if old.maps.iter().any(|(id, map)| new.maps.get(id).is_some_and(|other| map != other)) {
            return Self::Anything;
        }
        let mut moved = BTreeSet::new();
        for (schema, relations) in &old.relations {
            let Some(others) = new.relations.get(schema) else { continue };
            for (name, old) in relations {
                let Some(new) = others.get(name).filter(|new| !Arc::ptr_eq(old, new)) else {
                    continue;
                };
                if changes.is_some_and(|changes| !changes.may_have_changed(new)) {
                    continue;
                }
                if old.oid != new.oid || old.placement != new.placement || old.kind != new.kind {
                    moved.extend([old.oid, new.oid]);
                }
            }
        }
        if moved.is_empty() {
            return Self::Nothing;
        }
        // What is changed with it must not be met either.
        moved.extend(changes.into_iter().flat_map(OwnChanges::touched));
        Self::Relations(moved)
    }

    /// Whether a statement's plan may depend on it.
    fn may_concern(&self, activity: &Activity) -> bool {
        match self {
            Self::Relations(moved) => activity.may_concern(moved),
            Self::Nothing | Self::Anything => true,
            Self::Checks(new) => {
                activity.brings_any(|relation| planner::refuse_transit(relation, new).is_err())
            }
        }
    }
}

/// What is known of a statement with an older plan.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Seen {
    /// None of its backends does anything: it is between two steps, or its client reads slowly.
    Idle,
    /// It may still be on its way to a lock.
    OnItsWay,
    /// It has what it needs and will not meet the change.
    AtWork,
    /// It waits for a lock of the change.
    WaitsForUs,
}

/// Which statements with older plans a change must not meet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Whom {
    /// Every one, for what is at work may meet it later.
    All,
    /// Whoever is not at work already, and the further steps of whoever is.
    WhoComes,
    /// Whoever waits for the change's locks, or may be on its way to them: nothing is found elsewhere
    /// than before, but what is done to the rows may be something else. And whoever writes a table that
    /// is changed in several steps: the change has the table's locks, so the writing is yet to come.
    /// The same for whoever reads one, if there is code now that a node would run by itself.
    WhoWaits { adds_code: bool },
}

/// Brings every statement with an older plan to its end, or to where it does not meet the change of
/// session `own`. `changes`: what that is, if known. `new`: the catalog by them.
async fn overtake(
    registry: &Registry,
    own: i32,
    whom: Whom,
    moved: &Moved,
    changes: Option<&OwnChanges>,
    new: &Catalog,
) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(1);
    let mut cancelled: BTreeMap<i32, Instant> = BTreeMap::new();
    let mut proven = BTreeMap::new();
    let known: Option<BTreeSet<u32>> =
        changes.filter(|it| it.is_all()).map(|it| it.touched().collect());
    loop {
        let mut left = registry.activities.with_plans(own);
        left.retain(|(session, activity)| match activity.unasked() {
            Some(unasked) => !*proven.entry(*session).or_insert_with(|| is_proven(&unasked, new)),
            None => moved.may_concern(activity),
        });
        if !left.is_empty() && GLANCE <= begun.elapsed() {
            let seen = look(registry, own).await?;
            let mut unclear = Vec::new();
            for (session, activity) in left {
                let seen = seen.get(&session).copied().unwrap_or(Seen::Idle);
                if activity.unasked().is_some() {
                    if seen == Seen::WaitsForUs || PATIENCE < begun.elapsed() {
                        return Err(committing());
                    }
                    unclear.push((session, activity));
                    continue;
                }
                let is_cancelled = cancelled.contains_key(&session);
                // Whatever it waits for, it is not on its way to the change.
                let is_far = known.as_ref().is_some_and(|touched| !activity.may_concern(touched));
                let is_left_alone = matches!(whom, Whom::WhoWaits { .. })
                    && !is_cancelled
                    && (is_far
                        || matches!(seen, Seen::AtWork | Seen::Idle)
                        || PATIENCE < begun.elapsed())
                    && seen != Seen::WaitsForUs;
                if is_left_alone {
                    let is_changed = |table: &u32| changes.is_none_or(|it| it.touches(*table));
                    let is_read = whom == Whom::WhoWaits { adds_code: true }
                        && changes.is_some_and(|it| activity.depends_on(&it.touched().collect()));
                    if activity.writes_any(is_changed) || is_read {
                        activity.overtake();
                    }
                    continue;
                }
                if (seen == Seen::AtWork && !is_cancelled && whom != Whom::All)
                    || (seen == Seen::Idle && is_cancelled && IDLE_PATIENCE < begun.elapsed())
                {
                    // A step that is still to come must not be taken.
                    activity.overtake();
                    continue;
                }
                if seen == Seen::WaitsForUs || PATIENCE < begun.elapsed() {
                    activity.mark_overtaken();
                    activity.overtake();
                    let targets = registry.backends.of(session);
                    let since = *cancelled.entry(session).or_insert_with(Instant::now);
                    match since.elapsed() < STUBBORN_PATIENCE {
                        true => registry.cancel(&targets).await,
                        false => registry.end_backends(&targets, false).await,
                    }
                }
                unclear.push((session, activity));
            }
            left = unclear;
        }
        if left.is_empty() {
            return Ok(());
        }
        if END_PATIENCE < begun.elapsed() {
            let message = "statements that were planned before do not end";
            return Err(ErrorFields::error("40001", message)
                .with(b'H', "Nothing was changed; the transaction might succeed if retried.")
                .into());
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Whether what nobody will ask about is still proven to touch tables of node 1 only, by a new catalog.
fn is_proven(unasked: &Unasked, new: &Catalog) -> bool {
    let Some(scope) = &unasked.scope else { return false };
    let Ok(statements) = statement::parse(&unasked.text) else { return false };
    let [statement] = &statements[..] else { return false };
    let context =
        Context { catalog: new, scope, collects_replicated: false, opaque: None, views: None };
    planner::plan(statement, &context).is_ok_and(|planned| planned.unasked)
}

/// Somebody's procedure commits a part of its work and goes on: ending it would leave the rest undone.
fn committing() -> Failure {
    ErrorFields::error(
        "40001",
        "a procedure that commits is at work, and would touch more than tables of node 1",
    )
    .with(b'H', "Nothing was changed; retry when it has ended.")
    .into()
}

/// Asks the nodes what the backends of all sessions with plans are at.
async fn look(registry: &Registry, own: i32) -> Result<BTreeMap<i32, Seen>, GatewayError> {
    let mut ours: BTreeMap<NodeId, Vec<String>> = BTreeMap::new();
    for target in registry.backends.of(own) {
        let key = target.key();
        ours.entry(key.node).or_default().push(key.process_id.to_string());
    }
    let mut theirs: BTreeMap<NodeId, BTreeMap<i32, i32>> = BTreeMap::new();
    for (session, _) in registry.activities.with_plans(own) {
        for target in registry.backends.of(session) {
            let key = target.key();
            theirs.entry(key.node).or_default().insert(key.process_id, session);
        }
    }
    let mut seen = BTreeMap::new();
    for (node, backends) in theirs {
        let list = |pids: Vec<String>| pids.join(",");
        let sql = format!(
            "SELECT a.pid, pg_catalog.pg_blocking_pids(a.pid) && '{{{}}}'::pg_catalog.int4[]
        AND NOT pg_catalog.starts_with(a.query, '{READS_CATALOG}'),
    a.state = 'active', a.state = 'active' AND a.wait_event IS DISTINCT FROM 'relation'
        AND pg_catalog.clock_timestamp() - a.query_start > '{LOCKS_TAKEN_AFTER_MS} ms'
FROM pg_catalog.pg_stat_activity a WHERE a.pid = ANY ('{{{}}}')",
            list(ours.remove(&node).unwrap_or_default()),
            list(backends.keys().map(i32::to_string).collect()),
        );
        let rows = registry.cluster.ask_within(LOOK_PATIENCE, node, &sql).await?;
        for row in 0..rows.rows.len() {
            let pid = rows.text(row, 0).and_then(|pid| pid.parse().ok()).unwrap_or(0);
            let Some(session) = backends.get(&pid) else { continue };
            let is = |column| rows.text(row, column) == Some("t");
            let found = match (is(1), is(2), is(3)) {
                (true, ..) => Seen::WaitsForUs,
                (false, true, true) => Seen::AtWork,
                (false, true, false) => Seen::OnItsWay,
                (false, false, _) => Seen::Idle,
            };
            // What one of its backends is at says more than that another has nothing to do.
            let known = seen.entry(*session).or_insert(found);
            *known = (*known).max(found);
        }
    }
    Ok(seen)
}
