//! Moving a table to another node, and driving [`PlacementChange`] at its COMMIT.
//!
//! Owns: the transaction of the move, and what the machine is told of other sessions and of nodes.
//! Never: decides which sessions a change waits for, stops or cancels; [`PlacementChange`] does.
//! Start reading at [`Gateway::move_table`]. The product's is `gateway/transaction/placement_change.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use tutti_txn::placement_change::{
    Backend, Effect, Ended, Event, Found, GLANCE, LOCKS_TAKEN_AFTER, LOOK_PATIENCE, Looked, Noted,
    PUBLISH_PATIENCE, Plan, Session, Terms,
};
use tutti_txn::{NodeId, PlacementChange};

use super::commit::Links;
use super::plans::{Activity, Failed};
use super::publisher::Hold;
use super::{Gateway, HOME};
use crate::bugs::Bug;
use crate::faults::ARRIVAL;
use crate::history::Told;
use crate::network::Lost;
use crate::node::statement::{Answer, BackendId, Isolation, Key, Statement, TxnNo, catalog_of};

/// The world is faster than the one for which the machine was made: what takes so many of the world's
/// microseconds takes one of the machine's milliseconds.
const MILLISECOND: u64 = ARRIVAL / GLANCE.as_millis() as u64;

/// Of a duration of the machine's: how long it takes in the world.
fn in_world(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX) * MILLISECOND / 1_000
}

/// Of a time of the world: how long it is for the machine.
fn for_machine(time: u64) -> Duration {
    Duration::from_micros(time * 1_000 / MILLISECOND)
}

impl Gateway {
    /// Moves a table: its rows, and the catalog's row about it.
    ///
    /// Errors: nothing was done.
    pub(super) async fn move_table(
        &self,
        activity: &Activity,
        txn: TxnNo,
        table: Key,
        to: NodeId,
    ) -> Result<Told, Failed> {
        self.begin_statement(activity, &[table].into()).await?;
        let mut links = Links::new();
        let placed = self.place_by_node(activity, &mut links, table).await?;
        let to = match placed == to {
            true => self.next_node(to),
            false => to,
        };
        self.sim().world().moves.insert(txn, (table, to));
        for node in BTreeSet::from([placed, to]) {
            self.lock_on(activity, &mut links, node, table).await?;
        }
        let taken = self.step(activity, &links[&placed], Statement::TakeOut(table)).await?;
        let Answer::Rows(mut rows) = taken else { return Err(Failed::Lost) };
        let rows = rows.remove(&table).unwrap_or_default();
        let appended = Statement::Append(catalog_of(table), txn);
        for (node, statement) in [(to, Statement::PutIn(table, rows)), (HOME, appended)] {
            let answer = self.step(activity, &links[&node], statement).await?;
            if !matches!(answer, Answer::Rows(_)) {
                return Err(Failed::Lost);
            }
        }
        activity.end_plan();
        self.think().await;
        self.commit_move(activity, txn, table, links).await
    }

    /// Where the table is, once no other change of it can be committed.
    async fn place_by_node(
        &self,
        activity: &Activity,
        links: &mut Links,
        table: Key,
    ) -> Result<NodeId, Failed> {
        self.lock_on(activity, links, HOME, table).await?;
        let row = catalog_of(table);
        let read = self.step(activity, &links[&HOME], Statement::Read([row].into())).await?;
        let Answer::Rows(rows) = read else { return Err(Failed::Lost) };
        Ok(self.place_after(table, rows.get(&row).map_or(&[], Vec::as_slice)))
    }

    async fn lock_on(
        &self,
        activity: &Activity,
        links: &mut Links,
        node: NodeId,
        table: Key,
    ) -> Result<(), Failed> {
        if links.contains_key(&node) {
            return Ok(());
        }
        let link = self.link_of(activity, node).await?;
        link.send(Statement::Begin(Isolation::ReadCommitted));
        self.barrier(&link).await?;
        let locked = self.step(activity, &link, Statement::LockTable(table)).await?;
        links.insert(node, link);
        match locked {
            Answer::Done => Ok(()),
            _ => Err(Failed::Lost),
        }
    }

    fn next_node(&self, node: NodeId) -> NodeId {
        let count = self.sim().world().plan.node_count;
        NodeId(node.0 % count + 1)
    }

    async fn commit_move(
        &self,
        activity: &Activity,
        txn: TxnNo,
        table: Key,
        links: Links,
    ) -> Result<Told, Failed> {
        self.sim().world().history.asks_for_commit(txn);
        let (mut machine, hold) = self.approach(activity, table, &links).await?;
        let told = self.commit_global(txn, links, false).await;
        let how = match told {
            Told::Committed => Ended::Committed,
            Told::Aborted => Ended::Aborted,
            Told::Unknown => Ended::Unknown,
        };
        self.publish(&mut machine, how).await;
        drop(hold);
        Ok(told)
    }

    /// Performs the machine's effects until the transaction may be committed.
    ///
    /// Errors: the machine has refused the change.
    async fn approach(
        &self,
        activity: &Activity,
        table: Key,
        links: &Links,
    ) -> Result<(PlacementChange, Option<Hold>), Failed> {
        let mut effects = Vec::new();
        let mut machine = PlacementChange::begin(false, &mut effects);
        let (mut hold, mut begun) = (None, 0);
        loop {
            let mut answer = None;
            for effect in std::mem::take(&mut effects) {
                self.sim().note(|| format!("session {:?}: {effect:?}", activity.session));
                answer = match effect {
                    Effect::AskVoters => Some(self.ask_voters(links).await),
                    Effect::LetPass => Some(Event::Passed),
                    Effect::WaitForPause => Some(Event::PauseOver),
                    Effect::Hold => {
                        begun = self.sim().now();
                        hold = (!self.sim().has(Bug::NothingIsHeld)).then(|| self.hold());
                        None
                    }
                    Effect::Release => {
                        hold = None;
                        None
                    }
                    Effect::Compare => Some(Event::Compared(self.terms())),
                    Effect::StopUnsent => {
                        self.others(activity).iter().for_each(|other| other.overtake_unsent());
                        None
                    }
                    Effect::List { after } => {
                        self.sim().sleep(in_world(after)).await;
                        let others = self.others(activity);
                        let plans = others.iter().map(|it| (it.session, it.plan_for(table)));
                        let left =
                            self.0.left.borrow().keys().map(|it| (*it, Plan::LEFT)).collect();
                        let plans = plans.chain::<Vec<_>>(left).collect();
                        Some(Event::Listed { at: for_machine(self.sim().now() - begun), plans })
                    }
                    Effect::Look(sessions) => {
                        let seen = self.look_at(activity, &sessions).await;
                        let at = for_machine(self.sim().now() - begun);
                        let event = |seen| Event::Looked {
                            at,
                            sessions: self.with_plans(&sessions, seen, table),
                        };
                        Some(seen.map_or(Event::Failed, event))
                    }
                    Effect::Stop(session) => {
                        self.with_session(session, Activity::overtake);
                        None
                    }
                    Effect::Cancel(session) if !self.0.left.borrow().contains_key(&session) => {
                        self.end_statement(session, Statement::Cancel).await;
                        None
                    }
                    Effect::Cancel(session) | Effect::EndConnections(session) => {
                        self.end_statement(session, Statement::EndBackends).await;
                        None
                    }
                    Effect::CheckDefinitions => Some(Event::DefinitionsHold),
                    Effect::Commit => return Ok((machine, hold)),
                    Effect::Refuse(_) => return Err(Failed::Lost),
                    Effect::Note(_) | Effect::AwaitPublished => {
                        unreachable!("they come after the commit")
                    }
                };
            }
            if let Some(event) = answer {
                self.sim().note(|| format!("session {:?}: {event:?}", activity.session));
                machine.step(event, &mut effects);
            }
        }
    }

    async fn publish(&self, machine: &mut PlacementChange, how: Ended) {
        let mut effects = Vec::new();
        let mut event = Some(Event::Ended(how));
        while let Some(happened) = event.take() {
            machine.step(happened, &mut effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Note(Noted::Own) if self.sim().has(Bug::ChangeIsNotNoted) => (),
                    Effect::Note(_) => self.note_change(),
                    Effect::AwaitPublished => {
                        let published = self.wait_until_published(in_world(PUBLISH_PATIENCE)).await;
                        event = Some(match published {
                            Ok(()) => Event::Published,
                            Err(Lost) => Event::PublishingDelayed,
                        });
                    }
                    // The caller drops the hold.
                    Effect::Release => (),
                    _ => unreachable!("it comes before the commit"),
                }
            }
        }
    }

    async fn ask_voters(&self, links: &Links) -> Event {
        let asked: Vec<_> =
            links.values().map(|link| link.send(Statement::Read(BTreeSet::new()))).collect();
        for answer in asked {
            if !matches!(answer.take().await, Ok(Answer::Rows(_))) {
                return Event::Failed;
            }
        }
        Event::VotersAnswered
    }

    fn terms(&self) -> Terms {
        let mut world = self.sim().world();
        Terms {
            was_solo: false,
            is_solo: false,
            is_at_home: false,
            is_more: world.chance(30),
            grows_code: false,
            changes_names: false,
            found: if world.chance(20) { Found::Anywhere } else { Found::Elsewhere },
        }
    }

    /// The other sessions that have plans.
    fn others(&self, own: &Activity) -> Vec<Rc<Activity>> {
        let activities = self.0.activities.borrow();
        let others = activities.values().filter(|it| it.session != own.session && it.has_plan());
        others.cloned().collect()
    }

    fn with_session(&self, session: Session, step: impl FnOnce(&Activity)) {
        if let Some(activity) = self.0.activities.borrow().get(&session) {
            step(activity);
        }
    }

    fn backends_of(&self, session: Session) -> BTreeMap<NodeId, BTreeSet<BackendId>> {
        let mut backends: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        if let Some((node, backend)) = self.0.left.borrow().get(&session) {
            backends.insert(*node, [*backend].into());
        }
        self.with_session(session, |activity| {
            for (node, backend) in activity.backends() {
                backends.entry(node).or_default().insert(backend);
            }
        });
        backends
    }

    /// Asks nodes what the backends of these sessions do.
    async fn look_at(
        &self,
        own: &Activity,
        sessions: &BTreeSet<Session>,
    ) -> Result<BTreeMap<Session, BTreeSet<Backend>>, Lost> {
        let ours = self.backends_of(own.session);
        let mut theirs: BTreeMap<NodeId, BTreeMap<BackendId, Session>> = BTreeMap::new();
        for session in sessions {
            for (node, backends) in self.backends_of(*session) {
                let of = backends.into_iter().map(|backend| (backend, *session));
                theirs.entry(node).or_default().extend(of);
            }
        }
        let mut seen: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (node, backends) in theirs {
            let link = self.own_link(node).await?;
            let of = backends.keys().copied().collect();
            let ours = ours.get(&node).cloned().unwrap_or_default();
            let asked = link.send(Statement::Look { of, ours });
            let answer = asked.take_before(self.sim().bell(in_world(LOOK_PATIENCE))).await;
            let Some(Ok(Answer::Activity(found))) = answer else { return Err(Lost) };
            self.give_back(link);
            self.0.left.borrow_mut().retain(|session, (of, backend)| {
                *of != node || !sessions.contains(session) || found.contains_key(backend)
            });
            for (backend, activity) in found {
                let hides = self.sim().has(Bug::LookSeesNobodyWaiting);
                seen.entry(backends[&backend]).or_default().insert(Backend {
                    waits_for_change: activity.waits_for_ours && !hides,
                    is_active: activity.is_active,
                    waits_for_table: activity.waits_for_table && !hides,
                    runs_for_long: in_world(LOCKS_TAKEN_AFTER) < activity.runs_for,
                    // What was sent is there within a glance, here.
                    owes_answer: false,
                });
            }
        }
        Ok(seen)
    }

    /// Which of the sessions still have a plan, with what was seen of them.
    fn with_plans(
        &self,
        sessions: &BTreeSet<Session>,
        mut seen: BTreeMap<Session, BTreeSet<Backend>>,
        table: Key,
    ) -> BTreeMap<Session, Looked> {
        let activities = self.0.activities.borrow();
        let left = self.0.left.borrow();
        let found = sessions.iter().filter_map(|session| {
            let plan = match activities.get(session).filter(|it| it.has_plan()) {
                Some(activity) => activity.plan_for(table),
                None => left.contains_key(session).then_some(Plan::LEFT)?,
            };
            let backends = seen.remove(session).unwrap_or_default();
            Some((*session, Looked { plan, backends }))
        });
        let mut found: BTreeMap<_, _> = found.collect();
        // A session that has gone since it was listed may have left something: that is to be listed.
        for session in left.keys().filter(|session| !sessions.contains(session)) {
            found.insert(*session, Looked::left_since());
        }
        found
    }

    async fn end_statement(
        &self,
        session: Session,
        statement: fn(BTreeSet<BackendId>) -> Statement,
    ) {
        self.with_session(session, Activity::mark);
        for (node, backends) in self.backends_of(session) {
            let Ok(link) = self.any_link(node).await else { continue };
            if link.ask(statement(backends)).await.is_ok() {
                self.give_back(link);
            }
        }
    }
}
