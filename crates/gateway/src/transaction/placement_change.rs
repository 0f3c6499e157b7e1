//! Driving [`PlacementChange`]: the commit of a transaction that changed the schema or a placement, as others
//! see it.
//!
//! Owns: what the machine must be told of a change, of sessions' plans, and of what nodes say of their
//! backends.
//! Never: decides which sessions a change waits for, cancels or leaves alone (the machine does), commits
//! (`commit` does), reads the catalog (`catalog::publisher` does).
//! Start reading at [`TransactionContext::begin_change`]; why there is a hold is
//! `docs/protocol/schema-changes.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tutti_cluster::catalog::load::READS_CATALOG;
use tutti_cluster::catalog::publisher::OwnChanges;
use tutti_cluster::error::GatewayError;
use tutti_link::connection::NodeError;
use tutti_link::pool::backends::Backend as NodeBackend;
use tutti_sql::catalog::{Catalog, NodeId, Placement, Relation, RelationKind};
use tutti_sql::closure::{Grown, adds_code, grown, mistakable, namesakes, renamed};
use tutti_sql::planner::{self, Context};
use tutti_sql::statement;
use tutti_txn::PlacementChange;
use tutti_txn::placement_change::{
    Backend, COURTESY, Effect, Ended, Event, Found, LOCKS_TAKEN_AFTER, LOOK_PATIENCE, Looked,
    Noted, PUBLISH_PATIENCE, Plan, Proof, Refusal, Session, Terms, VOTER_PATIENCE,
};
use tutti_wire::error_fields::ErrorFields;
use tutti_wire::sqlstate;

use super::change_in_commit::ChangeInCommit;
use super::waiting::{Waits, canceled};
use crate::client::failure::Failure;
use crate::registry::activity::Activity;
use crate::registry::plan_in_sight::Unasked;
use crate::registry::{Ending, Registry, process_ids};
use crate::transaction::TransactionContext;

/// The keys of an advisory lock that a client's transaction has, on node 1, which was prepared when it had changed
/// definitions there alone.
pub(crate) const CHANGED_DEFINITIONS: &str = "1953854580, 1";

impl TransactionContext {
    /// Before the commit of a transaction that changed the schema: from here until
    /// [`Self::publish_change`] no statement begins, and no statement with an older plan meets the change.
    ///
    /// Errors: 40001 if a statement with an older plan cannot be ended; 57014; a node cannot be asked.
    pub(crate) async fn begin_change(&mut self) -> Result<(), Failure> {
        if !self.transaction.catalog_changed {
            return Ok(());
        }
        let mut effects = Vec::new();
        let machine = PlacementChange::begin(self.starving.is_some(), &mut effects);
        let mut change = ChangeInCommit { machine, hold: None };
        let mut held_since = None;
        let met = self.approach(&mut change, effects, &mut held_since).await;
        if let Some(begun) = held_since {
            self.note_pause(begun);
        }
        met?;
        self.transaction.change = Some(change);
        Ok(())
    }

    /// Performs the machine's effects until the transaction may be committed.
    async fn approach(
        &mut self,
        change: &mut ChangeInCommit,
        mut effects: Vec<Effect>,
        held_since: &mut Option<Instant>,
    ) -> Result<(), Failure> {
        let registry = self.registry.clone();
        let activity = self.activity.clone();
        let cancelled = activity.cancelled();
        tokio::pin!(cancelled);
        let mut comparison = None;
        let mut failure = None;
        loop {
            let mut answer = None;
            for effect in std::mem::take(&mut effects) {
                let since = held_since.unwrap_or_else(Instant::now);
                let told = match effect {
                    Effect::AskVoters => {
                        self.check_participants().await.map(|()| Some(Event::VotersAnswered))
                    }
                    Effect::LetPass => {
                        registry.cluster.publisher.let_pass(Instant::now() + COURTESY).await;
                        Ok(Some(Event::Passed))
                    }
                    Effect::WaitForPause => {
                        // What it had to do with placements is done; two that commit do not wait for each
                        // other.
                        self.activity.plan.end();
                        self.wait_for_pause().await.map(|()| Some(Event::PauseOver))
                    }
                    Effect::Hold => {
                        *held_since = Some(Instant::now());
                        change.hold = Some(registry.cluster.publisher.hold());
                        Ok(None)
                    }
                    Effect::Release => {
                        change.hold = None;
                        Ok(None)
                    }
                    Effect::Compare => {
                        let (compared, terms) = self.compare();
                        comparison = Some(compared);
                        Ok(Some(Event::Compared(terms)))
                    }
                    Effect::CheckDefinitions => self.shared_definitions_hold().await.map(|hold| {
                        Some(if hold { Event::DefinitionsHold } else { Event::DefinitionsChanged })
                    }),
                    Effect::Refuse(why) => {
                        return Err(failure.unwrap_or_else(|| refused(why)));
                    }
                    Effect::Commit => return Ok(()),
                    Effect::StopUnsent => {
                        for (_, activity) in registry.activities.with_plans(self.process_id) {
                            activity.plan.overtake_unsent();
                        }
                        Ok(None)
                    }
                    Effect::List { .. }
                    | Effect::Look(_)
                    | Effect::Stop(_)
                    | Effect::Cancel(_)
                    | Effect::EndConnections(_) => {
                        let comparison = comparison.get_or_insert_with(|| self.compare().0);
                        let own = self.process_id;
                        let nodes = &self.transaction.nodes;
                        let is_ours = |node| nodes.contains_key(&node);
                        let mut others = Others {
                            registry: &registry,
                            own,
                            since,
                            is_ours: &is_ours,
                            comparison,
                        };
                        tokio::select! {
                            told = others.perform(effect) => told.map_err(Failure::from),
                            () = &mut cancelled => Err(canceled(sqlstate::QUERY_CANCELED, "user request")),
                        }
                    }
                    // They come after the commit.
                    Effect::Note(_) | Effect::AwaitPublished => Ok(None),
                };
                match told {
                    Ok(event) => answer = answer.or(event),
                    Err(failed) => {
                        failure = Some(failed);
                        answer = Some(Event::Failed);
                        break;
                    }
                }
            }
            if let Some(event) = answer {
                change.machine.step(event, &mut effects);
            }
        }
    }

    /// Whether no statement that was planned before would have to be ended for the transaction's changes.
    pub(crate) fn overtakes_nobody(&self) -> bool {
        self.compare().1.overtake_nobody()
    }

    /// What the change means for plans by the published catalog.
    fn compare(&self) -> (Comparison, Terms) {
        let (old, new) = (self.registry.cluster.catalog(), self.catalog.clone());
        let changes = self.transaction.own_changes.as_ref();
        let is_at_home = !self.transaction.changes_elsewhere && !old.is_solo();
        let mut moved = match is_at_home {
            true => Moved::shown(&old, &new, changes),
            false => Moved::between(&old, &new, changes),
        };
        let touched: Option<BTreeSet<u32>> = changes.map(|changes| changes.touched().collect());
        let (was_solo, is_solo) = (old.is_solo(), new.is_solo());
        let stays_solo = was_solo && is_solo;
        let is_more = changes.is_none_or(|changes| !changes.is_all());
        // A plan knows relations by what its names meant when it was made.
        let alike = match &touched {
            Some(touched) if !stays_solo => {
                let mut named = touched.clone();
                if is_more {
                    named.extend(renamed(&old, &new));
                }
                let mut alike = mistakable(&old, &new, &named);
                if !alike.is_empty() {
                    alike.extend(named);
                }
                if is_more && self.transaction.changed_sight {
                    alike.extend(namesakes(&old));
                    alike.extend(namesakes(&new));
                }
                alike
            }
            _ => BTreeSet::new(),
        };
        if let (Moved::Nothing, Some(touched), false) = (&moved, &touched, alike.is_empty()) {
            // What waits for another's lock looks its names up again when it has it, whatever the change has
            // locked.
            moved = Moved::Relations(touched | &alike);
        }
        let grown = match is_more && !stays_solo {
            true => grown(&old, &new, self.transaction.changed_sight),
            false => Grown::default(),
        };
        let found = match &moved {
            Moved::Nothing => Found::AsBefore {
                adds_code: !stays_solo
                    && touched.as_ref().is_none_or(|touched| adds_code(&old, &new, touched)),
            },
            Moved::Relations(_) => Found::Elsewhere,
            Moved::Anything => Found::Anywhere,
        };
        let grows_code = !grown.is_empty();
        let dropped = dropped(&old, &new, changes);
        let gives_names = gives_names(&old, &new, changes);
        let changes_names = !dropped.is_empty() || gives_names;
        let terms =
            Terms { was_solo, is_solo, is_at_home, is_more, grows_code, changes_names, found };
        if let Moved::Relations(moved) = &mut moved {
            moved.extend(&alike);
        }
        let proofs = BTreeMap::new();
        let changes_code = is_more
            && matches!(moved, Moved::Relations(_))
            && !Arc::ptr_eq(&old.code, &new.code)
            && !old.code.calls_the_same(&new.code);
        let comparison = Comparison {
            new,
            moved,
            dropped,
            gives_names,
            touched,
            is_more,
            changes_code,
            grown,
            proofs,
        };
        (comparison, terms)
    }

    /// A transaction that changed the schema has ended: all sessions get the result, and then statements
    /// begin again.
    pub(crate) async fn publish_change(
        &mut self,
        how: Ended,
        own: Option<OwnChanges>,
        change: Option<ChangeInCommit>,
    ) {
        let unheld = || ChangeInCommit { machine: PlacementChange::unheld(), hold: None };
        let mut change = change.unwrap_or_else(unheld);
        let publisher = self.registry.cluster.publisher.clone();
        let mut effects = Vec::new();
        let mut is_released = false;
        let mut noted = None;
        let mut event = Some(Event::Ended(how));
        while let Some(happened) = event.take() {
            change.machine.step(happened, &mut effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Note(Noted::Own) => {
                        noted = Some(match &own {
                            Some(own) => publisher.need_own(own),
                            None => publisher.need_changed(),
                        });
                    }
                    // Recovery will say so again.
                    Effect::Note(Noted::Everything) => noted = Some(publisher.need_changed()),
                    Effect::AwaitPublished => {
                        let give_up = Instant::now() + PUBLISH_PATIENCE;
                        event = Some(match noted {
                            Some(noted) if !publisher.wait_for(noted, give_up).await => {
                                let message =
                                    "a change of the schema is committed and could not be read yet";
                                tracing::warn!("{message}");
                                Event::PublishingDelayed
                            }
                            _ => Event::Published,
                        });
                    }
                    Effect::Release => is_released = true,
                    // They come before the commit.
                    Effect::AskVoters
                    | Effect::LetPass
                    | Effect::WaitForPause
                    | Effect::Hold
                    | Effect::StopUnsent
                    | Effect::Compare
                    | Effect::List { .. }
                    | Effect::Look(_)
                    | Effect::Stop(_)
                    | Effect::Cancel(_)
                    | Effect::EndConnections(_)
                    | Effect::CheckDefinitions
                    | Effect::Commit
                    | Effect::Refuse(_) => (),
                }
            }
        }
        if how != Ended::Aborted {
            self.check_catalog().await;
        }
        if is_released {
            change.hold = None;
        }
        self.catalog = self.registry.cluster.catalog();
    }

    /// Whether all nodes of the transaction answer: no statement is held for the sake of one that will not
    /// vote.
    async fn check_participants(&mut self) -> Result<(), Failure> {
        if self.transaction.nodes.len() < 2 {
            return Ok(());
        }
        let nodes: Vec<_> = self.transaction.nodes.keys().copied().collect();
        let away = nodes.iter().find(|node| !self.registry.cluster.availability.is_there(**node));
        if let Some(node) = away.copied() {
            return Err(NodeError::Closed { node, reason: None }.into());
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

    /// Whether what other nodes got when the first table was spread is still what node 1 has: a session that
    /// has changed it since has told no other. One that has changed it and not committed yet is told at the
    /// COMMIT ([`Self::may_commit_alone`]).
    async fn shared_definitions_hold(&self) -> Result<bool, Failure> {
        let Some(shared) = &self.transaction.shared_definitions else { return Ok(true) };
        self.refuse_prepared_definitions().await?;
        Ok(*shared == self.registry.cluster.committed_definitions().await?)
    }

    /// Definitions that clients have changed in transactions prepared while node 1 had all tables: their COMMIT
    /// PREPARED would tell no other node. No one prepares more meanwhile: that waits for the hold
    /// ([`Self::may_commit_alone`]).
    async fn refuse_prepared_definitions(&self) -> Result<(), Failure> {
        const WAITS: Duration = Duration::from_secs(5);
        let sql = format!(
            "SELECT x.gid FROM pg_catalog.pg_prepared_xacts x \
             JOIN pg_catalog.pg_locks t ON t.locktype = 'transactionid' AND t.transactionid = x.transaction \
             JOIN pg_catalog.pg_locks l ON l.virtualtransaction = t.virtualtransaction AND l.pid IS NULL \
             WHERE x.database = pg_catalog.current_database() AND l.locktype = 'advisory' \
             AND l.objsubid = 2 AND (l.classid::bigint, l.objid::bigint) = ({CHANGED_DEFINITIONS}) \
             ORDER BY x.prepared LIMIT 1"
        );
        let rows = self.registry.cluster.ask_within(WAITS, NodeId::HOME, &sql).await?;
        let Some(gid) = rows.text(0, 0) else { return Ok(()) };
        let message = "cannot spread the first table while a transaction that has changed definitions is prepared";
        let error = ErrorFields::error("55000", message)
            .with(
                b'D',
                format!("Prepared transaction \"{gid}\" has changed what other nodes are to have."),
            )
            .with(
                b'H',
                "Commit or roll back the transactions that pg_prepared_xacts shows, and retry.",
            );
        Err(error.into())
    }

    /// Before the commit of what was done on node 1 alone because it had everything: whether it still
    /// has. Until the plan that begins here ends, no one spreads the first table.
    pub(crate) async fn may_commit_alone(&mut self) -> Result<(), Failure> {
        if !self.transaction.changed_alone && !self.transaction.wrote_alone {
            return Ok(());
        }
        self.begin_in_sight(Waits::AskingNobody).await?;
        if self.registry.cluster.catalog().is_solo() {
            return Ok(());
        }
        Err(spread_since("The transaction has changed definitions, or rows, on node 1 alone."))
    }

    /// Before more is asked of a cursor or a portal.
    ///
    /// Errors: 40001 if it may have been opened while node 1 had all tables, and that has changed.
    pub(crate) fn refuse_cursor_of_one_node(&self) -> Result<(), Failure> {
        match self.transaction.used_alone && !self.registry.cluster.catalog().is_solo() {
            true => Err(spread_since("A cursor or portal was opened while node 1 had all tables.")),
            false => Ok(()),
        }
    }
}

fn spread_since(detail: &str) -> Failure {
    let message = "could not serialize access due to a table that was spread over nodes";
    ErrorFields::error(sqlstate::SERIALIZATION_FAILURE, message)
        .with(b'D', detail)
        .with(b'H', "The transaction might succeed if retried.")
        .into()
}

/// What is elsewhere than before, or has become something else.
#[derive(Debug)]
enum Moved {
    Nothing,
    /// These relations, by OID.
    Relations(BTreeSet<u32>),
    Anything,
}

impl Moved {
    /// What `old` knows and `new` has elsewhere. What others have committed since `new` was read was not done
    /// by a transaction that has made these changes.
    fn between(old: &Catalog, new: &Catalog, changes: Option<&OwnChanges>) -> Self {
        if old.maps.iter().any(|(id, map)| new.maps.get(id).is_some_and(|other| map != other)) {
            return Self::Anything;
        }
        Self::among(old, new, changes, |before, after| {
            before.oid != after.oid
                || before.placement != after.placement
                || before.kind != after.kind
        })
    }

    /// The same for a change of node 1 alone: what it finds there itself is no matter, but a view may have come to
    /// show, or to write, what other nodes have too, or have shown it.
    fn shown(old: &Catalog, new: &Catalog, changes: Option<&OwnChanges>) -> Self {
        let is_view = |it: &Relation| matches!(it.kind, RelationKind::View { .. });
        let shows_others =
            |it: &Arc<Relation>, of: &Catalog| is_view(it) && planner::shows_other_nodes(it, of);
        Self::among(old, new, changes, |before, after| {
            (before.oid, &before.kind) != (after.oid, &after.kind)
                && (shows_others(before, old) || shows_others(after, new))
        })
    }

    /// The relations of both for which `is_other` holds.
    fn among(
        old: &Catalog,
        new: &Catalog,
        changes: Option<&OwnChanges>,
        is_other: impl Fn(&Arc<Relation>, &Arc<Relation>) -> bool,
    ) -> Self {
        let mut moved = BTreeSet::new();
        for (schema, relations) in &old.relations {
            let Some(others) = new.relations.get(schema) else { continue };
            for (name, old) in relations {
                let Some(new) = others.get(name).filter(|new| !Arc::ptr_eq(old, new)) else {
                    continue;
                };
                let may_have = changes.is_none_or(|changes| changes.may_have_changed(new));
                if may_have && is_other(old, new) {
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
}

/// The relations whose names no relation has any more by `new`, where these changes did that.
fn dropped(old: &Catalog, new: &Catalog, changes: Option<&OwnChanges>) -> BTreeSet<u32> {
    only_in(old, new, changes).map(|relation| relation.oid).collect()
}

/// Whether names that no relation has by `old` are, by these changes, those of relations that node 1 does not have to
/// itself.
fn gives_names(old: &Catalog, new: &Catalog, changes: Option<&OwnChanges>) -> bool {
    only_in(new, old, changes).any(|relation| match relation.kind {
        RelationKind::View { .. } => planner::shows_other_nodes(relation, new),
        _ => relation.placement != Placement::Home,
    })
}

/// The relations of `one` whose names no relation has by `other`, where these changes did that.
fn only_in<'c>(
    one: &'c Catalog,
    other: &'c Catalog,
    changes: Option<&'c OwnChanges>,
) -> impl Iterator<Item = &'c Arc<Relation>> {
    let all = one.relations.iter().flat_map(|(schema, relations)| {
        let others = other.relations.get(schema);
        relations
            .iter()
            .filter(move |(name, _)| others.is_none_or(|others| !others.contains_key(*name)))
    });
    let may_have = move |it: &&Arc<Relation>| changes.is_none_or(|own| own.may_have_changed(it));
    all.map(|(_, relation)| relation).filter(may_have)
}

/// A change and the catalog before it, to ask whether a plan has to do with it.
#[derive(Debug)]
struct Comparison {
    /// The catalog by the change.
    new: Arc<Catalog>,
    moved: Moved,
    /// The relations that lose their names.
    dropped: BTreeSet<u32>,
    /// Names that meant nothing mean relations that node 1 does not have to itself.
    gives_names: bool,
    /// The relations on which the change has locks, if it is known which.
    touched: Option<BTreeSet<u32>>,
    /// It may have changed more than these.
    is_more: bool,
    /// It has changed functions, operators or types: what plans use of these is not compared.
    changes_code: bool,
    /// Code that has come to do more.
    grown: Grown,
    /// What was found of each session's plan that no one will ask about: whether its proof holds.
    proofs: BTreeMap<i32, Proof>,
}

impl Comparison {
    /// What the machine must know of a session's plan.
    fn plan_of(&mut self, session: i32, activity: &Activity) -> Plan {
        let unasked = activity.plan.unasked();
        let cannot_end = unasked.map(|unasked| {
            *self.proofs.entry(session).or_insert_with(|| match is_proven(&unasked, &self.new) {
                true => Proof::Holds,
                false => Proof::Fails,
            })
        });
        let touched = self.touched.as_ref();
        let is_touched = |oid: u32| touched.is_none_or(|touched| touched.contains(&oid));
        let writes_changed_in_steps = activity.plan.writes_any(|table| is_touched(*table));
        let brings_changed = || activity.plan.brings_any(|relation| is_touched(relation.oid));
        // It may be any relation by now, whatever is done to it.
        let names_absent = activity.plan.names_absent();
        Plan {
            cannot_end,
            may_use_moved: names_absent
                || self.changes_code
                || match &self.moved {
                    Moved::Relations(moved) => activity.plan.may_concern(moved),
                    Moved::Nothing | Moved::Anything => true,
                },
            may_use_changed: names_absent
                || self.is_more
                || touched.is_none_or(|touched| activity.plan.may_concern(touched)),
            uses_changed: names_absent
                || touched.is_some_and(|touched| activity.plan.depends_on(touched)),
            uses_changed_names: (names_absent && self.gives_names)
                || activity.plan.depends_on(&self.dropped),
            writes_changed_in_steps,
            rebuilds_changed: writes_changed_in_steps || brings_changed(),
            brings_checked: activity
                .plan
                .brings_any(|relation| planner::refuse_transit(relation, &self.new).is_err()),
            may_call_grown: !self.grown.is_empty() && activity.plan.may_call(&self.grown),
            sends_ahead: activity.plan.sends_ahead(),
            comes_later: activity.plan.comes_later(),
        }
    }
}

/// The sessions except the change's own, as far as the machine asks for them.
struct Others<'a> {
    registry: &'a Registry,
    own: i32,
    /// When they began to be held.
    since: Instant,
    /// Whether the change has locks on a node.
    is_ours: &'a (dyn Fn(NodeId) -> bool + Sync),
    comparison: &'a mut Comparison,
}

impl Others<'_> {
    async fn perform(&mut self, effect: Effect) -> Result<Option<Event>, GatewayError> {
        match effect {
            Effect::List { after } => {
                if !after.is_zero() {
                    sleep(after).await;
                }
                let with_plans = self.registry.activities.with_plans(self.own);
                let plan_of = |(session, activity): (i32, Arc<Activity>)| {
                    (Session(session), self.comparison.plan_of(session, &activity))
                };
                let left = self.registry.backends.left_on(self.is_ours);
                let left = left.into_iter().map(|number| (Session(number), Plan::LEFT));
                let plans = with_plans.into_iter().map(plan_of).chain(left).collect();
                Ok(Some(Event::Listed { at: self.since.elapsed(), plans }))
            }
            Effect::Look(sessions) => {
                let mut seen = look(self.registry, self.own, &sessions).await?;
                self.end_left(&sessions, &seen).await;
                let looked = sessions.iter().copied().filter_map(|session| {
                    if is_left(session) {
                        let backends = seen.remove(&session)?;
                        return Some((session, Looked { plan: Plan::LEFT, backends }));
                    }
                    let activity = self.registry.activities.of(session.0)?;
                    let plan = self.comparison.plan_of(session.0, &activity);
                    let backends = seen.remove(&session).unwrap_or_default();
                    activity.plan.exists().then_some((session, Looked { plan, backends }))
                });
                let mut looked: BTreeMap<_, _> = looked.collect();
                // A session that has gone since it was listed may have left something: that is to be listed.
                for number in self.registry.backends.left_on(self.is_ours) {
                    let session = Session(number);
                    if !sessions.contains(&session) {
                        looked.insert(session, Looked::left_since());
                    }
                }
                Ok(Some(Event::Looked { at: self.since.elapsed(), sessions: looked }))
            }
            Effect::Stop(Session(session)) => {
                if let Some(activity) = self.registry.activities.of(session) {
                    activity.plan.overtake();
                }
                Ok(None)
            }
            Effect::Cancel(session) | Effect::EndConnections(session) if is_left(session) => {
                let left: Vec<_> = self.registry.backends.left(session.0).into_iter().collect();
                self.registry.end_backends(&left, Ending::AtWork).await;
                Ok(None)
            }
            Effect::Cancel(Session(session)) => {
                self.mark(session);
                self.registry.cancel(&self.registry.backends.of(session)).await;
                Ok(None)
            }
            Effect::EndConnections(Session(session)) => {
                self.mark(session);
                let backends = self.registry.backends.of(session);
                self.registry.end_backends(&backends, Ending::AtWork).await;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Of what sessions have left: forgets what is gone, and ends what does nothing any more, for of a
    /// connection that broke without the server's noticing that is not known otherwise.
    async fn end_left(
        &self,
        sessions: &BTreeSet<Session>,
        seen: &BTreeMap<Session, BTreeSet<Backend>>,
    ) {
        let backends = &self.registry.backends;
        let mut idle = Vec::new();
        for session in sessions.iter().filter(|session| is_left(**session)) {
            match seen.get(session) {
                None => backends.forget_left(session.0),
                Some(seen) if seen.iter().any(|backend| backend.is_active) => (),
                Some(_) => idle.extend(backends.left(session.0)),
            }
        }
        self.registry.end_backends(&idle, Ending::All).await;
    }

    fn mark(&self, session: i32) {
        if let Some(activity) = self.registry.activities.of(session) {
            activity.mark_overtaken();
        }
    }
}

/// Whether it is not a session, but what one has left.
fn is_left(session: Session) -> bool {
    session.0 < 0
}

/// Whether what no one will ask about is still proven to touch tables of node 1 only, by a new catalog.
fn is_proven(unasked: &Unasked, new: &Catalog) -> bool {
    let Some(scope) = &unasked.scope else { return false };
    let Ok(statements) = statement::parse(&unasked.text) else { return false };
    let [statement] = &statements[..] else { return false };
    let context = Context::new(new, scope);
    planner::plan(statement, &context).is_ok_and(|planned| planned.unasked)
}

/// What the client is told of a change that the machine has refused.
fn refused(why: Refusal) -> Failure {
    let (message, hint) = match why {
        // Ending it would leave the rest of its work undone.
        Refusal::CannotEnd => (
            "a procedure that commits is at work, and would touch more than tables of node 1",
            "Nothing was changed; retry when it has ended.",
        ),
        Refusal::DoesNotEnd => (
            "statements that were planned before do not end",
            "Nothing was changed; the transaction might succeed if retried.",
        ),
        Refusal::DefinitionsChanged => (
            "definitions were changed while the first table was spread over nodes",
            "Nothing was changed; the transaction might succeed if retried.",
        ),
        // What has failed is reported instead.
        Refusal::Failed => return canceled(sqlstate::QUERY_CANCELED, "user request"),
    };
    ErrorFields::error(sqlstate::SERIALIZATION_FAILURE, message).with(b'H', hint).into()
}

/// Asks the nodes what the backends of these sessions are at.
async fn look(
    registry: &Registry,
    own: i32,
    sessions: &BTreeSet<Session>,
) -> Result<BTreeMap<Session, BTreeSet<Backend>>, GatewayError> {
    let ours = registry.backends_by_node([own]);
    let mut theirs: BTreeMap<NodeId, BTreeMap<i32, (Session, Arc<NodeBackend>)>> = BTreeMap::new();
    for session in sessions {
        let targets = match is_left(*session) {
            true => registry.backends.left(session.0).into_iter().collect(),
            false => registry.backends.of(session.0),
        };
        for target in targets {
            let key = target.key();
            let of_node = theirs.entry(key.node).or_default();
            of_node.insert(key.process_id, (*session, target.backend()));
        }
    }
    let mut seen: BTreeMap<_, BTreeSet<Backend>> = BTreeMap::new();
    for (node, backends) in theirs {
        let sql = format!(
            "SELECT a.pid, pg_catalog.pg_blocking_pids(a.pid) && '{{{}}}'::pg_catalog.int4[]
        AND NOT pg_catalog.starts_with(a.query, '{READS_CATALOG}'),
    a.state = 'active', a.wait_event IS NOT DISTINCT FROM 'relation',
    pg_catalog.clock_timestamp() - a.query_start > '{} ms'
FROM pg_catalog.pg_stat_activity a JOIN tutti.backend b ON b.pid = a.pid AND b.started = a.backend_start
WHERE a.pid = ANY ('{{{}}}')",
            ours.get(&node).map_or_else(String::new, process_ids),
            LOCKS_TAKEN_AFTER.as_millis(),
            process_ids(&backends),
        );
        let rows = registry.cluster.ask_within(LOOK_PATIENCE, node, &sql).await?;
        for row in 0..rows.rows.len() {
            let pid = rows.text(row, 0).and_then(|pid| pid.parse().ok()).unwrap_or(0);
            let Some((session, backend)) = backends.get(&pid) else { continue };
            let is = |column| rows.text(row, column) == Some("t");
            seen.entry(*session).or_default().insert(Backend {
                waits_for_change: is(1),
                is_active: is(2),
                waits_for_table: is(3),
                runs_for_long: is(4),
                owes_answer: backend.owes_answer(),
            });
        }
    }
    Ok(seen)
}
