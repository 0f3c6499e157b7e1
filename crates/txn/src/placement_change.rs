//! The commit of a change of the schema or of a placement, as statements that run meanwhile see it, as a pure
//! state machine.
//!
//! Owns: the order hold, overtake, commit, publish, release; and whom a change waits for, whom it leaves
//! alone, whose plan it stops, whose statement it cancels, whose connections it ends, and when it is refused.
//! Never: reads a clock, asks a node or the catalog, commits (that is [`crate::coordinator`]).
//! Start reading at [`Phase`] and [`Round`], then [`PlacementChange::step`]. A caller needs [`Effect`] most.
//! Why that is right is `docs/protocol/schema-changes.md`.
//!
//! The change has its locks on every node when this begins: sessions that used one of its tables before have
//! ended, and later ones wait on the node. What waits there has a plan by the old placement, and would run
//! with it as soon as the lock is free. So the locks alone are not enough, and the plans are looked at.
//!
//! **Two looks.** What the nodes say of a statement is as old as the question. One that was seen running may
//! have sent its next step before it is stopped; that step waits for the change, and would run after it. So a
//! statement that must take no further step is stopped first, and counts only when the nodes were asked after
//! that. Where several steps were sent together, that they run says nothing of those behind it: such a statement
//! is not left alone as long as any of them is not done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// How long the nodes of a change may take to answer, before any statement is held.
pub const VOTER_PATIENCE: Duration = Duration::from_secs(3);
/// How long a change waits for statements that other changes have overtaken repeatedly.
pub const COURTESY: Duration = Duration::from_secs(1);
/// What ends within this time is not looked at; and what was sent to a node has arrived by then.
pub const GLANCE: Duration = Duration::from_millis(4);
/// A part of a statement that has run for this long, and waits for no table, has taken its locks.
pub const LOCKS_TAKEN_AFTER: Duration = Duration::from_millis(20);
/// A node that has not answered a look by then is not waited for: all statements wait meanwhile.
pub const LOOK_PATIENCE: Duration = Duration::from_secs(2);
/// How long nodes may take to vote on a change, while no statement begins.
pub const VOTE_PATIENCE: Duration = Duration::from_secs(9);
/// How long a result may take to be published. It is committed all the same.
pub const PUBLISH_PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two looks, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// A statement of which neither is known by then, that it runs or that it waits, is cancelled.
const PATIENCE: Duration = Duration::from_secs(1);
/// One that was cancelled and of which no node knows anything after this time will do nothing more.
const IDLE_PATIENCE: Duration = Duration::from_secs(2);
/// One whose code goes on after a cancellation (it can) is ended with its connections after this time.
const STUBBORN_PATIENCE: Duration = Duration::from_secs(2);
/// A statement that does not end by then, although it was cancelled and its connections were ended, stops the change:
/// all others wait for both.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The life of a change at its COMMIT, in order:
///
/// 1. `Approaching`: no statement is held yet. Its nodes are asked whether they answer, sessions that changes
///    keep from their turn are let pass, and a role that makes all others wait too often waits itself.
/// 2. `Comparing`: new statements are held, and plans of which nothing was sent are marked. What is elsewhere
///    now than before is determined.
/// 3. `Overtaking`: statements with older plans are ended, or brought to where they do not meet the change,
///    in one round or two.
/// 4. `Checking`, where the first table is spread: whether definitions are still those that the other nodes
///    got.
/// 5. `Committing`: no statement with an older plan meets the change any more; it is being committed.
/// 6. `Publishing`: it is committed, and statements are held until they can be planned with it.
/// 7. `Finished`: no statement is held for its sake any more.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Phase {
    /// Life cycle, 1.
    Approaching(Approach),
    /// Life cycle, 2.
    Comparing,
    /// Life cycle, 3.
    Overtaking(Overtaking),
    /// Life cycle, 4.
    Checking,
    /// Life cycle, 5.
    Committing,
    /// Life cycle, 6.
    Publishing,
    /// Life cycle, 7.
    Finished,
}

/// What is waited for before any statement is held, in this order.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Approach {
    /// The change's nodes.
    Voters,
    /// The sessions that changes have overtaken repeatedly.
    Starving,
    /// The pause of the change's role.
    Pause,
}

/// What a change means for plans by the catalog before it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Terms {
    /// Node 1 had all tables before, so each plan leaves everything to it.
    pub was_solo: bool,
    /// Node 1 has all tables after it.
    pub is_solo: bool,
    /// All that it changes is on node 1, which runs its statements by itself.
    pub is_at_home: bool,
    /// It may change more than the relations on which it has locks: functions, types, names.
    pub is_more: bool,
    /// Code that statements by older plans may call does more than they reckon with. It is found when it is
    /// called, whatever locks there are.
    pub grows_code: bool,
    /// Relations lose their names, which a later change may give to others: they are dropped, or called otherwise. Or
    /// names that meant nothing are given to relations that other nodes have, too.
    pub changes_names: bool,
    /// What is elsewhere by the new catalog.
    pub found: Found,
}

impl Terms {
    /// Whether no statement with an older plan is in the way of the change. (One that makes rows anew gets an
    /// error if it meets it, no wrong row.)
    pub fn overtake_nobody(self) -> bool {
        rounds(self).iter().all(|round| *round == Round::WhoRebuilds)
    }
}

/// What is elsewhere than before, or has become something else.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Found {
    /// Nothing.
    AsBefore {
        /// A node would run code by itself that did not exist before: a trigger, a default, a policy.
        adds_code: bool,
    },
    /// Some relations: plans tell whether they depend on them ([`Plan::may_use_moved`]).
    Elsewhere,
    /// Any plan may depend on it.
    Anywhere,
}

/// Which statements with older plans the change must not meet.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Round {
    /// Those that bring together rows which the new catalog does not allow to be. Each of them, for what runs
    /// now may make these rows anew later.
    Transit,
    /// Those that may call code which has come to do more. Each of them, for what runs now may call it later.
    Calls,
    /// Those that depend on a relation which loses its name. None of them has its lock, for the change has it; so each
    /// looks the name up later, when it may be another's by a change that does not know of the first. And those that
    /// name what was not there, where a name is given: who has not looked it up yet finds it, with a plan for node 1.
    Names,
    /// Every one, for what runs now may reach any table later.
    All,
    /// Every statement that does not run already, and the further steps of those that do.
    WhoComes,
    /// A statement that waits for the change's locks, or may be on its way to them: nothing is elsewhere than
    /// before, but what is done to the rows may be something else. And one that writes a changed table in
    /// several steps: the change has the table's locks, so the writing is yet to come. The same for one that
    /// reads such a table, if there is code now that a node would run by itself.
    WhoWaits {
        /// There is such code.
        adds_code: bool,
    },
    /// Of changes of home tables, which others find as they are when they have their locks: one that makes rows
    /// of a changed table anew, by the columns that it had, after it has read them or before it writes them.
    WhoRebuilds,
}

impl Round {
    /// Whether a statement with this plan may have to do with the change, as far as the round asks.
    fn concerns(self, plan: &Plan) -> bool {
        match plan.cannot_end {
            // Node 1 runs it.
            Some(_) if self == Self::WhoRebuilds => false,
            Some(Proof::Holds) => false,
            Some(Proof::Fails) => true,
            None => match self {
                Self::Transit => plan.brings_checked,
                Self::Calls => plan.may_call_grown,
                Self::Names => plan.uses_changed_names,
                Self::WhoComes => plan.may_use_moved,
                Self::WhoRebuilds => plan.rebuilds_changed,
                Self::All | Self::WhoWaits { .. } => true,
            },
        }
    }
}

/// A client's session, by a number of the driver's.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Session(pub i32);

/// What is known of a plan by the catalog before the change, at the moment of a look.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Plan {
    /// It commits before it ends, so it can neither be ended nor be run again. It runs because it was proven
    /// to touch tables of node 1 only; whether that holds by the new catalog.
    pub cannot_end: Option<Proof>,
    /// It may depend on where the relations are that move.
    pub may_use_moved: bool,
    /// It may depend on a relation on which the change has locks. Only where the change knows all that it
    /// changes ([`Terms::is_more`]) can that be excluded.
    pub may_use_changed: bool,
    /// It is known to depend on such a relation.
    pub uses_changed: bool,
    /// It is known to depend on a relation that loses its name, or to name what was not there and may be now.
    pub uses_changed_names: bool,
    /// It writes such a relation in several steps.
    pub writes_changed_in_steps: bool,
    /// It makes rows of such a relation anew in another step than the one that reads or writes them. That may need
    /// none of its locks.
    pub rebuilds_changed: bool,
    /// It brings rows together that may not be brought by the new catalog, for they would be checked.
    pub brings_checked: bool,
    /// It may call code that has come to do more than it reckons with.
    pub may_call_grown: bool,
    /// Several of its steps may have been sent together (statements of a flight): when the node has done the
    /// one that is seen, it goes on with the next without being sent anything more.
    pub sends_ahead: bool,
    /// It may come to further tables in the middle of a step: by code that it calls, by foreign keys that cascade,
    /// for rows of partitions. That it is at work says nothing of their locks.
    pub comes_later: bool,
}

impl Plan {
    /// Of what a session has left on a node, whose plan is not known any more: it may use anything.
    pub const LEFT: Self = Self {
        cannot_end: None,
        may_use_moved: true,
        may_use_changed: true,
        uses_changed: true,
        uses_changed_names: true,
        writes_changed_in_steps: false,
        rebuilds_changed: false,
        brings_checked: false,
        may_call_grown: true,
        sends_ahead: true,
        comes_later: true,
    };
}

/// Whether what was proven of a statement holds by the new catalog.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Proof {
    /// It does.
    Holds,
    /// It does not, or it is not known.
    Fails,
}

/// What a node says of one of a session's backends.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Backend {
    /// It waits for a lock that the change has. (One that only reads the catalog there does not count.)
    pub waits_for_change: bool,
    /// It runs a statement.
    pub is_active: bool,
    /// It waits for the lock of a table, whoever has it.
    pub waits_for_table: bool,
    /// Its statement runs for [`LOCKS_TAKEN_AFTER`].
    pub runs_for_long: bool,
    /// Something may be on its way to it, or its answer has not been read: what was about to be sent when the plan
    /// was stopped counts. Asked after the node.
    pub owes_answer: bool,
}

/// What a statement does, by what the nodes say of its backends. The later variant decides.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Seen {
    /// None of its backends does anything: it is between two steps, or its client reads slowly.
    Idle,
    /// It has its locks and will not meet the change in this step.
    AtWork,
    /// It may still be on its way to a lock.
    OnItsWay,
    /// It waits for a lock of the change.
    WaitsForChange,
}

impl Seen {
    /// `is_late`: nothing is on its way any more, but a client may not read what it has asked for.
    fn of(backends: &BTreeSet<Backend>, is_late: bool) -> Self {
        let of_one = |backend: &Backend| match backend {
            Backend { waits_for_change: true, .. } => Self::WaitsForChange,
            Backend { is_active: false, owes_answer: true, .. } if !is_late => Self::OnItsWay,
            Backend { is_active: false, .. } => Self::Idle,
            Backend { waits_for_table: false, runs_for_long: true, .. } => Self::AtWork,
            Backend { .. } => Self::OnItsWay,
        };
        backends.iter().map(of_one).max().unwrap_or(Self::Idle)
    }
}

/// A statement with an older plan, as it was looked at.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Looked {
    /// Its plan, when the nodes had answered.
    pub plan: Plan,
    /// What the nodes say of its session's backends. What several backends have in common is listed once.
    pub backends: BTreeSet<Backend>,
}

impl Looked {
    /// What a session has left that has gone since the sessions were listed: it is not clear, and is to be
    /// listed.
    pub fn left_since() -> Self {
        let on_its_way = Backend {
            waits_for_change: false,
            is_active: true,
            waits_for_table: false,
            runs_for_long: false,
            owes_answer: false,
        };
        Self { plan: Plan::LEFT, backends: BTreeSet::from([on_its_way]) }
    }
}

/// Something to do. Imperative. Effects that are not answered are done when they are performed, in the order
/// of their batch. Of the others there is one at a time, the last of its batch; its answer is awaited before
/// anything else is done.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Effect {
    /// Ask the change's nodes for any answer, if there are several: no statement is to be held for the sake
    /// of a node that will not vote. The driver waits [`VOTER_PATIENCE`].
    ///
    /// They answer: [`Event::VotersAnswered`]. One does not: [`Event::Failed`].
    AskVoters,
    /// Wait until no session starves that changes have overtaken repeatedly; [`COURTESY`] at most, for it may
    /// wait for what the change itself has locked.
    ///
    /// Answered: [`Event::Passed`].
    LetPass,
    /// Wait until the role may again do what makes all others wait.
    ///
    /// Answered: [`Event::PauseOver`]. The client does not want to wait: [`Event::Failed`].
    WaitForPause,
    /// From now on no statement begins: a session that makes a plan has said so before it looks for holds,
    /// and waits if it finds one. (BEGIN, COMMIT and the like depend on no table and begin.) Time counts from
    /// here. Not answered.
    Hold,
    /// Of each plan of another session: if nothing of it was sent, nothing will be; it is made again. Not
    /// answered.
    StopUnsent,
    /// Compare the catalog that is published with the new one.
    ///
    /// Answered: [`Event::Compared`].
    Compare,
    /// After this pause, list the sessions that have a plan, except the change's own.
    ///
    /// Answered: [`Event::Listed`]. The client cancels meanwhile: [`Event::Failed`].
    List {
        /// How long to wait before.
        after: Duration,
    },
    /// Ask the nodes what the backends of these sessions do, and when all have answered, which of these
    /// sessions still have a plan, and which. A node is waited for [`LOOK_PATIENCE`].
    ///
    /// Answered: [`Event::Looked`]. A node cannot be asked, or the client cancels: [`Event::Failed`].
    Look(BTreeSet<Session>),
    /// Nothing more of the session's plan is sent. Not answered. What was sent before goes on.
    Stop(Session),
    /// Cancel what the session's backends run. The resulting error is ours: a statement outside a
    /// transaction, of which the client was told nothing, is planned and run again; else its client gets
    /// 40001. Not answered.
    Cancel(Session),
    /// The same, and end the session's backends. Not answered.
    EndConnections(Session),
    /// See whether the definitions that the other nodes got are still node 1's.
    ///
    /// They are: [`Event::DefinitionsHold`]. They are not: [`Event::DefinitionsChanged`]. It cannot be
    /// determined: [`Event::Failed`].
    CheckDefinitions,
    /// No statement with an older plan meets the change any more: commit the transaction.
    ///
    /// Answered: [`Event::Ended`].
    Commit,
    /// The change will not be committed; what its client is told. Happens once, unless [`Self::Commit`] does.
    /// Not answered.
    Refuse(Refusal),
    /// Note that the catalog has changed, so that no statement is planned before it is published. Done before
    /// any effect after it. Not answered.
    Note(Noted),
    /// Wait until it is published, [`PUBLISH_PATIENCE`] at most.
    ///
    /// Answered: [`Event::Published`], or [`Event::PublishingDelayed`].
    AwaitPublished,
    /// Statements may begin, as far as this change is concerned and all that was noted is published. Comes
    /// once after each [`Self::Hold`]. Not answered.
    Release,
}

/// What is noted of a change that was, or may have been, committed.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Noted {
    /// It is committed, and what it has read of its own changes holds.
    Own,
    /// It is unknown whether it is committed: everything must be read.
    Everything,
}

/// Why a change is not committed.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Refusal {
    /// Something that the driver was asked for has failed; that failure is what the client is told.
    Failed,
    /// 40001: a statement that can be neither ended nor repeated runs, and would touch more than tables of
    /// node 1.
    CannotEnd,
    /// 40001: a statement goes on although it was cancelled and its connections ended.
    DoesNotEnd,
    /// 40001: definitions were changed while the first table was spread.
    DefinitionsChanged,
}

/// How the change's transaction has ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Ended {
    /// It is committed.
    Committed,
    /// It is not.
    Aborted,
    /// It is not known yet; recovery will determine it.
    Unknown,
}

/// Something that happened. Past tense. See [`Effect`] for what each of them answers. Times are since
/// [`Effect::Hold`].
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Event {
    /// The change's nodes answer.
    VotersAnswered,
    /// No session starves any more, or [`COURTESY`] is over.
    Passed,
    /// The role may go on.
    PauseOver,
    /// What the change means.
    Compared(Terms),
    /// The sessions that have plans.
    Listed {
        /// When they were listed.
        at: Duration,
        /// Each one's plan.
        plans: BTreeMap<Session, Plan>,
    },
    /// The nodes were asked.
    Looked {
        /// When the last had answered.
        at: Duration,
        /// Those of the sessions asked about that still have a plan.
        sessions: BTreeMap<Session, Looked>,
    },
    /// Definitions are what they were.
    DefinitionsHold,
    /// They are not.
    DefinitionsChanged,
    /// What was asked for cannot be had, or the client does not want to wait for it.
    Failed,
    /// The transaction has ended.
    Ended(Ended),
    /// Statements are planned with the change.
    Published,
    /// They will be, but not yet.
    PublishingDelayed,
}

/// How far a change is with statements by older plans.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Overtaking {
    round: Round,
    rest: VecDeque<Round>,
    /// When the round began.
    began: Duration,
    /// When the nodes were asked last. What they say is at least as new, and may arrive much later.
    asked: Duration,
    /// Before the next list.
    pause: Duration,
    /// When each session was cancelled first in this round.
    cancelled: BTreeMap<Session, Duration>,
}

/// Commits one change of the schema or of a placement, or refuses it. See the module's documentation.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct PlacementChange {
    phase: Phase,
    is_starving: bool,
    is_held: bool,
    spreads_first_table: bool,
    /// When each session's plan was stopped first.
    stopped: BTreeMap<Session, Duration>,
}

impl PlacementChange {
    /// Starts to commit a change, whose transaction has all its locks.
    ///
    /// `is_starving`: changes have kept the session from its turn itself, so it lets no other pass.
    pub fn begin(is_starving: bool, effects: &mut Vec<Effect>) -> Self {
        effects.push(Effect::AskVoters);
        Self {
            phase: Phase::Approaching(Approach::Voters),
            is_starving,
            is_held: false,
            spreads_first_table: false,
            stopped: BTreeMap::new(),
        }
    }

    /// Of a transaction that ends without having been held: it is aborted before its COMMIT, or its outcome
    /// is unknown here, because its client prepares it.
    pub fn unheld() -> Self {
        Self {
            phase: Phase::Committing,
            is_starving: false,
            is_held: false,
            spreads_first_table: false,
            stopped: BTreeMap::new(),
        }
    }

    /// Where the change is in its life.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Whether everything is over.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Takes one event, moves on, and appends what must now be done.
    ///
    /// Total: an event that is not awaited changes nothing.
    pub fn step(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match (&mut self.phase, event) {
            (Phase::Approaching(at @ Approach::Voters), Event::VotersAnswered) => {
                let (next, effect) = match self.is_starving {
                    true => (Approach::Pause, Effect::WaitForPause),
                    false => (Approach::Starving, Effect::LetPass),
                };
                *at = next;
                effects.push(effect);
            }
            (Phase::Approaching(at @ Approach::Starving), Event::Passed) => {
                *at = Approach::Pause;
                effects.push(Effect::WaitForPause);
            }
            (Phase::Approaching(Approach::Pause), Event::PauseOver) => {
                self.is_held = true;
                self.phase = Phase::Comparing;
                effects.extend([Effect::Hold, Effect::StopUnsent, Effect::Compare]);
            }
            (Phase::Comparing, Event::Compared(terms)) => {
                self.spreads_first_table = terms.was_solo && !terms.is_solo;
                self.begin_round(rounds(terms), Duration::ZERO, effects);
            }
            (Phase::Overtaking(now), Event::Listed { at, plans }) => {
                let left: BTreeSet<_> = plans
                    .iter()
                    .filter(|(_, plan)| now.round.concerns(plan))
                    .map(|(session, _)| *session)
                    .collect();
                if left.is_empty() {
                    let rest = std::mem::take(&mut now.rest);
                    self.begin_round(rest, at, effects);
                } else if at.saturating_sub(now.began) < GLANCE {
                    now.list_again(effects);
                } else {
                    now.asked = at;
                    effects.push(Effect::Look(left));
                }
            }
            (Phase::Overtaking(now), Event::Looked { at, sessions }) => {
                let since = at.saturating_sub(now.began);
                let mut is_clear = true;
                for (session, looked) in &sessions {
                    match now.meet(*session, looked, at, &mut self.stopped, effects) {
                        Verdict::IsClear => (),
                        Verdict::IsWaitedFor => is_clear = false,
                        Verdict::Refuses(why) => return self.refuse(why, effects),
                    }
                }
                if is_clear {
                    let rest = std::mem::take(&mut now.rest);
                    self.begin_round(rest, at, effects);
                } else if END_PATIENCE < since {
                    self.refuse(Refusal::DoesNotEnd, effects);
                } else {
                    now.list_again(effects);
                }
            }
            (Phase::Checking, Event::DefinitionsHold) => self.go_on(effects),
            (Phase::Checking, Event::DefinitionsChanged) => {
                self.refuse(Refusal::DefinitionsChanged, effects);
            }
            (
                Phase::Approaching(_) | Phase::Comparing | Phase::Overtaking(_) | Phase::Checking,
                Event::Failed,
            ) => self.refuse(Refusal::Failed, effects),
            (Phase::Committing, Event::Ended(Ended::Committed)) => {
                self.phase = Phase::Publishing;
                effects.extend([Effect::Note(Noted::Own), Effect::AwaitPublished]);
            }
            (Phase::Committing, Event::Ended(Ended::Unknown)) => {
                effects.push(Effect::Note(Noted::Everything));
                self.release(effects);
            }
            (Phase::Committing, Event::Ended(Ended::Aborted)) => self.release(effects),
            (Phase::Publishing, Event::Published | Event::PublishingDelayed) => {
                self.release(effects);
            }

            // Not awaited. Listed so that a new event does not compile until it is handled.
            (
                _,
                Event::VotersAnswered
                | Event::Passed
                | Event::PauseOver
                | Event::Compared(_)
                | Event::Listed { .. }
                | Event::Looked { .. }
                | Event::DefinitionsHold
                | Event::DefinitionsChanged
                | Event::Failed
                | Event::Ended(_)
                | Event::Published
                | Event::PublishingDelayed,
            ) => (),
        }
    }

    /// Begins the first of these rounds at this time; without any, no statement is in the way.
    fn begin_round(
        &mut self,
        mut rounds: VecDeque<Round>,
        at: Duration,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(round) = rounds.pop_front() {
            let cancelled = BTreeMap::new();
            self.phase = Phase::Overtaking(Overtaking {
                round,
                rest: rounds,
                began: at,
                asked: at,
                pause: PAUSE.0,
                cancelled,
            });
            effects.push(Effect::List { after: Duration::ZERO });
        } else if self.spreads_first_table {
            self.phase = Phase::Checking;
            effects.push(Effect::CheckDefinitions);
        } else {
            self.go_on(effects);
        }
    }

    fn go_on(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Committing;
        effects.push(Effect::Commit);
    }

    fn refuse(&mut self, why: Refusal, effects: &mut Vec<Effect>) {
        self.release(effects);
        effects.push(Effect::Refuse(why));
    }

    fn release(&mut self, effects: &mut Vec<Effect>) {
        self.phase = Phase::Finished;
        if std::mem::take(&mut self.is_held) {
            effects.push(Effect::Release);
        }
    }
}

/// Which statements a change must not meet, one kind after the other.
fn rounds(terms: Terms) -> VecDeque<Round> {
    let Terms { was_solo, is_solo, is_at_home, is_more, grows_code, changes_names, found } = terms;
    let stays_solo = was_solo && is_solo;
    let mut rounds = VecDeque::new();
    if is_more && !stays_solo {
        rounds.push_back(Round::Transit);
    }
    if grows_code && !stays_solo {
        rounds.push_back(Round::Calls);
    }
    if changes_names && !stays_solo {
        rounds.push_back(Round::Names);
    }
    rounds.extend(match found {
        // Changes of the schema are node 1's own business.
        Found::AsBefore { .. } if stays_solo => None,
        // What node 1 runs by itself finds its tables as they are when it has its locks.
        Found::AsBefore { adds_code: false } if is_at_home => Some(Round::WhoRebuilds),
        // A default, a trigger, a column's name: a statement that waits for the locks has a plan without it.
        Found::AsBefore { adds_code } => Some(Round::WhoWaits { adds_code }),
        // A plan that leaves everything to node 1 may reach any table at any time.
        Found::Elsewhere | Found::Anywhere if was_solo && !is_solo => Some(Round::All),
        Found::Elsewhere | Found::Anywhere => Some(Round::WhoComes),
    });
    rounds
}

/// What becomes of a statement that was looked at.
enum Verdict {
    /// It does not meet the change.
    IsClear,
    /// It is to be looked at again.
    IsWaitedFor,
    /// For its sake the change is not committed.
    Refuses(Refusal),
}

impl Overtaking {
    fn list_again(&mut self, effects: &mut Vec<Effect>) {
        effects.push(Effect::List { after: self.pause });
        self.pause = (self.pause * 2).min(PAUSE.1);
    }

    fn meet(
        &mut self,
        session: Session,
        looked: &Looked,
        at: Duration,
        stopped: &mut BTreeMap<Session, Duration>,
        effects: &mut Vec<Effect>,
    ) -> Verdict {
        let is_late = PATIENCE < self.asked.saturating_sub(self.began);
        let (plan, seen) = (&looked.plan, Seen::of(&looked.backends, is_late));
        if plan.cannot_end.is_some() {
            return match seen == Seen::WaitsForChange || is_late {
                true => Verdict::Refuses(Refusal::CannotEnd),
                false => Verdict::IsWaitedFor,
            };
        }
        if !self.cancelled.contains_key(&session)
            && let Some(stops) =
                self.leaves_alone(plan, seen, is_late, stopped.contains_key(&session))
        {
            return match !stops || self.is_stopped(session, seen, at, stopped, effects) {
                true => Verdict::IsClear,
                false => Verdict::IsWaitedFor,
            };
        }
        if self.cancelled.contains_key(&session)
            && seen == Seen::Idle
            && IDLE_PATIENCE < self.asked.saturating_sub(self.began)
            && self.is_stopped(session, seen, at, stopped, effects)
        {
            return Verdict::IsClear;
        }
        if seen == Seen::WaitsForChange || is_late {
            stopped.entry(session).or_insert(at);
            let since = *self.cancelled.entry(session).or_insert(at);
            let is_stubborn = STUBBORN_PATIENCE <= at.saturating_sub(since);
            effects.extend([
                Effect::Stop(session),
                match is_stubborn {
                    true => Effect::EndConnections(session),
                    false => Effect::Cancel(session),
                },
            ]);
        }
        Verdict::IsWaitedFor
    }

    /// Whether a statement that was not cancelled may go on with its current step; and if so, whether only
    /// with that: further steps of its plan must not be taken.
    fn leaves_alone(
        &self,
        plan: &Plan,
        seen: Seen,
        is_late: bool,
        was_stopped: bool,
    ) -> Option<bool> {
        match (self.round, seen) {
            (_, Seen::WaitsForChange) | (Round::Transit | Round::Calls | Round::All, _) => None,
            // What is behind this step is at the node already.
            (Round::WhoComes | Round::Names, _) if plan.sends_ahead || plan.comes_later => None,
            (Round::WhoComes | Round::Names, Seen::AtWork) => Some(true),
            // It was running when it was stopped.
            (Round::WhoComes | Round::Names, Seen::Idle) if was_stopped => Some(true),
            // Its next step may be on its way to a node.
            (Round::WhoComes | Round::Names, Seen::Idle | Seen::OnItsWay) => None,
            (Round::WhoRebuilds, Seen::AtWork | Seen::Idle) => Some(true),
            (Round::WhoRebuilds, Seen::OnItsWay) => is_late.then_some(true),
            (Round::WhoWaits { adds_code }, _) => {
                // Whatever it waits for, it is not on its way to the change.
                let is_far = !plan.may_use_changed;
                let comes = plan.sends_ahead || (adds_code && plan.comes_later);
                // One that waits for somebody else's lock reads what it uses behind that when it goes on.
                let is_let_go = is_late && !(adds_code && plan.uses_changed);
                let is_left = match comes {
                    true => is_far,
                    false => is_far || matches!(seen, Seen::AtWork | Seen::Idle) || is_let_go,
                };
                let stops = plan.writes_changed_in_steps
                    || plan.rebuilds_changed
                    || (adds_code && plan.uses_changed);
                is_left.then_some(stops)
            }
        }
    }

    /// Whether a statement takes no further step: its plan was stopped before the nodes were asked, and what
    /// had been sent of it by then was visible to them. Stops it if it was not.
    fn is_stopped(
        &self,
        session: Session,
        seen: Seen,
        at: Duration,
        stopped: &mut BTreeMap<Session, Duration>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(since) = stopped.get(&session) else {
            stopped.insert(session, at);
            effects.push(Effect::Stop(session));
            return false;
        };
        let Some(since) = self.asked.checked_sub(*since) else { return false };
        match seen {
            Seen::AtWork => GLANCE <= since,
            Seen::Idle | Seen::OnItsWay | Seen::WaitsForChange => LOCKS_TAKEN_AFTER <= since,
        }
    }
}
