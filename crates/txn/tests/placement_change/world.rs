//! A model of sessions, their statements on the nodes, and the driver, around the real machine.
//!
//! Owns: when a [`Move`] can happen ([`World::moves`]), and what it does ([`World::apply`]).
//! Never: judges the end; that is `main.rs`. What must never happen it notes in [`World::broken`].
//! Start reading at [`World`].
//!
//! What is assumed: the change has ACCESS EXCLUSIVE on its tables until it ends; what is sent is at its node
//! within [`GLANCE`] (or, in slow worlds, within [`SLOW`]), and on its way to its first lock no
//! longer than [`LOCKS_TAKEN_AFTER`], unless it waits for a table that another has locked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tutti_txn::PlacementChange;
use tutti_txn::placement_change::{
    Backend, Effect, Ended, Event, Found, GLANCE, LOCKS_TAKEN_AFTER, Looked, Noted, Plan, Proof,
    Refusal, Session, Terms,
};

use crate::mutation::Mutation;

/// What a part of a step does on its node.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Access {
    /// It uses other tables than the change's.
    Other,
    /// The same, and waits there for another than the change.
    Queues,
    /// The same, and comes to a table of the change after that.
    QueuesThenReads,
    /// It reads a table of the change.
    Reads,
    /// It writes one.
    Writes,
}

impl Access {
    fn uses_change(self) -> bool {
        matches!(self, Self::QueuesThenReads | Self::Reads | Self::Writes)
    }
}

/// A statement: its steps one after the other, the parts of each at the same time on different nodes.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Script {
    pub steps: &'static [&'static [Access]],
    /// It commits before it ends, and this is what the new catalog says of it.
    pub cannot_end: Option<Proof>,
    /// Its last step makes rows anew that were brought together.
    pub brings: bool,
    /// Its last step makes rows of the change's table anew, by the columns that its plan knows.
    pub rebuilds: bool,
    /// Its parts call code that the change may make do more, at any time until they are done.
    pub calls: bool,
    /// Its code goes on although it is cancelled.
    pub is_stubborn: bool,
    /// Its steps are sent together, to one node.
    pub is_flight: bool,
}

/// A statement of these steps, without anything special.
pub const fn plain(steps: &'static [&'static [Access]]) -> Script {
    Script {
        steps,
        cannot_end: None,
        brings: false,
        rebuilds: false,
        calls: false,
        is_stubborn: false,
        is_flight: false,
    }
}

impl Script {
    fn uses_change(&self) -> bool {
        self.steps.iter().flat_map(|step| step.iter()).any(|access| access.uses_change())
    }

    fn writes_in_steps(&self) -> bool {
        1 < self.steps.len()
            && !self.is_flight
            && self.steps.iter().flat_map(|s| s.iter()).any(|a| *a == Access::Writes)
    }

    fn plan(&self) -> Plan {
        let uses = self.uses_change() || self.rebuilds;
        Plan {
            cannot_end: self.cannot_end,
            may_use_moved: uses,
            may_use_changed: uses,
            uses_changed: uses,
            uses_changed_names: uses,
            writes_changed_in_steps: self.writes_in_steps(),
            rebuilds_changed: self.rebuilds,
            brings_checked: self.brings,
            may_call_grown: self.calls,
            sends_ahead: self.is_flight,
            comes_later: false,
        }
    }

    fn calls_grown(&self, terms: Terms) -> bool {
        terms.grows_code && self.calls
    }

    /// Whether this access by an old plan, once the change is committed, is what the change must not meet.
    fn must_not(&self, step: usize, access: Access, terms: Terms) -> bool {
        let uses = access.uses_change();
        let is_brought_late = terms.is_more && self.brings && step + 1 == self.steps.len();
        let is_rebuilt_late = self.rebuilds && step + 1 == self.steps.len();
        is_brought_late
            || is_rebuilt_late
            || self.calls_grown(terms)
            || (terms.changes_names && uses)
            || match terms.found {
                Found::AsBefore { adds_code } => {
                    let is_whole = self.steps.len() == 1 || self.is_flight;
                    uses && (adds_code || is_whole || access == Access::Writes)
                }
                Found::Elsewhere | Found::Anywhere => uses,
            }
    }
}

/// How far a part of a step is.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum PartAt {
    /// Sent.
    Flying,
    /// At its node, on its way to its lock.
    Coming,
    /// Waits for a table that another has locked.
    Queued,
    /// Waits for the change.
    Waiting,
    /// Has its lock.
    Working {
        /// For [`LOCKS_TAKEN_AFTER`].
        long: bool,
    },
    Done,
}

/// How far a session is.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum At {
    /// Its statement has not begun.
    Rest,
    /// It has said that it makes a plan, and has not looked for holds.
    InSight,
    /// It has a plan of which nothing was sent.
    Planned,
    /// A step is running.
    Step(usize, Vec<PartAt>),
    /// It is about to send this step, or to end.
    Between(usize),
    /// Its statement has ended, well or not.
    Over,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Client {
    pub script: Script,
    pub at: At,
    /// Planned with the change.
    knows: bool,
    /// Nothing more of the plan is to be sent.
    is_stopped: bool,
    /// The same before anything was.
    is_stopped_unsent: bool,
    cancel_is_out: bool,
    end_is_out: bool,
    was_cancelled: bool,
}

impl Client {
    fn has_plan(&self) -> bool {
        !matches!(self.at, At::Rest | At::Over)
    }
}

/// What the driver waits for.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Awaited {
    /// Answered as it is.
    Answer(Effect),
    /// The nodes have been looked at; the answer is on its way.
    Seen(BTreeMap<Session, BTreeSet<Backend>>),
    /// The transaction is at its end on the nodes.
    Ended(Ended),
    Nothing,
}

/// One thing that can happen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Move {
    /// The session goes on by itself.
    Client(usize),
    /// A part of its step goes on.
    Part(usize, usize),
    CancelArrives(usize),
    EndArrives(usize),
    /// The driver answers what the machine waits for.
    Answer,
    /// What was asked for cannot be had.
    Fail,
    /// The transaction ends like this on the nodes.
    TransactionEnds(Ended),
    /// What was noted is read.
    Publish,
    PublishingIsDelayed,
    /// Time passes.
    Tick,
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

/// How long a message may be on its way, or its server not come to its turn, where nothing is quick.
const SLOW: Duration = ms(1_000);

/// The moments at which something is looked at, since the hold.
const TIMES: &[Duration] =
    &[ms(0), ms(5), ms(35), ms(1_100), ms(2_200), ms(3_300), ms(10_200), ms(13_500), ms(20_500)];

/// The moments go on after the list, in steps longer than any patience.
fn moment(time: usize) -> Duration {
    let last = TIMES.len() - 1;
    let further = u64::try_from(time.saturating_sub(last)).expect("few");
    TIMES[time.min(last)] + ms(11_000 * further)
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct World {
    pub terms: Terms,
    pub clients: Vec<Client>,
    machine: PlacementChange,
    awaited: Awaited,
    /// Whether what is sent may be on its way for [`SLOW`].
    is_slow: bool,
    time: usize,
    pub is_held: bool,
    has_locks: bool,
    pub is_committed: bool,
    is_noted: bool,
    is_published: bool,
    is_acknowledged: bool,
    pub refused: Option<Refusal>,
    /// Which sessions had all their locks for long when the nodes were looked at last.
    at_work: BTreeSet<Session>,
    /// Only with a mutation: what was seen first.
    seen_first: BTreeMap<Session, BTreeSet<Backend>>,
    /// Lists and looks since time has passed last.
    answers: u8,
    may_fail: bool,
    /// What must never happen and did.
    pub broken: BTreeSet<&'static str>,
}

impl World {
    pub fn begin(terms: Terms, scripts: &[Script], is_slow: bool, may_fail: bool) -> Self {
        let client = |script: &Script| Client {
            script: *script,
            at: At::Rest,
            knows: false,
            is_stopped: false,
            is_stopped_unsent: false,
            cancel_is_out: false,
            end_is_out: false,
            was_cancelled: false,
        };
        let mut effects = Vec::new();
        let machine = PlacementChange::begin(true, &mut effects);
        let mut world = Self {
            terms,
            clients: scripts.iter().map(client).collect(),
            machine,
            awaited: Awaited::Nothing,
            is_slow,
            time: 0,
            is_held: false,
            has_locks: true,
            is_committed: false,
            is_noted: false,
            is_published: false,
            is_acknowledged: false,
            refused: None,
            at_work: BTreeSet::new(),
            seen_first: BTreeMap::new(),
            answers: 0,
            may_fail,
            broken: BTreeSet::new(),
        };
        world.perform(effects, None);
        world
    }

    pub fn is_finished(&self) -> bool {
        self.machine.is_finished()
    }

    fn may_begin(&self) -> bool {
        !self.is_held && (!self.is_noted || self.is_published)
    }

    pub fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for (index, client) in self.clients.iter().enumerate() {
            match &client.at {
                At::Rest if !self.may_begin() => (),
                At::Rest | At::InSight | At::Planned | At::Between(_) => {
                    moves.push(Move::Client(index));
                }
                At::Step(_, parts) => {
                    let can_go_on = |(_, part): &(usize, &PartAt)| match part {
                        PartAt::Done => false,
                        PartAt::Waiting => !self.has_locks,
                        _ => true,
                    };
                    let going = parts.iter().enumerate().filter(can_go_on);
                    moves.extend(going.map(|(part, _)| Move::Part(index, part)));
                    if parts.iter().all(|part| *part == PartAt::Done) {
                        moves.push(Move::Client(index));
                    }
                }
                At::Over => (),
            }
            if client.cancel_is_out {
                moves.push(Move::CancelArrives(index));
            }
            if client.end_is_out {
                moves.push(Move::EndArrives(index));
            }
        }
        match &self.awaited {
            Awaited::Nothing => (),
            Awaited::Answer(Effect::Commit) => {
                let ends = [Ended::Committed, Ended::Aborted, Ended::Unknown];
                moves.extend(ends.map(Move::TransactionEnds));
            }
            Awaited::Answer(Effect::AwaitPublished) => {
                moves.push(match self.is_published {
                    true => Move::Answer,
                    false => Move::PublishingIsDelayed,
                });
            }
            Awaited::Answer(_) | Awaited::Seen(_) => {
                moves.push(Move::Answer);
                if self.may_fail {
                    moves.push(Move::Fail);
                }
            }
            Awaited::Ended(_) => moves.push(Move::Answer),
        }
        if self.is_noted && !self.is_published {
            moves.push(Move::Publish);
        }
        if self.may_tick() {
            moves.push(Move::Tick);
        }
        moves
    }

    fn parts(&self) -> impl Iterator<Item = PartAt> {
        self.clients.iter().flat_map(|client| match &client.at {
            At::Step(_, parts) => parts.clone(),
            _ => Vec::new(),
        })
    }

    /// How far time jumps next. Before the hold it passes without being counted.
    fn next_tick(&self) -> Option<Duration> {
        match self.is_held {
            false if self.time == 0 && self.has_locks && self.refused.is_none() => {
                Some(LOCKS_TAKEN_AFTER)
            }
            false => None,
            // At the end of the list the driver is not slow any more.
            true if TIMES.len() <= self.time + 1 && self.answers < 4 => None,
            true => Some(moment(self.time + 1) - moment(self.time)),
        }
    }

    fn may_tick(&self) -> bool {
        // While the transaction is at its end, time does not matter.
        if matches!(self.awaited, Awaited::Answer(Effect::Commit | Effect::AwaitPublished)) {
            return false;
        }
        let Some(jump) = self.next_tick() else { return false };
        let arrives_within = if self.is_slow { SLOW } else { GLANCE };
        let mut parts = self.parts();
        let changes = self.is_held || self.parts().any(|p| p == PartAt::Working { long: false });
        changes
            && !parts.any(|part| match part {
                PartAt::Flying => arrives_within <= jump,
                PartAt::Coming => LOCKS_TAKEN_AFTER <= jump,
                _ => false,
            })
    }

    pub fn apply(&mut self, step: Move, mutation: Option<Mutation>) {
        match step {
            Move::Client(index) => self.client_goes_on(index),
            Move::Part(index, part) => self.part_goes_on(index, part),
            Move::CancelArrives(index) => {
                self.clients[index].cancel_is_out = false;
                if !self.clients[index].script.is_stubborn {
                    self.end_statement(index);
                }
            }
            Move::EndArrives(index) => {
                self.clients[index].end_is_out = false;
                self.end_statement(index);
            }
            Move::Answer => self.answer(mutation),
            Move::Fail => self.step(Event::Failed, mutation),
            Move::TransactionEnds(how) => {
                self.has_locks = false;
                self.is_committed = how == Ended::Committed;
                self.awaited = Awaited::Ended(how);
            }
            Move::Publish => self.is_published = true,
            Move::PublishingIsDelayed => self.step(Event::PublishingDelayed, mutation),
            Move::Tick => {
                let jump = self.next_tick().unwrap_or_default();
                if self.is_held {
                    self.time += 1;
                    self.answers = 0;
                    if TIMES.len() + 3 < self.time {
                        self.broken.insert("every_change_ends");
                    }
                }
                if LOCKS_TAKEN_AFTER <= jump {
                    for client in &mut self.clients {
                        if let At::Step(_, parts) = &mut client.at {
                            for part in parts {
                                if let PartAt::Working { long } = part {
                                    *long = true;
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn client_goes_on(&mut self, index: usize) {
        let may_begin = self.may_begin();
        let (is_published, is_acknowledged) = (self.is_published, self.is_acknowledged);
        let client = &mut self.clients[index];
        let send = |script: &Script, step: usize| match script.steps.get(step) {
            Some(parts) => At::Step(step, vec![PartAt::Flying; parts.len()]),
            None => At::Over,
        };
        client.at = match &client.at {
            At::Rest => {
                client.is_stopped_unsent = false;
                client.is_stopped = false;
                At::InSight
            }
            // It was overtaken, or finds a hold: it begins anew.
            At::InSight if !may_begin => At::Rest,
            At::InSight => {
                client.knows = is_published;
                if is_acknowledged && !is_published {
                    self.broken.insert("acknowledged_is_planned_with");
                }
                At::Planned
            }
            At::Planned if client.is_stopped_unsent => At::Rest,
            At::Planned => send(&client.script, 0),
            At::Step(step, _) => At::Between(step + 1),
            // Its client gets 40001, or it begins anew.
            At::Between(next) if client.is_stopped && *next < client.script.steps.len() => At::Over,
            At::Between(next) => send(&client.script, *next),
            At::Over => At::Over,
        };
    }

    fn part_goes_on(&mut self, index: usize, which: usize) {
        let (has_locks, is_committed, terms) = (self.has_locks, self.is_committed, self.terms);
        let client = &mut self.clients[index];
        let At::Step(step, parts) = &mut client.at else { return };
        let access = client.script.steps[*step][which];
        let queues = matches!(access, Access::Queues | Access::QueuesThenReads);
        let part = &mut parts[which];
        let may_call = matches!(*part, PartAt::Working { .. });
        if may_call && is_committed && !client.knows && client.script.calls_grown(terms) {
            self.broken.insert("no_old_plan_meets_the_change");
        }
        *part = match *part {
            PartAt::Flying => PartAt::Coming,
            PartAt::Coming if queues => PartAt::Queued,
            PartAt::Coming | PartAt::Queued if access.uses_change() && has_locks => PartAt::Waiting,
            PartAt::Coming | PartAt::Queued | PartAt::Waiting => {
                let is_late = is_committed && !client.knows;
                if is_late && client.script.must_not(*step, access, terms) {
                    self.broken.insert("no_old_plan_meets_the_change");
                }
                PartAt::Working { long: false }
            }
            // The next step of a flight is at the node already.
            PartAt::Working { .. } | PartAt::Done
                if client.script.is_flight && *step + 1 < client.script.steps.len() =>
            {
                *step += 1;
                PartAt::Coming
            }
            PartAt::Working { .. } | PartAt::Done => PartAt::Done,
        };
    }

    /// What its backends do is over, with an error if they did anything.
    fn end_statement(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if matches!(&client.at, At::Step(_, parts) if parts.iter().any(|p| *p != PartAt::Done)) {
            client.at = At::Over;
        }
    }

    fn answer(&mut self, mutation: Option<Mutation>) {
        let at = match mutation {
            Some(Mutation::TimeStandsStill) => Duration::ZERO,
            _ => moment(self.time),
        };
        match self.awaited.clone() {
            Awaited::Nothing => (),
            Awaited::Ended(how) => {
                self.is_acknowledged |= how == Ended::Committed;
                self.step(Event::Ended(how), mutation);
            }
            Awaited::Seen(seen) => {
                let looked = |session: Session, backends| {
                    let client = self.client_of(session);
                    let looked = Looked { plan: self.told_plan(client, mutation), backends };
                    client.has_plan().then_some((session, looked))
                };
                let looked = seen.into_iter().filter_map(|(session, seen)| looked(session, seen));
                let sessions = looked.collect();
                self.note_answer();
                self.step(Event::Looked { at, sessions }, mutation);
            }
            Awaited::Answer(effect) => {
                let event = match effect {
                    Effect::AskVoters => Event::VotersAnswered,
                    Effect::LetPass => Event::Passed,
                    Effect::WaitForPause => Event::PauseOver,
                    Effect::Compare => Event::Compared(self.terms),
                    Effect::List { .. } => {
                        self.note_answer();
                        let plans = (1..).zip(&self.clients).filter(|(_, client)| {
                            let is_overlooked = mutation == Some(Mutation::SentPlansAreOverlooked)
                                && matches!(client.at, At::Step(..) | At::Between(_));
                            client.has_plan() && !is_overlooked
                        });
                        let told = |(number, client): (i32, &Client)| {
                            (Session(number), self.told_plan(client, mutation))
                        };
                        Event::Listed { at, plans: plans.map(told).collect() }
                    }
                    Effect::Look(sessions) => {
                        self.look(sessions, mutation);
                        return;
                    }
                    Effect::CheckDefinitions => Event::DefinitionsHold,
                    Effect::AwaitPublished => Event::Published,
                    _ => return,
                };
                self.step(event, mutation);
            }
        }
    }

    fn note_answer(&mut self) {
        if TIMES.len() <= self.time + 1 {
            self.answers = 4.min(self.answers + 1);
        }
    }

    fn client_of(&self, session: Session) -> &Client {
        &self.clients[Self::index_of(session)]
    }

    fn index_of(session: Session) -> usize {
        usize::try_from(session.0).expect("numbers begin with 1") - 1
    }

    /// What the driver says of a session's plan.
    fn told_plan(&self, client: &Client, mutation: Option<Mutation>) -> Plan {
        let mut plan = client.script.plan();
        match mutation {
            Some(Mutation::EndingIsForAll) => plan.cannot_end = None,
            Some(Mutation::ProofIsNotMadeAnew) => {
                plan.cannot_end = plan.cannot_end.map(|_| Proof::Holds);
            }
            Some(Mutation::EveryPlanUsesAll) => {
                (plan.may_use_moved, plan.may_use_changed, plan.uses_changed) = (true, true, true);
            }
            Some(Mutation::WritingInStepsIsOverlooked) => plan.writes_changed_in_steps = false,
            Some(Mutation::ReadingIsOverlooked) => plan.uses_changed = false,
            Some(Mutation::RebuildingIsOverlooked) => plan.rebuilds_changed = false,
            Some(Mutation::BroughtRowsAreOverlooked) => plan.brings_checked = false,
            Some(Mutation::FlightsAreOverlooked) => plan.sends_ahead = false,
            Some(Mutation::CallsAreOverlooked) => plan.may_call_grown = false,
            Some(Mutation::ChangedNamesAreOverlooked) => plan.uses_changed_names = false,
            _ => (),
        }
        plan
    }

    fn look(&mut self, sessions: BTreeSet<Session>, mutation: Option<Mutation>) {
        self.at_work.clear();
        let mut seen = BTreeMap::new();
        for session in sessions {
            let client = self.client_of(session);
            let parts = match &client.at {
                At::Step(_, parts) => parts.clone(),
                _ => Vec::new(),
            };
            let is_long = |part: &PartAt| *part == PartAt::Working { long: true };
            if parts.iter().any(is_long) && parts.iter().all(|p| is_long(p) || *p == PartAt::Done) {
                self.at_work.insert(session);
            }
            let told = parts.iter().map(|part| told_backend(*part, mutation));
            let mut backends: BTreeSet<_> = told.collect();
            if mutation == Some(Mutation::OneBackendIsAsked) {
                backends = backends.into_iter().take(1).collect();
            }
            seen.insert(session, backends);
        }
        if mutation == Some(Mutation::FirstLookIsKept) {
            for (session, backends) in &mut seen {
                *backends = self.seen_first.entry(*session).or_insert(backends.clone()).clone();
            }
        }
        self.awaited = Awaited::Seen(seen);
    }

    fn step(&mut self, event: Event, mutation: Option<Mutation>) {
        self.awaited = Awaited::Nothing;
        let mut effects = Vec::new();
        self.machine.step(event, &mut effects);
        self.perform(effects, mutation);
    }

    fn perform(&mut self, effects: Vec<Effect>, mutation: Option<Mutation>) {
        for effect in effects {
            match effect {
                Effect::Hold => self.is_held = mutation != Some(Mutation::NobodyIsHeld),
                Effect::StopUnsent if mutation == Some(Mutation::UnsentGoesOn) => (),
                Effect::StopUnsent => {
                    for client in &mut self.clients {
                        if matches!(client.at, At::InSight | At::Planned) {
                            client.is_stopped_unsent = true;
                        }
                    }
                }
                Effect::Stop(session) => {
                    self.touch(session);
                    let client = &mut self.clients[Self::index_of(session)];
                    client.is_stopped = mutation != Some(Mutation::StoppedPlansGoOn);
                    client.is_stopped_unsent |= matches!(client.at, At::InSight | At::Planned);
                }
                Effect::Cancel(session) => {
                    self.touch(session);
                    let is_at_work = self.at_work.contains(&session);
                    let client = &mut self.clients[Self::index_of(session)];
                    let leaves_alone = !self.terms.was_solo
                        && !client.script.brings
                        && !client.script.calls_grown(self.terms)
                        && !client.script.is_flight;
                    if is_at_work && !client.was_cancelled && leaves_alone {
                        self.broken.insert("who_has_its_locks_is_not_cancelled");
                    }
                    client.was_cancelled = true;
                    client.cancel_is_out = true;
                }
                Effect::EndConnections(session) => {
                    self.touch(session);
                    self.clients[Self::index_of(session)].end_is_out = true;
                }
                Effect::Note(Noted::Own | Noted::Everything) => {
                    self.is_noted = mutation != Some(Mutation::NothingIsNoted);
                }
                Effect::Release => {
                    self.is_held &= mutation == Some(Mutation::HoldIsKept);
                }
                Effect::Refuse(why) => {
                    self.refused = Some(why);
                    self.has_locks = false;
                }
                effect => self.awaited = Awaited::Answer(effect),
            }
        }
    }

    /// A statement is stopped or ended.
    fn touch(&mut self, session: Session) {
        let script = self.client_of(session).script;
        if script.cannot_end.is_some() {
            self.broken.insert("what_cannot_be_repeated_is_never_ended");
        }
        let is_stranger = !script.uses_change()
            && !script.brings
            && !script.rebuilds
            && !script.calls_grown(self.terms);
        if is_stranger && !self.terms.was_solo {
            self.broken.insert("strangers_are_left_alone");
        }
    }
}

fn told_backend(part: PartAt, mutation: Option<Mutation>) -> Backend {
    let is_waiting = part == PartAt::Waiting;
    let told = Backend {
        waits_for_change: is_waiting,
        is_active: !matches!(part, PartAt::Flying | PartAt::Done),
        waits_for_table: matches!(part, PartAt::Queued | PartAt::Waiting),
        // What waits may have done so for long.
        runs_for_long: matches!(
            part,
            PartAt::Working { long: true } | PartAt::Queued | PartAt::Waiting
        ),
        // Of what is done the session has not read it yet.
        owes_answer: true,
    };
    match mutation {
        Some(Mutation::WaitingIsOverlooked) if is_waiting => {
            Backend { waits_for_change: false, waits_for_table: false, ..told }
        }
        Some(Mutation::WhatIsOnItsWayIsOverlooked) => Backend { owes_answer: false, ..told },
        Some(Mutation::LocksAreTakenAtOnce) => Backend { runs_for_long: true, ..told },
        Some(Mutation::QueuedIsAtWork) => Backend { waits_for_table: false, ..told },
        Some(Mutation::BusyMeansWaiting) => Backend { waits_for_change: told.is_active, ..told },
        _ => told,
    }
}
